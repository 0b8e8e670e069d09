#!/bin/bash
# Real clients verify a minted chain, as strictly as each can: by name, by IPv4 and IPv6 address.
#
#   strict_verify.sh MINT_CHAIN       MINT_CHAIN: the program built from mint_chain.c
#
# Prints `ok CLIENT-WHAT`, `not ok CLIENT-WHAT WHY` or `skip CLIENT WHY`; exit 1 if one was not ok.
# Each client must also refuse the chain for another name, or its "ok" would say nothing.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mint=${1:?program mint_chain}
tmp=$(mktemp -d)
servers=()
failed=0
NAME=read.test
OTHER=other.test

# shellcheck disable=SC2317
finish() {
	[ ${#servers[@]} = 0 ] || kill "${servers[@]}" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$tmp"
}
trap finish EXIT

# report CASE WANT CMD...: WANT is 0 (accepts) or 1 (refuses).
report() {
	local case=$1 want=$2 code
	shift 2
	timeout 100 "$@" >"$tmp/out" 2>&1 </dev/null
	code=$?
	# Did not end by itself, was not found, or crashed; certutil says no with 255.
	if [ $code -ge 124 ] && [ $code -le 192 ]; then
		echo "not ok $case ended with $code"
	elif [ "$want" = 0 ] && [ $code != 0 ]; then
		echo "not ok $case $(tr '\n' ' ' <"$tmp/out" | cut -c1-300)"
	elif [ "$want" = 1 ] && [ $code = 0 ]; then
		echo "not ok $case accepted it"
	else
		echo "ok $case"
		return
	fi
	failed=1
}

# both CLIENT WHAT GOOD BAD CMD...: in CMD, @ stands for the name to verify.
both() {
	local client=$1 what=$2 good=$3 bad=$4
	shift 4
	report "$client-$what" 0 "${@//@/$good}"
	report "$client-$what-refused" 1 "${@//@/$bad}"
}

have() {
	command -v "$1" >/dev/null && return
	echo "skip $2 no $1"
	return 1
}

# serve CERT ADDRESS: a server on a free port; the port in $port.
serve() {
	local log="$tmp/$1.log"
	openssl s_server -accept "$2:0" -cert "$tmp/$1.pem" -key "$tmp/key.pem" -www \
		>"$log" 2>&1 &
	servers+=($!)
	for _ in $(seq 100); do
		port=$(sed -n 's/^ACCEPT .*:\([0-9]*\)$/\1/p' "$log")
		[ -n "$port" ] && return
		sleep 0.05
	done
	echo "not ok server $(tr '\n' ' ' <"$log")"
	exit 1
}

"$mint" "$tmp" || exit 1
serve name 127.0.0.1
name_port=$port
serve v4 127.0.0.1
v4_port=$port
v6_port=
if [ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6; then
	serve v6 '[::1]'
	v6_port=$port
fi

openssl_verify=(openssl verify -x509_strict -check_ss_sig -policy_check -auth_level 2
	-purpose sslserver -CAfile "$tmp/ca.pem")
both openssl-verify name $NAME $OTHER "${openssl_verify[@]}" -verify_hostname @ "$tmp/name.pem"
both openssl-verify v4 127.0.0.1 127.0.0.2 "${openssl_verify[@]}" -verify_ip @ "$tmp/v4.pem"
both openssl-verify v6 ::1 ::2 "${openssl_verify[@]}" -verify_ip @ "$tmp/v6.pem"
for version in tls1_2 tls1_3; do
	both openssl-s_client $version $NAME $OTHER openssl s_client -"$version" -x509_strict \
		-verify_return_error -CAfile "$tmp/ca.pem" -verify_hostname @ \
		-servername $NAME -connect "127.0.0.1:$name_port"
done

if have curl curl; then
	curl=(curl -sS --noproxy '*' -o /dev/null --cacert "$tmp/ca.pem")
	both curl name $NAME $OTHER "${curl[@]}" --connect-to "::127.0.0.1:$name_port" https://@/
	# The wrong address: the name's certificate.
	report curl-v4 0 "${curl[@]}" "https://127.0.0.1:$v4_port/"
	report curl-v4-refused 1 "${curl[@]}" "https://127.0.0.1:$name_port/"
fi
if have wget wget; then
	# Debian's is linked with GnuTLS.
	wget=(wget -q --no-proxy --tries=1 --timeout=10 -O /dev/null "--ca-certificate=$tmp/ca.pem")
	report wget-v4 0 "${wget[@]}" "https://127.0.0.1:$v4_port/"
	report wget-v4-refused 1 "${wget[@]}" "https://127.0.0.1:$name_port/"
fi

pythons=0
for python in /usr/bin/python3 python3.13 "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}"/versions/3.13*/bin/python3; do
	version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
	case " ${seen-} " in *" $version "*) continue ;; esac
	seen="${seen-} $version"
	pythons=$((pythons + 1))
	run=("$python" "$here/strict_verify.py" "$tmp/ca.pem" @)
	both "python$version" name $NAME $OTHER "${run[@]}" 127.0.0.1 "$name_port"
	both "python$version" v4 127.0.0.1 127.0.0.2 "${run[@]}" 127.0.0.1 "$v4_port"
	[ -z "$v6_port" ] || both "python$version" v6 ::1 ::2 "${run[@]}" ::1 "$v6_port"
done
[ $pythons -gt 0 ] || echo "skip python no python3"

if have go go; then
	if GO111MODULE=off GOTOOLCHAIN=local GOCACHE="${GOCACHE:-${HOME:-$tmp}/.cache/go-build}" \
		go build -o "$tmp/strict_go" "$here/strict_verify.go" >"$tmp/out" 2>&1; then
		run=("$tmp/strict_go" "$tmp/ca.pem" @)
		both go name $NAME $OTHER "${run[@]}" "127.0.0.1:$name_port"
		both go v4 127.0.0.1 127.0.0.2 "${run[@]}" "127.0.0.1:$v4_port"
	else
		echo "skip go $(tr '\n' ' ' <"$tmp/out" | cut -c1-200)"
	fi
fi
if have java java; then
	run=(java -XX:TieredStopAtLevel=1 -Djava.security.egd=file:/dev/urandom
		"$here/StrictVerify.java" "$tmp/ca.pem" @)
	both java name $NAME $OTHER "${run[@]}" 127.0.0.1 "$name_port"
	both java v4 127.0.0.1 127.0.0.2 "${run[@]}" 127.0.0.1 "$v4_port"
fi
if have node node; then
	script='require("tls").connect({host: "127.0.0.1", port: process.argv[1], servername:
		process.argv[2], ca: require("fs").readFileSync(process.argv[3])}, () =>
		process.exit(0)).on("error", e => { console.error(e.message); process.exit(1) })'
	both node name $NAME $OTHER node -e "$script" "$name_port" @ "$tmp/ca.pem"
fi
if have certutil nss; then
	db="sql:$tmp/nss"
	mkdir "$tmp/nss"
	certutil -N -d "$db" --empty-password &&
		certutil -A -d "$db" -n ca -t C,, -a -i "$tmp/ca.pem" &&
		certutil -A -d "$db" -n name -t ,, -a -i "$tmp/name.pem" || failed=1
	report nss-name 0 certutil -V -d "$db" -n name -u V -e
	# It compares no name; but a server's certificate is not one for mail.
	report nss-other-use-refused 1 certutil -V -d "$db" -n name -u S -e
	report nss-ca 0 certutil -V -d "$db" -n ca -u L -e
fi
if have certtool gnutls; then
	gnutls=(certtool --verify --load-ca-certificate "$tmp/ca.pem" --verify-purpose
		1.3.6.1.5.5.7.3.1 --infile "$tmp/name.pem" --verify-hostname)
	both gnutls name $NAME $OTHER "${gnutls[@]}" @
fi
exit $failed
