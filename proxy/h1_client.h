/* HTTP/1.1 towards the client: reads requests, hands them to exchanges, writes what comes back. */
#pragma once

#include "proxy/conn.h"
#include "proxy/exchange.h"
#include "proxy/h1.h"

enum h1_client_state {
	H1_CLIENT_HEAD, /* between requests, or inside a head */
	H1_CLIENT_BODY, /* content of the request comes in */
	H1_CLIENT_WAIT, /* the request is whole, the response under way */
	H1_CLIENT_OVER, /* no further request */
	H1_CLIENT_STATE_MAX
};

struct h1_client {
	struct session *session;
	struct exchange *ex;
	enum h1_client_state state;
	struct h1_body body;
	char *saved; /* plaintext received and not used: part of a head, or what follows a request
		      */
	size_t saved_len, saved_cap;
	size_t scanned;
	bool readable; /* an event said so, and nothing was read since */
	bool running;  /* inside h1_client_run: do not go in again */
	bool again;    /* something changed meanwhile */
	bool keep_alive;
	bool http_1_0;
	bool is_head;
	bool response_chunked;
	bool client_ended; /* FIN or close_notify came; the exchange under way is still answered */
	uint32_t n_requests;
};

void h1_client_init(struct h1_client *h, struct session *s);
void h1_client_fini(struct h1_client *h);

/* Bytes may be wanted again: the start, the next request, more content. The session may be gone
 * when this returns. */
void h1_client_run(struct h1_client *h);
/* An event says that bytes came, or the client's end. The session may be gone when this returns. */
void h1_client_readable(struct h1_client *h);
/* The connection took everything that was pending. */
void h1_client_drained(struct h1_client *h);
/* The session's deadline passed. */
void h1_client_late(struct h1_client *h);
