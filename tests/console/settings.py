"""The settings file: killed at any system call of an edit, the server leaves a complete file."""
import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from admin import Console, ConsoleRig
from rig import Fault, case, require

# The calls that open, change and store files on the console's thread, and the signal that requests the reload.
CALLS = ["openat", "write", "fsync", "renameat2", "rename", "unlink", "fchmod", "mkdir", "kill"]
BASIC_CALLS = ["fsync", "renameat2"]
# More calls of one kind than an edit makes.
CALLS_MAX = 60


def may_trace(lab: ConsoleRig) -> bool:
    return bool(shutil.which("strace")) and not os.system(f"strace -qq -o {lab.path('try')} true 2>/dev/null")


def thread_of(server: Console, name: str) -> str:
    """The id of a thread of the server."""
    tasks = Path(f"/proc/{server.pid}/task")
    found = [task.name for task in tasks.iterdir() if (task / "comm").read_text().strip() == name]
    require(len(found) == 1, f"threads named {name}: {found}")
    return found[0]


def edit(lab: ConsoleRig, call: str, number: int) -> tuple[bool, str]:
    """Kills a new server at a call of an edit. Returns whether it survived, because it makes fewer calls, and which text its file
    has."""
    server = lab.console({"server": {"state_dir": "state"}})
    file = server.settings_file
    old = file.read_text()
    # Several writes.
    new = old + "# " + "x" * 150_000 + "\n"
    etag = server.call("GET", "/settings/file", login=server.operator).fields["ETag"]
    tracer = subprocess.Popen(
        ["strace", "-o", server.folder / "calls", "-p", thread_of(server, "console"), "-e", f"trace={call}",
         "-e", f"inject={call}:signal=KILL:when={number}"], stderr=subprocess.PIPE, text=True)
    try:
        require("attached" in (said := tracer.stderr.readline()), said)
        try:
            answer = server.call("PUT", "/settings/file", {"text": new}, server.operator, {"If-Match": etag})
            require(answer.status == 200, f"{call} {number}: {answer.status} {answer.body!r}")
            survived = True
        except Fault:
            if server.wait() != -9:
                raise
            survived = False
    finally:
        tracer.terminate()
        tracer.communicate()
    if lab.planted:
        file.write_text(file.read_text()[:-10])
    text = file.read_text()
    require(text in (old, new), f"{call} {number}: the file is incomplete: {len(text)} bytes")
    versions = sorted((server.folder / "state/settings-history").glob("*.version"))
    stored = [path.read_text().split("\n", 1) for path in versions]
    require(all(json.loads(head) and content in (old, new) for head, content in stored), f"{call} {number}: {versions}")
    require(text == old or [content for _, content in stored] == [old, new], f"{call} {number}: a version is lost: {versions}")
    if not survived:
        # The next life reads the file, and edits it in spite of the rests of the last one.
        require(subprocess.run([lab.encke, "check", file], capture_output=True, cwd=server.folder).returncode == 0, f"{call} {number}")
    server.stop()
    return survived, "new" if text == new else "old"


@case(basic=(None,))
def a_kill_at_any_system_call_leaves_a_complete_file(lab: ConsoleRig) -> str:
    """The file is the old or the new one, byte for byte, whichever call is the last of its life, and no version is lost. Fault: the
    file is cut."""
    if not may_trace(lab):
        if lab.planted:
            raise Fault("strace cannot be used here")
        return "strace cannot be used here"
    left, kills = Counter(), 0
    for call in lab.of(BASIC_CALLS, CALLS, CALLS):
        for number in range(1, CALLS_MAX):
            survived, text = edit(lab, call, number)
            if survived:
                break
            left[text] += 1
            kills += 1
        else:
            raise Fault(f"an edit makes more than {CALLS_MAX} calls of {call}")
        require(number > 1, f"an edit makes no call of {call}")
    return f"{kills} kills: {left['old']} old files, {left['new']} new ones"
