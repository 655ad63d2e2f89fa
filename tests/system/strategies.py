"""Forecast against outcome of repartition jobs, each strategy with each format, on an emulated rack with real bytes:
not a test, run by hand.

    LARDER_BINARY=target/release/larder python tests/system/strategies.py [GB] [MEMORY] [TIME_SCALE]
        [--formats csv,ndjson,lines,fixed,parquet] [--strategies baseline,...] [--rounds N] [--no-check] [--json FILE]

Prints a row for each job: what was forecast, what the rack counted, where the time went, and how much memory the server
took for it, of what was planned; then a table of forecast, taken and error, medians over the rounds. In the first round
each output is held against the input, record by record, by DuckDB if it is installed. With --json the table is of all
jobs in FILE, so that several of these may run at once, a format each: at a time scale of 1 they mostly wait. The faster
the rack runs, the more of the hours are the host's: its disk must keep up with the drives."""

import argparse
import io
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import unittest

from harness import BRISK, SystemTest, larder, optional

duckdb = optional("duckdb")
pyarrow = optional("pyarrow", "parquet")

FILE_BYTES, RECORD = 32_000_000, 100
STRATEGIES = ("baseline", "buffpack", "offpack", "fillpack", "tourpack")
PARTITIONS = 12


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gb", nargs="?", type=float, default=1.0)
    parser.add_argument("memory", nargs="?", default="128MiB")
    parser.add_argument("time_scale", nargs="?", type=int, default=4)
    parser.add_argument("--formats", default="csv", type=lambda text: text.split(","))
    parser.add_argument("--strategies", default=STRATEGIES, type=lambda text: text.split(","))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-check", dest="check", action="store_false")
    parser.add_argument("--json", help="a file to which the report of each job is appended, as a line")
    return parser.parse_args()


def records(number):
    """The records of a file: event, user, and a note, which are 100 bytes as a line of CSV."""
    draw = random.Random(number)
    noise = draw.randbytes(40_000).hex()
    count = FILE_BYTES // RECORD
    for row in range(count):
        start = draw.randrange(len(noise) - 80)
        yield number * count + row, draw.randrange(1 << 20), noise[start:start + 79]


def lines(number, header, form):
    return (header + "".join(form.format(*record) for record in records(number))).encode()


def parquet(number):
    columns = zip(*records(number))
    table = pyarrow.table(dict(zip(("event", "user_id", "note"), map(pyarrow.array, columns))))
    body = io.BytesIO()
    pyarrow.parquet.write_table(table, body, row_group_size=50_000)
    return body.getvalue()


class Format:
    """A format: its files, what a job of it is asked with, and how DuckDB reads it."""

    # A line and nothing else: DuckDB takes it for a column that is never divided.
    LINES = ("read_csv('{}', header = false, columns = {{'line': 'VARCHAR'}}, delim = '\x1f', quote = '', "
             "filename = true)")

    def __init__(self, made, read, by="user_id", key="user_id", columns="event, user_id, note", words=()):
        self.made, self.read, self.by, self.key, self.columns, self.words = made, read, by, key, columns, words


FORMATS = {
    "csv": Format(lambda n: lines(n, "event,user_id,note\n", "{:010d},{:07d},{}\n"),
                  "read_csv('{}', header = true, all_varchar = true, filename = true)"),
    "ndjson": Format(lambda n: lines(n, "", '{{"event":{},"user_id":{},"note":"{}"}}\n'),
                     "read_json('{}', format = 'newline_delimited', filename = true)"),
    "lines": Format(lambda n: lines(n, "", "{:010d} {:07d} {}\n"), Format.LINES, "line", "line", "line",
                    ("--format", "lines")),
    "fixed": Format(lambda n: lines(n, "", "{:010d} {:07d} {:80}\n"), Format.LINES, "record[11..18]",
                    "substr(line, 12, 7)", "line", ("--format", f"fixed:{RECORD}")),
    "parquet": Format(parquet, "read_parquet('{}', filename = true)"),
}

HOURS = ("hours", "reading_hours", "writing_hours", "verifying_hours", "switching_hours", "processing_hours")
COLUMNS = ("switches", *HOURS, "offloaded_bytes", "peak_buffered_bytes", "output_objects")


def row(cells):
    return " | ".join(f"{cell:>{max(len(COLUMNS[0]), 12)}}" for cell in cells)


def shown(value):
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def percent(parts):
    return f"{100 * statistics.mean(parts):.1f} %"


def forecast_of(report):
    return next(each for each in report["plan"]["forecasts"] if each["strategy"] == report["plan"]["chosen"])


def summary(reports):
    """A row for each strategy and format, medians over the rounds; below, the mean error of single jobs."""
    jobs = {}
    for report in reports:
        pairs = jobs.setdefault((report["plan"]["format"], report["plan"]["chosen"]), [])
        pairs.append((forecast_of(report), report["outcome"]))
    print("\n| format | strategy | switches: forecast | counted | hours: forecast | taken | error |")
    print("|---|---|---:|---:|---:|---:|---:|")
    errors = {}
    for (name, strategy), pairs in jobs.items():
        middle = lambda of: statistics.median(of(*pair) for pair in pairs)
        error = middle(lambda forecast, outcome: forecast["hours"] / outcome["hours"] - 1)
        print(f"| {name} | {strategy} | {middle(lambda forecast, _: forecast['switches']):.0f} "
              f"| {middle(lambda _, outcome: outcome['switches']):.0f} "
              f"| {middle(lambda forecast, _: forecast['hours']):.4f} "
              f"| {middle(lambda _, outcome: outcome['hours']):.4f} | {100 * error:+.1f} % |")
        for of in (name, strategy, "all"):
            errors.setdefault(of, []).extend(abs(pair[0]["hours"] / pair[1]["hours"] - 1) for pair in pairs)
    print("\nmean error: " + ", ".join(f"{of} {percent(parts)}" for of, parts in errors.items()))
    print(f"largest: {100 * max(errors['all']):.1f} %")


class Strategies(SystemTest):
    def test_side_by_side(self):
        reports = []
        print(row(("format", "strategy", "forecast", *(name.removesuffix("_hours") for name in COLUMNS), "memory",
                   "load")))
        for turn in range(OPTIONS.rounds):
            for name in OPTIONS.formats:
                reports += self.side_by_side(name, turn)
        if OPTIONS.json:
            with open(OPTIONS.json, encoding="utf-8") as file:
                reports = [json.loads(line) for line in file]
        summary(reports)

    def side_by_side(self, name, turn):
        form = FORMATS[name]
        settings = {**BRISK, "time_scale": OPTIONS.time_scale, "workshop.capacity": "8 GB", "workshop.spool": "200 MB",
                    "migrate.pack_size": "32 MB", "placement.group_choice": "random"}
        server = self.serve(self.made(name=f"{name}{turn}", **settings))
        client = server.client()
        client.create_bucket(Bucket="lake")
        for number in range(max(1, round(OPTIONS.gb * 1e9 / FILE_BYTES))):
            client.put_object(Bucket="lake", Key=f"events/{number:04d}.{name}", Body=form.made(number))
        server.until_migrated(timeout=600)
        server.until_asleep(timeout=300)
        reports = []
        for strategy in OPTIONS.strategies:
            before = server.resident()
            output = larder("repartition", "s3://lake/events", "--to", f"s3://lake/{strategy}", "--by",
                            f"hash({form.by})", "--partitions", PARTITIONS, "--memory", OPTIONS.memory, "--strategy",
                            strategy, *form.words, "--json", "--data", server.data, timeout=3_000)
            self.assertEqual(output.returncode, 0, output.stderr)
            report = json.loads(output.stdout)
            outcome, forecast, chosen = report["outcome"], forecast_of(report), report["plan"]["chosen"]
            reports.append(report)
            if OPTIONS.json:
                with open(OPTIONS.json, "a", encoding="utf-8") as file:
                    print(json.dumps(report), file=file)
            planned = f"{forecast['switches']} {forecast['hours']:.4f}"
            taken, most = server.peak() - before, report["plan"]["memory_bytes_most"]
            memory = f"{taken >> 20} MiB of {most >> 20}"
            load = f"{os.getloadavg()[0]:.1f}"
            print(row((name, chosen, planned, *(shown(outcome[name]) for name in COLUMNS), memory, load)), flush=True)
        if OPTIONS.check and turn == 0 and duckdb is not None:
            self.agree(client, name)
        server.stop()
        shutil.rmtree(server.data)
        return reports

    def agree(self, client, name):
        """Every record of the input is in each output once, and each key in one partition, says DuckDB."""
        form, folder = FORMATS[name], pathlib.Path(self.root, "check")
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="lake"):
            for entry in page["Contents"]:
                path = folder / entry["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb") as file:
                    shutil.copyfileobj(client.get_object(Bucket="lake", Key=entry["Key"])["Body"], file)
        database = duckdb.connect()
        counted = lambda files: database.execute(
            f"select count(*), bit_xor(hash({form.columns})), sum(hash({form.columns})::hugeint & 65535) from "
            + form.read.format(folder / files)).fetchall()
        wanted = counted(f"events/*.{name}")
        for strategy in OPTIONS.strategies:
            self.assertEqual(counted(f"{strategy}/*/*"), wanted)
            split = (f"select count(*) from (select {form.key} from {form.read.format(folder / strategy / '*/*')} "
                     f"group by {form.key} having count(distinct split_part(filename, '/', -2)) > 1)")
            self.assertEqual(database.execute(split).fetchall(), [(0,)])
        print(f"DuckDB finds the same {wanted[0][0]} records of {name} in each, and each key in one partition")
        shutil.rmtree(folder)


if __name__ == "__main__":
    OPTIONS = options()
    unittest.main(argv=sys.argv[:1], verbosity=0)
