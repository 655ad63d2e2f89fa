"""Random clients at once over HTTP, on few keys, while objects move to the rack and back: the answers to each
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
    def contradiction(self, *calls):
        return linear.contradiction([linear.Call(str(at), *call) for at, call in enumerate(calls)])

    def test_the_checker_takes_what_makes_sense_and_nothing_else(self):
        put, seen, absent = linear.put, linear.seen, linear.put_if_absent
        self.assertIsNone(self.contradiction((0, 1, put(1)), (2, 3, seen(1))))
        self.assertIsNotNone(self.contradiction((0, 1, put(1)), (2, 3, seen(None))), "a stale read")
        self.assertIsNone(self.contradiction((0, 5, put(1)), (1, 2, seen(1)), (3, 4, seen(1))))
        self.assertIsNotNone(self.contradiction((0, 5, put(1)), (1, 2, seen(1)), (3, 4, seen(None))), "back in time")
        self.assertIsNone(self.contradiction((0, 5, put(1)), (0, 5, put(2)), (6, 7, seen(1))))
        self.assertIsNotNone(self.contradiction((0, 5, absent(1, True)), (0, 5, absent(2, True))), "two winners")
        self.assertIsNone(self.contradiction((0, 5, absent(1, True)), (0, 5, absent(2, False))))
        late = self.contradiction((0, 1, put(1), False), (2, 3, seen(None)), (4, 5, seen(1)))
        self.assertIsNone(late, "it came late")
        self.assertIsNotNone(self.contradiction((0, 1, put(1), False), (2, 3, seen(1)), (4, 5, seen(None))))


def completion(etags):
    """The body that completes an upload of these parts."""
    parts = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
                    for number, etag in enumerate(etags, 1))
    return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()


class Client:
    """Does random things, and writes down the answers."""

    def __init__(self, server, seed, values, calls):
        self.server, self.random, self.values, self.calls = server, random.Random(seed), values, calls
        self.client, self.seed = server.client(), seed
        self.known = {}

    def live(self):
        for number in range(CALLS):
            key = f"k{self.random.randrange(KEYS)}"
            kinds = [self.put, self.put_if_absent, self.put_if, self.upload, self.delete, self.get, self.list]
            draw = self.random.choices(kinds, [5, 3, 3, 3, 2, 8, 1])[0]
            draw(key, f"{self.seed}.{number}")
            time.sleep(self.random.random() * 0.02)

    def value(self, serial):
        body = noise(self.random.choice([1, 3_000, 60_000, 400_000, 1_500_000]), serial)
        etag = hashlib.md5(body).hexdigest()
        self.values[etag] = body
        return etag, body

    def note(self, key, what, begin, answer, step, unheard=None):
        """Writes a call down; one that failed may have happened or not, and one that was answered 503 did nothing."""
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

    def upload(self, key, serial):
        """Completes an upload twice at the same time. Whoever gets 200 found it at its key then, and
        whoever gets NoSuchUpload found something else."""
        _, body = self.value(serial)
        etag = hashlib.md5(hashlib.md5(body).digest()).hexdigest() + "-1"
        self.values[etag] = body
        path = f"/{BUCKET}/{key}"
        status, _, said = self.server.ask("POST", path, query="uploads=")
        if status != 503:
            assert status == 200, (status, said)
            query = f"uploadId={said.split(b'<UploadId>')[1].split(b'<')[0].decode()}"
            status, headers, said = self.server.ask("PUT", path, body=body, query=f"partNumber=1&{query}")
        if status == 503:
            return
        assert status == 200, (status, said)
        request = completion([headers["etag"]])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            begin = time.monotonic()
            runs = [pool.submit(self.complete, path, query, request) for _ in range(2)]
            results = [run.result() for run in runs]
        self.note_completions(key, etag, begin, results)

    def complete(self, path, query, request):
        status, _, said = self.server.ask("POST", path, body=request, query=query)
        assert status in (200, 404, 503), (status, said)
        assert status != 200 or b"<Error>" not in said, said
        return status, time.monotonic()

    def note_completions(self, key, etag, begin, results):
        calls, what = self.calls[key], f"complete {etag[:6]}"
        done = [end for status, end in results if status == 200]
        assert done or any(status == 503 for status, _ in results), results
        last = max(end for _, end in results)
        calls.append(linear.Call(what, begin, min(done, default=last), linear.put(etag), heard=bool(done)))
        for status, end in results:
            if status == 200:
                calls.append(linear.Call(f"{what} 200", begin, end, linear.seen(etag)))
                self.known[key] = etag
            elif status == 404:
                calls.append(linear.Call(f"{what} 404", begin, end, linear.seen_other(etag)))

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
                    "workshop.spool": "20 MB", "evacuation_fraction": 0.5}
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
        answered = sum(map(len, calls.values()))
        self.assertGreater(answered, CLIENTS * CALLS // 2, "most calls were answered")
        in_parts = sum(call.what.startswith("complete") for history in calls.values() for call in history)
        self.assertGreater(in_parts, CLIENTS, "some came in parts")
        for key, history in sorted(calls.items()):
            wrong = linear.contradiction(history)
            self.assertIsNone(wrong, f"seed {seed}, {key}: no order explains {wrong}")

    def test_of_many_conditional_puts_one_wins(self):
        server = self.rack("nas8")
        server.client().create_bucket(Bucket=BUCKET)
        barrier = threading.Barrier(CLIENTS)

        def race(number, path, condition):
            # No two bodies are the same, or an object would match again after it was replaced.
            body = f"{condition} {number}".encode()
            barrier.wait()
            return server.ask("PUT", path, headers=condition, body=body)[0]

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

    def test_an_upload_is_completed_once_or_aborted_whoever_asks_at_once(self):
        server = self.rack("nas8")
        client = server.client()
        client.create_bucket(Bucket=BUCKET)
        racers, ended = 6, {"complete": 0, "abort": 0}
        barrier = threading.Barrier(racers)

        def race(method, path, query, body):
            barrier.wait()
            status, _, said = server.ask(method, path, query=query, body=body)
            return status, said

        for turn in range(16):
            key, body = f"race{turn}", noise(70_000 + turn, turn)
            upload = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
            named = {"Bucket": BUCKET, "Key": key, "UploadId": upload}
            part = client.upload_part(**named, PartNumber=1, Body=body)
            aborts = turn % 2 * 2
            asked = [("DELETE", b"")] * aborts + [("POST", completion([part["ETag"]]))] * (racers - aborts)
            with concurrent.futures.ThreadPoolExecutor(racers) as pool:
                runs = [pool.submit(race, method, f"/{BUCKET}/{key}", f"uploadId={upload}", text)
                        for method, text in asked]
                results = [run.result() for run in runs]
            dropped = [status for status, _ in results[:aborts]]
            completed = [status for status, _ in results[aborts:]]
            self.assertTrue(set(dropped) <= {204, 404} and set(completed) <= {200, 404}, results)
            found = server.ask("GET", f"/{BUCKET}/{key}")
            if 200 in completed:
                # Whoever came later got the same answer, since the object is still there.
                self.assertEqual(set(completed), {200}, results)
                self.assertEqual((found[0], found[2] == body), (200, True))
                self.assertNotIn(204, dropped, "what became an object was not dropped")
                ended["complete"] += 1
            else:
                self.assertEqual((found[0], dropped.count(204) > 0), (404, True), results)
                ended["abort"] += 1
        self.assertGreaterEqual(ended["complete"], 8, "nobody aborted every other one")
        self.assertEqual(client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []), [])
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        report = self.verified(server.data, "--deep")
        self.assertEqual((report["findings"], report["leftovers"]["staged_files"]), ([], 0))
        self.assertEqual((report["catalog"]["objects"], report["catalog"]["uploads"]), (ended["complete"], 0))
