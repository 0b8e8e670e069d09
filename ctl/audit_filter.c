/* Filters of `egressctl audit query`. Comes after audit_record, before audit_print. */
#include "ctl/audit_filter.h"

#include "audit/event.h"
#include "base/clock.h"
#include "ctl/command.h"

#define FILTER_AGO_MAX 100000000ULL /* of any unit: far before any audit trail began */

static const char *const filter_kinds[] = {
#define X(id, name) name,
	AUDIT_KIND_TABLE(X)
#undef X
		NULL};

static const char *const filter_verdicts[] = {
#define X(id, name) name,
	AUDIT_VERDICT_TABLE(X)
#undef X
		NULL};

static const char *const filter_reasons[] = {
#define X(id, status, name, text) name,
	REASON_TABLE(X)
#undef X
		NULL};

/* Seconds of a unit, 0 if it is none. */
static uint64_t filter_unit(char c)
{
	switch (c) {
	case 's':
		return 1;
	case 'm':
		return 60;
	case 'h':
		return 3600;
	case 'd':
		return 86400;
	default:
		return 0;
	}
}

int audit_filter_time(const char *text, uint64_t now_us, uint64_t *wall_us, struct errmsg *msg)
{
	struct slice s = slice_str(text);
	uint64_t n, unit, ago;

	if (clock_parse(text, wall_us))
		return 0;
	unit = s.len > 1 ? filter_unit(s.p[s.len - 1]) : 0;
	if (unit == 0 || !slice_to_u64(slice_first(s, s.len - 1), &n) || n > FILTER_AGO_MAX)
		return errmsg_set(msg, E_VALUE,
			"\"%.60s\": expected a time of UTC like 2026-01-31 or "
			"2026-01-31T08:00:00Z, or how long ago like 90s, 10m, 2h, 1d",
			text);
	ago = n * unit * 1000000;
	*wall_us = ago < now_us ? now_us - ago : 0;
	return 0;
}

int audit_filter_host(const char *text, struct audit_filter *f, struct errmsg *msg)
{
	struct slice s = slice_str(text);
	struct netaddr addr;
	size_t len;
	int ret;

	f->host_wild = slice_starts(s, SLICE("*."));
	if (!f->host_wild &&
		(netaddr_parse(s, &addr) || netaddr_parse_host(s, &addr) == HOST_ADDRESS)) {
		(void)netaddr_text(&addr, f->host);
		return 0;
	}
	ret = hostname_from_person(slice_from(s, f->host_wild ? 2 : 0), f->host, &len, msg);
	if (ret < 0)
		return errmsg_prefix(msg, ret, "\"%.60s\"", text);
	return 0;
}

static int filter_word(
	const char *text, const char *const *words, struct slice *out, struct errmsg *msg)
{
	const char *nearest;

	for (size_t i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0) {
			*out = slice_str(words[i]);
			return 0;
		}
	}
	nearest = command_nearest(text, words);
	return errmsg_set(msg, E_UNKNOWN,
		"\"%.60s\": expected a known word like %s: see `egressctl audit query --help`",
		text, nearest ? nearest : words[0]);
}

int audit_filter_verdict(const char *text, struct audit_filter *f, struct errmsg *msg)
{
	return filter_word(text, filter_verdicts, &f->verdict, msg);
}

int audit_filter_kind(const char *text, struct audit_filter *f, struct errmsg *msg)
{
	return filter_word(text, filter_kinds, &f->kind, msg);
}

int audit_filter_reason(const char *text, struct audit_filter *f, struct errmsg *msg)
{
	return filter_word(text, filter_reasons, &f->reason, msg);
}

int audit_filter_context(const char *text, struct audit_filter *f, struct errmsg *msg)
{
	const char *equals = strchr(text, '=');

	if (!equals || equals == text)
		return errmsg_set(msg, E_VALUE, "\"%.60s\": expected NAME=VALUE", text);
	f->label = slice_make(text, (size_t)(equals - text));
	f->label_value = slice_str(equals + 1);
	return 0;
}

static bool filter_context(const struct audit_filter *f, const struct audit_record *r)
{
	const char *name;
	json_t *value;

	json_object_foreach(json_object_get(r->root, "context"), name, value)
	{
		if (slice_eq(slice_str(name), f->label) && json_is_string(value))
			return slice_eq(
				slice_make(json_string_value(value), json_string_length(value)),
				f->label_value);
	}
	return f->label.len == 0;
}

static bool filter_cell(struct slice want, const struct audit_record *r, enum audit_column c)
{
	return want.len == 0 || slice_eq(want, r->cell[c]);
}

static bool filter_host(const struct audit_filter *f, struct slice host)
{
	struct slice want = slice_str(f->host);

	if (want.len == 0)
		return true;
	return f->host_wild ? hostname_below(host, want) : slice_eq(host, want);
}

bool audit_filter_match(const struct audit_filter *f, const struct audit_record *r)
{
	uint64_t uid;

	if (r->start_us < f->since_us || (f->until_us > 0 && r->start_us >= f->until_us))
		return false;
	if (f->has_uid && (!slice_to_u64(r->cell[AUDIT_COLUMN_UID], &uid) || uid != f->uid))
		return false;
	return filter_host(f, r->cell[AUDIT_COLUMN_HOST]) &&
		filter_cell(f->verdict, r, AUDIT_COLUMN_VERDICT) &&
		filter_cell(f->kind, r, AUDIT_COLUMN_KIND) &&
		filter_cell(f->reason, r, AUDIT_COLUMN_REASON) &&
		filter_cell(f->method, r, AUDIT_COLUMN_METHOD) && filter_context(f, r);
}
