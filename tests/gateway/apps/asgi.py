"""An application for servers of ASGI. The second part of the path says what it does."""
import asyncio
import hashlib
import os
from urllib.parse import parse_qs

from notes import GATE, blocks, note, note_request


async def app(scope, receive, send):
    verb = (scope["path"].split("/") + ["", ""])[2]
    if scope["type"] == "websocket":
        await websocket(receive, send)
    elif scope["type"] == "http":
        await VERBS.get(verb, echo)(scope, receive, send)


async def websocket(receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "first"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({**event, "type": "websocket.send"})
    note(event="left", code=event.get("code"))


async def echo(scope, receive, send):
    sum_, length = hashlib.sha256(), 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return
        sum_.update(event.get("body", b""))
        length += len(event.get("body", b""))
        if not event.get("more_body"):
            break
    target = scope["raw_path"].decode() + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
    note_request(scope["method"], target, length, sum_.hexdigest(),
                 [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]])
    await reply(send, sum_.hexdigest().encode(), [(b"x-seen", b"1")])


async def reply(send, body, fields=()):
    fields = [*fields, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def sse(scope, receive, send):
    count = int(parse_qs(scope["query_string"])[b"events"][0])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for number in range(count):
        while not os.path.exists(f"{GATE}.{number}"):
            await asyncio.sleep(0.001)
        await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
    await send({"type": "http.response.body"})


async def make(scope, receive, send):
    count = int(parse_qs(scope["query_string"])[b"blocks"][0])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for block in blocks(count):
        await send({"type": "http.response.body", "body": block, "more_body": True})
    await send({"type": "http.response.body"})


async def hold(scope, receive, send):
    note(event="held")
    while (await receive())["type"] != "http.disconnect":
        pass
    note(event="left")


VERBS = {"sse": sse, "make": make, "hold": hold}
