#!/usr/bin/env python3
"""Does what docs/operate.md says, and compares with what it shows.

Each `console` block of the page is run line by line: `docker exec sandbox-egress-$ID` runs in the
sidecar's place, `docker exec sandbox-$ID` in the sandbox, `docker logs` prints what egress has written,
anything else runs on the host. `...` in what is shown stands for anything. One case for each chapter
with such a block. Bed: platformbed.py, with the names of the page.
"""
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
import platformbed  # noqa: E402
import sidecarbed  # noqa: E402
from guardbed import BOX, BUILD, SRC, Failed, Inside, want  # noqa: E402
from platformbed import credential, key, policy, rule  # noqa: E402
from sidecarbed import API, EVIL, GOOD, TOKEN, WRITE  # noqa: E402

PAGE = os.path.join(SRC, "docs/operate.md")
CTL = os.environ.get("EGRESSCTL_BIN") or os.path.join(BUILD, "ctl", "egressctl")
NAMES = {"pypi.org": GOOD, "files.pythonhosted.org": GOOD, "api.model.example": WRITE, "example.com": EVIL}
SANDBOX_ID = "sbx-7f3a"
SETTINGS = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true", "AGENTIC_WRITE_HOSTS": "api.model.example",
            "EGRESS_AUDIT": "stdout", "OPENSANDBOX_EGRESS_SANDBOX_ID": SANDBOX_ID,
            "OPENSANDBOX_EGRESS_RULES": policy("deny", rule("allow", "pypi.org"),
                                               rule("allow", "api.model.example"))}
KEY = key("sk-")
VAULT = {"credentials": [credential("model-key", KEY)], "bindings": [{
    "name": "model", "match": {"hosts": ["api.model.example"], "methods": ["GET", "POST"],
                               "paths": ["/v1/*"]},
    "auth": {"type": "apiKey", "name": "x-api-key", "credential": "model-key"}}]}
TOOL_S = 30


class Bed(platformbed.Bed):
    NAME = "operatebed"
    TOP_ZONE = {**platformbed.ZONE, **{n: {"a": a[4], "aaaa": a[6], "ttl": 30} for n, a in NAMES.items()}}

    def servers(self):
        sidecarbed.NAMES.update(NAMES)
        super().servers()

    def ready(self):
        if not self.process or self.process.poll() is not None:
            self.with_settings(**SETTINGS)
            self.keys(VAULT)

    def in_sandbox_says(self, command):
        env = {n: self.path("egress-ca.pem") for n in ("CURL_CA_BUNDLE", "SSL_CERT_FILE")}
        return self.tool("sh", "-c", command, uid=0, env=env)

    def on_host_says(self, command, inside):
        """A command in bash; inside: in the sidecar's network, with its environment."""
        bin_ = os.path.dirname(CTL)
        env = {"PATH": f"{bin_}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": self.top, "LANG": "C.UTF-8",
               "ID": SANDBOX_ID, "TOKEN": TOKEN, "ADDR": f"{BOX[4]}:{API}"}
        if inside:
            env.update({k: v for k, v in self.settings(**SETTINGS).items()
                        if k.startswith(("OPENSANDBOX_", "AGENTIC_", "EGRESS_"))}, PATH=f"{bin_}:/usr/bin:/bin")
        with Inside(self.box if inside else self.net):
            p = subprocess.run(["bash", "-c", command], env=env, cwd=self.top, text=True, timeout=TOOL_S,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return p.returncode, p.stdout

    def says(self, command):
        """Of one command of the page."""
        rest = re.sub(r"\bdocker logs sandbox-egress-\$ID 2>/dev/null", f"grep '^{{' {self.log}", command)
        rest = re.sub(r"\bdocker logs sandbox-egress-\$ID", f"cat {self.log}", rest)
        # The image has one variable of its own.
        rest = re.sub(r"\bdocker run --rm ((?:-e \S+ )*)local/egress-own:1", lambda m: "env -i EGRESS_READ_ONLY=true "
                      + m[1].replace("-e ", "") + shlex.quote(sidecarbed.EGRESS), rest)
        m = re.match(r"docker exec (?:-i )?sandbox-(egress-)?\$ID (.*)", rest, re.S)
        if m and not m[1]:
            return self.in_sandbox_says(m[2])
        return self.on_host_says(m[2] if m else rest, bool(m))


def blocks():
    """[(chapter, [(command, what it shows)])] of the page."""
    with open(PAGE, encoding="utf-8") as f:
        text = f.read()
    out, chapter = [], "start"
    for m in re.finditer(r"^## ([^\n]*)$|^```console\n(.*?)^```", text, re.M | re.S):
        if m[1]:
            chapter = m[1]
            continue
        rows = []
        for line in m[2].splitlines():
            if line.startswith("$ "):
                rows.append([line[2:], ""])
            elif rows and rows[-1][0].endswith("\\"):
                rows[-1][0] = rows[-1][0][:-1] + line.strip()
            else:
                rows[-1][1] += line + "\n"
        out.append((chapter, rows))
    return out


def pattern(text):
    """Of what is shown: a line that is `...` alone stands for any lines, elsewhere for anything in the line."""
    parts = re.split(r"^\.\.\.$\n", text, flags=re.M)
    return re.compile("(?:.*\n)*?".join(r"[^\n]*".join(map(re.escape, p.split("..."))) for p in parts) + r"\Z")


def chapter_case(name):
    def case(bed):
        bed.ready()
        for chapter, rows in blocks():
            if chapter != name:
                continue
            for command, shown in rows:
                code, text = bed.says(command)
                if text and not text.endswith("\n"):
                    text += "\n"
                text = re.sub(r"[ \t]+$", "", text, flags=re.M)
                if os.environ.get("OPERATE_SHOW"):
                    print(f"$ {command}\n{text}[{code}]")
                elif not pattern(shown).match(text):
                    raise Failed(f"{command}: says {text!r}, the page shows {shown!r}")
    return case


for title in dict.fromkeys(c for c, _ in blocks()):
    globals()["case_" + re.sub(r"\W+", "_", title.lower()).strip("_")] = chapter_case(title)


def case_every_command_is_one_that_exists(bed):
    """Each egressctl, also outside of blocks, is one that egressctl knows."""
    with open(PAGE, encoding="utf-8") as f:
        text = f.read()
    for words in sorted(set(re.findall(r"egressctl ([a-z]+(?: [a-z]+)?)\b(?!/)", text))):
        one = words.split()
        known = [subprocess.run([CTL, *one[:n], "--help"], capture_output=True, check=False).returncode == 0
                 for n in (1, 2)]
        want(any(known), True, f"egressctl {words}")


def case_every_reason_is_one_that_is_written(_):
    """Of the table of refusals, in the table of docs/audit-log.md."""
    with open(PAGE, encoding="utf-8") as f:
        rows = [x.split(" | ") for x in f if x.startswith("| ")]
    with open(os.path.join(SRC, "docs/audit-log.md"), encoding="utf-8") as f:
        known = set(re.findall(r"^\| `(\w+)` \| (?:\d+|-) \|", f.read(), re.M))
    named = {r for x in rows if len(x) == 3 for r in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", " ".join(x[:2]))}
    want((len(named) > 12, named - known), (True, set()), "reasons")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin"
    sys.exit(guardbed.main(globals(), Bed))
