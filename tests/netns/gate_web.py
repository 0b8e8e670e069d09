#!/usr/bin/env python3
"""What the replaced image does in each mode and with each setting, done by the whole sidecar.

Redirects and what clients of the web see, mode dns beside dns+nft, rule files, the policy file, the
webhook, inbound ports, resolvers past the gate; and what is left when the sidecar ends. Names like R08
are lines of docs/compatibility.md; C30 and the like are failures of other products. Names, addresses
and changes of policy: gate.py. Bed: gatebed.py.
"""
import json
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from gate import FLOWS  # noqa: E402
from gatebed import BOX, HOOK, RESOLVERS, RULES, Bed, addresses, inbound, rules, status  # noqa: E402
from guardbed import API, EVIL, GOOD, Failed, Inside, run, until, want  # noqa: E402
from sidecarbed import ROUTER, TWO, WILD  # noqa: E402

REFUSED, UDP_REFUSED = "ConnectionRefusedError", "PermissionError"
WEB = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true"}
READ_ONLY = {**WEB, "AGENTIC_WRITE_HOSTS": "api.model.test"}


def udp(bed, addr, port, text=b"hello"):
    """The answer to a datagram from the sandbox, or what went wrong."""
    with Inside(bed.box):
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(0.5)
    with s:
        try:
            s.connect((addr, port))
            s.send(text)
            return s.recv(512)
        except OSError as e:
            return type(e).__name__


def without(bed):
    """No sidecar and no tables."""
    bed.free()
    bed.running = None


# ---- redirects

def case_R08_web_ports_are_redirected_and_opened(bed):
    """Over both families; what curl trusts is our CA alone, so 200 means that it was opened."""
    bed.with_settings(OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS="8443", **WEB)
    mark = bed.seen_mark()
    for f in (4, 6):
        for url in ("http://read.test/a", "https://read.test/b", "https://read.test:8443/c"):
            want(bed.curl(f"-{f}", url)[-3:], "200", f"{url} v{f}")
    seen = {(r["scheme"], r["port"], r["sni"]) for r in bed.seen(mark)}
    want(seen, {("http", 80, ""), ("https", 443, "read.test"), ("https", 8443, "read.test")}, "arrived")
    want(bed.curl("https://evil.test/x")[-3:], "000", "a name without an address")
    want(bed.opens(GOOD[4], 5000), "echo", "another port is not redirected")
    want(udp(bed, GOOD[4], 443), UDP_REFUSED, "QUIC")
    rows = [x for x in bed.lines() if x["kind"] == "read" and x["via"] == "redirect"]
    want({x["host"] for x in rows}, {"read.test"}, "on record")


def case_R11_a_stale_CA_is_replaced_before_health(bed):
    bed.halt()
    stale = bed.write("egress-ca.pem", "of another life\n")
    bed.running = None
    bed.with_settings(**WEB)
    with open(stale, encoding="ascii") as f:
        want("BEGIN CERTIFICATE" in f.read(), True, "CA file at the first 200")
    want(os.stat(stale).st_mode & 0o777, 0o644, "its mode")
    want(bed.curl("https://read.test/x")[-3:], "200", "trusted")


def case_C110_git_npm_and_pip_through_interception(bed):
    bed.with_settings(**READ_ONLY)
    home, site = bed.home(), "https://files.wild.test/files"
    env = {"HOME": home, "GIT_SSL_CAINFO": bed.path("egress-ca.pem")}
    repo, work = bed.path("files/repo.git"), bed.path("seed")
    run("git", "init", "-q", work)
    bed.write("seed/a.txt", "one\n")
    name = ["-c", "user.name=a", "-c", "user.email=a@test", "-c", "commit.gpgsign=false"]
    run("git", "-C", work, "add", "a.txt")
    run("git", "-C", work, *name, "commit", "-q", "-m", "one")
    run("git", "clone", "-q", "--bare", work, repo)
    run("git", "-C", repo, "update-server-info")
    code, text = bed.tool("git", "clone", "-q", f"{site}/repo.git", f"{home}/clone", env=env)
    want((code, os.path.exists(f"{home}/clone/a.txt")), (0, True), text)
    bed.write("files/npm/demo", json.dumps({"name": "demo", "dist-tags": {"latest": "1.0.0"},
                                            "versions": {"1.0.0": {"name": "demo", "version": "1.0.0"}}}))
    code, text = bed.tool("npm", "view", "demo", "version", "--registry", f"{site}/npm/",
                          env={**env, "npm_config_cafile": bed.path("egress-ca.pem"),
                               "npm_config_cache": f"{home}/npm", "NO_UPDATE_NOTIFIER": "1"})
    want((code, "1.0.0" in text), (0, True), text)
    bed.write("files/simple/demo/index.html", f'<a href="{site}/demo-1.0.tar.gz">demo-1.0.tar.gz</a>')
    code, text = bed.tool("/usr/bin/python3", "-m", "pip", "index", "versions", "demo", "--index-url",
                          f"{site}/simple/", "--cert", bed.path("egress-ca.pem"),
                          "--disable-pip-version-check", env=env)
    if "No module named pip" not in text:
        want((code, "1.0" in text), (0, True), text)
    want(bed.curl("-d", "x", f"{site}/x")[-3:], "403", "a write to the same host")


def case_C106_the_read_only_rule_on_every_port(bed):
    """Every TCP port towards public addresses ends in our proxy; what it cannot read is refused."""
    bed.with_settings(**READ_ONLY)
    bed.dig("read.test", "A", "read.test", "AAAA", "api.model.test")
    bed.tap.clear()
    mark = bed.seen_mark()
    for scheme in ("http", "https"):
        want(bed.curl(f"{scheme}://read.test/get")[-3:], "200", f"GET {scheme}")
        want(bed.curl("-d", "x=1", f"{scheme}://read.test/post")[-3:], "403", f"POST {scheme}")
        want(bed.curl("-d", "x=1", f"{scheme}://api.model.test/post")[-3:], "200", "a write host")
    want(bed.curl("-d", "x=1", "http://read.test:8080/post")[-3:], "403", "POST to 8080")
    for f in (4, 6):
        for port in (22, 25, 5000):
            want(bed.opens(GOOD[f], port) == "echo", False, f"{GOOD[f]}:{port}")
    want(udp(bed, GOOD[4], 5000), UDP_REFUSED, "UDP")
    want([r["uri"] for r in bed.seen(mark) if r["method"] == "POST"], ["/post"] * 2, "writes arrived")
    want(bed.tap.has(b"ping\n"), 0, "bytes of what cannot be read")
    without(bed)
    want(bed.opens(GOOD[4], 5000), "echo", "without us")


# ---- modes

def case_M02_mode_dns_filters_names_alone(bed):
    """A1: an address is reachable without a name, as in the replaced image; names are judged."""
    bed.with_settings(OPENSANDBOX_EGRESS_MODE="dns")
    want(bed.change("GET", None)["enforcementMode"], "dns", "mode (H04)")
    want(status(bed.dig("evil.test")), "NXDOMAIN", "a denied name")
    want(status(bed.dig("evil.test", "@9.9.9.9")), "NXDOMAIN", "whoever is asked")
    want(addresses(bed.dig("read.test")), [GOOD[4]], "an allowed name")
    for addr in (EVIL[4], EVIL[6]):
        want(bed.opens(addr, 5000), "echo", f"{addr} without a name")
    bed.patch(("deny", EVIL[4]))
    want(bed.opens(EVIL[4], 5000), "echo", "address rules have no effect")
    want(bed.curl("http://read.test/x")[-3:], "200", "not redirected")
    bed.patch(("deny", "read.test"))
    want(status(bed.dig("read.test")), "NXDOMAIN", "a change")


def case_M02_mode_dns_with_interception(bed):
    bed.with_settings(OPENSANDBOX_EGRESS_MODE="dns", **WEB)
    want(bed.curl("https://read.test/x")[-3:], "200", "opened with our CA")
    want(bed.curl("-k", "--resolve", f"evil.test:443:{EVIL[4]}", "https://evil.test/x")[-3:], "403",
         "a denied name by its address")
    want(bed.opens(EVIL[4], 5000), "echo", "other ports pass")


def case_M02_mode_dns_under_the_read_only_rule(bed):
    """The rule brings the kernel's rules to mode dns too."""
    bed.with_settings(OPENSANDBOX_EGRESS_MODE="dns", **READ_ONLY)
    want(bed.opens(EVIL[4], 5000) == "echo", False, "an address")
    want(bed.curl("https://read.test/x")[-3:], "200", "GET")
    want(bed.curl("-d", "x", "https://read.test/x")[-3:], "403", "POST")


def case_M01_spellings_of_the_mode(bed):
    for text in (" NFT + dns ", "dns++nft"):
        bed.with_settings(OPENSANDBOX_EGRESS_MODE=text)
        want(bed.change("GET", None)["enforcementMode"], "dns+nft", text)


# ---- settings

def case_N06_DNS_over_HTTPS_by_address(bed):
    bed.with_settings(OPENSANDBOX_EGRESS_BLOCK_DOH_443="yes",
                      OPENSANDBOX_EGRESS_DOH_BLOCKLIST=f"{TWO[4]}, {TWO[6]}/128, nonsense")
    bed.dig("read.test", "A", "two.test", "A", "two.test", "AAAA")
    for addr, should in ((TWO[4], False), (GOOD[4], True), (TWO[6], False)):
        host = f"[{addr}]" if ":" in addr else addr
        want(bed.curl("-k", f"https://{host}/x")[-3:], "200" if should else "000", addr)
        want(bed.curl(f"http://{host}:8080/x")[-3:], "200", f"{addr} on another port")
        want(udp(bed, addr, 443), b"re:hello" if should else UDP_REFUSED, f"HTTP/3 to {addr} (G11)")
    bed.with_settings(OPENSANDBOX_EGRESS_BLOCK_DOH_443="yes")
    bed.dig("read.test", "A")
    want(bed.curl("-k", f"https://{GOOD[4]}/x")[-3:], "000", "without a list: all of 443")


def case_M08_resolvers_past_the_gate(bed):
    bed.with_settings(OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT=f"{EVIL[4]}, 10.0.0.0/8, x, {EVIL[6]}")
    for f in (4, 6):
        want(udp(bed, EVIL[f], 53), b"re:hello", "an exempt resolver is asked directly")
        want(udp(bed, GOOD[f], 53) == b"re:hello", False, "no other one")
    want(status(bed.dig("evil.test", f"@{GOOD[4]}")), "NXDOMAIN", "redirected")


def case_D15_the_policy_file_beats_the_environment(bed):
    """P14: it is read at the start, written by a change, and read again at the next start."""
    home = bed.path("policy")
    path = bed.write("policy/policy.json", rules([("allow", "*.wild.test", None)]))
    more = {"OPENSANDBOX_EGRESS_POLICY_FILE": path}
    bed.with_settings(**more, OPENSANDBOX_EGRESS_RULES=rules([("allow", "read.test", None)]))
    bed.halt()
    bed.write("policy/policy.json", rules([("allow", "*.wild.test", None)]))
    bed.running = None
    bed.with_settings(**more, OPENSANDBOX_EGRESS_RULES=rules([("allow", "read.test", None)]))
    want([status(bed.dig(n)) for n in ("read.test", "a.wild.test")], ["NXDOMAIN", "NOERROR"], "start")
    bed.patch(("allow", "two.test"))
    want(os.listdir(home), ["policy.json"], "nothing else is left there")
    bed.halt()
    bed.protect(**{"AGENTIC_WRITE_HOSTS": None, "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": None,
                   "OPENSANDBOX_EGRESS_DNS_UPSTREAM": "%s:%d" % RESOLVERS[0], **more})
    bed.running = None
    want(addresses(bed.dig("two.test")), [TWO[4]], "after the next start")
    want(bed.opens(TWO[4], 5000), "echo", "in the kernel too")


def case_N28_rule_files_flip_what_is_allowed(bed):
    """D02, P09, P11, G10: by name and by address; GET shows none of it."""
    os.makedirs(bed.path("always"), exist_ok=True)
    bed.with_settings(EGRESS_RULES_DIR=bed.path("always"), OPENSANDBOX_EGRESS_RULES=rules(
        [*RULES, ("allow", GOOD[4], None), ("deny", f"{TWO[4]}/24", None)]))
    shown = bed.change("GET", None)["policy"]
    want([bed.opens(GOOD[4], 5000), bed.opens(TWO[4], 5000)], [REFUSED] * 2, "before")
    bed.write("always/allow.always", f"# addresses\n{GOOD[4]}\n{TWO[4]}\nevil.test\n")
    bed.write("always/deny.always", "a.wild.test\n")
    until(lambda: bed.opens(TWO[4], 5000) == "echo", "an address inside a denied block", 6)
    until(lambda: bed.opens(GOOD[4], 5000) == "echo", "and the other", 6)
    want(status(bed.dig("a.wild.test")), "NXDOMAIN", "deny.always")
    want(bed.change("GET", None)["policy"], shown, "the user's policy")
    os.unlink(bed.path("always/allow.always"))
    os.unlink(bed.path("always/deny.always"))
    until(lambda: bed.opens(TWO[4], 5000) == REFUSED, "files that are gone are empty", 6)
    want(status(bed.dig("a.wild.test")), "NOERROR", "deny.always is gone")


def case_D09_names_whose_lookups_are_not_logged(bed):
    bed.write("quiet/log_skip.always", "read.test\n*.wild.test\n")
    bed.with_settings(EGRESS_RULES_DIR=bed.path("quiet"))
    bed.dig("read.test", "A", "a.wild.test", "A", "two.test", "A", "fail.wild.test", "A")
    lines = [x for x in bed.output().splitlines() if "egress outbound" in x]
    want([n for n in ("read.test", "a.wild.test", "two.test", "fail.wild.test") if
          any(n in x for x in lines)], ["two.test", "fail.wild.test"], "failures are always logged")


def case_E02_webhook_for_denied_lookups(bed):
    """The receiver is inside and no rule names it: the sandbox cannot reach it, the sidecar can."""
    bed.with_settings(OPENSANDBOX_EGRESS_DENY_WEBHOOK="http://%s:%d/hook" % HOOK,
                      OPENSANDBOX_EGRESS_SANDBOX_ID="sbx-7")
    bed.hook.events.clear()
    for _ in range(3):
        bed.dig("Evil.test")
    until(lambda: bed.hook.events, "an event")
    e = bed.hook.events[0]
    want((sorted(e), e["hostname"], e["source"], e["sandboxId"]),
         (["hostname", "sandboxId", "source", "timestamp"], "evil.test", "opensandbox-egress",
          "sbx-7"), "event")
    want(len(bed.hook.events), 1, "one a second for a name")
    want(bed.opens(*HOOK), REFUSED, "from the sandbox")


def case_N24_inbound_ports(bed):
    bed.with_settings(EGRESS_INBOUND_PORTS="7100")
    user = bed.user("nobody")
    user.do("keep = [socket.create_server(('0.0.0.0', p)) for p in (7100, 7200)]")
    with_list = [inbound(bed, p) is not None for p in (7100, 7200)]
    want(with_list, [True, False], "7100 is listed, 7200 is not")
    bed.with_settings()
    want([inbound(bed, p) is not None for p in (7100, 7200)], [True, True], "without a list")
    want(bed.opens(ROUTER[4], 5000), REFUSED, "no way out to who connected in")


# ---- life

def case_C30_tables_of_others_do_not_take_our_place(bed):
    """G13: a nat rule before ours, and a chain that accepts all; each is there before we start."""
    without(bed)
    bed.nft("-f", "-", text=f"""
table ip others {{
  chain out {{
    type nat hook output priority -150; policy accept;
    udp dport 53 dnat to {EVIL[4]}
  }}
}}
table inet filter {{
  chain output {{ type filter hook output priority 0; policy accept; }}
}}
""")
    try:
        want(udp(bed, GOOD[4], 53), b"re:hello", "theirs works without us")
        try:
            bed.with_settings()
        except Failed:
            want(bed.health()[0], 503, "health")
            want("redirect" in bed.health()[1] or "DNS" in bed.health()[1], True, bed.health()[1])
        want(bed.opens(EVIL[4], 5000), REFUSED, "an address")
        want(udp(bed, GOOD[4], 53) == b"re:hello", False, "DNS past the gate")
    finally:
        for table in ("ip others", "inet filter"):
            bed.nft("delete", "table", *table.split(), check=False)
        bed.halt()
        bed.running = None


def case_C24_IPv6_that_comes_later(bed):
    without(bed)
    switch = "net.ipv6.conf.all.disable_ipv6"
    with Inside(bed.box):
        run("sysctl", "-qw", f"{switch}=1")
    try:
        bed.with_settings()
        want(bed.opens(EVIL[4], 5000), REFUSED, "v4 meanwhile")
    finally:
        with Inside(bed.box):
            run("sysctl", "-qw", f"{switch}=0")
            run("ip", "addr", "add", f"{BOX[6]}/64", "dev", "wan", "nodad", check=False)
            run("ip", "addr", "add", "::1/128", "dev", "lo", check=False)
            run("ip", "-6", "route", "add", "default", "via", ROUTER[6], check=False)
    told = bed.opens(EVIL[6], 5000)  # late where the kernel still tries the new address
    want(told.removesuffix(", late"), REFUSED, "v6 that came later")
    bed.dig("read.test", "AAAA")
    want(bed.opens(GOOD[6], 5000), "echo", "v6 of an allowed name")


def case_C34_the_first_200_means_that_it_works(bed):
    bed.halt()
    bed.running = None
    bed.with_settings(**READ_ONLY, OPENSANDBOX_EGRESS_RULES=rules(
        [*RULES, *(("allow", f"n{i}.filler.test", None) for i in range(2500))]))
    want(status(bed.dig("evil.test")), "NXDOMAIN", "a denied name")
    want(bed.curl("https://read.test/x")[-3:], "200", "a read")
    want(bed.opens(EVIL[4], 5000) == "echo", False, "an address")
    want(len(bed.change("GET", None)["policy"]["egress"]), len(RULES) + 2500, "rules")


def case_C36_many_reloads_under_load(bed):
    bed.with_settings()
    user = bed.user("nobody")
    bed.dig("read.test")
    user.do(FLOWS + f"flow('kept', {GOOD[4]!r}, 5000)\n")
    worker = bed.worker_pid()
    before = len(os.listdir(f"/proc/{worker}/fd"))
    for i in range(60):
        bed.process.send_signal(signal.SIGHUP)
        if i % 10 == 0:
            want(addresses(bed.dig("read.test")), [GOOD[4]], "meanwhile")
        time.sleep(0.02)
    seen = user.do("result = [flows['kept'][k] for k in ('end', 'lost')]; flows['kept']['stop'] = 1")
    want(seen, [None, False], "a flow")
    want(bed.worker_pid(), worker, "the same worker")
    until(lambda: len(os.listdir(f"/proc/{worker}/fd")) <= before + 1, "descriptors")
    want(bed.health()[0], 200, "health")


def case_C20_a_set_that_is_taken_away(bed):
    """Whatever address is told can be reached; the loss is seen, and mended."""
    bed.with_settings()
    want(bed.health()[0], 200, "before")
    bed.nft("delete", "table", "inet", "opensandbox")
    told, end = 0, time.monotonic() + 3
    while time.monotonic() < end:
        if addresses(bed.dig("+time=1", f"n{told}.wild.test")):
            told += 1
            want(bed.opens(WILD[4], 5000), "echo", "an address that was told")
        want(bed.opens(EVIL[4], 5000) == "echo" and time.monotonic() > end - 1, False, "refused soon")
    want(told > 0, True, "answers go on")
    until(lambda: bed.health()[0] == 200, "health")


def case_C22_a_pool_that_rotates(bed):
    """Every address that was told stays open while its lease lasts."""
    bed.with_settings()
    told = set()
    for _ in range(25):
        told |= set(addresses(bed.dig("pool.wild.test")))
    want(len(told), 200, "addresses")
    want(sum(1 for a in told if f"{a} timeout" in bed.granted()), 200, "in the set")


def case_R12_what_is_left_when_it_ends(bed):
    """C32: after SIGTERM, and after SIGKILL of the supervisor, nothing passes; a start goes on."""
    bed.with_settings()
    bed.dig("read.test")
    want(bed.opens(GOOD[4], 5000), "echo", "before")
    start = time.monotonic()
    bed.halt()
    want(time.monotonic() - start < 8, True, "ends in time")
    want([bed.opens(a, 5000) for a in (EVIL[4], EVIL[6])], [REFUSED] * 2, "after SIGTERM")
    bed.with_settings()
    want(addresses(bed.dig("read.test")), [GOOD[4]], "anew")
    bed.process.kill()
    bed.process.wait()
    bed.process = bed.running = None
    want([bed.opens(a, 5000) for a in (EVIL[4], EVIL[6])], [REFUSED] * 2, "after SIGKILL")
    until(lambda: not listening(bed), "worker and guard end with it")
    bed.with_settings()
    want([bed.opens(GOOD[4], 5000) for _ in range(2)][-1] in ("echo", REFUSED), True, "lease or none")
    want(addresses(bed.dig("read.test")), [GOOD[4]], "anew")
    want(bed.opens(GOOD[4], 5000), "echo", "anew")
    chains = bed.nft("list", "table", "inet", "opensandbox").count("chain ")
    without(bed)
    bed.with_settings()
    want(bed.nft("list", "table", "inet", "opensandbox").count("chain "), chains, "no rule twice")


def listening(bed):
    with Inside(bed.box):
        s = socket.socket()
    with s:
        return s.connect_ex(("127.0.0.1", API)) == 0


def case_C04_resolvers_on_other_ports(bed):
    """Default allow: DNS over TLS and QUIC are refused at once; 53 answers as who was asked."""
    bed.with_settings(OPENSANDBOX_EGRESS_RULES='{"defaultAction": "allow", "egress": '
                      '[{"action": "deny", "target": "evil.test"}]}')
    code, text = bed.tool("kdig", "+tls", "+timeout=2", "+retry=0", f"@{GOOD[4]}", "evil.test")
    want((code == 0 and "NOERROR" in text, bed.opens(GOOD[4], 853)), (False, REFUSED), "TLS")
    want([udp(bed, a, 853) for a in (GOOD[4], GOOD[6])], [UDP_REFUSED] * 2, "QUIC")
    for group in ("224.0.0.251", "224.0.0.252"):
        want(udp(bed, group, 5353) == b"re:hello", False, group)
    text = bed.dig("read.test", f"@{EVIL[4]}")
    want((addresses(text), "unexpected source" in text), ([GOOD[4]], False), "plain 53")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
