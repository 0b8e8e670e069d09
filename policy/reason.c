/* Texts of the reason table; each function is one column of it. */
#include "policy/reason.h"

static const struct {
	const char *name;
	const char *text;
	int status;
} reasons[] = {
#define X(id, status, name, text) [REASON_##id] = {name, text, status},
	REASON_TABLE(X)
#undef X
};

const char *reason_name(enum reason r)
{
	REQUIRE((size_t)r < ARRAY_LEN(reasons));
	return reasons[r].name;
}

const char *reason_text(enum reason r)
{
	REQUIRE((size_t)r < ARRAY_LEN(reasons));
	return reasons[r].text;
}

int reason_status(enum reason r)
{
	REQUIRE((size_t)r < ARRAY_LEN(reasons));
	return reasons[r].status;
}
