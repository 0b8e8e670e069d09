#!/usr/bin/env python3
"""GET /audit and PUT /audit/context on the real program: pages that make the file byte by byte,
also over a killed worker, labels of the lines, users, and a flood of refusals. Protocol:
docs/development.md."""
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from apibed import CTL, SRC, TOKEN, Skip, allow, main, rule, running, until, want, want_in, want_out

sys.path.insert(0, os.path.join(SRC, "tests", "tools"))
import audit_chain  # noqa: E402

USERS = (4711, 4712)


def page(e, query="", status=200, **how):
    return e.call("GET", "/audit" + query, status=status, **how)


def split(body):
    want(body == b"" or body.endswith(b"\n"), True, f"whole lines: {body[-80:]!r}")
    return body.splitlines(keepends=True)


class Collector:
    """What a collector does: asks from its last line on, and takes no line that does not follow."""

    def __init__(self, e, limit=100):
        self.e, self.limit, self.lines, self.seq = e, limit, [], 0

    def step(self):
        """Lines that came; -1: nobody answered."""
        try:
            answers, _ = self.e.raw(self.e.request(
                "GET", f"/audit?after={self.seq}&limit={self.limit}"), wait=5)
        except OSError:
            return -1
        if not answers:
            return -1
        want(answers[0].status, 200, f"after={self.seq}: {answers[0]}")
        got = split(answers[0].body)
        for line in got:
            want(json.loads(line)["seq"], self.seq + 1, "the next line")
            self.seq += 1
        self.lines += got
        return len(got)

    def rest(self):
        while self.step():
            pass
        return b"".join(self.lines)


def docs_of(e):
    """Every line so far."""
    return [json.loads(line) for line in Collector(e).rest().splitlines()]


def file_is(e, text):
    """The file, which gets its lines a moment later."""
    def read():
        with open(e.audit_file, "rb") as f:
            return f.read()
    until(lambda: read().endswith(text.splitlines(keepends=True)[-1]), "the last line in the file")
    return read()


def proxied(e, *requests, host="refused.test", fields=""):
    """Sends GET requests for paths on one connection; the status of each answer."""
    data = "".join(f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"
                   for path in requests)
    with socket.create_connection(("127.0.0.1", e.proxy), timeout=10) as s:
        answers, _ = e.raw(data.encode(), n=len(requests), s=s)
    return [a.status for a in answers]


@contextmanager
def origin():
    """Answers every request with 200 at once, but `/slow` when it is told to: (port, gate)."""
    server = socket.create_server(("127.0.0.1", 0))
    gate = threading.Event()

    def serve(s):
        with s:
            got = b""
            while True:
                while b"\r\n\r\n" not in got:
                    try:
                        part = s.recv(65536)
                    except OSError:  # of a killed worker
                        part = b""
                    if not part:
                        return
                    got += part
                head, got = got.split(b"\r\n\r\n", 1)
                if b"/slow" in head.split(b"\r\n")[0]:
                    gate.wait(10)
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def accept():
        while True:
            try:
                s, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(s,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1], gate
    finally:
        gate.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def to_origin(port):
    return {"egress": [rule("allow", "127.0.0.1", [port])]}


def labels(e, doc, status=200):
    return e.call("PUT", "/audit/context", body=doc, status=status)


# --- pages ---

def case_pages_are_the_file_byte_by_byte():
    with running(policy={"egress": allow("a.test")}) as e:
        for i in range(30):
            e.call("PATCH", body=allow(f"h{i}.test"))
        proxied(e, *[f"/{'x' * n}?token=abc" for n in (1, 900, 2000)],
                fields="User-Agent: \xff\"\r\n")
        labels(e, {"labels": {"run": "ü\n"}})
        c = Collector(e, limit=7)
        text = c.rest()
        want(len(c.lines) >= 35, True, "lines")
        want(text, file_is(e, text), "the pages and the file")
        copy = os.path.join(e.top, "copy.jsonl")
        with open(copy, "wb") as f:
            f.write(text)
        want_in(f"whole: {len(c.lines)} lines, seq 1 to {len(c.lines)}",
                e.ctl("audit", "verify", copy)[0], "egressctl")
        want(audit_chain.check(copy), (len(c.lines), None), "the second opinion")
        with open(copy, "wb") as f:
            f.write(text.replace(b'"kind":"policy"', b'"kind":"polixy"', 1))
        e.ctl("audit", "verify", copy, code=1)  # control


def case_what_a_page_says_and_takes():
    with running() as e:
        for i in range(120):
            e.call("PATCH", body=allow(f"h{i}.test"))
        last = e.status()["audit"]["seq"]
        a = page(e)
        want(a.field("content-type"), "application/x-ndjson", "type")
        want([a.field("x-egress-audit-oldest"), a.field("x-egress-audit-last")], ["1", str(last)],
             "what there is")
        want(len(split(a.body)), 100, "lines without limit=")
        want(json.loads(split(a.body)[0])["seq"], 1, "without after=: from the oldest on")
        want(len(split(page(e, "?limit=1000").body)), last, "the largest limit")
        want(len(split(page(e, f"?limit=1&after={last - 1}").body)), 1, "the last line")
        a = page(e, f"?after={last}&")
        want([a.body, a.field("x-egress-audit-last")], [b"", str(last)], "nothing new is no error")
        a = page(e, f"?after={last + 1}", status=409)
        want(a.doc["code"], "other_trail", "a line that never was")
        want_in(f"the last line is {last}", a.doc["message"], "message")
        page(e, f"?after={2 ** 64 - 1}", status=409)
        for query, text in (("limit=0", "from 1 to 1000"), ("limit=1001", "from 1 to 1000"),
                            ("limit=", "from 1 to 1000"), ("limit=-1", "from 1"),
                            ("limit=1&limit=1", "twice"), ("after=1&after=1", "twice"),
                            ("after=", "seq of a line"), ("after=x", "seq of a line"),
                            ("after=-1", "seq"), ("after=1e3", "seq"), ("after=%31", "seq"),
                            ("after=18446744073709551616", "seq"), ("after", "seq"),
                            ("before=1", "expected after or limit"), ("=1", "expected after"),
                            ("After=1", "expected after or limit")):
            a = page(e, "?" + query, status=400)
            want(a.doc["code"], "invalid_query", query)
            want_in(text, a.doc["message"], query)
        for method in ("POST", "PUT", "DELETE", "HEAD"):
            want(e.call(method, "/audit", status=405).field("allow"), "GET", method)
        for path in ("/audit", "/audit?after=0", "/audit/context"):
            want_out("seq", e.call("GET", path, status=401, token=False).body.decode(), "no token")
        e.call("PUT", "/audit/context", body={"labels": {"a": "b"}}, status=401, token=False)
        want(e.status()["audit"]["context"], {}, "no token, no change")


def fill(e, n):
    """Lines of about 1 KiB, as many as that."""
    big = {"labels": {"fill": "f" * (512 - 11)}}
    with e.connect() as s:
        for _ in range(n // 50):
            answers, _ = e.raw(e.request("PUT", "/audit/context", big) * 50, n=50, s=s)
            want([a.status for a in answers], [200] * 50, "fill")


def case_lines_that_are_gone_are_not_left_out_silently():
    with running() as e:
        want(len(split(page(e, "?after=0").body)) > 0, True, "control: line 1 is there")
        fill(e, 5000)
        a = page(e, "?after=0", status=410)
        oldest = int(a.field("x-egress-audit-oldest"))
        want(a.doc["code"], "lines_gone", "code")
        want_in(f"lines 1 to {oldest - 1} are not in memory", a.doc["message"], "message")
        want_in(f"after={oldest - 1}", a.doc["message"], "how to go on")
        want(oldest > 500, True, f"oldest {oldest}")
        page(e, f"?after={oldest - 2}", status=410)
        a = page(e, f"?after={oldest - 1}&limit=1000")
        got = split(a.body)
        want(json.loads(got[0])["seq"], oldest, "the oldest line")
        want(200_000 < len(a.body) <= 256 << 10, True, f"an answer has a limit: {len(a.body)}")
        want(split(page(e, "?limit=1").body), got[:1], "without after=")
        c = Collector(e, 1000)
        c.seq = oldest - 1
        text = c.rest()
        want(file_is(e, text)[-len(text):], text, "the ring and the end of the file")
        want(3 << 20 < len(text) <= 4 << 20, True, f"4 MiB are there: {len(text)}")


def case_stdout_alone_is_enough():
    with running(EGRESS_AUDIT="stdout") as e:
        for i in range(10):
            e.call("PATCH", body=allow(f"h{i}.test"))
        c = Collector(e, 3)
        text = c.rest()
        want(len(c.lines) >= 11, True, "lines")

        def printed():
            return "".join(s + "\n" for s in e.text().splitlines() if s.startswith('{"v":1'))
        until(lambda: len(printed().encode()) >= len(text), "stdout")
        want(printed().encode(), text, "stdout")


def case_reader_that_does_not_read_stalls_nothing():
    with running() as e:
        fill(e, 1000)
        lazy = [e.connect() for _ in range(20)]
        for s in lazy:
            s.sendall(e.request("GET", "/audit?limit=1000&after=1") * 20)
        before = e.status()["audit"]["seq"]
        start = time.monotonic()
        fill(e, 1000)
        want(e.status()["audit"]["seq"] >= before + 1000, True, "lines go on")
        want(time.monotonic() - start < 8, True, "at once")
        want(proxied(e, "/"), [403], "the proxy")
        for s in lazy:
            s.close()


# --- over a crash ---

def case_killed_worker_leaves_no_hole_and_no_line_twice():
    with origin() as (port, _), running(policy=to_origin(port)) as e:
        stop = threading.Event()
        done = [0]

        def traffic():
            while not stop.is_set():
                try:
                    done[0] += len(proxied(e, *["/x"] * 20, host=f"127.0.0.1:{port}"))
                except OSError:
                    pass

        threads = [threading.Thread(target=traffic, daemon=True) for _ in range(3)]
        for t in threads:
            t.start()
        c = Collector(e, 50)
        labels(e, {"labels": {"run": "kill"}})
        refused = 0
        for _ in range(3):
            end = time.monotonic() + 0.4
            while time.monotonic() < end:
                refused += c.step() < 0
            worker = e.worker()
            os.kill(worker, 9)
            until(lambda: e.worker() not in (0, worker), "the next worker")
        until(lambda: c.step() >= 0, "it answers again")
        want(e.status()["audit"]["context"], {"run": "kill"}, "labels after a crash")
        stop.set()
        for t in threads:
            t.join(10)
        until(lambda: len([1 for x in c.lines if b'"kind":"start"' in x]) == 4 or c.step() < 0,
              "a start for each")
        text = c.rest()
        docs = [json.loads(x) for x in c.lines]
        want([d["seq"] for d in docs], list(range(1, len(docs) + 1)), "numbers")
        reads = [d for d in docs if d["kind"] == "read"]
        want(len(reads) >= done[0] > 100, True, f"each answer: {len(reads)} lines, {done[0]}")
        want({d["context"] and d["context"]["run"] for d in reads if d["seq"] > 1000}, {"kill"},
             "labels of all")
        want(file_is(e, text), text, "the pages and the file")


def restart(e):
    starts = e.text().count(" ready: ")
    e.stop()
    e.start()
    until(lambda: e.text().count(" ready: ") > starts, "the next start")


def case_new_start_with_and_without_its_file():
    with running() as e:
        e.call("PATCH", body=allow("a.test"))
        labels(e, {"labels": {"run": "old"}})
        c = Collector(e)
        c.rest()
        restart(e)
        # What was written after the last look is in the file alone: said, not left out.
        a = page(e, f"?after={c.seq}", status=410)
        oldest = int(a.field("x-egress-audit-oldest"))
        with open(e.audit_file, "rb") as f:
            whole = f.read().splitlines(keepends=True)
        want(whole[:c.seq], c.lines, "what was collected is in the file")
        first = json.loads(split(page(e, f"?after={oldest - 1}").body)[0])
        want([first["seq"], first["kind"], first["context"]], [oldest, "start", None],
             "the trail goes on, without the labels of the one before")
        want(first["prev"], hashlib.sha256(whole[oldest - 2].rstrip(b"\n")).hexdigest(), "chain")
    with running(EGRESS_AUDIT="stdout") as e:
        for i in range(20):
            e.call("PATCH", body=allow(f"h{i}.test"))
        c = Collector(e)
        c.rest()
        restart(e)
        a = page(e, f"?after={c.seq}", status=409)
        want([a.doc["code"], a.field("x-egress-audit-oldest")], ["other_trail", "1"], "another one")
        first = json.loads(split(page(e, "?after=0").body)[0])
        want([first["seq"], first["prev"]], [1, "0" * 64], "it begins anew")


# --- labels ---

def case_labels_stamp_what_begins_after_them():
    with origin() as (port, gate), running(policy=to_origin(port)) as e:
        host = f"127.0.0.1:{port}"
        proxied(e, "/none", host=host)
        a = labels(e, {"labels": {"run": "r-1", "conversation": "c"}})
        want(a.doc["labels"], {"run": "r-1", "conversation": "c"}, "answer")
        line = json.loads(page(e, f"?after={a.doc['seq'] - 1}&limit=1").body)
        want({k: line[k] for k in ("kind", "verdict", "rule", "context")},
             {"kind": "context", "verdict": "allowed", "rule": "set",
              "context": a.doc["labels"]}, "line")
        want(e.call("GET", "/audit/context").doc, {"labels": a.doc["labels"]}, "GET")
        want(e.status()["audit"]["context"], a.doc["labels"], "status")
        proxied(e, "/one", host=host)
        proxied(e, "/refused-one")
        slow = threading.Thread(target=proxied, args=(e, "/slow"), kwargs={"host": host})
        slow.start()
        time.sleep(0.3)
        labels(e, {"labels": {"run": "r-2"}})
        proxied(e, "/two", host=host)
        gate.set()
        slow.join()
        for body in (b"{", b"[]", b"7", b"null", b'"x"', b"", b'{"labels":7}', b'{"labels":null}',
                     b'{"labels":["a"]}', b'{"labels":{"a":1}}', b'{"labels":{"a":null}}',
                     b'{"labels":{"a":{"b":"c"}}}', b'{"labels":{"":"x"}}', b'{"labels":{},"x":1}',
                     b'{"x":1}', b'{"labels":{"a":"b","a":"c"}}', b'{"labels":{"a":"\xff"}}',
                     b'{"labels":{"a":"\\u0000"}}', b'{"labels":{"a\\u0000":"b"}}',
                     b'{"labels":{"a":"b"}}x', b'{"labels":{"a":"\\ud800"}}'):
            want(labels(e, body, status=400).doc["code"], "invalid_context", f"{body}")
        want(e.status()["audit"]["context"], {"run": "r-2"}, "nothing was changed")
        want(labels(e, {}).doc["labels"], {}, "cleared")
        proxied(e, "/three", host=host)
        got = {d["url"].rsplit("/", 1)[1]: d["context"] for d in docs_of(e) if d["url"]}
        one = {"run": "r-1", "conversation": "c"}
        want(got, {"none": None, "one": one, "refused-one": one, "slow": one, "two": {"run": "r-2"},
                   "three": None}, "labels of each line")
        want([d["rule"] for d in docs_of(e) if d["kind"] == "context"],
             ["set", "set", "cleared"], "on record")
        labels(e, {"labels": {"run": "r"}})
        want(labels(e, {"labels": {}}).doc["labels"], {}, "an empty object clears too")


def case_labels_at_their_limit_and_one_past_it():
    with running() as e:
        text = "v" * (512 - len('{"a":""}'))
        labels(e, {"labels": {"a": text}})
        want(e.status()["audit"]["context"], {"a": text}, "512 bytes")
        a = labels(e, {"labels": {"a": text + "v"}}, status=413)
        want(a.doc["code"], "context_too_large", "513 bytes")
        want_in("512 bytes", a.doc["message"], "message")
        labels(e, {"labels": {"a": text[:-6] + "\n"}})  # an escape takes six
        labels(e, {"labels": {"a": text[:-5] + "\n"}}, status=413)
        many = {chr(97 + i % 26) * (1 + i // 26): "" for i in range(200)}
        labels(e, {"labels": many}, status=413)
        space = b" " * (4096 - 2)
        labels(e, b"{}" + space)
        a = labels(e, b"{} " + space, status=413)
        want(a.doc["code"], "context_too_large", "a body of 4097 bytes")
        want(e.status()["audit"]["context"], {}, "the last good one")


def case_egressctl_shows_labels():
    with running() as e:
        labels(e, {"labels": {"run": "=1+1"}})
        e.call("PATCH", body=allow("a.test"))
        until(lambda: any(d["kind"] == "policy" and d["context"] for d in e.audit()), "the file")
        rows = e.ctl("audit", "query", "--kind", "policy", "--format", "csv")[0].splitlines()
        want_in(",context,", rows[0], "CSV head")
        want_in('"{""run"":""=1+1""}"', rows[1], "CSV")


def case_egressctl_reads_a_running_egress():
    with running(EGRESS_AUDIT="stdout") as e:
        api = ["--api", f"127.0.0.1:{e.port}"]
        want(e.ctl("audit", "context", *api), ("", ""), "no labels")
        want(e.ctl("audit", "context", *api, "run=r=1", "a=\x1b[31m")[0],
             "run=r=1\na=\\u001b[31m\n", "set")
        want(e.status()["audit"]["context"], {"run": "r=1", "a": "\x1b[31m"}, "labels")
        for bad in (["run"], ["=x"], ["a=1", "a=2"], ["--clear", "a=1"]):
            want(e.ctl("audit", "context", *api, *bad, code=2)[0], "", f"{bad}")
        want_in("512 bytes", e.ctl("audit", "context", *api, "a=" + "v" * 600, code=1)[1], "long")
        with e.connect() as s:
            for _ in range(11):
                e.raw(e.request("PATCH", "/policy", allow("a.test")) * 100, n=100, s=s)
        text = Collector(e, 1000).rest().decode()
        want(len(text.splitlines()) > 1000, True, "more than a page")
        want(e.ctl("audit", "query", *api, "--format", "json")[0], text, "query")
        want(e.ctl("audit", "tail", *api, "-n", "3", "--json")[0].splitlines(),
             text.splitlines()[-3:], "tail")
        want(e.ctl("audit", "tail", *api, "-n", "999999", "--json")[0], text, "all of it")
        want(len(e.ctl("audit", "query", *api, "--context", "run=r=1", "--kind", "context")[0]
                 .splitlines()), 2, "a filter, and the head")
        # As inside the container: the variables say where, and there is no file.
        want(e.ctl("audit", "tail", "-n", "1", "--json")[0].splitlines(), text.splitlines()[-1:],
             "by the environment")
        want_in("expected one", e.ctl("audit", "tail", *api, "--file", "x", code=2)[1], "both")
        e.token = "wrong"
        e.env["OPENSANDBOX_EGRESS_TOKEN"] = "wrong"
        want_in("refused (401)", e.ctl("audit", "query", *api, code=2)[1], "wrong token")
        want_in("refused (401)", e.ctl("audit", "tail", *api, code=2)[1], "wrong token")
        e.env["OPENSANDBOX_EGRESS_TOKEN"] = TOKEN
        want(e.ctl("audit", "context", *api, "--clear")[0], "", "cleared")
        want_in("expected the API of a running egress",
                e.ctl("audit", "tail", "--api", "127.0.0.1:1", code=2)[1], "nobody there")


def case_egressctl_follows_over_a_killed_worker():
    with running() as e:
        p = subprocess.Popen([CTL, "audit", "tail", "-f", "-n", "0", "--json", "--api",
                              f"127.0.0.1:{e.port}"], env=e.env, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(0.5)
            e.call("PATCH", body=allow("first.test"))
            want_in("PATCH /policy", p.stdout.readline(), "a line")
            worker = e.worker()
            os.kill(worker, 9)
            until(lambda: e.worker() not in (0, worker), "the next worker")
            want_in('"kind":"start"', p.stdout.readline(), "the next one")
        finally:
            p.kill()
            p.wait()


# --- users ---

def as_user(uid, port, data, n=1):
    """Sends it from a process of that user, and waits for n answers."""
    if os.geteuid() != 0:
        raise Skip("needs root to be two users")
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        got = b""
        with socket.socket() as s:
            s.connect((b"127.0.0.1", port))
            s.sendall(data.encode("latin1"))
            while got.count(b"HTTP/1.1 ") < n and (part := s.recv(65536)):
                got += part
        os._exit(0 if got.count(b"HTTP/1.1 ") == n else 1)
    want(os.waitpid(pid, 0)[1], 0, f"user {uid}")


def case_lines_name_the_user_of_the_socket():
    with origin() as (port, _), running(policy=to_origin(port)) as e:
        for uid in USERS:
            host = f"127.0.0.1:{port}"
            as_user(uid, e.proxy, f"GET http://{host}/{uid} HTTP/1.1\r\nHost: {host}\r\n\r\n"
                    f"GET http://refused.test/{uid} HTTP/1.1\r\nHost: refused.test\r\n\r\n", 2)
            as_user(uid, e.port, e.request("PATCH", "/policy", allow(f"u{uid}.test")).decode())
            as_user(uid, e.port, e.request("PUT", "/audit/context",
                                           {"labels": {"u": str(uid)}}).decode())
        docs = docs_of(e)
        for uid in USERS:
            mine = [d for d in docs if d["uid"] == uid]
            want(sorted(d["kind"] for d in mine), ["context", "policy", "read", "read"],
                 f"lines of {uid}")
            want([d["url"].endswith(f"/{uid}") for d in mine if d["url"]], [True] * 2,
                 f"URLs of {uid}")
        want({d["uid"] for d in docs if d["kind"] == "start"}, {None}, "lines of ours have none")


def changed_hands(e, port, data, uid):
    """Sends it by a socket that is uid's when it is accepted, and another one's after that."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        time.sleep(0.2)
        os.fchown(s.fileno(), uid, -1)
        e.raw(data if isinstance(data, bytes) else data.encode(), s=s)


def case_socket_that_changed_hands_has_no_user():
    if os.geteuid() != 0:
        raise Skip("needs root to give a socket away")
    with running() as e:
        for uid, path in ((0, "kept"), (USERS[0], "given")):
            changed_hands(e, e.proxy, f"GET http://refused.test/{path} HTTP/1.1\r\n"
                          "Host: refused.test\r\n\r\n", uid)
            changed_hands(e, e.port, e.request("PUT", "/audit/context", {"labels": {"a": path}}), uid)
        got = [(d["kind"], (d["url"] or "").rsplit("/", 1)[-1] or d["context"]["a"], d["uid"])
               for d in docs_of(e) if d["kind"] in ("read", "context")]
        want(got, [("read", "kept", 0), ("context", "kept", 0), ("read", "given", None),
                   ("context", "given", None)], "users")


# --- a flood ---

def case_flood_of_refusals_hides_no_read():
    count, connections, batch = 10_000, 4, 250
    with origin() as (port, _), running(policy=to_origin(port)) as e:
        sent = []

        def flood():
            for _ in range(count // connections // batch):
                sent.extend(proxied(e, *["/flood"] * batch))

        threads = [threading.Thread(target=flood) for _ in range(connections)]
        start = time.monotonic()
        for t in threads:
            t.start()
        until(lambda: len(sent) >= count // 4, "the flood is on its way", 60)
        want(proxied(e, "/the-read", host=f"127.0.0.1:{port}"), [200], "the read")
        want(len(sent) < count, True, "in the middle of it")
        for t in threads:
            t.join()
        took = time.monotonic() - start
        want([len(sent), set(sent)], [count, {403}], "refusals")

        def told():
            docs = [json.loads(x) for x in c.lines]
            return sum(d.get("count", 1) for d in docs if d["verdict"] == "blocked")
        c = Collector(e)
        until(lambda: c.step() <= 0 and told() >= count, "counts", 10)
        want(told(), count, "the sum of lines and counts")
        docs = [json.loads(x) for x in c.lines]
        want([d["verdict"] for d in docs if (d["url"] or "").endswith("/the-read")], ["allowed"],
             "the read is on record")
        want(len(docs) < 60 * (took + 2), True, f"{len(docs)} lines in {took:.1f} s")
        print(f"  {count} refusals in {took:.1f} s, {len(docs)} lines")


if __name__ == "__main__":
    sys.exit(main(globals()))
