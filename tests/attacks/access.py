"""Attacks on access rules: passwords that cost the server much and the client little."""
import base64

from attackers import AttackRig, attack, expect
from console import HASH, PASSWORD
from rig import SMALL_FILE, require

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
