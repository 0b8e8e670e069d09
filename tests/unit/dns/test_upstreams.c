/* The list of resolvers, from the setting and from resolv.conf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "dns/upstreams.h"

/* "addr#port addr#port", so that a table can hold a list. */
static void upstreams_print(const struct upstreams *u, struct strbuf *out)
{
	char text[NETADDR_TEXT_MAX];
	size_t i;

	for (i = 0; i < u->n; i++) {
		netaddr_text(&u->v[i].addr, text);
		strbuf_printf(out, "%s%s#%u", i > 0 ? " " : "", text, u->v[i].port);
	}
}

static void check_list(const struct upstreams *u, const char *want)
{
	struct strbuf got;

	strbuf_init(&got, 4096);
	upstreams_print(u, &got);
	assert_string_equal(strbuf_cstr(&got), want);
	strbuf_fini(&got);
}

static void test_each_form_of_a_resolver_is_read(void **state)
{
	static const struct {
		const char *list, *want;
	} rows[] = {
		{"10.0.0.2", "10.0.0.2#53"},
		{"10.0.0.2:5353", "10.0.0.2#5353"},
		{"10.0.0.2:1", "10.0.0.2#1"},
		{"10.0.0.2:65535", "10.0.0.2#65535"},
		{"fd00::53", "fd00::53#53"},
		{"[fd00::53]", "fd00::53#53"},
		{"[fd00::53]:54", "fd00::53#54"},
		{"::1", "::1#53"},
		{"1.1.1.1,8.8.8.8", "1.1.1.1#53 8.8.8.8#53"},
		{" 8.8.8.8 ,\t1.1.1.1:54 ", "8.8.8.8#53 1.1.1.1#54"},
		{",,1.1.1.1,,", "1.1.1.1#53"},
		{"1.1.1.1,8.8.8.8,1.1.1.1:53", "1.1.1.1#53 8.8.8.8#53"},
		{"1.1.1.1,1.1.1.1:54", "1.1.1.1#53 1.1.1.1#54"},
		{"fd00::53,[FD00:0::53]:53", "fd00::53#53"},
	};
	struct upstreams u;
	struct errmsg msg;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(upstreams_decode(slice_str(rows[i].list), &u, &msg), 0);
		check_list(&u, rows[i].want);
	}
}

static void test_wrong_resolver_is_refused_by_name(void **state)
{
	static const struct {
		const char *list, *item;
	} rows[] = {
		{"dns.test", "dns.test"},
		{"1.1.1.1,dns.test:53", "dns.test:53"},
		{"1.1.1.1:", "1.1.1.1:"},
		{"1.1.1.1:0", "1.1.1.1:0"},
		{"1.1.1.1:65536", "1.1.1.1:65536"},
		{"1.1.1.1:+53", "1.1.1.1:+53"},
		{"1.1.1.1:5a", "1.1.1.1:5a"},
		{"1.1.1.1:53:53", "1.1.1.1:53:53"},
		{"1.1.1.1 8.8.8.8", "1.1.1.1 8.8.8.8"},
		{"1.1.1", "1.1.1"},
		{"01.1.1.1", "01.1.1.1"},
		{"1.1.1.256", "1.1.1.256"},
		{"[fd00::53", "[fd00::53"},
		{"[fd00::53]53", "[fd00::53]53"},
		{"[fd00::53]:", "[fd00::53]:"},
		{"[fd00::53]:0", "[fd00::53]:0"},
		{"[1.1.1.1]", "[1.1.1.1]"},
		{"[]", "[]"},
		{"fe80::1%eth0", "fe80::1%eth0"},
		{"https://1.1.1.1/dns-query", "https://1.1.1.1/dns-query"},
	};
	struct upstreams u = {.n = 77};
	struct errmsg msg;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(upstreams_decode(slice_str(rows[i].list), &u, &msg), E_VALUE);
		assert_non_null(strstr(msg.text, rows[i].item));
		assert_int_equal(u.n, 77);
	}
}

static void test_list_without_a_resolver_is_refused(void **state)
{
	static const char *const lists[] = {"", " ", ",", " , ,"};
	struct upstreams u;
	struct errmsg msg;
	size_t i;

	for (i = 0; i < ARRAY_LEN(lists); i++)
		assert_int_equal(upstreams_decode(slice_str(lists[i]), &u, &msg), E_VALUE);
	assert_int_equal(upstreams_decode(SLICE(""), &u, NULL), E_VALUE);
}

/* n different resolvers, then the first one again: doubles do not count. */
static void list_of(struct strbuf *b, unsigned n)
{
	unsigned i;

	strbuf_clear(b);
	for (i = 1; i <= n; i++)
		strbuf_printf(b, "10.0.0.%u,", i);
	strbuf_str(b, "10.0.0.1");
}

static void test_ten_resolvers_fit_and_eleven_are_refused(void **state)
{
	struct upstreams u;
	struct errmsg msg;
	struct strbuf b;

	strbuf_init(&b, 4096);
	list_of(&b, UPSTREAMS_MAX);
	assert_int_equal(upstreams_decode(strbuf_slice(&b), &u, &msg), 0);
	assert_int_equal(u.n, UPSTREAMS_MAX);
	list_of(&b, UPSTREAMS_MAX + 1);
	assert_int_equal(upstreams_decode(strbuf_slice(&b), &u, &msg), E_LIMIT);
	assert_non_null(strstr(msg.text, "10.0.0.11"));
	strbuf_fini(&b);
}

static void test_resolv_conf_gives_its_nameservers(void **state)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"nameserver 10.0.0.2\n", "10.0.0.2#53"},
		{"nameserver 10.0.0.2", "10.0.0.2#53"},
		{"nameserver\t10.0.0.2\r\n", "10.0.0.2#53"},
		{"  nameserver   10.0.0.2  # office\n", "10.0.0.2#53"},
		{"# nameserver 1.1.1.1\n;nameserver 1.1.1.1\nnameserver 10.0.0.2\n", "10.0.0.2#53"},
		{"search a.test b.test\noptions ndots:5 rotate\nnameserver 10.0.0.2\n",
			"10.0.0.2#53"},
		{"nameserver 127.0.0.11\nnameserver 10.0.0.2\nnameserver ::1\nnameserver fd00::2\n",
			"10.0.0.2#53 fd00::2#53 127.0.0.11#53 ::1#53"},
		{"nameserver 10.0.0.2\nnameserver 10.0.0.2\n", "10.0.0.2#53"},
		{"nameserver fe80::1%eth0\nnameserver dns.test\nnameserver 10.0.0.2\n",
			"10.0.0.2#53"},
		{"nameserver\nnameservers 1.1.1.1\nNameserver 1.1.1.1\nnameserver 10.0.0.2 9.9.9.9",
			"10.0.0.2#53"},
	};
	struct upstreams u;
	struct errmsg msg;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(upstreams_from_resolv_conf(slice_str(rows[i].text), &u, &msg), 0);
		check_list(&u, rows[i].want);
	}
}

static void test_resolv_conf_without_a_nameserver_is_refused(void **state)
{
	static const char *const texts[] = {"", "\n\n", "search a.test\n", "nameserver\n",
		"nameserver dns.test\n", "#nameserver 1.1.1.1\n", "nameserver 1.1.1.1:53\n"};
	struct upstreams u;
	struct errmsg msg;
	size_t i;

	for (i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(
			upstreams_from_resolv_conf(slice_str(texts[i]), &u, &msg), E_VALUE);
}

static void test_resolv_conf_keeps_the_first_ten_and_remote_ones_before_loopback(void **state)
{
	struct upstreams u;
	struct errmsg msg;
	struct netaddr last;
	struct strbuf b;
	unsigned i;

	strbuf_init(&b, 4096);
	strbuf_str(&b, "nameserver 127.0.0.53\n");
	for (i = 1; i <= UPSTREAMS_MAX + 1; i++)
		strbuf_printf(&b, "nameserver 10.0.0.%u\n", i);
	assert_int_equal(upstreams_from_resolv_conf(strbuf_slice(&b), &u, &msg), 0);
	assert_int_equal(u.n, UPSTREAMS_MAX);
	assert_true(netaddr_parse(SLICE("10.0.0.10"), &last));
	assert_true(netaddr_eq(&u.v[UPSTREAMS_MAX - 1].addr, &last));
	strbuf_fini(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_form_of_a_resolver_is_read),
		cmocka_unit_test(test_wrong_resolver_is_refused_by_name),
		cmocka_unit_test(test_list_without_a_resolver_is_refused),
		cmocka_unit_test(test_ten_resolvers_fit_and_eleven_are_refused),
		cmocka_unit_test(test_resolv_conf_gives_its_nameservers),
		cmocka_unit_test(test_resolv_conf_without_a_nameserver_is_refused),
		cmocka_unit_test(
			test_resolv_conf_keeps_the_first_ten_and_remote_ones_before_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
