"""The bed of gate.py and long/gate_load.py: the whole sidecar, and tools of people inside.

sidecarbed.py's namespaces and program, with two resolvers (tests/tools/dnsd.py) whose zone and log
are ours, a receiver for webhooks, and files that git, npm and pip can fetch. tool() runs a program in
the sandbox: its network, its cgroup, the rights of a container, its own /etc/resolv.conf.
"""
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sidecarbed  # noqa: E402
from guardbed import BOX, DOCKER_CAPS, NOBODY, SRC, Failed, Inside, call, libc, run, until, want  # noqa: E402
from sidecarbed import EVIL, GOOD, INTERNAL, META, PRIVATE, RESOLVER, TWO, WILD, WRITE  # noqa: E402

MS_BIND = 4096
RESOLVERS = [(RESOLVER[4], 5300), (RESOLVER[4], 5301)]
HOOK = (PRIVATE[4], 9000)  # no rule names this port
ZONE = {
    "read.test": {"a": GOOD[4], "aaaa": GOOD[6], "ttl": 30},
    "two.test": {"a": TWO[4], "aaaa": TWO[6], "ttl": 1},
    "api.model.test": {"a": WRITE[4], "aaaa": WRITE[6], "ttl": 9999},
    "evil.test": {"a": EVIL[4], "aaaa": EVIL[6], "txt": "out"},
    "*.wild.test": {"a": WILD[4], "aaaa": WILD[6], "txt": "payload"},
    "bad.wild.test": {"a": EVIL[4]},
    "v4only.wild.test": {"a": WILD[4]},
    "slow.wild.test": {"a": WILD[4], "drop": ["aaaa"]},
    "big.test": {"a": [f"11.22.7.{i}" for i in range(1, 61)]},
    "text.test": {"txt": ["x" * 250] * 20},
    "alias-bad.wild.test": {"cname": "bad.wild.test"},
    "alias.wild.test": {"cname": "other.elsewhere.test"},
    "other.elsewhere.test": {"a": WILD[4]},
    "rebind.wild.test": {"a": [INTERNAL[4], "127.0.0.1", META[4], "100.64.0.1"]},
    "order.wild.test": {"a": [WILD[4], TWO[4], GOOD[4]], "ttl": 7},
    "fail.wild.test": {"rcode": "SERVFAIL"},
    "pool.wild.test": {"a": [f"11.22.8.{i}" for i in range(1, 201)], "ttl": 1, "rotate": 8},
    "ports.test": {"a": TWO[4]},
    "*.evil.test": {"a": EVIL[4], "txt": "out"},
}
RULES = [("allow", "read.test", None), ("allow", "two.test", None), ("allow", "text.test", None),
         ("allow", "api.model.test", None), ("allow", "big.test", None),
         ("deny", "bad.wild.test", None), ("allow", "*.wild.test", None)]


def rules(rows):
    return json.dumps({"defaultAction": "deny", "egress": [
        {"action": a, "target": t, **({"ports": p} if p else {})} for a, t, p in rows]})


class Hook(http.server.BaseHTTPRequestHandler):
    """Takes events; each is on the server's list."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.events.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Bed(sidecarbed.Bed):
    NAME = "gatebed"
    TOP_ZONE = ZONE

    def __init__(self, top):
        super().__init__(top)
        self.running, self.files = None, False

    def servers(self):
        super().servers()
        self.write("zone.json", json.dumps(self.TOP_ZONE))
        self.resolvers = [self.dnsd(*r) for r in RESOLVERS]
        with Inside(self.net):
            self.hook = http.server.HTTPServer(HOOK, Hook)
        self.hook.events = []
        self.thread(self.hook.serve_forever)
        self.write("resolv.conf", "nameserver 8.8.8.8\n")
        self.write("hosts", "127.0.0.1 localhost\n")

    def nginx(self):
        """Also files, below /files/ of each name."""
        sidecarbed.NGINX = sidecarbed.NGINX.replace(
            "    location / {{", "    location /files/ {{ root {top}; }}\n    location / {{", 1)
        super().nginx()

    def home(self):
        """A directory that every user may write to."""
        path = self.path("home")
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o1777)
        return path

    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return path

    def dnsd(self, addr, port):
        with Inside(self.net):
            p = self.daemon(f"dnsd-{port}", sys.executable, os.path.join(SRC, "tests/tools/dnsd.py"),
                            "--listen", addr, "--port", str(port), "--zone", self.path("zone.json"),
                            "--log", self.path(f"questions-{port}.log"))
        until(lambda: "listening" in open(self.path(f"dnsd-{port}.out"), encoding="ascii").read(),
              "resolver")
        return p

    def asked(self):
        """Questions that reached a resolver: (protocol, type, name)."""
        rows = []
        for _, port in RESOLVERS:
            with open(self.path(f"questions-{port}.log"), encoding="ascii") as f:
                rows += [(x[1], x[4], x[5]) for x in map(str.split, f) if len(x) == 7]
        return [r for r in rows if r[2] != "."]

    def names_asked(self):
        return {name.lower() for _, _, name in self.asked()}

    # ---- the program with some settings

    def with_settings(self, **more):
        """The sidecar in good health with these settings and their policy, anew where they differ."""
        if self.process and self.process.poll() is None and self.running == more:
            self.change("PUT", more.get("OPENSANDBOX_EGRESS_RULES") or rules(RULES))
            return
        self.halt()
        env = {"OPENSANDBOX_EGRESS_RULES": rules(RULES), "AGENTIC_WRITE_HOSTS": None,
               "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": None,
               "OPENSANDBOX_EGRESS_DNS_UPSTREAM": ",".join("%s:%d" % r for r in RESOLVERS)}
        env.update(more)
        self.protect(**env)
        self.running = more

    def worker_pid(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/status", encoding="ascii") as f:
                    text = f.read()
            except OSError:
                continue
            if f"PPid:\t{self.process.pid}\n" in text and re.search(r"Uid:\t10042\t", text):
                return int(pid)
        raise Failed("no worker")

    def change(self, method, body, status=200):
        got = self.ask(method, "/policy", body if body is None or isinstance(body, str)
                       else json.dumps(body))
        want(got[0], status, f"{method} {body}: {got[2]}")
        return json.loads(got[2])

    def patch(self, *rows):
        return self.change("PATCH", [{"action": a, "target": t} for a, t in rows])

    # ---- the sandbox

    def enter_sandbox(self, uid):
        join = self.in_sandbox()

        def enter():
            try:
                join()
            except OSError as e:
                os.write(2, f"entering the sandbox: {e}\n".encode())
                raise
            for name in ("resolv.conf", "hosts"):
                call("mount", self.path(name).encode(), f"/etc/{name}".encode(), None, MS_BIND, None)
            libc.prctl(1, signal.SIGKILL, 0, 0, 0)
            for cap in range(64):
                if cap not in DOCKER_CAPS:
                    libc.prctl(24, cap, 0, 0, 0)
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
        return enter

    def begin(self, *args, uid=NOBODY, env=None):
        with Inside(self.box):
            return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, cwd="/",
                                    preexec_fn=self.enter_sandbox(uid),
                                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
                                         "HOME": "/nonexistent", **(env or {})})

    def tool(self, *args, **o):
        """(exit code, output) of a program in the sandbox."""
        p = self.begin(*args, **o)
        try:
            return (lambda text: (p.returncode, text))(p.communicate(timeout=30)[0])
        except subprocess.TimeoutExpired as e:
            p.kill()
            raise Failed(f"{args} does not end") from e

    def dig(self, *args):
        return self.tool("dig", "+tries=1", "+time=5", *args)[1]

    def curl(self, *args):
        """What was printed, ending in the status: 000 is none."""
        return self.tool("curl", "-sS", "-m", "5", "-w", "%{http_code}", "--cacert",
                         self.path("egress-ca.pem"), *args)[1]

    def opens(self, addr, port):
        """What happens to a TCP connection from the sandbox to an echo server, and how soon."""
        start = time.monotonic()
        try:
            with Inside(self.box):
                s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET)
            s.settimeout(5)
            with s:
                s.connect((addr, port))
                s.sendall(b"ping\n")
                told = "echo" if s.recv(64) == b"ping\n" else "closed"
        except (ConnectionError, OSError) as e:
            told = type(e).__name__
        return told if time.monotonic() - start < 1 else f"{told}, late"

    def granted(self):
        """The set of addresses that names have opened, as text."""
        return self.nft("list", "set", "inet", "opensandbox", "dyn_allow_v4")

    def lease_s(self, addr):
        """Seconds that an address is granted for, by the kernel; None if it is not."""
        for name in re.findall(r"\bset (\S+) \{", self.nft("list", "sets", "table", "inet",
                                                           "opensandbox")):
            text = self.nft("list", "set", "inet", "opensandbox", name)
            m = re.search(re.escape(addr) + r"\b[^,}]*? timeout (\S+)", text)
            if m:
                return sum(int(n) * {"h": 3600, "m": 60, "s": 1, "ms": 0}[u]
                           for n, u in re.findall(r"(\d+)(ms|h|m|s)", m[1]))
        return None


def status(text):
    m = re.search(r"status: (\w+)", text)
    return m[1] if m else text.strip()[-200:]


def addresses(text):
    return re.findall(r"\bIN[ \t]+A(?:AAA)?[ \t]+(\S+)", text)


def inbound(bed, port):
    """A connection from outside to a port of the sandbox's, or None."""
    with Inside(bed.net):
        s = socket.socket()
    s.settimeout(1)
    try:
        s.connect((BOX[4], port))
    except OSError:
        s.close()
        return None
    return s


__all__ = ["run", "Bed", "status", "addresses", "inbound", "rules", "RULES", "ZONE", "HOOK"]
