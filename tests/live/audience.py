"""Many listeners, and slow ones. Their stream has numbered frames."""
import selectors
import socket
import time

from rig import KIB, MIB, Fault, MemoryWatch, case, mib, require
from stations import LiveRig

KEY_EVERY = 10
# Bytes of a frame besides its number.
FRAME_BYTES = 16 * KIB
LISTENERS = 500


def tag(kind: int, content: bytes) -> bytes:
    """A tag of FLV (Adobe FLV 10.1, annex E)."""
    return bytes([kind]) + len(content).to_bytes(3, "big") + bytes(7) + content + (11 + len(content)).to_bytes(4, "big")


HEAD = b"FLV\1\1\0\0\0\t\0\0\0\0" + tag(9, b"\x17\0\0\0\0\1\x42\0\x1e\xff\xe1\0\0\1\0\0")


def frame(number: int, bytes_: int = FRAME_BYTES) -> bytes:
    kind = b"\x17" if number % KEY_EVERY == 0 else b"\x27"
    return tag(9, kind + b"\1\0\0\0" + number.to_bytes(8, "big") + number.to_bytes(8, "big") * (bytes_ // 8))


def frames_of(body: bytes) -> list[int]:
    """The numbers of the frames of a body. Raises a fault if a frame is torn, or if frames after a gap do not begin with a key frame."""
    require(body.startswith(HEAD), f"no head: {body[:40]!r}")
    at, numbers = len(HEAD), []
    while at < len(body):
        number = int.from_bytes(body[at + 16:at + 24], "big")
        size = 15 + int.from_bytes(body[at + 1:at + 4], "big")
        require(body[at:at + size] == frame(number, size - 28), f"frame {number} after {numbers[-3:]} is torn")
        follows = bool(numbers) and number == numbers[-1] + 1
        require(follows or number % KEY_EVERY == 0 and number > (numbers or [-1])[-1], f"frame {number} follows {numbers[-3:]}")
        numbers.append(number)
        at += size
    return numbers


@case()
def a_slow_listener_skips_to_key_frames_and_costs_others_nothing(lab: LiveRig) -> str:
    """One listener reads half of what another has read, of a stream that is many times larger than its ring. The slow one receives
    whole frames, and after each gap a key frame; the other one receives all. The memory of the server stays near its ring. Planted:
    the slow one does not skip, because it reads all."""
    station = lab.station(channel={"ring": "1MiB", "time": "60s"})
    source = station.source("film").begin(HEAD + frame(0))
    # A small buffer: a listener of which the kernel holds nothing.
    slow, fast = station.listener("film", receive_bytes=8 * KIB), station.listener("film")
    sent = lab.of(16, 32, 256) * MIB // FRAME_BYTES
    with MemoryWatch(station) as memory:
        for number in range(1, sent):
            source.send(frame(number))
            while len(fast.body) < len(HEAD) + (number - 2) * (FRAME_BYTES + 28):
                fast.more()
            while len(slow.body) + len(slow.socket.received) < len(fast.body) // (1 if lab.planted else 2) and not slow.ended:
                slow.more(8 * KIB)
        station.until_sent()
        require(source.end().status == 200, "the source does not end well")
        slow_numbers, fast_numbers = frames_of(slow.to_end()), frames_of(fast.to_end())
    require(fast_numbers == list(range(sent)), f"the fast listener has {len(fast_numbers)} of {sent} frames")
    skipped = sent - len(slow_numbers)
    require(skipped > 0, f"the slow listener skips nothing of {sent} frames")
    require(slow_numbers[-1] == sent - 1, f"the slow listener ends with frame {slow_numbers[-1]} of {sent}")
    require(memory.growth < 12 * MIB, f"the memory grows by {mib(memory.growth)}")
    return f"{skipped} of {sent} frames skipped, memory + {mib(memory.growth)}"


@case()
def each_of_many_listeners_that_connect_at_once_receives_a_picture(lab: LiveRig) -> str:
    """500 listeners connect at once, while a source sends. Each receives the head and a key frame; the server's memory does not follow
    their number times the picture. Planted: the source
    sends no whole frame."""
    station = lab.station()
    source = station.source("film")
    source.send(HEAD + b"".join(frame(number) for number in range(1 if lab.planted else KEY_EVERY + 1)))
    station.until_sent()
    want, began = len(HEAD) + FRAME_BYTES, time.monotonic()
    with MemoryWatch(station) as memory, selectors.DefaultSelector() as selector:
        received: dict[socket.socket, bytearray] = {}
        for _ in range(LISTENERS):
            client = lab.keep(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", station.port))
            received[client] = bytearray()
            selector.register(client, selectors.EVENT_WRITE)
        number, waiting, deadline = KEY_EVERY, len(received), began + lab.patience
        while waiting and time.monotonic() < deadline:
            for key, events in selector.select(0.05):
                client = key.fileobj
                if events & selectors.EVENT_WRITE:
                    client.sendall(b"GET /live/film HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    selector.modify(client, selectors.EVENT_READ)
                    continue
                piece = client.recv(1 << 16)
                received[client] += piece
                head, _, body = received[client].partition(b"\r\n\r\n")
                if head and not head.startswith(b"HTTP/1.1 200"):
                    raise Fault(f"a listener got {bytes(head[:100])!r}")
                if not piece or len(body) >= want:
                    require(len(body) >= want, f"a listener was cut after {len(body)} bytes")
                    require(body.startswith(HEAD) and body[len(HEAD) + 11] == 0x17, "a listener does not begin with a picture")
                    selector.unregister(client)
                    waiting -= 1
            if number < 5 * KEY_EVERY and not lab.planted:
                number += 1
                source.send(frame(number))
        took = time.monotonic() - began
    require(not waiting, f"{waiting} of {LISTENERS} listeners have no picture after {took:.1f} s")
    require(memory.growth < LISTENERS * 8 * KIB + 8 * MIB, f"the memory grows by {mib(memory.growth)}")
    return f"{LISTENERS} in {took:.2f} s, memory + {mib(memory.growth)}"
