/* Which Linux user owns a client's socket, by sock_diag(7). Only sockets of our own network
 * namespace can be asked for: those of the sandbox. */
#pragma once

#include "base/attr.h"
#include "base/netaddr.h"

struct sockaddr_storage;

/* A netlink socket for the questions below, or -1. Opened before seccomp. */
int client_uid_open(void);

/* Where a client's socket connected to, when a redirect made something else of it. */
struct client_uid_to {
	struct netaddr addr;
	uint16_t port;
};

/* The user of the socket at the other end of the accepted fd, or AUDIT_UID_NONE when it is in
 * another namespace, gone, or cannot be asked for. to: NULL for a connection that was made to fd's
 * own address. Two system calls. */
uint32_t client_uid_find(int diag_fd, int fd, const struct client_uid_to *to);

/* The same for the sender of a datagram. An unconnected socket is found whatever `to` is; one
 * socket sent it only if nobody can send with the port of another (CAP_NET_RAW can). */
uint32_t client_uid_find_udp(
	int diag_fd, const struct sockaddr_storage *peer, const struct client_uid_to *to);
