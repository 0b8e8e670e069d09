"""Counts and prints results: failures with their output at once, the rest as one line a phase."""
import sys
import threading
import time

OUTPUT_HEAD = 60  # lines of one failure: the first compiler error stands at the beginning,
OUTPUT_TAIL = 60  # what a test said last at the end


class Results:
    def __init__(self, verbose):
        self.verbose = verbose
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self.lock = threading.Lock()

    def ok(self, name, seconds=None):
        with self.lock:
            self.passed += 1
            if self.verbose:
                took = "" if seconds is None else f"  {seconds:.2f} s"
                print(f"ok      {name}{took}", flush=True)

    def took(self, name, seconds):
        """Of a whole script."""
        if self.verbose:
            with self.lock:
                print(f"took    {name}  {seconds:.1f} s", flush=True)

    def fail(self, name, output=""):
        with self.lock:
            self.failed += 1
            self.failures.append(name)
            print(f"FAILED  {name}")
            lines = output.rstrip().splitlines()
            if len(lines) > OUTPUT_HEAD + OUTPUT_TAIL:
                left_out = len(lines) - OUTPUT_HEAD - OUTPUT_TAIL
                lines[OUTPUT_HEAD:-OUTPUT_TAIL] = [f"... {left_out} lines left out"]
            for line in lines:
                print("        " + line)
            sys.stdout.flush()

    def skip(self, name, why):
        with self.lock:
            self.skipped += 1
            print(f"skipped {name}: {why}", flush=True)

    def phase(self, title):
        return Phase(self, title)

    def finish(self):
        """The last line of every run. Nothing run is no success."""
        if self.failures:
            print("failed: " + " ".join(self.failures))
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 0 if self.failed == 0 and self.passed > 0 else 1


class Phase:
    def __init__(self, results, title):
        self.results = results
        self.title = title

    def __enter__(self):
        r = self.results
        self.before = (r.passed, r.failed, r.skipped)
        self.start = time.monotonic()
        print(f"== {self.title}", flush=True)
        return self

    def __exit__(self, kind, value, trace):
        r = self.results
        ok, bad, skip = (a - b for a, b in zip((r.passed, r.failed, r.skipped), self.before))
        took = time.monotonic() - self.start
        print(f"   {ok} passed, {bad} failed, {skip} skipped in {took:.1f} s", flush=True)
        return False
