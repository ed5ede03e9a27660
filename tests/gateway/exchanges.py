"""Interim responses, statuses without content, and other ways to frame a response."""
import gzip
import json
import signal

from applications import Lab
from rig import Fault, case, require


@case(basic=("plain", "node"))
def early_hints_arrive_before_the_response(lab: Lab, app: str) -> str:
    """A 103 arrives with its Link field before the application has written its final response. Planted: another field is
    expected."""
    application, server = lab.served(app)
    client = server.requested("/a/hints", fields="Connection: close\r\n")
    # Before the final response, for which the gate must be open.
    head = client.head()
    require(head.startswith(b"HTTP/1.1 103 ") and (b"</b.css>" if lab.planted else b"</a.css>; rel=preload") in head, head)
    application.open_gate()
    head, body = client.head(), client.to_end()
    require(head.startswith(b"HTTP/1.1 200 ") and b"final" in body, head)
    # HTTP/1.0 has no interim responses.
    client = server.requested("/a/hints", version="1.0")
    require(b" 200 " in (head := client.head()), head)
    return "103, then 200"


@case(basic=("plain", "node"), more=("uvicorn", "puma", "gunicorn", "hypercorn"))
def the_application_decides_about_100_continue(lab: Lab, app: str) -> str:
    """`Expect: 100-continue` reaches the application: the body is sent once it agrees. An application that refuses gets none of it,
    and its 413 arrives at the client. Planted: the client expects a 200."""
    application, server = lab.served(app)
    body = lab.chance.randbytes(100_000)

    def ask(target: str):
        client = server.requested(target, "POST", f"Connection: close\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n")
        return client, client.head()

    client, head = ask("/a/echo")
    require(head.startswith(b"HTTP/1.1 100 "), head)
    client.sendall(body)
    head = client.head()
    require(head.startswith(b"HTTP/1.1 200 ") and b"x-seen" in head.lower(), head)
    if app in ("plain", "node"):
        client, head = ask("/a/refuse")
        require(head.startswith(b"HTTP/1.1 200 " if lab.planted else b"HTTP/1.1 413 "), head)
    elif lab.planted:
        raise Fault("only applications that refuse have the planted fault")
    seen = application.record()
    require([line["length"] for line in seen if "length" in line] == [len(body)], seen)
    return "100, then 200" + ("; 413" if app in ("plain", "node") else "")


@case(basic=("plain", "node"))
def responses_without_content_end_at_once(lab: Lab, app: str) -> str:
    """HEAD, 204 and 304 have no content, and both connections carry the next response. Planted: a response with content."""
    _, server = lab.served(app)
    client = server.client()
    for _ in range(3):
        for method, target, status in [("GET", "/a/status?code=204", 204), ("HEAD", "/a/make?blocks=3", 200),
                                       ("GET", "/a/status?code=304", 304), ("HEAD", "/a/gzip", 200), ("GET", "/a/status?code=200", 200),
                                       *([("GET", "/a/echo", 200)] if lab.planted else [])]:
            response = client.ask(target, method)
            require((response.status, response.body) == (status, b""), f"{method} {target}: {response}")
            if "make" in target:
                require(response.fields["Content-Length"] == str(3 << 16), f"{method} {target}: {response}")
            if "status" in target:
                require(response.fields["ETag"] == '"v1"', f"{method} {target}: {response}")
            require(status != 204 or response.fields["Content-Length"] is None, f"{method} {target}: {response}")
    after = client.ask("/a/echo")
    require(after.status == 200 and len(after.body) == 64, after)
    return "15 responses on one connection"


@case(basic=("plain", "node"))
def a_response_may_end_with_its_connection(lab: Lab, app: str) -> str:
    """A response without length and chunks ends when the application closes; the client's connection stays open. Planted: a
    shorter content is expected."""
    _, server = lab.served(app)
    client = server.client()
    for bytes_ in (0, 1, 100_000):
        response = client.ask(f"/a/close?bytes={bytes_}")
        require((response.status, len(response.body)) == (200, bytes_ - lab.planted), f"{bytes_} bytes: {response}")
    require(client.ask("/a/echo").status == 200, "the next request")
    old = server.requested("/a/close?bytes=5", version="1.0")
    head = old.head()
    require(old.to_end() == bytes(5), head)
    return "3 lengths, HTTP/1.0 and 1.1"


@case(basic=("plain", "node"))
def compressed_responses_pass_unchanged(lab: Lab, app: str) -> str:
    """Content that the application has compressed reaches the client as it is. Planted: another text is expected."""
    _, server = lab.served(app)
    for accepted in ("gzip", "identity", "zstd, br"):
        response = server.ask("/a/gzip", fields={"Accept-Encoding": accepted})
        require(response.status == 200 and response.fields.get_all("Content-Encoding") == ["gzip"], response)
        require(gzip.decompress(response.body) == b"text " * (1000 + lab.planted), "the text differs")
        require(response.fields["Vary"] == "Accept-Encoding", response)
    return "3 requests"


@case(basic=("plain", "node"))
def applications_learn_the_client_from_encke_only(lab: Lab, app: str) -> str:
    """X-Forwarded-* come from Encke, fields of the client's connection stay here, and there is one Host. Planted: the client's
    address is expected to be its own claim."""
    application, server = lab.served(app)
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil", "Forwarded": "for=evil",
              "Connection": "X-Private, keep-alive", "X-Private": "1", "Keep-Alive": "timeout=5", "TE": "gzip",
              "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__", "Proxy-Connection": "close", "Host": "example.org:8080",
              "X-Kept": "1"}
    response = server.ask("/a/fields", fields=forged)
    require(response.status == 200, response)
    seen = [(name.lower(), value) for name, value in json.loads(response.body)]
    claim = "203.0.113.9" if lab.planted else "127.0.0.1"
    expected = [("host", "example.org:8080"), ("x-forwarded-for", claim), ("x-forwarded-proto", "http"),
                ("x-forwarded-host", "example.org:8080"), ("x-kept", "1")]
    for pair in expected:
        require([other for other in seen if other[0] == pair[0]] == [pair], f"{pair} in {seen}")
    names = {name for name, _ in seen}
    kept = names & {"forwarded", "x-private", "keep-alive", "upgrade", "http2-settings", "proxy-connection", "te"}
    require(not kept, f"the application sees {kept}")
    return f"{len(forged)} fields"


@case()
def unix_sockets_are_targets(lab: Lab) -> str:
    """An application on a Unix socket is served, and again after a restart. Planted: it is not started again."""
    application = lab.application("plain", unix=True)
    server = lab.gateway([{"pattern": "/**", "upstream": application}])
    require(server.ask("/a/echo").status == 200, "the first request")
    application.stop(signal.SIGKILL)
    response = server.ask("/a/echo")
    require(response.status == 502, f"without the application: {response}")
    if not lab.planted:
        application.start()
    response = server.ask("/a/echo")
    require(response.status == 200, f"after a restart: {response}")
    return "502 between"
