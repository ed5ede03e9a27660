"""An application on Python's own server. The second part of the path says what it does; see `Handler`.

It listens on descriptor 3. With the variable SINGLE it serves one connection at a time, like a worker of a prefork server.
"""
import gzip
import hashlib
import http.server
import json
import os
import socket
import struct
import time
from base64 import b64encode
from urllib.parse import parse_qs, urlsplit

from notes import GATE, blocks, note, note_request


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str):
        if name.startswith("do_"):  # every method
            return self.serve
        raise AttributeError(name)

    def serve(self) -> None:
        url = urlsplit(self.path)
        self.query = parse_qs(url.query, keep_blank_values=True)
        verb = (url.path.split("/") + ["", ""])[2]
        getattr(self, f"verb_{verb}", self.verb_echo)()

    def handle_expect_100(self) -> bool:
        if "/refuse" not in self.path:
            return super().handle_expect_100()
        self.close_connection = True
        self.reply(413, b"too large", [("Connection", "close")])
        return False

    def pieces(self):
        """The body, in pieces."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            left = int(self.headers.get("Content-Length", 0))
            while left and (piece := self.rfile.read(min(left, 1 << 16))):
                left -= len(piece)
                yield piece
            if left:
                raise ConnectionError("the body is incomplete")

    def digest(self) -> tuple[int, str]:
        sum_, length = hashlib.sha256(), 0
        for piece in self.pieces():
            sum_.update(piece)
            length += len(piece)
        return length, sum_.hexdigest()

    def reply(self, status: int, body: bytes, fields=(), length: bool = True) -> None:
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        if length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def verb_echo(self) -> None:
        """Records the request."""
        length, digest = self.digest()
        note_request(self.command, self.path, length, digest, self.headers.items())
        self.reply(200, digest.encode(), [("X-Seen", "1")])

    def verb_fields(self) -> None:
        self.reply(200, json.dumps(self.headers.items()).encode(), [("Content-Type", "application/json")])

    def verb_send(self) -> None:
        """Names a file in a response with content of its own."""
        given = [(name, value) for name, values in self.query.items() if name not in ("body", "file") for value in values]
        body = bytes(int(self.query.get("body", ["0"])[0]))
        if path := self.query.get("file"):
            with open(path[0], "rb") as file:
                body = file.read()
        note_request(self.command, self.path, 0, "", self.headers.items())
        self.reply(200, body, given)

    def verb_sum(self) -> None:
        """Reads the body once the gate is open, and then slowly."""
        while not os.path.exists(GATE):
            time.sleep(0.01)
        length, digest = self.digest()
        self.reply(200, f"{length} {digest}".encode())

    def verb_make(self) -> None:
        count = int(self.query["blocks"][0])
        self.send_response(200)
        self.send_header("Content-Length", str(count << 16))
        self.end_headers()
        try:
            for block in blocks(count if self.command != "HEAD" else 0):
                self.wfile.write(block)
        except OSError:
            note(event="left")
            self.close_connection = True

    def verb_hold(self) -> None:
        """Does not respond, and waits for the end of the connection."""
        note(event="held")
        try:
            self.rfile.read(1)
        except OSError:
            pass
        note(event="left")
        self.close_connection = True

    def verb_sse(self) -> None:
        """Each event is written after the request for it (verb next)."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(self.query["events"][0])):
            while not os.path.exists(f"{GATE}.{number}"):
                time.sleep(0.001)
            event = f"data: {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def verb_trailers(self) -> None:
        self.send_response(200)
        self.send_header("Trailer", "X-Sum")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"9\r\na trailer\r\n0\r\nX-Sum: 1\r\n\r\n")

    def verb_status(self) -> None:
        """Responds without content."""
        status = int(self.query["code"][0])
        self.send_response(status)
        self.send_header("ETag", '"v1"')
        if status not in (204, 304):
            self.send_header("Content-Length", "0")
        self.end_headers()

    def verb_close(self) -> None:
        """The content ends with the connection."""
        self.close_connection = True
        self.reply(200, bytes(int(self.query["bytes"][0])), [("Connection", "close")], length=False)

    def verb_short(self) -> None:
        """Closes within the response."""
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(bytes(500))
        self.close_connection = True

    def verb_gzip(self) -> None:
        fields = [("Content-Encoding", "gzip"), ("Content-Type", "text/plain"), ("Vary", "Accept-Encoding")]
        self.reply(200, gzip.compress(b"text " * 1000, mtime=0), fields)

    def verb_hints(self) -> None:
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
        while not os.path.exists(GATE):  # the client has the hints
            time.sleep(0.001)
        self.reply(200, b"final")

    def verb_refuse(self) -> None:
        self.reply(200, b"not refused")

    def verb_ws(self) -> None:
        """Echoes the frames of a WebSocket. The first frame follows the 101 at once."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.close_connection = True
        self.wfile.write(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode() + b"\x81\x05first")
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return note(event="left")
            size = head[1] & 127
            if size == 126:
                size, = struct.unpack(">H", self.rfile.read(2))
            elif size == 127:
                size, = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            payload = bytes(byte ^ mask[index & 3] for index, byte in enumerate(self.rfile.read(size)))
            length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
            self.wfile.write(head[:1] + length + payload)
            if head[0] & 15 == 8:
                return note(event="closed")

    def log_message(self, *_) -> None:
        pass


def main() -> None:
    kind = http.server.HTTPServer if os.environ.get("SINGLE") else http.server.ThreadingHTTPServer
    server = kind(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=3)
    if server.socket.family == socket.AF_UNIX:
        server.get_request = lambda: (server.socket.accept()[0], ("local", 0))
    server.serve_forever()


main()
