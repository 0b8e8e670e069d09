#!/usr/bin/env python3
"""What a key may be, where it stays in clear, and what else a sandbox may send to its host: chat
histories that hold a placeholder, values that are more than one field, bindings of scheme http, keys
of the sandbox's own. Who gets a key: keys_identity.py. `main` has no vault: what it lets through is
the control."""
import json
import os
import sys

import casebed
import keysbed
from casebed import Failed, Talk, ok, until, want, want_in, want_ok, want_out
from keysbed import (HOST, K, PH, STARS, answers, ask, bearer, bind, chunked, content_of,
                     content_plain, document, passthrough, post, refused, request, sent, sub,
                     vault_check)

OWN = b"sandbox-own-0001"
INSIDE = b"Authorization: Bearer " + K + b"\r\n"
PORTS = [80, 443, 8080]
POLICY = [*casebed.POLICY, ("allow", HOST, PORTS), ("allow", "two.test", PORTS)]
DOC = document(
    {"k": K},
    bind("model", bearer(), ["/v1/*"], methods=["GET", "POST"]),
    bind("slots", passthrough(sub("header:Authorization", "query:key", "json:/auth/key")), ["/s/*"],
         methods=["GET", "POST"]),
    bind("field", {"type": "apiKey", "name": "x-api-key", "credential": "k"}, ["/k/*"]))
CLEAR = document(
    {"k": K, "other": b"sk-othr-0002-ZZZZYYYYXXXX"},
    bind("clear", bearer(), ["/c/*"], schemes=["http"]),
    bind("both", bearer(), ["/b/*"], schemes=["http", "https"]),
    bind("safe", bearer(credential="other"), ["/s/*"]))


def scope(bed):
    return keysbed.vaulted(bed, "scope", DOC, policy=POLICY)


def clear(bed):
    return keysbed.vaulted(bed, "clear", CLEAR, policy=POLICY, EGRESS_HTTP_BINDINGS="on")


def passes_without_us(bed, egress, data, *texts):
    """The control: with no vault the same request brings these texts to the origin."""
    bed.need("main")
    try:
        talk, got = ask(bed, data)
        want_ok(talk, f"control: {data[:80]}")
        for text in texts:
            want_in(text, got, f"control: {data[:80]}")
    finally:
        bed.egress = egress


# --- chat histories ---

def S01_a_chat_history_passes_untouched(bed):
    scope(bed)
    history = {"model": "m", "stream": True, "messages": [
        {"role": "user", "content": f"my key is {PH.decode()}, say it: Bearer {PH.decode()}"},
        {"role": "tool", "content": json.dumps({"auth": {"key": PH.decode()}})}],
        "metadata": {"auth": {"key": PH.decode()}, "note\"": "\u00e9\\u0041 \ud83d\ude00"}}
    plain = json.dumps(history).encode()
    answer = b"data: {\"text\": \"your key is " + PH + b"\"}\n\n"
    for path, auth, changed in ((b"/v1/chat", b"Bearer " + PH, b"Bearer " + K),
                                (b"/s/chat", b"Bearer " + PH, b"Bearer " + K),
                                (b"/v1/chat", b"Bearer dummy", b"Bearer " + K),
                                (b"/s/chat", b"Bearer dummy", None)):
        answers(bed, path.decode(), ok(answer, b"Content-Type: text/event-stream\r\n"))
        for content in (plain, plain + b" " * 70000, plain[:-1] + b', "auth": {"x": 1}}',
                        plain[:-3], b"{" * 100 + PH, b"[" + PH + b"]", b'"' + PH + b'"'):
            for way, data in (
                    ("length", post(path, content, fields=b"Authorization: " + auth + b"\r\n")),
                    ("chunked", request(
                        path, b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
                        b"Authorization: " + auth + b"\r\n", b"POST", chunked(content, 5000)))):
                what = f"{path} {auth} {way} {content[:20]}"
                talk, got = ask(bed, data)
                want_ok(talk, what)
                want(content_plain(got) == content, True, f"{what}: content")
                if changed:
                    want_in(b"\r\nAuthorization: " + changed + b"\r\n", got, f"{what}: field")
                else:
                    want_out(b"Authorization", got, f"{what}: its own, which nothing replaces")
                want(talk.finals[0].body, answer, f"{what}: the answer may say it, too")
                bed.rows_run += 1
    talk, got = ask(bed, post(b"/s/chat", b'{"auth": {"key": "' + PH + b'"}, "m": "' + PH + b'"}'))
    want(content_of(got), b'{"auth": {"key": "' + K + b'"}, "m": "' + PH + b'"}',
         "control: its own place is not untouched")


def S02_elsewhere_a_history_passes_and_a_field_does_not(bed):
    scope(bed)
    content = b"m=" + PH
    data = b"POST http://10.77.0.2/chat HTTP/1.1\r\nHost: 10.77.0.2\r\nContent-Length: %d\r\n%s\r\n%s"
    mark = bed.origins.mark()
    talk = bed.px(data % (len(content), b"", content))
    want_ok(talk, "content to a host that nothing binds")
    want(content_of(sent(bed, mark)), content, "as it was")
    mark = bed.origins.mark()
    refused(bed.px(data % (len(content), b"X-Key: " + PH + b"\r\n", content)),
            "placeholder_for_other_host", "a field")
    want(sent(bed, mark), b"", "nothing arrived")


# --- values that are more than one field ---

EVIL = "\r\nX-Evil: 1"
AUTHS = {
    "bearer": bearer(), "basic": {"type": "basic", "credential": "k"},
    "apiKey": {"type": "apiKey", "name": "X-Api-Key", "credential": "k"},
    "customHeaders": {"type": "customHeaders", "headers": [
        {"name": "X-One", "credential": "fine"}, {"name": "X-Two", "credential": "k"}]},
    "surface header": passthrough(sub("query", "header")),
    "slot": passthrough(sub("header:X-Key")),
    "beside a body": passthrough(sub("json:/a", "header:X-Key"))}


def smuggling(value, auth):
    doc = document({"fine": b"fine-value-0001"}, bind("b", auth, ["/v1/*"]))
    doc["credentials"].append({"name": "k", "source": {"value": value}})
    return doc


def want_value_refused(bed, what, doc, *texts):
    code, text = vault_check(bed, doc)
    want(code, 2, f"{what}: {text[-300:]}")
    for part in texts:
        want_in(part, text, what)
    for part in (K.decode()[:10], K.decode()[-8:], "X-Evil", "Evil"):
        want_out(part, text, f"{what}: the value is not shown")


def S03_values_that_smuggle_fields_are_refused(bed):
    key = K.decode()
    bad = [("bearer", key + v) for v in ("\r", "\n", EVIL, "\r\n X-Evil: folded", "\n\tX-Evil", "\x0b",
                                         "\x85X-Evil: 1", "\u2028X-Evil: 1", "\u560d\u560a")]
    bad += [("bearer", EVIL[2:] + EVIL + key)]
    bad += [(auth, key + v) for auth in AUTHS if auth != "bearer" for v in (EVIL, "\n X-Evil: folded")]
    rows = [(f"{auth} {value[len(key):]!r}", lambda a=auth, v=value: want_value_refused(
        bed_of(bed, a, v), f"{a} {v!r}", smuggling(v, AUTHS[a]), 'credential "k"', "header"))
            for auth, value in bad]
    for what, text in {"escaped": "\\r\\nX-Evil: 1", "escaped NUL": "\\u0000X-Evil: 1",
                       "raw": "\r\nX-Evil: 1", "raw NUL": "\0X-Evil: 1"}.items():
        doc = json.dumps(smuggling(key, bearer())).replace(key, key + text)
        rows.append((what, lambda w=what, d=doc: want_value_refused(bed_of(bed, w), w, d)))
    for what, text in {"quoted": f'"{key}\\r\\nX-Evil: 1"', "block": f"|\n        {key}\n        X-Evil: 1",
                       "kept": f"|+\n        {key}\n", "NEL": f'"{key}\\NX-Evil: 1"'}.items():
        doc = ("credentials:\n  - name: k\n    source:\n      value: " + text + "\nbindings:\n"
               f"  - {{name: b, match: {{hosts: [{HOST}]}}, auth: {{type: bearer, credential: k}}}}\n")
        rows.append((f"YAML {what}", lambda w=what, d=doc: want_value_refused(
            bed_of(bed, w), w, d, 'credential "k"')))
    bed.rows(rows)
    for auth in AUTHS.values():
        code, text = vault_check(bed, smuggling(key + "%0d%0aX-Evil:%201\\r\\n", auth))
        want(code, 0, f"control: letters are no control bytes: {text[-300:]}")


def bed_of(bed, *texts):
    """vault_check writes one file: rows that run at once need a folder each."""
    class Own:
        top = bed.path(f"check-{abs(hash(texts))}")
        path = staticmethod(lambda name, t=top: os.path.join(t, name))
    os.makedirs(Own.top, exist_ok=True)
    return Own


def S04_a_file_with_more_than_a_key(bed):
    path = bed.path("source-key")
    doc = json.dumps(smuggling("", bearer())).replace('"value": ""',
                                                     f'"type": "file", "path": "{path}"')
    for what, text, code in (("a line", K + b"\n", 0), ("no end", K, 0), ("CRLF", K + b"\r\n", 0),
                             ("two lines", K + b"\nX-Evil: 1\n", 2), ("NUL", K + b"\0X-Evil\n", 2),
                             ("field", K + b"\r\nX-Evil: 1", 2), ("folded", K + b"\n X-Evil\n", 2)):
        with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as f:
            f.write(text)
        if code == 2:
            want_value_refused(bed, what, doc)
        else:
            got, said = vault_check(bed, doc)
            want(got, 0, f"{what}: {said[-300:]}")
            want_out(K.decode()[:10], said, what)
        bed.rows_run += 1


def S05_what_may_stand_in_a_value_stays_one_field(bed):
    tricky = K + b"%0d%0aX-Evil: 1\\r\\nX-Evil: 2"
    loose = K + b"\r\nX-Evil: 1\r\n\r\nGET /evil\r\n\r\n"
    doc = document(
        {"tricky": tricky, "loose": loose},
        bind("tricky", bearer(credential="tricky"), ["/v1/*"]),
        bind("loose", passthrough(sub("query:key", "path", "form:key", "json:/key",
                                      credential="loose")), ["/loose/*"]))
    keysbed.vaulted(bed, "tricky", doc, policy=POLICY)
    talk, got = ask(bed, request(b"/v1/x"))
    want_ok(talk, "field")
    want_in(b"Authorization: Bearer " + tricky + b"\r\n", got, "letter by letter")
    encoded = b"%0D%0AX-Evil%3A%201%0D%0A%0D%0AGET%20%2Fevil%0D%0A%0D%0A"
    form = b"application/x-www-form-urlencoded"
    rows = {
        "query": (request(b"/loose/x?key=" + PH), b"?key=" + K + encoded + b" HTTP/1.1\r\n"),
        "form": (post(b"/loose/x", b"key=" + PH, form),
                 b"key=" + K + encoded.replace(b"%20", b"+")),
        "json": (post(b"/loose/x", b'{"key":"' + PH + b'"}'), b'{"key":"' + K + b"\\r\\nX-Evil"),
    }
    for what, (data, should) in rows.items():
        talk, got = ask(bed, data)
        want_ok(talk, what)
        want_in(should, got, what)
        want((b"\nX-Evil" in got, b"\nGET /evil" in got, got.count(b" HTTP/1.1\r\n")),
             (False, False, 1), f"{what}: one request")
        bed.rows_run += 1
    mark = bed.origins.mark()
    refused(bed.via(HOST, request(b"/loose/" + PH)), "path_ambiguous", "a path")
    want(sent(bed, mark), b"", "a path: nothing arrived")
    naive = request(b"/v1/x", b"Authorization: Bearer " + loose + b"\r\n")
    bed.control(naive, addr=casebed.NAMES[HOST][0])
    _, fields, rest = casebed.split_head(naive)
    want((b"x-evil" in dict(fields), rest[:10]), (True, b"GET /evil\r"),
         "control: put in as it is, it is a field and a request")


# --- bindings of scheme http ---

def in_clear(path, port=80, fields=b"", host=HOST):
    name = host.encode() + (b"" if port == 80 else b":%d" % port)
    return b"GET http://%s%s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (name, path, name, fields)


def S06_a_clear_binding_needs_the_setting(bed):
    for schemes in (["http"], ["http", "https"]):
        doc = document({"k": K}, bind("clear", bearer(), ["/c/*"], schemes=schemes))
        for settings, code in (({}, 2), ({"EGRESS_HTTP_BINDINGS": "off"}, 2),
                               ({"EGRESS_HTTP_BINDINGS": "on"}, 0)):
            got, text = vault_check(bed, doc, **settings)
            want(got, code, f"{schemes} {settings}: {text[-200:]}")
            if code:
                want_in('binding "clear": scheme "http" is refused', text, f"{schemes} {settings}")
            bed.rows_run += 1
        try:
            keysbed.vaulted(bed, f"refused-{len(schemes)}", doc, policy=POLICY)
        except Failed as e:
            want_in('scheme "http" is refused', str(e), "egress does not start")
        else:
            raise Failed(f"{schemes}: started")


def S07_a_clear_key_goes_to_its_host_and_port_only(bed):
    e = clear(bed)
    with_key = {
        "proxy": lambda p: bed.px(in_clear(p)),
        "tunnel": lambda p: bed.tunnel80(HOST, request(p)),
        "tunnel, whole": lambda p: bed.tunnel80(HOST, in_clear(p)),
        "both, https": lambda p: bed.via(HOST, request(p.replace(b"/c/", b"/b/")))}
    for what, send in with_key.items():
        mark = bed.origins.mark()
        want_ok(send(b"/c/x"), what)
        [(peer, got)] = bed.origins.since(mark)
        want((peer.addr in casebed.NAMES[HOST], peer.port, got.count(INSIDE)),
             (True, 443 if "https" in what else 80, 1), what)
        bed.rows_run += 1
    until(lambda: [x for x in e.lines() if x["binding"] == "clear"], "a line")
    line = [x for x in e.lines() if x["binding"] == "clear"][-1]
    want(line["proof"], "address,authority,binding", "what is proven in clear")
    without = {
        "https": lambda: bed.via(HOST, request(b"/c/x")),
        "https by the proxy": lambda: bed.px(in_clear(b"/c/x").replace(b"http:", b"https:", 1)),
        "8080": lambda: bed.px(in_clear(b"/c/x", 8080)),
        "443 in clear": lambda: bed.px(in_clear(b"/c/x", 443)),
        "another path": lambda: bed.px(in_clear(b"/x/c/x")),
        "another host": lambda: bed.px(in_clear(b"/c/x", host="two.test")),
        "an https binding": lambda: bed.px(in_clear(b"/s/x")),
        "its method": lambda: bed.px(in_clear(b"/c/x").replace(b"GET", b"OPTIONS", 1))}
    for what, send in without.items():
        mark = bed.origins.mark()
        want_ok(send(), what)
        everything = sent(bed, mark)
        want_in(b"/x HTTP/1.1\r\n", everything, f"{what}: it arrives")
        want_out(b"Authorization", everything, f"{what}: without a key")
        bed.rows_run += 1
    for what, data, reason in (
            ("dots", in_clear(b"/c/../admin"), "path_ambiguous"),
            ("two hosts", in_clear(b"/c/x").replace(b"Host: api", b"Host: x"), "malformed")):
        mark = bed.origins.mark()
        refused(bed.px(data), reason, what, 400 if reason == "malformed" else 403)
        want(sent(bed, mark), b"", what)
        bed.rows_run += 1


def S08_answers_in_clear_are_searched(bed):
    clear(bed)
    body = b"<" + K + b"> " + K.hex().encode() + b" end"
    pieces = [b"HTTP/1.1 200 said " + K + b"\r\nTransfer-Encoding: chunked\r\nX-Echo: " + K + b"\r\n\r\n",
              chunked(body, 7)]
    stars = b"<" + STARS + b"> " + STARS * 2 + b" end"
    for path in ("/c/echo", "/x/echo"):  # towards a bound host also without a binding
        answers(bed, path, *pieces)
        for what, send in {"proxy": lambda p: bed.px(in_clear(p)),
                           "tunnel": lambda p: bed.tunnel80(HOST, request(p))}.items():
            talk = send(path.encode())
            want((talk.finals[0].body, talk.finals[0].field("x-echo")), (stars, STARS.decode()),
                 f"{path} {what}")
            want_out(K, talk.raw, f"{path} {what}")
            bed.rows_run += 1
    bed.need("main")
    answers(bed, "/c/echo", *(p.replace(K, OWN) for p in pieces))
    talk = bed.px(in_clear(b"/c/echo"))
    want([talk.raw.count(OWN), talk.finals[0].field("x-echo")], [2, OWN.decode()],
         "control: without a vault the client sees all of it")


# --- keys of the sandbox's own ---

FIELDS = ("Authorization", "Cookie", "X-Api-Key", "Api-Key", "ApiKey", "X-Auth-Token",
          "X-Access-Token", "X-Goog-Api-Key", "Private-Token", "X-Amz-Security-Token",
          "OpenAI-Organization", "OpenAI-Project", "Ocp-Apim-Subscription-Key", "Job-Token",
          "Deploy-Token", "Cf-Aig-Authorization")
PARAMETERS = ("key", "api_key", "apikey", "api-key", "access_token", "token", "auth",
              "client_secret", "private_token", "job_token", "subscription-key", "X-Amz-Signature",
              "X-Amz-Security-Token", "X-Goog-Signature", "sig")


def spelled(name):
    """In every way that some origin reads as this name."""
    return sorted({name, name.lower(), name.upper(), name.replace("-", "_"),
                   name.replace("-", "_").upper(), name.replace("-", "_", 1)})


def own(path, fields, method=b"POST"):
    return request(path, fields + b"Content-Length: 2\r\n", method, b"hi")


def S09_its_own_credential_fields_stay_here(bed):
    e = scope(bed)
    rows = [(n, path) for name in FIELDS for n in spelled(name)
            for path in (b"/v1/x", b"/k/x", b"/s/x")]
    for name, path in rows:
        field = b"%s: %s\r\n" % (name.encode(), OWN)
        what = f"{name} {path}"
        talk, got = ask(bed, own(path, field + b"X-Keep: 1\r\n" + field))
        want_ok(talk, what)
        want_out(OWN, got, what)
        want_in(b"\r\nX-Keep: 1\r\n", got, f"{what}: other fields pass")
        want((INSIDE in got, b"X-Api-Key: " + K in got), (path == b"/v1/x", path == b"/k/x"),
             f"{what}: the vault's")
        bed.rows_run += 1
    for name in FIELDS:
        data = own(b"/v1/x", b"%s: %s\r\n" % (name.encode(), OWN))
        passes_without_us(bed, e, data, OWN)
    talk, got = ask(bed, own(b"/v1/x", b"Proxy-Authorization: Basic " + OWN + b"\r\n"))
    want_out(OWN, got, "Proxy-Authorization is for a proxy")


def S10_nor_do_they_come_as_trailers(bed):
    def route(peer, head):
        while not peer.buf.endswith(b"\r\n\r\n") and peer.more():
            pass
        peer.buf = peer.buf[len(peer.buf):]
        peer.send(ok())
        return True  # closing would race with the next request on a kept connection
    e, bed.origins.routes["/v1/trailer"] = scope(bed), route
    for name in [n for f in FIELDS for n in spelled(f)]:
        data = request(b"/v1/trailer", b"Transfer-Encoding: chunked\r\n", b"POST",
                       b"2\r\nhi\r\n0\r\n%s: %s\r\nX-Keep: 1\r\n\r\n" % (name.encode(), OWN))
        talk, got = ask(bed, data)
        want_out(OWN, got, f"{name} ({talk})")
        bed.rows_run += 1
    want_in(b"0\r\nX-Keep: 1\r\n\r\n", got, "control: trailers pass")
    passes_without_us(bed, e, data, OWN)


def S11_its_own_credential_in_the_query(bed):
    e = scope(bed)
    mark, rows = bed.origins.mark(), []
    for name in PARAMETERS:
        odd = "%" + name.encode()[:1].hex() + name[1:]
        for n in (name, name.upper(), name.title(), odd, odd.upper()):
            rows += [f"?{n}=", f"?a=1&{n}=", f"?a=1&&{n}=", f"?{n}=&{n}=", f"?a=1;{n}="]
    for query in rows:
        for path in (b"/v1/x", b"/s/x"):
            talk = bed.via(HOST, own(path + query.encode() + OWN, b""))
            refused(talk, "write_without_binding", f"{path} {query}")
            bed.rows_run += 1
    want(sent(bed, mark), b"", "nothing arrived")
    for query in rows[::5]:
        passes_without_us(bed, e, own(b"/v1/x" + query.encode() + OWN, b""), OWN)
    talk, got = ask(bed, own(b"/s/x?key=" + PH, b""))
    want_in(b"/s/x?key=" + K + b" ", got, "control: the binding's own place")
    for query in (b"?monkey=1", b"?keys=1", b"?key", b"?key=", b"?x=key=1"):
        talk, got = ask(bed, own(b"/v1/x" + query, b""))
        want_ok(talk, f"{query}: no credential")


def S12_its_own_key_on_other_paths(bed):
    e = scope(bed)
    mark = bed.origins.mark()
    paths = (b"/", b"/v1", b"/V1/x", b"/v10/x", b"/v2/x", b"//v1/x", b"/v%31/x", b"/x/v1/x",
             b"/?/v1/x", b"/v1?x=/v1/x", b"/k", b"/S/x")
    for path in paths:
        for method in (b"POST", b"PUT", b"PATCH", b"DELETE", b"get", b"PROPFIND"):
            data = own(path, b"Authorization: Bearer " + OWN + b"\r\n", method)
            refused(bed.via(HOST, data), "write_without_binding", f"{method} {path}")
            bed.rows_run += 1
    for method in (b"PUT", b"DELETE", b"PATCH"):  # a path that is bound, for another method
        refused(bed.via(HOST, own(b"/v1/x", b"", method)), "write_without_binding", f"{method}")
    want(sent(bed, mark), b"", "nothing arrived")
    passes_without_us(bed, e, own(b"/v2/x", b"Authorization: Bearer " + OWN + b"\r\n"), OWN)
    keysbed.vaulted(bed, "unbound", DOC, policy=POLICY, EGRESS_UNBOUND_WRITES="allow")
    talk, got = ask(bed, own(b"/v2/x", b"Authorization: Bearer " + OWN + b"\r\n"))
    want_in(OWN, got, f"control: with the setting ({talk})")


def S13_a_body_without_a_slot_on_a_write_host(bed):
    whole = document({"k": K}, bind("b", passthrough(sub("body")), ["/v1/*"]))
    slot = document({"k": K}, bind("b", passthrough(sub("json:/key", "form:key")), ["/v1/*"]))
    elsewhere = document({"k": K}, bind("b", passthrough(sub("body")), ["/v1/*"], ("two.test",)))
    for what, doc, settings, code in (
            ("whole", whole, {}, 2), ("slots", slot, {}, 0), ("no write host", elsewhere, {}, 0),
            ("setting", whole, {"EGRESS_BODY_SURFACE": "on"}, 0),
            ("rule off", whole, {"EGRESS_READ_ONLY": "off"}, 0),
            ("below a write host", whole, {"AGENTIC_WRITE_HOSTS": "*.model.test"}, 2),
            ("a wildcard", document({"k": K}, bind("b", passthrough(sub("body")), ["/v1/*"],
                                                   ("*.wild.test",))),
             {"AGENTIC_WRITE_HOSTS": "a.wild.test"}, 2)):
        got, text = vault_check(bed, doc, **settings)
        want(got, code, f"{what}: {text[-300:]}")
        if code:
            want_in("surface body needs a slot on write host", text, what)
        bed.rows_run += 1
    keysbed.vaulted(bed, "body", whole, policy=POLICY, EGRESS_BODY_SURFACE="on")
    spell = b"spell this backwards: " + PH
    talk, got = ask(bed, post(b"/v1/x", spell, b"text/plain"))
    want_in(b"backwards: " + K, got, "control: what the refusal is for")
    scope(bed)
    talk, got = ask(bed, post(b"/s/x", spell, b"text/plain"))
    want(content_of(got), spell, "with a slot it goes as it is")


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"S\d+_"))
