"""An application on raw sockets that closes idle connections after random 0 to IDLE_MS milliseconds, for cases of kept connections.

Each request is recorded when it is executed. A target that contains /crash is executed, and then the connection closes without a
response. Listens on descriptor 3.
"""
import os
import random
import socket
import threading

from notes import note

IDLE_S = int(os.environ.get("IDLE_MS", "20")) / 1000


def serve(client: socket.socket) -> None:
    data, is_idle = b"", False
    try:
        while True:
            while b"\r\n\r\n" not in data:
                # A new connection is not idle.
                client.settimeout(random.uniform(0, IDLE_S) if is_idle and not data else 10)
                if not (piece := client.recv(65_536)):
                    return
                data += piece
            head, _, data = data.partition(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            client.settimeout(10)
            while len(data) < length:
                if not (piece := client.recv(65_536)):
                    return
                data += piece
            data = data[length:]
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            if method != "GET":
                note(method=method, target=target)
            if "/crash" in target:
                return
            client.sendall(b"HTTP/1.1 200 OK\r\nX-Seen: 1\r\nContent-Length: 2\r\n\r\nok")
            is_idle = True
    except OSError:
        pass
    finally:
        client.close()


listener = socket.socket(fileno=3)
while True:
    accepted, _ = listener.accept()
    threading.Thread(target=serve, args=(accepted,), daemon=True).start()
