#!/usr/bin/env python3
"""What the sandbox can plant where the CA certificate goes, what is left there of an earlier start, and
where the CA's key is: in no file.

The directory is one that the sandbox shares, as /opt/opensandbox is. Bed: sidecarbed.py."""
import base64
import contextlib
import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
import sidecarbed  # noqa: E402
from guardbed import want  # noqa: E402
from sidecarbed import GOOD, Failed, until  # noqa: E402

NAME = "mitmproxy-ca-cert.pem"
START_S = 3  # of a sanitizer's build
ANSWER_S = 6
MEMFD_SECRET = 447
MOUNT_SETATTR = 442
ATTR_RDONLY = 1
RECURSIVE = 0x8000
BIND = 4096
SEC1 = bytes.fromhex("30770201010420")  # an EC private key of P-256, before the number itself
PKCS8 = bytes.fromhex("308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420")


class Bed(sidecarbed.Bed):
    NAME = "plantbed"
    shared = None

    def settings(self, **more):
        return super().settings(**{"EGRESS_CA_CERT_OUT": os.path.join(self.shared, NAME), **more})


def fresh(bed):
    """An empty shared directory, and no sidecar."""
    bed.free()
    bed.shared = bed.path("shared")
    if os.path.islink(bed.shared):
        os.unlink(bed.shared)
    shutil.rmtree(bed.shared, ignore_errors=True)
    os.mkdir(bed.shared)
    return os.path.join(bed.shared, NAME)


def is_ours(bed, path):
    """A regular file with a certificate, and nothing beside it."""
    want((os.path.islink(path), os.path.isfile(path)), (False, True), "a regular file")
    with open(path, encoding="ascii") as f:
        want(f.read().startswith("-----BEGIN CERTIFICATE"), True, "a certificate in it")
    want(os.listdir(bed.shared), [NAME], "the directory")


def quick(bed, what):
    start = time.monotonic()
    bed.protect()
    took = time.monotonic() - start
    if took > START_S:
        raise Failed(f"{what}: green after {took:.1f} s")


def case_fifo_link_and_file_give_way(bed):
    def fifo(path):
        os.mkfifo(path)

    def link(path):
        with open(bed.path("precious"), "w", encoding="ascii") as f:
            f.write("precious")
        os.symlink(bed.path("precious"), path)

    def dangling(path):
        os.symlink(bed.path("not-there"), path)

    def device(path):
        os.symlink("/dev/stdin", path)

    def stale(path):
        with open(path, "w", encoding="ascii") as f:
            f.write("an earlier CA")
        os.chmod(path, 0)
    for plant in (fifo, link, dangling, device, stale):
        path = fresh(bed)
        plant(path)
        quick(bed, plant.__name__)
        is_ours(bed, path)
        os.unlink(path)  # and while it runs
        plant(path)
        until(lambda p=path: os.path.isfile(p) and not os.path.islink(p) and os.stat(p).st_mode & 0o444,
              f"{plant.__name__}: put back", 2)
        is_ours(bed, path)
    with open(bed.path("precious"), encoding="ascii") as f:
        want(f.read(), "precious", "what the link led to")
    want(os.path.lexists(bed.path("not-there")), False, "what the other link would have made")


def case_directory_is_told_and_given_up(bed):
    """It stands in the way, and health says so; when it is gone all is well."""
    path = fresh(bed)
    os.mkdir(path)
    with open(os.path.join(path, "x"), "w", encoding="ascii"):
        pass
    bed.launch()
    until(lambda: "CA certificate" in bed.health()[1], "the cause", ANSWER_S)
    time.sleep(1.2)
    code, why = bed.health()
    want((code, os.listdir(bed.shared)), (503, [NAME]), why)
    shutil.rmtree(path)
    until(lambda: bed.health()[0] == 200, "green", ANSWER_S)
    is_ours(bed, path)


def case_linked_directory_is_not_followed(bed):
    fresh(bed)
    os.rmdir(bed.shared)
    os.makedirs(bed.path("elsewhere"), exist_ok=True)
    os.symlink(bed.path("elsewhere"), bed.shared)
    bed.launch()
    until(lambda: "CA certificate" in bed.health()[1], "the cause", ANSWER_S)
    time.sleep(0.7)
    want(os.listdir(bed.path("elsewhere")), [], "where the link leads")
    os.unlink(bed.shared)
    os.mkdir(bed.shared)
    until(lambda: bed.health()[0] == 200, "green", ANSWER_S)
    is_ours(bed, os.path.join(bed.shared, NAME))


def case_stale_certificate_goes(bed):
    """Also where none is written: clients that wait for the file would trust an earlier CA."""
    for what, more in (("closed by a wrong mode", {"OPENSANDBOX_EGRESS_MODE": "nft"}),
                       ("nothing is decrypted", {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": None})):
        path = fresh(bed)
        with open(path, "w", encoding="ascii") as f:
            f.write("an earlier CA")
        bed.launch(**more)
        until(lambda: bed.health()[0] in (200, 503), f"{what}: an answer", ANSWER_S)
        until(lambda p=path: not os.path.exists(p), f"{what}: it is gone", 1)


# ---- the key

def no_memfd_secret():
    """memfd_secret(2) fails from here on, so that the area can be read from outside."""
    rows = [(0x20, 0, 0, 0), (0x15, 0, 1, MEMFD_SECRET), (0x06, 0, 0, 0x50000 | 38),
            (0x06, 0, 0, 0x7fff0000)]
    code = b"".join(struct.pack("HBBI", *r) for r in rows)
    text = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(text)))
    guardbed.libc.prctl(38, 1, 0, 0, 0)
    if guardbed.libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def only_here_writable(path):
    """Every mount is read-only but this directory."""
    def attr(at, setting, clearing):
        value = struct.pack("QQQQ", setting, clearing, 0, 0)
        if guardbed.libc.syscall(MOUNT_SETATTR, -100, at.encode(), RECURSIVE, value, len(value)) != 0:
            raise OSError(ctypes.get_errno(), f"mount_setattr {at}")
    guardbed.call("mount", path.encode(), path.encode(), None, BIND, None)
    attr("/", ATTR_RDONLY, 0)
    attr(path, 0, ATTR_RDONLY)


def key_of(pid):
    """The CA's private number, from the area that the supervisor holds."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        at = f"/proc/{pid}/fd/{fd}"
        with contextlib.suppress(OSError):
            if "memfd:egress-secret" in os.readlink(at):
                with open(at, "rb") as f:
                    area = f.read()
                found = re.search(re.escape(SEC1) + b"(.{32})", area, re.S) or \
                    re.search(re.escape(PKCS8) + b"(.{32})", area, re.S)
                if found:
                    return found[1]
    raise Failed("no key in the area")


def forms(key):
    """Eight bytes of it, raw, in hex, and in base64 at each alignment."""
    part = key[8:20]
    out = {part, part.hex().encode(), part.hex().upper().encode()}
    for skip in range(3):  # what lies before it shifts the groups of three
        out.add(base64.b64encode(key[6 + skip:21 + skip]))
    return out


def files_with(top, wanted):
    found, n = [], 0
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.isfile(path) or os.path.islink(path):
                continue
            n += 1
            with open(path, "rb") as f:
                text = f.read()
            if any(w in text for w in wanted):
                found.append(path)
    return found, n


def case_key_is_in_no_file(bed):
    """Nothing but one directory can be written to, and all goes well; no file of it has the key."""
    path = fresh(bed)
    mount = bed.mount_cgroup

    def enter():
        mount()
        only_here_writable(bed.top)
        no_memfd_secret()
    bed.mount_cgroup = enter
    try:
        bed.protect()
    finally:
        del bed.mount_cgroup
    key = key_of(bed.process.pid)
    out = subprocess.run(["nsenter", f"--net=/proc/{bed.process.pid}/ns/net", "curl", "-sS", "-m", "10",
                          "--cacert", path, "--resolve", f"read.test:443:{GOOD[4]}",
                          "-o", "/dev/null", "-w", "%{http_code}", "https://read.test/hello.txt"],
                         capture_output=True, text=True, check=False)
    print(f"  a request of the sandbox: {out.stdout} {out.stderr.strip()}")
    wanted = forms(key)
    found, n = files_with(bed.top, wanted)
    want(found, [], f"files with the key, of {n}")
    control = os.path.join(bed.shared, "control")
    for text in sorted(forms(key)):
        with open(control, "wb") as f:
            f.write(b"x" * 7 + text + b"y")
        want(files_with(bed.top, wanted)[0], [control], "a planted piece is found")
    with open(control, "wb") as f:
        f.write(base64.b64encode(b"k" + key))
    want(files_with(bed.top, wanted)[0], [control], "a planted key is found")
    os.unlink(control)
    bed.free()
    want(files_with(bed.top, wanted)[0], [], "files with the key, after the end")
    print(f"  {n} files, {len(wanted)} forms of the key")


if __name__ == "__main__":
    sidecarbed.Bed = Bed
    sys.exit(sidecarbed.main(globals()))
