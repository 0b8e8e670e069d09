"""The bed of bypass*.py: the whole sidecar in a sandbox's network namespace, and an internet.

guardbed.py's two namespaces, with the program `egress` in place of its drivers: supervisor, worker
and guard run in the cgroup, cgroup namespace and mount namespace made for them, with the rights that
a container gets. Behind the box: nginx (TLS and plain, on every address), unbound as the resolver,
behind it a hostile server that answers for all names that are not ours, and the echo servers and the
tap of guardbed.py. Each sandbox user runs in a cgroup of the sandbox's own.

free() is the control: no sidecar, no tables; protect() is the sidecar in good health.
"""
import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from guardbed import (API, BOX, DENIED, DOCKER_CAPS, EVIL, GOOD, META, NOBODY, PRIVATE,  # noqa: E402
                      ROUTER, TCP, UDP, WORKER_UID, Agent, Failed, Inside, Skip, call, libc, run,
                      until, want)

EGRESS = os.environ.get("EGRESS_BIN") or os.path.join(guardbed.BUILD, "control", "egress")
WRITE = {4: "11.22.0.20", 6: "2a0e:77::20"}
TWO = {4: "11.22.0.31", 6: "2a0e:77::31"}
RESOLVER = {4: "11.22.0.53", 6: "2a0e:77::53"}
HOSTILE = {4: "11.22.0.54", 6: "2a0e:77::54"}
TUNNELS = {4: "11.22.0.55", 6: "2a0e:77::55"}
TUNNELS_TOO = {4: "11.22.0.56", 6: "2a0e:77::56"}
WILD = {4: "11.22.0.41", 6: "2a0e:77::41"}
INTERNAL = {4: "10.77.0.3", 6: "fd00:77::3"}
NAMES = {"read.test": GOOD, "two.test": TWO, "api.model.test": WRITE, "evil.test": EVIL,
         "dns.evil.test": EVIL}
WEB_PORTS = (80, 443, 8080, 8443)
TOKEN = "token-of-the-bed"
NET_ADMIN = 12
CLONE_NEWNS = 0x20000
MS_PRIVATE, MS_REC, MS_BIND = 1 << 18, 1 << 14, 4096
READY_S = 15
RULES = [("allow", "read.test", None), ("allow", "two.test", None), ("allow", "forged.test", None),
         ("allow", "api.model.test", None), ("deny", "bad.wild.test", None),
         ("allow", "*.wild.test", None), ("allow", GOOD[4], None), ("allow", GOOD[6], None),
         ("deny", META[4], None), ("deny", META[6], None), ("deny", DENIED[4], None),
         ("deny", DENIED[6], None), ("allow", PRIVATE[4], [8080]), ("allow", PRIVATE[6], [8080]),
         ("allow", "198.18.91.0/24", [7100])]
# What Docker gives a container by itself, which is also what Kubernetes gives it; without what
# OpenSandbox takes from it on Docker: net_raw, mknod, audit_write.
USERS = {"docker": (0, tuple(c for c in DOCKER_CAPS if c not in (13, 27, 29))),
         "kubernetes": (0, DOCKER_CAPS), "nobody": (NOBODY, DOCKER_CAPS)}
UNBOUND = """
server:
  interface: {r4}
  interface: {r6}
  access-control: 0.0.0.0/0 allow
  access-control: ::0/0 allow
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{top}"
  pidfile: ""
  use-syslog: no
  logfile: "{top}/unbound.log"
  log-queries: yes
  module-config: "iterator"
  do-not-query-localhost: no
  qname-minimisation: no
  cache-max-ttl: 0
  cache-max-negative-ttl: 0
  so-reuseport: no
  num-threads: 1
  local-zone: "forged.test." refuse
  local-zone: "test." transparent
{data}
remote-control:
  control-enable: no
stub-zone:
  name: "."
  stub-addr: {hostile}
stub-zone:
  name: "t.tun.test"
  stub-addr: {tunnels}
stub-zone:
  name: "d.tun.test"
  stub-addr: {more}
"""
NGINX = """
master_process off;
daemon off;
pid {top}/nginx.pid;
error_log {top}/nginx-error.log;
events {{ worker_connections 512; }}
http {{
  log_format seen escape=json '{{"addr":"$server_addr","port":$server_port,"scheme":"$scheme",'
    '"sni":"$ssl_server_name","host":"$host","method":"$request_method","uri":"$request_uri",'
    '"body":"$content_length","status":$status}}';
  access_log {top}/seen.jsonl seen;
  client_body_temp_path {top}/body; proxy_temp_path {top}/proxy; fastcgi_temp_path {top}/fcgi;
  uwsgi_temp_path {top}/uwsgi; scgi_temp_path {top}/scgi;
  ssl_certificate {top}/leaf.pem; ssl_certificate_key {top}/leaf.key;
  ssl_protocols TLSv1.2 TLSv1.3;
  keepalive_timeout 30s;
  default_type text/plain;
  server {{
    listen [::]:80 ipv6only=off; listen [::]:8080 ipv6only=off;
    listen [::]:443 ssl ipv6only=off; listen [::]:8443 ssl ipv6only=off;
    location /slow {{ limit_rate 40k; alias {top}/slow; }}
    location / {{ return 200 "$server_addr $host $request_method $request_uri\\n"; }}
  }}
  server {{ listen unix:{top}/written; access_log off; return 204; }}
}}
"""


# ---- DNS messages

TYPES = {"A": 1, "CNAME": 5, "TXT": 16, "AAAA": 28, "NULL": 10, "HTTPS": 65, "NS": 2, "SOA": 6}


def dns_name(text):
    return b"".join(bytes([len(p)]) + p.encode() for p in text.rstrip(".").split(".") if p) + b"\0"


def rr(name, kind, data, ttl=1):
    """(name, type, ttl, bytes) from an address or a name as text."""
    if kind in ("A", "AAAA"):
        data = socket.inet_pton(socket.AF_INET if kind == "A" else socket.AF_INET6, data)
    elif kind in ("CNAME", "NS"):
        data = dns_name(data)
    elif kind == "TXT":
        data = bytes([len(data)]) + data
    return name, TYPES[kind], ttl, data


# name below wild.test: what the hostile server says, beside the honest address it has elsewhere
REBIND = {
    "private": ("A", INTERNAL[4]), "loop": ("A", "127.0.0.1"), "meta": ("A", META[4]),
    "cgnat": ("A", "100.100.100.200"), "zero": ("A", "0.0.0.0"), "azure": ("A", "168.63.129.16"),
    "multicast": ("A", "224.0.0.251"), "future": ("A", "240.0.0.1"), "ietf": ("A", "192.0.0.192"),
    "loop6": ("AAAA", "::1"), "unique": ("AAAA", INTERNAL[6]), "meta6": ("AAAA", META[6]),
    "link": ("AAAA", "fe80::1"), "site": ("AAAA", "fec0::1"), "mapped": ("AAAA", "::ffff:10.77.0.3"),
    "nat64": ("AAAA", "64:ff9b::a4d:3"), "local64": ("AAAA", "64:ff9b:1::a4d:3"),
    "sixtofour": ("AAAA", "2002:a4d:3::"), "compat": ("AAAA", "::10.77.0.3"),
    "teredo": ("AAAA", "2001:0:a4d:3::f5b2:fffc"), "siit": ("AAAA", "::ffff:0:10.77.0.3")}
ECH = b"\xfe\x0d\x00\x04real"


class Hostile(threading.Thread):
    """Answers for every name: UDP and TCP, on both addresses. `turn` is what turn.wild.test is."""

    def __init__(self, net):
        super().__init__(daemon=True)
        self.turn, self.asked, self.socks = WILD, [], []
        with Inside(net):
            for f in (4, 6):
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    s = socket.socket(socket.AF_INET6 if f == 6 else socket.AF_INET, kind)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind((HOSTILE[f], 53))
                    if kind == socket.SOCK_STREAM:
                        s.listen(64)
                    threading.Thread(target=self.udp if kind == socket.SOCK_DGRAM else self.tcp,
                                     args=(s,), daemon=True).start()

    def udp(self, s):
        while True:
            data, where = s.recvfrom(4096)
            with contextlib.suppress(OSError, IndexError, struct.error, UnicodeDecodeError):
                if reply := self.reply(data):
                    s.sendto(reply, where)

    def tcp(self, s):
        while True:
            c, _ = s.accept()
            with contextlib.suppress(OSError, IndexError, struct.error, UnicodeDecodeError):
                c.settimeout(1)
                data = c.recv(4096)
                reply = self.reply(data[2:]) or b""
                c.sendall(struct.pack("!H", len(reply)) + reply)
            c.close()

    def reply(self, data):
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode())
            at += 1 + data[at]
        name, kind = ".".join(labels).lower(), int.from_bytes(data[at + 1:at + 3], "big")
        question = data[12:at + 5]
        self.asked.append((name, kind))
        if name.startswith("silent."):
            return None
        rows = self.rows(name, kind)
        out = data[:2] + struct.pack("!HHHHH", 0x8580, 1, len(rows), 0, 0) + question
        for owner, k, ttl, rdata in rows:
            out += dns_name(owner) + struct.pack("!HHIH", k, 1, ttl, len(rdata)) + rdata
        return out

    def rows(self, name, kind):
        first = name.split(".")[0]
        if name == "":
            return [rr("", "NS", "ns.root.test")] if kind == TYPES["NS"] else []
        if name == "turn.wild.test":
            addr = self.turn
        elif first in REBIND and name.endswith(".wild.test"):
            k, value = REBIND[first]
            return [rr(name, k, value)] if TYPES[k] == kind else []
        elif name == "alias.wild.test":  # an allowed name for one that is not
            return [rr(name, "CNAME", "internal.evil.test"),
                    rr("internal.evil.test", "A", INTERNAL[4])] if kind == 1 else []
        elif name == "alias-bad.wild.test":
            return [rr(name, "CNAME", "bad.wild.test"),
                    rr("bad.wild.test", "A", EVIL[4])] if kind == 1 else []
        elif name == "internal.evil.test":
            return [rr(name, "A", INTERNAL[4])] if kind == 1 else []
        elif name == "forged.test":  # with records of names that nobody asked for
            return [rr(name, "A", WILD[4]), rr("two.test", "A", EVIL[4]),
                    rr("read.test", "A", EVIL[4])] if kind == 1 else []
        elif kind == TYPES["TXT"] or kind == TYPES["NULL"]:
            return [(name, kind, 1, b"\x08smuggled")]
        elif kind in (64, TYPES["HTTPS"]):
            data = struct.pack("!HB", 1, 0) + b"\0\1\0\6\2h3\2h2" + b"\0\5\0\10" + ECH
            return [(name, kind, 1, data)]
        else:
            addr = EVIL if name.endswith("evil.test") or name == "bad.wild.test" else WILD
        return [rr(name, {1: "A", 28: "AAAA"}[kind], addr[{1: 4, 28: 6}[kind]])] \
            if kind in (1, 28) else []


# ---- the bed

class Bed(guardbed.Bed):
    NAME = "sidecarbed"
    ADDRESSES = [*guardbed.ALL, WRITE, TWO, RESOLVER, HOSTILE, TUNNELS, TUNNELS_TOO, WILD, INTERNAL]
    SERVED = [*((UDP, p) for p in (80, 443, 853, 5000, 8080, 5353)),
              *((TCP, p) for p in (22, 25, 853, 5000))]

    def __init__(self, top):
        super().__init__(top)
        self.process = self.sandbox = None
        self.resolv_conf = None  # of the sidecar; else the machine's
        self.logs = 0
        os.chmod(top, 0o755)

    def path(self, name):
        return os.path.join(self.top, name)

    def start(self):
        super().start()
        self.sandbox = os.path.join(os.path.dirname(self.cgroup), f"sandbox-{os.getpid()}")
        os.mkdir(self.sandbox)

    def servers(self):
        self.certificates()
        super().servers()
        with Inside(self.net):
            for f in (4, 6):
                for a in (GOOD, EVIL, DENIED, PRIVATE, META, ROUTER):
                    for proto in (TCP, UDP):
                        self.serve(proto, a[f], 53)
            self.hostile = Hostile(self.net)
            self.unbound()
            self.nginx()

    def certificates(self):
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = [f"DNS:{n}" for n in NAMES] + ["DNS:*.wild.test", "DNS:forged.test"]
        names += [f"IP:{a[f]}" for a in self.ADDRESSES for f in (4, 6)]
        run("openssl", "req", "-x509", *new, "-days", "30", "-keyout", self.path("ca.key"), "-out",
            self.path("ca.pem"), "-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign")
        run("openssl", "req", *new, "-subj", "/CN=origin", "-keyout", self.path("leaf.key"),
            "-out", self.path("leaf.csr"))
        with open(self.path("leaf.ext"), "w") as f:
            f.write(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
        run("openssl", "x509", "-req", "-in", self.path("leaf.csr"), "-CA", self.path("ca.pem"),
            "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "20", "-extfile",
            self.path("leaf.ext"), "-out", self.path("leaf.pem"))

    def daemon(self, name, *args):
        out = open(self.path(f"{name}.out"), "w+")
        p = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.processes.append(p)
        return p

    def unbound(self):
        data = "".join(f'  local-data: "{n}. 1 IN {k} {a[f]}"\n' for n, a in NAMES.items()
                       for f, k in ((4, "A"), (6, "AAAA")))
        with open(self.path("unbound.conf"), "w") as f:
            f.write(UNBOUND.format(top=self.top, r4=RESOLVER[4], r6=RESOLVER[6], data=data,
                                   hostile=HOSTILE[4], tunnels=TUNNELS[4], more=TUNNELS_TOO[4]))
        self.daemon("unbound", "unbound", "-c", self.path("unbound.conf"))

    def nginx(self):
        with open(self.path("slow"), "wb") as f:
            f.write(b"".join(b"%07d\n" % i for i in range(32768)))  # 256 KiB, six seconds
        with open(self.path("nginx.conf"), "w") as f:
            f.write(NGINX.format(top=self.top))
        self.daemon("nginx", "nginx", "-p", self.top, "-c", self.path("nginx.conf"))

        def up():
            with contextlib.suppress(OSError):
                socket.create_connection((GOOD[4], 8443), 1).close()
                socket.create_connection((RESOLVER[4], 53), 1).close()
                return True
            return False
        until(up, "nginx and unbound", 10)

    def logged(self):
        """Waits until nginx has written the line of each answer that is out: the line comes after
        the answer, and both before anything else of this one process."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.path("written"))
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            want(s.recv(12), b"HTTP/1.1 204", "nginx, asked whether it has written its log")

    def seen(self, since=0):
        """Requests that nginx has answered."""
        self.logged()
        with contextlib.suppress(FileNotFoundError), open(self.path("seen.jsonl")) as f:
            f.seek(since)
            return [json.loads(x) for x in f if x.endswith("\n")]
        return []

    def seen_mark(self):
        self.logged()
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(self.path("seen.jsonl"))
        return 0

    # ---- users

    def in_sandbox(self, root_cgroup=False):
        def enter():
            if not root_cgroup:
                with open(os.path.join(self.sandbox, "cgroup.procs"), "w") as f:
                    f.write("0")
            call("unshare", guardbed.CLONE_NEWCGROUP | CLONE_NEWNS)
            self.mount_cgroup()
        return enter

    @staticmethod
    def mount_cgroup():
        """/sys/fs/cgroup as the container has it."""
        call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
        call("mount", b"cgroup2", b"/sys/fs/cgroup", b"cgroup2", 0, None)

    def user(self, kind, uid=None, **o):
        own, caps = USERS[kind]
        return Agent(self, own if uid is None else uid, caps=caps,
                     before=self.in_sandbox(**o))

    def sidecar(self):
        """A process that is the worker for the kernel: its user, in its cgroup."""
        if not self.worker or self.worker.process.poll() is not None:
            self.worker = Agent(self, WORKER_UID, cgroup=True)
        return self.worker

    # ---- the program

    def settings(self, rules=RULES, **more):
        rows = [{"action": a, "target": t, **({"ports": p} if p else {})} for a, t, p in rules]
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": self.top,
               "OPENSANDBOX_EGRESS_MODE": "dns+nft", "OPENSANDBOX_EGRESS_TOKEN": TOKEN,
               "OPENSANDBOX_EGRESS_RULES": json.dumps({"defaultAction": "deny", "egress": rows}),
               "AGENTIC_WRITE_HOSTS": "api.model.test",
               "OPENSANDBOX_EGRESS_DNS_UPSTREAM": f"{RESOLVER[4]},{HOSTILE[4]}",
               "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true",
               "OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR": self.path("ca.pem"),
               "EGRESS_CA_CERT_OUT": self.path("egress-ca.pem"),
               "EGRESS_RULES_DIR": self.path("rules"),
               "EGRESS_AUDIT": self.path(f"audit-{self.logs}.jsonl")}
        env.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS") or
                    k == "ASAN_SYMBOLIZER_PATH"})
        env.update({k: v for k, v in more.items() if v is not None})
        return {k: v for k, v in env.items() if k not in more or more[k] is not None}

    def launch(self, own_cgroup=True, **more):
        """Starts the program and does not wait. own_cgroup False: it sees the root of all."""
        self.logs += 1
        env = self.settings(**more)
        self.audit, self.log = env["EGRESS_AUDIT"], self.path(f"egress-{self.logs}.log")

        def enter():
            if own_cgroup:
                self.enter_cgroup()
            call("unshare", CLONE_NEWNS)
            self.mount_cgroup()
            if self.resolv_conf:
                call("mount", self.resolv_conf.encode(), b"/etc/resolv.conf", None, MS_BIND, None)
            libc.prctl(1, signal.SIGKILL, 0, 0, 0)
            for cap in range(64):
                if cap not in DOCKER_CAPS and cap != NET_ADMIN:
                    libc.prctl(24, cap, 0, 0, 0)

        with Inside(self.box), open(self.log, "w") as out:
            self.process = subprocess.Popen([EGRESS], env=env, stdout=out, stderr=out,
                                            stdin=subprocess.DEVNULL, preexec_fn=enter,
                                            cwd=self.top)
        self.processes.append(self.process)

    def protect(self, **more):
        """The sidecar, and no word before it says that it is in good health."""
        start = time.monotonic()
        self.launch(**more)
        health = (0, "no answer")
        while time.monotonic() < start + READY_S and self.process.poll() is None:
            health = self.health()
            if health[0] == 200:
                self.ready_s = time.monotonic() - start
                return
            time.sleep(0.02)
        raise Failed(f"not ready: {health}; {self.output()[-600:]}")

    def output(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def ask(self, method, path, body=None, token=TOKEN):
        """(status, reason phrase, body) of the control API, asked from inside."""
        with Inside(self.box):
            c = http.client.HTTPConnection("127.0.0.1", API, timeout=5)
            c.connect()
        c.request(method, path, body, {"OPENSANDBOX-EGRESS-AUTH": token})
        r = c.getresponse()
        out = r.status, r.reason, r.read().decode(errors="replace")
        c.close()
        return out

    def health(self):
        try:
            return self.ask("GET", "/healthz")[:2]
        except (OSError, http.client.HTTPException) as e:
            return 0, f"{type(e).__name__}: {e}"

    def lines(self, since=0):
        """The audit trail from a byte offset on."""
        with contextlib.suppress(FileNotFoundError), open(self.audit) as f:
            f.seek(since)
            return [json.loads(x) for x in f if x.endswith("\n")]
        return []

    def audit_mark(self):
        with contextlib.suppress(FileNotFoundError, AttributeError):
            return os.path.getsize(self.audit)
        return 0

    def halt(self):
        """An ordered stop, and no report of a sanitizer."""
        if not self.process:
            return
        self.process.terminate()
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired as e:
            self.process.kill()
            raise Failed("the sidecar does not end") from e
        finally:
            self.process = None
        for bad in ("Sanitizer", "runtime error:", "requirement failed", "ended by signal"):
            if bad in self.output():
                raise Failed(f"log: {self.output()[-800:]}")
        if code != 0:
            raise Failed(f"exit code {code}: {self.output()[-400:]}")

    def free(self):
        self.halt()
        self.flush()

    def stop(self):
        super().stop()
        for _ in range(100):
            with contextlib.suppress(OSError):
                os.rmdir(self.sandbox)
                break
            time.sleep(0.02)


def main(scope):
    for tool in ("nginx", "unbound", "openssl"):
        if not any(os.access(os.path.join(d, tool), os.X_OK)
                   for d in os.environ["PATH"].split(":") + ["/usr/sbin"]):
            scope = {n: lacking(tool) for n in scope if n.startswith("case_")}
            break
    os.environ["PATH"] += ":/usr/sbin"
    return guardbed.main(scope, Bed)


def lacking(tool):
    def case(_):
        raise Skip(f"no {tool}")
    return case
