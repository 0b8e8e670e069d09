/* What leases.c and leases_renew.c share. */
#pragma once

#include <sys/queue.h>

#include "base/map.h"
#include "dns/leases.h"

/* Names asked again at a time. */
#define LEASES_REFRESH_OPEN_MAX 4

struct lease {
	struct netaddr addr;
	bool active; /* a connection to it was there at the last look */
	uint64_t end_ms;
};

struct lease_name {
	uint64_t seen_ms;  /* a client asked, or a connection was there */
	uint64_t retry_ms; /* not asked again before */
	uint32_t failures;
	bool asking;
	uint32_t n, cap;
	struct lease *v;
	struct leases *owner;
	size_t name_len;
	char name[];
};

struct lease_refresh;
TAILQ_HEAD(lease_grant_list, lease_grant);
TAILQ_HEAD(lease_refresh_list, lease_refresh);

struct leases {
	struct event_base *base;
	struct forwarder *forwarder;
	const struct judge *judge;
	struct guard_client *guard;
	struct map *names;
	struct pool *pool; /* of struct lease_name and its leases */
	size_t n;
	bool by_port;        /* rules for names list ports */
	uint64_t generation; /* of the policy: what was asked under another one is thrown away */
	struct lease_grant_list grants;
	struct lease_refresh_list refreshes;
	size_t n_refreshes;
	struct event *tick;
	int diag_fd;     /* sock_diag, or -1 */
	void *keep_cell; /* for the next worker; NULL: nothing is kept */
	size_t keep_len;
	uint8_t *keep_room;       /* what is written there is put together here */
	struct event *keep_later; /* pending: something changed */
};

/* As leases_grant_start, but also for addresses that are in force: a fresh timeout for each. */
CHECKED int leases_renew_start(struct leases *l, const struct lease_want *want, lease_cb done,
	void *arg, struct lease_grant **out);
/* May the name be asked for an address? Then *out is for judge_addr. */
CHECKED bool leases_name_judge(const struct leases *l, struct slice name, struct judgement *out);
/* Drops what has run out, and gives back its memory when it was much. */
void leases_sweep(struct leases *l, uint64_t now_ms);
struct lease *lease_find(struct lease_name *ln, const struct netaddr *a);
/* The lease, made if there is none, ends then. Returns its name. */
struct lease_name *lease_put(
	struct leases *l, struct slice name, const struct netaddr *a, uint64_t end_ms);

/* What the tick does, 15 to 45 s after the last one. */
void leases_tick(struct leases *l);
void leases_renew_init(struct leases *l);
void leases_renew_fini(struct leases *l);

/* Something was granted or forgotten. */
void leases_keep_soon(struct leases *l);
void leases_keep_fini(struct leases *l);
