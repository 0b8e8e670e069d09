#!/usr/bin/env python3
"""Failures of peers about the read-only rule: methods, overrides, git, uploads, WebSocket.

| case | covered | left out, with the reason |
| --- | --- | --- |
| C100 | both first frames in one segment with their head, every cut of the answer, 64 KiB of frames,
         byte counts | frames are not searched: no vault |
| C102 | all spellings on 80, 443, explicit, CONNECT and CONNECT to 80; write host and private
         address with full duplex; the trail. The explicit path comes by absolute-form | - |
| C106 | (1) (2) (4) to (9) and HTTP/1.0 on each, IPv6 for each | (3): no HTTP/2 |
| C108 | all spellings, on four paths; a `_method` in the query is refused (design 4) | h2 |
| C110 | clone, push, ls-remote refused and recorded; through a private gateway they work, with a
         pack of 8 MB | pack of 200 MB: run time; one connection streams it all the same |
| C112 | curl -T of 200 MB with and without Expect, chunked, explicit, CONNECT and redirected; a
         stream from Python | h2; Node, Java: tests/e2e/clients.sh has real clients |
| C114 | all addresses with a rule that allows each, by real routes where lo can carry them | - |
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import casebed  # noqa: E402
from casebed import (Failed, NAMES, Skip, Talk, ok, until, want, want_403, want_in,  # noqa: E402
                     want_ok)

READ, API = "read.test", "api.model.test"
READ_IP, API_IP, PRIVATE = "11.22.0.10", "11.22.0.20", "10.77.0.2"


def message(method, host, target="/w", fields=b"", body=b"", version=b"1.1"):
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return b"%s %s HTTP/%s\r\nHost: %s\r\n%s%s\r\n%s" % (
        method, target.encode(), version, host.encode(), fields, length, body)


def paths(bed, name, v6):
    """{path: function(method, body, version, **how)} of all that lead to a name."""
    def px(scheme, port=""):
        return lambda m, **k: bed.px(message(m, name + port, f"{scheme}://{name}{port}/w", **parts(k)),
                                     v6=v6, **k)

    def parts(k):
        return {n: k.pop(n) for n in ("body", "version", "fields") if n in k}

    def over(f, host=name):
        return lambda m, **k: f(m, host, parts(k), k)
    return {
        "plain": over(lambda m, h, p, k: bed.plain(name, message(m, h, **p), v6=v6, **k)),
        "tls": over(lambda m, h, p, k: bed.tls(name, message(m, h, **p), v6=v6, **k)),
        "px-http": px("http"), "px-https": px("https"), "px-8080": px("http", ":8080"),
        "via": over(lambda m, h, p, k: bed.via(name, message(m, h, **p), v6=v6, **k)),
        "tunnel80": over(lambda m, h, p, k: bed.tunnel80(name, message(m, h, **p), v6=v6, **k)),
        "8080": over(lambda m, h, p, k: bed.plain(name, message(m, h, **p), v6=v6, port=8080, **k),
                     name + ":8080"),
    }


def every_path(bed):
    return [(f"{how} v{6 if v6 else 4} {version.decode()}", send, version)
            for v6 in (False, True) for how, send in paths(bed, READ, v6).items()
            for version in (b"1.1", b"1.0")]


def C106_writes_are_refused_on_every_path(bed):
    def row(send, method, version, what):
        t = send(method, body=b"x=1", version=version)
        want_403(t, what)
        r = t.finals[-1]
        bodies.add(re.sub(rb"read\.test:\d+", b"H", r.body.replace(method + b" ", b"M ")))
        names.add(tuple(n for n, _ in r.fields if n != b"connection"))
    bodies, names = set(), set()
    methods = (b"POST", b"PUT", b"PATCH", b"DELETE")
    bed.nothing([(f"{what} {m}", lambda s=s, m=m, v=v, w=what: row(s, m, v, w))
                 for what, s, v in every_path(bed) for m in methods],
                [(message(m, READ, body=b"x=1"), ip, port) for m in methods[:2]
                 for ip, port in ((READ_IP, 80), (READ_IP, 8080), (NAMES[READ][1], 80))])
    want([len(bodies), len(names)], [1, 1], f"same text and fields on each path: {bodies} {names}")


def C106_reads_pass_on_every_path(bed):
    mark = bed.origins.mark()
    rows = [(f"{what} {m}", lambda s=s, m=m, v=v, w=what: want_ok(
        s(m, version=v, head=m == b"HEAD"), w))
            for what, s, v in every_path(bed) for m in (b"GET", b"HEAD", b"OPTIONS")]
    bed.origins.routes["/w"] = lambda p, h: p.send(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if h[:4] == b"HEAD" else b"ok")) or True
    bed.rows(rows)
    seen = b"".join(d for _, d in bed.origins.since(mark))
    want(len(re.findall(rb"(GET|HEAD|OPTIONS) /w HTTP/1.1\r\n", seen)), len(rows), "requests")
    del bed.origins.routes["/w"]


def C106_reads_with_content_are_refused_on_every_path(bed):
    rows = [(f"{what} {m}", lambda s=s, m=m, v=v, w=what: want_403(
        s(m, version=v, body=b"x=1", head=m == b"HEAD"), w))
            for what, s, v in every_path(bed) for m in (b"GET", b"HEAD", b"OPTIONS")]
    rows += [("chunked", lambda: want_403(bed.plain(READ, message(
        b"GET", READ, fields=b"Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n"), "chunked"))]
    rows += [("trailer", lambda: want_403(bed.plain(READ, message(
        b"GET", READ, fields=b"Trailer: X-A\r\n")), "trailer"))]
    rows += [(f"{m}", lambda m=m: want_403(bed.px(message(m, READ, "http://read.test/")), m))
             for m in (b"TRACE", b"TRACK", b"QUERY", b"get", b"PROPFIND", b"MKCOL")]
    bed.nothing(rows, [(message(b"GET", READ, body=b"x=1"),), (message(b"TRACE", READ),)])


def C106_trace_is_forwarded_to_nobody(bed):
    bed.nothing([(f"{m} {how}", lambda m=m, s=s: want_403(s(m), m)) for m in (b"TRACE", b"TRACK")
                 for how, s in (("tls", lambda m: bed.tls(API, message(m, API))),
                                ("px", lambda m: bed.px(message(m, API, f"http://{API}/w"))),
                                ("private", lambda m: bed.px(message(
                                    m, PRIVATE, f"http://{PRIVATE}/w"))))],
                [(message(b"TRACE", API), API_IP)])


OVERRIDES = [b"X-HTTP-Method-Override: DELETE", b"X-HTTP-Method: DELETE",
             b"X-Method-Override: DELETE", b"_method: DELETE", b"X_HTTP_METHOD_OVERRIDE: DELETE",
             b"x-http-method-override: delete", b"X-HTTP-Method-Override: get",
             b"X-HTTP-Method-Override: POST, GET", b"X-Original-Method: POST", b"X-Original-URL: /x",
             b"X-Rewrite-URL: /x", b"X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: DELETE"]


def C108_overrides_are_refused_on_read_hosts(bed):
    def target(how, path):
        return f"http://{READ}{path}" if how == "px" else path
    sends = [("plain", lambda m: bed.plain(READ, m)), ("tls", lambda m: bed.tls(READ, m)),
             ("px", bed.px), ("via", lambda m: bed.via(READ, m))]
    rows = [(f"{how} {o}", lambda s=s, o=o, how=how: want_403(s(message(
        b"GET", READ, target(how, "/item/1"), o + b"\r\n")), o)) for o in OVERRIDES for how, s in sends]
    rows += [(f"{how} {q}", lambda s=s, q=q, how=how: want_403(s(message(
        b"GET", READ, target(how, "/item/1" + q))), q))
             for q in ("?_method=DELETE", "?a=1&%5fmethod=PUT", "?a;_METHOD=x") for how, s in sends]
    bed.nothing(rows, [(message(b"GET", READ, "/item/1", o + b"\r\n"),) for o in OVERRIDES[:3]])


def C108_write_hosts_are_untouched(bed):
    mark = bed.origins.mark()
    bed.rows([(repr(o), lambda o=o: want_ok(bed.tls(API, message(
        b"GET", API, "/i?_method=DELETE", o + b"\r\n")), o)) for o in OVERRIDES])
    seen = b"".join(d for _, d in bed.origins.since(mark))
    for o in OVERRIDES:
        want_in(b"\r\n" + o + b"\r\n", seen, "sent on as it is")
    want(seen.count(b"GET /i?_method=DELETE HTTP/1.1"), len(OVERRIDES), "requests")


# --- git ---

def git_backend(peer, head):
    """git http-backend below /git of any host, as CGI; the folder hangs on the recorders."""
    method, target = head.split(b" ")[:2]
    path, _, query = target.decode().partition("?")
    _, fields, _ = casebed.split_head(head)
    content = peer.body(head)

    def field(name):
        return (casebed.values(fields, name) or [b""])[0].decode()
    env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": peer.origins.git, "GIT_HTTP_EXPORT_ALL": "1",
           "REQUEST_METHOD": method.decode(), "PATH_INFO": path.removeprefix("/git"),
           "QUERY_STRING": query, "CONTENT_TYPE": field(b"content-type"), "REMOTE_USER": "x",
           "CONTENT_LENGTH": str(len(content)), "HTTP_CONTENT_ENCODING": field(b"content-encoding"),
           "GIT_PROTOCOL": field(b"git-protocol"), "REMOTE_ADDR": "127.0.0.1", "HOME": "/"}
    p = subprocess.run(["git", "-c", "safe.directory=*", "http-backend"], input=content, env=env,
                       capture_output=True, check=False)
    lines, _, body = p.stdout.partition(b"\r\n\r\n")
    status = re.search(rb"Status: (.*)", lines)
    more = [x for x in lines.split(b"\r\n") if not x.startswith(b"Status")]
    peer.send(ok(body, b"".join(x + b"\r\n" for x in more),
                 status.group(1).strip() if status else b"200 OK"))
    return True


def git_run(bed, *args, cwd=None):
    env = {"PATH": os.environ["PATH"], "HOME": bed.top, "GIT_TERMINAL_PROMPT": "0",
           "GIT_SSL_CAINFO": bed.egress.ca, "GIT_CONFIG_NOSYSTEM": "1",
           "http_proxy": f"http://127.0.0.1:{bed.egress.port}",
           "https_proxy": f"http://127.0.0.1:{bed.egress.port}"}
    start = time.monotonic()
    p = subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c",
                        "init.defaultBranch=main", *args], env=env, capture_output=True, text=True,
                       cwd=cwd or bed.top, check=False, timeout=60)
    return p.returncode, p.stderr, p.stdout, time.monotonic() - start


def git_ready(bed):
    if not shutil.which("git"):
        raise Skip("no git")
    if hasattr(bed.origins, "git"):
        return
    bed.origins.git = bed.path("git")
    seed = bed.path("git/seed")
    os.makedirs(seed)
    with open(os.path.join(seed, "big"), "wb") as f:
        f.write(os.urandom(8 << 20))
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        want(git_run(bed, *args, cwd=seed)[0], 0, f"git {args}")
    want(git_run(bed, "clone", "-q", "--bare", seed, bed.path("git/r.git"))[0], 0, "bare clone")
    git_run(bed, "config", "http.receivepack", "true", cwd=bed.path("git/r.git"))
    for service in ("info/refs", "git-upload-pack", "git-receive-pack"):
        bed.origins.routes[f"/git/r.git/{service}"] = git_backend


def git_lines(bed):
    """Sums of refusals that earlier cases caused may come late; they have no URL."""
    return [x for x in bed.egress.lines() if "/git/r.git/" in (x["url"] or "")]


def C110_clone_from_a_read_host_fails_fast_and_says_why(bed):
    git_ready(bed)
    time.sleep(1.5)  # past 50 refusals a second, of the cases before, lines are summarised
    url, before = "https://read.test/git/r.git", len(git_lines(bed))
    mark = bed.origins.mark()
    for args in (["clone", url, bed.path("clone1")],
                 ["-c", "protocol.version=2", "ls-remote", url]):
        code, err, _, took = git_run(bed, *args)
        want(code != 0, True, f"{args}: fails")
        want_in("The requested URL returned error: 403", err, f"{args}")
        want(took < 3, True, f"{args}: took {took:.1f} s")
    seen = b"".join(d for _, d in bed.origins.since(mark))
    want([seen.count(b"GET /git/r.git/info/refs"), b"POST" in seen], [2, False], "what came")
    until(lambda: len(git_lines(bed)) >= before + 4, "audit lines")
    got = [(x["method"], x["verdict"], x["reason"]) for x in git_lines(bed)[before:]]
    want(got, [("GET", "allowed", "allowed"), ("POST", "blocked", "method_not_read")] * 2, "trail")
    bed.control(b"POST /git/r.git/git-upload-pack HTTP/1.1\r\nHost: read.test\r\n\r\n")
    bed.rows_run += 2


def C110_clone_and_push_through_a_private_gateway(bed):
    git_ready(bed)
    url, work = "http://10.77.0.2:8081/git/r.git", bed.path("clone2")
    code, err, _, _ = git_run(bed, "clone", "-q", url, work)
    want(code, 0, f"clone: {err}")
    want(os.path.getsize(os.path.join(work, "big")), 8 << 20, "size")
    with open(os.path.join(work, "more"), "wb") as f:
        f.write(os.urandom(3 << 20))
    for args in (["add", "."], ["commit", "-qm", "second"], ["push", "-q", "origin", "HEAD"]):
        code, err, _, _ = git_run(bed, *args, cwd=work)
        want(code, 0, f"{args}: {err}")
    code, _, out, _ = git_run(bed, "ls-remote", url)
    want(out.split()[0], git_run(bed, "rev-parse", "HEAD", cwd=work)[2].strip(), "what was pushed")
    bed.rows_run += 3


# --- refused uploads ---

def C112_refused_upload_gets_its_answer(bed):
    if not shutil.which("curl"):
        raise Skip("no curl")
    big = bed.path("big.bin")
    with open(big, "wb") as f:
        f.truncate(200 << 20)
    px = ["-x", f"http://127.0.0.1:{bed.egress.port}"]
    ways = {"px http": px + ["http://read.test/u"], "px https": px + ["https://read.test/u"],
            "http": ["--resolve", f"read.test:80:{READ_IP}", "http://read.test/u"],
            "https": ["--resolve", f"read.test:443:{READ_IP}", "https://read.test/u"]}
    how = {"-T": ["-T", big], "no Expect": ["-T", big, "-H", "Expect:"],
           "chunked": ["-T", big, "-H", "Transfer-Encoding: chunked", "-H", "Expect:"]}

    def row(args, what):
        p = subprocess.run(["curl", "-sS", "--http1.1", "--noproxy", "", "--cacert", bed.egress.ca,
                            "-D", "-", "-w", "\n%{http_code} %{time_total} %{size_upload}", *args],
                           env={"PATH": os.environ["PATH"]}, capture_output=True, text=True,
                           check=False, timeout=60)
        code, took, size = p.stdout.rsplit("\n", 1)[1].split()
        want([code, p.returncode], ["403", 0], f"{what}: {p.stderr} {p.stdout[-300:]}")
        want_in("content-type: text/plain", p.stdout.lower(), what)
        want(re.search(r"\n403 blocked: PUT read\.test:\d+: .*read-only rule", p.stdout) is not None,
             True, f"{what}: the text names method, host and rule: {p.stdout[-400:]!r}")
        want([float(took) < 2, int(size) < 4 << 20], [True, True], f"{what}: {took} s, {size} bytes")
    bed.nothing([(f"{w} {h}", lambda a=ways[w] + how[h], w=f"{w} {h}": row(a, w))
                 for w in ways for h in how],
                [(message(b"PUT", READ, "/u", body=b"x" * 100),)])


def C112_a_stream_sees_the_answer(bed):
    def row(s, what):
        talk, sent = Talk(), 0
        try:
            s.sendall(b"POST /u HTTP/1.1\r\nHost: read.test\r\nContent-Length: 209715200\r\n\r\n")
            while sent < 2 << 20:  # a client that sends before it looks
                s.sendall(b"x" * 65536)
                sent += 65536
        except OSError as e:
            raise Failed(f"{what}: {e} after {sent} bytes hides the answer") from None
        casebed.read_talk(s, talk, 1, 3)
        want_403(talk, what)
        s.close()
    bed.nothing([("plain", lambda: row(bed.dial(READ_IP, 80), "plain")),
                 ("tls", lambda: row(bed.wrap(bed.dial(READ_IP, 443), READ), "tls"))], [])


# --- addresses ---

WRITABLE = ["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0",
            "192.168.255.255", "fc00::", "fdff::1", "::ffff:10.0.0.1"]
NOT_WRITABLE = ["9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255",
                "192.169.0.0", "127.0.0.1", "169.254.1.1", "100.64.0.1", "198.18.0.1", "192.0.2.1",
                "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fec0::1",
                "ff02::1", "2001:db8::1", "64:ff9b::a00:1", "2002:a00:1::"]
NOT_ON_LO = ("224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "fe80::1", "ff02::1")


def C114_which_addresses_may_be_written(bed):
    for a in WRITABLE + NOT_WRITABLE:
        if a not in NOT_ON_LO and "ffff" not in a:
            subprocess.run(["ip", "addr", "add", a, "dev", "lo"], capture_output=True, check=False)
    bed.run("ip", "addr", "add", "10.0.0.1", "dev", "lo")
    bed.need("addresses", policy=[("allow", a, None) for a in WRITABLE + NOT_WRITABLE])

    def url(a):
        return f"[{a}]:8081" if ":" in a else f"{a}:8081"

    def send(a, method):
        return bed.px(message(method, url(a), f"http://{url(a)}/w", body=b"hi" if method == b"POST"
                              else b""))
    mark = bed.origins.mark()
    bed.rows([(a, lambda a=a: want_ok(send(a, b"POST"), a)) for a in WRITABLE])
    want(len([1 for _, d in bed.origins.since(mark) if d.startswith(b"POST /w")]), len(WRITABLE),
         "writes that arrived")
    bed.nothing([(a, lambda a=a: want_403(send(a, b"POST"), a)) for a in NOT_WRITABLE],
                [(message(b"POST", url(a), body=b"hi"), a, 8081)
                 for a in NOT_WRITABLE if a not in NOT_ON_LO and a not in ("::1", "127.0.0.1")])


# --- WebSocket ---

UPGRADE = (b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
SWITCH = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
HELLO, PING = b"\x81\x05hello", b"\x81\x85\x00\x00\x00\x00PING!"
FRAMES = b"\x82\x7f" + (65536).to_bytes(8, "big") + bytes(range(256)) * 256


def C100_first_frames_arrive_at_both_ends(bed):
    got = {}

    def switch(peer, head):
        _, _, cut, size = head.split(b" ")[1].split(b"/")
        out = SWITCH + (FRAMES if size == b"big" else HELLO)
        peer.send(out[:int(cut)])
        if int(cut):
            time.sleep(0.005)
        peer.send(out[int(cut):])
        need = FRAMES if size == b"big" else PING
        while len(peer.buf) < len(need):
            if not peer.more():
                break
        got[head.split(b" ")[1]] = peer.buf == need
        return False
    cuts = [(i, "small") for i in range(0, len(SWITCH + HELLO), 3)] + [(0, "big"), (90, "big")]
    for cut, size in cuts:
        bed.origins.routes[f"/ws/{cut}/{size}"] = switch

    def row(send, target, base):
        frames, reply = (FRAMES, FRAMES) if target.endswith("big") else (PING, HELLO)
        t = send(message(b"GET", base, target, UPGRADE) + frames, n=None, wait=4)
        line, _, rest = casebed.split_head(t.raw)
        want([line, rest == reply], [b"HTTP/1.1 101 Switching Protocols", True], f"{t}")
    for how in ("tls", "plain"):
        got.clear()
        bed.rows([(f"{how} {c} {z}", lambda t=f"/ws/{c}/{z}": row(
            lambda m, **k: (bed.tls if how == "tls" else bed.plain)(API, m, **k), t, API))
                  for c, z in cuts])
        want([len(got), set(got.values())], [len(cuts), {True}], "what the origin got")


def C100_frames_ahead_of_a_late_answer(bed):
    """About as much as is held while an answer is waited for, so that the rest is in the socket,
    or received and still in TLS, when the tunnel begins: then no event tells of it."""
    got = []

    def switch(peer, head):
        many = FRAMES * 4
        many = many[:int(head.split(b" ")[1].rsplit(b"/", 1)[1])]
        time.sleep(0.3)
        peer.send(SWITCH + many)
        while len(peer.buf) < len(many):
            if not peer.more():
                break
        got.append(peer.buf == many)
        return False

    def row(send, size):
        many = (FRAMES * 4)[:size]
        bed.origins.routes[f"/ws/late/{size}"] = switch
        t = send(API, message(b"GET", API, f"/ws/late/{size}", UPGRADE) + many, n=None, wait=4)
        want([t.raw[-size:] == many, len(t.raw.split(b"\r\n\r\n", 1)[1]), t.eof], [True, size, True],
             f"{len(t.raw)} bytes came back, {t.error}")
    sizes = (20000, 60000, 65536, 66000, 70000, 75000, 80000, 262184)
    bed.rows([(f"{f.__name__} {n}", lambda f=f, n=n: row(f, n)) for f in (bed.tls, bed.plain, bed.via)
              for n in sizes])
    want([len(got), set(got)], [3 * len(sizes), {True}], "what the origin got")


SPELLINGS = [UPGRADE, UPGRADE.replace(b"Upgrade: websocket", b"upgrade: WebSocket"),
             UPGRADE.replace(b"Connection: Upgrade", b"Connection: keep-alive, upgrade"),
             UPGRADE.replace(b": websocket", b": h2c, websocket"),
             UPGRADE.replace(b"Connection: Upgrade\r\n", b""),
             UPGRADE.replace(b": websocket", b": foo")]


def C102_websocket_to_a_read_host_is_refused(bed):
    frame = PING

    def px(m):
        return bed.px(m.replace(b"GET /", b"GET http://read.test/"))
    ways = [("plain", lambda m: bed.plain(READ, m)), ("tls", lambda m: bed.tls(READ, m)),
            ("px", px), ("via", lambda m: bed.via(READ, m)),
            ("tunnel80", lambda m: bed.tunnel80(READ, m))]
    bed.nothing([(f"{how} {u[:40]}", lambda s=s, u=u, how=how: want_403(
        s(message(b"GET", READ, "/chat", u) + frame), how, 0)) for u in SPELLINGS for how, s in ways],
                [(message(b"GET", READ, "/chat", u) + frame,) for u in SPELLINGS])


def C102_websocket_where_writing_is_allowed(bed):
    def echo(peer, head):
        peer.send(SWITCH)
        while peer.more():
            data, peer.buf = peer.buf, b""
            peer.send(data)
        return False
    bed.origins.routes["/chat"] = echo

    def chats():
        return [x for x in bed.egress.lines() if x["status"] == 101 and "/chat" in (x["url"] or "")]
    before = len(chats())

    def row(s, host, target="/chat"):
        t = Talk()
        with s:
            s.sendall(message(b"GET", host, target, UPGRADE))
            casebed.read_talk(s, t, 1, 3)
            want([r.status for r in t.finals], [101], f"{host}: {t}")
            for i in range(5):
                frame = b"\x82\x86\x00\x00\x00\x00frame%d" % i
                s.sendall(frame)
                got = b""
                while len(got) < len(frame):
                    got += s.recv(100) or b"?" * 100
                want(got, frame, "full duplex")
            if isinstance(s, socket.socket) and not hasattr(s, "unwrap"):
                s.shutdown(socket.SHUT_WR)
                want(s.recv(10), b"", "the end is passed on")
    px = ("127.0.0.1", bed.egress.port)
    bed.rows([("tls", lambda: row(bed.wrap(bed.dial(API_IP, 443), API), API)),
              ("plain", lambda: row(bed.dial(API_IP, 80), API)),
              ("via", lambda: row(bed.wrap(bed.connect(API + ":443"), API), API)),
              ("px", lambda: row(bed.dial(*px), API, f"http://{API}/chat")),
              ("private", lambda: row(bed.dial(*px), f"{PRIVATE}:8081",
                                      f"http://{PRIVATE}:8081/chat"))])
    until(lambda: len(chats()) >= before + 5, "lines")
    got = {(x["kind"], x["method"], x["verdict"]) for x in chats()[before:]}
    want(got, {("write", "GET", "allowed")}, "the trail: a GET that writes")


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
