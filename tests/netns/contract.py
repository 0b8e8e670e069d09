#!/usr/bin/env python3
"""Every variable that OpenSandbox's server gives the sidecar, or an operator of the replaced image may
have set: accepted, or refused with the cause; and stdout names those that do nothing here.

Bed: sidecarbed.py. What each does is docs/configuration.md."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sidecarbed  # noqa: E402
from guardbed import want  # noqa: E402
from sidecarbed import RESOLVER, Failed, until  # noqa: E402

UP = "OPENSANDBOX_EGRESS_"
# What the server sets, and the names that it passes on from a create request.
SERVER = {
    UP + "RULES": json.dumps({"egress": [{"action": "allow", "target": "read.test"}]}),
    UP + "MODE": "dns+nft", UP + "TOKEN": "abcdefghijklmnopqrstuvwxyz_-0123",
    UP + "SANDBOX_ID": "sbx-1", UP + "MITMPROXY_TRANSPARENT": "true",
    UP + "LOG_LEVEL": "info", UP + "DNS_UPSTREAM_TIMEOUT": "5", UP + "MITMPROXY_SSL_INSECURE": "false",
    UP + "MITMPROXY_EXTRA_PORTS": "8443", UP + "DENY_WEBHOOK": "http://11.22.0.30:9000/x",
    UP + "CREDENTIAL_VAULT_REQUIRE_TLS": "false",
    UP + "CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS": "10.0.0.0/8",
    UP + "POLICY_FILE": "/nonexistent/policy.json"}
# What operators of the replaced image set in images of their own.
OPERATOR = {
    UP + "HTTP_ADDR": ":18080", UP + "MAX_RULES": "4096", UP + "NAMESERVER_EXEMPT": "11.22.0.99",
    UP + "BLOCK_DOH_443": "on", UP + "DOH_BLOCKLIST": "8.8.8.8", UP + "DNS_UPSTREAM": RESOLVER[4],
    UP + "DNS_UPSTREAM_PROBE": ".", UP + "DNS_UPSTREAM_PROBE_INTERVAL_SEC": "30",
    UP + "MITMPROXY_PORT": "18081", UP + "CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH": "no"}
# Known, and without effect.
IDLE = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.test:4318", UP + "METRICS_EXTRA_ATTRS": "a=b",
    UP + "REDIRECT_BACKEND": "auto", UP + "MITMPROXY_UPSTREAM_EXTRA_CA": "/etc/ssl/certs/extra.pem",
    UP + "MITMPROXY_SHADOW": "1", UP + "EXPERIMENTAL_REVISION_RUNTIME": "1",
    UP + "REVISION_TLS_CAPACITY": "1024", UP + "REVISION_REQUEST_CAPACITY": "4096",
    UP + "REVISION_DRAIN_TIMEOUT_SECONDS": "30", UP + "PENDING_PUSH_TTL": "30",
    "OPENSANDBOX_LOG_OUTPUT": "stdout",
    "OPENSANDBOX_CREDENTIAL_PROXY_SOCKET": "/run/opensandbox/credential-proxy/active.sock"}
# Ignoring these would weaken what was asked for.
REFUSED = {UP + "MITMPROXY_SCRIPT": "/x.py", UP + "UPSTREAM_PROXY": "http://p.test:3128",
           UP + "UPSTREAM_PROXY_AUTH": "a:b", UP + "PROFILE": "fast-sandbox", UP + "MODE": "forward"}


def started(bed, **settings):
    """With stdout alone in a file."""
    bed.free()
    script, out = bed.path("egress"), bed.path("stdout")
    with open(script, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\nexec {EGRESS} 2>{out}.err\n")
    os.chmod(script, 0o755)
    sidecarbed.EGRESS = script
    try:
        bed.launch(**settings)
    finally:
        sidecarbed.EGRESS = EGRESS
    until(lambda: bed.health()[0] in (200, 503) and bed.health()[1] != "starting", "an answer", 8)


EGRESS = sidecarbed.EGRESS


def case_every_variable_is_accepted(bed):
    started(bed, **SERVER, **OPERATOR, **IDLE)
    until(lambda: bed.health()[0] == 200,
          f"green: {bed.health()}", 8)
    lines = [x for x in bed.output().splitlines() if x.startswith("egress: ")]
    want(len(lines), 1, f"lines on stdout: {lines}")
    head, names = lines[0].split("no effect: ")
    want((head, sorted(names.split(", "))), ("egress: ", sorted(IDLE)), "what is named")
    code, _, text = bed.ask("GET", "/status", token=SERVER[UP + "TOKEN"])
    want((code, json.loads(text)["sandbox"], json.loads(text)["mode"]), (200, "sbx-1", "dns+nft"), "status")
    bed.free()


def case_what_would_weaken_is_refused(bed):
    for name, value in REFUSED.items():
        started(bed, **{name: value})
        code, why = bed.health()
        if code != 503 or name not in why:
            raise Failed(f"{name}: {code} {why}")
        want(f"egress: closed: {why}" in bed.output(), True, f"{name}: the cause on stdout")
        bed.free()


def case_without_them_stdout_says_nothing(bed):
    started(bed)
    want([x for x in bed.output().splitlines() if x.startswith("egress: ")], [], "lines on stdout")
    bed.free()


if __name__ == "__main__":
    sys.exit(sidecarbed.main(globals()))
