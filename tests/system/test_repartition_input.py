"""What `larder repartition` takes and what it refuses: each format as it is, and input that is wrong in each way it can
be. What is refused ends in one sentence, is listed by `list`, leaves nothing, and the input is as it was."""

import csv
import decimal
import io
import json
import struct
import unittest
import zlib

from harness import BRISK, SystemTest, larder, noise, optional, refusal
from test_repartition import table

pyarrow = optional("pyarrow", "parquet")

RECORD = 32


def png():
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + noise(64, row) for row in range(64)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def events(number):
    kinds = ("read", "write", "fix")
    rows = ({"id": row * 7 % 500, "kind": kinds[row % 3], "at": {"file": number, "row": row}} for row in range(2_000))
    return "".join(json.dumps(row, ensure_ascii=row["id"] % 2 == 0) + "\n" for row in rows)


def wide(rows):
    columns = {name: pyarrow.array([seed + row * 7919 for row in range(rows)]) for seed, name in enumerate("abcd")}
    body = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), body, row_group_size=rows, compression="none",
                                use_dictionary=False)
    return body.getvalue()


class Input(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", {**BRISK, "time_scale": 400})
        self.client = self.server.client()
        self.client.create_bucket(Bucket="lake")
        self.objects = {}

    def put(self, objects):
        for key, body in objects.items():
            self.client.put_object(Bucket="lake", Key=key, Body=body)
        self.objects |= objects
        self.server.until_migrated()

    def command(self, *words):
        return larder("repartition", *words, "--data", self.server.data, timeout=120)

    def jobs(self):
        return json.loads(self.command("list", "--json").stdout)

    def keys(self, prefix):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def partition(self, source, *words, memory="16MiB"):
        """The bytes of each partition of a job that succeeds."""
        to = f"of-{source}-{len(self.jobs())}"
        output = self.command(f"s3://lake/{source}", "--to", f"s3://lake/{to}", "--memory", memory, *words)
        self.assertEqual((output.returncode, output.stderr), (0, ""), output.stdout)
        self.assertEqual(output.stdout.count(" is done\n"), 1, output.stdout)
        found = {}
        for key in self.keys(f"{to}/"):
            body = self.client.get_object(Bucket="lake", Key=key)["Body"].read()
            found.setdefault(key.split("/")[1], []).append(body)
        return found

    def fails(self, source, words, says, begins):
        """A job that cannot be done; `begins` says whether that comes out only when the records are read."""
        before = self.jobs()
        output = self.command(f"s3://lake/{source}", "--to", "s3://lake/out", *words)
        message = refusal(output)
        for word in says:
            self.assertIn(word, message)
        self.assertNotIn(message.strip().removeprefix("larder: "), output.stdout, "it is said once")
        after = self.jobs()
        self.assertEqual(len(after) - len(before), int(begins), message)
        if begins:
            self.assertEqual((after[-1]["state"], after[-1]["progress"]), ("failed", None))
            self.assertIn(after[-1]["reason"], message)
        self.assertEqual(self.keys("out"), [])

    def test_a_dry_run_refuses_columns_that_are_not_there(self):
        self.put({"csv/0.csv": table(1, 500).encode(), "nd/0.ndjson": events(0).encode()})
        self.server.until_asleep()
        starts = self.server.totals()["drive_starts"]

        def dry(source, *words):
            return self.command(f"s3://lake/{source}", "--to", "s3://lake/out", "--dry-run", *words)

        for words in (["--by", "hash(user_idd)", "--partitions", 4], ["--by", "value(user_idd)"],
                      ["--by", "hash(user_id)", "--partitions", 4, "--columns", "event,user_idd"],
                      ["--by", "hash(user_id)", "--partitions", 4, "--where", "user_idd > 3"]):
            message = refusal(dry("csv", *words))
            self.assertIn("s3://lake/csv/0.csv: there is no column `user_idd`; the nearest name is `user_id`", message)
        self.assertEqual(self.server.totals()["drive_starts"] - starts, 4, "its group woke once")
        output = dry("csv", "--by", "hash(user_id)", "--partitions", 4)
        self.assertEqual((output.returncode, output.stderr), (0, ""))
        self.assertNotIn("warning", output.stdout)
        output = dry("nd", "--by", "value(kindd)")
        self.assertEqual((output.returncode, output.stderr), (0, ""))
        self.assertIn("records of s3://lake/nd/0.ndjson, there is no column `kindd`", output.stdout)
        self.assertEqual((self.jobs(), self.keys("out")), ([], []))

    def test_what_spark_keeps_beside_its_data_and_what_the_user_excludes_is_no_input(self):
        self.put({"csv/0.csv": table(1, 2_000).encode(), "csv/_SUCCESS": b"", "csv/.0.csv.crc": b"crc\0",
                  "csv/_committed_7": b"{}", "csv/old/1.csv": table(2, 9).encode(), "csv/notes.txt": b"not a table"})
        by = ("--by", "hash(user_id)", "--partitions", 3, "--exclude", "old/*", "--exclude", "*.txt")
        dry = self.command("s3://lake/csv", "--to", "s3://lake/out", *by, "--dry-run")
        self.assertIn("5 objects excluded: .0.csv.crc, _SUCCESS, _committed_7, ...", dry.stdout)
        found = self.partition("csv", *by)
        rows = sum(body.decode().count("\n") - 1 for bodies in found.values() for body in bodies)
        self.assertEqual(rows, 2_000, "the first object's, and no others")
        self.sound()

    def test_a_date_without_quotes_is_shown_with_them(self):
        self.put({"csv/0.csv": table(1, 10).encode()})
        message = refusal(self.command("s3://lake/csv", "--to", "s3://lake/out", "--dry-run",
                                    "--by", "range(event, 2020-01-01, 2021-01-01)"))
        self.assertIn('range(event, "2020-01-01", "2021-01-01")\n', message)
        message = refusal(self.command("s3://lake/csv", "--to", "s3://lake/out", "--by", "value(year)",
                                    "--where", "event >= 2020-01-01"))
        self.assertIn('event >= "2020-01-01"\n', message)

    def sound(self):
        """The input is what was put, and nothing else is left on the rack."""
        self.reads(self.client, "lake", self.objects)
        self.server.until_cold()
        self.server.stop()
        report = self.verified(self.server.data, "--deep")
        self.assertTrue(report["clean"], report)

    def test_every_format_is_partitioned_by_what_it_has(self):
        ndjson = {f"nd/{number}.ndjson": events(number).encode() for number in range(2)}
        log = b"".join(noise(7 + row % 9, row).hex().encode() + b"\xff\n" for row in range(1_500))
        lines = {f"logs/{number}.log": log for number in range(2)}
        records = [f"{row * 37 % 1000:04}".encode() + noise(RECORD - 4, row) for row in range(3_000)]
        fixed = {"raw/0.bin": b"".join(records)}
        self.put({**ndjson, **lines, **fixed, "csv/0.csv": table(1, 2_000).encode()})

        found = self.partition("nd", "--by", "value(kind)", "--where", "id < 250")
        rows = [line for body in ndjson.values() for line in body.splitlines() if json.loads(line)["id"] < 250]
        self.assertEqual(sorted(found), ["kind=fix", "kind=read", "kind=write"])
        for name, bodies in found.items():
            wanted = sorted(line for line in rows if f"kind={json.loads(line)['kind']}" == name)
            self.assertEqual(sorted(b"".join(bodies).splitlines()), wanted, "records are carried byte for byte")

        found = self.partition("logs", "--by", "hash(line)", "--partitions", 3)
        written = [set(b"".join(bodies).split(b"\n")[:-1]) for bodies in found.values()]
        self.assertEqual(len(set().union(*written)), sum(map(len, written)), "a line is in one partition")
        together = sorted(line for bodies in found.values() for line in b"".join(bodies).split(b"\n")[:-1])
        self.assertEqual(together, sorted(line for body in lines.values() for line in body.split(b"\n")[:-1]))

        found = self.partition("raw", "--format", f"fixed:{RECORD}", "--by", "range(record[0..4], '0300', '0700')")
        bounds = [(b"0000", b"0300"), (b"0300", b"0700"), (b"0700", b"9999")]
        self.assertEqual(len(found), 3)
        for (low, high), name in zip(bounds, sorted(found)):
            body = b"".join(found[name])
            written = sorted(body[at:at + RECORD] for at in range(0, len(body), RECORD))
            self.assertEqual(written, sorted(record for record in records if low <= record[:4] < high), name)

        found = self.partition("csv", "--by", "hash(year)", "--partitions", 2, "--columns", "year,event",
                               "--where", "year >= 2020 and user_id < 2500")
        rows = list(csv.DictReader(io.StringIO(table(1, 2_000))))
        wanted = [row for row in rows if int(row["year"]) >= 2020 and int(row["user_id"]) < 2500]
        written = [row for bodies in found.values() for body in bodies
                   for row in csv.DictReader(io.StringIO(body.decode()))]
        self.assertEqual(set(written[0]), {"year", "event"})
        self.assertEqual(sorted((row["event"], row["year"]) for row in written),
                         sorted((row["event"], row["year"]) for row in wanted))
        self.assertEqual(self.partition("csv", "--by", "hash(year)", "--partitions", 2, "--where", "year > 3000"), {})
        self.sound()

    def test_what_is_wrong_is_one_sentence_and_leaves_nothing(self):
        text = table(2, 2_000)
        one = "".join(f"{line},{'all' if at else 'same'}\n" for at, line in enumerate(text.splitlines()))
        self.put({
            "csv/0.csv": text.encode(),
            "one/0.csv": one.encode(),
            "png/0.parquet": png(),
            "lie/0.ndjson": text.encode(),
            "cut/0.bin": noise(10 * RECORD + 5, 1),
            "mixed/0.csv": text.encode(),
            "mixed/1.csv": b"event,other\n1,2\n",
            "full/0.csv": text.encode(),
            "bent/0.csv": text.encode() + b"1,2\n",
            "void/0.csv": b"",
            "void/1.csv": b"",
        })
        by = ("--by", "hash(user_id)", "--partitions", 3)
        wrong = [
            ("csv", ("--by", "hash(user_jd)", "--partitions", 3), ["csv/0.csv", "the nearest name is `user_id`"], True),
            ("csv", (*by, "--columns", "event,yeer"), ["no column `yeer`", "the nearest name is `year`"], True),
            ("csv", (*by, "--where", "yaer > 3"), ["no column `yaer`", "the nearest name is `year`"], True),
            ("csv", (*by, "--where", "note > 3"), ["note", "no number"], True),
            ("one", ("--by", "value(same)"), ["`value(same)` makes one partition of everything"], True),
            ("csv", ("--by", "hash(user_id)", "--partitions", 1), ["makes one partition of everything"], False),
            ("csv", (*by, "--memory", "100KiB"), ["102400 bytes of memory", "give at least"], False),
            ("png", by, ["png/0.parquet", "this is not parquet"], True),
            ("lie", ("--by", "hash(event)", "--partitions", 3), ["lie/0.ndjson", "not ndjson"], True),
            ("cut", ("--by", "hash(record)", "--partitions", 3, "--format", f"fixed:{RECORD}"),
             ["5 are left over"], True),
            ("mixed", by, ["mixed/0.csv", "mixed/1.csv", "different columns"], True),
            ("bent", by, ["bent/0.csv", "2 fields"], True),
            ("none", by, ["no objects below s3://lake/none/"], False),
            ("void", by, ["no records below s3://lake/void/: 2 objects without bytes"], False),
            ("csv", (*by, "--exclude", "*"), ["no input below s3://lake/csv/: 1 object excluded"], False),
            ("csv", (*by, "--exclude", "a**"), ["--exclude `a**`", "write a pattern such as"], False),
            ("cut", by, ["give it with --format"], False),
        ]
        for source, words, says, begins in wrong:
            with self.subTest(source=source, words=words):
                self.fails(source, words, says, begins)
        for target, says in (("full", "holds objects already"), ("csv/deeper", "overlaps with the input"),
                             ("", "overlaps with the input")):
            message = refusal(self.command("s3://lake/csv", "--to", f"s3://lake/{target}", *by))
            self.assertIn(says, message)
        self.assertIn("no bucket `none`", refusal(self.command("s3://lake/csv", "--to", "s3://none/x", *by)))
        listed = self.command("list").stdout
        self.assertEqual(listed.count("failed"), sum(begins for *_, begins in wrong), listed)
        self.assertEqual(sorted(self.keys("")), sorted(self.objects))
        self.sound()

    @unittest.skipIf(pyarrow is None, "no pyarrow for this system")
    def test_a_row_group_above_the_memory_names_both_sizes(self):
        self.put({"wide/0.parquet": wide(200_000)})
        by = ("--by", "hash(a)", "--partitions", 3)
        says = ["wide/0.parquet", "row group 0 has", "and the buffer 2097152"]
        self.fails("wide", (*by, "--memory", "8MiB"), says, True)
        found = self.partition("wide", *by, memory="64MiB")
        written = [pyarrow.parquet.read_table(io.BytesIO(body)) for bodies in found.values() for body in bodies]
        self.assertEqual(sum(part.num_rows for part in written), 200_000)
        self.sound()

    @unittest.skipIf(pyarrow is None, "no pyarrow for this system")
    def test_objects_of_equal_parquet_types_are_partitioned_together_whoever_wrote_them(self):
        writers = {
            "short": (pyarrow.string(), pyarrow.binary(), pyarrow.timestamp("us", "UTC"),
                      pyarrow.list_(pyarrow.string()), pyarrow.decimal128(9, 2)),
            "long": (pyarrow.large_string(), pyarrow.large_binary(), pyarrow.timestamp("us", "+00:00"),
                     pyarrow.large_list(pyarrow.large_string()), pyarrow.decimal256(9, 2)),
        }
        columns, expected = ("name", "body", "at", "tags", "price"), []
        for at, (writer, types) in enumerate(writers.items()):
            rows = [(f"{writer}{row}", b"%d" % row, row * 1_000_000, [writer, None], decimal.Decimal(row) / 4)
                    for row in range(500)]
            expected += [(name, body, tags, price) for name, body, _, tags, price in rows]
            made = [pyarrow.array(values, type=kind) for values, kind in zip(zip(*rows), types)]
            sink = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.table(dict(zip(columns, made))), sink)
            self.put({f"mixed/{at}.parquet": sink.getvalue()})
        found = self.partition("mixed", "--by", "hash(name)", "--partitions", 3)
        parts = [pyarrow.parquet.read_table(io.BytesIO(body)) for bodies in found.values() for body in bodies]
        written = [tuple(row[column] for column in ("name", "body", "tags", "price"))
                   for part in parts for row in part.to_pylist()]
        self.assertEqual(sorted(written, key=repr), sorted(expected, key=repr))
        self.assertEqual({str(part.schema.field("at").type) for part in parts}, {"timestamp[us, tz=UTC]"})
        other = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"name": [1, 2]}), other)
        self.put({"apart/0.parquet": self.objects["mixed/0.parquet"], "apart/1.parquet": other.getvalue()})
        self.fails("apart", ("--by", "hash(name)", "--partitions", 3), ["different columns"], True)
        self.sound()


if __name__ == "__main__":
    unittest.main()
