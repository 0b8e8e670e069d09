/* What the vault does to one exchange: which binding it has, whether a key may go, the head with
 * the key in it, and the search of what comes back. Between exchange (which asks) and vault (which
 * knows keys); keys are lent to the connection's scratch and live nowhere else. */
#pragma once

#include "base/strbuf.h"
#include "policy/reason.h"
#include "proxy/fields.h"
#include "vault/redact.h"
#include "vault/substitute.h"

struct authority;
struct conn;
struct exchange;
struct h1_head;
struct proxy;
struct request_target;
struct vault_view;
struct z_stream_s; /* zlib's */

#define KEYED_BODY_MAX \
	(1u << 20) /* a body with substitutions is collected up to here (reference 5.4) */
/* An encoded answer may unfold to this many times its size, beyond a first part that may be
 * anything. */
#define KEYED_RATIO_MAX 200
#define KEYED_FREE_BYTES (16u << 20)

/* Encoded bytes that wait until all that they unfold to is searched: two records, and room for what
 * unfolds to next to nothing. */
#define KEYED_BEHIND_MAX (3u << 14)

#define KEYED_FACTS_TEXT_MAX 48 /* all of them, with commas */

/* The facts that must agree before a key goes out (design 6); all are in the audit line. */
#define KEYED_FACT_TABLE(X)           \
	X(ADDRESS, "address")         \
	X(SNI, "sni")                 \
	X(CERTIFICATE, "certificate") \
	X(AUTHORITY, "authority")     \
	X(BINDING, "binding")

enum keyed_fact {
#define X(id, name) FACT_##id,
	KEYED_FACT_TABLE(X)
#undef X
		FACT_MAX
};

/* Encoded bytes that wait, and where the text that they unfold to ends. */
struct keyed_part {
	size_t len;
	uint64_t text_end;
};

/* Part of an exchange. */
struct keyed {
	struct vault_view *view;       /* kept from when its head goes out; NULL: no vault */
	const struct binding *binding; /* NULL: this request gets no key */
	bool bound_host;               /* some binding covers the host: answers are searched */
	bool strip;               /* fields with a placeholder that `binding` does not own go */
	bool own_credentials_out; /* credential fields that the binding does not set stay here */
	char facts_text[KEYED_FACTS_TEXT_MAX]; /* those that held, for the line */
	size_t facts_len;
	struct strbuf *body;         /* collected content, when a substitution may change it */
	bool body_whole;             /* all of it is in `body` */
	struct redact_stream redact; /* of the answer's content, when redacting */
	bool redacting;
	struct z_stream_s *inflate; /* an encoded answer is decoded beside the stream, */
	char *unfolded;             /* a record at a time, in locked memory */
	uint64_t inflated, deflated;
	char *behind; /* the bytes of both parts, in locked memory */
	struct keyed_part parts[2];
};

/* When the head was read, before anything is said to it: takes the vault's view for the exchange,
 * and takes keys out of what its line will show. */
void keyed_begin(struct exchange *ex);

/* After admit has allowed the request: binding, placeholders, keys that must not leave. Keys and
 * placeholders of the request's own binding may stand anywhere (a chat history holds them). An
 * allowing reason (the one admit gave), or why not; *detail may be set. */
enum reason keyed_admit(struct exchange *ex, const struct h1_head *h,
	const struct request_target *t, const char **detail);

/* For a head that has waited, for its content or a connection: where the vault was written
 * meanwhile it is judged again, by what is in force now. A key that was taken away goes nowhere any
 * more. As keyed_admit. */
enum reason keyed_renew(struct exchange *ex, const struct h1_head *h, const char **detail);

/* Does the vault in force bind this host? Then its TLS is opened, whatever else is. */
bool keyed_binds(const struct proxy *px, const struct authority *target);

/* Must the request's content be collected before it can be sent? */
bool keyed_wants_body(const struct exchange *ex, const struct h1_head *h);

/* Right before the head is written: do all facts hold? verified: of this very connection. */
bool keyed_proof(struct exchange *ex, bool verified);

/* The head of a request to a bound host, with keys; replaces rewrite_request_head's fields part.
 * Returns the bytes written. */
size_t keyed_write_target(struct exchange *ex, struct conn *c);
size_t keyed_write_fields(struct exchange *ex, const struct fields *f, struct conn *c);
/* A request's trailers: those that may not go out are taken away. There is nobody left to be told.
 */
void keyed_request_trailers(const struct exchange *ex, struct fields *trailers);
/* The collected body's length as sent, and the body. */
uint64_t keyed_body_len(const struct exchange *ex, const struct h1_head *h);
void keyed_write_body(struct exchange *ex, const struct h1_head *h, struct conn *c);

/* An answer's head: overwrites keys in fields and reason, prepares the search of the content.
 * ALLOWED, or ENCODED_ANSWER. */
enum reason keyed_answer(struct exchange *ex, struct h1_head *h);
/* Content: put() gets what may go to the client: nothing that is, or may become, a part of a key.
 * False if a key was found in an encoded answer, or it cannot be decoded: the answer ends. */
bool keyed_content(struct exchange *ex, struct slice content, bool end,
	void (*put)(void *arg, struct slice piece), void *arg);
/* trailers: as they were decoded, pointing into one text in its order; NULL: none. */
void keyed_trailers(struct exchange *ex, struct fields *trailers);

void keyed_fini(struct exchange *ex);
