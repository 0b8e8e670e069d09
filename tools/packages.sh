# Installs what a fresh Debian 12 lacks. Sourced by ./run and ./test, which call
# packages_need with the lists they want. One dpkg-query and nothing else when all is there.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the lists are for whoever sources this

PACKAGES_RUN=(gcc libc6-dev meson ninja-build pkg-config ca-certificates
	libevent-dev libssl-dev libc-ares-dev libyaml-dev libjansson-dev zlib1g-dev libidn2-dev
	libnftnl-dev libmnl-dev)
PACKAGES_TEST=(clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev llvm-14 libcmocka-dev
	python3 python3-pip python3-venv python3-yaml openssl nginx-light curl wget git iproute2 nftables procps strace
	shellcheck socat jq libldns-dev bind9-dnsutils knot-dnsutils
	unbound iodine dns2tcp net-tools)
PACKAGES_LONG=(docker.io debootstrap)

# Names from "$@" that are not installed, one a line.
packages_missing()
{
	# A name that dpkg has never heard of is left out of its answer, so compare with what we asked.
	comm -23 <(printf '%s\n' "$@" | sort) \
		<(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
			sed -n 's/^installed //p' | sort)
}

# Runs "$@" as root.
packages_as_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

# apt has hundreds of lines to say; they are of use only when it failed.
packages_quietly()
{
	local text

	if ! text=$("$@" 2>&1); then
		printf '%s\n' "$text" >&2
		return 1
	fi
}

# Without a policy, installing nginx starts it.
packages_install()
{
	# shellcheck disable=SC2016  # the variables belong to the inner shell
	packages_as_root env DEBIAN_FRONTEND=noninteractive bash -c '
		rc=/usr/sbin/policy-rc.d
		if [ ! -e $rc ]; then
			trap "rm -f $rc" EXIT
			printf "#!/bin/sh\nexit 101\n" >$rc
			chmod 755 $rc
		fi
		# Package lists may be missing (fresh container) or too old to fetch from.
		apt-get install -y -q --no-install-recommends "$@" ||
			{ apt-get update -q && apt-get install -y -q --no-install-recommends "$@"; }
	' bash "$@"
}

# packages_need NAME...: installs those that are missing.
packages_need()
{
	local missing

	if ! command -v dpkg-query >/dev/null; then
		echo "not a Debian system: cannot check for: $*" >&2
		return 0
	fi
	mapfile -t missing < <(packages_missing "$@")
	if [ "${#missing[@]}" -eq 0 ]; then
		return 0
	fi
	if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
		echo "missing packages, and neither root nor sudo to install them: ${missing[*]}" >&2
		return 1
	fi
	echo "installing: ${missing[*]}" >&2
	packages_quietly packages_install "${missing[@]}"
}
