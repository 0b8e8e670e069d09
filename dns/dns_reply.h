/* Writes what the gate says to a client: refusals of its own, and what was kept of an answer. Pure.
 *
 * Names are compressed (RFC 1035 4.1.4), which also gives the client its own spelling of the name
 * back; the message is fitted to what the client takes, with TC where an answer had to be cut. */
#pragma once

#include "dns/dns_msg.h"

/* What we say we take by UDP: passes any path unfragmented (DNS flag day 2020). */
#define DNS_EDNS_SIZE 1232
#define DNS_UDP_MIN 512
/* Replies go over `lo`, whatever the path outside can carry; a client that asks for more can have
 * this much. */
#define DNS_UDP_MAX 4096
#define DNS_EDE_TEXT_MAX 120
/* How long a client may keep a refusal: policy can change at any time. */
#define DNS_REFUSAL_TTL_S 10

/* Extended DNS Errors (RFC 8914); 0, `other`, is told with a text only. */
enum dns_ede {
	DNS_EDE_NONE = -1,
	DNS_EDE_OTHER = 0,
	DNS_EDE_BLOCKED = 15,
	DNS_EDE_FILTERED = 17,
	DNS_EDE_NO_REACHABLE_AUTHORITY = 22,
};

struct dns_reply {
	const struct dns_question *question;
	const struct dns_answer *answer; /* NULL: no records of anybody else */
	uint16_t rcode;                  /* without an answer; else the answer's is taken */
	bool soa;          /* an SOA of ours, so that the refusal is kept for a moment (RFC 2308) */
	enum dns_ede ede;  /* told to clients that sent OPT (RFC 8914 3) */
	struct slice text; /* with ede, cut at DNS_EDE_TEXT_MAX */
	bool tcp;
};

/* Bytes that a reply to this question may have. */
size_t dns_reply_max(const struct dns_question *q, bool tcp);

/* Writes it into buf, which has DNS_MSG_MAX bytes. Returns the length, never above dns_reply_max.
 */
size_t dns_reply_encode(const struct dns_reply *r, uint8_t *buf);
