/* Devices. After it: raw_guard.c (by name), xsk.c (by index). */
#include "nft/links.h"

#include <linux/rtnetlink.h>

static int links_on_link(const struct nlmsghdr *m, void *arg)
{
	const struct ifinfomsg *info = mnl_nlmsg_get_payload(m);
	struct links *l = arg;
	struct link *link = &l->v[l->n];
	struct nlattr *a;

	if (m->nlmsg_type != RTM_NEWLINK || m->nlmsg_len < MNL_NLMSG_HDRLEN + sizeof(*info))
		return MNL_CB_OK;
	if (l->n == LINKS_MAX) {
		l->more = true;
		return MNL_CB_OK;
	}
	*link = (struct link){.index = info->ifi_index};
	mnl_attr_for_each(a, m, sizeof(*info))
	{
		if (mnl_attr_get_type(a) != IFLA_IFNAME ||
			mnl_attr_validate(a, MNL_TYPE_NUL_STRING) < 0 ||
			mnl_attr_get_payload_len(a) > sizeof(link->name))
			continue;
		memcpy(link->name, mnl_attr_get_str(a), mnl_attr_get_payload_len(a));
	}
	if (link->name[0] != '\0')
		l->n++;
	return MNL_CB_OK;
}

int links_read(struct netlink *n, struct links *out)
{
	_Alignas(struct nlmsghdr) uint8_t buf[256];
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *info;

	*out = (struct links){0};
	m->nlmsg_type = RTM_GETLINK;
	m->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	info = mnl_nlmsg_put_extra_header(m, sizeof(*info));
	info->ifi_family = AF_UNSPEC;
	return netlink_ask(n, m, links_on_link, out);
}

bool links_has(const struct links *l, int index)
{
	for (size_t i = 0; i < l->n; i++) {
		if (l->v[i].index == index)
			return true;
	}
	return false;
}
