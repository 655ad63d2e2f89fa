"""Drives and disks that go bad in ways that a missing directory is not: read-only, full, cloned, an old copy of
themselves, two and four at once; a full disk under the workshop; and kills in the middle of repairing."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

import faults
import test_pool
from harness import BINARY, BRISK, FILES, STAYING, SystemTest, larder, noise
from test_degraded import Racks
from test_recover import lose

SETTINGS = {**BRISK, "migrate.pack_size": "700 kB"}


class BadDrives(Racks):
    def filled(self, server, count, prefix="k"):
        objects = {f"{prefix}{n:02}": noise(250_000 + 977 * n, f"{prefix}{n}") for n in range(count)}
        client = server.client()
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        return objects

    def is_whole(self, data, objects):
        """Beside the server, after a pass that repairs, and without it."""
        server = self.servers[-1]
        server.until_cold()
        self.verified(data, "--deep")
        server.until_cold()
        found = self.verified(data, "--deep")
        self.assertEqual([finding["what"] for finding in found["findings"]], [])
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        found = self.verified(data, "--deep")
        self.assertEqual([finding["what"] for finding in found["findings"]], [])

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_drive_that_is_read_only_or_full_is_written_around(self):
        for error in (errno.EROFS, errno.ENOSPC):
            with self.subTest(error=errno.errorcode[error]):
                self.root = os.path.join(self.root, errno.errorcode[error])
                os.mkdir(self.root)
                shim = faults.Faults(self.root)
                data = self.made("nas8", **SETTINGS)
                server = self.serve(data, shim.environment())
                server.client().create_bucket(Bucket="pantry")
                objects = self.filled(server, 6)
                server.until_cold()
                drive = server.explain("pantry", "k00")["place"]["drives"][0]["drive"]
                shim.arm("fail", [("create", f"drives/{drive:04}/", 1)], faults.FOREVER, error)
                objects |= self.filled(server, 6, "more")
                server.until_migrated()
                self.assertGreater(shim.hits(), 0, "it was tried")
                why = "the file system is read-only" if error == errno.EROFS else "it has no room"
                said = self.warns(server, "drive_takes_no_writes")
                self.assertRegex(" ".join(said), f"drive {drive} \\(.*{why}\\)")
                self.all_read(server, objects)
                placed = [server.explain("pantry", key)["place"]["drives"] for key in objects if key[0] == "m"]
                self.assertFalse(any(one["drive"] == drive for drives in placed for one in drives))
                shim.disarm()
                self.is_whole(data, objects)
                self.root = os.path.dirname(self.root)

    def test_a_drive_in_the_place_of_which_is_a_clone_of_another_is_left_alone_and_the_rest_serves(self):
        data, objects, drives = self.cold("nas8")
        one, clone = self.place(data, drives[0]), self.place(data, drives[1])
        os.rename(clone, clone + ".aside")
        shutil.copytree(one, clone)
        before = sorted(os.listdir(clone))
        server = self.serve(data)
        self.all_read(server, objects)
        found = self.verified(data, "--wake")["findings"]
        unusable = [finding for finding in found if finding["kind"] == "drive-unusable"]
        self.assertEqual([finding["drive"] for finding in unusable], [drives[1]])
        self.assertIn(f"the drive is d{drives[0]} of this rack", unusable[0]["what"])
        self.assertEqual(sorted(os.listdir(clone)), before, "nothing is written to it")
        self.assertEqual(server.stop(), 0)
        shutil.rmtree(clone)
        os.rename(clone + ".aside", clone)
        self.serve(data)
        self.is_whole(data, objects)

    def test_a_drive_that_is_an_old_copy_of_itself_gets_what_it_lacks(self):
        data, objects, drives = self.cold("nas8", 4, {**SETTINGS, "placement.group_choice": "random"})
        path = self.place(data, drives[0])
        shutil.copytree(path, path + ".old")
        server = self.serve(data)
        server.client().delete_object(Bucket="pantry", Key="k01")
        del objects["k01"]
        for turn in range(8):
            # Of two groups one is drawn for every pack.
            objects |= self.filled(server, 8, f"later{turn}")
            server.until_cold()
            if set(os.listdir(path)) - set(os.listdir(path + ".old")):
                break
        else:
            self.fail("no pack went to the group of the drive")
        self.assertEqual(server.stop(), 0)
        shutil.rmtree(path)
        os.rename(path + ".old", path)
        server = self.serve(data)
        self.all_read(server, objects)
        kinds = {finding["kind"] for finding in self.verified(data, "--wake")["findings"]}
        self.assertEqual(kinds - {"unknown", "orphan"}, {"stack-bad"})
        larder("scrub", "start", "--data", data)
        server.until("its stacks are regenerated", lambda _: not self.missing(data), timeout=120)
        # Stacks of blobs that were deleted since are no use to anybody: verify says that they may be removed.
        for finding in self.verified(data, "--wake")["findings"]:
            self.assertIn(finding["kind"], ("orphan", "unknown"), finding)
            os.remove(os.path.join(self.place(data, finding["drive"]), finding["file"]))
        self.is_whole(data, objects)

    def missing(self, data):
        found = self.verified(data, "--wake")["findings"]
        return [finding for finding in found if finding["kind"] == "stack-bad"]

    def test_two_drives_at_once_cost_nothing_and_four_what_more_than_r_of_them_hold(self):
        settings = {**SETTINGS, "placement.group_choice": "random", "max_wait": "60 s"}
        data, objects, drives = self.cold("pelican-mini", 16, settings)
        gone = drives[:4]
        for drive in gone[:2]:
            shutil.rmtree(self.place(data, drive))
        server = self.serve(data)
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        for drive in gone[2:]:
            shutil.rmtree(self.place(data, drive))
        server = self.serve(data)
        for drive in gone:
            self.does("fail", data, drive, "--force")
        parity = server.explain("pantry", "k00")["place"]["code_parity"]
        on = {key: [one["drive"] for one in server.explain("pantry", key)["place"]["drives"]] for key in objects}
        hit = {key for key, held in on.items() if len(set(held) & set(gone)) > parity}
        self.assertIn("k00", hit)
        lost = json.loads(larder("drive", "lost", "--data", data, "--json").stdout)
        self.assertEqual({one["key"] for one in lost["objects"]}, hit)
        found = self.verified(data, "--wake")
        named = {finding["object"] for finding in found["findings"] if finding["kind"] == "object-lost"}
        self.assertEqual(named, {f"s3://pantry/{key}" for key in hit})
        for key in hit:
            self.assertGreaterEqual(server.ask("GET", f"/pantry/{key}")[0], 500, key)
        self.all_read(server, {key: body for key, body in objects.items() if key not in hit})
        # The repair: write them again. What nobody wants any more goes at a wake.
        for key in hit:
            server.client().put_object(Bucket="pantry", Key=key, Body=objects[key])
        self.is_whole(data, objects)
        # A blob that lost no more than r stacks may find no room on the four drives that are left of its group.
        server = self.serve(data)
        left = lambda status: [rebuild for rebuild in status["rebuilds"] if rebuild["left_bytes"]]
        server.until("each unfinished rebuild is stuck", lambda status: all(one["stuck"] for one in left(status)))
        self.assertTrue(all(rebuild["lacks_drives"] == 2 for rebuild in left(server.status())))
        for drive in gone[:2]:
            os.mkdir(self.place(data, drive))
            self.does("replace", data, drive)
        self.until_rebuilt(server, *gone)
        self.is_whole(data, objects)


class FullDisk(SystemTest):
    def test_a_full_disk_under_the_workshop_refuses_what_does_not_fit_and_loses_nothing(self):
        disk = os.path.join(self.root, "disk")
        os.mkdir(disk)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], capture_output=True)
        if mounted.returncode:
            self.skipTest("a file system of 48 MB cannot be mounted here")
        self.addCleanup(lambda: subprocess.run(["umount", "-l", disk], check=True))
        data = self.made("nas8", **{**STAYING, **FILES, "workshop.capacity": "2 GB", "workshop.spool": "64 MB"})
        os.rmdir(os.path.join(data, "workshop")) if os.path.isdir(os.path.join(data, "workshop")) else None
        os.symlink(disk, os.path.join(data, "workshop"))
        server = self.serve(data)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects, refused = {}, []
        for n in range(14):
            body = noise(4_000_000, n)
            status, _, said = server.ask("PUT", f"/pantry/{n}", body=body)
            if status == 200:
                objects[str(n)] = body
            else:
                refused.append((status, said))
        self.assertTrue(refused and objects, "some fit and some do not")
        for status, said in refused:
            self.assertIn(status, (500, 503, 507), said)
        self.reads(client, "pantry", objects)
        self.assertEqual(self.verified(data)["findings"], [])
        for key in list(objects)[:4]:
            client.delete_object(Bucket="pantry", Key=key)
            del objects[key]
        server.until("there is room again", lambda _: server.ask("PUT", "/pantry/new", body=b"n" * 3_000_000)[0] == 200)
        objects["new"] = b"n" * 3_000_000
        self.reads(client, "pantry", objects)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.verified(data, "--deep")["findings"], [])


class CatalogGone(SystemTest):
    def test_a_catalog_that_is_deleted_or_cut_short_is_made_again(self):
        base = self.rack("nas8", SETTINGS)
        objects = {f"{n:02}": noise(60_000 + n, n) for n in range(12)}
        base.filled(objects)
        base.until_cold()
        base.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        objects["staged"] = b"staged"
        self.assertEqual(base.stop(), 0)
        self.configure(base.data, STAYING)
        base = self.serve(base.data)
        base.client().put_object(Bucket="pantry", Key="staged", Body=b"staged")
        self.assertEqual(base.stop(), 0)
        size = os.path.getsize(os.path.join(base.data, "catalog.db"))
        for left in (None, 0, size // 2, size - 100):
            with self.subTest(left=left):
                data = os.path.join(self.root, f"case-{left}")
                shutil.copytree(base.data, data)
                if left is None:
                    lose(data)
                else:
                    os.truncate(os.path.join(data, "catalog.db"), left)
                server = self.serve(data)
                self.reads(server.client(), "pantry", objects)
                if left != size - 100:
                    self.assertIn("the catalog was rebuilt from its journal and its log", server.log())
                server.kill()
                self.assertEqual(larder("recover", "--replace", "--data", data).returncode, 0)
                self.assertEqual(self.verified(data, "--deep")["findings"], [])
                server = self.serve(data)
                self.reads(server.client(), "pantry", objects)
                server.kill()

    def test_a_catalog_that_its_journal_does_not_lead_to_is_refused(self):
        server = self.rack("nas8", STAYING)
        server.filled({"staged": b"staged"})
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        self.assertEqual(server.stop(), 0)
        shutil.rmtree(os.path.join(server.data, "workshop", "journal"))
        lose(server.data)
        started = larder("serve", "--data", server.data, "--port", 0, timeout=20)
        self.assertEqual(started.returncode, 1, started.stderr)
        self.assertIn("larder recover", started.stderr)


class KilledMends(SystemTest):
    description, pooled = test_pool.Pool.description, test_pool.Pool.pooled

    def killed(self, command, seconds):
        """Runs a command and kills it after a while. True if it had not ended before."""
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL

    def test_a_recover_that_is_killed_is_begun_again(self):
        server = self.rack("nas8", SETTINGS)
        objects = {f"{n:02}": noise(60_000 + n, n) for n in range(60)}
        server.filled(objects)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        lose(server.data, "workshop")
        shutil.copytree(server.data, server.data + ".timed")
        began = time.monotonic()
        self.assertEqual(larder("recover", "--data", server.data + ".timed").returncode, 0)
        took = time.monotonic() - began
        kills = sum(self.killed([BINARY, "recover", "--data", server.data], took * share / 12) for share in range(12))
        self.assertGreater(kills, 0)
        report = larder("recover", "--data", server.data)
        if report.returncode:  # a kill came after the work was done
            self.assertIn("--replace", report.stderr)
        self.assertEqual(self.verified(server.data, "--deep")["findings"], [])
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", objects)

    def test_a_pool_that_lost_a_drive_is_killed_while_it_copies(self):
        data = self.pooled([None] * 6)
        server = self.serve(data)
        objects = {f"{n:03}": noise(200_000, n) for n in range(60)}
        server.filled(objects)
        dice = random.Random(1)
        for turn in range(4):
            if turn == 1:
                logging = next(d["place"] for d in server.status()["intake"]["drives"] if d["state"] == "logging")
                server.kill()
                shutil.rmtree(logging)
                server = self.serve(data)
            client = server.client()
            for n in range(40):
                key, body = f"{turn}/{n}", noise(300_000, f"{turn}/{n}")
                client.put_object(Bucket="pantry", Key=key, Body=body)
                objects[key] = body
            time.sleep(dice.random())
            server.kill()
            server = self.serve(data)
            self.reads(server.client(), "pantry", objects)
        self.assertEqual(server.status()["intake"]["losses"], 0)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.verified(data, "--deep")["findings"], [])
