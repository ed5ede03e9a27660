"""Faults, and waiting for events: a wait ends with its event, and PATIENCE bounds a wait in vain."""
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

PATIENCE = 60.0  # seconds: debug binaries on two busy cores; the longest limit under test judges over 10 s
PAUSE = 0.02


class Fault(Exception):
    """A requirement of a test does not hold."""


def require(holds: object, complaint: object) -> None:
    if not holds:
        raise Fault(str(complaint))


def until(event: Callable[[], object], complaint: str | Callable[[], str], patience: float = PATIENCE, pause: float = PAUSE):
    """Waits for a true value of `event` and returns it. The complaint names the event."""
    deadline = time.monotonic() + patience
    while not (value := event()):
        if time.monotonic() > deadline:
            raise Fault(f"{complaint if isinstance(complaint, str) else complaint()} (waited {patience:g} s)")
        time.sleep(pause)
    return value


def at_once(functions: list[Callable[[], None]]) -> None:
    """Runs functions on threads, and raises the first error."""
    with ThreadPoolExecutor(len(functions)) as pool:
        for result in [pool.submit(function) for function in functions]:
            result.result()
