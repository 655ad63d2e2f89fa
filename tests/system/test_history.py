"""Random clients at once over HTTP, on few keys, while objects move to the rack and back: what each of them was told
must make sense in some order, key by key. `LARDER_HISTORY_SEED` draws other clients."""

import collections
import concurrent.futures
import hashlib
import os
import random
import threading
import time
import unittest

import linear
from harness import BRISK, SystemTest, noise

BUCKET, KEYS, CLIENTS, CALLS = "pantry", 5, 8, 70


class Checker(unittest.TestCase):
    def told(self, *calls):
        return linear.contradiction([linear.Call(str(at), *call) for at, call in enumerate(calls)])

    def test_the_checker_takes_what_makes_sense_and_nothing_else(self):
        put, seen, absent = linear.put, linear.seen, linear.put_if_absent
        self.assertIsNone(self.told((0, 1, put(1)), (2, 3, seen(1))))
        self.assertIsNotNone(self.told((0, 1, put(1)), (2, 3, seen(None))), "a stale read")
        self.assertIsNone(self.told((0, 5, put(1)), (1, 2, seen(1)), (3, 4, seen(1))))
        self.assertIsNotNone(self.told((0, 5, put(1)), (1, 2, seen(1)), (3, 4, seen(None))), "back in time")
        self.assertIsNone(self.told((0, 5, put(1)), (0, 5, put(2)), (6, 7, seen(1))))
        self.assertIsNotNone(self.told((0, 5, absent(1, True)), (0, 5, absent(2, True))), "two winners")
        self.assertIsNone(self.told((0, 5, absent(1, True)), (0, 5, absent(2, False))))
        self.assertIsNone(self.told((0, 1, put(1), False), (2, 3, seen(None)), (4, 5, seen(1))), "it came late")
        self.assertIsNotNone(self.told((0, 1, put(1), False), (2, 3, seen(1)), (4, 5, seen(None))))


class Client:
    """Does random things, and writes down what it was told."""

    def __init__(self, server, seed, values, calls):
        self.server, self.random, self.values, self.calls = server, random.Random(seed), values, calls
        self.client, self.seed = server.client(), seed
        self.known = {}

    def live(self):
        for number in range(CALLS):
            key = f"k{self.random.randrange(KEYS)}"
            draw = self.random.choices([self.put, self.put_if_absent, self.put_if, self.delete, self.get, self.list],
                                       [5, 3, 3, 2, 8, 1])[0]
            draw(key, f"{self.seed}.{number}")
            time.sleep(self.random.random() * 0.02)

    def value(self, serial):
        body = noise(self.random.choice([1, 3_000, 60_000, 400_000, 1_500_000]), serial)
        etag = hashlib.md5(body).hexdigest()
        self.values[etag] = body
        return etag, body

    def note(self, key, what, begin, answer, step, unheard=None):
        """Writes a call down; one that failed may have happened or not, and one that was told to wait did nothing."""
        status, said = answer
        if b"<Code>SlowDown</Code>" in said or (status >= 500 and unheard is None):
            return
        if status >= 500:
            self.calls[key].append(linear.Call(what, begin, time.monotonic(), unheard, heard=False))
        else:
            self.calls[key].append(linear.Call(f"{what} {status}", begin, time.monotonic(), step))

    def put(self, key, serial, headers=None, expected=None):
        etag, body = self.value(serial)
        begin = time.monotonic()
        status, _, said = self.server.ask("PUT", f"/{BUCKET}/{key}", headers=headers, body=body)
        assert status in (200, 404, 409, 412, 503), (status, said)
        done, plain = status == 200, linear.put(etag)
        if headers is None:
            step = plain
        elif expected is None:
            step = linear.put_if_absent(etag, done)
        else:
            step = linear.put_if(expected, etag, done)
        if status != 409:
            self.note(key, f"put {etag[:6]} if {expected or headers}", begin, (status, said), step, plain)
        if done:
            self.known[key] = etag

    def put_if_absent(self, key, serial):
        self.put(key, serial, {"If-None-Match": "*"})

    def put_if(self, key, serial):
        if key in self.known:
            self.put(key, serial, {"If-Match": f'"{self.known[key]}"'}, self.known[key])

    def delete(self, key, _):
        begin = time.monotonic()
        status, _, said = self.server.ask("DELETE", f"/{BUCKET}/{key}")
        assert status in (204, 503), (status, said)
        self.note(key, "delete", begin, (status, said), linear.put(None), linear.put(None))

    def get(self, key, _):
        begin = time.monotonic()
        status, headers, body = self.server.ask("GET", f"/{BUCKET}/{key}")
        assert status in (200, 404, 503), (status, body[:300])
        etag = None
        if status == 200:
            etag = headers["etag"].strip('"')
            assert body == self.values[etag], f"{key}: not the whole of one version"
            self.known[key] = etag
        self.note(key, f"get {etag and etag[:6]}", begin, (status, body[:2000]), linear.seen(etag))

    def list(self, _, __):
        begin = time.monotonic()
        listed = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        etags = {entry["Key"]: entry["ETag"].strip('"') for entry in listed}
        for number in range(KEYS):
            etag = etags.get(f"k{number}")
            self.note(f"k{number}", f"list {etag and etag[:6]}", begin, (200, b""), linear.seen(etag))


class Histories(SystemTest):
    def test_what_clients_are_told_at_once_makes_sense_in_some_order(self):
        settings = {**BRISK, "time_scale": 300, "migrate.scan_interval": "50 ms", "migrate.pack_size": "1 MB",
                    "workshop.spool": "20 MB", "rescue_fraction": 0.5}
        server = self.rack("nas8", settings)
        server.client().create_bucket(Bucket=BUCKET)
        seed = os.environ.get("LARDER_HISTORY_SEED", "1")
        values, calls = {}, collections.defaultdict(list)
        clients = [Client(server, f"{seed}/{number}", values, calls) for number in range(CLIENTS)]
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(client.live) for client in clients]:
                done.result()
        self.assertGreater(server.totals()["migrated_bytes"], 0, "objects moved meanwhile")
        self.assertGreater(server.totals()["read_bytes"], 0, "and were recalled")
        server.until_cold()
        last = Client(server, "last", values, calls)
        for number in range(KEYS):
            last.get(f"k{number}", None)
        told = sum(map(len, calls.values()))
        self.assertGreater(told, CLIENTS * CALLS // 2, "most calls were answered")
        for key, history in sorted(calls.items()):
            wrong = linear.contradiction(history)
            self.assertIsNone(wrong, f"seed {seed}, {key}: no order explains {wrong}")

    def test_of_many_conditional_puts_one_wins(self):
        server = self.rack("nas8")
        server.client().create_bucket(Bucket=BUCKET)
        barrier = threading.Barrier(CLIENTS)

        def race(number, path, condition):
            barrier.wait()
            return server.ask("PUT", path, headers=condition, body=f"{number}".encode())[0]

        for turn in range(10):
            path = f"/{BUCKET}/race{turn}"
            conditions = [{"If-None-Match": "*"}]
            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                for condition in conditions:
                    runs = [pool.submit(race, number, path, condition) for number in range(CLIENTS)]
                    statuses = [run.result() for run in runs]
                    self.assertEqual(statuses.count(200), 1, statuses)
                    self.assertTrue(set(statuses) <= {200, 409, 412}, statuses)
                    if len(conditions) == 1:
                        conditions.append({"If-Match": server.ask("HEAD", path)[1]["etag"]})
