#!/usr/bin/env python3
"""What tests of the lifecycle rely on in tests/e2e/standin.py: that it is honest where it is not
told to lie, that each lie arrives as it was asked for, and that it remembers who asked what."""
import http.client
import json
import os
import shutil
import ssl
import sys
import tempfile
import time
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "e2e"), os.path.join(TESTS, "tools")]
import audit_chain  # noqa: E402
import standin  # noqa: E402
from standin import Lie  # noqa: E402


def call(url, method, path, body=None, fields=None, context=None):
    """(status, fields, document or bytes)"""
    scheme, _, where = url.partition("://")
    host, _, base = where.partition("/")
    c = (http.client.HTTPSConnection(host, timeout=5, context=context) if scheme == "https" else
         http.client.HTTPConnection(host, timeout=5))
    try:
        c.request(method, ("/" + base if base else "") + path,
                  None if body is None else json.dumps(body), fields or {})
        r = c.getresponse()
        data = r.read()
    finally:
        c.close()
    try:
        return r.status, r, json.loads(data)
    except ValueError:
        return r.status, r, data


class Bed(unittest.TestCase):
    VERSION = "1.1.1"
    PORTS = False

    def setUp(self):
        self.top = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.top)
        self.world = standin.World(version=self.VERSION, own_ports=self.PORTS)
        self.addCleanup(self.world.stop)

    def api(self, path, method="GET", body=None, key=standin.KEY, **more):
        return call(self.world.url, method, path, body, {"OPEN-SANDBOX-API-KEY": key} if key else
                    {}, **more)

    def sidecar(self, id, path, method="GET", body=None, token=None):
        end = self.api(f"/v1/sandboxes/{id}/endpoints/18080")[2]
        fields = dict(end["headers"])
        if token:
            fields["OPENSANDBOX-EGRESS-AUTH"] = token
        return call("http://" + end["endpoint"], method, path, body, fields)

    def ids(self, query):
        return [x["id"] for x in self.api("/v1/sandboxes" + query)[2]["items"]]


class Lifecycle(Bed):
    def test_key_is_asked_for(self):
        self.assertEqual(self.api("/v1/sandboxes", key=None)[2]["code"], "MISSING_API_KEY")
        status, _, doc = self.api("/v1/sandboxes", key="wrong")
        self.assertEqual((status, doc["code"]), (401, "INVALID_API_KEY"))
        self.assertEqual(self.api("/health", key=None)[0], 200)

    def test_pages_and_filters(self):
        for i in range(5):
            self.world.create(f"sbx-{i}", {"agent": "a" if i % 2 else "b", "n": str(i)})
        self.world.pause("sbx-3")
        self.assertEqual(self.ids("?page=1&pageSize=2"), ["sbx-4", "sbx-3"])
        self.assertEqual(self.ids("?page=3&pageSize=2"), ["sbx-0"])
        page = self.api("/sandboxes?page=2&pageSize=2")[2]["pagination"]
        self.assertEqual(page, {"page": 2, "pageSize": 2, "totalItems": 5, "totalPages": 3,
                                "hasNextPage": True})
        self.assertEqual(self.ids("?state=Paused&state=Failed"), ["sbx-3"])
        self.assertEqual(self.ids("?state=Running&metadata=agent%3Da"), ["sbx-1"])
        self.assertEqual(self.ids("?metadata=agent%3Db%26n%3D2"), ["sbx-2"])
        self.assertEqual(self.api("/v1/sandboxes?pageSize=201")[0], 422)
        self.assertEqual(self.api("/v1/sandboxes?metadata=x")[0], 400)

    def test_one_sandbox(self):
        self.world.create("sbx-1", {"task": "T-1"}, seconds=60)
        status, r, doc = self.api("/v1/sandboxes/sbx-1")
        self.assertEqual((status, doc["status"]["state"], doc["metadata"]), (200, "Running",
                                                                            {"task": "T-1"}))
        self.assertTrue(r.getheader("X-Request-ID") and doc["expiresAt"].endswith("Z"))
        self.assertEqual(self.api("/v1/sandboxes/other")[2]["code"], "DOCKER::SANDBOX_NOT_FOUND")
        self.assertEqual(self.api("/v1/sandboxes/sbx-1/pause", "POST")[0], 202)
        self.assertEqual(self.api("/v1/sandboxes/sbx-1/pause", "POST")[0], 409)
        self.assertEqual(self.api("/v1/sandboxes/sbx-1/resume", "POST")[0], 202)
        self.world.renew("sbx-1", -1)
        self.assertEqual(self.api("/v1/sandboxes/sbx-1")[0], 404)

    def test_delete(self):
        self.world.create("sbx-1")
        self.assertEqual(self.api("/v1/sandboxes/sbx-1", "DELETE")[0], 204)
        self.assertEqual(self.api("/v1/sandboxes/sbx-1")[0], 404)

    def test_network_policy_is_the_sidecars(self):
        self.world.create("sbx-1")
        wide = {"defaultAction": "allow", "egress": []}
        self.assertEqual(self.api("/v1/sandboxes/sbx-1/networkpolicy", "PUT", wide)[0], 200)
        self.assertEqual(self.sidecar("sbx-1", "/policy")[2]["policy"], {**wide})

    def test_restart_keeps_the_port(self):
        self.world.create("sbx-1")
        self.world.restart()
        self.assertEqual(self.ids(""), ["sbx-1"])

    def test_https(self):
        world = standin.World(self.top)
        self.addCleanup(world.stop)
        good = ssl.create_default_context(cafile=world.ca)
        self.assertEqual(call(world.url_tls, "GET", "/health", context=good)[0], 200)
        with self.assertRaises(ssl.SSLError):
            call(world.url_tls, "GET", "/health", context=ssl.create_default_context())

    def test_log(self):
        self.world.create("sbx-1")
        self.api("/v1/sandboxes?page=1")
        self.sidecar("sbx-1", "/status")
        seen = self.world.http.seen("GET", "/v1/sandboxes.*")
        self.assertEqual([r.target for r in seen],
                         ["/v1/sandboxes?page=1", "/v1/sandboxes/sbx-1/endpoints/18080"])
        self.assertEqual(seen[0].field("open-sandbox-api-key"), standin.KEY)
        self.assertEqual(self.world.calls("sbx-1"), ["GET /status"])
        figures = self.world.figures()
        self.assertEqual((figures["lists"], figures["requests"], figures["sandboxes"]), (1, 2, 1))
        first, second = self.world.rates["sbx-1"]
        self.assertEqual(figures["closest"], round(second - first, 3))


class Older(Bed):
    VERSION = "0.2.3"

    def test_no_network_policy(self):
        self.world.create("sbx-1")
        self.assertEqual(self.api("/v1/sandboxes/sbx-1/networkpolicy")[0], 404)

    def test_the_sidecar_runs_on(self):
        self.world.create("sbx-1")
        self.world.pause("sbx-1")
        self.assertEqual(self.sidecar("sbx-1", "/status")[0], 200)


class OnItsPort(Bed):
    PORTS = True

    def test_endpoint(self):
        for i in range(300):
            self.world.create(f"sbx-{i}")
        ends = {self.api(f"/v1/sandboxes/sbx-{i}/endpoints/18080")[2]["endpoint"] for i in (1, 299)}
        self.assertEqual(len(ends), 2)
        self.assertTrue(all(e.endswith("/proxy/18080") for e in ends))
        self.assertEqual(self.sidecar("sbx-299", "/status")[2]["sandbox"], "sbx-299")
        self.world.delete("sbx-299")
        self.assertEqual(self.world.figures()["requests"], 4)


class OfASidecar(Bed):
    def setUp(self):
        super().setUp()
        self.box = self.world.create("sbx-1")

    def test_token(self):
        self.assertEqual(self.sidecar("sbx-1", "/audit", token="wrong")[0], 401)
        self.assertEqual(self.sidecar("sbx-1", "/healthz", token="wrong")[0], 200)

    def test_trail_is_a_chain(self):
        self.box.sidecar.write(40)
        status, r, body = self.sidecar("sbx-1", "/audit?after=0&limit=15")
        self.assertEqual((status, r.getheader("X-Egress-Audit-Last")), (200, "41"))
        rest = self.sidecar("sbx-1", "/audit?after=15&limit=100")[2]
        path = os.path.join(self.top, "trail")
        with open(path, "wb") as f:
            f.write(body + rest)
        self.assertEqual(audit_chain.check(path), (41, None))
        self.assertEqual(body + rest, self.box.sidecar.trail())

    def test_lines_that_are_gone(self):
        self.box.sidecar.write(9)
        self.box.sidecar.lose(5)
        status, _, doc = self.sidecar("sbx-1", "/audit?after=1")
        self.assertEqual((status, doc["code"]), (410, "lines_gone"))
        self.assertEqual(self.sidecar("sbx-1", "/audit?after=11")[2]["code"], "other_trail")

    def test_vault_and_policy_are_coupled(self):
        vault = {"credentials": [{"name": "m", "source": {"value": "sk"}}],
                 "bindings": [{"name": "m", "match": {"hosts": ["api.test"]},
                               "auth": {"type": "bearer", "credential": "m"}}]}
        policy = {"egress": [{"action": "allow", "target": "api.test"}]}

        def ask(*args):
            status, _, doc = self.sidecar("sbx-1", *args)
            return status, doc["code"] if isinstance(doc, dict) and "code" in doc else None
        self.assertEqual(ask("/credential-vault", "POST", vault), (400, "vault_conflict"))
        self.assertEqual(ask("/policy", "PUT", policy), (200, None))
        self.assertEqual(ask("/credential-vault", "POST", vault), (201, None))
        self.assertEqual(ask("/credential-vault", "POST", vault), (409, "vault_exists"))
        self.assertEqual(ask("/policy", "PUT", {"egress": []}), (400, "vault_conflict"))
        self.assertEqual(self.sidecar("sbx-1", "/credential-vault", "DELETE")[0], 204)
        self.assertEqual(ask("/policy", "PUT", {"egress": []}), (200, None))

    def test_pause_holds_and_resume_answers(self):
        end = self.api("/v1/sandboxes/sbx-1/endpoints/18080")[2]
        self.world.pause("sbx-1")
        host, _, base = end["endpoint"].partition("/")
        c = http.client.HTTPConnection(host, timeout=5)
        self.addCleanup(c.close)
        c.request("GET", f"/{base}/status", headers=end["headers"])
        while not any(x.held for x in list(self.world.http.open)):
            time.sleep(0.01)
        self.world.resume("sbx-1")
        self.assertEqual(c.getresponse().status, 200)

    def test_fresh_start(self):
        self.sidecar("sbx-1", "/policy", "PUT", {"defaultAction": "allow"})
        before = self.box.sidecar.instance
        self.world.resume("sbx-1", fresh=True)
        r = self.sidecar("sbx-1", "/policy")
        self.assertNotEqual(r[1].getheader("X-Egress-Instance"), before)
        self.assertEqual(r[2]["mode"], "deny_all")
        self.assertEqual(self.box.sidecar.seq, 1)


class Lies(Bed):
    PATH = "/v1/sandboxes/sbx-1"

    def setUp(self):
        super().setUp()
        self.world.create("sbx-1")

    def told(self, *args, **named):
        self.world.http.forget()
        self.world.http.lie("GET", self.PATH, Lie(*args, **named))
        return self.api(self.PATH)

    def test_answers(self):
        self.assertEqual(self.told(status=429, fields=[("Retry-After", "7")])[1].headers[
            "Retry-After"], "7")
        self.assertEqual(self.told(body=b"{\"id\":", type="text/html")[2], b"{\"id\":")
        self.assertEqual(self.told(lambda doc: doc.update(id="sbx-2"))[2]["id"], "sbx-2")
        self.assertEqual(self.told(lambda doc: [])[2], [])
        self.assertEqual(len(self.told(body=b" " * 3000000)[2]), 3000000)
        self.assertEqual(self.told(raw=b"HTTP/1.1 200 OK\r\n\r\nrest")[2], b"rest")

    def test_cut(self):
        with self.assertRaises(http.client.IncompleteRead):
            self.told(cut=-5)
        with self.assertRaises(http.client.HTTPException):
            self.told(cut=0)

    def test_slow(self):
        begin = time.monotonic()
        self.told(delay=0.2)
        self.told(drip=2000)
        self.assertGreater(time.monotonic() - begin, 0.3)

    def test_times_and_order(self):
        self.world.http.lie("GET", "/.*", Lie(status=500), times=2)
        self.assertEqual([self.api(self.PATH)[0] for _ in range(3)], [500, 500, 200])
        first = self.world.http.lie("GET", "/.*", Lie(status=503))
        self.world.http.lie("GET", "/.*", Lie(status=504), times=1)
        self.assertEqual([self.api(self.PATH)[0] for _ in range(2)], [504, 503])
        self.world.http.forget(first)
        self.assertEqual(self.api(self.PATH)[0], 200)


class Apart(unittest.TestCase):
    def test_process(self):
        remote = standin.Remote(log=False, own_ports=True)
        try:
            remote.create_many(3)
            status, _, doc = call(remote.info["url"], "GET", "/v1/sandboxes", None,
                                  {"OPEN-SANDBOX-API-KEY": remote.info["key"]})
            self.assertEqual((status, len(doc["items"])), (200, 3))
            self.assertEqual(remote.figures()["lists"], 1)
        finally:
            remote.stop()


if __name__ == "__main__":
    unittest.main()
