/* Where requests to a platform go: its URL, filters of the list, and the hosts of endpoints. */
#include "ctl/platform.h"
#include "tests/unit/ctl/fixture.h"

static int open_platform(struct platform *p, const struct platform_options *o)
{
	struct errmsg msg = {""};
	int ret = platform_open(p, o, &msg);

	assert_true((ret < 0) == (msg.text[0] != '\0'));
	return ret;
}

static void test_urls(void **state)
{
	static const struct {
		const char *url;
		int want;
	} rows[] = {
		{"https://opensandbox.example", 0},
		{"http://127.0.0.1:8080/", 0},
		{"https://h.example/some/where//", 0},
		{"opensandbox.example", E_VALUE},
		{"ftp://h.example", E_VALUE},
		{"https://key@h.example", E_VALUE},
		{"https://h.example/?x=1", E_VALUE},
		{"https://h.example/#x", E_VALUE},
		{"/v1", E_VALUE},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct platform_options o = {.url = rows[i].url};
		struct platform p;

		assert_int_equal(open_platform(&p, &o), rows[i].want);
		if (rows[i].want == 0)
			assert_int_not_equal(p.api.url[strlen(p.api.url) - 1], '/');
		platform_close(&p);
	}
}

static void test_filters(void **state)
{
	const struct platform_options o = {.url = "http://h.example",
		.states = {"Running", "Paused"},
		.metadata = {"agent=reviewer", "a b=7&8%="}};
	const struct platform_options wrong = {.url = "http://h.example", .metadata = {"agent"}};
	struct platform p;

	assert_int_equal(open_platform(&p, &o), 0);
	assert_string_equal(strbuf_cstr(&p.filter),
		"&state=Running&state=Paused&metadata="
		"agent%3Dreviewer%26a%2520b%3D7%25268%2525%253D");
	platform_close(&p);
	assert_int_equal(open_platform(&p, &wrong), E_VALUE);
	platform_close(&p);
}

static void test_hosts_of_endpoints(void **state)
{
	static const struct {
		const char *endpoint;
		int want;
	} rows[] = {
		{"api.example:41022/proxy/18080", 0},
		{"API.example.", 0},
		{"127.0.0.1:9/proxy/18080", 0},
		{"127.9.9.9", 0},
		{"[::1]:9", 0},
		{"localhost:9", 0},
		{"gateway.example/x", 0},
		{"10.1.2.3:18080", 0},
		{"[fd00::7]:18080", 0},
		{"192.0.2.7", 0},
		{"192.0.2.8", E_VALUE},
		{"10.2.0.1", E_VALUE},
		{"x.api.example", E_VALUE},
		{"api.example.evil.test", E_VALUE},
		{"localhost.evil.test", E_VALUE},
		{"evil.test", E_VALUE},
		{"0.0.0.0", E_VALUE},
		{"169.254.169.254", E_VALUE},
		{"[fd01::7]", E_VALUE},
	};
	const struct platform_options o = {.url = "https://api.example:8443/p",
		.hosts = {"gateway.example", "10.1.0.0/16", "fd00::/16", "192.0.2.7"}};
	struct sidecar *s;
	struct platform p;
	struct errmsg msg;
	char text[200];

	assert_int_equal(open_platform(&p, &o), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)snprintf(text, sizeof(text),
			"{\"endpoint\":\"%s\",\"headers\":{\"OPENSANDBOX-EGRESS-AUTH\":\"t0ken\"}}",
			rows[i].endpoint);
		assert_int_equal(sidecar_new(&p, slice_str(text), &s, &msg), rows[i].want);
		assert_int_equal(s != NULL, rows[i].want == 0);
		sidecar_free(&p, s);
	}
	assert_int_equal(sidecar_new(&p, SLICE("{}"), &s, &msg), E_SYNTAX);
	platform_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_hosts_of_endpoints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
