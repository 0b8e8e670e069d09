#!/usr/bin/env python3
"""images/trust/egress-trust: what real clients trust after it, in a sandbox that is redirected.

Each client is first seen to refuse our certificates, then runs with what the script set: by its
variables as an ordinary user, and by the system's stores as root, without any variable. What root
changes lies in overlays that end with the bed. Here the quick clients, in long/trust_clients.py all
of them. Bed: platformbed.py. The page: docs/trust.md.
"""
import json
import os
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
import platformbed  # noqa: E402
from guardbed import NOBODY, SRC, Failed, call, run, want  # noqa: E402
from platformbed import policy, sites  # noqa: E402

SCRIPT = os.path.join(SRC, "images/trust/egress-trust")
SITE = "https://www.site.test/files"
SETTINGS = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true", "AGENTIC_WRITE_HOSTS": "",
            "OPENSANDBOX_EGRESS_RULES": policy("deny", *sites("site.test"))}
OVERLAID = ("/etc", "/usr/local/share", "/var/lib")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
GET_JS = """
fetch(process.argv[2]).then(a => a.text()).then(t => process.stdout.write(t))
    .catch(e => { console.error(e.cause); process.exit(1); });
"""
GET_PY = """
import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())
"""
REQUESTS_PY = """
import sys
try:
    import requests
except ImportError:
    from pip._vendor import requests
sys.stdout.write(requests.get(sys.argv[1]).text)
"""
GET_JAVA = """
import java.net.URI;
import java.net.http.*;
public class Get {
	public static void main(String[] args) throws Exception {
		System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(args[0]))
			.build(), HttpResponse.BodyHandlers.ofString()).body());
	}
}
"""
QUICK = ("curl", "git", "python-ssl", "node")
ROOT_TOOLS = {"go": "/usr/local/go/bin", "cargo": os.path.expanduser("~/.cargo/bin")}


class Bed(platformbed.Bed):
    NAME = "trustbed"
    HIDDEN = ("/usr/lib/jvm",)  # each call of keytool takes half a second

    def in_sandbox(self, **o):
        join = super().in_sandbox(**o)

        def enter():
            join()
            for place in OVERLAID:
                top = self.path("over" + place.replace("/", "-"))
                for part in ("upper", "work"):
                    os.makedirs(f"{top}/{part}", exist_ok=True)
                call("mount", b"overlay", place.encode(), b"overlay", 0,
                     f"lowerdir={place},upperdir={top}/upper,workdir={top}/work".encode())
            for place in filter(os.path.isdir, self.HIDDEN):
                call("mount", b"tmpfs", place.encode(), b"tmpfs", 0, None)
        return enter

    def own_home(self, uid):
        path = self.path(f"home-{uid}")
        os.makedirs(path, exist_ok=True)
        os.chown(path, uid, uid)
        return path

    shell = ("/bin/sh",)

    def trust(self, *args, uid=NOBODY, env=None, code=0):
        """(stdout, what it said) of the script."""
        with guardbed.Inside(self.box):
            p = subprocess.Popen([*self.shell, SCRIPT, *args], stdin=subprocess.DEVNULL, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                                 preexec_fn=self.enter_sandbox(uid),
                                 env={"PATH": PATH, "HOME": self.own_home(uid), **(env or {})})
        try:
            out, said = p.communicate(timeout=60)
        except subprocess.TimeoutExpired as e:
            p.kill()
            raise Failed(f"{args}: does not end") from e
        want(p.returncode, code, f"{args}: {said}")
        return out, said


def exported(text):
    """The variables that a shell has after eval of this."""
    out = subprocess.run(["sh", "-c", 'eval "$1"; env -0', "sh", text], env={}, capture_output=True,
                         check=True).stdout.decode()
    rows = dict(x.split("=", 1) for x in out.split("\0") if x)
    return {k: v for k, v in rows.items() if k not in ("PWD", "OLDPWD", "SHLVL", "_")}


def ready(bed):
    bed.with_settings(**SETTINGS)
    bed.write("files/hello", "hello\n")
    bed.write("get.js", GET_JS)
    bed.write("get.py", GET_PY)
    bed.write("requests_get.py", REQUESTS_PY)
    bed.write("Get.java", GET_JAVA)
    bed.write("files/npm/demo", json.dumps({"name": "demo", "dist-tags": {"latest": "1.0.0"},
                                            "versions": {"1.0.0": {"name": "demo", "version": "1.0.0"}}}))
    bed.write("files/simple/demo/index.html", f'<a href="{SITE}/demo-1.0.tar.gz">demo-1.0.tar.gz</a>')
    bed.write("files/go/demo.test/demo/@v/v1.0.0.info", '{"Version":"v1.0.0"}')
    bed.write("files/go/demo.test/demo/@v/v1.0.0.mod", "module demo.test/demo\n")
    bed.write("files/cargo/config.json", '{"dl":"%s/dl"}' % SITE)
    bed.write("files/cargo/de/mo/democrate", json.dumps(
        {"name": "democrate", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
         "cksum": "0" * 64}) + "\n")
    if not os.path.isdir(bed.path("files/repo.git")):
        bed.write("seed/a.txt", "hello\n")
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@test"]
        run(*git, "init", "-q", bed.path("seed"))
        run(*git, "-C", bed.path("seed"), "add", "a.txt")
        run(*git, "-C", bed.path("seed"), "commit", "-q", "-m", "one")
        run(*git, "clone", "-q", "--bare", bed.path("seed"), bed.path("files/repo.git"))
        run("git", "-C", bed.path("files/repo.git"), "update-server-info")


def clients(bed, home):
    """name: (command, text that it prints when it trusts)"""
    url = f"{SITE}/hello"
    rows = {"curl": (["curl", "-sS", url], "hello"),
            "git": (["git", "ls-remote", f"{SITE}/repo.git", "HEAD"], "HEAD"),
            "python-ssl": (["/usr/bin/python3", bed.path("get.py"), url], "hello"),
            "python-requests": (["/usr/bin/python3", bed.path("requests_get.py"), url], "hello"),
            "pip": (["/usr/bin/python3", "-m", "pip", "index", "versions", "demo", "--index-url",
                     f"{SITE}/simple/", "--disable-pip-version-check", "--no-cache-dir", "--retries",
                     "0"], "1.0"),
            "node": (["node", bed.path("get.js"), url], "hello"),
            "npm": (["npm", "view", "demo", "version", "--registry", f"{SITE}/npm/", "--cache",
                     f"{home}/npm", "--fetch-retries", "0"], "1.0.0"),
            "java": (["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", bed.path("Get.java"), url],
                     "hello"),
            "go": (["go", "list", "-m", "demo.test/demo@v1.0.0"], "v1.0.0"),
            "cargo": (["cargo", "generate-lockfile", "--manifest-path", f"{home}/crate/Cargo.toml"],
                      None)}
    return rows


def attempt(bed, name, command, text, home, uid, env):
    """Whether it trusts; None if it is not here, or not for this user."""
    path = ROOT_TOOLS.get(name)
    if not shutil.which(command[0], path=f"{path}:{PATH}" if path else PATH) or (path and uid):
        return None
    more = {"GOPROXY": f"{SITE}/go", "GOFLAGS": "-mod=mod", "GONOSUMDB": "*", "GONOSUMCHECK": "1",
            "GOTOOLCHAIN": "local", "GOPATH": f"{home}/go", "GOCACHE": f"{home}/gocache",
            "NO_UPDATE_NOTIFIER": "1", "CARGO_HOME": f"{home}/cargo",
            "RUSTUP_HOME": os.path.expanduser("~/.rustup")}
    if name == "cargo":
        crate(home)
    if name == "go":
        shutil.rmtree(f"{home}/go", ignore_errors=True)
    code, out = bed.tool(*command, uid=uid, env={"PATH": f"{path}:{PATH}" if path else PATH,
                                                 "HOME": home, **more, **env})
    if "No module named pip" in out or "No module named 'pip'" in out or "no default toolchain" in out:
        return None
    if code != 0:
        print(f"  {name}, uid {uid}: {code} {out.strip()[-160:]!r}")
    return code == 0 and (text is None or text in out)


def crate(home):
    for name, text in (("crate/Cargo.toml", '[package]\nname = "user"\nversion = "0.1.0"\n'
                        '[dependencies]\ndemocrate = "1"\n'), ("crate/src/main.rs", "fn main() {}\n"),
                       ("cargo/config.toml", '[source.crates-io]\nreplace-with = "local"\n[source.local]\n'
                        f'registry = "sparse+{SITE}/cargo/"\n[net]\nretry = 0\n')):
        os.makedirs(os.path.dirname(f"{home}/{name}"), exist_ok=True)
        with open(f"{home}/{name}", "w", encoding="ascii") as f:
            f.write(text)
    for left in ("crate/Cargo.lock", "cargo/registry"):
        path = f"{home}/{left}"
        shutil.rmtree(path, ignore_errors=True)
        if os.path.exists(path):
            os.unlink(path)


def who_trusts(bed, uid, env, names):
    """{name: whether it trusts} of those clients that are here; of no names, all of them."""
    home, seen = bed.own_home(uid), {}
    for name, (command, text) in clients(bed, home).items():
        if not names or name in names:
            seen[name] = attempt(bed, name, command, text, home, uid, env)
    return {n: v for n, v in seen.items() if v is not None}


# ---- what long/trust_clients.py has with more clients

def before(bed, names):
    ready(bed)
    for uid in (NOBODY, 0):
        seen = who_trusts(bed, uid, {}, names)
        print(f"  clients of uid {uid}: {' '.join(seen)}")
        want({n for n, v in seen.items() if v}, set(), f"uid {uid}")
        want({"curl", "git", "python-ssl"} <= set(seen), True, "enough clients are here")


def by_variables(bed, names):
    ready(bed)
    state = bed.path("home-65534/.local/state/egress-trust")
    out, said = bed.trust("--ca", bed.path("egress-ca.pem"), "--wait", "0")
    env = exported(out)
    want([env[n] for n in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")],
         [f"{state}/bundle.pem", f"{state}/ca.pem"], said)
    with open(f"{state}/bundle.pem", encoding="utf-8") as f:
        want(f.read().count("BEGIN CERT") > 50, True, "the system's roots are in it")
    seen = who_trusts(bed, NOBODY, env, names)
    want({n for n, v in seen.items() if not v}, set(), "who does not trust it")
    if shutil.which("certutil"):
        text = bed.tool("certutil", "-d", f"sql:{bed.own_home(NOBODY)}/.pki/nssdb", "-L", "-n",
                        "egress-trust", env={"HOME": bed.own_home(NOBODY)})[1]
        want("SSL Flags:\n            Valid CA\n            Trusted CA" in text, True, f"NSS: {text[-400:]}")


def by_stores(bed, names, plain):
    """As an entry point; then without any variable, as programs that somebody starts later."""
    ready(bed)
    out, said = bed.trust("--ca", bed.path("egress-ca.pem"), "--wait", "0", "--", "env", uid=0)
    want("system store: added" in said, True, said)
    want("SSL_CERT_FILE=/var/lib/egress-trust/bundle.pem" in out.splitlines(), True, out)
    env = dict(x.split("=", 1) for x in out.splitlines() if "=" in x)
    seen = who_trusts(bed, 0, {k: v for k, v in env.items() if k not in ("PATH", "HOME", "PWD")}, names)
    want({n for n, v in seen.items() if not v}, set(), "with variables")
    for uid in (0, NOBODY):
        seen = who_trusts(bed, uid, {}, plain)
        want({n for n, v in seen.items() if not v}, set(), f"without variables, uid {uid}")
    code, text = bed.tool("sh", "-lc", f"node {bed.path('get.js')} {SITE}/hello", uid=0)
    if "not found" not in text:
        want((code, text), (0, "hello\n"), "a login shell")


def next_ca(bed, names, plain):
    """A sidecar that began anew, as after a resume: the old certificate is trusted no more."""
    ready(bed)
    old = open(bed.path("egress-ca.pem"), encoding="ascii").read()
    for uid in (0, NOBODY):
        bed.trust("--ca", bed.path("egress-ca.pem"), uid=uid)
    bed.halt()
    bed.running = None
    ready(bed)
    want(open(bed.path("egress-ca.pem"), encoding="ascii").read() == old, False, "another CA")
    for uid in (0, NOBODY):
        env = exported(bed.trust("--ca", bed.path("egress-ca.pem"), uid=uid)[0])
        want({n for n, v in who_trusts(bed, uid, env, names).items() if not v}, set(), f"uid {uid}")
        bundle = bed.tool("cat", env["SSL_CERT_FILE"], uid=uid)[1]
        want(old.splitlines()[2] in bundle, False, "the old one in the bundle")
    want({n for n, v in who_trusts(bed, 0, {}, plain).items() if not v}, set(), "stores")


def snapshot(bed):
    """Files of all overlays and homes, with what is in them."""
    rows = {}
    for top in [bed.path(d) for d in sorted(os.listdir(bed.top)) if d.startswith(("over-", "home-"))]:
        for path, _, files in os.walk(top):
            for name in files:
                full = os.path.join(path, name)
                if "/work/" not in full and os.path.isfile(full) and ".pki" not in full:
                    with open(full, "rb") as f:
                        rows[full] = hash(f.read())
    return rows


def again(bed):
    ready(bed)
    for uid in (0, NOBODY):
        bed.trust("--ca", bed.path("egress-ca.pem"), uid=uid)
        old = snapshot(bed)
        first = bed.trust("--ca", bed.path("egress-ca.pem"), uid=uid)
        out, said = bed.trust("--ca", bed.path("egress-ca.pem"), uid=uid, env=exported(first[0]))
        want((first[0], "added" in said), (out, False), said)
        after = snapshot(bed)
        want({k for k in {*old, *after} if old.get(k) != after.get(k)}, set(), "changed files")


# ---- cases

def case_nobody_trusts_it_before(bed):
    """The control of the three after it."""
    before(bed, QUICK)


def case_an_ordinary_user_by_variables(bed):
    by_variables(bed, QUICK)


def case_it_waits_for_the_certificate(bed):
    ready(bed)
    place = bed.path("late/ca.pem")
    os.makedirs(bed.path("late"), exist_ok=True)

    def come():
        time.sleep(1.5)
        shutil.copy(bed.path("egress-ca.pem"), place + ".new")
        os.rename(place + ".new", place)
    threading.Thread(target=come, daemon=True).start()
    start = time.monotonic()
    said = bed.trust("--ca", place, "--wait", "20")[1]
    want((1 < time.monotonic() - start < 15, f"waiting for {place}" in said), (True, True), said)


def case_what_is_no_certificate_is_refused(bed):
    """Also what another one of the sandbox put at its place: a pipe, a directory, a link to one."""
    ready(bed)
    os.makedirs(bed.path("bad"), exist_ok=True)
    os.mkfifo(bed.path("bad/pipe"))
    os.makedirs(bed.path("bad/folder"))
    os.symlink(bed.path("bad/pipe"), bed.path("bad/link"))
    bed.write("bad/empty", "")
    two = open(bed.path("egress-ca.pem"), encoding="ascii").read() * 2
    for name, text in (("text", "not a certificate\n"), ("half", two[:300]), ("two", two)):
        bed.write(f"bad/{name}", text)
    for name in ("pipe", "folder", "link", "empty", "text", "half", "two", "nothing"):
        state = bed.path(f"home-{NOBODY}/bad")
        out, said = bed.trust("--ca", bed.path(f"bad/{name}"), "--wait", "0", "--state", state, "--", "echo",
                              "ran", env={"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true"}, code=1)
        want((out, os.path.exists(f"{state}/bundle.pem")), ("", False), f"{name}: {said}")


def case_without_interception_it_stays_away(bed):
    out, said = bed.trust("--ca", bed.path("nothing-here"), "--", "env")
    want(("CA" in out, "nothing to do" in said), (False, True), said)
    out, said = bed.trust("--ca", bed.path("nothing-here"))
    want((out, "nothing to do" in said), ("", True), said)


def case_what_is_set_stays(bed):
    """A variable of the image's own, and text that a shell would take apart."""
    ready(bed)
    state = bed.own_home(NOBODY) + "/it's $HOME here"
    out, said = bed.trust("--ca", bed.path("egress-ca.pem"), "--state", state,
                          env={"CURL_CA_BUNDLE": "/own.pem"})
    env = exported(out)
    want(("CURL_CA_BUNDLE" in env, env["SSL_CERT_FILE"]), (False, f"{state}/bundle.pem"), said)
    want("CURL_CA_BUNDLE: is /own.pem, and stays" in said, True, said)


def case_wrong_calls(bed):
    for args in (("--wat",), ("--wait", "soon"), ("--ca",), ("--wait", "")):
        want(bed.trust(*args, code=2)[0], "", args)
    want("usage: egress-trust" in bed.trust("--help")[0], True, "help")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
