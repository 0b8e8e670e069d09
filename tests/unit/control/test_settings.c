/* Settings (control/settings*): each row of "wrong settings" (design 2), precedence and defaults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/control/load.h"

/* A wrong environment: the message has this text. */
static const struct {
	const char *env;
	const char *want;
} wrong_variables[] = {
	/* unknown names */
	{"AGENTIC_WRITE_HOST=a.test",
		"AGENTIC_WRITE_HOST: unknown variable: expected "
		"AGENTIC_WRITE_HOSTS or unset"},
	{"AGENTIC_WRITE_HOSTSS=", "expected AGENTIC_WRITE_HOSTS"},
	{"AGENTIC_FOO=1", "AGENTIC_FOO: unknown variable"},
	{"EGRESS_TOKEN=x", "expected OPENSANDBOX_EGRESS_TOKEN or unset"},
	{"EGRESS_LOG_LEVL=info", "expected OPENSANDBOX_EGRESS_LOG_LEVEL or unset"},
	{"EGRESS_WRITE_HOSTS=a.test", "expected AGENTIC_WRITE_HOSTS or unset"},
	{"EGRESS_TRANSPARENT=1", "expected OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT or unset"},
	{"EGRESS_CEILING=/c", "expected EGRESS_POLICY_CEILING_FILE or unset"},
	{"OPENSANDBOX_EGRESS_READ_ONLY=1", "unknown variable: expected EGRESS_READ_ONLY or unset"},
	{"OPENSANDBOX_EGRESS_WRITE_HOSTS=a.test", "expected AGENTIC_WRITE_HOSTS or unset"},
	{"EGRESS_READONLY=1", "expected EGRESS_READ_ONLY"},
	{"EGRESS_READ_ONLY_GIT=1", "expected EGRESS_READ_ONLY"},
	{"EGRESS_PROXY_ADRESS=1.2.3.4:5", "expected EGRESS_PROXY_ADDR"},
	{"EGRESS_INBOUND_PORT=80", "EGRESS_INBOUND_PORT: unknown variable"},
	{"EGRESS_X_PORT_80=80", "EGRESS_X_PORT_80: unknown variable"},
	{"EGRESS_X_PORT_TCP=80", "EGRESS_X_PORT_TCP: unknown variable"},
	{"EGRESS_X_PORT_80_TCP_NAME=80", "unknown variable"},
	{"EGRESS_X_SERVICE_PORTS=80", "unknown variable"},
	{"EGRESS_=1", "EGRESS_: unknown variable"},
	/* write hosts */
	{"AGENTIC_WRITE_HOSTS=https://a.test", "AGENTIC_WRITE_HOSTS: "},
	{"AGENTIC_WRITE_HOSTS=a.test:443", "AGENTIC_WRITE_HOSTS: "},
	{"AGENTIC_WRITE_HOSTS=*", "AGENTIC_WRITE_HOSTS: "},
	{"AGENTIC_WRITE_HOSTS=ok.test,a b/c", "AGENTIC_WRITE_HOSTS: "},
	{"EGRESS_PASS_THROUGH=*", "EGRESS_PASS_THROUGH: "},
	/* mode */
	{"OPENSANDBOX_EGRESS_MODE=dnss", "expected proxy, dns or dns+nft"},
	{"OPENSANDBOX_EGRESS_MODE=nft", "expected proxy, dns or dns+nft"},
	{"OPENSANDBOX_EGRESS_MODE=proxy+dns", "expected proxy, dns or dns+nft"},
	/* refused: ignoring would weaken */
	{"OPENSANDBOX_EGRESS_MITMPROXY_SCRIPT=/x.py", "would weaken"},
	{"OPENSANDBOX_EGRESS_UPSTREAM_PROXY=http://p.test", "would weaken"},
	{"OPENSANDBOX_EGRESS_UPSTREAM_PROXY_AUTH=Basic x", "would weaken"},
	{"OPENSANDBOX_EGRESS_UPSTREAM_PROXY_X=1", "UPSTREAM_PROXY_X: not supported"},
	{"OPENSANDBOX_EGRESS_PROFILE=fast-sandbox", "would weaken"},
	{"EGRESS_POLICY_CEILING_FILE=", "empty: expected a value or unset"},
	{"EGRESS_POLICY_CEILING_FILE=/c", "/c: No such file"},
	/* the modes dns and dns+nft */
	{"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=maybe", "expected on or off"},
	{"EGRESS_INBOUND_PORTS=0", "\"0\": expected ports from 1 to 65535, or all"},
	{"EGRESS_INBOUND_PORTS=80,65536", "\"65536\": expected ports"},
	{"EGRESS_INBOUND_PORTS=80,all", "\"all\": expected ports"},
	{"EGRESS_REQUIRE_PASS=2", "EGRESS_REQUIRE_PASS: \"2\": expected on or off"},
	{"EGRESS_REQUIRE_PAS=1", "expected EGRESS_REQUIRE_PASS or unset"},
	{"EGRESS_REQUIRE_RAW_GUARD=2", "expected on or off"},
	{"EGRESS_ALLOW_LOCAL_RESOLVER=2", "expected on or off"},
	{"EGRESS_DNS_TYPES=ANY", "\"ANY\": expected a type of records"},
	{"EGRESS_DNS_TYPES=TXT,255", "\"255\": expected a type"},
	{"EGRESS_DNS_TYPES=TYPE41", "\"TYPE41\": expected a type"},
	{"EGRESS_DNS_TYPES=TYPE65536", "\"TYPE65536\": expected a type"},
	{"EGRESS_DNS_TYPES=TYPE0", "\"TYPE0\": expected a type"},
	/* OpenSandbox */
	{"OPENSANDBOX_URL=http://o.test", "only one of them is set: expected both or neither"},
	{"OPENSANDBOX_API_KEY_FILE=/k", "only one of them is set: expected both or neither"},
	{"OPENSANDBOX_URL=o.test", "expected a URL"},
	{"OPENSANDBOX_URL=/v1", "expected a URL"},
	{"OPENSANDBOX_URL=ftp://o.test", "expected a URL"},
	{"OPENSANDBOX_URL=http://u:p@o.test", "without user, password and query"},
	{"OPENSANDBOX_URL=http://o.test/?x", "without user, password and query"},
	{"OPENSANDBOX_API_KEY_FILE=/k/", "expected the path of a file"},
	/* the API */
	{"OPENSANDBOX_EGRESS_HTTP_ADDR=18080", "\"18080\": expected a place to listen"},
	{"OPENSANDBOX_EGRESS_HTTP_ADDR=:0", "expected a place to listen"},
	{"OPENSANDBOX_EGRESS_HTTP_ADDR=:65536", "expected a place to listen"},
	{"OPENSANDBOX_EGRESS_HTTP_ADDR=:http", "expected a place to listen"},
	{"OPENSANDBOX_EGRESS_HTTP_ADDR=::1:80", "expected a place to listen"},
	{"OPENSANDBOX_EGRESS_HTTP_ADDR=host.test:80", "expected a place to listen"},
	{"OPENSANDBOX_EGRESS_HTTP_ADDR=localhost", "expected a place to listen"},
	{"OPENSANDBOX_EGRESS_TOKEN= t", "OPENSANDBOX_EGRESS_TOKEN: cannot stand in a field"},
	{"OPENSANDBOX_EGRESS_TOKEN=t\t", "cannot stand in a field"},
	{"OPENSANDBOX_EGRESS_TOKEN=a\nb", "cannot stand in a field"},
	{"OPENSANDBOX_EGRESS_DENY_WEBHOOK=h.test/x", "expected a URL"},
	{"OPENSANDBOX_EGRESS_DENY_WEBHOOK=/x", "expected a URL"},
	{"OPENSANDBOX_EGRESS_DENY_WEBHOOK=ftp://h.test/", "expected a URL"},
	{"OPENSANDBOX_EGRESS_DENY_WEBHOOK=http://u:p@h.test/", "without user and password"},
	{"EGRESS_RULES_DIR=", "EGRESS_RULES_DIR: empty"},
	/* the vault */
	{"EGRESS_VAULT_FILE=", "EGRESS_VAULT_FILE: empty: expected a value or unset"},
	{"EGRESS_VAULT_FILE=/v/", "EGRESS_VAULT_FILE: \"/v/\": expected the path of a file"},
	{"EGRESS_VAULT=/v", "EGRESS_VAULT: unknown variable"},
	{"EGRESS_PACKET_SOCKETS=maybe", "EGRESS_PACKET_SOCKETS: \"maybe\": expected deny or allow"},
	{"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS=maybe",
		"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS: \"maybe\": expected"},
	{"EGRESS_UNBOUND_WRITES=on", "\"on\": expected deny or allow"},
	{"EGRESS_UNBOUND_WRITES=", "EGRESS_UNBOUND_WRITES: empty"},
	{"EGRESS_UNBOUND_WRITE=allow", "expected EGRESS_UNBOUND_WRITES or unset"},
	{"EGRESS_PLACEHOLDERS=off", "\"off\": expected deny, strip or pass"},
	{"EGRESS_PLACEHOLDER=pass", "expected EGRESS_PLACEHOLDERS or unset"},
	{"EGRESS_HTTP_BINDINGS=http", "EGRESS_HTTP_BINDINGS: \"http\": expected on or off"},
	{"EGRESS_BODY_SURFACE=2", "EGRESS_BODY_SURFACE: \"2\": expected on or off"},
	{"EGRESS_REQUIRE_LOCKED_MEMORY=maybe", "expected on or off"},
	{"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH=maybe",
		"REQUIRE_SCOPED_MATCH: \"maybe\": expected on or off"},
	/* values */
	{"EGRESS_READ_ONLY=maybe", "EGRESS_READ_ONLY: \"maybe\": expected on or off"},
	{"EGRESS_READ_ONLY=", "EGRESS_READ_ONLY: empty: expected a value or unset"},
	{"EGRESS_AUDIT=", "EGRESS_AUDIT: \"\": expected stdout"},
	{"EGRESS_AUDIT=stdot", "expected stdout, the path of a file (with a /)"},
	{"EGRESS_AUDIT=stdout,stdout", "expected stdout"},
	{"EGRESS_AUDIT=/a,/b", "expected stdout"},
	{"EGRESS_AUDIT=/a/", "expected stdout"},
	{"EGRESS_INTERCEPT=some", "expected all, bound or off"},
	{"EGRESS_PROXY_ADDR=localhost:1", "expected an address and a port"},
	{"EGRESS_PROXY_ADDR=127.0.0.1", "expected an address and a port"},
	{"EGRESS_PROXY_ADDR=127.0.0.1:0", "expected an address and a port"},
	{"EGRESS_PROXY_ADDR=127.0.0.1:65536", "expected an address and a port"},
	{"EGRESS_PROXY_ADDR=::1:80", "expected an address and a port"},
	{"EGRESS_PROXY_ADDR=[127.0.0.1]:80", "expected an address and a port"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_PORT=0", "expected a number from 1 to 65535"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_PORT=x", "expected a number from 1 to 65535"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=8080,,1", "expected a port"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=8080,8080", "expected each port once"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=443", "beside 80 and 443"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=65536", "expected a port"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=1,2,3,4,5,6,7,8,9,10,11,12,13,14",
		"expected 13 at most"},
	{"OPENSANDBOX_EGRESS_MAX_RULES=-1", "expected a number from 0"},
	{"OPENSANDBOX_EGRESS_MAX_RULES=4294967296", "expected a number from 0"},
	{"OPENSANDBOX_EGRESS_LOG_LEVEL=loud", "expected debug, info, warn or error"},
	{"OPENSANDBOX_EGRESS_DNS_UPSTREAM=dns.test", "OPENSANDBOX_EGRESS_DNS_UPSTREAM: "},
	{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=0", "expected a duration"},
	{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=two", "expected a duration"},
	{"OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE=2", "expected on or off"},
	{"OPENSANDBOX_EGRESS_RULES={", "OPENSANDBOX_EGRESS_RULES: "},
	{"OPENSANDBOX_EGRESS_RULES={\"egress\":[{\"action\":\"log\",\"target\":\"a\"}]}",
		"OPENSANDBOX_EGRESS_RULES: egress[0]"},
	{"EGRESS_PRIVATE_NAMES=*.local", "expected a name like cluster.local"},
	{"EGRESS_CA_CERT_OUT=/x/", "expected the path of a file"},
	{"EGRESS_CA_KEY=", "EGRESS_CA_KEY: empty"},
	{"EGRESS_AUDIT_MAX_BYTES=65535", "expected a size"},
	{"EGRESS_AUDIT_MAX_BYTES=1025GiB", "expected a size"},
	{"EGRESS_AUDIT_MAX_BYTES=64 MiB", "expected a size"},
	{"EGRESS_MAX_CONNECTIONS=1000001", "expected a number from 0 to 1000000"},
	{"EGRESS_HEAD_TIMEOUT=10", "expected a duration"},
	{"EGRESS_HEAD_TIMEOUT=0s", "expected a duration"},
	{"EGRESS_HEAD_TIMEOUT=86400001ms", "expected a duration"},
	{"EGRESS_HEAD_TIMEOUT=25h", "expected a duration"},
	{"EGRESS_HANDSHAKE_TIMEOUT=1d", "EGRESS_HANDSHAKE_TIMEOUT: "},
	{"EGRESS_CLIENT_IDLE=-1s", "EGRESS_CLIENT_IDLE: "},
	{"EGRESS_CONNECT_TIMEOUT=s", "EGRESS_CONNECT_TIMEOUT: "},
	{"EGRESS_FIRST_BYTE=1.5s", "EGRESS_FIRST_BYTE: "},
	{"EGRESS_STREAM_IDLE=99999999999999999999s", "EGRESS_STREAM_IDLE: "},
	{"EGRESS_UPSTREAM_IDLE=1S", "EGRESS_UPSTREAM_IDLE: "},
};

static void test_wrong_variables_are_refused(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(wrong_variables); i++) {
		struct load l = {.env = {wrong_variables[i].env}};
		struct outcome o;

		load_env(&l, false, false, &o);
		if (o.ret == 0)
			fail_msg("accepted: %s", wrong_variables[i].env);
		if (!strstr(o.msg.text, wrong_variables[i].want) || !strstr(o.msg.text, ": "))
			fail_msg("%s: got \"%s\"", wrong_variables[i].env, o.msg.text);
	}
}

static void test_wrong_files_are_refused_at_their_line(void **state)
{
	static const struct {
		const char *yaml;
		const char *want;
	} rows[] = {
		{"read_only: true\nwrite_host: [a.test]\n",
			"egress.yaml:2: unknown key \"write_host\": expected a known one like "
			"write_hosts"},
		{"\nvault: x/\n", "egress.yaml:2: \"x/\": expected the path of a file"},
		{"lifecycle: {}\n", "egress.yaml:1: unknown key \"lifecycle\""},
		{"policy_ceiling: x\n",
			"egress.yaml:1: x: No such file or directory: expected a readable file"},
		{"inbound_ports: [x]\n", "egress.yaml:1: \"x\": expected ports"},
		{"unbound_writes: off\n", "egress.yaml:1: \"off\": expected deny or allow"},
		{"placeholders: {}\n", "egress.yaml:1: placeholders: not a plain value"},
		{"write_hosts:\n  - a.test\n  - 'http://b.test'\n", "egress.yaml:1: "},
		{"read_only: [true]\n", "egress.yaml:1: read_only: not a plain value"},
		{"read_only:\n", "egress.yaml:1: read_only: empty"},
		{"read_only: {a: b}\n", "egress.yaml:1: read_only: not a plain value"},
		{"read_only: 2\n", "egress.yaml:1: \"2\": expected on or off"},
		{"write_hosts: [[a.test]]\n", "egress.yaml:1: write_hosts: not a plain value"},
		{"write_hosts: {a: b}\n", "expected a list of texts"},
		{"head_timeout: 10\n", "egress.yaml:1: \"10\": expected a duration"},
		{"head_timeout: \"\"\n", "egress.yaml:1: head_timeout: empty"},
		{"audit_max_bytes: 1\n", "egress.yaml:1: \"1\": expected a size"},
		{"a: 1\na: 2\n", "egress.yaml:2: key \"a\" for the second time"},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.yaml = rows[i].yaml};
		struct outcome o;

		load_env(&l, false, false, &o);
		if (o.ret == 0)
			fail_msg("accepted: %s", rows[i].yaml);
		if (!strstr(o.msg.text, rows[i].want))
			fail_msg("%s: got \"%s\"", rows[i].yaml, o.msg.text);
	}
}

/* Accepted; the log has this text, or (NULL) no warning at all. */
static void test_what_is_accepted_warns_where_it_should(void **state)
{
	static const struct {
		const char *env;
		const char *want;
	} rows[] = {
		/* services of Kubernetes are not ours */
		{"EGRESS_SERVICE_HOST=10.0.0.1", NULL},
		{"EGRESS_PROXY_SERVICE_PORT=80", NULL},
		{"EGRESS_PROXY_SERVICE_PORT_HTTP=80", NULL},
		{"EGRESS_PORT=tcp://10.0.0.1:80", NULL},
		{"EGRESS_PORT_80_TCP=tcp://10.0.0.1:80", NULL},
		{"AGENTIC_APP_PORT_80_TCP_ADDR=10.0.0.1", NULL},
		{"AGENTIC_APP_PORT_53_UDP_PROTO=udp", NULL},
		{"OPENSANDBOX_EGRESS_SERVICE_HOST=10.0.0.1", NULL},
		/* not ours at all */
		{"PATH=/bin", NULL},
		{"MY_EGRESS_THING=1", NULL},
		{"OPENSANDBOX_OTHER=1", NULL},
		{"EGRESS_NO_EQUALS_SIGN", NULL},
		/* upstream's, without a meaning here */
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=:18080", "whoever reaches the API may change"},
		{"OPENSANDBOX_EGRESS_TOKEN=t", "TOKEN: no effect without api_addr"},
		{"OPENSANDBOX_EGRESS_TOKEN=", NULL},
		{"OPENSANDBOX_EGRESS_DENY_WEBHOOK=http://h.test", NULL},
		{"OPENSANDBOX_EGRESS_DENY_WEBHOOK=https://10.0.0.1:8443/a?b=c", NULL},
		{"EGRESS_RULES_DIR=/x", NULL},
		{"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true", "no effect in mode proxy"},
		{"OPENSANDBOX_EGRESS_DOH_BLOCKLIST=1.1.1.1", "no effect in mode proxy"},
		{"OPENSANDBOX_LOG_OUTPUT=stdout", "LOG_OUTPUT: no effect"},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=", NULL},
		/* upstream's, unknown */
		{"OPENSANDBOX_EGRESS_RULE={}",
			"RULE: unknown variable, no effect: expected a "
			"known one like OPENSANDBOX_EGRESS_RULES"},
		/* empty counts as not set where upstream reads it so */
		{"OPENSANDBOX_EGRESS_MITMPROXY_SCRIPT=", NULL},
		{"OPENSANDBOX_EGRESS_UPSTREAM_PROXY=", NULL},
		{"OPENSANDBOX_EGRESS_PROFILE=", NULL},
		{"OPENSANDBOX_EGRESS_MAX_RULES=", NULL},
		{"OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=", NULL},
		/* values */
		{"OPENSANDBOX_EGRESS_MAX_RULES=0", NULL},
		{"OPENSANDBOX_EGRESS_MAX_RULES=4294967295", NULL},
		{"OPENSANDBOX_EGRESS_MITMPROXY_PORT=65535", NULL},
		{"OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=1,2,3,4,5,6,7,8,9,10,11,12,13", NULL},
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=120", NULL},
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=121", "120s is used"},
		{"OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=300ms", NULL},
		{"EGRESS_HEAD_TIMEOUT=24h", NULL},
		{"EGRESS_HEAD_TIMEOUT=86400000ms", NULL},
		{"EGRESS_AUDIT_MAX_BYTES=65536", NULL},
		{"EGRESS_AUDIT_MAX_BYTES=1024GiB", NULL},
		{"EGRESS_MAX_CONNECTIONS=1000000", NULL},
		{"EGRESS_READ_ONLY=Y", NULL},
		{"EGRESS_AUDIT=./a, stdout", NULL},
		{"EGRESS_PRIVATE_NAMES=", NULL},
		{"EGRESS_INTERCEPT=bound", "no bindings"},
		{"EGRESS_VAULT_FILE=/v", NULL},
		{"EGRESS_UNBOUND_WRITES=Allow", NULL},
		{"EGRESS_PLACEHOLDERS=Strip", NULL},
		{"EGRESS_HTTP_BINDINGS=yes", NULL},
		{"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH=1", NULL},
		{"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH=", NULL},
		{"EGRESS_PROXY_ADDR=0.0.0.0:1", "not a loopback address"},
		{"OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE=on", "origins are not verified"},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.env = {rows[i].env}};
		struct outcome o;

		load_env(&l, false, false, &o);
		if (o.ret < 0)
			fail_msg("%s: refused: %s", rows[i].env, o.msg.text);
		if (rows[i].want ? !strstr(o.log, rows[i].want) : o.log[0] != '\0')
			fail_msg("%s: logged \"%s\"", rows[i].env, o.log);
		settings_free(o.s);
	}
}

static void test_quiet_source_gives_no_warning(void **state)
{
	struct load l = {.env = {"OPENSANDBOX_EGRESS_TOKEN=t", "EGRESS_INTERCEPT=bound"}};
	struct outcome o;

	load_env(&l, false, true, &o);
	assert_int_equal(o.ret, 0);
	assert_string_equal(o.log, "");
	settings_free(o.s);
}

static void test_server_that_is_followed(void **state)
{
	static const struct {
		const char *url, *mode, *ca;
		const char *want; /* NULL: the URL as it is kept is `kept` */
		const char *kept;
	} rows[] = {
		{"http://10.0.0.1:8090", "dns+nft", NULL, NULL, "http://10.0.0.1:8090"},
		{"http://o.test/", "dns", NULL, NULL, "http://o.test"},
		{"https://o.test/v1/", "dns", NULL, NULL, "https://o.test"},
		{"https://o.test/api/v1", "proxy", "/ca.pem", NULL, "https://o.test/api"},
		{"http://127.0.0.1:8090", "proxy", NULL, NULL, "http://127.0.0.1:8090"},
		{"https://127.0.0.1:8090", "dns", NULL, NULL, "https://127.0.0.1:8090"},
		{"http://127.0.0.1:8090", "dns", NULL, "the sandbox could answer there", NULL},
		{"http://127.9.9.9", "dns+nft", NULL, "the sandbox could answer there", NULL},
		{"http://[::1]:8090", "dns+nft", NULL, "the sandbox could answer there", NULL},
		{"http://localhost:8090", "dns", NULL, "the sandbox could answer there", NULL},
		{"http://o.test", "proxy", "/ca.pem", "begins with https://", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char url[64], mode[64], ca[64] = "OPENSANDBOX_CA_FILE=";
		struct load l = {
			.env = {url, mode, "OPENSANDBOX_API_KEY_FILE=/k",
				"OPENSANDBOX_EGRESS_SANDBOX_ID=s",
				"OPENSANDBOX_EGRESS_TOKEN=0123456789abcdef0123456789abcdef", ca}};
		struct outcome o;

		(void)snprintf(url, sizeof(url), "OPENSANDBOX_URL=%s", rows[i].url);
		(void)snprintf(mode, sizeof(mode), "OPENSANDBOX_EGRESS_MODE=%s", rows[i].mode);
		if (rows[i].ca)
			(void)snprintf(ca, sizeof(ca), "OPENSANDBOX_CA_FILE=%s", rows[i].ca);
		load_env(&l, false, true, &o);
		if (rows[i].want ? o.ret == 0 || !strstr(o.msg.text, rows[i].want) : o.ret < 0)
			fail_msg("row %zu: %d \"%s\"", i, o.ret, o.msg.text);
		if (rows[i].kept)
			assert_string_equal(o.s->opensandbox_url, rows[i].kept);
		settings_free(o.s);
	}
}

static void test_places_where_the_api_listens(void **state)
{
	static const struct {
		const char *env; /* NULL: not set */
		bool api, any;
		const char *addr;
		uint16_t port;
	} rows[] = {
		/* mode proxy may run on a developer's machine: no port that was not asked for */
		{NULL, false, false, NULL, 0},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=", false, false, NULL, 0},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=:18080", true, true, NULL, 18080},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=[::]:1", true, true, NULL, 1},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=0.0.0.0:1", true, false, "0.0.0.0", 1},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=127.0.0.1:65535", true, false, "127.0.0.1", 65535},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=[::1]:7", true, false, "::1", 7},
		{"OPENSANDBOX_EGRESS_HTTP_ADDR=localhost:7", true, false, "127.0.0.1", 7},
	};
	char text[NETADDR_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.env = {rows[i].env}};
		struct settings *s = must_load(&l);

		assert_int_equal(s->api, rows[i].api);
		assert_int_equal(s->api_any, rows[i].any);
		assert_int_equal(s->api_port, rows[i].port);
		if (rows[i].addr) {
			(void)netaddr_text(&s->api_addr, text);
			assert_string_equal(text, rows[i].addr);
		}
		settings_free(s);
	}
}

static void test_token_is_taken_as_it_is_and_never_told(void **state)
{
	static char longest[sizeof("OPENSANDBOX_EGRESS_TOKEN=") + 1025];
	struct load l = {
		.env = {"OPENSANDBOX_EGRESS_TOKEN=a b=c", "OPENSANDBOX_EGRESS_HTTP_ADDR=:1"}};
	struct settings *s = must_load(&l);
	struct outcome o;
	struct strbuf out;

	assert_string_equal(s->token, "a b=c");
	strbuf_init(&out, 1u << 20);
	settings_print(s, &out);
	assert_null(strstr(strbuf_cstr(&out), "a b=c"));
	assert_non_null(strstr(strbuf_cstr(&out), "# OPENSANDBOX_EGRESS_TOKEN: set"));
	strbuf_fini(&out);
	settings_free(s);
	/* at the limit, and one past it; the message does not quote it */
	memcpy(longest, "OPENSANDBOX_EGRESS_TOKEN=", sizeof("OPENSANDBOX_EGRESS_TOKEN="));
	memset(longest + strlen(longest), 'k', 1024);
	l = (struct load){.env = {longest}};
	settings_free(must_load(&l));
	longest[strlen(longest)] = 'k';
	load_env(&l, false, false, &o);
	assert_int_equal(o.ret, E_VALUE);
	assert_null(strstr(o.msg.text, "kkk"));
}

static void test_port_variable_moves_the_listener_unless_its_address_is_set(void **state)
{
	static const struct {
		const char *env[2];
		const char *yaml;
		const char *addr;
		uint16_t port;
	} rows[] = {
		{{NULL, NULL}, NULL, "127.0.0.1", 18081},
		{{"OPENSANDBOX_EGRESS_MITMPROXY_PORT=19000", NULL}, NULL, "127.0.0.1", 19000},
		{{"OPENSANDBOX_EGRESS_MITMPROXY_PORT=19000", "EGRESS_PROXY_ADDR=[::1]:7"}, NULL,
			"::1", 7},
		{{"OPENSANDBOX_EGRESS_MITMPROXY_PORT=19000", NULL}, "proxy_addr: 127.0.0.2:7\n",
			"127.0.0.2", 19000},
		{{NULL, NULL}, "proxy_addr: 127.0.0.2:7\n", "127.0.0.2", 7},
		{{"EGRESS_PROXY_ADDR=127.0.0.3:8", NULL}, "proxy_addr: 127.0.0.2:7\n", "127.0.0.3",
			8},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.yaml = rows[i].yaml, .env = {rows[i].env[0], rows[i].env[1]}};
		struct settings *s = must_load(&l);
		char text[NETADDR_TEXT_MAX];

		(void)netaddr_text(&s->proxy_addr, text);
		assert_string_equal(text, rows[i].addr);
		assert_int_equal(s->proxy_port, rows[i].port);
		settings_free(s);
	}
}

static void test_certificate_goes_to_the_state_directory_by_default(void **state)
{
	static const struct {
		const char *env[3];
		const char *want; /* NULL: refused */
		bool made;
	} rows[] = {
		{{CERT, "HOME=/h", NULL}, "/x/ca.pem", false},
		{{"HOME=/h", NULL, NULL}, "/h/.local/state/egress/ca-cert.pem", true},
		{{"XDG_STATE_HOME=/s", "HOME=/h", NULL}, "/s/egress/ca-cert.pem", true},
		{{"XDG_STATE_HOME=s", "HOME=/h", NULL}, "/h/.local/state/egress/ca-cert.pem", true},
		{{"XDG_STATE_HOME=", "HOME=", NULL}, NULL, false},
		{{"HOME=h", NULL, NULL}, NULL, false},
		{{NULL, NULL, NULL}, NULL, false},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.env = {PROXY, RESOLVERS, rows[i].env[0], rows[i].env[1]}};
		struct outcome o;

		load_env(&l, true, false, &o);
		if (!rows[i].want) {
			assert_int_equal(o.ret, E_VALUE);
			assert_non_null(strstr(o.msg.text, "EGRESS_CA_CERT_OUT"));
			assert_non_null(strstr(o.msg.text, "XDG_STATE_HOME"));
			continue;
		}
		assert_int_equal(o.ret, 0);
		assert_string_equal(o.s->ca_cert_out, rows[i].want);
		assert_int_equal(o.s->ca_cert_default, rows[i].made);
		settings_free(o.s);
	}
}

static void test_resolvers_come_from_setting_or_resolv_conf(void **state)
{
	static const char resolv[] = "search x\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n";
	struct load l = {.resolv = resolv, .env = {PROXY, CERT}};
	struct outcome o;

	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, 0);
	assert_int_equal(o.s->dns.n, 2);
	settings_free(o.s);
	l.yaml = "dns_upstream: [192.0.2.7, '192.0.2.8:5353']\n";
	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, 0);
	assert_int_equal(o.s->dns.n, 2);
	assert_int_equal(o.s->dns.v[1].port, 5353);
	settings_free(o.s);
	l.env[2] = "OPENSANDBOX_EGRESS_DNS_UPSTREAM=192.0.2.9";
	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, 0);
	assert_int_equal(o.s->dns.n, 1);
	settings_free(o.s);
}

static void test_no_resolver_at_all_is_refused(void **state)
{
	struct load l = {.env = {PROXY, CERT}};
	struct outcome o;

	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, E_VALUE);
	assert_non_null(strstr(o.msg.text, "OPENSANDBOX_EGRESS_DNS_UPSTREAM"));
	l.resolv = "search x\n";
	load_env(&l, true, false, &o);
	assert_int_equal(o.ret, E_VALUE);
}

static void test_sandbox_id_is_bounded(void **state)
{
	char env[64 + 130] = "OPENSANDBOX_EGRESS_SANDBOX_ID=";
	size_t head = strlen(env);
	struct load l = {.env = {env}};
	struct outcome o;

	memset(env + head, 'x', 128);
	load_env(&l, false, false, &o);
	assert_int_equal(o.ret, 0);
	assert_int_equal(strlen(o.s->sandbox_id), 128);
	settings_free(o.s);
	memset(env + head, 'x', 129);
	load_env(&l, false, false, &o);
	assert_int_equal(o.ret, E_LIMIT);
}

static void test_first_of_two_variables_with_one_name_counts(void **state)
{
	struct load l = {.env = {"EGRESS_READ_ONLY=on", "EGRESS_READ_ONLY=off"}};
	struct settings *s = must_load(&l);

	assert_true(s->read_only);
	settings_free(s);
}

/* Each setting of the vault is off or strict until it is set, in either source. */
static void test_vault_settings_reach_their_places(void **state)
{
	static const struct {
		const char *yaml;
		const char *env;
		size_t place;
		size_t len;
		unsigned before;
		unsigned after;
	} rows[] = {
#define BOOL(yaml, env, field) \
	{yaml, env, offsetof(struct settings, field), sizeof(bool), false, true}
#define PLACE(yaml, env, after)                                                                \
	{                                                                                      \
		yaml, env, offsetof(struct settings, placeholders), sizeof(enum placeholders), \
			PLACEHOLDERS_DENY, after                                               \
	}
		BOOL("unbound_writes: allow\n", "EGRESS_UNBOUND_WRITES=allow", unbound_writes),
		BOOL("http_bindings: on\n", "EGRESS_HTTP_BINDINGS=1", http_bindings),
		BOOL("body_surface: true\n", "EGRESS_BODY_SURFACE=on", body_surface),
		BOOL("require_scoped_match: on\n",
			"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH=true",
			require_scoped_match),
		BOOL("require_locked_memory: yes\n", "EGRESS_REQUIRE_LOCKED_MEMORY=1",
			require_locked_memory),
		BOOL("packet_sockets: allow\n", "EGRESS_PACKET_SOCKETS=allow", packet_sockets),
		BOOL("vault_require_tls: on\n",
			"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS=YES", vault_require_tls),
		PLACE("placeholders: strip\n", "EGRESS_PLACEHOLDERS=strip", PLACEHOLDERS_STRIP),
		PLACE("placeholders: pass\n", "EGRESS_PLACEHOLDERS=pass", PLACEHOLDERS_PASS),
#undef BOOL
#undef PLACE
	};
	size_t i;
	int from;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		for (from = 0; from < 3; from++) {
			struct load l = {.yaml = from == 1 ? rows[i].yaml : NULL,
				.env = {from == 2 ? rows[i].env : NULL}};
			struct settings *s = must_load(&l);
			unsigned value = 0;

			memcpy(&value, (char *)s + rows[i].place, rows[i].len);
			if (value != (from ? rows[i].after : rows[i].before))
				fail_msg("%s source %d: %u", rows[i].env, from, value);
			settings_free(s);
		}
	}
}

static void test_vault_file_is_kept_as_it_was_written(void **state)
{
	struct load l = {.yaml = "vault: /a/v.yaml\n"};
	struct settings *s = must_load(&l);

	assert_string_equal(s->vault_file, "/a/v.yaml");
	settings_free(s);
	l.env[0] = "EGRESS_VAULT_FILE=v.json";
	s = must_load(&l);
	assert_string_equal(s->vault_file, "v.json");
	settings_free(s);
}

static void test_interception_that_leaves_the_vault_without_work_warns(void **state)
{
	struct load l = {.env = {"EGRESS_INTERCEPT=bound", "EGRESS_VAULT_FILE=/v"}};
	struct outcome o;

	load_env(&l, false, false, &o);
	assert_int_equal(o.ret, 0);
	assert_string_equal(o.log, "");
	settings_free(o.s);
	l.env[0] = "EGRESS_INTERCEPT=off";
	load_env(&l, false, false, &o);
	assert_int_equal(o.ret, 0);
	assert_non_null(strstr(o.log, "intercept is off: keys of the vault"));
	settings_free(o.s);
}

static void test_defaults_are_those_of_the_table(void **state)
{
	struct load l = {.env = {NULL}};
	struct settings *s = must_load(&l);

	assert_int_equal(s->mode, MODE_PROXY);
	assert_int_equal(s->max_rules, 4096);
	assert_int_equal(s->intercept, INTERCEPT_ALL);
	assert_int_equal(s->private_names.n, 3);
	assert_string_equal(s->private_names.suffix[0], "cluster.local");
	assert_string_equal(s->upstream_trust, "/etc/ssl/certs");
	assert_int_equal(s->dns_timeout_ms, 2000);
	assert_true(s->audit_stdout);
	assert_null(s->audit_file);
	assert_int_equal(s->audit_max_bytes, 64u << 20);
	assert_int_equal(s->log_level, LOG_LEVEL_INFO);
	assert_int_equal(s->head_timeout_ms, 30000);
	assert_int_equal(s->handshake_timeout_ms, 15000);
	assert_int_equal(s->client_idle_ms, 300000);
	assert_int_equal(s->connect_timeout_ms, 10000);
	assert_int_equal(s->first_byte_ms, 900000);
	assert_int_equal(s->stream_idle_ms, 900000);
	assert_int_equal(s->upstream_idle_ms, 30000);
	assert_int_equal(s->max_connections, 0);
	assert_null(s->ca_key);
	assert_null(s->vault_file);
	assert_null(s->policy_file);
	settings_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_variables_are_refused),
		cmocka_unit_test(test_wrong_files_are_refused_at_their_line),
		cmocka_unit_test(test_what_is_accepted_warns_where_it_should),
		cmocka_unit_test(test_quiet_source_gives_no_warning),
		cmocka_unit_test(test_server_that_is_followed),
		cmocka_unit_test(test_places_where_the_api_listens),
		cmocka_unit_test(test_token_is_taken_as_it_is_and_never_told),
		cmocka_unit_test(test_port_variable_moves_the_listener_unless_its_address_is_set),
		cmocka_unit_test(test_certificate_goes_to_the_state_directory_by_default),
		cmocka_unit_test(test_resolvers_come_from_setting_or_resolv_conf),
		cmocka_unit_test(test_no_resolver_at_all_is_refused),
		cmocka_unit_test(test_sandbox_id_is_bounded),
		cmocka_unit_test(test_first_of_two_variables_with_one_name_counts),
		cmocka_unit_test(test_vault_settings_reach_their_places),
		cmocka_unit_test(test_vault_file_is_kept_as_it_was_written),
		cmocka_unit_test(test_interception_that_leaves_the_vault_without_work_warns),
		cmocka_unit_test(test_defaults_are_those_of_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
