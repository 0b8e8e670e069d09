#!/usr/bin/env bash
# The vault file: how it is read, read again and refused, and that it outlives a worker. What its
# keys do to requests is not here. Helpers, names and origins: bed.sh.

# shellcheck source=tests/e2e/bed.sh
. "$(dirname "$0")/bed.sh"

CASES=(what_is_refused_at_start crash_keeps_the_revision change_is_taken_and_a_bad_one_is_not
	source_file_is_watched reload_sends_it_again reload_without_it_empties_it
	policy_must_still_fit unlocked_memory egressctl_lists_without_values
	egressctl_names_the_binding)

WORK=${EGRESS_TMP-}/vault
[ "${1-}" = --list ] || { mkdir -p "$WORK" && chmod 755 "$WORK"; }
VAULT=$WORK/vault.yaml
# Random, so that no part of it is anywhere by chance.
KEY=sk-Pl4nt3d-$(head -c 8 /dev/urandom | od -An -tx8 | tr -d ' \n')

# vault_write NAME HOST: one credential and the binding NAME, in one step as an editor does it
vault_write()
{
	cat >"$VAULT.new" <<-TEXT
		credentials: [{name: k, source: {value: $KEY}}]
		bindings:
		  - name: $1
		    match: {hosts: [$2], paths: ['/v1/*']}
		    auth: {type: bearer, credential: k}
	TEXT
	chmod 600 "$VAULT.new"
	mv "$VAULT.new" "$VAULT"
}

# With the vault of vault_write.
vault_start()
{
	need_origins || return
	egress_start "EGRESS_VAULT_FILE=$VAULT" ||
		fail "egress did not start: $(tail -3 "$EG_LOG")"
}

log_has()
{
	grep -qF "$1" "$EG_LOG"
}

# want_log TEXT: within 10 s (a file is looked at every 2 s, and once more)
want_log()
{
	wait_for 10 log_has "$1" || fail "no '$1' in the log: $(tail -3 "$EG_LOG")"
}

# The key is nowhere in what was written.
want_no_key()
{
	local found

	found=$(grep -rlF "${KEY:3:8}" "$EG_DIR")
	want "$found" '' 'files with the key'
}

# want_refused TEXT [VAR=VALUE...]: exit 2, and one line with TEXT
want_refused()
{
	local text=$1

	need_origins || return
	shift
	if egress_start "EGRESS_VAULT_FILE=$VAULT" "$@"; then
		fail "started: $text"
		return
	fi
	want "$EG_STATUS" 2 "exit code: $text" && want_no_key || return
	log_has "$text" || fail "no '$text' in: $(cat "$EG_LOG")"
}

case_what_is_refused_at_start()
{
	vault_write model read.test
	chmod 644 "$VAULT"
	want_refused 'mode 0644: expected a file that only its owner can read' || return
	printf 'credentials: [{name: k, source: {value: %s}}\n' "$KEY" >"$VAULT"
	chmod 600 "$VAULT"
	want_refused 'vault.yaml:2: ' || return
	printf '{"credentials":[{"name":"k","source":{"value":"%s"}}],}' "$KEY" >"$VAULT"
	want_refused 'vault.yaml:1:' || return
	head -c 1048577 /dev/zero | tr '\0' '#' >"$VAULT"
	want_refused 'expected 1048576 bytes at most' || return
	printf 'credentials: [{name: k, source: {value: %s, extra: 1}}]\n' "$KEY" >"$VAULT"
	want_refused 'vault.yaml: ' || return
	vault_write model unlisted.test
	want_refused 'host "unlisted.test" is not allowed by egress policy' || return
	rm "$VAULT"
	want_refused 'No such file or directory: expected a readable file'
}

case_crash_keeps_the_revision()
{
	local worker

	vault_write model read.test
	vault_start || return
	want_log 'vault: revision 1: 1 credentials, 1 bindings' || return
	vault_write two read.test
	want_log 'vault: revision 2: 1 credentials, 1 bindings' || return
	# A worker that dies has it from memory: the file is not read for that.
	rm "$VAULT"
	worker=$(egress_worker)
	: >"$EG_LOG"
	kill -9 "$worker"
	want_log 'vault: revision 2: 1 credentials, 1 bindings' || return
	wait_for 3 audit_count '"kind":"vault"' 3 || fail 'no three lines about the vault' || return
	want_no_key
}

case_change_is_taken_and_a_bad_one_is_not()
{
	vault_write model read.test
	vault_start || return
	printf 'credentials: [\n' >"$VAULT"
	want_log 'the vault before stays in force' || return
	sleep 5
	want "$(grep -c 'stays in force' "$EG_LOG")" 1 'lines about one bad file' || return
	vault_write other unlisted.test
	want_log 'is not allowed by egress policy; revision 1 stays in force' || return
	vault_write model read.test
	want_log 'vault: revision 2: ' && want_no_key
}

case_source_file_is_watched()
{
	printf '%s\n' "$KEY" >"$WORK/key"
	chmod 600 "$WORK/key"
	printf 'credentials: [{name: k, source: {type: file, path: %s}}]\n' "$WORK/key" >"$VAULT"
	chmod 600 "$VAULT"
	vault_start || return
	want_log 'vault: revision 1: 1 credentials, 0 bindings' || return
	printf '%s-2\n' "$KEY" >"$WORK/key"
	want_log 'vault: revision 2: ' && want_no_key
}

case_reload_sends_it_again()
{
	vault_write model read.test
	vault_start || return
	kill -HUP "$EG_PID"
	want_log 'vault: revision 2: ' || return
	chmod 604 "$VAULT"
	kill -HUP "$EG_PID"
	want_log 'reload refused, nothing is changed: vault: ' && want_no_key
}

case_reload_without_it_empties_it()
{
	need_origins || return
	vault_write model read.test
	printf 'vault: %s\n' "$VAULT" >"$WORK/egress.yaml"
	egress_start -- --config "$WORK/egress.yaml" || fail 'egress did not start' || return
	want_log 'vault: revision 1: 1 credentials' || return
	: >"$WORK/egress.yaml"
	kill -HUP "$EG_PID"
	want_log 'vault: revision 2: 0 credentials, 0 bindings'
}

case_policy_must_still_fit()
{
	local allow='{action: allow, target: read.test}'

	need_origins || return
	vault_write model read.test
	printf 'vault: %s\npolicy: {egress: [%s]}\n' "$VAULT" "$allow" >"$WORK/egress.yaml"
	egress_start OPENSANDBOX_EGRESS_RULES= -- --config "$WORK/egress.yaml" ||
		fail 'egress did not start' || return
	printf 'vault: %s\npolicy: {egress: []}\n' "$VAULT" >"$WORK/egress.yaml"
	kill -HUP "$EG_PID"
	want_log 'reload: vault: binding "model" host "read.test" is not allowed by egress policy'
}

# 64 KiB is what older container hosts give.
case_unlocked_memory()
{
	local status

	need_tool prlimit || return
	vault_write model read.test
	EG_AS=(prlimit --memlock=65536:65536)
	vault_start && want_log 'cannot be locked (RLIMIT_MEMLOCK): degraded' &&
		want_log 'vault: revision 1: ' &&
		want_refused 'require_locked_memory: ' EGRESS_REQUIRE_LOCKED_MEMORY=1
	status=$?
	EG_AS=()
	return $status
}

# ctl ARGS...: with the settings that egress has
ctl()
{
	env -i "${EG_SAN[@]}" OPENSANDBOX_EGRESS_MODE=proxy HOME="$WORK" \
		OPENSANDBOX_EGRESS_DNS_UPSTREAM=127.0.0.1 OPENSANDBOX_EGRESS_RULES="$BED_POLICY" \
		EGRESS_VAULT_FILE="$VAULT" "$EGRESSCTL_BIN" "$@" 2>"$WORK/ctl.err"
}

case_egressctl_lists_without_values()
{
	local text

	vault_write model read.test
	text=$(ctl vault list) || fail "vault list: $(cat "$WORK/ctl.err")" || return
	want_match "$text" 'bindings: 1' 'text' && want_match "$text" 'paths    /v1/\*' 'text' ||
		return
	text+=$(ctl vault list --json) || fail 'vault list --json' || return
	want_match "$text" '"hosts":\["read.test"\]' 'JSON' || return
	case $text in
	*Pl4nt*) fail 'the value was printed' ;;
	esac
}

case_egressctl_names_the_binding()
{
	vault_write model read.test
	want_match "$(ctl policy check GET https://read.test/v1/x)" 'binding   model' 'bound' &&
		want_match "$(ctl policy check GET https://read.test/x)" 'binding   none' 'not' &&
		want_match "$(ctl policy check --json GET https://read.test/v1/x)" \
			'"binding":"model"' 'JSON'
}

bed_main "$@"
