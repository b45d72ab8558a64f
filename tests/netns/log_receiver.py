"""A receiver of logs over TLS on 127.0.0.1: `log_receiver.py PORT CERTIFICATE KEY`. It prints what it receives at once, which
`openssl s_server` does only at the end of a line, and RFC 5425 has no lines."""
import socket
import ssl
import sys

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    try:
        with context.wrap_socket(connection, server_side=True) as client:
            while True:
                data = client.recv(16384)
                if not data:
                    break
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
    except OSError:
        # The client has refused the certificate, or has gone.
        pass
