"""The record of an application, and the content of large transfers, for the applications in Python."""
import json
import os

GATE = os.environ.get("GATE", "")
record = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND)


def note(**line) -> None:
    """Appends a line to the record, in one piece."""
    os.write(record, json.dumps(line).encode() + b"\n")


def note_request(method: str, target: str, length: int, digest: str, fields) -> None:
    """Appends a request; `fields` are pairs of name and value."""
    fields = {name.lower(): value for name, value in fields}
    note(method=method, target=target, length=length, digest=digest, fields=sorted(fields), client=fields.get("x-forwarded-for"))


def blocks(count: int):
    base = bytearray(range(256)) * 256
    for number in range(count):
        base[:8] = number.to_bytes(8, "big")
        yield bytes(base)
