"""What happens to one sandbox from its creation to its end, for each version of the server.

A case is a function of Flow; they run in order, since each goes on with the sandbox as the one
before left it. Whatever a call answers, a request from inside the sandbox shows what it did, and an
origin's log what arrived. What must not get out is tried in the same run from a sandbox without the
sidecar.
"""
import contextlib
import json
import os
import sys
import time
import urllib.parse

import closed_world
import engine
import vault_cases
from closed_world import EVIL, META, READ, Failed, until, want
from servers import SdkError, Server, http_call

POLICY = {"defaultAction": "deny",
          "egress": [{"action": "allow", "target": t}
                     for t in ("read.test", "api.model.test", "site.test", "*.site.test")]}
CHAIN = os.path.join(closed_world.TESTS, "tools", "audit_chain.py")
LIMITS = {"memory": "1Gi"}  # the SDKs' own ask for a share of processors, which needs a controller
STORE = "/etc/ssl/certs/ca-certificates.crt"  # in which bootstrap.sh puts the CA
CA = "/opt/opensandbox/mitmproxy-ca-cert.pem"
# Docker's default set without what the server drops; the sidecar has all of it, and NET_ADMIN.
SANDBOX_CAPS, SIDECAR_CAPS = 0x800405fb & ~(1 << 13), 0xa80435fb
ASK = """
import socket, struct
q = struct.pack("!6H", 7, 256, 1, 0, 0, 0) + b"".join(
    bytes([len(p)]) + p.encode() for p in "{name}".split(".")) + b"\\0\\0\\1\\0\\1"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.sendto(q, ("{addr}", 53))
r = s.recv(512)
print("reached" if r[3] & 15 == 0 and r[7] else "refused")
"""
UDP = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.connect(("{addr}", {port}))
s.send(b"out")
print("reached" if s.recv(64) else "refused")
"""


def web(url, *more):
    return ["curl", "-sk", "-m", "6", "-o", "/dev/null", "-w", "%{http_code}", *more, url]


def python(text, **words):
    return ["python3", "-c", text.format(**words)]


def attempts(neighbour):
    """{name: argv}: each gets out of a sandbox without the sidecar, and of no other."""
    return {
        "denied-name": web("https://evil.test/"),
        "denied-name-http": web("http://evil.test/"),
        "address-literal": web(f"https://{EVIL}/"),
        "fronted": web("https://read.test/", "--connect-to", f"read.test:443:{EVIL}:443", "-H",
                       "Host: evil.test"),
        "write-to-a-site": web("https://read.test/form", "-d", "x=1"),
        "other-port": web("http://read.test:8081/"),
        "metadata": web(f"http://{META}/latest/meta-data/"),
        "private-address": web(f"http://{closed_world.PRIVATE}/"),
        "neighbour": web(f"http://{neighbour}:44772/ping"),
        "denied-question": python(ASK, name="evil.test", addr=closed_world.RESOLVER),
        "other-resolver": python(ASK, name="evil.test", addr=closed_world.ANYCAST),
        "udp-443": python(UDP, addr=READ, port=443),
    }


def got_out(output):
    return output.strip() in ("200", "reached")


class Flow:
    """One server and the sandboxes made on it. sdks: {"python", "js"}."""

    def __init__(self, eng, server, sdks, neighbour, say):
        self.engine, self.world, self.server, self.say = eng, eng.world, server, say
        self.sdks, self.neighbour = sdks, neighbour
        self.id = self.control = None
        self.keys, self.key, self.figures = [], None, {}

    # ---- calls, on record in the transcript

    def sdk(self, which, op, sandbox=None, **more):
        sandbox = sandbox or (None if op == "create" else self.need())
        shown = {k: v for k, v in more.items() if k != "image"}
        try:
            out = self.sdks[which](self.server.port, op, sandbox, **more)
        except SdkError as e:
            self.say(f"{which} {op} {json.dumps(shown)} -> raised {e}")
            raise
        self.say(f"{which} {op} {json.dumps(shown)} -> {json.dumps(out)} "
                 f"({self.sdks[which].seconds:.2f} s)")
        return out

    def raises(self, which, op, sandbox=None, **more):
        """The error that this call must end in."""
        try:
            out = self.sdk(which, op, sandbox, **more)
        except SdkError as e:
            return e.error
        raise Failed(f"{which} {op}: no error, {out!r}")

    def api(self, method, path, body=None, should=None):
        """The server's own API."""
        status, out = self.server.http(method, path, body)
        self.say(f"server {method} {path} {'' if body is None else json.dumps(body)} -> {status} "
                 f"{json.dumps(out)}")
        if should is not None and status != should:
            raise Failed(f"{method} {path}: {status} {out!r}, should be {should}")
        return out

    def inside(self, *argv, sandbox=None, user="0", seconds=60):
        name = f"sandbox-{sandbox or self.need()}"
        code, out = self.engine.exec(name, *argv, user=user, seconds=seconds)
        self.say(f"in {name[:16]}: {' '.join(argv)[:200]} -> exit {code} {out.strip()[:300]!r}")
        return code, out

    def get(self, url, *more, sandbox=None):
        """Status that curl saw, 0 for none."""
        _, out = self.inside("curl", "-s", "-m", "8", "-o", "/dev/null", "-w", "%{http_code}",
                             *more, url, sandbox=sandbox)
        return int(out.strip()[-3:] or 0)

    def need(self):
        if not self.id:
            raise Failed("no sandbox: its creation failed")
        return self.id

    @property
    def sidecar(self):
        return f"sandbox-egress-{self.need()}"

    def create(self, which="python", policy=None, proxy=True, **more):
        return self.sdk(which, "create", image=engine.SANDBOX, policy=policy or POLICY, proxy=proxy,
                        resource=LIMITS, **more)

    def arrives(self, url, *more, should=200):
        """A request from inside, and what the origin saw of it."""
        mark = self.world.mark()
        want(self.get(url, *more), should, f"{url} from inside")
        path = urllib.parse.urlsplit(url).path
        return until(lambda: [r for r in self.world.seen(mark) if r["uri"].startswith(path)],
                     f"{url} at the origin")[-1]

    def is_refused(self, url, *more):
        mark = self.world.mark()
        got = self.get(url, *more)
        if got == 200 or self.world.seen(mark):
            raise Failed(f"{url} got out: {got} {self.world.seen(mark)}")
        return got

    def worker(self):
        """Its process id, or None while there is none."""
        pid = self.engine.pid(self.sidecar)
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            for p in f.read().split():
                with contextlib.suppress(OSError), open(f"/proc/{p}/comm") as name:
                    if name.read().strip() == "egress-worker":
                        return int(p)
        return None

    def status_word(self, name):
        """{field: number} of /proc/PID/status of a container's first process."""
        with open(f"/proc/{self.engine.pid(name)}/status") as f:
            return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


# ---- the cases, in order

def create(t):
    """By the Python SDK, with policy and credential proxy."""
    t.id = t.create()
    want(t.sdk("python", "info")["status"]["state"], "Running", "state")
    names = t.engine.containers()
    for name in (f"sandbox-{t.id}", f"sandbox-egress-{t.id}"):
        if name not in names:
            raise Failed(f"no container {name} in {names}")


def containers_are_as_the_server_makes_them(t):
    side, box = t.engine.inspect(t.sidecar), t.engine.inspect(f"sandbox-{t.need()}")
    added = [c.removeprefix("CAP_") for c in side["HostConfig"]["CapAdd"] or ()]
    want(added, ["NET_ADMIN"], "capabilities added to the sidecar")
    want(side["HostConfig"]["Privileged"], False, "privileged")
    want(box["HostConfig"]["NetworkMode"], f"container:{side['Id']}", "network of the sandbox")
    want(int(t.status_word(t.sidecar)["CapEff"], 16), SIDECAR_CAPS, "capabilities of the sidecar")
    own = t.status_word(f"sandbox-{t.id}")
    want((own["Uid"].split()[0], own["NoNewPrivs"]), ("0", "1"), "user of the sandbox")
    want(int(own["CapEff"], 16), SANDBOX_CAPS, "capabilities in the sandbox")
    code, out = t.inside("sh", "-c", "cd /proc/sys/net/ipv6/conf && "
                         "cat all/disable_ipv6 default/disable_ipv6 lo/disable_ipv6")
    want((code, out.split()), (0, ["1"] * 3), "IPv6 is off")


def ready_means_ready(t):
    """/healthz by the way that a client has, and the CA at its place: a certificate, and no key."""
    want(t.server.sidecar_http(t.need(), "GET", "/healthz"), (200, "ok"), "health")
    code, out = t.inside("cat", CA)
    want((code, out.startswith("-----BEGIN CERTIFICATE-----"), "PRIVATE" in out), (0, True, False),
         "the CA's file")
    _, out = t.inside("sh", "-c", "ls -A /opt/opensandbox")
    want(set(out.split()), {"execd", "bootstrap.sh", os.path.basename(CA)}, "files beside it")


def allowed_traffic(t):
    want(t.arrives("https://read.test/page?q=1")["host"], "read.test", "authority at the origin")
    want(t.arrives("http://read.test/plain")["scheme"], "http", "scheme at the origin")
    want(t.arrives("https://sub.site.test/below")["sni"], "sub.site.test", "SNI at the origin")
    want(t.arrives("https://api.model.test/v1/messages", "-d", "{}")["method"], "POST",
         "method at a write host")
    _, out = t.inside("env", f"SSL_CERT_FILE={STORE}", "python3", "-c", "import urllib.request "
                      "as u; print(u.urlopen('https://read.test/py').status)")
    want(out.strip().splitlines()[-1:], ["200"], "Python in the sandbox")


def refused_traffic(t):
    """Each attempt gets out of the sandbox without a sidecar, so that a refusal says something."""
    t.control = t.sdk("python", "create", image=engine.SANDBOX, resource=LIMITS)
    held, weak = [], []
    for name, argv in attempts(t.neighbour).items():
        _, free = t.inside(*argv, sandbox=t.control)
        if not got_out(free):
            weak.append(f"{name} does not get out of a sandbox without sidecar: {free!r}")
            continue
        _, out = t.inside(*argv)
        if got_out(out):
            weak.append(f"{name} got out")
        else:
            held.append(name)
    t.say(f"held: {' '.join(held)}")
    if weak:
        raise Failed("; ".join(weak))
    _, out = t.inside("curl", "-s", "-i", "-m", "6", "-d", "x=1", "https://read.test/form")
    if "403" not in out.split("\n")[0] or "blocked: " not in out:
        raise Failed(f"a write to a site is answered {out!r}")
    t.sdk("python", "kill", t.control)


def targets(policy):
    return [r["target"] for r in policy["egress"]]


def policy_by(which):
    def case(t):
        if which == "js":
            t.sdk("js", "connect", t.need())
        got = t.sdk(which, "policy_get")
        want(got["defaultAction"], "deny", "default action")
        want(targets(got), targets(POLICY), "targets")
        t.is_refused("https://two.test/")
        t.sdk(which, "policy_patch", rules=[{"action": "allow", "target": "two.test"}])
        want(t.sdk(which, "policy_get")["egress"][0], {"action": "allow", "target": "two.test"},
             "the rule that was put in")
        t.arrives("https://two.test/patched")
        t.sdk(which, "policy_patch", rules=[{"action": "deny", "target": "read.test"}])
        t.is_refused("https://read.test/denied")
        t.sdk(which, "policy_delete", targets=["two.test", "read.test"])
        want(targets(t.sdk(which, "policy_get")), ["api.model.test", "site.test", "*.site.test"],
             "targets after delete")
        t.is_refused("https://two.test/deleted")
        t.sdk(which, "policy_patch", rules=[{"action": "allow", "target": "read.test"}])
        t.arrives("https://read.test/again")
        error = t.raises(which, "policy_patch", rules=[{"action": "allow", "target": "https://x/"}])
        if "https://x/" not in json.dumps(error):
            raise Failed(f"the error does not name the target: {error}")
        t.arrives("https://read.test/after-an-error")
        # As it was, for whoever comes next.
        t.sdk(which, "policy_delete", targets=["read.test"])
        t.sdk(which, "policy_patch", rules=[{"action": "allow", "target": "read.test"}])
    return case


def policy_by_the_server(t):
    """The lifecycle API's route, to which the server adds the token."""
    path = f"/v1/sandboxes/{t.need()}/networkpolicy"
    if t.server.version < "1":
        t.api("GET", path, should=404)
        return
    got = t.api("GET", path, should=200)
    want(set(got) - {"status", "mode", "enforcementMode", "reason", "policy"}, set(), "more fields")
    want((got["status"], got["enforcementMode"]), ("ok", "dns+nft"), "status and mode")
    t.api("PATCH", path, [{"action": "allow", "target": "two.test"}], should=200)
    t.arrives("https://two.test/by-the-server")
    t.api("DELETE", path, ["two.test"], should=200)
    t.is_refused("https://two.test/by-the-server")
    t.api("PUT", path, {"defaultAction": "deny",
                        "egress": [{"action": "allow", "target": "two.test"}]}, should=200)
    t.arrives("https://two.test/replaced")
    t.is_refused("https://read.test/replaced")
    t.api("PUT", path, POLICY, should=200)
    t.arrives("https://read.test/put-back")
    t.api("POST", path, POLICY, should=405)


def tokens_are_asked_for(t):
    """By the way through execd, as whoever is in the sandbox could call."""
    base, port, fields = t.server.sidecar(t.need())
    for name, value in (("none", None), ("wrong", "x" * len(fields["OPENSANDBOX-EGRESS-AUTH"]))):
        own = {"OPENSANDBOX-EGRESS-AUTH": value} if value else {}
        status, out = http_call(t.world, port, "PATCH", base + "/policy",
                                [{"action": "allow", "target": "evil.test"}], own)
        want((status, out.get("code")), (401, "unauthorized"), f"token {name}")
    t.is_refused("https://evil.test/")


def the_worker_is_killed(t):
    """kill -9: closed meanwhile, and then the policy of the API, the CA and the keys as before."""
    t.sdk("python", "policy_patch", rules=[{"action": "allow", "target": "two.test"}])
    _, before = t.inside("cat", CA)
    worker = t.worker()
    os.kill(worker, 9)
    until(lambda: t.worker() not in (None, worker) and
          t.server.sidecar_http(t.id, "GET", "/healthz")[0] == 200, "health after a kill", 10)
    t.arrives("https://two.test/after-a-kill")
    t.is_refused("https://evil.test/after-a-kill")
    want(t.inside("cat", CA)[1], before, "the CA after a kill")
    t.sdk("python", "policy_delete", targets=["two.test"])


def pause_and_resume(t):
    """Policy, CA and connections of before: the first request after it is answered."""
    t.sdk("python", "policy_patch", rules=[{"action": "allow", "target": "two.test"}])
    t.arrives("https://two.test/before-the-pause")
    t.sdk("python", "pause")
    state = t.api("GET", f"/v1/sandboxes/{t.need()}", should=200)["status"]["state"]
    want(state, "Paused", "state")
    frozen = t.engine.inspect(t.sidecar)["State"]["Paused"]
    want(frozen, t.server.version >= "1", "the sidecar is frozen too")
    time.sleep(6)
    t.sdk("python", "resume")
    want(t.sdk("python", "info")["status"]["state"], "Running", "state")
    begin = time.monotonic()
    t.arrives("https://two.test/after-the-pause")
    t.say(f"first request after the pause: {time.monotonic() - begin:.2f} s with docker exec")
    t.is_refused("https://evil.test/after-the-pause")
    want(targets(t.sdk("python", "policy_get"))[0], "two.test", "the policy after the pause")
    t.sdk("python", "policy_delete", targets=["two.test"])


def renew(t):
    before = t.sdk("python", "info")["expires_at"]
    t.sdk("python", "renew", seconds=7200)
    after = t.sdk("python", "info")["expires_at"]
    if not after > before:
        raise Failed(f"expiry {before} -> {after}")
    t.sdk("js", "renew", seconds=300)
    if not t.sdk("python", "info")["expires_at"] < after:
        raise Failed("a renewal that shortens did nothing")
    t.arrives("https://read.test/renewed")


def the_trail_is_whole(t):
    """Standard output of the sidecar, as Docker keeps it: the chain, and the reads of this one."""
    path = t.world.path(f"trail-{t.server.version}.jsonl")

    def lines():
        return [x for x in t.engine.run("logs", t.sidecar).stdout.splitlines(True)
                if x.startswith("{")]
    last = "https://read.test/renewed"
    begin = time.monotonic()
    until(lambda: any(last in x for x in lines()), f"a line of {last}", 3)
    t.say(f"the last read is on record after {time.monotonic() - begin:.2f} s")
    with open(path, "w") as f:
        f.writelines(lines())
    out = engine.command(sys.executable, CHAIN, path)
    t.say(out.strip())
    with open(path) as f:
        rows = [json.loads(x) for x in f]
    reads = [r for r in rows if r["kind"] == "read" and r["verdict"] == "allowed"]
    for url in ("https://read.test/page?q=1", "http://read.test/plain", last):
        want(sum(r["url"] == url for r in reads), 1, f"lines of {url}")
    want({r["sandbox"] for r in rows}, {t.need()}, "the sandbox of each line")
    blocked = [r for r in rows if r["verdict"] == "blocked" and r["method"] == "POST"]
    if not any(r["url"] == "https://read.test/form" and r["status"] == 403 for r in blocked):
        raise Failed(f"no line of the refused write: {blocked}")


def the_trail_by_the_api(t):
    """Labels of a run, and the lines as the sidecar's output has them, by the client's way."""
    labels = {"run": "r-1"}
    status, out = t.server.sidecar_http(t.need(), "PUT", "/audit/context", {"labels": labels})
    want((status, out["labels"]), (200, labels), "labels")
    t.arrives("https://read.test/labelled")
    status, text = t.server.sidecar_http(t.id, "GET", f"/audit?after={out['seq'] - 1}&limit=100")
    want(status, 200, "the trail")
    lines = text.splitlines()
    t.say(f"GET /audit -> {len(lines)} lines")
    mine = [x for x in map(json.loads, lines) if x["url"] == "https://read.test/labelled"]
    want([x["context"] for x in mine], [labels], "the context of the read")
    until(lambda: set(lines) <= set(t.engine.run("logs", t.sidecar).stdout.splitlines()),
          "the same lines in the output", 3)


def the_server_is_started_anew(t):
    """The sandbox goes on, and so do the calls about it."""
    t.sdk("python", "policy_patch", rules=[{"action": "allow", "target": "two.test"}])
    t.server.stop()
    t.arrives("https://two.test/without-the-server")
    t.server.start()
    want(t.sdk("python", "info")["status"]["state"], "Running", "state")
    t.sdk("js", "policy_delete", targets=["two.test"])
    t.is_refused("https://two.test/after-the-server")
    want(t.server.sidecar_http(t.need(), "GET", "/policy")[0], 200, "the policy by the token")


def delete(t):
    t.sdk("python", "kill")
    seconds = t.sdks["python"].seconds
    t.say(f"delete: {seconds:.2f} s")
    left = [n for n in t.engine.containers() if t.id in n]
    want(left, [], "containers left")
    volumes = [v for v in t.engine.docker("volume", "ls", "-q").split() if t.id in v]
    want(volumes, [], "volumes left")
    t.api("GET", f"/v1/sandboxes/{t.id}", should=404)
    t.id = None


def javascript_alone(t):
    """The whole round by the JavaScript SDK."""
    t.id = t.create("js")
    t.arrives("https://read.test/js")
    t.is_refused("https://evil.test/js")
    t.sdk("js", "pause")
    want(t.sdk("js", "info")["status"]["state"], "Paused", "state")
    t.sdk("js", "resume")
    t.arrives("https://read.test/js-resumed")
    t.sdk("js", "pause")
    t.sdk("js", "kill")
    want([n for n in t.engine.containers() if t.id in n], [], "containers after a paused delete")
    t.id = None


def a_failed_create_says_why(t):
    """An action that neither server looks at, nor this SDK; the caller reads our cause."""
    error = t.raises("js", "create", image=engine.SANDBOX, proxy=True, resource=LIMITS,
                     policy={"defaultAction": "deny",
                             "egress": [{"action": "allow", "target": "read.test"},
                                        {"action": "log", "target": "two.test"}]})
    want(error["status"], 500, "status")
    for part in ("did not become ready", "503", 'target "two.test": unsupported action "log"'):
        if part not in error["message"]:
            raise Failed(f"{part!r} is not in the caller's error {error}")
    t.figures["what the caller of a failed create reads"] = error["message"]
    want([n for n in t.engine.containers() if n.startswith("sandbox-egress")], [], "sidecars left")


def other_images_and_modes(t):
    """The stage without the read-only rule, and mode dns, in which addresses are not judged."""
    for mode, proxy in (("dns+nft", True), ("dns", False)):
        with Server(t.engine, t.server.version, engine.DERIVED["egress"], 1, mode) as server:
            o = Flow(t.engine, server, t.sdks, t.neighbour, t.say)
            o.id = o.create(proxy=proxy)
            more = () if proxy else ("-k",)  # the origin's own certificate
            want(o.arrives("https://read.test/form", "-d", "x=1", *more)["method"], "POST", mode)
            o.is_refused("https://evil.test/")
            _, out = o.inside(*web(f"https://{EVIL}/"))
            want(got_out(out), mode == "dns", f"an address in mode {mode}")
            if mode == "dns":
                error = o.raises("python", "create", image=engine.SANDBOX, policy=POLICY,
                                 proxy=True)
                want(error["status"], 400, "credential proxy in mode dns")
            o.sdk("python", "kill", o.id)


def named(*functions):
    return {f.__name__.replace("_", "-"): f for f in functions}


CASES = named(create, containers_are_as_the_server_makes_them, ready_means_ready, allowed_traffic,
              refused_traffic)
CASES |= {"policy-by-python": policy_by("python"), "policy-by-javascript": policy_by("js")}
CASES |= named(policy_by_the_server, tokens_are_asked_for, *vault_cases.BEFORE,
               the_worker_is_killed, pause_and_resume, renew, *vault_cases.AFTER,
               the_trail_is_whole, the_trail_by_the_api, the_server_is_started_anew, delete,
               javascript_alone, a_failed_create_says_why, other_images_and_modes)
