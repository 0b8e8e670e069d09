#!/usr/bin/env python3
"""`egressctl watch` beside a real OpenSandbox server, on the engine of opensandbox.py: what it
collects is what the sidecars wrote, each line once, whatever ends in between; wanted sites come
back; each alarm is provoked.

Needs what opensandbox.py needs. `--list` prints the cases; those of a server go on with one
sandbox, so one brings those before it. The sidecar's own copy is its standard output, which
`docker logs -f` follows to its end.
"""
import calendar
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "opensandbox"),
                os.path.join(os.path.dirname(HERE), "e2e")]
import casebed  # noqa: E402
import closed_world  # noqa: E402
import engine  # noqa: E402
import flow  # noqa: E402
import opensandbox  # noqa: E402
import servers  # noqa: E402
import watchbed  # noqa: E402
from closed_world import Failed, Inside, until, want  # noqa: E402

LABELS = {"agent": "reviewer", "task": "T-1182"}
BACK_S = 2.0  # wanted sites after a resume
SITE = [{"action": "allow", "target": t} for t in ("two.test", "site.test", "*.site.test")]
WANTED = {"defaultAction": "deny", "egress": [r for r in flow.POLICY["egress"] if not r[
    "target"].endswith("site.test")] + SITE[:1]}
# A client that goes on until it is told: one request after the other, numbered.
TRAFFIC = ("rm -f /tmp/quiet; i=0; while [ ! -e /tmp/quiet ]; do "
           "curl -s -o /dev/null http://read.test/t/$i; i=$((i+1)); sleep 0.05; done")
TAIL_S = 2.5  # of its last lines: one look a second, and the end
MANY = 3200  # lines of 1.6 KB, more than the 4 MiB that a sidecar keeps


def stamp(row):
    return calendar.timegm(time.strptime(row["ts"][:19], "%Y-%m-%dT%H:%M:%S")) + float(
        "0" + row["ts"][19:-1])


class Follow(flow.Flow):
    """And a watch, and what each sidecar wrote."""

    def __init__(self, run, server):
        super().__init__(run.engine, server, run.sdks, None, run.say)
        self.run = run
        self.top = run.world.path(f"watch-{server.name}")
        os.makedirs(self.top, exist_ok=True)
        self.w = watchbed.Watch(self.top, f"http://127.0.0.1:{server.port}", servers.KEY)
        self.logs = {}

    def open(self, labels=None, **more):
        """A sandbox, whose sidecar's output is kept from its first line on."""
        self.id = self.create(metadata=labels or LABELS, **more)
        path = os.path.join(self.top, f"written-{self.id}")
        with open(path, "wb") as out:
            self.logs[self.id] = (path, subprocess.Popen(
                ["docker", "--host", self.engine.url, "logs", "-f", self.sidecar], stdout=out,
                stderr=subprocess.DEVNULL, env=engine.closed_world_env()))
        return self.id

    def run_watch(self, *more):
        with Inside(self.world.host):
            self.w.run(*more)

    def once(self, code):
        with Inside(self.world.host):
            return self.w.once(code)

    def written(self, id=None):
        """Lines that the sidecar wrote so far."""
        with open(self.logs[id or self.id][0], "rb") as f:
            return [x for x in f if x.startswith(b"{") and x.endswith(b"\n")]

    def same(self, id=None, seconds=15):
        """The copy comes to be what was written, each line once."""
        id = id or self.id

        def whole():
            written = self.written(id)
            return written and self.w.trail(id).splitlines(True) == written or self.w.ended()
        try:
            until(whole, "the copy is what was written", seconds)
        except Failed as e:
            copy, written = self.w.trail(id).splitlines(True), self.written(id)
            at = next((i for i, (a, b) in enumerate(zip(copy, written)) if a != b), "no line")
            raise Failed(f"{e}: {len(copy)} lines of {len(written)}, {at} differs; "
                         f"{self.w.text()[-500:]}") from e
        self.say(f"{len(self.written(id))} lines collected")

    def traffic(self):
        self.engine.docker("exec", "-d", f"sandbox-{self.id}", "sh", "-c", TRAFFIC)

    def quiet(self):
        """Its last request has been answered."""
        self.engine.exec(f"sandbox-{self.id}", "sh", "-c", "touch /tmp/quiet; sleep 0.5")

    def alarm(self, name, since=0):
        """The log line of an alarm of this sandbox."""
        def said():
            return any(f"alarm {name}" in x and self.id in x
                       for x in self.w.text()[since:].splitlines())
        until(lambda: said() or self.w.ended(), f"alarm {name} for {self.id}", 30)
        line = [x for x in self.w.text()[since:].splitlines() if f"alarm {name}" in x][-1]
        self.say(f"watch: {line}")
        return line

    def rows(self):
        return [json.loads(x) for x in self.w.trail(self.id).splitlines()]

    def state(self, wanted):
        until(lambda: self.server.http("GET", f"/v1/sandboxes/{self.id}")[1]["status"]["state"] ==
              wanted, f"state {wanted}", 20)

    def reaches(self, url, seconds):
        """How long it takes until a request for it is answered."""
        begin = time.monotonic()
        until(lambda: self.get(url) == 200 or self.w.ended(), url, seconds)
        return time.monotonic() - begin

    def whole_in(self, number):
        """The newest file of the copy has all that was written."""
        until(lambda: self.w.trails(self.id)[number - 1:] == [b"".join(self.written())] or
              self.w.ended(), f"file {number} has all", 20)

    def last_word(self):
        return [x for x in self.w.text().splitlines() if self.id in x and "it has ended" in x]

    def ended(self, how, alarm=False):
        """After the sandbox's end: the rows that are not in the copy, of its end alone. alarm: lines
        came until then, so that some more may have."""
        self.logs[self.id][1].wait(30)
        until(lambda: self.last_word() or self.w.ended(), "its end in the log", 30)
        copy, written = self.w.trail(self.id).splitlines(True), self.written()
        want(copy, written[:len(copy)], "the copy is what was written")
        missing = [json.loads(x) for x in written[len(copy):]]
        self.figures[f"lines of one that was {how}"] = f"{len(copy)} of {len(written)} collected"
        word = self.last_word()[-1]
        self.say(f"watch: {word}")
        want(("alarm lost-lines" in word, word.endswith(f"up to line {len(copy)}")),
             (alarm, True), f"its last word {word!r}")
        self.say(f"missing: {[(r['kind'], r['ts']) for r in missing][:20]}")
        if missing:
            seconds = stamp(missing[-1]) - stamp(missing[0])
            want(seconds <= TAIL_S, True, f"{len(missing)} lines of {seconds:.1f} s are missing")
        return missing

    def stop(self):
        self.w.kill()
        names = [n for n in self.engine.containers() if n.startswith("sandbox-")]
        if names:
            self.engine.docker("rm", "-fv", *names, check=False)
        for _, p in self.logs.values():
            p.terminate()
            p.wait()


# ---- the cases of a server, in order


def collects(t):
    """A trail from its first line, and the wanted sites in place of those of the create call."""
    t.w.wanted("sites", select={"metadata": LABELS}, policy=WANTED)
    t.open()
    t.run_watch()
    t.reaches("https://two.test/wanted", 10)
    t.arrives("https://read.test/page?q=1")
    t.is_refused("https://evil.test/")
    t.same()
    want({r["kind"] for r in t.rows()} >= {"start", "read", "policy"}, True, "kinds of lines")


def pause_and_resume(t):
    """Sites that are wanted since it stands still are there two seconds after the resume, and no
    line of the pause is missing or twice."""
    t.is_refused("https://sub.site.test/not-wanted-yet")
    t.traffic()
    t.api("POST", f"/v1/sandboxes/{t.id}/pause", should=202)
    t.state("Paused")
    t.w.wanted("sites", select={"metadata": LABELS}, policy={
        **WANTED, "egress": WANTED["egress"] + SITE[1:]})
    t.w.p.send_signal(signal.SIGHUP)
    time.sleep(4)
    t.api("POST", f"/v1/sandboxes/{t.id}/resume", should=202)
    seconds = t.reaches("https://sub.site.test/wanted-while-paused", 20)
    t.figures["wanted sites after a resume"] = f"{seconds:.2f} s"
    want(seconds <= BACK_S, True, f"{seconds:.2f} s from the resume's answer to a wanted site")
    t.quiet()
    t.same()


def the_server_is_started_anew(t):
    t.traffic()
    t.server.stop()
    time.sleep(5)
    t.arrives("https://read.test/without-the-server")
    t.server.start()
    t.arrives("https://read.test/with-it-again")
    t.quiet()
    t.same(seconds=90)


def watch_is_killed(t):
    """kill -9 at any moment, while lines come."""
    t.traffic()
    for i in range(8):
        time.sleep(0.4 * i)
        t.w.kill()
        t.run_watch()
    t.quiet()
    t.same(seconds=30)


def alarm_policy_differs(t):
    since = len(t.w.text())
    t.sdk("python", "policy_patch", rules=[{"action": "deny", "target": "two.test"}])
    t.alarm("policy-differs", since)
    t.reaches("https://two.test/pushed-again", 20)


def alarm_traffic_while_paused(t):
    """A program in the network of the sandbox that the pause did not stop. The sidecar of 1.1.1 is
    frozen too, so it is let go for a moment."""
    since = len(t.w.text())
    t.api("POST", f"/v1/sandboxes/{t.id}/pause", should=202)
    t.state("Paused")
    time.sleep(3)
    frozen = t.engine.inspect(t.sidecar)["State"]["Paused"]
    if frozen:
        t.engine.docker("unpause", t.sidecar)
    pid = t.engine.pid(t.sidecar)
    with open(f"/proc/{pid}/ns/net") as net, Inside(net.fileno()):
        out = closed_world.run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--resolve",
                               f"read.test:80:{closed_world.READ}", "http://read.test/paused")
    want(out.strip(), "200", "the request of a paused sandbox")
    if frozen:
        t.engine.docker("pause", t.sidecar)
    time.sleep(3)
    t.api("POST", f"/v1/sandboxes/{t.id}/resume", should=202)
    t.alarm("traffic-while-paused", since)
    t.same()


def alarm_chain(t):
    """A line of the copy is not what the sidecar wrote: it goes on in another file."""
    t.w.stop()
    path = os.path.join(t.w.dir, "audit", f"{t.id}.jsonl")
    with open(path, "rb") as f:
        lines = f.read().splitlines(True)
    lines[-1] = lines[-1].replace(b'"kind"', b'"Kind"')
    with open(path, "wb") as f:
        f.writelines(lines)
    t.arrives("https://read.test/after-a-forged-line")
    since = len(t.w.text())
    t.run_watch()
    t.alarm("chain", since)
    t.whole_in(2)


def alarm_lost_lines(t):
    """More lines than the sidecar keeps, while nobody collects."""
    t.w.stop()
    t.engine.exec(f"sandbox-{t.id}", "curl", "-s", "-o", "/dev/null",
                  f"http://read.test/[1-{MANY}]/" + "x" * 1000, seconds=120)
    since = len(t.w.text())
    t.run_watch()
    t.alarm("lost-lines", since)
    last = t.written()[-1]
    until(lambda: t.w.trails(t.id)[-1].endswith(last) or t.w.ended(), "the lines that are left", 20)


def deleted_while_traffic_flows(t):
    """The copy is what was written up to the last answer: what is the way to the sidecar is killed
    first."""
    t.open()
    t.traffic()
    until(lambda: len(t.w.trail(t.id).splitlines()) > 100 or t.w.ended(), "lines", 30)
    t.sdk("python", "kill")
    t.ended("deleted", alarm=True)


def renewed_to_end_soon(t):
    """The same where a renewal made it expire in a few seconds."""
    t.open()
    t.traffic()
    until(lambda: len(t.w.trail(t.id).splitlines()) > 20 or t.w.ended(), "lines", 30)
    t.sdk("python", "renew", seconds=12)
    until(lambda: t.server.http("GET", f"/v1/sandboxes/{t.id}")[0] == 404, "the end", 60)
    t.ended("expired", alarm=True)


def ended_in_peace(t):
    """Nothing runs any more when it is deleted: what is missing is of the end itself."""
    t.open()
    t.arrives("https://read.test/last")
    t.same()
    time.sleep(7)  # one more look, which finds nothing
    t.sdk("python", "kill")
    missing = t.ended("deleted in peace")
    want([r["kind"] for r in missing if r["kind"] not in ("stop", "lifecycle", "guard")], [],
         "lines that are missing")


def alarm_foreign_sidecar(t):
    """A server whose [egress] image is another program."""
    t.w.stop()
    with servers.Server(t.engine, t.server.version, engine.FLOOR, 1) as server:
        o = Follow(t.run, server)
        o.id = o.create(metadata=LABELS, proxy=False)  # nobody would write the CA's file
        o.say(o.once(1))
        o.alarm("foreign-sidecar")
        o.sdk("python", "kill", o.id)


CASES = flow.named(collects, pause_and_resume, the_server_is_started_anew, watch_is_killed,
                   alarm_policy_differs, alarm_traffic_while_paused, alarm_chain, alarm_lost_lines,
                   deleted_while_traffic_flows, renewed_to_end_soon, ended_in_peace,
                   alarm_foreign_sidecar)


def tried(what):
    """The beds of tests/e2e fail with an exception of their own."""
    def run(t):
        try:
            what(t)
        except casebed.Failed as e:
            raise Failed(str(e)) from e
    run.__doc__ = what.__doc__
    return run


def names():
    return [f"{version}-{case}" for version in servers.SERVERS for case in CASES]


def run_server(run, version, wanted):
    chain = [f"{version}-{case}" for case in CASES]
    last = max((i for i, n in enumerate(chain) if n in wanted), default=-1)
    if last < 0:
        return
    server = servers.Server(run.engine, version, engine.DERIVED["egress-readonly"])
    t = Follow(run, server)
    try:
        server.start()
        for name, what in list(zip(chain, CASES.values()))[:last + 1]:
            run.case(name, tried(what), t)
        for name, value in t.figures.items():
            run.result(f"# {version} {name}: {value}")
    except (Failed, OSError) as e:
        run.bad += 1
        run.result(f"not ok {version}-server {e}")
    finally:
        t.stop()
        server.stop()


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
    opensandbox.install()
    lock = engine.locked_work()
    top = tempfile.mkdtemp(prefix="opensandbox-", dir=os.environ.get("EGRESS_TMP"))
    os.chmod(top, 0o755)
    run = opensandbox.Run(top, "transcript-watch.txt")
    try:
        run.prepare()
        run.images(["egress-readonly"])
        for version in servers.SERVERS:
            run_server(run, version, wanted)
    except (Failed, OSError) as e:
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
