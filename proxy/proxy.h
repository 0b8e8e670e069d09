/* The proxy as the worker sees it: what it is given, and its life. Inside the folder, struct proxy
 * is what every connection hangs from. */
#pragma once

#include <sys/queue.h>

#include "policy/check.h"
#include "policy/read_only.h"
#include "proxy/deadline.h"
#include "proxy/h1.h"
#include "proxy/tls_io.h"

struct audit;
struct authority;
struct event_base;
struct exchange;
struct map;
struct resolver;
struct secmem;
struct session;
struct tls;
struct upstream;
struct vault;

#define PROXY_EXTRA_PORTS_MAX 15
#define PROXY_LISTENERS_MAX 4

/* A placeholder in target or fields towards a host where nothing binds it. */
enum proxy_placeholders {
	PROXY_PLACEHOLDERS_DENY,
	PROXY_PLACEHOLDERS_STRIP,
	PROXY_PLACEHOLDERS_PASS
};

enum proxy_intercept { PROXY_INTERCEPT_ALL, PROXY_INTERCEPT_BOUND, PROXY_INTERCEPT_OFF };

/* What decides and limits; replaced as a whole when the configuration changes. Borrowed pointers
 * are the worker's and outlive the proxy's use of them (proxy_configure swaps). */
struct proxy_config {
	struct policy *policy; /* the proxy takes its own reference */
	bool read_only;
	bool git_fetch;
	const struct write_hosts *write_hosts;
	const struct write_hosts *pass_through;
	const struct private_names *private_names;
	enum proxy_intercept intercept;
	struct vault *vault; /* NULL: none */
	enum proxy_placeholders placeholders;
	bool unbound_writes; /* writes to a bound write host that no binding matches */
	uint16_t extra_ports[PROXY_EXTRA_PORTS_MAX];
	size_t n_extra_ports;
	uint32_t head_timeout_ms;
	uint32_t handshake_timeout_ms;
	uint32_t client_idle_ms;
	uint32_t connect_timeout_ms;
	uint32_t first_byte_ms;
	uint32_t stream_idle_ms;
	uint32_t upstream_idle_ms;
	uint32_t max_connections; /* 0: by the descriptor limit */
	/* Of others of this process who must be served when sessions have used up the rest. */
	size_t reserved_descriptors;
	bool keep_running; /* what runs is not judged again when this comes into force */
	/* A name was refused, in normal form; NULL: nobody asks. */
	void (*denied)(void *arg, struct slice name);
	void *denied_arg;
};

TAILQ_HEAD(session_list, session);
TAILQ_HEAD(upstream_list, upstream);

struct proxy {
	struct event_base *base;
	struct io *io;
	struct tls *tls;
	struct resolver *resolver;
	struct audit *audit;
	struct secmem *secmem; /* for what may hold a key: scratch, plaintext of origins */
	struct proxy_config config;
	uint64_t epoch; /* grows with each configuration; TLS sessions of clients are bound to it */
	struct deadlines deadlines;
	struct session_list sessions;
	size_t n_sessions;
	struct map *pool;               /* idle upstream connections by name, port and scheme */
	struct upstream_list upstreams; /* all of them, the pool's least recently used first */
	size_t n_idle;
	size_t descriptors;     /* for sessions and their origins: two of them each, or idle ones */
	struct exchange *spare; /* one freed exchange, kept warm for the next */
	struct listener *listeners[PROXY_LISTENERS_MAX];
	size_t n_listeners;
	int diag_fd;            /* sock_diag, for the uid of clients; -1: not known */
	struct h1_head request; /* of the exchange whose head is being handled right now */
	struct h1_head response;
};

/* All borrowed; they must outlive the proxy. secmem: NULL where there will be no vault. */
CHECKED int proxy_new(struct event_base *base, struct tls *tls, struct resolver *resolver,
	struct audit *audit, struct secmem *secmem, struct proxy **out);
/* The policy, the rule and the limits from here on. Exchanges and tunnels that could not reach
 * their target now end (POLICY_CHANGED); what the others ask is not judged again. */
void proxy_configure(struct proxy *px, const struct proxy_config *config);
/* For a change of the vault that finds no locked memory: who holds requests open must not be able
 * to keep a key in force. Ends the exchanges that began under another vault than the one in force,
 * and with `all` each one that holds keys (KEY_MEMORY). Not to be called from inside an exchange.
 * Returns how many ended. */
size_t proxy_free_keys(struct proxy *px, bool all);
/* Serves a listening socket, which stays the caller's. At most PROXY_LISTENERS_MAX. */
void proxy_listen(struct proxy *px, int fd);
/* Nothing ran for this long: limits wait as much longer, and kept connections to origins are given
 * up, since those may have ended them. */
void proxy_thaw(struct proxy *px, uint64_t ms);
/* No new connections; those that are between requests end. */
void proxy_drain(struct proxy *px);
/* Connections that still have an exchange or a tunnel. */
size_t proxy_busy(const struct proxy *px);
/* For those who refuse: tells whoever asked to be told, where the reason is the name. target: NULL
 * where none was named. */
void proxy_tell_denied(const struct proxy *px, enum reason reason, const struct authority *target);
/* Ends every connection (audit lines say SHUTDOWN) and frees. */
void proxy_free(struct proxy *px);
