/* ClientHellos. Each is read whole, at every length, and split over records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "proxy/client_hello.h"

/* Rows name only what is not zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define HELLO_MAX (CLIENT_HELLO_MAX * 2)

/* As OpenSSL 3.0 writes it for "Read.Test" with h2 and http/1.1. */
static const char openssl_hello[] =
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x09\x8d\x16\x23\xc4"
	"\x85\xcc\xe8\x7b\x69\x57\x82\x3f\xf1\x1f\xcf\x8e\xdf\x48\xd8\x70"
	"\xa1\x8d\x8e\x3e\x28\x07\xff\x9a\x7b\x74\x05\x20\x38\x81\x6b\xcd"
	"\x5e\x76\x11\xa7\x65\xb0\xc7\x81\x32\xb7\x4d\x98\xf3\x3a\x80\xc7"
	"\x87\xda\xbb\xbf\x2b\x72\x22\x85\x44\x34\x86\x4c\x00\x10\x13\x02"
	"\x13\x03\x13\x01\xc0\x2c\xc0\x30\xc0\x2b\xc0\x2f\x00\xff\x01\x00"
	"\x01\xa3\x00\x00\x00\x0e\x00\x0c\x00\x00\x09\x52\x65\x61\x64\x2e"
	"\x54\x65\x73\x74\x00\x0b\x00\x04\x03\x00\x01\x02\x00\x0a\x00\x16"
	"\x00\x14\x00\x1d\x00\x17\x00\x1e\x00\x19\x00\x18\x01\x00\x01\x01"
	"\x01\x02\x01\x03\x01\x04\x00\x23\x00\x00\x00\x10\x00\x0e\x00\x0c"
	"\x02\x68\x32\x08\x68\x74\x74\x70\x2f\x31\x2e\x31\x00\x16\x00\x00"
	"\x00\x17\x00\x00\x00\x0d\x00\x2a\x00\x28\x04\x03\x05\x03\x06\x03"
	"\x08\x07\x08\x08\x08\x09\x08\x0a\x08\x0b\x08\x04\x08\x05\x08\x06"
	"\x04\x01\x05\x01\x06\x01\x03\x03\x03\x01\x03\x02\x04\x02\x05\x02"
	"\x06\x02\x00\x2b\x00\x05\x04\x03\x04\x03\x03\x00\x2d\x00\x02\x01"
	"\x01\x00\x33\x00\x26\x00\x24\x00\x1d\x00\x20\x1c\x70\xe7\x02\xcf"
	"\x83\xe5\x61\xff\x86\xed\x57\x5e\x1e\xa9\xd5\xb8\x73\x9a\x4c\x45"
	"\xf6\xd6\x98\xac\xa0\xd8\x0f\x6d\xec\xe0\x66\x00\x15\x00\xe6\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	"\x00\x00\x00\x00\x00";

static void add_u16(struct strbuf *b, size_t v)
{
	strbuf_char(b, (char)(v >> 8));
	strbuf_char(b, (char)v);
}

/* The handshake message of a hello whose extensions are these. */
static void message_add(struct strbuf *b, struct slice extensions)
{
	static const char zeros[32];
	size_t len = 2 + 32 + 1 + 32 + 2 + 4 + 2 + 2 + extensions.len;

	strbuf_add(b, SLICE("\x01"));
	strbuf_char(b, (char)(len >> 16));
	add_u16(b, len);
	add_u16(b, 0x0303);
	strbuf_add(b, slice_make(zeros, 32));
	strbuf_char(b, 32);
	strbuf_add(b, slice_make(zeros, 32));
	add_u16(b, 4);
	strbuf_add(b, SLICE("\x13\x01\xc0\x2f\x01\x00"));
	add_u16(b, extensions.len);
	strbuf_add(b, extensions);
}

/* Cuts a message into records of at most `size` bytes. */
static void records_add(struct strbuf *b, struct slice message, size_t size)
{
	while (message.len > 0) {
		struct slice part = slice_first(message, size);

		strbuf_add(b, SLICE("\x16\x03\x01"));
		add_u16(b, part.len);
		strbuf_add(b, part);
		message = slice_from(message, part.len);
	}
}

static void same(const struct client_hello *a, const struct client_hello *b, const char *fact)
{
	if (a->error != b->error || strcmp(a->name, b->name) != 0 || a->name_len != b->name_len ||
		a->alpn != b->alpn || a->alpn_h2 != b->alpn_h2 ||
		a->alpn_http11 != b->alpn_http11 || a->ech != b->ech ||
		a->max_version != b->max_version)
		fail_msg("%s: differs in parts", fact);
}

/* Every shorter length needs more, and once decided the answer stays the same. */
static void decode(struct slice in, struct client_hello *out, const char *fact)
{
	struct client_hello part;
	int ret = client_hello_decode(in, out);

	if (ret != 0)
		fail_msg("%s: returns %d", fact, ret);
	for (size_t n = 0; n < in.len; n++) {
		ret = client_hello_decode(slice_first(in, n), &part);
		if (ret == 0)
			same(out, &part, fact);
		else if (ret != E_MORE)
			fail_msg("%s: returns %d at %zu", fact, ret, n);
	}
}

#define R(text)                          \
	{                                \
		(text), sizeof(text) - 1 \
	}

static const struct {
	const char *fact;
	struct slice in;
	enum client_hello_error error;
	const char *name;
} names[] = {
	{"name", R("read.test"), CLIENT_HELLO_OK, "read.test"},
	{"C71 upper case and a dot", R("READ.Test."), CLIENT_HELLO_OK, "read.test"},
	{"C71 A-label", R("XN--BCHER-KVA.test"), CLIENT_HELLO_OK, "xn--bcher-kva.test"},
	{"C71 two dots", R("read.test.."), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"C71 leading dot", R(".read.test"), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"C71 not ASCII", R("re\xd0\xb0.test"), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"C71 percent", R("read%2etest"), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"NUL", R("read.test\0.deny.test"), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"wildcard", R("*.test"), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"port", R("read.test:443"), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"C77 empty", R(""), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"C77 address", R("10.77.0.2"), CLIENT_HELLO_OK, ""},
	{"C77 odd address", R("0x0a.77.2"), CLIENT_HELLO_OK, ""},
	{"C77 IPv6", R("fd00::2"), CLIENT_HELLO_OK, ""},
	{"C77 IPv6 in brackets", R("[fd00::2]"), CLIENT_HELLO_OK, ""},
	{"C77 IPv6 with zone", R("fe80::1%eth0"), CLIENT_HELLO_NAME_MALFORMED, ""},
	{"C77 broken address", R("1.2.3.999"), CLIENT_HELLO_NAME_MALFORMED, ""},
};

/* An extension with one name in its list. */
static void name_add(struct strbuf *b, struct slice name)
{
	add_u16(b, 0);
	add_u16(b, name.len + 5);
	add_u16(b, name.len + 3);
	strbuf_char(b, 0);
	add_u16(b, name.len);
	strbuf_add(b, name);
}

/* One hello in one record, in records of one byte, and of three. */
static void hello_check(const char *fact, struct slice extensions, struct client_hello *out)
{
	static const size_t sizes[] = {16384, 1, 3};
	struct strbuf message, in;
	struct client_hello first;

	strbuf_init(&message, HELLO_MAX);
	strbuf_init(&in, HELLO_MAX);
	message_add(&message, extensions);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		strbuf_clear(&in);
		records_add(&in, strbuf_slice(&message), sizes[i]);
		decode(strbuf_slice(&in), out, fact);
		if (i == 0)
			first = *out;
		same(&first, out, fact);
		/* What follows is not looked at. */
		strbuf_str(&in, "\x15junk");
		assert_int_equal(client_hello_decode(strbuf_slice(&in), out), 0);
		same(&first, out, fact);
	}
	strbuf_fini(&message);
	strbuf_fini(&in);
}

static void test_server_names(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct client_hello h;
		struct strbuf extensions;

		strbuf_init(&extensions, HELLO_MAX);
		name_add(&extensions, names[i].in);
		hello_check(names[i].fact, strbuf_slice(&extensions), &h);
		strbuf_fini(&extensions);
		if (h.error != names[i].error)
			fail_msg("%s: %s", names[i].fact, client_hello_error_text(h.error));
		if (h.error == CLIENT_HELLO_OK) {
			assert_string_equal(h.name, names[i].name);
			assert_int_equal(h.name_len, strlen(names[i].name));
		}
	}
}

static void test_names_are_taken_up_to_the_limit(void **state)
{
	char text[HOSTNAME_MAX + 2];

	memset(text, 'a', sizeof(text));
	for (size_t i = LABEL_MAX; i < sizeof(text); i += LABEL_MAX + 1)
		text[i] = '.';
	for (size_t len = HOSTNAME_MAX; len <= HOSTNAME_MAX + 1; len++) {
		struct client_hello h;
		struct strbuf extensions;

		strbuf_init(&extensions, HELLO_MAX);
		name_add(&extensions, slice_make(text, len));
		hello_check("long name", strbuf_slice(&extensions), &h);
		strbuf_fini(&extensions);
		assert_int_equal(h.error,
			len > HOSTNAME_MAX ? CLIENT_HELLO_NAME_MALFORMED : CLIENT_HELLO_OK);
	}
}

/* The name "x". */
#define SNI_X "\x00\x00\x00\x06\x00\x04\x00\x00\x01x"
#define ALPN_H2 "\x00\x10\x00\x05\x00\x03\x02h2"
#define VERSION_1_3 "\x00\x2b\x00\x03\x02\x03\x04"
#define BAD CLIENT_HELLO_MALFORMED
#define BAD_NAME CLIENT_HELLO_NAME_MALFORMED
#define TWICE CLIENT_HELLO_NAME_TWICE

static const struct {
	const char *fact;
	struct slice in;
	enum client_hello_error error;
	uint16_t max_version; /* 0: 0x0303 */
	bool alpn, h2, http11, ech;
} extensions[] = {
	{"none", R("")},
	{"unknown", R("\xab\xcd\x00\x02xx")},
	{"unknown twice", R("\xab\xcd\x00\x00\xab\xcd\x00\x00")},
	{"C77 two names", R("\x00\x00\x00\x0a\x00\x08\x00\x00\x01x\x00\x00\x01y"), TWICE},
	{"C77 two extensions", R(SNI_X SNI_X), TWICE},
	{"C77 empty list", R("\x00\x00\x00\x02\x00\x00"), BAD_NAME},
	{"empty name extension", R("\x00\x00\x00\x00"), BAD_NAME},
	{"C87 list of length 1", R("\x00\x00\x00\x03\x00\x01\x00"), BAD_NAME},
	{"list longer than its extension", R("\x00\x00\x00\x06\x00\x05\x00\x00\x01x"), BAD_NAME},
	{"list shorter than its extension", R("\x00\x00\x00\x07\x00\x04\x00\x00\x01xy"), BAD_NAME},
	{"name longer than its list", R("\x00\x00\x00\x06\x00\x04\x00\x00\x02x"), BAD_NAME},
	{"name of another type", R("\x00\x00\x00\x06\x00\x04\x01\x00\x01x"), BAD_NAME},
	{"h2", R(ALPN_H2), .alpn = true, .h2 = true},
	{"http/1.1", R("\x00\x10\x00\x0b\x00\x09\x08http/1.1"), .alpn = true, .http11 = true},
	{"both and another", R("\x00\x10\x00\x10\x00\x0e\x01x\x02h2\x08http/1.1"), .alpn = true,
		.h2 = true, .http11 = true},
	{"another alone", R("\x00\x10\x00\x04\x00\x02\x01x"), .alpn = true},
	{"ALPN twice", R(ALPN_H2 ALPN_H2), BAD},
	{"empty ALPN list", R("\x00\x10\x00\x02\x00\x00"), BAD},
	{"empty ALPN", R("\x00\x10\x00\x00"), BAD},
	{"empty protocol", R("\x00\x10\x00\x03\x00\x01\x00"), BAD},
	{"protocol longer than its list", R("\x00\x10\x00\x05\x00\x03\x03h2"), BAD},
	{"ALPN list too long", R("\x00\x10\x00\x05\x00\x04\x02h2"), BAD},
	{"ALPN list too short", R("\x00\x10\x00\x06\x00\x03\x02h2x"), BAD},
	{"1.3", R(VERSION_1_3), .max_version = 0x0304},
	{"1.2 and 1.3 in any order", R("\x00\x2b\x00\x05\x04\x03\x04\x03\x03"),
		.max_version = 0x0304},
	{"1.2 alone", R("\x00\x2b\x00\x03\x02\x03\x03")},
	{"GREASE and a later version", R("\x00\x2b\x00\x07\x06\x3a\x3a\x03\x05\x03\x03")},
	{"versions twice", R(VERSION_1_3 VERSION_1_3), BAD},
	{"no version", R("\x00\x2b\x00\x01\x00"), BAD},
	{"half a version", R("\x00\x2b\x00\x04\x03\x03\x04\x03"), BAD},
	{"versions too long", R("\x00\x2b\x00\x03\x04\x03\x04"), BAD},
	{"versions too short", R("\x00\x2b\x00\x04\x02\x03\x04\x03"), BAD},
	{"empty versions", R("\x00\x2b\x00\x00"), BAD},
	{"C89 ECH", R("\xfe\x0d\x00\x03xyz"), .ech = true},
	{"C89 GREASE ECH, empty", R("\xfe\x0d\x00\x00"), .ech = true},
	{"all", R(VERSION_1_3 "\xfe\x0d\x00\x01x" ALPN_H2), CLIENT_HELLO_OK, 0x0304, .alpn = true,
		.h2 = true, .ech = true},
	{"C87 extension longer than the list", R("\xab\xcd\x00\x03xx"), BAD},
	{"half an extension type", R("\xab"), BAD},
	{"type without length", R("\xab\xcd\x00"), BAD},
};

static void test_extensions(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(extensions); i++) {
		struct client_hello h;

		hello_check(extensions[i].fact, extensions[i].in, &h);
		if (h.error != extensions[i].error)
			fail_msg("%s: %s", extensions[i].fact, client_hello_error_text(h.error));
		if (h.error != CLIENT_HELLO_OK)
			continue;
		if (h.alpn != extensions[i].alpn || h.alpn_h2 != extensions[i].h2 ||
			h.alpn_http11 != extensions[i].http11 || h.ech != extensions[i].ech ||
			h.max_version !=
				(extensions[i].max_version ? extensions[i].max_version : 0x0303))
			fail_msg("%s", extensions[i].fact);
	}
}

/* C89: only the outer name is there to be seen, and it is the one that counts. */
static void test_ech_leaves_the_outer_name(void **state)
{
	struct client_hello h;

	hello_check("ECH",
		SLICE("\xfe\x0d\x00\x09"
		      "deny.test" SNI_X),
		&h);
	assert_true(h.ech);
	assert_string_equal(h.name, "x");
}

#define RANDOM "................................"
/* A ClientHello of n bytes (one byte, escaped) in one record of n + 4. */
#define HELLO(n4, n) "\x16\x03\x01\x00" n4 "\x01\x00\x00" n

static const struct {
	const char *fact;
	struct slice in;
	int ret;
	enum client_hello_error error;
} raw[] = {
	{"nothing", R(""), E_MORE, CLIENT_HELLO_OK},
	{"record type", R("\x16"), E_MORE, CLIENT_HELLO_OK},
	{"header alone", R("\x16\x03\x01\x00\x05"), E_MORE, CLIENT_HELLO_OK},
	{"C87 empty record", R("\x16\x03\x01\x00\x00"), 0, BAD},
	{"C87 record too long", R("\x16\x03\x01\xff\xff.........."), 0, BAD},
	{"record of 2^14 bytes", R("\x16\x03\x01\x40\x00"), E_MORE, CLIENT_HELLO_OK},
	{"record of one more", R("\x16\x03\x01\x40\x01"), 0, BAD},
	{"C87 handshake too long", R("\x16\x03\x01\x02\x00\x01\xff\xff\xff"), 0,
		CLIENT_HELLO_TOO_LARGE},
	{"C87 application data", R("\x17\x03\x03\x00\x05"), 0, CLIENT_HELLO_NOT_TLS},
	{"C87 alert", R("\x15\x03\x01\x00\x02\x01\x00"), 0, CLIENT_HELLO_NOT_TLS},
	{"C87 HTTP", R("GET / HTTP/1.1\r\n\r\n"), 0, CLIENT_HELLO_NOT_TLS},
	{"SSH", R("SSH-2.0-x\r\n"), 0, CLIENT_HELLO_NOT_TLS},
	{"SSLv2", R("\x80\x2e\x01\x03\x01"), 0, CLIENT_HELLO_NOT_TLS},
	{"version 2", R("\x16\x02\x01"), 0, CLIENT_HELLO_NOT_TLS},
	{"another handshake message", R("\x16\x03\x01\x00\x04\x02\x00\x00\x00"), 0, BAD},
	{"a hello but for its type",
		R("\x16\x03\x01\x00\x2d\x02\x00\x00\x29\x03\x03" RANDOM
		  "\x00\x00\x02\x13\x01\x01\x00"),
		0, BAD},
	{"its first byte is enough", R("\x16\x03\x01\x00\x2d\x02"), 0, BAD},
	{"empty hello", R("\x16\x03\x01\x00\x04\x01\x00\x00\x00"), 0, BAD},
	{"alert between two records", R("\x16\x03\x01\x00\x01\x01\x15\x03\x01\x00\x02"), 0, BAD},
	{"another version between two records", R("\x16\x03\x01\x00\x01\x01\x16\x02"), 0, BAD},
	{"second record empty", R("\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x00"), 0, BAD},
	{"no extensions at all",
		R(HELLO("\x2d", "\x29") "\x03\x03" RANDOM "\x00\x00\x02\x13\x01\x01\x00"), 0,
		CLIENT_HELLO_OK},
	{"SSL 3.0 is still decoded",
		R(HELLO("\x2d", "\x29") "\x03\x00" RANDOM "\x00\x00\x02\x13\x01\x01\x00"), 0,
		CLIENT_HELLO_OK},
	{"version of the hello",
		R(HELLO("\x2d", "\x29") "\x02\x03" RANDOM "\x00\x00\x02\x13\x01\x01\x00"), 0, BAD},
	{"C87 odd length of ciphers",
		R(HELLO("\x2e", "\x2a") "\x03\x03" RANDOM "\x00\x00\x03\x13\x01x\x01\x00"), 0, BAD},
	{"no cipher", R(HELLO("\x2b", "\x27") "\x03\x03" RANDOM "\x00\x00\x00\x01\x00"), 0, BAD},
	{"C87 session id of 200 bytes",
		R(HELLO("\x2d", "\x29") "\x03\x03" RANDOM "\xc8\x00\x02\x13\x01\x01\x00"), 0, BAD},
	{"session id of 33 bytes",
		R(HELLO("\x4e", "\x4a") "\x03\x03" RANDOM "\x21" RANDOM
					".\x00\x02\x13\x01\x01\x00"),
		0, BAD},
	{"no compression method",
		R(HELLO("\x2c", "\x28") "\x03\x03" RANDOM "\x00\x00\x02\x13\x01\x00"), 0, BAD},
	{"C87 extensions beyond the hello",
		R(HELLO("\x2f", "\x2b") "\x03\x03" RANDOM "\x00\x00\x02\x13\x01\x01\x00\x00\x01"),
		0, BAD},
	{"a byte behind the extensions",
		R(HELLO("\x30", "\x2c") "\x03\x03" RANDOM "\x00\x00\x02\x13\x01\x01\x00\x00\x00x"),
		0, BAD},
};

static void test_raw_records(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(raw); i++) {
		struct client_hello h;
		int ret = client_hello_decode(raw[i].in, &h);

		if (ret != raw[i].ret || h.error != raw[i].error)
			fail_msg("%s: returns %d, %s", raw[i].fact, ret,
				client_hello_error_text(h.error));
		if (ret == 0)
			decode(raw[i].in, &h, raw[i].fact);
	}
}

static void test_hello_of_openssl(void **state)
{
	struct client_hello h;
	struct slice in = SLICE(openssl_hello);
	struct strbuf split;

	decode(in, &h, "openssl");
	assert_int_equal(h.error, CLIENT_HELLO_OK);
	assert_string_equal(h.name, "read.test");
	assert_true(h.alpn && h.alpn_h2 && h.alpn_http11);
	assert_false(h.ech);
	assert_int_equal(h.max_version, 0x0304);
	for (size_t size = 1; size < in.len; size += 13) {
		struct client_hello part;

		strbuf_init(&split, HELLO_MAX);
		records_add(&split, slice_from(in, 5), size);
		assert_int_equal(client_hello_decode(strbuf_slice(&split), &part), 0);
		same(&h, &part, "openssl");
		strbuf_fini(&split);
	}
}

/* An unknown extension makes the message as long as wanted. */
static void large_add(struct strbuf *in, size_t message_len, size_t record_size)
{
	static char zeros[CLIENT_HELLO_MAX];
	struct strbuf extension, message;
	size_t fixed = 4 + 2 + 32 + 1 + 32 + 2 + 4 + 2 + 2 + 4;

	strbuf_init(&extension, HELLO_MAX);
	strbuf_init(&message, HELLO_MAX);
	add_u16(&extension, 0xabcd);
	add_u16(&extension, message_len - fixed);
	strbuf_add(&extension, slice_make(zeros, message_len - fixed));
	message_add(&message, strbuf_slice(&extension));
	assert_int_equal(message.len, message_len);
	records_add(in, strbuf_slice(&message), record_size);
	strbuf_fini(&extension);
	strbuf_fini(&message);
}

static void test_hellos_are_taken_up_to_the_limit(void **state)
{
	/* Five records of at most 2^14 bytes: their headers count. */
	size_t most = CLIENT_HELLO_MAX - (size_t)5 * 4, len;
	struct client_hello h;
	struct strbuf in;

	strbuf_init(&in, HELLO_MAX);
	large_add(&in, most, 16384);
	assert_int_equal(in.len, CLIENT_HELLO_MAX);
	assert_int_equal(client_hello_decode(strbuf_slice(&in), &h), 0);
	assert_int_equal(h.error, CLIENT_HELLO_OK);
	for (size_t n = 0; n < in.len; n += 127)
		assert_int_equal(
			client_hello_decode(slice_first(strbuf_slice(&in), n), &h), E_MORE);
	strbuf_clear(&in);
	large_add(&in, most + 1, 16384);
	for (len = CLIENT_HELLO_MAX - 1; len <= in.len; len++) {
		int ret = client_hello_decode(slice_first(strbuf_slice(&in), len), &h);

		assert_int_equal(ret, len < CLIENT_HELLO_MAX ? E_MORE : 0);
		if (ret == 0)
			assert_int_equal(h.error, CLIENT_HELLO_TOO_LARGE);
	}
	/* Small records reach the limit with much less of a message. */
	strbuf_clear(&in);
	large_add(&in, 20000, 1);
	assert_int_equal(client_hello_decode(strbuf_slice(&in), &h), 0);
	assert_int_equal(h.error, CLIENT_HELLO_TOO_LARGE);
	/* The length that the message claims is enough to know. */
	in.len = 0;
	strbuf_add(&in, SLICE("\x16\x03\x01\x40\x00\x01\x00\xff\xf7"));
	assert_int_equal(client_hello_decode(strbuf_slice(&in), &h), E_MORE);
	in.p[in.len - 1] = '\xf8';
	assert_int_equal(client_hello_decode(strbuf_slice(&in), &h), 0);
	assert_int_equal(h.error, CLIENT_HELLO_TOO_LARGE);
	strbuf_fini(&in);
}

static void test_not_tls_is_known_by_the_first_byte_that_differs(void **state)
{
	static const struct {
		struct slice in;
		bool not_tls;
	} rows[] = {
		{R(""), false},
		{R("\x16"), false},
		{R("\x16\x03"), false},
		{R("\x16\x03\x01"), false},
		{R("\x16\x03\xff\xff\xff"), false},
		{R("\x15"), true},
		{R("G"), true},
		{R("\0"), true},
		{R("\x16\x02"), true},
		{R("\x16\x04\x01"), true},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(client_hello_is_not_tls(rows[i].in), rows[i].not_tls);
}

static void test_old_versions_are_reported_as_they_are(void **state)
{
	static char in[] = HELLO("\x2d", "\x29") "\x03\x03" RANDOM "\x00\x00\x02\x13\x01\x01";
	static const struct {
		char minor;
		uint16_t want;
	} rows[] = {{0, 0x0300}, {1, 0x0301}, {2, 0x0302}, {3, 0x0303}, {4, 0x0303}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct client_hello h;

		in[10] = rows[i].minor;
		assert_int_equal(client_hello_decode(slice_make(in, sizeof(in)), &h), 0);
		assert_int_equal(h.error, CLIENT_HELLO_OK);
		assert_int_equal(h.max_version, rows[i].want);
	}
}

static void test_every_error_has_a_text(void **state)
{
	for (int e = CLIENT_HELLO_OK + 1; e < CLIENT_HELLO_ERROR_MAX; e++)
		assert_true(strlen(client_hello_error_text((enum client_hello_error)e)) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_server_names),
		cmocka_unit_test(test_names_are_taken_up_to_the_limit),
		cmocka_unit_test(test_extensions),
		cmocka_unit_test(test_ech_leaves_the_outer_name),
		cmocka_unit_test(test_raw_records),
		cmocka_unit_test(test_hello_of_openssl),
		cmocka_unit_test(test_hellos_are_taken_up_to_the_limit),
		cmocka_unit_test(test_not_tls_is_known_by_the_first_byte_that_differs),
		cmocka_unit_test(test_old_versions_are_reported_as_they_are),
		cmocka_unit_test(test_every_error_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
