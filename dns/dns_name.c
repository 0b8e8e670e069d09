/* Reads, compares and spells names. Pure. Before it: the bytes of a message. After it: dns_msg,
 * which walks messages, and dns_query, which asks policy about the text. */
#include "dns/dns_name.h"

#include <stdio.h>

#define DNS_NAMES_FROM 12 /* no name stands in the header */
#define DNS_POINTER 0xc0  /* the two top bits of a length; 01 and 10 are reserved (RFC 6891 5) */

size_t dns_name_read(struct slice msg, size_t at, bool pointers, struct dns_name *out)
{
	const uint8_t *p = (const uint8_t *)msg.p;
	size_t behind = 0; /* set by the first pointer */
	size_t run = at;   /* where this run of labels began: the next pointer goes before it */
	size_t n = 0;
	size_t len, to;

	while (at < msg.len) {
		len = p[at];
		if ((len & DNS_POINTER) == DNS_POINTER) {
			if (!pointers || msg.len - at < 2)
				return 0;
			to = (len & ~(size_t)DNS_POINTER) << 8 | p[at + 1];
			if (to >= run || to < DNS_NAMES_FROM)
				return 0;
			if (behind == 0)
				behind = at + 2;
			at = to;
			run = to;
			continue;
		}
		if (len > LABEL_MAX || msg.len - at < len + 1 || n + len + 1 > DNS_NAME_MAX)
			return 0;
		memcpy(out->b + n, p + at, len + 1);
		n += len + 1;
		at += len + 1;
		if (len == 0) {
			out->len = (uint8_t)n;
			return behind ? behind : at;
		}
	}
	return 0;
}

/* Lengths are below 'A', so that lowering the case of a whole name changes letters only. */
static bool dns_bytes_eq(const uint8_t *a, const uint8_t *b, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (a[i] != b[i] && ascii_lower((char)a[i]) != ascii_lower((char)b[i]))
			return false;
	return true;
}

bool dns_name_eq(const struct dns_name *a, const struct dns_name *b)
{
	return a->len == b->len && dns_bytes_eq(a->b, b->b, a->len);
}

bool dns_name_within(const struct dns_name *name, const struct dns_name *zone)
{
	size_t at = 0;

	while (at < name->len) {
		if ((size_t)name->len - at == zone->len)
			return dns_bytes_eq(name->b + at, zone->b, zone->len);
		at += (size_t)name->b[at] + 1;
	}
	return false;
}

bool dns_name_host(const struct dns_name *n, char buf[HOSTNAME_MAX + 1], size_t *len)
{
	size_t to = 0;
	size_t at = 0;
	size_t end;
	char c;

	while (n->b[at] != 0) {
		if (at > 0)
			buf[to++] = '.';
		end = at + 1 + n->b[at];
		for (at++; at < end; at++) {
			c = ascii_lower((char)n->b[at]);
			if (!(c >= 'a' && c <= 'z') && !ascii_digit(c) && c != '-' && c != '_')
				return false;
			buf[to++] = c;
		}
	}
	buf[to] = '\0';
	*len = to;
	return true;
}

size_t dns_name_text(const struct dns_name *n, char buf[DNS_NAME_TEXT_MAX])
{
	size_t to = 0;
	size_t at = 0;
	size_t end;
	char c;

	if (n->len == 1)
		buf[to++] = '.';
	while (n->b[at] != 0) {
		if (at > 0)
			buf[to++] = '.';
		end = at + 1 + n->b[at];
		for (at++; at < end; at++) {
			c = ascii_lower((char)n->b[at]);
			if (c > ' ' && c < 0x7f && c != '.' && c != '\\')
				buf[to++] = c;
			else
				to += (size_t)snprintf(
					buf + to, DNS_NAME_TEXT_MAX - to, "\\%03u", n->b[at]);
		}
	}
	buf[to] = '\0';
	return to;
}

bool dns_name_from_text(struct slice s, struct dns_name *out)
{
	char host[HOSTNAME_MAX + 1];
	struct slice rest, label;
	size_t n = 0;
	size_t len;

	if (s.len == 0 || slice_eq(s, SLICE("."))) {
		out->len = 1;
		out->b[0] = 0;
		return true;
	}
	if (hostname_normal(s, host, &len) < 0)
		return false;
	rest = slice_make(host, len);
	while (rest.p) {
		label = slice_cut(&rest, '.');
		out->b[n++] = (uint8_t)label.len;
		memcpy(out->b + n, label.p, label.len);
		n += label.len;
	}
	out->b[n++] = 0;
	out->len = (uint8_t)n;
	return true;
}
