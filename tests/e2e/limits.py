#!/usr/bin/env python3
"""Resource attacks and dead peers against the real program. Bed: casebed.py; more cases of the same
kind, with load and figures: limits_load.py.

Small limits come from a YAML file here, so that the file is tested too. Each case of a bad origin
has a good one beside it that goes through. Figures are printed as `# ...`.
"""
import os
import select
import socket
import struct
import sys
import threading
import time

import casebed
from casebed import Failed, ok, until, want, want_403, want_in, want_ok
from limitbed import get, grew, lean, say, start, tiny

CHUNK = 1 << 16
FLAT = 8 << 20


# --- origins that are dead, slow or wrong ---

def never_answers(peer, _):
    while peer.sock.recv(CHUNK):
        pass


def answers(peer, _):
    peer.send(ok(b"good"))
    return True


def head_by_bytes(peer, _):
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Slow: " + b"a" * 60 + b"\r\n\r\ngood":
        peer.send(bytes([byte]))
        time.sleep(0.05)


def quick_bytes(peer, _):
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood":
        peer.send(bytes([byte]))
        time.sleep(0.001)
    return True


def half_head(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    time.sleep(4)


def reset(peer):
    """RST, whatever was sent before it has arrived."""
    sock = peer.sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def reset_in_head(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nConte")
    time.sleep(0.05)
    reset(peer)


def reset_at_once(peer, _):
    reset(peer)


def reset_in_body(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    time.sleep(0.1)
    reset(peer)


def close_in_body(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def close_in_chunks(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")


def close_at_once(_peer, _):
    return False


def close_in_head(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nConte")


def garbage(peer, _):
    peer.send(bytes(range(256)) * 4 + b"\r\n\r\n")
    never_answers(peer, _)


def never_ending_head(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\n")
    for _i in range(100000):
        peer.send(b"X-More: " + b"a" * 1000 + b"\r\n")


def one_long_field(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _i in range(1000):
        peer.send(b"a" * 1000)


def more_than_length(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\n"
              b"Content-Length: 4\r\n\r\nevil")
    never_answers(peer, _)


def informational(n):
    def route(peer, _):
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * n, ok(b"good"))
        return True
    return route


def half_body_then_silence(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    time.sleep(5)


def trickle(peer, _):
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    for _i in range(10):
        time.sleep(0.3)
        peer.send(b"x")
    return True


DEAD = {f.__name__: f for f in (
    never_answers, answers, head_by_bytes, quick_bytes, half_head, reset_in_head, reset_at_once,
    reset_in_body, close_in_body, close_in_chunks, close_at_once, close_in_head, garbage,
    never_ending_head, one_long_field, more_than_length, half_body_then_silence, trickle)}
DEAD["hints_32"], DEAD["hints_33"] = informational(32), informational(33)


def ask(bed, route, name="a.wild.test"):
    """The talk about a request to a dead origin, and its line."""
    bed.origins.routes["/" + route] = DEAD[route]
    mark = len(bed.egress.lines())
    talk = bed.px(get(name, "/" + route), wait=8)
    url = f"http://{name}/{route}"
    until(lambda: [x for x in bed.egress.lines()[mark:] if x["url"] == url], f"{route}: a line")
    lines = [x for x in bed.egress.lines()[mark:] if x["url"] == url]
    want(len(lines), 1, f"{route}: lines")
    return talk, lines[0]


def want_failure(bed, route, status, reason, seconds=(0, 1)):
    """The status from us, after the time of the limit, one line, nothing of the origin's text."""
    talk, line = ask(bed, route)
    want([r.status for r in talk.finals], [status], f"{route}: {talk}: status")
    r = talk.finals[0]
    want((r.field("x-egress-verdict"), r.field("x-egress-reason")), ("failed", reason),
         f"{route}: verdict and reason")
    want((line["verdict"], line["reason"], line["status"]), ("failed", reason, status),
         f"{route}: line")
    want(r.field("x-egress-decision"), line["id"], f"{route}: decision")
    if not seconds[0] <= talk.took <= seconds[1]:
        raise Failed(f"{route}: took {talk.took:.2f} s, not {seconds}")
    say(f"{route}: {status} {reason} after {talk.took * 1000:.0f} ms")


def want_good(bed, route, body=b"good"):
    talk, line = ask(bed, route)
    want_ok(talk, route)
    want(talk.finals[0].body, body, f"{route}: content")
    want((line["verdict"], line["down"]), ("allowed", len(body)), f"{route}: line")
    return talk


def want_cut(bed, route, seconds=(0, 1)):
    """The head and what came, then the end without a last byte that could pass for one."""
    talk, line = ask(bed, route)
    want(talk.finals, [], f"{route}: {talk}: complete answers")
    want_in(b"half", talk.raw, f"{route}: what came before")
    want(talk.error is None or "reset" in talk.error, True, f"{route}: {talk}: the end")
    want((line["verdict"], line["reason"]), ("failed", "upstream_aborted"), f"{route}: line")
    if not seconds[0] <= talk.took <= seconds[1]:
        raise Failed(f"{route}: took {talk.took:.2f} s, not {seconds}")


def limit_origin_slow_head(bed):
    """`first_byte` is for the whole head: bytes that trickle in do not move it."""
    tiny(bed)
    bed.rows([
        ("good", lambda: want_good(bed, "answers")),
        ("good by bytes", lambda: want_good(bed, "quick_bytes")),
        ("silent", lambda: want_failure(bed, "never_answers", 504, "upstream_timeout", (0.9, 2))),
        ("by bytes", lambda: want_failure(bed, "head_by_bytes", 504, "upstream_timeout", (0.9, 2))),
        ("half", lambda: want_failure(bed, "half_head", 504, "upstream_timeout", (0.9, 2)))])


def limit_origin_resets_and_closes(bed):
    tiny(bed)
    bed.rows([
        ("good", lambda: want_good(bed, "answers")),
        ("reset in head", lambda: want_failure(bed, "reset_in_head", 502, "upstream_closed")),
        ("reset at once", lambda: want_failure(bed, "reset_at_once", 502, "upstream_closed")),
        ("close in head", lambda: want_failure(bed, "close_in_head", 502, "upstream_closed")),
        ("close at once", lambda: want_failure(bed, "close_at_once", 502, "upstream_closed")),
        ("reset in body", lambda: want_cut(bed, "reset_in_body")),
        ("close in body", lambda: want_cut(bed, "close_in_body")),
        ("close in chunks", lambda: want_cut(bed, "close_in_chunks"))])


def limit_origin_garbage(bed):
    tiny(bed)
    before = bed.egress.memory()
    bed.rows([
        ("good", lambda: want_good(bed, "answers")),
        ("garbage", lambda: want_failure(bed, "garbage", 502, "upstream_malformed")),
        ("endless head", lambda: want_failure(bed, "never_ending_head", 502,
                                              "upstream_malformed", (0, 2))),
        ("endless field", lambda: want_failure(bed, "one_long_field", 502, "upstream_malformed",
                                               (0, 2))),
        ("good by bytes", lambda: want_good(bed, "quick_bytes"))])
    grew(bed.egress, before, FLAT, "endless heads")


def limit_origin_33_informational_heads(bed):
    tiny(bed)
    talk = want_good(bed, "hints_32")
    want(talk.statuses, [103] * 32 + [200], "32 are passed on")
    talk, line = ask(bed, "hints_33")
    want(talk.statuses, [103] * 32 + [502], "the 33rd ends it")
    want(line["reason"], "upstream_malformed", "line")


def limit_origin_sends_more_than_length(bed):
    """What is behind the answer is nobody's: the connection is not used again."""
    tiny(bed)
    mark = bed.origins.mark()
    want_good(bed, "more_than_length")
    want_good(bed, "more_than_length")
    want(len(bed.origins.since(mark)), 2, "connections for two answers")
    mark = bed.origins.mark()
    want_good(bed, "answers")
    want_good(bed, "answers")
    want(len(bed.origins.since(mark)), 1, "connections for two good answers")


def limit_origin_ends_tls_without_close_notify(bed):
    """Whoever cuts the wire must not pass for the end of an answer without length."""
    def route(notify):
        def answer(peer, _):
            peer.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
            peer.cut = not notify
            return False
        return answer

    bed.origins.routes.update({"/notify": route(True), "/torn": route(False)})
    tiny(bed)
    for path, whole in (("/notify", True), ("/torn", False)):
        talk = bed.via("a.wild.test", get("a.wild.test", path, "https"))
        want_in(b"half", talk.raw, f"{path}: content")
        want(talk.statuses, [200] if whole else [], f"{path}: {talk}: complete answers")


def limit_origin_silent_in_handshake(bed):
    """Port 80 waits for HTTP and says nothing to a ClientHello."""
    tiny(bed)
    talk = bed.px(b"GET https://a.wild.test:80/x HTTP/1.1\r\nHost: a.wild.test:80\r\n\r\n")
    want((talk.statuses, talk.finals[0].field("x-egress-reason")), ([504], "tls_timeout"),
         f"{talk}")
    want(0.9 <= talk.took <= 2, True, f"after {talk.took:.2f} s")
    want_good(bed, "answers")


def limit_kept_connections_keep_to_their_name(bed):
    """Two names at one address never share a connection."""
    tiny(bed)
    mark = bed.origins.mark()
    for _ in range(2):
        for name in ("p1.wild.test", "p2.wild.test"):
            want_ok(bed.px(get(name, "/x")), name)
    got = [d for _, d in bed.origins.since(mark)]
    want([(d.count(b"Host: p1."), d.count(b"Host: p2.")) for d in got], [(2, 0), (0, 2)],
         "requests on each connection")


def limit_origin_slow_body(bed):
    """`stream_idle` is for silence: a trickle passes, silence is cut."""
    tiny(bed)
    bed.rows([
        ("trickle", lambda: want_good(bed, "trickle", b"x" * 10)),
        ("silence", lambda: want_cut(bed, "half_body_then_silence", (0.9, 2)))])


# --- one side does not read ---

def flood(total, sent):
    piece = os.urandom(1 << 20)

    def route(peer, _):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent[0] < total:
            n = peer.sock.send(piece[:min(len(piece), total - sent[0])])
            sent[0] += n
        return True
    return route


def settled(count, what, seconds=0.3, most=10):
    """Waits until a counter has stood still for a moment."""
    end = time.monotonic() + most
    while True:
        before = count()
        time.sleep(seconds)
        if count() == before:
            return before
        if time.monotonic() > end:
            raise Failed(f"{what}: does not come to rest, {count()} bytes")


def drain(sock, n):
    got = 0
    while got < n:
        part = len(sock.recv(1 << 20))
        if part == 0:
            raise Failed(f"it ended after {got} of {n} bytes")
        got += part


def never_reads(bed, connect, scheme):
    total, sent = 2 << 30, [0]
    bed.origins.routes["/warm"] = flood(32 << 20, [0])
    bed.origins.routes["/flood"] = flood(total, sent)
    e = lean(bed)
    with connect() as s:  # what the first megabytes cost once
        s.sendall(get("a.wild.test", "/warm", scheme))
        drain(s, 32 << 20)
    with connect() as s:
        s.sendall(get("a.wild.test", "/flood", scheme))
        until(lambda: sent[0] > 0, "the origin begins")
        before = e.memory()
        held = settled(lambda: sent[0], "the origin")
        grew(e, before, FLAT, f"{scheme} client that does not read")
        say(f"{scheme}: the origin was stopped at {held / (1 << 20):.1f} of 2048 MiB")
        if held > 64 << 20:
            raise Failed(f"the origin got rid of {held} bytes")
        drain(s, held + (8 << 20))
        if sent[0] <= held:
            raise Failed("the origin does not go on when the client reads")
        grew(e, before, FLAT, f"{scheme} client that reads again")
    line = until_line(bed, f"{scheme}://a.wild.test/flood")
    want((line["verdict"], line["reason"]), ("failed", "client_closed"), "line")


def until_line(bed, url):
    until(lambda: [x for x in bed.egress.lines() if x["url"] == url], f"a line for {url}")
    return [x for x in bed.egress.lines() if x["url"] == url][-1]


def limit_client_never_reads(bed):
    never_reads(bed, lambda: bed.dial("127.0.0.1", bed.egress.port), "http")


def limit_tls_client_never_reads(bed):
    def connect():
        s = bed.connect("a.wild.test:443")
        return bed.wrap(s, "a.wild.test")
    never_reads(bed, connect, "https")


def limit_origin_never_reads(bed):
    """An upload that the origin does not take stops the client, not our memory."""
    gate, got = threading.Event(), [0]

    def route(peer, _):
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        gate.wait(20)
        size = 256 << 20
        got[0] = len(peer.buf)
        while got[0] < size:
            n = len(peer.sock.recv(1 << 20))
            if n == 0:
                return False
            got[0] += n
        peer.send(ok(b"%d" % got[0]))
        return True

    bed.origins.routes["/upload"] = route
    e = lean(bed)
    s = bed.dial("127.0.0.1", e.port)
    s.sendall(b"POST http://api.model.test/upload HTTP/1.1\r\nHost: api.model.test\r\n"
              b"Content-Length: %d\r\n\r\n" % (256 << 20))
    piece, sent = bytes(1 << 20), 0
    time.sleep(0.1)
    before = e.memory()
    s.setblocking(False)
    while select.select([], [s], [], 0.5)[1]:
        sent += s.send(piece[:(256 << 20) - sent])
    grew(e, before, FLAT, "origin that does not read")
    say(f"the client was stopped at {sent / (1 << 20):.1f} of 256 MiB")
    if sent >= 64 << 20:
        raise Failed(f"we took {sent} bytes that nobody reads")
    gate.set()
    s.settimeout(20)
    while sent < 256 << 20:
        sent += s.send(piece[:(256 << 20) - sent])
    talk = casebed.Talk()
    casebed.read_talk(s, talk, 1, 20)
    s.close()
    want_ok(talk, "upload")
    want(talk.finals[0].body, b"%d" % (256 << 20), "what the origin got")
    grew(e, before, FLAT, "origin that reads again")


def limit_tunnel_client_never_reads(bed):
    """The same in a tunnel; a write host's port 22, and bytes that are neither HTTP nor TLS."""
    total, sent = 2 << 30, [0]
    bed.origins.routes["/tunnel"] = flood(total, sent)
    bed.origins.routes["/warm"] = flood(32 << 20, [0])
    e = lean(bed)
    for path, what in (("/warm", None), ("/tunnel", "client of a tunnel that does not read")):
        with bed.connect("api.model.test:22") as s:
            s.sendall(b"x %s HTTP/1.1\r\n\r\n" % path.encode())
            if not what:
                drain(s, 32 << 20)
                continue
            until(lambda: sent[0] > 0, "the origin begins")
            before = e.memory()
            held = settled(lambda: sent[0], "the origin")
            grew(e, before, FLAT, what)
            want(held < 64 << 20, True, f"the origin got rid of {held} bytes")
            drain(s, held + (8 << 20))
            want(sent[0] > held, True, "it goes on")


def limit_tunnel_half_close(bed):
    """An end in one direction passes on, the other direction stays open."""
    def route(peer, _):
        while peer.more():
            pass
        peer.send(b"after your end: %d" % len(peer.buf))
        return False

    bed.origins.routes["/half"] = route
    bed.need("main")
    mark = len(bed.egress.lines())
    with bed.connect("api.model.test:22") as s:
        s.sendall(b"x /half HTTP/1.1\r\n\r\n12345")
        s.shutdown(socket.SHUT_WR)
        s.settimeout(5)
        got = b""
        while part := s.recv(4096):
            got += part
    want(got, b"after your end: 5", "what came")
    until(lambda: [x for x in bed.egress.lines()[mark:] if x["kind"] == "tunnel"], "a line")
    line = [x for x in bed.egress.lines()[mark:] if x["kind"] == "tunnel"][-1]
    want((line["verdict"], line["up"], line["down"]), ("allowed", 25, 17), f"{line}")


# --- resolvers ---

def limit_resolver_answers_lies(bed):
    """Answers that point inside are not connected to, whatever listens there."""
    tiny(bed)
    mark = bed.origins.mark()

    def row(name):
        talk = bed.px(get(name, "/x"))
        want_403(talk, name)
        want(talk.finals[0].field("x-egress-reason"), "address_refused", f"{name}: reason")
        if isinstance(s := bed.connect(f"{name}:443"), casebed.Talk):
            raise Failed(f"{name}: CONNECT is decided by name: {s}")
        s.close()

    bed.rows([(n, lambda n=n: row(n)) for n in ("lie-loop.wild.test", "lie-meta.wild.test",
                                                "lie-private.wild.test", "lie-all.wild.test")])
    want(bed.origins.since(mark), [], "what reached an origin")
    want_good(bed, "answers")
    talk = bed.px(get("lie-half.wild.test", "/answers"))
    want_ok(talk, "one good address among the lies")
    want({p.addr for p, _ in bed.origins.since(mark)}, {"11.22.0.41"}, "where we went")


def limit_resolver_dead(bed):
    tiny(bed)
    rows = [("drop.wild.test", 504, "resolve_timeout"), ("nx.wild.test", 502, "resolve_failed"),
            ("servfail.wild.test", 502, "resolve_failed")]
    for name, status, reason in rows:
        talk = bed.px(get(name, "/x"), wait=8)
        want((talk.statuses, talk.finals[0].field("x-egress-reason")), ([status], reason),
             f"{name}: {talk}")
        say(f"{name}: {status} {reason} after {talk.took * 1000:.0f} ms")
    want_good(bed, "answers")
    start(bed, "deaf", OPENSANDBOX_EGRESS_DNS_UPSTREAM="11.22.0.53:5399",
          OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT="1s")
    talk = bed.px(get("a.wild.test", "/x"), wait=8)
    want(talk.statuses[0] in (502, 504), True, f"nobody listens: {talk}")
    want(talk.finals[0].field("x-egress-reason") in ("resolve_failed", "resolve_timeout"), True,
         f"nobody listens: {talk}")
    say(f"no resolver: {talk.statuses[0]} after {talk.took * 1000:.0f} ms")


def limit_client_slow_head(bed):
    """408 within `head_timeout`, which is for the whole head; silence is closed."""
    tiny(bed)

    def by_bytes():
        s = bed.dial("127.0.0.1", bed.egress.port)
        begin = time.monotonic()
        try:
            for byte in b"GET http://a.wild.test/x HTTP/1.1\r\nHost: a.wild.test\r\nX: " + b"a" * 200:
                s.sendall(bytes([byte]))
                if select.select([s], [], [], 0.03)[0]:
                    break
        except OSError:
            pass
        talk = casebed.Talk()
        casebed.read_talk(s, talk, 1, 3)
        s.close()
        want(talk.statuses, [408], f"by bytes: {talk}")
        took = time.monotonic() - begin
        want(0.9 <= took <= 2, True, f"after {took:.2f} s")

    def silent():
        s = bed.dial("127.0.0.1", bed.egress.port)
        begin = time.monotonic()
        want(s.recv(1), b"", "silent: what came")
        took = time.monotonic() - begin
        want(0.9 <= took <= 2, True, f"silent: after {took:.2f} s")
        s.close()

    bed.rows([("by bytes", by_bytes), ("silent", silent), ("good", lambda: want_good(bed, "answers"))])


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), r"limit_"))
