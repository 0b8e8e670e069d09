/* Which Linux user owns a client's socket, by sock_diag(7). */
#pragma once

#include "base/attr.h"

/* A netlink socket for client_uid_find, or -1. Opened before seccomp. */
int client_uid_open(void);
/* The user of the socket at the other end of the accepted fd, or AUDIT_UID_NONE when it is in
 * another namespace, gone, or cannot be asked for. Two system calls. */
uint32_t client_uid_find(int diag_fd, int fd);
