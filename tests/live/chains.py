"""Streams that nodes pull from each other."""
import signal

from harness import case, require
from refusals import FRAME
from stage import LiveLab, Station


def node(lab: LiveLab, *others: Station) -> Station:
    return lab.station(channel={"pull": [f"http://127.0.0.1:{other.port}/live/" for other in others], "hold": "60s"})


@case()
def a_chain_delivers_the_bytes_of_its_origin_and_survives_a_node(lab: LiveLab) -> str:
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
    middle.process.send_signal(signal.SIGKILL)
    before = len(listener.body)
    # The source sends until the other path delivers.
    for _ in range(400):
        source.send(FRAME)
        listener.socket.settimeout(0.1)
        try:
            listener.took(listener.socket.recv(1 << 16))
        except TimeoutError:
            continue
        if FRAME[-2_000:-1_000] in listener.body[before + 2_000:]:
            return f"{before} and {len(listener.body) - before} bytes"
    require(False, f"the listener at the edge gets nothing after the loss of a node: {edge.info('song')}")
