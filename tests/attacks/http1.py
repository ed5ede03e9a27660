"""Floods by HTTP/1: slow heads, bodies and readers, endless heads, costly chunks and ranges, hoarded connections."""
import contextlib
import select
import socket
import time

from attackers import STAND_IN, AttackRig, addresses, attack, drip, has_hung_up, wait_for_ends
from rig import BEARER, KIB, MIB, Fault, ended, ready, require, send_queues

# Bytes that two sockets may hold without a read by the server: 6 MiB of receive buffer, 4 MiB of send buffer.
BUFFERS = 16 * MIB
# Twenty connections with one full read each, and the buffers that both workers of `uring` keep.
GROWTH_MAX = 16 * MIB
GET = b"GET /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"


@attack(undefended={"limits": {"head_time": "1h"}})
def slow_heads_end_by_head_time(rig: AttackRig) -> str:
    """200 clients send a head byte by byte: no byte postpones `head_time`, and each connection ends.

    A file must be served meanwhile."""
    server = rig.server({"limits": {"head_time": "2s"}})
    with server.innocent() as innocent:
        clients = [server.connect() for _ in range(200)]
        drip(clients, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        wait_for_ends(rig, clients, "slow heads", lambda rest: drip(rest, b"y"))
    return f"200 of 200 ended; {innocent}"


@attack(long=True, undefended={"limits": {"body_rate": "1B/s"}})
def slow_bodies_end_by_body_rate(rig: AttackRig) -> str:
    """100 clients send a body of 10 bytes per second: each ends, `body_rate` being 240 B/s over 10 s.

    A file and channels must be served meanwhile."""
    server = rig.server()
    with server.innocent(push=True) as innocent:
        clients = [server.connect() for _ in range(100)]
        drip(clients, b"POST /push/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
                      b"Authorization: %s\r\n\r\n" % BEARER["Authorization"].encode())
        wait_for_ends(rig, clients, "slow bodies", lambda rest: drip(rest, b"y"))
    return f"100 of 100 ended; {innocent}"


@attack(long=True, undefended={"limits": {"write_rate": "1B/s"}})
def slow_readers_end_by_write_rate(rig: AttackRig) -> str:
    """100 clients request a file of 64 MiB, and read nothing or 4 KiB per second: each ends, `write_rate` being 64 KiB/s.

    Memory grows by less than 16 MiB, that of the kernel by less than 64 KiB for each, and a file must be served meanwhile."""
    server = rig.server({"limits": {"write_rate": "64KiB/s"}})
    server.file("large.bin", 64 * MIB)
    before = server.anonymous_bytes()
    with server.innocent() as innocent:
        clients = [server.connect(receive_bytes=4 * KIB) for _ in range(100)]
        drip(clients, GET.replace(b"small.txt", b"large.bin"))
        slow, read_at, ports = set(clients[::2]), time.monotonic(), {client.getsockname()[1] for client in clients}
        most = kernel_most = 0

        def read_slowly(rest: list[socket.socket]) -> None:
            nonlocal read_at, most, kernel_most
            most = max(most, server.anonymous_bytes())
            kernel_most = max(kernel_most, *send_queues(server.port, ports), 0)
            if time.monotonic() >= read_at + 1:
                read_at = time.monotonic()
                for client in slow.intersection(rest):
                    client.setblocking(False)
                    try:
                        client.recv(4 * KIB)
                    except OSError:
                        pass  # nothing came, or the connection has ended

        wait_for_ends(rig, clients, "slow readers", read_slowly, has_hung_up)
    grown = most - before
    if grown > 16 * MIB:
        raise Fault(f"slow readers increased memory by {grown // MIB} MiB")
    require(kernel_most <= 64 * KIB, f"the kernel held {kernel_most // KIB} KiB for a slow reader")
    return f"100 of 100 ended, memory +{max(grown, 0) // KIB} KiB, in the kernel {kernel_most // KIB} KiB each at most; {innocent}"


@attack(undefended={"limits": {"idle_time": "1h"}})
def idle_connections_end_by_idle_time(rig: AttackRig) -> str:
    """300 clients keep a connection after a response: each ends after `idle_time`.

    A file must be served meanwhile."""
    server = rig.server({"limits": {"idle_time": "1s"}})
    with server.innocent() as innocent:
        clients = [server.connect() for _ in range(300)]
        drip(clients, GET)
        wait_for_ends(rig, clients, "idle connections")
    return f"300 of 300 ended; {innocent}"


@attack(undefended={"limits": {"connections_per_address": "off"}})
def one_address_cannot_hold_all_connections(rig: AttackRig) -> str:
    """One address opens 200 connections where `connections_per_address` is 50: the others end, without any request.

    Another address must be served meanwhile."""
    server = rig.server({"limits": {"connections_per_address": 50, "head_time": "1h"}})
    with server.innocent() as innocent:
        clients = []
        for _ in range(200):
            with contextlib.suppress(ConnectionError):  # ended before connect() returned
                clients.append(server.connect("127.1.0.1"))

        def held() -> int:
            return sum(not ended(client) for client in clients)

        rig.until(lambda: held() <= 50, "connections beyond the limit per address stay open")
        innocent.served()
        if held() != 50:
            raise Fault(f"an address holds {held()} connections instead of 50")
    return f"150 of 200 ended; {innocent}"


@attack(undefended={"limits": {"connections": 10_000}})
def idle_connections_make_room_for_newcomers(rig: AttackRig) -> str:
    """400 addresses keep an idle connection where `connections` is 100: the oldest idle ones end.

    Each newcomer must get a response."""
    server = rig.server({"limits": {"connections": 100, "idle_time": "1h", "head_time": "1h"}})
    clients = []
    with server.innocent() as innocent:
        for address in addresses(400):
            client = server.connect(address)
            client.sendall(GET)
            if not (response := client.recv(4096)).startswith(b"HTTP/1.1 200"):
                raise Fault(f"newcomer {len(clients)} got {response[:100]!r}")
            clients.append(client)
        rig.until(lambda: sum(map(ended, clients)) >= 300, "more connections than `connections` stay open")
    return f"400 of 400 responses, {sum(map(ended, clients))} idle connections ended; {innocent}"


@attack(undefended=STAND_IN)
def endless_heads_end_at_head_bytes(rig: AttackRig) -> str:
    """20 clients send endless heads: each ends after at most 16 MiB, most of them in the buffers of the
    kernel: `head_bytes` is 32 KiB, and `linger_time` reads 1 MiB.

    Memory grows by less than 16 MiB, and a file must be served meanwhile."""
    server = rig.server()
    return endless(rig, server, b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"x: %s\r\n" % (b"y" * 1000))


@attack(undefended=STAND_IN)
def costly_chunks_end_the_request(rig: AttackRig) -> str:
    """20 clients send bodies in chunks of one byte with an extension of 200: each ends after at most 16 MiB.

    Memory grows by less than 16 MiB, and a file must be served meanwhile."""
    server = rig.server()
    head = (b"POST /push/chunks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nAuthorization: %s\r\n\r\n"
            % BEARER["Authorization"].encode())
    return endless(rig, server, head, b"1;%s\r\ny\r\n" % (b"e" * 200))


@attack(undefended=STAND_IN)
def requests_are_not_read_while_responses_wait(rig: AttackRig) -> str:
    """20 clients send requests and read no response: the server stops reading each after at most 16 MiB, most of them in the
    buffers of the kernel.

    Memory grows by less than 2 MiB each: 256 KiB of responses, and receive buffers of `uring`. A file must be served
    meanwhile."""
    server = rig.server()
    server.file("page.bin", 64 * KIB)
    before = server.anonymous_bytes()
    with server.innocent() as innocent:
        clients = [server.connect(receive_bytes=4 * KIB) for _ in range(20)]
        batch, taken = GET.replace(b"small.txt", b"page.bin") * 1000, dict.fromkeys(clients, 0)
        for client in clients:
            client.setblocking(False)
        # Sockets that take nothing for half a second are full.
        while writable := ready(clients, 0.5, select.POLLOUT):
            for client in writable:
                taken[client] += client.send(batch)
            if max(taken.values()) > BUFFERS:
                raise Fault(f"{max(taken.values())} bytes of requests were read while no response was read")
        innocent.served()
        grown = server.anonymous_bytes() - before
    if grown > 20 * 2 * MIB:
        raise Fault(f"{sum(taken.values())} bytes of requests increased memory by {grown // KIB} KiB")
    return f"at most {max(taken.values()) // KIB} KiB each in buffers, memory +{max(grown, 0) // KIB} KiB; {innocent}"


@attack(undefended=None)
def ranges_amplify_nothing(rig: AttackRig) -> str:
    """A request names 1,000 overlapping ranges of a file of 4 MiB: the response is at most the file.

    The file must arrive whole."""
    server = rig.server()
    server.file("ranges.bin", 4 * MIB)
    with server.innocent() as innocent:
        ranges = "bytes=" + ",".join(f"{number}-" for number in range(1000))
        status, body, _ = server.ask("/ranges.bin", fields={"Range": ranges})
    if status != 200 or len(body) != 4 * MIB:
        raise Fault(f"1,000 ranges: {status} with {len(body)} bytes")
    return f"{status} with {len(body)} bytes; {innocent}"


def endless(rig: AttackRig, server, head: bytes, piece: bytes, limit: int = BUFFERS) -> str:
    """Sends `head`, then `piece` endlessly, on 20 connections in turn."""
    before = server.anonymous_bytes()
    batch, most = piece * (256 * KIB // len(piece)), 0
    with server.innocent() as innocent:
        for _ in range(20):
            client = server.connect()
            client.sendall(head)
            sent, deadline = 0, time.monotonic() + rig.patience
            while not ended(client):
                if ready([client], 0.05, select.POLLOUT):
                    try:
                        sent += client.send(batch)
                    except ConnectionError:
                        break
                if sent > limit or time.monotonic() > deadline:
                    raise Fault(f"the connection is open after {sent} bytes")
            most = max(most, sent)
        innocent.served()
        grown = server.anonymous_bytes() - before
    if grown > GROWTH_MAX:
        raise Fault(f"endless requests increased memory by {grown // KIB} KiB")
    return f"20 of 20 ended after at most {most // KIB} KiB, memory +{max(grown, 0) // KIB} KiB; {innocent}"
