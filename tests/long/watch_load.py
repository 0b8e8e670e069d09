#!/usr/bin/env python3
"""`egressctl watch` over 300 sandboxes: processor time, memory, and how often it asks. # serial

Needs a build without sanitizers (EGRESS_BIN_RELEASE, build/release or build/run). Server and
sidecars are tests/e2e/standin.py in a process of its own. Time is printed and not judged.
"""
import hashlib
import os
import sys
import tempfile
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "e2e"))
import standin  # noqa: E402
import watch_lies  # noqa: E402
import watchbed  # noqa: E402
from casebed import Failed, Skip, explain, until, want  # noqa: E402

SANDBOXES = 300
LINES = 20  # on each trail before it is followed
SECONDS = int(os.environ.get("WATCH_SECONDS", "120"))
PROCESSOR = 5.0  # percent of a core: printed beside what was seen
PSS_KIB_MAX = 30 << 10
# Between two requests about one sandbox: less than a second by what a busy machine delays the first.
GAP_S_MIN = 0.9
LIE_ROUNDS, GROWTH_KIB_MAX = 3, 512


def watched(top, url, key, *args):
    program = watchbed.release_ctl()
    if not program:
        raise Skip("no build/release, no build/run, and EGRESS_BIN_RELEASE names none")
    return watchbed.Watch(top, url, key, *args, program=program)


def collected(w, digests):
    """How many trails are in the files as they were written."""
    return sum(hashlib.sha256(w.trail(id)).hexdigest() == digest for id, digest in digests.items())


def case_300_sandboxes(top):
    """Followed for two minutes, in which each of them writes a line every ten seconds."""
    world = standin.Remote(log=False, own_ports=True)
    try:
        world.create_many(SANDBOXES, LINES)
        w = watched(top, world.info["url"], world.info["key"])
        digests = world.digests()
        begin = time.monotonic()
        w.run()
        until(lambda: collected(w, digests) == SANDBOXES or w.ended(), "all trails", 120)
        print(f"  {SANDBOXES} trails of {LINES + 1} lines collected after "
              f"{time.monotonic() - begin:.1f} s; {world.figures()}")
        at_start = world.figures()["closest"]
        world.figures_clear()
        begin, before, peak = time.monotonic(), watchbed.processor_seconds(w.p.pid), 0
        while time.monotonic() - begin < SECONDS:
            world.write_all()
            time.sleep(min(10, SECONDS))
            peak = max(peak, watchbed.pss_kib(w.p.pid)[0])
        took = time.monotonic() - begin
        spent = watchbed.processor_seconds(w.p.pid) - before
        figures = world.figures()
        digests = world.digests()
        until(lambda: collected(w, digests) == SANDBOXES or w.ended(), "all trails", 60)
        print(f"  {took:.0f} s: {100 * spent / took:.2f} % of a core (should be below {PROCESSOR}),"
              f" PSS {peak} KiB, {figures['lists'] / took:.2f} lists and "
              f"{figures['requests'] / took / SANDBOXES:.3f} requests a second for each sandbox, "
              f"closest {figures['closest']} s, while it began {at_start} s")
        want(peak < PSS_KIB_MAX, True, f"PSS of {peak} KiB below {PSS_KIB_MAX}")
        want(figures["sandboxes"], SANDBOXES, "sandboxes asked about")
        want(min(at_start, figures["closest"]) >= GAP_S_MIN, True,
             f"{at_start} and {figures['closest']} s between two requests about one sandbox")
        w.stop()
    finally:
        world.stop()


def case_lies(top):
    """All lies, or those of WATCH_LIES, again and again to one process: its memory is what it was
    after the first round. A round of all takes a quarter of an hour."""
    world = standin.World()
    bed = watch_lies.Bed(top, world, watched)
    sizes = []
    names = os.environ.get("WATCH_LIES", "").split() or list(watch_lies.LIES)
    try:
        bed.begin()
        for _ in range(LIE_ROUNDS):
            for name in names:
                if name not in watch_lies.LASTING:
                    bed.tell(name, answered=False)  # an alarm that is on is not raised again
                    bed.recover(name)
            sizes.append(watchbed.pss_kib(bed.w.p.pid)[1])
            world.http.requests.clear()
            bed.mark = 0
        print(f"  {len(names)} lies, {LIE_ROUNDS} rounds: KiB that are no file's {sizes}")
        want(sizes[-1] - sizes[0] <= GROWTH_KIB_MAX, True, f"growth of {sizes}")
    finally:
        bed.end()


CASES = {f.__name__[5:].replace("_", "-"): f for f in (case_300_sandboxes, case_lies)}


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CASES))
        return 0
    bad = 0
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory(dir=os.environ.get("EGRESS_TMP")) as top:
            try:
                CASES[name](top)
            except Skip as e:
                print(f"skip {name} {e}", flush=True)
            except (Failed, OSError, ValueError) as e:
                bad += 1
                print(f"not ok {name} {explain(e)}", flush=True)
            else:
                print(f"ok {name}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
