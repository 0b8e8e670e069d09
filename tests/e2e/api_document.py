#!/usr/bin/env python3
"""docs/egress-api.yaml against the program and against what the replaced image publishes: nothing is
served that it does not describe, nothing is described that is not served, and whoever was written for
the replaced image's document finds everything in ours. Answers are compared with it, some thousand of
them, by long/api.py. Bed: apibed.py."""
import os
import re
import sys

from apibed import SRC, Skip, main, running, want, want_in

try:
    import yaml
except ImportError:
    yaml = None

DOCUMENT = os.path.join(SRC, "docs", "egress-api.yaml")
REFERENCE = os.path.join(os.path.dirname(SRC), "shared", "reference", "egress-api.yaml")
METHODS = ("get", "put", "post", "delete", "patch")
# What the replaced image publishes: status codes, fields of requests, fields of answers. `*` of them
# is in each answer.
SURFACE = {
    "/policy": {
        "get": ("200 401 500", "", "status mode enforcementMode reason policy"),
        "patch": ("200 400 401 500", "action target", "status mode enforcementMode reason policy"),
        "delete": ("200 400 401 500", "", "status mode enforcementMode reason policy")},
    "/credential-vault": {
        "post": ("201 400 401 409 412", "credentials bindings name source type value match auth "
                 "schemes ports hosts methods paths credential headers substitutions placeholder in",
                 "revision* credentials* bindings* name* sourceType* match auth type*"),
        "get": ("200 401 404", "", "revision* credentials* bindings*"),
        "patch": ("200 400 401 404 409 412", "expectedRevision credentials bindings add replace "
                  "delete", "revision* credentials* bindings*"),
        "delete": ("204 401 404", "", "")},
    "/credential-vault/credentials": {"get": ("200 401 404", "", "revision* credentials*")},
    "/credential-vault/credentials/{credential_name}": {
        "get": ("200 401 404", "", "name* sourceType* revision*")},
    "/credential-vault/bindings": {"get": ("200 401 404", "", "revision* bindings*")},
    "/credential-vault/bindings/{binding_name}": {
        "get": ("200 401 404", "", "name* revision* match auth type* name")},
}
# An API of experiments that the replaced image describes and does not need: compatibility.md.
ABSENT = {"/capabilities", "/extensions"}
# Routes whose only answer is a refusal.
UNTOLD = {"/credential-vault/_active", "/credential-vault/"}
# Documented there without ever being answered.
NEVER = {("/policy", "get", "500")}


def document(path=DOCUMENT):
    if yaml is None:
        raise Skip("no yaml module for python3")
    with open(path) as f:
        return yaml.safe_load(f)


def resolved(doc, node):
    while isinstance(node, dict) and "$ref" in node:
        target = doc
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def fields(doc, node, seen=()):
    """{name: whether it is always there} of every object below a schema."""
    node, out = resolved(doc, node), {}
    if id(node) in seen or not isinstance(node, dict):
        return out
    seen = (*seen, id(node))
    for name, child in node.get("properties", {}).items():
        out[name] = out.get(name, False) or name in node.get("required", ())
        for n, always in fields(doc, child, seen).items():
            out[n] = out.get(n, False) or always
    for child in [node.get("items"), *node.get("oneOf", ()), *node.get("anyOf", ())]:
        for n, always in fields(doc, child, seen).items() if child else ():
            out[n] = out.get(n, False) or always
    return out


def schema_of(doc, message):
    content = resolved(doc, message).get("content", {})
    return next((c["schema"] for c in content.values()), {})


def operations(doc):
    for path, item in doc["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


# --- the replaced image's document ---

def case_what_the_replaced_image_publishes_is_here():
    doc = document()
    for path, methods in SURFACE.items():
        for method, (statuses, asks, answers) in methods.items():
            where = f"{method} {path}"
            ours = doc["paths"].get(path, {}).get(method)
            want(ours is not None, True, f"{where} is described")
            missing = [s for s in statuses.split() if s not in ours["responses"] and
                       (path, method, s) not in NEVER]
            want(missing, [], f"{where}: answers")
            known = fields(doc, schema_of(doc, ours.get("requestBody", {})))
            want([f for f in asks.split() if f not in known], [], f"{where}: what is asked")
            good = next(s for s in sorted(ours["responses"]) if s[0] == "2")
            known = fields(doc, schema_of(doc, ours["responses"][good]))
            for field in answers.split():
                want(field.rstrip("*") in known, True, f"{where}: {field} in the answer")
                if field.endswith("*"):
                    want(known[field[:-1]], True, f"{where}: {field} is always there")


def case_the_table_is_the_replaced_images():
    """The table above, against the document itself, where that is at hand."""
    if not os.path.exists(REFERENCE):
        raise Skip("the replaced image's document is not here")
    doc = document(REFERENCE)
    want(set(doc["paths"]) - ABSENT - set(SURFACE), set(), "paths")
    for path, method, operation in operations(doc):
        if path in ABSENT:
            continue
        statuses, asks, answers = SURFACE[path][method]
        want(sorted(operation["responses"]), statuses.split(), f"{method} {path}: answers")
        known = fields(doc, schema_of(doc, operation.get("requestBody", {})))
        if method == "post":
            want(set(known) - set(asks.split()), set(), f"{method} {path}: what is asked")
        good = next(s for s in sorted(operation["responses"]) if s[0] == "2")
        schema = resolved(doc, schema_of(doc, operation["responses"][good]))
        want(set(schema.get("properties", ())) - {a.rstrip("*") for a in answers.split()}, set(),
             f"{method} {path}: the answer")
        want(set(schema.get("required", ())) - {a[:-1] for a in answers.split() if a[-1] == "*"},
             set(), f"{method} {path}: what is always there")


# --- the program ---

def case_what_is_described_is_served():
    doc = document()
    with running(OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT="true") as e:
        for path, item in doc["paths"].items():
            path = re.sub(r"\{\w+\}", "some/name", path)
            mine = {m.upper() for m in METHODS if m in item}
            for method in mine:
                a, _ = e.raw(e.request(method, path))
                want(a[0].status == 405 or "404 page" in a[0].body.decode(), False,
                     f"{method} {path}: {a}")
            a, _ = e.raw(e.request("BREW", path))
            if path == "/healthz":
                want(a[0].status, 200, "any method")
            else:
                want([a[0].status, set((a[0].field("allow") or "").split(", "))], [405, mine],
                     f"{path}: Allow")


def sources(pattern):
    out = []
    for name in sorted(os.listdir(os.path.join(SRC, "control"))):
        if name.endswith((".c", ".h")):
            with open(os.path.join(SRC, "control", name)) as f:
                out += re.findall(pattern, f.read())
    return out


def case_what_is_served_is_described():
    paths = set(document()["paths"])
    table = "".join(sources(r"(?s)struct api_route routes\[\] = \{(.*?)\n\t*\};"))
    routes = re.findall(r'\{("/[^"]*"|API_VAULT_PATH[^,]*),', table)
    routes = {r.replace("API_VAULT_PATH", "/credential-vault").replace('"', "").replace(" ", "")
              for r in routes}
    want({"/healthz", "/policy", "/status"} <= routes and len(routes) >= 6, True,
         f"control: routes are found: {routes}")
    for route in routes - UNTOLD:
        known = [p for p in paths if p == route or (route[-1] == "/" and p.startswith(route))]
        want(known != [], True, f"{route} is described")


def case_every_code_of_an_error_is_explained():
    codes = set(sources(r'\b[345]\d\d,\s*"([a-z][a-z_]+)"')) | \
        set(sources(r'"code",\s*"([a-z][a-z_]+)"'))
    want({"unauthorized", "invalid_policy", "not_applied"} <= codes, True,
         f"control: codes are found: {sorted(codes)}")
    with open(os.path.join(SRC, "docs", "api.md")) as f:
        explained = f.read()
    want(sorted(c for c in codes if f"`{c}`" not in explained), [], "not in docs/api.md")


def case_errors_have_a_code_and_a_message():
    doc = document()
    for path, method, operation in operations(doc):
        for status, answer in operation["responses"].items():
            if status[0] in "345":
                known = fields(doc, schema_of(doc, answer))
                want(known, {"code": True, "message": True}, f"{method} {path} {status}")
        secured = operation.get("security", doc["security"])
        want_in("401" if secured else "503", operation["responses"], f"{method} {path}")


if __name__ == "__main__":
    sys.exit(main(globals()))
