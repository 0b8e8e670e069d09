/* From what was seen of a sandbox at the API to what is enforced. Pure. Before it: lifecycle_doc;
 * after it: control/lifecycle. What the API says or leaves unsaid never makes a policy wider: the
 * widest outcome is the policy in force. */
#pragma once

#include "control/lifecycle_doc.h"

/* From the widest to the closest. */
#define LIFECYCLE_ENFORCE_TABLE(X)                        \
	X(OPEN, "the policy in force")                    \
	X(NO_NEW_FLOWS, "nothing new, what runs may end") \
	X(CLOSED, "nothing")                              \
	X(CLOSED_ERASE, "nothing, and no keys")

enum lifecycle_enforce {
#define X(id, text) LIFECYCLE_##id,
	LIFECYCLE_ENFORCE_TABLE(X)
#undef X
		LIFECYCLE_ENFORCES
};

#define LIFECYCLE_CAUSE_TABLE(X)                                       \
	X(NOT_ASKED, "the API has not answered yet")                   \
	X(STATE, "the sandbox's state")                                \
	X(NEW_STATE, "a state that is not known here")                 \
	X(EXPIRED, "the sandbox has expired")                          \
	X(GONE, "the API does not know the sandbox")                   \
	X(GONE_ONCE, "the API does not know the sandbox: asked again") \
	X(KEY_REFUSED, "the API refuses the key")                      \
	X(UNREACHABLE, "the API does not answer")                      \
	X(UNREACHABLE_EXPIRED, "the API does not answer, and the sandbox has expired")

enum lifecycle_cause {
#define X(id, text) LIFECYCLE_CAUSE_##id,
	LIFECYCLE_CAUSE_TABLE(X)
#undef X
		LIFECYCLE_CAUSES
};

const char *lifecycle_enforce_text(enum lifecycle_enforce e);
const char *lifecycle_cause_text(enum lifecycle_cause c);

/* What is known, zeroed at the start. */
struct lifecycle_known {
	enum lifecycle_enforce enforce;
	enum lifecycle_cause cause;
	enum lifecycle_state state; /* of the last answer that was read */
	uint64_t expires_us;        /* likewise; 0: never, or not known */
	bool found;                 /* there was such an answer */
	bool missing;               /* the last answer was 404 */
};

/* Takes an answer into account. s: NULL where no sandbox could be read, whatever the reason
 * (another id, too large, no JSON); status: then that of HTTP, 0: there was no answer. True if
 * enforce, cause, state or expiry changed. */
bool lifecycle_state_see(
	struct lifecycle_known *k, const struct lifecycle_sandbox *s, int status, uint64_t wall_us);
