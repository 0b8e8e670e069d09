/* Records of flows: headers read without trust, repeats counted, a ceiling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "nft/flow_log.h"

static const uint8_t udp4[] = {0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 11, 22, 0, 66,
	0x17, 0x70, 0x13, 0x88, 0, 10, 0, 0};
static const uint8_t tcp6[] = {0x60, 0, 0, 0, 0, 4, 6, 64, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 2, 0x2a, 0x0e, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x66, 0x17, 0x70, 0x01,
	0xbb};

static void expect(const uint8_t *p, size_t len, const char *to, uint16_t from_port,
	uint16_t to_port, uint8_t proto)
{
	struct guard_flow f = {0};
	char text[NETADDR_TEXT_MAX];

	assert_true(flow_log_decode(slice_make((const char *)p, len), &f));
	(void)netaddr_text(&f.to, text);
	assert_string_equal(text, to);
	assert_int_equal(f.from_port, from_port);
	assert_int_equal(f.to_port, to_port);
	assert_int_equal(f.proto, proto);
}

static void test_addresses_ports_and_protocol(void **state)
{
	uint8_t p[64] = {0};

	expect(udp4, sizeof(udp4), "11.22.0.66", 6000, 5000, IPPROTO_UDP);
	expect(tcp6, sizeof(tcp6), "2a0e:77::66", 6000, 443, IPPROTO_TCP);
	/* No ports in ICMP, and none in a later fragment or a header that is cut. */
	memcpy(p, udp4, sizeof(udp4));
	p[9] = IPPROTO_ICMP;
	expect(p, sizeof(udp4), "11.22.0.66", 0, 0, IPPROTO_ICMP);
	memcpy(p, udp4, sizeof(udp4));
	p[7] = 1;
	expect(p, sizeof(udp4), "11.22.0.66", 0, 0, IPPROTO_UDP);
	expect(udp4, 23, "11.22.0.66", 0, 0, IPPROTO_UDP);
	/* Options lie between. */
	memcpy(p, udp4, 20);
	p[0] = 0x46;
	memcpy(p + 24, udp4 + 20, 8);
	expect(p, 32, "11.22.0.66", 6000, 5000, IPPROTO_UDP);
}

static void test_what_is_no_packet_gives_nothing(void **state)
{
	static const uint8_t five[40] = {0x55};
	struct guard_flow f = {0};

	for (size_t len = 0; len < 20; len++)
		assert_false(flow_log_decode(slice_make((const char *)udp4, len), &f));
	for (size_t len = 0; len < 40; len++)
		assert_false(flow_log_decode(slice_make((const char *)tcp6, len), &f));
	assert_false(flow_log_decode(slice_make((const char *)five, sizeof(five)), &f));
}

static void test_repeats_are_counted_and_differences_are_not(void **state)
{
	struct flow_log *l = xcalloc(1, sizeof(*l));
	struct guard_flow f = {.count = 1, .proto = 6, .to_port = 443, .has_uid = 1, .uid = 7};
	struct guard_flow other;

	flow_log_add(l, &f);
	f.from_port = 9; /* each try has another one */
	flow_log_add(l, &f);
	assert_int_equal(l->n, 1);
	assert_int_equal(l->v[0].count, 2);
#define DIFFERS(field, value)            \
	do {                             \
		other = f;               \
		other.field = (value);   \
		flow_log_add(l, &other); \
	} while (0)
	DIFFERS(verdict, GUARD_FLOW_REFUSED);
	DIFFERS(proto, 17);
	DIFFERS(to_port, 80);
	DIFFERS(has_uid, 0);
	DIFFERS(uid, 8);
	DIFFERS(to.b[15], 1);
	assert_int_equal(l->n, 7);
	free(l);
}

static void test_past_the_ceiling_is_counted_as_lost(void **state)
{
	struct flow_log *l = xcalloc(1, sizeof(*l));
	struct guard_flow f = {.count = 1};

	for (uint32_t i = 0; i < FLOW_LOG_MAX + 3; i++) {
		f.to_port = (uint16_t)(1 + i);
		flow_log_add(l, &f);
	}
	assert_int_equal(l->n, FLOW_LOG_MAX);
	assert_int_equal(l->lost, 3);
	f.to_port = 1;
	flow_log_add(l, &f);
	assert_int_equal(l->lost, 3);
	free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses_ports_and_protocol),
		cmocka_unit_test(test_what_is_no_packet_gives_nothing),
		cmocka_unit_test(test_repeats_are_counted_and_differences_are_not),
		cmocka_unit_test(test_past_the_ceiling_is_counted_as_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
