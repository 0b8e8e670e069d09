/* What dns_gate.c, dns_query.c and dns_server.c share. */
#pragma once

#include <sys/queue.h>
#include <sys/socket.h>

#include "base/log.h"
#include "dns/dns_gate.h"
#include "dns/dns_msg.h"
#include "dns/judge.h"

struct dns_conn;
struct dns_query;
struct dns_server;
struct leases;

TAILQ_HEAD(dns_query_list, dns_query);
LIST_HEAD(dns_server_list, dns_server);

/* Where a question came from, and its reply goes. */
struct dns_client {
	struct dns_server *server; /* UDP */
	struct dns_conn *conn;     /* TCP; NULL: UDP */
	struct sockaddr_storage peer;
	socklen_t peer_len;
};

struct dns_gate {
	struct event_base *base;
	struct dns_gate_config config;
	struct judge judge;
	struct forwarder *forwarder;
	struct leases *leases;
	struct dns_server_list servers;
	struct dns_query_list queries;
	size_t n_queries;
	struct dns_gate_stats stats;
	struct log_rate outbound;
	int diag_fd;                /* sock_diag, for the users of clients; -1: not known */
	uint8_t reply[DNS_MSG_MAX]; /* the one being written */
};

/* Takes a message of a client and sees that it is answered. */
void dns_query_start(struct dns_gate *g, const struct dns_client *client, struct slice msg);
/* The connection is gone: its questions end unanswered. conn NULL: all end. */
void dns_query_cancel(struct dns_gate *g, const struct dns_conn *conn);

/* Sends a reply, or counts that it could not be sent. */
void dns_server_reply(struct dns_gate *g, const struct dns_client *client, struct slice msg);
void dns_server_new(struct dns_gate *g, int fd, enum dns_gate_kind kind);
void dns_server_free(struct dns_server *s);
int dns_conn_fd(const struct dns_conn *c);
/* A question of this connection has been taken in, or is done with. */
void dns_conn_hold(struct dns_conn *c);
void dns_conn_release(struct dns_conn *c);
