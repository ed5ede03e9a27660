"""Channels to which an application subscribes its clients, by X-Accel-Redirect."""
import contextlib
import urllib.parse

from applications import Lab
from rig import Client, case, require

TOKEN = "a-token-of-the-publisher-0123456789"


def target(path: str) -> str:
    return f"/a/send?{urllib.parse.urlencode({'X-Accel-Redirect': path, 'body': 200})}"


@case(basic=("plain",))
def an_application_subscribes_its_clients_to_channels(lab: Lab, app: str) -> str:
    """A client without rights reads a channel to which the application sends it, as events and as messages with their history, and no
    channel besides. Planted: no channel in `subscribe`."""
    application = lab.application(app)
    channels = [] if lab.planted else ["/push/news/*"]
    server = lab.gateway([{"pattern": "/a/**", "upstream": application, "subscribe": channels}],
                         settings={"push": {"enabled": True}, "auth": {"anonymous": [], "tokens": [{"token": TOKEN, "publish": ["**"]}]}})

    def publish(channel: str, text: str) -> None:
        response = server.ask(f"/push/{channel}", "POST", text.encode(), {"Authorization": f"Bearer {TOKEN}"})
        require(response.status == 201, f"publish: {response}")

    publish("news/sport", "first")
    publish("secret", "hidden")
    direct = server.ask("/push/news/sport?since=all")
    require(direct.status in (401, 403), f"the client has the right itself: {direct}")
    history = server.ask(target("/push/news/sport?since=all"))
    require((history.status, history.body) == (200, b"first"), f"history: {history}")
    for path in ("/push/secret?since=all", "/push/news/../secret?since=all", "/push/news/sport/x?since=all", "/push/news%2fsport", "/push/news/sport,secret?since=all",
                 "/push/news/sport%2csecret?since=all"):
        response = server.ask(target(path))
        require(response.status not in (200, 204) and b"hidden" not in response.body, f"{path}: {response}")
    client = server.requested(target("/push/news/sport?since=all"), fields="Accept: text/event-stream\r\n")
    head = client.head()
    require(b" 200 " in head and b"text/event-stream" in head.lower(), head)
    publish("news/sport", "second")
    events = client.until(b"data: second")
    require(b"data: first" in events, events)
    # The worker of the application is free, and the same client's next request is one of its own.
    with contextlib.closing(Client(server)) as other:
        for number in range(2):
            response = other.ask(target("/push/news/sport?since=all&wait=0"))
            require(response.status == 200, f"{number}: {response}")
            require(other.ask("/a/echo").status == 200, "the connection goes on")
    paths = {line["path"] for line in server.lines() if "path" in line}
    require(not any(path.startswith("/push/news") and "since" in path and line["status"] == 200
                    for line in server.lines() for path in [line.get("path", "")]), f"the log names the internal path: {paths}")
    return "events, history and six paths that are not listed"
