#!/usr/bin/env python3
"""docs/egress-api.yaml against the running program: schemathesis makes requests from it, good ones and
bad ones, one after the other and along its links, and judges each answer by it.

A case holds if no answer is a 5xx or another than the document says, if there were enough requests, and
if enough of each operation were answered 2xx: a server that refuses everything breaks no schema.
schemathesis is installed from PyPI, pinned by api-requirements.txt, into the folder of the run; what
it needs to know besides the document is in api_hooks.py. API_EXAMPLES changes how many requests each
operation gets in each pass. Bed: e2e/apibed.py.
"""
import contextlib
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
import apibed  # noqa: E402
from apibed import SRC, TOKEN, Failed, running, until, want  # noqa: E402

DOCUMENT = os.path.join(SRC, "docs", "egress-api.yaml")
CASES_MIN, GOOD_MIN = 5000, 30  # in all; percent of each operation
EXAMPLES = int(os.environ.get("API_EXAMPLES", "400"))
SECONDS_MAX = 2400
PASSES = (("good", EXAMPLES, "--mode", "positive", "--phases", "examples,fuzzing,stateful"),
          ("any", EXAMPLES // 5, "--mode", "all", "--phases", "coverage,fuzzing"))
# /healthz answers every method alike. /policy reads JSON as leniently as the replaced image does.
CONFIG = """
[checks]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "413"]
positive_data_acceptance.expected-statuses = ["2xx", "301", "401", "403", "404", "409", "410"]

[[operations]]
include-path = "/healthz"
checks.unsupported_method.enabled = false

[[operations]]
include-path = "/policy"
checks.negative_data_rejection.enabled = false

# That labels are too long together, that a name is used before it exists, no schema can tell.
[[operations]]
include-path = "/audit/context"
checks.positive_data_acceptance.enabled = false

[[operations]]
include-path = "/credential-vault"
checks.positive_data_acceptance.enabled = false
generation.max-examples = {vault}
"""


def installed(top):
    """The program st, installed if it was not."""
    folder = os.environ.get("API_VENV") or os.path.join(top, "venv")
    program = os.path.join(folder, "bin", "st")
    if not os.path.exists(program):
        needs = os.path.join(HERE, "api-requirements.txt")
        for cmd in ([sys.executable, "-m", "venv", folder],
                    [os.path.join(folder, "bin", "pip"), "install", "-q", "-r", needs]):
            p = subprocess.run(cmd, capture_output=True, text=True, timeout=600, check=False)
            if p.returncode != 0:
                raise Failed(f"{cmd[:3]}: {p.stderr[-800:]}")
    return program


def explored(st, folder, where, examples, *args):
    """One pass over all operations. where: the URL, the token, and the network from which to ask.
    {operation: {status: count}}; what it found, or nothing."""
    url, token, inside = where
    os.mkdir(folder)
    config, counts = os.path.join(folder, "config.toml"), os.path.join(folder, "counts")
    with open(config, "w") as f:
        f.write(CONFIG.format(vault=examples * 3))
    env = {**os.environ, "API_URL": url, "API_TOKEN": token, "API_COUNTS": counts,
           "API_PASS": os.path.basename(folder),
           "SCHEMATHESIS_HOOKS": "api_hooks", "PYTHONPATH": HERE, "NO_COLOR": "1"}
    with inside, open(os.path.join(folder, "said"), "w+") as said:
        p = subprocess.run([st, "--config-file", config, "run", DOCUMENT, "--url", url,
                            "-H", f"OPENSANDBOX-EGRESS-AUTH: {token}", "--seed", "6",
                            "--continue-on-failure", "--suppress-health-check", "all",
                            "-n", str(examples), *args],
                           env=env, cwd=folder, stdout=said, stderr=said, timeout=SECONDS_MAX,
                           check=False)
        said.seek(0)
        text = said.read()
    if not os.path.exists(counts):
        raise Failed(f"{folder}: {text[-1500:]}")
    with open(counts) as f:
        return json.load(f), "" if p.returncode == 0 else text[text.find("= FAILURES"):]


def judged(found, wrong):
    """Prints one line an operation; fails when there were too few, or too few good ones."""
    total, poor, broken = 0, [], []
    for operation, statuses in sorted(found.items()):
        n = sum(statuses.values())
        good = 100 * sum(c for s, c in statuses.items() if s[0] == "2") // n
        total += n
        poor += [operation] if good < GOOD_MIN and operation[0].isupper() else []
        broken += [f"{operation}: {s}" for s in statuses if s[0] == "5"]
        shown = " ".join(f"{s}:{c}" for s, c in sorted(statuses.items()))
        print(f"  {operation:50} {n:6} {good:4}% {shown}", flush=True)
    print(f"  cases={total}", flush=True)
    for text in wrong:
        print("\n".join("  " + x for x in text.splitlines()), flush=True)
    want([broken, len(wrong)], [[], 0], "5xx, and passes with what the document does not say")
    want([poor, total >= CASES_MIN], [[], True], f"rarely 2xx, {total} in all")


def every_operation():
    with open(DOCUMENT) as f:
        paths = yaml.safe_load(f)["paths"]
    return {f"{method.upper()} {path}" for path, item in paths.items() for method in item
            if method in ("get", "put", "post", "delete", "patch")}


def tried(top, where):
    """All passes, and what they say together."""
    found, wrong, st = {}, [], installed(top)
    for name, examples, *args in PASSES:
        counts, said = explored(st, os.path.join(top, name), where, examples, *args)
        wrong += [said] if said else []
        for operation, statuses in counts.items():
            mine = found.setdefault(operation, {})
            for status, n in statuses.items():
                mine[status] = mine.get(status, 0) + n
    want(sorted(every_operation() - set(found)), [], "operations that were not asked")
    judged(found, wrong)


def case_schemathesis_in_mode_proxy():
    with running(OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true") as e:
        tried(e.top, (f"http://127.0.0.1:{e.port}", TOKEN, contextlib.nullcontext()))
        want(e.call("GET", "/healthz", token=False).body, b"ok", "it is well afterwards")


# --- writers while the worker is killed ---

KILLS = 20
VAULT = {"credentials": [{"name": "k", "source": {"value": "v-0123456789"}}],
         "bindings": [{"name": "b", "match": {"hosts": ["api.test"]},
                       "auth": {"type": "bearer", "credential": "k"}}]}
WRITES = {  # what the n-th write of each kind is
    "vault": lambda e, n: e.request("PATCH", "/credential-vault", {"credentials": {"add": [
        {"name": f"n{n}", "source": {"value": f"w-{n:010}"}}]}}),
    "policy": lambda e, n: e.request("PATCH", "/policy", apibed.allow(f"h{n}.test")),
    "context": lambda e, n: e.request("PUT", "/audit/context", {"labels": {"n": str(n)}})}


class Writer(threading.Thread):
    """One after the other; the numbers of those that were answered with 200, and what they said."""

    def __init__(self, e, kind):
        super().__init__()
        self.e, self.kind, self.n, self.stop = e, kind, 0, threading.Event()
        self.done, self.wrong = {}, []

    def run(self):
        while not self.stop.is_set():
            try:
                got, _ = self.e.raw(WRITES[self.kind](self.e, self.n), wait=5)
            except OSError:
                got = []
            if got and got[0].status == 200:
                self.done[self.n] = got[0].doc
            elif got and got[0].status != 503:
                self.wrong.append(f"{self.kind} {self.n}: {got[0]}")
            self.n += 1
            time.sleep(0 if got else 0.005)


def case_kills_lose_nothing_that_was_answered():
    """Each write that was answered is there afterwards, and once on record."""
    with running(policy={"egress": apibed.allow("api.test")},
                 OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true") as e:
        e.call("POST", "/credential-vault", VAULT, status=201)
        writers = {kind: Writer(e, kind) for kind in WRITES}
        for w in writers.values():
            w.start()
        for _ in range(KILLS):
            time.sleep(random.uniform(0.03, 0.4))
            killed = e.worker()
            os.kill(killed, signal.SIGKILL)
            until(lambda k=killed: e.worker() not in (0, k), "another worker", 15)
        for w in writers.values():
            w.stop.set()
            w.join()
        vault, policy, context = (writers[k] for k in WRITES)
        want([w.wrong for w in writers.values()], [[], [], []], "answers")
        want(min(len(w.done) for w in writers.values()) > KILLS, True, "control: they wrote")
        names = {c["name"] for c in e.call("GET", "/credential-vault").doc["credentials"]}
        want([n for n in vault.done if f"n{n}" not in names], [], "credentials")
        targets = {t for _, t in e.targets()}
        want([n for n in policy.done if f"h{n}.test" not in targets], [], "rules")
        labels = e.call("GET", "/audit/context").doc["labels"]
        want(int(labels["n"]) >= max(context.done), True, f"labels {labels}")
        until(lambda: e.audit()[-1]["seq"] == e.status()["audit"]["seq"], "the file")
        lines = e.audit()
        want([x["seq"] for x in lines], list(range(1, len(lines) + 1)), "no hole")
        on_record = {"vault": [x["revision"] for x in lines if x["kind"] == "vault" and x["method"]],
                     "policy": [int(re.search(r"revision (\d+)", x["rule"])[1]) for x in lines
                                if x["kind"] == "policy"],
                     "context": [int(x["context"]["n"]) for x in lines if x["kind"] == "context"]}
        for kind, numbers in on_record.items():
            want(len(numbers), len(set(numbers)), f"{kind}: once")
        want([d["revision"] for d in vault.done.values() if d["revision"] not in
              on_record["vault"]], [], "writes of the vault on record")
        want([n for n in context.done if n not in on_record["context"]], [], "labels on record")
        want(len(on_record["policy"]) >= len(policy.done), True, "changes of the policy on record")
        print(f"  kills={KILLS} writes={ {k: len(w.done) for k, w in writers.items()} }", flush=True)


TIMED = 4000  # requests with each guess


def case_C152_time_does_not_tell_how_much_is_right():
    """Guesses that are right in more and more bytes take the same time, as far as noise lets one see: in
    turn, so that whatever else the machine does hits all of them alike."""
    guesses = {n: TOKEN[:n] + "~" * (len(TOKEN) - n) for n in (0, 8, 16, 31)}
    took = {n: [] for n in guesses}
    with running() as e:
        s = e.connect()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        requests = {n: e.request("GET", "/policy", token=False, fields=(
            f"OPENSANDBOX-EGRESS-AUTH: {guess}",)) for n, guess in guesses.items()}
        for _ in range(TIMED):
            for n in random.sample(list(guesses), len(guesses)):
                start = time.perf_counter_ns()
                s.sendall(requests[n])
                answer = s.recv(4096)
                took[n].append(time.perf_counter_ns() - start)
                want(answer[:12], b"HTTP/1.1 401", f"{n} bytes")
        s.close()
    median = {n: statistics.median(t) for n, t in took.items()}
    middle = sorted(took[0])[TIMED // 10:-TIMED // 10]
    print(f"  medians in us: { {n: round(m / 1000, 1) for n, m in median.items()} }, "
          f"sigma {statistics.stdev(middle) / 1000:.1f}", flush=True)
    want(max(median.values()) - min(median.values()) < statistics.stdev(middle), True, f"{median}")


if __name__ == "__main__":
    sys.exit(apibed.main(globals()))
