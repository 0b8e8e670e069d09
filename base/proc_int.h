/* Private to base/proc*.c: whether this is a build with AddressSanitizer, whose runtime needs
 * files, threads and ptrace of its own. */
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define PROC_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PROC_SANITIZED 1
#endif
#endif
#ifndef PROC_SANITIZED
#define PROC_SANITIZED 0
#endif
