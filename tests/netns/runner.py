#!/usr/bin/env python3
"""The scenario of an agent runner: one sandbox for a task, closed by default, sites by the run.

Inside are the runner's entrance on the bridge, which may be written to, the model host with the key
put in, and the sites of the run with their subdomains, to be read. Each attack that is held is seen to
get through in the control cases, without the sidecar. A browser: long/browser.py. Bed: platformbed.py.
"""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from guardbed import EVIL, GOOD, META, NOBODY, until, want  # noqa: E402
from gatebed import status  # noqa: E402
from platformbed import (ENTRANCE, HOST, LONG, NEIGHBOUR, Bed, credential, free, key, policy,  # noqa: E402
                         rule, sites)
from sidecarbed import INTERNAL  # noqa: E402

REFUSED = "ConnectionRefusedError"
MODEL, PLACEHOLDER = key("sk-"), "placeholder-model-0001"
SETTINGS = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true", "AGENTIC_WRITE_HOSTS": "api.model.test",
            "OPENSANDBOX_EGRESS_RULES": policy("deny"), "OPENSANDBOX_EGRESS_SANDBOX_ID": "sbx-task-1"}
# What is the same in each run; sites come behind it.
ALWAYS = [rule("allow", HOST, ENTRANCE), rule("allow", "api.model.test")]
VAULT = {"credentials": [credential("model", MODEL)], "bindings": [{
    "name": "model", "match": {"hosts": ["api.model.test"], "methods": ["GET", "POST"],
                               "paths": ["/v1/*"]},
    "auth": {"type": "bearer", "credential": "model", "substitutions": [
        {"credential": "model", "placeholder": PLACEHOLDER, "in": ["header:x-api-key"]}]}}]}


def in_run(bed, *names, run_id="r-1"):
    """A run with these sites; the sidecar lives for all of them. The time of the policy's change."""
    if bed.keyed is None or bed.keyed is not bed.process or bed.process.poll() is not None:
        bed.with_settings(**SETTINGS)
        bed.change("PUT", policy("deny", *ALWAYS))
        bed.keys(VAULT)
        bed.keyed = bed.process
    got = bed.ask("PUT", "/audit/context", json.dumps({"labels": {"run": run_id}}))
    want((got[0], json.loads(got[2])["labels"]), (200, {"run": run_id}), "context")
    start = time.monotonic()
    bed.change("PUT", policy("deny", *ALWAYS, *sites(*names)))
    return start


def collected(bed, after=None):
    """All lines that the API has behind this number, page by page."""
    rows = []
    while True:
        got = bed.ask("GET", f"/audit?limit=50&after={after if after is not None else 0}")
        want(got[0], 200, got[2])
        page = got[2].splitlines()
        if not page:
            return rows
        rows += page
        after = json.loads(page[-1])["seq"]


def posts(bed, mark):
    return [r["uri"] for r in bed.seen(mark) if r["method"] not in ("GET", "HEAD")]


# ---- closed

PEERS = [(a, 5000) for a in (EVIL[4], EVIL[6], GOOD[4], HOST, NEIGHBOUR, INTERNAL[4])] + \
    [(META[4], 80), (META[6], 80), (META[4], 5000)]


def case_closed_without_a_policy(bed):
    """The sandbox starts with nothing: no name, no address, not the host nor its neighbours."""
    free(bed)
    want([bed.opens(a, p) for a, p in PEERS if p == 5000], ["echo"] * 7, "control: without us")
    bed.with_settings(**SETTINGS)
    want(bed.change("GET", None)["mode"], "deny_all", "the start policy")
    want([bed.opens(a, p) in ("echo",) for a, p in PEERS], [False] * len(PEERS), "addresses")
    for name in ("site.test", "api.model.test", "evil.test"):
        want(status(bed.dig(name)), "NXDOMAIN", name)
        want(bed.get(f"https://{name}/x")[0], 0, name)
    got = bed.get("https://site.test/x", "--resolve", f"site.test:443:{GOOD[4]}")
    want(got[:3], (403, "blocked", "host_not_listed"), "a site by its address")


# ---- the entrance, and what lies beside it

def case_the_entrance_is_reachable_and_writable(bed):
    in_run(bed, "site.test")
    bed.entrance.got.clear()
    mark = bed.audit_mark()
    where = f"http://{HOST}:{ENTRANCE}"
    want(bed.get(f"{where}/task")[:2], (200, "OK"), "GET")
    want(bed.get(f"{where}/result", "-d", "done=1")[:2], (200, "OK"), "POST")
    want(bed.get(f"{where}/blob", "-T", bed.path("long"))[0], 200, "an upload")
    got = [(m, p, len(b)) for m, p, b in bed.entrance.got]
    want(got, [("GET", "/task", 0), ("POST", "/result", 6), ("PUT", "/blob", LONG)], "arrived")

    def flows():
        return [x for x in bed.lines(mark) if x["kind"] == "flow" and x["port"] == ENTRANCE]
    until(lambda: sum(x.get("count", 1) for x in flows()) == 3, "three connections on record")
    want({(x["verdict"], x["addr"], x["uid"]) for x in flows()}, {("allowed", HOST, NOBODY)}, "on record")


def case_requests_to_the_entrance_on_record(bed):
    """As an extra port it is inspected: lines for requests; and no other name may lead there."""
    bed.with_settings(**SETTINGS, OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS=str(ENTRANCE))
    bed.change("PUT", policy("deny", *ALWAYS, *sites("site.test")))
    bed.entrance.got.clear()
    mark = bed.audit_mark()
    want(bed.get(f"http://{HOST}:{ENTRANCE}/result", "-d", "done=1")[0], 200, "POST")
    got = bed.get(f"http://rebind.site.test:{ENTRANCE}/result", "-d", "done=2")
    want(got[:3], (403, "blocked", "method_not_read"), "by a name of somebody else's")
    want([(m, b) for m, _, b in bed.entrance.got], [("POST", b"done=1")], "arrived")
    rows = [(x["kind"], x["verdict"], x["reason"]) for x in bed.web_lines(mark)]
    want(rows, [("write", "allowed", "write_private"), ("write", "blocked", "method_not_read")], "on record")
    free(bed)
    bed.entrance.got.clear()
    bed.tool("curl", "-s", "--resolve", f"rebind.site.test:{ENTRANCE}:{HOST}", "-d", "done=2",
             f"http://rebind.site.test:{ENTRANCE}/result")
    want(len(bed.entrance.got), 1, "control: without us")


def case_nothing_else_on_the_bridge(bed):
    """Another port of the host, another sandbox, the metadata address; and a site's name that leads there."""
    free(bed)
    near = [(HOST, 5000), (NEIGHBOUR, 5000), (META[4], 5000), (META[6], 5000)]
    want([bed.opens(*p) for p in near], ["echo"] * 4, "control: without us")
    for name, addr in (("rebind.site.test", HOST), ("meta.site.test", META[4])):
        got = bed.get(f"http://{name}/latest", "--resolve", f"{name}:80:{addr}", "-d", "x=1")
        want(got[0], 200, f"control: POST to {name}")
    in_run(bed, "site.test")
    mark = bed.seen_mark()
    want([bed.opens(*p) == "echo" for p in near], [False] * 4, "addresses")
    want(bed.get(f"http://{META[4]}/latest")[0] in (0, 403), True, "metadata by its address")
    for name, addr in (("rebind.site.test", HOST), ("meta.site.test", META[4])):
        for args in ((), ("-d", "x=1")):
            got = bed.get(f"http://{name}/latest", "--resolve", f"{name}:80:{addr}", *args)
            want(got[:2], (403, "blocked"), f"{name} {args}")
    want(bed.seen(mark), [], "requests that arrived")


def case_the_metadata_address_is_no_private_address(bed):
    """Even where a rule names it: it may be read then, and not written to."""
    in_run(bed)
    bed.change("PUT", policy("deny", *ALWAYS, rule("allow", META[4])))
    mark = bed.seen_mark()
    want(bed.get(f"http://{META[4]}/latest")[0], 200, "control: a rule for it")
    want(bed.get(f"http://{META[4]}/latest", "-d", "x=1")[:3], (403, "blocked", "method_not_read"), "POST")
    want([r["method"] for r in bed.seen(mark)], ["GET"], "arrived")


# ---- the model host

def case_the_model_host_gets_the_key(bed):
    """The sandbox has a placeholder; its own key is taken out; the answer shows stars."""
    in_run(bed, "site.test")
    mark, audit = bed.seen_mark(), bed.audit_mark()
    url = "https://api.model.test/v1/messages"
    body = '{"model":"m","prompt":"hello"}'
    json_type = ("-H", "Content-Type: application/json")
    for more in (("-H", f"x-api-key: {PLACEHOLDER}"), ("-H", "Authorization: Bearer of-the-sandbox")):
        want(bed.get(url, *json_type, "-d", body, *more)[0], 200, f"POST with {more}")
    rows = bed.seen(mark)
    want([(r["auth"], r["key"], r["content"]) for r in rows],
         [(f"Bearer {MODEL}", MODEL, body), (f"Bearer {MODEL}", "", body)], "what the origin got")
    got = bed.get("https://api.model.test/v1/../echo", "--path-as-is")
    want(got[0], 403, "a path that two readers see differently")
    got = bed.get("https://api.model.test/v1/echo")
    want(MODEL in got[3], False, "the answer has no key")
    for what, args in (("another path", ("https://api.model.test/v2/files", "-d", "x=1")),
                       ("a query of its own", (f"{url}?key=mine", *json_type, "-d", body))):
        mark = bed.seen_mark()
        want(bed.get(*args)[:3], (403, "blocked", "write_without_binding"), what)
        want(bed.seen(mark), [], f"{what}: arrived")
    mark = bed.seen_mark()
    got = bed.get("https://site.test/x", "-H", f"x-api-key: {PLACEHOLDER}")
    want(got[:3], (403, "blocked", "placeholder_for_other_host"), "the placeholder elsewhere")
    want(bed.seen(mark), [], "the placeholder elsewhere: arrived")
    lines = [x for x in bed.web_lines(audit) if x["host"] == "api.model.test" and x["verdict"] == "allowed"]
    want({(x["binding"], x["proof"]) for x in lines},
         {("model", "address,sni,certificate,authority,binding")}, "what was proven")
    with open(bed.audit, encoding="utf-8") as f:
        want(MODEL in f.read(), False, "the trail has no key")
    want(MODEL in bed.output(), False, "the log has no key")


# ---- sites

def case_a_site_and_its_subdomains_are_read_only(bed):
    in_run(bed, "site.test")
    mark, audit = bed.seen_mark(), bed.audit_mark()
    names = ("site.test", "www.site.test", "a.deep.site.test")
    for name in names:
        for scheme in ("https", "http"):
            want(bed.get(f"{scheme}://{name}/page?q=1")[:2], (200, "OK"), f"GET {scheme} {name}")
            status_, phrase, reason, text = bed.get(f"{scheme}://{name}/form", "-d", "x=1")
            want((status_, phrase, reason), (403, "blocked", "method_not_read"), f"POST {scheme} {name}")
            want(text.startswith(f"403 blocked: POST {name}"), True, text)
    want({r["method"] for r in bed.seen(mark)}, {"GET"}, "only reads arrived")
    for name in ("mysite.test", "site.test.evil.test", "other.test"):
        want(status(bed.dig(name)), "NXDOMAIN", name)
    got = bed.get("https://shared.test/x", "--resolve", f"shared.test:443:{GOOD[4]}")
    want(got[:3], (403, "blocked", "host_not_listed"), "another site at the same address")
    got = bed.get("https://site.test/x", "-H", "Host: shared.test")
    want(got[:3], (403, "blocked", "name_mismatch"), "another site behind the name of this one")
    rows = bed.web_lines(audit)
    want([(x["kind"], x["verdict"]) for x in rows][:12],
         [("read", "allowed"), ("write", "blocked")] * 6, "on record")
    free(bed)
    mark = bed.seen_mark()
    for name in names:
        bed.tool("curl", "-sk", "--resolve", f"{name}:443:{GOOD[4]}", "-d", "x=1", f"https://{name}/form")
    want(posts(bed, mark), ["/form"] * 3, "control: POST without us")


def case_sites_of_the_next_run(bed):
    """Applied anew, they narrow and widen within a second; what is open is cut, or loses not a byte."""
    in_run(bed, "site.test", "kept.test")
    want(bed.get("https://other.test/x")[0], 0, "not a site of this run")
    gone = [bed.follow(u) for u in ("https://site.test/long", "http://www.site.test/long")]
    kept = [bed.follow(u) for u in ("https://kept.test/long", "https://api.model.test/v1/slow?bytes=%d&ms=120" % LONG)]
    time.sleep(0.7)
    changed = in_run(bed, "other.test", "kept.test")
    for f in gone:
        f.cut(changed)
    until(lambda: bed.get("https://other.test/x")[0] == 200, "the new site", 1)
    want(time.monotonic() - changed < 2, True, "in time")
    for name in ("site.test", "www.site.test"):
        want(status(bed.dig(name)), "NXDOMAIN", name)
        got = bed.get(f"https://{name}/x", "--resolve", f"{name}:443:{GOOD[4]}")
        want(got[:3], (403, "blocked", "host_not_listed"), f"{name} by its address")
    for f in kept:
        f.whole()
    changed = in_run(bed, "site.test", "other.test", "kept.test")
    until(lambda: bed.get("https://www.site.test/x")[0] == 200, "wider again", 1)
    bed.follow("https://site.test/long").whole()  # control: it takes longer than until the cut


def case_sites_by_patch_and_delete(bed):
    """As SDKs do: the same within a second, and GET tells what is stored."""
    in_run(bed, "site.test")
    open_ = bed.follow("https://site.test/long")
    time.sleep(0.5)
    bed.change("PATCH", sites("other.test"))
    until(lambda: bed.get("https://other.test/x")[0] == 200, "PATCH", 1)
    changed = time.monotonic()
    bed.change("DELETE", ["site.test", "*.site.test"])
    open_.cut(changed)
    want(bed.get("https://site.test/x")[0], 0, "DELETE")
    stored = bed.change("GET", None)["policy"]["egress"]
    want(sorted(r["target"] for r in stored),
         sorted(["other.test", "*.other.test", HOST, "api.model.test"]), "stored")


# ---- the ledger

def case_pages_read_by_curl_are_on_record(bed):
    """Each is one line of kind read, in the order in which they were read."""
    in_run(bed, "site.test")
    mark, audit = bed.seen_mark(), bed.audit_mark()
    bed.get("https://site.test/go", "-L")
    for url in ("http://site.test/a?token=secret", "https://www.site.test/b", "https://site.test/c"):
        want(bed.get(url)[0], 200, url)
    bed.get("https://site.test/form", "-d", "x=1")
    rows = [x for x in bed.web_lines(audit) if x["kind"] == "read"]
    want([x["url"] for x in rows],
         ["https://site.test/go", "https://www.site.test/went", "http://site.test/a?token=<6>",
          "https://www.site.test/b", "https://site.test/c"], "lines")
    want([(x["status"], x["sandbox"], x["via"]) for x in rows],
         [(302, "sbx-task-1", "redirect")] + [(200, "sbx-task-1", "redirect")] * 4, "facts")
    want(all(re.match(r"curl/", x["user_agent"]) for x in rows), True, "user agent")
    want(len(bed.seen(mark)), len(rows), "as many as the origins answered")


def case_each_run_has_its_own_reads(bed):
    """Lines carry the run in force, also of what outlives it; the runner collects them by the API."""
    in_run(bed, "site.test", run_id="r-81")
    audit = bed.audit_mark()
    bed.get("https://site.test/one")
    long = bed.follow("https://site.test/long")
    time.sleep(0.5)
    in_run(bed, "site.test", run_id="r-82")
    bed.get("https://site.test/two")
    bed.get("https://site.test/form", "-d", "x=1")
    long.whole()
    rows = bed.web_lines(audit)
    want({(x["url"].rsplit("/", 1)[1], x["kind"], x["context"]["run"]) for x in rows},
         {("one", "read", "r-81"), ("long", "read", "r-81"), ("two", "read", "r-82"),
          ("form", "write", "r-82")}, "runs of lines")
    with open(bed.audit, encoding="utf-8") as f:
        want(collected(bed), f.read().splitlines(), "by the API as in the file")


def case_a_stop_leaves_no_key_behind(bed):
    """The bed searches memory, log and trail for the model's key."""
    want(MODEL in bed.values, True, "a key to look for")
    bed.halt()
    bed.running = None


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
