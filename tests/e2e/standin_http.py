"""The HTTP/1.1 server of the stand-ins: honest answers of a handler, and the lies told over them.

Comes before standin_sidecar.py and standin.py. One asyncio loop in a thread of its own serves
hundreds of ports; a test scripts it from its own thread. Nothing but the standard library.
"""
import asyncio
import json
import re
import ssl
import subprocess
import threading
import time
import urllib.parse
from os.path import join

BODY_MAX = 4 << 20
PHRASES = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 302: "Found",
           400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           405: "Method Not Allowed", 409: "Conflict", 410: "Gone", 422: "Unprocessable Entity",
           429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}


class Request:
    """What came: time (monotonic), port it came to, method, target, path, query, fields, body."""

    def __init__(self, port, head, body):
        self.time, self.port, self.body = time.monotonic(), port, body
        line, *rest = head.split("\r\n")
        self.method, self.target, _ = line.split(" ", 2)
        self.fields = [tuple(x.strip() for x in f.partition(":")[::2]) for f in rest]
        self.path, _, query = self.target.partition("?")
        self.query = urllib.parse.parse_qs(query, keep_blank_values=True)

    def field(self, name):
        return next((v for n, v in self.fields if n.lower() == name.lower()), None)

    def doc(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.port} {self.method} {self.target}>"


class Reply:
    """An answer. doc: JSON; body: bytes as they are; fields: [(name, value)]; silent: none comes
    before wake()."""

    def __init__(self, status=200, doc=None, body=None, type="application/json", fields=(),
                 silent=False):
        self.status, self.type, self.fields, self.silent = status, type, list(fields), silent
        self.doc, self.body = doc, body

    def content(self):
        if self.body is not None:
            return self.body
        return b"" if self.doc is None else json.dumps(self.doc).encode()

    def text(self):
        content = self.content()
        head = [f"HTTP/1.1 {self.status} {PHRASES.get(self.status, 'Other')}"]
        if content:
            head.append(f"Content-Type: {self.type}")
        if self.status != 204:
            head.append(f"Content-Length: {len(content)}")
        head += [f"{n}: {v}" for n, v in self.fields]
        return "\r\n".join(head).encode("latin1") + b"\r\n\r\n" + content


def error(status, code, message, **more):
    return Reply(status, {"code": code, "message": message}, **more)


class Lie:
    """What is changed in an honest answer, each as far as it is given.

    edit     function of the JSON document, whose value is sent in its place (or that changes it)
    over     function of the honest reply, whose value is the content that is sent
    status, doc, body, type, fields   of the answer; fields are put in the place of
             those of the same name
    raw      these bytes are the whole answer
    delay    seconds before the first byte
    cut      so many bytes are sent (negative: all but so many), then the connection ends
    drip     bytes a second, about
    silent   no answer at all, the connection stays open
    """

    def __init__(self, edit=None, over=None, raw=None, delay=0, cut=None, drip=None, silent=False,
                 **reply):
        self.edit, self.over, self.raw, self.silent = edit, over, raw, silent
        self.delay, self.cut, self.drip, self.reply = delay, cut, drip, reply

    def told(self, reply):
        """The bytes in place of this honest reply."""
        if self.raw is not None:
            return self.raw
        if self.over:
            reply.body = self.over(reply)
        if self.edit and reply.doc is not None:
            doc = json.loads(json.dumps(reply.doc))
            changed = self.edit(doc)
            reply.doc = doc if changed is None else changed
        for name, value in self.reply.items():
            if name == "fields":
                new = [n.lower() for n, _ in value]
                reply.fields = [f for f in reply.fields if f[0].lower() not in new] + value
            elif name == "doc":
                reply.doc, reply.body = value, None
            else:
                setattr(reply, name, value)
        return reply.text()


class Connection(asyncio.Protocol):
    """One client: requests in order, one at a time."""

    def __init__(self, port):
        self.port, self.got, self.busy, self.transport = port, b"", False, None
        self.held = None  # a request to a frozen sidecar

    def connection_made(self, transport):
        self.transport = transport
        self.port.http.open.add(self)

    def connection_lost(self, exc):
        self.port.http.open.discard(self)
        self.transport = None

    def data_received(self, data):
        self.got += data
        if len(self.got) > BODY_MAX:
            self.transport.abort()
        self.step()

    def step(self):
        while self.transport and not self.busy:
            end = self.got.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.got[:end].decode("latin1")
            length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self.got) < size:
                return
            request = Request(self.port.number, head, self.got[end + 4:size])
            self.got = self.got[size:]
            self.port.http.keep(request)
            self.answer(request)

    def answer(self, request):
        http = self.port.http
        reply = self.port.handler(request)
        lie = http.lie_for(request)
        self.held = request if reply.silent else None
        if reply.silent or (lie and lie.silent):
            self.busy = True
        elif lie:
            self.busy = True
            task = http.loop.create_task(self.tell(lie, lie.told(reply)))
            http.tasks.add(task)
            task.add_done_callback(http.tasks.discard)
        else:
            self.busy = False
            self.transport.write(reply.text())
            if (request.field("Connection") or "").lower() == "close":
                self.transport.close()

    async def tell(self, lie, data):
        await asyncio.sleep(lie.delay)
        if lie.cut is not None:
            data = data[:lie.cut]
        step = max(1, int(lie.drip / 10)) if lie.drip else len(data) or 1
        for i in range(0, len(data), step):
            if not self.transport:
                return
            self.transport.write(data[i:i + step])
            if lie.drip:
                await asyncio.sleep(step / lie.drip)
        if not self.transport:
            return
        if lie.cut is not None or lie.raw is not None:
            self.transport.close()
            return
        self.busy = False
        self.step()


class Port:
    def __init__(self, http, handler):
        self.http, self.handler, self.number, self.server = http, handler, None, None


class Http:
    """The loop and its ports. requests: all that came, if log is on."""

    def __init__(self, log=True):
        self.log, self.requests, self.lies, self.ports, self.open = log, [], [], [], set()
        self.tasks, self.on_request = set(), None
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def call(self, coroutine):
        """Runs in the loop; who calls from it does not wait."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return None if threading.current_thread() is self.thread else future.result(10)

    def listen(self, handler, host="127.0.0.1", number=0, tls=None):
        """A port with this handler of requests. tls: ssl.SSLContext."""
        port = Port(self, handler)

        async def start():
            port.server = await self.loop.create_server(lambda: Connection(port), host, number,
                                                        ssl=tls, backlog=64)
        self.call(start())
        port.number = port.server.sockets[0].getsockname()[1]
        self.ports.append(port)
        return port

    def close(self, port):
        """The port refuses; what was open on it ends."""
        async def stop():
            port.server.close()
            self.ports.remove(port)
            for c in [c for c in self.open if c.port is port]:
                c.transport.abort()
        self.call(stop())

    def drop(self, port=None):
        """Ends open connections, as a server that was restarted."""
        async def stop():
            for c in [c for c in self.open if port in (None, c.port)]:
                c.transport.abort()
        self.call(stop())

    def wake(self):
        """Requests that got no answer from a handler are put to it again, as after a thaw."""
        async def again():
            for c in [c for c in self.open if c.held and c.transport]:
                c.answer(c.held)
                c.step()
        self.call(again())

    def stop(self):
        for port in list(self.ports):
            self.close(port)

        async def end():
            for task in list(self.tasks):
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
        self.call(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    def keep(self, request):
        if self.log:
            self.requests.append(request)
        if self.on_request:
            self.on_request(request)

    def lie(self, method, path, lie, times=None):
        """From now on, at most so many times, for requests whose path the pattern matches whole.
        Later lies win. Returns what forget() takes."""
        entry = [method, re.compile(path), lie, times]
        self.lies.insert(0, entry)
        return entry

    def forget(self, entry=None):
        """This lie, or all."""
        self.lies[:] = [e for e in self.lies if entry is not None and e is not entry]

    @staticmethod
    def fits(entry, request):
        return entry[0] in ("*", request.method) and entry[1].fullmatch(request.path) is not None

    def lie_for(self, request):
        for entry in self.lies:
            if self.fits(entry, request) and entry[3] != 0:
                entry[3] = None if entry[3] is None else entry[3] - 1
                return entry[2]
        return None

    def seen(self, method="*", path=".*", since=0):
        """Requests that came, of those whose path the pattern matches whole."""
        return [r for r in self.requests[since:] if method in ("*", r.method) and
                re.fullmatch(path, r.path)]


def certificates(top, names=("IP:127.0.0.1", "DNS:localhost")):
    """(path of a CA's certificate, server context with a certificate of it)."""
    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True)
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    ca, ca_key, leaf, key, ext = (join(top, n) for n in ("standin-ca.pem", "standin-ca.key",
                                                         "standin.pem", "standin.key", "ext"))
    openssl("req", "-x509", *new, "-days", "30", "-keyout", ca_key, "-out", ca, "-subj",
            "/CN=stand-in CA", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", *new, "-subj", "/CN=stand-in", "-keyout", key, "-out", leaf + ".csr")
    with open(ext, "w") as f:
        f.write(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", leaf + ".csr", "-CA", ca, "-CAkey", ca_key, "-CAcreateserial",
            "-days", "20", "-extfile", ext, "-out", leaf)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf, key)
    return ca, context
