#!/usr/bin/env python3
"""The operator's ceiling from the attacker's side: whoever has the token of the API, or says the policy
of the start, opens nothing above it, by name, address, port or type of question.

Each attempt is seen to get out without a ceiling. Bed: gatebed.py. Decisions one by one:
unit/policy/test_ceiling.c."""
import json
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from gatebed import Bed, rules  # noqa: E402
from guardbed import EVIL, GOOD, META, PRIVATE, Failed, Inside, until, want  # noqa: E402

START = [("allow", "read.test", None)]
CEILING = [("allow", "read.test", None), ("deny", "bad.wild.test", None), ("allow", "*.wild.test", None),
           ("allow", "ports.test", [5000]), ("allow", GOOD[4], None), ("allow", "two.test", None)]
# What a change asks for, and the rule of the ceiling that refuses it.
WIDER = [
    ({"defaultAction": "allow"}, "default action: allow", "default action: deny"),
    ([("allow", "evil.test", None)], "allow evil.test", "default action: deny"),
    ([("allow", "*.evil.test", None)], "allow *.evil.test", "default action: deny"),
    ([("allow", "*.test", None)], "allow *.test", "default action: deny"),
    ([("allow", "bad.wild.test", None)], "allow bad.wild.test", "rule 2: deny bad.wild.test"),
    ([("allow", EVIL[4], None)], f"allow {EVIL[4]}", "default action: deny"),
    ([("allow", "0.0.0.0/0", None)], "allow 0.0.0.0/0", "default action: deny"),
    ([("allow", "::/0", None)], "allow ::/0", "default action: deny"),
    ([("allow", META[4], None)], f"allow {META[4]}", "default action: deny"),
    ([("allow", "ports.test", [5000, 8080])], "allow ports.test ports 5000,8080", "default action: deny"),
    ([("allow", "", [5000])], "allow ports 5000", "default action: deny"),
]


def body(rows, patch=False):
    if isinstance(rows, dict):
        return json.dumps([] if patch else rows)
    doc = json.loads(rules(rows))["egress"]
    for r in doc:
        if not r["target"]:
            del r["target"]
    return json.dumps(doc if patch else {"egress": doc})


def ceiling(bed, rows, name="ceiling.json", **doc):
    path = bed.write("ceiling.new", json.dumps({**json.loads(rules(rows)), **doc}))
    os.rename(path, bed.path(name))
    return bed.path(name)


def forbidden(frame):
    """IP towards the address that nobody may reach."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        return frame[30:34] in (socket.inet_aton(EVIL[4]), socket.inet_aton(META[4]))
    return kind == b"\x86\xdd" and frame[38:54] == socket.inet_pton(socket.AF_INET6, EVIL[6])


def attempts(bed):
    """By name, by address, by the web; how many of them got somewhere."""
    out = 0
    for name in ("evil.test", "x.evil.test", "bad.wild.test"):
        out += EVIL[4] in bed.dig(name)
        out += "200" == bed.curl("--resolve", f"{name}:80:{EVIL[4]}", f"http://{name}/x")[-3:]
    for addr in (EVIL[4], EVIL[6]):
        out += bed.opens(addr, 5000) == "echo"
    return out


def held(bed, what):
    bed.tap.clear()
    want(attempts(bed), 0, f"{what}: attempts that got somewhere")
    time.sleep(0.1)
    want(bed.tap.has(forbidden), 0, f"{what}: packets behind the box")


def case_api_opens_nothing_above_it(bed):
    start = rules(START)
    bed.with_settings(OPENSANDBOX_EGRESS_RULES=start)
    for rows, *_ in WIDER:
        bed.change("PUT", body(rows))
    bed.change("PUT", {"defaultAction": "allow"})
    bed.tap.clear()
    if attempts(bed) < 5 or not bed.tap.has(forbidden):
        raise Failed("without a ceiling the attempts get nowhere either")
    bed.with_settings(OPENSANDBOX_EGRESS_RULES=start,
                      EGRESS_POLICY_CEILING_FILE=ceiling(bed, CEILING))
    before = bed.ask("GET", "/policy")[2]
    for rows, asked, least in WIDER:
        for method in ("PUT", "POST", "PATCH"):
            if isinstance(rows, dict) and method == "PATCH":
                continue
            code, _, text = bed.ask(method, "/policy", body(rows, method == "PATCH"))
            want((code, json.loads(text)), (400, {
                "code": "above_ceiling",
                "message": f"{'' if isinstance(rows, dict) else 'rule 1: '}{asked}: above the "
                           f"operator's ceiling ({least})"}), f"{method} {rows}")
    want(bed.ask("GET", "/policy")[2], before, "the policy after all that")
    held(bed, "after refused changes")
    # and what it allows can be had
    bed.patch(("allow", "*.wild.test"), ("allow", GOOD[4]), ("allow", "ports.test"))
    want(bed.opens(GOOD[4], 5000), "echo", "an address that both allow")
    want("IN\tA" in bed.dig("a.wild.test"), True, "a name that both allow")
    held(bed, "after changes below it")


def case_what_it_narrows(bed):
    """Rules that are taken count as far as the ceiling goes."""
    settings = {"OPENSANDBOX_EGRESS_RULES": rules(START)}
    ask = ("allow", "text.wild.test"), ("allow", "*.wild.test"), ("allow", "ports.test")

    def txt():
        mark = len(bed.asked())
        bed.dig("text.wild.test", "TXT")
        return [r[1:] for r in bed.asked()[mark:] if r[1] == "TXT"]

    def port(number):
        addr = next(a for a in bed.dig("+short", "ports.test").split() if a[0].isdigit())
        return bed.opens(addr, number)
    bed.with_settings(**settings)
    bed.patch(*ask)
    want((len(txt()) > 0, port(8080) != "ConnectionRefusedError", EVIL[4] in bed.dig("bad.wild.test")),
         (True, True, True), "without a ceiling")
    bed.with_settings(EGRESS_POLICY_CEILING_FILE=ceiling(bed, CEILING), **settings)
    bed.patch(*ask)
    want(txt(), [], "TXT questions for a name that the ceiling has by a wildcard")
    want(port(5000), "echo", "a port that both allow")
    want(port(8080), "ConnectionRefusedError", "a port that the ceiling has not")
    want("NXDOMAIN" in bed.dig("bad.wild.test"), True, "a name that the ceiling denies")


def case_start_policy_is_narrowed(bed):
    """From the environment and from a saved file: taken, warned of, and held."""
    for what, more in (
            ("environment", {"OPENSANDBOX_EGRESS_RULES": '{"defaultAction":"allow"}'}),
            ("saved file", {"OPENSANDBOX_EGRESS_POLICY_FILE": bed.write(
                "saved.json", json.dumps({**json.loads(rules([("allow", EVIL[4], None)])),
                                          "defaultAction": "allow"}))})):
        bed.with_settings(**more)
        bed.tap.clear()
        if attempts(bed) < 5 or not bed.tap.has(forbidden):
            raise Failed(f"{what}: without a ceiling the attempts get nowhere either")
        bed.with_settings(EGRESS_POLICY_CEILING_FILE=ceiling(bed, CEILING), **more)
        held(bed, what)
        want(bed.opens(GOOD[4], 5000), "echo", f"{what}: an address that both allow")
        want("above the operator's ceiling (default action: deny); it counts as far" in bed.output(),
             True, f"{what}: a warning")
        want(json.loads(bed.ask("GET", "/policy")[2])["policy"]["defaultAction"], "allow",
             f"{what}: the policy as it was written")


def reload(bed, text):
    n = bed.output().count(text)
    bed.process.send_signal(signal.SIGHUP)
    until(lambda: bed.output().count(text) > n, text, 5)


def echo(s):
    s.sendall(b"ping\n")
    return s.recv(64) == b"ping\n"


def case_reload_narrows_and_cuts(bed):
    """SIGHUP reads it again; what is open and above it ends within a second. A bad file changes nothing."""
    path = ceiling(bed, CEILING)
    bed.with_settings(OPENSANDBOX_EGRESS_RULES=rules([("allow", GOOD[4], None),
                                                      ("allow", "read.test", None)]),
                      EGRESS_POLICY_CEILING_FILE=path)
    with Inside(bed.box):
        s = socket.socket()
    s.settimeout(2)
    s.connect((GOOD[4], 5000))
    want(echo(s), True, "a connection that both allow")
    with open(path, "w", encoding="ascii") as f:
        f.write("egress: [{action: maybe}]")
    reload(bed, "reload refused, nothing is changed: EGRESS_POLICY_CEILING_FILE")
    want(echo(s), True, "after a reload of a bad file")
    os.unlink(path)
    reload(bed, "reload refused, nothing is changed: EGRESS_POLICY_CEILING_FILE")
    ceiling(bed, [("allow", "read.test", None)])
    reload(bed, "rules in force")
    start = time.monotonic()
    try:
        while echo(s):
            time.sleep(0.05)
    except OSError:
        pass
    took = time.monotonic() - start
    s.close()
    if took > 1.2:
        raise Failed(f"it was cut after {took:.1f} s")
    want(bed.opens(GOOD[4], 5000), "ConnectionRefusedError", "a new one")
    os.kill(bed.worker_pid(), signal.SIGKILL)  # the next one has the same ceiling
    until(lambda: bed.health()[0] == 200, "green", 8)
    want(bed.opens(GOOD[4], 5000), "ConnectionRefusedError", "after the worker's end")
    want(bed.ask("PATCH", "/policy", body([("allow", "two.test", None)], True))[0], 400, "PATCH")
    bed.process.terminate()  # its log has the end of the worker
    want(bed.process.wait(20), 0, "exit code")
    bed.process = bed.running = None


def case_start_without_the_file_is_closed(bed):
    bed.free()
    bed.running = None
    bed.launch(EGRESS_POLICY_CEILING_FILE=bed.path("no-ceiling"))
    until(lambda: "EGRESS_POLICY_CEILING_FILE" in bed.health()[1], "the cause", 6)
    # the cause may be told a moment before the rules are there
    until(lambda: bed.opens(PRIVATE[4], 8080) == "ConnectionRefusedError", "closed to what policy allows")
    held(bed, "closed")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
