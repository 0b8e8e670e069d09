#!/usr/bin/env python3
"""The scenario of AstraBox: a policy and credentials in every sandbox, unrestricted or limited.

Unrestricted allows everything but the blocks of addresses that the operator denies; limited denies
everything but what is listed, denials first. Bodies are in the shape that it sends: a model gateway,
one of them internal, an MCP server, credentials of the environment, git with one repository's
password. What is held is seen to get through without the sidecar, and a key that must stay away from
one path is seen to arrive at its neighbour. Bed: platformbed.py.
"""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from gatebed import addresses, status  # noqa: E402
from guardbed import EVIL, META, ROUTER, run, want  # noqa: E402
from platformbed import (BRIDGE, HOST, NEIGHBOUR, WEBSOCKET_SERVER, Bed, WebSocket, basic,  # noqa: E402
                         credential, free, key, policy, rule)
from sidecarbed import INTERNAL, TWO, WILD  # noqa: E402

KEYS = {n: key("sk-") for n in ("model", "gateway", "mcp", "session", "env")}
GIT_PASSWORD = key("")
GIT = "astrabox-basic-0123456789abcdef01234567-v-1-i-1"
VAULT_HOSTS = ("api.model.test", "gateway.corp.test", "mcp.test", "git.test", "other.test")
MODEL, ENV = "ph-model-00000001", "ph-environment-01"


def bind(name, host, auth, methods=("GET", "POST"), paths=("/v1/*",), schemes=("https",)):
    return {"name": name, "auth": auth, "match": {"hosts": [host], "methods": list(methods),
                                                  "paths": list(paths), "schemes": list(schemes)}}


def passthrough(*subs):
    return {"type": "passthrough", "substitutions": [
        {"credential": c, "placeholder": p, "in": list(where)} for c, p, where in subs]}


VAULT = {
    "credentials": [credential(n, v) for n, v in KEYS.items()] +
    [credential(GIT, basic("bot", GIT_PASSWORD))],
    "bindings": [
        bind("model", "api.model.test", passthrough(("model", MODEL, ["header"]))),
        bind("gateway", "gateway.corp.test",
             {"type": "apiKey", "name": "x-api-key", "credential": "gateway"}),
        bind("mcp", "mcp.test", {"type": "customHeaders", "headers": [
            {"name": "Authorization", "credential": "mcp"},
            {"name": "X-Session", "credential": "session"}]}, ("GET", "POST", "DELETE"), ("/mcp",)),
        bind("mcp-unused", "mcp.test", {"type": "passthrough"}, ("GET", "POST", "DELETE"), ("/mcp2",)),
        bind("env-https", "other.test", passthrough(("env", ENV, ["header", "body"]))),
        bind("env-http", "other.test", passthrough(("env", ENV, ["header", "body"])), schemes=("http",)),
        bind(GIT, "git.test", {"type": "basic", "credential": GIT}, ("GET", "HEAD", "POST"),
             ("/git/team/app.git", "/git/team/app.git/*"))]}
DENIED = [rule("deny", "169.254.0.0/16"), rule("deny", BRIDGE)]
UNRESTRICTED = policy("allow", *DENIED, *(rule("allow", h) for h in VAULT_HOSTS),
                      rule("allow", "host.test"))
LIMITED = policy("deny", *DENIED, rule("allow", "site.test"), rule("allow", "*.wild.test"),
                 rule("allow", EVIL[4]), rule("allow", "11.22.0.0/27"), rule("allow", "host.test"),
                 *(rule("allow", h) for h in VAULT_HOSTS))
SETTINGS = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true", "AGENTIC_WRITE_HOSTS": None,
            "EGRESS_HTTP_BINDINGS": "1"}


def profile(bed, text, **more):
    """A sandbox of this profile, with its credentials."""
    want_now = {**SETTINGS, **more}
    if bed.keyed is None or bed.keyed is not bed.process or bed.process.poll() is not None or \
            bed.running != {**want_now, "OPENSANDBOX_EGRESS_RULES": text}:
        bed.halt()
        bed.with_settings(**want_now, OPENSANDBOX_EGRESS_RULES=text)
        bed.keys(VAULT)
        bed.keyed = bed.process


def fields(bed, mark):
    """What the origins got: path, Authorization, x-api-key, x-session, content."""
    return [(r["uri"], r["auth"], r["key"], r["more"], r["content"]) for r in bed.seen(mark)]


# ---- where

NEAR = [(HOST, 5000), (NEIGHBOUR, 5000), (META[4], 5000)]
LEADS = [("host.test", HOST), ("metadata.test", META[4])]


def case_without_the_sidecar(bed):
    """The control of the two after it."""
    free(bed)
    want([bed.opens(*p) for p in NEAR], ["echo"] * 3, "addresses")
    for name, addr in LEADS:
        mark = bed.seen_mark()
        want(bed.get(f"http://{name}/x", "--resolve", f"{name}:80:{addr}")[0], 200, name)
        want(len(bed.seen(mark)), 1, name)
    want(bed.opens(EVIL[4], 5000), "echo", "a public address")


def denied_stays_denied(bed):
    mark = bed.seen_mark()
    want([bed.opens(*p) == "echo" for p in NEAR], [False] * 3, "addresses")
    for addr in (HOST, META[4]):
        want(bed.get(f"http://{addr}/x")[:3], (403, "blocked", "denied"), addr)
        want(bed.get(f"http://[::ffff:{addr}]/x")[0] in (0, 403), True, f"mapped {addr}")
    for name, addr in LEADS:  # the first has a rule of its own that allows it
        want(addresses(bed.dig(name)), [], f"{name} by DNS")
        for scheme, port in (("http", 80), ("https", 443)):
            got = bed.get(f"{scheme}://{name}/x", "--resolve", f"{name}:{port}:{addr}")
            want((got[0], got[2] in ("address_refused", "denied", "host_not_listed")), (403, True),
                 f"{scheme} {name}: {got}")
    want(bed.seen(mark), [], "arrived")


def case_unrestricted_but_for_denied_blocks(bed):
    profile(bed, UNRESTRICTED)
    denied_stays_denied(bed)
    for url in ("https://evil.test/x", "http://evil.test/x"):
        want(bed.get(url)[0], 200, f"GET {url}")
        want(bed.get(url, "-d", "x=1")[0], 200, f"POST {url}")
    want(bed.opens(EVIL[4], 5000), "echo", "a public address, any port")
    want(addresses(bed.dig("rebind.wild.test")), [], "a name nobody named, at private addresses")


def case_limited_to_what_is_listed(bed):
    profile(bed, LIMITED)
    denied_stays_denied(bed)
    want(bed.get("https://site.test/x")[0], 200, "a host")
    want(bed.get("https://site.test/x", "-d", "x=1")[0], 200, "which may be written to")
    want(bed.get("https://any.wild.test/x")[0], 200, "a wildcard")
    want([bed.opens(a, 5000) for a in (EVIL[4], "11.22.0.30")], ["echo"] * 2, "an address, a block")
    want([bed.opens(a, 5000) for a in (EVIL[6], TWO[6])], ["ConnectionRefusedError"] * 2, "others")
    for name in ("www.site.test", "evil.test", "wild.test"):
        want(status(bed.dig(name)), "NXDOMAIN", name)
    want(bed.get("https://evil.test/x", "--resolve", f"evil.test:443:{WILD[4]}")[0], 403, "fronted")


# ---- with which keys

def case_the_model_gateway(bed):
    profile(bed, UNRESTRICTED)
    mark = bed.seen_mark()
    body = '{"prompt":"%s is text here"}' % MODEL
    got = bed.get("https://api.model.test/v1/messages", "-H", "Content-Type: application/json", "-H",
                  f"x-api-key: {MODEL}", "-d", body)
    want(got[0], 200, "POST")
    want(fields(bed, mark), [("/v1/messages", "", KEYS["model"], "", body)], "what the origin got")
    got = bed.get("https://api.model.test/v1/echo", "-H", f"x-api-key: {MODEL}")
    want((KEYS["model"] in got[3], "*" * len(KEYS["model"]) in got[3]), (False, True), "an echo")


def case_an_internal_gateway_at_a_private_address(bed):
    """Its exact rule lets its private address be; no other name leads there with a key."""
    for text in (UNRESTRICTED, LIMITED):
        profile(bed, text)
        mark = bed.seen_mark()
        want(addresses(bed.dig("gateway.corp.test")), [INTERNAL[4]], "by DNS")
        want(bed.get("https://gateway.corp.test/v1/messages", "-d", "x")[0], 200, "POST")
        want([(r["addr"], r["key"]) for r in bed.seen(mark)], [(f"::ffff:{INTERNAL[4]}", KEYS["gateway"])], "arrived")
        mark = bed.seen_mark()
        for name, should in (("rebind.wild.test", []), ("inside.wild.test", [(f"{WILD[6]}", "")])):
            got = bed.get(f"https://{name}/v1/messages", "--resolve", f"{name}:443:{INTERNAL[4]}")
            want((got[0], [(r["addr"], r["key"]) for r in bed.seen(mark)]),
                 (200 if should else 403, should), f"{name} at its address: {got}")
        got = bed.get("https://gateway.corp.test/v1/messages", "-H", "Host: inside.wild.test")
        want(got[:3], (403, "blocked", "name_mismatch"), "another Host")


def case_a_path_and_its_neighbours(bed):
    """The credential check: a matching request has the key, one beside it has not."""
    profile(bed, UNRESTRICTED)
    own = {"/v1/check": KEYS["gateway"], "/v10/check": "", "/v1": "", "/V1/check": "", "/": "",
           "/v2/v1/check": "", "/x?/v1/check": ""}
    for path, should in own.items():
        mark = bed.seen_mark()
        bed.get(f"https://gateway.corp.test{path}", "--path-as-is")
        want([r["key"] for r in bed.seen(mark)], [should], path)
    for path, should in (("/v1/../x", 403), ("/v1/%2e%2e/x", 403), ("/v1/a%2f..%2f..%2fx", 403),
                         ("/v2/../v1/check", 200)):
        mark = bed.seen_mark()
        got = bed.get(f"https://gateway.corp.test{path}", "--path-as-is")
        want((got[0], [r["key"] for r in bed.seen(mark)]), (should, [] if should == 403 else [""]),
             f"{path}: {got[:3]}")
    for method, should in (("POST", KEYS["gateway"]), ("PUT", ""), ("DELETE", "")):
        mark = bed.seen_mark()
        bed.get("https://gateway.corp.test/v1/check", "-X", method)
        want([r["key"] for r in bed.seen(mark)], [should], method)
    mark = bed.seen_mark()
    bed.get("https://evil.test/v1/check", "-H", "x-api-key: mine")
    want([r["key"] for r in bed.seen(mark)], ["mine"], "another host, with a key of its own")


def case_an_MCP_server_on_one_path(bed):
    profile(bed, LIMITED)
    for method, path, has in (("POST", "/mcp", True), ("GET", "/mcp", True), ("DELETE", "/mcp", True),
                              ("POST", "/mcp/x", False), ("POST", "/mcp2", False),
                              ("PUT", "/mcp", False)):
        mark = bed.seen_mark()
        want(bed.get(f"https://mcp.test{path}", "-X", method)[0], 200, f"{method} {path}")
        want([(r["auth"], r["more"]) for r in bed.seen(mark)],
             [(KEYS["mcp"], KEYS["session"]) if has else ("", "")], f"{method} {path}")


def case_a_credential_of_the_environment(bed):
    """In a field or in content, one binding for each scheme."""
    profile(bed, UNRESTRICTED)
    value = KEYS["env"]
    for scheme in ("https", "http"):
        mark = bed.seen_mark()
        got = bed.get(f"{scheme}://other.test/v1/login", "-H", f"x-session: {ENV}", "-H",
                      "Content-Type: application/json", "-d", '{"token":"%s"}' % ENV)
        want(got[0], 200, scheme)
        want([(r["more"], r["content"]) for r in bed.seen(mark)], [(value, '{"token":"%s"}' % value)],
             f"{scheme}: arrived")
        mark = bed.seen_mark()
        got = bed.get(f"{scheme}://other.test/v2/login", "-H", f"x-session: {ENV}")
        want((got[:3], bed.seen(mark)), ((403, "blocked", "placeholder_for_other_host"), []),
             f"{scheme}: beside its path")


def repositories(bed):
    """team/app.git and team/other.git, once."""
    top = bed.path("git/team")
    if os.path.isdir(top):
        return
    os.makedirs(top)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@test", "-c", "init.defaultBranch=main"]
    bed.write("seed/a.txt", "one\n")
    run(*git, "init", "-q", bed.path("seed"))
    run(*git, "-C", bed.path("seed"), "add", "a.txt")
    run(*git, "-C", bed.path("seed"), "commit", "-q", "-m", "one")
    for name in ("app", "other"):
        run(*git, "clone", "-q", "--bare", bed.path("seed"), f"{top}/{name}.git")


def case_git_with_the_password_of_one_repository(bed):
    repositories(bed)
    profile(bed, LIMITED)
    password = "Basic " + basic("bot", GIT_PASSWORD)
    home, url = bed.home(), "https://git.test/git/team"
    env = {"HOME": home, "GIT_SSL_CAINFO": bed.path("egress-ca.pem"), "GIT_TERMINAL_PROMPT": "0",
           "GIT_CURL_VERBOSE": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@test",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@test"}
    said = ""
    for name, should in (("app", password), ("other", "")):
        shutil.rmtree(f"{home}/{name}", ignore_errors=True)
        mark = bed.seen_mark()
        code, text = bed.tool("git", "clone", "-q", f"{url}/{name}.git", f"{home}/{name}", env=env)
        want(code, 0, text[-300:])
        said += text
        seen = {(r["method"], r["auth"]) for r in bed.seen(mark)}
        want(seen, {("GET", should), ("POST", should)}, f"{name}: what the origin got")
    code, text = bed.tool("git", "-C", f"{home}/app", "commit", "-q", "--allow-empty", "-m", "two", env=env)
    want(code, 0, text)
    code, text = bed.tool("git", "-C", f"{home}/app", "push", "-q", "origin", "HEAD:refs/heads/two", env=env)
    want(code, 0, text[-300:])
    said += text
    want("two" in run("git", "-C", bed.path("git/team/app.git"), "branch"), True, "the push arrived")
    for text in (GIT_PASSWORD, basic("bot", GIT_PASSWORD)):
        want(text in said, False, "the password in what git says")


def case_under_the_read_only_rule(bed):
    """The image with the rule on: hosts of the vault are write hosts, the rest is read."""
    repositories(bed)
    profile(bed, LIMITED, AGENTIC_WRITE_HOSTS="api.model.test gateway.corp.test mcp.test git.test",
            EGRESS_UNBOUND_WRITES="deny")
    mark = bed.seen_mark()
    want(bed.get("https://gateway.corp.test/v1/messages", "-d", "x")[0], 200, "the internal gateway")
    want(bed.get("https://mcp.test/mcp", "-d", "x")[0], 200, "the MCP server")
    want(bed.get("https://mcp.test/other", "-d", "x")[:3], (403, "blocked", "write_without_binding"),
         "the MCP server beside its path")
    want(bed.get("https://site.test/x")[0], 200, "a read")
    want(bed.get("https://site.test/x", "-d", "x")[:3], (403, "blocked", "method_not_read"), "a write")
    want([r["uri"] for r in bed.seen(mark)], ["/v1/messages", "/mcp", "/x"], "arrived")


# ---- what its console does

def vault(bed, method, body=None, path=""):
    """(status, document) of /credential-vault."""
    got = bed.ask(method, "/credential-vault" + path, None if body is None else json.dumps(body))
    return got[0], json.loads(got[2]) if got[2] else None


def case_none_is_not_empty(bed):
    profile(bed, UNRESTRICTED)
    want(vault(bed, "DELETE"), (204, None), "DELETE")
    want(vault(bed, "GET")[0], 404, "no vault")
    mark = bed.seen_mark()
    bed.get("https://gateway.corp.test/v1/x")
    want([r["key"] for r in bed.seen(mark)], [""], "no key goes out")
    got = vault(bed, "POST", {"credentials": [], "bindings": []})
    want((got[0], got[1]["credentials"], got[1]["bindings"]), (201, [], []), "an empty one")
    want(vault(bed, "GET")[0], 200, "an empty one")
    bed.keys(VAULT)
    mark = bed.seen_mark()
    bed.get("https://gateway.corp.test/v1/x")
    want([r["key"] for r in bed.seen(mark)], [KEYS["gateway"]], "pushed again")


def case_a_binding_is_sent_again_whole(bed):
    """Substitutions can be read, without values; so a new method does not lose the siblings."""
    profile(bed, UNRESTRICTED)
    bound = {b["name"]: b for b in vault(bed, "GET")[1]["bindings"]}
    want(sorted(bound), sorted(b["name"] for b in VAULT["bindings"]), "names")
    text = json.dumps(bound)
    want([n for n, v in KEYS.items() if v in text or GIT_PASSWORD in text], [], "values that are shown")
    mine = {k: bound["env-https"][k] for k in ("name", "match", "auth")}
    mine["match"]["paths"] = ["/v1/*", "/v3/*"]
    got = vault(bed, "PATCH", {"bindings": {"replace": [mine]}})
    want(got[0], 200, got)
    for path in ("/v1/login", "/v3/login"):
        mark = bed.seen_mark()
        bed.get(f"https://other.test{path}", "-H", f"x-session: {ENV}")
        want([r["more"] for r in bed.seen(mark)], [KEYS["env"]], path)
    bed.keys(VAULT)


def case_bindings_that_overlap_are_refused_when_written(bed):
    profile(bed, UNRESTRICTED)
    before = vault(bed, "GET")
    twin = bind("gateway-too", "gateway.corp.test", {"type": "bearer", "credential": "model"},
                paths=("/v1/messages",))
    got = vault(bed, "PATCH", {"bindings": {"add": [twin]}})
    want((got[0], '"gateway"' in got[1]["message"], '"gateway-too"' in got[1]["message"]),
         (400, True, True), got)
    want(vault(bed, "GET"), before, "nothing has changed")
    mark = bed.seen_mark()
    bed.get("https://gateway.corp.test/v1/messages")
    want([(r["key"], r["auth"]) for r in bed.seen(mark)], [(KEYS["gateway"], "")], "nor for requests")


def case_a_key_is_rotated(bed):
    """The broker that comes second with an old revision fails, and its key goes nowhere."""
    profile(bed, UNRESTRICTED)
    revision = vault(bed, "GET")[1]["revision"]
    new, late = key("sk-"), key("sk-")
    bed.values |= {new, late}
    change = {"expectedRevision": revision, "credentials": {"replace": [credential("gateway", new)]}}
    want(vault(bed, "PATCH", change)[0], 200, "the first")
    change["credentials"]["replace"] = [credential("gateway", late)]
    want(vault(bed, "PATCH", change)[0], 409, "the second")
    mark = bed.seen_mark()
    got = bed.get("https://gateway.corp.test/v1/echo")
    want([r["key"] for r in bed.seen(mark)], [new], "the next request")
    want(new in got[3], False, "an echo of it")
    bed.keys(VAULT)


# ---- who comes in

def case_a_WebSocket_from_outside(bed):
    """The pod's own port is reached over a change of policy; the way back is no way out."""
    user = bed.user("docker")
    free(bed)
    user.do(WEBSOCKET_SERVER.format(port=8080))
    want((WebSocket(bed, 8080).say("hello"), bed.opens(ROUTER[4], 5000)), ("hello", "echo"), "control")
    profile(bed, LIMITED)
    live = WebSocket(bed, 8080)
    want(live.say("one"), "one", "opened")
    bed.change("PATCH", [rule("deny", "site.test")])
    want(live.say("two"), "two", "after a change")
    want(WebSocket(bed, 8080).say("three"), "three", "another one")
    want(bed.opens(ROUTER[4], 5000), "ConnectionRefusedError", "the sandbox to who came in")
    live.sock.close()
    user.process.kill()
    user.process.wait()


def case_a_stop_finds_no_key(bed):
    """The bed searches memory, log and trail for each key that the vault ever had."""
    want(len(bed.values) >= len(KEYS), True, "keys to look for")
    bed.halt()
    bed.running = None


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
