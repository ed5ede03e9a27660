"""Output of the figures: progress and tables on the terminal, `RESULTS.md` for the repository.

Both show the same sections with the same texts. The file begins with every bar and whether each back end met it, missed ones
first. No measurement is omitted.
"""

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .figures import ROUNDS_FOR_VERDICT, Section, Verdict

ENCKE_COLUMN = "encke "


class Progress:
    """One line that is overwritten on a terminal; silent elsewhere, where the sections show the progress."""

    def __init__(self, expected_seconds: float):
        self._start = time.monotonic()
        self._expected = expected_seconds
        self._live = sys.stderr.isatty()

    def step(self, text: str) -> None:
        if not self._live:
            return
        gone = time.monotonic() - self._start
        line = f"[{_minutes(gone)} of about {_minutes(self._expected)}] {text}"
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{line[:width]}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def elapsed(self) -> str:
        return _minutes(time.monotonic() - self._start)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def show(section: Section) -> None:
    """Prints a section as soon as it is measured."""
    print(f"\n{section.title}\n  {section.how}")
    widths = [max(len(row[i]) for row in [section.columns, *section.rows]) for i in range(len(section.columns))]
    for row in [section.columns, *section.rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print(f"  {'  '.join(cells).rstrip()}")
    for verdict in section.verdicts:
        print(f"  {verdict.word():8} {verdict.server}: {verdict.bar}: {verdict.value}")
    for note in section.notes:
        print(f"  note: {note}")
    sys.stdout.flush()


def summary(sections: list[Section]) -> str:
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    if not verdicts:
        return "No bar applied: Encke was not measured."
    met = sum(verdict.met for verdict in verdicts)
    tendency = "" if all(verdict.final for verdict in verdicts) else \
        f" (in brackets: a tendency, fewer than {ROUNDS_FOR_VERDICT} rounds)"
    return f"{met} of {len(verdicts)} bars met{tendency}."


@dataclass(frozen=True)
class Account:
    """The data that a reader needs to repeat the run."""

    command: str
    date: str
    took: str
    seed: int
    rounds: int
    seconds: int
    facts: list[tuple[str, str]]
    warnings: list[str]


def write_results(path: Path, account: Account, sections: list[Section]) -> None:
    lines = ["# Results of the bench", "",
             "The command below wrote this file; [README.md](README.md) has the rules. Absolute figures hold only for this "
             "machine on this day: compare ratios.", "",
             "| | |", "|---|---|",
             f"| command | `{account.command}` |",
             f"| date | {account.date}, took {account.took} |",
             f"| rounds | {account.rounds} of {account.seconds} s, seed {account.seed} |",
             *[f"| {_cell(what)} | {_cell(value)} |" for what, value in account.facts], ""]
    lines += [line for warning in account.warnings for line in (f"**{warning}**", "")]
    lines += ["## Bars", "", summary(sections), "", *_bars(sections)]
    for section in sections:
        lines += [f"## {section.title}", "", f"{section.how}.", "", *_table(section.columns, section.rows), ""]
        lines += [*[f"- {note}" for note in section.notes], ""] if section.notes else []
    path.write_text("\n".join(lines).rstrip() + "\n")


def _bars(sections: list[Section]) -> list[str]:
    """A row per bar, a column per back end."""
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    if not verdicts:
        return []
    servers = list(dict.fromkeys(verdict.server for verdict in verdicts))
    rows: dict[tuple[str, str], dict[str, Verdict]] = {}
    for verdict in verdicts:
        rows.setdefault((verdict.section, verdict.bar), {})[verdict.server] = verdict
    body = [[title, bar, *[_outcome(by_server.get(server)) for server in servers]]
            for (title, bar), by_server in rows.items()]
    return [*_table(["workload", "bar", *[server.removeprefix(ENCKE_COLUMN) for server in servers]], body), ""]


def _outcome(verdict: Verdict | None) -> str:
    if verdict is None:
        return "–"
    return f"{verdict.value} {verdict.word()}" if verdict.met else f"{verdict.value} **{verdict.word()}**"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    head = [f"| {' | '.join(map(_cell, columns))} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    return head + [f"| {' | '.join(map(_cell, row))} |" for row in rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
