#!/usr/bin/env python3
"""egress-guard: what a ruleset becomes in the kernel, and what must work with it in place.

Bed: guardbed.py. The attacks are in guard_attacks.py.
"""
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from guardbed import (API, BOX, DENIED, DNS, EVIL, GOOD, META, NOBODY, PRIVATE, TCP, UDP,  # noqa: E402
                      Agent, Failed, Guard, Inside, entry, lease, listing, until, want)

POLICY = [entry("allow", GOOD[4]), entry("allow", GOOD[6]), entry("deny", META[4]),
          entry("deny", META[6]), entry("deny", DENIED[4]), entry("deny", DENIED[6]),
          entry("allow", PRIVATE[4], proto=TCP, ports=(8080, 8081)),
          entry("allow", PRIVATE[6], proto=TCP, ports=(8080, 8081)),
          entry("inspect", ports=80), entry("inspect", ports=443)]

CONNECT = """
s = socket.socket({family}, {kind})
s.settimeout(2)
s.connect(({addr!r}, {port}))
if {kind} == 2:
    s.send(b"hello")
else:
    s.sendall(b"hello")
got = b""
while len(got) < {n}:
    part = s.recv(100)
    if not part:
        break
    got += part
result = got.decode()
"""


def talk(agent, addr, port, kind=socket.SOCK_STREAM, n=5):
    family = socket.AF_INET6 if ":" in addr else socket.AF_INET
    return agent.do(CONNECT.format(family=int(family), kind=int(kind), addr=addr, port=port, n=n))


def refused(agent, addr, port, kind=socket.SOCK_STREAM):
    """Refused, and at once."""
    start = time.monotonic()
    try:
        got = talk(agent, addr, port, kind)
    except OSError as e:
        took = time.monotonic() - start
        if "ConnectionRefused" not in str(e) and "PermissionError" not in str(e):
            raise Failed(f"{addr} {port}: {e}, should be refused") from e
        if took > 1:
            raise Failed(f"{addr} {port}: refused after {took:.1f} s") from e
        return
    raise Failed(f"{addr} {port}: answered {got!r}")


def fresh(bed, entries=POLICY, **o):
    """The one guard of this script, with this ruleset."""
    if bed.guard is None:
        bed.flush()
        bed.guard = Guard(bed)
    want(bed.guard.apply(entries, **o), 0, "apply")
    bed.sidecar()
    return bed.guard


def case_every_part_is_in_place(bed):
    state = fresh(bed).state()
    missing = [f"{p}: {s}" for p, s in state.items()
               if isinstance(s, tuple) and s[0] != "in_place"]
    if missing:
        print(f"  this kernel ({os.uname().release}) lacks: {missing}")
    want([p for p, s in state.items() if isinstance(s, tuple) and s[0] == "unused"], [], "unused")
    want((state["held"], state["taken"], state["short"]), (2, 0, 0), "queues of lo and wan")
    want(missing, [], "missing parts")


def case_the_table_is_what_the_ruleset_says(bed):
    fresh(bed, POLICY + [entry("lease", "11.23.0.1", ports=0, seconds=70),
                         entry("lease", "11.23.0.2", proto=TCP, ports=8443, seconds=70),
                         entry("resolver", "11.22.0.53", ports=53)])
    text = listing(bed)
    for part in ("set allow_v4 {\n\t\ttype ipv4_addr\n\t\tflags interval\n"
                 f"\t\telements = {{ {GOOD[4]} }}", "elements = { 11.22.0.99, 169.254.169.254 }",
                 "elements = { 10.77.0.2 . tcp . 8080-8081 }", "elements = { 80, 443 }",
                 "elements = { 11.23.0.1 timeout 1m10s expires }",
                 "elements = { 11.23.0.2 . tcp . 8443 timeout 1m10s expires }",
                 "elements = { 11.22.0.53 . 53 }",
                 "type filter hook output priority filter; policy drop;",
                 "type filter hook forward priority filter; policy drop;",
                 "type nat hook output priority -100; policy accept;",
                 "type filter hook output priority -450; policy accept;",
                 "ip daddr @deny_v4 ip daddr . th dport != @resolver_v4 goto refused",
                 "tcp dport 53 redirect to :15353", "udp dport 53 redirect to :15353",
                 "tcp dport @inspected redirect to :18081"):
        if part not in text:
            raise Failed(f"not in the listing: {part!r}")
    chain = text[text.index("chain egress"):]
    order = ["oif \"lo\" accept", "@deny_v4", "jump own", "ct state invalid drop",
             "established,related accept", "ct direction reply", "dport 53 goto", "@inspected goto",
             "@dyn_allow_v4", "@allow_v4", "\t\tgoto refused"]
    places = [chain.index(o) for o in order]
    want(places, sorted(places), "order of the rules")


HAMMER = """
import threading
bad, tries, stop = [], 0, False
def flow():
    s = socket.socket(); s.settimeout(2); s.connect(({good!r}, 5000))
    return lambda: s.sendall(b"x" * 10) or s.recv(100)
def fresh():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"x", ({good!r}, 5001)); s.close()
go = flow() if {live} else fresh
def probe():
    global tries
    while not stop:
        try:
            go()
        except OSError as e:
            bad.append(str(e))
        tries += 1
t = threading.Thread(target=probe); t.start()
"""


def hammer(bed, live):
    agent = Agent(bed, NOBODY)
    agent.do(HAMMER.format(good=GOOD[4], live=live))
    return agent


def hammered(agent, what):
    agent.do("stop = True; t.join()")
    bad, tries = agent.do("result = [bad, tries]")
    if tries < 100:
        raise Failed(f"{what}: only {tries} tries")
    want(bad[:3], [], f"{what}, {tries} tries")
    return tries


def case_4096_rules_are_one_step(bed):
    few = POLICY + [entry("allow", "20.0.0.0/8")]
    many = POLICY + [entry("allow", f"20.{i >> 8}.{i & 255}.0/25") for i in range(4096)]
    guard = fresh(bed, few)
    # What both allow: live flows never notice, whatever else changes; new ones neither while the
    # ranges stay the same.
    agent, times = hammer(bed, live=True), []
    for i in range(20):
        start = time.monotonic()
        want(guard.apply(few if i % 2 else many), 0, "apply")
        times.append(time.monotonic() - start)
    live = hammered(agent, "a live flow over 20 changes of 4096 ranges")
    want(guard.apply(many), 0, "apply")
    agent = hammer(bed, live=False)
    for _ in range(100):
        want(guard.apply(many), 0, "apply")
    new = hammered(agent, "new flows over 100 rulesets with the same ranges")
    want(listing(bed).count("/25"), 4096, "elements")
    print(f"  4096 rules in {max(times) * 1000:.0f} ms, {live} + {new} tries meanwhile")
    # One that the kernel refuses (ranges that overlap): nothing of it is taken.
    before = listing(bed)
    if guard.apply([entry("allow", "20.0.0.0/8"), entry("allow", "20.1.0.0/16")]) >= 0:
        raise Failed("overlapping ranges were taken")
    want(listing(bed), before, "the table after a refused ruleset")


def case_own_sockets_pass_and_no_others(bed):
    fresh(bed)
    worker, nobody, root = bed.sidecar(), Agent(bed, NOBODY), Agent(bed, 0)
    for f in (4, 6):
        want(talk(worker, EVIL[f], 5000), "hello", "worker by TCP")
        want(talk(worker, EVIL[f], 443), "hello", "worker to 443, not redirected")
        want(talk(worker, EVIL[f], 5000, socket.SOCK_DGRAM), "re:hello", "worker by UDP")
        want(talk(worker, EVIL[f], 53, socket.SOCK_DGRAM), "re:hello", "worker to 53")
        refused(worker, META[f], 80)
        refused(worker, DENIED[f], 5000)
        for agent in (nobody, root):
            refused(agent, EVIL[f], 5000)
            refused(agent, EVIL[f], 5000, socket.SOCK_DGRAM)
            want(talk(agent, GOOD[f], 5000), "hello", "allowed by TCP")
            want(talk(agent, GOOD[f], 5000, socket.SOCK_DGRAM), "re:hello", "allowed by UDP")
            refused(agent, DENIED[f], 5000)
            refused(agent, PRIVATE[f], 5000)
            want(talk(agent, PRIVATE[f], 8080), "hello", "allowed port")
            refused(agent, GOOD[f], 9999)
    # The uid alone is no pass where there is a cgroup.
    refused(Agent(bed, guardbed.WORKER_UID), EVIL[4], 5000)


def case_dns_and_web_are_redirected(bed):
    fresh(bed)
    nobody = Agent(bed, NOBODY)
    for f in (4, 6):
        for addr in (EVIL[f], GOOD[f]):
            want(talk(nobody, addr, 53, socket.SOCK_DGRAM), "own:hello", "DNS by UDP")
            for port in (53, 80, 443):
                want(talk(nobody, addr, port, n=9), "own:hello", f"TCP {port}")
        refused(nobody, GOOD[f], 443, socket.SOCK_DGRAM)
        refused(nobody, GOOD[f], 853)
        refused(nobody, GOOD[f], 853, socket.SOCK_DGRAM)
        local = "127.0.0.1" if f == 4 else "::1"
        want(talk(nobody, local, 18081, n=9), "own:hello", "the proxy itself")
        want(talk(nobody, local, DNS, socket.SOCK_DGRAM), "own:hello", "the gate itself")
        want(talk(nobody, local, API, n=9), "own:hello", "the API from inside")
        refused(nobody, local, 9)


def case_inbound_lives_through_changes(bed):
    guard = fresh(bed)
    server = Agent(bed, NOBODY)
    server.do("""
import threading
l = socket.socket(socket.AF_INET); l.bind(("", 7000)); l.listen(8)
def talk(c):
    while data := c.recv(100):
        c.sendall(data)
def serve():
    while True:
        threading.Thread(target=talk, args=(l.accept()[0],), daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
""")
    with Inside(bed.net):
        live = socket.create_connection((BOX[4], 7000), 2)
        api = socket.create_connection((BOX[4], API), 2)
    want(api.recv(4), b"own:", "the API from outside")
    for entries in ([], POLICY):
        want(guard.apply(entries), 0, "apply")
        live.sendall(b"still")
        want(live.recv(100), b"still", "an inbound connection after a change")
        api.sendall(b"there")
        want(api.recv(100), b"there", "a connection to the API after a change")
    # The same by a guard that is started anew with what the supervisor holds.
    want(guard.stop(), 0, "exit code")
    if "chain egress" not in listing(bed):
        raise Failed("the rules went with the guard")
    bed.guard = Guard(bed, held=guard.copies)
    fresh(bed)
    want(bed.guard.state()["queues"], ("in_place", 0), "queues held by the copies")
    want(bed.guard.state()["held"], 2, "queues held by the copies")
    live.sendall(b"again")
    want(live.recv(100), b"again", "an inbound connection after a restart of the guard")
    # Narrowed: the port is not served any more.
    want(bed.guard.apply(POLICY + [entry("inbound", ports=7001)], inbound_all=0), 0, "apply")
    with Inside(bed.net):
        s = socket.socket()
        s.settimeout(0.5)
        try:
            s.connect((BOX[4], 7000))
        except OSError:
            pass
        else:
            raise Failed("a port that is not listed was reached")
    fresh(bed)


def case_leases_open_expire_and_are_renewed(bed):
    guard = fresh(bed)
    nobody = Agent(bed, NOBODY)
    for f in (4, 6):
        refused(nobody, EVIL[f], 5000)
        want(guard.allow(lease(EVIL[f], 2)), 0, "lease")
        want(talk(nobody, EVIL[f], 5000), "hello", "leased")
        refused(nobody, EVIL[f], 853)
    time.sleep(1.2)
    want(guard.allow(lease(EVIL[4], 2)), 0, "renewed")
    time.sleep(1.2)
    want(talk(nobody, EVIL[4], 5000), "hello", "after the first time, renewed")
    refused(nobody, EVIL[6], 5000)
    time.sleep(1.2)
    refused(nobody, EVIL[4], 5000)
    # A port, and a port of one protocol.
    want(guard.allow(lease(EVIL[4], 60, port=5000), lease(EVIL[6], 60, TCP, 5000)), 0, "ports")
    want(talk(nobody, EVIL[4], 5000), "hello", "leased port")
    want(talk(nobody, EVIL[4], 5000, socket.SOCK_DGRAM), "re:hello", "leased port, UDP")
    refused(nobody, EVIL[4], 8080)
    want(talk(nobody, EVIL[6], 5000), "hello", "leased TCP port")
    refused(nobody, EVIL[6], 5000, socket.SOCK_DGRAM)
    # Deny wins, and leases of the new ruleset are in its batch.
    want(guard.allow(lease(DENIED[4], 60)), 0, "lease of a denied address")
    refused(nobody, DENIED[4], 5000)
    fresh(bed, POLICY + [entry("lease", EVIL[4], ports=0, seconds=60)])
    want(talk(nobody, EVIL[4], 5000), "hello", "lease of a ruleset")
    fresh(bed)
    refused(nobody, EVIL[4], 5000)


def case_a_narrower_policy_cuts_live_flows(bed):
    wide = POLICY + [entry("allow", EVIL[4]), entry("allow", EVIL[6])]
    for f in (4, 6):
        guard = fresh(bed, wide)
        agent = Agent(bed, NOBODY)
        agent.do(f"""
family = {int(socket.AF_INET6 if f == 6 else socket.AF_INET)}
flows = {{}}
for name, addr in (("cut", {EVIL[f]!r}), ("kept", {GOOD[f]!r})):
    for kind in (1, 2):
        s = socket.socket(family, kind); s.settimeout(5); s.connect((addr, 5000))
        s.send(b"one"); s.recv(100); s.settimeout(1); flows[name, kind] = s
def go(name, kind):
    try:
        flows[name, kind].send(b"two")
        return len(flows[name, kind].recv(100)) > 0
    except OSError as e:
        return type(e).__name__
""")
        want(guard.apply(POLICY), 0, "narrower")
        bed.tap.clear()
        want(agent.do('result = [go("kept", 1), go("kept", 2)]'), [True, True], "kept flows")
        got = agent.do('result = [go("cut", 1), go("cut", 2)]')
        if True in got or "TimeoutError" in got or "timeout" in got:
            raise Failed(f"cut flows: {got}")
        frames = bed.tap.has(guardbed.socket.inet_pton(
            socket.AF_INET6 if f == 6 else socket.AF_INET, EVIL[f]) + b"")
        # Only what the far side still sends, which is not counted by the tap's direction.
        if f == 4:
            want(frames, 0, "frames to the refused address")


def case_read_only_leaves_nothing_direct_to_public(bed):
    fresh(bed, read_only=1)
    nobody = Agent(bed, NOBODY)
    for f in (4, 6):
        want(talk(nobody, GOOD[f], 5000, n=9), "own:hello", "any TCP port of a public address")
        want(talk(nobody, EVIL[f], 8080, n=9), "own:hello", "any TCP port of a public address")
        refused(nobody, GOOD[f], 5000, socket.SOCK_DGRAM)
        want(talk(nobody, PRIVATE[f], 8080), "hello", "a private address that a rule allows")
        refused(nobody, PRIVATE[f], 5000)
    fresh(bed)


def case_default_allow_and_doh(bed):
    rest = POLICY + [entry("doh", "11.22.0.0/24")]
    fresh(bed, rest, accept_rest=1, redirect_web=0, doh_block=1)
    nobody = Agent(bed, NOBODY)
    want(talk(nobody, EVIL[4], 5000), "hello", "default allow")
    want(talk(nobody, EVIL[6], 443), "hello", "443 without redirect")
    want(talk(nobody, EVIL[4], 80), "hello", "80 without redirect")
    refused(nobody, EVIL[4], 443)
    refused(nobody, EVIL[4], 443, socket.SOCK_DGRAM)
    refused(nobody, DENIED[4], 5000)
    refused(nobody, META[4], 80)
    refused(nobody, EVIL[4], 853)
    fresh(bed, POLICY, accept_rest=1, redirect_web=0, doh_block=1)
    refused(nobody, EVIL[6], 443)
    refused(nobody, EVIL[6], 443, socket.SOCK_DGRAM)
    fresh(bed)


EARLY = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
s.bind(({box!r}, {port}))
s.connect(({to!r}, 5000))
s.send(b"hello")
result = s.recv(64).decode()
"""


def case_an_answer_that_came_first_does_not_stop_ours(bed):
    """A datagram from where we ask next makes our question a reply for the kernel. Ports that are used
    again fast do that by chance, and a liar can send such ones."""
    fresh(bed)
    for port, agent, should in ((7301, bed.sidecar(), True), (7302, Agent(bed, NOBODY), False)):
        with Inside(bed.net), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((EVIL[4], 5000))
            s.sendto(b"early", (BOX[4], port))
        try:
            got = agent.do(EARLY.format(box=BOX[4], port=port, to=EVIL[4]))
        except OSError as e:
            got = str(e)
        want((got == "re:hello", got), (should, got), f"from port {port}")
    fresh(bed)


def case_exempt_resolvers_are_asked_directly(bed):
    fresh(bed, POLICY + [entry("exempt", EVIL[4]), entry("exempt", EVIL[6])])
    nobody = Agent(bed, NOBODY)
    for f in (4, 6):
        want(talk(nobody, EVIL[f], 53, socket.SOCK_DGRAM), "re:hello", "exempt resolver")
        want(talk(nobody, GOOD[f], 53, socket.SOCK_DGRAM), "own:hello", "another one")
        refused(nobody, EVIL[f], 5000)
    fresh(bed)


def case_mode_dns_redirects_and_lets_pass(bed):
    fresh(bed, [], enforce=0, redirect_web=0)
    nobody = Agent(bed, NOBODY)
    want(talk(nobody, EVIL[4], 53, socket.SOCK_DGRAM), "own:hello", "DNS")
    want(talk(nobody, EVIL[4], 5000), "hello", "everything else")
    want("chain egress" in listing(bed), False, "a filter")
    fresh(bed)


def case_a_deny_does_not_take_our_resolver(bed):
    fresh(bed, POLICY + [entry("resolver", META[4], ports=53)])
    worker = bed.sidecar()
    want(talk(worker, META[4], 53, socket.SOCK_DGRAM), "re:hello", "resolver at a denied address")
    refused(worker, META[4], 80)
    want(talk(Agent(bed, NOBODY), META[4], 53, socket.SOCK_DGRAM), "own:hello", "not the sandbox")
    fresh(bed)


def case_losses_are_seen_within_a_second(bed):
    guard = fresh(bed)
    for what, args in (
            ("redirect", ("flush", "chain", "inet", "opensandbox", "nato")),
            ("redirect", ("add", "rule", "inet", "opensandbox", "nato", "accept")),
            ("table", ("insert", "rule", "inet", "opensandbox", "egress", "accept")),
            ("table", ("flush", "chain", "inet", "opensandbox", "first")),
            ("table", ("delete", "table", "inet", "opensandbox")),
            ("raw_guard", ("delete", "table", "netdev", "rawguard"))):
        want(guard.state()[what][0], "in_place", f"{what} before")
        bed.nft(*args)
        start = time.monotonic()
        until(lambda w=what: guard.state()[w][0] == "lost", f"{' '.join(args)} noticed", 1.2)
        took = guard.states[-1][0] - start
        if took > 1:
            raise Failed(f"{' '.join(args)}: noticed after {took:.2f} s")
        fresh(bed)
        want(guard.state()[what][0], "in_place", f"{what} after the repair")
    # Somebody else's table, and leases, are no loss.
    bed.nft("add", "table", "inet", "other")
    want(guard.allow(lease(EVIL[4], 1)), 0, "lease")
    time.sleep(1.2)
    guard.pump()
    want([p for p, s in guard.state().items() if isinstance(s, tuple) and s[0] == "lost"], [],
         "lost by somebody else's table")
    bed.nft("delete", "table", "inet", "other")


def case_direct_flows_and_refusals_are_on_record(bed):
    guard = fresh(bed)
    nobody = Agent(bed, NOBODY)
    guard.pump(1.5)
    guard.flows.clear()
    talk(nobody, GOOD[4], 5000)
    for _ in range(3):
        refused(nobody, EVIL[6], 5000)
    until(lambda: guard.pump(0.1) and len(guard.flows) >= 2, "records", 3)
    rows = sorted((f["verdict"], f["to"], f["port"], f["proto"], f["uid"], f["count"])
                  for f in guard.flows)
    want(rows, [("passed", GOOD[4], 5000, TCP, NOBODY, 1),
                ("refused", EVIL[6], 5000, TCP, NOBODY, 3)], "records")


def case_a_new_device_is_guarded(bed):
    guard = fresh(bed)
    with Inside(bed.box):
        guardbed.run("ip", "link", "add", "late", "type", "veth", "peer", "name", "later")
        guardbed.run("ip", "link", "set", "late", "up")
        guardbed.run("ip", "link", "set", "later", "up")
    until(lambda: guard.state()["held"] == 4, "queues of new devices", 2)
    got = Agent(bed, 0).do("""
p = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); p.bind(("late", 0))
r = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); r.bind(("later", 3))
r.settimeout(0.5)
try:
    p.send(b"\\xff" * 6 + b"\\x02" * 6 + b"\\x88\\xb5" + b"late-payload" * 5)
except OSError:
    pass
result = "silence"
end = time.monotonic() + 0.5
while time.monotonic() < end:
    try:
        if b"late-payload" in r.recv(2000):
            result = "seen"
    except OSError:
        break
""")
    want(got, "silence", "a frame on a device that came later")
    with Inside(bed.box):
        guardbed.run("ip", "link", "del", "late")
    fresh(bed)
    want(guard.state()["held"], 2, "queues")


def case_an_idle_guard_gives_a_sign_of_life_each_second(bed):
    """And none while it says something else."""
    guard = fresh(bed)
    guard.pump()
    guard.beats.clear()
    start = time.monotonic()
    while time.monotonic() - start < 2.5:
        guard.pump(0.1)
    want(len(guard.beats) in (1, 2, 3), True, f"{len(guard.beats)} beats in 2.5 s")
    guard.beats.clear()
    for _ in range(5):
        want(guard.allow(lease(GOOD[4], 60)), 0, "lease")
        time.sleep(0.25)
    guard.pump()
    want(len(guard.beats), 0, "beats of a guard that answers")


def case_a_wrong_message_ends_the_guard_and_not_the_rules(bed):
    fresh(bed)
    bed.guard.stop()
    wrong = [b"", b"\1", b"\1\0\0\0" + b"\0" * 4, b"\5\0\0\0" * 3, b"\4\0\0\0\1\0\0\0\0\0\0\0",
             b"\2\0\0\0" + b"\0" * 37, b"\1\0\0\0" + b"\xff" * 1544, b"x" * 6000]
    for m in wrong[1:]:
        guard = Guard(bed)
        guard.sock.send(m)
        want(guard.process.wait(5), 1, f"exit code after {m[:12]!r}, {len(m)} bytes")
        if "no message" not in guard.output():
            raise Failed(guard.output())
    if "chain egress" not in listing(bed):
        raise Failed("the rules went with the guard")
    refused(Agent(bed, NOBODY), EVIL[4], 5000)
    bed.guard = None
    fresh(bed)


def case_rights_are_given_up(bed):
    guard = fresh(bed)
    status = open(f"/proc/{guard.process.pid}/status").read()
    field = {r.split(":")[0]: r.split(":")[1].split() for r in status.splitlines()}
    want(field["Uid"], ["10043"] * 4, "uid")
    want(field["Gid"], ["10043"] * 4, "gid")
    for s in ("CapPrm", "CapEff"):
        want(int(field[s][0], 16), 1 << 12, s)
    for s in ("CapInh", "CapBnd", "CapAmb"):
        want(int(field[s][0], 16), 0, s)
    want(field["NoNewPrivs"], ["1"], "no new privileges")
    want(field["Seccomp"], ["2"], "seccomp")


def case_without_the_right_it_says_so(bed):
    guard = Guard(bed, uid=NOBODY)
    want(guard.process.wait(5), 2, "exit code")
    if "CAP_NET_ADMIN" not in guard.output():
        raise Failed(guard.output())


def case_uid_alone_where_cgroups_do_not_tell(bed):
    fresh(bed, cgroup_id=0)
    want(bed.guard.state()["pass"][0], "unused", "pass")
    want(talk(Agent(bed, guardbed.WORKER_UID), EVIL[4], 5000), "hello", "the uid passes")
    refused(Agent(bed, NOBODY), EVIL[4], 5000)
    fresh(bed)


def case_nobody_else_serves_our_ports(bed):
    fresh(bed)
    bed.worker.process.send_signal(signal.SIGKILL)
    bed.worker.process.wait()
    thief = Agent(bed, NOBODY)
    thief.do(guardbed.LISTEN)
    nobody = Agent(bed, NOBODY)
    for port, kind in ((API, 1), (18081, 1), (DNS, 1)):
        refused(nobody, "127.0.0.1", port, kind)
    refused(nobody, EVIL[4], 443)
    try:
        got = talk(nobody, EVIL[4], 53, socket.SOCK_DGRAM)
        raise Failed(f"a stranger answered DNS: {got}")
    except OSError:
        pass
    thief.process.kill()
    thief.process.wait()
    bed.worker = None
    fresh(bed)


if __name__ == "__main__":
    guardbed.main(globals())
