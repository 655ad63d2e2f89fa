"""kill -9 in the middle of each repair, at chosen system calls: see `faults.py`. After each kill the next start, or the
same command again, goes on with it; then everything is there byte for byte, and `larder verify --deep` finds nothing.

Each step has a copy of one cold rack of its own. A step that is never reached fails the test.
"""

import http.client
import os
import shutil
import subprocess
import time
import unittest

import botocore.exceptions

import faults
import test_pool
from harness import BINARY, BRISK, FILES, SystemTest, larder, noise
from test_recover import lose

CATALOG, LOG, JOURNAL = "catalog.db", "/intake/", "/journal/"
STACK, SPARE, STAGED = ".stack", ".spare", "/staged/s-"
GONE = (botocore.exceptions.BotoCoreError, OSError, http.client.HTTPException)
SETTINGS = {
    **BRISK,
    **FILES,
    "time_scale": 200,
    "migrate.pack_size": "500 kB",
    "placement.group_choice": "random",
    "evacuation_fraction": 0.4,
}
# By repair: what is being done, whether the kill is before or after the call, and the calls that lead there.
REPAIRS = {
    "retire": [
        ("the copy of a stack is made", "after", [("create", STACK, 1)]),
        ("it is not synced", "before", [("create", STACK, 1), ("sync", STACK, 1)]),
        ("it is read back, not counted", "before", [("create", STACK, 1), ("sync", STACK, 2), ("sync", LOG, 1)]),
        ("the old one is not removed", "before", [("unlink", STACK, 1)]),
        ("the old one is removed, which is not noted", "after", [("unlink", STACK, 1)]),
    ],
    "take_back": [
        ("a stack is looked at", "after", [("read", STACK, 2)]),
        ("it is right, and not counted", "before", [("read", STACK, 3), ("sync", LOG, 1)]),
        ("it is counted", "after", [("read", STACK, 3), ("sync", LOG, 1)]),
        ("what is not right is rebuilt, not synced", "before", [("create", STACK, 1), ("sync", STACK, 1)]),
        ("it is rebuilt, not counted", "before", [("create", STACK, 1), ("sync", STACK, 2), ("sync", LOG, 1)]),
    ],
    "evacuate": [
        ("a copy is begun", "after", [("create", STAGED, 1)]),
        ("a copy is not synced", "before", [("create", STAGED, 1), ("sync", STAGED, 1)]),
        ("copies are synced, not committed", "before", [("sync", STAGED, 1), ("sync", LOG, 1)]),
        ("copies are committed", "after", [("sync", STAGED, 1), ("sync", LOG, 1)]),
        ("the old blob is not removed", "before", [("sync", STAGED, 1), ("unlink", STACK, 1)]),
        ("a stack of it is removed", "after", [("sync", STAGED, 1), ("unlink", STACK, 1)]),
    ],
    "scrub": [
        ("a fragment is not written anew", "before", [("write", STACK, 1)]),
        ("a fragment is written anew, not synced", "before", [("write", STACK, 1), ("sync", STACK, 1)]),
        ("a spare is made", "after", [("create", SPARE, 1)]),
        ("a spare is not synced", "before", [("create", SPARE, 1), ("sync", SPARE, 1)]),
        ("a spare is read back", "after", [("sync", SPARE, 2), ("read", SPARE, 1)]),
        ("a spare is not in its place", "before", [("rename", STACK, 1)]),
        ("a spare is in its place", "after", [("rename", STACK, 1)]),
        ("that is not recorded", "before", [("rename", STACK, 1), ("sync", LOG, 1)]),
    ],
    "journal": [
        ("a segment is made", "after", [("create", JOURNAL, 1)]),
        ("a segment has its header", "after", [("write", JOURNAL, 1)]),
        ("a snapshot is made", "after", [("create", JOURNAL, 2)]),
        ("a snapshot is not synced", "before", [("create", JOURNAL, 2), ("sync", JOURNAL, 1)]),
        ("a snapshot has no name", "before", [("rename", JOURNAL, 1)]),
        ("a snapshot has its name", "after", [("rename", JOURNAL, 1)]),
    ],
    "copies": [
        ("a stack of a copy is made", "after", [("create", STACK, 1)]),
        ("a stack of a copy is not synced", "before", [("create", STACK, 2), ("sync", STACK, 1)]),
        ("a copy is read back, not committed", "before", [("sync", STACK, 6), ("read", STACK, 3), ("sync", LOG, 1)]),
        ("a copy is committed", "after", [("sync", STACK, 6), ("read", STACK, 3), ("sync", LOG, 1)]),
    ],
}
# Of commands that need no server. The catalog is made beside its place.
RECOVER = [
    ("the draft is made", "after", [("create", CATALOG, 1)]),
    ("the draft is written in part", "after", [("write", CATALOG, 6)]),
    ("the draft is not synced", "before", [("sync", CATALOG, 1)]),
    ("nothing is renamed", "before", [("rename", CATALOG, 1)]),
    ("one file is renamed", "after", [("rename", CATALOG, 1)]),
    ("all that the journal knows is in the draft", "before", [("sync", CATALOG, 3)]),
]
FAIL = [
    ("the word is not durable", "before", [("sync", LOG, 1)]),
    ("the word is durable", "after", [("sync", LOG, 1)]),
]
REPLACE = [
    ("no label", "before", [("create", "larder.label", 1)]),
    ("a label is made", "after", [("create", "larder.label", 1)]),
    ("a label is written", "after", [("write", "larder.label", 1)]),
    ("a label is there, and not known", "before", [("sync", LOG, 1)]),
    ("a label is known", "after", [("sync", LOG, 1)]),
]
BACKUP = [
    ("the file is made", "after", [("create", "backup-1", 1)]),
    ("it is written in part", "after", [("write", "backup-1", 1)]),
    ("it is not synced", "before", [("sync", "backup-1", 1)]),
    ("it is synced, without its name", "after", [("sync", "backup-1", 1)]),
]
POOL = [
    ("a copy is made", "after", [("create", ".new", 1)]),
    ("a copy is written in part", "after", [("write", ".new", 1)]),
    ("a copy is not synced", "before", [("sync", ".new", 1)]),
    ("a copy has no name", "before", [("create", ".new", 1), ("rename", "/pool/", 1)]),
    ("a copy has its name", "after", [("create", ".new", 1), ("rename", "/pool/", 1)]),
]


class Killed(SystemTest):
    """What every step needs: a cold rack to copy, a process that is killed, and a judge."""

    def base(self, settings=None, count=12):
        server = self.rack("nas8", {**SETTINGS, **(settings or {})})
        self.objects = {f"k{n:02}": noise(150_000 + 997 * n, f"body{n}") for n in range(count)}
        server.filled(self.objects)
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        server.until_cold()
        place = server.explain("pantry", "k00")["place"]
        self.drives = [drive["drive"] for drive in place["drives"]]
        self.assertEqual(server.stop(), 0)
        self.origin, self.log = server.data, []
        self.addCleanup(lambda: print("\n".join(self.log), flush=True))

    def place(self, drive):
        return os.path.join(self.data, "drives", f"{drive:04}")

    def stacks_on(self, drive):
        return sorted(name for name in os.listdir(self.place(drive)) if name.endswith(STACK))

    def flip(self, path, at):
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 16]))

    def case(self, number):
        """A copy of the rack, and faults for the process on it."""
        self.data = os.path.join(self.root, f"case-{number}")
        shutil.copytree(self.origin, self.data, ignore=shutil.ignore_patterns("admin.sock"))
        self.left, self.unsure = dict(self.objects), None
        self.faults = faults.Faults(self.root)

    def start(self, with_faults=False):
        self.server = self.serve(self.data, self.faults.environment() if with_faults else None)

    def start_and_be_killed(self, step, action, chain):
        """In the start, or in what goes on behind it and in what `begins`."""
        self.faults.arm(action, chain)
        try:
            self.start(with_faults=True)
        except AssertionError as error:
            self.assertIn("ended with -9", str(error), step)
            self.assertEqual(self.faults.hits(), 1, step)
            self.faults.disarm()
            return
        self.fill_until_killed()
        self.until_killed(self.server.process, step)

    def fill_until_killed(self):
        """Puts objects until the server is gone; the last one has happened or not."""
        for n in range(400):
            key, body = f"more{n:03}", noise(300_000, f"more{n}")
            self.unsure = key
            try:
                if self.server.ask("PUT", f"/pantry/{key}", body=body)[0] == 200:
                    self.left[key] = body
            except (OSError, http.client.HTTPException):
                return

    def until_killed(self, process, step):
        try:
            process.wait(60)
        except subprocess.TimeoutExpired as error:
            said = self.server.log()[-1500:] if process is getattr(self.server, "process", None) else ""
            raise AssertionError(f"{step}: never reached; {said}") from error
        self.assertEqual(process.returncode, -9, step)
        self.assertEqual(self.faults.hits(), 1, step)
        self.faults.disarm()

    def runs(self, *words, environment=None):
        """A command that may be cut short by the end of the server; in the background."""
        nowhere = subprocess.DEVNULL
        command = [BINARY, *map(str, words), "--data", self.data]
        process = subprocess.Popen(command, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def all_read(self, step):
        client = self.server.client(retries={"total_max_attempts": 10, "mode": "standard"})
        for key, body in self.left.items():
            found = client.get_object(Bucket="pantry", Key=key)["Body"].read()
            self.assertTrue(found == body, f"{key} after a kill at: {step}")
        listed = [entry["Key"] for entry in client.list_objects_v2(Bucket="pantry").get("Contents", [])]
        self.assertEqual([key for key in listed if key != self.unsure], sorted(self.left), step)

    def is_whole(self, step):
        self.server.until_cold()
        self.assertEqual(self.server.stop(), 0)
        found = self.verified(self.data, "--deep")
        self.assertEqual(found["findings"], [], step)

    def ended(self, step, begun):
        self.log.append(f"  {time.monotonic() - begun:5.1f} s  {step}, at {os.path.basename(self.faults.hit())}")
        shutil.rmtree(self.data)


class Steps(Killed):
    """The repairs that a server makes. Of each: what breaks beforehand, what begins it, and when it is done."""

    def go_through(self, repair, settings=None):
        self.base(settings)
        steps = REPAIRS[repair]
        for number, (what, action, chain) in enumerate(steps):
            begun, step = time.monotonic(), f"{repair}: {what}"
            self.case(number)
            getattr(self, f"{repair}_breaks", lambda: None)()
            if repair == "journal":
                self.start_and_be_killed(step, action, chain)
            else:
                self.start(with_faults=True)
                getattr(self, f"{repair}_before", lambda: None)()
                self.faults.arm(action, chain)
                getattr(self, f"{repair}_begins")()
                getattr(self, f"{repair}_goes_on", lambda: None)()
                self.until_killed(self.server.process, step)
            self.start()
            self.all_read(step)
            getattr(self, f"{repair}_begins")()
            getattr(self, f"{repair}_ends")()
            self.all_read(step)
            self.is_whole(step)
            getattr(self, f"{repair}_after", lambda step: None)(step)
            self.ended(step, begun)
        self.assertEqual(len(self.log), len(steps))

    def state_of(self, drive):
        return next(report for report in self.server.drives() if report["drive"] == drive)["state"]

    def retire_begins(self):
        larder("drive", "retire", self.drives[0], "--data", self.data)

    def retire_ends(self):
        self.server.until("it is empty", lambda _: self.state_of(self.drives[0]) == "retired")
        self.server.until_asleep()
        # One that was counted elsewhere and not removed when the kill came goes with its blob.
        self.assertLessEqual(len(self.stacks_on(self.drives[0])), 1)

    def take_back_breaks(self):
        drive = self.drives[0]
        self.assertEqual(larder("drive", "fail", drive, "--data", self.data).returncode, 0)
        self.flip(os.path.join(self.place(drive), self.stacks_on(drive)[0]), 9_000)

    def take_back_begins(self):
        drive, end = self.drives[0], time.monotonic() + 60
        while self.server.process.poll() is None and time.monotonic() < end:
            said = larder("drive", "replace", drive, "--data", self.data)
            if said.returncode == 0 or f"larder drive fail {drive}" in said.stderr:
                return
            time.sleep(0.2)

    def take_back_ends(self):
        def is_done(status):
            return all(rebuild["left_bytes"] == 0 for rebuild in status["rebuilds"])

        self.server.until("everything is looked for", is_done)
        self.assertNotEqual(self.state_of(self.drives[0]), "failed")

    def evacuate_before(self):
        """Two of three objects are dead: what lives in their blobs is copied out."""
        for key in [key for n, key in enumerate(sorted(self.left)) if n % 3]:
            self.server.client().delete_object(Bucket="pantry", Key=key)
            del self.left[key]

    def evacuate_begins(self):
        for key in self.left:
            try:
                self.server.ask("GET", f"/pantry/{key}")
            except GONE:
                return

    def evacuate_goes_on(self):
        """What is dead is removed when its group wakes for something else: objects are put until the server is gone."""
        for n in range(100):
            key, body = f"more{n:03}", noise(200_000, f"more{n}")
            self.unsure = key
            try:
                if self.server.ask("PUT", f"/pantry/{key}", body=body)[0] == 200:
                    self.left[key], self.unsure = body, None
                time.sleep(0.4)
            except (OSError, http.client.HTTPException):
                return

    def evacuate_ends(self):
        """What is dead is removed when its group wakes for something else."""
        for turn in range(20):
            self.server.until_cold()
            if self.server.totals()["waiting_reclaim_bytes"] == 0:
                return
            key, body = f"poke{turn}", noise(200_000, f"poke{turn}")
            self.server.client().put_object(Bucket="pantry", Key=key, Body=body)
            self.left[key] = body
        self.fail("something dead is left")

    def scrub_breaks(self):
        """A fragment of one blob, the header of another, and all of a stack of a third."""
        blobs = {}
        for drive in range(8):
            for name in self.stacks_on(drive):
                blobs.setdefault(name[:33], []).append(os.path.join(self.place(drive), name))
        fragment, header, gone, *_ = (stacks for _, stacks in sorted(blobs.items()))
        self.flip(fragment[0], 4096 + 11)
        self.flip(header[1], 20)
        os.remove(gone[2])

    def scrub_begins(self):
        self.verifying = self.runs("verify", "--deep")

    def scrub_ends(self):
        self.verifying.wait(120)
        for _ in range(4):
            found = larder("verify", "--deep", "--data", self.data, timeout=120)
            self.server.until_asleep()
            if found.returncode == 0:
                return
        self.fail(found.stdout + found.stderr)

    def journal_breaks(self):
        shutil.rmtree(os.path.join(self.data, "workshop", "journal"))

    def journal_begins(self):
        """It begins with the start."""

    def journal_ends(self):
        self.server.until("it leads on", lambda status: status["journal"]["leads_on"])

    def journal_after(self, step):
        self.is_recovered(step)

    def copies_begins(self):
        """A change that the drives do not show by themselves."""
        tags = {"TagSet": [{"Key": "n", "Value": str(time.monotonic())}]}
        try:
            self.server.client().put_object_tagging(Bucket="pantry", Key="k00", Tagging=tags)
        except GONE:
            pass

    def copies_ends(self):
        self.server.until("the change is on drives", lambda status: status["journal"]["on_drives"])

    def copies_after(self, step):
        self.is_recovered(step, "workshop")

    def is_recovered(self, step, *lost):
        """What the repair has made is good: the catalog comes back from it."""
        lose(self.data, *lost)
        recovered = larder("recover", "--data", self.data)
        self.assertEqual(recovered.returncode, 0, recovered.stderr)
        self.start()
        self.all_read(step)
        self.is_whole(step)


@unittest.skipIf(faults.why_not(), faults.why_not())
class Repairs(Steps):
    def test_a_retirement(self):
        self.go_through("retire")

    def test_a_drive_that_is_taken_back(self):
        self.go_through("take_back")

    def test_an_evacuation(self):
        self.go_through("evacuate")

    def test_what_a_scrub_repairs_through_verify(self):
        self.go_through("scrub")

    def test_the_journal(self):
        self.go_through("journal")

    def test_copies_of_the_catalog_on_drives(self):
        self.go_through("copies", {"journal.ride_after": "0 s", "journal.wake_after": "0 s"})


@unittest.skipIf(faults.why_not(), faults.why_not())
class Commands(Killed):
    """Commands that are killed, and said again."""

    def kill(self, step, action, chain, *words):
        self.faults.arm(action, chain)
        self.server = None
        self.until_killed(self.runs(*words, environment=self.faults.environment()), step)

    def recovered(self, *words):
        """Until it says that it is done, or that there is a catalog: then in its place."""
        said = larder("recover", *words, "--data", self.data)
        if said.returncode:
            self.assertIn("--replace", said.stderr)
            said = larder("recover", "--replace", *words, "--data", self.data)
        self.assertEqual(said.returncode, 0, said.stderr)
        left = [name for name in os.listdir(self.data) if "draft" in name or "new" in name]
        self.assertEqual(left, [])

    def test_recover(self):
        self.base()
        backup = os.path.join(self.root, "backup")
        server = self.serve(self.origin)
        self.assertEqual(larder("catalog", "backup", backup, "--data", self.origin).returncode, 0)
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        number = 0
        for words, lost in ([], []), (["--replace"], None), (["--from", backup], ["workshop"]):
            for what, action, chain in RECOVER:
                number, begun = number + 1, time.monotonic()
                step = f"recover {' '.join(words)}: {what}"
                self.case(number)
                if lost is not None:
                    lose(self.data, *lost)
                self.kill(step, action, chain, "recover", *words)
                self.recovered(*[word for word in words if word != "--replace"])
                self.start()
                self.all_read(step)
                self.is_whole(step)
                self.ended(step, begun)
        self.assertEqual(len(self.log), 3 * len(RECOVER))

    def test_fail_and_replace_without_a_server(self):
        self.base()
        for command, steps in ("fail", FAIL), ("replace", REPLACE):
            for number, (what, action, chain) in enumerate(steps):
                begun, step = time.monotonic(), f"{command}: {what}"
                self.case(f"{command}-{number}")
                drive = self.drives[0]
                shutil.rmtree(self.place(drive))
                if command == "replace":
                    self.assertEqual(larder("drive", "fail", drive, "--data", self.data).returncode, 0)
                    os.mkdir(self.place(drive))
                self.kill(step, action, chain, "drive", command, drive)
                said = larder("drive", command, drive, "--data", self.data)
                # The word may have been remembered.
                if said.returncode:
                    self.assertIn(f"larder drive fail {drive}", said.stderr, step)
                self.start()
                self.all_read(step)
                done = lambda status: all(rebuild["left_bytes"] == 0 for rebuild in status["rebuilds"])
                self.server.until("it is rebuilt", done)
                self.all_read(step)
                self.is_whole(step)
                self.ended(step, begun)
        self.assertEqual(len(self.log), len(FAIL + REPLACE))

    def test_a_backup(self):
        self.base()
        for number, (what, action, chain) in enumerate(BACKUP):
            begun, step = time.monotonic(), f"backup: {what}"
            self.case(number)
            self.start(with_faults=True)
            first, second = (os.path.join(self.root, f"backup-{which}-{number}") for which in (1, 2))
            self.faults.arm(action, chain)
            self.runs("catalog", "backup", first)
            self.until_killed(self.server.process, step)
            self.assertFalse(os.path.exists(first), f"{step}: it gets its name when it is whole")
            self.start()
            self.assertEqual(larder("catalog", "backup", second, "--data", self.data).returncode, 0)
            self.all_read(step)
            self.is_whole(step)
            lose(self.data, "workshop")
            said = larder("recover", "--from", second, "--data", self.data)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.start()
            self.all_read(step)
            self.is_whole(step)
            self.ended(step, begun)
        self.assertEqual(len(self.log), len(BACKUP))


@unittest.skipIf(faults.why_not(), faults.why_not())
class Pools(Killed):
    description, pooled = test_pool.Pool.description, test_pool.Pool.pooled

    def test_a_copy_in_a_pool_that_has_lost_a_drive(self):
        self.origin, self.log = self.pooled([None] * 6), []
        server = self.serve(self.origin)
        self.objects = {f"{n:03}": noise(200_000, n) for n in range(60)}
        server.filled(self.objects)
        logging = next(d["place"] for d in server.status()["intake"]["drives"] if d["state"] == "logging")
        server.kill()
        for number, (what, action, chain) in enumerate(POOL):
            begun, step = time.monotonic(), f"pool: {what}"
            self.case(number)
            shutil.rmtree(os.path.join(self.data, os.path.relpath(logging, self.origin)))
            self.start_and_be_killed(step, action, chain)
            self.start()
            self.all_read(step)
            self.assertEqual(self.server.status()["intake"]["losses"], 0, step)
            self.assertEqual(self.server.stop(), 0)
            self.assertEqual(self.verified(self.data, "--deep")["findings"], [], step)
            self.ended(step, begun)
        self.assertEqual(len(self.log), len(POOL))


if __name__ == "__main__":
    unittest.main()
