#!/usr/bin/env python3
"""Cases of peers' failures in the record, in answers of our own and in what clients make of them.

case  covered here                                        elsewhere, or not in this version
C62   every answer we can give: 400 403 408 417 431 502   MSan: ASan and UBSan in its place; 404,
      503 504: type, length, nothing reflected, nothing   413, 500: there is none yet; 503 of a full
      of the request before                               disk: limits_load limit-full-disk
C139  refused, reset, malformed, timed out, too large,    malloc failure ends the worker (style);
      with a key in fields and content, log at debug      webhook and metrics: not in this version
C145  one line a request: 200 HEAD 304 404, redirects,    HTTP/2 streams; DNS denials: DNS gate
      cut by either side, range, empty, WebSocket, kept
      connections, all ways in, IPv6, refusals, TLS
C147  masked and dropped, in the line and in the log;     injected keys: with the vault
      fields are not recorded
C149  refused, not reached, gone before the head, sent    `binding` of keys: with the vault
      again on a new connection: one line, true bytes
C182  every refusal in one line within 300 ms             direct TCP and UDP: kernel rules; git, npm,
                                                          pip, psql: clients.sh, cases_readonly C110
C184  policy 403, unreachable 502, late 504, 429 and      vault 503: with the vault; SDKs need an
      fields of the origin untouched, 431                 account; 503: limit-full-disk
C172 C174 C176 C178 C180: clients.sh (node-https, curl, java-client, cargo-fetch, go-get), C75 and
strict_verify.sh; Codex and gRPC need HTTP/2 or an account. C36: lifecycle.sh reload-storm.
"""
import re
import socket
import ssl
import struct
import sys
import time

import casebed
from casebed import Failed, ok, until, want, want_403, want_in, want_ok, want_out
from limitbed import get, say, start

K = b"sk-live-4f9c2b7e"
QUICK = {"EGRESS_FIRST_BYTE": "1s", "EGRESS_HEAD_TIMEOUT": "1s", "EGRESS_CONNECT_TIMEOUT": "1s",
         "OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT": "1s"}


def quick(bed):
    return start(bed, "quick", policy=casebed.POLICY + [("allow", "*.wild.test", [80, 443, 9]),
                                                        ("allow", "203.0.113.9", None)], **QUICK)


def at_rest(egress):
    """Lines so far, when all that is over has been written."""
    while True:
        n = len(egress.lines())
        time.sleep(0.22)
        if len(egress.lines()) == n:
            return n


def since(egress, mark, n):
    """Exactly n new lines; waits a moment for one too many."""
    def lines():
        return egress.lines()[mark:]
    until(lambda: len(lines()) >= n, f"{n} lines, not {len(lines())}")
    time.sleep(0.25)
    want([len(lines())] if len(lines()) == n else lines(), [n], "number of lines")
    return lines()


def reset(peer, _):
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def garbage(peer, _):
    peer.send(b"HTTP/1.1 2OO OK\r\n\r\n" + K)
    return False


def silence(peer, _):
    while peer.more():
        pass


def own_answers(bed):
    """[(what, talk, status)] of each answer that we give. Each request carries K where a client
    would have it."""
    bed.origins.routes.update({"/reset": reset, "/garbage": garbage, "/silence": silence})
    more = b"Authorization: Bearer %s\r\nCookie: s=%s\r\nX-Key: %s\r\n" % (K, K, K)

    def ask(target, name="a.wild.test", method=b"GET", fields=b"", **how):
        return bed.px(b"%s http://%s%s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n" % (
            method, name.encode(), target, name.encode(), more, fields), wait=5, **how)

    def slow():
        s = bed.dial("127.0.0.1", bed.egress.port)
        return bed.talk(s, b"GET http://a.wild.test/ HTTP/1.1\r\n" + more, wait=4)

    return [
        ("two lengths", 400, lambda: ask(b"/", fields=b"Content-Length: 1\r\nContent-Length: 2\r\n")),
        ("bad target", 400, lambda: bed.px(b"GET /<script>x</script>%0d%0aSet-Cookie:%20a=b HTTP/1.1"
                                           b"\r\nHost: a.wild.test\r\n" + more + b"\r\n")),
        ("bad host", 400, lambda: bed.px(b"GET http://<b>/ HTTP/1.1\r\nHost: <b>\r\n" + more +
                                         b"\r\n")),
        ("bad method", 400, lambda: bed.px(b"<B> http://a.wild.test/ HTTP/1.1\r\nHost: a.wild.test"
                                           b"\r\n" + more + b"\r\n")),
        ("no target", 400, lambda: bed.px(b"POST  HTTP/1.1\r\nHost: a.wild.test\r\n" + more +
                                          b"\r\n")),
        ("denied", 403, lambda: ask(b"/<script>x</script>", "deny.test")),
        ("write", 403, lambda: ask(b"/<script>", method=b"POST", fields=b"Content-Length: 16\r\n\r\n"
                                   + K + b"\r\n")),
        ("slow", 408, slow),
        ("expectation", 417, lambda: ask(b"/", fields=b"Expect: %s\r\n" % K)),
        ("large head", 431, lambda: ask(b"/", fields=b"X: " + K * 5000 + b"\r\n")),
        ("long target", 431, lambda: ask(b"/" + K * 2000)),
        ("refused", 502, lambda: ask(b"/", "a.wild.test:9")),
        ("reset", 502, lambda: ask(b"/reset")),
        ("garbage", 502, lambda: ask(b"/garbage")),
        ("no name", 502, lambda: ask(b"/", "nx.wild.test")),
        ("silence", 504, lambda: ask(b"/silence")),
        ("no resolver", 504, lambda: ask(b"/", "drop.wild.test")),
    ]


def want_own(what, talk, status):
    want([r.status for r in talk.finals][:1], [status], f"{what}: {talk}: status")
    r = talk.finals[0]
    want(r.field("content-type"), "text/plain; charset=utf-8", f"{what}: type")
    want(r.field("content-length"), str(len(r.body)), f"{what}: length")
    want(bool(re.fullmatch(rb"%d [ -~]+: [ -~]+\n" % status, r.body)), True,
         f"{what}: one line of text: {r.body!r}")
    names = {n for n, _ in r.fields}
    allowed = {b"content-type", b"content-length", b"x-content-type-options", b"x-egress-verdict",
               b"x-egress-reason", b"x-egress-decision", b"connection", b"retry-after"}
    want(names - allowed, set(), f"{what}: fields")
    for bad in (b"<", b">", b"script", b"Set-Cookie", b"s=", K, K[3:], b"\0", b"\xbe"):
        want(bad in talk.raw, False, f"{what}: {bad!r} in {talk.raw!r}")
    return r


def C62_answers_reflect_nothing(bed):
    quick(bed)
    bed.rows([(w, lambda w=w, f=f, s=s: want_own(w, f(), s)) for w, s, f in own_answers(bed)])
    mark = bed.origins.mark()
    talk = bed.px(get("a.wild.test", "/x", fields=b"X-Key: " + K + b"\r\n"))
    want_ok(talk, "control")
    want_in(K, b"".join(d for _, d in bed.origins.since(mark)), "control: an origin gets the field")


def C62_json_is_escaped(bed):
    quick(bed)
    talk = bed.px(b"GET http://deny.test/%22%7d HTTP/1.1\r\nHost: deny.test\r\n"
                  b"Accept: application/json\r\n\r\n")
    want_in(b'{"code":"', talk.finals[0].body, "JSON")
    want_out("%22", talk.finals[0].body.decode(), "target")


def C139_keys_stay_out_of_answers_log_and_record(bed):
    e = quick(bed)
    mark, count = at_rest(e), len(own_answers(bed))
    bed.rows([(w, lambda w=w, f=f, s=s: want_own(w, f(), s)) for w, s, f in own_answers(bed)])
    s = bed.dial("127.0.0.1", e.port)
    talk = bed.talk(s, b"POST http://api.model.test/reset HTTP/1.1\r\nHost: api.model.test\r\n"
                    b"Content-Length: 16\r\nAuthorization: %s\r\n\r\n%s" % (K, K))
    want_own("content", talk, 502)
    until(lambda: len(e.lines()) >= mark + count + 1, "lines")
    want_out(K.decode(), e.text(), "log at debug level")
    with open(e.audit) as f:
        lines = [x for x in f if K.decode() in x and "/" + K.decode() not in x]
    want(lines, [], "record")  # the row with K in its path is recorded with its path
    untrusting(bed)
    until(lambda: "session: read.test:443: " in e.text(), "control: the log speaks")


# --- C145: one line for each ---

def routes(bed):
    def slow(peer, _):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _i in range(1000):
            peer.send(b"s" * 1000)
            time.sleep(0.01)

    def broken(peer, _):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        return False

    def switch(peer, _):
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                  b"Connection: Upgrade\r\n\r\nhello")
        peer.more()
        return False

    def fixed(status, fields=b"", body=b"ok\n"):
        return lambda peer, _: peer.send(ok(body, fields, status)) or True

    bed.origins.routes.update({
        "/304": lambda p, _: p.send(b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n") or True,
        "/404": fixed(b"404 Not Found"), "/r1": fixed(b"302 Found", b"Location: /r2\r\n"),
        "/r2": fixed(b"302 Found", b"Location: /r3\r\n"), "/r3": fixed(b"200 OK"),
        "/206": fixed(b"206 Partial Content", b"Content-Range: bytes 0-2/9\r\n"),
        "/0": fixed(b"200 OK", body=b""), "/slow": slow, "/broken": broken, "/ws": switch})


def cut_after_1_kb(bed):
    s = bed.dial("127.0.0.1", bed.egress.port)
    s.sendall(get("read.test", "/slow"))
    got = 0
    while got < 1024:
        got += len(s.recv(1024))
    s.close()


def websocket(name):
    return (b"GET http://%s/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % (
                name, name))


def untrusting(bed):
    s = bed.connect("read.test:443")
    try:
        bed.wrap(s, "read.test", bed.direct_context)
    except ssl.SSLError:
        s.close()
        return
    raise Failed("a client that does not trust us got through")


def all_kinds(bed):
    """[(what to do, kind, verdict, reason, method, url, status)], one after the other."""
    read, http = "read.test", "http://read.test"
    good = ("read", "allowed", "allowed")

    def px(target, method="GET", fields=b"", name=read, head=False):
        return lambda: bed.px(b"%s http://%s%s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (
            method.encode(), name.encode(), target.encode(), name.encode(), fields), head=head)

    def kept():
        return bed.px(get(read, "/k1") + get(read, "/k2"), n=2)

    rows = [(px("/x"), *good, "GET", f"{http}/x", 200),
            (px("/x", "HEAD", head=True), *good, "HEAD", f"{http}/x", 200)]
    rows += [(px(f"/{p}"), *good, "GET", f"{http}/{p}", s) for p, s in (
        ("304", 304), ("404", 404), ("r1", 302), ("r2", 302), ("r3", 200), ("206", 206), ("0", 200))]
    rows += [
        (kept, *good, "GET", f"{http}/k1", 200), (None, *good, "GET", f"{http}/k2", 200),
        (lambda: bed.via(read, get(read, "/c", "https")), *good, "GET", f"https://{read}/c", 200),
        (lambda: bed.plain(read, get(read, "/p")), *good, "GET", f"{http}/p", 200),
        (lambda: bed.tls(read, get(read, "/t", "https")), *good, "GET", f"https://{read}/t", 200),
        (lambda: bed.plain(read, get(read, "/p6"), v6=True), *good, "GET", f"{http}/p6", 200),
        (lambda: bed.px(get(read, "/6"), v6=True), *good, "GET", f"{http}/6", 200),
        (lambda: cut_after_1_kb(bed), "read", "failed", "client_closed", "GET", f"{http}/slow", 200),
        (px("/broken"), "read", "failed", "upstream_aborted", "GET", f"{http}/broken", 200),
        (px("/x", "POST"), "write", "blocked", "method_not_read", "POST", f"{http}/x", 403),
        (px("/x", name="deny.test"), "read", "blocked", "host_not_listed", "GET",
         "http://deny.test/x", 403),
        (lambda: bed.px(websocket(b"read.test")), "write", "blocked", "read_with_upgrade", "GET",
         f"{http}/ws", 403),
        (lambda: bed.px(websocket(b"api.model.test"), n=1), "write", "allowed", "write_host", "GET",
         "http://api.model.test/ws", 101),
        (px("/w", "POST", name="api.model.test", fields=b"Content-Length: 0\r\n"), "write",
         "allowed", "write_host", "POST", "http://api.model.test/w", 200),
        (lambda: bed.connect("deny.test:443"), "tunnel", "blocked", "host_not_listed", "CONNECT",
         "deny.test:443", 403),
        (lambda: untrusting(bed), "tunnel", "failed", "client_tls", None, None, None),
        (px("/x", name="nx.wild.test"), "read", "failed", "resolve_failed", "GET",
         "http://nx.wild.test/x", 502),
        (lambda: bed.px(b"GET  HTTP/1.1\r\n\r\n"), "read", "blocked", "malformed", None, None, 400),
    ]
    return rows


def C145_one_line_for_each_request(bed):
    e = start(bed, "record", OPENSANDBOX_EGRESS_SANDBOX_ID="sbx-145")
    main = bed.need("main")
    routes(bed)
    runs = []
    for _ in range(2):
        for egress in (main, e):
            at_rest(egress)
        here = {main: [], e: []}
        for row in all_kinds(bed):
            # redirected connections come to main: there the redirect rules point
            to_main = row[5] in ("http://read.test/p", "https://read.test/t", "http://read.test/p6")
            bed.egress = main if to_main else e
            mark = len(bed.egress.lines())
            if row[0]:
                row[0]()
                more = 2 if row[5] and row[5].endswith("/k1") else 1
                new = since_one(bed.egress, mark, more)
            line = new.pop(0)
            want(tuple(line[k] for k in ("kind", "verdict", "reason", "method", "url", "status")),
                 row[1:], f"{row[4]} {row[5]}: line")
            check_fields(line, bed.egress is e)
            here[bed.egress].append((line["url"], line["reason"]))
        runs.append((here[main], here[e]))
    want(runs[0], runs[1], "order and count of both runs")
    say(f"{len(runs[0][0]) + len(runs[0][1])} kinds of requests, one line each, twice")
    bed.need("main")


def since_one(egress, mark, n):
    until(lambda: len(egress.lines()) >= mark + n, f"{n} lines")
    time.sleep(0.12)  # the next round of the sink: one too many would be in it
    want(len(egress.lines()) - mark, n, f"lines {egress.lines()[mark:]}")
    return egress.lines()[mark:]


def check_fields(line, named):
    want(bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["ts"])), True, "ts")
    want(line["sandbox"], "sbx-145" if named else None, "sandbox")
    want((line["v"], bool(re.fullmatch("[0-9a-f]{16}", line["id"]))), (1, True), "id")
    if line["verdict"] == "allowed":
        want(line["addr"] is not None and line["up"] > 0 and line["rule"] is not None, True,
             f"address, bytes, rule of {line}")
    want((line["binding"], line["revision"]), (None, None), "no keys in this version")
    if line["verdict"] == "blocked":
        want((line["addr"], line["up"]), (None, 0), f"nothing was sent: {line}")


# --- C147 ---

def C147_secrets_in_urls(bed):
    e = start(bed, "record", OPENSANDBOX_EGRESS_SANDBOX_ID="sbx-145")
    k = K.decode()
    names = ("token", "api_key", "sig", "password", "X-Amz-Signature", "X-Amz-Credential",
             "access_token", "client_secret", "%74oken", "TOKEN", "code", "key")
    rows = [(f"/p?{n}={k}&page=2", f"/p?{n}=<{len(k)}>&page=2") for n in names]
    rows += [(f"/p;jsessionid={k}?a=1", f"/p;jsessionid=<{len(k)}>?a=1"),
             ("/p?token=", "/p?token=<0>"), ("/p?page=ph-model-0001", "/p?page=ph-model-0001"),
             ("/p?api_key=ph-model-0001", "/p?api_key=<13>"),
             (f"/p?next=https://u:{k}@x.test/", "/p?next=https://x.test/"),
             ("/p?tokens=3&keyboard=us", "/p?tokens=3&keyboard=us")]
    mark, seen = len(e.lines()), bed.origins.mark()
    for target, _ in rows:
        want_ok(bed.px(get("read.test", target, fields=b"Referer: http://x/?t=%s\r\n" % K)), target)
    lines = since(e, mark, len(rows))
    for (target, shown), line in zip(rows, lines):
        want(line["url"], f"http://read.test{shown}", f"{target}: url")
    want_out(k, "".join(str(x) for x in lines), "lines")
    want_out(k, e.text(), "log")
    got = b"".join(d for _, d in bed.origins.since(seen))
    want(got.count(K), 2 * len(rows) - 4, "control: origins get what clients sent")
    mark = at_rest(e)
    bed.px(f"GET http://user:{k}@read.test/u HTTP/1.1\r\nHost: read.test\r\n\r\n".encode())
    want_out(k, str(since(e, mark, 1)), "userinfo")


def C147_redirects_are_not_recorded(bed):
    e = start(bed, "record", OPENSANDBOX_EGRESS_SANDBOX_ID="sbx-145")
    bed.origins.routes["/go"] = lambda p, _: p.send(ok(
        b"", b"Location: /x?token=%s\r\n" % K, b"302 Found")) or True
    mark = at_rest(e)
    talk = bed.px(get("read.test", "/go"))
    want_in(K.decode(), talk.finals[0].field("location"), "control: the client gets it")
    want_out(K.decode(), str(since(e, mark, 1)), "line")


# --- C149 ---

def C149_lines_tell_what_was_sent(bed):
    e = quick(bed)
    routes(bed)
    mark = at_rest(e)
    talk = bed.px(b"POST http://read.test/x HTTP/1.1\r\nHost: read.test\r\nContent-Length: 3\r\n\r\nabc")
    want_403(talk, "refused")
    want(bed.px(get("a.wild.test:9", "/x")).statuses, [502], "not reached")
    s = bed.dial("127.0.0.1", e.port)
    s.sendall(get("drop.wild.test", "/x"))  # the resolver keeps silent
    time.sleep(0.1)
    s.close()
    time.sleep(0.3)
    want_ok(bed.px(b"POST http://api.model.test/x HTTP/1.1\r\nHost: api.model.test\r\n"
                   b"Content-Length: 5\r\n\r\n12345"), "sent")
    until(lambda: len(e.lines()) >= mark + 3, "lines")
    lines = {x["url"]: x for x in e.lines()[mark:]}
    want([(lines[u]["up"], lines[u]["verdict"]) for u in (
        "http://read.test/x", "http://a.wild.test:9/x")], [(0, "blocked"), (0, "failed")],
         "nothing was sent")
    want_out("drop.wild.test", str([x for x in lines.values() if x["up"]]), "gone before the head")
    seen = b"".join(d for p, d in bed.origins.since(0) if b"12345" in d)
    want(lines["http://api.model.test/x"]["up"], len(seen[seen.rindex(b"POST"):]),
         "bytes that the origin got")


def C149_repeated_request_is_one_line(bed):
    """A kept connection that the origin closed meanwhile: sent again on a new one."""
    e = bed.need("main")
    state = {"n": 0}

    def once(peer, _):
        state["n"] += 1
        peer.send(ok(b"first"))
        peer.more()  # the second request on this connection gets no answer
        return False

    bed.origins.routes["/once"] = once
    mark, seen = len(e.lines()), bed.origins.mark()
    want_ok(bed.px(get("two.test", "/once")), "first")
    want_ok(bed.px(get("two.test", "/x?again")), "second")
    lines = since(e, mark, 2)
    want([(x["url"], x["verdict"]) for x in lines], [("http://two.test/once", "allowed"),
                                                     ("http://two.test/x?again", "allowed")], "lines")
    got = [d for _, d in bed.origins.since(seen)]
    want([d.count(b"GET /x?again") for d in got], [1, 1], "control: it was sent twice")
    want(lines[1]["up"], len(got[1]), "bytes of the one that counts")


# --- C182, C184 ---

def C182_refusals_are_fast_and_say_why(bed):
    bed.need("main")

    def refused(talk, *parts):
        want_403(talk, parts[0])
        for part in parts:
            want_in(part.encode(), talk.finals[0].body, "text")
        want(talk.finals[0].body.count(b"\n"), 1, "lines")
        want(talk.took < 0.3, True, f"{parts[0]}: {talk.took:.3f} s")

    def connected(authority, *parts):
        begin = time.monotonic()
        talk = bed.connect(authority)
        if not isinstance(talk, casebed.Talk):
            raise Failed(f"CONNECT {authority} was granted")
        talk.took = time.monotonic() - begin
        refused(talk, *parts)

    bed.rows([
        ("http", lambda: refused(bed.px(get("deny.test", "/")), "deny.test", "no rule allows")),
        ("redirected", lambda: refused(bed.plain("deny.test", get("deny.test", "/")), "deny.test")),
        ("https", lambda: refused(bed.tls("deny.test", get("deny.test", "/", "https")),
                                  "deny.test")),
        ("CONNECT", lambda: connected("deny.test:443", "deny.test:443", "no rule allows")),
        ("address", lambda: refused(bed.px(get("11.22.0.66", "/")), "11.22.0.66")),
        ("CONNECT address", lambda: connected("11.22.0.66:443", "11.22.0.66")),
        ("ssh", lambda: connected("read.test:22", "read.test:22", "port")),
        ("POST", lambda: refused(bed.via("read.test", b"POST /x HTTP/1.1\r\nHost: read.test\r\n"
                                         b"Content-Length: 1\r\n\r\nx"), "POST read.test:443",
                                 "read-only rule"))])
    want_ok(bed.px(get("read.test", "/x")), "control")


def C184_statuses_that_retry_loops_understand(bed):
    e = quick(bed)
    fields = (b"Retry-After: 7\r\nRequest-Id: r1\r\nX-RateLimit-Remaining: 0\r\n"
              b"anthropic-ratelimit-requests-reset: now\r\nX-Should-Retry: true\r\n")
    bed.origins.routes["/429"] = lambda p, h: p.body(h) is None or p.send(
        ok(b"{}", fields, b"429 Too Many Requests")) or True
    bed.origins.routes["/529"] = lambda p, h: p.send(ok(b"{}", fields, b"529 Overloaded")) or True
    for target, status, phrase in (("/429", 429, "Too Many Requests"), ("/529", 529, "Overloaded")):
        talk = bed.px(get("api.model.test", target))
        want((talk.statuses, talk.finals[0].phrase), ([status], phrase), target)
        for line in fields.decode().splitlines():
            name, value = line.split(": ")
            want(talk.finals[0].field(name), value, f"{target}: {name}")
        want(talk.finals[0].field("x-egress-reason"), None, "control: not our answer")
    mark = at_rest(e)
    bed.origins.routes["/silence"] = silence
    rows = (("policy", "deny.test", "/x", 403, "host_not_listed"),
            ("refused", "a.wild.test:9", "/x", 502, "connect_failed"),
            ("dropped", "203.0.113.9", "/x", (502, 504), None),
            ("late", "a.wild.test", "/silence", 504, "upstream_timeout"),
            ("large", "a.wild.test", "/" + "x" * 20000, 431, "head_too_large"))
    for what, name, target, status, reason in rows:
        talk = bed.px(get(name, target), wait=5)
        statuses = status if isinstance(status, tuple) else (status,)
        want(talk.statuses[0] in statuses, True, f"{what}: {talk}")
        if reason:
            want(talk.finals[0].field("x-egress-reason"), reason, f"{what}: reason")
    since(e, mark, len(rows))


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
