/* Error codes and the text that goes with one.
 *
 * A fallible function returns 0 or a negative code: a negated errno, or one of the E_* below.
 * Text for whoever wrote the input (an operator, an API user) goes into a caller's struct errmsg.
 */
#pragma once

#include "base/attr.h"

#define ERR_TABLE(X)                                              \
	X(E_MORE, "more input is needed")                         \
	X(E_TRUNCATED, "input ends too early")                    \
	X(E_SYNTAX, "malformed input")                            \
	X(E_LIMIT, "a limit is exceeded")                         \
	X(E_VALUE, "a value is not acceptable")                   \
	X(E_UNKNOWN, "an unknown name")                           \
	X(E_CHECKSUM, "a checksum does not match")                \
	X(E_TLS, "TLS failed")                                    \
	X(E_CERT, "the certificate was not accepted")             \
	X(E_EOF, "the peer closed the connection")                \
	X(E_NO_NAME, "the name does not exist or has no address") \
	X(E_RESOLVE, "the name could not be looked up")           \
	X(E_FULL, "no room is left")                              \
	X(E_GUARD, "the guard is gone")

enum err {
	ERR_BASE = -10000,
#define X(name, text) name,
	ERR_TABLE(X)
#undef X
		ERR_END
};

/* One line that explains a failure to a person; text is NUL-terminated, cut at its size. */
struct errmsg {
	char text[512];
};

/* The text of an E_* or of a negated errno. Never NULL; static or thread-local storage. */
const char *err_text(int code);

/* Writes the message and returns code, so that a failing function can `return errmsg_set(...)`.
 * m may be NULL. */
int errmsg_set(struct errmsg *m, int code, const char *fmt, ...) PRINTF(3, 4);

/* Puts "prefix: " before the message that m already holds, and returns code. */
int errmsg_prefix(struct errmsg *m, int code, const char *fmt, ...) PRINTF(3, 4);
