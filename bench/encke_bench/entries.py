"""The servers of a section of push or live streams during its rounds: their samples, ratios and failures."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .figures import Bar, Ratio, Section, Verdict, paired
from .machine import Trouble
from .servers import Running, Server

WAITED_NOTED = 0.05


@dataclass
class Entry:
    """The state of one server during the rounds. A server that fails leaves with its reason."""

    server: Server
    run: Running | None = None
    samples: list[dict] = field(default_factory=list)
    failure: str = ""

    def all(self, name: str) -> list[float]:
        return [sample[name] for sample in self.samples]

    def middle(self, name: str) -> float:
        return statistics.median(self.all(name))

    @contextmanager
    def failing(self) -> Iterator[None]:
        try:
            yield
        except (Trouble, OSError) as trouble:
            self.failure = str(trouble)


def ratio(entry: Entry, among: list[Entry], base: str, name: str) -> Ratio | None:
    """Returns a figure ÷ another server's, paired by rounds, or None if that server has no figures or is this one."""
    other = next((one for one in among if one.server.name == base and not one.failure), None)
    return None if other in (None, entry) else paired(entry.all(name), other.all(name))


def shown(ratio: Ratio | None) -> str:
    return "–" if ratio is None else str(ratio)


def failed(section: Section, entry: Entry, crowd: str, bars: tuple[Bar, ...]) -> None:
    """Records a failure with a crowd or a stream, whose name begins its row. The bars are missed if the server is Encke."""
    name, text = entry.server.name, entry.failure
    text = text if text.startswith(name) else f"{name}: {text}"
    section.notes.append(f"{crowd}: {text}" if crowd else text)
    title = ", ".join(filter(None, (section.title, crowd)))
    section.verdicts += [Verdict(title, str(bar), name, "failed", False) for bar in entry.server.barred(*bars)]
    section.failed_row([crowd, name] if crowd else [name])


def contended(samples: dict[str, dict[str, list[dict]]]) -> list[str]:
    """Returns a note if other processes were active enough on the server's core to blur the figures."""
    waited = [sample["waited"] for crowd in samples.values() for of in crowd.values() for sample in of]
    share = statistics.fmean(waited) if waited else 0
    return [f"contended: servers waited for their core for {share:.0%} of their runnable time"] \
        if share >= WAITED_NOTED else []
