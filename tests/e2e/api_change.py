#!/usr/bin/env python3
"""How a change of the policy is made and kept: the file, a crash, SIGHUP, the operator's rule files,
the vault, the webhook, and egressctl. Names like P14 are lines of docs/compatibility.md; C36, C38
and C151 are cases of other products. Protocol: docs/development.md."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from apibed import Failed, Skip, allow, deny, main, running, until, want, want_in, want_out

A = {"egress": allow("a.test"), "defaultAction": "deny"}
B = {"egress": allow("b.test"), "defaultAction": "deny"}


def read_json(path):
    with open(path) as f:
        return json.load(f)


def with_file(policy=None, text=None, mode=0o600, **more):
    """running() with a policy file; text None: there is none yet."""
    top = os.environ.get("EGRESS_TMP") or "/tmp"
    path = os.path.join(top, f"policy-{os.getpid()}-{time.monotonic_ns()}", "policy.json")
    os.makedirs(os.path.dirname(path))
    if text is not None:
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
    return path, running(policy=policy, OPENSANDBOX_EGRESS_POLICY_FILE=path, **more)


# --- the file ---

def case_P14_policy_file():
    path, bed = with_file(policy=A)
    with bed as e:
        want(e.policy(), A, "no file: the variable counts")
        want(os.path.exists(path), False, "and nothing is written for that")
        e.call("PUT", body=B)
        with open(path) as f:
            text = f.read()
        want(text, json.dumps(B, indent=2) + "\n", "as the replaced image writes it")
        want(os.stat(path).st_mode & 0o777, 0o600, "mode of a new file")
        want(os.listdir(os.path.dirname(path)), ["policy.json"], "no temporary file is left")
        e.call("DELETE", body=["b.test"])
        want(read_json(path), {"egress": [], "defaultAction": "deny"}, "after DELETE")
        before = os.stat(path).st_mtime_ns
        e.call("DELETE", body=["nope.test"])
        e.call("POST", body="{", status=400)
        want(os.stat(path).st_mtime_ns, before, "nothing to do, nothing written")
    path, bed = with_file(policy=A, text=json.dumps(B), mode=0o640)
    with bed as e:
        want(e.policy(), B, "the file wins over the variable")
        e.call("PATCH", body=allow("c.test"))
        want(os.stat(path).st_mode & 0o777, 0o640, "who may read it stays")
    with_again = running(policy=A, OPENSANDBOX_EGRESS_POLICY_FILE=path)
    with with_again as e:
        want(e.targets(), [("allow", "c.test"), ("allow", "b.test")], "after a restart")
    for text in ("", "{", '{"defaultAction":"log"}'):
        _, bed = with_file(policy=A, text=text)
        with bed as e:
            want(e.policy(), A, f"{text!r}: the variable counts")
            want_in("the file is left out", e.text(), "a warning")


def case_file_that_cannot_be_written_changes_nothing():
    path, bed = with_file(policy=A)
    with bed as e:
        folder = os.path.dirname(path)
        os.rename(folder, folder + "x")
        a = e.call("PUT", body=B, status=500)
        want_in("failed to persist policy: ", a.doc["message"], "the message")
        want(a.doc["code"], "not_saved", "code")
        want(e.policy(), A, "unchanged")
        want(e.verdict("b.test"), 403, "for the proxy, too")
        want(e.status()["policy"]["revision"], 1, "no revision")
        os.rename(folder + "x", folder)
        os.mkdir(path)  # written, but the name is taken: the rename fails
        a = e.call("PUT", body=B, status=500)
        want_in("failed to persist policy: ", a.doc["message"], "the message")
        want([e.policy(), e.verdict("b.test")], [A, 403], "unchanged")
        want(os.listdir(folder), ["policy.json"], "no temporary file is left")
        os.rmdir(path)
        e.call("PUT", body=B)
        want(read_json(path), B, "and it goes on")


def case_no_link_is_followed():
    path, bed = with_file(policy=A)
    with bed as e:
        victim = path + ".victim"
        with open(victim, "w") as f:
            f.write("mine")
        os.symlink(victim, path)
        e.call("PUT", body=B)
        with open(victim) as f:
            want(f.read(), "mine", "what the link named")
        want(os.path.islink(path), False, "the file took the link's place")


def case_mounted_file_is_written_in_place():
    if os.geteuid() != 0:
        raise Skip("needs root for a mount")
    path, bed = with_file(policy=A, text="{}")
    source = path + ".source"
    with open(source, "w") as f:
        f.write("{}")
    if subprocess.run(["mount", "--bind", source, path], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("no mount here")
    try:
        with bed as e:
            e.call("PUT", body=B)
            want(read_json(source), B, "the mounted file")
            want(sorted(os.listdir(os.path.dirname(path))), ["policy.json", "policy.json.source"],
                 "no temporary file is left")
    finally:
        subprocess.run(["umount", path], check=False)


def case_crash_keeps_what_was_answered():
    path, bed = with_file(policy=A)
    with bed as e:
        e.write_rules("deny.always", "bad.test\n")
        until(lambda: e.status()["policy"]["denyAlways"] == 1, "the rule file")
        for i in range(6):
            e.call("PATCH", body=allow(f"h{i}.test"))
            before = e.status()
            with open(path, "w") as f:
                f.write(json.dumps(A))  # the area wins over it
            worker = e.worker()
            os.kill(worker, signal.SIGKILL)
            until(lambda: e.worker() not in (0, worker), "a new worker")
            after = e.status()
            want([after["policy"], after["instance"], after["started"]],
                 [before["policy"], before["instance"], before["started"]], "after the crash")
            want(e.verdict("bad.test"), 403, "the operator's rule")
        want(len(e.targets()), 7, "all rules")


def case_crash_with_a_bad_rule_file():
    with running(policy=A) as e:
        e.write_rules("deny.always", "bad.test\n")
        until(lambda: e.status()["policy"]["denyAlways"] == 1, "the rule file")
        e.write_rules("deny.always", "worse.test\nhttp://x\n")
        until(lambda: e.status()["policy"]["denyAlways"] == 2, "good lines, and those before")
        worker = e.worker()
        os.kill(worker, signal.SIGKILL)
        until(lambda: e.worker() not in (0, worker), "a new worker")
        want(e.call("GET", "/healthz").body, b"ok", "it serves")
        want(e.status()["health"]["state"], "degraded", "and says that something is wrong")
        want(e.status()["policy"]["denyAlways"], 2, "with the same rules")


def case_H18_changes_at_the_same_time():
    path, bed = with_file(policy={})
    with bed as e:
        failed = []

        def patch(i):
            for k in range(10):
                a, _ = e.raw(e.request("PATCH", "/policy", allow(f"h{i}-{k}.test")))
                if [x.status for x in a] != [200]:
                    failed.append(a)
        threads = [threading.Thread(target=patch, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for i in range(20):  # reloads in between; the file has what was answered
            e.p.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        s = e.connect()  # gone before its answer
        s.sendall(e.request("PATCH", "/policy", allow("gone.test")))
        s.close()
        for t in threads:
            t.join()
        want(failed, [], "answers")
        until(lambda: len(e.targets()) == 81, "no change was lost")
        want(len(read_json(path)["egress"]), 81, "nor in the file")


def case_C36_reload():
    path, bed = with_file(policy=A)
    with bed as e:
        e.call("PUT", body=B)
        with open(path, "w") as f:
            json.dump(A, f)
        e.p.send_signal(signal.SIGHUP)
        until(lambda: e.policy() == A, "the file wins")
        want(e.verdict("b.test"), 403, "in the proxy")
        fds = len(os.listdir(f"/proc/{e.worker()}/fd")), len(os.listdir(f"/proc/{e.p.pid}/fd"))
        for i in range(60):
            e.p.send_signal(signal.SIGHUP)
            if i % 10 == 0:
                e.call("PATCH", body=allow(f"r{i}.test"))
        time.sleep(0.5)
        e.call("GET")
        want((len(os.listdir(f"/proc/{e.worker()}/fd")), len(os.listdir(f"/proc/{e.p.pid}/fd"))),
             fds, "descriptors")
        want(len(e.targets()), 7, "what was answered stays")


# --- the operator's rule files ---

def case_P09_rule_files_win():
    user = {"egress": allow("bad.test", "*.wild.test") + deny("good.test", "10.0.0.0/8"),
            "defaultAction": "deny"}
    with running(policy=user) as e:
        want([e.verdict(x) == 403 for x in ("bad.test", "good.test", "10.1.2.3")],
             [False, True, True], "without files")
        e.write_rules("deny.always", "# ours\nbad.test\r\n\nboth.test\n")
        e.write_rules("allow.always", "good.test\nboth.test\n10.1.2.3\n")
        until(lambda: e.status()["policy"]["allowAlways"] == 3, "both files")
        want([e.verdict(x) == 403 for x in ("bad.test", "good.test", "both.test", "10.1.2.4")],
             [True, False, True, True], "deny.always > allow.always > policy")
        want(e.verdict("10.1.2.3") == 403, False, "an address inside a denied block")
        want(e.policy(), user, "H03: the policy is the user's alone")
        e.call("PUT", body={"egress": allow("bad.test"), "defaultAction": "allow"})
        want(e.verdict("bad.test"), 403, "after a change by API")
        os.unlink(os.path.join(e.rules, "deny.always"))
        until(lambda: e.status()["policy"]["denyAlways"] == 0, "P11: removed is empty")
        want(e.verdict("bad.test") == 403, False, "and its rules go")


def case_C38_rule_files_half_written_and_broken():
    with running(policy={"defaultAction": "allow"}) as e:
        name = os.path.join(e.rules, "allow.always")
        for c in ("evil", ".test", ".example", "\n"):  # evil.test must never be a rule
            with open(name, "a") as f:
                f.write(c)
            time.sleep(1)
            want(e.status()["policy"]["allowAlways"], 0, f"before the end ({c!r})")
        until(lambda: e.status()["policy"]["allowAlways"] == 1, "when it is whole")
        e.write_rules("deny.always", "\ufeffbad.wild.test\r\n# c\r\n\r\n" +
                      "".join(f"h{i}.test\n" for i in range(10000)))
        until(lambda: e.status()["policy"]["denyAlways"] == 10001, "mark, CRLF, 10,000 lines")
        want([e.verdict("bad.wild.test"), e.verdict("h9999.test")], [403, 403], "they count")
        st = os.stat(os.path.join(e.rules, "deny.always"))
        e.write_rules("deny.always", "one.test\nhttp://x\ntwo.test\n")
        until(lambda: e.status()["health"]["state"] == "degraded", "a bad line")
        want([e.verdict(x) for x in ("one.test", "two.test", "bad.wild.test")], [403] * 3,
             "the others count, and what was denied is")
        want_in("deny.always: line 2: target \"http://x\"", e.text(), "reported by number")
        want(e.call("GET", "/healthz").status, 200, "it still works")
        e.write_rules("deny.always", "six.test\n")
        until(lambda: e.status()["policy"]["denyAlways"] == 1, "mended")
        want(e.status()["health"]["parts"]["rule_files"]["state"], "ok", "health")
        e.write_rules("deny.always", "ten.test\n")  # same size, same time
        os.utime(os.path.join(e.rules, "deny.always"), ns=(st.st_atime_ns, st.st_mtime_ns))
        until(lambda: e.verdict("ten.test") == 403, "another content of the same size")


def case_P10_bad_rule_file_at_start():
    from apibed import Egress, TOP
    import tempfile
    top = tempfile.mkdtemp(prefix="e", dir=TOP[0])
    e = Egress(top)
    e.write_rules("deny.always", "a.test\nb.test:443\n")
    want(e.start(fails=True), 2, "exit code")
    want_in(f"{e.rules}/deny.always: line 2: target \"b.test:443\"", e.text(), "the message")


# --- the vault ---

def case_H13_bound_host_cannot_be_taken_away():
    top = os.environ.get("EGRESS_TMP") or "/tmp"
    vault = os.path.join(top, f"vault-{time.monotonic_ns()}.json")
    with open(vault, "w") as f:
        json.dump({"credentials": [{"name": "k", "source": {"value": "sk-planted-0001-key"}}],
                   "bindings": [{"name": "m", "match": {"hosts": ["api.test"]},
                                 "auth": {"type": "bearer", "credential": "k"}}]}, f)
    os.chmod(vault, 0o600)
    user = {"egress": allow("api.test", "b.test"), "defaultAction": "deny"}
    with running(policy=user, EGRESS_VAULT_FILE=vault) as e:
        want(e.status()["vault"], {"revision": 1}, "vault")
        for method, body in (("DELETE", ["api.test"]), ("POST", ""), ("PUT", B),
                             ("PATCH", deny("api.test"))):
            a = e.call(method, body=body, status=400)
            want(a.doc["code"], "vault_conflict", method)
            want_in('credential vault policy validation: binding "m" host "api.test"',
                    a.doc["message"], method)
        want(e.policy(), user, "unchanged")
        e.call("DELETE", body=["b.test"])
        e.call("PUT", body={"defaultAction": "allow"})
        want_out("sk-planted", e.text() + str(e.status()), "the key")
    os.unlink(vault)


# --- the webhook ---

class Receiver:
    def __init__(self, answers=()):
        got = self.got = []
        answers = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((self.path, dict(self.headers), json.loads(body), time.monotonic()))
                status = answers.pop(0) if answers else 204
                if status == "hang":
                    time.sleep(7)
                    return
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *args):
                pass
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def names(self):
        return [x[2]["hostname"] for x in self.got]


def case_E02_webhook():
    r = Receiver()
    with running(policy=A, OPENSANDBOX_EGRESS_DENY_WEBHOOK=r.url,
                 OPENSANDBOX_EGRESS_SANDBOX_ID="sb-7") as e:
        want(e.verdict("Denied.Test"), 403, "refused")
        until(lambda: len(r.got) == 1, "an event")
        path, fields, doc, _ = r.got[0]
        want(path, "/hook?x=1", "path")
        want(fields["Content-Type"], "application/json", "type")
        want(list(doc), ["hostname", "timestamp", "source", "sandboxId"], "fields")
        want([doc["hostname"], doc["source"], doc["sandboxId"]],
             ["denied.test", "opensandbox-egress", "sb-7"], "values")
        time.strptime(doc["timestamp"], "%Y-%m-%dT%H:%M:%SZ")
        e.verdict("a.test")  # allowed
        e.verdict("10.0.0.1")  # no name
        for i in range(5):
            e.verdict(f"n{i}.test")
        until(lambda: len(r.got) == 6, "one for each name")
        want(r.names()[1:], [f"n{i}.test" for i in range(5)], "in order, names only")


def case_C151_webhook_floods_failures_and_redirects():
    r = Receiver([500, 204, 302])
    with running(policy=A, OPENSANDBOX_EGRESS_DENY_WEBHOOK=r.url) as e:
        e.verdict("one.test")
        until(lambda: len(r.got) == 2, "after a 500 it comes again")
        if not 0.9 < r.got[1][3] - r.got[0][3] < 2:
            raise Failed(f"after {r.got[1][3] - r.got[0][3]:.1f} s, not 1")
        e.verdict("two.test")
        until(lambda: len(r.got) == 3, "the next")
        time.sleep(1.5)
        want([x[0] for x in r.got[2:]], ["/hook?x=1"], "a redirect is neither followed nor retried")
        for _ in range(40):
            e.verdict("same.test")
        time.sleep(0.3)
        if r.names().count("same.test") > 2:
            raise Failed("one name came more than once a second")
        until(lambda: "same.test" in r.names(), "but it came")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with running(policy=A, OPENSANDBOX_EGRESS_DENY_WEBHOOK=url) as e:
            start = time.monotonic()
            for i in range(300):
                e.verdict(f"f{i}.test")
            took = time.monotonic() - start
            if took > 10:
                raise Failed(f"a silent receiver slows the proxy down: {took:.1f} s")
            want_in("the queue is full", e.text(), "what is left out is said")


# --- egressctl ---

def case_egressctl_policy():
    with running(policy=A) as e:
        out, _ = e.ctl("policy", "get")
        want(out, "   1  allow a.test\n      deny  everything else\n", "get")
        want(json.loads(e.ctl("policy", "get", "--json")[0])["policy"], A, "get --json")
        out, _ = e.ctl("policy", "allow", "b.test", "*.b.test")
        want(out, "policy: enforcing\n", "allow")
        e.ctl("policy", "deny", "c.test", "--ports", "443,8443")
        want(e.policy()["egress"], [{"action": "deny", "target": "c.test", "ports": [443, 8443]}] +
             allow("b.test", "*.b.test", "a.test"), "the policy")
        want_in("   1  deny  c.test  ports 443,8443\n", e.ctl("policy", "get")[0], "ports")
        e.ctl("policy", "rm", "b.test", "c.test")
        want(e.targets(), [("allow", "*.b.test"), ("allow", "a.test")], "rm")
        want(e.ctl("policy", "rm", "x.test")[0],
             "policy: enforcing: no matching targets found\n", "nothing to remove")
        e.ctl("policy", "set", "-", stdin=json.dumps(B))
        want(e.policy(), B, "set from stdin")
        path = os.path.join(e.top, "p.json")
        with open(path, "w") as f:
            json.dump(A, f)
        e.ctl("policy", "set", path)
        want(e.policy(), A, "set from a file")
        _, err = e.ctl("policy", "allow", "http://x", code=1)
        want_in("egressctl: refused (400): invalid patch rules", err, "a refusal")
        for args in (("policy", "allow"), ("policy", "set"), ("policy", "get", "x"),
                     ("policy", "allow", "--ports", "0", "x"), ("policy", "set", "/no/file"),
                     ("policy", "rm", "--ports", "1", "x"), ("policy", "gte")):
            e.ctl(*args, code=2)
        want(e.policy(), A, "unchanged")
        for args in (("policy", "set"), ("policy", "get"), ("policy", "allow"), ("policy", "rm"),
                     ("status",)):
            want_in("EXIT CODES", e.ctl(*args, "--help")[0], "help")


def case_egressctl_status():
    with running(policy=A) as e:
        out, _ = e.ctl("status")
        for part in ("health      ok", "mode        proxy\n", "vault       none\n",
                     "policy      enforcing, revision 1: 1 rules, default deny"):
            want_in(part, out, "status")
        want(json.loads(e.ctl("status", "--json")[0])["instance"], e.status()["instance"], "--json")
        want_in("health", e.ctl("status", "--api", f"127.0.0.1:{e.port}")[0], "--api")
        want_in("health", e.ctl("status", "--api", f":{e.port}")[0], "--api :port")
        want_in("health", e.ctl("status", "--api", f"localhost:{e.port}")[0], "--api localhost")
        _, err = e.ctl("status", "--api", "127.0.0.1:1", code=2)
        want_in("127.0.0.1:1: ", err, "nobody there")
        for address in ("host.test:1", "127.0.0.1", "x", "[::1]"):
            want_in("expected an address and a port", e.ctl("status", "--api", address, code=2)[1],
                    address)
        e.env["OPENSANDBOX_EGRESS_TOKEN"] = "wrong"
        want_in("refused (401): unauthorized", e.ctl("status", code=1)[1], "a wrong token")


if __name__ == "__main__":
    sys.exit(main(globals()))
