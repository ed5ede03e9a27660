"""Live streams: the delay that a server adds.

    source ── frame n, written at t₀ ──► server ──► a listener among a crowd: the read with the last byte of frame n, at t₁
                                                    added delay of frame n = t₁ − t₀

A server sends the bytes of its gather time at once, so the first frame of a piece waits for that long. All further delay is
the server's. Both times are of the monotonic clock of this machine. The bytes of the listener are found in the bytes of the source,
so a frame that is lost or changed is an error, not a small delay.
"""

import math
import statistics
import time
from bisect import bisect_left

from .figures import Bar, Section, judge, number
from .machine import Trouble
from .report import Progress
from .servers import HELLO, Bench, Encke, Server
from .sources import Media, Mp3, TransportStream
from .stream import ARRIVED_MIN, CROWD, CROWD_QUICK, WARM_SECONDS, body_of, compare, listening_to, place_of, sending_to

SECONDS = 20.0
KINDS = (Mp3, TransportStream)
BEYOND_GATHER_MS = 15
MS = 1e6


def bar(kind: type[Media]) -> Bar:
    limit = kind.gather_ms + BEYOND_GATHER_MS
    return Bar(limit, f"ms added at p99, gather {kind.gather_ms} ms")


def seconds_of(bench: Bench) -> float:
    return len(KINDS) * len(bench.servers_for("stream-delay")) * (6 + SECONDS)


def measure(bench: Bench, progress: Progress) -> Section:
    crowd = CROWD_QUICK if bench.quick else CROWD
    section = Section("stream-delay", "live streams: delay that a server adds",
                      f"{SECONDS:.0f} s of the stream in real time, a frame per write; the time from the write of a frame until one of "
                      f"{crowd:,} listeners has read its last byte",
                      ["stream", "server", "p50 ms", "p99 ms", "longest, ms", "frames"], samples={})
    for kind in KINDS:
        for server in bench.servers_for("stream-delay"):
            progress.step(f"stream-delay: {kind.title}, {server.name}")
            try:
                delays = _delays(bench, server.sending(kind.gather_ms), kind, crowd)
            except (Trouble, OSError) as trouble:
                section.failed(server.name, trouble, (bar(kind),) if isinstance(server, Encke) else ())
                section.failed_row([kind.title, server.name])
                continue
            p99 = quantile(delays, 0.99)
            section.rows.append([kind.title, server.name, *(number(of / MS) for of in (statistics.median(delays), p99, max(delays))),
                                 str(len(delays))])
            section.samples[f"{kind.title}, {server.name}"] = [round(delay / MS, 3) for delay in delays]
            if isinstance(server, Encke):
                section.verdicts.append(judge(f"{section.title}, {kind.title}", server.name, bar(kind), round(p99 / MS, 1)))
    return section


def _delays(bench: Bench, server: Server, kind: type[Media], crowd: int) -> list[int]:
    """Returns the added delay of each frame, in ns."""
    with bench.running(server, HELLO) as run, sending_to(run, kind()) as source, listening_to(bench, run) as clients:
        with source.playing():
            clients.connect_all(crowd)
            time.sleep(WARM_SECONDS)
        begin = len(source.sent)
        source.play(SECONDS)
        measured = len(source.sent) - begin
        # The last piece is complete only after further frames.
        source.play(WARM_SECONDS)
        window = clients.window()
        if window["open"] != crowd:
            raise Trouble(f"{server.name} closed {crowd - window['open']:,} of {crowd:,} listeners")
        received, reads = clients.received(), clients.reads()
    sent = bytes(source.sent)
    compare(server.name, received, sent, kind.preamble)
    delays = frame_delays(server.name, received, reads, sent, source.marks, (begin, begin + measured))
    expected = sum(begin < end <= begin + measured for _, end in source.marks)
    if len(delays) < expected * ARRIVED_MIN:
        raise Trouble(f"{server.name}: {len(delays):,} of {expected:,} frames arrived")
    return delays


def frame_delays(name: str, received: bytes, reads: list[tuple[int, int]], sent: bytes, marks: list[tuple[int, int]],
                 within: tuple[int, int]) -> list[int]:
    """Returns the delay of each frame that ends within a range of the source's bytes.

    `reads` has the time and the size of each read of the listener, `marks` the time of each frame's write and its end in `sent`.
    """
    body, ends = body_of(name, received)
    at = place_of(name, body, sent)
    totals, total = [], 0
    for _, size in reads:
        total += size
        totals.append(total)
    delays = []
    for written_ns, end in marks:
        place = end - at
        if not within[0] < end <= within[1] or not 0 < place <= len(body):
            continue
        # The read that has the last byte of the frame.
        read = bisect_left(totals, ends(place))
        if read < len(reads):
            delays.append(reads[read][0] - written_ns)
    return delays


def quantile(values: list[int], share: float) -> int:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
