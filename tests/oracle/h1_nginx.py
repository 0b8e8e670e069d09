#!/usr/bin/env python3
"""Reads HTTP/1.1 requests with our parsers and with nginx, and compares.

    h1_nginx.py --decode PROGRAM [--count N] [--seed N]

PROGRAM is h1-print. Whatever ours accepts, nginx has to read the same way (method, target, host,
length of the content, where the next request begins) or to refuse: otherwise a request could pass
our rules as one thing and mean another to the origin. The same requests also go through a reader
that makes the classic mistakes; if that one shows no difference, the comparison is blind and the
script fails."""
import argparse
import ipaddress
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote_to_bytes

CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus" / "h1"
# What a tolerant reader takes for one request and nginx for another.
MISTAKES = [
    b"GET / HTTP/1.1\r\nHost: a.test\r\n b.test\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length : 5\r\n\r\nAAAAA",
    b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
]
SENTINEL = b"GET /sentinel HTTP/1.1\r\nHost: sentinel.test\r\n\r\n"

# The first server reads the request and hands its content on with the length it found; the second
# one says what arrived. A stream of requests ends in a half-close, which must not abort the last.
CONF = """
daemon off;
master_process off;
pid {dir}/pid;
error_log {dir}/error.log crit;
events {{ worker_connections 256; }}
http {{
	access_log off;
	client_body_temp_path {dir}/body;
	proxy_temp_path {dir}/proxy;
	fastcgi_temp_path {dir}/fastcgi;
	uwsgi_temp_path {dir}/uwsgi;
	scgi_temp_path {dir}/scgi;
	default_type text/plain;
	client_body_timeout 2s;
	client_header_timeout 2s;
	lingering_timeout 1s;
	keepalive_requests 1000;
	large_client_header_buffers 4 72k;
	server {{
		listen unix:{dir}/front;
		location / {{
			rewrite ^ /echo? break;
			proxy_pass http://unix:{dir}/echo:;
			proxy_http_version 1.1;
			proxy_ignore_client_abort on;
			proxy_pass_request_headers off;
			proxy_method POST;
			proxy_set_header X-Method $request_method;
			proxy_set_header X-Target $request_uri;
			proxy_set_header X-Host $http_host;
			proxy_set_header X-Name $host;
		}}
	}}
	server {{
		listen unix:{dir}/echo;
		location / {{
			add_header X-Method $http_x_method;
			add_header X-Target $http_x_target;
			add_header X-Host $http_x_host;
			add_header X-Name $http_x_name;
			add_header X-Length $http_content_length;
			return 200;
		}}
	}}
}}
"""


class Nginx:
    def __init__(self):
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin")
        if not program:
            sys.exit("nginx is not installed")
        self.dir = tempfile.TemporaryDirectory(prefix="h1-nginx-")
        conf = Path(self.dir.name) / "conf"
        conf.write_text(CONF.format(dir=self.dir.name))
        self.front = f"{self.dir.name}/front"
        self.process = subprocess.Popen([program, "-c", str(conf), "-p", self.dir.name],
                                        stderr=subprocess.PIPE)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(self.front)
                return
            except OSError:
                time.sleep(0.02)
        self.close()
        sys.exit("nginx does not start: " + self.process.stderr.read().decode(errors="replace"))

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.dir.cleanup()

    def ask(self, stream):
        """All that comes back for a stream of requests."""
        got = bytearray()
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(self.front)
            try:
                s.sendall(stream)
                s.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError, OSError):
                pass  # refused before all was sent
            while True:
                try:
                    part = s.recv(65536)
                except ConnectionResetError:
                    break
                if not part:
                    break
                got += part
        return responses(bytes(got))


def responses(raw):
    """What nginx made of each request, up to the first that it refused: {name: bytes} of the
    fields that echo it, or None for a refusal."""
    found = []
    while raw:
        head, end, rest = raw.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        if not end or not lines[0].startswith(b"HTTP/1.1 "):
            found.append({"09": raw})  # an answer to HTTP/0.9 is content alone
            break
        if lines[0].startswith(b"HTTP/1.1 100"):
            raw = rest
            continue
        if not lines[0].startswith(b"HTTP/1.1 200"):
            found.append(None)
            break
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(b": ")
            fields[name.decode().lower()] = value
        found.append(fields)
        raw = rest
    return found


def decode(program, streams, *flags):
    """What ours makes of each stream: a list of (word, {name: bytes})."""
    frames = b"".join(struct.pack(">I", len(s)) + s for s in streams)
    out = subprocess.run([program, "--frames", *flags], input=frames, stdout=subprocess.PIPE,
                         check=True).stdout.decode()
    results = []
    for block in blocks(out):
        messages = []
        for line in block:
            word, *pairs = line.split(" ")
            values = (p.partition("=") for p in pairs)
            messages.append((word, {k: unquote_to_bytes(v) for k, _, v in values}))
        results.append(messages)
    if len(results) != len(streams):
        sys.exit(f"{program}: {len(results)} answers to {len(streams)} streams")
    return results


def blocks(text):
    block = []
    for line in text.split("\n")[:-1]:
        if line:
            block.append(line)
        else:
            yield block
            block = []


def same_host(ours, theirs):
    """Names are one text. Addresses have many spellings, and nginx keeps the one it got."""
    if ours == theirs:
        return True
    try:
        return (ipaddress.ip_address(ours.decode()) ==
                ipaddress.ip_address(theirs.strip(b"[]").decode()))
    except ValueError:
        pass
    try:  # 0x7f.1 is an address for the C library and for ours
        return socket.inet_aton(theirs.decode()) == socket.inet_aton(ours.decode())
    except (OSError, ValueError):
        return False


def differences(ours, theirs):
    """The names of what two accepted readings of one request do not share."""
    if "09" in theirs:
        return ["version"]
    pairs = {
        "method": (ours["method"], theirs.get("x-method", b"")),
        "target": (ours["path"], theirs.get("x-target", b"")),
        "Host": (ours["host"], theirs.get("x-host", b"")),
        "length": (int(ours["content"]), int(theirs.get("x-length", b"0"))),
    }
    # A proxy asks the origin itself with "*" (RFC 9112 3.2.4); nginx takes the request for its own.
    if (ours["method"], ours["path"], theirs.get("x-target")) == (b"OPTIONS", b"*", b"/"):
        del pairs["target"]
    found = [name for name, (a, b) in pairs.items() if a != b]
    if ours["name"] and not same_host(ours["name"], theirs.get("x-name", b"")):
        found.append("name")
    return found


CONNECTION = re.compile(rb"\r\n(?:Proxy-)?Connection:([^\r\n]*)", re.IGNORECASE)


def odd_connection(request):
    """nginx finds "close" and "keep-alive" anywhere in the value, also as part of another option,
    lets the last field win (RFC 9112 9.3: close wins), and does not know Proxy-Connection. None
    of that says where a request ends."""
    value = b",".join(m[1] for m in CONNECTION.finditer(request)).lower()
    options = {o.strip() for o in value.split(b",")}
    return (b"proxy-connection:" in request.lower() or {b"close", b"keep-alive"} <= options or
            any(w in o and w != o for o in options for w in (b"close", b"keep-alive")))


def compare(stream, ours, theirs):
    """(category of the first request, difference or None)"""
    category = None
    at = 0
    for i, (word, message) in enumerate(ours):
        answer = theirs[i] if i < len(theirs) else None
        if word != "accepted":
            if category is None:
                category = ("ours-only" if answer else "both-refused") if word == "refused" \
                    else "incomplete"
            if word == "incomplete" and answer:
                return category, f"request {i + 1}: complete for nginx only"
            return category, None
        category = category or ("accepted" if answer else "nginx-only")
        if answer is None:
            return category, None
        found = differences(message, answer)
        if found:
            return category, f"request {i + 1}: {', '.join(found)}"
        end = at + int(message["consumed"])
        odd = odd_connection(stream[at:end])
        at = end
        keep = answer.get("connection") == b"keep-alive"
        if keep != (message["keep_alive"] == b"1"):
            return category, None if odd else f"request {i + 1}: keep-alive"
    if len(theirs) > len(ours) and theirs[len(ours)]:
        return category, f"request {len(ours) + 1}: seen by nginx only"
    return category, None


class Generator:
    """Requests out of a small grammar, then changed a little."""

    METHODS = [b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"DELETE", b"PATCH", b"PROPFIND"]
    TARGETS = [b"/", b"/a/b?c=d", b"/?", b"//x/y", b"/%41", b"/a%20b", b"/\xc3\xbc", b"/a;b=c",
               b"http://a.test/", b"http://a.test", b"HTTP://A.test:80/x?y", b"https://a.test/",
               b"http://u@a.test/", b"http://[::1]:8080/x", b"http://10.1.2.3/", b"*", b"/a#b",
               b"http://a.test./", b"a.test:443", b"http:/a", b"/a\\b", b"/\"<>{}|^`"]
    HOSTS = [b"a.test", b"a.test", b"a.test", b"A.TEST:80", b"a.test.", b"[::1]", b"10.1.2.3:8080",
             b"", b"a_b.test", b"a.test:x", b"a,b"]
    FIELDS = [b"Accept: */*", b"User-Agent: x/1", b"X-A:", b"x-b: \t c d \t", b"X-Utf: \xc3\xbc",
              b"Connection: keep-alive", b"Connection: close", b"Connection: Keep-Alive, TE",
              b"Connection: close, x", b"Proxy-Connection: keep-alive", b"TE: trailers",
              b"Content-Type: text/plain", b"Cookie: a=b; c=d", b"X_Y: z",
              b"Transfer_Encoding: chunked", b"Expect: 100-continue", b"Content-Encoding: gzip"]
    ODD_FIELDS = [b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 3, 3",
                  b"Content-Length: +5", b"Content-Length : 5", b"Content-Length:5",
                  b"Content-Length: 05",
                  b"Transfer-Encoding: chunked", b"Transfer-Encoding: Chunked",
                  b"Transfer-Encoding: identity", b"Transfer-Encoding: gzip, chunked",
                  b"Transfer-Encoding : chunked", b"Transfer-Encoding: \x0bchunked",
                  b"Transfer-Encoding: chunked;a", b"Host: b.test", b"Host : b.test", b" folded: 1",
                  b"\tfolded", b"no colon", b": no name", b"X[0]: a", b"X Y: a", b"Upgrade: h2c"]
    EXTENSIONS = [b""] * 12 + [b";a", b";a=b", b' ; a = "b;c"', b";", b" ", b";a\n", b"\t"]
    BYTES = [b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b":", b",", b";", b"0", b"\x0b", b"\x7f",
             b"\xff", b"A", b"%"]
    TRAILERS = [b""] * 8 + [b"X-Sum: 1\r\n", b"a:b\r\nc: \r\n", b"Host: b\r\n", b" x\r\n"]
    VERSIONS = [b"HTTP/1.1"] * 16 + [b"HTTP/1.0"] * 3 + [b"HTTP/1.2", b"http/1.1", b"HTTP/2.0"]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.corpus = [p.read_bytes() for p in sorted(CORPUS.iterdir())]
        self.requests = [c[1:] for c in self.corpus if c[:1] == b"Q"]
        self.bodies = [c[1:] for c in self.corpus if c[:1] == b"B"]

    def usual(self, choices, n):
        """Mostly one of the first n, which are right."""
        return self.random.choice(choices[:n] if self.random.random() < 0.85 else choices)

    def chunks(self):
        r = self.random
        out = b""
        for _ in range(r.randint(0, 3)):
            content = bytes(r.choices(b"abcdef0123\r\n", k=r.randint(1, 20)))
            size = b"%x" % len(content) if r.random() < 0.9 else b"%04X" % len(content)
            out += size + r.choice(self.EXTENSIONS) + b"\r\n" + content + b"\r\n"
        return out + b"0" + r.choice(self.EXTENSIONS) + b"\r\n" + r.choice(self.TRAILERS) + b"\r\n"

    def request(self):
        r = self.random
        if r.random() < 0.15:
            return r.choice(self.requests)
        fields = [b"Host: " + self.usual(self.HOSTS, 3)]
        fields += r.choices(self.FIELDS, k=r.randint(0, 4))
        body = b""
        kind = r.random()
        if kind < 0.25:
            body = bytes(r.choices(b"abc\r\n ", k=r.randint(0, 30)))
            fields.append(b"Content-Length: %d" % len(body))
        elif kind < 0.5:
            body = self.chunks() if r.random() < 0.85 else r.choice(self.bodies)
            fields.append(b"Transfer-Encoding: chunked")
        if r.random() < 0.2:
            fields.append(r.choice(self.ODD_FIELDS))
        r.shuffle(fields)
        line = [r.choice(self.METHODS), self.usual(self.TARGETS, 7), r.choice(self.VERSIONS)]
        return b"\r\n".join([b" ".join(line), *fields, b"", body])

    def mutate(self, text):
        r = self.random
        for _ in range(r.choice([0, 0, 0, 1, 1, 2])):
            at = r.randrange(len(text) + 1)
            if r.random() < 0.6:  # next to what ends lines, names and values
                ends = [m.start() + r.randint(0, 2) for m in re.finditer(rb"[:\r ]", text)]
                at = min(r.choice(ends or [at]), len(text))
            kind = r.random()
            if kind < 0.5:
                text = text[:at] + r.choice(self.BYTES) + text[at:]
            elif kind < 0.7:
                text = text[:at] + text[at + r.randint(1, 3):]
            elif kind < 0.85:
                text = text[:at] + r.choice(self.BYTES) + text[at + 1:]
            else:
                lines = text.split(b"\r\n")
                line = r.choice(lines)
                lines.insert(r.randrange(len(lines)), line)
                text = b"\r\n".join(lines)
        return text

    def stream(self):
        text = self.mutate(self.request())
        if self.random.random() < 0.2:
            text += self.mutate(self.request())
        return text + SENTINEL


def report(title, streams, ours, theirs, show):
    counts, found = Counter(), []
    for stream, o, t in zip(streams, ours, theirs):
        category, difference = compare(stream, o, t)
        counts[category] += 1
        if difference:
            found.append((difference, stream))
    print(f"{title}: {len(streams)} streams: " + ", ".join(
        f"{counts[k]} {text}" for k, text in (
            ("accepted", "accepted by both"), ("both-refused", "refused by both"),
            ("ours-only", "refused by ours only"), ("nginx-only", "refused by nginx only"),
            ("incomplete", "incomplete"))) + f"; {len(found)} differences")
    for difference, stream in found[:show]:
        print(f"    {difference}\n        {stream!r}")
    return counts, found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--decode", required=True, metavar="PROGRAM")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    args = parser.parse_args()
    generator = Generator(args.seed)
    streams = [c + SENTINEL for c in MISTAKES + generator.requests]
    streams += [generator.stream() for _ in range(args.count)]
    nginx = Nginx()
    try:
        theirs = [nginx.ask(s) for s in streams]
    finally:
        nginx.close()
    ours = decode(args.decode, streams)
    counts, found = report("ours", streams, ours, theirs, args.show)
    _, control = report("lenient", streams, decode(args.decode, streams, "--lenient"), theirs, 0)
    if found:
        sys.exit("not ok: nginx reads differently what ours accepts")
    if counts["accepted"] < len(streams) // 10 or counts["both-refused"] < len(streams) // 10:
        sys.exit("not ok: too few requests that both accept or both refuse to prove anything")
    if not control:
        sys.exit("not ok: the lenient reader shows no difference, so this comparison is blind")
    print("ok")


if __name__ == "__main__":
    main()
