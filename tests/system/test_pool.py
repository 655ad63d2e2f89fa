"""Small objects on a pool of drives of their own: two copies from six drives on, and drives that are lost."""

import json
import os
import shutil
import signal

from harness import OWNER, STAYING, SystemTest, larder, noise, refusal

RACKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "racks")


class Pool(SystemTest):
    def description(self, paths, extra=""):
        """A description of nas8 that has a pool with a drive for each of `paths`."""
        with open(os.path.join(RACKS, "nas8.toml"), encoding="utf-8") as file:
            rack = file.read()
        pool = "".join("[[pool]]\n" + (f'path = "{path}"\n' if path else "") for path in paths)
        path = os.path.join(self.root, "pooled.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(rack.replace("[drive]\n", pool + extra + "[drive]\n"))
        return path

    def pooled(self, paths):
        return self.made(self.description(paths), **{**STAYING, "intake.below": "1 MiB"})

    def test_six_drives_hold_two_copies_and_one_may_be_lost(self):
        data = self.pooled([None] * 6)
        server = self.serve(data)
        objects = {f"{number:03}": noise(5_000 + 97 * number, number) for number in range(120)}
        client = server.filled(objects)
        intake = server.status()["intake"]
        self.assertEqual((intake["copies"], len(intake["drives"])), (2, 6))
        self.assertEqual(sum(drive["state"] == "logging" for drive in intake["drives"]), 2)
        self.assertGreaterEqual(intake["accepted_bytes"], sum(map(len, objects.values())))
        self.assertEqual(sorted(os.listdir(os.path.join(data, "pool"))), [f"{n:04}" for n in range(6)])
        self.assertFalse(os.path.exists(os.path.join(data, "workshop", "intake")))
        # The drive that had all of it in its log is lost with the process.
        logging = next(drive["place"] for drive in intake["drives"] if drive["state"] == "logging")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        shutil.rmtree(logging)
        server = self.serve(data)
        client = server.client()
        self.reads(client, "pantry", objects)
        client.put_object(Bucket="pantry", Key="new", Body=b"after the loss")
        self.reads(client, "pantry", {"new": b"after the loss"})
        self.assertEqual(server.status()["intake"]["losses"], 0)

    def test_a_drive_that_is_not_mounted_is_missing_and_is_never_made(self):
        paths = [os.path.join(self.root, name) for name in ("one", "two")]
        data = self.pooled(paths)
        said = refusal(larder("serve", "--data", data, "--port", 0))
        self.assertIn("it does not exist, and only you can create it", said)
        self.assertFalse(any(map(os.path.exists, paths)))
        for path in paths:
            os.mkdir(path)
        server = self.serve(data)
        client = server.filled({"k": b"kept"})
        self.assertEqual(server.status()["intake"]["copies"], 1)
        server.stop()
        # One drive logs and the other has nothing yet but its label; it may be away.
        idle = [path for path in paths if not set(os.listdir(path)) - {"intake.pool", "intake.lock", OWNER}]
        self.assertEqual(len(idle), 1, [os.listdir(path) for path in paths])
        os.rename(idle[0], idle[0] + "-away")
        server = self.serve(data)
        self.reads(server.client(), "pantry", {"k": b"kept"})
        self.assertFalse(os.path.exists(idle[0]))
        status = server.status()
        warnings = " ".join(self.warns(server, "pool_drive_missing"))
        self.assertIn(f"drives of the pool of small objects are missing: {idle[0]}. ", warnings)
        self.assertIn((idle[0], "missing"), {(drive["place"], drive["state"]) for drive in status["intake"]["drives"]})
        self.assertIn(f"{idle[0]} has no label; mount it", server.log())

    def lacks_a_drive(self, data, place):
        output = larder("serve", "--data", data, "--port", 0)
        self.assertEqual(output.returncode, 1)
        self.assertIn(f"a drive of the pool is missing: {place} has no label; mount it", output.stderr)
        self.assertIn("lacks a drive, and may have the only copy of the last acknowledged changes", output.stderr)

    def test_a_start_waits_for_the_drive_that_may_hold_what_was_acknowledged_last(self):
        paths = [os.path.join(self.root, name) for name in ("one", "two")]
        for path in paths:
            os.mkdir(path)
        data = self.pooled(paths)
        server = self.serve(data)
        objects = {f"{number:02}": noise(3_000, number) for number in range(20)} | {"big": noise(2_000_000, 99)}
        client = server.filled(objects)
        logging = next(drive["place"] for drive in server.status()["intake"]["drives"] if drive["state"] == "logging")
        server.kill()
        os.rename(logging, logging + "-away")
        self.lacks_a_drive(data, logging)
        # Where the drive was mounted is an empty directory now, which does not become a drive.
        os.mkdir(logging)
        self.lacks_a_drive(data, logging)
        self.assertEqual(os.listdir(logging), [])
        os.rmdir(logging)
        os.rename(logging + "-away", logging)
        server = self.serve(data)
        client = server.client()
        self.reads(client, "pantry", objects)
        # After a stop in order it starts without the drive, and what lies elsewhere can be read.
        server.stop()
        os.rename(logging, logging + "-away")
        os.mkdir(logging)
        server = self.serve(data)
        client = server.client(retries={"max_attempts": 0})
        self.reads(client, "pantry", {"big": objects["big"]})
        self.fails(503, "ServiceUnavailable", client.get_object, Bucket="pantry", Key="07")
        server.stop()
        self.assertIn("mount it, and verify again", larder("verify", "--data", data).stdout)
        os.rmdir(logging)
        os.rename(logging + "-away", logging)
        server = self.serve(data)
        self.reads(server.client(), "pantry", objects)

    def test_another_pool_in_the_place_of_this_ones_is_refused(self):
        data = self.made("nas8", **STAYING)
        server = self.serve(data)
        server.filled({"k": b"kept"})
        server.stop()
        intake = os.path.join(data, "workshop", "intake")
        os.rename(intake, intake + "-away")
        said = refusal(larder("serve", "--data", data, "--port", 0))
        self.assertIn("is missing, or is not the one that this catalog was used with", said)
        shutil.rmtree(intake)
        os.rename(intake + "-away", intake)
        server = self.serve(data)
        self.reads(server.client(), "pantry", {"k": b"kept"})

    def test_drives_of_the_pool_take_their_power_from_the_rack(self):
        beside = "slot = [8, 0, 0]\ndomains = { power = 0, controller = 0 }\n"
        said = refusal(larder("plan", self.description([None], beside)))
        self.assertIn("`power` lets 3 drives be awake at once, and a group has 4", said)
        outside = json.loads(larder("plan", self.description([None]), "--json").stdout)
        self.assertEqual((outside["pool_drives"], outside["active_drives_max"]), (1, 4))
