"""The head and the starts of a media file, found without Encke.

    layout(file, bytes) ─► Layout: head, starts ─► complaint(body of a listener)

A start is the first byte of a frame, fragment or page with which a player that has the head can begin. Each function reads only what
the files of crates/encke-wire contain.
"""
from dataclasses import dataclass

# IDs of Matroska's elements.
SEGMENT, CLUSTER, SIMPLE_BLOCK, BLOCK_GROUP, BLOCK, REFERENCE = 0x18538067, 0x1F43B675, 0xA3, 0xA0, 0xA1, 0xFB
TRACKS, TRACK, TRACK_NUMBER, TRACK_TYPE = 0x1654AE6B, 0xAE, 0xD7, 0x83
TS = 188
# Bytes after which a frame, fragment or page is recognised: the longest moof box, or page of Ogg.
HEADER_BYTES = 3_000


@dataclass
class Layout:
    data: bytes
    # All bytes that a listener receives before a start. None: tables of the transport stream, in any number.
    head: bytes | None
    starts: list[int]

    @property
    def head_bytes(self) -> int:
        """The length of the head that a listener receives."""
        return len(self.head) if self.head is not None else 2 * TS

    def whole_before(self, sent: int) -> int | None:
        """The newest start that is followed by another one before an offset: all its bytes are sent."""
        earlier = [at for at in self.starts if at + HEADER_BYTES < sent]
        return earlier[-2] if earlier[1:] else None

    def complaint(self, body: bytes, oldest: int, newest: int) -> str:
        """Returns the fault in the body of a listener whose start must be in this range; "" if there is none."""
        if self.head is not None and not body.startswith(self.head):
            return f"the head of {len(self.head)} bytes is not first: {body[:40]!r}"
        if self.head is None:
            head = len(body)
            for at in range(0, len(body), TS):
                if pid(body[at:]) not in tables(self.data):
                    head = at
                    break
            if not {0, pmt(self.data)} <= {pid(body[at:]) for at in range(0, head, TS)}:
                return "no tables are first"
        else:
            head = len(self.head)
        start = len(self.data) - (len(body) - head)
        if body[head:] != self.data[start:]:
            return f"the last {len(body) - head} bytes are not those of the source"
        if start not in self.starts and start != len(self.data):
            return f"byte {start} is no start: {self.starts[:8]}"
        if not oldest <= start <= newest:
            return f"byte {start} is a start, but not from {oldest} to {newest}"
        return ""


def layout(file: str, data: bytes) -> Layout:
    kind = file.rpartition(".")[2]
    if kind == "mp3" and data[-128:].startswith(b"TAG"):
        data = data[:-128]  # ID3v1: no decoder needs it, and no listener receives it
    found = {"webm": matroska, "mkv": matroska, "mp4": mp4, "ts": mpegts, "flv": flv, "mp3": mp3, "aac": adts, "ogg": ogg}[kind](data)
    return Layout(data, *found)


def matroska(data: bytes) -> tuple[bytes, list[int]]:
    clusters, video, track = [], None, {}
    firsts: dict[int, bool] = {}
    at = 0
    while at < len(data):
        begin = at
        length = 9 - data[at].bit_length()
        element, at = int.from_bytes(data[at:at + length], "big"), at + length
        length = 9 - data[at].bit_length()
        size = int.from_bytes(data[at:at + length], "big") & ((1 << 7 * length) - 1)
        at += length
        if element == CLUSTER:
            clusters.append(begin)
        elif element == TRACK_NUMBER:
            track["number"] = data[at]
        elif element == TRACK_TYPE and data[at] == 1:
            video = track["number"]
        elif element in (SIMPLE_BLOCK, BLOCK_GROUP):
            block, key = data[at:at + size], False
            if element == BLOCK_GROUP:
                inner = children(block)
                block, key = inner[BLOCK], REFERENCE not in inner
            if video in (None, block[0] & 127):
                firsts.setdefault(clusters[-1], key or bool(block[3] & 0x80))
        if element not in (SEGMENT, CLUSTER, TRACKS, TRACK):
            at += size
    return data[:clusters[0]], [cluster for cluster in clusters if firsts.get(cluster)]


def children(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at < len(data):
        length = 9 - data[at].bit_length()
        element, at = int.from_bytes(data[at:at + length], "big"), at + length
        length = 9 - data[at].bit_length()
        size = int.from_bytes(data[at:at + length], "big") & ((1 << 7 * length) - 1)
        found[element] = data[at + length:at + length + size]
        at += length + size
    return found


def boxes(data: bytes, at: int = 0):
    """Yields (type, first byte, content) of each box."""
    while at + 8 <= len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        yield data[at + 4:at + 8], at, data[at + 8:at + size]
        at += size


def mp4(data: bytes) -> tuple[bytes, list[int]]:
    head, starts, begin, video, default_flags = 0, [], None, None, {}
    for type_, at, content in boxes(data):
        if type_ == b"moov":
            head = at + 8 + len(content)
            for kind, _, track in boxes(content):
                if kind == b"trak":
                    parts = {kind: content for kind, _, content in boxes(track)}
                    media = {kind: content for kind, _, content in boxes(parts[b"mdia"])}
                    if media[b"hdlr"][8:12] == b"vide":
                        video = parts[b"tkhd"][12:16]
                if kind == b"mvex":
                    default_flags = {trex[4:8]: int.from_bytes(trex[20:24], "big") for kind, _, trex in boxes(track) if kind == b"trex"}
        elif head and type_ in (b"styp", b"sidx", b"prft", b"emsg", b"moof") and begin is None:
            begin = at
        if type_ == b"moof" and is_key_fragment(content, video, default_flags):
            starts.append(begin)
        if type_ == b"mdat":
            begin = None
    return data[:head], starts


def is_key_fragment(moof: bytes, video: bytes | None, default_flags: dict) -> bool:
    """Whether the first sample of video is a sync sample (ISO/IEC 14496-12, 8.8.8)."""
    for kind, _, traf in boxes(moof):
        if kind != b"traf":
            continue
        parts = {kind: content for kind, _, content in boxes(traf)}
        header = parts[b"tfhd"]
        if video is None:
            return True
        if header[4:8] != video:
            continue
        flags, at = int.from_bytes(header[1:4], "big"), 8
        for bit, size in ((1, 8), (2, 4), (8, 4), (0x10, 4)):
            at += size if flags & bit else 0
        sample = int.from_bytes(header[at:at + 4], "big") if flags & 0x20 else default_flags[video]
        run = parts[b"trun"]
        flags, at = int.from_bytes(run[1:4], "big"), 8 + (4 if run[3] & 1 else 0)
        if flags & 4:
            sample = int.from_bytes(run[at:at + 4], "big")
        elif flags & 0x400:
            at += sum(4 for bit in (0x100, 0x200) if flags & bit)
            sample = int.from_bytes(run[at:at + 4], "big")
        return not sample & 0x10000
    return False


def pid(packet: bytes) -> int:
    return int.from_bytes(packet[1:3], "big") & 0x1FFF


def pmt(data: bytes) -> int:
    """The PID of the only programme's table."""
    for at in range(0, len(data), TS):
        if pid(data[at:]) == 0:
            return int.from_bytes(data[at + 15:at + 17], "big") & 0x1FFF
    raise ValueError("no PAT")


def tables(data: bytes) -> set[int]:
    """PIDs of tables: PAT, SDT, PMT."""
    return {0, 17, pmt(data)}


def mpegts(data: bytes) -> tuple[None, list[int]]:
    main, starts = None, []
    for wanted in (0xE0, 0xC0):
        for at in range(0, len(data), TS):
            packet = data[at:at + TS]
            if not packet[1] & 0x40 or pid(packet) in tables(data):
                continue
            adaptation = packet[4] + 1 if packet[3] & 0x20 else 0
            kind = packet[4 + adaptation + 3] & (0xF0 if wanted == 0xE0 else 0xE0)
            if kind == wanted and main in (None, pid(packet)):
                main = pid(packet)
                if wanted == 0xC0 or adaptation > 1 and packet[5] & 0x40:
                    starts.append(at)
        if main is not None:
            break
    return None, starts


def flv(data: bytes) -> tuple[bytes, list[int]]:
    at, heads, starts, has_video = 13, data[:13], [], bool(data[4] & 1)
    while at + 11 < len(data):
        size = int.from_bytes(data[at + 1:at + 4], "big")
        kind, first, second = data[at], data[at + 11], data[at + 12]
        if kind == 18 or second == 0 and (kind == 9 or first >> 4 == 10):
            heads += data[at:at + 15 + size]
        elif kind == 9 and first >> 4 == 1 and second == 1 or kind == 8 and not has_video:
            starts.append(at)
        at += 15 + size
    return heads, starts


def mp3(data: bytes) -> tuple[bytes, list[int]]:
    at, starts = 0, []
    if data.startswith(b"ID3"):
        at = 10 + sum(byte << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0)))
    while at + 4 <= len(data) and data[at] == 0xFF:
        starts.append(at)
        # MPEG-1 has 1,152 samples per frame, MPEG-2 half of them.
        one = bool(data[at + 1] & 8)
        rates = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320) if one else \
            (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
        samples = (44_100, 48_000, 32_000)[data[at + 2] >> 2 & 3] // (1 if one else 2 if data[at + 1] & 0x10 else 4)
        at += (144 if one else 72) * rates[data[at + 2] >> 4] * 1000 // samples + (data[at + 2] >> 1 & 1)
    return b"", starts


def adts(data: bytes) -> tuple[bytes, list[int]]:
    at, starts = 0, []
    while at + 7 <= len(data):
        starts.append(at)
        at += (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
    return b"", starts


def ogg(data: bytes) -> tuple[bytes, list[int]]:
    at, head, starts = 0, 0, []
    while at < len(data):
        count = data[at + 26]
        size = 27 + count + sum(data[at + 27:at + 27 + count])
        if not starts and data[at + 6:at + 14] == bytes(8):
            head = at + size
        elif not data[at + 5] & 1:
            starts.append(at)
        at += size
    return data[:head], starts
