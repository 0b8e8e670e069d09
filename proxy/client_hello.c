/* ClientHello: what the client asks for, read before anything is answered.
 *
 * The session calls it on its first bytes; intercept decides by the name. OpenSSL reads the same
 * bytes again when we terminate TLS. */
#include "proxy/client_hello.h"

#include "base/netaddr.h"
#include "base/reader.h"

#define RECORD_HEADER_LEN 5
#define RECORD_MAX 16384 /* bytes of a plaintext fragment, RFC 8446 5.1 */
#define RECORD_HANDSHAKE 22
#define HANDSHAKE_HEADER_LEN 4
#define HANDSHAKE_CLIENT_HELLO 1
#define SESSION_ID_MAX 32
#define RANDOM_LEN 32

#define EXT_SERVER_NAME 0
#define EXT_ALPN 16
#define EXT_SUPPORTED_VERSIONS 43
#define EXT_ECH 0xfe0d

static const char *const client_hello_error_texts[CLIENT_HELLO_ERROR_MAX] = {
#define X(id, text) [CLIENT_HELLO_##id] = (text),
	CLIENT_HELLO_ERROR_TABLE(X)
#undef X
};

const char *client_hello_error_text(enum client_hello_error e)
{
	return client_hello_error_texts[e];
}

/* The minor version in a record header means nothing (RFC 8446 5.1). */
bool client_hello_is_not_tls(struct slice in)
{
	return (in.len > 0 && in.p[0] != RECORD_HANDSHAKE) || (in.len > 1 && in.p[1] != 3);
}

static enum client_hello_error hello_name_decode(struct reader *r, struct client_hello *out)
{
	struct reader list = reader_sub(r, reader_u16(r));
	uint8_t type = reader_u8(&list);
	struct slice name = reader_slice(&list, reader_u16(&list));
	struct netaddr addr;

	if (r->bad || r->left > 0 || list.bad || type != 0)
		return CLIENT_HELLO_NAME_MALFORMED;
	if (list.left > 0)
		return CLIENT_HELLO_NAME_TWICE;
	/* RFC 6066 3 forbids addresses here. Clients that send one mean an address. */
	if (netaddr_parse(name, &addr))
		return CLIENT_HELLO_OK;
	switch (netaddr_parse_host(name, &addr)) {
	case HOST_ADDRESS:
		return CLIENT_HELLO_OK;
	case HOST_NAME:
		if (hostname_normal(name, out->name, &out->name_len) == 0)
			return CLIENT_HELLO_OK;
		out->name_len = 0;
		break;
	case HOST_INVALID:
		break;
	}
	return CLIENT_HELLO_NAME_MALFORMED;
}

static enum client_hello_error hello_alpn_decode(struct reader *r, struct client_hello *out)
{
	struct reader list = reader_sub(r, reader_u16(r));

	if (r->bad || r->left > 0 || list.left == 0 || out->alpn)
		return CLIENT_HELLO_MALFORMED;
	out->alpn = true;
	while (list.left > 0) {
		struct slice protocol = reader_slice(&list, reader_u8(&list));

		if (list.bad || protocol.len == 0)
			return CLIENT_HELLO_MALFORMED;
		out->alpn_h2 = out->alpn_h2 || slice_eq(protocol, SLICE("h2"));
		out->alpn_http11 = out->alpn_http11 || slice_eq(protocol, SLICE("http/1.1"));
	}
	return CLIENT_HELLO_OK;
}

/* Versions above 1.3 and GREASE values are skipped: nobody we know speaks them. */
static enum client_hello_error hello_versions_decode(struct reader *r, uint16_t *highest)
{
	struct reader list = reader_sub(r, reader_u8(r));

	if (r->bad || r->left > 0 || list.left == 0 || list.left % 2 != 0)
		return CLIENT_HELLO_MALFORMED;
	*highest = 0;
	while (list.left > 0) {
		uint16_t v = reader_u16(&list);

		if (v <= 0x0304 && v > *highest)
			*highest = v;
	}
	return CLIENT_HELLO_OK;
}

static enum client_hello_error hello_extensions_decode(struct reader *r, struct client_hello *out)
{
	bool name_seen = false, versions_seen = false;
	enum client_hello_error e = CLIENT_HELLO_OK;

	while (r->left > 0 && e == CLIENT_HELLO_OK) {
		uint16_t type = reader_u16(r);
		struct reader body = reader_sub(r, reader_u16(r));

		if (r->bad)
			return CLIENT_HELLO_MALFORMED;
		switch (type) {
		case EXT_SERVER_NAME:
			e = name_seen ? CLIENT_HELLO_NAME_TWICE : hello_name_decode(&body, out);
			name_seen = true;
			break;
		case EXT_ALPN:
			e = hello_alpn_decode(&body, out);
			break;
		case EXT_SUPPORTED_VERSIONS:
			e = versions_seen ? CLIENT_HELLO_MALFORMED
					  : hello_versions_decode(&body, &out->max_version);
			versions_seen = true;
			break;
		case EXT_ECH:
			out->ech = true;
			break;
		default:
			break;
		}
	}
	return e;
}

/* body: the handshake message without its header. */
static enum client_hello_error hello_body_decode(struct slice body, struct client_hello *out)
{
	struct reader r = reader_make(body), extensions;
	uint16_t version = reader_u16(&r), ciphers_len;
	uint8_t session_id_len;

	(void)reader_take(&r, RANDOM_LEN);
	session_id_len = reader_u8(&r);
	(void)reader_take(&r, session_id_len);
	ciphers_len = reader_u16(&r);
	(void)reader_take(&r, ciphers_len);
	if (reader_sub(&r, reader_u8(&r)).left == 0) /* compression methods */
		return CLIENT_HELLO_MALFORMED;
	if (r.bad || version >> 8 != 3 || session_id_len > SESSION_ID_MAX || ciphers_len == 0 ||
		ciphers_len % 2 != 0)
		return CLIENT_HELLO_MALFORMED;
	out->max_version = version < 0x0303 ? version : 0x0303;
	if (r.left == 0) /* before RFC 6066 there were no extensions */
		return CLIENT_HELLO_OK;
	extensions = reader_sub(&r, reader_u16(&r));
	if (r.bad || r.left > 0)
		return CLIENT_HELLO_MALFORMED;
	return hello_extensions_decode(&extensions, out);
}

/* The message as records carry it. */
struct hello_walk {
	struct reader in;
	struct slice fragment; /* what there is of the last record read */
	size_t n_records;
	uint8_t header[HANDSHAKE_HEADER_LEN];
	size_t got;  /* bytes of the message so far, its header included */
	size_t need; /* all of them; 0 until the header is there */
};

static enum client_hello_error hello_walk_header(struct hello_walk *w)
{
	struct slice fragment = w->fragment;

	for (size_t i = 0; w->got + i < HANDSHAKE_HEADER_LEN && i < fragment.len; i++)
		w->header[w->got + i] = (uint8_t)fragment.p[i];
	if (w->got == 0 && fragment.len > 0 && w->header[0] != HANDSHAKE_CLIENT_HELLO)
		return CLIENT_HELLO_MALFORMED;
	w->got += fragment.len;
	if (w->got < HANDSHAKE_HEADER_LEN)
		return CLIENT_HELLO_OK;
	w->need = (size_t)w->header[1] << 16 | (size_t)w->header[2] << 8 | w->header[3];
	w->need += HANDSHAKE_HEADER_LEN;
	return w->need > CLIENT_HELLO_MAX - RECORD_HEADER_LEN ? CLIENT_HELLO_TOO_LARGE
							      : CLIENT_HELLO_OK;
}

/* Looks at the next record, or at what there is of it. *more: its end is not there yet. */
static enum client_hello_error hello_walk_next(struct hello_walk *w, bool *more)
{
	size_t have = w->in.left, len;
	const uint8_t *h = w->in.p;

	*more = true;
	if ((have > 0 && h[0] != RECORD_HANDSHAKE) || (have > 1 && h[1] != 3) ||
		(have > 3 && h[3] > RECORD_MAX >> 8))
		return CLIENT_HELLO_MALFORMED;
	if (have < RECORD_HEADER_LEN)
		return CLIENT_HELLO_OK;
	len = (size_t)h[3] << 8 | h[4];
	if (len == 0 || len > RECORD_MAX)
		return CLIENT_HELLO_MALFORMED;
	(void)reader_take(&w->in, RECORD_HEADER_LEN);
	w->fragment = reader_slice(&w->in, len < w->in.left ? len : w->in.left);
	w->n_records++;
	*more = w->fragment.len < len;
	return hello_walk_header(w);
}

/* Reads records until the message is complete, *more is set or the error is not OK. message: takes
 * the fragments, has room for all of in; or NULL. */
static enum client_hello_error hello_walk(
	struct slice in, struct hello_walk *w, char *message, bool *more)
{
	*w = (struct hello_walk){.in = reader_make(in)};
	do {
		size_t got = w->got;
		enum client_hello_error e = hello_walk_next(w, more);

		if (e != CLIENT_HELLO_OK)
			return e;
		if (message)
			memcpy(message + got, w->fragment.p, w->got - got);
		if (w->need > 0 && w->got >= w->need)
			*more = false;
	} while (!*more && (w->need == 0 || w->got < w->need));
	return CLIENT_HELLO_OK;
}

/* For a message in several records, which is rare: puts it together first. in: all of it. */
static enum client_hello_error hello_split_decode(struct slice in, struct client_hello *out)
{
	char message[CLIENT_HELLO_MAX] = {0};
	struct hello_walk w;
	bool more;
	enum client_hello_error e = hello_walk(in, &w, message, &more);

	if (e != CLIENT_HELLO_OK)
		return e;
	return hello_body_decode(
		slice_make(message + HANDSHAKE_HEADER_LEN, w.need - HANDSHAKE_HEADER_LEN), out);
}

int client_hello_decode(struct slice in, struct client_hello *out)
{
	/* Nothing past the limit is looked at: the answer must not depend on what came along. */
	struct slice s = slice_first(in, CLIENT_HELLO_MAX);
	struct hello_walk w;
	bool more;

	memset(out, 0, sizeof(*out));
	if (client_hello_is_not_tls(s)) {
		out->error = CLIENT_HELLO_NOT_TLS;
		return 0;
	}
	out->error = hello_walk(s, &w, NULL, &more);
	if (out->error != CLIENT_HELLO_OK)
		return 0;
	if (more) {
		if (s.len < CLIENT_HELLO_MAX)
			return E_MORE;
		out->error = CLIENT_HELLO_TOO_LARGE;
	} else if (w.n_records > 1) {
		out->error = hello_split_decode(s, out);
	} else {
		out->error = hello_body_decode(slice_make(w.fragment.p + HANDSHAKE_HEADER_LEN,
						       w.need - HANDSHAKE_HEADER_LEN),
			out);
	}
	return 0;
}
