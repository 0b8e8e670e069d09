#!/usr/bin/env python3
"""A second opinion on an audit trail, for tests: numbers without holes and the chain of SHA-256.

    audit_chain.py FILE

Older files that rotation left (FILE.5 to FILE.1) come first. It prints `N lines, whole` and ends
with 0, or says which line breaks the trail and ends with 1. It shares no code with egressctl.
"""

import hashlib
import json
import os
import sys

OLDER_MAX = 5


def lines(path):
    for name in [f"{path}.{i}" for i in range(OLDER_MAX, 0, -1)] + [path]:
        if os.path.exists(name):
            with open(name, "rb") as file:
                for number, line in enumerate(file, 1):
                    yield f"{name}:{number}", line


def check(path):
    """(lines read, what is wrong or None)"""
    count, last_seq, last_hash = 0, None, None
    for where, line in lines(path):
        count += 1
        if not line.endswith(b"\n"):
            return count, f"{where}: torn"
        line = line[:-1]
        try:
            event = json.loads(line)
            seq, prev = event["seq"], event["prev"]
        except (ValueError, KeyError, TypeError) as error:
            return count, f"{where}: {error!r}"
        if last_seq is None:
            if seq == 1 and prev != "0" * 64:
                return count, f"{where}: the first line has a predecessor"
        elif seq != last_seq + 1:
            return count, f"{where}: seq {seq} after {last_seq}"
        elif prev != last_hash:
            return count, f"{where}: prev is not the hash of the line before"
        last_seq, last_hash = seq, hashlib.sha256(line).hexdigest()
    return count, None if count else "no lines"


def main():
    count, wrong = check(sys.argv[1])
    print(wrong or f"{count} lines, whole")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
