/* Packet sockets of this network namespace: none is ours. Whoever has one reads clear traffic, that
 * of 18080 too, so each new one goes on record. (What such a socket sends ends at the raw guard.)
 */
#pragma once

#include "base/err.h"

#define PACKET_SOCKETS_MAX 64 /* that are told apart; more than this is one alarm */

struct packet_socket {
	uint32_t inode;
	uint32_t uid;
};

struct packet_sockets {
	struct packet_socket v[PACKET_SOCKETS_MAX];
	size_t n;    /* kept in v */
	size_t open; /* all there are */
};

/* Looks by a descriptor of sock_diag_open and brings *p up to date. Calls opened for each that was
 * not there the last time. A kernel without packet_diag tells of none. A negated errno. */
CHECKED int packet_sockets_look(struct packet_sockets *p, int diag_fd,
	void (*opened)(const struct packet_socket *s, void *arg), void *arg);
