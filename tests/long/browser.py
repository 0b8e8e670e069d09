#!/usr/bin/env python3
"""A headless browser in the scenario of netns/runner.py: pages are one line each, with the run's label.

Chromium from Debian, which is installed if it is not there, trusts us by images/trust/egress-trust and
by nothing else. What it asks for on its own account is seen too, and refused. Beds: netns/trust.py,
netns/platformbed.py; the `--list` is guardbed.py's.
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "netns"))
import guardbed  # noqa: E402
import runner  # noqa: E402
import trust  # noqa: E402
from guardbed import NOBODY, SRC, Skip, until, want  # noqa: E402

PAGE = """<!doctype html>
<title>page</title>
<link rel=stylesheet href=style.css>
<img src=https://www.site.test/picture>
<img src=https://evil.test/pixel>
<p id=said>nothing</p>
<script src=code.js></script>
"""
CODE = """
async function say() {
    const got = await fetch('/data?n=1');
    const sent = await fetch('/data', {method: 'POST', body: 'x=1'});
    const beacon = await fetch('/web/beacon', {method: 'POST', body: 'y', keepalive: true});
    document.getElementById('said').textContent =
        `got ${got.status}, sent ${sent.status} ${sent.headers.get('x-egress-reason')}, ${beacon.status}`;
}
say();
"""
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --virtual-time-budget=5000
--timeout=15000 --dump-dom""".split()


def chromium():
    if not shutil.which("chromium") or not shutil.which("certutil"):
        subprocess.run(["bash", "-c", ". tools/packages.sh; packages_need chromium libnss3-tools"],
                       cwd=SRC, check=False)
    if not shutil.which("chromium"):
        raise Skip("no chromium, and it cannot be installed")


def browse(bed, url, home):
    """(what the page became, what chromium said)"""
    os.makedirs(f"{home}/profile", exist_ok=True)
    os.chown(f"{home}/profile", NOBODY, NOBODY)
    text = bed.tool("chromium", *OPTIONS, f"--user-data-dir={home}/profile", url,
                    env={"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home})[1]
    at = text.find("<!DOCTYPE") if "<!DOCTYPE" in text else text.find("<html")
    return (text[at:] if at >= 0 else ""), text


def pages(bed):
    for name, text in (("page.html", PAGE), ("style.css", "p { color: green }\n"), ("code.js", CODE)):
        bed.write(f"web/{name}", text)


def case_a_browser_that_was_not_told(bed):
    """The control: it shows an error, and asks for nothing."""
    chromium()
    runner.in_run(bed, "site.test", run_id="r-0")
    pages(bed)
    mark, audit, home = bed.seen_mark(), bed.audit_mark(), bed.own_home(NOBODY)
    shutil.rmtree(f"{home}/.pki", ignore_errors=True)
    page, text = browse(bed, "https://site.test/web/page.html", home)
    want('id="said"' in page, False, text[-300:])
    want(bed.seen(mark), [], "requests that arrived")
    until(lambda: [x for x in bed.lines(audit) if x["host"] == "site.test" and x["reason"] == "client_tls"],
          "a line that says why")


def case_pages_read_by_a_browser_are_on_record(bed):
    chromium()
    runner.in_run(bed, "site.test", run_id="r-browser")
    pages(bed)
    home = bed.own_home(NOBODY)
    bed.trust("--ca", bed.path("egress-ca.pem"))
    mark, audit = bed.seen_mark(), bed.audit_mark()
    page, text = browse(bed, "https://site.test/web/page.html", home)
    said = re.search(r'id="said">([^<]*)<', page)
    want(said and said[1], "got 200, sent 403 method_not_read, 403", text[-600:])
    rows = bed.web_lines(audit)
    arrived = sorted(f"{r['scheme']}://{r['host']}{r['uri']}" for r in bed.seen(mark))
    reads = [x for x in rows if x["kind"] == "read" and x["verdict"] == "allowed"]
    want(sorted(x["url"] for x in reads), arrived, "one line for each request that arrived")
    want({"https://site.test/web/page.html", "https://site.test/web/style.css",
          "https://site.test/web/code.js", "https://site.test/data?n=1",
          "https://www.site.test/picture"} <= set(arrived), True, arrived)
    want({x["context"]["run"] for x in rows}, {"r-browser"}, "the run")
    want(all("Chrome" in x["user_agent"] for x in reads), True, "user agent")
    want([(x["url"], x["verdict"], x["reason"]) for x in rows if x["kind"] == "write"],
         [(f"https://site.test{p}", "blocked", "method_not_read") for p in ("/data", "/web/beacon")],
         "writes")
    refused = {x["host"] for x in bed.lines(audit) if x["kind"] == "dns" and x["verdict"] == "blocked"}
    want("evil.test" in refused, True, "a picture of another site")
    print(f"  asked for on its own account, and refused: {' '.join(sorted(refused - {'evil.test'}))}")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), trust.Bed))
