"""What people back up and copy with, rclone and restic, in both directions, warm and cold.

Cold means that what the client asks for is nowhere but on drives that sleep. A client that this system has not got is a
skip that names it; `./test` unpacks those that Debian's packages bring.
"""

import filecmp
import os
import random
import shutil
import subprocess
import unittest

from harness import BRISK, SHORT_WAITS, STAYING, SystemTest, aws, noise

MB = 1_000_000
# Names that clients escape in different ways.
ODD = ["with space/a b", "grüße/日本語", "plus+and&%41=#?", "deep/er/and/deeper/still", ".hidden", "quote'(1)[x]!~*@:,;$"]
LARGE = "large.bin"
TOOLS = os.environ.get("LARDER_TOOLS", "")
# Above the cutoffs rclone uploads and copies in parts.
IN_PARTS = ["--s3-upload-cutoff=5Mi", "--s3-copy-cutoff=6Mi", "--s3-chunk-size=5Mi"]


def tool(name):
    return shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")


def missing(name):
    """Why the tests of a client cannot run; None if they can."""
    return None if tool(name) else f"no {name} on this system, and none from its packages"


def write(path, body):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(body)


def make_tree(root, seed):
    """Some small files, odd names, an empty file and one that clients send in parts."""
    chance = random.Random(seed)
    for name in ODD + [f"shelf{i % 4}/jar{i:03}" for i in range(60)]:
        write(os.path.join(root, name), noise(chance.randrange(1, 40_000), f"{seed}{name}"))
    write(os.path.join(root, "empty"), b"")
    write(os.path.join(root, LARGE), noise(17 * MB, seed))


def files_in(root):
    return sorted(os.path.relpath(os.path.join(folder, file), root)
                  for folder, _, files in os.walk(root) for file in files)


class ClientTest(SystemTest):
    # A client that takes longer hangs.
    TOOL_TIMEOUT_S = 180

    def run_tool(self, name, *words, environment):
        """Runs a client to its end; gives what it wrote to its standard output and error."""
        command = [tool(name), *words]
        # What the user of this system set for such clients is not meant for this server.
        theirs = ("AWS_", "RCLONE_", "RESTIC_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
        done = subprocess.run(command, env={**own, **environment}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=self.TOOL_TIMEOUT_S)
        said = f"{name} {' '.join(words)}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        self.assertEqual(done.returncode, 0, said + self.server.log()[-2000:])
        return done.stdout, done.stderr

    def rclone(self, *words):
        remote = {
            "RCLONE_CONFIG": os.path.join(self.root, "no-rclone.conf"),
            "RCLONE_CONFIG_LARDER_TYPE": "s3",
            "RCLONE_CONFIG_LARDER_PROVIDER": "Other",
            "RCLONE_CONFIG_LARDER_ENDPOINT": self.server.endpoint,
            "RCLONE_CONFIG_LARDER_ACCESS_KEY_ID": self.server.access_key,
            "RCLONE_CONFIG_LARDER_SECRET_ACCESS_KEY": self.server.secret_key,
        }
        return self.run_tool("rclone", *words, *IN_PARTS, "--retries=1", "-v", environment=remote)

    def restic(self, *words, cache=False):
        environment = {
            "AWS_ACCESS_KEY_ID": self.server.access_key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_key,
            "RESTIC_REPOSITORY": f"s3:{self.server.endpoint}/vault/house",
            "RESTIC_PASSWORD": "pepper and salt",
            "RESTIC_CACHE_DIR": os.path.join(self.root, "restic-cache"),
            "RESTIC_PROGRESS_FPS": "0.1",
        }
        # Without its cache it reads all of its files from the server.
        return self.run_tool("restic", *words, *([] if cache else ["--no-cache"]), environment=environment)

    def same_trees(self, left, right):
        names = files_in(left)
        self.assertEqual(files_in(right), names)
        _, wrong, lost = filecmp.cmpfiles(left, right, names, shallow=False)
        self.assertEqual((wrong, lost), ([], []), "byte for byte")

    def serve_place(self, place):
        """A server on which data stays in the workshop, or goes to the rack at once."""
        self.place = place
        settings = {"rack": {**BRISK, "migrate.pack_size": "4 MiB"}, "workshop": STAYING}[place]
        self.server = self.rack("nas8", settings)
        self.tree = os.path.join(self.root, "tree")
        make_tree(self.tree, place)

    def settle(self):
        """Puts what was written where this test wants it."""
        if self.place == "rack":
            self.server.until_cold()

    def agrees_on_disk(self):
        """Nothing contradicts anything when the client is done, and no upload is left open."""
        self.assertEqual(self.server.stop(), 0)
        report = self.verified(self.server.data)
        self.assertEqual(report["findings"], [])
        self.assertEqual(report["catalog"]["uploads"], 0)
        return report


@unittest.skipIf(missing("rclone"), missing("rclone"))
class Rclone(ClientTest):
    def names(self, path):
        listed, _ = self.rclone("lsf", "--recursive", "--files-only", path)
        return sorted(listed.splitlines())

    def came_in_parts(self, key, parts):
        head = self.server.client().head_object(Bucket="attic", Key=key)
        self.assertTrue(head["ETag"].endswith(f'-{parts}"'), f"{key} in {parts} parts: {head['ETag']}")

    def works(self, place):
        self.serve_place(place)
        self.both_ways()
        self.synced()
        self.copied_and_moved_by_the_server()
        self.rclone("delete", "larder:attic/tree")
        self.assertEqual(self.names("larder:attic"), [])
        self.rclone("purge", "larder:attic")
        self.assertEqual(self.server.client().list_buckets()["Buckets"], [])
        self.assertEqual(self.agrees_on_disk()["catalog"]["objects"], 0)

    def both_ways(self):
        self.rclone("copy", self.tree, "larder:attic/tree")
        self.came_in_parts(f"tree/{LARGE}", 4)
        self.settle()
        _, said = self.rclone("copy", self.tree, "larder:attic/tree")
        self.assertNotIn("Copied", said, "nothing is sent twice")
        self.assertEqual(self.names("larder:attic/tree"), files_in(self.tree))
        _, said = self.rclone("check", self.tree, "larder:attic/tree")
        self.assertIn("0 differences found", said)
        _, said = self.rclone("check", "--download", self.tree, "larder:attic/tree")
        self.assertIn(f"{len(files_in(self.tree))} matching files", said)
        back = os.path.join(self.root, "back")
        self.settle()
        self.rclone("copy", "larder:attic/tree", back)
        self.same_trees(self.tree, back)

    def synced(self):
        """A file changes, one goes, one comes, and of one only the time changes, for which rclone has it copied."""
        names = files_in(self.tree)
        changed, gone, touched = (os.path.join(self.tree, name) for name in names[10:13])
        write(changed, b"other bytes")
        os.remove(gone)
        write(os.path.join(self.tree, "new/come"), b"new")
        os.utime(touched, (1e9, 1e9))
        self.settle()
        self.rclone("sync", self.tree, "larder:attic/tree")
        self.settle()
        _, said = self.rclone("check", self.tree, "larder:attic/tree")
        self.assertIn("0 differences found", said)
        self.assertEqual(self.names("larder:attic/tree"), files_in(self.tree))
        _, said = self.rclone("sync", self.tree, "larder:attic/tree")
        self.assertIn("There was nothing to transfer", said)
        back = os.path.join(self.root, "back")
        self.rclone("sync", "larder:attic/tree", back)
        self.same_trees(self.tree, back)
        self.assertEqual(os.path.getmtime(touched.replace(self.tree, back)), 1e9)

    def copied_and_moved_by_the_server(self):
        self.settle()
        _, said = self.rclone("copy", "larder:attic/tree", "larder:attic/copy")
        self.assertIn("server-side copy", said)
        self.settle()
        _, said = self.rclone("move", "larder:attic/copy", "larder:attic/moved")
        self.assertIn("server-side", said)
        self.settle()
        self.assertEqual(self.names("larder:attic/copy"), [])
        _, said = self.rclone("check", "--download", self.tree, "larder:attic/moved")
        self.assertIn("0 differences found", said)
        self.came_in_parts(f"moved/{LARGE}", 3)
        self.rclone("purge", "larder:attic/moved")

    def test_rclone_copies_checks_syncs_and_moves_what_is_in_the_workshop(self):
        self.works("workshop")

    def test_rclone_copies_checks_syncs_and_moves_what_is_cold(self):
        self.works("rack")


@unittest.skipIf(missing("restic"), missing("restic"))
class Restic(ClientTest):
    def restored(self, name):
        back = os.path.join(self.root, name)
        self.restic("restore", "latest", "--target", back)
        self.same_trees(self.tree, back + self.tree)

    def works(self, place):
        self.serve_place(place)
        self.restic("init")
        self.restic("backup", self.tree)
        self.settle()
        self.restic("check", "--read-data")
        self.settle()
        self.restored("first")
        shutil.rmtree(os.path.join(self.tree, "shelf1"))
        write(os.path.join(self.tree, LARGE), noise(18 * MB, "again"))
        self.settle()
        self.restic("backup", self.tree, cache=True)
        self.settle()
        listed, _ = self.restic("snapshots", "--json")
        self.assertEqual(listed.count('"short_id"'), 2)
        self.restic("forget", "--keep-last=1", "--prune", "--max-unused=0")
        self.settle()
        said, _ = self.restic("check", "--read-data")
        self.assertIn("no errors were found", said)
        self.restored("second")
        self.agrees_on_disk()

    def test_restic_backs_up_checks_restores_and_prunes_in_the_workshop(self):
        self.works("workshop")

    def test_restic_backs_up_checks_restores_and_prunes_what_is_cold(self):
        self.works("rack")


class SlowDown(ClientTest):
    """A server whose max_wait ends long before its drives are ready: it answers SlowDown, and clients come again."""

    def make_cold(self):
        self.server = self.rack("nas8", SHORT_WAITS)
        self.tree, self.back = os.path.join(self.root, "tree"), os.path.join(self.root, "back")
        make_tree(self.tree, "slow")
        client = self.server.filled({"k": b"probe"}, "probe")

    @unittest.skipIf(missing("rclone"), missing("rclone"))
    def test_rclone_waits_for_drives_by_itself(self):
        self.make_cold()
        self.rclone("copy", self.tree, "larder:attic/tree")
        self.server.is_asked_to_wait("/probe/k")
        self.rclone("copy", "larder:attic/tree", self.back)
        self.same_trees(self.tree, self.back)

    @unittest.skipIf(missing("restic"), missing("restic"))
    def test_restic_waits_for_drives_by_itself(self):
        self.make_cold()
        self.restic("init")
        self.restic("backup", self.tree)
        self.server.is_asked_to_wait("/probe/k")
        self.restic("restore", "latest", "--target", self.back)
        self.same_trees(self.tree, self.back + self.tree)

    def test_the_aws_cli_waits_for_drives_if_it_may_try_often(self):
        self.make_cold()
        more = {"AWS_RETRY_MODE": "standard", "AWS_MAX_ATTEMPTS": "20"}
        done = aws(self.server, self.root, "s3", "sync", self.tree, "s3://probe/tree", "--only-show-errors")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.server.is_asked_to_wait("/probe/k")
        words = ["s3", "sync", "s3://probe/tree", self.back, "--only-show-errors"]
        done = aws(self.server, self.root, *words, environment=more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.same_trees(self.tree, self.back)
