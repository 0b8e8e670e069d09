/* Reads and filters the parameters of service records. Pure. Before it: dns_msg, which has found
 * the RDATA. After it: dns_reply, which writes the rest. */
#include "dns/dns_svcb.h"

#include "base/reader.h"
#include "dns/dns_name.h"

enum svcb_key {
	SVCB_MANDATORY = 0,
	SVCB_ALPN = 1,
	SVCB_NO_DEFAULT_ALPN = 2,
	SVCB_PORT = 3,
};

struct svcb_param {
	uint16_t key;
	struct slice value;
};

struct svcb_out {
	uint8_t *buf;
	size_t len;
};

/* Where the parameters begin, or 0. */
static size_t svcb_params_at(struct slice rdata)
{
	struct dns_name target;

	return rdata.len < 3 ? 0 : dns_name_read(rdata, 2, false, &target);
}

static bool svcb_param_read(struct reader *r, struct svcb_param *p)
{
	p->key = reader_u16(r);
	p->value = reader_slice(r, reader_u16(r));
	return !r->bad;
}

/* `alpn` is a row of names, each behind its length, none empty (RFC 9460 7.1.1). */
static bool svcb_alpn_is_valid(struct slice value)
{
	struct reader r = reader_make(value);

	do {
		if (reader_slice(&r, reader_u8(&r)).len == 0)
			return false;
	} while (r.left > 0);
	return true;
}

static bool svcb_param_is_valid(const struct svcb_param *p)
{
	switch (p->key) {
	case SVCB_MANDATORY:
		return p->value.len > 0 && p->value.len % 2 == 0;
	case SVCB_ALPN:
		return svcb_alpn_is_valid(p->value);
	case SVCB_NO_DEFAULT_ALPN:
		return p->value.len == 0;
	case SVCB_PORT:
		return p->value.len == 2;
	default:
		return true;
	}
}

bool dns_svcb_is_valid(struct slice rdata)
{
	size_t at = svcb_params_at(rdata);
	struct reader r = reader_make(slice_from(rdata, at));
	struct svcb_param p;
	long last = -1;

	if (at == 0)
		return false;
	while (r.left > 0) {
		if (!svcb_param_read(&r, &p) || (long)p.key <= last || !svcb_param_is_valid(&p))
			return false;
		last = p.key;
	}
	return true;
}

static void svcb_put(struct svcb_out *o, const void *p, size_t len)
{
	memcpy(o->buf + o->len, p, len);
	o->len += len;
}

static void svcb_put_u16(struct svcb_out *o, size_t v)
{
	uint8_t b[2] = {(uint8_t)(v >> 8), (uint8_t)v};

	svcb_put(o, b, sizeof(b));
}

/* HTTP/3 needs UDP 443, which is refused; `h3` and its drafts, `hq-` and Google's names. */
static bool svcb_alpn_is_quic(struct slice name)
{
	return slice_eq(name, SLICE("h3")) || slice_starts(name, SLICE("h3-")) ||
		slice_starts(name, SLICE("hq")) || slice_starts(name, SLICE("quic")) ||
		slice_eq(name, SLICE("doq"));
}

/* True if some protocol is left. */
static bool svcb_put_alpn(struct svcb_out *o, struct slice value)
{
	struct reader r = reader_make(value);
	size_t from = o->len;
	struct slice name;

	svcb_put_u16(o, SVCB_ALPN);
	svcb_put_u16(o, 0);
	while (r.left > 0) {
		name = reader_slice(&r, reader_u8(&r));
		if (svcb_alpn_is_quic(name))
			continue;
		svcb_put(o, name.p - 1, name.len + 1);
	}
	if (o->len == from + 4) {
		o->len = from;
		return false;
	}
	o->buf[from + 2] = (uint8_t)((o->len - from - 4) >> 8);
	o->buf[from + 3] = (uint8_t)(o->len - from - 4);
	return true;
}

/* The highest key that a client must know; *alpn if that one is among them. */
static uint16_t svcb_mandatory(struct slice value, bool *alpn)
{
	struct reader r = reader_make(value);
	uint16_t highest = 0;
	uint16_t key;

	while (r.left > 0) {
		key = reader_u16(&r);
		*alpn |= key == SVCB_ALPN;
		if (key > highest)
			highest = key;
	}
	return highest;
}

size_t dns_svcb_filter(struct slice rdata, uint8_t *buf, bool *altered)
{
	struct svcb_out o = {buf, 0};
	size_t at = svcb_params_at(rdata);
	struct reader r = reader_make(slice_from(rdata, at));
	bool no_protocol = false;
	bool needs_alpn = false;
	struct svcb_param p;

	svcb_put(&o, rdata.p, at);
	while (svcb_param_read(&r, &p)) {
		switch (p.key) {
		case SVCB_MANDATORY:
			/* A record without what it demands is malformed (RFC 9460 8). */
			if (svcb_mandatory(p.value, &needs_alpn) > SVCB_PORT)
				return 0;
			break;
		case SVCB_ALPN:
			no_protocol = !svcb_put_alpn(&o, p.value);
			if (no_protocol && needs_alpn)
				return 0;
			continue;
		case SVCB_NO_DEFAULT_ALPN:
			if (no_protocol)
				return 0;
			break;
		case SVCB_PORT:
			break;
		default:
			continue;
		}
		svcb_put_u16(&o, p.key);
		svcb_put_u16(&o, p.value.len);
		svcb_put(&o, p.value.p, p.value.len);
	}
	if (o.len != rdata.len)
		*altered = true;
	return o.len;
}
