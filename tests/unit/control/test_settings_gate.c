/* Settings of the modes dns and dns+nft (control/settings_gate.c), and those of a start that cannot
 * succeed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/control/load.h"

/* A file, NULL for none, and an environment; nothing else. */
static struct settings_source source_of(const char *yaml, const char *const *env)
{
	return (struct settings_source){.config_path = "egress.yaml",
		.config_fd = yaml ? text_fd(yaml) : -1,
		.policy_fd = -1,
		.resolv_conf_fd = -1,
		.deny_fd = -1,
		.allow_fd = -1,
		.log_skip_fd = -1,
		.ceiling_fd = -1,
		.environ = (char *const *)(const void *)env};
}

/* With the variables of mode dns alone: see load_env's `bare`. */
static struct settings *load_gate(const char *a, const char *b, struct outcome *o)
{
	struct load l = {.env = {RESOLVERS, a, b}};

	load_env(&l, true, false, o);
	if (o->ret < 0)
		fail_msg("%s %s: %s", a, b ? b : "", o->msg.text);
	return o->s;
}

/* What follows from the mode, the read-only rule and interception, design 2 and 4. */
static void test_modes_and_what_they_bring(void **state)
{
	static const struct {
		const char *a, *b;
		enum egress_mode mode;
		bool enforce, proxy;
		enum intercept intercept;
	} rows[] = {
		{"A=b", NULL, MODE_DNS, false, false, INTERCEPT_OFF},
		{"OPENSANDBOX_EGRESS_MODE=NFT+dns", NULL, MODE_DNS_NFT, true, false, INTERCEPT_OFF},
		{"OPENSANDBOX_EGRESS_MODE=dns+nft", "EGRESS_INTERCEPT=bound", MODE_DNS_NFT, true,
			false, INTERCEPT_OFF},
		{"AGENTIC_WRITE_HOSTS=", NULL, MODE_DNS, true, true, INTERCEPT_OFF},
		{"EGRESS_PROXY_ADDR=127.0.0.1:9", NULL, MODE_DNS, false, true, INTERCEPT_OFF},
		{"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true", NULL, MODE_DNS, false, true,
			INTERCEPT_ALL},
		{"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true", "EGRESS_INTERCEPT=bound",
			MODE_DNS, false, true, INTERCEPT_BOUND},
	};
	struct outcome o;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct settings *s = load_gate(rows[i].a, rows[i].b, &o);

		if (s->mode != rows[i].mode || s->enforce != rows[i].enforce ||
			s->proxy != rows[i].proxy || s->intercept != rows[i].intercept)
			fail_msg("%s %s", rows[i].a, rows[i].b ? rows[i].b : "");
		assert_true(s->api && s->api_any && s->inbound_all);
		assert_string_equal(s->ca_cert_out, "/opt/opensandbox/mitmproxy-ca-cert.pem");
		assert_false(s->ca_cert_default);
		settings_free(s);
	}
	(void)load_gate("OPENSANDBOX_EGRESS_MODE=dns+nft", "EGRESS_INTERCEPT=bound", &o);
	assert_non_null(strstr(o.log, "EGRESS_INTERCEPT: no effect: nothing is decrypted"));
	settings_free(o.s);
}

static void test_a_kept_ca_is_for_mode_proxy_only(void **state)
{
	struct load l = {.env = {RESOLVERS, "EGRESS_CA_KEY=/k"}};
	struct outcome o;

	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, E_VALUE);
	assert_non_null(strstr(o.msg.text, "EGRESS_CA_KEY: expected in mode proxy only"));
}

static void test_values_of_the_gate(void **state)
{
	struct outcome o;
	struct settings *s;
	char ports[512] = "EGRESS_INBOUND_PORTS=";
	struct load l = {.env = {RESOLVERS, ports}};
	size_t n = strlen(ports);

	s = load_gate("EGRESS_INBOUND_PORTS=", NULL, &o);
	assert_false(s->inbound_all);
	assert_int_equal(s->n_inbound_ports, 0);
	settings_free(s);
	s = load_gate("EGRESS_INBOUND_PORTS=80 8080", "EGRESS_DNS_TYPES=txt, TYPE65,naptr", &o);
	assert_false(s->inbound_all);
	assert_int_equal(s->n_inbound_ports, 2);
	assert_int_equal(s->inbound_ports[1], 8080);
	assert_int_equal(s->n_dns_types, 3);
	assert_int_equal(s->dns_types[0], 16);
	assert_int_equal(s->dns_types[1], 65);
	assert_int_equal(s->dns_types[2], 35);
	settings_free(s);
	for (unsigned i = 0; i < SETTINGS_INBOUND_MAX; i++)
		n += (size_t)snprintf(ports + n, sizeof(ports) - n, "%u ", i + 1);
	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, 0);
	assert_int_equal(o.s->n_inbound_ports, SETTINGS_INBOUND_MAX);
	settings_free(o.s);
	(void)snprintf(ports + n, sizeof(ports) - n, "99");
	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, E_LIMIT);
	/* bad entries are left out, and said */
	s = load_gate("OPENSANDBOX_EGRESS_DOH_BLOCKLIST=1.1.1.1, x,2001:db8::/32",
		"OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT=9.9.9.9,10.0.0.0/8", &o);
	assert_int_equal(s->n_doh, 2);
	assert_int_equal(s->doh[0].len, 128);
	assert_int_equal(s->doh[1].len, 32);
	assert_int_equal(s->n_exempt, 1);
	assert_non_null(strstr(o.log, "doh_blocklist: \"x\" is left out"));
	assert_non_null(strstr(o.log, "nameserver_exempt: \"10.0.0.0/8\" is left out"));
	settings_free(s);
}

static void test_probes_of_resolvers(void **state)
{
	static const struct {
		const char *interval;
		uint32_t s;
		const char *log;
	} rows[] = {
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=1", 1, NULL},
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=3600", 3600, NULL},
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=3601", 3600, "3600 s is used"},
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=0", 30, "30 s is used"},
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=x", 30, "30 s is used"},
	};
	struct outcome o;
	struct settings *s;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		s = load_gate(rows[i].interval, NULL, &o);
		assert_int_equal(s->dns_probe_interval_s, rows[i].s);
		assert_string_equal(s->dns_probe, "");
		if (rows[i].log)
			assert_non_null(strstr(o.log, rows[i].log));
		settings_free(s);
	}
	s = load_gate("OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE=p.test", NULL, &o);
	assert_string_equal(s->dns_probe, "p.test");
	settings_free(s);
}

static void test_the_mode_is_known_whatever_else_is_wrong(void **state)
{
	static const struct {
		const char *yaml, *env;
		bool proxy;
	} rows[] = {
		{NULL, "A=b", false},
		{NULL, PROXY, true},
		{NULL, "OPENSANDBOX_EGRESS_MODE=prox", false},
		{"mode: proxy\nnonsense: 1\n", "A=b", true},
		{"mode: proxy\n", "OPENSANDBOX_EGRESS_MODE=dns", false},
		{"mode: [\n", "A=b", false},
		{"mode: [\n", PROXY, true},
		{"mode: dns+nft\nread_only: maybe\n", "A=b", false},
		{"nonsense: 1\nread_only: {}\nmode: proxy\n", "A=b", true},
		{"mode: {}\n", "A=b", false},
		{"mode: [proxy]\n", "A=b", false},
		{"mode:\n", "A=b", false},
		{"mode: {}\n", PROXY, true},
		{"mode: proxy\n", "OPENSANDBOX_EGRESS_MODE=", true},
		{"mode: proxy\n", "OPENSANDBOX_EGRESS_MODE=proxi", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *env[] = {rows[i].env, NULL};
		struct settings_source src = source_of(rows[i].yaml, env);

		if (settings_mode_is_proxy(&src) != rows[i].proxy)
			fail_msg("row %zu", i);
		if (src.config_fd >= 0)
			(void)close(src.config_fd);
	}
}

/* Where file and variables put closed settings, whatever else is wrong. */
static void test_closed_settings_take_what_can_be_read(void **state)
{
	static const struct {
		const char *yaml, *env;
		uint16_t port;
		enum log_level level;
	} rows[] = {
		{"api_addr: ':9'\nlog_level: error\n", "A=b", 9, LOG_LEVEL_ERROR},
		{"nonsense: 1\napi_addr: ':9'\n", "A=b", 9, LOG_LEVEL_INFO},
		{"api_addr: ':9'\n", "OPENSANDBOX_EGRESS_HTTP_ADDR=:10", 10, LOG_LEVEL_INFO},
		{"api_addr: {}\nlog_level: []\n", "A=b", 18080, LOG_LEVEL_INFO},
		{"api_addr: 'x'\n", "OPENSANDBOX_EGRESS_LOG_LEVEL=debug", 18080, LOG_LEVEL_DEBUG},
		{"api_addr: [\n", "OPENSANDBOX_EGRESS_LOG_LEVEL=loud", 18080, LOG_LEVEL_INFO},
		{"mode: proxy\n", "EGRESS_PROXY_ADDR=127.0.0.1:9", 18080, LOG_LEVEL_INFO},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *env[] = {rows[i].env, NULL};
		struct settings_source src = source_of(rows[i].yaml, env);
		struct settings *s = settings_closed(&src);

		if (!s->api || s->api_port != rows[i].port || s->log_level != rows[i].level ||
			s->mode != MODE_DNS_NFT || s->proxy || s->vault_file || s->audit_file ||
			s->token)
			fail_msg("row %zu", i);
		assert_string_equal(s->dns_probe, "");
		settings_free(s);
		(void)close(src.config_fd);
	}
}

/* What --check prints means the same when it is read: no more listens, no less is enforced. */
static void test_printed_settings_bring_the_same(void **state)
{
	static const char *const rows[] = {
		"mode: dns\n",
		"mode: dns+nft\n",
		"mode: dns\nread_only: on\n",
		"mode: dns\ntransparent: on\nintercept: bound\n",
		"mode: dns\nproxy_addr: 127.0.0.1:9\n",
		"mode: dns+nft\ninbound_ports: []\n",
		"mode: dns+nft\ninbound_ports: [80, 443]\nblock_doh: on\n"
		"doh_blocklist: [9.9.9.9, 10.0.0.0/8, '2001:db8::/33']\n"
		"nameserver_exempt: ['2001:db8::1', 10.1.1.1]\n",
		"mode: dns\ndns_types: [TXT, SVCB, TYPE700]\ndns_probe: p.test\n"
		"dns_probe_interval: 7\nrequire_pass: on\nrequire_raw_guard: on\n"
		"allow_local_resolver: on\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.env = {RESOLVERS}, .yaml = rows[i]};
		struct strbuf text;
		struct outcome a;
		struct outcome b;

		strbuf_init(&text, 1u << 20);
		load_env(&l, true, false, &a);
		if (a.ret < 0)
			fail_msg("%s", a.msg.text);
		settings_print(a.s, &text);
		l.yaml = strbuf_cstr(&text);
		load_env(&l, true, false, &b);
		if (b.ret < 0)
			fail_msg("%s\n%s", b.msg.text, l.yaml);
		if (a.s->mode != b.s->mode || a.s->enforce != b.s->enforce ||
			a.s->proxy != b.s->proxy || a.s->transparent != b.s->transparent ||
			a.s->intercept != b.s->intercept || a.s->inbound_all != b.s->inbound_all ||
			a.s->n_inbound_ports != b.s->n_inbound_ports ||
			a.s->block_doh != b.s->block_doh || a.s->n_doh != b.s->n_doh ||
			a.s->n_exempt != b.s->n_exempt || a.s->n_dns_types != b.s->n_dns_types ||
			a.s->dns_probe_interval_s != b.s->dns_probe_interval_s ||
			a.s->require_pass != b.s->require_pass ||
			a.s->require_raw_guard != b.s->require_raw_guard ||
			a.s->allow_local_resolver != b.s->allow_local_resolver)
			fail_msg("%s->\n%s", rows[i], l.yaml);
		assert_memory_equal(
			a.s->inbound_ports, b.s->inbound_ports, sizeof(a.s->inbound_ports));
		assert_memory_equal(a.s->dns_types, b.s->dns_types, sizeof(a.s->dns_types));
		assert_string_equal(a.s->dns_probe, b.s->dns_probe);
		for (size_t k = 0; k < a.s->n_doh; k++) {
			assert_true(netaddr_eq(&a.s->doh[k].addr, &b.s->doh[k].addr));
			assert_int_equal(a.s->doh[k].len, b.s->doh[k].len);
		}
		for (size_t k = 0; k < a.s->n_exempt; k++)
			assert_true(netaddr_eq(&a.s->exempt[k], &b.s->exempt[k]));
		settings_free(a.s);
		settings_free(b.s);
		strbuf_fini(&text);
	}
}

static void test_names_of_types(void **state)
{
	static const struct {
		const char *text;
		uint16_t type;
	} rows[] = {{"A", 1}, {"AAAA", 28}, {"CAA", 257}, {"CERT", 37}, {"CNAME", 5}, {"DS", 43},
		{"HTTPS", 65}, {"MX", 15}, {"NAPTR", 35}, {"NS", 2}, {"PTR", 12}, {"SOA", 6},
		{"SRV", 33}, {"SSHFP", 44}, {"svcb", 64}, {"TLSA", 52}, {"TXT", 16}, {"URI", 256},
		{"type248", 248}, {"256", 256}, {"TYPE65535", 65535}};
	static const char *const bad[] = {"ANY", "AXFR", "OPT", "TYPE", "TYPE0", "TYPE249",
		"TYPE252", "TYPE255", "TYPE65536", "-1", "TXTX", "TYPE 65", "*", "0x10"};
	char env[512];
	struct outcome o;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)snprintf(env, sizeof(env), "EGRESS_DNS_TYPES=%s", rows[i].text);
		(void)load_gate(env, NULL, &o);
		if (o.s->n_dns_types != 1 || o.s->dns_types[0] != rows[i].type)
			fail_msg("%s", rows[i].text);
		settings_free(o.s);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct load l = {.env = {RESOLVERS, env}};

		(void)snprintf(env, sizeof(env), "EGRESS_DNS_TYPES=TXT,%s", bad[i]);
		load_env(&l, true, false, &o);
		if (o.ret != E_VALUE || !strstr(o.msg.text, "expected a type of records"))
			fail_msg("%s", bad[i]);
	}
}

static void test_too_many_types_are_refused(void **state)
{
	char env[512] = "EGRESS_DNS_TYPES=16,16";
	struct load l = {.env = {RESOLVERS, env}};
	size_t n = strlen(env);
	struct outcome o;

	for (unsigned i = 1; i < JUDGE_TYPES_MAX; i++)
		n += (size_t)snprintf(env + n, sizeof(env) - n, " %u", i + 300);
	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, 0);
	assert_int_equal(o.s->n_dns_types, JUDGE_TYPES_MAX);
	settings_free(o.s);
	(void)snprintf(env + n, sizeof(env) - n, " 299");
	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, E_LIMIT);
}

/* What was asked for and does nothing is said, once, and only then. */
static void test_what_has_no_effect_is_said(void **state)
{
	static const struct {
		const char *a, *b;
		const char *log; /* NULL: nothing is said about a */
	} rows[] = {
		{"OPENSANDBOX_EGRESS_DOH_BLOCKLIST=1.1.1.1", "OPENSANDBOX_EGRESS_MODE=dns+nft",
			"OPENSANDBOX_EGRESS_DOH_BLOCKLIST: no effect: block_doh is off"},
		{"OPENSANDBOX_EGRESS_BLOCK_DOH_443=1", "OPENSANDBOX_EGRESS_MODE=dns+nft", NULL},
		{"OPENSANDBOX_EGRESS_BLOCK_DOH_443=1", "OPENSANDBOX_EGRESS_MODE=dns",
			"OPENSANDBOX_EGRESS_BLOCK_DOH_443: no effect: in mode dns the kernel"},
		{"OPENSANDBOX_EGRESS_BLOCK_DOH_443=1", "EGRESS_READ_ONLY=1", NULL},
		{"OPENSANDBOX_EGRESS_BLOCK_DOH_443=0", "OPENSANDBOX_EGRESS_MODE=dns", NULL},
		{"EGRESS_INBOUND_PORTS=80", "OPENSANDBOX_EGRESS_MODE=dns",
			"EGRESS_INBOUND_PORTS: no effect: in mode dns the kernel"},
		{"EGRESS_INBOUND_PORTS=80", "OPENSANDBOX_EGRESS_MODE=dns+nft", NULL},
		{"EGRESS_INBOUND_PORTS=all", "OPENSANDBOX_EGRESS_MODE=dns", NULL},
		{"EGRESS_REQUIRE_RAW_GUARD=1", "OPENSANDBOX_EGRESS_MODE=dns+nft", NULL},
		{"EGRESS_REQUIRE_RAW_GUARD=1", "OPENSANDBOX_EGRESS_MODE=dns",
			"EGRESS_REQUIRE_RAW_GUARD: no effect: in mode dns the kernel"},
		{"EGRESS_REQUIRE_PASS=1", "OPENSANDBOX_EGRESS_MODE=dns",
			"EGRESS_REQUIRE_PASS: no effect: in mode dns the kernel"},
		{"EGRESS_REQUIRE_PASS=1", "EGRESS_READ_ONLY=1", NULL},
		{"EGRESS_VAULT_FILE=/v", "OPENSANDBOX_EGRESS_MODE=dns+nft",
			"EGRESS_VAULT_FILE: no effect: no traffic comes to the proxy"},
		{"EGRESS_VAULT_FILE=/v", "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=1", NULL},
		{"OPENSANDBOX_EGRESS_REDIRECT_BACKEND=iptables", NULL,
			"REDIRECT_BACKEND: no effect: redirects are always made with nftables"},
		{"OPENSANDBOX_EGRESS_MITMPROXY_PASSTHROUGH_HOSTS=a.test", NULL,
			"PASSTHROUGH_HOSTS: no effect: EGRESS_PASS_THROUGH names"},
		{"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS=1", NULL, NULL},
		{"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS=10.0.0.0/8", NULL, NULL},
	};
	struct outcome o;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)load_gate(rows[i].a, rows[i].b, &o);
		if (rows[i].log ? !strstr(o.log, rows[i].log) : !!strstr(o.log, "no effect"))
			fail_msg("%s: %s", rows[i].a, o.log);
		settings_free(o.s);
	}
}

/* Reference 1.1: bad entries are left out, addresses of both spellings are the same. */
static void test_trusted_proxies(void **state)
{
	struct netaddr inside, outside;
	struct outcome o;
	struct settings *s = load_gate(
		"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS=10.1.0.0/16, nope,::1",
		NULL, &o);

	assert_true(netaddr_parse(SLICE("::ffff:10.1.2.3"), &inside));
	assert_true(netaddr_parse(SLICE("10.2.0.0"), &outside));
	assert_int_equal(s->n_trusted_proxies, 2);
	assert_true(netcidr_contains(&s->trusted_proxies[0], &inside));
	assert_false(netcidr_contains(&s->trusted_proxies[0], &outside));
	assert_false(netcidr_contains(&s->trusted_proxies[1], &outside));
	assert_non_null(strstr(o.log, "trusted_proxies: \"nope\" is left out"));
	settings_free(s);
}

/* A blocklist of wrong entries alone leaves none: every address is then refused, not no address. */
static void test_blocklist_of_wrong_entries_blocks_all(void **state)
{
	struct outcome o;

	(void)load_gate("OPENSANDBOX_EGRESS_DOH_BLOCKLIST=dns.test",
		"OPENSANDBOX_EGRESS_BLOCK_DOH_443=1", &o);
	assert_true(o.s->block_doh);
	assert_int_equal(o.s->n_doh, 0);
	settings_free(o.s);
}

static void test_entries_named_twice_count_once(void **state)
{
	struct outcome o;

	(void)load_gate("EGRESS_INBOUND_PORTS=80,443,80",
		"OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT=10.0.0.2, ::1,10.0.0.2,::ffff:10.0.0.2", &o);
	assert_int_equal(o.s->n_inbound_ports, 2);
	assert_int_equal(o.s->inbound_ports[1], 443);
	assert_int_equal(o.s->n_exempt, 2);
	settings_free(o.s);
}

static void test_closed_settings_allow_nothing(void **state)
{
	static const char *const env[] = {"OPENSANDBOX_EGRESS_HTTP_ADDR=127.0.0.1:9",
		"OPENSANDBOX_EGRESS_RULES=" ALLOW_ALL, "EGRESS_READ_ONLY=maybe", NULL};
	static const char *const bad[] = {"OPENSANDBOX_EGRESS_HTTP_ADDR=x", NULL};
	struct settings_source src = source_of(NULL, env);
	struct settings *s = settings_closed(&src);

	assert_false(policy_default_allow(s->policy));
	assert_int_equal(policy_n_rules(s->policy), 0);
	assert_true(s->enforce && s->read_only && s->mode == MODE_DNS_NFT);
	assert_false(s->proxy);
	assert_true(s->api && !s->api_any);
	assert_int_equal(s->api_port, 9);
	assert_int_equal(s->proxy_port, 18081);
	settings_free(s);
	src.environ = (char *const *)(const void *)bad;
	s = settings_closed(&src);
	assert_true(s->api && s->api_any);
	assert_int_equal(s->api_port, 18080);
	settings_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes_and_what_they_bring),
		cmocka_unit_test(test_a_kept_ca_is_for_mode_proxy_only),
		cmocka_unit_test(test_values_of_the_gate),
		cmocka_unit_test(test_probes_of_resolvers),
		cmocka_unit_test(test_the_mode_is_known_whatever_else_is_wrong),
		cmocka_unit_test(test_closed_settings_take_what_can_be_read),
		cmocka_unit_test(test_printed_settings_bring_the_same),
		cmocka_unit_test(test_names_of_types),
		cmocka_unit_test(test_too_many_types_are_refused),
		cmocka_unit_test(test_what_has_no_effect_is_said),
		cmocka_unit_test(test_trusted_proxies),
		cmocka_unit_test(test_blocklist_of_wrong_entries_blocks_all),
		cmocka_unit_test(test_entries_named_twice_count_once),
		cmocka_unit_test(test_closed_settings_allow_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
