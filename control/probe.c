/* Before it: worker_gate.c, which chooses, and supervisor_guard.c, which runs it in a process of
 * its own. Addresses are such that nobody is bothered if the rules should let something out: blocks
 * for documentation, and the reserved end of the space. */
#include "control/probe.h"

#include <errno.h>
#include <netinet/ip.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "policy/check.h"

#define PROBE_PORT 9 /* discard (RFC 863) */
#define PROBE_DNS_TRIES 3
#define PROBE_DNS_MS 700

static const char *const probe_addresses[] = {"192.0.2.1", "169.254.169.254", "240.0.0.1"};
/* Behind them: an IP option, which ends before any rule of the policy is asked. */
#define PROBE_OPTION ((int)ARRAY_LEN(probe_addresses))

static struct netaddr probe_address(int code)
{
	struct netaddr a;

	REQUIRE(netaddr_parse(slice_str(probe_addresses[code < PROBE_OPTION ? code : 0]), &a));
	return a;
}

int probe_choose(const struct policy *policy)
{
	int i;

	for (i = 0; i < PROBE_OPTION; i++) {
		const struct netaddr a = probe_address(i);

		if (!policy_check_addr(policy, &a, PROBE_PORT).allow)
			break;
	}
	return i;
}

static int probe_socket(const struct netaddr *a, uint16_t port)
{
	struct sockaddr_storage sa;
	socklen_t len = netaddr_to_sockaddr(a, port, &sa);
	int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)&sa, len) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

/* True if a datagram left. Without a route none can. */
static bool probe_leaves(int code)
{
	/* Record route (RFC 791 3.1): harmless, and like every option refused. */
	static const uint8_t option[] = {IPOPT_RR, 7, IPOPT_MINOFF, 0, 0, 0, 0, IPOPT_EOL};
	const struct netaddr a = probe_address(code);
	int fd = probe_socket(&a, PROBE_PORT);
	bool sent;

	if (fd < 0)
		return false;
	if (code == PROBE_OPTION &&
		setsockopt(fd, IPPROTO_IP, IP_OPTIONS, option, sizeof(option)) < 0) {
		(void)close(fd);
		return false;
	}
	sent = send(fd, "", 1, MSG_NOSIGNAL) == 1;
	(void)close(fd);
	return sent;
}

/* Nobody else answers at this address. The gate knows no other operation than a query, and writes
 * no line about one. */
static bool probe_dns(void)
{
	static const uint8_t status_request[12] = {0x65, 0x67, 0x10}; /* id, opcode 2 */
	struct netaddr a;
	uint8_t answer[512];
	bool good = false;
	int fd;

	REQUIRE(netaddr_parse(SLICE("192.0.2.53"), &a));
	fd = probe_socket(&a, 53);
	for (int i = 0; fd >= 0 && !good && i < PROBE_DNS_TRIES; i++) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		(void)send(fd, status_request, sizeof(status_request), MSG_NOSIGNAL);
		if (poll(&p, 1, PROBE_DNS_MS) == 1)
			good = recv(fd, answer, sizeof(answer), 0) >=
					(ssize_t)sizeof(status_request) &&
				memcmp(answer, status_request, 2) == 0;
	}
	if (fd >= 0)
		(void)close(fd);
	return good;
}

enum probe_result probe_run(int code)
{
	int address = code & 0xff;

	if (address <= PROBE_OPTION && probe_leaves(address))
		return PROBE_ADDRESS_OPEN;
	if ((code & PROBE_DNS) && !probe_dns())
		return PROBE_DNS_CLOSED;
	return PROBE_OK;
}

const char *probe_text(enum probe_result r)
{
	switch (r) {
	case PROBE_OK:
		return "ok";
	case PROBE_ADDRESS_OPEN:
		return "a packet that no rule allows left the sandbox";
	case PROBE_DNS_CLOSED:
		return "the DNS gate does not answer through the redirect";
	case PROBE_NOT_DONE:
		break;
	}
	return "it could not be done";
}
