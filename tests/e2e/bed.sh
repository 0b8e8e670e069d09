# The test bed of end-to-end scripts: origins, resolver, the program under test. Sourced, not run.
# shellcheck shell=bash
#
# A script is made of functions and two last lines:
#
#   . "$(dirname "$0")/bed.sh"
#   case_get_works() { need_origins && egress_need || return
#                      get=$(via curl -sS https://read.test/hello.txt)
#                      want "$get" hello 'the content' && audit_want 'read allowed ...'; }
#   CASES=(get_works)
#   bed_main "$@"
#
# Everything listens on loopback and ends with the script. Run by hand as root, the script gets a
# network of its own, as under ./test; by hand EGRESS_BIN names the program (build/gcc-asan).
#
# Cases
#   bed_main ARGS      --list, or runs the named cases (all), prints `ok get-works`; then ends
#                      everything and checks it (case clean-end)
#   fail WHY           the case has failed; returns 1. The first WHY is the one that is printed
#   skip WHY           the case is skipped; returns 1
#   want IS SHOULD WHAT        fails if they differ
#   want_match IS REGEX WHAT   fails if the regular expression (bash) is not found
#   need_tool NAME...  skips if a program is missing
#   wait_for SECONDS CMD...    until CMD succeeds; returns 1 if it does not
#
# Origins: need_origins starts them once, or skips (ports 80 and 443 need root). Each name has an
# address, a root BED/www/NAME, a certificate of the test CA (BED_CA) and an access log.
#   read two deny      .test; read: hello.txt, big.bin (200 MB), tree/ (linked pages), /app/...
#   model git          .test, also api.model.test: write hosts; all paths answered by tools/origin.py
#   gitread npm pypi cargo      .test: what their clients read. gitread: the same repositories
#   bad                .test: a certificate that nobody trusts
# git.test and gitread.test serve BED_GIT/*.git below /git/. read.test and two.test also have /app/ of origin.py.
#   bed_ip NAME        its address
#   mark               forget what the logs (origins, audit) hold; called before each case
#   origin_lines NAME  what NAME got since: `METHOD scheme://host/uri STATUS`
#   origin_want NAME [LINE...]  fails unless it got exactly these
#   origin_accepts     connections that all origins together have accepted so far
#   dns_lines          questions since the start: `TYPE NAME ACTION`
#
# Egress: mode proxy, BED_POLICY, write hosts model, api.model and git (.test), audit into a file.
#   egress_need [VAR=VALUE...] [-- ARGS...]   one that runs with these settings besides: the running
#                      one if it has the same, else a new one. An empty VALUE unsets VAR
#   egress_start ...   a new one; the former is stopped (and checked). Returns 1 if it did not
#                      start: EG_STATUS is its exit code
#   egress_stop        SIGTERM; fails unless it ends with 0, no sanitizer speaks, the chain is whole,
#                      and no key of its vault file is in its memory or in what it wrote
#   EG_DIR EG_PID EG_PORT PX EG_CA EG_AUDIT EG_LOG    of the running one; PX is 127.0.0.1:PORT
#   EG_AS              command put before it, as (setpriv --reuid 65534 ...); an array
#   EG_SAN             variables of the sanitizers, for env -i; an array
#   egress_worker      process id of its worker
#   via CMD...         runs CMD with the environment that ./run prints: proxy and CA for all clients
#   audit_lines        web lines since mark: `KIND VERDICT REASON METHOD URL STATUS`
#   audit_want LINE... fails unless these lines, in any order, are all that came (waits 3 s)
#   audit_have LINE... the same, but others may have come besides
#   audit_count TEXT N   true if N lines hold TEXT, rotated files included
#   audit_verify       fails unless the trail is whole

set -uo pipefail

BED_SRC=${EGRESS_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}

# By hand: a network and a folder of our own, as the harness gives us.
if [ -z "${EGRESS_TMP-}" ] && [ "${1-}" != --list ]; then
	EGRESS_TMP=$(mktemp -d /tmp/egress-e2e.XXXXXX)
	chmod 755 "$EGRESS_TMP"
	mkdir "$EGRESS_TMP/home"
	export EGRESS_TMP HOME="$EGRESS_TMP/home" BED_BY_HAND="$EGRESS_TMP"
	export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=1}"
	export ASAN_SYMBOLIZER_PATH="${ASAN_SYMBOLIZER_PATH:-/usr/bin/llvm-symbolizer-14}"
	export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}"
	unset http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY all_proxy ALL_PROXY
	if [ "$(id -u)" -eq 0 ] && unshare -n true 2>/dev/null; then
		# shellcheck disable=SC2016  # the inner shell expands
		exec unshare -n sh -c 'ip link set lo up && exec "$@"' sh "$0" "$@"
	fi
fi

EGRESS_BUILD=${EGRESS_BUILD:-$BED_SRC/build/gcc-asan}
EGRESS_BIN=${EGRESS_BIN:-$EGRESS_BUILD/control/egress}
EGRESSCTL_BIN=${EGRESSCTL_BIN:-$(dirname "$(dirname "$EGRESS_BIN")")/ctl/egressctl}
BED=${EGRESS_TMP-}/bed
BED_CA=$BED/ca.pem
BED_GIT=$BED/git
BED_DNS=127.0.0.53:5300
BED_NAMES=(read model two npm pypi git gitread cargo deny bad)
# The system's own, if it is there: a shim in a home folder costs 0.1 s and hides from other users.
PYTHON=/usr/bin/python3
[ -x "$PYTHON" ] || PYTHON=$(command -v python3)
# Loopback answers are dropped unless a CIDR rule allows them.
# shellcheck disable=SC2034  # for scripts
BED_POLICY='{"defaultAction":"deny","egress":[
	{"action":"deny","target":"deny.test"},
	{"action":"allow","target":"read.test"},{"action":"allow","target":"two.test"},
	{"action":"allow","target":"model.test"},{"action":"allow","target":"*.model.test"},
	{"action":"allow","target":"npm.test"},{"action":"allow","target":"pypi.test"},
	{"action":"allow","target":"git.test"},{"action":"allow","target":"gitread.test"},
	{"action":"allow","target":"cargo.test"},{"action":"allow","target":"bad.test"},
	{"action":"allow","target":"127.0.0.0/8"}]}'

BED_ORIGINS='' BED_PIDS=() BED_N=0
EG_PID='' EG_SETTINGS='' EG_STATUS='' EG_DIR='' EG_PORT='' PX='' EG_CA='' EG_AUDIT='' EG_LOG=''
EG_AS=() EG_ENV=() EG_ARGS=()
CASE_WHY='' CASE_SKIP=''
declare -A BED_MARKS=()
AUDIT_MARK=0
# What a program started with an empty environment needs to report as the harness wants it.
EG_SAN=(ASAN_OPTIONS="${ASAN_OPTIONS-}" UBSAN_OPTIONS="${UBSAN_OPTIONS-}"
	ASAN_SYMBOLIZER_PATH="${ASAN_SYMBOLIZER_PATH-}")

# --- cases ---

fail()
{
	[ -n "$CASE_WHY" ] || CASE_WHY=${*//$'\n'/ | }
	return 1
}

skip()
{
	CASE_SKIP=$*
	return 1
}

want()
{
	[ "$1" = "$2" ] || fail "$3: is '$1', should be '$2'"
}

want_match()
{
	[[ $1 =~ $2 ]] || fail "$3: is '$1', should match '$2'"
}

need_tool()
{
	local tool

	for tool in "$@"; do
		command -v "$tool" >/dev/null || skip "no $tool" || return
	done
}

wait_for()
{
	local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))

	shift
	until "$@"; do
		[ "${EPOCHREALTIME/[.,]/}" -lt "$end" ] || return 1
		sleep 0.03
	done
}

# report NAME STATUS-OF-CASE
bed_report()
{
	if [ -n "$CASE_WHY" ] || { [ "$2" -ne 0 ] && [ -z "$CASE_SKIP" ]; }; then
		echo "not ok $1 ${CASE_WHY:-returned $2}"
		BED_FAILED=1
	elif [ -n "$CASE_SKIP" ]; then
		echo "skip $1 $CASE_SKIP"
	else
		echo "ok $1"
	fi
}

bed_main()
{
	local names=("$@") name

	if [ "${1-}" = --list ]; then
		name="${CASES[*]} clean_end"
		name=${name//_/-}
		printf '%s\n' "${name// /$'\n'}"
		return
	fi
	[ $# -gt 0 ] || names=("${CASES[@]}" clean_end)
	if [ ! -x "$EGRESS_BIN" ]; then
		echo "no program $EGRESS_BIN: build it, or set EGRESS_BIN"
		exit 2
	fi
	BED_FAILED=0
	mkdir -p "$BED"
	trap bed_end EXIT
	for name in "${names[@]//-/_}"; do
		[ "$name" != clean_end ] || continue
		CASE_WHY='' CASE_SKIP=''
		mark
		"case_$name"
		bed_report "${name//_/-}" $?
		# What a failed case left unread must not count for the next one.
		[ -z "$CASE_WHY" ] || sleep 0.3
	done
	CASE_WHY='' CASE_SKIP=''
	egress_stop
	name=$?
	if [ $# -eq 0 ] || [ $name -ne 0 ] || [ "${names[-1]}" = clean-end ]; then
		bed_report clean-end $name
	fi
	exit $BED_FAILED
}

bed_end()
{
	local pid

	trap - EXIT
	for pid in "${BED_PIDS[@]}" $EG_PID; do
		kill "$pid" 2>/dev/null
	done
	[ -z "$BED_ORIGINS" ] || nginx_run -s quit 2>/dev/null
	wait 2>/dev/null
	if [ -n "${BED_BY_HAND-}" ]; then
		if [ "${BED_FAILED:-1}" -eq 0 ]; then
			rm -rf "$BED_BY_HAND"
		else
			echo "files: $BED_BY_HAND"
		fi
	fi
}

# --- origins ---

bed_ip()
{
	local i

	for i in "${!BED_NAMES[@]}"; do
		[ "${BED_NAMES[i]}" != "$1" ] || echo "127.0.1.$((10 * i + 10))"
	done
}

# bed_certificate NAME EXTRA-OPENSSL-ARGS: a key and a certificate in BED/NAME.key and .pem
bed_certificate()
{
	local name=$1

	shift
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
		-keyout "$BED/$name.key" -out "$BED/$name.pem" "$@" 2>>"$BED/openssl.log"
}

bed_certificates()
{
	bed_certificate ca -subj '/CN=test CA' -addext keyUsage=critical,keyCertSign || return
	bed_certificate bad -subj /CN=bad.test -addext subjectAltName=DNS:bad.test || return
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=read.test \
		-keyout "$BED/leaf.key" -out "$BED/leaf.csr" 2>>"$BED/openssl.log" || return
	printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n' \
		"$(printf 'DNS:%s.test,' "${BED_NAMES[@]}")DNS:api.model.test" >"$BED/leaf.ext"
	openssl x509 -req -in "$BED/leaf.csr" -CA "$BED/ca.pem" -CAkey "$BED/ca.key" -days 20 \
		-CAcreateserial -extfile "$BED/leaf.ext" -out "$BED/leaf.pem" 2>>"$BED/openssl.log"
}

bed_pages()
{
	local name i

	for name in "${BED_NAMES[@]}"; do
		mkdir -p "$BED/www/$name"
		echo "hello from $name" >"$BED/www/$name/hello.txt"
	done
	cd "$BED/www/read" || return
	mkdir tree
	for i in 1 2 3; do
		echo "page $i, <a href='page$((i % 3 + 1)).html'>next</a>" >"tree/page$i.html"
	done
	cp tree/page1.html tree/index.html
	seq 1 20000 >numbers.txt
	# Random, so that no compression on the way can pass for the right size.
	head -c 200000000 /dev/zero | openssl enc -aes-128-ctr -nosalt -K "$(printf '%032d' 7)" \
		-iv "$(printf '%032d' 0)" >big.bin
	cd "$OLDPWD" || return
}

bed_repository()
{
	local git=(git -c user.name=tester -c user.email=tester@test -c init.defaultBranch=main)

	mkdir -p "$BED_GIT" && cd "$BED_GIT" || return
	"${git[@]}" init -q seed && cd seed || return
	seq 1 5000 >numbers.txt && echo "a repository" >README
	"${git[@]}" add . && "${git[@]}" commit -qm first && cd .. || return
	"${git[@]}" clone -q --bare seed demo.git || return
	cd "$BED_SRC" || return
}

nginx_server()
{
	local name=$1 ip cert=leaf place

	ip=$(bed_ip "$name")
	[ "$name" != bad ] || cert=bad
	place="root $BED/www/$name;"
	case $name in
	model | git | gitread) place="location / { $BED_PASS }" ;;
	read | two) place+=" location /app/ { rewrite ^/app(/.*) \$1 break; $BED_PASS }" ;;
	esac
	cat <<-TEXT
		server {
			listen $ip:80; listen $ip:443 ssl;
			server_name $name.test *.$name.test;
			ssl_certificate $BED/$cert.pem; ssl_certificate_key $BED/$cert.key;
			access_log $BED/access-$name.log bed;
			$place
		}
	TEXT
}

nginx_conf()
{
	local name
	local BED_PASS="proxy_pass http://unix:$BED/origin.sock:; proxy_http_version 1.1;
		proxy_request_buffering off; proxy_buffering off;
		proxy_set_header Host \$host; proxy_read_timeout 60s;"

	# Without types each file is octets; wget -r follows links only in HTML.
	cat <<-TEXT
		$([ "$(id -u)" -ne 0 ] || echo 'user root;')
		daemon on; worker_processes 1; pid $BED/nginx.pid; error_log $BED/nginx.log warn;
		worker_rlimit_nofile 4096;
		events { worker_connections 2000; }
		http {
			types { text/html html; text/plain txt; application/json json; }
			default_type application/octet-stream;
			log_format bed '\$request_method \$scheme://\$host\$request_uri \$status'
				' \$body_bytes_sent \$request_length';
			client_body_temp_path $BED/nginx-body; proxy_temp_path $BED/nginx-proxy;
			fastcgi_temp_path $BED/nginx-f; uwsgi_temp_path $BED/nginx-u;
			scgi_temp_path $BED/nginx-s;
			keepalive_timeout 65; client_max_body_size 0; sendfile on; tcp_nopush on;
			server {
				listen unix:$BED/status.sock; access_log off;
				location / { stub_status; }
			}
	TEXT
	for name in "${BED_NAMES[@]}"; do
		nginx_server "$name"
	done
	echo "}"
}

nginx_run()
{
	local nginx

	nginx=$(command -v nginx || echo /usr/sbin/nginx)
	"$nginx" -c "$BED/nginx.conf" -p "$BED" -e "$BED/nginx.log" "$@"
}

bed_zone()
{
	local name

	for name in "${BED_NAMES[@]}"; do
		echo "$name.test a=$(bed_ip "$name") ttl=30"
	done
	echo "api.model.test a=$(bed_ip model) ttl=30"
}

# bed_daemon NAME CMD...: in the background; returns when it has said `listening`.
bed_daemon()
{
	local name=$1

	shift
	"$@" >"$BED/$name.out" 2>"$BED/$name.err" &
	BED_PIDS+=("$!")
	wait_for 10 grep -qs listening "$BED/$name.out"
}

need_origins()
{
	[ -z "$BED_ORIGINS" ] || return 0
	[ "$(id -u)" -eq 0 ] || skip "the origins' ports 80 and 443 need root" || return
	bed_certificates || fail "certificates: see $BED/openssl.log" || return
	bed_pages || fail "pages" || return
	bed_repository || fail "git repository" || return
	bed_zone >"$BED/zone"
	bed_daemon dnsd "$PYTHON" "$BED_SRC/tests/tools/dnsd.py" --listen "${BED_DNS%:*}" \
		--port "${BED_DNS#*:}" --zone "$BED/zone" --log "$BED/questions.log" ||
		fail "dnsd: $(cat "$BED/dnsd.err")" || return
	bed_daemon origin "$PYTHON" "$BED_SRC/tests/tools/origin.py" --socket "$BED/origin.sock" \
		--git "$BED_GIT" || fail "origin: $(cat "$BED/origin.err")" || return
	nginx_conf >"$BED/nginx.conf"
	nginx_run || fail "nginx: $(tail -3 "$BED/nginx.log")" || return
	BED_ORIGINS=yes
	mark
}

mark()
{
	local name

	for name in "${BED_NAMES[@]}"; do
		BED_MARKS[$name]=$(wc -l 2>/dev/null <"$BED/access-$name.log" || echo 0)
	done
	[ -z "$EG_AUDIT" ] || AUDIT_MARK=$(wc -l 2>/dev/null <"$EG_AUDIT" || echo 0)
}

origin_lines()
{
	tail -n "+$((BED_MARKS[$1] + 1))" "$BED/access-$1.log" | cut -d ' ' -f 1-3
}

origin_is()
{
	[ "$(origin_lines "$1")" = "$2" ]
}

origin_want()
{
	local name=$1 all

	shift
	all=$(printf '%s\n' "$@")
	# nginx writes its line after the client has the answer.
	wait_for 2 origin_is "$name" "$all" ||
		fail "$name.test got '$(origin_lines "$name")', should be '$all'"
}

origin_accepts()
{
	curl -sS --unix-socket "$BED/status.sock" http://status/ | awk 'NR == 3 { print $1 }'
}

dns_lines()
{
	cut -d ' ' -f 5- "$BED/questions.log"
}

# --- egress ---

egress_free_port()
{
	"$PYTHON" -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# The environment of the program, one VAR=VALUE for each argument; later ones win.
egress_settings()
{
	local unset=()

	EG_ENV=("${EG_SAN[@]}" PATH="$PATH" HOME="${HOME:-/}" LANG=C.UTF-8
		OPENSANDBOX_EGRESS_MODE=proxy
		OPENSANDBOX_EGRESS_RULES="$BED_POLICY"
		AGENTIC_WRITE_HOSTS='model.test api.model.test git.test'
		EGRESS_PROXY_ADDR="$PX"
		EGRESS_CA_CERT_OUT="$EG_CA"
		EGRESS_AUDIT="$EG_AUDIT"
		OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR="$BED_CA"
		OPENSANDBOX_EGRESS_DNS_UPSTREAM="$BED_DNS")
	EG_ARGS=()
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		case $1 in
		*=) unset+=(-u "${1%=}") ;;
		*) EG_ENV+=("$1") ;;
		esac
		shift
	done
	[ $# -eq 0 ] || EG_ARGS=("${@:2}")
	EG_ENV=("${EG_ENV[@]}" env "${unset[@]}")
}

egress_is_up()
{
	grep -q ' ready: ' "$EG_LOG" 2>/dev/null || ! kill -0 "$EG_PID" 2>/dev/null
}

egress_start()
{
	[ -z "$EG_PID" ] || egress_stop || return
	BED_N=$((BED_N + 1))
	EG_DIR=${EGRESS_TMP}/egress-$BED_N
	mkdir -p "$EG_DIR"
	[ ${#EG_AS[@]} -eq 0 ] || chmod 777 "$EG_DIR"
	EG_PORT=$(egress_free_port)
	PX=127.0.0.1:$EG_PORT EG_CA=$EG_DIR/ca-cert.pem EG_AUDIT=$EG_DIR/audit.jsonl
	EG_LOG=$EG_DIR/egress.log AUDIT_MARK=0 EG_SETTINGS="${EG_AS[*]} $*" EG_STATUS=''
	egress_settings "$@"
	# In the folder, so that a core or a relative path of a setting lands there.
	(cd "$EG_DIR" && exec env -i "${EG_ENV[@]}" "${EG_AS[@]}" "$EGRESS_BIN" "${EG_ARGS[@]}" \
		>"$EG_DIR/egress.out" 2>"$EG_LOG") &
	EG_PID=$!
	wait_for 20 egress_is_up
	if ! kill -0 "$EG_PID" 2>/dev/null; then
		wait "$EG_PID"
		EG_STATUS=$?
		EG_PID=''
		return 1
	fi
	leak_note
	mark
}

# Notes the keys that its vault file has now, for leak_search.
leak_note()
{
	local word paths=()

	for word in "${EG_ENV[@]}" "${EG_ARGS[@]}"; do
		case $word in
		EGRESS_VAULT_FILE=?*) paths+=("${word#*=}") ;;
		*.yaml) paths+=("$(sed -n 's/^vault: *//p' "$word")") ;;
		esac
	done
	[ ${#paths[@]} -eq 0 ] ||
		"$PYTHON" "$BED_SRC/tests/e2e/leakscan.py" note "$BED/keys-$BED_N" "${paths[@]}"
}

# leak_search memory PID | files FOLDER: fails where a noted key is found
leak_search()
{
	local text

	[ -s "$BED/keys-$BED_N" ] || return 0
	text=$("$PYTHON" "$BED_SRC/tests/e2e/leakscan.py" "$1" "$BED/keys-$BED_N" "$2" 2>&1) ||
		fail "keys: $text" || return
	echo "$text"
}

egress_need()
{
	if [ -n "$EG_PID" ] && [ "$EG_SETTINGS" = "${EG_AS[*]} $*" ] && kill -0 "$EG_PID"; then
		return 0
	fi
	egress_start "$@" || fail "egress did not start: $EG_STATUS $(tail -3 "$EG_LOG")"
}

egress_worker()
{
	pgrep -P "$EG_PID" | tail -1
}

egress_is_gone()
{
	! kill -0 "$EG_PID" 2>/dev/null
}

egress_stop()
{
	local status

	[ -n "$EG_PID" ] || return 0
	leak_note
	leak_search memory "$EG_PID"
	kill "$EG_PID"
	if ! wait_for 15 egress_is_gone; then
		pkill -9 -P "$EG_PID"
		kill -9 "$EG_PID"
		EG_PID=''
		fail "egress does not end on SIGTERM"
		return
	fi
	wait "$EG_PID"
	status=$?
	EG_PID='' EG_SETTINGS=''
	want $status 0 "exit code of egress: $(tail -3 "$EG_LOG")" && leak_search files "$EG_DIR" || return
	if grep -qE 'Sanitizer|runtime error:' "$EG_LOG"; then
		fail "sanitizer: $(grep -E 'Sanitizer|runtime error:' "$EG_LOG" | head -3)"
		return
	fi
	# 9 is a test's own doing; anything else is a crash that the restart would hide.
	! grep -E 'worker [0-9]+: ended by signal ([1-8]|1[0-9])$' "$EG_LOG" >"$EG_DIR/crash" ||
		fail "crash: $(head -1 "$EG_DIR/crash") $(grep -m 1 "requirement failed" "$EG_LOG")" || return
	[ ! -s "$EG_AUDIT" ] || audit_verify
}

via()
{
	local px="http://$PX"

	env http_proxy="$px" https_proxy="$px" HTTP_PROXY="$px" HTTPS_PROXY="$px" \
		CURL_CA_BUNDLE="$EG_CA" SSL_CERT_FILE="$EG_CA" GIT_SSL_CAINFO="$EG_CA" \
		REQUESTS_CA_BUNDLE="$EG_CA" PIP_CERT="$EG_CA" npm_config_cafile="$EG_CA" \
		NODE_EXTRA_CA_CERTS="$EG_CA" CARGO_HTTP_CAINFO="$EG_CA" "$@"
}

# --- audit ---

audit_lines()
{
	tail -n "+$((AUDIT_MARK + 1))" "$EG_AUDIT" | jq -r 'select(.kind == "read" or
		.kind == "write" or .kind == "tunnel") |
		"\(.kind) \(.verdict) \(.reason) \(.method) \(.url) \(.status)"'
}

audit_is()
{
	[ "$(audit_lines | sort)" = "$1" ]
}

audit_want()
{
	local all

	all=$(printf '%s\n' "$@" | sort)
	wait_for 3 audit_is "$all" ||
		fail "audit, - missing, + too much: $(diff -U0 <(echo "$all") \
			<(audit_lines | sort) | tail -n +4)"
}

audit_has_all()
{
	[ -z "$(comm -23 <(printf '%s\n' "$@" | sort) <(audit_lines | sort))" ]
}

audit_have()
{
	wait_for 3 audit_has_all "$@" ||
		fail "audit lacks: $(comm -23 <(printf '%s\n' "$@" | sort) <(audit_lines | sort))" ||
		return
	sleep 0.2 # the others must not count for the next case
}

audit_count()
{
	[ "$(cat "$EG_AUDIT" "$EG_AUDIT".? 2>/dev/null | grep -c "$1")" -eq "$2" ]
}

audit_verify()
{
	local text

	text=$("$PYTHON" "$BED_SRC/tests/tools/audit_chain.py" "$EG_AUDIT") ||
		fail "audit trail: $text" || return
	[ -x "$EGRESSCTL_BIN" ] || return 0
	text=$("$EGRESSCTL_BIN" audit verify "$EG_AUDIT" 2>&1) ||
		fail "egressctl audit verify: $text"
}
