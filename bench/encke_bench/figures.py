"""The arithmetic of verdicts: paired ratios, their intervals, bars, and the tables with the results.

A single figure says little on a shared machine. The ratio of two servers in the same round says much more, because other load
disturbs both. A bar is therefore applied to the median of the rounds' ratios: it is met if the lower end of the 95 % interval
of that median is at or below it. Fewer than `ROUNDS_FOR_VERDICT` rounds give a tendency, not a verdict, and are marked as
such.
"""

import random
import statistics
from dataclasses import dataclass, field

ROUNDS_FOR_VERDICT = 10
RESAMPLES = 4_000
TAIL = 0.025


@dataclass(frozen=True)
class Ratio:
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 3 if self.median < 0.3 else 2
        return f"{self.median:.{digits}f} [{self.low:.{digits}f}–{self.high:.{digits}f}]"


def paired(subject: list[float], base: list[float]) -> Ratio:
    """Median of subject ÷ base, round by round, with the 95 % interval of a percentile bootstrap (seeded)."""
    ratios = [s / b for s, b in zip(subject, base, strict=True)]
    chance = random.Random(len(ratios))
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return Ratio(statistics.median(ratios), medians[int(TAIL * RESAMPLES)], medians[int((1 - TAIL) * RESAMPLES) - 1])


@dataclass(frozen=True)
class Bar:
    """A limit on a measured value; `against` names the server of a ratio, or is empty."""

    limit: float
    what: str
    against: str = ""
    at_least: bool = False

    def __str__(self) -> str:
        limit = f"1/{round(1 / self.limit)}" if 0 < self.limit < 0.5 else f"{self.limit:,.4g}"
        return f"{self.what} {'≥' if self.at_least else '≤'} {limit}"

    def met_by(self, value: Ratio | float) -> bool:
        """Decides by the end of the interval that favours the server (see the module's rule)."""
        if isinstance(value, Ratio):
            value = value.high if self.at_least else value.low
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Verdict:
    section: str
    bar: str
    server: str
    value: str
    met: bool
    final: bool = True  # False: too few rounds

    def word(self) -> str:
        word = "met" if self.met else "missed"
        return word if self.final else f"({word})"


def judge(section: str, server: str, bar: Bar, value: Ratio | float, *, rounds: int = ROUNDS_FOR_VERDICT) -> Verdict:
    shown = str(value) if isinstance(value, Ratio) else f"{value:,.6g}"
    return Verdict(section, str(bar), server, shown, bar.met_by(value), rounds >= ROUNDS_FOR_VERDICT)


@dataclass
class Section:
    """The outcome of a workload: a table for people, and verdicts on Encke."""

    name: str
    title: str
    how: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    samples: object = None

    def failed(self, server: str, reason: Exception | str, bars: tuple[Bar, ...] = (), row: list[str] | None = None) -> None:
        """Records why a server has no figure here. The bars of this workload are then missed. `row` is its incomplete row."""
        text = str(reason)
        self.notes.append(text if text.startswith(server) else f"{server}: {text}")
        self.verdicts += [Verdict(self.title, str(bar), server, "failed", False) for bar in bars]
        if row is not None:
            self.failed_row(row)

    def failed_row(self, row: list[str]) -> None:
        """Adds an incomplete row."""
        self.rows.append(row + ["failed"] + [""] * (len(self.columns) - len(row) - 1))


def number(value: float) -> str:
    """Formats a figure with three to four significant digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if value >= 100 else f"{value:.3g}"
