/* `Authorization: Basic ...`: git, curl and HTTP libraries put a placeholder inside base64 when it
 * is given to them as user or password. Decoded, replaced and encoded again in locked memory. */
#include "vault/substitute_int.h"

static const char substitute_base64[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int substitute_base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (ascii_digit(c))
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* to has room for 3/4 of s. False if s is no base64 (padding may be left out). */
static bool substitute_base64_decode(struct slice s, char *to, size_t *len)
{
	uint32_t bits = 0;
	size_t n_bits = 0;
	size_t n = 0;

	for (size_t i = 0; i < 2 && s.len > 0 && s.p[s.len - 1] == '='; i++)
		s.len--;
	for (size_t i = 0; i < s.len; i++) {
		int v = substitute_base64_value(s.p[i]);

		if (v < 0)
			return false;
		bits = bits << 6 | (uint32_t)v;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			to[n++] = (char)(bits >> n_bits & 0xff);
		}
	}
	*len = n;
	return s.len % 4 != 1;
}

static size_t substitute_base64_encode(struct slice s, char *to)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i += 3) {
		size_t left = s.len - i;
		uint32_t v = (uint32_t)(uint8_t)s.p[i] << 16;

		if (left > 1)
			v |= (uint32_t)(uint8_t)s.p[i + 1] << 8;
		if (left > 2)
			v |= (uint8_t)s.p[i + 2];
		to[n++] = substitute_base64[v >> 18];
		to[n++] = substitute_base64[v >> 12 & 63];
		to[n++] = left > 1 ? substitute_base64[v >> 6 & 63] : '=';
		to[n++] = left > 2 ? substitute_base64[v & 63] : '=';
	}
	return n;
}

struct substitute_plain {
	char *p;
	size_t len;
};

static void substitute_plain_put(void *arg, struct slice piece)
{
	struct substitute_plain *plain = arg;

	memcpy(plain->p + plain->len, piece.p, piece.len);
	plain->len += piece.len;
}

/* Behind `Basic` and its blanks; empty if the text is no such thing. */
static struct slice substitute_basic_credentials(struct slice text)
{
	struct slice scheme = slice_first(text, 5);
	struct slice rest = slice_from(text, scheme.len);
	size_t n = 0;

	if (!slice_ieq(scheme, SLICE("Basic")))
		return SLICE_EMPTY;
	while (n < rest.len && rest.p[n] == ' ')
		n++;
	return n > 0 ? slice_from(rest, n) : SLICE_EMPTY;
}

/* Of the decoded text; sink may be NULL. */
static size_t substitute_basic_run(const struct substitute_job *job, struct slice decoded,
	const struct substitute_sink *sink, size_t *len)
{
	struct substitute_job inner = *job;
	struct substitute_range whole = {.to = decoded.len};
	const struct substitute_range *outer = job->slots.arg;
	size_t n;

	whole.name = outer->name;
	inner.text = decoded;
	inner.search = decoded;
	inner.form = SECRET_RAW;
	inner.slots.arg = &whole;
	inner.sink = sink;
	inner.len = 0;
	n = substitute_run(&inner);
	*len = inner.len;
	return n;
}

static void substitute_basic_write(struct substitute_job *job, struct slice credentials,
	struct slice decoded, struct substitute_plain *plain)
{
	struct substitute_sink sink = {substitute_plain_put, plain};
	char *encoded;
	size_t len;

	(void)substitute_basic_run(job, decoded, &sink, &len);
	encoded = plain->p + len;
	len = substitute_base64_encode(slice_make(plain->p, len), encoded);
	substitute_put(job, slice_first(job->text, job->text.len - credentials.len));
	substitute_put(job, slice_make(encoded, len));
}

bool substitute_basic(struct substitute_job *job, size_t *n)
{
	struct slice credentials = substitute_basic_credentials(job->text);
	struct secmem *mem = job->binding->mem;
	struct substitute_plain plain = {NULL, 0};
	char *decoded = NULL;
	size_t decoded_len;
	size_t len;
	bool done = false;

	if (credentials.len == 0 || !substitute_has(job->binding, job->surface))
		return false;
	decoded = secmem_alloc(mem, credentials.len);
	if (!decoded || !substitute_base64_decode(credentials, decoded, &decoded_len))
		goto out;
	*n = substitute_basic_run(job, slice_make(decoded, decoded_len), NULL, &len);
	if (*n == 0)
		goto out;
	/* The text, then its base64. */
	plain.p = secmem_alloc(mem, len + 4 * (len / 3 + 1));
	if (!plain.p) {
		*n = 0;
		goto out;
	}
	substitute_basic_write(job, credentials, slice_make(decoded, decoded_len), &plain);
	done = true;
out:
	secmem_release(mem, decoded);
	secmem_release(mem, plain.p);
	return done;
}
