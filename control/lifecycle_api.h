/* OpenSandbox's lifecycle API as it is asked, from the sidecar (control/lifecycle) and from outside
 * (ctl/platform): its URL and key, and what counts as an answer. The key is in locked memory and
 * goes to this URL alone. */
#pragma once

#include "control/lifecycle_doc.h"
#include "proxy/fetch.h"

#define LIFECYCLE_TIMEOUT_MS 10000           /* of one question */
#define LIFECYCLE_RETRY_AFTER_S 300          /* a longer Retry-After is cut to this */
#define LIFECYCLE_KEY_MAX 4096               /* bytes of the file with the key */
#define LIFECYCLE_SIDECAR "/endpoints/18080" /* of a sandbox: where its sidecar is */

struct lifecycle_api {
	struct proxy *px; /* with secmem; borrowed */
	char *url;        /* without `/` and `/v1` at its end */
	bool https;
	struct authority authority; /* of the URL, with port */
	char *key;                  /* the field's line, in secmem; NULL: none is sent */
	size_t answer_max;          /* bytes */
	/* As fetch_request's; arg is that of lifecycle_api_get. */
	enum reason (*admit)(const struct netaddr *a, void *arg);
};

/* a is zeroed; url as lifecycle_url_decode takes it, else E_VALUE. px, answer_max and admit are the
 * caller's to set. */
CHECKED int lifecycle_api_init(struct lifecycle_api *a, const char *url);
/* Before px and its secmem go, after everything that was asked. Accepts one that is zeroed. */
void lifecycle_api_fini(struct lifecycle_api *a);
/* Reads the key from fd, which stays the caller's, from its beginning; name: what fd is, for the
 * message. E_VALUE: it cannot stand in a field, E_LIMIT, -ENOMEM (no locked memory), or a negated
 * errno: the key before stays. Nothing that was asked may be under way: it borrows the key. */
CHECKED int lifecycle_api_read_key(
	struct lifecycle_api *a, int fd, const char *name, struct errmsg *msg);
/* GET of a sandbox, or with an empty id of the list; more: what stands behind it in the URL. */
struct fetch *lifecycle_api_get(
	const struct lifecycle_api *a, struct slice id, const char *more, fetch_cb done, void *arg);

/* 0: 200, whole, and said to be JSON. Else negative, and why in msg. */
CHECKED int lifecycle_api_check(const struct fetch_answer *answer, struct errmsg *msg);
/* What was wrong with an answer that is no success, of the API or of a sidecar, for one line. Text
 * from outside: to be escaped where it is shown. */
const char *lifecycle_why(const struct fetch_answer *answer, struct errmsg *msg);
/* Retry-After, cut; 0: there is none, or a date. */
uint64_t lifecycle_retry_after_ms(const struct fetch_answer *answer);
