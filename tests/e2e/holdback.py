#!/usr/bin/env python3
"""An origin that ends its pieces in guesses, and a client that watches sizes and moments: what is
held back of an answer must tell nothing about the key.

Each question is asked twice, with the beginning of a form of the key and with a text of the same
class of bytes. The origin waits until the client has seen what came of it. The same questions go to
egress-naive, which holds back what resembles the key: it is seen to tell, and to be spelled out."""
import fcntl
import json
import os
import queue
import random
import select
import ssl
import statistics
import struct
import sys
import termios
import threading
import time

import casebed
import leakscan
from casebed import Failed, Skip, want
from limitbed import say, start

HOST = "api.model.test"
TOKENS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&*+-./:;=?@\\^_|~"
LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"
PAIRS = 1000
NAIVE = os.path.join(os.environ.get("EGRESS_BUILD") or os.path.dirname(os.path.dirname(
    casebed.EGRESS)), "tests", "oracle", "egress-naive")
BARRIER = b"GET http://deny.test/ HTTP/1.1\r\nHost: deny.test\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


def token_key(n=20):
    return b"sk-" + bytes(random.choice(TOKENS[:62]) for _ in range(n))


class Watched:
    """One answer that goes on for ever, seen from both ends."""

    def __init__(self, bed, egress):
        self.bed, self.egress, self.peers = bed, egress, queue.Queue()
        self.over = threading.Event()
        bed.origins.routes["/v1/hold"] = self.origin
        self.sock = bed.connect(f"{HOST}:443", ("127.0.0.1", egress.port))
        self.other = bed.dial("127.0.0.1", egress.port)
        self.bytes_in, self.bytes_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = egress.context.wrap_bio(self.bytes_in, self.bytes_out, server_hostname=HOST)
        self.raw, self.plain = b"", b""
        self.shake()
        self.tls.write(b"GET /v1/hold HTTP/1.1\r\nHost: %s\r\n\r\n" % HOST.encode())
        self.sock.sendall(self.bytes_out.read())
        self.peer = self.peers.get(timeout=casebed.WAIT_S)
        self.send(b"begin\n")
        self.barrier()
        self.seen()

    def origin(self, peer, head):
        peer.send(HEAD)
        self.peers.put(peer)
        self.over.wait(120)
        return False

    def shake(self):
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.sock.sendall(self.bytes_out.read())
                self.bytes_in.write(self.sock.recv(65536))
        self.sock.sendall(self.bytes_out.read())

    def send(self, text):
        self.peer.send(b"%x\r\n%s\r\n" % (len(text), text))

    def barrier(self):
        """What the origin sent has arrived, and questions that were asked later are answered: the
        one loop has dealt with what came before them. Two, since two sockets may be served by two
        processors."""
        while struct.unpack("i", fcntl.ioctl(self.peer.sock, termios.TIOCOUTQ, b"\0" * 4))[0]:
            time.sleep(0.0001)
        for _ in range(2):
            self.other.sendall(BARRIER)
            data = b""
            while not casebed.replies_of(data, False):
                more = self.other.recv(65536)
                if not more:
                    raise Failed("no answer of the barrier")
                data += more

    def seen(self):
        """((lengths of TLS records), (lengths of chunks)) of what has come since the last call."""
        self.sock.setblocking(False)
        try:
            while data := self.sock.recv(65536):
                self.raw += data
                self.bytes_in.write(data)
            raise Failed("the answer has ended")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            self.sock.settimeout(casebed.WAIT_S)
        records = []
        while len(self.raw) >= 5:
            size = int.from_bytes(self.raw[3:5], "big")
            if len(self.raw) < 5 + size:
                raise Failed("half a record")
            records.append(size)
            self.raw = self.raw[5 + size:]
        try:
            while data := self.tls.read(65536):
                self.plain += data
        except ssl.SSLWantReadError:
            pass
        return tuple(records), tuple(self.chunks())

    def chunks(self):
        if self.plain.startswith(b"HTTP/"):
            self.plain = self.plain.split(b"\r\n\r\n", 1)[1]
        while self.plain:
            size, _, rest = self.plain.partition(b"\r\n")
            n = int(size, 16)
            self.plain = rest[n + 2:]
            yield n

    def ask(self, *pieces):
        """What comes out after each piece, and after an end of the run; and the seconds until the
        first byte."""
        out, took = [], None
        for piece in (*pieces, b"\n\n"):
            began = time.perf_counter()
            self.send(piece)
            if took is None:
                select.select([self.sock], [], [], 1)  # the line before the run
                took = time.perf_counter() - began
            self.barrier()
            out.append(self.seen())
        return tuple(out), took

    def close(self):
        self.over.set()
        self.sock.close()
        self.other.close()


def watched(bed, name, key, program=None):
    """A running egress with this key, and an answer through it. The origin sends parts of the key
    to the client here, so that ordinary memory holds them: it is not searched for them."""
    if program and not os.access(program, os.X_OK):
        raise Skip(f"no program {program}")
    path = bed.path(f"{name}.json")
    vault = {"credentials": [{"name": "k", "source": {"value": key.decode()}}],
             "bindings": [{"name": "b", "match": {"hosts": [HOST], "paths": ["/v1/*"]},
                           "auth": {"type": "bearer", "credential": "k"}}]}
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as f:
        json.dump(vault, f)
    egress = start(bed, name, program=program, EGRESS_VAULT_FILE=path)
    egress.leak.known.add(key)
    return Watched(bed, egress)


def class_of(text):
    return bytes(c if c in b"\r\n" else ord("t") if c in TOKENS else ord("o") for c in text)


def twin(text):
    """Another text of the same class; half of them are right but for the last few bytes."""
    keep = max(0, len(text) - random.randint(1, 3)) if random.random() < 0.5 else 0
    other = b" \t\"'(),<>[]{}"
    return text[:keep] + bytes(
        random.choice(TOKENS if c in TOKENS else other) if c not in b"\r\n" else c
        for c in text[keep:])


def questions(key):
    """[(true pieces, guessed pieces)]: the beginning of each form in each length, then longer runs
    and runs in two pieces."""
    forms = sorted({text for text in leakscan.spellings(key).values()})
    longest = max(len(f) for f in forms)
    truths = [f[:n] for f in forms for n in range(1, len(f))]
    random.shuffle(truths)
    out = [((b"a:\n" + t,), (b"a:\n" + twin(t),)) for t in truths]
    while len(out) < PAIRS:
        f = random.choice(forms)
        truth = f[:random.randint(4, len(f) - 1)]
        run = bytes(random.choice(TOKENS) for _ in range(random.randint(1, longest)))
        guess, cut = twin(truth), random.randint(1, len(truth))
        if random.random() < 0.5:
            out.append(((b"a:\n" + run + truth,), (b"a:\n" + run + guess,)))
        else:
            out.append(((b"a:\n" + truth[:cut], truth[cut:] or b"t"),
                        (b"a:\n" + guess[:cut], guess[cut:] or b"t")))
    return out


def told(watch, pairs):
    """(pairs whose answers differ, {class: {answers}}, seconds of truths, seconds of guesses)"""
    n, by_class, times = 0, {}, ([], [])
    for truth, guess in pairs:
        seen = [None, None]
        for which in random.sample((0, 1), 2):
            pieces = (truth, guess)[which]
            seen[which], took = watch.ask(*pieces)
            times[which].append(took)
            shape = tuple(class_of(p) for p in pieces)
            by_class.setdefault(shape, set()).add(seen[which])
        n += seen[0] != seen[1]
    return n, by_class, *times


def learned(watch, key):
    """How many bytes are spelled out by asking which next one is held back, from three that are
    known."""
    known = 3
    while known < len(key) - 1:
        hits = []
        for c in LETTERS:
            (first, *_), _ = watch.ask(b"\n" + key[:known] + bytes([c]))
            if sum(first[1]) == 1:  # the line end alone
                hits.append(c)
        if hits != [key[known:known + 1].lower()[0]]:
            break
        known += 1
    return known - 3


def rank(some, others):
    """The chance that one of the first is larger than one of the others: 0.5 tells nothing."""
    both = sorted([(t, 0) for t in some] + [(t, 1) for t in others])
    ranks = sum(i for i, (_, which) in enumerate(both, 1) if which == 0)
    return (ranks - len(some) * (len(some) + 1) / 2) / (len(some) * len(others))


def compare(bed, name, key):
    """Both programs, the same questions."""
    pairs = questions(key)
    watch = watched(bed, name, key)
    differ, by_class, truths, guesses = told(watch, pairs)
    watch.close()
    watch = watched(bed, f"{name}-naive", key, NAIVE)
    control, by_class_naive, *_ = told(watch, pairs)
    watch.close()
    several = [c for c, answers in by_class.items() if len(answers) > 1]
    chance = rank(truths, guesses)
    say(f"{name}: {len(pairs)} pairs, {len(by_class)} classes, {differ} told, "
        f"control {control} told; first byte after {statistics.median(truths) * 1e6:.0f} us "
        f"(truths), {statistics.median(guesses) * 1e6:.0f} us (guesses), rank {chance:.3f}")
    want((differ, len(several)), (0, 0), "pairs that differ, classes with more than one answer")
    if control < 0.8 * len(pairs) or not any(len(a) > 1 for a in by_class_naive.values()):
        raise Failed(f"the control tells only {control} of {len(pairs)} pairs")
    if abs(chance - 0.5) > 0.1:
        raise Failed(f"moments tell truths from guesses: {chance:.3f}")
    bed.rows_run += 4 * len(pairs)


def H1_sizes_and_moments_follow_the_class(bed):
    compare(bed, "hold", token_key())


def H2_also_where_a_key_has_blanks(bed):
    words = [bytes(random.choice(LETTERS) for _ in range(5)) for _ in range(4)]
    compare(bed, "hold-words", b" ".join(words))


def H3_the_key_cannot_be_spelled_out(bed):
    key = token_key()
    for name, program, should in (("spell", None, 0), ("spell-naive", NAIVE, len(key) - 4)):
        watch = watched(bed, name, key, program)
        want(learned(watch, key), should, f"{name}: bytes learned")
        watch.close()


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"H\d+_"))
