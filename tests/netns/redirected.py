#!/usr/bin/env python3
"""Redirected connections by real rules between namespaces, seen from all three ends.

Each row of the table in docs/read-only.md about ports and first bytes: what the client got, where
and what the origin received, what the audit trail says, over IPv4 and IPv6, with the rule on and
off. What is refused must not even bring a SYN; sent once more past egress, each of it arrives.

case     covered here                                     elsewhere
C63      the address of a redirected connection is not    all combinations of names:
         obeyed: no SYN goes there                        e2e/cases_connect.py, on loopback
C65      the table for redirected connections             for CONNECT: e2e/cases_connect.py
C69 C77  literal address without SNI: certificate for     e2e/cases_connect.py, e2e/cases_tls.py
         it, address rules judge, Host must be it
Bed: netbed.py.
"""
import os
import ssl
import sys
import time
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import netbed  # noqa: E402
from netbed import NEIGHBOUR, PRIVATE, PUBLIC  # noqa: E402
from casebed import (Failed, NAMES, Talk, read_talk, until, want, want_403, want_in,  # noqa: E402
                     want_ok)

READ, API, DENY = "read.test", "api.model.test", "deny.test"
LITERALS = {"private": PRIVATE, "public": PUBLIC, "neighbour": NEIGHBOUR}
NAMED = {"read": READ, "write": API, "denied": DENY}
# port, first bytes, whereto, method: with the rule on, with the rule off. `read`, `write`, `denied`
# are names; `private` and `public` addresses that a rule allows, `neighbour` one that none does.
TABLE = [
    (443, "tls", "read", "GET", "200 allowed", "200 allowed"),
    (443, "tls", "read", "POST", "403 method_not_read", "200 allowed"),
    (443, "tls", "write", "POST", "200 write_host", "200 allowed"),
    (443, "tls", "denied", "GET", "403 host_not_listed", "403 host_not_listed"),
    (443, "tls", "private", "POST", "200 write_private", "200 allowed"),
    (443, "tls", "public", "GET", "200 allowed", "200 allowed"),
    (443, "tls", "public", "POST", "403 method_not_read", "200 allowed"),
    (443, "tls", "neighbour", "GET", "403 address_not_listed", "403 address_not_listed"),
    (8443, "tls", "read", "GET", "403 port_not_allowed", "200 allowed"),
    (8443, "tls", "write", "POST", "200 write_host", "200 allowed"),
    (8443, "tls", "private", "POST", "200 write_private", "200 allowed"),
    (8443, "tls", "public", "GET", "403 port_not_allowed", "200 allowed"),
    (80, "http", "read", "GET", "200 allowed", "200 allowed"),
    (80, "http", "read", "POST", "403 method_not_read", "200 allowed"),
    (80, "http", "write", "POST", "200 write_host", "200 allowed"),
    (80, "http", "denied", "GET", "403 host_not_listed", "403 host_not_listed"),
    (80, "http", "private", "POST", "200 write_private", "200 allowed"),
    (80, "http", "public", "POST", "403 method_not_read", "200 allowed"),
    (80, "http", "neighbour", "GET", "403 address_not_listed", "403 address_not_listed"),
    (443, "http", "read", "GET", "200 allowed", "200 allowed"),
    (443, "http", "read", "POST", "403 method_not_read", "200 allowed"),
    (8080, "http", "read", "GET", "200 allowed", "200 allowed"),
    (8080, "http", "read", "POST", "403 method_not_read", "200 allowed"),
    (8081, "http", "read", "GET", "403 port_not_allowed", "200 allowed"),
    (8081, "http", "write", "POST", "200 write_host", "200 allowed"),
    (8081, "http", "private", "POST", "200 write_private", "200 allowed"),
    *[(port, kind, *rest) for kind in ("other", "none") for port, *rest in (
        (22, "private", "-", "tunnel write_private", "tunnel allowed"),
        (22, "public", "-", "closed port_not_allowed", "tunnel allowed"),
        (22, "read", "-", "closed address_not_listed", "closed address_not_listed"),
        (80, "private", "-", "tunnel write_private", "tunnel allowed"),
        (80, "public", "-", "closed cannot_inspect", "tunnel allowed"),
        (443, "private", "-", "tunnel write_private", "tunnel allowed"),
        (443, "public", "-", "closed cannot_inspect", "tunnel allowed"),
        (443, "write", "-", "closed address_not_listed", "closed address_not_listed"),
        (443, "neighbour", "-", "closed address_not_listed", "closed address_not_listed"),
    )],
]


def literal(addr):
    return f"[{addr}]" if ":" in addr else addr


class Row:
    """One row of the table over one family: sends, and keeps what came back."""

    def __init__(self, number, family, row, expected):
        self.port, self.kind, self.to, self.method = row[:4]
        self.outcome, self.reason = expected.split()
        self.token = f"row-{number:03}"
        self.what = f"{self.token} v{family} {self.kind} {self.method} {self.to}:{self.port}"
        self.named = self.to in NAMED
        self.addr = LITERALS[self.to][family] if not self.named else \
            NAMES[NAMED[self.to]][family == 6]
        # Without a name in the bytes, a redirected connection is about its address.
        says = self.named and self.kind in ("tls", "http")
        self.host = NAMED[self.to] if says else self.addr
        self.passes = self.outcome in ("200", "tunnel")
        self.talk = None

    def message(self):
        if self.kind in ("other", "none"):
            return b"SSH-2.0-%s x\r\n\r\n" % self.token.encode()
        usual = 443 if self.kind == "tls" else 80
        host = literal(self.host) + ("" if self.port == usual else f":{self.port}")
        body = b"Content-Length: 2\r\n\r\nhi" if self.method == "POST" else b"\r\n"
        return b"%s /%s HTTP/1.1\r\nHost: %s\r\n%s" % (
            self.method.encode(), self.token.encode(), host.encode(), body)

    def send(self, bed, sidecar):
        s = bed.dial_to(sidecar, self.addr, self.port)
        context = bed.egress.context if sidecar else bed.direct_context
        if self.kind == "tls":
            s = context.wrap_socket(s, server_hostname=self.host)
        if self.kind == "none" and sidecar:
            self.silent(bed, s)
            return
        until_end = sidecar and self.outcome == "closed"
        self.talk = bed.talk(s, self.message(), n=None if until_end else 1)

    def silent(self, bed, s):
        """Says nothing until the connection is known to be a tunnel, or over."""
        self.talk, start = Talk(), time.monotonic()
        with s:
            s.settimeout(2)
            try:
                if self.passes:
                    time.sleep(0.45)
                    s.sendall(self.message())
                read_talk(s, self.talk, 1 if self.passes else None, 2)
            except OSError as e:
                self.talk.error = str(e)
            self.talk.took = time.monotonic() - start

    def check_client(self):
        if self.outcome == "403":
            want_403(self.talk, self.what)
            want(self.talk.finals[0].field("x-egress-reason"), self.reason, f"{self.what}: reason")
        elif self.outcome == "closed":
            want([self.talk.raw, self.talk.error == "open"], [b"", False], f"{self.what}: closed")
            if self.kind == "none":
                want(0.25 < self.talk.took < 1.5, True, f"{self.what}: after {self.talk.took} s")
        else:
            want_ok(self.talk, self.what)
            want_in(self.token.encode(), self.talk.raw, f"{self.what}: whose answer")

    def check_origin(self, arrived):
        """Where it came out; the address is one that belongs to the name."""
        mine = [(p, d) for p, d in arrived if self.token.encode() in d]
        if not self.passes:
            want([p.addr for p, _ in mine], [], f"{self.what}: what the origin received")
            return None
        want(len(mine), 1, f"{self.what}: connections at origins")
        peer, data = mine[0]
        want(data.count(self.token.encode()), 1, f"{self.what}: times")
        want(peer.port, self.port, f"{self.what}: port at the origin")
        may = NAMES[self.host] if self.host in NAMES else (self.addr,)
        want(peer.addr in may, True, f"{self.what}: at {peer.addr}, not {may}")
        if self.kind == "tls":
            want(peer.sni, self.host if self.named else None, f"{self.what}: SNI at the origin")
        if self.outcome == "200":
            want_in(self.message().split(b"\r\n")[0], data, f"{self.what}: as received")
        else:
            want(data, self.message(), f"{self.what}: bytes of the tunnel")
        return peer.addr

    def line(self, addr):
        """What the audit trail must say."""
        kind = {"GET": "read", "POST": "write", "-": "tunnel"}[self.method]
        verdict = "allowed" if self.passes else "blocked"
        status = int(self.outcome) if self.outcome.isdigit() else None
        scheme = {"tls": "https", "http": "http"}.get(self.kind)
        host = self.message().split(b"Host: ")[1].split(b"\r\n")[0].decode() if scheme else ""
        url = f"{scheme}://{host}/{self.token}" if scheme else None
        if self.outcome == "tunnel":
            url = f"{literal(self.host)}:{self.port}"
        return ("redirect", kind, verdict, self.reason, url, self.host, self.port, addr,
                status)


def audit_lines(egress, mark):
    return [tuple(x[k] for k in ("via", "kind", "verdict", "reason", "url", "host", "port", "addr",
                                 "status"))
            for x in egress.lines()[mark:] if x["kind"] in ("read", "write", "tunnel")]


def want_lines(egress, mark, lines):
    """Exactly these lines, in any order, each once."""
    until(lambda: len(audit_lines(egress, mark)) >= len(lines), "lines in the audit trail")
    time.sleep(0.25)
    got, should = Counter(audit_lines(egress, mark)), Counter(lines)
    want([sorted(map(str, should - got)), sorted(map(str, got - should))], [[], []],
         "audit lines (missing, too many)")


def batch(bed, sidecar, rows):
    """Sends all rows, and compares the three ends."""
    egress, mark, lines = bed.egress, bed.origins.mark(), len(bed.egress.lines())
    bed.syns(forget=True)

    def one(row):
        row.send(bed, sidecar)
        row.check_client()
    bed.rows([(r.what, lambda r=r: one(r)) for r in rows])
    time.sleep(0.05)
    arrived = bed.origins.since(mark)
    want_lines(egress, lines, [r.line(r.check_origin(arrived)) for r in rows])
    return arrived


def table(bed, sidecar, column, family):
    bed.sidecar(sidecar)
    rows = [Row(n, family, row, row[column]) for n, row in enumerate(TABLE)]
    refused, passed = [r for r in rows if not r.passes], [r for r in rows if r.passes]
    arrived = batch(bed, sidecar, refused)
    want([(p.addr, p.port) for p, _ in arrived], [], "connections of what is refused")
    want(bed.syns(), set(), "SYNs of what is refused")
    batch(bed, sidecar, passed)
    mark = bed.origins.mark()
    bed.rows([(f"past egress: {r.what}", lambda r=r: r.send(bed, None)) for r in refused])
    want([r.what for r in refused if not [1 for _, d in bed.origins.since(mark)
                                          if r.token.encode() in d]], [], "controls")


def C65_redirected_rule_on_v4(bed):
    table(bed, "main", 4, 4)


def C65_redirected_rule_on_v6(bed):
    table(bed, "main", 4, 6)


def C65_redirected_rule_off_v4(bed):
    table(bed, "rule-off", 5, 4)


def C65_redirected_rule_off_v6(bed):
    table(bed, "rule-off", 5, 6)


def C65_redirected_tls_that_is_not_opened(bed):
    """Interception off: an alert; what may be written passes, with the origin's certificate."""
    egress = bed.sidecar("no-open")
    mark, lines = bed.origins.mark(), len(egress.lines())
    bed.syns(forget=True)

    def refused(addr, name):
        s = bed.dial_to("no-open", addr, 443)
        try:
            bed.direct_context.wrap_socket(s, server_hostname=name)
        except ssl.SSLError as e:
            want(e.reason, "TLSV1_ALERT_ACCESS_DENIED", f"{name}: alert")
            return
        raise Failed(f"{name}: the handshake was finished")

    for addr, name in ((NAMES[READ][0], READ), (NAMES[READ][1], READ), (PUBLIC[4], PUBLIC[4])):
        refused(addr, name)
    want([bed.origins.since(mark), bed.syns()], [[], set()], "what is refused arrives")
    passed = [(NAMES[API][0], API), (NAMES[API][1], API), (PRIVATE[4], PRIVATE[4]),
              (PRIVATE[6], PRIVATE[6])]
    for addr, name in passed:
        s = bed.direct_context.wrap_socket(bed.dial_to("no-open", addr, 443), server_hostname=name)
        want_ok(bed.talk(s, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), name)
    got = [(p.addr, p.sni) for p, d in bed.origins.since(mark) if d]
    want([(a in NAMES[API] if sni else a, sni) for a, sni in got],
         [(True, API)] * 2 + [(PRIVATE[4], None), (PRIVATE[6], None)], "origins")
    tail = [("redirect", "tunnel", "blocked", "cannot_inspect", None, h, 443, None, None)
            for h in (READ, READ, PUBLIC[4])]
    tail += [("redirect", "tunnel", "allowed", "write_host" if n == API else "write_private",
              f"{literal(n)}:443", n, 443, at, None) for (_, n), (at, _) in zip(passed, got)]
    want_lines(egress, lines, tail)
    bed.rows_run += 7


def C63_redirected_goes_where_the_name_leads(bed):
    """The address that a client chose is no target: neither a denied one nor an empty one."""
    egress = bed.sidecar("main")
    nowhere = {4: "203.0.113.9", 6: "2001:db8::9"}
    places = [NAMES[DENY][0], NAMES[DENY][1], nowhere[4], nowhere[6], NAMES[API][0]]
    for port, tls in ((443, True), (80, False)):
        for to in places:
            mark, lines = bed.origins.mark(), len(egress.lines())
            bed.syns(forget=True)
            s = bed.dial_to("main", to, port)
            s = egress.context.wrap_socket(s, server_hostname=READ) if tls else s
            want_ok(bed.talk(s, b"GET /who HTTP/1.1\r\nHost: read.test\r\n"
                             b"Connection: close\r\n\r\n"), f"{READ} at {to}")
            (peer, _), = [x for x in bed.origins.since(mark) if x[1]]
            want(peer.addr in NAMES[READ], True, f"{READ} at {to}: reached {peer.addr}")
            want([a for a, _ in bed.syns() if a not in NAMES[READ]], [],
                 f"{READ} at {to}: SYNs elsewhere")
            scheme = "https" if tls else "http"
            want_lines(egress, lines, [("redirect", "read", "allowed", "allowed",
                                        f"{scheme}://read.test/who", READ, port, peer.addr, 200)])
            bed.rows_run += 1
    bed.control(b"GET /who HTTP/1.1\r\nHost: read.test\r\n\r\n", NAMES[DENY][0], 80)


def C69_redirected_literal_without_sni(bed):
    """The certificate is for the address alone; a Host that is another name does not pass."""
    egress = bed.sidecar("main")
    lines, should = len(egress.lines()), []
    for family in (4, 6):
        addr = PRIVATE[family]
        for host in (READ, API, literal(NEIGHBOUR[family]), literal(addr)):
            passes, mark = host == literal(addr), bed.origins.mark()
            s = egress.context.wrap_socket(bed.dial_to("main", addr, 443), server_hostname=addr)
            want([k for k, _ in s.getpeercert()["subjectAltName"]], ["IP Address"], addr)
            talk = bed.talk(s, b"GET /sni HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
            what = f"{addr}, Host {host}"
            want([r.status for r in talk.finals], [200 if passes else 403], f"{what}: {talk}")
            got = [p.addr for p, d in bed.origins.since(mark) if b"/sni" in d]
            want(got, [addr] if passes else [], f"{what}: origin")
            should.append(("redirect", "read", "allowed" if passes else "blocked",
                           "allowed" if passes else "name_mismatch", f"https://{host}/sni",
                           host.strip("[]"), 443, addr if passes else None,
                           200 if passes else 403))
            bed.rows_run += 1
    want_lines(egress, lines, should)


if __name__ == "__main__":
    sys.exit(netbed.main(globals()))
