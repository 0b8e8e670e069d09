/* The table of parts. Before it: worker, guard client, resolvers tell; after it: the API answers.
 */
#include "control/health.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define HEALTH_STARTING "starting"

static const char *const health_parts[HEALTH_PART_MAX] = {
#define X(id, text) [HEALTH_##id] = (text),
	HEALTH_TABLE(X)
#undef X
};

void health_init(struct health *h)
{
	memset(h, 0, sizeof(*h));
	health_set(h, HEALTH_START, HEALTH_FAILED, HEALTH_STARTING);
}

void health_ok(struct health *h, enum health_part part)
{
	h->state[part] = HEALTH_OK;
	h->cause[part][0] = '\0';
}

void health_set(
	struct health *h, enum health_part part, enum health_state state, const char *fmt, ...)
{
	va_list ap;

	REQUIRE(state == HEALTH_DEGRADED || state == HEALTH_FAILED);
	h->state[part] = state;
	va_start(ap, fmt);
	(void)vsnprintf(h->cause[part], sizeof(h->cause[part]), fmt, ap);
	va_end(ap);
}

enum health_state health_state(const struct health *h)
{
	enum health_state worst = HEALTH_OK;

	for (int i = 0; i < HEALTH_PART_MAX; i++)
		if (h->state[i] > worst)
			worst = h->state[i];
	return worst;
}

const char *health_cause(const struct health *h)
{
	enum health_state worst = health_state(h);

	for (int i = 0; worst != HEALTH_OK && i < HEALTH_PART_MAX; i++)
		if (h->state[i] == worst)
			return h->cause[i];
	return "";
}

bool health_starting(const struct health *h)
{
	return strcmp(health_cause(h), HEALTH_STARTING) == 0;
}

const char *health_state_text(enum health_state state)
{
	switch (state) {
	case HEALTH_UNUSED:
		return "unused";
	case HEALTH_OK:
		return "ok";
	case HEALTH_DEGRADED:
		return "degraded";
	case HEALTH_FAILED:
	case HEALTH_STATE_MAX:
		break;
	}
	return "failed";
}

static json_t *health_state_json(enum health_state state, const char *cause)
{
	json_t *doc = json_pack("{s:s}", "state", health_state_text(state));
	json_t *text = cause[0] ? json_string(cause) : NULL;

	if (text)
		json_object_set_new(doc, "cause", text);
	return doc;
}

json_t *health_json(const struct health *h)
{
	json_t *doc = health_state_json(health_state(h), health_cause(h));
	json_t *parts = json_object();

	for (int i = 0; i < HEALTH_PART_MAX; i++)
		if (h->state[i] != HEALTH_UNUSED)
			json_object_set_new(parts, health_parts[i],
				health_state_json(h->state[i], h->cause[i]));
	json_object_set_new(doc, "parts", parts);
	return doc;
}
