/* Whole questions through the gate. */
#include <errno.h>

#include "tests/unit/dns/gate.h"

static const struct peer_row anything[] = {
	{.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.1 1.0.0.2 2::1", .ttl = 30},
};

static void test_denied_names_get_nxdomain_and_reach_no_resolver(void **state)
{
	static const char *const names[] = {"deny.test", "bad.wild.test", "BAD.wild.TEST",
		"wild.test", "notwild.test", "a.wild.test.deny.test", "www.read.test",
		"x.bad.wild.te", "use-application-dns.net", "resolver.arpa", "_dns.resolver.arpa"};
	static const unsigned types[] = {DNS_A, DNS_AAAA, DNS_TXT, DNS_MX, 10, 255};
	struct fixture *f = *state;
	size_t i, k;

	peer_script(&f->first, anything, 1);
	for (i = 0; i < ARRAY_LEN(names); i++) {
		for (k = 0; k < ARRAY_LEN(types); k++) {
			ask(f, names[i], types[k]);
			assert_true(reply_within(f, GUARD_MS));
			check_reply(f, "rcode 3");
			assert_int_equal(n_of_type(f, DNS_AUTHORITY, DNS_SOA), 1);
		}
	}
	assert_int_equal(f->first.n_questions + f->second.n_questions, 0);
	assert_int_equal(f->n_denied, ARRAY_LEN(names) * ARRAY_LEN(types));
	assert_string_equal(f->denied, "_dns.resolver.arpa");
	assert_int_equal(guard.n, 0);
}

static void test_odd_names_are_denied_whatever_the_default(void **state)
{
	static const char *const names[] = {"a b.wild.test", "a\\.wild.test", "a*.wild.test",
		"\303\274.wild.test", "a,b.wild.test"};
	struct fixture *f = *state;
	struct wire w;
	size_t i;

	policy_unref(f->config.policy);
	f->config.policy = fixture_policy(true, "allow *.wild.test");
	dns_gate_configure(f->gate, &f->config);
	peer_script(&f->first, anything, 1);
	for (i = 0; i < ARRAY_LEN(names); i++) {
		ask(f, names[i], DNS_A);
		assert_true(reply_within(f, GUARD_MS));
		check_reply(f, "rcode 3");
	}
	/* One label that holds a dot. */
	wire_init(&w, 0x1234, DNS_RD);
	wire_count(&w, 0);
	wire_add(&w, "\011a.wild.te\002st", 14);
	wire_u16(&w, DNS_A);
	wire_u16(&w, 1);
	send_wire(f, &w);
	assert_true(reply_within(f, GUARD_MS));
	check_reply(f, "rcode 3");
	assert_string_equal(f->denied, "a\\046wild\\046te.st");
	assert_int_equal(f->first.n_questions, 0);
}

static void test_names_of_other_resolvers_are_denied_even_if_a_rule_allows_them(void **state)
{
	static const char *const names[] = {"use-application-dns.net", "_dns.resolver.arpa",
		"x._dns.resolver.arpa", "USE-application-DNS.net"};
	struct fixture *f = *state;
	size_t i;

	policy_unref(f->config.policy);
	f->config.policy =
		fixture_policy(true, "allow use-application-dns.net; allow *.resolver.arpa");
	dns_gate_configure(f->gate, &f->config);
	peer_script(&f->first, anything, 1);
	for (i = 0; i < ARRAY_LEN(names); i++)
		check_ask(f, names[i], DNS_A, "rcode 3");
	assert_int_equal(f->first.n_questions, 0);
	check_ask(f, "other.resolver.arpa", DNS_A, "1.0.0.1 1.0.0.2");
}

static void test_reply_waits_for_the_kernel(void **state)
{
	struct fixture *f = *state;

	peer_script(&f->first, anything, 1);
	ask(f, "ReAd.TeSt", DNS_A);
	run_until_calls(f, 1);
	assert_false(reply_within(f, 50));
	assert_int_equal(guard.calls[0].n, 2);
	assert_int_equal(guard.calls[0].v[0].seconds, 90);
	assert_int_equal(guard.calls[0].v[0].port, 0);
	guard_ack(0);
	assert_true(reply_within(f, GUARD_MS));
	check_reply(f, "1.0.0.1 1.0.0.2");
	/* The client's letters, whatever went upstream. */
	assert_memory_equal(f->reply + 12, "\004ReAd\004TeSt", 11);
	assert_int_equal(dns_gate_leases(f->gate), 2);
	/* Known to the kernel to the second: no need to wait again. */
	ask(f, "read.test", DNS_A);
	assert_true(reply_within(f, GUARD_MS));
	assert_int_equal(guard.n, 1);
	/* A second later the lease must last longer. */
	set_now(f, f->now_ms + 1001);
	ask(f, "read.test", DNS_A);
	run_until_calls(f, 2);
	guard_ack(0);
	assert_true(reply_within(f, GUARD_MS));
}

static void test_lease_the_kernel_refuses_is_servfail(void **state)
{
	struct fixture *f = *state;

	peer_script(&f->first, anything, 1);
	ask_edns(f, "read.test", DNS_A, 1232);
	run_until_calls(f, 1);
	guard_ack(-ENOSPC);
	assert_true(reply_within(f, GUARD_MS));
	check_reply(f, "rcode 2");
	assert_int_equal(dns_gate_leases(f->gate), 0);
	guard.refuses = true;
	check_ask(f, "read.test", DNS_A, "rcode 2");
	assert_int_equal(dns_gate_stats(f->gate)->kernel_refused, 2);
}

static void test_addresses_nobody_may_have_are_left_out(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "special.wild.test",
			.act = PEER_ANSWER,
			.ttl = 0,
			.addrs = "127.0.0.1 169.254.169.254 100.64.0.1 0.0.0.0 10.77.0.3 240.0.0.1 "
				 "168.63.129.16 224.0.0.1 192.0.0.1 ::1 fd00::1 fe80::1 ff02::1 "
				 "64:ff9b::a4d:3 2002:a4d:3::1 ::a4d:3 64:ff9b:1::1 fec0::1"},
		{.name = "mixed.wild.test",
			.act = PEER_ANSWER,
			.ttl = 0,
			.addrs = "10.77.0.3 1.0.0.1 10.77.0.2 198.18.0.1"},
		{.name = "*", .act = PEER_ANSWER, .ttl = 0, .addrs = "10.77.0.3 127.0.0.1"},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, 3);
	check_ask(f, "special.wild.test", DNS_A, "");
	assert_int_equal(n_of_type(f, DNS_AUTHORITY, DNS_SOA), 1);
	check_ask(f, "special.wild.test", DNS_AAAA, "");
	assert_int_equal(guard.n, 0);
	check_ask(f, "mixed.wild.test", DNS_A, "1.0.0.1 10.77.0.2 198.18.0.1");
	assert_int_equal(guard.calls[0].n, 3);
	/* An exact rule: a gateway of one's own. */
	check_ask(f, "exact.test", DNS_A, "10.77.0.3");
}

static void test_neighbours_need_a_rule_under_the_read_only_rule(void **state)
{
	static const struct peer_row rows[] = {{.name = "*",
		.act = PEER_ANSWER,
		.ttl = 0,
		.addrs = "10.77.0.3 10.77.0.2 11.0.0.1"}};
	struct netcidr link;
	struct fixture *f = *state;

	assert_true(netcidr_parse(SLICE("10.77.0.0/24"), &link));
	f->config.on_link = &link;
	f->config.n_on_link = 1;
	peer_script(&f->first, rows, 1);
	dns_gate_configure(f->gate, &f->config);
	check_ask(f, "exact.test", DNS_A, "10.77.0.3 10.77.0.2 11.0.0.1");
	f->config.read_only = true;
	dns_gate_configure(f->gate, &f->config);
	check_ask(f, "exact.test", DNS_A, "10.77.0.2 11.0.0.1");
}

static void test_alias_to_a_denied_name_is_denied(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "read.test",
			.act = PEER_ANSWER,
			.addrs = "1.0.0.1",
			.ttl = 9,
			.cname_ttl = 9,
			.cnames = "a.cdn.test evil.cdn.test"},
		{.name = "exact.test",
			.act = PEER_ANSWER,
			.addrs = "1.0.0.1",
			.ttl = 9,
			.cname_ttl = 9,
			.cnames = "a.cdn.test b.cdn.test"},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, 2);
	check_ask(f, "read.test", DNS_A, "rcode 3");
	assert_string_equal(f->denied, "read.test");
	assert_int_equal(guard.n, 0);
	check_ask(f, "exact.test", DNS_A, "1.0.0.1");
	assert_int_equal(n_of_type(f, DNS_ANSWER, DNS_CNAME), 2);
}

static void test_rules_with_ports_grant_those_ports(void **state)
{
	struct fixture *f = *state;

	peer_script(&f->first, anything, 1);
	check_ask(f, "port.test", DNS_A, "1.0.0.1 1.0.0.2");
	assert_int_equal(guard.calls[0].n, 4);
	assert_int_equal(guard.calls[0].v[0].port, 22);
	assert_int_equal(guard.calls[0].v[1].port, 443);
	assert_int_equal(guard.calls[0].v[0].proto, IPPROTO_TCP);
}

static void test_types_beyond_the_usual_need_an_exact_rule(void **state)
{
	static const uint16_t types[] = {DNS_TXT};
	struct fixture *f = *state;

	peer_script(&f->first, anything, 1);
	check_ask(f, "a.wild.test", DNS_TXT, "");
	check_ask(f, "a.wild.test", 10, "");
	check_ask(f, "read.test", 255, "");
	check_ask(f, "read.test", 252, "");
	assert_int_equal(f->first.n_questions, 0);
	assert_int_equal(dns_gate_stats(f->gate)->no_data, 4);
	check_ask(f, "read.test", DNS_TXT, "");
	assert_int_equal(f->first.n_questions, 1);
	f->config.types = types;
	f->config.n_types = 1;
	dns_gate_configure(f->gate, &f->config);
	check_ask(f, "a.wild.test", DNS_TXT, "");
	check_ask(f, "a.wild.test", 10, "");
	assert_int_equal(f->first.n_questions, 2);
}

static void test_mode_dns_programs_nothing(void **state)
{
	struct fixture *f = *state;

	f->config.guard = NULL;
	dns_gate_configure(f->gate, &f->config);
	peer_script(&f->first, anything, 1);
	ask(f, "read.test", DNS_A);
	assert_true(reply_within(f, GUARD_MS));
	check_reply(f, "1.0.0.1 1.0.0.2");
	assert_int_equal(guard.n, 0);
}

static void test_malformed_questions(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		int rcode; /* -1: silence */
	} rows[] = {
		{"\x12\x34\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", 18, 1}, /* points to itself */
		{"\x12\x34\1\0\0\1\0\0\0\0\0\0\1\x61\xc0\x0c\0\1\0\1", 20, 1},
		{"\x12\x34\1\0\0\1\0\0\0\0\0\0\x3f\x61", 14, 1}, /* runs past the end */
		{"\x12\x34\1\0\xff\xff\0\0\0\0\0\0", 12, 1},
		{"\x12\x34\1\0\0\0\0\0\0\0\0\0", 12, 1},
		{"\x12\x34\1\0\0\2\0\0\0\0\0\0\0\0\1\0\1\0\0\1\0\1", 22, 1},
		{"\x12\x34\1\0\0\1\0\1\0\0\0\0\0\0\1\0\1", 17, 1},
		{"\x12\x34\1\0\0\1\0\0\0\0\0\0\x41\x61\0\0\1\0\1", 19, 1}, /* reserved 01 */
		{"\x12\x34\1\0\0\1\0\0\0\0\0\0\0\0\1\0\1x", 18, 1},        /* a byte behind */
		{"\x12\x34\x28\0\0\1\0\0\0\0\0\0\0\0\1\0\1", 17, 4},       /* UPDATE */
		{"\x12\x34\x81\0\0\1\0\0\0\0\0\0\0\0\1\0\1", 17, -1},      /* a response */
		{"\x12", 1, -1},
		{"", 0, -1},
		{"\x12\x34\1\0\0\1\0\0\0\0\0", 11, -1},
	};
	struct fixture *f = *state;
	struct wire w;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(send(f->client, rows[i].bytes, rows[i].len, 0), rows[i].len);
		if (rows[i].rcode < 0) {
			assert_false(reply_within(f, 20));
			continue;
		}
		/* The reply may be without a question, which dns_answer_decode does not take. */
		while (recv(f->client, f->reply, sizeof(f->reply), 0) < 0)
			event_base_loop(f->base, EVLOOP_NONBLOCK);
		assert_memory_equal(f->reply, "\x12\x34", 2);
		assert_int_equal(f->reply[3] & 15, rows[i].rcode);
	}
	wire_init(&w, 0x1234, DNS_RD);
	wire_question(&w, "read.test", DNS_A);
	wire_opt(&w, 1232, 1, false);
	send_wire(f, &w);
	assert_true(reply_within(f, GUARD_MS));
	check_reply(f, "rcode 16");
}

static void test_resolvers_that_lie_or_die_give_way(void **state)
{
	static const enum peer_act acts[] = {PEER_SERVFAIL, PEER_REFUSED, PEER_SILENT, PEER_GARBAGE,
		PEER_WRONG_ID, PEER_WRONG_QUESTION, PEER_RDLENGTH_FFFF, PEER_RDLENGTH_3,
		PEER_ANCOUNT_FFFF, PEER_CNAME_LOOP};
	struct peer_row bad = {.name = "*", .addrs = "9.9.9.9", .ttl = 60};
	struct fixture *f = *state;
	size_t i;

	for (i = 0; i < ARRAY_LEN(acts); i++) {
		bad.act = acts[i];
		peer_script(&f->first, &bad, 1);
		peer_script(&f->second, anything, 1);
		check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
		assert_true(f->first.n_questions > 0 && f->second.n_questions > 0);
	}
	bad.act = PEER_SILENT;
	peer_script(&f->second, &bad, 1);
	peer_script(&f->first, &bad, 1);
	check_ask(f, "read.test", DNS_A, "rcode 2");
}

static void test_nxdomain_and_no_data_are_final(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "gone.wild.test", .act = PEER_NXDOMAIN},
		{.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.1"},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, 2);
	check_ask(f, "gone.wild.test", DNS_A, "rcode 3");
	check_ask(f, "v4only.wild.test", DNS_AAAA, "");
	assert_int_equal(f->second.n_questions, 0);
	assert_int_equal(f->n_denied, 0);
}

static void test_resolver_without_letter_case_is_asked_by_tcp_then_without(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .act = PEER_OTHER_CASE, .addrs = "1.0.0.1", .ttl = 60}};
	struct fixture *f = *state;
	unsigned i;

	peer_script(&f->first, rows, 1);
	for (i = 0; i < 3; i++)
		check_ask(f, "abcdefghijklmnop.wild.test", DNS_A, "1.0.0.1");
	assert_int_equal(f->first.n_tcp, 3);
	check_ask(f, "abcdefghijklmnop.wild.test", DNS_A, "1.0.0.1");
	assert_int_equal(f->first.n_tcp, 3 + 0);
	assert_int_equal(f->second.n_questions, 0);
}

static void test_resolver_without_edns_is_asked_without(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .act = PEER_FORMERR_EDNS, .addrs = "1.0.0.1", .ttl = 60}};
	struct fixture *f = *state;
	unsigned i;

	peer_script(&f->first, rows, 1);
	for (i = 0; i < 6; i++)
		check_ask(f, "read.test", DNS_A, "1.0.0.1");
	assert_int_equal(f->second.n_questions, 0);
}

static void test_truncated_answers_are_fetched_by_tcp(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .act = PEER_TRUNCATED, .addrs = "1.0.0.1", .ttl = 60}};
	struct fixture *f = *state;

	peer_script(&f->first, rows, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.1");
	assert_int_equal(f->first.n_tcp, 1);
	assert_int_equal(f->answer.flags & DNS_TC, 0);
}

static void test_replies_are_fitted_to_the_client(void **state)
{
	struct strbuf addrs;
	struct peer_row row = {.name = "*", .act = PEER_ANSWER, .ttl = 60};
	struct fixture *f = *state;
	unsigned i;

	strbuf_init(&addrs, 4096);
	for (i = 0; i < 60; i++)
		strbuf_printf(&addrs, "%s1.0.1.%u", i ? " " : "", i);
	row.addrs = strbuf_cstr(&addrs);
	peer_script(&f->first, &row, 1);
	f->config.guard = NULL;
	dns_gate_configure(f->gate, &f->config);
	ask(f, "read.test", DNS_A);
	assert_true(reply_within(f, GUARD_MS));
	assert_int_equal(f->answer.flags & DNS_TC, DNS_TC);
	assert_true(f->reply_len <= 512);
	assert_int_equal(n_of_type(f, DNS_ANSWER, DNS_A), (512 - 27) / 16);
	ask_edns(f, "read.test", DNS_A, 1232);
	assert_true(reply_within(f, GUARD_MS));
	assert_int_equal(f->answer.flags & DNS_TC, 0);
	assert_int_equal(n_of_type(f, DNS_ANSWER, DNS_A), 60);
	assert_true(f->answer.edns);
	ask_edns(f, "read.test", DNS_A, 513);
	assert_true(reply_within(f, GUARD_MS));
	assert_true(f->reply_len <= 513);
	assert_int_equal(f->answer.flags & DNS_TC, DNS_TC);
	strbuf_fini(&addrs);
}

static void test_policy_that_changes_meanwhile_counts(void **state)
{
	struct fixture *f = *state;
	struct peer_row row = {.name = "*",
		.act = PEER_ANSWER,
		.addrs = "1.0.0.1",
		.ttl = 9,
		.delay_ms = PEER_HELD};
	struct policy *before = f->config.policy;

	peer_script(&f->first, &row, 1);
	ask(f, "read.test", DNS_A);
	while (f->first.n_questions == 0)
		event_base_loop(f->base, EVLOOP_NONBLOCK);
	f->config.policy = fixture_policy(false, "allow *.wild.test");
	dns_gate_configure(f->gate, &f->config);
	policy_unref(before);
	peer_release(&f->first);
	assert_true(reply_within(f, GUARD_MS));
	check_reply(f, "rcode 3");
	assert_int_equal(guard.n, 0);
}

static void test_change_of_policy_keeps_what_both_allow(void **state)
{
	struct fixture *f = *state;
	struct ruleset_options o = {.enforce = 1};
	struct policy *next = fixture_policy(false, "allow *.wild.test; deny 1.0.0.2");
	struct ruleset r;

	peer_script(&f->first, anything, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	check_ask(f, "a.wild.test", DNS_A, "1.0.0.1 1.0.0.2");
	/* Asked but not acknowledged when the change begins. */
	ask(f, "b.wild.test", DNS_A);
	run_until_calls(f, 3);
	ruleset_init(&r, &o);
	assert_int_equal(dns_gate_collect(f->gate, next, &r), 0);
	assert_int_equal(r.n, 2);
	assert_int_equal(r.entry[0].kind, RULESET_LEASE);
	assert_int_equal(r.entry[0].seconds, 90);
	ruleset_fini(&r);
	/* Until the change is over, nothing is granted that it takes away. */
	check_ask(f, "read.test", DNS_A, "rcode 3");
	dns_gate_abandon(f->gate);
	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	ruleset_init(&r, &o);
	assert_int_equal(dns_gate_collect(f->gate, next, &r), 0);
	policy_unref(f->config.policy);
	f->config.policy = next;
	dns_gate_configure(f->gate, &f->config);
	/* 1.0.0.1 of a.wild.test; what was asked for b.wild.test is not allowed as a whole. */
	assert_int_equal(dns_gate_leases(f->gate), 1);
	ruleset_fini(&r);
}

static int tcp_client(struct fixture *f)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&f->to_tcp, sizeof(struct sockaddr_in)), 0);
	return fd;
}

static void tcp_send(int fd, const struct wire *w)
{
	uint8_t len[2] = {(uint8_t)(w->len >> 8), (uint8_t)w->len};

	assert_int_equal(send(fd, len, 2, 0), 2);
	assert_int_equal(send(fd, w->b, w->len, 0), (ssize_t)w->len);
}

/* Reads one reply; false at the end of the connection. */
static bool tcp_reply(struct fixture *f, int fd)
{
	uint64_t end = real_ms() + GUARD_MS;
	size_t want = 2;
	size_t got = 0;
	ssize_t n;

	while (got < want) {
		n = recv(fd, f->reply + got, want - got, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return false;
		if (n > 0)
			got += (size_t)n;
		if (got == 2 && want == 2)
			want = 2 + ((size_t)f->reply[0] << 8 | f->reply[1]);
		assert_true(real_ms() < end);
		guard_ack(0);
		event_base_loop(f->base, EVLOOP_NONBLOCK);
	}
	f->reply_len = got - 2;
	assert_int_equal(
		dns_answer_decode(slice_make((char *)f->reply + 2, f->reply_len), &f->answer), 0);
	return true;
}

static void test_tcp_carries_many_questions_up_to_the_limit(void **state)
{
	struct fixture *f = *state;
	struct wire w;
	int fd = tcp_client(f);
	unsigned i;

	peer_script(&f->first, anything, 1);
	wire_init(&w, 0x1234, DNS_RD);
	wire_question(&w, "read.test", DNS_A);
	for (i = 0; i < 128; i++)
		tcp_send(fd, &w);
	for (i = 0; i < 128; i++) {
		assert_true(tcp_reply(f, fd));
		check_reply(f, "1.0.0.1 1.0.0.2");
	}
	assert_false(tcp_reply(f, fd));
	close(fd);
}

static void test_tcp_answers_are_whole(void **state)
{
	struct strbuf addrs;
	struct peer_row row = {.name = "*", .act = PEER_ANSWER, .ttl = 60};
	struct fixture *f = *state;
	struct wire w;
	int fd = tcp_client(f);
	unsigned i;

	strbuf_init(&addrs, 4096);
	for (i = 0; i < 60; i++)
		strbuf_printf(&addrs, "%s1.0.1.%u", i ? " " : "", i);
	row.addrs = strbuf_cstr(&addrs);
	peer_script(&f->first, &row, 1);
	wire_init(&w, 0x1234, DNS_RD);
	wire_question(&w, "read.test", DNS_A);
	tcp_send(fd, &w);
	assert_true(tcp_reply(f, fd));
	assert_int_equal(n_of_type(f, DNS_ANSWER, DNS_A), 60);
	assert_int_equal(f->answer.flags & DNS_TC, 0);
	close(fd);
	strbuf_fini(&addrs);
}

static void test_tcp_length_that_lies_ends_the_connection(void **state)
{
	struct fixture *f = *state;
	uint64_t begin = real_ms();
	int fd = tcp_client(f);

	assert_int_equal(send(fd,
				 "\xff\xff"
				 "abc",
				 5, 0),
		5);
	assert_false(tcp_reply(f, fd));
	assert_true(real_ms() - begin < 1000); /* not by the idle limit */
	close(fd);
}

static void test_client_that_leaves_takes_its_questions_along(void **state)
{
	struct peer_row row = {.name = "*",
		.act = PEER_ANSWER,
		.addrs = "1.0.0.1",
		.ttl = 9,
		.delay_ms = PEER_HELD};
	struct fixture *f = *state;
	struct linger hard = {1, 0};
	struct wire w;
	int fd = tcp_client(f);
	unsigned i;

	peer_script(&f->first, &row, 1);
	wire_init(&w, 0x1234, DNS_RD);
	wire_question(&w, "read.test", DNS_A);
	tcp_send(fd, &w);
	while (f->first.n_questions == 0)
		event_base_loop(f->base, EVLOOP_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(fd);
	for (i = 0; i < 50; i++) {
		event_base_loop(f->base, EVLOOP_NONBLOCK);
		usleep(200);
	}
	peer_release(&f->first);
	for (i = 0; i < 50; i++) {
		event_base_loop(f->base, EVLOOP_NONBLOCK);
		usleep(200);
	}
	assert_int_equal(guard.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_denied_names_get_nxdomain_and_reach_no_resolver),
		T(test_odd_names_are_denied_whatever_the_default),
		T(test_names_of_other_resolvers_are_denied_even_if_a_rule_allows_them),
		T(test_reply_waits_for_the_kernel),
		T(test_lease_the_kernel_refuses_is_servfail),
		T(test_addresses_nobody_may_have_are_left_out),
		T(test_neighbours_need_a_rule_under_the_read_only_rule),
		T(test_alias_to_a_denied_name_is_denied),
		T(test_rules_with_ports_grant_those_ports),
		T(test_types_beyond_the_usual_need_an_exact_rule),
		T(test_mode_dns_programs_nothing),
		T(test_malformed_questions),
		T(test_resolvers_that_lie_or_die_give_way),
		T(test_nxdomain_and_no_data_are_final),
		T(test_resolver_without_letter_case_is_asked_by_tcp_then_without),
		T(test_resolver_without_edns_is_asked_without),
		T(test_truncated_answers_are_fetched_by_tcp),
		T(test_replies_are_fitted_to_the_client),
		T(test_policy_that_changes_meanwhile_counts),
		T(test_change_of_policy_keeps_what_both_allow),
		T(test_tcp_carries_many_questions_up_to_the_limit),
		T(test_tcp_answers_are_whole),
		T(test_tcp_length_that_lies_ends_the_connection),
		T(test_client_that_leaves_takes_its_questions_along),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
