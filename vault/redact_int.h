/* The search table, shared by redact.c (builds it), redact_search.c (uses it) and redact_stream.c.
 * Everything but this struct lies in locked memory: the tables alone narrow a key down. */
#pragma once

#include "vault/redact.h"

#define REDACT_WINDOW 16 /* bytes of a form that the shift table looks at */
#define REDACT_BLOCK 4   /* bytes that are hashed together */
/* Blocks in a window. How far it moves when its last one is in no form. */
#define REDACT_BLOCKS (REDACT_WINDOW - REDACT_BLOCK + 1)

/* What bytes a form is made of decides how much of a text is held back for it. See
 * redact_stream.c. */
enum redact_level {
	REDACT_TOKEN, /* token characters only: every form of an ordinary key */
	REDACT_LINE,  /* no CR, no LF */
	REDACT_LINES, /* no empty line, none at its start */
	REDACT_ANY,
	REDACT_LEVEL_MAX
};

struct redact_form {
	struct redact_form *next; /* of the same list */
	size_t len;
	char text[]; /* lower case */
};

/* Forms are kept in a few large blocks, not in one each. */
struct redact_chunk {
	struct redact_chunk *next;
	size_t used;
	size_t cap;
	char bytes[];
};

/* Forms by a hash of their first bytes. */
struct redact_lists {
	struct redact_form *all; /* until they are compiled */
	struct redact_form **heads;
	unsigned int bits;
	size_t n; /* forms in all of them */
};

struct redact_table {
	struct secmem *mem;
	struct redact_chunk *chunks;
	bool compiled;
	size_t longest[REDACT_LEVEL_MAX]; /* of each level */
	/* Forms of at least REDACT_WINDOW bytes. shift: how far the window may move when its last
	 * block has this hash; 0: a form may begin here. */
	struct redact_lists whole;
	uint8_t *shift;
	unsigned int shift_bits;
	bool sparse; /* few blocks of other texts are taken for one of a form */
	/* Shorter ones. first: a bit for each hash of a block that a form begins with. */
	struct redact_lists brief;
	uint8_t *first;
	unsigned int first_bits;
};

/* Letter case is lost, and so are a few other differences that the comparison will see. */
static inline uint32_t redact_load(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v | 0x20202020;
}

static inline uint32_t redact_hash(uint32_t v, unsigned int bits)
{
	return v * 0x9e3779b1U >> (32 - bits);
}

static inline uint32_t redact_hash_block(const char *p, unsigned int bits)
{
	return redact_hash(redact_load(p), bits);
}

/* Of the window at p. */
static inline uint32_t redact_hash_window(const char *p, unsigned int bits)
{
	uint32_t h = redact_load(p);

	for (unsigned int i = REDACT_BLOCK; i < REDACT_WINDOW; i += REDACT_BLOCK)
		h = (h ^ h >> 15) * 0x85ebca6bU ^ redact_load(p + i);
	return redact_hash(h, bits);
}

/* A search through a text, from its start. */
struct redact_scan {
	const struct redact_table *table;
	char *p;
	size_t len;
	size_t starts; /* only matches that begin before this; nothing from here on is changed */
	/* Matched and not yet overwritten, before the first call: matched earlier. After the last,
	 * to may lie behind starts: what follows is covered as far as that. */
	size_t from;
	size_t to;
	bool found;
};

/* Overwrites whatever is matched before starts. The table is compiled. */
void redact_scan_run(struct redact_scan *s);

enum redact_level redact_form_level(struct slice form);
