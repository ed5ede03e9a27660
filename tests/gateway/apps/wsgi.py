"""An application for servers of WSGI: records each request."""
import hashlib

from notes import note_request


def app(environ, start_response):
    sum_, length = hashlib.sha256(), 0
    while piece := environ["wsgi.input"].read(1 << 16):
        sum_.update(piece)
        length += len(piece)
    if length < int(environ.get("CONTENT_LENGTH") or 0):
        raise ConnectionError("the body is incomplete")
    fields = [(name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_")]
    # gunicorn's name, waitress's, and the one of the specification.
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI") or environ["PATH_INFO"]
    note_request(environ["REQUEST_METHOD"], target, length, sum_.hexdigest(), fields)
    body = sum_.hexdigest().encode()
    start_response("200 OK", [("X-Seen", "1"), ("Content-Length", str(len(body)))])
    return [body]
