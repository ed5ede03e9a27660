"""Mutated requests: an application executes exactly the requests that Encke forwards, and the client has sent each of them.

    mutate(seed) ─► bytes ─┬─► Encke ─► application ─► record ──┐
                           │     └─► access log ────────────────┤ equal, request by request
                           └─► oracle: a strict reader ─────────┘ nothing else, and every body has its digest

A connection carries one to three requests, whose bodies often look like requests. A mutation changes their framing, fields, case,
spaces or line ends. Encke must forward all requests of an unchanged connection.
"""
import collections
import contextlib
import hashlib
import re
import socket
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from applications import Lab
from rig import Connection, Fault, case, require

TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([0-9])")
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(;[\t\x20-\x7e\x80-\xff]*)?")
CLIENTS = 4
# Encke's files need no body, and Starman executes a request whose body has ended too early.
WITHOUT_BODIES = ("encke", "starman")


@dataclass(eq=False)
class Sent:
    """A request as the oracle reads it. `digest` is None if its body is incomplete or malformed."""

    method: str
    target: str
    digest: str | None


def oracle(data: bytes) -> list[Sent]:
    """Reads requests as strictly as RFC 9112 allows, up to the first ambiguous byte."""
    requests = []
    while data:
        while data.startswith(b"\r\n"):
            data = data[2:]
        head, found, rest = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        line = REQUEST_LINE.fullmatch(lines[0])
        if not found or not line or any(byte in head.replace(b"\r\n", b"") for byte in b"\r\n\0"):
            break
        fields = collections.defaultdict(list)
        for text in lines[1:]:
            name, colon, value = text.partition(b":")
            if not colon or not TOKEN.fullmatch(name) or not VALUE.fullmatch(value):
                return requests
            fields[name.lower()].append(value.strip(b" \t"))
        method, target, minor = line[1].decode(), line[2].decode("latin-1"), int(line[3])
        target = re.sub(r"^http://[^/?]*", "", target, flags=re.IGNORECASE)
        if len(fields[b"host"]) != 1 and (minor or fields[b"host"]):
            break
        codings = b",".join(fields[b"transfer-encoding"])
        lengths = {value.strip(b" \t") for line in fields[b"content-length"] for value in line.split(b",")}
        body = b""
        if b"transfer-encoding" in fields and fields[b"transfer-encoding"]:
            if lengths or codings.lower() != b"chunked" or not minor:
                break
            body, rest = unchunked(rest)
        elif lengths:
            length = lengths.pop()
            if lengths or not length.isdigit():
                break
            body, rest = (rest[:int(length)], rest[int(length):]) if len(rest) >= int(length) else (None, b"")
        digest = None if body is None else hashlib.sha256(body).hexdigest()
        requests.append(Sent(method, target, digest))
        options = b",".join(fields[b"connection"]).lower().replace(b" ", b"").replace(b"\t", b"").split(b",")
        if body is None or b"close" in options or not minor and b"keep-alive" not in options:
            break
        data = rest
    return requests


def unchunked(data: bytes) -> tuple[bytes | None, bytes]:
    body = b""
    while True:
        line, found, data = data.partition(b"\r\n")
        size = CHUNK_LINE.fullmatch(line)
        if not found or not size:
            return None, b""
        if not (length := int(size[1], 16)):
            break
        if len(data) < length + 2 or data[length:length + 2] != b"\r\n":
            return None, b""
        body, data = body + data[:length], data[length + 2:]
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            return None, b""
        if not line:
            return body, data
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.fullmatch(name) or not VALUE.fullmatch(value):
            return None, b""


class Mutator:
    """Makes the bytes of connections. The targets contain the number of the connection."""

    def __init__(self, lab: Lab, app: str):
        self.chance, self.app = lab.chance, app

    def connection(self, number: int) -> tuple[bytes, str]:
        """Returns the bytes, and the names of the mutations: none for every tenth connection."""
        self.number = number
        requests = [self.request(index) for index in range(self.chance.randint(1, 3))]
        if number % 10 == 0:
            return b"".join(map(serialized, requests)), ""
        names = []
        for _ in range(self.chance.choice([1, 1, 1, 2, 3])):
            mutation = self.chance.choice(MUTATIONS)
            names.append(mutation.__name__)
            mutation(self.chance, self.chance.choice(requests))
        data = b"".join(map(serialized, requests))
        if self.chance.random() < 0.15:
            names.append("any_byte")
            data = any_byte(self.chance, data)
        return data, "+".join(names)

    def hidden(self, index: int) -> bytes:
        """A body that looks like a request."""
        return f"GET /{self.app}/echo/{self.number}/h{index} HTTP/1.1\r\nHost: hidden\r\n\r\n".encode()

    def request(self, index: int) -> dict:
        chance = self.chance
        kind = chance.choice(["none", "length", "length", "chunked", "chunked"])
        body = b""
        if kind != "none":
            body = chance.choice([b"", b"x", b"0\r\n\r\n", self.hidden(index), self.hidden(index), b"0\r\n\r\n" + self.hidden(index),
                                  b"\r\n" + self.hidden(index), chance.randbytes(chance.randrange(3_000))])
        fields = [(b"Host", b"localhost"), (b"X-Number", b"%d" % index)]
        request = {"method": b"GET" if kind == "none" else chance.choice([b"POST", b"POST", b"PUT", b"GET"]), "space": b" ",
                   "target": f"/{self.app}/echo/{self.number}/{index}".encode(), "version": b"HTTP/1.1", "fields": fields,
                   "separator": b": ", "end": b"\r\n", "before": b"", "content": body}
        if kind == "length":
            fields.append((b"Content-Length", b"%d" % len(body)))
        if kind == "chunked":
            fields.append((b"Transfer-Encoding", b"chunked"))
            pieces = []
            while body:
                size = chance.randint(1, len(body))
                pieces.append([b"%x" % size, b"", b"\r\n", body[:size], b"\r\n"])
                body = body[size:]
            request["content"] = pieces + [[b"0", b"", b"\r\n", b"", b"\r\n"]]
        chance.shuffle(fields)
        return request


def serialized(request: dict) -> bytes:
    content = request["content"]
    lines = [name + (request["separator"] if index == 0 else b": ") + value + (request["end"] if index == 1 else b"\r\n")
             for index, (name, value) in enumerate(request["fields"])]
    first = request["space"].join([request["method"], request["target"], request["version"]])
    return b"".join([request["before"], first, b"\r\n", *lines, b"\r\n",
                     content if isinstance(content, bytes) else b"".join(part for chunk in content for part in chunk)])


def framing(request: dict) -> tuple[int, bytes, bytes]:
    """The index, name and value of the field of the framing, or of any other one."""
    for index, (name, value) in enumerate(request["fields"]):
        if name in (b"Content-Length", b"Transfer-Encoding"):
            return index, name, value
    return 0, *request["fields"][0]


def duplicate_field(chance, request):
    _, name, value = framing(request) if chance.random() < 0.7 else (0, *chance.choice(request["fields"]))
    other = chance.choice([value, value, b"0", b"5", value + b"1", b"identity", b"chunked", b"other"])
    request["fields"].insert(chance.randint(0, len(request["fields"])), (name, other))


def other_case(chance, request):
    index, name, value = framing(request)
    request["fields"][index] = tuple(bytes(byte ^ 32 if chr(byte).isalpha() and chance.random() < 0.5 else byte for byte in text)
                                     for text in (name, value))


def both_framings(chance, request):
    length = len(request["content"]) if isinstance(request["content"], bytes) else chance.choice([0, 1, 5, 40])
    new = chance.choice([(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"%d" % length), (b"Content-Length", b"0")])
    request["fields"].insert(chance.randint(0, len(request["fields"])), new)


def odd_coding(chance, request):
    value = chance.choice([b"identity", b"chunked, identity", b"identity, chunked", b"gzip, chunked", b"chunked, chunked", b"chunked;q=1",
                           b"\"chunked\"", b"xchunked", b"chunked\t", b"\tchunked", b"\x0bchunked", b"chunked\0", b"chunked,", b",chunked",
                           b"CHUNKED", b"", b"cow", b"chunked\xa0", b"ch\xfcnked"])
    name = chance.choice([b"Transfer-Encoding", b"Transfer_Encoding", b"Transfer-Encoding ", b"X-Transfer-Encoding", b"transfer-encoding"])
    index, old, _ = framing(request)
    if old == b"Transfer-Encoding":
        request["fields"][index] = (chance.choice([name, old, old]), value)
    else:
        request["fields"].append((name, value))


def odd_length(chance, request):
    index, name, value = framing(request)
    n = value if name == b"Content-Length" else b"5"
    odd = chance.choice([b"+" + n, b"-" + n, b"0" + n, b"000000" + n, n + b" ", b" " + n, n + b"\t", n + b", " + n, n + b",", n + b".0", n + b"e0",
                         b"0x" + n, n + b";", n + b" 0", n + b"\0", b"", b"99999999999999999999999", b"18446744073709551621",
                         b"\xd9\xa5", n + b", 0", b"_" + n, n[:1] + b"_" + n[1:]])
    if name == b"Content-Length":
        request["fields"][index] = (name, odd)
    else:
        request["fields"].append((b"Content-Length", odd))


def odd_name(chance, request):
    index, name, value = framing(request)
    odd = chance.choice([name + b" ", b" " + name, name + b"\t", b"\t" + name, name.replace(b"-", b"_"), name + b"\0", b"\0" + name,
                         name[:3] + b" " + name[3:], name + b"\x0b", name + b"\r", b"", name + b":", b"\xef\xbb\xbf" + name])
    request["fields"][index] = (odd, value)


def odd_separator(chance, request):
    request["separator"] = chance.choice([b":", b" : ", b" :", b":\t", b":  ", b"", b"=", b":\r\n ", b":\n "])


def odd_line_end(chance, request):
    request["end"] = chance.choice([b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n\r", b"\0\r\n", b" \r\n", b"\x85"])


def folded(chance, request):
    index = chance.randrange(len(request["fields"]))
    name, value = request["fields"][index]
    fold = chance.choice([b"\r\n ", b"\r\n\t", b"\n ", b"\r\n  \r\n "])
    request["fields"][index] = (name, chance.choice([fold + value, value + fold + b"x", value + fold]))


def control_in_value(chance, request):
    index = chance.randrange(len(request["fields"]))
    name, value = request["fields"][index]
    request["fields"][index] = (name, value + chance.choice([b"\0", b"\r", b"\x01", b"\x7f", b"\n", b"\x0c", b"\xff", b"\r\nX: y", b"\nX: y"]))


def chunk_line(chance, request):
    if isinstance(request["content"], bytes):
        return odd_length(chance, request)
    chunk = chance.choice(request["content"])
    size = chunk[0]
    chunk[0], chunk[1] = chance.choice([
        (size.upper(), b""), (b"0" + size, b""), (b"0" * 20 + size, b""), (size, b";a=b"), (size, b" ;a"), (size, b";a=\"q;\\\"\""), (size, b"\t"),
        (size, b" "), (b"0x" + size, b""), (b"+" + size, b""), (b"-" + size, b""), (size, b";\n"), (size, b";a\rb"), (size, b"g"), (size, b";\0"),
        (b" " + size, b""), (size + b"0", b""), (b"ffffffffffffffff", b""), (b"10000000000000001", b""), (b"", b""), (size, b"," + size),
        (size, b";a=\"\r\n0\r\n\r\n\""), (b"_" + size, b""), (size, b";" + b"x" * 5_000)])


def chunk_end(chance, request):
    if isinstance(request["content"], bytes):
        return odd_line_end(chance, request)
    chunk = chance.choice(request["content"])
    index = chance.choice([2, 4])
    chunk[index] = chance.choice([b"\n", b"\r", b"", b"\r\r\n", b" \r\n", b"x\r\n", b"\r\n\r\n", b"\n\n"])


def trailer(chance, request):
    if isinstance(request["content"], bytes):
        return both_framings(chance, request)
    last = request["content"][-1]
    last[4] = chance.choice([b"X-Trailer: 1\r\n", b"Content-Length: 5\r\n", b"Host: other\r\n", b"Transfer-Encoding: chunked\r\n", b"bad\r\n",
                             b" folded: x\r\n", b"X: \0\r\n", b"X : y\r\n", b"X: y\n"]) + b"\r\n"


def request_line(chance, request):
    key, value = chance.choice([
        ("space", b"  "), ("space", b"\t"), ("space", b" \t"), ("space", b"\x0b"), ("before", b"\r\n"), ("before", b"\r\n\r\n"), ("before", b"\n"),
        ("before", b" "), ("before", b"\0"), ("version", b"HTTP/1.0"), ("version", b"HTTP/1.2"), ("version", b"HTTP/2.0"), ("version", b"http/1.1"),
        ("version", b"HTTP/1.1 "), ("version", b"HTTP/01.1"), ("version", b"HTTP/1.1\r"), ("version", b""), ("version", b"HTTP/0.9"),
        ("method", b"get"), ("method", b"POST\0"), ("method", b"P(ST"), ("method", b"DELETE"), ("method", b"OPTIONS"), ("method", b"X"),
        ("method", b"HEAD"), ("method", b"PATCH"), ("method", b""), ("method", b"QUERY"),
        ("target", b"http://localhost" + request["target"]), ("target", b"http://other" + request["target"]),
        ("target", request["target"] + b"?a=b&c=%20"), ("target", request["target"] + b"\xff"),
        ("target", request["target"] + b"%41"), ("target", request["target"] + b"\\x"), ("target", request["target"] + b" x"),
        ("target", request["target"] + b"?" + b"y" * 500), ("target", request["target"] + b"^`{|}")])  # Puma 5 does not respond on a kept connection to a target with one of "<>
    request[key] = value


def connection_option(chance, request):
    field = chance.choice([
        (b"Connection", b"close"), (b"Connection", b"keep-alive"), (b"Connection", b"Content-Length"), (b"Connection", b"Transfer-Encoding"),
        (b"Connection", b"close, Host, X-Number"), (b"Connection", b"Upgrade, HTTP2-Settings"), (b"Upgrade", b"h2c"), (b"Upgrade", b"websocket"),
        (b"Expect", b"100-continue"), (b"Expect", b"other"), (b"TE", b"trailers"), (b"Trailer", b"Content-Length"), (b"Host", b"second"),
        (b"Proxy-Connection", b"keep-alive"), (b"Content_Length", b"3"), (b"X-HTTP-Method-Override", b"DELETE")])
    if field[0] == b"Expect" and not request["content"]:
        return  # a client must not expect anything without content (RFC 9110 §10.1.1), and waitress waits for it
    request["fields"].insert(chance.randint(0, len(request["fields"])), field)


MUTATIONS = [duplicate_field, other_case, both_framings, odd_coding, odd_length, odd_name, odd_separator, odd_line_end, folded,
             control_in_value, chunk_line, chunk_end, trailer, request_line, connection_option]


def any_byte(chance, data: bytes) -> bytes:
    place = chance.randrange(len(data))
    byte = bytes([chance.choice([*b"\r\n\0 \t:;,0aZ", chance.randrange(256)])])
    return chance.choice([data[:place] + byte + data[place:], data[:place] + byte + data[place + 1:], data[:place] + data[place + 1:],
                          data[:place] + data[place:place + 8] + data[place:], data[:place]])


def address(number: int) -> str:
    """The source address of a connection, by which its requests are found in the access log and in the record."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def grouped(lines: list[dict]) -> dict[str, list[dict]]:
    groups = collections.defaultdict(list)
    for line in lines:
        groups[(line.get("client") or "").split(",")[0]].append(line)
    return groups


class EnckeFiles:
    """Encke as the application: its access log is the record. It responds with 404 and 405 to everything."""

    def __init__(self, lab: Lab):
        self.server = lab.gateway([], settings={"server": {"trusted_proxies": ["127.0.0.1"]}})
        self.url = f"http://127.0.0.1:{self.server.port}"

    def record(self) -> list[dict]:
        return [{**line, "digest": None} for line in self.server.lines()]


def path_form(target: str) -> str:
    """The path and query of a target, resolved and decoded as Encke does if the path is not plain."""
    path, _, query = re.sub(r"^http://[^/?]*", "", target, flags=re.IGNORECASE).partition("?")
    if re.search("//|/[.]|%", path):
        path = re.sub("/+", "/", urllib.parse.unquote(path, encoding="latin-1"))
        parts, segments = [], path.split("/")[1:]
        for segment in segments:
            if segment == "..":
                parts = parts[:-1]
            elif segment != ".":
                parts.append(segment)
        if segments and segments[-1] in (".", ".."):
            parts.append("")
        path = "/" + "/".join(parts)
    # ASGI does not tell an empty query from none.
    return path + ("?" + query if query else "")


def judge(app: str, data: bytes, lines: list[dict], seen: list[dict], responses: bytes, is_changed: bool) -> str | None:
    """Returns the fault of one connection, if there is one. `lines` is the part of the access log for it, in order."""
    sent = oracle(data)
    logged = [(line["method"], path_form(line["target"] or ""), line["status"], line["reason"]) for line in lines]
    executed, possible = [], []
    for index, line in enumerate(lines):
        request = sent[index] if index < len(sent) else None
        if line["reason"] is not None:
            if line["status"] in (502, 503, 504):
                return f"the application failed: {logged}"
            # Encke may have rejected the body after the application had the head.
            if app in WITHOUT_BODIES and request and logged[index][1] == path_form(request.target):
                possible.append(request)
            continue
        if not request or logged[index][:2] != (request.method, path_form(request.target)):
            return f"Encke forwarded {logged}, and the client sent {sent}"
        # A server may reject a request before its application sees it.
        if line["status"] == 200 or app == "encke":
            executed.append(request)
            possible.append(request)
    if not is_changed and len(executed) != len(sent):
        return f"Encke forwarded {logged} of {len(sent)} valid requests"
    missing = list(executed)
    if app == "encke":
        # The lines of two workers are in one log, in any order.
        order = [(method, target) for method, target, *_ in logged]
        place = {one: index for index, one in reversed(list(enumerate(order)))}
        seen = sorted(seen, key=lambda line: place.get((line["method"], path_form(line["target"] or "")), len(order)))
    for line in seen:
        while possible and (possible[0].method, path_form(possible[0].target)) != (line["method"], path_form(line["target"] or "")):
            possible.pop(0)
        if not possible:
            brief = [(line["method"], line["target"], line.get("length")) for line in seen]
            return f"the application executed {brief}, and Encke forwarded {logged}"
        request = possible.pop(0)
        if request in executed:
            missing.remove(request)
            if line["digest"] != request.digest and app != "encke":
                return f"another body: the application executed {line}, and the client sent {request}"
    if missing:
        return f"the application did not execute {missing}, which Encke forwarded: {logged}"
    statuses = len(re.findall(rb"HTTP/1\.1 [2-5]\d\d ", responses))
    if statuses < len(executed):
        return f"{len(executed)} requests were executed, and {statuses} responses arrived"
    return None


@case(basic=("plain", "node", "encke"), more=("gunicorn", "uvicorn", "hypercorn", "puma", "starman"),
      full=("waitress", "go"))
def applications_execute_what_clients_have_sent(lab: Lab, app: str) -> str:
    """Mutated requests: each one that the application executes was forwarded as one request, was sent as one request, and has the
    body that was sent. No part of a body becomes a request. Planted: the mutated requests reach the application without Encke, and
    the log is that of a strict reader."""
    application = EnckeFiles(lab) if app == "encke" else lab.application(app)
    upstream = {"name": "app", "to": [application], "response_time": "10s", "keep": 0 if app in ("starman", "puma") else 64,
                # gunicorn closes idle connections after 2 s.
                "keep_time": "1s"}
    server = lab.gateway([{"pattern": "/**", "upstream": "app"}], [upstream])
    port = server.port
    if lab.planted:
        port = application.server.port if app == "encke" else application.port
    mutator = Mutator(lab, app)
    inputs = [mutator.connection(number) for number in range(100 if lab.planted else lab.of(150, 500, 5_000))]
    if lab.planted:
        inputs = [(re.sub(rb"X-Number: ", b"X-Forwarded-For: %s, " % address(number).encode(), data), names)
                  for number, (data, names) in enumerate(inputs)]
    responses: dict[int, bytes] = {}

    def send(number: int) -> None:
        with contextlib.closing(Connection(port, address(number), patience=lab.patience)) as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(inputs[number][0])
                client.shutdown(socket.SHUT_WR)
            try:
                responses[number] = client.to_end()
            except Fault as fault:
                raise Fault(f"{fault}: {inputs[number][1]}: {inputs[number][0]!r}") from None

    with ThreadPoolExecutor(CLIENTS) as pool:
        try:
            for result in [pool.submit(send, number) for number in range(len(inputs))]:
                result.result()
        except Fault:
            pool.shutdown(cancel_futures=True)
            raise
    # Lines are written when a response ends; this is the last one.
    require(server.ask(f"/{app}/echo/last").status in (200, 404), "the last request")
    lab.until(lambda: any(line["target"] == f"/{app}/echo/last" for line in server.lines()), "no line in the access log")
    lines, seen, faults = grouped(server.lines()), grouped(application.record()), []
    for number, (data, names) in enumerate(inputs):
        client = address(number)
        if lab.planted:
            lines[client] = [{"method": request.method, "target": request.target, "status": 200, "reason": None}
                             for request in oracle(data) if request.digest]
        fault = judge(app, data, lines[client], seen[client], responses[number], bool(names))
        if fault:
            faults.append(f"{names}: {fault}: {data!r}")
    require(not faults, f"{len(faults)} of {len(inputs)} connections, the first: {faults and faults[0][:3000]}")
    refused = sum(line["reason"] is not None for group in lines.values() for line in group)
    count = sum(map(len, seen.values()))
    require(count > len(inputs) // 4, f"only {count} requests were executed")
    return f"{len(inputs)} connections, {count} requests executed, {refused} refused"


@case(basic=("plain", "node"), more=("starman", "puma", "gunicorn"))
def underscores_do_not_disguise_fields(lab: Lab, app: str) -> str:
    """Servers of CGI, WSGI, Rack and PSGI make one variable of X-Sendfile-Type and X_Sendfile_Type. So a field that must not come
    from a client must not come under the other name, either. Planted: a field that is in no list."""
    application, server = lab.served(app)
    guarded = ["Transfer_Encoding", "Content_Length", "X_Sendfile_Type", "X_Accel_Mapping", "X_Forwarded_For", "X_Forwarded-Host",
               "X-Forwarded_Proto", "Proxy_Connection"]
    if lab.planted:
        guarded = ["X-Free"]
    for name in guarded:
        response = server.ask("/a/echo", "POST", b"12345", {name: "evil"})
        require(response.status in (200, 400), f"{name}: {response}")
    names = {name.lower().replace("_", "-") for name in guarded} - {"content-length", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"}
    for line in application.record():
        disguised = [name for name in line["fields"] if "_" in name or name in names]
        require(not disguised, f"the application sees {disguised}")
        require(line["client"] == "127.0.0.1" and line["length"] == 5, f"the application sees {line}")
    return f"{len(guarded)} fields"


@case(basic=("plain",))
def targets_with_fragments_are_rejected(lab: Lab, app: str) -> str:
    """A target has no fragment (RFC 9112 §3.2). Applications that cut one off would serve another path than the one that routes and
    rules were applied to. Planted: an escaped number sign."""
    application, server = lab.served(app)
    for target in ["/a/echo%23" if lab.planted else "/a/echo#", "/a/echo#/x", "/a/echo?q#x"]:
        response = server.ask(target)
        require(response.status == 400, f"{target}: {response.status}, and the application has {[line['target'] for line in application.record()]}")
    return "3 targets"
