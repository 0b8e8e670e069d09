"""Load, kills and comparison of kill.sh: `kill.py --help`. Standard library only.

The load is open: each client has a timetable, and what a kill held up is sent late, not left out.
"""

import argparse
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter

CLIENTS = 8
OFFERED_MIN = 0.98  # of the rate: less would be another test than the one that is reported


class Load:
    """CLIENTS threads that send GETs, each with a number of its own, at a rate in all. A GET whose
    connection fails before it is sent goes out on the next one: what was due is sent."""

    def __init__(self, proxy, ca, rate):
        host, port = proxy.rsplit(":", 1)
        self.proxy = (host, int(port))
        self.tls = ssl.create_default_context(cafile=ca)
        self.pause = CLIENTS / rate
        self.start = time.monotonic()
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.sent = 0
        self.answered = 0
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def connect(self):
        raw = socket.create_connection(self.proxy, 5)
        raw.sendall(b"CONNECT read.test:443 HTTP/1.1\r\nHost: read.test:443\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            piece = raw.recv(4096)
            if not piece:
                raise OSError("closed")
            head += piece
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise OSError("refused")
        return self.tls.wrap_socket(raw, server_hostname="read.test")

    def get(self, conn):
        with self.lock:
            self.sent += 1
            number = self.sent
        conn.sendall(
            b"GET /hello.txt?kill=%d HTTP/1.1\r\nHost: read.test\r\n\r\n" % number)
        answer = b""
        while b"\r\n\r\nhello" not in answer:
            piece = conn.recv(4096)
            if not piece:
                raise OSError("closed")
            answer += piece
        with self.lock:
            self.answered += 1

    def client(self, i):
        conn, due = None, self.start + self.pause * i / CLIENTS
        while not self.stop.wait(max(0, due - time.monotonic())):
            try:
                conn = conn or self.connect()
                due += self.pause
                self.get(conn)
            except OSError:
                if conn:
                    conn.close()
                conn = None
                time.sleep(0.005)
        if conn:
            conn.close()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def worker_of(supervisor):
    out = subprocess.run(["pgrep", "-P", str(supervisor)], capture_output=True, text=True)
    return [int(pid) for pid in out.stdout.split()]


def kill_workers(args, load):
    """Kills; returns the seconds that each took until something was answered again."""
    gaps = []
    for _ in range(args.kills):
        time.sleep(0.4)
        before = load.answered
        for pid in worker_of(args.supervisor):
            os.kill(pid, signal.SIGKILL)
        start = time.monotonic()
        while load.answered <= before + CLIENTS and time.monotonic() < start + 10:
            time.sleep(0.005)
        gaps.append(time.monotonic() - start)
    return gaps


def numbers_at_origin(path):
    with open(path, encoding="utf-8") as log:
        return Counter(re.findall(r"[?]kill=(\w+)", log.read()))


def lines_of(path):
    lines = []
    with open(path, encoding="utf-8") as trail:
        for text in trail:
            lines.append(json.loads(text))
    return lines


def compare(args):
    """Errors, and how many lines say interrupted."""
    seen = numbers_at_origin(args.origin_log)
    lines = lines_of(args.audit)
    found, interrupted, errors = Counter(), 0, []
    for line in lines:
        match = re.search(r"[?]kill=(\w+)", line["url"] or "")
        if match and line["kind"] == "read":
            found[match.group(1)] += 1
            interrupted += line["reason"] == "interrupted"
    if not seen:
        errors.append("the origin saw nothing")
    lost = [number for number in seen if number not in found]
    if lost:
        errors.append(f"{len(lost)} requests without a line, as {lost[:5]}")
    twice = [number for number, count in found.items() if count > 1]
    if twice:
        errors.append(f"{len(twice)} requests with more than one line, as {twice[:5]}")
    seqs = [line["seq"] for line in lines]
    if seqs != list(range(seqs[0], seqs[0] + len(seqs))):
        errors.append("seq has a hole or a repeat")
    return errors, interrupted, len(seen), len(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare-only", action="store_true")
    parser.add_argument("--proxy")
    parser.add_argument("--ca")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--rate", type=int)
    parser.add_argument("--supervisor", type=int)
    parser.add_argument("--origin-log", required=True)
    parser.add_argument("--audit", required=True)
    args = parser.parse_args()
    text = ""
    if not args.compare_only:
        load = Load(args.proxy, args.ca, args.rate)
        gaps = kill_workers(args, load)
        took = time.monotonic() - load.start
        load.end()
        time.sleep(1)
        rate = load.sent / took
        text = (f"{args.kills} kills, {load.sent} requests sent in {took:.1f} s "
                f"({rate:.1f}/s of {args.rate}/s), {load.answered} answered, "
                f"served again after {sorted(gaps)[len(gaps) // 2] * 1000:.0f} ms (median), "
                f"{max(gaps) * 1000:.0f} ms (most); ")
    errors, interrupted, seen, lines = compare(args)
    if not args.compare_only and rate < args.rate * OFFERED_MIN:
        errors.append(f"only {rate:.1f} requests a second")
    if not args.compare_only and interrupted > args.kills * CLIENTS:
        errors.append(f"{interrupted} lines say interrupted")
    print(f"{text}{seen} seen by the origin, {lines} lines, {interrupted} interrupted"
          + "".join(f"; {error}" for error in errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
