"""The bed of guard*.py: egress-guard between namespaces, driven by its own messages.

`box` is a sandbox with one device and a default route; `net` is everything behind it, with all
addresses. A tap in `net` notes every frame that arrives there, so whatever leaves the box is seen,
whoever the receiver would be. Neither namespace has a way to the machine's network. The worker is a
process of uid 10042 in a cgroup and a cgroup namespace made for it, in which the guard runs too.

Messages as in nft/guard_msg.h; a test there fails if sizes differ.
"""
import array
import contextlib
import ctypes
import ipaddress
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SRC = os.environ.get("EGRESS_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.environ.get("EGRESS_BUILD") or os.path.join(SRC, "build", "gcc-asan")
GUARD = os.environ.get("EGRESS_GUARD_BIN") or os.path.join(BUILD, "control", "egress-guard")
WORKER_UID, GUARD_UID, NOBODY = 10042, 10043, 65534
API, WEB, DNS = 18080, 18081, 15353
BOX = {4: "198.18.91.2", 6: "fd00:198:91::2"}
ROUTER = {4: "198.18.91.1", 6: "fd00:198:91::1"}
GOOD = {4: "11.22.0.30", 6: "2a0e:77::30"}      # allowed
EVIL = {4: "11.22.0.66", 6: "2a0e:77::66"}      # not listed
DENIED = {4: "11.22.0.99", 6: "2a0e:77::99"}    # denied inside an allowed block
PRIVATE = {4: "10.77.0.2", 6: "fd00:77::2"}
META = {4: "169.254.169.254", 6: "fd00:ec2::254"}
ALL = [GOOD, EVIL, DENIED, PRIVATE, META]
CLONE_NEWNET, CLONE_NEWCGROUP = 0x40000000, 0x02000000
PARTS = ("table", "redirect", "pass", "sources", "headers", "untrack", "timeouts", "listeners",
         "log", "raw_guard", "queues")
STATUS = ("unused", "in_place", "refused", "lost")
KINDS = ("allow", "deny", "lease", "resolver", "exempt", "doh", "inspect", "inbound",
         "special")
TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
# sys_chroot, mknod, audit_write, setfcap
DOCKER_CAPS = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
WAIT_S = 5
LISTEN = f"""
import threading
def serve(s, tcp):
    while True:
        if tcp:
            c, _ = s.accept()
            threading.Thread(target=talk, args=(c,), daemon=True).start()
        else:
            data, where = s.recvfrom(65536)
            s.sendto(b"own:" + data, where)
def talk(c):
    try:
        c.sendall(b"own:")
        while data := c.recv(65536):
            c.sendall(data)
    except OSError:
        pass
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    for port, kind in (({WEB}, 1), ({DNS}, 1), ({DNS}, 2), ({API}, 1)):
        s = socket.socket(family, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((("" if port == {API} else host), port))
        if kind == 1:
            s.listen(64)
        threading.Thread(target=serve, args=(s, kind == 1), daemon=True).start()
"""
libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """What was seen is not what should be."""


class Skip(Exception):
    """This kernel has no such thing."""


def want(got, should, what):
    if got != should:
        raise Failed(f"{what}: {got!r}, should be {should!r}")


def until(check, what, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while not (value := check()):
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return value


def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)


def new_network():
    """Moves this thread into a new namespace, and returns a descriptor of it."""
    call("unshare", CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


class Inside:
    """`with Inside(fd)`: this thread is in that namespace."""

    def __init__(self, fd):
        self.fd, self.back = fd, None

    def __enter__(self):
        self.back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        call("setns", self.fd, CLONE_NEWNET)

    def __exit__(self, *_):
        call("setns", self.back, CLONE_NEWNET)
        os.close(self.back)


def run(*args, text=None, check=True):
    p = subprocess.run(args, input=text, capture_output=True, text=True, timeout=60, check=False)
    if check and p.returncode != 0:
        raise Failed(f"{' '.join(args)}: {p.stderr.strip()}")
    return p.stdout


# ---- messages

def addr16(a):
    a = ipaddress.ip_address(a)
    return (b"\0" * 10 + b"\xff\xff" + a.packed) if a.version == 4 else a.packed


def text16(b):
    a = ipaddress.IPv6Address(b)
    return str(a.ipv4_mapped or a)


def entry(kind, lo="::", hi=None, proto=0, ports=(0, 65535), seconds=0):
    """A CIDR block or an address for lo, or a range."""
    if "/" in lo:
        block = ipaddress.ip_network(lo)
        lo, hi = block[0], block[-1]
    if isinstance(ports, int):
        ports = (ports, ports)
    return struct.pack("16s16sBBHHHI", addr16(lo), addr16(hi or lo), KINDS.index(kind), proto,
                       ports[0], ports[1], 0, seconds)


def lease(addr, seconds, proto=0, port=0):
    return struct.pack("16sBBHI", addr16(addr), proto, 0, port, seconds)


class Guard:
    """One egress-guard, and the worker's end of its pair."""

    def __init__(self, bed, held=(), uid=0):
        self.bed, self.states, self.flows, self.done, self.last = bed, [], [], {}, 0
        self.beats = []
        self.sock, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.hold, hold_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = array.array("i", held)
        self.hold.sendmsg([struct.pack("II", 0x68646c31, len(held))],
                          [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if held else [])
        self.log = open(os.path.join(bed.top, f"guard-{time.monotonic_ns()}.log"), "w+b")
        a, b, err = os.dup(end.fileno()), os.dup(hold_end.fileno()), self.log.fileno()

        def enter():
            bed.enter_cgroup()
            os.dup2(err, 2)
            os.dup2(a, 13)
            os.dup2(b, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)
            os.closerange(5, 64)
            if uid:
                os.setresuid(uid, uid, uid)

        with Inside(bed.box):
            self.process = subprocess.Popen([GUARD], preexec_fn=enter, close_fds=False,
                                            stdin=subprocess.DEVNULL)
        bed.processes.append(self.process)
        for s in (end, hold_end):
            s.close()
        os.close(a)
        os.close(b)
        self.copies = list(held)
        if not held:
            self.hold.settimeout(WAIT_S)
            try:
                _, anc, _, _ = self.hold.recvmsg(8, socket.CMSG_SPACE(64 * 4))
                for _, _, data in anc:
                    self.copies += array.array("i", data[:len(data) // 4 * 4])
            except OSError:
                pass

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def send(self, kind, body=b"", number=0):
        self.sock.send(struct.pack("II", kind, number) + body)

    def pump(self, seconds=0.0):
        """Takes what is there; False at the end of the guard."""
        while select.select([self.sock], [], [], seconds)[0]:
            m = self.sock.recv(65536)
            if not m:
                return False
            kind, number = struct.unpack_from("II", m)
            if kind == 5:
                self.done[number] = struct.unpack_from("i", m, 8)[0]
            elif kind == 6:
                rows = struct.unpack_from("B3xi" * len(PARTS), m, 8)
                state = {p: (STATUS[rows[2 * i]], rows[2 * i + 1]) for i, p in enumerate(PARTS)}
                state["held"], state["taken"], state["short"] = struct.unpack_from(
                    "III", m, 8 + 8 * len(PARTS))
                self.states.append((time.monotonic(), state))
            elif kind == 8:
                self.beats.append(time.monotonic())
            else:
                f = struct.unpack("II16s16sHHBBBBIII", m)
                self.flows.append({"from": text16(f[2]), "to": text16(f[3]), "from_port": f[4],
                                   "port": f[5], "proto": f[6],
                                   "verdict": ("passed", "refused")[f[7]],
                                   "uid": f[10] if f[8] else None, "count": f[11],
                                   "lost": f[12]})
            seconds = 0
        return True

    def wait(self, number):
        end = time.monotonic() + 30
        while number not in self.done:
            if not self.pump(0.2) or time.monotonic() > end:
                raise Failed(f"no answer from the guard: {self.output()[-400:]}")
        return self.done.pop(number)

    def options(self, **o):
        base = dict(cgroup_id=self.bed.cgroup_id, level=0, uid=WORKER_UID, api=API, web=WEB,
                    dns=DNS, enforce=1, read_only=0, accept_rest=0, redirect_dns=1, redirect_web=1,
                    doh_block=0, inbound_all=1, log=1)
        base.update(o)
        return struct.pack("QIIHHHBBBBBBBB2x", *base.values())

    def apply(self, entries=(), **o):
        entries = list(entries)
        self.send(2, self.options(**o))
        for at in range(0, len(entries), 128):
            chunk = entries[at:at + 128]
            self.send(3, struct.pack("I", len(chunk)) + b"".join(chunk) +
                      b"\0" * 44 * (128 - len(chunk)))
        self.last += 1
        self.send(4, struct.pack("I", len(entries)), self.last)
        return self.wait(self.last)

    def allow(self, *leases):
        self.last += 1
        self.send(1, struct.pack("I", len(leases)) + b"".join(leases) +
                  b"\0" * 24 * (64 - len(leases)), self.last)
        return self.wait(self.last)

    def state(self):
        self.pump()
        return self.states[-1][1] if self.states else None

    def stop(self):
        for s in (self.sock, self.hold):
            s.close()
        return self.process.wait(WAIT_S)

    def kill(self):
        self.process.kill()
        self.process.wait()


# ---- the namespaces

class Tap(threading.Thread):
    """Every frame that arrives behind the box, with the time."""

    def __init__(self, fd):
        super().__init__(daemon=True)
        with Inside(fd):
            self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.sock.bind(("lan", 3))
        self.frames, self.lock = [], threading.Lock()
        self.start()

    def run(self):
        while True:
            data, where = self.sock.recvfrom(65536)
            if where[2] != socket.PACKET_OUTGOING:
                with self.lock:
                    self.frames.append(data)

    def clear(self):
        """Forgets what came until now; on a busy machine some of it still waits to be read."""
        while select.select([self.sock], [], [], 0.02)[0]:
            time.sleep(0.01)
        with self.lock:
            self.frames.clear()

    def has(self, wanted):
        with self.lock:
            return sum(1 for f in self.frames if (wanted(f) if callable(wanted) else wanted in f))


class Bed:
    NAME = "guardbed"
    ADDRESSES = ALL
    SERVED = [(k, p) for k in (TCP, UDP) for p in (53, 80, 443, 853, 5000, 8080)]

    def __init__(self, top):
        self.top, self.processes = top, []
        self.net = self.box = self.cgroup = None
        self.worker = self.guard = None

    def start(self):
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.net = new_network()
        run("ip", "link", "set", "lo", "up")
        for a in self.ADDRESSES:
            run("ip", "addr", "add", f"{a[4]}/32", "dev", "lo")
            run("ip", "addr", "add", f"{a[6]}/128", "dev", "lo", "nodad")
        self.box = new_network()
        run("ip", "link", "add", "wan", "type", "veth", "peer", "name", "lan", "netns",
            f"/proc/{os.getpid()}/fd/{self.net}")
        self.wire("wan", BOX, ROUTER)
        with Inside(self.net):
            self.wire("lan", ROUTER, None)
        call("setns", home, CLONE_NEWNET)
        os.close(home)
        self.make_cgroup()
        self.tap = Tap(self.net)
        self.servers()

    def wire(self, device, own, way):
        lines = ["link set lo up", f"addr add {own[4]}/24 dev {device}",
                 f"addr add {own[6]}/64 dev {device} nodad", f"link set {device} up"]
        if way:
            lines += [f"route add default via {way[4]}", f"-6 route add default via {way[6]}"]
        for line in lines:
            run("ip", *line.split())

    def make_cgroup(self):
        root = next((m.split()[1] for m in open("/proc/mounts") if m.split()[2] == "cgroup2"), None)
        if root is None:
            raise Skip("no cgroup2")
        self.cgroup = os.path.join(root, f"{self.NAME}-{os.getpid()}")
        os.mkdir(self.cgroup)
        self.cgroup_id = os.stat(self.cgroup).st_ino

    def enter_cgroup(self):
        """Of this process, after a fork: the sidecar's cgroup, as the root of its own view."""
        with open(os.path.join(self.cgroup, "cgroup.procs"), "w") as f:
            f.write("0")
        call("unshare", CLONE_NEWCGROUP)

    def servers(self):
        """Behind the box: TCP and UDP that answer on a few ports, whatever the address."""
        self.accepted = []
        with Inside(self.net):
            for proto, port in self.SERVED:
                for addr in [a[f] for a in [*self.ADDRESSES, ROUTER] for f in (4, 6)]:
                    self.serve(proto, addr, port)

    def serve(self, proto, addr, port):
        kind, serve = {TCP: (socket.SOCK_STREAM, self.serve_tcp),
                       UDP: (socket.SOCK_DGRAM, self.serve_udp)}[proto]
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((addr, port))
        if proto == TCP:
            s.listen(64)
        self.thread(serve, s)

    def thread(self, f, *args):
        threading.Thread(target=f, args=args, daemon=True).start()

    def serve_tcp(self, listener):
        while True:
            s, _ = listener.accept()
            self.accepted.append(s)
            self.thread(self.echo, s)

    @staticmethod
    def echo(s):
        with contextlib.suppress(OSError):
            while data := s.recv(65536):
                s.sendall(data)

    @staticmethod
    def serve_udp(s):
        while True:
            data, where = s.recvfrom(65536)
            with contextlib.suppress(OSError):
                s.sendto(b"re:" + data, where)

    def sidecar(self):
        """The worker: its listeners answer with `own`, its sockets are the ones that may go out."""
        if not self.worker:
            self.worker = Agent(self, WORKER_UID, cgroup=True)
            self.worker.do(LISTEN)
        return self.worker

    def nft(self, *args, text=None, check=True):
        with Inside(self.box):
            return run("nft", *args, text=text, check=check)

    def flush(self):
        """No guard, no tables and no sockets of ours: the control."""
        if self.guard:
            self.guard.kill()
            for fd in self.guard.copies:
                os.close(fd)
            self.guard = None
            time.sleep(0.1)  # the kernel gives queues back a little later
        self.nft("delete", "table", "inet", "opensandbox", check=False)
        self.nft("delete", "table", "netdev", "rawguard", check=False)

    def stop(self):
        for p in self.processes:
            with contextlib.suppress(OSError):
                p.kill()
            p.wait()
        for _ in range(100):
            try:
                os.rmdir(self.cgroup)
                break
            except OSError:
                time.sleep(0.02)


class Agent:
    """A process in the box that runs Python texts, one after the other, as some user."""

    CODE = """
import ctypes, encodings.idna, json, mmap, os, select, socket, ssl, struct, sys, threading, time
# Here and not before: this interpreter may lie where only root can execute it.
if uid := int(sys.argv[1]):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
scope = {m.__name__: m for m in (ctypes, mmap, os, select, socket, ssl, struct,
                              threading, time)}
while True:
    line = sys.stdin.readline()
    if not line:
        break
    try:
        scope["result"] = None
        exec(json.loads(line), scope)
        out = {"ok": scope["result"]}
    except BaseException as e:
        out = {"error": type(e).__name__, "errno": getattr(e, "errno", None), "text": str(e)}
    print(json.dumps(out), flush=True)
"""

    def __init__(self, bed, uid, cgroup=False, caps=DOCKER_CAPS, before=None):
        """before() runs in the child, with every right."""
        def enter():
            if cgroup:
                bed.enter_cgroup()
            if before:
                before()
            libc.prctl(1, signal.SIGKILL, 0, 0, 0)
            for cap in range(64):
                if cap not in caps:
                    libc.prctl(24, cap, 0, 0, 0)

        with Inside(bed.box):
            self.process = subprocess.Popen(
                [sys.executable, "-c", self.CODE, str(uid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, preexec_fn=enter, cwd="/")
        bed.processes.append(self.process)

    def do(self, code):
        """The value of `result`; an exception of the text comes back as OSError."""
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        out = json.loads(self.process.stdout.readline())
        if "error" in out:
            raise OSError(out["errno"] or 0, f"{out['error']}: {out['text']}")
        return out["ok"]


# ---- cases

def may_make_networks():
    if os.geteuid() != 0:
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.unshare(CLONE_NEWNET | CLONE_NEWCGROUP) == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def main(scope, make=Bed):
    cases = {n[5:].replace("_", "-"): f for n, f in scope.items() if n.startswith("case_")}
    if sys.argv[1:] == ["--list"]:
        print("\n".join(cases))
        return 0
    names = sys.argv[1:] or list(cases)
    why = None
    if not may_make_networks():
        why = "needs root and namespaces"
    elif not shutil.which("nft") or not shutil.which("ip"):
        why = "needs ip and nft"
    if why:
        for name in names:
            print(f"skip {name} {why}")
        return 0
    bed, bad = make(tempfile.mkdtemp(prefix="guard-", dir=os.environ.get("EGRESS_TMP"))), 0
    try:
        bed.start()
        for name in names:
            try:
                cases[name](bed)
                print(f"ok {name}", flush=True)
            except Skip as e:
                print(f"skip {name} {e}", flush=True)
            except (Failed, OSError, ValueError, LookupError, struct.error) as e:
                bad += 1
                print(f"not ok {name} {type(e).__name__}: {e}".replace("\n", " "), flush=True)
    finally:
        bed.stop()
        sys.stdout.flush()
        if bad == 0 and not os.environ.get("EGRESS_TMP"):
            shutil.rmtree(bed.top, ignore_errors=True)
    os._exit(1 if bad else 0)


def listing(bed):
    """Our table as text. (`list ruleset` of nft 1.0 never ends when a netdev chain has a device
    prefix.)"""
    text = bed.nft("list", "table", "inet", "opensandbox")
    return re.sub(r"expires [0-9a-z]+", "expires", text)
