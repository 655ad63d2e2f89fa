"""One bad record of the catalog costs one object, loudly, and nothing else."""

import contextlib
import glob
import os
import shutil
import sqlite3
import unittest

import botocore.exceptions
from harness import BRISK, FILES, STAYING, SystemTest, larder, noise, refusal

TEXTS = {f"k{at}": noise(20_000 + at, at) for at in range(3)}


def opened(data):
    """The catalog of a server that has ended; closed, log and all, behind the block."""
    return contextlib.closing(sqlite3.connect(os.path.join(data, "catalog.db")))


def records(data, tag):
    """The records of one kind, by key."""
    with opened(data) as catalog:
        rows = catalog.execute("SELECT k, v FROM kv WHERE k >= ? AND k < ? ORDER BY k", (tag, bytes([tag[0] + 1])))
        return rows.fetchall()


def write(data, key, value):
    with opened(data) as catalog:
        catalog.execute("UPDATE kv SET v = ? WHERE k = ?", (value, key))
        catalog.commit()


def flipped(value, at):
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


class CatalogDamageTest(SystemTest):
    def filled(self, settings):
        server = self.rack("nas8", settings)
        client = server.filled(TEXTS)
        return server

    def test_no_flipped_bit_gives_one_object_the_bytes_of_another(self):
        server = self.filled(STAYING)
        self.assertEqual(server.stop(), 0)
        # Every byte of the record of k1 that could name another place, one at a time: the slot stands near its end.
        key, value = next(row for row in records(server.data, b"O") if row[0].endswith(b"k1"))
        for at in range(len(value) - 24, len(value), 5):
            write(server.data, key, flipped(value, at))
            server = self.serve(server.data)
            status, _, body = server.ask("GET", "/pantry/k1")
            self.assertGreaterEqual(status, 500)
            self.assertIn(b"<Error>", body)
            self.reads(server.client(), "pantry", {key: TEXTS[key] for key in ("k0", "k2")})
            self.assertEqual(server.stop(), 0)
        write(server.data, key, value)
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", TEXTS)

    def test_a_damaged_record_of_any_kind_keeps_no_server_from_starting(self):
        server = self.filled(BRISK)
        server.until_cold()
        client = server.client()
        client.create_multipart_upload(Bucket="pantry", Key="open")
        client.delete_object(Bucket="pantry", Key="k2")
        self.assertEqual(server.stop(), 0)
        whole = os.path.join(server.data, "catalog.db")
        shutil.copy(whole, whole + ".whole")
        with opened(server.data) as catalog:
            tags = [row[0] for row in catalog.execute("SELECT DISTINCT substr(k, 1, 1) FROM kv ORDER BY 1")]
        self.assertGreaterEqual(len(tags), 8, tags)
        for tag in tags:
            shutil.copy(whole + ".whole", whole)
            key, value = records(server.data, tag)[0]
            write(server.data, key, flipped(value, 0))
            server = self.serve(server.data)
            listed = server.client().list_objects_v2(Bucket="pantry") if tag != b"B" else {"KeyCount": 2}
            self.assertGreaterEqual(listed["KeyCount"], 1, tag)
            # What the record was of may be gone; whatever is answered is right.
            for key in ("k0", "k1"):
                try:
                    body = server.client().get_object(Bucket="pantry", Key=key)["Body"].read()
                except botocore.exceptions.ClientError as error:
                    self.assertGreaterEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 404)
                else:
                    self.assertEqual(body, TEXTS[key])
            self.assertEqual(server.stop(), 0)

    def marked_by(self, data, mark):
        """The workshop was last used in the run of `mark`: what came after it never was."""
        for other in glob.glob(os.path.join(data, "workshop", "staged", "run-*")):
            os.rename(other, mark)

    def test_a_flipped_bit_in_the_record_of_a_blob_or_bucket_keeps_nobody_from_what_is_in_it(self):
        server = self.filled(BRISK)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        stacks = self.files(server.data)
        for tag in (b"L", b"B"):
            key, value = records(server.data, tag)[-1]
            for at in (0, len(value) // 3, len(value) - 1):
                write(server.data, key, flipped(value, at))
                server = self.serve(server.data)
                self.reads(server.client(), "pantry", TEXTS)
                self.warns(server, "catalog_records_damaged")
                self.assertEqual(server.stop(), 0)
                self.assertEqual(self.files(server.data), stacks)
            write(server.data, key, value)

    def files(self, data):
        """Every staged file and stack."""
        found = []
        for folder in ("workshop/staged", "drives"):
            for at, _, names in os.walk(os.path.join(data, folder)):
                found += [os.path.join(at, name) for name in names if name.startswith("s-") or name.endswith(".stack")]
        return sorted(found)

    def test_a_flipped_bit_in_any_key_costs_nothing(self):
        # The file is put back again and again, alone; with a log in front it would be an older catalog.
        server = self.filled({**BRISK, **FILES})
        server.until_cold()
        client = server.client()
        upload = client.create_multipart_upload(Bucket="pantry", Key="open")["UploadId"]
        client.upload_part(Bucket="pantry", Key="open", UploadId=upload, PartNumber=1, Body=noise(50_000, "part"))
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, {**STAYING, **FILES})
        server = self.serve(server.data)
        staged = {f"s{at}": noise(9_000, f"s{at}") for at in range(4)}
        for key, body in staged.items():
            server.client().put_object(Bucket="pantry", Key=key, Body=body)
        self.assertEqual(server.stop(), 0)
        # What the last runs have left has gone by then.
        for _ in range(2):
            self.assertEqual(self.serve(server.data).stop(), 0)
        catalog, files = os.path.join(server.data, "catalog.db"), self.files(server.data)
        shutil.copy(catalog, catalog + ".whole")
        with opened(server.data) as whole:
            rows = whole.execute("SELECT k, v FROM kv ORDER BY k").fetchall()
        [mark] = glob.glob(os.path.join(server.data, "workshop", "staged", "run-*"))
        first_of = {row[0][:1]: row for row in reversed(rows)}
        self.assertGreaterEqual(len(first_of), 12)
        for number, (tag, (key, value)) in enumerate(sorted(first_of.items())):
            with open(catalog + ".whole", "rb") as file:
                data = bytearray(file.read())
            at = data.index(key + value) + (0, len(key) // 2, len(key) - 1)[number % 3]
            data[at] ^= 0x80 if number % 2 else 0x04
            with open(catalog, "wb") as file:
                file.write(data)
            self.marked_by(server.data, mark)
            server = self.serve(server.data)
            self.assertIn("THE CATALOG WAS DAMAGED", server.log(), tag)
            self.reads(server.client(), "pantry", {**TEXTS, **staged})
            self.assertEqual(len(server.client().list_objects_v2(Bucket="pantry")["Contents"]), 7, tag)
            self.assertFalse([found for found in server.status()["warnings"] if "catalog" in found], tag)
            self.assertEqual(server.stop(), 0)
            self.assertEqual(self.files(server.data), files, tag)
            os.remove(server.log_path)
            with open(os.path.join(server.data, "catalog.db.damaged-1"), "rb") as file:
                self.assertEqual(file.read()[at], data[at], "the damaged file is kept")
            os.remove(os.path.join(server.data, "catalog.db.damaged-1"))

    def test_nothing_is_removed_or_called_absent_on_the_word_of_a_catalog_with_records_missing(self):
        server = self.filled(STAYING)
        self.assertEqual(server.stop(), 0)
        for _ in range(2):
            self.assertEqual(self.serve(server.data).stop(), 0)
        catalog, files = os.path.join(server.data, "catalog.db"), self.files(server.data)
        shutil.copy(catalog, catalog + ".whole")
        gone = {tag: next(key for key, _ in records(server.data, tag) if key.endswith(b"k1")) for tag in (b"O", b"S")}
        gone[b"B"] = records(server.data, b"B")[-1][0]
        for tag, key in gone.items():
            shutil.copy(catalog + ".whole", catalog)
            with opened(server.data) as damaged:
                damaged.execute("DELETE FROM kv WHERE k = ?", (key,))
                damaged.commit()
            # Or it would be made again from there.
            shutil.rmtree(os.path.join(server.data, "workshop", "journal"))
            for _ in range(2):
                server = self.serve(server.data)
                [warning] = self.warns(server, "catalog_incomplete")
                self.assertRegex(warning, r"1 of \d+ records are missing")
                self.assertIn("accept_older_catalog", warning)
                if tag == b"B":
                    self.fails(500, "InternalError", server.client().create_bucket, Bucket="pantry")
                if tag != b"S":
                    self.fails(500, "InternalError", server.client().get_object, Bucket="pantry", Key="k1")
                self.assertEqual(server.stop(), 0)
                self.assertEqual(self.files(server.data), files)
        # The backup is complete; and who has none accepts what there is.
        shutil.copy(catalog + ".whole", catalog)
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", TEXTS)
        self.assertFalse([found for found in server.status()["warnings"] if "not complete" in found])
        self.assertEqual(server.stop(), 0)
        with opened(server.data) as damaged:
            damaged.execute("DELETE FROM kv WHERE k = ?", (gone[b"O"],))
            damaged.commit()
        self.configure(server.data, {**STAYING, "accept_older_catalog": True})
        server = self.serve(server.data)
        self.fails(404, "NoSuchKey", server.client().get_object, Bucket="pantry", Key="k1")
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, STAYING)
        server = self.serve(server.data)
        self.fails(404, "NoSuchKey", server.client().get_object, Bucket="pantry", Key="k1")
        self.assertFalse([found for found in server.status()["warnings"] if "catalog is" in found])

    def test_a_snapshot_that_lacks_records_is_not_taken_for_all_there_is(self):
        server = self.filled(STAYING)
        self.assertEqual(server.stop(), 0)
        server = self.serve(server.data)
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        # A page of the file loses a record while the server runs, and the next snapshot is made of the others.
        key = next(key for key, _ in records(server.data, b"O") if key.endswith(b"k1"))
        with opened(server.data) as damaged:
            damaged.execute("DELETE FROM kv WHERE k = ?", (key,))
            damaged.commit()
        made, journal = os.path.join(self.root, "made"), os.path.join(server.data, "workshop", "journal")
        done = larder("catalog", "backup", made, "--data", server.data)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(server.stop(), 0)
        newest = sorted(name for name in os.listdir(journal) if name.endswith(".snapshot"))[-1]
        shutil.rmtree(journal)
        os.mkdir(journal)
        shutil.copy(made, os.path.join(journal, newest))
        for _ in range(2):
            server = self.serve(server.data)
            self.warns(server, "catalog_incomplete")
            self.fails(500, "InternalError", server.client().get_object, Bucket="pantry", Key="k1")
            self.reads(server.client(), "pantry", {key: TEXTS[key] for key in ("k0", "k2")})
            self.assertEqual(server.stop(), 0)

    def test_a_flipped_bit_does_not_make_a_killed_catalog_one_that_was_closed_in_order(self):
        server = self.filled(STAYING)
        server.kill()
        with opened(server.data) as catalog:
            catalog.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # The last byte of SQLite's user_version.
        with open(os.path.join(server.data, "catalog.db"), "r+b") as file:
            file.seek(63)
            version = file.read(1)[0]
            file.seek(63)
            file.write(bytes([version ^ 1]))
        intake, away = os.path.join(server.data, "workshop", "intake"), os.path.join(self.root, "intake")
        os.rename(intake, away)
        said = refusal(larder("serve", "--data", server.data, "--port", "0", timeout=20))
        self.assertIn("is missing or lacks a drive", said)
        os.rename(away, intake)
        self.reads(self.serve(server.data).client(), "pantry", TEXTS)

    def in_every_snapshot(self, tag, ending):
        """A data directory with three staged files whose catalog has a flipped bit in a record, and whose snapshots
        have it as well; the answers of its server, and the files."""
        server = self.filled({**STAYING, **FILES})
        self.assertEqual(server.stop(), 0)
        key, value = [row for row in records(server.data, tag) if row[0].endswith(ending)][-1]
        write(server.data, key, flipped(value, 0))
        shutil.rmtree(os.path.join(server.data, "workshop", "journal"))
        server = self.serve(server.data)
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        answers = self.answers(server)
        self.assertEqual(server.stop(), 0)
        return server.data, answers, self.files(server.data)

    def answers(self, server):
        """The status of a GET of each object, and of a list."""
        found = {key: server.ask("GET", f"/pantry/{key}")[0] for key in TEXTS}
        return found | {"": server.ask("GET", "/pantry", query="list-type=2")[0]}

    def test_a_record_that_is_damaged_in_every_snapshot_is_never_taken_for_deleted(self):
        # An object, its bucket, the only record that names its file, and the format of all records.
        damaged = ((b"O", b"k1", 500), (b"B", b"pantry", 200), (b"S", b"k1", 200), (b"M", b"format", 200))
        for tag, ending, status in damaged:
            data, answers, files = self.in_every_snapshot(tag, ending)
            self.assertEqual(answers, {"k0": 200, "k1": status, "k2": 200, "": 200}, tag)
            for words in (["serve"], ["recover"]):
                os.remove(os.path.join(data, "catalog.db"))
                if words == ["recover"]:
                    recovered = larder("recover", "--data", data)
                    self.assertIn("1 damaged record in it", recovered.stdout, recovered.stderr)
                # The files of an earlier run that no record names go at a start.
                for _ in range(2):
                    server = self.serve(data)
                    self.assertEqual(self.answers(server), answers, (tag, words))
                    self.assertEqual(server.stop(), 0)
                self.assertEqual(self.files(data), files, (tag, words))
            shutil.rmtree(data)

    def test_a_damaged_record_about_the_catalog_itself_keeps_no_start_and_no_recovery_from_succeeding(self):
        server = self.filled(STAYING)
        self.assertEqual(server.stop(), 0)
        names = [key for key, _ in records(server.data, b"M")] + [key for key, _ in records(server.data, b"D")][:1]
        self.assertGreaterEqual(len(names), 6, names)
        for number, key in enumerate(names):
            data = shutil.copytree(server.data, f"{server.data}-{number}")
            write(data, key, flipped(dict(records(data, key[:1]))[key], 0))
            # So every snapshot has the damage.
            shutil.rmtree(os.path.join(data, "workshop", "journal"))
            self.serves(data, key)
            os.remove(os.path.join(data, "catalog.db"))
            recovered = larder("recover", "--data", data)
            self.assertEqual(recovered.returncode, 0, (key, recovered.stderr))
            self.serves(data, key)
            shutil.rmtree(data)

    def serves(self, data, key):
        server = self.serve(data)
        self.reads(server.client(), "pantry", TEXTS)
        server.until(f"the journal leads on beside {key}", lambda status: status["journal"]["leads_on"])
        self.assertEqual(server.stop(), 0)

    def test_a_damaged_object_can_be_written_again(self):
        server = self.filled(STAYING)
        self.assertEqual(server.stop(), 0)
        key, value = next(row for row in records(server.data, b"O") if row[0].endswith(b"k1"))
        write(server.data, key, flipped(value, 7))
        server = self.serve(server.data)
        client = server.client()
        listed = [entry["Key"] for entry in client.list_objects_v2(Bucket="pantry")["Contents"]]
        self.assertEqual(listed, ["k0", "k2"])
        self.assertIn("a record of the catalog is damaged", server.log())
        self.assertTrue(any("damaged" in warning for warning in server.status()["warnings"]))
        client.put_object(Bucket="pantry", Key="k1", Body=b"again")
        self.reads(client, "pantry", {**TEXTS, "k1": b"again"})


if __name__ == "__main__":
    unittest.main()
