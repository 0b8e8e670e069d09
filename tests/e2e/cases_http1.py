#!/usr/bin/env python3
"""Failures of peers in HTTP/1.1: framing, targets, pipelining, expectations, errors.

| case | covered | left out, with the reason |
| --- | --- | --- |
| C42 | all four paths, write host and read host, both orders of fields | - |
| C44 | all values, HTTP/1.0, on TLS and explicit, with a second request behind | - |
| C46 | all folds on four paths; folds in answers | placeholders in folds: no vault |
| C48 | 1 to 12. The head of a chunked request may be gone when a chunk turns out to be bad (bodies
        stream), so "nothing arrived" reads: no origin ever sees a complete request | - |
| C50 | 1 to 7. 1 and 2 are 400: target and Host disagree before policy is asked | 4: vault rules |
| C52 | four paths, every cut, second host, 100 requests, write then read host | - |
| C54 | a to d, read host, unknown expectation | - |
| C56 | plain, TLS, explicit; with websocket, with content, 101 all the same, PRI | an origin that
        speaks HTTP/2: the recorder shows that it was not asked to |
| C58 | explicit, CONNECT, inside TLS | - |
| C60 | all answers, and those that must be 502 | - |
| C62 | 400 403 408 417 431 502 504, marker before, text and JSON | 404: control API; 413, 500: we
        have none; 503: needs 4096 open exchanges; MSan: gcc and OpenSSL are not built with it |
"""
import hashlib
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import casebed  # noqa: E402
from casebed import ok, want, want_403, want_400c, want_in, want_ok, want_out  # noqa: E402

READ, API = "read.test", "api.model.test"
READ_IP, API_IP = "11.22.0.10", "11.22.0.20"


def get(host, target="/", fields=b"", version=b"1.1"):
    return b"GET %s HTTP/%s\r\nHost: %s\r\n%s\r\n" % (target.encode(), version, host.encode(),
                                                      fields)


def four(bed, name, message, absolute=None):
    """[(path, function that sends message over it)]; absolute: the same for the explicit proxy."""
    absolute = absolute or re.sub(rb"^([A-Z]+ )/", rb"\1http://%s/" % name.encode(), message)
    return [("plain", lambda **k: bed.plain(name, message, **k)),
            ("tls", lambda **k: bed.tls(name, message, **k)),
            ("px", lambda **k: bed.px(absolute, **k)),
            ("via", lambda **k: bed.via(name, message, **k))]


def refused(bed, check, messages, name=READ):
    """Rows: each message over four paths, judged by check."""
    return [(f"{path} {m[:70]!r}", lambda send=send, m=m: check(send(n=None, wait=3), repr(m[:60])))
            for m in messages for path, send in four(bed, name, m)]


def C42_length_with_coding(bed):
    def both(method, host):
        tail = b"0\r\n\r\nPOST /w HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\nhi" % host
        fields = [b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"]
        return [b"%s /v1/x HTTP/1.1\r\nHost: %s\r\n%s\r\n%s" % (method, host, b"".join(f), tail)
                for f in (fields, fields[::-1])]
    api, read = both(b"POST", API.encode()), both(b"GET", READ.encode())
    bed.nothing(refused(bed, want_400c, api + read) + refused(bed, want_400c, api, API),
                [(api[0], API_IP), (api[1], API_IP, 443, API), (read[0],), (read[1], READ_IP, 443,
                                                                            READ)])


BEHIND = b"GET http://deny.test/ HTTP/1.1\r\nHost: deny.test\r\n\r\n"
CODINGS = [b"Transfer-Encoding: %s" % v for v in (
    b"chunked,", b",chunked", b"chunked, identity", b"identity, chunked", b"gzip, chunked",
    b"xchunked", b"chunkedx", b'"chunked"', b"chunked;q=1", b"\x0bchunked",
    b"chunked\r\nTransfer-Encoding: identity", b"chunked\r\nTransfer-Encoding: chunked",
    b"identity", b"")] + [b"Transfer-Encoding : chunked", b" Transfer-Encoding: chunked",
                          b"Transfer-Encoding\t: chunked"]


def coded(field, version=b"1.1", target=b"/x", host=b"api.model.test"):
    return (b"POST %s HTTP/%s\r\nHost: %s\r\n%s\r\n\r\n5\r\nAAAAA\r\n0\r\n\r\n"
            % (target, version, host, field))


def C44_odd_codings_are_400(bed):
    tls = [coded(f) for f in CODINGS] + [coded(b"Transfer-Encoding: chunked", b"1.0")]
    px = [coded(f, target=b"http://10.77.0.2:8081/x", host=b"10.77.0.2:8081") for f in CODINGS]
    rows = [(f"tls {m[60:100]!r}", lambda m=m: want_400c(bed.tls(API, m + BEHIND, n=None), "tls"))
            for m in tls]
    rows += [(f"px {m[80:130]!r}", lambda m=m: want_400c(bed.px(m + BEHIND, n=None), "px"))
             for m in px]
    bed.nothing(rows, [(m + BEHIND, API_IP, 443, API) for m in tls[:3]] +
                [(m + BEHIND, "10.77.0.2", 8081) for m in px[:3]])


def C44_chunked_in_any_case_is_sent_on_in_one_spelling(bed):
    for value in (b"Chunked", b"CHUNKED", b" chunked", b"chunked \t"):
        mark = bed.origins.mark()
        field = b"Transfer-Encoding: " + value
        t = bed.tls(API, coded(field) + BEHIND, n=2)
        want(t.statuses[0], 200, f"{value}: {t}")
        want(t.statuses[1] in (400, 403), True, f"{value}: the request behind it: {t}")
        p = bed.px(coded(field, target=b"http://10.77.0.2:8081/x", host=b"10.77.0.2:8081") +
                   BEHIND, n=2)
        want(p.statuses, [200, 403], f"{value}: {p}")
        seen = bed.origins.since(mark)
        want(sorted(x.addr for x, _ in seen), ["10.77.0.2", API_IP], "who was reached")
        for _, data in seen:
            want(len(re.findall(rb"(?i)\r\ntransfer.encoding", data)), 1, f"{data!r}: codings")
            want_in(b"\r\nTransfer-Encoding: chunked\r\n", data, "canonical")
            want(data.endswith(b"\r\n\r\n5\r\nAAAAA\r\n0\r\n\r\n"), True, f"content {data!r}")
    bed.rows_run += 8


FOLDS = [b"X-A: 1\r\n Authorization: Bearer ph-model-0001\r\n", b"X-A: 1\r\n\tb: c\r\n",
         b"Transfer-Encoding:\r\n chunked\r\n", b"X-A: 1\r\n \r\n"]


def C46_folded_request_fields_are_400(bed):
    messages = [get(READ, "/fold", f) for f in FOLDS]
    messages.append(b"GET / HTTP/1.1\r\nHost:\r\n deny.test\r\n\r\n")
    messages.append(b"GET / HTTP/1.1\r\n Host: read.test\r\n\r\n")
    bed.nothing(refused(bed, want_400c, messages), [(m,) for m in messages[:2]])


def C46_folds_in_answers_are_not_sent_on(bed):
    answers = {
        "/fold1": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1;\r\n path=/\r\nContent-Length: 2\r\n\r\nhi",
        "/fold2": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\n\tb\r\n\r\nhi",
        "/fold3": b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"}

    def check(t, what):
        want(t.statuses in ([200], [502]), True, f"{what}: {t}")
        want(re.search(rb"\r\n[ \t]", t.raw.split(b"\r\n\r\n")[0]), None, f"{what}: folded")
    for path, answer in answers.items():
        bed.origins.routes[path] = lambda p, head, a=answer: p.send(a)
    bed.rows([(f"{path} {how}", lambda send=send, path=path: check(send(), path))
              for path in answers for how, send in four(bed, READ, get(READ, path))])


def chunked(body):
    return (b"POST /v1/chunks HTTP/1.1\r\nHost: api.model.test\r\nTransfer-Encoding: chunked\r\n"
            b"\r\n" + body)


BAD_CHUNKS = [b"5;a\nb\r\nAAAAA\r\n0\r\n\r\n", b"5;" + b"x" * 70000 + b"\r\nAAAAA\r\n0\r\n\r\n",
              b"1000000000000000005\r\nAAAAA\r\n0\r\n\r\n", b"ffffffffffffffff\r\nAAAAA",
              b"8000000000000000\r\nAAAAA", b"-5\r\nAAAAA\r\n0\r\n\r\n",
              b"+5\r\nAAAAA\r\n0\r\n\r\n", b"0x5\r\nAAAAA\r\n0\r\n\r\n",
              b" 5\r\nAAAAA\r\n0\r\n\r\n", b"5\r\nAAAAAXX0\r\n\r\n", b"\r\nAAAAA\r\n0\r\n\r\n",
              b"5\nAAAAA\n0\n\n", b"5\rAAAAA\r0\r\r", b"5\r\nAAAAA\n0\r\n\r\n",
              b"0\r\nContent-Length: 5\r\n\r\n", b"0\r\nX-A: 1\r\n b\r\n\r\n"]


def C48_bad_chunks_are_400(bed):
    mark = bed.origins.mark()

    def check(t, what):
        want([t.statuses, t.eof], [[400], True], f"{what}: {t}")
    bed.rows([(f"{how} {b[:30]!r}", lambda b=b, send=send: check(send(n=None), repr(b[:30])))
              for b in BAD_CHUNKS
              for how, send in (("tls", lambda b=b, **k: bed.tls(API, chunked(b), **k)),
                                ("px", lambda b=b, **k: bed.px(chunked(b).replace(
                                    b"POST /", b"POST http://api.model.test/"), **k)))])
    for peer, data in bed.origins.since(mark):
        want(data.endswith(b"0\r\n\r\n"), False, f"a complete request came: {data[-80:]!r}")
    bed.control(chunked(BAD_CHUNKS[0]), API_IP, 443, API)


def C48_extensions_are_dropped(bed):
    for body, must in ((b"5;a=b\r\nAAAAA\r\n0\r\n\r\n", True), (b"5 \r\nAAAAA\r\n0\r\n\r\n", False),
                       (b"5;a=\"b;c\"\r\nAAAAA\r\n0;x\r\n\r\n", True),
                       (b"0000005\r\nAAAAA\r\n000\r\n\r\n", True)):
        mark = bed.origins.mark()
        t = bed.tls(API, chunked(body))
        if t.statuses == [400] and not must:
            continue
        want_ok(t, repr(body))
        data = bed.origins.since(mark)[0][1]
        want(data.split(b"\r\n\r\n", 1)[1], b"5\r\nAAAAA\r\n0\r\n\r\n", f"{body!r}: sent on")
    bed.rows_run += 4


def C48_a_million_chunks_of_one_byte(bed):
    got = {}

    def count(peer, head):
        left, tail, n = peer.buf, b"", 0
        while True:
            n += left.count(b"A")
            tail = (tail + left)[-5:]
            if tail == b"0\r\n\r\n":
                break
            left = peer.sock.recv(1 << 18)
            if not left:
                return False
        peer.buf, got["n"] = b"", n
        peer.send(ok())
        return True
    bed.origins.routes["/v1/many"] = count
    before = bed.egress.memory()
    t = bed.px(b"POST http://api.model.test/v1/many HTTP/1.1\r\nHost: api.model.test\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nA\r\n" * 1000000 + b"0\r\n\r\n",
               wait=30)
    want_ok(t, "answer")
    want(got["n"], 1000000, "bytes that arrived")
    want(bed.egress.memory() - before < 24 << 20, True, "memory stays")  # ASan's quarantine


def C48_silence_in_a_body_ends(bed):
    bed.need("short", EGRESS_STREAM_IDLE="1s", EGRESS_FIRST_BYTE="2s", EGRESS_HEAD_TIMEOUT="1s",
             OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT="1s")
    for body in (b"0\r\n", b"5\r\nAAA", b""):
        t = bed.px(chunked(body).replace(b"POST /", b"POST http://api.model.test/"), n=None)
        want([t.statuses, t.eof], [[408], True], f"{body!r}: {t}")
        want(0.7 < t.took < 3, True, f"{body!r}: after {t.took:.1f} s")
    bed.rows_run += 3


def no_origin(bed, rows):
    bed.nothing(rows, [(get("deny.test", "http://deny.test/"), "11.22.0.66")])


def C50_target_and_host_must_agree(bed):
    def px(target, host):
        return lambda: want_400c(bed.px(get(host, target), n=None), target)

    def inside(send):
        t = send(READ, get(READ, "http://deny.test/"))
        want(t.statuses[0] in (400, 403), True, f"{t}")
    no_origin(bed, [
        ("1", px("http://read.test/", "deny.test")), ("2", px("http://deny.test/", "read.test")),
        ("3", lambda: inside(bed.plain)), ("4", px("https://api.model.test/v1/x", "read.test")),
        ("5", px("/", "read.test")), ("7 tls", lambda: inside(bed.tls)),
        ("7 via", lambda: inside(bed.via)), ("deny", lambda: want_403(bed.px(get(
            "deny.test", "http://deny.test/")), "deny.test")),
        *((t, px(t, READ)) for t in ("ftp://read.test/", "http:read.test/", "http:///",
                                     "http:/read.test/", "http://", "http://u@deny.test/",
                                     "http://read.test@deny.test/", "http://read.test:80@deny.test",
                                     "http://read.test:443/x y", "//read.test/", "*", "read.test",
                                     "http://read.test/#a", "http://deny.test\\@read.test/"))])


def C50_a_port_of_its_own_is_another_authority(bed):
    no_origin(bed, [
        (f"{how} {h}", lambda s=s, m=m: want(s(READ, m).statuses[0] in (400, 403), True, "mismatch"))
        for h in ("read.test:81", "read.test:8080", "read.test:0", "read.test:65536", "read.test:",
                  "deny.test", "read.test, deny.test", "read.test deny.test", "")
        for how, s, m in (("plain", bed.plain, get(h)), ("tls", bed.tls, get(h)),
                          ("via", bed.via, get(h))) if h != "read.test:"])


def C50_scheme_of_the_target_is_the_connections(bed):
    def row(send, target, port):
        want_400c(send(READ, get(READ, target), n=None), f"{target} on {port}")
    bed.nothing([("plain", lambda: row(bed.plain, "https://read.test/", 80)),
                 ("tls", lambda: row(bed.tls, "http://read.test/", 443)),
                 ("via", lambda: row(bed.via, "http://read.test/", 443)),
                 ("tunnel80", lambda: row(bed.tunnel80, "https://read.test/", 80))],
                [(get(READ, "https://read.test/"),)])
    for send, target in ((bed.plain, "http://read.test/"), (bed.tls, "https://read.test/")):
        want_ok(send(READ, get(READ, target)), target)
        bed.rows_run += 1


def C50_https_target_goes_over_tls(bed):
    mark = bed.origins.mark()
    want_ok(bed.px(get(API, "https://api.model.test/v1/x")), "https target")
    (peer, data), = bed.origins.since(mark)
    want((peer.addr, peer.port, peer.sni), (API_IP, 443, API), "TLS with the name")
    want(data.startswith(b"GET /v1/x HTTP/1.1\r\nHost: api.model.test\r\n"), True, f"{data!r}")


def C50_double_slash_is_a_path(bed):
    mark = bed.origins.mark()
    want_ok(bed.plain(READ, get(READ, "//deny.test/")), "//deny.test/")
    (peer, data), = bed.origins.since(mark)
    want(peer.addr, READ_IP, "where")
    want(data.startswith(b"GET //deny.test/ HTTP/1.1\r\nHost: read.test\r\n"), True, f"{data!r}")


POST = b"POST /w HTTP/1.1\r\nHost: read.test\r\nContent-Length: 2\r\n\r\nhi"


def second(host, message=POST):
    return re.sub(rb"^(\w+) /", rb"\1 http://" + host + b"/", message)


def one_request(bed, mark, what, n=1):
    seen = b"".join(d for _, d in bed.origins.since(mark))
    want(len(re.findall(rb"(?m)^(GET|POST) ", seen)), n, f"{what}: request lines in {seen[:300]!r}")
    want_out(b"POST /w", seen, what)


def C52_second_request_of_a_segment_is_judged(bed):
    denied = b"GET / HTTP/1.1\r\nHost: deny.test\r\n\r\n"

    def row(send, absolute, behind, what):
        first = get(READ, "http://read.test/" if absolute else "/")
        t = send(first + (second(b"deny.test" if behind == denied else b"read.test", behind)
                          if absolute else behind))
        want([t.statuses[0], t.statuses[-1], len(t.statuses)], [200, 403, 2], f"{what}: {t}")
        want_403(t, what)
    mark = bed.origins.mark()
    sends = [("plain", lambda m: bed.plain(READ, m, n=2), False),
             ("tls", lambda m: bed.tls(READ, m, n=2), False),
             ("px", lambda m: bed.px(m, n=2), True), ("via", lambda m: bed.via(READ, m, n=2), False)]
    bed.rows([(f"{n} {b[:8]}", lambda s=s, a=a, b=b, n=n: row(s, a, b, n)) for n, s, a in sends
              for b in (POST, denied)])
    one_request(bed, mark, "one segment", 8)
    bed.control(get(READ) + POST)


def cuts(bed, name, send, message):
    """One row for each place to cut the message in two writes."""
    def row(at):
        t = send([message[:at], message[at:]], n=2, gap=0.005)
        want([r.status for r in t.finals], [200, 403], f"{name} cut at {at}: {t}")
    mark = bed.origins.mark()
    bed.rows([(f"{name} {at}", lambda at=at: row(at)) for at in range(1, len(message))])
    one_request(bed, mark, name, len(message) - 1)


def C52_cut_anywhere_plain(bed):
    cuts(bed, "plain", lambda m, **k: bed.plain(READ, m, **k), get(READ) + POST)


def C52_cut_anywhere_tls(bed):
    cuts(bed, "tls", lambda m, **k: bed.tls(READ, m, **k), get(READ) + POST)


def C52_cut_anywhere_explicit(bed):
    cuts(bed, "px", bed.px, get(READ, "http://read.test/") + second(b"read.test"))


def C52_cut_anywhere_connect(bed):
    cuts(bed, "via", lambda m, **k: bed.via(READ, m, **k), get(READ) + POST)


def C52_hundred_in_one_write_come_back_in_order(bed):
    def row(send, base, what):
        t = send(b"".join(get(READ, f"{base}/{i}") for i in range(100)), n=100, wait=20)
        want([r.body for r in t.finals], [b"GET /%d" % i for i in range(100)], what)
    bed.rows([("plain", lambda: row(lambda m, **k: bed.plain(READ, m, **k), "", "plain")),
              ("via", lambda: row(lambda m, **k: bed.via(READ, m, **k), "", "via")),
              ("px", lambda: row(bed.px, "http://read.test", "px"))])


def C52_write_host_then_read_host(bed):
    mark = bed.origins.mark()
    t = bed.px(second(b"api.model.test", POST.replace(b"read.test", b"api.model.test")
                      .replace(b"/w", b"/ok")) + second(b"read.test"), n=2)
    want([r.status for r in t.finals], [200, 403], f"{t}")
    want([p.addr for p, _ in bed.origins.since(mark)], [API_IP], "who was reached")
    t = bed.plain(READ, get(READ, fields=b"Content-Length: 0\r\n") + POST, n=2)
    want([r.status for r in t.finals], [200, 403], f"empty content: {t}")
    bed.rows_run += 2


BODY = bytes(range(256)) * 8192


def upload(bed, path, wait_s):
    """A client that waits for 100 before it sends 2 MiB. (statuses, 100 seen, seconds)"""
    start, s = time.monotonic(), bed.wrap(bed.dial(API_IP, 443), API)
    with s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: api.model.test\r\nExpect: 100-continue\r\n"
                  b"Content-Length: %d\r\n\r\n" % (path, len(BODY)))
        t = casebed.Talk()
        casebed.read_talk(s, t, 1, wait_s) if wait_s < 1 else read_first(s, t, wait_s)
        if not t.finals:
            s.sendall(BODY)
            casebed.read_talk(s, t, 1, 5)
    return t, 100 in t.statuses, time.monotonic() - start


def read_first(s, t, wait_s):
    s.settimeout(wait_s)
    try:
        while not t.replies and (data := s.recv(65536)):
            t.raw += data
    except TimeoutError:
        t.error = "open"


def C54_expect_100_continue(bed):
    got = {}

    def whole(peer, head, first, last):
        peer.send(first)
        got[head.split()[1]] = hashlib.sha256(peer.body(head)).hexdigest()
        peer.send(last)
        return True
    def late(peer, head):  # 100 and 200 in one segment, when the content is there
        return whole(peer, head, b"", b"HTTP/1.1 100 Continue\r\n\r\n" + ok())
    def refuse(peer, head):
        peer.send(ok(b"too large", status=b"413 Content Too Large", fields=b"X-O: 1\r\n"))
        time.sleep(0.3)
        got["413"] = len(peer.buf)
        return False
    routes = bed.origins.routes
    routes["/e/a"] = lambda p, h: whole(p, h, b"HTTP/1.1 100 Continue\r\n\r\n", ok())
    routes["/e/b"] = lambda p, h: whole(p, h, b"", ok())
    routes["/e/c"], routes["/e/d"] = refuse, late
    digest = hashlib.sha256(BODY).hexdigest()
    for path, wait_s, hundred, limit in ((b"/e/a", 3, True, 2), (b"/e/b", 0.3, False, 2),
                                         (b"/e/d", 0.3, True, 2)):
        t, seen, took = upload(bed, path, wait_s)
        want_ok(t, f"{path}")
        want([seen, got[path]], [hundred, digest], f"{path}: 100 was sent on, content is whole")
        want(took < limit, True, f"{path}: took {took:.2f} s")
    t, seen, took = upload(bed, b"/e/c", 3)
    want([[r.status for r in t.finals], seen], [[413], False], f"final answer: {t}")
    time.sleep(0.4)
    want(got["413"], 0, "content behind the refusal")
    bed.rows_run += 4


def C54_refusal_instead_of_100(bed):
    def message(value, length=b"2097152"):
        return (b"POST /u HTTP/1.1\r\nHost: read.test\r\nExpect: %s\r\nContent-Length: %s\r\n\r\n"
                % (value, length))

    def check(t, what):
        want(t.statuses, [403], f"{what}: {t}")
        want_403(t, what)
    rows = [(how, lambda send=send, how=how: check(send(), how))
            for how, send in four(bed, READ, message(b"100-continue"))]
    rows.append(("banana", lambda: want(bed.px(get(READ, "http://read.test/",
                                                   b"Expect: banana\r\n")).statuses, [417],
                                        "unknown expectation")))
    bed.nothing(rows, [(message(b"100-continue"),)])


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


def C56_h2c_is_taken_out(bed):
    mark = bed.origins.mark()
    rows = [(f"{h} {how}", lambda send=send, how=how: want_ok(send(), how)) for h, m in (
        (READ, get(READ, fields=H2C)), (API, get(API, fields=H2C))) for how, send in four(bed, h, m)]
    bed.rows(rows)
    seen = bed.origins.since(mark)
    want(sum(len(re.findall(rb"(?m)^GET ", d)) for _, d in seen), len(rows), "requests")
    for _, data in seen:
        for word in (b"upgrade", b"http2-settings", b"h2c"):
            want_out(word, data, "what arrived")
    bed.control(get(READ, fields=H2C))


def C56_h2c_beside_another_is_taken_out(bed):
    mark = bed.origins.mark()
    both = H2C.replace(b"h2c\r\n", b"h2c, foo, H2C, bar\r\n")
    bed.rows([(how, lambda send=send, how=how: want_ok(send(), how))
              for how, send in four(bed, API, get(API, fields=both))])
    for _, data in bed.origins.since(mark):
        for word in (b"h2c", b"http2-settings"):
            want_out(word, data, "what arrived")
        want_in(b"\r\nConnection: Upgrade\r\nUpgrade: foo, bar\r\n", data, "the others stay")


def C56_upgrade_with_more_is_refused(bed):
    more = [get(READ, fields=H2C.replace(b"h2c", b"h2c, websocket")),
            get(READ, fields=H2C.replace(b"h2c\r\n", b"h2c\r\nUpgrade: websocket\r\n"))]
    content = [get(h, fields=H2C + b"Content-Length: 5\r\n") + b"hello" for h in (READ, API)]
    pri = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    rows = [(f"{how} {m[-60:]!r}", lambda send=send, how=how: want_403(send(), how))
            for m in more for how, send in four(bed, READ, m)]
    rows += [(f"content {how}", lambda send=send, how=how: want_400c(send(n=None), how))
             for h, m in zip((READ, API), content) for how, send in four(bed, h, m)]
    rows += [(f"pri {how}", lambda send=send, how=how: want(send(n=None).statuses[0] in (400, 403),
                                                            True, how))
             for how, send in four(bed, READ, pri[0])]
    bed.nothing(rows, [(more[0],), (content[0],), (pri[0],)])


def C56_unasked_101_is_502(bed):
    got = []

    def switch(peer, head):
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
                  b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        while peer.more():
            pass
        got.append(peer.buf)
        return False
    bed.origins.routes["/u101"] = switch
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

    def row(send):
        t = send(n=None, wait=3)
        want(t.statuses[0], 502, f"{t}")
        want(101 in t.statuses, False, f"{t}")
    bed.rows([(f"{h} {how} {len(f)}", lambda send=send: row(send)) for h in (READ, API)
              for f in (b"", H2C) for how, send in four(bed, h, get(h, "/u101", f) + preface)])
    casebed.until(lambda: len(got) == 16, "origins are closed")
    want(set(got), {b""}, "nothing behind the 101")


LEAKS = (b"Proxy-Authorization: Basic ZHU6c2VjcmV0LXRvaw==\r\nProxy-Connection: keep-alive\r\n"
         b"Forwarded: for=1.2.3.4\r\nX-Forwarded-For: 1.2.3.4\r\nVia: 1.1 x\r\n"
         b"OPENSANDBOX-EGRESS-AUTH: secret-tok\r\nX-Real-IP: 1.2.3.4\r\nProxy-Foo: bar\r\n"
         b"OpenSandbox-Other: x\r\nproxy-authenticate: Basic\r\n")


def C58_proxy_fields_stay_here(bed):
    def connected():
        s = bed.dial("127.0.0.1", bed.egress.port)
        s.sendall(b"CONNECT read.test:443 HTTP/1.1\r\nHost: read.test:443\r\n" + LEAKS + b"\r\n")
        while b"\r\n\r\n" not in s.recv(4096):
            pass
        want_ok(bed.talk(bed.wrap(s, READ), get(READ, "/c58", LEAKS)), "CONNECT")
    mark = bed.origins.mark()
    rows = [(f"{h} {how}", lambda send=send, how=how: want_ok(send(), how)) for h in (READ, API)
            for how, send in four(bed, h, get(h, "/c58", LEAKS))]
    bed.rows(rows + [("connect", connected)])
    seen = b"".join(d for _, d in bed.origins.since(mark))
    want(seen.count(b"GET /c58 "), len(rows) + 1, "requests")
    for word in (b"\r\nproxy-", b"opensandbox", b"secret", b"127.0.0.1", b"::1", b"ZHU6"):
        want_out(word, seen, "what arrived")
    for name in (b"Forwarded", b"X-Forwarded-For", b"Via", b"X-Real-IP"):
        for value in re.findall(rb"(?m)^" + name + rb": (.*)\r", seen):
            want(value in (b"for=1.2.3.4", b"1.2.3.4", b"1.1 x"), True, f"{name} {value}")
    with open(bed.egress.audit) as f:
        logs = f.read() + bed.egress.text()
    for word in ("secret-tok", "ZHU6"):
        want_out(word, logs, "log and trail")
    bed.control(get(READ, "/c58", LEAKS))


def C58_connection_names_more_fields(bed):
    mark = bed.origins.mark()
    fields = (b"Connection: X-Secret, keep-alive\r\nX-Secret: s1\r\nTE: trailers\r\n"
              b"Keep-Alive: timeout=5\r\n")
    bed.rows([(how, lambda send=send, how=how: want_ok(send(), how))
              for how, send in four(bed, READ, get(READ, "/c58b", fields))])
    seen = b"".join(d for _, d in bed.origins.since(mark))
    for word in (b"x-secret", b"s1", b"\r\nconnection", b"\r\nkeep-alive", b"\r\nte:"):
        want_out(word, seen, "what arrived")


REAL = {
    "empty-phrase": (b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    "no-phrase": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    "blanks": (b"HTTP/1.1 200 OK\r\nX-A: \t  v \t \r\nContent-Length:   2  \r\n\r\nhi", b"hi"),
    "latin-1": (b"HTTP/1.1 200 OK\r\nSet-Cookie: a=\xe9\xff\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    "odd-name": (b"HTTP/1.1 200 OK\r\nX-A[0]: 1\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    "close": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", b"hello"),
    "until-close": (b"HTTP/1.1 200 OK\r\n\r\nall of it", b"all of it"),
    "1.0": (b"HTTP/1.0 200 OK\r\n\r\nall of it", b"all of it"),
    "type-twice": (b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Type: c/d\r\n"
                   b"Content-Length: 2\r\n\r\nhi", b"hi"),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: \"x\"\r\n\r\n", b""),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "utf-8": ("HTTP/1.1 302 Found\r\nLocation: /\u00fc\u4e16\r\nContent-Length: 2\r\n\r\nhi"
              .encode(), b"hi"),
    "same-length-twice": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
                          b"hi"),
    "alt-svc": (b"HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":443\"\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    "early-hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok(b"hi"), b"hi"),
}
BROKEN = {
    "two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
    "length-list": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nhi!",
    "length-and-coding": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
                         b"\r\n0\r\n\r\n",
    "control": b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 2\r\n\r\nhi",
    "bare-cr": b"HTTP/1.1 200 OK\r\nX-A: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\nhi",
    "negative": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi",
    "coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "no-http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
}


def serve_raw(bed, prefix, answers):
    for name, answer in answers.items():
        bed.origins.routes[prefix + name] = lambda p, h, a=answer: p.send(a)  # None: then closed


def C60_real_answers_pass(bed):
    serve_raw(bed, "/real/", {k: v[0] for k, v in REAL.items()})

    def row(send, name):
        t = send()
        answer, body = REAL[name]
        final = answer.split(b"103 Early", 1)[-1].rsplit(b"HTTP/1.1 ", 1)[-1]
        final = final[9:] if final.startswith(b"HTTP/1.0") else final
        want([t.finals[-1].status if t.finals else t, t.finals[-1].body if t.finals else t],
             [int(final[:3]), body], f"{name}: {t}")
        want_out(b"alt-svc", t.raw, "no way to HTTP/3 is shown")
        if name == "blanks":
            want(t.finals[-1].field("x-a"), "v", "value")
            want_in(b"X-A: v\r\n", t.raw, "trimmed")
        if name == "latin-1":
            want(t.finals[-1].field("set-cookie"), "a=\xe9\xff", "bytes above 0x7f")
    bed.rows([(f"{name} {how}", lambda send=send, name=name: row(send, name)) for name in REAL
              for how, send in four(bed, READ, get(READ, "/real/" + name))])


def C60_ambiguous_answers_are_502(bed):
    serve_raw(bed, "/broken/", BROKEN)

    def row(send, name):
        t = send(n=1)
        want(t.statuses, [502], f"{name}: {t}")
        want_out(b"hi", t.raw.split(b"\r\n\r\n")[0], name)
    bed.rows([(f"{name} {how}", lambda send=send, name=name: row(send, name)) for name in BROKEN
              for how, send in four(bed, READ, get(READ, "/broken/" + name))])


def C60_content_that_breaks_off_is_seen_to(bed):
    serve_raw(bed, "/cut/", {
        "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\nx",
        "chunk-end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        "length": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"})

    def torn(peer, head):  # the end of TLS without close_notify is no end of a message
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nall of")
        peer.cut = True
    bed.origins.routes["/cut/tls"] = torn

    def row(send, name):
        t = send(n=None, wait=3)
        want([len(t.finals) and not t.finals[0].status, t.raw.endswith(b"0\r\n\r\n")], [0, False],
             f"{name} is not whole: {t}")
    bed.rows([(f"{name} {how}", lambda send=send, name=name: row(send, name))
              for name in ("chunk", "chunk-end", "length", "tls")
              for how, send in four(bed, READ, get(READ, "/cut/" + name))
              if name != "tls" or how in ("tls", "via")])


MARKER = b"mArKeR-5ecret-0001"


def error_rows(bed):
    """name, bytes for the explicit proxy, status; on the egress with short limits."""
    long_field = b"X: " + b"a" * 70000 + b"\r\n"
    read = "http://read.test"
    return [
        ("script", get("deny.test", "http://deny.test/<script>x</script>%0d%0aSet-Cookie:%20a=b"),
         403),
        ("script-403", get("deny.test", "http://deny.test/%3Cscript%3E%0d%0aSet-Cookie:%20a=b"),
         403),
        ("host", get("<b>.test", "http://<b>.test/"), 400),
        ("method", b"<B> http://read.test/ HTTP/1.1\r\nHost: read.test\r\n\r\n", 400),
        ("odd-method", b"X!#$%&'*+-.^_`|~1 http://read.test/ HTTP/1.1\r\nHost: read.test\r\n\r\n",
         403),
        ("empty-target", b"POST  HTTP/1.1\r\nHost: read.test\r\n\r\n", 400),
        ("no-host", b"GET http://read.test/ HTTP/1.1\r\n\r\n", 400),
        ("expect", get(READ, read + "/", b"Expect: <b>\r\n"), 417),
        ("head", get(READ, read + "/", long_field), 431),
        ("target", get(READ, read + "/" + "a" * 20000), 431),
        ("fields", get(READ, read + "/", b"".join(b"X-%d: <b>\r\n" % i for i in range(200))), 431),
        ("no-origin", get("two.test", "http://two.test:8080/<"), 400),
        ("refused", get("b.wild.test", "http://b.wild.test/%3Cb%3E"), 502),
        ("answer", get(READ, read + "/broken/control"), 502),
        ("late", get(READ, read + "/never"), 504),
        ("slow-head", b"GET http://read.test/<b> HTTP/1.1\r\nHo", 408),
    ]


def C62_error_pages_say_nothing_of_the_request(bed):
    serve_raw(bed, "/broken/", BROKEN)
    bed.origins.routes["/never"] = lambda p, h: p.more()
    bed.need("short", EGRESS_STREAM_IDLE="1s", EGRESS_FIRST_BYTE="2s", EGRESS_HEAD_TIMEOUT="1s",
             OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT="1s")

    def check(t, status, what, json):
        want([r.status for r in t.finals], [status], f"{what}: {t}")
        r, kind = t.finals[-1], "text/plain; charset=utf-8"
        if json and (status not in (400, 408, 431) or r.body.startswith(b"{")):
            kind = "application/json"  # what was not understood has no Accept
        want([r.field("content-type"), r.field("content-length")], [kind, str(len(r.body))], what)
        for bad in (b"<", b">", b"%0d", b"Set-Cookie", b"\x00", MARKER, b"aaaa"):
            want_out(bad, t.raw, what)
        want(all(32 <= b < 127 or b in b"\r\n" for b in t.raw), True, f"{what}: bytes {t}")

    def row(name, message, status, json):
        secret = get(READ, "http://read.test/m", b"Cookie: " + MARKER * 200 + b"\r\n")
        want_ok(bed.px(secret), "marker")
        if json:
            message = message.replace(b"\r\n", b"\r\nAccept: application/json\r\n", 1)
        check(bed.px(message), status, name, json)
    rows = [(f"{n} {j}", lambda n=n, m=m, s=s, j=j: row(n, m, s, j))
            for n, m, s in error_rows(bed) for j in (False, True)]
    bed.rows(rows)
    want(set(s for _, _, s in error_rows(bed)), {400, 403, 408, 417, 431, 502, 504}, "statuses")


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
