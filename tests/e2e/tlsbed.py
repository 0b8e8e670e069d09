"""Origins with the certificates of cases_tls.py, and raw ClientHellos.

need_tls() puts a Picker in the place of the recorders' TLS: it looks at the ClientHello, keeps it,
and answers with the context of the name in it (`expired.wild.test`: the one of SPECS["expired"]).
"""
import ssl
import struct
import subprocess
import time

import casebed
import limitbed  # noqa: F401 names below wild.test

KEY_NEW = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
ISSUER = b"certificate is from an unknown authority, or the origin left out an intermediate"
WEAK = b"certificate has a key or signature that is too weak"
OTHER = b"certificate is for another name"
# name: what differs, and the sentence it is refused with; None: it is good
SPECS = {
    "good": ({}, None), "address": ({"san": "IP:10.77.0.2"}, None),
    "chain": ({"issuer": "middle", "send": "middle"}, None),
    "expired": ({"days": (-20, -10)}, b"certificate expired"),
    "notyet": ({"days": (10, 20)}, b"certificate is not valid yet"),
    "self": ({"issuer": None}, b"self-signed certificate"),
    "unknown": ({"issuer": "stranger"}, ISSUER),
    "other": ({"san": "DNS:other.test"}, OTHER),
    "cnonly": ({"san": None}, OTHER),
    "sha1": ({"md": "sha1"}, WEAK),
    "rsa1024": ({"key": ["-newkey", "rsa:1024", "-nodes"]}, WEAK),
    "nochain": ({"issuer": "middle"}, ISSUER),
    "client": ({"eku": "clientAuth"}, b"certificate is not for servers"),
    "deep": ({"san": "DNS:*.test"}, OTHER),
    "constrained": ({"issuer": "narrow", "send": "narrow"},
                    b"certificate is for a name its authority may not certify"),
    "tls10": ({"most": ssl.TLSVersion.TLSv1}, b"protocol version"),
}
CNF = """\
[ca]
default_ca = one
[one]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = optional
[root]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[narrow]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
nameConstraints = critical,permitted;DNS:narrow.test
"""


def stamp(days):
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + days * 86400))


def issue(bed, name, ext, issuer="ca", days=(-2, 20), key=None, md="sha256", sections=()):
    """NAME.pem and NAME.key, signed by ISSUER (None: itself)."""
    bed.run("openssl", "req", *(key or KEY_NEW), "-subj", f"/CN={name}.wild.test", "-keyout",
            f"{name}.key", "-out", f"{name}.csr")
    with open(bed.path(f"{name}.ext"), "w") as f:
        f.write(ext)
    sign = ["-cert", f"{issuer}.pem", "-keyfile", f"{issuer}.key"] if issuer else [
        "-selfsign", "-keyfile", f"{name}.key"]
    exts = ["-extensions", *sections] if sections else ["-extfile", f"{name}.ext"]
    bed.run("openssl", "ca", "-batch", "-notext", "-config", "ca.cnf", *sign, "-in", f"{name}.csr",
            "-out", f"{name}.pem", "-md", md, "-startdate", stamp(days[0]), "-enddate",
            stamp(days[1]), *exts)


def context_of(bed, name, spec):
    chain = "".join(open(bed.path(f"{n}.pem")).read() for n in (name, spec.get("send")) if n)
    with open(bed.path(f"{name}.chain"), "w") as f:
        f.write(chain)
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.set_ciphers("DEFAULT:@SECLEVEL=0")
    c.load_cert_chain(bed.path(f"{name}.chain"), bed.path(f"{name}.key"))
    c.set_alpn_protocols(["http/1.1"])
    if "most" in spec:
        c.minimum_version = c.maximum_version = spec["most"]
    c.sni_callback = lambda sock, asked, _: setattr(sock, "asked", asked)
    return c


class Picker:
    """Stands for the SSLContext of all recorders."""

    def __init__(self, bed, usual):
        self.usual, self.contexts, self.hellos, self.identities = usual, {}, [], set()
        self.by_addr = {"10.77.0.2": "address"}
        for name, (spec, _) in SPECS.items():
            self.contexts[name] = context_of(bed, name, spec)
        for name, most, mode in (("ask12", "TLSv1_2", ssl.CERT_OPTIONAL),
                                 ("ask13", "TLSv1_3", ssl.CERT_OPTIONAL),
                                 ("need12", "TLSv1_2", ssl.CERT_REQUIRED),
                                 ("need13", "TLSv1_3", ssl.CERT_REQUIRED)):
            c = context_of(bed, "good", {"most": getattr(ssl.TLSVersion, most)})
            c.verify_mode = mode
            c.load_verify_locations(bed.path("ca.pem"))
            self.contexts[name] = c

    def wrap_socket(self, sock, server_side):
        data = sock.recv(16384, 2)  # MSG_PEEK
        self.hellos.append(data)
        addr = sock.getsockname()[0].replace("::ffff:", "")
        pick = self.by_addr.get(addr)
        for name in self.contexts:
            if f"\0{chr(len(name) + 10)}{name}.wild.test".encode() in data:
                pick = name
        wild = self.contexts["good"] if b".wild.test" in data else self.usual
        tls = self.contexts.get(pick, wild).wrap_socket(sock, server_side=server_side)
        if tls.getpeercert():
            self.identities.add(str(tls.getpeercert()))
        return tls


def need_tls(bed):
    if isinstance(bed.origins.tls, Picker):
        return
    with open(bed.path("ca.cnf"), "w") as f:
        f.write(CNF)
    open(bed.path("index.txt"), "w").close()
    issue(bed, "stranger", "", None, days=(-2, 200), sections=["root"])
    issue(bed, "old-ca", "", None, days=(-20, -10), sections=["root"])
    issue(bed, "middle", "", sections=["root"])
    issue(bed, "narrow", "", sections=["narrow"])
    for name, (spec, _) in SPECS.items():
        san = spec.get("san", f"DNS:{name}.wild.test")
        if name == "good":
            san = "DNS:*.wild.test"
        ext = f"extendedKeyUsage={spec.get('eku', 'serverAuth')}\n"
        ext += f"subjectAltName={san}\n" if san else ""
        issue(bed, name, ext, spec.get("issuer", "ca"), spec.get("days", (-2, 20)),
              spec.get("key"), spec.get("md", "sha256"))
    bed.origins.tls = Picker(bed, bed.origins.tls)


# --- raw hellos ---

def word(*numbers):
    return struct.pack(">" + "H" * len(numbers), *numbers)


def names_ext(*names):
    """A server_name extension with these (type, name)."""
    body = b"".join(bytes([t]) + word(len(n)) + n for t, n in names)
    return word(0, len(body) + 2, len(body)) + body


def sni(name):
    return names_ext((0, name))


def hello(exts, ciphers=b"\xc0\x2b\xc0\x2f", session=b""):
    """A ClientHello of TLS 1.2, which our server would answer, in one record."""
    exts += word(10, 6, 4, 29, 23) + word(11, 2) + b"\x01\x00" + word(13, 8, 6, 0x403, 0x804, 0x401)
    body = word(0x303) + b"r" * 32 + bytes([len(session)]) + session
    body += word(len(ciphers)) + ciphers + b"\x01\x00" + word(len(exts)) + exts
    message = b"\x01\x00" + word(len(body)) + body
    return b"\x16\x03\x01" + word(len(message)) + message


def extensions(data):
    """Types of the extensions of a ClientHello that lies in one record."""
    at = 5 + 4 + 2 + 32
    at += 1 + data[at]
    at += 2 + int.from_bytes(data[at:at + 2], "big")
    at += 1 + data[at] + 2
    found = []
    while at + 4 <= len(data):
        found.append(int.from_bytes(data[at:at + 2], "big"))
        at += 4 + int.from_bytes(data[at + 2:at + 4], "big")
    return found


def server_certificate(bed, data):
    """Names in the first certificate of a TLS 1.2 server's answer."""
    messages = b""
    while len(data) >= 5 and data[0] == 22:
        size = int.from_bytes(data[3:5], "big")
        messages += data[5:5 + size]
        data = data[5 + size:]
    while len(messages) > 4:
        size = int.from_bytes(messages[1:4], "big")
        if messages[0] == 11:
            first = int.from_bytes(messages[7:10], "big")
            p = subprocess.run(["openssl", "x509", "-inform", "der", "-noout", "-ext",
                                "subjectAltName"], input=messages[10:10 + first],
                               capture_output=True)
            return p.stdout.decode()
        messages = messages[4 + size:]
    raise casebed.Failed(f"no certificate in {len(data)} bytes: {data[:40]!r}")
