"""The credential vault through both SDKs, and keys that must be nowhere: cases of flow.py.

Keys are random, so that no eight bytes of one are anywhere by chance (tests/e2e/leakscan.py). What
the origin got is in its log; what the sandbox got is curl's output.
"""
import base64
import json
import os
import secrets
import sys

import closed_world
import servers
from closed_world import Failed, want

sys.path.insert(0, os.path.join(closed_world.TESTS, "e2e"))
import leakscan  # noqa: E402

MODEL_URL = "https://api.model.test/v1/messages"
SLOT = "__SITE_KEY__"
ODD_NAME = "team/key one"  # its slash arrives decoded, its blank does not


def fresh(t):
    key = secrets.token_urlsafe(30).replace("-", "a").replace("_", "b")
    t.keys.append(key)
    return key


def inline(name, value):
    return {"name": name, "source": {"type": "inline", "value": value}}


def binding(name, host, auth, methods=("GET", "POST"), paths=("/v1/*",)):
    return {"name": name, "auth": auth,
            "match": {"hosts": [host], "methods": list(methods), "paths": list(paths)}}


MODEL = binding("model", "api.model.test", {"type": "bearer", "credential": "model-key"})
REPO = binding("repo", "site.test", {"type": "basic", "credential": "repo-login"}, ["GET"],
               ["/team/app.git", "/team/app.git/*"])
SITE = binding("site", "sub.site.test", {"type": "passthrough", "substitutions": [
    {"credential": ODD_NAME, "placeholder": SLOT, "in": ["header"]}]}, ["GET"], ["/*"])


def shows_no_key(t, out):
    text = json.dumps(out)
    found = [k for k in t.keys if k in text]
    if found:
        raise Failed(f"an answer shows a key: {text}")
    return out


def names(state):
    return tuple([x["name"] for x in state[kind]] for kind in ("credentials", "bindings"))


def sent_key(t):
    """What the model's origin got as Authorization."""
    return t.arrives(MODEL_URL, "-d", "{}", "-H", "Authorization: Bearer mine")["authorization"]


def vault_by_python(t):
    """None, created, shown, used: and only where it is bound."""
    error = t.raises("python", "vault_get")
    want((error["status"], error["code"]), (404, "vault_not_found"), "before its creation")
    key = t.key = fresh(t)
    state = t.sdk("python", "vault_create", credentials=[inline("model-key", key)],
                  bindings=[MODEL])
    want((state["revision"], *names(state)), (1, ["model-key"], ["model"]), "what was created")
    want(shows_no_key(t, t.sdk("python", "vault_get")), state, "what is shown")
    want(sent_key(t), f"Bearer {key}", "what the model got")
    want(t.arrives("https://api.model.test/other")["authorization"], "", "outside of the paths")
    want(t.arrives("https://read.test/v1/messages")["authorization"], "", "at another host")
    _, out = t.inside("curl", "-s", "-m", "8", "https://api.model.test/v1/mirror")
    if key in out or "*" * len(key) not in out:
        raise Failed(f"the model's answer is {out!r}")
    error = t.raises("python", "vault_create", credentials=[], bindings=[])
    want((error["status"], error["code"]), (409, "vault_exists"), "a second creation")


def vault_stale_revision(t):
    """Refused to both SDKs, and nothing changes."""
    for which in ("python", "js"):
        error = t.raises(which, "vault_patch", expected=7, credentials={
            "replace": [inline("model-key", fresh(t))]})
        want(error["status"], 409, f"status by {which}")
        if "expectedRevision 7 does not match current revision 1" not in error["text"]:
            raise Failed(f"{which}: {error['text']!r}")
    want(t.sdk("python", "vault_get")["revision"], 1, "revision")
    want(sent_key(t), f"Bearer {t.key}", "what the model got")


def vault_rotated_by_javascript(t):
    """A new value for the same name: the next request has it."""
    t.key = fresh(t)
    state = t.sdk("js", "vault_patch", expected=1,
                  credentials={"replace": [inline("model-key", t.key)]})
    want((state["revision"], state["credentials"][0]["revision"]), (2, 2), "revisions")
    shows_no_key(t, t.sdk("js", "vault_get"))
    want(sent_key(t), f"Bearer {t.key}", "what the model got")


def vault_patched_by_both(t):
    """Bindings of three kinds, items by name, and one that goes again."""
    login = base64.b64encode(b"bot:" + fresh(t).encode()).decode()
    t.keys.append(login)
    state = t.sdk("python", "vault_patch", expected=2, bindings={"add": [REPO]},
                  credentials={"add": [inline("repo-login", login)]})
    want(names(state), (["model-key", "repo-login"], ["model", "repo"]), "what it is now")
    want(t.arrives("https://site.test/team/app.git/info/refs?service=x")["authorization"],
         f"Basic {login}", "what the repository got")
    want(t.arrives("https://site.test/team/other.git/info/refs")["authorization"], "",
         "what its neighbour got")
    key = fresh(t)
    t.sdk("js", "vault_patch", expected=3, credentials={"add": [inline(ODD_NAME, key)]},
          bindings={"add": [SITE]})
    want(t.arrives("https://sub.site.test/x", "-H", f"X-Api-Key: {SLOT}")["key"], key,
         "what the site got for the placeholder")
    for which in ("python", "js"):
        want(t.sdk(which, "credential", name=ODD_NAME)["name"], ODD_NAME, f"item by {which}")
        want(t.sdk(which, "binding", name="repo")["auth"]["type"], "basic", f"binding by {which}")
        lists = {x: t.sdk(which, x) for x in ("credentials", "bindings")}
        want(names(lists), (["model-key", "repo-login", ODD_NAME], ["model", "repo", "site"]),
             f"lists by {which}")
        error = t.raises(which, "credential", name="nobody")
        want(error["status"], 404, f"a missing item by {which}")
    t.sdk("python", "vault_patch", bindings={"delete": ["site"]},
          credentials={"delete": [ODD_NAME]})
    want(t.get("https://sub.site.test/x", "-H", f"X-Api-Key: {SLOT}"), 200, "a placeholder unbound")
    want(t.sdk("js", "vault_get")["revision"], 5, "revision")


def vault_and_policy_agree(t):
    """Neither may take away what the other needs."""
    for which in ("python", "js"):
        error = t.raises(which, "policy_delete", targets=["api.model.test"])
        want(error["status"], 400, f"a bound host taken away by {which}")
        error = t.raises(which, "vault_patch", bindings={"add": [
            binding("far", "evil.test", {"type": "bearer", "credential": "model-key"})]})
        want(error["status"], 400, f"a binding to a host that is not allowed, by {which}")
        error = t.raises(which, "vault_patch", credentials={"delete": ["model-key"]})
        want(error["status"], 400, f"a credential in use taken away by {which}")
    if t.server.version >= "1":
        t.api("PUT", f"/v1/sandboxes/{t.id}/networkpolicy", {"defaultAction": "deny", "egress": []},
              should=400)
    want(t.sdk("python", "vault_get")["revision"], 5, "revision")
    want(sent_key(t), f"Bearer {t.key}", "what the model got")


def the_vault_is_still_there(t):
    """After kill -9 of the worker and a pause: the same revision and key."""
    want(t.sdk("python", "vault_get")["revision"], 5, "revision")
    want(sent_key(t), f"Bearer {t.key}", "what the model got")


def places(t):
    """{what: file or folder} of all of the containers that is on a disk or told to somebody."""
    top = t.world.path(f"leak-{t.server.version}")
    os.makedirs(top, exist_ok=True)
    found = {}

    def note(name, text):
        found[name] = os.path.join(top, name.replace(" ", "-"))
        with open(found[name], "w") as f:
            f.write(text)
    for name in (t.sidecar, f"sandbox-{t.id}"):
        facts = t.engine.inspect(name)
        note(f"inspect of {name}", json.dumps(facts))
        logs = t.engine.run("logs", name)
        note(f"logs of {name}", logs.stdout + logs.stderr)
        note(f"changed files of {name}", t.engine.docker("diff", name))
        layer = facts["GraphDriver"]["Data"].get("UpperDir")
        if layer:
            found[f"layer of {name}"] = layer
        if name == t.sidecar or not layer:  # the sandbox's is mostly Debian
            export = found[f"export of {name}"] = os.path.join(top, f"{name}.tar")
            t.engine.docker("export", "-o", export, name)
    found["volume"] = os.path.join(t.engine.data, "volumes", f"opensandbox-runtime-{t.id}")
    return found


def keys_are_nowhere(t):
    """Memory outside the locked areas, writable layer, export, inspect, logs, volume."""
    keys = [k.encode() for k in t.keys]
    found = places(t)
    seen = leakscan.search_files(found.values(), keys)
    files = seen.bytes
    leakscan.search_memory(t.engine.pid(t.sidecar), keys, seen)
    t.say(f"{len(keys)} keys, {files} bytes of files, {seen.bytes - files} bytes of memory, "
          f"{seen.secret} secret areas, {len(seen.found)} places found")
    if seen.found:
        raise Failed(f"keys in {seen.found[:5]}")
    if not files or seen.bytes == files or not seen.secret:
        raise Failed("the search looked at nothing")
    with open(found[f"changed files of {t.sidecar}"]) as f:
        want(f.read().strip(), "", "files in the sidecar's writable layer")
    _, _, fields = t.server.sidecar(t.id)
    token = fields["OPENSANDBOX-EGRESS-AUTH"]
    for name, path in found.items():
        others = {"the platform's key": servers.KEY}
        if not name.startswith("inspect of "):  # there the server puts it
            others["the token"] = token
        if f"sandbox-{t.id}" not in name:  # its OpenSSL has the words
            others["a private key"] = "PRIVATE KEY-----"
        for what, text in others.items():
            if holds(path, text.encode()):
                raise Failed(f"{what} is in {name}")


def holds(path, text):
    for folder, _, names in os.walk(path) if os.path.isdir(path) else [("", (), [path])]:
        for name in names:
            full = os.path.join(folder, name)
            if os.path.isfile(full) and not os.path.islink(full):
                with open(full, "rb") as f:
                    if text in f.read():
                        return True
    return False


def a_planted_key_is_found(t):
    """The same search, where a key was put into a layer and into an environment."""
    key = secrets.token_hex(20)
    path = t.world.path("plant")
    with open(path, "w") as f:
        f.write(f"x{key}x")
    t.engine.docker("create", "--name", "planted", "-e", f"PLANT={key}", t.server.image)
    t.engine.docker("cp", path, "planted:/opt/opensandbox-egress/plant")
    export, facts = t.world.path("planted.tar"), t.world.path("planted.json")
    t.engine.docker("export", "-o", export, "planted")
    with open(facts, "w") as f:
        f.write(json.dumps(t.engine.inspect("planted")))
    layer = t.engine.inspect("planted")["GraphDriver"]["Data"].get("UpperDir", export)
    t.engine.docker("start", "planted")
    try:
        for where in (export, facts, layer):
            if not leakscan.search_files([where], [key.encode()]).found:
                raise Failed(f"the key planted in {where} was not found")
        pid = t.engine.pid("planted")
        if not leakscan.search_memory(pid, [key.encode()]).found:
            raise Failed("the key planted in the environment was not found in memory")
    finally:
        t.engine.docker("rm", "-fv", "planted")


def vault_deleted(t):
    """And what was bound is plain traffic again."""
    t.sdk("js", "vault_delete")
    for which in ("python", "js"):
        want(t.raises(which, "vault_get")["status"], 404, f"after its end, by {which}")
        want(t.raises(which, "vault_delete")["status"], 404, f"a second delete, by {which}")
    want(t.arrives("https://api.model.test/v1/after")["authorization"], "", "what the model got")
    state = t.sdk("js", "vault_create", credentials=[], bindings=[])
    want((state["revision"], state["credentials"], state["bindings"]), (1, [], []), "a new vault")
    t.sdk("python", "vault_delete")


BEFORE = (vault_by_python, vault_stale_revision, vault_rotated_by_javascript, vault_patched_by_both,
          vault_and_policy_agree)
AFTER = (the_vault_is_still_there, keys_are_nowhere, a_planted_key_is_found, vault_deleted)
