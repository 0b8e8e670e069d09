/* Bodies, whole in memory: the media type says how a key is spelt and where the slots are
 * (reference 5.3, 5.4). What cannot be read safely goes out as it came. */
#include <stdlib.h>

#include "vault/substitute_int.h"

enum body_kind { BODY_TEXT, BODY_JSON, BODY_FORM, BODY_UNREAD };

static enum body_kind body_kind_of(struct slice media_type)
{
	struct slice type = slice_trim(slice_first(media_type, slice_find_char(media_type, ';')));
	struct slice suffix = SLICE("+json");
	struct slice multipart = SLICE("multipart/");

	if (slice_ieq(type, SLICE("application/json")))
		return BODY_JSON;
	if (type.len > suffix.len && slice_ieq(slice_from(type, type.len - suffix.len), suffix))
		return BODY_JSON;
	if (slice_ieq(type, SLICE("application/x-www-form-urlencoded")))
		return BODY_FORM;
	return slice_ieq(slice_first(type, multipart.len), multipart) ? BODY_UNREAD : BODY_TEXT;
}

static bool body_holds_placeholder(const struct binding *b, struct slice text)
{
	size_t at;
	size_t which;

	return pattern_set_find(b->patterns, text, 0, &at, &which);
}

static size_t body_json(struct substitute_job *job)
{
	struct json_ranges ranges = {.n = 0};
	size_t n;

	if ((job->binding->slots & BIT(SURFACE_BODY)) != 0 &&
		body_holds_placeholder(job->binding, job->text) &&
		json_ranges_find(job->binding, job->text, &ranges))
		job->slots = (struct substitute_slots){PLACE_JSON, json_ranges_next, &ranges};
	n = substitute_run(job);
	json_ranges_fini(&ranges);
	return n;
}

/* What the text decodes to, and from where each byte came. A form's author did not write the
 * escapes, his library did, and it may escape what we would not (case C115). */
static size_t body_form_decode(struct slice text, char *to, uint32_t *map)
{
	size_t n = 0;

	for (size_t i = 0; i < text.len; n++) {
		int high = text.p[i] == '%' && text.len - i > 2 ? ascii_hex(text.p[i + 1]) : -1;
		int low = high >= 0 ? ascii_hex(text.p[i + 2]) : -1;

		to[n] = low >= 0 ? (char)(high << 4 | low) : text.p[i];
		map[n] = (uint32_t)i;
		i += low >= 0 ? 3 : 1;
	}
	map[n] = (uint32_t)text.len;
	return n;
}

static size_t body_form(struct substitute_job *job)
{
	struct substitute_pairs pairs;
	uint32_t *map = NULL;
	char *decoded = NULL;
	size_t n;

	substitute_pairs_init(&pairs, job->text);
	job->slots = (struct substitute_slots){PLACE_FORM, substitute_pairs_next, &pairs};
	if (slice_find_char(job->text, '%') < job->text.len && job->text.len < UINT32_MAX) {
		decoded = xmalloc(job->text.len);
		map = xmalloc((job->text.len + 1) * sizeof(*map));
		job->search = slice_make(decoded, body_form_decode(job->text, decoded, map));
		job->map = map;
	}
	n = substitute_run(job);
	free(decoded);
	free(map);
	return n;
}

size_t substitute_body(const struct binding *b, struct slice media_type, struct slice body,
	const struct substitute_sink *sink, size_t *len)
{
	enum body_kind kind = body_kind_of(media_type);
	struct substitute_job job = substitute_job_make(b, SURFACE_BODY, SECRET_RAW, body, sink);
	size_t n = 0;

	if (!b || !substitute_has(b, SURFACE_BODY) || !secret_is_utf8(body))
		kind = BODY_UNREAD;
	switch (kind) {
	case BODY_TEXT:
		n = substitute_run(&job);
		break;
	case BODY_JSON:
		job.form = SECRET_JSON;
		n = body_json(&job);
		break;
	case BODY_FORM:
		job.form = SECRET_FORM;
		n = body_form(&job);
		break;
	case BODY_UNREAD:
		substitute_put(&job, body);
		break;
	}
	if (len)
		*len = job.len;
	return n;
}
