/* The answer of a bound host: keys in it are overwritten before the client sees them. Content
 * passes through redact_stream; what comes in gzip or deflate although nobody asked is decoded
 * for the search alone, goes on when its text was searched, and a hit ends it. */
#include <zlib.h>

#include "base/secmem.h"
#include "proxy/exchange.h"
#include "proxy/h1.h"
#include "proxy/keyed.h"
#include "proxy/tls_io.h"
#include "vault/vault.h"

#define INFLATE_WINDOW (15 + 32) /* 32 KiB, gzip or zlib by its header */

static bool text_redact(const struct redact_table *t, struct slice s)
{
	/* the text lies in our own buffers: plain, or a head that was saved */
	return redact_text(t, (char *)(uintptr_t)s.p, s.len);
}

/* Names, too: a key of token characters makes one. The fields point into one text, in its order,
 * so one search covers them all. */
static bool fields_redact(const struct redact_table *t, struct fields *f)
{
	const char *from, *to;

	if (f->n == 0)
		return false;
	from = f->v[0].name.p;
	to = f->v[f->n - 1].value.p + f->v[f->n - 1].value.len;
	REQUIRE(from <= to && (size_t)(to - from) <= H1_HEAD_MAX);
	return text_redact(t, slice_make(from, (size_t)(to - from)));
}

static bool field_is_digest(const struct field *x)
{
	return slice_ieq(x->name, SLICE("digest")) || slice_ieq(x->name, SLICE("content-digest")) ||
		slice_ieq(x->name, SLICE("repr-digest")) ||
		slice_ieq(x->name, SLICE("content-md5"));
}

static bool field_is_validator(const struct field *x)
{
	return slice_ieq(x->name, SLICE("etag")) || slice_ieq(x->name, SLICE("last-modified"));
}

/* Whether content will be altered is not known yet, so digests always go: they would accuse us. */
static void fields_drop(struct fields *f, bool validators)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		if (!field_is_digest(&f->v[i]) && !(validators && field_is_validator(&f->v[i])))
			f->v[n++] = f->v[i];
	f->n = n;
}

/* How content is coded: 0 identity, 1 gzip or deflate, -1 something that cannot be searched. */
static int answer_coding(const struct fields *f)
{
	int codings = 0;

	for (size_t i = 0; i < f->n; i++) {
		struct slice rest = f->v[i].value, member;

		if (f->v[i].id != FIELD_CONTENT_ENCODING)
			continue;
		while (field_list_next(&rest, &member)) {
			if (slice_ieq(member, SLICE("identity")))
				continue;
			if (!slice_ieq(member, SLICE("gzip")) &&
				!slice_ieq(member, SLICE("x-gzip")) &&
				!slice_ieq(member, SLICE("deflate")))
				return -1;
			codings++;
		}
	}
	return codings > 1 ? -1 : codings;
}

/* zlib's window is plaintext of the answer: it lies where keys may lie. */
static void *zlib_alloc(void *arg, unsigned n, unsigned size)
{
	return secmem_alloc(arg, (size_t)n * size);
}

static void zlib_free(void *arg, void *p)
{
	secmem_release(arg, p);
}

static bool keyed_start_inflate(struct exchange *ex)
{
	struct keyed *k = &ex->keyed;

	k->inflate = xcalloc(1, sizeof(*k->inflate));
	k->inflate->zalloc = zlib_alloc;
	k->inflate->zfree = zlib_free;
	k->inflate->opaque = ex->px->secmem;
	k->unfolded = secmem_alloc(ex->px->secmem, IO_RECORD);
	k->behind = secmem_alloc(ex->px->secmem, KEYED_BEHIND_MAX);
	if (k->unfolded && k->behind && inflateInit2(k->inflate, INFLATE_WINDOW) == Z_OK)
		return true;
	free(k->inflate);
	k->inflate = NULL;
	secmem_release(ex->px->secmem, k->unfolded);
	secmem_release(ex->px->secmem, k->behind);
	k->unfolded = k->behind = NULL;
	return false;
}

enum reason keyed_answer(struct exchange *ex, struct h1_head *h)
{
	struct keyed *k = &ex->keyed;
	const struct redact_table *t;
	int coding;
	bool found;

	if (!k->bound_host)
		return REASON_ALLOWED;
	t = vault_view_redactions(k->view);
	if (!t)
		return REASON_ALLOWED;
	found = fields_redact(t, &h->fields);
	found = text_redact(t, h->reason) || found;
	if (h->status == 101) {
		/* what follows is frames, which are searched as they come */
		k->redacting = redact_stream_init(&k->redact, t) == 0;
		return k->redacting ? REASON_ALLOWED : REASON_OVERLOADED;
	}
	if (h->status < 200 || h->framing == H1_NO_CONTENT)
		return REASON_ALLOWED;
	coding = answer_coding(&h->fields);
	if (coding < 0 || (coding == 1 && !keyed_start_inflate(ex)))
		return REASON_ENCODED_ANSWER;
	if (redact_stream_init(&k->redact, t) < 0)
		return REASON_OVERLOADED;
	k->redacting = true;
	fields_drop(&h->fields, found);
	return REASON_ALLOWED;
}

static void ignore_piece(void *arg, struct slice piece)
{
}

/* Decodes content, for the search alone. False on what cannot be decoded, and on a bomb. */
static bool keyed_search_encoded(struct exchange *ex, struct slice content)
{
	struct keyed *k = &ex->keyed;
	z_stream *z = k->inflate;
	char *out = k->unfolded;
	int ret = Z_OK;

	k->deflated += content.len;
	z->next_in = (Bytef *)(uintptr_t)content.p;
	z->avail_in = (uInt)content.len;
	while (ret == Z_OK && (z->avail_in > 0 || z->avail_out == 0)) {
		z->next_out = (Bytef *)out;
		z->avail_out = IO_RECORD;
		ret = inflate(z, Z_NO_FLUSH);
		if (ret == Z_BUF_ERROR)
			break;
		k->inflated += IO_RECORD - z->avail_out;
		/* no end here: readers put gzip members together (RFC 1952 2.2) */
		redact_stream_feed(
			&k->redact, out, IO_RECORD - z->avail_out, false, ignore_piece, NULL);
		if (k->inflated > KEYED_FREE_BYTES && k->inflated / KEYED_RATIO_MAX > k->deflated)
			return false;
		if (ret == Z_STREAM_END && z->avail_in > 0)
			ret = inflateReset(z);
	}
	return ret == Z_OK || ret == Z_STREAM_END || ret == Z_BUF_ERROR;
}

/* A client that got encoded bytes at once would have all of a key but its last character. So they
 * wait as long as their text is held back. While the first part waits the second one gathers, and
 * a text is held back only as far as the longest form, so neither waits for ever. */
static bool keyed_wait_behind(struct keyed *k, struct slice content)
{
	struct keyed_part *p = &k->parts[k->parts[0].len > 0];
	size_t used = k->parts[0].len + k->parts[1].len;

	if (content.len > KEYED_BEHIND_MAX - used)
		return false;
	memcpy(k->behind + used, content.p, content.len);
	p->len += content.len;
	p->text_end = k->inflated;
	return true;
}

static void keyed_pass_behind(
	struct keyed *k, void (*put)(void *arg, struct slice piece), void *arg)
{
	uint64_t searched = k->inflated - k->redact.held_len;
	size_t used = k->parts[0].len + k->parts[1].len;
	size_t n = 0;

	for (size_t i = 0; i < 2 && k->parts[0].len > 0 && k->parts[0].text_end <= searched; i++) {
		n += k->parts[0].len;
		k->parts[0] = k->parts[1];
		k->parts[1] = (struct keyed_part){0};
	}
	if (n == 0)
		return;
	put(arg, slice_make(k->behind, n));
	memmove(k->behind, k->behind + n, used - n);
}

bool keyed_content(struct exchange *ex, struct slice content, bool end,
	void (*put)(void *arg, struct slice piece), void *arg)
{
	struct keyed *k = &ex->keyed;

	if (!k->redacting) {
		if (content.len > 0)
			put(arg, content);
		return true;
	}
	if (!k->inflate) {
		redact_stream_feed(
			&k->redact, (char *)(uintptr_t)content.p, content.len, end, put, arg);
		return true;
	}
	if (!keyed_search_encoded(ex, content) || !keyed_wait_behind(k, content))
		return false;
	if (end)
		redact_stream_feed(&k->redact, k->unfolded, 0, true, ignore_piece, NULL);
	if (k->redact.found)
		return false;
	keyed_pass_behind(k, put, arg);
	return true;
}

void keyed_trailers(struct exchange *ex, struct fields *trailers)
{
	if (ex->keyed.redacting && trailers)
		fields_redact(vault_view_redactions(ex->keyed.view), trailers);
}

void keyed_fini(struct exchange *ex)
{
	struct keyed *k = &ex->keyed;

	if (k->redacting)
		redact_stream_fini(&k->redact);
	if (k->inflate) {
		inflateEnd(k->inflate);
		free(k->inflate);
		secmem_release(ex->px->secmem, k->unfolded);
		secmem_release(ex->px->secmem, k->behind);
	}
	if (k->body) {
		strbuf_fini(k->body);
		free(k->body);
	}
	vault_view_unref(k->view);
	memset(k, 0, sizeof(*k));
}
