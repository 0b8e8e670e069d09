/* What an operator wants of sandboxes: DIR/wanted/NAME.yaml, each with a selection by metadata, a
 * policy, and the name of a file with a vault. Of several that fit, the first by name counts. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/strbuf.h"

#define WANTED_FILES_MAX 256
#define WANTED_FILE_MAX (1u << 20)
#define WANTED_STAMP_MAX 200 /* instance and two SHA-256, with blanks between them */

struct wanted {
	struct wanted *next;
	char *name;
	char *vault;      /* path of the vault's document; NULL: whatever is there stays */
	char *policy;     /* body of PUT /policy */
	json_t *normal;   /* the same as egress would write it */
	json_t *metadata; /* names and values that a sandbox must have */
};

/* All of dir, which need not be there. A file that is wrong fails the whole, with its name and
 * line, and *out stays as it was; else it is freed and replaced. */
CHECKED int wanted_load(const char *dir, struct wanted **out, struct errmsg *msg);
void wanted_free(struct wanted *w);
/* The one for a sandbox with this metadata (NULL: none); NULL: nobody wants anything of it. */
const struct wanted *wanted_find(const struct wanted *w, const json_t *metadata);
/* Is the answer of GET /policy the wanted one? */
bool wanted_is_policy(const struct wanted *w, struct slice answer);
/* Reads the vault's document into text, which wipes, and makes the stamp of this document in this
 * instance. E_VALUE: others than its owner may read or write it. */
CHECKED int wanted_vault(const struct wanted *w, const char *instance, struct strbuf *text,
	char stamp[WANTED_STAMP_MAX], struct errmsg *msg);
