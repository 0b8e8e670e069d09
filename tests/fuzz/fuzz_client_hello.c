/* ClientHellos: an answer once given stays, and how a hello is cut into records changes nothing.
 *
 * An input is what the client sent, from the first byte. */
#include "base/err.h"
#include "base/netaddr.h"
#include "base/strbuf.h"
#include "proxy/client_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define RECORDS_MAX (CLIENT_HELLO_MAX * 8)

static void same(const struct client_hello *a, const struct client_hello *b)
{
	REQUIRE(a->error == b->error);
	if (a->error != CLIENT_HELLO_OK)
		return;
	REQUIRE(a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0);
	REQUIRE(a->alpn == b->alpn && a->alpn_h2 == b->alpn_h2);
	REQUIRE(a->alpn_http11 == b->alpn_http11 && a->ech == b->ech);
	REQUIRE(a->max_version == b->max_version);
}

static void name_check(const struct client_hello *h)
{
	char name[HOSTNAME_MAX + 1];
	struct netaddr addr;
	size_t len;

	if (h->name_len == 0)
		return;
	REQUIRE(hostname_normal(slice_make(h->name, h->name_len), name, &len) == 0);
	REQUIRE(strcmp(name, h->name) == 0 && len == h->name_len);
	REQUIRE(netaddr_parse_host(slice_make(name, len), &addr) == HOST_NAME);
}

/* Cuts the same message into records of `size` bytes. */
static void resplit_check(struct slice in, size_t size, const struct client_hello *whole)
{
	struct strbuf message, records;
	struct client_hello h;

	strbuf_init(&message, CLIENT_HELLO_MAX);
	strbuf_init(&records, RECORDS_MAX);
	while (in.len > 5 && in.p[0] == 0x16) {
		size_t len = (size_t)(uint8_t)in.p[3] << 8 | (uint8_t)in.p[4];
		struct slice fragment = slice_first(slice_from(in, 5), len);

		strbuf_add(&message, fragment);
		in = slice_from(in, 5 + fragment.len);
	}
	for (size_t at = 0; at < message.len; at += size) {
		struct slice part = slice_first(slice_from(strbuf_slice(&message), at), size);

		strbuf_add(&records, SLICE("\x16\x03\x01"));
		strbuf_char(&records, (char)(part.len >> 8));
		strbuf_char(&records, (char)part.len);
		strbuf_add(&records, part);
	}
	REQUIRE(client_hello_decode(strbuf_slice(&records), &h) == 0);
	/* Many headers can push it over the limit; otherwise nothing may change. */
	if (h.error != CLIENT_HELLO_TOO_LARGE)
		same(whole, &h);
	strbuf_fini(&message);
	strbuf_fini(&records);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice in = slice_make((const char *)p, len);
	struct client_hello whole, part;
	int ret = client_hello_decode(in, &whole);
	size_t step = len > 1024 ? len / 7 : 1;
	bool decided = false;

	REQUIRE(ret == 0 || ret == E_MORE);
	REQUIRE(client_hello_is_not_tls(in) == (ret == 0 && whole.error == CLIENT_HELLO_NOT_TLS));
	for (size_t n = 0; n <= len; n += step) {
		int r = client_hello_decode(slice_first(in, n), &part);

		REQUIRE(r == 0 || !decided);
		if (r == 0)
			same(&whole, &part);
		decided = r == 0;
	}
	if (ret != 0 || whole.error != CLIENT_HELLO_OK)
		return 0;
	name_check(&whole);
	resplit_check(in, 1, &whole);
	resplit_check(in, 5, &whole);
	resplit_check(in, 16384, &whole);
	return 0;
}
