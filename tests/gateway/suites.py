"""Public probes of HTTP/1.1 and WebSockets, directly against a server and through Encke before it: the scores are compared.

The probes are not part of this repository. `SUITES` names their directory; without it these cases do not exist. The server is the
example `probe_target`, next to the program in examples/, and must have been built.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from applications import Lab
from rig import Fault, case, require

SUITES = Path(os.environ.get("SUITES", "")).resolve()
TIER = (None,) if os.environ.get("SUITES") else ()
SECONDS_MAX = 240


def probe_target(lab: Lab) -> int:
    """Starts the server with the files of the probes, and returns its port."""
    root = lab.path("site/root")
    root.mkdir(parents=True)
    subprocess.run(["sh", SUITES / "mkfixture.sh", root], check=True)
    program = lab.encke.parent / "examples/probe_target"
    process = subprocess.Popen([program, root, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    lab.stack.enter_context(process)
    lab.stack.callback(process.kill)
    address = process.stdout.readline().strip()
    require(address, f"{program} did not start")
    return int(address.rpartition(":")[2])


def score(words: list[str], name: str) -> tuple[dict[str, int], str]:
    """Runs a probe. Returns (the counts of its last line, its whole output)."""
    try:
        said = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False).stdout
    except subprocess.TimeoutExpired:
        raise Fault(f"{name} did not end within {SECONDS_MAX} s") from None
    last = (said.strip().splitlines() or [""])[-1]
    require(last.startswith(f"{name} pass="), f"{name} printed no score: {said[-400:]}")
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)(?=\s|$)", last)}, said


def failures(said: str) -> list[str]:
    """The first cases that failed, as the probe names them."""
    return [line.strip() for line in said.splitlines() if "FAIL" in line or "behavior=" in line][:5]


@case(basic=(), more=TIER)
def the_http_probe_scores_as_high_as_directly(lab: Lab) -> str:
    """A server behind Encke passes as many cases of h1probe as without Encke. Planted: Encke serves its own files in place of the
    server's."""
    port = probe_target(lab)
    server = lab.gateway([] if lab.planted else [{"pattern": "/**", "upstream": f"http://127.0.0.1:{port}"}])
    probe = [sys.executable, SUITES / "h1probe.py", "127.0.0.1"]
    direct, _ = score([*probe, port, "--echo", "/echo"], "H1PROBE")
    through, said = score([*probe, server.port, "--echo", "/echo"], "H1PROBE")
    require(through["pass"] >= direct["pass"] and through["fail"] <= direct["fail"], f"{through}, directly {direct}: {failures(said)}")
    return f"{through['pass']} of {through['pass'] + through['fail']}, directly {direct['pass']}"


@case(basic=(), more=TIER)
def autobahn_scores_as_high_as_directly(lab: Lab) -> str:
    """Autobahn's cases of WebSockets have the same results through a tunnel as directly. Planted: the route is missing."""
    port = probe_target(lab)
    server = lab.gateway([] if lab.planted else [{"pattern": "/**", "upstream": f"http://127.0.0.1:{port}"}])
    words = ["sh", SUITES / "autobahn.sh", "127.0.0.1"]
    direct, _ = score([*words, port, "/ws-echo"], "AUTOBAHN")
    through, said = score([*words, server.port, "/ws-echo"], "AUTOBAHN")
    require(through == direct, f"{through}, directly {direct}: {failures(said)}")
    return f"{through['pass']} of {through['total']}, as directly"
