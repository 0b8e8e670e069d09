#!/usr/bin/env python3
"""What no caller of the API can change: the read-only rule, the write hosts, and the operator's ceiling.

After each attempt the state is as it was, and so is what a request meets. Bed: apibed.py; the kernel's
side of the ceiling is netns/ceiling.py."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

import apibed
from apibed import allow, main, rule, running, until, want, want_in

REACHED = 502  # judged, allowed, and looked up in vain
WAIT_S = 10


def post(e, host):
    """The status of a write through the proxy, and its reason."""
    with socket.create_connection(("127.0.0.1", e.proxy), timeout=WAIT_S) as s:
        s.sendall(f"POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\nx".encode())
        got = b""
        while b"\r\n\r\n" not in got:
            part = s.recv(65536)
            if not part:
                break
            got += part
    head = got.split(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    reason = next((x.split(": ")[1] for x in head if x.startswith("x-egress-reason: ")), None)
    return int(head[0].split()[1]), reason


def case_read_only_rule_and_write_hosts_stay():
    policy = {"defaultAction": "deny", "egress": allow("read.test", "write.test")}
    extra = {"readOnly": False, "read_only": False, "writeHosts": ["read.test"],
             "write_hosts": ["read.test"], "AGENTIC_WRITE_HOSTS": "read.test", "mode": "off"}
    wide = {**rule("allow", "read.test"), "write": True, "methods": ["POST"], "readOnly": False}
    with running(policy=policy, AGENTIC_WRITE_HOSTS="write.test") as e:
        def same(what):
            s = e.status()
            want((s["readOnly"], s["writeHosts"], s["mode"]), (True, ["write.test"], "proxy"), what)
            want(post(e, "read.test"), (403, "method_not_read"), f"{what}: a write")
            want(post(e, "write.test")[0], REACHED, f"{what}: a write to a write host")
        same("at the start")
        for method in ("POST", "PUT"):
            e.raw(e.request(method, "/policy", {**policy, **extra}))
            same(f"{method} with fields of ours")
            e.call(method, body=policy)
        e.raw(e.request("PATCH", "/policy", [wide]))
        same("PATCH with fields of ours")
        for path in ("/status", "/read-only", "/write-hosts", "/settings", "/config", "/mode"):
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                answers, _ = e.raw(e.request(method, path, extra))
                want(answers[0].status in (404, 405), True, f"{method} {path}: {answers[0]}")
        same("after other paths")
        e.call("POST", body={"defaultAction": "allow"})
        want(post(e, "anything.test"), (403, "method_not_read"), "a write where all is allowed")
        e.call("POST", body=policy)
        os.kill(e.worker(), signal.SIGKILL)
        until(lambda: e.text().count(" ready: ") == 2, "another worker", WAIT_S)
        same("after the worker's end")


def case_instance_tells_another_egress():
    """In every answer, in /status and in the line of the start; the worker's end does not change it."""
    seen = []
    for _ in range(2):
        with running() as e:
            for _ in range(2):
                seen.append(e.status()["instance"])
                for method, path, token in (("GET", "/healthz", False), ("GET", "/policy", True),
                                            ("GET", "/policy", False), ("GET", "/nothing", True),
                                            ("PATCH", "/policy", True)):
                    answers, _ = e.raw(e.request(method, path, token=token))
                    want(answers[0].field("x-egress-instance"), seen[-1], f"{method} {path}")
                os.kill(e.worker(), signal.SIGKILL)
                until(lambda: e.status()["uptimeSeconds"] >= 0, "another worker", WAIT_S)
            lines = [x["rule"] for x in e.audit() if x["kind"] == "start"]
            want([x.split(", ")[1] for x in lines], [f"instance {seen[-1]}"] * len(lines), "start lines")
    want([seen[0] == seen[1], seen[2] == seen[3], seen[0] == seen[2], len(seen[0])],
         [True, True, False, 16], f"instances {seen}")


def case_ceiling_bounds_every_change():
    with tempfile.TemporaryDirectory(dir=apibed.TOP[0]) as top:
        os.chmod(top, 0o755)
        path = os.path.join(top, "ceiling.yaml")
        with open(path, "w", encoding="ascii") as f:
            f.write("defaultAction: deny\negress:\n  - {action: deny, target: x.a.test}\n"
                    "  - {action: allow, target: '*.a.test'}\n  - {action: allow, target: b.test}\n")
        with running(policy={"egress": allow("b.test", "old.test")},
                     EGRESS_POLICY_CEILING_FILE=path) as e:
            want_in("policy: rule 2: allow old.test: above the operator's ceiling (default action: "
                    "deny); it counts as far as the ceiling goes", e.text(), "a warning at the start")
            above = "policy: rule 2: allow old.test: above the operator's ceiling (default action: deny)"
            want(above in e.status()["warnings"], True, f"in /status: {e.status()['warnings']}")
            want([e.verdict("b.test"), e.verdict("old.test")], [REACHED, 403], "the start")
            refused = {"code": "above_ceiling", "message": "rule 1: allow evil.test: above the "
                       "operator's ceiling (default action: deny)"}
            for method, body in (("POST", {"egress": allow("evil.test")}), ("PATCH", allow("evil.test")),
                                 ("PUT", {"egress": allow("evil.test", "b.test")})):
                want(e.call(method, body=body, status=400).doc, refused, method)
                want(e.verdict("evil.test"), 403, f"{method}: a request")
            want(e.targets(), [("allow", "b.test"), ("allow", "old.test")], "the policy")
            # with rules that were above it before, changes go on
            e.call("PATCH", body=allow("*.a.test"))
            e.call("POST", body={"egress": allow("*.a.test", "old.test")})
            e.call("DELETE", body=["b.test"])
            want([e.verdict(h) for h in ("y.a.test", "x.a.test", "old.test", "b.test")],
                 [REACHED, 403, 403, 403], "what counts")
            until(lambda: [x for x in e.audit() if x["host"] == "x.a.test"], "a line", WAIT_S)
            line = next(x for x in e.audit() if x["host"] == "x.a.test")
            want((line["verdict"], line["reason"], line["rule"]),
                 ("blocked", "above_ceiling", "ceiling: rule 1: deny x.a.test"), "on record")
            with open(path, "w", encoding="ascii") as f:
                f.write(json.dumps({"egress": allow("old.test")}))
            e.hup()
            want([e.verdict(h) for h in ("b.test", "old.test")], [403, REACHED], "after a reload")


def case_ceiling_in_the_tools():
    """--check shows where it is, and `egressctl policy check` asks it."""
    with tempfile.TemporaryDirectory(dir=apibed.TOP[0]) as top:
        path = os.path.join(top, "ceiling.json")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"egress": allow("b.test")}, f)
        e = apibed.Egress(top, policy={"defaultAction": "allow"}, EGRESS_POLICY_CEILING_FILE=path)
        out = e.ctl("policy", "check", "--json", "--address", "192.0.2.1", "GET", "http://b.test/")[0]
        want(json.loads(out)["verdict"], "allowed", "a host that both allow")
        out = e.ctl("policy", "check", "--json", "GET", "http://c.test/", code=1)[0]
        want([json.loads(out)[k] for k in ("verdict", "reason", "rule")],
             ["blocked", "above_ceiling", "ceiling: default action: deny"], "one that it does not allow")
        shown = subprocess.run([apibed.EGRESS, "--check"], env=e.env, capture_output=True, text=True,
                               check=True).stdout
        want_in(f'policy_ceiling: "{path}"\n', shown, "--check")


if __name__ == "__main__":
    sys.exit(main(globals()))
