"""Evasions of rules: a client that pretends to be its proxy, and paths that no pattern could match."""
from attackers import AttackRig, attack
from rig import require

# The address that the proxy, which is this script, reports for its client.
STRANGER = "203.0.113.9"
CLOSED = "closed.php"
# Texts of a client, to which its proxy appends the address.
SPELLINGS = {
    "X-Forwarded-For": ['"', 'a"', '"\\', '", 127.0.0.1', "127.0.0.1", '127.0.0.1, "', ",", '"127.0.0.1", "'],
    "Forwarded": ['for="', 'for="127.0.0.1', 'for=127.0.0.1;by="', "for=127.0.0.1", 'for="\\"'],
}


def refused(server, target: str, statuses: tuple[int, ...], fields: str = "") -> None:
    status = server.requested(target, fields=fields).response().status
    named = target if len(target) < 80 else f"{target[:40]}…{target[-40:]}"
    require(status in statuses, f"{named} {fields!r}: got {status}, expected one of {statuses}")


@attack(undefended={"access": []})
def a_client_cannot_pretend_to_be_its_proxy(rig: AttackRig) -> str:
    """A client's text precedes the address that its proxy appends: a quotation mark, a hidden node, an invented proxy.

    No text gives the client the rights of the proxy's address."""
    for field, texts in SPELLINGS.items():
        server = rig.server({"server": {"trusted_proxies": ["127.0.0.0/8"], "forwarded_field": field},
                             "access": [{"pattern": "/**", "allow": ["127.0.0.0/8"]}]})
        node = "" if field == "X-Forwarded-For" else "for="
        for text in texts:
            refused(server, "/small.txt", (400, 403), f"{field}: {text}, {node}{STRANGER}\r\n")
        for hidden in ("unknown", "_hidden"):
            refused(server, "/small.txt", (403,), f"{field}: {node}{hidden}\r\n")
        require(server.ask("/small.txt").status == 200, "the proxy itself is refused")
    return f"{sum(map(len, SPELLINGS.values())) + 4} texts refused"


@attack(undefended={"access": []})
def a_path_that_no_pattern_can_match_opens_nothing(rig: AttackRig) -> str:
    """Paths of more than 4,096 bytes, and paths that cannot be decoded, lead to a file that a rule with two stars closes.

    No spelling reaches the file."""
    server = rig.server({"access": [{"pattern": "/**/*.php", "allow": []}], "limits": {"uri_bytes": "16KiB"}})
    (server.root / CLOSED).write_text("secret")
    (server.root / "x").mkdir()
    for prefix in ("", "x/../" * 2_000, "%78/%2e%2e/" * 900, "./" * 3_000, "/" * 5_000, "x" * 4_096 + "/../"):
        refused(server, f"/{prefix}{CLOSED}", (403,))
    for prefix in ("y/" * 2_100, "%79/" * 2_100):
        refused(server, f"/{prefix}{CLOSED}", (414,))
    for path in (f"/a%2F{CLOSED}", f"/%ff/{CLOSED}", f"/../{CLOSED}", f"/{CLOSED}%00"):
        refused(server, path, (400,))
    return "12 spellings refused"
