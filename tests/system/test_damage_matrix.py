"""The damage matrix (`damage_matrix.py`) holds: each cell has the outcome of `damage_known.py`, none worse or better.

All cells but those of larder.toml are run, which an operator writes and which has no data in it: a server with the
settings of every day, which is what an empty one means, takes half a minute to start the drives.
"""

import unittest

import damage_matrix
from damage_known import EXPECTED, KNOWN


class Matrix(unittest.TestCase):
    """One test for each group of kinds, so that they run at once. The least numbers of cells leave room for files that
    are by chance the same as they were earlier."""

    maxDiff = None

    def holds(self, group, cells_min):
        found = damage_matrix.results(group)
        faults = [result.fault() for result in found if result.fault()]
        self.assertEqual(faults, [], "\n".join(faults))
        self.assertGreaterEqual(len(found), cells_min, "cells are missing")
        rows = damage_matrix.rows(group)
        known = {name for name in EXPECTED | KNOWN if name[0].partition(",")[0] in dict(rows)}
        self.assertLessEqual(known, {result.name for result in found}, "there are no such cells")

    def test_shelf(self):
        self.holds("shelf", 35)

    def test_log(self):
        self.holds("log", 45)

    def test_pool_shelf(self):
        self.holds("pool shelf", 35)

    def test_pool_log(self):
        self.holds("pool log", 35)

    def test_stack(self):
        self.holds("stack", 40)

    def test_drive(self):
        self.holds("drive", 35)

    def test_workshop(self):
        self.holds("workshop", 75)

    def test_intake(self):
        self.holds("intake", 45)

    def test_manifest(self):
        self.holds("manifest", 25)

    def test_journal(self):
        self.holds("journal", 50)

    def test_catalog(self):
        self.holds("catalog", 45)

    def test_data_directory(self):
        self.holds("data directory", 70)

    def test_pool_drives(self):
        self.holds("pool drives", 55)

    def test_recover(self):
        self.holds("recover", 8)
