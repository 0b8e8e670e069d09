/* A gate in a real event loop: a client's socket on one side, scripted resolvers and a guard that
 * is faked at its calls on the other. The clock of leases is set by hand. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/strbuf.h"
#include "dns/dns_gate.h"
#include "dns/upstreams.h"
#include "nft/guard_client.h"
#include "nft/ruleset.h"
#include "tests/unit/dns/peer.h"
#include "tests/unit/dns/wire.h"
#include "tests/unit/policy/fixture.h"

#define TIMEOUT_MS 240 /* of each resolver */
#define GUARD_MS 5000  /* a test that waits longer has failed */
#define CALLS_MAX 256

struct guard_call {
	guard_cb done;
	void *arg;
	bool cancelled;
	size_t n;
	struct guard_lease v[GUARD_LEASES_MAX];
};

struct fake_guard {
	struct guard_call calls[CALLS_MAX];
	size_t n;
	size_t n_done;
	bool refuses; /* at once */
};
extern struct fake_guard guard;

struct fixture {
	struct event_base *base;
	struct peer first;
	struct peer second;
	struct dns_gate *gate;
	struct dns_gate_config config;
	struct sockaddr_storage to;
	struct sockaddr_storage to_tcp;
	int udp, tcp; /* the gate's */
	int client;
	struct upstreams upstreams;
	uint64_t now_ms;
	char denied[256];
	unsigned n_denied;
	uint8_t reply[DNS_MSG_MAX];
	size_t reply_len;
	struct dns_answer answer; /* the reply, read */
};

/* Another gate in place of this one, as after the end of a worker: same sockets, same config. */
void gate_again(struct fixture *f);
/* Every call that waits ends so. */
void guard_ack(int err);
uint64_t real_ms(void);
void set_now(struct fixture *f, uint64_t ms);
/* For cmocka. Policy: see gate.c. */
int setup(void **state);
int teardown(void **state);
void send_wire(struct fixture *f, const struct wire *w);
void ask(struct fixture *f, const char *name, unsigned type);
void ask_edns(struct fixture *f, const char *name, unsigned type, unsigned size);
/* False if nothing has come within ms. */
bool reply_within(struct fixture *f, unsigned ms);
void run_until_calls(struct fixture *f, size_t n);
/* The addresses of the reply, or "rcode N". */
void check_reply(struct fixture *f, const char *want);
/* One question whose leases, if any, are acknowledged. */
void check_ask(struct fixture *f, const char *name, unsigned type, const char *want);
size_t n_of_type(const struct fixture *f, enum dns_section section, unsigned type);
