/* Sessions of origins: resumed for the same name and port only, for an hour, under a ceiling; and
 * origins that ask for a client certificate (C83, C85). */
#include "base/clock.h"
#include "proxy/tls.h"
#include "proxy/tls_int.h"
#include "proxy/tls_session.h"
#include "tests/unit/proxy/pki.h"

static struct ca *ca;
static struct tls *tls;
static struct pki_cert root, origin_cert;
static SSL_CTX *origin_ctx;
static char roots_path[] = "/tmp/test_tls_session.XXXXXX";
static uint64_t now_us;

static SSL_CTX *origin_new(int verify)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	assert_int_equal(SSL_CTX_use_certificate(ctx, origin_cert.cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(ctx, origin_cert.key), 1);
	/* One context for every name, as an origin that hands one ticket to all of its names. */
	assert_int_equal(SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"o", 1), 1);
	SSL_CTX_set_verify(ctx, verify, NULL);
	return ctx;
}

static int setup(void **state)
{
	int fd = mkstemp(roots_path);

	assert_true(fd >= 0);
	close(fd);
	now_us = (uint64_t)time(NULL) * 1000000;
	clock_fake(1, now_us);
	root = pki_ca("root", NULL);
	origin_cert =
		pki_make(&(struct pki_spec){.san = "DNS:a.test,DNS:b.test,IP:10.0.0.1"}, &root);
	pki_write(roots_path, &root, 1);
	assert_int_equal(ca_new(&ca, NULL), 0);
	origin_ctx = origin_new(SSL_VERIFY_NONE);
	return 0;
}

static int teardown(void **state)
{
	SSL_CTX_free(origin_ctx);
	ca_free(ca);
	pki_free(&root);
	pki_free(&origin_cert);
	unlink(roots_path);
	return 0;
}

static int fresh(void **state)
{
	clock_fake(1, now_us);
	return tls_new(ca, roots_path, false, &tls, NULL);
}

static int drop(void **state)
{
	tls_free(tls);
	return 0;
}

/* Connects, reads one byte and closes; whether it was resumed. */
static bool visit(struct tls *t, const char *name, uint16_t port, int version)
{
	struct netaddr addr;
	bool is_addr = netaddr_parse(slice_str(name), &addr);
	SSL *client = tls_connect_new(
		t, is_addr ? SLICE_EMPTY : slice_str(name), is_addr ? &addr : NULL, port);
	SSL *server = SSL_new(origin_ctx);
	bool resumed;

	SSL_set_max_proto_version(server, version);
	SSL_set_accept_state(server);
	assert_true(pki_handshake(client, server));
	assert_true(pki_ping(client, server));
	assert_true(tls_is_verified(client) || t != tls);
	resumed = SSL_session_reused(client);
	assert_int_equal(resumed, SSL_session_reused(server));
	/* No name is sent for an address (RFC 6066 3). A resumed origin does not tell the name. */
	if (is_addr)
		assert_null(SSL_get_servername(server, TLSEXT_NAMETYPE_host_name));
	else if (!resumed)
		assert_string_equal(SSL_get_servername(server, TLSEXT_NAMETYPE_host_name), name);
	SSL_shutdown(client);
	SSL_shutdown(server);
	SSL_free(client);
	SSL_free(server);
	return resumed;
}

static void test_second_visit_resumes_and_stays_verified(void **state)
{
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		uint16_t port = (uint16_t)version;

		assert_false(visit(tls, "a.test", port, version));
		assert_true(visit(tls, "a.test", port, version));
		assert_true(visit(tls, "a.test", port, version));
		assert_false(visit(tls, "10.0.0.1", port, version));
		assert_true(visit(tls, "10.0.0.1", port, version));
	}
}

static void test_other_name_port_or_mode_gets_a_full_handshake(void **state)
{
	struct tls *insecure = NULL;

	assert_int_equal(tls_new(ca, roots_path, true, &insecure, NULL), 0);
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		uint16_t port = (uint16_t)version;

		assert_false(visit(tls, "a.test", port, version));
		assert_false(visit(tls, "b.test", port, version));
		assert_false(visit(tls, "a.test", (uint16_t)(port + 100), version));
		assert_false(visit(insecure, "a.test", port, version));
		assert_true(visit(tls, "a.test", port, version));
	}
	tls_free(insecure);
}

static void test_session_is_not_used_after_an_hour_or_after_the_clock_went_back(void **state)
{
	uint64_t keep = TLS_SESSION_KEEP_S * 1000000ULL;

	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		uint16_t port = (uint16_t)version;

		clock_fake(1, now_us);
		assert_false(visit(tls, "a.test", port, version));
		clock_fake(1, now_us + keep - 1);
		assert_true(visit(tls, "a.test", port, version));
		clock_fake(1, now_us + keep - 1 + keep);
		assert_false(visit(tls, "a.test", port, version));
		clock_fake(1, now_us);
		assert_false(visit(tls, "a.test", port, version));
	}
}

static void test_session_is_not_used_past_the_life_that_the_origin_gave_it(void **state)
{
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		uint16_t port = (uint16_t)version;

		SSL_CTX_set_timeout(origin_ctx, 60);
		clock_fake(1, now_us);
		assert_false(visit(tls, "a.test", port, version));
		clock_fake(1, now_us + 59 * 1000000ULL);
		assert_true(visit(tls, "a.test", port, version));
		clock_fake(1, now_us + (59 + 60) * 1000000ULL);
		assert_false(visit(tls, "a.test", port, version));
		SSL_CTX_set_timeout(origin_ctx, 7200);
	}
}

static void test_origin_cannot_renegotiate(void **state)
{
	SSL *client = tls_connect_new(tls, SLICE("a.test"), NULL, 443);
	SSL *server = SSL_new(origin_ctx);
	char byte;

	SSL_set_max_proto_version(server, TLS1_2_VERSION);
	SSL_set_accept_state(server);
	assert_true(pki_handshake(client, server));
	assert_int_equal(SSL_renegotiate(server), 1);
	(void)SSL_do_handshake(server);
	assert_int_equal(SSL_read(client, &byte, 1), -1);
	assert_false(SSL_in_init(client));
	assert_int_equal(SSL_num_renegotiations(client), 0);
	SSL_free(client);
	SSL_free(server);
	ERR_clear_error();
}

/* A session to put, as a handshake of that version leaves it. */
static SSL_SESSION *session_of(int version)
{
	SSL *client = tls_connect_new(tls, SLICE("a.test"), NULL, 1);
	SSL *server = SSL_new(origin_ctx);
	SSL_SESSION *s;

	SSL_set_max_proto_version(server, version);
	SSL_set_accept_state(server);
	assert_true(pki_handshake(client, server));
	assert_true(pki_ping(client, server));
	s = SSL_get1_session(client);
	SSL_shutdown(client);
	SSL_shutdown(server);
	SSL_free(client);
	SSL_free(server);
	return s;
}

static void test_tls13_session_is_given_out_once_and_tls12_again_and_again(void **state)
{
	struct tls_sessions *kept = tls_sessions_new(8);
	SSL_SESSION *s12 = session_of(TLS1_2_VERSION);
	SSL_SESSION *s13 = session_of(TLS1_3_VERSION);
	long sum = 0;

	tls_sessions_put(kept, SLICE("k12"), s12);
	tls_sessions_put(kept, SLICE("k12"), s12);
	assert_int_equal(tls_sessions_count(kept), 1);
	for (int i = 0; i < 3; i++) {
		SSL_SESSION *got = tls_sessions_take(kept, SLICE("k12"));

		assert_non_null(got);
		SSL_SESSION_free(got);
	}
	/* Two are kept; the next takes the place of the older. The time tells them apart. */
	for (uint64_t i = 1; i <= 4; i++) {
		clock_fake(1, now_us + i);
		SSL_SESSION_set_time(s13, (long)i);
		tls_sessions_put(kept, SLICE("k13"), s13);
	}
	assert_int_equal(tls_sessions_count(kept), 3);
	for (int i = 0; i < 2; i++) {
		SSL_SESSION *got = tls_sessions_take(kept, SLICE("k13"));

		assert_non_null(got);
		assert_int_equal(SSL_SESSION_get_protocol_version(got), TLS1_3_VERSION);
		sum += SSL_SESSION_get_time(got);
		SSL_SESSION_free(got);
	}
	assert_int_equal(sum, 3 + 4);
	assert_null(tls_sessions_take(kept, SLICE("k13")));
	assert_null(tls_sessions_take(kept, SLICE("other")));
	SSL_SESSION_free(s12);
	SSL_SESSION_free(s13);
	tls_sessions_free(kept);
}

static void test_sessions_stay_under_their_ceiling(void **state)
{
	struct tls_sessions *kept = tls_sessions_new(4);
	SSL_SESSION *s = session_of(TLS1_2_VERSION);
	SSL_SESSION *got;
	char key[8];

	for (int i = 0; i < 5; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		tls_sessions_put(kept, slice_str(key), s);
	}
	assert_int_equal(tls_sessions_count(kept), 4);
	assert_null(tls_sessions_take(kept, SLICE("k0")));
	got = tls_sessions_take(kept, SLICE("k1"));
	assert_non_null(got);
	SSL_SESSION_free(got);
	SSL_SESSION_free(s);
	tls_sessions_free(kept);
}

static void check_kept(int version)
{
	struct tls_sessions *kept = tls_sessions_new(4);
	SSL_SESSION *s = session_of(version);
	SSL_SESSION *got;
	const unsigned char *ticket[2] = {NULL, NULL};
	unsigned char key[2][SSL_MAX_MASTER_KEY_LENGTH];
	size_t len[2] = {0, 0};

	tls_sessions_put(kept, SLICE("k"), s);
	got = tls_sessions_take(kept, SLICE("k"));
	assert_non_null(got);
	assert_non_null(SSL_SESSION_get0_peer(s));
	assert_null(SSL_SESSION_get0_peer(got));
	SSL_SESSION_get0_ticket(s, &ticket[0], &len[0]);
	SSL_SESSION_get0_ticket(got, &ticket[1], &len[1]);
	assert_int_equal(len[0], len[1]);
	if (len[0])
		assert_memory_equal(ticket[0], ticket[1], len[0]);
	len[0] = SSL_SESSION_get_master_key(s, key[0], sizeof(key[0]));
	len[1] = SSL_SESSION_get_master_key(got, key[1], sizeof(key[1]));
	assert_int_equal(len[0], len[1]);
	assert_memory_equal(key[0], key[1], len[0]);
	SSL_SESSION_free(s);
	SSL_SESSION_free(got);
	tls_sessions_free(kept);
}

static void test_kept_session_has_all_but_the_certificate(void **state)
{
	check_kept(TLS1_2_VERSION);
	check_kept(TLS1_3_VERSION);
}

/* So short that the length of the encoding takes fewer bytes than before. */
static void test_session_id_of_tls12_is_kept_and_resumed(void **state)
{
	SSL_CTX_set_options(origin_ctx, SSL_OP_NO_TICKET);
	check_kept(TLS1_2_VERSION);
	assert_false(visit(tls, "b.test", 443, TLS1_2_VERSION));
	assert_true(visit(tls, "b.test", 443, TLS1_2_VERSION));
	SSL_CTX_clear_options(origin_ctx, SSL_OP_NO_TICKET);
}

/* The app data is in the encoding, so it makes a session of any size. */
static void test_session_of_8_kib_is_kept_and_one_byte_more_is_not(void **state)
{
	struct tls_sessions *kept = tls_sessions_new(4);
	SSL_SESSION *s = session_of(TLS1_2_VERSION);
	SSL_SESSION *got;
	uint8_t pad[TLS_SESSION_BYTES_MAX] = {0};
	size_t n = 4096;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(SSL_SESSION_set1_ticket_appdata(s, pad, n), 1);
		tls_sessions_put(kept, SLICE("k"), s);
		got = tls_sessions_take(kept, SLICE("k"));
		assert_non_null(got);
		n += (size_t)(TLS_SESSION_BYTES_MAX - i2d_SSL_SESSION(got, NULL));
		SSL_SESSION_free(got);
	}
	/* The second one was exactly at the limit. */
	assert_int_equal(SSL_SESSION_set1_ticket_appdata(s, pad, n + 1), 1);
	tls_sessions_put(kept, SLICE("other"), s);
	assert_null(tls_sessions_take(kept, SLICE("other")));
	assert_int_equal(SSL_SESSION_set1_ticket_appdata(s, pad, n), 1);
	tls_sessions_put(kept, SLICE("other"), s);
	got = tls_sessions_take(kept, SLICE("other"));
	assert_int_equal(i2d_SSL_SESSION(got, NULL), TLS_SESSION_BYTES_MAX);
	SSL_SESSION_free(got);
	SSL_SESSION_free(s);
	tls_sessions_free(kept);
}

static void test_key_that_is_too_long_keeps_nothing(void **state)
{
	struct tls_sessions *kept = tls_sessions_new(4);
	SSL_SESSION *s = session_of(TLS1_2_VERSION);
	char key[TLS_SESSION_KEY_MAX] = {0};
	SSL_SESSION *got;

	tls_sessions_put(kept, slice_make(key, sizeof(key)), s);
	assert_int_equal(tls_sessions_count(kept), 0);
	assert_null(tls_sessions_take(kept, slice_make(key, sizeof(key))));
	tls_sessions_put(kept, slice_make(key, sizeof(key) - 1), s);
	got = tls_sessions_take(kept, slice_make(key, sizeof(key) - 1));
	assert_non_null(got);
	SSL_SESSION_free(got);
	SSL_SESSION_free(s);
	tls_sessions_free(kept);
}

#define ASKS "the origin asks for a client certificate, which cannot pass interception"

static void test_origin_that_requires_a_client_certificate_is_named_so(void **state)
{
	SSL_CTX *ctx = origin_new(SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT);

	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		SSL *client = tls_connect_new(tls, SLICE("a.test"), NULL, 443);
		SSL *server = SSL_new(ctx);
		bool certificate = true;
		char byte;

		SSL_set_max_proto_version(server, version);
		SSL_set_accept_state(server);
		assert_false(pki_handshake(client, server));
		/* In TLS 1.3 our side is done by then, and the first read brings the alert. */
		assert_int_equal(SSL_is_init_finished(client), version == TLS1_3_VERSION);
		ERR_clear_error();
		assert_true(SSL_read(client, &byte, 1) <= 0);
		assert_string_equal(tls_error_text(client, &certificate), ASKS);
		assert_false(certificate);
		SSL_free(client);
		SSL_free(server);
	}
	SSL_CTX_free(ctx);
}

static void test_origin_that_asks_politely_is_served_without_one(void **state)
{
	SSL_CTX *ctx = origin_new(SSL_VERIFY_PEER);

	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		SSL *client = tls_connect_new(tls, SLICE("a.test"), NULL, 443);
		SSL *server = SSL_new(ctx);
		bool certificate = true;

		SSL_set_max_proto_version(server, version);
		SSL_set_accept_state(server);
		assert_true(pki_handshake(client, server));
		assert_true(pki_ping(client, server));
		assert_true(tls_was_asked_for_certificate(client));
		assert_null(SSL_get0_peer_certificate(server));
		/* A later end of the connection has nothing to do with it. */
		assert_string_equal(tls_error_text(client, &certificate), "TLS failed");
		SSL_free(client);
		SSL_free(server);
	}
	SSL_CTX_free(ctx);
}

static int on_offer(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned int in_len, void *arg)
{
	assert_int_equal(in_len, 9);
	assert_memory_equal(in, "\x08http/1.1", 9);
	*out = in + 1;
	*out_len = 8;
	*(bool *)arg = true;
	return SSL_TLSEXT_ERR_OK;
}

static void test_origin_is_offered_http11_alone(void **state)
{
	SSL *client = tls_connect_new(tls, SLICE("a.test"), NULL, 443);
	SSL_CTX *ctx = origin_new(SSL_VERIFY_NONE);
	SSL *server;
	bool seen = false;

	SSL_CTX_set_alpn_select_cb(ctx, on_offer, &seen);
	server = SSL_new(ctx);
	SSL_set_accept_state(server);
	assert_true(pki_handshake(client, server));
	assert_true(seen);
	assert_string_equal(SSL_get_cipher_name(client), "TLS_AES_128_GCM_SHA256");
	SSL_free(client);
	SSL_free(server);
	SSL_CTX_free(ctx);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fresh, drop)
	const struct CMUnitTest tests[] = {
		T(test_second_visit_resumes_and_stays_verified),
		T(test_other_name_port_or_mode_gets_a_full_handshake),
		T(test_session_is_not_used_after_an_hour_or_after_the_clock_went_back),
		T(test_session_is_not_used_past_the_life_that_the_origin_gave_it),
		T(test_origin_cannot_renegotiate),
		T(test_tls13_session_is_given_out_once_and_tls12_again_and_again),
		T(test_sessions_stay_under_their_ceiling),
		T(test_kept_session_has_all_but_the_certificate),
		T(test_session_id_of_tls12_is_kept_and_resumed),
		T(test_session_of_8_kib_is_kept_and_one_byte_more_is_not),
		T(test_key_that_is_too_long_keeps_nothing),
		T(test_origin_that_requires_a_client_certificate_is_named_so),
		T(test_origin_that_asks_politely_is_served_without_one),
		T(test_origin_is_offered_http11_alone),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
