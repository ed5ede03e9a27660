"""The innocent client, which must be served while others attack or load a server."""
import contextlib
import threading
import time

from .net import Client, Connection, Response
from .waiting import PATIENCE, Fault, require, until

TOKEN = "innocent-0123456789"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SMALL_FILE = b"small\n"
ADDRESS = "127.0.0.9"
PAUSE = 0.1


class Innocent(threading.Thread):
    """A well-behaved client. During the attack it reads a file, publishes a message and receives it, repeatedly.

    `with server.innocent() as innocent:` encloses the attack. At the end a whole further round must succeed.
    """

    def __init__(self, server, *, push: bool = False, fresh: bool = False):
        super().__init__(daemon=True)
        self.server, self.push, self.fresh = server, push, fresh
        self.rounds, self.slowest, self.begun, self.failure, self.ending = 0, 0.0, 0, None, False
        self.pause = threading.Event()

    def __enter__(self) -> "Innocent":
        self.start()
        self._wait_for_round("before")
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                self._wait_for_round("after")
        finally:
            self.ending = True
            self.pause.set()
            self.join(PATIENCE)

    def __str__(self) -> str:
        return f"innocent: {self.rounds} rounds, slowest {self.slowest:.2f} s"

    def served(self) -> None:
        """Waits for a complete round that begins after this call."""
        self._wait_for_round("during")

    def run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                self._repeat_rounds(stack)
        except Exception as error:  # raised by _wait_for_round
            if not self.ending:
                self.failure = error

    def _repeat_rounds(self, stack: contextlib.ExitStack) -> None:
        client = stack.enter_context(contextlib.closing(Client(self.server, ADDRESS, patience=PATIENCE)))
        stream = None
        if self.push:
            stream = stack.enter_context(contextlib.closing(Connection(self.server.port, ADDRESS)))
            stream.request("/push/innocent?since=now", fields=f"Accept: text/event-stream\r\nAuthorization: Bearer {TOKEN}\r\n",
                           version="1.0")
            require(b" 200 " in (head := stream.head()), f"its event stream got {head!r}")
        while not self.ending:
            self.begun += 1
            began = time.monotonic()
            response = self._read_file(client)
            require((response.status, response.body) == (200, SMALL_FILE), f"its file: got {response}")
            if stream:
                channels = f"innocent,fresh/{self.begun}" if self.fresh else "innocent"
                message = f"innocent {self.begun}"
                response = client.ask(f"/push/{channels}", "POST", message, BEARER)
                require(response.status == 201, f"its publish: got {response}")
                stream.until(f"data: {message}\n".encode())
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.rounds += 1
            self.pause.wait(PAUSE)

    @staticmethod
    def _read_file(client: Client) -> Response:
        try:
            return client.exchange("/small.txt")
        except ConnectionError:  # a server may end an idle connection, also while a request arrives: every client connects again
            client.close()
            return client.ask("/small.txt")

    def _wait_for_round(self, when: str) -> None:
        # The round that is open now may have begun before the attack.
        target = self.begun + 1

        def is_served() -> bool:
            if self.failure and self.rounds < target:
                raise Fault(f"the innocent client was not served {when} the attack: {self.failure!r}")
            return self.rounds >= target

        until(is_served, f"the innocent client was not served {when} the attack")
