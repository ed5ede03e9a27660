#!/usr/bin/env python3
"""An HTTP server with selectable faults, for tests of verdicts: one thread, persistent connections, 13 bytes per response.

    moody.py PORT [--spin-us N] [--delay-ms N] [--freeze-ms N] [--body N] [--backlog N]

It computes for `spin-us` before each response, or delays it by `delay-ms` without using its processor, and does nothing in the
first `freeze-ms` of each second.
"""

import argparse
import heapq
import selectors
import socket
import time

END = b"\r\n\r\n"
CHUNK = 65_536


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--spin-us", type=int, default=0)
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--freeze-ms", type=int, default=0)
    parser.add_argument("--body", type=int, default=13)
    parser.add_argument("--backlog", type=int, default=4096)
    moods = parser.parse_args()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % moods.body + b"." * moods.body
    listener = socket.create_server(("127.0.0.1", moods.port), backlog=moods.backlog)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    pieces: dict[socket.socket, bytes] = {}
    due: list[tuple[float, int, socket.socket]] = []
    began, number = time.monotonic(), 0
    while True:
        wait = max(0.0, due[0][0] - time.monotonic()) if due else None
        ready = selector.select(wait)
        into = (time.monotonic() - began) % 1.0
        if into < moods.freeze_ms / 1000:
            time.sleep(moods.freeze_ms / 1000 - into)
        for key, _ in ready:
            if key.fileobj is listener:
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(stream, selectors.EVENT_READ)
                pieces[stream] = b""
                continue
            stream = key.fileobj
            try:
                got = stream.recv(CHUNK)
            except ConnectionError:
                got = b""
            if not got:
                selector.unregister(stream)
                del pieces[stream]
                stream.close()
                continue
            *whole, pieces[stream] = (pieces[stream] + got).split(END)
            for _ in whole:
                until = time.perf_counter() + moods.spin_us / 1e6
                while time.perf_counter() < until:
                    pass
                number += 1
                heapq.heappush(due, (time.monotonic() + moods.delay_ms / 1000, number, stream))
        while due and due[0][0] <= time.monotonic():
            _, _, stream = heapq.heappop(due)
            if stream in pieces:
                try:
                    stream.sendall(answer)
                except ConnectionError:
                    pass  # the end of stream is read next, and closes it


if __name__ == "__main__":
    main()
