#!/usr/bin/env python3
"""The life of the sandbox against real flows: what OpenSandbox says ends connections in the kernel, in
all modes that have one, and the sidecar reaches the API where the sandbox may not.

Bed: gatebed.py, with a small API behind it. The state table, row by row: e2e/lifecycle_follow.py."""
import contextlib
import http.server
import json
import os
import signal
import socket
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gatebed  # noqa: E402
import guardbed  # noqa: E402
from gatebed import rules, status  # noqa: E402
from guardbed import GOOD, PRIVATE, Inside, until, want  # noqa: E402
from health import child  # noqa: E402

ID = "sbx-life"
API = (PRIVATE[4], 8090)
KEY = "key-of-the-platform"
ALLOW = [("allow", "read.test", None), ("allow", GOOD[4], None), ("deny", PRIVATE[4], None)]


class Platform(http.server.BaseHTTPRequestHandler):
    """Says what the test wants to hear."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked += 1
        self.server.may_answer.wait(8)
        good = self.headers["OPEN-SANDBOX-API-KEY"] == KEY and self.path == f"/v1/sandboxes/{ID}"
        body = json.dumps({"id": ID, "status": {"state": self.server.state}}).encode()
        self.send_response(200 if good else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Bed(gatebed.Bed):
    NAME = "lifebed"
    TOP_ZONE = {**gatebed.ZONE, "api.platform.test": {"a": "127.0.0.1"}}

    def servers(self):
        super().servers()
        with Inside(self.net):
            self.api = http.server.ThreadingHTTPServer(API, Platform)
        self.api.state, self.api.asked, self.api.may_answer = "Running", 0, threading.Event()
        self.api.may_answer.set()
        self.thread(self.api.serve_forever)

    def follow(self, mode="dns+nft", url=f"http://{API[0]}:{API[1]}"):
        self.api.state = "Running"
        os.chmod(self.write("api-key", KEY + "\n"), 0o600)
        self.halt()
        self.running = None
        self.with_settings(OPENSANDBOX_EGRESS_MODE=mode, OPENSANDBOX_EGRESS_RULES=rules(ALLOW),
                           OPENSANDBOX_URL=url, OPENSANDBOX_API_KEY_FILE=self.path("api-key"),
                           OPENSANDBOX_EGRESS_SANDBOX_ID=ID)

    def life(self):
        return json.loads(self.ask("GET", "/status")[2])["lifecycle"]

    def go(self, state):
        """Until the sidecar knows."""
        self.api.state = state
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.life()["state"] == state, state, 8)

    def connect(self):
        with Inside(self.box):
            s = socket.create_connection((GOOD[4], 5000), 5)
        s.settimeout(2)
        return s


def lives(s):
    try:
        s.sendall(b"ping\n")
        return s.recv(64) == b"ping\n"
    except OSError:
        return False


def refused(bed, what):
    want(bed.opens(GOOD[4], 5000), "ConnectionRefusedError", f"{what}: an allowed address")
    want(status(bed.dig("read.test")), "NXDOMAIN", f"{what}: an allowed name")


def is_open(bed, what):
    until(lambda: bed.opens(GOOD[4], 5000) == "echo", f"{what}: an allowed address", 8)
    want(status(bed.dig("read.test")), "NOERROR", f"{what}: an allowed name")


def case_states_in_the_kernel(bed):
    bed.follow()
    until(lambda: bed.life()["lastSuccess"], "an answer", 8)
    is_open(bed, "Running")
    with bed.connect() as s:
        want(lives(s), True, "a connection")
        bed.go("Pausing")
        until(lambda: bed.opens(GOOD[4], 5000) == "ConnectionRefusedError", "no new ones", 8)
        refused(bed, "Pausing")
        want(lives(s), True, "one that was there, while pausing")
        bed.go("Running")
        is_open(bed, "Running again")
        want(lives(s), True, "one that was there, afterwards")
        bed.go("Stopping")
        until(lambda: bed.opens(GOOD[4], 5000) == "ConnectionRefusedError", "closed", 8)
        refused(bed, "Stopping")
        want(lives(s), False, "one that was there, at the end")
    worker = bed.worker_pid()
    bed.api.state = "Unknown"
    os.kill(worker, signal.SIGKILL)
    until(lambda: bed.health()[0] == 200 and bed.worker_pid() != worker, "another worker", 8)
    refused(bed, "another worker")
    want(bed.ask("PATCH", "/policy", json.dumps([{"action": "allow", "target": "two.test"}]))[0],
         200, "a change of policy")
    refused(bed, "another policy")
    bed.go("Running")
    is_open(bed, "Running at last")
    bed.process.terminate()  # its log has the end of the worker
    want(bed.process.wait(20), 0, "exit code")
    bed.process = None


def case_a_worker_killed_while_it_opens_has_not_opened(bed):
    """The kernel comes first, and a guard that stands still never gets there."""
    bed.follow()
    bed.go("Terminated")
    until(lambda: bed.opens(GOOD[4], 5000) == "ConnectionRefusedError", "closed", 8)
    worker, guard = bed.worker_pid(), child(bed, "egress-guard")
    # The answer comes when the guard stands still, and before it is missed.
    bed.api.may_answer.clear()
    bed.api.state, asked = "Running", bed.api.asked
    bed.process.send_signal(signal.SIGHUP)
    until(lambda: bed.api.asked > asked, "a question", 8)
    os.kill(guard, signal.SIGSTOP)
    bed.api.may_answer.set()
    until(lambda: bed.life()["state"] == "Running", "Running", 4)
    bed.api.state = "Unknown"
    os.kill(worker, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(guard, signal.SIGKILL)
    until(lambda: bed.health()[0] == 200 and bed.worker_pid() != worker, "another worker", 15)
    refused(bed, "another worker")
    bed.go("Running")
    is_open(bed, "asked anew")
    bed.process.terminate()  # its log has the end of the worker
    want(bed.process.wait(20), 0, "exit code")
    bed.process = None


def case_api_is_reached_where_the_sandbox_may_not(bed):
    bed.follow()
    until(lambda: bed.life()["lastSuccess"], "an answer past the policy", 8)
    want(bed.opens(*API), "ConnectionRefusedError", "the sandbox there")
    want(bed.curl(f"http://{API[0]}:{API[1]}/v1/sandboxes/{ID}")[-3:] in ("000", "403"), True,
         "the sandbox there, by HTTP")


def case_mode_dns_enforces_what_is_over(bed):
    bed.follow("dns")
    until(lambda: bed.life()["lastSuccess"], "an answer", 8)
    want(bed.opens(PRIVATE[4], 5000), "echo", "this mode lets out what no name opened")
    with bed.connect() as s:
        bed.go("Terminated")
        until(lambda: bed.opens(PRIVATE[4], 5000) == "ConnectionRefusedError", "closed", 8)
        refused(bed, "Terminated")
        want(lives(s), False, "a connection that was there")
    n = bed.api.asked
    until(lambda: bed.api.asked > n, "the sidecar still asks", 15)
    bed.go("Running")
    until(lambda: bed.opens(PRIVATE[4], 5000) == "echo", "open again", 8)


def case_key_goes_to_nobody_in_the_sandbox(bed):
    """The name of the API leads to the sandbox's own loopback, where it listens."""
    with Inside(bed.box):
        listener = socket.create_server(("127.0.0.1", 8090))
    with listener:
        listener.settimeout(0)
        bed.follow(url="http://api.platform.test:8090")
        until(lambda: bed.life()["lastFailure"], "a failure", 8)
        want("address" in bed.life()["failure"], True, bed.life()["failure"])
        try:
            listener.accept()
            raise guardbed.Failed("somebody in the sandbox was spoken to")
        except BlockingIOError:
            pass


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
