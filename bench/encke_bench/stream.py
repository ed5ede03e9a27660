"""Live streams: cost of a delivered megabyte, of a listener, of many that connect at once, and of splitting a container.

    all servers started, each with a source (sources.py) and a crowd of its own (`floor/listeners.c`)
    for each round:  servers in a new random order
        for each server:  CPU time ─► its source sends in real time ─► idle ─► CPU time again; bytes that arrived

While other servers are measured, a source sends only some frames now and then, because Encke ends a body that pauses for ten
seconds (limits.body_rate). The floor (`floor/rawstream.c`) gathers the same bytes per send as Encke, and
sends them to every descriptor of an array. Every listener must receive the same number of bytes, and the bytes of
one listener are compared with the source's.
"""

import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .crowds import settle
from .entries import Entry, contended, failed, ratio, shown
from .figures import Bar, Section, judge, number
from .machine import Process, Trouble, ask, cpu, dirty_bytes
from .report import Progress
from .servers import BENCH, HELLO, STREAM_PATH, Bench, Encke, Running, Server
from .sources import LiveSource, Media, Mp3, TransportStream

CROWD, CROWD_QUICK = 1_000, 500
STORM_CROWD = 500
MANY = 18_000
TURN_SECONDS = 3.0
WARM_SECONDS = 1.0
MANY_SECONDS, MANY_SECONDS_QUICK = 10.0, 5.0
# The default of live.channel.time: afterwards the ring does not grow.
RING_SECONDS = 30.0
DIRTY_SAMPLES, DIRTY_STEP = 7, 0.3
CONNECT_SECONDS, STORM_SECONDS_MAX = 20, 10
# icecast2 has a listen queue of 5: faster connects are lost, and repeated by the kernel after a second.
PACE_US, PACE_US_PEER = 50, 4_000
ANSWER_SECONDS_MAX = 120
# Before every turn. With four servers that is more than 240 bytes per second.
ALIVE_STEPS = 4
# A part of a piece may remain at the server when the source pauses.
ARRIVED_MIN = 0.9
COMPARED_BYTES_MIN = 10_000
MB = 1e6

FLOOR_BAR = Bar(1.15, "CPU per MB ÷ floor", "floor")
PEER_BAR = Bar(0.25, "CPU per MB ÷ icecast2", "icecast2")
CPU_BARS = {Mp3: (FLOOR_BAR,), TransportStream: (FLOOR_BAR, PEER_BAR)}
MEMORY_BAR = Bar(256, f"bytes per listener, {CROWD:,} listeners, ring excluded")
STORM_BAR = Bar(300, f"ms until {STORM_CROWD} listeners have their first byte")
MANY_BAR = Bar(1_000, f"ms, longest pause of a listener among {MANY:,}")
SPLIT_BAR = Bar(1, "GB/s of the slowest container", at_least=True)
SPLIT_SECONDS = 120
# The fixture of a container that is rejected.
UNSTREAMABLE = "plain.mp4"


class Listeners:
    """A crowd on one server: a child process with a command per line."""

    def __init__(self, process: Process, run: Running, received: Path):
        self._process, self._run, self._received = process, run, received
        self.count = 0

    def connect(self, count: int, pace_us: int, seconds: float) -> dict:
        """Returns the times of the new connections, whether or not all have received something."""
        self.count += count
        return self._told(f"connect {count} {pace_us} {round(seconds * 1000)}")

    def connect_all(self, count: int) -> dict:
        """Returns the times of the new connections; each must receive something."""
        pace = PACE_US_PEER if self._run.server.name == "icecast2" else PACE_US
        figures = self.connect(count, pace, CONNECT_SECONDS)
        if figures["heard"] != count:
            raise Trouble(f"{self._run.server.name}: {count - figures['heard']:,} of {count:,} listeners received nothing"
                          f"{self._process.last_words()}")
        return figures

    def window(self) -> dict:
        """Returns the figures since the last call."""
        return self._told("window")

    def drop(self) -> None:
        self.count = 0
        self._told("drop")

    def received(self) -> bytes:
        """Returns the bytes of the first listener, with its head."""
        return self._received.read_bytes()

    def _told(self, command: str) -> dict:
        answer = ask(self._process, command, ANSWER_SECONDS_MAX)
        if not answer:
            raise Trouble(f"{self._run.server.name}: the listeners returned no figures{self._process.last_words()}")
        return json.loads(answer)


@contextmanager
def listening_to(bench: Bench, run: Running) -> Iterator[Listeners]:
    received = bench.new_state("listener") / "received"
    argv = [str(bench.programs.listeners), str(run.port), STREAM_PATH, str(received)]
    process = bench.generator("listeners", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Listeners(process, run, received)
    finally:
        process.stop()


@contextmanager
def sending_to(run: Running, media: Media) -> Iterator[LiveSource]:
    source = LiveSource(run, media)
    try:
        # Some streams need to be known before the first listener comes.
        source.play(WARM_SECONDS)
        yield source
    finally:
        source.close()


@dataclass
class StreamEntry(Entry):
    source: LiveSource | None = None
    crowd: Listeners | None = None


def cpu_seconds(bench: Bench) -> float:
    return len(CPU_BARS) * len(bench.servers_for("stream-cpu")) * (8 + bench.rounds * (TURN_SECONDS + 0.7))


def per_megabyte(bench: Bench, progress: Progress) -> Section:
    crowd = CROWD_QUICK if bench.quick else CROWD
    section = Section("stream-cpu", "live streams: CPU time of a delivered megabyte",
                      f"{crowd:,} listeners; the source sends for {TURN_SECONDS:.0f} s per round in real time, a frame per write. CPU time of "
                      "the server until it is idle again ÷ bytes that arrived; bytes/read: of a listener",
                      ["stream", "server", "CPU µs/MB", "÷ floor [95 %]", "÷ icecast2 [95 %]", "bytes/read", "share of its core",
                       "waited", "generator"], samples={})
    for kind, bars in CPU_BARS.items():
        entries = _by_rounds(bench, progress, kind, crowd)
        section.samples[kind.title] = {entry.server.name: entry.samples for entry in entries}
        for entry in entries:
            _cpu_row(section, bench, kind, entry, entries, bars)
    section.notes += contended(section.samples)
    return section


def _by_rounds(bench: Bench, progress: Progress, kind: type[Media], crowd: int) -> list[StreamEntry]:
    """Starts a server, a source and a crowd for every entry, and lets the sources send in random order."""
    entries = [StreamEntry(server.sending(kind.gather_ms)) for server in bench.servers_for("stream-cpu")]
    with ExitStack() as stack:
        for entry in entries:
            progress.step(f"stream-cpu: {kind.title}, {entry.server.name} and {crowd:,} listeners start")
            with entry.failing():
                entry.run = stack.enter_context(bench.running(entry.server, HELLO))
                entry.source = stack.enter_context(sending_to(entry.run, kind()))
                entry.crowd = stack.enter_context(listening_to(bench, entry.run))
                with entry.source.playing():
                    entry.crowd.connect_all(crowd)
                _turn(entry)  # the first one is not measured
        for number_of_round in range(1, bench.rounds + 1):
            taking_part = [entry for entry in entries if not entry.failure]
            bench.chance.shuffle(taking_part)
            for entry in [entry for entry in taking_part if not entry.failure]:
                progress.step(f"stream-cpu: {kind.title}, round {number_of_round} of {bench.rounds}, {entry.server.name}")
                for other in taking_part:
                    with other.failing():
                        other.source.send(ALIVE_STEPS)
                with entry.failing():
                    entry.samples.append(_turn(entry))
        for entry in entries:
            if not entry.failure:
                with entry.failing():
                    compare(entry.server.name, entry.crowd.received(), bytes(entry.source.sent), kind.preamble)
    return entries


def _turn(entry: StreamEntry) -> dict:
    """Lets the source send for a while. Returns the figures of that time."""
    run, crowd = entry.run, entry.crowd
    settle(run)
    start = crowd.window()
    before, began = cpu(run.pid), time.monotonic()
    sent = entry.source.play(TURN_SECONDS)
    took = time.monotonic() - began
    settle(run)
    ran, waited = cpu(run.pid).since(before)
    window = crowd.window()
    check(entry.server.name, crowd.count, sent, window)
    return {"cpu_us": ran / 1e3 / (window["bytes"] / MB), "waited": waited / max(ran + waited, 1), "share": ran / 1e9 / took,
            "per_read": window["bytes"] / window["reads"],
            "generator": (window["own_cpu_us"] - start["own_cpu_us"]) / 1e6 / took}


def check(name: str, listeners: int, sent: int, window: dict) -> None:
    """Raises an error if a listener was lost, or received less or more than the others."""
    if window["open"] != listeners:
        raise Trouble(f"{name} closed {listeners - window['open']:,} of {listeners:,} listeners")
    least, most = window["least"], window["most"]
    if least < sent * ARRIVED_MIN:
        raise Trouble(f"{name}: a listener received {least:,} of {sent:,} bytes")
    if most != least:
        raise Trouble(f"{name}: a listener received {least:,} bytes, another {most:,}")


def compare(name: str, received: bytes, sent: bytes, preamble: int) -> None:
    """Raises an error unless the body of a response, without its preamble, is a part of the source's bytes."""
    body = body_of(name, received)
    # The end of the body has its place in the source's bytes.
    tail = body[-COMPARED_BYTES_MIN // 2:]
    end = sent.rfind(tail) + len(tail)
    if tail not in sent or not any(sent[:end].endswith(body[skipped:]) for skipped in {0, preamble}):
        raise Trouble(f"{name}: a listener received other bytes than the source sent")


def body_of(name: str, received: bytes) -> bytes:
    """Returns the body of a response, without an incomplete chunk at its end."""
    head, _, body = received.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = _joined(name, body)
    if len(body) < COMPARED_BYTES_MIN:
        raise Trouble(f"{name}: a listener received only {len(body):,} bytes")
    return body


def _joined(name: str, chunks: bytes) -> bytes:
    """Returns the content of chunks (RFC 9112, section 7.1), up to the last complete one."""
    at, body = 0, bytearray()
    while (line := chunks.find(b"\r\n", at)) >= 0:
        try:
            size = int(chunks[at:line].split(b";")[0], 16)
        except ValueError:
            raise Trouble(f"{name}: invalid chunk size {chunks[at:line][:20]!r}") from None
        begin, end = line + 2, line + 2 + size
        if end + 2 > len(chunks):
            break
        body += chunks[begin:end]
        at = end + 2
    return bytes(body)


def _cpu_row(section: Section, bench: Bench, kind: type[Media], entry: StreamEntry, entries: list[StreamEntry], bars: tuple[Bar, ...]) -> None:
    if entry.failure:
        return failed(section, entry, kind.title, bars)
    ratios = {base: ratio(entry, entries, base, "cpu_us") for base in ("floor", "icecast2")}
    section.rows.append([kind.title, entry.server.name, number(entry.middle("cpu_us")),
                         *map(shown, ratios.values()),
                         number(entry.middle("per_read")), f"{entry.middle('share'):.1%}", f"{entry.middle('waited'):.0%}",
                         f"{entry.middle('generator'):.0%}"])
    for bar in bars:
        if entry.server.barred(bar) and (value := ratios[bar.against]) is not None:
            section.verdicts.append(judge(f"{section.title}, {kind.title}", entry.server.name, bar, value, rounds=bench.rounds))


def memory_seconds(bench: Bench) -> float:
    return sum(12 + (RING_SECONDS if isinstance(server, Encke) else 8) for server in bench.servers_for("stream-memory"))


def memory(bench: Bench, progress: Progress) -> Section:
    section = Section("stream-memory", "live streams: memory of a listener, bytes",
                      f"dirty pages (smaps_rollup) with {CROWD:,} more listeners of the MP3 stream less those with one, ÷ {CROWD:,}, "
                      f"after {RING_SECONDS:.0f} s of the stream, when the ring has its size; median of {DIRTY_SAMPLES}. The first thousand "
                      "consists of a fixed part, such as pools for the sends of a turn, and of its listeners; the second thousand shares "
                      "the fixed part, so the fixed part is the first thousand less the second",
                      ["server", "with one listener, MB", "per listener", "fixed, kB", "per listener of the second thousand"], samples={})
    for server in _streaming(bench, "stream-memory", Mp3):
        progress.step(f"stream-memory: {server.name}")
        try:
            empty, first, second = _memory(bench, server)
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, server.barred(MEMORY_BAR), [server.name])
            continue
        each, more = (first - empty) / CROWD, (second - first) / CROWD
        section.rows.append([server.name, f"{empty / MB:.2f}", f"{each:,.0f}", f"{(each - more) * CROWD / 1e3:,.0f}", f"{more:,.0f}"])
        section.samples[server.name] = [empty, first, second]
        if isinstance(server, Encke):
            section.verdicts.append(judge(section.title, server.name, MEMORY_BAR, round(each)))
    return section


def _memory(bench: Bench, server: Server) -> list[float]:
    """Returns the dirty bytes with one listener, with a crowd more, and with two."""
    found = []
    with bench.running(server, HELLO) as run, sending_to(run, Mp3()) as source, listening_to(bench, run) as crowd, source.playing():
        # The ring has the bytes as listeners receive them only if there is one.
        crowd.connect_all(1)
        time.sleep(RING_SECONDS + 1 if isinstance(server, Encke) else WARM_SECONDS)
        for step in range(3):
            if step:
                crowd.connect_all(CROWD)
                time.sleep(WARM_SECONDS)
            samples = []
            for _ in range(DIRTY_SAMPLES):
                time.sleep(DIRTY_STEP)
                samples.append(dirty_bytes(run.pid))
            found.append(statistics.median(samples))
        if (open_now := crowd.window()["open"]) != crowd.count:
            raise Trouble(f"{server.name} closed {crowd.count - open_now:,} of {crowd.count:,} listeners")
    return found


def storm_seconds(bench: Bench) -> float:
    return len(bench.servers_for("stream-storm")) * (3 + bench.rounds * 0.7)


def storm(bench: Bench, progress: Progress) -> Section:
    section = Section("stream-storm", f"live streams: {STORM_CROWD} listeners connect at once",
                      f"all connects in one loop; times from the first connect until a listener has its first byte of the MP3 stream; "
                      f"{bench.rounds} rounds",
                      ["server", "p50 ms", "all, ms", "all, slowest round", "without a byte", "CPU µs/listener"], samples={})
    for server in _streaming(bench, "stream-storm", Mp3):
        entry = StreamEntry(server)
        with entry.failing():
            _storm(bench, progress, entry)
        if entry.failure:
            section.failed(server.name, entry.failure, server.barred(STORM_BAR), [server.name])
            continue
        section.samples[server.name] = entry.samples
        silent = max(STORM_CROWD - heard for heard in entry.all("heard"))
        slowest = max(entry.all("first_ns")) / 1e6
        section.rows.append([server.name, number(entry.middle("p50_ns") / 1e6), number(entry.middle("first_ns") / 1e6), number(slowest),
                             str(silent), number(entry.middle("cpu_us"))])
        if isinstance(server, Encke):
            value = round(slowest, 1) if not silent else float("inf")
            section.verdicts.append(judge(section.title, server.name, STORM_BAR, value, rounds=bench.rounds))
    return section


def _storm(bench: Bench, progress: Progress, entry: StreamEntry) -> None:
    server = entry.server
    with bench.running(server, HELLO) as run, sending_to(run, Mp3()) as source, listening_to(bench, run) as crowd:
        for number_of_round in range(1, bench.rounds + 1):
            progress.step(f"stream-storm: round {number_of_round} of {bench.rounds}, {server.name}")
            with source.playing():
                before = cpu(run.pid)
                figures = crowd.connect(STORM_CROWD, 0, STORM_SECONDS_MAX)
                ran, _ = cpu(run.pid).since(before)
            entry.samples.append(figures | {"cpu_us": ran / 1e3 / STORM_CROWD})
            crowd.drop()
            settle(run)


def many_seconds(bench: Bench) -> float:
    return len(bench.servers_for("stream-many")) * (8 + _many_seconds(bench))


def _many_seconds(bench: Bench) -> float:
    return MANY_SECONDS_QUICK if bench.quick else MANY_SECONDS


def many(bench: Bench, progress: Progress) -> Section:
    seconds = _many_seconds(bench)
    section = Section("stream-many", f"live streams: {MANY:,} listeners of one stream",
                      f"the MP3 stream, {seconds:.0f} s; longest pause: between two reads of any listener (a piece has 261 ms of sound); "
                      "least: bytes of the slowest listener ÷ bytes of the source; unsent: in the server's socket buffers at the end",
                      ["server", "connected in, s", "longest pause, ms", "least", "unsent, MB", "MB/s", "CPU µs/MB", "share of its core", "waited",
                       "generator"], samples={})
    for server in _streaming(bench, "stream-many", Mp3):
        progress.step(f"stream-many: {server.name}")
        entry = StreamEntry(server)
        with entry.failing():
            entry.samples.append(_many(bench, server, seconds))
        if entry.failure:
            section.failed(server.name, entry.failure, server.barred(MANY_BAR), [server.name])
            continue
        one = entry.samples[0]
        section.samples[server.name] = entry.samples
        section.rows.append([server.name, number(one["connect_ns"] / 1e9), number(one["pause_ms"]), f"{one['least']:.1%}",
                             number(one["unsent"] / MB), number(one["rate"] / MB), number(one["cpu_us"]), f"{one['share']:.0%}",
                             f"{one['waited']:.0%}", f"{one['generator']:.0%}"])
        if isinstance(server, Encke):
            section.verdicts.append(judge(section.title, server.name, MANY_BAR, round(one["pause_ms"])))
    return section


def _many(bench: Bench, server: Server, seconds: float) -> dict:
    with bench.running(server, HELLO) as run, sending_to(run, Mp3()) as source, listening_to(bench, run) as crowd:
        with source.playing():
            connected = crowd.connect_all(MANY)
            time.sleep(2 * WARM_SECONDS)
            start, sent = crowd.window(), len(source.sent)
            before = cpu(run.pid)
            time.sleep(seconds)
            ran, waited = cpu(run.pid).since(before)
            window, sent = crowd.window(), len(source.sent) - sent
            unsent = unsent_bytes(run)
        if window["open"] != MANY:
            raise Trouble(f"{server.name} closed {MANY - window['open']:,} of {MANY:,} listeners")
    took = window["window_ns"] / 1e9
    return {"connect_ns": connected["took_ns"], "pause_ms": window["gap_ns"] / 1e6, "least": window["least"] / sent, "unsent": unsent,
            "rate": window["bytes"] / took, "cpu_us": ran / 1e3 / (window["bytes"] / MB), "share": ran / 1e9 / took,
            "waited": waited / max(ran + waited, 1), "generator": (window["own_cpu_us"] - start["own_cpu_us"]) / 1e6 / took}


def unsent_bytes(run: Running) -> int:
    """Bytes in the send queues of the server's sockets (proc(5), /proc/net/tcp)."""
    local, unsent = f":{run.port:04X}", 0
    with open(f"/proc/{run.pid}/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1].endswith(local) and fields[3] == "01":
                unsent += int(fields[4].split(":")[0], 16)
    return unsent


def split_seconds(bench: Bench) -> float:
    return 40


def split(bench: Bench, progress: Progress) -> Section:
    """The splitters alone: no server, no socket."""
    section = Section("stream-split", "live streams: throughput of the splitters",
                      "crates/encke-wire/examples/media_speed: each file again and again, in pieces of 16 KiB; the shortest of 30 rounds",
                      ["file", "bytes per unit", "GB/s"])
    progress.step("stream-split")
    media = BENCH.parent / "crates/encke-wire/tests/media"
    files = sorted(path for path in media.iterdir() if path.suffix not in (".sh", ".rs") and path.name != UNSTREAMABLE)
    try:
        process = bench.generator("media_speed", [str(bench.programs.media_speed), *map(str, files)], stdout=subprocess.PIPE)
        lines = [line.split() for line in process.output(SPLIT_SECONDS).splitlines()[1:]]
        if not lines:
            raise Trouble("media_speed measured no file")
        section.rows += lines
        section.samples = {name: float(speed) for name, _, speed in lines}
        section.verdicts.append(judge(section.title, "splitters", SPLIT_BAR, min(section.samples.values())))
    except (Trouble, ValueError) as trouble:
        section.failed("splitters", trouble, (SPLIT_BAR,))
    return section


def _streaming(bench: Bench, section: str, kind: type[Media]) -> list[Server]:
    return [server.sending(kind.gather_ms) for server in bench.servers_for(section)]
