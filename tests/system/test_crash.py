"""Ends of all kinds: kill -9, shutdown, damage to what the server keeps. Nothing acknowledged is ever lost."""

import os
import random
import shutil
import signal
import sqlite3
import threading
import time

import botocore.exceptions

from harness import BRISK, STAYING, Server, SystemTest, larder, noise, refusal


class Writer(threading.Thread):
    """Puts objects until the server dies, and remembers what was acknowledged, and what may or may not have been."""

    def __init__(self, server, prefix, seed):
        super().__init__(daemon=True)
        self.client, self.prefix, self.random = server.client(), prefix, random.Random(seed)
        self.kept, self.unknown, self.error = {}, {}, None

    def run(self):
        for i in range(100_000):
            key = f"{self.prefix}/{self.random.randrange(60):02}"
            body = noise(self.random.choice([0, 10, 5000, 70_000, 400_000]), f"{self.prefix}{i}")
            self.unknown = {key: body}
            try:
                if self.random.random() < 0.15:
                    self.unknown = {key: None}
                    self.client.delete_object(Bucket="pantry", Key=key)
                    self.kept[key] = None
                else:
                    self.client.put_object(Bucket="pantry", Key=key, Body=body)
                    self.kept[key] = body
                self.unknown = {}
            except botocore.exceptions.ClientError as error:
                self.error = error
                return
            except (botocore.exceptions.BotoCoreError, OSError):
                return


class Crashes(SystemTest):
    def found(self, client, key):
        try:
            return client.get_object(Bucket="pantry", Key=key)["Body"].read()
        except client.exceptions.NoSuchKey:
            return None

    def test_what_was_acknowledged_survives_kill_9(self):
        data = self.made("pelican-mini", **{**BRISK, "migrate.scan_interval": "50 ms"})
        server = self.serve(data)
        server.client().create_bucket(Bucket="pantry")
        kept, migrated = {}, 0
        for crash in range(5):
            writers = [Writer(server, f"writer {w}", f"{crash}/{w}") for w in range(3)]
            for writer in writers:
                writer.start()
            time.sleep(1.0 + 0.7 * crash)
            migrated += server.totals()["migrated_bytes"]
            server.kill()
            server = self.serve(data)
            client = server.client()
            for writer in writers:
                writer.join(60)
                self.assertFalse(writer.is_alive())
                self.assertIsNone(writer.error)
                kept.update(writer.kept)
                for key, body in writer.unknown.items():
                    found = self.found(client, key)
                    self.assertIn(found, (kept.get(key), body), f"{key} is either the old or the new one")
                    kept[key] = found
            for key, body in kept.items():
                self.assertTrue(self.found(client, key) == body, f"{key} after crash {crash}")
        self.assertGreater(migrated, 0, "it was killed while it migrated")
        server.until_cold()
        for key, body in kept.items():
            self.assertTrue(self.found(client, key) == body, f"{key} when cold")
        self.assertEqual(server.stop(), 0)

    def test_a_clean_restart_goes_on_where_it_was(self):
        data = self.made("nas8", **BRISK)
        server = self.serve(data)
        client = server.filled({"cold": b"cold"})
        before = server.until_cold()
        starts = [drive["starts_today"] for drive in server.drives()]
        self.assertEqual(server.stop(), 0)
        self.configure(data, STAYING)
        server = self.serve(data)
        client = server.client()
        client.put_object(Bucket="pantry", Key="hot", Body=b"hot")
        self.assertEqual(server.stop(signal.SIGINT), 0)
        server = self.serve(data)
        after = server.status()
        self.assertGreaterEqual(after["modelled_s"], before["modelled_s"], "time goes on")
        self.assertEqual([drive["starts_today"] for drive in server.drives()], starts, "starts are not forgotten")
        self.assertEqual(after["workshop"]["staged_count"], 1)
        self.assertLess(after["capacity"]["free_bytes"], after["capacity"]["total_bytes"])
        self.reads(server.client(), "pantry", {"cold": b"cold", "hot": b"hot"})

    def test_deletes_are_not_forgotten_by_a_crash(self):
        data = self.made("nas8", **{**BRISK, "migrate.pack_size": "1 MB", "placement.batch": "1 GB"})
        server = self.serve(data)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        for key in "ab":
            client.put_object(Bucket="pantry", Key=key, Body=noise(2_000_000, key))
        server.until_cold()
        client.delete_object(Bucket="pantry", Key="a")
        server.kill()
        server = self.serve(data)
        self.assertEqual(server.totals()["waiting_reclaim_bytes"], 2_000_000)
        self.reads(server.client(), "pantry", {"b": noise(2_000_000, "b")})
        server.until("it is given back", lambda s: s["totals"]["waiting_reclaim_bytes"] == 0)
        server.until_cold()
        self.assertEqual(len(server.stacks()), 3, "only the stacks of b are left")

    def test_shutdown_in_the_middle_of_work_loses_nothing(self):
        data = self.made("pelican-mini", **{**BRISK, "migrate.scan_interval": "50 ms"})
        server = self.serve(data)
        server.client().create_bucket(Bucket="pantry")
        writer = Writer(server, "w", 1)
        writer.start()
        time.sleep(3)
        self.assertEqual(server.stop(), 0)
        writer.join(60)
        server = self.serve(data)
        kept = {key: body for key, body in writer.kept.items() if key not in writer.unknown}
        for key, body in kept.items():
            self.assertTrue(self.found(server.client(), key) == body, key)


class Refused(SystemTest):
    def refused(self, data, *repairs):
        said = refusal(larder("serve", "--data", data, "--port", "0"))
        for fix in repairs:
            self.assertIn(fix, said)

    def damage(self, data, name, change):
        path = os.path.join(data, name)
        with open(path, "rb") as file:
            before = file.read()
        with open(path, "wb") as file:
            file.write(change(before))
        return lambda: open(path, "wb").write(before)

    def test_two_servers_never_share_a_directory(self):
        server = self.rack("nas8")
        self.refused(server.data, f"in use by process {server.process.pid}", "stop that server first")
        self.assertEqual(server.status()["rack"], "nas8", "the first is not disturbed")

    def test_a_foreign_directory_is_left_alone(self):
        foreign = os.path.join(self.root, "letters")
        os.mkdir(foreign)
        with open(os.path.join(foreign, "letter"), "w", encoding="ascii") as file:
            file.write("dear")
        for words in (["quickstart", "--port", "0"], ["init", "--rack", "nas8"], ["serve", "--port", "0"]):
            said = refusal(larder(*words, "--data", foreign))
            self.assertIn("choose", said)
            self.assertEqual(os.listdir(foreign), ["letter"])

    def test_damage_is_refused_and_said_plainly(self):
        server = self.rack("nas8", BRISK)
        client = server.filled({"k": b"x"})
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        data = server.data
        # Or the catalog would be made again from there.
        shutil.rmtree(os.path.join(data, "workshop", "journal"))
        flip = lambda text: text[:30] + bytes([text[30] ^ 1]) + text[31:]
        for name, change in [
            ("identity", flip),
            ("identity", lambda _: b""),
            ("credentials", lambda _: b"\xff\xfe"),
            ("rack.toml", lambda text: text.replace(b"k = 2", b"k = 3")),
            ("larder.toml", lambda text: text + b"\nnonsense = 1\n"),
            ("catalog.db", lambda text: b"not a catalog".ljust(4096, b"!")),
            ("catalog.db", lambda text: text[:100] + bytes(len(text) - 100)),
        ]:
            with self.subTest(name=name):
                fix = self.damage(data, name, change)
                self.refused(data, name)
                fix()
        again = self.serve(data)
        self.reads(again.client(), "pantry", {"k": b"x"})

    def test_a_wrong_or_missing_part_is_named(self):
        data = self.made("nas8", **BRISK)
        for name in ("identity", "credentials", "rack.toml", "larder.toml", "workshop"):
            path = os.path.join(data, name)
            os.rename(path, path + ".away")
            self.refused(data, name, "missing")
            os.rename(path + ".away", path)

    def test_a_killed_server_is_not_started_without_the_log_of_its_small_objects(self):
        server = self.rack("nas8", STAYING)
        server.filled({"k": b"x"})
        server.kill()
        path = os.path.join(server.data, "workshop", "intake")
        os.rename(path, path + ".away")
        for is_mount_point in (False, True):
            self.refused(server.data, "workshop/intake is missing", "accept_older_catalog")
            self.assertIn("workshop/intake is missing", larder("verify", "--data", server.data).stderr)
            self.assertIn("workshop/intake is missing", larder("drive", "fail", 1, "--data", server.data).stderr)
            if not is_mount_point:
                os.mkdir(path, 0o700)
        os.rmdir(path)
        with open(path, "wb"):
            os.chmod(path, 0o600)
        self.refused(server.data, "workshop/intake", "make sure that it is a readable and writable directory")
        os.remove(path)
        os.rename(path + ".away", path)
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", {"k": b"x"})
        # Who has lost it says so, and goes on with what the catalog has.
        server.client().put_object(Bucket="pantry", Key="lost", Body=b"y")
        server.kill()
        shutil.rmtree(path)
        self.configure(server.data, {**STAYING, "accept_older_catalog": True})
        self.assertEqual(self.serve(server.data).stop(), 0)
        self.configure(server.data, STAYING)
        server = self.serve(server.data)
        self.assertGreaterEqual(server.ask("GET", "/pantry/k")[0], 404)
        server.client().put_object(Bucket="pantry", Key="new", Body=b"z")
        self.reads(server.client(), "pantry", {"new": b"z"})

    def test_no_catalog_is_no_empty_catalog(self):
        server = self.rack("nas8", BRISK)
        client = server.filled({"k": b"x"})
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        path = os.path.join(server.data, "catalog.db")
        with sqlite3.connect(path) as database:
            self.assertEqual(database.execute("pragma integrity_check").fetchone(), ("ok",))
        journal = os.path.join(server.data, "workshop", "journal")
        for lost in (path, journal):
            os.rename(lost, lost + ".away")
        self.refused(server.data, "catalog.db")
        for lost in (path, journal):
            shutil.rmtree(lost, ignore_errors=True)
            os.rename(lost + ".away", lost)
        self.reads(self.serve(server.data).client(), "pantry", {"k": b"x"})

    def test_a_killed_init_is_completed_by_the_next(self):
        data = self.made("nas8", **BRISK)
        os.rename(os.path.join(data, "identity"), os.path.join(data, "unfinished"))
        said = refusal(larder("serve", "--data", data, "--port", "0"))
        self.assertIn("larder init", said)
        done = larder("init", "--rack", "nas8", "--data", data)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.configure(data, BRISK)
        self.servers.append(Server(data, "serve"))
