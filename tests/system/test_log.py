"""The log: a client cannot fill a disk with it, and dropped lines are counted."""

import hashlib
import os
import re
import socket

from harness import BRISK, LABEL, STAYING, SystemTest, b64, noise

REQUESTS = 3_000
# Lines of a kind in a minute at the levels `debug` and `trace`.
DETAIL_LINES = 20_000


class Log(SystemTest):
    def refused(self, server, count):
        """Sends so many unsigned requests on one connection, many at once."""
        host, port = server.address.split(":")
        request = f"GET / HTTP/1.1\r\nHost: {server.address}\r\n\r\n".encode()
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            for _ in range(count // 50):
                connection.sendall(50 * request)
                answers = b""
                while answers.count(b"</Error>") < 50:
                    answers += connection.recv(1 << 16)
                self.assertEqual(answers.count(b"HTTP/1.1 403"), 50)

    def test_refused_requests_are_one_line_a_minute_by_cause_and_address(self):
        server = self.rack("nas8", STAYING)
        before = len(server.log())
        self.refused(server, REQUESTS)
        self.assertEqual(server.stop(), 0)
        said = server.log()[before:]
        counts = [int(count) for count in re.findall(r"(\d+) AccessDenied from 127\.0\.0\.1", said)]
        self.assertEqual(sum(counts), REQUESTS, said[-2000:])
        self.assertLess(len(said), 4_000, said)
        self.assertNotIn("ERROR", said)

    def test_an_error_of_a_client_is_none_of_the_server_with_any_filter(self):
        data = self.made("nas8", **STAYING)
        self.serve(data).filled({})
        for log, line, least in [("error", "", 0), ("debug", "s3::error:", 302), ("s3s=trace", "s3s::service:", 302)]:
            with self.subTest(log):
                self.assertEqual(self.servers[-1].stop(), 0)
                server = self.serve(data, log=log)
                before = len(server.log())
                self.refused(server, 300)
                for path, body, status in [("/nowhere", b"<Delete/>", 404), ("/pantry", b"<Del", 400)]:
                    digest = {"Content-MD5": b64(hashlib.md5(body).digest())}
                    self.assertEqual(server.ask("POST", path, digest, body, "delete=")[0], status)
                said = server.log()[before:]
                self.assertGreaterEqual(said.count(line), least)
                self.assertNotIn("ERROR", said)

    def test_refusals_in_detail_are_limited_too(self):
        server = self.serve(self.made("nas8", **STAYING), log="debug")
        self.refused(server, DETAIL_LINES + 1_000)
        size = os.path.getsize(server.log_path)
        self.refused(server, REQUESTS)
        self.assertLess(os.path.getsize(server.log_path) - size, 20_000)
        self.assertEqual(server.stop(), 0)
        said = server.log()
        self.assertEqual(said.count(" s3::error: refused "), DETAIL_LINES)
        dropped = r"DEBUG s3::error: (\d+) more lines of this kind \(s3/src/error.rs:\d+\) were dropped"
        self.assertEqual(re.findall(dropped, said), [str(1_000 + REQUESTS)])

    def test_a_kind_of_line_is_written_so_often_in_a_minute_and_the_rest_is_counted(self):
        server = self.rack("nas8", {**BRISK, "max_wait": "5 s"})
        client = server.filled({"k": noise(300_000, 1)})
        server.until_cold()
        for drive in os.listdir(os.path.join(server.data, "drives")):
            os.rename(os.path.join(server.data, "drives", drive, LABEL), os.path.join(self.root, drive))
        before = len(server.log())
        for _ in range(300):
            self.fails(503, "ServiceUnavailable", client.get_object, Bucket="pantry", Key="k")
        self.assertEqual(server.stop(), 0)
        said = server.log()[before:]
        self.assertEqual(said.count("request failed"), 200)
        self.assertRegex(said, r"WARN s3::error: 100 more lines of this kind \(s3/src/error.rs:\d+\) were dropped")
