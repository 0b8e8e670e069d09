#!/usr/bin/env python3
"""Kills, freezes and failing parts of the whole sidecar in a sandbox's namespace, under attack.

Root in the sandbox makes forbidden attempts of four kinds, at least 500 a second, all the time: UDP,
TCP, raw packets with a forged source, raw segments that claim to be of an established flow. A tap
behind the box counts whatever it sees for the address that nobody may reach: zero, while the same
attempts without the sidecar are seen to arrive. Clients work at the same time. Bed: netns/sidecarbed.py,
which also answers --list. Before this: netns/health.py.
"""
import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

NETNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "netns")
sys.path.insert(0, NETNS)
import guard_attacks  # noqa: E402
import guardbed  # noqa: E402
import sidecarbed  # noqa: E402
from guardbed import want  # noqa: E402
from sidecarbed import BOX, EVIL, GOOD, TWO, Failed, Inside, until  # noqa: E402

RATE = 800            # attempts a second that are made, of four kinds
RATE_MIN = 500
AGAIN_S = 10          # until everything works again after a kill
FREEZE_S = 20
ROUNDS = 3            # kills of one process at one moment
MOMENTS = 10          # of one change, in which a process is killed
LIVED_S = 10.5        # a worker that lived so long begins another row: ten in a row close egress
MANY = 4000           # rules of the policy that is changed to and fro
DISK = 256 << 10

ATTACK = """
import errno, random
counts, over = [0, 0, 0, 0], threading.Event()
def attack(rate):
    u = {4: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
         6: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)}
    r = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    def one(kind, i):
        if kind == 0:
            f = (4, 6)[i % 2]
            u[f].sendto(b"forbidden", (EVIL[f], 5000))
        elif kind == 1:
            f = (4, 6)[i % 2]
            s = socket.socket((socket.AF_INET, socket.AF_INET6)[i % 2], socket.SOCK_STREAM)
            s.setblocking(False)
            open_now.append(s)
            s.connect((EVIL[f], 5000))
        elif kind == 2:
            src = f"11.22.0.{1 + i % 250}"
            r.sendto(ip(src, EVIL[4], 17, udp(src, EVIL[4], 1024 + i % 60000, 5000, b"forbidden")),
                     (EVIL[4], 0))
        else:
            r.sendto(ip(BOX[4], EVIL[4], 6, tcp(BOX[4], EVIL[4], 1024 + i % 60000, 443, 0x18,
                     b"forbidden", seq=i, ack=i)), (EVIL[4], 0))
    open_now, start, i = [], time.monotonic(), 0
    while not over.is_set():
        due = int((time.monotonic() - start) * rate)
        while i < due:
            with_kind = i % 4
            try:
                one(with_kind, i // 4)
            except OSError:
                pass
            counts[with_kind] += 1
            i += 1
        while len(open_now) > 50:
            open_now.pop(0).close()
        time.sleep(0.005)
"""

CLIENT = """
seen, over, stop = [], threading.Event(), False
def ask(name, wait=1.0):
    q = struct.pack("!HHHHHH", 0x4242, 0x100, 1, 0, 0, 0)
    q += b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\\0\\0\\1\\0\\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(wait)
        s.sendto(q, ("11.22.0.53", 53))
        return s.recv(1200)[3] & 15
def get(addr, name, wait=2.0):
    with socket.create_connection((addr, 80), wait) as s:
        s.settimeout(wait)
        s.sendall(f"GET /x HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        got = b""
        while part := s.recv(65536):
            got += part
    return got.split(b"\\r\\n")[0].decode()
def direct(addr, port=5000, wait=2.0):
    with socket.create_connection((addr, port), wait) as s:
        s.settimeout(wait)
        s.sendall(b"hello")
        return s.recv(10).decode()
def tls(addr, name, ca, wait=3.0):
    c = ssl.create_default_context(cafile=ca)
    with socket.create_connection((addr, 443), wait) as s:
        with c.wrap_socket(s, server_hostname=name) as t:
            t.sendall(f"GET /x HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
            return t.recv(100).split(b"\\r\\n")[0].decode()
def client():
    while not over.is_set():
        for what in (lambda: ask("read.test", 0.5) == 0, lambda: " 200 " in get(GOOD[4], "read.test")):
            try:
                good = what()
            except OSError:
                good = False
            seen.append((time.monotonic(), good))
        time.sleep(0.02)
"""


class Bed(sidecarbed.Bed):
    """Without the read-only rule, so that leased addresses can be reached directly."""
    NAME = "killbed"

    def settings(self, **more):
        return super().settings(**{"AGENTIC_WRITE_HOSTS": None, **more})

    def start(self):
        super().start()
        self.attacker = self.user("kubernetes")
        self.attacker.do(guard_attacks.PRELUDE + f"BOX, EVIL = {BOX!r}, {EVIL!r}\n" + ATTACK)
        self.client = self.user("nobody")
        self.client.do(f"GOOD, TWO = {GOOD!r}, {TWO!r}\n" + CLIENT)

    def halt(self):
        """Whatever way it ends here: no report of a sanitizer."""
        if not self.process:
            return
        process, self.process = self.process, None
        process.terminate()
        process.wait(20)
        for bad in ("Sanitizer", "runtime error:", "requirement failed"):
            if bad in self.output():
                raise Failed(f"log: {self.output()[-800:]}")

    def pid(self, name):
        if name == "supervisor":
            return self.process.pid
        uid = {"worker": "10042", "guard": "10043"}[name]
        out = subprocess.run(["ps", "--ppid", str(self.process.pid), "-o", "pid=,uid="],
                             capture_output=True, text=True, check=False).stdout.split()
        return next((int(out[i]) for i in range(0, len(out), 2) if out[i + 1] == uid), None)

    def works(self):
        """None, or what does not: health, name, web, TLS by our CA, a leased address, a refused name."""
        if self.health()[0] != 200:
            return f"health: {self.health()}"
        for what, code, right in (
                ("name", "ask('read.test')", 0), ("refused name", "ask('evil.test')", 3),
                ("leased name", "ask('two.test')", 0), ("leased address", "direct(TWO[4])", "hello"),
                ("web", "get(GOOD[4], 'read.test')", "HTTP/1.1 200 OK"),
                ("TLS", f"tls(GOOD[4], 'read.test', {self.path('egress-ca.pem')!r})",
                 "HTTP/1.1 200 OK")):
            try:
                got = self.client.do(f"result = {code}")
            except OSError as e:
                got = str(e)
            if got != right:
                return f"{what}: {got!r}"
        return None

    def ca(self):
        with open(self.path("egress-ca.pem"), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def policy(self):
        code, _, body = self.ask("GET", "/policy")
        want(code, 200, "GET /policy")
        return json.loads(body)["policy"]


def forbidden(frame):
    """Not neighbour discovery: IP for the address that nobody may reach, or from a foreign source."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        return frame[30:34] == socket.inet_aton(EVIL[4])
    return kind == b"\x86\xdd" and frame[38:54] == socket.inet_pton(socket.AF_INET6, EVIL[6])


@contextlib.contextmanager
def attacked(bed, what, zero=True):
    """Attempts all the while; how many there were, and what the tap saw."""
    bed.tap.clear()
    bed.attacker.do(f"counts[:] = [0] * 4; over.clear(); "
                    f"threading.Thread(target=attack, args=({RATE},), daemon=True).start()")
    start = time.monotonic()
    try:
        yield
    finally:
        counts = bed.attacker.do("over.set(); result = list(counts)")
        took = time.monotonic() - start
        time.sleep(0.2)
        seen = bed.tap.has(forbidden)
        print(f"  {what}: {took:.1f} s, {sum(counts)} attempts ({sum(counts) / took:.0f}/s; udp, tcp, "
              f"raw, forged {counts}), {seen} seen behind the box", flush=True)
    if sum(counts) / took < RATE_MIN or min(counts) < sum(counts) / 5:
        raise Failed(f"{what}: only {sum(counts) / took:.0f} attempts a second")
    if zero:
        want(seen, 0, f"{what}: forbidden packets behind the box")
    elif min(seen, sum(counts) // 2) < sum(counts) // 2:
        raise Failed(f"{what}: only {seen} of {sum(counts)} arrive")


@contextlib.contextmanager
def used(bed):
    """A client at work; prints what became of its requests."""
    bed.client.do("seen.clear(); over.clear(); threading.Thread(target=client, daemon=True).start()")
    try:
        yield
    finally:
        rows = bed.client.do("over.set(); result = seen")
        print(f"  client: {sum(1 for r in rows if r[1])} of {len(rows)} requests answered")


def fresh(bed):
    """A new sidecar that works."""
    bed.free()
    bed.protect()
    until(lambda: bed.works() is None, f"works: {bed.works()}", AGAIN_S)


def running(bed):
    if not bed.process or bed.process.poll() is not None:
        fresh(bed)
    back(bed, "before")


def back(bed, what):
    """Everything works without anybody's help; how long that took."""
    start, why = time.monotonic(), "?"
    while why:
        if time.monotonic() > start + AGAIN_S:
            raise Failed(f"{what}: {why}; {bed.output()[-700:]}")
        try:
            why = bed.works()
        except (OSError, ValueError) as e:
            why = f"{type(e).__name__}: {e}"
    return time.monotonic() - start


def kill(bed, name):
    """Ends it, and returns its number; the supervisor takes the others along. The kernel's rules work
    while the one killed before is not replaced yet, so there may be none for a moment."""
    pid = until(lambda: bed.pid(name), f"a {name}", AGAIN_S)
    os.kill(pid, signal.SIGKILL)
    if name == "supervisor":
        bed.process.wait(5)
    return pid


def anew(bed, start_policy):
    """After the supervisor: it is started anew, and has the policy of the start."""
    time.sleep(0.5)
    bed.protect()
    took = back(bed, "anew")
    want(bed.policy(), start_policy, "the policy after a new start")
    return took


def other_policy(n):
    rows = [{"action": "allow", "target": t} for t in
            ("read.test", "two.test", "api.model.test", GOOD[4], "*.wild.test")]
    rows += [{"action": "allow", "target": f"host{i}.example.test"} for i in range(n // 2)]
    rows += [{"action": "allow", "target": f"11.{30 + i // 250}.{i % 250}.1"} for i in range(n // 2)]
    return {"defaultAction": "deny", "egress": rows}


def case_control_without_the_sidecar(bed):
    bed.free()
    with Inside(bed.box):  # the kernel must not refuse to route answers of forged sources
        guardbed.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", check=False)
    with attacked(bed, "without the sidecar", zero=False):
        time.sleep(3)


def killed_during_traffic(bed, name):
    running(bed)
    start, ca, took = bed.policy(), bed.ca(), []
    with attacked(bed, f"{name} during traffic"), used(bed):
        for i in range(ROUNDS):
            time.sleep(0.5 + 0.13 * i)
            old = kill(bed, name)
            if name == "supervisor":
                took.append(anew(bed, start))
                continue
            took.append(back(bed, name))
            # What is granted already works without a guard.
            until(lambda o=old: bed.pid(name) not in (None, o), f"a new {name}", AGAIN_S)
            want((bed.ca() == ca, bed.policy() == start), (True, True), "same CA, same policy")
    print(f"  works again after {', '.join(f'{t:.2f} s' for t in took)}")


def killed_during_a_change(bed, name):
    """At different moments of a change: afterwards one policy or the other is in force, whole, and
    the new one if the change was answered with success."""
    fresh(bed)
    start, ca, ends, moments = bed.policy(), bed.ca(), [], []
    begin = time.monotonic()
    want(bed.ask("POST", "/policy", json.dumps(other_policy(MANY)))[0], 200, "a change")
    takes = time.monotonic() - begin
    with attacked(bed, f"{name} during a change of policy"):
        for i in range(MOMENTS):
            if name == "worker" and i == MOMENTS // 2:
                time.sleep(LIVED_S)
            before, answer = bed.policy(), []
            new = other_policy(MANY - 2 - 2 * i)

            def change(body=json.dumps(new), answer=answer):
                try:
                    answer.append(bed.ask("POST", "/policy", body)[0])
                except (OSError, http.client.HTTPException) as e:
                    answer.append(type(e).__name__)
            t = threading.Thread(target=change)
            t.start()
            moments.append(takes * (i + 0.5) / MOMENTS)
            time.sleep(moments[-1])
            kill(bed, name)
            t.join(20)
            if name == "supervisor":
                ends.append((answer[0], "start"))
                anew(bed, start)
                continue
            back(bed, name)
            now = len(bed.policy()["egress"])
            ends.append((answer[0], "new" if now == len(new["egress"]) else
                         "before" if now == len(before["egress"]) else f"neither: {now}"))
            if ends[-1][1] not in ("new", "before") or (answer[0] == 200 and ends[-1][1] != "new"):
                raise Failed(f"answer {answer[0]}, policy in force {ends[-1][1]}")
            want(bed.ca(), ca, "the CA")
    print(f"  a change of {MANY} rules takes {takes * 1000:.0f} ms, kills after "
          f"{', '.join(f'{m * 1000:.0f}' for m in moments)} ms: {ends}")
    if all(a == 200 for a, _ in ends):
        raise Failed("no kill fell into a change")


def killed_before_the_connect(bed, name):
    """The answer has come, the address is leased: it may be reached, whoever has died meanwhile."""
    fresh(bed)
    start = bed.policy()
    with attacked(bed, f"{name} between answer and connect"):
        for i in range(ROUNDS):
            want(bed.client.do("result = ask('two.test')"), 0, "the answer")
            kill(bed, name)
            want(bed.client.do("result = direct(TWO[4])"), "hello", "the leased address")
            if name == "supervisor":
                anew(bed, start)
            else:
                back(bed, name)


def frozen(bed, name):
    running(bed)
    start, ca = bed.policy(), bed.ca()
    with attacked(bed, f"{name} frozen for {FREEZE_S} s"), used(bed):
        pid = bed.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(FREEZE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it was replaced
                os.kill(pid, signal.SIGCONT)
        took = back(bed, name)
    want((bed.ca() == ca, bed.policy() == start), (True, True), "same CA, same policy")
    print(f"  works again {took:.2f} s after it goes on")


for _n in ("worker", "guard", "supervisor"):
    globals()[f"case_{_n}_killed_during_traffic"] = lambda b, n=_n: killed_during_traffic(b, n)
    globals()[f"case_{_n}_killed_during_a_change"] = lambda b, n=_n: killed_during_a_change(b, n)
    globals()[f"case_{_n}_killed_before_the_connect"] = \
        lambda b, n=_n: killed_before_the_connect(b, n)
    globals()[f"case_{_n}_frozen_and_thawed"] = lambda b, n=_n: frozen(b, n)


def fill_leases(bed):
    """The lease set up to its limit, whatever is in it; the number of elements put there."""
    at, step = 0, 16384
    while step:
        rows = ", ".join(f"{100 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.7 timeout 1h"
                         for i in range(at, at + step))
        try:
            bed.nft("-f", "-", text=f"add element inet opensandbox dyn_allow_v4 {{ {rows} }}\n")
            at += step
        except Failed:
            step //= 2
    return at


def case_full_set_refuses_the_lease(bed):
    """Netlink errors: the kernel has no room for another lease. The name is not answered."""
    fresh(bed)
    with attacked(bed, "full set"):
        n = fill_leases(bed)
        want(bed.client.do("result = ask('host.wild.test', 5)"), 2, "a name that cannot be leased")
        want(bed.client.do("result = ask('evil.test', 5)"), 3, "a refused name")
        want(bed.health()[0], 200, "health")
    print(f"  {n} elements until the set was full")
    bed.nft("flush", "set", "inet", "opensandbox", "dyn_allow_v4")
    back(bed, "with room again")


def case_full_disk_for_the_audit_file(bed):
    bed.free()
    disk = bed.path("disk")
    os.mkdir(disk)
    os.chmod(disk, 0o777)
    guardbed.run("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=777", "tmpfs", disk)
    try:
        bed.protect(EGRESS_AUDIT=os.path.join(disk, "audit.jsonl"))
        back(bed, "before")
        with attacked(bed, "full disk"), used(bed):
            time.sleep(1.5)
            with open(os.path.join(disk, "filler"), "wb", buffering=0) as f, \
                    contextlib.suppress(OSError):
                while True:
                    f.write(b"x" * 4096)
            time.sleep(5)
            with open(os.path.join(disk, "audit.jsonl"), "rb") as f:
                at_full = len(f.read())
            os.unlink(os.path.join(disk, "filler"))
            time.sleep(1.5)
            took = back(bed, "with room again")
            time.sleep(1.5)
        seq = [x["seq"] for x in bed.lines()]
        want(seq, list(range(seq[0], seq[0] + len(seq))), "seq without holes")
        print(f"  {at_full} bytes when full, works again after {took:.2f} s, {len(seq)} lines, "
              "seq whole")
        bed.free()
    finally:
        bed.free()
        guardbed.run("umount", "-l", disk, check=False)


if __name__ == "__main__":
    sidecarbed.Bed = Bed
    sys.exit(sidecarbed.main(globals()))
