/* Request targets and authorities (RFC 9112 3.2, RFC 3986 3.2) in one canonical form. Pure. */
#pragma once

#include "base/hostname.h"
#include "base/netaddr.h"

enum target_form { TARGET_ORIGIN, TARGET_ABSOLUTE, TARGET_AUTHORITY, TARGET_ASTERISK };

/* A host and a port. An address in any spelling is one value: `name` is then its canonical text. */
struct authority {
	bool is_addr;
	bool has_port;
	uint16_t port;       /* 0 unless has_port */
	struct netaddr addr; /* if is_addr */
	size_t name_len;
	char name[HOSTNAME_MAX + 1]; /* normal form; address: netaddr_text, without brackets */
};

struct request_target {
	enum target_form form;
	bool https;    /* TARGET_ABSOLUTE: scheme */
	bool userinfo; /* TARGET_ABSOLUTE had `user:password@`; it is not part of anything here */
	struct authority authority; /* TARGET_ABSOLUTE and TARGET_AUTHORITY */
	struct slice path_query;    /* as sent upstream in origin-form: "/" at least, or "*" */
	struct slice path;
	struct slice query; /* without '?'; empty if there is none */
};

static inline struct slice authority_name(const struct authority *a)
{
	return (struct slice){a->name, a->name_len};
}

/* `host`, `host:port`, `[v6]:port`. E_SYNTAX: empty, zone, unbracketed or broken IPv6, non-ASCII,
 * '%', two dots, port that is not 1..65535 in plain decimal without leading zero. Userinfo is
 * refused. */
CHECKED int authority_decode(struct slice s, struct authority *out);

/* By method: CONNECT takes only authority-form, with a port; OPTIONS may take `*`; everything else
 * origin-form or absolute-form with scheme http or https (letter case ignored). No fragment, no
 * byte outside VCHAR. A non-ASCII byte in path or query is accepted as it is (real clients send
 * raw UTF-8). An absolute-form without path gets "/" (or "*" for OPTIONS); a query without path is
 * refused. */
CHECKED int request_target_decode(
	struct slice method, struct slice target, struct request_target *out);

/* A place that we are told to ask ourselves: absolute-form, with the scheme's port where none is
 * named. E_VALUE: another form, or userinfo. */
CHECKED int request_target_decode_url(struct slice url, struct request_target *out);

/* The same host; and the same port, where one that is left out is default_port. */
bool authority_same(const struct authority *a, const struct authority *b, uint16_t default_port);

#define AUTHORITY_TEXT_MAX (HOSTNAME_MAX + 10)
/* `host`, or with a port that is not default_port `host:port`; IPv6 in brackets. Returns its
 * length. */
size_t authority_text(
	const struct authority *a, uint16_t default_port, char buf[AUTHORITY_TEXT_MAX]);
