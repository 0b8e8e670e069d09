#!/usr/bin/env python3
"""Who gets a key: every combination of the facts that must agree before one goes out, neighbours of
a bound name, port, scheme, path and method, names that move, and paths that two readers see
differently. What may be in a key, clear bindings and keys of the sandbox's own: keys_scope.py.
Every attack is also made without our protection, where it must get through."""
import itertools
import re
import socket
import sys
import time
import urllib.parse

import casebed
import keysbed
import limitbed  # noqa: F401 names below wild.test
from casebed import Failed, Talk, until, want, want_in, want_ok, want_out
from keysbed import HOST, K, bearer, bind, document, refused, request, sent
from tlsbed import need_tls

MARK = 0x7a  # packets with it are redirected to the egress that has the vault
OTHER = "two.test"  # allowed, bound by nothing, and another origin
ATTACKER = "11.22.0.66"  # where no name that is allowed lives
META = "169.254.169.254"
HOMOGRAPH = "аpi".encode("idna").decode() + ".model.test"  # a Cyrillic first letter
NEIGHBOURS = ("model.test", "x.api.model.test", "evil-api.model.test", "api.model.test.evil.test",
              "apixmodel.test", "api.model.testx", "api-model.test", HOMOGRAPH)
TEAM = ("a.team.test", "a.b.team.test")
NOT_TEAM = ("team.test", "xteam.test", "team.test.evil.test", "a.team.test.evil.test")
for number, new in enumerate(NEIGHBOURS + TEAM + NOT_TEAM):
    casebed.NAMES[new] = (f"11.22.0.{100 + number}", None)
BAD = ("other", "self", "expired")  # certificates, as tlsbed's SPECS call them
WILD = tuple(f"{c}{a}.wild.test" for c in ("good", *BAD) for a in ("", "-meta"))
casebed.MORE_NAMES.update({n: {"a": META} for n in WILD if "-meta" in n})
casebed.MORE_NAMES.update({
    "turn.wild.test": {"a": ["11.22.0.41", META], "rotate": 1, "ttl": 1},
    "moves.wild.test": {"a": ["11.22.0.40", "11.22.0.41"], "rotate": 1, "ttl": 1}})
PORTS = [80, 443, 8080, 8443]
POLICY = [*casebed.POLICY, ("allow", HOST, PORTS), ("allow", "*.team.test", None),
          *(("allow", n, None) for n in NEIGHBOURS + TEAM + NOT_TEAM)]
INSIDE = b"Authorization: Bearer " + K + b"\r\n"
PROOF = "address,sni,certificate,authority,binding"
DOC = document(
    {"k": K},
    bind("model", bearer(), ["/v1/*", "/p1*", "/one"], methods=["GET", "POST"]),
    bind("wild", bearer(), ["/v1/*"], (*WILD, "turn.wild.test", "moves.wild.test")),
    bind("team", bearer(), ["/*"], ("*.team.test",)),
    bind("puny", bearer(), ["/v1/*"], ("xn--bcher-kva.test",)))


def identity(bed):
    """Also gets what is redirected for MARK."""
    if any(e.name == "identity" for e in bed.running):
        return bed.need("identity")
    need_tls(bed)
    e = keysbed.vaulted(bed, "identity", DOC, policy=POLICY)
    for family in ("ip", "ip6"):
        bed.run("nft", "insert", "rule", family, "cases", "output", "meta", "mark", str(MARK),
                "tcp", "dport", "{ 80, 443, 8080 }", "redirect", "to", f":{e.port}")
    return e


def dial(addr, port, mark):
    """MARK: redirected to us; casebed.MARK: straight to the origin."""
    s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET)
    s.settimeout(casebed.WAIT_S)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    s.connect((addr, port))
    return s


def get(path, host, fields=b""):
    return b"GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (path.encode("latin1"), host.encode(), fields)


def arrived(bed, mark, text):
    """[(peer, bytes)] of the connections that brought this text."""
    return [(p, d) for p, d in bed.origins.since(mark) if text in d]


# --- every combination of the facts ---

class Row:
    """One client's connection and request. `way`: CONNECT's name, or the address before the
    redirect; `name`: the bound name, whose certificate and address are as `cert`, `addr` say."""

    def __init__(self, number, way, sni, target, host, addr, cert):
        if cert != "good":
            cert = BAD[number % len(BAD)]
        self.name = f"{cert}{addr}.wild.test"
        self.way, self.cert, self.addr = way, cert, addr
        self.connect = {"B": self.name, "O": OTHER}.get(way)
        self.dst = {"own": "11.22.0.41", "forged": casebed.NAMES[OTHER][0]}.get(way, ATTACKER)
        self.sni, self.host = (self.name if x else OTHER for x in (sni, host))
        self.target = {None: None, True: self.name, False: OTHER}[target]
        self.path = f"/v1/row-{number}"

    def __str__(self):
        return (f"{self.path} way={self.way} sni={self.sni} target={self.target} "
                f"host={self.host}")

    def message(self, fields=b""):
        where = f"https://{self.target}{self.path}" if self.target else self.path
        return get(where, self.host, fields)

    def verdict(self):
        """What must come of it: `key`, `plain`, or the reason that names the failing fact."""
        if self.target not in (None, self.host):
            return "malformed"
        if self.host != (self.connect or self.sni) or self.sni != self.host:
            return "name_mismatch"
        if self.host == OTHER:
            return "plain"
        if self.addr:
            return "address_refused"
        return "key" if self.cert == "good" else "certificate"

    def send(self, bed):
        s = bed.connect(f"{self.connect}:443") if self.connect else dial(self.dst, 443, MARK)
        if isinstance(s, Talk):
            raise Failed(f"{self}: CONNECT: {s}")
        return bed.talk(bed.wrap(s, self.sni), self.message())

    def send_naively(self, bed):
        """What a proxy does that goes by any single fact, and looks at no certificate."""
        addr = self.dst
        if self.connect:
            addr = casebed.NAMES[OTHER][0] if self.connect == OTHER else (
                META if self.addr else "11.22.0.41")
        s = dial(addr, 443, casebed.MARK)
        bed.talk(bed.wrap(s, self.sni, bed.unverified), self.message(INSIDE))


def rows_of_facts():
    facts = itertools.product(("B", "O", "own", "forged", "attacker"), (True, False),
                              (None, True, False), (True, False), ("", "-meta"), ("good", "bad"))
    return [Row(n, *f) for n, f in enumerate(facts)]


STATUS = {"malformed": 400, "name_mismatch": 403, "address_refused": 403, "certificate": 502}


def check_row(bed, row, mark, lines):
    talk, should = row.send(bed), row.verdict()
    seen = arrived(bed, mark, row.path.encode() + b" ")
    if should in STATUS:
        refused(talk, should, f"{row}", STATUS[should])
        want([(p.addr, d[:80]) for p, d in seen], [], f"{row}: what an origin saw")
    else:
        want_ok(talk, f"{row}")
        want([(p.addr, INSIDE in d) for p, d in seen],
             [("11.22.0.41", True) if should == "key" else
              (casebed.NAMES[OTHER][0], False)], f"{row}: where it went, with the key")
    lines[row.path] = should


def I01_every_combination_of_the_facts(bed):
    e = identity(bed)
    bed.unverified = bed.direct_context.__class__(bed.direct_context.protocol)
    bed.unverified.check_hostname, bed.unverified.verify_mode = False, 0
    rows, lines, mark = rows_of_facts(), {}, bed.origins.mark()
    bed.rows([(str(r), lambda r=r: check_row(bed, r, mark, lines)) for r in rows])
    want([p.addr for p, _ in bed.origins.since(mark) if p.addr in (ATTACKER, META)], [],
         "connections to where only the client wanted to go")
    kinds = {k: list(lines.values()).count(k) for k in (*STATUS, "plain", "key")}
    print(f"  facts: {len(rows)} rows: {kinds}", flush=True)
    want(all(kinds.values()), True, f"every outcome is there: {kinds}")
    want_lines(e, lines)


HELD = {"key": PROOF, "certificate": "address,sni,authority,binding",
        "address_refused": "sni,authority,binding", "name_mismatch": None, "malformed": None}


def want_lines(egress, lines):
    """The trail says of each row what came of it, and which facts held. Of refusals only so many a
    second have a line of their own."""
    def by_path():
        return {urllib.parse.urlsplit(x["url"]).path: x for x in egress.lines()
                if x["url"] and "/v1/row-" in x["url"]}
    alone = {p for p in lines if lines[p] in ("key", "plain", "certificate")}
    until(lambda: alone <= by_path().keys(), "a line for each row that reached somebody")
    for path, line in by_path().items():
        should = lines[path]
        if should == "plain":
            want((line["reason"], line["binding"]), ("allowed", None), f"{path}: line")
        else:
            want((line["reason"], line["proof"]),
                 ("allowed" if should == "key" else should, HELD[should]), f"{path}: line")
    want({lines[p] for p in by_path()}, {*lines.values()}, "outcomes that have a line")


def I02_the_same_combinations_without_us_all_leak(bed):
    """The control: for each row that is no agreement somebody who goes by one fact loses the key."""
    identity(bed)
    rows = [r for r in rows_of_facts() if r.verdict() not in ("key", "plain")]
    mark = bed.origins.mark()

    def one(row):
        row.send_naively(bed)
        want([INSIDE in d for _, d in arrived(bed, mark, row.path.encode() + b" ")], [True],
             f"{row}: control")
    bed.rows([(str(r), lambda r=r: one(r)) for r in rows])


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"I\d+_"))
