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

from harness import MIB, REPOSITORY, START_PATIENCE, VENV, Fault, Lab, case, readable, require

# FCGI::ProcManager, for one, does not end by SIGTERM while a process of it waits for a request.
STOP_PATIENCE = 5.0
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
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "90",
                        "-subj", "/CN=shop.example", "-addext", "subjectAltName=DNS:shop.example,DNS:www.shop.example",
                        "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", shop / "key.pem", "-out", shop / "cert.pem"],
                       check=True, capture_output=True)
        hashed = subprocess.run(["openssl", "passwd", "-6", "secret"], check=True, capture_output=True, text=True).stdout
        (shop / "htpasswd").write_text(f"ann:{hashed}")
        # The workers of nginx may run as another user.
        for path in [lab.folder, *lab.folder.rglob("*")]:
            if path.is_dir() or path.is_relative_to(lab.path("srv")) or path.is_relative_to(shop):
                path.chmod(0o755 if path.is_dir() else 0o644)
        self.places = {"/etc/shop": lab.path("etc/shop"), "/srv/shop": lab.path("srv/shop"), "/srv/files": lab.path("srv/files"),
                       "http://127.0.0.1:3000": self.application.url}
        self.plain_port = self.secure_port = 0

    def start_encke(self) -> None:
        places = {**self.places, '":80"': '"127.0.0.1:0"', '":443"': '"127.0.0.2:0"'}
        file = self.lab.path("encke.toml")
        file.write_text(f'[push]\nenabled = false\n[log]\naccess = "off"\n'
                        + replaced(block("from-nginx.md", "toml", "# encke.toml of the shop"), places)
                        .replace("[server]\n", f'[server]\nadmin = "off"\nbackend = "{self.lab.backend}"\n'))
        checked = subprocess.run([self.lab.encke, "check", file], capture_output=True, text=True)
        require(checked.returncode == 0 and not checked.stderr, f"encke check: {checked.stdout} {checked.stderr}")
        log = start(self.lab, [self.lab.encke, "serve", "-c", file])

        def found(pattern: str) -> int:
            return int(self.lab.until(lambda: re.search(pattern, log.read_text()), "Encke did not start", START_PATIENCE)[1])

        self.plain_port, self.secure_port = found(r"redirect http://127\.0\.0\.1:(\d+)"), found(r"https://shop\.example:(\d+)/")

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
        log = start(self.lab, [NGINX, "-c", folder / "nginx.conf", "-e", folder / "errors"])

        try:
            self.lab.until(lambda: listens("127.0.0.2", self.secure_port), "", START_PATIENCE)
        except Fault:
            raise Fault(f"nginx did not start: {log.read_text()} {(folder / 'errors').read_text()}") from None

    def ask(self, asked: Asked) -> tuple[int, http.client.HTTPMessage, bytes]:
        host, port = ("127.0.0.2", self.secure_port) if asked.secure else ("127.0.0.1", self.plain_port)
        client = http.client.HTTPConnection(host, port, timeout=self.lab.patience)
        with contextlib.closing(client):
            client.sock = connect_to(host, port, self.lab.patience)
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
        with context.wrap_socket(connect_to("127.0.0.2", self.secure_port, self.lab.patience), server_hostname="shop.example") as client:
            client.sendall(b"GET /api/a/ws HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            data = read_until(client, b"\x81\x05first")
            require(data.startswith(b"HTTP/1.1 101 "), data)


def start(lab: Lab, command: list, folder: Path | None = None, environment: dict | None = None) -> Path:
    """Starts a process, which ends with the case. Returns the file of its output."""
    log = lab.path(f"log-{len(list(lab.folder.iterdir()))}")
    with log.open("wb") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=folder,
                                   env={**os.environ, **(environment or {})}, start_new_session=True)
    lab.stack.callback(stop, process)
    return log


def listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), connect_to(host, port):
        return True
    return False


def connect_to(host: str, port: int, patience: float = 10) -> socket.socket:
    return socket.create_connection((host, port), timeout=patience)


def free_port() -> int:
    """A port for a program that cannot choose one itself. It is below those that the kernel gives to other cases meanwhile."""
    for port in PORTS:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.2", port)):
            return port


def stop(process: subprocess.Popen) -> None:
    """Ends a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
    text = replaced(settings, places)
    own = f'[server]\nlisten = "127.0.0.1:0"\nadmin = "off"\nbackend = "{lab.backend}"\n[push]\nenabled = false\n[log]\naccess = "off"\n'
    (folder / "encke.toml").write_text(own + text)
    words = [word.replace(example.address, str(port)) for word in example.command.split()]
    environment = {"REPORTS": str(folder / "reports"), "NODE_PATH": "/usr/share/nodejs", "RAILS_ENV": "production"}
    words = [word for word in words if not word.startswith("REPORTS=")]
    if example.programs:
        words[0] = str(example.programs / words[0])
    if not lab.planted:
        log = start(lab, words, folder, environment)
        try:
            lab.until(lambda: listens("127.0.0.1", port), "", START_PATIENCE)
        except Fault:
            raise Fault(f"{name} did not start: {log.read_text()[-600:]}") from None
    served = start(lab, [lab.encke, "serve", "-c", folder / "encke.toml"])
    match = lab.until(lambda: re.search(r"http://(?:127\.0\.0\.1|shop\.example):(\d+)/", served.read_text()), "Encke did not start",
                      START_PATIENCE)
    encke = int(match[1])

    def ask(target: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", encke, timeout=lab.patience)) as client:
            client.request("GET", target, headers={"Host": "shop.example"})
            response = client.getresponse()
            return response.status, response.headers, response.read()

    status, _, body = ask("/")
    hello = {"django": b"hello 127.0.0.1 by http", "rails": b"hello 127.0.0.1 by http://"}.get(name, b"hello 127.0.0.1\n")
    require((status, body) == (200, hello), f"/: {status} {body}")
    if not name.startswith("plack"):
        require(ask("/about.txt")[2] == b"about", "files come first")
    if name == "node":
        with connect_to("127.0.0.1", encke, lab.patience) as events:
            events.sendall(b"GET /events HTTP/1.0\r\nHost: shop.example\r\n\r\n")
            read_until(events, b": open\n\n")
            websocket_echoes(lab, encke, "/ws")
            read_until(events, b"data: hi\n\n")
        return "a page, a file, events, a WebSocket"
    target = {"django": "/report/"}.get(name, "/report")
    status, fields, body = ask(target)
    require((status, body) == (200, b"the report") and fields["Content-Type"] == "application/pdf", f"{target}: {status} {fields} {body}")
    require("X-Sendfile" not in fields and "X-Accel-Redirect" not in fields, fields)
    if name == "django":
        websocket_echoes(lab, encke, "/ws/")
        require(ask("/reports/2026.pdf")[0] == 404, "an internal path is open")
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
    own = f'[server]\nlisten = "127.0.0.1:0"\nadmin = "off"\nbackend = "{lab.backend}"\n[push]\nenabled = false\n[log]\naccess = "off"\n'
    settings = block("gateway.md", "toml", "# encke.toml for Rails started by Encke")
    (folder / "encke.toml").write_text(own + settings.replace("/srv/reports", str(folder / "reports")))
    checked = subprocess.run([lab.encke, "check", folder / "encke.toml"], capture_output=True, text=True)
    require(checked.returncode == 0 and not checked.stderr, f"encke check: {checked.stdout} {checked.stderr}")
    log = lab.path("encke.log")
    with log.open("wb") as file:
        process = subprocess.Popen([lab.encke, "serve", "-c", folder / "encke.toml"], stdout=file, stderr=file,
                                   env={**os.environ, "RAILS_ENV": "production"})
    lab.stack.callback(process.wait, START_PATIENCE)
    lab.stack.callback(process.terminate)
    match = lab.until(lambda: re.search(r"http://(?:127\.0\.0\.1|shop\.example):(\d+)/", log.read_text()), "Encke did not start",
                      START_PATIENCE)

    def ask(target: str) -> tuple[int, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=lab.patience)) as client:
            client.request("GET", target, headers={"Host": "shop.example"})
            response = client.getresponse()
            return response.status, response.read()

    for turn in range(2):
        seen = [ask(target) for target in ("/", "/about.txt", "/report")]
        require(seen == [(200, b"hello 127.0.0.1 by http://"), (200, b"about"), (200, b"the report")], f"{turn}: {seen}")
        if turn == 0:
            process.send_signal(signal.SIGHUP)
            lab.until(lambda: "app rails: replaced by" in log.read_text(), f"not replaced: {log.read_text()[-600:]}")
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
    own = f'[server]\nlisten = "127.0.0.1:0"\nadmin = "off"\nbackend = "{lab.backend}"\n[push]\nenabled = false\n[log]\naccess = "off"\n'
    settings = block("gateway.md", "toml", "# encke.toml for PHP")
    (folder / "encke.toml").write_text(own + replaced(settings, {"/run/php/php8.2-fpm.sock": str(socket_file)}))
    (folder / "fpm.conf").write_text(f"[global]\nerror_log = {folder}/fpm.log\n[www]\nlisten = {socket_file}\nlisten.mode = 0666\n"
                                     "user = www-data\npm = static\npm.max_children = 5\n")
    if not lab.planted:
        start(lab, ["/usr/sbin/php-fpm8.2", "-F", "-y", folder / "fpm.conf"])
        lab.until(socket_file.exists, "php-fpm did not start", START_PATIENCE)
    served = start(lab, [lab.encke, "serve", "-c", folder / "encke.toml"])
    port = int(lab.until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)/", served.read_text()), "Encke did not start", START_PATIENCE)[1])

    def ask(method: str, target: str, body: bytes | None = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=lab.patience)) as client:
            client.request(method, target, body, {"Content-Type": "multipart/form-data; boundary=b"} if body else {})
            response = client.getresponse()
            return response.status, response.headers, response.read()

    status, _, body = ask("GET", "/")
    require((status, body) == (200, b"hello 127.0.0.1\n"), f"/: {status} {body}")
    require(ask("GET", "/about.txt")[2] == b"about", "a file")
    report = lab.chance.randbytes(MIB)
    part = b'--b\r\nContent-Disposition: form-data; name="report"; filename="2026.pdf"\r\n\r\n'
    status, fields, body = ask("POST", "/report", part + report + b"\r\n--b--\r\n")
    require(status == 201, f"upload: {status} {body}")
    place = fields["Location"]
    status, fields, body = ask("GET", place)
    require((status, body, fields["Content-Type"]) == (200, report, "application/pdf"), f"{place}: {status} {fields}")
    require("X-Accel-Redirect" not in fields and fields["Accept-Ranges"] == "bytes", fields)
    require(ask("GET", place.replace("/report/", "/reports/"))[0] == 404, "an internal path is open")
    require(ask("POST", "/report", part + bytes(4 * MIB) + b"\r\n--b--\r\n")[0] == 413, "a larger upload")
    return "an upload of 1 MiB, sent back by Encke"


def read_until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        piece = client.recv(4096)
        require(piece, f"the connection ended after {data!r}")
        data += piece
    return data


def websocket_echoes(lab: Lab, port: int, target: str) -> None:
    """Sends `hi` in a masked frame, and expects it back."""
    with connect_to("127.0.0.1", port, lab.patience) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                       "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        require(b" 101 " in read_until(client, b"\r\n\r\n"), "no 101")
        client.sendall(b"\x81\x82\0\0\0\0hi")
        require(read_until(client, b"hi") == b"\x81\x02hi", "another echo")
