#!/usr/bin/env python3
"""Keys that must be nowhere: while requests fail in every way, in the middle of an answer, after
crashes and changes of the vault. Memory outside the locked areas, core dumps, files and answers are
searched for every spelling of random keys and for pieces of eight bytes (leakscan.py). What is
planted on purpose, in each of these places, must be found by the same search."""
import base64
import gzip
import json
import os
import random
import re
import shutil
import signal
import string
import struct
import subprocess
import sys
import threading
import time

import casebed
import leakscan
import tlsbed
from casebed import Failed, Skip, ok, until, want, want_in
from keys import HOST, PH, request, sent
from limitbed import say, start

MEMORY_NAMES = {"egress-secret", "egress-vault", "secmem"}
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def random_text(n, letters=string.ascii_letters + string.digits):
    return "".join(random.choices(letters, k=n)).encode()


KEY = b"sk-" + random_text(37)
PASSWORD = random_text(24)
BASIC = base64.b64encode(b"user:" + PASSWORD)
ODD = random_text(9) + b' "<' + random_text(9) + b"&/%'" + random_text(9)
NEXT = b"sk-" + random_text(37)
ALLOW_CORES = "prlimit --core=unlimited:unlimited"
MARK = random_text(40)  # no key: what clients send, and the search must find
FORMS = [f for f in leakscan.spellings(KEY).values()]


def bind(name, auth, hosts=(HOST,)):
    return {"name": name, "auth": auth, "match": {"hosts": list(hosts), "paths": [f"/{name}/*"]}}


def document(key):
    values = {"k": key, "basic": BASIC, "odd": ODD}
    slots = [{"credential": "odd", "placeholder": PH.decode(),
              "in": ["query", "header:X-Key", "json:/key", "form:key"]}]
    return {"credentials": [{"name": n, "source": {"type": "inline", "value": v.decode()}}
                            for n, v in values.items()],
            "bindings": [bind("v1", {"type": "bearer", "credential": "k"}, (HOST, "*.wild.test")),
                         bind("basic", {"type": "basic", "credential": "basic"}),
                         bind("slots", {"type": "passthrough", "substitutions": slots})]}


def write(path, doc):
    with open(os.open(path + ".new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as f:
        f.write(doc if isinstance(doc, str) else json.dumps(doc))
    os.rename(path + ".new", path)


def keyed(bed, name="leak", before="", **settings):
    path = bed.path(f"{name}.json")
    if not os.path.exists(path):
        write(path, document(KEY))
    e = start(bed, name, before=before, EGRESS_VAULT_FILE=path,
              OPENSANDBOX_EGRESS_LOG_LEVEL="debug", **settings)
    if PASSWORD not in e.leak.keys:
        want([KEY in e.leak.keys, BASIC in e.leak.keys, ODD in e.leak.keys], [True] * 3,
             "keys that are looked for")
        e.leak.keys.append(PASSWORD)
    return e


def search(egress, what):
    """Memory now."""
    before = len(egress.leak.seen.found)
    egress.leak.memory(egress.process.pid)
    want(egress.leak.seen.found[before:][:3], [], what)


def get(bed, target, fields=b"", method=b"GET", body=b"", host=HOST, **how):
    data = request(target, fields, method, body).replace(HOST.encode(), host.encode(), 1)
    return bed.via(host, data, **how)


def answered(bed, target, pieces, n=None, host=HOST):
    """The origin answers so; what the client saw, and what the origin got."""
    def route(peer, head):
        peer.body(head)
        for piece in pieces:
            peer.send(piece)
        return False
    bed.origins.routes[target.decode()] = route
    mark = bed.origins.mark()
    talk = get(bed, target, b"Connection: close\r\n", host=host, n=n)
    return talk, sent(bed, mark)


# --- the search itself ---

def control_process(key, text, code="import sys, time\ntext = bytearray(sys.stdin.buffer.read())\n"
                    "print('there', flush=True)\ntime.sleep(60)\n", **how):
    """(found before, found after) in the memory of a program that reads this text."""
    p = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, **how)
    try:
        before = leakscan.search_memory(p.pid, [key])
        p.stdin.write(text)
        p.stdin.close()
        p.stdout.readline()
        return before.found, leakscan.search_memory(p.pid, [key]).found
    finally:
        p.kill()
        p.wait()
        p.stdout.close()


def L01_a_copy_in_memory_is_found(bed):
    at = random.randrange(len(KEY) - 8)
    rows = {"whole": KEY, "other case": KEY.swapcase(), "eight bytes": KEY[at:at + 8],
            "eight of base64": base64.b64encode(b"x" + KEY)[9:17]}
    rows.update({name: text for name, text in leakscan.spellings(KEY).items()})
    for name, text in rows.items():
        for shift in range(4) if name == "eight bytes" else (0,):
            before, after = control_process(KEY, b"." * (64 + shift) + text + b".")
            want((before, bool(after)), ([], True), f"{name} at {shift}: not there, then found")
            bed.rows_run += 1
    before, after = control_process(KEY, KEY[at:at + 7] + b"." + KEY[:7])
    want((before, after), ([], []), "seven bytes are less than a piece")


def L02_what_a_client_sent_is_found_in_the_worker(bed):
    e = keyed(bed)
    with bed.dial("127.0.0.1", e.port) as s:
        s.sendall(b"GET http://deny.test/ HTTP/1.1\r\nHost: deny.test\r\nX-Mark: %s" % MARK)
        until(lambda: leakscan.search_memory(e.worker, [MARK]).found, "the mark is found")
    want(leakscan.search_memory(e.process.pid, [MARK + b"x"]).found != [], True, "by its pieces")
    search(e, "but no key")


def L03_a_copy_in_a_file_is_found(bed):
    e = keyed(bed)
    for place in (e.log, e.audit, os.path.join(e.folder, "other")):
        for text in (KEY, PASSWORD, KEY[5:13], base64.b64encode(b"ab" + KEY)):
            copy = place + ".copy"
            if os.path.exists(place):
                shutil.copyfile(place, copy)
            with open(copy, "ab") as f:
                f.write(b"2026 egress: info: " + text + b"\n")
            want(leakscan.search_files([e.folder], e.leak.secret()).found != [], True,
                 f"{place}: {text} is found")
            os.unlink(copy)
            bed.rows_run += 1
    want(leakscan.search_files([e.folder], e.leak.secret()).found, [], "files without the copy")


def cores(folder):
    return [os.path.join(folder, n) for n in os.listdir(folder) if n.startswith("core")]


def L04_a_copy_in_a_core_dump_is_found(bed):
    if why_no_cores():
        raise Skip(why_no_cores())
    folder = bed.path("control-core")
    os.mkdir(folder)
    code = ("import sys, os\ntext = bytearray(sys.stdin.buffer.read())\n"
            "print('there', flush=True)\nos.abort()\n")
    p = subprocess.run([*ALLOW_CORES.split(), sys.executable, "-c", code], input=KEY, cwd=folder,
                       check=False, stdout=subprocess.PIPE)
    want(p.returncode, -signal.SIGABRT, "the control aborts")
    want(len(cores(folder)), 1, "and is dumped")
    want(leakscan.search_files([folder], [KEY]).found != [], True, "its key is found")
    shutil.rmtree(folder)


def why_no_cores():
    """Why this system writes no core dump that we could search, or None."""
    with open("/proc/sys/kernel/core_pattern") as f:
        pattern = f.read().strip()
    if pattern.startswith("|") or "/" in pattern:
        return f"core dumps go to {pattern}, not into the folder of the process"
    allowed = subprocess.run([*ALLOW_CORES.split(), "true"], stderr=subprocess.DEVNULL, check=False)
    return "the limit of core dumps cannot be raised" if allowed.returncode else None


# --- the areas ---

def areas(pid):
    return [m for m in leakscan.mappings(pid) if m.name.startswith(leakscan.SECRET_NAMES)]


def L05_the_secret_areas_are_locked_and_left_out_of_dumps(bed):
    e = keyed(bed)
    inside = areas(e.worker)
    want(len(inside), 3, "areas of the worker")
    for m in inside:
        want((m.is_locked, m.is_secret, m.rights), (True, True, "rw-s"), f"{m.name} {m.flags}")
        if m.name.startswith("/secretmem"):
            with open(f"/proc/{e.worker}/mem", "rb", 0) as f:
                try:
                    os.pread(f.fileno(), 64, m.start)
                    raise Failed("root can read memfd_secret")
                except OSError:
                    pass
    for m in areas(e.process.pid):  # without memfd_secret it keeps them locked
        want((m.name.startswith("/memfd:"), m.is_locked, m.is_secret), (True, True, True), m.name)


def L06_the_search_reaches_the_key_where_it_may_be(bed):
    """Without memory that can be locked the areas can be read: the key is there, and only there."""
    e = keyed(bed, "unlocked", before="prlimit --memlock=65536:65536")
    want(get(bed, b"/v1/x").statuses, [200], "answer")
    inside = [m for m in areas(e.worker) if m.name.startswith("/memfd:")]
    names = {m.name.split(":")[1].split()[0] for m in inside}
    want(names <= MEMORY_NAMES and len(names) >= 2, True, f"areas {names}")
    found = [t for m in inside for _, part in leakscan.shared_parts(e.worker, m)
             for t in leakscan.Needles([KEY]).find(part)]
    want(found != [], True, "the key is found in them")
    search(e, "memory outside of them")


# --- traffic ---

def L07_after_answers_of_every_kind(bed):
    e = keyed(bed)
    n = 0
    for form in FORMS:
        talk, got = answered(bed, b"/v1/echo", [ok(b"<" + form + b">", b"X-Echo: " + form + b"\r\n")
                                                if form.isalnum() else ok(b"<" + form + b">")])
        want_in(KEY, got, "control: the key is in use")
        want(len(talk.finals), 1, "answer")
        n += 1
    echo = ok(b"a " + KEY + b" b", b"X-Echo: " + KEY + b"\r\n")
    chunk = b"%x\r\n%s\r\n" % (len(KEY), KEY)
    rows = {
        "bytewise": [echo[i:i + 1] for i in range(len(echo))],
        "reason": [ok(status=b"500 no " + KEY)], "location":
        [ok(fields=b"Location: /?" + KEY + b"\r\n", status=b"302 Found")],
        "informational": [b"HTTP/1.1 103 Early Hints\r\nLink: <" + KEY + b">\r\n\r\n" + ok()],
        "trailer": [CHUNKED + chunk + b"0\r\nX-Echo: " + KEY + b"\r\n\r\n"],
        "gzip": [ok(gzip.compress(b"a" * 999 + KEY), b"Content-Encoding: gzip\r\n")],
        "gzip of other": [ok(gzip.compress(b"a" * 99999), b"Content-Encoding: gzip\r\n")],
        "large": [ok((KEY + b"\n") * 40000)], "until close": [b"HTTP/1.1 200 OK\r\n\r\n" + KEY * 3],
    }
    for name, pieces in rows.items():
        _, got = answered(bed, b"/v1/echo", pieces)
        want_in(KEY, got, f"{name}: control")
        search(e, f"after {name}")
    for path, part in ((b"/basic/x", BASIC), (b"/slots/x?k=" + PH, b"%22"),
                       (b"/slots/x", ODD[:9])):
        mark = bed.origins.mark()
        get(bed, path, b"X-Key: " + PH + b"\r\n" if path == b"/slots/x" else b"")
        want_in(part, sent(bed, mark), f"{path}: control")
        body = b'{"key":"' + PH + b'"}'
        get(bed, path, b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body),
            b"POST", body)
        search(e, f"after {path}")
    bed.rows_run += n + len(rows) + 3


def L08_after_answers_that_break(bed):
    e = keyed(bed)
    long = KEY * 1000
    rows = {
        "half a head": [b"HTTP/1.1 200 OK\r\nX-Echo: " + KEY],
        "half a body": [ok(long)[:-200]], "half a chunk": [CHUNKED + b"ffff\r\n" + long],
        "half a trailer": [CHUNKED + b"0\r\nX-Echo: " + KEY],
        "wrong size": [CHUNKED + KEY + b"\r\n"], "extension":
        [CHUNKED + b"1;a=" + KEY + b"\r\nx\r\n0\r\n\r\n"],
        "no status": [KEY + b" 200 OK\r\n\r\n"], "folded": [b"HTTP/1.1 200 OK\r\nA: b\r\n " + KEY
                                                           + b"\r\n\r\n"],
        "two lengths": [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\nX: " + KEY
                        + b"\r\n\r\nxx"],
        "large field": [b"HTTP/1.1 200 OK\r\nX: " + KEY * 2000 + b"\r\n\r\n"],
        "broken gzip": [ok(gzip.compress(long)[:-30] + KEY, b"Content-Encoding: gzip\r\n")],
    }
    for name, pieces in rows.items():
        _, got = answered(bed, b"/v1/break", pieces)
        want_in(KEY, got, f"{name}: control")
        search(e, f"after {name}")

    def reset(peer, head):
        peer.send(ok(long)[:500])
        peer.cut = True
        peer.sock.setsockopt(casebed.socket.SOL_SOCKET, casebed.socket.SO_LINGER,
                             struct.pack("ii", 1, 0))
        return False
    bed.origins.routes["/v1/reset"] = reset
    get(bed, b"/v1/reset", n=None)
    bed.origins.routes["/v1/dead"] = lambda peer, head: False
    get(bed, b"/v1/dead")
    search(e, "after a reset and an origin that says nothing")
    tlsbed.need_tls(bed)
    for name in ("expired", "self", "other"):
        want(get(bed, b"/v1/x", host=f"{name}.wild.test").statuses, [502], f"certificate {name}")
    want(get(bed, b"/v1/x", host="nx.wild.test").statuses, [502], "no such name")
    search(e, "after bad certificates")
    bed.rows_run += len(rows) + 6


class Held:
    """An answer that stands still: its head and a first part are through, a key is half there."""

    def __init__(self, bed, first=KEY[:21]):
        self.go_on, there = threading.Event(), threading.Event()

        def route(peer, head):
            peer.send(CHUNKED + b"%x\r\na\n%s\r\n" % (len(first) + 2, first))
            there.set()
            self.go_on.wait(60)
            peer.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(KEY) - len(first), KEY[len(first):]))
            return False
        bed.origins.routes["/v1/held"] = route
        s = bed.connect(f"{HOST}:443", ("127.0.0.1", bed.egress.port))
        self.client = bed.wrap(s, HOST)
        self.client.sendall(request(b"/v1/held"))
        there.wait(casebed.WAIT_S)
        self.text = b""
        while not self.text.endswith(b"a\n\r\n"):
            self.text += self.client.recv(4096)

    def end(self):
        self.go_on.set()
        self.client.close()


def L09_in_the_middle(bed):
    e = keyed(bed)
    held = Held(bed)
    search(e, "while half a key is held back")
    held.end()
    parts = threading.Event()

    def slow(peer, head):
        peer.send(b"HTTP/1.1 200 OK\r\nX-Fill: " + b"y" * 9000 + b"\r\nX-Echo: " + KEY[:-4])
        parts.set()
        held.go_on.wait(60)
        return False
    held.go_on.clear()
    bed.origins.routes["/v1/slow"] = slow
    s = bed.wrap(bed.connect(f"{HOST}:443", ("127.0.0.1", e.port)), HOST)
    with s:
        s.sendall(request(b"/v1/slow"))
        parts.wait(casebed.WAIT_S)
        # A refusal needs little memory: what was freed is as it was left.
        want(bed.px(b"GET http://deny.test/ HTTP/1.1\r\nHost: deny.test\r\n\r\n").statuses, [403],
             "a refusal meanwhile")
        search(e, "while half a head is there, at once")
        # Short: what it moves through the buffers ends before the place where the key was.
        want(get(bed, b"/v1/x").statuses, [200], "another request meanwhile")
        search(e, "while half a head is there")
        held.go_on.set()
    mark = bed.origins.mark()
    body = b'{"key":"' + PH + b'"'
    s = bed.wrap(bed.connect(f"{HOST}:443", ("127.0.0.1", e.port)), HOST)
    with s:
        s.sendall(request(b"/slots/x", b"Content-Type: application/json\r\nContent-Length: 99\r\n",
                          b"POST", body))
        want(get(bed, b"/v1/x").statuses, [200], "another request meanwhile")
        search(e, "while content is collected")
    want_in(KEY, sent(bed, mark), "control")


# --- crashes and changes ---

def sanitized():
    with open(casebed.EGRESS, "rb") as f:
        return b"__asan_init" in f.read()


def crash(bed, e, sig):
    held, before = Held(bed), e.worker
    os.kill(before, sig)
    until(lambda: f"worker {before}: ended by signal {sig}" in e.text(), "the worker is gone")
    until(lambda: e.text().count(" ready: ") >= crash.ready, "a worker again", 10)
    crash.ready += 1
    held.end()
    want(e.worker != before, True, "another worker")
    want(get(bed, b"/v1/x").statuses, [200], "answer")
    search(e, f"after signal {sig}")


def L10_after_crashes(bed):
    """Cores are allowed where egress was started, if the system lets us: it makes none. It has no
    limit of its own that would allow one, and is not dumpable."""
    options = os.environ.get("ASAN_OPTIONS", "")  # a crash is a crash, not a report
    e = keyed(bed, "crash", before="" if why_no_cores() else ALLOW_CORES,
              ASAN_OPTIONS=f"{options}:handle_segv=0:handle_sigbus=0:handle_abort=0")
    bed.running.remove(e)  # crashes are wanted here, so it is stopped below
    crash.ready = 2
    try:
        for pid in (e.process.pid, e.worker):
            with open(f"/proc/{pid}/limits") as f:
                found = re.findall(r"Max core file size +(\w+) +(\w+)", f.read())
            want(found, [("0", "0")], "limit of core dumps")
        if not sanitized():  # the runtime of the sanitizers needs to look at its own process
            want(os.stat(f"/proc/{e.worker}/mem").st_uid, 0, "owner of what is not dumpable")
        for sig in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL):
            crash(bed, e, sig)
            bed.rows_run += 1
        want(cores(e.folder), [], "core dumps")
        os.kill(e.process.pid, signal.SIGABRT)
        until(lambda: e.process.poll() is not None, "the supervisor is gone")
        want(cores(e.folder), [], "core dumps of the supervisor")
        e.leak.files(e.folder)
        want(e.leak.seen.found[:3], [], "files")
    finally:
        e.process.kill()
        e.process.wait()
        bed.need("main")
    say(f"leak crash: {e.leak}")


def replaced(bed, e, doc, text, hup):
    n = e.text().count(text)
    write(bed.path(f"{e.name}.json"), doc)
    if hup:
        os.kill(e.process.pid, signal.SIGHUP)
    until(lambda: e.text().count(text) > n, f"{text} in the log", 15)


def L11_after_changes_of_the_vault(bed):
    e = keyed(bed, "change")
    mark = bed.origins.mark()
    get(bed, b"/v1/x")
    want_in(KEY, sent(bed, mark), "control: the first")
    for hup in (True, False):
        replaced(bed, e, document(NEXT if hup else KEY), f"revision {2 if hup else 3}: ", hup)
        e.leak.note()
        want([NEXT in e.leak.secret(), KEY in e.leak.secret()], [True, True], "both are looked for")
        mark = bed.origins.mark()
        get(bed, b"/v1/x")
        want_in(NEXT if hup else KEY, sent(bed, mark), "control: the one after it")
        search(e, "after a change")
    text = json.dumps(document(NEXT))
    yaml = "credentials: [{name: k, source: {value: " + NEXT.decode() + "}}]\n"
    for bad in (text[:-9], text.replace('"name"', '"nome"', 1), text + text, yaml + "x: [\n",
                yaml + yaml, yaml + "other: 1\n", text.replace(HOST, "unlisted.test")):
        replaced(bed, e, bad, "nothing is changed" if bad not in (
            yaml + "other: 1\n", text.replace('"name"', '"nome"', 1),
            text.replace(HOST, "unlisted.test")) else "stays in force", True)
        search(e, "after a document that was refused")
        bed.rows_run += 1


def L12_first_calls_of_libraries(bed):
    """A library that binds a symbol at its first call puts all vector registers on the stack, with
    what the last copy left in them."""
    key = b"LD_BIND_NOW=1"
    for n in range(6):
        e = keyed(bed, f"fresh{n}")
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\nX-Echo: "
        packed = gzip.compress(b"a" * 99 + (KEY if n % 2 else b"b" * 40))
        pieces = [head % len(packed) + KEY * (n // 2 + 1), b"\r\n\r\n" + packed]
        _, got = answered(bed, b"/v1/first", pieces)
        want_in(KEY, got, "control")
        search(e, "after the first call of zlib")
    with open(f"/proc/{e.worker}/environ", "rb") as f:
        want(key in f.read().split(b"\0"), True, f"{key} for the worker")


def L13_what_a_request_was_composed_in_is_wiped(bed):
    """Seen where the areas can be read: nothing but the scratch holds the key behind its scheme."""
    e = keyed(bed, "unlocked", before="prlimit --memlock=65536:65536")
    needles = leakscan.Needles([b"earer " + KEY[:5]])
    for _ in range(3):
        want(get(bed, b"/v1/x").statuses, [200], "answer")
        found = [t for m in areas(e.worker) if m.name.startswith("/memfd:secmem")
                 for _, part in leakscan.shared_parts(e.worker, m) for t in needles.find(part)]
        want(found, [], "the field of the request")


def L14_what_waits_in_clear_is_wiped(bed):
    """A request in clear that its origin does not take waits with the key in it. In several sizes:
    memory of some goes back to the system, where it cannot be looked at."""
    e = keyed_clear(bed)
    before = small_buffers("4096 16384 16384", "4096 16384 16384")
    try:
        waited = 0
        for size in range(130000, 200000, 7000):
            waited += wait_in_clear(bed, e, b'{"x":"' + b"z" * size + b'","key":"' + PH + b'"}')
            search(e, f"after {size} bytes have gone")
            bed.rows_run += 1
        want(waited >= 3, True, f"control: {waited} keys waited")
    finally:
        small_buffers(*before)


def wait_in_clear(bed, e, body):
    """Did the key wait? What sockets take is not ours to say."""
    go_on, mark = threading.Event(), bed.origins.mark()

    def route(peer, head):
        go_on.wait(30)
        peer.body(head)
        peer.send(ok())
        return False
    bed.origins.routes["/slots/late"] = route
    head = (b"POST http://%s/slots/late HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n"
            b"Content-Type: application/json\r\n\r\n" % (HOST.encode(), HOST.encode(), len(body)))
    try:
        with bed.dial("127.0.0.1", e.port) as s:
            s.sendall(head + body)
            end = time.monotonic() + 1
            waits = False
            while not waits and time.monotonic() < end:
                waits = bool(leakscan.search_memory(e.worker, [KEY]).found)
            go_on.set()
            want_in(b" 200 ", s.recv(4096), "answer")
    finally:
        go_on.set()
    want_in(b'"' + KEY + b'"', sent(bed, mark), "control: the key went")
    return waits


def small_buffers(*texts):
    """What sockets take, in this network of our own; what it was."""
    before = []
    for name, text in zip(("tcp_wmem", "tcp_rmem"), texts):
        with open(f"/proc/sys/net/ipv4/{name}") as f:
            before.append(f.read())
        with open(f"/proc/sys/net/ipv4/{name}", "w") as f:
            f.write(text)
    return before


def keyed_clear(bed):
    path = bed.path("clear.json")
    slots = [{"credential": "k", "placeholder": PH.decode(), "in": ["json:/key"]}]
    binding = bind("slots", {"type": "passthrough", "substitutions": slots})
    binding["match"]["schemes"] = ["http", "https"]
    write(path, {"credentials": document(KEY)["credentials"], "bindings": [binding]})
    return start(bed, "clear", EGRESS_VAULT_FILE=path, EGRESS_HTTP_BINDINGS="on",
                 EGRESS_READ_ONLY="off")


def L15_nothing_in_a_dump_by_force(bed):
    """A debugger leaves out what the kernel would leave out of a core dump."""
    if not shutil.which("gcore"):
        raise Skip("no gcore")
    if sanitized():
        raise Skip("a debugger would dump the terabytes of AddressSanitizer's shadow")
    e = keyed(bed)
    folder = bed.path("forced")
    os.mkdir(folder)
    with bed.dial("127.0.0.1", e.port) as s:
        s.sendall(b"GET http://deny.test/ HTTP/1.1\r\nHost: deny.test\r\nX-Mark: %s" % MARK)
        want(get(bed, b"/v1/x").statuses, [200], "answer")
        for pid in (e.process.pid, e.worker):
            subprocess.run(["gcore", "-o", os.path.join(folder, "core"), str(pid)], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    want(len(cores(folder)), 2, "dumps")
    want(leakscan.search_files([folder], [MARK]).found != [], True, "control: what a client sent")
    want(leakscan.search_files([folder], e.leak.secret()).found[:3], [], "keys")
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"L\d+_"))
