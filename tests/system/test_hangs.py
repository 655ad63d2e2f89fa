"""Drives that hang: calls of the real process that do not come back for 100 s keep nobody waiting for so long."""

import os
import time
import unittest

import faults
from harness import BRISK, SystemTest, noise

TENTHS = 1000  # of a second that a call hangs
# Deadlines short enough for a test, and the same otherwise.
SETTINGS = {**BRISK, "max_wait": "60 s", "deadlines.read": "3 s", "deadlines.write": "4 s", "deadlines.sync": "5 s"}


@unittest.skipIf(faults.why_not(), faults.why_not())
class Hangs(SystemTest):
    def cold(self, objects, rack="pelican-mini"):
        self.faults = faults.Faults(self.root)
        self.addCleanup(self.faults.disarm)
        server = self.serve(self.made(rack, **SETTINGS), self.faults.environment())
        client = server.filled(objects)
        server.until_cold()
        return server, client

    def hang(self, op, path, times=faults.FOREVER):
        self.faults.arm("hang", [(op, path, 1)], times, TENTHS)

    def took(self, client, objects):
        began = time.monotonic()
        self.reads(client, "pantry", objects)
        return time.monotonic() - began

    def shown(self, server, drive):
        """The drive is shown as one that missed a deadline, and no other is."""
        listed = {one["drive"]: one["missed_deadlines"] for one in server.drives()}
        self.assertGreater(listed.pop(drive), 0)
        self.assertEqual(set(listed.values()), {0}, listed)
        warnings = self.warns(server, "drive_late")
        self.assertTrue(any(f"drive {drive} " in warning for warning in warnings), warnings)

    def test_an_object_is_served_while_one_of_its_drives_hangs(self):
        objects = {"k": noise(3_000_000, 1), "other": noise(3_000_000, 2)}
        server, client = self.cold(objects)
        drive = server.explain("pantry", "k")["place"]["drives"][0]["drive"]
        self.hang("read", f"drives/{drive:04}/0")
        self.assertLess(self.took(client, {"k": objects["k"]}), 20)
        self.assertGreater(self.faults.hits(), 0)
        self.shown(server, drive)
        self.assertLess(self.took(client, objects), 20)
        # The calls that hang are left behind when the server stops.
        began = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - began, 60)

    def test_a_group_serves_without_a_member_whose_mount_hangs(self):
        objects = {"k": noise(3_000_000, 1)}
        server, client = self.cold(objects)
        drive = server.explain("pantry", "k")["place"]["drives"][0]["drive"]
        self.hang("read", f"drives/{drive:04}/larder.label")
        # The host may take 30 s beyond what the drive takes at most.
        self.assertLess(self.took(client, objects), 50)
        self.assertGreater(self.faults.hits(), 0)
        self.shown(server, drive)

    def test_a_write_goes_elsewhere_when_a_sync_hangs(self):
        for op in ("create", "write", "sync"):
            with self.subTest(op=op):
                self.root = os.path.join(self.root, op)
                os.mkdir(self.root)
                server, client = self.cold({"first": noise(300_000, 1)}, "nas8")
                self.hang(op, ".stack", 1)
                client.put_object(Bucket="pantry", Key="k", Body=noise(400_000, 2))
                began = time.monotonic()
                server.until_migrated()
                self.assertLess(time.monotonic() - began, 60)
                self.assertEqual(self.faults.hits(), 1)
                self.assertGreater(server.totals()["missed_deadlines"], 0)
                self.reads(client, "pantry", {"k": noise(400_000, 2)})
                self.faults.disarm()
                server.until_asleep()
                self.assertEqual(server.stop(), 0)
                self.assertEqual(self.verified(server.data, "--deep")["findings"], [])
                self.root = os.path.dirname(self.root)
