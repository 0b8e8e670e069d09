#!/usr/bin/env python3
"""Whose socket it was: two users in the sandbox, whose connections are redirected to the proxy, who
ask it, the DNS gate and the API. Each line on record names the one who did it. Bed: gatebed.py; the
sidecar has the sandbox's resolv.conf, as in a container.
"""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
import gatebed  # noqa: E402
from guardbed import API, BOX, until, want  # noqa: E402
from sidecarbed import EVIL, HOSTILE, RESOLVER, TOKEN  # noqa: E402

USERS = (4711, 4712)
WEB = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true"}


class Bed(gatebed.Bed):
    NAME = "usersbed"

    def servers(self):
        super().servers()
        self.write("resolv.conf", f"nameserver {HOSTILE[4]}\nnameserver {RESOLVER[4]}\n"
                   "options timeout:1 attempts:1\n")
        self.resolv_conf = self.path("resolv.conf")


def users_of(bed, mark, field, text):
    """[(user, verdict)] of the lines in which this field has that text."""
    def found():
        return [(x["uid"], x["verdict"]) for x in bed.lines(mark) if text in (x[field] or "")]
    until(found, f"a line with {text}")
    return found()


def case_redirected_connections_have_the_user_of_their_socket(bed):
    bed.with_settings(**WEB)
    mark = bed.audit_mark()
    for uid in USERS:
        for scheme in ("http", "https"):
            got = bed.tool("curl", "-sS", "-m", "5", "-w", "%{http_code}", "--cacert",
                           bed.path("egress-ca.pem"), f"{scheme}://read.test/{scheme}-{uid}", uid=uid)
            want(got[1][-3:], "200", f"{scheme} {uid}: {got}")
            got = bed.tool("curl", "-sS", "-m", "5", "-w", "%{http_code}", "--resolve",
                           f"evil.test:80:{EVIL[4]}", f"http://evil.test/refused-{uid}", uid=uid)
            want(got[1][-3:], "403", f"refused {uid}: {got}")
    for uid in USERS:
        for path in (f"http-{uid}", f"https-{uid}"):
            want(users_of(bed, mark, "url", path), [(uid, "allowed")], path)
        want(set(users_of(bed, mark, "url", f"/refused-{uid}")), {(uid, "blocked")}, "refused")
    want({x["via"] for x in bed.lines(mark) if x["url"]}, {"redirect"}, "how they came")
    got = bed.tool("curl", "-sS", "-m", "5", "-x", "http://127.0.0.1:18081", "http://read.test/asked",
                   uid=USERS[1])
    want(users_of(bed, mark, "url", "/asked"), [(USERS[1], "allowed")], f"explicit: {got}")


def case_names_that_were_refused_have_the_user_who_asked(bed):
    bed.with_settings(**WEB)
    mark = bed.audit_mark()
    for uid in USERS:
        for how, args in (("libc", ["getent", "ahosts", f"libc-{uid}.evil.test"]),
                          ("udp", ["dig", "+tries=1", f"udp-{uid}.evil.test"]),
                          ("tcp", ["dig", "+tries=1", "+tcp", f"@{RESOLVER[4]}",
                                   f"tcp-{uid}.evil.test"])):
            bed.tool(*args, uid=uid)
            got = set(users_of(bed, mark, "host", f"{how}-{uid}.evil.test"))
            want(got, {(uid, "blocked")}, f"{how} {uid}")
    # A resolver that resolv.conf does not name: the kernel cannot be asked for its socket.
    bed.tool("dig", "+tries=1", f"@{EVIL[4]}", "own.evil.test", uid=USERS[0])
    want(users_of(bed, mark, "host", "own.evil.test"), [(None, "blocked")], "another resolver")


def case_changes_by_the_api_have_the_user_who_asked(bed):
    bed.with_settings(**WEB)
    mark = bed.audit_mark()
    for uid in USERS:
        for path, body in (("policy", [{"action": "allow", "target": f"u{uid}.test"}]),
                           ("audit/context", {"labels": {"user": str(uid)}})):
            got = bed.tool("curl", "-sS", "-m", "5", "-w", "%{http_code}", "-X",
                           "PATCH" if path == "policy" else "PUT", "-H",
                           f"OPENSANDBOX-EGRESS-AUTH: {TOKEN}", "-d", json.dumps(body),
                           f"http://127.0.0.1:{API}/{path}", uid=uid)
            want(got[1][-3:], "200", f"{path}: {got}")
    def found():
        # The bed's own requests are root's.
        return [(x["kind"], x["uid"], x["context"]) for x in bed.lines(mark)
                if x["kind"] in ("policy", "context") and x["uid"] != 0]
    until(lambda: len(found()) >= 4, "lines")
    want(found(),
         [("policy", USERS[0], None), ("context", USERS[0], {"user": str(USERS[0])}),
          ("policy", USERS[1], {"user": str(USERS[0])}),
          ("context", USERS[1], {"user": str(USERS[1])})], "users of changes, and their labels")
    bed.ask("PUT", "/audit/context", "{}")


def case_caller_with_another_address_of_ours_has_its_user(bed):
    """Bound to the device's address and connected to loopback, it looks like one from outside."""
    bed.with_settings(**WEB)
    mark = bed.audit_mark()
    for source in (BOX[4], "127.0.0.7"):
        got = bed.tool("curl", "-sS", "-m", "5", "-w", "%{http_code}", "-X", "PUT", "-H",
                       f"OPENSANDBOX-EGRESS-AUTH: {TOKEN}", "-d", json.dumps({"labels": {"from": source}}),
                       "--interface", source, f"http://127.0.0.1:{API}/audit/context", uid=USERS[0])
        want(got[1][-3:], "200", f"{source}: {got}")

    def found():
        return [(x["uid"], x["context"]) for x in bed.lines(mark)
                if x["kind"] == "context" and x["context"]]
    until(lambda: len(found()) >= 2, "lines")
    want(found(), [(USERS[0], {"from": x}) for x in (BOX[4], "127.0.0.7")], "users")
    bed.ask("PUT", "/audit/context", "{}")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
