"""The emulated disks of benchmarks (tests/bench/emulated_disks.c), preloaded into small programs: what they count
follows from what the program does. Nothing here depends on how long it takes."""

import json
import os
import shutil
import subprocess
import sys
import unittest

from harness import SystemTest

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench")
sys.path.insert(0, BENCH)
import stores  # noqa: E402

KIB = 1 << 10


@unittest.skipUnless(os.uname().sysname == "Linux" and shutil.which("cc"), "emulated disks need Linux and a C compiler")
class EmulatedDisks(SystemTest):
    def counts(self, program, width=1, **settings):
        """What each disk counted while `program`, in Python, ran in the directory `d` of these disks."""
        folder, stats = os.path.join(self.root, "d"), os.path.join(self.root, "stats")
        os.makedirs(folder, exist_ok=True)
        environment = {**os.environ, "LD_PRELOAD": stores.emulated_disks(self.root), "LARDER_DISK_STATS": stats,
                       "LARDER_DISKS": f"{folder}*{width}", "LARDER_DISK_TIME_SCALE": "1000000", **settings}
        command = [sys.executable, "-S", "-c", f"import os\nos.chdir({folder!r})\n{program}"]
        subprocess.run(command, env=environment, check=True, timeout=60)
        with open(stats, encoding="utf-8") as file:
            return json.load(file)["disks"]

    def test_an_append_is_written_when_it_is_synced_and_pays_for_the_name_once(self):
        [disk] = self.counts("""
f = os.open("log", os.O_CREAT | os.O_WRONLY)
os.write(f, bytes(1000))
os.write(f, bytes(1000))
os.fsync(f)
""")
        # To the file, and to the file system that has grown.
        self.assertEqual((disk["written_bytes"], disk["syncs"], disk["seeks"]), (2000, 1, 2))
        expected = 2 * (8.5e-3 + 60 / 7200 / 2) + 2000 / 150e6
        self.assertAlmostEqual(disk["busy_s"], expected, places=6)

    def test_what_is_written_over_stays_with_the_heads_where_they_are(self):
        program = """
f = os.open("log", os.O_CREAT | os.O_RDWR)
os.write(f, bytes(100000))
os.fsync(f)
for at in range(10):
    os.pwrite(f, bytes(1000), 1000 * at)
    os.fdatasync(f)
"""
        [disk] = self.counts(program)
        self.assertEqual((disk["written_bytes"], disk["syncs"], disk["seeks"]), (110000, 11, 3))

    def test_nothing_is_written_of_a_file_that_is_gone(self):
        [disk] = self.counts("""
f = os.open("table", os.O_CREAT | os.O_WRONLY)
os.write(f, bytes(1000))
os.close(f)
os.unlink("table")
""")
        self.assertEqual((disk["written_bytes"], disk["requests"]), (0, 0))

    def test_reads_are_from_the_cache_while_it_holds_what_is_read(self):
        program = """
f = os.open("table", os.O_CREAT | os.O_RDWR)
for _ in range(16):
    os.write(f, bytes(131072))
os.fsync(f)
for _ in range(2):
    for at in range(16):
        assert len(os.pread(f, 131072, 131072 * at)) == 131072
"""
        [held] = self.counts(program, LARDER_DISK_CACHE_MB="4")
        self.assertEqual(held["read_bytes"], 0)
        [not_held] = self.counts(program, LARDER_DISK_CACHE_MB="1")
        self.assertEqual(not_held["read_bytes"], 2 * 2048 * KIB)
        self.assertEqual(not_held["seeks"], 3, "to the file, which does not grow any more, and to its beginning twice")

    def test_a_stripe_shares_the_bytes_and_syncs_every_disk(self):
        disks = self.counts("""
f = os.open("log", os.O_CREAT | os.O_WRONLY)
os.write(f, bytes(640 * 1024))
os.fsync(f)
""", width=4, LARDER_DISK_STRIPE_KB="64")
        self.assertEqual([disk["written_bytes"] for disk in disks], [192 * KIB, 192 * KIB, 128 * KIB, 128 * KIB])
        self.assertEqual([disk["syncs"] for disk in disks], [1] * 4)

    def test_a_setting_that_is_no_number_is_refused(self):
        with self.assertRaises(subprocess.CalledProcessError):
            self.counts("pass", LARDER_DISK_SEEK_MS="fast")

    @unittest.skipIf(stores.missing(), f"needs {' and '.join(stores.missing())}")
    def test_leveldb_and_rocksdb_write_more_than_is_put(self):
        program = stores.stores(self.root)
        for name, count in (("leveldb", 1), ("rocksdb", 1), ("leveldb", 2)):
            folders = [os.path.join(self.root, f"{name}-{count}-{index}") for index in range(count)]
            for folder in folders:
                os.mkdir(folder)
            disks = ":".join(f"{folder}*{4 // count}" for folder in folders)
            environment = {**os.environ, "LD_PRELOAD": stores.emulated_disks(self.root), "LARDER_DISKS": disks,
                           "LARDER_DISK_TIME_SCALE": "1000000"}
            command = [program, "--store", name, "--value-bytes", "10000", "--puts", "2000"]
            command += [word for folder in folders for word in ("--dir", folder)]
            output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
            result = json.loads(output.stdout)
            counted = result["disks_after_puts"]["disks"]
            self.assertEqual((result["store"], result["put_bytes"], len(counted)), (name, 2000 * 10016, 4))
            self.assertGreater(sum(disk["written_bytes"] for disk in counted), result["put_bytes"])
            # Each put is synced in its database, on all disks of the stripe.
            self.assertGreaterEqual(sum(disk["syncs"] for disk in counted), 2000 * 4 // count)
            self.assertLessEqual(result["p50_ms"], result["p99_ms"])


if __name__ == "__main__":
    unittest.main()
