#!/usr/bin/env python3
"""What /healthz says when something is lost: red within a second, with the cause, and green again
when it ends. And starts that cannot succeed, which stay and speak.

A poller asks ten times a second, as a platform may. Where a loss means that nothing may get out, the
same attempts are seen to get out without the sidecar. Bed: sidecarbed.py. After this: long/kill_gate.py.
"""
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guard_attacks  # noqa: E402
import guardbed  # noqa: E402
import sidecarbed  # noqa: E402
from sidecarbed import (API, DOCKER_CAPS, EVIL, GOOD, NET_ADMIN, RESOLVER, Failed, Inside,  # noqa: E402
                        until)
from guardbed import DNS, WEB, want  # noqa: E402

POLL_S = 0.1
RED_S = 1.0
GREEN_S = 8.0
NET_RAW = 13
HOOKS_MAX = 1024  # of one device in the kernel
LAUNCH_S = 6
CRASHES = 10  # in a row, then egress closes

SAY = """
u = socket.socket({family}, socket.SOCK_DGRAM)
u.sendto({data!r}, ({addr!r}, 5000))
u.close()
"""
ASK = """
q = struct.pack("!HHHHHH", 0x4242, 0x100, 1, 0, 0, 0) + {name!r} + b"\\0\\1\\0\\1"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout({wait})
u.sendto(q, ("11.22.0.53", 53))
result = u.recv(600)[3] & 15
u.close()
"""
LISTENER = """
s = socket.socket({family}, {kind})
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(({addr!r}, {port}))
{kind} == 1 and s.listen(8)
"""


class Bed(sidecarbed.Bed):
    """Without the read-only rule, so that datagrams to an allowed address get out."""
    NAME = "healthbed"
    plain = somebody = None

    def halt(self):
        """An ordered stop; the guard may have been killed before."""
        if not self.process:
            return
        process, self.process = self.process, None
        process.terminate()
        code = process.wait(20)
        for bad in ("Sanitizer", "runtime error:", "requirement failed"):
            if bad in self.output():
                raise Failed(f"log: {self.output()[-800:]}")
        want(code, 0, f"exit code: {self.output()[-400:]}")

    def settings(self, **more):
        return super().settings(**{"AGENTIC_WRITE_HOSTS": None, **more})



class Poller(threading.Thread):
    """/healthz, ten times a second, from the moment it is made."""

    def __init__(self, bed):
        super().__init__(daemon=True)
        self.bed, self.seen, self.over = bed, [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(POLL_S):
            at = time.monotonic()
            self.seen.append((at, *self.bed.health()))

    def red_since(self, at):
        return [(t, why) for t, code, why in list(self.seen) if t > at and code == 503]

    def stop(self):
        self.over.set()
        self.join()


def ready(bed):
    """The one sidecar of those cases that need no settings of their own, in good health."""
    if bed.plain is None or bed.plain is not bed.process:
        bed.free()
        bed.protect()
        bed.plain = bed.process
    until(lambda: bed.health()[0] == 200, "green", GREEN_S)


def guard_lines(bed, mark):
    return [x for x in bed.lines(mark) if x["kind"] == "guard"]


def loses(bed, name, hurt, cause, mend=None, lines=1, within=RED_S):
    """hurt(): red with this cause, and a line on record; mend(), if it does not mend itself: green."""
    poller, mark = Poller(bed), bed.audit_mark()
    try:
        start = time.monotonic()
        hurt()
        red = until(lambda: poller.red_since(start), f"{name}: red", within + 4)
        if cause not in red[0][1]:
            raise Failed(f"{name}: {red[0][1]!r} says nothing of {cause!r}")
        took = red[0][0] - start
        if took > within:
            raise Failed(f"{name}: red after {took:.2f} s")
        if mend:
            time.sleep(1.2)
            want(bed.health()[0], 503, f"{name}: still lost")
            mend()
        mended = time.monotonic()
        until(lambda: poller.seen[-1][0] > mended and poller.seen[-1][1] == 200, f"{name}: green",
              GREEN_S)
    finally:
        poller.stop()
    print(f"  {name}: red after {took * 1000:.0f} ms ({red[0][1]}), "
          f"green {(poller.seen[-1][0] - mended) * 1000:.0f} ms after its end")
    if lines is not None:
        want(len(guard_lines(bed, mark)), lines, f"{name}: lines kind=guard")


# ---- what gets out

def somebody(bed):
    """Root in the sandbox."""
    if bed.somebody is None:
        bed.somebody = bed.user("kubernetes")
        bed.somebody.do(guard_attacks.PRELUDE)
    return bed.somebody


def say(agent, addr, data):
    agent.do(SAY.format(family=int(socket.AF_INET6 if ":" in addr else socket.AF_INET), data=data,
                        addr=addr))


def leaks(bed, tag):
    """Of ten datagrams to addresses that policy may allow or not, how many came behind the box."""
    tags = [f"<{tag}-{time.monotonic_ns()}-{i}>".encode() for i in range(10)]
    for i, t in enumerate(tags):
        with contextlib.suppress(OSError):
            say(somebody(bed), (GOOD[4], EVIL[6])[i % 2], t)
    time.sleep(0.1)
    return sum(1 for t in tags if bed.tap.has(t))


def control(bed):
    """Without the sidecar all of it gets out."""
    bed.free()
    until(lambda: leaks(bed, "control") == 10, "ten of ten datagrams get out without the sidecar")


@contextlib.contextmanager
def without(*caps):
    """Programs that the bed starts lack these rights."""
    old = sidecarbed.DOCKER_CAPS, sidecarbed.NET_ADMIN
    sidecarbed.DOCKER_CAPS = tuple(c for c in DOCKER_CAPS if c not in caps)
    if NET_ADMIN in caps:
        sidecarbed.NET_ADMIN = -1
    try:
        yield
    finally:
        sidecarbed.DOCKER_CAPS, sidecarbed.NET_ADMIN = old


def red_start(bed, cause, settled=0.5, **settings):
    """A start that becomes red with this cause, and stays so, while nothing gets out."""
    bed.launch(**settings)
    with contextlib.suppress(Failed):
        until(lambda: cause in bed.health()[1] or bed.process.poll() is not None, cause, LAUNCH_S)
    time.sleep(settled)
    code, why = bed.health()
    if code != 503 or cause not in why:
        raise Failed(f"health {code} {why!r}, should be 503 for {cause!r}: {bed.output()[-400:]}")
    print(f"  {why}")


def closed(bed, cause, leak=0, **settings):
    control(bed)
    red_start(bed, cause, **settings)
    want(leaks(bed, "closed"), leak, "datagrams that get out of a closed start")
    if f"closed: {cause[:8]}" not in bed.output() and f"egress: {cause[:8]}" not in bed.output() \
            and cause not in bed.output():
        raise Failed(f"the cause is not in the output: {bed.output()[-400:]}")


# ---- the nine losses

def case_table_missing(bed):
    ready(bed)
    loses(bed, "table", lambda: bed.nft("delete", "table", "inet", "opensandbox"), "table")
    want(leaks(bed, "table"), 5, "datagrams to an allowed address")


def case_redirect_removed(bed):
    ready(bed)
    text = bed.nft("list", "table", "inet", "opensandbox")
    chain = next(part.split()[0] for part in text.split("\n\tchain ")[1:]
                 if "type nat hook output" in part)
    loses(bed, "redirect", lambda: bed.nft("flush", "chain", "inet", "opensandbox", chain),
          "redirect")


def case_egress_hook_removed(bed):
    ready(bed)
    loses(bed, "egress hook", lambda: bed.nft("delete", "table", "netdev", "rawguard"),
          "egress hook")


def hooks(first, n):
    """n more chains at the egress of the device, as one batch."""
    return "".join(f"add chain netdev full c{i} {{ type filter hook egress device \"wan\" "
                   f"priority {i}; policy accept; }}\n" for i in range(first, first + n))


def take_hook(bed):
    """Our chain away and no room for it: the kernel counts one that goes until the batch is over."""
    guard = child(bed, "egress-guard")
    os.kill(guard, signal.SIGSTOP)
    try:
        bed.nft("-f", "-", text="delete table netdev rawguard\nadd table netdev full\n" +
                hooks(0, HOOKS_MAX - 1))
        bed.nft("-f", "-", text=hooks(HOOKS_MAX, 1))
    finally:
        os.kill(guard, signal.SIGCONT)


def case_egress_hook_refused(bed):
    """The kernel has no room for it: at the start, and after green."""
    control(bed)
    bed.nft("-f", "-", text="add table netdev full\n" + hooks(0, HOOKS_MAX))
    try:
        red_start(bed, "the kernel refuses the egress hook", EGRESS_REQUIRE_RAW_GUARD="1")
        want(leaks(bed, "no-hook"), 0, "datagrams that get out")
        bed.nft("delete", "table", "netdev", "full")
        bed.free()
        bed.protect(EGRESS_REQUIRE_RAW_GUARD="1")
        want(leaks(bed, "hook"), 5, "datagrams to an allowed address")

        def mend():
            want(leaks(bed, "lost-hook"), 0, "datagrams that get out")
            bed.nft("delete", "table", "netdev", "full")
        loses(bed, "hook, refused", lambda: take_hook(bed), "egress hook", mend, lines=None)
        want(leaks(bed, "hook-again"), 5, "datagrams to an allowed address")
    finally:
        bed.nft("delete", "table", "netdev", "full", check=False)


def case_queue_taken(bed):
    """By an AF_XDP socket of the sandbox: at the start, and on a device that comes later."""
    control(bed)
    taker = somebody(bed)
    taker.do(HOLD.format(device="wan"))
    bed.launch()
    until(lambda: "queues are taken" in bed.health()[1], "red: queue", LAUNCH_S)
    print(f"  at the start: {bed.health()[1]}")
    taker.do("os.close(held)")
    until(lambda: bed.health()[0] == 200, "green", GREEN_S)
    guard = child(bed, "egress-guard")

    def grab():
        os.kill(guard, signal.SIGSTOP)
        try:
            with Inside(bed.box):
                guardbed.run("ip", "link", "add", "late", "type", "veth", "peer", "name", "later")
                guardbed.run("ip", "link", "set", "late", "up")
            taker.do(HOLD.format(device="late"))
        finally:
            os.kill(guard, signal.SIGCONT)
    try:
        loses(bed, "queue", grab, "queues are taken", lambda: taker.do("os.close(held)"))
    finally:
        with Inside(bed.box):
            guardbed.run("ip", "link", "del", "late", check=False)


HOLD = """
x = socket.socket(44, socket.SOCK_RAW)
held = os.dup(x.fileno())
x.close()
area = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(area))
for name, value in ((4, struct.pack("QQIIII", at, 4096, 2048, 0, 0, 0)), (5, struct.pack("I", 1)),
                    (6, struct.pack("I", 1)), (2, struct.pack("I", 1))):
    if libc.setsockopt(held, 283, name, value, len(value)) != 0:
        raise OSError(ctypes.get_errno(), f"option {{name}}")
for _ in range(50):
    where = struct.pack("HHIII", 44, 2, socket.if_nametoindex({device!r}), 0, 0)
    if libc.bind(held, where, len(where)) == 0:
        break
    if ctypes.get_errno() != 16:
        raise OSError(ctypes.get_errno(), "bind of AF_XDP")
    time.sleep(0.02)
else:
    raise OSError(16, "bind of AF_XDP")
"""


def case_ca_file_unwritable(bed):
    ready(bed)
    path = bed.path("egress-ca.pem")

    def hurt():
        os.unlink(path)
        os.mkdir(path)
        open(os.path.join(path, "x"), "w").close()

    def mend():
        os.unlink(os.path.join(path, "x"))
        os.rmdir(path)
    loses(bed, "CA file", hurt, "CA certificate", mend, lines=None)
    with open(path) as f:
        if "BEGIN CERTIFICATE" not in f.read():
            raise Failed("no certificate in the file")


def case_ca_file_stays_lost_for_the_next_worker(bed):
    """What the supervisor found is told to each worker anew."""
    ready(bed)
    path = bed.path("egress-ca.pem")
    os.unlink(path)
    os.mkdir(path)
    open(os.path.join(path, "x"), "w").close()
    try:
        until(lambda: bed.health()[0] == 503, "red", 3)
        os.kill(child(bed, "egress-worker"), signal.SIGKILL)
        time.sleep(2)
        status, cause = bed.health()[:2]
        want((status, "CA certificate" in cause), (503, True), f"after the worker's end: {cause}")
    finally:
        os.unlink(os.path.join(path, "x"))
        os.rmdir(path)
    until(lambda: bed.health()[0] == 200, "green", GREEN_S)


def resolve(bed, wait=1.0, name="read.test"):
    try:
        return somebody(bed).do(ASK.format(name=sidecarbed.dns_name(name), wait=wait))
    except OSError:
        return None


def case_resolver_dead(bed):
    """One that refuses, and one that is silent; found by the next question, not by a probe."""
    bed.free()
    bed.protect(OPENSANDBOX_EGRESS_DNS_UPSTREAM=RESOLVER[4])
    unbound = find_unbound(bed)
    want(resolve(bed), 0, "an answer before")

    def gone():
        unbound.kill()
        unbound.wait()
        resolve(bed, 0.3)

    def back():
        with Inside(bed.net):
            bed.unbound()
    loses(bed, "resolver that refuses", gone, "resolver", back, lines=None)
    want(resolve(bed), 0, "an answer after")
    again = find_unbound(bed)

    def frozen():
        again.send_signal(signal.SIGSTOP)
        resolve(bed, 0.1)
    loses(bed, "resolver that is silent", frozen, "resolver",
          lambda: again.send_signal(signal.SIGCONT), lines=None, within=1.6)
    want(resolve(bed), 0, "an answer after that")
    mark = len(bed.hostile.asked)
    resolve(bed, 2.0, "silent.wild.test")  # the resolver's own silence about one name
    want(bed.health()[0], 200, f"a name without an answer ({len(bed.hostile.asked) - mark} asked)")


def find_unbound(bed):
    return [p for p in bed.processes if p.poll() is None and p.args[0] == "unbound"][-1]


def case_foreign_listener(bed):
    ready(bed)
    for what, addr, port, kind in (("TCP", "127.0.0.2", WEB, 1), ("UDP", "127.0.0.2", DNS, 2)):
        loses(bed, f"listener, {what}",
              lambda a=addr, p=port, k=kind: somebody(bed).do(LISTENER.format(
                  family=int(socket.AF_INET), kind=k, addr=a, port=p)),
              "listens", lambda: somebody(bed).do("s.close()"))
    somebody(bed).do(LISTENER.format(family=int(socket.AF_INET), kind=1, addr="127.0.0.2",
                                    port=WEB + 1000))
    time.sleep(1.2)
    want(bed.health()[0], 200, "a listener on a port that is not ours")
    somebody(bed).do("s.close()")


def case_memory_lock_too_small(bed):
    """Only at the start: what is locked stays so."""
    bed.free()
    mount = bed.mount_cgroup

    def small():
        mount()
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    bed.mount_cgroup = small
    try:
        red_start(bed, "cannot be locked", EGRESS_REQUIRE_LOCKED_MEMORY="1")
        bed.free()
        bed.protect()
        code, _, body = bed.ask("GET", "/status")
        want(code == 200 and '"degraded"' in body, True, "degraded without the strict setting")
    finally:
        del bed.mount_cgroup


def child(bed, name):
    """A process of the running sidecar by its name; the worker's is egress."""
    out = subprocess.run(["ps", "--ppid", str(bed.process.pid), "-o", "pid=,comm="],
                         capture_output=True, text=True, check=False).stdout.split()
    return next((int(out[i]) for i in range(0, len(out), 2) if out[i + 1] == name), None)


def case_guard_gone(bed):
    ready(bed)
    loses(bed, "guard", lambda: os.kill(child(bed, "egress-guard"), signal.SIGKILL), "guard")
    want(leaks(bed, "guard"), 5, "datagrams to an allowed address")
    want(resolve(bed), 0, "an answer")


def case_guard_leaves_signals_to_us(bed):
    """A terminal sends them to all processes of its group."""
    ready(bed)
    pid = child(bed, "egress-guard")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        os.kill(pid, number)
    time.sleep(0.3)
    want((child(bed, "egress-guard"), bed.health()[0]), (pid, 200), "the same guard, and green")


def case_guard_frozen(bed):
    """It is given up after five seconds without a sign of life, though nobody asks it anything, and
    replaced."""
    ready(bed)
    pid = child(bed, "egress-guard")
    loses(bed, "frozen guard", lambda: os.kill(pid, signal.SIGSTOP), "the guard is silent", within=6)
    want(child(bed, "egress-guard") not in (None, pid), True, "another guard")
    want(resolve(bed), 0, "an answer")


# ---- what is asked for and not there

def case_required_queues_without_net_raw(bed):
    control(bed)
    with without(NET_RAW):
        red_start(bed, "the kernel refuses", EGRESS_REQUIRE_RAW_GUARD="1")
        want(leaks(bed, "no-raw"), 0, "datagrams that get out")
        bed.free()
        bed.protect()
        want(leaks(bed, "no-raw, not asked for"), 5, "datagrams to an allowed address")


def case_required_pass_without_cgroups(bed):
    """/sys/fs/cgroup is not cgroup2: our sockets cannot be told from those of our user elsewhere."""
    control(bed)
    mount = bed.mount_cgroup

    def other():
        mount()
        guardbed.call("mount", b"none", b"/sys/fs/cgroup", b"tmpfs", 0, None)
    bed.mount_cgroup = other
    try:
        red_start(bed, "cgroups do not tell", EGRESS_REQUIRE_PASS="1")
        want(leaks(bed, "no-pass"), 0, "datagrams that get out")
        bed.free()
        bed.protect()
        want(leaks(bed, "no-pass, not asked for"), 5, "datagrams to an allowed address")
        want("cgroups do not tell" in bed.ask("GET", "/status")[2], True, "degraded: pass")
    finally:
        del bed.mount_cgroup


# ---- starts that cannot succeed

def case_closed_by_a_wrong_mode(bed):
    closed(bed, "OPENSANDBOX_EGRESS_MODE", OPENSANDBOX_EGRESS_MODE="nft")


def case_closed_by_a_missing_vault_file(bed):
    closed(bed, "no-vault.yaml", EGRESS_VAULT_FILE=bed.path("no-vault.yaml"))


def case_closed_by_a_taken_port(bed):
    bed.free()
    somebody(bed).do(LISTENER.format(family=int(socket.AF_INET), kind=1, addr="127.0.0.1", port=DNS))
    try:
        closed(bed, f"{DNS}")
    finally:
        somebody(bed).do("s.close()")


def case_closed_without_net_admin(bed):
    """No rule can be made: it speaks, and does not hold anything back."""
    with without(NET_ADMIN):
        closed(bed, "CAP_NET_ADMIN", leak=10)


def crash(bed, times):
    """Each worker is ended as soon as it is there."""
    last = None
    for _ in range(times):
        last = until(lambda old=last: child(bed, "egress-worker") not in (None, old) and
                     child(bed, "egress-worker"), "another worker", 5)
        os.kill(last, signal.SIGKILL)
    until(lambda: child(bed, "egress-worker") not in (None, last), "another worker", 5)


def case_closed_after_ten_crashes(bed):
    control(bed)
    bed.protect()
    want(leaks(bed, "before"), 5, "datagrams to an allowed address")
    crash(bed, CRASHES - 1)
    until(lambda: bed.health()[0] == 200, f"green after {CRASHES - 1} crashes", GREEN_S)
    want(leaks(bed, "nine"), 5, "datagrams to an allowed address after them")
    crash(bed, 1)
    code, why = until(lambda: bed.health()[0] == 503 and bed.health(), "red", GREEN_S)
    print(f"  {why}")
    want((code, f"ended {CRASHES} times in a row, the last time by signal 9" in why), (503, True), why)
    until(lambda: leaks(bed, "crashed") == 0, "nothing gets out", 2)
    want(bed.ask("GET", "/policy")[:2], (503, "Service Unavailable"), "/policy")
    want(why in bed.ask("PUT", "/credential-vault/x", "{}")[2], True, "the cause, on other paths")
    want(f"egress: closed: {why}" in bed.output(), True, "the cause on stdout")
    lines = until(lambda: [x for x in bed.lines() if x["rule"] and x["rule"].startswith(
        f"the worker ended {CRASHES} times")] and bed.lines(), "a line on record", 3)
    want([x["seq"] for x in lines], list(range(1, len(lines) + 1)), "the trail")
    code, _, text = bed.ask("GET", "/audit?after=0&limit=1000")
    want((code, text.splitlines(keepends=True)[-1:]),
         (200, open(bed.audit, encoding="utf-8").readlines()[-1:]), "/audit")
    want([bed.ask("GET", path, token="wrong")[0] for path in ("/audit", "/policy")], [401] * 2,
         "without the token")
    crash(bed, CRASHES)  # of the workers that serve it: now without the trail
    until(lambda: "without the plain area" in bed.output(), "the trail is given up", 5)
    until(lambda: bed.health() == (503, why), "the same cause", 5)
    want(leaks(bed, "crashed again"), 0, "datagrams that get out")
    bed.process.terminate()
    want(bed.process.wait(20), 0, "exit code")
    bed.process = None


def case_exit_3_where_the_api_cannot_listen(bed):
    bed.free()
    somebody(bed).do(LISTENER.format(family=int(socket.AF_INET), kind=1, addr="127.0.0.1", port=API))
    try:
        bed.launch()
        want(bed.process.wait(10), 3, "exit code")
        bed.process = None
    finally:
        somebody(bed).do("s.close()")


# ---- the end

GET = """
s = socket.create_connection(({addr!r}, 80), 5)
s.sendall(b"GET /slow HTTP/1.1\\r\\nHost: read.test\\r\\nRange: bytes=0-120000\\r\\n\\r\\n")
s.settimeout(8)
got = b""
while len(got) < 1000:
    got += s.recv(65536)
"""
REST = """
while part := s.recv(65536):
    got += part
    if got.endswith(b"0014999\\n0"):
        break
result = [len(got), got[-9:].decode()]
"""


def case_sigterm_finishes_and_leaves_the_rules(bed):
    ready(bed)
    want(resolve(bed), 0, "an answer")
    somebody(bed).do(GET.format(addr=GOOD[4]))
    start = time.monotonic()
    bed.process.terminate()
    got = somebody(bed).do(REST)
    want(got[1], "0014999\n0", "the end of the request under way")
    code = bed.process.wait(10)
    took = time.monotonic() - start
    want(code, 0, "exit code")
    if took > 8:
        raise Failed(f"ended after {took:.1f} s")
    bed.process = bed.plain = None
    print(f"  {got[0]} bytes came, ended after {took:.1f} s")
    want(leaks(bed, "end"), 5, "datagrams to an allowed address after the end")


if __name__ == "__main__":
    sidecarbed.Bed = Bed
    sys.exit(sidecarbed.main(globals()))
