/* The environment: which variables are ours, and which must be refused (design 2). Before it:
 * settings.c, which has read the file; what is set here wins.
 *
 * A misspelt name of ours must never mean "not set": it could mean that everything may be written.
 */
#include <stdio.h>
#include <stdlib.h>

#include "control/settings_int.h"

#define NO_EFFECT_MAX 4096 /* each known name once */

const char *settings_env_get(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; *env; env++) {
		if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
			return *env + len + 1;
	}
	return NULL;
}

static bool settings_env_upper(struct slice s)
{
	size_t i;

	for (i = 0; i < s.len; i++) {
		if (!ascii_digit(s.p[i]) && s.p[i] != '_' && (s.p[i] < 'A' || s.p[i] > 'Z'))
			return false;
	}
	return s.len > 0;
}

/* What follows X_PORT_ in a variable of a Kubernetes service: 80_TCP, 80_TCP_PORT and so on. */
static bool settings_env_service_port(struct slice s)
{
	static const char *const ends[] = {"TCP", "UDP", "SCTP", "TCP_PROTO", "UDP_PROTO",
		"SCTP_PROTO", "TCP_PORT", "UDP_PORT", "SCTP_PORT", "TCP_ADDR", "UDP_ADDR",
		"SCTP_ADDR"};
	struct slice number = slice_cut(&s, '_');
	uint64_t port;
	size_t i;

	if (!slice_to_u64(number, &port) || !s.p)
		return false;
	for (i = 0; i < ARRAY_LEN(ends); i++) {
		if (slice_eq(s, slice_str(ends[i])))
			return true;
	}
	return false;
}

/* Kubernetes tells every pod about the services of its namespace; one named `egress` gives
 * EGRESS_SERVICE_HOST, EGRESS_PORT=tcp://... The value is looked at too, so that a misspelt
 * EGRESS_INBOUND_PORT=80 is still found. */
static bool settings_env_service(struct slice name, struct slice value)
{
	size_t at = slice_find(name, SLICE("_SERVICE_PORT"));
	struct slice rest;

	if (slice_ends(name, SLICE("_SERVICE_HOST")))
		return true;
	if (at < name.len) {
		rest = slice_from(name, at + SLICE("_SERVICE_PORT").len);
		return rest.len == 0 ||
			(rest.p[0] == '_' && settings_env_upper(slice_from(rest, 1)));
	}
	if (slice_ends(name, SLICE("_PORT")) && slice_find(value, SLICE("://")) < value.len)
		return true;
	at = slice_find(name, SLICE("_PORT_"));
	return at < name.len &&
		settings_env_service_port(slice_from(name, at + SLICE("_PORT_").len));
}

static int settings_env_unknown(struct settings_run *run, struct slice name)
{
	struct slice shown = slice_first(name, 100);
	const char *nearest = setting_nearest_env(name);

	/* OPENSANDBOX_EGRESS_READ_ONLY=true asks for the rule as clearly as its own name does. */
	if (slice_starts(name, SLICE("OPENSANDBOX_EGRESS_")) && !setting_has_other_owner(name)) {
		settings_warn(run,
			"%.*s: unknown variable, no effect: expected a known one like %s",
			SLICE_FMT(shown), nearest);
		return 0;
	}
	return errmsg_set(run->msg, E_UNKNOWN, "%.*s: unknown variable: expected %s or unset",
		SLICE_FMT(shown), nearest);
}

static void settings_env_no_effect(struct settings *s, struct slice name)
{
	struct strbuf text;

	strbuf_init(&text, NO_EFFECT_MAX);
	if (s->no_effect)
		strbuf_printf(&text, "%s, ", s->no_effect);
	strbuf_add(&text, name);
	free(s->no_effect);
	s->no_effect = settings_text_dup(strbuf_slice(&text));
	strbuf_fini(&text);
}

static int settings_env_other(struct settings_run *run, const struct setting_other_row *other,
	struct slice name, struct slice value)
{
	struct slice shown = slice_first(name, 100);

	if (value.len == 0)
		return 0; /* the replaced image reads empty as not set */
	switch (other->what) {
	case OTHER_NO_EFFECT:
		settings_warn(run, "%.*s: no effect: %s", SLICE_FMT(shown), other->why);
		settings_env_no_effect(run->s, shown);
		return 0;
	case OTHER_REFUSED:
		return errmsg_set(run->msg, E_VALUE,
			"%.*s: not supported, and ignoring it would weaken what it asks for: "
			"expected unset",
			SLICE_FMT(shown));
	}
	return 0;
}

static void settings_env_take(struct settings_run *run, enum setting_id id, struct slice value)
{
	struct setting_value *v = &run->v[id];

	free(v->text);
	v->set = true;
	v->tree = NULL;
	v->text = settings_text_dup(value);
	(void)snprintf(v->source, sizeof(v->source), "%s", setting_row(id)->env);
}

/* True for a name that is ours to judge: a misspelt one is an error or a warning. */
static bool settings_env_ours(struct slice name)
{
	return slice_starts(name, SLICE("AGENTIC_")) || slice_starts(name, SLICE("EGRESS_")) ||
		slice_starts(name, SLICE("OPENSANDBOX_EGRESS_"));
}

static int settings_env_one(struct settings_run *run, struct slice name, struct slice value)
{
	const struct setting_other_row *other;
	const struct setting_row *row;
	int id = setting_find_env(name);

	if (id < 0) {
		other = setting_find_other_env(name);
		if (other)
			return settings_env_other(run, other, name, value);
		if (!settings_env_ours(name) || settings_env_service(name, value))
			return 0;
		return settings_env_unknown(run, name);
	}
	row = setting_row((enum setting_id)id);
	if (value.len == 0 && row->kind != KIND_LIST) {
		if (slice_starts(name, SLICE("OPENSANDBOX_")))
			return 0; /* as above */
		return errmsg_set(
			run->msg, E_VALUE, "%s: empty: expected a value or unset", row->env);
	}
	if (value.len == 0 && slice_starts(name, SLICE("OPENSANDBOX_")))
		return 0;
	settings_env_take(run, (enum setting_id)id, value);
	return 0;
}

/* The first of two variables with one name counts, as for getenv. */
static bool settings_env_again(char *const *env, size_t i, struct slice name)
{
	size_t k;

	for (k = 0; k < i; k++) {
		if (strncmp(env[k], name.p, name.len) == 0 && env[k][name.len] == '=')
			return true;
	}
	return false;
}

int settings_env_read(struct settings_run *run)
{
	char *const *env = run->src->environ;
	struct slice value;
	struct slice name;
	size_t i;
	int ret;

	for (i = 0; env && env[i]; i++) {
		value = slice_str(env[i]);
		name = slice_cut(&value, '=');
		if (!value.p ||
			!(settings_env_ours(name) || slice_starts(name, SLICE("OPENSANDBOX_")) ||
				setting_find_other_env(name)))
			continue;
		if (settings_env_again(env, i, name))
			continue;
		ret = settings_env_one(run, name, value);
		if (ret < 0)
			return ret;
	}
	return 0;
}
