/* Private to control/worker*.c: what the worker holds. worker.c starts and stops it,
 * worker_policy.c changes what is in force, worker_api.c answers for it. */
#pragma once

#include "audit/audit.h"
#include "control/api_policy.h"
#include "control/devices.h"
#include "control/foreign.h"
#include "control/health.h"
#include "control/lifecycle_api.h"
#include "control/lifecycle_state.h"
#include "control/packet_sockets.h"
#include "control/worker.h"
#include "control/worker_vault.h"
#include "dns/upstreams.h"

struct api_health;
struct api_vault;
struct dns_gate;
struct event;
struct guard_client;
struct guard_flow;
struct guard_state;
struct lifecycle;
struct proxy;
struct ruleset_options;
struct resolver;
struct tls;
struct webhook;

#define WORKER_INSTANCE_LEN 16

/* What outlives a worker beside the policy itself; kept as it is in the plain area. */
struct worker_meta {
	char instance[WORKER_INSTANCE_LEN + 1]; /* of this run of the supervisor, at random */
	uint64_t started_us;                    /* its start: clock_wall_us */
	uint64_t policy_revision;               /* 1 at the start, one more for each change */
	struct lifecycle_known life;            /* enforce: what was in force at the least */
};

/* What OpenSandbox says of the sandbox; all zero where nobody asks. */
struct worker_life {
	struct lifecycle *follows;
	struct lifecycle_api api; /* its proxy is its own: other roots, no sandbox's connections */
	struct tls *tls;          /* of its own; NULL: the worker's does */
	struct resolver *resolver;
	struct policy *closed;         /* in the place of the policy where it is not open */
	enum lifecycle_enforce want;   /* by the last answer */
	enum lifecycle_enforce now;    /* in the proxy and the DNS gate */
	enum lifecycle_enforce kernel; /* what the kernel's next rules are for */
	bool settling;                 /* a request for a change waits for its turn */
	json_t *metadata;              /* of the last answer with a sandbox */
};

/* What the modes dns and dns+nft have beside the proxy; all zero in mode proxy. */
struct worker_gate {
	struct guard_client *guard; /* a lost one stays until the supervisor brings another */
	int n_guards;               /* that we were given */
	struct dns_gate *dns;
	struct devices devices;
	uint64_t cgroup_id; /* 0: cgroups do not tell our sockets */
	uint32_t cgroup_level;
	bool cgroup_found;             /* the level is the right one */
	bool shut;                     /* a part that is asked for is missing: nothing gets out */
	bool submitted;                /* our ruleset waits for its turn */
	bool applied;                  /* by this guard */
	bool probing;                  /* the supervisor was asked */
	bool tested;                   /* and found all well */
	uint64_t again_ms;             /* when to apply or probe again: clock_mono_ms */
	uint64_t red_until_ms;         /* a loss stays to be seen until then; 0: none */
	struct packet_sockets packets; /* of others */
	struct upstreams asked;        /* resolvers that clients know of */
	int diag_fd;                   /* sock_diag */
	struct foreign foreign;        /* which listeners are ours */
	struct event *watch;
};

struct worker {
	int control_fd;
	struct worker_start start;
	struct settings *settings; /* its policies and rule lists are the ones in force */
	struct event_base *base;
	struct ca *ca;
	struct tls *tls;
	struct resolver *resolver;
	struct audit *audit;
	struct worker_vault vault;
	struct proxy *proxy;
	struct policy_change *changes;
	struct worker_meta meta;
	struct rule_list deny_good; /* of deny.always when it last had no bad line */
	bool committed;             /* the policy file is newer than the last RELOAD's */
	unsigned n_feeds;           /* messages with a vault that nobody has dealt with */
	struct webhook *webhook;    /* NULL: none */
	struct health health;
	struct worker_gate gate;
	struct worker_life life;
	struct api *api; /* NULL: it does not listen */
	struct api_policy api_policy;
	struct api_vault *api_vault;   /* NULL as api */
	struct api_health *api_health; /* as well */
	struct event *on_control;
	struct event *on_term;
	struct event *drain_tick;
	struct event *thaw;
	uint64_t thaw_seen_ms; /* when it came last */
	uint64_t drain_until_ms;
	int exit_code;
};

/* worker.c */
void worker_note(struct worker *w, enum audit_kind kind, enum reason reason, const char *what);

/* worker_policy.c */

/* Who this run of the supervisor is: from the area, or, where it is new or there is none, made. */
void worker_meta_open(struct worker *w);

/* The policy, and what belongs to it, from the area; or, in the first worker, into it. */
CHECKED int worker_policy_open(struct worker *w, struct errmsg *msg);
/* Before settings_load in worker_open: after a crash the area wins over the files, so that a bad
 * rule file cannot keep a worker from starting. */
void worker_policy_prefer_area(struct worker *w);
/* When everything it changes is there. */
void worker_policy_start(struct worker *w);
void worker_policy_close(struct worker *w);
/* Settings to those who decide by them. */
void worker_configure(struct worker *w);
void worker_set_hosts(struct worker *w);
/* The answer to SAVE or COMMIT. False if nobody asked. */
CHECKED bool worker_policy_saved(struct worker *w, enum control_type type, int code);
/* The document in the area, borrowed; false: none yet. */
bool worker_kept(const struct worker *w, struct slice *doc);
CHECKED int worker_keep_settings(struct worker *w, const struct settings *s);
/* For the area; the caller frees it. */
char *worker_policy_doc(
	const struct policy *user, const struct rule_list *deny, const struct rule_list *allow);
/* w->meta as it is now. */
CHECKED int worker_meta_keep(struct worker *w);
/* One change more, kept. E_LIMIT: it does not fit, nothing is changed. */
CHECKED int worker_policy_keep(struct worker *w, const char *doc);

/* worker_reload.c */

/* What came with a RELOAD, ALWAYS or VAULT message is in w->start; it is taken in turn. */
void worker_policy_reload(struct worker *w);
void worker_policy_rules(struct worker *w);
void worker_policy_vault(struct worker *w);

/* worker_gate.c */

/* Before the system call filter. Nothing in mode proxy, here and below. */
CHECKED int worker_gate_open(struct worker *w, struct errmsg *msg);
/* Serves, and gives the kernel its rules. Health is green when the self-test has passed. */
void worker_gate_start(struct worker *w);
void worker_gate_close(struct worker *w);
/* Settings and policy in force to the DNS gate. */
void worker_gate_configure(struct worker *w);
/* The kernel gets the rules of this policy; policy_change_answer says when. */
CHECKED int worker_gate_apply(struct worker *w, struct policy *policy);
/* It gets those in force once more, when its turn has come. */
void worker_gate_again(struct worker *w);
/* Another guard; fd is the gate's. */
void worker_gate_guard(struct worker *w, int fd);
/* The prober's answer (enum probe_result). */
void worker_gate_probed(struct worker *w, int result);
/* Inode of our cgroup, 0 if cgroups do not tell. By path, so before the system call filter. */
uint64_t worker_cgroup(void);
/* Zero but for what every ruleset of ours has. */
struct ruleset_options worker_ruleset_options(
	const struct settings *s, uint64_t cgroup_id, uint32_t cgroup_level);

/* worker_watch.c */

/* Twice a second. */
void worker_watch_start(struct worker *w);
void worker_watch_close(struct worker *w);
/* What the guard says of the kernel, to health. */
void worker_watch_state(struct worker *w, const struct guard_state *s);
/* What the resolvers are by now, to health; for those who ask between two looks. */
void worker_watch_resolvers(struct worker *w);
/* Who has a packet socket by now, for those who ask between two looks. */
void worker_watch_packets(struct worker *w);
/* The guard itself is lost. */
void worker_watch_gone(struct worker *w);
/* What the kernel let out or refused by itself, to the audit trail. */
void worker_watch_flow(struct worker *w, const struct guard_flow *f);

/* worker_lifecycle.c */

/* Needs the proxy. Where OPENSANDBOX_URL is not set, or not who we are, nothing; here and below. */
CHECKED int worker_lifecycle_open(struct worker *w, struct errmsg *msg);
/* Does once more what the worker before left undone. */
void worker_lifecycle_start(struct worker *w);
void worker_lifecycle_close(struct worker *w);
/* The key may have changed: it is read, and the API asked. */
void worker_lifecycle_key(struct worker *w);
/* Nothing ran for this long. */
void worker_lifecycle_thaw(struct worker *w, uint64_t ms);
/* The policy that kernel and DNS gate get in the place of `policy`. Borrowed. */
struct policy *worker_lifecycle_policy(
	const struct worker *w, enum lifecycle_enforce e, struct policy *policy);
/* Puts the sandbox's metadata to labels that somebody has set. arg: the worker. */
void worker_lifecycle_labels(struct context *c, void *arg);
/* For /status. */
json_t *worker_lifecycle_status(const struct worker *w);

/* worker_thaw.c */

/* Before any event is made for it. */
void worker_thaw_base(struct event_base *base);
void worker_thaw_start(struct worker *w);
void worker_thaw_close(struct worker *w);

/* worker_closed.c */

/* The whole life of a worker whose start message has a CAUSE: /healthz alone. */
int worker_closed_main(struct worker *w);

/* worker_api_vault.c */
void worker_api_vault_open(struct worker *w);
/* May it write? For api_set_keys. */
void worker_api_vault_admit(const struct api_asked *q, void *arg, struct api_refusal *out);
/* Ends exchanges that hold locked memory; see proxy_free_keys. */
void worker_vault_make_room(void *arg, bool all);
/* Routes. */
void worker_api_vault(struct api_call *call, void *arg);
void worker_api_vault_credentials(struct api_call *call, void *arg);
void worker_api_vault_credential(struct api_call *call, void *arg);
void worker_api_vault_bindings(struct api_call *call, void *arg);
void worker_api_vault_binding(struct api_call *call, void *arg);
void worker_api_vault_active(struct api_call *call, void *arg);
void worker_api_vault_other(struct api_call *call, void *arg);

/* worker_api.c */
void worker_api_open(struct worker *w);
/* The token may have changed. */
void worker_api_configure(struct worker *w);
void worker_api_close(struct worker *w);
