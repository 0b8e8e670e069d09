"""The bed of cases_*.py: raw recorders as origins, a resolver, redirection, and egress.

Comes before cases_http1.py, cases_connect.py, cases_readonly.py and cases_perf.py. Everything
lives in a network namespace with `lo` alone, which carries the addresses of all origins. Recorders
listen on every address at the ports in PORTS and note each byte of each connection, so that
`nothing arrived` covers addresses that no test thought of. nft rules redirect ports 80, 443 and
8080 of every uid but the worker's to egress. Sockets with the mark MARK pass: the controls, which
show that a recorder sees what the attack would have brought.
"""
import json
import os
import re
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import leakscan

SRC = os.environ.get("EGRESS_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
EGRESS = os.environ.get("EGRESS_BIN") or os.path.join(SRC, "build", "gcc-asan", "control",
                                                      "egress")
MARK = 0x77
WORKER_UID = 10042
PORT = 18081
PORTS = (22, 80, 443, 8080, 8081, 8443)
REDIRECTED = "80, 443, 8080"
WAIT_S = 5
THREADS = 8  # more, and a busy machine may need the 300 ms after which silence is no TLS
NAMES = {
    "read.test": ("11.22.0.10", "2a0e:77::10"), "two.test": ("11.22.0.30", "2a0e:77::30"),
    "api.model.test": ("11.22.0.20", "2a0e:77::20"), "deny.test": ("11.22.0.66", "2a0e:77::66"),
    "xn--bcher-kva.test": ("11.22.0.40", None), "a.wild.test": ("11.22.0.41", None),
}
MORE_NAMES = {  # names that only resolve: rebinding and metadata
    "private.wild.test": {"a": "10.77.0.3"}, "meta.wild.test": {"a": "169.254.169.254"},
    "mapped.wild.test": {"aaaa": "::ffff:10.77.0.3"}, "nat64.wild.test": {"aaaa": "64:ff9b::a4d:3"},
    "sixtofour.wild.test": {"aaaa": "2002:a4d:3::"}, "loop.wild.test": {"aaaa": "::1"},
    "unique.wild.test": {"aaaa": "fd00:ec2::254"}, "metadata.google.internal":
    {"a": "169.254.169.254"},
}
MORE_ADDRESSES = ("11.22.0.53", "10.77.0.2", "10.77.0.3", "169.254.169.254", "100.100.100.200",
                  "172.17.0.1", "192.168.0.1", "fd00:ec2::254")
POLICY = [("allow", "read.test", None), ("allow", "two.test", None), ("allow", "*.wild.test", None),
          ("allow", "api.model.test", None), ("allow", "10.77.0.2", None),
          ("allow", "xn--bcher-kva.test", None), ("allow", "read.test", [8080])]


class Failed(Exception):
    """What was seen is not what should be."""


class Skip(Exception):
    """The case cannot run here."""


def want(got, should, what):
    if got != should:
        raise Failed(f"{what}: {got!r}, not {should!r}")


def want_in(part, text, what):
    if part not in text:
        raise Failed(f"{what}: {part!r} is not in {text[-600:]!r}")


def want_out(part, text, what):
    if part.lower() in text.lower():
        raise Failed(f"{what}: {part!r} is in {text[-600:]!r}")


def until(check, what, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.01)


# --- messages ---

def split_head(data):
    """(start line, [(name, value)], rest) of a message whose head is complete, else None."""
    at = data.find(b"\r\n\r\n")
    if at < 0:
        return None
    lines = data[:at].split(b"\r\n")
    fields = [tuple(x.partition(b":")[::2]) for x in lines[1:]]
    return lines[0], [(n.lower(), v.strip()) for n, v in fields], data[at + 4:]


def values(fields, name):
    return [v for n, v in fields if n == name.lower()]


def take_chunked(data):
    """(content, rest) of a complete chunked body without trailers, else None."""
    content = b""
    while True:
        line, sep, rest = data.partition(b"\r\n")
        if not sep:
            return None
        size = int(line.split(b";")[0], 16)
        if size == 0:
            end = rest.find(b"\r\n")
            if end < 0:
                return None
            return content, rest[end + 2:]
        if len(rest) < size + 2:
            return None
        content, data = content + rest[:size], rest[size + 2:]


class Reply:
    def __init__(self, line, fields, body):
        self.fields, self.body = fields, body
        parts = line.split(b" ", 2)
        self.status = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
        self.phrase = parts[2].decode("latin1") if len(parts) > 2 else ""

    def field(self, name):
        found = values(self.fields, name.encode())
        return found[0].decode("latin1") if found else None


def replies_of(data, eof, head=False):
    """All complete responses in data."""
    out = []
    while data:
        parts = split_head(data)
        if not parts:
            break
        line, fields, rest = parts
        reply = Reply(line, fields, b"")
        length = values(fields, b"content-length")
        if reply.status < 200 or reply.status in (204, 304) or head:
            data = rest
        elif values(fields, b"transfer-encoding"):
            taken = take_chunked(rest)
            if taken is None:
                break
            reply.body, data = taken
        elif length:
            if len(rest) < int(length[0]):
                break
            reply.body, data = rest[:int(length[0])], rest[int(length[0]):]
        elif eof:
            reply.body, data = rest, b""
        else:
            break
        out.append(reply)
        if reply.status == 101:
            break
    return out


class Talk:
    """What came back on one connection."""

    def __init__(self, head=False):
        self.raw, self.eof, self.error, self.is_head = b"", False, None, head
        self.took = 0.0

    @property
    def replies(self):
        return replies_of(self.raw, self.eof, self.is_head)

    @property
    def finals(self):
        return [r for r in self.replies if r.status >= 200 or r.status == 101]

    @property
    def statuses(self):
        return [r.status for r in self.replies]

    def __repr__(self):
        return f"<{self.statuses} eof={self.eof} {self.error or ''} {self.raw[:160]!r}>"


def want_403(talk, what, at=-1):
    """The refusal of the contract, well framed."""
    if not talk.finals:
        raise Failed(f"{what}: no answer: {talk}")
    r = talk.finals[at]
    want((r.status, r.phrase), (403, "blocked"), f"{what}: status ({talk})")
    want(r.field("content-type"), "text/plain; charset=utf-8", f"{what}: type")
    want(r.field("x-egress-verdict"), "blocked", f"{what}: verdict")
    if not talk.is_head:
        want(r.body[:13], b"403 blocked: ", f"{what}: text")
        want(r.field("content-length"), str(len(r.body)), f"{what}: length")


def want_400c(talk, what):
    """One 400 from us, and the end."""
    want([talk.statuses, talk.eof], [[400], True], f"{what}: status, closed ({talk})")
    want(talk.replies[0].field("x-egress-verdict"), "blocked", f"{what}: whose answer")


def want_ok(talk, what, n=1):
    want([r.status for r in talk.finals], [200] * n, f"{what}: {talk}: statuses")


def read_talk(s, talk, n, wait):
    """Reads until n final responses came (None: until the end)."""
    end = time.monotonic() + wait
    try:
        while n is None or len(talk.finals) < n:
            s.settimeout(max(0.001, end - time.monotonic()))
            data = s.recv(65536)
            if not data:
                talk.eof = True
                break
            talk.raw += data
    except TimeoutError:
        talk.error = "open"
    except OSError as e:
        talk.error = str(e)


# --- recorders ---

class Peer:
    """One connection to a recorder. Everything that comes in is noted."""

    def __init__(self, origins, sock, number):
        name = sock.getsockname()
        self.origins, self.sock, self.number = origins, sock, number
        self.addr = name[0][7:] if name[0].startswith("::ffff:") else name[0]
        self.port, self.sni, self.buf, self.cut = name[1], None, b"", False

    def more(self):
        data = self.sock.recv(65536)
        if data:
            self.origins.note(self, data)
        self.buf += data
        return len(data) > 0

    def head(self):
        while b"\r\n\r\n" not in self.buf:
            if not self.more():
                return None
        at = self.buf.index(b"\r\n\r\n") + 4
        head, self.buf = self.buf[:at], self.buf[at:]
        return head

    def body(self, head):
        _, fields, _ = split_head(head)
        length = values(fields, b"content-length")
        if b"chunked" in b"".join(values(fields, b"transfer-encoding")).lower():
            while (taken := take_chunked(self.buf)) is None:
                if not self.more():
                    raise OSError("content ends early")
            content, self.buf = taken
            return content
        size = int(length[0]) if length and length[0].isdigit() else 0
        while len(self.buf) < size:
            if not self.more():
                raise OSError("content ends early")
        content, self.buf = self.buf[:size], self.buf[size:]
        return content

    def send(self, *pieces):
        for p in pieces:
            self.sock.sendall(p)


def ok(body=b"ok\n", fields=b"", status=b"200 OK"):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), fields, body)


class Origins:
    """The recorders. route(path, f): f(peer, head) answers requests to that path and returns
    whether the connection goes on; other requests get 200 with `METHOD target`."""

    def __init__(self, cert, key):
        self.log, self.lock, self.routes, self.n = [], threading.Lock(), {}, 0
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(cert, key)
        self.tls.set_alpn_protocols(["http/1.1"])
        self.tls.sni_callback = lambda sock, name, _: setattr(sock, "asked", name)
        for port in PORTS:
            s = socket.socket(socket.AF_INET6)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("::", port))
            s.listen(1024)
            threading.Thread(target=self.accept, args=(s,), daemon=True).start()

    def note(self, peer, data):
        with self.lock:
            self.log.append((peer, data))

    def accept(self, listener):
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.n += 1
            peer = Peer(self, sock, self.n)
            self.note(peer, None)
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        try:
            first = peer.sock.recv(1, socket.MSG_PEEK)
            if peer.port in (443, 8443) and first == b"\x16":
                peer.sock = self.tls.wrap_socket(peer.sock, server_side=True)
                peer.sni = getattr(peer.sock, "asked", None)
            while (head := peer.head()) is not None:
                target = (head.split(b" ", 2) + [b"", b""])[1].split(b"?")[0]
                route = self.routes.get(target.decode("latin1"))
                if route:
                    if not route(peer, head):
                        break
                    continue
                peer.body(head)
                peer.send(ok(b" ".join(head.split(b" ", 2)[:2])))
        except (OSError, ValueError, LookupError):
            pass
        try:
            if isinstance(peer.sock, ssl.SSLSocket) and not peer.cut:
                peer.sock.settimeout(1)
                peer.sock.unwrap()
        except OSError:
            pass
        peer.sock.close()

    def mark(self):
        with self.lock:
            return len(self.log)

    def since(self, mark):
        """[(peer, bytes)] of what came since, one for each connection; b"" if nothing but it."""
        with self.lock:
            events = self.log[mark:]
        out = {}
        for peer, data in events:
            out.setdefault(peer.number, (peer, []))[1].append(data or b"")
        return [(p, b"".join(parts)) for p, parts in out.values()]


# --- egress ---

class Egress:
    """One running egress, mode proxy."""

    def __init__(self, bed, name, policy=None, port=PORT, **more):
        self.name, self.port = name, port
        self.folder = os.path.join(bed.top, name)
        os.mkdir(self.folder)
        os.chmod(bed.top, 0o755)
        self.ca = os.path.join(self.folder, "ca.pem")
        self.audit = os.path.join(self.folder, "audit.jsonl")
        self.log = os.path.join(self.folder, "egress.log")
        rules = [{"action": a, "target": t, **({"ports": p} if p else {})}
                 for a, t, p in policy or POLICY]
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": self.folder,
               "OPENSANDBOX_EGRESS_MODE": "proxy", "AGENTIC_WRITE_HOSTS": "api.model.test",
               "OPENSANDBOX_EGRESS_RULES": json.dumps({"defaultAction": "deny", "egress": rules}),
               "EGRESS_PROXY_ADDR": f"127.0.0.1:{port}", "EGRESS_CA_CERT_OUT": self.ca,
               "EGRESS_AUDIT": self.audit, "EGRESS_UPSTREAM_IDLE": "1s",
               "OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR": bed.path("ca.pem"),
               "OPENSANDBOX_EGRESS_DNS_UPSTREAM": "11.22.0.53:53"}
        env.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS") or
                    k == "ASAN_SYMBOLIZER_PATH"})
        env.update(more)
        with open(self.log, "w") as out:
            self.process = subprocess.Popen([EGRESS], env=env, stdout=out, stderr=out,
                                            cwd=self.folder)
        bed.processes.append(self.process)
        until(lambda: " ready: " in self.text() or self.process.poll() is not None,
              "egress is ready", 20)
        if self.process.poll() is not None:
            raise Failed(f"egress did not start: {self.text()[-400:]}")
        self.context = ssl.create_default_context(cafile=self.ca)
        self.fds = self.open_files()
        self.leak = leakscan.Watch(env.get("EGRESS_VAULT_FILE"))
        self.leak.note()

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def lines(self):
        with open(self.audit) as f:
            return [json.loads(x) for x in f if x.endswith("\n")]

    @property
    def worker(self):
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as f:
            return int((f.read().split() or [0])[-1])  # 0: between one and the next

    def open_files(self):
        return len(os.listdir(f"/proc/{self.worker}/fd"))

    def memory(self):
        with open(f"/proc/{self.worker}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) << 10

    def stop(self):
        """Everything that every case expects besides its own: no descriptor left over, no
        sanitizer's report, an end that was asked for, and no key anywhere (leakscan.py)."""
        until(lambda: self.open_files() <= self.fds,
              f"{self.name}: open files go back to {self.fds}")
        self.leak.memory(self.process.pid)
        self.process.terminate()
        want(self.process.wait(20), 0, f"{self.name}: exit code")
        for bad in ("Sanitizer", "runtime error:", "requirement failed", "ended by signal"):
            want_out(bad, self.text(), f"{self.name}: log")
        self.leak.files(self.folder)
        if self.leak.keys:
            print(f"# leak {self.name}: {self.leak}", flush=True)
        want(self.leak.seen.found[:4], [], f"{self.name}: keys where none may be")


class Bed:
    def __init__(self, top):
        self.top, self.egress, self.running, self.rows_run = top, None, [], 0
        self.processes = []

    def path(self, name):
        return os.path.join(self.top, name)

    def run(self, *args, text=None):
        p = subprocess.run(args, input=text, capture_output=True, text=True, cwd=self.top)
        if p.returncode != 0:
            raise Failed(f"{args[0]} {args[1]}: {p.stderr[-300:]}")

    def start(self):
        self.addresses()
        self.certificates()
        self.resolver()
        self.origins = Origins(self.path("leaf.pem"), self.path("leaf.key"))
        self.redirect()
        self.need("main")

    def addresses(self):
        every = [a for pair in NAMES.values() for a in pair if a] + list(MORE_ADDRESSES)
        lines = ["link set lo up"] + [f"addr add {a} dev lo" + (" nodad" if ":" in a else "")
                                      for a in every]
        self.run("ip", "-batch", "-", text="\n".join(lines) + "\n")

    def certificates(self):
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = ",".join([f"DNS:{n}" for n in NAMES] + ["DNS:*.wild.test"])
        self.run("openssl", "req", "-x509", *new, "-days", "30", "-keyout", "ca.key", "-out",
                 "ca.pem", "-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign")
        self.run("openssl", "req", *new, "-subj", "/CN=origin", "-keyout", "leaf.key", "-out",
                 "leaf.csr")
        with open(self.path("leaf.ext"), "w") as f:
            f.write(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
        self.run("openssl", "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                 "-CAcreateserial", "-days", "20", "-extfile", "leaf.ext", "-out", "leaf.pem")
        self.direct_context = ssl.create_default_context(cafile=self.path("ca.pem"))

    def resolver(self):
        zone = {n: {k: v for k, v in (("a", a), ("aaaa", b)) if v} for n, (a, b) in NAMES.items()}
        with open(self.path("zone"), "w") as f:
            json.dump({**zone, **MORE_NAMES}, f)
        out = open(self.path("dnsd.out"), "w+")
        self.processes.append(subprocess.Popen(
            [sys.executable, os.path.join(SRC, "tests", "tools", "dnsd.py"), "--listen",
             "11.22.0.53", "--port", "53", "--zone", self.path("zone"), "--log",
             self.path("questions.log")], stdout=out, stderr=subprocess.STDOUT))
        until(lambda: "listening" in open(self.path("dnsd.out")).read(), "resolver")

    def redirect(self):
        rules = [f"meta skuid {WORKER_UID} return", f"meta mark {MARK} return",
                 f"tcp dport {{ {REDIRECTED} }} redirect to :{PORT}"]
        text = "".join(f"add table {f} cases\nadd chain {f} cases output {{ type nat hook output "
                       "priority -100 ; }\n" + "".join(
                           f"add rule {f} cases output {r}\n" for r in (own, *rules))
                       for f, own in (("ip", "ip daddr 127.0.0.0/8 return"),
                                      ("ip6", "ip6 daddr ::1 return")))
        self.run("nft", "-f", "-", text=text)

    def need(self, name, **settings):
        """Makes the egress of that name, with settings besides, the one that is talked to. The
        one at PORT is `main`; others have ports of their own and see no redirected traffic."""
        for e in self.running:
            if e.name == name:
                self.egress = e
                return e
        settings.setdefault("port", PORT + len(self.running))
        self.egress = Egress(self, name, **settings)
        self.running.append(self.egress)
        return self.egress

    def stop(self):
        failed = []
        for e in self.running:
            try:
                e.stop()
            except Failed as x:
                failed.append(str(x))
        if failed:
            raise Failed("; ".join(failed))

    # --- clients ---

    def dial(self, addr, port, direct=False):
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET)
        s.settimeout(WAIT_S)
        if direct:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        s.connect((addr, port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def talk(self, s, data, n=1, gap=0.0, wait=WAIT_S, head=False):
        """Sends the pieces, reads n final responses, closes."""
        talk, start = Talk(head), time.monotonic()
        pieces = [data] if isinstance(data, bytes) else data
        with s:
            try:
                for i, p in enumerate(pieces):
                    if i and gap:
                        time.sleep(gap)
                    s.sendall(p)
            except OSError as e:
                talk.error = str(e)
            read_talk(s, talk, n, wait)
            talk.took = time.monotonic() - start
        for e in self.running:
            e.leak.sent(b"".join(pieces))
            e.leak.got(b"".join(pieces), talk.raw)
        return talk

    def connect(self, authority, proxy=None):
        """A socket behind a CONNECT that was granted, else the Talk that refused it."""
        s = self.dial(*(proxy or ("127.0.0.1", self.egress.port)))
        line = authority.encode("latin1")
        s.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (line, line))
        talk = Talk(head=True)
        while b"\r\n\r\n" not in talk.raw:
            data = s.recv(1)
            if not data:
                talk.eof = True
                break
            talk.raw += data
        if talk.statuses == [200]:
            return s
        talk.is_head = False
        read_talk(s, talk, 1, 1)
        s.close()
        return talk

    def wrap(self, s, name, context=None):
        context = context or self.egress.context
        return context.wrap_socket(s, server_hostname=name)

    def plain(self, name, data, v6=False, port=80, **how):
        return self.talk(self.dial(NAMES[name][v6], port), data, **how)

    def tls(self, name, data, v6=False, **how):
        return self.talk(self.wrap(self.dial(NAMES[name][v6], 443), name), data, **how)

    def px(self, data, v6=False, **how):
        return self.talk(self.dial("::1" if v6 else "127.0.0.1", self.egress.port), data, **how)

    def via(self, name, data, v6=False, **how):
        proxy = ("::1" if v6 else "127.0.0.1", self.egress.port)
        s = self.connect(f"{name}:443", proxy)
        return s if isinstance(s, Talk) else self.talk(self.wrap(s, name), data, **how)

    def tunnel80(self, name, data, v6=False, **how):
        proxy = ("::1" if v6 else "127.0.0.1", self.egress.port)
        s = self.connect(f"{name}:80", proxy)
        return s if isinstance(s, Talk) else self.talk(s, data, **how)

    # --- checks ---

    def rows(self, rows):
        """[(what, function)] all at once; fails with all that failed."""
        failed = []

        def one(row):
            try:
                row[1]()
            except (Failed, OSError, ValueError, LookupError) as e:
                failed.append(f"[{row[0]}] {type(e).__name__}: {e}")

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(one, rows))
        self.rows_run += len(rows)
        if failed:
            raise Failed(f"{len(failed)} of {len(rows)}: " + " ## ".join(failed[:6]))

    def control(self, sent, addr="11.22.0.10", port=80, name=None):
        """Sent directly, the recorder notes exactly these bytes."""
        mark = self.origins.mark()
        s = self.dial(addr, port, direct=True)
        me = None
        if name:
            s = self.wrap(s, name, self.direct_context)
        with s:
            s.sendall(sent)

            def seen():
                nonlocal me
                me = [x for x in self.origins.since(mark) if sent in x[1]]
                return bool(me)
            until(seen, f"control: the recorder at {addr} port {port} sees {sent[:60]!r}")
        want(me[0][0].addr, addr, "control: where")

    def nothing(self, rows, controls):
        """Rows after which nothing at all arrived anywhere, then the controls."""
        mark = self.origins.mark()
        self.rows(rows)
        time.sleep(0.05)
        seen = [(p.addr, p.port, data[:120]) for p, data in self.origins.since(mark)]
        want(seen, [], "what reached an origin")
        for c in controls:
            self.control(*c)


def own_network():
    """True in a network whose one device is lo, as ./test makes them; by hand, as root, makes one.
    Rules and addresses must never get into the network of the machine."""
    if os.geteuid() != 0:
        return False
    up = subprocess.run(["ip", "-o", "link", "show", "up"], capture_output=True, text=True,
                        check=False).stdout.splitlines()
    if all(re.match(r"\d+: lo:", x) for x in up):
        return True
    if os.environ.get("CASEBED_TRIED"):
        return False
    os.environ["CASEBED_TRIED"] = "1"
    try:
        if subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0:
            os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    except OSError:
        pass
    return False


def explain(error):
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:1500]


def main(scope, names_like=r"C\d+_"):
    cases = {n.replace("_", "-"): f for n, f in scope.items() if re.match(names_like, n)}
    if sys.argv[1:] == ["--list"]:
        print("\n".join([*cases, "clean-end"]))
        return 0
    names = sys.argv[1:] or [*cases, "clean-end"]
    missing = [t for t in ("ip", "nft", "openssl") if not shutil.which(t)]
    if missing or not own_network():
        why = f"no {missing[0]}" if missing else "needs root and a network of its own"
        for name in names:
            print(f"skip {name} {why}", flush=True)
        return 0
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    top = tempfile.mkdtemp(prefix="cases-", dir=os.environ.get("EGRESS_TMP"))
    bed, bad = Bed(top), 1
    try:
        bad = run_cases(bed, cases, names)
    finally:  # threads of recorders may still wait for bytes; whatever happened, nothing stays
        for p in bed.processes:
            p.kill()
        sys.stdout.flush()
        if bad == 0 and not os.environ.get("EGRESS_TMP"):
            shutil.rmtree(top, ignore_errors=True)
    os._exit(1 if bad else 0)


def run_cases(bed, cases, names):
    """How many failed."""
    bad = 0
    bed.start()
    for name in names:
        if name == "clean-end":
            continue
        bed.need("main")
        start, before = time.monotonic(), bed.rows_run
        try:
            cases[name](bed)
        except Skip as e:
            print(f"skip {name} {e}", flush=True)
        except (Failed, OSError, ValueError, LookupError, subprocess.SubprocessError) as e:
            bad += 1
            print(f"not ok {name} {explain(e)}", flush=True)
        else:
            print(f"ok {name}", flush=True)
        print(f"  rows={bed.rows_run - before} seconds={time.monotonic() - start:.1f}", flush=True)
    try:
        bed.stop()
        if "clean-end" in names:
            print("ok clean-end", flush=True)
    except (Failed, OSError) as e:
        bad += 1
        print(f"not ok clean-end {explain(e)}", flush=True)
    print(f"  all rows={bed.rows_run}", flush=True)
    return bad
