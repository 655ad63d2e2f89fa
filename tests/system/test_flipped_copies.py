"""One byte flipped in a file from which something is made again: copies of the catalog on drives and in a file, its
journal when the catalog is lost, a pool of six drives with two copies, a spare. Nothing wrong is ever answered; what
another copy has is there in the end."""

import json
import os
import random
import shutil
import unittest

import faults
import test_pool
import test_recover
from harness import SystemTest, larder, noise, refusal
from test_flipped_bytes import flip, largest, under
from test_kill_repairs import Steps
from test_recover import COPYING, lose

NEAR_ENDS = (1, -2)


def places(path, count=2):
    """Near both ends of the file, and so many between."""
    size, chance = os.path.getsize(path), random.Random(os.path.basename(path))
    return sorted({*(at % size for at in NEAR_ENDS), *(chance.randrange(size) for _ in range(count))})


class Copies(SystemTest):
    copies, on_drives = test_recover.Recover.copies, test_recover.Recover.on_drives

    def case(self, origin):
        data = os.path.join(self.root, "case")
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(origin, data, ignore=shutil.ignore_patterns("admin.sock"))
        return data

    def copied(self):
        """A stopped rack, all of whose catalog is on drives, and in a file."""
        server = self.rack("nas8", COPYING)
        objects = {f"{n:02}": noise(60_000 + n, n) for n in range(12)}
        client = server.filled(objects)
        server.until_cold()
        client.put_object_tagging(Bucket="pantry", Key="02", Tagging={"TagSet": [{"Key": "n", "Value": "new"}]})
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        self.on_drives(server)
        backup = os.path.join(self.root, "backup")
        self.assertEqual(larder("catalog", "backup", backup, "--data", server.data).returncode, 0)
        self.assertEqual(server.stop(), 0)
        return server.data, objects, backup

    def is_all_there(self, data, objects, tagged=True):
        server = self.serve(data)
        client = server.client()
        self.reads(client, "pantry", objects)
        if tagged:
            tags = client.get_object_tagging(Bucket="pantry", Key="02")["TagSet"]
            self.assertEqual(tags, [{"Key": "n", "Value": "new"}])
        server.until_asleep()
        for _ in range(2):  # a pass that repairs, and one that finds nothing
            found = self.verified(data, "--deep")
            server.until_asleep()
        self.assertEqual([finding["what"] for finding in found["findings"]], [])
        self.assertEqual(server.stop(), 0)

    def test_a_stack_of_a_copy_on_drives(self):
        origin, objects, _ = self.copied()
        number = max(self.copies(origin))
        at = [20, 4096 + 60, os.path.getsize(self.copies(origin)[number][0]) - 4096 + 30]
        for stack, place in zip(range(3), at):
            with self.subTest(stack=stack, at=place):
                data = self.case(origin)
                flip(self.copies(data)[number][stack], place)
                lose(data, "workshop")
                said = larder("recover", "--data", data, "--json")
                self.assertEqual(said.returncode, 0, said.stderr)
                report = json.loads(said.stdout)
                self.assertEqual((report["base"]["source"], report["base"]["damaged"]), ("drives", 0))
                self.is_all_there(data, objects)

    def test_a_backup(self):
        origin, objects, backup = self.copied()
        for place in places(backup):
            with self.subTest(at=place):
                data = self.case(origin)
                flip(backup, place)
                lose(data, "workshop")
                said = larder("recover", "--from", backup, "--data", data)
                self.assertEqual(said.returncode, 1, said.stdout)
                self.assertIn(f"{backup}: ", said.stderr)
                self.assertFalse(os.path.exists(os.path.join(data, "catalog.db")))
                # The drives have copies, too.
                self.assertEqual(larder("recover", "--data", data).returncode, 0)
                flip(backup, place)
                self.is_all_there(data, objects)

    def test_the_journal_of_a_catalog_that_is_lost(self):
        origin, objects, backup = self.copied()
        for match in (r"\.snapshot$", r"\.journal$"):
            path = os.path.relpath(largest(under(origin, "workshop", "journal", match=match)), origin)
            for place in places(os.path.join(origin, path), 1):
                with self.subTest(file=path, at=place):
                    data = self.case(origin)
                    flip(os.path.join(data, path), place)
                    lose(data)
                    said = larder("recover", "--data", data)
                    if said.returncode:
                        # It says what is damaged, and makes nothing of it; a copy elsewhere does.
                        self.assertIn("journal", said.stderr)
                        said = larder("recover", "--from", backup, "--data", data)
                    self.assertEqual(said.returncode, 0, said.stderr)
                    self.is_all_there(data, objects, tagged=False)

    def test_a_copy_on_drives_that_is_lost_is_made_anew(self):
        """Two of its three stacks are gone: a scrub finds that, and the drives have all of the catalog again."""
        origin, objects, _ = self.copied()
        gone = self.copies(origin)
        for stacks in gone.values():
            for stack in stacks[:2]:
                os.remove(stack)
        server = self.serve(origin)
        larder("scrub", "start", "--data", origin)
        made = "another copy is on drives"
        server.until(made, lambda status: status["journal"]["on_drives"] and set(self.copies(origin)) - set(gone), 120)
        report = json.loads(larder("scrub", "status", "--data", origin, "--json").stdout)
        self.assertEqual(report["lost_objects"], [], "no object of anybody is lost")
        self.assertEqual(json.loads(larder("drive", "lost", "--data", origin, "--json").stdout)["objects"], [])
        server.until("the lost one is not missed", lambda status: not any("copies of" in w for w in status["warnings"]))
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        lose(origin, "workshop")
        report = json.loads(larder("recover", "--data", origin, "--json").stdout)
        self.assertEqual((report["base"]["source"], report["base"]["damaged"]), ("drives", 0))
        self.is_all_there(origin, objects)


class Pools(SystemTest):
    description, pooled = test_pool.Pool.description, test_pool.Pool.pooled

    def test_a_pool_of_six_has_the_other_copy(self):
        origin = self.pooled([None] * 6)
        server = self.serve(origin)
        # More than the first logs hold, so that there are shelves.
        objects = {f"{n:03}": noise(400_000, n) for n in range(110)}
        server.filled(objects)
        server.until("there is a shelf", lambda _: under(origin, "pool", match=r"\.shelf$"))
        server.kill()
        for match in (r"\.log$", r"\.shelf$", "^intake.pool$"):
            path = os.path.relpath(largest(under(origin, "pool", match=match)), origin)
            for place in places(os.path.join(origin, path), 1):
                with self.subTest(file=path, at=place):
                    self.flipped(origin, objects, path, place)

    def flipped(self, origin, objects, path, place):
        data = os.path.join(self.root, "case")
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(origin, data, ignore=shutil.ignore_patterns("admin.sock"))
        flip(os.path.join(data, path), place)
        try:
            server = self.serve(data)
        except AssertionError:
            # Only a label may keep it from starting: it says which drive, and starts without that one.
            self.assertIn("intake.pool", path)
            said = refusal(larder("serve", "--data", data, "--port", 0))
            self.assertIn("is damaged", said)
            shutil.rmtree(os.path.dirname(os.path.join(data, path)))
            server = self.serve(data)
        self.reads(server.client(), "pantry", objects)
        self.assertEqual(server.stop(), 0)
        self.reads(self.serve(data).client(), "pantry", objects)
        self.servers[-1].kill()


@unittest.skipIf(faults.why_not(), faults.why_not())
class Spares(Steps):
    def test_a_spare_that_a_kill_has_left(self):
        self.base()
        self.case("spare")
        self.scrub_breaks()
        self.start(with_faults=True)
        self.faults.arm("before", [("rename", ".stack", 1)])
        self.scrub_begins()
        self.until_killed(self.server.process, "a spare is not in its place")
        [spare] = under(self.data, "drives", match=r"\.spare$")
        flip(spare, 5_000)
        self.start()
        self.all_read("a flipped spare")
        self.scrub_begins()
        self.scrub_ends()
        self.all_read("a flipped spare")
        self.assertEqual(under(self.data, "drives", match=r"\.spare$"), [])
        self.is_whole("a flipped spare")


if __name__ == "__main__":
    unittest.main()
