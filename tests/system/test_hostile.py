"""Clients without keys, or with bad manners, that would keep others from being served. Each is bounded in number and
time, and what others ask for meanwhile must be answered.
"""

import http.client
import socket
import time

from harness import BRISK, STAYING, SystemTest, noise

PUBLIC = {"ACL": "public-read"}


class Hostile(SystemTest):
    def setUp(self):
        super().setUp()
        self.sockets = []
        self.addCleanup(lambda: [sock.close() for sock in self.sockets])

    def served(self, **settings):
        server = self.rack("nas8", {**STAYING, **settings})
        client = server.filled({"k": b"wanted", **PUBLIC})
        return server

    def connected(self, server, source="127.0.0.1", receive_buffer=None):
        host, port = server.address.split(":")
        sock = socket.socket()
        self.sockets.append(sock)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.bind((source, 0))
        sock.settimeout(20)
        sock.connect((host, int(port)))
        return sock

    def gets(self, server, count):
        """How many of so many GETs of a user, one after another, are answered as they should be."""
        answers = [server.ask("GET", "/pantry/k", timeout=20) for _ in range(count)]
        return sum(1 for status, _, body in answers if (status, body) == (200, b"wanted"))

    def test_slow_bodies_of_refused_requests_take_nobodys_place(self):
        server = self.served(request_limit=32)
        head = f"PUT /pantry/x HTTP/1.1\r\nhost: {server.address}\r\ncontent-length: 1000000\r\n\r\n".encode()
        slow = [self.connected(server) for _ in range(120)]
        for sock in slow:
            sock.sendall(head + b"x")
        good, end = 0, time.monotonic() + 4
        for _ in range(8):
            good += self.gets(server, 5)
            for sock in slow:
                try:
                    sock.sendall(b"x")
                except OSError:
                    pass  # it was cut off
        self.assertEqual(good, 40)
        self.assertLess(time.monotonic(), end + 4)
        self.assertEqual(server.status()["front"]["refused_requests"], 0)

    def test_idle_connections_make_room(self):
        server = self.served(connection_limit=64)
        for _ in range(90):
            self.connected(server)
        for last in range(2, 5):
            for _ in range(30):
                self.connected(server, source=f"127.0.0.{last}")
        started = time.monotonic()
        self.assertEqual(self.gets(server, 10), 10)
        self.assertLess(time.monotonic() - started, 10)
        front = server.status()["front"]
        self.assertLessEqual(front["connections"], 64)
        self.assertGreater(front["evicted_connections"], 50)

    def test_long_heads_are_refused_and_kept_nowhere(self):
        server = self.served()
        before = server.resident()
        head = f"GET /pantry/k HTTP/1.1\r\nhost: {server.address}\r\n".encode()
        line = b"x-filler-%04d: " + b"y" * 4000 + b"\r\n"
        refused = 0
        for _ in range(100):
            sock = self.connected(server)
            try:
                sock.sendall(head)
                for number in range(85):
                    sock.sendall(line % number)
                sock.settimeout(2)
                refused += sock.recv(100).startswith(b"HTTP/1.1 431")
            except TimeoutError:
                pass
            except OSError:
                refused += 1  # it was closed in the middle
        grown = server.peak() - before
        self.assertEqual(refused, 100)
        self.assertLess(grown, 20_000_000)
        # What requests of S3 may have of headers fits.
        metadata = {f"x-amz-meta-{number:02}": "v" * 40 for number in range(40)}
        status, _, body = server.ask("PUT", "/pantry/described", headers=metadata, body=b"x")
        self.assertEqual(status, 200, body)

    def test_slow_readers_without_keys_leave_places_for_users(self):
        server = self.served(request_limit=16)
        server.client().put_object(Bucket="pantry", Key="large", Body=noise(20_000_000, 1), **PUBLIC)
        head = f"GET /pantry/large HTTP/1.1\r\nhost: {server.address}\r\n\r\n".encode()
        for last in range(1, 6):
            for _ in range(6):
                self.connected(server, source=f"127.0.0.{last}", receive_buffer=4096).sendall(head)
        time.sleep(0.5)
        self.assertEqual(self.gets(server, 20), 20)
        front = server.status()["front"]
        self.assertEqual((front["unsigned_requests"], front["request_limit"]), (8, 16))
        self.assertEqual(front["refused_requests"], 30 - 8)

    def test_slow_readers_of_ranges_pin_nothing(self):
        server = self.rack("nas8", {**BRISK, "workshop.spool": "40 MB", "max_wait": "10 s"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        large, other = noise(80_000_000, 1), noise(3_000_000, 2)
        client.put_object(Bucket="pantry", Key="large", Body=large, **PUBLIC)
        client.put_object(Bucket="pantry", Key="other", Body=other)
        server.until_migrated()
        slow = []
        for number in range(7):
            sock = self.connected(server, receive_buffer=4096)
            first = number * 9_000_000
            head = f"GET /pantry/large HTTP/1.1\r\nhost: {server.address}\r\nrange: bytes={first}-\r\n\r\n"
            sock.sendall(head.encode())
            slow.append((first, sock))
            time.sleep(0.3)
        time.sleep(3)
        started = time.monotonic()
        self.reads(client, "pantry", {"other": other, "large": large})
        self.assertLess(time.monotonic() - started, 15)
        # One that goes on reads what it was promised, though nothing was kept for it.
        first, sock = next((first, sock) for first, sock in reversed(slow) if self.is_answered(sock))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        response = http.client.HTTPResponse(sock)
        response.begin()
        self.assertEqual(response.status, 206)
        self.assertTrue(response.read() == large[first:])

    @staticmethod
    def is_answered(sock):
        return sock.recv(16, socket.MSG_PEEK).startswith(b"HTTP/1.1 206")

    def test_who_announces_much_and_sends_a_byte_holds_little(self):
        server = self.served(**{"workshop.capacity": "60 MB", "workshop.spool": "40 MB"})
        client = server.client()
        announced = 55_000_000
        url = client.generate_presigned_url("put_object", {"Bucket": "pantry", "Key": "never"}, ExpiresIn=60)
        target = url.split(server.address, 1)[1]
        sock = self.connected(server)
        head = f"PUT {target} HTTP/1.1\r\nhost: {server.address}\r\ncontent-length: {announced}\r\n\r\nx"
        sock.sendall(head.encode())
        time.sleep(0.5)
        bodies = {f"k{number}": noise(16_000_000, number) for number in range(3)}
        for key, body in bodies.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        self.reads(client, "pantry", bodies)
        # The one in the way is refused as soon as it sends more than there is left.
        try:
            for _ in range(50):
                sock.sendall(b"y" * 1_000_000)
        except OSError:
            pass
        self.assertIn(b"SlowDown", self.rest(sock))
        self.fails(404, "NoSuchKey", client.get_object, Bucket="pantry", Key="never")

    @staticmethod
    def rest(sock):
        got = b""
        try:
            while piece := sock.recv(65536):
                got += piece
        except OSError:
            pass  # what it was sent before the reset counts
        return got or b"SlowDown, and reset while it was still sending"

    def test_who_trickles_is_cut_off(self):
        server = self.served(client_timeout="2 s", min_rate="10 KiB")
        client = server.client()
        url = client.generate_presigned_url("put_object", {"Bucket": "pantry", "Key": "never"}, ExpiresIn=60)
        target = url.split(server.address, 1)[1]
        sock = self.connected(server)
        head = f"PUT {target} HTTP/1.1\r\nhost: {server.address}\r\ncontent-length: 1000000\r\n\r\n"
        sock.sendall(head.encode())
        started = time.monotonic()
        sock.settimeout(0.2)
        answer = b""
        while time.monotonic() - started < 15 and not answer:
            sock.sendall(b"x" * 100)
            try:
                answer = sock.recv(65536)
            except TimeoutError:
                pass
        self.assertTrue(answer.startswith(b"HTTP/1.1 400") and b"RequestTimeout" in answer, answer)
        self.assertGreaterEqual(server.status()["front"]["slow_clients"], 1)
