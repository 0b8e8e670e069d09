/* An event as bounded plain bytes, and as the text of a line.
 *
 * event_rec is what survives a crash: no pointers, secrets masked, each text cut at its limit. The
 * line is made from it; ring adds `v`, `seq` and `prev` around the text. The context is kept beside
 * it, since it does not change while an exchange is open. */
#pragma once

#include "audit/event.h"
#include "audit/url_clean.h"

#define EVENT_HOST_MAX 255 /* a name in normal form has at most 253 bytes */
#define EVENT_VIA_MAX 16
#define EVENT_ALPN_MAX 16
#define EVENT_BINDING_MAX 64
#define EVENT_PROOF_MAX 48
#define EVENT_SANDBOX_MAX 128
#define EVENT_CUT_MARK "\xe2\x80\xa6" /* ends a text that was cut */
#define EVENT_CUT_MARK_LEN (sizeof(EVENT_CUT_MARK) - 1)

/* Order of the texts in event_rec. */
enum event_text {
	EVENT_METHOD,
	EVENT_URL,
	EVENT_HOST,
	EVENT_VIA,
	EVENT_ALPN,
	EVENT_RULE,
	EVENT_BINDING,
	EVENT_PROOF,
	EVENT_AGENT,
	EVENT_TEXT_MAX
};

#define EVENT_TEXT_BYTES                                                                      \
	(URL_CLEAN_MAX + EVENT_HOST_MAX + AUDIT_METHOD_MAX + EVENT_VIA_MAX + EVENT_ALPN_MAX + \
		AUDIT_RULE_MAX + AUDIT_AGENT_MAX + EVENT_BINDING_MAX + EVENT_PROOF_MAX +      \
		8 * EVENT_CUT_MARK_LEN)

struct event_rec {
	uint64_t start_us;
	uint64_t up, down, ms;
	uint64_t revision;
	uint32_t uid;
	uint32_t count;
	uint16_t port;
	uint16_t status;
	uint8_t kind, verdict, reason, has_addr;
	struct netaddr addr;
	uint16_t len[EVENT_TEXT_MAX];
	char text[EVENT_TEXT_BYTES]; /* the texts, one after the other */
};

/* Copies the event; only the bytes that it needs are written. */
void event_rec_set(struct event_rec *r, const struct audit_event *e);

/* An escaped byte takes at most six; the rest is names, numbers and punctuation. */
#define EVENT_JSON_MAX (6 * (EVENT_TEXT_BYTES + EVENT_SANDBOX_MAX) + AUDIT_CONTEXT_MAX + 672)

/* Writes `"ts":...` to `"user_agent":...`, and `,"count":N` after it for a count above 1: all of a
 * line that neither depends on its number nor on the line before it. id: AUDIT_ID_LEN characters.
 * sandbox: at most EVENT_SANDBOX_MAX bytes of it are used. context: as audit/context.h writes it,
 * or empty. Returns the length. */
size_t event_json_body(char buf[EVENT_JSON_MAX], const struct event_rec *r, const char *id,
	struct slice sandbox, struct slice context);

/* One text as a line has it, with its quotes, also if it is empty: 6 * s.len + 2 bytes at most.
 * Returns the length. */
size_t event_json_string(char *buf, struct slice s);

const char *event_kind_name(enum audit_kind kind);
const char *event_verdict_name(enum audit_verdict verdict);
