#!/usr/bin/env python3
"""Rules that no compiler checks. `lint.py [RULE...]` prints `ok RULE` or `not ok RULE` and the
places; `--list` prints the rules; `--warn` also names files over the soft size limit.

Each rule first proves itself on bad/<rule>/, a small tree of wrong files: it must flag the lines
that say BAD (or the one below a line that says BAD-NEXT), all of them and no other. A line of
the real tree that is right for a reason ends in a comment `lint-allow: RULE reason`."""
import re
import subprocess
import sys
from pathlib import Path

from rules import RULES, Tree, load

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def real_files():
    text = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                          stdout=subprocess.PIPE).stdout.decode()
    names = sorted(set(text.split("\n")) - {""})
    return [n for n in names if not n.startswith("tests/lint/") and (ROOT / n).is_file()]


def wanted(tree):
    """The places that a bad tree marks."""
    want = set()
    for name, f in tree.files.items():
        for i, line in enumerate(f.lines, 1):
            if re.search(r"\bBAD-NEXT\b", line):
                want.add((name, i + 1))
            elif re.search(r"\bBAD-FILE\b", line):
                want.add((name, 1))
            elif re.search(r"\bBAD\b", line):
                want.add((name, i))
    return want


def self_test(rule, check):
    """What the rule gets wrong on its own bad files, as texts."""
    root = HERE / "bad" / rule
    names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    tree = load(root, names)
    want = wanted(tree)
    got = {(name, line) for name, line, _ in check(tree)}
    if rule == "size":
        want |= {("base/long.c", 1)}
        tree = Tree({"base/long.c": "x\n" * 801, "base/full.c": "x\n" * 800})
        got |= {(name, line) for name, line, _ in check(tree)}
    if not want:
        yield f"self-test: bad/{rule} marks no line"
    for name, line in sorted(want - got):
        yield f"self-test: bad/{rule}/{name}:{line} was not flagged"
    for name, line in sorted(got - want):
        yield f"self-test: bad/{rule}/{name}:{line} was flagged, but is not marked"


def main(args):
    if args == ["--list"]:
        print("\n".join(RULES))
        return 0
    tree = load(ROOT, real_files())
    if "--warn" in args:
        for name, f in tree.files.items():
            if f.is_c and len(f.lines) > 500:
                print(f"{name}: {len(f.lines)} lines, more than 500")
        return 0
    unknown = set(args) - set(RULES)
    if unknown:
        print("no such rule: " + " ".join(unknown))
        return 2
    failed = False
    for rule in args or RULES:
        check = RULES[rule]
        places = list(self_test(rule, check))
        for name, line, why in check(tree):
            if f"lint-allow: {rule} " not in tree.files[name].line(line):
                places.append(f"{name}:{line}: {why}")
        print(f"not ok {rule}" if places else f"ok {rule}")
        for place in places:
            print("  " + place)
        failed = failed or bool(places)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
