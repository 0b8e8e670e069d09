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
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
import apibed  # noqa: E402
from apibed import SRC, TOKEN, Failed, Skip, running, want  # noqa: E402

DOCUMENT = os.path.join(SRC, "docs", "egress-api.yaml")
CASES_MIN, GOOD_MIN = 5000, 30  # in all; percent of each operation
EXAMPLES = int(os.environ.get("API_EXAMPLES", "400"))
SECONDS_MAX = 2400
PASSES = (("good", EXAMPLES, "--mode", "positive", "--phases", "examples,fuzzing,stateful"),
          ("any", EXAMPLES // 5, "--mode", "all", "--phases", "coverage,fuzzing"))
# /healthz answers every method alike. /policy reads JSON as leniently as the replaced image does.
CONFIG = """
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
        poor += [operation] if good < GOOD_MIN else []
        broken += [f"{operation}: {s}" for s in statuses if s[0] == "5"]
        shown = " ".join(f"{s}:{c}" for s, c in sorted(statuses.items()))
        print(f"  {operation:50} {n:6} {good:4}% {shown}", flush=True)
    print(f"  cases={total}", flush=True)
    for text in wrong:
        print("\n".join("  " + x for x in text.splitlines()), flush=True)
    want([broken, len(wrong)], [[], 0], "5xx, and passes with what the document does not say")
    want([poor, total >= CASES_MIN], [[], True], f"rarely 2xx, {total} in all")


def every_operation():
    import yaml
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
