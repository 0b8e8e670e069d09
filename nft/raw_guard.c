/* The table netdev rawguard: frames that did not come down from IP end at the device. Before it:
 * guard.c, which knows the devices; after it: batch.c. AF_XDP goes round this hook (xsk.c). */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <libmnl/libmnl.h>

#include "nft/tables_int.h"

/* Younger than the headers of Debian 12. */
#define HOOK_EGRESS 1   /* NF_NETDEV_EGRESS, Linux 5.16 */
#define DEVICE_PREFIX 2 /* NFTA_DEVICE_PREFIX, Linux 6.18 and stable trees after 6.16 */

#define RAW_CHAIN "e"

static void raw_guard_chain(struct batch *b, const char *const *names, size_t n)
{
	struct nlmsghdr *m =
		batch_open(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE, NFPROTO_NETDEV, GUARD_PART_RAW_GUARD);
	struct nlattr *hook;
	struct nlattr *devices;

	mnl_attr_put_strz(m, NFTA_CHAIN_TABLE, TABLES_RAW_NAME);
	mnl_attr_put_strz(m, NFTA_CHAIN_NAME, RAW_CHAIN);
	hook = mnl_attr_nest_start(m, NFTA_CHAIN_HOOK);
	mnl_attr_put_u32(m, NFTA_HOOK_HOOKNUM, htonl(HOOK_EGRESS));
	mnl_attr_put_u32(m, NFTA_HOOK_PRIORITY, htonl(0));
	devices = mnl_attr_nest_start(m, NFTA_HOOK_DEVS);
	if (!names)
		mnl_attr_put_strz(m, DEVICE_PREFIX, "");
	for (size_t i = 0; names && i < n; i++)
		mnl_attr_put_strz(m, NFTA_DEVICE_NAME, names[i]);
	mnl_attr_nest_end(m, devices);
	mnl_attr_nest_end(m, hook);
	mnl_attr_put_u32(m, NFTA_CHAIN_POLICY, htonl(NF_DROP));
	mnl_attr_put_strz(m, NFTA_CHAIN_TYPE, "filter");
	batch_close(b, m);
}

static void raw_guard_end(struct expr_rule *r, int verdict)
{
	expr_verdict(r, verdict, NULL);
	expr_close(r);
}

void tables_build_raw(struct batch *b, const char *const *names, size_t n)
{
	static const uint8_t first_octet = 127;
	static const uint8_t loopback_v6[16] = {[15] = 1};
	struct expr_rule r = {.batch = b, .table = TABLES_RAW_NAME, .family = NFPROTO_NETDEV};

	tables_replace(b, NFPROTO_NETDEV, TABLES_RAW_NAME, NULL, 0, GUARD_PART_RAW_GUARD);
	raw_guard_chain(b, names, n);
	/* Packet taps come after this hook and could read a mark. */
	expr_open(&r, RAW_CHAIN, GUARD_PART_RAW_GUARD);
	expr_clear_mark(&r);
	expr_close(&r);
	/* Redirected, but bound to a device (SO_BINDTODEVICE): the payload would leave towards
	 * 127.0.0.1. */
	expr_open(&r, RAW_CHAIN, GUARD_PART_RAW_GUARD);
	expr_oif_lo(&r, EXPR_IS_NOT);
	expr_ethertype(&r, ETH_P_IP);
	expr_network(&r, 16, &first_octet, 1);
	raw_guard_end(&r, NF_DROP);
	expr_open(&r, RAW_CHAIN, GUARD_PART_RAW_GUARD);
	expr_oif_lo(&r, EXPR_IS_NOT);
	expr_ethertype(&r, ETH_P_IPV6);
	expr_network(&r, 24, loopback_v6, sizeof(loopback_v6));
	raw_guard_end(&r, NF_DROP);
	expr_open(&r, RAW_CHAIN, GUARD_PART_RAW_GUARD);
	expr_has_route(&r);
	raw_guard_end(&r, NF_ACCEPT);
	/* ARP of a packet socket; the kernel's own has none. */
	expr_open(&r, RAW_CHAIN, GUARD_PART_RAW_GUARD);
	expr_ethertype(&r, ETH_P_ARP);
	expr_has_socket(&r);
	raw_guard_end(&r, NF_DROP);
	expr_open(&r, RAW_CHAIN, GUARD_PART_RAW_GUARD);
	expr_ethertype(&r, ETH_P_ARP);
	raw_guard_end(&r, NF_ACCEPT);
}
