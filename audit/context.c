/* Labels to the text that lines carry. */
#include "audit/context.h"

#include "audit/event_json.h"
#include "base/strbuf.h"

static void context_put(struct strbuf *out, struct slice s)
{
	char text[6 * AUDIT_CONTEXT_MAX + 2];

	/* Every byte takes one at least. */
	if (s.len > AUDIT_CONTEXT_MAX)
		out->full = true;
	else
		strbuf_add(out, slice_make(text, event_json_string(text, s)));
}

int context_set(
	struct context *c, const struct context_label *labels, size_t n_labels, struct errmsg *msg)
{
	char text[AUDIT_CONTEXT_MAX + 1];
	struct strbuf out;

	strbuf_init_fixed(&out, text, sizeof(text));
	for (size_t i = 0; i < n_labels; i++) {
		if (labels[i].name.len == 0)
			return errmsg_set(msg, E_VALUE, "a label has an empty name");
		strbuf_char(&out, i == 0 ? '{' : ',');
		context_put(&out, labels[i].name);
		strbuf_char(&out, ':');
		context_put(&out, labels[i].value);
	}
	if (n_labels > 0)
		strbuf_char(&out, '}');
	if (out.full)
		return errmsg_set(msg, E_LIMIT,
			"the labels take more than %d bytes in a line: expected fewer or shorter "
			"ones",
			AUDIT_CONTEXT_MAX);
	c->len = (uint16_t)out.len;
	if (out.len > 0)
		memcpy(c->text, text, out.len);
	return 0;
}
