/* The worker's side of its start: what the START message brought, ready for use. Before it: main,
 * which has given up all rights. After it: worker.c. */
#include <unistd.h>

#include "base/state.h"
#include "control/areas.h"
#include "control/worker.h"
#include "proxy/ca.h"

static void worker_start_source(struct worker_start *w)
{
	w->source = (struct settings_source){
		.config_path = role_text(ROLE_CONFIG),
		.config_fd = w->roles.fd[ROLE_CONFIG],
		.policy_fd = w->roles.fd[ROLE_POLICY_FILE],
		.resolv_conf_fd = w->roles.fd[ROLE_RESOLV_CONF],
		.deny_fd = w->roles.fd[ROLE_DENY_ALWAYS],
		.allow_fd = w->roles.fd[ROLE_ALLOW_ALWAYS],
		.log_skip_fd = w->roles.fd[ROLE_LOG_SKIP],
		.ceiling_fd = w->roles.fd[ROLE_CEILING],
		.environ = environ,
		.quiet = true,
	};
}

static int worker_start_map(int fd, enum role role, size_t len, uint8_t **out, struct errmsg *msg)
{
	void *ptr;
	int ret;

	if (fd < 0)
		return errmsg_set(msg, E_SYNTAX, "start message without %s", role_text(role));
	ret = state_map(fd, len, &ptr);
	if (ret < 0)
		return errmsg_set(msg, ret, "%s: %s", role_text(role), err_text(ret));
	*out = ptr;
	return 0;
}

int worker_receive_start(int control_fd, struct worker_start *out, struct errmsg *msg)
{
	enum control_type type;
	int ret;

	*out = (struct worker_start){.secret_len = AREA_SECRET_LEN,
		.vault_len = AREA_VAULT_LEN,
		.plain_len = area_plain_len()};
	ret = control_receive(control_fd, &type, &out->roles);
	if (ret < 0)
		return errmsg_set(msg, ret, "no start message: %s", err_text(ret));
	if (type != CONTROL_START) {
		ret = errmsg_set(msg, E_SYNTAX, "%s message before start", control_text(type));
		goto fail;
	}
	worker_start_source(out);
	if (out->roles.fd[ROLE_CAUSE] >= 0 && out->roles.fd[ROLE_AREA_PLAIN] < 0)
		return 0; /* nothing is kept from a start that cannot succeed */
	if (out->roles.fd[ROLE_CAUSE] >= 0) {
		ret = worker_start_map(out->roles.fd[ROLE_AREA_PLAIN], ROLE_AREA_PLAIN,
			out->plain_len, &out->plain, msg);
		if (ret < 0)
			goto fail;
		return 0;
	}
	ret = worker_start_map(out->roles.fd[ROLE_AREA_SECRET], ROLE_AREA_SECRET, out->secret_len,
		&out->secret, msg);
	if (ret < 0)
		goto fail;
	ret = worker_start_map(
		out->roles.fd[ROLE_AREA_VAULT], ROLE_AREA_VAULT, out->vault_len, &out->vault, msg);
	if (ret < 0)
		goto fail;
	ret = worker_start_map(
		out->roles.fd[ROLE_AREA_PLAIN], ROLE_AREA_PLAIN, out->plain_len, &out->plain, msg);
	if (ret < 0)
		goto fail;
	return 0;
fail:
	worker_start_fini(out);
	return ret;
}

void worker_start_fini(struct worker_start *w)
{
	roles_fini(&w->roles);
}

void worker_start_update(struct worker_start *w, struct roles *from)
{
	roles_update(&w->roles, from);
	worker_start_source(w);
}

int worker_start_ca(const struct worker_start *w, struct ca **out)
{
	struct slice blob;

	*out = NULL;
	if (!state_cell_read(w->secret + AREA_SECRET_CA, AREA_SECRET_CA_LEN, &blob))
		return E_CHECKSUM;
	return ca_decode(blob, out);
}
