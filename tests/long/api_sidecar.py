#!/usr/bin/env python3
"""The same as api.py for the whole sidecar, mode dns+nft: each change of the policy goes through the kernel,
asked from inside the sandbox's network. Bed: netns/gatebed.py.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("e2e", "netns"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
sys.path.insert(0, HERE)
import api  # noqa: E402
import casebed  # noqa: E402
import guardbed  # noqa: E402
from gatebed import Bed  # noqa: E402
from guardbed import API, EVIL, Failed, Inside, want  # noqa: E402
from sidecarbed import TOKEN  # noqa: E402


def case_schemathesis_in_mode_dns_nft(bed):
    bed.with_settings(OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true")
    worker = bed.worker_pid()
    try:
        api.tried(bed.top, (f"http://127.0.0.1:{API}", TOKEN, Inside(bed.box)))
    except casebed.Failed as e:
        raise Failed(str(e)) from e
    want([bed.health()[0], bed.worker_pid()], [200, worker], "it is well, and the same worker")
    bed.change("PUT", {"defaultAction": "deny"})
    want(bed.opens(EVIL[4], 5000), "ConnectionRefusedError", "and closed when it is told so")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
