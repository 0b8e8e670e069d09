#!/usr/bin/env python3
"""dnsd.py itself: each field of the zone, both transports, both families, log and reload."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

DNSD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dnsd.py")
ZONE = {
    "read.test": {"a": ["11.22.0.10", "11.22.0.11"], "aaaa": "2001:db8::1", "ttl": 7},
    "www.test": {"cname": "Read.Test."},
    "loop.test": {"cname": "loop.test"},
    "*.wild.test": {"a": "11.22.0.12"},
    "*.deep.wild.test": {"a": "11.22.0.13"},
    "fail.test": {"rcode": "SERVFAIL"},
    "odd.test": {"a": "11.22.0.14", "aaaa_rcode": "NXDOMAIN"},
    "slow.test": {"a": "11.22.0.15", "delay_ms": 120},
    "half.test": {"a": "11.22.0.16", "drop": ["aaaa"]},
    "dark.test": {"drop": True},
    "cut.test": {"a": "11.22.0.17", "truncate": True},
    "many.test": {"a": [f"11.23.0.{i}" for i in range(1, 61)]},
    "turn.test": {"a": ["11.22.0.18", "10.77.0.3"], "rotate": 1},
    "text.test": {"txt": "x" * 300},
}


def question(name, qtype, edns):
    wire = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    opt = b"\0" + struct.pack("!HHIH", 41, edns, 0, 0) if edns else b""
    return (struct.pack("!HHHHHH", 4711, 0x0100, 1, 0, 0, 1 if edns else 0) + wire + b"\0" +
            struct.pack("!HH", qtype, 1) + opt)


def name_end(message, at):
    while message[at]:
        if message[at] & 0xc0:
            return at + 2
        at += message[at] + 1
    return at + 1


def reply_read(message):
    """(rcode, truncated, [(type, ttl, value)] of the answer section, records of authority)."""
    ident, flags, _, answers, authority, _ = struct.unpack("!HHHHHH", message[:12])
    assert ident == 4711 and flags & 0x8000
    at = name_end(message, 12) + 4
    records = []
    for _ in range(answers):
        at = name_end(message, at)
        qtype, _, ttl, size = struct.unpack("!HHIH", message[at:at + 10])
        records.append((qtype, ttl, message[at + 10:at + 10 + size]))
        at += 10 + size
    return flags & 15, bool(flags & 0x200), records, authority


class DnsdTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.log = os.path.join(self.dir.name, "log")
        self.zone = os.path.join(self.dir.name, "zone")
        self.zone_write(json.dumps(ZONE))
        self.start("127.0.0.1")

    def tearDown(self):
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(5), 0)
        self.process.stdout.close()
        self.process.stderr.close()
        self.dir.cleanup()

    def start(self, address):
        self.process = subprocess.Popen(
            [sys.executable, DNSD, "--listen", address, "--port", "0", "--zone", self.zone,
             "--log", self.log], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        words = self.process.stdout.readline().split()
        self.assertEqual(words[:2], ["listening", address])
        self.to = (address, int(words[2]))
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def zone_write(self, text):
        with open(self.zone, "w", encoding="utf-8") as file:
            file.write(text)

    def log_words(self):
        with open(self.log, encoding="utf-8") as file:
            return [line.split() for line in file]

    def raw(self, message, wait=2.0):
        with socket.socket(self.family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(wait)
            sock.sendto(message, self.to)
            try:
                return sock.recv(65535)
            except TimeoutError:
                return None

    def ask(self, name, qtype=1, edns=0, wait=2.0):
        message = self.raw(question(name, qtype, edns), wait)
        return reply_read(message) if message else None

    def ask_tcp(self, name, qtype=1):
        with socket.create_connection(self.to, 2) as sock:
            message = question(name, qtype, 0)
            sock.sendall(struct.pack("!H", len(message)) + message)
            file = sock.makefile("rb")
            (size,) = struct.unpack("!H", file.read(2))
            return reply_read(file.read(size))

    def addrs(self, reply):
        return [socket.inet_ntoa(r[2]) for r in reply[2] if r[0] == 1]

    def test_values_and_ttl(self):
        reply = self.ask("ReAd.TeSt")
        self.assertEqual(self.addrs(reply), ["11.22.0.10", "11.22.0.11"])
        self.assertEqual((reply[0], reply[2][0][1], reply[3]), (0, 7, 0))
        reply = self.ask("read.test", 28)
        self.assertEqual(reply[2][0][2], socket.inet_pton(socket.AF_INET6, "2001:db8::1"))
        self.assertEqual(self.ask("text.test", 16)[2][0][2][:2], b"\xffx")

    def test_chain_and_loop(self):
        reply = self.ask("www.test")
        self.assertEqual([r[0] for r in reply[2]], [5, 1, 1])
        self.assertEqual(self.ask("www.test", 5)[2][0][0], 5)
        self.assertEqual(self.ask("loop.test")[0], 2)

    def test_wildcards(self):
        self.assertEqual(self.addrs(self.ask("a.b.wild.test")), ["11.22.0.12"])
        self.assertEqual(self.addrs(self.ask("a.deep.wild.test")), ["11.22.0.13"])
        self.assertEqual(self.ask("wild.test")[0], 3)
        self.assertEqual(self.ask("xwild.test")[0], 3)

    def test_no_records_carry_an_soa(self):
        self.assertEqual(self.ask("fail.test")[0], 2)
        self.assertEqual(self.ask("wild.test", 28)[3], 1)
        self.assertEqual(self.ask("many.test", 28), (0, False, [], 1))
        self.assertEqual(self.ask("odd.test", 28)[0], 3)
        self.assertEqual(self.ask("odd.test")[0], 0)

    def test_delay_and_drop(self):
        begin = time.monotonic()
        self.assertEqual(self.addrs(self.ask("slow.test")), ["11.22.0.15"])
        self.assertGreaterEqual(time.monotonic() - begin, 0.12)
        self.assertIsNone(self.ask("half.test", 28, wait=0.2))
        self.assertEqual(self.addrs(self.ask("half.test")), ["11.22.0.16"])
        self.assertIsNone(self.ask("dark.test", wait=0.2))

    def test_truncation_and_tcp(self):
        self.assertEqual(self.ask("cut.test"), (0, True, [], 0))
        self.assertEqual(self.addrs(self.ask_tcp("cut.test")), ["11.22.0.17"])
        self.assertTrue(self.ask("many.test")[1])
        self.assertEqual(len(self.ask("many.test", edns=1232)[2]), 60)
        self.assertEqual(len(self.ask_tcp("many.test")[2]), 60)

    def test_rotation(self):
        seen = [self.addrs(self.ask("turn.test")) for _ in range(3)]
        self.assertEqual(seen, [["11.22.0.18"], ["10.77.0.3"], ["11.22.0.18"]])

    def test_log(self):
        self.ask("ReAd.test", 28)
        self.ask_tcp("nowhere.test")
        self.assertIsNone(self.raw(b"\0" * 12, 0.1))
        self.assertIsNone(self.ask("dark.test", wait=0.1))
        words = self.log_words()
        self.assertEqual([w[1] for w in words], ["udp", "tcp", "udp", "udp"])
        self.assertEqual([w[4:] for w in words], [
            ["AAAA", "ReAd.test", "NOERROR"], ["A", "nowhere.test", "NXDOMAIN"],
            ["-", "-", "BAD"], ["A", "dark.test", "DROP"]])

    def test_reload_keeps_a_zone_when_the_new_one_is_bad(self):
        self.zone_write("# lines\nread.test a=11.22.0.20,11.22.0.21 ttl=9\n")
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 5
        while self.addrs(self.ask("read.test"))[0] != "11.22.0.20":
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(self.ask("www.test")[0], 3)
        self.zone_write('{"read.test": {"aa": "1.1.1.1"}}')
        self.process.send_signal(signal.SIGHUP)
        self.assertIn("unknown field 'aa'", self.process.stderr.readline())
        self.assertEqual(self.addrs(self.ask("read.test")), ["11.22.0.20", "11.22.0.21"])

    def test_bad_zone_ends_the_start(self):
        self.zone_write('{"x.test": {"a": "fd00::1"}}')
        done = subprocess.run([sys.executable, DNSD, "--port", "0", "--zone", self.zone],
                              capture_output=True, text=True, timeout=10, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("x.test", done.stderr)

    def test_ipv6_listener(self):
        if not os.path.exists("/proc/net/if_inet6"):
            self.skipTest("no IPv6")
        self.tearDown()
        self.dir = tempfile.TemporaryDirectory()
        self.log = os.path.join(self.dir.name, "log")
        self.zone = os.path.join(self.dir.name, "zone")
        self.zone_write(json.dumps(ZONE))
        self.start("::1")
        self.assertEqual(self.addrs(self.ask("odd.test")), ["11.22.0.14"])
        self.assertEqual(self.addrs(self.ask_tcp("odd.test")), ["11.22.0.14"])


if __name__ == "__main__":
    unittest.main()
