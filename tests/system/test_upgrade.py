"""Directories of an earlier Larder, from before there was a manifest: the first start upgrades them, killed at each
step; `verify` and `recover` read them before, and upgrade nothing.

The fixtures were written by the binary of commit c12f94f (`fixtures/make.py`): a small rack with objects on drives, in
a shelf, in logs and in a staged file. The server of the first was killed, that of the second stopped; the third never
had a log.
"""

import hashlib
import os
import shutil
import tarfile
import unittest

import faults
from harness import SystemTest, larder

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
KILLED, STOPPED, WITHOUT_LOG = "before-manifest-killed", "before-manifest-stopped", "before-manifest-without-log"
MANIFEST, LABEL = ".manifest-", "intake.pool"
# What was done, whether the kill is before or after the call, and the call.
STEPS = [
    ("the new identity is made", "after", [("create", "identity.new", 1)]),
    ("it is not in its place", "before", [("rename", "identity", 1)]),
    ("it is in its place", "after", [("rename", "identity", 1)]),
    ("a slot of the manifest is made", "after", [("create", MANIFEST, 1)]),
    ("it is not synced", "before", [("sync", MANIFEST, 1)]),
    ("it is synced", "after", [("sync", MANIFEST, 1)]),
    ("the other slot is synced", "after", [("sync", MANIFEST, 2)]),
    ("the label does not say it yet", "before", [("write", LABEL, 1)]),
    ("the label says it, not synced", "before", [("sync", LABEL, 1)]),
    ("the label says it", "after", [("sync", LABEL, 1)]),
    # A start makes a file for it, or uses that of a log that is a shelf by then.
    ("a log is made", "after", [("write", ".log", 1)]),
    ("a log is not synced", "before", [("sync", ".log", 1)]),
]


def body(number):
    return (f"object {number} " * (200 + 150 * number)).encode()


def objects():
    """What the fixtures hold."""
    cold = {f"cold/{n}": body(n) for n in range(5)}
    warm = {f"warm/{n}": body(n + 1 if n < 5 else n) for n in range(19)}
    return {**cold, **warm, "large": b"large " * 50_000}


def sums(data):
    """The checksums of all files but locks, and what SQLite keeps for those who have a file open."""
    found = {}
    for folder, _, names in os.walk(data):
        for name in names:
            path = os.path.join(folder, name)
            if name not in ("lock", "catalog.db.lock", "catalog.db-shm") and os.path.isfile(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, data)] = hashlib.sha256(file.read()).hexdigest()
    return found


class Upgrade(SystemTest):
    def unpacked(self, fixture, name="data"):
        place = os.path.join(self.root, name)
        with tarfile.open(os.path.join(FIXTURES, f"{fixture}.tar.xz")) as tar:
            tar.extractall(place, filter="data")
        return os.path.join(place, "data")

    def version(self, data):
        with open(os.path.join(data, "identity"), encoding="utf-8") as file:
            return int(file.read().split("version = ")[1].split()[0])

    def is_whole(self, data, step=None):
        """A start has everything, in a directory of the new version, and goes on with it."""
        server = self.serve(data)
        client, expected = server.client(), objects()
        listed = {item["Key"] for item in client.list_objects_v2(Bucket="pantry")["Contents"]}
        self.assertEqual(listed, set(expected), step)
        self.reads(client, "pantry", expected)
        client.put_object(Bucket="pantry", Key="new", Body=b"new")
        client.delete_object(Bucket="pantry", Key="new")
        self.assertEqual((server.stop(), self.version(data)), (0, 2), step)
        self.assertTrue(self.verified(data, "--deep")["clean"], step)

    def starts_and_is_killed(self, data, chaos, step):
        """Before the server is ready, or soon after: logs are made beside the rest of a start."""
        try:
            server = self.serve(data, chaos.environment())
        except AssertionError as error:
            self.assertIn("ended with -9", str(error), step)
            return
        self.assertEqual(server.process.wait(60), -9, step)

    def test_a_start_upgrades_and_says_so_once(self):
        for fixture in (KILLED, STOPPED, WITHOUT_LOG):
            data = self.unpacked(fixture, fixture)
            self.assertEqual(self.version(data), 1)
            server = self.serve(data)
            self.assertIn("was upgraded from version 1 to 2", server.log())
            server.kill()
            self.is_whole(data, fixture)
            self.assertEqual(self.serve(data).log().count("was upgraded"), 1, "the log of all starts says it once")

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_kill_at_any_step_leaves_a_directory_that_the_next_start_goes_on_with(self):
        chaos = faults.Faults(self.root)
        for number, (step, action, chain) in enumerate(STEPS):
            data = self.unpacked(KILLED, f"case-{number}")
            chaos.arm(action, chain)
            self.starts_and_is_killed(data, chaos, step)
            self.assertEqual(chaos.hits(), 1, step)
            chaos.disarm()
            self.is_whole(data, step)
            shutil.rmtree(os.path.dirname(data))

    def test_verify_and_recover_read_it_and_upgrade_nothing(self):
        for fixture in (KILLED, STOPPED, WITHOUT_LOG):
            data = self.unpacked(fixture, fixture)
            before = sums(data)
            self.assertTrue(self.verified(data)["clean"], fixture)
            self.assertEqual(sums(data), before, fixture)
            if fixture != WITHOUT_LOG:
                done = larder("recover", "--replace", "--data", data)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.version(data), 1, fixture)
            self.is_whole(data, fixture)

    def test_a_copy_that_was_made_before_is_served_by_who_made_it(self):
        # A file of the earlier version is as it was: what is new lies beside it, but for labels.
        data = self.unpacked(KILLED)
        before = sums(data)
        self.serve(data).kill()
        changed = {name for name, digest in before.items() if sums(data).get(name) not in (digest, None)}
        kinds = {os.path.basename(name).split(".")[-1] for name in changed}
        self.assertLessEqual(kinds, {"identity", "db", "db-shm", "db-wal", "pool", "owner", "runs", "log"}, changed)
