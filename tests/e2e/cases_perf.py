#!/usr/bin/env python3
"""Failures of peers about time and load: streams, silence, slow clients, many connections.

| case | covered | left out, with the reason |
| --- | --- | --- |
| C162 | every content type, framings, redirected and explicit, as a lock-step: the origin writes an
         event only after the client has read the one before, so a buffer anywhere stops it. Median
         of the delay below 5 ms | h2, redaction: no such parts |
| C164 | with limits of seconds: silence before the answer and inside it, SSE with comments, an idle
         tunnel, a slow upload, each longer than the head's limit and shorter than its own, and the
         cut behind that; keepalive on both legs | TCP_USER_TIMEOUT: a dead peer needs a network
         that loses packets |
| C166 | 300 clients of each kind (100 that never read), head's limit 2 s; an honest client besides |
         2 000 each: run time; 20 KiB a connection: not under ASan, where the row is not counted;
         API and DNS over TCP: no such listeners |
| C168 | 1 000 requests on 200 connections at once, threads, backlog, connections to the origin |
         npm, pip, cargo: tests/e2e/clients.sh |
| C170 | 300 requests with a pause between head and content, explicit and redirected, against
         direct; head and content in one write | tcpdump: the clock shows 40 ms as well |
"""
import os
import re
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import casebed  # noqa: E402
from casebed import EGRESS, Failed, Talk, ok, until, want, want_ok  # noqa: E402

READ, API = "read.test", "api.model.test"
READ_IP, API_IP, PRIVATE = "11.22.0.10", "11.22.0.20", "10.77.0.2"
SHORT = {"EGRESS_HEAD_TIMEOUT": "1s", "EGRESS_HANDSHAKE_TIMEOUT": "1s", "EGRESS_CLIENT_IDLE": "1s",
         "EGRESS_STREAM_IDLE": "3s", "EGRESS_FIRST_BYTE": "3s"}


def request(method, host, target, fields=b""):
    return b"%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, target.encode(), host.encode(), fields)


# --- streams ---

EVENTS = 40
STREAMS = {  # path: head, how one event is written, the end
    "/sse": (b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n", True, b"0\r\n\r\n"),
    "/json": (b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n", True,
              b"0\r\n\r\n"),
    "/ndjson": (b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n", True,
                b"0\r\n\r\n"),
    "/gzip": (b"Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
              b"Transfer-Encoding: chunked\r\n", True, b"0\r\n\r\n"),
    "/length": (b"Content-Type: image/png\r\nContent-Length: %d\r\n" % (EVENTS * 40), False, b""),
    "/close": (b"Content-Type: text/plain\r\n", False, None),
    "/none": (b"Transfer-Encoding: chunked\r\n", True, b"0\r\n\r\n"),
}


def event(i):
    return b"data: %04d %s\n\n" % (i, b"x" * 27)


class Steps:
    """Lock-step between origin and client: who writes waits until what it wrote was read."""

    def __init__(self):
        self.read, self.sent, self.delays = threading.Semaphore(0), 0.0, []


def stream(path, steps):
    head, chunks, end = STREAMS[path]

    def serve(peer, asked):
        version = b"1.0" if path == "/close" else b"1.1"
        peer.send(b"HTTP/" + version + b" 200 OK\r\n" + head + b"\r\n")
        for i in range(EVENTS):
            if not steps.read.acquire(timeout=5):
                return False
            steps.sent = time.monotonic()
            peer.send(b"%x\r\n%s\r\n" % (len(event(i)), event(i)) if chunks else event(i))
        if end:
            peer.send(end)
        return end is not None
    return serve


def read_events(s, message, steps):
    data = b""
    with s:
        s.settimeout(5)
        s.sendall(message)
        while b"\r\n\r\n" not in data:  # the head must come before the first event is written
            data += s.recv(4096)
        for i in range(EVENTS):
            steps.read.release()
            while event(i) not in data:
                part = s.recv(4096)
                if not part:
                    raise Failed(f"closed at event {i}")
                data += part
            steps.delays.append(time.monotonic() - steps.sent)


def C162_streams_are_not_buffered(bed):
    ways = {"tls": lambda: bed.wrap(bed.dial(API_IP, 443), API), "plain": lambda: bed.dial(API_IP, 80),
            "via": lambda: bed.wrap(bed.connect(API + ":443"), API),
            "direct": lambda: bed.dial(API_IP, 80, direct=True)}
    medians = {}
    for path in STREAMS:
        for how, dial in ways.items():
            steps = Steps()
            bed.origins.routes[path] = stream(path, steps)
            try:
                read_events(dial(), request(b"POST", API, path), steps)
            except TimeoutError:
                raise Failed(f"{path} {how}: held back after {len(steps.delays)} events") from None
            medians.setdefault(how, []).append(statistics.median(steps.delays))
            bed.rows_run += 1
    for how in ("tls", "plain", "via"):
        slow = max(medians[how]) - max(medians["direct"])
        want(slow < 0.005, True, f"{how}: median of the delay is {slow * 1000:.1f} ms over direct")


# --- silence ---

def quiet_origin(peer, head):
    """/quiet/BEFORE/INSIDE: seconds before the head, and between two halves of the content."""
    _, _, before, inside = head.split(b" ")[1].decode().split("/")
    peer.body(head)
    time.sleep(float(before))
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
    time.sleep(float(inside))
    peer.send(b"cd")
    return True


def C164_silence_within_the_limits_is_not_cut(bed):
    bed.need("quiet", **SHORT)

    def ask(before, inside, method=b"POST", host=API):
        path = f"/quiet/{before}/{inside}"
        bed.origins.routes[path] = quiet_origin
        content = b"Content-Length: 0\r\n" if method == b"POST" else b""
        return bed.px(request(method, host, f"http://{host}{path}", content), wait=9)

    def whole(before, inside, **k):
        t = ask(before, inside, **k)
        want_ok(t, f"{before} {inside}")
        want(t.finals[0].body, b"abcd", f"{before} {inside}")

    def comments():
        def sse(peer, head):
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(4):
                time.sleep(1.5)
                peer.send(b":\n\n")
            return False
        bed.origins.routes["/comments"] = sse
        t = bed.px(request(b"GET", READ, f"http://{READ}/comments"), n=None, wait=9)
        want(t.raw.count(b":\n\n"), 4, f"comments {t}")

    def tunnel():
        def answer(peer, head):
            peer.send(b"still here")
            return False
        bed.origins.routes["/tunnel"] = answer
        s = bed.connect(f"{PRIVATE}:22")
        s.sendall(b"SSH-2.0-x\r\n")
        time.sleep(2.2)
        t = bed.talk(s, b"\r\n" + request(b"GET", "x", "/tunnel"), n=None, wait=3)
        want([t.raw.endswith(b"still here"), t.eof], [True, True], f"tunnel {t}")

    def upload():
        s = bed.dial("127.0.0.1", bed.egress.port)
        pieces = [request(b"POST", API, f"http://{API}/slow", b"Content-Length: 5\r\n")]
        t = bed.talk(s, pieces + [b"x"] * 5, gap=0.9, wait=9)
        want_ok(t, "slow upload")

    def cut(before, inside, status):
        t = ask(before, inside)
        want([t.statuses[:1] or [r for r in (200,) if b" 200 " in t.raw], t.raw.endswith(b"abcd")],
             [[status], False], f"past the limit: {t}")
        want(2.5 < t.took < 4.5, True, f"past the limit: {t.took:.1f} s")
    bed.rows([("answer", lambda: whole(2.2, 0)), ("content", lambda: whole(0, 2.2)),
              ("both, read", lambda: whole(1.8, 1.8, method=b"GET", host=READ)),
              ("comments", comments), ("tunnel", tunnel), ("upload", upload),
              ("answer, cut", lambda: cut(5, 0, 504)), ("content, cut", lambda: cut(0, 5, 200))])


def C164_keepalive_on_both_legs(bed):
    held = threading.Event()

    def hold(peer, head):
        held.wait(5)
        peer.send(ok())
        return True
    bed.origins.routes["/hold"] = hold
    with bed.dial("127.0.0.1", bed.egress.port) as s:
        s.sendall(request(b"GET", READ, f"http://{READ}/hold"))
        time.sleep(0.3)
        text = subprocess.run(["ss", "-tnopH", "state", "established"], capture_output=True, text=True,
                              check=True).stdout
        held.set()
        read = Talk()
        casebed.read_talk(s, read, 1, 3)
    mine = [x for x in text.splitlines() if f"pid={bed.egress.worker}," in x]
    client = [x for x in mine if f":{s_port(s)} " in x or str(bed.egress.port) in x.split()[2]]
    origin = [x for x in mine if ":80 " in x]
    want([len(client) > 0, len(origin) > 0], [True, True], f"both legs are there: {text}")
    want([x for x in client[:1] + origin[:1] if "keepalive" not in x], [], "legs without keepalive")
    bed.rows_run += 2


def s_port(s):
    try:
        return s.getsockname()[1]
    except OSError:
        return 0


# --- slow clients ---

def honest(bed, stop, took, port):
    while not stop.is_set():
        start = time.monotonic()
        t = bed.talk(bed.dial("127.0.0.1", port), request(b"GET", READ, f"http://{READ}/h"), wait=5)
        took.append(time.monotonic() - start if t.statuses == [200] else 9)
        time.sleep(0.01)


def all_closed(sockets, seconds):
    """How many the other side has not closed in that time."""
    end, left = time.monotonic() + seconds, list(sockets)
    while left and time.monotonic() < end:
        for s in list(left):
            s.setblocking(False)
            try:
                while s.recv(65536):
                    pass
                left.remove(s)
            except BlockingIOError:
                pass
            except OSError:
                left.remove(s)
        time.sleep(0.05)
    return len(left)


def slow(bed, port, count, first, more, every):
    """count connections that send `first`, then one byte of `more` every so often; all sockets."""
    sockets = [bed.dial("127.0.0.1", port) for _ in range(count)]
    for s in sockets:
        s.sendall(first)

    def drip():
        for i in range(len(more)):
            time.sleep(every)
            for s in sockets:
                try:
                    s.send(more[i:i + 1])
                except OSError:
                    pass
    if more:
        threading.Thread(target=drip, daemon=True).start()
    return sockets


def C166_slow_clients_do_not_keep_others_waiting(bed):
    e = bed.need("slow", **{**SHORT, "EGRESS_HEAD_TIMEOUT": "2s", "EGRESS_HANDSHAKE_TIMEOUT": "2s"})
    stop, took = threading.Event(), []
    thread = threading.Thread(target=honest, args=(bed, stop, took, e.port), daemon=True)
    thread.start()
    until(lambda: len(took) > 5, "the honest client is served")
    def size(path_head):
        path_head.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
    def big(peer, head):
        size(peer.sock)
        try:
            while True:
                peer.send(b"x" * 65536)
        except OSError:
            return False
    bed.origins.routes["/big"] = big
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    kinds = {
        "head": (300, b"GET http://read.test/ HT", b"TP/1.1\r\nHost: x", 0.4),
        "nothing": (300, b"", b"", 0),
        "hello": (300, b"CONNECT read.test:443 HTTP/1.1\r\nHost: read.test:443\r\n\r\n" + hello,
                  b"\x00" * 12, 0.4),
        "upload": (100, request(b"POST", API, f"http://{API}/up", b"Content-Length: 9\r\n") + b"x",
                   b"", 0),
        "no reading": (100, request(b"GET", READ, f"http://{READ}/big"), b"", 0)}
    start, groups = time.monotonic(), {}
    before = e.memory()
    for kind, (n, first, more, every) in kinds.items():
        groups[kind] = slow(bed, e.port, n, first, more, every)
    idle = (e.memory() - before) / sum(map(len, groups.values()))
    for kind in ("head", "nothing", "hello", "upload"):
        # the sum for the head, not from byte to byte: 2 s, and up to a half for the sweep
        want(all_closed(groups[kind], start + 7 - time.monotonic()), 0, f"{kind}: still open")
    stop.set()
    thread.join()
    for s in groups["no reading"]:
        s.close()
    took.sort()
    p99 = took[int(len(took) * 0.99) - 1]
    want([len(took) > 100, p99 < 0.2], [True, True], f"honest: {len(took)}, p99 {p99 * 1000:.0f} ms")
    if b"__asan_init" not in open(EGRESS, "rb").read():
        want(idle < 20 << 10, True, f"{idle / 1024:.1f} KiB a connection")
    bed.rows_run += len(kinds)


def C166_head_limit_is_a_total(bed):
    e = bed.need("slow", **{**SHORT, "EGRESS_HEAD_TIMEOUT": "2s", "EGRESS_HANDSHAKE_TIMEOUT": "2s"})
    pieces = [bytes([b]) for b in request(b"GET", READ, f"http://{READ}/", b"X: y\r\n")]
    start = time.monotonic()
    t = Talk()
    with bed.dial("127.0.0.1", e.port) as s:
        for p in pieces:
            time.sleep(0.2)
            try:
                s.sendall(p)
            except OSError:
                break
            s.setblocking(False)
            try:
                t.raw += s.recv(4096)
                break
            except BlockingIOError:
                s.setblocking(True)
        s.setblocking(True)
        casebed.read_talk(s, t, None, 2)
    want([t.statuses, 1.7 < time.monotonic() - start < 3.5], [[408], True], f"{t}")


# --- many connections ---

def C168_many_connections_at_once(bed):
    threads = len(os.listdir(f"/proc/{bed.egress.worker}/task"))
    text = subprocess.run(["ss", "-ltnH", f"sport = :{bed.egress.port}"], capture_output=True,
                          text=True, check=True).stdout
    want(all(int(x.split()[2]) >= 1024 for x in text.splitlines()) and text != "", True,
         f"backlog: {text}")
    mark, connects, lock = bed.origins.mark(), [], threading.Lock()
    sockets = []
    for _ in range(200):
        start = time.monotonic()
        sockets.append(bed.dial("127.0.0.1", bed.egress.port))
        connects.append(time.monotonic() - start)
    failed = []

    def client(group):
        for s in group:
            for i in range(5):
                t = Talk()
                s.sendall(request(b"GET", READ, f"http://{READ}/pkg/{i}"))
                casebed.read_talk(s, t, 1, 5)
                if t.statuses != [200]:
                    with lock:
                        failed.append(t)
            s.close()
    groups = [threading.Thread(target=client, args=(sockets[i::20],)) for i in range(20)]
    for g in groups:
        g.start()
    want(len(os.listdir(f"/proc/{bed.egress.worker}/task")), threads, "threads under load")
    for g in groups:
        g.join()
    want(failed[:3], [], f"{len(failed)} of 1000 failed")
    seen = bed.origins.since(mark)
    want(sum(d.count(b"GET /pkg/") for _, d in seen), 1000, "requests that arrived")
    want(len(seen) <= 300, True, f"{len(seen)} connections to the origin")
    connects.sort()
    want(connects[int(len(connects) * 0.99)] < 0.1, True, "p99 of connecting")
    bed.rows_run += 5


# --- small writes ---

def timed(s, head, content, n):
    took = []
    with s:
        s.settimeout(5)
        for _ in range(n):
            start, data = time.monotonic(), b""
            s.sendall(head)
            s.sendall(content)
            while b"\r\n\r\nok" not in data:
                data += s.recv(4096)
            took.append(time.monotonic() - start)
    took.sort()
    return took


def C170_small_writes_do_not_wait(bed):
    def swallow(peer, head):
        peer.body(head)
        peer.send(ok(b"ok"))
        return True
    bed.origins.routes["/mcp"] = swallow
    content, n = b"x" * 200, 300
    fields = b"Content-Length: 200\r\n"
    host = f"{PRIVATE}:8081"
    direct = timed(bed.dial(PRIVATE, 8081), request(b"POST", host, "/mcp", fields), content, n)
    px = timed(bed.dial("127.0.0.1", bed.egress.port),
               request(b"POST", host, f"http://{host}/mcp", fields), content, n)
    plain = timed(bed.dial(PRIVATE, 80), request(b"POST", PRIVATE, "/mcp", fields), content, n)
    tls = timed(bed.wrap(bed.dial(API_IP, 443), API), request(b"POST", API, "/mcp", fields), content,
                n)
    for what, took, limit in (("explicit", px, 0.003), ("redirected", plain, 0.003),
                              ("TLS", tls, 0.004)):
        over = took[n // 2] - direct[n // 2]
        want(over < limit, True, f"{what}: median {over * 1000:.2f} ms over direct")
        want(took[int(n * 0.9)] < 0.03, True, f"{what}: p90 {took[int(n * 0.9)] * 1000:.1f} ms")
    bed.rows_run += 3


def C170_head_and_content_leave_in_one_write(bed):
    def row(send, target, host, what):
        mark = bed.origins.mark()
        want_ok(send(request(b"POST", host, target, b"Content-Length: 200\r\n") + b"x" * 200), what)
        with bed.origins.lock:
            parts = [d for _, d in bed.origins.log[mark:] if d]
        want(len(parts), 1, f"{what}: pieces {[len(p) for p in parts]}")
        want(re.match(rb"POST /one HTTP/1.1\r\n(?s:.*)x{200}$", parts[0]) is not None, True, what)
    for _ in range(5):
        row(bed.px, f"http://{PRIVATE}:8081/one", f"{PRIVATE}:8081", "explicit")
        row(lambda m: bed.plain(API, m), "/one", API, "redirected")
        row(lambda m: bed.tls(API, m), "/one", API, "TLS")
        bed.rows_run += 3


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
