"""Thousands of idle tunnels, and reloads that do not concern them."""
import resource
import socket

from applications import Gateway, Lab
from rig import BINARY, UPGRADE, Connection, case, masked_frame, require

# A tunnel takes two descriptors of its Encke, one of the application, one of this process. With a limit of 20,000 a second Encke is
# needed for the second half of 10,000.
GATEWAYS = 2
RELOADS = 3


def opened(server: Gateway, number: int) -> Connection:
    """A WebSocket; a hundred addresses share the ports."""
    client = server.connect(f"127.2.0.{number % 100 + 1}")
    client.request("/ws", fields=UPGRADE)
    require(b" 101 " in (head := client.head()), f"tunnel {number}: {head!r}")
    return client


@case(basic=("echo",))
def idle_tunnels_survive_reloads(lab: Lab, app: str) -> str:
    """Thousands of WebSockets are idle while reloads add and remove other routes and upstreams. Each of them echoes afterwards.
    Planted: one of them has ended."""
    count = lab.of(1_000, 10_000, 10_000)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    application = lab.application(app)
    route, other = {"pattern": "/ws", "upstream": application}, {"pattern": "/other/**", "upstream": "other"}
    upstream = {"name": "other", "to": [application]}
    servers = [lab.gateway([route]) for _ in range(GATEWAYS)]
    clients = [opened(servers[number % GATEWAYS], number) for number in range(count)]
    for turn in range(RELOADS):
        for server in servers:
            server.reload_routes([route, other] if turn % 2 == 0 else [route], [upstream] if turn % 2 == 0 else [])
            require(server.ask("/other/").status == (200 if turn % 2 == 0 else 404), f"the other route after reload {turn}")
    if lab.planted:
        clients[count // 2].shutdown(socket.SHUT_RDWR)
    payloads = [b"%d" % number for number in range(count)]
    lost = []
    for client, payload in zip(clients, payloads, strict=True):
        frame = masked_frame(payload, BINARY)
        try:
            client.sendall(frame)
            echo = b""
            while len(echo) < len(frame) and (piece := client.recv(64)):
                echo += piece
        except OSError as error:
            echo = repr(error).encode()
        if echo != frame:
            lost.append(f"{payload.decode()}: {echo[:60]!r}")
    require(not lost, f"{len(lost)} of {count} tunnels are lost: {lost[:3]}")
    return f"{count} tunnels of {GATEWAYS} gateways, {RELOADS} reloads each"
