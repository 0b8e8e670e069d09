/* A resolver in a real event loop, against two scripted DNS servers of the test itself. The clock
 * of the cache is set by hand; only timeouts and the grace pass in real time. */
#pragma once

#include "dns/resolver.h"
#include "tests/unit/dns/peer.h"

#define FIXTURE_TIMEOUT_MS 240 /* of each resolver; in rounds of 80 and 160 */

struct fixture {
	struct event_base *base;
	struct peer first;
	struct peer second;
	struct resolver *resolver;
	uint64_t now_ms;
};

struct waiter {
	struct fixture *f;
	unsigned runs;
	int err;
	size_t n;
	struct netaddr addrs[RESOLVER_ADDRS_MAX];
	struct resolve *cancel; /* cancelled by the callback */
	bool free_resolver;     /* by the callback */
	const char *then;       /* looked up by the callback, told to next */
	struct waiter *next;
};

extern bool fixture_route_v6;                 /* what the probe for an IPv6 route finds */
extern unsigned fixture_n_probes;             /* how often it was asked */
extern const struct peer_row fixture_both[1]; /* 1.0.0.1 1.0.0.2 2::1 for every name, 60 s */

/* For cmocka; *state is the fixture. With and without an IPv6 route. */
int fixture_setup(void **state);
int fixture_setup_v4(void **state);
int fixture_teardown(void **state);

uint64_t real_ms(void);
void set_now(struct fixture *f, uint64_t ms);

/* Runs the loop for real time; used where nothing must happen, or something in the background. */
void run_ms(struct fixture *f, unsigned ms);
/* Runs the loop until the waiter was told; fails after five seconds. */
void run_until(struct fixture *f, const struct waiter *w);

/* The callback of start(), for tests that call resolve_start themselves. */
void on_fixture_answer(const struct resolve_answer *answer, void *arg);
struct resolve *start(struct fixture *f, const char *name, struct waiter *w);

void check_addrs(const struct netaddr *addrs, size_t n, const char *want);
/* One whole lookup. want: the addresses in their order, or "" with an error. */
void check_lookup(struct fixture *f, const char *name, int err, const char *want);
/* The same, and it takes at most so long; of five tries one must, as the machine may be busy. Each
 * try moves the clock so far that nothing is in the cache any more. */
void check_lookup_within(
	struct fixture *f, const char *name, int err, const char *want, uint64_t max_ms);

bool is_found(struct fixture *f, const char *name);
void check_found(struct fixture *f, const char *name, int err, const char *want);
/* The answer of the name just looked up is kept exactly so long. */
void check_kept_ms(struct fixture *f, const char *name, uint64_t ms);
