#!/usr/bin/env python3
"""Failures of other products that need the whole sidecar: rules in every order, by name and by address;
the control API from inside the sandbox, with and without its token; a vault through a first start, a
killed sidecar and a new one. The same by the proxy alone: e2e/cases_api.py. Bed: gatebed.py.
"""
import contextlib
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gatebed  # noqa: E402
import guardbed  # noqa: E402
import sidecarbed  # noqa: E402
from gatebed import BOX, RULES, rules  # noqa: E402
from guardbed import API, EVIL, GOOD, NOBODY, Failed, Inside, run, until, want  # noqa: E402
from sidecarbed import TOKEN, TWO, WILD, dns_name  # noqa: E402

REFUSED = "ConnectionRefusedError"
WEB = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true"}
FOUR = (("allow", "*.wild.test"), ("deny", "bad.wild.test"), ("allow", "x.bad.wild.test"),
        ("deny", "*.bad.wild.test"))
ASKED = ("a.wild.test", "bad.wild.test", "x.bad.wild.test", "y.bad.wild.test", "wild.test")
HOST = "api.model.test"
KEY = "sk-model-" + os.urandom(9).hex()
PLACEHOLDER = "ph-model-0001"
VAULT = {"credentials": [{"name": "k", "source": {"type": "inline", "value": KEY}}],
         "bindings": [{"name": "m", "match": {"schemes": ["https"], "hosts": [HOST],
                                              "methods": ["GET", "POST"], "paths": ["/v1/*"]},
                       "auth": {"type": "bearer", "credential": "k"}}]}


class Bed(gatebed.Bed):
    NAME = "casesgate"
    TOP_ZONE = {**gatebed.ZONE, "wild.test": {"a": WILD[4]}}

    def nginx(self):
        sidecarbed.NGINX = sidecarbed.NGINX.replace(
            '"method":', '"auth":"$http_authorization","method":', 1)
        super().nginx()

    def asks_model(self, path="/v1/x"):
        """The status of a call with the placeholder, and what the model host had for it."""
        mark = self.seen_mark()
        said = self.curl("-o", "/dev/null", "-H", f"Authorization: Bearer {PLACEHOLDER}",
                         f"https://{HOST}{path}")
        return said[-3:], [x["auth"] for x in self.seen(mark)]

    def vault(self, method, body=None, status=200):
        got = self.ask(method, "/credential-vault", body and json.dumps(body))
        want(got[0], status, f"{method} /credential-vault: {got[2]}")
        return json.loads(got[2]) if got[2] else None


# ---- C158

def rcodes(bed, names):
    """{name: code} of the gate's answers to A, asked all at once."""
    with Inside(bed.box):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(5)
    codes = {}
    with s:
        for i, name in enumerate(names):
            s.sendto(struct.pack("!HHHHHH", i, 0x100, 1, 0, 0, 0) + dns_name(name) +
                     struct.pack("!HH", 1, 1), ("8.8.8.8", 53))
        while len(codes) < len(names):
            data = s.recv(4096)
            codes[names[int.from_bytes(data[:2], "big")]] = data[3] & 15
    return codes


def covers(target, name):
    return name.endswith(target[1:]) if target[0] == "*" else name == target


def case_C158_names_in_every_order(bed):
    bed.with_settings()
    seen = set()
    for order in itertools.permutations(FOUR):
        for default in ("deny", "allow"):
            doc = json.loads(rules([(*r, None) for r in order]))
            bed.change("PUT", {**doc, "defaultAction": default})
            for name, code in rcodes(bed, ASKED).items():
                first = next((a for a, t in order if covers(t, name)), default)
                want(code == 3, first == "deny", f"{order} {default}: {name}: {code}")
                seen.add((name, first))
    want(len(seen), 2 * len(ASKED) - 1, "control: all but a.wild.test were refused, and let through")


def case_C158_addresses_in_every_order(bed):
    """Whatever is denied, then whatever is allowed, then the default."""
    bed.with_settings()
    rows = [("deny", EVIL[4]), ("allow", "11.22.0.0/24"), ("deny", "11.22.0.0/16")]
    fits = {EVIL[4]: rows, GOOD[4]: rows[1:], TWO[4]: rows[1:]}
    seen = set()
    for n in (1, 2, 3):
        for order in itertools.permutations(rows, n):
            for default in ("deny", "allow"):
                doc = json.loads(rules([(*r, None) for r in order]))
                bed.change("PUT", {**doc, "defaultAction": default})
                for addr, mine in fits.items():
                    actions = {r[0] for r in order if r in mine}
                    should = next((a for a in ("deny", "allow") if a in actions), default)
                    want(bed.opens(addr, 5000), "echo" if should == "allow" else REFUSED,
                         f"{order} {default}: {addr}")
                    seen.add((addr, should))
    want(len(seen), 2 * len(fits), "control: each was refused, and let through")


# ---- C160

SEARCH = """
import os, socket
token, found, codes = {token!r}.encode(), [], []
for pid in {pids!r}:
    for name in ('environ', 'cmdline', 'mem'):
        try:
            with open(f'/proc/{{pid}}/{{name}}', 'rb') as f:
                if token in f.read(1 << 20):
                    found.append(name + ' of ' + open(f'/proc/{{pid}}/comm').read().strip())
        except OSError:
            pass
body = '{{"defaultAction":"allow"}}'
for host in {hosts!r}:
    for path in ('/policy', '/status', '/credential-vault', '/credential-vault/_active', '/audit'):
        for fields in ('', 'OPENSANDBOX-EGRESS-AUTH: guessed\\r\\n', 'X-Forwarded-For: 127.0.0.1\\r\\n'):
            for method in ('GET', 'POST'):
                s = socket.create_connection((host, {port}), timeout=5)
                s.sendall((method + ' ' + path + ' HTTP/1.1\\r\\nHost: egress\\r\\n' + fields +
                           'Content-Length: %d\\r\\n\\r\\n' % len(body) + body).encode())
                codes.append(int(s.recv(64).split(b' ')[1]))
                s.close()
unix = [x.split()[7] for x in open('/proc/net/unix') if len(x.split()) > 7][1:]
result = [found, sorted(set(codes)), unix]
"""


def case_C160_the_api_from_inside(bed):
    bed.with_settings(**WEB)
    before = bed.change("GET", None)
    careless = subprocess.Popen(["sleep", "60"], env={"T": TOKEN}, user=NOBODY, group=NOBODY,
                                extra_groups=[])
    bed.processes.append(careless)
    ours = run("pgrep", "-P", str(bed.process.pid)).split()
    want(len(ours), 2, "worker and guard")
    code = SEARCH.format(token=TOKEN, port=API, hosts=["127.0.0.1", "::1", BOX[4], BOX[6]],
                         pids=[bed.process.pid, careless.pid, *map(int, ours)])
    for kind in ("docker", "kubernetes", "nobody"):
        found, codes, unix = bed.user(kind).do(code)
        want(found, ["environ of sleep"] if kind == "nobody" else [],
             f"{kind}: where the token is, with a control")
        want(set(codes) <= {401, 403, 405} and 401 in codes, True, f"{kind}: {codes}")
        want(unix, [], f"{kind}: sockets with a name")
    careless.kill()
    careless.wait()
    want(bed.change("GET", None), before, "unchanged")
    want(bed.opens(EVIL[4], 5000), REFUSED, "and what it denies is denied")


# ---- a vault through starts

class Watched(contextlib.AbstractContextManager):
    """Tries a denied address again and again; lists what got through."""

    def __init__(self, bed):
        self.bed, self.through, self.tries, self.end = bed, [], 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.end.is_set():
            self.tries += 1
            if self.bed.opens(EVIL[4], 5000).startswith("echo"):
                self.through.append(time.monotonic())
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()
        if self.through or self.tries < 20:
            raise Failed(f"{len(self.through)} of {self.tries} tries got through")


def case_C34_a_vault_at_the_first_200(bed):
    bed.halt()
    bed.running = None
    bed.with_settings(**WEB, AGENTIC_WRITE_HOSTS=HOST)
    want(bed.vault("POST", VAULT, 201)["revision"], 1, "at once")
    want(bed.asks_model(), ("200", [f"Bearer {KEY}"]), "and its key goes out with the next call")


def case_C34_a_vault_before_the_first_200(bed):
    """Sent as soon as the port answers, it waits for the self-test, and for nobody else."""
    bed.halt()
    settings = {**WEB, "AGENTIC_WRITE_HOSTS": HOST, "OPENSANDBOX_EGRESS_RULES": rules(RULES)}
    bed.launch(**settings, OPENSANDBOX_EGRESS_DNS_UPSTREAM="%s:%d" % gatebed.RESOLVERS[0])
    bed.running, codes, end = {}, [], time.monotonic() + 15
    while not codes and time.monotonic() < end:
        health = bed.health()[0]
        with contextlib.suppress(OSError):
            codes = [health, bed.ask("POST", "/credential-vault", json.dumps(VAULT))[0]]
    want(codes[1:], [201], f"health and vault: {codes}")
    want(bed.health()[0], 200, "it was ready then")
    want(bed.asks_model(), ("200", [f"Bearer {KEY}"]), "and the key is in use")


def case_C32_a_vault_outlives_workers_and_ends_with_the_sidecar(bed):
    settings = {**WEB, "AGENTIC_WRITE_HOSTS": HOST}
    bed.with_settings(**settings)
    if bed.ask("GET", "/credential-vault")[0] == 404:
        bed.vault("POST", VAULT, 201)
    bed.patch(("allow", "two.test"))
    before, instance = bed.vault("GET"), json.loads(bed.ask("GET", "/status")[2])["instance"]
    with Watched(bed):
        worker = bed.worker_pid()
        os.kill(worker, 9)
        until(lambda: bed.health()[0] == 200 and bed.worker_pid() != worker, "another worker")
        want(bed.vault("GET"), before, "the vault")
        want(bed.asks_model(), ("200", [f"Bearer {KEY}"]), "the key")

        bed.process.kill()  # the whole of it; the network stays
        bed.process.wait()
        bed.process = bed.running = None
        want(bed.asks_model()[0], "000", "meanwhile")
        bed.with_settings(**settings, OPENSANDBOX_EGRESS_RULES='{"defaultAction":"deny"}')
        status = json.loads(bed.ask("GET", "/status")[2])
        want([status["vault"], status["instance"] == instance], [None, False], "a new one")
        bed.vault("GET", status=404)
        want(bed.change("GET", None)["policy"], {"egress": [], "defaultAction": "deny"},
             "not wider than it was told")
        for what in ("without a policy", "and again"):
            want(bed.asks_model()[1], [], f"{what}: nothing is sent")
        got = bed.ask("POST", "/credential-vault", json.dumps(VAULT))
        want([got[0], "not allowed by egress policy" in got[2]], [400, True], "policy comes first")
        bed.change("PUT", rules(RULES))
        status, auth = bed.asks_model()
        want(KEY in str(auth), False, "with a policy and without a vault: no key")
        want(bed.vault("POST", VAULT, 201)["revision"], 1, "the vault again")
        want(bed.asks_model(), ("200", [f"Bearer {KEY}"]), "and the key")
    want(bed.curl("-o", "/dev/null", "https://evil.test/")[-3:], "000", "a denied name")
    want(bed.opens(WILD[4], 5000) == "echo", False, "nor an address that nobody asked for")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
