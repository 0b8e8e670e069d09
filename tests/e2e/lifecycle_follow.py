#!/usr/bin/env python3
"""The sidecar that follows its sandbox at OpenSandbox's API: every row of the state table, every
answer that is none, expiry, keys, labels, and what a killed worker leaves.

Names like L03 are ours. The API is standin.py. Protocol: docs/development.md."""
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import contextmanager

import leakscan
from apibed import TOP, Egress, allow, main, running, until, want, want_in, want_out
from standin import Lie, World

ID = "sbx-follow"
PATH = f"/v1/sandboxes/{ID}"
CLOSED = ["Stopping", "Terminated", "Failed"]


class Origin:
    """Answers each connection once with 200; /hold waits for release."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.release = threading.Event()
        self.held = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            s, _ = self.server.accept()
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        got = b""
        while b"\r\n\r\n" not in got:
            part = s.recv(4096)
            if not part:
                return
            got += part
        s.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegin")
        if b"/hold" in got.split(b"\r\n")[0]:
            self.held.set()
            self.release.wait(20)
        try:
            s.sendall(b" end")
        except OSError:
            pass
        s.close()


class Bed:
    def __init__(self, e, world, origin, key_file):
        self.e, self.world, self.origin, self.key_file = e, world, origin, key_file

    @property
    def box(self):
        return self.world.boxes[ID]

    def life(self):
        return self.e.status()["lifecycle"]

    def asked(self):
        return len(self.world.http.seen("GET", PATH))

    def ask(self):
        """A fresh answer, by SIGHUP; what is known then."""
        before = self.life()
        times = [before[k] for k in ("lastSuccess", "lastFailure")]
        self.e.p.send_signal(signal.SIGHUP)
        until(lambda: [self.life()[k] for k in ("lastSuccess", "lastFailure")] != times,
              "an answer", 20)
        return self.life()

    def go(self, state):
        self.box.move(state)
        return self.ask()

    def lie(self, **how):
        self.world.http.lie("GET", PATH, Lie(**how))

    def truth(self):
        self.world.http.forget()

    def open(self):
        return self.e.verdict(self.origin.host)

    def lines(self):
        return [x for x in self.e.audit() if x["kind"] == "lifecycle"]

    def wait_line(self, text):
        until(lambda: any(text in x["rule"] for x in self.lines()), f"a line with {text!r}", 20)


@contextmanager
def bed(first="Running", tls=False, world=None, seconds=None, metadata=None, key=None, ask=True,
        **settings):
    with folder() as top:
        world = world or World(top if tls else None)
        if first:
            world.create(ID, metadata=metadata, seconds=seconds, state=first)
        key_file = os.path.join(top, "api-key")
        write_key(key_file, key or world.key)
        origin = Origin()
        settings = {"OPENSANDBOX_URL": world.url_tls if tls else world.url,
                    "OPENSANDBOX_API_KEY_FILE": key_file, "OPENSANDBOX_EGRESS_SANDBOX_ID": ID,
                    "OPENSANDBOX_CA_FILE": world.ca if tls else None,
                    "policy": {"egress": allow("127.0.0.1", "a.test")}, **settings}
        try:
            with running(**settings) as e:
                b = Bed(e, world, origin, key_file)
                if ask:
                    until(lambda: b.life()["lastSuccess"] or b.life()["lastFailure"], "an answer",
                          20)
                yield b
        finally:
            world.stop()
            origin.server.close()


@contextmanager
def folder():
    with tempfile.TemporaryDirectory(dir=TOP[0]) as top:
        os.chmod(top, 0o755)
        yield top


def write_key(path, key):
    with open(path + ".new", "w") as f:
        f.write(key + "\n")
    os.chmod(path + ".new", 0o600)
    os.rename(path + ".new", path)


VAULT = {"credentials": [{"name": "c", "source": {"value": "sk-" + secrets.token_hex(16)}}],
         "bindings": [{"name": "b", "match": {"hosts": ["a.test"]},
                       "auth": {"type": "bearer", "credential": "c"}}]}


# --- the state table ---

def case_L01_each_state_and_what_it_enforces():
    with bed() as b:
        want(b.open(), 200, "Running")
        for state in ("Pending", "Resuming", "Running"):
            want(b.go(state)["enforced"], "the policy in force", state)
            want(b.open(), 200, state)
        want(b.go("Pausing")["enforced"], "nothing new, what runs may end", "Pausing")
        want(b.open(), 403, "Pausing")
        b.go("Paused")
        want(b.open(), 403, "Paused after Pausing: as before")
        b.go("Running")
        until(lambda: b.open() == 200, "open again")
        b.go("Paused")
        want(b.open(), 200, "Paused after Running: as before")
        for state in CLOSED:
            want(b.go(state)["enforced"], "nothing, and no keys", state)
            want(b.open(), 403, state)
            for odd in ("Unknown", "Hibernating"):
                want(b.go(odd)["cause"], "a state that is not known here", odd)
                want(b.open(), 403, f"{odd} after {state}")
            b.go("Running")
            until(lambda: b.open() == 200, f"Running after {state}")
        for odd in ("Unknown", "Hibernating"):
            b.go(odd)
            want(b.open(), 200, f"{odd} after Running")
        for _ in range(3):
            b.ask()  # no line for an answer like the one before
        b.world.renew(ID, 3600)
        b.ask()
        b.wait_line("expires 2")
        said = [x["rule"].split(",")[0] for x in b.lines() if "expires" in x["rule"]]
        want(said[:6], ["Running", "Pending", "Resuming", "Running", "Pausing", "Paused"],
             "a line for each change")
        want(len(said), 8 + 3 * 3 + 2, f"lines: {said}")


def case_L02_a_refusal_says_who_wants_it():
    with bed("Terminated") as b:
        until(lambda: b.open() == 403, "closed")
        with socket.create_connection(("127.0.0.1", b.e.proxy)) as s:
            s.sendall(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
            got = b""
            while part := s.recv(4096):
                got += part
        want_in("says OpenSandbox", got.decode(), "the text")
        want_in("403 blocked", got.decode(), "the status line")
        until(lambda: any(x["reason"] == "sandbox_closed" and x["kind"] != "lifecycle"
                          for x in b.e.audit()), "on record")
        want(b.e.targets(), [("allow", "127.0.0.1"), ("allow", "a.test")],
             "the policy is as it was written")
        b.e.call("PATCH", body=allow("b.test"))
        want(b.open(), 403, "a change of policy opens nothing")
        want(len(b.e.targets()), 3, "and is made")
        b.go("Running")
        until(lambda: b.open() == 200, "open")


def hold(b):
    """A request whose answer has begun."""
    s = socket.create_connection(("127.0.0.1", b.e.proxy), timeout=20)
    s.sendall(f"GET http://{b.origin.host}/hold HTTP/1.1\r\nHost: {b.origin.host}\r\n"
              "Connection: close\r\n\r\n".encode())
    got = b""
    while b"begin" not in got:
        got += s.recv(4096)
    return s


def rest(s):
    got = b""
    try:
        while part := s.recv(4096):
            got += part
    except ConnectionResetError:
        pass
    return got


def case_L03_pausing_lets_what_runs_end_and_stopping_does_not():
    with bed() as b, hold(b) as s:
        b.go("Pausing")
        want(b.open(), 403, "nothing new")
        b.origin.release.set()
        want_in(b" end", rest(s), "the answer that had begun")
        b.origin.release.clear()
        b.go("Running")
        until(lambda: b.open() == 200, "open")
        with hold(b) as t:
            b.go("Stopping")
            want_out(b" end", rest(t), "an answer after the end")
            b.origin.release.set()


def case_L04_keys_go_with_the_sandbox_and_not_before():
    with bed() as b:
        b.e.call("POST", "/credential-vault", VAULT, status=201)
        for state in ("Pausing", "Paused", "Running"):
            b.go(state)
            want(b.e.status()["vault"], {"revision": 1}, state)
        b.lie(status=401, doc={"code": "INVALID_API_KEY", "message": "x"})
        b.ask()
        want(b.e.status()["vault"], {"revision": 1}, "401")
        b.truth()
        b.go("Stopping")
        until(lambda: b.e.status()["vault"] is None, "the vault is empty")
        until(lambda: any(x["kind"] == "vault" and "lifecycle" in json.dumps(x)
                          for x in b.e.audit()), "on record")


# --- answers that are none ---

def error(status, code="SOME::CODE", **more):
    return {"status": status, "doc": {"code": code, "message": "no"}, **more}


NONE = [
    ("401", error(401, "INVALID_API_KEY"), "the API refuses the key"),
    ("403", error(403), "the API refuses the key"),
    ("409", error(409), "the API does not answer"),
    ("422", {"status": 422, "doc": {"detail": []}}, "the API does not answer"),
    ("429", error(429, fields=[("Retry-After", "1")]), "the API does not answer"),
    ("500", error(500), "the API does not answer"),
    ("503 with a date", error(503, fields=[("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT")]),
     "the API does not answer"),
    ("302", error(302, fields=[("Location", "http://127.0.0.1:1/")]), "the API does not answer"),
    ("404 of something else", {"status": 404, "body": b"<html>", "type": "text/html"},
     "the API does not answer"),
    ("404 without a code", {"status": 404, "doc": {"detail": "Not Found"}},
     "the API does not answer"),
    ("404 that is cut", error(404, "DOCKER::SANDBOX_NOT_FOUND", cut=-1), "the API does not answer"),
    ("404 with a broken end", {"raw": b"HTTP/1.1 404 No\r\nContent-Type: application/json\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n1d\r\n"
                               b'{"code":"A::B","message":"n"}\r\nx'},
     "the API does not answer"),
    ("cut", {"cut": -5}, "the API does not answer"),
    ("half a document", {"body": b'{"id":"sbx-follow","status":{"state":"Terminat'},
     "the API does not answer"),
    ("another type", {"type": "text/plain"}, "the API does not answer"),
    ("too large", {"edit": lambda d: d.update(more="x" * 300000)}, "the API does not answer"),
    ("another id", {"edit": lambda d: d.update(id="sbx-other")}, "the API does not answer"),
    ("no state", {"edit": lambda d: d.pop("status")}, "the API does not answer"),
    ("an expiry that is no time", {"edit": lambda d: d.update(expiresAt="soon")},
     "the API does not answer"),
    ("a list", {"edit": lambda d: [d]}, "the API does not answer"),
    ("no HTTP", {"raw": b"SSH-2.0\r\n\r\n"}, "the API does not answer"),
    ("nothing", {"raw": b""}, "the API does not answer"),
]


def case_L05_answers_that_are_none_change_nothing():
    with bed() as b:
        for name, how, cause in NONE:
            # what the answer says if it is believed all the same
            b.box.state = "Terminated"
            b.lie(**how)
            want(b.ask()["cause"], cause, name)
            want(b.open(), 200, name)
            b.truth()
            b.box.state = "Running"
            b.ask()
        b.go("Terminated")
        want(b.open(), 403, "closed")
        for name, how, cause in NONE:
            b.box.state = "Running"
            b.lie(**how)
            want(b.ask()["cause"], cause, f"{name}, closed")
            want(b.open(), 403, f"{name}, closed")
            b.truth()
            b.box.state = "Terminated"
            b.ask()
        b.box.more = {"lifecycle": {"idlePolicy": 1}, "new": None}
        b.go("Running")
        until(lambda: b.open() == 200, "fields that nobody knows are no reason")


def case_L06_a_silent_server_is_given_up():
    with bed() as b:
        b.box.state = "Terminated"
        b.lie(silent=True)
        want(b.ask()["cause"], "the API does not answer", "silent")
        want(b.open(), 200, "silent")


def case_L07_gone_by_two_answers_or_after_one_success():
    with bed(None) as b:
        want(b.life()["cause"], "the API does not know the sandbox: asked again", "once")
        want(b.open(), 200, "once")
        until(lambda: b.open() == 403, "twice, asked by itself", 20)
        want(b.life()["cause"], "the API does not know the sandbox", "twice")
    with bed() as b:
        b.world.delete(ID)
        want(b.ask()["cause"], "the API does not know the sandbox", "after a success")
        want(b.open(), 403, "after a success")


# --- expiry ---

def case_L08_expiry_shortened_passed_and_moved():
    with bed(seconds=3600) as b:
        want(b.life()["expiresAt"][:4], time.strftime("%Y", time.gmtime(b.box.expires)), "expiry")
        # the server forgets to say that it is over: our clock does
        b.box.expires = time.time() + 2
        b.lie(edit=lambda d: None)
        b.world.expire = lambda: None
        b.ask()
        until(lambda: b.open() == 403, "expired", 20)
        want(b.life()["cause"], "the sandbox has expired", "cause")
        b.world.renew(ID, 3600)
        b.ask()
        until(lambda: b.open() == 200, "renewed")
        b.box.expires = None
        want(b.ask()["expiresAt"], None, "absent: never")


def case_L09_expiry_with_a_server_that_is_away():
    with bed(seconds=3) as b:
        b.world.expire = lambda: None
        b.e.call("POST", "/credential-vault", VAULT, status=201)
        b.lie(**error(429, fields=[("Retry-After", "100")]))
        b.ask()
        want(b.open(), 200, "last known")
        n = b.asked()
        until(lambda: b.open() == 403, "expired", 20)
        want(b.asked(), n, "requests within Retry-After")
        want(b.life()["cause"], "the API does not answer, and the sandbox has expired", "cause")
        want(b.e.status()["vault"], {"revision": 1}, "keys stay")


def case_L10_a_renewal_during_a_freeze_counts_first():
    with bed(seconds=4) as b:
        b.world.expire = lambda: None
        worker = b.e.worker()
        os.kill(worker, signal.SIGSTOP)
        n = b.asked()
        until(lambda: time.time() > b.box.expires + 3, "a freeze", 20)
        b.world.renew(ID, 3600)
        os.kill(worker, signal.SIGCONT)
        until(lambda: b.asked() > n, "a fresh read", 20)
        b.wait_line("frozen")
        want(b.open(), 200, "open")
        want([x["rule"] for x in b.lines() if "nothing" in x["rule"]], [], "closed in between")


# --- crashes ---

def case_L11_a_killed_worker_leaves_it_closed():
    with bed("Terminated") as b:
        until(lambda: b.open() == 403, "closed")
        b.world.http.close(b.world.api)
        before = b.e.worker()
        os.kill(before, signal.SIGKILL)
        until(lambda: b.e.worker() not in (0, before) and b.e.text().count(" ready: ") or
              "worker: another" in b.e.text() or b.e.worker() not in (0, before), "another worker")
        until(lambda: b.life()["lastFailure"], "it has asked", 20)
        want(b.open(), 403, "closed")
        want(b.life()["enforced"], "nothing, and no keys", "known")


def case_L12_a_killed_worker_keeps_the_expiry():
    with bed(seconds=6) as b:
        b.world.http.close(b.world.api)
        os.kill(b.e.worker(), signal.SIGKILL)
        until(lambda: b.open() == 403, "expired without a word", 30)


# --- the key ---

def case_L13_the_key_goes_to_the_named_server_alone():
    # random to the last byte: no piece of it is anywhere by chance
    with bed(world=World(key=secrets.token_hex(20))) as b:
        for r in b.world.http.requests:
            want(r.field("OPEN-SANDBOX-API-KEY"), b.world.key, "the key")
            want(r.port, b.world.api.number, "the port")
        other = b.world.http.listen(lambda request: None)
        b.lie(status=302, fields=[("Location", f"http://127.0.0.1:{other.number}{PATH}")])
        b.ask()
        b.truth()
        # the sandbox asks the same server: without it
        s = socket.create_connection(("127.0.0.1", b.e.proxy))
        host = f"127.0.0.1:{b.world.api.number}"
        s.sendall(f"GET http://{host}/health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                  .encode())
        rest(s)
        for r in b.world.http.requests:
            want(r.port, b.world.api.number, "nothing went elsewhere")
            want(r.field("OPEN-SANDBOX-API-KEY"), None if r.path == "/health" else b.world.key,
                 r.path)
        b.e.ctl("status")
        seen = leakscan.search_memory(b.e.p.pid, [b.world.key.encode()])
        want(seen.found, [], "in memory")
        seen = leakscan.search_files([b.e.top], [b.world.key.encode()])
        want(seen.found, [], "in files")
        want_out(b.world.key, json.dumps(b.e.status()), "in the status")


def case_L14_another_key_counts_after_sighup():
    with bed(key="wrong-" + secrets.token_hex(8)) as b:
        want(b.life()["cause"], "the API refuses the key", "a wrong key")
        want_in("lifecycle: the API refuses the key", str(b.e.status()["warnings"]), "a warning")
        want(b.open(), 200, "last known")
        write_key(b.key_file, b.world.key)
        want(b.ask()["state"], "Running", "the right one")
        write_key(b.key_file, "two\nlines")
        b.e.p.send_signal(signal.SIGHUP)
        until(lambda: "the key before counts" in b.e.text(), "a bad file")
        os.chmod(b.key_file, 0o644)
        b.e.p.send_signal(signal.SIGHUP)
        until(lambda: "only its owner can read" in b.e.text(), "a file that others read")


def case_L15_tls_is_verified_by_roots_of_its_own():
    with bed(tls=True) as b:
        want(b.life()["state"], "Running", "own roots")
        want({r.port for r in b.world.http.requests}, {b.world.api_tls.number}, "TLS alone")
    # those of the origins do not count, and least of all that they are not verified
    for insecure in (None, "true"):
        with bed(tls=True, OPENSANDBOX_CA_FILE=None,
                 OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE=insecure) as b:
            want(b.life()["cause"], "the API does not answer", "no roots")
            want_in("certificate", b.life()["failure"], "why")
            want(b.world.http.requests, [], "nothing was sent")


# --- labels, status, policy ---

def labels(b):
    return b.e.call("GET", "/audit/context").doc["labels"]


def case_L16_metadata_becomes_labels_beside_the_runners():
    with bed(metadata={"task": "T-1", "agent": "reviewer"}) as b:
        platform = {"sandbox.task": "T-1", "sandbox.agent": "reviewer"}
        until(lambda: labels(b) == platform, "the sandbox's")
        b.e.call("PUT", "/audit/context", {"labels": {"run": "r-1", "sandbox.task": "forged"}})
        want(labels(b), {"run": "r-1", **platform}, "beside the runner's")
        b.box.metadata = {"task": "T-2"}
        b.ask()
        want(labels(b), {"run": "r-1", "sandbox.task": "T-2"}, "they follow")
        b.ask()
        b.ask()
        b.box.metadata = {f"k{i}": "x" * 60 for i in range(12)}
        b.ask()
        kinds = lambda: [x["kind"] for x in b.e.audit()].count("context")  # noqa: E731
        until(lambda: kinds() >= 4, "a line")
        want(kinds(), 4, "and none for what did not change")
        got = labels(b)
        want(got["run"], "r-1", "what does not fit is left out, the runner's never")
        want(2 < len(got) < 13, True, "as many as fit")
        b.e.call("PUT", "/audit/context", {"labels": {"run": "y" * 400}})
        want(labels(b)["run"], "y" * 400, "the runner's come first")
        b.lie(**error(500))
        b.ask()
        want(labels(b)["run"], "y" * 400, "a failure changes no label")


def case_L17_status_shows_it():
    with bed(seconds=3600) as b:
        out, _ = b.e.ctl("status")
        want_in("lifecycle   Running, expires ", out, "egressctl")
        want(b.life()["failure"], None, "no failure")
        b.lie(**error(500, "GENERAL::UNKNOWN_ERROR"))
        want_in("GENERAL::UNKNOWN_ERROR: no", b.ask()["failure"], "failure")
        want_in("GENERAL::UNKNOWN_ERROR", b.e.ctl("status")[0], "egressctl, failure")
        for text in ("\u00e4" * 300, "x" + "\u00e4" * 300, "\x1b[2J\r\nlevel=info"):
            b.truth()
            b.lie(status=500, doc={"code": "C", "message": text})
            failure = b.ask()["failure"]
            want(failure.isascii() and failure.isprintable(), True, failure)
    with running(policy={}) as e:
        want(e.status()["lifecycle"], None, "not followed")


def case_L18_the_policy_that_the_server_sees():
    world = World()
    with bed(world=world) as b:
        until(lambda: b.life()["serverPolicy"] != "not seen", "looked at", 20)
        want(b.life()["serverPolicy"], "other", "the stand-in has one of its own")
        b.wait_line("is not the one in force")
    world = World(version="0.2.3")
    with bed(world=world) as b:
        until(lambda: b.life()["serverPolicy"] == "no route", "an old server", 20)
        n = len(world.http.seen("GET", PATH + "/networkpolicy"))
        b.ask()
        want(len(world.http.seen("GET", PATH + "/networkpolicy")), n, "not asked again")


def case_L19_settings_that_do_not_go_together():
    with folder() as top:
        key = os.path.join(top, "k")
        write_key(key, "k")
        rows = [
            ({"OPENSANDBOX_URL": "http://127.0.0.1:1"}, "only one of them is set"),
            ({"OPENSANDBOX_API_KEY_FILE": key}, "only one of them is set"),
            ({"OPENSANDBOX_URL": "http://127.0.0.1:1", "OPENSANDBOX_API_KEY_FILE": "/none"},
             "OPENSANDBOX_API_KEY_FILE: /none: expected a readable file"),
            ({"OPENSANDBOX_URL": "http://127.0.0.1:1", "OPENSANDBOX_API_KEY_FILE": key,
              "OPENSANDBOX_EGRESS_SANDBOX_ID": "a/../b"}, "expected letters, digits"),
        ]
        for settings, text in rows:
            with folder() as one:
                e = Egress(one, **settings)
                want(e.start(fails=True) != 0, True, text)
                want_in(text, e.text(), text)
        with running(OPENSANDBOX_URL="http://127.0.0.1:1",
                            OPENSANDBOX_API_KEY_FILE=key) as e:
            want_in("which sandbox this is is not known", e.text(), "said")
            want(e.status()["lifecycle"], None, "not followed")


if __name__ == "__main__":
    sys.exit(main(globals()))
