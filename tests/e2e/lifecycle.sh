#!/usr/bin/env bash
# What happens to what is open: reloads, kills, stops. Starts and rights are in operator.sh. Helpers,
# names and origins: bed.sh.

# shellcheck source=tests/e2e/bed.sh
. "$(dirname "$0")/bed.sh"

CASES=(reload_narrows_and_widens reload_cuts_exchanges reload_cuts_tunnels
	reload_between_connect_and_bytes bad_reload_keeps_policy reload_keeps_mode reload_keeps_resolvers
	reload_storm worker_killed
	worker_killed_after_unread_edit stop_ends_exchanges stop_signal_comes_late supervisor_killed)

WORK=${EGRESS_TMP-}/lifecycle
[ "${1-}" = --list ] || mkdir -p "$WORK"

SLOW_URL='https://read.test/app/slow?bytes=100000'

# slow_start MS: a download of 20 pieces, one each MS, in the background; waits for its first bytes.
slow_start()
{
	rm -f "$WORK/slow"
	via curl -sS -N -m 20 -o "$WORK/slow" "$SLOW_URL&ms=$1" \
		2>"$WORK/slow.err" &
	SLOW=$!
	wait_for 5 test -s "$WORK/slow" || fail 'the slow download does not begin'
}

# --- reloads ---

CONFIG=$WORK/egress.yaml

# config_write POLICY [LINE...]: the policy as JSON, which is YAML too but for its tabs.
config_write()
{
	printf 'policy: %s\n' "$(tr -d '\n\t' <<<"$1")" >"$CONFIG.new"
	shift
	[ $# -eq 0 ] || printf '%s\n' "$@" >>"$CONFIG.new"
	mv "$CONFIG.new" "$CONFIG"
}

POLICY_NARROW='{"defaultAction":"deny","egress":[{"action":"allow","target":"two.test"},
	{"action":"allow","target":"git.test"},{"action":"allow","target":"127.0.0.0/8"}]}'

config_start()
{
	need_origins || return
	config_write "$BED_POLICY"
	egress_start OPENSANDBOX_EGRESS_RULES= "$@" -- --config "$CONFIG" ||
		fail "egress did not start: $(tail -3 "$EG_LOG")"
}

# reload TEXT: SIGHUP, and waits until the log has one more line with TEXT.
reload()
{
	local before

	before=$(grep -c "$1" "$EG_LOG")
	kill -HUP "$EG_PID"
	wait_for 5 log_has_more "$1" "$before" || fail "no '$1' in the log: $(tail -3 "$EG_LOG")"
}

log_has_more()
{
	[ "$(grep -c "$1" "$EG_LOG")" -gt "$2" ]
}

# code URL: the status of a GET
code()
{
	via curl -sS -m 10 -o /dev/null -w '%{http_code}' "$1" 2>/dev/null
}

case_reload_narrows_and_widens()
{
	config_start || return
	want "$(code http://read.test/hello.txt)" 200 'before' || return
	config_write "$POLICY_NARROW"
	reload 'rules in force' &&
		want "$(code http://read.test/hello.txt)" 403 'narrowed' &&
		want "$(code http://two.test/hello.txt)" 200 'narrowed, another host' || return
	config_write "$BED_POLICY" 'read_only: false'
	reload 'rules in force' &&
		want "$(code https://read.test/hello.txt)" 200 'widened' || return
	# AGENTIC_WRITE_HOSTS is in the environment, so only the rule itself could be lifted here.
	via curl -sS -o /dev/null -d x http://read.test/app/up
	origin_want read 'GET http://read.test/hello.txt 200' \
		'GET https://read.test/hello.txt 200' 'POST http://read.test/app/up 200' &&
		{ wait_for 3 audit_count '"kind":"policy"' 2 || fail 'no two lines about the policy'; }
}

# An answer that is under way from a host that is now denied is cut; from others it comes whole.
case_reload_cuts_exchanges()
{
	local kept

	config_start || return
	slow_start 100
	via curl -sS -N -m 20 -o "$WORK/kept" "http://two.test/app/slow?bytes=100000&ms=100" &
	kept=$!
	wait_for 5 test -s "$WORK/kept" || fail 'the other download does not begin' || return
	config_write "$POLICY_NARROW"
	reload 'rules in force' || return
	wait_for 1 test ! -d "/proc/$SLOW" || fail 'it goes on' || return
	wait $SLOW && fail 'it came whole' && return
	wait $kept
	want "$?" 0 'the other one' &&
		want "$(stat -c %s "$WORK/kept")" 100000 'its size' &&
		audit_want "read failed policy_changed GET $SLOW_URL&ms=100 200" \
			"read allowed allowed GET http://two.test/app/slow?bytes=100000&ms=100 200"
}

TUNNELS=()

# A stop would wait 8 s for those that are still open.
tunnels_close()
{
	kill "${TUNNELS[@]}" 2>/dev/null
	wait "${TUNNELS[@]}" 2>/dev/null
	TUNNELS=()
}

# tunnel_open NAME HOST: CONNECT HOST:443, then silence. The files NAME.open and NAME.closed tell.
tunnel_open()
{
	"$PYTHON" - "$EG_PORT" "$2" "$WORK/$1" <<-'TEXT' &
		import socket, sys
		port, host, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
		s = socket.create_connection(("127.0.0.1", port))
		s.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
		with open(name + ".open", "wb") as file:
		    file.write(s.recv(65536))
		s.settimeout(20)
		try:
		    end = repr(s.recv(1))
		except OSError as error:
		    end = type(error).__name__
		with open(name + ".closed", "w") as file:
		    file.write(end)
	TEXT
	TUNNELS+=("$!")
	wait_for 5 test -s "$WORK/$1.open" || fail "no tunnel to $2"
}

# Tunnels that the new policy does not allow are cut within a second, and that is on record.
case_reload_cuts_tunnels()
{
	local worker

	config_start || return
	worker=$(egress_worker)
	tunnel_open cut model.test && tunnel_open kept git.test || return
	sleep 0.5 # so long that they are tunnels, and not yet somebody who will speak TLS
	config_write "$POLICY_NARROW"
	reload 'rules in force' || return
	wait_for 1 test -s "$WORK/cut.closed" || fail 'the tunnel goes on' || return
	want "$(egress_worker)" "$worker" 'the worker' &&
		want "$(find "$WORK" -name kept.closed)" '' 'tunnels that were cut besides' &&
		audit_want 'tunnel failed policy_changed CONNECT model.test:443 null' || return
	tunnels_close
}

# CONNECT was judged by rule 8 of a policy that has no rule now.
case_reload_between_connect_and_bytes()
{
	local worker

	config_start || return
	worker=$(egress_worker)
	tunnel_open early git.test || return
	config_write '{"defaultAction":"deny","egress":[]}'
	reload 'rules in force' || return
	wait_for 2 test -s "$WORK/early.closed" || fail 'the connection goes on' || return
	want "$(egress_worker)" "$worker" 'the worker' && origin_want git
}

case_bad_reload_keeps_policy()
{
	config_start || return
	echo 'policy: {egress: [{action: log, target: read.test}]}' >"$CONFIG"
	reload 'reload refused, nothing is changed: .*egress.yaml:1' &&
		want "$(code http://read.test/hello.txt)" 200 'with a bad file' || return
	rm "$CONFIG"
	reload 'reload refused, nothing is changed: .*egress.yaml' &&
		want "$(code http://read.test/hello.txt)" 200 'without a file' || return
	config_write "$POLICY_NARROW" 'no_such_key: 1'
	reload 'reload refused, nothing is changed: .*egress.yaml:2.*no_such_key' &&
		want "$(code http://read.test/hello.txt)" 200 'with an unknown key' || return
	config_write "$POLICY_NARROW"
	reload 'rules in force' && want "$(code http://read.test/hello.txt)" 403 'with a good file'
}

# descriptors PID...: how many each has
descriptors()
{
	local pid

	for pid in "$@"; do
		find "/proc/$pid/fd" -mindepth 1 | wc -l
	done
}

descriptors_are()
{
	[ "$(descriptors "$EG_PID" "$(egress_worker)")" = "$1" ]
}

# Rules of the kernel would come or go under a sandbox that runs.
case_reload_keeps_mode()
{
	need_origins || return
	config_write "$BED_POLICY" 'mode: proxy'
	egress_start OPENSANDBOX_EGRESS_RULES= OPENSANDBOX_EGRESS_MODE= -- --config "$CONFIG" ||
		fail "egress did not start: $(tail -3 "$EG_LOG")" || return
	config_write "$POLICY_NARROW" 'mode: dns+nft'
	reload 'reload refused, nothing is changed: mode: expected the one of the start' &&
		want "$(code http://read.test/hello.txt)" 200 'the policy before'
}

# The kernel would let out what goes to others, and the ones of the start would be asked.
case_reload_keeps_resolvers()
{
	need_origins || return
	config_write "$BED_POLICY" "dns_upstream: ['$BED_DNS']"
	egress_start OPENSANDBOX_EGRESS_RULES= OPENSANDBOX_EGRESS_DNS_UPSTREAM= -- --config "$CONFIG" ||
		fail "egress did not start: $(tail -3 "$EG_LOG")" || return
	config_write "$POLICY_NARROW" "dns_upstream: ['192.0.2.1']"
	reload 'reload refused, nothing is changed: dns_upstream: expected the resolvers of the start' &&
		want "$(code http://read.test/hello.txt)" 200 'the policy before' || return
	config_write "$POLICY_NARROW" "dns_upstream: ['$BED_DNS']"
	reload 'rules in force' && want "$(code http://read.test/hello.txt)" 403 'with the same ones'
}

# 200 SIGHUPs without a pause and 60 with 20 ms between them, some of bad files, under load.
case_reload_storm()
{
	local before worker download i jobs=()

	config_start EGRESS_UPSTREAM_IDLE=1s || return
	code https://read.test/hello.txt >/dev/null
	worker=$(egress_worker)
	sleep 1.3
	before=$(descriptors "$EG_PID" "$worker")
	via curl -sS -m 60 --limit-rate 80M https://read.test/big.bin -o "$WORK/big" &
	download=$!
	for i in 1 2 3 4 5 6; do
		via curl -sS -m 60 "http://read.test/hello.txt?$i-[1-400]" -o /dev/null \
			-w '%{http_code}\n' >"$WORK/load-$i" 2>&1 &
		jobs+=($!)
	done
	for ((i = 0; i < 200; i++)); do
		kill -HUP "$EG_PID"
	done
	for ((i = 0; i < 60; i++)); do
		[ $((i % 20)) -ne 5 ] || echo 'policy: [' >"$CONFIG"
		[ $((i % 20)) -ne 15 ] || config_write "$BED_POLICY"
		kill -HUP "$EG_PID"
		sleep 0.02
	done
	config_write "$BED_POLICY"
	wait $download
	want $? 0 'exit code of the download' || return
	cmp "$WORK/big" "$BED/www/read/big.bin" || fail 'the download differs' || return
	rm "$WORK/big"
	wait "${jobs[@]}"
	want "$(sort "$WORK"/load-? | uniq -c | tr -s ' ')" ' 2400 200' 'answers under load' &&
		want "$(egress_worker)" "$worker" 'the worker' || return
	wait_for 6 descriptors_are "$before" ||
		fail "descriptors: $before before, $(descriptors "$EG_PID" "$worker") after" || return
	reload 'rules in force' && egress_stop
}

# --- ends ---

worker_is_new()
{
	local now

	now=$(egress_worker)
	[ -n "$now" ] && [ "$now" != "$1" ] && [ "$(grep -c ' ready: ' "$EG_LOG")" -ge "$2" ]
}

case_worker_killed()
{
	local old ca start

	config_start || return
	ca=$(sha256sum "$EG_CA")
	code http://read.test/hello.txt >/dev/null
	slow_start 400 || return
	old=$(egress_worker)
	start=${EPOCHREALTIME/[.,]/}
	kill -9 "$old"
	wait_for 5 worker_is_new "$old" 2 || fail 'no new worker' || return
	want "$(((${EPOCHREALTIME/[.,]/} - start) / 1500000))" 0 'times 1.5 s until it is there' &&
		want "$(sha256sum "$EG_CA")" "$ca" 'the certificate' || return
	wait $SLOW
	want_match "$?" '^(18|56)$' 'exit code of the download' &&
		want "$(code https://read.test/hello.txt)" 200 'the same CA signs' &&
		want "$(code http://deny.test/)" 403 'the same policy' &&
		audit_want 'read allowed allowed GET http://read.test/hello.txt 200' \
			"read failed interrupted GET $SLOW_URL&ms=400 null" \
			'read allowed allowed GET https://read.test/hello.txt 200' \
			'read blocked denied GET http://deny.test/ 403' &&
		audit_verify
}

# Files that changed without SIGHUP do not count for the next worker, in place or by rename.
case_worker_killed_after_unread_edit()
{
	local old

	need_origins || return
	config_write "$BED_POLICY" 'read_only: true' 'write_hosts: [model.test]'
	egress_start OPENSANDBOX_EGRESS_RULES= AGENTIC_WRITE_HOSTS= -- --config "$CONFIG" ||
		fail "egress did not start: $(tail -3 "$EG_LOG")" || return
	printf 'policy: %s\nread_only: false\n' "$(tr -d '\n\t' <<<"$POLICY_NARROW")" >"$CONFIG"
	old=$(egress_worker)
	kill -9 "$old"
	wait_for 5 worker_is_new "$old" 2 || fail 'no new worker' || return
	want "$(code http://read.test/hello.txt)" 200 'the same policy' &&
		want "$(via curl -sS -o /dev/null -w '%{http_code}' -d x http://read.test/app/up)" 403 \
			'a POST: the same rule' || return
	echo 'policy: [' >"$CONFIG"
	old=$(egress_worker)
	kill -9 "$old"
	wait_for 3 worker_is_new "$old" 3 || fail 'no new worker with a bad file' || return
	want "$(code http://read.test/hello.txt)" 200 'the same policy again'
}

# What ends within 8 s ends well; the rest is cut and on record, and `stop` is the last line.
case_stop_ends_exchanges()
{
	local short

	need_origins && egress_start || return
	via curl -sS -m 20 -o "$WORK/short" 'http://read.test/app/slow?bytes=100000&ms=80' &
	short=$!
	slow_start 900 || return
	kill "$EG_PID"
	wait_for 12 egress_is_gone || fail 'it does not end' || return
	wait "$EG_PID"
	want $? 0 'exit code' || return
	EG_PID=''
	wait $short
	want $? 0 'exit code of the short download' &&
		want "$(stat -c %s "$WORK/short")" 100000 'size of the short download' || return
	wait $SLOW
	want_match $? '^(18|56)$' 'exit code of the long download' &&
		audit_want 'read allowed allowed GET http://read.test/app/slow?bytes=100000&ms=80 200' \
			"read failed shutdown GET $SLOW_URL&ms=900 200" &&
		want "$(jq -r .kind "$EG_AUDIT" | tail -1)" stop 'the last line' && audit_verify
}

# The worker hears of a stop twice, by a message and by SIGTERM. On a busy machine it is through with
# the first when the second comes. strace makes that so: it delays the supervisor's kill, and the worker
# whenever it has set a signal's handler.
case_stop_signal_comes_late()
{
	local status

	need_tool strace && need_origins || return
	# shellcheck disable=SC2054  # the comma is strace's
	# The search for leaks does not work beside another tracer.
	EG_AS=(env ASAN_OPTIONS=detect_leaks=0 strace -D -f -o "$WORK/strace"
		-e trace=kill,rt_sigaction -e inject=kill:delay_enter=60000
		-e inject=rt_sigaction:delay_exit=100000 --)
	egress_start
	status=$?
	EG_AS=()
	[ $status -eq 0 ] || fail "egress did not start: $(tail -3 "$EG_LOG")" || return
	egress_stop && want "$(grep -c 'ended' "$EG_LOG")" 0 'complaints' &&
		want "$(jq -r .kind "$EG_AUDIT" | tail -1)" stop 'the last line'
}

pid_is_gone()
{
	! kill -0 "$1" 2>/dev/null
}

# Nobody would restart such a worker or hold its areas.
case_supervisor_killed()
{
	local worker

	need_origins && egress_start || return
	worker=$(egress_worker)
	kill -9 "$EG_PID"
	wait "$EG_PID" 2>/dev/null
	EG_PID='' EG_SETTINGS=''
	wait_for 3 pid_is_gone "$worker" || fail 'the worker stays'
}

bed_main "$@"
