"""Attacks on the disk: a full disk, or a limit on file sizes. Acknowledged data must not change silently.

    Disk ─┬─ a tmpfs of its own, where root may mount one: ENOSPC, also within the length of a file
          └─ else a limit on the size of files (RLIMIT_FSIZE): EFBIG, at the end of a file
"""
import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from attackers import AttackRig, attack, expect
from rig import BEARER, KIB, MIB, Fault

CHANNEL = "/push/durable/orders"
MESSAGE_BYTES = 16 * KIB


DISK_BYTES = 8 * MIB


class Disk:
    """A directory of limited size for the state of a server."""

    def __init__(self, rig: AttackRig):
        self.path = rig.folder / "state"
        self.path.mkdir()
        self.mounted = os.geteuid() == 0 and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.path], capture_output=True).returncode
        if self.mounted:
            rig.stack.callback(subprocess.run, ["umount", self.path], check=True)

    def server(self, rig: AttackRig):
        return durable(rig, self.path, file_bytes_max=None if self.mounted else DISK_BYTES, ignore_sigxfsz=not self.mounted)

    def fill(self) -> None:
        """Fills the rest of the disk, as another program would."""
        if self.mounted:
            with (self.path / "another-program").open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4 * KIB))

    def grow(self, server) -> None:
        """Lifts the limit, also for the next start of the server."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", self.path], check=True)
        server.file_bytes_max = None


def durable(rig: AttackRig, state: Path, log: dict | None = None, **options):
    """A server with a durable channel whose history is larger than its disk."""
    rule = {"pattern": "durable/**", "durable": True, "messages": 100_000, "bytes": "128MiB", "age": "1d"}
    return rig.server({"server": {"state_dir": str(state)}, "log": log or {},
                       "push": {"channel": [rule]}}, **options)


def fill(server, most: int = 4_000) -> list[str]:
    """Publishes until the store rejects a message, then smaller ones, or `most` messages. Returns the acknowledged ones."""
    kept = []
    for bytes_ in (MESSAGE_BYTES, KIB, 16):
        while len(kept) < most:
            text = f"{time.monotonic_ns()} ".ljust(bytes_, "x")
            status, body, _ = server.ask(CHANNEL, "POST", text, BEARER)
            if status in (503, 507):
                break
            if status != 201:
                raise Fault(f"a publish to a full disk got {status} {body[:200]!r}")
            kept.append(text)
    return kept


def read(server) -> list[str]:
    """All messages of the durable channel, by polls."""
    since, texts = "all", []
    while True:
        status, body, _ = server.ask(f"{CHANNEL}?since={since}&as=json&wait=0", fields=BEARER)
        if status == 204:
            return texts
        if status != 200:
            raise Fault(f"reading the durable channel got {status} {body[:200]!r}")
        page = json.loads(body)
        if not page["messages"]:
            return texts
        texts += [message["data"] for message in page["messages"] if "data" in message]
        since = page["next"]


@attack()
def a_delete_on_a_full_disk_keeps_its_word(rig: AttackRig) -> str:
    """Messages and another program fill the disk, then the channel is deleted: either DELETE fails and all messages stay
    readable, or it succeeds, and publishing works again. After a kill and a restart the channel is as the response stated.

    Files and channels that are not durable must be served meanwhile."""
    disk = Disk(rig)
    server = disk.server(rig)
    with server.innocent(push=True) as innocent:
        kept = fill(server, 50)
        disk.fill()
        kept += fill(server)
        status, due = deleted(server, kept)
        if status == 204:
            text, statuses = "after ".ljust(MESSAGE_BYTES, "y"), []

            def published() -> bool:
                statuses.append(server.ask(CHANNEL, "POST", text, BEARER)[0])
                return statuses[-1] == 201

            # The store may need a commit or two before it reuses the space.
            rig.until(published, f"publishing fails after a DELETE with 204: {statuses[:3]}")
            due = [text]
        innocent.served()
    restarted(server, due, status, lambda: disk.grow(server))
    return f"{len(kept)} messages by {'tmpfs' if disk.mounted else 'RLIMIT_FSIZE'}, DELETE: {status}; {innocent}"


@attack()
def a_delete_that_cannot_be_stored_deletes_nothing(rig: AttackRig) -> str:
    """The store can write nothing at all when a channel is deleted: DELETE fails, and all messages stay readable, also
    after a kill and a restart.

    Files and channels that are not durable must be served meanwhile."""
    server = durable(rig, rig.folder / "state", ignore_sigxfsz=True)
    with server.innocent(push=True) as innocent:
        kept = [f"{number} ".ljust(MESSAGE_BYTES, "x") for number in range(20)]
        for text in kept:
            expect(server.ask(CHANNEL, "POST", text, BEARER), 201, None, "a durable publish")
        server.limit_files(4 * KIB)
        status, due = deleted(server, kept)
        if status == 204:
            raise Fault("DELETE succeeded without a commit")
        innocent.served()
    restarted(server, due, status, lambda: None)
    return f"{len(kept)} messages, DELETE: {status}; {innocent}"


def deleted(server, kept: list[str]) -> tuple[int, list[str]]:
    """Deletes the channel. Returns (the status, the messages that must be readable afterwards)."""
    status, body, _ = server.ask(CHANNEL, "DELETE", fields=BEARER)
    server.alive()
    if status != 204 and status < 500:
        raise Fault(f"DELETE got {status} {body[:200]!r}")
    due = [] if status == 204 else kept
    if (now := read(server)) != due:
        raise Fault(f"after DELETE with {status}, {len(now)} messages are readable instead of {len(due)} (of {len(kept)})")
    return status, due


def restarted(server, due: list[str], status: int, between) -> None:
    """Kills the server and starts it again: the channel must have these messages."""
    server.stop(signal.SIGKILL)
    between()
    server.file_bytes_max = None
    server.start()
    if (now := read(server)) != due:
        raise Fault(f"after DELETE with {status} and a restart, {len(now)} messages are readable instead of {len(due)}")


@attack()
def a_limit_on_the_store_does_not_end_the_process(rig: AttackRig) -> str:
    """The store reaches a limit on the size of files (RLIMIT_FSIZE), with SIGXFSZ at its default.

    The process must live, serve files and other channels, and store messages again once the limit is lifted."""
    state = rig.folder / "state"
    server = durable(rig, state)
    with server.innocent(push=True) as innocent:
        expect(server.ask(CHANNEL, "POST", "first", BEARER), 201, None, "a durable publish")
        server.limit_files(max(path.stat().st_size for path in state.rglob("*") if path.is_file()))
        kept = fill(server)
        server.alive()
        innocent.served()
        server.limit_files(DISK_BYTES * 8)
        statuses = []

        def published() -> bool:
            statuses.append(server.ask(CHANNEL, "POST", "last", BEARER)[0])
            return statuses[-1] == 201

        rig.until(published, f"publishing fails although the limit was lifted: {statuses[:3]}")
        server.alive()
    return f"{len(kept)} messages to the limit; {innocent}"


@attack()
def a_limit_on_the_access_log_does_not_end_the_process(rig: AttackRig) -> str:
    """The access log reaches a limit on the size of files (RLIMIT_FSIZE) of 64 KiB, with SIGXFSZ at its default.

    The process must live and serve files and channels, and the log must take lines again once the limit is lifted."""
    log, limit = rig.folder / "access.log", 64 * KIB
    server = rig.server({"log": {"access": str(log)}})
    with server.innocent(push=True) as innocent:
        server.limit_files(limit)
        client = server.client()

        def log_grows(to: int) -> bool:
            for _ in range(20):
                expect(client.ask("/small.txt?" + "q" * 1000), 200, None, "a request")
            return log.stat().st_size > to

        rig.until(lambda: log_grows(limit - 4 * KIB), "the access log did not reach its limit")
        log_grows(limit)
        innocent.served()
        server.limit_files(DISK_BYTES)
        rig.until(lambda: log_grows(limit), "the access log does not grow although the limit was lifted")
    return f"log of {log.stat().st_size // KIB} KiB; {innocent}"
