"""Files that an application names: X-Sendfile and X-Accel-Redirect (report 003)."""
import os
import shutil
import urllib.parse
from pathlib import Path

from applications import Gateway, Lab
from rig import KIB, MIB, Fault, case, require

IMAGE_BYTES = 2_397_701
# Larger than the buffers of the kernel: the response is incomplete as long as its client does not read.
LARGE_BYTES = 32 * MIB
PSGI = ("starman", "plackup")
IMAGE_PSGI = Path("/usr/share/doc/libplack-perl/examples/dot-psgi/image.psgi")


def sent(app: str, file: Path) -> str:
    """The target of a file."""
    if app in PSGI:
        return "/a/image"
    return f"/a/send?{urllib.parse.urlencode({'file': file, 'X-Sendfile': file, 'Content-Type': 'image/jpeg'})}"


def gateway(lab: Lab, app: str, file: Path) -> Gateway:
    """Encke before an application with one worker."""
    if app in PSGI:
        application = lab.application(app, environment={"PSGI_IMAGE_FILE": str(file)}, psgi=IMAGE_PSGI)
    else:
        application = lab.application("plain", environment={"SINGLE": "1"})
    directories = [] if lab.planted else [str(file.parent)]
    return lab.gateway([{"pattern": "/a/**", "upstream": "app", "sendfile": directories}],
                       [{"name": "app", "to": [application], "keep": 0}])


def traced(lab: Lab) -> Path | None:
    """Lets strace record the calls of sendfile(2) of Encke; returns the file, or None where strace cannot be used."""
    if not shutil.which("strace") or os.system(f"strace -qq -o {lab.path('try')} true 2>/dev/null"):
        return None
    calls, wrapper = lab.path("calls"), lab.path("traced")
    # -D: the tracer is a grandchild, and this process becomes Encke.
    wrapper.write_text(f'#!/bin/sh\nexec strace -D -f -qq -e trace=sendfile -o {calls} {lab.encke} "$@"\n')
    wrapper.chmod(0o755)
    lab.encke = wrapper
    return calls


def by_sendfile(calls: Path) -> int:
    """The bytes that sendfile(2) has sent."""
    results = [line.rpartition("= ")[2].split() for line in calls.read_text().splitlines() if "sendfile" in line and "= " in line]
    return sum(int(result[0]) for result in results if result and result[0].isdigit())


@case(basic=("plain",), more=PSGI)
def the_worker_is_free_before_its_file_is_sent(lab: Lab, app: str) -> str:
    """A client stops to read in the middle of a file that the only worker of an application has named. The worker serves other
    clients meanwhile, while sendfile(2) has sent a part of the file, and the file is complete once the client reads on. Planted: no
    directory in `sendfile`."""
    file = lab.file("private/large.jpg", LARGE_BYTES)
    calls = traced(lab) if lab.backend != "uring" else None  # io_uring makes no calls of sendfile(2)
    server = gateway(lab, app, file)
    slow = server.requested(sent(app, file), fields="Connection: close\r\n", receive_bytes=16 * KIB)
    require(b" 200 " in (head := slow.head()), head)
    # The second request is for a small range: its client is fast. It is served though the first response is not over.
    quick = server.ask(sent(app, file), fields={"Range": "bytes=0-9"})
    require((quick.status, quick.body) == (206, file.read_bytes()[:10]), f"meanwhile: {quick}")
    lab.until(lambda: len(server.lines()) > 0, "no line in the access log")
    require(len(server.lines()) == 1, "the slow client's response is over: it proves nothing")
    if calls:
        lab.until(lambda: by_sendfile(calls) > 10, "sendfile(2) has sent nothing")
    part = by_sendfile(calls) if calls else 0
    require(not calls or 10 < part < LARGE_BYTES, f"sendfile(2) has sent {part} of {LARGE_BYTES} bytes")
    content = slow.to_end()
    require(content == file.read_bytes() and not slow.was_reset, f"{len(content)} bytes of the file differ, or a reset follows")
    by = f", {part // KIB} KiB of it sent by sendfile(2)" if calls else ""
    return f"a response of {LARGE_BYTES // MIB} MiB was open meanwhile{by}"


@case(basic=("plain",), more=PSGI)
def a_file_leaves_by_sendfile(lab: Lab, app: str) -> str:
    """The bytes of a named file are the file's, and leave by sendfile(2), not through the application. Planted: no directory in
    `sendfile`, so that the application's own copy is relayed."""
    file = lab.file("private/image.jpg", IMAGE_BYTES)
    calls = traced(lab)
    server = gateway(lab, app, file)
    response = server.ask(sent(app, file))
    require(response.status == 200 and response.body == file.read_bytes(), response)
    require(response.fields["Content-Type"] == "image/jpeg", response)
    require(response.fields["X-Sendfile"] is None, f"the client sees X-Sendfile: {response}")
    if lab.backend == "uring":
        if lab.planted:
            raise Fault("another back end has the check")
        return "bytes equal; io_uring makes no calls of sendfile(2)"
    if not calls:
        return "bytes equal; strace cannot be used here, so system calls were not checked"

    bytes_ = lab.until(lambda: by_sendfile(calls) >= IMAGE_BYTES and by_sendfile(calls),
                       f"sendfile(2) has sent {by_sendfile(calls)} of {IMAGE_BYTES} bytes", 5 if lab.planted else None)
    return f"{bytes_} bytes by sendfile(2)"


@case(basic=("plain", "node"), more=PSGI)
def named_files_obey_the_rules_of_files(lab: Lab, app: str) -> str:
    """Ranges, conditions and HEAD apply to named files. Every path outside the directories is a 404, in every notation. An
    internal route serves applications only. Planted: the route has no `sendfile`."""
    file = lab.file("private/a b.jpg", 100_000)
    content = file.read_bytes()
    outside = lab.file("other/secret", 10)
    (file.parent / "link").symlink_to(outside)
    (file.parent / "inside").symlink_to(file.name)
    application = lab.application(app)
    directories = [] if lab.planted else [str(file.parent)]
    server = lab.gateway([{"pattern": "/a/**", "upstream": application, "sendfile": directories},
                          {"pattern": "/internal/**", "internal": True}])
    (server.root / "internal").mkdir()
    (server.root / "internal/a b.jpg").write_bytes(content)
    client = server.client()

    def ask(field: str, path: object, method: str = "GET", own: dict | None = None, **fields: str):
        query = urllib.parse.urlencode({field: path, "Content-Type": "image/x-test", "body": 200, **(own or {})})
        return client.ask(f"/a/send?{query}", method, fields={name.replace("_", "-"): value for name, value in fields.items()})

    checked = 0
    for field, path in [("X-Sendfile", file), ("X-Lighttpd-Send-File", file), ("X-Accel-Redirect", "/internal/a%20b.jpg")]:
        whole = ask(field, path, own={"Set-Cookie": "a=b", "Cache-Control": "private"})
        require((whole.status, whole.body) == (200, content), f"{field}: {whole}")
        require(whole.fields["Content-Type"] == "image/x-test" and whole.fields["Set-Cookie"] == "a=b"
                and whole.fields.get_all("Cache-Control") == ["private"], f"{field}: {whole}")
        require(whole.fields[field] is None, f"the client sees {field}")
        part = ask(field, path, Range="bytes=100-199")
        require((part.status, part.body) == (206, content[100:200]), f"{field}, range: {part}")
        require(part.fields["Content-Range"] == f"bytes 100-199/{len(content)}", f"{field}, range: {part}")
        beyond = ask(field, path, Range="bytes=200000-")
        require(beyond.status == 416, f"{field}, range beyond the end: {beyond}")
        tag = whole.fields["ETag"]
        require(tag, f"{field}: no ETag")
        same = ask(field, path, If_None_Match=tag)
        require((same.status, same.body) == (304, b""), f"{field}, If-None-Match: {same}")
        own = ask(field, path, own={"ETag": '"own"'}, If_None_Match='"own"')
        require((own.status, own.fields["ETag"]) == (304, '"own"'), f"{field}, the application's tag: {own}")
        head = ask(field, path, "HEAD")
        require((head.status, head.body, head.fields["Content-Length"]) == (200, b"", str(len(content))), f"{field}, HEAD: {head}")
        post = ask(field, path, "POST")
        require((post.status, post.body) == (200, content), f"{field}, POST: {post}")
        checked += 8
    private = file.parent
    refused = [("X-Sendfile", path) for path in
               [outside, private / "link", private / "../other/secret", f"{private}/./../other/secret",
                f"{private}/%2e%2e/other/secret", f"{private}/a b.jpg%00", f"{private}/missing", private, f"{private}/", f"{private}er/x",
                "a b.jpg", "", "/etc/passwd", f"//{private}/a b.jpg%00.png"]]
    refused += [("X-Accel-Redirect", path) for path in
                ["/internal/missing", "/internal/../../encke.toml", "/internal/%2e%2e/%2e%2e/encke.toml", "/internal/a b.jpg%00",
                 "internal/a", "/..", "//other/secret"]]
    wrong = []
    for field, path in refused:
        response = ask(field, path)
        # An invalid URL is an error of the application.
        statuses = (404,) if field == "X-Sendfile" else (404, 502)
        if response.status not in statuses or outside.read_bytes() in response.body or b"root:" in response.body:
            wrong.append(f"{field} {str(path).replace(str(private), '')}: {response.status} {response.body[:20]!r}")
        checked += 1
    require(not wrong, f"another status than 404: {wrong}")
    direct = server.ask("/internal/a%20b.jpg")
    require(direct.status == 404, f"a client gets an internal path: {direct}")
    return f"{checked} requests"


@case(basic=("plain", "node"), more=(*PSGI, "puma", "uvicorn"))
def clients_cannot_give_orders_for_files(lab: Lab, app: str) -> str:
    """Fields by which a proxy tells applications where files are, and `Proxy`, never reach the application from a client (rails,
    CVE-2025-61780; httpoxy). Planted: a field that is not in the list."""
    application, server = lab.served(app)
    orders = ["X-Sendfile-Type", "x-sendfile-TYPE", "X-Accel-Mapping", "X-Accel-Redirect", "x-accel-anything", "Proxy", "PROXY"]
    if lab.planted:
        orders.append("X-Sendfile")
    for order in orders:
        response = server.ask("/a/echo", fields={order: "/=/etc/", "X-Kept": "1"})
        require(response.status == 200, response)
    seen = application.record()
    require(len(seen) == len(orders), f"{len(seen)} requests of {len(orders)}")
    for line in seen:
        require("x-kept" in line["fields"], line)
        wrong = [name for name in line["fields"] if name.startswith(("x-accel", "x-sendfile")) or name == "proxy"]
        require(not wrong, f"the application sees {wrong}")
    return f"{len(orders)} fields"
