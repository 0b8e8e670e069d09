/* Texts of error codes, and messages that explain a failure to a person.
 *
 * Every folder returns these codes. require_failed() lives here too: it is the end of the one kind
 * of error that is not returned. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const err_texts[] = {
#define X(name, text) [(name)-ERR_BASE] = (text),
	ERR_TABLE(X)
#undef X
};

const char *err_text(int code)
{
	static _Thread_local char buf[128];

	if (code == 0)
		return "no error";
	if (code > ERR_BASE && code < ERR_END)
		return err_texts[code - ERR_BASE];
	if (code < 0 && code > ERR_BASE)
		return strerror_r(-code, buf, sizeof(buf));
	return "an unknown error code";
}

int errmsg_set(struct errmsg *m, int code, const char *fmt, ...)
{
	va_list ap;

	if (!m)
		return code;
	va_start(ap, fmt);
	if (vsnprintf(m->text, sizeof(m->text), fmt, ap) < 0)
		m->text[0] = '\0';
	va_end(ap);
	return code;
}

int errmsg_prefix(struct errmsg *m, int code, const char *fmt, ...)
{
	char before[sizeof(m->text)];
	va_list ap;
	size_t before_len;
	size_t keep;

	if (!m)
		return code;
	/* Two bytes are held back for ": ", so a long prefix is cut and not its separator. */
	va_start(ap, fmt);
	if (vsnprintf(before, sizeof(before) - 2, fmt, ap) < 0)
		before[0] = '\0';
	va_end(ap);
	before_len = strlen(before);
	memcpy(before + before_len, ": ", 2);
	before_len += 2;

	keep = strnlen(m->text, sizeof(m->text) - 1);
	if (keep > sizeof(m->text) - 1 - before_len)
		keep = sizeof(m->text) - 1 - before_len;
	memmove(m->text + before_len, m->text, keep);
	memcpy(m->text, before, before_len);
	m->text[before_len + keep] = '\0';
	return code;
}

void require_failed(const char *expr, const char *file, int line)
{
	(void)fprintf(stderr, "%s:%d: requirement failed: %s\n", file, line, expr);
	abort();
}
