#!/usr/bin/env bash
# Git over HTTPS with the credential of one repository in the vault: nginx checks it, git never has
# it. git.test is a write host, gitread.test is not. Helpers, names and origins: bed.sh.

# shellcheck source=tests/e2e/bed.sh
. "$(dirname "$0")/bed.sh"

CASES=(without_the_vault_git_is_asked clone_has_the_key another_key_is_not_let_in
	neighbour_repository_gets_no_key neighbour_with_a_key_of_its_own dots_do_not_lead_to_it
	redirect_takes_no_key_along push_is_a_write push_to_a_write_host
	own_key_is_replaced key_is_nowhere_in_what_git_says)

export GIT_TERMINAL_PROMPT=0
WORK=${EGRESS_TMP-}/git
[ "${1-}" = --list ] || { mkdir -p "$WORK" && chmod 755 "$WORK"; }
GIT=(git -c user.name=tester -c user.email=tester@test -c protocol.version=2)
REFS='info/refs?service=git-upload-pack'
PASSWORD=glpat-Pl4nt3d-9876543210
KEY=$(printf 'ci-bot:%s' "$PASSWORD" | base64 -w 0)
OWN=$(printf 'me:mine-not-yours-0001' | base64 -w 0)
AUTH=$BED/auth.log
VAULT_PATHS="/git/tools.git, '/git/tools.git/*'"
READ=https://gitread.test/git WRITE=https://git.test/git

# A repository that nginx lets only that user into, and a mirror of what it was told.
git_location()
{
	cat <<-TEXT
		location /git/$1.git {
			auth_basic "$1"; auth_basic_user_file $BED/$1.users;
			add_header X-Echo "\$http_authorization" always;
			proxy_pass http://unix:$BED/origin.sock:; proxy_http_version 1.1;
			proxy_request_buffering off; proxy_set_header Host \$host;
		}
	TEXT
}

# git_users REPOSITORY NAME PASSWORD
git_users()
{
	printf '%s:%s\n' "$2" "$(openssl passwd -apr1 "$3")" >"$BED/$1.users"
}

git_asks()
{
	local status

	status=$(curl -sS -o "$WORK/asked" -w '%{http_code}' --cacert "$BED_CA" \
		--connect-to "::$(bed_ip git):" "$WRITE/tools.git/$REFS")
	[ "$status" = 401 ]
}

# tools.git is the one with a key in the vault, other.git its neighbour, moved.git elsewhere.
need_repositories()
{
	local name

	need_tool git nginx && need_origins || return
	[ ! -s "$AUTH" ] || return 0
	for name in tools other; do
		git clone -q --bare "$BED_GIT/seed" "$BED_GIT/$name.git" || return
	done
	git_users tools ci-bot "$PASSWORD" && git_users other me mine-not-yours-0001 || return
	{
		echo "access_log $AUTH auth;"
		git_location tools && git_location other
		echo "location /git/tools.git/moved { return 302 $READ/other.git/; }"
	} >"$BED/git-locations"
	echo "log_format auth '\$request_method \$host\$uri \$status [\$http_authorization]';" \
		>"$BED/git-format"
	awk -v bed="$BED" '/log_format bed/ { print "include " bed "/git-format;" } { print }
		/access_log .*access-git(read)?.log/ { print "include " bed "/git-locations;" }' \
		"$BED/nginx.conf" >"$BED/nginx.conf.new" &&
		mv "$BED/nginx.conf.new" "$BED/nginx.conf" && nginx_run -s reload || return
	wait_for 10 git_asks || fail "nginx: $(tail -3 "$BED/nginx.log")"
}

# vault_start KEY [VAR=VALUE...]: the binding of tools.git on both hosts, as one repository needs it.
# Each has a file of its own, by their lengths.
vault_start()
{
	local file=$WORK/vault-${#1}-${#VAULT_PATHS}.yaml

	need_repositories || return
	cat >"$file" <<-TEXT
		credentials: [{name: git-tools, source: {value: "$1"}}]
		bindings:
		  - name: git-tools
		    match: {hosts: [git.test, gitread.test], methods: [GET, HEAD, POST],
		            paths: [$VAULT_PATHS]}
		    auth: {type: basic, credential: git-tools}
	TEXT
	chmod 600 "$file"
	shift
	egress_need EGRESS_VAULT_FILE="$file" EGRESS_READ_ONLY_GIT_FETCH=1 "$@" && auth_mark
}

auth_mark()
{
	AUTH_FROM=$(wc -l <"$AUTH")
}

auth_lines()
{
	tail -n "+$((AUTH_FROM + 1))" "$AUTH"
}

auth_is()
{
	[ "$(auth_lines)" = "$1" ]
}

# auth_want [LINE...]: what both hosts got since, `METHOD host/path STATUS [Authorization]`
auth_want()
{
	local all

	all=$(printf '%s\n' "$@")
	wait_for 2 auth_is "$all" || fail "origins got '$(auth_lines)', should be '$all'"
}

# git_run ARGS...: with the proxy; what it said is in OUT, how it ended in STATUS
git_run()
{
	OUT=$(via timeout 30 "${GIT[@]}" "$@" 2>&1)
	STATUS=$?
	return $STATUS
}

git_good()
{
	git_run "$@" || fail "git ended with $STATUS: $OUT"
}

git_is_clone()
{
	cmp "$1/numbers.txt" "$BED_GIT/seed/numbers.txt" || fail "the clone differs"
}

git_commit_in()
{
	head -c 100000 /dev/urandom >"$1/blob" && "${GIT[@]}" -C "$1" add blob &&
		"${GIT[@]}" -C "$1" commit -qm more
}

curl_status()
{
	via curl -sS -o "$WORK/answer" -D "$WORK/answer.head" -w '%{http_code}' "$@"
}

# The control of all others: the key is needed, and git asks for it as if nobody stood between.
case_without_the_vault_git_is_asked()
{
	need_repositories && egress_need EGRESS_READ_ONLY_GIT_FETCH=1 || return
	auth_mark
	git_run clone -q $READ/tools.git "$WORK/none"
	want $STATUS 128 'exit code' && want_match "$OUT" 'could not read Username' 'git asks' &&
		auth_want "GET gitread.test/git/tools.git/info/refs 401 [-]" || return
	want "$(curl_status "$READ/tools.git/$REFS")" 401 'curl' || return
	want_match "$(cat "$WORK/answer.head")" 'WWW-Authenticate: Basic realm="tools"' 'challenge'
}

case_clone_has_the_key()
{
	vault_start "$KEY" || return
	git_good clone -q $READ/tools.git "$WORK/clone" && git_is_clone "$WORK/clone" &&
		auth_want "GET gitread.test/git/tools.git/info/refs 200 [Basic $KEY]" \
			"POST gitread.test/git/tools.git/git-upload-pack 200 [Basic $KEY]" \
			"POST gitread.test/git/tools.git/git-upload-pack 200 [Basic $KEY]" || return
	wait_for 3 audit_count '"binding":"git-tools"' 3 || fail "audit: $(audit_lines)" || return
	want "$(jq -r 'select(.binding == "git-tools") | .proof' "$EG_AUDIT" | sort -u)" \
		address,sni,certificate,authority,binding 'proof'
}

# nginx looks at the key, and its challenge is answered to git.
case_another_key_is_not_let_in()
{
	vault_start "$OWN" || return
	git_run clone -q $READ/tools.git "$WORK/wrong"
	want $STATUS 128 'exit code' && want_match "$OUT" 'could not read Username' 'git asks' &&
		auth_want "GET gitread.test/git/tools.git/info/refs 401 [Basic $OWN]"
}

case_neighbour_repository_gets_no_key()
{
	local name

	vault_start "$KEY" || return
	git_run clone -q $READ/other.git "$WORK/other"
	want $STATUS 128 'exit code' && want_match "$OUT" 'could not read Username' 'git asks' &&
		auth_want "GET gitread.test/git/other.git/info/refs 401 [-]" || return
	want "$(curl_status "$READ/other.git/$REFS")" 401 'curl' || return
	want_match "$(cat "$WORK/answer.head")" 'WWW-Authenticate: Basic realm="other"' \
		'challenge' || return
	auth_mark
	for name in tools tools.gitx tools.git-other TOOLS.git; do
		curl_status "$READ/$name/$REFS" >/dev/null
	done
	auth_want "GET gitread.test/git/tools/info/refs 200 [-]" \
		"GET gitread.test/git/tools.gitx/info/refs 401 [-]" \
		"GET gitread.test/git/tools.git-other/info/refs 401 [-]" \
		"GET gitread.test/git/TOOLS.git/info/refs 404 [-]" || return
	VAULT_PATHS="'/git/tools.git*'" vault_start "$KEY" || return
	curl_status "$READ/tools.git-other/$REFS" >/dev/null
	auth_want "GET gitread.test/git/tools.git-other/info/refs 404 [Basic $KEY]"
}

# What the sandbox may use it may use: a repository that no binding covers is ordinary traffic.
case_neighbour_with_a_key_of_its_own()
{
	local url=https://me:mine-not-yours-0001@gitread.test/git/other.git

	vault_start "$KEY" || return
	git_good clone -q $url "$WORK/own" && git_is_clone "$WORK/own" &&
		auth_want "GET gitread.test/git/other.git/info/refs 401 [-]" \
			"GET gitread.test/git/other.git/info/refs 200 [Basic $OWN]" \
			"POST gitread.test/git/other.git/git-upload-pack 200 [Basic $OWN]" \
			"POST gitread.test/git/other.git/git-upload-pack 200 [Basic $OWN]" || return
	# Towards a write host it could be the way into an account of its own.
	vault_start "$KEY" EGRESS_READ_ONLY_GIT_FETCH=off || return
	git_run clone -q ${url/gitread/git} "$WORK/own-write"
	want_match "$STATUS $OUT" '^128 .*403' 'a write host: exit code and what git says' &&
		auth_want "GET git.test/git/other.git/info/refs 401 [-]" \
			"GET git.test/git/other.git/info/refs 200 [Basic $OWN]" || return
	wait_for 3 audit_has_all \
		"write blocked write_without_binding POST $WRITE/other.git/git-upload-pack 403" ||
		fail "audit: $(audit_lines)"
}

case_dots_do_not_lead_to_it()
{
	local path
	local direct=(curl -sS -o "$WORK/answer" -w '%{http_code}' --path-as-is --cacert "$BED_CA"
		-H "Authorization: Basic $KEY" --connect-to "::$(bed_ip gitread):")

	vault_start "$KEY" || return
	for path in tools.git/../other.git tools.git/..%2fother.git tools.git/%2e%2e/other.git \
		tools.git/..%5cother.git tools.git/%252e%252e/other.git; do
		want "$(curl_status --path-as-is "$READ/$path/$REFS")" 403 "$path" || return
		want_match "$(cat "$WORK/answer.head")" 'X-Egress-Reason: path_ambiguous' "$path" ||
			return
	done
	auth_want || return
	want "$("${direct[@]}" "$READ/tools.git/../other.git/$REFS")" 401 'control' || return
	auth_want "GET gitread.test/git/other.git/info/refs 401 [Basic $KEY]"
}

case_redirect_takes_no_key_along()
{
	vault_start "$KEY" || return
	git_run clone -q $WRITE/tools.git/moved "$WORK/moved"
	want $STATUS 128 'exit code' &&
		auth_want "GET git.test/git/tools.git/moved/info/refs 302 [Basic $KEY]" \
			"GET gitread.test/git/other.git/ 401 [-]"
}

case_push_is_a_write()
{
	local clone=$WORK/push-read

	vault_start "$KEY" || return
	git_good clone -q $READ/tools.git "$clone" && git_commit_in "$clone" || return
	auth_mark
	git_run -C "$clone" push -q origin HEAD:refs/heads/refused
	want_match "$STATUS $OUT" '^(1|128) .*403' 'exit code and what git says' || return
	! git -C "$BED_GIT/tools.git" rev-parse -q --verify refused ||
		fail 'the branch arrived' || return
	auth_want "GET gitread.test/git/tools.git/info/refs 200 [Basic $KEY]" || return
	wait_for 3 audit_has_all \
		"write blocked method_not_read POST $READ/tools.git/git-receive-pack 403" ||
		fail "audit: $(audit_lines)" || return
	# Without the rule the same push goes: it is the rule that holds it.
	vault_start "$KEY" EGRESS_READ_ONLY=off || return
	git_good -C "$clone" push -q origin HEAD:refs/heads/allowed || return
	want "$(git -C "$BED_GIT/tools.git" rev-parse allowed)" "$(git -C "$clone" rev-parse HEAD)" \
		'control: commit at the origin'
}

case_push_to_a_write_host()
{
	local clone=$WORK/push-write

	vault_start "$KEY" || return
	git_good clone -q $WRITE/tools.git "$clone" && git_commit_in "$clone" || return
	auth_mark
	git_good -C "$clone" push -q origin HEAD:refs/heads/pushed || return
	want "$(git -C "$BED_GIT/tools.git" rev-parse pushed)" "$(git -C "$clone" rev-parse HEAD)" \
		'commit at the origin' || return
	auth_want "GET git.test/git/tools.git/info/refs 200 [Basic $KEY]" \
		"POST git.test/git/tools.git/git-receive-pack 200 [Basic $KEY]"
}

# A credential helper's stale answer does not reach the origin.
case_own_key_is_replaced()
{
	vault_start "$KEY" || return
	git_good -c http.extraHeader="Authorization: Basic $OWN" clone -q $WRITE/tools.git \
		"$WORK/replaced" && git_is_clone "$WORK/replaced" || return
	wait_for 2 auth_is "$(printf '%s\n' \
		"GET git.test/git/tools.git/info/refs 200 [Basic $KEY]" \
		"POST git.test/git/tools.git/git-upload-pack 200 [Basic $KEY]" \
		"POST git.test/git/tools.git/git-upload-pack 200 [Basic $KEY]")" ||
		fail "origins got '$(auth_lines)'"
}

# git_says CMD...: clones by CMD with everything that git can tell
git_says()
{
	GIT_CURL_VERBOSE=1 GIT_TRACE=1 GIT_TRACE_CURL=1 GIT_TRACE_PACKET=1 GIT_TRACE_REDACT=0 \
		"$@" 2>&1
}

case_key_is_nowhere_in_what_git_says()
{
	local text piece

	vault_start "$KEY" || return
	# nginx mirrors the field, so that git does get to see what it was sent.
	text=$(GIT_SSL_CAINFO=$BED_CA git_says timeout 30 "${GIT[@]}" \
		-c http.curloptResolve="gitread.test:443:$(bed_ip gitread)" clone \
		"https://ci-bot:$PASSWORD@gitread.test/git/tools.git" "$WORK/direct") ||
		fail "control: $text" || return
	for piece in "Authorization: Basic $KEY" "X-Echo: Basic $KEY"; do
		want_match "$text" "$piece" 'control: without us it is seen' || return
	done
	text=$(git_says via timeout 30 "${GIT[@]}" clone $READ/tools.git "$WORK/traced") ||
		fail "git: $text" || return
	git_is_clone "$WORK/traced" && want_match "$text" 'X-Echo: Basic \*{8,}' 'the mirror' ||
		return
	text+=$(cat "$WORK/traced/.git/config" "$EG_AUDIT" "$EG_LOG")
	for piece in "$KEY" "$PASSWORD" "${KEY:8:12}" "${PASSWORD:6:8}"; do
		! grep -qF "$piece" <<<"$text" || fail "seen: $piece" || return
	done
}

bed_main "$@"
