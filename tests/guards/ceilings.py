"""The ceilings of tests/guards/instructions and tests/guards/memory: one line per figure, `TABLE NAME CEILING`."""
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

from rig import REPOSITORY, Fault

FILE = Path(__file__).resolve().parent / "ceilings"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug/encke"
# A ceiling is a figure plus 5 %: timers alone have moved a count of instructions by 1.3 %.
MARGIN = 1.05
# A figure above its ceiling is taken again: a busy machine adds turns of timers to one series, but more work is in all of them.
TRIES = 5


class Ceilings:
    """The ceilings of one table, compared one by one."""

    def __init__(self, table: str, unit: str, slack: int = 0):
        self.table, self.unit, self.slack, self.failed = table, unit, slack, 0
        found = re.findall(rf"^{table} +([\w-]+) +(\d+)$", FILE.read_text(), re.MULTILINE)
        self.figures = {name: int(most) for name, most in found}

    def compare(self, name: str, measure: Callable[[], float], is_update: bool) -> None:
        """Measures a figure and prints it beside its ceiling, or makes it the new ceiling."""
        most = self.figures.get(name, 0)
        try:
            figure = measure()
            for _ in range(1, TRIES):
                if figure > most and not is_update:
                    figure = min(figure, measure())
        except (Fault, OSError) as fault:
            print(f"FAIL  {name:20} {fault}", flush=True)
            self.failed += 1
            return
        over = figure > most and not is_update
        print(f"{'FAIL' if over else 'ok  '}  {name:20} {figure:11,.0f} {self.unit}, ceiling {most:,}", flush=True)
        self.failed += over
        if is_update:
            self.figures[name] = math.ceil(figure * MARGIN) + self.slack

    def end(self, is_update: bool) -> int:
        """Writes the ceilings if they are new. Returns the exit status."""
        if is_update and not self.failed:
            lines = [line for line in FILE.read_text().splitlines() if not line.startswith(f"{self.table} ")]
            lines += [f"{self.table} {name:20} {most}" for name, most in self.figures.items()]
            FILE.write_text("\n".join(lines) + "\n")
        return 1 if self.failed else 0
