#!/usr/bin/env python3
"""Keys, from the attacker's side: what the origin of a bound host gets, and what its client can see of
it. The vault comes from EGRESS_VAULT_FILE. Every search of an answer has a control in
unseen(): the origin's own bytes do hold the key."""
import base64
import gzip
import json
import os
import random
import string
import sys
import zlib

import casebed
from casebed import Failed, ok, until, want, want_403, want_in, want_ok, want_out
from limitbed import start

K = b"sk-real-" + "".join(random.choices(string.ascii_uppercase, k=17)).encode()
K_KNOWN = b"sk-known-" + "".join(random.choices(string.ascii_letters, k=12)).encode()  # to the client
PH = b"ph-model-0001"
HOST = "api.model.test"
VAULT = {
    "credentials": [{"name": "k", "source": {"type": "inline", "value": K.decode()}},
                    {"name": "known", "source": {"type": "inline", "value": K_KNOWN.decode()}}],
    "bindings": [
        {"name": "bearer", "match": {"hosts": [HOST], "methods": ["GET", "POST", "HEAD"],
                                     "paths": ["/v1/*"]},
         "auth": {"type": "bearer", "credential": "k"}},
        {"name": "slots", "match": {"hosts": [HOST], "methods": ["GET", "POST"],
                                    "paths": ["/s/*"]},
         "auth": {"type": "passthrough", "substitutions": [
             {"credential": "k", "placeholder": PH.decode(),
              "in": ["query", "header:X-Key", "header:Authorization", "json:/auth/key",
                     "form:key"]}]}}]}


def vault(bed):
    path = bed.path("vault.json")
    if not os.path.exists(path):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            json.dump(VAULT, f)
    return bed.need("keys", EGRESS_VAULT_FILE=path)


def request(target, fields=b"", method=b"GET", body=b""):
    return b"%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s" % (method, target, HOST.encode(), fields, body)


def sent(bed, mark):
    return b"".join(data for _, data in bed.origins.since(mark))


def ask(bed, data, **how):
    mark = bed.origins.mark()
    talk = bed.via(HOST, data, **how)
    return talk, sent(bed, mark)


def unseen(bed, what, pieces, target=b"/v1/echo", forms=(K,), whole=True):
    """The origin answers with these pieces; none of the forms reaches the client, in any case."""
    def answer(peer, head):
        peer.body(head)
        for piece in pieces:
            peer.send(piece)
        return False
    bed.origins.routes[target.decode()] = answer
    talk, got = ask(bed, request(target, b"Connection: close\r\n"), n=None)
    want_in(b"Authorization: Bearer " + K, got, f"{what}: the origin's request")
    for form in forms:
        want_in(form.lower(), b"".join(pieces).lower(), f"{what}: control")
        want_out(form, talk.raw, what)
    if whole:
        want(len(talk.finals), 1, f"{what}: one whole answer ({talk})")
    bed.rows_run += 1
    return talk


def K01_key_goes_in_and_an_echo_comes_back_starred(bed):
    vault(bed)
    stars = b"*" * len(K)
    talk = unseen(bed, "body", [ok(b"you sent Bearer " + K + b"\n")])
    want_in(b"Bearer " + stars, talk.finals[0].body, "body")
    unseen(bed, "field value", [ok(fields=b"X-Echo: a " + K + b" b\r\n")])
    unseen(bed, "field name", [ok(fields=K + b": 1\r\n")])
    unseen(bed, "location", [ok(fields=b"Location: /?k=" + K + b"\r\n", status=b"302 Found")])
    unseen(bed, "reason", [ok(status=b"500 bad key " + K)])
    unseen(bed, "two cookies", [ok(fields=b"Set-Cookie: a=" + K + b"\r\nSet-Cookie: b=2\r\n")])
    unseen(bed, "informational",
           [b"HTTP/1.1 103 Early Hints\r\nLink: <" + K + b">\r\n\r\n", ok()])
    unseen(bed, "other case", [ok(K.swapcase())], forms=(K.swapcase(),))


def K02_every_spelling_of_the_key(bed):
    vault(bed)
    forms = {
        "base64": base64.b64encode(K).rstrip(b"="), "base64url": base64.urlsafe_b64encode(K),
        "hex": K.hex().encode(), "percent": b"".join(b"%%%02X" % c for c in K),
        "json": b"".join(b"\\u%04x" % c for c in K),
        "html": b"".join(b"&#%d;" % c for c in K),
    }
    for name, form in forms.items():
        unseen(bed, name, [ok(b"<" + form + b">")], forms=(form,))
    for before in (b"x", b"xy"):  # inside a longer text: what the key alone decides must go
        text = base64.b64encode(before + K + b"zz")
        unseen(bed, f"base64 at {len(before)}", [ok(text)], forms=(text[4:-4],))


def K03_key_cut_into_pieces(bed):
    vault(bed)
    body = b"aa " + K + b" zz"
    head = ok(body)[:-len(body)]
    unseen(bed, "bytewise", [head] + [body[i:i + 1] for i in range(len(body))])
    chunks = b"".join(b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"
    lines = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    def answer(peer, head):
        peer.send(lines, chunks)
        return False
    bed.origins.routes["/v1/chunks"] = answer
    talk, _ = ask(bed, request(b"/v1/chunks"), n=1)
    want(talk.finals[0].body, body.replace(K, b"*" * len(K)), "chunks")
    bytewise = ok(fields=b"X-Echo: " + K + b"\r\n")
    unseen(bed, "head bytewise", [bytewise[i:i + 1] for i in range(len(bytewise))])
    unseen(bed, "trailer", [lines + b"2\r\nok\r\n0\r\nX-Echo: " + K + b"\r\n\r\n"], whole=False)
    unseen(bed, "trailer name", [lines + b"2\r\nok\r\n0\r\n" + K + b": 1\r\n\r\n"], whole=False)


def K04_codings_nobody_asked_for(bed):
    vault(bed)
    for name, packed in ((b"gzip", gzip.compress(b"a" * 999 + K)),
                         (b"deflate", zlib.compress(b"a" * 999 + K))):
        def answer(peer, head, name=name, packed=packed):
            peer.send(ok(packed, b"Content-Encoding: %s\r\n" % name))
            return False
        bed.origins.routes["/v1/zip"] = answer
        talk, _ = ask(bed, request(b"/v1/zip", b"Connection: close\r\n"), n=None)
        want(packed in talk.raw, False, f"{name}: the answer is cut")
        clean = zlib.compress(b"nothing") if name == b"deflate" else gzip.compress(b"nothing")
        bed.origins.routes["/v1/zip"] = lambda peer, head, c=clean, n=name: (
            peer.send(ok(c, b"Content-Encoding: %s\r\n" % n)), False)[1]
        talk, _ = ask(bed, request(b"/v1/zip"), n=1)
        want(talk.finals[0].body, clean, f"{name}: a clean answer passes as it is")
    for coding in (b"br", b"zstd", b"gzip, gzip", b"foo"):
        bed.origins.routes["/v1/zip"] = lambda peer, head, c=coding: (
            peer.send(ok(b"x", b"Content-Encoding: %s\r\n" % c)), False)[1]
        talk, _ = ask(bed, request(b"/v1/zip"), n=1)
        want((talk.finals[0].status, talk.finals[0].field("x-egress-reason")),
             (502, "encoded_answer"), f"{coding}")
        bed.rows_run += 1


def K05_what_would_let_a_key_be_fetched_in_parts_stays_here(bed):
    vault(bed)
    talk, got = ask(bed, request(
        b"/v1/x", b"Range: bytes=0-1\r\nIf-Range: x\r\nAccept-Encoding: gzip, br\r\n"
        b"X-Forwarded-Host: evil.test\r\nForwarded: host=evil.test\r\nX-Host: evil.test\r\n"
        b"Authorization: Bearer own\r\nauthorization: Bearer own2\r\nX-Keep: 1\r\n"))
    want_ok(talk, "answer")
    for gone in (b"range", b"gzip", b"evil", b"own"):
        want_out(gone, got, "request")
    want([got.count(b"Authorization:"), got.count(b"Accept-Encoding: identity")], [1, 1], "fields")
    want_in(b"X-Keep: 1", got, "request")


def K06_slots(bed):
    vault(bed)
    talk, got = ask(bed, request(b"/s/x?a=1&k=" + PH, b"X-Key: " + PH + b"\r\nX-Other: 1\r\n"))
    want_ok(talk, "query and field")
    want_in(b"GET /s/x?a=1&k=" + K + b" HTTP/1.1\r\n", got, "query")
    want_in(b"X-Key: " + K + b"\r\n", got, "field")
    basic = base64.b64encode(b"user:" + PH)
    talk, got = ask(bed, request(b"/s/x", b"Authorization: Basic " + basic + b"\r\n"))
    want_in(base64.b64encode(b"user:" + K), got, "Basic")
    talk, got = ask(bed, request(b"/s/x", b"Authorization: Bearer " + PH + b"\r\n"))
    want_in(b"Bearer " + K, got, "Bearer")
    bed.rows_run += 4


def K07_slots_in_content(bed):
    vault(bed)
    chat = json.dumps({"messages": ["say " + PH.decode()], "auth": {"key": PH.decode()}}).encode()
    should = chat.replace(b'"key": "' + PH, b'"key": "' + K)
    want(should != chat, True, "control")
    typed = b"Content-Type: application/json\r\n"
    rows = {
        "length": (typed + b"Content-Length: %d\r\n" % len(chat), chat),
        "chunked": (typed + b"Transfer-Encoding: chunked\r\n",
                    b"".join(b"7\r\n%s\r\n" % chat[i:i + 7] if len(chat[i:i + 7]) == 7 else
                             b"%x\r\n%s\r\n" % (len(chat[i:]), chat[i:])
                             for i in range(0, len(chat), 7)) + b"0\r\n\r\n"),
        "expect": (typed + b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(chat), chat),
    }
    for name, (fields, content) in rows.items():
        talk, got = ask(bed, request(b"/s/x", fields, b"POST", content))
        want_ok(talk, name)
        want(got.split(b"\r\n\r\n", 1)[1], should, f"{name}: content")
        want_in(b"Content-Length: %d\r\n" % len(should), got, f"{name}: length")
        want_out(b"Expect", got, name)
        bed.rows_run += 1
    form = b"a=" + PH + b"&key=" + PH
    talk, got = ask(bed, request(
        b"/s/x", b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n"
        % len(form), b"POST", form))
    want(got.split(b"\r\n\r\n", 1)[1], b"a=" + PH + b"&key=" + K, "form")
    big = b'{"auth":{"key":"' + PH + b'"},"x":"' + b"y" * (1 << 20) + b'"}'
    for size in ((1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        content = big[:size - 2] + b'"}'
        talk, got = ask(bed, request(
            b"/s/x", typed + b"Content-Length: %d\r\n" % size, b"POST", content))
        want_ok(talk, f"{size}")
        want((K in got, PH in got), (size <= 1 << 20, size > 1 << 20), f"{size} bytes: key put in")
        bed.rows_run += 1


def K08_what_must_not_leave(bed):
    vault(bed)
    mark = bed.origins.mark()
    own = b"Authorization: Bearer own\r\nContent-Length: 2\r\n"
    rows = {
        "placeholder to another host": (
            bed.via("read.test", b"GET /?k=%s HTTP/1.1\r\nHost: read.test\r\n\r\n" % PH),
            "placeholder_for_other_host"),
        "placeholder in a field": (
            bed.via("read.test", b"GET / HTTP/1.1\r\nHost: read.test\r\nX-Key: %s\r\n\r\n" % PH),
            "placeholder_for_other_host"),
        "key to another host": (
            bed.via("read.test", b"GET / HTTP/1.1\r\nHost: read.test\r\nX: %s\r\n\r\n" % K_KNOWN),
            "key_to_unbound_host"),
        "placeholder in clear": (
            bed.px(b"GET http://%s/s/x?k=%s HTTP/1.1\r\nHost: %s\r\n\r\n"
                   % (HOST.encode(), PH, HOST.encode())), "placeholder_for_other_host"),
        "write outside the binding": (
            bed.via(HOST, request(b"/other", own, b"POST", b"hi")), "write_without_binding"),
        "own key in the query": (
            bed.via(HOST, request(b"/v1/x?key=own", b"Content-Length: 2\r\n", b"POST", b"hi")),
            "write_without_binding"),
        "dot segments": (bed.via(HOST, request(b"/v1/../admin")), "path_ambiguous"),
        "encoded dot segments": (bed.via(HOST, request(b"/v1/%252e%252e/admin")),
                                 "path_ambiguous"),
    }
    for name, (talk, reason) in rows.items():
        want_403(talk, name)
        want(talk.finals[-1].field("x-egress-reason"), reason, name)
        bed.rows_run += 1
    want(sent(bed, mark), b"", "nothing arrived")
    talk, got = ask(bed, request(b"/other"))
    want_out(K, got, "a read outside the binding has no key")
    for field in (b"Cookie: a=own", b"x_api_key: own", b"Api-Key: own"):
        talk, got = ask(bed, request(
            b"/v1/x", field + b"\r\nContent-Length: 2\r\n", b"POST", b"hi"))
        want_ok(talk, f"{field}")
        want_out(b"own", got, f"{field}")
        want_in(K, got, f"{field}")
    bed.control(b"GET /?k=%s HTTP/1.1\r\nHost: read.test\r\n\r\n" % PH)


def K09_frames_behind_an_upgrade(bed):
    vault(bed)

    def answer(peer, head):
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                  b"Upgrade: websocket\r\nX-Echo: " + K + b"\r\n\r\nfirst " + K + b"\n")
        for c in b"later " + K + b"\n":
            peer.send(bytes([c]))
        return False
    bed.origins.routes["/v1/ws"] = answer
    talk, got = ask(bed, request(
        b"/v1/ws", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n"), n=None)
    want_out(b"extensions", got, "request")
    want_in(K, got, "request")
    want_out(K, talk.raw, "frames")
    stars = b"*" * len(K)
    want_in(b"first " + stars + b"\nlater " + stars + b"\n", talk.raw, "frames")


def K10_after_a_crash_the_same_vault(bed):
    vault(bed)
    before, egress = bed.egress, start(bed, "crash", keep=False,
                                       EGRESS_VAULT_FILE=bed.path("vault.json"))
    try:
        first = egress.worker
        os.kill(first, 9)
        until(lambda: answers(bed), "a worker again")
        want(egress.worker != first, True, "another worker")
        talk, got = ask(bed, request(b"/v1/x"))
        want_ok(talk, "after the crash")
        want_in(b"Authorization: Bearer " + K, got, "after the crash")
        until(lambda: [x for x in egress.lines() if x["binding"]], "a line")
        line = [x for x in egress.lines() if x["binding"]][-1]
        want((line["binding"], line["revision"], line["proof"]),
             ("bearer", 1, "address,sni,certificate,authority,binding"), "line")
    finally:
        egress.process.terminate()
        egress.process.wait(20)
        bed.egress = before


def answers(bed):
    try:
        return bool(bed.via(HOST, request(b"/v1/x")).finals)
    except (OSError, Failed):
        return False


def K11_nothing_of_it_is_written_down(bed):
    egress = vault(bed)
    _, got = ask(bed, request(b"/v1/x"))
    want_in(K, got, "control: the key is in use")
    until(lambda: [x for x in egress.lines() if x["binding"] == "bearer"], "a line about it")
    for path in (egress.log, egress.audit):
        with open(path, "rb") as f:
            text = f.read()
        want_in(b"egress", text, f"{path}: control")
        for form in (K, base64.b64encode(K).rstrip(b"="), K.hex().encode()):
            want_out(form, text, path)


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"K\d+_"))
