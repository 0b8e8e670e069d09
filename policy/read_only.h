/* The read-only rule: what counts as a read, and where writes may go. Pure. docs/read-only.md has
 * the definition and the table of vectors. */
#pragma once

#include "policy/check.h"

/* Where writes may go: exact names, and suffixes ("*.x": below x, ".x": x and below). */
struct write_hosts;

enum write_match { WRITE_NO, WRITE_WILDCARD, WRITE_EXACT };

/* A list separated by commas and/or white space. Refused with a message that names the entry and
 * what was expected: a URL, a port, a bare `*`, an address block, a broken name. An IP address
 * literal is an exact entry. IDN becomes A-labels. Empty list: fine, nothing may be written. */
CHECKED int write_hosts_decode(struct slice list, struct write_hosts **out, struct errmsg *msg);
void write_hosts_free(struct write_hosts *w);
/* name: normal form, or an address in canonical text. `x` is an exact match of `.x`. */
enum write_match write_hosts_match(const struct write_hosts *w, struct slice name);
size_t write_hosts_count(const struct write_hosts *w);
/* The entries in normal form, for `--check` and start-up warnings: "a.b", "*.b", ".b". i < count.
 */
const char *write_hosts_entry(const struct write_hosts *w, size_t i);
/* The first entry, or NULL, for which no rule of p can allow a matching name. */
const char *write_hosts_not_allowed(const struct write_hosts *w, const struct policy *p);

/* The facts of a request on which the rule rests, gathered by whoever parsed it. */
struct read_request {
	struct slice method;       /* case-sensitive (RFC 9110 9.1) */
	struct slice path;         /* without query */
	struct slice query;        /* without '?', may be empty */
	struct slice content_type; /* of the request, may be empty */
	bool content;        /* Content-Length above 0, a transfer coding, DATA with a payload */
	bool trailers;       /* a Trailer field, or trailers seen */
	bool upgrade;        /* Upgrade to anything but h2c */
	bool override_field; /* read_only_is_override() for one of its fields */
};

/* ALLOWED: a read. GIT_FETCH: POST .../git-upload-pack with its media type while git_fetch is on.
 * Else why it is not a read. `_method` in the query is not a read. */
enum reason read_only_check(const struct read_request *r, bool git_fetch);

/* X-HTTP-Method-Override, X-Method-Override, X-HTTP-Method, X-Original-Method, X-Original-URL,
 * X-Rewrite-URL, and _method; letter case ignored, `_` read as `-`. */
bool read_only_is_override(struct slice field_name);

/* May a write go to this name and address? The address is the one we connect to.
 *   write host, exact name: wherever policy lets it go; wildcard: not to a private address,
 *     unless as below;
 *   private class and policy_addr_rule_allows(): a literal address, or a name under priv.
 * WRITE_HOST or WRITE_PRIVATE if so; METHOD_NOT_READ or REBINDING_WRITE if not. name is empty for a
 * literal address; then the literal is looked up among the write hosts as text. `a` may be NULL for
 * a name for which read_only_needs_address() is false. */
enum reason read_only_write_check(const struct write_hosts *w, const struct policy *p,
	const struct private_names *priv, struct slice name, const struct netaddr *a,
	uint16_t port);

/* True if read_only_write_check can only be answered with the address (a name that is no exact
 * write host but may become writable, or unwritable, by where it resolves). */
bool read_only_needs_address(
	const struct write_hosts *w, const struct private_names *priv, struct slice name);
