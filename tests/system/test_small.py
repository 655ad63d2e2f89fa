"""Very many small objects: they go through the log in front of the catalog, and come back whole whatever happens."""

import base64
import concurrent.futures
import hashlib
import math
import multiprocessing
import os
import random
import re
import time

from harness import BRISK, STAYING, SystemTest, noise
from swift import Address, SwiftClient

COUNT = 50_000
PROCESSES = 4
# Requests of a process that are under way at once.
CONNECTIONS = 8
# Memory of the server, however many objects there are: see docs/reference/limits.md.
MEMORY_BYTES_MAX = 1 << 30
# Bytes that all bodies are pieces of.
NOISE = noise(1 << 20, "small")


def name(number):
    """Keys in another order than that of numbers."""
    return f"{number * 2654435761 % (1 << 32):08x}"


def body(number, version=0):
    """0.5 to 16 KB, log-uniform."""
    chance = random.Random(number * 1000 + version)
    size = int(512 * math.exp(chance.random() * math.log(32)))
    at = chance.randrange(len(NOISE) - size - 16)
    return number.to_bytes(8, "big") + version.to_bytes(8, "big") + NOISE[at : at + size - 16]


def side_by_side(server, method, numbers, body_of):
    """A request for each of `numbers`, several under way at once; each number and its answer."""
    clients = [SwiftClient(server) for _ in range(CONNECTIONS)]
    for at in range(0, len(numbers), CONNECTIONS):
        some = list(zip(clients, numbers[at : at + CONNECTIONS]))
        for client, number in some:
            client.send(method, f"/pantry/{name(number)}", body_of(number))
        for client, number in some:
            yield number, client.answer()


def put(server, numbers):
    for _, (status, answer) in side_by_side(server, "PUT", numbers, body):
        assert status == 200, (status, answer)


def get(server, numbers):
    for number, answer in side_by_side(server, "GET", numbers, lambda _: b""):
        assert answer == (200, body(number)), (answer[0], number)


def listed(server):
    """Every key with its size, page after page."""
    client, found, last = SwiftClient(server), [], ""
    while True:
        status, page = client.ask("GET", "/pantry", query=f"list-type=2&start-after={last}")
        assert status == 200, page
        found += re.findall(r"<Key>([^<]*)</Key>.*?<Size>(\d+)</Size>", page.decode(), re.S)
        if b"<IsTruncated>false" in page:
            return [(key, int(size)) for key, size in found]
        last = found[-1][0]


def delete(server, numbers):
    client, numbers = SwiftClient(server), list(numbers)
    for at in range(0, len(numbers), 1000):
        keys = "".join(f"<Object><Key>{name(number)}</Key></Object>" for number in numbers[at : at + 1000])
        request = f"<Delete><Quiet>true</Quiet>{keys}</Delete>".encode()
        md5 = base64.b64encode(hashlib.md5(request).digest()).decode()
        status, answer = client.ask("POST", "/pantry", request, "delete=", {"content-md5": md5})
        assert status == 200 and b"<Error>" not in answer, answer[:500]


GONE = -1


def write_until_killed(server, share, turn):
    """Puts, overwrites and deletes objects of its own until the server is gone. For each of them the version that was
    acknowledged last, and the one that was asked for and not answered."""
    client, chance = SwiftClient(server), random.Random(share * 100 + turn)
    sure, begun, version = {}, {}, turn << 20
    while True:
        number, version = share * 1000 + chance.randrange(300), version + 1
        removes = chance.random() < 0.2
        begun[number] = GONE if removes else version
        try:
            if removes:
                status, answer = client.ask("DELETE", f"/pantry/{name(number)}")
            else:
                status, answer = client.ask("PUT", f"/pantry/{name(number)}", body(number, version))
        except OSError:
            return sure, begun
        assert status in (200, 204), (status, answer)
        sure[number] = begun.pop(number)


class Small(SystemTest):
    def by_all(self, do, server, numbers):
        """Clients in processes of their own, each with its share."""
        numbers = list(numbers)
        plain = Address(server)
        with concurrent.futures.ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("fork")) as pool:
            for done in [pool.submit(do, plain, numbers[share::PROCESSES]) for share in range(PROCESSES)]:
                done.result()

    def test_very_many_are_put_listed_read_packed_and_deleted(self):
        server = self.rack("nas8", STAYING)
        server.client().create_bucket(Bucket="pantry")
        timed = {}

        def phase(what, do, *arguments):
            began = time.monotonic()
            do(*arguments)
            timed[what] = round(time.monotonic() - began, 1)
            self.assertLess(server.peak(), MEMORY_BYTES_MAX, what)

        everything = sorted((name(number), len(body(number))) for number in range(COUNT))
        in_order = sorted(range(COUNT), key=name)
        phase("put", self.by_all, put, server, range(COUNT))
        phase("listed", lambda: self.assertTrue(listed(server) == everything))
        phase("read", self.by_all, get, server, random.Random(1).sample(range(COUNT), COUNT // 5))
        phase("scanned", self.by_all, get, server, in_order[: COUNT // 5])
        self.assertEqual(server.status()["workshop"]["staged_count"], COUNT)
        self.assertEqual([n for n in os.listdir(os.path.join(server.data, "workshop", "staged")) if n[0] == "s"], [])
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, BRISK)
        server = self.serve(server.data)
        # Each of them takes several switches between threads, which are slow on some machines.
        phase("packed", server.until_migrated, 600)
        # In key order: neighbours lie side by side in one blob, which a reader needs one group for.
        blobs = [server.explain("pantry", name(number))["place"]["blob"] for number in in_order[100:110]]
        self.assertEqual(len(set(blobs)), 1, blobs)
        phase("cold", self.by_all, get, server, in_order[:: COUNT // 200])
        phase("deleted", delete, server, in_order)
        self.assertEqual(listed(server), [])
        print(timed)

    def test_nothing_acknowledged_is_lost_by_kills_under_load(self):
        server = self.rack("nas8", STAYING)
        server.client().create_bucket(Bucket="pantry")
        known, count = {}, 0
        for turn in range(4):
            with concurrent.futures.ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("fork")) as pool:
                working = [
                    pool.submit(write_until_killed, Address(server), share, turn) for share in range(PROCESSES)
                ]
                time.sleep(1 + turn / 4)
                server.kill()
                ended = [work.result() for work in working]
            count += sum(len(sure) for sure, _ in ended)
            self.assertEqual(self.verified(server.data)["findings"], [], turn)
            server = self.serve(server.data)
            for sure, begun in ended:
                known.update(sure)
                self.settle(server, known, begun)
            bodies = {name(number): body(number, version) for number, version in known.items() if version != GONE}
            sizes = sorted((key, len(content)) for key, content in bodies.items())
            self.assertEqual(listed(server), sizes)
            client = SwiftClient(server)
            for key, content in bodies.items():
                self.assertEqual(client.ask("GET", f"/pantry/{key}"), (200, content), key)
        self.assertGreater(count, 200, "too few for a test")
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.verified(server.data, "--deep")["findings"], [])

    def settle(self, server, known, begun):
        """What was not answered has happened or not: the body of before, or the new one, whole."""
        client = SwiftClient(server)
        for number, version in begun.items():
            status, found = client.ask("GET", f"/pantry/{name(number)}")
            fits = [
                candidate
                for candidate in (version, known.get(number, GONE))
                if (status == 404 if candidate == GONE else (status, found) == (200, body(number, candidate)))
            ]
            self.assertTrue(fits, f"{name(number)} is neither as it was nor as it was to be: {status}")
            known[number] = fits[0]
