/* Substitution: first byte, the operation (`@A` to `FG` for those above 7); up to the first
 * newline, slot or media type; the rest, the text. Compared with a naive replacement, and the
 * outcome must still be what the text was.
 *
 * covers: vault/substitute.c vault/substitute_body.c vault/substitute_json.c */
#include <stdlib.h>

#include <jansson.h>

#include "base/strbuf.h"
#include "policy/policy_json.h"
#include "vault/substitute.h"
#include "vault/vault.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define MEM (1u << 20)
#define OUT_MAX (64u << 20)

/* Placeholders of which one begins another, on surfaces and in slots. */
static const char document[] =
	"{\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":\"k+9/= \\u00e9\\\"\\\\\"}},"
	"{\"name\":\"long\",\"source\":{\"value\":\"sk-long-0001\"}},"
	"{\"name\":\"h\",\"source\":{\"value\":\"sk:-h\"}}],\"bindings\":["
	"{\"name\":\"whole\",\"match\":{\"hosts\":[\"whole.test\"]},\"auth\":{\"type\":"
	"\"passthrough\",\"substitutions\":["
	"{\"credential\":\"k\",\"placeholder\":\"ph-aaaaa\",\"in\":[\"path\",\"query\",\"body\"]},"
	"{\"credential\":\"h\",\"placeholder\":\"ph-aaaaa\",\"in\":[\"header\"]},"
	"{\"credential\":\"h\",\"placeholder\":\"ph-aaaaab\",\"in\":[\"path\",\"query\",\"header\","
	"\"body\"]}]}},"
	"{\"name\":\"slots\",\"match\":{\"hosts\":[\"slots.test\"]},\"auth\":{\"type\":"
	"\"passthrough\",\"substitutions\":["
	"{\"credential\":\"k\",\"placeholder\":\"ph-aaaaa\",\"in\":[\"query:k\",\"form:k\","
	"\"json:/k\",\"json:/a/1\"]},"
	"{\"credential\":\"h\",\"placeholder\":\"ph-aaaaa\",\"in\":[\"header:authorization\"]}]}},"
	"{\"name\":\"set\",\"match\":{\"hosts\":[\"set.test\"]},\"auth\":{\"type\":"
	"\"bearer\",\"credential\":\"long\"}}]}";

struct bed {
	struct secmem *mem;
	struct vault *vault;
	struct vault_view *view;
	const struct binding *whole, *slots, *set;
};

static const struct binding *bed_find(const struct bed *bed, const char *host)
{
	struct binding_request r = {true, 443, slice_str(host), SLICE("GET"), SLICE("/")};
	const struct binding *b;

	REQUIRE(vault_view_match(bed->view, &r, &b) == BINDING_ONE);
	return b;
}

static const struct bed *bed_get(void)
{
	static struct bed bed;
	struct vault_rules rules = {.policy = NULL};
	struct policy *policy = NULL;
	struct errmsg msg = {""};

	if (bed.mem)
		return &bed;
	REQUIRE(policy_json_decode(SLICE("{\"defaultAction\":\"allow\"}"), 0, &policy, &msg) == 0);
	rules.policy = policy;
	REQUIRE(secmem_new(MEM, &bed.mem) >= 0);
	bed.vault = vault_new(bed.mem);
	REQUIRE(vault_create(bed.vault, slice_str(document), &rules, &msg) == 0);
	policy_unref(policy);
	bed.view = vault_view_get(bed.vault);
	bed.whole = bed_find(&bed, "whole.test");
	bed.slots = bed_find(&bed, "slots.test");
	bed.set = bed_find(&bed, "set.test");
	return &bed;
}

static void add(void *arg, struct slice piece)
{
	strbuf_add(arg, piece);
}

/* Raw, in headers: both placeholders are the key "sk:-h". */
static void check_naive(struct slice text, struct slice got, size_t n)
{
	struct strbuf want;
	size_t count = 0;

	strbuf_init(&want, OUT_MAX);
	while (text.len > 0) {
		size_t found = slice_starts(text, SLICE("ph-aaaaab")) ? 9
			: slice_starts(text, SLICE("ph-aaaaa"))       ? 8
								      : 0;

		strbuf_add(&want, found ? SLICE("sk:-h") : slice_first(text, 1));
		count += found > 0;
		text = slice_from(text, found ? found : 1);
	}
	REQUIRE(count == n && slice_eq(strbuf_slice(&want), got));
	strbuf_fini(&want);
}

static size_t occurrences(struct slice s, char c)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++)
		n += s.p[i] == c;
	return n;
}

static bool is_utf8(struct slice s)
{
	json_t *text = json_stringn(s.p, s.len);

	json_decref(text);
	return text;
}

static bool is_json(struct slice s)
{
	json_t *tree = json_loadb(s.p, s.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

	json_decref(tree);
	return tree;
}

/* A body stays what it was: JSON is still JSON, a form has as many pairs. */
static void check_body(const struct binding *b, struct slice type, struct slice text)
{
	struct strbuf out;
	struct substitute_sink sink = {add, &out};
	size_t len;
	size_t counted;
	size_t n;

	strbuf_init(&out, OUT_MAX);
	n = substitute_body(b, type, text, &sink, &len);
	REQUIRE(len == out.len);
	REQUIRE(substitute_body(b, type, text, NULL, &counted) == n && counted == len);
	if (n == 0)
		REQUIRE(slice_eq(text, strbuf_slice(&out)));
	if (slice_eq(type, SLICE("application/json")) && is_json(text))
		REQUIRE(is_json(strbuf_slice(&out)));
	if (slice_eq(type, SLICE("application/x-www-form-urlencoded")))
		REQUIRE(occurrences(text, '&') == occurrences(strbuf_slice(&out), '&'));
	strbuf_fini(&out);
}

static void check_query(const struct binding *b, struct slice text)
{
	struct strbuf out;
	struct substitute_sink sink = {add, &out};
	size_t len;

	strbuf_init(&out, OUT_MAX);
	if (substitute_query(b, text, &sink, &len) == 0)
		REQUIRE(slice_eq(text, strbuf_slice(&out)));
	REQUIRE(len == out.len);
	REQUIRE(occurrences(text, '&') == occurrences(strbuf_slice(&out), '&'));
	strbuf_fini(&out);
}

static void check_field(
	const struct binding *b, struct slice slot, struct slice text, enum substitute_style style)
{
	struct strbuf out;
	struct substitute_sink sink = {add, &out};
	size_t len;
	size_t n;

	strbuf_init(&out, OUT_MAX);
	n = substitute_text(b, SURFACE_HEADER, slot, text, style, &sink, &len);
	REQUIRE(len == out.len);
	if (n == 0)
		REQUIRE(slice_eq(text, strbuf_slice(&out)));
	else if (style == SUBSTITUTE_RAW && slice_eq(slot, SLICE("x")))
		check_naive(text, strbuf_slice(&out), n);
	strbuf_fini(&out);
}

static void check_path(const struct binding *b, struct slice text)
{
	struct strbuf out;
	struct substitute_sink sink = {add, &out};
	size_t n;

	strbuf_init(&out, OUT_MAX);
	n = substitute_text(b, SURFACE_PATH, SLICE_EMPTY, text, SUBSTITUTE_PERCENT, &sink, NULL);
	if (n > 0 && substitute_path_ok(b, text))
		REQUIRE(occurrences(text, '/') == occurrences(strbuf_slice(&out), '/'));
	strbuf_fini(&out);
}

/* One value alone becomes what it becomes in a whole query, form or document. around: what makes
 * the value a whole one. */
static void check_value(const struct binding *b, enum substitute_style style, struct slice slot,
	struct slice text, const struct slice around[2])
{
	enum surface surface = style == SUBSTITUTE_PERCENT ? SURFACE_QUERY : SURFACE_BODY;
	struct slice type = style == SUBSTITUTE_JSON ? SLICE("application/json")
						     : SLICE("application/x-www-form-urlencoded");
	struct strbuf in, want, got;
	struct substitute_sink to_want = {add, &want};
	struct substitute_sink to_got = {add, &got};
	size_t n;

	strbuf_init(&in, OUT_MAX);
	strbuf_init(&want, OUT_MAX);
	strbuf_init(&got, OUT_MAX);
	strbuf_add(&in, around[0]);
	strbuf_add(&in, text);
	strbuf_add(&in, around[1]);
	strbuf_add(&want, around[0]);
	n = substitute_text(b, surface, slot, text, style, &to_want, NULL);
	strbuf_add(&want, around[1]);
	if (style == SUBSTITUTE_PERCENT)
		REQUIRE(substitute_query(b, strbuf_slice(&in), &to_got, NULL) == n);
	else if ((style == SUBSTITUTE_FORM || is_json(strbuf_slice(&in))) && is_utf8(text))
		REQUIRE(substitute_body(b, type, strbuf_slice(&in), &to_got, NULL) == n);
	else
		strbuf_add(&got, strbuf_slice(&want));
	REQUIRE(slice_eq(strbuf_slice(&want), strbuf_slice(&got)));
	strbuf_fini(&in);
	strbuf_fini(&want);
	strbuf_fini(&got);
}

/* The vault's placeholders begin alike, and "slots" has only the shorter one; "set" has none. */
static void check_find_placeholder(const struct bed *bed, struct slice text)
{
	bool any = slice_find(text, SLICE("ph-aaaaa")) < text.len;
	bool longer = slice_find(text, SLICE("ph-aaaaab")) < text.len;

	REQUIRE((substitute_find_placeholder(bed->view, NULL, text).len > 0) == any);
	REQUIRE((substitute_find_placeholder(bed->view, bed->set, text).len > 0) == any);
	REQUIRE((substitute_find_placeholder(bed->view, bed->slots, text).len > 0) == longer);
	REQUIRE(substitute_find_placeholder(bed->view, bed->whole, text).len == 0);
}

/* Two keys are long enough to be searched for: of "set" the one, of the others the other. */
static void check_find_key(const struct bed *bed, struct slice text)
{
	struct slice found = substitute_find_key(bed->view, NULL, text);
	struct slice of_set = substitute_find_key(bed->view, bed->set, text);
	struct slice of_slots = substitute_find_key(bed->view, bed->slots, text);

	REQUIRE((found.len > 0) == (of_set.len > 0 || of_slots.len > 0));
	REQUIRE(of_set.len == 0 || slice_eq(of_set, SLICE("k")));
	REQUIRE(of_slots.len == 0 || slice_eq(of_slots, SLICE("long")));
	if (slice_find(text, SLICE("sk-long-0001")) < text.len)
		REQUIRE(of_slots.len > 0);
	REQUIRE(slice_eq(substitute_find_key(bed->view, bed->whole, text), of_slots));
}

static void check_values(const struct binding *b, enum substitute_style style, struct slice text)
{
	static const struct slice pair[2] = {{"k=", 2}, {"", 0}};
	static const struct slice member[2] = {{"{\"k\":\"", 6}, {"\"}", 2}};
	/* What would end the value, and what a form decodes before it is searched. */
	char end = style == SUBSTITUTE_JSON ? '"' : '&';

	if (slice_find_char(text, end) < text.len ||
		(style == SUBSTITUTE_FORM && slice_find_char(text, '%') < text.len))
		return;
	if (style == SUBSTITUTE_JSON)
		check_value(b, style, SLICE("/k"), text, member);
	else
		check_value(b, style, SLICE("k"), text, pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	const struct bed *bed = bed_get();
	struct slice text = slice_make((const char *)p, len);
	size_t used = secmem_used(bed->mem);
	const struct binding *b;
	struct slice name;

	if (len == 0)
		return 0;
	b = p[0] & 1 ? bed->slots : bed->whole;
	text = slice_from(text, 1);
	name = slice_cut(&text, '\n');
	if (!text.p)
		text = SLICE_EMPTY;
	switch ((p[0] >> 1 & 7) | (p[0] & 0x40 ? 8 : 0)) {
	case 0:
		check_body(b, name, text);
		break;
	case 1:
		check_query(b, text);
		break;
	case 2:
		check_field(b, name, text, SUBSTITUTE_RAW);
		break;
	case 3:
		check_field(b, name, text, SUBSTITUTE_BASIC);
		break;
	case 4:
		check_path(b, text);
		break;
	case 5:
		check_body(b, SLICE("application/json"), text);
		break;
	case 6:
		check_body(b, SLICE("application/x-www-form-urlencoded"), text);
		break;
	case 8:
		check_values(b, SUBSTITUTE_PERCENT, text);
		break;
	case 9:
		check_values(b, SUBSTITUTE_FORM, text);
		break;
	case 10:
		check_values(b, SUBSTITUTE_JSON, text);
		break;
	default:
		check_find_placeholder(bed, text);
		check_find_key(bed, text);
		break;
	}
	REQUIRE(secmem_used(bed->mem) == used);
	return 0;
}
