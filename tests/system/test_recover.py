"""A catalog that is lost is made again: exactly from its journal, or the copies of it on drives; as far as they know
from a copy and the packs."""

import contextlib
import email.utils
import errno
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
import unittest

import faults
from harness import BINARY, BRISK, FILES, STAYING, SystemTest, larder, noise, refusal

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
        self.assertIn("already exists", refusal(larder("catalog", "backup", copy, "--data", server.data)))
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

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_full_disk_of_the_server_does_not_make_the_copies_on_drives_unusable(self):
        shim = faults.Faults(self.root)
        server = self.rack("nas8", COPYING)
        self.journal_leads_on(server)
        server.client().create_bucket(Bucket="pantry")
        objects = self.used(server, "cold")
        server.until_cold()
        self.on_drives(server)
        self.assertEqual(server.stop(), 0)
        lose(server.data, "workshop")
        shim.arm("fail", [("write", "/catalog.db.recovering-copies/", 1)], faults.FOREVER, errno.ENOSPC)
        refused = subprocess.run([BINARY, "recover", "--data", server.data], text=True, timeout=60, check=False,
                                 env={**os.environ, **shim.environment()}, capture_output=True)
        self.assertGreater(shim.hits(), 0)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("No space left on device", refused.stderr)
        self.assertFalse(os.path.exists(os.path.join(server.data, "catalog.db")), "no older catalog was made")
        shim.disarm()
        self.assertEqual(self.recovered(server.data)["base"]["source"], "drives")
        self.reads(self.serve(server.data).client(), "pantry", objects)

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

    def test_an_object_that_was_moved_back_to_the_workshop_after_the_copy_is_found_there(self):
        settings = {**FILES, "evacuation_fraction": 0.5}
        server = self.rack("nas8", {**STAYING, **settings})
        objects = {f"k{n}": noise(60_000 + n, n) for n in range(6)}
        server.filled(objects)
        self.assertEqual(server.stop(), 0)
        # All are due at once, so they are in one pack.
        self.configure(server.data, {**BRISK, **settings})
        server = self.serve(server.data)
        server.until_cold()
        self.assertEqual(len({server.explain("pantry", key)["place"]["blob"] for key in objects}), 1)
        copy = os.path.join(self.root, "copy")
        self.assertEqual(larder("catalog", "backup", copy, "--data", server.data).returncode, 0)
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, {**STAYING, **settings})
        server = self.serve(server.data)
        for n in range(5):
            server.client().delete_object(Bucket="pantry", Key=f"k{n}")
        # A scrub wakes the group.
        self.assertEqual(larder("scrub", "start", "--data", server.data).returncode, 0)
        server.until("k5 is in the workshop", lambda status: status["workshop"]["staged_count"] == 1)
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        # The next wake would have removed the dead blob.
        for path in server.stacks():
            os.remove(path)
        lose(server.data, "workshop/journal", "workshop/intake", "manifest")
        report = self.recovered(server.data, "--from", copy)
        self.assertEqual((report["moved_back"], report["removed"]), (1, 5))
        # The log is lost, too.
        self.configure(server.data, {**STAYING, **settings, "accept_older_catalog": True})
        server = self.serve(server.data)
        self.assertEqual(self.keys(server.client()), ["k5"])
        self.reads(server.client(), "pantry", {"k5": objects["k5"]})

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

    def test_an_older_copy_is_named_with_its_date_and_the_drives_that_it_takes_for_failed(self):
        server = self.rack("nas8", SETTINGS)
        server.client().create_bucket(Bucket="pantry")
        objects = self.used(server, "first")
        server.until_cold()
        on_drive = ("--data", server.data, "--json")
        drive = server.explain("pantry", "first/00")["place"]["drives"][0]["drive"]
        self.assertEqual(larder("drive", "fail", drive, *on_drive).returncode, 0)
        copy, began = os.path.join(self.root, "copy"), time.time()
        self.assertEqual(larder("catalog", "backup", copy, "--data", server.data).returncode, 0)
        ended = time.time()
        server.until("it is rebuilt", lambda status: [r["left_bytes"] for r in status["rebuilds"]] == [0])
        server.until_asleep()
        place = os.path.join(server.data, "drives", f"{drive:04}")
        shutil.rmtree(place)
        os.mkdir(place)
        self.assertEqual(larder("drive", "replace", drive, *on_drive).returncode, 0)
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        lose(server.data, "workshop")
        report = self.recovered(server.data, "--from", copy)
        self.assertEqual((report["base"]["source"], report["failed"]), ("copy", [drive]))
        made = report["base"]["made_ms"] / 1000
        self.assertTrue(began - 0.001 <= made <= ended, (began, made, ended))
        said = larder("recover", "--replace", "--from", copy, "--data", server.data).stdout
        date = email.utils.formatdate(made, usegmt=True)
        self.assertRegex(said, f"(?m)^base +the copy given with --from: [0-9]+ records of {date}, and ")
        self.assertRegex(said, f"(?m)^failed +this base records drive {drive} as failed; .*`larder drive replace N`$")
        # That helps.
        replaced = larder("drive", "replace", drive, *on_drive).stdout
        self.assertEqual(json.loads(replaced)["state"], "standby")
        server = self.serve(server.data)
        self.assertEqual(server.status()["drives"]["failed"], 0)
        self.reads(server.client(), "pantry", objects)

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
        self.assertIn("it belongs to another rack", refusal(larder(*words, copy)))
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


class RecoverAgain(SystemTest):
    """Recover is a function of its sources: it changes none of them, and a kill or a second run changes nothing."""

    # Starts are counted, and runs have random numbers.
    OF_ITS_OWN = (b"Mruns", b"R")

    def used(self, forgets=False):
        """A directory whose server was killed: small, staged and cold objects, some of them overwritten or deleted;
        those that live, and the keys of those that do not. The cold ones are of a first life, which the log has
        forgotten by the second one if it `forgets`."""
        server = self.rack("nas8", SETTINGS)
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        objects = {f"cold/{n}": noise(40_000 + n, n) for n in range(8)}
        client = server.filled(objects)
        server.until_cold()
        for _ in range(2 if forgets else 0):
            self.assertEqual(server.stop(), 0)
            server = self.serve(server.data)
        server.kill()
        self.configure(server.data, STAYING)
        server = self.serve(server.data)
        client = server.client()
        late = {f"small/{n:02}": noise(3_000 + n, 100 + n) for n in range(40)}
        late |= {f"large/{n}": noise(1_500_000 + n, 200 + n) for n in range(4)}
        late |= {"cold/1": noise(5_000, 301), "small/01": noise(4_000, 302), "large/1": noise(1_600_000, 303)}
        for key, body in late.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        client.put_object(Bucket="pantry", Key="small/02", Body=noise(2_000, 304))
        objects |= late | {"small/02": noise(2_000, 304)}
        gone = ["cold/2", "small/03", "large/2"]
        for key in gone:
            client.delete_object(Bucket="pantry", Key=key)
            del objects[key]
        server.kill()
        os.remove(os.path.join(server.data, "admin.sock"))
        return server.data, objects, gone

    def sources(self, data):
        """What every file of a data directory has, but for those of the catalog, the manifest, which is moved aside
        with the old one, and the lock, which has the number of the process that holds it; and the directories."""
        found = {}
        for folder, names, files in os.walk(data):
            names[:] = [name for name in names if folder != data or not name.startswith("manifest")]
            for name in names:
                found[os.path.relpath(os.path.join(folder, name), data)] = None
            for name in files:
                path = os.path.join(folder, name)
                is_result = folder == data and (name == "lock" or name.startswith("catalog.db"))
                if os.path.isfile(path) and not is_result:
                    with open(path, "rb") as file:
                        found[os.path.relpath(path, data)] = hashlib.sha256(file.read()).hexdigest()
        return found

    def is_unchanged(self, data, before, made=()):
        """No file or directory is another one than `before`, nor was any but `made` made or removed."""
        now = self.sources(data)
        changed = {name for name in {*now, *before} if now.get(name, "none") != before.get(name, "none")}
        self.assertEqual(changed, set(made))

    def records(self, data):
        """The records of the catalog, without the numbers of the batches that they are of."""
        self.assertEqual([name for name in os.listdir(data) if "recovering" in name], [])
        self.assertFalse(os.path.exists(os.path.join(data, "catalog.db-wal")), "it is one file")
        uri = f"file:{os.path.join(data, 'catalog.db')}?immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as catalog:
            records = catalog.execute("SELECT k, v FROM kv").fetchall()
        return {key: value[:-12] for key, value in records if not key.startswith(self.OF_ITS_OWN)}

    def recovers(self, data, *words):
        output = larder("recover", "--data", data, "--json", *words)
        self.assertEqual(output.returncode, 0, output.stderr)
        return json.loads(output.stdout)

    def recovers_again(self, data):
        """Recovers whatever there is by now."""
        is_there = os.path.exists(os.path.join(data, "catalog.db"))
        return self.recovers(data, *(["--replace"] if is_there else []))

    def serves(self, data, objects, gone):
        """A server on `data` has all of `objects` and nothing else, and takes its catalog for the newest one."""
        server = self.serve(data)
        client = server.client()
        self.assertEqual([w for w in server.status()["conditions"] if w != "staged_stays"], [])
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="pantry")
        self.assertEqual([e["Key"] for page in pages for e in page["Contents"]], sorted(objects))
        self.reads(client, "pantry", objects)
        for key in gone:
            self.assertEqual(server.ask("GET", f"/pantry/{key}")[0], 404, key)
        return server

    def test_any_number_of_runs_gives_the_same_catalog_and_nothing_is_older_afterwards(self):
        data, objects, gone = self.used()
        lose(data)
        before = self.sources(data)
        report = self.recovers(data)
        self.assertEqual((report["behind_log"], report["staged"]), (None, 0))
        records = self.records(data)
        for _ in range(2):
            self.recovers(data, "--replace")
            self.assertEqual(self.records(data), records)
        self.is_unchanged(data, before)
        found = self.verified(data, "--deep")
        self.assertTrue(found["clean"], found["findings"])
        server = self.serves(data, objects, gone)
        # It goes on as ever, whatever happens to it next.
        more = {f"more/{n:02}": noise(3_000 + n, 400 + n) for n in range(20)}
        for key, body in more.items():
            server.client().put_object(Bucket="pantry", Key=key, Body=body)
        objects |= more
        server.kill()
        lose(data)
        self.recovers(data)
        self.recovers(data, "--replace")
        server = self.serves(data, objects, gone)
        self.assertEqual(server.stop(), 0)
        self.configure(data, SETTINGS)
        server = self.serve(data)
        server.until_cold()
        # The first life wrote two packs into one group. What is dead goes when that wakes next, for the object left.
        for key in [key for key in objects if key.startswith("cold/") and key != "cold/0"]:
            server.client().delete_object(Bucket="pantry", Key=key)
            del objects[key]
        self.assertEqual(server.stop(), 0)
        # What was recalled before would be read from there.
        spool = os.path.join(data, "workshop", "spool")
        for name in os.listdir(spool):
            os.remove(os.path.join(spool, name))
        server = self.serve(data)
        self.reads(server.client(), "pantry", objects)
        server.until("the bytes are reclaimed", lambda s: s["totals"]["reclaimed_bytes"] > 0)
        self.assertEqual(set(server.status()["conditions"]) - {"emulation_slow"}, set())
        server.stop()
        found = self.verified(data, "--deep")
        self.assertTrue(found["clean"], found["findings"])

    def test_a_start_that_is_killed_between_two_runs_costs_nothing(self):
        data, objects, gone = self.used()
        for words in ([], ["--replace"], ["--replace"]):
            lose(data) if not words else None
            self.recovers(data, *words)
            server = self.serves(data, objects, gone)
            body = noise(2_500, len(objects))
            server.client().put_object(Bucket="pantry", Key=f"turn/{len(objects)}", Body=body)
            objects[f"turn/{len(objects)}"] = body
            server.kill()
        self.recovers(data, "--replace")
        self.serves(data, objects, gone)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_run_that_is_killed_at_any_step_is_begun_again(self):
        data, objects, gone = self.used()
        before = self.sources(data)
        whole = os.path.join(self.root, "whole")
        shutil.copytree(data, whole)
        self.recovers(whole, "--replace")
        records = self.records(whole)
        shim = faults.Faults(self.root)
        steps = [("rename", "catalog.db", count) for count in range(1, 7)]
        steps += [("sync", "catalog.db.recovering", count) for count in (1, 2, 4)]
        steps += [("write", "catalog.db.recovering", count) for count in (1, 10, 30)]
        steps += [("unlink", "catalog.db", count) for count in (1, 3)]
        killed = []
        for lost in (False, True):
            for op, path, count in steps:
                for when in ("before", "after"):
                    case = os.path.join(self.root, "case")
                    shutil.copytree(data, case)
                    if lost:
                        lose(case)
                    shim.arm(when, [(op, path, count)])
                    words = ["recover", "--replace", "--data", case]
                    ended = subprocess.run([BINARY, *words], env=shim.environment(), capture_output=True)
                    shim.disarm()
                    if shim.hits():
                        killed.append((lost, op, count))
                        self.assertEqual(ended.returncode, -signal.SIGKILL)
                    else:
                        self.assertEqual(ended.returncode, 0, ended.stderr)
                    with self.subTest(lost=lost, op=op, count=count, when=when, hit=shim.hit()):
                        self.begun_again(case, before, records)
                    shutil.rmtree(case)
        for op in ("rename", "sync", "write"):
            self.assertTrue(any(op == of for _, of, _ in killed), (op, killed))
        lose(data)
        self.recovers(data)
        self.serves(data, objects, gone)

    def begun_again(self, data, before, records):
        """What a killed run leaves starts, with the new catalog if that was complete, or with one that is rebuilt; and
        the next run is like any other."""
        if not os.path.exists(os.path.join(data, "catalog.db")):
            started = f"{data}-started"
            shutil.copytree(data, started)
            server = self.serve(started)
            said = "the catalog was rebuilt from its journal and its log|the new catalog is in place"
            self.assertRegex(server.log(), said)
            server.kill()
            shutil.rmtree(started)
        self.recovers_again(data)
        self.assertEqual(self.records(data), records)
        self.is_unchanged(data, before)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_first_start_that_is_killed_before_its_snapshot_is_there_changes_nothing(self):
        data, objects, gone = self.used()
        lose(data)
        self.recovers(data)
        records = self.records(data)
        shim = faults.Faults(self.root)
        for op, count in (("create", 1), ("create", 2), ("write", 2), ("sync", 1), ("rename", 1)):
            with self.subTest(op=op, count=count):
                case = os.path.join(self.root, "case")
                shutil.copytree(data, case)
                shim.arm("before", [(op, "journal/", count)])
                command = [BINARY, "serve", "--data", case, "--port", "0"]
                ended = subprocess.run(command, env=shim.environment(), capture_output=True, timeout=20)
                shim.disarm()
                self.assertEqual((ended.returncode, shim.hits()), (-signal.SIGKILL, 1), ended.stderr)
                report = self.recovers(case, "--replace")
                self.assertEqual((report["behind_log"], report["staged"]), (None, 0), shim.hit())
                self.assertEqual(self.records(case), records)
                server = self.serves(case, objects, gone)
                server.kill()
                shutil.rmtree(case)

    def test_without_a_workshop_any_number_of_runs_gives_what_the_drives_have(self):
        data, objects, _ = self.used()
        cold = {key: body for key, body in objects.items() if key.startswith("cold/") and len(body) > 5_000}
        lose(data, "workshop")
        before = self.sources(data)
        made = ("workshop", "workshop/staged", "workshop/spool")
        first = self.recovers(data)
        records = self.records(data)
        self.is_unchanged(data, before, made)
        self.assertEqual(self.recovers(data, "--replace") | {"replaced": None}, first)
        self.assertEqual(self.records(data), records)
        self.is_unchanged(data, before, made)
        server = self.serve(data)
        self.reads(server.client(), "pantry", cold)
        self.assertNotIn("catalog_older", server.status()["conditions"])

    def test_a_log_that_leads_on_from_nothing_is_kept_and_the_start_says_so(self):
        data, objects, _ = self.used(forgets=True)
        lose(data, "workshop/journal")
        before = self.sources(data)
        report = self.recovers(data)
        self.assertIn("do not follow", report["behind_log"])
        records = self.records(data)
        self.assertIsNotNone(self.recovers(data, "--replace")["behind_log"])
        self.assertEqual(self.records(data), records)
        self.is_unchanged(data, before)
        server = self.serve(data)
        self.assertIn("catalog_older", server.status()["conditions"])
        cold = [key for key in objects if key.startswith("cold/") and key != "cold/1"]
        self.reads(server.client(), "pantry", {key: objects[key] for key in cold})
        server.kill()
        # What the log has is still there for the newest catalog.
        shutil.rmtree(os.path.join(data, "workshop", "journal"))
        self.assertIn("do not follow", self.recovers(data, "--replace")["behind_log"])

    def test_an_older_copy_is_recovered_with_the_workshop_there_and_nothing_of_it_changes(self):
        data, objects, gone = self.used()
        server = self.serve(data)
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        copy = os.path.join(self.root, "copy")
        larder("catalog", "backup", copy, "--data", data)
        late = noise(1_500_000, 500)
        server.client().put_object(Bucket="pantry", Key="late", Body=late)
        staged = os.path.join(data, "workshop", "staged")
        names = set(os.listdir(staged))
        server.client().delete_object(Bucket="pantry", Key="large/3")
        server.until("the file of what was deleted is gone", lambda _: names - set(os.listdir(staged)))
        server.kill()
        self.serve(data).kill()  # a run that the copy does not know has marked the workshop
        lose(data, "workshop/journal")
        shutil.rmtree(os.path.join(data, "workshop", "intake"))
        before = self.sources(data)
        report = self.recovers(data, "--from", copy)
        # Small objects were in the log that is lost, and the file of one that was deleted is gone.
        lost = [key for key, body in objects.items() if len(body) < 1 << 20 and not key.startswith("cold/")]
        lost += ["cold/1", "large/3"]
        self.assertEqual(report["staged"], len(set(lost)))
        records = self.records(data)
        self.is_unchanged(data, before)
        self.recovers(data, "--replace", "--from", copy)
        self.assertEqual(self.records(data), records)
        self.is_unchanged(data, before)
        said = [finding["what"] for finding in self.verified(data)["findings"]]
        self.assertEqual([what for what in said if "last used with a newer catalog" in what], [])


class RecoverOlder(SystemTest):
    """A directory that was put back from a backup: the copies of the newer catalog on its drives are not ignored."""

    def on_drives(self, server):
        server.until_cold()
        server.until("the changes are on drives", lambda status: status["journal"]["on_drives"])
        server.until_asleep()
        self.assertEqual(server.stop(), 0)

    def put_back(self, *kept):
        """A directory that was put back, without its drives and the `kept` files; and the objects of the newer catalog,
        which has another bucket as well, and has deleted an object."""
        server = self.rack("nas8", COPYING)
        objects = {f"first/{n}": noise(40_000 + n, n) for n in range(4)}
        server.filled(objects)
        self.on_drives(server)
        kept, backup = {"drives", "lock", "admin.sock", *kept}, os.path.join(self.root, "backup")
        left_out = lambda at, names: [name for name in names if at == server.data and name in kept]
        shutil.copytree(server.data, backup, ignore=left_out)
        server = self.serve(server.data)
        since = {f"since/{n}": noise(50_000 + n, 100 + n) for n in range(4)}
        for key, body in since.items():
            server.client().put_object(Bucket="pantry", Key=key, Body=body)
        server.client().delete_object(Bucket="pantry", Key="first/3")
        server.client().create_bucket(Bucket="empty")
        del objects["first/3"]
        self.on_drives(server)
        for name in os.listdir(backup):
            at = os.path.join(server.data, name)
            shutil.rmtree(at) if os.path.isdir(at) else os.remove(at)
            shutil.move(os.path.join(backup, name), at)
        return server.data, objects | since

    def is_refused(self, data, why):
        # The next try removes the draft of this one.
        names = lambda: {name for name in os.listdir(data) if "recovering" not in name}
        before = names()
        refused = larder("recover", "--replace", "--data", data)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        for words in (why, "--base drives", "--base journal"):
            self.assertIn(words, refused.stderr)
        self.assertEqual(names(), before)

    def comes_back(self, data, objects):
        """From the copies on drives comes the newer catalog, which counts as the newest over further starts."""
        output = larder("recover", "--replace", "--base", "drives", "--data", data, "--json")
        self.assertEqual(output.returncode, 0, output.stderr)
        self.assertEqual(json.loads(output.stdout)["base"]["source"], "drives")
        for _ in range(2):
            server = self.serve(data)
            client = server.client()
            listed = client.list_objects_v2(Bucket="pantry")["Contents"]
            self.assertEqual([entry["Key"] for entry in listed], sorted(objects))
            self.assertEqual([bucket["Name"] for bucket in client.list_buckets()["Buckets"]], ["empty", "pantry"])
            self.reads(client, "pantry", objects)
            self.assertNotIn("catalog_older", server.status()["conditions"])
            self.assertEqual(server.stop(), 0)

    def test_after_a_take_over_the_journal_is_not_taken_for_the_newest(self):
        data, objects = self.put_back()
        self.assertEqual(larder("take-over", "--data", data).returncode, 0)
        self.is_refused(data, "is older than the rack (it took drives over")
        # A server may have used the directory since.
        server = self.serve(data)
        cold = noise(30_000, 900)
        server.client().put_object(Bucket="pantry", Key="fork", Body=cold)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        self.is_refused(data, "is older than the rack (it took drives over")
        self.comes_back(data, objects | {"fork": cold})

    def test_a_newer_copy_on_drives_is_named_and_not_ignored(self):
        # The file of its runs stayed: no mark on a drive shows another server.
        data, objects = self.put_back("runs")
        self.is_refused(data, "a copy of the catalog on drives leads to batch")
        older = larder("recover", "--replace", "--base", "journal", "--data", data, "--json")
        self.assertEqual(older.returncode, 0, older.stderr)
        self.assertEqual(json.loads(older.stdout)["base"]["source"], "journal")
        self.comes_back(data, objects)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_kill_while_the_catalog_is_replaced_does_not_bring_the_older_journal_back(self):
        data, objects = self.put_back("runs")
        shim, replaced = faults.Faults(self.root), 0
        for count in range(1, 7):
            case = os.path.join(self.root, "case")
            shutil.copytree(data, case)
            shim.arm("after", [("rename", "catalog.db", count)])
            words = ["recover", "--replace", "--base", "drives", "--data", case]
            ended = subprocess.run([BINARY, *words], env=shim.environment(), capture_output=True)
            shim.disarm()
            if shim.hits():
                self.assertEqual(ended.returncode, -signal.SIGKILL)
                self.assertFalse(os.path.exists(os.path.join(case, "catalog.db.recovering")), count)
                replaced += 1
            with self.subTest(renames=count):
                server = self.serve(case)
                listed = server.client().list_objects_v2(Bucket="pantry")["Contents"]
                self.assertEqual([entry["Key"] for entry in listed], sorted(objects))
                self.reads(server.client(), "pantry", objects)
                self.assertEqual(os.path.exists(os.path.join(case, "catalog.db.recovered")), False)
                server.kill()
            shutil.rmtree(case)
        self.assertGreaterEqual(replaced, 3)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_what_a_killed_recovery_has_left_replaces_no_catalog_that_was_used_since_and_is_no_torn_file(self):
        data, objects = self.put_back("runs")
        shim = faults.Faults(self.root)
        shim.arm("after", [("rename", "catalog.db", 1)])
        words = ["recover", "--replace", "--base", "drives", "--data", data]
        self.assertEqual(subprocess.run([BINARY, *words], env=shim.environment(), capture_output=True).returncode, -9)
        shim.disarm()
        left, catalog = (os.path.join(data, name) for name in ("catalog.db.recovered", "catalog.db"))
        made = os.stat(left).st_mtime

        # The next try removes the drafts of this one.
        names = lambda: {name for name in os.listdir(data) if "recovering" not in name}

        def is_refused(why):
            before = names()
            for words in (["serve", "--port", "0"], ["drive", "lost"], ["recover", "--replace"]):
                refused = larder(*words, "--data", data)
                self.assertEqual(refused.returncode, 1, (words, refused.stdout))
                self.assertIn(why, refused.stderr)
            self.assertEqual(names(), before)

        os.rename(catalog, f"{catalog}.aside")
        refused = larder("verify", "--data", data)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        fix = f"start the server, or run `larder recover --data {data}`: both finish that first"
        self.assertIn(fix, refused.stderr)
        os.rename(f"{catalog}.aside", catalog)
        os.utime(catalog, (made + 60, made + 60))
        is_refused("move away the one that is not wanted")
        os.utime(catalog, (made - 60, made - 60))
        whole = open(left, "rb").read()
        with open(left, "r+b") as file:
            file.truncate(len(whole) // 2)
        os.utime(left, (made, made))
        is_refused("is damaged or of another rack")
        with open(left, "wb") as file:
            file.write(whole)
        server = self.serve(data)
        self.assertIn("the new catalog is in place now", server.log())
        self.reads(server.client(), "pantry", objects)

    def test_a_base_that_is_not_there_is_refused(self):
        server = self.rack("nas8", STAYING)
        self.assertEqual(server.stop(), 0)
        fix = {"drives": "use --base journal, or name one with --from", "journal": "leave --base out"}
        for place, lost in (("drives", None), ("journal", "workshop/journal")):
            if lost:
                lose(server.data, lost)
            refused = larder("recover", "--replace", "--base", place, "--data", server.data)
            self.assertEqual(refused.returncode, 1, refused.stdout)
            self.assertIn(f"no copy of the catalog; {fix[place]}", refused.stderr)


if __name__ == "__main__":
    unittest.main()
