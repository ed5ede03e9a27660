"""RTMP for the bench: the opening of a publisher or a player, and messages with frames (Adobe's RTMP 1.0, FLV 10.1).

    client   C0 C1 ──►           C2, connect, createStream, publish or play ──►          frames ──► (publisher)
    server          ◄── S0 S1 S2                                       ◄── results, frames (player)

Only what nginx-rtmp needs: no answer is interpreted except its begin. Every message fits into one chunk.
"""

import struct

APPLICATION = "live"
# C0 and C1, and S0, S1 and S2.
GREETING_BYTES, ANSWER_BYTES = 1 + 1536, 1 + 2 * 1536
CHUNK_BYTES = 1 << 20
COMMANDS, FRAMES = 3, 4  # chunk streams
SET_CHUNK_SIZE, AUDIO, VIDEO, COMMAND = 1, 8, 9, 20
# The stream that createStream returns first.
STREAM_ID = 1


def opening(port: int, name: str, verb: str) -> bytes:
    """The bytes of a client up to its verb, `publish` or `play`. The first GREETING_BYTES are sent at once, the others after
    ANSWER_BYTES of the server."""
    connect = _command("connect", 1, {"app": APPLICATION, "tcUrl": f"rtmp://127.0.0.1:{port}/{APPLICATION}"})
    last = _command(verb, 3, None, name, *(("live",) if verb == "publish" else ()))
    return (b"\3" + bytes(1536) + bytes(1536) + message(SET_CHUNK_SIZE, 0, struct.pack(">I", CHUNK_BYTES), chunk_stream=2)
            + message(COMMAND, 0, connect) + message(COMMAND, 0, _command("createStream", 2, None))
            + message(COMMAND, 0, last, stream=STREAM_ID))


def audio(at_ms: int, frame: bytes) -> bytes:
    """A frame of MP3, 44.1 kHz, stereo."""
    return message(AUDIO, at_ms, b"\x2f" + frame, chunk_stream=FRAMES, stream=STREAM_ID)


def video(at_ms: int, frame: bytes, is_key: bool) -> bytes:
    """A frame of H.264. nginx-rtmp does not look into it."""
    return message(VIDEO, at_ms, (b"\x17" if is_key else b"\x27") + b"\1\0\0\0" + frame, chunk_stream=FRAMES, stream=STREAM_ID)


def message(kind: int, at_ms: int, body: bytes, *, chunk_stream: int = COMMANDS, stream: int = 0) -> bytes:
    """A message as one chunk with a full header."""
    assert len(body) <= CHUNK_BYTES and at_ms < 0xFFFFFF
    return (bytes((chunk_stream,)) + at_ms.to_bytes(3, "big") + len(body).to_bytes(3, "big") + bytes((kind,)) + struct.pack("<I", stream)
            + body)


def _command(name: str, number: int, *values: dict | str | None) -> bytes:
    return b"".join(_amf(value) for value in (name, float(number), *values))


def _amf(value: dict | str | float | None) -> bytes:
    """A value in AMF 0."""
    if value is None:
        return b"\5"
    if isinstance(value, float):
        return b"\0" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"\2" + _text(value)
    return b"\3" + b"".join(_text(key) + _amf(of) for key, of in value.items()) + b"\0\0\x09"


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
