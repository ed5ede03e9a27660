#!/usr/bin/env python3
"""The failures in the output of tests: TAP, tests of Rust, unittest, pytest, and the suites of this repository.

    tests/failures.py FILE            prints the output of each failure, or the end of the file if none is recognised
    tests/failures.py --names FILE    prints their names only

The name of one failure in hundreds of tests is seldom at the end of their output.
"""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

# The first line of a failure, with its name.
BEGIN = re.compile(
    r"(?P<tap> *)not ok \d+ - (?P<subtest>.+)"  # TAP
    r"|---- (?P<rust>.+) stdout ----"  # libtest
    r"|test (?P<line>.+) \.\.\. FAILED"
    r"|(?:FAIL|ERROR): (?P<unittest>.+)"
    r"|_{3,} (?P<pytest>.+) _{3,}"
    r"|FAIL(?:ED)? +(?P<suite>[^:(][^:]*)(?::.*)?"  # the suites of this repository
)
# The first line of something else, or of the next test.
OTHER = re.compile(r"ok {1,4}\S|test .+ \.\.\. |test result: |failures:$|[=-]{20,}|\d+ passed, \d+ failed|=== |--- |Ran \d+ tests")
# Marks a test that contains the one that failed.
OUTER = "failureType: 'subtestsFailed'"
# Lines of a failure, of the end of an output, and failures that are shown in full.
LINES_MAX = 40
END_LINES = 60
SHOWN_MAX = 12


@dataclass
class Failure:
    name: str
    lines: list[str]


def failures(output: str) -> list[Failure]:
    """Each failure once, in the order of the output."""
    found: dict[str, Failure] = {}
    lines = output.splitlines()
    at = 0
    while at < len(lines):
        begin = BEGIN.fullmatch(lines[at])
        if not begin or "# TODO" in lines[at]:
            at += 1
            continue
        end = at + 1
        if begin["tap"] is not None:
            # A block of YAML, of which a line may look like anything.
            if end < len(lines) and lines[end] == f"{begin['tap']}  ---":
                while end < len(lines) and lines[end] != f"{begin['tap']}  ...":
                    end += 1
        else:
            if lines[end : end + 1] and re.fullmatch("-{20,}", lines[end]):
                end += 1
            while end < len(lines) and not OTHER.match(lines[end]) and not BEGIN.fullmatch(lines[end]):
                end += 1
        block = [line for line in lines[at:end] if line.strip()]
        if not any(OUTER in line for line in block):
            name = next(value for key, value in begin.groupdict().items() if key != "tap" and value is not None)
            name = re.sub(r"  \(.*", "", name).strip()
            if name not in found or len(block) > len(found[name].lines):
                found[name] = Failure(name, block)
        at = end
    return list(found.values())


def names(output: str) -> list[str]:
    return [failure.name for failure in failures(output)]


def reason(output: str) -> str:
    """The output of the failures, or the end of the whole output if none is recognised."""
    found = failures(output)
    if not found:
        return "\n".join(output.rstrip().splitlines()[-END_LINES:])
    shown = [line for failure in found[:SHOWN_MAX] for line in shortened(failure.lines)]
    return "\n".join(shown + [f"{failure.lines[0]}  (shortened)" for failure in found[SHOWN_MAX:]])


def shortened(lines: list[str]) -> list[str]:
    if len(lines) <= LINES_MAX:
        return lines
    half = LINES_MAX // 2
    return [*lines[:half], f"[{len(lines) - 2 * half} lines]", *lines[-half:]]


if __name__ == "__main__":
    *options, path = sys.argv[1:] or sys.exit(__doc__)
    text = Path(path).read_text(errors="replace")
    print("\n".join(names(text)) if options == ["--names"] else reason(text))
