#!/usr/bin/env python3
"""Cases of peers' failures in TLS, by name of the case, against the real program.

case  covered here                                        elsewhere, or not in this version
C75   strict verification of name and address leaves,     Go, Java, NSS, Python: tests/clients
      every field, both CA and leaf
C77   no SNI with and without an address rule, address    [::] literals: unit request_target
      as SNI, empty SNI, two names
C79   13 bad origins, reads and writes, insecure mode     keys in insecure mode: with the vault
C81   client clocks behind and ahead, kept CA, expired    renewal over weeks: unit leaf, ca (fake
      CA, CA with another key                             clock)
C83   TLS 1.2 and 1.3, other name, no SNI, epoch, early   session ids of TLS 1.2: unit tls_session
      data; towards origins by their name
C85   asked and required, 1.2 and 1.3, clients with and   -
      without certificates, post-handshake
C87   17 malformed records and hellos, both ways in,      mutated hellos: fuzz-client_hello
      hellos cut at each byte
C89   ECH extension with an outer name, GREASE, ours to   ECH key lists in DNS: with the DNS gate
      origins
Rows for HTTP/2 (ALPN h2) wait for HTTP/2. Bed: casebed.py; certificates: tlsbed.py.
"""
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time

import casebed
import limitbed
from casebed import NAMES, Failed, until, want, want_403, want_in, want_ok, want_out
from limitbed import get, say, start
from tlsbed import SPECS, extensions, hello, names_ext, need_tls, server_certificate, sni, word

KEY = b"sk-secret-7f3a"
READ = NAMES["read.test"][0]


def s_client(bed, *args, text=b"", via=None):
    cmd = ["openssl", "s_client", "-CAfile", bed.egress.ca, *args]
    if via:
        cmd += ["-proxy", f"127.0.0.1:{bed.egress.port}"]
    p = subprocess.run(cmd, input=text, capture_output=True, timeout=10)
    return p.stdout.decode("latin1") + p.stderr.decode("latin1")


# --- C75: what we mint ---

def x509(bed, pem, *args):
    p = subprocess.run(["openssl", "x509", "-noout", *args], input=pem, capture_output=True,
                       text=True)
    if p.returncode:
        raise Failed(f"openssl x509: {p.stderr}")
    return p.stdout


def leaf_of(bed, name, addr=None):
    out = s_client(bed, "-connect", f"{addr or name}:443", "-x509_strict", "-verify_return_error",
                   *(["-noservername"] if addr else ["-servername", name]), via=True)
    want_in("Verify return code: 0 (ok)", out, f"{name}: strict verification")
    return re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", out, re.S)[0]


def C75_leaves_pass_strict_verification(bed):
    with open(bed.egress.ca) as f:
        ca = f.read()
    seen = set()
    ski = re.search(r"Identifier: \n\s+([0-9A-F:]+)", x509(bed, ca, "-ext",
                                                            "subjectKeyIdentifier"))[1]
    text = x509(bed, ca, "-text")
    for part in ("CA:TRUE", "Key Usage: critical\n                Certificate Sign, CRL Sign",
                 "Basic Constraints: critical"):
        want_in(part, text, "CA")
    for name, addr, san in (("read.test", None, "DNS:read.test"), ("two.test", None, "DNS:two.test"),
                            ("10.77.0.2", "10.77.0.2", "IP Address:10.77.0.2")):
        text = x509(bed, leaf_of(bed, name, addr), "-text")
        for part in (f"Subject Alternative Name: critical\n                {san}\n",
                     f"Authority Key Identifier: \n                {ski}", "Subject Key Identifier",
                     "Key Usage: critical\n                Digital Signature\n",
                     "Extended Key Usage: \n                TLS Web Server Authentication\n",
                     "ecdsa-with-SHA256", "ASN1 OID: prime256v1", "Version: 3"):
            want_in(part, text, f"{name}: leaf")
        serial = x509(bed, leaf_of(bed, name, addr), "-serial").split("=")[1].strip()
        want(len(serial) <= 40 and not serial.startswith("-") and int(serial, 16) > 0, True,
             f"{name}: serial {serial}")
        seen.add(serial)
        days = [ssl.cert_time_to_seconds(x.split("=")[1]) for x in
                x509(bed, leaf_of(bed, name, addr), "-dates").splitlines()]
        want(days[1] - days[0] <= 397 * 86400, True, f"{name}: life of {days}")
        want(days[0] <= time.time() - 48 * 3600 + 60, True, f"{name}: from 48 h ago")
    want(len(seen), 3, "serials that differ")


def C75_strict_verification_fails_with_another_ca(bed):
    """The control: the same client refuses what another CA would have to vouch for."""
    need_tls(bed)
    out = s_client(bed, "-CAfile", bed.path("ca.pem"), "-connect", "read.test:443", "-servername",
                   "read.test", "-x509_strict", "-verify_return_error", via=True)
    want_out("Verify return code: 0 (ok)", out, "another CA")
    until(lambda: [x for x in bed.egress.lines() if x["reason"] == "client_tls"], "a line")


def C75_python_with_strict_flag(bed):
    context = ssl.create_default_context(cafile=bed.egress.ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    request = get("read.test", "/x", "https")
    want_ok(bed.talk(bed.wrap(bed.connect("read.test:443"), "read.test", context), request), "name")
    s = bed.wrap(bed.dial("10.77.0.2", 443), "10.77.0.2", context)
    want(s.getpeercert()["subjectAltName"], (("IP Address", "10.77.0.2"),), "address")
    s.close()
    try:
        bed.wrap(bed.connect("read.test:443"), "read.test", bed.direct_context)
    except ssl.SSLCertVerificationError:
        return
    raise Failed("control: a client that trusts another CA takes it")


# --- C77: no name ---

def nameless(bed):
    context = ssl.create_default_context(cafile=bed.egress.ca)
    context.check_hostname = False
    return context


def C77_no_sni_is_judged_by_address(bed):
    need_tls(bed)
    mark = bed.origins.mark()

    def redirected():
        s = nameless(bed).wrap_socket(bed.dial(READ, 443))
        talk = bed.talk(s, get("read.test", "/x", "https"))
        want_403(talk, "redirected")

    def connected():
        s = nameless(bed).wrap_socket(bed.connect("read.test:443"))
        talk = bed.talk(s, get("read.test", "/x", "https"))
        want_403(talk, "CONNECT")
        want(talk.finals[0].field("x-egress-reason"), "name_mismatch", "reason")

    bed.rows([("redirected", redirected), ("CONNECT", connected)])
    want(bed.origins.since(mark), [], "what reached an origin")
    s = bed.wrap(bed.dial(READ, 443), "read.test")
    want_ok(bed.talk(s, get("read.test", "/x", "https")), "control: with a name")


def C77_address_with_a_rule(bed):
    """Opened with the address in the leaf; the origin's certificate must be for it, too."""
    need_tls(bed)
    request = get("10.77.0.2", "/x", "https")

    def ways():
        yield "redirected", nameless(bed).wrap_socket(bed.dial("10.77.0.2", 443))
        yield "CONNECT", bed.wrap(bed.connect("10.77.0.2:443"), "10.77.0.2")
    for what, s in ways():
        want_in(("IP Address", "10.77.0.2"), s.getpeercert()["subjectAltName"], what)
        want_ok(bed.talk(s, request), what)
    bed.origins.tls.by_addr["10.77.0.2"] = "good"
    try:
        time.sleep(1.3)  # until the kept connection is gone
        talk = bed.talk(bed.wrap(bed.dial("10.77.0.2", 443), "10.77.0.2"), request)
        want(talk.statuses, [502], "certificate without the address")
        want_in(b"certificate is for another address", talk.finals[0].body, "text")
    finally:
        bed.origins.tls.by_addr["10.77.0.2"] = "address"


def C77_address_as_sni_is_no_name(bed):
    need_tls(bed)
    out = s_client(bed, "-connect", "10.77.0.2:443", "-servername", "10.77.0.2", "-ign_eof",
                   text=b"GET /sni HTTP/1.1\r\nHost: 10.77.0.2\r\nConnection: close\r\n\r\n")
    want_in("HTTP/1.1 200 OK", out, "an address that a rule allows")
    mark = bed.origins.mark()
    out = s_client(bed, "-connect", f"{READ}:443", "-servername", READ, "-ign_eof",
                   text=b"GET /sni HTTP/1.1\r\nHost: read.test\r\nConnection: close\r\n\r\n")
    want_in("HTTP/1.1 403 blocked", out, "an address without a rule")
    want(bed.origins.since(mark), [], "what reached an origin")


def raw(bed, data, connect=None, wait=3, fin=False):
    """What comes back for raw bytes, and how it ended: bytes, "closed" or "open"."""
    s = bed.connect(connect) if connect else bed.dial(READ, 443)
    with s:
        s.settimeout(wait)
        got = b""
        try:
            s.sendall(data)
            if fin:
                s.shutdown(socket.SHUT_WR)
            while part := s.recv(65536):
                got += part
        except TimeoutError:
            return got, "open"
        except OSError:
            pass
        return got, "closed"


def want_alert(bed, what, data):
    got, end = raw(bed, data)
    want((got[:1], got[5:6], end), (b"\x15", b"\x02", "closed"), f"{what}: a fatal alert: {got!r}")


def C77_empty_sni_and_two_names(bed):
    need_tls(bed)
    mark = len(bed.egress.lines())
    two = names_ext((0, b"read.test"), (0, b"deny.test"))
    bed.rows([
        ("two names", lambda: want_alert(bed, "two names", hello(two))),
        ("same twice", lambda: want_alert(bed, "twice", hello(sni(b"read.test") * 2))),
        ("empty name", lambda: want_alert(bed, "empty name", hello(names_ext((0, b""))))),
        ("empty list", lambda: want_alert(bed, "empty list", hello(word(0, 2, 0)))),
        ("NUL", lambda: want_alert(bed, "NUL", hello(sni(b"read.test\0.deny.test"))))])
    until(lambda: len([x for x in bed.egress.lines()[mark:] if x["reason"] == "malformed"]) == 5,
          "five lines")
    got, _ = raw(bed, hello(sni(b"read.test")), wait=0.5)
    want_in("DNS:read.test", server_certificate(bed, got), "control: one name is answered")


# --- C79: origins that must not be believed ---

def bad_origin(bed, name, text, method):
    """502 with the reason, and not a byte of HTTP."""
    mark = bed.origins.mark()
    body = KEY if method == b"POST" else b""
    talk = bed.via(name, b"%s /x HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
                   b"Content-Length: %d\r\n\r\n%s" % (method, name.encode(), KEY, len(body), body))
    if isinstance(talk, str) or [r.status for r in talk.finals] != [502]:
        raise Failed(f"{name}: {talk}")
    want_in(text, talk.finals[0].body, f"{name}: text")
    want_out("wild.test.", talk.finals[0].body.decode(), f"{name}: nothing of the certificate")
    for peer, data in bed.origins.since(mark):
        if KEY in data:
            raise Failed(f"{name}: the origin at {peer.addr} got {data!r}")


def tls_egress(bed):
    need_tls(bed)
    return start(bed, "tls", AGENTIC_WRITE_HOSTS="api.model.test .wild.test")


def C79_bad_certificates(bed):
    e = tls_egress(bed)
    rows = [(n, text) for n, (_, text) in SPECS.items() if text]
    want(len(rows), 13, "bad origins")
    mark = bed.origins.mark()
    bed.rows([(n, lambda n=n, t=t, m=m: bad_origin(bed, f"{n}.wild.test", t, m))
              for n, t in rows for m in (b"GET", b"POST")])
    want([d for _, d in bed.origins.since(mark) if d], [], "bytes of HTTP at an origin")
    for n, _ in rows:
        until(lambda n=n: len([x for x in e.lines() if x["host"] == f"{n}.wild.test" and
                               x["status"] == 502 and x["reason"] in (
                                   "certificate", "tls_failed")]) == 2, f"{n}: two lines")
    for method in (b"GET", b"POST"):
        mark = bed.origins.mark()
        body = KEY if method == b"POST" else b""
        want_ok(bed.via("good.wild.test", b"%s /x HTTP/1.1\r\nHost: good.wild.test\r\n"
                        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (
                            method, KEY, len(body), body)), "control: a good certificate")
        want_in(KEY, b"".join(d for _, d in bed.origins.since(mark)), "control: what it got")


def C79_insecure_lets_reads_pass(bed):
    need_tls(bed)
    start(bed, "insecure", OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE="true")
    for n in ("expired", "self", "unknown", "other"):
        want_ok(bed.via(f"{n}.wild.test", get(f"{n}.wild.test", "/x", "https")), n)
    talk = bed.via("expired.wild.test", b"POST /x HTTP/1.1\r\nHost: expired.wild.test\r\n"
                   b"Content-Length: 1\r\n\r\nx")
    want_403(talk, "a write all the same")


# --- C81: clocks and the CA's life ---

def C81_client_clock_may_be_wrong(bed):
    leaf = leaf_of(bed, "read.test")
    with open(bed.path("c81.pem"), "w") as f:
        f.write(leaf)
    for hours, good in ((-25, True), (-47, True), (0, True), (24, True), (-100 * 24, False),
                        (3 * 365 * 24, False)):
        p = subprocess.run(["openssl", "verify", "-x509_strict", "-attime",
                            str(int(time.time()) + hours * 3600), "-CAfile", bed.egress.ca,
                            bed.path("c81.pem")], capture_output=True, text=True)
        want(p.returncode == 0, good, f"clock {hours:+} h: {p.stdout}{p.stderr}")


def ca_file(bed, name, text):
    path = bed.path(name)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o600)
    return path


def refused_start(bed, name, path):
    try:
        e = start(bed, name, keep=False, EGRESS_CA_KEY=path)
    except Failed as x:
        return str(x)
    e.process.terminate()
    e.process.wait(20)
    raise Failed(f"{name}: it started")


def C81_kept_ca(bed):
    """The CA of yesterday serves on; one that expired or has another key stops the start."""
    need_tls(bed)
    path = bed.path("kept.pem")
    certs = []
    for name in ("kept-1", "kept-2"):
        e = start(bed, name, keep=False, EGRESS_CA_KEY=path)
        want_ok(bed.via("read.test", get("read.test", "/x", "https")), name)
        with open(e.ca) as f:
            certs.append(f.read())
        limitbed.stop(bed, e)
    want(certs[0], certs[1], "CA after a restart")
    read = {n: open(bed.path(n)).read() for n in ("old-ca.pem", "old-ca.key", "stranger.key",
                                                 "stranger.pem")}
    text = refused_start(bed, "old", ca_file(bed, "c1", read["old-ca.pem"] + read["old-ca.key"]))
    want_in("expired", text, "expired CA")
    text = refused_start(bed, "odd", ca_file(bed, "c2", read["stranger.pem"] + read["old-ca.key"]))
    want(bool(re.search("key", text)), True, f"CA with another key: {text}")
    say(f"refused: {text[-120:].strip()}")
    e = start(bed, "brought", keep=False, EGRESS_CA_KEY=ca_file(
        bed, "c3", read["stranger.pem"] + read["stranger.key"]))
    want_ok(bed.via("read.test", get("read.test", "/x", "https")), "control: a good one")
    limitbed.stop(bed, e)


# --- C83: resumption ---

def visit(bed, context, name, session=None, sni_name="same"):
    """(session, was it resumed, status) of one request on a redirected connection."""
    sni_name = name if sni_name == "same" else sni_name
    s = context.wrap_socket(bed.dial(NAMES[name][0], 443), server_hostname=sni_name,
                            session=session)
    reused = s.session_reused
    s.sendall(get(name, "/x", "https"))
    talk = casebed.Talk()
    casebed.read_talk(s, talk, 1, 3)
    session = s.session
    s.close()
    return session, reused, talk.statuses


def C83_session_of_one_name_is_no_session_of_another(bed):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = nameless(bed)
        context.minimum_version = context.maximum_version = version
        session, reused, _ = visit(bed, context, "read.test")
        want(reused, False, f"{version.name}: first")
        for name, sni_name, status in (("api.model.test", "same", 200), ("two.test", "same", 200),
                                       ("deny.test", "same", 403), ("read.test", None, 403)):
            _, reused, statuses = visit(bed, context, name, session, sni_name)
            want((reused, statuses), (False, [status]), f"{version.name}: {name}, SNI {sni_name}")
        fresh, reused, statuses = visit(bed, context, "read.test", session)
        want((reused, statuses), (True, [200]), f"{version.name}: control: the same name")
        bed.egress.process.send_signal(signal.SIGHUP)

        def is_new(context=context, session=fresh):
            return not visit(bed, context, "read.test", session)[1]
        until(is_new, f"{version.name}: no resumption after the policy was replaced")


def C83_early_data_is_not_taken(bed):
    path, mark = bed.path("session.pem"), bed.origins.mark()
    with open(bed.path("early"), "wb") as f:
        f.write(b"POST /early HTTP/1.1\r\nHost: api.model.test\r\nContent-Length: 0\r\n\r\n")
    addr = f"{NAMES['api.model.test'][0]}:443"
    common = ["-connect", addr, "-servername", "api.model.test", "-tls1_3", "-ign_eof"]
    request = b"GET /late HTTP/1.1\r\nHost: api.model.test\r\nConnection: close\r\n\r\n"
    out = s_client(bed, *common, "-sess_out", path, text=request)
    want_in("200 OK", out, "first")
    with open(path, "rb") as f:
        p = subprocess.run(["openssl", "sess_id", "-text", "-noout"], input=f.read(),
                           capture_output=True)
    want_in(b"Max Early Data: 0", p.stdout, "ticket")
    out = s_client(bed, *common, "-sess_in", path, "-early_data", bed.path("early"), text=request)
    want_out("Early data was accepted", out, "second")
    want([d for _, d in bed.origins.since(mark) if b"/early" in d], [], "what the origin got")
    want_in("Reused, TLSv1.3", s_client(bed, *common, "-sess_in", path, text=request),
            "control: the session itself is good")


def C83_sessions_towards_origins_keep_to_their_name(bed):
    """All origins here share ticket keys: only our own bookkeeping keeps the names apart."""
    tls_egress(bed)
    bed.origins.routes["/close"] = lambda peer, _: peer.send(
        casebed.ok(b"x", b"Connection: close\r\n"))
    seen = bed.origins.tls.hellos
    for name, resumed in (("one.wild.test", False), ("one.wild.test", True),
                          ("else.wild.test", False), ("else.wild.test", True)):
        want_ok(bed.via(name, get(name, "/close", "https")), name)
        mine = [h for h in seen if name.encode() in h][-1]
        want(41 in extensions(mine), resumed, f"{name}: a session is offered")


# --- C85: client certificates ---

def C85_origin_asks_for_a_certificate(bed):
    tls_egress(bed)
    with_cert = ssl.create_default_context(cafile=bed.egress.ca)
    with_cert.load_cert_chain(bed.path("leaf.pem"), bed.path("leaf.key"))
    other = ssl.create_default_context(cafile=bed.egress.ca)
    other.load_cert_chain(bed.path("good.pem"), bed.path("good.key"))
    for name in ("ask12", "ask13", "need12", "need13"):
        host = f"{name}.wild.test"
        for context in (None, with_cert, other):
            mark = len(bed.egress.lines())
            talk = bed.talk(bed.wrap(bed.connect(f"{host}:443"), host, context),
                            get(host, "/x", "https"))
            if name.startswith("ask"):
                want_ok(talk, host)
                continue
            want(talk.statuses, [502], f"{host}: {talk}")
            want_in(b"client certificate, which cannot pass interception", talk.finals[0].body,
                    host)
            until(lambda m=mark: len(bed.egress.lines()) > m, f"{host}: line")
    for h in bed.origins.tls.hellos:
        want(49 in extensions(h), False, "we offer authentication after the handshake")
    want(bed.origins.tls.identities, set(), "certificates that origins were shown")


# --- C87: malformed records ---

def malformed():
    good = hello(sni(b"read.test"))
    body = good[9:]
    rec = b"\x16\x03\x01"
    rows = {
        "empty record": b"\x16\x03\x01\x00\x00", "record too long": rec + b"\xff\xff" + b"a" * 10,
        "handshake too long": rec + word(5) + b"\x01\xff\xff\xff\x03",
        "other handshake": rec + word(4) + b"\x02\x00\x00\x00",
        "version 0": rec + word(len(body) + 4) + b"\x01" + word(0, 0)[1:] + body,
        "application data first": b"\x17\x03\x03" + word(5) + b"hello",
        "warnings": b"\x15\x03\x01\x00\x02\x01\x5a" * 100,
        "alert in hello": good[:20] + b"\x15\x03\x01\x00\x02\x01\x00",
        "change cipher first": b"\x14\x03\x03\x00\x01\x01" * 40,
        "name list of 1": hello(word(0, 1) + b"\x00"),
        "name longer than list": hello(word(0, 6, 4) + b"\x00" + word(200) + b"a"),
        "ciphers odd": hello(sni(b"read.test"), ciphers=b"\xc0\x2b\xc0"),
        "session id of 200": hello(sni(b"read.test"), session=b"s" * 200),
        "extensions beyond": good[:-4] + b"\xff\xff\xff\xff",
        "extension twice": hello(sni(b"read.test") + word(23, 0) + word(23, 0)),
        "SSLv2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"\x01\x00\x80" * 7 + b"c" * 16,
        "64 KiB of hello": b"".join(rec + word(16384) + b"\x01\x01\x00\x00" + b"\0" * 16380
                                    for _ in range(5)),
    }
    return good, rows


def C87_malformed_records_and_hellos(bed):
    need_tls(bed)
    good, rows = malformed()
    quick = start(bed, "quick", EGRESS_HANDSHAKE_TIMEOUT="1s", EGRESS_HEAD_TIMEOUT="1s")
    before, mark = quick.memory(), bed.origins.mark()

    def row(data, connect, fin):
        got, end = raw(bed, data, connect, 4, fin)
        want(end, "closed", f"the end, after {got[:60]!r}")
        want_out(b"HTTP/1.1 200".decode(), got.decode("latin1"), "answer")

    bed.rows([(f"{n}, CONNECT", lambda d=d: row(d, "read.test:443", False))
              for n, d in rows.items()])
    bed.need("main")
    bed.rows([(f"{n}, redirected", lambda d=d: row(d, None, True)) for n, d in rows.items()])
    bed.rows([(f"cut at {i}", lambda i=i: row(good[:i], None, True))
              for i in range(1, len(good))])
    bed.egress = quick
    bed.rows([(f"cut at {i}, CONNECT", lambda i=i: row(good[:i], "read.test:443", True))
              for i in range(1, len(good), 3)])
    want([d for _, d in bed.origins.since(mark) if d], [], "what reached an origin")
    limitbed.grew(quick, before, 24 << 20, "malformed hellos, with AddressSanitizer's quarantine")
    bed.need("main")
    talk = bed.talk(bed.dial(READ, 443), get("read.test", "/x", "https"))
    want_ok(bed.talk(bed.wrap(bed.dial(READ, 443), "read.test"), get("read.test", "/x", "https")),
            "control: a good client")
    want(len(talk.statuses), 1, "HTTP at port 443 gets an answer")


# --- C89: encrypted hellos ---

def ech(inner):
    """An outer extension, RFC 9849: KDF and AEAD of HPKE, a key, a payload; the inner name inside
    would be encrypted, here it is in clear so that it would be seen."""
    data = b"\x00" + word(1, 1) + b"\x07" + word(32) + b"k" * 32 + word(len(inner)) + inner
    return word(0xfe0d, len(data)) + data


def C89_only_the_outer_name_counts(bed):
    need_tls(bed)
    mark, inner = bed.origins.mark(), b"deny.test" + b"\0" * 100
    got, _ = raw(bed, hello(sni(b"read.test") + ech(inner)), wait=0.5)
    want_in("DNS:read.test", server_certificate(bed, got), "allowed outside, denied inside")
    got, _ = raw(bed, hello(sni(b"read.test") + ech(os.urandom(144))), wait=0.5)
    want_in("DNS:read.test", server_certificate(bed, got), "GREASE")
    got, _ = raw(bed, hello(sni(b"deny.test") + ech(b"read.test" + b"\0" * 100)), wait=0.5)
    want_in("DNS:deny.test", server_certificate(bed, got), "denied outside")
    want(bed.origins.since(mark), [], "what reached an origin")
    out = s_client(bed, "-connect", f"{READ}:443", "-servername", "read.test", "-ign_eof",
                   "-serverinfo", "65037", text=b"GET /ech HTTP/1.1\r\nHost: read.test\r\n"
                   b"Connection: close\r\n\r\n")
    want_in("HTTP/1.1 200 OK", out, "a whole handshake with the extension")
    mine = [h for h in bed.origins.tls.hellos if b"read.test" in h]
    want([h for h in mine if 0xfe0d in extensions(h)], [], "hellos of ours with it")
    want(len(mine) > 0, True, "control: hellos of ours were seen")


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
