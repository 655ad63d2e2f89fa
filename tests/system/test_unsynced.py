"""A log whose last sync failed: a start may read from memory what never reached the medium, so nothing is removed on
the strength of that."""

import glob
import os
import time
import unittest

import faults
from harness import BRISK, FILES, STAYING
from test_degraded import Racks, bodies


@unittest.skipIf(faults.why_not(), faults.why_not())
class CatalogsThatWereNotSynced(Racks):
    """A failed sync leaves pages in memory that never reach the medium, and that a start reads as if they had."""

    def logs(self, data):
        """`{path: bytes}` of the logs in front of the catalog."""
        found = {}
        for path in glob.glob(os.path.join(data, "workshop", "intake", "*.log")):
            try:
                with open(path, "rb") as file:
                    found[path] = file.read()
            except FileNotFoundError:
                pass
        return found

    def unsynced(self):
        """A killed server whose commit of a migrated blob was not synced; the log of that, what it has, and how much of
        it was there before."""
        data = self.made("nas8", **STAYING, **FILES)
        shim = faults.Faults(self.root)
        server = self.serve(data, shim.environment())
        client, objects = server.client(), bodies(3)
        client.create_bucket(Bucket="pantry")
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        server.kill()
        self.configure(data, {**BRISK, **FILES})
        shim.arm("fail", [("sync", ".stack", 6), ("read", ".stack", 6), ("sync", "/intake/", 1)])
        before = []

        server = self.serve(data, shim.environment())
        end = time.monotonic() + 60
        while not shim.hits():
            before.append(self.logs(data))
            self.assertLess(time.monotonic(), end, "the blob was never committed")
            time.sleep(0.002)
        server.kill()
        path, after = max(self.logs(data).items(), key=lambda log: os.path.getmtime(log[0]))
        # The longest log that is a beginning of the last one: all that was synced, or less.
        beginnings = (logs.get(path, b"") for logs in before)
        synced = max((log for log in beginnings if after.startswith(log) and log != after), key=len, default=b"")
        self.assertGreater(len(synced), 0)
        return data, objects, shim, (path, len(synced), after)

    def test_nothing_is_swept_on_the_strength_of_a_log_that_never_reached_the_medium(self):
        data, objects, _, (path, synced, after) = self.unsynced()
        server = self.serve(data)
        server.kill()
        # The power fails: what was not written again since is as it was on the medium.
        if self.logs(data).get(path, b"")[synced : len(after)] == after[synced:]:
            with open(path, "r+b") as file:
                file.seek(synced)
                file.write(bytes(len(after) - synced))
        self.configure(data, {**STAYING, **FILES})
        server = self.serve(data)
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])

    def test_a_catalog_that_cannot_be_synced_is_not_served_and_nothing_is_swept(self):
        data, objects, shim, _ = self.unsynced()
        staged = os.path.join(data, "workshop", "staged")
        before = sorted(os.listdir(staged))
        self.assertGreaterEqual(len(before), len(objects))
        for count in (1, 2):
            shim.arm("fail", [("sync", "catalog.db", count)], faults.FOREVER)
            with self.assertRaises(AssertionError) as caught:
                self.serve(data, shim.environment())
            self.assertIn("catalog.db", str(caught.exception))
            self.assertIn("synced", str(caught.exception))
            self.assertEqual(sorted(os.listdir(staged)), before, count)
        shim.disarm()
        server = self.serve(data, shim.environment())
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])
