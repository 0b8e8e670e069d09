/* The self-test from inside: what somebody in the sandbox can reach. The worker chooses what to try
 * by the policy in force, the supervisor's prober tries it as a user of nobody's, and its answer
 * turns health green. */
#pragma once

#include "policy/policy.h"

#define PROBE_UID 10044u

/* What to try, beside an address that must be refused: is the DNS gate reached through the redirect
 * of port 53? */
#define PROBE_DNS 0x100
/* No address: this mode refuses none. */
#define PROBE_NO_ADDRESS 0xff

/* The prober's exit code. */
enum probe_result {
	PROBE_OK,
	PROBE_ADDRESS_OPEN, /* something went out that no rule allows */
	PROBE_DNS_CLOSED,   /* the DNS gate does not answer */
	PROBE_NOT_DONE,     /* no process, no rights, no time */
};

/* The code for an address that this policy refuses; always one, since the last of them is a packet
 * that no policy lets out. */
int probe_choose(const struct policy *policy);
/* Tries it, in at most three seconds. */
enum probe_result probe_run(int code);
const char *probe_text(enum probe_result r);
