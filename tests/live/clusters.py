"""Live streams on the nodes of a cluster, with a NATS server."""
import json
import signal

from containers import layout
from media import committed
from refusals import FRAME
from rig import Process, case, require, reserved_port
from stations import LiveRig, Station

NODES = ("a", "b", "c")
# Bytes near the end of FRAME: a listener that has them has received a whole FRAME.
MARK = FRAME[-2_000:-1_000]
NATS_PORT = r"client connections on 127\.0\.0\.1:(\d+)"


def nats(lab: LiveRig) -> str:
    """Starts a NATS server. Returns its URL."""
    folder = lab.path("nats")
    folder.mkdir()
    words = ["nats-server", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder / "store"]
    server = lab.started(Process(words, folder / "log"))
    return f"nats://127.0.0.1:{server.said(NATS_PORT)[1]}"


def cluster(lab: LiveRig, count: int, hold: str = "60s", more: tuple = (), **channel) -> list[Station]:
    """Starts nodes. `more` has further rules of streams."""
    url = nats(lab)

    def node(name: str) -> Station:
        # The settings of a node name its port.
        port = reserved_port(lab.stack)
        own = {"server": {"listen": f"127.0.0.1:{port}"},
               "cluster": {"nats": url, "name": f"node-{name}", "address": f"http://127.0.0.1:{port}"}}
        rules = [{"pattern": "**", "gather": "0s", "burst": "0s", "hold": hold, **channel}, *more]
        return lab.station(settings={**own, "live": {"channel": rules}})

    return [node(name) for name in NODES[:count]]


def until_held(lab: LiveRig, station: Station, name: str, node: str | None) -> None:
    """Waits until a node knows that another one has the source of a stream, or that none has."""

    def known() -> bool:
        streams = json.loads(station.ask("/live/", fields={"Accept": "application/json"}).body)["streams"]
        return next((stream.get("node") for stream in streams if stream["name"] == name), None) == node

    lab.until(known, f"node-{node} is not known to have {name}")


@case()
def each_node_delivers_a_stream_whose_source_is_on_another_node(lab: LiveRig) -> str:
    """A source on node A; listeners on B and C receive complete frames from a key frame on, and a clean end with the source. No message
    passes through NATS. Planted: the source is lost at once."""
    data = committed("vp8-vorbis.webm")
    expected = layout("vp8-vorbis.webm", data)
    one, *others = cluster(lab, 3, hold="300ms")
    until_held(lab, others[0], "film", None)
    sent = expected.starts[1] + 100
    source = one.source("film").begin(data[:sent])
    if lab.planted:
        source.kill()
    for other in others:
        until_held(lab, other, "film", "node-a")
    listeners = [other.listener("film", transport) for other in others for transport in ("http/1.1", "websocket")]
    for listener in listeners:
        listener.opened()
    source.send(data[sent:])
    one.until_sent()
    require(source.end().status == 200, "the source does not end well")
    for listener in listeners:
        fault = expected.complaint(listener.to_end(), 0, len(data))
        require(not fault, f"{listener.transport}: {fault}")
    published = [node.value("encke_cluster_publishes_total") for node in (one, *others)]
    require(published == [0, 0, 0], f"{published} messages were published to NATS")
    until_held(lab, others[0], "film", None)
    return f"{[len(listener.body) for listener in listeners]} bytes"


@case()
def a_cluster_has_one_source_of_a_stream_and_takeover_moves_it(lab: LiveRig) -> str:
    """A second source on node B gets a 409 that names node A. With `?takeover` it replaces that source, which gets a 409; the listeners
    on A, B and C continue with its bytes. Planted: the second source has no `?takeover`."""
    one, two, three = cluster(lab, 3)
    first = one.source("song").begin(FRAME[:8_000])
    for other in (two, three):
        until_held(lab, other, "song", "node-a")
    listeners = [node.listener("song") for node in (one, two, three)]
    for listener in listeners:
        require(listener.status == 200, listener.fields)
    first.send(FRAME[8_000:])
    for listener in listeners:
        listener.until_true(lambda body: MARK in body)
    # These nodes pull the stream. Another one only knows of its source.
    for node in (two, three):
        refused = node.source("song").response()
        require(refused.status == 409 and b"node-a" in refused.body, f"{refused} {refused.body}")
    one.source("other").begin(FRAME[:8_000])
    until_held(lab, two, "other", "node-a")
    refused = two.source("other").response()
    require(refused.status == 409 and b"node-a" in refused.body, f"{refused} {refused.body}")
    second = two.source("song", query="" if lab.planted else "?takeover")
    ended = first.response()
    require(ended.status == 409 and b"another source" in ended.body, ended)
    for other in (one, three):
        until_held(lab, other, "song", "node-b")
    second.repeat(FRAME, listeners, MARK, [len(listener.body) + 2_000 for listener in listeners])
    return f"{[len(listener.body) for listener in listeners]} bytes"


@case()
def the_death_of_a_node_ends_its_streams_on_the_others(lab: LiveRig) -> str:
    """Node A, which has the source, is killed. The listeners on B and C wait for `hold` and get a clean end. When the node's claim has
    expired, B accepts a source of the stream, and C delivers it. Planted: the hold is long."""
    one, two, three = cluster(lab, 3, hold="60s" if lab.planted else "1s")
    source = one.source("song").begin(FRAME[:8_000])
    for other in (two, three):
        until_held(lab, other, "song", "node-a")
    listeners = [node.listener("song") for node in (two, three)]
    for listener in listeners:
        listener.opened()
    source.send(FRAME[8_000:])
    for listener in listeners:
        listener.until_true(lambda body: MARK in body)
    one.send_signal(signal.SIGKILL)
    for listener in listeners:
        listener.to_end()
    for other in (two, three):
        until_held(lab, other, "song", None)
    again = two.source("song")
    again.send(FRAME)
    until_held(lab, three, "song", "node-b")
    late = three.listener("song")
    require(late.status == 200, late.fields)
    again.send(FRAME)
    late.until(5_000)
    return f"{[len(listener.body) for listener in listeners]} bytes"


@case()
def a_lost_source_returns_on_another_node_without_takeover(lab: LiveRig) -> str:
    """The source on node A is lost, and returns on node B, which still pulls the stream from A for its listener. B accepts it, and the
    listeners on A and B continue with it. Planted: the source on A stays."""
    one, two = cluster(lab, 2)
    first = one.source("song").begin(FRAME[:8_000])
    until_held(lab, two, "song", "node-a")
    listeners = [node.listener("song") for node in (one, two)]
    for listener in listeners:
        listener.opened()
    first.send(FRAME[8_000:])
    for listener in listeners:
        listener.until_true(lambda body: MARK in body)
    if not lab.planted:
        first.kill()
    until_held(lab, two, "song", None)
    require(two.info("song").get("state") == "live", "node B pulls the stream no more")
    second = two.source("song")
    until_held(lab, one, "song", "node-b")
    before = [len(listener.body) for listener in listeners]
    second.repeat(FRAME, listeners, MARK, [seen + 2_000 for seen in before])
    return f"{before} bytes from the first source"


@case()
def a_fallback_is_fetched_from_the_node_that_has_its_source(lab: LiveRig) -> str:
    """The source of the fallback is on node A. While the stream has no source, listeners on B and C receive the fallback: one that was
    connected, a new one, and one on a node that never had the stream. When the source returns, all receive it again. Planted: the
    fallback is another stream, which has no source."""
    fallback = "pause" if lab.planted else "loop"
    rule = {"pattern": "song", "gather": "0s", "burst": "0s", "hold": "60s", "fallback": fallback}
    one, two, three = cluster(lab, 3, more=(rule,))
    other = committed("vbr.mp3")
    loop = one.source("loop").begin(other[:1])
    for node in (two, three):
        until_held(lab, node, "loop", "node-a")
    first = two.source("song").begin(FRAME)
    listener = two.listener("song")
    listener.until_true(lambda body: MARK in body)
    first.kill()
    two.until_info("song", lambda info: info.get("state") in ("lost", "fallback"), "the loss is not noticed")
    until_held(lab, three, "song", None)
    listeners = [listener, two.listener("song"), three.listener("song")]
    loop.repeat(other[1:], listeners, other[-4_000:-3_000])
    require([node.info("song").get("state") for node in (two, three)] == ["fallback"] * 2, "the state is not `fallback`")
    second = two.source("song")
    until_held(lab, three, "song", "node-b")
    second.repeat(FRAME, listeners, MARK)
    return f"{[len(listener.body) for listener in listeners]} bytes"


@case()
def a_fallback_on_another_node_plays_when_the_stream_cannot_be_pulled(lab: LiveRig) -> str:
    """A stream is pulled from a server that is not there, and the source of its fallback is on node A: a listener on B receives the
    fallback. Planted: the stream has no fallback."""
    fallback = {} if lab.planted else {"fallback": "loop"}
    rule = {"pattern": "song", "gather": "0s", "burst": "0s", "pull": "http://127.0.0.1:1/live/", **fallback}
    one, two = cluster(lab, 2, more=(rule,))
    loop = one.source("loop").begin(FRAME[:8_000])
    until_held(lab, two, "loop", "node-a")
    listener = two.listener("song")
    require(listener.status == 200, f"{listener.head}")
    loop.repeat(FRAME, [listener], MARK)
    return f"{len(listener.body)} bytes"
