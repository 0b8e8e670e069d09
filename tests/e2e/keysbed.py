"""What keys_catalogue.py, keys_wire.py and cases_vault.py share: vault documents, egress that has
one and gets another while it runs, a client's connection that stays open. On top of casebed.py;
the ways of asking come from keys.py, whose one document is its own."""
import base64
import contextlib
import json
import os
import random
import signal
import string
import subprocess

import casebed
from casebed import Failed, Talk, read_talk, until, want, want_in, want_out
from keys import HOST, PH, ask, request, sent  # noqa: F401 for those who come after

# Nothing in common with a placeholder: leakscan.py would take that for a piece of the key.
K = b"sk-live-" + "".join(random.choices(string.ascii_uppercase, k=17)).encode()
STARS = b"*" * len(K)
K_NEW = b"sk-next-0002-DDDDEEEEFFFF"
OFF = {"EGRESS_READ_ONLY": "off", "OPENSANDBOX_EGRESS_LOG_LEVEL": "debug"}
JSON = b"application/json"


# --- documents ---

def sub(*where, placeholder=PH, credential="k"):
    return {"credential": credential, "placeholder": placeholder.decode(), "in": list(where)}


def bearer(*subs, credential="k"):
    auth = {"type": "bearer", "credential": credential}
    return {**auth, "substitutions": list(subs)} if subs else auth


def passthrough(*subs):
    return {"type": "passthrough", "substitutions": list(subs)}


def bind(name, auth, paths=("/*",), hosts=(HOST,), **match):
    return {"name": name, "auth": auth,
            "match": {"hosts": list(hosts), "paths": list(paths), **match}}


def document(keys, *bindings):
    """keys: {name: value}, bytes."""
    return {"credentials": [{"name": n, "source": {"type": "inline", "value": v.decode()}}
                            for n, v in keys.items()], "bindings": list(bindings)}


def document_write(bed, name, doc):
    """The path of a file with it, put there in one step as an editor does."""
    path = bed.path(f"vault-{name}.json")
    with open(os.open(path + ".new", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as f:
        f.write(doc if isinstance(doc, str) else json.dumps(doc))
    os.rename(path + ".new", path)
    return path


# --- egress ---

def vaulted(bed, name, doc, **settings):
    """The egress of that name; started with this document if it does not run."""
    for e in bed.running:
        if e.name == name:
            bed.egress = e
            return e
    path = document_write(bed, name, doc)
    return bed.need(name, EGRESS_VAULT_FILE=path, **settings)


def vault_revision(egress):
    text = egress.text()
    at = text.rfind("vault: revision ")
    return int(text[at:].split()[2].rstrip(":")) if at >= 0 else 0


def vault_replace(bed, egress, doc):
    """Gives it another document; the revision that is in force afterwards."""
    want_next = vault_revision(egress) + 1
    document_write(bed, egress.name, doc)
    os.kill(egress.process.pid, signal.SIGHUP)
    until(lambda: vault_revision(egress) >= want_next, f"revision {want_next}", 10)
    return vault_revision(egress)


def vault_check(bed, doc, **settings):
    """(exit code, what it says) of egress --check with this document."""
    path = document_write(bed, "check", doc)
    rules = [{"action": a, "target": t} for a, t, p in casebed.POLICY if not p]
    env = {"PATH": os.environ["PATH"], "HOME": bed.top, "OPENSANDBOX_EGRESS_MODE": "proxy",
           "AGENTIC_WRITE_HOSTS": HOST, "EGRESS_VAULT_FILE": path,
           "OPENSANDBOX_EGRESS_DNS_UPSTREAM": "11.22.0.53:53",
           "OPENSANDBOX_EGRESS_RULES": json.dumps({"egress": rules})}
    env.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
    env.update(settings)
    p = subprocess.run([casebed.EGRESS, "--check"], env=env, capture_output=True, cwd=bed.top,
                       timeout=20, check=False)
    return p.returncode, (p.stdout + p.stderr).decode(errors="replace")


def unlogged(egress, target, *texts):
    """None of these, nor its base64, is in log or audit trail, once this target is on record."""
    until(lambda: [x for x in egress.lines() if x["url"] and x["url"].endswith(target.decode())],
          f"a line about {target}")
    for path in (egress.log, egress.audit):
        with open(path, "rb") as f:
            written = f.read()
        want_in(b"egress", written, f"{path}: control")
        for text in texts:
            want_out(text, written, path)
            want_out(base64.b64encode(text).rstrip(b"="), written, path)


def direct(bed, data, name="read.test"):
    """What comes back past egress, to the end: an answer as its origin sends it."""
    raw = b""
    s = bed.dial(casebed.NAMES[name][0], 443, direct=True)
    with bed.wrap(s, name, bed.direct_context) as tls:
        tls.sendall(data)
        while piece := tls.recv(65536):
            raw += piece
    return raw


# --- requests ---

def post(target, content, kind=JSON, method=b"POST", fields=b""):
    if kind:
        fields += b"Content-Type: %s\r\n" % kind
    return request(target, fields + b"Content-Length: %d\r\n" % len(content), method, content)


def chunked(content, size):
    pieces = [content[i:i + size] for i in range(0, len(content), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def content_of(got):
    """Content of the one request in got."""
    want(got.count(b" HTTP/1.1\r\n"), 1, "one request")
    return got.split(b"\r\n\r\n", 1)[1]


def content_plain(got):
    """The same, out of its chunks if it has some."""
    head, fields, rest = casebed.split_head(got)
    if casebed.values(fields, b"transfer-encoding"):
        taken = casebed.take_chunked(rest)
        return taken[0] if taken else None
    want(casebed.values(fields, b"content-length"), [b"%d" % len(rest)], f"length ({head})")
    return rest


def answers(bed, path, *pieces, stay=True):
    """Lets the origins answer requests to this path with these pieces. Not stay: and then close."""
    def route(peer, head):
        peer.body(head)
        for piece in pieces:
            peer.send(piece)
        return stay
    bed.origins.routes[path] = route


def refused(talk, reason, what, status=403):
    """One answer of ours, with this reason."""
    if not talk.finals:
        raise Failed(f"{what}: no answer: {talk}")
    r = talk.finals[-1]
    want((r.status, r.field("x-egress-reason")), (status, reason), f"{what} ({talk})")


class Client:
    """A client's connection through CONNECT and TLS that stays open."""

    def __init__(self, bed, name=HOST):
        s = bed.connect(f"{name}:443")
        if isinstance(s, Talk):
            raise Failed(f"CONNECT {name}: {s}")
        self.bed, self.sock, self.talk, self.n = bed, bed.wrap(s, name), Talk(), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, *pieces):
        for piece in pieces:
            self.sock.sendall(piece)

    def end_in_order(self):
        """No more from here, by FIN: closing with session tickets unread would send RST, and the
        other side then loses what it has not read yet."""
        self.sock.settimeout(0.3)
        with contextlib.suppress(OSError):
            self.sock.recv(1)

    def answer(self):
        """The next final answer."""
        self.n += 1
        read_talk(self.sock, self.talk, self.n, casebed.WAIT_S)
        if len(self.talk.finals) < self.n:
            raise Failed(f"no answer {self.n}: {self.talk}")
        return self.talk.finals[self.n - 1]

    def forget(self):
        """All answers so far were looked at."""
        self.talk, self.n = Talk(), 0

    def until_seen(self, text):
        """Reads until this came."""
        while text not in self.talk.raw:
            if not self.more():
                raise Failed(f"{text!r} did not come: {self.talk}")

    def until_closed(self):
        """Reads to the end; what came, as one answer."""
        while self.more():
            pass
        return casebed.replies_of(self.talk.raw, self.talk.eof)

    def more(self):
        try:
            data = self.sock.recv(1 << 20)
        except TimeoutError:
            return False
        self.talk.raw += data
        self.talk.eof = not data
        return bool(data)
