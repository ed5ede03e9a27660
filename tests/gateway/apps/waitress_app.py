"""The application of wsgi.py on waitress, which takes an inherited socket only as an argument."""
import socket

import waitress

from wsgi import app

waitress.serve(app, sockets=[socket.socket(fileno=3)], clear_untrusted_proxy_headers=False)
