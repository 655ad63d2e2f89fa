"""Parquet over S3, as analysts use it: pyarrow and DuckDB write tables and read columns and row groups of them by
range, warm and cold.

What is asked for is small and lies somewhere in large objects, so these tests also see that no more of a cold
object is read than that.
"""

import glob
import importlib.util
import os
import random
import unittest

from harness import BRISK, SHORT_WAITS, STAYING, SystemTest, noise, optional

pyarrow = optional("pyarrow", "compute", "dataset", "fs", "parquet")
duckdb = optional("duckdb")

ROWS, GROUP_ROWS, COLUMNS = 400_000, 20_000, 8
PLACES = {"workshop": STAYING, "rack": BRISK, "slow": SHORT_WAITS}


def httpfs():
    """The path of the extension by which DuckDB speaks S3, of the version of DuckDB; None without it."""
    package = importlib.util.find_spec("duckdb_extension_httpfs")
    if duckdb is None or package is None:
        return None
    folder = os.path.join(os.path.dirname(package.origin), "extensions", f"v{duckdb.__version__}")
    return next(iter(glob.glob(os.path.join(folder, "httpfs.duckdb_extension"))), None)


class Tables(SystemTest):
    def serve_place(self, place):
        self.place = place
        self.server = self.rack("nas8", PLACES[place])
        self.server.client().create_bucket(Bucket="lake")

    def settle(self):
        if self.place != "workshop":
            self.server.until_cold()

    def reads_little(self, bytes_max, read):
        """What `read` gives, which takes no more than so many bytes of drives that sleep."""
        self.settle()
        before = self.server.totals()["read_bytes"]
        found = read()
        took = self.server.totals()["read_bytes"] - before
        self.assertLess(took, bytes_max)
        if self.place == "rack":
            self.assertGreater(took, 0, "it was cold")
        return found


@unittest.skipIf(pyarrow is None, "no pyarrow for this system")
class PyArrow(Tables):
    def store(self, **options):
        return pyarrow.fs.S3FileSystem(
            **options,
            access_key=self.server.access_key,
            secret_key=self.server.secret_key,
            endpoint_override=self.server.address,
            scheme="http",
            region="us-east-1",
        )

    def table(self):
        """Random numbers, which nothing can make smaller, and their row's number and year."""
        def numbers(seed):
            return pyarrow.Array.from_buffers(pyarrow.int64(), ROWS, [None, pyarrow.py_buffer(noise(8 * ROWS, seed))])

        columns = {f"c{i}": numbers(i) for i in range(COLUMNS)}
        columns["row"] = pyarrow.array(range(ROWS))
        columns["year"] = pyarrow.array([1970 + row * 4 // ROWS for row in range(ROWS)])
        return pyarrow.table(columns)

    def works(self, place):
        self.serve_place(place)
        store, table = self.store(), self.table()
        self.one_file(store, table)
        self.dataset(store, table)
        self.files(store)
        self.assertEqual(self.server.stop(), 0)
        self.assertEqual(self.verified(self.server.data)["findings"], [])

    def one_file(self, store, table):
        pyarrow.parquet.write_table(table, "lake/one.parquet", filesystem=store, row_group_size=GROUP_ROWS,
                                    use_dictionary=False)
        size = store.get_file_info("lake/one.parquet").size
        self.assertGreater(size, 8 * ROWS * COLUMNS)
        group, columns = 13, ["c3", "row"]

        def a_row_group():
            with store.open_input_file("lake/one.parquet") as file:
                return pyarrow.parquet.ParquetFile(file).read_row_group(group, columns=columns)

        found = self.reads_little(size // 4, a_row_group)
        self.assertTrue(found.equals(table.select(columns).slice(group * GROUP_ROWS, GROUP_ROWS)))
        self.settle()
        whole = pyarrow.parquet.read_table("lake/one.parquet", filesystem=store)
        self.assertTrue(whole.equals(table))

    def dataset(self, store, table):
        """Partitioned by year; a filter leaves files and row groups out."""
        pyarrow.parquet.write_to_dataset(table, "lake/years", partition_cols=["year"], filesystem=store,
                                         row_group_size=GROUP_ROWS, use_dictionary=False)
        self.settle()
        years = pyarrow.dataset.dataset("lake/years", filesystem=store, partitioning="hive", format="parquet")
        self.assertEqual(len(years.files), 4)
        self.assertEqual(years.count_rows(), ROWS)
        first = ROWS // 2 + 1000
        field = pyarrow.compute.field
        wanted = (field("year") == 1972) & (field("row") >= first) & (field("row") < first + 500)
        size = sum(info.size for info in store.get_file_info(years.files))
        found = self.reads_little(size // 3, lambda: years.to_table(columns=["row", "c1"], filter=wanted))
        self.assertTrue(found.sort_by("row").equals(table.select(["row", "c1"]).slice(first, 500)))
        self.settle()
        everything = years.to_table(columns=["row", "c7"]).sort_by("row")
        self.assertTrue(everything.equals(table.select(["row", "c7"])))

    def files(self, store):
        """Its file system: ranges, a stream in parts, copies, moves, lists and removals."""
        body = noise(23_000_000, "stream")
        with store.open_output_stream("lake/bin/stream", metadata={"Content-Type": "text/x-recipe"}) as stream:
            for start in range(0, len(body), 3_333_333):
                stream.write(body[start : start + 3_333_333])
        head = self.server.client().head_object(Bucket="lake", Key="bin/stream")
        self.assertEqual(head["ContentType"], "text/x-recipe")
        self.settle()
        with store.open_input_file("lake/bin/stream") as file:
            self.assertEqual(file.size(), len(body))
            chance = random.Random(1)
            for _ in range(20):
                start = chance.randrange(len(body))
                self.assertTrue(file.read_at(50_000, start) == body[start : start + 50_000])
        self.settle()
        store.copy_file("lake/bin/stream", "lake/bin/copy")
        self.settle()
        store.move("lake/bin/copy", "lake/moved")
        with store.open_input_stream("lake/moved") as stream:
            self.assertTrue(stream.read() == body)
        listed = store.get_file_info(pyarrow.fs.FileSelector("lake", recursive=True))
        names = {info.path for info in listed if info.is_file}
        self.assertTrue({"lake/moved", "lake/bin/stream", "lake/one.parquet"} <= names)
        self.assertNotIn("lake/bin/copy", names)
        store.delete_dir_contents("lake")
        left = store.get_file_info(pyarrow.fs.FileSelector("lake", recursive=True))
        self.assertEqual([info.path for info in left if info.is_file], [])

    def test_pyarrow_reads_parquet_by_range_from_the_workshop(self):
        self.works("workshop")

    def test_pyarrow_waits_for_drives_if_it_may_try_often(self):
        self.serve_place("slow")
        often = pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=20)
        store, table = self.store(request_timeout=120, retry_strategy=often), self.table()
        pyarrow.parquet.write_table(table, "lake/one.parquet", filesystem=store)
        self.server.is_asked_to_wait("/lake/one.parquet")
        self.assertTrue(pyarrow.parquet.read_table("lake/one.parquet", filesystem=store).equals(table))

    def test_pyarrow_reads_parquet_by_range_from_cold_drives(self):
        self.works("rack")


@unittest.skipIf(httpfs() is None, "no DuckDB with httpfs for this system")
class DuckDb(Tables):
    def database(self):
        nothing_fetched = {"autoinstall_known_extensions": False}
        database = duckdb.connect(os.path.join(self.root, "duck.db"), config=nothing_fetched)
        self.addCleanup(database.close)
        database.execute(f"load '{httpfs()}'")
        database.execute(
            f"create secret (type s3, key_id '{self.server.access_key}', secret '{self.server.secret_key}',"
            f" endpoint '{self.server.address}', url_style 'path', use_ssl false, region 'us-east-1')"
        )
        return database

    def works(self, place):
        self.serve_place(place)
        database = self.database()
        numbers = ", ".join(f"hash(row, {i})::ubigint as c{i}" for i in range(COLUMNS))
        database.execute(
            f"create table jars as select row, 1970 + row * 4 // {ROWS} as year, {numbers} from range({ROWS}) r(row)"
        )
        database.execute(f"copy jars to 's3://lake/one.parquet' (format parquet, row_group_size {GROUP_ROWS})")
        size = self.server.client().head_object(Bucket="lake", Key="one.parquet")["ContentLength"]
        self.assertGreater(size, 7 * ROWS * COLUMNS)

        def asked(source):
            first = 13 * GROUP_ROWS + 100
            return f"select row, c3 from {source} where row >= {first} and row < {first + 300} order by row"

        expected = database.sql(asked("jars")).fetchall()
        self.assertEqual(len(expected), 300)
        remote = "read_parquet('s3://lake/one.parquet')"
        found = self.reads_little(size // 4, lambda: database.sql(asked(remote)).fetchall())
        self.assertEqual(found, expected)
        self.years(database)
        self.assertEqual(self.server.stop(), 0)
        self.assertEqual(self.verified(self.server.data)["findings"], [])

    def years(self, database):
        """Partitions in files of their own, found by a pattern, and every value of one column."""
        database.execute("copy jars to 's3://lake/years' (format parquet, partition_by (year))")
        self.settle()
        everything = "read_parquet('s3://lake/years/*/*.parquet', hive_partitioning = true)"
        for question in (
            "select count(*), bit_xor(c7) from {} where year = 1972",
            "select year, count(*), sum(row), bit_xor(c1) from {} group by year order by year",
            "select row, year, c0, c1, c2, c3, c4, c5, c6, c7 from {} where row = 123456",
        ):
            found = database.sql(question.format(everything)).fetchall()
            self.assertEqual(found, database.sql(question.format("jars")).fetchall(), question)
            self.settle()

    def test_duckdb_queries_parquet_in_the_workshop(self):
        self.works("workshop")

    def test_duckdb_waits_for_drives_if_it_may_try_often(self):
        self.serve_place("slow")
        database = self.database()
        for setting in ("http_timeout = 120", "http_retries = 20", "http_retry_backoff = 1.5"):
            database.execute(f"set {setting}")
        database.execute(f"create table jars as select row, hash(row) as c0 from range({ROWS}) r(row)")
        database.execute("copy jars to 's3://lake/one.parquet' (format parquet)")
        self.server.is_asked_to_wait("/lake/one.parquet")
        question = "select count(*), bit_xor(c0) from {}"
        found = database.sql(question.format("'s3://lake/one.parquet'")).fetchall()
        self.assertEqual(found, database.sql(question.format("jars")).fetchall())

    def test_duckdb_queries_parquet_on_cold_drives(self):
        self.works("rack")
