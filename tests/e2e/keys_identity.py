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
from keysbed import HOST, K, bearer, bind, document, refused, request
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
NAIVE = b"Authorization: Bearer key-of-a-control\r\n"  # theirs, who have no vault
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
    e = keysbed.vaulted(bed, "identity", DOC, policy=POLICY, EGRESS_CONNECT_TIMEOUT="2s")
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
        bed.talk(bed.wrap(s, self.sni, bed.unverified), self.message(NAIVE))


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
        want([NAIVE in d for _, d in arrived(bed, mark, row.path.encode() + b" ")], [True],
             f"{row}: control")
    bed.rows([(str(r), lambda r=r: one(r)) for r in rows])


# --- names that move ---

def row_at(bed, name, path="/v1/x"):
    """(talk, where it arrived) of one request by CONNECT."""
    mark = bed.origins.mark()
    talk = bed.via(name, get(path, name))
    return talk, arrived(bed, mark, b"GET " + path.encode())


def I03_a_name_that_turns_to_a_forbidden_address(bed):
    """Rebinding: looked up again, it is the metadata service. Neither the new address nor a kept
    connection gets what only the first one may have."""
    identity(bed)
    outcomes = []
    for i in range(4):
        talk, seen = row_at(bed, "turn.wild.test")
        if talk.statuses == [200]:
            want([(p.addr, INSIDE in d) for p, d in seen], [("11.22.0.41", True)], f"{i}")
        else:
            refused(talk, "address_refused", f"{i}")
            want(seen, [], f"{i}")
        outcomes.append(talk.statuses[0])
        time.sleep(1.6)  # longer than the answer may be kept, and a connection that idles
        bed.rows_run += 1
    want(set(outcomes), {200, 403}, f"both answers were given: {outcomes}")
    mark = bed.origins.mark()
    with dial(META, 443, casebed.MARK) as s:
        bed.talk(bed.wrap(s, "turn.wild.test", bed.direct_context),
                 get("/v1/naive", "turn.wild.test", NAIVE))
    want([p.addr for p, d in arrived(bed, mark, NAIVE)], [META],
         "control: the other address has a good certificate and takes the key")


def I04_where_the_client_dials_does_not_matter(bed):
    """The client was given one address, we find another: it is ours that gets the key, or nobody."""
    identity(bed)
    for dst in ("11.22.0.40", "11.22.0.41", ATTACKER, META, "10.77.0.2", "2a0e:77::66"):
        mark = bed.origins.mark()
        s = dial(dst, 443, MARK)
        want_ok(bed.talk(bed.wrap(s, "good.wild.test"), get("/v1/x", "good.wild.test")), dst)
        want([(p.addr, INSIDE in d) for p, d in arrived(bed, mark, b"GET /v1/x ")],
             [("11.22.0.41", True)], dst)
        bed.rows_run += 1
    mark = bed.origins.mark()
    want_ok(bed.talk(bed.wrap(dial(casebed.NAMES[OTHER][1], 443, MARK), HOST), request(b"/v1/x")),
            "IPv6")
    [(peer, got)] = arrived(bed, mark, b"GET /v1/x ")
    want((peer.addr in casebed.NAMES[HOST], INSIDE in got), (True, True), "IPv6")
    addresses = set()

    def moved():  # a name that moves between two good addresses keeps its key
        talk, seen = row_at(bed, "moves.wild.test")
        want_ok(talk, "moves")
        addresses.update(p.addr for p, d in seen if INSIDE in d)
        time.sleep(1.2)  # a kept connection would not ask for the name again
        return addresses == {"11.22.0.40", "11.22.0.41"}
    until(moved, "control: it did move", 15)


# --- neighbours ---

def by_every_way(bed, name, path, method=b"GET"):
    """{way: function} of the ways to ask a name by https."""
    line = b"%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n"
    plain = line % (method, path.encode(), name.encode())
    whole = line % (method, f"https://{name}{path}".encode(), name.encode())
    addr = casebed.NAMES.get(name.lower().rstrip("."), ("11.22.0.20",))[0]
    sni = name.rstrip(".")
    ways = {"connect": lambda d: bed.talk(bed.wrap(bed.connect(f"{name}:443"), sni), d),
            "redirected": lambda d: bed.talk(bed.wrap(dial(addr, 443, MARK), sni), d)}
    out = {f"{w} {k}": lambda f=f, d=d: f(d) for w, f in ways.items()
           for k, d in (("origin-form", plain), ("absolute-form", whole))}
    out["proxy"] = lambda: bed.px(whole)
    return out


def want_key(bed, what, send, path, key=True):
    mark = bed.origins.mark()
    talk = send()
    want_ok(talk, what)
    seen = arrived(bed, mark, path.encode() + b" HTTP")
    want([INSIDE in d for _, d in seen], [key], f"{what}: arrived, with the key")
    if not key:
        want_out(K, b"".join(d for _, d in seen), what)


def I05_neighbours_of_a_bound_name(bed):
    identity(bed)
    rows, n = [], itertools.count()
    same = (HOST, "API.Model.TEST", HOST + ".", "xn--bcher-kva.test", "XN--BCHER-KVA.test")
    for name, key in [*((s, True) for s in (*same, *TEAM)),
                      *((s, False) for s in (*NEIGHBOURS, *NOT_TEAM))]:
        for way in by_every_way(bed, name, "/"):
            path = f"/v1/n-{next(n)}-"
            send = by_every_way(bed, name, path)[way]
            rows.append((f"{name} {way}", lambda f=send, p=path, k=key, w=f"{name} {way}":
                         want_key(bed, w, f, p, k)))
    bed.rows(rows)
    mark = bed.origins.mark()
    for host in ("b\xfccher.test", "b\xc3\xbccher.test", HOST + "..", "." + HOST, HOST + "\x00.evil.test",
                 HOST + "%00.evil.test", HOST + "@evil.test", "evil.test@" + HOST, HOST + "/.evil.test",
                 HOST + "\\.evil.test", HOST + "#.evil.test", HOST + "?.evil.test"):
        talk = bed.via(HOST, b"GET /v1/odd HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode("latin1"))
        want(talk.statuses[:1], [400], f"{host!r}: {talk}")
        bed.rows_run += 1
    want(arrived(bed, mark, b"/v1/odd"), [], "no such name is sent to anybody")


def I06_neighbours_of_its_port_and_scheme(bed):
    identity(bed)

    def through(port, data, tls, **how):
        s = bed.connect(f"{HOST}:{port}")
        return bed.talk(bed.wrap(s, HOST) if tls else s, data, **how)
    silent = {"wait": 0.3}  # an origin at port 80 speaks no TLS, and says nothing to it
    rows = {
        "https on 8443": (lambda p: through(8443, get(p, f"{HOST}:8443"), True), 200),
        "https on 8443, Host says 443": (lambda p: through(8443, get(p, f"{HOST}:443"), True), 403),
        "443, Host says 8443": (lambda p: through(443, get(p, f"{HOST}:8443"), True), 403),
        "http": (lambda p: bed.px(get(f"http://{HOST}{p}", HOST)), 200),
        "http on 443": (lambda p: bed.px(get(f"http://{HOST}:443{p}", f"{HOST}:443")), 200),
        "http on 8080": (lambda p: bed.px(get(f"http://{HOST}:8080{p}", f"{HOST}:8080")), 200),
        "http in a tunnel to 80": (lambda p: through(80, get(p, HOST), False), 200),
        "http in a tunnel to 443": (lambda p: through(443, get(p, HOST), False), 200),
        "https in a tunnel to 80": (lambda p: through(80, get(p, HOST), True, **silent), None),
        "http in https": (lambda p: through(443, get(f"http://{HOST}{p}", HOST), True), 400),
        "https in http": (lambda p: through(80, get(f"https://{HOST}{p}", HOST), False), 400),
        "https on 80": (lambda p: bed.px(get(f"https://{HOST}:80{p}", f"{HOST}:80"), **silent), None),
        "redirected http": (lambda p: bed.talk(dial("11.22.0.20", 80, MARK), get(p, HOST)), 200),
        "redirected http on 443": (
            lambda p: bed.talk(dial("11.22.0.20", 443, MARK), get(p, HOST)), 200),
        "redirected https on 80": (
            lambda p: bed.talk(bed.wrap(dial("11.22.0.20", 80, MARK), HOST), get(p, HOST),
                              **silent), None),
        "redirected http on 8080": (
            lambda p: bed.talk(dial("11.22.0.20", 8080, MARK), get(p, f"{HOST}:8080")), 200),
    }
    for number, (what, (send, status)) in enumerate(rows.items()):
        path, mark = f"/v1/port-{number}", bed.origins.mark()
        talk = send(path)
        if status:
            want(talk.statuses, [status], f"{what}: {talk}")
        everything = b"".join(d for _, d in bed.origins.since(mark))
        want_out(K, everything, what)
        if status == 200:
            want_in(path.encode() + b" HTTP", everything, f"{what}: it arrives")
        bed.rows_run += 1
    want_key(bed, "control", lambda: through(443, get("/v1/port-ok", HOST), True), "/v1/port-ok")
    want_key(bed, "control: 443 said", lambda: through(443, get("/v1/port-443", f"{HOST}:443"), True),
             "/v1/port-443")


def I07_neighbours_of_its_paths_and_methods(bed):
    identity(bed)
    rows = [(p, True) for p in ("/v1/", "/v1/x", "/v1/x/y", "/v1/?x", "/v1/x?../../admin",
                                "/v1/x?/..%2f..%2f", "/v1//x", "/v1/.../x", "/v1/..x", "/v1/x..",
                                "/p1", "/p10", "/p1/x", "/one", "/one?x=1", "/v1/a%2fb", "/v1/%41")]
    rows += [(p, False) for p in ("/", "/v1", "/v1?/v1/", "/V1/x", "/v10/x", "/v11", "/xv1/x",
                                  "/x/v1/x", "//v1/x", "/v%31/x", "/%76%31/x", "/v1%2fx", "/p",
                                  "/P1", "/one/", "/onex", "/one%3fx", "/ONE", "/?/v1/x",
                                  "/./v1/x", "/x/../v1/x", "/v1;x=1/y", "/;/v1/x")]
    for path, key in rows:
        for way, send in by_every_way(bed, HOST, path).items():
            want_key(bed, f"{path} {way}", send, path, key)
            bed.rows_run += 1
    for method, key in ((b"GET", True), (b"HEAD", False), (b"OPTIONS", False), (b"get", True),
                        (b"POST", True), (b"PUT", False), (b"DELETE", False)):
        mark = bed.origins.mark()
        talk = bed.via(HOST, b"%s /v1/m HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n"
                       % (method, HOST.encode()), head=method == b"HEAD")
        seen = arrived(bed, mark, method + b" /v1/m ")
        if key or method in (b"HEAD", b"OPTIONS"):
            want([INSIDE in d for _, d in seen], [key], f"{method} {talk}")
        else:
            want((talk.statuses, seen), ([403], []), f"{method}: a write that nothing binds")
        bed.rows_run += 1


# --- paths that two readers see differently ---

UP = ("..", "%2e%2e", ".%2E", "%2e.", "%252e%252e", "%25252e%25252e", "%2525252e.", "..;", "..;x=1",
      "%2e%2e;x", "..%3b", "%2e%2e%3Bx", "..%00", "%2e%2e%00x", "%c0%ae%c0%ae", "%e0%80%ae%e0%80%ae",
      "%f0%80%80%ae.", "%u002e%u002e", "%25u002e.", "%c0%ae.", "x/../..", "./..", "%2e/%2e%2e",
      "x//..//..", "...", ".", "..x", "x..")
CUT = ("/", "%2f", "%252F", "%25252f", "\\", "%5c", "%255C", "//", "/./", "%c0%af", "%e0%80%af",
       "%c1%9c", "%u002f", "%u005C", "%00/", "/%00")
BYTE = re.compile(rb"%(?:[uU]([0-9a-fA-F]{4})|([0-9a-fA-F]{2}))")


def decode_once(path):
    """As generous readers do it: UTF-16 escapes, and afterwards over-long UTF-8."""
    out = BYTE.sub(lambda m: chr(int(m[1], 16)).encode() if m[1] else bytes([int(m[2], 16)]), path)
    for lead, more, mask in ((0xc0, 1, 0x1f), (0xe0, 2, 0x0f), (0xf0, 3, 0x07)):
        wide = re.compile(b"[%c-%c][\x80-\xbf]{%d}" % (lead, lead | mask, more), re.S)
        out = wide.sub(lambda m, k=mask: bytes([c]) if (c := narrow(m[0], k)) < 0x80 else m[0], out)
    return out


def narrow(text, mask):
    code = text[0] & mask
    for byte in text[1:]:
        code = code << 6 | byte & 0x3f
    return code


def resolve(path, merge=False):
    out = []
    for part in path.split(b"/")[1:]:
        if part == b".." and out:
            out.pop()
        elif part not in (b".", b"..") and (part or not merge):
            out.append(part)
    return b"/" + b"/".join(out)


READERS = (decode_once, resolve, lambda p: resolve(p, True), lambda p: p.replace(b"\\", b"/"),
           lambda p: p.split(b"\0")[0], lambda p: re.sub(b";[^/]*", b"", p))


def readings(path):
    """Every path that some order of what readers do makes of it."""
    known, new = {path}, {path}
    for _ in range(6):
        new = {read(p) for p in new for read in READERS} - known
        known |= new
    return known


def escapes(path):
    return any(not p.startswith(b"/v1/") and p != b"/v1" for p in readings(path))


def I08_a_key_goes_to_no_path_that_a_reader_may_put_elsewhere(bed):
    """Nor is the path changed on the way: without the vault each of them arrives as it was sent."""
    e, main = identity(bed), next(x for x in bed.running if x.name == "main")
    paths = [f"/v1/{up}{cut}admin" for up in UP for cut in CUT]
    paths += ["/v1/..", "/v1/%2e%2e", "/v1/a/..%2f..", "/v1/\xae\xae/admin", "/v1/\xc0\xae./admin"]
    counts = {"held": 0, "key": 0, "refused": 0}

    def one(number, path):
        mark, raw = bed.origins.mark(), path.encode("latin1")
        talk = via(bed, e, b"GET %s?%d HTTP/1.1\r\nHost: %s\r\n\r\n" % (raw, number, HOST.encode()))
        got = arrived(bed, mark, b"?%d HTTP/1.1\r\n" % number)
        key = [INSIDE in d for _, d in got]
        if escapes(raw):
            want(key, [], f"{path}: nothing arrives ({talk})")
            refused(talk, "path_ambiguous", path)
            arrives(bed, main, raw, number)
            counts["held"] += 1
        else:
            counts["key" if key == [True] else "refused"] += 1
    bed.rows([(p, lambda n=n, p=p: one(n, p)) for n, p in enumerate(paths)])
    print(f"  paths: {len(paths)}: {counts}", flush=True)
    want([counts["held"] > 380, counts["key"] > 10], [True, True], f"{counts}")


def via(bed, egress, data):
    """Like bed.via, for one of two that are asked by turns."""
    s = bed.dial("127.0.0.1", egress.port)
    s.sendall(b"CONNECT %s:443 HTTP/1.1\r\nHost: %s\r\n\r\n" % ((HOST.encode(),) * 2))
    talk = Talk(head=True)
    casebed.read_talk(s, talk, 1, casebed.WAIT_S)
    want(talk.statuses, [200], "CONNECT")
    return bed.talk(bed.wrap(s, HOST, egress.context), data)


def arrives(bed, egress, raw, number):
    """The control: an origin does get this path, letter by letter, with the client's own key."""
    line = b"GET %s?main-%d HTTP/1.1\r\n" % (raw, number)
    mark = bed.origins.mark()
    via(bed, egress, line + b"Host: %s\r\n%s\r\n" % (HOST.encode(), NAIVE))
    want([NAIVE in d for _, d in arrived(bed, mark, line)], [True], f"{raw}: control")


def I09_path_tricks_by_every_way(bed):
    identity(bed)
    tricks = ("/v1/../admin", "/v1/%2e%2e/admin", "/v1/%252e%252e%252fadmin", "/v1/..;/admin",
              "/v1/..%5cadmin", "/v1/./x", "/p1/../admin", "/p10%2f..%2f..%2fadmin")
    mark = bed.origins.mark()
    for path in tricks:
        for way, send in by_every_way(bed, HOST, path).items():
            refused(send(), "path_ambiguous", f"{path} {way}")
            bed.rows_run += 1
    for target in (f"https://{HOST}\\@two.test/v1/x", f"https://{HOST}\\v1/x", f"https://{HOST}?/v1/x",
                   f"https:/{HOST}/v1/x", f"https:{HOST}/v1/x", f"//{HOST}/v1/x ", "v1/x", "\\v1\\x",
                   f"https://two.test#@{HOST}/v1/x", "/v1/x#/../..", "/v1/ x", "/v1/\tx", "*"):
        talk = bed.px(get(target, HOST))
        want(talk.statuses, [400], f"{target}: {talk}")
        bed.rows_run += 1
    want([d[:99] for _, d in bed.origins.since(mark)], [], "nothing arrived")
    want_key(bed, "control", lambda: bed.px(get(f"https://{HOST}/v1/ok", HOST)), "/v1/ok")


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"I\d+_"))
