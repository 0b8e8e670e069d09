/* Settings of the modes dns and dns+nft (control/settings_gate.c), and those of a start that cannot
 * succeed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/control/load.h"

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
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *env[] = {rows[i].env, NULL};
		struct settings_source src = {.config_path = "egress.yaml",
			.config_fd = rows[i].yaml ? text_fd(rows[i].yaml) : -1,
			.policy_fd = -1,
			.resolv_conf_fd = -1,
			.deny_fd = -1,
			.allow_fd = -1,
			.log_skip_fd = -1,
			.environ = (char *const *)(const void *)env};

		if (settings_mode_is_proxy(&src) != rows[i].proxy)
			fail_msg("row %zu", i);
		if (src.config_fd >= 0)
			(void)close(src.config_fd);
	}
}

static void test_closed_settings_allow_nothing(void **state)
{
	static const char *const env[] = {"OPENSANDBOX_EGRESS_HTTP_ADDR=127.0.0.1:9",
		"OPENSANDBOX_EGRESS_RULES=" ALLOW_ALL, "EGRESS_READ_ONLY=maybe", NULL};
	static const char *const bad[] = {"OPENSANDBOX_EGRESS_HTTP_ADDR=x", NULL};
	struct settings_source src = {.config_fd = -1,
		.policy_fd = -1,
		.resolv_conf_fd = -1,
		.deny_fd = -1,
		.allow_fd = -1,
		.log_skip_fd = -1,
		.environ = (char *const *)(const void *)env};
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
		cmocka_unit_test(test_closed_settings_allow_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
