#!/usr/bin/env python3
"""images/trust/egress-trust with all clients that are here, and by other shells: netns/trust.py has
what it does, the clients, and the quick ones; guardbed.py the `--list`."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "netns"))
import guardbed  # noqa: E402
import trust  # noqa: E402
from guardbed import Skip  # noqa: E402

PLAIN = ("curl", "git", "python-ssl", "java", "go")  # what looks into stores, too


class Bed(trust.Bed):
    HIDDEN = ()


def case_all_clients_before(bed):
    trust.before(bed, ())


def case_all_clients_by_variables(bed):
    trust.by_variables(bed, ())


def case_all_clients_by_stores(bed):
    trust.by_stores(bed, (), PLAIN)


def case_trust_twice(bed):
    trust.again(bed)


def case_trust_in_the_next_CA(bed):
    trust.next_ca(bed, ("curl", "python-ssl", "node", "java"), ("curl", "java"))


def case_trust_by_other_shells(bed):
    shells = [s for s in (("bash", "--posix"), ("busybox", "sh")) if shutil.which(s[0])]
    if not shells:
        raise Skip("no other shell")
    for shell in shells:
        bed.shell = shell
        trust.by_variables(bed, trust.QUICK)
        trust.case_what_is_set_stays(bed)
    bed.shell = Bed.shell


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
