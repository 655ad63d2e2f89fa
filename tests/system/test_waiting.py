"""GETs that wait for cold objects: beside whom, how many, at what cost; and what a HEAD says of a cold object."""

import os
import resource
import socket
import time
import unittest
import urllib.parse

from harness import BRISK, STAYING, SystemTest, rack_that_wakes_in

# Far longer than a test takes to ask.
WAKE_S = 600
MANY = 2_000
# Fewer than `request_limit`, which MANY exceeds by far.
AT_ONCE = 100
# Sockets and files beside those of the clients.
OTHER_FILES = 200
# What a waiting GET may hold, and what the server may need beside for the first of them: stacks of threads, the
# allocator's own, buffers that are kept.
EACH_BYTES = 64 << 10
BESIDE_BYTES = 16 << 20


def may_open(files):
    """Raises this process's limit of open files to `files`, if that is possible; true if it is high enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return hard >= files


class Waiting(SystemTest):
    def serve_asleep(self, **settings):
        """A server with `pantry/cold` in the rack, all of whose drives sleep and take long to wake."""
        rack = rack_that_wakes_in(WAKE_S, self.root)
        data = self.made(rack, **{**BRISK, "time_scale": 1000})
        server = self.serve(data)
        server.filled({"cold": b"x" * 300_000})
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        self.configure(data, {**STAYING, "time_scale": 1, "max_wait": "10 min", **settings})
        server = self.serve(data)
        server.client().put_object(Bucket="pantry", Key="hot", Body=b"warm")
        return server

    def asked(self, server):
        """A socket on which the GET of the cold object was sent."""
        parameters = {"Bucket": "pantry", "Key": "cold"}
        url = urllib.parse.urlsplit(server.client().generate_presigned_url("get_object", Params=parameters))
        request = f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode("ascii")
        host, port = url.netloc.split(":")

        def ask():
            asking = socket.create_connection((host, int(port)), timeout=60)
            self.addCleanup(asking.close)
            asking.sendall(request)
            return asking

        return ask

    def waiting(self, server, number):
        front = server.until(f"{number} wait", lambda status: status["front"]["waiting_requests"] == number)["front"]
        # The command that asks is no request of S3.
        self.assertEqual(front["requests"], 0, "who waits takes no place of those who are served")

    def others_are_served(self, server):
        client = server.client()
        for number in range(5):
            self.assertEqual(client.get_object(Bucket="pantry", Key="hot")["Body"].read(), b"warm")
            client.put_object(Bucket="pantry", Key=f"new{number}", Body=b"new")
        self.assertEqual(client.head_object(Bucket="pantry", Key="cold")["ContentLength"], 300_000)

    def test_a_head_of_a_cold_object_says_so_and_wakes_nothing(self):
        server = self.serve_asleep()
        starts = sum(server.totals()["group_wakes"])
        status, headers, _ = server.ask("HEAD", "/pantry/cold")
        self.assertEqual((status, headers.get("x-larder-temperature")), (200, "cold"))
        self.assertIn(int(headers["x-larder-recall-forecast-s"]), range(WAKE_S - 10, WAKE_S + 30))
        self.assertNotIn("x-amz-storage-class", headers, "a client would want it restored first")
        status, headers, _ = server.ask("HEAD", "/pantry/hot")
        self.assertNotIn("x-larder-temperature", headers)
        self.assertEqual(sum(server.totals()["group_wakes"]), starts)

    def test_more_gets_than_may_wait_are_refused_at_once_and_others_are_served(self):
        server = self.serve_asleep(waiting_gets=4, request_limit=4)
        ask = self.asked(server)
        for _ in range(3):
            ask()
        self.waiting(server, 3)
        began = time.monotonic()
        status, headers, body = server.ask("GET", "/pantry/cold")
        self.assertEqual((status, b"<Code>SlowDown</Code>" in body), (503, True), "three of four are one user's")
        self.assertLess(time.monotonic() - began, WAKE_S / 10)
        self.assertGreater(int(headers["retry-after"]), 0)
        self.others_are_served(server)

    @unittest.skipUnless(os.path.isdir("/proc/self/fd"), "memory is read in /proc")
    @unittest.skipUnless(may_open(MANY + OTHER_FILES), f"this process may not have {MANY + OTHER_FILES} files open")
    def test_thousands_that_wait_hold_little_memory_and_leave_others_alone(self):
        server = self.serve_asleep()
        ask = self.asked(server)
        ask()
        self.waiting(server, 1)
        before = server.resident()
        # Each has the place of a request for a moment, until it is known that it has to wait.
        for number in range(1, MANY + 1):
            ask()
            if number % AT_ONCE == 0:
                self.waiting(server, number + 1)
        grown = server.peak() - before
        print(f"{MANY} GETs that wait hold {grown / 1e6:.1f} MB, {grown / MANY / 1024:.1f} KiB each")
        self.assertLess(grown, MANY * EACH_BYTES + BESIDE_BYTES)
        self.others_are_served(server)
