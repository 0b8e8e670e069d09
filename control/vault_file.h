/* The operator's vault file as the JSON document that the vault takes: YAML is converted, and a
 * credential whose source is a file gets that file's text.
 *
 * Everything here is in ordinary memory, so it runs only in a process that ends right after it
 * (control/vault_feed.h). */
#pragma once

#include "base/err.h"
#include "base/slice.h"
#include "control/vault_watch.h"

/* path: YAML, or JSON when its first byte that is no white space is `{`. On success *json is a text
 * of at most VAULT_DOC_MAX bytes, to be freed. The message names the file, the place in it and what
 * was expected, and quotes nothing of what was read but the absolute path of a source. watch gets
 * every file that was tried. */
CHECKED int vault_file_read(
	const char *path, char **json, struct vault_watch *watch, struct errmsg *msg);
