#!/usr/bin/env python3
"""Frozen and thawed, as `docker pause` and a paused pod do it: what was open goes on, what was asked in
between is answered at the first try, and the first act is a fresh look, not a burst of expiries.

Every limit is shorter than the freeze, origins close their kept connections in it, and leases end in
it. Bed: sidecarbed.py, frozen by its cgroup. Kills and freezes of single processes: long/kill_gate.py."""
import contextlib
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
import sidecarbed  # noqa: E402
from guardbed import want  # noqa: E402
from health import GREEN_S, Poller, child, guard_lines  # noqa: E402
from sidecarbed import API, GOOD, TOKEN, TWO, WRITE, Inside, dns_name, until  # noqa: E402

FREEZE_S = 6.5        # longer than a guard may be silent
LONG_FREEZE_S = 10.5  # longer than the API waits for a head
LIMITS = {"EGRESS_CLIENT_IDLE": "3s", "EGRESS_HEAD_TIMEOUT": "3s", "EGRESS_HANDSHAKE_TIMEOUT": "3s",
          "EGRESS_FIRST_BYTE": "4s", "EGRESS_STREAM_IDLE": "4s", "EGRESS_UPSTREAM_IDLE": "60s",
          "AGENTIC_WRITE_HOSTS": None}  # without the read-only rule leased addresses are reached directly
CLIENT = """
import ssl, threading

def dial(addr, port, cafile=None, name=None):
    s = socket.create_connection((addr, port), 5)
    if cafile:
        s = ssl.create_default_context(cafile=cafile).wrap_socket(s, server_hostname=name)
    s.settimeout(12)
    return s

def head(method, host, path="/hello.txt", body=b""):
    text = f"{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\n"
    if body:
        text += f"Content-Length: {len(body)}\\r\\n"
    return text.encode() + b"\\r\\n" + body

def answer(s):
    got = b""
    while b"\\r\\n\\r\\n" not in got:
        part = s.recv(65536)
        if not part:
            return "closed"
        got += part
    top, rest = got.split(b"\\r\\n\\r\\n", 1)
    length = next(int(x.split(b":")[1]) for x in top.split(b"\\r\\n") if x.lower().startswith(b"content-length"))
    while len(rest) < length:
        part = s.recv(65536)
        if not part:
            return "cut"
        rest += part
    return top.split(b" ")[1].decode()

def ask(name, wait=9):
    q = struct.pack("!HHHHHH", 0x4242, 0x100, 1, 0, 0, 0) + name + b"\\0\\1\\0\\1"
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(wait)
    u.sendto(q, ("11.22.0.53", 53))
    try:
        return u.recv(600)[3] & 15
    finally:
        u.close()

def tried(f, *args):
    try:
        return f(*args)
    except OSError as e:
        return type(e).__name__

def echo(s):
    s.sendall(b"ping\\n")
    return s.recv(64).decode()

def slow(s):
    n = len(first)
    while n < 262144:
        part = s.recv(65536)
        if not part:
            return f"cut at {n}"
        n += len(part)
    return "whole"

background, results = [], {}

def start(name, f, *args):
    t = threading.Thread(target=lambda: results.__setitem__(name, tried(f, *args)), daemon=True)
    t.start()
    background.append(t)
"""


class Bed(sidecarbed.Bed):
    NAME = "pausebed"

    def nginx(self):
        sidecarbed.NGINX = sidecarbed.NGINX.replace("keepalive_timeout 30s", "keepalive_timeout 2s")
        super().nginx()


def frozen(cgroup, state):
    with open(os.path.join(cgroup, "cgroup.freeze"), "w", encoding="ascii") as f:
        f.write(str(int(state)))

    def done():
        with open(os.path.join(cgroup, "cgroup.events"), encoding="ascii") as f:
            return f"frozen {int(state)}" in f.read()
    until(done, f"frozen {state}", 2)


def fresh(bed):
    bed.free()
    bed.protect(**LIMITS)
    until(lambda: bed.health()[0] == 200, "green", GREEN_S)


def client(bed):
    """Somebody in the sandbox with all that can be open: each was used once."""
    c = bed.user("nobody")
    ca = bed.path("egress-ca.pem")
    c.do(f"import struct, socket\nGOOD, TWO, WRITE = {GOOD[4]!r}, {TWO[4]!r}, {WRITE[4]!r}\n" + CLIENT)
    want(c.do(f"""
r = [ask({dns_name('two.test')!r})]
plain, secure, write = dial(GOOD, 80), dial(GOOD, 443, {ca!r}, "read.test"), \\
    dial(WRITE, 443, {ca!r}, "api.model.test")
direct, half, down = dial(TWO, 5000), dial(GOOD, 80), dial(GOOD, 80)
plain.sendall(head("GET", "read.test")); r.append(answer(plain))
secure.sendall(head("GET", "read.test")); r.append(answer(secure))
write.sendall(head("POST", "api.model.test", "/x", b"one")); r.append(answer(write))
r.append(echo(direct))
half.sendall(b"GET /hello.txt HTTP/1.1\\r\\nHost: re")
down.sendall(head("GET", "read.test", "/slow")); first = down.recv(1000).split(b"\\r\\n\\r\\n", 1)[-1]
result = r
"""), [0, "200", "200", "200", "ping\n"], "before")
    return c


RIGHT = {"idle connection": "200", "idle TLS": "200", "kept connection to write": "200",
         "half a head": "200", "download": "whole", "direct connection": "ping\n", "question": 0}
START = """
start("question", ask, {name!r})
def go(s, data):
    s.sendall(data)
    return answer(s)
start("idle connection", go, plain, head("GET", "read.test"))
start("idle TLS", go, secure, head("GET", "read.test"))
start("kept connection to write", go, write, head("POST", "api.model.test", "/x", b"two"))
start("half a head", go, half, b"ad.test\\r\\n\\r\\n")
start("download", slow, down)
start("direct connection", echo, direct)
"""
END = "for t in background: t.join(12)\nresult = results"


@contextlib.contextmanager
def silent(bed, host):
    """Connections that are open to this origin end without a word: not even the origin's end arrives."""
    with Inside(bed.net):
        out = guardbed.run("ss", "-Htn", "state", "established", "sport", "=", ":443")
        ports = [line.split()[-1].rsplit(":", 1)[1] for line in out.splitlines()
                 if any(a in line for a in host.values())]
        want(len(ports) > 0, True, f"connections to {host}: {out}")
        guardbed.run("nft", "add table inet gone; add chain inet gone in { type filter hook input priority 0; };"
                     " add chain inet gone out { type filter hook output priority 0; }")
        guardbed.run("nft", f"add rule inet gone in tcp sport {{ {','.join(ports)} }} drop; "
                     f"add rule inet gone out tcp dport {{ {','.join(ports)} }} drop")
    try:
        yield
    finally:
        with Inside(bed.net):
            guardbed.run("nft", "delete table inet gone")


def judged(bed, what, poller, before, thawed, mark):
    time.sleep(1.5)
    red = poller.red_since(thawed - 0.01)
    want(red[:3], [], f"{what}: health was red")
    want((child(bed, "egress-worker"), child(bed, "egress-guard")), before, f"{what}: the processes")
    want(guard_lines(bed, mark), [], f"{what}: lines kind=guard")
    lines = [x["rule"] for x in bed.lines(mark) if x["kind"] == "lifecycle"]
    want(len(lines), 1, f"{what}: lines kind=lifecycle")
    print(f"  {what}: on record: {lines[0]}")


def case_sidecar_frozen_while_clients_ask(bed):
    fresh(bed)
    c = client(bed)
    before = child(bed, "egress-worker"), child(bed, "egress-guard")
    mark = bed.audit_mark()
    with Inside(bed.box):
        api = socket.create_connection(("127.0.0.1", API), 5)
    head = f"GET /policy HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n\r\n".encode()
    api.sendall(head + head[:40])
    want(api.recv(12), b"HTTP/1.1 200", "the API")
    frozen(bed.cgroup, True)
    time.sleep(LONG_FREEZE_S - 4)
    c.do(START.format(name=dns_name("two.test")))
    time.sleep(4)
    poller = Poller(bed)
    thawed = time.monotonic()
    frozen(bed.cgroup, False)
    try:
        time.sleep(0.5)
        api.sendall(head[40:])
        want(c.do(END), RIGHT, "what was asked while it was frozen")
        api.settimeout(2)
        got = b""
        while got.count(b"HTTP/1.1 ") < 1:
            got += api.recv(65536)
        want(got.split(b"HTTP/1.1 ")[1][:3], b"200", "a head to the API that came in two parts")
        api.close()
        judged(bed, "sidecar frozen", poller, before, thawed, mark)
    finally:
        poller.stop()


def case_whole_sandbox_frozen(bed):
    fresh(bed)
    c = client(bed)
    before = child(bed, "egress-worker"), child(bed, "egress-guard")
    mark = bed.audit_mark()
    with silent(bed, WRITE):
        for g in (bed.sandbox, bed.cgroup):
            frozen(g, True)
        time.sleep(FREEZE_S)
        poller = Poller(bed)
        thawed = time.monotonic()
        for g in (bed.cgroup, bed.sandbox):
            frozen(g, False)
        try:
            c.do(START.format(name=dns_name("two.test")))
            want(c.do(END), RIGHT, "what was asked at once afterwards")
            judged(bed, "sandbox frozen", poller, before, thawed, mark)
        finally:
            poller.stop()


if __name__ == "__main__":
    sidecarbed.Bed = Bed
    sys.exit(sidecarbed.main(globals()))
