/* The labels of whoever uses the sandbox, as lines of the audit trail carry them: which run, which
 * conversation. Pure. Before it: the API has read them; after it: audit keeps the text and every
 * slot takes it along. */
#pragma once

#include "audit/event.h"
#include "base/err.h"

/* The shortest label is `"a":""` and a comma, or a brace. */
#define CONTEXT_LABELS_MAX ((AUDIT_CONTEXT_MAX - 1) / 7)

struct context {
	uint16_t len; /* 0: none */
	char text[AUDIT_CONTEXT_MAX];
};

struct context_label {
	struct slice name; /* valid UTF-8, as is the value */
	struct slice value;
};

/* A JSON object of strings in the order given, with the escapes of every text in a line; without
 * labels it is none. E_VALUE: a name is empty. E_LIMIT: the text is longer than AUDIT_CONTEXT_MAX
 * bytes. The message says which. */
CHECKED int context_set(
	struct context *c, const struct context_label *labels, size_t n_labels, struct errmsg *msg);
