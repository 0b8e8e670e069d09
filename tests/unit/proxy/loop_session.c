/* The first bytes behind CONNECT or a redirect, and what becomes of them: TLS that is opened,
 * passed or refused, HTTP, silence, and everything else. */
#include <sys/socket.h>
#include <sys/time.h>

#include <event2/event.h>
#include <openssl/bio.h>

#include "proxy/session.h"
#include "tests/unit/proxy/bed.h"

#define OK_HI "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
#define ACCESS_DENIED "\x15\x03\x03\x00\x02\x02\x31"

static struct bed *bed;
static struct peer client, origin;
static char text[1024];

static int setup(void **state)
{
	bed = bed_new("deny denied.test");
	client.fd = origin.fd = -1;
	client.ssl = origin.ssl = NULL;
	return 0;
}

static int teardown(void **state)
{
	peer_close(bed, &client);
	peer_close(bed, &origin);
	bed_free(bed);
	return 0;
}

static void again(void)
{
	peer_close(bed, &client);
	peer_close(bed, &origin);
}

static struct session *connect_to(const char *name, const char *behind)
{
	struct session *s = peer_client(bed, &client);

	(void)snprintf(text, sizeof(text), "CONNECT %s:%u HTTP/1.1\r\nHost: x\r\n\r\n%s", name,
		bed->port, behind);
	peer_send(bed, &client, text);
	peer_expect(bed, &client, "HTTP/1.1 200 Connection established\r\n\r\n");
	return s;
}

static struct session *redirected(void)
{
	return peer_redirected(bed, &client, "203.0.113.5", bed->port);
}

static void ask_inside(const char *host)
{
	(void)snprintf(
		text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s:%u\r\n\r\n", host, bed->port);
	peer_send(bed, &client, text);
}

/* The request inside TLS arrives and is answered. */
static void check_opened(void)
{
	ask_inside("origin.test");
	peer_accept(bed, &origin);
	peer_tls_accept(bed, &origin);
	peer_expect(bed, &origin, text);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
}

static void check_closed_without_a_byte(void)
{
	peer_receive(&client);
	assert_int_equal(client.len, 0);
	assert_true(client.ended || client.broken);
	assert_int_equal(bed->px->n_sessions, 0);
}

/* --- TLS --- */

static void test_tls_is_opened(void **state)
{
	connect_to("origin.test", "");
	peer_tls_connect(bed, &client, "origin.test");
	check_opened();
	again();
	redirected();
	peer_tls_connect(bed, &client, "origin.test");
	check_opened();
	bed_close(bed);
	BED_LINE(bed, 0, "\"via\":\"connect\"", "\"url\":\"https://origin.test");
	BED_LINE(bed, 1, "\"via\":\"redirect\"", "\"addr\":\"127.0.0.1\"");
}

/* A ClientHello of the client's, which SSL goes on from. */
static size_t hello_take(struct peer *p, const char *name, char *buf, size_t size)
{
	BIO *out = BIO_new(BIO_s_mem());
	int n;

	peer_tls_start(p, name);
	assert_int_equal(BIO_up_ref(out), 1);
	SSL_set0_wbio(p->ssl, out);
	assert_int_equal(SSL_do_handshake(p->ssl), -1);
	n = BIO_read(out, buf, (int)size);
	assert_true(n > 0);
	BIO_free(out);
	assert_int_equal(SSL_set_fd(p->ssl, p->fd), 1);
	return (size_t)n;
}

static void test_hello_byte_by_byte(void **state)
{
	char hello[4096];

	for (int how = 0; how < 2; how++) {
		const struct session *s = how ? redirected() : connect_to("origin.test", "");
		size_t n = hello_take(&client, "origin.test", hello, sizeof(hello));

		for (size_t i = 0; i < n; i++) {
			assert_int_equal(s->state, SESSION_PEEK);
			assert_int_equal(send(client.fd, hello + i, 1, MSG_NOSIGNAL), 1);
			bed_turn(bed);
		}
		assert_int_equal(s->state, SESSION_HANDSHAKE);
		peer_tls_finish(bed, &client);
		check_opened();
		again();
	}
}

static void test_hello_in_the_same_segment_as_connect(void **state)
{
	char hello[4096];
	size_t n, head;

	peer_client(bed, &client);
	head = (size_t)snprintf(hello, sizeof(hello),
		"CONNECT origin.test:%u HTTP/1.1\r\nHost: x\r\n\r\n", bed->port);
	n = hello_take(&client, "origin.test", hello + head, sizeof(hello) - head);
	assert_int_equal(send(client.fd, hello, head + n, MSG_NOSIGNAL), head + n);
	bed_turn(bed);
	head = strlen("HTTP/1.1 200 Connection established\r\n\r\n");
	assert_int_equal(recv(client.fd, hello, head, 0), head);
	peer_tls_finish(bed, &client);
	check_opened();
}

/* Refusals by name finish the handshake, so that the client can be told. */
static void test_refused_names_are_told_inside_tls(void **state)
{
	static const struct {
		const char *connect, *sni, *host, *reason;
	} rows[] = {
		{"origin.test", "other.test", "other.test", "name_mismatch"},
		{"origin.test", "other.test", "origin.test", "name_mismatch"},
		{"origin.test", "origin.test", "other.test", "name_mismatch"},
		{NULL, "denied.test", "denied.test", "denied"},
		{NULL, "else.example", "else.example", "host_not_listed"},
		{NULL, "origin.test", "other.test", "name_mismatch"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char want[64], *head;

		if (rows[i].connect)
			connect_to(rows[i].connect, "");
		else
			redirected();
		peer_tls_connect(bed, &client, rows[i].sni);
		ask_inside(rows[i].host);
		head = peer_until(bed, &client, "\r\n\r\n");
		(void)snprintf(want, sizeof(want), "X-Egress-Reason: %s\r\n", rows[i].reason);
		if (!slice_starts(slice_str(head), SLICE("HTTP/1.1 403 blocked\r\n")) ||
			!strstr(head, want))
			fail_msg("row %zu: %s", i, head);
		free(head);
		assert_true(peer_nobody_connects(bed));
		again();
	}
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), ARRAY_LEN(rows));
}

static void test_connect_to_an_address_needs_no_server_name(void **state)
{
	connect_to("127.0.0.1", "");
	peer_tls_start(&client, NULL);
	SSL_set_verify(client.ssl, SSL_VERIFY_NONE, NULL);
	peer_tls_finish(bed, &client);
	ask_inside("127.0.0.1");
	peer_accept(bed, &origin);
	peer_tls_accept(bed, &origin);
	peer_expect(bed, &origin, text);
	again();
	/* a name was said to CONNECT, and TLS names none */
	connect_to("origin.test", "");
	peer_tls_start(&client, NULL);
	SSL_set_verify(client.ssl, SSL_VERIFY_NONE, NULL);
	peer_tls_finish(bed, &client);
	ask_inside("origin.test");
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
}

static void test_redirect_without_server_name_is_judged_by_its_address(void **state)
{
	redirected();
	peer_tls_start(&client, NULL);
	SSL_set_verify(client.ssl, SSL_VERIFY_NONE, NULL);
	peer_tls_finish(bed, &client);
	ask_inside("203.0.113.5");
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"address_not_listed\"", "\"host\":\"203.0.113.5\"");
}

static void test_malformed_hello_gets_an_alert(void **state)
{
	/* a handshake record whose message is no ClientHello */
	static const char bad[] = "\x16\x03\x01\x00\x04\x02\x00\x00\x00";

	redirected();
	peer_send_bytes(bed, &client, bad, 9);
	peer_expect_bytes(bed, &client, ACCESS_DENIED, 7);
	peer_expect_end(bed, &client);
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"malformed\"", "\"verdict\":\"blocked\"",
		"\"kind\":\"tunnel\"");
}

static void test_what_is_not_opened_passes_or_is_refused(void **state)
{
	static const struct {
		enum proxy_intercept intercept;
		const char *pass_through, *write_hosts, *sni;
		bool read_only, passes;
		const char *reason;
	} rows[] = {
		{PROXY_INTERCEPT_OFF, "", "", "origin.test", false, true, "shutdown"},
		{PROXY_INTERCEPT_BOUND, "", "", "origin.test", false, true, "shutdown"},
		{PROXY_INTERCEPT_ALL, "origin.test", "", "origin.test", false, true, "shutdown"},
		{PROXY_INTERCEPT_OFF, "", "", "denied.test", false, false, "denied"},
		{PROXY_INTERCEPT_OFF, "", "", "origin.test", true, false, "cannot_inspect"},
		{PROXY_INTERCEPT_ALL, "origin.test", "", "origin.test", true, false,
			"cannot_inspect"},
		{PROXY_INTERCEPT_OFF, "", "origin.test", "origin.test", true, true, "shutdown"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char hello[4096], want[64];
		size_t n;

		bed->config.intercept = rows[i].intercept;
		bed->config.read_only = rows[i].read_only;
		bed->config.extra_ports[0] = bed->port;
		bed->config.n_extra_ports = 1;
		bed_set_pass_through(bed, rows[i].pass_through);
		bed_set_write_hosts(bed, rows[i].write_hosts);
		redirected();
		n = hello_take(&client, rows[i].sni, hello, sizeof(hello));
		peer_send_raw(bed, &client, hello, n);
		SSL_free(client.ssl);
		client.ssl = NULL;
		if (rows[i].passes) {
			peer_accept(bed, &origin);
			peer_expect_bytes(bed, &origin, hello, n);
		} else {
			peer_expect_bytes(bed, &client, ACCESS_DENIED, 7);
			assert_true(peer_nobody_connects(bed));
		}
		bed_close(bed);
		(void)snprintf(want, sizeof(want), "\"reason\":\"%s\"", rows[i].reason);
		assert_int_equal(bed_n_lines(bed), 1);
		BED_LINE(bed, 0, want);
		teardown(state);
		setup(state);
	}
}

/* CONNECT is refused where TLS to it could only be refused later. */
static void test_connect_that_could_only_be_refused_later(void **state)
{
	bed->config.intercept = PROXY_INTERCEPT_OFF;
	bed->config.read_only = true;
	bed->config.extra_ports[0] = bed->port;
	bed->config.n_extra_ports = 1;
	bed_configure(bed);
	peer_client(bed, &client);
	(void)snprintf(text, sizeof(text), "CONNECT origin.test:%u HTTP/1.1\r\nHost: x\r\n\r\n",
		bed->port);
	peer_send(bed, &client, text);
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	free(peer_until(bed, &client, "\n"));
	/* but for plain HTTP, port 80 needs no TLS */
	peer_send(bed, &client, "CONNECT origin.test:80 HTTP/1.1\r\nHost: x\r\n\r\n");
	peer_expect(bed, &client, "HTTP/1.1 200 Connection established\r\n\r\n");
}

static void test_client_that_does_not_trust_us_is_on_record(void **state)
{
	connect_to("origin.test", "");
	peer_tls_start(&client, "origin.test");
	SSL_set_verify(client.ssl, SSL_VERIFY_PEER, NULL);
	assert_int_equal(SSL_set1_host(client.ssl, "wrong.test"), 1);
	for (int i = 0; i < 10; i++) {
		(void)SSL_do_handshake(client.ssl);
		bed_turn(bed);
	}
	peer_close(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"client_tls\"", "\"verdict\":\"failed\"");
}

/* --- time --- */

static void test_hello_that_stops_and_handshake_that_stops(void **state)
{
	char hello[4096];

	for (int part = 0; part < 2; part++) {
		size_t n;

		connect_to("origin.test", "");
		n = hello_take(&client, "origin.test", hello, sizeof(hello));
		peer_send_raw(bed, &client, hello, part ? 20 : n);
		SSL_free(client.ssl);
		client.ssl = NULL;
		bed_pass(bed, bed->config.handshake_timeout_ms - 1);
		assert_int_equal(bed->px->n_sessions, 1);
		bed_pass(bed, 1);
		assert_int_equal(bed->px->n_sessions, 0);
		again();
	}
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"client_timeout\"");
}

static bool silence_is_due(struct session *s)
{
	struct timeval due = {0, 0}, now;
	long ms;

	if (!event_pending(&s->silence, EV_TIMEOUT, &due))
		return false;
	(void)gettimeofday(&now, NULL);
	ms = (due.tv_sec - now.tv_sec) * 1000 + (due.tv_usec - now.tv_usec) / 1000;
	return ms > 0 && ms <= SESSION_PEEK_MS + 100; /* the loop's clock is not ours to the ms */
}

/* Without waiting for it: the timer's own callback. */
static void pass_silence(struct session *s)
{
	assert_true(silence_is_due(s));
	event_active(&s->silence, EV_TIMEOUT, 0);
	bed_settle(bed);
}

static void test_silent_client_gets_a_tunnel_where_that_is_allowed(void **state)
{
	struct session *s = connect_to("origin.test", "");

	assert_true(peer_nobody_connects(bed));
	pass_silence(s);
	peer_accept(bed, &origin);
	peer_send(bed, &origin, "220 the server speaks first\r\n");
	peer_expect(bed, &client, "220 the server speaks first\r\n");
	again();
	bed->config.read_only = true;
	bed->config.extra_ports[0] = bed->port;
	bed->config.n_extra_ports = 1;
	bed_configure(bed);
	s = connect_to("origin.test", "");
	pass_silence(s);
	check_closed_without_a_byte();
	assert_true(peer_nobody_connects(bed));
}

static void test_silence_in_the_middle_of_a_method_is_no_http(void **state)
{
	struct session *s = connect_to("origin.test", "GE");

	assert_true(peer_nobody_connects(bed));
	pass_silence(s);
	peer_accept(bed, &origin);
	peer_expect(bed, &origin, "GE");
}

static void test_silence_in_a_hello_does_not_count(void **state)
{
	struct session *s = connect_to("origin.test", "\x16\x03");

	assert_false(event_pending(&s->silence, EV_TIMEOUT, NULL));
	assert_int_equal(s->state, SESSION_PEEK);
	peer_shutdown(bed, &client);
	check_closed_without_a_byte();
}

/* --- HTTP or not --- */

static void test_how_http_begins(void **state)
{
	static const struct {
		const char *bytes;
		enum session_state want;
	} rows[] = {
		{"G", SESSION_PEEK},
		{"GET", SESSION_PEEK},
		{"GET ", SESSION_HTTP},
		{"M-SEARCH ", SESSION_HTTP},
		{"AAAAAAAAAAAAAAAAAAAAAAAA ", SESSION_HTTP}, /* H1_METHOD_MAX letters */
		{"AAAAAAAAAAAAAAAAAAAAAAAA", SESSION_PEEK},
		{"AAAAAAAAAAAAAAAAAAAAAAAAA", SESSION_TUNNEL},
		{"get ", SESSION_TUNNEL},
		{" GET ", SESSION_TUNNEL},
		{"SSH-2.0-x", SESSION_TUNNEL},
		{"\x17\x03\x03", SESSION_TUNNEL},
		{"\r\nGET / HTTP/1.1", SESSION_TUNNEL},
		{"\x16", SESSION_PEEK},
		{"\x16\x02", SESSION_TUNNEL},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct session *s = connect_to("origin.test", "");

		peer_send(bed, &client, rows[i].bytes);
		if (s->state != rows[i].want)
			fail_msg("row %zu: %d", i, (int)s->state);
		if (rows[i].want == SESSION_TUNNEL) {
			peer_accept(bed, &origin);
			peer_expect(bed, &origin, rows[i].bytes);
		}
		again();
		/* the end of a client settles what it began: "G" alone was a tunnel's byte */
		while (!peer_nobody_connects(bed)) {
			peer_accept(bed, &origin);
			peer_close(bed, &origin);
		}
	}
}

static void test_plain_http_behind_connect_and_redirect(void **state)
{
	for (int how = 0; how < 2; how++) {
		if (how)
			redirected();
		else
			connect_to("origin.test", "");
		ask_inside("origin.test");
		peer_accept(bed, &origin);
		peer_expect(bed, &origin, text);
		peer_send(bed, &origin, OK_HI);
		peer_expect(bed, &client, OK_HI);
		peer_send(bed, &client, "CONNECT origin.test:443 HTTP/1.1\r\nHost: x\r\n\r\n");
		peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
		free(peer_until(bed, &client, "\n"));
		ask_inside(how ? "else.example" : "other.test");
		peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
		again();
	}
}

/* HTTP/1.0 without Host: the name of CONNECT, or the address before the redirect. */
static void test_http_1_0_without_host(void **state)
{
	connect_to("origin.test", "");
	peer_send(bed, &client, "GET /a HTTP/1.0\r\n\r\n");
	peer_accept(bed, &origin);
	(void)snprintf(
		text, sizeof(text), "GET /a HTTP/1.1\r\nHost: origin.test:%u\r\n\r\n", bed->port);
	peer_expect(bed, &origin, text);
	again();
	peer_redirected(bed, &client, "127.0.0.1", bed->port);
	peer_send(bed, &client, "GET /b HTTP/1.0\r\n\r\n");
	peer_accept(bed, &origin);
	(void)snprintf(
		text, sizeof(text), "GET /b HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", bed->port);
	peer_expect(bed, &origin, text);
}

/* The port is the redirect's, whatever Host says. */
static void test_redirected_request_for_another_port_is_refused(void **state)
{
	redirected();
	peer_send(bed, &client, "GET / HTTP/1.1\r\nHost: origin.test:1\r\n\r\n");
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"name_mismatch\"");
}

static void test_other_bytes_of_a_redirect_are_judged_by_address(void **state)
{
	peer_redirected(bed, &client, "127.0.0.1", bed->port);
	peer_send(bed, &client, "SSH-2.0-x\r\n");
	peer_accept(bed, &origin);
	peer_expect(bed, &origin, "SSH-2.0-x\r\n");
	again();
	redirected();
	peer_send(bed, &client, "SSH-2.0-x\r\n");
	bed_turn(bed);
	peer_receive(&client);
	assert_true(client.ended || client.broken);
	bed_close(bed);
	BED_LINE(bed, 1, "\"reason\":\"address_not_listed\"", "\"host\":\"203.0.113.5\"",
		"\"via\":\"redirect\"");
}

static void test_client_gone_before_it_said_anything(void **state)
{
	redirected();
	peer_close(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
	connect_to("origin.test", "");
	peer_close(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
	connect_to("origin.test", "\x16\x03\x01");
	peer_close(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_tls_is_opened),
		T(test_hello_byte_by_byte),
		T(test_hello_in_the_same_segment_as_connect),
		T(test_refused_names_are_told_inside_tls),
		T(test_connect_to_an_address_needs_no_server_name),
		T(test_redirect_without_server_name_is_judged_by_its_address),
		T(test_malformed_hello_gets_an_alert),
		T(test_what_is_not_opened_passes_or_is_refused),
		T(test_connect_that_could_only_be_refused_later),
		T(test_client_that_does_not_trust_us_is_on_record),
		T(test_hello_that_stops_and_handshake_that_stops),
		T(test_silent_client_gets_a_tunnel_where_that_is_allowed),
		T(test_silence_in_the_middle_of_a_method_is_no_http),
		T(test_silence_in_a_hello_does_not_count),
		T(test_how_http_begins),
		T(test_plain_http_behind_connect_and_redirect),
		T(test_http_1_0_without_host),
		T(test_redirected_request_for_another_port_is_refused),
		T(test_other_bytes_of_a_redirect_are_judged_by_address),
		T(test_client_gone_before_it_said_anything),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
