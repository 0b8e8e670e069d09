#!/usr/bin/env python3
"""What the replaced image does about names, addresses and changes, done by the whole sidecar.

Names like D15 are lines of docs/compatibility.md; C01 and the like are failures of other products.
Real tools ask in the sandbox. What must not get out is first seen to get out where it may: the
resolvers answer for refused names when asked directly. Redirects, clients and the rest of the
settings: gate_web.py. Bed: gatebed.py.
"""
import os
import resource
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from gatebed import BOX, RESOLVERS, RULES, Bed, addresses, inbound, rules, status  # noqa: E402
from guardbed import DENIED, EVIL, GOOD, PRIVATE, Inside, run, until, want  # noqa: E402
from sidecarbed import TWO, WILD, WRITE  # noqa: E402

DESCRIPTORS = 600
# Both questions of a libc that asks by one socket, and takes the answers in any order.
MUSL = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
name = b"".join(bytes([len(p)]) + p.encode() for p in %r.split(".")) + b"\\0"
for n, kind in ((1, 1), (2, 28)):
    s.sendto(struct.pack("!HHHHHH", n, 0x100, 1, 0, 0, 0) + name + struct.pack("!HH", kind, 1),
             ("8.8.8.8", 53))
start, seen = time.monotonic(), {}
while len(seen) < %d:
    data, who = s.recvfrom(4096)
    seen[str(data[1])] = [data[3] & 15, data[7], who[0], time.monotonic() - start]
result = seen
"""
# A flow that numbers what it sends; `lost` is set when an echo is not the next number.
FLOWS = """
flows = {}
def flow(name, addr, port):
    f = flows[name] = {"n": 0, "end": None, "lost": False}
    s = socket.create_connection((addr, port), 3)
    s.settimeout(2)
    def go():
        have = b""
        try:
            while not f.get("stop"):
                s.sendall(b"%08d" % f["n"])
                while len(have) < 8:
                    more = s.recv(4096)
                    if not more:
                        raise ConnectionResetError("end")
                    have += more
                f["lost"] |= have[:8] != b"%08d" % f["n"]
                have, f["n"] = have[8:], f["n"] + 1
                time.sleep(0.005)
            s.close()
        except OSError as e:
            f["end"] = [time.monotonic(), type(e).__name__]
    threading.Thread(target=go, daemon=True).start()
"""


def direct(bed, name, kind="A"):
    """A question to the resolver itself, from behind the sandbox."""
    with Inside(bed.net):
        return run("dig", "+tries=1", "+time=2", f"@{RESOLVERS[0][0]}", "-p", str(RESOLVERS[0][1]), name,
                   kind)


def log_of(bed, *texts):
    return [x for x in bed.output().splitlines() if all(t in x for t in texts)]


# ---- names

def case_D01_a_change_counts_for_names_at_once(bed):
    bed.with_settings()
    want(status(bed.dig("evil.test")), "NXDOMAIN", "before")
    bed.patch(("allow", "evil.test"))
    want(addresses(bed.dig("evil.test")), [EVIL[4]], "after PATCH")
    want(bed.change("POST", None)["mode"], "deny_all", "reset")
    want(status(bed.dig("read.test")), "NXDOMAIN", "after the reset")
    bed.change("PUT", rules(RULES))
    want(addresses(bed.dig("read.test")), [GOOD[4]], "after PUT")


def case_D03_order_and_ttl_of_an_answer(bed):
    bed.with_settings()
    text = bed.dig("order.wild.test")
    want(addresses(text), [WILD[4], TWO[4], GOOD[4]], "order")
    want("order.wild.test.\t7\tIN" in text, True, f"TTL in {text}")


def case_D07_denied_names_leave_no_question(bed):
    """C01: fifty random names, six types, UDP and TCP, whoever is asked."""
    bed.with_settings()
    want(addresses(direct(bed, "x.evil.test")), [EVIL[4]], "the resolver itself")
    before, lines = len(bed.asked()), len(bed.lines())
    names = [os.urandom(9).hex() + ".evil.test" for _ in range(48)]
    for i in range(0, 48, 8):
        kind = ("A", "AAAA", "TXT", "MX", "NULL", "SRV")[i // 8]
        args = [x for n in names[i:i + 8] for x in (n, kind)]
        more = [["+tcp"], ["@8.8.8.8"], ["@2a0e:77::54"], []][i // 8 % 4]
        start = time.monotonic()
        text = bed.dig(*more, *args)
        want(text.count("status: NXDOMAIN"), 8, f"{kind} {more}: {text[-300:]}")
        want(text.count("SOA"), 8, "each with an SOA (D18)")
        want(time.monotonic() - start < 1, True, "at once")
    want(bed.asked()[before:], [], "what reached a resolver")
    until(lambda: sum(x.get("count") or 1 for x in bed.lines()[lines:] if x["kind"] == "dns" and
                      x["verdict"] == "blocked") >= 48, "all on record")


def case_D18_large_answers_fit_each_client(bed):
    bed.with_settings()
    for limit in (0, 512, 1000, 1232, 4096):
        edns = [f"+bufsize={limit}"] if limit else ["+noedns"]
        text = bed.dig("big.test", "+ignore", *edns)
        size = int(text.rsplit("rcvd: ", 1)[1].split()[0])
        want(size <= (limit or 512), True, f"{size} bytes of {limit}")
        want("flags: qr tc" in text, limit < 1000, f"TC at {limit}")
    want(len(addresses(bed.dig("big.test", "+noedns"))), 60, "by TCP after TC")
    text = bed.dig("text.test", "TXT", "+tcp")
    want(int(text.rsplit("rcvd: ", 1)[1].split()[0]) > 4096, True, "more than 4096 bytes by TCP")
    want(("tcp", "TXT", "text.test") in {(p, t, n.lower()) for p, t, n in bed.asked()}, True,
         "asked by TCP upstream too")


def case_D18_edns_is_answered_as_it_was_asked(bed):
    bed.with_settings()
    want("OPT PSEUDOSECTION" in bed.dig("read.test", "+noedns"), False, "no OPT without one")
    want("udp: 1232" in bed.dig("read.test", "+bufsize=4096"), True, "ours")
    want(status(bed.dig("read.test", "+edns=1", "+noednsnegotiation")), "BADVERS", "EDNS 1")
    long = bed.dig("read.test", "+ednsopt=65001:" + "00" * 560)
    want(addresses(long), [GOOD[4]], "a question of more than 512 bytes")


def case_D18_kdig_pipelines_over_one_connection(bed):
    bed.with_settings()
    code, text = bed.tool("kdig", "@8.8.8.8", "+tcp", "+keepopen", "read.test", "A", "two.test", "AAAA",
                          "evil.test", "A")
    want(code, 0, text)
    want((GOOD[4] in text, TWO[6] in text, "NXDOMAIN" in text), (True, True, True), text)


def case_D18_the_gate_may_be_asked_directly(bed):
    """At its own address, over both families, UDP and TCP; the policy is the same."""
    bed.with_settings()
    for at in ("@127.0.0.1", "@::1"):
        for more in ([], ["+tcp"]):
            want(addresses(bed.dig(at, "-p", "15353", *more, "read.test")), [GOOD[4]], f"{at} {more}")
            want(status(bed.dig(at, "-p", "15353", *more, "evil.test")), "NXDOMAIN", f"{at} {more}")


def case_D19_names_that_only_look_allowed(bed):
    """C06, C16: letters, depth, sisters, dots inside labels."""
    bed.with_settings()
    for name, should in (("ReAd.TeSt", True), ("A.WILD.test", True), ("a.b.c.wild.test", True),
                         ("wild.test", False), ("notwild.test", False), ("bAd.wIlD.test", False),
                         ("wild.test.evil.test", False), ("www.read.test", False),
                         (r"a\.wild.test", False), (r"x\.read.test", False)):
        text = bed.dig(name)
        want(status(text), "NOERROR" if should else "NXDOMAIN", name)
        want(f";{name}." in text, True, f"question of {name}")
    want(bed.names_asked() & {"bad.wild.test", "wild.test", "www.read.test"}, set(), "asked")


def case_D19_aliases_and_special_addresses(bed):
    """C10: an alias that a rule denies ends it; addresses inside are taken out and get no grant."""
    bed.with_settings()
    want(addresses(direct(bed, "alias-bad.wild.test")), [EVIL[4]], "itself")
    want(EVIL[4] in bed.dig("alias-bad.wild.test"), False, "alias for a denied name")
    want(addresses(bed.dig("alias.wild.test")), [WILD[4]], "alias for a name without a rule")
    want(len(addresses(direct(bed, "rebind.wild.test"))), 4, "the resolver itself")
    text = bed.dig("rebind.wild.test")
    want((status(text), addresses(text)), ("NOERROR", []), "addresses inside")
    want(bed.lease_s(PRIVATE[4]), None, "no grant")


def case_D19_bytes_that_are_no_question(bed):
    """C13, through the redirect; the next good question is answered."""
    bed.with_settings()
    user = bed.user("nobody")
    for text in ("123401000001000000000000c00c00010001", "1234010000010000000000003f61",
                 "12340100ffff000000000000", "00" * 12, "00", "12340100000000000000000000",
                 "123401000002000000000000" + "0161000001000101610000010001"):
        code = user.do(f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.15)
s.sendto(bytes.fromhex({text!r}), ("8.8.8.8", 53))
try:
    result = s.recv(512)[3] & 15
except TimeoutError:
    pass
""")
        want(code in (None, 1, 4), True, f"{text}: {code}")
    want(status(bed.dig("read.test", "+opcode=UPDATE")), "NOTIMP", "UPDATE")
    want(status(bed.dig("read.test")), "NOERROR", "next")


def case_D10_libc_asks_both_families(bed):
    """C08: getent, and both questions on one socket as musl sends them."""
    bed.with_settings()
    code, text = bed.tool("getent", "ahosts", "read.test")
    want((code, GOOD[4] in text, GOOD[6] in text), (0, True, True), text)
    code, text = bed.tool("getent", "ahosts", "v4only.wild.test")
    want((code, WILD[4] in text), (0, True), text)
    want(bed.tool("getent", "ahosts", "evil.test")[0], 2, "a denied name")
    user = bed.user("nobody")
    both = user.do(MUSL % ("read.test", 2))
    want([both[n][:3] for n in "12"], [[0, 1, "8.8.8.8"]] * 2, "both, from whom was asked")
    none = user.do(MUSL % ("v4only.wild.test", 2))
    want([none[n][:2] for n in "12"], [[0, 1], [0, 0]], "no AAAA is no failure")
    lost = user.do(MUSL % ("slow.wild.test", 1))
    want(lost["1"][:2] + [lost["1"][3] < 0.1], [0, 1, True], "A beside a lost AAAA")


def case_D06_SERVFAIL_goes_to_the_next_resolver(bed):
    """C15, D05, D13, D14: silence costs one timeout, then the probe takes the resolver out."""
    bed.with_settings(OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC="1")
    text = bed.dig("fail.wild.test")
    want((status(text), "EDE: 22" in text or "EDE: 23" in text), ("SERVFAIL", True), text)
    want(sum(1 for _, _, n in bed.asked() if n.lower() == "fail.wild.test") >= 2, True, "both asked")
    first = bed.resolvers[0]
    first.send_signal(signal.SIGSTOP)
    try:
        start = time.monotonic()
        want(addresses(bed.dig("silent1.wild.test")), [WILD[4]], "by the second")
        want(time.monotonic() - start < 4, True, "one timeout at most")
        until(lambda: log_of(bed, "[dns] upstream probe", str(RESOLVERS[0][1]), "failed"), "probe", 8)
        start = time.monotonic()
        want(addresses(bed.dig("silent2.wild.test")), [WILD[4]], "by the second")
        want(time.monotonic() - start < 1, True, "at once after the probe")
    finally:
        first.send_signal(signal.SIGCONT)
    until(lambda: log_of(bed, "answers again"), "back", 8)


# ---- addresses

def case_N27_an_allowed_name_opens_its_addresses_and_no_others(bed):
    """C24: on every port, over both families; nothing before the name was asked for."""
    bed.with_settings()
    for f in (4, 6):
        want(bed.opens(WILD[f], 5000), "ConnectionRefusedError", "before it was asked for")
    bed.dig("two.test", "A", "two.test", "AAAA", "a.wild.test", "A", "a.wild.test", "AAAA")
    for f in (4, 6):
        want(bed.opens(WILD[f], 5000), "echo", "after it was asked for")
        for port in (22, 5000):
            want(bed.opens(TWO[f], port), "echo", f"{TWO[f]}:{port}")
            want(bed.opens(EVIL[f], port), "ConnectionRefusedError", f"{EVIL[f]}:{port}")
        host = f"[{TWO[f]}]" if f == 6 else TWO[f]
        want(bed.curl(f"http://{host}:8080/x")[-3:], "200", "a web server")
    want(bed.curl("http://two.test/x")[-3:], "200", "by name")
    want(bed.opens(TWO[4], 853), "ConnectionRefusedError", "DNS over TLS is never allowed")


def case_N07_leases_are_ttl_and_a_minute(bed):
    bed.with_settings()
    bed.dig("two.test", "A", "read.test", "AAAA", "api.model.test", "A")
    for addr, ttl, should in ((TWO[4], 1, 61), (GOOD[6], 30, 90), (WRITE[4], 9999, 360)):
        got = bed.lease_s(addr)
        want(got is not None and abs(got - should) <= 1, True, f"TTL {ttl}: {got} s")


def case_N25_deny_wins_by_address(bed):
    """A denied address is refused though its name, its block and the default allow it."""
    bed.with_settings()
    bed.change("PUT", rules([("allow", "two.test", None), ("allow", f"{TWO[4]}/24", None),
                             ("deny", TWO[4], None)]))
    want(addresses(bed.dig("two.test")), [], "an answer of denied addresses is emptied")
    want(bed.opens(TWO[4], 5000), "ConnectionRefusedError", "denied")
    want(bed.opens(GOOD[4], 5000), "echo", "beside it, in the allowed block")
    bed.change("PUT", '{"defaultAction": "allow", "egress": [{"action": "deny", "target": "%s"},'
               ' {"action": "deny", "target": "*.wild.test"}]}' % EVIL[4])
    want(bed.opens(GOOD[4], 5000), "echo", "default allow")
    want(bed.opens(EVIL[4], 5000), "ConnectionRefusedError", "denied")
    want(bed.opens(GOOD[4], 853), "ConnectionRefusedError", "853 under default allow")
    want(status(bed.dig("a.wild.test")), "NXDOMAIN", "denied names")


def case_N23_address_rules_with_ports(bed):
    bed.with_settings()
    bed.change("PUT", rules([("allow", f"{GOOD[4]}/32", [5000, 8080]), ("allow", GOOD[6], [22]),
                             ("allow", "ports.test", [5000])]))
    want([bed.opens(GOOD[4], p) for p in (5000, 22)], ["echo", "ConnectionRefusedError"], "v4")
    want([bed.opens(GOOD[6], p) for p in (22, 5000)], ["echo", "ConnectionRefusedError"], "v6")
    bed.dig("ports.test")
    want([bed.opens(TWO[4], p) for p in (5000, 22)], ["echo", "ConnectionRefusedError"], "by name")


def case_N29_live_flows_over_a_change(bed):
    """The refused one is cut within a second, the others lose no byte, nor does one from outside."""
    bed.with_settings()
    bed.change("PUT", rules([*RULES, ("allow", f"{BOX[4]}/24", [7100])]))
    user = bed.user("nobody")
    bed.dig("read.test", "A", "two.test", "A")
    user.do(FLOWS + f"flow('kept', {GOOD[4]!r}, 5000)\nflow('cut', {TWO[4]!r}, 5000)\n")
    user.do("""
l = socket.create_server(("0.0.0.0", 7300))
def serve():
    c, _ = l.accept()
    while data := c.recv(4096):
        c.sendall(data)
threading.Thread(target=serve, daemon=True).start()
""")
    outside = until(lambda: inbound(bed, 7300), "from outside")
    until(lambda: user.do("result = min(f['n'] for f in flows.values())") > 5, "flows run")
    changed = time.monotonic()
    bed.patch(("deny", "two.test"))
    end = until(lambda: user.do("result = flows['cut']['end']"), "cut", 2)
    want(end[0] - changed < 1, True, f"cut after {end[0] - changed:.2f} s")
    want(bed.opens(TWO[4], 5000), "ConnectionRefusedError", "and not opened again")
    for i in range(20):
        bed.patch(("allow", f"unrelated{i}.test"))
        outside.sendall(b"%04d" % i)
        want(outside.recv(64), b"%04d" % i, "from outside")
    seen = user.do("result = [flows['kept'][k] for k in ('n', 'end', 'lost')]")
    want(seen[1:], [None, False], "the allowed flow")
    want(bed.opens(GOOD[4], 5000), "echo", "its lease is still there")
    outside.close()
    user.do("flows['kept']['stop'] = 1")


def case_the_api_has_descriptors_left(bed):
    """A sandbox opens as many connections as it can, to the proxy and to the gate."""
    bed.halt()
    bed.running, enter = None, bed.enter_cgroup

    def enter_limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        enter()
    bed.enter_cgroup = enter_limited
    try:
        bed.with_settings(OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="1")
    finally:
        bed.enter_cgroup = enter
    worker, open_files = bed.worker_pid(), []

    def connect(n, port, data, host="127.0.0.1"):
        for _ in range(n):
            with Inside(bed.box):
                s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            open_files.append(s)
            s.settimeout(1)
            s.connect((host, port))
            s.sendall(data)
    try:
        connect(DESCRIPTORS // 3, 18081, b"GET http://read.test/slow HTTP/1.1\r\nHost: read.test\r\n\r\n")
        time.sleep(0.5)
        for host in ("127.0.0.1", "::1"):
            connect(150, 15353, b"\0", host)
        time.sleep(0.3)
        n = len(os.listdir(f"/proc/{worker}/fd"))
        for _ in range(5):
            start = time.monotonic()
            got = bed.health()[0], time.monotonic() - start < 1
            want(got, (200, True), f"/healthz while {n} of {DESCRIPTORS} descriptors are open")
        want(addresses(bed.dig("two.test")), [TWO[4]], "DNS meanwhile")
        want(n > DESCRIPTORS // 2, True, f"{n} descriptors open")
    finally:
        for s in open_files:
            s.close()
        bed.running = None  # with that limit


def case_leases_outlive_the_worker(bed):
    """A flow that the kernel lets out by itself does not notice a worker's end, and addresses that
    names led to stay open as long as they were granted, unless policy has them no more."""
    bed.with_settings()
    bed.dig("two.test", "A", "order.wild.test", "A")
    user = bed.user("nobody")
    user.do(FLOWS + f"flow('kept', {WILD[4]!r}, 5000)\n")
    time.sleep(0.4)  # the worker writes down what it granted
    os.kill(bed.worker_pid(), signal.SIGKILL)
    until(lambda: bed.health()[0] == 200, "green", 5)
    left = bed.lease_s(TWO[4])
    want((bed.opens(TWO[4], 5000), left is not None and 50 <= left <= 61), ("echo", True), f"lease {left}")
    time.sleep(0.3)
    want(user.do("result = [flows['kept'][k] for k in ('end', 'lost')]"), [None, False], "the open flow")
    bed.patch(("deny", "two.test"), ("deny", "order.wild.test"))
    want(bed.opens(TWO[4], 5000), "ConnectionRefusedError", "after the name is denied")
    until(lambda: user.do("result = flows['kept']['end'] is not None"), "the flow is cut", 3)
    bed.process.terminate()  # its log has the end of the worker, which the next case would refuse
    want(bed.process.wait(20), 0, "exit code")
    bed.process = bed.running = None


def case_N26_a_child_of_a_wildcard(bed):
    bed.with_settings()
    bed.change("PUT", rules([("deny", "*.wild.test", None), ("allow", "read.test", None)]))
    want(status(bed.dig("a.wild.test")), "NXDOMAIN", "wildcard deny")
    bed.patch(("allow", "a.wild.test"))
    want(addresses(bed.dig("a.wild.test")), [WILD[4]], "allowed child")
    want(status(bed.dig("b.wild.test")), "NXDOMAIN", "its sister")
    bed.change("DELETE", ["a.wild.test"])
    want(status(bed.dig("a.wild.test")), "NXDOMAIN", "after DELETE")
    bed.change("PUT", rules(RULES))
    bed.patch(("deny", "c.wild.test"))
    want([status(bed.dig(n)) for n in ("c.wild.test", "d.wild.test")], ["NXDOMAIN", "NOERROR"], "deny")


def case_H01_the_kernel_follows_the_api(bed):
    """H01, M02, C29: a hundred rounds of the same policies leave the same table and no failure."""
    bed.with_settings()
    want(bed.change("GET", None)["enforcementMode"], "dns+nft", "mode (H04)")
    one, two = rules(RULES), rules([*RULES, ("allow", DENIED[4], None)])
    sizes = []
    for i in range(100):
        bed.change("POST", two if i % 2 else one)
        if i % 20 == 0:
            bed.dig("read.test")
            want(bed.opens(GOOD[4], 5000), "echo", f"round {i}")
        if i in (0, 98):
            sizes.append(len(guardbed.listing(bed).splitlines()))
    want(sizes[0], sizes[1], "lines of the table")
    bed.change("POST", one)


def case_M03_a_rule_more_than_the_cap(bed):
    bed.with_settings(OPENSANDBOX_EGRESS_MAX_RULES="3")
    bed.change("PUT", rules([("allow", f"n{i}.test", None) for i in range(3)]))
    got = bed.ask("PUT", "/policy", rules([("allow", f"n{i}.test", None) for i in range(4)]))
    want((got[0], "too_many_rules" in got[2]), (413, True), got[2])


def case_C26_one_address_for_an_allowed_and_a_denied_name(bed):
    """With redirection the address alone opens nothing: the name inside is judged."""
    bed.with_settings(OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true",
                      OPENSANDBOX_EGRESS_RULES=rules(RULES))
    bed.dig("read.test")
    mark = bed.seen_mark()
    want(bed.curl("--resolve", f"evil.test:443:{GOOD[4]}", "https://evil.test/x")[-3:], "403", "SNI")
    want(bed.curl("-H", "Host: evil.test", f"http://{GOOD[4]}/x")[-3:], "403", "Host")
    want(bed.curl("-k", f"https://{GOOD[4]}/x")[-3:], "403", "no name")
    want(bed.seen(mark), [], "what arrived")
    want(bed.curl("https://read.test/x")[-3:], "200", "the allowed name")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
