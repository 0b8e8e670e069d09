#!/usr/bin/env python3
"""Lines of the vault's conformance catalogue, through the whole program: TLS, authorities, what a
real parser of requests makes of them, and kept connections. The number of a case is the line in
docs/compatibility.md. The other lines: keys_catalogue.py, with the rules for both."""
import ssl
import sys

import casebed
import keysbed
from casebed import Talk, ok, want, want_400c, want_403, want_in, want_ok, want_out
from keysbed import (HOST, K, OFF, Client, answers, ask, bearer, bind, content_plain, document,
                     refused, request, sent, unlogged, vault_replace)
from tlsbed import need_tls

MARK = 0x78  # packets with it are redirected to wire(), all others to `main`, which has no vault
MEGABYTE = 1 << 20
PUNY = "xn--bcher-kva.test"
HOSTS = (HOST, PUNY)
POLICY = casebed.POLICY + [("allow", HOST, [80, 443, 8443])]
INSIDE = b"Bearer " + K + b"\r\n"


def one_key(value=K):
    return document({"k": value}, bind("bearer", bearer(), ["/bearer/*"], HOSTS))


def wire(bed):
    """Also gets what is redirected for MARK."""
    if any(e.name == "wire" for e in bed.running):
        return bed.need("wire")
    e = keysbed.vaulted(bed, "wire", one_key(), policy=POLICY, **OFF)
    for family in ("ip", "ip6"):
        bed.run("nft", "insert", "rule", family, "cases", "output", "meta", "mark", str(MARK),
                "tcp", "dport", "{ 80, 443 }", "redirect", "to", f":{e.port}")
    return e


def redirected(bed, addr, port=443):
    was, casebed.MARK = casebed.MARK, MARK
    try:
        return bed.dial(addr, port, direct=True)
    finally:
        casebed.MARK = was


def nameless(egress):
    """A client's context that says no name, and checks that the certificate is from our CA."""
    context = ssl.create_default_context(cafile=egress.ca)
    context.check_hostname = False
    return context


# --- 11.7 TLS hello ---

def V104_without_a_name_no_key_and_no_relay(bed):
    need_tls(bed)
    e = wire(bed)
    mark = bed.origins.mark()
    own = nameless(e)
    rows = {"redirected to the bound host": (redirected(bed, casebed.NAMES[HOST][0]),
                                             "name_mismatch"),
            "CONNECT to the bound host": (bed.connect(f"{HOST}:443"), "name_mismatch")}
    for what, (s, reason) in rows.items():
        talk = bed.talk(bed.wrap(s, None, own), request(b"/bearer/x"))
        refused(talk, reason, what)
        bed.rows_run += 1
    s = bed.wrap(redirected(bed, casebed.NAMES[HOST][0]), None, own)
    talk = bed.talk(s, b"GET /bearer/x HTTP/1.1\r\nHost: %s\r\n\r\n"
                    % casebed.NAMES[HOST][0].encode())
    refused(talk, "address_not_listed", "by its address")
    want(sent(bed, mark), b"", "nothing arrived")
    s = bed.wrap(redirected(bed, "10.77.0.2"), None, own)
    talk = bed.talk(s, b"GET /bearer/x HTTP/1.1\r\nHost: 10.77.0.2\r\n\r\n")
    want_ok(talk, "an address that a rule allows")
    want_in(b"GET /bearer/x", sent(bed, mark), "it arrives, opened by us")
    want_out(K, sent(bed, mark), "without a key")
    s = bed.wrap(redirected(bed, casebed.NAMES[HOST][0]), HOST)
    want_ok(bed.talk(s, request(b"/bearer/x")), "control: with its name")
    want_in(INSIDE, sent(bed, mark), "control")


def V105_unverified_origins_get_no_key(bed):
    need_tls(bed)
    doc = document({"k": K}, bind("bearer", bearer(), ["/bearer/*"], ("*.wild.test",)))
    keysbed.vaulted(bed, "insecure", doc, OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE="on", **OFF)
    for host in ("self.wild.test", "expired.wild.test", "good.wild.test"):
        mark = bed.origins.mark()
        talk = bed.via(host, b"GET /bearer/x HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
        refused(talk, "identity_unproven", f"insecure: {host}")
        want_out(b"GET", sent(bed, mark), f"insecure: {host}: nothing of the request")
        talk = bed.via(host, b"GET /none HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
        want_ok(talk, f"insecure: {host}: control: other requests pass")
        bed.rows_run += 1
    keysbed.vaulted(bed, "verified", doc, **OFF)
    mark = bed.origins.mark()
    talk = bed.via("good.wild.test", b"GET /bearer/x HTTP/1.1\r\nHost: good.wild.test\r\n\r\n")
    want_ok(talk, "control: verified")
    want_in(INSIDE, sent(bed, mark), "control: verified")


def issuer_seen(bed, name):
    """Whose certificate a client gets, through CONNECT."""
    for who, context in (("origin", bed.direct_context), ("egress", bed.egress.context)):
        s = bed.connect(f"{name}:443")
        if isinstance(s, Talk):
            return f"refused: {s}"
        try:
            with bed.wrap(s, name, context):
                return who
        except ssl.SSLError:
            continue
    return "nobody"


def V106_only_listed_names_are_relayed(bed):
    wire(bed)
    want([issuer_seen(bed, n) for n in ("two.test", "read.test", HOST)], ["egress"] * 3,
         "empty list")
    keysbed.vaulted(bed, "passing", one_key(), EGRESS_PASS_THROUGH="two.test *.wild.test", **OFF)
    want([issuer_seen(bed, n) for n in ("two.test", "a.wild.test", "read.test", HOST)],
         ["origin", "origin", "egress", "egress"], "two.test, *.wild.test")
    code, text = keysbed.vault_check(bed, one_key(), EGRESS_PASS_THROUGH=HOST)
    want(code, 2, "a bound host cannot be listed")
    want_in(HOST, text, "the message names it")


# --- 11.8 real proxy ---

AMBIGUOUS = (b"/bearer/%252e%252e/x", b"/bearer/x%2f..%2f..%2fadmin", b"/bearer/..%2fadmin")


def V107_a_small_ambiguous_request_is_told_so(bed):
    wire(bed)
    mark = bed.origins.mark()
    for path in AMBIGUOUS:
        talk, _ = ask(bed, request(path))
        want_403(talk, f"{path}")
        refused(talk, "path_ambiguous", f"{path}")
        bed.rows_run += 1
    want(sent(bed, mark), b"", "nothing arrived")
    talk, got = ask(bed, request(b"/bearer/x%2fy"))
    want_in(INSIDE, got, "control")


def large_is_refused_before_its_content(bed, path):
    e = wire(bed)
    mark = bed.origins.mark()
    talk, _ = ask(bed, request(path, b"Expect: 100-continue\r\nContent-Length: 2097152\r\n",
                               b"POST"))
    refused(talk, "path_ambiguous", f"{path}")
    want(talk.statuses, [403], f"{path}: no 100")
    want(sent(bed, mark), b"", f"{path}: nothing arrived")
    want(e.process.poll(), None, "egress lives")
    talk, got = ask(bed, request(b"/bearer/x"))
    want_in(INSIDE, got, "control: it serves on")


def V108_a_large_ambiguous_request_gets_no_100(bed):
    large_is_refused_before_its_content(bed, AMBIGUOUS[0])


def V109_a_large_traversal_gets_no_100(bed):
    large_is_refused_before_its_content(bed, AMBIGUOUS[1])


def V110_a_large_request_gets_its_100(bed):
    e = wire(bed)
    content = b"z" * (2 * MEGABYTE)

    def route(peer, head):
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.body(head)
        peer.send(ok())
        return True
    bed.origins.routes["/bearer/large"] = route
    mark = bed.origins.mark()
    with Client(bed) as client:
        client.send(request(b"/bearer/large", b"Expect: 100-continue\r\nContent-Length: %d\r\n"
                            % len(content), b"POST"))
        client.until_seen(b"HTTP/1.1 100 Continue\r\n\r\n")
        want_in(INSIDE, sent(bed, mark), "the field is there before the content")
        client.send(content)
        want(client.answer().status, 200, "answer")
    want(content_plain(sent(bed, mark)) == content, True, "content")
    unlogged(e, b"/bearer/large", K)


# target, Host lines, what becomes of it: key, plain (arrives without), or the status of a refusal
URL = b"https://" + HOST.encode()
H = HOST.encode()
AUTHORITIES = [
    (b"/bearer/x", [H], "key"), (b"/bearer/x", [H + b":443"], "key"),
    (b"/bearer/x", [b"API.Model.TEST"], "key"), (b"/bearer/x", [H + b"."], "key"),
    (b"/bearer/x", [b" " + H + b"\t"], "key"),
    (URL + b"/bearer/x", [H], "key"), (URL + b":443/bearer/x", [H], "key"),
    (URL + b":443/bearer/x", [H + b":443"], "key"),
    (b"https://me:own@" + H + b"/bearer/x", [H], "key"),
    (b"HTTPS://API.model.test./bearer/x", [H], "key"),
    (b"/bearer/x", [b"two.test"], 403), (b"/bearer/x", [b"evil-" + H], 403),
    (b"/bearer/x", [H + b".two.test"], 403), (b"/bearer/x", [H + b":444"], 403),
    (b"/bearer/x", [H + b":80"], 403), (b"/none", [b"two.test"], 403),
    (b"/bearer/x", [b"11.22.0.20"], 403), (b"/bearer/x", [b"[2a0e:77::20]"], 403),
    (b"/bearer/x", [H, H], 400), (b"/bearer/x", [H, b"two.test"], 400),
    (b"/bearer/x", [b"two.test", H], 400), (b"/bearer/x", [], 400),
    (b"https://two.test/bearer/x", [H], 400), (URL + b"/bearer/x", [b"two.test"], 400),
    (b"https://two.test/bearer/x", [b"two.test"], 403), (URL + b":444/bearer/x", [H], 400),
    (b"http://" + H + b"/bearer/x", [H], 400),
] + [(b"/bearer/x", [h], 400) for h in (
    H + b":99999", H + b":0", H + b":443:443", H + b":4 43", H + b":x", H + b" " + H, b"x@" + H,
    H + b"/", H + b"\\", H + b"?", H + b"#", H + b"," + H, b"api%2emodel.test", b"[::1", b"",
    b":443", H + b"..", b"." + H, b"\xc3\xa4" + H, H + b"\x7f", b"\"" + H + b"\"")]


def V112_139_authorities(bed):
    wire(bed)
    for target, hosts, should in AUTHORITIES:
        what, mark = f"{target} {hosts}", bed.origins.mark()
        talk = bed.via(HOST, b"GET %s HTTP/1.1\r\n%s\r\n" % (
            target, b"".join(b"Host: %s\r\n" % h for h in hosts)), n=None if should == 400 else 1)
        got = sent(bed, mark)
        if should == "key":
            want_ok(talk, what)
            want_in(INSIDE, got, what)
            want_in(b"GET /bearer/x HTTP/1.1\r\nHost: " + H + b"\r\n", got, what)
        elif should == 400:
            want_400c(talk, what)
            want(got, b"", what)
        else:
            refused(talk, "name_mismatch", what)
            want(got, b"", what)
        bed.rows_run += 1
    mark = bed.origins.mark()
    talk = bed.via(PUNY, b"GET /bearer/x HTTP/1.1\r\nHost: XN--bcher-kva.test\r\n\r\n")
    want_in(INSIDE, sent(bed, mark), f"a name in punycode ({talk})")


def V112_139_versions_and_connect(bed):
    wire(bed)
    mark = bed.origins.mark()
    for version in (b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1", b"HTTP/9.9", b"http/1.1",
                    b"HTTP/1.1 ", b"HTTP/11", b"ICY/1.1", b""):
        talk = bed.via(HOST, b"GET /bearer/x %s\r\nHost: %s\r\n\r\n" % (version, H), n=None)
        want_400c(talk, f"{version}")
        bed.rows_run += 1
    talk, _ = ask(bed, b"CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n" % (H, H))
    want_403(talk, "CONNECT inside")
    refused(talk, "method_not_forwarded", "CONNECT inside")
    want(sent(bed, mark), b"", "nothing arrived")
    talk, got = ask(bed, b"GET /bearer/x HTTP/1.0\r\nHost: %s\r\n\r\n" % H, n=None)
    want_in(INSIDE, got, f"HTTP/1.0 ({talk})")


def V139_another_port_gets_no_key(bed):
    wire(bed)
    mark = bed.origins.mark()
    s = bed.wrap(bed.connect(f"{HOST}:8443"), HOST)
    talk = bed.talk(s, b"GET /bearer/x HTTP/1.1\r\nHost: %s:8443\r\n\r\n" % H)
    want_ok(talk, "another port")
    want_in(b"GET /bearer/x ", sent(bed, mark), "it arrives")
    want_out(K, sent(bed, mark), "without the key")
    talk, got = ask(bed, request(b"/bearer/x"))
    want_in(INSIDE, got, "control")


# --- 11.9 kept connections ---

def V124_every_bound_request_has_its_key_however_it_ends(bed):
    wire(bed)
    cut = ok(b"0123456789")[:-5]
    ends = {"/bearer/whole": ok(), "/bearer/gone": b"", "/bearer/cut": cut,
            "/bearer/broken": b"HTTP/1.1 2x0 Odd\r\n\r\n"}
    for path, answer in ends.items():
        answers(bed, path, answer, stay=False)
        for i in range(5):
            talk, got = ask(bed, request(path.encode()), n=None if answer == cut else 1)
            want_in(INSIDE, got, f"{path} {i}")
            want(bool(talk.finals), answer != cut, f"{path} {i}: an answer ({talk})")
            bed.rows_run += 1
    # descriptors are looked at by clean-end; what a request kept of the vault, here
    e = keysbed.vaulted(bed, "wire", None)
    revision = keysbed.vault_revision(e)
    want(vault_replace(bed, e, one_key()), revision + 1, "there is room for another revision")


def V125_165_a_new_value_at_the_next_request(bed):
    e = wire(bed)
    keys = [b"sk-turn-%04d-AAAABBBB" % i for i in range(30)]
    try:
        with Client(bed) as client:
            for i, key in enumerate(keys):
                vault_replace(bed, e, one_key(key))
                mark = bed.origins.mark()
                client.send(request(b"/bearer/%d" % i))
                want(client.answer().status, 200, f"{i}")
                got = sent(bed, mark)
                want_in(b"Bearer " + key + b"\r\n", got, f"{i}: the new value")
                want(got.count(b"sk-turn-"), 1, f"{i}: and no other")
                bed.rows_run += 1
            want(len(client.talk.finals), len(keys), "all on one connection")
    finally:
        vault_replace(bed, e, one_key())


def V126_another_path_or_method_gets_no_key_and_passes(bed):
    wire(bed)
    for method, target in ((b"GET", b"/"), (b"GET", b"/bearer"), (b"GET", b"/Bearer/x"),
                           (b"GET", b"/xbearer/x"), (b"GET", b"/x?/bearer/x"),
                           (b"HEAD", b"/bearer/x"), (b"OPTIONS", b"/bearer/x"),
                           (b"REPORT", b"/bearer/x"), (b"POST", b"/none")):
        talk, got = ask(bed, request(target, b"Content-Length: 0\r\n", method),
                        head=method == b"HEAD")
        want_ok(talk, f"{method} {target}")
        want_in(method + b" " + target, got, f"{method} {target}")
        want_out(K, got, f"{method} {target}")
        bed.rows_run += 1
    for method in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"):
        talk, got = ask(bed, request(b"/bearer/x", b"Content-Length: 0\r\n", method))
        want_in(INSIDE, got, f"control: {method}")


def V127_sni_and_authority_are_one_name(bed):
    wire(bed)
    mark = bed.origins.mark()
    bind_to = {"CONNECT": lambda: bed.connect(f"{HOST}:443"),
               "redirected": lambda: redirected(bed, casebed.NAMES[HOST][0]),
               "redirected elsewhere": lambda: redirected(bed, casebed.NAMES["read.test"][0])}
    for way, dial in bind_to.items():
        for sni, host in (("two.test", HOST), (HOST, "two.test"), ("read.test", HOST)):
            s = bed.wrap(dial(), sni)
            talk = bed.talk(s, b"GET /bearer/x HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
            refused(talk, "name_mismatch", f"{way}: SNI {sni}, Host {host}")
            bed.rows_run += 1
    want(sent(bed, mark), b"", "nothing arrived")
    for way, dial in bind_to.items():
        mark = bed.origins.mark()
        want_ok(bed.talk(bed.wrap(dial(), HOST), request(b"/bearer/x")), f"control: {way}")
        [(peer, got)] = [x for x in bed.origins.since(mark) if x[1]]
        want_in(INSIDE, got, f"control: {way}")
        want(peer.addr in casebed.NAMES[HOST], True, f"{way}: at its own address, {peer.addr}")


# --- 11.12 additions ---

def V156_a_bound_host_field_at_another_host(bed):
    wire(bed)
    mark = bed.origins.mark()
    with Client(bed, "read.test") as client:
        client.send(b"GET /first HTTP/1.1\r\nHost: read.test\r\n\r\n")
        want(client.answer().status, 200, "control: the first request passes")
        client.send(request(b"/bearer/x"))
        want([client.answer().status, client.talk.finals[-1].field("x-egress-reason")],
             [403, "name_mismatch"], "the second")
    talk = bed.via("read.test", request(b"/bearer/x"))
    refused(talk, "name_mismatch", "a first one")
    got = sent(bed, mark)
    want_in(b"GET /first", got, "control")
    want([b"/bearer" in got, K in got], [False, False], "what arrived")
    talk, got = ask(bed, request(b"/bearer/x"))
    want_in(INSIDE, got, "control: at its own host")


def V157_a_bound_host_field_in_clear_at_another_address(bed):
    doc = document({"k": K}, bind("clear", bearer(), ["/bearer/*"], schemes=["http", "https"]))
    e = keysbed.vaulted(bed, "clear", doc, EGRESS_HTTP_BINDINGS="on", **OFF)
    if not getattr(bed, "clear_redirected", False):
        bed.clear_redirected = True
        bed.run("nft", "insert", "rule", "ip", "cases", "output", "meta", "mark", "0x79",
                "tcp", "dport", "80", "redirect", "to", f":{e.port}")
    for addr in ("11.22.0.10", "10.77.0.2", "11.22.0.66", "11.22.0.20"):
        mark = bed.origins.mark()
        was, casebed.MARK = casebed.MARK, 0x79
        try:
            s = bed.dial(addr, 80, direct=True)
        finally:
            casebed.MARK = was
        want_ok(bed.talk(s, request(b"/bearer/x")), addr)
        [(peer, got)] = [x for x in bed.origins.since(mark) if x[1]]
        want_in(INSIDE, got, f"{addr}: the key goes")
        want(peer.addr in casebed.NAMES[HOST], True, f"{addr}: to the host's own address")
        bed.rows_run += 1
    wire(bed)
    mark = bed.origins.mark()
    for addr in ("11.22.0.10", "11.22.0.20"):
        want_ok(bed.talk(redirected(bed, addr, 80), request(b"/bearer/x")), f"https only: {addr}")
    want_in(b"/bearer/x", sent(bed, mark), "https only: it arrives")
    want_out(K, sent(bed, mark), "https only: without the key")


def V158_two_authorities_are_no_request(bed):
    wire(bed)
    mark = bed.origins.mark()
    rows = [(URL + b"/bearer/x", b"two.test"), (b"https://two.test/bearer/x", H)]
    for target, host in rows:
        talk = bed.via(HOST, b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, host), n=None)
        want_400c(talk, f"inside: {target} {host}")
        clear = target.replace(b"https", b"http")
        talk = bed.px(b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (clear, host), n=None)
        want_400c(talk, f"explicit: {clear} {host}")
        talk = bed.talk(redirected(bed, "11.22.0.20", 80), b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n"
                        % (clear, host), n=None)
        want_400c(talk, f"redirected: {clear} {host}")
        bed.rows_run += 3
    want(sent(bed, mark), b"", "nothing arrived")
    talk = bed.via(HOST, b"GET %s/bearer/x HTTP/1.1\r\nHost: %s\r\n\r\n" % (URL, H))
    want_in(INSIDE, sent(bed, mark), f"control ({talk})")


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"V\d+_"))
