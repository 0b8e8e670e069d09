"""A stand-in for a sidecar: its API as docs/api.md has it, and a trail as docs/audit-log.md has it.

Comes before standin.py, which gives each sandbox one. Nothing is enforced; a test writes the lines.
"""
import hashlib
import json
import secrets
import time

from standin_http import Reply, error

VERSION = "0.1.0"
BYTES_MAX, LIMIT, LIMIT_MAX = 256 << 10, 100, 1000
START = "2026-01-02T03:04:05.000000Z"
# Fields of a line in their order, without those of the chain.
FIELDS = ("ts", "id", "sandbox", "context", "kind", "verdict", "reason", "method", "url", "host",
          "port", "addr", "status", "up", "down", "ms", "via", "alpn", "rule", "binding",
          "revision", "proof", "uid", "user_agent")


def stamp(wall=None):
    wall = time.time() if wall is None else wall
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall)) + f".{int(wall % 1 * 1e6):06}Z"


def allows(policy, host):
    for rule in policy["egress"]:
        target = rule.get("target", "")
        if target == host or (target.startswith("*.") and host.endswith(target[1:])):
            return rule["action"] == "allow"
    return policy["defaultAction"] == "allow"


class Sidecar:
    """id: of its sandbox, or another where it is not its sidecar. calls: (time, method, path)."""

    def __init__(self, id, policy=None, version=VERSION, keep=True):
        self.id, self.version, self.token = id, version, secrets.token_urlsafe(24)
        self.start_policy = policy or {"defaultAction": "deny", "egress": []}
        self.frozen, self.seq, self.keep = False, 0, keep
        self.calls, self.unauthorized = [], 0
        self.start()

    def start(self):
        """A fresh start, as after a resume on Kubernetes: another instance, the policy of the
        environment, no vault, no labels and a trail that begins anew."""
        self.instance = secrets.token_hex(8)
        self.policy, self.revision = json.loads(json.dumps(self.start_policy)), 1
        self.vault, self.labels = None, {}
        self.seq, self.prev, self.lines, self.oldest, self.reads = 0, "0" * 64, [], 1, 0
        self.write(kind="start", rule=f"egress {self.version}, instance {self.instance}")

    # ---- the trail

    def write(self, n=1, **more):
        """n lines more; fields as docs/audit-log.md names them. The last line."""
        for _ in range(n):
            self.seq += 1
            fields = dict.fromkeys(FIELDS)
            fields.update(ts=stamp(), id=f"{self.seq:016x}", sandbox=self.id, kind="read",
                          context=self.labels or None, verdict="allowed", reason="allowed", up=0,
                          down=0, ms=0)
            if more.get("kind", "read") == "read":
                self.reads += 1
                url = f"https://docs.test/{self.seq}"
                fields.update(method="GET", url=url, host="docs.test", port=443, status=200,
                              addr="192.0.2.1", via="connect", alpn="http/1.1", up=100, down=2000,
                              rule="allow docs.test")
            fields.update(more)
            body = json.dumps(fields, separators=(",", ":"))[1:-1]
            line = f'{{"v":1,"seq":{self.seq},{body},"prev":"{self.prev}"}}'.encode()
            self.prev = hashlib.sha256(line).hexdigest()
            self.lines.append(line + b"\n")
        return self.lines[-1]

    def trail(self):
        return b"".join(self.lines)

    def lose(self, oldest):
        """Lines before this number are not in memory any more."""
        self.oldest = oldest

    def audit(self, request):
        try:
            after = int(request.query.get("after", [self.oldest - 1])[0])
            limit = int(request.query.get("limit", [LIMIT])[0])
        except ValueError:
            return error(400, "invalid_query", "after and limit are numbers")
        if not 1 <= limit <= LIMIT_MAX or after < 0:
            return error(400, "invalid_query", f"limit is 1 to {LIMIT_MAX}")
        fields = [("X-Egress-Audit-Oldest", self.oldest), ("X-Egress-Audit-Last", self.seq)]
        if after > self.seq:
            return error(409, "other_trail", f"the last line is {self.seq}", fields=fields)
        if after + 1 < self.oldest:
            return error(410, "lines_gone", f"lines {after + 1} to {self.oldest - 1} are not in "
                         f"memory any more; go on with after={self.oldest - 1}", fields=fields)
        out = b""
        for line in self.lines[after:after + limit]:
            if len(out) + len(line) > BYTES_MAX:
                break
            out += line
        return Reply(200, body=out, type="application/x-ndjson", fields=fields)

    # ---- the routes

    def handle(self, request, path):
        """The answer to a request for this path of the sidecar."""
        if self.keep:
            self.calls.append((request.time, request.method, path))
        if self.frozen:
            return Reply(silent=True)
        reply = self.route(request, path)
        reply.fields.append(("X-Egress-Instance", self.instance))
        return reply

    def route(self, request, path):
        if path == "/healthz":
            return Reply(200, body=b"ok", type="text/plain; charset=utf-8")
        if request.field("OPENSANDBOX-EGRESS-AUTH") != self.token:
            self.unauthorized += 1
            return error(401, "unauthorized", "unauthorized")
        known = {"/policy": self.on_policy, "/status": self.on_status, "/audit": self.audit,
                 "/audit/context": self.on_context, "/credential-vault": self.on_vault}.get(path)
        if not known:
            return error(404, "not_found", "not found")
        try:
            return known(request)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            return error(400, "malformed", f"{type(e).__name__}: {e}")

    def on_status(self, request):
        return Reply(200, {
            "version": self.version, "instance": self.instance, "sandbox": self.id,
            "started": START, "uptimeSeconds": 7, "mode": "dns+nft", "readOnly": True,
            "health": {"state": "ok", "parts": []},
            "policy": {"revision": self.revision, "mode": self.mode(),
                       "defaultAction": self.policy["defaultAction"],
                       "rules": len(self.policy["egress"]), "denyAlways": 0, "allowAlways": 0},
            "writeHosts": ["api.model.test"],
            "vault": {"revision": self.vault["revision"]} if self.vault else None,
            "lifecycle": None,
            "audit": {"seq": self.seq, "oldest": self.oldest, "reads": self.reads, "refusals": 0,
                      "last": stamp(), "context": self.labels},
            "api": {"unauthorized": self.unauthorized}, "warnings": []})

    def mode(self):
        if self.policy["egress"]:
            return "enforcing"
        return "allow_all" if self.policy["defaultAction"] == "allow" else "deny_all"

    def on_policy(self, request):
        if request.method in ("PUT", "POST"):
            doc = json.loads(request.body or b"{}") or {}
            new = {"defaultAction": doc.get("defaultAction") or "deny",
                   "egress": list(doc.get("egress") or [])}
            for rule in new["egress"]:
                if rule["action"] not in ("allow", "deny"):
                    return error(400, "invalid_policy", f"action {rule['action']!r}")
            for binding in (self.vault or {"bindings": []})["bindings"]:
                for host in binding["match"]["hosts"]:
                    if not allows(new, host):
                        return error(400, "vault_conflict", f"{binding['name']} needs {host}")
            self.policy, self.revision = new, self.revision + 1
            self.write(kind="policy", method=request.method, rule=f"revision {self.revision}")
        elif request.method != "GET":
            return error(405, "method_not_allowed", "method not allowed",
                         fields=[("Allow", "GET, POST, PUT")])
        doc = {"status": "ok", "mode": self.mode(), "enforcementMode": "dns+nft"}
        if request.method == "GET":
            doc["policy"] = {"egress": self.policy["egress"],
                             "defaultAction": self.policy["defaultAction"]}
        return Reply(200, doc)

    def on_context(self, request):
        if request.method == "PUT":
            self.labels = dict(request.doc().get("labels") or {})
            self.write(kind="context", rule="set" if self.labels else "cleared")
            return Reply(200, {"labels": self.labels, "seq": self.seq})
        return Reply(200, {"labels": self.labels})

    def on_vault(self, request):
        """POST, GET and DELETE, and a PATCH that only adds and replaces. Values are kept to be
        looked at by tests, never answered."""
        v = self.vault
        if request.method == "POST":
            if v:
                return error(409, "vault_exists", "a vault exists")
            return self.vault_set(request.doc(), 1, 201)
        if not v:
            return error(404, "vault_not_found", "no vault")
        if request.method == "DELETE":
            self.vault = None
            self.write(kind="vault", method="DELETE", rule="deleted")
            return Reply(204)
        if request.method == "PATCH":
            patch = request.doc()
            if patch.get("expectedRevision", v["revision"]) != v["revision"]:
                return error(409, "revision_mismatch", f"the revision is {v['revision']}")
            doc = {}
            for part in ("credentials", "bindings"):
                changes = patch.get(part) or {}
                items = {x["name"]: x for x in v[part]}
                for name in changes.get("delete") or []:
                    del items[name]
                for x in (changes.get("replace") or []) + (changes.get("add") or []):
                    items[x["name"]] = x
                doc[part] = list(items.values())
            return self.vault_set(doc, v["revision"] + 1, 200)
        return self.vault_state(200)

    def vault_set(self, doc, revision, status):
        new = {"revision": revision, "credentials": doc.get("credentials") or [],
               "bindings": doc.get("bindings") or []}
        for binding in new["bindings"]:
            for host in binding["match"]["hosts"]:
                if not allows(self.policy, host):
                    return error(400, "vault_conflict", f"no rule allows {host}")
        self.vault = new
        self.write(kind="vault", revision=revision)
        return self.vault_state(status)

    def vault_state(self, status):
        v = self.vault
        return Reply(status, {
            "revision": v["revision"],
            "credentials": [{"name": c["name"], "sourceType": "inline", "revision": v["revision"]}
                            for c in v["credentials"]],
            "bindings": [{"name": b["name"], "revision": v["revision"], "match": b["match"],
                          "auth": {"type": (b.get("auth") or {}).get("type")}}
                         for b in v["bindings"]]})
