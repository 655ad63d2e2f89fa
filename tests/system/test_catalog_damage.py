"""One bad record of the catalog costs one object, loudly, and nothing else."""

import contextlib
import os
import shutil
import sqlite3
import unittest

import botocore.exceptions
from harness import BRISK, STAYING, SystemTest, noise

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
        client = server.client()
        client.create_bucket(Bucket="pantry")
        for key, body in TEXTS.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
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
