"""A scrub of the real process finds rotten data on sleeping drives and repairs it, also after kills in the middle."""

import json
import os
import random
import time
import unittest

from harness import BRISK, SystemTest, larder, noise, refusal

SETTINGS = {**BRISK, "migrate.pack_size": "1 MB"}


def damage(path, kind):
    """Damages the stack at `path`."""
    size = os.path.getsize(path)
    if kind == "gone":
        os.remove(path)
    elif kind == "cut short":
        os.truncate(path, size // 2)
    else:
        at = {"in its header": 20, "in a fragment": 4096 + 11, "in its last page": size - 8192 + 70,
              "in its footer": size - 4096 + 30}[kind]
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 16]))


KINDS = ["gone", "cut short", "in its header", "in a fragment", "in its last page", "in its footer"]


class Scrub(SystemTest):
    def cold(self, **settings):
        server = self.rack("nas8", {**SETTINGS, **settings})
        objects = {f"{n:02}": noise(200_000 + 977 * n, n) for n in range(40)}
        server.filled(objects)
        server.until_cold()
        return server, objects

    def blobs(self, server):
        """The stacks of each blob."""
        blobs = {}
        for path in server.stacks():
            blobs.setdefault(os.path.basename(path)[:33], []).append(path)
        return [blobs[blob] for blob in sorted(blobs)]

    def report(self, server):
        return json.loads(larder("scrub", "status", "--data", server.data, "--json").stdout)

    def said(self, server):
        """What the text says of the whole rack, and the row of each group."""
        line, _, _, *rows = larder("scrub", "status", "--data", server.data).stdout.splitlines()
        return line, rows[:2]

    def until_scrubbed(self, server, timeout=90):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            report = self.report(server)
            if all(group["state"] == "complete" for group in report["status"]["groups"]):
                return report
            time.sleep(0.2)
        self.fail(f"not scrubbed: {json.dumps(report)}")

    def is_whole(self, server, objects):
        self.assertEqual(server.stop(), 0)
        found = self.verified(server.data, "--deep")
        self.assertTrue(found["clean"], found["findings"])
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", objects)

    def test_what_rots_in_any_place_is_found_and_repaired(self):
        server, objects = self.cold()
        blobs = self.blobs(server)
        self.assertGreaterEqual(len(blobs), len(KINDS))
        for stacks, kind in zip(blobs, KINDS):
            damage(random.Random(kind).choice(stacks), kind)
        line, rows = self.said(server)
        self.assertEqual(line, "no blob of 2 groups has been read yet, once in 90 d")
        self.assertEqual([row.split()[-1] for row in rows], ["never"] * 2, "a pass over an empty group is none")
        self.assertIn("starts from its first blob", larder("scrub", "start", "--data", server.data).stdout)
        report = self.until_scrubbed(server)
        counts = [group["last"] for group in report["status"]["groups"]]
        self.assertEqual(sum(count["lost_blobs"] for count in counts), 0)
        self.assertEqual(sum(count["repaired_stacks"] for count in counts), len(KINDS))
        line, rows = self.said(server)
        read = sum(count["blobs"] > 0 for count in counts)
        self.assertRegex(line, f"^{read} of 2 groups up to date.*; {len(KINDS)} stacks damaged, {len(KINDS)} repaired$")
        for row, count in zip(rows, counts, strict=True):
            self.assertRegex(row, " [0-9.]+ [a-z]+ ago$" if count["blobs"] else " never$")
        server.until_asleep()
        self.is_whole(server, objects)

    def test_a_kill_in_the_middle_loses_nothing_and_the_next_pass_repairs(self):
        server, objects = self.cold()
        for turn in range(6):
            for stacks in self.blobs(server):
                damage(stacks[turn % len(stacks)], random.Random(turn).choice(KINDS))
            larder("scrub", "start", "--data", server.data)
            time.sleep(0.1 + 0.15 * turn)
            server.kill()
            server = self.serve(server.data)
            larder("scrub", "start", "--data", server.data)
            self.until_scrubbed(server)
        server.until_asleep()
        self.is_whole(server, objects)

    def test_a_blob_of_which_too_few_drives_are_there_is_put_off_and_read_once_they_are_back(self):
        # With one wake a day for scrubs, what is put off would be read a modelled day later.
        server, objects = self.cold(**{"scrub.starts_per_day": 100})
        # Of a blob of 2 + 1 stacks two are on drives that are not there, and the third is rotten.
        stacks = sorted(self.blobs(server)[0])
        away = [os.path.dirname(stack) for stack in stacks[:2]]
        damage(stacks[2], "in a fragment")
        for drive in away:
            os.rename(drive, drive + ".away")
        larder("scrub", "start", "--data", server.data)
        report = self.until_scrubbed(server)
        number, nonce = os.path.basename(stacks[0])[:33].split("-")
        self.assertIn(f"b{int(number, 16)}-{nonce}", [unread["blob"] for unread in report["unread"]])
        self.assertEqual(report["lost_objects"], [], "what could not be read is not lost")
        self.assertIn("could not be read yet", larder("status", "--data", server.data).stdout)
        for drive in away:
            os.rename(drive + ".away", drive)
        server.until("read once the drives are back", lambda _: not self.report(server)["unread"])
        report = self.report(server)
        counts = [group["last"] for group in report["status"]["groups"]]
        self.assertEqual(sum(count["repaired_stacks"] for count in counts), 1)
        server.until_asleep()
        self.is_whole(server, objects)

    def test_a_pause_holds_over_a_restart_and_what_is_lost_is_named(self):
        server, objects = self.cold()
        self.assertIn("paused", larder("scrub", "pause", "--data", server.data).stdout)
        server.stop()
        server = self.serve(server.data)
        self.assertTrue(self.report(server)["status"]["paused"])
        self.assertIn("scrubs are resumed", larder("scrub", "resume", "--data", server.data).stdout)
        # Of a blob of 2 + 1 stacks two are gone.
        lost = self.blobs(server)[0]
        damage(lost[0], "gone")
        damage(lost[1], "gone")
        larder("scrub", "start", "--data", server.data)
        report = self.until_scrubbed(server)
        named = {found["key"] for found in report["lost_objects"]}
        self.assertTrue(named and named < set(objects), report["lost_objects"])
        self.reads(server.client(), "pantry", {key: body for key, body in objects.items() if key not in named})
        client = server.client()
        for key in named:
            self.fails(500, "InternalError", client.get_object, Bucket="pantry", Key=key)
        self.assertIn("no such group", refusal(larder("scrub", "start", "--group", "99", "--data", server.data)))


if __name__ == "__main__":
    unittest.main()
