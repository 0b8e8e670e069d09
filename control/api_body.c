/* The content of a request while it comes: in ordinary memory, which is wiped, or in locked memory
 * where it may hold keys; or nowhere, where everybody may send it and nobody reads it. Before it:
 * api_conn, which has read some more; after it: the handler.
 *
 * A length that is known is taken at once, so that what cannot be taken is refused before it is
 * sent. Else the memory doubles, and what it moved out of is wiped. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "control/api_int.h"

#define API_BODY_FIRST 4096 /* of locked content whose length is not known */

/* The room that all locked content has together. */
static bool api_body_fits(const struct api_body *b, size_t cap)
{
	return cap <= API_LOCKED_MAX && b->api->locked_bytes - b->cap <= API_LOCKED_MAX - cap;
}

static char *api_body_alloc(const struct api *a, size_t cap)
{
	char *p = secmem_alloc(a->keys.mem, cap);

	for (int all = 0; !p && a->keys.make_room && all <= 1; all++) {
		a->keys.make_room(a->arg, all);
		p = secmem_alloc(a->keys.mem, cap);
	}
	return p;
}

static int api_body_move(struct api_body *b, size_t cap)
{
	char *p = api_body_fits(b, cap) ? api_body_alloc(b->api, cap) : NULL;

	if (!p)
		return E_FULL;
	if (b->len > 0)
		memcpy(p, b->p, b->len);
	secmem_release(b->api->keys.mem, b->p);
	b->api->locked_bytes += cap - b->cap;
	b->p = p;
	b->cap = cap;
	return 0;
}

int api_body_init(struct api_body *b, struct api *a, unsigned flags, size_t length)
{
	*b = (struct api_body){
		.api = a, .locked = (flags & API_KEYS) && a->keys.mem, .dropped = flags & API_OPEN};
	strbuf_init(&b->text, API_BODY_MAX);
	b->text.wipe = true;
	return b->locked && length > 0 ? api_body_move(b, length) : 0;
}

int api_body_add(struct api_body *b, struct slice content)
{
	size_t cap = b->cap;
	int ret = 0;

	if (content.len > API_BODY_MAX - b->len)
		return E_LIMIT;
	if (!b->locked) {
		if (!b->dropped)
			strbuf_add(&b->text, content);
		b->len += content.len;
		return 0;
	}
	while (cap < b->len + content.len)
		cap = cap ? 2 * cap : API_BODY_FIRST;
	if (cap > b->cap)
		ret = api_body_move(b, cap < API_BODY_MAX ? cap : API_BODY_MAX);
	if (ret < 0 || content.len == 0)
		return ret;
	memcpy(b->p + b->len, content.p, content.len);
	b->len += content.len;
	return 0;
}

struct slice api_body_slice(const struct api_body *b)
{
	return b->locked ? slice_make(b->p ? b->p : "", b->len) : strbuf_slice(&b->text);
}

void api_body_fini(struct api_body *b)
{
	if (b->p) {
		b->api->locked_bytes -= b->cap;
		secmem_release(b->api->keys.mem, b->p);
	}
	b->p = NULL;
	b->len = b->cap = 0;
	strbuf_fini(&b->text);
}
