/* Command tables, option messages and the one way out for output. */
#include "ctl/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/slice.h"

#define COMMAND_NAMES_MAX 32 /* rows of a table, or long options */
#define COMMAND_WORD_MAX 32  /* longer words are nobody's slip of the finger */

void command_complain(const char *fmt, ...)
{
	static const char hex[] = "0123456789abcdef";
	char text[1024], line[4 * sizeof(text)];
	size_t n = 0;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (size_t i = 0; text[i]; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c >= 0x20 && c < 0x7f) {
			line[n++] = (char)c;
			continue;
		}
		memcpy(line + n, "\\x", 2);
		line[n + 2] = hex[c >> 4];
		line[n + 3] = hex[c & 0xf];
		n += 4;
	}
	/* Nobody is left to be told when stderr fails. */
	(void)fprintf(stderr, "egressctl: %.*s\n", (int)n, line);
}

enum command_exit command_flush(enum command_exit code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	/* The reader of a pipe that went away has what it wanted. */
	if (errno == EPIPE)
		return code;
	command_complain("stdout: %s", err_text(-errno));
	return COMMAND_WRONG;
}

enum command_exit command_help(const char *text)
{
	(void)fputs(text, stdout);
	return command_flush(COMMAND_OK);
}

/* Optimal string alignment: letters added, lost, changed, or two beside each other swapped. */
static unsigned command_distance(const char *a, const char *b)
{
	unsigned rows[3][COMMAND_WORD_MAX + 1] = {{0}};
	size_t a_len = strlen(a), b_len = strlen(b);

	if (a_len > COMMAND_WORD_MAX || b_len > COMMAND_WORD_MAX)
		return UINT32_MAX;
	for (size_t k = 0; k <= b_len; k++)
		rows[0][k] = (unsigned)k;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];

		row[0] = (unsigned)i;
		for (size_t k = 1; k <= b_len; k++) {
			unsigned cost = up[k - 1] + (a[i - 1] != b[k - 1]);

			cost = cost < up[k] + 1 ? cost : up[k] + 1;
			cost = cost < row[k - 1] + 1 ? cost : row[k - 1] + 1;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
				up2[k - 2] + 1 < cost)
				cost = up2[k - 2] + 1;
			row[k] = cost;
		}
	}
	return rows[a_len % 3][b_len];
}

const char *command_nearest(const char *typed, const char *const *names)
{
	const char *nearest = NULL;
	unsigned least = UINT32_MAX;

	for (; *names; names++) {
		unsigned d = command_distance(typed, *names);
		size_t len = strlen(*names);

		/* A start of the name is as good as one slip. */
		if (strlen(typed) >= 2 && strncmp(typed, *names, strlen(typed)) == 0)
			d = 1;
		if (d < least && d <= (len <= 4 ? 2 : 3) && d < len) {
			least = d;
			nearest = *names;
		}
	}
	return nearest;
}

static enum command_exit command_unknown(
	const struct command *table, const char *path, const char *typed)
{
	const char *names[COMMAND_NAMES_MAX] = {NULL};
	const char *nearest;

	for (size_t i = 0; table[i].name && i + 1 < COMMAND_NAMES_MAX; i++)
		names[i] = table[i].name;
	nearest = command_nearest(typed, names);
	if (nearest)
		command_complain(
			"unknown command \"%.60s\": did you mean `%s %s`?", typed, path, nearest);
	else
		command_complain("unknown command \"%.60s\": see `%s --help`", typed, path);
	return COMMAND_WRONG;
}

enum command_exit command_run(
	const struct command *table, const char *path, const char *help, int argc, char **argv)
{
	if (argc < 2) {
		(void)fputs(help, stderr);
		return COMMAND_WRONG;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return command_help(help);
	for (size_t i = 0; table[i].name; i++)
		if (strcmp(argv[1], table[i].name) == 0)
			return table[i].run(argc - 1, argv + 1);
	if (argv[1][0] == '-') {
		command_complain("unknown option \"%.60s\": see `%s --help`", argv[1], path);
		return COMMAND_WRONG;
	}
	return command_unknown(table, path, argv[1]);
}

static void command_unknown_option(const char *typed, const struct option *longs, const char *path)
{
	const char *names[COMMAND_NAMES_MAX] = {NULL};
	const char *nearest = NULL;
	char word[COMMAND_WORD_MAX + 1];

	for (size_t i = 0; longs[i].name && i + 1 < COMMAND_NAMES_MAX; i++)
		names[i] = longs[i].name;
	if (strncmp(typed, "--", 2) == 0 &&
		slice_to_cstr(slice_first(slice_str(typed + 2), strcspn(typed + 2, "=")), word,
			sizeof(word)))
		nearest = command_nearest(word, names);
	if (nearest)
		command_complain("unknown option \"%.60s\": did you mean --%s?", typed, nearest);
	else
		command_complain("unknown option \"%.60s\": see `%s --help`", typed, path);
}

int command_option(
	int argc, char **argv, const char *shorts, const struct option *longs, const char *path)
{
	int c;

	opterr = 0;
	c = getopt_long(argc, argv, shorts, longs, NULL);
	if (c == ':') {
		command_complain(
			"%.60s: expected a value: see `%s --help`", argv[optind - 1], path);
		return '?';
	}
	if (c == '?') {
		/* A wrong letter may stand among others in one argument. */
		char letter[3] = {'-', (char)optopt, '\0'};
		bool is_letter = optopt > 0 && optopt < 0x7f &&
			(optind < 1 || strncmp(argv[optind - 1], "--", 2) != 0);

		command_unknown_option(is_letter ? letter : argv[optind - 1], longs, path);
	}
	return c;
}
