/* The DNS gate alone, for tests/e2e/dns_gate.py and measurements: a real loop and real sockets, a
 * guard that says yes to everything and prints what it was asked.
 *
 *     dns-gate ADDRESS PORT RESOLVERS POLICY [TIMEOUT_MS PROBE_S]
 *
 * It prints `ready` when it serves, `lease ADDRESS SECONDS` for each lease, `denied NAME`, and at
 * SIGTERM `stats ...`. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/log.h"
#include "dns/dns_gate.h"
#include "dns/upstreams.h"
#include "nft/guard_client.h"
#include "policy/policy_json.h"

struct guard_client {
	struct event_base *base;
	bool quiet;
};

struct guard_call {
	struct event *later;
	guard_cb done;
	void *arg;
};

static void on_guard_later(evutil_socket_t fd, short what, void *arg)
{
	struct guard_call *c = arg;
	guard_cb done = c->done;
	void *done_arg = c->arg;

	guard_call_cancel(c);
	done(0, done_arg);
}

struct guard_call *guard_allow_start(
	struct guard_client *g, const struct guard_lease *v, size_t n, guard_cb done, void *arg)
{
	static const struct timeval at_once = {0, 0};
	struct guard_call *c = xcalloc(1, sizeof(*c));
	char text[NETADDR_TEXT_MAX];
	size_t i;

	c->done = done;
	c->arg = arg;
	c->later = evtimer_new(g->base, on_guard_later, c);
	REQUIRE(c->later && evtimer_add(c->later, &at_once) == 0);
	for (i = 0; i < n && !g->quiet; i++) {
		netaddr_text(&v[i].addr, text);
		printf("lease %s %u\n", text, v[i].seconds);
	}
	return c;
}

void guard_call_cancel(struct guard_call *c)
{
	if (!c)
		return;
	event_free(c->later);
	free(c);
}

static void on_denied(struct slice name, void *arg)
{
	const struct guard_client *g = arg;

	if (!g->quiet)
		printf("denied %.*s\n", SLICE_FMT(name));
}

static void on_term(evutil_socket_t fd, short what, void *arg)
{
	event_base_loopbreak(arg);
}

static int listener(const char *addr, const char *port, int type)
{
	struct sockaddr_storage ss;
	struct netaddr a;
	uint64_t p = 0;
	int room = 4 << 20;
	int one = 1;
	socklen_t len;
	int fd;

	if (!netaddr_parse(slice_str(addr), &a) || !slice_to_u64(slice_str(port), &p))
		exit(2);
	len = netaddr_to_sockaddr(&a, (uint16_t)p, &ss);
	fd = socket(ss.ss_family, type | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, type == SOCK_DGRAM ? SO_RCVBUF : SO_REUSEADDR,
		type == SOCK_DGRAM ? &room : &one, sizeof(int));
	if (fd < 0 || bind(fd, (struct sockaddr *)&ss, len) < 0 ||
		(type == SOCK_STREAM && listen(fd, 128) < 0)) {
		perror("listen");
		exit(1);
	}
	return fd;
}

static void stats_print(const struct dns_gate_stats *s)
{
	printf("stats queries=%llu malformed=%llu denied=%llu no_data=%llu forwarded=%llu "
	       "failed=%llu refused_addrs=%llu granted=%llu overloaded=%llu unsent=%llu\n",
		(unsigned long long)s->queries, (unsigned long long)s->malformed,
		(unsigned long long)s->denied, (unsigned long long)s->no_data,
		(unsigned long long)s->forwarded, (unsigned long long)s->failed,
		(unsigned long long)s->refused_addrs, (unsigned long long)s->granted,
		(unsigned long long)s->overloaded, (unsigned long long)s->unsent);
}

int main(int argc, char **argv)
{
	struct forwarder_config forward = {.timeout_ms = 2000, .probe_name = SLICE(".")};
	struct private_names private = {NULL, 0};
	struct guard_client guard = {.base = event_base_new()};
	struct dns_gate_config config = {
		.private_names = &private, .guard = &guard, .denied = on_denied, .arg = &guard};
	struct upstreams upstreams;
	struct errmsg msg = {""};
	struct dns_gate *gate;
	struct event *term;
	uint64_t number;
	int udp, tcp;

	if (argc != 5 && argc != 7)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	guard.quiet = argc == 7 && strcmp(argv[6], "0") == 0;
	log_setup(guard.quiet ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, STDERR_FILENO, "dns-gate");
	if (argc == 7 && slice_to_u64(slice_str(argv[5]), &number))
		forward.timeout_ms = (uint32_t)number;
	if (argc == 7 && slice_to_u64(slice_str(argv[6]), &number))
		forward.probe_interval_s = (uint32_t)number;
	forward.upstreams = &upstreams;
	if (upstreams_decode(slice_str(argv[3]), &upstreams, &msg) < 0 ||
		policy_json_decode(slice_str(argv[4]), 0, &config.policy, &msg) < 0 ||
		dns_gate_new(guard.base, &forward, &config, &gate, &msg) < 0) {
		fprintf(stderr, "%s\n", msg.text);
		return 1;
	}
	udp = listener(argv[1], argv[2], SOCK_DGRAM);
	tcp = listener(argv[1], argv[2], SOCK_STREAM);
	dns_gate_listen(gate, udp, DNS_GATE_UDP);
	dns_gate_listen(gate, tcp, DNS_GATE_TCP);
	term = evsignal_new(guard.base, SIGTERM, on_term, guard.base);
	REQUIRE(term && event_add(term, NULL) == 0);
	printf("ready\n");
	event_base_dispatch(guard.base);
	stats_print(dns_gate_stats(gate));
	dns_gate_free(gate);
	policy_unref(config.policy);
	event_free(term);
	event_base_free(guard.base);
	close(udp);
	close(tcp);
	return 0;
}
