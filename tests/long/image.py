#!/usr/bin/env python3
"""The container image: what is in it, how it is built, and that it runs as an engine starts it.

Starts dockerd in a network namespace that leads nowhere, with cgroup v2 in a mount namespace of its own,
and a data root below build/image. Builds twice, in two folders, from a base that images/egress/build makes
with debootstrap (from the mirror of this machine, unless it has one of this week).
Needs root and the packages docker.io and debootstrap. Figures are printed, not judged.
"""
import contextlib
import hashlib
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "netns"))
import guardbed  # noqa: E402
import sidecarbed  # noqa: E402
from guardbed import (CLONE_NEWNET, SRC, Failed, Inside, Skip, call, libc, new_network,  # noqa: E402
                      run, until, want)
from sidecarbed import CLONE_NEWNS, MS_PRIVATE, MS_REC  # noqa: E402

WORK = os.path.join(SRC, "build", "image")
BUILD_SECONDS_MAX = 1200
SIZE_MAX = 20_000_000
READY_S = 10
STOP_S = 8  # the engine kills after 9
PREFIX = "opt/opensandbox-egress"
PROGRAMS = {f"{PREFIX}/{n}" for n in ("egress", "egress-guard", "egressctl")}
RESOLVER, SITE = "11.33.0.53", "11.33.0.80"
NAMES = ("read.test", "write.test", "shut.test")
ROUND = 11  # starts that are measured
# Packages of archives that are linked in. libmnl has none, so it is an object.
STATIC = {"libssl-dev", "libevent-dev", "libc-ares-dev", "libyaml-dev", "libjansson-dev", "zlib1g-dev",
          "libidn2-dev", "libunistring-dev", "libnftnl-dev"}
SHARED = {"libc6": {"libc.so.6", "ld-linux-x86-64.so.2"}, "libmnl0": {"libmnl.so.0"}}
RULES = json.dumps({"defaultAction": "deny", "egress": [
    {"action": "allow", "target": n} for n in NAMES]})
CLIENT = """
import ssl, sys, urllib.request, urllib.error
method, url = sys.argv[1:]
ours = {"context": ssl.create_default_context(cafile="/opt/opensandbox/mitmproxy-ca-cert.pem")} \
    if url.startswith("https:") else {}
try:
    r = urllib.request.urlopen(urllib.request.Request(url, method=method, data=b"x" if method == "POST" else None),
                               timeout=10, **ours)
    print(r.status, r.reason)
except urllib.error.HTTPError as e:
    print(e.code, e.reason)
except (urllib.error.URLError, OSError) as e:
    print("none", type(e).__name__)
"""


class Site(http.server.BaseHTTPRequestHandler):
    """An origin that notes what reached it."""
    seen = []

    def do_GET(self):
        self.seen.append((self.command, self.headers["Host"], self.path))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Resolver(sidecarbed.Hostile):
    """All names of the test are one site. Only rows() differs from the hostile one."""

    def __init__(self, net):
        threading.Thread.__init__(self, daemon=True)
        self.asked = []
        with Inside(net):
            s = guardbed.socket.socket(guardbed.socket.AF_INET, guardbed.socket.SOCK_DGRAM)
            s.bind((RESOLVER, 53))
        threading.Thread(target=self.udp, args=(s,), daemon=True).start()

    def rows(self, name, kind):
        if name == "":
            return [sidecarbed.rr("", "NS", "ns.root.test")] if kind == 2 else []
        return [sidecarbed.rr(name, "A", SITE)] if kind == 1 and name in NAMES else []


class Bed:
    """An engine with nothing behind it but a resolver and a site."""

    def __init__(self, top):
        self.top, self.net, self.engine, self.base = top, None, None, None
        self.images, self.layers = {}, {}

    def start(self):
        for program, pkg in (("dockerd", "docker.io"), ("docker", "docker.io"),
                             ("debootstrap", "debootstrap")):
            if not shutil.which(program):
                self.missing = f"needs {pkg}"
                return
        self.missing = None
        os.makedirs(WORK, exist_ok=True)
        self.root = tempfile.mkdtemp(prefix="engine-", dir=WORK)
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.net = new_network()
        for line in ("link set lo up", f"addr add {RESOLVER}/32 dev lo", f"addr add {SITE}/32 dev lo"):
            run("ip", *line.split())
        call("setns", home, CLONE_NEWNET)
        os.close(home)
        Resolver(self.net)
        self.certificate()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.path("site.pem"), self.path("site.key"))
        for port in (80, 443):
            with Inside(self.net):
                site = http.server.ThreadingHTTPServer((SITE, port), Site)
            if port == 443:
                site.socket = tls.wrap_socket(site.socket, server_side=True)
            threading.Thread(target=site.serve_forever, daemon=True).start()
        self.dockerd()

    def path(self, name):
        return os.path.join(self.top, name)

    def certificate(self):
        """Of the site, which is its own root."""
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "30", "-keyout", self.path("site.key"), "-out", self.path("site.pem"), "-subj",
            "/CN=site", "-addext", "subjectAltName=" + ",".join(f"DNS:{n}" for n in NAMES))

    def dockerd(self):
        def enter():
            libc.prctl(1, signal.SIGTERM, 0, 0, 0)
            call("setns", self.net, CLONE_NEWNET)
            call("unshare", CLONE_NEWNS)
            call("mount", None, b"/", None, MS_PRIVATE | MS_REC, None)
            call("mount", b"none", b"/sys/fs/cgroup", b"cgroup2", 0, None)

        # A socket's path has 107 bytes at most.
        self.host = f"unix:///run/egress-image-{os.getpid()}.sock"
        os.environ["DOCKER_HOST"] = self.host
        log = open(self.path("dockerd.log"), "w")
        self.engine = subprocess.Popen(
            ["dockerd", "--data-root", f"{self.root}/data", "--exec-root", f"{self.root}/exec",
             "--pidfile", f"{self.root}/pid", "--host", self.host, "--iptables=false",
             "--ip6tables=false", "--ip-forward=false", "--userland-proxy=false",
             "--exec-opt", "native.cgroupdriver=cgroupfs"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=enter)

        def up():
            if self.engine.poll() is not None:
                raise Failed("dockerd ended: dockerd.log")
            return subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0
        until(up, "dockerd", 60)
        print("  engine:", docker("info", "-f", "{{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}"))

    def stop(self):
        if self.engine is None:
            return
        with contextlib.suppress(Failed, OSError, subprocess.SubprocessError):
            if ids := docker("ps", "-aq").split():
                docker("rm", "-f", "-v", *ids)
        self.engine.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.engine.wait(20)
        self.engine.kill()
        shutil.rmtree(self.root, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(self.host.removeprefix("unix://"))

    # ---- images

    def image(self, name="one"):
        """Builds on first use: `one` and `plain` where the sources usually lie, `two` elsewhere."""
        if self.missing:
            raise Skip(self.missing)
        args = {"one": [], "plain": ["--target", "egress"],
                "two": ["--no-cache", "--build-arg", "SRC=/elsewhere/and/deeper"]}[name]
        if name not in self.images:
            tag, start = f"local/egress-test:{name}", time.monotonic()
            p = subprocess.run([os.path.join(SRC, "images/egress/build"), "--tag", tag, "--base",
                                "debootstrap", "--sbom", self.sbom_path(name), *args],
                               capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
            if p.returncode != 0:
                raise Failed(f"build: {p.stdout[-1500:]} {p.stderr[-1500:]}")
            print(f"  {p.stdout.splitlines()[-1]}, built in {time.monotonic() - start:.0f} s")
            self.images[name] = tag
            self.base = docker("images", "--format", "{{.Repository}}:{{.Tag}}", "local/egress-base").split()[0]
        return self.images[name]

    def sbom_path(self, name):
        return self.path(f"sbom-{name}.json")

    def derived(self, name, *lines, files=()):
        """An image of an operator: FROM and one line more."""
        where = tempfile.mkdtemp(dir=self.top)
        for file, text in files:
            with open(os.path.join(where, file), "w") as f:
                f.write(text)
        with open(os.path.join(where, "Dockerfile"), "w") as f:
            f.write("\n".join([f"FROM {self.image()}", *lines, ""]))
        docker("build", "-q", "-t", f"local/egress-test:{name}", where)
        return f"local/egress-test:{name}"

    def tree(self, tag):
        """What the layers of an image hold: path to all that a tar says of it but the time, and bytes."""
        if tag not in self.layers:
            path = self.path("saved.tar")
            docker("save", "-o", path, tag)
            self.layers[tag] = read_layers(path)
            os.unlink(path)
        return self.layers[tag]

    # ---- containers

    def create(self, tag, *args, caps=("NET_ADMIN",), volume=True, **env):
        env = {"OPENSANDBOX_EGRESS_MODE": "dns+nft", "OPENSANDBOX_EGRESS_RULES": RULES,
               "OPENSANDBOX_EGRESS_TOKEN": "token-of-the-test", "OPENSANDBOX_EGRESS_DNS_UPSTREAM": RESOLVER,
               "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true", **env}
        words = [w for k, v in env.items() if v is not None for w in ("-e", f"{k}={v}")]
        words += [w for c in caps for w in ("--cap-add", c)]
        if volume:
            words += ["-v", "/opt/opensandbox"]
        return Container(docker("create", "--sysctl", "net.ipv6.conf.all.disable_ipv6=1", *words, *args, tag))

    @contextlib.contextmanager
    def running(self, tag, *args, **kw):
        c = self.create(tag, *args, **kw)
        try:
            c.start()
            c.healthy()
            yield c
        finally:
            docker("rm", "-f", "-v", c.id)

    def sandbox(self, c, method, url):
        """A request from inside, as a sandbox makes it: another container with the same network and
        volume."""
        return docker("run", "--rm", "--network", f"container:{c.id}", "--volumes-from", c.id,
                      "--cap-drop", "NET_RAW", self.base, "python3", "-c", CLIENT, method, url)


class Container:
    def __init__(self, full):
        self.id, self.pid = full, None

    def start(self):
        docker("start", self.id)
        self.pid = int(docker("inspect", "-f", "{{.State.Pid}}", self.id))

    def health(self):
        """The reason of the health answer, asked over loopback."""
        fd = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            with Inside(fd):
                h = http.client.HTTPConnection("127.0.0.1", 18080, timeout=1)
                h.request("GET", "/healthz")
            r = h.getresponse()
            h.close()
            return r.status, r.reason
        except OSError as e:
            return None, str(e)
        finally:
            os.close(fd)

    def healthy(self):
        try:
            until(lambda: self.health()[0] == 200, "healthy", READY_S)
        except Failed as e:
            raise Failed(f"{e}: {self.health()} {docker('logs', self.id, errors=True)[-600:]}") from None

    def processes(self):
        return [int(p) for p in docker("top", self.id, "-eo", "pid").split()[1:]]


def docker(*args, errors=False):
    p = subprocess.run(["docker", *args], capture_output=True, text=True, timeout=300, check=False)
    if p.returncode != 0:
        raise Failed(f"docker {' '.join(args)[:200]}: {p.stderr.strip()[-400:]}")
    return (p.stdout + (p.stderr if errors else "")).strip()


def read_layers(path):
    """Layers of `docker save`, each upon the one before."""
    rows = {}
    with tarfile.open(path) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=outer.extractfile(name)) as layer:
                for m in layer:
                    data = layer.extractfile(m).read() if m.isreg() else b""
                    rows[m.name.strip("/")] = {
                        "type": m.type, "mode": m.mode, "owner": (m.uid, m.gid), "link": m.linkname,
                        "xattr": sorted(k for k in m.pax_headers if "xattr" in k), "time": int(m.mtime),
                        "bytes": data}
    rows.pop("", None)
    return rows


def regular(tree):
    return {n: r for n, r in tree.items() if r["type"] in (tarfile.REGTYPE, tarfile.AREGTYPE)}


def elf(tree):
    return {n for n, r in regular(tree).items() if r["bytes"].startswith(b"\x7fELF")}


def differing(one, two):
    return sorted(n for n in one.keys() | two.keys() if one.get(n) != two.get(n))


def config(tag):
    return json.loads(docker("image", "inspect", tag))[0]


def environment(tag):
    return dict(e.split("=", 1) for e in config(tag)["Config"]["Env"])


# ---- what is in it

def case_two_builds_give_the_same_files(bed):
    """In another folder, without the cache, at another time; the times of files are equal too."""
    one, two = bed.tree(bed.image("one")), bed.tree(bed.image("two"))
    want(differing(one, two), [], "files that differ")
    want(len(regular(one)) > 30, True, f"{len(regular(one))} files")
    # The comparison sees one byte, a mode and a file more.
    changed = bed.tree(bed.derived("changed", "COPY group passwd /etc/", "COPY more /",
                                   files=(("passwd", one["etc/passwd"]["bytes"].decode() + "\n"),
                                          ("group", one["etc/group"]["bytes"].decode()), ("more", ""))))
    want({"etc/passwd", "more"} <= set(differing(one, changed)), True, "changes that are seen")
    print("  all files: sha256 " + hashlib.sha256(
        repr(sorted((n, r["bytes"]) for n, r in one.items())).encode()).hexdigest())


def case_the_engine_and_our_count_say_below_20_MB(bed):
    tree = bed.tree(bed.image())
    size = sum(len(r["bytes"]) for r in tree.values())
    for n, r in sorted(regular(tree).items(), key=lambda x: -len(x[1]["bytes"]))[:6]:
        print(f"  {len(r['bytes']) / 1e6:6.2f} MB {n}")
    print(f"  {size / 1e6:.2f} MB in {len(regular(tree))} files; the engine says "
          f"{config(bed.image())['Size'] / 1e6:.2f} MB")
    want(max(size, config(bed.image())["Size"]) < SIZE_MAX, True, "size")


def faults(tree):
    """What may not be in the image: a shell or an interpreter, a way to more rights, what others may
    change, anything in the folders that engines and operators fill. Docker copies what an image has
    in /opt/opensandbox into the volume that the sandbox shares."""
    objects = {n for n in elf(tree) if os.path.basename(n) in set().union(*SHARED.values())}
    for n in PROGRAMS - elf(tree):
        yield f"{n} is missing"
    for n in elf(tree) - PROGRAMS - objects:
        yield f"{n} is a program or an object that nothing needs"
    for n, r in tree.items():
        if r["type"] not in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE):
            yield f"{n} is a device or a pipe"
        if r["bytes"].startswith(b"#!"):
            yield f"{n} is a script"
        if r["type"] == tarfile.REGTYPE and r["mode"] & 0o111 and n not in PROGRAMS | objects:
            yield f"{n} can be run"
        if r["mode"] & 0o7000 or r["xattr"]:
            yield f"{n} raises rights"
        if r["owner"] != (0, 0) or (r["mode"] & 0o022 and r["type"] != tarfile.SYMTYPE):
            yield f"{n} may be changed by others"
        if n.startswith(("opt/opensandbox/", "var/egress/rules/")):
            yield f"{n} is where nothing of ours may be"
    for n in ("opt/opensandbox", "var/egress/rules"):
        if tree.get(n, {"type": None})["type"] != tarfile.DIRTYPE:
            yield f"{n} is no folder"


def case_nothing_is_inside_that_should_not_be(bed):
    tree = bed.tree(bed.image())
    want(list(faults(tree)), [], "faults")
    for shell in ("sh", "/bin/sh", "bash", "python3", "busybox"):
        p = subprocess.run(["docker", "run", "--rm", "--network", "none", "--entrypoint", shell,
                            bed.image()], capture_output=True, text=True, check=False)
        want(p.returncode, 127, f"exit code of {shell}")


def case_what_should_not_be_inside_would_be_seen(bed):
    tree = bed.tree(bed.image())
    text, program = tree["etc/passwd"], tree[f"{PREFIX}/egressctl"]
    for name, row in (("bin/sh", program), ("lib/libx.so.1", program),
                      ("usr/bin/x", {**text, "bytes": b"#!/bin/sh"}), ("usr/bin/y", {**text, "mode": 0o755}),
                      (f"{PREFIX}/egress", {**program, "mode": 0o4755}),
                      (f"{PREFIX}/egress", {**program, "xattr": ["SCHILY.xattr.security.capability"]}),
                      ("etc/group", {**text, "owner": (10042, 0)}), ("etc/group", {**text, "mode": 0o666}),
                      ("opt/opensandbox/x", text), ("var/egress/rules/allow.always", text),
                      ("opt/opensandbox", text), ("dev/null", {**text, "type": tarfile.CHRTYPE})):
        found = list(faults({**tree, name: row}))
        want((len(found) > 0, [f for f in found if not f.startswith(name)]), (True, []), f"a planted {name}")
    want(list(faults({n: r for n, r in tree.items() if n != f"{PREFIX}/egress-guard"})),
         [f"{PREFIX}/egress-guard is missing"], "without the guard")


def case_links_users_and_roots(bed):
    tree = bed.tree(bed.image())
    want(tree["egress"]["link"], f"/{PREFIX}/egress", "/egress")
    users = [x.split(":") for x in tree["etc/passwd"]["bytes"].decode().splitlines()]
    want([(u[2], u[6]) for u in users],
         [(n, "/nonexistent") for n in ("0", "10042", "10043", "10044")], "users")
    want(tree["etc/ssl/certs/ca-certificates.crt"]["bytes"].count(b"BEGIN CERTIFICATE") > 100, True,
         "roots")


def case_a_base_that_the_engine_has_is_taken(bed):
    """As where a registry is in reach: no debootstrap, the same files."""
    bed.image()
    docker("tag", bed.base, "debian:bookworm-slim")
    tag = "local/egress-test:registry"
    p = subprocess.run([os.path.join(SRC, "images/egress/build"), "--tag", tag], capture_output=True,
                       text=True, timeout=BUILD_SECONDS_MAX, check=False)
    docker("rmi", "debian:bookworm-slim")
    want(p.returncode, 0, f"build: {p.stderr[-400:]}")
    want("FROM ${BASE}" in p.stdout and "debootstrap" not in p.stderr, True, "debootstrap was not asked")
    want(differing(bed.tree(tag), bed.tree(bed.image())), [], "files that differ")


def case_entry_point_and_labels(bed):
    one, plain = config(bed.image()), config(bed.image("plain"))
    version = re.search(r"version: '([0-9.]+)'", open(os.path.join(SRC, "meson.build")).read())[1]
    for image, title in ((one, "egress-readonly"), (plain, "egress")):
        c = image["Config"]
        want(c["Entrypoint"], [f"/{PREFIX}/egress"], "entry point")
        want([c.get(k) or None for k in ("Cmd", "User", "Volumes", "ExposedPorts", "Healthcheck")],
             [None] * 5, "command, user, volumes, ports, health check")
        labels = {k.removeprefix("org.opencontainers.image."): v for k, v in c["Labels"].items()}
        want(set(labels), {"title", "description", "version", "revision"}, "labels")
        want((labels["title"], labels["version"]), (title, version), "title and version")
        want(bool(re.fullmatch(r"[0-9a-f]{40}(-changed)?|unknown", labels["revision"])), True, "revision")
    want(environment(bed.image()), {"PATH": f"/{PREFIX}", "EGRESS_READ_ONLY": "true"}, "environment")
    want(environment(bed.image("plain")), {"PATH": f"/{PREFIX}"}, "environment of the stage egress")
    want(bed.tree(bed.image()), bed.tree(bed.image("plain")), "files of both stages")


def case_sbom_names_everything(bed):
    """Each file with its digest, each object with its package, each archive that is linked in; versions
    are those of the base."""
    tree = bed.tree(bed.image())
    with open(bed.sbom_path("one"), "rb") as f:
        raw = f.read()
    want(raw, tree[f"{PREFIX}/sbom.spdx.json"]["bytes"], "the copy beside the image")
    doc = json.loads(raw)
    files = {f["fileName"].removeprefix("./"): f for f in doc["files"]}
    want(set(files), set(regular(tree)) - {f"{PREFIX}/sbom.spdx.json"}, "files")
    for name, f in files.items():
        sums = {c["algorithm"]: c["checksumValue"] for c in f["checksums"]}
        want(sums["SHA256"], hashlib.sha256(tree[name]["bytes"]).hexdigest(), f"digest of {name}")
    ids = {x["SPDXID"]: x for x in doc["packages"] + doc["files"]}
    want(len(ids), len(doc["packages"]) + len(doc["files"]), "each with an id of its own")
    links = [(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"])
             for r in doc["relationships"]]
    want([x for x in links if x[0] != "SPDXRef-DOCUMENT" and not {x[0], x[2]} <= set(ids)], [], "loose ends")
    static = {ids[b]["name"] for _, k, b in links if k == "STATIC_LINK"}
    want(static, STATIC | {"libc6-dev", "libgcc-12-dev"}, "packages that are linked in")
    shared = {}
    for a, k, b in links:
        if k == "GENERATED_FROM":
            shared.setdefault(ids[b]["name"], set()).add(os.path.basename(ids[a]["fileName"]))
    want(shared, {**SHARED, "ca-certificates": {"ca-certificates.crt"}}, "files of packages")
    packages = {p["name"]: p["versionInfo"] for p in doc["packages"]}
    there = dict(x.split(" ") for x in docker(
        "run", "--rm", "--network", "none", bed.base, "dpkg-query", "-W", "-f",
        "${Package} ${Version}\\n").splitlines())
    del packages["egress"]
    want({n: v for n, v in packages.items() if there.get(n) != v}, {}, "versions")
    want({n for n in packages if f"usr/share/doc/{n}/copyright" not in tree}, set(), "licences missing")
    # What the program says of itself: the version of the archive that was linked, not of a header.
    said = re.findall(rb"inflate (1[0-9.]+) Copyright", tree[f"{PREFIX}/egress"]["bytes"])
    want([packages["zlib1g-dev"].startswith(f"1:{v.decode()}") for v in said], [True], f"zlib {said}")


# ---- how it runs

def case_version_and_check_run_inside(bed):
    version = docker("run", "--rm", "--network", "none", bed.image(), "--version")
    want(version, "egress " + config(bed.image())["Config"]["Labels"]["org.opencontainers.image.version"],
         "--version")
    for name, on in (("one", "true"), ("plain", "false")):
        text = docker("run", "--rm", "--network", "none", bed.image(name), "--check")
        want(f"\nread_only: {on}\n" in text, True, f"read_only of {name}")
        want("/etc/ssl/certs" in text, True, "roots")


def case_healthy_with_the_rights_that_an_engine_gives(bed):
    """Docker's default capabilities and NET_ADMIN; all protections are in place, none degraded."""
    with bed.running(bed.image()) as c:
        caps = {p: re.search(r"CapEff:\s*(\w+)", open(f"/proc/{p}/status").read())[1]
                for p in c.processes()}
        want(caps[c.pid], "00000000a80435fb", "rights of process 1")
        want(len(caps), 3, "processes")
        status = json.loads(docker("exec", c.id, "egressctl", "status", "--json"))
        print("  health:", json.dumps(status.get("health")))
        want(re.findall(r'"(?:degraded|failed)"', json.dumps(status)), [], "degraded")
        want(bed.sandbox(c, "GET", "http://read.test/"), "200 OK", "a read")
        want(bed.sandbox(c, "POST", "http://write.test/"), "403 blocked", "a write")
        want(bed.sandbox(c, "GET", f"http://{SITE}/")[:3], "403", "an address that no rule names")
        start = time.monotonic()
        docker("stop", "-t", "9", c.id)
        took = time.monotonic() - start
        print(f"  stop: {took:.2f} s")
        want(took < STOP_S, True, f"{took:.1f} s to stop")
        want(docker("inspect", "-f", "{{.State.ExitCode}}", c.id), "0", "exit code")
    want(("GET", "read.test", "/") in Site.seen, True, "the read at its origin")
    want([x for x in Site.seen if x[0] == "POST"], [], "writes at an origin")


def case_without_net_admin_it_stays_closed_and_says_so(bed):
    c = bed.create(bed.image(), caps=())
    try:
        c.start()
        until(lambda: c.health()[0] == 503, "an answer", READY_S)
        time.sleep(1)
        status, reason = c.health()
        print("  reason:", reason)
        want((status, bool(reason)), (503, True), "health")
    finally:
        docker("rm", "-f", "-v", c.id)


def case_nothing_is_written_into_the_layer(bed):
    """With the volume of an engine not a byte; without one the CA certificate. Started on a layer that
    cannot be written it works as well."""
    with bed.running(bed.image()) as c:
        want(bed.sandbox(c, "GET", "http://read.test/"), "200 OK", "a read")
        want(docker("diff", c.id), "", "changes in the layer")
    with bed.running(bed.image(), volume=False) as c:
        want(bed.sandbox(c, "GET", "http://read.test/"), "200 OK", "a read")
        want(docker("diff", c.id).splitlines(),
             ["C /opt", "C /opt/opensandbox", "A /opt/opensandbox/mitmproxy-ca-cert.pem"], "changes")
    with bed.running(bed.image(), "--read-only") as c:
        want(bed.sandbox(c, "GET", "http://read.test/"), "200 OK", "a read")


def case_a_derived_image_needs_one_line(bed):
    """ENV with write hosts, or a file of rules."""
    before = len(Site.seen)
    hosts = bed.derived("hosts", "ENV AGENTIC_WRITE_HOSTS=write.test")
    with bed.running(hosts) as c:
        want(bed.sandbox(c, "POST", "http://write.test/"), "200 OK", "a write to the write host")
        want(bed.sandbox(c, "POST", "http://read.test/"), "403 blocked", "a write elsewhere")
    want(Site.seen[before:], [("POST", "write.test", "/")], "what reached the origin")
    rules = bed.derived("rules", "COPY deny.always /var/egress/rules/deny.always",
                        files=(("deny.always", "shut.test\n"),))
    with bed.running(bed.image()) as c:
        want(bed.sandbox(c, "GET", "http://shut.test/"), "200 OK", "without the file")
    with bed.running(rules) as c:
        want(bed.sandbox(c, "GET", "http://shut.test/")[:4], "none", "a name that the file denies")
        want(bed.sandbox(c, "GET", "http://read.test/"), "200 OK", "another")


def case_a_root_of_the_operator_is_one_line(bed):
    """TLS to an origin, and from a client that trusts our CA from the volume."""
    with open(bed.path("site.pem")) as f:
        root = bed.derived("root", "COPY own.pem /etc/ssl/certs/own.pem", files=(("own.pem", f.read()),))
    with bed.running(bed.image()) as c:
        want(bed.sandbox(c, "GET", "https://read.test/")[:3], "502", "a root that it does not know")
    with bed.running(root) as c:
        want(bed.sandbox(c, "GET", "https://read.test/"), "200 OK", "with the root")
        want(bed.sandbox(c, "POST", "https://read.test/"), "403 blocked", "a write by TLS")


def case_a_derived_image_of_the_plain_stage_turns_the_rule_on(bed):
    with bed.running(bed.image("plain")) as c:
        want(bed.sandbox(c, "POST", "http://read.test/"), "200 OK", "a write without the rule")
    with bed.running(bed.image("plain"), AGENTIC_WRITE_HOSTS="write.test") as c:
        want(bed.sandbox(c, "POST", "http://read.test/"), "403 blocked", "a write with it")


# ---- figures

def started(c):
    """Starts it; seconds from the start command, and from exec, to the first 200."""
    group = f"/docker/{c.id}"
    root = next(m.split()[1] for m in open("/proc/mounts") if m.split()[2] == "cgroup2")
    found = {}

    def watch():
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError):
                pids = open(f"{root}{group}/cgroup.procs").read().split()
                for p in pids:
                    if open(f"/proc/{p}/comm").read().strip() == "egress":
                        found["exec"] = time.monotonic()
                        c.pid = int(p)
                        while c.health()[0] != 200:
                            time.sleep(0.0005)
                        found["ready"] = time.monotonic()
                        return
            time.sleep(0.0005)

    t = threading.Thread(target=watch)
    t.start()
    begin = time.monotonic()
    docker("start", c.id)
    t.join()
    if "ready" not in found:
        raise Failed(f"not healthy: {c.health()}")
    return found["ready"] - begin, found["ready"] - found["exec"]


def memory_kib(pid):
    """PSS, and what of it no other sandbox on the machine shares: the programs are one file for all."""
    text = open(f"/proc/{pid}/smaps_rollup").read()
    return [int(re.search(rf"^{k}:\s+(\d+)", text, re.M)[1]) for k in ("Pss", "Private_Dirty")]


def case_figures_of_start_and_memory(bed):
    for name, transparent in (("with credential proxy", "true"), ("without", None)):
        rows = []
        for _ in range(ROUND):
            c = bed.create(bed.image(), OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=transparent)
            try:
                rows.append(started(c))
                if len(rows) == ROUND:
                    time.sleep(3)
                    sizes = sorted(memory_kib(p) for p in c.processes())
            finally:
                docker("rm", "-f", "-v", c.id)
        whole, own = (sorted(r[i] * 1000 for r in rows) for i in (0, 1))
        print(f"  {name}: healthy {own[ROUND // 2]:.0f} ms after exec ({own[0]:.0f} to {own[-1]:.0f}), "
              f"{whole[ROUND // 2]:.0f} ms after `docker start` ({whole[0]:.0f} to {whole[-1]:.0f}); "
              f"idle PSS {sum(s[0] for s in sizes)} KiB, {[s[0] for s in sizes]} by process; "
              f"{sum(s[1] for s in sizes)} KiB are its own, {[s[1] for s in sizes]}")
        want(own[0] > 0 and len(sizes) == 3, True, "figures")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
