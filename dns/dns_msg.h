/* DNS messages as the gate reads them (RFC 1035, 2181, 3597, 6891, 9460). Pure.
 *
 * A question of a client is read strictly and taken apart: nothing but its name, type and a few
 * flags ever leaves. An answer is read whole before anything of it counts; then records are kept
 * one by one, and dns_reply writes what was kept. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"
#include "dns/dns_name.h"

#define DNS_HEADER_LEN 12
#define DNS_MSG_MAX 65535
/* Records of one answer. 64 KiB hold more than four times as many of the smallest, but nobody
 * publishes such sets, and each costs us 20 bytes and the client a comparison. */
#define DNS_RECORDS_MAX 1024
/* Aliases followed from the name asked. Resolvers give up after 8 to 16. */
#define DNS_CHAIN_MAX 16

#define DNS_CLASS_IN 1

enum dns_type {
	DNS_A = 1,
	DNS_NS = 2,
	DNS_CNAME = 5,
	DNS_SOA = 6,
	DNS_PTR = 12,
	DNS_MX = 15,
	DNS_TXT = 16,
	DNS_AAAA = 28,
	DNS_SRV = 33,
	DNS_DNAME = 39,
	DNS_OPT = 41,
	DNS_DS = 43,
	DNS_RRSIG = 46,
	DNS_NSEC = 47,
	DNS_NSEC3 = 50,
	DNS_SVCB = 64,
	DNS_HTTPS = 65,
	DNS_META_FIRST =
		249, /* TKEY, TSIG, IXFR, AXFR, MAILB, MAILA, ANY: questions about no data */
	DNS_META_LAST = 255,
	DNS_CAA = 257,
};

enum dns_flag {
	DNS_QR = 0x8000,
	DNS_OPCODE = 0x7800,
	DNS_AA = 0x0400,
	DNS_TC = 0x0200,
	DNS_RD = 0x0100,
	DNS_RA = 0x0080,
	DNS_AD = 0x0020,
	DNS_CD = 0x0010,
	DNS_RCODE = 0x000f,
};

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16, /* RFC 6891 6.1.3; needs OPT */
};

struct dns_question {
	uint16_t id;
	uint16_t flags; /* as sent */
	uint16_t type;
	uint16_t class;
	uint16_t udp_size;    /* of OPT */
	uint16_t rcode;       /* why it was not taken; 0 if it was */
	bool has_name;        /* name, type and class were read */
	bool edns;            /* it carries OPT */
	bool dnssec;          /* with the DO bit (RFC 4035 3.2.1) */
	struct dns_name name; /* letters as they came */
};

/* 0; E_SYNTAX: to be answered with q->rcode (FORMERR, NOTIMP, BADVERS), with the question if it was
 * read; E_TRUNCATED: no header, or a response, to which nobody answers. Exactly one question,
 * nothing in the other sections but OPT and one other additional record, no byte behind. */
CHECKED int dns_question_decode(struct slice msg, struct dns_question *q);

/* As sent upstream: id and flags of q (only RD, AD, CD), name as in q, OPT of ours at the end if
 * edns, with DO if q has it. Returns the length. Nothing else of the client's message is in it. */
#define DNS_QUESTION_MAX (DNS_HEADER_LEN + DNS_NAME_MAX + 4 + 11)
size_t dns_question_encode(const struct dns_question *q, uint16_t id, bool edns, uint16_t edns_size,
	uint8_t buf[DNS_QUESTION_MAX]);

enum dns_section { DNS_ANSWER, DNS_AUTHORITY, DNS_ADDITIONAL };

struct dns_record {
	uint16_t owner; /* offset of the name */
	uint16_t type;
	uint16_t class;
	uint16_t rdata; /* offset */
	uint16_t rdata_len;
	uint8_t section; /* enum dns_section */
	bool keep;
	uint32_t ttl; /* the top bit means 0 (RFC 2181 8) */
};

struct dns_answer {
	struct slice msg; /* borrowed */
	uint16_t id;
	uint16_t flags;
	uint16_t rcode; /* with the upper bits of OPT */
	uint16_t type;
	uint16_t class;
	bool edns;
	bool altered; /* something was left out: no longer what the zone signed */
	struct dns_name name;
	size_t n_chain;                       /* set by dns_answer_select */
	struct dns_name chain[DNS_CHAIN_MAX]; /* the name asked, and what each alias leads to */
	size_t n;
	struct dns_record v[DNS_RECORDS_MAX];
};

/* Reads all of it; every name, length and known shape of RDATA is checked. 0, E_SYNTAX or E_LIMIT
 * (more than DNS_RECORDS_MAX). No record is kept yet. */
CHECKED int dns_answer_decode(struct slice msg, struct dns_answer *a);

/* Keeps what answers q: the aliases from its name on, the records of its type at their end, and
 * with `dnssec` what proves them; SOA (and proofs) where there are none. Everything else is
 * dropped: additional records, other owners, other types. E_LIMIT if the aliases do not end,
 * E_SYNTAX if a name has two. */
CHECKED int dns_answer_select(struct dns_answer *a, const struct dns_question *q);

/* The address of an A or AAAA record. False for other types. */
CHECKED bool dns_record_addr(
	const struct dns_answer *a, const struct dns_record *r, struct netaddr *out);
/* Leaves out a record of the answer, and the signatures of its set, which would now be wrong. */
void dns_answer_drop(struct dns_answer *a, size_t record);
/* Leaves out the service records of which dns_svcb_filter keeps nothing, and the signatures of
 * those of which it keeps a part. scratch: DNS_MSG_MAX bytes. */
void dns_answer_filter_services(struct dns_answer *a, uint8_t *scratch);
/* Records of the type asked that are kept. */
size_t dns_answer_n_kept(const struct dns_answer *a, const struct dns_question *q);

/* The shape of RDATA, in order: a digit is so many bytes, `s` a character-string, `n` a name that
 * may be compressed, `*` the rest. NULL for types that are opaque bytes (RFC 3597 4). */
const char *dns_type_shape(uint16_t type);
