"""A directory tree as any system has it, through the aws CLI: into the workshop, onto drives, and back while cold."""

import filecmp
import os
import shutil
import sysconfig

from harness import SystemTest, aws, noise

FILES_WANTED = 2500
FILES_MIN = 2000
FILE_BYTES_MAX = 2_000_000
BYTES_MAX = 80_000_000


def files_of_this_system():
    """Real files of many sizes: those of Python's library first, then documentation and the like."""
    for root in (sysconfig.get_path("stdlib"), "/usr/share", "/usr/lib", "/usr/include"):
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(f for f in folders if f not in ("__pycache__", "site-packages"))
            for file in sorted(files):
                path = os.path.join(folder, file)
                if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.R_OK):
                    yield os.path.relpath(path, "/"), path


def copy_tree(into):
    """Copies some thousands of them; gives their relative names."""
    names, total = [], 0
    for name, path in files_of_this_system():
        size = os.path.getsize(path)
        if size > FILE_BYTES_MAX or total + size > BYTES_MAX:
            continue
        target = os.path.join(into, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(path, target)
        names.append(name)
        total += size
        if len(names) == FILES_WANTED:
            break
    return names, total


class Tree(SystemTest):
    def setUp(self):
        super().setUp()
        self.tree = os.path.join(self.root, "tree")
        self.names, self.bytes = copy_tree(self.tree)
        if len(self.names) < FILES_MIN:
            self.skipTest(f"only {len(self.names)} files were found on this system")

    def test_a_tree_goes_cold_in_one_wake_and_comes_back_byte_for_byte(self):
        server = self.quickstart("--time-scale", "20")
        server.until_asleep()
        # However slow this machine is, nothing moves before all of it is there, and all of it moves together.
        server = self.started_again(server, '"30 s"', '"1 d"')
        self.copy_in(server)
        landed = server.status()
        self.assertEqual(landed["rack"], "pelican")
        self.assertEqual(landed["workshop"]["staged_count"], len(self.names) + 1, "everything is in the workshop")
        self.assertGreaterEqual(landed["workshop"]["staged_bytes"], self.bytes)
        self.assertEqual(landed["totals"]["drive_starts"], 0, "and nothing had to wake for it")
        key = f"tree/{self.names[0]}"
        self.assertEqual(server.explain("attic", key)["place"]["where"], "workshop")

        server = self.started_again(server, '"1 d"', '"1 s"')
        cold = server.until_cold()
        totals = cold["totals"]
        self.assertEqual(totals["group_wakes"], [0, 0, 1], "one wake for the batch")
        self.assertEqual(totals["drive_starts"], 24)
        expected = 1e9 / totals["migrated_bytes"]
        self.assertAlmostEqual(totals["wakes_per_gb_migrated"], expected, delta=expected * 0.01)
        self.assertEqual((cold["power"]["fuse_trips"], cold["power"]["active_drives"]), (0, 0))
        self.explained(server, key)
        self.listed(server)
        self.assertEqual(server.totals()["drive_starts"], 24, "lists and explanations wake nobody")
        self.copy_out(server)
        self.assertEqual(server.totals()["group_wakes"][0], 1, "one wake to read it all")
        self.assertEqual(server.stop(), 0)

    def started_again(self, server, age, to):
        """The server with `older_than = to` where it was `age`."""
        self.assertEqual(server.stop(), 0)
        path = os.path.join(server.data, "larder.toml")
        with open(path, encoding="utf-8") as config:
            text = config.read()
        self.assertIn(f"\nolder_than = {age}\n", text)
        with open(path, "w", encoding="utf-8") as config:
            config.write(text.replace(f"\nolder_than = {age}\n", f"\nolder_than = {to}\n"))
        return self.serve(server.data)

    def copy_in(self, server):
        client = server.client()
        client.create_bucket(Bucket="attic")
        # One file that every client would upload in parts, by default.
        with open(os.path.join(self.tree, "large file.bin"), "wb") as file:
            file.write(noise(20_000_000, 1))
        done = aws(server, self.root, "s3", "cp", "--recursive", "--only-show-errors", self.tree, "s3://attic/tree")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def explained(self, server, key):
        explanation = server.explain("attic", key)
        place = explanation["place"]
        self.assertEqual((place["where"], place["code_data"], place["code_parity"]), ("rack", 15, 3))
        self.assertEqual(len({drive["drive"] for drive in place["drives"]}), 18, "a drive for each stack")
        self.assertEqual(len({tuple(drive["slot"]) for drive in place["drives"]}), 18)
        self.assertEqual({(d["group"], d["state"]) for d in place["drives"]}, {(place["group"], "standby")})
        chassis = [drive["slot"][2] // 2 for drive in place["drives"]]
        self.assertEqual(max(chassis.count(c) for c in chassis), 3, "three in each of six chassis")
        self.assertEqual((place["group_state"], place["recalled"]), ("asleep", False))
        self.assertIn(place["class"], range(4))
        self.assertGreater(place["members"], 1000)
        # The group's drives need 8 to 12 s and their mounts, at 20 times their speed.
        self.assertGreater(place["wait_min_s"], 8 / 20)
        self.assertLess(place["wait_min_s"], place["wait_max_s"] + 1e-9)
        self.assertLess(place["wait_max_s"], 60 / 20)

    def listed(self, server):
        done = aws(server, self.root, "s3", "ls", "--recursive", "s3://attic")
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = {line.split(None, 3)[3]: int(line.split(None, 3)[2]) for line in done.stdout.splitlines()}
        expected = {f"tree/{name}": os.path.getsize(os.path.join(self.tree, name)) for name in self.names}
        expected["tree/large file.bin"] = 20_000_000
        self.assertEqual(listed, expected)

    def copy_out(self, server):
        back = os.path.join(self.root, "back")
        done = aws(server, self.root, "s3", "sync", "--only-show-errors", "s3://attic/tree", back)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        found = sorted(os.path.relpath(os.path.join(folder, file), back)
                       for folder, _, files in os.walk(back) for file in files)
        names = sorted([*self.names, "large file.bin"])
        self.assertEqual(found, names)
        _, wrong, lost = filecmp.cmpfiles(self.tree, back, names, shallow=False)
        self.assertEqual((wrong, lost), ([], []), "byte for byte")
