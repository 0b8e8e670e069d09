/* Answers of the lifecycle API: whatever is taken keeps to its limits, and can go into a URL, a
 * file's name and a request's head as it is. */
#include "control/lifecycle_doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void check_list(struct lifecycle_list *l)
{
	REQUIRE(l->n <= LIFECYCLE_PAGE_MAX);
	for (size_t i = 0; i < l->n; i++) {
		REQUIRE(lifecycle_id_ok(l->v[i].id));
		REQUIRE(slice_find_char(l->v[i].id, '/') == l->v[i].id.len);
		REQUIRE(l->v[i].state < LIFECYCLE_STATES);
		REQUIRE(l->v[i].state_text.len > 0);
		REQUIRE(json_object_size(l->v[i].metadata) <= LIFECYCLE_METADATA_MAX);
	}
	lifecycle_list_fini(l);
}

static void check_endpoint(const struct lifecycle_endpoint *e)
{
	struct slice rest = slice_make(e->headers, e->headers_len);

	REQUIRE(e->authority.name_len > 0);
	REQUIRE(e->prefix[0] == '\0' || e->prefix[0] == '/');
	REQUIRE(!strstr(e->prefix, "//") && !strstr(e->prefix, "/../"));
	for (const char *c = e->prefix; *c; c++)
		REQUIRE(*c > ' ' && *c < 0x7f && !strchr("?#%@\\", *c));
	while (rest.len > 0) {
		struct slice line = slice_cut(&rest, '\n');

		REQUIRE(slice_ends(line, SLICE("\r")));
		REQUIRE(slice_find_char(line, '\r') == line.len - 1);
		REQUIRE(slice_find_char(line, ':') > 0 && slice_find_char(line, ':') < line.len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static struct lifecycle_list l;
	struct slice text = slice_make((const char *)p, len);
	struct lifecycle_endpoint e;
	char buf[LIFECYCLE_ERROR_MAX];
	struct errmsg msg;

	if (lifecycle_sandbox_decode(text, SLICE("sbx-7f3a"), &l, &msg) == 0)
		check_list(&l);
	if (lifecycle_page_decode(text, &l, &msg) == 0)
		check_list(&l);
	if (lifecycle_endpoint_decode(text, &e, &msg) == 0)
		check_endpoint(&e);
	REQUIRE(strlen(lifecycle_error_text(text, buf)) < LIFECYCLE_ERROR_MAX);
	(void)lifecycle_id_ok(text);
	return 0;
}
