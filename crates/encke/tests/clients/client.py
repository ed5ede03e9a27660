"""Python's own client over TLS: client.py PORT CERTIFICATE. Prints the version of TLS and `fine`."""
import http.client
import ssl
import sys

port, certificate = int(sys.argv[1]), sys.argv[2]
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    context = ssl.create_default_context(cafile=certificate)
    context.minimum_version = context.maximum_version = version
    connection = http.client.HTTPSConnection("localhost", port, context=context)
    for _ in range(20):
        connection.request("GET", "/large.bin")
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200 and len(content) == 1_000_003, (answer.status, len(content))
        connection.request("POST", "/push/news", "from Python")
        answer = connection.getresponse()
        assert answer.status == 201, (answer.status, answer.read())
        answer.read()
    print(connection.sock.version())
    connection.close()
print("fine")
