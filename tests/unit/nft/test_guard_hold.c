/* The AF_XDP sockets between supervisor and guard (nft/guard_hold.h), with other descriptors in
 * their place. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "nft/guard_hold.h"

static int pair[2];

static int pair_open(void **state)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int pair_close(void **state)
{
	(void)close(pair[0]);
	(void)close(pair[1]);
	return 0;
}

static size_t open_descriptors(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_as_many_come_as_were_sent(void **state)
{
	static const size_t counts[] = {0, 1, GUARD_XSK_MAX};
	int sent[GUARD_XSK_MAX];
	int got[GUARD_XSK_MAX];
	size_t n;

	for (size_t i = 0; i < GUARD_XSK_MAX; i++)
		sent[i] = STDERR_FILENO;
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		assert_int_equal(guard_hold_send(pair[0], sent, counts[i]), 0);
		assert_int_equal(guard_hold_receive(pair[1], got, &n), 0);
		assert_int_equal(n, counts[i]);
		for (size_t k = 0; k < n; k++) {
			assert_true(fcntl(got[k], F_GETFD) & FD_CLOEXEC);
			(void)close(got[k]);
		}
	}
}

/* A message with descriptors, as sendmsg can make it. */
static void send_other(const void *p, size_t len, size_t n)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} anc = {0};
	const int fds[2] = {STDERR_FILENO, STDERR_FILENO};
	struct iovec iov = {(void *)(uintptr_t)p, len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (n > 0) {
		m.msg_control = anc.room;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	assert_int_equal(sendmsg(pair[0], &m, 0), (ssize_t)len);
}

static void test_another_message_is_refused_and_leaves_no_descriptor(void **state)
{
	static const struct {
		struct guard_hold hold;
		size_t len, n;
	} rows[] = {
		{{GUARD_HOLD_MAGIC, 1}, sizeof(struct guard_hold), 0},
		{{GUARD_HOLD_MAGIC, 1}, sizeof(struct guard_hold), 2},
		{{GUARD_HOLD_MAGIC, 0}, sizeof(struct guard_hold), 1},
		{{GUARD_HOLD_MAGIC + 1, 1}, sizeof(struct guard_hold), 1},
		{{GUARD_HOLD_MAGIC, 1}, sizeof(struct guard_hold) - 1, 1},
	};
	const size_t before = open_descriptors();
	struct guard_hold longer[2] = {{GUARD_HOLD_MAGIC, 1}, {0, 0}};
	int got[GUARD_XSK_MAX];
	size_t n;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		send_other(&rows[i].hold, rows[i].len, rows[i].n);
		if (guard_hold_receive(pair[1], got, &n) != E_SYNTAX || n != 0)
			fail_msg("row %zu", i);
	}
	send_other(longer, sizeof(longer), 1);
	assert_int_equal(guard_hold_receive(pair[1], got, &n), E_SYNTAX);
	assert_int_equal(open_descriptors(), before);
}

static void test_the_end_and_silence_are_told(void **state)
{
	const struct timeval limit = {0, 1000};
	int got[GUARD_XSK_MAX];
	size_t n;

	assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(guard_hold_receive(pair[1], got, &n), -EAGAIN);
	assert_int_equal(shutdown(pair[0], SHUT_WR), 0);
	assert_int_equal(guard_hold_receive(pair[1], got, &n), E_EOF);
	assert_int_equal(shutdown(pair[1], SHUT_RDWR), 0);
	assert_int_equal(guard_hold_send(pair[1], got, 0), -EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_as_many_come_as_were_sent, pair_open, pair_close),
		cmocka_unit_test_setup_teardown(
			test_another_message_is_refused_and_leaves_no_descriptor, pair_open,
			pair_close),
		cmocka_unit_test_setup_teardown(
			test_the_end_and_silence_are_told, pair_open, pair_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
