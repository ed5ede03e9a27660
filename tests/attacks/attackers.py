"""What attacks share: the servers that they attack, and waiting for the end of their connections.

    @attack ─► case ─► AttackRig ─┬─ server    an `encke serve`, or a StandIn that has no defence
                                  └─ Fault     the attack succeeded, or a victim was not served

An attack never judges by tight times: every wait ends with its event, and PATIENCE only bounds a wait in vain.
"""
import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator

from rig import SMALL_FILE, Innocent, Response, Rig, Server, case, ended, require, until

STAND_IN = "stand-in"


def attack(*, long: bool = False, undefended: dict | str | None = None):
    """Registers a function as an attack. Its docstring states the attack, the bound, and the service that must remain.
    `undefended` removes the defence for `--self-check`: settings for the server, STAND_IN, or None where neither is possible."""
    return case(long=long, undefended=undefended)


class AttackRig(Rig):
    def server(self, settings: dict | None = None, **options) -> Server:
        return self.started(StandIn(self) if self.stand_in else Server(self, settings, **options))

    @property
    def stand_in(self) -> bool:
        return self.undefended == STAND_IN


class StandIn(Server):
    """A server without any defence, for `--self-check`: it responds to the first request, then reads forever."""

    def start(self) -> None:
        self.listener = UndefendedListener(("127.0.0.1", 0), Undefended)
        self.port = self.listener.server_address[1]
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()

    def stop(self) -> None:
        # The rig has closed all clients, which ends their threads.
        self.listener.shutdown()
        self.listener.server_close()

    def alive(self) -> None:
        pass

    def anonymous_bytes(self) -> int:
        return 0

    def innocent(self, **options) -> Innocent:
        return super().innocent(**{**options, "push": False})


class UndefendedListener(socketserver.ThreadingTCPServer):
    daemon_threads, request_queue_size = True, 4096


class Undefended(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := self.request.recv(1 << 20):
                if piece.startswith(b"GET /small.txt"):
                    self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(SMALL_FILE), SMALL_FILE))
                elif piece.startswith(b"PRI "):
                    self.request.sendall(bytes.fromhex("000000040000000000" "000000040100000000"))


def expect(response: Response, status: int, body: bytes | None, name: str) -> None:
    require(response.status == status and body in (None, response.body), f"{name}: got {response}")


def has_hung_up(client: socket.socket) -> bool:
    """Whether the connection was reset; reads nothing."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))


def wait_for_ends(rig: Rig, clients: list, complaint: str, tick: Callable[[list], None] = lambda _: None, test=ended,
                  pause: float = 0.1) -> None:
    """Waits until the server has ended all of these connections; `tick` continues the attack on the others."""
    open_ = list(clients)

    def all_ended() -> bool:
        open_[:] = [client for client in open_ if not test(client)]
        if open_:
            tick(open_)
        return not open_

    until(all_ended, lambda: f"{complaint}: {len(open_)} of {len(clients)} connections are still open", rig.patience, pause)


def drip(clients: list[socket.socket], bytes_: bytes) -> None:
    for client in clients:
        with contextlib.suppress(OSError):
            client.send(bytes_)


def addresses(count: int) -> Iterator[str]:
    """Returns `count` loopback addresses, without the innocent client's."""
    return (f"127.1.{number >> 8}.{(number & 255) or 1}" for number in range(1, count + 1))
