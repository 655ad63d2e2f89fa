"""Drives of a pool that sleep, and ones that fail, fill or hang under a server that serves."""

import errno
import os
import re
import shutil
import time
import unittest
import urllib.request

import faults
import test_pool
from harness import STAYING, SystemTest, noise

# Drives of 15 s to start, which sleep after 2 s of the wall, and answer within 3 s.
SETTINGS = {**STAYING, "intake.below": "1 MiB", "intake.idle_timeout": "200 s", "deadlines.write": "3 s"}


class PoolDrives(SystemTest):
    description = test_pool.Pool.description

    def pooled(self, drives, **settings):
        return self.made(self.description([None] * drives), **{**SETTINGS, **settings})

    def drives(self, server):
        return server.status()["intake"]["drives"]

    def logging(self, server):
        return [drive["place"] for drive in self.drives(server) if drive["state"] == "logging"]


class Sleeping(PoolDrives):
    def test_drives_that_idle_sleep_and_a_read_starts_the_one_that_it_needs(self):
        data = self.pooled(4)
        server = self.serve(data)
        objects = {f"{number:03}": noise(20_000 + number, number) for number in range(100)}
        server.filled(objects)
        server.until_asleep()
        server.kill()
        # The log that was left becomes a shelf on another drive. Then all sleep but the one on duty.
        server = self.serve(data)
        sleeps = lambda status: sum(drive["power"] == "standby" for drive in status["intake"]["drives"]) == 3
        status = server.until("three drives sleep", sleeps)
        awake = [drive for drive in status["intake"]["drives"] if drive["power"] != "standby"]
        self.assertEqual([(drive["state"], drive["power"]) for drive in awake], [("logging", "spinning")])
        shelf = max(status["intake"]["drives"], key=lambda drive: drive["shelf_bytes"])
        self.assertGreater(shelf["shelf_bytes"], 100 * 20_000)
        self.assertEqual((shelf["state"], shelf["power"]), ("asleep", "standby"))
        starts = {drive["place"]: drive["starts"] for drive in status["intake"]["drives"]}
        asleep_watts = status["power"]["watts"]
        # What needs no byte of the shelf starts nothing.
        client = server.client()
        self.assertEqual(len(client.list_objects_v2(Bucket="pantry")["Contents"]), len(objects))
        client.head_object(Bucket="pantry", Key="007")
        client.put_object(Bucket="pantry", Key="new", Body=b"logged on the drive on duty")
        self.reads(client, "pantry", {"new": b"logged on the drive on duty"})
        self.assertEqual({drive["place"]: drive["starts"] for drive in self.drives(server)}, starts)
        began = time.monotonic()
        self.reads(client, "pantry", {"007": objects["007"]})
        self.assertGreater(time.monotonic() - began, 0.1, "a start of 12 to 18 s, a hundred times as fast")
        status = server.status()
        now = {drive["place"]: drive["starts"] for drive in status["intake"]["drives"]}
        self.assertEqual(now, {**starts, shelf["place"]: starts[shelf["place"]] + 1})
        self.assertAlmostEqual(status["power"]["watts"] - asleep_watts, 6.5 - 0.8, places=1)
        self.reads(client, "pantry", objects)
        # The log has the address of each start.
        address = re.findall(r"serving (http://127\.0\.0\.1:\d+/metrics)", server.log())[-1]
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        self.assertIn(f'larder_intake_drive_starts_total{{place="{shelf["place"]}"}} {now[shelf["place"]]}', text)
        self.assertIn(f'larder_intake_drive_power{{place="{shelf["place"]}",power="spinning"}} 1', text)
        server.until("it sleeps again", sleeps)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.verified(data, "--deep")["findings"], [])
        server = self.serve(data)
        self.reads(server.client(), "pantry", objects)


@unittest.skipIf(faults.why_not(), faults.why_not())
class Failing(PoolDrives):
    def served(self, data):
        self.faults = faults.Faults(self.root)
        self.addCleanup(self.faults.disarm)
        return self.serve(data, self.faults.environment())

    def put(self, client, prefix):
        """Objects that were acknowledged."""
        objects = {f"{prefix}/{number:02}": noise(9_000 + 97 * number, prefix + str(number)) for number in range(40)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        return objects

    def test_one_of_two_copies_is_on_a_drive_that_fails_fills_or_hangs(self):
        data = self.pooled(6)
        server = self.served(data)
        objects = {"first": noise(5_000, 0)}
        server.filled(objects)
        client = server.client(retries={"max_attempts": 0})
        cases = [
            ("sync", "fail", errno.EIO, "lost"),
            ("write", "fail", errno.ENOSPC, None),
            ("sync", "hang", 100, "lost"),
        ]
        struck = []
        for op, action, error, state in cases:
            place = next(place for place in self.logging(server) if place not in struck)
            self.faults.arm(action, [(op, os.path.relpath(place, data) + "/", 1)], faults.FOREVER, error)
            objects |= self.put(client, f"{op}-{action}")
            self.assertGreater(self.faults.hits(), 0, (op, action))
            shown = {drive["place"]: drive["state"] for drive in self.drives(server)}
            self.assertNotEqual(shown[place], "logging", (op, action))
            if state:
                self.assertEqual(shown[place], state, (op, action))
                struck.append(place)
                self.assertIn(f"failed: {', '.join(sorted(struck))}", self.warns(server, "pool_drive_failed")[0])
            self.reads(client, "pantry", objects)
            self.assertEqual(server.status()["intake"]["losses"], 0, (op, action))
            self.faults.disarm()
        # Of the two that failed one is gone for good.
        self.assertEqual(len(struck), 2)
        server.kill()
        shutil.rmtree(struck[0])
        server = self.serve(data)
        self.reads(server.client(), "pantry", objects)
        self.assertEqual(server.status()["intake"]["losses"], 0)
        self.assertEqual(server.stop(), 0)

    def test_of_one_copy_what_only_a_failed_drive_held_is_named_and_the_others_go_on(self):
        data = self.pooled(4)
        server = self.served(data)
        old = {f"old/{number:02}": noise(30_000, number) for number in range(20)}
        server.filled(old)
        server.kill()
        # They are in a shelf by now, on another drive than the one on duty.
        server = self.served(data)
        shelf = lambda status: any(drive["shelf_bytes"] for drive in status["intake"]["drives"])
        server.until("a shelf", shelf)
        client = server.client(retries={"max_attempts": 0})
        lost = self.put(client, "lost")
        place = self.logging(server)[0]
        self.faults.arm("fail", [("sync", os.path.relpath(place, data) + "/", 1)], faults.FOREVER)
        new = self.put(client, "new")
        self.assertGreater(self.faults.hits(), 0)
        status = server.status()
        self.assertEqual({d["place"]: d["state"] for d in status["intake"]["drives"]}[place], "lost")
        # Objects, and records of the catalog that lay beside them.
        self.assertGreaterEqual(status["intake"]["losses"], len(lost))
        self.warns(server, "pool_lost")
        log = server.log()
        for key in lost:
            self.assertRegex(log, f"the intake lost version [0-9]+ of the key .*{key}")
        self.reads(client, "pantry", {**old, **new})
        for key in list(lost)[:3]:
            self.fails(503, "ServiceUnavailable", client.get_object, Bucket="pantry", Key=key)
        # Its bytes are there all the same: a start that finds the drive well has them back.
        self.faults.disarm()
        server.kill()
        server = self.serve(data)
        self.reads(server.client(), "pantry", {**old, **new, **lost})
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
