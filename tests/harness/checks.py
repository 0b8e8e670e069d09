"""Checks that read the sources: format, tidy, analyzer, lint, shellcheck. The two slow ones
remember which files passed, by the text of the file and of all it includes."""
import hashlib
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from builds import BUILD, JOBS, ROOT, call

INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)
# Where a false report is rare enough to be silenced in place.
ANALYZED = ("base", "policy", "vault", "nft")


def tracked(*patterns):
    """Files of the tree, committed or about to be, without the snippets that must be wrong."""
    text = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *patterns],
                          cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()
    names = sorted(set(text.split("\n")) - {""})
    return [n for n in names if not n.startswith("tests/lint/bad/") and (ROOT / n).is_file()]


def digest(path, seen=None):
    """Of a source and every header of ours below it."""
    seen = {} if seen is None else seen
    if path in seen:
        return seen[path]
    seen[path] = b""
    text = path.read_bytes()
    h = hashlib.sha256(text)
    for name in INCLUDE.findall(text):
        header = ROOT / name.decode()
        if header.is_file():
            h.update(digest(header, seen))
    seen[path] = h.digest()
    return seen[path]


def cached(results, name, files, command, salt):
    """Runs command(path) on each (path, extra); one result for all of them."""
    store = BUILD / f"{name}-passed"
    known = set(store.read_text().split()) if store.exists() else set()
    seen = {}
    kept, bad = [], []

    def one(item):
        path = item[0]
        key = hashlib.sha256(salt + str(path.relative_to(ROOT)).encode() + digest(path, seen))
        key = key.hexdigest()
        if key not in known:
            code, text = command(item)
            if code != 0:
                bad.append(f"{path.relative_to(ROOT)}:\n{text}")
                return
        kept.append(key)

    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(one, files))
    store.write_text("\n".join(kept))
    if bad:
        results.fail(name, "\n".join(bad))
    elif not files:
        results.fail(name, "no file to look at")
    else:
        results.ok(name)


def check_format(results):
    files = tracked("*.c", "*.h")
    code, text = call(["clang-format-14", "--dry-run", "-Werror", *files])
    places = re.findall(r"^(\S+:\d+):\d+: error: ", text, re.M)
    if code == 0:
        results.ok("format")
    else:
        wrong = sorted({p.split(":")[0] for p in places})
        results.fail("format", "\n".join([*dict.fromkeys(places), "to format: clang-format-14 -i "
                                          + " ".join(wrong)]) if places else text)


def tidy_summary(text):
    """Each error with the line it shows, without the path of notes that leads there."""
    lines = text.splitlines()
    keep = [i for i, x in enumerate(lines) if ": error: " in x or ": warning: " in x]
    return "\n".join("\n".join(lines[i:i + 2]) for i in keep) or text


def check_tidy(results, build):
    def command(item):
        code, text = call(["clang-tidy-14", "-p", str(build.dir), "--quiet", str(item[0])])
        return code, text if results.verbose else tidy_summary(text)

    salt = (ROOT / ".clang-tidy").read_bytes() + " ".join(build.args).encode()
    cached(results, "tidy", list(build.commands()), command, salt)


def check_analyzer(results, build):
    """build is a gcc one; its flags count, its sanitizers do not: they hide what is analysed."""
    def command(item):
        words = item[1].get("arguments") or shlex.split(item[1]["command"])
        drop = ("-fsanitize", "-MD", "-MQ", "-MF", "-o", "-c", "-O")
        flags = [w for w in words[1:] if w.startswith("-") and not w.startswith(drop)]
        # -isystem takes its folder from the next word where meson splits the two.
        cmd = ["gcc", *flags, "-O1", "-Werror", "-fanalyzer", "-c", str(item[0]), "-o", "/dev/null"]
        return call(cmd, cwd=build.dir)

    files = [c for c in build.commands() if c[0].relative_to(ROOT).parts[0] in ANALYZED]
    cached(results, "analyzer", files, command, b"1" + " ".join(build.args).encode())


def check_lint(results, *only):
    """Each rule of tests/lint is one result; it prints `ok RULE` or `not ok RULE` and the places."""
    code, text = call([sys.executable, str(ROOT / "tests/lint/lint.py"), *only])
    rule = None
    rows = {}
    for line in text.splitlines():
        word = line.split(" ")
        if line.startswith("ok "):
            rows[word[1]] = None
        elif line.startswith("not ok "):
            rule = word[2]
            rows[rule] = []
        elif rule and line.startswith("  "):
            rows[rule].append(line.strip())
        else:
            print("        " + line)
    for name, places in rows.items():
        if places is None:
            results.ok(f"lint-{name}")
        else:
            results.fail(f"lint-{name}", "\n".join(places))
    if not rows or (code != 0 and all(p is None for p in rows.values())):
        results.fail("lint", text)


def shell_files():
    for name in tracked():
        path = Path(ROOT, name)
        with open(path, "rb") as f:
            first = f.readline()
        if name.endswith(".sh") or re.match(rb"#!.*\b(ba)?sh\b", first):
            yield name


def check_harness(results):
    """The harness and the tools of the scripts judge everything else, so they are tested too."""
    for name in tracked("tests/harness/test_*.py", "tests/tools/test_*.py"):
        code, text = call([sys.executable, str(ROOT / name)])
        label = "harness/" + Path(name).stem
        results.ok(label) if code == 0 else results.fail(label, text)


def check_shell(results):
    code, text = call(["shellcheck", "-x", *shell_files()])
    results.ok("shellcheck") if code == 0 else results.fail("shellcheck", text)
