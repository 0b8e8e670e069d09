#!/usr/bin/env python3
"""Five vaults as users write them, end to end: an API key in a field, a bearer that is rotated, git over
HTTPS for one repository, a key in a query, a secret in content. Each is created by POST on the control
API, then requests go through the proxy, and what the origin got and what the client saw is compared byte
for byte. Bed: keysbed.py, with the names of the examples."""
import http.client
import json
import os
import subprocess
import sys

import casebed
from casebed import Failed, ok, until, want, want_in, want_ok, want_out
from keysbed import Client, answers, chunked, content_plain, refused, sent

TOKEN = "token-of-the-examples"
API = ("127.0.0.1", 18080)
casebed.NAMES.update({"api.anthropic.com": ("11.22.1.1", None), "api.openai.com": ("11.22.1.2", None),
                      "git.example.com": ("11.22.1.3", None), "maps.example.com": ("11.22.1.4", None),
                      "login.example.com": ("11.22.1.5", None)})
OTHER = "read.test"


def policy(*names):
    return {"defaultAction": "deny", "egress": [{"action": "allow", "target": n} for n in names]}


class Vault:
    """One egress for all examples; each begins with its own policy and without a vault."""

    def __init__(self, bed, host):
        self.bed, self.host = bed, host
        self.egress = bed.need("examples", EGRESS_READ_ONLY="off",
                               OPENSANDBOX_EGRESS_LOG_LEVEL="debug",
                               OPENSANDBOX_EGRESS_TOKEN=TOKEN,
                               OPENSANDBOX_EGRESS_HTTP_ADDR="%s:%d" % API)
        self.call("DELETE", "/credential-vault", status=(204, 404))
        self.call("POST", "/policy", policy(host, OTHER))

    def call(self, method, path, body=None, status=(200,)):
        c = http.client.HTTPConnection(*API, timeout=10)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None,
                      {"OPENSANDBOX-EGRESS-AUTH": TOKEN})
            answer = c.getresponse()
            text = answer.read()
        finally:
            c.close()
        if answer.status not in status:
            raise Failed(f"{method} {path}: {answer.status} {text[:400]}")
        for key in self.egress.leak.keys:
            want_out(key, text, f"{method} {path}")
        return json.loads(text) if text else None

    def create(self, doc):
        for c in doc["credentials"]:
            value = c["source"]["value"].encode()
            if len(value) > 8 and value not in self.egress.leak.keys:
                self.egress.leak.keys.append(value)
        return self.call("POST", "/credential-vault", doc, (201,))

    def ask(self, *lines, content=b"", host=None, **how):
        """One request by lines without Host; the answer, and what the origin got."""
        first, *fields = lines
        head = [first, f"Host: {host or self.host}", *fields, "", ""]
        mark = self.bed.origins.mark()
        talk = self.bed.via(self.host if host is None else OTHER,
                            "\r\n".join(head).encode() + content, **how)
        return talk, sent(self.bed, mark)


def fields_of(got, name):
    _, fields, _ = casebed.split_head(got)
    return casebed.values(fields, name)


# --- an API key in x-api-key ---

def E1_api_key_in_a_field(bed):
    key = b"sk-ant-REAL-" + os.urandom(9).hex().encode()
    v = Vault(bed, "api.anthropic.com")
    state = v.create({
        "credentials": [{"name": "anthropic", "source": {"type": "inline", "value": key.decode()}}],
        "bindings": [{"name": "anthropic-v1",
                      "match": {"schemes": ["https"], "hosts": ["api.anthropic.com"],
                                "methods": ["GET", "POST"], "paths": ["/v1/*"]},
                      "auth": {"type": "apiKey", "name": "x-api-key", "credential": "anthropic"}}]})
    want(state, {
        "revision": 1,
        "credentials": [{"name": "anthropic", "sourceType": "inline", "revision": 1}],
        "bindings": [{"name": "anthropic-v1", "revision": 1,
                      "match": {"schemes": ["https"], "hosts": ["api.anthropic.com"],
                                "methods": ["GET", "POST"], "paths": ["/v1/*"]},
                      "auth": {"type": "apiKey", "name": "X-Api-Key"}}]}, "the state")
    want(v.call("GET", "/credential-vault"), state, "GET")

    events = [b"event: %d\ndata: {}\n\n" % i for i in range(3)]
    answers(bed, "/v1/messages", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Echo: " +
            key + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"".join(events), 16))
    content = b"m" * (3 << 20)
    head = (b"POST /v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\nx-api-key: placeholder\r\n"
            b"anthropic-version: 2023-06-01\r\nContent-Length: 3145728\r\n\r\n")
    mark = bed.origins.mark()
    with Client(bed, "api.anthropic.com") as client:
        client.send(head, content[:1000])
        until(lambda: b"X-Api-Key: " + key in sent(bed, mark), "streamed: the head goes first")
        want(len(sent(bed, mark)) < 3000, True, "control: the content is still to come")
        client.send(content[1000:])
        answer = client.answer()
    got = sent(bed, mark)
    lines = got.split(b"\r\n\r\n")[0].split(b"\r\n")
    want([lines[0], lines[-2]], [b"POST /v1/messages HTTP/1.1", b"X-Api-Key: " + key],
         "the line as it was, the key behind the client's fields")
    for line in (b"Host: api.anthropic.com", b"anthropic-version: 2023-06-01",
                 b"Content-Length: 3145728"):
        want_in(line, lines, "as it was")
    want([len(fields_of(got, b"x-api-key")), b"placeholder" in got], [1, False], "what was there")
    want(content_plain(got) == content, True, "3 MiB of content")
    want([answer.body, answer.field("x-echo")], [b"".join(events), "*" * len(key)],
         "events, and an echo of the key")

    for line, n in (("HEAD /v1/models HTTP/1.1", 0), ("GET /v2/x HTTP/1.1", 0),
                    ("GET /v1/models HTTP/1.1", 1)):
        talk, got = v.ask(line, head=line.startswith("HEAD"))
        want_ok(talk, line)
        want_in(line.encode(), got, line)
        want(got.count(key), n, f"{line}: keys")
    talk, got = v.ask("GET /v1/models HTTP/1.1", host="api.anthropic.com")
    refused(talk, "name_mismatch", "its name at another host")
    want(got, b"", "and nothing arrives")


# --- a bearer, rotated ---

def E2_bearer_with_rotation(bed):
    old, new = (b"sk-proj-%s-" % n + os.urandom(9).hex().encode() for n in (b"OLD", b"NEW"))
    v = Vault(bed, "api.openai.com")
    v.create({"credentials": [{"name": "openai", "source": {"value": old.decode()}}],
              "bindings": [{"name": "openai",
                            "match": {"hosts": ["api.openai.com"],
                                      "methods": ["GET", "POST", "DELETE"], "paths": ["/v1/*"]},
                            "auth": {"type": "bearer", "credential": "openai"}}]})
    v.egress.leak.keys.append(new)
    models = (b"GET /v1/models HTTP/1.1\r\nHost: api.openai.com\r\n"
              b"Authorization: Bearer dummy\r\n\r\n")
    mark = bed.origins.mark()

    def stream(peer, head):
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nfirst \n\r\n")
        peer.body(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.send(b"4\r\nlast\r\n0\r\n\r\n")
        return True
    bed.origins.routes["/v1/stream"] = stream
    with Client(bed, "api.openai.com") as client, Client(bed, "api.openai.com") as running:
        client.send(models)
        want(client.answer().status, 200, "answer")
        want(fields_of(sent(bed, mark), b"authorization"), [b"Bearer " + old], "one field")
        running.send(b"POST /v1/stream HTTP/1.1\r\nHost: api.openai.com\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n")
        running.until_seen(b"first")

        rotation = {"expectedRevision": 1, "credentials": {"replace": [
            {"name": "openai", "source": {"type": "inline", "value": new.decode()}}]}}
        state = v.call("PATCH", "/credential-vault", rotation)
        want([state["revision"], state["credentials"][0]["revision"],
              state["bindings"][0]["revision"]], [2, 2, 2], "revisions")
        mark2 = bed.origins.mark()
        client.send(models)
        want(client.answer().status, 200, "answer on the kept connection")
        want(fields_of(sent(bed, mark2), b"authorization"), [b"Bearer " + new], "the new one")
        running.send(b"0\r\n\r\n")
        want(running.answer().body, b"first \nlast", "the stream goes on to its end")
        want(sent(bed, mark).count(b"Bearer " + old), 2, "the stream has the old one")
    conflict = v.call("PATCH", "/credential-vault", rotation, (409,))
    want(conflict["message"], "expectedRevision 1 does not match current revision 2", "once more")
    refusal = v.call("PATCH", "/policy", [{"action": "deny", "target": "api.openai.com"}], (400,))
    want(refusal["message"], 'credential vault policy validation: binding "openai" host '
         '"api.openai.com" is not allowed by egress policy', "a policy without its host")
    want(v.call("GET", "/policy")["policy"], policy("api.openai.com", OTHER), "unchanged")
    _, got = v.ask("GET /v1/models HTTP/1.1")
    want_in(b"Bearer " + new, got, "and in use")


# --- git, one repository ---

GIT_KEY = b"Y2ktYm90OmdscGF0LUVYQU1QTEUxMjM="


def repositories(bed):
    """acme/tools.git and its neighbours, as `git http-backend` serves them to whoever has the key."""
    top = bed.path("git")
    bed.run("git", "init", "-q", "-b", "main", bed.path("seed"))
    for args in (("config", "user.name", "t"), ("config", "user.email", "t@t"),
                 ("commit", "-q", "--allow-empty", "-m", "one")):
        bed.run("git", "-C", bed.path("seed"), *args)
    bed.run("git", "clone", "-q", "--bare", bed.path("seed"), f"{top}/acme/tools.git")

    def route(peer, head):
        line, fields, _ = casebed.split_head(head)
        method, target, _ = line.decode().split(" ")
        path, _, query = target.partition("?")
        content = peer.body(head)
        if casebed.values(fields, b"authorization") != [b"Basic " + GIT_KEY]:
            peer.send(ok(b"", b"WWW-Authenticate: Basic realm=git\r\n", b"401 Unauthorized"))
            return True
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": top, "GIT_HTTP_EXPORT_ALL": "1",
               "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": method,
               "REMOTE_USER": "ci-bot", "HOME": bed.top, "GIT_CONFIG_COUNT": "1",
               "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        for name, variable in ((b"content-type", "CONTENT_TYPE"),
                               (b"content-encoding", "HTTP_CONTENT_ENCODING"),
                               (b"git-protocol", "HTTP_GIT_PROTOCOL")):
            for value in casebed.values(fields, name):
                env[variable] = value.decode()
        env["CONTENT_LENGTH"] = str(len(content))
        out = subprocess.run(["git", "http-backend"], input=content, capture_output=True, env=env,
                             check=True).stdout
        answer_head, _, body = out.partition(b"\r\n\r\n")
        peer.send(ok(body, answer_head + b"\r\n"))
        return True
    for path in ("info/refs", "git-upload-pack"):
        bed.origins.routes[f"/acme/tools.git/{path}"] = route


def E3_git_for_one_repository(bed):
    v = Vault(bed, "git.example.com")
    repositories(bed)
    v.create({"credentials": [{"name": "git-tools",
                               "source": {"type": "inline", "value": GIT_KEY.decode()}}],
              "bindings": [{"name": "git-tools",
                            "match": {"schemes": ["https"], "hosts": ["git.example.com"],
                                      "methods": ["GET", "HEAD", "POST"],
                                      "paths": ["/acme/tools.git", "/acme/tools.git/*"]},
                            "auth": {"type": "basic", "credential": "git-tools"}}]})
    field = b"Authorization: Basic " + GIT_KEY
    mark = bed.origins.mark()
    env = {"PATH": os.environ["PATH"], "HOME": bed.top, "GIT_TERMINAL_PROMPT": "0",
           "https_proxy": f"http://127.0.0.1:{v.egress.port}", "GIT_SSL_CAINFO": v.egress.ca}
    p = subprocess.run(["git", "clone", "https://git.example.com/acme/tools.git",
                        bed.path("clone")], env=env, capture_output=True, text=True, timeout=30,
                       check=False)
    want(p.returncode, 0, f"git clone: {p.stderr[-400:]}")
    got = sent(bed, mark)
    for line in (b"GET /acme/tools.git/info/refs?service=git-upload-pack ",
                 b"POST /acme/tools.git/git-upload-pack "):
        want_in(line, got, "git asks")
    want(got.count(field), got.count(b" /acme/tools.git/"), "each with the key, none without")
    want_out(GIT_KEY.decode(), p.stdout + p.stderr, "what git says")

    for target in ("/acme/tools.git-other/info/refs", "/acme/tools/info/refs"):
        talk, got = v.ask(f"GET {target} HTTP/1.1")
        want_ok(talk, target)
        want([target.encode() in got, GIT_KEY in got], [True, False], target)
    for target in ("/acme/tools.git/../secret.git/info/refs",
                   "/acme/tools.git/..%2fsecret.git/info/refs"):
        talk, got = v.ask(f"GET {target} HTTP/1.1")
        refused(talk, "path_ambiguous", target)
        want(got, b"", f"{target}: nothing arrives")
    answers(bed, "/acme/tools.git/moved",
            ok(b"", b"Location: https://read.test/x\r\n", b"302 Found"))
    talk, got = v.ask("GET /acme/tools.git/moved HTTP/1.1")
    want([talk.finals[0].status, field in got], [302, True], "control: a redirect, asked with it")
    talk, got = v.ask("GET /x HTTP/1.1", host=OTHER)
    want_ok(talk, "who follows it")
    want_out(GIT_KEY, got, "has no key there")


# --- a key in a query ---

def E4_key_in_a_query(bed):
    v = Vault(bed, "maps.example.com")
    state = v.create({
        "credentials": [{"name": "maps-key", "source": {"type": "inline", "value": "k+9/= q"}}],
        "bindings": [{"name": "maps", "match": {"hosts": ["maps.example.com"], "methods": ["GET"],
                                                "paths": ["/geo/*"]},
                      "auth": {"type": "passthrough", "substitutions": [
                          {"credential": "maps-key", "placeholder": "__MAPS_KEY__",
                           "in": ["query"]}]}}]})
    auth = state["bindings"][0]["auth"]
    want([auth["type"], [(s["credential"], s["placeholder"], s["in"])
                         for s in auth["substitutions"]]],
         ["passthrough", [("maps-key", "__MAPS_KEY__", ["query"])]],
         "the state: all that is needed to send the binding again")
    want_out("k+9/= q", json.dumps(state), "but no value")
    answers(bed, "/geo/json", ok(b"", b"Location: /geo/next?key=k%2B9%2F%3D%20q\r\n", b"302 Found"))
    talk, got = v.ask("GET /geo/json?q=Paris&key=__MAPS_KEY__&note=__MAPS_KEY__x HTTP/1.1")
    want_in(b"GET /geo/json?q=Paris&key=k%2B9%2F%3D%20q&note=k%2B9%2F%3D%20qx HTTP/1.1\r\n", got,
            "every place in the query, nothing else")
    want(talk.finals[0].field("location"), "/geo/next?key=" + "*" * 15,
         "the key in a Location, overwritten at its length")
    talk, got = v.ask("GET /geo/__MAPS_KEY__/x HTTP/1.1")
    want_ok(talk, "a place that is not listed")
    want_in(b"GET /geo/__MAPS_KEY__/x HTTP/1.1", got, "it stays")


# --- a secret in content ---

SECRET = 'p@ss"wörd\\1'
IN_JSON = (b'{"grant_type":"client_credentials","client_id":"agent-7",'
           b'"client_secret":"__CLIENT_SECRET__"}')
OUT_JSON = IN_JSON.replace(b"__CLIENT_SECRET__", b'p@ss\\"w\\u00f6rd\\\\1')
IN_FORM = b"grant_type=client_credentials&client_id=agent-7&client_secret=__CLIENT_SECRET__"
OUT_FORM = IN_FORM.replace(b"__CLIENT_SECRET__", b"p%40ss%22w%C3%B6rd%5C1")


def E5_secret_in_content(bed):
    v = Vault(bed, "login.example.com")
    v.create({"credentials": [{"name": "oauth-secret",
                               "source": {"type": "inline", "value": SECRET}}],
              "bindings": [{"name": "oauth-token",
                            "match": {"schemes": ["https"], "hosts": ["login.example.com"],
                                      "methods": ["POST"], "paths": ["/oauth2/token"]},
                            "auth": {"type": "passthrough", "substitutions": [
                                {"credential": "oauth-secret", "placeholder": "__CLIENT_SECRET__",
                                 "in": ["body"]}]}}]})
    want([len(IN_JSON), len(OUT_JSON), len(IN_FORM), len(OUT_FORM)], [93, 94, 79, 84],
         "control: lengths as in the example")
    json_type, form = "application/json; charset=utf-8", "application/x-www-form-urlencoded"
    answers(bed, "/oauth2/token", ok(b'{"access_token":"derived-0001"}'))
    for kind, content, should in ((json_type, IN_JSON, OUT_JSON), (form, IN_FORM, OUT_FORM)):
        talk, got = v.ask("POST /oauth2/token HTTP/1.1", f"Content-Type: {kind}",
                          f"Content-Length: {len(content)}", content=content)
        want_ok(talk, kind)
        want([content_plain(got), fields_of(got, b"content-length"),
              fields_of(got, b"content-type")],
             [should, [b"%d" % len(should)], [kind.encode()]], kind)
        want(talk.finals[0].body, b'{"access_token":"derived-0001"}', "what the origin derives")
        talk, got = v.ask("POST /oauth2/token HTTP/1.1", f"Content-Type: {kind}",
                          "Transfer-Encoding: chunked", content=chunked(content, 10))
        want([content_plain(got), fields_of(got, b"content-length"),
              fields_of(got, b"transfer-encoding")], [should, [b"%d" % len(should)], []],
             f"{kind} in chunks gets a length")
    large = IN_JSON[:-1] + b',"x":"' + b"y" * (1 << 20) + b'"}'
    for what, fields, content in (
            ("gzip", ("Content-Type: application/json", "Content-Encoding: gzip"), IN_JSON),
            ("multipart", ("Content-Type: multipart/form-data; boundary=b",), IN_JSON),
            ("no UTF-8", ("Content-Type: application/json",), IN_JSON + b"\xff"),
            ("large", ("Content-Type: application/json",), large)):
        talk, got = v.ask("POST /oauth2/token HTTP/1.1", *fields,
                          f"Content-Length: {len(content)}", content=content)
        want_ok(talk, what)
        want(content_plain(got) == content, True, f"{what}: as it was, with the placeholder")


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"E\d+_"))
