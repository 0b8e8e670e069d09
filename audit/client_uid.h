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

/* The same for the sender of a datagram. An unconnected socket is found whatever `to` is. It
 * is the sender's only if nobody else sends with its port: CAP_NET_RAW can, and of two that share
 * one (SO_REUSEADDR) the kernel names who bound it last. */
uint32_t client_uid_find_udp(
	int diag_fd, const struct sockaddr_storage *peer, const struct client_uid_to *to);
