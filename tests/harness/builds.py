"""Build directories: one for each variant, below build/, kept between runs."""
import fcntl
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
JOBS = 2

SANITIZED = ["-Dwerror=true", "-Db_sanitize=address,undefined", "-Db_lundef=false",
             "-Doptimization=1"]
VARIANTS = {
    "gcc-asan": ("gcc", SANITIZED),
    "clang-asan": ("clang-14", SANITIZED),
    # What ./run builds: other warnings come out at -O2 with FORTIFY.
    "release": ("gcc", ["-Dwerror=true", "-Dtests=false"]),
    "fuzz": ("clang-14", SANITIZED + ["-Dfuzz=true"]),
    "coverage": ("clang-14", ["-Doptimization=0", "-Dcoverage=true"]),
}
PLAIN = ["-Doptimization=0", "-Ddebug=false"]  # mutants: compiled often, run once

SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "ASAN_SYMBOLIZER_PATH": "/usr/bin/llvm-symbolizer-14",
}


class BuildError(Exception):
    pass


def clean_env(**more):
    """Nothing of the caller's proxies, roots or egress settings may reach a test."""
    env = {k: os.environ[k] for k in ("PATH", "HOME", "USER", "TERM", "TMPDIR") if k in os.environ}
    env.update(LANG="C.UTF-8", LC_ALL="C.UTF-8", **SANITIZER_ENV)
    if "/usr/sbin" not in env.get("PATH", "").split(":"):
        env["PATH"] = env.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    env.update(more)
    return env


def call(cmd, cwd=ROOT, env=None, timeout=None):
    """Returns (exit code, output); a time-out is code 124."""
    try:
        p = subprocess.run(cmd, cwd=cwd, env=env, timeout=timeout, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return p.returncode, p.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        text = (e.stdout or b"").decode(errors="replace")
        return 124, f"{text}\nended after {timeout} s"


def lock_builds():
    """Two runs in one tree would build over each other: the second waits."""
    BUILD.mkdir(exist_ok=True)
    lock = open(BUILD / ".lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for another ./test in this tree", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


class Build:
    """One variant: set up when its arguments changed, then built by ninja."""

    def __init__(self, name, source=ROOT, where=None, cc=None, args=None):
        self.name = name
        self.source = source
        self.dir = where or BUILD / name
        if cc is None:
            cc, args = VARIANTS[name]
        self.cc = cc
        self.args = args

    def setup(self):
        want = " ".join([self.cc] + self.args)
        stamp = self.dir / ".args"
        if stamp.exists() and stamp.read_text() == want and (self.dir / "build.ninja").exists():
            code, text = call(["ninja", "-C", self.dir, "build.ninja"])
        else:
            cmd = ["meson", "setup", self.dir, self.source] + self.args
            if (self.dir / "meson-private" / "coredata.dat").exists():
                cmd.insert(2, "--wipe")
            code, text = call(cmd, cwd=self.source, env=clean_env(CC=self.cc))
        if code != 0:
            faults = [x for x in text.splitlines() if "ERROR" in x]
            raise BuildError("\n".join(faults) or text)
        stamp.write_text(want)

    def ninja(self, targets=()):
        code, text = call(["ninja", "-C", self.dir, "-j", str(JOBS), "-k", "0", *targets])
        if code != 0:
            # The command lines of the compiler are long and say nothing new.
            raise BuildError("\n".join(x for x in text.splitlines() if f"{self.cc} -I" not in x))

    def tests(self):
        """Meson's tests by name."""
        with open(self.dir / "meson-info" / "intro-tests.json") as f:
            return {t["name"]: t for t in json.load(f)}

    def targets(self):
        """Meson's programs: name to path in the build directory."""
        with open(self.dir / "meson-info" / "intro-targets.json") as f:
            return {t["name"]: os.path.relpath(t["filename"][0], self.dir)
                    for t in json.load(f) if t["type"] == "executable"}

    def programs(self):
        """What scripts run: everything but the unit tests and fuzz targets."""
        return [p for p in self.targets().values()
                if not p.startswith(("tests/unit/", "tests/fuzz/"))]

    def target(self, test):
        return os.path.relpath(test["cmd"][0], self.dir)

    def commands(self):
        """(file, arguments) of each of our C files outside tests/."""
        with open(self.dir / "compile_commands.json") as f:
            for c in json.load(f):
                path = Path(self.dir, c["file"]).resolve()
                if path.suffix == ".c" and "tests" not in path.relative_to(self.source).parts:
                    yield path, c

    def env(self, **more):
        """What a script needs to find this build."""
        return clean_env(EGRESS_SRC=str(self.source), EGRESS_BUILD=str(self.dir),
                         EGRESS_BIN=str(self.dir / "control" / "egress"),
                         EGRESSCTL_BIN=str(self.dir / "ctl" / "egressctl"), **more)


def run_test(test):
    """One meson test: (exit code, output)."""
    code, text = call(test["cmd"], cwd=test.get("workdir") or ROOT, env=clean_env(**test["env"]),
                      timeout=test["timeout"] or 30)
    return code, text


def run_tests(results, label, tests):
    def one(test):
        name = f"{label}/{test['name']}"
        code, text = run_test(test)
        if code == 0:
            results.ok(name)
        elif code == 77:
            results.skip(name, text.strip().splitlines()[-1] if text.strip() else "says so")
        else:
            results.fail(name, f"{text}\nexit {code}")

    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(one, [t for t in tests if t["is_parallel"]]))
    for t in tests:
        if not t["is_parallel"]:
            one(t)
