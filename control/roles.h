/* What passes between supervisor and worker: descriptors by role (SCM_RIGHTS), and a few fixed
 * messages, over one SOCK_SEQPACKET pair. One message is one packet: a header, one role for each
 * descriptor that travels with it, no text, no path, nothing of variable length.
 *
 * Either side treats a packet of another shape as the end of the other side. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Each role has one descriptor at most; one that is not there is -1.
 *   CONFIG, POLICY_FILE, RESOLV_CONF, HOSTS: sealed memfds, copies of the text as the supervisor
 *     read (and checked) it, so that they cannot change under the worker. HOSTS: /etc/hosts.
 *   AUDIT: the audit file, for reading and appending.
 *   TRUST: setting upstream_trust, opened for reading; a file or a directory.
 *   OPENSANDBOX_KEY, OPENSANDBOX_CA: the files of these settings, opened for reading and not read.
 *   PROXY, PROXY_V6: listening TCP sockets, non-blocking; V6 is the [::1] beside 127.0.0.1.
 *   API, API_V6: as PROXY, for the API.
 *   DENY_ALWAYS, ALLOW_ALWAYS, LOG_SKIP: copies of the operator's rule files, as CONFIG.
 *   DNS_UDP, DNS_TCP and their _V6: sockets of the DNS gate, bound, non-blocking (modes dns).
 *   CEILING: a copy of the operator's ceiling, as CONFIG.
 *   GUARD: the worker's end of its pair with egress-guard (nft/guard_msg.h); nobody else keeps it.
 *   CAUSE: text in memory: the start cannot succeed, and this is why (worker_closed.c).
 *   POLICY_NEW: a memfd that the worker writes the text of the policy file into, as it shall be,
 *     before it sends SAVE; the supervisor has it for life.
 *   VAULT: a vault document in memory (control/vault_feed.h), until a worker has taken it.
 *   AREA_SECRET, AREA_VAULT, AREA_PLAIN: the areas that outlive a worker (base/state.h,
 *     control/areas.h). */
#define ROLE_TABLE(X)                       \
	X(CONFIG, "configuration file")     \
	X(POLICY_FILE, "policy file")       \
	X(RESOLV_CONF, "resolv.conf")       \
	X(HOSTS, "hosts file")              \
	X(TRUST, "trusted roots")           \
	X(OPENSANDBOX_KEY, "API key")       \
	X(OPENSANDBOX_CA, "API roots")      \
	X(AUDIT, "audit file")              \
	X(PROXY, "proxy listener")          \
	X(PROXY_V6, "proxy listener, IPv6") \
	X(API, "API listener")              \
	X(API_V6, "API listener, IPv6")     \
	X(DNS_UDP, "DNS socket")            \
	X(DNS_UDP_V6, "DNS socket, IPv6")   \
	X(DNS_TCP, "DNS listener")          \
	X(DNS_TCP_V6, "DNS listener, IPv6") \
	X(GUARD, "guard")                   \
	X(CAUSE, "cause")                   \
	X(DENY_ALWAYS, "deny.always")       \
	X(ALLOW_ALWAYS, "allow.always")     \
	X(LOG_SKIP, "log_skip.always")      \
	X(CEILING, "policy ceiling")        \
	X(POLICY_NEW, "new policy file")    \
	X(VAULT, "vault")                   \
	X(AREA_SECRET, "secret area")       \
	X(AREA_VAULT, "vault area")         \
	X(AREA_PLAIN, "plain area")

enum role {
#define X(id, text) ROLE_##id,
	ROLE_TABLE(X)
#undef X
		ROLE_MAX
};

/* To the worker:
 *   START: first and once: every descriptor there is. A VAULT among them has not been taken by any
 *     worker yet, and counts before what is kept in the vault area.
 *   RELOAD: after SIGHUP: CONFIG, POLICY_FILE, CEILING, HOSTS, the rule files, AUDIT, VAULT and
 *     OPENSANDBOX_KEY anew, those that exist.
 *   ALWAYS: DENY_ALWAYS, ALLOW_ALWAYS and LOG_SKIP anew, since one has changed.
 *   CA: the CA certificate is where clients look for it (code 0), or cannot be put there (a
 *     negated errno). Sent after READY, and when it changes.
 *   STOP: as SIGTERM. No new connections; end what is open; exit 0 within 8 s.
 * From the worker:
 *   READY: it serves. After this its death is answered by a restart at once.
 *   DISCARD: remove what was saved, as the worker's end does. No answer.
 * Both ways:
 *   ROTATE from the worker: the audit file has reached its size. The answer is AUDIT, with AUDIT
 *     anew; without it, rotation failed and the file in use goes on.
 *   VAULT to the worker: VAULT anew, since its file has changed. From the worker, once for each
 *     RELOAD or VAULT with a vault in it: it has been dealt with, taken or refused. READY says the
 *     same of the one in START.
 *   SAVE from the worker: write what is in POLICY_NEW, and fsync it, beside the policy file under a
 *     random name. The answer is SAVE with a code: 0 or a negated errno. One at a time.
 *   COMMIT from the worker: rename what was saved. The answer is COMMIT with a code.
 *   GUARD to the worker: another guard was started, GUARD is the way to it. From the worker: the
 *     guard with this number is lost to it, and is to be ended if it still runs. The one of START
 *     is number 1, each of these messages brings the next.
 *   PROBE from the worker: try, as a user who has no rights here, whether the rules hold
 *     (control/probe.h); its code says what to try. The answer is PROBE with what was found. */
#define CONTROL_TABLE(X)      \
	X(START, "start")     \
	X(RELOAD, "reload")   \
	X(AUDIT, "audit")     \
	X(VAULT, "vault")     \
	X(ALWAYS, "always")   \
	X(SAVE, "save")       \
	X(COMMIT, "commit")   \
	X(DISCARD, "discard") \
	X(GUARD, "guard")     \
	X(PROBE, "probe")     \
	X(CA, "CA file")      \
	X(STOP, "stop")       \
	X(READY, "ready")     \
	X(ROTATE, "rotate")

enum control_type {
#define X(id, text) CONTROL_##id,
	CONTROL_TABLE(X)
#undef X
		CONTROL_MAX
};

/* A table of descriptors by role, each owned or -1. */
struct roles {
	int fd[ROLE_MAX];
};

const char *role_text(enum role r);
const char *control_text(enum control_type t);

void roles_init(struct roles *r);
/* Closes all. */
void roles_fini(struct roles *r);
/* Moves each descriptor of `from` that is there into r; the one it replaces is closed. */
void roles_update(struct roles *r, struct roles *from);

/* The pair, close-on-exec and blocking: fds[0] for the supervisor, fds[1] for the worker. */
CHECKED int control_pair(int fds[2]);
/* Sends one message; r may be NULL. The descriptors stay the caller's. -EAGAIN on a full socket. */
CHECKED int control_send(int fd, enum control_type type, const struct roles *r);
/* Receives one. *r is always set, owned by the caller, close-on-exec. E_EOF when the other side is
 * gone, -EAGAIN when there is nothing (non-blocking), E_SYNTAX for a packet of another shape (its
 * descriptors are closed). */
CHECKED int control_receive(int fd, enum control_type *type, struct roles *r);
/* The same with the code of an answer, 0 in every other message. */
CHECKED int control_send_code(int fd, enum control_type type, int code);
CHECKED int control_receive_code(int fd, enum control_type *type, struct roles *r, int *code);
