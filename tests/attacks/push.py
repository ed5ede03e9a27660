"""Attacks on channels: expired tokens, a silent authorization endpoint, hoarded channels, members, keys, slow readers."""
import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
import zlib

from http2 import H2, get
from attackers import AttackRig, addresses, attack, expect
from rig import BEARER, CLOSE, KIB, MIB, PATIENCE, TOKEN, UPGRADE, Client, Fault, masked_frame, parsed_frame, ready, require

SECRET = "0123456789abcdef0123456789abcdef"


class WebSocket:
    """A WebSocket client; `channel` is the path below /push/, with its query."""

    def __init__(self, server, channel: str, *, protocol: str = "", extensions: str = "", source: str = "127.0.0.1",
                 token: str = ""):
        self.socket, self.over, self.code = server.connect(source), False, None
        fields = {"Sec-WebSocket-Protocol": protocol, "Sec-WebSocket-Extensions": extensions,
                  "Authorization": token and f"Bearer {token}"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        self.socket.request(f"/push/{channel}", fields=UPGRADE + lines)
        require(b" 101 " in (head := self.socket.head()), f"a WebSocket got {head[:200]!r}")

    def send(self, bytes_: bytes) -> None:
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.sendall(bytes_)
        except ConnectionError:
            self.over = True

    def read(self, wait: float = 0.0) -> list[bytes]:
        """The payloads of the messages that have arrived."""
        payloads = []
        while not self.over and ready([self.socket], wait):
            self.over, wait = not self.socket.more("a frame"), 0.0
            while found := parsed_frame(self.socket.received):
                first, payload, size = found
                self.socket.take(size)
                if first & 15 == CLOSE:
                    self.over, self.code = True, int.from_bytes(payload[:2], "big")
                elif first & 15 < CLOSE:
                    payloads.append(payload)
        return payloads


def jwt(expires: int, **grants: list[str]) -> str:
    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    claims = {"sub": "mallory", "exp": expires, "encke": grants}
    signed = f"{part(json.dumps({'alg': 'HS256'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{signed}.{part(hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest())}"


class Busy(threading.Thread):
    """Publishes a message to a channel every 0.1 s."""

    def __init__(self, server, channel: str):
        super().__init__(daemon=True)
        self.server, self.channel, self.failure, self.ending = server, channel, None, threading.Event()

    def __enter__(self) -> "Busy":
        self.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self.ending.set()
        self.join(PATIENCE)
        if self.failure and kind is None:
            raise Fault(f"the publisher of the channel failed: {self.failure!r}")

    def run(self) -> None:
        try:
            with contextlib.closing(Client(self.server)) as client:
                while not self.ending.wait(0.1):
                    expect(client.ask(f"/push/{self.channel}", "POST", "busy", BEARER), 201, None, "a publish")
        except Exception as error:  # raised by __exit__
            self.failure = error


class TokenStream:
    """A subscriber by one transport with a token that expires. Records whether it got a message, and whether it ended."""

    def __init__(self, server, name: str, fields: str, token: str):
        self.name, self.messages, self.is_over = name, 0, False
        self.socket = server.connect()
        self.socket.sendall(f"GET /push/busy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}"
                            f"Authorization: Bearer {token}\r\n\r\n".encode())

    def step(self, _now: float) -> None:
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                piece = self.socket.recv(1 << 16)
            except ConnectionError:
                piece = b""
            self.is_over = self.is_over or not piece
            self.messages += piece.count(b"busy")


class TokenPoll:
    """A TokenStream by long polls on one connection: over when a poll is rejected."""

    def __init__(self, server, name: str, token: str):
        self.name, self.messages, self.is_over = name, 0, False
        self.client = server.client()
        self.fields, self.since = {"Authorization": f"Bearer {token}"}, "now"

    def step(self, _now: float) -> None:
        status, body, fields = self.client.ask(f"/push/busy?since={self.since}&wait=1", fields=self.fields)
        self.is_over = status in (401, 403)
        self.messages += body == b"busy"
        self.since = fields.get("Encke-Id", self.since)


class TokenSocket:
    """A TokenStream by WebSocket, which also publishes the time in every step."""

    def __init__(self, server, name: str, token: str):
        self.name, self.messages = name, 0
        self.envelopes = name == "encke.v1"
        self.socket = WebSocket(server, "busy", protocol=name if self.envelopes else "", token=token)

    @property
    def is_over(self) -> bool:
        return self.socket.over

    def step(self, now: float) -> None:
        self.messages += sum(b"busy" in payload for payload in self.socket.read())
        text = f"late {now}"
        said = {"op": "publish", "channel": "busy", "data": text, "ref": 1}
        if not self.is_over:
            self.socket.send(masked_frame(json.dumps(said).encode() if self.envelopes else text.encode()))


class TokenH2:
    """A TokenStream by an event stream of HTTP/2."""

    def __init__(self, server, name: str, token: str):
        self.name, self.client = name, H2(server)
        self.client.send(get(1, "/push/busy", {"accept": "text/event-stream", "authorization": f"Bearer {token}"}))

    @property
    def messages(self) -> int:
        return self.client.bodies.get(1, b"").count(b"busy")

    @property
    def is_over(self) -> bool:
        return self.client.over or 1 in self.client.ended

    def step(self, _now: float) -> None:
        self.client.read()


EXPIRY_BOUND_S = 10  # seconds after `exp` within which every stream is ended; 2 on a quiet machine
LATE_S = 1  # a publish sent so long after `exp` must not be accepted


@attack(long=True)
def a_token_expires_on_a_busy_stream(rig: AttackRig) -> str:
    """A JWT that expires within six seconds reads a channel with a message every 0.1 s, on every transport, and publishes by
    WebSocket: each stream ends within 10 s after `exp`, and no publish sent 1 s after it is accepted.

    Other tokens must be served meanwhile, a file and channels."""
    server = rig.server({
        "auth": {"anonymous": [], "keys": [{"secret": SECRET}]},
        "push": {"channel": [{"pattern": "busy", "messages": 10_000}]},
    })
    with server.innocent(push=True) as innocent, Busy(server, "busy"):
        expires = int(time.time()) + 6
        token = jwt(expires, subscribe=["busy"], publish=["busy"])
        streams = [
            TokenStream(server, "event stream", "Accept: text/event-stream\r\n", token),
            TokenStream(server, "NDJSON", "Accept: application/x-ndjson\r\n", token),
            TokenSocket(server, "WebSocket", token),
            TokenSocket(server, "encke.v1", token),
            TokenH2(server, "event stream by HTTP/2", token),
            TokenPoll(server, "poll", token),
        ]
        slowest = {}
        while rest := [stream for stream in streams if not stream.is_over]:
            for stream in rest:
                stream.step(now := time.time())
                if stream.is_over:
                    slowest[stream.name] = time.time() - expires
            if now > expires + EXPIRY_BOUND_S:
                raise Fault(f"{EXPIRY_BOUND_S} s after `exp` streams are open: {', '.join(stream.name for stream in rest)}")
            time.sleep(0.02)
        for stream in streams:
            if not stream.messages:
                raise Fault(f"{stream.name}: a valid token got no message")
        status, body, _ = server.ask("/push/busy?since=all&as=json&wait=0", fields=BEARER)
        late = [float(message["data"].split()[1]) for message in json.loads(body)["messages"]
                if message["data"].startswith("late ")]
        if not late:
            raise Fault("no publish of a valid token was accepted")
        if max(late) > expires + LATE_S:
            raise Fault(f"a publish was accepted {max(late) - expires:.1f} s after `exp`")
    return f"6 of 6 ended, the last {max(slowest.values()):.1f} s after `exp`; {innocent}"


@attack(long=True)
def a_silent_authorization_endpoint_delays_no_file(rig: AttackRig) -> str:
    """400 addresses request 400 channels without a token, and `auth.ask` never responds: a file that is not in memory is
    served at once, and at least half of the requests are rejected within the time of four of them.

    That file, other files and channels must be served meanwhile."""
    silent = rig.keep(socket.create_server(("127.0.0.1", 0), backlog=2048))
    server = rig.server({"auth": {"anonymous": [], "ask": f"http://127.0.0.1:{silent.getsockname()[1]}/"}})
    with server.innocent(push=True) as innocent:
        clients = []
        for number, address in enumerate(addresses(400)):
            client = server.connect(address)
            client.sendall(f"GET /push/ask/{number}?as=poll HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            clients.append(client)
        innocent.served()
        longest = 0.0
        for number in range(3):
            (server.root / f"fresh-{number}.txt").write_text(f"fresh {number}")
            began = time.monotonic()
            # Within this time, and not within that of an authorization request.
            response = server.ask(f"/fresh-{number}.txt", patience=10)
            expect(response, 200, f"fresh {number}".encode(), "a file that is not in memory")
            longest = max(longest, time.monotonic() - began)
        responses = {}

        def half_are_rejected() -> bool:
            for client in clients:
                if client not in responses and ready([client]):
                    responses[client] = client.recv(4096)
            return len(responses) >= 200

        # An authorization request may take 5 s.
        rig.until(half_are_rejected, "more than half of the requests wait after 20 s", 20)
        statuses = {response[9:12] for response in responses.values()}
        if not statuses <= {b"503", b"429"}:
            raise Fault(f"requests with unknown rights received {statuses}")
    return f"{len(responses)} of 400 rejected, a file after {longest:.2f} s; {innocent}"


CHANNELS = 500
FEW_CHANNELS = {"push": {"channels": CHANNELS}}


@attack()
def one_subscriber_cannot_exhaust_channels(rig: AttackRig) -> str:
    """A WebSocket subscribes to 1,500 channels and leaves each at once, where `push.channels` is 500.

    Another client must open, publish and receive on new channels during and after that."""
    server = rig.server(FEW_CHANNELS)
    with server.innocent(push=True, fresh=True) as innocent:
        client = WebSocket(server, "hoard", protocol="encke.v1", source="127.1.0.1")
        ok, rejected = 0, 0
        for first in range(0, 3 * CHANNELS, 200):
            client.send(b"".join(masked_frame(json.dumps({"op": op, "channels": [f"hoard/{number}"], "ref": number}).encode())
                                 for number in range(first, first + 200) for op in ("subscribe", "unsubscribe")))
            answers, deadline = 0, time.monotonic() + rig.patience
            while answers < 400 and not client.over:
                for payload in client.read(0.1):
                    answers += b'"ref"' in payload
                    ok, rejected = ok + (b'"ok"' in payload), rejected + (b'"error"' in payload)
                if time.monotonic() > deadline:
                    raise Fault(f"{answers} of 400 responses to a WebSocket")
            if client.over:
                break
        after_hoard(server, innocent)
    return f"{ok} accepted, {rejected} rejected{', closed' if client.over else ''}; {innocent}"


@attack()
def polls_cannot_exhaust_channels(rig: AttackRig) -> str:
    """A client polls 1,500 channels without waiting, 20 at a time, where `push.channels` is 500.

    Another client must open, publish and receive on new channels during and after that."""
    server = rig.server(FEW_CHANNELS)
    counts: dict[int, int] = {}
    with server.innocent(push=True, fresh=True) as innocent:
        clients = [server.client("127.1.0.1") for _ in range(20)]
        for first in range(0, 3 * CHANNELS, len(clients)):
            for number, client in enumerate(clients, first):
                client.request("GET", f"/push/hoard/{number}?wait=0&as=poll")
            for client in clients:
                (response := client.getresponse()).read()
                counts[response.status] = counts.get(response.status, 0) + 1
        after_hoard(server, innocent)
    return f"{', '.join(f'{count} x {status}' for status, count in counts.items())}; {innocent}"


def after_hoard(server, innocent) -> None:
    innocent.served()
    expect(server.ask("/push/new/channel", "POST", "new", BEARER, source="127.0.0.5"), 201, None, "a new channel")
    expect(server.ask("/push/new/channel?since=all&wait=0&as=poll", source="127.0.0.6"), 200, b"new", "its reader")


@attack()
def members_cannot_evict_history(rig: AttackRig) -> str:
    """22 addresses poll a channel with presence under 220 names: its 50 messages stay readable, `messages` being 100.

    Another client must read them all, and a file and channels must be served meanwhile."""
    server = rig.server({"push": {"channel": [{"pattern": "room", "presence": True, "messages": 100}]}})
    texts = [f"message {number}" for number in range(50)]
    for text in texts:
        expect(server.ask("/push/room", "POST", text, BEARER), 201, None, "a publish")
    statuses: dict[int, int] = {}
    with server.innocent(push=True) as innocent:
        for index, address in enumerate(addresses(22)):
            with contextlib.closing(Client(server, address)) as client:
                for number in range(10):
                    status, _, _ = client.ask(f"/push/room?name=member-{index}-{number}&wait=0&as=poll")
                    statuses[status] = statuses.get(status, 0) + 1
        innocent.served()
        _, body, _ = server.ask("/push/room?since=all&as=json&wait=0", fields=BEARER)
        kept = [message["data"] for message in json.loads(body)["messages"] if message.get("data") in texts]
    if kept != texts:
        raise Fault(f"{len(kept)} of 50 messages are left after {statuses} polls")
    return f"50 of 50 messages kept, polls: {', '.join(f'{count} x {status}' for status, count in statuses.items())}; {innocent}"


KEYS = 140_000  # more than `encke` keeps for all publishers: the attack reached its aim with 130,000
KEYS_PER_REQUEST = 5_000


@attack()
def one_publisher_cannot_evict_keys_of_another(rig: AttackRig) -> str:
    """A publisher sends 140,000 messages, each with an idempotency key of its own.

    The retry of another publisher must return its first id, instead of publishing again."""
    mallory = "mallory-0123456789"
    server = rig.server({"auth": {"tokens": [
        {"token": TOKEN, "name": "innocent", "publish": ["**"], "subscribe": ["**"]},
        {"token": mallory, "name": "mallory", "publish": ["**"]},
    ]}})
    fields = {**BEARER, "Idempotency-Key": "order-1"}
    with server.innocent(push=True) as innocent:
        status, first, _ = server.ask("/push/orders", "POST", "order 1", fields)
        if status != 201:
            raise Fault(f"the first publish got {status}")
        client = server.client()
        statuses: dict[int, int] = {}
        for start in range(0, KEYS, KEYS_PER_REQUEST):
            lines = "\n".join(f'{{"channel":"flood","data":"","key":"{number}"}}' for number in
                              range(start, start + KEYS_PER_REQUEST))
            status, _, _ = client.ask("/push/", "POST", lines, {
                "Authorization": f"Bearer {mallory}", "Content-Type": "application/x-ndjson"})
            statuses[status] = statuses.get(status, 0) + 1
        status, again, _ = server.ask("/push/orders", "POST", "order 1", fields)
        if status != 200 or json.loads(again)["id"] != json.loads(first)["id"]:
            raise Fault(f"after {statuses} the retry got {status} {again!r} instead of 200 {first!r}")
    return f"the retry returns the first id; batches: {statuses}; {innocent}"


@attack(undefended={"push": {"channel": [{"pattern": "**", "messages": 1_000_000, "bytes": "1GiB"}]}})
def stalled_subscribers_hold_no_memory(rig: AttackRig) -> str:
    """200 event streams read nothing while 48 MiB are published to their channel, which keeps 1 MiB: memory grows by less
    than 16 MiB.

    A file and channels must be served meanwhile."""
    server = rig.server()
    before, most = server.anonymous_bytes(), 0
    with server.innocent(push=True) as innocent:
        clients = [server.connect(receive_bytes=4 * KIB) for _ in range(200)]
        for client in clients:
            client.sendall(b"GET /push/bulk?since=now HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
            if not client.recv(12).endswith(b" 200"):
                raise Fault("an event stream was rejected")
        publisher = server.client()
        for _ in range(96):
            expect(publisher.ask("/push/bulk", "POST", b"x" * (512 * KIB), BEARER), 201, None, "a publish")
            most = max(most, server.anonymous_bytes())
    grown = most - before
    if grown > 16 * MIB:
        raise Fault(f"48 MiB to stalled subscribers increased memory by {grown // MIB} MiB")
    return f"memory +{grown // KIB} KiB; {innocent}"


@attack(undefended={"push": {"message_bytes": "128MiB"}})
def compressed_bombs_end_the_websocket(rig: AttackRig) -> str:
    """20 WebSockets send a message of 64 KiB that becomes 64 MiB: each is closed, `message_bytes` being 1 MiB.

    Memory grows by less than 16 MiB. A file and channels must be served meanwhile."""
    server = rig.server()
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = compressor.compress(bytes(64 * MIB)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    bomb = bomb.removesuffix(b"\0\0\xff\xff")
    before, most = server.anonymous_bytes(), 0
    with server.innocent(push=True) as innocent:
        for _ in range(20):
            client = WebSocket(server, "bomb", extensions="permessage-deflate", token=TOKEN)
            client.send(masked_frame(bomb, first=0xc0))
            deadline = time.monotonic() + rig.patience
            while not client.over:
                client.read(0.1)
                if time.monotonic() > deadline:
                    raise Fault("a WebSocket is open after a message of 64 MiB")
            most = max(most, server.anonymous_bytes())
    grown = most - before
    if grown > 16 * MIB:
        raise Fault(f"bombs increased memory by {grown // MIB} MiB")
    return f"20 of 20 closed with {client.code}, memory +{max(grown, 0) // KIB} KiB; {innocent}"
