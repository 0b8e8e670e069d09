"""Verifies a server with Python's default context, made strict where that is not the default yet.

Arguments: CA file, name to verify, host, port."""
import socket
import ssl
import sys

ca, name, host, port = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.verify_flags |= ssl.VERIFY_X509_STRICT
with socket.create_connection((host, int(port)), timeout=10) as plain:
    with context.wrap_socket(plain, server_hostname=name) as tls:
        assert tls.getpeercert()["subjectAltName"]
