/* What is printed (control/settings_print, settings_table): it can be read back, it is complete,
 * and the documentation's table is the program's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/control/load.h"

/* What --check prints is a configuration that means the same. */
static void test_printed_settings_can_be_read_back(void **state)
{
	static const char yaml[] = "mode: proxy\n"
				   "policy:\n"
				   "  defaultAction: allow\n"
				   "  egress:\n"
				   "    - {action: allow, target: '*.a.test', ports: [443, 8443]}\n"
				   "    - {action: deny, target: 10.0.0.0/8}\n"
				   "max_rules: 7\n"
				   "api_addr: ':18080'\n"
				   "deny_webhook: https://h.test/x\n"
				   "write_hosts: [a.test, '*.b.test', .c.test]\n"
				   "pass_through: [a.test]\n"
				   "private_names: [corp]\n"
				   "proxy_addr: '[::1]:9'\n"
				   "extra_ports: [8080, 8443]\n"
				   "ca_cert_out: '/a \"b\"/c'\n"
				   "ca_key: /k\n"
				   "intercept: off\n"
				   "dns_upstream: [192.0.2.1, '[2001:db8::1]:54']\n"
				   "dns_timeout: 1500ms\n"
				   "audit: [stdout, /a/b]\n"
				   "audit_max_bytes: 1MiB\n"
				   "sandbox_id: 007\n"
				   "vault: /v.yaml\n"
				   "unbound_writes: allow\n"
				   "placeholders: strip\n"
				   "http_bindings: on\n"
				   "body_surface: on\n"
				   "require_scoped_match: on\n"
				   "require_locked_memory: on\n"
				   "packet_sockets: allow\n"
				   "vault_require_tls: on\n"
				   "trusted_proxies: [10.0.0.0/8, '2001:db8::1', wrong]\n"
				   "log_level: error\n"
				   "head_timeout: 2h\n"
				   "max_connections: 5\n";
	struct load l = {.yaml = yaml};
	struct strbuf first;
	struct strbuf second;
	struct outcome o;

	strbuf_init(&first, 1u << 20);
	strbuf_init(&second, 1u << 20);
	load_env(&l, true, false, &o);
	if (o.ret < 0)
		fail_msg("%s", o.msg.text);
	settings_print(o.s, &first);
	settings_free(o.s);
	l.yaml = strbuf_cstr(&first);
	load_env(&l, true, false, &o);
	if (o.ret < 0)
		fail_msg("%s\n%s", o.msg.text, l.yaml);
	settings_print(o.s, &second);
	settings_free(o.s);
	assert_string_equal(strbuf_cstr(&first), strbuf_cstr(&second));
	assert_non_null(strstr(l.yaml, "sandbox_id: \"007\"\n"));
	assert_non_null(strstr(l.yaml, "proxy_addr: \"[::1]:9\"\n"));
	assert_non_null(strstr(l.yaml, "intercept: \"off\"\n"));
	assert_non_null(strstr(l.yaml, "dns_timeout: 1500ms\n"));
	assert_non_null(strstr(l.yaml, "vault: \"/v.yaml\"\nunbound_writes: \"allow\"\n"));
	assert_non_null(strstr(l.yaml, "placeholders: \"strip\"\nhttp_bindings: true\n"));
	assert_non_null(strstr(l.yaml,
		"require_locked_memory: true\npacket_sockets: \"allow\"\n"
		"vault_require_tls: true\n"
		"trusted_proxies: [\"10.0.0.0/8\", \"2001:db8::1/128\"]\n"));
	assert_non_null(strstr(l.yaml, "head_timeout: 2h\n"));
	assert_non_null(strstr(l.yaml, "api_addr: \":18080\"\n"));
	assert_non_null(strstr(l.yaml, "deny_webhook: \"https://h.test/x\"\n"));
	strbuf_fini(&first);
	strbuf_fini(&second);
}

static void test_every_setting_with_a_key_is_printed(void **state)
{
	struct load l = {.env = {"EGRESS_CA_KEY=/k", "OPENSANDBOX_EGRESS_SANDBOX_ID=s",
				 "EGRESS_VAULT_FILE=/v", "OPENSANDBOX_EGRESS_HTTP_ADDR=:1",
				 "OPENSANDBOX_EGRESS_DENY_WEBHOOK=http://h.test/",
				 "EGRESS_POLICY_CEILING_FILE=/c", "OPENSANDBOX_URL=https://o.test",
				 "OPENSANDBOX_API_KEY_FILE=/key", "OPENSANDBOX_CA_FILE=/roots"},
		.ceiling = "{\"defaultAction\":\"allow\"}"};
	struct settings *s = must_load(&l);
	struct strbuf text;
	char line[64];
	int id;

	strbuf_init(&text, 1u << 20);
	strbuf_char(&text, '\n');
	settings_print(s, &text);
	for (id = 0; id < SETTING_MAX; id++) {
		const char *key = setting_row((enum setting_id)id)->key;

		if (!key)
			continue;
		(void)snprintf(line, sizeof(line), "\n%s:", key);
		if (!strstr(strbuf_cstr(&text), line))
			fail_msg("%s is not printed", key);
	}
	strbuf_fini(&text);
	settings_free(s);
}

static void test_documentation_has_the_programs_table(void **state)
{
	struct strbuf doc;
	struct strbuf table;

	strbuf_init(&doc, 1u << 20);
	strbuf_init(&table, 1u << 20);
	assert_int_equal(strbuf_read_file(&doc, DOCS_DIR "/configuration.md"), 0);
	settings_print_table(&table);
	if (!strstr(strbuf_cstr(&doc), strbuf_cstr(&table)))
		fail_msg("docs/configuration.md must contain:\n%s", strbuf_cstr(&table));
	strbuf_fini(&doc);
	strbuf_fini(&table);
}

static void test_example_files_are_right_configurations(void **state)
{
	static const struct {
		const char *path;
		enum egress_mode mode;
	} rows[] = {{DOCS_DIR "/examples/egress.yaml", MODE_PROXY},
		{DOCS_DIR "/examples/sidecar.yaml", MODE_DNS_NFT}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {
			.env = {RESOLVERS, CERT, "OPENSANDBOX_EGRESS_TOKEN=0123456789abcdef"}};
		struct strbuf text;
		struct outcome o;

		if (rows[i].mode == MODE_PROXY)
			l.env[2] = NULL;
		strbuf_init(&text, 1u << 20);
		assert_int_equal(strbuf_read_file(&text, rows[i].path), 0);
		l.yaml = strbuf_cstr(&text);
		load_env(&l, true, false, &o);
		if (o.ret < 0)
			fail_msg("%s", o.msg.text);
		assert_string_equal(o.log, "");
		assert_int_equal(o.s->mode, rows[i].mode);
		assert_true(o.s->read_only && o.s->proxy);
		/* Else they start only where somebody has made its directory. */
		assert_null(o.s->audit_file);
		assert_int_equal(o.s->enforce, rows[i].mode == MODE_DNS_NFT);
		settings_free(o.s);
		strbuf_fini(&text);
	}
}

static void test_help_names_every_setting(void **state)
{
	struct strbuf text;
	int id;

	strbuf_init(&text, 1u << 20);
	settings_print_help(&text);
	for (id = 0; id < SETTING_MAX; id++)
		assert_non_null(strstr(strbuf_cstr(&text), setting_row((enum setting_id)id)->env));
	assert_null(strchr(strbuf_cstr(&text), '`'));
	strbuf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_printed_settings_can_be_read_back),
		cmocka_unit_test(test_every_setting_with_a_key_is_printed),
		cmocka_unit_test(test_documentation_has_the_programs_table),
		cmocka_unit_test(test_example_files_are_right_configurations),
		cmocka_unit_test(test_help_names_every_setting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
