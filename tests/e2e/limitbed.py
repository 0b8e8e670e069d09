"""What limits*.py and cases_tls.py need besides casebed.py: egress started through other programs
and with a YAML file, names whose answers are wrong, figures. Names and rules are added to
casebed's before its bed starts."""
import os

import casebed
from casebed import Failed, until

casebed.MORE_NAMES.update({
    "*.wild.test": {"a": "11.22.0.41"},
    "drop.wild.test": {"drop": True}, "nx.wild.test": {"rcode": "NXDOMAIN"},
    "servfail.wild.test": {"rcode": "SERVFAIL"},
    "lie-loop.wild.test": {"a": "127.0.0.1"}, "lie-meta.wild.test": {"a": "169.254.169.254"},
    "lie-private.wild.test": {"a": "10.0.0.1"},
    "lie-all.wild.test": {"a": ["127.0.0.1", "169.254.169.254", "10.0.0.1"]},
    "lie-half.wild.test": {"a": ["127.0.0.1", "11.22.0.41"]},
})
if "10.0.0.1" not in casebed.MORE_ADDRESSES:
    casebed.MORE_ADDRESSES += ("10.0.0.1",)  # somebody listens there, too

TINY = """\
head_timeout: 1s
handshake_timeout: 1s
connect_timeout: 1s
first_byte: 1s
stream_idle: 1s
dns_timeout: 1s
"""


def say(text):
    print(f"# {text}", flush=True)


def get(name, target, scheme="http", fields=b""):
    url = f"{scheme}://{name}" if scheme == "http" else ""
    return b"GET %s%s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (
        url.encode(), target.encode(), name.encode(), fields)


def grew(egress, before, most, what):
    """Fails when the worker's memory grew by more than that."""
    more = egress.memory() - before
    say(f"{what}: {more / 1024:+.0f} KiB")
    if more > most:
        raise Failed(f"{what}: memory grew by {more} bytes")


def start(bed, name, before="", yaml=None, program=None, keep=True, **settings):
    """The egress of that name; starts it with `before` put in front of the program, a shell text
    with {folder} for its folder, and with a YAML file. keep: the bed checks and stops it."""
    for e in bed.running:
        if e.name == name:
            bed.egress = e
            return e
    wrapper, program = bed.path(f"{name}.sh"), program or casebed.EGRESS
    config = ""
    if yaml is not None:
        with open(bed.path(f"{name}.yaml"), "w") as f:
            f.write(yaml)
        config = f"--config {bed.path(name + '.yaml')}"
    with open(wrapper, "w") as f:
        f.write(f"#!/bin/sh\nexec {before.format(folder=bed.path(name))} {program} {config}\n")
    os.chmod(wrapper, 0o755)
    bed.n_ports = getattr(bed, "n_ports", 50) + 1
    was, casebed.EGRESS = casebed.EGRESS, wrapper
    try:
        e = casebed.Egress(bed, name, port=casebed.PORT + bed.n_ports, **settings)
    finally:
        casebed.EGRESS = was
    if keep:
        bed.running.append(e)
    bed.egress = e
    return e


def stop(bed, egress):
    """Ends one that the bed does not know, by the same checks."""
    egress.stop()
    bed.need("main")


def tiny(bed):
    """One with limits of a second, from YAML."""
    return start(bed, "tiny", yaml=TINY)


def lean(bed):
    """One whose memory can be measured: AddressSanitizer else keeps 256 MiB of what was freed."""
    options = os.environ.get("ASAN_OPTIONS", "detect_leaks=1")
    return start(bed, "lean", ASAN_OPTIONS=f"{options}:quarantine_size_mb=1:"
                 "thread_local_quarantine_size_kb=64")


def new_line(egress, mark, **fields):
    """The one new line with these values; waits for it."""
    def found():
        return [x for x in egress.lines()[mark:] if all(x[k] == v for k, v in fields.items())]
    until(found, f"a line with {fields}")
    if len(found()) > 1:
        raise Failed(f"{len(found())} lines with {fields}")
    return found()[0]
