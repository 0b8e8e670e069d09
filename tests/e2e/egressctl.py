#!/usr/bin/env python3
"""egressctl: the real program against files written here, and once against the trail of a running
egress. Protocol: docs/development.md."""
import csv
import hashlib
import io
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SRC = os.environ.get("EGRESS_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.environ.get("EGRESS_BUILD") or os.path.join(SRC, "build", "gcc-asan")
EGRESS = os.environ.get("EGRESS_BIN") or os.path.join(BUILD, "control", "egress")
CTL = os.environ.get("EGRESSCTL_BIN") or os.path.join(BUILD, "ctl", "egressctl")
MANY = 200000
WAIT_S = 20

CONFIG = """\
mode: proxy
dns_upstream: 127.0.0.1
policy:
  defaultAction: deny
  egress:
    - {action: allow, target: docs.test}
    - {action: allow, target: api.test}
    - {action: allow, target: "*.wild.test"}
    - {action: allow, target: svc.internal}
    - {action: allow, target: 10.0.0.0/8}
write_hosts: [api.test, "*.wild.test"]
"""


class Failed(Exception):
    pass


def want(got, should, what):
    if got != should:
        raise Failed(f"{what}: {got!r}, not {should!r}")


def want_in(part, text, what):
    if part not in text:
        raise Failed(f"{what}: {part!r} is not in {text[-1500:]!r}")


class Trail:
    """Lines as the audit trail writes them."""

    def __init__(self):
        self.seq, self.prev = 0, "0" * 64

    def line(self, **changes):
        self.seq += 1
        i = self.seq
        fields = {"ts": f"2026-01-02T03:{i // 60 % 60:02}:{i % 60:02}.{i % 1000000:06}Z",
                  "id": f"{i:016x}", "sandbox": None, "kind": "read", "verdict": "allowed",
                  "reason": "allowed", "method": "GET", "url": f"https://docs.test/{i}",
                  "host": "docs.test", "port": 443, "addr": "192.0.2.1", "status": 200,
                  "up": 100, "down": 2000, "ms": 3, "via": "connect", "alpn": "http/1.1",
                  "rule": "rule 1: allow docs.test", "binding": None, "revision": None,
                  "uid": 1000, "user_agent": "curl/7"}
        fields.update(changes)
        body = json.dumps(fields, separators=(",", ":"), ensure_ascii=True)
        line = f'{{"v":1,"seq":{i},{body[1:-1]},"prev":"{self.prev}"}}'
        self.prev = hashlib.sha256(line.encode()).hexdigest()
        return line + "\n"

    def lines(self, n):
        return [self.line() for _ in range(n)]


def environment(**more):
    """Nothing of the settings of whoever started us."""
    env = {k: v for k, v in os.environ.items() if not re.match("EGRESS_|AGENTIC_|OPENSANDBOX_", k)}
    env.pop("NO_COLOR", None)
    env.pop("XDG_STATE_HOME", None)
    env.update(HOME=os.getcwd(), TERM="xterm", **more)
    return env


def ctl(*args, code=0, env=None):
    p = subprocess.run([CTL, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env=env or environment(), timeout=120)
    out, err = p.stdout.decode(), p.stderr.decode()
    want(p.returncode, code, f"exit code of {' '.join(args)}; stderr {err!r}")
    return out, err


def write(name, lines):
    with open(name, "w", newline="") as f:
        f.writelines(lines)


def append(name, *lines):
    with open(name, "a", newline="") as f:
        f.writelines(lines)


def urls(text):
    return [int(x) for x in re.findall(r"https://docs\.test/(\d+)", text)]


class Follower:
    """egressctl audit tail --follow, read as it speaks."""

    def __init__(self, *args):
        self.p = subprocess.Popen([CTL, "audit", "tail", "--file", "log", "-f", *args],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=environment())
        self.text = ""

    def until(self, n):
        """Waits for the n-th URL to be printed."""
        end = time.monotonic() + WAIT_S
        while n not in urls(self.text):
            if not select.select([self.p.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Failed(f"line {n} did not come: {self.text[-500:]!r}")
            part = os.read(self.p.stdout.fileno(), 65536)
            if not part:
                raise Failed(f"it ended: {self.p.stderr.read().decode()!r}")
            self.text += part.decode()

    def close(self):
        self.p.terminate()
        self.p.stdout.close()
        err = self.p.stderr.read().decode()
        self.p.wait(WAIT_S)
        return err


# --- tail ---

def case_tail_prints_the_last_lines():
    write("log", Trail().lines(30))
    out, err = ctl("audit", "tail", "--file", "log")
    want(urls(out), list(range(21, 31)), "ten lines")
    want(err, "", "stderr")
    want_in("2026-01-02 03:00:30.000 allowed read      GET     200    https://docs.test/30", out,
            "the row")
    want(urls(ctl("audit", "tail", "--file", "log", "-n", "3")[0]), [28, 29, 30], "-n 3")
    want(urls(ctl("audit", "tail", "--file", "log", "--lines=0")[0]), [], "--lines=0")


def case_tail_takes_rotated_files_in():
    t = Trail()
    write("log.2", t.lines(3))
    write("log.1", t.lines(3))
    write("log", t.lines(2))
    want(urls(ctl("audit", "tail", "--file", "log", "-n", "7")[0]), list(range(2, 9)), "lines")


def case_tail_json_is_the_raw_line():
    lines = Trail().lines(5)
    write("log", lines)
    want(ctl("audit", "tail", "--file", "log", "-n", "2", "--json")[0], "".join(lines[3:]),
         "lines")


def case_follow_sees_new_lines_and_goes_on_after_rotation():
    t = Trail()
    write("log", t.lines(3))
    f = Follower("-n", "1")
    f.until(3)
    append("log", t.line())
    f.until(4)
    old = open("log", "a")
    os.rename("log", "log.1")
    old.write(t.line())  # the writer has not noticed yet
    old.close()
    f.until(5)
    append("log", t.line())
    f.until(6)
    for _ in range(3):  # faster than anyone looks
        for i in (3, 2, 1):
            if os.path.exists(f"log.{i}"):
                os.rename(f"log.{i}", f"log.{i + 1}")
        os.rename("log", "log.1")
        append("log", t.line())
    f.until(9)
    want(urls(f.text), [3, 4, 5, 6, 7, 8, 9], "each line once, in order")
    want(f.close(), "", "stderr")


def case_follow_waits_for_the_rest_of_a_torn_line():
    t = Trail()
    write("log", t.lines(1))
    torn, after = t.line(), t.line()
    append("log", torn[:100])
    f = Follower()
    f.until(1)
    time.sleep(0.4)
    append("log", torn[100:], after)
    f.until(3)
    want(urls(f.text), [1, 2, 3], "lines")
    want(f.close(), "", "stderr")


def case_follow_ends_with_its_reader():
    write("log", Trail().lines(3))
    f = Follower()
    f.until(3)
    f.p.stdout.close()
    try:
        f.p.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        f.p.kill()
        raise Failed("it still runs although nobody reads it") from None
    want(f.p.stderr.read(), b"", "stderr")


def case_tail_says_that_the_last_line_is_torn():
    t = Trail()
    write("log", t.lines(2) + [t.line()[:80]])
    out, err = ctl("audit", "tail", "--file", "log", code=1)
    want(urls(out), [1, 2], "lines")
    want_in("does not end in a newline", err, "stderr")


# --- verify ---

def verify_breaks(change, where, what):
    """change(lines) breaks a trail of ten lines at line `where`."""
    lines = Trail().lines(10)
    write("log", lines)
    ctl("audit", "verify", "log")
    change(lines)
    write("log", lines)
    out, _ = ctl("audit", "verify", "log", code=1)
    want_in(f"log:{where}: broken: ", out, "the place")
    want_in(what, out, "the reason")
    doc = json.loads(ctl("audit", "verify", "--json", "log", code=1)[0])
    want((doc["whole"], doc["break"]["file"], doc["break"]["line"]), (False, "log", where), "JSON")


def case_verify_whole_trail():
    t = Trail()
    write("log.1", t.lines(4))
    write("log", t.lines(6))
    want(ctl("audit", "verify", "log")[0], "log: whole: 10 lines, seq 1 to 10\n", "text")
    want(json.loads(ctl("audit", "verify", "log", "--json")[0]),
         {"file": "log", "whole": True, "lines": 10, "first_seq": 1, "last_seq": 10}, "JSON")
    os.remove("log.1")
    want(ctl("audit", "verify", "log")[0], "log: whole: 6 lines, seq 5 to 10\n", "newest alone")


def case_verify_finds_an_edited_line():
    def change(lines):
        lines[4] = lines[4].replace("docs.test/5", "docs.test/x")
    verify_breaks(change, 6, "SHA-256")


def case_verify_finds_a_removed_line():
    verify_breaks(lambda lines: lines.pop(4), 5, "missing")


def case_verify_finds_swapped_lines():
    def change(lines):
        lines[4], lines[5] = lines[5], lines[4]
    verify_breaks(change, 5, "missing")


def case_verify_finds_a_repeated_line():
    verify_breaks(lambda lines: lines.insert(5, lines[4]), 6, "already used")


def case_verify_finds_an_added_line():
    def change(lines):
        forged = Trail()
        forged.seq = 4
        lines[4] = forged.line(url="https://docs.test/forged")
    verify_breaks(change, 5, "SHA-256")


def case_verify_finds_a_torn_last_line():
    def change(lines):
        lines[9] = lines[9][:70]
    verify_breaks(change, 10, "newline")


def case_verify_finds_what_is_no_line():
    verify_breaks(lambda lines: lines.insert(3, "hello\n"), 4, "not one of an audit trail")


def case_verify_finds_a_break_between_files():
    t = Trail()
    write("log.1", t.lines(4))
    t.line()
    write("log", t.lines(3))
    want_in("log:1: broken: ", ctl("audit", "verify", "log", code=1)[0], "the place")


def case_verify_takes_the_worst_of_several():
    write("good", Trail().lines(2))
    write("bad", ["x\n"])
    out, _ = ctl("audit", "verify", "good", "bad", code=1)
    want(len(out.splitlines()), 2, "lines")
    ctl("audit", "verify", "bad", "missing", "good", code=2)


# --- query ---

def case_query_filters():
    t = Trail()
    write("log.1", [t.line(), t.line(kind="write", method="POST", verdict="blocked",
                                     reason="method_not_read", status=403)])
    write("log", [t.line(host="a.wild.test"), t.line(host="wild.test", uid=None),
                  t.line(uid=7, kind="tunnel", method="CONNECT"), t.line()])
    for args, lines in (
            ([], [1, 2, 3, 4, 5, 6]),
            (["--kind", "write"], [2]),
            (["--verdict", "blocked", "--kind", "read"], []),
            (["--reason", "method_not_read"], [2]),
            (["--method", "CONNECT"], [5]),
            (["--uid", "7"], [5]),
            (["--uid", "0"], []),
            (["--host", "wild.test"], [4]),
            (["--host", "*.wild.test"], [3]),
            (["--since", "2026-01-02T03:00:03Z"], [3, 4, 5, 6]),
            (["--since", "2026-01-02T03:00:03Z", "--until", "2026-01-02T03:00:05Z"], [3, 4]),
            (["--until", "2026-01-02"], []),
            (["--since", "1000d", "--until", "1s"], [1, 2, 3, 4, 5, 6]),
            (["--limit", "2"], [1, 2])):
        for form in ("table", "csv", "json"):
            out, err = ctl("audit", "query", "--file", "log", "--format", form, *args)
            want(urls(out), lines, f"{form} {args}")
            want(err, "", "stderr")


def case_query_times_are_before_now():
    now = int(time.time())
    stamp = [time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(now - ago))
             for ago in (7200, 300, 5)]
    t = Trail()
    write("log", [t.line(ts=s) for s in stamp])
    want(urls(ctl("audit", "query", "--file", "log", "--since", "1h")[0]), [2, 3], "1h")
    want(urls(ctl("audit", "query", "--file", "log", "--since", "60s")[0]), [3], "60s")
    want(urls(ctl("audit", "query", "--file", "log", "--until", "1m")[0]), [1, 2], "until 1m")


def case_query_csv_is_whole_and_harmless():
    t = Trail()
    nasty = ['=HYPERLINK("http://x.test")', "+1", "-1+2", "@SUM(A1)", 'say "hi", now', "a\r\nb",
             "\tx", "caf\u00e9"]
    write("log", [t.line(user_agent=x) for x in nasty])
    out, _ = ctl("audit", "query", "--file", "log", "--format", "csv")
    want(out.count("\r\n"), len(nasty) + 1, "lines end in CRLF")
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    want([r["user_agent"] for r in rows],
         ['\'=HYPERLINK("http://x.test")', "'+1", "'-1+2", "'@SUM(A1)", 'say "hi", now',
          "a\\u000d\\u000ab", "\\u0009x", "caf\u00e9"], "cells")
    want(rows[0]["seq"], "1", "seq")
    want({None} & {k for r in rows for k in r}, set(), "cells beyond the header")


def case_query_json_is_the_raw_line():
    lines = Trail().lines(4)
    write("log", lines)
    want(ctl("audit", "query", "--file", "log", "--format", "json")[0], "".join(lines), "lines")


def case_query_names_lines_that_cannot_be_parsed():
    t = Trail()
    write("log.1", [t.line(), "{broken\n", t.line()])
    write("log", [t.line(), "\n", t.line(), t.line()[:50]])
    out, err = ctl("audit", "query", "--file", "log", code=1)
    want(urls(out), [1, 2, 3, 4], "the others")
    want([e.split(": ")[1] for e in err.splitlines()], ["log.1:2", "log:2", "log:4"], "places")
    want_in("does not end in a newline", err.splitlines()[2], "the torn one")


def case_terminal_codes_of_clients_are_shown_not_sent():
    write("log", [Trail().line(url="http://docs.test/\x1b[2J\u202e")])
    for command in ("tail", "query"):
        out, _ = ctl("audit", command, "--file", "log")
        want("\x1b" in out or "\u202e" in out, False, "control characters")
        want_in("/\\u001b[2J\\u202e", out, "shown")


def case_many_lines_in_constant_memory():
    t = Trail()
    with open("log", "w") as f:
        for _ in range(MANY):
            f.write(t.line())
    write("few", Trail().lines(1000))
    env = environment()
    # Else freed memory waits in the sanitizer's quarantine and looks like growth.
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
    peaks = []
    for name, lines in (("few", 1000), ("log", MANY)):
        for args in (["query", "--format", "json", "--host", "docs.test"], ["verify"]):
            file = [name] if args[0] == "verify" else ["--file", name]
            with open("out", "w") as out:
                pid = os.posix_spawn(CTL, [CTL, "audit", *args, *file], env, file_actions=[
                    (os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
                _, status, usage = os.wait4(pid, 0)
            want(os.waitstatus_to_exitcode(status), 0, f"exit code of {args}")
            # Not read as a whole: a child's peak begins with what its parent has.
            with open("out") as out:
                if args[0] == "verify":
                    want_in(f"{lines} lines", out.readline(), "verify")
                else:
                    want(sum(1 for _ in out), lines, "lines")
            peaks.append(usage.ru_maxrss)
    for few, many in zip(peaks[:2], peaks[2:]):
        want(many - few < 8192, True, f"peak {many} KiB instead of {few}")


# --- output ---

def case_a_broken_pipe_ends_it_quietly():
    write("log", Trail().lines(20000))
    for command in (["query", "--file", "log"], ["tail", "-n", "20000", "--file", "log"]):
        for ignored in (False, True):
            p = subprocess.Popen(
                [CTL, "audit", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment(), restore_signals=not ignored,
                preexec_fn=(lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
                if ignored else None)
            want_in(b"TIME", p.stdout.readline(), "the first line")
            p.stdout.close()
            want(p.stderr.read(), b"", "stderr")
            p.wait(WAIT_S)


def case_a_full_disk_is_said():
    write("log", Trail().lines(3))
    for command in (["query", "--file", "log"], ["tail", "--file", "log"], ["verify", "log"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([CTL, "audit", *command], stdout=full, stderr=subprocess.PIPE,
                               env=environment())
        want(p.returncode, 2, f"exit code of {command}")
        want_in(b"No space left", p.stderr, "stderr")


def on_terminal(env):
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(CTL, [CTL, "audit", "tail", "--file", "log"], env)
    text = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(fd)
    want(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, "exit code")
    return text.decode()


def case_colours_only_on_a_terminal():
    write("log", [Trail().line(verdict="blocked")])
    want_in("\x1b[31mblocked", on_terminal(environment()), "on a terminal")
    want("\x1b" in on_terminal(environment(NO_COLOR="1")), False, "with NO_COLOR")
    want("\x1b" in ctl("audit", "tail", "--file", "log")[0], False, "in a pipe")


# --- which file ---

def case_the_audit_file_is_found():
    os.makedirs("state/egress")
    os.makedirs(".local/state/egress")
    t = Trail()
    for name in ("env", "yaml", "state/egress/audit.jsonl", ".local/state/egress/audit.jsonl"):
        write(name, [t.line()])
    here = os.getcwd()
    write("config.yaml", [f"audit: {here}/yaml\n"])
    state = environment(XDG_STATE_HOME=f"{here}/state")
    both = environment(XDG_STATE_HOME=f"{here}/state", EGRESS_AUDIT=f"stdout,{here}/env")
    for env, args, line in ((both, [], 1), (both, ["--config", "config.yaml"], 1),
                            (state, ["--config", "config.yaml"], 2), (state, [], 3),
                            (environment(), [], 4)):
        want(urls(ctl("audit", "tail", *args, env=env)[0]), [line], f"tail {args}")
        want(urls(ctl("audit", "query", *args, env=env)[0]), [line], f"query {args}")
        ctl("audit", "verify", *args, env=env)


def case_a_missing_file_is_named():
    for command in ("tail", "query", "verify"):
        _, err = ctl("audit", command, code=2)
        want_in(f"{os.getcwd()}/.local/state/egress/audit.jsonl", err, command)
        want_in("--file", err, command)
        want_in("--file", ctl("audit", command, "--file", "nope", code=2)[1], command)
    ctl("audit", "tail", "-f", "--file", "nope", code=2)


# --- usage ---

def case_wrong_usage_is_2_and_says_the_nearest():
    for args, said in (
            ([], "USAGE"), (["aduit"], "egressctl audit"), (["audit", "tial"], "audit tail"),
            (["audit"], "USAGE"), (["policy"], "USAGE"), (["zzz"], "--help"),
            (["audit", "query", "--formt", "csv"], "--format"),
            (["audit", "query", "--format", "xml"], "csv"),
            (["audit", "query", "--since", "soon"], "10m"),
            (["audit", "query", "--kind", "raed"], "read"),
            (["audit", "query", "--kind", "x"], "query --help"),
            (["audit", "query", "--uid", "root"], "number"),
            (["audit", "query", "--uid", "4294967295"], "number"),
            (["audit", "query", "--limit", "0"], "from 1"),
            (["audit", "query", "extra"], "extra"), (["audit", "tail", "-n", "x"], "number"),
            (["audit", "tail", "-n", "1000001"], "1000000"), (["audit", "tail", "-n"], "value"),
            (["policy", "check", "GET"], "METHOD and URL"),
            (["policy", "check", "--address", "x", "GET", "http://docs.test/"], "IP address")):
        out, err = ctl(*args, code=2)
        want(out, "", f"stdout of {args}")
        want_in(said, err, f"stderr of {args}")


def case_help_and_version():
    want_in("egressctl 0", ctl("--version")[0], "version")
    for args in ([], ["audit"], ["audit", "tail"], ["audit", "query"], ["audit", "verify"],
                 ["audit", "context"], ["policy"], ["policy", "check"], ["policy", "get"],
                 ["policy", "set"], ["policy", "allow"], ["policy", "deny"], ["policy", "rm"],
                 ["vault", "list"], ["status"], ["sandbox"], ["sandboxes"], ["watch"]):
        out, err = ctl(*args, "--help")
        want_in("USAGE", out, f"{args}")
        want(err, "", "stderr")
        want(max(len(x) for x in out.splitlines()) <= 90, True, f"{args}: width")
        if args not in (["audit"], ["policy"]):
            want_in("EXIT CODES", out, f"{args}")
            behind = out.partition("EXIT CODES")[2].partition("EXAMPLE")[0]
            want(re.findall(r"^ +--.*", behind, re.M), [], f"{args}: options among exit codes")
    with open(os.path.join(os.environ["EGRESS_SRC"], "audit/event.h"), encoding="utf-8") as f:
        kinds = re.findall(r'^\tX\([A-Z]+, "(\w+)"\)', f.read().partition("enum audit_kind")[0], re.M)
    told = re.search(r"--kind K +((?:[\w,]+\s+)+?)--", ctl("audit", "query", "--help")[0])[1]
    want(re.split(r",\s+", told.strip()), kinds, "kinds")


# --- policy check ---

def check(*args, code, env=None):
    out, err = ctl("policy", "check", "--config", "config.yaml", "--json", *args, code=code,
                   env=env)
    return json.loads(out), err


def case_policy_check_verdicts():
    write("config.yaml", [CONFIG])
    for args, code, verdict, reason in (
            (["GET", "https://docs.test/x?y#z"], 0, "allowed", "allowed"),
            (["POST", "https://docs.test/"], 1, "blocked", "method_not_read"),
            (["--content", "GET", "https://docs.test/"], 1, "blocked", "read_with_content"),
            (["-H", "X-Http-Method-Override: PUT", "GET", "http://docs.test/"], 1, "blocked",
             "method_override"),
            (["--content", "POST", "https://api.test/"], 0, "allowed", "write_host"),
            (["GET", "https://other.test/"], 1, "blocked", "host_not_listed"),
            (["CONNECT", "docs.test:22"], 1, "blocked", "port_not_allowed"),
            (["PUT", "http://svc.internal/"], 1, "depends", None),
            (["--address", "10.0.0.7", "PUT", "http://svc.internal/"], 0, "allowed",
             "write_private"),
            (["--address", "192.0.2.7", "PUT", "http://svc.internal/"], 1, "blocked",
             "method_not_read"),
            (["--address", "10.0.0.7", "PUT", "http://a.wild.test/"], 1, "blocked",
             "rebinding_write"),
            (["-H", "Bad : x", "GET", "http://docs.test/"], 1, "blocked", "malformed")):
        doc, _ = check(*args, code=code)
        want((doc["verdict"], doc["reason"]), (verdict, reason), f"{args}")
        want((doc["status"] is None), verdict != "blocked", f"{args}: status")
        if verdict == "depends":
            want_in("--address", doc["note"], "note")
    out, _ = ctl("policy", "check", "--config", "config.yaml", "POST", "https://docs.test/",
                 code=1)
    for part in ("blocked", "method_not_read", "rule 1: allow docs.test", "AGENTIC_WRITE_HOSTS"):
        want_in(part, out, "text")


def case_policy_check_takes_the_environment_of_egress():
    env = environment(OPENSANDBOX_EGRESS_MODE="proxy", AGENTIC_WRITE_HOSTS="",
                      OPENSANDBOX_EGRESS_DNS_UPSTREAM="127.0.0.1",
                      OPENSANDBOX_EGRESS_RULES='{"egress":[{"action":"allow","target":"x.test"}]}')
    ctl("policy", "check", "GET", "https://x.test/", env=env)
    ctl("policy", "check", "POST", "https://x.test/", env=env, code=1)
    env["AGENTIC_WRITE_HOSTS"] = "x.test"
    ctl("policy", "check", "POST", "https://x.test/", env=env)
    env["AGENTIC_WRITE_HOST"] = "x.test"
    want_in("AGENTIC_WRITE_HOSTS", ctl("policy", "check", "GET", "https://x.test/", env=env,
                                       code=2)[1], "stderr")


def case_policy_check_wrong_configuration_is_2():
    write("config.yaml", [CONFIG, "unknown_key: 1\n"])
    want_in("config.yaml:12", ctl("policy", "check", "--config", "config.yaml", "GET",
                                  "http://docs.test/", code=2)[1], "stderr")
    want_in("missing.yaml", ctl("policy", "check", "--config", "missing.yaml", "GET",
                                "http://docs.test/", code=2)[1], "stderr")


# --- with egress ---

def answer(port, request):
    end = time.monotonic() + WAIT_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as s:
                s.sendall(request)
                text = b""
                while part := s.recv(65536):
                    text += part
                return text.decode()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise Failed("egress does not listen") from None
            time.sleep(0.05)


def case_the_trail_of_a_running_egress():
    write("config.yaml", [CONFIG, "proxy_addr: 127.0.0.1:18977\n", f"audit: {os.getcwd()}/log\n"])
    with open("egress.log", "w") as log:
        p = subprocess.Popen([EGRESS, "--config", "config.yaml"], stdout=log, stderr=log,
                             env=environment())
    try:
        text = answer(18977, b"POST http://docs.test/x HTTP/1.1\r\nHost: docs.test\r\n"
                      b"Content-Length: 0\r\nConnection: close\r\n\r\n")
    finally:
        p.terminate()
        p.wait(WAIT_S)
    doc, _ = check("POST", "http://docs.test/x", code=1)
    want_in(f"HTTP/1.1 {doc['status']} blocked", text, "the proxy's answer")
    want_in(f"X-Egress-Reason: {doc['reason']}", text, "the proxy's answer")
    out, _ = ctl("audit", "query", "--config", "config.yaml", "--format", "json")
    lines = [json.loads(x) for x in out.splitlines()]
    want([x["kind"] for x in lines], ["start", "write", "stop"], "kinds")
    want((lines[1]["verdict"], lines[1]["reason"], lines[1]["rule"]),
         ("blocked", doc["reason"], doc["rule"]), "the line")
    want_in("whole: 3 lines", ctl("audit", "verify", "--config", "config.yaml")[0], "verify")
    want_in("method_not_read", ctl("audit", "tail", "--config", "config.yaml")[0], "tail")


def main():
    cases = {name[5:].replace("_", "-"): f for name, f in globals().items()
             if name.startswith("case_")}
    if sys.argv[1:] == ["--list"]:
        print("\n".join(cases))
        return 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    top = os.environ.get("EGRESS_TMP") or tempfile.mkdtemp(prefix="egressctl-")
    bad = 0
    for name in sys.argv[1:] or cases:
        folder = os.path.join(top, name)
        os.mkdir(folder)
        os.chdir(folder)
        try:
            cases[name]()
        except (Failed, OSError, ValueError, LookupError, subprocess.SubprocessError) as e:
            bad += 1
            print(f"not ok {name} {type(e).__name__}: {e}".replace("\n", " "), flush=True)
        else:
            print(f"ok {name}", flush=True)
            os.chdir(top)
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
