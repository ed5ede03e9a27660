"""PHP by php-fpm, over FastCGI."""
import http.client
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import APPS, MIB, Application, Fault, Gateway, Lab, case, require


def php(lab: Lab, **route) -> tuple[Application, Gateway]:
    """Encke before php-fpm with two processes, which also reads the scripts of the site."""
    application = lab.application("php-fpm")
    server = lab.gateway([{"pattern": "/**", "php": f"127.0.0.1:{application.port}", **route},
                          {"pattern": "/protected/**", "internal": True}, {"pattern": "/cron.php", "internal": True}],
                         site={"paths": [{"pattern": "/uploads/**/*.php", "status": 404}]},
                         settings={"limits": {"head_bytes": 65535}})
    # The processes of php-fpm run as another user.
    for folder in [server.root, *server.root.parents]:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    (server.root / "blog").mkdir()
    (server.root / "protected").mkdir()
    shutil.copy(APPS / "index.php", server.root / "index.php")
    (server.root / "uploads").mkdir()
    (server.root / ".git").mkdir()
    for script in ("blog/index.php", "cron.php", "uploads/evil.php", "uploads/index.php", ".git/hook.php"):
        shutil.copy(APPS / "index.php", server.root / script)
    (server.root / "x.jpg").write_bytes(b"<?php echo 'executed';")
    (server.root / "protected/file").write_bytes(b"the file")
    return application, server


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
    require(server.ask("/x.jpg").body.startswith(b"<?php echo"), "an image is sent as it is")
    for target in ["/x.jpg/y.php", "/missing.php", "/INDEX.PHP", "/index.php%00.jpg", "/index.php%2fx", "/x.jpg%2f.php", "/.php",
                   "/blog/index.PHP/x", "/%c4%b0ndex.php", "/index.ph%70x"]:
        response = server.ask(target)
        require(b"executed" not in response.body and b"<?php" not in response.body, f"{target}: {response}")
    for target in ["/cron.php", "/cron.php/", "/cron.php/x", "/uploads/evil.php", "/uploads/evil.php/x", "/uploads/", "/.git/hook.php"]:
        response = server.ask(target)
        script = json.loads(response.body)["script"] if response.status == 200 else None
        require(script in (None, "/index.php"), f"{target} runs {script}")
    accel = server.ask("/?accel=1", fields={"Range": "bytes=4-"})
    require((accel.status, accel.body) == (206, b"file"), f"X-Accel-Redirect: {accel}")
    require(server.ask("/?status=404").status == 404, "Status")
    server.ask("/?warn=1")
    lab.until(lambda: "a warning for the operator" in server.log_text(), "the message of the script is in no log")
    return f"{len(runs)} scripts, ten confusing paths"


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
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=lab.patience)
    client.request("GET", "/?die=1")
    try:
        with client.getresponse() as response:
            body = response.read()
        raise Fault(f"a response of {len(body)} bytes looks complete")
    except (http.client.HTTPException, OSError):
        pass
    require(server.ask("/").status == 200, "the next request")
    return "400 requests, one process killed"
