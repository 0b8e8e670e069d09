#!/usr/bin/env python3
"""Load against the real program: descriptors, memory, a full disk, floods, signals, big bodies.

# serial: it measures. Dead and wrong origins are in limits.py. Figures are printed as `# ...`.
The big body runs on a build without sanitizers: EGRESS_BIN_RELEASE, build/release or build/run.
"""
import os
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import casebed
from casebed import Failed, Skip, ok, until, want, want_in, want_ok
from limitbed import get, grew, lean, new_line, say, start, stop

CTL = os.environ.get("EGRESSCTL_BIN") or os.path.join(
    os.path.dirname(os.path.dirname(casebed.EGRESS)), "ctl", "egressctl")
RELEASES = [os.environ.get("EGRESS_BIN_RELEASE") or ""] + [
    os.path.join(casebed.SRC, "build", x, "control", "egress") for x in ("release", "run")]
RELEASE = ([x for x in RELEASES if os.access(x, os.X_OK)] + [None])[0]
IDLE = 1000
FLAT_REQUESTS = 20000
BIG = 3 << 30

LEAK_C = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
/* The worker calls this once, at its end, with all rights given up. */
void libevent_global_shutdown(void)
{
	void (*next)(void) = (void (*)(void))dlsym(RTLD_NEXT, "libevent_global_shutdown");
	char *volatile lost;

	/* many: a word that stayed behind on the stack keeps one reachable */
	for (int i = 0; i < 16; i++) {
		lost = malloc(4242);
		if (lost)
			memset(lost, 1, 4242);
	}
	lost = NULL;
	next();
}
"""


def request(n=0, name="a.wild.test", path="/x"):
    return get(name, f"{path}?{n}")


def count_lines(egress, text):
    return len(re.findall(text, egress.text()))


def chain(egress, files=None):
    """Both readers of the trail say that it is whole."""
    tool = os.path.join(casebed.SRC, "tests", "tools", "audit_chain.py")
    path = files or egress.audit
    for cmd in ([sys.executable, tool, path], [CTL, "audit", "verify", "--file", path]):
        if cmd[0] != CTL or os.access(CTL, os.X_OK):
            p = subprocess.run(cmd, capture_output=True, text=True, timeout=60)
            want(p.returncode, 0, f"{os.path.basename(cmd[0])}: {p.stdout[-200:]}{p.stderr[-200:]}")
    return p.stdout.strip()


def pipelined(bed, requests, port=None):
    """Sends them all on one connection and reads all answers: {status: count}."""
    counts, rest = {}, b""
    s = bed.dial("127.0.0.1", port or bed.egress.port)
    s.settimeout(30)
    sender = threading.Thread(target=lambda: s.sendall(b"".join(requests)), daemon=True)
    sender.start()
    n = 0
    while n < len(requests):
        part = s.recv(1 << 18)
        if not part:
            raise Failed(f"it ended after {n} answers: {counts}")
        rest += part
        replies = casebed.replies_of(rest, False)
        for r in replies:
            counts[r.status] = counts.get(r.status, 0) + 1
        n += len(replies)
        rest = rest_of(rest, len(replies))
    s.close()
    return counts


def rest_of(data, n):
    """What is behind the first n answers, which all have a length."""
    for _ in range(n):
        _, fields, rest = casebed.split_head(data)
        data = rest[int(casebed.values(fields, b"content-length")[0]):]
    return data


# --- descriptors ---

def download(bed, seconds):
    """A slow download under way: (thread, result)."""
    result, piece = [], b"d" * 1000

    def route(peer, _):
        n = int(seconds * 20)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (n * len(piece)))
        for _i in range(n):
            peer.send(piece)
            time.sleep(0.05)
        return True

    bed.origins.routes["/download"] = route
    thread = threading.Thread(target=lambda: result.append(
        bed.px(get("a.wild.test", "/download"), wait=seconds + 5)))
    thread.start()
    time.sleep(0.2)
    return thread, result


def twenty_clients_at_most(bed, e, meanwhile=lambda: None):
    thread, result = download(bed, 2)
    open_ones = [bed.dial("127.0.0.1", e.port) for _ in range(19)]  # one is the download's
    want_ok(bed.talk(open_ones.pop(), request()), "the last that fits")
    open_ones.append(bed.dial("127.0.0.1", e.port))
    time.sleep(0.1)
    waits = [bed.dial("127.0.0.1", e.port) for _ in range(5)]
    for s in waits:
        s.sendall(request())
    want(select.select(waits, [], [], 0.7)[0], [], "those beyond the limit that were served")
    want(count_lines(e, "no new connections until some end"), 1, "lines in the log")
    meanwhile()
    for s in open_ones:
        s.close()
    for s in waits:
        want_ok(bed.talk(s, b""), "one that waited")
    thread.join()
    want_ok(result[0], "the download that was under way")
    want(len(result[0].finals[0].body), 40000, "its content")
    want(count_lines(e, "no new connections until some end"), 1, "lines in the log")


def limit_connections_at_the_limit(bed):
    """Half of what descriptors allow are clients; the next one waits, and is served later."""
    twenty_clients_at_most(bed, start(bed, "few", before="prlimit --nofile=104:104"))  # 64 kept


def limit_the_api_keeps_descriptors(bed):
    """128 more are kept where the API listens: it answers when clients have all of theirs."""
    api = ("127.0.0.1", casebed.PORT + 49)
    e = start(bed, "few-api", before="prlimit --nofile=232:232",
              OPENSANDBOX_EGRESS_HTTP_ADDR=f"{api[0]}:{api[1]}")

    def ask_it():
        socks = [bed.dial(*api) for _ in range(100)]
        for s in socks:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        for s in socks:
            want_ok(bed.talk(s, b""), "the API")
            s.close()
    twenty_clients_at_most(bed, e, ask_it)


def limit_descriptors_run_out(bed):
    """accept() itself fails: it pauses, says so once, and goes on when connections end."""
    e = start(bed, "out", before="prlimit --nofile=64:64", EGRESS_MAX_CONNECTIONS="1000")
    thread, result = download(bed, 2)
    socks = [bed.dial("127.0.0.1", e.port) for _ in range(100)]
    until(lambda: count_lines(e, "no new connections until some end") == 1, "a line in the log")
    say(f"{e.open_files()} descriptors of 64 in use")
    talk = bed.talk(socks.pop(0), request())
    want((talk.statuses, talk.finals[0].field("x-egress-reason")), ([503], "overloaded"),
         "one that needs a descriptor")
    time.sleep(0.5)
    want(count_lines(e, "no new connections until some end"), 1, "lines in the log")
    for s in socks:
        s.close()
    for i in range(20):
        want_ok(bed.px(request(i)), "after they ended")
    thread.join()
    want_ok(result[0], "the download that was under way")
    want(len(result[0].finals[0].body), 40000, "its content")


def limit_idle_origins_give_way(bed):
    """Kept connections to origins must not take the descriptors that a request needs."""
    e = start(bed, "pool", before="prlimit --nofile=104:104", EGRESS_UPSTREAM_IDLE="60s")
    failed = {}

    def one(i):
        talk = bed.px(request(i, f"h{i}.wild.test"))
        status = talk.statuses[0] if talk.statuses else talk.error
        if status != 200:
            failed[status] = failed.get(status, 0) + 1

    for i in range(200):
        one(i)
    say(f"200 requests to 200 origins with 104 descriptors: {e.open_files()} in use")
    want(failed, {}, "requests that failed")
    e.fds = 200  # idle ones are still open when it is stopped


# --- memory ---

def limit_idle_connections(bed):
    e = lean(bed)
    want_ok(bed.px(request()), "warm")
    for tls, n in ((False, IDLE), (True, 200)):
        socks, before = [], e.memory()
        for _ in range(n):
            if tls:
                s = bed.wrap(bed.connect("a.wild.test:443"), "a.wild.test")
                s.sendall(get("a.wild.test", "/x", "https"))
                s.recv(4096)
            else:
                s = bed.dial("127.0.0.1", e.port)
            socks.append(s)
        until(lambda n=n: e.open_files() >= n, "all are accepted")
        more = e.memory() - before
        say(f"{n} idle {'TLS' if tls else 'clear'} connections: {more / n / 1024:.1f} KiB each")
        begin = time.monotonic()
        want_ok(bed.px(request()), "one more client")
        say(f"one more client is served in {(time.monotonic() - begin) * 1000:.1f} ms")
        for s in socks:
            s.close()
        until(lambda: e.open_files() <= e.fds + 4, "they are gone")
        # 20 KiB in clear; OpenSSL and AddressSanitizer's red zones come on top
        if more > n * ((160 if tls else 20) << 10):
            raise Failed(f"{more / n:.0f} bytes for each")


def limit_memory_flat(bed):
    e, batch = lean(bed), 250

    def fast(peer, _):
        answer = ok(b"fast")
        peer.send(answer)
        sock = peer.sock
        while data := sock.recv(1 << 16):
            sock.sendall(answer * data.count(b"\r\n\r\n"))
        return False

    bed.origins.routes["/fast"] = fast

    def run(n, begin):
        s = bed.dial("127.0.0.1", e.port)
        s.settimeout(20)
        for i in range(begin, begin + n, batch):
            s.sendall(b"".join(request(j, path="/fast") for j in range(i, i + batch)))
            got, tail = 0, b""
            while got < batch:
                part = s.recv(1 << 18)
                if not part:
                    raise Failed(f"it ended after {i + got} requests")
                joined = tail + part
                got += joined.count(b"\r\n\r\nfast")
                tail = joined[-7:] if not joined.endswith(b"\r\n\r\nfast") else b""
        s.close()

    run(10000, 0)  # the ring of audit lines, 4 MiB, has been gone through once
    before, start_s = e.memory(), time.monotonic()
    run(FLAT_REQUESTS, 10000)
    say(f"{FLAT_REQUESTS / (time.monotonic() - start_s):.0f} requests a second")
    grew(e, before, 2 << 20, f"{FLAT_REQUESTS} requests")


def limit_pipelining_1000(bed):
    """In order, each answer to its own request, each with its line."""
    bed.need("main")
    mark = len(bed.egress.lines())
    s = bed.dial("127.0.0.1", bed.egress.port)
    threading.Thread(target=lambda: s.sendall(b"".join(
        request(i, path=f"/p{i}") for i in range(1000))), daemon=True).start()
    s.settimeout(20)
    data = b""
    while data.count(b"GET /p") < 1000:
        part = s.recv(1 << 18)
        if not part:
            raise Failed(f"it ended after {data.count(b'GET /p')} answers")
        data += part
    s.close()
    want([int(x) for x in re.findall(rb"GET /p(\d+)", data)], list(range(1000)), "the order")
    until(lambda: len(bed.egress.lines()) >= mark + 1000, "1000 lines")
    lines = [x["url"] for x in bed.egress.lines()[mark:]]
    want(lines, [f"http://a.wild.test/p{i}?{i}" for i in range(1000)], "lines")


def limit_body_of_3_gib(bed):
    if not RELEASE:
        raise Skip("no build/release, no build/run, and EGRESS_BIN_RELEASE names none")
    e = start(bed, "release", program=RELEASE)
    piece = bytes(1 << 20)

    def route(peer, _):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
        for _i in range(BIG >> 20):
            peer.send(piece)
        return True

    bed.origins.routes["/3gib"] = route
    s = bed.dial("127.0.0.1", e.port)
    s.settimeout(20)
    s.sendall(get("a.wild.test", "/3gib"))
    buf, got, begin = bytearray(1 << 20), 0, time.monotonic()
    head = s.recv(65536)
    want_in(b"Content-Length: %d" % BIG, head, "length")
    got = len(head) - head.index(b"\r\n\r\n") - 4
    before = most = e.memory()
    while got < BIG:
        n = s.recv_into(buf)
        if n == 0:
            raise Failed(f"it ended after {got} bytes")
        got += n
        if got >> 28 != (got - n) >> 28:
            most = max(most, e.memory())
    seconds = time.monotonic() - begin
    s.close()
    say(f"3 GiB in {seconds:.1f} s, {got / seconds / 1e9:.2f} GB/s, "
        f"memory {(most - before) / 1024:+.0f} KiB")
    want(most - before <= 1 << 20, True, "constant memory")
    want(new_line(e, 0, url="http://a.wild.test/3gib")["down"], BIG, "line")


def limit_events_through_tls(bed):
    """Each event arrives before the next one is sent."""
    arrived, sent = threading.Semaphore(0), []
    n, problem = 60, []

    def route(peer, _):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(n):
            event = b"data: %d\n\n" % i
            sent.append(time.monotonic())
            peer.send(b"%x\r\n%s\r\n" % (len(event), event))
            if not arrived.acquire(timeout=5):
                problem.append(i)
                return False
        peer.send(b"0\r\n\r\n")
        return True

    bed.origins.routes["/events"] = route
    bed.need("main")
    s = bed.wrap(bed.connect("a.wild.test:443"), "a.wild.test")
    s.sendall(get("a.wild.test", "/events", "https"))
    data, delays = b"", []
    while not data.endswith(b"0\r\n\r\n"):
        part = s.recv(65536)
        if not part:
            break
        data += part
        while len(delays) < data.count(b"\n\n"):
            delays.append(time.monotonic() - sent[len(delays)])
            arrived.release()
    s.close()
    want(problem, [], "events that did not arrive before the next")
    want(len(delays), n, "events")
    delays.sort()
    say(f"delay of an event: p50 {statistics.median(delays) * 1000:.2f} ms, "
        f"p95 {delays[int(n * 0.95)] * 1000:.2f} ms, most {delays[-1] * 1000:.2f} ms")


# --- the trail ---

def limit_full_disk(bed):
    """The disk of the audit file is full: nothing is lost, and what could not be recorded does
    not happen."""
    folder = bed.path("full")
    e = start(bed, "full", before="unshare -m sh -c 'mkdir {folder}/disk && mount -t tmpfs -o "
              "size=9m tmpfs {folder}/disk && head -c 8m /dev/zero >{folder}/disk/filler && "
              "exec \"$@\"' sh", EGRESS_AUDIT=f"{folder}/disk/audit.jsonl", keep=False)
    disk = f"/proc/{e.process.pid}/root{folder}/disk"
    e.audit = f"{disk}/audit.jsonl"
    agent = b"User-Agent: " + b"u" * 120 + b"\r\n"
    path = "/" + "p" * 1000
    total, sent = {}, 0
    while total.get(503, 0) < 20:
        if sent > 12000:
            raise Failed(f"no 503 after {sent} requests: {total}")
        for status, n in pipelined(bed, [get("a.wild.test", f"{path}?{sent + i}", fields=agent)
                                         for i in range(200)]).items():
            total[status] = total.get(status, 0) + n
        sent += 200
    want(set(total), {200, 503}, f"statuses {total}")
    mark = bed.origins.mark()
    talk = bed.px(request())
    want((talk.statuses, talk.finals[0].field("x-egress-reason")), ([503], "overloaded"),
         "one more")
    want(talk.finals[0].field("retry-after"), "1", "when to come again")
    want(bed.origins.since(mark), [], "what reached the origin unrecorded")
    say(f"{total[200]} requests until the file and the memory before it were full, "
        f"{os.path.getsize(e.audit) >> 10} KiB in the file")
    want(count_lines(e, "audit"), 1, f"lines in the log: {e.text()[-500:]}")
    os.remove(f"{disk}/filler")
    until(lambda: bed.px(request()).statuses == [200], "it is served again")
    until(lambda: [x for x in e.lines() if x["url"] == "http://a.wild.test/x?0"
                   and x["status"] == 200], "it is on record")
    lines = e.lines()
    want(len([x for x in lines if x["kind"] == "read" and x["verdict"] == "allowed" and "ppp" in x["url"]]),
         total[200],
         "lines of what was served")
    want(sum(x.get("count", 1) for x in lines if x["reason"] == "overloaded") >= total[503] + 1,
         True, "what was not served is counted")
    say(chain(e))
    e.process.send_signal(signal.SIGTERM)
    want(e.process.wait(20), 0, "exit code")
    want("Sanitizer" in e.text() or "requirement" in e.text(), False, "log")
    bed.need("main")


def limit_rotation_under_load(bed):
    e = start(bed, "rotate", EGRESS_AUDIT_MAX_BYTES="64KiB")
    agent = b"User-Agent: " + b"u" * 120 + b"\r\n"
    want(pipelined(bed, [get("a.wild.test", f"/{'r' * 600}?{i}", fields=agent)
                         for i in range(180)]), {200: 180}, "answers")
    until(lambda: sum(1 for _ in open(e.audit)) > 0, "a line in the newest file")
    time.sleep(0.3)
    parts = [p for p in [f"{e.audit}.{i}" for i in range(5, 0, -1)] + [e.audit]
             if os.path.exists(p)]
    want(3 <= len(parts) <= 6, True, f"files: {parts}")
    text = "".join(open(p).read() for p in parts)
    want([len(re.findall(rf"\?{i}\"", text)) for i in range(180)], [1] * 180, "each on record once")
    say(f"{len(parts)} files; {chain(e)}")


def limit_refusals_beside_reads(bed):
    """300 refusals a second: every read has its line, every refusal is in a line or a count."""
    e = start(bed, "refuse")
    refused, reads, stop_at = [0], [0], time.monotonic() + 3
    bad = get("deny.test", "/no")

    def refusals():
        s = bed.dial("127.0.0.1", e.port)
        while time.monotonic() < stop_at:
            begin = time.monotonic()
            s.sendall(bad * 30)
            got = b""
            while got.count(b"HTTP/1.1 403 blocked") < 30 or not got.endswith(b"\n"):
                got += s.recv(1 << 16)
            refused[0] += 30
            time.sleep(max(0, 0.1 - (time.monotonic() - begin)))
        s.close()

    thread = threading.Thread(target=refusals)
    thread.start()
    while time.monotonic() < stop_at:
        want_ok(bed.px(request(reads[0])), "a read beside")
        reads[0] += 1
        time.sleep(0.01)
    thread.join()

    def counted():
        return sum(x.get("count", 1) for x in e.lines() if x["host"] == "deny.test")
    until(lambda: counted() >= refused[0], "refusals on record", 8)
    lines = e.lines()
    denied = [x for x in lines if x["host"] == "deny.test"]
    want(counted(), refused[0], "refusals on record")
    want([x["url"] for x in lines if x["kind"] == "read" and x["verdict"] == "allowed"],
         [f"http://a.wild.test/x?{i}" for i in range(reads[0])], "reads on record")
    want({x["reason"] for x in denied}, {"host_not_listed"}, "reasons")
    want(len(denied) < 300, True, f"{len(denied)} lines")
    say(f"{refused[0]} refusals in {len(denied)} lines, {reads[0]} reads in {reads[0]}")
    chain(e)


# --- signals ---

def limit_worker_stopped_for_3_s(bed):
    """SIGSTOP, as a paused host: what was open goes on, what came meanwhile is served."""
    e = bed.need("main")
    idle = bed.dial("127.0.0.1", e.port)
    want_ok(bed.talk(bed.dial("127.0.0.1", e.port), request()), "before")
    thread, result = download(bed, 1)
    os.kill(e.worker, signal.SIGSTOP)
    try:
        new = bed.dial("127.0.0.1", e.port)
        new.sendall(request(1))
        idle.sendall(request(2))
        want(select.select([new, idle], [], [], 3)[0], [], "answers while it is stopped")
    finally:
        os.kill(e.worker, signal.SIGCONT)
    want_ok(bed.talk(new, b""), "new connection")
    want_ok(bed.talk(idle, b""), "idle connection")
    thread.join()
    want_ok(result[0], "download")
    want(len(result[0].finals[0].body), 20000, "its content")


def limit_worker_killed_during_upload(bed):
    e = start(bed, "killed", keep=False)
    begun = threading.Event()

    def route(peer, _):
        begun.set()
        while peer.more():
            peer.buf = b""
        return False

    bed.origins.routes["/upload"] = route
    s = bed.dial("127.0.0.1", e.port)
    s.sendall(b"POST http://api.model.test/upload HTTP/1.1\r\nHost: api.model.test\r\n"
              b"Content-Length: 100000000\r\n\r\n" + b"u" * 100000)
    want(begun.wait(5), True, "the origin has it")
    before = e.worker
    os.kill(before, signal.SIGKILL)
    talk = casebed.Talk()
    casebed.read_talk(s, talk, 1, 5)
    s.close()
    want(talk.raw, b"", "what the client got")
    until(lambda: count_lines(e, " ready: ") == 2, "a new worker")
    line = new_line(e, 0, url="http://api.model.test/upload")
    want((line["kind"], line["verdict"], line["reason"], line["status"]),
         ("write", "failed", "interrupted", None), "line")
    want(line["up"] >= 0, True, "bytes")
    want_ok(bed.px(request()), "the new worker")
    new_line(e, 0, url="http://a.wild.test/x?0")
    chain(e)
    e.process.terminate()
    want(e.process.wait(20), 0, "exit code")
    bed.need("main")


# --- leaks ---

def limit_leaks_are_seen(bed):
    """The control of every clean end: a worker that loses 16 blocks while seccomp, uid and rights
    are as always is reported by LeakSanitizer at its end."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    libraries = subprocess.run(["ldd", casebed.EGRESS], capture_output=True, text=True).stdout
    with open(casebed.EGRESS, "rb") as f:
        if b"__asan_init" not in f.read():
            raise Skip("not a sanitizer build")
    if not compiler:
        raise Skip("no C compiler")
    folder = bed.path("leak")
    os.mkdir(folder)
    with open(f"{folder}/leak.c", "w") as f:
        f.write(LEAK_C)
    bed.run(compiler, "-shared", "-fPIC", "-O0", "-o", f"{folder}/leak.so", f"{folder}/leak.c",
            "-ldl")
    os.chmod(folder, 0o755)
    first = re.search(r"\S*/libasan\.so\S*", libraries)  # gcc's must be the first library
    preload = " ".join(([first.group(0)] if first else []) + [f"{folder}/leak.so"])
    ends = {}
    for name, extra in (("whole", {}), ("leaky", {"LD_PRELOAD": preload})):
        e = start(bed, name, keep=False, **extra)
        want_ok(bed.px(request()), name)
        e.process.terminate()
        e.process.wait(20)
        ends[name] = e.text()
        if name == "leaky":
            # the harness looks for reports in every file
            with open(e.log, "w") as f:
                f.write("the report of the planted leak was here\n")
    want("LeakSanitizer" in ends["whole"], False, "report of the one without a leak")
    want_in("ERROR: LeakSanitizer: detected memory leaks", ends["leaky"], "report")
    lost = [int(n) for n in re.findall(r"Direct leak of \d+ byte\(s\) in (\d+) object\(s\)",
                                       ends["leaky"])]
    want(14 <= sum(lost) <= 16, True, f"blocks that were found: {lost}")
    say(f"{sum(lost)} of 16 lost blocks were found")
    bed.need("main")


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), r"limit_"))
