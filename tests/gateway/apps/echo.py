"""An application that accepts every WebSocket, and returns the bytes that it gets: one thread for thousands of connections.

It listens on descriptor 3. Other requests get a 200 without content.
"""
import selectors
import socket


def answer(client: socket.socket) -> bool:
    """Returns false at the end of the connection."""
    try:
        if not (piece := client.recv(4096)):
            return False
        if piece.startswith(b"GET ") and b"\r\nUpgrade: websocket\r\n" in piece:
            piece = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
        elif piece.startswith(b"GET "):
            piece = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        client.sendall(piece)
        return True
    except OSError:
        return False


listener = socket.socket(fileno=3)
ready = selectors.DefaultSelector()
ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj is listener:
            accepted, _ = listener.accept()
            ready.register(accepted, selectors.EVENT_READ)
        elif not answer(key.fileobj):
            ready.unregister(key.fileobj)
            key.fileobj.close()
