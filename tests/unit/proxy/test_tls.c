/* TLS towards clients: names, protocols, and resumption for one name and epoch only (C77, C83). */
#include "base/clock.h"
#include "proxy/tls.h"
#include "tests/unit/proxy/pki.h"

#define H10 "\x08http/1.0"
#define H11 "\x08http/1.1"
#define H2 "\x02h2"

static struct ca *ca;
static struct tls *tls;
static SSL_CTX *client_ctx;  /* of a client that trusts our CA */
static SSL_SESSION *session; /* the last one that a client got */
static struct pki_cert root;
static char roots_path[] = "/tmp/test_tls.XXXXXX";

static int on_session(SSL *ssl, SSL_SESSION *s)
{
	SSL_SESSION_free(session);
	session = s;
	return 1;
}

static int setup(void **state)
{
	int fd = mkstemp(roots_path);

	assert_true(fd >= 0);
	close(fd);
	root = pki_ca("root", NULL);
	pki_write(roots_path, &root, 1);
	assert_int_equal(ca_new(&ca, NULL), 0);
	assert_int_equal(tls_new(ca, roots_path, false, &tls, NULL), 0);
	client_ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
	X509_STORE_add_cert(SSL_CTX_get_cert_store(client_ctx), ca->cert);
	SSL_CTX_set_session_cache_mode(
		client_ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(client_ctx, on_session);
	return 0;
}

static int teardown(void **state)
{
	SSL_SESSION_free(session);
	SSL_CTX_free(client_ctx);
	tls_free(tls);
	ca_free(ca);
	pki_free(&root);
	unlink(roots_path);
	return 0;
}

static SSL *client_new(int version, const char *host)
{
	SSL *ssl = SSL_new(client_ctx);
	char name[256];

	SSL_set_min_proto_version(ssl, version);
	SSL_set_max_proto_version(ssl, version);
	if (host) {
		/* The macro wants text that is not const. */
		assert_true(slice_to_cstr(slice_str(host), name, sizeof(name)));
		SSL_set1_host(ssl, name);
		SSL_set_tlsext_host_name(ssl, name);
	}
	SSL_set_connect_state(ssl);
	return ssl;
}

struct resume_row {
	const char *fact;
	const char *name; /* the second time; NULL: an address */
	uint64_t epoch;
	bool want;
};

static const struct resume_row resume_rows[] = {
	{"same name and epoch", "read.test", 7, true},
	{"other name", "api.model.test", 7, false},
	{"other name of the same length", "head.test", 7, false},
	{"other epoch", "read.test", 8, false},
	{"name that begins the same", "read.test2", 7, false},
	{"an address", NULL, 7, false},
};

static const struct {
	const char *fact;
	int version;
	bool ticket;
} resume_ways[] = {
	{"TLS 1.2 session id", TLS1_2_VERSION, false},
	{"TLS 1.2 ticket", TLS1_2_VERSION, true},
	{"TLS 1.3 PSK", TLS1_3_VERSION, true},
};

/* One connection; whether it was resumed. old NULL: none is offered. */
static bool connect_once(size_t way, const struct resume_row *row, SSL_SESSION *old)
{
	struct netaddr addr;
	SSL *client = client_new(resume_ways[way].version, row->name);
	SSL *server;
	bool resumed;

	assert_true(netaddr_parse(SLICE("10.77.0.2"), &addr));
	if (!row->name)
		assert_int_equal(
			X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(client), "10.77.0.2"), 1);
	server = tls_accept_new(tls, row->name ? slice_str(row->name) : SLICE_EMPTY,
		row->name ? NULL : &addr, row->epoch);
	assert_non_null(server);
	if (!resume_ways[way].ticket)
		SSL_set_options(client, SSL_OP_NO_TICKET);
	if (old)
		assert_int_equal(SSL_set_session(client, old), 1);
	if (!pki_handshake(client, server) || !pki_ping(client, server))
		fail_msg("%s, %s: failed", resume_ways[way].fact, row->fact);
	assert_int_equal(SSL_session_reused(client), SSL_session_reused(server));
	resumed = SSL_session_reused(server);
	SSL_shutdown(client);
	SSL_shutdown(server);
	SSL_free(client);
	SSL_free(server);
	return resumed;
}

static void test_session_resumes_for_the_same_name_and_epoch_only(void **state)
{
	for (size_t w = 0; w < ARRAY_LEN(resume_ways); w++) {
		for (size_t i = 0; i < ARRAY_LEN(resume_rows); i++) {
			SSL_SESSION *old;
			bool resumed;

			assert_false(connect_once(w, &resume_rows[0], NULL));
			assert_non_null(session);
			assert_int_equal(SSL_SESSION_has_ticket(session), resume_ways[w].ticket);
			old = session;
			session = NULL;
			resumed = connect_once(w, &resume_rows[i], old);
			if (resumed != resume_rows[i].want)
				fail_msg("%s, %s: resumed=%d", resume_ways[w].fact,
					resume_rows[i].fact, resumed);
			SSL_SESSION_free(old);
		}
	}
}

/* An address whose bytes are letters, and the name of these letters. */
static void test_name_and_address_of_the_same_bytes_are_not_one(void **state)
{
	struct netaddr addr;

	assert_true(netaddr_parse(SLICE("6161:6161:6161:6161:6161:6161:6161:6161"), &addr));
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		SSL *client = client_new(version, "aaaaaaaaaaaaaaaa");
		SSL *server = tls_accept_new(tls, SLICE("aaaaaaaaaaaaaaaa"), NULL, 7);

		assert_true(pki_handshake(client, server) && pki_ping(client, server));
		/* Without this OpenSSL would spoil the session. */
		SSL_shutdown(client);
		SSL_free(client);
		SSL_free(server);
		client = client_new(version, NULL);
		server = tls_accept_new(tls, SLICE_EMPTY, &addr, 7);
		assert_true(SSL_SESSION_is_resumable(session));
		assert_int_equal(SSL_set_session(client, session), 1);
		assert_true(pki_handshake(client, server));
		assert_false(SSL_session_reused(server));
		assert_int_equal(
			X509_check_ip(SSL_get0_peer_certificate(client), addr.b, 16, 0), 1);
		SSL_free(client);
		SSL_free(server);
	}
}

static void test_ticket_offers_no_early_data_and_early_data_is_not_read(void **state)
{
	size_t n = 0;

	assert_false(connect_once(2, &resume_rows[0], NULL));
	assert_int_equal(SSL_SESSION_get_max_early_data(session), 0);
	/* A client that sends it all the same. */
	{
		SSL_SESSION *lying = SSL_SESSION_dup(session);
		SSL *client = client_new(TLS1_3_VERSION, "read.test");
		SSL *server = tls_accept_new(tls, SLICE("read.test"), NULL, 7);
		BIO *a = NULL;
		BIO *b = NULL;

		assert_int_equal(BIO_new_bio_pair(&a, 65536, &b, 65536), 1);
		SSL_set_bio(client, a, a);
		SSL_set_bio(server, b, b);
		SSL_SESSION_set_max_early_data(lying, 1000);
		assert_int_equal(SSL_set_session(client, lying), 1);
		assert_int_equal(SSL_write_early_data(client, "POST /", 6, &n), 1);
		assert_int_equal(n, 6);
		/* The server refuses the early bytes; the connection itself may go on. */
		(void)pki_handshake(client, server);
		assert_int_not_equal(SSL_get_early_data_status(server), SSL_EARLY_DATA_ACCEPTED);
		assert_int_not_equal(SSL_get_early_data_status(client), SSL_EARLY_DATA_ACCEPTED);
		assert_int_equal(SSL_pending(server), 0);
		SSL_SESSION_free(lying);
		SSL_free(client);
		SSL_free(server);
		ERR_clear_error();
	}
}

static void test_client_gets_one_ticket(void **state)
{
	SSL *client = client_new(TLS1_3_VERSION, "read.test");
	SSL *server = tls_accept_new(tls, SLICE("read.test"), NULL, 1);

	assert_int_equal(SSL_get_num_tickets(server), 1);
	assert_true(pki_handshake(client, server));
	SSL_free(client);
	SSL_free(server);
}

static void test_client_without_sni_gets_the_leaf_of_the_address(void **state)
{
	static const char *addrs[] = {"10.77.0.2", "fd00::2"};

	for (size_t i = 0; i < ARRAY_LEN(addrs); i++) {
		SSL *client = client_new(TLS1_3_VERSION, NULL);
		struct netaddr addr;
		SSL *server;

		assert_true(netaddr_parse(slice_str(addrs[i]), &addr));
		server = tls_accept_new(tls, SLICE_EMPTY, &addr, 1);
		X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(client), addrs[i]);
		assert_true(pki_handshake(client, server));
		assert_int_equal(
			X509_check_ip_asc(SSL_get0_peer_certificate(client), addrs[i], 0), 1);
		/* The root is known to the client: it is not sent. */
		assert_int_equal(sk_X509_num(SSL_get_peer_cert_chain(client)), 1);
		SSL_free(client);
		SSL_free(server);
	}
}

static const struct {
	const char *offer;
	size_t len;
	const char *want; /* NULL: refused */
} alpn_rows[] = {
	{"", 0, ""},
	{H11, 9, "http/1.1"},
	{H2 H11, 12, "http/1.1"},
	{H11 H2, 12, "http/1.1"},
	{H2, 3, NULL},
	{H10, 9, "http/1.0"},
	{H2 H10, 12, "http/1.0"},
	{H10 H11, 18, "http/1.1"},
	{H11 H10, 18, "http/1.1"},
	{"\x08HTTP/1.1", 9, NULL},
	{"\x07http/1."
	 "\x01"
	 "1",
		10, NULL},
	{"\x09http/1.12", 10, NULL},
};

static void test_alpn_is_http1_or_the_handshake_fails(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(alpn_rows); i++) {
		SSL *client = client_new(TLS1_3_VERSION, "read.test");
		SSL *server = tls_accept_new(tls, SLICE("read.test"), NULL, 1);
		const unsigned char *p = NULL;
		unsigned int len = 0;
		bool certificate = true;

		SSL_set_alpn_protos(client, (const unsigned char *)alpn_rows[i].offer,
			(unsigned int)alpn_rows[i].len);
		assert_int_equal(pki_handshake(client, server), alpn_rows[i].want != NULL);
		SSL_get0_alpn_selected(client, &p, &len);
		assert_int_equal(len, alpn_rows[i].want ? strlen(alpn_rows[i].want) : 0);
		if (len)
			assert_memory_equal(p, alpn_rows[i].want, len);
		if (!alpn_rows[i].want) {
			assert_string_equal(tls_error_text(server, &certificate),
				"the peer does not accept http/1.1");
			assert_false(certificate);
			/* And the client is told by the alert of that name. */
			assert_int_equal(SSL_do_handshake(client), -1);
			assert_int_equal(ERR_GET_REASON(ERR_peek_error()),
				SSL_AD_REASON_OFFSET + SSL_AD_NO_APPLICATION_PROTOCOL);
		}
		SSL_free(client);
		SSL_free(server);
		ERR_clear_error();
	}
}

static const struct {
	const char *fact;
	const char *suites;
	const char *want; /* the cipher, or the sentence of a failure */
	int version;
	bool ok;
} cipher_rows[] = {
	{"1.3, other first",
		"TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256",
		"TLS_AES_128_GCM_SHA256", TLS1_3_VERSION, true},
	{"1.3, only ChaCha20", "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256",
		TLS1_3_VERSION, true},
	{"1.2, other first",
		"ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384:"
		"ECDHE-ECDSA-AES128-GCM-SHA256",
		"ECDHE-ECDSA-AES128-GCM-SHA256", TLS1_2_VERSION, true},
	{"1.2, CBC only", "ECDHE-ECDSA-AES128-SHA",
		"no common cipher, group or signature algorithm", TLS1_2_VERSION, false},
	{"1.2, no ECDSA", "ECDHE-RSA-AES128-GCM-SHA256",
		"no common cipher, group or signature algorithm", TLS1_2_VERSION, false},
	{"1.1", "ALL:@SECLEVEL=0", "protocol version: the peer offers neither TLS 1.2 nor TLS 1.3",
		TLS1_1_VERSION, false},
	{"1.0", "ALL:@SECLEVEL=0", "protocol version: the peer offers neither TLS 1.2 nor TLS 1.3",
		TLS1_VERSION, false},
};

static void test_our_cipher_order_wins_and_old_protocols_are_refused(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(cipher_rows); i++) {
		SSL *client = client_new(cipher_rows[i].version, "read.test");
		SSL *server = tls_accept_new(tls, SLICE("read.test"), NULL, 1);
		bool certificate = true;
		const char *got;
		int ok;

		if (cipher_rows[i].version == TLS1_3_VERSION)
			SSL_set_ciphersuites(client, cipher_rows[i].suites);
		else
			SSL_set_cipher_list(client, cipher_rows[i].suites);
		ok = pki_handshake(client, server);
		got = ok ? SSL_get_cipher_name(client) : tls_error_text(server, &certificate);
		if (ok != cipher_rows[i].ok || strcmp(got, cipher_rows[i].want) != 0)
			fail_msg("%s: %s", cipher_rows[i].fact, got);
		assert_int_equal(certificate, ok);
		SSL_free(client);
		SSL_free(server);
		ERR_clear_error();
	}
}

static void test_renegotiation_is_refused(void **state)
{
	SSL *client = client_new(TLS1_2_VERSION, "read.test");
	SSL *server = tls_accept_new(tls, SLICE("read.test"), NULL, 1);
	char byte;

	assert_true(pki_handshake(client, server));
	assert_int_equal(SSL_renegotiate(client), 1);
	(void)SSL_do_handshake(client);
	assert_int_equal(SSL_read(server, &byte, 1), -1);
	/* The server's answer is the warning no_renegotiation. */
	ERR_clear_error();
	assert_int_equal(SSL_do_handshake(client), -1);
	assert_int_equal(ERR_GET_REASON(ERR_peek_error()), SSL_R_NO_RENEGOTIATION);
	assert_int_equal(SSL_num_renegotiations(server), 0);
	SSL_free(client);
	SSL_free(server);
	ERR_clear_error();
}

static void test_client_that_does_not_trust_us_is_told_apart(void **state)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		SSL *client = SSL_new(ctx);
		SSL *server = tls_accept_new(tls, SLICE("read.test"), NULL, 1);
		bool certificate = true;

		SSL_set_max_proto_version(client, version);
		SSL_set_connect_state(client);
		assert_false(pki_handshake(client, server));
		ERR_clear_error();
		assert_int_equal(SSL_do_handshake(server), -1);
		assert_string_equal(tls_error_text(server, &certificate),
			"the peer did not accept the certificate");
		assert_false(certificate);
		assert_false(tls_is_verified(server));
		SSL_free(client);
		SSL_free(server);
	}
	SSL_CTX_free(ctx);
}

static void test_bytes_that_are_not_tls_are_named_so(void **state)
{
	static const char *texts[] = {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9.6\r\n"};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		SSL *server = tls_accept_new(tls, SLICE("read.test"), NULL, 1);
		BIO *in = BIO_new_mem_buf(texts[i], -1);
		bool certificate = true;

		SSL_set_bio(server, in, BIO_new(BIO_s_mem()));
		assert_int_equal(SSL_do_handshake(server), -1);
		assert_string_equal(
			tls_error_text(server, &certificate), "the peer does not speak TLS");
		SSL_free(server);
	}
}

static void test_name_that_is_too_long_is_refused(void **state)
{
	static char name[255];

	memset(name, 'a', sizeof(name));
	assert_null(tls_accept_new(tls, slice_make(name, 254), NULL, 1));
}

static void test_trust_that_cannot_be_used_is_an_error_that_names_it(void **state)
{
	struct tls *t = NULL;
	struct errmsg msg = {""};

	assert_int_not_equal(tls_new(ca, "/nonexistent/roots", false, &t, &msg), 0);
	assert_null(t);
	assert_non_null(strstr(msg.text, "/nonexistent/roots"));
	assert_int_not_equal(tls_new(ca, "/dev/null", true, &t, &msg), 0);
	assert_non_null(strstr(msg.text, "/dev/null"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session_resumes_for_the_same_name_and_epoch_only),
		cmocka_unit_test(test_name_and_address_of_the_same_bytes_are_not_one),
		cmocka_unit_test(test_ticket_offers_no_early_data_and_early_data_is_not_read),
		cmocka_unit_test(test_client_gets_one_ticket),
		cmocka_unit_test(test_client_without_sni_gets_the_leaf_of_the_address),
		cmocka_unit_test(test_alpn_is_http1_or_the_handshake_fails),
		cmocka_unit_test(test_our_cipher_order_wins_and_old_protocols_are_refused),
		cmocka_unit_test(test_renegotiation_is_refused),
		cmocka_unit_test(test_client_that_does_not_trust_us_is_told_apart),
		cmocka_unit_test(test_bytes_that_are_not_tls_are_named_so),
		cmocka_unit_test(test_name_that_is_too_long_is_refused),
		cmocka_unit_test(test_trust_that_cannot_be_used_is_an_error_that_names_it),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
