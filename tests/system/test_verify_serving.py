"""`larder verify` beside a running server: it wakes nobody unless told to, finds what is wrong on both sides, and takes
nothing that clients, migration and reclaiming do meanwhile for damage."""

import json
import os
import random
import signal
import subprocess
import threading
import time

from harness import BINARY, BRISK, FILES, STAYING, SystemTest, larder, noise

SETTINGS = {**BRISK, "migrate.pack_size": "1 MB"}


def wakes(server):
    return sum(server.totals()["group_wakes"])


class VerifyServing(SystemTest):
    def cold(self, settings=None):
        server = self.rack("nas8", settings or SETTINGS)
        objects = {f"{n:02}": noise(200_000 + 977 * n, n) for n in range(20)}
        server.filled(objects)
        server.until_cold()
        return server, objects

    def clean(self, server, *words):
        report = self.verified(server.data, *words)
        self.assertEqual((report["clean"], report["findings"]), (True, []))
        return report

    def test_sleeping_drives_are_left_alone_until_they_are_asked_for(self):
        server, objects = self.cold()
        before = wakes(server)
        report = self.clean(server)
        self.assertEqual(wakes(server), before)
        skipped = report["rack"]["skipped"]
        self.assertEqual([group["why"] for group in skipped], ["asleep"] * len(skipped))
        self.assertEqual(len(skipped), server.status()["groups"]["total"])
        self.assertEqual((report["rack"]["stacks"], report["catalog"]["stored"]), (0, len(objects)))
        said = larder("verify", "--data", server.data)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("asleep; --wake wakes each group once", said.stdout)
        self.assertIn("all that was checked agrees", said.stdout)
        report = self.clean(server, "--wake")
        self.assertEqual(wakes(server), before + len(skipped))
        rack = report["rack"]
        self.assertEqual((rack["stacks"], rack["skipped"]), (len(server.stacks()), []))
        self.assertEqual(rack["stack_bytes"], rack["accounted_bytes"])
        deep = self.clean(server, "--deep")["rack"]
        self.assertGreaterEqual(deep["checked_bytes"], sum(map(len, objects.values())))
        self.assertEqual((deep["stacks"], deep["skipped"]), (rack["stacks"], []))
        server.until_asleep()
        before = wakes(server)
        self.assertFalse(self.clean(server, "--no-drives")["rack"]["drives_read"])
        self.assertEqual(wakes(server), before)
        # The same as without the server.
        self.assertEqual(server.stop(), 0)
        alone = self.clean(server, "--deep")
        self.assertEqual(alone["rack"]["stacks"], rack["stacks"])
        self.assertEqual(alone["catalog"], report["catalog"])

    def test_what_is_wrong_is_found_on_both_sides_and_named_as_without_a_server(self):
        server, objects = self.cold()
        stacks = server.stacks()
        os.remove(stacks[0])
        name, drive = os.path.basename(stacks[1]), os.path.dirname(stacks[1])
        unknown = f"{'f' * 15}1{name[16:]}"
        with open(stacks[1], "rb") as stack, open(os.path.join(drive, unknown), "wb") as copy:
            copy.write(stack.read())
        with open(os.path.join(drive, "notes.txt"), "w", encoding="ascii") as stranger:
            stranger.write("not ours")
        found = self.verified(server.data, "--wake")
        kinds = sorted((finding["kind"], finding.get("file")) for finding in found["findings"])
        expected = [("stack-bad", os.path.basename(stacks[0])), ("stranger", "notes.txt"), ("unknown", unknown)]
        self.assertEqual(kinds, sorted(expected))
        said = larder("verify", "--data", server.data, "--wake", "--all")
        self.assertEqual(said.returncode, 1)
        self.assertIn("is missing", said.stdout)
        self.assertIn("3 things are wrong", said.stdout)
        self.reads(server.client(), "pantry", objects)
        os.remove(os.path.join(drive, unknown))
        os.remove(os.path.join(drive, "notes.txt"))
        # The deep form repairs the stack, and says so.
        found = self.verified(server.data, "--deep")
        self.assertEqual({finding["kind"] for finding in found["findings"]}, {"stack-bad"})
        server.until("the stack is regenerated", lambda _: os.path.exists(stacks[0]))
        server.until_asleep()
        self.clean(server, "--deep")

    def test_rot_is_found_by_the_deep_form_repaired_and_gone_the_next_time(self):
        server, objects = self.cold()
        path = server.stacks()[0]
        with open(path, "r+b") as stack:
            stack.seek(4096 + 11)
            byte = stack.read(1)
            stack.seek(4096 + 11)
            stack.write(bytes([byte[0] ^ 16]))
        self.clean(server, "--wake")
        [finding] = self.verified(server.data, "--deep")["findings"]
        self.assertEqual((finding["kind"], finding["file"]), ("stack-bad", os.path.basename(path)))
        self.assertIn("repaired", finding["mend"])
        self.clean(server, "--deep")
        # What is lost is lost: two of the three stacks of a blob, as without a server.
        blob = os.path.basename(path)[:33]
        for stack in [stack for stack in server.stacks() if os.path.basename(stack).startswith(blob)][:2]:
            with open(stack, "r+b") as file:
                file.seek(4096)
                file.write(bytes(100_000))
        found = self.verified(server.data, "--deep")
        lost = {finding["object"] for finding in found["findings"] if finding["kind"] == "object-lost"}
        self.assertEqual(len(lost), found["rack"]["lost_objects"])
        self.assertTrue(0 < len(lost) < len(objects), found["findings"])
        self.assertIn("blob-lost", {finding["kind"] for finding in found["findings"]})
        whole = {key: body for key, body in objects.items() if f"s3://pantry/{key}" not in lost}
        self.reads(server.client(), "pantry", whole)
        for name in lost:
            self.assertGreaterEqual(server.ask("GET", name.removeprefix("s3:/"))[0], 500)

    def test_a_staged_file_that_is_gone_is_named_and_others_are_not(self):
        server = self.rack("nas8", {**STAYING, **FILES})
        objects = {f"{n}": noise(60_000, n) for n in range(5)}
        server.filled(objects)
        [slot] = server.explain("pantry", "3")["place"]["slots"]
        os.remove(os.path.join(server.data, "workshop", "staged", f"s-{slot:016x}"))
        [finding] = self.verified(server.data)["findings"]
        self.assertEqual((finding["kind"], finding["object"]), ("staged-missing", "s3://pantry/3"))
        server.client().delete_object(Bucket="pantry", Key="3")
        self.clean(server)

    def test_what_goes_on_meanwhile_is_no_damage(self):
        server = self.rack("nas8", {**SETTINGS, "intake.below": "64 KiB"})
        server.client().create_bucket(Bucket="pantry")
        stop, errors = threading.Event(), []

        def work(number):
            dice, client = random.Random(number), server.client()
            try:
                while not stop.is_set():
                    key = f"{number}/{dice.randrange(12)}"
                    if dice.randrange(3) == 0:
                        client.delete_object(Bucket="pantry", Key=key)
                    else:
                        size = dice.choice([3_000, 50_000, 400_000])
                        client.put_object(Bucket="pantry", Key=key, Body=noise(size, dice.random()))
            except Exception as error:  # a test ends with it
                errors.append(error)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for worker in workers:
            worker.start()
        try:
            stacks, end = 0, time.monotonic() + 25
            for words in (["--wake"], [], ["--deep"]) * 50:
                if time.monotonic() > end:
                    break
                report = self.verified(server.data, *words)
                self.assertEqual((words, report["findings"]), (words, []))
                self.assertTrue(report["clean"])
                stacks += report["rack"]["stacks"]
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        self.assertEqual(errors, [])
        totals = server.totals()
        self.assertGreater(stacks, 0)
        self.assertGreater(totals["migrated_bytes"], 5_000_000)
        server.until_cold()
        self.clean(server, "--deep")
        self.assertEqual(server.stop(), 0)
        self.clean(server, "--deep")

    def test_one_at_a_time_and_none_outlives_who_asked_or_the_server(self):
        server, _ = self.cold({**SETTINGS, "time_scale": 2})
        command = [BINARY, "verify", "--wake", "--data", server.data]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        asked = subprocess.Popen(command, **streams)
        try:
            time.sleep(1)
            refused = larder("verify", "--data", server.data)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn("a verification is running already", refused.stderr)
        finally:
            asked.kill()
            asked.communicate()
        time.sleep(6)
        self.clean(server, "--no-drives")
        larder("scrub", "pause", "--data", server.data)
        refused = larder("verify", "--deep", "--data", server.data)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("larder scrub resume", refused.stderr)
        asked = subprocess.Popen(command, **streams)
        time.sleep(0.5)
        self.assertEqual(server.stop(signal.SIGTERM), 0)
        _, errors = asked.communicate(timeout=60)
        self.assertEqual(asked.returncode, 2, errors)
        self.assertTrue("no server runs" in errors or "stopping" in errors, errors)
        self.assertTrue(json.dumps(self.clean(server)["leftovers"]))
