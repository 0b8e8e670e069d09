#!/usr/bin/env python3
"""The origin behind nginx in end-to-end tests: what static files cannot show.

    origin.py --socket PATH [--git FOLDER]

It prints `listening PATH` when it answers, and ends on SIGTERM. Paths:

    /git/...           git http-backend over the repositories below FOLDER, pushes included
    /echo              JSON: method, path and fields of the request
    /slow?bytes=N&ms=M N bytes `x`, one piece each M milliseconds, 20 pieces (Content-Length)
    /stream?n=N&ms=M   N server-sent events `data: I`, M milliseconds apart (chunked)
    anything else      reads the content and answers JSON: method, length, sha256

Content of any framing is read to its end before the answer, up to one that takes no notice of it.
"""

import argparse
import hashlib
import json
import os
import signal
import socketserver
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

PIECE = 64 << 10
SLOW_PIECES = 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    git_folder = None

    def address_string(self):
        return "nginx"

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def content(self):
        """The request's content, piece by piece."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                if size == 0:
                    break
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                raise ConnectionError("content ends early")
            left -= len(piece)
            yield piece

    def answer(self, body, media_type="application/json", status=200):
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value):
        self.answer(json.dumps(value).encode() + b"\n")

    def chunk(self, piece):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def slow(self, query):
        size = int(query.get("bytes", ["1000"])[0])
        pause = int(query.get("ms", ["100"])[0]) / 1000
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for i in range(SLOW_PIECES):
            self.wfile.write(b"x" * (size * (i + 1) // SLOW_PIECES - size * i // SLOW_PIECES))
            self.wfile.flush()
            time.sleep(pause)

    def stream(self, query):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(int(query.get("n", ["5"])[0])):
            self.chunk(b"data: %d\n\n" % i)
            time.sleep(int(query.get("ms", ["100"])[0]) / 1000)
        self.wfile.write(b"0\r\n\r\n")

    def git(self, target):
        """One request of git's smart protocol, as a CGI program answers it."""
        env = dict(os.environ, GIT_PROJECT_ROOT=self.git_folder, GIT_HTTP_EXPORT_ALL="1",
                   REQUEST_METHOD=self.command, QUERY_STRING=target.query,
                   PATH_INFO=target.path[len("/git"):], REMOTE_USER="tester",
                   CONTENT_TYPE=self.headers.get("Content-Type", ""),
                   HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
                   GIT_PROTOCOL=self.headers.get("Git-Protocol", ""),
                   GIT_CONFIG_COUNT="2", GIT_CONFIG_KEY_0="http.receivepack",
                   GIT_CONFIG_VALUE_0="true", GIT_CONFIG_KEY_1="safe.directory",
                   GIT_CONFIG_VALUE_1="*")
        body = b"".join(self.content())
        env["CONTENT_LENGTH"] = str(len(body))
        done = subprocess.run(["git", "http-backend"], input=body, env=env, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = [line.decode("latin-1").partition(":")[::2] for line in head.split(b"\r\n")]
        status = [v for k, v in fields if k.lower() == "status"]
        self.send_response(int(status[0].split()[0]) if status else 200)
        for name, value in fields:
            if name and name.lower() not in ("status", "content-length"):
                self.send_header(name, value.strip())
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)

    def handle_any(self):
        target = urlsplit(self.path)
        query = parse_qs(target.query)
        if target.path.startswith("/git/") and self.git_folder:
            self.git(target)
        elif target.path == "/echo":
            self.answer_json({"method": self.command, "path": self.path,
                              "fields": [[k.lower(), v] for k, v in self.headers.items()]})
        elif target.path == "/slow":
            self.slow(query)
        elif target.path == "/stream":
            self.stream(query)
        else:
            digest, size = hashlib.sha256(), 0
            for piece in self.content():
                digest.update(piece)
                size += len(piece)
            self.answer_json({"method": self.command, "length": size,
                              "sha256": digest.hexdigest()})

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            print(f"origin: {error!r}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--socket", required=True, help="where it listens")
    parser.add_argument("--git", help="folder of bare repositories")
    options = parser.parse_args()
    Handler.git_folder = options.git
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Server(options.socket, Handler) as server:
        os.chmod(options.socket, 0o666)
        print(f"listening {options.socket}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
