/* What the loop tests share: a real proxy on a real event loop, an origin's listening socket, and
 * scripted peers at both ends, in clear or under TLS. The clock stands still until bed_pass; names
 * are static, so there is no DNS; the audit trail goes into memory and can be read at the end. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "proxy/proxy.h"
#include "proxy/session.h"

#define BED_TRAIL_MAX 262144
#define PEER_IN_MAX 65536

struct bed {
	struct event_base *base;
	struct resolver *resolver;
	struct audit *audit;
	void *area;
	int trail_fd;
	struct proxy *px;
	struct proxy_config config;
	uint64_t now_ms;
	int listen_fd; /* the origin's, on 127.0.0.1 */
	uint16_t port;
	char trail[BED_TRAIL_MAX]; /* after bed_close */
};

/* A scripted end of a connection; `in` holds what came and was not expected yet. */
struct peer {
	int fd;
	SSL *ssl;
	bool ended;  /* FIN or close_notify */
	bool broken; /* a reset, or FIN without close_notify */
	size_t len;
	char in[PEER_IN_MAX + 1];
};

/* cmocka group fixtures: keys and certificates, once. */
int bed_setup_pki(void **state);
int bed_teardown_pki(void **state);

/* rules: "deny a.test; deny 10.0.0.0/8 80,443", before those that allow *.test and 127.0.0.0/8.
 * Names that resolve stand in bed.c. */
struct bed *bed_new(const char *rules);
/* After a change of bed->config. */
void bed_configure(struct bed *b);
void bed_set_policy(struct bed *b, bool default_allow, const char *rules);
void bed_set_write_hosts(struct bed *b, const char *list);
void bed_set_pass_through(struct bed *b, const char *list);
/* Ends the proxy and the trail; b->trail holds the lines then. */
void bed_close(struct bed *b);
void bed_free(struct bed *b);
/* Runs the loop until nothing is left to do. */
void bed_turn(struct bed *b);
/* The same, and waits the moment that loopback TCP may take to deliver. */
void bed_settle(struct bed *b);
/* Moves the clock and sweeps the deadlines, then turns. */
void bed_pass(struct bed *b, uint64_t ms);
/* A listening socket on 127.0.0.<host>, with that port or (0) any; *port is set. */
int bed_listen(unsigned int host, uint16_t *port);

/* Lines of the trail after bed_close; each of the texts must stand in line n (from 0). */
size_t bed_n_lines(const struct bed *b);
void bed_check_line(const struct bed *b, size_t n, const char *const texts[]);
#define BED_LINE(b, n, ...) bed_check_line(b, n, (const char *const[]){__VA_ARGS__, NULL})

/* A client of the proxy on one end of a socket pair. */
struct session *peer_client(struct bed *b, struct peer *p);
struct session *peer_redirected(struct bed *b, struct peer *p, const char *addr, uint16_t port);
/* Waits for a connection to the origin. */
void peer_accept(struct bed *b, struct peer *p);
void peer_accept_on(struct bed *b, struct peer *p, int listen_fd);
bool peer_nobody_connects(struct bed *b);
/* TLS: as the client (SNI name, or NULL), as the origin (certificate for the .test names). */
void peer_tls_connect(struct bed *b, struct peer *p, const char *name);
void peer_tls_accept(struct bed *b, struct peer *p);
void peer_tls_start(struct peer *p, const char *name); /* for a handshake by hand */
void peer_tls_finish(struct bed *b, struct peer *p);
SSL_CTX *bed_origin_ctx(void);
SSL_CTX *bed_client_ctx(void);

void peer_send(struct bed *b, struct peer *p, const char *text);
void peer_send_bytes(struct bed *b, struct peer *p, const char *bytes, size_t len);
/* Beside TLS, if there is any. At most what the socket takes. */
void peer_send_raw(struct bed *b, struct peer *p, const char *bytes, size_t len);
/* Exactly these bytes come next. */
void peer_expect(struct bed *b, struct peer *p, const char *text);
void peer_expect_bytes(struct bed *b, struct peer *p, const char *bytes, size_t len);
/* Everything up to and with `end` comes next; NUL-terminated, to be freed. */
char *peer_until(struct bed *b, struct peer *p, const char *end);
/* A head comes next, and it begins with `begin`. */
void peer_expect_head(struct bed *b, struct peer *p, const char *begin);
/* The next bytes are these, after a head that begins with `begin`. */
void peer_expect_answer(struct bed *b, struct peer *p, const char *begin, const char *body);
void peer_expect_nothing(struct bed *b, struct peer *p);
void peer_expect_end(struct bed *b, struct peer *p);    /* FIN or close_notify */
void peer_expect_broken(struct bed *b, struct peer *p); /* cut off */
/* Receives what is there, up to PEER_IN_MAX. */
void peer_receive(struct peer *p);
void peer_shutdown(struct bed *b, struct peer *p); /* FIN, after close_notify under TLS */
void peer_close(struct bed *b, struct peer *p);
void peer_reset(struct bed *b, struct peer *p); /* closes with RST */
