"""The cases of a suite: their registry, the command line, the threads, and the report.

    @case ─► CASES ─► run_suite ─► one Rig per case, application and back end

A suite is a program whose modules register cases. A case passes if it returns, and fails if it raises a Fault. With
`--self-check` each case meets a fault, and must then report it: the case plants it itself, or runs without the tested defence.
"""
import argparse
import inspect
import os
import random
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from .server import REPOSITORY, Rig
from .waiting import Fault

LONG_AT_ONCE = 32
# Bounds the wait of `--self-check` for an event that the fault prevents; of a long case, over two of the windows of a rate.
SELF_CHECK_PATIENCE, SELF_CHECK_PATIENCE_LONG = 5.0, 35.0
BOTH = ["epoll-edge", "uring"]


@dataclass(eq=False)
class Case:
    name: str
    subject: str
    function: Callable[..., str]
    # Applications with which it runs, each as a case of its own: in all tiers, not in the basic one, in the full one only.
    basic: tuple[str | None, ...]
    more: tuple[str | None, ...]
    full: tuple[str | None, ...]
    # Whether it mostly waits, for several seconds: long cases all run at the same time.
    long: bool
    # For `--self-check`: settings without the defence, a name for the suite's Rig, or None to skip the case.
    undefended: dict | str | None

    def applications(self, tier: str) -> tuple[str | None, ...]:
        return self.basic + (self.more if tier != "basic" else ()) + (self.full if tier == "full" else ())


CASES: list[Case] = []


def case(*, basic: tuple = (None,), more: tuple = (), full: tuple = (), long: bool = False, undefended: dict | str | None = {}):
    """Registers a function as a case. Its docstring states the requirement. While `rig.planted` is set the function plants the
    fault that its docstring names, if any, and must then report one."""

    def register(function):
        subject = function.__module__
        CASES.append(Case(function.__name__, subject, function, tuple(basic), tuple(more), tuple(full), long, undefended))
        return function

    return register


@dataclass(frozen=True)
class Suite:
    """A program of cases."""

    name: str
    # The text of --help.
    help: str
    rig: type[Rig] = Rig
    # The back ends of the tiers, "basic", "whole" and "full"; the others have both.
    backends: dict[str, list[str]] = field(default_factory=dict)
    at_once: int = 2


def run_suite(suite: Suite) -> int:
    """Runs the cases that the command line selects. Returns the exit status."""
    options = _options(suite)
    cases = [(case, app) for case in CASES for app in case.applications(options.tier)
             if (not options.only or any(word in f"{case.subject}.{case.name} {app or ''}" for word in options.only))
             and (not options.self_check or case.undefended is not None)]
    if options.list:
        for case in dict.fromkeys(case for case, _ in cases):
            print(f"{case.subject}: {case.name}\n{textwrap.indent(inspect.cleandoc(case.function.__doc__), '    ')}")
        return 0
    if not cases:
        sys.exit(f"{suite.name}: no case matches; --list shows the names")
    if not os.access(options.encke, os.X_OK):
        sys.exit(f"{suite.name}: {options.encke} is no program; --encke names one")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"seed {options.seed}", flush=True)
    passed = failed = 0
    began = time.monotonic()
    with ThreadPoolExecutor(LONG_AT_ONCE) as long, ThreadPoolExecutor(suite.at_once) as short:
        results = [(long if case.long else short).submit(_outcome, suite, case, app, backend, options)
                   for backend in options.backend or suite.backends.get(options.tier, BOTH) for case, app in cases]
        try:
            for result in as_completed(results):
                is_passed, line = result.result()
                passed, failed = passed + is_passed, failed + (not is_passed)
                print(line, flush=True)
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
                        help="only cases whose module, name and application contain NAME, repeatable")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32), metavar="N",
                        help="seed of all random choices (default: a new one, which is printed)")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument("--self-check", action="store_true", help="run each case with a fault, which it must report")
    options = parser.parse_args()
    options.encke = options.encke.resolve()
    return options


def _outcome(suite: Suite, case: Case, app: str | None, backend: str, options: argparse.Namespace) -> tuple[bool, str]:
    """Runs a case. Returns (whether it passed, the line of its outcome)."""
    began = time.monotonic()
    rig = suite.rig(options.encke, backend, seed=options.seed, tier=options.tier,
                    chance=random.Random(f"{options.seed} {case.name} {app}"))
    if options.self_check:
        rig.planted, rig.undefended = True, case.undefended
        rig.patience = SELF_CHECK_PATIENCE_LONG if case.long else SELF_CHECK_PATIENCE
    try:
        with rig:
            try:
                passed, text = True, case.function(rig, app) if app else case.function(rig)
            except Fault as fault:
                passed, text = False, str(fault)
        passed ^= options.self_check  # with its fault a case must fail
    except Exception as error:  # a mistake of the case itself, or a process that is gone
        passed, text = False, f"{error!r} at {traceback.extract_tb(error.__traceback__)[-1]}"
    name = f"{case.name} {app}" if app else case.name
    return passed, f"{'ok  ' if passed else 'FAIL'} {backend:10}  {name}  ({text}; {time.monotonic() - began:.1f} s)"
