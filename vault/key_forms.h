/* Every spelling in which a key may come back: raw, base64 at three alignments, base64url, hex,
 * percent, JSON and HTML escapes, Basic's user:pass. Letter case is ignored by the search, so one
 * case is enough. */
#pragma once

#include "base/secmem.h"

#define KEY_FORM_MIN 4   /* shorter forms are not searched: they would blank ordinary text */
#define KEY_FORMS_MAX 32 /* of one key */

/* Calls each(form) for every distinct form of key of at least KEY_FORM_MIN bytes; what it passes
 * lies in memory of mem and is wiped after the call. rendered: also the value as a header carries
 * it (`Bearer v`) needs no form of its own, since v is in it. basic: the key is base64(user:pass);
 * its decoded text, and the password alone, are keys too. False when mem has no room. */
CHECKED bool key_forms_each(struct secmem *mem, struct slice key, bool basic,
	void (*each)(struct slice form, void *arg), void *arg);
