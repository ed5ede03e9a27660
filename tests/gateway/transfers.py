"""Large bodies in both directions: back-pressure, memory, and clients that leave."""
import array
import fcntl
import hashlib
import select
import socket
import termios
import time

from applications import BLOCK_BYTES, Lab, blocks, digest
from rig import KIB, MIB, MemoryWatch, case, mib, require

MEMORY_BYTES_MAX = 8 * MIB
# Bytes that the kernel takes on the two connections at most, together with 64 KiB in Encke.
STUCK_BYTES_MAX = 32 * MIB


def size(lab: Lab) -> int:
    """Blocks of a transfer."""
    return lab.of(64 * MIB, 128 * MIB, 2048 * MIB) // BLOCK_BYTES


@case(basic=("plain", "node"))
def an_upload_waits_for_its_application(lab: Lab, app: str) -> str:
    """An application does not read an upload at first: the client cannot send more than the kernel's buffers hold, and memory does
    not grow. Then all of it arrives unchanged. Planted: the client changes a byte."""
    application, server = lab.served(app, settings={"limits": {"body_bytes": "off"}})
    count = size(lab)
    require(server.ask("/a/echo").status == 200, "the first request")
    with MemoryWatch(server) as watch:
        client = server.requested("/a/sum", "POST", f"Connection: close\r\nContent-Length: {count * BLOCK_BYTES}\r\n")
        content = (block for block in blocks(count))
        sent, rest, waits = 0, b"", 0
        client.setblocking(False)
        poll = select.poll()
        poll.register(client, select.POLLOUT)
        # The end of progress: no room for half a second, twice.
        while waits < 2:
            if not poll.poll(500):
                waits += 1
                continue
            rest = rest or next(content, b"")
            require(rest, "the whole upload was taken, though the application reads nothing")
            done = client.send(rest)
            sent, rest = sent + done, rest[done:]
        require(sent < STUCK_BYTES_MAX, f"{mib(sent)} were taken, though the application reads nothing")
        application.open_gate()
        client.settimeout(lab.patience)
        client.sendall(rest)
        for number, block in enumerate(content):
            client.sendall(b"X" + block[1:] if lab.planted and not number else block)
        response = client.to_end()
    expected = f"{count * BLOCK_BYTES} {digest(blocks(count))}"
    require(response.startswith(b"HTTP/1.1 200 ") and response.endswith(expected.encode()), f"{response[:600]!r}, not {expected}")
    require(watch.growth <= MEMORY_BYTES_MAX, f"memory grew by {mib(watch.growth)}")
    return f"{mib(count * BLOCK_BYTES)}, stuck at {mib(sent)}, memory +{mib(watch.growth)}"


def waiting_bytes(client: socket.socket) -> int:
    number = array.array("i", [0])
    fcntl.ioctl(client, termios.FIONREAD, number)
    return number[0]


@case(basic=("plain", "node"), more=("uvicorn",))
def a_download_waits_for_its_client(lab: Lab, app: str) -> str:
    """A client does not read a download at first: memory does not grow. Then all of it arrives unchanged. Planted: another
    content is expected."""
    _, server = lab.served(app)
    count = size(lab)
    require(server.ask("/a/echo").status == 200, "the first request")
    with MemoryWatch(server) as watch:
        client = server.requested(f"/a/make?blocks={count}", version="1.0")
        lab.until(lambda: waiting_bytes(client), "nothing has arrived")
        # The end of progress: the same number of bytes waits for half a second.
        before, since = -1, time.monotonic()
        while time.monotonic() - since < 0.5:
            if (now := waiting_bytes(client)) != before:
                before, since = now, time.monotonic()
            time.sleep(0.02)
        require(b" 200 " in (head := client.head()), head)
        sum_, length = hashlib.sha256(client.received), len(client.received)
        while piece := client.recv(1 << 18):
            sum_.update(piece)
            length += len(piece)
    require(length == count * BLOCK_BYTES, f"{length} bytes of {count * BLOCK_BYTES}")
    require(sum_.hexdigest() == digest(blocks(count + lab.planted)), "the content differs")
    require(watch.growth <= MEMORY_BYTES_MAX, f"memory grew by {mib(watch.growth)}")
    return f"{mib(length)}, {mib(before)} waited at the client, memory +{mib(watch.growth)}"


def leaves(lab: Lab, app: str, target: str, *, by_reset: bool) -> str:
    """A client sends a request and closes its connection: the application's connection must end."""
    application, server = lab.served(app)
    client = server.requested(target, receive_bytes=16 * KIB)
    if "hold" in target:
        lab.until(lambda: application.noted("held"), "the application has no request")
    else:
        client.head()
    if not lab.planted:
        client.reset() if by_reset else client.close()
    lab.until(lambda: application.noted("left"), "the application still has its connection", lab.of(5, 10, 10))
    return "closed"


@case(basic=("plain", "node"))
def an_application_learns_that_a_download_was_aborted(lab: Lab, app: str) -> str:
    """The client closes its connection within a download: the application sees its connection end. Planted: the client stays."""
    return leaves(lab, app, "/a/make?blocks=100000", by_reset=False)


@case(basic=("plain", "node"), more=("uvicorn",))
def an_application_learns_that_a_waiting_client_was_reset(lab: Lab, app: str) -> str:
    """The client's connection is reset while it waits for a response. Planted: the client stays."""
    return leaves(lab, app, "/a/hold", by_reset=True)


@case(basic=("plain", "node"), more=("uvicorn",))
def an_application_learns_that_a_waiting_client_has_closed(lab: Lab, app: str) -> str:
    """The client closes its connection while it waits for a response, as browsers do. Planted: the client stays."""
    return leaves(lab, app, "/a/hold", by_reset=False)


@case(basic=("plain", "node"))
def a_broken_response_is_never_a_whole_one(lab: Lab, app: str) -> str:
    """An application closes in the middle of a response: the client's connection ends before the length is reached. Planted: a
    response that is complete."""
    _, server = lab.served(app)
    for version in ("1.1", "1.0"):
        client = server.connect()
        target = "/a/make?blocks=1" if lab.planted else "/a/short"
        client.request(target, fields="Connection: close\r\n", version=version)
        head, _, body = client.to_end().partition(b"\r\n\r\n")
        require(b" 200 " not in head or b"ength: 1000" in head and len(body) <= 500, f"{head!r}, {len(body)} bytes")
    lab.until(lambda: len(server.lines()) == 2, "no line in the access log")
    require(all(line["reason"] for line in server.lines()), f"reasons in the log: {server.lines()}")
    return f"reason {server.lines()[0]['reason']}"
