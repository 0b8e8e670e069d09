#!/usr/bin/env python3
"""Random policies under random ceilings, against a model: whatever the API takes, a name or an address is
let through only if the policy and the ceiling let it through, each judged as if it were alone. In a network
of its own, since addresses that are let through are dialled. Bed: apibed.py."""
import ipaddress
import json
import os
import random
import subprocess
import sys
import tempfile

import apibed
import casebed
from apibed import Skip, main, running, want

TARGETS = ["a.test", "x.a.test", "*.a.test", "*.x.a.test", "b.test", "*.test", "y.x.a.test",
           "11.22.0.0/24", "11.22.0.66", "11.22.0.0/16", "11.22.0.64/26"]
NAMES = ["a.test", "x.a.test", "q.a.test", "q.x.a.test", "y.x.a.test", "z.y.x.a.test", "b.test",
         "c.test"]
ADDRESSES = ["11.22.0.66", "11.22.0.67", "11.22.0.1", "11.22.1.1", "11.33.0.1"]
CEILINGS = int(os.environ.get("CEILINGS", "12"))
POLICIES = 6


def fits(target, what):
    if what[0].isdigit():
        return target[0].isdigit() and ipaddress.ip_address(what) in ipaddress.ip_network(target)
    return what.endswith(target[1:]) if target[0] == "*" else what == target


def verdict_of(doc, what):
    """Names: the first rule that fits. Addresses: whatever is denied, then whatever is allowed."""
    actions = [r["action"] for r in doc["egress"] if fits(r["target"], what)]
    if not actions:
        return doc["defaultAction"]
    return "deny" if what[0].isdigit() and "deny" in actions else actions[0]


def some_policy(r, most):
    return {"defaultAction": r.choice(["deny", "deny", "allow"]),
            "egress": [{"action": r.choice(["allow", "allow", "deny"]), "target": r.choice(TARGETS)}
                       for _ in range(r.randrange(most))]}


def judged(e, policy, ceiling):
    """How many of all names and addresses the ceiling alone refuses."""
    narrowed = 0
    for what in NAMES + ADDRESSES:
        mine, above = verdict_of(policy, what), verdict_of(ceiling, what)
        both = "allow" if mine == above == "allow" else "deny"
        narrowed += mine != both
        want("deny" if e.verdict(what) == 403 else "allow", both,
             f"{what}: {policy} under {ceiling}")
    return narrowed


def case_policies_under_ceilings():
    if not casebed.own_network():
        raise Skip("what is let through here could leave the machine")
    r = random.Random(int(os.environ.get("MODEL_SEED", "6")))
    counts, narrowed = {200: 0, 400: 0}, 0
    for _ in range(CEILINGS):
        ceiling, policy = some_policy(r, 5), some_policy(r, 6)
        path = tempfile.mktemp(dir=apibed.TOP[0])
        with open(path, "w") as f:
            json.dump(ceiling, f)
        with running(policy=policy, EGRESS_POLICY_CEILING_FILE=path) as e:
            narrowed += judged(e, policy, ceiling)
            for _ in range(POLICIES):
                policy = some_policy(r, 6)
                a = e.raw(e.request("POST", "/policy", policy))[0][0]
                counts[a.status] += 1
                if a.status == 200:
                    narrowed += judged(e, policy, ceiling)
                else:
                    want(a.doc["code"], "above_ceiling", f"{policy} under {ceiling}")
    print(f"  taken={counts[200]} refused={counts[400]} narrowed={narrowed}", flush=True)
    want(min(*counts.values(), narrowed) > 5, True, "control: all kinds came")


if __name__ == "__main__":
    if sys.argv[1:] != ["--list"] and casebed.own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
    sys.exit(main(globals()))
