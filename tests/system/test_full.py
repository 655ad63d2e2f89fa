"""A rack that is full, and what could never fit: distinguished from a workshop that is full for now."""

import os
import re
import time

import botocore.exceptions

from harness import BRISK, SystemTest, larder, noise

HERE = os.path.dirname(os.path.abspath(__file__))


class FullRack(SystemTest):
    def small_rack(self, capacity):
        """The description of a box of eight whose drives hold little."""
        with open(os.path.join(HERE, "..", "..", "racks", "nas8.toml"), encoding="utf-8") as rack:
            text = rack.read()
        text, changed = re.subn(r"(?m)^capacity = .*$", f'capacity = "{capacity}"', text)
        self.assertEqual(changed, 1)
        text, changed = re.subn(r"(?m)^pack = .*$", 'pack = "8 MB"', text)
        path = os.path.join(self.root, "small.toml")
        with open(path, "w", encoding="utf-8") as rack:
            rack.write(text)
        return path

    def test_a_full_rack_says_so_until_room_returns(self):
        server = self.rack(self.small_rack("25 MB"), {**BRISK, "workshop.capacity": "400 MB"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        stored, refused = [], None
        for number in range(90):
            try:
                client.put_object(Bucket="pantry", Key=f"{number:03}", Body=noise(5_000_000, number))
                stored.append(f"{number:03}")
            except botocore.exceptions.ClientError as error:
                refused = error.response
                break
            time.sleep(0.05)
        self.assertIsNotNone(refused, "it is full at some time")
        # Two groups of four drives take eight blobs each of 5 MB a drive, three stacks of four places.
        self.assertGreaterEqual(len(stored), 20, "and not before")
        metadata = refused["ResponseMetadata"]
        self.assertEqual((metadata["HTTPStatusCode"], refused["Error"]["Code"]), (507, "InsufficientStorage"))
        self.assertIn("rack is full", refused["Error"]["Message"])
        self.assertNotIn("retry-after", metadata["HTTPHeaders"])
        status = server.status()
        self.assertTrue(status["capacity"]["full"])
        warnings = " ".join(status["warnings"])
        self.assertIn("the rack is full", warnings)
        self.assertNotIn("until data has migrated", warnings)
        self.assertIn(", full", larder("status", "--data", server.data).stdout)
        upload = client.create_multipart_upload(Bucket="pantry", Key="parts")["UploadId"]
        where = {"Bucket": "pantry", "Key": "parts", "UploadId": upload, "PartNumber": 1}
        self.fails(507, "InsufficientStorage", client.upload_part, Body=b"x", **where)
        self.fails(507, "InsufficientStorage", client.copy_object, Bucket="pantry", Key="copy",
                   CopySource=f"pantry/{stored[0]}")

        for key in stored[: len(stored) // 2]:
            client.delete_object(Bucket="pantry", Key=key)
        server.until("room has returned", lambda status: not status["capacity"]["full"])
        client.put_object(Bucket="pantry", Key="again", Body=b"x")
        self.reads(client, "pantry", {"again": b"x", stored[-1]: noise(5_000_000, int(stored[-1]))})
        server.until_migrated()

    def test_a_disk_that_drives_share_is_counted_once_from_the_start(self):
        server = self.rack("pelican-mini")
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        server = self.serve(server.data)
        capacity = server.status()["capacity"]
        disk = os.statvfs(self.root)
        self.assertLessEqual(capacity["free_bytes"], disk.f_bavail * disk.f_frsize + 100_000_000)
        self.assertGreater(capacity["free_bytes"], 0)
        drives = server.drives()
        self.assertLessEqual(max(drive["free_bytes"] for drive in drives), capacity["free_bytes"])
        self.assertEqual(server.totals()["drive_starts"], 0)


class NeverFits(SystemTest):
    def too_large(self, call, **keywords):
        answer = self.fails(400, "EntityTooLarge", call, Bucket="pantry", **keywords)
        self.assertIn("workshop.capacity", answer["Error"]["Message"])
        self.assertIn("20000000", answer["Error"]["Message"])

    def test_what_is_larger_than_the_workshop_is_refused_at_once(self):
        settings = {**BRISK, "workshop.capacity": "200 MB", "workshop.spool": "40 MB"}
        data = self.made("nas8", **settings)
        server = self.serve(data)
        client = server.filled({"cold": noise(30_000_000, 1)})
        server.until_cold()
        self.assertEqual(server.stop(), 0)

        self.configure(data, {**settings, "workshop.capacity": "20 MB"})
        server = self.serve(data)
        client = server.client()
        self.too_large(client.put_object, Key="k", Body=noise(21_000_000, 1))
        self.too_large(client.copy_object, Key="k", CopySource="pantry/cold")
        self.assertEqual(server.totals()["drive_starts"], 0, "nothing is read for a copy that cannot be")
        upload = client.create_multipart_upload(Bucket="pantry", Key="k")["UploadId"]
        part = {"Key": "k", "UploadId": upload}
        self.too_large(client.upload_part, PartNumber=1, Body=noise(21_000_000, 1), **part)
        self.too_large(client.upload_part_copy, PartNumber=1, CopySource="pantry/cold", **part)
        client.upload_part(Bucket="pantry", PartNumber=1, Body=noise(8_000_000, 1), **part)
        self.too_large(client.upload_part, PartNumber=2, Body=noise(8_000_000, 1), **part)
        self.assertEqual(server.status()["workshop"]["upload_bytes"], 8_000_000)
        # Another upload only has to wait for the first.
        other = client.create_multipart_upload(Bucket="pantry", Key="other")["UploadId"]
        self.fails(503, "SlowDown", client.upload_part, Bucket="pantry", Key="other", UploadId=other, PartNumber=1,
                   Body=noise(8_000_000, 1))
        client.abort_multipart_upload(Bucket="pantry", **part)
        client.put_object(Bucket="pantry", Key="fits", Body=noise(10_000_000, 1))
