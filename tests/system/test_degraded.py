"""A start with drives that are missing, unlabelled or another's: what k + r can make up for is served, the rest is
said. Drives are given up and replaced with and without a server, and nothing that a wrong drive holds is touched."""

import json
import os
import shutil
import time
import unittest

import faults
from harness import BRISK, FILES, LABEL, SystemTest, larder, noise, refusal

SMALL = {**BRISK, "migrate.pack_size": "700 kB"}


def bodies(count):
    return {f"k{i:02}": noise(300_000 + i, f"body{i}") for i in range(count)}


def tree(folder):
    """Every file below `folder` with its bytes."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                found[os.path.relpath(os.path.join(at, name), folder)] = file.read()
    return found


class Racks(SystemTest):
    def cold(self, rack, count=10, settings=None):
        """A stopped rack with cold objects; gives the data directory, the objects and the drives of `k00`."""
        server = self.rack(rack, settings or SMALL)
        client, objects = server.client(), bodies(count)
        client.create_bucket(Bucket="pantry")
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        server.until_cold()
        drives = [drive["drive"] for drive in server.explain("pantry", "k00")["place"]["drives"]]
        self.assertEqual(server.stop(), 0)
        return server.data, objects, drives

    def place(self, data, drive):
        return os.path.join(data, "drives", f"{drive:04}")

    def empty(self, data, drive):
        shutil.rmtree(self.place(data, drive))
        os.mkdir(self.place(data, drive))

    def all_read(self, server, objects):
        self.reads(server.client(), "pantry", objects)

    def reported(self, server, drive):
        [found] = [report for report in server.drives() if report["drive"] == drive]
        return found

    def drive(self, what, data, number, *words):
        return larder("drive", what, str(number), "--data", data, *words)

    def does(self, what, data, number, *words):
        output = self.drive(what, data, number, "--json", *words)
        self.assertEqual(output.returncode, 0, output.stderr)
        return json.loads(output.stdout)

    def refuses(self, what, data, number, *repairs):
        said = refusal(self.drive(what, data, number))
        for fix in repairs:
            self.assertIn(fix, said)

    def until_rebuilt(self, server, *drives):
        self.assertTrue(drives, "some drive is rebuilt")

        def done(status):
            left = {rebuild["drive"]: rebuild["left_bytes"] for rebuild in status["rebuilds"]}
            return all(left.get(drive, 0) == 0 for drive in drives)

        return server.until(f"drives {drives} are rebuilt", done)

    def kinds(self, data, *words):
        return sorted(finding["kind"] for finding in self.verified(data, *words)["findings"])

    def says(self, data, verdict):
        """The last line of `larder verify`."""
        self.assertEqual(larder("verify", "--data", data).stdout.splitlines()[-1], f"verdict   {verdict}")


class DegradedStarts(Racks):
    def test_a_first_start_finds_out_what_is_wrong_with_drives_and_later_ones_wake_nothing(self):
        data = self.made("pelican-mini", **SMALL)
        stranger = self.made("pelican-mini", "stranger", **SMALL)
        gone, emptied, foreign = 5, 17, 60
        shutil.rmtree(self.place(data, gone))
        self.empty(data, emptied)
        shutil.rmtree(self.place(data, foreign))
        shutil.copytree(self.place(stranger, foreign), self.place(data, foreign))
        before = {drive: tree(self.place(data, drive)) for drive in (emptied, foreign)}
        wrong = {gone: "there is no directory", emptied: "has no label", foreign: "belongs to rack"}

        server = self.serve(data)
        began = server.status()
        self.assertLess(began["groups"]["initialised"], began["groups"]["total"], "it takes a while")
        server.client().create_bucket(Bucket="pantry")
        status = server.until_asleep()
        self.assertEqual(status["totals"]["drive_starts"], 96, "every drive was started, and once")
        self.assertEqual(status["totals"]["group_wakes"], [0, 0, status["groups"]["total"]])
        for drive, reason in wrong.items():
            self.assertIn(reason, self.reported(server, drive)["reason"])
            self.assertTrue(any(reason in line for line in status["warnings"]), status["warnings"])
        self.assertEqual({drive for drive, reported in enumerate(server.drives()) if reported["reason"]}, set(wrong))
        self.assertEqual(server.stop(), 0)

        server = self.serve(data)
        time.sleep(2)
        status = server.status()
        self.assertEqual(status["groups"]["initialised"], status["groups"]["total"])
        self.assertEqual(status["totals"]["drive_starts"], 0, "nothing is woken for what is known")
        self.assertEqual(server.stop(), 0)
        self.assertFalse(os.path.exists(self.place(data, gone)))
        self.assertEqual({drive: tree(self.place(data, drive)) for drive in before}, before, "nothing is overwritten")

    def test_r_drives_that_are_missing_or_empty_cost_nothing_but_redundancy(self):
        data, objects, drives = self.cold("pelican-mini")
        gone, emptied = drives[0], drives[3]
        shutil.rmtree(self.place(data, gone))
        self.empty(data, emptied)
        server = self.serve(data)
        self.all_read(server, objects)
        for drive, reason in ((gone, "there is no directory"), (emptied, "has no label")):
            reported = self.reported(server, drive)
            moving = ("away", "standby", "unmounting", "stopping")
            self.assertIn(reported["state"], moving, "it is tried again after a while")
            self.assertIn(reason, reported["reason"])
            self.assertIn(f"larder drive fail {drive}", reported["reason"])
            self.assertTrue(any(reason in line for line in server.status()["warnings"]), server.status()["warnings"])
            self.assertIn(reason, server.log())
            listed = larder("drive", "list", "--data", data).stdout
            self.assertIn(f"drive {drive}: ", listed)
        more = {"new": noise(400_000, "new")}
        server.client().put_object(Bucket="pantry", Key="new", Body=more["new"])
        server.until_cold()
        self.all_read(server, {**objects, **more})
        self.assertEqual(server.totals()["data_lost"], 0)
        self.assertEqual(server.stop(), 0)
        self.assertFalse(os.path.exists(self.place(data, gone)), "no directory is made in a drive's place")
        self.assertEqual(os.listdir(self.place(data, emptied)), [], "no label is written unasked")
        report = self.verified(data)
        kinds = {finding["kind"] for finding in report["findings"]}
        self.assertEqual(kinds, {"drive-unusable", "stack-bad"})
        unusable = [finding for finding in report["findings"] if finding["kind"] == "drive-unusable"]
        self.assertEqual([finding["drive"] for finding in unusable], sorted((gone, emptied)))
        self.assertTrue(all("larder drive fail" in finding["mend"] for finding in unusable), unusable)

    def test_swapped_foreign_and_unlabelled_drives_are_left_as_they_are(self):
        data, objects, drives = self.cold("pelican-mini")
        one, two = self.place(data, drives[1]), self.place(data, drives[2])
        other = self.made("pelican-mini", "other", **BRISK)
        for what in ("swapped", "foreign and unlabelled"):
            with self.subTest(what=what):
                moves = {"swapped": [(one, two)], "foreign and unlabelled": [(one, self.place(other, drives[1]))]}[what]
                for first, second in moves:
                    os.rename(first, first + ".aside")
                    os.rename(second, first)
                    os.rename(first + ".aside", second)
                if what != "swapped":
                    os.rename(os.path.join(two, LABEL), os.path.join(self.root, "label"))
                before = {path: tree(path) for path in (one, two)}
                server = self.serve(data)
                self.all_read(server, objects)
                server.client().put_object(Bucket="pantry", Key="new", Body=noise(900_000, what))
                server.client().delete_object(Bucket="pantry", Key="new")
                server.until_cold()
                for drive in drives[1:3]:
                    self.assertTrue(self.reported(server, drive)["reason"])
                self.assertEqual(server.stop(), 0)
                self.assertTrue({path: tree(path) for path in (one, two)} == before, "nothing on them was changed")
                for first, second in moves:
                    os.rename(second, first + ".aside")
                    os.rename(first, second)
                    os.rename(first + ".aside", first)
                if what != "swapped":
                    os.rename(os.path.join(self.root, "label"), os.path.join(two, LABEL))
        server = self.serve(data)
        self.all_read(server, objects)
        server.until_asleep()
        self.assertTrue(all(reported.get("reason") is None for reported in server.drives()), "all is well again")
        self.assertEqual(server.stop(), 0)
        self.assertNotIn("drive-unusable", self.kinds(data))

    def test_more_than_r_losses_fail_what_they_hit_and_nothing_else(self):
        settings = {**SMALL, "placement.group_choice": "random", "max_wait": "60 s"}
        data, objects, drives = self.cold("pelican-mini", 16, settings)
        hit = set()
        aside = [self.place(data, drive) for drive in drives[:3]]
        for path in aside:
            os.rename(path, path + ".aside")
        server = self.serve(data)
        for key, body in objects.items():
            held = [drive["drive"] for drive in server.explain("pantry", key)["place"]["drives"]]
            if len(set(held) & set(drives[:3])) > 2:
                hit.add(key)
                status, _, said = server.ask("GET", f"/pantry/{key}")
                self.assertGreaterEqual(status, 500)
                self.assertLess(len(said), 3000, "a message, no bytes of the object")
        self.assertIn("k00", hit)
        self.all_read(server, {key: body for key, body in objects.items() if key not in hit})
        self.assertEqual(server.totals()["data_lost"], 0, "they may come back")
        self.assertEqual(server.stop(), 0)
        for path in aside:
            os.rename(path + ".aside", path)
        server = self.serve(data)
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])

    def test_a_drive_that_comes_back_while_the_server_runs_is_used_again(self):
        data, objects, drives = self.cold("nas8")
        path = self.place(data, drives[0])
        os.rename(path, path + ".aside")
        server = self.serve(data)
        self.all_read(server, objects)
        self.assertTrue(self.reported(server, drives[0])["reason"])
        os.rename(path + ".aside", path)
        end = time.monotonic() + 90
        while self.reported(server, drives[0]).get("reason"):
            self.assertLess(time.monotonic(), end, "it is not tried again")
            # A scrub wakes every group, and a drive whose pause is over is started along with its own.
            self.assertEqual(larder("scrub", "start", "--data", data).returncode, 0)
            time.sleep(1)
            server.until_asleep()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data), [])

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_start_touches_no_drive(self):
        data, objects, _ = self.cold("nas8", 3)
        shim = faults.Faults(self.root)
        for op in ("open", "read", "create", "write"):
            shim.arm("fail", [(op, "/drives/", 1)], faults.FOREVER)
            server = self.serve(data, shim.environment())
            self.assertEqual(shim.hits(), 0, op)
            shim.disarm()
            self.all_read(server, objects)
            self.assertEqual(server.stop(), 0)


class GivenUpAndReplaced(Racks):
    def test_a_drive_is_given_up_without_a_server_and_rebuilt_by_the_next(self):
        data, objects, drives = self.cold("pelican-mini")
        first, second, third = drives[:3]
        shutil.rmtree(self.place(data, first))
        report = self.does("fail", data, first)
        self.assertEqual((report["drive"], report["state"]), (first, "failed"))
        self.does("fail", data, first)  # again is no error
        said = self.drive("fail", data, second).stdout
        self.assertIn(f"drive {second} is marked as failed", said)
        self.assertIn("next start", said)
        self.refuses("fail", data, third, "--force")
        self.refuses("fail", data, 4711, "no drive 4711")
        report = self.verified(data)
        self.assertEqual(report["findings"], [])
        lacking = report["rack"]["stacks_to_rebuild"]
        self.assertGreater(lacking, 1)
        self.says(data, f"readable, but degraded: {lacking} stacks are to be rebuilt")
        server = self.serve(data)
        self.assertEqual(self.reported(server, first)["state"], "failed")
        self.until_rebuilt(server, first, second)
        server.until_asleep()
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])
        self.says(data, "all agree")
        for drive in drives[2:4]:
            shutil.rmtree(self.place(data, drive))
        self.all_read(self.serve(data), objects)

    def test_what_is_no_failed_drives_empty_place_is_refused_and_left_alone(self):
        data, objects, drives = self.cold("nas8")
        drive = drives[0]
        # Without its label nobody knows what lies there.
        os.remove(os.path.join(self.place(data, drive), LABEL))
        before = tree(self.place(data, drive))
        for running in (False, True):
            server = self.serve(data) if running else None
            self.refuses("replace", data, drives[1], f"larder drive fail {drives[1]}")
            self.refuses("replace", data, 4711, "no drive 4711")
            self.does("fail", data, drive)
            self.refuses("replace", data, drive, "not empty", self.place(data, drive))
            self.assertTrue(tree(self.place(data, drive)) == before)
            if running:
                self.assertEqual(server.stop(), 0)
        shutil.rmtree(self.place(data, drive))
        self.refuses("replace", data, drive, "there is no directory", self.place(data, drive))
        os.mkdir(self.place(data, drive))
        os.mkdir(os.path.join(self.place(data, drive), "Holiday pictures"))
        self.refuses("replace", data, drive, "not empty")
        self.all_read(self.serve(data), objects)
        self.assertEqual(os.listdir(self.place(data, drive)), ["Holiday pictures"])

    def test_a_good_drive_is_retired_killed_on_the_way_and_pulled_when_it_is_said_to_be_empty(self):
        data, objects, drives = self.cold("pelican-mini")
        first, second = drives[:2]
        self.refuses("retire", data, 4711, "no drive 4711")
        self.assertEqual(self.does("retire", data, first)["state"], "retiring", "it needs no server")
        server = self.serve(data)
        self.does("retire", data, second)
        server.kill()
        server = self.serve(data)
        self.all_read(server, objects)

        def emptied(_):
            return all(self.reported(server, drive)["state"] == "retired" for drive in (first, second))

        server.until(f"drives {first} and {second} are retired", emptied)
        status = server.status()
        self.assertEqual(status["exposed"], {"blobs": [0, 0], "lost_blobs": 0}, "nothing was missing")
        self.assertEqual((status["drives"]["retired"], status["drives"]["failed"]), (2, 0))
        shown = larder("status", "--data", data).stdout
        for drive in (first, second):
            self.assertIn(f"drive {drive} is retired and may be pulled; ", shown)
        self.assertNotIn("failed", shown)
        server.until_asleep()
        self.assertEqual(server.stacks([first, second]), [], "what moved is removed")
        self.assertEqual(server.stop(), 0)
        for drive in (first, second):
            shutil.rmtree(self.place(data, drive))
        self.assertEqual(self.kinds(data, "--deep"), [])
        os.remove(server.log_path)
        server = self.serve(data)
        self.all_read(server, objects)
        said = f"a drive is retired and out of service; its remaining data is rebuilt drive=d{first}"
        self.assertIn(said, server.log())
        self.assertNotIn("failed permanently", server.log())
        os.mkdir(self.place(data, first))
        replaced = self.does("replace", data, first)
        self.assertEqual((replaced["state"], replaced["taken"]), ("standby", "another"))
        # r more may go.
        places = [drive["drive"] for drive in server.explain("pantry", "k00")["place"]["drives"]]
        self.assertEqual(server.stop(), 0)
        for drive in places[:2]:
            shutil.rmtree(self.place(data, drive))
        self.all_read(self.serve(data), objects)

    def test_a_drive_that_stays_away_is_given_up_and_rebuilt(self):
        settings = {**SMALL, "rebuild.after": "10 s"}
        data, objects, drives = self.cold("pelican-mini", settings=settings)
        gone = drives[0]
        shutil.rmtree(self.place(data, gone))
        server = self.serve(data)
        self.all_read(server, objects)
        server.until("it is given up", lambda _: self.reported(server, gone)["state"] == "failed")
        self.until_rebuilt(server, gone)
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])

    def comes_back(self, take_back, **more):
        """A drive is given up, partly rebuilt, and comes back; `take_back` waits until it is in service."""
        settings = {**SMALL, "rebuild.after": "10 s", "placement.group_choice": "random", "migrate.pack_size": "310 kB"}
        # Long enough for a drive that is back to be looked through before it sleeps.
        settings |= {"idle_timeout": "500 s", **more}
        data, objects, drives = self.cold("nas8", 80, settings=settings)
        gone, aside = drives[0], os.path.join(self.root, "aside")
        held = sorted(name for name in os.listdir(self.place(data, gone)) if name.endswith(".stack"))
        os.rename(self.place(data, gone), aside)
        # A third of it is rebuilt when the server is killed: that is no matter of time.
        shim = faults.Faults(self.root)
        shim.arm("before", [("create", ".stack", len(held) // 3)])
        server = self.serve(data, shim.environment())
        # What dies meanwhile is wanted by nobody.
        for key in sorted(objects)[-2:]:
            server.client().delete_object(Bucket="pantry", Key=key)
            del objects[key]
        self.all_read(server, {"k00": objects["k00"]})
        self.assertEqual(server.process.wait(120), -9, "a part of it is rebuilt")
        shim.disarm()
        # One stack that is there still is not what it was.
        with open(os.path.join(aside, held[-1]), "r+b") as file:
            file.seek(9_000)
            byte = file.read(1)
            file.seek(9_000)
            file.write(bytes([byte[0] ^ 1]))
        os.rename(aside, self.place(data, gone))
        server = self.serve(data)
        status = server.status()
        self.assertGreater(sum(rebuild["left_bytes"] for rebuild in status["rebuilds"]), 0, "and a part is not")
        take_back(server, gone, objects)
        status = self.until_rebuilt(server, gone)
        progress = next(rebuild for rebuild in status["rebuilds"] if rebuild["drive"] == gone)
        self.assertEqual(progress["there"], "returned")
        self.all_read(server, objects)
        server.until_migrated()
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])
        server = self.serve(data)
        self.all_read(server, objects)
        self.assertNotIn(self.reported(server, gone)["state"], ("failed", "away"))

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_drive_that_comes_back_half_rebuilt_is_recognised_by_the_operators_word(self):
        def replace(server, gone, _):
            replaced = self.does("replace", server.data, gone)
            self.assertNotEqual(replaced["state"], "failed")
            self.assertEqual(replaced["taken"], "itself")

        self.comes_back(replace)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_drive_that_comes_back_half_rebuilt_is_recognised_by_itself(self):
        def wait(server, gone, _):
            # It is tried when its group wakes, and a scrub wakes each group.
            def is_back(_):
                self.assertEqual(larder("scrub", "start", "--data", server.data).returncode, 0)
                return self.reported(server, gone)["state"] != "failed"

            server.until("it is taken back", is_back)

        self.comes_back(wait, **{"rebuild.recognise": True})

    def test_what_is_lost_beyond_r_is_named_and_all_else_is_served(self):
        data, objects, drives = self.cold("nas8", settings={**SMALL, "placement.group_choice": "random"})
        for drive in drives[:2]:
            shutil.rmtree(self.place(data, drive))
            self.does("fail", data, drive, "--force")
        lost = json.loads(larder("drive", "lost", "--data", data, "--json").stdout)
        named = {found["key"] for found in lost["objects"]}
        self.assertIn("k00", named)
        self.assertEqual(lost["count"], len(named))
        server = self.serve(data)
        said = larder("drive", "lost", "--data", data, "--json").stdout
        self.assertEqual(json.loads(said), lost, "a server says the same")
        self.all_read(server, {key: body for key, body in objects.items() if key not in named})
        for key in named:
            self.assertEqual(server.explain("pantry", key)["place"]["state"], "lost")
        self.assertIn("s3://pantry/k00", larder("drive", "lost", "--data", data).stdout)

    def replaced(self, running):
        """A drive fails, and is replaced at once: what it held is rebuilt all the same, and the new one is used."""
        # Of two groups one is drawn for every pack, so that some of them go to the group of the new drive.
        data, objects, drives = self.cold("nas8", settings={**SMALL, "placement.group_choice": "random"})
        drive = drives[0]
        server = self.serve(data) if running else None
        self.does("fail", data, drive)
        if running:
            self.assertIn(self.reported(server, drive)["state"], ("failed",))
            server.until_asleep()
        self.empty(data, drive)
        report = self.does("replace", data, drive)
        self.assertEqual((report["drive"], report["state"]), (drive, "standby"))
        self.assertIn(LABEL, os.listdir(self.place(data, drive)))
        self.refuses("replace", data, drive, f"larder drive fail {drive}")
        server = server or self.serve(data)
        self.all_read(server, objects)
        self.until_rebuilt(server, drive)
        more = {f"more{i}": noise(600_000, f"more{i}") for i in range(20)}
        for key, body in more.items():
            server.client().put_object(Bucket="pantry", Key=key, Body=body)
        server.until_cold()
        self.all_read(server, {**objects, **more})
        self.assertGreater(len(server.stacks([drive])), 0, "the new drive is used")
        self.assertIsNone(self.reported(server, drive).get("reason"))
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])
        # As many may fail as before, the new one among them.
        server = self.serve(data)
        places = {key: {d["drive"] for d in server.explain("pantry", key)["place"]["drives"]} for key in objects}
        self.assertEqual(server.stop(), 0)
        shutil.rmtree(self.place(data, drive))
        server = self.serve(data)
        self.all_read(server, {**objects, **more})
        self.assertTrue(all(len(held) == len(drives) for held in places.values()))

    def test_a_failed_drive_is_replaced_without_a_server(self):
        self.replaced(running=False)

    def test_a_failed_drive_is_replaced_while_the_server_runs(self):
        self.replaced(running=True)

    def test_a_drive_that_was_replaced_is_not_taken_for_its_replacement(self):
        data, objects, drives = self.cold("nas8")
        drive = drives[0]
        self.does("fail", data, drive)
        shutil.move(self.place(data, drive), os.path.join(self.root, "failed"))
        os.mkdir(self.place(data, drive))
        self.does("replace", data, drive)
        shutil.move(self.place(data, drive), os.path.join(self.root, "fresh"))
        shutil.move(os.path.join(self.root, "failed"), self.place(data, drive))
        server = self.serve(data)
        self.all_read(server, objects)
        self.assertIn("took its place", self.reported(server, drive)["reason"])
        before = tree(self.place(data, drive))
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(tree(self.place(data, drive)), before, "nothing on it is touched")
        self.assertIn("drive-unusable", self.kinds(data))
        shutil.move(self.place(data, drive), os.path.join(self.root, "failed"))
        shutil.move(os.path.join(self.root, "fresh"), self.place(data, drive))
        server = self.serve(data)
        self.all_read(server, objects)
        self.assertIsNone(self.reported(server, drive).get("reason"))

    def test_a_replaced_drive_may_fail_and_be_replaced_again(self):
        data, objects, drives = self.cold("pelican-mini")
        drive = drives[2]
        for _ in range(3):
            self.does("fail", data, drive)
            self.empty(data, drive)
            self.does("replace", data, drive)
        report = self.verified(data)
        self.assertEqual(report["findings"], [])
        self.assertGreater(report["rack"]["stacks_to_rebuild"], 0)
        server = self.serve(data)
        self.until_rebuilt(server, drive)
        self.does("fail", data, drive)
        self.all_read(server, objects)
        server.until_asleep()
        self.empty(data, drive)
        self.does("replace", data, drive)
        self.all_read(server, objects)
        self.until_rebuilt(server, drive)
        server.until_asleep()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_server_that_is_killed_while_it_rebuilds_beside_a_replacement_goes_on(self):
        data, objects, drives = self.cold("nas8", settings={**SMALL, **FILES})
        drive = drives[0]
        self.does("fail", data, drive)
        self.empty(data, drive)
        shim = faults.Faults(self.root)
        self.does("replace", data, drive)
        for step in (("after", [("create", ".stack", 1)]), ("before", [("sync", ".stack", 2), ("sync", "/intake/", 1)]),
                     ("after", [("sync", ".stack", 2), ("sync", "/intake/", 1)])):
            shim.arm(*step)
            server = self.serve(data, shim.environment())
            server.process.wait(60)
            self.assertEqual((server.process.returncode, shim.hits()), (-9, 1), step)
            shim.disarm()
            self.assertEqual(self.kinds(data), [], step)
        server = self.serve(data)
        self.until_rebuilt(server, drive)
        server.until_asleep()
        self.all_read(server, objects)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.kinds(data, "--deep"), [])
