/* Writes replies. Pure. Before it: dns_query, which knows what to say. After it: dns_server, which
 * sends the bytes. Records that do not fit are left out whole, from the end. */
#include "dns/dns_reply.h"

#include "dns/dns_svcb.h"

/* Places of names written so far, to which later ones may point. Past it names are written out. */
#define REPLY_NAMES_MAX 64
#define REPLY_POINTER_MAX 0x3fff

#define REPLY_SOA_LEN 34 /* of ours */
#define REPLY_OPT_LEN 11
#define REPLY_EDE_LEN 6 /* option code, length, INFO-CODE */

struct reply_out {
	uint8_t *buf;
	size_t len;
	size_t max; /* without what OPT needs */
	bool full;
	size_t n_names;
	uint16_t names[REPLY_NAMES_MAX];
};

static void reply_put(struct reply_out *o, const void *p, size_t len)
{
	if (o->full || len > o->max - o->len) {
		o->full = true;
		return;
	}
	memcpy(o->buf + o->len, p, len);
	o->len += len;
}

static void reply_u16(struct reply_out *o, size_t v)
{
	uint8_t b[2] = {(uint8_t)(v >> 8), (uint8_t)v};

	reply_put(o, b, sizeof(b));
}

static void reply_u32(struct reply_out *o, uint32_t v)
{
	reply_u16(o, v >> 16);
	reply_u16(o, v & 0xffff);
}

static void reply_set_u16(struct reply_out *o, size_t at, size_t v)
{
	o->buf[at] = (uint8_t)(v >> 8);
	o->buf[at + 1] = (uint8_t)v;
}

/* True if the name written at `at` reads like the labels at p. */
static bool reply_name_is(const struct reply_out *o, size_t at, const uint8_t *p)
{
	size_t i;

	for (;;) {
		while (o->buf[at] >= 0xc0)
			at = (size_t)(o->buf[at] & 0x3f) << 8 | o->buf[at + 1];
		if (o->buf[at] != *p)
			return false;
		if (*p == 0)
			return true;
		for (i = 1; i <= *p; i++)
			if (ascii_lower((char)o->buf[at + i]) != ascii_lower((char)p[i]))
				return false;
		at += (size_t)*p + 1;
		p += (size_t)*p + 1;
	}
}

/* Among the first n places: the name that is being written is not whole yet. */
static size_t reply_name_find(const struct reply_out *o, size_t n, const uint8_t *p)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (reply_name_is(o, o->names[i], p))
			return o->names[i];
	return 0;
}

static void reply_name(struct reply_out *o, const struct dns_name *name, bool compress)
{
	const uint8_t *p = name->b;
	size_t n_names = o->n_names;
	size_t known;

	while (*p != 0) {
		known = compress && !o->full ? reply_name_find(o, n_names, p) : 0;
		if (known != 0) {
			reply_u16(o, 0xc000 | known);
			return;
		}
		if (o->n_names < REPLY_NAMES_MAX && o->len <= REPLY_POINTER_MAX && !o->full)
			o->names[o->n_names++] = (uint16_t)o->len;
		reply_put(o, p, (size_t)*p + 1);
		p += (size_t)*p + 1;
	}
	reply_put(o, p, 1);
}

static void reply_question(struct reply_out *o, const struct dns_question *q)
{
	reply_name(o, &q->name, false);
	reply_u16(o, q->type);
	reply_u16(o, q->class);
}

/* Only the types of RFC 1035 may have pointers in their RDATA (RFC 3597 4). */
static bool reply_may_compress(uint16_t type)
{
	return type == DNS_CNAME || type == DNS_NS || type == DNS_PTR || type == DNS_MX ||
		type == DNS_SOA;
}

static void reply_rdata_shaped(
	struct reply_out *o, const struct dns_answer *a, const struct dns_record *r)
{
	const char *shape = dns_type_shape(r->type);
	struct dns_name name;
	size_t at = r->rdata;
	size_t len;

	for (; *shape; shape++) {
		if (*shape == 'n') {
			at = dns_name_read(a->msg, at, true, &name);
			reply_name(o, &name, reply_may_compress(r->type));
			continue;
		}
		if (*shape == '*')
			len = (size_t)r->rdata + r->rdata_len - at;
		else if (*shape == 's')
			len = (size_t)(uint8_t)a->msg.p[at] + 1;
		else
			len = (size_t)(*shape - '0');
		reply_put(o, a->msg.p + at, len);
		at += len;
	}
}

static void reply_rdata(struct reply_out *o, const struct dns_answer *a, const struct dns_record *r)
{
	struct slice raw = slice_make(a->msg.p + r->rdata, r->rdata_len);
	bool altered;

	if (r->type == DNS_SVCB || r->type == DNS_HTTPS) {
		if (raw.len > o->max - o->len)
			o->full = true;
		else
			o->len += dns_svcb_filter(raw, o->buf + o->len, &altered);
	} else if (dns_type_shape(r->type)) {
		reply_rdata_shaped(o, a, r);
	} else {
		reply_put(o, raw.p, raw.len);
	}
}

/* One record whole, or nothing of it. */
static bool reply_record(
	struct reply_out *o, const struct dns_answer *a, const struct dns_record *r)
{
	size_t n_names = o->n_names;
	size_t from = o->len;
	struct dns_name owner;
	size_t rdata;

	REQUIRE(dns_name_read(a->msg, r->owner, true, &owner) != 0);
	reply_name(o, &owner, true);
	reply_u16(o, r->type);
	reply_u16(o, r->class);
	reply_u32(o, r->ttl);
	reply_u16(o, 0);
	rdata = o->len;
	if (!o->full)
		reply_rdata(o, a, r);
	if (o->full) {
		o->len = from;
		o->n_names = n_names;
		o->full = false;
		return false;
	}
	reply_set_u16(o, rdata - 2, o->len - rdata);
	return true;
}

/* Returns how many; *cut if one did not fit. */
static size_t reply_section(
	struct reply_out *o, const struct dns_answer *a, enum dns_section section, bool *cut)
{
	size_t n = 0;
	size_t i;

	for (i = 0; i < a->n && !*cut; i++) {
		if (!a->v[i].keep || a->v[i].section != section)
			continue;
		if (reply_record(o, a, &a->v[i]))
			n++;
		else
			*cut = true;
	}
	return n;
}

/* SOA of ours: at the name itself, since we do not know where its zone begins. */
static void reply_soa(struct reply_out *o)
{
	reply_u16(o, 0xc000 | DNS_HEADER_LEN);
	reply_u16(o, DNS_SOA);
	reply_u16(o, DNS_CLASS_IN);
	reply_u32(o, DNS_REFUSAL_TTL_S);
	reply_u16(o, 22);
	reply_u16(o, 0); /* MNAME and RNAME: the root */
	reply_u32(o, 1);
	reply_u32(o, DNS_REFUSAL_TTL_S);
	reply_u32(o, DNS_REFUSAL_TTL_S);
	reply_u32(o, DNS_REFUSAL_TTL_S);
	reply_u32(o, DNS_REFUSAL_TTL_S);
}

static size_t reply_opt_len(const struct dns_reply *r)
{
	if (!r->question->edns)
		return 0;
	return REPLY_OPT_LEN + (r->ede == DNS_EDE_NONE ? 0 : REPLY_EDE_LEN + r->text.len);
}

static void reply_opt(struct reply_out *o, const struct dns_reply *r, uint16_t rcode)
{
	bool ede = r->ede != DNS_EDE_NONE;

	reply_put(o, "", 1);
	reply_u16(o, DNS_OPT);
	reply_u16(o, DNS_EDNS_SIZE);
	reply_u16(o, (size_t)(rcode >> 4 & 0xff) << 8);
	reply_u16(o, r->question->dnssec ? 0x8000 : 0);
	reply_u16(o, ede ? REPLY_EDE_LEN + r->text.len : 0);
	if (!ede)
		return;
	reply_u16(o, 15); /* the option's code */
	reply_u16(o, 2 + r->text.len);
	reply_u16(o, (size_t)r->ede);
	reply_put(o, r->text.p, r->text.len);
}

/* AA is never ours to say. AD only for what came as it was, and to those who understand it (RFC
 * 6840 5.7). */
static uint16_t reply_flags(const struct dns_reply *r, uint16_t rcode, bool cut)
{
	const struct dns_question *q = r->question;
	uint16_t flags = DNS_QR | (q->flags & (DNS_OPCODE | DNS_RD | DNS_CD)) | (rcode & DNS_RCODE);

	if (cut)
		flags |= DNS_TC;
	if (!r->answer)
		return flags;
	flags |= r->answer->flags & DNS_RA;
	if (!r->answer->altered && (q->dnssec || (q->flags & DNS_AD) != 0))
		flags |= r->answer->flags & DNS_AD;
	return flags;
}

size_t dns_reply_max(const struct dns_question *q, bool tcp)
{
	if (tcp)
		return DNS_MSG_MAX;
	if (!q->edns || q->udp_size < DNS_UDP_MIN)
		return DNS_UDP_MIN;
	return q->udp_size < DNS_UDP_MAX ? q->udp_size : DNS_UDP_MAX;
}

size_t dns_reply_encode(const struct dns_reply *reply, uint8_t *buf)
{
	struct dns_reply r = *reply;
	struct reply_out o = {.buf = buf, .len = DNS_HEADER_LEN};
	uint16_t rcode = r.answer ? r.answer->rcode : r.rcode;
	bool cut = false;
	bool cut_authority = false;
	size_t n[3] = {0};

	r.text = slice_first(r.text, DNS_EDE_TEXT_MAX);
	o.max = dns_reply_max(r.question, r.tcp) - reply_opt_len(&r);
	if (r.question->has_name)
		reply_question(&o, r.question);
	if (r.answer) {
		n[0] = reply_section(&o, r.answer, DNS_ANSWER, &cut);
		cut_authority = cut;
		n[1] = reply_section(&o, r.answer, DNS_AUTHORITY, &cut_authority);
	}
	if (r.soa && r.question->has_name && n[1] == 0 && o.max - o.len >= REPLY_SOA_LEN) {
		reply_soa(&o);
		n[1] = 1;
	}
	if (r.question->edns) {
		o.max += reply_opt_len(&r);
		reply_opt(&o, &r, rcode);
		n[2] = 1;
	}
	reply_set_u16(&o, 0, r.question->id);
	reply_set_u16(&o, 2, reply_flags(&r, rcode, cut));
	reply_set_u16(&o, 4, r.question->has_name);
	reply_set_u16(&o, 6, n[0]);
	reply_set_u16(&o, 8, n[1]);
	reply_set_u16(&o, 10, n[2]);
	return o.len;
}
