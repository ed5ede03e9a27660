"""Joins at random moments: a listener receives a head, and the bytes of the source from a start on."""
import time
from pathlib import Path

from containers import Layout, layout
from media import FILES, committed, decoded, packets, sending
from rig import Fault, case, require
from stations import SOCKETS, TRANSPORTS, LiveRig

COMMITTED = ("vp8-vorbis.webm", "unknown-size.webm", "vp9-opus.webm", "opus.webm", "h264-aac.mkv", "h264-aac.mp4", "chunks.mp4", "aac.mp4",
             "h264-aac.ts", "h265-aac.ts", "aac.ts", "h264-aac.flv", "aac.flv", "cbr.mp3", "vbr.mp3", "tone.aac", "opus.ogg", "vorbis.ogg",
             "flac.ogg")


@case(basic=COMMITTED)
def a_join_is_the_head_and_all_bytes_from_the_newest_start_on(lab: LiveRig, file: str) -> str:
    """Listeners join a file that is sent in random pieces, by each transport. Each receives the head, and then exactly the bytes of the
    source from a start on, which is one of the newest when it joins; a module of this suite finds the starts. Planted, of which each
    must be noticed: the head is cut off, a piece is missing, the start is another frame's."""
    data = committed(file)
    expected = layout(file, data)
    # All listeners are on one worker, so what the first has received can be joined.
    station = lab.station(settings={"server": {"workers": 1}})
    source, first = station.source("film").begin(data[:1]), station.listener("film")
    joined, cuts = [(first, 0, len(data))], [1]
    for number, cut in enumerate([*sorted(lab.chance.sample(range(2, len(data)), lab.of(6, 12, 60))), len(data)]):
        source.send(data[cuts[-1]:cut])
        whole, newest = expected.whole_before(cut), len(data)
        if whole is not None:
            first.until_true(lambda body: data.find(body[expected.head_bytes:]) + len(body) - expected.head_bytes > whole)
        listener = station.listener("film", SOCKETS[number % len(SOCKETS)])
        if whole is not None:
            # The listener starts before the source sends more.
            listener.until(expected.head_bytes + 1)
            newest = cut
        # Which messages the worker has got when it begins the listener depends on the load; the tests of the hub state which start is
        # the newest.
        joined.append((listener, 0, newest))
        cuts.append(cut)
    require(source.end().status == 200, "the source does not end well")
    bodies = [(listener.to_end(), listener, oldest, newest) for listener, oldest, newest in joined]
    if lab.planted:
        planted(lab, expected, bodies)
        return "a fault is not noticed"
    for body, listener, oldest, newest in bodies:
        if complaint := expected.complaint(body, oldest, newest):
            raise Fault(f"{listener.transport}: {complaint}")
    return f"{len(bodies)} joins"


def planted(lab: LiveRig, expected: Layout, bodies: list) -> None:
    """Raises a fault if every planted one is noticed."""
    noticed = []
    for body, _, oldest, newest in bodies:
        head = expected.head_bytes
        middle = head + (len(body) - head) // 2
        later = head + 1 + lab.chance.randrange(max(1, middle - head))
        while len(expected.data) - len(body) + later in expected.starts:
            later += 1
        faults = [body[:head] + body[later:], body[:middle] + body[middle + 100:]]
        if head:
            faults.append(body[head:])
        # Nothing is missing in a stream that has only a head yet.
        noticed += [expected.complaint(fault, oldest, newest) for fault in faults if len(body) > head + 1_000]
    if noticed and all(noticed):
        raise Fault(f"{len(noticed)} faults are noticed, such as: {lab.chance.choice(noticed)}")


@case(basic=(), more=tuple(FILES))
def ffmpeg_decodes_each_join_of_its_own_stream(lab: LiveRig, name: str) -> str:
    """ffmpeg sends a container without end, and listeners join at random moments by HTTP/1.1, HTTP/1.0, HTTP/2 and WebSocket. When
    ffmpeg ends, each response ends cleanly; ffmpeg decodes it without a complaint, the first packet of video is a key frame, and after
    the head all bytes are those that ffmpeg sent. Planted, of which each must be noticed: the head or a frame's begin is cut off, a
    message is missing."""
    station = lab.station(channel={"gather": "auto"})
    pusher = station.ffmpeg("film", sending(name))
    station.until_info("film", lambda info: info.get("codecs"), f"{name}: no stream")
    listeners, seconds = [], lab.of(0, 4, 20)
    began = time.monotonic()
    for at in sorted(lab.chance.uniform(0, seconds) for _ in range(lab.of(0, 8, 40))):
        time.sleep(max(0.0, began + at - time.monotonic()))  # the moment is the subject
        listeners.append(station.listener("film", TRANSPORTS[len(listeners) % len(TRANSPORTS)]))
    for listener in listeners:
        listener.until(4_000)
    pusher.end()
    bodies = [(listener.transport, listener.to_end()) for listener in listeners]
    # ffmpeg may end before its last bytes have passed; the end of a response follows them.
    sent = pusher.recorded
    if lab.planted:
        noticed = []
        for _, body in bodies:
            size, common = len(body), common_suffix(body, sent)
            # Without a head the first bytes of a frame.
            cut = max(size - common, 100)
            faults = [body[cut:], body[:size - common // 2] + body[size - common // 2 + 1_000:]]
            complaints = [complaint(lab.path(f"planted-{number}"), fault, sent, name) for number, fault in enumerate(faults)]
            if not all(complaints):
                return f"a fault is not noticed: {complaints}"
            noticed += complaints
        raise Fault(f"{len(noticed)} faults are noticed: {noticed[0]}; {noticed[1]}"[:600])
    for number, (transport, body) in enumerate(bodies):
        if fault := complaint(lab.path(f"join-{number}"), body, sent, name):
            raise Fault(f"{transport}: {fault}")
    return f"{len(bodies)} joins, {sum(len(body) for _, body in bodies)} bytes"


HEAD_BYTES_MAX = 8_192


def complaint(path: Path, body: bytes, sent: bytes, name: str) -> str:
    """Returns the fault in the body of a listener whose stream has ended; "" if there is none."""
    path.write_bytes(body)
    if said := decoded(path):
        return f"ffmpeg says of {len(body)} bytes: {said[:300]}"
    if name.startswith(("mp3", "adts")) and not body.startswith(b"\xff"):
        return f"the first bytes are no frame: {body[:4]!r}"
    common = common_suffix(body, sent)
    if len(body) - common > HEAD_BYTES_MAX:
        return f"of {len(body)} bytes only the last {common} are those of the source"
    video = [packet for packet in packets(path) if packet["codec_type"] == "video"]
    has_video = not name.startswith(("mp3", "adts", "ogg"))
    if has_video != bool(video):
        return f"{len(video)} packets of video"
    if video and not video[0]["flags"].startswith("K"):
        return f"the first picture is no key frame: {video[0]}"
    return ""


def common_suffix(one: bytes, other: bytes) -> int:
    """The length of the longest common end."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle:] == other[len(other) - middle:]:
            low = middle
        else:
            high = middle - 1
    return low


@case(basic=("h264-aac.mp4", "unknown-size.webm"))
def a_complete_unit_waits_for_no_further_bytes(lab: LiveRig, file: str) -> str:
    """A source sends a group of pictures and then nothing. Its listener receives the group to its last byte, once `gather` has passed.
    Planted: the gather time is a minute."""
    data = committed(file)
    expected = layout(file, data)
    first, second = expected.starts[1:3]
    station = lab.station(channel={"gather": "60s" if lab.planted else "200ms"})
    source, listener = station.source("film").begin(expected.data[:first]), station.listener("film")
    require(listener.status == 200, listener.fields)
    # More than one unit, of which the later ones wait.
    for at in range(first, second, 1_000):
        source.send(expected.data[at:min(at + 1_000, second)])
    listener.until_true(lambda body: body.endswith(expected.data[second - 200:second]))
    return f"{len(listener.body)} bytes"
