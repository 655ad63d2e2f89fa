"""A catalog that is lost is made again: exactly from its journal, or the copies of it on drives; as far as they know
from a copy and the packs."""

import json
import os
import shutil
import unittest

from harness import BRISK, STAYING, SystemTest, larder, noise, refusal

SETTINGS = {**BRISK, "migrate.pack_size": "300 kB"}
# Each change goes to drives as soon as it is noticed.
COPYING = {**SETTINGS, "journal.ride_after": "0 s", "journal.wake_after": "0 s"}


def lose(data, *names):
    """Removes the catalog of a data directory, and what else is named."""
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm", *names):
        path = os.path.join(data, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)


class Recover(SystemTest):
    def used(self, server, prefix, count=12):
        """Puts objects small and large, in parts, with tags; deletes some; the ones that live."""
        client = server.client()
        objects = {f"{prefix}/{n:02}": noise(3_000 + 40_000 * (n % 3), n) for n in range(count)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body, Metadata={"shelf": key[-1]},
                              Tagging=f"n={key[-2:]}")
        for n in (1, 4):
            client.delete_object(Bucket="pantry", Key=f"{prefix}/{n:02}")
            del objects[f"{prefix}/{n:02}"]
        return objects

    def in_parts(self, server, key):
        client = server.client()
        upload = client.create_multipart_upload(Bucket="pantry", Key=key)["UploadId"]
        bodies = [noise(5 << 20, 81), noise(70_000, 82)]
        parts = []
        for number, body in enumerate(bodies, 1):
            done = client.upload_part(Bucket="pantry", Key=key, UploadId=upload, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": done["ETag"]})
        client.complete_multipart_upload(Bucket="pantry", Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
        return b"".join(bodies)

    def journal_leads_on(self, server):
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])

    def on_drives(self, server):
        """Waits until the catalog, as it is, is on drives."""
        server.until("the changes are on drives", lambda status: status["journal"]["on_drives"])
        server.until_asleep()

    def copies(self, data):
        """The stacks of the blobs that have copies of the catalog, by the number of the blob."""
        found = {}
        for drive in os.listdir(os.path.join(data, "drives")):
            for name in os.listdir(os.path.join(data, "drives", drive)):
                number, _, rest = name.partition("-")
                if rest.startswith("4ca7") and name.endswith(".stack"):
                    found.setdefault(int(number, 16), []).append(os.path.join(data, "drives", drive, name))
        return found

    def recovered(self, data, *words):
        output = larder("recover", "--data", data, "--json", *words)
        self.assertEqual(output.returncode, 0, output.stderr)
        return json.loads(output.stdout)

    def is_whole(self, data):
        found = self.verified(data, "--deep")
        self.assertTrue(found["clean"], found["findings"])

    def keys(self, client, bucket="pantry"):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def test_with_the_workshop_nothing_is_lost_at_all(self):
        server = self.rack("nas8", SETTINGS)
        self.journal_leads_on(server)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        client.create_bucket(Bucket="empty")
        objects = self.used(server, "cold")
        objects["large"] = self.in_parts(server, "large")
        server.until_cold()
        user = larder("user", "add", "ann", "--data", server.data).stdout
        keys = dict(line[7:].split("=", 1) for line in user.splitlines() if line.startswith("export "))
        server.kill()
        server = self.serve(server.data)
        objects |= self.used(server, "fresh")
        client = server.client()
        client.put_object_tagging(Bucket="pantry", Key="cold/02", Tagging={"TagSet": [{"Key": "n", "Value": "new"}]})
        client.delete_object(Bucket="pantry", Key="cold/03")
        del objects["cold/03"]
        listed = self.keys(client)
        server.kill()
        said = refusal(larder("recover", "--data", server.data))
        self.assertIn("add --replace", said)
        lose(server.data)
        report = self.recovered(server.data)
        self.assertEqual((report["behind_log"], report["adopted"], report["base"]["damaged"]), (None, 0, 0))
        self.is_whole(server.data)
        server = self.serve(server.data)
        self.assertEqual(server.status()["warnings"], [])
        client = server.client()
        self.assertEqual(self.keys(client), listed)
        self.assertEqual(sorted(listed), sorted(objects))
        self.reads(client, "pantry", objects)
        tags = client.get_object_tagging(Bucket="pantry", Key="cold/02")["TagSet"]
        self.assertEqual(tags, [{"Key": "n", "Value": "new"}])
        self.assertEqual(client.head_object(Bucket="pantry", Key="large", PartNumber=2)["ContentLength"], 70_000)
        self.assertEqual(sorted(bucket["Name"] for bucket in client.list_buckets()["Buckets"]), ["empty", "pantry"])
        own = server.client(keys=(keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"]))
        self.assertEqual(own.list_buckets()["Buckets"], [])

    def test_a_copy_and_the_drives_bring_back_what_is_there(self):
        server = self.rack("nas8", SETTINGS)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = self.used(server, "before")
        server.until_cold()
        copy = os.path.join(self.root, "copy")
        made = json.loads(larder("catalog", "backup", copy, "--data", server.data, "--json").stdout)
        self.assertEqual(made["bytes"], os.path.getsize(copy))
        self.assertEqual(os.stat(copy).st_mode & 0o777, 0o600)
        self.assertIn("is there already", refusal(larder("catalog", "backup", copy, "--data", server.data)))
        objects |= self.used(server, "since")
        objects["before/02"] = noise(9_000, 77)
        client.put_object(Bucket="pantry", Key="before/02", Body=objects["before/02"])
        objects["large"] = self.in_parts(server, "large")
        server.until_cold()
        server.stop()
        lose(server.data, "workshop")
        report = self.recovered(server.data, "--from", copy)
        self.assertGreaterEqual(report["objects"], 12)
        self.is_whole(server.data)
        server = self.serve(server.data)
        client = server.client()
        # What was deleted since the copy, after it was packed, comes back: drives do not know of it.
        back = set(self.keys(client)) - set(objects)
        self.assertLessEqual(back, {"since/01", "since/04"})
        for key in back:
            client.delete_object(Bucket="pantry", Key=key)
        self.reads(client, "pantry", objects)
        self.assertEqual(client.head_object(Bucket="pantry", Key="large", PartNumber=2)["ContentLength"], 70_000)
        # It goes on as ever: numbers are not given out twice.
        objects |= self.used(server, "after")
        server.until_cold()
        self.reads(server.client(), "pantry", objects)
        server.stop()
        self.is_whole(server.data)

    def test_the_drives_alone_bring_back_what_was_packed(self):
        server = self.rack("nas8", SETTINGS)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = self.used(server, "first")
        server.until_cold()
        objects["first/02"] = noise(9_000, 77)
        client.put_object(Bucket="pantry", Key="first/02", Body=objects["first/02"])
        objects["large"] = self.in_parts(server, "large")
        server.until_cold()
        server.stop()
        # A drive that is away, and one whose stacks have no headers any more.
        lose(server.data, "workshop")
        os.rename(os.path.join(server.data, "drives", "0003"), os.path.join(self.root, "away"))
        report = self.recovered(server.data)
        self.assertEqual((report["base"], report["drives_unusable"], report["buckets"]), (None, 1, 1))
        os.rename(os.path.join(self.root, "away"), os.path.join(server.data, "drives", "0003"))
        self.is_whole(server.data)
        server = self.serve(server.data)
        client = server.client()
        # What was deleted after it was packed comes back.
        self.assertLessEqual(set(self.keys(client)) - set(objects), {"first/01", "first/04"})
        self.reads(client, "pantry", objects)
        head = client.head_object(Bucket="pantry", Key="first/00")
        self.assertEqual(head["Metadata"], {"shelf": "0"})

    def test_from_the_drives_alone_all_comes_back_that_was_copied_there(self):
        server = self.rack("nas8", COPYING)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = self.used(server, "first")
        objects["large"] = self.in_parts(server, "large")
        server.until_cold()
        self.on_drives(server)
        # All of this is a change to what lies in packs already.
        client.create_bucket(Bucket="empty")
        client.put_bucket_acl(Bucket="empty", ACL="public-read")
        user = larder("user", "add", "ann", "--data", server.data).stdout
        keys = dict(line[7:].split("=", 1) for line in user.splitlines() if line.startswith("export "))
        for key in ("first/00", "first/05"):
            client.delete_object(Bucket="pantry", Key=key)
            del objects[key]
        client.put_object_tagging(Bucket="pantry", Key="first/02", Tagging={"TagSet": [{"Key": "n", "Value": "new"}]})
        client.put_object_acl(Bucket="pantry", Key="first/03", ACL="public-read")
        objects["first/06"] = noise(9_000, 77)
        client.put_object(Bucket="pantry", Key="first/06", Body=objects["first/06"])
        listed = self.keys(client)
        server.until_cold()
        self.on_drives(server)
        server.stop()
        self.is_whole(server.data)
        lose(server.data, "workshop")
        report = self.recovered(server.data)
        self.assertEqual((report["base"]["source"], report["base"]["damaged"]), ("drives", 0))
        self.assertEqual((report["owners"], report["staged"], report["unreadable"]), ([], 0, 0))
        self.is_whole(server.data)
        self.assertEqual([name for name in os.listdir(server.data) if "recovering" in name], [])
        server = self.serve(server.data)
        client = server.client()
        self.assertEqual(self.keys(client), listed)
        self.assertEqual(sorted(listed), sorted(objects))
        self.reads(client, "pantry", objects)
        tags = client.get_object_tagging(Bucket="pantry", Key="first/02")["TagSet"]
        self.assertEqual(tags, [{"Key": "n", "Value": "new"}])
        self.assertEqual(client.head_object(Bucket="pantry", Key="first/02")["Metadata"], {"shelf": "2"})
        for grants in (client.get_object_acl(Bucket="pantry", Key="first/03")["Grants"],
                       client.get_bucket_acl(Bucket="empty")["Grants"]):
            self.assertIn("READ", [grant["Permission"] for grant in grants])
        self.assertEqual(client.head_object(Bucket="pantry", Key="large", PartNumber=2)["ContentLength"], 70_000)
        self.assertEqual(sorted(bucket["Name"] for bucket in client.list_buckets()["Buckets"]), ["empty", "pantry"])
        own = server.client(keys=(keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"]))
        self.assertEqual(own.list_buckets()["Buckets"], [])
        # It goes on as ever, and so do its copies.
        objects |= self.used(server, "after")
        server.until_cold()
        self.on_drives(server)
        self.reads(server.client(), "pantry", objects)
        server.stop()
        self.is_whole(server.data)

    def test_where_the_newest_copy_is_damaged_the_one_before_leads_to_what_it_knew(self):
        server = self.rack("nas8", {**COPYING, "journal.snapshot_period": "1 s"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = self.used(server, "first")
        server.until_cold()
        self.on_drives(server)
        objects |= self.used(server, "second")
        server.until_cold()
        self.on_drives(server)
        server.kill()
        copies = self.copies(server.data)
        self.assertGreaterEqual(len(copies), 2)
        for stack in copies[max(copies)]:
            with open(stack, "r+b") as file:
                file.seek(6_000)
                file.write(b"no such bytes")
        lose(server.data, "workshop")
        report = self.recovered(server.data)
        self.assertEqual(report["base"]["source"], "drives")
        server = self.serve(server.data)
        client = server.client()
        # What was packed since is found in its packs; what was deleted since may come back.
        back = set(self.keys(client)) - set(objects)
        self.assertLessEqual(back, {"second/01", "second/04"})
        self.reads(client, "pantry", objects)

    def test_copies_that_were_removed_after_the_newest_one_are_forgotten(self):
        server = self.rack("nas8", {**COPYING, "journal.snapshot_period": "1 s"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects, had = {}, set()
        while len(had) < 3:
            for n in range(4):
                key = f"{len(objects):02}"
                objects[key] = noise(200_000, n)
                client.put_object(Bucket="pantry", Key=key, Body=objects[key])
            server.until_cold()
            self.on_drives(server)
            had |= set(self.copies(server.data))
        server.until("the oldest copy is dead", lambda status: status["totals"]["waiting_reclaim_bytes"] > 0)
        # A group that is awake is rid of what is dead there; the first read of everything wakes both.
        self.reads(client, "pantry", objects)
        server.until("the oldest copy is gone", lambda _: len(self.copies(server.data)) < len(had))
        server.until_asleep()
        server.kill()
        lose(server.data, "workshop")
        report = self.recovered(server.data)
        self.assertGreater(report["removed"], 0)
        self.is_whole(server.data)
        server = self.serve(server.data)
        self.assertEqual(self.keys(server.client()), sorted(objects))
        self.reads(server.client(), "pantry", objects)

    def test_stacks_that_moved_after_the_last_copy_are_found_where_they_are(self):
        server = self.rack("nas8", SETTINGS)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = self.used(server, "first")
        server.until_cold()
        copy = os.path.join(self.root, "copy")
        larder("catalog", "backup", copy, "--data", server.data)
        server.stop()
        # As a rebuild leaves them, of which the copy does not know: on the drive of their group that has none.
        rack = os.path.join(server.data, "drives")
        lie_on = {}
        for drive in os.listdir(rack):
            for name in os.listdir(os.path.join(rack, drive)):
                if name.endswith(".stack"):
                    lie_on.setdefault(name.split(".")[0], {})[drive] = name
        moved = 0
        for blob, stacks in lie_on.items():
            group = {drive for other in lie_on.values() if set(other) & set(stacks) for drive in other}
            for free in group - set(stacks):
                drive, name = min(stacks.items())
                os.rename(os.path.join(rack, drive, name), os.path.join(rack, free, name))
                moved += 1
        self.assertGreater(moved, 0)
        lose(server.data, "workshop")
        report = self.recovered(server.data, "--from", copy)
        self.assertEqual(report["moved"], moved)
        self.is_whole(server.data)
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", objects)

    def test_stacks_that_are_on_no_drive_are_rebuilt_at_the_next_start_without_a_scrub(self):
        server = self.rack("nas8", SETTINGS)
        server.client().create_bucket(Bucket="pantry")
        objects = self.used(server, "first")
        server.until_cold()
        server.stop()
        # As a drive leaves them that was replaced before the loss, and not rebuilt yet.
        drives = os.path.join(server.data, "drives")
        gone = [os.path.join(drives, drive, name) for drive in os.listdir(drives)
                for name in os.listdir(os.path.join(drives, drive)) if name.endswith(".000.stack")]
        for stack in gone:
            os.remove(stack)
        lose(server.data, "workshop")
        report = self.recovered(server.data)
        self.assertEqual((report["adopted"], report["missing"]), (len(gone), len(gone)))
        self.assertEqual(report["failed"], [])
        server = self.serve(server.data)
        nothing_is_left = lambda status: not any(rebuild["left_bytes"] for rebuild in status["rebuilds"])
        server.until("everything is rebuilt", nothing_is_left)
        self.assertEqual(sum(server.status()["exposed"]["blobs"]), 0)
        server.until_asleep()
        self.reads(server.client(), "pantry", objects)
        server.stop()
        self.is_whole(server.data)

    def test_a_copy_in_the_data_directory_or_on_a_drive_is_refused(self):
        server = self.rack("nas8", STAYING)
        for place in ("copy", "workshop/copy", "drives/0003/copy", "./workshop/../copy"):
            said = refusal(larder("catalog", "backup", os.path.join(server.data, place), "--data", server.data))
            self.assertIn("would be lost with it: name a file elsewhere", said)
            self.assertFalse(os.path.exists(os.path.join(server.data, place)))

    def test_what_is_no_copy_of_this_catalog_is_refused_and_nothing_changes(self):
        server = self.rack("nas8", STAYING)
        server.filled({"k": b"kept"})
        other = self.serve(self.made("nas8", name="other", **STAYING))
        copy = os.path.join(self.root, "copy")
        larder("catalog", "backup", copy, "--data", other.data)
        server.stop()
        before = sorted(os.listdir(server.data))
        words = ("recover", "--replace", "--data", server.data, "--from")
        self.assertIn("it is of another rack", refusal(larder(*words, copy)))
        with open(copy, "r+b") as file:
            file.truncate(os.path.getsize(copy) - 10)
        self.assertIn("it is cut off", refusal(larder(*words, copy)))
        self.assertIn("No such file", refusal(larder(*words, os.path.join(self.root, "none"))))
        self.assertEqual(sorted(os.listdir(server.data)), before)
        self.assertIn("no server runs", refusal(larder("catalog", "backup", "new", "--data", server.data)))
        report = self.recovered(server.data, "--replace")
        self.assertTrue(os.path.exists(report["replaced"]))
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", {"k": b"kept"})


if __name__ == "__main__":
    unittest.main()
