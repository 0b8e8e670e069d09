/* Leases that outlive a gate: which, for how long, and that a damaged cell gives none. */
#include "base/state.h"
#include "dns/dns_gate_int.h"
#include "dns/leases_int.h"
#include "tests/unit/dns/gate.h"

#define CELL_LEN (2 * LEASES_KEEP_MAX + 4096)
#define KEEP_MS 400 /* real; more than what leases_keep.c waits */

static const struct peer_row two[] = {
	{.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.1 1.0.0.2", .ttl = 30},
};

static _Alignas(8) char cell[CELL_LEN];

static void run_ms(struct fixture *f, unsigned ms)
{
	uint64_t end = real_ms() + ms;

	while (real_ms() < end) {
		event_base_loop(f->base, EVLOOP_NONBLOCK);
		guard_ack(0);
		usleep(500);
	}
}

static int setup_kept(void **state)
{
	struct fixture *f;
	int ret = setup(state);

	f = *state;
	memset(cell, 0, sizeof(cell));
	f->config.keep = cell;
	f->config.keep_len = sizeof(cell);
	gate_again(f);
	peer_script(&f->first, two, 1);
	return ret;
}

static void set_policy(struct fixture *f, const char *text)
{
	policy_unref(f->config.policy);
	f->config.policy = fixture_policy(false, text);
}

/* Leases of the ruleset that the kernel would get now. */
static size_t collect(struct fixture *f, uint32_t *seconds)
{
	const struct ruleset_options o = {
		.uid = 10042, .api_port = 1, .web_port = 2, .dns_port = 3, .enforce = 1};
	struct ruleset r;
	size_t n;

	ruleset_init(&r, &o);
	assert_int_equal(dns_gate_collect(f->gate, f->config.policy, &r), 0);
	n = r.n;
	*seconds = n > 0 ? r.entry[0].seconds : 0;
	dns_gate_abandon(f->gate);
	ruleset_fini(&r);
	return n;
}

static void test_the_next_gate_has_the_leases_with_the_time_they_have_left(void **state)
{
	struct fixture *f = *state;
	uint32_t seconds;

	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	run_ms(f, KEEP_MS);
	set_now(f, f->now_ms + 20000);
	gate_again(f);
	assert_int_equal(dns_gate_leases(f->gate), 2);
	assert_int_equal(leases_n_names(f->gate->leases), 1);
	assert_int_equal(collect(f, &seconds), 2);
	assert_int_equal(seconds, 70);
	/* And the one after it. */
	check_ask(f, "exact.test", DNS_A, "1.0.0.1 1.0.0.2");
	run_ms(f, KEEP_MS);
	gate_again(f);
	assert_int_equal(dns_gate_leases(f->gate), 4);
}

static void test_what_has_run_out_is_not_taken_up(void **state)
{
	static const struct {
		int64_t after_ms;
		size_t n;
	} rows[] = {{89999, 2}, {90000, 0}, {-270000, 2}, {-270001, 0}};
	struct fixture *f = *state;
	uint64_t start = f->now_ms;
	size_t i;

	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	run_ms(f, KEEP_MS);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		set_now(f, (uint64_t)((int64_t)start + rows[i].after_ms));
		gate_again(f);
		assert_int_equal(dns_gate_leases(f->gate), rows[i].n);
	}
}

static void test_what_policy_does_not_allow_is_not_taken_up(void **state)
{
	static const struct {
		const char *policy;
		size_t n;
	} rows[] = {{"allow read.test", 2}, {"allow exact.test", 0},
		{"allow read.test; deny 1.0.0.2", 1}, {"deny read.test; allow *.test", 0}};
	struct fixture *f = *state;
	size_t i;

	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	run_ms(f, KEEP_MS);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		set_policy(f, rows[i].policy);
		gate_again(f);
		assert_int_equal(dns_gate_leases(f->gate), rows[i].n);
	}
}

static void test_what_a_new_policy_forgets_is_not_kept(void **state)
{
	struct fixture *f = *state;

	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	run_ms(f, KEEP_MS);
	set_policy(f, "allow exact.test");
	dns_gate_configure(f->gate, &f->config);
	run_ms(f, KEEP_MS);
	set_policy(f, "allow read.test");
	gate_again(f);
	assert_int_equal(dns_gate_leases(f->gate), 0);
}

static void grant_names(struct fixture *f, unsigned first, unsigned n)
{
	char name[32];
	unsigned i;

	for (i = first; i < first + n; i++) {
		(void)snprintf(name, sizeof(name), "n%u.wild.test", i);
		check_ask(f, name, DNS_A, "1.0.0.1 1.0.0.2");
		guard.n = guard.n_done = 0;
	}
}

static bool has_name(struct fixture *f, unsigned i)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "n%u.wild.test", i);
	return map_find(f->gate->leases->names, slice_str(name)) != NULL;
}

static void test_the_names_used_last_and_those_with_connections_are_kept(void **state)
{
	struct fixture *f = *state;
	struct lease_name *ln;

	grant_names(f, 0, LEASES_KEEP_NAMES + 2);
	ln = map_find(f->gate->leases->names, SLICE("n0.wild.test"));
	ln->v[0].active = true;
	/* That look made it the one used last: so many others after it. */
	for (unsigned i = 1; i < LEASES_KEEP_NAMES + 2; i++)
		assert_true(has_name(f, i));
	leases_keep_soon(f->gate->leases);
	run_ms(f, KEEP_MS);
	gate_again(f);
	assert_int_equal(leases_n_names(f->gate->leases), LEASES_KEEP_NAMES + 1);
	assert_true(has_name(f, 0));
	assert_false(has_name(f, 1));
	assert_true(has_name(f, 2));
	/* The order of use too. */
	gate_again(f);
	grant_names(f, 1000, 1);
	run_ms(f, KEEP_MS);
	gate_again(f);
	assert_true(has_name(f, 1000));
	assert_false(has_name(f, 2));
	assert_true(has_name(f, 3));
}

static void check_range(struct slice key, void *value, void *arg)
{
	const struct lease_name *ln = value;
	const struct fixture *f = arg;
	uint32_t i;

	assert_true(ln->seen_ms <= f->now_ms);
	for (i = 0; i < ln->n; i++) {
		assert_true(ln->v[i].end_ms > f->now_ms);
		assert_true(ln->v[i].end_ms <= f->now_ms + LEASE_MAX_S * 1000);
	}
}

static void test_a_damaged_cell_gives_nothing_out_of_range(void **state)
{
	struct fixture *f = *state;
	char bytes[256];
	struct slice doc;
	size_t len, i;

	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	check_ask(f, "exact.test", DNS_A, "1.0.0.1 1.0.0.2");
	run_ms(f, KEEP_MS);
	assert_true(state_cell_read(cell, sizeof(cell), &doc));
	len = doc.len;
	assert_true(len < sizeof(bytes));
	memcpy(bytes, doc.p, len);
	for (i = 0; i < 2 * len; i++) {
		if (i >= len)
			bytes[i - len] = (char)~bytes[i - len];
		assert_int_equal(
			state_cell_write(cell, sizeof(cell), slice_make(bytes, i < len ? i : len)),
			0);
		if (i >= len)
			bytes[i - len] = (char)~bytes[i - len];
		gate_again(f);
		assert_true(dns_gate_leases(f->gate) <= 4);
		map_each(f->gate->leases->names, check_range, f);
		leases_tick(f->gate->leases);
	}
}

static void test_without_a_guard_nothing_is_taken_up(void **state)
{
	struct fixture *f = *state;

	check_ask(f, "read.test", DNS_A, "1.0.0.1 1.0.0.2");
	run_ms(f, KEEP_MS);
	f->config.guard = NULL;
	gate_again(f);
	assert_int_equal(dns_gate_leases(f->gate), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup_kept, teardown)
		T(test_the_next_gate_has_the_leases_with_the_time_they_have_left),
		T(test_what_has_run_out_is_not_taken_up),
		T(test_what_policy_does_not_allow_is_not_taken_up),
		T(test_what_a_new_policy_forgets_is_not_kept),
		T(test_the_names_used_last_and_those_with_connections_are_kept),
		T(test_a_damaged_cell_gives_nothing_out_of_range),
		T(test_without_a_guard_nothing_is_taken_up),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
