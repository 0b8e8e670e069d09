/* The operator's log: one line an event, `time level who module: what: detail`.
 *
 * Lossy: it never blocks the caller for long and never fails it. Text from outside is escaped
 * (control bytes, non-ASCII and backslash as \xNN). Never holds a key, a substituted part or
 * content. */
#pragma once

#include "base/slice.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* fd stays the caller's. Before the first call: level info, descriptor 2. who: prefix of each line
 * ("egress", "egress[worker]"), static. */
void log_setup(enum log_level level, int fd, const char *who);
bool log_enabled(enum log_level level);

/* module: the file's noun. A format without newline. */
void log_line(enum log_level level, const char *module, const char *fmt, ...) PRINTF(3, 4);

#define log_error(module, ...) log_line(LOG_LEVEL_ERROR, module, __VA_ARGS__)
#define log_warn(module, ...) log_line(LOG_LEVEL_WARN, module, __VA_ARGS__)
#define log_info(module, ...) log_line(LOG_LEVEL_INFO, module, __VA_ARGS__)
#define log_debug(module, ...)                                          \
	do {                                                            \
		if (log_enabled(LOG_LEVEL_DEBUG))                       \
			log_line(LOG_LEVEL_DEBUG, module, __VA_ARGS__); \
	} while (0)

/* Allows `burst` lines, then one each `every_ms`; quiet times refill the burst. The next one that
 * passes says how many were left out. One static struct for each call site. */
struct log_rate {
	uint32_t burst;
	uint32_t every_ms;
	uint64_t next_ms;
	uint32_t used;
	uint32_t left_out;
};
/* True if a line may be written now; *left_out lines were suppressed before it. */
bool log_rate_ok(struct log_rate *r, uint64_t now_ms, uint32_t *left_out);
