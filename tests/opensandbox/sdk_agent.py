"""The Python SDK of OpenSandbox behind lines of JSON, for servers.py. {"op"} in, {"ok"} or
{"error"} out.

Runs in the virtualenv that has the SDK. Keeps the sandboxes that it made or connected to, by id.
"""
import json
import sys
import time
from datetime import timedelta

from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.models.sandboxes import CredentialProxyConfig, NetworkPolicy, NetworkRule
from opensandbox.sync.sandbox import SandboxSync

known = {}


def config(q):
    return ConnectionConfigSync(domain=q["domain"], api_key=q["key"],
                                request_timeout=timedelta(seconds=60))


def plain(value):
    if hasattr(value, "model_dump"):
        return value.model_dump(by_alias=True, mode="json")
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def create(q):
    more = {}
    if q.get("policy") is not None:
        more["network_policy"] = NetworkPolicy.model_validate(q["policy"])
    if q.get("proxy"):
        more["credential_proxy"] = CredentialProxyConfig(enabled=True)
    sandbox = SandboxSync.create(q["image"], connection_config=config(q), env=q.get("env") or {},
                                 timeout=timedelta(seconds=q.get("timeout", 600)),
                                 resource=q.get("resource"), metadata=q.get("metadata") or {},
                                 **more)
    known[sandbox.id] = sandbox
    return sandbox.id


def connect(q):
    known[q["id"]] = SandboxSync.connect(q["id"], connection_config=config(q))
    return q["id"]


def resume(q):
    known[q["id"]] = SandboxSync.resume(q["id"], connection_config=config(q))
    return q["id"]


def rules(q):
    return [NetworkRule.model_validate(r) for r in q["rules"]]


def on_sandbox(q):
    s = known[q["id"]]
    v = s.credential_vault
    return {
        "info": s.get_info,
        "policy_get": s.get_egress_policy,
        "policy_patch": lambda: s.patch_egress_rules(rules(q)),
        "policy_delete": lambda: s.delete_egress_rules(q["targets"]),
        "pause": s.pause,
        "renew": lambda: s.renew(timedelta(seconds=q["seconds"])),
        "kill": s.kill,
        "vault_create": lambda: v.create(credentials=q["credentials"], bindings=q["bindings"]),
        "vault_get": v.get,
        "vault_patch": lambda: v.patch(expected_revision=q.get("expected"),
                                       credentials=q.get("credentials"),
                                       bindings=q.get("bindings")),
        "vault_delete": v.delete,
        "credentials": v.list_credentials,
        "credential": lambda: v.get_credential(q["name"]),
        "bindings": v.list_bindings,
        "binding": lambda: v.get_binding(q["name"]),
    }[q["op"]]()


def main():
    for line in sys.stdin:
        q = json.loads(line)
        begin = time.monotonic()
        try:
            run = {"create": create, "connect": connect, "resume": resume}.get(q["op"], on_sandbox)
            out = {"ok": plain(run(q))}
        except Exception as e:  # whatever the SDK raises is what its user sees
            cause = getattr(e, "error", None)
            out = {"error": {"type": type(e).__name__, "text": str(e),
                             "status": getattr(e, "status_code", None),
                             "code": getattr(cause, "code", None),
                             "message": getattr(cause, "message", None)}}
        out["seconds"] = time.monotonic() - begin
        print(json.dumps(out), flush=True)


main()
