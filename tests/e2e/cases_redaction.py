#!/usr/bin/env python3
"""Peers' failures with keys on the way back: cases of the area `redaction`. Each answer is seen to
hold the key when it leaves its origin: the same request past egress gets it.

case  covered here                                        elsewhere, or left out with the reason
C133  JSON, HTML, four fields, reason, 1xx, trailer, on   sizes and pieces: keys.py K01, K03
      200 301 401 500
C135  every coding, alone and mixed, with and without     gzip without its field is content that the
      its field, members, Transfer-Encoding               origin packed, like a zip: not opened
C137  all spellings, special characters, three phases     not promised, and shown here: reversed,
                                                          UTF-16, one letter escaped and others not
C139  unresolved, refused, reset, malformed, late, cut,   without a vault: cases_audit.py; malloc
      too large, at debug level                           failure ends the worker
C141  20 bombs at a time, empty members without end,      zstd, brotli: refused unread, C135
      codings in codings
C143  cookies and tokens pass, and stay with their        HTTP/2; no option takes them out: not in
      client                                              this version
"""
import base64
import gzip
import html
import json
import os
import sys
import threading
import time
import zlib
from urllib.parse import quote

import casebed
import keysbed
from casebed import ok, until, want, want_in, want_ok, want_out
from keysbed import HOST, K, STARS, Client, ask, bearer, bind, document, refused, request, sent
from limitbed import say, start

SPECIAL = b'sk+/=&"<-' + K[8:]
WILD = "*.wild.test"
DOC = document({"k": K, "special": SPECIAL}, bind("k", bearer(), ["/v1/*"], (HOST, WILD)),
               bind("special", bearer(credential="special"), ["/special/*"]))
ECHO = "/v1/echo"
MEGABYTE = 1 << 20


def bound(bed):
    return keysbed.vaulted(bed, "bound", DOC, EGRESS_READ_ONLY="off")


def answer(bed, what, *pieces, fields=b"", key=K, target=ECHO):
    """What a client gets of this answer, and the bytes of it past egress; the origin's request has
    the key."""
    def route(peer, head):
        peer.body(head)
        for piece in pieces:
            peer.send(piece)
        return False
    bed.origins.routes[target] = route
    data = request(target.encode(), b"Connection: close\r\n" + fields)
    talk, got = ask(bed, data, n=None)
    want_in(b"Bearer " + key, got, f"{what}: control: the key is in use")
    bed.rows_run += 1
    return talk, keysbed.direct(bed, data)


# --- C133 ---

def C133_an_echo_in_every_place(bed):
    bound(bed)
    page = json.dumps({"headers": {"authorization": "Bearer " + K.decode()}, "n": 1}).encode()
    for status in (b"200 OK", b"301 Moved", b"401 Unauthorized", b"500 Oops"):
        for name, body in (("JSON", page), ("HTML", b"<h1>bad key " + K + b"</h1>")):
            talk, past = answer(bed, f"{name} {status}", ok(body, status=status))
            want_in(body, past, f"{name} {status}: control")
            [r] = talk.finals
            want([r.status, r.body], [int(status[:3]), body.replace(K, STARS)], f"{name} {status}")
            want(r.field("content-length"), str(len(body)), f"{name} {status}: length")
            if name == "JSON":
                want(json.loads(r.body)["n"], 1, "still JSON")
    for name in (b"X-Debug", b"Set-Cookie", b"Location", b"WWW-Authenticate"):
        for status in (b"200 OK", b"301 Moved", b"401 Unauthorized", b"500 Oops"):
            line = name + b": a " + K + b" b\r\n"
            talk, past = answer(bed, f"{name} {status}", ok(fields=line, status=status))
            want_in(line, past, f"{name} {status}: control")
            want_in(line.replace(K, STARS), talk.raw, f"{name} {status}")
            want_out(K, talk.raw, f"{name} {status}")
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </%s>\r\n\r\n" % K
    trailer = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
               b"X-T: %s\r\n\r\n")
    for name, pieces in {"reason": [ok(status=b"400 no " + K)], "1xx": [hint, ok()],
                         "trailer": [trailer % K]}.items():
        talk, past = answer(bed, name, *pieces)
        want_in(K, past, f"{name}: control")
        want(len(talk.finals), 1, f"{name}: an answer")
        want_out(K, talk.raw, name)


# --- C135 ---

def zipped(text):
    """The same bytes for the same text: gzip has a time in it."""
    return gzip.compress(text, mtime=0)


def deflated(text, raw=False):
    z = zlib.compressobj(wbits=-15 if raw else 15)
    return z.compress(text) + z.flush()


def C135_an_echo_in_a_coding(bed):
    bound(bed)
    asked = b"Accept-Encoding: gzip, br, zstd, dcb\r\n"
    text = b"text " * 99 + K + b" text " * 99
    clean = text.replace(K, b"nothing")
    packed = {"gzip": (b"gzip", zipped), "x-gzip": (b"X-GZIP", zipped),
              "deflate": (b"deflate", deflated),
              "identity, gzip": (b"identity, gzip", zipped),
              "members": (b"gzip", lambda t: zipped(t[:100]) + zipped(t[100:])),
              "members across": (b"gzip", lambda t: zipped(t[:505]) +
                                 zipped(t[505:]))}
    for name, (coding, pack) in packed.items():
        field = b"Content-Encoding: " + coding + b"\r\n"
        talk, past = answer(bed, name, ok(pack(text), field), fields=asked)
        want_in(pack(text), past, f"{name}: control")
        want(pack(text) in talk.raw, False, f"{name}: cut")
        want_out(K, talk.raw, name)
        talk, _ = answer(bed, name, ok(pack(clean), field), fields=asked)
        want(talk.finals[0].body, pack(clean), f"{name}: a clean one passes")
        talk = bed.via("read.test", b"GET %s HTTP/1.1\r\nHost: read.test\r\n%s\r\n"
                       % (ECHO.encode(), asked))
        want([talk.finals[0].body, talk.finals[0].field("content-encoding")],
             [pack(clean), coding.decode()], f"{name}: unbound: as it is")
    for coding in (b"br", b"zstd", b"gzip, br", b"br, gzip", b"gzip, gzip", b"gzip, gzip, gzip",
                   b"foo", b"dcb", b"gzip\r\nContent-Encoding: gzip", b"gzip;q=1"):
        talk, _ = answer(bed, coding, ok(b"x", b"Content-Encoding: " + coding + b"\r\n"),
                         fields=asked)
        refused(talk, "encoded_answer", f"{coding}", 502)
    for name, body in (("no gzip in it", text), ("broken", zipped(text)[:10] + b"\xff" * 90),
                       ("raw deflate", deflated(text, raw=True))):
        coding = b"deflate" if name == "raw deflate" else b"gzip"
        talk, _ = answer(bed, name, ok(body, b"Content-Encoding: " + coding + b"\r\n"))
        want(body in talk.raw, False, f"{name}: cut")
        want_out(K, talk.raw, name)
    inside = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    talk, _ = answer(bed, "transfer coding", inside % (len(zipped(text)),
                                                       zipped(text)))
    refused(talk, "upstream_malformed", "transfer coding", 502)


def C135_bound_requests_ask_for_what_can_be_read(bed):
    bound(bed)
    for coding in (b"gzip, br, zstd, dcb", b"*", b"identity;q=0, br", b""):
        talk, got = ask(bed, request(b"/v1/x", b"Accept-Encoding: " + coding + b"\r\n"))
        want_ok(talk, f"{coding}")
        want([x for x in got.split(b"\r\n") if x.lower().startswith(b"accept-encoding")],
             [b"Accept-Encoding: identity"], f"{coding}")
        bed.rows_run += 1
    mark = bed.origins.mark()
    bed.via("read.test", b"GET / HTTP/1.1\r\nHost: read.test\r\nAccept-Encoding: br\r\n\r\n")
    want_in(b"Accept-Encoding: br\r\n", sent(bed, mark), "control: unbound")


# --- C137 ---

def spellings(key):
    """{name: text} of a key in the forms that are promised."""
    text = key.decode()
    ascii_json = json.dumps(text)[1:-1]
    out = {"raw": key, "hex": key.hex().encode(), "HEX": key.hex().upper().encode(),
           "upper": key.upper(), "lower": key.lower(), "bearer": b"Bearer " + key,
           "percent": quote(text, safe="").encode(), "json": ascii_json.encode(),
           "every percent": b"".join(b"%%%02x" % c for c in key),
           "every json": b"".join(b"\\u%04X" % c for c in key),
           "json solidus": ascii_json.replace("/", "\\/").encode(),
           "percent but letters": b"".join(
               bytes([c]) if chr(c).isalnum() else b"%%%02X" % c for c in key),
           "html": html.escape(text).encode(),
           "html numbers": b"".join(b"&#%d;" % c for c in key),
           "html hex": b"".join(b"&#x%X;" % c for c in key),
           "form": quote(text, safe="").replace("%20", "+").encode()}
    for alt, name in ((None, "base64"), (b"-_", "base64url")):
        for before in (b"", b"x", b"xy", b"user:"):
            whole = base64.b64encode(before + key, alt).rstrip(b"=")
            first = (8 * len(before) + 5) // 6
            out[f"{name} behind {len(before)}"] = whole[first:8 * len(before + key) // 6]
    return out


def C137_other_forms_of_the_same_key(bed):
    bound(bed)
    for target, key in ((ECHO, K), ("/special/echo", SPECIAL)):
        for name, form in spellings(key).items():
            for what, piece in ((f"{name} in content", ok(b"<" + form + b">\n")),
                                (f"{name} in a field", ok(fields=b"X-Echo: " + form + b"\r\n"))):
                talk, past = answer(bed, f"{key} {what}", piece, key=key, target=target)
                want_in(form, past, f"{what}: control")
                want(len(talk.finals), 1, f"{what}: an answer")
                want_out(form, talk.raw, f"{what}")
    for name, form in (("reversed", K[::-1]), ("UTF-16", K.decode().encode("utf-16-le")),
                       ("one letter escaped", b"\\u%04x" % K[0] + K[1:])):
        talk, _ = answer(bed, name, ok(b"<" + form + b">\n"))
        want(talk.finals[0].body, b"<" + form + b">\n", f"{name}: not promised, passes whole")


# --- C139 ---

QUICK = {"EGRESS_FIRST_BYTE": "1s", "EGRESS_CONNECT_TIMEOUT": "1s", "EGRESS_READ_ONLY": "off",
         "OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT": "1s"}


def C139_our_own_pages_show_no_key(bed):
    e = start(bed, "quick", EGRESS_VAULT_FILE=keysbed.document_write(bed, "quick", DOC), **QUICK)

    def reset(peer, head):
        peer.cut = True
        peer.sock.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: a reset
        return False
    bed.origins.routes.update({
        "/v1/reset": reset, "/v1/close": lambda peer, head: False,
        "/v1/late": lambda peer, head: time.sleep(3),
        "/v1/odd": lambda peer, head: peer.send(b"Bearer " + K + b" was odd\r\n\r\n"),
        "/v1/smuggle": lambda peer, head: peer.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\nX: " + K + b"\r\n\r\n"),
        "/v1/huge": lambda peer, head: peer.send(
            b"HTTP/1.1 200 OK\r\nX: " + K + b"x" * 70000 + b"\r\n\r\n"),
        "/v1/cut": lambda peer, head: peer.send(ok(b"<" + K + b">\n" * 99)[:-90])})
    content = b"x=" + b"y" * 99
    rows = {  # host, path, status, and whether the origin's request had the key
        "unresolved": ("nx.wild.test", b"/v1/x", 502, False),
        "broken resolver": ("servfail.wild.test", b"/v1/x", 502, False),
        "loopback": ("lie-loop.wild.test", b"/v1/x", 403, False),
        "reset": (HOST, b"/v1/reset", 502, True), "closed": (HOST, b"/v1/close", 502, True),
        "late": (HOST, b"/v1/late", 504, True), "odd": (HOST, b"/v1/odd", 502, True),
        "smuggling": (HOST, b"/v1/smuggle", 502, True), "huge": (HOST, b"/v1/huge", 502, True),
        "cut": (HOST, b"/v1/cut", 200, True), "path": (HOST, b"/v1/../x", 403, False),
        "too large": (HOST, b"/v1/" + b"z" * 20000, 431, False)}
    for what, (host, path, status, arrives) in rows.items():
        for method, body in ((b"GET", b""), (b"POST", content)):
            mark = bed.origins.mark()
            talk = bed.via(host, b"%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (method, path, host.encode(),
                                                              len(body), body), n=None)
            line = talk.raw.split(b"\r\n")[0]
            want_in(b" %d " % status, line, f"{what} {method}")
            want(K in sent(bed, mark), arrives, f"{what} {method}: control: the key was on its way")
            want_out(K, talk.raw, f"{what} {method}")
            want_out(b"Bearer", talk.raw.replace(b"Bearer " + STARS, b""), f"{what} {method}")
            bed.rows_run += 1
    until(lambda: len(e.lines()) >= 2 * len(rows), "lines")
    for path in (e.log, e.audit):
        with open(path, "rb") as f:
            text = f.read()
        want_in(b"bindings: k" if path == e.log else HOST.encode(), text, f"{path}: control")
        want_out(K, text, path)
        want_out(base64.b64encode(K)[:20], text, path)


# --- C141 ---

def C141_bombs(bed):
    e = lean_bound(bed)
    zeros = b"\0" * MEGABYTE
    z = zlib.compressobj(9, wbits=31)
    bomb = b"".join(z.compress(zeros) for _ in range(200)) + z.flush()
    want(len(bomb) < MEGABYTE, True, "control: 200 MiB in less than one")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    small = zipped(zeros)
    bed.origins.routes["/v1/bomb"] = lambda peer, head_: peer.send(head, bomb)
    bed.origins.routes["/v1/small"] = lambda peer, head_: peer.send(
        ok(small, b"Content-Encoding: gzip\r\n"))
    talk, _ = ask(bed, request(b"/v1/small"))
    want(talk.finals[0].body, small, "control: a little that unfolds to much passes")
    before, ends = e.memory(), []

    def one():
        with Client(bed) as client:
            client.send(request(b"/v1/bomb"))
            client.sock.settimeout(60)
            client.until_closed()
            ends.append(len(client.talk.raw))
    threads = [threading.Thread(target=one) for _ in range(20)]
    for t in threads:
        t.start()
    worst, slowest = 0, 0.0
    while any(t.is_alive() for t in threads):
        begin = time.monotonic()
        want_ok(bed.via("read.test", b"GET / HTTP/1.1\r\nHost: read.test\r\n\r\n"), "other traffic")
        slowest = max(slowest, time.monotonic() - begin)
        worst = max(worst, e.memory() - before)
    say(f"{len(ends)} bombs: memory +{worst >> 10} KiB, others waited {slowest:.2f} s")
    want(len(ends), 20, "bombs")
    want(max(ends) < len(bomb), True, f"each is cut: {max(ends)} of {len(bomb)} bytes")
    want(worst < 32 * MEGABYTE, True, f"memory grew by {worst}")
    bed.rows_run += 20


def lean_bound(bed):
    """As limitbed.lean(), whose memory can be measured, with a vault."""
    options = os.environ.get("ASAN_OPTIONS", "detect_leaks=1")
    return keysbed.vaulted(bed, "lean", DOC, EGRESS_READ_ONLY="off",
                           ASAN_OPTIONS=f"{options}:quarantine_size_mb=1:"
                           "thread_local_quarantine_size_kb=64")


def C141_empty_members_without_end(bed):
    bound(bed)
    empty = zipped(b"") * (MEGABYTE // 20)
    begin = time.monotonic()
    talk, _ = answer(bed, "empty members", ok(empty, b"Content-Encoding: gzip\r\n"))
    want(talk.finals[0].body == empty, True, "they pass")
    want(time.monotonic() - begin < 20, True, "in time")
    talk, _ = answer(bed, "with the key", ok(empty + zipped(K),
                                             b"Content-Encoding: gzip\r\n"))
    want(zipped(K) in talk.raw, False, "a key behind them is found")


# --- C143 ---

def C143_what_an_origin_hands_out_stays_with_its_client(bed):
    bound(bed)
    given = (b"Set-Cookie: session=abc; HttpOnly\r\nSet-Cookie: b=2\r\nAuthentication-Info: n=1\r\n"
             b"X-Refresh-Token: rt-1\r\n")
    body = b'{"access_token":"at-1"}'
    talk, _ = answer(bed, "handed out", ok(body, given))
    want_in(given, talk.raw, "as it is")
    want(talk.finals[0].body, body, "content")
    bed.origins.routes[ECHO] = lambda peer, head: (peer.send(ok(body, given)), True)[1]
    with Client(bed) as first:
        first.send(request(ECHO.encode()))
        want(first.answer().field("set-cookie"), "session=abc; HttpOnly", "control")
        mark = bed.origins.mark()
        first.send(request(b"/v1/next"))
        want(first.answer().status, 200, "the same client")
    talk, _ = ask(bed, request(b"/v1/next"))
    want_ok(talk, "another client")
    for part in (b"session", b"rt-1", b"at-1", b"Cookie"):
        want_out(part, sent(bed, mark), "nothing is sent that its client did not send")
    talk, got = ask(bed, request(b"/v1/next", b"Cookie: session=abc\r\n"))
    want_in(b"Cookie: session=abc\r\n", got, "control: what a client sends")


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
