/* One socket, in clear or under TLS: bytes in, bytes out, back-pressure. Used for clients and
 * origins alike; knows nothing of HTTP.
 *
 * Reading is pulled: after on_readable, and whenever its owner wants more again, the owner calls
 * conn_read until -EAGAIN or until it has enough. Writing is gathered: conn_write any number of
 * times, conn_flush once at the end of what an event caused. What the socket does not take waits in
 * memory of this connection, and on_drained tells when it is gone: until then the owner must not
 * read from the peer (design 6, the one rule of back-pressure). */
#pragma once

#include <sys/types.h>

#include <event2/event_struct.h>

#include "base/slice.h"
#include "proxy/tls_io.h"

struct conn_ops {
	void (*on_readable)(void *arg);
	void (*on_drained)(void *arg);
};

struct conn {
	int fd;
	SSL *ssl;
	struct io *io;
	const struct conn_ops *ops;
	void *arg;
	struct event read_event;
	struct event write_event;
	char *held; /* received and not yet read */
	size_t held_pos, held_len;
	char *pending; /* written and not yet taken by the socket */
	size_t pending_pos, pending_len, pending_cap;
	const char *failure;  /* what went wrong in TLS, for a person; static; NULL: nothing */
	bool bad_certificate; /* it was the origin's certificate */
	int error;            /* first failure of the socket, sticky */
	bool keyed;      /* what is written may hold a key: scratch is wiped when it has gone */
	bool wipes;      /* TLS wipes what was read, and keeps its buffers until conn_spare */
	bool whole;      /* TLS is at the end of a record, as far as it read */
	bool connecting; /* on_drained will tell that connect() is through */
	bool reading;    /* read_event is on */
	bool drained;    /* the last recv came back short: not tried again before the next event */
	bool ended;      /* the peer sent FIN */
	bool tls_ended;  /* the peer sent close_notify */
};

/* Takes fd, which must be non-blocking. Events are off. ops and arg can be set again at any time.
 */
void conn_init(struct conn *c, int fd, struct io *io, struct event_base *base,
	const struct conn_ops *ops, void *arg);
/* Closes, frees what it owns; nothing is flushed. Accepts one that was never opened (fd -1). */
void conn_fini(struct conn *c);

/* Moves an open connection whose events are off into `to`; `from` is as after conn_fini. */
void conn_move(struct conn *from, struct conn *to, struct event_base *base,
	const struct conn_ops *ops, void *arg);

/* From here on everything goes through ssl (ownership moves). Bytes received and not yet read are
 * the first that TLS sees. */
void conn_set_tls(struct conn *c, SSL *ssl);
/* Drives the handshake: 0 done, -EAGAIN, or E_TLS / an errno; c->failure tells. Flushes. */
CHECKED int conn_handshake(struct conn *c);

/* Calls ops->on_readable when there is something, until conn_pause. Asking again costs nothing. */
void conn_want_read(struct conn *c);
void conn_pause(struct conn *c);
/* As conn_want_read, and calls ops->on_readable, later, for bytes that conn_buffered tells of. */
void conn_resume(struct conn *c);
/* Calls ops->on_drained once, when a connect() in progress is through or has failed. */
void conn_want_connect(struct conn *c);

/* At least one byte; -EAGAIN; E_EOF at an orderly end (close_notify, or FIN in clear); -ECONNRESET
 * and others; E_TLS. A FIN without close_notify is E_EOF with !conn_clean_end(). */
CHECKED ssize_t conn_read(struct conn *c, char *buf, size_t len);
/* In clear: receives without giving out; *in is everything held so far, at most max bytes, valid
 * until the next call. 0; E_EOF when nothing more will come; or the socket's error. */
CHECKED int conn_peek(struct conn *c, size_t max, struct slice *in);
/* Puts bytes back in front of what conn_read or TLS will see next (clear connections only). */
void conn_unread(struct conn *c, struct slice bytes);
bool conn_clean_end(const struct conn *c);
/* Bytes were received that conn_read has not given out: no event will tell of them. */
bool conn_buffered(const struct conn *c);

/* From here on what is read and written may hold a key. */
void conn_set_keyed(struct conn *c, bool keyed);
/* Gives back TLS buffers in which nothing waits. Where none are kept it does nothing. */
void conn_spare(struct conn *c);

/* Never fails; a failure of the socket shows at the next conn_flush. */
void conn_write(struct conn *c, struct slice s);
/* Sends what was gathered. 0: all of it is in the socket; -EAGAIN: some waits, on_drained follows;
 * else the connection is broken. */
int conn_flush(struct conn *c);
bool conn_backlogged(const struct conn *c);
/* close_notify and FIN in our direction, behind what is still pending. */
void conn_shutdown(struct conn *c);
