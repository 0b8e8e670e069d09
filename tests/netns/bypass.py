"""Ways round the whole sidecar, each seen to get through without it and refused with it.

All rows of guard_attacks.py and of bypass_rows.py, for three users: root with what OpenSandbox on
Docker leaves of Docker's default rights, root with Kubernetes' (NET_RAW among them), and nobody. A
row counts for a user only if it got through in the control column, where the sidecar is stopped and
its tables are gone. The report has both columns, what the client was told, and the lines of the
audit trail that belong to it. Bed: sidecarbed.py. Before this: bypass_short.py and long/bypass_all.py.
"""
import os
import socket
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bypass_rows  # noqa: E402
import guard_attacks  # noqa: E402
import sidecarbed  # noqa: E402
from sidecarbed import (EVIL, HOSTILE, INTERNAL, META, PRIVATE, RESOLVER, USERS, Failed,  # noqa: E402
                        Inside, until)

KINDS = list(USERS)
SEEN_S = 0.5
LOG_S = 1.6  # flows of the kernel are on record once a second


class Kernel(guard_attacks.Battery):
    """guard_attacks.py's rows, as one of the users."""

    def __init__(self, bed, kind):
        super().__init__(bed)
        self.kind = kind

    def agent(self, user):
        if user == "worker":
            if user not in self.agents:
                self.agents[user] = self.bed.sidecar()
                self.agents[user].do(guard_attacks.PRELUDE)
            return self.agents[user]
        if user == "once" or user not in self.agents:
            a = self.bed.user(self.kind)
            a.do(guard_attacks.PRELUDE)
            if user == "once":
                return a
            self.agents[user] = a
        return self.agents[user]


def addresses(f):
    out = {"internal": INTERNAL[f], "private": PRIVATE[f], "resolver": RESOLVER[f],
           "hostile": HOSTILE[f], "f": f, "internal4": INTERNAL[4], "evil4": EVIL[4]}
    for name in ("good", "evil", "meta"):
        out[name] = getattr(sidecarbed, name.upper())[f]
    return out


class Report:
    """What each row did, for each user, in both columns."""

    def __init__(self):
        self.through, self.told, self.trail, self.times = {}, {}, {}, []

    def add(self, column, name, kind, n, told):
        self.through[column, name, kind] = n
        self.told[column, name, kind] = told

    def names(self):
        return list(dict.fromkeys(n for _, n, _ in self.through))

    def counted(self):
        return [n for n in self.names() if any(self.through.get(("c", n, k)) for k in KINDS)]

    def read_trail(self, lines):
        """Each line belongs to the row that ran when it began."""
        for line in lines:
            at = datetime.fromisoformat(line["ts"].replace("Z", "+00:00")).timestamp()
            for column, begin, end, name in self.times:
                if column == "l" and begin <= at <= end:
                    what = f"{line['kind']} {line['verdict']} {line['reason']}"
                    self.trail.setdefault(name, Counter())[what] += line.get("count") or 1

    def show(self, what):
        print(f"  {'probe':44} {'without: d k n':>15} {'with: d k n':>12}  client with it; audit trail")
        for n in self.names():
            cells = [" ".join(self.cell(c, n, k) for k in KINDS) for c in "cl"]
            told = next((str(self.told["l", n, k]) for k in KINDS if ("l", n, k) in self.told and
                         self.through.get(("c", n, k))), "")
            lines = ", ".join(f"{k} x{v}" for k, v in self.trail.get(n, Counter()).most_common(3))
            told = ascii(told)[1:-1].replace("\\r\\n", " ")
            print(f"  {n:44} {cells[0]:>15} {cells[1]:>12}  {told[:58]:58}  {lines}")
        counted = self.counted()
        pairs = sum(1 for (c, _, _), v in self.through.items() if c == "c" and v)
        print(f"  {what}: {len(counted)} of {len(self.names())} probes count, {pairs} with users; "
              f"not counted: {[n for n in self.names() if n not in counted]}")

    def cell(self, column, name, kind):
        v = self.through.get((column, name, kind))
        return "." if v is None else str(min(v, 99))

    def check(self, least):
        bad = [f"{n} ({k})" for (c, n, k), v in self.through.items() if c == "l" and v]
        if bad:
            raise Failed(f"got through: {bad}")
        if len(self.counted()) < least:
            raise Failed(f"only {len(self.counted())} probes were seen to get through without us")


def kernel(bed, report, column, group, only=None, kinds=KINDS):
    """The rows of one group of guard_attacks.py, one after the other."""
    number = 0
    for kind in kinds:
        battery = Kernel(bed, kind)
        for row in guard_attacks.PROBES:
            number += 1
            if row[5] != group or (only and row[0] not in only):
                continue
            if row[2] == "worker" and kind != kinds[0]:
                continue
            begin = time.time()
            n, why = battery.shoot(row, f"<{column}{number:04}probe>".encode())
            if column == "c" and not n and why == "sent":  # a busy machine may need longer
                time.sleep(0.3)
                n, why = battery.shoot(row, f"<{column}{number:04}probe>".encode())
            report.add(column, row[0], kind, n, why)
            report.times.append((column, begin, time.time(), row[0]))


def through(bed, sight, token, mark, answer):
    """How often the token, or what the client wanted, came to where it must not."""
    low = token.lower().encode()
    if sight == "told":
        return 1 if answer else 0
    if sight == "wire":
        return bed.tap.has(lambda d: low in d.lower())
    if sight.startswith("toward-"):
        addr = socket.inet_pton(socket.AF_INET6, bypass_rows.FORMS[sight.removeprefix("toward-")])
        return bed.tap.has(lambda d: d[38:54] == addr)
    if sight == "flow-evil":
        return bed.tap.has(lambda d: any(s[13] & 2 for a in EVIL.values()
                                         if (s := guard_attacks.segment(d, a))))
    rows = [r for r in bed.seen(mark) if token in r["uri"]]
    if sight == "web-evil":
        rows = [r for r in rows if r["addr"].replace("::ffff:", "") in EVIL.values()]
    if sight == "web-meta":
        rows = [r for r in rows if r["addr"].replace("::ffff:", "") in META.values()]
    return len(rows)


def attempt(bed, agent, row, token, mark, patient):
    """(how often it came through, what the client was told)."""
    _, _, f, code, sight = row
    text = f"T = {token!r}\ngot, told = None, ''\n" + code.format(**addresses(f))
    try:
        told, got = agent.do(text + "\nresult = [str(told), bool(got)]")
    except OSError as e:
        told, got = str(e).replace("[Errno 0] ", ""), False
    end = time.monotonic() + (SEEN_S if patient else 0.08)
    while not (n := through(bed, sight, token, mark, got)) and time.monotonic() < end:
        time.sleep(0.02)
    return n, told


LIT = """
def lit(addr):
    return f"[{addr}]" if ":" in addr else addr
p4 = lambda a: socket.inet_pton(socket.AF_INET, a)
"""


def words(bed, report, column, group, only=None, kinds=KINDS):
    """The rows of bypass_rows.py, all users at a time."""
    agents = {k: bed.user(k) for k in kinds}
    for a in agents.values():
        a.do(bypass_rows.PRELUDE + LIT)
    with ThreadPoolExecutor(len(kinds)) as pool:
        for number, row in enumerate(bypass_rows.ROWS):
            if row[0] != group or (only and row[1] not in only):
                continue
            bed.tap.clear()
            mark, begin = bed.seen_mark(), time.time()
            jobs = {k: pool.submit(attempt, bed, agents[k], row,
                                   f"{column}{number:04}{k[0]}xtokenxxx0", mark, column == "c")
                    for k in kinds}
            for k, job in jobs.items():
                report.add(column, row[1], k, *job.result())
            report.times.append((column, begin, time.time(), row[1]))
    for a in agents.values():
        a.process.kill()
        a.process.wait()


def warm_up(bed):
    """Neighbours are known; the first packet to one may wait for a second."""
    with Inside(bed.box):
        for f in (4, 6):
            until(lambda f=f: socket.create_connection((EVIL[f], 80), 3).close() is None, "a way")


def battery(bed, groups, least, only=None, kinds=KINDS, **settings):
    """Both columns; groups of guard_attacks.py have the name of that file before them."""
    report = Report()
    guard_attacks.loosen(bed)
    for column in "cl":
        bed.free()
        if column == "l":
            bed.protect(**settings)
        else:
            warm_up(bed)
        for g in groups:
            if g.startswith("guard-"):
                kernel(bed, report, column, g[6:], only, kinds)
            else:
                words(bed, report, column, g, only, kinds)
    time.sleep(LOG_S)
    lines = bed.lines()
    kinds_of_lines = Counter(f"{x['kind']} {x['verdict']}" for x in lines)
    report.read_trail(lines)
    report.show(" ".join(groups))
    print(f"  audit trail: {dict(kinds_of_lines)}; ready after {bed.ready_s * 1000:.0f} ms")
    until(lambda: bed.health()[0] == 200, f"health after the attacks ({bed.health()})", 4)
    report.check(least)
    bed.halt()
    return report


__all__ = ["battery", "Inside", "socket", "until"]
