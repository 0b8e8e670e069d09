#!/usr/bin/env bash
# Real clients through the proxy: what they get, what the origins saw, and what is on record.
# Each tool that is missing is a skip. Helpers, names and origins: bed.sh.

# shellcheck source=tests/e2e/bed.sh
. "$(dirname "$0")/bed.sh"

CASES=(curl_http curl_https curl_head curl_range curl_http10 curl_not_modified curl_keep_alive
	curl_proxytunnel_http curl_big_download curl_events curl_upload_refused
	curl_chunked_upload_refused curl_upload_arrives_without_rule curl_expect_refused
	curl_upload_write_host curl_chunked_upload_write_host curl_expect_write_host
	curl_host_not_listed curl_bad_certificate wget_http wget_https wget_recursive
	wget_post_refused git_clone_write_host git_push_write_host git_clone_read_host_refused
	git_clone_read_host_as_fetch git_push_read_host_refused npm_install pip_download
	node_https python_urllib python_requests java_client cargo_fetch go_get)

WORK=${EGRESS_TMP-}/clients
[ "${1-}" = --list ] || mkdir -p "$WORK"

# The content that uploads carry, 3 MB, and its checksum.
upload_make()
{
	[ -s "$WORK/upload" ] || head -c 3000000 /dev/urandom >"$WORK/upload"
	UPLOAD_SUM=$(sha256sum "$WORK/upload" | cut -d ' ' -f 1)
}

# Runs "$@" for at most 60 s; what it said on stderr is in ERR.
client()
{
	OUT=$(via timeout 60 "$@" 2>"$WORK/err")
	STATUS=$?
	ERR=$(cat "$WORK/err")
	return $STATUS
}

client_good()
{
	client "$@" || fail "$1 ended with $STATUS: $ERR $OUT"
}

# --- curl ---

case_curl_http()
{
	need_origins && egress_need || return
	client_good curl -sS http://read.test/hello.txt &&
		want "$OUT" 'hello from read' content &&
		origin_want read 'GET http://read.test/hello.txt 200' &&
		audit_want 'read allowed allowed GET http://read.test/hello.txt 200'
}

case_curl_https()
{
	need_origins && egress_need || return
	client_good curl -sS 'https://read.test/hello.txt?a=1&b=%20' &&
		want "$OUT" 'hello from read' content &&
		origin_want read 'GET https://read.test/hello.txt?a=1&b=%20 200' &&
		audit_want 'read allowed allowed GET https://read.test/hello.txt?a=1&b=%20 200'
}

case_curl_head()
{
	need_origins && egress_need || return
	client_good curl -sSI http://read.test/big.bin https://read.test/big.bin &&
		want "$(grep -ci '^content-length: 200000000' <<<"$OUT")" 2 'lengths' &&
		audit_want 'read allowed allowed HEAD http://read.test/big.bin 200' \
			'read allowed allowed HEAD https://read.test/big.bin 200'
}

case_curl_range()
{
	need_origins && egress_need || return
	client_good curl -sS -r 100000000-100999999 -o "$WORK/part" -w '%{http_code}' \
		https://read.test/big.bin &&
		want "$OUT" 206 status || return
	cmp "$WORK/part" <(tail -c +100000001 "$BED/www/read/big.bin" | head -c 1000000) ||
		fail "the range differs" || return
	audit_want 'read allowed allowed GET https://read.test/big.bin 206'
}

case_curl_http10()
{
	need_origins && egress_need || return
	client_good curl -sS --http1.0 http://read.test/numbers.txt &&
		want "$(tail -1 <<<"$OUT")" 20000 'last line by http' &&
		client_good curl -sS --http1.0 https://read.test/numbers.txt &&
		want "$(tail -1 <<<"$OUT")" 20000 'last line by https' &&
		client_good curl -sS --http1.0 'http://read.test/app/stream?n=3&ms=1' &&
		want "${OUT//$'\n'/}" 'data: 0data: 1data: 2' 'a chunked answer, unchunked' &&
		audit_want 'read allowed allowed GET http://read.test/numbers.txt 200' \
			'read allowed allowed GET https://read.test/numbers.txt 200' \
			'read allowed allowed GET http://read.test/app/stream?n=3&ms=1 200'
}

case_curl_not_modified()
{
	need_origins && egress_need || return
	client_good curl -sS -z "$BED/www/read/hello.txt" -w '%{http_code} %{size_download} ' \
		https://read.test/hello.txt https://read.test/hello.txt &&
		want "$OUT" '304 0 304 0 ' 'status and size' &&
		audit_want 'read allowed allowed GET https://read.test/hello.txt 304' \
			'read allowed allowed GET https://read.test/hello.txt 304'
}

case_curl_keep_alive()
{
	need_origins && egress_need || return
	client_good curl -sS -o /dev/null -o /dev/null -w '%{num_connects} ' \
		https://read.test/hello.txt https://read.test/numbers.txt &&
		want "$OUT" '1 0 ' 'connections by https' &&
		client_good curl -sS -o /dev/null -o /dev/null -w '%{num_connects} ' \
			http://read.test/hello.txt http://two.test/hello.txt &&
		want "$OUT" '1 0 ' 'connections by http, two origins' &&
		audit_want 'read allowed allowed GET https://read.test/hello.txt 200' \
			'read allowed allowed GET https://read.test/numbers.txt 200' \
			'read allowed allowed GET http://read.test/hello.txt 200' \
			'read allowed allowed GET http://two.test/hello.txt 200'
}

case_curl_proxytunnel_http()
{
	need_origins && egress_need || return
	client_good curl -sS --proxytunnel http://read.test/hello.txt &&
		want "$OUT" 'hello from read' content || return
	client curl -sS --proxytunnel -o /dev/null -w '%{http_code}' -d x http://read.test/
	want "$OUT" 403 'a POST in the tunnel' &&
		origin_want read 'GET http://read.test/hello.txt 200' &&
		audit_want 'read allowed allowed GET http://read.test/hello.txt 200' \
			'write blocked method_not_read POST http://read.test/ 403'
}

case_curl_big_download()
{
	need_origins && egress_need || return
	client_good curl -sS https://read.test/big.bin -o "$WORK/big" || return
	cmp "$WORK/big" "$BED/www/read/big.bin" || fail "200 MB differ" || return
	rm "$WORK/big"
	audit_want 'read allowed allowed GET https://read.test/big.bin 200'
}

case_curl_events()
{
	need_origins && egress_need || return
	client_good curl -sSN 'https://read.test/app/stream?n=10&ms=100' \
		-w '%{time_starttransfer} %{time_total}' || return
	set -- "$(tail -1 <<<"$OUT")"
	awk '{ exit !($1 < 0.5 && $2 > 0.9) }' <<<"$1" ||
		fail "first byte and total after $1 s: events are held back" || return
	want "$(grep -c data: <<<"$OUT")" 10 events &&
		audit_want 'read allowed allowed GET https://read.test/app/stream?n=10&ms=100 200'
}

# refused CONNECTIONS-BEFORE: OUT is a status line of 403, and not even a connection was made.
refused()
{
	want_match "$OUT" 'HTTP/1.1 403 blocked' 'status line' &&
		want_match "$OUT" 'X-Egress-Reason: method_not_read' reason &&
		want_match "$OUT" '403 blocked: P[OSTU]* read.test' text &&
		origin_want read &&
		want "$(origin_accepts)" $(($1 + 1)) 'connections that origins saw'
}

case_curl_upload_refused()
{
	local before

	need_origins && egress_need || return
	upload_make
	before=$(origin_accepts)
	client curl -sSi --data-binary "@$WORK/upload" -H 'Expect:' http://read.test/up
	refused "$before" || return
	before=$(origin_accepts)
	client curl -sSi --data-binary "@$WORK/upload" -H 'Expect:' https://read.test/up
	refused "$before" &&
		audit_want 'write blocked method_not_read POST http://read.test/up 403' \
			'write blocked method_not_read POST https://read.test/up 403'
}

case_curl_chunked_upload_refused()
{
	local before

	need_origins && egress_need || return
	upload_make
	before=$(origin_accepts)
	client curl -sSi -T - -H 'Expect:' https://read.test/up <"$WORK/upload"
	refused "$before" && audit_want 'write blocked method_not_read PUT https://read.test/up 403'
}

# The same attempts, to show that nothing but the rule stops them.
case_curl_upload_arrives_without_rule()
{
	need_origins && egress_need AGENTIC_WRITE_HOSTS= EGRESS_READ_ONLY=off || return
	upload_make
	client curl -sS -o /dev/null --data-binary "@$WORK/upload" -H 'Expect:' http://read.test/hello.txt
	client curl -sS -o /dev/null -T - -H 'Expect:' https://read.test/hello.txt <"$WORK/upload"
	origin_want read 'POST http://read.test/hello.txt 405' 'PUT https://read.test/hello.txt 405' &&
		audit_want 'write allowed allowed POST http://read.test/hello.txt 405' \
			'write allowed allowed PUT https://read.test/hello.txt 405'
}

case_curl_expect_refused()
{
	local before

	need_origins && egress_need || return
	upload_make
	before=$(origin_accepts)
	client curl -sSi --expect100-timeout 20 -H 'Expect: 100-continue' \
		--data-binary "@$WORK/upload" https://read.test/up -w '\nsent %{size_upload}'
	refused "$before" && want_match "$OUT" 'sent 0$' 'content that was sent' &&
		audit_want 'write blocked method_not_read POST https://read.test/up 403'
}

uploaded()
{
	want "$(tail -1 <<<"$OUT" | jq -r '"\(.method) \(.length) \(.sha256)"')" \
		"$1 3000000 $UPLOAD_SUM" 'what arrived'
}

case_curl_upload_write_host()
{
	need_origins && egress_need || return
	upload_make
	client_good curl -sS --data-binary "@$WORK/upload" -H 'Expect:' https://model.test/up &&
		uploaded POST &&
		client_good curl -sS -T "$WORK/upload" -H 'Expect:' http://api.model.test/up &&
		uploaded PUT &&
		audit_want 'write allowed write_host POST https://model.test/up 200' \
			'write allowed write_host PUT http://api.model.test/up 200'
}

case_curl_chunked_upload_write_host()
{
	need_origins && egress_need || return
	upload_make
	client_good curl -sS -T - -H 'Expect:' https://model.test/up <"$WORK/upload" &&
		uploaded PUT && audit_want 'write allowed write_host PUT https://model.test/up 200'
}

case_curl_expect_write_host()
{
	need_origins && egress_need || return
	upload_make
	client_good curl -sSi --expect100-timeout 20 -H 'Expect: 100-continue' --max-time 15 \
		--data-binary "@$WORK/upload" https://model.test/up &&
		want_match "$OUT" 'HTTP/1.1 100 Continue' 'the interim answer' &&
		uploaded POST && audit_want 'write allowed write_host POST https://model.test/up 200'
}

case_curl_host_not_listed()
{
	local before

	need_origins && egress_need || return
	before=$(origin_accepts)
	client curl -sSi http://deny.test/
	want_match "$OUT" 'HTTP/1.1 403 blocked.*X-Egress-Reason: denied' 'plain http' || return
	client curl -sS https://other.example/
	want $STATUS 56 'exit code: CONNECT refused' &&
		want_match "$ERR" 403 'what curl says' &&
		want "$(origin_accepts)" $((before + 1)) 'connections that origins saw' &&
		want "$(dns_lines | grep -cE 'deny|other')" 0 'names asked for' &&
		audit_want 'read blocked denied GET http://deny.test/ 403' \
			'tunnel blocked host_not_listed CONNECT other.example:443 403'
}

case_curl_bad_certificate()
{
	need_origins && egress_need || return
	client curl -sSi https://bad.test/hello.txt
	want_match "$OUT" 'HTTP/1.1 502 Bad Gateway.*X-Egress-Reason: certificate' answer &&
		want_match "$OUT" 'self-signed certificate' cause &&
		origin_want bad &&
		audit_want 'read failed certificate GET https://bad.test/hello.txt 502'
}

# --- wget ---

case_wget_http()
{
	need_tool wget && need_origins && egress_need || return
	client_good wget -qO - http://read.test/hello.txt &&
		want "$OUT" 'hello from read' content &&
		audit_want 'read allowed allowed GET http://read.test/hello.txt 200'
}

case_wget_https()
{
	need_tool wget && need_origins && egress_need || return
	client_good wget --ca-certificate="$EG_CA" -qO - https://read.test/hello.txt &&
		want "$OUT" 'hello from read' content &&
		audit_want 'read allowed allowed GET https://read.test/hello.txt 200'
}

case_wget_recursive()
{
	local page

	need_tool wget && need_origins && egress_need || return
	client_good wget --ca-certificate="$EG_CA" -q -r -np -P "$WORK/wget" -e robots=off \
		https://read.test/tree/ || return
	for page in index page1 page2 page3; do
		cmp "$WORK/wget/read.test/tree/$page.html" "$BED/www/read/tree/$page.html" ||
			fail "$page differs" || return
	done
	audit_want 'read allowed allowed GET https://read.test/tree/ 200' \
		'read allowed allowed GET https://read.test/tree/page1.html 200' \
		'read allowed allowed GET https://read.test/tree/page2.html 200' \
		'read allowed allowed GET https://read.test/tree/page3.html 200'
}

case_wget_post_refused()
{
	need_tool wget && need_origins && egress_need || return
	client wget --ca-certificate="$EG_CA" -O - --post-data=a=b https://read.test/form
	want $STATUS 8 'exit code' && want_match "$ERR" '403: blocked|403 blocked' 'what it says' &&
		origin_want read &&
		audit_want 'write blocked method_not_read POST https://read.test/form 403'
}

# --- git ---

GIT_REFS='info/refs?service=git-upload-pack'
GIT=(git -c user.name=tester -c user.email=tester@test -c protocol.version=2)
export GIT_TERMINAL_PROMPT=0

git_is_clone()
{
	cmp "$1/numbers.txt" "$BED_GIT/seed/numbers.txt" || fail "the clone differs"
}

case_git_clone_write_host()
{
	local repo=https://git.test/git/demo.git

	need_origins && egress_need || return
	client_good "${GIT[@]}" clone -q $repo "$WORK/clone" && git_is_clone "$WORK/clone" &&
		audit_want "read allowed allowed GET $repo/$GIT_REFS 200" \
			"write allowed write_host POST $repo/git-upload-pack 200" \
			"write allowed write_host POST $repo/git-upload-pack 200"
}

# git_commit_in FOLDER: one more commit, with 2 MB that do not compress: git asks with an empty
# request whether it may, and then sends it chunked.
git_commit_in()
{
	head -c 2000000 /dev/urandom >"$1/blob" && "${GIT[@]}" -C "$1" add blob &&
		"${GIT[@]}" -C "$1" commit -qm more
}

case_git_push_write_host()
{
	local repo=https://git.test/git/demo.git clone=$WORK/pushing

	need_origins && egress_need || return
	client_good "${GIT[@]}" clone -q $repo "$clone" && git_commit_in "$clone" || return
	mark
	client_good "${GIT[@]}" -C "$clone" push -q origin HEAD:refs/heads/pushed &&
		want "$(git -C "$BED_GIT/demo.git" rev-parse pushed)" \
			"$(git -C "$clone" rev-parse HEAD)" 'commit at the origin' &&
		audit_want "read allowed allowed GET $repo/info/refs?service=git-receive-pack 200" \
			"write allowed write_host POST $repo/git-receive-pack 200" \
			"write allowed write_host POST $repo/git-receive-pack 200"
}

case_git_clone_read_host_refused()
{
	local repo=https://gitread.test/git/demo.git start=$SECONDS

	need_origins && egress_need || return
	client timeout 2 "${GIT[@]}" clone -q $repo "$WORK/refused"
	want $STATUS 128 'exit code' && want_match "$ERR" 403 'what git says' &&
		want "$((SECONDS - start <= 5))" 1 'in time' &&
		origin_want gitread "GET $repo/$GIT_REFS 200" &&
		audit_want "read allowed allowed GET $repo/$GIT_REFS 200" \
			"write blocked method_not_read POST $repo/git-upload-pack 403"
}

case_git_clone_read_host_as_fetch()
{
	local repo=https://gitread.test/git/demo.git

	need_origins && egress_need EGRESS_READ_ONLY_GIT_FETCH=1 || return
	client_good "${GIT[@]}" clone -q $repo "$WORK/fetched" && git_is_clone "$WORK/fetched" &&
		audit_want "read allowed allowed GET $repo/$GIT_REFS 200" \
			"read allowed git_fetch POST $repo/git-upload-pack 200" \
			"read allowed git_fetch POST $repo/git-upload-pack 200"
}

case_git_push_read_host_refused()
{
	local repo=https://gitread.test/git/demo.git clone=$WORK/pushing2

	need_origins && egress_need EGRESS_READ_ONLY_GIT_FETCH=1 || return
	client_good "${GIT[@]}" clone -q $repo "$clone" && git_commit_in "$clone" || return
	mark
	client "${GIT[@]}" -C "$clone" push -q origin HEAD:refs/heads/refused
	want_match "$STATUS $ERR" '^(1|128) .*403' 'exit code and what git says' || return
	! git -C "$BED_GIT/demo.git" rev-parse -q --verify refused ||
		fail 'the branch arrived' || return
	origin_want gitread "GET $repo/info/refs?service=git-receive-pack 200" &&
		audit_want "read allowed allowed GET $repo/info/refs?service=git-receive-pack 200" \
			"write blocked method_not_read POST $repo/git-receive-pack 403"
}

# --- package managers ---

# A package and its packument, as files of npm.test.
npm_publish()
{
	local www=$BED/www/npm package=$WORK/npm-package

	mkdir -p "$package" "$www/files"
	echo '{"name":"demo-npm","version":"1.0.0","main":"index.js"}' >"$package/package.json"
	echo 'module.exports = 42;' >"$package/index.js"
	# With a cache of its own, or the client would find the package there.
	(cd "$package" && npm_config_cache=$WORK/npm-cache npm pack --json --offline --pack-destination "$www/files" \
		>"$WORK/pack.json" 2>"$WORK/err") || return
	jq '(if type == "array" then .[0] else to_entries[0].value end) as $p |
		{name: "demo-npm", "dist-tags": {latest: "1.0.0"}, versions: {"1.0.0": {
		name: "demo-npm", version: "1.0.0", main: "index.js", dist: {
		integrity: $p.integrity, shasum: $p.shasum,
		tarball: "https://npm.test/files/demo-npm-1.0.0.tgz"}}}}' \
		"$WORK/pack.json" >"$www/demo-npm"
}

case_npm_install()
{
	need_tool npm node && need_origins && egress_need || return
	npm_publish || fail "npm pack: $(cat "$WORK/err")" || return
	mkdir -p "$WORK/npm-user" && cd "$WORK/npm-user" || return
	echo '{"name":"user","version":"1.0.0"}' >package.json
	client_good npm install --registry https://npm.test/ --no-fund --no-update-notifier demo-npm
	cd "$OLDPWD" || return
	[ -z "$CASE_WHY" ] || return
	want "$(node -p 'require(process.argv[1])' "$WORK/npm-user/node_modules/demo-npm")" 42 \
		'the package' || return
	# npm also posts what is installed, to have it audited; that is a write, and no harm is done.
	audit_have 'read allowed allowed GET https://npm.test/demo-npm 200' \
		'read allowed allowed GET https://npm.test/files/demo-npm-1.0.0.tgz 200' &&
		want "$(origin_lines npm | grep -c POST)" 0 'posts that arrived' &&
		want "$(audit_lines | grep -v '^read allowed' |
			grep -cv '^write blocked method_not_read POST https://npm.test/-/npm/')" 0 \
			'other lines'
}

# A wheel made by hand, and an index of PEP 503, as files of pypi.test.
pip_publish()
{
	mkdir -p "$BED/www/pypi/simple/demo-pkg" "$BED/www/pypi/files"
	"$PYTHON" - "$BED/www/pypi" <<-'TEXT'
		import hashlib, sys, zipfile
		www, name = sys.argv[1], "demo_pkg-1.0-py3-none-any.whl"
		info = "demo_pkg-1.0.dist-info/"
		with zipfile.ZipFile(f"{www}/files/{name}", "w") as wheel:
		    wheel.writestr("demo_pkg.py", "answer = 42\n")
		    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\n")
		    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: hand\n"
		                   "Root-Is-Purelib: true\nTag: py3-none-any\n")
		    wheel.writestr(info + "RECORD", "".join(f"{n},,\n" for n in (
		        "demo_pkg.py", info + "METADATA", info + "WHEEL", info + "RECORD")))
		digest = hashlib.sha256(open(f"{www}/files/{name}", "rb").read()).hexdigest()
		with open(f"{www}/simple/demo-pkg/index.html", "w") as page:
		    page.write(f'<!DOCTYPE html><a href="/files/{name}#sha256={digest}">{name}</a>\n')
	TEXT
}

case_pip_download()
{
	local wheel=demo_pkg-1.0-py3-none-any.whl

	need_origins && egress_need || return
	"$PYTHON" -m pip --version >/dev/null 2>&1 || skip 'no pip' || return
	pip_publish || fail 'wheel' || return
	client_good "$PYTHON" -m pip download -q --disable-pip-version-check --no-cache-dir \
		--no-deps --index-url https://pypi.test/simple/ -d "$WORK" demo-pkg || return
	cmp "$WORK/$wheel" "$BED/www/pypi/files/$wheel" || fail 'the wheel differs' || return
	audit_want 'read allowed allowed GET https://pypi.test/simple/demo-pkg/ 200' \
		"read allowed allowed GET https://pypi.test/files/$wheel 200"
}

cargo_publish()
{
	local www=$BED/www/cargo crate=$WORK/democrate-1.0.0 sum

	mkdir -p "$www/index/de/mo" "$www/dl" "$crate/src"
	printf '[package]\nname = "democrate"\nversion = "1.0.0"\nedition = "2018"\n' \
		>"$crate/Cargo.toml"
	echo 'pub fn answer() -> u32 { 42 }' >"$crate/src/lib.rs"
	tar -C "$WORK" -czf "$www/dl/democrate-1.0.0.crate" democrate-1.0.0
	sum=$(sha256sum "$www/dl/democrate-1.0.0.crate" | cut -d ' ' -f 1)
	echo '{"dl":"https://cargo.test/dl/{crate}-{version}.crate"}' >"$www/index/config.json"
	printf '{"name":"democrate","vers":"1.0.0","deps":[],"features":{},"yanked":false,"cksum":"%s"}\n' \
		"$sum" >"$www/index/de/mo/democrate"
}

# rustup's shim looks for its toolchains in HOME, and ours is another one.
cargo_find()
{
	local shim

	shim=$(command -v cargo) || return
	RUSTUP_HOME=${RUSTUP_HOME-$(dirname "$(dirname "$(dirname "$shim")")")/.rustup}
	[ ! -d "$RUSTUP_HOME" ] || export RUSTUP_HOME
	CARGO_HOME=$WORK/cargo-home
	export CARGO_HOME
	cargo --version >/dev/null 2>&1
}

case_cargo_fetch()
{
	need_origins && egress_need || return
	cargo_find || skip 'no cargo that works' || return
	cargo_publish
	mkdir -p "$WORK/cargo-home" "$WORK/cargo-user/src" && cd "$WORK/cargo-user" || return
	printf '[source.crates-io]\nreplace-with = "local"\n[source.local]\n%s\n' \
		'registry = "sparse+https://cargo.test/index/"' >"$CARGO_HOME/config.toml"
	printf '[package]\nname = "user"\nversion = "0.1.0"\n[dependencies]\ndemocrate = "1"\n' \
		>Cargo.toml
	echo 'fn main() {}' >src/main.rs
	client_good cargo fetch -q
	cd "$OLDPWD" || return
	[ -z "$CASE_WHY" ] || return
	cmp "$CARGO_HOME"/registry/cache/*/democrate-1.0.0.crate \
		"$BED/www/cargo/dl/democrate-1.0.0.crate" || fail 'the crate differs' || return
	audit_want 'read allowed allowed GET https://cargo.test/index/config.json 200' \
		'read allowed allowed GET https://cargo.test/index/de/mo/democrate 200' \
		'read allowed allowed GET https://cargo.test/dl/democrate-1.0.0.crate 200'
}

# --- languages ---
# Each program gets https://read.test/hello.txt, then posts and prints the status of the answer.

LANGUAGE_LINES=('read allowed allowed GET https://read.test/hello.txt 200'
	'write blocked method_not_read POST https://read.test/form 403')

language_want()
{
	want "${OUT//$'\n'/ }" 'hello from read 403' 'content, and status of a POST' &&
		origin_want read 'GET https://read.test/hello.txt 200' &&
		audit_want "${LANGUAGE_LINES[@]}" "$@"
}

# Node 20 has no proxy of its own: CONNECT by hand, as the agents that people use do.
case_node_https()
{
	need_tool node && need_origins && egress_need || return
	cat >"$WORK/get.js" <<-'TEXT'
		const http = require('http'), https = require('https'), tls = require('tls');
		const proxy = new URL(process.env.https_proxy);
		function open(host, done) {
			http.request({host: proxy.hostname, port: proxy.port, method: 'CONNECT',
				path: host + ':443'}).on('connect', (answer, socket) => {
				if (answer.statusCode !== 200) throw new Error(answer.statusCode);
				done(tls.connect({socket, servername: host}));
			}).end();
		}
		function ask(method, path, content, done) {
			open('read.test', socket => {
				// The port stands for the default one, which a connection of our own lacks.
				const request = https.request({host: 'read.test', path, method,
					defaultPort: 443, port: 443, createConnection: () => socket}, answer => {
					let text = '';
					answer.on('data', d => text += d).on('end', () => {
						socket.destroy(); done(answer, text); });
				});
				request.end(content);
			});
		}
		ask('GET', '/hello.txt', undefined, (answer, text) => {
			console.log(text.trim());
			ask('POST', '/form', 'a=b', answer => console.log(answer.statusCode));
		});
	TEXT
	client_good node "$WORK/get.js" && language_want
}

case_python_urllib()
{
	need_origins && egress_need || return
	cat >"$WORK/get.py" <<-'TEXT'
		import ssl, urllib.error, urllib.request
		context = ssl.create_default_context()
		context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from 3.13 on
		def get(url, content=None):
		    return urllib.request.urlopen(url, content, context=context).read().decode().strip()
		print(get("https://read.test/hello.txt"))
		try:
		    get("https://read.test/form", b"a=b")
		except urllib.error.HTTPError as error:
		    print(error.code)
	TEXT
	client_good "$PYTHON" "$WORK/get.py" && language_want
}

case_python_requests()
{
	need_origins && egress_need || return
	cat >"$WORK/requests_get.py" <<-'TEXT'
		import sys
		try:
		    import requests
		except ImportError:
		    try:
		        from pip._vendor import requests
		    except ImportError:
		        sys.exit(77)
		with requests.Session() as session:
		    print(session.get("https://read.test/hello.txt").text.strip())
		    print(session.post("https://read.test/form", data={"a": "b"}).status_code)
	TEXT
	client "$PYTHON" "$WORK/requests_get.py"
	[ $STATUS -ne 77 ] || skip 'no requests' || return
	want "$STATUS $ERR" '0 ' 'exit code and stderr' && language_want
}

# Java's client asks for an upgrade to h2c with each plain GET.
case_java_client()
{
	need_tool java keytool && need_origins && egress_need || return
	keytool -importcert -noprompt -alias egress -file "$EG_CA" -keystore "$WORK/trust.p12" \
		-storepass changeit >"$WORK/err" 2>&1 || fail "keytool: $(cat "$WORK/err")" || return
	cat >"$WORK/Get.java" <<-'TEXT'
		import java.net.*;
		import java.net.http.*;
		import java.net.http.HttpResponse.BodyHandlers;
		public class Get {
			public static void main(String[] args) throws Exception {
				HttpClient client = HttpClient.newBuilder().proxy(ProxySelector.of(
					new InetSocketAddress(args[0], Integer.parseInt(args[1])))).build();
				for (String url : new String[] {"https://read.test/hello.txt",
						"http://two.test/hello.txt"}) {
					HttpResponse<String> got = client.send(HttpRequest.newBuilder(
						URI.create(url)).build(), BodyHandlers.ofString());
					if (url.startsWith("https"))
						System.out.println(got.body().trim());
					else if (got.statusCode() != 200)
						System.out.println("plain http: " + got.statusCode());
				}
				System.out.println(client.send(HttpRequest.newBuilder(
					URI.create("https://read.test/form")).POST(
					HttpRequest.BodyPublishers.ofString("a=b")).build(),
					BodyHandlers.ofString()).statusCode());
			}
		}
	TEXT
	client_good java -XX:TieredStopAtLevel=1 -Djavax.net.ssl.trustStore="$WORK/trust.p12" \
		-Djavax.net.ssl.trustStorePassword=changeit "$WORK/Get.java" "${PX%:*}" "$EG_PORT" &&
		language_want 'read allowed allowed GET http://two.test/hello.txt 200'
}

# The first build compiles Go's own library, which takes a minute: it begins with the script, and
# what it made is kept. What is being made has words in it that look like a sanitizer's.
go_build()
{
	mkdir -p "$WORK/go/tmp"
	cat >"$WORK/go/get.go" <<-'TEXT'
		package main

		import (
			"fmt"
			"io"
			"net/http"
			"strings"
		)

		func check(err error) {
			if err != nil {
				panic(err)
			}
		}

		func main() {
			got, err := http.Get("https://read.test/hello.txt")
			check(err)
			text, err := io.ReadAll(got.Body)
			check(err)
			fmt.Print(string(text))
			got, err = http.Post("https://read.test/form", "text/plain", strings.NewReader("a=b"))
			check(err)
			fmt.Println(got.StatusCode)
		}
	TEXT
	CGO_ENABLED=0 GOCACHE=$BED_SRC/build/go-cache GOPATH=$WORK/gopath GOTOOLCHAIN=local \
		GOTMPDIR=$WORK/go/tmp timeout 240 nice go build -gcflags='all=-N -l' \
		-o "$WORK/go/get" "$WORK/go/get.go" >"$WORK/go/log" 2>&1
	local status=$?
	rm -rf "$WORK/go/tmp"
	echo $status >"$WORK/go/status"
}

case_go_get()
{
	need_tool go && need_origins && egress_need || return
	wait_for 250 test -s "$WORK/go/status"
	[ "$(cat "$WORK/go/status")" != 124 ] || skip 'this machine is too slow to build it' || return
	[ -x "$WORK/go/get" ] || fail "go build: $(cat "$WORK/go/status" "$WORK/go/log")" || return
	client_good "$WORK/go/get" && language_want
	rm "$WORK/go/get" # it has the words of what it was made of
}

if [ "${1-}" != --list ] && [[ " ${*:-go-get} " = *' go-get '* ]] && command -v go >/dev/null; then
	go_build &
fi
bed_main "$@"
