"""The closed world of the OpenSandbox tests: two network namespaces, and no way out of them.

`host` is the machine on which the engine, the server and the SDKs run; `net` plays the internet and
has the addresses that the tests need as its own: public ones, the metadata service, a private one.
Their default routes point at each other and nowhere else. Origins are nginx on every address, with
certificates of a test CA; the resolver is tests/tools/dnsd.py. engine.py starts Docker in `host`.
"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "netns"))
from guardbed import (Failed, Inside, Skip, call, libc, new_network, run, until,  # noqa: E402,F401
                      want)

HOST, ROUTER = "198.18.60.2", "198.18.60.1"
READ, TWO, MODEL, EVIL = "11.22.0.10", "11.22.0.31", "11.22.0.20", "11.22.0.66"
RESOLVER, ANYCAST, META, PRIVATE = "11.22.0.53", "1.1.1.1", "169.254.169.254", "10.77.0.3"
REAL = "8.8.8.8"  # of the real internet: nobody has it here
ADDRESSES = (READ, TWO, MODEL, EVIL, RESOLVER, ANYCAST, META, PRIVATE)
ZONE = {"read.test": READ, "two.test": TWO, "api.model.test": MODEL, "evil.test": EVIL,
        "sub.site.test": TWO, "site.test": READ, "gateway.internal.test": PRIVATE}
CLONE_NEWNS = 0x20000
MS_PRIVATE, MS_REC = 1 << 18, 1 << 14
PR_SET_PDEATHSIG = 1
# The fields are logged where a test looks for keys that arrived.
NGINX = """
master_process off;
daemon off;
pid {top}/nginx.pid;
error_log {top}/nginx-error.log;
events {{ worker_connections 512; }}
http {{
  log_format seen escape=json '{{"addr":"$server_addr","port":$server_port,"scheme":"$scheme",'
    '"sni":"$ssl_server_name","host":"$host","method":"$request_method","uri":"$request_uri",'
    '"authorization":"$http_authorization","key":"$http_x_api_key","peer":"$remote_addr"}}';
  access_log {top}/seen.jsonl seen;
  client_body_temp_path {top}/body; proxy_temp_path {top}/proxy; fastcgi_temp_path {top}/fcgi;
  uwsgi_temp_path {top}/uwsgi; scgi_temp_path {top}/scgi;
  ssl_certificate {top}/leaf.pem; ssl_certificate_key {top}/leaf.key;
  keepalive_timeout 60s;
  default_type text/plain;
  server {{
    listen 80; listen 8081; listen 443 ssl;
    location /slow {{ limit_rate 20k; alias {top}/slow; }}
    location ~ /mirror$ {{ return 200 "$http_authorization $http_x_api_key $request_uri\\n"; }}
    location / {{ return 200 "$server_addr $host $request_method $request_uri\\n"; }}
  }}
}}
"""


def die_with_parent():
    """A daemon of a test that was killed must not stay."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class World:
    """top: a folder for this run, that nginx's worker may enter."""

    def __init__(self, top):
        self.top, self.processes = top, []
        self.net = self.host = None

    def path(self, name):
        return os.path.join(self.top, name)

    def start(self):
        with contextlib.ExitStack() as stack:
            back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            stack.callback(os.close, back)
            stack.callback(libc.setns, back, 0)
            self.net, self.host = new_network(), new_network()
        self.wire()
        self.certificates()
        with Inside(self.net):
            self.resolver()
            self.nginx()
            self.udp_echo(READ, 443)

    @staticmethod
    def udp_echo(addr, port):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((addr, port))

        def serve():
            while True:
                data, peer = s.recvfrom(2048)
                s.sendto(data, peer)
        threading.Thread(target=serve, daemon=True).start()

    def wire(self):
        def ip(where, *lines):
            with Inside(where):
                for line in lines:
                    run("ip", *line.split())
        pid = os.getpid()
        with Inside(self.host):
            run("ip", "link", "add", "wan", "type", "veth", "peer", "name", "lan", "netns",
                f"/proc/{pid}/fd/{self.net}")
        ip(self.host, "link set lo up", f"addr add {HOST}/30 dev wan", "link set wan up",
           f"route add default via {ROUTER}")
        ip(self.net, "link set lo up", f"addr add {ROUTER}/30 dev lan", "link set lan up",
           *(f"addr add {a}/32 dev lo" for a in ADDRESSES), f"route add default via {HOST}")

    def certificates(self):
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = [f"DNS:{n}" for n in ZONE] + [f"IP:{a}" for a in ADDRESSES]
        run("openssl", "req", "-x509", *new, "-days", "30", "-keyout", self.path("ca.key"), "-out",
            self.path("ca.pem"), "-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign")
        run("openssl", "req", *new, "-subj", "/CN=origin", "-keyout", self.path("leaf.key"),
            "-out", self.path("leaf.csr"))
        with open(self.path("leaf.ext"), "w") as f:
            f.write(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
        run("openssl", "x509", "-req", "-in", self.path("leaf.csr"), "-CA", self.path("ca.pem"),
            "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "20", "-extfile",
            self.path("leaf.ext"), "-out", self.path("leaf.pem"))

    def daemon(self, name, *args, env=None, before=die_with_parent, cwd=None):
        """In the namespace of the calling thread."""
        with open(self.path(f"{name}.out"), "ab") as out:
            p = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env,
                                 preexec_fn=before, cwd=cwd)
        self.processes.append(p)
        return p

    def resolver(self):
        with open(self.path("zone.json"), "w") as f:
            json.dump({n: {"a": a, "ttl": 30} for n, a in ZONE.items()}, f)
        self.daemon("dnsd", sys.executable, os.path.join(TESTS, "tools", "dnsd.py"),
                    "--listen", RESOLVER, "--listen", ANYCAST, "--port", "53",
                    "--zone", self.path("zone.json"), "--log", self.path("questions.log"))

    def nginx(self):
        with open(self.path("slow"), "wb") as f:
            f.write(b"".join(b"%07d\n" % i for i in range(1 << 17)))  # 1 MiB, fifty seconds
        with open(self.path("nginx.conf"), "w") as f:
            f.write(NGINX.format(top=self.top))
        self.daemon("nginx", "nginx", "-p", self.top, "-c", self.path("nginx.conf"))

        def up():
            with contextlib.suppress(OSError):
                socket.create_connection((READ, 443), 1).close()
                socket.create_connection((RESOLVER, 53), 1).close()
                return True
            return False
        until(up, "nginx and the resolver", 10)

    def seen(self, since=0):
        """Requests that an origin has answered."""
        with contextlib.suppress(FileNotFoundError), open(self.path("seen.jsonl")) as f:
            f.seek(since)
            return [json.loads(x) for x in f if x.endswith("\n")]
        return []

    def mark(self):
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(self.path("seen.jsonl"))
        return 0

    def stop(self):
        for p in reversed(self.processes):
            p.terminate()
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def own_mounts(*hidden):
    """For preexec_fn: a mount namespace with cgroup v2 at its place, also where the machine mounts
    v1, and nothing of another engine in the folders named."""
    def enter():
        call("unshare", CLONE_NEWNS)
        call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
        call("mount", b"none", b"/sys/fs/cgroup", b"cgroup2", 0, None)
        for folder in hidden:
            if os.path.isdir(folder):
                call("mount", b"none", folder.encode(), b"tmpfs", 0, None)
        die_with_parent()
    return enter
