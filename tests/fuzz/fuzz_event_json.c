/* Text of a line: whatever a client sends, a line is valid UTF-8 without control characters, its
 * strings end where they should, it fits its bound, and no planted secret shows.
 *
 * An input is the part of a URL that the client chose; it is the user agent too. */
#include "audit/event_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define INPUT_MAX 4096
#define SECRET "S3cr3tS3cr3t"

/* Bytes of the character at s, 0 if it is none. */
static size_t char_len(struct slice s)
{
	static const unsigned char lead[] = {0x00, 0xc0, 0xe0, 0xf0};
	unsigned char c = (unsigned char)s.p[0];
	size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

	if (n == 0 || n > s.len || (c & lead[n - 1]) != lead[n - 1] || c < 0x20 || c == 0x7f)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (((unsigned char)s.p[i] & 0xc0) != 0x80)
			return 0;
	}
	return n;
}

/* Outside of strings a line has only these. */
static void text_check(struct slice s)
{
	bool in_string = false;
	size_t n;

	for (; s.len > 0; s = slice_from(s, n)) {
		n = char_len(s);
		REQUIRE(n > 0);
		if (s.p[0] == '"')
			in_string = !in_string;
		else if (!in_string)
			REQUIRE(strchr(":,nul0123456789", s.p[0]));
		else if (s.p[0] == '\\')
			REQUIRE(s.len > 1 && strchr("\"\\u", s.p[1]) && (n = 2));
	}
	REQUIRE(!in_string);
}

static void event_check(struct slice url, struct slice agent, bool planted)
{
	static char body[EVENT_JSON_MAX];
	struct audit_event e = {.url = url, .user_agent = agent, .uid = AUDIT_UID_NONE};
	struct event_rec rec;
	struct slice text;

	event_rec_set(&rec, &e);
	text = slice_make(
		body, event_json_body(body, &rec, "0123456789abcdef", agent, SLICE_EMPTY));
	text_check(text);
	if (planted)
		REQUIRE(slice_find(text, SLICE(SECRET)) == text.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static const struct {
		struct slice before, after;
	} around[] = {
		{SLICE("http://h/"), SLICE("&token=" SECRET)},
		{SLICE("http://u:" SECRET "@h/"), SLICE("")},
		{SLICE("http://h/?token=" SECRET "&"), SLICE("")},
		{SLICE("http://h/;jsessionid=" SECRET "/"), SLICE("")},
		{SLICE("http://h/?u=http://" SECRET "@h/"), SLICE("")},
	};
	struct slice in = slice_first(slice_make((const char *)p, len), INPUT_MAX);
	char url[INPUT_MAX + 128];

	event_check(in, in, false);
	if (slice_find(in, SLICE("S3cr3t")) < in.len)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(around); i++) {
		size_t at = around[i].before.len;

		memcpy(url, around[i].before.p, at);
		if (in.len > 0)
			memcpy(url + at, in.p, in.len);
		at += in.len;
		memcpy(url + at, around[i].after.p, around[i].after.len);
		event_check(slice_make(url, at + around[i].after.len), in, true);
	}
	return 0;
}
