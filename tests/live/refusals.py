"""Requests of sources: framing, rights, and what follows a body; the list, and fields of responses."""
import json
import time

from media import committed, made
from rig import TOKEN, Fault, case, ended, require
from stations import BEARER_LINE, LAST_CHUNK, LiveRig

# Frames of MP3, without the tag at the end.
FRAME = committed("cbr.mp3")[:-128]
NEXT = b"GET /live/?smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def ask_raw(lab: LiveRig, station, bytes_: bytes) -> tuple[list, bool]:
    """Sends bytes. Returns all responses, and whether the server ended the connection."""
    client, responses = station.connect(), []
    client.sendall(bytes_)
    while True:
        responses.append(response := client.response())
        if client.received:
            continue
        if response.fields.get("connection") != "close":
            return responses, False
        lab.until(lambda: ended(client), "the connection stays open after Connection: close")
        return responses, True


@case()
def bodies_of_doubtful_length_are_refused_and_nothing_after_them_is_parsed(lab: LiveRig) -> str:
    """A PUT without length and chunks gets 411, one with both 400; the connection ends, and the request that follows in the same
    packet has no response and no line in the log. Planted: the PUT has a length of 0, after which the next request is one."""
    station = lab.station()
    doubtful = [(b"", 411), (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", 400),
                (b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", 400), (b"Transfer-Encoding: gzip\r\n", 400),
                (b"Content-Length: 4\r\nContent-Length: 5\r\n", 400), (b"Connection: close\r\nIce-Name: x\r\n", 411)]
    for method in (b"PUT", b"POST"):
        for fields, status in doubtful:
            fields = b"Content-Length: 0\r\n" if lab.planted else fields
            what = b"%s /live/film HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s" % (method, fields, NEXT)
            responses, closed = ask_raw(lab, station, what)
            statuses = [response.status for response in responses]
            require(statuses == [status] and closed, f"{what!r}: {statuses}, {'closed' if closed else 'open'}")
    station.ask("/live/?last")
    targets = lab.until(lambda: (lines := [line["target"] for line in station.lines()]) and lines[-1] == "/live/?last" and lines,
                        "the log has no line of the last request")
    require(not any("smuggled" in (target or "") for target in targets), f"a request in a body was executed: {targets}")
    return f"{2 * len(doubtful)} requests"


@case()
def a_request_after_the_last_chunk_of_a_source_is_an_ordinary_one(lab: LiveRig) -> str:
    """After the end of a source's body its connection serves the next request, whose bytes came with the last chunk. Planted: the
    last chunk is missing."""
    station = lab.station()
    source = station.source("song").begin(FRAME)
    source.socket.sendall((b"" if lab.planted else LAST_CHUNK) + NEXT)
    first, second, rest = source.response(), source.response(), source.socket.received
    require((first.status, second.status, rest) == (200, 200, b""), f"{first}, {second}, {rest!r}")
    require(json.loads(second.body)["schema"] == 1, second)
    return "200, then 200"


@case()
def a_source_that_waits_for_100_is_told_to_send(lab: LiveRig) -> str:
    """A source that sends `Expect: 100-continue` gets the 100 before any of its body, and becomes a source; a second one gets 409
    without a 100. Planted: the source does not expect it."""
    station = lab.station()
    expect = "" if lab.planted else "Expect: 100-continue\r\n"
    source = station.source("song", fields=expect)
    response, rest = source.response(), source.socket.received
    require((response.status, rest) == (100, b""), f"{response}, {rest!r}")
    source.begin(FRAME)
    second = station.source("song", fields=expect).response()
    require(second.status == 409, second)
    require(source.end().status == 200, "the source does not end well")
    return "100, 200; 409"


@case()
def rights_decide_who_sends(lab: LiveRig) -> str:
    """With `[auth]` a source needs a token with the right to publish: none gets 401, one without the right 403, and the connection
    of neither is read on. A listener needs the right to subscribe. Planted: all may publish."""
    reader = "reader-0123456789"
    auth = {"anonymous": ["publish"] if lab.planted else [],
            "tokens": [{"token": TOKEN, "name": "camera", "publish": ["live/**"]},
                       {"token": reader, "name": "reader", "subscribe": ["live/song"]}]}
    station = lab.station(settings={"auth": auth})
    for fields, status in (("", 401), (f"Authorization: Bearer {reader}\r\n", 403), ("Authorization: Bearer wrong\r\n", 401)):
        response = station.source("song", fields=fields).response()
        require(response.status == status, f"{fields!r}: {response}")
        require(status != 401 or response.fields.get("www-authenticate"), f"no challenge: {response}")
    station.source("song", fields=BEARER_LINE).send(FRAME)
    reader_line = {"Authorization": f"Bearer {reader}"}
    lab.until(lambda: json.loads(station.ask("/live/", fields=reader_line).body)["streams"], "the list of a reader has no stream")
    require(json.loads(station.ask("/live/").body)["streams"] == [], "the list shows a stream without the right to read it")
    require(station.ask("/live/song?info").status == 401, "a stream without the right to read it is described")
    require(station.listener("song", fields=f"Authorization: Bearer {reader}\r\n").status == 200, "a reader is refused")
    require(station.listener("song").status == 401, "a listener without a token is served")
    return "401, 403, 200"


@case(basic=(), more=(None,))
def ffmpeg_sends_with_a_token(lab: LiveRig) -> str:
    """ffmpeg sends a stream with `-headers "Authorization: Bearer …"`, with the token in the query, and as the password in the address,
    after a 401; with a wrong token it gets a 401. Planted: the token is wrong."""
    station = lab.station(settings={"auth": {"anonymous": ["subscribe"]}})
    token = "wrong" if lab.planted else TOKEN
    words = ["-stream_loop", "-1", "-i", made("mp3"), "-c", "copy", "-f", "mp3"]
    ways = {"field": {"fields": f"Authorization: Bearer {token}\r\n"}, "query": {"query": f"?access_token={token}"},
            "login": {"login": f"camera:{token}@"}}
    for name, way in ways.items():
        pusher = station.ffmpeg(name, words, **way)
        try:
            station.until_info(name, lambda info: info.get("codecs") == "mp3", f"by {name}: no stream")
        finally:
            pusher.kill()
    # ffmpeg notices a refusal only when its connection is reset: the response counts.
    station.ffmpeg("wrong", words, fields="Authorization: Bearer wrong\r\n")
    lab.until(lambda: any(line["target"] == "/live/wrong" and line["status"] == 401 for line in station.lines()),
              "a wrong token is not refused")
    return "field, query, login"


@case()
def lists_and_descriptions_are_true(lab: LiveRig) -> str:
    """`/live/` has each stream with its title (Ice-Name), container, codecs, type, bytes, bit rate and listeners; `?info` the same of
    one. Planted: the source sends no title."""
    station = lab.station()
    data = committed("vp8-vorbis.webm")
    fields = "" if lab.planted else "Ice-Name: Sea at night\r\n"
    source = station.source("sea", fields="Content-Type: video/webm\r\n" + fields).begin(data[:len(data) // 2])
    listener = station.listener("sea")
    source.send(data[len(data) // 2:-1_000])
    station.until_listeners("sea", 1)
    wanted = {"name": "sea", "title": "Sea at night", "state": "live", "listeners": 1, "container": "webm", "type": "video/webm",
              "video": True, "codecs": "vp8, vorbis", "gaps": 0}
    streams: list[dict] = []

    def is_listed() -> bool:
        streams[:] = json.loads(station.ask("/live/").body)["streams"]
        return len(streams) == 1 and {key: streams[0].get(key) for key in wanted} == wanted

    # A listener is counted soon after it has begun.
    lab.until(is_listed, lambda: f"the list is wrong: {streams}")
    [stream] = streams
    require("source" not in stream, f"the list has the address of the source: {stream}")
    require({**station.info("sea"), "bytes": 0, "since_s": 0, "bit_rate": 0} == {**stream, "bytes": 0, "since_s": 0, "bit_rate": 0},
            "the list and the description differ")
    require(0.5 < stream["key_interval_s"] < 2, f"a key frame each second: {stream}")
    require(listener.fields["content-type"] == "video/webm", listener.fields)
    source.end()
    return "list, description"


@case()
def responses_to_players_have_the_fields_that_they_need(lab: LiveRig) -> str:
    """HEAD has the fields of GET and no body; `Range: bytes=0-` gets a 200; pages of `push.origins` may read the stream, others not;
    clients cannot publish to the channel beside the source; a stream without source is a 404 with a time. Planted: the page is of
    another origin."""
    station = lab.station(settings={"push": {"origins": ["https://page.example"]}})
    station.source("song").begin(FRAME)
    station.until_info("song", lambda info: info.get("codecs") == "mp3", "no stream")
    got = station.listener("song")
    require(got.status == 200 and got.fields["content-type"] == "audio/mpeg", got.fields)
    head = station.ask("/live/song", "HEAD")
    require((head.status, head.body, head.fields["Content-Type"]) == (200, b"", "audio/mpeg"), head)
    ranged = station.listener("song", fields="Range: bytes=0-\r\n")
    require(ranged.status == 200 and "content-range" not in ranged.fields and ranged.fields["accept-ranges"] == "none",
            f"{ranged.status} {ranged.fields}")
    origin = "https://other.example" if lab.planted else "https://page.example"
    for target in ("song", "song?info"):
        shared = station.listener(target, fields=f"Origin: {origin}\r\n").fields
        require(shared.get("access-control-allow-origin") in (origin, "*"), f"{target}: {shared}")
    foreign = station.listener("song", fields="Origin: https://other.example\r\n").fields
    require("access-control-allow-origin" not in foreign, foreign)
    published = station.ask("/push/live/song", "POST", b"x", {"Authorization": f"Bearer {TOKEN}"})
    require(published.status == 403, published)
    absent = station.ask("/live/absent")
    require(absent.status == 404 and absent.fields["Retry-After"], absent)
    wrong = station.ask("/live/song", "DELETE")
    require(wrong.status == 405, wrong)
    return "200, 403, 404, 405"


@case()
def only_one_source_sends_and_takeover_replaces_it(lab: LiveRig) -> str:
    """A second source gets 409 and ends its connection; with `?takeover` it replaces the first, which gets 409 while it sends. A
    listener of MP3 continues with the bytes of the new source. Planted: the second one does not ask for the takeover."""
    station = lab.station()
    first = station.source("song").begin(FRAME)
    listener = station.listener("song")
    require(listener.status == listener.expected, listener.head)
    second = station.source("song").response()
    require(second.status == 409 and b"takeover" in second.body and second.fields.get("connection") == "close", second)
    third = station.source("song", query="" if lab.planted else "?takeover").begin(FRAME)
    ousted = first.response()
    require(ousted.status == 409 and b"another source" in ousted.body, ousted)
    require(third.end().status == 200, "the new source does not end well")
    body = listener.to_end()
    require(body.endswith(FRAME), f"the listener has {len(body)} bytes, without those of the new source")
    require(station.value("encke_live_sources_refused_total") == 1, "the second source is not counted")
    return f"{len(body)} bytes"


@case()
def a_refused_source_that_keeps_sending_is_ended_soon(lab: LiveRig) -> str:
    """A source that gets a 409, a 401 or a 415 and keeps sending has its response, and its connection ends after `limits.linger_time`,
    not after 16 times as long. Planted: the linger time is a minute."""
    limits = {"linger_time": "60s" if lab.planted else "500ms"}
    station = lab.station(settings={"limits": limits})
    closed = lab.station(settings={"limits": limits, "auth": {"anonymous": ["subscribe"]}})
    station.source("song").begin(FRAME)
    times = []
    for where, name, status in ((station, "song", 409), (closed, "song", 401), (station, "film", 415)):
        opened = time.monotonic()
        source = where.source(name)
        if status == 415:
            source.send(committed("h264-aac.mp4")[:100] + bytes(2_000))
        response = source.response()
        require(response.status == status, f"{response} {response.body}")
        began = time.monotonic()
        try:
            while time.monotonic() - began < 5:
                source.socket.sendall(b"5\r\nhello\r\n")
        except ConnectionError:
            times.append(time.monotonic() - began)
            # From its beginning: a client of a busy machine may read the response late.
            require(time.monotonic() - opened > 0.4, f"a source with a {status} is ended after {times[-1]:.1f} s")
            continue
        raise Fault(f"a source with a {status} may send for 5 s")
    return ", ".join(f"{time_:.1f} s" for time_ in times)
