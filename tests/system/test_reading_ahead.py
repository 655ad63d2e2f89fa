"""The order in which stock clients ask for the files of a tree must not cost starts; `larder recall` brings all of it.

The tree lies on all groups of a rack, neighbours by key in any of them. What it costs to copy it is counted by the
server: wakes of groups, and modelled time, and printed. `LARDER_FILES=3000` makes the tree larger.
"""

import concurrent.futures
import filecmp
import json
import os
import unittest

from harness import BRISK, aws, larder, noise
from test_clients import ClientTest, files_in, missing, write

FILES = int(os.environ.get("LARDER_FILES", "400"))
FILE_BYTES = 100_000
AT_ONCE = 10
# Two files make a pack, and each pack goes to any group.
SCATTERED = {**BRISK, "migrate.pack_size": "250 kB", "placement.group_choice": "random", "time_scale": 20}
# Files are asked for while groups wake one after the other: none is answered with SlowDown for it.
PATIENT = {"AWS_MAX_ATTEMPTS": "20", "AWS_RETRY_MODE": "standard"}


class TreeTest(ClientTest):
    """A server on a rack over all of which a tree lies."""

    def started_anew(self, read_ahead=True):
        """The server with an empty spool."""
        self.assertEqual(self.server.stop(), 0)
        self.configure(self.server.data, {**self.settings, "workshop.read_ahead": read_ahead})
        self.server = self.serve(self.server.data)
        self.server.until_asleep()

    def cost(self, what, copy):
        """Wakes and modelled seconds of a copy."""
        before = self.server.status()
        copy()
        after = self.server.status()
        wakes = sum(after["totals"]["group_wakes"]) - sum(before["totals"]["group_wakes"])
        seconds = after["modelled_s"] - before["modelled_s"]
        starts = after["totals"]["drive_starts"] - before["totals"]["drive_starts"]
        print(f"{what}: {wakes} wakes, {starts} drive starts, {seconds:.0f} s modelled", flush=True)
        return wakes, seconds


class ReadingAhead(TreeTest):
    def setUp(self):
        super().setUp()
        self.tree = os.path.join(self.root, "tree")
        for nth in range(FILES):
            write(os.path.join(self.tree, f"shelf{nth // 20:03}", f"jar{nth:04}"), noise(FILE_BYTES, nth))
        self.settings = {**SCATTERED, "workshop.spool": "1 GB", "max_wait": "10 min"}
        self.server = self.rack("pelican-mini", self.settings)
        self.server.client().create_bucket(Bucket="attic")
        words = ["s3", "cp", "--recursive", "--only-show-errors", self.tree, "s3://attic/tree"]
        done = aws(self.server, self.root, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.server.until_cold()
        self.groups = {key: self.server.explain("attic", key)["place"]["group"] for key in self.keys()[:60]}
        self.assertGreater(len(set(self.groups.values())), 8, "neighbours lie anywhere")

    def keys(self):
        return [f"tree/{name}" for name in files_in(self.tree)]

    def by_place(self):
        """The keys in the order of their groups."""
        def place(key):
            return self.server.explain("attic", key)["place"]["group"]

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return [key for _, key in sorted(zip(pool.map(place, self.keys()), self.keys()))]

    def read(self, keys):
        """Every file in this order, some at once."""
        client = self.server.client()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            bodies = pool.map(lambda key: client.get_object(Bucket="attic", Key=key)["Body"].read(), keys)
            for key, body in zip(keys, bodies):
                with open(os.path.join(self.root, key), "rb") as file:
                    self.assertEqual(body, file.read())

    def copied(self, name, copy):
        back = os.path.join(self.root, f"back-{name}")
        copy(back)
        _, wrong, lost = filecmp.cmpfiles(self.tree, back, files_in(self.tree), shallow=False)
        self.assertEqual((wrong, lost), ([], []), "byte for byte")

    def aws_copies(self, back):
        done = aws(self.server, self.root, "s3", "cp", "--recursive", "--only-show-errors", "s3://attic/tree", back,
                   environment=PATIENT, timeout=400)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def rclone_copies(self, back):
        self.rclone("copy", "--transfers=10", "--low-level-retries=50", "larder:attic/tree", back)

    def within_three_times(self, name, copy):
        self.started_anew()
        wakes, _ = self.cost(f"{name}, read ahead", lambda: self.copied(name, copy))
        self.assertLessEqual(wakes, 3 * 12)
        ahead = self.server.status()["read_ahead"]
        self.assertGreater(ahead["hits"], FILES / 3, ahead)
        self.assertGreaterEqual(ahead["read_bytes"], ahead["used_bytes"])
        self.assertEqual(ahead["wasted_bytes"], 0, ahead)

    def test_aws_copies_a_tree_in_few_wakes(self):
        keys = self.by_place()
        self.started_anew(read_ahead=False)
        sorted_wakes, _ = self.cost("sorted by place", lambda: self.read(keys))
        # One for each group; beside other work one may be left before the next of its files is asked for.
        self.assertIn(sorted_wakes, range(12, 2 * 12))
        self.started_anew(read_ahead=False)
        plain, _ = self.cost("aws, as it asks", lambda: self.copied("plain", self.aws_copies))
        self.assertGreater(plain, 3 * 12, "without reading ahead the order matters")
        self.within_three_times("aws", self.aws_copies)

    def test_aws_copies_a_tree_that_fills_the_spool_several_times(self):
        spool_bytes = FILES * FILE_BYTES // 4
        self.settings["workshop.spool"] = spool_bytes
        self.started_anew()
        wakes, _ = self.cost("aws, four times the spool", lambda: self.copied("larger", self.aws_copies))
        # Each group once for each time that what is read ahead, three quarters of the spool, fills up.
        fills = FILES * FILE_BYTES / (0.75 * spool_bytes)
        self.assertLessEqual(wakes, 3 * 12 * fills)

    @unittest.skipIf(missing("rclone"), missing("rclone"))
    def test_rclone_copies_a_tree_in_few_wakes(self):
        self.within_three_times("rclone", self.rclone_copies)

    def test_a_set_is_recalled_in_one_wake_of_each_group_and_what_is_there_is_not_read_again(self):
        self.started_anew()
        said = self.recall("s3://attic/tree/", "--dry-run")
        self.assertEqual((said["state"], said["objects"], said["groups"], said["wakes"]), ("planned", FILES, 12, 12))
        self.assertEqual((said["starts"], said["fits"], said["here"]), (96, True, 0))
        self.assertEqual(self.server.status()["workshop"]["spool_bytes"], 0)
        wakes, seconds = self.cost("larder recall", lambda: self.recall("s3://attic/tree/"))
        self.assertEqual(wakes, 12)
        # What was said is wall time, and the host's own time comes on top of it.
        self.assertGreater(seconds, said["minutes"] * 60 * SCATTERED["time_scale"] / 2)
        again = self.recall("s3://attic/tree/")
        self.assertEqual((again["state"], again["here"], again["read_bytes"]), ("done", FILES, 0))
        wakes, _ = self.cost("aws, after it", lambda: self.copied("recalled", self.aws_copies))
        self.assertEqual(wakes, 0)

    def test_a_list_of_keys_is_recalled_and_what_cannot_be_is_refused_with_its_mend(self):
        self.started_anew()
        listed = os.path.join(self.root, "keys")
        write(listed, "\n".join([*self.keys()[::40], "tree/nothing"]).encode())
        report = self.recall("s3://attic", "--keys", listed)
        self.assertEqual((report["state"], report["objects"], report["missing"]), ("done", FILES // 40, 1))
        for words, why in [
            (["s3://nowhere/tree"], "bucket"),
            (["s3://attic/tree", "--keys", listed], "name the bucket alone"),
            (["s3://attic", "--keys", listed + "x"], "cannot be read"),
        ]:
            output = larder("recall", *words, "--data", self.server.data)
            self.assertEqual(output.returncode, 1)
            self.assertIn(why, output.stderr)
        said = larder("recall", "s3://attic/tree/", "--data", self.server.data, "--dry-run").stdout
        self.assertIn("kWh beyond standby", said)

    def recall(self, *words):
        output = larder("recall", *words, "--data", self.server.data, "--json", timeout=300)
        self.assertEqual(output.returncode, 0, output.stderr)
        return json.loads(output.stdout)


@unittest.skipIf(missing("restic"), missing("restic"))
class Restic(TreeTest):
    def test_restic_restores_in_few_wakes_though_it_asks_in_no_order(self):
        """Its repository is some fifty files of 4 MiB, each of which goes to any group."""
        self.tree = os.path.join(self.root, "tree")
        for nth in range(200):
            write(os.path.join(self.tree, f"shelf{nth // 20:02}", f"jar{nth:03}"), noise(1_000_000, nth))
        self.settings = {**SCATTERED, "migrate.pack_size": "4 MiB", "workshop.spool": "1 GB", "max_wait": "10 min"}
        self.server = self.rack("pelican-mini", self.settings)
        self.server.client().create_bucket(Bucket="vault")
        self.restic("init")
        self.restic("backup", "--pack-size=4", self.tree)
        self.server.until_cold()
        costs = {}
        for read_ahead in (False, True):
            self.started_anew(read_ahead)
            back = os.path.join(self.root, f"back{read_ahead}")
            what = "restic, read ahead" if read_ahead else "restic, as it asks"
            costs[read_ahead], _ = self.cost(what, lambda: self.restic("restore", "latest", "--target", back))
            self.same_trees(self.tree, back + self.tree)
        self.assertLessEqual(costs[True], 3 * 12)
        self.assertLess(costs[True], costs[False])
