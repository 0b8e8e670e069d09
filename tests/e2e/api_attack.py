#!/usr/bin/env python3
"""The API's port under attack, as the sandbox can reach it: idle, slow and oversized callers, floods,
and guesses of the token. Who knows the token is served at once all the while. Bed: apibed.py; bodies
and framing are in api.py.

Without a token nobody can be told from the attacker: that is the control."""
import os
import resource
import socket
import sys
import threading
import time

from apibed import Failed, main, running, until, want

IDLE = 1000
AT_ONCE_S = 0.5  # a sanitizer's build on a busy machine; 2 ms otherwise
GUESSES = 3000


def room():
    """For a thousand sockets of our own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))


def timed(e, what, **how):
    start = time.monotonic()
    answer = e.call("GET", **how)
    took = time.monotonic() - start
    if took > AT_ONCE_S:
        raise Failed(f"{what}: an honest caller waited {took:.2f} s")
    return took, answer


def idle(e, n):
    """n connections that say nothing, or too little."""
    held = []
    for i in range(n):
        s = socket.create_connection(("127.0.0.1", e.port), timeout=5)
        try:
            s.sendall((b"", b"G", b"GET /policy HTTP/1.1\r\nHost: x\r\n",
                       b"PUT /policy HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n")[i % 4])
        except OSError:
            pass  # it had to go already
        held.append(s)
    return held


def kept(e):
    """A connection that has been answered once."""
    s = e.connect()
    want([x.status for x in e.raw(e.request("GET", "/policy"), s=s)[0]], [200], "the first request")
    return s


def answers(e, s):
    try:
        return [x.status for x in e.raw(e.request("GET", "/policy"), s=s, wait=2)[0]]
    except OSError:
        return []


def case_a_thousand_idle_connections():
    room()
    with running(token=False) as e:
        s, held = kept(e), idle(e, IDLE)
        want(answers(e, s), [], "control: without a token the honest connection goes, too")
        for x in [s, *held]:
            x.close()
    with running() as e:
        s, held = kept(e), idle(e, IDLE)
        worst = max(timed(e, "beside a thousand")[0] for _ in range(20))
        timed(e, "health", path="/healthz")
        want(answers(e, s), [200], "the connection of one who has shown the token")
        print(f"  {IDLE} connections are held, the slowest of 20 honest callers waited "
              f"{worst * 1000:.0f} ms")
        for x in [s, *held]:
            x.close()


def case_flood_of_connections():
    with running() as e:
        over, made = threading.Event(), [0] * 3

        def flood(k):
            while not over.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", e.port), timeout=5) as s:
                        s.sendall(b"GET /policy HTTP/1.1\r\nHost: x\r\n")
                        made[k] += 1
                except OSError:
                    pass
        threads = [threading.Thread(target=flood, args=(k,), daemon=True) for k in range(3)]
        for t in threads:
            t.start()
        try:
            until(lambda: sum(made) > 200, "the flood", 10)
            worst = max(timed(e, "beside a flood")[0] for _ in range(50))
        finally:
            over.set()
            for t in threads:
                t.join()
        print(f"  {sum(made)} connections came and went, the slowest of 50 waited {worst * 1000:.0f} ms")


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def case_oversized_heads():
    """Each may fill what a head may have, and no more; when they are gone so is their memory."""
    with running() as e:
        timed(e, "before")
        before, held = resident(e.worker()), []
        for i in range(300):
            s = e.connect()
            s.settimeout(0.2)
            try:
                s.sendall(b"GET /policy HTTP/1.1\r\n" + b"A: " + b"a" * (60000 if i % 2 else 1 << 20))
            except OSError:
                pass
            held.append(s)
            if i % 50 == 49:
                timed(e, "beside oversized heads")
        grown = resident(e.worker()) - before
        print(f"  300 large heads: the worker has grown by {grown >> 10} KiB")
        if grown > 100 << 20:  # a sanitizer keeps what was freed
            raise Failed(f"grown by {grown >> 20} MiB")
        for s in held:
            s.close()


def guess(e, n):
    """n requests with wrong tokens over one connection, as fast as answers come; how many were 401."""
    refused = 0
    with e.connect() as s:
        s.settimeout(10)
        for i in range(n):
            s.sendall(b"GET /policy HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: " +
                      b"%032x" % i + b"\r\n\r\n")
            got = b""
            while b"message" not in got:
                part = s.recv(65536)
                if not part:
                    raise Failed(f"after {i} guesses: {got!r}")
                got += part
            refused += got.startswith(b"HTTP/1.1 401 ")
    return refused


def case_guesses_of_the_token_are_counted():
    """On record with the number and the user, and not a line for each."""
    with running() as e:
        refused, threads = [], []
        start = time.monotonic()
        for _ in range(3):
            threads.append(threading.Thread(
                target=lambda: refused.append(guess(e, GUESSES // 3)), daemon=True))
            threads[-1].start()
        until(lambda: [x for x in e.audit() if x["reason"] == "wrong_token"], "a line at once", 2)
        while any(t.is_alive() for t in threads):
            timed(e, "beside guesses")
        took = time.monotonic() - start
        want(sum(refused), GUESSES, "guesses that were refused")
        want(e.status()["api"], {"unauthorized": GUESSES}, "in /status")
        n_log = e.text().count("without its token")
    lines = [x for x in e.audit() if x["reason"] == "wrong_token"]
    most = 2 + int(took / 10)
    want([n_log <= most, len(lines) <= most + 1], [True, True],
         f"{n_log} lines of log, {len(lines)} on record in {took:.1f} s")
    counts = [int(x["rule"].split()[0]) for x in lines]
    want([sum(counts), counts[0]], [GUESSES, 1], "the counts on record")
    want({(x["kind"], x["verdict"], x["uid"]) for x in lines}, {("guard", "blocked", os.getuid())},
         "kind, verdict and user")
    print(f"  {GUESSES} guesses in {took:.1f} s: {len(lines)} lines {counts}")


if __name__ == "__main__":
    sys.exit(main(globals()))
