/* Our own answers. The text names what was refused, by which rule, and what would allow it; host
 * and method are canonical or tokens by now, or left out, so nothing a client wrote is reflected.
 */
#include "proxy/reply.h"

#include "audit/audit.h"
#include "base/strbuf.h"
#include "proxy/session.h"

#define REPLY_TEXT_MAX 1024

#define BY_RULE "an allow rule for this host in the policy would allow it"
/* Of addresses no rule before it helps, and of the operator's none at all. */
#define BY_NO_DENIAL "without this rule, and with one that allows it, it would pass"
#define BY_ADDRESS "an IP or CIDR rule for the address in the policy would allow it"
#define BY_EXACT_HOST                                                           \
	("an exact entry in AGENTIC_WRITE_HOSTS, or EGRESS_PRIVATE_NAMES with " \
	 "a CIDR rule, would allow it")
#define BY_BINDING \
	"a credential binding for host, method and path, or EGRESS_UNBOUND_WRITES, would allow it"
#define BY_WRITE_HOST "naming the host in AGENTIC_WRITE_HOSTS would allow it"

static const char *const reply_remedies[REASON_MAX] = {
	[REASON_HOST_NOT_LISTED] = BY_RULE,
	[REASON_DENIED] = BY_NO_DENIAL,
	[REASON_ADDRESS_NOT_LISTED] = BY_ADDRESS,
	[REASON_ADDRESS_REFUSED] = BY_ADDRESS,
	[REASON_PORT_NOT_ALLOWED] = "a rule that lists this port would allow it",
	[REASON_METHOD_NOT_READ] = BY_WRITE_HOST,
	[REASON_READ_WITH_CONTENT] = BY_WRITE_HOST,
	[REASON_READ_WITH_UPGRADE] = BY_WRITE_HOST,
	[REASON_METHOD_OVERRIDE] = BY_WRITE_HOST,
	[REASON_CANNOT_INSPECT] = BY_WRITE_HOST,
	[REASON_BINDING_AMBIGUOUS] = "bindings that do not overlap would allow it",
	[REASON_PATH_AMBIGUOUS] = "use a path without dot segments and encoded separators",
	[REASON_WRITE_WITHOUT_BINDING] = BY_BINDING,
	[REASON_PLACEHOLDER_FOR_OTHER_HOST] = "a binding for this host would allow it",
	[REASON_KEY_TO_UNBOUND_HOST] = "use the placeholder in place of the key",
	[REASON_IDENTITY_UNPROVEN] = "an origin whose certificate is verified would get it",
	[REASON_REBINDING_WRITE] = BY_EXACT_HOST,
	[REASON_ABOVE_CEILING] = "only the operator's EGRESS_POLICY_CEILING_FILE can allow it",
	[REASON_SANDBOX_CLOSED] = "a sandbox that runs and has not expired would be let",
	[REASON_NAME_MISMATCH] = "use one name in CONNECT, SNI and Host",
};

const char *reply_remedy(enum reason r)
{
	return reply_remedies[r];
}

/* What the status line says: the refusals' phrase is part of the contract. */
static struct slice reply_phrase(int status)
{
	switch (status) {
	case 400:
		return SLICE("Bad Request");
	case 403:
		return SLICE("blocked");
	case 408:
		return SLICE("Request Timeout");
	case 417:
		return SLICE("Expectation Failed");
	case 431:
		return SLICE("Request Header Fields Too Large");
	case 502:
		return SLICE("Bad Gateway");
	case 503:
		return SLICE("Service Unavailable");
	case 504:
		return SLICE("Gateway Timeout");
	default:
		return SLICE("Internal Server Error");
	}
}

static void reply_sentence(const struct exchange *ex, struct strbuf *b)
{
	const char *remedy = reply_remedy(ex->reason);

	if (ex->target.name_len > 0) {
		if (ex->method.len > 0 && ex->method.len <= H1_METHOD_MAX)
			strbuf_printf(b, "%.*s ", SLICE_FMT(ex->method));
		strbuf_printf(b, "%s:%u: ", ex->target.name, ex->target.port);
	}
	strbuf_str(b, reason_text(ex->reason));
	if (ex->detail)
		strbuf_printf(b, " (%s)", ex->detail);
	/* which rule: one of the policy's where reach was refused, else the read-only rule itself
	 */
	if (remedy && strcmp(remedy, BY_WRITE_HOST) == 0)
		strbuf_str(b, "; read-only rule");
	else if (remedy && ex->reason != REASON_NAME_MISMATCH && ex->rule_len > 0)
		strbuf_printf(b, "; %.*s", (int)ex->rule_len, ex->rule);
	if (remedy)
		strbuf_printf(b, "; %s", remedy);
}

/* Only an Accept that names a JSON type gets JSON; a wildcard gets text. */
static bool reply_wants_json(const struct exchange *ex)
{
	struct slice rest = ex->accept, member;

	while (field_list_next(&rest, &member)) {
		struct slice type = slice_strip(slice_first(member, slice_find_char(member, ';')));

		if (slice_ieq(type, SLICE("application/json")) ||
			(type.len > 5 && slice_ieq(slice_from(type, type.len - 5), SLICE("+json"))))
			return true;
	}
	return false;
}

static void json_string(struct strbuf *b, struct slice s)
{
	strbuf_char(b, '"');
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c == '"' || c == '\\')
			strbuf_printf(b, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			strbuf_printf(b, "\\u%04x", c);
		else
			strbuf_char(b, (char)c);
	}
	strbuf_char(b, '"');
}

static struct slice reply_body(struct exchange *ex, int status, bool json)
{
	struct strbuf sentence, body;
	struct slice out;

	strbuf_init(&sentence, REPLY_TEXT_MAX);
	strbuf_init(&body, 2 * REPLY_TEXT_MAX);
	strbuf_printf(&sentence, "%d %.*s: ", status, SLICE_FMT(reply_phrase(status)));
	reply_sentence(ex, &sentence);
	if (json) {
		strbuf_printf(&body, "{\"code\":\"%s\",\"message\":", reason_name(ex->reason));
		json_string(&body, strbuf_slice(&sentence));
		strbuf_str(&body, "}\n");
	} else {
		strbuf_add(&body, strbuf_slice(&sentence));
		strbuf_char(&body, '\n');
	}
	out = arena_dup(&ex->arena, strbuf_slice(&body));
	strbuf_fini(&sentence);
	strbuf_fini(&body);
	return out;
}

static void reply_field(struct fields *f, const char *name, struct slice value)
{
	f->v[f->n++] = (struct field){slice_str(name), value, FIELD_OTHER};
}

/* The line, before the answer that names it. */
static void reply_record(struct exchange *ex, char id[AUDIT_ID_LEN + 1])
{
	struct audit_event e;

	exchange_event(ex, &e);
	proxy_tell_denied(ex->px, ex->reason, &ex->target);
	if (!ex->slot) {
		audit_note(ex->px->audit, &e, id);
		return;
	}
	memcpy(id, audit_slot_id(ex->slot), AUDIT_ID_LEN + 1);
	audit_end(ex->px->audit, ex->slot, &e);
	ex->slot = NULL;
}

void reply_send(struct exchange *ex)
{
	struct h1_head *h = &ex->px->response;
	struct fields *f = &h->fields;
	int status = reason_status(ex->reason);
	bool json = reply_wants_json(ex);
	struct slice body;
	char id[AUDIT_ID_LEN + 1];

	REQUIRE(status != 0);
	body = reply_body(ex, status, json);
	ex->own_answer = true;
	ex->answered = true;
	ex->status = (uint16_t)status;
	ex->down = ex->is_head ? 0 : body.len;
	reply_record(ex, id);
	h->status = (uint16_t)status;
	h->reason = reply_phrase(status);
	h->framing = ex->is_head ? H1_NO_CONTENT : H1_LENGTH;
	h->length = body.len;
	f->n = 0;
	f->seen = 0;
	reply_field(f, "Content-Type",
		json ? SLICE("application/json") : SLICE("text/plain; charset=utf-8"));
	reply_field(f, "X-Content-Type-Options", SLICE("nosniff"));
	reply_field(f, "X-Egress-Verdict", status < 500 ? SLICE("blocked") : SLICE("failed"));
	reply_field(f, "X-Egress-Reason", slice_str(reason_name(ex->reason)));
	reply_field(f, "X-Egress-Decision", slice_make(id, AUDIT_ID_LEN));
	if (status == 503)
		reply_field(f, "Retry-After", SLICE("1"));
	ex->ops->head(ex->driver, h);
	if (!ex->is_head)
		ex->ops->body(ex->driver, body);
	ex->ops->end(ex->driver, NULL);
}
