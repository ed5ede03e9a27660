"""An application that decides about requests by a cookie, as oauth2-proxy does. It listens on descriptor 3.

GET /check answers for the page in X-Forwarded-Uri: 200 with X-User for a session, 403 with a page for the session of `eve`, and a
redirect to /login without one. GET /login?user=NAME sets the cookie.
"""
import http.server
import os
import socket
from urllib.parse import parse_qs, quote, urlsplit

from notes import note


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def reply(self, status: int, body: bytes = b"", fields=()) -> None:
        self.send_response(status)
        for name, value in (*fields, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/login":
            user = parse_qs(url.query)["user"][0]
            return self.reply(303, fields=[("Location", "/app/"), ("Set-Cookie", f"session={user}; HttpOnly")])
        if url.path != "/check":
            return self.reply(200)
        note(method=self.command, target=self.headers["X-Forwarded-Uri"])
        session = self.headers.get("Cookie", "").partition("session=")[2].partition(";")[0]
        if not session:
            page = quote(self.headers["X-Forwarded-Uri"], safe="")
            return self.reply(302, b"log in", [("Location", f"/login?rd={page}"), ("Set-Cookie", "csrf=1")])
        if session == "eve":
            return self.reply(403, b"<h1>Not for you</h1>", [("Content-Type", "text/html")])
        kept = [("Cache-Control", f"max-age={os.environ['MAX_AGE']}")] if "MAX_AGE" in os.environ else []
        self.reply(200, fields=[("X-User", session), *kept])


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=3)
server.serve_forever()
