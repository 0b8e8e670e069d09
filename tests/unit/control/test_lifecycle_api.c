/* The key's file, and what counts as an answer. That the key goes where it should: loop_fetch.c,
 * and tests/e2e of both homes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/secmem.h"
#include "control/lifecycle_api.h"
#include "proxy/proxy.h"

#define FIELD "OPEN-SANDBOX-API-KEY: "

static struct proxy px;
static struct lifecycle_api api;

static int setup(void **state)
{
	assert_true(secmem_new(64u << 10, &px.secmem) >= 0);
	assert_int_equal(lifecycle_api_init(&api, "https://api.test/p/v1/"), 0);
	api.px = &px;
	return 0;
}

static int teardown(void **state)
{
	lifecycle_api_fini(&api);
	assert_int_equal(secmem_used(px.secmem), 0);
	secmem_close(px.secmem);
	return 0;
}

static void test_url(void **state)
{
	struct lifecycle_api other = {.px = &px};

	assert_string_equal(api.url, "https://api.test/p");
	assert_true(api.https);
	assert_int_equal(api.authority.port, 443);
	assert_int_equal(lifecycle_api_init(&other, "http://api.test:8080/?x=1"), E_VALUE);
	assert_int_equal(lifecycle_api_init(&other, "http://u@api.test"), E_VALUE);
	assert_int_equal(lifecycle_api_init(&other, "/v1"), E_VALUE);
	assert_null(other.url);
}

/* Reads it from a file, at whose end we stand. */
static int read_key(struct slice text)
{
	int fd = memfd_create("key", MFD_CLOEXEC);
	struct errmsg msg = {""};
	int ret;

	assert_int_equal(write(fd, text.p, text.len), text.len);
	ret = lifecycle_api_read_key(&api, fd, "/key", &msg);
	assert_int_equal(ret < 0, slice_starts(slice_str(msg.text), SLICE("/key: ")));
	(void)close(fd);
	return ret;
}

static void test_keys_and_the_one_before(void **state)
{
	static const struct {
		const char *text;
		int want;
	} rows[] = {
		{"k3y", 0},
		{"k3y\n", 0},
		{" \n k3y \r\n", 0},
		{"", E_VALUE},
		{"\n", E_VALUE},
		{"two\nlines", E_VALUE},
		{"two\rlines", E_VALUE},
		{"a\001", E_VALUE},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(read_key(SLICE("before")), 0);
		assert_int_equal(read_key(slice_str(rows[i].text)), rows[i].want);
		assert_string_equal(
			api.key, rows[i].want == 0 ? FIELD "k3y\r\n" : FIELD "before\r\n");
		assert_true(secmem_holds(px.secmem, api.key));
	}
	assert_int_equal(read_key(slice_make("k\0y", 3)), E_VALUE);
}

static void test_longest_key(void **state)
{
	char *text = calloc(1, LIFECYCLE_KEY_MAX + 1);

	memset(text, 'k', LIFECYCLE_KEY_MAX + 1);
	assert_int_equal(read_key(slice_make(text, LIFECYCLE_KEY_MAX)), 0);
	assert_int_equal(strlen(api.key), strlen(FIELD "\r\n") + LIFECYCLE_KEY_MAX);
	assert_int_equal(read_key(slice_make(text, LIFECYCLE_KEY_MAX + 1)), E_LIMIT);
	free(text);
}

static void test_key_of_a_pipe(void **state)
{
	struct errmsg msg;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "k3y\n", 4), 4);
	(void)close(fds[1]);
	assert_int_equal(lifecycle_api_read_key(&api, fds[0], "-", &msg), 0);
	assert_string_equal(api.key, FIELD "k3y\r\n");
	(void)close(fds[0]);
	assert_int_equal(lifecycle_api_read_key(&api, -1, "-", &msg), -EBADF);
}

static void test_no_locked_memory(void **state)
{
	void *all = NULL, *p;
	struct errmsg msg;

	while ((p = secmem_alloc(px.secmem, 256))) {
		*(void **)p = all;
		all = p;
	}
	assert_int_equal(lifecycle_api_read_key(&api, -1, "-", &msg), -ENOMEM);
	while (all) {
		p = *(void **)all;
		secmem_release(px.secmem, all);
		all = p;
	}
}

/* --- answers --- */

static struct h1_head head;

static struct fetch_answer answer(const char *fields)
{
	static char text[512];

	(void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n%s\r\n", fields);
	assert_int_equal(h1_response_decode(slice_str(text), SLICE("GET"), &head), H1_OK);
	return (struct fetch_answer){.status = 200, .head = &head};
}

static void test_retry_after(void **state)
{
	static const struct {
		const char *fields;
		uint64_t want_ms;
	} rows[] = {
		{"", 0},
		{"Retry-After: 0\r\n", 0},
		{"retry-after: 7\r\n", 7000},
		{"Retry-After: 299\r\n", 299000},
		{"Retry-After: 300\r\n", 300000},
		{"Retry-After: 301\r\n", 300000},
		{"Retry-After: 18446744073709551615\r\n", 300000},
		{"Retry-After: 18446744073709551616\r\n", 0},
		{"Retry-After: -1\r\n", 0},
		{"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n", 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fetch_answer a = answer(rows[i].fields);

		assert_int_equal(lifecycle_retry_after_ms(&a), rows[i].want_ms);
	}
	assert_int_equal(lifecycle_retry_after_ms(&(struct fetch_answer){.err = E_EOF}), 0);
}

static void test_what_is_an_answer(void **state)
{
	static const struct {
		const char *fields;
		bool want;
	} rows[] = {
		{"Content-Type: application/json\r\n", true},
		{"content-type: Application/JSON ; charset=utf-8\r\n", true},
		{"Content-Type: application/json-seq\r\n", false},
		{"Content-Type: text/html; application/json\r\n", false},
		{"", false},
	};
	struct fetch_answer a;
	struct errmsg msg;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		a = answer(rows[i].fields);
		assert_int_equal(lifecycle_api_check(&a, &msg) == 0, rows[i].want);
	}
	a = answer(rows[0].fields);
	a.status = 404;
	a.content = SLICE("{\"code\":\"A::B\",\"message\":\"none\"}");
	assert_true(lifecycle_api_check(&a, &msg) < 0);
	assert_string_equal(msg.text, "404 A::B: none");
	a = answer(rows[0].fields);
	a.err = E_EOF;
	a.why = "it ended";
	assert_true(lifecycle_api_check(&a, &msg) < 0);
	assert_string_equal(msg.text, "it ended");
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_url),
		T(test_keys_and_the_one_before),
		T(test_longest_key),
		T(test_key_of_a_pipe),
		T(test_no_locked_memory),
		cmocka_unit_test(test_retry_after),
		cmocka_unit_test(test_what_is_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
