"""The strategies of repartitioning side by side on an emulated rack with real bytes: not a test, run by hand.

    LARDER_BINARY=target/release/larder python tests/system/strategies.py [GB] [MEMORY] [TIME_SCALE]

Prints a row for each strategy: what was forecast, what the rack counted, where the time went, and how much memory the
server took for it, of what was planned. Each output is held against the input, record by record, by DuckDB if it is
installed. The faster the rack runs, the more of the hours are the host's: its disk must keep up with the drives."""

import json
import pathlib
import random
import shutil
import sys
import unittest

from harness import BRISK, SystemTest, larder, optional

duckdb = optional("duckdb")

GB = float(sys.argv.pop(1)) if len(sys.argv) > 1 else 1.0
MEMORY = sys.argv.pop(1) if len(sys.argv) > 1 else "128MiB"
TIME_SCALE = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 4
FILE_BYTES, RECORD = 32_000_000, 100
STRATEGIES = ("baseline", "buffpack", "offpack", "fillpack", "tourpack")
PARTITIONS = 12


def events(number):
    """A file of records of 100 bytes: event, user, and what is said of it."""
    draw = random.Random(number)
    noise = draw.randbytes(40_000).hex()
    count = FILE_BYTES // RECORD
    lines = ["event,user_id,note"]
    for row in range(count):
        start = draw.randrange(len(noise) - 80)
        lines.append(f"{number * count + row:010d},{draw.randrange(1 << 20):07d},{noise[start:start + 79]}")
    return "\n".join(lines) + "\n"


COLUMNS = ("switches", "hours", "reading_hours", "writing_hours", "verifying_hours", "switching_hours",
           "offloaded_bytes", "peak_buffered_bytes", "output_objects")


def row(cells):
    return " | ".join(f"{cell:>{max(len(COLUMNS[0]), 12)}}" for cell in cells)


def shown(value):
    return f"{value:.4f}" if isinstance(value, float) else str(value)


class Strategies(SystemTest):
    def test_side_by_side(self):
        settings = {**BRISK, "time_scale": TIME_SCALE, "workshop.capacity": "8 GB", "workshop.spool": "200 MB",
                    "migrate.pack_size": "32 MB", "placement.group_choice": "random"}
        server = self.rack("pelican-mini", settings)
        client = server.client()
        client.create_bucket(Bucket="lake")
        for number in range(max(1, round(GB * 1e9 / FILE_BYTES))):
            client.put_object(Bucket="lake", Key=f"events/{number:04d}.csv", Body=events(number).encode())
        server.until_cold()
        print(row(("strategy", "forecast", *(name.removesuffix("_hours") for name in COLUMNS), "memory")))
        for strategy in STRATEGIES:
            before = server.resident()
            output = larder("repartition", "s3://lake/events", "--to", f"s3://lake/{strategy}", "--by", "hash(user_id)",
                            "--partitions", PARTITIONS, "--memory", MEMORY, "--strategy", strategy, "--json",
                            "--data", server.data, timeout=3_000)
            self.assertEqual(output.returncode, 0, output.stderr)
            report = json.loads(output.stdout)
            outcome, chosen = report["outcome"], report["plan"]["chosen"]
            forecast = next(each for each in report["plan"]["forecasts"] if each["strategy"] == chosen)
            planned = f"{forecast['switches']} {forecast['hours']:.4f}"
            taken, most = server.peak() - before, report["plan"]["memory_bytes_most"]
            memory = f"{taken >> 20} MiB of {most >> 20}"
            print(row((chosen, planned, *(shown(outcome[name]) for name in COLUMNS), memory)), flush=True)
        if duckdb is not None:
            self.agree(client)

    def agree(self, client):
        """Every record of the input is in each output once, and each user in one partition, says DuckDB."""
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="lake"):
            for entry in page["Contents"]:
                path = pathlib.Path(self.root, entry["Key"])
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb") as file:
                    shutil.copyfileobj(client.get_object(Bucket="lake", Key=entry["Key"])["Body"], file)
        database = duckdb.connect()
        counted = "select count(*), sum(event::bigint), bit_xor(hash(event, user_id, note)) from read_csv('{}/{}')"
        wanted = database.execute(counted.format(self.root, "events/*.csv")).fetchall()
        for strategy in STRATEGIES:
            found = database.execute(counted.format(self.root, f"{strategy}/*/*.csv")).fetchall()
            self.assertEqual(found, wanted)
            split = ("select count(*) from (select user_id from read_csv('{}/{}', filename = true) group by user_id "
                     "having count(distinct split_part(filename, '/', -2)) > 1)")
            self.assertEqual(database.execute(split.format(self.root, f"{strategy}/*/*.csv")).fetchall(), [(0,)])
        print(f"DuckDB finds the same {wanted[0][0]} records in each, and each user in one partition")


if __name__ == "__main__":
    unittest.main(verbosity=0)
