/* Requests to the API that do not show its token: counted, and told without flooding. The first is
 * told at once, those after it together. Nobody is shut out for them: the sandbox reaches this
 * port, and could shut out those who know the token. */
#pragma once

#include <stdint.h>

#include <event2/event_struct.h>

#define API_STRANGERS_MS 10000 /* between two tellings */

struct event_base;

/* uid: of all of them, AUDIT_UID_NONE where they differ or it is not known. */
typedef void (*api_strangers_cb)(void *arg, uint32_t n, uint32_t uid);

struct api_strangers {
	struct event quiet; /* pending: the last telling was not long ago */
	uint64_t total;
	uint32_t untold;
	uint32_t uid;
	api_strangers_cb told; /* NULL: nobody wants to know */
	void *arg;
};

void api_strangers_init(struct api_strangers *s, struct event_base *base);
/* Tells what was not told yet. */
void api_strangers_fini(struct api_strangers *s);
void api_strangers_count(struct api_strangers *s, uint32_t uid);
