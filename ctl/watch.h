/* `egressctl watch`: follows the sandboxes of a platform, collects their trails and keeps what is
 * wanted of them in force. watch.c has the list, alarms and the end; watch_box.c one sandbox. */
#pragma once

#include <sys/queue.h>

#include "base/map.h"
#include "ctl/command.h"
#include "ctl/platform.h"
#include "ctl/watch_wanted.h"

#define WATCH_BOXES_MAX 2000 /* sandboxes followed */
#define WATCH_PAGES_MAX 50   /* of one list */
#define WATCH_LIST_MS 500    /* from one list to the next: a resume is to be seen at once */
#define WATCH_TICK_MS 50
#define WATCH_SPACING_MS 1050      /* from one request about a sandbox to the next */
#define WATCH_FETCHES_MAX 96       /* at a time; of sandboxes that stand still a third */
#define WATCH_BACKOFF_MAX_MS 60000 /* after failures */
#define WATCH_RETRY_AFTER_MAX_S 300
#define WATCH_INTERVAL_S 5         /* from one look at a quiet trail to the next */
#define WATCH_END_NEAR_US 10000000 /* before an expiry the trail is asked for all the time */
#define WATCH_ONCE_MS 300000       /* --once has ended by then */

#define WATCH_ALARM_TABLE(X)                                                             \
	X(PAUSED, "traffic-while-paused", "the sandbox had traffic while it was paused") \
	X(CHAIN, "chain", "the trail does not verify")                                   \
	X(LOST, "lost-lines", "lines of the trail could not be had")                     \
	X(FOREIGN, "foreign-sidecar", "the sidecar is not one of ours, or too old")      \
	X(POLICY, "policy-differs", "the policy or the vault is not the wanted one")

enum watch_alarm {
#define X(id, name, text) WATCH_ALARM_##id,
	WATCH_ALARM_TABLE(X)
#undef X
};

struct watch_options {
	struct platform_options platform;
	const char *dir, *webhook;
	uint32_t interval_ms;
	bool once;
};

struct box;
TAILQ_HEAD(box_list, box);

struct watch {
	const struct watch_options *o;
	struct platform platform;
	struct wanted *wanted;
	struct map *names; /* id to its box */
	struct box_list boxes;
	size_t n_boxes, n_fetches;
	struct fetch *list;
	unsigned page, list_failures;
	uint64_t pass;         /* number of the list being read */
	uint64_t list_from_us; /* wall clock when its first page was asked for */
	uint64_t list_due_ms;
	uint64_t hold_ms;        /* nothing is asked of the API before this */
	bool listed;             /* once, whole */
	uint64_t alarms;         /* raised so far */
	struct webhook *webhook; /* NULL: none was asked for */
	uint64_t start_ms;
	enum command_exit code;
};

enum command_exit watch_run(const struct watch_options *o);

/* An answer of the API: true for success. One that concerns every request (key refused, too many,
 * not there) holds them all off for a while. */
bool watch_answered(struct watch *w, const struct fetch_answer *answer);
/* Logs it, and tells the webhook. detail: for a person, may have text from outside. */
void watch_alarm(struct watch *w, enum watch_alarm alarm, const char *id, const char *detail);
const char *watch_alarm_name(enum watch_alarm alarm);
/* 2 to the n seconds, at most WATCH_BACKOFF_MAX_MS, less up to a quarter. */
uint64_t watch_backoff_ms(unsigned n);

/* --- watch_box.c --- */

/* One that is new in the list; w has it. */
struct box *box_new(struct watch *w, const struct lifecycle_sandbox *s);
void box_free(struct box *b);
/* The list has it. */
void box_see(struct box *b, const struct lifecycle_sandbox *s);
/* A whole list without it was read. May free it. */
void box_missed(struct box *b);
/* Asks the next that is due. */
void box_step(struct box *b, uint64_t now_ms);
/* What is wanted may be another. */
void box_rejudge(struct box *b);
/* --once: there is nothing left to do for it. */
bool box_is_done(const struct box *b);
/* The last list that it was in. */
uint64_t box_pass(const struct box *b);
struct box *box_next(const struct box *b);
