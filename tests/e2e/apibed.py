"""The bed of api*.py: a running egress with its API, and requests to it.

Comes before api.py and api_change.py. Everything is on loopback, in a folder of its own; no
privileges are needed. Protocol: docs/development.md."""
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from casebed import Failed, Skip, explain, replies_of, until, want, want_in, want_out

SRC = os.environ.get("EGRESS_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.environ.get("EGRESS_BUILD") or os.path.join(SRC, "build", "gcc-asan")
EGRESS = os.environ.get("EGRESS_BIN") or os.path.join(BUILD, "control", "egress")
CTL = os.environ.get("EGRESSCTL_BIN") or os.path.join(BUILD, "ctl", "egressctl")
TOKEN = "0123456789abcdef0123456789abcdef"
WAIT_S = 10
__all__ = ["CTL", "Egress", "Failed", "Skip", "TOKEN", "allow", "deny", "main", "running", "until",
           "want", "want_in", "want_out"]


def free_ports(n):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def rule(action, target, ports=None):
    return {"action": action, "target": target, **({"ports": ports} if ports else {})}


def allow(*targets):
    return [rule("allow", t) for t in targets]


def deny(*targets):
    return [rule("deny", t) for t in targets]


class Answer:
    def __init__(self, reply):
        self.status, self.phrase, self.body = reply.status, reply.phrase, reply.body
        self.field = reply.field

    @property
    def doc(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.phrase} {self.body[:300]!r}>"


class Egress:
    """settings: variables, None takes one away. token False: none is set."""

    def __init__(self, top, token=TOKEN, policy=None, listen=None, program=EGRESS, **settings):
        self.top, self.token, self.program = top, token, program
        self.port, proxy = free_ports(2)
        self.proxy = proxy
        self.rules = os.path.join(top, "rules")
        os.makedirs(self.rules, exist_ok=True)
        self.file = os.path.join(top, "policy.json")
        self.audit_file = os.path.join(top, "audit.jsonl")
        self.log = os.path.join(top, "log")
        env = {k: v for k, v in os.environ.items()
               if not re.match("EGRESS_|AGENTIC_|OPENSANDBOX_|.*_proxy$", k, re.I)}
        env.update(HOME=top, OPENSANDBOX_EGRESS_MODE="proxy",
                   OPENSANDBOX_EGRESS_DNS_UPSTREAM="127.0.0.1",
                   OPENSANDBOX_EGRESS_HTTP_ADDR=listen or f"127.0.0.1:{self.port}",
                   EGRESS_PROXY_ADDR=f"127.0.0.1:{proxy}", EGRESS_RULES_DIR=self.rules,
                   EGRESS_CA_CERT_OUT=os.path.join(top, "ca.pem"), EGRESS_AUDIT=self.audit_file)
        env["OPENSANDBOX_EGRESS_RULES"] = json.dumps(policy if policy is not None else {})
        if token:
            env["OPENSANDBOX_EGRESS_TOKEN"] = token
        for name, value in settings.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value
        self.env = env
        self.p = None

    def start(self, fails=False):
        self.out = open(self.log, "ab")
        self.p = subprocess.Popen([self.program], env=self.env, stdin=subprocess.DEVNULL,
                                  stdout=self.out, stderr=self.out)
        if fails:
            code = self.p.wait(WAIT_S)
            self.out.close()
            return code
        until(lambda: self.p.poll() is not None or " ready: " in self.text(), "start", WAIT_S)
        if self.p.poll() is not None:
            raise Failed(f"did not start: {self.text()[-500:]}")
        return self

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def stop(self):
        """Orderly; fails if it does not end with 0 or a sanitizer spoke."""
        self.p.terminate()
        code = self.p.wait(15)
        self.out.close()
        want(code, 0, f"exit code; {self.text()[-600:]}")
        want_out("Sanitizer", self.text(), "the log")

    def kill(self):
        if self.p and self.p.poll() is None:
            self.p.kill()
            self.p.wait()

    def worker(self):
        found = subprocess.run(["pgrep", "-P", str(self.p.pid)],
                               capture_output=True, text=True, check=False).stdout.split()
        return int(found[0]) if found else 0

    def hup(self):
        n = self.text().count("reload")
        self.p.send_signal(signal.SIGHUP)
        until(lambda: self.text().count("worker: reload") or self.text().count("reload refused") or
              self.text().count("reload") >= n + 2, "reload", WAIT_S)

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)
        return s

    def raw(self, data, n=1, s=None, wait=WAIT_S):
        """Sends bytes, reads n answers. [Answer], whether the connection ended."""
        own = s is None
        s = s or self.connect()
        got, eof = b"", False
        head = data.startswith(b"HEAD ")
        try:
            s.sendall(data)
        except OSError:
            pass
        end = time.monotonic() + wait
        try:
            while n is None or len([r for r in replies_of(got, eof, head) if r.status >= 200]) < n:
                s.settimeout(max(0.01, end - time.monotonic()))
                part = s.recv(65536)
                if not part:
                    eof = True
                    break
                got += part
        except (TimeoutError, ConnectionResetError):
            pass
        answers = [Answer(r) for r in replies_of(got, eof, head) if r.status >= 200]
        if own:
            s.close()
        return answers, eof

    def request(self, method, path, body=b"", fields=(), token=True):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        if token and self.token:
            lines.append(f"OPENSANDBOX-EGRESS-AUTH: {self.token}")
        lines += fields
        return "\r\n".join(lines).encode("latin1") + b"\r\n\r\n" + body

    def call(self, method, path="/policy", body=b"", status=200, **how):
        answers, _ = self.raw(self.request(method, path, body, **how))
        if not answers:
            raise Failed(f"{method} {path}: no answer; {self.text()[-300:]}")
        want(answers[0].status, status, f"{method} {path}: {answers[0]}")
        return answers[0]

    def policy(self):
        return self.call("GET").doc["policy"]

    def targets(self):
        return [(r["action"], r["target"]) for r in self.policy()["egress"]]

    def status(self):
        return self.call("GET", "/status").doc

    def audit(self):
        with open(self.audit_file) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]

    def ctl(self, *args, code=0, stdin=""):
        p = subprocess.run([CTL, *args], input=stdin, capture_output=True, text=True,
                           env=self.env, timeout=60, check=False)
        want(p.returncode, code, f"egressctl {' '.join(args)}: {p.stderr!r} {p.stdout[-300:]!r}")
        return p.stdout, p.stderr

    def write_rules(self, name, text):
        new = os.path.join(self.top, "new-rules")
        with open(new, "w", newline="") as f:
            f.write(text)
        os.rename(new, os.path.join(self.rules, name))

    def verdict(self, host):
        """What the proxy says about a name: 403 for refused, 502 for one that it looked up."""
        with socket.create_connection(("127.0.0.1", self.proxy), timeout=WAIT_S) as s:
            s.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            got = b""
            while b"\r\n" not in got:
                part = s.recv(65536)
                if not part:
                    raise Failed(f"{host}: no answer")
                got += part
        return int(got.split(b" ")[1])


TOP = []


@contextmanager
def running(**settings):
    top = tempfile.mkdtemp(prefix="e", dir=TOP[0])
    os.chmod(top, 0o755)
    e = Egress(top, **settings)
    try:
        yield e.start()
        e.stop()
    finally:
        e.kill()


def run_case(name, case):
    """What a script has to print about it, and whether it failed."""
    start = time.monotonic()
    said = f"ok {name}"
    try:
        case()
    except Skip as e:
        said = f"skip {name} {e}"
    except (Failed, OSError, ValueError, LookupError, subprocess.SubprocessError) as e:
        said = f"not ok {name} {explain(e)}"
    print(f"{said}\n  seconds={time.monotonic() - start:.1f}", flush=True)
    return said.startswith("not ok")


def main(scope, beside=1):
    """beside: so many cases at a time, for those that mostly wait."""
    cases = {n[5:].replace("_", "-"): f for n, f in scope.items() if n.startswith("case_")}
    if sys.argv[1:] == ["--list"]:
        print("\n".join(cases))
        return 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    TOP.append(tempfile.mkdtemp(prefix="api-", dir=os.environ.get("EGRESS_TMP")))
    os.chmod(TOP[0], 0o755)
    names = sys.argv[1:] or list(cases)
    with ThreadPoolExecutor(beside) as pool:
        bad = sum(pool.map(lambda name: run_case(name, cases[name]), names))
    if bad == 0:
        shutil.rmtree(TOP[0], ignore_errors=True)
    return 1 if bad else 0
