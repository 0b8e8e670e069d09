/* What the tests of the audit trail share: an event, an area, a temporary file, its lines. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit/audit.h"
#include "audit/audit_file.h"
#include "base/clock.h"

#define TRAIL_TEXT_MAX (16u << 20)

static inline struct audit_event trail_event(const char *url)
{
	struct audit_event e = {
		.kind = AUDIT_READ,
		.verdict = AUDIT_ALLOWED,
		.reason = REASON_ALLOWED,
		.method = SLICE("GET"),
		.url = slice_str(url),
		.host = SLICE("docs.test"),
		.uid = 1000,
		.start_us = UINT64_C(1767323045678901), /* 2026-01-02T03:04:05.678901Z */
	};

	return e;
}

static inline struct audit_event trail_refusal(const char *host, uint32_t uid)
{
	struct audit_event e = trail_event("http://refused.test/");

	e.verdict = AUDIT_BLOCKED;
	e.reason = REASON_HOST_NOT_LISTED;
	e.host = slice_str(host);
	e.status = 403;
	e.uid = uid;
	return e;
}

/* Memory as a memfd gives it: zero, and only what is touched exists. */
static inline void *trail_area(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

struct trail_file {
	char dir[32];
	char path[48];
};

static inline void trail_file_init(struct trail_file *f)
{
	*f = (struct trail_file){.dir = "/tmp/egress-audit-XXXXXX"};
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/audit.log", f->dir);
}

static inline int trail_file_open(const struct trail_file *f)
{
	int fd = open(f->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

static inline void trail_file_fini(struct trail_file *f)
{
	char name[80];

	(void)unlink(f->path);
	for (int i = 1; i < 4; i++) {
		(void)snprintf(name, sizeof(name), "%s.%d", f->path, i);
		(void)unlink(name);
	}
	assert_int_equal(rmdir(f->dir), 0);
}

/* The whole file, to be freed. */
static inline char *trail_read(const char *path, size_t *len)
{
	char *text = malloc(TRAIL_TEXT_MAX);
	FILE *file = fopen(path, "re");

	assert_non_null(text);
	assert_non_null(file);
	*len = fread(text, 1, TRAIL_TEXT_MAX - 1, file);
	text[*len] = '\0';
	(void)fclose(file);
	return text;
}

static inline void trail_write(const char *path, const char *text, size_t len)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

/* By hand: strstr under ASan looks at the whole text each time. */
static inline uint64_t trail_count(const char *text, const char *what)
{
	size_t len = strlen(what);
	uint64_t n = 0;

	for (; *text; text++)
		n += *text == *what && strncmp(text, what, len) == 0;
	return n;
}

static inline void trail_verify(const char *path, uint64_t first, uint64_t last)
{
	struct audit_verify v;

	assert_int_equal(audit_verify(path, true, &v, NULL), 0);
	assert_string_equal(audit_break_text(v.what), audit_break_text(AUDIT_BREAK_NONE));
	assert_int_equal(v.first_seq, first);
	assert_int_equal(v.last_seq, last);
}

static inline uint64_t trail_number(const char *text, const char *name)
{
	const char *p = strstr(text, name);

	assert_non_null(p);
	return strtoull(p + strlen(name), NULL, 10);
}
