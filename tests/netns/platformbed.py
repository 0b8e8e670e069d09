"""The bed of runner.py, astrabox.py and long/browser.py: the whole sidecar as a platform uses it.

gatebed.py's bed and three things more. A bridge of private addresses, with the host, a service of the
platform's on it, and another sandbox. Sites with subdomains, a model host, an internal gateway, whose
origins note the credentials that they got. And what a platform does: keys() gives the vault its
document, sites() the policy, follow() starts what runs on while a policy changes.
"""
import base64
import hashlib
import http.server
import json
import os
import secrets
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.join(os.path.dirname(sys.path[0]), "e2e"))
import gatebed  # noqa: E402
import leakscan  # noqa: E402
import sidecarbed  # noqa: E402
from guardbed import BOX, SRC, Failed, Inside, run, want  # noqa: E402
from sidecarbed import EVIL, GOOD, INTERNAL, META, TWO, WILD, WRITE  # noqa: E402

BRIDGE = "172.17.91.0/24"
HOST, NEIGHBOUR, OWN = "172.17.91.1", "172.17.91.3", "172.17.91.2"
ENTRANCE = 8081
SITES = {"site.test": GOOD, "*.site.test": GOOD, "*.deep.site.test": GOOD, "mysite.test": EVIL,
         "other.test": TWO, "*.other.test": TWO,
         # another site at the address of the first, as behind one CDN
         "shared.test": GOOD, "kept.test": WILD, "api.model.test": WRITE, "mcp.test": WRITE,
         "git.test": WRITE, "gateway.corp.test": INTERNAL}
ZONE = {**gatebed.ZONE, **{n: {"a": a[4], "aaaa": a[6], "ttl": 5} for n, a in SITES.items()},
        "gateway.corp.test": {"a": INTERNAL[4]},
        "host.test": {"a": HOST}, "metadata.test": {"a": META[4]},
        "rebind.site.test": {"a": HOST}, "meta.site.test": {"a": META[4]}}
PLACES = """
    location /files/ {{ root {top}; }}
    location /web/ {{ root {top}; types {{ text/html html; text/css css; text/javascript js; }} }}
    location /long {{ limit_rate 64k; alias {top}/long; }}
    location = /go {{ return 302 https://www.site.test/went; }}
    location /v1/ {{ rewrite ^/v1(/.*) $1 break; proxy_pass http://unix:{top}/origin.sock;
                     proxy_buffering off; }}
    location /mcp {{ proxy_pass http://unix:{top}/origin.sock; }}
    location /git/ {{ proxy_pass http://unix:{top}/origin.sock; proxy_set_header Host $host; }}
"""
LONG = 160 << 10  # bytes of /long: two and a half seconds
SECOND = 1.0      # in which a change is everywhere


class Entrance(http.server.BaseHTTPRequestHandler):
    """The runner's service on the bridge: it takes everything."""
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.got.append((self.command, self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"in\n")

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_):
        pass


class Bed(gatebed.Bed):
    NAME = "platformbed"
    TOP_ZONE = ZONE
    values = frozenset()  # of all credentials that it was given
    keyed = None  # the process whose vault has the keys of the scenario

    def servers(self):
        sidecarbed.NAMES.update({n: a for n, a in SITES.items()})
        with Inside(self.net):
            for addr in (HOST, NEIGHBOUR):
                run("ip", "addr", "add", f"{addr}/24", "dev", "lan")
        with Inside(self.box):
            run("ip", "addr", "add", f"{OWN}/24", "dev", "wan")
        self.write("long", "".join("%07d\n" % i for i in range(LONG // 8)))
        self.origin_program()
        super().servers()
        with Inside(self.net):
            for addr in (HOST, NEIGHBOUR):
                self.serve(socket.IPPROTO_TCP, addr, 5000)
            self.entrance = http.server.ThreadingHTTPServer((HOST, ENTRANCE), Entrance)
        self.entrance.got = []
        self.thread(self.entrance.serve_forever)

    def origin_program(self):
        """What the paths with keys are answered by: JSON, and git repositories."""
        os.makedirs(self.path("git"), exist_ok=True)
        self.daemon("origin", sys.executable, os.path.join(SRC, "tests/tools/origin.py"),
                    "--socket", self.path("origin.sock"), "--git", self.path("git"))

    def nginx(self):
        """With the places above, and what a request carried in the log."""
        text = sidecarbed.NGINX.replace("    location / {{", PLACES + "    location / {{", 1)
        text = text.replace("""'"body":""", """'"auth":"$http_authorization",'
    '"key":"$http_x_api_key","more":"$http_x_session","content":"$request_body","body":""", 1)
        sidecarbed.NGINX = text
        sidecarbed.Bed.nginx(self)

    # ---- what the platform does

    def keys(self, doc):
        """The vault as this document says, whatever it was before."""
        self.values |= {c["source"]["value"] for c in doc["credentials"]}
        got = self.ask("DELETE", "/credential-vault")
        want(got[0] in (204, 404), True, f"DELETE /credential-vault: {got}")
        got = self.ask("POST", "/credential-vault", json.dumps(doc))
        want(got[0], 201, f"POST /credential-vault: {got}")
        return json.loads(got[2])

    def halt(self):
        """An ordered stop; no key is in what it wrote, or in memory that others may read."""
        if self.process and self.process.poll() is None and self.values:
            keys = [v.encode() for v in self.values]
            seen = leakscan.search_memory(self.process.pid, keys)
            leakscan.search_files([p for p in (self.log, self.audit) if os.path.exists(p)], keys, seen)
            want((seen.found, seen.bytes > 0), ([], True), "keys in memory, log or trail")
        super().halt()

    # ---- the sandbox

    def get(self, url, *args):
        """(status, reason phrase, X-Egress-Reason, content) that curl got; status 0 without answer."""
        code, text = self.tool("curl", "-sSi", "-m", "5", "--cacert", self.path("egress-ca.pem"),
                               *args, url)
        if code != 0 or not text.startswith("HTTP/"):
            return 0, f"curl {code}", None, text
        head, _, content = text.partition("\n\n")
        while head.startswith("HTTP/1.1 100"):
            head, _, content = content.partition("\n\n")
        lines = head.splitlines()
        fields = dict(x.lower().split(": ", 1) for x in lines[1:] if ": " in x)
        status = lines[0].split(" ", 2)
        return int(status[1]), status[2], fields.get("x-egress-reason"), content

    def follow(self, url, *args):
        """A long download that goes on meanwhile."""
        p = self.begin("curl", "-sS", "-m", "20", "-o", "/dev/null", "-w",
                       "%{http_code} %{size_download} %{time_starttransfer}", "--cacert",
                       self.path("egress-ca.pem"), *args, url)
        return Follow(p, url)

    def audit_mark(self):
        """The number of the last line, written to the file by now or not."""
        try:
            return json.loads(self.ask("GET", "/status")[2])["audit"]["seq"]
        except OSError:
            return 0

    def lines(self, since=0):
        return [x for x in super().lines() if x["seq"] > since]

    def web_lines(self, since):
        """What is on record about the web, once nothing more comes: a line is written when the
        exchange has ended."""
        rows = []
        end = time.monotonic() + 3
        while time.monotonic() < end:
            now = [x for x in self.lines(since) if x["kind"] in ("read", "write", "tunnel")]
            if rows and len(now) == len(rows):
                break
            rows = now
            time.sleep(0.25)
        return rows


class Follow:
    def __init__(self, process, url):
        self.process, self.url, self.start = process, url, time.monotonic()

    def end(self, seconds):
        """(exit code, status, bytes) of curl; fails if it takes longer."""
        try:
            text = self.process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired as e:
            self.process.kill()
            raise Failed(f"{self.url}: still runs after {seconds} s") from e
        words = text.split()[-3:]
        return (self.process.returncode, words[0], int(words[1])) if len(words) == 3 else (
            self.process.returncode, text, 0)

    def whole(self):
        want(self.end(15), (0, "200", LONG), f"{self.url} to its end")

    def cut(self, since):
        """Ended by the change at `since`, within a second, and not by its own end."""
        code, _, size = self.end(SECOND + 3)
        took = time.monotonic() - since
        want((code != 0, size < LONG, took < SECOND), (True, True, True),
             f"{self.url}: cut (exit {code}, {size} bytes, {took:.2f} s after the change)")


def rule(action, target, *ports):
    return {"action": action, "target": target, **({"ports": list(ports)} if ports else {})}


def policy(default, *rules):
    return json.dumps({"defaultAction": default, "egress": list(rules)})


def sites(*names):
    """Each with its subdomains: two rules."""
    return [rule("allow", t) for n in names for t in (n, f"*.{n}")]


def key(prefix):
    """A key of which no eight bytes are anywhere by chance."""
    return prefix + secrets.token_urlsafe(24).replace("-", "A").replace("_", "B")


def credential(name, value):
    return {"name": name, "source": {"type": "inline", "value": value}}


def basic(user, password):
    return base64.b64encode(f"{user}:{password}".encode()).decode()


# A WebSocket server of the sandbox's own (RFC 6455): it opens, and sends back each text.
WEBSOCKET_SERVER = """
import base64, hashlib
def ws_serve(s):
    while True:
        c, _ = s.accept()
        threading.Thread(target=ws_talk, args=(c,), daemon=True).start()
def ws_talk(c):
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        head += c.recv(4096)
    key = [x.split(b":")[1].strip() for x in head.split(b"\\r\\n")
           if x.lower().startswith(b"sec-websocket-key:")][0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    c.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
              b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
    while True:
        h = c.recv(2, socket.MSG_WAITALL)
        if len(h) < 2:
            return
        n = h[1] & 127
        mask, data = c.recv(4, socket.MSG_WAITALL), c.recv(n, socket.MSG_WAITALL)
        c.sendall(bytes([0x81, n]) + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
ws = socket.create_server(("0.0.0.0", {port}))
threading.Thread(target=ws_serve, args=(ws,), daemon=True).start()
"""


class WebSocket:
    """Somebody outside who opens one to the sandbox."""

    def __init__(self, bed, port):
        with Inside(bed.net):
            self.sock = socket.socket()
        self.sock.settimeout(3)
        self.sock.connect((BOX[4], port))
        nonce = base64.b64encode(secrets.token_bytes(16))
        self.sock.sendall(b"GET /live HTTP/1.1\r\nHost: pod\r\nUpgrade: websocket\r\n"
                          b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                          b"Sec-WebSocket-Key: " + nonce + b"\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.sock.recv(1)
            if not piece:
                raise Failed(f"no handshake: {head!r}")
            head += piece
        accept = base64.b64encode(hashlib.sha1(
            nonce + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        want((head.split(b"\r\n")[0], accept in head),
             (b"HTTP/1.1 101 Switching Protocols", True), "handshake")

    def say(self, text):
        """What comes back for it."""
        data, mask = text.encode(), b"mask"
        self.sock.sendall(bytes([0x81, 0x80 | len(data)]) + mask +
                          bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
        head = self.sock.recv(2, socket.MSG_WAITALL)
        return self.sock.recv(head[1] & 127, socket.MSG_WAITALL).decode() if len(head) == 2 else None


def free(bed):
    """The control: no sidecar, no tables."""
    bed.free()
    bed.running = None
