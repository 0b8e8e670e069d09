#!/usr/bin/env python3
"""/credential-vault in the modes of a sidecar: what a write needs there, and what it brings.

Names like L42 are lines of the vault's catalogue in docs/compatibility.md. Routes, codes and documents:
e2e/api_vault.py; what requests get: e2e/api_keys.py. Bed: platformbed.py.
"""
import http.client
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from guardbed import Inside, until, want  # noqa: E402
from platformbed import Bed, credential, key  # noqa: E402
from sidecarbed import API  # noqa: E402

HOST = "api.model.test"
WEB = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true", "AGENTIC_WRITE_HOSTS": HOST}
KEY = key("sk-model-")
PACKETS = """
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("open", flush=True)
time.sleep(60)
"""


def document(value=KEY):
    return {"credentials": [credential("k", value)], "bindings": [
        {"name": "b", "match": {"hosts": [HOST], "paths": ["/v1/*"]},
         "auth": {"type": "bearer", "credential": "k"}}]}


def vault(bed, method, body=None, wait=5):
    """(status, code or None)"""
    with Inside(bed.box):
        c = http.client.HTTPConnection("127.0.0.1", API, timeout=wait)
        c.connect()
    c.request(method, "/credential-vault", body and json.dumps(body),
              {"OPENSANDBOX-EGRESS-AUTH": "token-of-the-bed"})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, json.loads(text).get("code") if text else None


def key_at_origin(bed):
    """What the model's host sees of a request from the sandbox."""
    mark = bed.seen_mark()
    want(bed.get(f"https://{HOST}/v1/x")[0], 200, "a request")
    return [r["auth"] for r in bed.seen(mark)]


def case_L42_what_the_mode_must_bring(bed):
    """412 in DNS-only mode and without interception; not where the read-only rule enforces all the
    same. Nothing of a refused write is there."""
    for settings, post, code in (
            ({"OPENSANDBOX_EGRESS_MODE": "dns", **WEB, "AGENTIC_WRITE_HOSTS": None}, 412,
             "not_enforced"),
            ({"OPENSANDBOX_EGRESS_MODE": "dns"}, 412, "interception_off"),
            ({}, 412, "interception_off"),
            ({"OPENSANDBOX_EGRESS_MODE": "dns", **WEB}, 201, None),
            (WEB, 201, None)):
        bed.with_settings(**settings)
        want(vault(bed, "POST", document()), (post, code), f"POST with {settings}")
        want(vault(bed, "GET")[0], 200 if post == 201 else 404, f"GET with {settings}")
        want(vault(bed, "DELETE"), (204 if post == 201 else 412, code), f"DELETE with {settings}")
    bed.with_settings(**WEB)
    want(key_at_origin(bed), [""], "no key")
    want(vault(bed, "POST", document())[0], 201, "POST")
    want(key_at_origin(bed), [f"Bearer {KEY}"], "the key")
    want(vault(bed, "DELETE")[0], 204, "DELETE")
    want(key_at_origin(bed), [""], "no key any more")


def case_a_write_during_the_start_waits_for_it(bed):
    """It is answered when the self-test has passed, and counts for the next request."""
    bed.halt()
    bed.running = None
    got = []

    def writer():
        while not got:
            try:
                got.append(vault(bed, "POST", document(), wait=30))
            except OSError:
                time.sleep(0.002)  # nobody listens yet

    thread = threading.Thread(target=writer)
    thread.start()
    bed.with_settings(**WEB)
    thread.join(20)
    want(got, [(201, None)], "POST during the start")
    want(key_at_origin(bed), [f"Bearer {KEY}"], "the key")


def case_packet_sockets_keep_keys_away(bed):
    """Whoever has one could read what comes to the API: nothing is taken until it is closed, unless
    that is wanted."""
    bed.with_settings(**WEB)
    vault(bed, "DELETE")
    reader = bed.begin(sys.executable, "-c", PACKETS, uid=0)
    try:
        want(reader.stdout.readline(), "open\n", "control: it is open")
        want(vault(bed, "POST", document()), (412, "packet_socket_present"), "refused at once")
        want(vault(bed, "GET")[0], 404, "reads go on")
        want(bed.ask("GET", "/policy")[0], 200, "and the policy")
    finally:
        reader.kill()
        reader.wait()
    until(lambda: vault(bed, "POST", document())[0] == 201, "taken when it is closed")
    bed.with_settings(**WEB, EGRESS_PACKET_SOCKETS="allow")
    reader = bed.begin(sys.executable, "-c", PACKETS, uid=0)
    try:
        want(reader.stdout.readline(), "open\n", "control: it is open")
        until(lambda: any("packet sockets" in w for w in json.loads(
            bed.ask("GET", "/status")[2])["warnings"]), "it is seen")
        want(vault(bed, "POST", document())[0], 201, "allowed")
    finally:
        reader.kill()
        reader.wait()


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
