/* Loads settings from texts in memory, with what each start in mode proxy needs, and keeps what was
 * logged. For the tests of control/settings*. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/settings_int.h"

#define ENV_MAX 10
#define PROXY "OPENSANDBOX_EGRESS_MODE=proxy"
#define RESOLVERS "OPENSANDBOX_EGRESS_DNS_UPSTREAM=192.0.2.53"
#define CERT "EGRESS_CA_CERT_OUT=/x/ca.pem"
#define ALLOW_ALL "{\"defaultAction\":\"allow\"}"
#define RULES "OPENSANDBOX_EGRESS_RULES=" ALLOW_ALL

static inline int text_fd(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

struct load {
	const char *yaml;   /* NULL: no file */
	const char *file;   /* policy file, NULL: none */
	const char *resolv; /* resolv.conf, NULL: none */
	const char *env[ENV_MAX];
	const char *deny; /* the operator's rule files, NULL: none */
	const char *allow;
	const char *log_skip;
	const char *ceiling; /* NULL: no such file */
};

/* What a load gave. */
struct outcome {
	int ret;
	struct settings *s;
	struct errmsg msg;
	char log[8192];
};

static inline void read_log(int fd, struct outcome *o)
{
	ssize_t n = pread(fd, o->log, sizeof(o->log) - 1, 0);

	assert_true(n >= 0);
	o->log[n] = '\0';
	(void)close(fd);
}

/* bare: without the variables that every start in mode proxy needs. */
static inline void load_env(const struct load *l, bool bare, bool quiet, struct outcome *o)
{
	char *env[ENV_MAX + 5] = {NULL};
	struct settings_source src = {.config_path = "egress.yaml",
		.config_fd = l->yaml ? text_fd(l->yaml) : -1,
		.policy_fd = l->file ? text_fd(l->file) : -1,
		.resolv_conf_fd = l->resolv ? text_fd(l->resolv) : -1,
		.deny_fd = l->deny ? text_fd(l->deny) : -1,
		.allow_fd = l->allow ? text_fd(l->allow) : -1,
		.log_skip_fd = l->log_skip ? text_fd(l->log_skip) : -1,
		.ceiling_fd = l->ceiling ? text_fd(l->ceiling) : -1,
		.environ = env,
		.quiet = quiet};
	int log = memfd_create("log", MFD_CLOEXEC);
	size_t n = 0;
	size_t i;

	memset(o, 0, sizeof(*o));
	for (i = 0; i < ENV_MAX && l->env[i]; i++)
		env[n++] = strdup(l->env[i]);
	if (!bare) {
		env[n++] = strdup(PROXY);
		env[n++] = strdup(RESOLVERS);
		env[n++] = strdup(CERT);
		env[n++] = strdup(RULES);
	}
	log_setup(LOG_LEVEL_INFO, log, "test");
	o->ret = settings_load(&src, &o->s, &o->msg);
	log_setup(LOG_LEVEL_INFO, STDERR_FILENO, "test");
	read_log(log, o);
	for (i = 0; i < n; i++)
		free(env[i]);
	if (src.config_fd >= 0)
		(void)close(src.config_fd);
	if (src.policy_fd >= 0)
		(void)close(src.policy_fd);
	if (src.resolv_conf_fd >= 0)
		(void)close(src.resolv_conf_fd);
	if (src.deny_fd >= 0)
		(void)close(src.deny_fd);
	if (src.allow_fd >= 0)
		(void)close(src.allow_fd);
	if (src.log_skip_fd >= 0)
		(void)close(src.log_skip_fd);
	if (src.ceiling_fd >= 0)
		(void)close(src.ceiling_fd);
	if (o->ret < 0) {
		assert_null(o->s);
		assert_true(o->msg.text[0] != '\0');
	}
}

static inline struct settings *must_load(const struct load *l)
{
	struct outcome o;

	load_env(l, false, false, &o);
	if (o.ret < 0)
		fail_msg("%s", o.msg.text);
	return o.s;
}
