"""The description of the API, held against the server by schemathesis, which generates valid and invalid requests from it."""
import json
import os
import re
import subprocess
from pathlib import Path

from admin import API, Console, ConsoleRig, Login
from rig import KIB, PATIENCE, VENV, Fault, case, require

SCHEMATHESIS = VENV.parent.parent / "console-venv/bin/schemathesis"
CONFIG = Path(__file__).resolve().parent / "schemathesis.toml"
# Operations that it cannot call, with the reason.
EXCLUDED = {
    "getLive": "the stream does not end; live.py reads it, operations.py opens it with invalid watches",
}
# Operations that change the settings. An accepted change may remove the user of the log-in (401) or restore the default limit of
# failed attempts (429), so each has a server of its own. access.py tests wrong tokens with them.
EDITING = ["patchSettings", "putSettingsFile", "postSettingsHistoryNumberRestore"]
# Examples per operation and phase.
EXAMPLES = {"basic": 5, "whole": 8, "full": 500}


def run(lab: ConsoleRig, server: Console, login: Login, document: Path, choice: list[str], examples: int) -> str:
    """Runs schemathesis with the operations of a choice. Returns its report of failures; empty if there is none."""
    fields = [f"{name}: {value}" for name, value in login.fields(server.admin, "POST").items()]
    command = [SCHEMATHESIS, "--config-file", CONFIG, "run", document, "--url", f"http://{server.host}{API}", "--no-color",
               "--seed", str(lab.seed), "--max-examples", str(examples), "--generation-database", "none", "--no-shrink",
               "--request-timeout", str(int(PATIENCE)), "--continue-on-failure",
               # A problem of the suite is no failure of the server.
               "--suppress-health-check", "all", "--warnings", "off",
               *(word for field in fields for word in ("--header", field)),
               *choice]
    done = subprocess.run(command, cwd=lab.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "COLUMNS": "160"}, text=True, timeout=600)
    server.alive()
    if done.returncode not in (0, 1) or "Test cases:" not in done.stdout:
        raise OSError(f"schemathesis did not run: {done.stdout[-2 * KIB:]}")
    require("panicked" not in server.log_text(), f"a panic: {server.log_text()[-2 * KIB:]}")
    lab.generated = re.search(r"(\d+) generated", done.stdout)[1]
    return done.stdout[done.stdout.find("= FAILURES"):] if done.returncode else ""


def faulty_documents(document: dict):
    """Descriptions with one fault each, and the operation that has it."""
    def changed(change) -> dict:
        copy = json.loads(json.dumps(document))
        change(copy)
        return copy

    def remove_status(copy: dict) -> None:
        del copy["paths"]["/history"]["get"]["responses"]["400"]

    def change_type(copy: dict) -> None:
        copy["components"]["schemas"]["Overview"]["properties"]["pid"] = {"type": "string"}

    def change_media(copy: dict) -> None:
        responses = copy["paths"]["/notices"]["get"]["responses"]
        responses["200"]["content"] = {"text/plain": responses["200"]["content"]["application/json"]}

    def accept_less(copy: dict) -> None:
        copy["paths"]["/history"]["get"]["parameters"] = [
            {"name": "step", "in": "query", "required": True, "schema": {"enum": ["1h"]}}]

    return {"an undocumented status": ("getHistory", changed(remove_status)),
            "a wrong schema": ("getOverview", changed(change_type)),
            "a wrong content type": ("getNotices", changed(change_media)),
            "valid data that is rejected": ("getHistory", changed(accept_less))}


def start(lab: ConsoleRig, user: str) -> tuple[Console, Login]:
    """A server, and the credentials of a user."""
    server = lab.console()
    return server, {"token": lambda: server.operator, "session": lambda: server.log_in("ann"), "view": lambda: server.log_in("ben")}[user]()


@case(basic=(), more=("token", "session", "view"))
def the_server_is_as_its_description_says(lab: ConsoleRig, user: str) -> str:
    """Generated requests, valid and invalid, get no 5xx, and only the statuses, content types and schemas that the description has;
    valid data is accepted, invalid data rejected. Fault: the description is changed, in four ways in turn."""
    require(SCHEMATHESIS.exists(), f"{SCHEMATHESIS} is missing: .ci/need console-venv")
    server, login = start(lab, user)
    excluded = [*EXCLUDED, *EDITING]
    if user != "token":
        # The operation ends the session of all later requests; logins.py tests it.
        excluded.append("deleteSession")
    document = server.call("GET", "/openapi.json").json()
    path = lab.path("openapi.json")
    if lab.planted:
        for fault, (operation, faulty) in faulty_documents(document).items():
            path.write_text(json.dumps(faulty))
            if not run(lab, server, login, path, ["--include-operation-id", operation], EXAMPLES[lab.tier]):
                return f"{fault} was not found"
        raise Fault("four faults were found")
    path.write_text(json.dumps(document))
    failures, generated = "", []

    def generate(server: Console, login: Login, *choice: str) -> None:
        nonlocal failures
        failures += run(lab, server, login, path, [*choice], EXAMPLES[lab.tier])
        generated.append(lab.generated)

    # With a cookie it adds a wrong token, which is one credential too many, not one too few: access.py tests these.
    checks = [] if login.bearer else ["--exclude-checks", "ignored_auth"]
    generate(server, login, *(word for name in excluded for word in ("--exclude-operation-id", name)), *checks)
    require(server.get("/session", login)["role"], "the log-in has ended")
    for operation in EDITING:
        generate(*start(lab, user), "--include-operation-id", operation, "--exclude-checks", "ignored_auth")
    if failures:
        raise Fault(f"seed {lab.seed}: {failures[:12 * KIB]}")
    return f"{' + '.join(generated)} requests"
