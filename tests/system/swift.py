"""A client that costs little, for very many requests: signed by hand, payloads not signed, over its own connection."""

import hashlib
import hmac
import socket
import time


class Address:
    """Where a server is and what keys it knows, for clients in other processes."""

    def __init__(self, server):
        self.address, self.access_key, self.secret_key = server.address, server.access_key, server.secret_key


class SwiftClient:
    """Requests one after another. Paths have no letters that would have to be escaped."""

    def __init__(self, server):
        self.server, self.file = server, None
        self.day = self.key = None

    def _connect(self):
        host, port = self.server.address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 16)

    def signed(self, method, path, query, headers):
        """`headers`, all of which are signed, with those that the signature needs."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        if self.day != now[:8]:
            key = f"AWS4{self.server.secret_key}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self.day, self.key = now[:8], key
        headers = {"host": self.server.address, "x-amz-date": now, **headers}
        headers["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"
        names = sorted(headers)
        listed = ";".join(names)
        lines = "".join(f"{name}:{headers[name]}\n" for name in names)
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{listed}\nUNSIGNED-PAYLOAD"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
        signature = hmac.new(self.key, to_sign.encode(), "sha256").hexdigest()
        credential = f"Credential={self.server.access_key}/{scope}"
        headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={listed}, Signature={signature}"
        return headers

    def ask(self, method, path, body=b"", query="", headers=None):
        """Status and body of the answer. `query` is in canonical form."""
        self.send(method, path, body, query, headers)
        return self.answer()

    def send(self, method, path, body=b"", query="", headers=None):
        """The request alone; `answer` waits for what comes back."""
        if self.file is None:
            self._connect()
        headers = self.signed(method, path, query, headers or {})
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        target = f"{path}?{query}" if query else path
        request = f"{method} {target} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n"
        self.socket.sendall(request.encode() + body)

    def answer(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server hung up")
        length = 0
        while (field := self.file.readline()) not in (b"\r\n", b""):
            if field[:15].lower() == b"content-length:":
                length = int(field[15:])
        answer = self.file.read(length)
        if len(answer) < length:
            raise ConnectionError("the server hung up")
        return int(line[9:12]), answer
