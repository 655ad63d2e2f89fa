"""A catalog that is put back from a backup does no harm to what only the newer one knows."""

import errno
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

import decoder
import faults
from harness import BINARY, BRISK, FILES, SystemTest, larder, noise

SETTINGS = {**BRISK, "migrate.pack_size": "300 kB"}
SMALL_STAYING = {**SETTINGS, "migrate.older_than": None, "workshop.regular": 1.0, "workshop.critical": 1.0}


class OlderCatalog(SystemTest):
    def backed_up(self):
        """A data directory that was stopped, backed up, and used since: the objects of before and of since."""
        server = self.rack("nas8", SETTINGS)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        before = self.put(client, "before", 6)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        self.copy(server.data, "catalog.db", "catalog.older")
        old = set(server.stacks())
        server = self.serve(server.data)
        client = server.client()
        since = self.put(client, "since", 6)
        since |= {key: body for key, body in self.put(client, "before", 2, "anew").items()}
        server.until_cold()
        server, spread = self.until_each_drive_has_more_than(server, old)
        since |= spread
        client = server.client()
        for key in ("before/003", "since/004"):
            client.delete_object(Bucket="pantry", Key=key)
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        self.copy(server.data, "catalog.db", "catalog.newer")
        acknowledged = {**before, **since}
        for key in ("before/003", "since/004"):
            del acknowledged[key]
        return server.data, before, acknowledged

    def until_each_drive_has_more_than(self, server, old):
        """Puts until no drive has only the stacks `old`. The server that runs then, and what was put.

        Blobs stay with a group for as long as a server runs: each turn has one of its own, which draws a group anew.
        """
        objects = {}
        for turn in range(30):
            drives = {os.path.relpath(stack, server.data).split(os.sep)[1] for stack in set(server.stacks()) - old}
            if len(drives) == 8:
                return server, objects
            self.assertEqual(server.stop(), 0)
            server = self.serve(server.data)
            objects |= self.put(server.client(), f"spread{turn}", 3)
            server.until_cold()
        self.fail(f"only the drives {sorted(drives)} have newer stacks")

    def copy(self, data, of, to):
        for suffix in ("", "-wal", "-shm"):
            target = os.path.join(data, to + suffix)
            if os.path.exists(target):
                os.remove(target)
            if suffix != "-shm" and os.path.exists(os.path.join(data, of + suffix)):
                shutil.copy(os.path.join(data, of + suffix), target)

    def copy_all(self, data, of, to):
        """Copies the catalog with its log, of one moment or nearly so, to the side or back."""
        self.copy(data, of, to)
        for part in ("workshop/intake", "manifest"):
            here, there = (os.path.join(data, part if name == "catalog.db" else f"{name}.{os.path.basename(part)}")
                           for name in (of, to))
            shutil.rmtree(there, ignore_errors=True)
            shutil.copytree(here, there)

    def still_there(self, before):
        """What lies in blobs that the newer catalog has not removed: they held nothing but what was overwritten."""
        return {key: body for key, body in before.items() if not key.endswith(("000", "001", "003"))}

    def put(self, client, prefix, count, seed=""):
        objects = {f"{prefix}/{i:03}": noise(120_000, f"{prefix}{i}{seed}") for i in range(count)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        return objects

    def used_as_if_nothing_had_been(self, server, before):
        """Puts, migrates, deletes and lets reclaim run under the older catalog."""
        client = server.client()
        fork = self.put(client, "fork", 6)
        server.until_cold()
        for key in sorted(fork)[:3] + sorted(before):
            if key in self.still_there(before):
                client.get_object(Bucket="pantry", Key=key)["Body"].read()  # its group is awake
            client.delete_object(Bucket="pantry", Key=key)
        # Writes and reads wake groups again and again, and whatever may be removed is.
        for turn in range(5):
            fork |= self.put(client, f"more{turn}", 3)
            server.until_cold()
            self.reads(client, "pantry", {key: fork[key] for key in sorted(fork)[3:]})
            server.until_asleep()
        self.reads(client, "pantry", {key: fork[key] for key in sorted(fork)[3:]})
        return server.status()

    def test_the_journal_makes_the_newest_catalog_again_though_a_server_has_begun_with_the_older_one(self):
        data, _, acknowledged = self.backed_up()
        journal = os.path.join(data, "workshop", "journal")
        for starts in (0, 2):
            self.copy(data, "catalog.older", "catalog.db")
            # Without it the older one is used, and with it the newest is made again.
            os.rename(journal, journal + ".away")
            for _ in range(starts):
                server = self.serve(data)
                server.until_asleep()
                self.assertTrue(any("larder recover --replace" in line for line in server.status()["warnings"]))
                self.assertEqual(server.stop(), 0)
            shutil.rmtree(journal, ignore_errors=True)
            os.rename(journal + ".away", journal)
            made = larder("recover", "--replace", "--data", data)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertEqual(self.verified(data, "--deep")["findings"], [], starts)
            server = self.serve(data)
            self.reads(server.client(), "pantry", acknowledged)
            self.assertEqual(server.stop(), 0)

    def test_nothing_that_the_newer_catalog_knows_is_lost_by_using_the_older_one(self):
        data, before, acknowledged = self.backed_up()
        self.copy(data, "catalog.older", "catalog.db")
        # Or the newest would be made again from there.
        shutil.rmtree(os.path.join(data, "workshop", "journal"))
        server = self.serve(data)
        status = self.used_as_if_nothing_had_been(server, before)
        [warning] = self.warns(server, "catalog_older")
        self.assertIn("put the newest catalog back", warning)
        self.assertIn("accept_older_catalog", warning)
        self.assertIn("THE CATALOG IS OLDER", server.log())
        self.assertEqual(status["totals"]["reclaimed_bytes"], 0)
        self.assertEqual(server.stop(), 0)
        # However long it is used.
        server = self.serve(data)
        self.assertTrue(any("catalog is older" in warning for warning in server.status()["warnings"]))
        self.assertEqual(server.stop(), 0)

        report = self.verified(data)
        self.assertIn("foreign-catalog", {finding["kind"] for finding in report["findings"]})
        unknown = [finding for finding in report["findings"] if finding["kind"] == "unknown"]
        self.assertTrue(unknown)
        for finding in report["findings"]:
            self.assertFalse(finding["mend"].startswith("remove"), finding)

        self.copy(data, "catalog.newer", "catalog.db")
        server = self.serve(data)
        client = server.client()
        self.reads(client, "pantry", acknowledged)
        listed = client.list_objects_v2(Bucket="pantry")["Contents"]
        self.assertEqual(sorted(entry["Key"] for entry in listed), sorted(acknowledged))
        self.is_the_newest(server)

    def test_the_drives_tell_where_the_workshop_was_lost(self):
        data, before, acknowledged = self.backed_up()
        for name in ("staged", "spool", "intake"):
            shutil.rmtree(os.path.join(data, "workshop", name))
        self.copy(data, "catalog.older", "catalog.db")
        server = self.serve(data)
        self.assertEqual([warning for warning in server.status()["warnings"] if "older" in warning], [])
        # The first mount of a group: each has newer stacks.
        self.reads(server.client(), "pantry", {"before/005": before["before/005"]})
        server.until("the drives were looked at", lambda status: any("older" in w for w in status["warnings"]))
        self.assertIn("was written under a newer catalog than this", server.log())
        self.used_as_if_nothing_had_been(server, before)
        self.assertEqual(server.stop(), 0)
        server = self.serve(data)
        warnings = server.status()["warnings"]
        self.assertTrue(any("catalog is older" in warning for warning in warnings), "it is remembered")
        self.assertEqual(server.stop(), 0)
        self.copy(data, "catalog.newer", "catalog.db")
        server = self.serve(data)
        self.reads(server.client(), "pantry", acknowledged)
        self.is_the_newest(server)

    def test_the_drives_tell_later_that_the_disk_of_the_server_was_set_back(self):
        """As a virtual machine is set back to a snapshot: catalog, log and marks agree. The drives slept since."""
        server = self.rack("nas8", {**SETTINGS, **FILES})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        before = self.put(client, "before", 2)
        server.until_cold()
        kept = ("workshop", "manifest", "runs", "catalog.db", "catalog.db-wal")
        snapshot = os.path.join(self.root, "snapshot")
        os.mkdir(snapshot)
        for name in kept:
            self.set_back(os.path.join(server.data, name), os.path.join(snapshot, name))
        old = set(server.stacks())
        since = self.put(client, "since", 6)
        server.until_cold()
        newer = set(server.stacks()) - old
        self.assertTrue(newer)
        server.kill()
        for name in ("catalog.db-shm", *kept):
            self.set_back(os.path.join(snapshot, name), os.path.join(server.data, name))
        # Its number passes that of the lost changes while the drives sleep.
        self.configure(server.data, {**SMALL_STAYING, **FILES})
        for turn in range(2):
            server = self.serve(server.data)
            self.put(server.client(), f"fork{turn}", 20)
            self.assertNotIn("catalog_older", server.status()["conditions"])
            self.assertEqual(server.stop(), 0)
        self.configure(server.data, {**SETTINGS, **FILES})
        server = self.serve(server.data)
        server.until_cold()
        server, _ = self.until_each_drive_has_more_than(server, set(server.stacks()))
        self.warns(server, "catalog_older")
        self.assertEqual(newer - set(server.stacks()), set(), "the objects of these stacks are nowhere else")
        self.reads(server.client(), "pantry", before)
        self.assertTrue(since)

    def set_back(self, source, target):
        """A file, a directory, or nothing, as it is at `source`."""
        shutil.rmtree(target, ignore_errors=True)
        if os.path.lexists(target):
            os.remove(target)
        if os.path.isdir(source):
            shutil.copytree(source, target)
        elif os.path.exists(source):
            shutil.copy(source, target)

    def used_as_older(self, data, turn, there):
        """Starts a server on an older catalog, puts something and stops it. What was put."""
        server = self.serve(data)
        self.assertTrue(any("catalog is older" in warning for warning in server.status()["warnings"]))
        fork = self.put(server.client(), f"fork{turn}", 2)
        self.reads(server.client(), "pantry", {**there, **fork})
        self.assertEqual(server.stop(), 0)
        return fork

    def is_the_newest(self, server):
        """Although other stacks lie in the rack, and once each drive was mounted."""
        server, _ = self.until_each_drive_has_more_than(server, set(server.stacks()))
        self.assertEqual([warning for warning in server.status()["warnings"] if "older" in warning], [])

    def test_who_has_lost_the_newer_catalog_accepts_the_older_one(self):
        data, before, _ = self.backed_up()
        self.copy(data, "catalog.older", "catalog.db")
        self.configure(data, {**SETTINGS, "accept_older_catalog": True})
        server = self.serve(data)
        self.reads(server.client(), "pantry", self.still_there(before))
        self.assertEqual([warning for warning in server.status()["warnings"] if "older" in warning], [])
        client = server.client()
        for key in sorted(before)[:-1]:
            client.delete_object(Bucket="pantry", Key=key)
        after = self.put(client, "after", 3)
        server.until_cold()
        # Writing these may have woken the group in which something was deleted; else reading does, with an empty spool.
        removes = server.status()["totals"]["reclaimed_bytes"] > 0
        self.assertEqual(server.stop(), 0)
        server = self.serve(data)
        client = server.client()
        self.reads(client, "pantry", {**after, "before/005": before["before/005"]})
        server.until("it removes again", lambda status: removes or status["totals"]["reclaimed_bytes"] > 0)
        self.assertEqual(server.stop(), 0)
        self.configure(data, SETTINGS)
        server = self.serve(data)
        self.assertEqual([warning for warning in server.status()["warnings"] if "older" in warning], [])

    def begun(self):
        """A data directory with three objects in one blob, and beside it, as `catalog.older`, the catalog and its log
        of the moment when that blob was being written; and the stacks."""
        server = self.rack("nas8", {**SMALL_STAYING, "time_scale": 20})
        server.until_asleep()
        objects = {f"k{n}": noise(30_000_000, n) for n in range(3)}
        server.filled(objects)
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, {**BRISK, "time_scale": 20})
        server = self.serve(server.data)
        while not server.stacks():
            time.sleep(0.001)
        server.process.send_signal(signal.SIGSTOP)
        self.copy_all(server.data, "catalog.db", "catalog.older")
        server.process.send_signal(signal.SIGCONT)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        # A run that the older one does not know.
        server = self.serve(server.data)
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        self.copy_all(server.data, "catalog.older", "catalog.db")
        shutil.rmtree(os.path.join(server.data, "workshop", "journal"))
        self.assertEqual(self.verified(server.data)["leftovers"]["unfinished_blobs"], 1)
        return server.data, objects, server.stacks()

    def test_a_blob_that_only_a_newer_catalog_knows_to_be_complete_stays_and_is_recovered(self):
        data, objects, stacks = self.begun()
        for accepts in (None, True, None):
            self.configure(data, {**BRISK, "time_scale": 20, "accept_older_catalog": accepts})
            server = self.serve(data)
            # Each group wakes, and what is dead in it would go.
            self.assertIn(larder("verify", "--wake", "--data", data).returncode, (0, 1))
            server.until_asleep()
            self.assertLessEqual(set(stacks), set(server.stacks()), accepts)
            self.assertEqual(server.stop(), 0)
        unknown = [finding["file"] for finding in self.verified(data)["findings"] if finding["kind"] == "unknown"]
        self.assertEqual(len(unknown), len(stacks), unknown)
        recovered = larder("recover", "--replace", "--data", data)
        self.assertEqual(recovered.returncode, 0, recovered.stderr)
        server = self.serve(data)
        self.reads(server.client(), "pantry", objects)

    def test_a_staged_file_that_a_newer_catalog_may_know_is_kept(self):
        settings = {**SMALL_STAYING, **FILES}
        server = self.rack("nas8", settings)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = self.put(client, "early", 2)
        # Copied while the server runs: neither run nor slot shows that it is older than what comes now.
        self.copy_all(server.data, "catalog.db", "catalog.older")
        objects |= self.put(client, "late", 2)
        server.kill()
        self.copy_all(server.data, "catalog.db", "catalog.newer")
        staged = os.path.join(server.data, "workshop", "staged")

        def files():
            return sorted(name for name in os.listdir(staged) if name.startswith("s-"))

        there = files()
        self.assertEqual(len(there), 4)
        self.copy_all(server.data, "catalog.older", "catalog.db")
        kinds = {finding["kind"] for finding in self.verified(server.data)["findings"]}
        self.assertEqual(kinds, {"foreign-catalog"})
        for _ in range(3):
            server = self.serve(server.data)
            self.reads(server.client(), "pantry", {key: body for key, body in objects.items() if "early" in key})
            self.assertTrue(any("catalog is older" in warning for warning in server.status()["warnings"]))
            self.assertEqual(files(), there, "nothing is removed")
            self.assertEqual(server.stop(), 0)
        self.copy_all(server.data, "catalog.newer", "catalog.db")
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", objects)

    def test_the_newest_catalog_is_used_although_an_older_one_gave_out_slots(self):
        settings = {**SMALL_STAYING, **FILES}
        server = self.rack("nas8", settings)
        server.client().create_bucket(Bucket="pantry")
        before = self.put(server.client(), "before", 3)
        self.assertEqual(server.stop(), 0)
        self.copy_all(server.data, "catalog.db", "catalog.older")
        server = self.serve(server.data)
        since = self.put(server.client(), "since", 3)
        self.assertEqual(server.stop(), 0)
        self.copy_all(server.data, "catalog.db", "catalog.newer")
        self.copy_all(server.data, "catalog.older", "catalog.db")
        fork = {}
        for turn in range(3):
            fork |= self.used_as_older(server.data, turn, {**before, **fork})
        self.copy_all(server.data, "catalog.newer", "catalog.db")
        for _ in range(2):
            server = self.serve(server.data)
            self.reads(server.client(), "pantry", {**before, **since})
            warnings = server.status()["warnings"]
            self.assertEqual([warning for warning in warnings if "catalog is older" in warning], [])
            self.assertIn("6 staged files are", self.warns(server, "staged_unknown")[0])
            more = self.put(server.client(), "more", 2)
            self.reads(server.client(), "pantry", more)
            self.assertEqual(server.stop(), 0)
        # Who has lost the newest accepts the older one.
        self.copy_all(server.data, "catalog.older", "catalog.db")
        self.configure(server.data, {**settings, "accept_older_catalog": True})
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", before)

    def test_a_copy_that_finds_in_the_log_all_that_it_lacks_is_the_newest(self):
        server = self.rack("nas8", SMALL_STAYING)
        server.client().create_bucket(Bucket="pantry")
        objects = self.put(server.client(), "before", 3)
        self.assertEqual(server.stop(), 0)
        self.copy(server.data, "catalog.db", "catalog.older")
        server = self.serve(server.data)
        objects |= self.put(server.client(), "since", 3)
        server.kill()
        self.copy(server.data, "catalog.older", "catalog.db")
        self.assertEqual(self.verified(server.data)["findings"], [])
        for _ in range(2):
            server = self.serve(server.data)
            self.reads(server.client(), "pantry", objects)
            warnings = server.status()["warnings"]
            self.assertEqual([warning for warning in warnings if "catalog is older" in warning], [])
            self.assertEqual(server.stop(), 0)

    def test_the_newest_catalog_lacks_nothing_that_an_older_one_has_logged(self):
        """Objects that are in the log in front of the catalog, and not in files."""
        server = self.rack("nas8", SMALL_STAYING)
        server.client().create_bucket(Bucket="pantry")
        before = self.put(server.client(), "before", 3)
        self.assertEqual(server.stop(), 0)
        self.copy(server.data, "catalog.db", "catalog.older")
        acknowledged = dict(before)
        # Each start makes a shelf of the log before it.
        for turn in range(3):
            server = self.serve(server.data)
            acknowledged |= self.put(server.client(), f"since{turn}", 3)
            if turn < 2:
                self.assertEqual(server.stop(), 0)
        # Killed: what it has acknowledged last is in the log alone.
        server.kill()
        self.copy(server.data, "catalog.db", "catalog.newer")
        self.copy(server.data, "catalog.older", "catalog.db")
        self.assertIn("catalog-file", {finding["kind"] for finding in self.verified(server.data)["findings"]})
        # Or the newest would be made again from there.
        shutil.rmtree(os.path.join(server.data, "workshop", "journal"))
        fork = {}
        for turn in range(3):
            fork |= self.used_as_older(server.data, turn, {**before, **fork})
            found = [finding["what"] for finding in self.verified(server.data)["findings"]]
            self.assertTrue(any("older than its log" in what for what in found), found)
        self.copy(server.data, "catalog.newer", "catalog.db")
        kinds = {finding["kind"] for finding in self.verified(server.data)["findings"]}
        self.assertNotIn("catalog-file", kinds)
        for turn in range(3):
            server = self.serve(server.data)
            self.reads(server.client(), "pantry", acknowledged)
            warnings = server.status()["warnings"]
            self.assertEqual([warning for warning in warnings if "catalog is older" in warning], [])
            more = self.put(server.client(), f"more{turn}", 2)
            acknowledged |= more
            self.assertEqual(server.stop(), 0)
        # Who has lost the newest accepts the older one, which is the newest from then on.
        self.copy(server.data, "catalog.older", "catalog.db")
        self.configure(server.data, {**SMALL_STAYING, "accept_older_catalog": True})
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", before)
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, SMALL_STAYING)
        for _ in range(2):
            server = self.serve(server.data)
            warnings = server.status()["warnings"]
            self.assertEqual([warning for warning in warnings if "catalog is older" in warning], [])
            self.assertEqual(server.stop(), 0)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_without_room_to_rebuild_the_newest_catalog_the_older_one_is_not_served(self):
        shim = faults.Faults(self.root)
        server = self.rack("nas8", SMALL_STAYING)
        server.client().create_bucket(Bucket="pantry")
        acknowledged = self.put(server.client(), "before", 3)
        self.assertEqual(server.stop(), 0)
        self.copy(server.data, "catalog.db", "catalog.older")
        for turn in range(3):
            server = self.serve(server.data)
            acknowledged |= self.put(server.client(), f"since{turn}", 3)
            self.assertEqual(server.stop(), 0)
        self.copy(server.data, "catalog.older", "catalog.db")
        shim.arm("fail", [("write", "catalog.db.recovering", 1)], faults.FOREVER, errno.ENOSPC)
        refused = subprocess.run([BINARY, "serve", "--data", server.data, "--port", "0"], text=True, timeout=60,
                                 env={**os.environ, **shim.environment()}, capture_output=True, check=False)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("the catalog cannot be rebuilt from its journal and its log either", refused.stderr)
        shim.disarm()
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", acknowledged)
        self.assertNotIn("catalog_older", server.status()["conditions"])

    def test_what_a_crash_leaves_in_the_workshop_goes_at_the_start_after_the_next(self):
        settings = {**SMALL_STAYING, **FILES}
        server = self.rack("nas8", settings)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = self.put(client, "kept", 1)
        server.kill()
        staged = os.path.join(server.data, "workshop", "staged")
        [name] = [name for name in os.listdir(staged) if name.startswith("s-")]
        with open(os.path.join(staged, name), "rb") as file:
            data = bytearray(file.read())
        # The same file in the next slot, as if the power had failed before its commit.
        slot = int(name[2:], 16) + 1
        _, footer = decoder.staged(bytes(data), slot - 1)
        data[-112:-104] = struct.pack("<Q", slot)
        sums = struct.pack("<I", decoder.crc32c(struct.pack("<QQQ", slot, footer["nonce"], 0), data[: footer["bytes"]]))
        data[-132:-128], data[-68:-64] = sums, struct.pack("<I", decoder.crc32c(sums))
        data[-4:] = struct.pack("<I", decoder.crc32c(data[-128:-4]))
        self.assertEqual(decoder.staged(bytes(data), slot)[1]["slot"], slot)
        left, unfinished = (os.path.join(staged, f"s-{slot + more:016x}") for more in (0, 1))
        with open(left, "wb") as file:
            file.write(data)
        with open(unfinished, "wb") as file:
            file.write(bytes(len(data)))
        self.assertEqual(self.verified(server.data)["leftovers"]["staged_files"], 2)
        for after in (True, False):
            server = self.serve(server.data)
            self.assertEqual((os.path.exists(left), os.path.exists(unfinished)), (after, False))
            self.reads(server.client(), "pantry", objects)
            self.assertFalse([warning for warning in server.status()["warnings"] if "staged file" in warning])
            self.assertEqual(server.stop(), 0)
