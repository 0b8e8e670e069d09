/* The gate of the tests, its guard, and what a client does. */
#include "tests/unit/dns/gate.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

/* --- the guard --- */

struct fake_guard guard;

struct guard_call *guard_allow_start(
	struct guard_client *g, const struct guard_lease *v, size_t n, guard_cb done, void *arg)
{
	struct guard_call *c = &guard.calls[guard.n];

	if (guard.refuses)
		return NULL;
	assert_true(n > 0 && n <= GUARD_LEASES_MAX);
	assert_true(guard.n < CALLS_MAX);
	guard.n++;
	c->done = done;
	c->arg = arg;
	c->cancelled = false;
	c->n = n;
	memcpy(c->v, v, n * sizeof(*v));
	return c;
}

void guard_call_cancel(struct guard_call *c)
{
	if (c)
		c->cancelled = true;
}

void guard_ack(int err)
{
	while (guard.n_done < guard.n) {
		struct guard_call *c = &guard.calls[guard.n_done++];

		if (!c->cancelled)
			c->done(err, c->arg);
	}
}

/* --- the fixture --- */

static char suffix_internal[] = "internal";
static char *suffixes[] = {suffix_internal};
static const struct private_names private = {suffixes, 1};

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

static void on_denied(struct slice name, void *arg)
{
	struct fixture *f = arg;

	f->n_denied++;
	assert_true(slice_to_cstr(name, f->denied, sizeof(f->denied)));
}

static int bound(int type, struct sockaddr_storage *ss)
{
	static const struct netaddr v4 = {{[10] = 0xff, 0xff, 127, 0, 0, 1}};
	socklen_t len = netaddr_to_sockaddr(&v4, 0, ss);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)ss, len) == 0);
	assert_true(type != SOCK_STREAM || listen(fd, 8) == 0);
	assert_true(getsockname(fd, (struct sockaddr *)ss, &len) == 0);
	return fd;
}

static void gate_start(struct fixture *f)
{
	const struct forwarder_config forward = {
		.upstreams = &f->upstreams, .timeout_ms = TIMEOUT_MS, .probe_name = SLICE(".")};
	struct errmsg msg;

	assert_int_equal(dns_gate_new(f->base, &forward, &f->config, &f->gate, &msg), 0);
	dns_gate_listen(f->gate, f->udp, DNS_GATE_UDP);
	dns_gate_listen(f->gate, f->tcp, DNS_GATE_TCP);
}

void gate_again(struct fixture *f)
{
	dns_gate_free(f->gate);
	gate_start(f);
}

int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct upstreams *u = &f->upstreams;

	assert_non_null(f);
	memset(&guard, 0, sizeof(guard));
	set_now(f, 1000000);
	f->base = event_base_new();
	assert_true(peer_init(&f->first, f->base, AF_INET));
	assert_true(peer_init(&f->second, f->base, AF_INET));
	u->n = 2;
	u->v[0].addr = u->v[1].addr = fixture_addr("127.0.0.1");
	u->v[0].port = f->first.port;
	u->v[1].port = f->second.port;
	f->config.policy = fixture_policy(false,
		"deny bad.wild.test; allow *.wild.test; allow read.test; allow exact.test; "
		"allow 10.77.0.2; deny evil.cdn.test; allow port.test 22,443");
	f->config.private_names = &private;
	f->config.denied = on_denied;
	f->config.arg = f;
	f->config.guard = (struct guard_client *)f;
	f->udp = bound(SOCK_DGRAM, &f->to);
	f->tcp = bound(SOCK_STREAM, &f->to_tcp);
	gate_start(f);
	f->client = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(
		connect(f->client, (struct sockaddr *)&f->to, sizeof(struct sockaddr_in)), 0);
	*state = f;
	return 0;
}

int teardown(void **state)
{
	struct fixture *f = *state;

	dns_gate_free(f->gate);
	policy_unref(f->config.policy);
	peer_fini(&f->first);
	peer_fini(&f->second);
	event_base_free(f->base);
	close(f->udp);
	close(f->tcp);
	close(f->client);
	free(f);
	return 0;
}

/* --- what a client does --- */

void send_wire(struct fixture *f, const struct wire *w)
{
	assert_int_equal(send(f->client, w->b, w->len, 0), (ssize_t)w->len);
}

void ask(struct fixture *f, const char *name, unsigned type)
{
	struct wire w;

	wire_init(&w, 0x1234, DNS_RD);
	wire_question(&w, name, type);
	send_wire(f, &w);
}

void ask_edns(struct fixture *f, const char *name, unsigned type, unsigned size)
{
	struct wire w;

	wire_init(&w, 0x1234, DNS_RD);
	wire_question(&w, name, type);
	wire_opt(&w, size, 0, false);
	send_wire(f, &w);
}

/* False if nothing has come within ms. */
bool reply_within(struct fixture *f, unsigned ms)
{
	uint64_t end = real_ms() + ms;
	ssize_t n;

	for (;;) {
		n = recv(f->client, f->reply, sizeof(f->reply), 0);
		if (n >= 0)
			break;
		if (real_ms() >= end)
			return false;
		event_base_loop(f->base, EVLOOP_NONBLOCK);
		usleep(200);
	}
	f->reply_len = (size_t)n;
	assert_int_equal(
		dns_answer_decode(slice_make((char *)f->reply, f->reply_len), &f->answer), 0);
	assert_int_equal(f->answer.id, 0x1234);
	return true;
}

void run_until_calls(struct fixture *f, size_t n)
{
	uint64_t end = real_ms() + GUARD_MS;

	while (guard.n < n) {
		assert_true(real_ms() < end);
		event_base_loop(f->base, EVLOOP_NONBLOCK);
		usleep(200);
	}
}

/* The addresses of the reply, with their TTL, or the rcode. */
void check_reply(struct fixture *f, const char *want)
{
	char text[NETADDR_TEXT_MAX];
	struct netaddr a;
	struct strbuf got;
	size_t i;

	strbuf_init(&got, 4096);
	if (f->answer.rcode != 0)
		strbuf_printf(&got, "rcode %u", f->answer.rcode);
	for (i = 0; i < f->answer.n; i++) {
		if (f->answer.v[i].section != DNS_ANSWER ||
			!dns_record_addr(&f->answer, &f->answer.v[i], &a))
			continue;
		netaddr_text(&a, text);
		strbuf_printf(&got, "%s%s", got.len > 0 ? " " : "", text);
	}
	assert_string_equal(strbuf_cstr(&got), want);
	strbuf_fini(&got);
}

/* One question whose answer needs no lease, or whose leases are acknowledged. */
void check_ask(struct fixture *f, const char *name, unsigned type, const char *want)
{
	uint64_t end = real_ms() + GUARD_MS;

	ask(f, name, type);
	while (!reply_within(f, 1)) {
		guard_ack(0);
		if (real_ms() > end)
			fail_msg("%s: no reply", name);
	}
	check_reply(f, want);
}

size_t n_of_type(const struct fixture *f, enum dns_section section, unsigned type)
{
	size_t n = 0;
	size_t i;

	for (i = 0; i < f->answer.n; i++)
		n += f->answer.v[i].section == section && f->answer.v[i].type == type;
	return n;
}
