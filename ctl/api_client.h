/* Requests to the API of a running egress, one connection each, blocking. Used by the commands that
 * ask or change a running sidecar. */
#pragma once

#include <sys/socket.h>

#include <jansson.h>

#include "base/err.h"
#include "base/strbuf.h"

#define API_CLIENT_ADDRESS "127.0.0.1:18080"
/* A change may wait for the kernel for 30 s. */
#define API_CLIENT_WAIT_S 40
#define API_CLIENT_ANSWER_MAX (64u << 20)

struct api_client {
	const char *address; /* of --api; NULL: by the environment, else API_CLIENT_ADDRESS */
	char *const *environ;
};

struct api_client_answer {
	int status;
	struct strbuf head; /* status line and fields */
	struct strbuf text; /* as it came */
	json_t *doc;        /* of it; NULL: it is no JSON */
};

/* "127.0.0.1:18080", "[::1]:7", ":18080", "localhost:7", and what egress itself listens on: every
 * address is the loopback one here. E_VALUE: something else; names are not looked up. */
CHECKED int api_client_address(
	const char *text, struct sockaddr_storage *out, socklen_t *len, struct errmsg *msg);

/* Sends it with the token of the environment (OPENSANDBOX_EGRESS_TOKEN). 0: there is an answer,
 * whatever its status. The message says what could not be done, and with which address. */
CHECKED int api_client_call(const struct api_client *c, const char *method, const char *path,
	struct slice body, struct api_client_answer *out, struct errmsg *msg);
void api_client_answer_fini(struct api_client_answer *a);
/* The number in a field of the answer (its name in any letter case); 0: it has none. */
uint64_t api_client_number(const struct api_client_answer *a, const char *name);
/* What an answer that is no success says; fits into one line. */
const char *api_client_message(const struct api_client_answer *a);
