"""Two servers on one set of drives: each drive belongs to one of them, and no object is lost."""

import os
import shutil
import stat

import test_pool
from harness import BRISK, OWNER, STAYING, SystemTest, larder, noise
from test_degraded import tree

SETTINGS = {**BRISK, "migrate.pack_size": "300 kB", "max_wait": "5 s"}
OTHER = "another server"
# The usual limit of open files.
USUAL = (1024, 1024)


class Owners(SystemTest):
    description = test_pool.Pool.description

    def two(self, rack="nas8", count=40, files=None):
        """A data directory with `count` objects in its rack, and a copy of it on the same drives; no server runs."""
        server = self.serve(self.made(rack, **SETTINGS), files=files)
        objects = {f"{n:02}": noise(60_000 + n, n) for n in range(count)}
        server.filled(objects)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        copy = os.path.join(self.root, "copy")
        shutil.copytree(server.data, copy, ignore=lambda _, names: [name for name in names if name == "drives"])
        os.symlink(os.path.join(server.data, "drives"), os.path.join(copy, "drives"))
        return server.data, copy, objects

    def reads_all(self, server, objects):
        client = server.client(retries={"total_max_attempts": 20, "mode": "standard"})
        self.reads(client, "pantry", objects)

    def marks(self, data):
        """The bytes of the marks of all drives."""
        found = {}
        for drive in sorted(os.listdir(os.path.join(data, "drives"))):
            path = os.path.join(data, "drives", drive, OWNER)
            if os.path.exists(path):
                with open(path, "rb") as mark:
                    found[drive] = mark.read()
        return found

    def is_refused(self, server):
        """Drives of the other server are not used; the status has the reason and the fix."""
        self.warns(server, "medium_foreign")
        warnings = [warning for warning in server.status()["warnings"] if OTHER in warning]
        fix = f"larder take-over --data {server.data}"
        self.assertEqual(len([warning for warning in warnings if fix in warning]), 1, warnings)
        self.assertGreater(len(warnings), 1, "each drive is named")

    def test_a_copy_that_is_served_beside_the_original_removes_nothing_and_leaves_the_drives_alone(self):
        data, copy, objects = self.two()
        first = self.serve(data)
        self.reads_all(first, objects)
        first.until_asleep()
        marks = self.marks(data)
        self.assertEqual(len(marks), 8, "a group of each drive was awake")
        stacks = sorted(first.stacks())
        second = self.serve(copy)
        client = second.client()
        for key in list(objects)[:29]:
            client.delete_object(Bucket="pantry", Key=key)
        self.fails(503, "ServiceUnavailable", client.get_object, Bucket="pantry", Key="35")
        self.is_refused(second)
        # It does not go on trying for ever: that would cost starts of drives that the other one needs.
        self.assertLessEqual(second.totals()["drive_starts"], 8)
        self.reads_all(first, objects)
        self.assertEqual(sorted(first.stacks()), stacks)
        self.assertEqual(self.marks(data), marks)
        self.assertEqual(first.status()["drives"]["away"], 0)
        # Offline commands follow the same rule.
        self.assertEqual(second.stop(), 0)
        found = larder("verify", "--data", copy, "--json", timeout=300)
        self.assertIn(OTHER, found.stdout)
        # One that the original has read from.
        drive = str(first.explain("pantry", "35")["place"]["drives"][0]["drive"])
        self.assertEqual(larder("drive", "fail", drive, "--force", "--data", copy).returncode, 0)
        refused = larder("drive", "replace", drive, "--data", copy)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn(f"larder take-over --data {copy}", refused.stderr)
        recovered = larder("recover", "--replace", "--data", copy, "--json", timeout=300)
        self.assertIn(OTHER, recovered.stdout + recovered.stderr)
        self.assertEqual(self.marks(data), marks)
        self.assertEqual(sorted(first.stacks()), stacks)
        self.reads_all(first, objects)
        self.assertEqual(first.stop(), 0)

    def test_a_copy_is_refused_on_a_rack_of_1152_drives_at_the_usual_limit_of_open_files(self):
        data, copy, objects = self.two("pelican", 12, USUAL)
        before = self.marks(data)
        self.assertEqual(len(before), 1152)
        first = self.serve(data, files=USUAL)
        self.reads_all(first, objects)
        first.until_asleep()
        marks, stacks = self.marks(data), sorted(first.stacks())
        mounted = {drive for drive, mark in marks.items() if mark != before[drive]}
        self.assertGreaterEqual(len(mounted), 24, "a group was awake")
        places = {key: first.explain("pantry", key)["place"] for key in objects}
        *deleted, asked = objects
        dead = {key for key in deleted if places[key]["group"] == places[asked]["group"]}
        self.assertGreater(len({places[key]["blob"] for key in dead}), 1, "blobs that the copy would remove")
        second = self.serve(copy, files=USUAL)
        for key in deleted:
            second.client().delete_object(Bucket="pantry", Key=key)
        self.fails(503, "ServiceUnavailable", second.client().get_object, Bucket="pantry", Key=asked)
        self.is_refused(second)
        away = set()

        def all_are_refused(_):
            away.update(f"{drive['drive']:04}" for drive in second.drives() if drive["state"] == "away")
            return len(away) >= 24

        second.until("all drives of the group are refused", all_are_refused)
        self.assertEqual((len(away), away - mounted), (24, set()), "no other drive is blamed")
        self.assertEqual(second.stop(), 0)
        # The original has forgotten what it recalled.
        self.assertEqual(first.stop(), 0)
        self.assertEqual((self.marks(data), sorted(first.stacks())), (marks, stacks))
        first = self.serve(data, files=USUAL)
        self.reads_all(first, objects)
        self.assertEqual(first.status()["drives"]["away"], 0)
        for server in (first, second):
            self.assertNotIn("Too many open files", server.log())

    def test_after_the_operators_word_the_copy_goes_on_as_an_older_directory_and_the_original_is_refused(self):
        data, copy, objects = self.two()
        first = self.serve(data)
        self.reads_all(first, objects)
        refused = larder("take-over", "--data", data)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("in use by process", refused.stderr)
        self.assertEqual(first.stop(), 0)
        self.assertEqual(larder("take-over", "--data", copy).returncode, 0)
        stacks = sorted(first.stacks())
        second = self.serve(copy)
        self.assertTrue(any("older than the rack" in warning for warning in second.status()["warnings"]))
        client = second.client()
        for key in list(objects)[:29]:
            client.delete_object(Bucket="pantry", Key=key)
        self.reads_all(second, {key: objects[key] for key in list(objects)[29:]})
        second.until_asleep()
        self.assertEqual(second.status()["drives"]["away"], 0)
        self.assertEqual(sorted(first.stacks()), stacks, "an older directory removes nothing")
        self.assertEqual(second.stop(), 0)
        first = self.serve(data)
        self.fails(503, "ServiceUnavailable", first.client().get_object, Bucket="pantry", Key="35")
        self.is_refused(first)
        self.assertEqual(first.stop(), 0)

    def test_a_server_that_starts_again_and_again_knows_its_drives_and_its_marks_are_private(self):
        server = self.rack("nas8", SETTINGS)
        objects = {f"{n:02}": noise(60_000 + n, n) for n in range(6)}
        server.filled(objects)
        server.until_cold()
        for end in ("stop", "kill") * 2:
            getattr(server, end)()
            server = self.serve(server.data)
            self.reads_all(server, objects)
        self.assertEqual(server.status()["drives"]["away"], 0)
        for drive in os.listdir(os.path.join(server.data, "drives")):
            mark = os.path.join(server.data, "drives", drive, OWNER)
            self.assertEqual(stat.S_IMODE(os.stat(mark).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(server.data, "runs")).st_mode), 0o600)
        # A file of runs that is lost is like a directory that is new to its drives.
        self.assertEqual(server.stop(), 0)
        os.remove(os.path.join(server.data, "runs"))
        refused = larder("serve", "--data", server.data, "--port", "0")
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"larder take-over --data {server.data}", refused.stderr)
        self.assertEqual(larder("take-over", "--data", server.data).returncode, 0)
        server = self.serve(server.data)
        self.reads_all(server, objects)
        self.assertEqual(server.stop(), 0)

    def pooled(self, *paths):
        """A server with small objects on drives of a pool outside of its data directory, but for paths that are None;
        and a copy of that directory from before the last start."""
        for path in filter(None, paths):
            os.mkdir(path)
        server = self.serve(self.made(self.description(paths), **{**STAYING, "intake.below": "1 MiB"}))
        objects = {f"{n:02}": noise(5_000 + n, n) for n in range(20)}
        server.filled(objects)
        self.assertEqual(server.stop(), 0)
        copy = os.path.join(self.root, "copy")
        shutil.copytree(server.data, copy)
        server = self.serve(server.data)
        # It changes nothing more there by itself.
        has_shelf = lambda intake: any(drive["shelf_bytes"] for drive in intake["drives"])
        server.until("the old log is a shelf", lambda status: has_shelf(status["intake"]))
        return server, copy, objects

    def is_served_without(self, place, copy, why):
        """The copy is served, and its drive of the pool in `place` is left as it is."""
        before = tree(place)
        server = self.serve(copy)
        [said] = self.warns(server, "medium_foreign")
        self.assertIn(f"{place}: not used: ", said)
        self.assertIn(why, said)
        client = server.client()
        self.fails(503, "ServiceUnavailable", client.get_object, Bucket="pantry", Key="07")
        client.put_object(Bucket="pantry", Key="new", Body=b"on the other drive")
        self.reads(client, "pantry", {"new": b"on the other drive"})
        self.assertEqual(server.stop(), 0)
        self.assertTrue(tree(place) == before, "nothing on it is changed")

    def test_a_copy_is_served_without_a_drive_of_the_pool_that_the_original_uses(self):
        outside = os.path.join(self.root, "outside")
        first, copy, objects = self.pooled(outside, None)
        self.is_served_without(outside, copy, f"another process uses {outside} at the moment")
        self.reads_all(first, objects)
        self.assertEqual(first.stop(), 0)
        self.is_served_without(outside, copy, f"larder take-over --data {copy}")
        first = self.serve(first.data)
        self.is_calm(first, "medium_foreign", "pool_drive_missing", "pool_lost")
        self.reads_all(first, objects)

    def is_not_served(self, places, copy, why):
        """A start of the copy is refused, and the drives of its pool in `places` are left as they are."""
        before = list(map(tree, places))
        refused = larder("serve", "--data", copy, "--port", 0)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        for place in places:
            [said] = [line for line in refused.stderr.splitlines() if f"pool is not used: {place}: " in line]
            self.assertIn(why, said)
        self.assertIn(why, refused.stderr.splitlines()[-1], "the refusal says it, too")
        self.assertTrue(list(map(tree, places)) == before, "nothing on them is changed")

    def test_a_copy_is_not_served_while_all_drives_of_the_pool_are_the_originals(self):
        places = [os.path.join(self.root, name) for name in ("one", "two")]
        first, copy, objects = self.pooled(*places)
        self.is_not_served(places, copy, "stop the server that does, and serve only one data directory")
        self.reads_all(first, objects)
        self.assertEqual(first.stop(), 0)
        self.is_not_served(places, copy, f"larder take-over --data {copy}")
        first = self.serve(first.data)
        self.is_calm(first, "medium_foreign", "pool_drive_missing", "pool_lost")
        self.reads_all(first, objects)
