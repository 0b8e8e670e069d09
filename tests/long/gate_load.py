#!/usr/bin/env python3
"""The DNS gate of the whole sidecar over longer times: rates, losses, memory, leases, and what a grant
costs. # serial

Needs a build without sanitizers (EGRESS_BIN_RELEASE, build/release or build/run), dnsperf and unbound.
Each case prints its figures. A lease lasts 61 s at least (a TTL of 1 s and a minute), so what waits for
the end of leases takes that long. Bed: netns/gatebed.py.
"""
import os
import re
import shutil
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "netns"))
import gatebed  # noqa: E402
import guardbed  # noqa: E402
import sidecarbed  # noqa: E402
from gate import FLOWS  # noqa: E402
from gatebed import addresses  # noqa: E402
from guardbed import GOOD, SRC, Failed, Inside, Skip, until, want  # noqa: E402
from sidecarbed import RESOLVER, WILD  # noqa: E402

RELEASE = os.environ.get("EGRESS_BIN_RELEASE") or next(
    (p for p in (os.path.join(SRC, "build", x, "control", "egress") for x in ("release", "run"))
     if os.path.exists(p)), None)
FAST = RESOLVER[4], 5400
NAMES = 24000
KEPT = 128  # names that are asked for again and again; as many as the sidecar itself asks for again
RATE, SECONDS = 10000, 60
GRANT_US_MAX = 100
LOAD = {"OPENSANDBOX_EGRESS_DNS_UPSTREAM": "%s:%d" % FAST, "OPENSANDBOX_EGRESS_LOG_LEVEL": "warn",
        "OPENSANDBOX_EGRESS_RULES": gatebed.rules([("allow", "*.load.test", None),
                                                   ("allow", "*.wild.test", None)])}
UNBOUND = """
server:
  interface: {addr}@{port}
  access-control: 0.0.0.0/0 allow
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{top}"
  pidfile: ""
  use-syslog: no
  logfile: "{top}/fast.log"
  so-rcvbuf: 8m
  so-sndbuf: 8m
  num-threads: 1
  local-zone: "load.test." static
{data}
remote-control:
  control-enable: no
"""
# Asks each name twice in turn: the first answer programs the kernel, the second finds it done.
ASK = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
s.connect(("127.0.0.1", 15353))
def ask(name, n):
    q = struct.pack("!HHHHHH", n, 0x100, 1, 0, 0, 0)
    q += b"".join(bytes([len(p)]) + p for p in name.split(b".")) + b"\\0\\0\\1\\0\\1"
    start = time.perf_counter_ns()
    s.send(q)
    data = s.recv(512)
    end = time.perf_counter_ns()
    if data[:2] != q[:2] or data[3] & 15 or data[7] != 1:
        raise ValueError("no answer")
    return (end - start) / 1000
result = [[ask(b"n%%d.load.test" %% i, i & 65535) for _ in range(2)] for i in range(%d, %d)]
"""


class Bed(gatebed.Bed):
    NAME = "gateload"

    def servers(self):
        super().servers()
        rows = [f'  local-data: "n{i}.load.test. 1 IN A 20.{1 + i // 65536}.{i // 256 % 256}.{i % 256}"'
                for i in range(NAMES + 4000)]
        rows += [f'  local-data: "k{i}.load.test. 60 IN A 21.0.0.{i}"' for i in range(KEPT)]
        self.write("fast.conf", UNBOUND.format(addr=FAST[0], port=FAST[1], top=self.top,
                                               data="\n".join(rows)))
        with Inside(self.net):
            self.daemon("fast", "unbound", "-c", self.path("fast.conf"))

    def need(self, **more):
        if not RELEASE:
            raise Skip("no build/release, no build/run, and EGRESS_BIN_RELEASE names none")
        if not shutil.which("dnsperf"):
            raise Skip("no dnsperf")
        sidecarbed.EGRESS = RELEASE
        self.with_settings(**{**LOAD, **more})
        until(lambda: addresses(self.dig("+time=1", "k0.load.test")), "the resolver", 20)

    def family(self):
        """Process ids of supervisor, worker and guard."""
        out = [self.process.pid]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == self.process.pid:
                out.append(int(pid))
        return out

    def figures(self):
        """(PSS of all processes in KiB, of it what is no file's, addresses in the kernel's sets,
        processor seconds). Pages of programs and libraries count for less when others on the
        machine map them too, so their part moves without us."""
        pss = own = ticks = 0
        for pid in self.family():
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                text = f.read()
            pss += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
            own += sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", text, re.M)))
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
        sets = sum(self.nft("list", "set", "inet", "opensandbox", f"dyn_allow_v{v}").count(" expires ")
                   for v in (4, 6))
        return pss, own, sets, ticks / os.sysconf("SC_CLK_TCK")

    def dnsperf(self, name, names, *args, seconds=120):
        self.write(name, "".join(f"{n} A\n" for n in names))
        p = self.begin("dnsperf", "-s", "8.8.8.8", "-d", self.path(name), *args)
        try:
            text = p.communicate(timeout=seconds)[0]
        finally:
            p.kill()
        return text, [int(re.search(rf"Queries {w}:\s+(\d+)", text)[1])
                      for w in ("sent", "completed", "lost")]


def kept(bed, rounds=1):
    bed.dnsperf("kept", [f"k{i}.load.test" for i in range(KEPT)], "-n", str(rounds), "-q", "20")


def resolve(bed, first, n):
    _, (_, done, lost) = bed.dnsperf("many", [f"n{i}.load.test" for i in range(first, first + n)], "-n",
                                     "1", "-q", "200", "-Q", "4000", "-t", "5")
    want((done, lost), (n, 0), "answers")


def case_10000_questions_a_second(bed):
    bed.need()
    kept(bed)
    before = bed.figures()[3]
    text, (sent, done, lost) = bed.dnsperf(
        "rate", [f"k{i}.load.test" for i in range(KEPT)], "-Q", str(RATE), "-l", str(SECONDS), "-q", "1000", "-b", "4096",
        "-t", "5")
    spent = bed.figures()[3] - before
    wait = re.search(r"Average Latency \(s\):\s+(\S+) \(min \S+, max (\S+)\)", text)
    print(f"  sent {sent}, answered {done}, lost {lost} in {SECONDS} s; mean "
          f"{float(wait[1]) * 1e6:.0f} us, longest {float(wait[2]) * 1e3:.1f} ms; {spent / done * 1e6:.1f} us of processor each")
    want((lost, sent >= RATE * SECONDS * 0.99), (0, True), f"{sent} sent, lost")
    want(re.search(r"Response codes:\s+(.*)", text)[1], f"NOERROR {done} (100.00%)", "response codes")


def case_cost_of_a_grant(bed):
    """A DNS answer that programs the kernel beside one that finds it programmed, in turn."""
    bed.need()
    user = bed.user("nobody")
    first, second = [], []
    for at in range(NAMES, NAMES + 3000, 250):
        for a, b in user.do(ASK % (at, at + 250)):
            first.append(a)
            second.append(b)
    f, s = statistics.median(first), statistics.median(second)
    print(f"  median of {len(first)}: {f:.0f} us with a grant, {s:.0f} us without, {f - s:.0f} us more; p99 "
          f"{sorted(first)[len(first) * 99 // 100]:.0f} and {sorted(second)[len(second) * 99 // 100]:.0f} us")
    want(f - s < GRANT_US_MAX, True, f"{f - s:.0f} us more")
    want(f > s, True, "a grant costs something")


def case_names_come_and_go(bed):
    """24,000 names are resolved and expire: sets and memory are what they were. The start is taken
    after 2,000 names at the same rate have come and gone, so that buffers have their size; what has
    run out is forgotten 45 s later at most."""
    bed.halt()
    bed.running = None
    bed.need()
    resolve(bed, NAMES, 2000)
    for _ in range(13):  # until these are forgotten, so that what runs at the end has run before
        kept(bed)
        time.sleep(10)
    start = bed.figures()
    want(start[2], KEPT, "addresses at the start")
    resolve(bed, 0, NAMES)
    peak = bed.figures()
    want(peak[2] >= NAMES, True, f"{peak[2]} addresses at the peak")
    began = time.monotonic()
    while time.monotonic() - began < 180:
        kept(bed)  # a client that goes on: their leases stay, and these are what is asked again
        end = bed.figures()
        if end[2] <= KEPT and time.monotonic() - began > 80 and end[1] <= 1.02 * start[1]:
            break
        time.sleep(5)
    took = time.monotonic() - began
    for name, (pss, own, sets, _) in (("start", start), ("peak", peak), (f"after {took:.0f} s", end)):
        print(f"  {name}: PSS {pss} KiB, {own} KiB of it of no file, {sets} addresses in the sets")
    want(end[2], KEPT, "addresses after the leases have ended")
    want(end[1] <= 1.02 * start[1], True, f"{start[1]} KiB, then {end[1]}")


def case_C18_a_kept_address_stays_open(bed):
    """A client resolves once and connects again and again, past the lease of 61 s; and a flow that is
    open all that time is not cut. An address that nobody uses any more is closed when its lease ends."""
    bed.with_settings(**{**LOAD, "OPENSANDBOX_EGRESS_DNS_UPSTREAM": "%s:%d" % gatebed.RESOLVERS[0],
                         "OPENSANDBOX_EGRESS_RULES": gatebed.rules([("allow", "two.test", None),
                                                                    ("allow", "order.wild.test", None)])})
    two = sidecarbed.TWO[4]
    bed.dig("two.test", "A", "order.wild.test", "A")
    user = bed.user("nobody")
    user.do(FLOWS + f"flow('kept', {WILD[4]!r}, 5000)\n")
    start = time.monotonic()
    while time.monotonic() - start < 150:
        want(bed.opens(two, 5000), "echo", f"after {time.monotonic() - start:.0f} s")
        time.sleep(10)
    seen = user.do("result = [flows['kept'][k] for k in ('end', 'lost')]; flows['kept']['stop'] = 1")
    want(seen, [None, False], "the open flow")
    want(bed.lease_s(GOOD[4]) is None or bed.opens(GOOD[4], 5000) == "echo", True, "leases are the truth")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
