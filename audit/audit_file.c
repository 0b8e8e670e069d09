/* The reader's side of the trail: iterates over files, verifies numbers and chain. */
#include "audit/audit_file.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"

struct audit_file {
	char *path;
	char *name;     /* of the open one */
	uint32_t older; /* number of the open one, 0: path itself */
	FILE *file;
	char *line;
	size_t size;
	uint64_t number;
};

static const char *const audit_breaks[] = {
#define X(id, text) text,
	AUDIT_BREAK_TABLE(X)
#undef X
};

const char *audit_break_text(enum audit_break b)
{
	REQUIRE((unsigned int)b < ARRAY_LEN(audit_breaks));
	return audit_breaks[b];
}

static char *audit_file_name(const char *path, uint32_t older)
{
	char *name = NULL;
	int ret;

	ret = older ? asprintf(&name, "%s.%u", path, older) : asprintf(&name, "%s", path);
	REQUIRE(ret >= 0);
	return name;
}

/* Never 0 or above, which would be taken for a line. */
static int audit_file_errno(void)
{
	int code = errno;

	return code > 0 ? -code : -EIO;
}

static int audit_file_switch(struct audit_file *f, uint32_t older)
{
	if (f->file)
		(void)fclose(f->file);
	free(f->name);
	f->name = audit_file_name(f->path, older);
	f->older = older;
	f->number = 0;
	f->file = fopen(f->name, "re");
	return f->file ? 0 : audit_file_errno();
}

static uint32_t audit_file_oldest(const char *path)
{
	uint32_t n = 0;
	bool found = true;

	while (found && n < AUDIT_FILE_OLDER_MAX) {
		char *name = audit_file_name(path, n + 1);

		found = access(name, F_OK) == 0;
		n += found;
		free(name);
	}
	return n;
}

int audit_file_open(const char *path, bool older, struct audit_file **out, struct errmsg *msg)
{
	struct audit_file *f = xcalloc(1, sizeof(*f));
	int ret;

	f->path = xstrdup(path);
	ret = audit_file_switch(f, older ? audit_file_oldest(path) : 0);
	if (ret < 0) {
		(void)errmsg_set(msg, ret, "%s: %s", f->name, err_text(ret));
		audit_file_close(f);
		return ret;
	}
	*out = f;
	return 0;
}

void audit_file_close(struct audit_file *f)
{
	if (!f)
		return;
	if (f->file)
		(void)fclose(f->file);
	free(f->line);
	free(f->name);
	free(f->path);
	free(f);
}

bool audit_line_is_note(struct slice text)
{
	return slice_starts(text, SLICE(AUDIT_NOTE));
}

/* One line, whatever it is: its length, 0 at the end, or a negated errno. */
static ssize_t audit_file_read(struct audit_file *f)
{
	ssize_t n;

	while ((n = getline(&f->line, &f->size, f->file)) < 0) {
		int ret = ferror(f->file) ? audit_file_errno() : 0;

		if (ret == 0 && f->older > 0)
			ret = audit_file_switch(f, f->older - 1);
		else
			return ret;
		/* Just after a rotation the newest one may not be there yet. */
		if (ret < 0)
			return ret == -ENOENT && f->older == 0 ? 0 : ret;
	}
	f->number++;
	return n;
}

int audit_file_next(struct audit_file *f, struct audit_line *line)
{
	ssize_t n;

	*line = (struct audit_line){.path = "", .text = SLICE_EMPTY, .prev = SLICE_EMPTY};
	do
		n = audit_file_read(f);
	while (n > 0 && audit_line_is_note(slice_make(f->line, (size_t)n)));
	if (n <= 0)
		return (int)n;
	*line = (struct audit_line){.path = f->name, .number = f->number};
	line->torn = f->line[n - 1] != '\n';
	line->text = slice_make(f->line, (size_t)n - !line->torn);
	if (!ring_line_parse(line->text, &line->seq, &line->prev)) {
		line->seq = 0;
		line->prev = SLICE_EMPTY;
	}
	return 1;
}

enum audit_break audit_line_check(
	const struct audit_line *line, uint64_t last_seq, const char hash[RING_HEX_LEN])
{
	static const char zeros[RING_HEX_LEN + 1] =
		"0000000000000000000000000000000000000000000000000000000000000000";

	if (line->torn)
		return AUDIT_BREAK_TORN;
	if (line->seq == 0)
		return AUDIT_BREAK_MALFORMED;
	if (last_seq == 0 && line->seq != 1)
		return AUDIT_BREAK_NONE;
	if (line->seq <= last_seq)
		return AUDIT_BREAK_REPEAT;
	if (line->seq > last_seq + 1)
		return AUDIT_BREAK_HOLE;
	return slice_eq(line->prev, slice_make(last_seq ? hash : zeros, RING_HEX_LEN))
		? AUDIT_BREAK_NONE
		: AUDIT_BREAK_CHAIN;
}

static int audit_verify_lines(struct audit_file *f, struct audit_verify *v)
{
	struct audit_line line;
	char hash[RING_HEX_LEN] = "";
	int ret;

	while ((ret = audit_file_next(f, &line)) > 0) {
		v->lines++;
		v->what = audit_line_check(&line, v->last_seq, hash);
		if (v->what != AUDIT_BREAK_NONE) {
			v->number = line.number;
			v->seq = line.seq;
			if (!slice_to_cstr(slice_str(line.path), v->path, sizeof(v->path)))
				return -ENAMETOOLONG;
			return 0;
		}
		if (v->first_seq == 0)
			v->first_seq = line.seq;
		v->last_seq = line.seq;
		ring_sha_hex(line.text, hash);
	}
	return ret;
}

int audit_verify(const char *path, bool older, struct audit_verify *v, struct errmsg *msg)
{
	struct audit_file *f = NULL;
	int ret;

	*v = (struct audit_verify){0};
	ret = audit_file_open(path, older, &f, msg);
	if (ret < 0)
		return ret;
	ret = audit_verify_lines(f, v);
	if (ret < 0)
		(void)errmsg_set(msg, ret, "%s: %s", f->name, err_text(ret));
	audit_file_close(f);
	return ret;
}
