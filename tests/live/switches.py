"""Sources that are lost, return, and are replaced."""
from containers import layout
from media import committed, decoded
from refusals import FRAME
from rig import case, require
from stations import LiveRig

GOES_ON = ("mp3", "aac", "ts", "ogg")
EACH = ("cbr.mp3", "tone.aac", "h264-aac.ts", "opus.ogg", "vp8-vorbis.webm", "h264-aac.mp4", "h264-aac.flv")


@case(basic=EACH)
def a_source_that_returns_keeps_its_listeners_or_ends_them_cleanly(lab: LiveRig, file: str) -> str:
    """A source is cut within a frame and returns. Listeners of MP3, ADTS, MPEG-TS and Ogg continue: after whole frames of the first source
    they receive all of the second, and ffmpeg decodes both. The others get a clean end with whole frames, and a new GET the new
    stream. Planted: the second source sends no more than its head."""
    data, goes_on = committed(file), file.rpartition(".")[2] in GOES_ON
    expected = layout(file, data)
    # On one worker, a new listener can join at all bytes that another one has received.
    station = lab.station(channel={"hold": "60s"}, settings={"server": {"workers": 1}})
    cut = lab.chance.randrange(expected.starts[-1] - 1_000, expected.starts[-1])
    first, before = station.source("film").begin(data[:1]), station.listener("film")
    first.send(data[1:cut])
    before.until(expected.head_bytes + 1)
    station.until_sent()
    first.kill()
    station.until_info("film", lambda info: info.get("state") == "lost", "the loss is not noticed")
    during = station.listener("film")
    second = station.source("film").begin(data[:max(expected.head_bytes, 1)])
    if not lab.planted:
        second.send(data[max(expected.head_bytes, 1):])
    station.until_sent()
    if not goes_on:
        before.to_end()
    after = station.listener("film")
    require(after.status == 200, after.fields)
    require(second.end().status == 200, "the second source does not end well")
    # The end of the hold is not awaited: a third source of another container ends all.
    station.source("film").begin(committed("unknown-size.webm" if goes_on else "cbr.mp3"))
    whole = data[expected.starts[0]:len(expected.data)]
    body = before.to_end()
    if goes_on:
        require(body.endswith(whole), f"the listener has {len(body)} bytes, not all of the second source")
        body, old = body[:-len(whole)], body
        # ffmpeg 5.1 takes the head of a chained Opus stream for a packet.
        if lab.tier != "basic" and not file.startswith("opus"):
            path = lab.path("both")
            path.write_bytes(old)
            require(not (said := decoded(path)), f"ffmpeg says: {said[:300]}")
        if expected.head_bytes:
            require(body[-expected.head_bytes:] == old[:expected.head_bytes], "the new head is not between both")
            body = body[:-expected.head_bytes]
    start = expected.data.find(body[expected.head_bytes:])
    require(start in expected.starts, f"what the first source sent is not whole: {len(body)} bytes, found at {start}")
    end = start + len(body) - expected.head_bytes
    # Frames that are no start may be the last.
    require(end <= cut and (not goes_on or file.endswith(".ts") or end in expected.starts), f"{end} of {cut} bytes is within a frame")
    during.to_end()
    # Where listeners continue, this one may begin with frames of the first source.
    fault = "" if goes_on else expected.complaint(after.to_end(), 0, len(data))
    require(not fault and after.to_end().endswith(expected.data[expected.starts[-1]:]), f"a listener of the second source: {fault}")
    return f"cut at {cut}"


@case(basic=EACH)
def listeners_end_cleanly_when_the_hold_has_passed(lab: LiveRig, file: str) -> str:
    """A source is lost and does not return. After `hold` all listeners get a clean end, by each transport; then a GET gets a 404 with
    `Retry-After`, and the list is empty. Planted: the hold is long."""
    data = committed(file)
    station = lab.station(channel={"hold": "60s" if lab.planted else "300ms"})
    source = station.source("film").begin(data[:-20])
    listeners = [station.listener("film", transport) for transport in ("http/1.1", "http/1.0", "websocket")]
    for listener in listeners:
        require(listener.status == listener.expected, f"{listener.transport}: {listener.head}")
    source.kill()
    for listener in listeners:
        require(len(listener.to_end()) > 100, f"{listener.transport}: nothing was received")
    station.until_gone("film")
    answer = station.ask("/live/film")
    require(answer.status == 404 and answer.fields["Retry-After"], answer)
    return f"{[len(listener.body) for listener in listeners]} bytes"


@case()
def a_fallback_plays_while_the_source_is_absent(lab: LiveRig) -> str:
    """While the source of a stream is absent, listeners receive the fallback stream: those that were connected, and new ones. When the
    source returns, all receive it again, in one response. Planted: the fallback stream has no source."""
    station = lab.station(settings={"live": {"channel": [
        {"pattern": "**", "gather": "0s", "burst": "0s", "hold": "60s"},
        {"pattern": "song", "gather": "0s", "burst": "0s", "hold": "60s", "fallback": "loop"}]}})
    own, other = FRAME, committed("vbr.mp3")
    loop = None if lab.planted else station.source("loop").begin(other[:1])
    first = station.source("song").begin(own)
    listener = station.listener("song")
    listener.until_true(lambda body: own[-2_000:-1_000] in body)
    first.kill()
    station.until_info("song", lambda info: info.get("state") in ("lost", "fallback"), "the loss is not noticed")
    if loop:
        loop.send(other[1:])
    new = station.listener("song")
    for one in (listener, new):
        one.until_true(lambda body: other[-4_000:-3_000] in body)
    second = station.source("song").begin(own)
    second.send(own)
    for one in (listener, new):
        one.until_true(lambda body: own[-2_000:-1_000] in body[body.rfind(other[-4_000:-3_000]):])
    return f"{len(listener.body)} and {len(new.body)} bytes"


@case()
def listeners_of_a_source_without_pictures_end_with_it(lab: LiveRig) -> str:
    """A source sends the head of an MP4 and is lost. Its listeners, which have received nothing, get a clean end after `hold`, by each
    transport. Planted: the hold is long."""
    data = committed("h264-aac.mp4")
    station = lab.station(channel={"hold": "60s" if lab.planted else "300ms"})
    source = station.source("film").begin(data[:layout("h264-aac.mp4", data).head_bytes])
    listeners = [station.listener("film", transport) for transport in ("http/1.1", "http/1.0", "websocket")]
    for listener in listeners:
        require(listener.status == listener.expected, f"{listener.transport}: {listener.head}")
    source.kill()
    for listener in listeners:
        require(listener.to_end() == b"", f"{listener.transport}: {bytes(listener.body[:100])!r}")
    station.until_gone("film")
    return f"{len(listeners)} listeners"
