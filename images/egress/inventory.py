#!/usr/bin/env python3
"""Says what is inside the image: an SPDX 2.3 document, and the licences.

usage: inventory.py BUILD ROOT

rootfs runs it last. BUILD is meson's folder, with all that the linker named in ninja.log; ROOT is the tree
that becomes the image. So what is linked in is not guessed. Files are given to packages by dpkg. Writes ROOT/opt/opensandbox-egress/sbom.spdx.json and ROOT/usr/share/doc.
"""
import datetime
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

PREFIX = "opt/opensandbox-egress"
SBOM = f"{PREFIX}/sbom.spdx.json"
BUNDLE = "etc/ssl/certs/ca-certificates.crt"
LICENCES = Path("/usr/share/common-licenses")
FIELDS = ("Package", "Version", "Architecture", "source:Package", "source:Version", "Homepage")


class Wrong(Exception):
    pass


def run(*cmd):
    p = subprocess.run(cmd, check=False, text=True, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
    if p.returncode != 0:
        raise Wrong(f"{shlex.join(cmd)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


def owner(path):
    """The package that a file of this machine came with. /lib is a link to /usr/lib, and dpkg knows
    only the one name that the package used."""
    names = {str(path), os.path.realpath(path)}
    names |= {n.removeprefix("/usr") for n in names} | {"/usr" + n for n in names}
    for name in sorted(names):
        p = subprocess.run(["dpkg-query", "-S", name], check=False, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if p.returncode == 0:
            return p.stdout.split(": ")[0]
    raise Wrong(f"{path} belongs to no package")


def package(name):
    """The fields of an installed package."""
    text = run("dpkg-query", "-W", "-f", "\n".join(f"${{{f}}}" for f in FIELDS), name)
    return dict(zip(FIELDS, text.split("\n")))


def programs(build):
    """Name and path in the build folder of each program that is installed."""
    with open(build / "meson-info" / "intro-targets.json", encoding="utf-8") as f:
        for t in json.load(f):
            if t["type"] == "executable" and t["installed"]:
                yield t["name"], os.path.relpath(t["filename"][0], build)


def linked(build):
    """By target: files of this machine of which some part is in it, which are archives of which a
    member was taken, and start files. Shared objects are only named in a program, so they are left
    out. ninja prints what a command said after the line that announces it."""
    found, target = {}, None
    for line in (build / "ninja.log").read_text("utf-8").splitlines():
        if m := re.match(r"\[\d+/\d+\] Linking target (\S+)", line):
            target = found.setdefault(m[1], set())
        elif line.startswith("["):
            target = None
        elif m := re.match(r"\(?(/[^)(]+\.[ao])(\W|$)", line):
            # What link time optimisation made is our own code, and gone by now.
            if target is not None and not Path(m[1]).is_relative_to(build) and os.path.exists(m[1]):
                target.add(os.path.normpath(m[1]))
    return found


def needed(path):
    """Names of the shared objects that a program or an object asks for, and its loader."""
    text = run("readelf", "-d", "-l", "-W", str(path))
    names = set(re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", text))
    return names | {os.path.basename(n) for n in re.findall(r"interpreter: (\S+)\]", text)}


def digest(path, kind):
    return hashlib.new(kind, path.read_bytes()).hexdigest()


def files(root):
    """Regular files of the image by their path in it."""
    return sorted(str(p.relative_to(root)) for p in root.rglob("*")
                  if p.is_file() and not p.is_symlink())


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def licences_copy(root, names):
    """The copyright file of each package, and the texts to which they point."""
    for name in names:
        text = Path("/usr/share/doc", name.split(":")[0], "copyright")
        to = root / text.relative_to("/")
        to.parent.mkdir(parents=True)
        shutil.copyfile(text, to)
        for common in re.findall(rf"{LICENCES}/([A-Za-z0-9.-]+\w)", text.read_text("utf-8")):
            to = root / (LICENCES / common).relative_to("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(LICENCES / common, to)


def licence_names(name):
    """Short names of the licences in a copyright file of Debian's machine readable form."""
    text = Path("/usr/share/doc", name.split(":")[0], "copyright").read_text("utf-8")
    return sorted(set(re.findall(r"^License: *(\S.*)$", text, re.M)))


def spdx_id(kind, name):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def spdx_package(name):
    p = package(name)
    text = ", ".join(licence_names(name)) or "no machine readable names"
    where = "/usr/share/doc/" + p["Package"] + "/copyright"
    found = {
        "SPDXID": spdx_id("Package", p["Package"]),
        "name": p["Package"],
        "versionInfo": p["Version"],
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "sourceInfo": f"source package {p['source:Package']} {p['source:Version']}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "licenseComments": f"{text}; the texts are in the image: {where}",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{p['Package'].replace('+', '%2B')}"
                                f"@{p['Version'].replace(':', '%3A').replace('+', '%2B')}"
                                f"?arch={p['Architecture']}&distro=debian-12"
                                f"&upstream={p['source:Package'].replace('+', '%2B')}",
        }],
    }
    if p["Homepage"]:
        found["homepage"] = p["Homepage"]
    return found


def spdx_own(version, listed):
    """The image. Its code is made of the digests of its files (SPDX 2.3, 7.9)."""
    sums = sorted(f["checksums"][0]["checksumValue"] for f in listed)
    return {
        "SPDXID": "SPDXRef-Package-egress",
        "name": "egress",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {
            "packageVerificationCodeExcludedFiles": ["./" + SBOM],
            "packageVerificationCodeValue": hashlib.sha1("".join(sums).encode()).hexdigest(),
        },
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "CONTAINER",
    }


def spdx_file(root, name):
    kind = "BINARY" if is_elf(root / name) else "TEXT"
    return {
        "SPDXID": spdx_id("File", name),
        "fileName": "./" + name,
        "fileTypes": [kind],
        "checksums": [{"algorithm": a.upper(), "checksumValue": digest(root / name, a)}
                      for a in ("sha1", "sha256")],
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


class Inventory:
    def __init__(self, build, root):
        self.build = build
        self.root = root
        self.packages = set()
        self.links = []  # (from, relation, to)

    def relate(self, one, kind, other):
        self.links.append((one, kind, other))

    def package_id(self, name):
        self.packages.add(name)
        return spdx_id("Package", package(name)["Package"])

    def read_programs(self):
        found = linked(self.build)
        for name, target in programs(self.build):
            element = spdx_id("File", f"{PREFIX}/{name}")
            for pkg in sorted({owner(f) for f in found[target]}):
                self.relate(element, "STATIC_LINK", self.package_id(pkg))

    def read_objects(self, names):
        """Each object that anything asks for must be there, and all that is there asked for."""
        elf = [n for n in names if is_elf(self.root / n)]
        objects = {os.path.basename(n): n for n in elf if not n.startswith(PREFIX)}
        asked = set()
        for name in elf:
            for other in sorted(needed(self.root / name)):
                if other not in objects:
                    raise Wrong(f"{name} needs {other}, which is not in the image")
                asked.add(other)
                self.relate(spdx_id("File", name), "DYNAMIC_LINK", spdx_id("File", objects[other]))
        if asked != set(objects):
            raise Wrong(f"nothing asks for {sorted(set(objects) - asked)}")
        for name in objects.values():
            self.relate(spdx_id("File", name), "GENERATED_FROM", self.package_id(owner("/" + name)))

    def document(self, version, names):
        when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")),
                                               datetime.timezone.utc)
        listed = [spdx_file(self.root, n) for n in names]
        made = [spdx_own(version, listed)] + [spdx_package(p) for p in sorted(self.packages)]
        for f in listed:
            self.relate("SPDXRef-Package-egress", "CONTAINS", f["SPDXID"])
        self.relate("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-egress")
        body = {
            "packages": made,
            "files": listed,
            "relationships": [
                {"spdxElementId": a, "relationshipType": k, "relatedSpdxElement": b}
                for a, k, b in sorted(set(self.links))],
        }
        # A name of the document's own that is the same for the same content.
        name = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))
        return {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"egress-{version}",
            "documentNamespace": f"urn:uuid:{name}",
            "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
                             "creators": ["Tool: images/egress/inventory.py"]},
            **body,
        }


def main():
    build, root = (Path(a).resolve() for a in sys.argv[1:])
    inventory = Inventory(build, root)
    inventory.read_programs()
    inventory.read_objects(files(root))
    inventory.relate(spdx_id("File", BUNDLE), "GENERATED_FROM",
                     inventory.package_id("ca-certificates"))
    licences_copy(root, sorted(inventory.packages))
    with open(build / "meson-info" / "intro-projectinfo.json", encoding="utf-8") as f:
        version = json.load(f)["version"]
    text = json.dumps(inventory.document(version, files(root)), indent=1)
    (root / SBOM).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    try:
        main()
    except Wrong as e:
        sys.exit(f"inventory.py: {e}")
