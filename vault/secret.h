/* One key: its bytes and the spellings in which a request may carry it, all in locked memory.
 * Counted, since successive views share what did not change. */
#pragma once

#include "base/secmem.h"

enum secret_form { SECRET_RAW, SECRET_PERCENT, SECRET_FORM, SECRET_JSON, SECRET_FORMS };

struct secret;

/* One reference; NULL when mem has no room. value is UTF-8. */
struct secret *secret_new(struct secmem *mem, struct slice value);
struct secret *secret_ref(struct secret *s);
void secret_unref(struct secret *s);

/* Forms that are equal to the raw bytes are the raw bytes. Borrowed. */
struct slice secret_form(const struct secret *s, enum secret_form form);
/* Length of s with every byte of a JSON string's contents escaped as SECRET_JSON does. to: where to
 * write it, NULL to count. */
size_t secret_json_escape(struct slice s, char *to);
/* Is s well-formed UTF-8 (RFC 3629)? */
bool secret_is_utf8(struct slice s);
