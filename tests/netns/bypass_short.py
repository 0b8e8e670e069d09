#!/usr/bin/env python3
"""A part of the ways round the sidecar, for every ./test; all of them are in tests/long/bypass_all.py.

Names of rows are those of guard_attacks.py and bypass_rows.py; the library is bypass.py; `--list` is
guardbed.py's.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bypass  # noqa: E402
import sidecarbed  # noqa: E402

KERNEL = """tcp-literal-v4 tcp-literal-v6 quic-v4 icmp-echo-v4 metadata-v4 uid-of-the-worker-v4
answer-to-a-forged-question-v4 reversed-spoof-udp-v4 segment-into-our-flow-v4 first-fragment
invalid-tcp-syn-ack-v4 protocol-47-v4 neighbour-solicitation packet-socket-ip-v4
bound-to-a-device-dns-v4 xdp-on-the-device-v4""".split()
NAMES = """denied-name-udp-v4 denied-name-by-another-resolver-tcp-v6 second-question option-of-nobody
rebinding-private rebinding-mapped encrypted-hello-key""".split()
WEB = """http-80-v4 https-443-v4 doh-by-address-v4 fronted-name-at-another-address-v4
host-not-the-sni-v4 method-POST write-behind-a-read-v4 bytes-to-443-of-good-v4
bytes-to-5000-of-good-v4 metadata-under-an-allowed-name-v4 proxy-connect-name-v4
refused-name-in-records-v4 real-ech-v4""".split()


def case_sidecar_packets(bed):
    bypass.battery(bed, [f"guard-{g}" for g in ("addresses", "rights", "forged", "packets",
                                                "devices")], len(KERNEL), KERNEL)


def case_sidecar_names(bed):
    bypass.battery(bed, ["dns"], len(NAMES), NAMES)


def case_sidecar_http_and_tls(bed):
    bypass.battery(bed, ["web", "tls"], len(WEB), WEB)


if __name__ == "__main__":
    sidecarbed.main(globals())
