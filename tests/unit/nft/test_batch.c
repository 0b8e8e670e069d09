/* Transactions against scripted answers of the kernel: what counts as committed, and which part a
 * refusal is about. */
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nft/batch.h"

ssize_t __wrap_mnl_socket_sendto(const struct mnl_socket *s, const void *p, size_t len);
ssize_t __wrap_mnl_socket_recvfrom(const struct mnl_socket *s, void *p, size_t len);

/* One answer: to the message with this number in the batch (0: its begin), or an error of recv. */
struct answer {
	int to;
	int err;
	bool ack; /* in one packet with the next */
	int recv_errno;
	int shift; /* of the sequence number: somebody else's answer */
};

struct script {
	const struct answer *v;
	size_t n;
	size_t at;
	uint32_t first;
	uint32_t acks; /* messages that ask for one */
	uint32_t count;
	bool numbered;
	int send_errno;
};

static struct script *script_of;

ssize_t __wrap_mnl_socket_sendto(const struct mnl_socket *s, const void *p, size_t len)
{
	size_t at = 0;

	if (script_of->send_errno) {
		errno = script_of->send_errno;
		return -1;
	}
	script_of->numbered = true;
	while (at < len) {
		const struct nlmsghdr *m =
			(const struct nlmsghdr *)(const void *)((const uint8_t *)p + at);

		if (at == 0)
			script_of->first = m->nlmsg_seq;
		script_of->numbered &= m->nlmsg_seq == script_of->first + script_of->count;
		script_of->acks += (m->nlmsg_flags & NLM_F_ACK) != 0;
		script_of->count++;
		at += NLMSG_ALIGN(m->nlmsg_len);
	}
	return (ssize_t)len;
}

ssize_t __wrap_mnl_socket_recvfrom(const struct mnl_socket *s, void *p, size_t len)
{
	size_t used = 0;
	bool more = true;

	while (more) {
		const struct answer *a;
		struct nlmsghdr *m = (struct nlmsghdr *)(void *)((uint8_t *)p + used);
		struct nlmsgerr *e;

		/* A batch that waits for more than the kernel says would hang. */
		assert_true(script_of->at < script_of->n);
		a = &script_of->v[script_of->at++];
		if (a->recv_errno) {
			errno = a->recv_errno;
			return -1;
		}
		memset(m, 0, MNL_NLMSG_HDRLEN + sizeof(*e));
		m->nlmsg_len = MNL_NLMSG_HDRLEN + sizeof(*e);
		m->nlmsg_type = NLMSG_ERROR;
		m->nlmsg_seq = script_of->first + (uint32_t)a->to + (uint32_t)a->shift;
		e = mnl_nlmsg_get_payload(m);
		e->error = a->err;
		used += NLMSG_ALIGN(m->nlmsg_len);
		more = a->ack;
	}
	return (ssize_t)used;
}

static int commit(const struct answer *v, size_t n, struct script *s, enum guard_part *part)
{
	static const enum guard_part parts[] = {
		GUARD_PART_TABLE, GUARD_PART_LOG, GUARD_PART_SOURCES};
	struct netlink nl = {.seq = 1000};
	struct batch b;
	int ret;

	s->v = v;
	s->n = n;
	script_of = s;
	batch_init(&b);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		struct nlmsghdr *m = batch_open(&b, NFT_MSG_NEWTABLE, 0, 1, parts[i]);

		mnl_attr_put_strz(m, NFTA_TABLE_NAME, "x");
		batch_close(&b, m);
	}
	ret = batch_commit(&b, &nl, part);
	batch_fini(&b);
	return ret;
}

static void test_answers_of_the_kernel(void **state)
{
	static const struct {
		struct answer v[4];
		size_t n;
		int ret;
		enum guard_part part;
	} rows[] = {
		/* committed */
		{{{3, 0, false, 0, 0}}, 1, 0, GUARD_PART_MAX},
		{{{0, 0, false, EINTR, 0}, {3, 0, false, 0, 0}}, 2, 0, GUARD_PART_MAX},
		/* one message, or several, are refused */
		{{{1, -EINVAL, true, 0, 0}, {3, 0, false, 0, 0}}, 2, -EINVAL, GUARD_PART_TABLE},
		{{{2, -EOPNOTSUPP, false, 0, 0}, {3, 0, false, 0, 0}}, 2, -EOPNOTSUPP,
			GUARD_PART_LOG},
		{{{3, -ENOENT, false, 0, 0}}, 1, -ENOENT, GUARD_PART_SOURCES},
		{{{2, -ENOENT, false, 0, 0}, {3, -EINVAL, false, 0, 0}}, 2, -ENOENT,
			GUARD_PART_LOG},
		/* the commit itself fails: the messages were all right */
		{{{0, -EBUSY, true, 0, 0}, {3, 0, false, 0, 0}}, 1, -EBUSY, GUARD_PART_MAX},
		{{{0, -EPERM, false, 0, 0}}, 1, -EPERM, GUARD_PART_MAX},
		/* no answer */
		{{{0, 0, false, EAGAIN, 0}}, 1, -ETIMEDOUT, GUARD_PART_MAX},
		{{{0, 0, false, ENOBUFS, 0}}, 1, -ENOBUFS, GUARD_PART_MAX},
		/* the late answer to an earlier batch says nothing about this one */
		{{{3, -EINVAL, false, 0, -100}, {3, 0, false, 0, 0}}, 2, 0, GUARD_PART_MAX},
		{{{3, 0, false, 0, 100}, {2, -ENOENT, true, 0, 0}, {3, 0, false, 0, 0}}, 3, -ENOENT,
			GUARD_PART_LOG},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		enum guard_part part = GUARD_PART_TABLE;
		struct script s = {0};

		assert_int_equal(commit(rows[i].v, ARRAY_LEN(rows[i].v), &s, &part), rows[i].ret);
		assert_int_equal(part, rows[i].part);
		/* Begin, three, end; one acknowledgement. */
		assert_int_equal(s.count, 5);
		assert_int_equal(s.acks, 1);
		assert_true(s.numbered);
	}
}

static void test_what_cannot_be_sent_is_an_error(void **state)
{
	struct script s = {.send_errno = EPERM};
	enum guard_part part;

	assert_int_equal(commit(NULL, 0, &s, &part), -EPERM);
	assert_int_equal(part, GUARD_PART_MAX);
}

static void test_a_full_batch_is_not_sent(void **state)
{
	struct netlink nl = {0};
	struct script s = {.send_errno = EIO};
	enum guard_part part;
	struct batch b;

	script_of = &s;
	batch_init(&b);
	while (!b.full) {
		static uint8_t zero[60000];
		struct nlmsghdr *m = batch_open(&b, NFT_MSG_NEWTABLE, 0, 1, GUARD_PART_TABLE);

		mnl_attr_put(m, 1, sizeof(zero), zero);
		batch_close(&b, m);
	}
	assert_int_equal(batch_commit(&b, &nl, &part), -EMSGSIZE);
	batch_fini(&b);
	/* Nothing to do is done without asking anybody. */
	batch_init(&b);
	assert_int_equal(batch_commit(&b, &nl, &part), 0);
	batch_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers_of_the_kernel),
		cmocka_unit_test(test_what_cannot_be_sent_is_an_error),
		cmocka_unit_test(test_a_full_batch_is_not_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
