#!/usr/bin/env python3
"""Peers' failures with keys on the way out: cases of the area `vault`. Area `redaction`:
cases_redaction.py.

case  covered here                                        elsewhere, or left out with the reason
C115  every place, once and twice, Basic in both orders,  -
      special characters, places not covered
C118  TRACE and TRACK on any host, OPTIONS, HEAD,         HTTP/2
      PROPFIND; echo by a binding that names OPTIONS
C120  refused when written; in clear, CONNECT to port     redirected: keys_wire V157
      80, after a redirect
C122  every cut of chunks, one TLS record a byte, cut     HTTP/2 frames; held for 5 ms at most:
      end, overlap, ends of buffers                       content is collected up to 1 MiB
C124  longer, equal, shorter; 0, 1, 3 times; length,      HTTP/2
      chunked, Expect; digests; half a body
C126  every pair when written; exact before wildcard; a   at run time no file can be ambiguous: unit
      denied name                                         test of vault/vault; PATCH: API
C128  values and names, at the limit and one past it      a refused file changes nothing:
                                                          vault_file.sh; the API's 400: API
C130  one placeholder, two hosts, 1,000 in turns; one     HTTP/2
      placeholder inside another
C132  environment, arguments, memory, descriptors,        cores, files, pieces of keys: leak.py and
      ptrace: for others, and the worker's own user       leakscan.py at the end of every egress
"""
import base64
import ctypes
import json
import os
import subprocess
import sys

import casebed
import keysbed
from casebed import ok, until, want, want_403, want_in, want_ok, want_out
from keysbed import (HOST, K, K_NEW, PH, STARS, Client, answers, ask, bearer, bind, chunked,
                     content_plain, document, passthrough, post, refused, request, sent, sub,
                     vault_check)
from limitbed import start

LIBC = ctypes.CDLL(None)
H = HOST.encode()
SPECIAL = b'sk+/=&"<\\>%-0007'
PH_EQUAL = b"ph-equal-".ljust(len(K), b"0")
PH_LONG = b"ph-longer-".ljust(len(K) + 15, b"0")
ANYWHERE = ("header", "path", "query", "body")
READS = {"methods": ["GET", "OPTIONS"]}
RULE_ON = document(
    {"k": K, "special": SPECIAL},
    bind("any", bearer(), ["/any/*"]), bind("named", bearer(), ["/named/*"], **READS),
    bind("s1", passthrough(sub(*ANYWHERE), sub("body", placeholder=PH_EQUAL),
                           sub("body", placeholder=PH_LONG)), ["/v1/*"]),
    bind("special", passthrough(sub(*ANYWHERE, credential="special")), ["/special/*"]),
    bind("field", passthrough(sub("header")), ["/field/*"]))


def rule_on(bed):
    return keysbed.vaulted(bed, "rule-on", RULE_ON, EGRESS_BODY_SURFACE="on")


# --- C115 ---

def basic(text):
    return b"Authorization: Basic " + base64.b64encode(text) + b"\r\n"


def C115_the_placeholder_wherever_a_client_may_put_it(bed):
    rule_on(bed)
    for name, line in {
            "bearer": b"Authorization: Bearer @\r\n", "x-api-key": b"x-api-key: @\r\n",
            "both": b"Authorization: Bearer @\r\nx-api-key: @\r\n",
            "twice": b"x-api-key: @\r\nX-Other: 1\r\nx-api-key: @\r\n",
            "twice in one": b"X-Key: @, @\r\n", "cookie": b"Cookie: s=@; t=1\r\n",
            "quotes": b"X-Key: \"@\"\r\n", "inside": b"X-Key: a@b\r\n"}.items():
        talk, got = ask(bed, request(b"/v1/x", line.replace(b"@", PH)))
        want_ok(talk, name)
        want_in(b"\r\n" + line.replace(b"@", K), got, name)
        want([got.count(K), got.count(PH)], [line.count(b"@"), 0], f"{name}: once in each place")
        bed.rows_run += 1
    for text in (b"user:@", b"@:", b"a@:b@"):
        talk, got = ask(bed, request(b"/v1/x", basic(text.replace(b"@", PH))))
        want_in(basic(text.replace(b"@", K)), got, f"Basic {text}")
        bed.rows_run += 1
    for target in (b"/v1/x?key=@&b=1", b"/v1/@/x", b"/v1/@?@=@"):
        talk, got = ask(bed, request(target.replace(b"@", PH)))
        want_ok(talk, f"{target}")
        want_in(b"GET " + target.replace(b"@", K) + b" HTTP/1.1\r\n", got, f"{target}")
        bed.rows_run += 1
    form = b"application/x-www-form-urlencoded"
    for kind, content, should in ((keysbed.JSON, b'{"k":"' + PH + b'", "b": 1}',
                                   b'{"k":"' + K + b'", "b": 1}'),
                                  (form, b"a=%2D&k=ph%2Dmodel%2D0001&b=+",
                                   b"a=%2D&k=" + K + b"&b=+"),
                                  (form, b"k=" + PH, b"k=" + K), (b"text/plain", PH, K)):
        talk, got = ask(bed, post(b"/v1/x", content, kind))
        want_ok(talk, f"{content}")
        want(content_plain(got), should, f"{content}")
        bed.rows_run += 1


def C115_special_characters_are_escaped_for_their_place(bed):
    rule_on(bed)
    percent = b"".join(bytes([c]) if chr(c).isalnum() or c in b"-._~" else b"%%%02X" % c
                       for c in SPECIAL)
    talk, got = ask(bed, request(b"/special/x?k=" + PH, b"X-Key: " + PH + b"\r\n" +
                                 basic(PH + b":")))
    want_ok(talk, "query and fields")
    want_in(b"/special/x?k=" + percent + b" HTTP/1.1\r\n", got, "query")
    want_in(b"X-Key: " + SPECIAL + b"\r\n", got, "field")
    want_in(basic(SPECIAL + b":"), got, "Basic")
    for kind, content, should in ((keysbed.JSON, b'{"k":"' + PH + b'"}',
                                   json.dumps({"k": SPECIAL.decode()}).replace(": ", ":").encode()),
                                  (b"application/x-www-form-urlencoded", b"k=" + PH,
                                   b"k=" + percent), (b"", PH, SPECIAL)):
        talk, got = ask(bed, post(b"/special/x", content, kind))
        want(content_plain(got), should, f"{kind}")
        bed.rows_run += 1
    talk, _ = ask(bed, request(b"/special/" + PH))
    refused(talk, "path_ambiguous", "a slash into a path")


def C115_places_not_covered_keep_the_placeholder(bed):
    rule_on(bed)
    content = b'{"k":"' + PH + b'"}'
    talk, got = ask(bed, post(b"/field/" + PH + b"?k=" + PH, content,
                              fields=b"X-Key: " + PH + b"\r\n"))
    want_ok(talk, "answer")
    want_in(b"POST /field/" + PH + b"?k=" + PH + b" HTTP/1.1\r\n", got, "target")
    want_in(b"X-Key: " + K + b"\r\n", got, "control: the field")
    want(content_plain(got), content, "content")


# --- C118 ---

def C118_methods_that_reflect(bed):
    rule_on(bed)

    def reflect(peer, head):
        lines = head.split(b"\r\n")[1:-2]
        peer.send(ok(b"\n".join(lines), b"Access-Control-Allow-Headers: " + b",".join(
            x.replace(b":", b"=") for x in lines) + b"\r\n"))
        return True
    for path in ("/any/x", "/named/x", "/x"):
        bed.origins.routes[path] = reflect
    held = b"X-Key: " + PH + b"\r\n"
    mark = bed.origins.mark()
    for host in (HOST, "read.test"):
        for line in (b"TRACE /any/x", b"TRACK /any/x", b"TRACE /x", b"trace /any/x"):
            for fields in (b"", b"Max-Forwards: 0\r\n", held):
                talk = bed.via(host, b"%s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (
                    line, host.encode(), fields))
                want_403(talk, f"{host} {line} {fields}")
                bed.rows_run += 1
    for method in (b"OPTIONS", b"HEAD", b"PROPFIND"):
        talk, _ = ask(bed, request(b"/any/x", held, method), head=method == b"HEAD")
        want_403(talk, f"{method} with the placeholder")
    talk, _ = ask(bed, request(b"/any/x", b"", b"PROPFIND"))
    refused(talk, "write_without_binding", "PROPFIND")
    want(sent(bed, mark), b"", "nothing arrived")
    for method in (b"OPTIONS", b"HEAD"):
        talk, got = ask(bed, request(b"/any/x", b"", method), head=method == b"HEAD")
        want_ok(talk, f"{method}")
        want_out(K, got, f"{method}: without the key")
    rows = [(m, b"/any/x") for m in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE")]
    for method, target in rows + [(b"OPTIONS", b"/named/x")]:
        talk, got = ask(bed, request(target, b"Content-Length: 0\r\n", method))
        want_in(b"Bearer " + K, got, f"control: {method} {target}")
        want_in(b"Bearer " + STARS, talk.raw, f"{method} {target}: reflected")
        want_out(K, talk.raw, f"{method} {target}: reflected")
        bed.rows_run += 1


# --- C120 ---

def C120_no_key_in_clear(bed):
    for schemes in (["http"], ["http", "https"]):
        doc = document({"k": K}, bind("clear", bearer(), ["/v1/*"], schemes=schemes))
        code, text = vault_check(bed, doc)
        want(code, 2, f"{schemes}")
        want_in('"clear"', text, f"{schemes}: names the binding")
        code, text = vault_check(bed, doc, EGRESS_HTTP_BINDINGS="on")
        want(code, 0, f"control: {schemes} with the setting: {text[-200:]}")
    rule_on(bed)
    mark = bed.origins.mark()
    held = b"Authorization: Bearer " + PH + b"\r\n"
    clear = b"GET http://%s/v1/x HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (H, H, held)
    refused(bed.px(clear), "placeholder_for_other_host", "explicit")
    refused(bed.tunnel80(HOST, request(b"/v1/x", held)), "placeholder_for_other_host", "CONNECT")
    refused(bed.tunnel80(HOST, request(b"/v1/" + PH)), "placeholder_for_other_host", "in a path")
    want(sent(bed, mark), b"", "nothing arrived")
    answers(bed, "/v1/down", ok(status=b"302 Found",
                                fields=b"Location: http://" + H + b"/v1/x\r\n"))
    talk, got = ask(bed, request(b"/v1/down", held))
    want_in(K, got, "control: https has it")
    want(talk.finals[0].field("location"), f"http://{HOST}/v1/x", "the redirect")
    refused(bed.px(clear), "placeholder_for_other_host", "who follows it")
    mark = bed.origins.mark()
    want_ok(bed.px(clear.replace(held, b"").replace(b"/v1/x", b"/any/x")), "a bound path in clear")
    want_in(b"GET /any/x ", sent(bed, mark), "it arrives")
    want_out(K, sent(bed, mark), "without the key")


# --- C122 ---

def C122_a_placeholder_in_pieces(bed):
    rule_on(bed)
    kind = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    head = request(b"/v1/x", kind, b"POST")

    def check(what, data, should, gap=0):
        mark = bed.origins.mark()
        with Client(bed) as client:
            client.send(*data)
            want(client.answer().status, 200, what)
        got = sent(bed, mark)
        want(content_plain(got) == should, True, f"{what}: {content_plain(got)[-80:]}")
        want(got.count(K), should.count(K), f"{what}: once")
        bed.rows_run += 1

    text = b'{"k":"' + PH + b'"}'
    at = text.index(PH)
    for cut in range(at, at + len(PH) + 1):
        two = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (cut, text[:cut], len(text) - cut, text[cut:])
        check(f"cut at {cut}", [head, two], text.replace(PH, K))
    check("three chunks", [head, b'7\r\n{"k":"p\r\n8\r\nh-model-\r\n6\r\n0001"}\r\n0\r\n\r\n'],
          text.replace(PH, K))
    check("chunks of one byte", [head, chunked(text, 1)], text.replace(PH, K))
    whole = head + chunked(text, 5)
    check("a TLS record a byte", [whole[i:i + 1] for i in range(len(whole))], text.replace(PH, K))
    for name, part, should in (("cut end", b'{"k":"ph-mod', b'{"k":"ph-mod'),
                               ("overlap", b'"ph-' + PH + b'"', b'"ph-' + K + b'"'),
                               ("twice", PH + PH, K + K), ("almost", PH[:-1] + PH, PH[:-1] + K)):
        check(name, [head, chunked(part, 3)], should)
    for offset in (16383, 16384, 16385, 16384 - len(PH), 65535):
        long = b"x" * offset + PH + b"y"
        check(f"offset {offset}", [post(b"/v1/x", long, b"text/plain")], long.replace(PH, K))


# --- C124 ---

def C124_length_and_framing(bed):
    rule_on(bed)
    digest = b"Content-MD5: Q2hlY2sgSW50ZWdyaXR5IQ==\r\nDigest: sha-256=abc=\r\n"
    for name, held in (("longer", PH), ("equal", PH_EQUAL), ("shorter", PH_LONG)):
        want(len(K) - len(held) > 0, name == "longer", f"control: {name}")
        for n in (0, 1, 3):
            content = b'{"k":"' + b" ".join([held] * n).ljust(100) + b'"}'
            should = content.replace(held, K)
            typed = b"Content-Type: application/json\r\n" + digest
            for framing, fields, body in (
                    ("length", b"Content-Length: %d\r\n" % len(content), content),
                    ("chunked", b"Transfer-Encoding: chunked\r\n", chunked(content, 9)),
                    ("expect", b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(content),
                     content)):
                what = f"{name}, {n} times, {framing}"
                talk, got = ask(bed, request(b"/v1/x", typed + fields, b"POST", body))
                want_ok(talk, what)
                want(content_plain(got), should, what)
                want(got.lower().count(b"content-length: ") +
                     got.lower().count(b"transfer-encoding: "), 1, f"{what}: one framing")
                want_in(digest, got, f"{what}: digests are the client's")
                bed.rows_run += 1


def C124_half_a_body_is_never_a_whole_one(bed):
    rule_on(bed)
    content = b'{"k":"' + PH + b'"}'
    for target, arrives in ((b"/v1/x", False), (b"/any/x", True)):
        for framing, whole in (("length", post(target, content)), ("chunked", request(
                target, b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
                b"POST", chunked(content, 4)))):
            ended = []

            def route(peer, head):
                try:
                    ended.append(peer.body(head))
                except OSError as e:
                    ended.append(str(e))
                    raise
                peer.send(ok())
                return True
            bed.origins.routes[target.decode()] = route
            count = len(bed.egress.lines())
            with Client(bed) as client:
                client.send(whole[:-12])
                if arrives:
                    until(lambda: bed.origins.log and b"POST" in sent(bed, 0), "the head")
                client.end_in_order()
            # What was collected and given up let nothing out: it has no line.
            if arrives:
                until(lambda: [x for x in bed.egress.lines()[count:] if x["method"] == "POST"],
                      "line")
                until(lambda: ended, "the origin's connection ends")
            halves = ["content ends early"] if arrives else []
            want(ended, halves, f"{target} {framing}")
            talk, _ = ask(bed, whole)
            want_ok(talk, f"control: {target} {framing}")
            want(ended, halves + [content if arrives else content.replace(PH, K)],
                 "control: whole, and nothing but")
            bed.rows_run += 1


# --- C126 ---

def one(name, **match):
    return bind(name, bearer(credential=name[0]), **match)


def C126_overlapping_bindings_are_refused_with_both_names(bed):
    wild = ("*.wild.test",)
    api = {"type": "apiKey", "credential": "k"}
    pairs = {
        "same path": (one("k1"), one("n2")),
        "nested paths": (one("k1", paths=["/v1/*"]), one("n2", paths=["/v1/files/*"])),
        "prefix and path": (one("k1", paths=["/v1/*"]), one("n2", paths=["/v1/x"])),
        "same wildcard": (one("k1", hosts=wild), one("n2", hosts=wild)),
        "nested wildcards": (one("k1", hosts=wild), one("n2", hosts=["*.a.wild.test"])),
        "one method in common": (one("k1", methods=["GET", "PUT"]), one("n2", methods=["PUT"])),
        "two fields, one path": (bind("k1", {**api, "name": "X-A"}),
                                 bind("n2", {**api, "name": "X-B"}))}
    keys = {"k": K, "n": K_NEW}
    for what, pair in pairs.items():
        code, text = vault_check(bed, document(keys, *pair))
        want(code, 2, what)
        want_in('"k1"', text, what)
        want_in('"n2"', text, what)
        bed.rows_run += 1
    for what, pair in {
            "methods": (one("k1", methods=["GET"]), one("n2", methods=["POST"])),
            "paths": (one("k1", paths=["/v1/*"]), one("n2", paths=["/v2/*", "/v1"])),
            "hosts": (one("k1"), one("n2", hosts=["two.test"])),
            "exact first": (one("k1", hosts=["a.wild.test"]), one("n2", hosts=wild))}.items():
        code, text = vault_check(bed, document(keys, *pair))
        want(code, 0, f"control: {what}: {text[-200:]}")
        bed.rows_run += 1


def C126_exact_before_wildcard_and_never_a_denied_name(bed):
    doc = document({"k": K, "n": K_NEW}, one("n", hosts=["*.wild.test"]),
                   one("k", hosts=["a.wild.test"]))
    keysbed.vaulted(bed, "wild", doc, EGRESS_READ_ONLY="off",
                    policy=[("deny", "bad.wild.test", None)] + casebed.POLICY)
    for host, key in (("a.wild.test", K), ("b.wild.test", K_NEW), ("bad.wild.test", None),
                      ("read.test", None)):
        mark = bed.origins.mark()
        talk = bed.via(host, b"GET /x HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
        got = sent(bed, mark)
        want([K in got, K_NEW in got], [key == K, key == K_NEW], f"{host} ({talk})")
        want(bool(got), host != "bad.wild.test", f"{host}: arrives")
        bed.rows_run += 1


# --- C128 ---

def C128_values_that_no_field_carries(bed):
    start_of = "sk-plant-0042"

    def check(what, value, code, auth=None):
        doc = {"credentials": [{"name": "planted", "source": {"value": value}}],
               "bindings": [bind("b", auth or bearer(credential="planted"))]}
        got, text = vault_check(bed, doc)
        want(got, code, f"{what}: {text[-300:]}")
        want_out(start_of[:8], text, f"{what}: the value is not shown")
        bed.rows_run += 1
        return text
    check("control", start_of, 0)
    for what, value in {"new line": start_of + "\n", "field": start_of + "\r\nX-Evil: 1",
                        "NUL": start_of + "\0x", "blanks": f" {start_of} ", "empty": "",
                        "not ASCII": start_of + "\u00e9", "DEL": start_of + "\x7f",
                        "tab": start_of + "\t"}.items():
        text = check(what, value, 2)
        # JSON with a NUL is read by nobody: there is no credential yet, but a place
        want_in("line 1, column" if what == "NUL" else '"planted"', text, f"{what}: tells where")
    check("64 KiB", start_of.ljust(65536, "x"), 0)
    check("64 KiB + 1", start_of.ljust(65537, "x"), 2)
    for name in ("X-A\r\nB", "Host", "Content-Length", "Transfer-Encoding", "connection", "X A", "",
                 "X:", "Expect", "Sec-WebSocket-Key"):
        check(f"name {name!r}", start_of, 2,
              {"type": "apiKey", "credential": "planted", "name": name})
    check("control: name", start_of, 0, {"type": "apiKey", "credential": "planted", "name": "X-A"})


# --- C130 ---

def C130_one_placeholder_two_hosts(bed):
    inner = (sub("header"), sub("header", placeholder=PH + b"1", credential="n"))
    doc = document({"k": K, "n": K_NEW}, bind("one", passthrough(*inner)),
                   bind("two", passthrough(sub("header", credential="n")), hosts=["two.test"]))
    keysbed.vaulted(bed, "two", doc, EGRESS_READ_ONLY="off")
    mark = bed.origins.mark()
    with Client(bed) as first, Client(bed, "two.test") as second:
        for i in range(1000):
            client, host = ((first, H), (second, b"two.test"))[i % 2]
            client.send(b"GET /%d HTTP/1.1\r\nHost: %s\r\nX-Key: %s\r\n\r\n" % (i, host, PH))
            want(client.answer().status, 200, f"{i}")
            client.forget()
    bed.rows_run += 1000
    for peer, got in bed.origins.since(mark):
        mine, other = (K, K_NEW) if peer.addr in casebed.NAMES[HOST] else (K_NEW, K)
        want([got.count(mine), got.count(other), PH in got], [got.count(b"X-Key: "), 0, False],
             f"at {peer.addr}")
    want(sum(got.count(b"X-Key: ") for _, got in bed.origins.since(mark)), 1000, "all arrived")
    talk, got = ask(bed, request(b"/x", b"X-A: " + PH + b"\r\nX-B: " + PH + b"1\r\nX-C: " + PH +
                                 b"11" + PH + b"\r\n"))
    want_ok(talk, "one inside the other")
    want_in(b"X-A: " + K + b"\r\nX-B: " + K_NEW + b"\r\nX-C: " + K_NEW + b"1" + K + b"\r\n", got,
            "the longest first")
    for held, code in ((b"", 2), (b"ph-0001", 2), (b"ph-00001", 0), (K, 2), (K_NEW, 2)):
        auth = passthrough(sub("header", placeholder=held))
        doc = document({"k": K, "n": K_NEW}, bind("b", auth))
        got, text = vault_check(bed, doc)
        want(got, code, f"{held[:8]}: {text[-200:]}")
        want_out(K.decode(), text, "the value is not shown")
        bed.rows_run += 1


# --- C132 ---

PTRACE_ATTACH = 16


def opened(pids):
    """What of these this process can open."""
    for pid in pids:
        for name in ("environ", "maps", "mem", "auxv", "fd"):
            try:
                os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
                if name == "fd":
                    os.listdir(f"/proc/{pid}/fd")
                yield f"{pid} {name}"
            except OSError:
                pass
        if LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0) == 0:
            yield f"{pid} ptrace"


def spied(uid, *pids):
    """What a process of this user can open of these."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(into, "\n".join(["began", *opened(pids)]).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as f:
        seen = f.read().split("\n")
    os.waitpid(child, 0)
    want(seen[0], "began", f"a process of user {uid}")
    return seen[1:]


def sleeper_is_open(bed):
    """The control: what a process keeps open that does nothing about it."""
    own = subprocess.Popen(["sleep", "60"], user=casebed.WORKER_UID, group=casebed.WORKER_UID,
                           extra_groups=[])
    bed.processes.append(own)
    until(lambda: os.readlink(f"/proc/{own.pid}/exe").endswith("sleep"), "sleep")
    seen = spied(casebed.WORKER_UID, own.pid)
    own.kill()
    own.wait()
    want(f"{own.pid} mem" in seen and f"{own.pid} environ" in seen, True, f"control: {seen}")


def C132_no_other_user_reads_anything(bed):
    e = rule_on(bed)
    pids = (e.process.pid, e.worker)
    sleeper_is_open(bed)
    want(spied(10050, *pids), [], "another user")
    for pid in pids:
        for name in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{name}", "rb") as f:
                text = f.read()
            want(len(text) > 0, True, f"control: {name}")
            want_out(K, text, f"{name} of {pid}")


def C132_the_workers_own_user_reads_nothing(bed):
    """Sanitizers need their process to be dumpable: then it is the build that ./test makes last."""
    program = casebed.EGRESS
    with open(program, "rb") as f:
        if b"__asan_init" in f.read():
            program = os.path.join(casebed.SRC, "build", "release", "control", "egress")
    if not os.path.exists(program):
        raise casebed.Skip("no build without sanitizers")
    path = keysbed.document_write(bed, "plain", RULE_ON)
    e = start(bed, "plain", program=program, EGRESS_VAULT_FILE=path, EGRESS_BODY_SURFACE="on")
    talk, got = ask(bed, request(b"/any/x"))
    want_in(K, got, f"control: the key is in use ({talk})")
    sleeper_is_open(bed)
    want(spied(casebed.WORKER_UID, e.process.pid, e.worker), [], "the worker's own user")


if __name__ == "__main__":
    sys.exit(casebed.main(globals()))
