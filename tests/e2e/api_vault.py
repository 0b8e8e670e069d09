#!/usr/bin/env python3
"""/credential-vault on the API: routes, codes, messages, revisions, what a write needs, and what it
leaves where. Names like L45 are lines of the vault's catalogue in docs/compatibility.md. What requests
get: api_keys.py. Protocol: docs/development.md."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import apibed
from apibed import (Failed, Skip, TOKEN, allow, deny, main, running, until, want, want_in,
                    want_out)

VAULT = "/credential-vault"
KEY = "sk-live-" + os.urandom(12).hex()
POLICY = {"egress": allow("api.test", "other.test", "*.wild.test"), "defaultAction": "deny"}
MIB = 1 << 20


def credential(name="k", value=KEY):
    return {"name": name, "source": {"type": "inline", "value": value}}


def binding(name="b", host="api.test", key="k", **match):
    return {"name": name, "match": {"hosts": [host], **match},
            "auth": {"type": "bearer", "credential": key}}


DOC = {"credentials": [credential()], "bindings": [binding(methods=["GET"], paths=["/v1/*"])]}
MATCH = {"schemes": ["https"], "hosts": ["api.test"], "methods": ["GET"], "paths": ["/v1/*"]}
STATE = {"revision": 1, "credentials": [{"name": "k", "sourceType": "inline", "revision": 1}],
         "bindings": [{"name": "b", "revision": 1, "match": MATCH, "auth": {"type": "bearer"}}]}


def vault(policy=POLICY, **settings):
    return running(policy=policy, **settings)


def refused(answer, code, text):
    """An error as all of them are: JSON, never empty, never a value."""
    want(answer.field("content-type"), "application/json", f"type of {answer}")
    want(sorted(answer.doc), ["code", "message"], f"fields of {answer}")
    want(answer.doc["code"], code, f"code of {answer}")
    want_in(text, answer.doc["message"], "message")
    want_out(KEY, answer.body.decode(), "a value in an error")


def post(e, doc=None, status=201, **how):
    return e.call("POST", VAULT, doc if doc is not None else DOC, status=status, **how)


def patch(e, doc, status=200, **how):
    return e.call("PATCH", VAULT, doc, status=status, **how)


def get(e, status=200, below=""):
    return e.call("GET", VAULT + below, status=status)


# --- routes ---

def case_L45_each_route():
    with vault() as e:
        for below, code in (("", "vault_not_found"), ("/credentials", "vault_not_found"),
                            ("/bindings", "vault_not_found"), ("/bindings/b", "vault_not_found"),
                            ("/credentials/k", "vault_not_found")):
            refused(get(e, 404, below), code, "credential vault not found")
        for method in ("PATCH", "DELETE"):
            refused(e.call(method, VAULT, {}, status=404), "vault_not_found",
                    "credential vault not found")
        a = post(e)
        want(a.doc, STATE, "state")
        want(a.body[-1:], b"\n", "a newline at the end")
        want(get(e).doc, STATE, "the same by GET")
        want(get(e, below="/credentials").doc, {k: STATE[k] for k in ("revision", "credentials")},
             "credentials")
        want(get(e, below="/bindings").doc, {k: STATE[k] for k in ("revision", "bindings")},
             "bindings")
        want(get(e, below="/credentials/k").doc, STATE["credentials"][0], "one credential")
        want(get(e, below="/bindings/b").doc, STATE["bindings"][0], "one binding")
        for below in ("/credentials/b", "/credentials/", "/credentials/k/", "/credentials/%20x"):
            refused(get(e, 404, below), "credential_not_found", "credential not found")
        refused(get(e, 404, "/bindings/k"), "binding_not_found", "binding not found")
        refused(get(e, 404, "/credentials/_active"), "credential_not_found", "not found")
        for below in ("/", "/x", "/credential", "/_active/", "/_active/x", "/Bindings"):
            refused(get(e, 404, below), "not_found", "not found")
        for method in ("PUT", "HEAD", "OPTIONS", "TRACE"):
            a = e.call(method, VAULT, status=405)
            want(a.field("allow"), "GET, POST, PATCH, DELETE", f"Allow for {method}")
        for below in ("/credentials", "/credentials/k", "/bindings", "/bindings/b"):
            for method in ("POST", "PATCH", "DELETE", "PUT"):
                a = e.call(method, VAULT + below, status=405)
                refused(a, "method_not_allowed", "method not allowed")
                want(a.field("allow"), "GET", f"Allow for {method} {below}")
        for below in ("", "/credentials", "/credentials/k", "/bindings", "/x"):
            for method in ("GET", "POST", "PUT"):
                refused(e.call(method, VAULT + below, status=401, token=False), "unauthorized",
                        "unauthorized")
        a = e.call("DELETE", VAULT, status=204)
        want([a.body, a.field("content-length")], [b"", None], "nothing in it")
        refused(get(e, 404), "vault_not_found", "not found")
        want(post(e).doc, STATE, "the next one begins with 1")


def case_L30_active_is_forbidden_before_the_token_is_asked_for():
    with vault() as e:
        post(e)
        for token in (True, False):
            a = e.call("GET", VAULT + "/_active", status=403, token=token)
            refused(a, "forbidden", "forbidden")
            for method in ("POST", "HEAD", "DELETE"):
                a = e.call(method, VAULT + "/_active", status=405, token=token)
                want(a.field("allow"), "GET", method)


def case_names_in_paths():
    names = ["a/b", "ü", "a b", "100%", "?x=#y", "-", "a" * 253]
    with vault() as e:
        post(e, {"credentials": [credential(n) for n in names]})
        for name in names:
            for path in ("".join(f"%{c:02x}" for c in name.encode()), "%20" + "".join(
                    f"%{c:02X}" for c in name.encode()) + "%09"):
                want(get(e, below="/credentials/" + path).doc["name"], name, path)
        want(get(e, below="/credentials/a/b").doc["name"], "a/b", "as it is")
        for path in ("%", "%4", "%zz", "a%2", "%4g"):
            refused(get(e, 400, "/credentials/" + path), "malformed", "hexadecimal")
        refused(get(e, 404, "/credentials/%00"), "credential_not_found", "not found")
        refused(get(e, 404, "/credentials/" + "a" * 8000), "credential_not_found", "not found")
        get(e, 301, "/credentials/a//b")


# --- documents ---

def case_L46_bodies_that_are_refused():
    """At each level a field that nobody knows; what no two readers would read alike."""
    rows = [('{"x":1}', "unknown field"), ("[]", "an object"), ("", "not valid JSON"),
            ("{", "not valid JSON"), ("{}{}", "not valid JSON"), ("\xff{}", "not valid JSON"),
            ('{"credentials":1}', "a list was expected"), ("null", "not valid JSON"),
            ('{"credentials":[],"credentials":[]}', "twice")]
    for level in (["credentials", 0], ["credentials", 0, "source"], ["bindings", 0],
                  ["bindings", 0, "match"], ["bindings", 0, "auth"]):
        doc = json.loads(json.dumps(DOC))
        place = doc
        for step in level:
            place = place[step]
        place["extra"] = 1
        rows.append((json.dumps(doc), "unknown field"))
    with vault() as e:
        for text, why in rows:
            refused(post(e, text.encode("latin1"), 400), "invalid_vault", why)
            refused(post(e, text.encode("latin1"), 400), "invalid_vault",
                    "invalid credential vault request: ")
        get(e, 404)
        post(e)
        for text, why in rows[:7]:
            refused(patch(e, text.encode("latin1"), 400), "invalid_vault",
                    "invalid credential vault mutation request: ")
        want(get(e).doc, STATE, "nothing has changed")
        refused(post(e, "{", 400), "invalid_vault", "invalid credential vault request: ")
        refused(post(e, DOC, 409), "vault_exists", "credential vault already exists")
        refused(post(e, {"credentials": [credential("")]}, 409), "vault_exists", "exists")


def case_L46_a_mebibyte_and_one_byte_more():
    """By length and in chunks; the content of a whole mebibyte is taken."""
    def filled(size):
        text = json.dumps(DOC)
        return (text + " " * (size - len(text))).encode()

    def chunked(body):
        head = "\r\n".join([f"POST {VAULT} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked",
                            f"OPENSANDBOX-EGRESS-AUTH: {TOKEN}"]).encode() + b"\r\n\r\n"
        pieces = [body[i:i + 70001] for i in range(0, len(body), 70001)]
        return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"

    with vault() as e:
        for how in ("length", "chunks"):
            for size, status in ((MIB, 201), (MIB + 1, 413)):
                data = e.request("POST", VAULT, filled(size)) if how == "length" else chunked(
                    filled(size))
                (a, *_), _ = e.raw(data)
                want(a.status, status, f"{size} bytes by {how}: {a}")
                if status == 413:
                    refused(a, "body_too_large", "larger than 1048576 bytes")
                    get(e, 404)
                else:
                    want(a.doc, STATE, "state")
                    e.call("DELETE", VAULT, status=204)
        many = {"credentials": [credential(f"k{i}", f"{i:04}" + "v" * 900) for i in range(1000)]}
        want(len(post(e, many).doc["credentials"]), 1000, "a thousand credentials")


def case_every_cut_of_a_write():
    """However its bytes arrive, by length and in chunks, alone and behind another request."""
    body = json.dumps(DOC).encode()
    auth = f"Host: x\r\nOPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n".encode()
    head = b"POST /credential-vault HTTP/1.1\r\n" + auth
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:70], body[70:])) + b"0\r\n\r\n"
    delete = b"DELETE /credential-vault HTTP/1.1\r\n" + auth + b"\r\n"
    rows = [head + b"Content-Length: %d\r\n\r\n" % len(body) + body + delete,
            head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + delete]
    with vault() as e, e.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for data in rows:
            for cut in range(1, len(data), 3):
                s.sendall(data[:cut])
                time.sleep(0.0005)
                answers, _ = e.raw(data[cut:], n=2, s=s)
                want([a.status for a in answers], [201, 204], f"cut at {cut}")


def case_source_types():
    """`file` is for the operator's own file alone."""
    with vault() as e:
        for source, why in (({"type": "file", "path": "/etc/hostname"}, "unknown field"),
                            ({"type": "file", "value": "/etc/hostname"},
                             'unsupported credential source type "file"'),
                            ({"type": "http", "value": "x"}, "unsupported credential source type"),
                            (None, "inline credential value cannot be empty")):
            doc = {"credentials": [{"name": "k", "source": source}]}
            refused(post(e, doc, 400), "invalid_vault", why)
        get(e, 404)
        post(e, {"credentials": [{"name": "k", "source": {"value": KEY}}]})


# --- mutations ---

def case_L27_mutations_and_revisions():
    with vault() as e:
        post(e)
        want(patch(e, {}).doc["revision"], 2, "an empty one counts")
        a = patch(e, {"expectedRevision": 2, "credentials": {
            "add": [credential("n", "another-value")], "replace": [credential()]}})
        want([(c["name"], c["revision"]) for c in a.doc["credentials"]], [("k", 3), ("n", 3)],
             "revisions of credentials")
        want([b["revision"] for b in a.doc["bindings"]], [3], "a binding has the vault's")
        want(get(e).doc, a.doc, "the same by GET")
        for doc, status, code, text in (
                ({"expectedRevision": 2}, 409, "revision_mismatch",
                 "expectedRevision 2 does not match current revision 3"),
                ({"credentials": {"delete": ["k"]}}, 400, "invalid_vault",
                 'binding "b" references unknown credential "k"'),
                ({"credentials": {"delete": ["x"]}}, 400, "invalid_vault",
                 'credential "x" does not exist'),
                ({"bindings": {"add": [binding("b2", paths=["/v1/x"])]}}, 400, "invalid_vault",
                 'bindings "b" and "b2" can match the same request'),
                ({"bindings": {"delete": ["b"], "add": [binding("expectedRevision", "no.test")]}},
                 400, "invalid_vault", 'host "no.test" is not allowed by egress policy')):
            refused(patch(e, doc, status), code, text)
            want(get(e).doc, a.doc, f"nothing has changed by {doc}")
        a = patch(e, {"credentials": {"delete": ["k", "n"]}, "bindings": {"delete": ["b"]}})
        want(a.doc, {"revision": 4, "credentials": [], "bindings": []}, "both lists are empty")


def case_a_binding_can_be_sent_again():
    """GET shows substitutions whole, with the name of their credential and the placeholder."""
    auth = {"type": "passthrough", "substitutions": [
        {"credential": "k", "placeholder": "__THE_KEY__", "in": ["query:q", "header", "json:/a"]}]}
    with vault() as e:
        a = post(e, {"credentials": [credential()], "bindings": [
            {"name": "b", "match": {"hosts": ["api.test"]}, "auth": auth}]})
        shown = a.doc["bindings"][0]
        want(shown["auth"], auth, "auth")
        del shown["revision"]
        shown["match"]["methods"] = ["GET"]
        again = patch(e, {"bindings": {"replace": [shown]}}).doc["bindings"][0]
        want([again["auth"], again["match"]["methods"]], [auth, ["GET"]], "replaced by itself")


def case_eight_writers_and_one_winner_a_revision():
    with vault() as e:
        post(e)
        won, lock, wrong = [], threading.Lock(), []

        def writer(n):
            try:
                with e.connect() as s:
                    for i in range(50):
                        (a, *_), _ = e.raw(e.request("GET", VAULT), s=s)
                        seen = a.doc["revision"]
                        doc = {"expectedRevision": seen, "credentials": {
                            "replace": [credential("k", f"value-of-{n}-{i}")]}}
                        (a, *_), _ = e.raw(e.request("PATCH", VAULT, doc), s=s)
                        with lock:
                            if a.status == 200:
                                won.append(a.doc["revision"])
                                want(a.doc["revision"], seen + 1, "next revision")
                            else:
                                want(a.status, 409, f"{a}")
            except Exception as x:  # pylint: disable=broad-except
                wrong.append(repr(x))

        threads = [threading.Thread(target=writer, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        want(wrong, [], "writers")
        want(sorted(won), list(range(2, len(won) + 2)), "each revision has one winner")
        want(get(e).doc["revision"], len(won) + 1, "the last of them is in force")
        want(len(won) >= 50, True, f"{len(won)} won of 400")


# --- what a write needs ---

def case_H15_order_of_checks():
    """401, 405, 412, 426, 400, and only then what is there."""
    with vault(EGRESS_INTERCEPT="off") as e:
        refused(e.call("POST", VAULT, "{", status=401, token=False), "unauthorized", "")
        refused(e.call("PUT", VAULT, "{", status=405), "method_not_allowed", "")
        refused(post(e, "{", 412), "interception_off",
                "credential vault requires transparent mitmproxy")
        (a, *_), eof = e.raw(f"POST {VAULT} HTTP/1.1\r\nHost: x\r\nContent-Length: {MIB + 1}\r\n"
                             f"OPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n\r\n".encode(), n=1)
        want(a.status, 412, "before the length is looked at")
        get(e, 404)


def case_L37_what_is_missing_is_412_for_every_write():
    rows = [({"token": None}, "token_missing", "credential vault requires egress API auth token"),
            ({"EGRESS_INTERCEPT": "off"}, "interception_off",
             "credential vault requires transparent mitmproxy"),
            ({"OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE": "1"}, "upstream_insecure",
             "credential vault rejects insecure upstream TLS mode")]
    for settings, code, text in rows:
        with vault(**settings) as e:
            for method in ("POST", "PATCH", "DELETE"):
                refused(e.call(method, VAULT, DOC, status=412), code, text)
            refused(get(e, 404), "vault_not_found", "")
    with vault(token=None, EGRESS_INTERCEPT="off") as e:
        refused(post(e, status=412), "token_missing", "")


def case_locked_memory_that_is_asked_for_and_missing_is_412():
    if os.geteuid() != 0:
        raise Skip("needs root to take the right to lock away")
    for asked, status in (("on", 412), ("off", 201)):
        with unlocked(EGRESS_REQUIRE_LOCKED_MEMORY=asked) as e:
            a = post(e, status=status)
            if status == 412:
                refused(a, "memory_not_locked", "locked memory")
            else:
                want(e.status()["health"]["state"], "degraded", "health")


def unlocked(**settings):
    """With the limit of older container hosts, and without the right to go past it."""
    program = os.path.join(apibed.TOP[0], "unlocked")
    if not os.path.exists(program):
        with open(program, "w") as f:
            f.write("#!/bin/bash\nulimit -l 64\nexec setpriv --bounding-set -ipc_lock "
                    f"--inh-caps -ipc_lock {apibed.EGRESS}\n")
        os.chmod(program, 0o755)
    return vault(program=program, **settings)


REMOTE = "192.0.2.77"


def remote(e, method, body=DOC, forwarded=(), peer=REMOTE):
    """From an address that is no loopback one."""
    fields = [f"X-Forwarded-Proto: {x}" for x in forwarded]
    with socket.create_connection((peer, e.port), timeout=10) as s:
        (a, *_), _ = e.raw(e.request(method, VAULT, body, fields=fields), s=s)
    return a


def case_L38_writes_over_the_network_need_tls():
    """426, but for loopback and for proxies that are trusted; off by default; never for reads."""
    if os.geteuid() != 0 or subprocess.run(
            ["ip", "addr", "replace", REMOTE + "/32", "dev", "lo"], check=False).returncode != 0:
        raise Skip("needs a network of its own")
    up = "OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_"
    port = 38080
    with vault(listen=f":{port}") as e:
        e.port = port
        want(remote(e, "POST").status, 201, "L41: the guard is off")
        want(remote(e, "DELETE").status, 204, "L41")
    with vault(listen=f":{port}", **{up + "REQUIRE_TLS": "1"}) as e:
        e.port = port
        refused(remote(e, "POST"), "tls_required",
                "credential vault writes require TLS or loopback transport")
        want(remote(e, "POST", forwarded=["https"]).status, 426, "L40: nobody is trusted")
        want(remote(e, "GET").status, 404, "reads are not guarded")
        post(e)
        want(remote(e, "GET").status, 200, "reads are not guarded")
        for method in ("PATCH", "DELETE"):
            want(remote(e, method, {}).status, 426, method)
        e.call("DELETE", VAULT, status=204)
    trusted = {up + "REQUIRE_TLS": "1", up + "TRUSTED_PROXY_CIDRS": "192.0.2.0/24,nonsense"}
    with vault(listen=f":{port}", **trusted) as e:
        e.port = port
        for forwarded in ((), ("http",), ("https", "https"), ("https, http",), ("",)):
            want(remote(e, "POST", forwarded=forwarded).status, 426, f"L39 {forwarded}")
        want(remote(e, "POST", forwarded=["HTTPS"]).status, 201, "L39: believed")
        want(remote(e, "DELETE", forwarded=["https"]).status, 204, "L39")
    trusted[up + "TRUSTED_PROXY_CIDRS"] = "192.0.2.76, 198.51.100.0/24"
    with vault(listen=f":{port}", **trusted) as e:
        e.port = port
        want(remote(e, "POST", forwarded=["https"]).status, 426, "L40: of another address")


def case_L16_scope_is_demanded():
    with vault(OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH="1") as e:
        for b, text in ((binding(paths=["/x"]), "match.methods must be explicit"),
                        (binding(methods=["GET"]), "match.paths must be explicit"),
                        (binding(methods=["GET"], paths=["/*"]), "must not contain /*")):
            refused(post(e, {"credentials": [credential()], "bindings": [b]}, 400),
                    "invalid_vault", text + " when scoped-match enforcement is enabled"
                    if "explicit" in text else text)
        post(e)
        refused(patch(e, {"bindings": {"add": [binding("x", "other.test")]}}, 400),
                "invalid_vault", "match.methods must be explicit")
        want(get(e).doc, STATE, "L16: revision 1, nothing has changed")


# --- policy and vault ---

def case_policy_and_vault_are_judged_by_each_other():
    with vault() as e:
        post(e)
        for method, body in (("PATCH", deny("api.test")), ("DELETE", ["api.test"]),
                             ("POST", ""), ("PUT", {"egress": allow("other.test")})):
            a = e.call(method, body=body, status=400)
            refused(a, "vault_conflict", 'credential vault policy validation: binding "b" host '
                    '"api.test" is not allowed by egress policy')
            want(e.policy(), POLICY, "the policy is what it was")
        e.call("DELETE", body=["other.test"])
        refused(patch(e, {"bindings": {"add": [binding("x", "other.test")]}}, 400),
                "invalid_vault", "not allowed by egress policy")
        patch(e, {"bindings": {"delete": ["b"]}})
        e.call("PATCH", body=deny("api.test"))
        refused(patch(e, {"bindings": {"add": [binding()]}}, 400), "invalid_vault",
                'binding "b" host "api.test" is not allowed by egress policy')
        e.call("DELETE", VAULT, status=204)
        e.call("POST", body="")


def case_policy_and_vault_at_the_same_time():
    """Two that exclude each other: one of them loses, each time."""
    with vault() as e:
        lost = {400: 0, 200: 0}
        for i in range(60):
            results = {}

            def policy_loses_host(out=results):
                out["policy"] = e.raw(e.request("PATCH", "/policy", deny("api.test")))[0][0].status

            def vault_binds_host(out=results):
                out["vault"] = e.raw(e.request("POST", VAULT, DOC))[0][0].status

            threads = [threading.Thread(target=f) for f in (
                (policy_loses_host, vault_binds_host) if i % 2 else
                (vault_binds_host, policy_loses_host))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            got = (results["policy"], results["vault"])
            if got not in ((200, 400), (400, 201)):
                raise Failed(f"both, or none: {got}")
            lost[got[0]] += 1
            if got[1] == 201:
                e.call("DELETE", VAULT, status=204)
            e.call("PUT", body=POLICY)
        print(f"# the policy won {lost[200]} of 60")


# --- what outlives what ---

def case_a_crash_keeps_what_was_answered():
    """To the byte: by a hash of it egressctl watch knows whether somebody changed the vault."""
    with vault() as e:
        before = post(e).body
        want(get(e).body, before, "after POST")
        for i in range(4):
            before = patch(e, {"credentials": {"replace": [credential("k", f"value-{i:08}")]}}).body
            worker = e.worker()
            os.kill(worker, signal.SIGKILL)
            until(lambda w=worker: e.worker() not in (0, w), "a new worker")
            want(get(e).body, before, "after a crash")
        e.call("DELETE", VAULT, status=204)
        worker = e.worker()
        os.kill(worker, signal.SIGKILL)
        until(lambda: e.worker() not in (0, worker), "a new worker")
        get(e, 404)


def case_a_reload_keeps_what_the_api_wrote():
    with vault() as e:
        state = post(e).doc
        e.hup()
        want(get(e).doc, state, "after SIGHUP")


def case_the_file_wins_when_it_is_read():
    """What the API writes counts at once, and until the vault file is read again."""
    path = os.path.join(os.environ.get("EGRESS_TMP") or "/tmp", f"vault-{os.getpid()}.json")

    def write(value):
        with open(os.open(path + ".new", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as f:
            json.dump({"credentials": [credential("f", value)]}, f)
        os.rename(path + ".new", path)

    write("value-of-the-file-1")
    with vault(EGRESS_VAULT_FILE=path) as e:
        want([c["name"] for c in get(e).doc["credentials"]], ["f"], "the file's")
        refused(post(e, status=409), "vault_exists", "credential vault already exists")
        a = patch(e, {"credentials": {"add": [credential("api")]}})
        want([a.doc["revision"], [c["name"] for c in a.doc["credentials"]]], [2, ["api", "f"]],
             "both")
        worker = e.worker()
        os.kill(worker, signal.SIGKILL)
        until(lambda: e.worker() not in (0, worker), "a new worker")
        want(get(e).doc, a.doc, "a crash is no reading")
        e.hup()
        until(lambda: get(e).doc["revision"] == 3, "the file is read")
        want([c["name"] for c in get(e).doc["credentials"]], ["f"], "after SIGHUP the file's alone")
        e.call("DELETE", VAULT, status=204)
        get(e, 404)
        write("value-of-the-file-2")
        until(lambda: e.raw(e.request("GET", VAULT))[0][0].status == 200, "a change is read", 15)
        want(get(e).doc["revision"], 1, "a new one")
    os.unlink(path)


# --- what is written down ---

def case_each_write_is_on_record_and_no_value():
    secret = "platform-" + os.urandom(12).hex()
    with vault(OPENSANDBOX_EGRESS_LOG_LEVEL="debug") as e:
        fields = [f"OPENSANDBOX-API-KEY: {secret}"]
        post(e, fields=fields)
        patch(e, {"credentials": {"add": [credential("zwei", KEY + "2")]}}, fields=fields)
        patch(e, '{"credentials":[{"source":{"value":"%s"' % KEY, 400, fields=fields)
        post(e, status=401, token=False, fields=fields)
        post(e, status=409, fields=fields)
        e.call("PUT", VAULT, KEY, status=405, fields=fields)
        e.call("PUT", "/policy", KEY, status=400, fields=fields)
        e.call("DELETE", VAULT, status=204, fields=fields)
        until(lambda: len([x for x in e.audit() if x["kind"] == "vault"]) == 3, "three lines")
        uid = os.geteuid()
        want([(x["method"], x["rule"], x["revision"], x["status"], x["uid"])
              for x in e.audit() if x["kind"] == "vault"],
             [("POST", "revision 1", 1, 201, uid), ("PATCH", "revision 2", 2, 200, uid),
              ("DELETE", "deleted", None, 204, uid)], "lines")
        log = e.text()
        want_in("vault: POST: revision 1: 1 credentials, 1 bindings", log, "log")
        want_in("vault: credentials: k, zwei; bindings: b", log, "names")
        want_in("vault: POST refused: vault_exists", log, "refusals")
        with open(e.audit_file) as f:
            log += f.read()
        for text in (KEY, secret, TOKEN, KEY[:10]):
            want_out(text, log, "log and audit trail")


def case_status_tells_of_the_vault():
    with vault() as e:
        want(e.status()["vault"], None, "none")
        post(e)
        want(e.status()["vault"], {"revision": 1}, "revision")
        want_in("revision 1", e.ctl("status")[0], "egressctl")


if __name__ == "__main__":
    sys.exit(main(globals()))
