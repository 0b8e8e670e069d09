"""A running `egressctl watch` over a server, real or standin.py's, and what it left behind.

Before watch_lies.py, and tests/long/watch_load.py and opensandbox_watch.py. The server's key is in
a file, the texts of DIR/wanted come from the test, and what the program says is kept in a file.
"""
import json
import os
import re
import signal
import subprocess

from casebed import Failed, until, want

SRC = os.environ.get("EGRESS_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.environ.get("EGRESS_BUILD") or os.path.join(SRC, "build", "gcc-asan")
CTL = os.environ.get("EGRESSCTL_BIN") or os.path.join(BUILD, "ctl", "egressctl")
WAIT_S = 20
ONCE_S = 120


def release_ctl():
    """egressctl of a build without sanitizers, or None."""
    named = os.environ.get("EGRESS_BIN_RELEASE")
    builds = [os.path.dirname(os.path.dirname(named))] if named else []
    builds += [os.path.join(SRC, "build", x) for x in ("release", "run")]
    paths = [os.path.join(b, "ctl", "egressctl") for b in builds]
    return next((p for p in paths if os.access(p, os.X_OK)), None)


def pss_kib(pid):
    """(all of it, of it what is no file's): pages of libraries count for less when others map them
    too, so their part moves without us."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        text = f.read()
    return (int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1]),
            sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", text, re.M))))


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        ticks = f.read().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


class Watch:
    """top: a folder for this one. before: what a process does before it becomes the program."""

    def __init__(self, top, url, key, *args, program=CTL, before=None, **env):
        self.top, self.dir, self.program = top, os.path.join(top, "out"), program
        os.makedirs(os.path.join(self.dir, "wanted"), mode=0o700, exist_ok=True)
        self.log, self.key_file = os.path.join(top, "watch.log"), os.path.join(top, "key")
        self.key(key)
        self.args = ["watch", "--out", self.dir, "--url", url, "--key-file", self.key_file, *args]
        self.env = {k: v for k, v in os.environ.items()
                    if not re.match("EGRESS_|AGENTIC_|OPENSANDBOX_|OPEN_SANDBOX_|.*_proxy$", k,
                                    re.I)}
        self.env.update(HOME=top, **env)
        self.before, self.p = before, None

    def key(self, text):
        """The server's key; None: no file."""
        if text is None:
            os.unlink(self.key_file)
            return
        with open(os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text + "\n")

    def wanted(self, name, **doc):
        """DIR/wanted/NAME.yaml; JSON is YAML. None takes it away. Other files are `more`."""
        path = os.path.join(self.dir, "wanted", name + ".yaml")
        if not doc:
            os.unlink(path)
            return
        with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            json.dump(doc, f)
        os.rename(path + ".new", path)

    def run(self, *more):
        self.out = open(self.log, "ab")
        self.p = subprocess.Popen([self.program, *self.args, *more], env=self.env,
                                  preexec_fn=self.before, stdin=subprocess.DEVNULL,
                                  stdout=self.out, stderr=self.out)
        self.out.close()
        return self

    def once(self, code=0):
        """One round; what it said."""
        size = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        self.run("--once")
        try:
            got = self.p.wait(ONCE_S)
        except subprocess.TimeoutExpired as e:
            self.kill()
            raise Failed(f"--once does not end: {self.text()[-600:]}") from e
        said = self.text()[size:]
        if code is not None:
            want(got, code, f"exit code of --once, which said {said[-800:]!r}")
        return said

    def stop(self):
        """Orderly."""
        self.p.send_signal(signal.SIGTERM)
        try:
            want(self.p.wait(WAIT_S), 0, f"exit code; {self.text()[-800:]}")
        except subprocess.TimeoutExpired as e:
            self.kill()
            raise Failed(f"does not end on SIGTERM: {self.text()[-800:]}") from e

    def kill(self):
        if self.p and self.p.poll() is None:
            self.p.kill()
            self.p.wait()

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def says(self, part, seconds=WAIT_S, since=0):
        until(lambda: part in self.text()[since:] or self.ended(), f"{part!r} in its log", seconds)

    def ended(self):
        if self.p.poll() is not None:
            raise Failed(f"ended with {self.p.returncode}: {self.text()[-800:]}")
        return False

    def trail(self, id):
        """What was collected of a sandbox."""
        try:
            with open(os.path.join(self.dir, "audit", id + ".jsonl"), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return b""

    def trails(self, id):
        """The same, and each that was begun anew after it."""
        out = [self.trail(id)]
        while True:
            more = self.trail(f"{id}~{len(out) + 1}")
            if not more:
                return out
            out.append(more)

    def collects(self, id, text, seconds=WAIT_S):
        """The whole of this trail, each line once, comes to be in the file."""
        until(lambda: len(self.trail(id)) >= len(text) or self.ended(), f"the trail of {id}",
              seconds)
        want(self.trail(id).splitlines(), text.splitlines(), f"the trail of {id}")

    def files(self):
        return sorted(os.path.relpath(os.path.join(d, n), self.dir)
                      for d, _, names in os.walk(self.dir) for n in names)
