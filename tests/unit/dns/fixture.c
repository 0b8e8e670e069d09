/* A resolver, two scripted DNS servers and an event loop, for the tests of this folder. */
#include "tests/unit/dns/fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "dns/upstreams.h"

#define GUARD_MS 5000 /* a test that waits longer has failed */

bool fixture_route_v6;
unsigned fixture_n_probes;

const struct peer_row fixture_both[1] = {
	{.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.1 1.0.0.2 2::1", .ttl = 60},
};

int __real_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len);

/* Only our own objects come here, c-ares does not: this is the probe for an IPv6 route. */
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	if (addr->sa_family != AF_INET6)
		return __real_connect(fd, addr, len);
	fixture_n_probes++;
	errno = ENETUNREACH;
	return fixture_route_v6 ? 0 : -1;
}

uint64_t real_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void set_now(struct fixture *f, uint64_t ms)
{
	f->now_ms = ms;
	clock_fake(ms * 1000, 1);
}

static int fixture_setup_with(void **state, bool v6)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct upstreams u = {.n = 2};
	struct errmsg msg;

	assert_non_null(f);
	fixture_route_v6 = v6;
	fixture_n_probes = 0;
	set_now(f, 1000000);
	f->base = event_base_new();
	assert_true(peer_init(&f->first, f->base, AF_INET));
	assert_true(peer_init(&f->second, f->base, AF_INET));
	assert_true(netaddr_parse(SLICE("127.0.0.1"), &u.v[0].addr));
	u.v[1].addr = u.v[0].addr;
	u.v[0].port = f->first.port;
	u.v[1].port = f->second.port;
	assert_int_equal(resolver_new(f->base, &u, FIXTURE_TIMEOUT_MS, &f->resolver, &msg), 0);
	*state = f;
	return 0;
}

int fixture_setup(void **state)
{
	return fixture_setup_with(state, true);
}

int fixture_setup_v4(void **state)
{
	return fixture_setup_with(state, false);
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;

	resolver_free(f->resolver);
	peer_fini(&f->first);
	peer_fini(&f->second);
	event_base_free(f->base);
	free(f);
	return 0;
}

static void on_guard(evutil_socket_t fd, short what, void *arg)
{
	*(bool *)arg = true;
}

/* Runs the loop for real time; used where nothing must happen, or something in the background. */
void run_ms(struct fixture *f, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
	bool over = false;

	event_base_once(f->base, -1, EV_TIMEOUT, on_guard, &over, &tv);
	while (!over)
		event_base_loop(f->base, EVLOOP_ONCE);
}

void run_until(struct fixture *f, const struct waiter *w)
{
	uint64_t end = real_ms() + GUARD_MS;

	while (w->runs == 0) {
		if (real_ms() > end)
			fail_msg("no answer in %d ms", GUARD_MS);
		event_base_loop(f->base, EVLOOP_ONCE);
	}
}

void on_fixture_answer(const struct resolve_answer *answer, void *arg)
{
	struct waiter *w = arg;
	size_t i;

	w->runs++;
	w->err = answer->err;
	w->n = answer->n;
	for (i = 0; i < answer->n; i++)
		w->addrs[i] = answer->addrs[i];
	resolve_cancel(w->cancel);
	if (w->then)
		start(w->f, w->then, w->next);
	if (w->free_resolver) {
		resolver_free(w->f->resolver);
		w->f->resolver = NULL;
	}
}

struct resolve *start(struct fixture *f, const char *name, struct waiter *w)
{
	struct resolve *q;

	w->f = f;
	q = resolve_start(f->resolver, slice_str(name), on_fixture_answer, w);
	assert_int_equal(w->runs, 0);
	return q;
}

void check_addrs(const struct netaddr *addrs, size_t n, const char *want)
{
	char text[NETADDR_TEXT_MAX];
	struct strbuf got;
	size_t i;

	strbuf_init(&got, 4096);
	for (i = 0; i < n; i++) {
		netaddr_text(&addrs[i], text);
		strbuf_printf(&got, "%s%s", i > 0 ? " " : "", text);
	}
	assert_string_equal(strbuf_cstr(&got), want);
	strbuf_fini(&got);
}

/* One whole lookup. want: the addresses in their order, or "" with an error. */
void check_lookup(struct fixture *f, const char *name, int err, const char *want)
{
	struct waiter w = {.runs = 0};

	start(f, name, &w);
	run_until(f, &w);
	assert_int_equal(w.runs, 1);
	if (w.err != err)
		fail_msg("%s: %d (%s)", name, w.err, err_text(w.err));
	check_addrs(w.addrs, w.n, want);
}

void check_lookup_within(
	struct fixture *f, const char *name, int err, const char *want, uint64_t max_ms)
{
	uint64_t begin;
	unsigned i;

	for (i = 0; i < 5; i++) {
		set_now(f, f->now_ms + 1000000);
		begin = real_ms();
		check_lookup(f, name, err, want);
		if (real_ms() - begin <= max_ms)
			return;
	}
	fail_msg("%s: never within %u ms", name, (unsigned)max_ms);
}

bool is_found(struct fixture *f, const char *name)
{
	struct resolve_answer answer;

	return resolver_find(f->resolver, slice_str(name), &answer);
}

void check_found(struct fixture *f, const char *name, int err, const char *want)
{
	struct resolve_answer answer;

	assert_true(resolver_find(f->resolver, slice_str(name), &answer));
	assert_int_equal(answer.err, err);
	check_addrs(answer.addrs, answer.n, want);
}

/* The answer of the name just looked up is kept exactly so long. */
void check_kept_ms(struct fixture *f, const char *name, uint64_t ms)
{
	uint64_t from = f->now_ms;

	set_now(f, from + ms - 1);
	assert_true(is_found(f, name));
	set_now(f, from + ms);
	assert_false(is_found(f, name));
}
