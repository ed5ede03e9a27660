"""A child process that holds connections: one GET on each, then silence.

Its protocol is lines. `hold N` opens connections until N are open and returns the number of open ones; `alive` returns the
number that the server has not closed. The process ends with its standard input. Clients use several addresses of 127/8,
because one address has only about 28,000 ports per server.
"""

import socket
import sys

SERVER = "127.0.0.1"
CONNECTIONS_PER_ADDRESS = 8_000
TIMEOUT_SECONDS = 10
IP_BIND_ADDRESS_NO_PORT = 24  # connect() chooses the port, when the whole 4-tuple is known (ip(7))


def main() -> None:
    port, path = int(sys.argv[1]), sys.argv[2]
    request = f"GET {path} HTTP/1.1\r\nHost: {SERVER}:{port}\r\n\r\n".encode()
    held: list[socket.socket] = []
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "hold":
            fill(held, int(arguments[0]), port, request)
            print(len(held), flush=True)
        else:
            print(sum(is_open(connection) for connection in held), flush=True)


def fill(held: list[socket.socket], wanted: int, port: int, request: bytes) -> None:
    """Stops at the first connection that fails, and prints the reason to standard error."""
    while len(held) < wanted:
        try:
            held.append(served_once(len(held), port, request))
        except (OSError, ValueError) as error:
            print(f"connection {len(held) + 1}: {error}", file=sys.stderr, flush=True)
            return


def served_once(index: int, port: int, request: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    connection.bind((f"127.0.0.{2 + index // CONNECTIONS_PER_ADDRESS}", 0))
    connection.settimeout(TIMEOUT_SECONDS)
    connection.connect((SERVER, port))
    connection.sendall(request)
    read_answer(connection)
    connection.setblocking(False)
    return connection


def read_answer(connection: socket.socket) -> None:
    """Reads one response with a Content-Length to its last byte."""
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        received += some(connection)
    head = received[:end].lower()
    if not head.startswith(b"http/1.1 200"):
        raise ValueError(f"unexpected response {head[:40]!r}")
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    missing = length - (len(received) - end - 4)
    while missing > 0:
        missing -= len(some(connection))


def some(connection: socket.socket) -> bytes:
    received = connection.recv(65536)
    if not received:
        raise ValueError("closed within the response")
    return received


def is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


if __name__ == "__main__":
    main()
