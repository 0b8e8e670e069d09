/* Reads questions and answers, and picks from an answer what belongs to its question. Pure; the
 * bytes come from clients and from resolvers that may be hostile. Before it: dns_server and
 * forwarder, with bytes. After it: dns_reply, which writes what was kept. */
#include "dns/dns_msg.h"

#include "base/reader.h"
#include "dns/dns_svcb.h"

/* What miekg/dns, the library of the image we replace, lets through: OPT and a TSIG. */
#define DNS_QUESTION_ADDITIONAL_MAX 2
#define DNS_OPT_DO 0x8000
#define DNS_RRSIG_COVERED 0 /* offset in RDATA of the type that the signature covers */
#define DNS_TTL_TOP UINT32_C(0x80000000)

static const struct {
	uint16_t type;
	const char *shape;
} dns_shapes[] = {
	{DNS_A, "4"},
	{DNS_NS, "n"},
	{DNS_CNAME, "n"},
	{DNS_SOA, "nn9911"}, /* 20 bytes of numbers */
	{DNS_PTR, "n"},
	{DNS_MX, "2n"},
	{DNS_AAAA, "88"},
	{DNS_SRV, "6n"},
	{DNS_DNAME, "n"},
	{3, "n"},      /* MD */
	{4, "n"},      /* MF */
	{7, "n"},      /* MB */
	{8, "n"},      /* MG */
	{9, "n"},      /* MR */
	{14, "nn"},    /* MINFO */
	{17, "nn"},    /* RP */
	{18, "2n"},    /* AFSDB */
	{21, "2n"},    /* RT */
	{26, "2nn"},   /* PX */
	{35, "4sssn"}, /* NAPTR */
	{36, "2n"},    /* KX */
	{DNS_RRSIG, "99n*"},
	{DNS_NSEC, "n*"},
};

const char *dns_type_shape(uint16_t type)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(dns_shapes); i++)
		if (dns_shapes[i].type == type)
			return dns_shapes[i].shape;
	return NULL;
}

/* Moves the reader behind a name of msg; false if it is malformed. */
static bool dns_take_name(struct reader *r, struct slice msg, bool pointers, struct dns_name *out)
{
	size_t at = msg.len - r->left;
	size_t end = r->bad ? 0 : dns_name_read(msg, at, pointers, out);

	if (end == 0) {
		r->bad = true;
		return false;
	}
	(void)reader_take(r, end - at);
	return true;
}

/* --- questions --- */

static void dns_question_opt(struct dns_question *q, uint16_t size, uint32_t ttl)
{
	/* A second OPT is an error (RFC 6891 6.1.1). */
	if (q->edns)
		q->rcode = DNS_FORMERR;
	q->edns = true;
	q->udp_size = size;
	q->dnssec = (ttl & DNS_OPT_DO) != 0;
	if (q->rcode == 0 && (ttl >> 16 & 0xff) != 0)
		q->rcode = DNS_BADVERS;
}

static void dns_question_additional(struct reader *r, struct slice msg, struct dns_question *q)
{
	struct dns_name owner;
	uint16_t type, class, len;
	uint32_t ttl;

	if (!dns_take_name(r, msg, false, &owner))
		return;
	type = reader_u16(r);
	class = reader_u16(r);
	ttl = reader_u32(r);
	len = reader_u16(r);
	(void)reader_take(r, len);
	if (r->bad || type != DNS_OPT)
		return;
	if (owner.len != 1)
		r->bad = true;
	else
		dns_question_opt(q, class, ttl);
}

int dns_question_decode(struct slice msg, struct dns_question *q)
{
	struct reader r = reader_make(msg);
	uint16_t counts[4];
	size_t i;

	memset(q, 0, offsetof(struct dns_question, name));
	q->name.len = 0;
	q->id = reader_u16(&r);
	q->flags = reader_u16(&r);
	for (i = 0; i < ARRAY_LEN(counts); i++)
		counts[i] = reader_u16(&r);
	if (r.bad || (q->flags & DNS_QR) != 0)
		return E_TRUNCATED;
	if ((q->flags & DNS_OPCODE) != 0) {
		q->rcode = DNS_NOTIMP;
		return E_SYNTAX;
	}
	q->rcode = DNS_FORMERR;
	if (counts[0] != 1 || !dns_take_name(&r, msg, false, &q->name))
		return E_SYNTAX;
	q->type = reader_u16(&r);
	q->class = reader_u16(&r);
	if (r.bad)
		return E_SYNTAX;
	q->has_name = true;
	if (counts[1] != 0 || counts[2] != 0 || counts[3] > DNS_QUESTION_ADDITIONAL_MAX)
		return E_SYNTAX;
	q->rcode = DNS_NOERROR;
	for (i = 0; i < counts[3] && !r.bad; i++)
		dns_question_additional(&r, msg, q);
	if (r.bad || r.left > 0)
		q->rcode = DNS_FORMERR;
	return q->rcode == DNS_NOERROR ? 0 : E_SYNTAX;
}

static size_t dns_put_u16(uint8_t *buf, size_t at, uint16_t v)
{
	buf[at] = (uint8_t)(v >> 8);
	buf[at + 1] = (uint8_t)v;
	return at + 2;
}

size_t dns_question_encode(const struct dns_question *q, uint16_t id, bool edns, uint16_t edns_size,
	uint8_t buf[DNS_QUESTION_MAX])
{
	size_t n = 0;

	memset(buf, 0, DNS_QUESTION_MAX);
	n = dns_put_u16(buf, n, id);
	n = dns_put_u16(buf, n, q->flags & (DNS_RD | DNS_AD | DNS_CD));
	n = dns_put_u16(buf, n, 1);
	n = dns_put_u16(buf, n + 4, edns);
	memcpy(buf + n, q->name.b, q->name.len);
	n = dns_put_u16(buf, n + q->name.len, q->type);
	n = dns_put_u16(buf, n, q->class);
	if (!edns)
		return n;
	/* The root's name, then OPT; c-ares takes exactly these 11 bytes off again for a server
	 * that does not know them. */
	n = dns_put_u16(buf, n + 1, DNS_OPT);
	n = dns_put_u16(buf, n, edns_size);
	n = dns_put_u16(buf, n + 2, q->dnssec ? DNS_OPT_DO : 0);
	return n + 2;
}

/* --- answers --- */

/* A name in RDATA ends inside it, wherever its pointers lead. */
static bool dns_rdata_name(struct slice msg, size_t *at, size_t end)
{
	struct dns_name name;
	size_t behind = dns_name_read(msg, *at, true, &name);

	*at = behind;
	return behind != 0 && behind <= end;
}

static bool dns_rdata_ok(struct slice msg, const struct dns_record *r)
{
	const char *shape = dns_type_shape(r->type);
	size_t at = r->rdata;
	size_t end = at + r->rdata_len;

	if (r->type == DNS_SVCB || r->type == DNS_HTTPS)
		return dns_svcb_is_valid(slice_make(msg.p + at, r->rdata_len));
	for (; shape && *shape; shape++) {
		if (*shape == '*')
			return true;
		if (*shape == 'n') {
			if (!dns_rdata_name(msg, &at, end))
				return false;
		} else if (*shape == 's') {
			at += at < end ? (size_t)(uint8_t)msg.p[at] + 1 : end;
		} else {
			at += (size_t)(*shape - '0');
		}
		if (at > end)
			return false;
	}
	return !shape || at == end;
}

static void dns_answer_opt(struct dns_answer *a, const struct dns_record *r)
{
	a->edns = true;
	a->rcode |= (uint16_t)(r->ttl >> 24 << 4);
}

static void dns_answer_record(
	struct reader *r, struct dns_answer *a, enum dns_section section, struct dns_name *owner)
{
	struct dns_record *to = &a->v[a->n];

	*to = (struct dns_record){.owner = (uint16_t)(a->msg.len - r->left), .section = section};
	if (!dns_take_name(r, a->msg, true, owner))
		return;
	to->type = reader_u16(r);
	to->class = reader_u16(r);
	to->ttl = reader_u32(r);
	to->rdata_len = reader_u16(r);
	to->rdata = (uint16_t)(a->msg.len - r->left);
	(void)reader_take(r, to->rdata_len);
	if (r->bad)
		return;
	if (to->type == DNS_OPT) {
		r->bad = a->edns || owner->len != 1 || section != DNS_ADDITIONAL;
		dns_answer_opt(a, to);
		return;
	}
	if (!dns_rdata_ok(a->msg, to))
		r->bad = true;
	if ((to->ttl & DNS_TTL_TOP) != 0)
		to->ttl = 0;
	a->n++;
}

int dns_answer_decode(struct slice msg, struct dns_answer *a)
{
	struct reader r = reader_make(msg);
	struct dns_name owner;
	uint16_t counts[4];
	size_t i, k;

	memset(a, 0, offsetof(struct dns_answer, name));
	a->msg = msg;
	a->n = 0;
	a->n_chain = 0;
	a->id = reader_u16(&r);
	a->flags = reader_u16(&r);
	for (i = 0; i < ARRAY_LEN(counts); i++)
		counts[i] = reader_u16(&r);
	if (r.bad || msg.len > DNS_MSG_MAX || (a->flags & DNS_QR) == 0 || counts[0] != 1)
		return E_SYNTAX;
	if ((a->flags & DNS_OPCODE) != 0)
		return E_SYNTAX;
	a->rcode = a->flags & DNS_RCODE;
	(void)dns_take_name(&r, msg, false, &a->name);
	a->type = reader_u16(&r);
	a->class = reader_u16(&r);
	for (i = 1; i < ARRAY_LEN(counts); i++) {
		for (k = 0; k < counts[i] && !r.bad; k++) {
			if (a->n == DNS_RECORDS_MAX)
				return E_LIMIT;
			dns_answer_record(&r, a, (enum dns_section)(i - 1), &owner);
		}
	}
	return r.bad || r.left > 0 ? E_SYNTAX : 0;
}

/* --- selection --- */

static void dns_record_owner(
	const struct dns_answer *a, const struct dns_record *r, struct dns_name *out)
{
	/* It was read when the answer was decoded. */
	REQUIRE(dns_name_read(a->msg, r->owner, true, out) != 0);
}

static bool dns_record_is_of(
	const struct dns_answer *a, const struct dns_record *r, const struct dns_name *name)
{
	struct dns_name owner;

	/* Most owners are a pointer to the question. */
	if ((uint8_t)a->msg.p[r->owner] == 0xc0 && a->msg.p[r->owner + 1] == DNS_HEADER_LEN)
		return dns_name_eq(name, &a->name);
	dns_record_owner(a, r, &owner);
	return dns_name_eq(&owner, name);
}

static uint16_t dns_rrsig_covers(const struct dns_answer *a, const struct dns_record *r)
{
	const uint8_t *p = (const uint8_t *)a->msg.p + r->rdata + DNS_RRSIG_COVERED;

	return (uint16_t)(p[0] << 8 | p[1]);
}

/* Keeps the records of the answer section that have this owner and type, and their signatures.
 * Returns how many records, without the signatures; *last is one of them. */
static size_t dns_keep_set(struct dns_answer *a, const struct dns_name *owner, uint16_t type,
	bool dnssec, struct dns_record **last)
{
	size_t n = 0;
	size_t i;

	for (i = 0; i < a->n; i++) {
		struct dns_record *r = &a->v[i];
		bool proof = dnssec && r->type == DNS_RRSIG && type != DNS_RRSIG &&
			dns_rrsig_covers(a, r) == type;

		if (r->section != DNS_ANSWER || r->class != DNS_CLASS_IN ||
			(r->type != type && !proof) || !dns_record_is_of(a, r, owner))
			continue;
		r->keep = true;
		if (proof)
			continue;
		*last = r;
		n++;
	}
	return n;
}

/* A validating client needs the DNAME from which an alias was made (RFC 6672 5.3.1). */
static void dns_keep_dnames(struct dns_answer *a, const struct dns_name *name)
{
	struct dns_name owner;
	size_t i;

	for (i = 0; i < a->n; i++) {
		struct dns_record *r = &a->v[i];

		if (r->section != DNS_ANSWER || r->class != DNS_CLASS_IN ||
			(r->type != DNS_DNAME &&
				(r->type != DNS_RRSIG || dns_rrsig_covers(a, r) != DNS_DNAME)))
			continue;
		dns_record_owner(a, r, &owner);
		if (dns_name_within(name, &owner) && !dns_name_eq(name, &owner))
			r->keep = true;
	}
}

static bool dns_is_proof(const struct dns_answer *a, const struct dns_record *r)
{
	if (r->type != DNS_RRSIG)
		return r->type == DNS_NSEC || r->type == DNS_NSEC3;
	return dns_rrsig_covers(a, r) == DNS_SOA || dns_rrsig_covers(a, r) == DNS_NSEC ||
		dns_rrsig_covers(a, r) == DNS_NSEC3;
}

/* SOA of a zone that holds the name says how long the negative answer may be kept (RFC 2308 3).
 * Proofs may also belong to a positive answer that a wildcard made (RFC 4035 3.1.3.3). */
static void dns_keep_authority(
	struct dns_answer *a, const struct dns_name *name, bool negative, bool dnssec)
{
	struct dns_name owner;
	bool has_soa = false;
	size_t i;

	for (i = 0; i < a->n; i++) {
		struct dns_record *r = &a->v[i];

		if (r->section != DNS_AUTHORITY || r->class != DNS_CLASS_IN)
			continue;
		dns_record_owner(a, r, &owner);
		if (r->type == DNS_SOA) {
			r->keep = negative && !has_soa && dns_name_within(name, &owner);
			has_soa |= r->keep;
		} else {
			r->keep = dnssec && dns_is_proof(a, r);
		}
	}
}

int dns_answer_select(struct dns_answer *a, const struct dns_question *q)
{
	struct dns_record *last = NULL;
	struct dns_name *name;
	size_t n, aliases;

	a->chain[0] = q->name;
	a->n_chain = 1;
	for (;;) {
		name = &a->chain[a->n_chain - 1];
		if (q->dnssec)
			dns_keep_dnames(a, name);
		n = dns_keep_set(a, name, q->type, q->dnssec, &last);
		aliases = n > 0 ? 0 : dns_keep_set(a, name, DNS_CNAME, q->dnssec, &last);
		if (aliases == 0)
			break;
		if (aliases > 1) /* RFC 2181 10.1; which one would the client follow? */
			return E_SYNTAX;
		if (a->n_chain == DNS_CHAIN_MAX)
			return E_LIMIT;
		REQUIRE(dns_name_read(a->msg, last->rdata, true, &a->chain[a->n_chain]) != 0);
		a->n_chain++;
	}
	dns_keep_authority(a, name, n == 0, q->dnssec);
	return 0;
}

bool dns_record_addr(const struct dns_answer *a, const struct dns_record *r, struct netaddr *out)
{
	const char *p = a->msg.p + r->rdata;

	if (r->type == DNS_AAAA) {
		memcpy(out->b, p, 16);
		return true;
	}
	if (r->type != DNS_A)
		return false;
	*out = (struct netaddr){{[10] = 0xff, [11] = 0xff}};
	memcpy(out->b + 12, p, 4);
	return true;
}

/* The signatures of this record's set no longer fit. */
static void dns_answer_unsign(struct dns_answer *a, const struct dns_record *r)
{
	struct dns_name owner;
	size_t i;

	a->altered = true;
	dns_record_owner(a, r, &owner);
	for (i = 0; i < a->n; i++)
		if (a->v[i].keep && a->v[i].type == DNS_RRSIG &&
			dns_rrsig_covers(a, &a->v[i]) == r->type &&
			dns_record_is_of(a, &a->v[i], &owner))
			a->v[i].keep = false;
}

void dns_answer_drop(struct dns_answer *a, size_t record)
{
	a->v[record].keep = false;
	dns_answer_unsign(a, &a->v[record]);
}

void dns_answer_filter_services(struct dns_answer *a, uint8_t *scratch)
{
	size_t i;

	for (i = 0; i < a->n; i++) {
		struct dns_record *r = &a->v[i];
		bool altered = false;

		if (!r->keep || (r->type != DNS_SVCB && r->type != DNS_HTTPS))
			continue;
		if (dns_svcb_filter(
			    slice_make(a->msg.p + r->rdata, r->rdata_len), scratch, &altered) == 0)
			dns_answer_drop(a, i);
		else if (altered)
			dns_answer_unsign(a, r);
	}
}

size_t dns_answer_n_kept(const struct dns_answer *a, const struct dns_question *q)
{
	size_t n = 0;
	size_t i;

	for (i = 0; i < a->n; i++)
		n += a->v[i].keep && a->v[i].section == DNS_ANSWER && a->v[i].type == q->type;
	return n;
}
