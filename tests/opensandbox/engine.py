"""Docker of the test's own in closed_world.py's `host`, and the images that the tests need.

The engine has its data root, sockets and mounts for itself, and leaves with the test. Images: the
egress image as images/egress/build makes it, images derived from it as an operator would do it (the
CA of the test, write hosts), a sandbox made by debootstrap, and the stand-in for execd. What takes
long to make is kept in WORK between runs.
"""
import fcntl
import json
import os
import shutil
import subprocess
import tarfile
import time

import closed_world
from closed_world import Failed, Inside, run, until

SRC = os.environ.get("EGRESS_SRC") or os.path.dirname(closed_world.TESTS)
WORK = os.environ.get("OPENSANDBOX_WORK") or "/var/tmp/egress-opensandbox"
SANDBOX, EXECD = "local/sandbox:1", "local/execd-standin:1"
FLOOR = "local/sidecar-standin:1"  # ready at once, and does nothing
EGRESS = {"egress": "local/egress-plain:1", "egress-readonly": "local/egress:1"}
DERIVED = {"egress": "local/egress-plain-derived:1", "egress-readonly": "local/egress-derived:1"}
# The whole of what an operator adds, but for the CA: real origins have certificates of known roots.
DERIVE = """FROM {base}
COPY ca.pem /etc/ssl/certs/test-ca.pem
ENV AGENTIC_WRITE_HOSTS=api.model.test
"""
DERIVE_PLAIN = """FROM {base}
COPY ca.pem /etc/ssl/certs/test-ca.pem
"""
SANDBOX_PACKAGES = "ca-certificates,curl,python3"
SANDBOX_LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man",
                    "usr/share/locale", "usr/share/info")


def note(text):
    print(f"# {text}", flush=True)


def locked_work():
    """The folder that is kept, for one run at a time. The lock ends with the process."""
    os.makedirs(WORK, exist_ok=True)
    lock = open(os.path.join(WORK, "lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def kept(name, make):
    """The path of a thing in WORK; make(path) makes it, whole or not at all."""
    path = os.path.join(WORK, name)
    if not os.path.exists(path):
        note(f"making {path}")
        new = path + ".new"
        run("rm", "-rf", new)
        make(new)
        os.rename(new, path)
    return path


def command(*args, seconds=600, env=None, cwd=None):
    p = subprocess.run(args, capture_output=True, text=True, timeout=seconds, check=False, env=env,
                       cwd=cwd, stdin=subprocess.DEVNULL)
    if p.returncode != 0:
        raise Failed(f"{' '.join(args)}: {(p.stdout + p.stderr).strip()[-3000:]}")
    return p.stdout


def debian_mirror():
    """The one of this machine's apt."""
    lines = command("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                    "Created-By: Packages", "Origin: Debian").split("\n")
    for line in lines:
        words = line.split()
        if words[1:] == ["bookworm", "main"]:
            return words[0]
    raise Failed("apt knows no mirror of bookworm: apt-get update")


def sandbox_make(path):
    """Debian with curl, as a tar."""
    root = path + ".root"
    shutil.rmtree(root, ignore_errors=True)
    try:
        command("debootstrap", "--variant=minbase", f"--include={SANDBOX_PACKAGES}", "bookworm",
                root, debian_mirror(), seconds=1200)
        for folder in SANDBOX_LEFT_OUT:
            shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
        command("tar", "-C", root, "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*",
                "-cf", path, ".")
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Engine:
    """world: closed_world.World, started. top: a folder for this run."""

    def __init__(self, world):
        self.world = world
        self.socket = world.path("docker.sock")
        self.url = f"unix://{self.socket}"
        self.data = os.path.join(WORK, "engine")
        self.process = None

    def start(self):
        self.clear()
        os.makedirs(self.data)
        exec_root = os.path.join("/run", f"egress-opensandbox-{os.getpid()}")
        mounts = closed_world.own_mounts("/run/docker", "/run/containerd")
        with Inside(self.world.host):
            self.process = self.world.daemon(
                "dockerd", "dockerd", "--host", self.url, "--data-root", self.data, "--exec-root",
                exec_root, "--pidfile", self.world.path("dockerd.pid"), "--dns",
                closed_world.RESOLVER, "--log-level", "warn", "--config-file",
                self.empty_config(), env=closed_world_env(), before=mounts)
        until(lambda: self.answers(), "dockerd", 60)

    def empty_config(self):
        """Not the machine's daemon.json."""
        path = self.world.path("daemon.json")
        with open(path, "w") as f:
            f.write("{}")
        return path

    def answers(self):
        if self.process.poll() is not None:
            with open(self.world.path("dockerd.out")) as f:
                raise Failed(f"dockerd ended: {f.read()[-1500:]}")
        return subprocess.run(["docker", "--host", self.url, "version"], check=False,
                              capture_output=True).returncode == 0

    def docker(self, *args, seconds=120, check=True):
        p = self.run(*args, seconds=seconds)
        if check and p.returncode != 0:
            raise Failed(f"docker {' '.join(args)}: {p.stderr.strip()[-800:]}")
        return p.stdout

    def run(self, *args, seconds=120):
        return subprocess.run(["docker", "--host", self.url, *args], capture_output=True, text=True,
                              timeout=seconds, check=False, stdin=subprocess.DEVNULL,
                              env=closed_world_env())

    def inspect(self, name):
        return json.loads(self.docker("inspect", name))[0]

    # ---- images

    def build(self, name, dockerfile, files=()):
        """A derived image, with the builder that needs no plugin."""
        context = self.world.path(f"context-{name.replace('/', '-').replace(':', '-')}")
        os.makedirs(context, exist_ok=True)
        with open(os.path.join(context, "Dockerfile"), "w") as f:
            f.write(dockerfile)
        for path in files:
            shutil.copy(path, context)
        self.docker("build", "-t", name, context, seconds=300)

    def sandbox_image(self):
        path = kept(f"sandbox-{SANDBOX_PACKAGES}.tar", sandbox_make)
        self.docker("import", path, SANDBOX)

    def execd_image(self, build):
        """build: the ninja directory with the target."""
        target = "tests/opensandbox/execd-standin"
        command("ninja", "-C", build, target)
        path = self.world.path("execd.tar")
        with tarfile.open(path, "w") as tar:
            tar.add(os.path.join(build, target), "execd")
            tar.add(os.path.join(SRC, "tests", "opensandbox", "bootstrap.sh"), "bootstrap.sh")
        for name, entry in ((EXECD, '["/execd"]'), (FLOOR, '["/execd", "sidecar"]')):
            self.docker("import", "--change", f"ENTRYPOINT {entry}", path, name)

    def egress_image(self, stage):
        """Built here; the engine has no way to a registry, so its base comes from debootstrap."""
        begin = time.monotonic()
        command(os.path.join(SRC, "images", "egress", "build"), "--tag", EGRESS[stage], "--target",
                stage, "--docker-host", self.url, "--base", "debootstrap", seconds=1800, cwd=SRC,
                env=closed_world_env(HOME=self.world.top))
        return time.monotonic() - begin

    def derived_image(self, stage):
        text = DERIVE if stage == "egress-readonly" else DERIVE_PLAIN
        self.build(DERIVED[stage], text.format(base=EGRESS[stage]), [self.world.path("ca.pem")])

    def size(self, name):
        return self.inspect(name)["Size"]

    # ---- containers

    def pid(self, name):
        return self.inspect(name)["State"]["Pid"]

    def exec(self, name, *args, user="0", seconds=60):
        """(exit code, stdout + stderr) of a command in a container."""
        p = self.run("exec", "-u", user, name, *args, seconds=seconds)
        return p.returncode, p.stdout + p.stderr

    def containers(self):
        return self.docker("ps", "-a", "--format", "{{.Names}}").split()

    # ---- the end

    def stop(self):
        if self.process and self.process.poll() is None:
            names = self.docker("ps", "-aq", check=False).split()
            if names:
                self.docker("rm", "-f", *names, check=False)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(os.path.join("/run", f"egress-opensandbox-{os.getpid()}"), ignore_errors=True)
        self.clear()

    def clear(self):
        """The data root of this or an earlier run; its mounts ended with their namespace."""
        if os.path.isdir(self.data):
            run("rm", "-rf", "--one-file-system", self.data)


def closed_world_env(**more):
    """Nothing of the caller's proxies or settings reaches Docker or the server."""
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin", "LANG": "C.UTF-8",
           "HOME": os.environ.get("HOME", "/root"), "DOCKER_BUILDKIT": "0"}
    env.update(more)
    return env
