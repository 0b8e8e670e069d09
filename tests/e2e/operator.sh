#!/usr/bin/env bash
# The operator's view: help, checks, starts that cannot succeed, with which rights it all runs, the
# trail, ./run. Reloads and ends are in lifecycle.sh. Helpers, names and origins: bed.sh.

# shellcheck source=tests/e2e/bed.sh
. "$(dirname "$0")/bed.sh"

CASES=(help version wrong_option check_good check_example check_bad check_warns address_in_use
	no_state_directory no_default_state_directory audit_not_writable audit_in_use no_roots
	bad_roots ca_key_is_kept listens_on_ipv6
	root_worker_has_no_rights unprivileged audit_to_stdout audit_moved_away audit_rotates
	egressctl_tail run_script run_state_folder)

WORK=${EGRESS_TMP-}/operator
[ "${1-}" = --list ] || mkdir -p "$WORK"

# plain VAR=VALUE... -- ARGS...: the program with these variables only. OUT, ERR and STATUS are what
# it said; it has 10 s to end.
plain()
{
	local vars=()

	while [ "$1" != -- ]; do
		vars+=("$1")
		shift
	done
	shift
	OUT=$(env -i PATH="$PATH" HOME="$WORK" "${EG_SAN[@]}" "${vars[@]}" timeout 10 "$EGRESS_BIN" "$@" \
		2>"$WORK/err")
	STATUS=$?
	ERR=$(cat "$WORK/err")
}

# --- the command line ---

case_help()
{
	local word

	plain -- --help
	want "$STATUS $ERR" '0 ' 'exit code and stderr' || return
	for word in USAGE OPTIONS --check EGRESS_AUDIT AGENTIC_WRITE_HOSTS SIGHUP 'EXIT CODES'; do
		want_match "$OUT" "$word" 'the help' || return
	done
	# A name of the environment cannot be broken.
	want "$(awk 'length > 80 && !/OPENSANDBOX_/' <<<"$OUT")" '' 'lines over 80 characters'
}

case_version()
{
	plain -- --version
	want "$STATUS $ERR" '0 ' 'exit code and stderr' &&
		want_match "$OUT" '^egress [0-9]+\.[0-9]+' 'the version'
}

case_wrong_option()
{
	plain -- --chekc
	want "$STATUS" 2 'exit code' && want_match "$ERR" '^egress: .*--chekc.*--help' message &&
		plain -- surplus && want "$STATUS" 2 'exit code' && want_match "$ERR" surplus message
}

case_check_good()
{
	local first

	cat >"$WORK/good.yaml" <<-'TEXT'
		mode: proxy
		policy:
		  defaultAction: deny
		  egress:
		    - {action: allow, target: read.test}
		write_hosts: [read.test]
		first_byte: 3m
	TEXT
	plain EGRESS_FIRST_BYTE=7s -- --check --config "$WORK/good.yaml"
	want "$STATUS $ERR" '0 ' 'exit code and stderr' &&
		want_match "$OUT" 'first_byte: 7s' 'the variable wins' &&
		want_match "$OUT" 'read_only: (true|on)' 'the rule is on' || return
	# What it prints is a configuration that means the same.
	first=$OUT
	echo "$first" >"$WORK/again.yaml"
	plain -- --check --config "$WORK/again.yaml"
	want "$STATUS $ERR" '0 ' 'exit code and stderr of the second' &&
		want "$OUT" "$first" 'the second'
}

case_check_example()
{
	plain -- --check --config "$BED_SRC/docs/examples/egress.yaml"
	want "$STATUS $ERR" '0 ' 'exit code and stderr'
}

# check_bad_row MESSAGE VAR=VALUE...
check_bad_row()
{
	local message=$1

	shift
	plain OPENSANDBOX_EGRESS_MODE=proxy "$@" -- --check
	want "$STATUS" 2 "exit code with $*" && want_match "$ERR" "^egress: $message" "$*" &&
		want "$(wc -l <<<"$ERR")" 1 "lines with $*" && want "$OUT" '' "stdout with $*"
}

# check_bad_yaml MESSAGE LINE...: the last line is the wrong one
check_bad_yaml()
{
	local message=$1

	shift
	printf '%s\n' 'mode: proxy' "$@" >"$WORK/bad.yaml"
	plain -- --check --config "$WORK/bad.yaml"
	want "$STATUS" 2 "exit code with $*" &&
		want_match "$ERR" "^egress: .*bad.yaml:$(($# + 1)).*$message" "$*"
}

case_check_bad()
{
	check_bad_row 'AGENTIC_WRITE_HOST: .*AGENTIC_WRITE_HOSTS' AGENTIC_WRITE_HOST=a.test &&
		check_bad_row 'EGRESS_AUDITS: .*EGRESS_AUDIT' EGRESS_AUDITS=stdout &&
		check_bad_row 'AGENTIC_WRITE_HOSTS: .*https' AGENTIC_WRITE_HOSTS=https://a.test &&
		check_bad_row 'AGENTIC_WRITE_HOSTS: .*a.test:443' AGENTIC_WRITE_HOSTS=a.test:443 &&
		check_bad_row 'AGENTIC_WRITE_HOSTS: ' 'AGENTIC_WRITE_HOSTS=*' &&
		check_bad_row 'OPENSANDBOX_EGRESS_MODE: .*proxxy.*expected' \
			OPENSANDBOX_EGRESS_MODE=proxxy &&
		check_bad_row 'EGRESS_READ_ONLY: .*expected' EGRESS_READ_ONLY=maybe &&
		check_bad_row 'EGRESS_FIRST_BYTE: .*expected' EGRESS_FIRST_BYTE=soon &&
		check_bad_row 'EGRESS_PROXY_ADDR: .*expected' EGRESS_PROXY_ADDR=here &&
		check_bad_row 'OPENSANDBOX_EGRESS_RULES: .*log' \
			'OPENSANDBOX_EGRESS_RULES={"egress":[{"action":"log","target":"a.test"}]}' &&
		check_bad_row 'OPENSANDBOX_EGRESS_PROFILE' OPENSANDBOX_EGRESS_PROFILE=x &&
		check_bad_row 'OPENSANDBOX_EGRESS_MITMPROXY_SCRIPT' \
			OPENSANDBOX_EGRESS_MITMPROXY_SCRIPT=x &&
		check_bad_row 'EGRESS_PASS_THROUGH: .*a.test' AGENTIC_WRITE_HOSTS= \
			EGRESS_PASS_THROUGH=a.test OPENSANDBOX_EGRESS_RULES="$BED_POLICY" &&
		check_bad_yaml 'write_hosts' 'log_level: info' 'write_host: [a.test]' &&
		check_bad_yaml 'expected' 'first_byte: soon' &&
		check_bad_yaml 'log' 'policy:' '  egress:' '    - {action: log, target: a.test}' &&
		plain -- --check --config "$WORK/missing.yaml" &&
		want "$STATUS" 2 'exit code without a file' &&
		want_match "$ERR" 'missing.yaml' 'message without a file'
}

# check_warns_row MESSAGE VAR=VALUE...: MESSAGE empty: nothing is said
check_warns_row()
{
	local message=$1

	shift
	plain OPENSANDBOX_EGRESS_MODE=proxy \
		'OPENSANDBOX_EGRESS_RULES={"egress":[{"action":"allow","target":"a.test"}]}' "$@" \
		-- --check
	want "$STATUS" 0 "exit code with $*" || return
	if [ -n "$message" ]; then
		want_match "$ERR" " warn .*$message" "$*"
	else
		want "$ERR" '' "stderr with $*"
	fi
}

case_check_warns()
{
	: >"$WORK/empty.json"
	echo '{"egress":7}' >"$WORK/invalid.json"
	check_warns_row OPENSANDBOX_EGRESS_NEWS OPENSANDBOX_EGRESS_NEWS=1 &&
		check_warns_row '' EGRESS_SERVICE_HOST=10.0.0.1 EGRESS_SERVICE_PORT=80 \
			EGRESS_PORT_80_TCP=tcp://10.0.0.1:80 EGRESS_PORT=tcp://10.0.0.1:80 &&
		check_warns_row 'b.test' AGENTIC_WRITE_HOSTS=a.test,b.test &&
		check_warns_row 'read.only' AGENTIC_WRITE_HOSTS=a.test EGRESS_READ_ONLY=off &&
		check_warns_row OPENSANDBOX_EGRESS_TOKEN OPENSANDBOX_EGRESS_HTTP_ADDR=:18080 &&
		check_warns_row '' OPENSANDBOX_EGRESS_POLICY_FILE="$WORK/missing.json" &&
		check_warns_row empty.json OPENSANDBOX_EGRESS_POLICY_FILE="$WORK/empty.json" &&
		check_warns_row invalid.json OPENSANDBOX_EGRESS_POLICY_FILE="$WORK/invalid.json" &&
		check_warns_row '' AGENTIC_WRITE_HOSTS=a.test
}

# --- starts that cannot succeed ---

# start_fails MESSAGE SETTINGS...
start_fails()
{
	local message=$1

	shift
	if egress_start "$@"; then
		fail "it starts with $*"
		return
	fi
	want "$EG_STATUS" 2 'exit code' && want_match "$(cat "$EG_LOG")" "$message" 'stderr' &&
		want "$(grep -cE 'Sanitizer|runtime error' "$EG_LOG")" 0 'sanitizer reports'
}

# No origin is needed here, and neither root.
NO_BED=(OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR=/etc/ssl/certs)

case_address_in_use()
{
	local port status

	"$PYTHON" -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True)
time.sleep(30)' >"$WORK/port" &
	port=$!
	wait_for 5 test -s "$WORK/port"
	start_fails "127.0.0.1:$(cat "$WORK/port").*in use.*EGRESS_PROXY_ADDR" \
		"${NO_BED[@]}" EGRESS_PROXY_ADDR="127.0.0.1:$(cat "$WORK/port")"
	status=$?
	kill $port
	wait $port 2>/dev/null
	return $status
}

case_no_state_directory()
{
	start_fails EGRESS_CA_CERT_OUT "${NO_BED[@]}" EGRESS_CA_CERT_OUT="$WORK/none/ca.pem"
}

# Below /proc not even root makes a folder.
case_no_default_state_directory()
{
	start_fails 'XDG_STATE_HOME' "${NO_BED[@]}" EGRESS_CA_CERT_OUT= XDG_STATE_HOME=/proc/none
}

case_audit_not_writable()
{
	start_fails EGRESS_AUDIT "${NO_BED[@]}" EGRESS_AUDIT="$WORK/none/audit.jsonl"
}

case_audit_in_use()
{
	local audit status

	egress_need "${NO_BED[@]}" || return
	audit=$EG_AUDIT
	# Not by egress_start, which would stop the first one.
	plain OPENSANDBOX_EGRESS_MODE=proxy EGRESS_AUDIT="$audit" EGRESS_CA_CERT_OUT="$WORK/ca.pem" \
		EGRESS_PROXY_ADDR="127.0.0.1:$(egress_free_port)" --
	status=$STATUS
	want "$status" 2 'exit code' && want_match "$ERR" 'EGRESS_AUDIT' message
}

case_no_roots()
{
	start_fails UPSTREAM_TRUST_DIR OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR=/none
}

case_bad_roots()
{
	echo 'no certificate' >"$WORK/roots.pem"
	start_fails roots.pem OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR="$WORK/roots.pem"
}

# --- starts that do ---

case_ca_key_is_kept()
{
	local key=$WORK/ca-key.pem first

	rm -f "$key"
	egress_start "${NO_BED[@]}" EGRESS_CA_KEY="$key" || fail 'no start' || return
	want "$(stat -c %a "$key")" 600 'mode of the key' || return
	first=$(cat "$EG_CA")
	egress_start "${NO_BED[@]}" EGRESS_CA_KEY="$key" || fail 'no second start' || return
	want "$(cat "$EG_CA")" "$first" 'the certificate of the second start' || return
	egress_start "${NO_BED[@]}" || fail 'no third start' || return
	[ "$(cat "$EG_CA")" != "$first" ] || fail 'a CA of its own is the same' || return
	chmod 640 "$key"
	start_fails "EGRESS_CA_KEY.*ca-key.pem.*0?600" "${NO_BED[@]}" EGRESS_CA_KEY="$key"
}

case_listens_on_ipv6()
{
	need_origins && egress_need || return
	[ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6 || skip 'no IPv6' || return
	want "$(curl -sS -x "http://[::1]:$EG_PORT" http://read.test/hello.txt)" \
		'hello from read' content
}

# --- rights ---

# status_of PID FIELD
status_of()
{
	awk -v f="$2:" '$1 == f { $1 = ""; sub(/^ /, ""); print }' "/proc/$1/status"
}

# What no worker may have, whoever started it.
worker_is_bare()
{
	local pid=$1 set

	for set in CapInh CapPrm CapEff CapBnd CapAmb; do
		want "$(status_of "$pid" $set)" 0000000000000000 "$set" || return
	done
	want "$(status_of "$pid" Seccomp)" 2 Seccomp &&
		want "$(status_of "$pid" NoNewPrivs)" 1 NoNewPrivs &&
		want "$(awk '/Max core file size/ { print $5, $6 }' "/proc/$pid/limits")" '0 0' \
			'core limit'
}

case_root_worker_has_no_rights()
{
	local pid

	[ "$(id -u)" -eq 0 ] || skip 'needs root' || return
	need_origins && egress_need || return
	pid=$(egress_worker)
	want "$(status_of "$pid" Uid)" '10042 10042 10042 10042' Uid &&
		want "$(status_of "$pid" Gid)" '10042 10042 10042 10042' Gid &&
		want "$(status_of "$pid" Groups)" '' 'other groups' &&
		worker_is_bare "$pid" &&
		want "$(via curl -sS https://read.test/hello.txt)" 'hello from read' content
}

case_unprivileged()
{
	# The build may be where other users cannot read it.
	local pid status copy=$WORK/egress

	[ "$(id -u)" -eq 0 ] || skip 'needs root to become another user' || return
	need_tool setpriv && need_origins || return
	cp "$EGRESS_BIN" "$copy" || return
	local EGRESS_BIN=$copy
	EG_AS=(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all --)
	egress_need && pid=$(egress_worker) &&
		want "$(status_of "$EG_PID" Uid)" '65534 65534 65534 65534' 'Uid of the supervisor' &&
		want "$(status_of "$pid" Uid)" '65534 65534 65534 65534' 'Uid of the worker' &&
		want "$(status_of "$pid" Seccomp)" 2 Seccomp &&
		want "$(status_of "$pid" NoNewPrivs)" 1 NoNewPrivs &&
		want "$(status_of "$pid" CapEff)" 0000000000000000 CapEff &&
		want "$(via curl -sS https://read.test/hello.txt)" 'hello from read' content &&
		audit_want 'read allowed allowed GET https://read.test/hello.txt 200' &&
		egress_stop
	status=$?
	EG_AS=()
	return $status
}

# --- the trail ---

case_audit_to_stdout()
{
	need_origins && egress_need EGRESS_AUDIT=stdout || return
	via curl -sS https://read.test/hello.txt >/dev/null
	wait_for 3 grep -q '"kind":"read"' "$EG_DIR/egress.out" || fail 'no line' || return
	want "$(jq -r 'select(.kind == "read") | "\(.method) \(.url) \(.status)"' \
		"$EG_DIR/egress.out")" 'GET https://read.test/hello.txt 200' 'the line' &&
		egress_stop &&
		want "$(jq -r .kind "$EG_DIR/egress.out" | tail -1)" stop 'the last line'
}

# logrotate: move the file away, then SIGHUP.
case_audit_moved_away()
{
	need_origins && egress_start || return
	via curl -sS http://read.test/hello.txt?1 >/dev/null
	wait_for 3 audit_count 'hello.txt?1' 1 || fail 'no first line' || return
	mv "$EG_AUDIT" "$EG_AUDIT.1"
	kill -HUP "$EG_PID"
	wait_for 3 test -e "$EG_AUDIT" || fail 'no new file' || return
	want "$(stat -c %a "$EG_AUDIT")" 600 'mode of the new file' || return
	via curl -sS http://read.test/hello.txt?2 >/dev/null
	wait_for 3 grep -qs 'hello.txt?2' "$EG_AUDIT" || fail 'no line in the new file' || return
	egress_stop
}

case_audit_rotates()
{
	need_origins && egress_start EGRESS_AUDIT_MAX_BYTES=64KiB || return
	via curl -sS 'http://read.test/hello.txt?[1-500]' >/dev/null
	wait_for 3 audit_count '"kind":"read"' 500 || fail 'lines are missing' || return
	[ -s "$EG_AUDIT.1" ] && [ -s "$EG_AUDIT.2" ] || fail 'no older files' || return
	want "$(cat "$EG_AUDIT" "$EG_AUDIT".? | jq -r 'select(.kind == "read").url' | sort -u |
		wc -l)" 500 'different lines' && audit_verify && egress_stop
}

# The second shell of the first five minutes.
case_egressctl_tail()
{
	local tail

	[ -x "$EGRESSCTL_BIN" ] || skip 'no egressctl in this build' || return
	need_origins && egress_need || return
	"$EGRESSCTL_BIN" audit tail -f -n 0 --file "$EG_AUDIT" >"$WORK/tail" 2>"$WORK/err" &
	tail=$!
	via curl -sS https://read.test/hello.txt?seen >/dev/null
	via curl -sS -d x https://read.test/hello.txt?unseen >/dev/null
	wait_for 5 grep -qs 'hello.txt?unseen' "$WORK/tail"
	kill $tail
	wait $tail 2>/dev/null
	want_match "$(cat "$WORK/tail" "$WORK/err")" 'GET.*https://read.test/hello.txt\?seen' \
		'what it shows' &&
		want_match "$(cat "$WORK/tail")" 'POST.*https://read.test/hello.txt\?unseen' \
			'what it shows' &&
		audit_verify
}

# --- ./run ---

# ./run with a builder that takes the program under test: the build itself is another test.
run_copy()
{
	local top=$WORK/run

	mkdir -p "$top/bin" "$top/build/run/control" "$top/docs/examples" "$top/tools"
	cp "$BED_SRC/run" "$top/" && cp "$BED_SRC/tools/packages.sh" "$top/tools/" &&
		cp "$BED_SRC/docs/examples/egress.yaml" "$top/docs/examples/" || return
	touch "$top/build/run/build.ninja"
	# shellcheck disable=SC2016  # the stand-in expands
	printf '#!/bin/sh\nln -sf "%s" "$PWD/build/run/control/egress"\n' "$EGRESS_BIN" \
		>"$top/bin/ninja"
	chmod +x "$top/bin/ninja"
}

run_is_up()
{
	grep -qs ' ready: ' "$WORK/run.err" && [ -s "$1" ]
}

case_run_script()
{
	local run port state=$WORK/state status

	need_origins || return
	run_copy || fail copy || return
	port=$(egress_free_port)
	(cd / && exec env -i "${EG_SAN[@]}" HOME="$WORK" PATH="$WORK/run/bin:$PATH" XDG_STATE_HOME="$state" \
		EGRESS_PROXY_ADDR="127.0.0.1:$port" OPENSANDBOX_EGRESS_RULES="$BED_POLICY" \
		OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR="$BED_CA" \
		OPENSANDBOX_EGRESS_DNS_UPSTREAM="$BED_DNS" "$WORK/run/run" \
		>"$WORK/run.out" 2>"$WORK/run.err") &
	run=$!
	BED_PIDS+=("$run")
	wait_for 10 run_is_up "$state/egress/ca-cert-bundle.pem"
	# What it prints is meant to be pasted into another shell.
	OUT=$(
		eval "$(sed -n 's/^  export/export/p' "$WORK/run.out")"
		curl -sS https://read.test/hello.txt
		wget -qO - https://read.test/hello.txt
		curl -sS -d x https://read.test/hello.txt | cut -c -11
	)
	kill $run
	wait $run
	status=$?
	want "$OUT" $'hello from read\nhello from read\n403 blocked' 'what its lines give' &&
		want "$(sed -n 's/^proxy *//p' "$WORK/run.out")" "http://127.0.0.1:$port" 'proxy' &&
		want "$(sed -n 's/^CA certificate *//p' "$WORK/run.out")" \
			"$state/egress/ca-cert.pem" 'certificate' &&
		want "$(jq -r 'select(.kind == "read").url' "$state/egress/audit.jsonl" | wc -l)" 2 \
			'reads on record' &&
		want "$status" 0 'exit code' || return
	OUT=$(env -i HOME="$WORK" PATH="$WORK/run/bin:$PATH" "$WORK/run/run" -- --version 2>&1)
	want_match "$OUT" '^egress [0-9.]+$' './run -- --version'
}

# run_state VAR=VALUE...: the folder of the audit trail, with this environment.
run_state()
{
	env -i "${EG_SAN[@]}" HOME="$WORK" PATH="$WORK/run/bin:$PATH" "$@" "$WORK/run/run" -- --check |
		sed -n 's/^audit: \["\(.*\)\/audit.jsonl"\]$/\1/p'
}

# The certificate must be where other users can read it, so not in root's home.
case_run_state_folder()
{
	local usual=$WORK/.local/state/egress

	[ "$(id -u)" -ne 0 ] || usual=/var/lib/egress
	[ -x "$WORK/run/run" ] || run_copy || fail copy || return
	want "$(run_state)" "$usual" 'the usual folder' &&
		want "$(run_state XDG_STATE_HOME="$WORK/other")" "$WORK/other/egress" 'XDG_STATE_HOME'
}

bed_main "$@"
