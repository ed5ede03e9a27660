"""Applications that Encke starts itself: [[app]]."""
import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

from applications import APPS, Gateway, Lab, readable, recording
from rig import VENV, Encke, case, require
from targets import Load

SERVERS = {
    "node": ["node", "app.js"],
    "plain": ["python3", "plain.py"],
    "gunicorn": [VENV / "gunicorn", "--workers", "1", "--threads", "4", "wsgi:app"],
    "uvicorn": [VENV / "uvicorn", "--fd", "{fd}", "--log-level", "warning", "--lifespan", "off", "asgi:app"],
    "hypercorn": [VENV / "hypercorn", "--bind", "fd://{fd}", "asgi:app"],
    "puma": ["puma", "--environment", "production", "--bind", "tcp://{address}", "config.ru"],
    "starman": ["starman", "--listen", "{address}", "--workers", "2", "app.psgi"],
    # Its socket is no descriptor: the program listens itself.
    "waitress": [VENV / "waitress-serve", "--listen", "127.0.0.1:{port}", "wsgi:app"],
}


def supervised(lab: Lab, name: str, **settings) -> Gateway:
    """Encke with an application that it supervises."""
    record = lab.path("record")
    record.touch()
    app = {"name": "app", "directory": str(APPS), "env": recording(record, lab.path("gate"))}
    if name == "php-fpm":
        pool = lab.path("fpm.conf")
        pool.write_text(f"[global]\nprocess_control_timeout = 5s\n[www]\nlisten = ${{ENCKE_ADDRESS}}\npm = static\n"
                        "pm.max_children = 2\nuser = www-data\n")
        app |= {"run": ["/usr/sbin/php-fpm8.2", "-F", "-y", str(pool)], "protocol": "fastcgi", "stop_signal": "QUIT"}
        route = {"pattern": "/**", "php": "app:app"}
    else:
        app |= {"run": [str(word) for word in SERVERS[name]]}
        route = {"pattern": "/**", "upstream": "some"}
    # Starman has two processes, and each serves one connection.
    some = {"name": "some", "to": ["app:app"], **({"connections": 2} if name == "starman" else {})}
    server = lab.gateway([route], [] if name == "php-fpm" else [some], settings={"app": [app | settings]})
    if name == "php-fpm":
        readable(server.root)
        shutil.copy(APPS / "index.php", server.root / "index.php")
    server.logged("app app: ready")
    return server


def change(server: Gateway, old: str, new: str) -> None:
    """Changes the settings file, and reloads it."""
    text = server.settings_file.read_text()
    require(old in text, f"{old!r} is not in the settings")
    server.settings_file.write_text(text.replace(old, new))
    server.send_signal(signal.SIGHUP)


def pids(server: Gateway) -> list[int]:
    """The processes of the application that were ready, the last one at the end."""
    return [int(pid) for pid in re.findall(r"(?:ready:|replaced by) process (\d+)", server.log_text())]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@case(basic=("node",), more=("gunicorn", "uvicorn", "hypercorn", "waitress", "puma", "starman", "php-fpm"))
def no_request_fails_while_an_application_is_replaced(lab: Lab, app: str) -> str:
    """Under load, reloads replace the application again and again. No request fails, neither GET nor POST, and the processes before end.
    Planted: the process is killed instead."""
    server = supervised(lab, app)
    # The back end has no part in it: ten turns on one of them, for one program of each kind.
    is_thorough = lab.backend == "epoll-edge" and app in ("gunicorn", "puma", "php-fpm", "starman")
    turns = lab.of(2, 10 if is_thorough else 2, 30)
    with Load(lab, server) as load:
        load.served()
        for turn in range(turns):
            load.phase = f"turn {turn}"
            before = server.log_text().count("app app: replaced by")
            if lab.planted:
                # The next process may not be ready yet.
                if is_alive(last := pids(server)[-1]):
                    os.killpg(last, signal.SIGKILL)
            else:
                server.send_signal(signal.SIGHUP)
                server.logged("app app: replaced by", before + 1)
            load.served(20)
    require(not load.failures, f"{len(load.failures)} failed of {load.counts.total()}: {load.failures[:5]} {server.reasons()}")
    if not lab.planted:
        *old, new = pids(server)
        lab.until(lambda: not any(is_alive(pid) for pid in old), lambda: f"a process has not ended: {server.log_text()[-400:]}")
        require(len(old) == turns and is_alive(new), f"{len(old)} processes were replaced")
    return f"{load.counts.total()} requests over {turns} replacements, none failed"


@case(basic=("node",), more=("gunicorn", "php-fpm"))
def an_application_that_is_killed_starts_again(lab: Lab, app: str) -> str:
    """Under load, the application is killed: only requests that it had may fail, and all others wait for the next process. Planted: the
    program is gone when it is to start again."""
    program = lab.path("program")
    command = ["/usr/sbin/php-fpm8.2", "-F", "-y", str(lab.path("fpm.conf"))] if app == "php-fpm" else SERVERS[app]
    program.write_text("#!/bin/sh\nexec " + " ".join(map(str, command)) + "\n")
    program.chmod(0o755)
    server = supervised(lab, app, run=[str(program)])
    with Load(lab, server) as load:
        load.served()
        load.phase = "kill"
        if lab.planted:
            program.unlink()
        os.killpg(pids(server)[-1], signal.SIGKILL)
        server.logged("app app: ready", 2)
        load.phase = "after"
        load.served()
    late = [failure for failure in load.failures if failure[1] == "after"]
    require(not late, f"requests failed afterwards: {late[:5]}")
    # Each client has one request under way.
    require(len(load.failures) <= 2 * len(load.threads), f"{len(load.failures)} failed: {load.failures[:12]}")
    require(server.value("encke_app_restarts_total") == 1, "the restart is not in the metrics")
    return f"{load.counts.total()} requests, {len(load.failures)} failed"


@case(basic=("node",))
def a_change_that_does_not_work_leaves_the_old_process(lab: Lab, app: str) -> str:
    """A reload whose application ends at once, or never responds, changes nothing for clients; the log says so. Planted: the settings are
    restored in between."""
    server = supervised(lab, app, start_time="5s")
    for number, run in enumerate(('["node", "-e", "process.exit(9)"]', '["node", "-e", "setInterval(() => {}, 1000)"]')):
        old = '["node", "app.js"]'
        change(server, old, run)
        if lab.planted:
            change(server, run, old)
        server.logged("; the old one stays", number + 1)
        require(server.ask("/a/echo").status == 200, "the old process does not serve")
        server.settings_file.write_text(server.settings_file.read_text().replace(run, old))
    require(len(pids(server)) == 1 and is_alive(pids(server)[0]), "the old process was replaced")
    return "two bad changes"


@case(basic=("node",))
def an_application_ends_with_its_server(lab: Lab, app: str) -> str:
    """The processes of an application end with Encke: after its drain, and also if it is killed. Planted: the application ignores its
    signal."""
    script = "process.on('SIGTERM', () => {}); require('./app.js')"
    run = {"run": ["node", "-e", script]} if lab.planted else {}
    for signal_ in (signal.SIGTERM, signal.SIGKILL):
        server = supervised(lab, app, **run)
        pid = pids(server)[-1]
        require(server.ask("/a/echo").status == 200, "no response")
        server.stop(signal_)
        try:
            lab.until(lambda: not is_alive(pid), f"process {pid} has outlived {signal_.name}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return "by SIGTERM and by SIGKILL"


@case(basic=("plain",), more=("starman",))
def one_command_runs_an_application(lab: Lab, app: str) -> str:
    """`encke serve --run COMMAND` starts the application and sends it all requests. Planted: the program does not exist."""
    record = lab.path("record")
    record.touch()
    words = " ".join(f"'{word}'" for word in SERVERS[app])
    command = "no-such-program" if lab.planted else words.replace("{address}", "127.0.0.1:{port}")
    words = [lab.encke, "serve", "--listen", "127.0.0.1:0", "--admin", "off", "--run", command]
    server = lab.started(Encke(words, lab.path("log"), has_admin=False, patience=lab.patience, cwd=APPS,
                               env={**os.environ, **recording(record, lab.path("gate"))}))
    server.logged("ready: process")
    require((response := server.ask("/a/echo")).status == 200, response)
    require(server.stop(signal.SIGINT) == 130, "the status of ^C")
    return command
