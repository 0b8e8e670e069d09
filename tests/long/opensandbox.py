#!/usr/bin/env python3
"""The image under a real OpenSandbox server on a real Docker engine, with both SDKs.

Needs root, about 2 GiB below /var/tmp/egress-opensandbox (OPENSANDBOX_WORK), and on its first run
the package mirrors of Debian, PyPI and npm. Everything but execd (execd_standin.c) and the internet
is real. Library: tests/opensandbox. What was asked and answered is in transcript.txt of that
folder. `--list` prints the cases; those of a server go on with one sandbox, so one brings those
before it.
"""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "opensandbox"))
import closed_world  # noqa: E402
import engine  # noqa: E402
import flow  # noqa: E402
import measure  # noqa: E402
import servers  # noqa: E402
from closed_world import Failed, Skip  # noqa: E402

TOOLS = {"dockerd": "docker.io", "docker": "docker.io", "debootstrap": "debootstrap", "npm": "npm",
         "nginx": "nginx-light", "openssl": "openssl", "ip": "iproute2", "iptables": "iptables"}


class Run:
    """All cases of a run: [name], and what they share."""

    def __init__(self, top, transcript="transcript.txt"):
        self.bad = 0
        self.world = closed_world.World(top)
        self.engine = engine.Engine(self.world)
        self.begin = time.monotonic()
        self.transcript = open(os.path.join(engine.WORK, transcript), "w")
        self.figures = measure.Figures()

    def say(self, text):
        self.transcript.write(f"{time.monotonic() - self.begin:8.2f}  {text}\n")
        self.transcript.flush()

    def result(self, line):
        print(line, flush=True)
        self.say(line)

    def case(self, name, run, *args):
        begin = time.monotonic()
        self.say(f"---- {name}: {(run.__doc__ or '').strip().split(chr(10))[0]}")
        try:
            run(*args)
        except Skip as e:
            self.result(f"skip {name} {e}")
        except (Failed, OSError, ValueError, LookupError, TypeError, servers.SdkError,
                subprocess.SubprocessError) as e:
            self.bad += 1
            self.result(f"not ok {name} {type(e).__name__}: {e}".replace("\n", " ")[:2000])
        else:
            self.result(f"ok {name}")
            return True
        finally:
            print(f"#   {time.monotonic() - begin:.1f} s", flush=True)
        return False

    def images(self, stages=tuple(engine.EGRESS)):
        """The image as images/egress/build makes it, in its stages, and what derives from it."""
        for stage in stages:
            seconds = self.engine.egress_image(stage)
            self.say(f"images/egress/build --target {stage}: {seconds:.0f} s, "
                     f"{self.engine.size(engine.EGRESS[stage]) / 1e6:.1f} MB")
            self.engine.derived_image(stage)

    def neighbour(self):
        """Another sandbox on the bridge: its address."""
        self.engine.docker("run", "-d", "--name", "neighbour", engine.EXECD, "serve")
        return self.engine.inspect("neighbour")["NetworkSettings"]["IPAddress"]

    def prepare(self):
        servers.packages_fetch()
        self.world.start()
        self.engine.start()
        self.engine.sandbox_image()
        self.engine.execd_image(os.environ.get("EGRESS_BUILD") or
                                os.path.join(engine.SRC, "build", "gcc-asan"))
        self.sdks = {name: servers.Sdk(self.world, name) for name in ("python", "js")}

    def stop(self):
        self.engine.stop()
        self.world.stop()


def world_is_closed(run):
    """No interface but the link to the internet that we play, and no way to the real one."""
    with closed_world.Inside(run.world.host):
        links = closed_world.run("ip", "-o", "link").splitlines()
        names = {x.split(": ")[1].split("@")[0] for x in links}
        way = closed_world.run("ip", "route", "get", closed_world.REAL)
    run.say(f"interfaces {sorted(names)}, way to {closed_world.REAL}: {way.split(chr(10))[0]}")
    if not {n for n in names if not n.startswith("veth")} <= {"lo", "wan", "docker0"}:
        raise Failed(f"interfaces {names}")
    closed_world.want(f"via {closed_world.ROUTER} " in way, True, "the way out is ours")
    with closed_world.Inside(run.world.net):
        links = closed_world.run("ip", "-o", "link").splitlines()
        way = closed_world.run("ip", "route", "get", closed_world.REAL)
    names = {x.split(": ")[1].split("@")[0] for x in links}
    closed_world.want(names, {"lo", "lan"}, "interfaces of the internet")
    closed_world.want(f"via {closed_world.HOST} " in way, True, "its way out leads back")


def names():
    out = ["world-is-closed", "image-is-built", *measure.CASES]
    for version in servers.SERVERS:
        out += [f"{version}-{case}" for case in flow.CASES]
        out += [f"{version}-{case}" for case in measure.SERVER_CASES]
    return out


def run_server(run, version, wanted, neighbour):
    mine = [n for n in wanted if n.startswith(version)]
    if not mine:
        return
    server = servers.Server(run.engine, version, engine.DERIVED["egress-readonly"])
    try:
        server.start()
        t = flow.Flow(run.engine, server, run.sdks, neighbour, run.say)
        chain = [f"{version}-{case}" for case in flow.CASES]
        last = max((i for i, n in enumerate(chain) if n in mine), default=-1)
        for name, what in list(zip(chain, flow.CASES.values()))[:last + 1]:
            run.case(name, what, t)
        for case, what in measure.SERVER_CASES.items():
            if f"{version}-{case}" in mine:
                run.case(f"{version}-{case}", what, t, run.figures)
        for name, value in t.figures.items():
            run.figures.add(f"{version} {name}", value)
    except (Failed, OSError) as e:
        run.bad += 1
        run.result(f"not ok {version}-server {e}")
    finally:
        server.stop()


def run_all(run, wanted):
    run.prepare()
    if "world-is-closed" in wanted:
        run.case("world-is-closed", world_is_closed, run)
    if not run.case("image-is-built", run.images):
        raise Failed("nothing can be tried without the image")
    for case, what in measure.CASES.items():
        if case in wanted:
            run.case(case, what, run.engine, run.figures, run.say)
    neighbour = run.neighbour()
    for version in servers.SERVERS:
        run_server(run, version, wanted, neighbour)
    for line in run.figures.lines():
        run.result(f"# {line}")


def install():
    """What is missing of Debian's packages, as ./test does it."""
    missing = {p for t, p in TOOLS.items() if not shutil.which(t)}
    if not importlib.util.find_spec("ensurepip"):
        missing.add("python3-venv")
    if missing:
        call = '. tools/packages.sh; packages_need "$@"'
        subprocess.run(["bash", "-c", call, "bash", *sorted(missing)],
                       cwd=engine.SRC, check=True)


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names()))
        return 0
    wanted = sys.argv[1:] or names()
    if os.geteuid() != 0:
        for name in wanted:
            print(f"skip {name} needs root")
        return 0
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    install()
    lock = engine.locked_work()
    top = tempfile.mkdtemp(prefix="opensandbox-", dir=os.environ.get("EGRESS_TMP"))
    os.chmod(top, 0o755)
    run = Run(top)
    try:
        run_all(run, wanted)
    except Failed as e:
        run.bad += 1
        run.result(f"# ended: {e}")
    finally:
        run.stop()
        lock.close()
        print(f"# transcript: {run.transcript.name}", flush=True)
        if run.bad == 0 and not os.environ.get("EGRESS_TMP"):
            shutil.rmtree(top, ignore_errors=True)
    return 1 if run.bad else 0


if __name__ == "__main__":
    sys.exit(main())
