"""Objects of all kinds go in, turn cold, and come back as they were."""

import datetime

from harness import BRISK, STAYING, SystemTest, noise

ODD_KEYS = [
    "with space/and more space",
    "grüße/日本語/🥫",
    "plus+and&amp;%41?#",
    "./dots/../kept",
    "//double//slash/",
    "trailing/",
    "quote'\"quote",
    "a" * 1024,
]


class Objects(SystemTest):
    def test_every_kind_of_object_comes_back_cold(self):
        for rack in ("pelican-mini", "nas8"):
            with self.subTest(rack=rack):
                self.kinds(rack)

    def kinds(self, rack):
        data = self.made(rack, name=rack, **STAYING)
        server = self.serve(data)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = {key: noise(100 + 37 * i, i) for i, key in enumerate(ODD_KEYS)}
        objects.update({f"small/{i:03}": noise(i * 113, i) for i in range(200)})
        # Longer than a pack, so a blob of its own; longer than several stripes.
        objects.update({"empty": b"", "one byte": b"x", "large": noise(23_456_789, 1), "stripe": noise(4 * 65536, 2)})
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        self.reads(client, "pantry", {key: objects[key] for key in ("empty", "large", ODD_KEYS[1])})
        # However long the PUTs took: all that is there becomes due at once, and the small ones share one pack.
        self.assertEqual(server.stop(), 0)
        self.configure(data, {**BRISK, "migrate.pack_size": "4 MiB", "migrate.linger": "1 s"})
        server = self.serve(data)
        client = server.client()
        server.until_cold()
        self.reads(client, "pantry", objects)
        place = server.explain("pantry", "large")["place"]
        self.assertEqual((place["where"], place["members"]), ("rack", 1))
        self.assertGreater(server.explain("pantry", "small/003")["place"]["members"], 100)
        self.ranges(client, objects["large"])

    def ranges(self, client, whole):
        end = len(whole)
        for first, last in [(0, 0), (0, end - 1), (65535, 65536), (end - 1, end - 1), (1_000_001, 9_999_999)]:
            answer = client.get_object(Bucket="pantry", Key="large", Range=f"bytes={first}-{last}")
            self.assertEqual(answer["ContentRange"], f"bytes {first}-{last}/{end}")
            self.assertTrue(answer["Body"].read() == whole[first : last + 1], f"{first}-{last}")
        open_end = client.get_object(Bucket="pantry", Key="large", Range=f"bytes={end - 5}-")["Body"].read()
        suffix = client.get_object(Bucket="pantry", Key="large", Range="bytes=-5")["Body"].read()
        self.assertEqual((open_end, suffix), (whole[-5:], whole[-5:]))
        self.fails(416, "InvalidRange", client.get_object, Bucket="pantry", Key="large", Range=f"bytes={end}-")

    def test_conditions_hold_for_hot_and_cold_objects(self):
        server = self.rack()
        client = server.client()
        client.create_bucket(Bucket="pantry")
        etag = client.put_object(Bucket="pantry", Key="k", Body=b"first")["ETag"]
        later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        for _ in ("hot", "cold"):
            self.assertEqual(client.get_object(Bucket="pantry", Key="k", IfMatch=etag)["Body"].read(), b"first")
            self.fails(412, "PreconditionFailed", client.get_object, Bucket="pantry", Key="k", IfMatch='"other"')
            self.fails(304, "304", client.get_object, Bucket="pantry", Key="k", IfNoneMatch=etag)
            self.fails(304, "304", client.head_object, Bucket="pantry", Key="k", IfModifiedSince=later)
            again = {"Bucket": "pantry", "Key": "k", "Body": b"no"}
            self.fails(412, "PreconditionFailed", client.put_object, **again, IfNoneMatch="*")
            self.fails(412, "PreconditionFailed", client.put_object, **again, IfMatch='"other"')
            server.until_cold()
        client.put_object(Bucket="pantry", Key="k", Body=b"second", IfMatch=etag)
        client.put_object(Bucket="pantry", Key="new", Body=b"third", IfNoneMatch="*")
        self.reads(client, "pantry", {"k": b"second", "new": b"third"})

    def test_metadata_survives_the_way_to_the_rack(self):
        server = self.rack()
        client = server.client()
        client.create_bucket(Bucket="pantry")
        metadata = {"cook": "anna", "year": "1871"}
        kept = {"ContentType": "text/x-recipe", "CacheControl": "no-cache", "Metadata": metadata}
        client.put_object(Bucket="pantry", Key="k", Body=b"soup", **kept)
        hot = client.head_object(Bucket="pantry", Key="k")
        server.until_cold()
        cold = client.head_object(Bucket="pantry", Key="k")
        for name in [*kept, "ETag", "LastModified", "ContentLength"]:
            self.assertEqual(hot[name], cold[name], name)
        self.assertEqual({name: cold[name] for name in kept}, kept)

    def test_lists_and_heads_start_no_drive(self):
        server = self.rack()
        client = server.client()
        client.create_bucket(Bucket="pantry")
        keys = [f"{shelf}/{i:03}" for shelf in "abc" for i in range(120)]
        for key in keys:
            client.put_object(Bucket="pantry", Key=key, Body=key.encode())
        before = server.until_cold()["totals"]
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="pantry", PaginationConfig={"PageSize": 50})
        listed = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        self.assertEqual(listed, keys)
        shelves = client.list_objects_v2(Bucket="pantry", Delimiter="/")
        self.assertEqual([prefix["Prefix"] for prefix in shelves["CommonPrefixes"]], ["a/", "b/", "c/"])
        for key in keys[::40]:
            self.assertEqual(client.head_object(Bucket="pantry", Key=key)["ContentLength"], len(key))
        for _ in range(3):
            server.drives()
            server.explain("pantry", keys[0])
        after = server.status()
        self.assertEqual(after["totals"]["drive_starts"], before["drive_starts"])
        self.assertEqual(after["drives"]["standby"], 96)

    def test_only_recalled_bytes_are_read_of_a_large_cold_object(self):
        server = self.rack()
        client = server.client()
        client.create_bucket(Bucket="pantry")
        body = noise(30_000_000, 7)
        client.put_object(Bucket="pantry", Key="k", Body=body)
        server.until_cold()
        part = client.get_object(Bucket="pantry", Key="k", Range="bytes=20000000-20000999")["Body"].read()
        self.assertTrue(part == body[20000000:20001000])
        self.assertLess(server.totals()["read_bytes"], 5_000_000)


class Reclaim(SystemTest):
    def test_space_of_deleted_and_overwritten_objects_comes_back_at_the_next_wake(self):
        server = self.rack("nas8", {**BRISK, "migrate.pack_size": "1 MB", "placement.batch": "1 GB"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        for key in "abc":
            client.put_object(Bucket="pantry", Key=key, Body=noise(2_000_000, key))
        server.until_cold()
        group = server.explain("pantry", "c")["place"]["group"]
        dead = [key for key in "ab" if server.explain("pantry", key)["place"]["group"] == group]
        self.assertEqual(dead, ["a", "b"], "the batch rule puts what comes together into one group")
        stacks = len(server.stacks())
        before = server.totals()
        client.delete_object(Bucket="pantry", Key="a")
        client.put_object(Bucket="pantry", Key="b", Body=b"short")
        waiting = server.totals()
        self.assertGreaterEqual(waiting["waiting_reclaim_bytes"], 4_000_000)
        self.assertEqual(waiting["group_wakes"][0], before["group_wakes"][0], "a delete wakes nobody")
        self.fails(404, "NoSuchKey", client.get_object, Bucket="pantry", Key="a")
        self.reads(client, "pantry", {"c": noise(2_000_000, "c")})
        after = server.until("the bytes are given back", lambda s: s["totals"]["waiting_reclaim_bytes"] == 0)
        self.assertGreaterEqual(after["totals"]["reclaimed_bytes"], 4_000_000)
        server.until_cold()
        self.assertLessEqual(len(server.stacks()), stacks - 6 + 3)
        self.reads(client, "pantry", {"b": b"short", "c": noise(2_000_000, "c")})

    def test_the_living_rest_of_a_mostly_dead_pack_is_evacuated(self):
        server = self.rack("nas8", {**BRISK, "migrate.linger": "2 s", "placement.batch": "1 GB"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = {f"{i:02}": noise(300_000, i) for i in range(20)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        server.until_cold()
        client.put_object(Bucket="pantry", Key="neighbour", Body=b"n")
        server.until_cold()
        for key in list(objects)[:15]:
            client.delete_object(Bucket="pantry", Key=key)
            del objects[key]
        # A reader of the same blob would hold it; one of another blob in its group wakes it just as well.
        self.reads(client, "pantry", {"neighbour": b"n"})
        migrated = 21 * 300_000
        server.until("the living are in the rack again", lambda s: s["totals"]["migrated_bytes"] > migrated)
        waiting = server.until_cold()["totals"]["waiting_reclaim_bytes"]
        self.assertIn(waiting, (0, 20 * 300_000), "the old blob is dead as a whole, if it is still there")
        self.reads(client, "pantry", objects)
        server.until("the old blob is gone", lambda s: s["totals"]["waiting_reclaim_bytes"] == 0)
        server.until_cold()
        self.reads(client, "pantry", objects)

    def test_a_reader_of_an_old_version_finishes(self):
        server = self.rack("nas8")
        client = server.client()
        client.create_bucket(Bucket="pantry")
        old, new = noise(40_000_000, 1), noise(1000, 2)
        for place in ("workshop", "rack"):
            client.put_object(Bucket="pantry", Key=place, Body=old)
            if place == "rack":
                server.until_cold()
            with self.subTest(place=place):
                reader = client.get_object(Bucket="pantry", Key=place)["Body"]
                head = reader.read(100_000)
                client.put_object(Bucket="pantry", Key=place, Body=new)
                self.reads(client, "pantry", {place: new})
                if place == "workshop":
                    server.until_migrated()
                else:
                    server.until("the new version is in the rack", lambda s: s["workshop"]["staged_count"] == 0)
                self.assertTrue(head + reader.read() == old, "the old version, whole")

    def test_a_bucket_goes_when_its_last_object_has_gone(self):
        server = self.rack(settings=STAYING)
        client = server.filled({"k": b"x"})
        self.fails(409, "BucketNotEmpty", client.delete_bucket, Bucket="pantry")
        client.delete_objects(Bucket="pantry", Delete={"Objects": [{"Key": "k"}, {"Key": "never was"}]})
        client.delete_bucket(Bucket="pantry")
        self.assertEqual(client.list_buckets()["Buckets"], [])
        self.fails(404, "NoSuchBucket", client.put_object, Bucket="pantry", Key="k", Body=b"x")
