"""Bit rot and lost stacks: what the code can make up for is right, what it cannot is an error, never wrong bytes."""

import errno
import json
import os
import time
import unittest

import faults
from harness import BRISK, FILES, STAYING, SystemTest, noise


class Damage(SystemTest):
    def cold(self, rack, objects):
        server = self.rack(rack, {**BRISK, "migrate.pack_size": "1 MB"})
        client = server.filled(objects)
        server.until_cold()
        return server, client

    def stacks_of(self, server, key):
        """The stack files of an object's blob; its stacks differ from others in their length and name."""
        place = server.explain("pantry", key)["place"]
        stacks = server.stacks([drive["drive"] for drive in place["drives"]])
        by_name = {}
        for path in stacks:
            by_name.setdefault(os.path.basename(path).split(".")[0], []).append(path)
        mine = [paths for name, paths in by_name.items() if f"b{int(name[:16], 16)}-{name[17:]}" == place["blob"]]
        self.assertEqual(len(mine), 1, f"{by_name} {place['blob']}")
        self.assertEqual(len(mine[0]), place["code_data"] + place["code_parity"])
        return mine[0]

    def flip(self, path, every):
        """Flips a bit every so many bytes, from the middle of the first fragment on."""
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            for at in range(min(20_000, size // 2), size, every):
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 0x10]))

    def test_bit_rot_is_repaired_and_counted(self):
        for rack in ("pelican-mini", "nas8"):
            with self.subTest(rack=rack):
                self.root = os.path.join(self.root, rack)
                os.mkdir(self.root)
                objects = {"k": noise(3_000_000, 1)}
                server, client = self.cold(rack, objects)
                self.flip(self.stacks_of(server, "k")[0], 70_000)
                self.assertEqual(server.totals()["repaired_fragments"], 0)
                self.reads(client, "pantry", objects)
                self.assertGreater(server.totals()["repaired_fragments"], 0)
                self.assertEqual(server.totals()["data_lost"], 0)
                self.root = os.path.dirname(self.root)

    def test_rot_in_as_many_stacks_as_there_is_parity_is_repaired(self):
        objects = {"k": noise(3_000_000, 1)}
        server, client = self.cold("pelican-mini", objects)
        for path in self.stacks_of(server, "k")[2:4]:
            self.flip(path, 5000)
        self.reads(client, "pantry", objects)

    def test_lost_stacks_are_made_up_for_until_there_are_too_many(self):
        objects = {"k": noise(3_000_000, 1), "other": noise(2_500_000, 2), "hot": b"hot"}
        server, client = self.cold("pelican-mini", objects)
        stacks = self.stacks_of(server, "k")
        for path in stacks[:2]:
            os.remove(path)
        self.reads(client, "pantry", objects)
        # Restarted, so that nothing is in the spool.
        self.assertEqual(server.stop(), 0)
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", objects)
        self.assertEqual(server.stop(), 0)
        os.remove(stacks[2])
        server = self.serve(server.data)
        status, _, body = server.ask("GET", "/pantry/k")
        self.assertGreaterEqual(status, 500)
        self.assertNotEqual(status, 501)
        self.assertLess(len(body), 3000, "a message, no bytes of the object")
        client = server.client()
        self.reads(client, "pantry", {key: objects[key] for key in ("other", "hot")})
        self.assertGreater(server.totals()["data_lost"], 0)
        self.assertEqual(client.head_object(Bucket="pantry", Key="k")["ContentLength"], 3_000_000)

    def test_rot_beyond_repair_never_gives_wrong_bytes(self):
        objects = {"k": noise(3_000_000, 1), "other": noise(2_500_000, 2)}
        server, client = self.cold("pelican-mini", objects)
        for path in self.stacks_of(server, "k")[:3]:
            self.flip(path, 5000)
        try:
            response, connection = server.open("GET", "/pantry/k")
            body = response.read() if response.status == 200 else b""
            connection.close()
        except Exception:  # cut off in the middle
            body = b""
        self.assertLess(len(body), len(objects["k"]))
        self.assertTrue(objects["k"].startswith(body))
        self.reads(client, "pantry", {"other": objects["other"]})

    def test_a_lost_staged_file_is_an_error_of_that_object_alone(self):
        server = self.rack("nas8", {**STAYING, **FILES})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        workshop = os.path.join(server.data, "workshop")

        def files():
            return {os.path.join(folder, file) for folder, _, names in os.walk(workshop) for file in names}

        client.put_object(Bucket="pantry", Key="kept", Body=noise(50_000, 1))
        before = files()
        for key in ("lost", "rotten"):
            client.put_object(Bucket="pantry", Key=key, Body=noise(50_000, key))
        lost, rotten = sorted(files() - before)
        # While it is away, since a file that is open can still be read.
        self.assertEqual(server.stop(), 0)
        os.remove(lost)
        self.flip(rotten, 1000)
        server = self.serve(server.data)
        client = server.client()
        for key in ("lost", "rotten"):
            try:
                status, _, body = server.ask("GET", f"/pantry/{key}")
            except Exception:  # cut off in the middle
                status, body = 500, b""
            self.assertTrue(status >= 500 or len(body) < 50_000, f"{key}: {status}")
        self.reads(client, "pantry", {"kept": noise(50_000, 1)})

    def test_a_lost_staged_file_does_not_stop_migration(self):
        data = self.made("nas8", **STAYING, **FILES)
        server = self.serve(data)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = {f"{i}": noise(50_000, i) for i in range(6)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        slots = {key: server.explain("pantry", key)["place"]["slots"][0] for key in objects}
        self.assertEqual(len(set(slots.values())), 6)
        self.assertEqual(server.stop(), 0)
        workshop = os.path.join(data, "workshop")
        files = sorted(os.path.join(f, n) for f, _, names in os.walk(workshop) for n in names)
        staged = [path for path in files if os.path.getsize(path) >= 50_000]
        self.assertEqual(len(staged), 6)
        os.remove(staged[3])
        self.configure(data, BRISK)
        server = self.serve(data)
        server.until("the others migrate", lambda s: s["totals"]["migrated_bytes"] >= 5 * 50_000, timeout=40)
        client = server.client()
        gone = sum(self.is_gone(server, key, body) for key, body in objects.items())
        self.assertEqual(gone, 1)

    def is_gone(self, server, key, body):
        status, _, found = server.ask("GET", f"/pantry/{key}")
        self.assertTrue(status >= 500 or found == body, key)
        return status >= 500


@unittest.skipIf(faults.why_not(), faults.why_not())
class FailingDisks(SystemTest):
    """System calls that fail, as a worn or a full disk would: an error to whom it concerns, and the rest goes on."""

    def failing(self, settings):
        self.faults = faults.Faults(self.root)
        server = self.serve(self.made("nas8", **settings), self.faults.environment())
        server.until_asleep()
        client = server.client()
        client.create_bucket(Bucket="pantry")
        return server, client

    def refused(self, server, path, reason, key="/pantry/new"):
        """A PUT fails with a 5xx, the log says why, and nothing of it is there."""
        status, _, _ = server.ask("PUT", key, body=noise(50_000, key))
        self.assertIn(status, (500, 503, 507), path)
        self.assertGreater(self.faults.hits(), 0, path)
        self.faults.disarm()
        self.assertIn(reason, server.log())
        self.assertEqual(server.ask("GET", key)[0], 404)

    def sound(self, server, client, objects):
        self.faults.disarm()
        client.put_object(Bucket="pantry", Key="after", Body=b"after")
        self.reads(client, "pantry", {**objects, "after": b"after"})
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.verified(server.data, "--deep")["findings"], [])

    def test_a_workshop_that_cannot_be_written_fails_the_put_and_nothing_else(self):
        server, client = self.failing({**STAYING, **FILES})
        objects = {"kept": noise(70_000, 1)}
        client.put_object(Bucket="pantry", Key="kept", Body=objects["kept"])
        for op in ("create", "write", "sync"):
            for error, reason in ((errno.EIO, "os error 5"), (errno.EROFS, "the file system is read-only")):
                self.faults.arm("fail", [(op, "/staged/s-", 1)], faults.FOREVER, error)
                self.refused(server, f"{op} {reason}", reason)
        self.faults.arm("fail", [("create", "/staged/s-", 1)], faults.FOREVER, errno.ENOSPC)
        self.refused(server, "a full disk", "lower workshop.capacity")
        self.sound(server, client, objects)

    def test_a_staged_file_that_cannot_be_read_is_an_error_of_that_object_alone(self):
        server, client = self.failing({**STAYING, **FILES})
        objects = {"kept": noise(70_000, 1), "other": noise(90_000, 2)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        [slot] = server.explain("pantry", "kept")["place"]["slots"]
        self.faults.arm("fail", [("read", f"s-{slot:016x}", 1)], faults.FOREVER)
        self.assertGreaterEqual(server.ask("GET", "/pantry/kept")[0], 500)
        self.reads(client, "pantry", {"other": objects["other"]})
        self.assertIn("os error 5", server.log())
        self.sound(server, client, objects)

    def staged(self, server, count):
        """So many objects in the workshop; gives them, and the slot of each."""
        objects = {f"k{number}": noise(120_000 + number, number) for number in range(count)}
        for key, body in objects.items():
            server.client().put_object(Bucket="pantry", Key=key, Body=body)
        slots = {key: server.explain("pantry", key)["place"]["slots"][0] for key in objects}
        self.assertEqual(len(set(slots.values())), count)
        return objects, slots

    def quarantined(self, server, names):
        """Exactly these objects are named as quarantined, by `status` and by `explain`."""
        [warning] = [text for text in server.status()["warnings"] if "quarantine" in text]
        for name in names:
            self.assertIn(name, warning)
            bucket, key = name.split("/", 1)
            self.assertIn("quarantine", json.dumps(server.explain(bucket, key)))
        self.assertTrue(warning.startswith(f"{len(names)} "), warning)

    def only_the_rest_migrates(self, server, objects, bad):
        """All but `bad` move with one wake of one group, and no drive is blamed."""
        rest = sum(len(body) for key, body in objects.items() if key not in bad)
        server.until("the rest migrates", lambda s: s["totals"]["migrated_bytes"] >= rest, timeout=60)
        # The longest that a migration waits after a failure is 30 s of modelled time: 0.3 s here.
        time.sleep(1)
        status = server.until_asleep()
        self.assertEqual(status["totals"]["group_wakes"], [0, 0, 1], server.log()[-3000:])
        self.assertEqual(status["drives"]["away"], 0)
        self.assertEqual(status["workshop"]["staged_count"], len(bad))
        self.quarantined(server, [f"pantry/{key}" for key in bad])

    def test_a_staged_file_that_cannot_be_read_costs_one_wake_and_keeps_nobody_else(self):
        server, _ = self.failing({**STAYING, **FILES})
        objects, slots = self.staged(server, 5)
        server.kill()
        self.configure(server.data, {**BRISK, **FILES})
        self.faults.arm("fail", [("read", f"s-{slots['k2']:016x}", 1)], faults.FOREVER)
        server = self.serve(server.data, self.faults.environment())
        self.only_the_rest_migrates(server, objects, ["k2"])
        # A start tries nothing anew on the rack: what is quarantined stays so.
        self.assertEqual(server.stop(), 0)
        server = self.serve(server.data, self.faults.environment())
        time.sleep(2)
        self.assertEqual(server.status()["totals"]["group_wakes"], [0, 0, 0])
        self.quarantined(server, ["pantry/k2"])
        # Written anew, it goes its way.
        server.client().put_object(Bucket="pantry", Key="k2", Body=objects["k2"])
        server.until_cold()
        self.assertEqual([text for text in server.status()["warnings"] if "quarantine" in text], [])
        self.sound(server, server.client(), objects)

    def test_damaged_and_missing_staged_files_are_found_with_one_wake_and_are_repaired_by_hand(self):
        server, _ = self.failing({**STAYING, **FILES})
        objects, slots = self.staged(server, 6)
        self.assertEqual(server.stop(), 0)
        path = {key: os.path.join(server.data, "workshop", "staged", f"s-{slot:016x}") for key, slot in slots.items()}
        for key in ("k1", "k4"):
            with open(path[key], "r+b") as file:
                file.seek(60_000)
                file.write(b"rotten")
        os.rename(path["k3"], os.path.join(self.root, "k3"))
        self.configure(server.data, BRISK)
        server = self.serve(server.data)
        self.only_the_rest_migrates(server, objects, ["k1", "k3", "k4"])
        self.assertIn("staged files that were missing when the server started: 1. ", str(server.status()["warnings"]))
        # One is put back by hand, one deleted.
        self.assertEqual(server.stop(), 0)
        os.rename(os.path.join(self.root, "k3"), path["k3"])
        server = self.serve(server.data)
        server.until("what was put back migrates", lambda s: s["totals"]["migrated_bytes"] >= len(objects["k3"]))
        server.client().delete_object(Bucket="pantry", Key="k4")
        self.quarantined(server, ["pantry/k1"])
        server.client().put_object(Bucket="pantry", Key="k1", Body=objects["k1"])
        server.until_cold()
        self.assertEqual([text for text in server.status()["warnings"] if "quarantine" in text], [])
        del objects["k4"]
        self.sound(server, server.client(), objects)

    def test_drives_that_fail_while_they_are_written_keep_data_in_the_workshop(self):
        for op in ("create", "write", "sync"):
            with self.subTest(op=op):
                self.root = os.path.join(self.root, op)
                os.mkdir(self.root)
                server, client = self.failing(STAYING)
                objects = {"k": noise(300_000, 1)}
                client.put_object(Bucket="pantry", Key="k", Body=objects["k"])
                server.kill()
                self.configure(server.data, {**BRISK, "time_scale": 500})
                self.faults.arm("fail", [(op, ".stack", 2)], 1)
                server = self.serve(server.data, self.faults.environment())
                self.reads(server.client(), "pantry", objects)
                server.until_migrated()
                self.assertEqual(self.faults.hits(), 1)
                server.until_asleep()
                self.sound(server, server.client(), objects)
                self.root = os.path.dirname(self.root)

    def test_a_read_makes_up_for_a_drive_that_answers_with_errors(self):
        server, client = self.failing({**BRISK, "time_scale": 500})
        objects = {"k": noise(900_000, 1), "other": noise(900_000, 2)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        server.until_cold()
        drive = server.explain("pantry", "k")["place"]["drives"][0]["drive"]
        self.faults.arm("fail", [("read", f"drives/{drive:04}/0", 1)], faults.FOREVER)
        self.reads(client, "pantry", objects)
        self.assertGreater(self.faults.hits(), 0)
        server.until_asleep()
        self.faults.disarm()
        self.reads(client, "pantry", objects)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.verified(server.data, "--deep")["findings"], [])

    def test_a_catalog_that_cannot_be_synced_acknowledges_nothing_more(self):
        server, client = self.failing(STAYING)
        objects = {"kept": noise(70_000, 1)}
        client.put_object(Bucket="pantry", Key="kept", Body=objects["kept"])
        self.faults.arm("fail", [("sync", "/intake/", 1)])
        self.assertGreaterEqual(server.ask("PUT", "/pantry/new", body=b"x" * 5000)[0], 500)
        self.faults.disarm()
        # What a failed sync has made durable nobody knows, so that nothing is written before the next start.
        self.assertGreaterEqual(server.ask("PUT", "/pantry/another", body=b"x")[0], 500)
        self.reads(client, "pantry", objects)
        self.assertIn("catalog", server.log())
        server.kill()
        server = self.serve(server.data, self.faults.environment())
        status, _, body = server.ask("GET", "/pantry/new")
        self.assertIn((status, body), [(200, b"x" * 5000), (404, body)])
        self.assertEqual(server.ask("GET", "/pantry/another")[0], 404)
        self.sound(server, server.client(), objects)

    def test_a_full_log_refuses_changes_and_goes_on_reading(self):
        # Behind the log nothing is written to catalog.db before very many changes wait for it: that it is full then is
        # tested in `catalog/src/tests/`.
        server, client = self.failing({**STAYING, **FILES})
        objects = {"kept": noise(70_000, 1)}
        client.put_object(Bucket="pantry", Key="kept", Body=objects["kept"])
        self.faults.arm("fail", [("write", "/intake/", 1)], faults.FOREVER, errno.ENOSPC)
        self.refused(server, "a full disk", "catalog")
        self.reads(client, "pantry", objects)
        self.sound(server, client, objects)
