/* `egressctl watch`: follows the sandboxes of a platform, collects their trails and keeps what is
 * wanted of them in force. watch.c has the list, alarms and the end, the other files one
 * sandbox. */
#pragma once

#include <sys/queue.h>

#include "audit/audit_copy.h"
#include "base/log.h"
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
#define WATCH_BACKOFF_MS 1000      /* backoff_ms after failures */
#define WATCH_INTERVAL_S 5         /* from one look at a quiet trail to the next */
#define WATCH_END_NEAR_US 10000000 /* before an expiry the trail is asked for all the time */
#define WATCH_ONCE_MS 300000       /* --once has ended by then */
#define WATCH_TRAIL_MIB 4096       /* of one trail: who writes without end fills no disk */

#define BOX_INSTANCE_MAX 65
#define BOX_TRAIL "~trail" /* state: the instance that wrote the lines that are here */

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
	uint64_t trail_max; /* bytes of one sandbox's */
	bool once;
};

enum box_ask {
	ASK_NOTHING,
	ASK_ENDPOINT,
	ASK_STATUS,
	ASK_POLICY,
	ASK_PUT_POLICY,
	ASK_LOOK_VAULT,
	ASK_DROP_VAULT,
	ASK_VAULT,
	ASK_AUDIT,
};

/* What is to be done about the wanted vault. */
enum box_vault {
	VAULT_LEFT, /* nothing, or none is wanted */
	VAULT_LOOK, /* is it still the one that was sent? */
	VAULT_DROP, /* what is there, and then */
	VAULT_PUT,
};

/* Where the next page of a trail begins. */
enum box_from { FROM_LAST, FROM_FIRST, FROM_OLDEST };

/* A sandbox that is followed. */
struct box {
	struct watch *w;
	TAILQ_ENTRY(box) link;
	char id[LIFECYCLE_ID_MAX + 1];
	enum lifecycle_state state;
	uint64_t expires_us;
	uint64_t pass;                         /* the last list that it was in */
	unsigned missed;                       /* whole lists without it since then */
	uint64_t paused_from_us, paused_to_us; /* it stood still between these, for certain */
	uint64_t suspect_us, suspect_seq;      /* the first traffic behind the former */

	struct sidecar *sidecar; /* NULL: the API has to be asked where it is */
	struct fetch *fetch;
	enum box_ask ask;
	uint64_t asked_ms, next_ms, audit_due_ms, check_due_ms, vault_due_ms;
	unsigned failures; /* in a row */
	char instance[BOX_INSTANCE_MAX];
	bool ours;

	const struct wanted *wanted;
	bool put_policy, policy_known, no_vault;
	enum box_vault vault;
	char stamp[WANTED_STAMP_MAX]; /* of the vault that is being sent, or is in force */

	struct audit_copy copy;
	char trail_instance[BOX_INSTANCE_MAX]; /* that wrote the lines that are here */
	bool overlap; /* the page that was asked for begins with the last of them */
	enum box_from from;
	bool behind, looked, grew;
	bool unseen; /* something failed since the last page of its trail */
	bool ended;  /* it is not in the list any more, and the last look at its trail is over */

	bool done;       /* --once: there is nothing left to do for it */
	unsigned alarms; /* bits of those that are on */
};
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
	uint64_t hold_ms; /* nothing is asked of the API before this */
	bool listed;      /* once, whole */
	uint64_t alarms;  /* raised so far */
	struct log_rate full_rate;
	struct webhook *webhook; /* NULL: none was asked for */
	uint64_t start_ms;
	enum command_exit code;
};

enum command_exit watch_run(const struct watch_options *o);

/* An answer of the API: as lifecycle_api_check. One that concerns every request (key refused, too
 * many, not there) holds them all off for a while. */
CHECKED int watch_check(struct watch *w, const struct fetch_answer *answer, struct errmsg *msg);
/* Raises an alarm that is not on: logs it, and tells the webhook; ends one that is on. detail: for
 * a person, may have text from outside. */
void box_alarm(struct box *b, enum watch_alarm alarm, const char *detail);
void box_calm(struct box *b, enum watch_alarm alarm);

/* --- watch_box.c --- */

/* One that is new in the list; w has it. */
struct box *box_new(struct watch *w, const struct lifecycle_sandbox *s);
void box_free(struct box *b);
/* Calls off what is being asked, if it is asked with the API's key. */
void box_forget_key(struct box *b);
/* The list has it. */
void box_see(struct box *b, const struct lifecycle_sandbox *s);
/* A whole list without it was read. May free it. */
void box_missed(struct box *b);
/* Asks the next that is due. */
void box_step(struct box *b, uint64_t now_ms);
/* It cannot be asked for a while; lost_place: nor where it was. */
void box_failed(struct box *b, const char *why, bool lost_place);
void on_box_answer(const struct fetch_answer *a, void *arg);
/* What has to be known after a restart of ours: a text of a sandbox; "": none was kept. */
void box_state_read(const struct box *b, const char *what, char *text, size_t size);
void box_state_keep(const struct box *b, const char *what, const char *text);

/* --- watch_push.c --- */

/* Answers to GET and PUT of the policy, to GET, DELETE and POST of the vault. */
void box_policy(struct box *b, const struct fetch_answer *a);
void box_put(struct box *b, const struct fetch_answer *a);
void box_vault_seen(struct box *b, const struct fetch_answer *a);
void box_vault_dropped(struct box *b, const struct fetch_answer *a);
void box_vault_sent(struct box *b, const struct fetch_answer *a);
/* NULL: it is not to be sent (now). */
struct fetch *box_send_vault(struct box *b);
const char *box_why(const struct box *b, const struct fetch_answer *a, struct errmsg *msg);

/* --- watch_trail.c --- */

/* What to ask for the next page, and its answer. */
void box_audit_path(struct box *b, char *path, size_t size);
void box_audit(struct box *b, const struct fetch_answer *a);
/* Traffic while it stood still: in these lines, or in those before them. */
void box_scan_pause(struct box *b, struct slice lines);
/* Lines may soon not be had any more. */
bool box_end_is_near(const struct box *b);
