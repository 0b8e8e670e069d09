/* The program egress-guard: opens what it needs, gives up everything but CAP_NET_ADMIN, and serves.
 * Started by the supervisor with its two pairs as descriptors 3 and 4; takes no argument and reads
 * no file and no variable. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/proc.h"
#include "nft/guard.h"
#include "nft/guard_hold.h"

#define GUARD_EXIT_OK 0
#define GUARD_EXIT_FAILED 1 /* the system failed, or the worker sent what is no message */
#define GUARD_EXIT_RIGHTS 2 /* a start that cannot succeed */

/* Copies of all sockets to the supervisor, so that a guard's death frees no queue. */
static int guard_send_held(const struct xsk *x)
{
	int fds[GUARD_XSK_MAX];

	for (size_t i = 0; i < x->n; i++)
		fds[i] = x->v[i].fd;
	return guard_hold_send(GUARD_HOLD_FD, fds, x->n);
}

/* Sockets from the supervisor, or new ones. A kernel or a container without AF_XDP or CAP_NET_RAW
 * is served without: g->xsk_err says so in the state. */
static int guard_open_xsk(struct guard *g, struct xsk *x)
{
	int fds[GUARD_XSK_MAX];
	size_t n;
	int ret;

	ret = guard_hold_receive(GUARD_HOLD_FD, fds, &n);
	if (ret < 0)
		return ret;
	g->xsk_err = n > 0 ? xsk_adopt(x, fds, n) : xsk_open(x);
	if (g->xsk_err == 0)
		g->xsk = x;
	return n > 0 ? 0 : guard_send_held(x);
}

static int guard_open(struct guard *g, struct flow_log *f, struct errmsg *msg)
{
	int ret;

	ret = netlink_open(&g->nft, NETLINK_NETFILTER, 0);
	if (ret == 0)
		ret = netlink_open(&g->links, NETLINK_ROUTE, 0);
	if (ret == 0)
		ret = netlink_open(&g->events, NETLINK_ROUTE, RTMGRP_LINK);
	if (ret < 0)
		return errmsg_set(msg, ret, "netlink: %s", err_text(ret));
	ret = netlink_generation(&g->nft, &g->generation);
	if (ret == -EPERM)
		return errmsg_set(msg, ret,
			"nftables: not permitted: modes dns and dns+nft need CAP_NET_ADMIN");
	if (ret < 0)
		return errmsg_set(
			msg, ret, "nftables: %s: the kernel needs nf_tables", err_text(ret));
	g->flows_err = flow_log_open(f);
	if (g->flows_err == 0)
		g->flows = f;
	else
		log_warn("guard", "no record of direct flows (NFLOG): %s", err_text(g->flows_err));
	return 0;
}

/* CAP_NET_ADMIN alone, in the permitted and the effective set. */
static int guard_keep_admin(struct errmsg *msg)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {
		{.effective = BIT(CAP_NET_ADMIN), .permitted = BIT(CAP_NET_ADMIN)}};

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, caps) < 0)
		return errmsg_set(
			msg, -errno, "capset: %s (needs CAP_NET_ADMIN)", err_text(-errno));
	return 0;
}

static int guard_give_up_rights(struct errmsg *msg)
{
	int ret = 0;

	if (getuid() == 0) {
		if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
			return errmsg_set(msg, -errno, "PR_SET_KEEPCAPS: %s", err_text(-errno));
		ret = proc_drop(GUARD_UID, GUARD_UID, msg);
	}
	if (ret == 0)
		ret = guard_keep_admin(msg);
	if (ret == 0)
		ret = proc_harden(true, msg);
	if (ret == 0)
		ret = proc_seccomp(msg);
	return ret;
}

static int guard_serve(struct guard *g, struct errmsg *msg)
{
	int ret = guard_run(g);

	if (ret == E_SYNTAX)
		return errmsg_set(msg, ret, "the worker sent what is no message");
	return ret < 0 ? errmsg_set(msg, ret, "%s", err_text(ret)) : 0;
}

int main(void)
{
	static struct flow_log flows; /* 16 KiB */
	static struct xsk xsk;
	static struct guard g = {.worker_fd = GUARD_WORKER_FD};
	struct errmsg msg = {""};
	int code = GUARD_EXIT_RIGHTS;
	int ret;

	log_setup(LOG_LEVEL_INFO, STDERR_FILENO, "egress-guard");
	ret = guard_open(&g, &flows, &msg);
	if (ret == 0) {
		ret = guard_open_xsk(&g, &xsk);
		if (ret < 0)
			(void)errmsg_set(
				&msg, ret, "no message from the supervisor: %s", err_text(ret));
	}
	if (ret == 0)
		ret = guard_give_up_rights(&msg);
	if (ret == 0) {
		code = GUARD_EXIT_FAILED;
		ret = guard_serve(&g, &msg);
	}
	if (ret < 0)
		log_error("guard", "%s", msg.text);
	guard_fini(&g);
	return ret < 0 ? code : GUARD_EXIT_OK;
}
