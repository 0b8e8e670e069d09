#!/usr/bin/env python3
"""Failures of peers about names, addresses and ports: CONNECT, SNI, Host, redirected connections.

| case | covered | left out, with the reason |
| --- | --- | --- |
| C63 | all 27 of CONNECT, SNI and Host, no SNI, all redirected ones, later requests of a connection.
        A wrong SNI gets a 403 inside a finished handshake, not an alert (design 4) | h2 streams, K:
        no HTTP/2, no vault |
| C65 | all rows, by the design's table; port 80 with checks inside, a port that a rule names | - |
| C67 | all spellings, explicit, in absolute-form and as AAAA answers | connects judged by the kernel:
        no rules in the kernel |
| C69 | all rows; `curl` is written out as bytes | - |
| C71 | all spellings in CONNECT, absolute-form, Host and SNI | DNS questions: no gate for them |
| C73 | all addresses and names, explicit and redirected on port 80; 10.77.0.2 on 22, 80, 8081 |
        direct connections to other ports: the kernel's |
"""
import os
import ssl
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import casebed  # noqa: E402
from casebed import Failed, NAMES, Talk, want, want_403, want_400c, want_in, want_ok  # noqa: E402

READ, API, DENY = "read.test", "api.model.test", "deny.test"
READ_IP, API_IP, DENY_IP = "11.22.0.10", "11.22.0.20", "11.22.0.66"
HOSTS = (READ, DENY, API)


def get(host, target="/", method=b"GET"):
    content = b"" if method == b"GET" else b"Content-Length: 2\r\n"
    return b"%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s" % (
        method, target.encode("latin1"), host.encode("latin1"), content,
        b"hi" if content else b"")


def tls_talk(bed, s, sni, message, check_name=True):
    """Inside TLS with this SNI; what it gave, also if the handshake failed."""
    if isinstance(s, Talk):
        return s
    context = bed.egress.context
    if not check_name or sni is None:
        context = ssl.create_default_context(cafile=bed.egress.ca)
        context.check_hostname = False
    try:
        return bed.talk(context.wrap_socket(s, server_hostname=sni), message)
    except OSError as e:
        s.close()
        talk = Talk()
        talk.error, talk.eof = f"handshake: {e}", True
        return talk


def not_through(talk, what, statuses=(403, 421)):
    """Refused by us: a status of ours, an alert, or closed."""
    if talk.finals:
        want(talk.finals[0].status in statuses, True, f"{what}: {talk}")
        want(talk.finals[0].field("x-egress-verdict"), "blocked", f"{what}: whose answer")
    else:
        want(talk.eof or bool(talk.error), True, f"{what}: {talk}")
        want(talk.error != "open", True, f"{what}: left open")


def arrived(bed, mark):
    """What came: (address, port, SNI) and the bytes, of connections that brought some."""
    return [(p.addr, p.port, p.sni, d) for p, d in bed.origins.since(mark) if d]


def C63_only_one_name_passes_connect(bed):
    mark = bed.origins.mark()
    for a, sni, host in [(READ, READ, READ), (API, API, API)]:
        want_ok(tls_talk(bed, bed.connect(f"{a}:443"), sni, get(host)), f"{a} {sni} {host}")
    want([x[:3] for x in arrived(bed, mark)], [(READ_IP, 443, READ), (API_IP, 443, API)], "who")
    rows = [(f"{a} {sni} {host}", lambda a=a, sni=sni, host=host: not_through(
        tls_talk(bed, bed.connect(f"{a}:443"), sni, get(host)), f"{a} {sni} {host}"))
            for a in HOSTS for sni in (*HOSTS, None) for host in HOSTS
            if not (a == sni == host) or a == DENY]
    bed.nothing(rows, [(get(h), NAMES[h][0], 443, h) for h in HOSTS])


def C63_only_one_name_passes_redirected(bed):
    mark = bed.origins.mark()
    for to, name, ip in ((READ_IP, READ, READ_IP), (READ_IP, API, API_IP), (DENY_IP, READ, READ_IP)):
        want_ok(tls_talk(bed, bed.dial(to, 443), name, get(name)), f"to {to} as {name}")
        got = arrived(bed, mark)
        want([x[:3] for x in got], [(ip, 443, name)], f"to {to} as {name}: we look names up")
        mark = bed.origins.mark()
    rows = [(f"{to} {sni} {host}", lambda to=to, sni=sni, host=host: not_through(
        tls_talk(bed, bed.dial(to, 443), sni, get(host)), f"{to} {sni} {host}"))
            for to in (READ_IP, DENY_IP, API_IP) for sni in (*HOSTS, None) for host in HOSTS
            if sni != host or sni == DENY]
    bed.nothing(rows, [(get(h), DENY_IP, 443, DENY) for h in HOSTS])


def C63_later_requests_are_judged_too(bed):
    def row(send, other):
        t = send(get(READ) + get(other), n=2)
        want([t.finals[0].status, t.finals[-1].status], [200, 403], f"{t}")
    mark = bed.origins.mark()
    bed.rows([(f"{how} {other}", lambda f=f, other=other: row(f, other)) for other in (API, DENY)
              for how, f in (("tls", lambda m, **k: bed.tls(READ, m, **k)),
                             ("via", lambda m, **k: bed.via(READ, m, **k)))])
    want({x[0] for x in arrived(bed, mark)}, {READ_IP}, "who was reached")


def connect_line(bed, target, fields=None, port=None):
    """Talk of a raw CONNECT."""
    fields = b"Host: %s\r\n" % target if fields is None else fields
    s = bed.dial("127.0.0.1", port or bed.egress.port)
    return bed.talk(s, b"CONNECT %s HTTP/1.1\r\n%s\r\n" % (target, fields), wait=2, head=True)


def is_status(talk, status, what):
    want([r.status for r in talk.finals], [status], f"{what}: {talk}")
    if status == 400:
        want(talk.raw.count(b"HTTP/1.1"), 1, what)


BAD_AUTHORITIES = [b"read.test", b"read.test:", b"read.test:65536", b"read.test:443443",
                   b"read.test:-1", b"read.test:https", b"read.test: 443", b"read.test:0443",
                   b"read.test:0", b"", b":443", b"http://read.test/", b"/", b"*", b"read.test:443/",
                   b"read.test:443:443", b"read.test :443", b"u@read.test:443", b"read.test:+443",
                   b"read.test:0x1bb", b"read.test:4 43", b"read.test,deny.test:443"]


def C65_malformed_authorities_are_400(bed):
    def row(a):
        t = connect_line(bed, a, b"Host: read.test:443\r\n")
        want([t.statuses, b" 200 " in t.raw], [[400], False], f"{a}: {t}")
    bed.nothing([(repr(a), lambda a=a: row(a)) for a in BAD_AUTHORITIES] +
                [("no Host", lambda: is_status(connect_line(bed, b"read.test:443", b""), 400, "Host"))],
                [(b"CONNECT read.test HTTP/1.1\r\nHost: read.test:443\r\n\r\n",)])


def C65_ports_by_the_table(bed):
    def row(target, status):
        is_status(connect_line(bed, target.encode()), status, target)
    rows = [(f"{READ}:{p}", lambda p=p: row(f"{READ}:{p}", 403))
            for p in (1, 21, 22, 25, 444, 8081, 8443, 65535)]
    rows += [(f"{READ}:{p}", lambda p=p: row(f"{READ}:{p}", 200)) for p in (80, 443, 8080)]
    rows += [(f"{t}", lambda t=t: row(t, 200)) for t in (f"{API}:22", "10.77.0.2:22",
                                                         "10.77.0.2:8081")]
    rows += [(f"{t}", lambda t=t: row(t, 403)) for t in ("deny.test:443", "10.77.0.3:8081",
                                                         "11.22.0.10:443", "two.test:22")]
    bed.nothing(rows, [(b"x", READ_IP, 22)])


def C65_tunnelled_bytes_by_the_table(bed):
    def row(target, first, through):
        s = bed.connect(target)
        if isinstance(s, Talk):
            raise Failed(f"{target}: {s}")
        mark = bed.origins.mark()
        bed.talk(s, first, n=None, wait=0.8)
        want(first in b"".join(x[3] for x in arrived(bed, mark)), through, f"{target} {first}")
    rows = [(t, b, yes) for t, yes in ((f"{READ}:80", False), (f"{READ}:443", False),
                                       (f"{READ}:8080", False), (f"{API}:22", True),
                                       ("10.77.0.2:22", True))
            for b in (b"SSH-2.0-%s %d\r\n" % (t.encode(), yes), b"\x00\x01binary" + t.encode())]
    bed.rows([(f"{t} {b[:8]}", lambda t=t, b=b, y=y: row(t, b, y)) for t, b, y in rows])
    bed.control(b"SSH-2.0-read\r\n", READ_IP, 443)


def C65_silence_is_a_tunnel_only_where_writing_is(bed):
    mark = bed.origins.mark()
    s = bed.connect(f"{READ}:443")
    t = bed.talk(s, b"", n=None, wait=2)
    want([t.eof, t.raw, 0.2 < t.took < 1.5], [True, b"", True], f"read host: {t} {t.took}")
    want(bed.origins.since(mark), [], "nothing is dialled")
    with bed.connect("10.77.0.2:8081"):
        casebed.until(lambda: [p for p, _ in bed.origins.since(mark) if p.addr == "10.77.0.2"],
                      "private: dialled")
    bed.rows_run += 2


def C65_port_80_and_named_ports_are_judged_inside(bed):
    mark = bed.origins.mark()

    def both(authority):
        s = bed.connect(authority)
        host = authority.removesuffix(":80")
        t = bed.talk(s, get(host, "/a") + get(host, "/w", b"POST"), n=2)
        want([r.status for r in t.finals], [200, 403], f"{authority}: {t}")
        want_403(t, authority)

    def other(authority):
        t = bed.talk(bed.connect(authority), get(DENY))
        want_403(t, f"{authority}, Host {DENY}")
    bed.rows([(f"{f.__name__} {p}", lambda f=f, p=p: f(f"{READ}:{p}")) for f in (both, other)
              for p in (80, 8080)])
    got = arrived(bed, mark)
    want(sorted(x[:2] for x in got), [(READ_IP, 80), (READ_IP, 8080)], "who")
    want([x[3].count(b"HTTP/1.1") for x in got], [1, 1], "one request each")


def C65_host_field_never_overrides_connect(bed):
    mark = bed.origins.mark()
    s = bed.dial("127.0.0.1", bed.egress.port)
    s.sendall(b"CONNECT read.test:443 HTTP/1.1\r\nHost: deny.test:443\r\n\r\n")
    t = Talk(head=True)
    casebed.read_talk(s, t, 1, 3)
    if t.statuses == [400]:
        return
    want_ok(tls_talk(bed, s, READ, get(READ)), "read.test inside")
    want([x[:3] for x in arrived(bed, mark)], [(READ_IP, 443, READ)], "who")
    s = bed.dial("127.0.0.1", bed.egress.port)
    t = bed.talk(s, b"CONNECT deny.test:443 HTTP/1.1\r\nHost: read.test:443\r\n\r\n")
    want_403(t, "CONNECT deny.test")
    bed.rows_run += 2


def C65_connect_inside_a_connection_is_refused(bed):
    inside = b"CONNECT read.test:443 HTTP/1.1\r\nHost: read.test:443\r\n\r\n"
    bed.nothing([(how, lambda send=send, how=how: want_403(send(READ, inside), how))
                 for how, send in (("plain", bed.plain), ("tls", bed.tls), ("via", bed.via),
                                   ("tunnel80", bed.tunnel80))], [(inside,)])


BROKEN_ADDRESSES = ["[fe80::1%25eth0]:80", "[fe80::1%eth0]:80", "2a0e:77::66:443", "[2a0e:77::10",
                    "[]:443", "[g::1]:443", "[::1]]:443", "[[::1]:443", "[::1]443", "[1::2::3]:443",
                    "[12345::]:443", "[10.77.0.2]:8081", "[::ffff:10.77.0.256]:8081",
                    "[0:0:0:0:0:ffff:a4d:2]", "[::ffff:10.77.0.2]", "[v1.x]:443"]
MAPPED = ["[::ffff:10.77.0.2]:8081", "[::ffff:a4d:2]:8081", "[0:0:0:0:0:ffff:a4d:2]:8081",
          "[::FFFF:A4D:2]:8081"]
FORBIDDEN = ["[::ffff:0:a4d:2]:8081", "[64:ff9b::a4d:2]:8081", "[2002:0a4d:0002::]:8081",
             "[::10.77.0.2]:8081", "[::1]:8081", "[::]:8081", "[2a0e:77::66]:443",
             "[2a0e:77::10]:443", "[::ffff:10.77.0.3]:8081", "[::ffff:11.22.0.66]:443",
             "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "[::ffff:127.0.0.1]:8081",
             "[fe80::1]:80", "[fd00:ec2::254]:80", "[64:ff9b:1::a4d:2]:8081"]
# Read as inet_aton(3) reads them, once, for policy and for connecting: these are 10.77.0.3 and 10.63.0.2.
ODD_V4 = ["0x0a4d0003:8081", "172818435:8081", "10.77.3:8081", "012.0115.0.3:8081",
          "10.077.0.2:8081", "10.77.0.3.:8081", "10.77.0.03:8081"]
ODD_V4_ALLOWED = ["0x0a4d0002:8081", "172818434:8081", "10.77.2:8081", "012.0115.0.2:8081"]


def C67_broken_addresses_are_400(bed):
    rows = [(f"CONNECT {a}", lambda a=a: is_status(connect_line(bed, a.encode()), 400, a))
            for a in BROKEN_ADDRESSES]
    rows += [(f"GET {a}", lambda a=a: is_status(bed.px(get(a, f"http://{a}/")), 400, a))
             for a in BROKEN_ADDRESSES if "]:" in a or "]" not in a]
    bed.nothing(rows, [(get("[::1]", "http://10.77.0.2:8081/"), "10.77.0.2", 8081)])


def C67_mapped_addresses_are_the_ipv4_ones(bed):
    for a in MAPPED + ODD_V4_ALLOWED:
        mark = bed.origins.mark()
        want_ok(bed.px(get(a, f"http://{a}/", b"POST")), f"POST to {a}")
        want([x[:2] for x in arrived(bed, mark)], [("10.77.0.2", 8081)], f"{a}: who")
        want_in(b"Host: 10.77.0.2:8081\r\n", arrived(bed, mark)[0][3], f"{a}: Host")
        is_status(connect_line(bed, a.encode()), 200, a)
    bed.rows_run += 16


def C67_other_forms_lend_no_exemption(bed):
    rows = [(f"CONNECT {a}", lambda a=a: is_status(connect_line(bed, a.encode()), 403, a))
            for a in FORBIDDEN]
    rows += [(f"{m} {a}", lambda a=a, m=m: is_status(
        bed.px(get(a, f"http://{a}/", m)), 403, a)) for a in FORBIDDEN for m in (b"GET", b"POST")]
    rows += [(a, lambda a=a: want_403(bed.px(get(a, f"http://{a}/", b"POST")), a)) for a in ODD_V4]
    bed.nothing(rows, [(get("10.77.0.2"), "10.77.0.2", 8081), (get("x"), "10.77.0.3", 8081)])


def C67_the_same_as_answers_of_the_resolver(bed):
    names = ("mapped", "nat64", "sixtofour", "loop", "unique", "private", "meta")
    rows = [(f"{n} {m}", lambda n=n, m=m: want(bed.px(get(
        f"{n}.wild.test", f"http://{n}.wild.test/", m)).finals[0].status in (403, 502), True, n))
            for n in names for m in (b"GET", b"POST")]
    rows += [(f"{n} redirected", lambda n=n: want(bed.talk(bed.dial(READ_IP, 80), get(
        f"{n}.wild.test")).finals[0].status in (403, 502), True, n)) for n in names]
    bed.nothing(rows, [(get("private.wild.test"), "10.77.0.3"), (get("x"), "169.254.169.254")])


def C69_address_of_an_allowed_name_is_no_name(bed):
    def row(f, what):
        not_through(f(), what)
    bed.nothing([
        ("GET", lambda: want_403(bed.px(get(READ_IP, f"http://{READ_IP}/")), "explicit")),
        ("https", lambda: want_403(bed.px(get(READ_IP, f"https://{READ_IP}/")), "explicit https")),
        ("CONNECT", lambda: is_status(connect_line(bed, b"11.22.0.10:443"), 403, "CONNECT")),
        ("CONNECT v6", lambda: is_status(connect_line(bed, b"[2a0e:77::10]:443"), 403, "CONNECT")),
        ("no SNI", lambda: row(lambda: tls_talk(bed, bed.dial(READ_IP, 443), None, get(READ_IP)),
                               "no SNI")),
        ("no SNI, name", lambda: row(lambda: tls_talk(bed, bed.dial(READ_IP, 443), None, get(READ)),
                                     "no SNI, Host a name")),
        ("no SNI, denied", lambda: row(lambda: tls_talk(bed, bed.dial(DENY_IP, 443), None,
                                                        get(DENY_IP)), "no SNI")),
        ("Host an address", lambda: want_403(bed.plain(READ, get(READ_IP)), "Host an address")),
        ("1.0 without Host", lambda: want_403(bed.plain(READ, b"GET / HTTP/1.0\r\n\r\n"), "1.0")),
        ("ipv6", lambda: want_403(bed.plain(READ, get("[2a0e:77::10]"), v6=True), "ipv6")),
    ], [(get(READ_IP),), (b"GET / HTTP/1.0\r\n\r\n",)])


def C69_names_decide_and_we_look_them_up(bed):
    for to in (READ_IP, DENY_IP, "2a0e:77::66"):
        mark = bed.origins.mark()
        want_ok(bed.talk(bed.dial(to, 80), get(READ)), f"Host read.test to {to}")
        want(arrived(bed, mark)[0][0] in NAMES[READ], True, f"to {to}: dialled what we looked up")
    mark = bed.origins.mark()
    want_ok(bed.px(get("10.77.0.2", "http://10.77.0.2/", b"POST")), "address with a rule")
    want([x[:2] for x in arrived(bed, mark)], [("10.77.0.2", 80)], "who")
    bed.rows_run += 4


IDN = "xn--bcher-kva.test"
BAD_NAMES = [b"b\xc3\xbccher.test", b"b%C3%BCcher.test", b"read\xe3\x80\x82test",
             b"read\xef\xbc\x8etest", b"\xef\xbd\x92ead.test", b"read.test..", b".read.test",
             b"re\xd0\xb0d.test", b"read..test", b"read.test\x00.deny.test", b"read%2etest"]
GOOD_NAMES = [b"READ.TEST", b"read.test.", b"Read.Test.", b"XN--BCHER-KVA.test"]


def C71_other_than_ascii_names_are_400(bed):
    rows = []
    for n in BAD_NAMES:
        text = n.decode("latin1")
        rows += [(f"CONNECT {n}", lambda n=n: is_status(connect_line(bed, n + b":443"), 400, n)),
                 (f"GET {n}", lambda t=text: is_status(bed.px(get(t, f"http://{t}/")), 400, t)),
                 (f"Host {n}", lambda t=text: want_400c(bed.plain(READ, get(t), n=None), t)),
                 (f"Host {n} tls", lambda t=text: want_400c(bed.tls(READ, get(t), n=None), t))]
    bed.nothing(rows, [(get(n.decode("latin1")),) for n in BAD_NAMES])


def C71_case_and_one_dot_do_not_matter(bed):
    for n in GOOD_NAMES:
        t = n.decode()
        name = t.lower().rstrip(".")
        for what, talk in (("absolute", lambda: bed.px(get(t, f"http://{t}/"))),
                           ("Host", lambda: bed.talk(bed.dial(READ_IP, 80), get(t))),
                           ("CONNECT", lambda: tls_talk(bed, bed.connect(f"{t}:443"), name, get(t))),
                           ("SNI", lambda: tls_talk(bed, bed.dial(READ_IP, 443), t, get(t), False))):
            mark = bed.origins.mark()
            want_ok(talk(), f"{what} {t}")
            (addr, port, sni, data), = arrived(bed, mark)
            want(addr in NAMES[name], True, f"{what} {t}: who")
            want(sni, name if port == 443 else None, f"{what} {t}: SNI upstream")
            want_in(b"\r\nHost: " + name.encode() + b"\r\n", data, f"{what} {t}")
            bed.rows_run += 1
    want([x["host"] for x in bed.egress.lines() if x.get("host") in
          ("READ.TEST", "read.test.", "Read.Test.")], [], "the trail has one spelling")


def hello(name):
    """A ClientHello whose SNI has these bytes."""
    placeholder = b"a" * (len(name) - 2) + b".b"
    context, out = ssl.create_default_context(), ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=placeholder.decode()).do_handshake()
    except ssl.SSLWantReadError:
        pass
    data = out.read()
    want(data.count(placeholder), 1, "the name stands in the hello once")
    return data.replace(placeholder, name)


def C71_odd_names_in_sni_are_refused(bed):
    names = [*BAD_NAMES, b"read.test:443", b"deny.test\x00", b"a b.te",
             b"*.read.test"]

    def row(n):
        message = hello(n)  # takes a while; the silence after dial must be short
        t = bed.talk(bed.dial(READ_IP, 443), message, n=None, wait=3)
        want([t.eof or bool(t.error) and t.error != "open", t.raw[:1], t.raw[5:6]],
             [True, b"\x15", b"\x02"], f"a fatal alert for {n}: {t.raw[:20]!r} {t.error}")
    bed.nothing([(repr(n), lambda n=n: row(n)) for n in names], [(hello(b"read.test"),)])


METADATA = [("169.254.169.254", "/latest/meta-data/"), ("fd00:ec2::254", "/"),
            ("100.100.100.200", "/"), ("10.77.0.3", "/"), ("172.17.0.1", "/"), ("192.168.0.1", "/"),
            ("127.0.0.1", "/"), ("0.0.0.0", "/")]


def C73_metadata_and_neighbours_are_out_of_reach(bed):
    rows, controls = [], []
    for a, path in METADATA:
        host = f"[{a}]" if ":" in a else a
        for m in (b"GET", b"POST"):
            rows += [(f"px {m} {a}", lambda h=host, p=path, m=m: want_403(
                bed.px(get(h, f"http://{h}{p}", m)), h))]
            if a not in ("127.0.0.1", "0.0.0.0"):
                rows += [(f"direct {m} {a}", lambda a=a, h=host, p=path, m=m: want_403(
                    bed.talk(bed.dial(a, 80), get(h, p, m)), h))]
        rows += [(f"CONNECT {a}", lambda h=host: is_status(
            connect_line(bed, f"{h}:80".encode()), 403, h))]
        if a not in ("127.0.0.1", "0.0.0.0"):
            controls += [(get(host, path), a)]
    for n in ("metadata.google.internal", "meta.wild.test"):
        rows += [(n, lambda n=n: want_403(bed.px(get(n, f"http://{n}/")), n)),
                 (f"{n} direct", lambda n=n: want_403(
                     bed.talk(bed.dial("169.254.169.254", 80), get(n)), n))]
    bed.nothing(rows, controls)


def C73_private_lifts_the_method_rule_where_a_rule_reaches(bed):
    for port, path in ((8081, "/mcp"), (22, "/"), (80, "/x")):
        host = f"10.77.0.2:{port}".removesuffix(":80")
        for m in (b"POST", b"GET", b"DELETE"):
            mark = bed.origins.mark()
            want_ok(bed.px(get(host, f"http://{host}{path}", m)), f"{m} {host}")
            want([x[:2] for x in arrived(bed, mark)], [("10.77.0.2", port)], "who")
    want_ok(bed.talk(bed.dial("10.77.0.2", 80), get("10.77.0.2", "/x", b"POST")), "redirected")
    bed.nothing([("name at it", lambda: want_403(bed.px(get(
        "private.wild.test", "http://private.wild.test/", b"POST")), "rebinding"))],
                [(get("x", "/", b"POST"), "10.77.0.3")])
    bed.rows_run += 10


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
