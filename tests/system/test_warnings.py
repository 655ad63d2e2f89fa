"""Known losses and dangers are reported: each condition of `docs/runbook/warnings.md` that is created here is a warning
in the text of `larder status`, in its JSON and in the metrics, and is none any more once it ends."""

import contextlib
import errno
import glob
import json
import os
import re
import shutil
import sqlite3

import faults
import test_full
import test_pool
from harness import BRISK, FILES, STAYING, SystemTest, larder, noise, refusal

PACKS = {**BRISK, "migrate.pack_size": "700 kB"}


def rot_in(folder, kind, body):
    """Flips a bit in the middle of an object of that body in the one file of that kind below `folder`."""
    [path] = glob.glob(os.path.join(folder, "**", f"*.{kind}"), recursive=True)
    with open(path, "r+b") as file:
        found = file.read().index(body[len(body) // 2 :][:64])
        file.seek(found)
        file.write(bytes([body[len(body) // 2] ^ 1]))


class Warnings(SystemTest):
    def drive(self, server, *words):
        return larder("drive", *words, "--data", server.data)

    def place(self, server, drive):
        return os.path.join(server.data, "drives", f"{drive:04}")

    def renewed(self, server, drive):
        """An empty directory is in the place of the drive."""
        shutil.rmtree(self.place(server, drive), ignore_errors=True)
        os.mkdir(self.place(server, drive))

    def again(self, server, settings=None, environment=None):
        """The same server, started anew."""
        self.assertEqual(server.stop(), 0)
        if settings:
            self.configure(server.data, settings)
        return self.serve(server.data, environment)

    def cold(self, count=4, settings=None):
        """A server on nas8 with objects that are cold; gives these as well, and the drives of the first."""
        server = self.rack("nas8", settings or PACKS)
        objects = {f"k{n}": noise(300_000, n) for n in range(count)}
        server.filled(objects)
        server.until_cold()
        return server, objects, [drive["drive"] for drive in server.explain("pantry", "k0")["place"]["drives"]]

    def shim(self):
        if faults.why_not():
            self.skipTest(faults.why_not())
        return faults.Faults(self.root)


class InTheWorkshop(Warnings):
    def test_staged_files_that_are_missing_or_damaged(self):
        server = self.rack(settings={**STAYING, **FILES})
        objects = {f"k{n}": noise(70_000, n) for n in range(3)}
        server.filled(objects)
        self.warns(server, "staged_stays")
        slots = {key: server.explain("pantry", key)["place"]["slots"][0] for key in objects}
        path = {key: os.path.join(server.data, "workshop", "staged", f"s-{slot:016x}") for key, slot in slots.items()}
        self.assertEqual(server.stop(), 0)
        os.rename(path["k0"], os.path.join(self.root, "k0"))
        with open(path["k1"], "r+b") as file:
            file.seek(60_000)
            file.write(b"rotten")
        self.configure(server.data, {**BRISK})
        server = self.serve(server.data)
        self.warns(server, "staged_missing", "quarantined")
        self.assertEqual(server.stop(), 0)
        os.rename(os.path.join(self.root, "k0"), path["k0"])
        server = self.serve(server.data)
        server.client().put_object(Bucket="pantry", Key="k1", Body=objects["k1"])
        server.until_migrated()
        self.is_calm(server, "staged_missing", "quarantined", "staged_stays")
        self.reads(server.client(), "pantry", objects)

    def test_a_small_object_that_rots_in_a_shelf(self):
        server = self.rack("nas8", {**STAYING, "workshop.check_every": "3 s"})
        objects = {f"k{n}": noise(9_000, n) for n in range(4)}
        server.filled(objects)
        # The log becomes a shelf.
        server = self.again(server)
        self.is_calm(server, "quarantined", "staged_missing")
        rot_in(os.path.join(server.data, "workshop", "intake"), "shelf", objects["k2"])
        [said] = self.warns(server, "quarantined")
        self.assertIn("1 object is in quarantine, since not every byte can be read: pantry/k2.", said)
        self.assertGreaterEqual(server.ask("GET", "/pantry/k2")[0], 500)
        self.reads(server.client(), "pantry", {key: body for key, body in objects.items() if key != "k2"})
        # It is not forgotten with the next start.
        server = self.again(server)
        self.warns(server, "quarantined")
        server.client().put_object(Bucket="pantry", Key="k2", Body=objects["k2"])
        self.is_calm(server, "quarantined")
        self.reads(server.client(), "pantry", objects)

    def test_a_disk_without_room(self):
        shim = self.shim()
        server = self.serve(self.made(**STAYING, **FILES), shim.environment())
        server.filled({"kept": noise(70_000, 1)})
        shim.arm("fail", [("create", "/staged/s-", 1)], faults.FOREVER, errno.ENOSPC)
        self.assertGreaterEqual(server.ask("PUT", "/pantry/new", body=b"n" * 70_000)[0], 500)
        self.warns(server, "disk_full")
        shim.disarm()
        server.client().put_object(Bucket="pantry", Key="new", Body=b"n" * 70_000)
        self.is_calm(server, "disk_full")
        shim.arm("fail", [("write", "/intake/", 1)], faults.FOREVER, errno.ENOSPC)
        self.assertGreaterEqual(server.ask("PUT", "/pantry/more", body=b"n" * 70_000)[0], 500)
        self.warns(server, "disk_full")
        shim.disarm()
        server.client().put_object(Bucket="pantry", Key="more", Body=b"n" * 70_000)
        self.is_calm(server, "disk_full")


class OfTheCatalog(Warnings):
    def test_one_that_takes_no_changes_since_a_sync_failed(self):
        shim = self.shim()
        server = self.serve(self.made(**STAYING), shim.environment())
        server.filled({"kept": noise(70_000, 1)})
        shim.arm("fail", [("sync", "/intake/", 1)])
        self.assertGreaterEqual(server.ask("PUT", "/pantry/new", body=b"x" * 5000)[0], 500)
        self.warns(server, "catalog_stopped")
        server.kill()
        self.is_calm(self.serve(server.data), "catalog_stopped")

    def test_a_journal_that_cannot_be_written(self):
        shim = self.shim()
        data = self.made(**STAYING)
        shim.arm("fail", [("create", "/journal/", 1)], faults.FOREVER, errno.ENOSPC)
        server = self.serve(data, shim.environment())
        server.filled({"k": b"kept"})
        self.warns(server, "journal_behind")
        shim.disarm()
        server = self.again(server)
        self.is_calm(server, "journal_behind")
        # What is no directory takes no journal at all.
        self.assertEqual(server.stop(), 0)
        journal = os.path.join(data, "workshop", "journal")
        os.rename(journal, os.path.join(self.root, "journal"))
        with open(journal, "wb"):
            pass
        server = self.serve(data)
        self.warns(server, "journal_missing")
        self.assertEqual(server.stop(), 0)
        os.remove(journal)
        os.rename(os.path.join(self.root, "journal"), journal)
        self.is_calm(self.serve(data), "journal_missing", "journal_behind")

    def test_a_copy_that_does_not_come_to_drives(self):
        shim = self.shim()
        data = self.made("nas8", **PACKS, **{"journal.wake_after": "1 s"})
        shim.arm("fail", [("create", ".stack", 1)], faults.FOREVER, errno.EIO)
        server = self.serve(data, shim.environment())
        server.client().create_bucket(Bucket="pantry")
        self.warns(server, "catalog_copy_behind")
        shim.disarm()
        server = self.again(server)
        server.until("the drives have a copy", lambda status: status["journal"]["on_drives"])
        self.is_calm(server, "catalog_copy_behind")
        # Nothing else is on drives; of each blob two of three stacks are removed, and no new copy can be made.
        self.assertEqual(server.stop(), 0)
        blobs = {}
        for path in server.stacks():
            blobs.setdefault(os.path.basename(path).split(".")[0], []).append(path)
        for stacks in blobs.values():
            for path in stacks[:2]:
                os.remove(path)
        shim.arm("fail", [("create", ".stack", 1)], faults.FOREVER, errno.EIO)
        server = self.serve(data, shim.environment())
        self.assertEqual(larder("scrub", "start", "--data", data).returncode, 0)
        self.warns(server, "catalog_copy_lost")
        shim.disarm()
        server = self.again(server)
        self.is_calm(server, "catalog_copy_lost")

    def test_logs_that_are_kept_until_the_catalog_is_whole_again(self):
        server = self.rack("nas8", {**STAYING})
        objects = {f"k{n}": noise(20_000, n) for n in range(3)}
        server.filled(objects)
        self.assertEqual(server.stop(), 0)
        catalog = os.path.join(server.data, "catalog.db")
        shutil.copy(catalog, os.path.join(self.root, "whole"))
        with contextlib.closing(sqlite3.connect(catalog)) as damaged:
            [[key]] = damaged.execute("SELECT k FROM kv WHERE k >= X'4f' AND k < X'50' ORDER BY k LIMIT 1").fetchall()
            damaged.execute("DELETE FROM kv WHERE k = ?", (key,))
            damaged.commit()
        # Or it would be made again from there.
        shutil.rmtree(os.path.join(server.data, "workshop", "journal"))
        server = self.serve(server.data)
        self.warns(server, "catalog_incomplete")
        # Each start makes a shelf of the log before it, and keeps that.
        for number in range(33):
            objects[f"more{number:02}"] = noise(5_000, f"more{number}")
            server.client().put_object(Bucket="pantry", Key=f"more{number:02}", Body=objects[f"more{number:02}"])
            server.kill()
            server = self.serve(server.data)
        [said] = self.warns(server, "pool_logs_kept")
        self.assertIn("put the newest catalog back", said)
        # What was put meanwhile comes from the logs that were kept.
        self.assertEqual(server.stop(), 0)
        shutil.copy(os.path.join(self.root, "whole"), catalog)
        server = self.serve(server.data)
        self.is_calm(server, "pool_logs_kept", "catalog_incomplete")
        self.reads(server.client(), "pantry", objects)


class InTheRack(Warnings):
    small_rack = test_full.FullRack.small_rack

    def test_a_rebuild_that_cannot_happen_is_refused_and_said(self):
        server, objects, drives = self.cold()
        self.drive(server, "fail", drives[0])
        server.until("it is rebuilt", lambda s: [r["left_bytes"] for r in s["rebuilds"]] == [0])
        self.assertNotIn("rebuild_impossible", server.status()["conditions"])
        said = refusal(self.drive(server, "fail", drives[1]))
        self.assertIn(f"without drive {drives[1]}, group ", said)
        self.assertIn("would have 2 drives in service, and blobs have 3 stacks", said)
        self.assertIn("--force", said)
        forced = self.drive(server, "fail", drives[1], "--force").stdout
        self.assertRegex(forced, "its data cannot be rebuilt before `larder drive replace`, since group . lacks 1 ")
        [warning] = self.warns(server, "rebuild_impossible")
        self.assertIn(f"drive {drives[1]} cannot be rebuilt: 1 drive is lacking", warning)
        shown = larder("status", "--data", server.data).stdout
        self.assertRegex(shown, f"drive {drives[1]} failed; .* left, which cannot be rebuilt now\n")
        self.reads(server.client(), "pantry", objects)
        self.renewed(server, drives[0])
        # It waits by itself until the group sleeps.
        replaced = self.drive(server, "replace", drives[0])
        self.assertIn(f"drive {drives[0]} is now a different, empty drive", replaced.stdout, replaced.stderr)
        self.is_calm(server, "rebuild_impossible")
        server.until("all is rebuilt", lambda s: all(r["left_bytes"] == 0 for r in s["rebuilds"]))
        self.reads(server.client(), "pantry", objects)

    def test_a_rebuild_that_cannot_happen_is_refused_without_a_server_as_well(self):
        data = self.made("nas8")
        fail = lambda drive, *words: larder("drive", "fail", drive, "--data", data, *words)
        [first, second, *_] = json.loads(larder("plan", "nas8", "--json").stdout)["groups"][0]
        self.assertIn("is rebuilt in group 0 after the next start", fail(first).stdout)
        self.assertIn("group 0 would have 2 drives in service", refusal(fail(second)))
        self.assertIn("since group 0 lacks 1 drive", fail(second, "--force").stdout)
        self.assertEqual(fail(second).returncode, 0, "it is given up already")

    def test_a_failed_drive_whose_group_has_no_room_to_rebuild_it(self):
        server = self.rack(self.small_rack("25 MB"), {**BRISK, "migrate.pack_size": "5 MB"})
        # At most 12 have room in a group of four drives, and at least 11 are in the fuller one.
        objects = {f"{n:02}": noise(5_000_000, n) for n in range(22)}
        server.filled(objects)
        server.until_cold()
        groups = {}
        for key in objects:
            groups.setdefault(server.explain("pantry", key)["place"]["group"], []).append(key)
        group, [kept, *others] = max(groups.items(), key=lambda found: len(found[1]))
        drive = server.explain("pantry", kept)["place"]["drives"][0]["drive"]
        self.assertEqual(self.drive(server, "fail", drive).returncode, 0)
        [said] = self.warns(server, "rebuild_waits")
        lacks = f"wait for room: no other drive of group {group} that is there has enough; delete objects"
        self.assertRegex(said, f"^drive {drive} cannot be rebuilt yet: [0-9]+ blobs {lacks}")
        for key in others:
            server.client().delete_object(Bucket="pantry", Key=key)
        # No client wakes the group.
        self.is_calm(server, "rebuild_waits")
        server.until("all is rebuilt", lambda s: all(r["left_bytes"] == 0 for r in s["rebuilds"]))
        self.reads(self.again(server).client(), "pantry", {kept: objects[kept]})

    def test_drives_that_are_away_and_blobs_that_are_lost(self):
        server, objects, drives = self.cold()
        self.assertEqual(server.stop(), 0)
        os.rename(self.place(server, drives[1]), os.path.join(self.root, "away"))
        self.assertEqual(self.drive(server, "fail", drives[0]).returncode, 0)
        server = self.serve(server.data)
        said = self.warns(server, "drive_away", "drive_stays_away", "drive_unusable", "rebuild_waits")
        self.assertIn("wait", said[0])
        os.rename(os.path.join(self.root, "away"), self.place(server, drives[1]))
        self.assertEqual(server.stop(), 0)
        server = self.serve(server.data)
        self.is_calm(server, "drive_away", "drive_stays_away", "drive_unusable", "rebuild_waits")
        server.until("it is rebuilt", lambda s: [r["left_bytes"] for r in s["rebuilds"]] == [0])
        self.assertEqual(server.stop(), 0)
        # Without a server nothing is rebuilt between the two.
        held = [drive for drive in range(8) if any(server.stacks([drive])) and drive != drives[0]]
        for drive in held[:2]:
            self.assertEqual(self.drive(server, "fail", drive, "--force").returncode, 0)
        server = self.serve(server.data)
        self.warns(server, "blobs_lost")
        for key in objects:
            server.client().delete_object(Bucket="pantry", Key=key)
        self.is_calm(server, "blobs_lost")

    def test_rot_that_a_read_or_a_scrub_finds(self):
        server, _, _ = self.cold(1)
        [first, second, _] = server.stacks()
        for path in (first, second):
            with open(path, "r+b") as stack:
                stack.seek(8192)
                stack.write(bytes(200_000))
        server = self.again(server)
        self.assertGreaterEqual(server.ask("GET", "/pantry/k0")[0], 500)
        self.warns(server, "reads_lost")
        self.assertEqual(larder("scrub", "start", "--data", server.data).returncode, 0)
        self.warns(server, "scrub_lost")
        # It is not forgotten with the next pass or start.
        server = self.again(server)
        self.warns(server, "scrub_lost")
        server.client().delete_object(Bucket="pantry", Key="k0")
        self.is_calm(server, "scrub_lost", "reads_lost")

    def test_a_damaged_stack_that_cannot_be_repaired_yet(self):
        shim = self.shim()
        server, objects, _ = self.cold(1)
        [gone, _, _] = server.stacks()
        self.assertEqual(server.stop(), 0)
        os.remove(gone)
        folder = os.path.dirname(gone)[-len("drives/0000"):]
        shim.arm("fail", [("create", folder, 1)], faults.FOREVER, errno.ENOSPC)
        server = self.serve(server.data, shim.environment())
        self.assertEqual(larder("scrub", "start", "--data", server.data).returncode, 0)
        self.warns(server, "stacks_damaged")
        shim.disarm()
        server.until_asleep()
        self.assertEqual(larder("scrub", "start", "--data", server.data).returncode, 0)
        self.is_calm(server, "stacks_damaged")
        self.reads(server.client(), "pantry", objects)

    def test_scrubs_that_are_paused(self):
        server, _, _ = self.cold(1)
        for _ in range(2):
            self.assertEqual(larder("scrub", "pause", "--data", server.data).returncode, 0)
            self.warns(server, "scrub_paused")
            self.assertEqual(larder("scrub", "resume", "--data", server.data).returncode, 0)
            self.is_calm(server, "scrub_paused")

    def test_a_scrub_that_does_not_end_within_its_period(self):
        server, _, _ = self.cold(1)
        server = self.again(server, {**PACKS, "scrub.period": "5 min", "scrub.starts_per_day": 0})
        [said] = self.warns(server, "scrub_overdue")
        self.assertIn("starts_per_day", said)
        server = self.again(server, {**PACKS, "scrub.period": "1 h", "scrub.starts_per_day": 100})
        self.is_calm(server, "scrub_overdue")

    def test_blobs_that_the_loss_of_one_tray_would_cost(self):
        with open(os.path.join(test_pool.RACKS, "nas8.toml"), encoding="utf-8") as file:
            rack = file.read()
        # A group has two drives in the first tray, and one in each of the others.
        trays = [0, 0, 1, 2, 0, 0, 1, 2]
        of_drive = iter(trays)
        in_tray = lambda of: f"fails_with = {{ {of[1]}, tray = {next(of_drive)} }}"
        rack = re.sub(r"fails_with = \{ (.*) \}", in_tray, rack)
        path, domain = os.path.join(self.root, "trays.toml"), "[failure_domains.tray]\nloses_media = true\n\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(rack.replace("[failure_domains.drive]", domain + "[failure_domains.drive]"))
        server = self.rack(path, PACKS)
        server.until_asleep()
        server.filled({"whole": noise(300_000, 1)})
        server.until_cold()
        self.assertNotIn("blobs_crowded", server.status()["conditions"])
        groups = {}
        for drive in json.loads(self.drive(server, "list", "--json").stdout):
            groups.setdefault(drive["group"], []).append(drive["drive"])
        away = [next(drive for drive in drives if trays[drive]) for drives in groups.values()]
        for drive in away:
            os.rename(self.place(server, drive), os.path.join(self.root, f"away-{drive}"))
        server.filled({"crowded": noise(300_000, 2)})
        [said] = self.warns(server, "blobs_crowded")
        self.assertIn("bring those back, and write the objects again", said)
        for drive in away:
            os.rename(os.path.join(self.root, f"away-{drive}"), self.place(server, drive))
        server = self.again(server)
        self.is_calm(server, "blobs_crowded")


class OfThePool(Warnings):
    description = test_pool.Pool.description

    def pooled(self, drives):
        return self.made(self.description([None] * drives), **{**STAYING, "intake.below": "1 MiB"})

    def test_a_pool_that_was_made_with_too_few_drives_for_two_copies(self):
        data = self.pooled(4)
        server = self.serve(data)
        self.assertNotIn("pool_one_copy", server.status()["conditions"])
        self.assertEqual(server.stop(), 0)
        shutil.copy(self.description([None] * 6), os.path.join(data, "rack.toml"))
        for drive in (4, 5):
            place = os.path.join(data, "pool", f"{drive:04}")
            os.mkdir(place)
            with open(os.path.join(place, "intake.join"), "wb"):
                pass
        server = self.serve(data)
        [said] = self.warns(server, "pool_one_copy")
        self.assertIn("one of 6 drives", said)
        self.assertNotIn("pool_drive_missing", server.status()["conditions"])

    def test_a_damaged_shelf_that_has_the_only_copy(self):
        server = self.serve(self.pooled(4))
        objects = {f"k{n}": noise(9_000, n) for n in range(4)}
        server.filled(objects)
        # The log becomes a shelf.
        server = self.again(server)
        self.is_calm(server, "pool_lost", "staged_missing")
        self.assertEqual(server.stop(), 0)
        rot_in(os.path.join(server.data, "pool"), "shelf", objects["k2"])
        server = self.serve(server.data)
        [said] = self.warns(server, "staged_missing", "pool_lost")
        self.assertIn(": 1; the log names them", said)
        self.assertRegex(server.log(), r"the intake lost version \d+ of the key .*k2")
        self.assertGreaterEqual(server.ask("GET", "/pantry/k2")[0], 500)
        self.reads(server.client(), "pantry", {key: body for key, body in objects.items() if key != "k2"})
        server.client().put_object(Bucket="pantry", Key="k2", Body=objects["k2"])
        server.until("it is another shelf", lambda _: "a damaged shelf was written anew" in server.log(), 20)
        server = self.again(server)
        self.is_calm(server, "pool_lost", "staged_missing")
        self.reads(server.client(), "pantry", objects)

    def test_a_damaged_log_that_has_the_only_copy(self):
        server = self.serve(self.pooled(4))
        objects = {f"k{n}": noise(9_000, n) for n in range(4)}
        server.filled(objects)
        server.kill()
        rot_in(os.path.join(server.data, "pool"), "log", objects["k2"])
        server = self.serve(server.data)
        [said] = self.warns(server, "staged_missing", "pool_lost")
        self.assertIn(": 1; the log names them", said)
        self.assertGreaterEqual(server.ask("GET", "/pantry/k2")[0], 500)
        self.reads(server.client(), "pantry", {key: body for key, body in objects.items() if key != "k2"})
        is_shelf = lambda status: any(drive["shelf_bytes"] for drive in status["intake"]["drives"])
        server.until("the log is a shelf", is_shelf)
        # So the next start finds no loss, but for the object that is missing.
        server = self.again(server)
        self.is_calm(server, "pool_lost")
        self.warns(server, "staged_missing")
        self.assertGreaterEqual(server.ask("GET", "/pantry/k2")[0], 500)
        server.client().put_object(Bucket="pantry", Key="k2", Body=objects["k2"])
        server = self.again(server)
        self.is_calm(server, "pool_lost", "staged_missing")
        self.reads(server.client(), "pantry", objects)

    def test_a_rotation_that_cannot_be_brought_up_to_the_other_one(self):
        shim = self.shim()
        data = self.pooled(6)
        server = self.serve(data)
        objects = {f"{number:03}": noise(5_000, number) for number in range(40)}
        server.filled(objects)
        server.kill()
        server = self.serve(data)
        shelves = lambda: glob.glob(os.path.join(data, "pool", "*", "*.shelf"))
        server.until("each rotation has a shelf", lambda _: len(shelves()) == 2)
        self.assertEqual(server.stop(), 0)
        # Nothing of it can be read.
        with open(shelves()[0], "r+b") as shelf:
            shelf.write(bytes(os.path.getsize(shelf.name)))
        shim.arm("fail", [("create", ".new", 1)], faults.FOREVER, errno.ENOSPC)
        server = self.serve(data, shim.environment())
        self.warns(server, "pool_incomplete")
        self.reads(server.client(), "pantry", objects)
        shim.disarm()
        server = self.again(server)
        self.is_calm(server, "pool_incomplete")
        self.reads(server.client(), "pantry", objects)


class AtTheFirstStart(SystemTest):
    def test_a_new_rack_logs_no_warning(self):
        # A group sleeps as soon as its drives are mounted, so that some of these are asked for their health too late.
        server = self.quickstart("--time-scale", "200", "--idle-timeout", "1 s")
        server.until_asleep()
        self.assertGreaterEqual(server.totals()["drive_starts"], 1152, "each drive was mounted")
        self.assertEqual([line for line in server.log().splitlines() if " INFO " not in line], [])
