"""The workshop and its spool: waits, fullness, and clients that are slower than the drives."""

import time

import botocore.exceptions

from harness import BRISK, SystemTest, noise


class MaxWait(SystemTest):
    def test_a_client_of_short_waits_gets_retry_after_and_is_then_served(self):
        # True to life: a group of nas8 needs some 15 s; nobody here waits longer than one.
        slow = {**BRISK, "time_scale": 1, "max_wait": "1 s", "idle_timeout": "1 s"}
        server = self.rack("nas8", slow)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        body = noise(300_000, 1)
        client.put_object(Bucket="pantry", Key="k", Body=body)
        server.until_cold()
        started = time.monotonic()
        status, headers, answer = server.ask("GET", "/pantry/k")
        waited_s = time.monotonic() - started
        self.assertGreater(waited_s, 0.99, "it is not refused at once")
        self.assertLess(waited_s, 5, "nobody waits for nothing")
        self.assertEqual(status, 503, answer)
        self.assertIn(b"<Code>SlowDown</Code>", answer)
        wait_s = int(headers["retry-after"])
        self.assertIn(wait_s, range(5, 61))
        time.sleep(wait_s + 2)
        status, _, answer = server.ask("GET", "/pantry/k")
        while status == 503 and time.monotonic() - started < 90:
            time.sleep(1)
            status, _, answer = server.ask("GET", "/pantry/k")
        self.assertEqual(status, 200)
        self.assertTrue(answer == body)
        totals = server.totals()
        self.assertEqual(totals["group_wakes"][0], 1, "the recall went on, and once is enough")
        status, _, answer = server.ask("GET", "/pantry/k")
        self.assertTrue(status == 200 and answer == body, "from the spool")
        self.assertEqual(server.totals()["read_bytes"], totals["read_bytes"])

    def test_a_retrying_client_notices_nothing(self):
        server = self.rack("nas8", {**BRISK, "time_scale": 5, "max_wait": "1 s", "idle_timeout": "1 s"})
        client = server.client(retries={"max_attempts": 20, "mode": "standard"})
        client.create_bucket(Bucket="pantry")
        body = noise(300_000, 1)
        client.put_object(Bucket="pantry", Key="k", Body=body)
        server.until_cold()
        self.reads(client, "pantry", {"k": body})


class Full(SystemTest):
    def test_a_full_workshop_slows_down_and_loses_nothing(self):
        keep = {**BRISK, "workshop.capacity": "10 MB", "workshop.spool": "20 MB", "migrate.older_than": None,
                "workshop.regular": 1.0, "workshop.critical": 1.0, "migrate.min_age": "1 d"}
        data = self.made("pelican-mini", **keep)
        server = self.serve(data)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        kept = {}
        for i in range(40):
            body = noise(1_000_000, i)
            try:
                client.put_object(Bucket="pantry", Key=f"{i:02}", Body=body)
                kept[f"{i:02}"] = body
            except botocore.exceptions.ClientError as error:
                self.assertEqual(error.response["Error"]["Code"], "SlowDown")
                headers = error.response["ResponseMetadata"]["HTTPHeaders"]
                self.assertGreaterEqual(int(headers["retry-after"]), 1)
                break
        self.assertIn(len(kept), range(5, 11), "as much as there is room for")
        self.assertLessEqual(server.status()["workshop"]["staged_bytes"], 10_000_000)
        self.assertEqual(sorted(kept), [o["Key"] for o in client.list_objects_v2(Bucket="pantry")["Contents"]])
        self.reads(client, "pantry", kept)
        self.assertEqual(server.stop(), 0)

        self.configure(data, {**keep, "workshop.regular": 0.3, "workshop.critical": 0.8, "migrate.min_age": "0 s"})
        server = self.serve(data)
        client = server.client()
        server.until("it drains", lambda s: s["workshop"]["staged_bytes"] <= 3_000_000)
        for i in range(10):
            kept[f"more {i}"] = noise(1_000_000, 100 + i)
            self.put_retrying(client, f"more {i}", kept[f"more {i}"])
        self.reads(client, "pantry", kept)

    def put_retrying(self, client, key, body):
        for _ in range(60):
            try:
                return client.put_object(Bucket="pantry", Key=key, Body=body)
            except botocore.exceptions.ClientError as error:
                self.assertEqual(error.response["Error"]["Code"], "SlowDown")
                time.sleep(0.5)
        raise AssertionError("there is no room after 30 s")

    def test_an_object_larger_than_the_workshop_is_refused_at_once(self):
        server = self.rack("nas8", {**BRISK, "workshop.capacity": "2 MB"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        with self.assertRaises(botocore.exceptions.ClientError) as caught:
            client.put_object(Bucket="pantry", Key="k", Body=noise(4_000_000, 1))
        self.assertGreaterEqual(caught.exception.response["ResponseMetadata"]["HTTPStatusCode"], 400)
        self.assertEqual(server.status()["workshop"]["staged_bytes"], 0)


class SlowClients(SystemTest):
    def test_a_slow_client_does_not_keep_its_group_awake(self):
        server = self.rack("nas8")
        client = server.client()
        client.create_bucket(Bucket="pantry")
        body = noise(40_000_000, 1)
        client.put_object(Bucket="pantry", Key="k", Body=body)
        server.until_cold()
        response, connection = server.open("GET", "/pantry/k")
        self.assertEqual(response.status, 200)
        read = bytearray()
        asleep = False
        for _ in range(60):
            read += response.read(1024)
            drives = server.status()["drives"]
            asleep = drives["standby"] == 8
            if asleep:
                break
            time.sleep(1)
        self.assertTrue(asleep, "its group sleeps while it reads")
        self.assertLess(len(read), 1_000_000)
        read += response.read()
        connection.close()
        self.assertTrue(bytes(read) == body)

    def test_a_client_that_vanishes_leaves_nothing_awake(self):
        server = self.rack("nas8")
        client = server.filled({"k": noise(40_000_000, 1)})
        server.until_cold()
        for _ in range(5):
            response, connection = server.open("GET", "/pantry/k")
            response.read(1000)
            connection.sock.close()
        server.until_asleep()
        client.put_object(Bucket="pantry", Key="other", Body=b"x")
        self.reads(client, "pantry", {"other": b"x"})

    def test_many_readers_of_one_cold_object_cost_one_read(self):
        import concurrent.futures

        server = self.rack("nas8")
        client = server.client(max_pool_connections=20)
        client.create_bucket(Bucket="pantry")
        body = noise(5_000_000, 1)
        client.put_object(Bucket="pantry", Key="k", Body=body)
        server.until_cold()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            reads = [pool.submit(self.reads, client, "pantry", {"k": body}) for _ in range(16)]
            for read in reads:
                read.result(60)
        totals = server.totals()
        self.assertEqual(totals["group_wakes"][0], 1)
        self.assertLess(totals["read_bytes"], 6_000_000)
