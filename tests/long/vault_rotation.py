#!/usr/bin/env python3
"""10,000 times: another key by PATCH, then a request on a connection that stays open. The origin has
to see the new key each time. The case is one of e2e/api_keys.py, which says what is done."""
import os
import sys

E2E = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e")
os.environ.update(EGRESS_ROTATION_TURNS="10000", EGRESS_ROTATION_SECONDS="0")
os.execv(sys.executable, [sys.executable, os.path.join(E2E, "api_keys.py"),
                          "V165-a-key-is-never-stale-after-the-answer", "clean-end"])
