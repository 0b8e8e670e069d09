/* The vault document: whatever is accepted has a state that is JSON, and is the same after the next
 * worker read it; whatever is refused says why and leaves nothing in locked memory.
 *
 * covers: vault/vault_json.c vault/vault_json_auth.c vault/vault_json_binding.c */
#include <stdlib.h>

#include <jansson.h>

#include "policy/policy_json.h"
#include "vault/substitute.h"
#include "vault/vault.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define MEM (1u << 20)

/* Each run begins and ends with it empty. */
static struct secmem *memory(void)
{
	static struct secmem *mem;

	if (!mem)
		REQUIRE(secmem_new(MEM, &mem) >= 0);
	return mem;
}

static void check_state(const struct vault *v)
{
	char *state = vault_state_json(v);
	json_t *tree = json_loads(state, 0, NULL);

	REQUIRE(tree);
	REQUIRE(json_integer_value(json_object_get(tree, "revision")) == 1);
	json_decref(tree);
	free(state);
}

static void check_next_worker(const struct vault *v, struct secmem *mem)
{
	struct vault *next = vault_new(mem);
	struct errmsg msg = {""};
	size_t len;
	size_t again_len;
	char *blob = vault_encode(v, &len);
	char *again;

	if (blob) {
		int ret = vault_decode(next, slice_make(blob, len), &msg);

		REQUIRE(ret == 0 || ret == E_FULL);
		again = vault_encode(next, &again_len);
		if (ret == 0 && again)
			REQUIRE(slice_eq(slice_make(blob, len), slice_make(again, again_len)));
		secmem_release(mem, again);
	}
	secmem_release(mem, blob);
	vault_free(next);
}

/* Ask what a request asks. */
static void check_view(struct vault *v, struct slice text)
{
	struct vault_view *view = vault_view_get(v);
	struct binding_request r = {true, 443, SLICE("a.test"), SLICE("GET"), SLICE("/v1/a%2fb")};
	const struct binding *b;

	if (vault_view_match(view, &r, &b) == BINDING_ONE) {
		REQUIRE(vault_view_binds_host(view, r.host));
		for (size_t i = 0; i < binding_n_fields(b); i++)
			REQUIRE(binding_sets_field(b, binding_field(b, i).name));
	}
	(void)substitute_find_placeholder(view, NULL, text);
	(void)substitute_find_key(view, NULL, text);
	vault_view_unref(view);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct secmem *mem = memory();
	struct slice doc = slice_make((const char *)p, len);
	struct vault *v = vault_new(mem);
	struct vault_rules rules = {.allow_http = true};
	struct policy *policy = NULL;
	struct errmsg msg = {""};

	REQUIRE(policy_json_decode(SLICE("{\"defaultAction\":\"allow\"}"), 0, &policy, &msg) == 0);
	rules.policy = policy;
	if (vault_create(v, doc, &rules, &msg) < 0) {
		REQUIRE(!vault_exists(v) && msg.text[0] && secmem_used(mem) == 0);
	} else {
		check_state(v);
		check_next_worker(v, mem);
		check_view(v, doc);
	}
	vault_free(v);
	policy_unref(policy);
	REQUIRE(secmem_used(mem) == 0);
	return 0;
}
