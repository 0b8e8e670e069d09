/* The rows of the settings, found by name. Nothing here knows a value. Used by settings.c and
 * settings_env.c, and by main.c for --help. */
#include <stdlib.h>

#include "base/arena.h"
#include "control/settings_int.h"

#define NAME_MAX_LEN 96 /* longer names are nearest to nothing in particular */

static const struct setting_row setting_rows[SETTING_MAX] = {
#define X(id, kind, key, env, def, meaning) [SETTING_##id] = {kind, key, env, def, meaning},
	SETTINGS_TABLE(X)
#undef X
};

#define UP "OPENSANDBOX_EGRESS_"

static const struct setting_other_row setting_others[] = {
	{OTHER_NO_EFFECT, UP "REDIRECT_BACKEND",
		"redirects are always made with nftables, and mode proxy has none"},
	{OTHER_NO_EFFECT, UP "MITMPROXY_UPSTREAM_EXTRA_CA",
		"roots for origins are those of upstream_trust alone"},
	{OTHER_NO_EFFECT, UP "MITMPROXY_PASSTHROUGH_HOSTS",
		"EGRESS_PASS_THROUGH names the hosts that are not decrypted"},
	{OTHER_NO_EFFECT, UP "MITMPROXY_SHADOW", "every decision is in the audit trail"},
	{OTHER_NO_EFFECT, UP "CREDENTIAL_VAULT_REDACT_RESPONSE_BODY",
		"keys are always taken out of answers"},
	{OTHER_NO_EFFECT, UP "EXPERIMENTAL_REVISION_RUNTIME",
		"a change always counts from the next request on"},
	{OTHER_NO_EFFECT, UP "REVISION_TLS_CAPACITY",
		"a change always counts from the next request on"},
	{OTHER_NO_EFFECT, UP "REVISION_REQUEST_CAPACITY",
		"a change always counts from the next request on"},
	{OTHER_NO_EFFECT, UP "REVISION_DRAIN_TIMEOUT_SECONDS",
		"a change always counts from the next request on"},
	{OTHER_NO_EFFECT, UP "METRICS_EXTRA_ATTRS", "no metrics are exported"},
	{OTHER_NO_EFFECT, "OTEL_EXPORTER_OTLP_ENDPOINT", "no metrics are exported"},
	{OTHER_NO_EFFECT, UP "PENDING_PUSH_TTL", "for a profile that does not exist here"},
	{OTHER_NO_EFFECT, "OPENSANDBOX_LOG_OUTPUT", "the log goes to stderr"},
	{OTHER_NO_EFFECT, "OPENSANDBOX_CREDENTIAL_PROXY_SOCKET", "vault and proxy are one process"},
	{OTHER_REFUSED, UP "MITMPROXY_SCRIPT", NULL},
	{OTHER_REFUSED, UP "UPSTREAM_PROXY", NULL},
	{OTHER_REFUSED, UP "UPSTREAM_PROXY_AUTH", NULL},
	{OTHER_REFUSED, UP "PROFILE", NULL},
};

const struct setting_row *setting_row(enum setting_id id)
{
	return &setting_rows[id];
}

const struct setting_other_row *setting_other_row(size_t i)
{
	return i < ARRAY_LEN(setting_others) ? &setting_others[i] : NULL;
}

int setting_find_env(struct slice name)
{
	int id;

	for (id = 0; id < SETTING_MAX; id++) {
		if (slice_eq(name, slice_str(setting_rows[id].env)))
			return id;
	}
	return -1;
}

int setting_find_key(const char *key)
{
	int id;

	for (id = 0; id < SETTING_MAX; id++) {
		if (setting_rows[id].key && strcmp(key, setting_rows[id].key) == 0)
			return id;
	}
	return -1;
}

const struct setting_other_row *setting_find_other_env(struct slice name)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(setting_others); i++) {
		if (slice_eq(name, slice_str(setting_others[i].env)))
			return &setting_others[i];
	}
	/* Whatever it says about a proxy to go through: we would not. */
	if (slice_starts(name, SLICE(UP "UPSTREAM_PROXY")))
		return setting_find_other_env(SLICE(UP "UPSTREAM_PROXY"));
	return NULL;
}

/* Levenshtein's distance with one row kept. */
static unsigned setting_distance(struct slice a, struct slice b)
{
	unsigned row[NAME_MAX_LEN + 1];
	unsigned corner;
	unsigned above;
	unsigned best;
	size_t i;
	size_t j;

	a = slice_first(a, NAME_MAX_LEN);
	b = slice_first(b, NAME_MAX_LEN);
	for (j = 0; j <= b.len; j++)
		row[j] = (unsigned)j;
	for (i = 1; i <= a.len; i++) {
		corner = row[0];
		row[0] = (unsigned)i;
		for (j = 1; j <= b.len; j++) {
			above = row[j];
			best = corner + (ascii_lower(a.p[i - 1]) != ascii_lower(b.p[j - 1]));
			if (above + 1 < best)
				best = above + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
			corner = above;
		}
	}
	return row[b.len];
}

/* Without the part that says whose it is, which people mix up. */
static struct slice setting_bare(struct slice name)
{
	static const char *const owners[] = {UP, "EGRESS_", "AGENTIC_"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(owners); i++) {
		if (slice_starts(name, slice_str(owners[i])))
			return slice_from(name, strlen(owners[i]));
	}
	return name;
}

bool setting_has_other_owner(struct slice name)
{
	struct slice bare = setting_bare(name);
	int id;

	for (id = 0; id < SETTING_MAX; id++) {
		if (slice_eq(bare, setting_bare(slice_str(setting_rows[id].env))))
			return true;
	}
	return false;
}

static void setting_nearer(unsigned d, const char *candidate, unsigned *least, const char **nearest)
{
	if (d >= *least)
		return;
	*least = d;
	*nearest = candidate;
}

const char *setting_nearest_env(struct slice name)
{
	struct slice bare = setting_bare(name);
	const char *nearest = setting_rows[0].env;
	unsigned least = UINT32_MAX;
	const char *env;
	size_t i;

	for (i = 0; i < SETTING_MAX; i++) {
		env = setting_rows[i].env;
		setting_nearer(setting_distance(bare, setting_bare(slice_str(env))), env, &least,
			&nearest);
		if (setting_rows[i].key)
			setting_nearer(setting_distance(bare, slice_str(setting_rows[i].key)), env,
				&least, &nearest);
		/* A word of it, which is enough to know what was meant. */
		if (bare.len >= 4 && slice_find(slice_str(env), bare) < strlen(env))
			setting_nearer(1, env, &least, &nearest);
	}
	for (i = 0; i < ARRAY_LEN(setting_others); i++) {
		env = setting_others[i].env;
		setting_nearer(setting_distance(bare, setting_bare(slice_str(env))), env, &least,
			&nearest);
	}
	return nearest;
}

const char *setting_nearest_key(const char *key)
{
	const char *nearest = setting_rows[0].key;
	unsigned least = UINT32_MAX;
	size_t i;

	for (i = 0; i < SETTING_MAX; i++) {
		if (setting_rows[i].key)
			setting_nearer(
				setting_distance(slice_str(key), slice_str(setting_rows[i].key)),
				setting_rows[i].key, &least, &nearest);
	}
	return nearest;
}

static const char *setting_other_text(enum setting_other what)
{
	switch (what) {
	case OTHER_NO_EFFECT:
		return "accepted with a warning: no effect: ";
	case OTHER_REFUSED:
		return "refused when set: ignoring it would weaken what was asked for";
	}
	return "";
}

/* `name`, or a dash for a name that is not there. */
static void setting_print_name(struct strbuf *out, const char *name)
{
	if (name)
		strbuf_printf(out, "`%s`", name);
	else
		strbuf_str(out, "-");
}

void settings_print_table(struct strbuf *out)
{
	size_t i;

	strbuf_str(out, "| YAML | environment | default | meaning |\n| --- | --- | --- | --- |\n");
	for (i = 0; i < SETTING_MAX; i++) {
		strbuf_str(out, "| ");
		setting_print_name(out, setting_rows[i].key);
		strbuf_printf(out, " | `%s` | %s | %s |\n", setting_rows[i].env,
			setting_rows[i].def, setting_rows[i].meaning);
	}
	for (i = 0; i < ARRAY_LEN(setting_others); i++) {
		strbuf_printf(out, "| - | `%s` | - | %s%s |\n", setting_others[i].env,
			setting_other_text(setting_others[i].what),
			setting_others[i].why ? setting_others[i].why : "");
	}
}

/* Words of text after a first one, wrapped and indented; backquotes are for Markdown and stay out.
 */
static void setting_print_wrapped(struct strbuf *out, const char *first, const char *text)
{
	struct slice rest = slice_str(text);
	size_t column = 12 + strlen(first);
	struct slice word;
	size_t i;

	strbuf_printf(out, "            %s", first);
	while (rest.p) {
		word = slice_cut(&rest, ' ');
		if (column + 1 + word.len > 78) {
			strbuf_str(out, "\n            ");
			column = 12;
		} else if (column > 12) {
			strbuf_char(out, ' ');
			column++;
		}
		for (i = 0; i < word.len; i++) {
			if (word.p[i] != '`')
				strbuf_char(out, word.p[i]);
		}
		column += word.len;
	}
	strbuf_char(out, '\n');
}

void settings_print_help(struct strbuf *out)
{
	size_t i;

	for (i = 0; i < SETTING_MAX; i++) {
		if (setting_rows[i].key)
			strbuf_printf(out, "      %s, ", setting_rows[i].key);
		else
			strbuf_str(out, "      ");
		strbuf_printf(out, "%s\n", setting_rows[i].env);
		setting_print_wrapped(out, "default:", setting_rows[i].def);
		setting_print_wrapped(out, "", setting_rows[i].meaning);
	}
}
