/* Policies and texts for the tests of this folder, from one line of text. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "policy/policy.h"

#define FIXTURE_RULES_MAX 64

/* "allow a.test" or "deny 10.0.0.0/8 80,443"; a target of "-" is none. */
static inline struct rule fixture_rule(struct slice text)
{
	struct slice action = slice_cut(&text, ' ');
	struct slice target = slice_cut(&text, ' ');
	uint16_t ports[POLICY_RULE_PORTS_MAX];
	struct errmsg msg = {""};
	struct rule r;
	size_t n = 0;

	while (text.p && n < POLICY_RULE_PORTS_MAX) {
		uint64_t port;

		assert_true(slice_to_u64(slice_cut(&text, ','), &port));
		ports[n++] = (uint16_t)port;
	}
	if (slice_eq(target, SLICE("-")))
		target = SLICE_EMPTY;
	if (rule_make(action, target, ports, n, &r, &msg) < 0)
		fail_msg("%s", msg.text);
	return r;
}

/* Rules separated by "; ". */
static inline struct policy *fixture_policy(bool default_allow, const char *text)
{
	struct slice rest = slice_str(text);
	struct rule *rules = xcalloc(FIXTURE_RULES_MAX, sizeof(*rules));
	size_t n = 0;

	while (rest.p && rest.len > 0) {
		struct slice one = slice_trim(slice_cut(&rest, ';'));

		assert_true(n < FIXTURE_RULES_MAX);
		rules[n++] = fixture_rule(one);
	}
	return policy_new(default_allow, rules, n);
}

static inline struct netaddr fixture_addr(const char *text)
{
	struct netaddr a;

	if (!netaddr_parse(slice_str(text), &a))
		fail_msg("%s is no address", text);
	return a;
}

/* xorshift: the same sequence in every run. */
static inline uint32_t fixture_random(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 33) % below;
}
