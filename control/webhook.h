/* The deny webhook (reference 9.4): a POST for each name that was refused. Better than the replaced
 * image on purpose: a name comes at most once a second, our own connection does not have to be
 * allowed by the sandbox's policy, redirects are not followed, and only the status of an answer
 * counts. */
#pragma once

#include <stdbool.h>

#include "base/slice.h"

#define WEBHOOK_QUEUE_MAX 256  /* reference 9.4; what comes beyond is left out and counted */
#define WEBHOOK_TRIES_MAX 4    /* with 1, 2 and 4 s between them */
#define WEBHOOK_TRY_MS 5000    /* one attempt, from the lookup to the end of the answer */
#define WEBHOOK_REPEAT_MS 1000 /* of one name */

struct event_base;
struct proxy;
struct webhook;

/* url: as settings let it through; sandbox_id may be NULL. Both are copied. px: whose dialling and
 * trusted roots are used; it must outlive the webhook. */
struct webhook *webhook_new(
	struct event_base *base, struct proxy *px, const char *url, const char *sandbox_id);
/* What waits is not sent. Accepts NULL. */
void webhook_free(struct webhook *h);
const char *webhook_url(const struct webhook *h);
/* Any event, a JSON document; what: for the log. Both are copied. Never blocks, never fails. */
void webhook_send(struct webhook *h, const char *what, const char *text);
/* A name was refused: normal form. Never blocks, never fails. */
void webhook_denied(struct webhook *h, struct slice name);
/* True while something waits that has not failed yet: a stop may wait for it. */
bool webhook_busy(const struct webhook *h);
