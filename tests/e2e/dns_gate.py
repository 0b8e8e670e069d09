#!/usr/bin/env python3
"""The DNS gate with the tools that people use, dig and kdig, and bytes that no tool sends.

The gate is the real one without a kernel behind it (tests/oracle/dns_gate.c); the resolvers are
tests/tools/dnsd.py, whose logs say what left. A refusal counts only if the resolver, asked directly
in the same run, gives the answer that the gate held back."""
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SRC = os.environ.get("EGRESS_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
GATE = os.path.join(os.environ.get("EGRESS_BUILD") or os.path.join(SRC, "build", "gcc-asan"),
                    "tests", "oracle", "dns-gate")
ADDR, PORT, RESOLVER, SECOND = "127.0.0.1", 15353, ("127.0.0.53", 5300), ("127.0.0.54", 5300)
WAIT_S = 10
POLICY = {"defaultAction": "deny", "egress": [
    {"action": "deny", "target": "bad.wild.test"}, {"action": "allow", "target": "*.wild.test"},
    {"action": "allow", "target": "read.test"}, {"action": "allow", "target": "big.test"},
    {"action": "allow", "target": "text.test"}, {"action": "allow", "target": "10.77.0.2"}]}
ZONE = {
    "read.test": {"a": "11.22.0.10", "aaaa": "2a0e:77::10", "ttl": 30},
    "*.wild.test": {"a": "11.22.0.11", "txt": "payload"}, "bad.wild.test": {"a": "11.22.0.12"},
    "v4only.wild.test": {"a": "11.22.0.13"},
    "slow.wild.test": {"a": "11.22.0.14", "drop": ["aaaa"]},
    "rebind.wild.test": {"a": ["10.77.0.3", "127.0.0.1", "169.254.169.254", "100.64.0.1",
                               "0.0.0.0"]},
    "kept.wild.test": {"a": ["10.77.0.3", "10.77.0.2", "11.22.0.15"]},
    "rebind6.wild.test": {"aaaa": ["::1", "fd00::1", "::ffff:10.77.0.3", "64:ff9b::a4d:3"]},
    "big.test": {"a": [f"11.22.1.{i}" for i in range(1, 61)]},
    "fail.wild.test": {"rcode": "SERVFAIL"}, "refused.wild.test": {"rcode": "REFUSED"},
    "text.test": {"txt": "hello"}, "evil.test": {"a": "11.22.0.66", "txt": "out"},
    "*.deny.test": {"a": "11.22.0.66", "txt": "out"},
}


class Failed(Exception):
    """What was seen is not what should be."""


class Skip(Exception):
    """The case cannot run here."""


def want(got, should, what):
    if got != should:
        raise Failed(f"{what}: {got!r}, not {should!r}")


def until(check, what):
    end = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {WAIT_S} s")
        time.sleep(0.02)


class Bed:
    def __init__(self):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
        self.tmp = tempfile.mkdtemp(prefix="dnsgate-", dir=os.environ.get("EGRESS_TMP"))
        self.procs, self.gate = [], None
        zone = self.path("zone.json")
        with open(zone, "w", encoding="ascii") as f:
            json.dump(ZONE, f)
        self.resolvers = [self.resolver(a, zone) for a in (RESOLVER, SECOND)]
        self.start()

    def path(self, name):
        return os.path.join(self.tmp, name)

    def resolver(self, where, zone):
        log = self.path(f"questions-{where[0]}.log")
        out = open(self.path(f"dnsd-{where[0]}.out"), "w+", encoding="ascii")
        p = subprocess.Popen([sys.executable, os.path.join(SRC, "tests", "tools", "dnsd.py"),
                              "--listen", where[0], "--port", str(where[1]), "--zone", zone,
                              "--log", log], stdout=out, stderr=out)
        self.procs.append(p)
        until(lambda: "listening" in open(out.name, encoding="ascii").read(), "resolver")
        return p

    def start(self, *more):
        resolvers = f"{RESOLVER[0]}:{RESOLVER[1]},{SECOND[0]}:{SECOND[1]}"
        self.out, self.err = self.path("gate.out"), self.path("gate.err")
        with open(self.out, "wb") as out, open(self.err, "ab") as err:
            self.gate = subprocess.Popen([GATE, ADDR, str(PORT), resolvers, json.dumps(POLICY),
                                          *more], stdout=out, stderr=err)
        until(lambda: "ready" in self.said(), "gate")

    def said(self):
        return open(self.out, encoding="ascii").read()

    def stop(self):
        self.gate.send_signal(signal.SIGTERM)
        want(self.gate.wait(WAIT_S), 0, "exit code of the gate")

    def again(self, *more):
        self.stop()
        self.start(*more)

    def close(self):
        self.stop()
        for p in self.procs:
            p.send_signal(signal.SIGCONT)
            p.terminate()
            p.wait(WAIT_S)
        err = open(self.err, encoding="ascii").read()
        if "Sanitizer" in err or "runtime error" in err:
            raise Failed(err)

    def asked(self):
        """Names that reached a resolver, in lower case."""
        names = []
        for where in (RESOLVER, SECOND):
            for line in open(self.path(f"questions-{where[0]}.log"), encoding="ascii"):
                names.append(line.split()[5].rstrip(".").lower())
        return names


def tool(*args):
    r = subprocess.run(args, capture_output=True, text=True, timeout=30, check=False)
    return r.stdout + r.stderr


def dig(name, kind="A", *more, port=PORT, at=ADDR):
    return tool("dig", "+tries=1", "+time=5", f"@{at}", "-p", str(port), name, kind, *more)


def status(text):
    m = re.search(r"status: ([A-Z]+)", text)
    return m[1] if m else "none"


def addresses(text):
    return re.findall(r"^\S+\s+\d+\s+IN\s+A+\s+(\S+)$", text, re.M)


def direct(name, kind="A"):
    return dig(name, kind, port=RESOLVER[1], at=RESOLVER[0])


def ask(payload, tcp=False, wait=1.0):
    """What comes back for these bytes, or None."""
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(wait)
    try:
        s.connect((ADDR, PORT))
        s.send(payload)
        return s.recv(65535)
    except (TimeoutError, OSError):
        return None
    finally:
        s.close()


def denied_names_stay_here(bed):
    names = [os.urandom(8).hex() + ".deny.test" for _ in range(50)] + ["evil.test", "wild.test",
             "bad.wild.test", "BAD.wild.TEST", "a.wild.test.evil.test", "www.read.test"]
    want(addresses(direct(names[0])), ["11.22.0.66"], "the resolver itself")
    want(addresses(direct("bad.wild.test")), ["11.22.0.12"], "the resolver itself")
    before = len(bed.asked())
    for i, name in enumerate(names):
        kind = ("A", "AAAA", "TXT", "MX", "NULL", "ANY")[i % 6]
        text = dig(name, kind, *(["+tcp"] if i % 2 else []))
        want(status(text), "NXDOMAIN", f"{name} {kind}")
        want("EDE: 15" in text, True, f"error of {name} in {text}")
        want("SOA" in text, True, f"SOA of {name}")
    want(bed.asked()[before:], [], "what reached a resolver")


def letters_come_back_as_they_were(bed):
    for name in ("ReAd.TeSt", "A.WILD.test", "read.test."):
        text = dig(name)
        want(status(text), "NOERROR", name)
        want(f";{name.rstrip('.')}." in text, True, f"question of {name}")
        want(f"\n{name.rstrip('.')}." in text, True, f"owner of {name}")
    log = open(bed.path(f"questions-{RESOLVER[0]}.log"), encoding="ascii").read()
    sent = {line.split()[5] for line in log.splitlines() if "read.test" in line.lower()}
    want(any(n.lower() != n for n in sent), True, "letters towards the resolver are mixed")


def every_address_was_granted_first(bed):
    text = dig("read.test")
    want(addresses(text), ["11.22.0.10"], "A")
    want("lease 11.22.0.10 90\n" in bed.said(), True, "lease of TTL and a minute")
    want(addresses(dig("read.test", "AAAA")), ["2a0e:77::10"], "AAAA")
    want("lease 2a0e:77::10 90\n" in bed.said(), True, "lease")


def rebinding_answers_are_emptied(bed):
    want(len(addresses(direct("rebind.wild.test"))), 5, "the resolver itself")
    text = dig("rebind.wild.test")
    want((status(text), addresses(text)), ("NOERROR", []), "A")
    want("EDE: 17" in text and "SOA" in text, True, f"says so in {text}")
    want(len(addresses(direct("rebind6.wild.test", "AAAA"))), 4, "the resolver itself")
    want(addresses(dig("rebind6.wild.test", "AAAA")), [], "AAAA")
    want(sorted(addresses(dig("kept.wild.test"))), ["10.77.0.2", "11.22.0.15"], "mixed")
    want("10.77.0.3" in bed.said(), False, "a lease of a private address")


def types_need_an_exact_rule(bed):
    want("payload" in direct("a.wild.test", "TXT"), True, "the resolver itself")
    text = dig("a.wild.test", "TXT")
    want((status(text), "payload" in text), ("NOERROR", False), "TXT of a wildcard")
    want("hello" in dig("text.test", "TXT"), True, "TXT of an exact name")
    want(status(dig("version.bind", "TXT", "-c", "CH")), "NXDOMAIN", "another class")
    want("text.test" in bed.asked(), True, "it was asked")


def no_data_is_no_failure(bed):
    text = dig("v4only.wild.test", "AAAA")
    want((status(text), addresses(text), "SOA" in text), ("NOERROR", [], True), "AAAA")
    begin = time.monotonic()
    both = [threading.Thread(target=dig, args=("slow.wild.test", "AAAA", "+time=1"))]
    both[0].start()
    want(addresses(dig("slow.wild.test")), ["11.22.0.14"], "A beside a lost AAAA")
    want(time.monotonic() - begin < 1, True, "at once")
    both[0].join()


def answers_fit_the_client(bed):
    text = dig("big.test", "A", "+noedns", "+ignore")
    want(" tc" in re.search(r"flags: ([a-z ]+)", text)[1], True, "TC")
    size = int(re.search(r"MSG SIZE\s+rcvd: (\d+)", text)[1])
    want(400 < size <= 512, True, f"{size} bytes")
    want(len(addresses(dig("big.test", "A", "+noedns"))), 60, "by TCP after TC")
    for limit in (512, 513, 1000, 1232, 4096):
        text = dig("big.test", "A", f"+bufsize={limit}", "+ignore")
        size = int(re.search(r"MSG SIZE\s+rcvd: (\d+)", text)[1])
        want(size <= limit, True, f"{size} bytes of {limit}")
        want(" tc" in re.search(r"flags: ([a-z ]+)", text)[1], limit < 1000, f"TC at {limit}")
    want(len(addresses(dig("big.test", "A", "+tcp"))), 60, "+tcp")


def kdig_asks(bed):
    text = tool("kdig", f"@{ADDR}", "-p", str(PORT), "read.test", "A", "+edns", "+nocookie")
    want("11.22.0.10" in text, True, text)
    text = tool("kdig", f"@{ADDR}", "-p", str(PORT), "evil.test", "A", "+edns")
    want("NXDOMAIN" in text, True, text)
    text = tool("kdig", f"@{ADDR}", "-p", str(PORT), "+tcp", "+keepopen", "read.test", "A",
                "v4only.wild.test", "A")
    want("11.22.0.10" in text and "11.22.0.13" in text, True, text)


def hostile_bytes(bed):
    rows = [bytes.fromhex("123401000001000000000000c00c00010001"),
            bytes.fromhex("1234010000010000000000000161c00c00010001"),
            bytes.fromhex("1234010000010000000000003f61"),
            bytes.fromhex("12340100ffff000000000000"), bytes(12), b"\0",
            bytes.fromhex("1234010000010000000000004161000001000100"),
            bytes.fromhex("123401000001000000000000") + b"\x3f" + b"a" * 63 * 4 + b"\0\0\1\0\1",
            os.urandom(2000)]
    for row in rows:
        reply = ask(row, wait=0.3)
        if reply is not None:
            want(reply[:2] == row[:2] and reply[3] & 15 in (1, 4), True, row.hex()[:60])
    want(ask(b"\xff\xff\1\2\3", tcp=True, wait=1), b"", "a length that lies")
    want(status(dig("read.test")), "NOERROR", "the next good question")
    want(status(dig("read.test", "A", "+opcode=UPDATE")), "NOTIMP", "UPDATE")
    want(status(dig("read.test", "A", "+edns=1", "+noednsnegotiation")), "BADVERS", "EDNS 1")
    long = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 1) + b"\4read\4test\0\0\1\0\1"
    long += b"\0" + struct.pack(">HHIH", 41, 1232, 0, 604) + struct.pack(">HH", 12, 600) + bytes(600)
    reply = ask(long)
    want(reply is not None and reply[3] & 15, 0, "a question of 600 bytes")


def failing_resolvers_give_way(bed):
    want(status(dig("fail.wild.test")), "SERVFAIL", "all fail")
    want(status(dig("refused.wild.test")), "SERVFAIL", "all refuse")
    first, second = bed.resolvers
    first.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        want(addresses(dig("a.wild.test")), ["11.22.0.11"], "the second one")
        took = time.monotonic() - begin
        want(1.5 < took < 4, True, f"one timeout: {took:.1f} s")
        second.send_signal(signal.SIGSTOP)
        text = dig("a.wild.test", "A", "+time=9")
        want(status(text), "SERVFAIL", "both silent")
        want("EDE: 22" in text, True, text)
    finally:
        first.send_signal(signal.SIGCONT)
        second.send_signal(signal.SIGCONT)
    want(addresses(dig("a.wild.test")), ["11.22.0.11"], "both back")


def dead_resolver_is_ejected_by_the_probe(bed):
    first = bed.resolvers[0]
    first.send_signal(signal.SIGSTOP)
    try:
        bed.again("2000", "1")
        until(lambda: "upstream probe" in open(bed.err, encoding="ascii").read(), "probe")
        begin = time.monotonic()
        want(addresses(dig("a.wild.test")), ["11.22.0.11"], "the second one")
        want(time.monotonic() - begin < 1, True, "at once")
    finally:
        first.send_signal(signal.SIGCONT)
    until(lambda: "answers again" in open(bed.err, encoding="ascii").read(), "back")
    bed.again()


CASES = {"denied-names-reach-no-resolver": denied_names_stay_here,
         "letters-come-back": letters_come_back_as_they_were,
         "addresses-are-granted-first": every_address_was_granted_first,
         "rebinding-answers-are-emptied": rebinding_answers_are_emptied,
         "types-need-an-exact-rule": types_need_an_exact_rule,
         "no-data-is-no-failure": no_data_is_no_failure,
         "answers-fit-the-client": answers_fit_the_client,
         "kdig": kdig_asks, "hostile-bytes": hostile_bytes,
         "failing-resolvers-give-way": failing_resolvers_give_way,
         "dead-resolver-is-ejected": dead_resolver_is_ejected_by_the_probe}


def main():
    names = [f"dns-{n}" for n in CASES]
    if "--list" in sys.argv:
        print("\n".join(names))
        return
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")] or names
    missing = [t for t in ("dig", "kdig") if not shutil.which(t)]
    bed = None if missing else Bed()
    for name in wanted:
        try:
            if missing:
                raise Skip(f"no {missing[0]}")
            CASES[name.removeprefix("dns-")](bed)
            print(f"ok {name}", flush=True)
        except Skip as e:
            print(f"skip {name} {e}", flush=True)
        except Failed as e:
            print(f"not ok {name} {str(e)[:900]}", flush=True)
    if bed:
        bed.close()


if __name__ == "__main__":
    main()
