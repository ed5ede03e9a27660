"""Attacks on access rules: passwords that cost the server much and the client little."""
import base64

from attackers import AttackRig, attack, expect
from console import HASH, PASSWORD
from rig import SMALL_FILE, json_lines, require

GUESSES = 300


def basic(user: str, password: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}\r\n"


@attack(undefended=None)
def wrong_passwords_of_one_address_delay_no_other(rig: AttackRig) -> str:
    """One address sends 300 wrong passwords at once, each on a connection of its own.

    A right password of another address is accepted after at most eight hashes of two workers: it never waits for the guesses."""
    users = rig.path("users")
    users.write_text(f"ann:{HASH}\n")
    users.chmod(0o600)
    server = rig.server({"access": [{"pattern": "/small.txt", "passwords": str(users)}]})

    def hashed() -> int:
        return server.value("encke_password_checks_total")

    guesses = [server.connect("127.1.0.1") for _ in range(GUESSES)]
    for number, guess in enumerate(guesses):
        guess.request("/small.txt", fields=basic("ann", f"guess {number}"))
    before = hashed()
    client = server.connect("127.0.0.9")
    client.request("/small.txt", fields=basic("ann", PASSWORD))
    expect(client.response(), 200, SMALL_FILE, "a right password during the guesses")
    count = hashed() - before
    require(count <= 8, f"a right password waited for {count} hashes")
    answers = [guess.response().status for guess in guesses]
    require(set(answers) <= {401, 503}, f"the guesses got {set(answers)}")
    return f"{answers.count(401)} guesses were hashed, {answers.count(503)} rejected"


@attack(undefended=None)
def rejections_of_push_have_their_own_reasons(rig: AttackRig) -> str:
    """Requests without a token, with an invalid one, without the right, and from a page of another origin.

    The log tells them apart: guesses of tokens and foreign pages are no forgotten credentials."""
    access = rig.path("access.log")
    tokens = [{"token": "reader-0123456789", "name": "reader", "subscribe": ["news"]}]
    server = rig.server({"auth": {"anonymous": [], "tokens": tokens}, "log": {"access": str(access), "format": "json"}})
    expected = []
    for fields, status, reason in (
        ({}, 401, "token_required"),
        ({"Authorization": "Bearer wrong-0123456789"}, 401, "token_invalid"),
        ({"Authorization": "Bearer reader-0123456789"}, 403, "no_right"),
        ({"Origin": "https://evil.example"}, 403, "origin"),
    ):
        expect(server.ask("/push/news", "POST", "text", fields), status, None, reason)
        expected.append((status, reason))

    def lines() -> list:
        return [(line["status"], line["reason"]) for line in json_lines(access)] if access.exists() else []

    rig.until(lambda: len(lines()) >= len(expected), lambda: f"lines of the log: {lines()}")
    require(lines() == expected, f"the log has {lines()}")
    return ", ".join(reason for _, reason in expected)
