"""The application of docs/howto/seismic.md, small: a season of raw files through S3, with the order of moving on and
off.

Its pipeline, stores and rack are those of `examples/seismic`. Without ObsPy, which is too large to be fetched for this
alone, its science is done by a stand-in: noise in, a checksum and a part of it out.
"""

import hashlib
import os
import subprocess
import sys
import unittest

from harness import BINARY, SystemTest, noise, optional

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "seismic")
sys.path.insert(0, EXAMPLE)

import rack  # noqa: E402
import season  # noqa: E402
from store import DirectoryStore  # noqa: E402

NO_OBSPY = None if optional("obspy") else "obspy is not installed (examples/seismic/requirements.txt)"
RAW_BYTES = 250_000
# Nine days fit below the critical threshold, and the tenth is above it. By then 12.5 MB are processed, and 10 MB have
# to leave. Of the oldest 10 MB a sixth waits for the review.
SMALL = {"rack": "pelican-mini", "capacity": "20 MB", "spool": "20 MB", "time_scale": 50}
SEASON = season.Season(days=12, stations=6, campaign=1, week=12)


class StandIn:
    """In place of `waveforms`."""

    @staticmethod
    def raw_key(number, day):
        return f"raw/{number}/{day:03}"

    @staticmethod
    def result_keys(key):
        rest = key.removeprefix("raw/")
        return f"decimated/{rest}", f"picks/{rest}.csv"

    @staticmethod
    def processed(body):
        return body[::20], hashlib.sha256(body).hexdigest().encode()

    @staticmethod
    def catalogue(tables):
        return b"\n".join(tables), len(tables)


class Seismic(SystemTest):
    def raw(self):
        store = DirectoryStore(os.path.join(self.root, "raw"))
        for day in range(SEASON.days):
            for number in range(SEASON.stations):
                store.put(StandIn.raw_key(number, day), noise(RAW_BYTES, 100 * day + number))
        return store

    def lived(self, raw, order):
        """The report of a season on a fresh rack, and the checksum of its results."""
        data = os.path.join(self.root, f"data-{order}")
        with rack.Rack(BINARY, data, order=order, **SMALL) as server:
            store = server.store()
            report = season.run(SEASON, raw, season.Pipeline(store, StandIn, rack.Watch(server)))
            results = season.checksum(store)
        self.assertTrue(self.verified(data)["clean"])
        return report, results

    def test_a_season_has_the_same_results_on_s3_and_the_order_of_moving_spares_raw_files_nobody_has_read(self):
        raw = self.raw()
        directory = DirectoryStore(os.path.join(self.root, "directory"))
        plain = season.run(SEASON, raw, season.Pipeline(directory, StandIn))
        self.assertEqual(plain["events"], SEASON.days * SEASON.stations)
        waited = {}
        for order in ("processed", "age"):
            report, results = self.lived(raw, order)
            self.assertEqual(results, season.checksum(directory), order)
            self.assertGreater(report["crossings"], 0, report)
            self.assertGreater(report["migrated_bytes"], 9_000_000, report)
            read = report["reads_from"]["raw"]
            self.assertEqual(sum(read.values()), SEASON.days * SEASON.stations, "each raw file was read once")
            waited[order] = read["rack"] + read["spool"]
        self.assertLess(waited["processed"], waited["age"], "raw files that had left before they were processed")

    @unittest.skipIf(NO_OBSPY, NO_OBSPY)
    def test_obspy_finds_the_events_that_were_put_in_and_the_commands_of_the_example_work(self):
        raw, store = os.path.join(self.root, "raw"), os.path.join(self.root, "store")
        # An hour a day at half the rate: 8 events a day.
        self.command("generate", raw, "--days", "2", "--stations", "4", "--hours", "1", "--rate", "50")
        self.assertIn("8 raw files uploaded", self.command("upload", raw, store))
        self.assertIn("8 raw files processed", self.command("process", store))
        self.assertIn("0 raw files processed", self.command("process", store))
        self.assertIn("16 events", self.command("catalogue", store))
        said = self.command("compare", raw, "--days", "2", "--stations", "4", "--work", os.path.join(self.root, "work"),
                            "--larder", BINARY, "--repeat", "1", "--time-scale", "50", "--capacity", "100 MB",
                            "--only", "directory", "--only", "s3", "--hot", "picks/")
        self.assertIn("results: the same in all runs", said)

    def command(self, *words):
        done = subprocess.run([sys.executable, os.path.join(EXAMPLE, "seismic.py"), *words],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout
