"""PHP by php-fpm and PSGI by plackup, over FastCGI."""
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from applications import APPS, Application, Gateway, Lab, readable
from rig import MIB, Fault, case, require


def php(lab: Lab, site: dict | None = None, upstreams: list[dict] = (), **route) -> tuple[Application, Gateway]:
    """Encke before php-fpm with two processes, which also reads the scripts of the site."""
    application = lab.application("php-fpm")
    upstreams = [{**upstream, "to": [*upstream.get("to", []), application]} for upstream in upstreams]
    address = "fpm" if upstreams else f"127.0.0.1:{application.port}"
    server = lab.gateway([{"pattern": "/**", "php": address, **route}, {"pattern": "/protected/**", "internal": True},
                          {"pattern": "/cron.php", "internal": True}, {"pattern": "/inner/**", "internal": True, "php": address}],
                         upstreams, site={"paths": [{"pattern": "/uploads/**/*.php", "status": 404}], **(site or {})},
                         settings={"limits": {"head_bytes": 65535, "uri_bytes": 32767}})
    readable(server.root)
    for script in ("index.php", "blog/index.php", "cron.php", "uploads/evil.php", "uploads/index.php", ".git/hook.php", "inner/report.php"):
        (server.root / script).parent.mkdir(exist_ok=True)
        shutil.copy(APPS / "index.php", server.root / script)
    (server.root / "protected").mkdir()
    (server.root / "x.jpg").write_bytes(b"<?php echo 'exe' . 'cuted';")
    (server.root / "protected/file").write_bytes(b"the file")
    return application, server


# Paths that another reader could take for one of a script, or of a file with another name.
CONFUSING = ["/x.jpg/y.php", "/x.jpg/.php", "/x.jpg/", "/x.jpg%00.php", "/x.jpg%00/y.php", "/x.jpg%0a.php", "/x.jpg%20.php", "/x.jpg;.php",
             "/x.jpg/%2e%2e/y.php", "/x.jpg%2f.php", "/x.jpg%5c.php", "/x.jpg\\.php", "/x.jpg//y.php", "/x.jpg?/y.php", "/x.jpg%3f.php",
             "/x.jpg%23.php", "/missing.php", "/INDEX.PHP", "/index.php%00.jpg", "/index.php%2fx", "/index.php%5cx", "/.php",
             "/blog/index.PHP/x", "/%c4%b0ndex.php", "/\u0131ndex.php", "/index.\uff50hp", "/inde\u0445.php", "/index.ph%70x",
             "/index.php%20", "/index.php%0a", "/index.php.", "/index.php%2500", "/index.p%68%70.", "/index.php~", "/index.php.bak",
             "/index%2ephp%2f..%2fx.jpg", "/%c0%ae%c0%ae/x.jpg", "/%2e%2e/x.jpg/a.php", "/a/..%2fx.jpg/a.php", "/blog/..;/x.jpg/a.php"]


@case(basic=(), more=("php-fpm",))
def php_runs_the_scripts_of_the_site_and_nothing_else(lab: Lab, app: str) -> str:
    """Scripts, directories and the front script run with their variables and bodies; other files are sent; no other file is executed or
    sent as source. Planted: there is no front script."""
    _, server = php(lab, **({"front": "/none.php"} if lab.planted else {}))
    runs = {"/": "/index.php", "/index.php/a%20b?c=d": "/index.php", "/blog/": "/blog/index.php", "/about/us": "/index.php",
            "/x/../blog/index.php": "/blog/index.php"}
    for target, script in runs.items():
        response = server.ask(target)
        require(response.status == 200, f"{target}: {response}")
        seen = json.loads(response.body)
        require((seen["script"], seen["addr"]) == (script, "127.0.0.1"), f"{target}: {seen}")
    require(json.loads(server.ask("/index.php/a%20b?c=d").body)["info"] == "/a b", "PATH_INFO")
    body = os.urandom(3 * MIB)
    posted = json.loads(server.ask("/up", "POST", body).body)
    require((posted["length"], posted["method"]) == (len(body), "POST"), f"{posted}")
    large = json.loads(server.ask("/", fields={"X-Big": "x" * 60_000, "Proxy": "evil", "X_Own": "evil", "X.Own": "evil"}).body)
    require((large["big"], large["proxy"]) == (60_000, None), f"60 kB of variables: {large}")
    # The query is in two variables: together more than a record holds.
    large = json.loads(server.ask(f"/?{'q' * 30_000}", fields={"X-Big": "x" * 30_000}).body)
    require((large["big"], large["script"]) == (30_000, "/index.php"), f"90 kB of variables: {large}")
    require(server.ask("/x.jpg").body.startswith(b"<?php echo"), "an image is sent as it is")
    for target in CONFUSING:
        response = server.ask(urllib.parse.quote(target, safe="/%?;\\.~"))
        require(b"executed" not in response.body, f"{target}: {response}")
        require(b"<?php" not in response.body or target == "/x.jpg?/y.php", f"{target}: {response}")
    for target in ["/cron.php", "/cron.php/", "/cron.php/x", "/uploads/evil.php", "/uploads/evil.php/x", "/uploads/", "/.git/hook.php"]:
        response = server.ask(target)
        script = json.loads(response.body)["script"] if response.status == 200 else None
        require(script in (None, "/index.php"), f"{target} runs {script}")
    accel = server.ask("/?accel=/protected/file", fields={"Range": "bytes=4-"})
    require((accel.status, accel.body) == (206, b"file"), f"X-Accel-Redirect: {accel}")
    for target, ran in (("/inner/report.php", "/inner/report.php"), ("/cron.php/x?a=b", "/cron.php"), ("/blog/", "/blog/index.php"),
                        ("/about", "/index.php")):
        response = server.ask(f"/?accel={urllib.parse.quote(target)}", "POST", b"body")
        seen = json.loads(response.body) if response.status == 200 else {}
        require((seen.get("script"), seen.get("method"), seen.get("length")) == (ran, "GET", 0), f"redirect to {target}: {response}")
    for target in ("/missing.php", "/uploads/evil.php", "/x.jpg/y.php", "/a%2fb"):
        response = server.ask(f"/?accel={urllib.parse.quote(target)}")
        require(response.status == 502, f"redirect to {target}: {response}")
    require(server.ask("/inner/report.php").status == 404, "a client reads an internal script")
    require(server.ask("/?status=404").status == 404, "Status")
    server.ask("/?warn=1")
    lab.until(lambda: "a warning for the operator" in server.log_text(), "the message of the script is in no log")
    return f"{len(runs)} scripts, {len(CONFUSING)} confusing paths"


@case(basic=(), more=("php-fpm",))
def two_processes_serve_two_hundred_clients(lab: Lab, app: str) -> str:
    """No client starves: idle connections occupy no process. A process that is killed within its response leaves no complete response, and
    others are served. Planted: a process is killed for each request."""
    _, server = php(lab)

    def ask(_: int) -> int:
        return server.ask("/?die=1" if lab.planted else "/?slow=1").status

    with ThreadPoolExecutor(200) as pool:
        try:
            statuses = list(pool.map(ask, range(400)))
        except Fault as fault:
            raise Fault(f"a client starved: {fault}") from None
    require(set(statuses) == {200}, f"{sorted(set(statuses))}")
    with contextlib.suppress(http.client.HTTPException, OSError):
        response = server.client().exchange("/?die=1")
        raise Fault(f"a response of {len(response.body)} bytes looks complete")
    require(server.ask("/").status == 200, "the next request")
    return "400 requests, one process killed"


@case(basic=(), more=("php-fpm",))
def kept_connections_starve_no_client(lab: Lab, app: str) -> str:
    """An upstream that keeps connections to php-fpm, and opens no more than php-fpm has processes, serves 200 clients. Planted: the
    number of connections has no limit."""
    upstream = {"name": "fpm", "keep": 1, "connections": 2, "queue": 512, "queue_time": "60s"}
    if lab.planted:
        upstream = {"name": "fpm", "keep": 64, "keep_time": "60s"}
    _, server = php(lab, upstreams=[upstream])
    with ThreadPoolExecutor(200) as pool:
        try:
            statuses = list(pool.map(lambda _: server.ask("/?slow=1").status, range(400)))
        except Fault as fault:
            raise Fault(f"a client starved: {fault}") from None
    require(set(statuses) == {200}, f"{sorted(set(statuses))}, {server.reasons()}")
    kept = server.value("encke_gateway_requests_sent_total", connection="kept")
    require(kept >= 200, f"{kept} requests used a kept connection: too few for a test")
    return f"400 requests, {kept} on kept connections"


@case(basic=(), more=("php-fpm",))
def several_pools_of_php_serve_one_site(lab: Lab, app: str) -> str:
    """Requests go to both pools of an upstream, and to the second alone once the first has ended. A site that
    follows no links runs no script through one. Planted: the second pool has ended, too."""
    other = lab.application(app)
    application, server = php(lab, {"symlinks": "deny"}, [{"name": "fpm", "to": [other]}])

    def processes() -> set[int]:
        with ThreadPoolExecutor(8) as pool:
            responses = list(pool.map(lambda _: server.ask("/?slow=1"), range(40)))
        require(all(response.status == 200 for response in responses), f"{server.reasons()}")
        return {json.loads(response.body)["pid"] for response in responses}

    require(len(processes()) == 4, "a process of the two pools has served no request")
    (server.root / "alias.php").symlink_to("index.php")
    require(server.ask("/alias.php").status == 404, "a script behind a link has run")
    application.stop()
    if lab.planted:
        other.stop()
    require(len(processes()) == 2, "the second pool")
    return "two pools, then one"


@case(basic=(), more=("plackup",))
def a_psgi_application_responds_over_fastcgi(lab: Lab, app: str) -> str:
    """Statuses, fields, bodies in both directions, and a response that leaves before it is complete. Planted: the application gets
    another body."""
    application = lab.application(app)
    server = lab.gateway([{"pattern": "/**", "upstream": application, "request": {"set": {"X-Sendfile-Type": "X-Sendfile"}}}])
    body = lab.chance.randbytes(200_000)
    posted = server.ask("/a/shape?status=201&field=X-Own:%20a&field=Set-Cookie:%20a&field=Set-Cookie:%20b", "POST", body)
    seen = json.loads(posted.body)
    expected = hashlib.sha256(body[lab.planted:]).hexdigest()
    require((posted.status, seen["length"], seen["digest"]) == (201, len(body), expected), f"{posted.status} {seen}")
    require((posted.fields["X-Own"], posted.fields.get_all("Set-Cookie")) == ("a", ["a", "b"]), posted)
    require(bytes.fromhex(seen["seen"]["HTTP_X_SENDFILE_TYPE"]) == b"X-Sendfile", "a field of the route")
    require((server.ask("/a/shape?status=204").status, server.ask("/a/shape", "HEAD").body) == (204, b""), "no content")
    client = server.requested("/a/stream", fields="Connection: close\r\n")
    client.until(b"first")
    require(b"last" not in client.received, "the response came at once: it proves nothing")
    application.open_gate()
    data = client.to_end()
    require(b"last\n" in data and data.endswith(b"0\r\n\r\n"), data)
    return "a body of 200 kB, a stream"


@dataclass
class Shape:
    """A request; the query gives the shape of the response."""

    method: str = "GET"
    query: str | None = None
    path: str = ""
    # The path for the application, if Encke resolves it.
    sent: str | None = None
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None
    # Whether the body is sent in chunks.
    chunked: bool = False


def query(**keys) -> str:
    """A query for shape.php and app.psgi. PHP reads several keys only with brackets."""
    return urllib.parse.urlencode([(name, value) for name, values in keys.items()
                                   for value in (values if isinstance(values, list) else [values])])


def shapes(lab: Lab, key: str) -> list[Shape]:
    """`key` is the application's name for a field in the query."""
    made = [Shape(method) for method in ("GET", "HEAD", "OPTIONS", "DELETE")]
    made += [Shape(query=text) for text in ("", "a=b&c", "a%20b=%2f+%C3%BC", "a?b=c/d", "a=%00", "a=" + "x" * 3_000)]
    made += [Shape(path=path) for path in ("/", "/a%20b", "/%C3%BC/x", "/a;b=c,d", "/a+b")]
    made += [Shape(path=path, sent=sent) for path, sent in (("/a//b", "/a/b"), ("/a/./b/../c", "/a/c"), ("/%41", "/A"))]
    for bytes_ in (0, 1, 8_191, 8_192, 65_534, 65_535, 65_536, 200_000):
        made.append(Shape("POST", body=lab.chance.randbytes(bytes_), fields=[("Content-Type", "application/octet-stream")]))
    made += [Shape("PUT", body=b"x" * 1_000), Shape("PATCH", body=b"{}", fields=[("Content-Type", "application/json; charset=utf-8")]),
             Shape("POST", body=b"a=1&b=2", fields=[("Content-Type", "application/x-www-form-urlencoded")]),
             Shape("DELETE", body=b"gone"), Shape("POST", body=lab.chance.randbytes(50_000), chunked=True),
             Shape("POST", body=b"", chunked=True)]
    made += [Shape(fields=fields) for fields in
             [[("Cookie", "a=b"), ("Cookie", "c=d")], [("X-Own", "a"), ("X-Other", "x"), ("X-Own", "b")], [("X-Empty", "")],
              # Beyond 8 KiB of variables cgi-fcgi divides one between two records, which PHP cannot read.
              [("X-Long", "y" * 6_000)], [("X-Latin", "\xfc\xe9")], [("Authorization", "Basic YTpi")], [("Referer", "http://a/?b#c")],
              [("User-Agent", "a (b; c) d/1.2")], [("X-1-2--3", "digits")],
              [("If-None-Match", '"a"'), ("Range", "bytes=0-1"), ("Accept", "*/*;q=0.1")]]]
    made += [Shape(query=query(status=status)) for status in (200, 203, 204, 206, 299, 304, 400, 402, 404, 418, 451, 500, 503, 599)]
    made += [Shape(query=query(status=status, **{key: f"Location: {place}"}))
             for status, place in ((201, "/new"), (301, "https://a.example/?b"), (302, "../x"), (307, "/x#y"))]
    made += [Shape(method, query=query(bytes=bytes_)) for method in ("GET", "POST") for bytes_ in (0, 1, 32_768, 65_536, 200_000)]
    made += [Shape(query=query(**{key: fields})) for fields in
             [["Set-Cookie: a=b; Path=/", "Set-Cookie: c=d"], ["X-Empty: "], ["X-Long: " + "z" * 2_000],
              ["ETag: \"a\"", "Last-Modified: Thu, 26 Nov 2026 00:00:00 GMT"], ["Content-Type: text/plain; charset=latin1"],
              ["Cache-Control: no-store", "Vary: Cookie"], ["Content-Disposition: attachment; filename=\"a b\""]]]
    return made


# Fields of a connection, or of the server.
OWN_FIELDS = ("connection", "date", "keep-alive", "server", "transfer-encoding")


def by_encke(lab: Lab, server: Gateway, base: str, shape: Shape) -> tuple[int, list, bytes]:
    client = server.client()
    client.putrequest(shape.method, target(base, shape), skip_accept_encoding=True)
    for name, value in shape.fields:
        client.putheader(name, value.encode("latin-1"))
    if shape.chunked:
        client.putheader("Transfer-Encoding", "chunked")
    elif shape.body is not None:
        client.putheader("Content-Length", str(len(shape.body)))
    client.endheaders(shape.body and [shape.body] if shape.chunked else shape.body, encode_chunked=shape.chunked)
    if shape.chunked and not shape.body:
        client.send(b"0\r\n\r\n")
    response = client.getresponse()
    body = response.read()
    client.close()
    return response.status, listed(response.headers.items(), response.headers.get("Transfer-Encoding") is None), body


def listed(fields, has_length: bool = True) -> list[tuple[str, str]]:
    """Fields in an order of their own. Without a length of the application, the server may add one."""
    return sorted((name.lower(), value.strip()) for name, value in fields if name.lower() not in OWN_FIELDS)


def target(base: str, shape: Shape) -> str:
    return base + shape.path + ("" if shape.query is None else f"?{shape.query}")


def by_cgi_fcgi(port: int, server: Gateway, base: str, shape: Shape, own: dict) -> tuple[int, list, bytes]:
    """The response to a request with the variables of RFC 3875."""
    raw = target(base, shape)
    variables = {"GATEWAY_INTERFACE": "CGI/1.1", "SERVER_SOFTWARE": "encke", "SERVER_PROTOCOL": "HTTP/1.1", "REQUEST_METHOD": shape.method,
                 "REQUEST_URI": raw, "QUERY_STRING": shape.query or "", "DOCUMENT_ROOT": str(server.root), "REMOTE_ADDR": "127.0.0.1",
                 "REQUEST_SCHEME": "http", "SERVER_NAME": "127.0.0.1", "SERVER_PORT": str(server.port),
                 "HTTP_HOST": f"127.0.0.1:{server.port}", "HTTP_X_FORWARDED_FOR": "127.0.0.1", "HTTP_X_FORWARDED_PROTO": "http",
                 "HTTP_X_FORWARDED_HOST": f"127.0.0.1:{server.port}", **own}
    if shape.body is not None:
        variables["CONTENT_LENGTH"] = str(len(shape.body))
    for name, value in shape.fields:
        name = name.upper().replace("-", "_")
        name = name if name == "CONTENT_TYPE" else f"HTTP_{name}"
        separator = "; " if name == "HTTP_COOKIE" else ", "
        variables[name] = variables[name] + separator + value if name in variables else value
    environment = {name: value.encode("latin-1") if name.startswith("HTTP_") else value for name, value in variables.items()}
    done = subprocess.run([shutil.which("cgi-fcgi"), "-bind", "-connect", f"127.0.0.1:{port}"], input=shape.body or b"", env=environment,
                          capture_output=True, timeout=60, check=False)
    head, found, body = done.stdout.partition(b"\r\n\r\n")
    require(found, f"cgi-fcgi, {shape}: {done.stdout[:200]} {done.stderr[:200]}"[:600])
    fields = [line.decode("latin-1").split(":", 1) for line in head.split(b"\r\n")]
    status = next((int(value.split()[0]) for name, value in fields if name.lower() == "status"), 200)
    fields = [(name, value) for name, value in fields if name.lower() != "status"]
    return status, listed(fields), b"" if shape.method == "HEAD" or status in (204, 304) else body


@case(basic=(), more=("php-fpm", "plackup"))
def responses_are_those_of_cgi_fcgi(lab: Lab, app: str) -> str:
    """Encke and cgi-fcgi, another FastCGI client, send the same requests to an application: status, fields and body are the same, and
    the application has seen the same variables. Planted: cgi-fcgi sends another name of the server."""
    application = lab.application(app)
    if app == "php-fpm":
        server, base, key = lab.gateway([{"pattern": "/**", "php": f"127.0.0.1:{application.port}", "compress": False}]), "/shape.php", "field[]"
        readable(server.root)
        shutil.copy(APPS / "shape.php", server.root / "shape.php")
    else:
        server, base, key = lab.gateway([{"pattern": "/**", "upstream": application, "compress": False}]), "/a/shape", "field"
    wrong = []
    requests = shapes(lab, key)
    for shape in requests:
        sent = shape if shape.sent is None else Shape(**{**vars(shape), "path": shape.sent})
        path = urllib.parse.unquote(base + sent.path)
        if app == "php-fpm":
            own = {"SCRIPT_NAME": base, "PATH_INFO": path.removeprefix(base), "SCRIPT_FILENAME": f"{server.root}{base}",
                   "REDIRECT_STATUS": "200"}
        else:
            own = {"SCRIPT_NAME": "", "PATH_INFO": path}
        if lab.planted:
            own["SERVER_NAME"] = "another"
        ours, other = by_encke(lab, server, base, shape), by_cgi_fcgi(application.port, server, base, sent, own)
        if not any(name == "content-length" for name, _ in other[1]):
            ours = (ours[0], [(name, value) for name, value in ours[1] if name != "content-length"], ours[2])
        if ours != other:
            wrong.append(f"{differences(ours, other)} in {shape}"[:600])
    require(not wrong, f"{len(wrong)} of {len(requests)}: " + "\n".join(wrong[:5]))
    return f"{len(requests)} requests"


def differences(ours: tuple, other: tuple) -> str:
    if ours[:2] != other[:2]:
        return f"{ours[:2]}, not {other[:2]}"
    try:
        seen, expected = (json.loads(one[2])["seen"] for one in (ours, other))
    except ValueError:
        return f"{ours[2][:100]!r}, not {other[2][:100]!r}"
    names = sorted(name for name in {*seen, *expected} if seen.get(name) != expected.get(name))
    return ", ".join(f"{name}: {[one.get(name) and bytes.fromhex(one[name]) for one in (seen, expected)]}" for name in names) or "body"
