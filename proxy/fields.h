/* Header fields (RFC 9110 5): a table of slices into the head they came in. Pure. */
#pragma once

#include "base/slice.h"

#define FIELDS_MAX 128

/* Fields that some code of ours asks for. */
#define FIELD_TABLE(X)                                            \
	X(HOST, "host")                                           \
	X(CONTENT_LENGTH, "content-length")                       \
	X(TRANSFER_ENCODING, "transfer-encoding")                 \
	X(CONNECTION, "connection")                               \
	X(PROXY_CONNECTION, "proxy-connection")                   \
	X(KEEP_ALIVE, "keep-alive")                               \
	X(TE, "te")                                               \
	X(TRAILER, "trailer")                                     \
	X(UPGRADE, "upgrade")                                     \
	X(HTTP2_SETTINGS, "http2-settings")                       \
	X(EXPECT, "expect")                                       \
	X(PROXY_AUTHORIZATION, "proxy-authorization")             \
	X(PROXY_AUTHENTICATE, "proxy-authenticate")               \
	X(PROXY_AUTHENTICATION_INFO, "proxy-authentication-info") \
	X(EGRESS_AUTH, "opensandbox-egress-auth")                 \
	X(ALT_SVC, "alt-svc")                                     \
	X(USER_AGENT, "user-agent")                               \
	X(ACCEPT, "accept")                                       \
	X(ACCEPT_ENCODING, "accept-encoding")                     \
	X(CONTENT_TYPE, "content-type")                           \
	X(AUTHORIZATION, "authorization")                         \
	X(ORIGIN, "origin")                                       \
	X(CONTENT_ENCODING, "content-encoding")                   \
	X(RANGE, "range")                                         \
	X(IF_RANGE, "if-range")

enum field_id {
	FIELD_OTHER,
#define X(id, name) FIELD_##id,
	FIELD_TABLE(X)
#undef X
		FIELD_ID_MAX
};

struct field {
	struct slice name;  /* as written */
	struct slice value; /* without leading and trailing OWS */
	enum field_id id;
};

struct fields {
	size_t n;
	uint64_t seen; /* bit `id` for each known field present */
	struct field v[FIELDS_MAX];
};

/* Letter case ignored; FIELD_OTHER for what the table does not list. No comparison for names whose
 * length and first letter fit no row: this runs for every field. */
enum field_id field_id_find(struct slice name);

static inline bool fields_have(const struct fields *f, enum field_id id)
{
	return (f->seen >> id & 1) != 0;
}

/* The first of that id, or NULL. */
const struct field *fields_find(const struct fields *f, enum field_id id);
/* How many of that id. */
size_t fields_count(const struct fields *f, enum field_id id);

/* tchar+ (RFC 9110 5.6.2). */
bool field_name_ok(struct slice name);
/* VCHAR, obs-text, space and tab: no control bytes, no NUL, no CR, no LF. */
bool field_value_ok(struct slice value);

/* Is token (lower case) a member of the comma-separated list in any field of that id? Letter case
 * ignored. */
bool fields_list_has(const struct fields *f, enum field_id id, struct slice token);

/* Walks a comma-separated list (RFC 9110 5.6.1): the next non-empty member, trimmed; false at the
 * end. Start with *rest = the value. Commas inside quoted strings do not separate. */
bool field_list_next(struct slice *rest, struct slice *member);
