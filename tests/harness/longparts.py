"""Long parts that need a build of their own: fuzzing with libFuzzer, coverage of the corpora."""
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from builds import BUILD, JOBS, ROOT, Build, BuildError, call, clean_env

COVERAGE_MIN = 90.0  # percent of lines, by the committed corpus alone
STATUS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")


def corpus(name):
    return ROOT / "tests" / "fuzz" / "corpus" / name


def fuzz_build(results, variant, only):
    """The build with its targets, all or one, and their names; or None and a failure."""
    build = Build(variant)
    try:
        build.setup()
        names = sorted(t.removeprefix("fuzz-") for t in build.targets() if t.startswith("fuzz-"))
        names = [n for n in names if only in (None, n)]
        if not names:
            raise BuildError(f"no fuzz target {only or ''}")
        build.ninja([f"tests/fuzz/fuzz-{n}" for n in names])
    except BuildError as e:
        results.fail(f"build-{variant}", str(e))
        return None, []
    return build, names


def fuzz(results, only=None):
    """FUZZ_SECONDS (60) for each target, two at a time, from the committed corpus. What is found
    goes to build/fuzz-corpus; a crash to build/fuzz-crashes."""
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    build, names = fuzz_build(results, "fuzz", only)
    if build is None:
        return
    rows = {}

    def one(name):
        found = BUILD / "fuzz-corpus" / name
        crashes = BUILD / "fuzz-crashes" / name
        found.mkdir(parents=True, exist_ok=True)
        crashes.mkdir(parents=True, exist_ok=True)
        cmd = [str(build.dir / "tests/fuzz" / f"fuzz-{name}"), f"-max_total_time={seconds}",
               "-print_final_stats=1", f"-artifact_prefix={crashes}/", "-timeout=10",
               "-rss_limit_mb=2048", str(found), str(corpus(name))]
        words = ROOT / "tests" / "fuzz" / f"{name}.dict"
        if words.exists():
            cmd.insert(1, f"-dict={words}")
        code, text = call(cmd, env=clean_env(), timeout=seconds + 120)
        last = (STATUS.findall(text) or [("?", "?", "?")])[-1]
        units = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
        rows[name] = (units[1] if units else "?", *last, len(list(corpus(name).glob("*"))))
        if code == 0 and units and int(units[1]) > 0:
            results.ok(f"fuzz/{name}")
        else:
            results.fail(f"fuzz/{name}", f"{text}\nexit {code}; input kept in {crashes}")

    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(one, names))
    print(f"{'target':20} {'executions':>12} {'edges':>7} {'features':>9} {'found':>7} {'corpus':>7}")
    for name in names:
        print("{:20} {:>12} {:>7} {:>9} {:>7} {:>7}".format(name, *rows[name]))


def fuzzed_files(name):
    """fuzz_<file>.c tests the one file of that name, or those after `covers:` in its comment."""
    text = (ROOT / "tests" / "fuzz" / f"fuzz_{name}.c").read_text()
    named = re.search(r"\bcovers: ([a-z0-9_/. ]+\.c)\b", text)
    if named:
        return [ROOT / n for n in named[1].split()]
    hits = [p for p in ROOT.glob(f"*/{name}.c") if p.parent.name not in ("tests", "build")]
    return hits if len(hits) == 1 else []


def find_entry(text, source, where):
    """The source's part of an export; its name is as the compiler was given it."""
    for entry in json.loads(text)["data"][0]["files"]:
        if Path(where, entry["filename"]).resolve() == source:
            return entry
    return None


def never_run(text, source):
    """Lines of one file with the count 0. llvm-cov 14 knows a relative file that it compiled by
    neither name when asked for it alone, so it shows all."""
    part = text.split(f"{source}:\n", 1)[-1].split("\n\n", 1)[0]
    return "\n".join(x for x in part.splitlines() if re.match(r"^\s*\d+\|\s*0\|", x))


def coverage(results, only=None):
    """Line coverage of the fuzzed file by its committed corpus."""
    build, names = fuzz_build(results, "coverage", only)
    if build is None:
        return
    work = BUILD / "coverage" / "profiles"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    print(f"{'file':32} {'corpus':>7} {'lines':>7} {'missed':>7} {'covered':>8}")
    for name in names:
        program = str(build.dir / "tests/fuzz" / f"fuzz-{name}")
        raw, data = str(work / f"{name}.raw"), str(work / f"{name}.data")
        log = ""
        for cmd in ([program, str(corpus(name))],
                    ["llvm-profdata-14", "merge", "-o", data, raw],
                    ["llvm-cov-14", "export", "-summary-only", program, f"-instr-profile={data}"]):
            code, text = call(cmd, env=clean_env(LLVM_PROFILE_FILE=raw))
            log += text
            if code != 0:
                break
        if code != 0:
            results.fail(f"coverage/{name}", log)
            continue
        sources = fuzzed_files(name)
        if not sources:
            results.fail(f"coverage/{name}", f"no single file {name}.c; say `covers: FILE.c`")
        for source in sources:
            coverage_row(results, name, source, find_entry(text, source, build.dir),
                         ["llvm-cov-14", "show", program, f"-instr-profile={data}"])


def coverage_row(results, name, source, entry, show):
    shown = str(source.relative_to(ROOT))
    if entry is None:
        results.fail(f"coverage/{name}/{shown}", "is not in the program")
        return
    lines = entry["summary"]["lines"]["count"]
    missed = lines - entry["summary"]["lines"]["covered"]
    percent = 100.0 * (lines - missed) / max(lines, 1)
    n = len(list(corpus(name).glob("*")))
    print(f"{shown:32} {n:>7} {lines:>7} {missed:>7} {percent:>7.1f}%", flush=True)
    if percent >= COVERAGE_MIN:
        results.ok(f"coverage/{name}/{shown}")
    else:
        results.fail(f"coverage/{name}/{shown}", "never run:\n" + never_run(call(show)[1], source))
