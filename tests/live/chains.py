"""Streams that nodes pull from each other."""
import contextlib
import signal
import socket
import subprocess
import threading

from refusals import FRAME
from rig import BEARER, LOCALHOST, TOKEN, ProcessGroup, authority, case, require
from stations import LiveRig, Station


def node(lab: LiveRig, *others: Station) -> Station:
    return lab.station(channel={"pull": [f"http://127.0.0.1:{other.port}/live/" for other in others], "hold": "60s"})


@case()
def a_chain_delivers_the_bytes_of_its_origin_and_survives_a_node(lab: LiveRig) -> str:
    """C pulls from B, and B from A, once C has a listener: it receives the bytes of the source at A. B is killed; C pulls from A, and its
    listener continues. Planted: C knows only B."""
    origin = lab.station(channel={"hold": "60s"})
    middle = node(lab, origin)
    edge = node(lab, *([middle] if lab.planted else [middle, origin]))
    source = origin.source("song").begin(FRAME[:8_000])
    require(not middle.info("song") and not edge.info("song"), "a node pulls a stream without listeners")
    listener = edge.listener("song")
    source.send(FRAME[8_000:])
    listener.until_true(lambda body: FRAME[-2_000:-1_000] in body)
    require(bytes(listener.body[:1_000]) in FRAME, "the bytes at the edge are not those of the origin")
    require(middle.info("song").get("state") == "live", "the node in the middle has no stream")
    middle.send_signal(signal.SIGKILL)
    before = len(listener.body)
    # The source sends until the other path delivers.
    source.repeat(FRAME, [listener], FRAME[-2_000:-1_000], [before + 2_000])
    return f"{before} and {len(listener.body) - before} bytes"


@case()
def a_pull_by_https_proves_the_name_of_its_server(lab: LiveRig) -> str:
    """A node pulls by https from a server whose certificate has the name in the URL and a known issuer. With another name, or an unknown
    issuer, listeners get a 502 that says so; `name` states another name. Planted: the right node does not know the issuer."""
    folder = lab.path("certificates")
    authority(folder, {"localhost": LOCALHOST})
    ca, tls = folder / "ca.pem", {"cert": str(folder / "localhost.pem"), "key": str(folder / "localhost.key")}
    origin = lab.station(settings={"server": {"listen": {"address": "127.0.0.1:0", "tls": tls}}}, channel={"hold": "60s"})

    def edge(host: str, **tls) -> Station:
        return lab.station(channel={"pull": [f"https://{host}:{origin.port}/live/"]}, settings={"live": {"tls": tls}})

    words = ["curl", "--silent", "--insecure", "-T", "-", "-H", "Transfer-Encoding: chunked",
             f"https://localhost:{origin.port}/live/song"]
    source = lab.started(ProcessGroup(words, lab.new_path("curl"), stdin=subprocess.PIPE))
    source.process.stdin.write(FRAME)
    source.process.stdin.flush()
    lab.until(lambda: origin.value("encke_live_source_bytes_total") >= len(FRAME), "the source does not arrive")
    for right in (edge("localhost", **({} if lab.planted else {"ca": str(ca)})), edge("127.0.0.1", ca=str(ca), name="localhost")):
        listener = right.listener("song")
        require(listener.status == 200, f"{listener.head}")
        require(bytes(listener.until(1_000)) in FRAME, "the bytes are not those of the origin")
    texts = []
    for wrong in (edge("127.0.0.1", ca=str(ca)), edge("localhost")):
        answer = wrong.ask("/live/song")
        require(answer.status == 502 and b"certificate" in answer.body, f"{answer}: {answer.body!r}")
        texts.append(answer.body.decode().partition("/song: ")[2].strip())
    return "; ".join(texts)


@case()
def a_pull_sends_its_token_to_its_own_server_only_and_nobody_sees_it(lab: LiveRig) -> str:
    """A node pulls with a token of a file, or of the settings, from a server that grants `subscribe` to it alone. Without it, or with
    another one, listeners get a 502 that says so. A redirection to another server is followed without the token. No log, list, status,
    page of settings or response shows it. Planted: the token is a wrong one."""
    secret, name = "s3cret-of-the-origin-0123456789", "origin.token"
    (lab.folder / name).write_text(f"{'another' if lab.planted else secret}\n")
    grants = {"anonymous": ["publish"], "tokens": [{"token": secret, "subscribe": ["live/**"]}]}
    origin = lab.station(settings={"auth": grants}, channel={"hold": "60s"})
    origin.source("song").begin(FRAME)
    url = f"http://127.0.0.1:{origin.port}/live/"

    def edge(pull: object) -> Station:
        return lab.station(channel={"pull": pull}, settings={"log": {"level": "debug"}})

    edges = [edge({"url": url, "token": {"file": str(lab.folder / name)}}), edge([{"url": f"{url}song", "token": secret}])]
    for right in edges:
        listener = right.listener("song")
        require(listener.status == 200, f"{listener.head}")
        require(bytes(listener.until(1_000)) in FRAME, "the bytes are not those of the origin")
    missing = {"url": url, "token": {"file": str(lab.folder / "none")}}
    for pull, status, public, own in (([url], 401, "", ""), ({"url": url, "token": f"{secret}x"}, 401, "", ""),
                                      (missing, 0, "the token for the server cannot be used", str(lab.folder / "none"))):
        wrong = edge(pull)
        edges.append(wrong)
        answer = wrong.ask("/live/song")
        text = public or f"status {status}: the server requires another token"
        require(answer.status == 502 and text in answer.body.decode(), f"{answer}: {answer.body!r}")
        require(not own or own not in answer.body.decode() and own in wrong.log_text(), f"{answer.body!r}, {wrong.log_text()}")

    # A server that redirects, and another one to which it does: both note the request.
    heads = {}
    target = heads_of(lab, heads, "target", lambda: b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    location = f"http://127.0.0.1:{target}/live/song".encode()
    first = heads_of(lab, heads, "first", lambda: b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % location)
    edges.append(edge({"url": f"http://127.0.0.1:{first}/live/", "token": secret}))
    require(edges[-1].ask("/live/song").status == 502, "a stream without a source")
    require(f"Authorization: Bearer {secret}\r\n" in heads["first"], heads)
    require("GET /live/song " in heads["target"] and "Authorization" not in heads["target"], heads)

    paths = ["status", "lists/live", "lists/connections", "settings", "notices", "overview"]
    for one in edges:
        seen = [one.log_text(), one.ask("/live/song?info").body.decode()]
        client = one.client(port=one.admin)
        answers = [client.ask(f"/api/v1/{path}", fields=BEARER) for path in paths]
        require(all(answer.status == 200 for answer in answers), f"{answers}")
        seen += [answer.body.decode() for answer in answers]
        done = subprocess.run([lab.encke, "status", "--json", "--token", TOKEN, f"http://127.0.0.1:{one.admin}"], capture_output=True,
                              text=True, timeout=lab.patience)
        require(done.returncode == 0 and "live" in done.stdout, f"{done}")
        shown = [text for text in [*seen, done.stdout] if secret in text]
        require(not shown, f"{shown}")
    return f"{len(edges)} nodes"


def heads_of(lab: LiveRig, heads: dict, name: str, response) -> int:
    """Starts a server that keeps the head of its last request as `heads[name]`. Returns its port."""
    server = lab.keep(socket.create_server(("127.0.0.1", 0)))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    client.settimeout(lab.patience)
                    heads[name] = b"".join(iter(client.makefile("rb").readline, b"\r\n")).decode()
                    client.sendall(response())

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]
