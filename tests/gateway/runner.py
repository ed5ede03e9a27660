"""Runs the cases of a suite: the command line, the threads, and the report.

    tests/gateway/run, tests/console/run ─► run_suite ─► one Lab per case, application and back end

A suite is a program whose modules register cases (harness.py). A case passes if it returns, and fails if it raises. With
`--self-check` each case plants a fault, and must then report one.
"""
import argparse
import contextlib
import inspect
import os
import random
import signal
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from harness import CASES, PLANTED_PATIENCE, REPOSITORY, Case, Fault, Lab

AT_ONCE = 2

print_lock = threading.Lock()


@dataclass(frozen=True)
class Suite:
    """A program of cases."""

    name: str
    # The text of --help.
    help: str
    # The back ends of each tier, "basic", "whole" and "full".
    backends: dict[str, list[str]]
    lab: type[Lab] = Lab


def run_suite(suite: Suite) -> int:
    """Runs the cases that the command line selects. Returns the exit status."""
    options = _options(suite)
    cases = [(case, app) for case in CASES for app in case.applications(options.tier)
             if not options.only or any(word in f"{case.name} {app or ''}" for word in options.only)]
    if options.list:
        for case in dict.fromkeys(case for case, _ in cases):
            print(f"{case.name}\n{textwrap.indent(inspect.cleandoc(case.function.__doc__), '    ')}")
        return 0
    if not cases:
        sys.exit(f"{suite.name}: no case matches; --list shows the names")
    if not os.access(options.encke, os.X_OK):
        sys.exit(f"{suite.name}: {options.encke} is no program; --encke names one")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"seed {options.seed}", flush=True)
    passed = failed = 0
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = [pool.submit(_report, suite, case, app, backend, options)
                   for backend in options.backend or suite.backends[options.tier] for case, app in cases]
        try:
            for result in as_completed(results):
                passed, failed = passed + result.result(), failed + (not result.result())
        except (KeyboardInterrupt, SystemExit):  # the running cases still end their processes
            for result in results:
                result.cancel()
            raise
    print(f"{passed} passed, {failed} failed in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _options(suite: Suite) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=suite.help, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--basic", action="store_const", dest="tier", const="basic", default="whole",
                        help="the part in `make test`: fewer programs and repetitions")
    parser.add_argument("--full", action="store_const", dest="tier", const="full", help="more repetitions, larger transfers")
    parser.add_argument("--encke", type=Path, default=os.environ.get("ENCKE", REPOSITORY / "target/debug/encke"),
                        metavar="FILE", help="binary (default: $ENCKE, or the debug build)")
    parser.add_argument("--backend", action="append", metavar="NAME", help="back end, repeatable")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="only cases whose name and application contain NAME, repeatable")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32), metavar="N",
                        help="seed of all random choices (default: a new one, which is printed)")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument("--self-check", action="store_true", help="plant a fault in each case")
    options = parser.parse_args()
    options.encke = options.encke.resolve()
    return options


def _run(suite: Suite, case: Case, app: str | None, backend: str, options: argparse.Namespace) -> tuple[bool, str]:
    """Returns (whether the case passed, the figures or the fault)."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"encke-{suite.name}-"))).resolve()
        lab = suite.lab(options.encke, backend, folder, stack, seed=options.seed, tier=options.tier, planted=options.self_check,
                        chance=random.Random(f"{options.seed} {case.name} {app}"))
        if options.self_check:
            lab.patience = PLANTED_PATIENCE
        try:
            return True, case.function(lab, app) if app else case.function(lab)
        except Fault as fault:
            return False, str(fault)


def _report(suite: Suite, case: Case, app: str | None, backend: str, options: argparse.Namespace) -> bool:
    began = time.monotonic()
    try:
        passed, text = _run(suite, case, app, backend, options)
        passed ^= options.self_check  # with its planted fault a case must fail
    except Exception as error:  # a mistake of the case itself, or a process that is gone
        passed, text = False, f"{error!r} at {traceback.extract_tb(error.__traceback__)[-1]}"
    name = f"{case.name} {app}" if app else case.name
    with print_lock:
        print(f"{'ok  ' if passed else 'FAIL'} {backend:10}  {name}  ({text}; {time.monotonic() - began:.1f} s)", flush=True)
    return passed
