"""A search for secrets of the settings in everything that leaves the server."""
import contextlib
import json
import shutil
import sys

from attackers import AttackRig, attack
from console import HASH, PASSWORD, logged_in
from rig import Client, Fault, require

PLANTED = 20
# The application reports its secrets, as one with a stack trace does, then serves.
APPLICATION = """
import http.server, os, sys
print("cannot connect with", os.environ["API_KEY"], os.environ["DATABASE_URL"], *sys.argv[1:], "planted-output-S20x9Q", flush=True)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Page).serve_forever()
"""


def planted(rig: AttackRig) -> tuple[list[str], dict]:
    """Secrets, and settings that have one in each kind of value."""
    secret = [f"planted-S{number:02}x9Q7-secret-0123456789" for number in range(1, PLANTED + 1)]
    secret[19] = "planted-output-S20x9Q"
    file = rig.path("secret")
    file.write_text(secret[1])
    file.chmod(0o600)
    program = rig.path("application.py")
    program.write_text(APPLICATION)
    every = {act: ["**"] for act in ("publish", "subscribe", "presence", "manage")}
    settings = {
        "server": {"admin": {"token": secret[0]}, "state_dir": str(rig.path("state"))},
        "auth": {
            "keys": [{"kid": "one", "secret": secret[2]}, {"kid": "two", "secret": {"file": str(file)}}],
            "tokens": [{"token": secret[3], "name": "backend", **every}],
            "ask": f"http://127.0.0.1:9/hooks/{secret[4]}?token={secret[5]}",
        },
        "access": [
            {"pattern": "/asked/**", "ask": f"http://127.0.0.1:9/check/{secret[6]}/ask?api_key={secret[7]}"},
        ],
        "console": {"user": [{"name": "ann", "password": HASH, "role": "admin"}, {"name": "ben", "password": HASH}]},
        "app": [{
            "name": "shop", "run": [sys.executable or shutil.which("python3"), str(program), f"--password={secret[8]}", "--token",
                                    secret[9], secret[10]],
            "env": {"API_KEY": secret[11], "DATABASE_URL": f"postgres://shop:{secret[12]}@127.0.0.1/shop", "PORT": "{port}"},
        }],
        "site": [{
            "root": str(rig.path("root")),
            "headers": [{"pattern": "/never/**", "set": {"X-Api-Key": secret[13]}}],
            "route": [{"pattern": "/app/**", "upstream": "app:shop",
                       "request": {"set": {"Authorization": f"Bearer {secret[14]}"}, "add": {"X-Signing-Secret": secret[15]}}}],
        }],
        "live": {"enabled": True, "channel": [{"pattern": "film", "pull": [
            {"url": f"http://127.0.0.1:9/live/{secret[16]}?key={secret[17]}", "token": secret[18]}]}]},
    }
    rig.path("root").mkdir()
    (rig.path("root") / "small.txt").write_text("small\n")
    return secret + [HASH], settings


def texts(rig: AttackRig, server, fields: dict):
    """Everything that a user of the console can read, with its name."""
    client = server.client(port=server.admin)
    api = json.loads(client.ask("/api/v1/openapi.json", fields=fields).body)
    lists = json.loads(client.ask("/api/v1/lists", fields=fields).body)["lists"]
    reads = [path for path, methods in api["paths"].items() if "get" in methods and "{" not in path]
    reads = [path.removeprefix("/api/v1") for path in reads if not path.endswith(("/live", "/settings/file"))]
    for path in reads + [f"/lists/{name}" for name in lists]:
        yield path, client.ask(f"/api/v1{path}", fields=fields).body
    for target in ("/", "/metrics", "/nowhere"):
        yield target, client.ask(target, fields=fields).body
    urls = ["/app/x", "/asked/x", "/never/x", "/push/news", "/push/private", "/live/film", "/small.txt"]
    for url in urls:
        question = json.dumps({"url": url})
        yield f"explain {url}", client.ask("/api/v1/explain", "POST", question, fields).body
    watches = "&".join(f"watch={name}" for name in ("overview", "notices", "status", "list:upstreams", "list:apps", "log"))
    stream = rig.connect(server.admin)
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    for watch in watches.split("&"):
        stream = rig.connect(server.admin)
        stream.request(f"/api/v1/live?{watch}", fields=lines, host=f"127.0.0.1:{server.admin}")
        head = stream.head()
        if b" 200 " in head.partition(b"\r\n")[0] and watch != "watch=log":
            yield watch, stream.until(b"\n\n")


@attack(undefended=None)
def no_secret_of_the_settings_leaves_the_server(rig: AttackRig) -> str:
    """Twenty secrets in every kind of setting: tokens, keys, hashes, URLs with user, parameter and path, arguments and variables of an
    application, fields of requests and responses. The application writes its own to its output.

    No response of the console to a viewer or an administrator, no page, no metric and no line of a log has one of them, except that
    the administrator reads the text of the file, which only that route returns."""
    secrets, settings = planted(rig)
    server = rig.server({**settings, "log": {"access": str(rig.path("access.log")), "format": "json"}})
    server.token = secrets[0]
    rig.until(lambda: "cannot connect with" in server.log_text(), "the application has reported its secrets")
    client = Client(server)
    with contextlib.closing(client):
        for target in ("/app/x", "/asked/x", "/push/private?wait=0", "/live/film"):
            client.ask(target, fields={"Authorization": "Bearer wrong-token-0123456789"})
    users = {"ben": logged_in(server, "ben"), "ann": logged_in(server, "ann")}
    server.send_signal(1)
    server.logged("settings reloaded")
    found, read = [], 0
    for user, fields in users.items():
        for name, body in texts(rig, server, fields):
            read += 1
            # An administrator may read what the programs of the server write.
            hidden = secrets[:-2] + [HASH] if user == "ann" else secrets
            found += [f"{user}: {name}: secret {secrets.index(secret) + 1}" for secret in hidden if secret.encode() in body]
    logs = {"log": server.log_text(), "access log": rig.path("access.log").read_text()}
    found += [f"{name}: secret {secrets.index(secret) + 1}" for name, text in logs.items() for secret in secrets[:-2] if secret in text]
    if found:
        raise Fault("; ".join(found))
    require(PASSWORD and read > 40, f"only {read} texts were read")
    return f"{len(secrets)} secrets in none of {read} texts and 2 logs"
