/* A vault and mutations of it: documents one after the other, each ended by NUL. Whatever is taken
 * counts one revision more, leaves a state that is JSON, and is the same to the next worker;
 * whatever is refused says why and changes nothing, in locked memory neither.
 *
 * covers: vault/vault_patch.c */
#include <errno.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/arena.h"
#include "policy/policy_json.h"
#include "vault/vault.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define MEM (1u << 20)
#define DOCS_MAX 8

/* Each run begins and ends with it empty. */
static struct secmem *memory(void)
{
	static struct secmem *mem;

	if (!mem)
		REQUIRE(secmem_new(MEM, &mem) >= 0);
	return mem;
}

/* The content with its keys, as it is kept; in ordinary memory, freed by the caller. */
static struct slice content(const struct vault *v, struct secmem *mem)
{
	size_t len;
	char *blob = vault_encode(v, &len);
	char *copy;

	if (!blob)
		return SLICE_EMPTY;
	copy = xmalloc(len);
	memcpy(copy, blob, len);
	secmem_release(mem, blob);
	return slice_make(copy, len);
}

static void content_free(struct slice s)
{
	if (s.len > 0)
		free((char *)(uintptr_t)s.p);
}

static void check_state(const struct vault *v)
{
	char *state = vault_state_json(v);
	json_t *tree = json_loads(state, 0, NULL);

	REQUIRE(tree);
	REQUIRE((uint64_t)json_integer_value(json_object_get(tree, "revision")) ==
		vault_revision(v));
	json_decref(tree);
	free(state);
}

static void check_next_worker(struct slice now, struct secmem *mem)
{
	struct vault *next = vault_new(mem);
	struct errmsg msg = {""};
	int ret = vault_decode(next, now, &msg);
	struct slice again;

	REQUIRE(ret == 0 || ret == E_FULL);
	if (ret == 0) {
		again = content(next, mem);
		REQUIRE(again.len == 0 || slice_eq(again, now));
		content_free(again);
	}
	vault_free(next);
}

static void mutate(struct vault *v, struct slice doc, const struct vault_rules *rules)
{
	struct secmem *mem = memory();
	struct slice before = content(v, mem);
	uint64_t revision = vault_revision(v);
	size_t used = secmem_used(mem);
	struct errmsg msg = {""};
	int ret = vault_patch(v, doc, rules, &msg);
	struct slice after = content(v, mem);

	if (ret < 0) {
		REQUIRE(msg.text[0] && vault_revision(v) == revision);
		REQUIRE(slice_eq(before, after) && secmem_used(mem) == used);
		REQUIRE(vault_exists(v) ? ret != -ENOENT : ret != -ESTALE);
	} else {
		REQUIRE(vault_revision(v) == revision + 1);
		check_state(v);
		if (after.len > 0)
			check_next_worker(after, mem);
	}
	content_free(before);
	content_free(after);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct secmem *mem = memory();
	struct slice rest = slice_make((const char *)p, len);
	struct vault *v = vault_new(mem);
	struct vault_rules rules = {.allow_http = true};
	struct policy *policy = NULL;
	struct errmsg msg = {""};

	REQUIRE(policy_json_decode(SLICE("{\"defaultAction\":\"allow\"}"), 0, &policy, &msg) == 0);
	rules.policy = policy;
	if (vault_create(v, slice_cut(&rest, '\0'), &rules, &msg) < 0)
		REQUIRE(!vault_exists(v));
	for (size_t i = 0; i < DOCS_MAX && rest.p; i++)
		mutate(v, slice_cut(&rest, '\0'), &rules);
	vault_free(v);
	policy_unref(policy);
	REQUIRE(secmem_used(mem) == 0);
	return 0;
}
