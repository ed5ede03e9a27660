"""The console over TLS: client certificates, and the cookie of a secure listener."""
import hashlib
import http.client
import json
import re
import ssl
import time
from http.cookies import SimpleCookie
from pathlib import Path

from admin import API, PASSWORD, USERS, Answer, Console, ConsoleRig
from rig import EVENT_STREAM, LOCALHOST, authority, case, require

CLIENT = "extendedKeyUsage=clientAuth"


class SecureClient(http.client.HTTPSConnection):
    """A client of the admin listener with the certificate of a user, or none."""

    def __init__(self, server: Console, folder: Path, user: str = ""):
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        if user:
            context.load_cert_chain(folder / f"{user}.pem", folder / f"{user}.key")
        super().__init__("localhost", server.admin, timeout=server.patience, context=context)

    def call(self, method: str, path: str, body: object = None, fields: dict | None = None) -> Answer:
        self.request(method, API + path, None if body is None else json.dumps(body), fields or {})
        response = self.getresponse()
        if response.headers.get_content_type() == EVENT_STREAM:
            self.stream = response
            return Answer(response.status, b"", response.headers)
        return Answer(response.status, response.read(), response.headers)


@case()
def a_client_certificate_is_a_credential_until_a_reload_removes_its_user(lab: ConsoleRig) -> str:
    """Over TLS the certificate of a user gives its role; another one of the same authority gives nothing. Changes need the CSRF
    field. A reload that removes the user ends the live page. The cookie is Secure and for this host only. Fault: the reload
    leaves the user."""
    folder = lab.path("certificates")
    authority(folder, {"localhost": f"{LOCALHOST},IP:127.0.0.1", "carl": CLIENT, "dora": CLIENT, "eve": CLIENT})

    def user(name: str, role: str) -> dict:
        der = ssl.PEM_cert_to_DER_cert((folder / f"{name}.pem").read_text())
        return {"name": name, "certificate": hashlib.sha256(der).hexdigest(), "role": role}

    carl, dora = user("carl", "admin"), user("dora", "view")
    tls = {"cert": str(folder / "localhost.pem"), "key": str(folder / "localhost.key"), "client_ca": str(folder / "ca.pem"),
           "client": "optional"}
    server = lab.console({"server": {"admin": {"tls": tls}}, "console": {"user": [*USERS, carl, dora]}})
    client = {name: lab.keep(SecureClient(server, folder, name)) for name in ("carl", "dora", "eve", "")}
    for name, role in (("carl", "admin"), ("dora", "view")):
        answer = client[name].call("GET", "/session")
        require(answer.status == 200, f"{name}: {answer}")
        session = answer.json()
        require((session["user"], session["role"], session["ends_ms"]) == (name, role, None) and session["csrf"], session)
    for name in ("eve", ""):
        require(not (why := client[name].call("GET", "/status").complaint(401, "/problems/credentials")), f"{name}: {why}")
    csrf = {"Encke-Csrf": client["carl"].call("GET", "/session").json()["csrf"]}
    for name, fields, status in (("carl", {}, 403), ("carl", {"Encke-Csrf": "x"}, 403), ("carl", csrf, 200), ("dora", csrf, 403),
                                 ("carl", {**csrf, "Origin": "https://evil.example"}, 403), ("eve", csrf, 401)):
        answer = client[name].call("PUT", "/log/level", {"level": "debug"}, fields)
        require(answer.status == status, f"{name} {fields}: {answer}")
    answer = client[""].call("POST", "/session", {"user": "ann", "password": PASSWORD})
    ((name, morsel),) = SimpleCookie(answer.fields["Set-Cookie"]).items()
    require(re.fullmatch(r"__Host-encke_session_\d+", name) and morsel["secure"] and morsel["path"] == "/" and not morsel["domain"]
            and morsel["httponly"], answer.fields["Set-Cookie"])
    for cookie, status in ((f"{name}={morsel.value}", 200), (f"{name.removeprefix('__Host-')}={morsel.value}", 401)):
        require((answer := client[""].call("GET", "/status", fields={"Cookie": cookie})).status == status, f"{cookie}: {answer}")
    page = client["dora"]
    require(page.call("GET", "/live?watch=overview&every=250").status == 200 and b"overview" in page.stream.readline(), "no page")
    server.reload({"console": {"user": [*USERS, carl, *([dora] if lab.planted else [])]}})
    deadline = time.monotonic() + lab.patience
    while (line := page.stream.readline()) != b"event: end\n":
        require(line and time.monotonic() < deadline, "the page of a removed user goes on, or its stream broke")
    again = lab.keep(SecureClient(server, folder, "dora"))
    lab.until(lambda: again.call("GET", "/status").status == 401, "a removed user is still known")
    return "3 certificates"
