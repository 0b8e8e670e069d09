#!/usr/bin/env bash
# The worker is killed fifty times under 200 requests per second. Each request that an origin saw must have
# its own line, lines must not be repeated, the chain must hold, CA and policy must be the same.
#
# kill.py makes the load and compares; the bed's nginx is the origin.
# shellcheck source=tests/e2e/bed.sh
. "$(dirname "$0")/../e2e/bed.sh"

KILLS=50
RATE=200

case_kills_lose_no_line()
{
	local ca report

	# shellcheck disable=SC2119  # without settings of its own
	need_origins && egress_need || return
	ca=$(sha256sum "$EG_CA")
	report=$("$PYTHON" "$BED_SRC/tests/long/kill.py" --proxy "$PX" --ca "$EG_CA" --kills "$KILLS" \
		--rate "$RATE" --supervisor "$EG_PID" --origin-log "$BED/access-read.log" \
		--audit "$EG_AUDIT" 2>&1) || fail "$report"
	echo "# $report"
	want "$(sha256sum "$EG_CA")" "$ca" 'the CA after all kills' &&
		audit_verify
}

# The same comparison must see a lost line: one is taken out of a copy of the trail.
case_a_lost_line_would_be_seen()
{
	# shellcheck disable=SC2119  # without settings of its own
	need_origins && egress_need || return
	via curl -sS -o /dev/null "https://read.test/hello.txt?kill=control" || fail 'no answer' || return
	wait_for 3 grep -q kill=control "$EG_AUDIT" || fail 'no line' || return
	grep -v kill=control "$EG_AUDIT" >"$BED/audit-less.jsonl"
	"$PYTHON" "$BED_SRC/tests/long/kill.py" --compare-only --origin-log "$BED/access-read.log" \
		--audit "$BED/audit-less.jsonl" >/dev/null 2>&1 && fail 'the lost line was not noticed'
	"$PYTHON" "$BED_SRC/tests/long/kill.py" --compare-only --origin-log "$BED/access-read.log" \
		--audit "$EG_AUDIT" >/dev/null || fail 'a whole trail was refused'
}

case_policy_survives()
{
	local code

	# shellcheck disable=SC2119  # without settings of its own
	need_origins && egress_need || return
	kill -9 "$(egress_worker)"
	sleep 0.3
	code=$(via curl -sS -o /dev/null -w '%{http_code}' https://read.test/hello.txt)
	want "$code" 200 'an allowed host after a kill' || return
	code=$(via curl -s -o /dev/null -w '%{http_connect}' https://deny.test/)
	want "$code" 403 'a denied host after a kill'
}

# shellcheck disable=SC2034  # for bed_main
CASES=(a_lost_line_would_be_seen kills_lose_no_line policy_survives)
bed_main "$@"
