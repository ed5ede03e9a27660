"""Tests of tests/failures.py: `python3 -m unittest tests/test_failures.py`."""
import textwrap
import unittest

from failures import END_LINES, LINES_MAX, SHOWN_MAX, names, reason

TAP = """
TAP version 13
# Subtest: in a browser
    # Subtest: two tabs, one stream
    not ok 1 - two tabs, one stream
      ---
      duration_ms: 8.4
      failureType: 'testCodeFailure'
      error: |-
        Timeout 90000ms exceeded.
          ... FAIL: not the name of a test
      stack: |-
        TestContext.<anonymous> (client.test.js:4:70)
      ...
    # Subtest: the other
    ok 2 - the other
      ---
      duration_ms: 1.4
      ...
    # Subtest: one day
    not ok 3 - one day # TODO
      ---
      duration_ms: 1.4
      ...
    1..2
not ok 1 - in a browser
  ---
  failureType: 'subtestsFailed'
  error: '1 subtest failed'
  ...
1..1
# fail 1
"""

RUST = """
running 2 tests
test http::keeps ... ok
test http::closes ... FAILED

failures:

---- http::closes stdout ----

thread 'http::closes' panicked at crates/a.rs:1:2:
left is not right

failures:
    http::closes

test result: FAILED. 1 passed; 1 failed; 0 ignored
"""

UNITTEST = """
.F
======================================================================
FAIL: test_a_bar_is_met (test_bench.RatiosAndBars.test_a_bar_is_met)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "test_bench.py", line 58, in test_a_bar_is_met
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 2 tests in 0.1s

FAILED (failures=1)
"""

SUITE = """
seed 7
ok   epoll-edge  sends a file python  (3 files; 0.1 s)
FAIL epoll-edge  leaves a queue uvicorn  (GET http://127.0.0.1:1/ was answered with
  503; 4.1 s)
ok   uring       sends a file python  (3 files; 0.1 s)
FAILED transmits: KeyError('a')
2 passed, 2 failed in 5 s
"""

PYTEST = """
=================================== FAILURES ===================================
_________________________ test_api[GET /api/v1/status] _________________________
E   AssertionError: 500
=========================== short test summary info ============================
"""


class Failures(unittest.TestCase):
    def test_each_kind_of_test_is_named_with_what_it_said(self):
        for said, name, words, other in [
            (TAP, "two tabs, one stream", "Timeout 90000ms", "the other"),
            (RUST, "http::closes", "left is not right", "http::keeps"),
            (UNITTEST, "test_a_bar_is_met (test_bench.RatiosAndBars.test_a_bar_is_met)", "1 != 2", "Ran 2"),
            (SUITE, "epoll-edge  leaves a queue uvicorn", "503; 4.1 s", "sends a file"),
            (PYTEST, "test_api[GET /api/v1/status]", "AssertionError: 500", "summary"),
        ]:
            self.assertEqual(names(said)[:1], [name])
            self.assertIn(words, reason(said))
            self.assertNotIn(other, reason(said))
        self.assertEqual([len(names(said)) for said in (TAP, RUST, UNITTEST, SUITE, PYTEST)], [1, 1, 1, 2, 1])

    def test_a_failure_is_named_once_however_often_and_deep_it_is_printed(self):
        said = TAP + textwrap.indent(TAP, "    ") + "".join(f"ok   epoll  case {n}\n" for n in range(1000))
        self.assertEqual(names(said), ["two tabs, one stream"])

    def test_long_failures_and_many_are_shortened_and_all_are_named(self):
        long = "FAIL epoll  long  (" + "\n  line" * 500 + "; 1 s)\n"
        many = "".join(f"FAIL epoll  case {n}  (fault; 1 s)\n" for n in range(50))
        shown = reason(long + many).splitlines()
        self.assertLessEqual(len(shown), LINES_MAX + SHOWN_MAX + 50)
        self.assertIn("FAIL epoll  case 49  (fault; 1 s)  (shortened)", shown)

    def test_a_suite_that_passed_ends_the_output_of_the_one_before(self):
        self.assertEqual(reason("FAIL  help\n  differs\nok    metrics\n"), "FAIL  help\n  differs")

    def test_without_a_known_failure_the_end_is_what_there_is(self):
        said = "".join(f"line {n}\n" for n in range(1000)) + "error: could not compile\n"
        self.assertEqual(names(said), [])
        self.assertEqual(reason(said).splitlines()[-1], "error: could not compile")
        self.assertEqual(len(reason(said).splitlines()), END_LINES)


if __name__ == "__main__":
    unittest.main()
