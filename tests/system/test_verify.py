"""`larder verify`: what agrees is clean, every kind of damage is found and named, and nothing is changed by looking."""

import glob
import os
import shutil
import sqlite3

from harness import BRISK, STAYING, SystemTest, larder, noise


class Verify(SystemTest):
    def kinds(self, data, *words):
        return sorted(finding["kind"] for finding in self.verified(data, *words)["findings"])

    def filled(self, stored=3):
        """The data directory of a server that was killed, with objects in the rack and one in the workshop."""
        server = self.rack("pelican-mini", {**BRISK, "migrate.pack_size": "500 kB"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        for i in range(stored):
            client.put_object(Bucket="pantry", Key=f"cold{i}", Body=noise(600_000, i))
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, STAYING)
        server = self.serve(server.data)
        server.client().put_object(Bucket="pantry", Key="hot", Body=noise(1_500_000, "hot"))
        server.kill()
        return server

    def looked_at(self, data):
        """Everything below `data` but the lock and SQLite's shared memory, which hold nothing durable."""
        found = {}
        for path in glob.glob(os.path.join(data, "**"), recursive=True):
            if os.path.isfile(path) and os.path.basename(path) not in ("lock", "catalog.db-shm"):
                with open(path, "rb") as file:
                    found[path] = (os.stat(path).st_mtime_ns, file.read())
        return found

    def test_what_agrees_is_clean_and_looking_changes_nothing(self):
        server = self.filled()
        before = self.looked_at(server.data)
        for words in ([], ["--deep"], ["--no-drives"]):
            report = self.verified(server.data, *words)
            self.assertEqual((report["clean"], report["findings"]), (True, []))
            self.assertEqual((report["catalog"]["staged"], report["catalog"]["stored"]), (1, 3))
            rack = report["rack"]
            if words != ["--no-drives"]:
                self.assertEqual(rack["stacks"], len(server.stacks()))
                self.assertEqual(rack["stack_bytes"], rack["accounted_bytes"])
                self.assertEqual(rack["stack_bytes"], sum(map(os.path.getsize, server.stacks())))
            deep = words == ["--deep"]
            self.assertEqual(rack["checked_bytes"] > 1_800_000, deep)
            self.assertEqual(report["workshop"]["checked_bytes"], 1_500_000 if deep else 0)
        self.assertTrue(self.looked_at(server.data) == before, "looking changes nothing")

    def test_what_only_the_log_has_is_seen_and_stays_there(self):
        server = self.rack("pelican-mini", {**STAYING, "intake.below": "1 MiB"})
        small = {f"small{i}": noise(1_000 * i, i) for i in range(40)}
        client = server.filled({**small, "large": noise(1_500_000, "large")})
        client.put_object(Bucket="pantry", Key="small7", Body=noise(500, "again"))
        client.delete_object(Bucket="pantry", Key="small8")
        server.kill()
        before = self.looked_at(server.data)
        for words in ([], ["--deep"]):
            report = self.verified(server.data, *words)
            self.assertEqual((report["clean"], report["findings"]), (True, []))
            self.assertEqual(report["catalog"]["staged"], 40)
        self.assertTrue(self.looked_at(server.data) == before, "looking changes nothing")
        # An offline command starts from what the log has as well.
        failed = larder("drive", "fail", "3", "--data", server.data)
        self.assertEqual(failed.returncode, 0, failed.stderr)
        self.assertEqual(self.verified(server.data)["catalog"]["staged"], 40)
        server = self.serve(server.data)
        del small["small8"]
        self.reads(server.client(), "pantry", {**small, "small7": noise(500, "again")})
        self.assertEqual(server.stop(), 0)
        # Closed in order, it needs its log no more, but for the bytes of small objects.
        report = self.verified(server.data, "--deep")
        self.assertEqual((report["clean"], report["catalog"]["staged"]), (True, 40))
        for name in os.listdir(os.path.join(server.data, "workshop", "intake")):
            if name.endswith((".log", ".shelf")):
                os.remove(os.path.join(server.data, "workshop", "intake", name))
        self.assertEqual(set(self.kinds(server.data)), {"staged-damaged"})

    def test_a_rack_that_never_held_anything_is_clean(self):
        data = self.made("nas8", **BRISK)
        self.assertTrue(self.verified(data)["clean"])
        server = self.serve(data)
        self.assertEqual(server.stop(), 0)
        self.assertTrue(self.verified(data, "--deep")["clean"])

    def test_a_directory_in_use_by_who_does_not_answer_or_none_at_all_is_exit_code_2(self):
        server = self.rack("nas8")
        os.remove(os.path.join(server.data, "admin.sock"))
        output = larder("verify", "--data", server.data)
        self.assertEqual(output.returncode, 2)
        self.assertIn("stop that server first", output.stderr)
        output = larder("verify", "--data", os.path.join(self.root, "nowhere"))
        self.assertEqual((output.returncode, output.stdout), (2, ""))

    def test_damage_to_stacks_is_found_and_told_by_how_bad_it_is(self):
        server = self.filled()
        data, stacks = server.data, server.stacks()
        blobs = sorted({os.path.basename(path).split(".")[0] for path in stacks})
        of = [[path for path in stacks if os.path.basename(path).startswith(blob)] for blob in blobs]
        os.remove(of[0][0])
        report = self.verified(data)
        self.assertEqual([finding["kind"] for finding in report["findings"]], ["stack-bad"])
        number, nonce = blobs[0].split("-")
        self.assertEqual(report["findings"][0]["blob"], f"b{int(number, 16)}-{nonce}")
        self.assertIn("missing", report["findings"][0]["what"])
        self.assertIn("can still be read", report["findings"][0]["mend"])

        with open(of[1][1], "r+b") as file:
            file.seek(20_000)
            file.write(b"rot")
        self.assertEqual(self.kinds(data), ["stack-bad"], "the quick form does not read fragments")
        self.assertEqual(self.kinds(data, "--deep"), ["stack-bad", "stack-bad"])

        for path in of[2][:3]:
            os.truncate(path, os.path.getsize(path) - 4096)
        report = self.verified(data)
        lost = [finding for finding in report["findings"] if finding["kind"] == "blob-lost"]
        self.assertEqual(len(lost), 1)
        self.assertIn("s3://pantry/cold", lost[0]["what"])

    def test_space_that_nobody_knows_of_is_found(self):
        server = self.filled(1)
        stack = server.stacks()[0]
        shutil.copy(stack, os.path.join(os.path.dirname(stack), "00000000000ffff0-00000000000ffff0.000.stack"))
        with open(os.path.join(os.path.dirname(stack), "letter"), "w", encoding="ascii") as file:
            file.write("dear")
        other = next(path for path in server.stacks() if os.path.dirname(path) != os.path.dirname(stack))
        shutil.copy(stack, os.path.join(os.path.dirname(other), os.path.basename(stack)))
        report = self.verified(server.data)
        self.assertEqual(sorted(found["kind"] for found in report["findings"]), ["stranger", "unknown", "unknown"])
        for found in report["findings"]:
            advice = "move it away" if found["kind"] == "stranger" else "keep it: it may belong to a newer catalog"
            self.assertIn(advice, found["mend"])
        # Nobody knows a file that says that it is another's, and nobody takes it away.
        staged = os.path.join(server.data, "workshop", "staged")
        [name] = [name for name in os.listdir(staged) if name.startswith("s-")]
        shutil.copy(os.path.join(staged, name), os.path.join(staged, f"s-{int(name[2:], 16) + 1:016x}"))
        shutil.copy(os.path.join(staged, name), os.path.join(staged, "s-00000000000ffff0"))
        self.assertEqual(self.kinds(server.data, "--no-drives"), ["unknown", "unknown"])
        # What was never finished, as a crash leaves it, is nothing wrong.
        with open(os.path.join(staged, "s-00000000000ffff1"), "wb") as file:
            file.write(bytes(100_000))
        self.assertEqual(self.verified(server.data, "--no-drives")["leftovers"]["staged_files"], 1)

    def test_damage_to_staged_files_names_the_object(self):
        server = self.filled(1)
        [path] = glob.glob(os.path.join(server.data, "workshop", "staged", "s-*"))
        with open(path, "r+b") as file:
            file.seek(1_200_000)
            file.write(b"rot")
        self.assertEqual(self.kinds(server.data), [])
        report = self.verified(server.data, "--deep")
        self.assertEqual([finding["kind"] for finding in report["findings"]], ["staged-damaged"])
        self.assertEqual(report["findings"][0]["object"], "s3://pantry/hot")
        os.truncate(path, 1_000_000)
        self.assertEqual(self.kinds(server.data), ["staged-damaged"])
        os.remove(path)
        self.assertEqual(self.kinds(server.data), ["staged-missing"])

    def test_uploads_in_parts_agree_at_every_stage(self):
        server = self.rack("nas8", BRISK)
        client, parts = server.client(), [noise(5 << 20, 1), noise(70_000, 2)]
        client.create_bucket(Bucket="pantry")

        def begin(key):
            upload = client.create_multipart_upload(Bucket="pantry", Key=key)
            named = {"Bucket": "pantry", "Key": key, "UploadId": upload["UploadId"]}
            client.upload_part(**named, PartNumber=2, Body=b"replaced")
            etags = [client.upload_part(**named, PartNumber=at, Body=body)["ETag"] for at, body in enumerate(parts, 1)]
            return named, {"Parts": [{"PartNumber": at, "ETag": etag} for at, etag in enumerate(etags, 1)]}

        def complete(named, listed):
            client.complete_multipart_upload(**named, MultipartUpload=listed)

        def agrees(uploads, objects):
            report = self.verified(server.data, "--deep")
            self.assertEqual(report["findings"], [])
            self.assertEqual((report["catalog"]["uploads"], report["catalog"]["objects"]), (uploads, objects))
            return report

        kept, gone, done = begin("kept"), begin("gone"), [begin(f"done{i}") for i in range(3)]
        client.abort_multipart_upload(**gone[0])
        for begun in done:
            complete(*begun)
        client.delete_object(Bucket="pantry", Key="done1")
        client.put_object(Bucket="pantry", Key="done2", Body=b"over")
        server.kill()
        agrees(1, 2)
        server = self.serve(server.data)
        client = server.client()
        server.until("all but the open upload is in the rack", lambda s: s["totals"]["migrated_bytes"] >= 5 << 20)
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        report = agrees(1, 2)
        # What was complete when the server was killed, and unknown, goes at the start after the next.
        self.assertEqual(report["catalog"]["staged"], 0)
        self.assertEqual(report["catalog"]["upload_bytes"], sum(map(len, parts)))
        server = self.serve(server.data)
        client = server.client()
        complete(*kept)
        server.until_cold()
        self.reads(client, "pantry", {"kept": b"".join(parts), "done0": b"".join(parts), "done2": b"over"})
        self.assertEqual(server.stop(), 0)
        report = agrees(0, 3)
        self.assertEqual((report["workshop"]["files"], report["leftovers"]["staged_files"]), (0, 0))

    def test_a_part_of_an_open_upload_that_is_lost_is_found(self):
        server = self.rack("nas8", STAYING)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        upload = client.create_multipart_upload(Bucket="pantry", Key="k")["UploadId"]
        client.upload_part(Bucket="pantry", Key="k", UploadId=upload, PartNumber=1, Body=noise(70_000, 1))
        self.assertEqual(server.stop(), 0)
        [path] = glob.glob(os.path.join(server.data, "workshop", "staged", "s-*"))
        os.remove(path)
        self.assertEqual(self.kinds(server.data), ["staged-missing"])

    def test_a_drive_that_is_gone_is_told_apart_from_lost_data(self):
        server = self.filled(1)
        drives = sorted({os.path.dirname(path) for path in server.stacks()})
        for drive in drives[:3]:
            os.rename(drive, drive + ".away")
        report = self.verified(server.data)
        kinds = sorted(finding["kind"] for finding in report["findings"])
        self.assertEqual(kinds, ["blob-unavailable", *["drive-unusable"] * 3, "object-unavailable", *["stack-bad"] * 3])
        self.assertEqual((report["rack"]["lost_objects"], report["rack"]["unavailable_objects"]), (0, 1))
        self.assertTrue(all("put the drive back" in finding["mend"] for finding in report["findings"]))
        for drive in drives[:3]:
            os.rename(drive + ".away", drive)
        self.assertTrue(self.verified(server.data, "--deep")["clean"])

    def test_records_that_contradict_each_other_are_found(self):
        server = self.filled(1)
        self.assertEqual(self.serve(server.data).stop(), 0)
        path = os.path.join(server.data, "catalog.db")
        with sqlite3.connect(path) as database:
            rows = database.execute("select k, v from kv").fetchall()
        database.close()

        def without(tag, finds):
            with sqlite3.connect(path) as database:
                database.execute("delete from kv where substr(k, 1, 1) = ?", (tag,))
            database.close()
            self.assertIn(finds, self.kinds(server.data), tag)
            with sqlite3.connect(path) as database:
                database.execute("delete from kv")
                database.executemany("insert into kv values (?, ?)", rows)
            database.close()

        for tag in b"B O V S T L D N".split():
            without(tag, "catalog-record")
        without(b"L", "unknown")
        self.assertEqual(self.kinds(server.data), [])
        with sqlite3.connect(path) as database:
            database.execute("update kv set v = x'01ff' where substr(k, 1, 1) = x'52'")
            database.execute("insert into kv values (x'7a', x'01')")
        database.close()
        self.assertIn("catalog-record", self.kinds(server.data))

    def test_a_record_that_is_missing_without_a_contradiction_is_found_and_nothing_is_repaired(self):
        server = self.filled(2)
        self.assertEqual(self.serve(server.data).stop(), 0)
        path = os.path.join(server.data, "catalog.db")
        self.assertEqual(self.kinds(server.data), [])
        # The time anchor: no other record speaks of it, so that only the digest can show it.
        with sqlite3.connect(path) as database:
            rows = database.execute("select k, v from kv").fetchall()
            [(key, value)] = [row for row in rows if b"clock-anchor" in row[0]]
            database.execute("delete from kv where k = ?", (key,))
        database.close()
        before = self.looked_at(server.data)
        for words in ([], ["--deep"], ["--no-drives"]):
            report = self.verified(server.data, *words)
            [found] = report["findings"]
            self.assertEqual((report["clean"], found["kind"]), (False, "catalog-file"))
            self.assertIn(f"1 of {len(rows)} records are missing", found["what"])
            self.assertIn("put the newest catalog back", found["mend"])
        self.assertTrue(self.looked_at(server.data) == before, "looking repairs nothing")
        with sqlite3.connect(path) as database:
            database.execute("insert into kv values (?, ?)", (key, value))
        database.close()
        self.assertTrue(self.verified(server.data)["clean"])

    def test_a_corrupt_page_of_the_catalog_is_found(self):
        server = self.filled(1)
        self.assertEqual(self.serve(server.data).stop(), 0)
        path = os.path.join(server.data, "catalog.db")
        with open(path, "r+b") as file:
            file.seek(4096 + 8)
            file.write(b"\xff" * 600)
        self.assertIn("catalog-file", self.kinds(server.data))
