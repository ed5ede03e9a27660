"""Attacks on TLS: handshakes that are never finished."""
import contextlib
import socket
import ssl

from attackers import AttackRig, attack, drip, wait_for_ends
from rig import LOCALHOST, SMALL_FILE, Connection, Fault, self_signed

# A record of type handshake, 512 bytes long, and the first bytes of a ClientHello in it.
PARTIAL_HELLO = bytes.fromhex("1603010200" "010001fc0303") + bytes(9)


def tls_server(rig: AttackRig, limits: dict):
    """A server with a self-signed certificate."""
    files = self_signed(rig.folder, "localhost", LOCALHOST)
    listen = {"address": "127.0.0.1:0", "tls": files}
    return rig.server({"server": {"listen": listen}, "limits": limits}), files["cert"]


def innocent_handshake(server, certificate, source: str) -> str:
    """Reads a file by TLS on a new connection; returns the negotiated version."""
    context = ssl.create_default_context(cafile=certificate)
    try:
        with contextlib.closing(context.wrap_socket(Connection(server.port, source), server_hostname="localhost")) as client:
            client.sendall(b"GET /small.txt HTTP/1.0\r\nHost: localhost\r\n\r\n")
            response = b"".join(iter(lambda: client.recv(4096), b""))
            if not response.endswith(SMALL_FILE):
                raise Fault(f"a file by TLS: {response[:200]!r}")
            return client.version()
    except (OSError, ssl.SSLError) as error:
        raise Fault(f"an innocent handshake failed: {error!r}") from None


def partial_hellos(server, count: int) -> list[socket.socket]:
    clients = []
    for _ in range(count):
        with contextlib.suppress(ConnectionError):  # ended before connect() returned
            clients.append(server.connect("127.1.0.1"))
    drip(clients, PARTIAL_HELLO)
    return clients


@attack()
def partial_hellos_do_not_block_tls(rig: AttackRig) -> str:
    """2,500 connections send the first 20 bytes of a ClientHello, and reconnect when they are closed: more than the
    1,024 `handshakes` of each of two workers.

    Twenty handshakes of another client must succeed, each with a file."""
    server, certificate = tls_server(rig, {"handshake_time": "1m"})
    assert server.settings["limits"]["handshake_time"], "this attack needs a handshake_time"
    partial_hellos(server, 2_500)
    versions = set()
    for _ in range(20):
        partial_hellos(server, 10)
        versions.add(innocent_handshake(server, certificate, "127.0.0.9"))
    server.alive()
    return f"20 of 20 handshakes by {', '.join(sorted(versions))} among 2,700 partial ones"


@attack(undefended={"limits": {"handshake_time": "1h", "head_time": "1h"}})
def unfinished_handshakes_end_by_handshake_time(rig: AttackRig) -> str:
    """200 connections send a ClientHello byte by byte: each ends after `handshake_time`.

    A handshake of another client must succeed, with a file."""
    server, certificate = tls_server(rig, {"handshake_time": "2s"})
    clients = partial_hellos(server, 200)
    innocent_handshake(server, certificate, "127.0.0.9")
    wait_for_ends(rig, clients, "unfinished handshakes", lambda rest: drip(rest, b"\0"))
    innocent_handshake(server, certificate, "127.0.0.9")
    return "200 of 200 ended"
