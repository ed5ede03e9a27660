"""Event streams and WebSockets."""
from pathlib import Path

from applications import Gateway, Lab
from rig import ACCEPT, BINARY, CLOSE, TEXT, UPGRADE, Connection, Fault, case, masked_frame, require


@case(basic=("plain", "node"), more=("uvicorn", "hypercorn"))
def each_event_arrives_before_the_next_is_written(lab: Lab, app: str) -> str:
    """Client and application proceed in lock-step: event N + 1 is written only after the client has event N, so nothing may wait
    for more bytes. Planted: two events are expected at once."""
    application, server = lab.served(app)
    events = lab.of(20, 100, 1_000)
    client = server.requested(f"/a/sse?events={events}", fields="Accept: text/event-stream\r\n", version="1.0")
    require(b" 200 " in (head := client.head()), head)
    for number in range(events):
        Path(f"{application.gate}.{number}").touch()
        for expected in [number, number + 1] if lab.planted else [number]:
            require(client.until(b"\n\n") == b"data: %d\n\n" % expected, f"not event {expected}")
    require(client.to_end() == b"" and not client.was_reset, "bytes or a reset follow the last event")
    return f"{events} events"


def websocket(server: Gateway) -> Connection:
    client = server.requested("/a/ws", fields=UPGRADE)
    # The first frame follows the request at once: it must not be lost before the 101.
    head = client.head()
    require(b" 101 " in head and ACCEPT in head, head)
    require(client.frame() == (TEXT, b"first"), "the first frame")
    return client


def echoes(client: Connection, payload: bytes) -> None:
    try:
        client.sendall(masked_frame(payload, BINARY))
        opcode, got = client.frame()
    except (OSError, Fault) as error:
        raise Fault(f"no echo of {len(payload)} bytes: {error!r}") from None
    require((opcode, got) == (BINARY, payload), f"an echo of {len(payload)} bytes differs: {opcode}, {len(got)} bytes")


@case(basic=("plain",), more=("uvicorn", "hypercorn"))
def websockets_echo_and_survive_reloads(lab: Lab, app: str) -> str:
    """Frames of all sizes come back through a tunnel. Its first frame, which follows the 101 at once, is not lost. A SIGHUP that
    adds a route does not touch the tunnel, and neither does a SIGHUP that removes its route. A close handshake reaches the
    application. Planted: the application dies."""
    application = lab.application(app)
    route = {"pattern": "/a/**", "upstream": application}
    server = lab.gateway([route])
    client = websocket(server)
    sizes = [0, 1, 125, 126, 65_535, 65_536, 200_000, *(lab.chance.randrange(100_000) for _ in range(lab.of(5, 50, 500)))]
    if app == "plain":
        sizes = [size for size in sizes if size < 65_536]
    for size in sizes:
        echoes(client, lab.chance.randbytes(size))
    for routes in [[route, {"pattern": "/other/**", "upstream": application}], [{"pattern": "/other/**", "upstream": application}]]:
        server.reload_routes(routes)
        if lab.planted:
            application.stop()
        echoes(client, b"after a reload")
    require(server.ask("/other/echo").status == 200, "the new route")
    require(server.ask("/a/echo").status == 404, "the old route is still there")
    client.sendall(masked_frame((1000).to_bytes(2, "big"), CLOSE))
    opcode, _ = client.frame()
    require(opcode == CLOSE, f"a frame {opcode} in place of the close")
    lab.until(lambda: application.noted("left") or application.noted("closed"), "the application was not closed")
    return f"{len(sizes)} frames, 2 reloads"


@case(basic=("plain",), more=("uvicorn",))
def an_application_learns_that_its_websocket_has_left(lab: Lab, app: str) -> str:
    """A client's connection is reset: the application's ends, too. Planted: the client stays."""
    application, server = lab.served(app)
    client = websocket(server)
    if not lab.planted:
        client.reset()
    lab.until(lambda: application.noted("left"), "the application still has its connection", 10)
    return "reset"


@case(basic=("plain",), more=("uvicorn",))
def a_websocket_needs_its_application(lab: Lab, app: str) -> str:
    """Without the application a WebSocket gets a 502, and the next request of the connection is served. Planted: the application
    runs."""
    application, server = lab.served(app)
    if not lab.planted:
        application.stop()
    client = server.connect()
    for _ in range(2):
        client.request("/a/ws", fields=UPGRADE)
        require((response := client.response()).status == 502 and "Content-Length" in response.fields, response)
    return "502 twice on one connection"
