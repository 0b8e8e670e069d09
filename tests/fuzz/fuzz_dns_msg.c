/* DNS messages: read, filtered, written and read again, with ldns beside it.
 *
 * What we take, ldns takes, and reads the same names, types and TTLs; what we write, we read again,
 * and it says what was kept. An input is a message as it comes by UDP.
 * covers: dns/dns_msg.c dns/dns_name.c dns/dns_reply.c dns/dns_svcb.c */
#include <ldns/ldns.h>

#include "dns/dns_reply.h"
#include "dns/dns_svcb.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static struct dns_answer answer, again;
static uint8_t out[DNS_MSG_MAX], scratch[DNS_MSG_MAX];

static void name_check(const struct dns_name *n)
{
	char host[HOSTNAME_MAX + 1], normal[HOSTNAME_MAX + 1], text[DNS_NAME_TEXT_MAX];
	struct dns_name back;
	size_t host_len, len;

	REQUIRE(n->len > 0 && n->b[n->len - 1] == 0);
	REQUIRE(dns_name_text(n, text) < DNS_NAME_TEXT_MAX);
	REQUIRE(dns_name_within(n, n));
	if (!dns_name_host(n, host, &host_len))
		return;
	REQUIRE(dns_name_from_text(slice_make(host, host_len), &back) && dns_name_eq(n, &back));
	if (host_len == 0)
		return;
	REQUIRE(strcmp(host, text) == 0);
	REQUIRE(hostname_normal(slice_make(host, host_len), normal, &len) == 0);
	REQUIRE(strcmp(host, normal) == 0);
}

static void question_check(struct slice in)
{
	struct dns_question q, back;
	uint8_t buf[DNS_QUESTION_MAX];
	ldns_pkt *pkt = NULL;
	size_t n;

	if (dns_question_decode(in, &q) != 0)
		return;
	name_check(&q.name);
	/* ldns also takes TSIG and the options of OPT apart, at which we do not look. */
	if (ldns_wire2pkt(&pkt, (const uint8_t *)in.p, in.len) == LDNS_STATUS_OK) {
		REQUIRE(ldns_pkt_qdcount(pkt) == 1);
		REQUIRE(ldns_pkt_edns(pkt) == q.edns || in.p[11] != 1);
		ldns_pkt_free(pkt);
	} else {
		REQUIRE(in.p[11] != 0);
	}
	n = dns_question_encode(&q, 7, true, 1232, buf);
	REQUIRE(dns_question_decode(slice_make((char *)buf, n), &back) == 0);
	REQUIRE(back.id == 7 && back.type == q.type && back.class == q.class);
	REQUIRE(back.dnssec == q.dnssec && back.name.len == q.name.len);
	REQUIRE(memcmp(back.name.b, q.name.b, q.name.len) == 0);
}

/* Types of which both know every byte. Of others ldns checks what is no concern of ours. */
static bool type_is_plain(uint16_t type)
{
	return type == DNS_A || type == DNS_AAAA || type == DNS_NS || type == DNS_CNAME ||
		type == DNS_SOA || type == DNS_PTR || type == DNS_MX || type == DNS_SRV;
}

static void record_check(const struct dns_record *r, const ldns_rr *rr)
{
	struct dns_name owner;
	struct netaddr a;
	const ldns_rdf *o = ldns_rr_owner(rr);

	REQUIRE(dns_name_read(answer.msg, r->owner, true, &owner) != 0);
	name_check(&owner);
	REQUIRE(ldns_rr_get_type(rr) == (ldns_rr_type)r->type);
	REQUIRE(ldns_rdf_size(o) == owner.len);
	REQUIRE(memcmp(ldns_rdf_data(o), owner.b, owner.len) == 0);
	REQUIRE((ldns_rr_ttl(rr) & 0x80000000 ? 0 : ldns_rr_ttl(rr)) == r->ttl);
	if (dns_record_addr(&answer, r, &a)) {
		o = ldns_rr_rdf(rr, 0);
		REQUIRE(memcmp(ldns_rdf_data(o), r->type == DNS_A ? a.b + 12 : a.b,
				ldns_rdf_size(o)) == 0);
	}
}

static void oracle_check(struct slice in)
{
	ldns_pkt *pkt = NULL;
	ldns_rr_list *all = NULL;
	bool plain = true;
	size_t i;

	for (i = 0; i < answer.n; i++)
		plain &= type_is_plain(answer.v[i].type);
	if (ldns_wire2pkt(&pkt, (const uint8_t *)in.p, in.len) != LDNS_STATUS_OK) {
		/* OPT may hold options that ldns takes apart. */
		REQUIRE(!plain || answer.edns);
		return;
	}
	all = ldns_pkt_all_noquestion(pkt);
	/* Of types that it takes apart further, ldns leaves records out. */
	REQUIRE(!plain || ldns_rr_list_rr_count(all) == answer.n);
	for (i = 0; plain && i < answer.n; i++)
		record_check(&answer.v[i], ldns_rr_list_rr(all, i));
	ldns_rr_list_deep_free(all);
	ldns_pkt_free(pkt);
}

/* What is written is what was kept, in order, as far as it fits. */
static void reply_check(const struct dns_reply *r)
{
	size_t n = dns_reply_encode(r, out);
	struct dns_name a, b;
	size_t i = 0;
	size_t k;

	REQUIRE(n <= dns_reply_max(r->question, r->tcp));
	REQUIRE(dns_answer_decode(slice_make((char *)out, n), &again) == 0);
	REQUIRE(dns_name_eq(&again.name, &r->question->name) && again.id == r->question->id);
	REQUIRE(memcmp(again.name.b, r->question->name.b, again.name.len) == 0);
	if (!r->answer)
		return;
	for (k = 0; k < answer.n; k++) {
		if (!answer.v[k].keep)
			continue;
		if (i == again.n || again.v[i].section != answer.v[k].section)
			break; /* cut */
		REQUIRE(again.v[i].type == answer.v[k].type);
		REQUIRE(again.v[i].ttl == answer.v[k].ttl);
		REQUIRE(dns_name_read(answer.msg, answer.v[k].owner, true, &a) != 0);
		REQUIRE(dns_name_read(again.msg, again.v[i].owner, true, &b) != 0);
		REQUIRE(dns_name_eq(&a, &b));
		i++;
	}
}

static void answer_check(struct slice in)
{
	struct dns_question q = {.class = 1, .has_name = true};
	struct dns_reply r = {.question = &q, .answer = &answer, .ede = DNS_EDE_NONE};
	size_t i;

	if (dns_answer_decode(in, &answer) != 0)
		return;
	name_check(&answer.name);
	oracle_check(in);
	q.id = answer.id;
	q.name = answer.name;
	q.type = answer.type;
	q.dnssec = (answer.flags & DNS_CD) != 0;
	if (dns_answer_select(&answer, &q) != 0)
		return;
	dns_answer_filter_services(&answer, scratch);
	for (i = 0; i < answer.n && answer.n > 3; i += 3)
		if (answer.v[i].keep)
			dns_answer_drop(&answer, i);
	reply_check(&r);
	r.soa = dns_answer_n_kept(&answer, &q) == 0;
	r.tcp = true;
	reply_check(&r);
	q.edns = true;
	q.udp_size = 700;
	r.tcp = false;
	r.ede = DNS_EDE_FILTERED;
	r.text = in;
	reply_check(&r);
	r.answer = NULL;
	r.rcode = DNS_NXDOMAIN;
	r.soa = true;
	reply_check(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice in = slice_make((const char *)p, len);

	question_check(in);
	answer_check(in);
	return 0;
}
