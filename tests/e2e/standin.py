#!/usr/bin/env python3
"""A scripted OpenSandbox: the lifecycle API over sandboxes that exist in memory, each with a
stand-in for its sidecar. Library, and a program for tests that must not pay for it.

    world = standin.World(top)                    # top: a folder, for https; None: http alone
    box = world.create("sbx-1", metadata={"agent": "reviewer"})
    box.sidecar.write()                           # a read more on its trail
    world.pause("sbx-1"); world.resume("sbx-1"); world.delete("sbx-1")
    world.http.lie("GET", "/v1/sandboxes/sbx-1", standin.Lie(status=500), times=2)

`standin.py --serve` reads lines `[METHOD, [ARGUMENTS], {NAMED}]` from stdin, calls the method of a
World and answers each with a line of JSON. `standin.py` without it tests itself.
"""
import calendar
import hashlib
import json
import os
import re
import secrets
import sys
import threading
import time
import urllib.parse

from standin_http import Http, Lie, Reply, Request, certificates, error
from standin_sidecar import FIELDS, VERSION, Sidecar, stamp

__all__ = ["FIELDS", "Http", "KEY", "Lie", "Remote", "Reply", "Request", "Sandbox", "Sidecar", "World",
           "certificates"]
KEY = "lifecycle-key-" + secrets.token_hex(12)
PAGE, PAGE_MAX = 20, 200
ROUTE = re.compile(r"(?:/v1)?/sandboxes(?:/([^/]+))?(?:/(.*))?")
PROXIED = re.compile(r"/([^/]+)/proxy/18080(/.*)")


class Sandbox:
    """expires: wall clock, None: never. endpoint: the text for port 18080, None: the honest one."""

    def __init__(self, id, sidecar, metadata=None, expires=None, state="Running"):
        self.id, self.sidecar, self.metadata = id, sidecar, dict(metadata or {})
        self.expires, self.state, self.endpoint, self.headers = expires, state, None, None
        self.created, self.changed, self.more = time.time(), time.time(), {}
        self.port = None

    def move(self, state):
        self.state, self.changed = state, time.time()

    def doc(self):
        doc = {"id": self.id, "image": {"uri": "registry.example/ws:12"},
               "status": {"state": self.state, "reason": f"CONTAINER_{self.state.upper()}",
                          "message": f"Sandbox is {self.state.lower()}.",
                          "lastTransitionAt": stamp(self.changed)},
               "metadata": self.metadata, "entrypoint": ["sleep", "infinity"],
               "createdAt": stamp(self.created)}
        if self.expires is not None:
            doc["expiresAt"] = stamp(self.expires)
        doc.update(self.more)
        return doc


class World:
    """version: of the server. "0.2.3" lacks /networkpolicy, and lets a sidecar run on in a pause.
    own_ports: each sidecar has a port, as on Docker; else all share one, by the path.
    key None: the server asks for none."""

    def __init__(self, top=None, version="1.1.1", key=KEY, own_ports=False, log=True, number=0):
        self.http, self.version, self.key = Http(log), version, key
        self.own_ports, self.log, self.boxes, self.lock = own_ports, log, {}, threading.RLock()
        self.rates, self.list_times = {}, []
        self.http.on_request = self.on_request
        self.ca = tls = None
        if top:
            self.ca, tls = certificates(top)
        self.api = self.http.listen(self.on_api, number=number)
        self.api_tls = self.http.listen(self.on_api, tls=tls) if tls else None
        self.shared = self.http.listen(self.on_sidecar)
        self.url = f"http://127.0.0.1:{self.api.number}"
        self.url_tls = f"https://127.0.0.1:{self.api_tls.number}" if tls else None

    # ---- what a test does

    def create(self, id, metadata=None, seconds=None, policy=None, state="Running",
               version=VERSION):
        sidecar = Sidecar(id, policy, version, keep=self.log)
        box = Sandbox(id, sidecar, metadata, time.time() + seconds if seconds else None, state)
        if self.own_ports:
            box.port = self.http.listen(lambda request: self.on_own(box, request))
        with self.lock:
            self.boxes[id] = box
        return box

    def create_many(self, count, lines=1):
        """sbx-0 and so on, for a program that has no use for the objects."""
        for i in range(count):
            self.create(f"sbx-{i}", {"task": f"T-{i}", "agent": "reviewer"}).sidecar.write(lines)

    def pause(self, id):
        box = self.boxes[id]
        box.move("Paused")
        box.sidecar.frozen = self.version >= "1"

    def resume(self, id, fresh=False):
        """fresh: as on Kubernetes, where the sidecar starts anew."""
        box = self.boxes[id]
        box.sidecar.frozen = False
        if fresh:
            box.sidecar.start()
        box.move("Running")
        self.http.wake()

    def renew(self, id, seconds):
        self.boxes[id].expires = time.time() + seconds

    def delete(self, id):
        with self.lock:
            box = self.boxes.pop(id)
        if box.port:
            self.http.close(box.port)

    def write(self, id, n=1, **more):
        return self.boxes[id].sidecar.write(n, **more).decode()

    def write_all(self, n=1):
        for box in list(self.boxes.values()):
            box.sidecar.write(n)

    def digests(self):
        """{id: SHA-256 of its whole trail}"""
        return {b.id: hashlib.sha256(b.sidecar.trail()).hexdigest() for b in self.boxes.values()}

    def restart(self, seconds=0):
        """The server goes away and comes back at the same port; sidecars do not notice."""
        self.http.close(self.api)
        time.sleep(seconds)
        self.api = self.http.listen(self.on_api, number=self.api.number)

    def stop(self):
        self.http.stop()

    def calls(self, id):
        """"METHOD /path" of what a sidecar was asked, in order."""
        return [f"{method} {path}" for _, method, path in self.boxes[id].sidecar.calls]

    def figures(self):
        """What was asked of whom: {"lists": n, "sandboxes": n, "requests": n, "closest": the least
        seconds between two requests about one sandbox (of server or sidecar), None without two}"""
        gaps = [b - a for times in self.rates.values() for a, b in zip(times, times[1:])]
        return {"lists": len(self.list_times), "sandboxes": len(self.rates),
                "requests": sum(len(t) for t in self.rates.values()),
                "closest": round(min(gaps), 3) if gaps else None}

    def figures_clear(self):
        self.rates, self.list_times = {}, []

    # ---- requests

    def on_request(self, request):
        """By sandbox, whoever is asked about it."""
        route = ROUTE.fullmatch(request.path)
        if route and not route[1]:
            self.list_times.append(request.time)
            return
        proxied = PROXIED.fullmatch(request.path)
        id = route[1] if route else proxied[1] if proxied else self.of_port(request.port)
        if id:
            self.rates.setdefault(id, []).append(request.time)

    def of_port(self, number):
        return next((b.id for b in self.boxes.values() if b.port and b.port.number == number), None)

    def on_own(self, box, request):
        """/proxy/18080/... on the sandbox's own port, as execd forwards it."""
        if not request.path.startswith("/proxy/18080/"):
            return error(404, "NOT_FOUND", "no such port")
        return box.sidecar.handle(request, request.path[len("/proxy/18080"):])

    def on_sidecar(self, request):
        """The same for all on one port: /ID/proxy/18080/..."""
        m = PROXIED.fullmatch(request.path)
        box = self.boxes.get(m[1]) if m else None
        return box.sidecar.handle(request, m[2]) if box else error(502, "BAD_GATEWAY", "no backend")

    def expire(self):
        now = time.time()
        with self.lock:
            for id in [b.id for b in self.boxes.values() if b.expires and b.expires <= now]:
                self.delete(id)

    def on_api(self, request):
        reply = self.api_route(request)
        reply.fields.append(("X-Request-ID", secrets.token_hex(16)))
        return reply

    def api_route(self, request):
        self.expire()
        if request.path == "/health":
            return Reply(200, {"status": "healthy"})
        key = request.field("OPEN-SANDBOX-API-KEY")
        if self.key is not None and not key:
            return error(401, "MISSING_API_KEY", "Authentication credentials are missing.")
        if self.key is not None and key != self.key:
            return error(401, "INVALID_API_KEY", "Authentication credentials are invalid.")
        route = ROUTE.fullmatch(request.path)
        if not route:
            return Reply(404, {"detail": "Not Found"})
        if not route[1]:
            return self.list(request)
        with self.lock:
            box = self.boxes.get(urllib.parse.unquote(route[1]))
        if not box:
            return error(404, "DOCKER::SANDBOX_NOT_FOUND", f"Sandbox {route[1]} not found.")
        return self.of_sandbox(request, box, route[2] or "")

    def of_sandbox(self, request, box, rest):
        if rest == "" and request.method == "GET":
            return Reply(200, box.doc())
        if rest == "" and request.method == "DELETE":
            self.delete(box.id)
            return Reply(204)
        if rest in ("pause", "resume") and request.method == "POST":
            needs = {"pause": "Running", "resume": "Paused"}[rest]
            if box.state != needs:
                return error(409, f"DOCKER::SANDBOX_NOT_{needs.upper()}",
                             f"Sandbox is not in a {needs.lower()} state.")
            getattr(self, rest)(box.id)
            return Reply(202)
        if rest == "renew-expiration" and request.method == "POST":
            text = request.doc()["expiresAt"][:19]
            box.expires = calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
            return Reply(200, {"expiresAt": stamp(box.expires)})
        if rest == "endpoints/18080" and request.method == "GET":
            return Reply(200, self.endpoint(box))
        if rest == "networkpolicy" and self.version >= "1":
            if request.method == "POST":
                return Reply(405, {"detail": "Method Not Allowed"})
            if box.sidecar.frozen:
                return Reply(silent=True)
            return box.sidecar.on_policy(request)
        return Reply(404, {"detail": "Not Found"})

    def endpoint(self, box):
        where = box.endpoint
        if where is None:
            where = (f"127.0.0.1:{box.port.number}/proxy/18080" if box.port else
                     f"127.0.0.1:{self.shared.number}/{box.id}/proxy/18080")
        headers = box.headers
        if headers is None:
            headers = {"OPENSANDBOX-EGRESS-AUTH": box.sidecar.token}
        return {"endpoint": where, "headers": headers}

    def list(self, request):
        if request.method != "GET":
            return error(400, "SANDBOX::INVALID_PARAMETER", "not here")
        try:
            page = int(request.query.get("page", [1])[0])
            size = int(request.query.get("pageSize", [PAGE])[0])
        except ValueError:
            page = size = 0
        if page < 1 or not 1 <= size <= PAGE_MAX:
            return Reply(422, {"detail": [{"type": "less_than_equal", "loc": ["query", "pageSize"],
                                           "msg": f"Input should be 1 to {PAGE_MAX}"}]})
        states = request.query.get("state", [])
        text = request.query.get("metadata", [""])[0]
        try:
            wanted = dict(urllib.parse.parse_qsl(text, keep_blank_values=True,
                                                 strict_parsing=True)) if text else {}
        except ValueError as e:
            return error(400, "INVALID_METADATA_FORMAT", f"Invalid metadata format: {e}")
        with self.lock:
            found = [b for b in self.boxes.values() if (not states or b.state in states) and
                     all(b.metadata.get(k) == v for k, v in wanted.items())]
        found.sort(key=lambda b: b.created, reverse=True)
        pages = -(-len(found) // size)
        items = [b.doc() for b in found[(page - 1) * size:page * size]]
        return Reply(200, {"items": items, "pagination": {
            "page": page, "pageSize": size, "totalItems": len(found), "totalPages": pages,
            "hasNextPage": page < pages}})


class Remote:
    """A World in a process of its own: remote.create_many(300), ..."""

    def __init__(self, **settings):
        import subprocess
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve"], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.info = self.call("__init__", **settings)

    def call(self, name, *args, **named):
        self.p.stdin.write(json.dumps([name, args, named]) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise OSError("the stand-in ended")
        return json.loads(line)

    def __getattr__(self, name):
        return lambda *args, **named: self.call(name, *args, **named)

    def stop(self):
        self.p.stdin.close()
        self.p.wait(10)
        self.p.stdout.close()


def serve():
    world = None
    for line in sys.stdin:
        name, args, named = json.loads(line)
        if name == "__init__":
            world = World(*args, **named)
            out = {"url": world.url, "key": world.key, "pid": os.getpid()}
        else:
            out = getattr(world, name)(*args, **named)
        print(json.dumps(out if isinstance(out, (dict, list, str, int, type(None))) else None),
              flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
        sys.exit(0)
    print(__doc__)
