/* Attributes and the check for our own mistakes, used everywhere. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CHECKED __attribute__((warn_unused_result))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN __attribute__((noreturn))

#define BIT(n) (1U << (n))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Ends the process when one of our own invariants is broken. Always compiled in. Input from
 * outside must never be able to reach one. */
#define REQUIRE(x) ((x) ? (void)0 : require_failed(#x, __FILE__, __LINE__))

/* Prints the expression to stderr and aborts. */
NORETURN void require_failed(const char *expr, const char *file, int line);
