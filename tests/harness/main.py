"""./test: chooses what to build and run, and ends with one line of counts."""
import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import checks
import longparts
import scripts
from builds import ROOT, Build, BuildError, call, lock_builds, run_tests
from results import Results

USAGE = """./test [-v] [WHAT]

  ./test              everything: gcc and clang, sanitizers, unit, loop, corpora, e2e, checks
  ./test quick        unit and loop tests with one compiler
  ./test NAME...      one each: a unit test (base-slice), a fuzz corpus (fuzz-h1), a script or one
                      of its cases (CASE or SCRIPT/CASE), a check (format tidy analyzer shellcheck
                      harness lint, or one lint rule: lint-includes)
  ./test list         all names
  ./test mutants [ID] the mutant table
  ./test long [PART]  the long parts, all or by name: fuzz coverage mutants netns, and each script
                      of tests/long. FUZZ_SECONDS (60) is the time for each fuzz target

Programs are built below build/ and kept there. -v prints every passed test
and how long each script took."""

SOURCE_CHECKS = ("harness", "format", "lint", "shellcheck", "tidy", "analyzer")
UNIT_SUITES = ("unit", "loop")


def suite(test):
    """Meson writes project:suite."""
    return {s.split(":")[-1] for s in test["suite"]}


def prepare(results, variant, targets=()):
    build = Build(variant)
    try:
        build.setup()
        build.ninja(targets)
    except BuildError as e:
        results.fail(f"build-{variant}", str(e))
        return None
    results.ok(f"build-{variant}")
    return build


def prepare_programs(results):
    """The gcc build without the unit tests, for a script alone."""
    build = Build("gcc-asan")
    try:
        build.setup()
        build.ninja(build.programs() or ["all"])
    except BuildError as e:
        results.fail("build-gcc-asan", str(e))
        return None
    return build


def run_checks(results, names, gcc=None, clang=None):
    """tidy and analyzer need only the compile commands, so set up is enough."""
    def commands(build, variant):
        if build is None:
            build = Build(variant)
            build.setup()
        return build

    for name in names:
        try:
            if name == "harness":
                checks.check_harness(results)
            elif name == "format":
                checks.check_format(results)
            elif name == "tidy":
                checks.check_tidy(results, commands(clang, "clang-asan"))
            elif name == "analyzer":
                checks.check_analyzer(results, commands(gcc, "gcc-asan"))
            elif name == "shellcheck":
                checks.check_shell(results)
            elif name == "lint":
                checks.check_lint(results)
        except BuildError as e:
            results.fail(name, str(e))


def behind():
    """A thread whose programs get what the others leave of the processors."""
    return ThreadPoolExecutor(1, initializer=lambda: os.nice(19))


def run_all(results):
    """Scripts wait more than they work: what only compiles is done behind them."""
    def unit(label, build):
        if build:
            run_tests(results, label, build.tests().values())

    with results.phase("release build"):  # first: scripts run what sanitizers would hide on it
        prepare(results, "release")
    with results.phase("gcc: build, unit, loop, fuzz corpora"):
        gcc = prepare(results, "gcc-asan")
        unit("gcc", gcc)
    with behind() as compiler:
        making_clang = compiler.submit(prepare, results, "clang-asan")
        checking = compiler.submit(
            lambda: run_checks(results, SOURCE_CHECKS, gcc, making_clang.result()))
        if gcc:
            with results.phase("gcc: end to end; behind it clang: build, and checks"):
                # what the kernel does is the same for both
                scripts.run_end_to_end(results, "gcc", gcc, netns=True)
        with results.phase("clang: unit, loop, fuzz corpora"):
            clang = making_clang.result()
            unit("clang", clang)
        if clang:
            with results.phase("clang: end to end; behind it checks"):
                scripts.run_end_to_end(results, "clang", clang, netns=False)
        with results.phase("checks: " + " ".join(SOURCE_CHECKS)):
            checking.result()


def run_quick(results):
    with results.phase("gcc: unit, loop"):
        build = Build("gcc-asan")
        try:
            build.setup()
            tests = [t for t in build.tests().values() if suite(t) & set(UNIT_SUITES)]
            build.ninja([build.target(t) for t in tests])
        except BuildError as e:
            results.fail("build-gcc-asan", str(e))
            return
        run_tests(results, "gcc", tests)


def meson_name(tests, name):
    for full in (name, "unit-" + name, "loop-" + name):
        if full in tests:
            return full
    return None


def script_cases(build):
    """(folder, script path, case) of every case that a script lists."""
    for folder in ("e2e", "netns", "long"):
        for path in scripts.find(folder).values():
            try:
                names = scripts.case_names(path, build.env())
            except ValueError as e:
                print(f"{path}: {e}", file=sys.stderr)
                names = None
            for case in names or ():
                yield folder, path, case


def run_script_named(results, build, name):
    for folder in ("e2e", "netns", "long"):
        path = scripts.find(folder).get(name)
        if path:
            break
    else:
        for folder, path, case in script_cases(build):
            if name in (case, f"{path.stem}/{case}"):
                break
        else:
            return False
        name = case
    cases = () if name == path.stem else (name,)
    prefix = scripts.isolation() if folder == "e2e" else scripts.root_prefix()
    if prefix is None:
        results.skip(name, "needs root")
        return True
    build = prepare_programs(results)
    seconds = scripts.LONG_SECONDS_MAX if folder == "long" else scripts.SCRIPT_SECONDS_MAX
    if build:
        scripts.count(results, "gcc", path, build, cases, prefix, seconds)
    return True


def run_check_named(results, name):
    if name in SOURCE_CHECKS:
        run_checks(results, [name])
    elif name.startswith("lint-"):
        checks.check_lint(results, name[len("lint-"):])
    else:
        return False
    return True


def run_named(results, names):
    names = [n for n in names if not run_check_named(results, n)]
    if not names:
        return
    build = Build("gcc-asan")
    try:
        build.setup()
    except BuildError as e:
        results.fail("build-gcc-asan", str(e))
        return
    tests = build.tests()
    for name in names:
        full = meson_name(tests, name)
        if full:
            try:
                build.ninja([build.target(tests[full])])
            except BuildError as e:
                results.fail("build-gcc-asan", str(e))
                continue
            run_tests(results, "gcc", [tests[full]])
        elif not run_script_named(results, build, name):
            results.fail(name, "no test of that name: see ./test list")


def run_list():
    build = Build("gcc-asan")
    build.setup()
    for name in sorted(build.tests()):
        print(name)
    for name in SOURCE_CHECKS:
        print(name)
    for rule in call([sys.executable, str(ROOT / "tests/lint/lint.py"), "--list"])[1].split():
        print("lint-" + rule)
    for folder in ("e2e", "netns", "long"):
        for name in scripts.find(folder):
            print(name)
    for _, path, case in script_cases(build):
        print(f"{path.stem}/{case}")


def run_mutants(results, ids):
    """The runner prints the protocol of the scripts."""
    cmd = [sys.executable, str(ROOT / "tests/mutants/run.py"), *ids]
    with subprocess.Popen(cmd, stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            m = scripts.LINE.match(line)
            if m and m[1] == "ok":
                results.ok("mutant/" + m[2])
            elif m:
                results.fail("mutant/" + m[2], m[3] or "")
            else:
                print("        " + line, end="", flush=True)
    if p.returncode != 0 and not results.failed:
        results.fail("mutants", f"the runner ended with {p.returncode}")


def long_script(results, name, path):
    prefix = scripts.root_prefix()
    if prefix is None:
        results.skip(name, "needs root")
        return
    build = prepare_programs(results)
    if build:
        scripts.count(results, "gcc", path, build, prefix=prefix,
                      seconds=scripts.LONG_SECONDS_MAX)


def run_netns(results):
    build = prepare_programs(results)
    if build:
        scripts.run_netns(results, "gcc", build)


def run_long(results, args):
    parts = {"fuzz": lambda: longparts.fuzz(results, *args[1:2]),
             "coverage": lambda: longparts.coverage(results, *args[1:2]),
             "mutants": lambda: run_mutants(results, args[1:])}
    if scripts.find("netns"):
        parts["netns"] = lambda: run_netns(results)
    for name, path in scripts.find("long").items():
        parts[name] = lambda name=name, path=path: long_script(results, name, path)
    if args and args[0] not in parts:
        results.fail(f"long {args[0]}", "no such part: " + " ".join(parts))
        return
    for name in args[:1] or parts:
        with results.phase(f"long: {name}"):
            parts[name]()


def main():
    parser = argparse.ArgumentParser(usage=USAGE, add_help=False)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("what", nargs="*")
    args = parser.parse_args()
    if args.help:
        print(USAGE)
        return 0
    results = Results(args.verbose)
    what = args.what
    lock = lock_builds()
    if what[:1] == ["list"]:
        run_list()
        return 0
    if not what:
        run_all(results)
    elif what[0] == "quick":
        run_quick(results)
    elif what[0] == "mutants":
        run_mutants(results, what[1:])
    elif what[0] == "long":
        run_long(results, what[1:])
    else:
        run_named(results, what)
    lock.close()
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
