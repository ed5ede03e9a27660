"""Players: mpv, and Chromium by its own elements and by the pages of the server."""
import json
from collections.abc import Callable, Sequence

from media import FILES, sending
from rig import REPOSITORY, Fault, ProcessGroup, at_once, case, require
from stations import LiveRig, Station

BROWSER = REPOSITORY / "tests/browser"
# A stream and the element that plays it. MPEG-TS needs the player page, which feeds a SourceBuffer.
IN_CHROMIUM = (("webm", "video"), ("mp4", "video"), ("mp3", "audio"), ("ogg-opus", "audio"), ("mpegts", "page"), ("webm", "page"),
               ("mp4", "list"))
# Debug binaries, a browser and six sources on two busy cores. On an idle machine it is one
# second.
START_MS = 20_000
# The three steps of live-player.js before a stream plays take at most a minute each.
START_SECONDS_MAX = 200


@case(basic=(), more=(None,))
def mpv_plays_every_container(lab: LiveRig) -> str:
    """mpv plays three seconds of each container that ffmpeg sends, and reports no error. Planted: the streams are no media."""
    station = lab.station(channel={"gather": "auto", "burst": "1s"})
    played = {}

    def play(name: str) -> None:
        if lab.planted:
            station.source(name).send(lab.chance.randbytes(100_000))
            station.until_info(name, lambda info: info.get("container") == "unknown", f"{name}: no stream")
        else:
            station.ffmpeg(name, sending(name))
            station.until_info(name, lambda info: info.get("codecs"), f"{name}: no stream")
        words = ["mpv", "--no-config", "--vo=null", "--ao=null", "--length=3", "--msg-level=all=warn",
                 f"http://127.0.0.1:{station.port}/live/{name}"]
        mpv = lab.started(ProcessGroup(words, lab.new_path("mpv")))
        status, said = mpv.wait(lab.patience), mpv.log_text()
        bad = [line for line in said.splitlines() if any(word in line.lower() for word in ("error", "fail", "invalid", "corrupt"))]
        require(status == 0 and not bad, f"{name}: mpv exited with {status}: {said[-300:]}")
        played[name] = said

    at_once([lambda name=name: play(name) for name in FILES])
    return f"{len(played)} containers"


def in_chromium(lab: LiveRig, station: Station, seconds: float, streams: Sequence,
                meanwhile: Callable | None = None) -> list[dict]:
    """What tests/browser/live-player.js reports of streams of a station."""
    order = {"origin": f"http://127.0.0.1:{station.port}", "seconds": seconds, "streams": streams}
    errors, words = lab.new_path("errors"), ["node", "live-player.js", json.dumps(order)]
    with errors.open("wb") as file:
        node = lab.started(ProcessGroup(words, lab.new_path("node"), cwd=BROWSER, stderr=file))
    if meanwhile:
        meanwhile()
    status = node.wait(seconds + START_SECONDS_MAX)
    require(status == 0, f"node exited with {status}: {errors.read_text()[-400:]}")
    return json.loads(node.log_text())


@case(basic=(), more=(None,))
def the_page_of_a_node_plays_a_stream_of_another_one(lab: LiveRig) -> str:
    """The player page of a node that has not fetched the stream yet asks for it as a listener, and plays. Planted: the node knows no
    other one."""
    origin = lab.station(channel={"gather": "auto", "burst": "3s"})
    edge = lab.station(channel={} if lab.planted else {"burst": "3s", "pull": [f"http://127.0.0.1:{origin.port}/live/"]})
    origin.ffmpeg("webm", sending("webm"))
    origin.until_info("webm", lambda info: info.get("codecs"), "no stream")
    [seen] = in_chromium(lab, edge, 6, [("webm", "page")])
    require(not seen["errors"] and seen["played"] > 1, f"{seen}")
    return f"playing after {seen['playing']} ms"


@case(basic=(), more=(None,))
def chromium_plays_without_a_stall(lab: LiveRig) -> str:
    """Chromium joins and plays `<video>` of WebM and fMP4, `<audio>` of MP3 and Ogg, and the player page of MPEG-TS and WebM: soon after
    the join, without a stall, and in time; the list shows a stream, and no page logs a message. Planted: the sources stop while
    Chromium plays."""
    # A busy machine stops encoders and players for a second: three seconds are in their buffers.
    station = lab.station(channel={"gather": "auto", "burst": "3s", "hold": "60s"})
    pushers = []
    for name in dict.fromkeys(name for name, _ in IN_CHROMIUM):
        pushers.append(station.ffmpeg(name, sending(name)))
        station.until_info(name, lambda info: info.get("codecs") and info["bit_rate"], f"{name}: no stream")
    seconds = lab.of(0, 10, 60)

    def kill() -> None:
        for name, element in IN_CHROMIUM:
            if element != "list":
                station.until_info(name, lambda info: info["listeners"] > 0, f"{name}: nobody listens")
        for pusher in pushers:
            pusher.kill()

    # A stall of the server comes again. Those of a busy machine do not come three times in a row.
    for _ in range(1 if lab.planted else 3):
        late, starts = [], []
        for (name, element), seen in zip(IN_CHROMIUM, in_chromium(lab, station, seconds, IN_CHROMIUM, kill if lab.planted else None)):
            what = f"{element} of {name}"
            require(not seen["messages"], f"{what}: {seen['messages']}")
            if element == "list":
                require(name in seen["text"], f"{what}: {seen['text'][:200]!r}")
                continue
            if seen["errors"]:
                late.append(f"{what}: {seen}")
                continue
            late += [f"{what}: {fault}" for is_late, fault in (
                (seen["playing"] >= START_MS, f"plays after {seen['playing']} ms"),
                (seen["waits"], f"stalls after {seen['waits']} ms"),
                (abs(seen["played"] - seen["took"]) >= 1.5, f"plays {seen['played']:.1f} s in {seen['took']:.1f} s"),
                (element != "audio" and seen["frames"] <= seconds * 10, f"{seen['frames']} pictures in {seconds} s"),
            ) if is_late]
            starts.append(seen["playing"])
        if not late:
            return f"playing after {starts} ms"
    raise Fault("; ".join(late))
