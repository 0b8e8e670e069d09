"""Hooks for schemathesis: loaded into it by api.py, whose environment they read.

Before: schemathesis has made a request from docs/egress-api.yaml; after: it judges the answer. Requests
that only make sense in a certain state get that state first, nine times out of ten: a vault is made
before one is read, taken away before one is created. In the pass of the good ones contents of the vault
are written so that their parts fit together, since no schema can say that a binding needs its
credential; in the other one every second is. What each operation answered is counted, and written down
at the end.
"""
import atexit
import collections
import json
import os
import random

import requests
import schemathesis
from hypothesis import strategies as st

URL, TOKEN = os.environ["API_URL"], os.environ["API_TOKEN"]
NAMES = ("k", "key/with/slash", "one two", "tools.git", "Z9")
HOSTS = ("api.example.com", "maps.example.com", "*.wild.example.com", "git.example.com")
OTHERS = "methods that are not described"
COUNTS = collections.defaultdict(collections.Counter)
RANDOM = random.Random(1)
SESSION = requests.Session()
SESSION.trust_env = False


def call(method, path, body=None):
    return SESSION.request(method, URL + path, json=body, timeout=30,
                           headers={"OPENSANDBOX-EGRESS-AUTH": TOKEN})


# --- contents whose parts fit together ---

def credential(name):
    value = st.text("abcdefXYZ0123456789+/=-_", min_size=12, max_size=80)
    return st.builds(lambda v, typed: {"name": name, "source": {
        **({"type": "inline"} if typed else {}), "value": v}}, value, st.booleans())


def auths(name):
    subs = st.lists(st.builds(
        lambda where: {"credential": name, "placeholder": "__PLACEHOLDER__", "in": where},
        st.lists(st.sampled_from(["path", "query", "header", "header:X-Key", "query:key",
                                  "json:/a/b", "form:key"]), min_size=1, max_size=1)), max_size=1)
    field = st.sampled_from(["X-Api-Key", "private-token", "Authorization", "x-goog-api-key"])
    return st.one_of(
        st.builds(lambda t, s: {"type": t, "credential": name, "substitutions": s},
                  st.sampled_from(["bearer", "basic"]), subs),
        st.builds(lambda f: {"type": "apiKey", "name": f, "credential": name}, field),
        st.builds(lambda f: {"type": "customHeaders", "headers": [
            {"name": f, "credential": name}, {"name": "X-Second", "credential": name}]}, field),
        st.builds(lambda s: {"type": "passthrough", "substitutions": s}, subs))


def binding(i, name):
    """Number i has paths of its own, so that no two overlap."""
    return st.builds(
        lambda auth, hosts, methods, more: {"name": f"b{i}/{name}", "auth": auth, "match": {
            "hosts": hosts, "paths": [f"/v{i}/*", f"/v{i}"], **methods, **more}},
        auths(name), st.lists(st.sampled_from(HOSTS), min_size=1, unique=True),
        st.sampled_from([{}, {"methods": ["GET", "HEAD", "propfind"]}, {"methods": ["POST"]}]),
        st.sampled_from([{}, {"schemes": ["https"]}, {"ports": [443, 80]}]))


@st.composite
def vault(draw):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    return {"credentials": [draw(credential(n)) for n in names],
            "bindings": [draw(binding(i, n)) for i, n in enumerate(names) if draw(st.booleans())]}


def state():
    a = call("GET", "/credential-vault")
    return a.json() if a.status_code == 200 else None


@st.composite
def change(draw):
    """A PATCH of what prepare() puts there."""
    free = sorted(set(NAMES) - {"k", "tools.git"})
    out = {"credentials": {"add": [draw(credential(draw(st.sampled_from(free))))]}}
    if draw(st.booleans()):
        out["credentials"]["replace"] = [draw(credential("k"))]
    if draw(st.booleans()):
        out["bindings"] = {"delete": ["first"], "add": [draw(binding(7, "k"))]}
    if draw(st.booleans()):
        out["expectedRevision"] = 1
    return out


def rules():
    target = st.builds(lambda wild, a, b: f"{wild}{a}.{b}.example", st.sampled_from(["", "*."]),
                       *[st.text("abcdefgh0123", min_size=1, max_size=9)] * 2)
    return st.lists(st.builds(lambda a, t, p: {"action": a, "target": t, **p},
                              st.sampled_from(["allow", "deny"]),
                              st.one_of(target, st.sampled_from(["10.0.0.0/8", "2001:db8::/32"])),
                              st.sampled_from([{}, {"ports": [443, 8443]}])),
                    min_size=1, max_size=9)


FITTING = {("POST", "/credential-vault"): vault(), ("PATCH", "/credential-vault"): change(),
           ("PATCH", "/policy"): rules()}


def whole(value):
    """To a schema 1.0 is an integer, to no reader of these documents."""
    if isinstance(value, dict):
        return {k: whole(v) for k, v in value.items()}
    if isinstance(value, list):
        return [whole(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schemathesis.hook
def map_body(context, body):
    return whole(body)


@schemathesis.hook
def before_generate_body(context, strategy):
    operation = context.operation
    fitting = FITTING.get((operation.method.upper(), operation.path))
    if fitting is None:
        return strategy
    return fitting if os.environ["API_PASS"] == "good" else st.one_of(strategy, fitting)


# --- the state that a request needs ---

STARTING = {"credentials": [{"name": n, "source": {"value": f"value-of-{i}-0123456789"}}
                            for i, n in enumerate(("k", "tools.git"))],
            "bindings": [{"name": "first", "match": {"hosts": ["api.example.com"],
                                                     "paths": ["/first/*"]},
                          "auth": {"type": "bearer", "credential": "k"}}]}


def prepare(method, path, case, fresh):
    """fresh: from a known state, whatever was there. Else only what is missing is made."""
    if path == "/policy" and method != "GET":
        call("DELETE", "/credential-vault")
        return
    if path == "/audit" and fresh and case.query and "after" in case.query:
        case.query["after"] = RANDOM.randrange(50)
    if not path.startswith("/credential-vault"):
        return
    if fresh or method == "POST":
        call("DELETE", "/credential-vault")
        call("POST", "/policy", {"defaultAction": "allow"})
    if method != "POST":
        call("POST", "/credential-vault", STARTING)
    if fresh and case.meta and case.meta.generation.mode.name == "POSITIVE":
        for name, known in (("credential_name", "k"), ("binding_name", "first")):
            if name in path:
                case.path_parameters[name] = known


@schemathesis.hook
def before_call(context, case, kwargs):
    stateful = bool(case.meta) and case.meta.phase.name.name == "STATEFUL"
    # What a vault needs of the policy is another document's: without one every valid policy counts.
    if case.operation.path == "/policy" or RANDOM.random() < 0.9:
        prepare(case.operation.method.upper(), case.operation.path, case, fresh=not stateful)


@schemathesis.hook
def after_call(context, case, response):
    method = (case.method or case.operation.method).upper()
    if method == case.operation.method.upper():
        COUNTS[case.operation.label][response.status_code] += 1
    else:  # tried to see whether it is refused
        COUNTS[OTHERS][response.status_code] += 1


def written():
    with open(os.environ["API_COUNTS"], "w") as f:
        json.dump({k: dict(v) for k, v in COUNTS.items()}, f)


atexit.register(written)
