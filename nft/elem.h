/* Sets and their elements, as messages of a batch. */
#pragma once

#include "nft/batch.h"

/* What the keys of a set are, in the order of its fields; ADDR is IPv4 or IPv6 by `v6`. */
enum elem_shape {
	ELEM_ADDR,       /* address */
	ELEM_ADDR_PORTS, /* address . protocol . port */
	ELEM_ADDR_PORT,  /* address . port */
	ELEM_PORT,
	ELEM_SHAPE_MAX
};

struct elem_set {
	const char *name;
	enum elem_shape shape;
	bool v6;
	bool interval; /* ranges; else single keys */
	bool timeout;  /* leases */
	uint32_t id;   /* within the batch that creates it */
};

/* More leases than that are refused (ENFILE): the answer is SERVFAIL, and memory has a bound. */
#define ELEM_LEASES_MAX 131072

/* The longest key: IPv6, protocol, port, each padded to 4 bytes. */
#define ELEM_KEY_MAX 24

/* Creates the set in table inet opensandbox. */
void elem_set_add(struct batch *b, const struct elem_set *s);
/* Whether the entry belongs into a set of this shape: family, and ports or none. */
bool elem_takes(const struct elem_set *s, const struct ruleset_entry *e);
/* Adds entries i of e[0..n) that elem_takes and that have this kind. */
void elem_add(struct batch *b, const struct elem_set *s, const struct ruleset_entry *e, size_t n,
	enum ruleset_kind kind);
/* The same for a set that an earlier batch created: found by its name. */
void elem_add_known(struct batch *b, const struct elem_set *s, const struct ruleset_entry *e,
	size_t n, enum ruleset_kind kind);
/* Leases, of such a set: adds, removes and adds again, which gives each a fresh timeout whether it
 * was there or not. (Adding what is there does not restart its timer on every kernel.) */
void elem_renew(struct batch *b, const struct elem_set *s, const struct ruleset_entry *e, size_t n);
/* Key bytes of an address, protocol and port; returns the length. For tests too. */
size_t elem_key(const struct elem_set *s, const struct netaddr *a, uint8_t proto, uint16_t port,
	uint8_t out[ELEM_KEY_MAX]);
