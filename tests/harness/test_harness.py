#!/usr/bin/env python3
"""What the harness must notice: each of these once made a bad run look good, or could."""
import contextlib
import io
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "mutants")]
import longparts  # noqa: E402
import results  # noqa: E402
import run as mutants  # noqa: E402
import scripts  # noqa: E402
from builds import Build, BuildError, clean_env  # noqa: E402


class ScriptProtocol(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_text(self, text, cases=(), seconds=20):
        path = self.folder / "group.sh"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        rows, tmp = scripts.run_script(path, Build("gcc-asan"), cases, seconds=seconds)
        if tmp:
            shutil.rmtree(tmp)
        return [(r[0], r[1]) for r in rows if r[0] != "note"], tmp

    def test_lines_are_counted(self):
        rows, tmp = self.run_text("echo ok a; echo skip b no root; echo noise; echo ' ok c'")
        self.assertEqual(rows, [("ok", "a"), ("skip", "b")])
        self.assertIsNone(tmp)

    def test_not_ok_fails_and_keeps_files(self):
        rows, tmp = self.run_text("echo ok a; echo not ok b because")
        self.assertIn(("not ok", "b"), rows)
        self.assertIsNotNone(tmp)

    def test_no_line_fails(self):
        self.assertEqual(self.run_text("true")[0], [("not ok", "group")])

    def test_bad_exit_after_ok_fails(self):
        self.assertIn(("not ok", "group"), self.run_text("echo ok a; exit 1")[0])

    def test_time_out_fails(self):
        self.assertIn(("not ok", "group"), self.run_text("echo ok a; exec sleep 9", seconds=1)[0])

    def test_listed_case_that_is_not_reported_fails(self):
        text = 'case "${1-}" in --list) echo a b; exit 0;; esac; echo ok a'
        self.assertEqual(self.run_text(text)[0], [("ok", "a"), ("not ok", "b")])

    def test_library_that_lists_may_be_in_another_folder(self):
        text = 'case "${1-}" in -?list) echo a b; exit 0;; esac; echo ok a'
        self.assertEqual(self.run_text(text)[0], [("ok", "a")])
        self.assertEqual(self.run_text(text + " # bed.sh")[0], [("ok", "a"), ("not ok", "b")])

    def test_asked_case_that_is_not_reported_fails(self):
        self.assertIn(("not ok", "c"), self.run_text("echo ok a", cases=["c"])[0])

    def test_case_reported_twice_fails(self):
        self.assertIn(("not ok", "a"), self.run_text("echo ok a; echo ok a")[0])

    def test_sanitizer_report_in_a_log_fails(self):
        text = 'echo "==1==ERROR: AddressSanitizer: x" >"$EGRESS_TMP/log"; echo ok a'
        self.assertIn(("not ok", "group-sanitizer"), self.run_text(text)[0])

    def test_environment_of_the_caller_stays_outside(self):
        os.environ["EGRESS_AUDIT"] = os.environ["https_proxy"] = "x"
        self.addCleanup(os.environ.pop, "EGRESS_AUDIT")
        self.addCleanup(os.environ.pop, "https_proxy")
        self.assertFalse({"EGRESS_AUDIT", "https_proxy"} & set(clean_env()))


class Counts(unittest.TestCase):
    def finish(self, act):
        r = results.Results(False)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            act(r)
            code = r.finish()
        return code, out.getvalue().splitlines()[-1]

    def test_last_line(self):
        def act(r):
            r.ok("a")
            r.ok("b")
            r.skip("c", "why")
        self.assertEqual(self.finish(act), (0, "2 passed, 0 failed, 1 skipped"))

    def test_one_failure_fails_the_run(self):
        def act(r):
            r.ok("a")
            r.fail("b", "text")
        self.assertEqual(self.finish(act), (1, "1 passed, 1 failed, 0 skipped"))

    def test_nothing_run_is_no_success(self):
        self.assertEqual(self.finish(lambda r: r.skip("a", "why"))[0], 1)


class Mutants(unittest.TestCase):
    def test_table_fields(self):
        text = "# x\n\na | f.c | x \\| y || z | | t\n"
        self.assertEqual(mutants.read_table(text), [("a", "f.c", "x | y || z", "", "t")])

    def test_wrong_rows_are_refused(self):
        for text in ("a | f.c | x | t\n", "a | f.c |  | y | t\n", "a | f | x | y | t\n" * 2):
            with self.assertRaises(SystemExit):
                mutants.read_table(text)

    def test_text_must_stand_once(self):
        self.assertEqual(mutants.change("abc", "b", "x"), "axc")
        for text in ("ac", "abbc"):
            with self.assertRaises(BuildError):
                mutants.change(text, "b", "x")


class Fuzz(unittest.TestCase):
    def test_status_line(self):
        line = "#2097152 pulse  cov: 58 ft: 74 corp: 17/195b lim: 4096 exec/s: 1048576 rss: 100Mb"
        self.assertEqual(longparts.STATUS.findall(line), [("58", "74", "17")])


if __name__ == "__main__":
    unittest.main()
