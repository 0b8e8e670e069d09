/* A vault in memory of its own, filled from texts in which ' stands for ". */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "policy/policy_json.h"
#include "policy/read_only.h"
#include "vault/substitute.h"
#include "vault/vault.h"

#define FIXTURE_MEM (256u << 10)
#define FIXTURE_MEM_LARGE (4u << 20)
#define FIXTURE_OUT_MAX 8192

struct fixture {
	struct secmem *mem;
	struct vault *vault;
	struct vault_rules rules;
	struct policy *policy;
	struct errmsg msg;
};

/* Freed by the caller. */
static inline char *fixture_quotes(const char *text)
{
	char *doc = xstrdup(text);

	for (char *p = doc; *p; p++)
		if (*p == '\'')
			*p = '"';
	return doc;
}

static inline struct policy *fixture_policy(const char *text)
{
	struct errmsg msg = {""};
	struct policy *p = NULL;
	char *doc = fixture_quotes(text);

	if (policy_json_decode(slice_str(doc), 0, &p, &msg) < 0)
		fail_msg("%s", msg.text);
	free(doc);
	return p;
}

static inline void fixture_open_sized(struct fixture *f, size_t mem)
{
	*f = (struct fixture){.policy = fixture_policy("{'defaultAction':'allow'}")};
	assert_true(secmem_new(mem, &f->mem) >= 0);
	f->vault = vault_new(f->mem);
	f->rules.policy = f->policy;
}

static inline void fixture_open(struct fixture *f)
{
	fixture_open_sized(f, FIXTURE_MEM);
}

/* Whatever the test did, no locked memory is left over. */
static inline void fixture_close(struct fixture *f)
{
	vault_free(f->vault);
	assert_int_equal(secmem_used(f->mem), 0);
	secmem_close(f->mem);
	policy_unref(f->policy);
}

static inline void fixture_set_policy(struct fixture *f, const char *text)
{
	policy_unref(f->policy);
	f->policy = fixture_policy(text);
	f->rules.policy = f->policy;
}

static inline int fixture_try(struct fixture *f, const char *text)
{
	char *doc = fixture_quotes(text);
	int ret = vault_load(f->vault, slice_str(doc), &f->rules, &f->msg);

	free(doc);
	return ret;
}

static inline void fixture_load(struct fixture *f, const char *text)
{
	if (fixture_try(f, text) < 0)
		fail_msg("%s", f->msg.text);
}

static inline void fixture_refuse(struct fixture *f, const char *text, int ret, const char *want)
{
	f->msg.text[0] = '\0';
	assert_int_equal(fixture_try(f, text), ret);
	if (!strstr(f->msg.text, want))
		fail_msg("wanted \"%s\", got \"%s\"", want, f->msg.text);
}

/* The binding that a request of the host, GET and path matches. */
static inline const struct binding *fixture_bound(
	struct vault_view *view, const char *host, const char *path)
{
	struct binding_request r = {true, 443, slice_str(host), SLICE("GET"), slice_str(path)};
	const struct binding *b;

	assert_int_equal(vault_view_match(view, &r, &b), BINDING_ONE);
	return b;
}

struct fixture_out {
	char text[FIXTURE_OUT_MAX];
	size_t len;
};

static inline void fixture_put(void *arg, struct slice piece)
{
	struct fixture_out *out = arg;

	assert_true(piece.len < sizeof(out->text) - out->len);
	memcpy(out->text + out->len, piece.p, piece.len);
	out->len += piece.len;
	out->text[out->len] = '\0';
}
