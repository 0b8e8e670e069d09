#!/usr/bin/env python3
"""What requests get when the vault is written by the API: each write is looked at by GET and by real
requests through the proxy, and memory is searched for what was written. Routes, codes and messages:
api_vault.py. Names like V152 are lines of the vault's catalogue in docs/compatibility.md; W1 to W5
are the worked examples of the replaced image's description."""
import base64
import json
import os
import signal
import socket
import sys
import threading
import time

import casebed
import keysbed
import leakscan
from apibed import Answer, free_ports
from casebed import Failed, replies_of, until, want, want_in, want_out
from keysbed import HOST, OFF, Client, ask, answers, bearer, bind, document, passthrough, request

TOKEN = "0123456789abcdef0123456789abcdef"
VAULT = "/credential-vault"
GONE = b"no key"


def key():
    """Random, so that no piece of it is anywhere by chance."""
    return base64.b32encode(os.urandom(20))


class Api:
    """The API of an egress without a vault file."""

    def __init__(self, bed, name, **settings):
        port = int(settings.pop("api_port", 0)) or free_ports(1)[0]
        self.bed, self.port = bed, port
        self.egress = bed.need(name, **{"OPENSANDBOX_EGRESS_HTTP_ADDR": f"127.0.0.1:{port}",
                                        "OPENSANDBOX_EGRESS_TOKEN": TOKEN, **OFF, **settings})
        if not hasattr(self.egress, "api_port"):
            self.egress.api_port = port
        self.port = self.egress.api_port
        self.sock = None

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    @staticmethod
    def data(method, doc=None, path=VAULT, token=TOKEN):
        body = doc if isinstance(doc, bytes) else b"" if doc is None else json.dumps(doc).encode()
        return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
                f"OPENSANDBOX-EGRESS-AUTH: {token}\r\n\r\n").encode() + body

    def read(self, s, n=1):
        got, eof = b"", False
        while len([r for r in replies_of(got, eof) if r.status >= 200]) < n and not eof:
            part = s.recv(65536)
            got, eof = got + part, not part
        return [Answer(r) for r in replies_of(got, eof) if r.status >= 200]

    def call(self, method, doc=None, status=None, path=VAULT):
        """Over one connection that is kept."""
        self.sock = self.sock or self.connect()
        self.sock.sendall(self.data(method, doc, path))
        a = self.read(self.sock)[0]
        if status:
            want(a.status, status, f"{method} {path}: {a}")
        return a

    def fresh(self, doc):
        """This vault and no other."""
        self.call("DELETE")
        a = self.call("POST", doc, 201)
        want(self.call("GET", status=200).doc, a.doc, "GET after POST")
        return a.doc

    def patch(self, doc):
        a = self.call("PATCH", doc, 200)
        want(self.call("GET", status=200).doc, a.doc, "GET after PATCH")
        return a.doc


def api(bed):
    return Api(bed, "api")


def got_key(bed, client, target=b"/v1/x"):
    """The key that the origin of this request saw in Authorization, on a kept connection."""
    mark = bed.origins.mark()
    client.send(request(target))
    want(client.answer().status, 200, "answer")
    got = keysbed.sent(bed, mark)
    for line in got.split(b"\r\n"):
        if line.lower().startswith(b"authorization: bearer "):
            return line[22:]
    return GONE


def one(value, paths=("/v1/*",)):
    return document({"k": value}, bind("b", bearer(), paths))


def set_key(value):
    return {"credentials": {"replace": [{"name": "k", "source": {"value": value.decode()}}]}}


# --- 11.11 end to end ---

def V151_five_bindings_of_each_kind(bed):
    """Each path sees exactly its fields, and the state has no value."""
    a, values = api(bed), {n: key() for n in ("bearer", "basic", "one", "two", "three")}
    values["basic"] = base64.b64encode(b"bot:" + values["basic"])
    kinds = {
        "bearer": (bearer(credential="bearer"), [b"Authorization: Bearer @bearer"]),
        "basic": ({"type": "basic", "credential": "basic"}, [b"Authorization: Basic @basic"]),
        "apiKey": ({"type": "apiKey", "name": "x-api-key", "credential": "one"},
                   [b"X-Api-Key: @one"]),
        "custom": ({"type": "customHeaders", "headers": [
            {"name": "x-first", "credential": "two"}, {"name": "X-SECOND", "credential": "three"}]},
            [b"X-First: @two", b"X-Second: @three"]),
        "none": (passthrough(), [])}
    doc = document(values, *[bind(n, auth, [f"/{n}/*"]) for n, (auth, _) in kinds.items()])
    state = json.dumps(a.fresh(doc)).encode()
    for value in values.values():
        want_out(value, state, "state")
    for name, (_, lines) in kinds.items():
        _, got = ask(bed, request(f"/{name}/x".encode()))
        for line in lines:
            mark = line.split(b"@")[1]
            want_in(b"\r\n" + line.split(b"@")[0] + values[mark.decode()] + b"\r\n", got, name)
        for other, value in values.items():
            if not any(line.endswith(b"@" + other.encode()) for line in lines):
                want_out(value, got, f"{name} has the key of another")


def V152_from_an_empty_vault_to_none(bed):
    """Each step is seen by the next request, on a connection that stays open."""
    a, first, second = api(bed), key(), key()
    with Client(bed) as c:
        a.fresh({})
        want(got_key(bed, c), GONE, "an empty vault")
        add = {"credentials": {"add": one(first)["credentials"]},
               "bindings": {"add": one(first)["bindings"]}}
        want(a.patch(add)["revision"], 2, "revision")
        want(got_key(bed, c), first, "added")
        a.patch({"bindings": {"delete": ["b"]}})
        want(got_key(bed, c), GONE, "its binding is gone")
        a.patch({**set_key(second), "bindings": {"add": [bind("c", bearer(), ["/v2/*"])]}})
        want([got_key(bed, c), got_key(bed, c, b"/v2/x")], [GONE, second], "another path")
        a.patch({"bindings": {"delete": ["c"]}})
        want(got_key(bed, c, b"/v2/x"), GONE, "gone")
        want(a.patch({"credentials": {"delete": ["k"]}}),
             {"revision": 6, "credentials": [], "bindings": []}, "state")
        a.fresh(one(second))
        want(got_key(bed, c), second, "a new vault")
        a.call("DELETE", status=204)
        a.call("GET", status=404)
        want(got_key(bed, c), GONE, "no vault")


def V125_a_request_under_way_keeps_its_key(bed):
    """Its head has gone out; the answer that comes after the change is searched for its own key."""
    a, first, second = api(bed), key(), key()
    a.fresh(one(first))
    go = threading.Event()

    def slow(peer, head):
        peer.body(head)
        go.wait(5)
        body = b"old " + first + b" new " + second
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)
        return True

    bed.origins.routes["/v1/slow"] = slow
    with Client(bed) as c, Client(bed) as other:
        mark = bed.origins.mark()
        c.send(request(b"/v1/slow"))
        until(lambda: first in keysbed.sent(bed, mark), "the request is under way")
        a.patch(set_key(second))
        want(got_key(bed, other), second, "the next one has the new key")
        go.set()
        body = c.answer().body
        want_out(first, body, "the key it was sent with")
        want(got_key(bed, c), second, "the next on its connection")
        # by DELETE, the same
        go.clear()
        mark = bed.origins.mark()
        c.send(request(b"/v1/slow"))
        until(lambda: second in keysbed.sent(bed, mark), "the request is under way")
        a.call("DELETE", status=204)
        go.set()
        want_out(second, c.answer().body, "the key it was sent with, though there is no vault")


def V165_a_key_is_never_stale_after_the_answer(bed):
    """10,000 turns in tests/long; here what two seconds hold."""
    a = api(bed)
    a.fresh(one(key()))
    turns, end = 0, time.monotonic() + float(os.environ.get("EGRESS_ROTATION_SECONDS", "2"))
    most = int(os.environ.get("EGRESS_ROTATION_TURNS", "0"))
    with Client(bed) as c:
        while time.monotonic() < end or turns < most:
            value = b"sk-turn-%08d-%s" % (turns, os.urandom(4).hex().encode())
            want(a.call("PATCH", set_key(value)).status, 200, "PATCH")
            want(got_key(bed, c), value, f"turn {turns}")
            turns += 1
            c.forget()
    want(turns >= 50, True, f"{turns} turns")
    print(f"# {turns} turns")


def V166_a_binding_that_is_taken_away_injects_nothing_more(bed):
    """Four clients that never stop, five times: what an origin got after the answer to DELETE has no
    key in it."""
    a, value, stop, wrong = api(bed), key(), threading.Event(), []
    late, after = [], threading.Event()

    def seen(peer, head):
        if after.is_set() and value in head:
            late.append(head)
        peer.body(head)
        peer.send(casebed.ok(b"ok"))
        return True

    bed.origins.routes["/v1/load"] = seen

    def client():
        try:
            with Client(bed) as c:
                while not stop.is_set():
                    c.send(request(b"/v1/load"))
                    c.answer()
                    c.forget()
        except (Failed, OSError) as e:
            wrong.append(str(e))

    a.fresh(one(value))
    threads = [threading.Thread(target=client) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        for _ in range(5):
            mark = bed.origins.mark()
            until(lambda m=mark: value in keysbed.sent(bed, m), "control: the key goes out")
            a.call("PATCH", {"bindings": {"delete": ["b"]}}, 200)
            time.sleep(0.05)  # what was on its way when it was answered has arrived
            after.set()
            time.sleep(0.2)
            after.clear()
            a.call("PATCH", {"bindings": {"add": one(value)["bindings"]}}, 200)
    finally:
        stop.set()
        for t in threads:
            t.join()
    want([len(late), wrong], [0, []], "requests with a key that was taken away")


def V166_a_request_held_back_gets_no_key_that_was_taken_away(bed):
    """Its content has not all come when the vault is written: it goes as one that begins now."""
    a, value = api(bed), key()
    content = b"k=" + keysbed.PH
    doc = document({"k": value, "other": key()},
                   bind("b", passthrough(keysbed.sub("body")), ("/v1/*",), methods=["POST"]))
    later = key()
    for method, change, status, sees in (
            ("PATCH", {"credentials": {"delete": ["other"]}}, 200, value),
            ("PATCH", set_key(later), 200, later), ("DELETE", None, 204, keysbed.PH),
            ("PATCH", {"bindings": {"delete": ["b"]}}, 200, keysbed.PH)):
        a.fresh(doc)
        mark = bed.origins.mark()
        with Client(bed) as c:
            c.send(request(b"/v1/held", b"Content-Type: text/plain\r\nContent-Length: %d\r\n"
                           % len(content), b"POST", content[:-1]))
            time.sleep(0.1)  # it is being collected
            a.call(method, change, status)
            c.send(content[-1:])
            want(c.answer().status, 200, f"{method} {change}")
        want(keysbed.sent(bed, mark).split(b"\r\n\r\n")[-1], b"k=" + sees, f"{method} {change}")


def V_crash_keeps_the_key_in_use(bed):
    a, value = Api(bed, "crash"), key()
    a.fresh(one(key()))
    a.patch(set_key(value))
    worker = a.egress.worker
    os.kill(worker, signal.SIGKILL)
    until(lambda: a.egress.worker not in (0, worker), "another worker", 10)
    a.sock = None
    until(lambda: not isinstance(bed.connect(f"{HOST}:443"), casebed.Talk), "it serves", 10)
    want(a.call("GET", status=200).doc["revision"], 2, "revision")
    with Client(bed) as c:
        want(got_key(bed, c), value, "the key after a crash")
    bed.running.remove(a.egress)  # its descriptors are another worker's
    a.egress.process.terminate()
    want(a.egress.process.wait(20), 0, "exit code")


def V_refused_writes_change_no_request(bed):
    a, value = api(bed), key()
    a.fresh(one(value))
    for method, doc in (("PATCH", {"expectedRevision": 9, **set_key(key())}),
                        ("PATCH", {"credentials": {"delete": ["k"]}}),
                        ("PATCH", {**set_key(key()), "bindings": {"delete": ["x"]}}),
                        ("PATCH", b'{"credentials":{"replace":[{'), ("POST", one(key())),
                        ("PATCH", {"bindings": {"add": [bind("x", bearer(), ["/v1/y"])]}})):
        a = api(bed)
        want(a.call(method, doc).status in (400, 409), True, f"{method} {doc}")
        with Client(bed) as c:
            want(got_key(bed, c), value, f"after {method} {doc}")


def V_policy_and_vault_together_in_effect(bed):
    """A bound host is reached as long as it is bound; both go in their order."""
    a, value = api(bed), key()
    a.fresh(one(value))
    deny = [{"action": "deny", "target": HOST}]
    a.call("PATCH", deny, 400, path="/policy")
    with Client(bed) as c:
        want(got_key(bed, c), value, "still")
    a.call("PATCH", {"bindings": {"delete": ["b"]}}, 200)
    a.call("PATCH", deny, 200, path="/policy")
    try:
        want(isinstance(bed.connect(f"{HOST}:443"), casebed.Talk), True, "refused")
        a.call("PATCH", {"bindings": {"add": one(value)["bindings"]}}, 400)
    finally:
        a.call("PATCH", [{"action": "allow", "target": HOST}], 200, path="/policy")
    a.call("PATCH", {"bindings": {"add": one(value)["bindings"]}}, 200)
    with Client(bed) as c:
        want(got_key(bed, c), value, "again")


# --- worked examples (reference 12) ---

def example(bed, doc, **want_state):
    state = api(bed).fresh(doc)
    want({k: state["bindings"][0][k] for k in want_state}, want_state, "state")


def binding(name, methods, paths, auth, **match):
    return {"name": name, "match": {"hosts": [HOST], "methods": methods, "paths": paths, **match},
            "auth": auth}


def W1_key_in_a_field_of_its_own(bed):
    value = key()
    example(bed, {"credentials": [{"name": "anthropic",
                                   "source": {"type": "inline", "value": value.decode()}}],
                  "bindings": [binding("anthropic-v1", ["GET", "POST"], ["/v1/*"],
                                       {"type": "apiKey", "name": "x-api-key",
                                        "credential": "anthropic"}, schemes=["https"])]},
            auth={"type": "apiKey", "name": "X-Api-Key"},
            match={"schemes": ["https"], "hosts": [HOST], "methods": ["GET", "POST"],
                   "paths": ["/v1/*"]})
    answers(bed, "/v1/messages", b"HTTP/1.1 200 OK\r\nx-echo: " + value +
            b"\r\nContent-Length: 2\r\n\r\nok")
    big = b"x" * (3 << 20)
    talk, got = ask(bed, request(b"/v1/messages", b"x-api-key: placeholder\r\n"
                                 b"anthropic-version: 2023-06-01\r\n"
                                 b"Content-Length: %d\r\n" % len(big), b"POST", big))
    head, body = got.split(b"\r\n\r\n", 1)
    want_in(b"\r\nX-Api-Key: " + value, head, "the key")
    want_in(b"\r\nanthropic-version: 2023-06-01", head, "other fields stay")
    want([head.lower().count(b"x-api-key"), len(body)], [1, len(big)], "replaced, streamed")
    want_out(value, talk.raw, "the echo")
    for data in (request(b"/v1/models", method=b"HEAD"), request(b"/v2/x")):
        _, got = ask(bed, data, **({"head": True} if data.startswith(b"HEAD") else {}))
        want_in(b"/v", got, "control: it arrives")
        want_out(value, got, "outside of the scope")


def W2_bearer_and_rotation(bed):
    a, old, new = api(bed), key(), key()
    a.fresh({"credentials": [{"name": "openai", "source": {"value": old.decode()}}],
             "bindings": [binding("openai", ["GET", "POST", "DELETE"], ["/v1/*"],
                                  {"type": "bearer", "credential": "openai"})]})
    with Client(bed) as c:
        mark = bed.origins.mark()
        c.send(request(b"/v1/models", b"Authorization: Bearer dummy\r\n"))
        c.answer()
        got = keysbed.sent(bed, mark)
        want([got.lower().count(b"authorization:"), old in got], [1, True], "one field")
        rotate = {"expectedRevision": 1, "credentials": {"replace": [
            {"name": "openai", "source": {"type": "inline", "value": new.decode()}}]}}
        state = a.patch(rotate)
        want([state["revision"], state["credentials"][0]["revision"],
              state["bindings"][0]["revision"]], [2, 2, 2], "revisions")
        want(got_key(bed, c, b"/v1/models"), new, "at once")
        again = a.call("PATCH", rotate, 409)
        want(again.doc["message"], "expectedRevision 1 does not match current revision 2", "again")
        no = a.call("PATCH", [{"action": "deny", "target": HOST}], 400, path="/policy")
        want(no.doc["message"], f'credential vault policy validation: binding "openai" host '
             f'"{HOST}" is not allowed by egress policy', "policy")


def W3_one_repository(bed):
    value = base64.b64encode(b"ci-bot:" + key())
    example(bed, {"credentials": [{"name": "git-tools", "source": {"value": value.decode()}}],
                  "bindings": [binding("git-tools", ["GET", "HEAD", "POST"],
                                       ["/acme/tools.git", "/acme/tools.git/*"],
                                       {"type": "basic", "credential": "git-tools"})]},
            auth={"type": "basic"})
    for target, gets in ((b"/acme/tools.git/info/refs?service=git-upload-pack", True),
                         (b"/acme/tools.git", True), (b"/acme/tools.git-other/info/refs", False),
                         (b"/acme/tools/info/refs", False)):
        _, got = ask(bed, request(target))
        want_in(target, got, "it arrives")
        want(b"\r\nAuthorization: Basic " + value + b"\r\n" in got, gets, target)
    for target in (b"/acme/tools.git/../secret.git/info/refs",
                   b"/acme/tools.git/..%2fsecret.git/info/refs"):
        talk, got = ask(bed, request(target))
        want([talk.statuses, got], [[403], b""], target)


def W4_key_in_the_query(bed):
    value = "k+9/= " + key().decode()
    want_text = value.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D").replace(
        " ", "%20").encode()
    sub = {"credential": "maps-key", "placeholder": "__MAPS_KEY__", "in": ["query"]}
    example(bed, {"credentials": [{"name": "maps-key", "source": {"value": value}}],
                  "bindings": [binding("maps", ["GET"], ["/geo/*"],
                                       {"type": "passthrough", "substitutions": [sub]})]},
            auth={"type": "passthrough", "substitutions": [sub]})
    _, got = ask(bed, request(b"/geo/json?q=Paris&key=__MAPS_KEY__&note=__MAPS_KEY__x"))
    want_in(b"GET /geo/json?q=Paris&key=%s&note=%sx HTTP" % (want_text, want_text), got, "query")


def W5_client_secret_in_a_body(bed):
    secret = 'p@ss"w\u00f6rd\\' + key().decode()
    sub = {"credential": "oauth-secret", "placeholder": "__CLIENT_SECRET__", "in": ["body"]}
    example(bed, {"credentials": [{"name": "oauth-secret", "source": {"value": secret}}],
                  "bindings": [binding("oauth-token", ["POST"], ["/oauth2/token"],
                                       {"type": "passthrough", "substitutions": [sub]},
                                       schemes=["https"])]},
            auth={"type": "passthrough", "substitutions": [sub]})
    doc = {"grant_type": "client_credentials", "client_id": "agent-7",
           "client_secret": "__CLIENT_SECRET__"}
    body = json.dumps(doc, separators=(",", ":")).encode()
    for data in (keysbed.post(b"/oauth2/token", body),
                 request(b"/oauth2/token", b"Content-Type: application/json\r\n"
                         b"Transfer-Encoding: chunked\r\n", b"POST", keysbed.chunked(body, 7))):
        _, got = ask(bed, data)
        content = keysbed.content_plain(got)
        want(json.loads(content)["client_secret"], secret, "the secret")
        want_in(b"w\\u00f6rd", content, "in ASCII")
        want_in(b"Content-Length: %d\r\n" % len(content), got, "its length")
    form = b"grant_type=client_credentials&client_secret=__CLIENT_SECRET__"
    _, got = ask(bed, keysbed.post(b"/oauth2/token", form, b"application/x-www-form-urlencoded"))
    want_in(b"client_secret=p%40ss%22w%C3%B6rd%5C", got, "as a form")


# --- where what was written is not ---

def scan(e, keys, what):
    """Every byte of supervisor and worker but the locked areas."""
    seen = leakscan.search_memory(e.process.pid, keys)
    want(seen.found[:4], [], f"memory after {what}")
    want(seen.secret > 0, True, "control: there are areas that were left out")


def V_memory_has_no_key_whatever_was_sent(bed):
    """Written, refused, cut off: the key is in locked memory or nowhere."""
    a, keys = Api(bed, "leak"), []
    e = a.egress

    def fresh_key():
        keys.append(key())
        return keys[-1]

    a.fresh(one(fresh_key()))
    a.patch(set_key(fresh_key()))
    scan(e, keys, "POST and PATCH")
    for doc in (b'{"credentials":[{"name":"k","source":{"value":"%s"' % fresh_key(),
                b'{"credentials":[{"name":"k","source":{"value":"%s"}}],}' % fresh_key(),
                b'{"credentials":[{"name":"k","source":{"value":"%s\\u12"}}]}' % fresh_key(),
                b'{"credentials":[{"name":"k","source":{"value":"%s","x":1}}]}' % fresh_key(),
                b'{"credentials":[{"name":"k","source":"%s"}]}' % fresh_key(),
                b'"%s"' % fresh_key(), fresh_key(),
                json.dumps(document({"k": fresh_key()}, bind("b", bearer(credential="x")))),
                json.dumps(one(fresh_key()))):
        for method in ("POST", "PATCH"):
            doc = doc.encode() if isinstance(doc, str) else doc
            want(a.call(method, doc).status in (400, 409), True, f"{method} {doc}")
    scan(e, keys, "refused documents")
    s = a.connect()
    s.sendall(a.data("POST", one(fresh_key()), token="wrong"))
    want(a.read(s)[0].status, 401, "token")
    scan(e, keys, "a request without the token, whose connection lingers")
    s.close()
    a.call("PUT", one(fresh_key()), 405)
    a.sock = None
    with Client(bed) as c:
        want(got_key(bed, c) in keys, True, "control: keys are in use")
    a.call("DELETE", status=204)
    scan(e, keys, "DELETE")
    # What is scanned for is found where it may be: a name is no secret.
    name = key()
    a.call("POST", {"credentials": [{"name": name.decode(), "source": {"value": "v"}}]}, 201)
    seen = leakscan.search_memory(e.process.pid, [name])
    want(len(seen.found) > 0, True, "control: a name is found")
    want([x for x in (e.log, e.audit) for k in keys if k in open(x, "rb").read()], [], "files")


def V_memory_has_no_key_of_a_body_that_is_still_coming(bed):
    """Half a body, in each framing and cut; a request sent ahead that waits for its turn."""
    a, keys = Api(bed, "leak"), []
    e = a.egress
    a.call("DELETE")
    socks = []

    def send(*pieces):
        s = a.connect()
        socks.append(s)
        for piece in pieces:
            s.sendall(piece)
            time.sleep(0.05)
        return s

    def half(value):
        keys.append(value)
        return b'{"credentials":[{"name":"k","source":{"value":"%s"}}' % value

    head = (f"POST {VAULT} HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n").encode()
    body = half(key())
    send(head + b"Content-Length: 400\r\n\r\n" + body)  # with its head in one piece
    body = half(key())
    send(head + b"Content-Length: 400\r\n\r\n", body[:60], body[60:])
    body = half(key())
    send(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body))
    body = half(key())
    send(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (len(body) + 9), body)
    body = half(key())
    send(head + b"Content-Length: 400\r\n\r", b"\n" + body)  # the last byte of the head with it
    # a write that waits for nothing, and one sent ahead in the same piece; then one half sent
    whole = json.dumps(one(keys.append(key()) or keys[-1])).encode()
    ahead = half(key())
    s = send(head + b"Content-Length: %d\r\n\r\n%s" % (len(whole), whole) +
             head + b"Content-Length: 400\r\n\r\n" + ahead)
    want(a.read(s)[0].status, 201, "the first of two")
    scan(e, keys, "half a body")
    for s in socks:
        s.close()
    until(lambda: e.open_files() <= e.fds + 1, "connections end")
    scan(e, keys, "bodies that were cut off")
    want(a.call("GET", status=200).doc["revision"], 1, "only the whole one counts")


def big_keys(*names):
    """As long as makes an exchange under them cost much locked memory."""
    return [{"name": n, "source": {"value": key().decode() * 60}} for n in names]


def ended_for_keys(a, since):
    return [x for x in a.egress.lines()[since:] if x.get("reason") == "key_memory"]


def V_requests_held_open_keep_no_key_in_force(bed):
    """Each holds the vault that it began with in locked memory. When a write finds none left they end;
    else the sandbox could forbid that its keys are changed or taken away."""
    a, go, held = api(bed), threading.Event(), []
    names = [f"k{i}" for i in range(6)]
    a.call("DELETE")
    a.call("POST", {"credentials": big_keys(*names), "bindings": [
        bind("b" + n, passthrough({"credential": n, "placeholder": "__PLACE__" + n,
                                   "in": ["header"]}), (f"/{n}/*",)) for n in names]}, 201)

    def slow(peer, head):
        go.wait(30)
        peer.send(casebed.ok(b"late"))
        return True
    bed.origins.routes["/k0/slow"] = slow
    since = len(a.egress.lines())
    while not ended_for_keys(a, since):
        want(len(held) < 400, True, "held requests fill the memory")
        held.append(Client(bed))
        held[-1].send(request(b"/k0/slow"))
        time.sleep(0.02)
        a.patch({"credentials": {"replace": big_keys("k1")}})
    until(lambda: len(ended_for_keys(a, since)) >= len(held) // 2, f"most of {len(held)} end")
    with Client(bed) as fresh:
        fresh.send(request(b"/v1/x"))
        want(fresh.answer().status, 200, "the next request")
    a.patch({"bindings": {"delete": ["bk0"]}, "credentials": {"delete": ["k0"]}})
    go.set()
    for c in held:
        c.sock.close()
    a.call("DELETE", status=204)


def V_answers_held_open_leave_room_for_a_write(bed):
    """What is held back of an answer lies in locked memory, as long as the longest form of a key. When
    there is none for the content of a write, such answers end."""
    a, go, held = api(bed), threading.Event(), []
    a.fresh(one(key() * 1500, paths=("/*",)))

    def slow(peer, head):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b"12345")
        go.wait(30)
        return False
    bed.origins.routes["/v1/late"] = slow
    since = len(a.egress.lines())
    while not [x for x in a.egress.lines()[since:] if x.get("reason") == "overloaded"]:
        want(len(held) < 400, True, "held answers fill the memory")
        held.append(Client(bed))
        held[-1].send(request(b"/v1/late"))
        time.sleep(0.02)
    text = json.dumps(set_key(key())).encode()
    a.call("PATCH", text + b" " * 900000, 200)
    until(lambda: len(ended_for_keys(a, since)) >= len(held) // 2, f"most of {len(held)} end")
    go.set()
    for c in held:
        c.sock.close()
    a.call("DELETE", status=204)


def V_a_second_large_body_is_told_to_come_again(bed):
    """There is locked memory for one mebibyte: 503 before it is sent, not ordinary memory."""
    a = Api(bed, "leak")
    a.call("DELETE")
    head = (f"POST {VAULT} HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n").encode()
    first, second, third = a.connect(), a.connect(), a.connect()
    first.sendall(head + b"Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
    want_in(b"100 Continue", first.recv(100), "the first may come")
    second.sendall(head + b"Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n")
    busy = a.read(second)[0]
    want([busy.status, busy.doc["code"], busy.field("retry-after")], [503, "busy", "1"], "busy")
    third.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" +
                  b"".join(b"%x\r\n%s\r\n" % (9999, b" " * 9999) for _ in range(10)))
    want(a.read(third)[0].status, 503, "busy, in chunks")
    small = a.call("POST", one(key()))
    want(small.status, 201, "a small one fits beside it")
    for s in (first, second, third):
        s.close()
    until(lambda: a.egress.open_files() <= a.egress.fds + 1, "connections end")
    a.call("DELETE", status=204)
    text = json.dumps(one(key())).encode()
    want(a.call("POST", text + b" " * (1000000 - len(text))).status, 201, "the room is back")


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), r"[VW]\d*_"))
