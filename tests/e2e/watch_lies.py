#!/usr/bin/env python3
"""`egressctl watch` and a server that is dead, slow, lying or half upgraded: nothing widens, no key
or token goes to a host that it is not for, what was collected stays what was written, and when the
truth is told again all goes on. tests/long/watch_load.py tells the same lies to one process, and
looks at its memory. Protocol: docs/development.md.

# one compiler: it mostly waits for the next second.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import apibed
import standin
import watchbed
from apibed import main, running, until
from casebed import Failed, Skip, want
from standin import Lie

BEDS, RECOVER_S = 12, 40
ELSEWHERE = "11.22.0.66"  # of no sandbox and no server; on `lo` of this script's namespace
API, LIST, ONE = "(?:/v1)?/sandboxes.*", "(?:/v1)?/sandboxes", "(?:/v1)?/sandboxes/sbx-b"
END = ONE + "/endpoints/18080"
STATUS, AUDIT, POLICY, VAULT = (f"/sbx-b/proxy/18080/{x}" for x in
                                ("status", "audit", "policy", "credential-vault"))
POLICY_WANTED = {"defaultAction": "deny", "egress": [
    {"action": "allow", "target": t} for t in ("api.model.test", "docs.test", "*.docs.test")]}
SECRET = "sk-" + os.urandom(16).hex()
VAULT_WANTED = {"credentials": [{"name": "m", "source": {"type": "inline", "value": SECRET}}],
                "bindings": [{"name": "m", "match": {"hosts": ["api.model.test"]},
                              "auth": {"type": "bearer", "credential": "m"}}]}


def item(change):
    """A lie of the list about sbx-b."""
    def edit(doc):
        for i, x in enumerate(doc["items"]):
            if x["id"] == "sbx-b":
                doc["items"][i] = change(x) or x
    return Lie(edit)


def end(text=None, **headers):
    """A lie about where sbx-b's sidecar is, or what it has to be sent."""
    def edit(doc):
        if text is not None:
            doc["endpoint"] = text.format(doc["endpoint"])
        doc["headers"].update(headers)
    return Lie(edit)


def lines(change):
    """A lie of a trail: change gets its lines and gives others."""
    def edit(reply):
        return b"".join(change(reply.body.splitlines(True)))
    return Lie(over=edit)


def wider(doc):
    doc["policy"]["egress"].insert(0, {"action": "allow", "target": "evil.test"})


def changed(rows):
    return [x.replace(b"docs.test", b"evil.test") for x in rows]


SANDBOX = standin.Sandbox("sbx-a", None, {"agent": "reviewer"}).doc()
REDIRECT = [("Location", f"http://{ELSEWHERE}:80/v1/sandboxes")]
# name: (method, path, lie). Each is told for all of a round.
LIES = {
    "list-401": ("GET", LIST, Lie(status=401, doc={"code": "INVALID_API_KEY", "message": "no"})),
    "list-401-shows-the-key": ("GET", LIST, Lie(status=401, doc={
        "code": "X", "message": f"{standin.KEY} is not known"})),
    "list-403": ("GET", LIST, Lie(status=403, doc={"code": "FORBIDDEN", "message": "no"})),
    "list-404": ("GET", LIST, Lie(status=404, doc={"detail": "Not Found"})),
    "list-409": ("GET", LIST, Lie(status=409, doc={"code": "X", "message": "state"})),
    "list-429": ("GET", LIST, Lie(status=429, doc={"code": "X", "message": "slow down"},
                                  fields=[("Retry-After", "1")])),
    "list-429-forever": ("GET", LIST, Lie(status=429, doc={}, fields=[("Retry-After", "9" * 30)])),
    "list-500": ("GET", LIST, Lie(status=500, doc={"code": "GENERAL::UNKNOWN_ERROR",
                                                   "message": "a\r\nline: \u001b[31m"})),
    "list-503-empty": ("GET", LIST, Lie(status=503, body=b"", doc=None)),
    "list-silent": ("GET", LIST, Lie(silent=True)),
    "list-closed": ("GET", LIST, Lie(cut=0)),
    "list-cut": ("GET", LIST, Lie(cut=-40)),
    "list-truncated": ("GET", LIST, Lie(body=b'{"items":[{"id":"sbx-b","status":{"sta')),
    "list-html": ("GET", LIST, Lie(body=b"<html>Sign in</html>", type="text/html")),
    "list-no-http": ("GET", LIST, Lie(raw=b"SSH-2.0-OpenSSH_9.2\r\n")),
    "list-two-lengths": ("GET", LIST, Lie(fields=[("Content-Length", "3")])),
    "list-too-large": ("GET", LIST, Lie(body=b'{"items":[], "x":"' + b"x" * (6 << 20) + b'"}')),
    "list-deep": ("GET", LIST, Lie(body=b'{"items":' + b"[" * 100000)),
    "list-no-items": ("GET", LIST, Lie(lambda doc: {"items": None})),
    "list-is-list": ("GET", LIST, Lie(lambda doc: doc["items"])),
    "list-redirect": ("GET", LIST, Lie(status=302, fields=REDIRECT)),
    "list-redirect-308": ("GET", LIST, Lie(status=308, fields=REDIRECT)),
    "list-never-ends": ("GET", LIST, Lie(lambda doc: doc["pagination"].update(hasNextPage=True))),
    "list-never-ends-and-repeats": ("GET", LIST, Lie(lambda doc: (
        doc["pagination"].update(hasNextPage=True, totalPages=10 ** 9),
        doc.update(items=doc["items"] or [SANDBOX])) and None)),
    "list-forgets-one": ("GET", LIST, Lie(lambda doc: doc.update(
        items=[x for x in doc["items"] if x["id"] != "sbx-b"]))),
    "list-forgets-all": ("GET", LIST, Lie(lambda doc: doc.update(items=[]))),
    "list-twice-the-same": ("GET", LIST, Lie(lambda doc: doc["items"].extend(doc["items"]))),
    "list-many": ("GET", LIST, Lie(lambda doc: doc["items"].extend(
        {**doc["items"][0], "id": f"sbx-no-{i}"} for i in range(300)))),
    "unknown-state": ("GET", LIST, item(lambda x: x["status"].update(state="Hibernating"))),
    "unknown-fields": ("GET", LIST, item(lambda x: x.update(quantum={"a": [1] * 50}))),
    "state-is-number": ("GET", LIST, item(lambda x: x["status"].update(state=7))),
    "state-with-escape": ("GET", LIST, item(lambda x: x["status"].update(state="a\x1b[2J\r\nb"))),
    "metadata-with-escape": ("GET", LIST, item(lambda x: x["metadata"].update({"\x1b[2J": "\x07"}))),
    "id-is-path": ("GET", LIST, item(lambda x: {**x, "id": "../../../sbx-b"})),
    "id-is-dots": ("GET", LIST, item(lambda x: {**x, "id": ".."})),
    "id-is-empty": ("GET", LIST, item(lambda x: {**x, "id": ""})),
    "id-is-long": ("GET", LIST, item(lambda x: {**x, "id": "s" * 5000})),
    "id-with-line": ("GET", LIST, item(lambda x: {**x, "id": "a\r\nHost: evil.test"})),
    "id-of-other": ("GET", LIST, item(lambda x: {**x, "id": "sbx-a"})),
    "expiry-is-text": ("GET", LIST, item(lambda x: x.update(expiresAt="tomorrow"))),
    "expiry-is-past": ("GET", LIST, item(lambda x: x.update(expiresAt="2020-01-01T00:00:00Z"))),
    "metadata-is-list": ("GET", LIST, item(lambda x: x.update(metadata=["agent"]))),
    "other-metadata": ("GET", LIST, item(lambda x: x.update(metadata={"agent": "other"}))),
    "end-404": ("GET", END, Lie(status=404, doc={"code": "X", "message": "no port"})),
    "end-500": ("GET", END, Lie(status=500, doc={})),
    "end-redirect": ("GET", END, Lie(status=302, fields=REDIRECT)),
    "end-elsewhere": ("GET", END, end(ELSEWHERE + ":80/proxy/18080")),
    "end-elsewhere-by-name": ("GET", END, end("evil.test/proxy/18080")),
    "end-with-user": ("GET", END, end("127.0.0.1@" + ELSEWHERE + "/proxy/18080")),
    "end-with-scheme": ("GET", END, end("http://" + ELSEWHERE + "/proxy/18080")),
    "end-with-slashes": ("GET", END, end("//" + ELSEWHERE + "/")),
    "end-with-query": ("GET", END, end("{}?x=")),
    "end-with-fragment": ("GET", END, end("{}#")),
    "end-with-dots": ("GET", END, end("{}/../..")),
    "end-with-line": ("GET", END, end("{}\r\nX: y")),
    "end-is-empty": ("GET", END, end("")),
    "end-is-number": ("GET", END, Lie(lambda doc: doc.update(endpoint=8080))),
    "end-is-long": ("GET", END, end("{}/" + "x" * 100000)),
    "end-port-0": ("GET", END, end("127.0.0.1:0/proxy/18080")),
    "end-port-65536": ("GET", END, end("127.0.0.1:65536/proxy/18080")),
    "field-host": ("GET", END, end(Host="evil.test")),
    "field-length": ("GET", END, end(**{"Content-Length": "3"})),
    "field-chunked": ("GET", END, end(**{"Transfer-Encoding": "chunked"})),
    "field-with-line": ("GET", END, end(X="a\r\nY: b")),
    "field-name-with-line": ("GET", END, end(**{"X\r\nY": "b"})),
    "field-is-number": ("GET", END, end(X=3)),
    "field-is-long": ("GET", END, end(X="x" * 100000)),
    "token-wrong": ("GET", END, end(**{"OPENSANDBOX-EGRESS-AUTH": "x" * 32})),
    "sidecar-401": ("GET", STATUS, Lie(status=401, doc={"code": "unauthorized", "message": "no"})),
    "sidecar-silent": ("*", "/sbx-b/.*", Lie(silent=True)),
    "sidecar-502": ("*", "/sbx-b/.*", Lie(status=502, body=b"Bad Gateway", type="text/plain")),
    "sidecar-of-other": ("GET", STATUS, Lie(lambda doc: doc.update(sandbox="sbx-a"))),
    "sidecar-of-nobody": ("GET", STATUS, Lie(lambda doc: doc.update(sandbox=None))),
    "sidecar-too-old": ("GET", STATUS, Lie(lambda doc: doc.update(version="0.0.1"))),
    "sidecar-without-version": ("GET", STATUS, Lie(lambda doc: doc.pop("version") and None)),
    "sidecar-is-another-program": ("GET", STATUS, Lie(lambda doc: {"status": "ok"})),
    "sidecar-redirect": ("GET", STATUS, Lie(status=302, fields=REDIRECT)),
    "trail-changed": ("GET", AUDIT, lines(changed)),
    "trail-without-a-line": ("GET", AUDIT, lines(lambda x: x[:1] + x[2:])),
    "trail-turned-round": ("GET", AUDIT, lines(lambda x: x[::-1])),
    "trail-of-other": ("GET", AUDIT, lines(lambda x: x + x)),
    "trail-torn": ("GET", AUDIT, lines(lambda x: [b"".join(x)[:-30]])),
    "trail-is-html": ("GET", AUDIT, Lie(body=b"<html></html>", type="text/html")),
    "trail-is-html-of-the-right-type": ("GET", AUDIT, Lie(body=b"<html></html>\n")),
    "trail-too-large": ("GET", AUDIT, Lie(body=b"x" * (3 << 20))),
    "trail-never-ends": ("GET", AUDIT, Lie(body=b"", fields=[("X-Egress-Audit-Last", "9" * 18)])),
    "trail-gone": ("GET", AUDIT, Lie(status=410, doc={"code": "lines_gone", "message": "gone"})),
    "trail-other": ("GET", AUDIT, Lie(status=409, doc={"code": "other_trail", "message": "no"})),
    "trail-500": ("GET", AUDIT, Lie(status=500, doc={})),
    "policy-wider": ("GET", POLICY, Lie(wider)),
    "policy-garbage": ("GET", POLICY, Lie(body=b"{")),
    "policy-null": ("GET", POLICY, Lie(lambda doc: doc.update(policy=None))),
    "policy-put-500": ("PUT", POLICY, Lie(status=500, doc={"code": "not_saved", "message": "no"})),
    "vault-post-500": ("POST", VAULT, Lie(status=500, doc={"code": "x", "message": SECRET})),
    "vault-post-400": ("POST", VAULT, Lie(status=400, doc={"code": SECRET, "message": SECRET})),
    "vault-changed": ("GET", VAULT, Lie(lambda doc: doc.update(revision=7))),
}


LIST_SAYS = "the list of sandboxes: "
# What the log says to it; by the beginning of the name where one says it for all.
SAYS = {
    "list-401-shows-the-key": LIST_SAYS + "401",
    "list-401": LIST_SAYS + "401 INVALID_API_KEY: no", "list-403": LIST_SAYS + "403 FORBIDDEN: no",
    "list-404": LIST_SAYS + "404", "list-409": LIST_SAYS + "409 X: state",
    "list-429": LIST_SAYS + "429", "list-500": LIST_SAYS + "500 GENERAL::UNKNOWN_ERROR: a\\x0d",
    "list-503-empty": LIST_SAYS + "503", "list-silent": LIST_SAYS + "no whole answer in time",
    "list-closed": LIST_SAYS + "the connection ended without an answer",
    "list-cut": LIST_SAYS + "the connection ended inside the answer",
    "list-truncated": LIST_SAYS + "the answer is no JSON object",
    "list-html": LIST_SAYS + "the answer is no JSON object",
    "list-two-lengths": LIST_SAYS + "more than one Content-Length",
    "list-too-large": LIST_SAYS, "list-deep": LIST_SAYS + "the answer is no JSON object",
    "list-no-items": LIST_SAYS + "expected items", "list-is-list": LIST_SAYS,
    "list-redirect": LIST_SAYS + "30", "list-never-ends": LIST_SAYS + "it does not come to an end",
    "list-forgets": "sbx-b: it has ended", "state-is-number": LIST_SAYS + "status.state",
    "id-is-": LIST_SAYS + "id: expected", "id-with-line": LIST_SAYS + "id: expected",
    "expiry-is-text": LIST_SAYS + "expiresAt", "state-with-escape": None,
    "metadata-is-list": LIST_SAYS + "metadata",
    "end-elsewhere": "alarm foreign-sidecar: sbx-b: the sidecar is not one of ours, or too old: the "
                     "endpoint is at ",
    "end-404": None, "end-500": None, "end-redirect": None,
    "end-": "alarm foreign-sidecar: sbx-b: ", "field-": "alarm foreign-sidecar: sbx-b: ",
    "token-wrong": "alarm lost-lines: sbx-b: ", "sidecar-401": "alarm lost-lines: sbx-b: ",
    "sidecar-of-other": "it is the sidecar of sbx-a", "sidecar-too-old": "version 0.0.1",
    "sidecar-without-version": "no status of ours", "sidecar-redirect": "no status of ours",
    "sidecar-is-another-program": "no status of ours",
    "trail-is-html": None, "trail-too-large": None, "trail-never-ends": None, "trail-500": None,
    "trail-other": None, "trail-gone": "alarm lost-lines: sbx-b: ",
    "trail-": "alarm chain: sbx-b: ", "policy-wider": "alarm policy-differs: sbx-b: ",
    "vault-post-400": "alarm policy-differs: sbx-b: ",
    "vault-changed": "alarm policy-differs: sbx-b: ",
}
HEARD = {"list-forgets-one": 4, "list-forgets-all": 4, "list-never-ends-and-repeats": 51, "expiry-is-past": 4,
         "policy-garbage": 2, "policy-null": 2}
# It is asked again a minute later.
LASTING = ("sidecar-of-other", "sidecar-too-old", "sidecar-without-version", "sidecar-redirect",
           "sidecar-is-another-program")


# What every command asks for: the list, one sandbox, its endpoint, its status.
TOLD_TO_ALL = ("list-", "id-", "state-", "unknown-", "expiry-", "metadata-", "end-", "field-",
               "sidecar-")


def says(name):
    """The longest of SAYS that the name begins with."""
    fits = [k for k in SAYS if name.startswith(k)]
    return SAYS[max(fits, key=len)] if fits else None


class Bed:
    """Two sandboxes: sbx-a is spoken the truth about, sbx-b is lied about. make: as watchbed.Watch,
    for another build."""

    def __init__(self, top, world, make=watchbed.Watch):
        self.top, self.world, self.key, self.mark = top, world, standin.KEY, 0
        self.boxes = [world.create(id, {"agent": "reviewer"}) for id in ("sbx-a", "sbx-b")]
        self.w = make(top, world.url, self.key, "--interval", "1")
        path = os.path.join(self.w.dir, "wanted", "vault.json")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            json.dump(VAULT_WANTED, f)
        self.w.wanted("sites", select={"metadata": {"agent": "reviewer"}}, policy=POLICY_WANTED,
                      vault="vault.json")

    def begin(self):
        self.w.run()
        self.recover("the start")
        self.top_files = sorted(os.listdir(self.top))

    def end(self):
        self.w.kill()
        self.world.stop()

    def honest(self, box):
        """Policy and vault are the wanted ones, and the newest file has the trail to its end."""
        copy, trail = self.w.trails(box.id)[-1], box.sidecar.trail()
        return (box.sidecar.policy == POLICY_WANTED and box.sidecar.vault and
                box.sidecar.vault["bindings"][0]["name"] == "m" and copy and
                trail.endswith(copy) and copy.endswith(box.sidecar.lines[-1]))

    def recover(self, name):
        """The truth is told, and all comes to be as it should."""
        self.world.http.forget()
        lists = len(self.world.list_times)
        for box in self.boxes:
            box.sidecar.write()
        until(lambda: len(self.world.list_times) > lists + 1 or self.w.ended(), "a list", RECOVER_S)
        for box in self.boxes:
            try:
                until(lambda: self.honest(box) or self.w.ended(), "as it should be", RECOVER_S)
            except Failed as e:
                raise Failed(f"after {name}, {box.id}: {e}; files {self.w.files()}, calls "
                             f"{[r.target for r in self.world.http.requests if box.id in r.target][-8:]}, {box.sidecar.seq} lines, policy {box.sidecar.policy}, it "
                             f"said {self.w.text()[-900:]}") from e

    def tell(self, name, answered=True):
        """Tells a lie until it was heard, and answered in the log. What the program said to it."""
        size, before = len(self.w.text()), len(self.world.http.requests)
        if not name.startswith("trail-"):
            self.boxes[1].sidecar.start()  # so that all is asked and pushed again
        if name.startswith(("end-", "field-", "token-")):  # and the address too
            self.world.http.lie("*", "/sbx-b/.*", Lie(status=502, doc={}), times=1)
        for box in self.boxes:
            box.sidecar.write(3)
        entry = self.world.http.lie(*LIES[name])
        asked = self.world.http.requests

        def heard():
            return sum(self.world.http.fits(entry, r) for r in asked[before:]) >= HEARD.get(name, 1)
        until(lambda: heard() or self.w.ended(), f"{name} is asked for", RECOVER_S)
        part = says(name)
        if part and answered:
            try:
                self.w.says(part, RECOVER_S, size)
            except Failed as e:
                raise Failed(f"{name}: {e}; it said {self.w.text()[size:][-900:]}") from e
        self.nothing_got_out(name)
        return self.w.text()[size:]

    def nothing_got_out(self, name):
        """What must hold while a lie is told, over all requests since the last look."""
        requests = self.world.http.requests
        new, self.mark = requests[self.mark:], len(requests)
        for r in new:
            text = repr((r.target, r.fields, r.body))
            want(self.key in text, r.port == self.world.api.number, f"{name}: the key in {r}")
            for box in self.boxes:
                own = r.path.startswith(f"/{box.id}/proxy/")
                if box.sidecar.token in text and not own:
                    raise Failed(f"{name}: the token of {box.id} in {r}")
            if SECRET in text and (r.method, r.path[6:]) != ("POST", VAULT[6:]):
                raise Failed(f"{name}: a key of the vault in {r}")
        said = self.w.text()
        for secret in (self.key, SECRET, *(b.sidecar.token for b in self.boxes)):
            if secret in said:
                raise Failed(f"{name}: a secret in the log: {said[-600:]}")
        for box in self.boxes:
            if box.sidecar.policy not in (POLICY_WANTED, box.sidecar.start_policy):
                raise Failed(f"{name}: policy of {box.id} is {box.sidecar.policy}")
        copies = self.w.trails("sbx-a")
        want((len(copies), self.boxes[0].sidecar.trail().startswith(copies[0])), (1, True),
             f"{name}: the trail of sbx-a")
        extra = [f for f in self.w.files() if not re.fullmatch(
            r"lock|wanted/.*|(audit|state)/sbx-(a|b|no-\d+)(~\d+|~trail)?(\.jsonl)?", f)]
        want(extra, [], f"{name}: files")
        want(sorted(os.listdir(self.top)), self.top_files, f"{name}: files beside the folder")


def tell_all(names):
    """These lies, one after the other, to one process."""
    world = standin.World()
    bed = Bed(tempfile.mkdtemp(dir=apibed.TOP[0]), world)
    try:
        bed.begin()
        for name in names:
            said = bed.tell(name)
            if os.environ.get("WATCH_LIES_SAID"):
                print(f"  {name}: {said.strip()}", flush=True)
            if not name.startswith("trail-"):
                want(("alarm chain" in said, "alarm traffic" in said), (False, False), name)
            if name in LASTING:  # it asks again after a minute; one that was restarted, at once
                bed.w.kill()
                bed.w.run()
            bed.recover(name)
        bed.w.stop()
        for box in bed.boxes:
            bed.nothing_got_out("the end")
    finally:
        bed.end()


def in_pool(run, names):
    with ThreadPoolExecutor(BEDS) as pool:
        runs = [pool.submit(run, names[i::BEDS]) for i in range(BEDS)]
    errors = [str(e) for e in (r.exception() for r in runs) if e]
    if errors:
        raise Failed(f"{len(errors)} of {BEDS}: " + " ## ".join(errors))


def case_lies():
    """Each of LIES, by processes side by side, since they mostly wait."""
    in_pool(tell_all, list(LIES))


def list_with(names):
    """egressctl sandboxes and sandbox, told each of these."""
    world = standin.World()
    boxes = [world.create(id, {"agent": "reviewer"}) for id in ("sbx-a", "sbx-b")]
    w = watchbed.Watch(tempfile.mkdtemp(dir=apibed.TOP[0]), world.url, standin.KEY)
    try:
        for name in names:
            entry, before = world.http.lie(*LIES[name]), len(world.http.requests)
            for args in (["sandboxes"], ["sandbox", "sbx-b"]):
                p = subprocess.run([watchbed.CTL, *args, *w.args[3:]], env=w.env, timeout=60,
                                   capture_output=True, text=True, check=False)
                if p.returncode not in (0, 1, 2) or "Sanitizer" in p.stderr:
                    raise Failed(f"{name}: {args} ended with {p.returncode}: {p.stderr[-900:]}")
                shown = p.stdout + p.stderr
                if any(x in shown for x in (standin.KEY, *(b.sidecar.token for b in boxes))):
                    raise Failed(f"{name}: {args} shows a secret: {shown}")
                if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", shown):
                    raise Failed(f"{name}: {args} shows control bytes: {shown!r}")
            for r in world.http.requests[before:]:
                want(standin.KEY in repr(r.fields), r.port == world.api.number, f"the key in {r}")
            want(any(world.http.fits(entry, r) for r in world.http.requests[before:]), True, name)
            world.http.forget()
    finally:
        world.stop()


def case_lies_to_the_table():
    """The same lies to the commands that only show."""
    in_pool(list_with, [n for n in LIES if n.startswith(TOLD_TO_ALL)])


def follow(*args, tls=False, **settings):
    """A bed of its own, begun by the caller."""
    top = tempfile.mkdtemp(dir=apibed.TOP[0])
    world = standin.World(top if tls else None, **settings)
    return Bed(tempfile.mkdtemp(dir=apibed.TOP[0]), world,
               lambda t, url, *more: watchbed.Watch(t, world.url_tls or url, *more, *args))


def listened_elsewhere(world, what):
    """A port of ELSEWHERE, and the requests that came to it."""
    if os.geteuid() != 0:
        raise Skip("needs root, for an address of its own")
    subprocess.run(["ip", "addr", "add", ELSEWHERE + "/32", "dev", "lo"], check=False,
                   capture_output=True)
    seen = []

    def keep(request):
        seen.append(request)
        return what(request)
    return world.http.listen(keep, ELSEWHERE), seen


def case_an_endpoint_elsewhere():
    """The token of an endpoint at a host that nobody named goes nowhere; named, it goes there."""
    for named in (False, True):
        bed = follow(*(("--endpoint-host", ELSEWHERE) if named else ()))
        try:
            box = bed.boxes[1]
            port, seen = listened_elsewhere(bed.world, bed.world.on_sidecar)
            box.endpoint = f"{ELSEWHERE}:{port.number}/sbx-b/proxy/18080"
            bed.w.run()
            if named:
                bed.recover("a named host")
                want({r.field("OPENSANDBOX-EGRESS-AUTH") for r in seen}, {box.sidecar.token},
                     "tokens there")
            else:
                bed.w.says("alarm foreign-sidecar: sbx-b")
                until(lambda: len(bed.world.http.seen("GET", END)) > 1, "it is asked again")
                want(seen, [], "requests there")
        finally:
            bed.end()


def case_redirects_are_not_followed():
    """To where a client that follows them does get."""
    bed = follow()
    try:
        bed.begin()
        port, seen = listened_elsewhere(bed.world, bed.world.on_api)
        there = [("Location", f"http://{ELSEWHERE}:{port.number}/v1/sandboxes")]
        bed.world.http.lie("*", "/.*", Lie(status=302, fields=there))
        size = len(bed.world.http.requests)
        until(lambda: len(bed.world.http.requests) > size + 3, "requests")
        want(seen, [], "requests there")
        url = bed.world.url + "/v1/sandboxes"
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            pass
        want(bool(seen), True, "requests of a client that follows")
        bed.recover("redirects")
    finally:
        bed.end()


def case_tls_is_verified():
    """A certificate of an authority that nobody named: no key is sent; named by --ca, it is."""
    bed = follow(tls=True)
    try:
        bed.w.run()
        bed.w.says("the list of sandboxes: ")
        want(bed.world.http.requests, [], "requests")
        bed.w.kill()
        bed.w.args += ["--ca", bed.world.ca]
        bed.w.run()
        until(lambda: bed.world.http.requests or bed.w.ended(), "requests")
        want(bed.world.http.requests[0].field("OPEN-SANDBOX-API-KEY"), bed.key, "the key")
        until(lambda: bed.honest(bed.boxes[0]) or bed.w.ended(), "as it should be",
              RECOVER_S)
    finally:
        bed.end()


def case_a_dead_server():
    """Trails go on to be collected without it, and it is asked rarely."""
    bed = follow()
    try:
        bed.begin()
        bed.world.http.close(bed.world.api)
        bed.w.says(LIST_SAYS)
        for box in bed.boxes:
            box.sidecar.write(5)
            bed.w.collects(box.id, box.sidecar.trail())
        bed.world.api = bed.world.http.listen(bed.world.on_api, number=bed.world.api.number)
        bed.w.says("the list of sandboxes is there again", 40)
        bed.recover("a dead server")
    finally:
        bed.end()


def case_retry_after():
    """Nothing is asked of the server for as long as it wants."""
    bed = follow()
    try:
        bed.begin()
        bed.world.http.lie("GET", LIST, Lie(status=429, doc={}, fields=[("Retry-After", "4")]),
                           times=2)
        size = len(bed.world.list_times)
        until(lambda: len(bed.world.list_times) >= size + 3 or bed.w.ended(), "three lists", 20)
        times = bed.world.list_times[size:]
        for before, after in zip(times, times[1:3]):
            want(after - before >= 4, True, f"{after - before:.2f} s between two lists")
        bed.recover("429")
    finally:
        bed.end()


def shape(doc):
    """Names and types of a document, two levels deep, without what a setting adds."""
    if not isinstance(doc, dict):
        return type(doc).__name__
    return {k: sorted(v) if isinstance(v, dict) else type(v).__name__ for k, v in doc.items()}


def case_the_sidecars_are_like_egress():
    """What the others rely on: the stand-in answers as the program does."""
    box = standin.Sidecar("sbx-1")

    def ask(method, target, body=b""):
        head = f"{method} {target} HTTP/1.1\r\nOPENSANDBOX-EGRESS-AUTH: {box.token}"
        request = standin.Request(0, head, body)
        return box.handle(request, request.path)
    with running(OPENSANDBOX_EGRESS_SANDBOX_ID="sbx-1", AGENTIC_WRITE_HOSTS="api.model.test",
                 EGRESS_READ_ONLY="1") as e:
        for method, target, body in (
                ("GET", "/policy", b""), ("PUT", "/policy", b'{"egress":[]}'),
                ("GET", "/status", b""), ("GET", "/audit/context", b""),
                ("PUT", "/audit/context", b'{"labels":{"run":"r-1"}}'),
                ("GET", "/credential-vault", b""), ("GET", "/no-such", b""),
                ("GET", "/audit?after=99", b""), ("GET", "/audit?limit=0", b"")):
            real, own = e.raw(e.request(method, target, body))[0][0], ask(method, target, body)
            want((own.status, own.doc.get("code")), (real.status, real.doc.get("code")),
                 f"{method} {target}")
            missing = {k: v for k, v in shape(real.doc).items() if shape(own.doc).get(k) != v}
            if missing and real.status == 200:
                raise Failed(f"{method} {target}: {missing} is not {shape(own.doc)}")
            for name in ("X-Egress-Instance", "X-Egress-Audit-Last", "X-Egress-Audit-Oldest"):
                want(name in dict(own.fields), real.field(name.lower()) is not None,
                     f"{method} {target}: field {name}")
        until(e.audit, "a line in the file")
        line = e.audit()[0]
        want([k for k in line if k not in ("v", "seq", "prev")], list(standin.FIELDS), "fields")
        want(line["kind"], "start", "the first line")


if __name__ == "__main__":
    sys.exit(main(globals(), beside=3))
