/* Lines to rules. Before it: a file's text, whole; after it: policy_merge puts the rules in front
 * of the others. */
#include "policy/policy_file.h"

#include "policy/policy_int.h"

static const struct slice policy_file_mark = {"\xef\xbb\xbf", 3}; /* UTF-8's byte order mark */

static int policy_file_line(
	struct slice line, enum policy_file_kind kind, struct rule *out, struct errmsg *msg)
{
	const struct rule_source src = {.where = "",
		.action = kind == POLICY_FILE_DENY ? SLICE("deny") : SLICE("allow"),
		.target = line};
	char quoted[RULE_QUOTE_MAX];
	int ret;

	if (line.len > POLICY_FILE_LINE_MAX)
		return errmsg_set(msg, E_LIMIT, "longer than %d bytes", POLICY_FILE_LINE_MAX);
	if (slice_find_char(line, '\0') < line.len)
		return errmsg_set(msg, E_SYNTAX, "a NUL byte");
	ret = rule_decode(&src, out, msg);
	if (ret == 0 && kind == POLICY_FILE_LOG_SKIP && out->kind == RULE_CIDR) {
		rule_fini(out);
		return errmsg_set(msg, E_VALUE, "target \"%s\": an address; write host names only",
			rule_quote(line, quoted));
	}
	return ret;
}

size_t policy_file_decode(
	struct slice text, enum policy_file_kind kind, struct rule_list *out, struct errmsg *msg)
{
	struct errmsg why = {""};
	size_t n_bad = 0;
	size_t number = 0;
	struct rule r;

	if (slice_starts(text, policy_file_mark))
		text = slice_from(text, policy_file_mark.len);
	while (text.p) {
		struct slice line = slice_strip(slice_cut(&text, '\n'));

		number++;
		if (line.len == 0 || line.p[0] == '#')
			continue;
		if (policy_file_line(line, kind, &r, &why) == 0)
			rule_list_add(out, &r);
		else if (n_bad++ == 0)
			(void)errmsg_set(msg, E_VALUE, "line %zu: %s", number, why.text);
	}
	return n_bad;
}
