"""Large objects, many clients, slow clients: memory stays bounded, and nobody who is slow is in others' way."""

import concurrent.futures
import hashlib
import http.client
import os
import re
import threading
import time
import unittest
import urllib.parse

from harness import BRISK, SystemTest, noise

LARGE_BYTES = 1 << 30
MEMORY_MAX_BYTES = 512 << 20
BUCKET = "pantry"
# A gigabyte made of one mebibyte, which starts with the number of its turn, so that no two of them are the same.
BLOCK = noise(1 << 20, "large")


def block(number):
    return number.to_bytes(8, "big") + BLOCK[8:]


def peak_bytes(server):
    """The most memory that the server ever had resident."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read()).group(1)) * 1024


class Streaming(SystemTest):
    def begin_put(self, server, key, size):
        """A connection on which a PUT of `size` bytes is announced; by a presigned URL, which signs no body."""
        named = {"Bucket": BUCKET, "Key": key}
        url = urllib.parse.urlsplit(server.client().generate_presigned_url("put_object", Params=named))
        connection = http.client.HTTPConnection(server.address, timeout=300)
        connection.putrequest("PUT", f"{url.path}?{url.query}")
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        return connection

    def put_large(self, server, key):
        connection = self.begin_put(server, key, LARGE_BYTES)
        for number in range(LARGE_BYTES // len(BLOCK)):
            connection.send(block(number))
        response = connection.getresponse()
        self.assertEqual(response.status, 200, response.read())
        connection.close()

    def get_large(self, server, key):
        response, connection = server.open("GET", f"/{BUCKET}/{key}", timeout=300)
        self.assertEqual(response.status, 200)
        for number in range(LARGE_BYTES // len(BLOCK)):
            self.assertTrue(response.read(len(BLOCK)) == block(number), f"block {number}")
        self.assertEqual(response.read(), b"")
        connection.close()

    @unittest.skipUnless(os.path.exists("/proc/self/status"), "the peak of memory is read from /proc")
    def test_a_gigabyte_in_either_direction_and_many_clients_take_bounded_memory(self):
        settings = {**BRISK, "time_scale": 20, "workshop.capacity": "3 GB", "workshop.spool": "1200 MB"}
        server = self.rack("nas8", settings)
        client = server.client()
        client.create_bucket(Bucket=BUCKET)
        ending = threading.Event()

        def busy(number):
            mine, count = server.client(), 0
            while not ending.is_set():
                body = noise(300_000, f"{number}/{count % 4}")
                mine.put_object(Bucket=BUCKET, Key=f"small/{number}", Body=body)
                self.assertTrue(mine.get_object(Bucket=BUCKET, Key=f"small/{number}")["Body"].read() == body)
                count += 1
            return count

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            others = [pool.submit(busy, number) for number in range(16)]
            try:
                self.put_large(server, "large")
                self.get_large(server, "large")
            finally:
                ending.set()
            self.assertTrue(all(other.result() > 0 for other in others))
        server.until_cold()
        self.get_large(server, "large")
        peak = peak_bytes(server)
        print(f"{self.id()}: {peak >> 20} MiB at most", flush=True)
        self.assertLess(peak, MEMORY_MAX_BYTES)

    def test_a_slow_reader_is_in_nobodys_way(self):
        settings = {**BRISK, "workshop.spool": "30 MB", "migrate.pack_size": "8 MB"}
        server = self.rack("nas8", settings)
        client = server.client()
        client.create_bucket(Bucket=BUCKET)
        objects = {"slow": noise(25_000_000, "slow"), "other": noise(2_000_000, "other")}
        for key, body in objects.items():
            client.put_object(Bucket=BUCKET, Key=key, Body=body)
        server.until_cold()
        response, connection = server.open("GET", f"/{BUCKET}/slow")
        taken = response.read(10_000)
        # At ten kilobytes a second; meanwhile others write, objects move to the rack, and its drives sleep.
        for _ in range(3):
            time.sleep(1)
            taken += response.read(10_000)
        begun = server.totals()["migrated_bytes"]
        client.put_object(Bucket=BUCKET, Key="new", Body=b"n" * 500_000)
        self.reads(client, BUCKET, {"other": objects["other"], "new": b"n" * 500_000})
        server.until_cold()
        self.assertGreater(server.totals()["migrated_bytes"], begun)
        taken += response.read()
        connection.close()
        self.assertEqual(hashlib.md5(taken).digest(), hashlib.md5(objects["slow"]).digest())

    def test_slow_writers_are_in_nobodys_way_and_give_their_room_back_when_they_vanish(self):
        server = self.rack("nas8")
        client = server.client()
        client.create_bucket(Bucket=BUCKET)
        connections = []
        for number in range(20):
            connection = self.begin_put(server, f"half{number}", 50_000_000)
            connection.send(b"x" * 1_000_000)
            connections.append(connection)
        objects = {f"{i}": noise(200_000, i) for i in range(5)}
        for key, body in objects.items():
            client.put_object(Bucket=BUCKET, Key=key, Body=body)
        self.reads(client, BUCKET, objects)
        for connection in connections:
            connection.close()
        server.until_migrated()
        self.reads(client, BUCKET, objects)
        self.assertEqual(len(client.list_objects_v2(Bucket=BUCKET)["Contents"]), 5, "nothing of half an upload is seen")
        # All room is there again: an upload of nearly all of the workshop finds it.
        server.until("the room is given back", lambda s: s["workshop"]["staged_bytes"] == 0)
        self.assertEqual(server.stop(), 0)
        report = self.verified(server.data)
        self.assertEqual((report["findings"], report["leftovers"]["staged_files"]), ([], 0))
