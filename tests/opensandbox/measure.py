"""Figures of the image, beside those of the image that it replaces, and what they must not exceed.

Figures of that image were measured on another machine; they say the order of size. Times from exec
come from the kernel's own events of processes.
"""
import contextlib
import http.client
import json
import socket
import statistics
import struct
import threading
import time
import urllib.parse

import engine
import flow
import servers
from closed_world import Failed, Inside
from flow import POLICY

SIZE_MAX_MB, MEMORY_MAX_MB, CREATE_MAX_S, EXEC_MAX_S = 20, 12, 1.0, 0.1
# What the sidecar may add to the floor of the same run, where the machine is too busy for a create
# in CREATE_MAX_S whatever the image.
OVER_FLOOR_MAX_S = 0.25
ROUNDS = 7
CN_IDX_PROC, PROC_CN_MCAST_LISTEN, PROC_EVENT_EXEC = 1, 1, 2
UPSTREAM = {"start": 1.30, "start, proxy": 2.82, "memory": 4.8, "memory, proxy": 61, "create": 1.8,
            "create, proxy": 3.1}


class Figures:
    def __init__(self):
        self.rows = []

    def add(self, what, value, upstream=None, most=None):
        self.rows.append((what, value, upstream, most))

    def lines(self):
        for what, value, upstream, most in self.rows:
            more = [f"replaced image {upstream}"] if upstream else []
            more += [f"at most {most}"] if most else []
            yield f"{what}: {value}" + (f" ({', '.join(more)})" if more else "")


class Execs(threading.Thread):
    """When each process of the machine last executed a program, by CLOCK_MONOTONIC."""

    def __init__(self):
        super().__init__(daemon=True)
        self.at, self.done = {}, False
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 11)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind((0, CN_IDX_PROC))
        op = struct.pack("=I", PROC_CN_MCAST_LISTEN)
        body = struct.pack("=IIIIHH", CN_IDX_PROC, 1, 0, 0, len(op), 0) + op
        self.sock.send(struct.pack("=IHHII", 16 + len(body), 3, 0, 0, 0) + body)
        self.sock.settimeout(0.2)
        self.start()

    def run(self):
        while not self.done:
            with contextlib.suppress(OSError):
                event = self.sock.recv(4096)
                what, _, when, pid = struct.unpack_from("=IIQI", event, 36)
                if what == PROC_EVENT_EXEC:
                    self.at[pid] = when / 1e9
        self.sock.close()

    def stop(self):
        self.done = True
        self.join()


class Docker(http.client.HTTPConnection):
    """The engine's API without the command line's own time."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def post(self, path):
        self.request("POST", path)
        r = self.getresponse()
        data = r.read()
        if r.status >= 300:
            raise Failed(f"{path}: {r.status} {data!r}")


def sidecar_create(eng, name, image, proxy, port):
    """A container as the server makes it."""
    eng.docker("rm", "-fv", name, check=False)
    env = {"OPENSANDBOX_EGRESS_RULES": json.dumps(POLICY), "OPENSANDBOX_EGRESS_MODE": "dns+nft",
           "OPENSANDBOX_EGRESS_TOKEN": "t" * 32, "OPENSANDBOX_EGRESS_SANDBOX_ID": name}
    if proxy:
        env["OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"] = "true"
    sysctls = [f"--sysctl=net.ipv6.conf.{d}.disable_ipv6=1" for d in ("all", "default", "lo")]
    eng.docker("create", "--name", name, "--cap-add", "NET_ADMIN", *sysctls, "-p",
               f"127.0.0.1:{port}:18080", "-v", f"{name}:/opt/opensandbox",
               *(x for k, v in env.items() for x in ("-e", f"{k}={v}")), image)


def healthy(world, port):
    """Waits for 200 on /healthz: the moment."""
    with Inside(world.host):
        for _ in range(10000):
            with contextlib.suppress(OSError, http.client.HTTPException):
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
                c.request("GET", "/healthz")
                ok = c.getresponse().status == 200
                now = time.monotonic()
                c.close()
                if ok:
                    return now
            time.sleep(0.002)
    raise Failed("the sidecar does not become healthy")


def start_once(eng, name, image, proxy, port):
    """(seconds from `docker start`, from exec) to healthy."""
    sidecar_create(eng, name, image, proxy, port)
    api, found = Docker(eng.socket), {}
    poll = threading.Thread(target=lambda: found.setdefault("at", healthy(eng.world, port)))
    execs = Execs()
    begin = time.monotonic()
    poll.start()
    api.post(f"/containers/{urllib.parse.quote(name)}/start")
    poll.join()
    api.close()
    execs.stop()
    pid = eng.pid(name)
    if "at" not in found or pid not in execs.at:
        raise Failed("not healthy" if pid in execs.at else "the kernel did not tell of the exec")
    # runc executes itself first, in the same process: the last one counts.
    return found["at"] - begin, found["at"] - execs.at[pid]


def start_to_healthy(eng, figures, say):
    """`docker start` to 200 on /healthz, and from exec, without and with credential proxy."""
    slow = []
    for stage in engine.DERIVED:
        for proxy in (False, True):
            rows = []
            for i in range(ROUNDS):
                rows.append(start_once(eng, f"start-{i}", engine.DERIVED[stage], proxy, 40900 + i))
                eng.docker("rm", "-fv", f"start-{i}")
            say(f"{stage}, proxy {proxy}: {[(round(a, 3), round(b, 3)) for a, b in rows]}")
            whole, own = (statistics.median(x) for x in zip(*rows))
            label = f"start to healthy, {stage}{', credential proxy' if proxy else ''}"
            figures.add(f"{label}: docker start", f"{whole:.3f} s",
                        f"{UPSTREAM['start, proxy' if proxy else 'start']} s")
            figures.add(f"{label}: from exec", f"{own:.3f} s", most=f"{EXEC_MAX_S} s")
            if own > EXEC_MAX_S:
                slow.append(f"{label}: {own:.3f} s from exec")
    if slow:
        raise Failed("; ".join(slow))


def processes_of(eng, name):
    return [int(p) for p in eng.docker("top", name, "-eo", "pid").split()[1:]]


def memory_kib(pid):
    """(PSS, RSS) of a process."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        rows = dict(line.split(":") for line in f if line.count(":") == 1)
    return tuple(int(rows[k].split()[0]) for k in ("Pss", "Rss"))


def idle_memory(eng, figures, say):
    """All processes of the container, after ten seconds without traffic."""
    heavy = []
    for proxy in (False, True):
        sidecar_create(eng, "idle", engine.DERIVED["egress-readonly"], proxy, 40950)
        eng.docker("start", "idle")
        healthy(eng.world, 40950)
        time.sleep(10)
        rows = [memory_kib(p) for p in processes_of(eng, "idle")]
        say(f"proxy {proxy}: (PSS, RSS) in KiB {rows}")
        pss = sum(r[0] for r in rows) / 1024
        label = f"idle memory{', credential proxy' if proxy else ''}"
        upstream = UPSTREAM["memory, proxy" if proxy else "memory"]
        figures.add(label, f"{pss:.1f} MiB", f"{upstream} MB", f"{MEMORY_MAX_MB} MiB")
        if pss > MEMORY_MAX_MB:
            heavy.append(f"{label}: {pss:.1f} MiB")
        eng.docker("rm", "-fv", "idle")
    if heavy:
        raise Failed("; ".join(heavy))


def image_size(eng, figures, say):
    """As Docker counts it."""
    for stage, name in engine.EGRESS.items():
        size = eng.size(name) / 1e6
        figures.add(f"image {stage}", f"{size:.1f} MB", most=f"{SIZE_MAX_MB} MB")
        say(f"{stage}: {size:.1f} MB")
        if size > SIZE_MAX_MB:
            raise Failed(f"{stage} has {size:.1f} MB")


def create_once(t, proxy):
    """(create, delete) in seconds, from the call of the Python SDK to its return."""
    sandbox = t.create(proxy=proxy)
    made = t.sdks["python"].seconds
    t.sdk("python", "kill", sandbox)
    return made, t.sdks["python"].seconds


def create_and_delete(t, figures):
    """Through the server, in turn with a sidecar that does nothing and is ready at once."""
    version, rows = t.server.version, {}
    with servers.Server(t.engine, version, engine.FLOOR, 1) as beside:
        floor = flow.Flow(t.engine, beside, t.sdks, t.neighbour, t.say)
        kinds = {"floor": (floor, False), "create": (t, False), "create, proxy": (t, True)}
        for _ in range(ROUNDS):
            for kind, (who, proxy) in kinds.items():
                rows.setdefault(kind, []).append(create_once(who, proxy))
    for kind, times in rows.items():
        t.say(f"{kind}: {[(round(a, 2), round(b, 2)) for a, b in times]}")
    least, most = ({k: tuple(f(x) for x in zip(*v)) for k, v in rows.items()}
                   for f in (min, statistics.median))
    figures.add(f"{version} create and delete with a sidecar that does nothing",
                "%.2f and %.2f s" % most["floor"], "0.75 and 0.3 s")
    slow = []
    for kind in ("create", "create, proxy"):
        made, gone = most[kind]
        label = f"{version} %s{kind.removeprefix('create')}"
        figures.add(label % "create", f"{made:.2f} s, best {least[kind][0]:.2f} s",
                    f"{UPSTREAM[kind]} s", f"{CREATE_MAX_S} s")
        figures.add(label % "delete", f"{gone:.2f} s", most=f"{CREATE_MAX_S} s")
        if made > max(CREATE_MAX_S, most["floor"][0] + OVER_FLOOR_MAX_S):
            slow.append(f"{label % 'create'}: {made:.2f} s, floor {most['floor'][0]:.2f} s")
        if gone > max(CREATE_MAX_S, most["floor"][1] + OVER_FLOOR_MAX_S):
            slow.append(f"{label % 'delete'}: {gone:.2f} s")
    if slow:
        raise Failed("; ".join(slow))


CASES = {f.__name__.replace("_", "-"): f for f in (image_size, start_to_healthy, idle_memory)}
SERVER_CASES = {f.__name__.replace("_", "-"): f for f in (create_and_delete,)}
