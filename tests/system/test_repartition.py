"""Repartitioning inside the rack, with the shipped binary: CSV and Parquet that are made on the spot, forecast, pause,
cancel, a kill in between, and what comes out held against what went in."""

import collections
import csv
import io
import json
import os
import random
import time
import unittest

from harness import BRISK, SystemTest, larder, optional

pyarrow = optional("pyarrow", "parquet")
duckdb = optional("duckdb")

FILES, ROWS = 8, 20_000


def table(seed, rows=ROWS):
    """A CSV of `rows` events."""
    draw = random.Random(seed)
    lines = ["event,user_id,year,note"]
    for row in range(rows):
        note = "".join(draw.choices("abcdef ", k=draw.randrange(60)))
        lines.append(f"{seed * rows + row},{draw.randrange(5000)},{draw.randrange(2015, 2025)},{note}")
    return "\n".join(lines) + "\n"


class Repartition(SystemTest):
    def filled(self, rack="nas8", rows=ROWS, **settings):
        """A server with events in its rack; the events."""
        self.server = self.rack(rack, {**BRISK, **settings})
        self.client = self.server.client()
        self.client.create_bucket(Bucket="lake")
        events = []
        for number in range(FILES):
            text = table(number, rows)
            events += text.splitlines()[1:]
            self.client.put_object(Bucket="lake", Key=f"events/{number}.csv", Body=text.encode())
        self.server.until_migrated()
        return events

    def command(self, *words, timeout=300):
        return larder("repartition", *words, "--data", self.server.data, timeout=timeout)

    def partition(self, *words, to="s3://lake/out", by="hash(user_id)", partitions=6):
        """Runs a job to its end; its report."""
        words = ["--to", to, "--by", by, "--memory", "16MiB", "--object-size", "1MiB", "--json", *words]
        words += ["--partitions", partitions] if partitions else []
        output = self.command("s3://lake/events", *words)
        self.assertEqual(output.returncode, 0, output.stderr)
        return json.loads(output.stdout)

    def jobs(self):
        output = self.command("list", "--json")
        self.assertEqual(output.returncode, 0, output.stderr)
        return json.loads(output.stdout)

    def begun(self):
        """Has a job begun, without waiting for its end; its number."""
        try:
            self.command("s3://lake/events", "--to", "s3://lake/out", "--by", "hash(user_id)", "--partitions", 6,
                         "--memory", "16MiB", "--object-size", "1MiB", timeout=1)
        except Exception as error:  # the command is interrupted, the job is not
            self.assertIn("timed out", str(error))
        return self.jobs()[-1]["job"]

    def until_over(self, job):
        end = time.monotonic() + 200
        while True:
            report = next(report for report in self.jobs() if report["job"] == job)
            if report["ended_ms"] or report["reason"]:
                return report
            self.assertLess(time.monotonic(), end, report)
            time.sleep(0.2)

    def keys(self, prefix):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def output(self, prefix="out/"):
        """The records of each partition."""
        found = collections.defaultdict(list)
        for key in self.keys(prefix):
            body = self.client.get_object(Bucket="lake", Key=key)["Body"].read().decode()
            found[key.split("/")[1]] += body.splitlines()[1:]
        return found

    def holds(self, events, found, partitions):
        self.assertEqual(len(found), partitions)
        self.assertEqual(sorted(sum(found.values(), [])), sorted(events))
        users = [{line.split(",")[1] for line in lines} for lines in found.values()]
        self.assertEqual(len(set().union(*users)), sum(map(len, users)), "a user is in one partition")

    def sound(self):
        self.server.until_cold()
        self.server.stop()
        self.assertTrue(self.verified(self.server.data, "--deep")["clean"])

    def test_csv_goes_into_groups_by_hash_and_the_input_stays(self):
        events = self.filled()
        plan = self.partition("--dry-run")
        self.assertEqual((plan["state"], len(plan["plan"]["forecasts"])), ("planned", 5))
        report = self.partition()
        outcome = report["outcome"]
        self.assertEqual((report["state"], outcome["rows"]), ("done", FILES * ROWS))
        self.assertLessEqual(outcome["peak_buffered_bytes"], 16 << 20)
        self.assertGreater(outcome["switches"], 0)
        self.holds(events, self.output(), 6)
        groups = collections.defaultdict(set)
        for key in self.keys("out/"):
            groups[key.split("/")[1]].add(self.server.explain("lake", key)["place"]["group"])
            head = self.client.head_object(Bucket="lake", Key=key)
            self.assertEqual((head["ContentType"], len(head["ETag"])), ("text/csv", 34))
        self.assertTrue(all(len(found) == 1 for found in groups.values()), groups)
        self.assertGreater(len(set.union(*groups.values())), 1)
        self.assertEqual(self.client.get_object(Bucket="lake", Key="events/3.csv")["Body"].read(), table(3).encode())
        again = self.command("s3://lake/events", "--to", "s3://lake/out", "--by", "hash(user_id)", "--partitions", 2)
        self.assertIn("holds objects already", again.stderr)
        self.assertNotIn(".larder", str(self.client.list_buckets()["Buckets"]))
        self.assertEqual(self.server.ask("GET", "/.larder-jobs")[0], 400)
        self.sound()

    def test_values_and_filters(self):
        events = self.filled()
        report = self.partition("--where", "year >= 2020", "--columns", "event,year", by="value(year)", partitions=None)
        found = self.output()
        self.assertEqual(sorted(found), [f"year={year}" for year in range(2020, 2025)])
        rows = [line.split(",") for line in events]
        for year in range(2020, 2025):
            wanted = sorted(f"{row[0]},{row[2]}" for row in rows if row[2] == str(year))
            self.assertEqual(sorted(found[f"year={year}"]), wanted)
        self.assertEqual(report["outcome"]["rows"], sum(map(len, found.values())))

    def test_output_is_forecast_by_a_sample_of_what_filters_and_columns_keep(self):
        self.filled()
        choices = [(), ("--where", "year >= 2020"), ("--columns", "event,year"), ("--alpha", 0.25),
                   ("--columns", "event,year", "--where", "year >= 2020", "--format", "csv")]
        for number, words in enumerate(choices):
            with self.subTest(words=words):
                report = self.partition(*words, to=f"s3://lake/out{number}", by="hash(event)")
                plan, written = report["plan"], report["outcome"]["output_bytes"]
                if "--alpha" in words:
                    self.assertEqual(plan["alpha"], {"value": 0.25, "from": "given"})
                    self.assertAlmostEqual(plan["output_bytes"] / plan["input_bytes"], 0.25, 4)
                else:
                    self.assertEqual(plan["alpha"]["from"], "sampled")
                    self.assertAlmostEqual(plan["output_bytes"] / written, 1, delta=0.05)

    def test_a_plan_that_has_to_wait_for_starts_says_so_and_what_more_of_them_would_wear(self):
        self.filled()
        # A fraction of the data, so that a group is visited more than once.
        words = ["s3://lake/events", "--to", "s3://lake/out", "--by", "hash(user_id)", "--partitions", 6, "--memory",
                 "4MiB", "--object-size", "1MiB", "--dry-run"]
        self.assertNotIn("per day", self.command(*words).stdout)
        self.assertEqual(self.server.stop(), 0)
        self.configure(self.server.data, {**BRISK, "starts_per_day": 1})
        self.server = self.serve(self.server.data)
        said = self.command(*words).stdout
        [chosen] = [line.split() for line in said.splitlines() if line.endswith(" chosen")]
        strategy, hours, waits, starts = chosen[0], float(chosen[1]), float(chosen[2]), int(chosen[4])
        self.assertGreater(starts, 1)
        self.assertGreater(waits, hours + 12)
        self.assertIn(f"a drive may have 1 start per day, and {strategy} needs {starts} of one drive: the job waits "
                      f"for the next day again and again, and ends after about {waits / 24:.1f} days", said)
        wear = f"uses up {100 * starts / 50_000:.2f} % of the 50,000 starts that a drive is rated for"
        self.assertIn(wear, said)

    def test_a_kill_in_the_middle_costs_nothing_but_time(self):
        events = self.filled(time_scale=20)
        job = self.begun()
        for pause in (0.7, 2.0):
            time.sleep(pause)
            self.server.kill()
            self.server = self.serve(self.server.data)
            self.client = self.server.client()
            self.assertIn(self.jobs()[-1]["state"], ("waiting", "running", "publishing", "done"))
        report = self.until_over(job)
        self.assertEqual((report["state"], report["reason"]), ("done", ""))
        self.holds(events, self.output(), 6)
        self.sound()

    def test_a_job_that_is_killed_goes_on_from_its_checkpoint(self):
        # Several times as much as its memory, so that it visits each group more than once.
        events = self.filled(rows=5 * ROWS, time_scale=10, checkpoint_interval="1 s")
        job = self.begun()
        end = time.monotonic() + 120
        while True:
            report = json.loads(self.command("show", job, "--json").stdout)
            checkpoints = (report["progress"] or {}).get("checkpoints", 0)
            if checkpoints > 0 and report["progress"]["input_bytes"] > report["plan"]["input_bytes"] / 4:
                break
            why = f"it was over before a quarter was read and a checkpoint made: {report['outcome']}"
            self.assertIsNone(report["ended_ms"], why)
            self.assertLess(time.monotonic(), end, report)
            time.sleep(0.05)
        self.server.kill()
        self.server = self.serve(self.server.data)
        self.client = self.server.client()
        report = self.until_over(job)
        self.assertEqual((report["state"], report["reason"]), ("done", ""))
        outcome, whole = report["outcome"], report["plan"]["input_bytes"]
        # What was read since the checkpoint is read again, and the beginning of an object in each group.
        self.assertGreater(outcome["input_bytes_before"], 0, "it went on from a checkpoint")
        self.assertLess(outcome["input_bytes"] - outcome["input_bytes_before"], whole, "and did not begin anew")
        self.assertEqual((outcome["rows"], outcome["lost_objects"]), (len(events), 0))
        self.holds(events, self.output(), 6)
        self.sound()

    def test_pause_resume_and_cancel(self):
        self.filled(time_scale=20)
        job = self.begun()
        self.assertEqual(self.command("pause", job).returncode, 0)
        paused = json.loads(self.command("show", job, "--json").stdout)
        self.assertEqual(paused["state"], "paused")
        self.assertEqual(self.command("resume", job).returncode, 0)
        self.assertEqual(self.command("cancel", job).returncode, 0)
        self.assertEqual(self.until_over(job)["state"], "cancelled")
        self.assertEqual(self.keys("out/"), [])
        refused = self.command("cancel", job)
        self.assertEqual((refused.returncode, "is over" in refused.stderr), (1, True))
        self.sound()

    def test_bad_input_is_one_sentence(self):
        self.filled()
        self.client.put_object(Bucket="lake", Key="events/9.csv", Body=b"event,user_id,year,note\n1,2\n")
        for words, says in (
            (["--by", "hash(user_id)"], "events/9.csv"),
            (["--by", "hash(usr_id)"], "the nearest name is `user_id`"),
            (["--by", "hash(user_id)", "--format", "parquet"], "this is not parquet"),
        ):
            output = self.command("s3://lake/events", "--to", "s3://lake/out", "--partitions", 3, *words)
            self.assertEqual(output.returncode, 1)
            self.assertIn(says, output.stderr)
        self.assertEqual(self.keys("out/"), [])
        self.sound()

    def in_both_classes(self, put):
        """Objects in groups of both classes: `put` is called with 0 to 9, and on, for the group of a pack is drawn."""
        for number in range(40):
            put(number)
            if number < 9:
                continue
            self.server.until_cold()
            output = self.command("s3://lake/many", "--to", "s3://lake/dry", "--by", "hash(user_id)", "--partitions", 6,
                                  "--json", "--dry-run")
            self.assertEqual(output.returncode, 0, output.stderr)
            if len(json.loads(output.stdout)["plan"]["classes"]) == 2:
                return
        self.fail("31 packs were all drawn into one class")

    def takes_no_more_than_planned(self, to, *words, columns=0):
        """A job's memory, as Linux counts it from its beginning on, is what the plan said at most."""
        self.server.until_cold()
        before = self.server.resident()
        words = ["--by", "hash(user_id)", "--partitions", 6, "--json", *words]
        output = self.command("s3://lake/many", "--to", to, *words)
        self.assertEqual(output.returncode, 0, output.stderr)
        plan = json.loads(output.stdout)["plan"]
        self.assertEqual(len(plan["classes"]), 2)
        taken, most = self.server.peak() - before, plan["memory_bytes_most"] + columns * plan["column_bytes_most"]
        self.assertLessEqual(taken, most, f"{taken / most:.2f} of what was planned")

    @unittest.skipUnless(os.path.exists("/proc/self/clear_refs"), "this system does not report a process's peak")
    def test_memory_stays_within_the_plan(self):
        self.filled("pelican-mini", **{"placement.group_choice": "random", "migrate.pack_size": "16 MB"})

        def put(number):
            header, rows = table(number).split("\n", 1)
            body = header + "\n" + rows * 16
            self.client.put_object(Bucket="lake", Key=f"many/{number}.csv", Body=body.encode())

        self.in_both_classes(put)
        for strategy in ("buffpack", "offpack"):
            self.takes_no_more_than_planned(f"s3://lake/{strategy}", "--memory", "24MiB", "--strategy", strategy)

    @unittest.skipUnless(os.path.exists("/proc/self/clear_refs"), "this system does not report a process's peak")
    @unittest.skipIf(pyarrow is None, "no pyarrow for this system")
    def test_memory_of_parquet_stays_within_the_plan(self):
        self.filled("pelican-mini", **{"placement.group_choice": "random", "migrate.pack_size": "16 MB"})

        def put(number):
            rows = list(csv.DictReader(io.StringIO(table(number))))
            rows = pyarrow.Table.from_pylist(rows)
            body = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.concat_tables([rows] * 16), body, row_group_size=30_000)
            self.client.put_object(Bucket="lake", Key=f"many/{number}.parquet", Body=body.getvalue())

        self.in_both_classes(put)
        self.takes_no_more_than_planned("s3://lake/by-user", "--memory", "32MiB", columns=4)

    @unittest.skipIf(pyarrow is None, "no pyarrow for this system")
    def test_parquet_is_sharded_and_duckdb_finds_the_same(self):
        self.filled("pelican-mini")
        tables = []
        for number in range(4):
            rows = list(csv.DictReader(io.StringIO(table(number))))
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            for name in ("event", "user_id", "year"):
                columns[name] = [int(value) for value in columns[name]]
            tables.append(pyarrow.table(columns))
            body = io.BytesIO()
            pyarrow.parquet.write_table(tables[-1], body, row_group_size=3_000)
            self.client.put_object(Bucket="lake", Key=f"tables/{number}.parquet", Body=body.getvalue())
        self.server.until_migrated()
        output = self.command("s3://lake/tables", "--to", "s3://lake/shards", "--by", "hash(user_id)",
                              "--partitions", 5, "--memory", "64MiB", "--json")
        self.assertEqual(output.returncode, 0, output.stderr)
        found = collections.defaultdict(list)
        for key in self.keys("shards/"):
            body = io.BytesIO(self.client.get_object(Bucket="lake", Key=key)["Body"].read())
            found[key.split("/")[1]].append(pyarrow.parquet.read_table(body))
        shards = {name: pyarrow.concat_tables(parts) for name, parts in found.items()}
        everything, written = pyarrow.concat_tables(tables), pyarrow.concat_tables(shards.values())
        order = [("event", "ascending")]
        self.assertTrue(written.sort_by(order).equals(everything.sort_by(order)))
        users = [set(shard["user_id"].to_pylist()) for shard in shards.values()]
        self.assertEqual(len(set().union(*users)), sum(map(len, users)))
        if duckdb is not None:
            sums = "select count(*), sum(event), sum(user_id), count(distinct note) from {}"
            database = duckdb.connect()
            database.register("written", written)
            database.register("everything", everything)
            ours, theirs = (database.execute(sums.format(name)).fetchall() for name in ("written", "everything"))
            self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()
