/* Decodes lines of the audit trail. */
#include "ctl/audit_record.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

static const char *const audit_columns[] = {
#define X(id, name) name,
	AUDIT_COLUMN_TABLE(X)
#undef X
};

const char *audit_column_name(enum audit_column c)
{
	REQUIRE((unsigned int)c < ARRAY_LEN(audit_columns));
	return audit_columns[c];
}

static int audit_record_cell(
	struct audit_record *r, enum audit_column c, const json_t *value, struct errmsg *msg)
{
	int n;

	if (c == AUDIT_COLUMN_CONTEXT && !json_is_null(value)) {
		r->context = json_is_object(value) ? json_dumps(value, JSON_COMPACT) : NULL;
		if (!r->context)
			return errmsg_set(
				msg, E_SYNTAX, "field context is neither object nor null");
		r->cell[c] = slice_str(r->context);
		return 0;
	}
	switch (json_typeof(value)) {
	case JSON_STRING:
		r->cell[c] = slice_make(json_string_value(value), json_string_length(value));
		return 0;
	case JSON_INTEGER:
		n = snprintf(r->number[c], sizeof(r->number[c]), "%" JSON_INTEGER_FORMAT,
			json_integer_value(value));
		r->cell[c] = slice_make(r->number[c], (size_t)n);
		return 0;
	case JSON_NULL:
		return 0;
	case JSON_OBJECT:
	case JSON_ARRAY:
	case JSON_REAL:
	case JSON_TRUE:
	case JSON_FALSE:
		break;
	}
	return errmsg_set(
		msg, E_SYNTAX, "field %s is neither text, number nor null", audit_column_name(c));
}

static int audit_record_need(const struct audit_record *r, struct errmsg *msg)
{
	static const enum audit_column needed[] = {AUDIT_COLUMN_SEQ, AUDIT_COLUMN_TS,
		AUDIT_COLUMN_KIND, AUDIT_COLUMN_VERDICT, AUDIT_COLUMN_REASON};

	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (r->cell[needed[i]].len == 0)
			return errmsg_set(msg, E_SYNTAX, "the line has no field %s",
				audit_column_name(needed[i]));
	return 0;
}

int audit_record_decode(struct slice line, struct audit_record *r, struct errmsg *msg)
{
	char ts[CLOCK_TEXT_MAX];
	json_error_t error;
	int ret = 0;

	r->context = NULL;
	r->root = json_loadb(line.p, line.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	for (int c = 0; c < AUDIT_COLUMN_MAX; c++)
		r->cell[c] = SLICE_EMPTY;
	if (!r->root)
		return errmsg_set(msg, E_SYNTAX, "the line is no JSON: %s, column %d", error.text,
			error.column);
	if (!json_is_object(r->root))
		return errmsg_set(msg, E_SYNTAX, "the line is no JSON object");
	for (int c = 0; ret == 0 && c < AUDIT_COLUMN_MAX; c++) {
		const json_t *value = json_object_get(r->root, audit_columns[c]);

		if (value)
			ret = audit_record_cell(r, (enum audit_column)c, value, msg);
	}
	if (ret == 0)
		ret = audit_record_need(r, msg);
	if (ret == 0 &&
		(!slice_to_cstr(r->cell[AUDIT_COLUMN_TS], ts, sizeof(ts)) ||
			!clock_parse(ts, &r->start_us)))
		ret = errmsg_set(msg, E_SYNTAX, "field ts is no time");
	return ret;
}

void audit_record_fini(struct audit_record *r)
{
	json_decref(r->root);
	free(r->context);
	r->root = NULL;
	r->context = NULL;
}
