#!/usr/bin/env python3
"""Every way round the sidecar that we know, by three users; netns/bypass.py has the `--list`."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "netns"))
import bypass  # noqa: E402
import bypass_live as live  # noqa: E402
import sidecarbed  # noqa: E402


def case_all_names(bed):
    bypass.battery(bed, ["dns"], 70)


def case_all_http(bed):
    bypass.battery(bed, ["web"], 210)


def case_all_tls(bed):
    bypass.battery(bed, ["tls"], 40)


def case_all_addresses(bed):
    bypass.battery(bed, ["guard-addresses"], 30)


def case_all_rights(bed):
    bypass.battery(bed, ["guard-rights"], 6)


def case_all_forged(bed):
    bypass.battery(bed, ["guard-forged"], 20)


def case_all_packets(bed):
    bypass.battery(bed, ["guard-packets"], 30)


def case_all_devices(bed):
    bypass.battery(bed, ["guard-devices"], 15)


def case_kernel_rules_without_the_read_only_rule(bed):
    """Direct flows are possible: the sets of what is allowed are what stands in the way."""
    bypass.battery(bed, [f"guard-{g}" for g in ("addresses", "forged", "packets", "devices")], 115,
                   AGENTIC_WRITE_HOSTS=None)


def case_iodine_moves_nothing(bed):
    live.held(bed, live.iodine, "tunnel")


def case_dns2tcp_moves_nothing(bed):
    live.held(bed, live.dns2tcp, "tunnel")


def case_users_cgroups_and_namespaces(bed):
    live.held(bed, live.users, "users")


def case_cgroup_one(bed):
    live.held(bed, live.cgroup_one, "cgroup id 1", own_cgroup=False)


def case_families(bed):
    live.held(bed, live.families, "families")


def case_our_ports_are_not_taken(bed):
    live.held(bed, live.thieves, "ports")


def case_ports_taken_before_us(bed):
    live.thieves_before(bed)


def case_answers_to_our_resolver_are_not_forged(bed):
    live.held(bed, live.spoofed_answers, "answers")


def case_answers_that_change(bed):
    live.held(bed, live.answers_that_change, "answers")


def case_long_flows_by_the_proxy(bed):
    live.held(bed, lambda b: live.long_flows(b, False), "long flows")


def case_long_flows_by_the_kernel(bed):
    more = [("allow", a, None) for a in (live.TWO[4], live.TWO[6])]
    live.held(bed, lambda b: live.long_flows(b, True), "long flows", AGENTIC_WRITE_HOSTS=None,
              rules=sidecarbed.RULES + more)


def case_expired_leases(bed):
    live.held(bed, live.expired_lease, "leases", AGENTIC_WRITE_HOSTS=None)


if __name__ == "__main__":
    sidecarbed.main(globals())
