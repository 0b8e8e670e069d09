/* Descriptors and messages between supervisor and worker (control/roles, control/worker_start):
 * what arrives, and that a packet of another shape is refused without leaking a descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/state.h"
#include "control/areas.h"
#include "control/worker.h"

/* As control/roles.c has it: what goes over the wire. */
#define MAGIC 0x65677231u

struct packet {
	uint32_t magic;
	uint8_t type;
	uint8_t n;
	uint8_t role[ROLE_MAX];
	int32_t code;
};

static int open_null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* The lowest free number: the same before and after means that nothing leaked. */
static int lowest_free(void)
{
	int fd = open_null();

	(void)close(fd);
	return fd;
}

static void send_raw(int fd, const void *data, size_t len, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(64 * sizeof(int))];
	} anc = {.room = {0}};
	struct iovec iov = {(void *)(uintptr_t)data, len};
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
	assert_int_equal(sendmsg(fd, &m, 0), (ssize_t)len);
}

static void test_each_descriptor_arrives_at_its_role(void **state)
{
	enum control_type type;
	struct roles sent;
	struct roles got;
	int pair[2];
	int i;

	assert_int_equal(control_pair(pair), 0);
	roles_init(&sent);
	for (i = 0; i < ROLE_MAX; i++) {
		sent.fd[i] = memfd_create("role", MFD_CLOEXEC);
		assert_int_equal(write(sent.fd[i], "123456789abcdefghijklmnopqrs", (size_t)i), i);
	}
	assert_int_equal(control_send(pair[0], CONTROL_START, &sent), 0);
	assert_int_equal(control_receive(pair[1], &type, &got), 0);
	assert_int_equal(type, CONTROL_START);
	for (i = 0; i < ROLE_MAX; i++) {
		assert_int_equal(lseek(got.fd[i], 0, SEEK_END), i);
		assert_true(fcntl(got.fd[i], F_GETFD) & FD_CLOEXEC);
	}
	roles_fini(&got);
	roles_fini(&sent);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_message_without_descriptors_brings_none(void **state)
{
	enum control_type type;
	struct roles got;
	int pair[2];
	int i;

	assert_int_equal(control_pair(pair), 0);
	for (i = 0; i < CONTROL_MAX; i++) {
		assert_int_equal(control_send(pair[1], (enum control_type)i, NULL), 0);
		assert_int_equal(control_receive(pair[0], &type, &got), 0);
		assert_int_equal(type, i);
		assert_true(control_text(type)[0] != '\0');
	}
	for (i = 0; i < ROLE_MAX; i++) {
		assert_int_equal(got.fd[i], -1);
		assert_true(role_text((enum role)i)[0] != '\0');
	}
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_answer_brings_its_code(void **state)
{
	static const int codes[] = {0, -28, -10009};
	enum control_type type;
	struct roles got;
	int pair[2];
	int code;

	assert_int_equal(control_pair(pair), 0);
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		assert_int_equal(control_send_code(pair[0], CONTROL_SAVE, codes[i]), 0);
		assert_int_equal(control_receive_code(pair[1], &type, &got, &code), 0);
		assert_int_equal(type, CONTROL_SAVE);
		assert_int_equal(code, codes[i]);
	}
	assert_int_equal(control_send(pair[0], CONTROL_COMMIT, NULL), 0);
	assert_int_equal(control_receive_code(pair[1], &type, &got, &code), 0);
	assert_int_equal(code, 0);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_other_side_gone_is_the_end(void **state)
{
	enum control_type type;
	struct roles got;
	int pair[2];

	assert_int_equal(control_pair(pair), 0);
	assert_int_equal(control_send(pair[1], CONTROL_READY, NULL), 0);
	(void)close(pair[1]);
	assert_int_equal(control_receive(pair[0], &type, &got), 0);
	assert_int_equal(type, CONTROL_READY);
	assert_int_equal(control_receive(pair[0], &type, &got), E_EOF);
	assert_int_equal(control_send(pair[0], CONTROL_STOP, NULL), -EPIPE);
	(void)close(pair[0]);
}

static void test_nothing_to_read_is_not_the_end(void **state)
{
	enum control_type type;
	struct roles got;
	int pair[2];

	assert_int_equal(control_pair(pair), 0);
	assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(control_receive(pair[0], &type, &got), -EAGAIN);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_full_socket_does_not_block(void **state)
{
	int pair[2];
	int ret;

	assert_int_equal(control_pair(pair), 0);
	do {
		ret = control_send(pair[1], CONTROL_ROTATE, NULL);
	} while (ret == 0);
	assert_int_equal(ret, -EAGAIN);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_packet_of_another_shape_is_refused(void **state)
{
	static const struct {
		struct packet p;
		size_t len;
		size_t n_fds;
	} rows[] = {
		{{MAGIC + 1, CONTROL_STOP, 0, {0}, 0}, sizeof(struct packet), 0},
		{{MAGIC, CONTROL_MAX, 0, {0}, 0}, sizeof(struct packet), 0},
		{{MAGIC, 255, 0, {0}, 0}, sizeof(struct packet), 0},
		{{MAGIC, CONTROL_STOP, 0, {0}, 0}, sizeof(struct packet) - 1, 0},
		{{MAGIC, CONTROL_STOP, 0, {0}, 0}, 1, 0},
		/* more or fewer descriptors than it says */
		{{MAGIC, CONTROL_START, 1, {ROLE_CONFIG}, 0}, sizeof(struct packet), 0},
		{{MAGIC, CONTROL_START, 0, {0}, 0}, sizeof(struct packet), 1},
		{{MAGIC, CONTROL_START, 1, {ROLE_CONFIG}, 0}, sizeof(struct packet), 2},
		/* one role twice, a role that is none, more than there are */
		{{MAGIC, CONTROL_START, 2, {ROLE_CONFIG, ROLE_CONFIG}, 0}, sizeof(struct packet),
			2},
		{{MAGIC, CONTROL_START, 1, {ROLE_MAX}, 0}, sizeof(struct packet), 1},
		{{MAGIC, CONTROL_START, 1, {255}, 0}, sizeof(struct packet), 1},
		{{MAGIC, CONTROL_START, ROLE_MAX, {0}, 0}, sizeof(struct packet), 60},
		{{MAGIC, CONTROL_START, 60, {0}, 0}, sizeof(struct packet), 60},
	};
	int fds[64];
	size_t i;

	for (i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = open_null();
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		enum control_type type;
		struct roles got;
		int pair[2];
		int before;

		assert_int_equal(control_pair(pair), 0);
		before = lowest_free();
		send_raw(pair[1], &rows[i].p, rows[i].len, fds, rows[i].n_fds);
		assert_int_equal(control_receive(pair[0], &type, &got), E_SYNTAX);
		assert_int_equal(lowest_free(), before);
		(void)close(pair[0]);
		(void)close(pair[1]);
	}
	for (i = 0; i < ARRAY_LEN(fds); i++)
		(void)close(fds[i]);
}

static void test_packet_that_is_too_long_is_refused(void **state)
{
	char text[sizeof(struct packet) + 1] = {0};
	struct packet p = {MAGIC, CONTROL_STOP, 0, {0}, 0};
	enum control_type type;
	struct roles got;
	int pair[2];

	memcpy(text, &p, sizeof(p));
	assert_int_equal(control_pair(pair), 0);
	send_raw(pair[1], text, sizeof(text), NULL, 0);
	assert_int_equal(control_receive(pair[0], &type, &got), E_SYNTAX);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_update_replaces_what_is_new_and_keeps_the_rest(void **state)
{
	struct roles fresh;
	struct roles r;
	int before = lowest_free();
	int config;
	int audit;

	roles_init(&r);
	roles_init(&fresh);
	r.fd[ROLE_CONFIG] = open_null();
	r.fd[ROLE_HOSTS] = open_null();
	fresh.fd[ROLE_CONFIG] = config = open_null();
	fresh.fd[ROLE_AUDIT] = audit = open_null();
	roles_update(&r, &fresh);
	assert_int_equal(r.fd[ROLE_CONFIG], config);
	assert_int_equal(r.fd[ROLE_AUDIT], audit);
	assert_true(r.fd[ROLE_HOSTS] >= 0);
	assert_int_equal(fresh.fd[ROLE_CONFIG], -1);
	assert_int_equal(fresh.fd[ROLE_AUDIT], -1);
	roles_fini(&fresh);
	roles_fini(&r);
	assert_int_equal(lowest_free(), before);
}

/* --- the worker's start --- */

static void make_start(struct roles *r)
{
	roles_init(r);
	assert_true(state_create("test", AREA_SECRET_LEN, false, &r->fd[ROLE_AREA_SECRET]) >= 0);
	assert_true(state_create("test", AREA_VAULT_LEN, false, &r->fd[ROLE_AREA_VAULT]) >= 0);
	assert_true(state_create("test", area_plain_len(), false, &r->fd[ROLE_AREA_PLAIN]) >= 0);
	r->fd[ROLE_CONFIG] = open_null();
}

static void test_start_maps_the_areas_and_hands_out_the_ca(void **state)
{
	struct worker_start w;
	struct errmsg msg = {""};
	struct ca *made = NULL;
	struct ca *got = NULL;
	struct strbuf blob;
	struct roles sent;
	void *area;
	int pair[2];

	make_start(&sent);
	strbuf_init(&blob, CA_BLOB_MAX);
	assert_int_equal(ca_new(&made, &msg), 0);
	assert_int_equal(ca_encode(made, &blob), 0);
	assert_int_equal(state_map(sent.fd[ROLE_AREA_SECRET], AREA_SECRET_LEN, &area), 0);
	assert_int_equal(state_cell_write((uint8_t *)area + AREA_SECRET_CA, AREA_SECRET_CA_LEN,
				 strbuf_slice(&blob)),
		0);
	assert_int_equal(control_pair(pair), 0);
	assert_int_equal(control_send(pair[0], CONTROL_START, &sent), 0);
	assert_int_equal(worker_receive_start(pair[1], &w, &msg), 0);
	assert_true(w.source.quiet);
	assert_int_equal(w.source.config_fd, w.roles.fd[ROLE_CONFIG]);
	assert_int_equal(w.source.policy_fd, -1);
	assert_int_equal(worker_start_ca(&w, &got), 0);
	assert_int_equal(X509_cmp(made->cert, got->cert), 0);
	w.plain[w.plain_len - 1] = 1;
	w.vault[w.vault_len - 1] = 1;
	assert_int_equal(w.roles.fd[ROLE_VAULT], -1);
	worker_start_fini(&w);
	strbuf_fini(&blob);
	ca_free(made);
	ca_free(got);
	roles_fini(&sent);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_update_changes_the_source_of_settings(void **state)
{
	struct worker_start w;
	struct errmsg msg = {""};
	struct roles fresh;
	struct roles sent;
	struct ca *ca;
	int pair[2];

	make_start(&sent);
	assert_int_equal(control_pair(pair), 0);
	assert_int_equal(control_send(pair[0], CONTROL_START, &sent), 0);
	assert_int_equal(worker_receive_start(pair[1], &w, &msg), 0);
	assert_int_equal(worker_start_ca(&w, &ca), E_CHECKSUM);
	roles_init(&fresh);
	fresh.fd[ROLE_POLICY_FILE] = open_null();
	worker_start_update(&w, &fresh);
	assert_true(w.source.policy_fd >= 0);
	assert_int_equal(w.source.policy_fd, w.roles.fd[ROLE_POLICY_FILE]);
	worker_start_fini(&w);
	roles_fini(&sent);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

static void test_start_that_lacks_something_is_refused(void **state)
{
	static const enum role needed[] = {ROLE_AREA_SECRET, ROLE_AREA_VAULT, ROLE_AREA_PLAIN};
	struct worker_start w;
	struct errmsg msg;
	struct roles sent;
	int pair[2];
	int before;
	size_t i;

	assert_int_equal(control_pair(pair), 0);
	before = lowest_free();
	for (i = 0; i < ARRAY_LEN(needed); i++) {
		make_start(&sent);
		(void)close(sent.fd[needed[i]]);
		sent.fd[needed[i]] = -1;
		assert_int_equal(control_send(pair[0], CONTROL_START, &sent), 0);
		assert_true(worker_receive_start(pair[1], &w, &msg) < 0);
		assert_non_null(strstr(msg.text, role_text(needed[i])));
		roles_fini(&sent);
	}
	make_start(&sent);
	assert_int_equal(control_send(pair[0], CONTROL_RELOAD, &sent), 0);
	assert_int_equal(worker_receive_start(pair[1], &w, &msg), E_SYNTAX);
	/* An area of another length is of another build. */
	(void)close(sent.fd[ROLE_AREA_PLAIN]);
	assert_true(state_create("test", area_plain_len() + AREA_PAGE, false,
			    &sent.fd[ROLE_AREA_PLAIN]) >= 0);
	assert_int_equal(control_send(pair[0], CONTROL_START, &sent), 0);
	assert_true(worker_receive_start(pair[1], &w, &msg) < 0);
	roles_fini(&sent);
	(void)close(pair[0]);
	assert_int_equal(worker_receive_start(pair[1], &w, &msg), E_EOF);
	assert_int_equal(lowest_free(), pair[0] < before ? pair[0] : before);
	(void)close(pair[1]);
}

static void test_areas_hold_what_they_are_for(void **state)
{
	assert_true(state_cell_size(CA_BLOB_MAX) <= AREA_SECRET_CA_LEN);
	assert_true(state_cell_size(AREA_VAULT_DOC_MAX) <= AREA_VAULT_LEN);
	assert_true(state_cell_size(POLICY_DOC_MAX) <= AREA_PLAIN_POLICY_LEN);
	assert_true(AREA_PLAIN_AUDIT + audit_area_size() <= area_plain_len());
	assert_int_equal(AREA_PLAIN_AUDIT % AREA_PAGE, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_descriptor_arrives_at_its_role),
		cmocka_unit_test(test_message_without_descriptors_brings_none),
		cmocka_unit_test(test_answer_brings_its_code),
		cmocka_unit_test(test_other_side_gone_is_the_end),
		cmocka_unit_test(test_nothing_to_read_is_not_the_end),
		cmocka_unit_test(test_full_socket_does_not_block),
		cmocka_unit_test(test_packet_of_another_shape_is_refused),
		cmocka_unit_test(test_packet_that_is_too_long_is_refused),
		cmocka_unit_test(test_update_replaces_what_is_new_and_keeps_the_rest),
		cmocka_unit_test(test_start_maps_the_areas_and_hands_out_the_ca),
		cmocka_unit_test(test_update_changes_the_source_of_settings),
		cmocka_unit_test(test_start_that_lacks_something_is_refused),
		cmocka_unit_test(test_areas_hold_what_they_are_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
