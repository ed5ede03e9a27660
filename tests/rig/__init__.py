"""The parts that suites of tests share: cases, servers, connections, waiting.

    tests/attacks, gateway, live, console ─► cases ─► server ─► innocent ─► net ─► waiting
    tests/guards, backup, partition, chaos, cluster ──┘
"""
from .cases import Case, Suite, case, run_suite
from .certificates import LOCALHOST, authority, openssl, self_signed
from .innocent import BEARER, SMALL_FILE, TOKEN, Innocent
from .net import (ACCEPT, BINARY, CLOSE, EVENT_STREAM, PING, TEXT, UPGRADE, Client, Connection, Response, ended, masked_frame,
                  parsed_frame, parsed_head, ready, reserved_port, send_queues)
from .server import (KIB, MIB, RELOADED, REPOSITORY, VENV, Encke, MemoryWatch, Process, ProcessGroup, Rig, Server, json_lines,
                     merged, mib, toml)
from .waiting import PATIENCE, Fault, at_once, require, until
