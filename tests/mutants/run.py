#!/usr/bin/env python3
"""Removes one check at a time and asks whether the tests notice: run.py [ID...].

Reads tests/mutants/table. Two copies of the tree below build/mutants are compiled without
optimisation and sanitizers. In each, a row's change is made, what depends on it is compiled, its
test is run, and the file is put back. A row is `ok` when the test then fails, `not ok` when it
survives or is broken: the text is not there exactly once, it does not compile, or its test fails
even without the change."""
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "harness"))
import scripts  # noqa: E402
from builds import BUILD, PLAIN, ROOT, Build, BuildError, call, clean_env  # noqa: E402

TABLE = ROOT / "tests" / "mutants" / "table"
COPIES = 2
TEST_SECONDS_MAX = 60  # of a test on the unchanged tree


def read_table(text):
    """Rows of (id, file, old, new, test). ` | ` separates; ` \\| ` is one inside a text."""
    rows = []
    for n, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [c.strip().replace(" \\| ", " | ")
                 for c in re.split(r"(?<=\s)\|(?=\s)", line)]
        if len(cells) != 5 or not all((cells[0], cells[1], cells[2], cells[4])):
            raise SystemExit(f"tests/mutants/table:{n}: wanted: id | file | old | new | test")
        rows.append(tuple(cells))
    ids = [r[0] for r in rows]
    for name in ids:
        if ids.count(name) > 1:
            raise SystemExit(f"tests/mutants/table: two rows {name}")
    return rows


class Copy:
    """One copy of the tree with its build directory."""

    def __init__(self, number):
        self.tree = BUILD / "mutants" / str(number)
        self.build = Build(f"mutants-{number}", self.tree, self.tree / "build", "gcc", PLAIN)

    def refresh(self):
        """As the tree is now; only what differs is written, so that little is compiled anew."""
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                               check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
        want = {n for n in names if n and (ROOT / n).is_file()}
        for name in want:
            source, to = ROOT / name, self.tree / name
            if to.is_file() and to.read_bytes() == source.read_bytes():
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, to)
            shutil.copymode(source, to)
        for path in self.tree.rglob("*"):
            name = path.relative_to(self.tree)
            if name.parts[0] != "build" and path.is_file() and str(name) not in want:
                path.unlink()
        self.build.setup()

    def find_test(self, name):
        """A meson test, or (script, case); None if there is none."""
        tests = self.build.tests()
        for full in (name, "unit-" + name, "loop-" + name):
            if full in tests:
                return tests[full]
        for folder in ("e2e", "netns", "long"):
            for path in scripts.find(folder).values():
                script = self.tree / path.relative_to(ROOT)
                names = scripts.case_names(script, self.build.env()) or ()
                for case in names:
                    if name in (case, f"{path.stem}/{case}"):
                        return script, case, folder
        return None

    def compile(self, test):
        self.build.ninja([self.build.target(test)] if isinstance(test, dict)
                         else self.build.programs())

    def passes(self, test, seconds=TEST_SECONDS_MAX):
        if isinstance(test, dict):
            code, text = call(test["cmd"], cwd=self.tree, timeout=seconds,
                              env=clean_env(**test["env"]))
            return code == 0, text
        script, case, folder = test
        prefix = scripts.isolation() if folder == "e2e" else scripts.root_prefix() or ()
        rows, tmp = scripts.run_script(script, self.build, (case,), prefix, seconds)
        if tmp:
            shutil.rmtree(tmp, ignore_errors=True)
        return rows and all(r[0] == "ok" for r in rows), "\n".join(map(str, rows))


def change(text, old, new):
    """The text with its one occurrence of old changed; a text that stands more than once or
    spans lines is no row."""
    n = text.count(old)
    if n != 1:
        raise BuildError(f"the text stands {n} times in the file, wanted once")
    return text.replace(old, new)


def run_row(copy, row, seconds):
    """(killed, what to say). A test that hangs has noticed the change too."""
    _, name, old, new, _ = row
    path = copy.tree / name
    if not path.is_file():
        return False, f"BROKEN: no file {name}"
    before = path.read_text()
    test = copy.find_test(row[4])
    try:
        path.write_text(change(before, old, new))
        copy.compile(test)
        passed, _ = copy.passes(test, seconds)
    except BuildError as e:
        return False, "BROKEN: " + str(e)
    finally:
        path.write_text(before)
    return not passed, "SURVIVED" if passed else "killed"


def baseline(copy, rows):
    """Each named test on the unchanged tree: {name: (seconds for a changed one, fault)}."""
    known = {}
    for name in dict.fromkeys(row[4] for row in rows):
        test = copy.find_test(name)
        if test is None:
            known[name] = (0, f"BROKEN: no test {name}")
            continue
        try:
            copy.compile(test)
            start = time.monotonic()
            passed, text = copy.passes(test)
            seconds = 5 + 10 * (time.monotonic() - start)
            fault = None if passed else f"BROKEN: fails without the change:\n{text}"
            known[name] = (seconds, fault)
        except BuildError as e:
            known[name] = (0, f"BROKEN: {e}")
    return known


def worker(copy, jobs, known, say):
    while True:
        try:
            row = jobs.get_nowait()
        except queue.Empty:
            return
        start = time.monotonic()
        seconds, fault = known[row[4]]
        killed, what = (False, fault) if fault else run_row(copy, row, seconds)
        say(row, killed, what, time.monotonic() - start)


def main(ids):
    rows = [r for r in read_table(TABLE.read_text()) if not ids or r[0] in ids]
    if not rows:
        raise SystemExit("no such row: " + " ".join(ids))
    lock = threading.Lock()
    counts = {"killed": 0, "SURVIVED": 0, "BROKEN": 0}
    start = time.monotonic()

    def say(row, killed, what, took):
        with lock:
            counts[what.split(":")[0]] += 1
            if killed:
                print(f"ok {row[0]} {took:.1f} s", flush=True)
            else:
                first, *rest = what.splitlines()
                print(f"not ok {row[0]} {first} ({row[1]}; {row[4]})", flush=True)
                for line in rest[-40:]:
                    print("| " + line, flush=True)

    copies = [Copy(n) for n in range(COPIES)]
    for copy in copies:
        try:
            copy.refresh()
        except BuildError as e:
            raise SystemExit(f"the tree cannot be set up: {e}")
    known = baseline(copies[0], rows)
    jobs = queue.Queue()
    for row in sorted(rows, key=lambda r: (r[1], r[4])):  # neighbours compile less
        jobs.put(row)
    threads = [threading.Thread(target=worker, args=(c, jobs, known, say)) for c in copies]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(" ".join(f"{n} {what}" for what, n in counts.items())
          + f" in {time.monotonic() - start:.0f} s", flush=True)
    return 0 if counts["killed"] == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
