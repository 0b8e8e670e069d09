/* Revisions, views, and what the next worker gets. U numbers are lines of the conformance
 * catalogue.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/vault/fixture.h"
#include "vault/redact.h"
#include "vault/vault_int.h"
#include "vault/vault_json.h"

static const char one_key[] =
	"{'credentials':[{'name':'k','source':{'type':'inline','value':'sk-first-0001'}}],"
	"'bindings':[{'name':'b','match':{'hosts':['api.test'],'methods':['GET'],'paths':['/v1/"
	"*']},"
	"'auth':{'type':'apiKey','name':'PRIVATE-TOKEN','credential':'k'}}]}";
static const char other_key[] =
	"{'credentials':[{'name':'k','source':{'value':'sk-other-0002'}}],"
	"'bindings':[{'name':'b','match':{'hosts':['api.test'],'methods':['GET'],'paths':['/v1/"
	"*']},"
	"'auth':{'type':'apiKey','name':'PRIVATE-TOKEN','credential':'k'}}]}";

static char *state_of(struct fixture *f)
{
	char *state = vault_state_json(f->vault);

	assert_non_null(state);
	return state;
}

/* U1 */
static void test_create_is_revision_1_and_shows_no_value(void **arg)
{
	struct fixture f;
	char *doc = fixture_quotes(one_key);
	char *want = fixture_quotes(
		"{'revision':1,'credentials':[{'name':'k','sourceType':'inline','revision':1}],"
		"'bindings':[{'name':'b','revision':1,'match':{'schemes':['https'],"
		"'hosts':['api.test'],'methods':['GET'],'paths':['/v1/*']},"
		"'auth':{'type':'apiKey','name':'Private-Token'}}]}");
	char *state;

	fixture_open(&f);
	assert_false(vault_exists(f.vault));
	assert_int_equal(vault_revision(f.vault), 0);
	assert_null(vault_state_json(f.vault));
	assert_null(vault_view_get(f.vault));
	assert_int_equal(vault_create(f.vault, slice_str(doc), &f.rules, &f.msg), 0);
	assert_true(vault_exists(f.vault));
	assert_int_equal(vault_revision(f.vault), 1);
	state = state_of(&f);
	assert_string_equal(state, want);
	assert_null(strstr(state, "sk-first"));
	free(state);
	assert_int_equal(vault_create(f.vault, slice_str(doc), &f.rules, &f.msg), -EEXIST);
	assert_string_equal(f.msg.text, "credential vault already exists");
	assert_int_equal(vault_revision(f.vault), 1);
	fixture_close(&f);
	free(doc);
	free(want);
}

/* U2 */
static void test_view_carries_field_and_redactions(void **arg)
{
	char answer[] = "echo: sk-first-0001.";
	const struct binding *b;
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, one_key);
	view = vault_view_get(f.vault);
	b = fixture_bound(view, "api.test", "/v1/x");
	assert_int_equal(binding_n_fields(b), 1);
	assert_true(slice_eq(binding_field(b, 0).name, SLICE("Private-Token")));
	assert_int_equal(binding_field(b, 0).prefix.len, 0);
	assert_true(slice_eq(binding_field(b, 0).value, SLICE("sk-first-0001")));
	assert_true(secmem_holds(f.mem, binding_field(b, 0).value.p));
	assert_true(redact_text(vault_view_redactions(view), answer, strlen(answer)));
	assert_null(strstr(answer, "sk-first"));
	/* The tables of the search narrow a key down. */
	assert_true(secmem_holds(f.mem, pattern_set_get(view->keys, 0)));
	vault_view_unref(view);
	fixture_close(&f);
}

/* U4, 1.6: a view stays what it was; the next one has the new value. */
static void test_view_in_use_survives_a_replacement(void **arg)
{
	struct vault_view *before;
	struct vault_view *after;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, one_key);
	before = vault_view_get(f.vault);
	fixture_load(&f, other_key);
	after = vault_view_get(f.vault);
	assert_int_equal(vault_view_revision(before), 1);
	assert_int_equal(vault_view_revision(after), 2);
	assert_true(slice_eq(binding_field(fixture_bound(before, "api.test", "/v1/x"), 0).value,
		SLICE("sk-first-0001")));
	assert_true(slice_eq(binding_field(fixture_bound(after, "api.test", "/v1/x"), 0).value,
		SLICE("sk-other-0002")));
	assert_true(vault_view_ref(before) == before);
	vault_view_unref(before);
	vault_view_unref(before);
	vault_view_unref(after);
	fixture_close(&f);
}

/* 1.6: a credential has the revision at which it last changed; a binding the vault's. */
static void test_unchanged_credential_keeps_its_revision(void **arg)
{
	struct fixture f;
	char *state;

	fixture_open(&f);
	fixture_load(&f, one_key);
	fixture_load(&f, one_key);
	state = state_of(&f);
	assert_non_null(strstr(state, "\"sourceType\":\"inline\",\"revision\":1}"));
	assert_non_null(strstr(state, "{\"name\":\"b\",\"revision\":2,"));
	free(state);
	fixture_load(&f, other_key);
	state = state_of(&f);
	assert_non_null(strstr(state, "\"sourceType\":\"inline\",\"revision\":3}"));
	free(state);
	fixture_close(&f);
}

/* U16 for a whole document: what was refused changed nothing. */
static void test_refused_document_changes_nothing(void **arg)
{
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_refuse(&f, "{'credentials':[{'name':'k'}]}", E_VALUE, "cannot be empty");
	assert_false(vault_exists(f.vault));
	fixture_load(&f, one_key);
	fixture_refuse(&f,
		"{'credentials':[],'bindings':[{'name':'b','match':{'hosts':['a.test']},"
		"'auth':{'type':'bearer','credential':'k'}}]}",
		E_VALUE, "binding \"b\" references unknown credential \"k\"");
	assert_int_equal(vault_revision(f.vault), 1);
	view = vault_view_get(f.vault);
	assert_true(slice_eq(binding_field(fixture_bound(view, "api.test", "/v1/x"), 0).value,
		SLICE("sk-first-0001")));
	vault_view_unref(view);
	fixture_close(&f);
}

/* 1.3: {} is a vault without content. */
static void test_empty_vault_exists_and_binds_nothing(void **arg)
{
	struct vault_view *view;
	struct fixture f;
	char *state;

	fixture_open(&f);
	fixture_load(&f, "{'credentials':null}");
	state = state_of(&f);
	assert_string_equal(state, "{\"revision\":1,\"credentials\":[],\"bindings\":[]}");
	free(state);
	view = vault_view_get(f.vault);
	assert_null(vault_view_redactions(view));
	assert_false(vault_view_binds_host(view, SLICE("api.test")));
	assert_int_equal(substitute_find_key(view, NULL, SLICE("sk-first-0001")).len, 0);
	vault_view_unref(view);
	fixture_close(&f);
}

/* Every kind of auth, slot and list, and values that JSON must escape. */
static const char rich[] =
	"{'credentials':["
	"{'name':'a \\u00e9','source':{'value':'tab\\t quote\\\" back\\\\ \\u00f6 \\ud83d\\ude00 "
	"x'}},"
	"{'name':'b','source':{'value':'dXNlcjpwYXNzd29yZA=='}},"
	"{'name':'c','source':{'value':'sk-plain-0003'}}],"
	"'bindings':["
	"{'name':'m','match':{'schemes':['https'],'hosts':['a.test','*.b.test'],"
	"'methods':['get','HEAD'],'paths':['/x','/y/*']},"
	"'auth':{'type':'customHeaders','headers':[{'name':'x-one','credential':'c'},"
	"{'name':'X-TWO','credential':'b'}],'substitutions':["
	"{'credential':'a \\u00e9','placeholder':'  ph-outer ','in':[' Query "
	"','form:k','json:/a~1b/0']},"
	"{'credential':'c','placeholder':'ph-header-1','in':['header:X-H','path','query:q','body']}"
	"]}},"
	"{'name':'n','match':{'hosts':['c.test']},'auth':{'type':'basic','credential':'b'}},"
	"{'name':'o','match':{'hosts':['d.test'],'paths':['/*']},'auth':{'type':'passthrough'}},"
	"{'name':'p','match':{'hosts':['e.test']},'auth':{'type':'bearer','credential':'c'}},"
	"{'name':'q','match':{'hosts':['f.test']},'auth':{'type':'apiKey','name':'k',"
	"'credential':'c'}}]}";

static void test_next_worker_gets_the_same(void **arg)
{
	struct vault *next;
	struct vault_view *view;
	struct fixture f;
	char *first;
	char *second;
	char *blob;
	size_t len;
	size_t again_len;
	char *again;

	fixture_open(&f);
	blob = vault_encode(f.vault, &len);
	assert_null(blob);
	assert_int_equal(len, 0);
	fixture_load(&f, one_key);
	fixture_load(&f, rich);
	blob = vault_encode(f.vault, &len);
	assert_non_null(blob);
	assert_true(secmem_holds(f.mem, blob));
	next = vault_new(f.mem);
	assert_int_equal(vault_decode(next, slice_make(blob, len), &f.msg), 0);
	assert_int_equal(vault_revision(next), 2);
	first = vault_state_json(f.vault);
	second = vault_state_json(next);
	assert_string_equal(first, second);
	again = vault_encode(next, &again_len);
	assert_int_equal(len, again_len);
	assert_memory_equal(blob, again, len);
	view = vault_view_get(next);
	assert_true(slice_eq(binding_field(fixture_bound(view, "a.test", "/y/1"), 0).value,
		SLICE("sk-plain-0003")));
	vault_view_unref(view);
	/* The rules of a later check still know what was left out. */
	f.rules.require_scoped_match = true;
	assert_int_equal(vault_check(next, &f.rules, &f.msg), E_VALUE);
	assert_string_equal(f.msg.text,
		"binding \"n\": match.methods must be explicit when "
		"scoped-match enforcement is enabled");
	free(first);
	free(second);
	secmem_release(f.mem, blob);
	secmem_release(f.mem, again);
	vault_free(next);
	fixture_close(&f);
}

static void test_broken_blob_is_refused(void **arg)
{
	static const char no_credential[] =
		"{'revision':1,'bindings':[{'name':'b','match':{'hosts':['a.test']},"
		"'auth':{'type':'bearer','credential':'k'}}]}";
	static const char *const blobs[] = {"", "{}", "{'revision':0}",
		"{'revision':1,'credentials':[{'name':'k','source':{'value':'v'}}]}",
		no_credential};
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, one_key);
	for (size_t i = 0; i < ARRAY_LEN(blobs); i++) {
		char *blob = fixture_quotes(blobs[i]);

		assert_true(vault_decode(f.vault, slice_str(blob), &f.msg) < 0);
		assert_int_equal(vault_revision(f.vault), 1);
		free(blob);
	}
	fixture_close(&f);
}

/* A blob is taken as it was checked; if two bindings meet all the same, nothing is sent. */
static void test_ambiguous_bindings_at_run_time_match_as_ambiguous(void **arg)
{
	char *blob = fixture_quotes(
		"{'revision':1,'bindings':[{'name':'a','match':{'hosts':['a.test']},"
		"'auth':{'type':'passthrough'}},{'name':'b','match':{'hosts':['a.test'],"
		"'paths':['/v1/*']},'auth':{'type':'passthrough'}}]}");
	struct binding_request r = {true, 443, SLICE("a.test"), SLICE("GET"), SLICE("/v1/x")};
	const struct binding *b;
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(vault_decode(f.vault, slice_str(blob), &f.msg), 0);
	view = vault_view_get(f.vault);
	assert_int_equal(vault_view_match(view, &r, &b), BINDING_AMBIGUOUS);
	assert_null(b);
	r.path = SLICE("/v2");
	assert_int_equal(vault_view_match(view, &r, &b), BINDING_ONE);
	vault_view_unref(view);
	free(blob);
	fixture_close(&f);
}

/* 1.10: a policy that no longer covers a binding is told so. */
static void test_policy_change_is_checked_against_bindings(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(vault_check(f.vault, &f.rules, &f.msg), 0);
	fixture_load(&f, one_key);
	assert_int_equal(vault_check(f.vault, &f.rules, &f.msg), 0);
	fixture_set_policy(&f, "{'egress':[{'action':'allow','target':'other.test'}]}");
	assert_int_equal(vault_check(f.vault, &f.rules, &f.msg), E_VALUE);
	assert_string_equal(
		f.msg.text, "binding \"b\" host \"api.test\" is not allowed by egress policy");
	f.rules.policy = NULL;
	assert_int_equal(vault_check(f.vault, &f.rules, &f.msg), E_VALUE);
	assert_string_equal(f.msg.text, "credential vault bindings require an egress policy");
	fixture_close(&f);
}

static void test_full_memory_refuses_and_keeps_what_is_there(void **arg)
{
	struct fixture f;
	char doc[3000];
	char value[2000];
	size_t used;
	size_t len = 1;
	size_t blob_len;
	void *rest[64];
	size_t n = 0;

	fixture_open_sized(&f, 65536);
	fixture_load(&f, one_key);
	for (size_t size = 16384; size >= 16; size /= 2)
		while (n < ARRAY_LEN(rest) && (rest[n] = secmem_alloc(f.mem, size)) != NULL)
			n++;
	used = secmem_used(f.mem);
	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	(void)snprintf(
		doc, sizeof(doc), "{'credentials':[{'name':'k','source':{'value':'%s'}}]}", value);
	fixture_refuse(&f, doc, E_FULL, "credential \"k\": no locked memory is left");
	assert_int_equal(secmem_used(f.mem), used);
	assert_int_equal(vault_revision(f.vault), 1);
	assert_null(vault_encode(f.vault, &blob_len));
	assert_true(blob_len > 0);
	while (len <= n)
		secmem_release(f.mem, rest[len++ - 1]);
	fixture_close(&f);
}

/* Wherever memory ends, the document is refused and nothing of it stays. */
static void test_every_shortage_of_memory_is_clean(void **arg)
{
	size_t refused = 0;

	for (size_t taken = 0; taken < 60; taken++) {
		void *rest[60];
		struct fixture f;
		int ret;

		fixture_open_sized(&f, 65536);
		for (size_t i = 0; i < taken; i++)
			rest[i] = secmem_alloc(f.mem, 1000);
		ret = fixture_try(&f, rich);
		assert_true(ret == 0 || ret == E_FULL);
		refused += ret == E_FULL;
		for (size_t i = 0; i < taken; i++)
			secmem_release(f.mem, rest[i]);
		if (ret < 0)
			assert_int_equal(secmem_used(f.mem), 0);
		fixture_close(&f);
	}
	assert_in_range(refused, 1, 59);
}

/* R of 1.4: 1,000 bindings and 1,000 credentials. */
static void test_a_thousand_bindings_and_credentials_work(void **arg)
{
	static char doc[400000];
	size_t len = 0;
	struct vault_view *view;
	struct fixture f;

	len += (size_t)snprintf(doc, sizeof(doc), "{'credentials':[");
	for (int i = 0; i < 1000; i++)
		len += (size_t)snprintf(doc + len, sizeof(doc) - len,
			"%s{'name':'k%d','source':{'value':'key-number-%04d'}}", i ? "," : "", i,
			i);
	len += (size_t)snprintf(doc + len, sizeof(doc) - len, "],'bindings':[");
	for (int i = 0; i < 1000; i++)
		len += (size_t)snprintf(doc + len, sizeof(doc) - len,
			"%s{'name':'b%d','match':{'hosts':['%s%d.test'],'paths':['/p%d/*']},"
			"'auth':{'type':'bearer','credential':'k%d'}}",
			i ? "," : "", i, i % 2 ? "h.s" : "*.w.s", i % 10, i, i);
	(void)snprintf(doc + len, sizeof(doc) - len, "]}");
	fixture_open_sized(&f, FIXTURE_MEM_LARGE);
	fixture_load(&f, doc);
	view = vault_view_get(f.vault);
	for (int i = 0; i < 1000; i++) {
		char host[40];
		char path[40];
		char want[40];
		struct slice value;

		(void)snprintf(host, sizeof(host), "%s%d.test", i % 2 ? "h.s" : "x.w.s", i % 10);
		(void)snprintf(path, sizeof(path), "/p%d/y", i);
		(void)snprintf(want, sizeof(want), "key-number-%04d", i);
		value = binding_field(fixture_bound(view, host, path), 0).value;
		assert_true(slice_eq(value, slice_str(want)));
		assert_true(substitute_find_key(view, NULL, slice_str(want)).len > 0);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

#define PIECE 8 /* bytes of a key that may stand nowhere */
#define KEY_LEN 40
#define KEY_PERIOD 36
#define SCAN (1u << 16)
#define MAPPING_MAX (64u << 20) /* larger ones are shadows of the sanitizer */

/* The key exists in clear only while a document is written; what is searched for is its complement.
 */
static char hidden[KEY_LEN];

/* Pieces of the key in this part of memory. Its bytes are all different up to KEY_PERIOD. */
static size_t count_pieces(const uint8_t *p, size_t len)
{
	uint8_t place[256] = {0}; /* of each byte, counted from 1 */
	size_t found = 0;

	for (size_t k = 0; k < KEY_PERIOD; k++)
		place[(uint8_t)hidden[k] ^ 0xff] = (uint8_t)(k + 1);
	for (size_t i = 0; i + PIECE <= len; i++) {
		size_t n = 0;

		while (place[p[i]] && n < PIECE &&
			place[p[i + n]] == (place[p[i]] - 1 + n) % KEY_PERIOD + 1)
			n++;
		found += n == PIECE;
	}
	return found;
}

static size_t count_mapping(
	const struct fixture *f, int fd, uint8_t *buf, uintptr_t from, uintptr_t to)
{
	size_t found = 0;

	for (uintptr_t at = from; at < to; at += SCAN - PIECE) {
		ssize_t n = pread(fd, buf, to - at < SCAN ? to - at : SCAN, (off_t)at);

		if (n <= 0 || secmem_holds(f->mem, (const void *)at))
			continue;
		found += count_pieces(buf, (size_t)n);
	}
	return found;
}

/* Of everything that this process can write, but for the locked memory and the buffer. */
static size_t count_in_memory(const struct fixture *f)
{
	static uint8_t buf[SCAN];
	FILE *maps = fopen("/proc/self/maps", "re");
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	size_t found = 0;
	char line[512];

	assert_non_null(maps);
	assert_true(fd >= 0);
	while (fgets(line, sizeof(line), maps)) {
		char *end;
		uintptr_t from = strtoul(line, &end, 16);
		uintptr_t to = strtoul(end + 1, &end, 16);
		uintptr_t own = (uintptr_t)buf;

		if (strncmp(end, " rw", 3) != 0 || to - from > MAPPING_MAX)
			continue;
		if (own >= from && own < to) {
			found += count_mapping(f, fd, buf, from, own);
			from = own + sizeof(buf);
		}
		found += count_mapping(f, fd, buf, from, to);
	}
	(void)fclose(maps);
	(void)close(fd);
	explicit_bzero(buf, sizeof(buf));
	return found;
}

/* A document with the key, written to where the caller wipes it. */
static size_t write_secret_doc(char *doc, size_t size)
{
	size_t len = (size_t)snprintf(doc, size,
		"{\"credentials\":[{\"name\":\"k\",\"source\":{"
		"\"value\":\"");

	for (size_t i = 0; i < KEY_LEN; i++)
		doc[len++] = (char)~hidden[i];
	return len +
		(size_t)snprintf(doc + len, size - len,
			"\"}}],\"bindings\":[{\"name\":\"b\",\"match\":{\"hosts\":[\"a.test\"]}"
			",\"auth\":{\"type\":\"bearer\",\"credential\":\"k\",\"substitutions\":[{"
			"\"credential\":\"k\",\"placeholder\":\"ph-model-1\",\"in\":[\"header\","
			"\"query\"]}]}}]}");
}

/* The same with what a person may get wrong around the key. */
static void load_secret(struct fixture *f, char *doc, size_t size)
{
	size_t len = write_secret_doc(doc, size);

	assert_int_equal(vault_load(f->vault, slice_make(doc, len), &f->rules, &f->msg), 0);
	for (size_t cut = len - 1; cut > len - 100; cut -= 9)
		assert_true(vault_load(f->vault, slice_make(doc, cut), &f->rules, &f->msg) < 0);
	explicit_bzero(doc, size);
}

static void work_with_secret(struct fixture *f)
{
	struct vault *next = vault_new(f->mem);
	struct vault_view *view = vault_view_get(f->vault);
	const struct binding *b = fixture_bound(view, "a.test", "/");
	size_t len;
	char *blob = vault_encode(f->vault, &len);

	assert_int_equal(vault_decode(next, slice_make(blob, len), &f->msg), 0);
	assert_int_equal(substitute_text(b, SURFACE_HEADER, SLICE("authorization"),
				 SLICE("Basic dTpwaC1tb2RlbC0x"), SUBSTITUTE_BASIC, NULL, &len),
		1);
	assert_int_equal(substitute_query(b, SLICE("a=ph-model-1"), NULL, &len), 1);
	assert_int_equal(substitute_find_key(view, NULL, SLICE("ph-model-1")).len, 0);
	free(vault_state_json(f->vault));
	secmem_release(f->mem, blob);
	vault_free(next);
	vault_view_unref(view);
}

/* Design 3.4: not in the heap, freed or not, not on the stack, not in what was read. */
static void test_no_piece_of_a_key_is_in_ordinary_memory(void **arg)
{
	char doc[1024];
	char *planted;
	struct fixture f;

	for (size_t i = 0; i < KEY_LEN; i++)
		hidden[i] = (char)~("abcdefghijklmnopqrstuvwxyz0123456789"[i * 7 % 36]);
	fixture_open(&f);
	load_secret(&f, doc, sizeof(doc));
	work_with_secret(&f);
	assert_int_equal(count_in_memory(&f), 0);
	/* A copy on purpose is found. */
	planted = xmalloc(PIECE);
	for (size_t i = 0; i < PIECE; i++)
		planted[i] = (char)~hidden[3 + i];
	assert_int_equal(count_in_memory(&f), 1);
	free(planted);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_is_revision_1_and_shows_no_value),
		cmocka_unit_test(test_view_carries_field_and_redactions),
		cmocka_unit_test(test_view_in_use_survives_a_replacement),
		cmocka_unit_test(test_unchanged_credential_keeps_its_revision),
		cmocka_unit_test(test_refused_document_changes_nothing),
		cmocka_unit_test(test_empty_vault_exists_and_binds_nothing),
		cmocka_unit_test(test_next_worker_gets_the_same),
		cmocka_unit_test(test_broken_blob_is_refused),
		cmocka_unit_test(test_ambiguous_bindings_at_run_time_match_as_ambiguous),
		cmocka_unit_test(test_policy_change_is_checked_against_bindings),
		cmocka_unit_test(test_full_memory_refuses_and_keeps_what_is_there),
		cmocka_unit_test(test_every_shortage_of_memory_is_clean),
		cmocka_unit_test(test_no_piece_of_a_key_is_in_ordinary_memory),
		cmocka_unit_test(test_a_thousand_bindings_and_credentials_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
