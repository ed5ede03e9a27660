"""The files that docs/ shows to operators, executed as they are printed: only addresses and directories differ."""
import base64
import contextlib
import http.client
import itertools
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from applications import Lab, readable
from rig import (MIB, REPOSITORY, TEXT, UPGRADE, VENV, Connection, Encke, Fault, ProcessGroup, Response, case, masked_frame,
                 openssl, require, self_signed)

# FCGI::ProcManager, for one, does not end by SIGTERM while a process of it waits for a request.
# Each port is used once per run. Runs at the same time begin at different ports.
PORTS = itertools.cycle(range(16_000 + os.getpid() % 256 * 64, 32_700))
# Debian's place for servers may not be in the PATH.
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")


def block(page: str, language: str, first: str) -> str:
    """The block of a page in docs/ whose first line is `first`."""
    text = (REPOSITORY / "docs" / page).read_text()
    found = re.search(rf"^```{language}\n({re.escape(first)}\n.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if not found:
        raise Fault(f"docs/{page} has no block {language} that begins with {first!r}")
    return found[1]


def replaced(text: str, pairs: dict) -> str:
    """The text with other places; each must occur."""
    for old, new in pairs.items():
        if old not in text:
            raise Fault(f"{old} is not in the example")
        text = text.replace(old, str(new))
    return text


@dataclass
class Asked:
    """A request to the shop, and its response: fields in part, `None` for an absent one."""

    target: str
    status: int
    fields: dict = field(default_factory=dict)
    text: str | None = None
    method: str = "GET"
    host: str = "shop.example"
    secure: bool = True
    sent: dict = field(default_factory=dict)
    body: bytes | None = None


def basic(user: str) -> dict:
    return {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}


FRAME = {"X-Frame-Options": "DENY"}
@dataclass
class Example:
    """An application of docs/gateway.md: its file, its settings, and how it is started."""

    language: str
    file: str
    settings: str
    # The command's line in the document, and the address in it.
    command: str
    address: str
    comment: str = "#"
    # The directory of programs that are no packages of Debian.
    programs: Path | None = None


EXAMPLES = {
    "node": Example("js", "app.js", "Node", "node app.js", "3000", comment="//"),
    "django": Example("python", "shop.py", "Django", "uvicorn --host 127.0.0.1 --port 8001 --proxy-headers shop:application", "8001",
                      programs=VENV),
    "plack": Example("perl", "app.psgi", "Plack", "REPORTS=/srv/reports starman --workers 2 --listen 127.0.0.1:5000 app.psgi", "5000"),
    "plack-fcgi": Example("perl", "app.psgi", "Plack over FastCGI",
                          "REPORTS=/srv/reports plackup -s FCGI --listen 127.0.0.1:9000 --nproc 2 app.psgi", "9000"),
    "rails": Example("ruby", "config.ru", "Rails", "REPORTS=/srv/reports puma -b tcp://127.0.0.1:3000 config.ru", "3000"),
}
REQUESTS = [
    Asked("/a?b=c", 301, {"Location": "https://shop.example/a?b=c"}, secure=False),
    Asked("/", 301, {"Location": "https://www.shop.example/"}, host="www.shop.example", secure=False),
    Asked("/a?b=c", 301, {"Location": "https://shop.example/a?b=c"}, host="www.shop.example"),
    Asked("/", 200, FRAME, "the shop"),
    Asked("/", 405, method="POST"),
    Asked("/none", 404, FRAME, "page for 404"),
    Asked("/assets/app.css", 200, {**FRAME, "Cache-Control": "public, max-age=31536000, immutable"}, "css"),
    Asked("/assets/app.css", 200, {"Content-Encoding": "gzip"}, "gzip", sent={"Accept-Encoding": "gzip"}),
    Asked("/old/page.html?x", 200, FRAME, "new page"),
    Asked("/old/none", 404, text="page for 404"),
    Asked("/blog/2026/a?b", 308, {"Location": "https://blog.example/blog/2026/a?b"}),
    Asked("/blog/2026/a", 308, {"Location": "https://blog.example/blog/2026/a"}, method="POST"),
    Asked("/private/x", 403),
    Asked("/private/x", 403, method="POST"),
    Asked("/admin/index.html", 401, text="page for 401"),
    Asked("/admin/index.html", 401, text="page for 401", sent=basic("ann:wrong")),
    Asked("/admin/index.html", 200, FRAME, "admin", sent=basic("ann:secret")),
    Asked("/api/a/echo?b=c", 200, {**FRAME, "X-Seen": None}),
    Asked("/api/a/echo", 200, FRAME, method="POST", body=b"x" * MIB),
    Asked("/api/a/echo", 413, FRAME, "page for 413", method="POST", sent={"Content-Length": str(3 * MIB)}),
    Asked("/api/upload/echo", 200, FRAME, method="POST", body=b"x" * (3 * MIB)),
    Asked("/api/upload/echo", 413, text="page for 413", method="POST", sent={"Content-Length": str(21 * MIB)}),
    Asked("/files/report.txt", 404),
    Asked("/download/send?X-Accel-Redirect=/files/report.txt", 200, text="the report"),
    Asked("/download/send?X-Accel-Redirect=/files/none", 404),
]
DOWN = [Asked("/api/a/echo", 502, FRAME, "sorry"), Asked("/api/a/echo", 502, text="sorry", method="POST", body=b"x"), Asked("/", 200)]


class Shop:
    """The directories of the example, and one of the two servers."""

    def __init__(self, lab: Lab):
        self.lab, self.application = lab, lab.application("plain")
        files = {"srv/shop/index.html": "the shop", "srv/shop/new/page.html": "new page", "srv/shop/admin/index.html": "admin",
                 "srv/shop/assets/app.css": "css", "srv/shop/assets/app.css.gz": "gzip", "srv/shop/sorry.html": "sorry",
                 "srv/files/report.txt": "the report",
                 **{f"srv/shop/{status}.html": f"page for {status}" for status in (401, 404, 413)}}
        for name, text in files.items():
            lab.path(name).parent.mkdir(parents=True, exist_ok=True)
            lab.path(name).write_text(text)
        shop = lab.path("etc/shop")
        shop.mkdir(parents=True)
        self_signed(shop, "shop.example", "subjectAltName=DNS:shop.example,DNS:www.shop.example",
                    "basicConstraints=critical,CA:FALSE")
        (shop / "htpasswd").write_text(f"ann:{openssl('passwd', '-6', 'secret')}")
        # The workers of nginx may run as another user.
        for path in [lab.folder, *lab.folder.rglob("*")]:
            if path.is_dir() or path.is_relative_to(lab.path("srv")) or path.is_relative_to(shop):
                path.chmod(0o755 if path.is_dir() else 0o644)
        self.places = {"/etc/shop": lab.path("etc/shop"), "/srv/shop": lab.path("srv/shop"), "/srv/files": lab.path("srv/files"),
                       "http://127.0.0.1:3000": self.application.url}
        self.plain_port = self.secure_port = 0

    def start_encke(self) -> None:
        places = {**self.places, '":80"': '"127.0.0.1:0"', '":443"': '"127.0.0.2:0"'}
        text = ('[push]\nenabled = false\n[log]\naccess = "off"\n'
                + replaced(block("from-nginx.md", "toml", "# encke.toml of the shop"), places)
                .replace("[server]\n", f'[server]\nadmin = "off"\nbackend = "{self.lab.backend}"\n'))
        server = serve(self.lab, self.lab.folder, text, is_checked=True)
        self.plain_port, self.secure_port = server.port_of("redirect"), server.port

    def start_nginx(self) -> None:
        self.plain_port, self.secure_port = free_port(), free_port()
        places = {**self.places, "listen 80;": f"listen 127.0.0.1:{self.plain_port};",
                  "listen 443 ssl;": f"listen 127.0.0.2:{self.secure_port} ssl;"}
        folder = self.lab.path("nginx")
        folder.mkdir()
        folder.chmod(0o777)
        paths = " ".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors; events {{}}\n"
            f"http {{ access_log off; {paths} types {{ text/html html; text/css css; text/plain txt; }}\n"
            'map $http_upgrade $connection_upgrade { default upgrade; "" close; }\n'
            + replaced(block("from-nginx.md", "nginx", "# shop.conf"), places) + "}\n")
        nginx = start(self.lab, [NGINX, "-c", folder / "nginx.conf", "-e", folder / "errors"])
        self.lab.until(lambda: listens("127.0.0.2", self.secure_port),
                       lambda: f"nginx does not listen: {nginx.log_text()} {(folder / 'errors').read_text()}")

    def ask(self, asked: Asked) -> tuple[int, http.client.HTTPMessage, bytes]:
        host, port = ("127.0.0.2", self.secure_port) if asked.secure else ("127.0.0.1", self.plain_port)
        client = http.client.HTTPConnection(host, port, timeout=self.lab.patience)
        with contextlib.closing(client):
            client.sock = socket.create_connection((host, port), timeout=self.lab.patience)
            if asked.secure:
                context = ssl.create_default_context(cafile=str(self.lab.path("etc/shop/cert.pem")))
                client.sock = context.wrap_socket(client.sock, server_hostname=asked.host)
            client.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
            sent = {"Host": asked.host, **asked.sent}
            if asked.body is not None:
                sent["Content-Length"] = str(len(asked.body))
            elif asked.method == "POST":
                sent.setdefault("Content-Length", "0")
            for name, value in sent.items():
                client.putheader(name, value)
            client.endheaders(asked.body)
            response = client.getresponse()
            return response.status, response.headers, response.read()

    def judge(self, requests: list[Asked]) -> None:
        wrong = []
        for asked in requests:
            try:
                status, fields, body = self.ask(asked)
            except (OSError, http.client.HTTPException) as error:
                wrong.append(f"{asked.method} {asked.target}: {error!r}")
                continue
            differs = {name: fields.get(name) for name, value in asked.fields.items() if fields.get(name) != value}
            if status != asked.status or differs or asked.text not in (None, body.decode("latin-1").strip()):
                wrong.append(f"{asked.method} {asked.target}: {status} {differs} {body[:40]!r}")
            challenge = fields.get("WWW-Authenticate", "")
            if (status == 401) != challenge.startswith('Basic realm="Admin"'):
                wrong.append(f"{asked.target}: {status} with {challenge!r}")
        require(not wrong, wrong)

    def websocket(self) -> None:
        """A WebSocket below /api/ is open, and its first message arrives."""
        context = ssl.create_default_context(cafile=str(self.lab.path("etc/shop/cert.pem")))
        plain = socket.create_connection(("127.0.0.2", self.secure_port), timeout=self.lab.patience)
        with context.wrap_socket(plain, server_hostname="shop.example") as client:
            client.sendall(f"GET /api/a/ws HTTP/1.1\r\nHost: shop.example\r\n{UPGRADE}\r\n".encode())
            data = b""
            while not data.endswith(b"\x81\x05first"):
                require(piece := client.recv(4096), f"the WebSocket ended after {data!r}")
                data += piece
            require(data.startswith(b"HTTP/1.1 101 "), data)


def start(lab: Lab, command: list, folder: Path | None = None, environment: dict | None = None) -> ProcessGroup:
    """Starts a process, which ends with the case."""
    return lab.started(ProcessGroup(command, lab.new_path("log"), cwd=folder, env={**os.environ, **(environment or {})}))


def serve(lab: Lab, folder: Path, settings: str, *, is_checked: bool = False, environment: dict | None = None) -> Encke:
    """Starts an Encke with these settings."""
    file = folder / "encke.toml"
    file.write_text(settings)
    if is_checked:
        checked = subprocess.run([lab.encke, "check", file], capture_output=True, text=True)
        require(checked.returncode == 0 and not checked.stderr, f"encke check: {checked.stdout} {checked.stderr}")
    return lab.started(Encke([lab.encke, "serve", "-c", file], lab.new_path("log"), has_admin=False, patience=lab.patience,
                             env={**os.environ, **(environment or {})}))


def own_settings(lab: Lab) -> str:
    return (f'[server]\nlisten = "127.0.0.1:0"\nadmin = "off"\nbackend = "{lab.backend}"\n[push]\nenabled = false\n'
            '[log]\naccess = "off"\n')


def listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=10):
        return True
    return False


def free_port() -> int:
    """A port for a program that cannot choose one itself. It is below those that the kernel gives to other cases meanwhile."""
    for port in PORTS:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.2", port)):
            return port


@case(basic=("encke",), more=("nginx",))
def the_shop_of_from_nginx_works_with_both_files(lab: Lab, server: str) -> str:
    """The two files of docs/from-nginx.md lead to the same statuses and fields: redirects, pages, caching, passwords, uploads,
    WebSockets, internal files. Planted: the application has ended."""
    shop = Shop(lab)
    if server == "nginx" and not NGINX:
        raise Fault("nginx is missing: .ci/need nginx")
    shop.start_encke() if server == "encke" else shop.start_nginx()
    if lab.planted:
        shop.application.stop()
    shop.judge(REQUESTS)
    shop.websocket()
    seen = [line for line in shop.application.record() if line.get("target") == "/a/echo?b=c"]
    require(seen and "x-real-ip" in seen[0]["fields"], f"the application sees {seen}")
    shop.application.stop(signal.SIGKILL)
    shop.judge(DOWN)
    return f"{len(REQUESTS) + len(DOWN)} requests, a WebSocket"


@case(basic=(), more=("node", "django", "plack", "plack-fcgi", "rails"))
def the_applications_of_the_manual_work(lab: Lab, name: str) -> str:
    """Each application of docs/gateway.md serves requests through Encke with its settings from there: pages with the client's address,
    files that it names, events and WebSockets. Planted: the application is not started."""
    example = EXAMPLES[name]
    page = (REPOSITORY / "docs/gateway.md").read_text()
    require(f"\n{example.command}\n" in page, f"docs/gateway.md has no line {example.command!r}")
    folder, port = lab.path("example"), free_port()
    for file, text in {"public/about.txt": "about", "static/about.txt": "about", "reports/2026.pdf": "the report"}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    places = {example.address: str(port)}
    code = block("gateway.md", example.language, f"{example.comment} {example.file}")
    (folder / example.file).write_text(replaced(code, places) if example.address in code else code)
    settings = block("gateway.md", "toml", f"# encke.toml for {example.settings}")
    if "/srv/reports" in settings:
        places["/srv/reports"] = str(folder / "reports")
    words = [word.replace(example.address, str(port)) for word in example.command.split()]
    environment = {"REPORTS": str(folder / "reports"), "NODE_PATH": "/usr/share/nodejs", "RAILS_ENV": "production"}
    words = [word for word in words if not word.startswith("REPORTS=")]
    if example.programs:
        words[0] = str(example.programs / words[0])
    if not lab.planted:
        application = start(lab, words, folder, environment)
        lab.until(lambda: listens("127.0.0.1", port), lambda: f"{name} does not listen: {application.log_text()[-600:]}")
    server = serve(lab, folder, own_settings(lab) + replaced(settings, places))

    def ask(target: str) -> Response:
        return server.ask(target, fields={"Host": "shop.example"})

    status, body, _ = ask("/")
    hello = {"django": b"hello 127.0.0.1 by http", "rails": b"hello 127.0.0.1 by http://"}.get(name, b"hello 127.0.0.1\n")
    require((status, body) == (200, hello), f"/: {status} {body}")
    if not name.startswith("plack"):
        require(ask("/about.txt").body == b"about", "files come first")
    if name == "node":
        events = lab.connect(server.port)
        events.request("/events", version="1.0", host="shop.example")
        events.until(b": open\n\n")
        websocket_echoes(lab.connect(server.port), "/ws")
        events.until(b"data: hi\n\n")
        return "a page, a file, events, a WebSocket"
    target = {"django": "/report/"}.get(name, "/report")
    status, body, fields = ask(target)
    require((status, body) == (200, b"the report") and fields["Content-Type"] == "application/pdf", f"{target}: {status} {fields} {body}")
    require("X-Sendfile" not in fields and "X-Accel-Redirect" not in fields, fields)
    if name == "django":
        websocket_echoes(lab.connect(server.port), "/ws/")
        require(ask("/reports/2026.pdf").status == 404, "an internal path is open")
    return "a page, a file, a report"


@case(basic=(), more=("rails",))
def an_application_of_the_manual_starts_with_encke(lab: Lab, name: str) -> str:
    """The Rails application of docs/gateway.md runs under [[app]] with the settings from there, and is replaced by a reload. Planted: its
    program has an error."""
    folder = lab.path("example")
    for file, text in {"public/about.txt": "about", "reports/2026.pdf": "the report"}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    (folder / "config.ru").write_text(block("gateway.md", "ruby", "# config.ru") + ("raise 'planted'\n" if lab.planted else ""))
    settings = block("gateway.md", "toml", "# encke.toml for Rails started by Encke")
    settings = settings.replace("/srv/reports", str(folder / "reports"))
    server = serve(lab, folder, own_settings(lab) + settings, is_checked=True, environment={"RAILS_ENV": "production"})
    for turn in range(2):
        seen = [server.ask(target, fields={"Host": "shop.example"})[:2] for target in ("/", "/about.txt", "/report")]
        require(seen == [(200, b"hello 127.0.0.1 by http://"), (200, b"about"), (200, b"the report")], f"{turn}: {seen}")
        if turn == 0:
            server.send_signal(signal.SIGHUP)
            server.logged("app rails: replaced by")
    return "a page, a file, a report, before and after a replacement"


@case(basic=(), more=("php-fpm",))
def the_php_application_of_the_manual_works(lab: Lab, name: str) -> str:
    """The PHP application of docs/gateway.md takes an upload and lets Encke send it, with its settings from there. Planted: php-fpm
    is not started."""
    folder = lab.path("example")
    for directory in ("public", "reports"):
        (folder / directory).mkdir(parents=True)
    (folder / "reports").chmod(0o777)  # in place of its owner www-data
    (folder / "public/index.php").write_text(block("gateway.md", "php", "<?php // public/index.php"))
    (folder / "public/about.txt").write_text("about")
    readable(folder / "public")
    socket_file = folder / "fpm.sock"
    settings = replaced(block("gateway.md", "toml", "# encke.toml for PHP"), {"/run/php/php8.2-fpm.sock": str(socket_file)})
    (folder / "fpm.conf").write_text(f"[global]\nerror_log = {folder}/fpm.log\n[www]\nlisten = {socket_file}\nlisten.mode = 0666\n"
                                     "user = www-data\npm = static\npm.max_children = 5\n")
    if not lab.planted:
        start(lab, ["/usr/sbin/php-fpm8.2", "-F", "-y", folder / "fpm.conf"])
        lab.until(socket_file.exists, "php-fpm has no socket")
    server = serve(lab, folder, own_settings(lab) + settings)

    def upload(content: bytes) -> Response:
        part = b'--b\r\nContent-Disposition: form-data; name="report"; filename="2026.pdf"\r\n\r\n'
        fields = {"Content-Type": "multipart/form-data; boundary=b"}
        return server.ask("/report", "POST", part + content + b"\r\n--b--\r\n", fields)

    status, body, _ = server.ask("/")
    require((status, body) == (200, b"hello 127.0.0.1\n"), f"/: {status} {body}")
    require(server.ask("/about.txt").body == b"about", "a file")
    report = lab.chance.randbytes(MIB)
    require((response := upload(report)).status == 201, f"upload: {response}")
    place = response.fields["Location"]
    status, body, fields = server.ask(place)
    require((status, body, fields["Content-Type"]) == (200, report, "application/pdf"), f"{place}: {status} {fields}")
    require("X-Accel-Redirect" not in fields and fields["Accept-Ranges"] == "bytes", fields)
    require(server.ask(place.replace("/report/", "/reports/")).status == 404, "an internal path is open")
    require(upload(bytes(4 * MIB)).status == 413, "a larger upload")
    return "an upload of 1 MiB, sent back by Encke"


def websocket_echoes(client: Connection, target: str) -> None:
    """Sends `hi` in a frame, and expects it back."""
    with client:
        client.request(target, fields=UPGRADE, host="shop.example")
        require(b" 101 " in (head := client.head()), f"no 101: {head!r}")
        client.sendall(masked_frame(b"hi"))
        require(client.frame() == (TEXT, b"hi"), "another echo")
