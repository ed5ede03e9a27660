"""Attacks on TLS: handshakes that are never finished, and tickets that outlive their rules."""
import contextlib
import shutil
import socket
import ssl

from attackers import AttackRig, attack, drip, wait_for_ends
from rig import LOCALHOST, SMALL_FILE, Connection, Fault, authority, require, reserved_port, self_signed

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


@attack(undefended=None)
def tickets_end_with_the_rules_of_their_issue(rig: AttackRig) -> str:
    """A client without a certificate, and one with a certificate of the first authority, keep their session tickets. A reload
    requires certificates, another one replaces the authority in the same file.

    Neither ticket is served afterwards, in TLS 1.2 and 1.3; a client with a certificate of the present authority is."""
    first, second = rig.path("first"), rig.path("second")
    for folder in (first, second):
        authority(folder, {"localhost": f"{LOCALHOST}\n", "client": "basicConstraints=CA:FALSE\n"})
    trusted = rig.path("trusted.pem")
    # A reload compares addresses as they are written.
    address = f"127.0.0.1:{reserved_port(rig.stack)}"
    files = {"cert": str(first / "localhost.pem"), "key": str(first / "localhost.key")}

    def listen(**clients) -> dict:
        return {"server": {"listen": {"address": address, "tls": {**files, **clients}}}}

    server = rig.server(listen())

    def context(version, certificates=None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(first / "ca.pem"))
        made.minimum_version = made.maximum_version = version
        if certificates:
            made.load_cert_chain(certificates / "client.pem", certificates / "client.key")
        return made

    def served(by: ssl.SSLContext, session=None):
        """Reads a file. Returns the session, or None if the server rejects the client."""
        try:
            with contextlib.closing(by.wrap_socket(Connection(server.port), server_hostname="localhost", session=session)) as client:
                client.sendall(b"GET /small.txt HTTP/1.0\r\nHost: localhost\r\n\r\n")
                response = b"".join(iter(lambda: client.recv(4096), b""))
                return client.session if response.endswith(SMALL_FILE) else None
        except (ssl.SSLError, ConnectionError):
            return None

    versions = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    anonymous = [(by, served(by)) for by in map(context, versions)]
    shutil.copy(first / "ca.pem", trusted)
    require(all(session for _, session in anonymous), "a client without a certificate is served before the reload")
    server.reload(listen(client_ca=str(trusted)))
    require(not any(served(by, session) for by, session in anonymous), "a ticket without a certificate is served")
    known = [(by, served(by)) for by in (context(version, first) for version in versions)]
    require(all(session for _, session in known), "a client with a certificate is served")
    shutil.copy(second / "ca.pem", trusted)
    server.reload({})
    require(not any(served(by, session) for by, session in known), "a ticket of a removed authority is served")
    require(all(served(context(version, second)) for version in versions), "a client of the present authority is served")
    return "4 tickets of 2 versions"
