/* A DNS server for tests, in the event base of the test: UDP and TCP on one ephemeral port of
 * 127.0.0.1 or ::1, answers by a table of rows, every question counted. */
#pragma once

#include "base/attr.h"
#include "base/slice.h"

#define PEER_PORTS_MAX 1024
#define PEER_HELD UINT32_MAX /* as delay_ms: until peer_release */

enum peer_act {
	PEER_ANSWER, /* addrs, behind a CNAME for each word of cnames */
	PEER_NXDOMAIN,
	PEER_SERVFAIL,
	PEER_REFUSED,
	PEER_SILENT,
	PEER_TRUNCATED,      /* TC and nothing else by UDP, the answer by TCP */
	PEER_FORMERR_EDNS,   /* FORMERR without OPT to a question with OPT, else the answer */
	PEER_GARBAGE,        /* bytes that are no message, of several lengths */
	PEER_WRONG_ID,       /* the answer under another id */
	PEER_WRONG_QUESTION, /* the answer to another name */
	PEER_RDLENGTH_FFFF,
	PEER_RDLENGTH_3,
	PEER_ANCOUNT_FFFF,
	PEER_CNAME_LOOP, /* a CNAME whose target points into itself */
	PEER_OTHER_CASE, /* the answer, with the question in capitals */
};

enum peer_type { PEER_ANY = 0, PEER_A = 1, PEER_AAAA = 28 };

/* The first row that fits is used; none: NOERROR without answers. */
struct peer_row {
	const char *name; /* "*": every name */
	enum peer_type type;
	enum peer_act act;
	const char *addrs;  /* separated by blanks; only those of the type asked are sent */
	const char *cnames; /* separated by blanks */
	uint32_t ttl;
	uint32_t cname_ttl;
	uint32_t delay_ms;
	uint32_t lose;         /* the first questions after peer_script are not answered */
	uint32_t delay_spread; /* the delay grows by 0 to spread - 1, in turn */
	uint32_t ttl_step;     /* each address has so much less than the one before */
};

struct peer_conn;
struct peer_reply;
struct event;
struct event_base;

struct peer {
	struct event_base *base;
	int udp;
	int tcp;
	uint16_t port;
	struct event *on_udp;
	struct event *on_tcp;
	struct peer_conn *conns;
	struct peer_reply *late; /* replies with a delay */
	const struct peer_row *rows;
	size_t n_rows;
	/* What was seen. */
	size_t n_questions;
	size_t n_tcp;
	size_t n_edns;
	uint16_t edns_size;
	char last_name[256];
	size_t n_ports; /* different source ports of UDP questions */
	uint16_t ports[PEER_PORTS_MAX];
};

/* On the loopback address of the family. False, and nothing to end, if there is none. */
CHECKED bool peer_init(struct peer *p, struct event_base *base, int family);
void peer_fini(struct peer *p);
/* Replaces the table and forgets what was seen. */
void peer_script(struct peer *p, const struct peer_row *rows, size_t n);
/* Sends the replies that are held. */
void peer_release(struct peer *p);
