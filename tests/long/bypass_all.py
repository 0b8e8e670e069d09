#!/usr/bin/env python3
"""Every way round the sidecar that we know, by three users; netns/bypass.py has the `--list`."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "netns"))
import bypass  # noqa: E402
import sidecarbed  # noqa: E402


def case_names(bed):
    bypass.battery(bed, ["dns"], 50)


def case_http(bed):
    bypass.battery(bed, ["web"], 120)


def case_tls(bed):
    bypass.battery(bed, ["tls"], 40)


def case_addresses(bed):
    bypass.battery(bed, ["guard-addresses"], 30)


def case_rights(bed):
    bypass.battery(bed, ["guard-rights"], 6)


def case_forged(bed):
    bypass.battery(bed, ["guard-forged"], 20)


def case_packets(bed):
    bypass.battery(bed, ["guard-packets"], 30)


def case_devices(bed):
    bypass.battery(bed, ["guard-devices"], 15)


if __name__ == "__main__":
    sidecarbed.main(globals())
