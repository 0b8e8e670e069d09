/* The list of hosts that may be written to, compiled; read_only asks it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "policy/key_table.h"
#include "policy/policy_int.h"
#include "policy/read_only.h"

/* A label that no rule names, to ask policy about "some name below". */
#define WRITE_PROBE_LABEL "_-any-name-below-_."

enum write_scope { WRITE_SELF = BIT(0), WRITE_BELOW = BIT(1) };

struct write_hosts {
	size_t n;
	char **entries;         /* normal form, with `*.` or `.` in front */
	struct key_table *keys; /* the names behind that */
	uint8_t *scopes;        /* enum write_scope bits for each key */
};

static uint8_t write_entry_scope(const char *entry)
{
	if (entry[0] == '*')
		return WRITE_BELOW;
	return entry[0] == '.' ? WRITE_SELF | WRITE_BELOW : WRITE_SELF;
}

static struct slice write_entry_name(const char *entry)
{
	return slice_str(entry + (entry[0] == '*' ? 2 : entry[0] == '.'));
}

static char *write_entry_join(const char *prefix, const char *name)
{
	size_t size = strlen(prefix) + strlen(name) + 1;
	char *entry = xmalloc(size);

	(void)snprintf(entry, size, "%s%s", prefix, name);
	return entry;
}

static int write_entry_decode(struct slice text, char **out, struct errmsg *msg)
{
	char name[HOSTNAME_MAX + 1];
	const char *prefix = "";
	struct netaddr addr;
	struct netcidr block;
	size_t len;
	int ret;

	if (netaddr_parse(text, &addr)) {
		netaddr_text(&addr, name);
		*out = xstrdup(name);
		return 0;
	}
	if (netcidr_parse(text, &block))
		return errmsg_set(msg, E_VALUE,
			"an address block; private addresses that a policy rule allows may be "
			"written to without being listed");
	if (slice_eq(text, SLICE("*")))
		return errmsg_set(msg, E_VALUE,
			"a bare \"*\" would let everything be written; write \"name\", \"*.name\" "
			"(below it) or \".name\" (both)");
	if (text.len > 2 && slice_starts(text, SLICE("*.")) && text.p[2] != '.')
		prefix = "*.";
	else if (text.len > 1 && text.p[0] == '.')
		prefix = ".";
	text = slice_from(text, strlen(prefix));
	ret = rule_shape_check(text, msg);
	if (ret == 0)
		ret = rule_name_decode(text, name, &len, msg);
	if (ret == 0)
		*out = write_entry_join(prefix, name);
	return ret;
}

/* The next entry of a list separated by commas and ASCII white space; empty at the end. */
static struct slice write_list_next(struct slice *rest)
{
	static const char separators[] = ", \t\n\v\f\r";
	struct slice entry;
	size_t n = 0;

	while (n < rest->len && memchr(separators, rest->p[n], sizeof(separators) - 1))
		n++;
	*rest = slice_from(*rest, n);
	for (n = 0; n < rest->len && !memchr(separators, rest->p[n], sizeof(separators) - 1); n++)
		;
	entry = slice_first(*rest, n);
	*rest = slice_from(*rest, n);
	return entry;
}

static void write_hosts_compile(struct write_hosts *w)
{
	w->keys = key_table_new(w->n);
	w->scopes = xcalloc(w->n ? w->n : 1, 1);
	for (size_t i = 0; i < w->n; i++)
		w->scopes[key_table_put(w->keys, write_entry_name(w->entries[i]))] |=
			write_entry_scope(w->entries[i]);
}

int write_hosts_decode(struct slice list, struct write_hosts **out, struct errmsg *msg)
{
	struct write_hosts *w = xcalloc(1, sizeof(*w));
	char quoted[RULE_QUOTE_MAX];
	struct slice text;
	size_t cap = 0;
	int ret;

	*out = NULL;
	while ((text = write_list_next(&list)).len > 0) {
		if (w->n == cap) {
			cap = cap ? 2 * cap : 8;
			w->entries = xrealloc(w->entries, cap * sizeof(*w->entries));
		}
		ret = write_entry_decode(text, &w->entries[w->n], msg);
		if (ret < 0) {
			write_hosts_free(w);
			return errmsg_prefix(
				msg, ret, "write host \"%s\"", rule_quote(text, quoted));
		}
		w->n++;
	}
	write_hosts_compile(w);
	*out = w;
	return 0;
}

void write_hosts_free(struct write_hosts *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->n; i++)
		free(w->entries[i]);
	free(w->entries);
	key_table_free(w->keys);
	free(w->scopes);
	free(w);
}

enum write_match write_hosts_match(const struct write_hosts *w, struct slice name)
{
	struct key_suffixes s;

	key_table_find_suffixes(w->keys, name, &s);
	if (s.whole != KEY_NONE && w->scopes[s.whole] & WRITE_SELF)
		return WRITE_EXACT;
	for (size_t i = 0; i < s.n; i++)
		if (w->scopes[s.below[i]] & WRITE_BELOW)
			return WRITE_WILDCARD;
	return WRITE_NO;
}

size_t write_hosts_count(const struct write_hosts *w)
{
	return w->n;
}

const char *write_hosts_entry(const struct write_hosts *w, size_t i)
{
	REQUIRE(i < w->n);
	return w->entries[i];
}

static bool write_self_allowed(const struct policy *p, struct slice name)
{
	struct netaddr addr;

	if (netaddr_parse(name, &addr))
		return policy_check_addr(p, &addr, 0).allow;
	return policy_check_name(p, name, 0).allow;
}

/* Does policy allow a name below `name` that no exact rule mentions? */
static bool write_probe_allowed(const struct policy *p, struct slice name)
{
	char buf[sizeof(WRITE_PROBE_LABEL) + HOSTNAME_MAX] = WRITE_PROBE_LABEL;
	size_t len = sizeof(WRITE_PROBE_LABEL) - 1;

	memcpy(buf + len, name.p, name.len);
	return policy_check_name(p, slice_make(buf, len + name.len), 0).allow;
}

static bool write_below_allowed(const struct policy *p, struct slice name)
{
	if (write_probe_allowed(p, name))
		return true;
	for (size_t i = 0; i < policy_n_rules(p); i++) {
		const struct rule *r = policy_rule(p, i);
		struct slice target;

		if (!r->allow || !r->target)
			continue;
		target = slice_str(r->target);
		if (hostname_below(target, name) &&
			(r->kind == RULE_NAME ? write_self_allowed(p, target)
					      : write_probe_allowed(p, target)))
			return true;
	}
	return false;
}

const char *write_hosts_not_allowed(const struct write_hosts *w, const struct policy *p)
{
	for (size_t i = 0; i < w->n; i++) {
		struct slice name = write_entry_name(w->entries[i]);
		uint8_t scope = write_entry_scope(w->entries[i]);

		if (!(scope & WRITE_SELF && write_self_allowed(p, name)) &&
			!(scope & WRITE_BELOW && write_below_allowed(p, name)))
			return w->entries[i];
	}
	return NULL;
}
