#!/usr/bin/env python3
"""Lines of the vault's conformance catalogue, through the whole program: what goes into a request
and what is taken out of its answer, and streams of both. The number of a case is the line in
docs/compatibility.md. Lines about TLS and authorities: keys_wire.py. The vault comes from
EGRESS_VAULT_FILE; the read-only rule is off, so that nothing but the vault refuses. Each case has
the same request where the key does go, or arrives, so that it can fail. All by HTTP/1.1: this
version offers nothing else (control in V163)."""
import gzip
import json
import ssl
import sys
import threading

import casebed
import keysbed
from casebed import ok, until, want, want_in, want_ok, want_out
from keysbed import (HOST, K, K_NEW, OFF, PH, STARS, Client, answers, ask, bearer, bind, chunked,
                     content_of, content_plain, document, passthrough, post, refused, request, sent,
                     sub, unlogged, vault_replace)

LONG = K + b"-DDDD-EEEE"
QUOTED = b'sk-quo"te\\back-0004'
MEGABYTE = 1 << 20
DOC = document(
    {"k": K, "long": LONG, "slash": b"sk-a/b+c-0001", "escaped": b"sk-a%2Fb-0001",
     "quoted": QUOTED, "first": b"one-ph-second-0002-end", "second": b"sk-second-0002-ZZZZ",
     "talks": b"sk-" + PH + b"-talks"},
    bind("bearer", bearer(), ["/bearer/*"]),
    bind("long", bearer(credential="long"), ["/long/*"]),
    bind("streamed", bearer(sub("json:/auth/key")), ["/streamed/*"]),
    bind("path", passthrough(sub("path")), ["/path/*"]),
    bind("slash", passthrough(sub("path", placeholder=b"ph-slash-0003", credential="slash")),
         ["/slash/*"]),
    bind("escaped", passthrough(sub("path", placeholder=b"ph-slash-0003", credential="escaped")),
         ["/escaped/*"]),
    bind("body", passthrough(sub("body", placeholder=b"ph-quoted-0004", credential="quoted")),
         ["/body/*"]),
    bind("twice", passthrough(
        sub("query", "header", placeholder=b"ph-first-0001", credential="first"),
        sub("query", "header", placeholder=b"ph-second-0002", credential="second")), ["/twice/*"]),
    bind("own", bearer(sub("header"), credential="talks"), ["/own/*"]),
    bind("all", passthrough(sub("path", "query", "body")), ["/all/*"]))


def catalogue(bed):
    return keysbed.vaulted(bed, "catalogue", DOC, **OFF)


def one_key(value=K, *subs):
    return document({"k": value}, bind("bearer", bearer(*subs), ["/bearer/*"]))


def turning(bed, *subs):
    """One whose document changes; it begins with K."""
    e = keysbed.vaulted(bed, "turning", one_key(K, *subs), **OFF)
    vault_replace(bed, e, one_key(K, *subs))
    return e


# --- 11.4 injection and redaction ---

def V68_an_answer_is_searched_by_the_revision_of_its_request(bed):
    e, go_on = turning(bed), threading.Event()

    def route(peer, head):
        go_on.wait(10)
        peer.send(ok(b"<" + K + b">\n", b"X-Echo: " + K + b"\r\n"))
        return True
    bed.origins.routes["/bearer/slow"] = route
    mark = bed.origins.mark()
    with Client(bed) as client:
        client.send(request(b"/bearer/slow"))
        until(lambda: b"Bearer " + K + b"\r\n" in sent(bed, mark), "the origin has the request")
        vault_replace(bed, e, one_key(K_NEW))
        go_on.set()
        want(client.answer().body, b"<" + STARS + b">\n", "an answer after the change")
        want_out(K, client.talk.raw, "its fields")
    talk, got = ask(bed, request(b"/bearer/slow"))
    want_in(b"Bearer " + K_NEW + b"\r\n", got, "the next request")
    want(talk.finals[0].body, b"<" + K + b">\n", "control: to the new revision it is no key")


def V69_the_longest_of_two_values_is_overwritten_whole(bed):
    catalogue(bed)
    answers(bed, "/long/echo", ok(b"<" + LONG + b"> <" + K + b">\n", b"X-Echo: " + LONG + b"\r\n"))
    talk, got = ask(bed, request(b"/long/echo"))
    want_in(b"Bearer " + LONG + b"\r\n", got, "control: the origin has it")
    want(talk.finals[0].body, b"<" + b"*" * len(LONG) + b"> <" + STARS + b">\n", "content")
    want(talk.finals[0].field("x-echo"), "*" * len(LONG), "field")


def V70_a_streamed_upload_has_its_field_before_its_content(bed):
    catalogue(bed)
    mark = bed.origins.mark()
    with Client(bed) as client:
        client.send(request(b"/bearer/up", b"Transfer-Encoding: chunked\r\n", b"POST"),
                    b"5\r\nfirst\r\n")
        until(lambda: b"first" in sent(bed, mark), "the origin has the first chunk")
        want_in(b"Authorization: Bearer " + K + b"\r\n", sent(bed, mark), "with the field")
        client.send(b"4\r\nlast\r\n0\r\n\r\n")
        want(client.answer().status, 200, "answer")
    want(content_plain(sent(bed, mark)), b"firstlast", "content")


def V71_large_content_has_its_field_before_its_content(bed):
    e = catalogue(bed)
    content = b"z" * (MEGABYTE + 1)
    mark = bed.origins.mark()
    with Client(bed) as client:
        whole = post(b"/bearer/up", content, b"text/plain")
        client.send(whole[:1000])
        until(lambda: b"Authorization: Bearer " + K + b"\r\n" in sent(bed, mark), "the field")
        want(len(sent(bed, mark)) < 2000, True, "control: the content is still to come")
        client.send(whole[1000:])
        want(client.answer().status, 200, "answer")
    want(content_of(sent(bed, mark)) == content, True, "content as it was")
    unlogged(e, b"/bearer/up", K)


def V72_streamed_content_is_left_alone(bed):
    catalogue(bed)
    start = b'{"auth":{"key":"' + PH + b'"},"x":"'
    for size, changed in ((MEGABYTE - 1, True), (MEGABYTE, True), (MEGABYTE + 1, False)):
        content = start + b"y" * (size - len(start) - 2) + b'"}'
        should = content.replace(PH, K) if changed else content
        for name, data in (("length", post(b"/streamed/x", content)), ("chunked", request(
                b"/streamed/x", b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
                b"POST", chunked(content, 65536)))):
            talk, got = ask(bed, data)
            want_ok(talk, f"{name} {size}")
            want_in(b"Authorization: Bearer " + K + b"\r\n", got, f"{name} {size}: the field")
            want(content_plain(got) == should, True, f"{name} {size}: content")
            bed.rows_run += 1


def V73_without_a_binding_content_is_as_it_was(bed):
    catalogue(bed)
    content = b'{"auth":{"key":"' + PH + b'"}}'
    talk, got = ask(bed, post(b"/streamed/x", content))
    want(content_of(got), content.replace(PH, K), "control: with one it is not")
    for target, method in ((b"/none/x", b"POST"), (b"/streamed", b"POST"),
                           (b"/streamed/x", b"REPORT")):
        talk, got = ask(bed, post(target, content, method=method))
        want_ok(talk, f"{method} {target}")
        want(content_of(got), content, f"{method} {target}")
        want_out(K, got, f"{method} {target}")
        bed.rows_run += 1


# --- 11.5 substitution ---

def V75_path_only(bed):
    catalogue(bed)
    talk, got = ask(bed, request(b"/path/" + PH + b"/x?k=" + PH, b"X-Key: " + PH + b"\r\n"))
    want_ok(talk, "answer")
    want_in(b"GET /path/" + K + b"/x?k=" + PH + b" HTTP/1.1\r\n", got, "target")
    want_in(b"X-Key: " + PH + b"\r\n", got, "field")


def V77_every_json_type_is_escaped_as_json(bed):
    catalogue(bed)
    content = b'{"k":"ph-quoted-0004"}'
    escaped = json.dumps({"k": QUOTED.decode()}, separators=(",", ":")).encode()
    raw = content.replace(b"ph-quoted-0004", QUOTED)
    want(escaped != raw, True, "control")
    for kind, should in ((b"application/merge-patch+json; charset=utf-8", escaped),
                         (b"application/json", escaped), (b"Application/VND.X+JSON", escaped),
                         (b"text/plain", raw), (b"", raw)):
        talk, got = ask(bed, post(b"/body/x", content, kind, b"PATCH"))
        want_ok(talk, f"{kind}")
        want(content_plain(got), should, f"{kind}")
        bed.rows_run += 1


def V79_what_was_put_in_is_not_looked_at_again(bed):
    catalogue(bed)
    talk, got = ask(bed, request(b"/twice/x?a=ph-first-0001&b=ph-second-0002",
                                 b"X-A: ph-first-0001\r\nX-B: ph-second-0002\r\n"))
    want_ok(talk, "answer")
    want_in(b"?a=one-ph-second-0002-end&b=sk-second-0002-ZZZZ HTTP/1.1\r\n", got, "query")
    want_in(b"X-A: one-ph-second-0002-end\r\nX-B: sk-second-0002-ZZZZ\r\n", got, "fields")


def V80_fields_of_the_client_are_changed_and_injected_ones_are_not(bed):
    catalogue(bed)
    talk, got = ask(bed, request(b"/own/x", b"X-Key: a " + PH + b"\r\nx-key: b " + PH + b"\r\n"
                                 b"Authorization: Bearer " + PH + b"\r\n"))
    want_ok(talk, "answer")
    want_in(b"X-Key: a " + K + b"\r\nx-key: b " + K + b"\r\n", got, "field by field")
    want_in(b"Authorization: Bearer sk-" + PH + b"-talks\r\n", got, "injected")
    want(got.lower().count(b"authorization:"), 1, "the client's own is gone")


def V81_compressed_content_is_left_alone(bed):
    catalogue(bed)
    plain = b'{"k":"ph-quoted-0004"}'
    packed = gzip.compress(plain)
    talk, got = ask(bed, post(b"/body/x", packed, fields=b"Content-Encoding: gzip\r\n"))
    want_ok(talk, "gzip")
    want(content_of(got), packed, "gzip: byte for byte")
    want_in(b"Content-Encoding: gzip\r\n", got, "gzip")
    talk, got = ask(bed, post(b"/body/x", plain, fields=b"Content-Encoding: identity\r\n"))
    want_in(b'sk-quo\\"te\\\\back-0004', got, "control: identity")


def key_in_a_path_is_refused(bed, path, forms):
    e = catalogue(bed)
    mark = bed.origins.mark()
    talk, _ = ask(bed, request(b"/%s/ph-slash-0003/x" % path))
    refused(talk, "path_ambiguous", f"{path}")
    want(sent(bed, mark), b"", "nothing arrived")
    for form in forms:
        want_out(form, talk.raw, "answer")
    unlogged(e, b"/%s/ph-slash-0003/x" % path, *forms)
    talk, got = ask(bed, request(b"/path/" + PH))
    want_in(b"GET /path/" + K + b" ", got, "control: an ordinary value goes")


def V82_a_value_with_a_slash_goes_into_no_path(bed):
    key_in_a_path_is_refused(bed, b"slash", (b"sk-a/b+c-0001", b"sk-a%2Fb%2Bc-0001"))


def V83_a_value_with_an_encoded_slash_goes_into_no_path(bed):
    key_in_a_path_is_refused(bed, b"escaped", (b"sk-a%2Fb-0001", b"sk-a%252Fb-0001"))


def V85_content_is_changed_by_the_revision_of_its_head(bed):
    """Which is the one in force when the head goes out: content that is collected comes before it."""
    subs = (sub("json:/auth/key"),)
    e = turning(bed, *subs)
    content = b'{"auth":{"key":"' + PH + b'"}}'
    whole = post(b"/bearer/x", content)
    mark = bed.origins.mark()
    with Client(bed) as client:
        client.send(request(b"/bearer/first"))
        want(client.answer().status, 200, "control: the connection is in use")
        client.send(whole[:-10])
        settle(bed, e)
        vault_replace(bed, e, one_key(K_NEW, *subs))
        client.send(whole[-10:])
        want(client.answer().status, 200, "answer")
        client.send(whole)
        want(client.answer().status, 200, "answer")
    got = sent(bed, mark).split(b"POST ")[1:]
    want([content_of(b"POST " + g) for g in got],
         [content.replace(PH, K_NEW)] * 2, "content")
    want([K in got[0], K_NEW in got[0]], [False, True], "head and content are of one revision")


def settle(bed, egress):
    """By the answer to another client it has read what came before."""
    talk, _ = ask(bed, request(b"/none/settle"))
    want_ok(talk, f"{egress.name}")


# --- 11.6 path guard ---

def V103_streamed_requests_get_their_refusal(bed):
    catalogue(bed)
    mark = bed.origins.mark()
    rows = {"known": b"Content-Length: 3\r\n", "large": b"Content-Length: 2097152\r\n",
            "chunked": b"Transfer-Encoding: chunked\r\n", "none": b""}
    for name, fields in rows.items():
        for path in (b"/bearer/%252e%252e/x", b"/bearer/../x", b"/bearer/a%5cb", b"/bearer/a\\b"):
            body = {"known": b"abc", "large": b"z" * 1000, "chunked": b"1\r\na\r\n", "none": b""}
            talk, _ = ask(bed, request(path, fields, b"POST", body[name]))
            refused(talk, "path_ambiguous", f"{name} {path}")
            bed.rows_run += 1
    want(sent(bed, mark), b"", "nothing arrived")
    talk, got = ask(bed, post(b"/bearer/a%2Fb", b"abc"))
    want_in(b"Bearer " + K, got, "control: an ordinary path")


# --- 11.11 end to end ---

FIVE = {
    b"/bearer": (bearer(), b"Authorization: Bearer " + K),
    b"/basic": ({"type": "basic", "credential": "k"}, b"Authorization: Basic " + K),
    b"/api": ({"type": "apiKey", "credential": "k", "name": "x-api-key"}, b"X-Api-Key: " + K),
    b"/one": ({"type": "customHeaders", "headers": [{"name": "X-One", "credential": "k"}]},
              b"X-One: " + K),
    b"/two": ({"type": "customHeaders", "headers": [{"name": "X-One", "credential": "k"},
                                                    {"name": "X-Two", "credential": "n"}]},
              b"X-One: " + K + b"\r\nX-Two: " + K_NEW),
}


def V151_five_bindings_and_each_path_its_field(bed):
    doc = document({"k": K, "n": K_NEW}, *[
        bind(path.decode()[1:], auth, [path.decode()], schemes=["http", "https"])
        for path, (auth, _) in FIVE.items()])
    keysbed.vaulted(bed, "five", doc, EGRESS_HTTP_BINDINGS="on", **OFF)
    for path, (_, line) in FIVE.items():
        mark = bed.origins.mark()
        clear = bed.px(b"GET http://%s%s HTTP/1.1\r\nHost: %s\r\n\r\n"
                       % (HOST.encode(), path, HOST.encode()))
        for what, talk, got in (("http", clear, sent(bed, mark)),
                                ("https", *ask(bed, request(path)))):
            want_ok(talk, f"{what} {path}")
            want_in(b"\r\n" + line + b"\r\n", got, f"{what} {path}")
            want(got.count(K) + got.count(K_NEW), line.count(b"sk-"), f"{what} {path}: no other")
            bed.rows_run += 1


def V152_a_life_of_documents(bed):
    e = turning(bed)
    two = bind("two", bearer(), ["/two/*"])
    steps = [(document({}), None, None), (one_key(K), K, None), (document({"k": K}), None, None),
             (document({"k": K_NEW}, two), None, K_NEW), (document({"k": K_NEW}), None, None)]
    revision = keysbed.vault_revision(e)
    for doc, one, other in steps:
        revision += 1
        want(vault_replace(bed, e, doc), revision, "revision")
        for path, key in ((b"/bearer/x", one), (b"/two/x", other)):
            talk, got = ask(bed, request(path))
            want_ok(talk, f"revision {revision} {path}")
            want([got.count(b"Bearer " + k + b"\r\n") for k in (K, K_NEW)],
                 [int(key == K), int(key == K_NEW)], f"revision {revision} {path}")
            bed.rows_run += 1


def V153_query_path_and_content_in_one_request(bed):
    catalogue(bed)
    talk, got = ask(bed, post(b"/all/" + PH + b"/x?k=" + PH + b"&b=1", b'{"k":"' + PH + b'"}'))
    want_ok(talk, "answer")
    want_in(b"POST /all/" + K + b"/x?k=" + K + b"&b=1 HTTP/1.1\r\n", got, "target")
    want(content_plain(got), b'{"k":"' + K + b'"}', "content")


def V160_three_cookies_stay_three(bed):
    catalogue(bed)
    lines = [b"a=1; Path=/", b"s=" + K + b"; HttpOnly", b"c=3, 4"]
    answers(bed, "/bearer/cookies", ok(fields=b"".join(b"Set-Cookie: " + x + b"\r\n"
                                                       for x in lines)))
    talk, got = ask(bed, request(b"/bearer/cookies"))
    want_in(K, got, "control: the key is in use")
    want(casebed.values(talk.finals[0].fields, b"set-cookie"),
         [x.replace(K, STARS) for x in lines], "cookies")


# --- streams ---

def stepwise(bed, path, kind, pieces):
    """An origin that sends a piece only when its client has the one before."""
    steps = [threading.Event() for _ in pieces]

    def route(peer, head):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n" % kind,
                  b"Transfer-Encoding: chunked\r\n\r\n")
        for piece, step in zip(pieces, steps):
            if not step.wait(casebed.WAIT_S):
                break
            peer.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        peer.send(b"0\r\n\r\n")
        return False
    bed.origins.routes[path] = route
    return steps


def V162_both_directions_at_once(bed):
    catalogue(bed)

    def route(peer, head):
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while b"0\r\n\r\n" not in peer.buf:
            if b"\n\r\n" in peer.buf:
                line, _, peer.buf = peer.buf.partition(b"\n\r\n")
                text = b"got " + line.split(b"\r\n")[-1] + b"\n"
                peer.send(b"%x\r\n%s\r\n" % (len(text), text))
            elif not peer.more():
                return False
        peer.send(b"0\r\n\r\n")
        return False
    bed.origins.routes["/bearer/both"] = route
    mark = bed.origins.mark()
    with Client(bed) as client:
        client.send(request(b"/bearer/both", b"Transfer-Encoding: chunked\r\n", b"POST"))
        for i in range(20):
            text = b"line %d" % i
            client.send(b"%x\r\n%s\n\r\n" % (len(text) + 1, text))
            client.until_seen(b"got " + text + b"\n")
            bed.rows_run += 1
        client.send(b"0\r\n\r\n")
        want(client.answer().status, 200, "answer")
    want_in(b"Bearer " + K, sent(bed, mark), "with the key")


def V163_lines_of_json_arrive_one_by_one(bed):
    catalogue(bed)
    lines = [json.dumps({"n": i, "text": "word " * (i % 7)}).encode() + b"\n" for i in range(20)]
    lines[5] = b'{"key":"' + K + b'"}\n'
    steps = stepwise(bed, "/bearer/lines", b"application/x-ndjson", lines)
    s = bed.connect(f"{HOST}:443")
    context = ssl.create_default_context(cafile=bed.egress.ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with bed.wrap(s, HOST, context) as tls:
        want(tls.selected_alpn_protocol(), "http/1.1", "control: what is offered")
    with Client(bed) as client:
        client.send(request(b"/bearer/lines"))
        for line, step in zip(lines, steps):
            step.set()
            client.until_seen(line.replace(K, STARS))
            bed.rows_run += 1
        want(client.answer().body, b"".join(lines).replace(K, STARS), "all of it")


def V164_a_large_event_stream_arrives_whole(bed):
    catalogue(bed)
    events = b"".join(b"id: %d\ndata: %s\n\n" % (i, b"some words " * 90) for i in range(4200))
    events += b"data: " + K + b"\n\n"
    want(len(events) > 4 * MEGABYTE, True, "size")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    answers(bed, "/bearer/events", head + b"Connection: close\r\n\r\n" + events,
            stay=False)
    answers(bed, "/bearer/chunked", head + b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(events), events))
    for path in (b"/bearer/events", b"/bearer/chunked"):
        mark = bed.origins.mark()
        with Client(bed) as client:
            client.send(request(path, b"Connection: close\r\n"))
            [answer] = client.until_closed()
        want_in(b"Bearer " + K, sent(bed, mark), f"{path}: the key is in use")
        want(answer.body == events.replace(K, STARS), True,
             f"{path}: {len(answer.body)} of {len(events)} bytes")


if __name__ == "__main__":
    sys.exit(casebed.main(globals(), names_like=r"V\d+_"))
