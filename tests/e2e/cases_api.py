#!/usr/bin/env python3
"""Failures of other products at the control API, and attacks on each of its writing routes.

case  covered here                                        elsewhere
C158  all orders of four rules, both defaults, addresses, names and packets: netns/cases_gate.py;
      rule files, against ten lines that say what counts  random ones: unit tests of policy/*_index
C160  every address, the proxy as a way in, names that    pages: api.py; the token: api.py C152
      mean this machine, the token in /proc and files,
      sockets; _active

Attacks: 1 MiB and one byte more, deep and wide JSON, fields twice, numbers out of range, text that is no
UTF-8, bodies cut off, slow and oversized senders. Each is sent to every writing route; afterwards the
state is what it was, and a good caller is served. Bed: apibed.py, in a network of its own.
"""
import base64
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time

import casebed
import leakscan
from apibed import Failed, Skip, TOKEN, allow, deny, main, running, until, want, want_in, want_out

MIB = 1 << 20
OWN = "10.77.160.1"  # one more address of this machine
AUTH = f"OPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n"


# --- C158 ---

FOUR = (("allow", "*.wild.test"), ("deny", "bad.wild.test"), ("allow", "x.bad.wild.test"),
        ("deny", "*.bad.wild.test"))
ASKED = ("a.wild.test", "bad.wild.test", "x.bad.wild.test", "y.bad.wild.test", "wild.test")


def covers(target, name):
    return name.endswith(target[1:]) if target[0] == "*" else name == target


def verdict_of(rules, default, name):
    """The documented order: the first rule that fits, then the default."""
    return next((a for a, t in rules if covers(t, name)), default)


def as_rules(rows):
    return [{"action": a, "target": t} for a, t in rows]


def case_C158_every_order_of_overlapping_rules():
    with running() as e:
        seen = set()
        for order in itertools.permutations(FOUR):
            for default in ("deny", "allow"):
                e.call("POST", body={"egress": as_rules(order), "defaultAction": default})
                for name in ASKED:
                    got = "deny" if e.verdict(name) == 403 else "allow"
                    want(got, verdict_of(order, default, name), f"{order} {default}: {name}")
                    seen.add((name, got))
        want({n for n in ASKED if (n, "deny") in seen and (n, "allow") in seen},
             set(ASKED) - {"a.wild.test"}, "control: what can be refused and let through was both")


def case_C158_addresses_inside_blocks():
    if not casebed.own_network():
        raise Skip("what is let through here could leave the machine")
    rows = (("deny", "11.22.0.66"), ("allow", "11.22.0.0/24"), ("deny", "11.22.0.0/16"))
    inside = {"11.22.0.66": rows, "11.22.0.67": rows[1:], "11.22.1.1": rows[2:], "11.23.0.1": ()}
    with running() as e:
        for order in itertools.permutations(rows):
            for default in ("deny", "allow"):
                e.call("POST", body={"egress": as_rules(order), "defaultAction": default})
                for addr, fits in inside.items():
                    # by address, as the kernel does: whatever is denied, then whatever is allowed
                    actions = {r[0] for r in fits}
                    should = next((a for a in ("deny", "allow") if a in actions), default)
                    want("deny" if e.verdict(addr) == 403 else "allow", should,
                         f"{order} {default}: {addr}")


def case_C158_rule_files_before_every_order():
    with running() as e:
        e.write_rules("deny.always", "*.bad.wild.test\n")
        e.write_rules("allow.always", "x.bad.wild.test\nbad.wild.test\n")
        until(lambda: e.status()["policy"]["allowAlways"] == 2 and
              e.status()["policy"]["denyAlways"] == 1, "the files")
        always = (("deny", "*.bad.wild.test"), ("allow", "x.bad.wild.test"),
                  ("allow", "bad.wild.test"))
        for order in itertools.permutations(FOUR):
            e.call("POST", body={"egress": as_rules(order)})
            for name in ASKED:
                want("deny" if e.verdict(name) == 403 else "allow",
                     verdict_of(always + order, "deny", name), f"{order}: {name}")


# --- C160 ---

OPEN = {"defaultAction": "allow", "egress": allow("127.0.0.0/8", OWN, "::1", "localhost")}


def spoken(address, port, data, family=socket.AF_INET):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect((address, port))
        s.sendall(data)
        got = b""
        while b"\r\n\r\n" not in got:
            part = s.recv(65536)
            if not part:
                break
            got += part
    return int(got.split(b" ")[1]) if got.startswith(b"HTTP/") else 0


def case_C160_every_address_asks_for_the_token():
    subprocess.run(["ip", "addr", "add", f"{OWN}/32", "dev", "lo"], check=True)
    with running(policy=OPEN, listen=":18160") as e:
        e.port = 18160
        body = b'{"defaultAction":"allow"}'
        post = (b"POST /policy HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s\r\n" + body)
        ways = [("127.0.0.1", socket.AF_INET), ("127.9.9.9", socket.AF_INET),
                (OWN, socket.AF_INET), ("::1", socket.AF_INET6)]
        for address, family in ways:
            for host in (b"x", b"127.0.0.1:18160", b"localhost", b"egress.internal", b""):
                for field in (b"", b"OPENSANDBOX-EGRESS-AUTH: guessed\r\n",
                              b"X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n"):
                    got = spoken(address, e.port, post % (host, len(body), field), family)
                    want(got, 401, f"{address} {host} {field}")
            want(spoken(address, e.port, post % (b"x", len(body), AUTH.encode()), family), 200,
                 f"control: {address} with the token")
        want(spoken("127.0.0.1", e.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 200,
             "health is open")


def case_C160_the_proxy_is_no_way_in():
    """Whoever the proxy asks for would come from its own address."""
    with running(policy=OPEN, listen=":18161") as e:
        e.port = 18161
        before, body = e.policy(), b'{"defaultAction":"allow","egress":[]}'
        for name in ("127.0.0.1", "127.1", "localhost", "[::1]", "0.0.0.0", "[::]", "2130706433",
                     "[::ffff:127.0.0.1]"):
            put = (f"POST http://{name}:{e.port}/policy HTTP/1.1\r\nHost: {name}:{e.port}\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n").encode() + body
            got = spoken("127.0.0.1", e.proxy, put)
            want(got in (400, 401, 403, 502), True, f"{name}: {got}")
        want(e.policy(), before, "unchanged")
        want([a["status"] for a in e.audit() if a["kind"] == "policy"], [], "no change on record")


def children(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True,
                           check=False).stdout.split()
    return [pid, *map(int, found)]


def looked_for_token(uid, pids, top):
    """Where a process of this user finds the token: in /proc, and in the files of the run."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        found = ["began"]
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            paths = [f"/proc/{p}/{n}" for p in pids for n in ("environ", "cmdline", "mem", "maps",
                                                               "task", "fd")]
            for folder, _, names in os.walk(top):
                paths += [os.path.join(folder, n) for n in names]
            for path in paths:
                try:
                    with open(path, "rb") as f:
                        if TOKEN.encode() in f.read(8 * MIB):
                            found.append(path)
                except OSError:
                    pass
            os.write(into, "\n".join(found).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as f:
        text = f.read().split("\n")
    os.waitpid(child, 0)
    want(text[0], "began", f"a process of user {uid}")
    return text[1:]


def case_C160_nobody_else_finds_the_token():
    if os.geteuid() != 0:
        raise Skip("needs root for another user")
    with running() as e:
        e.call("PATCH", body=allow("a.test"))
        e.call("GET", "/nope", status=404)
        pids = children(e.p.pid)
        want(len(pids) > 1, True, "supervisor and worker")
        mine = subprocess.Popen(["sleep", "60"], env={"T": TOKEN}, user=10050, group=10050,
                                extra_groups=[])
        try:
            until(lambda: os.readlink(f"/proc/{mine.pid}/exe").endswith("sleep"), "sleep")
            want(looked_for_token(10050, [mine.pid], e.top), [f"/proc/{mine.pid}/environ"],
                 "control: a process that keeps it open")
        finally:
            mine.kill()
            mine.wait()
        want(looked_for_token(10050, pids, e.top), [], "of ours")
        with open("/proc/net/unix", encoding="ascii") as f:
            names = [x.split()[7] for x in f.readlines()[1:] if len(x.split()) > 7]
        want(names, [], "no socket has a name, in the file system or beside it")


def case_C160_active_is_never_shown():
    with running() as e:
        for path in ("/credential-vault/_active", "/credential-vault/_active?x=1"):
            for method in ("GET", "POST", "DELETE"):
                for token in (True, False):
                    a, _ = e.raw(e.request(method, path, token=token))
                    want([x.status for x in a], [403 if method == "GET" else 405],
                         f"{method} {path} {token}")


def case_C152_an_empty_token_is_none_and_said_aloud():
    with running(token=False, OPENSANDBOX_EGRESS_TOKEN="") as e:
        want_in("whoever reaches the API may change the policy", e.text(), "the log")
        want_in("no token", str(e.status()["warnings"]), "status")
        a = e.call("POST", "/credential-vault", {}, status=412)
        want_in("requires egress API auth token", a.doc["message"], "and there is no vault")
        e.call("GET", fields=("OPENSANDBOX-EGRESS-AUTH: ",))


# --- attacks on the writing routes ---

KEY = "sk-attacked-" + os.urandom(12).hex()
VAULT = {"credentials": [{"name": "k", "source": {"value": KEY}}],
         "bindings": [{"name": "b", "match": {"hosts": ["api.test"], "paths": ["/v1/*"]},
                       "auth": {"type": "bearer", "credential": "k"}}]}
POLICY = {"egress": allow("api.test", "a.test"), "defaultAction": "deny"}
WRITES = [("POST", "/policy"), ("PUT", "/policy"), ("PATCH", "/policy"), ("DELETE", "/policy"),
          ("POST", "/credential-vault"), ("PATCH", "/credential-vault"),
          ("PUT", "/audit/context")]


def attacked():
    return running(policy=POLICY, OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true")


def state_of(e):
    s = e.status()
    return [e.policy(), e.call("GET", "/credential-vault").doc, s["policy"]["revision"],
            s["vault"], s.get("context")]


def begun(e):
    e.call("POST", "/credential-vault", VAULT, status=201)
    e.call("PUT", "/audit/context", {"labels": {"run": "r-1"}})
    return state_of(e)


def rejected(e, method, path, body, what, statuses=(400, 413)):
    start = time.monotonic()
    a, _ = e.raw(e.request(method, path, body))
    took = time.monotonic() - start
    if len(a) != 1 or a[0].status not in statuses:
        raise Failed(f"{method} {path}: {what}: {a}")
    want(list(a[0].doc), ["code", "message"], f"{method} {path}: {what}: the answer")
    want_out(KEY[:20], a[0].body.decode(), f"{method} {path}: {what}: no key in the answer")
    if took > 3:  # milliseconds without a sanitizer
        raise Failed(f"{method} {path}: {what}: {took:.1f} s")


def well(e, before):
    want(state_of(e), before, "the state")
    want(e.call("GET", "/healthz", token=False).body, b"ok", "health")
    want_out(KEY, e.text() + json.dumps(e.audit()), "log and trail: the key")


def case_bodies_of_a_mebibyte_and_a_byte_more():
    with attacked() as e:
        before = begun(e)
        for method, path in WRITES + [("DELETE", "/credential-vault")]:
            for size, statuses in ((MIB + 1, (413,)), (2 * MIB, (413,))):
                rejected(e, method, path, b" " * size, f"{size} bytes", statuses)
            head = (f"{method} {path} HTTP/1.1\r\nHost: x\r\n{AUTH}"
                    "Transfer-Encoding: chunked\r\n\r\n").encode()
            chunk = b"%x\r\n" % 65536 + b"[" * 65536 + b"\r\n"
            a, eof = e.raw(head + chunk * 16 + b"1\r\n[\r\n0\r\n\r\n")
            want([x.status for x in a], [413], f"{method} {path}: in chunks")
        well(e, before)
        doc = json.dumps({"expectedRevision": 1}).encode()
        a, _ = e.raw(e.request("PATCH", "/credential-vault", doc + b" " * (MIB - len(doc))))
        want([x.status for x in a], [200], "control: exactly 1 MiB")


DEEP = {"lists": b"[" * 100000, "objects": b'{"a":' * 100000, "closed": b"]" * 1000000,
        "closed deep": b"[" * 65 + b"]" * 65, "wide": b"[" + b"[]," * 300000 + b"[]]",
        "wide objects": b'{"credentials":[' + b"{}," * 300000 + b"{}]}",
        "one long text": b'{"credentials":["' + b"x" * 1000000 + b'"]}',
        "many fields": b"{" + b",".join(b'"k%d":1' % i for i in range(70000)) + b"}",
        "escapes": b'"' + b"\\u0041" * 170000 + b'"', "half a pair": b'"\\uD83D', "BOM":
        b"\xef\xbb\xbf{}", "two documents": b"{}{}", "rest": b"{} x", "comment": b"{/**/}"}


def case_deep_and_wide_json():
    with attacked() as e:
        before = begun(e)
        for method, path in WRITES:
            for what, body in DEEP.items():
                # the policy passes over fields that it does not know
                if what in ("many fields", "wide objects", "one long text") and \
                        path == "/policy" and method in ("POST", "PUT"):
                    continue
                rejected(e, method, path, body, what)
        well(e, before)
        with open(f"/proc/{e.worker()}/status", encoding="ascii") as f:
            rss = int([x for x in f if x.startswith("VmRSS")][0].split()[1])
        want(rss < 400 << 10, True, f"the worker keeps {rss} KiB")


STRANGE_VAULT = {
    "credentials twice": b'{"credentials":[],"credentials":[]}',
    "a name twice": b'{"credentials":[{"name":"a","name":"b","source":{"value":"v-0123456789"}}]}',
    "a value twice": b'{"credentials":[{"name":"a","source":{"value":"v-0123456789",'
    b'"value":"w-0123456789"}}]}',
    "a field of no one": b'{"credentials":[],"extra":1}',
    "a field in a source": b'{"credentials":[{"name":"a","source":{"value":"v-0123456789","x":1}}]}',
    "no UTF-8": b'{"credentials":[{"name":"a\xff\xfe","source":{"value":"v-0123456789"}}]}',
    "no UTF-8 in a value": b'{"credentials":[{"name":"a","source":{"value":"v-\xc3\x28-012345"}}]}',
    "overlong UTF-8": b'{"credentials":[{"name":"\xc0\xaf","source":{"value":"v-0123456789"}}]}',
    "half a pair": b'{"credentials":[{"name":"\\ud800","source":{"value":"v-0123456789"}}]}',
    "NUL": b'{"credentials":[{"name":"a\\u0000b","source":{"value":"v-0123456789"}}]}',
    "a list where an object stands": b"[]", "a number": b"7", "a text": b'"x"', "true": b"true",
    "a number as a name": b'{"credentials":[{"name":1,"source":{"value":"v-0123456789"}}]}',
    "a number as a value": b'{"credentials":[{"name":"a","source":{"value":1e400}}]}',
    "a source of another kind": b'{"credentials":[{"name":"a","source":{"type":"file",'
    b'"path":"/etc/shadow"}}]}',
    "a port out of range": b'{"bindings":[{"name":"a","match":{"hosts":["api.test"],'
    b'"ports":[4294967739]},"auth":{"type":"passthrough"}}]}',
    "a port beyond numbers": b'{"bindings":[{"name":"a","match":{"hosts":["api.test"],'
    b'"ports":[' + b"9" * 400 + b']},"auth":{"type":"passthrough"}}]}',
}

def replacing(placeholder):
    return json.dumps({"credentials": [{"name": "a", "source": {"value": "v-0123456789"}}],
                       "bindings": [{"name": "b", "match": {"hosts": ["api.test"]},
                                     "auth": {"type": "passthrough", "substitutions": [
                                         {"credential": "a", "placeholder": placeholder,
                                          "in": ["header"]}]}}]}).encode()


STRANGE_VAULT.update({f"C130: a placeholder {w}": replacing(p) for w, p in (
    ("of nothing", ""), ("of 7 bytes", "ph-0001"), ("that is the value", "v-0123456789"))})
STRANGE_PATCH = {
    "a set twice": b'{"credentials":{"add":[],"add":[]}}',
    **{f"revision {n[:12]!r}": b'{"expectedRevision":' + n + b"}" for n in (
        b"-1.5", b"1.0", b"1e0", b'"1"', b"true", b"[1]", b"9" * 400, b"1e400", b"0x1", b"01",
        b"NaN", b"+1", b"18446744073709551617")},
    "sets that are lists": b'{"credentials":[]}', "a name that is none": b'{"bindings":'
    b'{"delete":[1]}}', "a name out of UTF-8": b'{"bindings":{"delete":["\xff"]}}',
    "a blank name": b'{"credentials":{"delete":[" "]}}',
}
STRANGE_CONTEXT = {
    "labels twice": b'{"labels":{},"labels":{}}', "a label twice": b'{"labels":{"a":"1","a":"2"}}',
    "a number": b'{"labels":{"a":1}}', "a list": b'{"labels":["a"]}', "null": b'{"labels":{"a":null}}',
    "nested": b'{"labels":{"a":{"b":"c"}}}', "no UTF-8": b'{"labels":{"a":"\xff"}}',
    "NUL": b'{"labels":{"a":"\\u0000"}}', "a field of no one": b'{"labels":{},"x":1}',
    "too long": b'{"labels":{"a":"' + b"x" * 600 + b'"}}', "no object": b"[]",
}
STRANGE_POLICY = {
    "no UTF-8": b'{"egress":[{"action":"allow","target":"a\xff.test"}]}',
    "NUL": b'{"egress":[{"action":"allow","target":"a\\u0000.test"}]}',
    **{f"port {n[:12]!r}": b'{"egress":[{"action":"allow","target":"a.test","ports":[' + n + b"]}]}"
       for n in (b"0", b"-1", b"65536", b"4294967739", b"443.5", b'"443"', b"9" * 400, b"1e400")},
}


def case_documents_that_say_two_things_or_nothing():
    with attacked() as e:
        before = begun(e)
        for what, body in {**STRANGE_VAULT, **STRANGE_PATCH}.items():
            if what in STRANGE_VAULT:
                e.call("DELETE", "/credential-vault", status=204)
                rejected(e, "POST", "/credential-vault", body, what, (400,))
                e.call("GET", "/credential-vault", status=404)
                e.call("POST", "/credential-vault", VAULT, status=201)
            else:
                rejected(e, "PATCH", "/credential-vault", body, what, (400,))
        for what, body in STRANGE_CONTEXT.items():
            rejected(e, "PUT", "/audit/context", body, what)
        for what, body in STRANGE_POLICY.items():
            rejected(e, "POST", "/policy", body, what, (400,))
            rows = body[len(b'{"egress":'):-1]
            rejected(e, "PATCH", "/policy", rows, what, (400,))
        well(e, before)


def case_C128_values_and_names_by_the_api():
    start = "sk-plant-0042"
    with attacked() as e:
        begun(e)
        before = state_of(e)

        def added(what, status, value=start, name="planted", auth=None):
            doc = {"credentials": {"add": [{"name": name, "source": {"value": value}}]},
                   "bindings": {"add": [{"name": "p", "match": {"hosts": ["a.test"]},
                                         "auth": auth or {"type": "bearer", "credential": name}}]}}
            a = e.call("PATCH", "/credential-vault", doc, status=status)
            want_out(start[:8], a.body.decode(), f"{what}: the value is not shown")
            if status == 400:
                want(state_of(e), before, f"{what}: nothing changed")
            return a
        for what, value in {"new line": start + "\n", "field": start + "\r\nX-Evil: 1",
                            "NUL": start + "\0x", "blanks": f" {start} ", "empty": "",
                            "not ASCII": start + "\u00e9", "DEL": start + "\x7f",
                            "64 KiB + 1": start.ljust(65537, "x")}.items():
            a = added(what, 400, value)
            want_in("planted" if what != "NUL" else "line 1", a.doc["message"], f"{what}: where")
        for name in ("X-A\r\nB", "Host", "Content-Length", "Transfer-Encoding", "connection", "X A",
                     "", "X:", "Expect", "Sec-WebSocket-Key"):
            added(f"name {name!r}", 400,
                  auth={"type": "apiKey", "credential": "planted", "name": name})
        want(added("control", 200, start.ljust(65536, "x")).doc["revision"], 2, "64 KiB")


def case_C126_patches_that_would_be_ambiguous():
    def one(name, paths=("/v1/*",), methods=("GET",), hosts=("api.test",)):
        return {"name": name, "auth": {"type": "passthrough"},
                "match": {"hosts": list(hosts), "paths": list(paths), "methods": list(methods)}}
    with running(policy={"egress": deny("bad.wild.test") + allow("api.test", "*.wild.test")},
                 OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true") as e:
        e.call("POST", "/credential-vault", {"bindings": [one("first"), one("w", hosts=(
            "*.wild.test",))]}, status=201)
        before = e.call("GET", "/credential-vault").doc
        for what, second in {"same path": one("second"), "nested": one("second", ["/v1/files/*"]),
                             "one method of two": one("second", methods=("POST", "GET")),
                             "nested wildcards": one("second", hosts=("*.a.wild.test",))}.items():
            a = e.call("PATCH", "/credential-vault", {"bindings": {"add": [second]}}, status=400)
            want_in('"second"', a.doc["message"], what)
            want_in('"w"' if "wildcards" in what else '"first"', a.doc["message"], what)
            want(e.call("GET", "/credential-vault").doc, before, f"{what}: unchanged")
        e.call("PATCH", "/credential-vault", {"bindings": {"add": [one("other", methods=("POST",)),
                                                                  one("exact", hosts=("a.wild.test",
                                                                                      ))]}})


# --- keys on wrong ways ---

def secret():
    return base64.b32encode(os.urandom(20))


def keyed(value):
    return json.dumps({**VAULT, "credentials": [{"name": "k", "source": {
        "value": value.decode()}}]}).encode()


def wrong_ways(value):
    """Requests with a key that do not get to a vault: as bytes, and what they are answered."""
    body = keyed(value)
    length = f"Content-Length: {len(body)}\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(body), body)

    def sent(line, fields, data):
        return (line + " HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n").encode() + data
    own = "POST /credential-vault"
    yield "no token", sent(own, length, body), 401
    yield "another token", sent(own, length + "OPENSANDBOX-EGRESS-AUTH: guessed\r\n", body), 401
    yield "a web page", sent(own, length + AUTH + "Origin: http://x\r\n", body), 403
    yield "a path to clean", sent("POST //credential-vault", length + AUTH, body), 301
    yield "a slash too much", sent("POST /credential-vault/", length + AUTH, body), 404
    yield "a wrong path", sent("POST /credential-vaults", length + AUTH, body), 404
    yield "a list", sent("POST /credential-vault/credentials", length + AUTH, body), 405
    yield "_active", sent("POST /credential-vault/_active", length + AUTH, body), 405
    yield "a wrong method", sent("PUT /credential-vault", length + AUTH, body), 405
    yield "health", sent("POST /healthz", length, body), 200
    yield "status", sent("POST /status", length + AUTH, body), 405
    yield "two lengths", sent(own, length * 2 + AUTH, body), 400
    yield "both framings", sent(own, length + "Transfer-Encoding: chunked\r\n" + AUTH, chunk), 400
    yield "no chunk", sent(own, "Transfer-Encoding: chunked\r\n" + AUTH, body), 400
    yield "a broken second chunk", sent(own, "Transfer-Encoding: chunked\r\n" + AUTH,
                                        chunk + b"zz\r\n"), 400
    yield "no length", sent(own, AUTH, body), 400
    yield "in a field", sent(own, AUTH + f"X-Key: {value.decode()}\r\n", b""), 400
    yield "another expectation", sent(own, length + AUTH + "Expect: tea\r\n", body), 417
    yield "rubbish behind", sent(own, f"Content-Length: {len(body) + 2}\r\n" + AUTH,
                                 body + b"}}"), 400
    yield "a document too long", sent(own, f"Content-Length: {MIB + 1}\r\n" + AUTH, body), 413


def case_keys_on_wrong_ways_are_nowhere():
    with attacked() as e:
        keys, waiting = {}, []
        for what in [w[0] for w in wrong_ways(b"")]:
            value = keys[what] = secret()
            [(_, data, status)] = [w for w in wrong_ways(value) if w[0] == what]
            for _ in range(2):
                waiting.append(e.connect())
                a, _ = e.raw(data, s=waiting[-1])
                want([x.status for x in a], [status], what)
                want_out(value[:10].decode(), a[0].body.decode(), f"{what}: the answer")
            waiting.pop().close()
            if what == "no length":  # what follows is the head of another request, and waits as one
                waiting.pop().close()
        e.call("GET", "/credential-vault", status=404)
        for when in ("connections wait", "they have ended"):
            found = leakscan.search_memory(e.p.pid, list(keys.values())).found
            want(found[:3], [], f"memory while {when} ({list(keys)})")
            while waiting:
                waiting.pop().close()
        name = secret().decode()
        e.call("POST", "/credential-vault", {"credentials": [{"name": name, "source": {
            "value": "v-0123456789"}}]}, status=201)
        want(leakscan.search_memory(e.p.pid, [name.encode()]).found != [], True,
             "control: a name is found")
        text = e.text() + json.dumps(e.audit())
        want([w for w, v in keys.items() if v.decode()[:12] in text], [], "log and trail")


def case_no_answer_quotes_a_key():
    """A document cut off at every place, and with one byte wrong at every place."""
    value = secret()
    body = keyed(value)
    pieces = {value[i:i + 6] for i in range(len(value) - 5)}
    with attacked() as e, e.connect() as s:
        n = 0
        for at in range(len(body)):
            for text in (body[:at], body[:at] + b"\x01" + body[at + 1:],
                         body[:at] + b'"' + body[at + 1:]):
                a, _ = e.raw(e.request("POST", "/credential-vault", text), s=s)
                n += 1
                if a[0].status == 201:
                    e.raw(e.request("DELETE", "/credential-vault"), s=s)
                else:
                    want([p for p in pieces if p in a[0].body], [], f"cut or changed at {at}: {a}")
        text = e.text() + json.dumps(e.audit())
        want([p for p in pieces if p.decode() in text], [], "log and trail")
        want(n, 3 * len(body), "control: all of them")


# --- slow and oversized callers ---

def case_slow_bodies_hold_nobody_up():
    """Forty callers that have the token send a byte now and then, to every writing route."""
    with attacked() as e:
        before, held, done = begun(e), [], threading.Event()
        for i in range(40):
            method, path = WRITES[i % len(WRITES)]
            s = e.connect()
            s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 1000\r\n\r\n"
                      .encode() + b'{"')
            held.append(s)

        def drip():
            while not done.wait(0.2):
                for s in held:
                    try:
                        s.sendall(b" ")
                    except OSError:
                        pass
        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            for i in range(20):
                start = time.monotonic()
                e.call("GET")
                e.call("PATCH", body=allow(f"n{i}.test"))
                e.call("PUT", "/audit/context", {"labels": {"run": f"r-{i}"}})
                e.call("GET", "/credential-vault")
                a, _ = e.raw(e.request("PATCH", "/credential-vault", {}))
                want([x.status in (200, 503) for x in a], [True], f"a vault write: {a}")
                want(time.monotonic() - start < 2, True, "at once")
            e.call("PUT", body=POLICY)
            e.call("PUT", "/audit/context", {"labels": {"run": "r-1"}})
        finally:
            done.set()
            dripping.join()
            for s in held:
                s.close()
        until(lambda: e.raw(e.request("PATCH", "/credential-vault", {}))[0][0].status == 200,
              "and afterwards the vault may be written")
        want(e.call("GET", "/credential-vault").doc["bindings"][0]["match"],
             before[1]["bindings"][0]["match"], "none of the halves was taken")
        want(e.policy(), POLICY, "nor for a policy")


def case_bodies_that_are_cut_off():
    with attacked() as e:
        before = begun(e)
        for method, path in WRITES:
            for framing in (f"Content-Length: {len(json.dumps(VAULT)) + 1}",
                            "Transfer-Encoding: chunked"):
                s = e.connect()
                part = json.dumps(VAULT).encode()
                if "chunked" in framing:
                    part = b"%x\r\n%s\r\n" % (len(part), part)
                s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{AUTH}{framing}\r\n\r\n"
                          .encode() + part)
                s.shutdown(socket.SHUT_WR)
                s.settimeout(5)
                got = b""
                try:
                    while piece := s.recv(65536):
                        got += piece
                except OSError:
                    pass
                s.close()
                want(got == b"" or got.startswith(b"HTTP/1.1 4"), True, f"{path}: {got[:60]}")
        well(e, before)


def case_oversized_heads():
    with attacked() as e:
        before = begun(e)
        for method, path in WRITES:
            for head in (f"{method} {path}?{'a' * 20000} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n",
                         f"{method} {path} HTTP/1.1\r\nHost: x\r\n{AUTH}X: {'a' * 70000}\r\n\r\n",
                         f"{method} {path} HTTP/1.1\r\nHost: x\r\n{AUTH}" + "X: a\r\n" * 5000 +
                         "\r\n"):
                a, eof = e.raw(head.encode(), n=None, wait=5)
                want([[x.status for x in a], eof], [[431], True], f"{method} {path}: {head[:40]}")
        well(e, before)


if __name__ == "__main__":
    if sys.argv[1:] != ["--list"] and casebed.own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
    sys.exit(main(globals()))
