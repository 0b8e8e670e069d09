#!/usr/bin/env python3
"""Random changes of the vault by the API, against sixty lines that say what each must do: which are
taken, what the state is afterwards, and of those that are refused, that the message names something
that is wrong with them and that nothing changed. And pipelines of requests to all routes at once.
Bed: apibed.py."""
import copy
import json
import os
import random
import sys
import threading
import time

from apibed import TOKEN, Failed, allow, deny, main, running, want

VAULT = "/credential-vault"
ROUNDS = int(os.environ.get("MODEL_ROUNDS", "1500"))
SECONDS = float(os.environ.get("MODEL_SECONDS", "6"))  # on a busy machine fewer rounds
NAMES = ["a", "b", "c", "d", " a", "b ", "a b", "c/d", "", " "]
HOSTS = ["a.test", "b.test", "*.w.test", "x.w.test", "*.x.w.test", "A.TEST.", "no.test"]
METHODS = [["GET"], ["POST"], ["get", "PUT"], None, []]
PATHS = [["/v1/*"], ["/v1/x"], ["/v1/x/*", "/v2"], ["/v2*"], None, ["/*"]]
ALL = ["GET", "POST", "PUT", "PATCH", "DELETE"]


# --- what a change must do ---

def binding_state(doc):
    """As the state shows it."""
    match = doc["match"]
    hosts = [h.lower().rstrip(".") for h in match["hosts"]]
    return {"match": {"schemes": ["https"], "hosts": list(dict.fromkeys(hosts)),
                      "methods": [m.upper() for m in match.get("methods") or ALL],
                      "paths": match.get("paths") or ["/*"]},
            "uses": doc["auth"]["credential"].strip()}


def nested(a, b):
    return a == b or a.endswith("." + b) or b.endswith("." + a)


def hosts_meet(a, b):
    if a[0] == "*" or b[0] == "*":
        return a[0] == b[0] and nested(a[2:], b[2:])
    return a == b


def paths_meet(a, b):
    if a.endswith("*") and b.endswith("*"):
        return a[:-1].startswith(b[:-1]) or b[:-1].startswith(a[:-1])
    if a.endswith("*"):
        return b.startswith(a[:-1])
    return a.startswith(b[:-1]) if b.endswith("*") else a == b


def meet(x, y):
    x, y = x["match"], y["match"]
    return any(hosts_meet(a, b) for a in x["hosts"] for b in y["hosts"]) and \
        set(x["methods"]) & set(y["methods"]) and \
        any(paths_meet(a, b) for a in x["paths"] for b in y["paths"])


def items_change(kind, items, change, revision, wrong):
    """Deletes, replaces, adds; what is wrong goes onto the list."""
    seen = {}
    for op in ("delete", "replace", "add"):
        for entry in change.get(op) or ():
            name = (entry if op == "delete" else entry["name"]).strip(" ")
            if not name:
                wrong.append(f"{kind} delete name cannot be blank" if op == "delete" else
                             f"{kind} name cannot be blank")
                continue
            if name in seen:
                wrong += [f'{kind} "{name}" mentioned by multiple operations',
                          f'duplicate {kind} {op} name "{name}"', f'duplicate {kind} name "{name}"']
            seen[name] = op
            if op != "add" and name not in items:
                wrong.append(f'{kind} "{name}" does not exist')
            if op == "add" and name in items and seen.get(name) == "add":
                wrong.append(f'{kind} "{name}" already exists')
    for name, op in seen.items():
        if op == "delete":
            items.pop(name, None)
    for op in ("replace", "add"):
        for entry in change.get(op) or ():
            name = entry["name"].strip(" ")
            if name:
                items[name] = revision if kind == "credential" else binding_state(entry)


def whole_is_wrong(credentials, bindings):
    for name, b in bindings.items():
        if b["uses"] not in credentials:
            yield f'binding "{name}" references unknown credential "{b["uses"]}"'
        for host in b["match"]["hosts"]:
            if host == "no.test":
                yield f'binding "{name}" host "{host}" is not allowed by egress policy'
        for other, o in bindings.items():
            if name < other and meet(b, o):
                yield f'bindings "{name}" and "{other}" can match the same request'


def changed(state, doc):
    """(status, what may be wrong, the state afterwards)"""
    revision, credentials, bindings = state
    expected, wrong = doc.get("expectedRevision"), []
    if expected is not None and expected != revision:
        conflict = f"expectedRevision {expected} does not match current revision {revision}"
    else:
        conflict = None
    credentials, bindings = dict(credentials), copy.deepcopy(bindings)
    items_change("credential", credentials, doc.get("credentials") or {}, revision + 1, wrong)
    items_change("binding", bindings, doc.get("bindings") or {}, revision + 1, wrong)
    wrong += whole_is_wrong(credentials, bindings)
    if conflict or wrong:
        return conflict, wrong, state
    return None, [], (revision + 1, credentials, bindings)


def shown(state):
    revision, credentials, bindings = state
    return {"revision": revision,
            "credentials": [{"name": n, "sourceType": "inline", "revision": r}
                            for n, r in sorted(credentials.items())],
            "bindings": [{"name": n, "revision": revision, "match": b["match"],
                          "auth": {"type": "bearer"}} for n, b in sorted(bindings.items())]}


# --- changes ---

def credential(r):
    return {"name": r.choice(NAMES), "source": {"value": f"value-{r.randrange(10 ** 9)}"}}


def binding(r):
    match = {"hosts": r.sample(HOSTS[:-1], r.choice([1, 1, 2])) + ["no.test"] * (r.random() < 0.03),
             "methods": r.choice(METHODS), "paths": r.choice(PATHS)}
    return {"name": r.choice(NAMES[:4] if r.random() < 0.8 else NAMES), "match": match,
            "auth": {"type": "bearer", "credential": r.choice(NAMES[:6])}}


def some(r, make, most):
    return [make(r) for _ in range(r.choice([0, 0, 1, 1, most]))]


def change(r, state):
    """Mostly of things that fit the state; else of anything."""
    revision, credentials, bindings = state
    doc = {}
    if r.random() < 0.3:
        doc["expectedRevision"] = r.choice([revision, revision, revision + 1, 0, -1, None])
    if r.random() < 0.8:
        doc["credentials"] = {"add": some(r, credential, 2), "replace": some(r, credential, 1),
                              "delete": r.choice([[], [], [r.choice(NAMES)]])}
    if r.random() < 0.8:
        doc["bindings"] = {"add": some(r, binding, 2), "replace": some(r, binding, 1),
                           "delete": r.choice([[], [], [r.choice(NAMES)]])}
    if r.random() < 0.6:  # nearer to what can be taken
        held = {"credentials": set(credentials), "bindings": set(bindings)}
        for kind, names in held.items():
            part = doc.get(kind) or {}
            for op in ("add", "replace"):
                part[op] = [x for x in part.get(op) or () if (x["name"].strip(" ") in names) ==
                            (op == "replace") and x["name"].strip(" ")]
            part["delete"] = [x for x in part.get("delete") or () if x.strip(" ") in names]
            for key, value in list(part.items()):
                if r.random() < 0.1:
                    part[key] = None if not value else value
            doc[kind] = part
    return doc


def case_random_changes_against_a_model():
    r = random.Random(int(os.environ.get("MODEL_SEED", "6")))
    end, counts = time.monotonic() + SECONDS, {}
    with running(policy={"defaultAction": "allow", "egress": deny("no.test") + allow("a.test")},
                 OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true") as e, e.connect() as s:
        state = None
        for i in range(ROUNDS):
            if state is None or r.random() < 0.02:
                e.raw(e.request("DELETE", VAULT), s=s)
                want(e.raw(e.request("POST", VAULT, {}), s=s)[0][0].status, 201, "POST")
                state = (1, {}, {})
            doc = change(r, state)
            conflict, wrong, after = changed(state, doc)
            a = e.raw(e.request("PATCH", VAULT, doc), s=s)[0][0]
            what = f"round {i}: {json.dumps(doc)} on {shown(state)}: {a}"
            counts[a.status] = counts.get(a.status, 0) + 1
            if a.status == 200:
                if conflict or wrong:
                    raise Failed(f"taken, but {conflict or wrong[0]}: {what}")
                want(a.doc, shown(after), what)
            elif a.status == 409:
                want(a.doc["message"], conflict, what)
            elif a.status != 400 or not any(w in a.doc["message"] for w in wrong):
                raise Failed(f"refused, but {wrong[:3]}: {what}")
            state = after if a.status == 200 else state
            if i % 7 == 0:
                want(e.raw(e.request("GET", VAULT), s=s)[0][0].doc, shown(state), f"GET: {what}")
            if time.monotonic() > end:
                break
    print(f"  rounds={i + 1} {counts}", flush=True)
    want(min(counts.get(c, 0) for c in (200, 400, 409)) > 5, True, f"control: each kind: {counts}")


CHUNKED = (f"PATCH {VAULT} HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n"
           "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\nX-T: 1\r\n\r\n").encode()


def pipeline(e, r, n):
    """Requests to all routes, in locked memory and not, and the status that each must have."""
    data, statuses, exists = b"", [], False

    def value(c):
        return [{"name": "k", "source": {"value": c * r.choice([12, 300, 5000])}}]
    for i in range(n):
        kind = r.randrange(8)
        if kind == 0:
            data += e.request("POST", VAULT, {"credentials": value("v")})
            statuses.append(409 if exists else 201)
            exists = True
        elif kind < 4:
            data += (e.request("GET", VAULT), CHUNKED, e.request(
                "PATCH", VAULT, {"credentials": {"replace": value("w")}}))[kind - 1]
            statuses.append(200 if exists else 404)
        elif kind == 4:
            data += e.request("DELETE", VAULT)
            statuses.append(204 if exists else 404)
            exists = False
        else:
            data += (e.request("PATCH", "/policy", allow(f"h{i}.test")), e.request("GET", "/policy"),
                     e.request("PUT", "/audit/context", {"labels": {"a": str(i)}}))[kind - 5]
            statuses.append(200)
    return data, statuses


def case_pipelines_of_every_kind():
    """Whatever is sent ahead, and in whichever pieces, is answered in order and by what came before."""
    r = random.Random(3)
    with running(policy={"defaultAction": "allow"},
                 OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true") as e:
        for _ in range(30):
            e.raw(e.request("DELETE", VAULT))
            data, statuses = pipeline(e, r, r.randrange(5, 60))
            step = r.choice([len(data), 1000, 37])
            with e.connect() as s:
                sender = threading.Thread(target=lambda: [
                    s.sendall(data[at:at + step]) for at in range(0, len(data), step)])
                sender.start()
                a, _ = e.raw(b"", n=len(statuses), s=s)
                sender.join()
            want([x.status for x in a], statuses, f"{len(statuses)} requests in pieces of {step}")


if __name__ == "__main__":
    sys.exit(main(globals()))
