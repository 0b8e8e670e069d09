/* The CA certificate's file: clients of the sandbox read it, and the sandbox can remove it. Before
 * it: supervisor_start.c and SIGHUP; after it: nobody. */
#include <errno.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "control/files.h"
#include "control/supervisor_int.h"

static bool ca_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
		a->st_mode == b->st_mode && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
		a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
		a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool ca_wanted(const struct supervisor *s)
{
	if (s->settings->mode == MODE_PROXY)
		return true;
	return !s->closed && s->settings->proxy && s->settings->intercept != INTERCEPT_OFF;
}

int supervisor_write_cert(struct supervisor *s, struct errmsg *msg)
{
	const char *path = s->settings->ca_cert_out;
	int ret;

	if (!ca_wanted(s))
		return 0;
	ret = files_replace(path, strbuf_slice(&s->ca_cert), 0644, s->own_cert_dir, msg);
	if (ret == 0 && lstat(path, &s->ca_seen) < 0)
		ret = errmsg_set(msg, -errno, "%s: %s", path, err_text(-errno));
	if (ret < 0)
		return errmsg_prefix(msg, ret,
			"the CA certificate cannot be written (set EGRESS_CA_CERT_OUT%s)",
			s->own_cert_dir ? " or XDG_STATE_HOME" : "");
	return 0;
}

void supervisor_remove_cert(struct supervisor *s)
{
	struct errmsg msg = {""};

	if (s->settings->mode == MODE_PROXY)
		return;
	/* One that stays is told of where the certificate is written. */
	if (files_remove(s->settings->ca_cert_out, &msg) < 0)
		log_warn("supervisor", "an earlier CA certificate: %s", msg.text);
}

uint64_t supervisor_ca_due(const struct supervisor *s)
{
	/* On a developer's machine nobody but the developer removes it. */
	return ca_wanted(s) && s->settings->mode != MODE_PROXY ? s->ca_look_at : UINT64_MAX;
}

void supervisor_ca_look(struct supervisor *s)
{
	struct errmsg msg = {""};
	struct stat now;
	int ret = 0;

	s->ca_look_at = clock_mono_ms() + SUPERVISOR_CA_MS;
	if (lstat(s->settings->ca_cert_out, &now) < 0 || !ca_same(&now, &s->ca_seen))
		ret = supervisor_write_cert(s, &msg);
	if (ret == s->ca_error)
		return;
	s->ca_error = ret;
	if (ret < 0)
		log_error("supervisor", "%s", msg.text);
	supervisor_tell_code(s, CONTROL_CA, ret);
}
