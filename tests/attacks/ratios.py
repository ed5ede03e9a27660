"""The memory that each byte of an attacker holds, in every protocol. docs/security.md has the figures."""
import ssl
import struct
from collections.abc import Callable
from typing import NamedTuple

from attackers import AttackRig, attack
from gateway import Flooding
from http2 import END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, SETTINGS, STREAMS, frame, literal
from rig import BEARER, KIB, LOCALHOST, MIB, PATIENCE, UPGRADE, Connection, require, self_signed
from tls import PARTIAL_HELLO

# Bytes of memory for each byte that the attacker sends. The packets that open and close a connection are bytes, too.
RATIO_MAX = 150
PACKETS_BYTES = 112
NARROW = 4 * KIB


class Hoard(NamedTuple):
    """A way to hold memory: what each connection sends, and the metric that has counted it then."""

    sent: bytes
    counted: str
    count: int = 1
    # "http/1.1" or "h2": within TLS, after a handshake.
    protocol: str | None = None
    # A part of a ClientHello.
    partial: bool = False
    crowds: tuple[int, int] = (50, 250)
    # Whether an application sends much. A worker of io_uring holds up to 16 MiB that arrive from applications before a pause, which
    # the first crowd fills.
    floods: bool = False


def h2(path: str, count: int) -> bytes:
    """Requests of `count` streams with a window of 0. Only the first has its fields as text (RFC 7541 §6)."""
    indexed = literal(b":path", path.encode()).replace(b"\0", b"\x40", 1) + literal(b":authority", b"a").replace(b"\0", b"\x40", 1)
    first = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82\x86" + indexed)
    others = (frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, b"\x82\x86\xbe\xbf") for number in range(1, count))
    return PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)) + first + b"".join(others)


def get(path: str, fields: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode()


ACCEPTED, REQUESTS, STREAMS_OPENED = "encke_accepts_total", "encke_http_requests_total", "encke_h2_streams_total"
POST = f"POST /push/hoard HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\nAuthorization: {BEARER['Authorization']}\r\n\r\n".encode()
HOARDS = {
    "a part of a head": Hoard(b"GET / HTTP/1.1\r\nHost: a\r\nX: ", ACCEPTED),
    "requests behind a response that is not read": Hoard(get("/large.bin") + get("/small.txt") * 60, REQUESTS),
    "a response that is not read": Hoard(get("/large.bin"), REQUESTS),
    "a part of a publish": Hoard(POST + b"x" * 100, "encke_exchanges_open"),
    "an event stream": Hoard(get("/push/hoard", "Accept: text/event-stream\r\n"), REQUESTS),
    "a WebSocket with a part of a message": Hoard(get("/push/hoard", UPGRADE) + b"\x81\xfe\x80\x00mask" + b"x" * 20, REQUESTS),
    "a response of an application": Hoard(get("/app/large.bin"), REQUESTS, floods=True),
    "a WebSocket to an application": Hoard(get("/flood/", UPGRADE), REQUESTS, floods=True),
    "a part of a body for an application": Hoard(b"POST /app/small.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n" + b"x" * 100,
                                                 "encke_exchanges_open"),
    "a part of a ClientHello": Hoard(PARTIAL_HELLO, ACCEPTED, partial=True),
    "an idle connection of TLS": Hoard(get("/small.txt"), REQUESTS, protocol="http/1.1"),
    "HTTP/2, files": Hoard(h2("/large.bin", STREAMS), STREAMS_OPENED, STREAMS, crowds=(10, 30)),
    "HTTP/2, event streams": Hoard(h2("/push/hoard", STREAMS), STREAMS_OPENED, STREAMS, crowds=(10, 30)),
}
# Responses of applications over HTTP/2 are bounded by `limits.unsent`: see gateway.py.


def hoarded(rig: AttackRig, name: str, hoard: Hoard) -> float:
    """Bytes of memory for each byte sent: the difference of two crowds, so that what a server holds without them does not count."""
    tls = bool(hoard.protocol or hoard.partial)
    application = rig.server()
    application.file("large.bin", 8 * MIB)
    flooding = Flooding()
    rig.stack.callback(flooding.close)
    routes = [{"pattern": "/app/**", "strip": "/app", "upstream": f"http://127.0.0.1:{application.port}"},
              {"pattern": "/flood/**", "upstream": flooding.url}]
    listen = {"address": "127.0.0.1:0", "tls": self_signed(rig.folder, "localhost", LOCALHOST)} if tls else "127.0.0.1:0"
    server = rig.server({"server": {"listen": listen, "workers": 1},
                         "push": {"admission": "off"},
                         "limits": {name: "1h" for name in ("head_time", "handshake_time", "idle_time", "dead_after")}
                         | {"write_rate": "1B/s", "body_rate": "1B/s"},
                         "site": [{"root": str(application.root), "route": routes}]})
    held, sent, open_ = [], [], 0
    for crowd in (500, 700) if hoard.floods and rig.backend == "uring" else hoard.crowds:
        for _ in range(crowd - open_):
            connect(rig, server, hoard)
        open_ = crowd
        rig.until(lambda crowd=crowd: server.value(hoard.counted) >= crowd * hoard.count, f"{name}: the server has counted {crowd}")
        held.append(at_rest(rig, server))
        sent.append(crowd * (len(hoard.sent) + PACKETS_BYTES))
    return (held[1] - held[0]) / (sent[1] - sent[0])


def connect(rig: AttackRig, server, hoard: Hoard) -> None:
    client = rig.connect(server.port, receive_bytes=NARROW)
    if hoard.protocol:
        context = ssl._create_unverified_context()
        context.set_alpn_protocols([hoard.protocol])
        client = rig.keep(context.wrap_socket(client, server_hostname="localhost"))
    client.sendall(hoard.sent)


def at_rest(rig: AttackRig, server) -> int:
    """Memory that does not change any more."""
    samples: list[int] = []

    def is_stable() -> bool:
        samples.append(server.anonymous_bytes())
        return len(samples) > 5 and len(set(samples[-5:])) == 1

    rig.until(is_stable, "the memory stops to change")
    return samples[-1]


@attack(long=True)
def a_byte_of_an_attacker_holds_few_bytes(rig: AttackRig) -> str:
    """Connections send as little as makes the server hold something, in each protocol, and then nothing more.

    For each byte sent, packets of the connection included, the server holds at most 150 bytes."""
    found = {name: hoarded(rig, name, hoard) for name, hoard in HOARDS.items()}
    for name, ratio in found.items():
        require(ratio <= RATIO_MAX, f"{name}: {ratio:.0f} bytes for each byte sent, more than {RATIO_MAX}")
    return "; ".join(f"{name} {ratio:.1f}" for name, ratio in found.items())
