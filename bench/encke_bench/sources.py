"""Sources of live streams: generated sound and pictures, sent in real time.

    Mp3, TransportStream ──► step(n): the bytes of frame n ──► LiveSource: one write per frame, when it is due

The frames are valid for a splitter and unlike each other, so that a lost or repeated frame is detected; no decoder is needed.
"""

import base64
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .machine import Trouble
from .servers import PUBLISHER_TOKEN, STREAM_PATH, Running

TIMEOUT_SECONDS = 10
POOL = 1 << 16


class Mp3:
    """MPEG-1 layer III, 128 kbit/s, 44.1 kHz: frames of 417 or 418 bytes."""

    title = "128 kbit/s MP3"
    content_type = "audio/mpeg"
    seconds_a_step = 1152 / 44_100
    gather_ms = 250  # what Encke uses for sound
    preamble = 0

    def __init__(self):
        self._pool = _pool(0, 0xFE)

    def step(self, number: int) -> bytes:
        exact = 144 * 128_000
        size = exact * (number + 1) // 44_100 - exact * number // 44_100
        header = bytes((0xFF, 0xFB, 0x92 if size == 418 else 0x90, 0))
        return header + _filler(self._pool, number, size - 4)


class TransportStream:
    """MPEG-TS with one video of 25 frames per second, 1 Mbit/s, a key frame every two seconds."""

    title = "1 Mbit/s MPEG-TS"
    content_type = "video/mp2t"
    seconds_a_step = 1 / 25
    gather_ms = 100  # what Encke uses for video
    preamble = 2 * 188  # PAT and PMT

    PACKETS_A_FRAME = 26
    STEPS_A_KEY = 50
    STEPS_A_TABLE = 3
    PMT_PID, VIDEO_PID = 0x1000, 0x100

    def __init__(self):
        self._pool = _pool(1, 0xFF)
        self._tables = {0: _section(0, 1, struct.pack(">HH", 1, 0xE000 | self.PMT_PID)),
                        self.PMT_PID: _section(2, 1, struct.pack(">HHBHH", 0xE000 | self.VIDEO_PID, 0xF000, 0x1B,
                                                                 0xE000 | self.VIDEO_PID, 0xF000))}

    def step(self, number: int) -> bytes:
        is_key = number % self.STEPS_A_KEY == 0
        packets = []
        if is_key or number % self.STEPS_A_TABLE == 0:
            for pid, section in self._tables.items():
                header = struct.pack(">BHB", 0x47, 0x4000 | pid, 0x10 | number & 15)
                packets.append((header + b"\0" + section).ljust(188, b"\xff"))
        clock = 90_000 + number * 3_600
        adaptation = struct.pack(">BBIH", 7, 0x50 if is_key else 0x10, clock >> 1 & 0xFFFFFFFF, (clock & 1) << 15 | 0x7E00)
        stamp = bytes((0x21 | clock >> 29 & 0x0E, clock >> 22 & 0xFF, clock >> 14 & 0xFF | 1, clock >> 7 & 0xFF, clock << 1 & 0xFF | 1))
        units = b"\0\0\0\1\x09\xf0"
        if is_key:
            units += b"\0\0\0\1\x67\x42\xc0\x1e\xd9\x01\x41\xfb" + b"\0\0\0\1\x68\xce\x3c\x80"
        frame = b"\0\0\1\xe0\0\0\x80\x80\5" + stamp + units + b"\0\0\0\1" + (b"\x65" if is_key else b"\x41")
        frame += _filler(self._pool, number, 176 + 184 * (self.PACKETS_A_FRAME - 1) - len(frame))
        first = number * self.PACKETS_A_FRAME
        packets.append(struct.pack(">BHB", 0x47, 0x4000 | self.VIDEO_PID, 0x30 | first & 15) + adaptation + frame[:176])
        for index in range(1, self.PACKETS_A_FRAME):
            at = 176 + 184 * (index - 1)
            packets.append(struct.pack(">BHB", 0x47, self.VIDEO_PID, 0x10 | first + index & 15) + frame[at:at + 184])
        return b"".join(packets)


Media = Mp3 | TransportStream


def _pool(lowest: int, highest: int) -> bytes:
    """Bytes between two values, equal in every run, so that no filler contains the begin of a frame."""
    chance = random.Random(highest)
    lowest = max(lowest, 1)
    return bytes(chance.randint(lowest, highest) for _ in range(POOL))


def _filler(pool: bytes, number: int, size: int) -> bytes:
    # The number in digits makes every frame unlike all others.
    mark = b"%012d" % number
    begin = number * 7_919 % (POOL - size)
    return mark + pool[begin:begin + size - len(mark)]


def _section(table_id: int, number: int, body: bytes) -> bytes:
    """A section of MPEG-TS (ISO/IEC 13818-1, 2.4.4) with its check sum."""
    section = struct.pack(">BHHBBB", table_id, 0xB000 | len(body) + 9, number, 0xC1, 0, 0) + body
    crc = 0xFFFFFFFF
    for byte in section:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return section + struct.pack(">I", crc)


class LiveSource:
    """The source of a running server's stream. It pauses except in `play` and `playing`."""

    def __init__(self, run: Running, media: Media):
        self._run, self.media = run, media
        self.sent = bytearray()
        self._step = 0
        self._chunked = run.server.dialect == "encke"
        self._socket = socket.create_connection(("127.0.0.1", run.port), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [f"Content-Type: {media.content_type}", f"Host: 127.0.0.1:{run.port}"]
        if self._chunked:
            lines = [f"PUT {STREAM_PATH} HTTP/1.1", f"Authorization: Bearer {PUBLISHER_TOKEN}", "Transfer-Encoding: chunked", *lines]
        else:
            login = base64.b64encode(f"source:{PUBLISHER_TOKEN}".encode()).decode()
            lines = [f"SOURCE {STREAM_PATH} HTTP/1.0", f"Authorization: Basic {login}", *lines]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        if not self._chunked:
            answer = self._socket.recv(4096)
            if b" 200 " not in answer.split(b"\r\n")[0] + b" ":
                raise Trouble(f"{run.server.name}: the source was refused: {answer[:80]!r}")

    def play(self, seconds: float) -> int:
        """Sends for a time; returns the number of bytes."""
        before, began = len(self.sent), time.monotonic()
        for index in range(round(seconds / self.media.seconds_a_step)):
            wait = began + index * self.media.seconds_a_step - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            self.send()
        return len(self.sent) - before

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Sends until the end of the context."""
        ended, failure = threading.Event(), []

        def run() -> None:
            due = time.monotonic()
            try:
                while not ended.wait(max(0.0, due - time.monotonic())):
                    self.send()
                    due += self.media.seconds_a_step
            except (OSError, Trouble) as error:
                failure.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(TIMEOUT_SECONDS)
        if failure:
            raise Trouble(f"{self._run.server.name}: the source failed: {failure[0]}")

    def send(self, steps: int = 1) -> None:
        """Sends frames at once."""
        bytes_ = b"".join(self.media.step(self._step + index) for index in range(steps))
        self._step += steps
        if self._chunked and select.select([self._socket], [], [], 0)[0]:
            raise Trouble(f"{self._run.server.name} ended the source: {self._socket.recv(400)!r}")
        self._socket.sendall(b"%x\r\n%b\r\n" % (len(bytes_), bytes_) if self._chunked else bytes_)
        self.sent += bytes_

    def close(self) -> None:
        self._socket.close()
