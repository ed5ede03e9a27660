"""Targets that die, stop and return while clients send requests."""
import collections
import contextlib
import re
import signal
import socket
import threading

from applications import Lab
from rig import PATIENCE, Fault, case, require

CLIENTS = 6


class Load:
    """Clients that send GETs and POSTs without a pause."""

    def __init__(self, lab: Lab, server):
        self.lab, self.server, self.over = lab, server, threading.Event()
        self.failures: list[tuple[str, str, str]] = []
        self.counts = collections.Counter()
        self.phase = "before"
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def run(self, number: int) -> None:
        client = self.server.client()
        index = 0
        while not self.over.is_set():
            index += 1
            method = "POST" if number == 0 else "GET"
            phase = self.phase
            try:
                response = client.ask(f"/a/echo/{number}/{index}", method, b"x" if method == "POST" else None)
                failure = None if response.status == 200 else f"{response.status} {response.body[:60]!r}"
            except Fault as fault:
                failure = str(fault)
                client.close()
            self.counts[method] += 1
            if failure:
                # A request that meets an event begins before it.
                self.failures.append((method, phase if phase == self.phase else f"{phase} to {self.phase}", failure))

    def served(self, count: int = 60) -> None:
        """Waits for further requests."""
        before = self.counts["GET"]
        self.lab.until(lambda: self.counts["GET"] >= before + count, f"no request was served in phase {self.phase}")


def judge(lab: Lab, load: Load, calm: set[str], turns: int) -> str:
    """No GET has failed, and only those POSTs that were sent to a target that ended or stopped."""
    reads = collections.Counter((phase, failure) for method, phase, failure in load.failures if method == "GET"
                                # A response that had begun when its application was killed cannot be repeated.
                                and not ("kill" in phase and re.search("Reset|IncompleteRead|RemoteDisconnected", failure))
                                # puma ends with such a response of its own, which passes as any other.
                                and not ("terminate" in phase and "500 b'An unhandled lowlevel error" in failure))
    require(not reads, f"failed GETs of {load.counts['GET']}: {dict(reads)}; in the log: {load.server.reasons()}")
    writes = collections.Counter(phase for method, phase, _ in load.failures if method == "POST")
    require(not calm & set(writes), f"POSTs failed while nothing happened: {writes}")
    require(sum(writes.values()) <= 10 * turns, f"failed POSTs: {dict(writes)} of {load.counts['POST']}")
    return f"{load.counts['GET']} GETs, {load.counts['POST']} POSTs of which {sum(writes.values())} failed"


@case(basic=("node",), more=("uvicorn", "puma"))
def no_read_fails_while_targets_die_and_return(lab: Lab, app: str) -> str:
    """Under load, one of three targets is killed, another one is terminated, and both are started again. No GET fails; a POST fails
    only if it was sent to a target that died. Planted: all targets are killed."""
    applications = [lab.application(app) for _ in range(3)]
    server = lab.gateway([{"pattern": "/**", "upstream": "app"}], [{"name": "app", "to": applications}])
    turns = lab.of(1, 2, 10)
    with Load(lab, server) as load:
        load.served()
        for turn in range(turns):
            for phase, signal_ in [("kill", signal.SIGKILL), ("terminate", signal.SIGTERM)]:
                load.phase = phase
                victims = applications if lab.planted else [applications[(turn + (phase == "kill")) % 3]]
                for victim in victims:
                    victim.stop(signal_)
                load.served()
                if lab.planted:
                    break
                victims[0].start()
                load.phase = "after"
                load.served()
    return judge(lab, load, {"before", "after"}, turns)


@case(basic=("node",), more=("uvicorn",))
def no_read_fails_while_a_target_stops(lab: Lab, app: str) -> str:
    """One of three targets stops (SIGSTOP): the kernel still takes connections for it. No GET fails; a POST fails only if it was
    sent to that target. Planted: all targets stop."""
    applications = [lab.application(app) for _ in range(3)]
    upstream = {"name": "app", "to": applications, "response_time": "3s"}
    server = lab.gateway([{"pattern": "/**", "upstream": "app"}], [upstream])
    with Load(lab, server) as load:
        load.served()
        load.phase = "stop"
        stopped = applications if lab.planted else applications[:1]
        for application in stopped:
            application.send_signal(signal.SIGSTOP)
        lab.until(lambda: server.value("encke_gateway_ejections_total"), "the stopped target was not ejected")
        if lab.planted:  # a GET fails after its last attempt, whose target has stopped, too
            with contextlib.suppress(Fault):
                lab.until(lambda: any(method == "GET" for method, _, _ in load.failures), "no GET has failed", PATIENCE)
        else:
            load.served()
        for application in stopped:
            application.send_signal(signal.SIGCONT)
        load.phase = "continued"
        load.served()
    return judge(lab, load, {"before", "continued"}, 1)


@case(basic=(), more=("plain",))
def a_target_returns_after_its_ejection(lab: Lab, app: str) -> str:
    """A killed target gets no requests, and gets requests again after it was started. Planted: it is not started."""
    applications = [lab.application(app) for _ in range(2)]
    server = lab.gateway([{"pattern": "/**", "upstream": "app"}], [{"name": "app", "to": applications}])
    victim = applications[0]
    with Load(lab, server) as load:
        load.served()
        victim.stop(signal.SIGKILL)
        load.served(300)
        seen = len(victim.record())
        if not lab.planted:
            victim.start()
        lab.until(lambda: len(victim.record()) > seen + 20, "the target gets no requests")
    return f"{len(victim.record())} of {sum(load.counts.values())} requests"


def fill(port: int) -> list[socket.socket]:
    """A listener on this port that accepts no connection, and whose queue is full: further connections are neither established nor
    refused."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(0)
    sockets = [listener]
    while True:
        client = socket.socket()
        sockets.append(client)
        client.settimeout(0.5)
        try:
            client.connect(("127.0.0.1", port))
        except TimeoutError:
            return sockets


@case(basic=("node",), more=("uvicorn",))
def no_read_fails_while_checked_targets_die_stop_and_return(lab: Lab, app: str) -> str:
    """Under load, one of three targets is killed, stopped (SIGSTOP), and cut off (its address neither accepts nor refuses
    connections), and returns each time. Its checks find each fault and its end. No GET fails; a POST fails only if it was sent to that
    target. Meanwhile requests wait in the queue for the other two, and the share of a target that has returned rises to the whole.
    Planted: the target does not return."""
    applications = [lab.application(app) for _ in range(3)]
    victim, port = applications[0], applications[0].port
    upstream = {"name": "app", "to": applications, "connections": 2, "response_time": "3s", "connect_time": "500ms",
                "slow_start": "2s", "check": {"path": "/ready", "every": "100ms", "time": "500ms", "rise": 2, "fall": 2}}
    server = lab.gateway([{"pattern": "/**", "upstream": "app"}], [upstream])

    def up() -> int:
        return server.value("encke_gateway_target_up", target=victim.url)

    def share() -> float:
        return server.value("encke_gateway_target_share_ratio", target=victim.url)

    def bad() -> int:
        return server.value("encke_gateway_target_checks_total", target=victim.url, result="bad")

    first_shares = {}
    with Load(lab, server) as load:
        load.served()
        lab.until(lambda: up() == 1 and share() == 1, "the target is not up at the start")
        for phase in ["kill", "stop", "cut off"]:
            load.phase = phase
            bad_before = bad()
            if phase == "stop":
                victim.send_signal(signal.SIGSTOP)
            else:
                victim.stop(signal.SIGKILL)
            cut = fill(port) if phase == "cut off" else []
            lab.until(lambda: not up(), f"{phase}: the target is still up")
            # Failed requests can end the target's turn before its checks do; the checks find the fault as well.
            lab.until(lambda: bad() >= bad_before + 2, f"{phase}: the checks have not found the fault")
            load.served(120)
            for socket_ in cut:
                socket_.close()
            if not lab.planted:
                victim.send_signal(signal.SIGCONT) if phase == "stop" else victim.start()
            load.phase = f"after {phase}"
            samples: list[tuple[int, float]] = []

            def is_whole(samples: list[tuple[int, float]] = samples) -> bool:
                samples.append((up(), share()))
                return samples[-1] == (1, 1)

            lab.until(is_whole, f"{phase}: the target has not got its whole share again")
            returned = max((number for number, (is_up, _) in enumerate(samples) if not is_up), default=-1) + 1
            ramp = [part for _, part in samples[returned:]]
            require(ramp == sorted(ramp) and ramp[0] < 1, f"{phase}: the shares {ramp} do not rise")
            first_shares[phase] = ramp[0]
            load.served()
    require(server.value("encke_gateway_queue_waits_total") > 0, "no request has waited in the queue")
    others = sum(server.value("encke_gateway_target_checks_total", target=other.url, result="bad") for other in applications[1:])
    figures = judge(lab, load, {"before", *(f"after {phase}" for phase in first_shares)}, 3)
    waits = server.value("encke_gateway_queue_waits_total")
    return f"{figures}; {waits} waits, {bad()} bad checks, {others} of the others; first shares {first_shares}"
