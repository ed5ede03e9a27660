"""Every list, column, verb and watch that the server itself names, with valid and invalid values."""
import json
import urllib.parse

from admin import Answer, Console, ConsoleRig
from rig import case, require
from live import publish

# Texts that are nowhere valid as names, and must not harm: no 5xx, no panic.
ODD = ("", " ", "\x00", "a/b", "../x", "%2e", "é", "ｘ", "-", "'", '"', "a" * 4096, "event: end\n\n", "\r\nX: y", "null", "-1", "1e9")


def encoded(pairs: dict) -> str:
    return urllib.parse.urlencode(pairs)


def valid(field: dict) -> object:
    """A value of a field of a verb."""
    return {"text": "x", "flag": True, "number": field.get("min"), "choice": next(iter(field.get("choices", [])), None)}[field["shape"]]


def calm(server: Console, answer: Answer, what: str, statuses: tuple[int, ...]) -> Answer:
    """Requires one of these statuses, and a server without a panic. A 414 of the engine is plain text."""
    require(answer.status in statuses, f"{what}: {answer.status} instead of {statuses}: {answer.body[:200]!r}")
    if answer.status >= 400 and answer.status != 414:
        require(not (why := answer.complaint(answer.status, answer.json()["type"])), f"{what}: {why}")
    require("panicked" not in server.log_text(), f"{what}: a panic")
    return answer


@case()
def every_list_sorts_filters_and_selects_by_every_column(lab: ConsoleRig) -> str:
    """Rows have only the list's columns, at most `limit` of them, in the order of `sort`; `total` counts all; a filter and a cell
    select rows; an unknown column is a 400. Fault: the order of a column is the other one."""
    server = lab.console()
    names = [f"{place:02}/{name}" for place, name in enumerate(("a", "b", "c.d", "A-B", "zz") * 4)]
    for place, name in enumerate(names):
        for _ in range(1 + place % 3):
            publish(server, name, "x" * (place + 1))
    readers = [server.connect() for _ in range(5)]
    for place, reader in enumerate(readers):
        reader.sendall(f"GET /push/{urllib.parse.quote(names[place])}?since=now HTTP/1.1\r\nHost: localhost\r\n"
                       "Accept: text/event-stream\r\n\r\n".encode())
        require(b"200" in reader.recv(4096), "no stream")
    client, count = server.client(), 0
    lists = server.get("/lists")
    require(set(lists["columns"]) == set(lists["lists"]) and "channels" in lists["lists"], lists)

    def rows(name: str, **query) -> dict:
        nonlocal count
        count += 1
        base = {"channel": names[2]} if name in ("subscribers", "members", "messages") and not query.pop("all", False) else {}
        answer = client.call("GET", f"/lists/{name}?{encoded(base | query)}", login=server.operator)
        return calm(server, answer, f"{name} {query}", (200,)).json()

    for name, columns in lists["columns"].items():
        whole = rows(name, limit=1000)
        require(whole["total"] == len(whole["rows"]) and whole["name"] == name, f"{name}: {whole['total']} rows")
        require(all(row.keys() <= set(columns) for row in whole["rows"]), f"{name}: other columns than {columns}: {whole['rows'][:1]}")
        require(len(rows(name, limit=2)["rows"]) == min(2, whole["total"]), f"{name}: limit")
        for column in columns:
            for sign, reverse in (("", False), ("-", True)):
                cells = [row.get(column) for row in rows(name, sort=sign + column, limit=1000)["rows"]]
                numbers = all(isinstance(cell, (int, float)) for cell in cells)
                wanted = sorted(cells, reverse=reverse != lab.planted) if numbers or all(isinstance(cell, str) for cell in cells) \
                    else cells
                require(cells == wanted, f"{name}: sort={sign}{column}: {cells}")
            if whole["rows"] and isinstance(cell := whole["rows"][0].get(column), str) and cell and name == "channels":
                some = rows(name, **{column: cell, "limit": 1000})["rows"]
                require(some and all(row[column] == cell for row in some), f"{name}: {column}={cell}: {some[:2]}")
        for query in ({"sort": "none"}, {"none": "x"}, {"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"sort": ""}):
            answer = client.call("GET", f"/lists/{name}?{encoded(query)}", login=server.operator)
            calm(server, answer, f"{name} {query}", (400,))
        for text in ODD:
            calm(server, client.call("GET", f"/lists/{name}?{encoded({'filter': text})}", login=server.operator), repr(text), (200,))
            calm(server, client.call("GET", f"/lists/{urllib.parse.quote(text, safe='')}?{encoded({'sort': text})}",
                                     login=server.operator), repr(text), (400, 404, 414))
    found = [row["channel"] for row in rows("channels", filter="zz", sort="channel")["rows"]]
    require(found == [name for name in names if "zz" in name], f"filter: {found}")
    return f"{len(lists['lists'])} lists, {count} requests"


@case()
def every_verb_checks_its_fields(lab: ConsoleRig) -> str:
    """A verb without a field that it needs, with an unknown field or a value of the wrong shape is a 422 that names the field; a
    valid request is a 200 or a reason. Fault: the wrong values are left out."""
    server = lab.console()
    client, count = server.client(), 0
    wrong = {"text": 5, "number": "x", "flag": "x", "choice": "none of them"}

    def act(feature: str, verb: str, value: object, statuses: tuple[int, ...], field: str | None = None) -> None:
        nonlocal count
        count += 1
        answer = client.call("POST", f"/actions/{feature}/{verb}", value, server.operator)
        calm(server, answer, f"{feature}/{verb} {json.dumps(value)[:100]}", statuses)
        if answer.status == 422:
            errors = answer.json()["errors"]
            require(all(error["pointer"].startswith("/") and error["detail"] for error in errors), errors)
            require(field is None or [error["pointer"] for error in errors] == [f"/{field}"], f"{field}: {errors}")

    features = server.get("/actions")["features"]
    require(any(one["feature"] == "channels" for one in features), features)
    for feature in features:
        for verb in feature["verbs"]:
            require(verb["help"] and all(field["help"] for field in verb["fields"]), f"no help: {verb}")
            right = {field["name"]: valid(field) for field in verb["fields"]}
            name = feature["feature"], verb["name"]
            act(*name, right, (200, 409, 422))
            for field in verb["fields"]:
                rest = {key: value for key, value in right.items() if key != field["name"]}
                if not field["optional"]:
                    act(*name, right if lab.planted else rest, (422,), field["name"])
                more = [field["min"] - 1, field["max"] + 1] if field["shape"] == "number" else []
                for value in (wrong[field["shape"]], [], None, 1.5, -1, *more):
                    act(*name, right if lab.planted else {**rest, field["name"]: value}, (400, 422))
                for text in ODD:
                    act(*name, {**rest, field["name"]: text}, (200, 409, 422))
            act(*name, {**right, "none": "x"}, (200,) if lab.planted else (422,), "none")
            for body in (b"", b"{", b"[]", b"null", b'"x"', b'{"a":1,"a":2}', b"\xff", b"{}" + b" " * 5000 + b"x"):
                count += 1
                calm(server, client.call("POST", "/actions/" + "/".join(name), body, server.operator), repr(body[:9]), (200, 400, 409, 422))
    for text in ODD:
        word = urllib.parse.quote(text, safe="")
        calm(server, client.call("POST", f"/actions/{word}/{word}", {}, server.operator), repr(text), (404, 414))
    return f"{sum(len(feature['verbs']) for feature in features)} verbs, {count} requests"


@case()
def a_live_page_with_an_invalid_watch_is_rejected(lab: ConsoleRig) -> str:
    """Unknown subjects, parameters, columns and intervals are a 400 or 404 that names them; no text breaks an event.
    Fault: the watches are valid."""
    server = lab.console()
    client = server.client()

    def page(statuses: tuple[int, ...], *watches: str, **more) -> Answer:
        query = urllib.parse.urlencode([*(("watch", watch) for watch in watches), *more.items()])
        return calm(server, client.call("GET", f"/live?{query}", login=server.operator), f"{watches} {more}", statuses)

    for watch in ("", "none", "lists", "lists/", "lists/none", "lists/channels?sort=none", "lists/channels?none=1", "overview?x=1",
                  "lists/channels?limit=0", "log?status=9", "log?address=here", "log?none=1", "notices?a=b", "Overview", "log/"):
        answer = page((400, 404), "overview" if lab.planted else watch)
        require(len(answer.json()["detail"]) > 10, answer)
    for every in ("0", "249", "60001", "-1", "x", "1e3", "18446744073709551616", ""):
        page((400,), "overview", every=every)
    page((400,), *["overview"] * 9)
    page((200,), *["overview"] * 8)
    page((400,), "overview", other="x")
    for text in ODD:
        page((400, 404), text)
        # A closed page keeps its place for a moment.
        lab.until(lambda: page((200, 503), f"lists/channels?filter={urllib.parse.quote(text)}").status == 200,
                  f"{text!r:.40} is a filter")
        page((200, 503), f"log?text={urllib.parse.quote(text)}&path={urllib.parse.quote(text)}")
    # The watch comes back in the event, which must stay one event.
    watch = f"lists/channels?filter={urllib.parse.quote(chr(10) * 2)}event: end\n\ndata: x\r\n"
    name, data = server.page(watch).next()
    require((name, data["watch"]) == ("list", watch), f"{name} {data}")
    return "15 watches"
