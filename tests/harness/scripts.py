"""Scripts that run the real programs: tests/e2e, tests/netns, tests/long.

The protocol is described in docs/development.md: a script prints `ok NAME`, `not ok NAME why` or
`skip NAME why` at the start of a line; `--list` prints its case names; names as arguments run only
those."""
import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from builds import JOBS, ROOT, call

LINE = re.compile(r"^(ok|not ok|skip) ([A-Za-z0-9._-]+)(?:[ :]+(.*))?$")
SANITIZER = re.compile(rb"ERROR: (?:Address|Leak)Sanitizer|runtime error: |AddressSanitizer:DEADLYSIGNAL")
SCRIPT_SECONDS_MAX = 300
LONG_SECONDS_MAX = 3600
LOG_BYTES_MAX = 64 << 20
SCRIPTS_TOGETHER = 2 * JOBS  # a script waits more than it works


def find(folder):
    """Executable scripts of a folder, by name."""
    found = {}
    for path in sorted((ROOT / "tests" / folder).glob("*")):
        if path.suffix in (".sh", ".py") and os.access(path, os.X_OK):
            found[path.stem] = path
    return found


def head_has(path, word):
    with open(path, errors="replace") as f:
        return any(word in line for _, line in zip(range(12), f))


def case_names(path, env):
    """Names that the script's --list prints, or None when it has no list. Its library, a file
    beside it or in tests/e2e that it names, may be what answers --list."""
    text = path.read_text(errors="replace")
    libraries = [f for folder in {path.parent, ROOT / "tests/e2e"} for f in folder.iterdir()
                 if f.is_file() and f.suffix == path.suffix and f != path and f.stem in text]
    if not any("--list" in t for t in [text] + [f.read_text(errors="replace") for f in libraries]):
        return None
    code, text = call([str(path), "--list"], env=env, timeout=20)
    names = text.split()
    if code != 0 or not names:
        raise ValueError(f"--list failed, exit {code}:\n{text}")
    return names


def isolation():
    """As root each script gets a network of its own: no port is taken and nothing gets out."""
    if os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"],
                                            stderr=subprocess.DEVNULL).returncode == 0:
        return ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    return ()


def sanitizer_reports(tmp):
    """Reports that a daemon wrote into its log while nobody looked."""
    for path in sorted(Path(tmp).rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LOG_BYTES_MAX:
            continue
        text = path.read_bytes()
        if text.startswith(b"\x7fELF"):
            continue  # a copied program holds the words of every report
        hit = SANITIZER.search(text)
        if hit:
            part = text[max(0, hit.start() - 200):hit.start() + 6000]
            yield f"{path}:\n{part.decode(errors='replace')}"


def run_script(path, build, cases=(), prefix=(), seconds=SCRIPT_SECONDS_MAX):
    """Returns [(status, case, why)], and the folder where the script's files still are if any
    failed."""
    tmp = tempfile.mkdtemp(prefix="egress-")
    os.chmod(tmp, 0o755)  # an nginx worker reads its files there
    home = os.path.join(tmp, "home")
    os.mkdir(home)
    env = build.env(EGRESS_TMP=tmp, HOME=home, TMPDIR=tmp)
    rows = []
    try:
        names = case_names(path, env)
    except ValueError as e:
        return [("not ok", path.stem, str(e))], tmp
    keep = [f"{k}={v}" for k, v in env.items()] if prefix and prefix[0] == "sudo" else []
    cmd = [*prefix, *(["env", *keep] if keep else []), str(path), *cases]
    code, text = call(cmd, env=env, timeout=seconds)
    if keep:  # what root left there must be readable and removable
        call(["sudo", "-n", "chown", "-R", str(os.geteuid()), tmp])
    for line in text.splitlines():
        m = LINE.match(line)
        if m:
            rows.append((m[1], m[2], m[3] or ""))
    seen = [r[1] for r in rows]
    for name in sorted({n for n in seen if seen.count(n) > 1}):
        rows.append(("not ok", name, "reported twice"))
    for name in (cases or names or ()):
        if name not in seen:
            rows.append(("not ok", name, f"not reported, exit {code}:\n{text}"))
    failed = any(r[0] == "not ok" for r in rows)
    if (code != 0 and not failed) or not rows:
        rows.append(("not ok", path.stem, f"exit {code}, {len(rows)} cases reported:\n{text}"))
    elif failed:
        rows.append(("note", path.stem, text))
    reports = list(sanitizer_reports(tmp))
    if SANITIZER.search(text.encode()):
        reports.append(text)
    if reports:
        rows.append(("not ok", f"{path.stem}-sanitizer", "\n".join(reports)))
    if any(r[0] == "not ok" for r in rows):
        return rows, tmp
    shutil.rmtree(tmp, ignore_errors=True)
    return rows, None


def count(results, label, path, build, cases=(), prefix=(), seconds=SCRIPT_SECONDS_MAX):
    begin = time.monotonic()
    rows, tmp = run_script(path, build, cases, prefix, seconds)
    results.took(f"{label}/{path.stem}", time.monotonic() - begin)
    for status, name, why in rows:
        full = f"{label}/{path.stem}/{name}"
        if status == "ok":
            results.ok(full)
        elif status == "skip":
            results.skip(full, why or "no reason given")
        elif status == "not ok":
            results.fail(full, why)
        else:
            print(f"        output of {name}:")
            for line in why.splitlines()[-120:]:
                print("        | " + line)
    if tmp:
        print(f"        files: {tmp}", flush=True)


def e2e_runs(label):
    """[(path, prefix)] of three kinds: scripts that mostly wait and so run on the gcc build only,
    `# one compiler`; those that run together; and those that run alone, `# serial`, or all where no
    script can have its own network."""
    prefix = isolation()
    waiting, together, alone = [], [], []
    for path in find("e2e").values():
        waits = head_has(path, "# one compiler")
        if waits and label != "gcc":
            continue
        runs = alone if not prefix or head_has(path, "# serial") else waiting if waits else together
        runs.append((path, prefix))
    return waiting, together, alone


def netns_runs(results, label):
    """(path, prefix) of the scripts that make their own namespaces."""
    prefix = root_prefix()
    if prefix is not None:
        return [(path, prefix) for path in find("netns").values()]
    for path in find("netns").values():
        results.skip(f"{label}/{path.stem}", "needs root")
    return []


def run_together(results, label, build, runs):
    with ThreadPoolExecutor(SCRIPTS_TOGETHER) as pool:
        list(pool.map(lambda run: count(results, label, run[0], build, prefix=run[1]), runs))


def run_end_to_end(results, label, build, netns):
    """The longest first, so that none is left to run alone at the end."""
    waiting, together, alone = e2e_runs(label)
    kernel = netns_runs(results, label) if netns else []
    run_together(results, label, build, waiting + kernel + together)
    for path, prefix in alone:
        count(results, label, path, build, prefix=prefix)


def run_netns(results, label, build):
    run_together(results, label, build, netns_runs(results, label))


def root_prefix():
    """What to put before a script that needs root, or None when there is no way."""
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"],
                                               stderr=subprocess.DEVNULL).returncode == 0:
        return ("sudo", "-n")
    return None
