"""The papers' evaluations on the command line, in their quick forms: rows that programs can read, and a report that
stands alone."""

import json
import os
import re
import xml.etree.ElementTree as xml

from harness import SystemTest, larder


class Reproduction(SystemTest):
    def test_rows_and_figures_are_written_and_a_foreign_directory_is_left_alone(self):
        folder = os.path.join(self.root, "report")
        output = larder("reproduce", "pelican", "--quick", "--json", "--out", folder, timeout=600)
        self.assertEqual(output.returncode, 0, output.stderr)
        snapshot = json.loads(output.stdout)
        rows = snapshot["rows"]
        self.assertIn("reproduce pelican --quick", snapshot["command"])
        self.assertRegex(snapshot["findings"], r"^\d+ findings: \d+ met")
        verdicts = {"met", "undecided", "calibrated", "by_construction", "missed", "contradiction", "open"}
        self.assertTrue(all(row["verdict"] in verdicts and row["paper"] and row["ours"] for row in rows))
        found = {name: open(os.path.join(folder, name), encoding="utf-8").read() for name in os.listdir(folder)}
        self.assertEqual(json.loads(found["rows.json"]), snapshot)
        self.assertEqual(len(found["rows.csv"].splitlines()), 1 + len(rows))
        figures = [name for name in found if name.endswith(".svg")]
        self.assertEqual(len(figures), 7)
        for name in figures:
            xml.fromstring(found[name])
        html = re.sub("<!DOCTYPE html>", "", found["report.html"])
        xml.fromstring(html)
        self.assertIsNone(re.search(r"\b(src|href)=|url\(|@import|<script", html), "nothing from elsewhere")

        with open(os.path.join(folder, "mine"), "w", encoding="utf-8") as file:
            file.write("not a report's")
        output = larder("reproduce", "pelican", "--quick", "--out", folder)
        self.assertEqual(output.returncode, 1)
        self.assertIn("give --out a new directory", output.stderr)

    def drawn(self, folder, count):
        """There are so many figures, and each of them is XML."""
        figures = [name for name in os.listdir(folder) if name.endswith(".svg")]
        self.assertEqual(len(figures), count)
        for name in figures:
            xml.parse(os.path.join(folder, name))

    def test_buffpack_and_offpack_have_their_rows_and_figures(self):
        folder = os.path.join(self.root, "report")
        output = larder("reproduce", "partition", "--quick", "--json", "--out", folder, timeout=600)
        self.assertEqual(output.returncode, 0, output.stderr)
        rows = {row["id"]: row for row in json.loads(output.stdout)["rows"]}
        for row, verdict in (("CROSSOVER", "met"), ("OFFPACK_HOURS", "by_construction"), ("FILLPACK_HOURS", "open")):
            self.assertEqual(rows[row]["verdict"], verdict)
        self.assertEqual(rows["AGAINST_GAIN"]["verdict"], "contradiction")
        self.drawn(folder, 5)
        with open(os.path.join(folder, "apart.csv"), encoding="utf-8") as file:
            self.assertIn("skew of input", file.read())

    def test_workload_shifting_has_its_rows_and_figures(self):
        folder = os.path.join(self.root, "report")
        output = larder("reproduce", "shifting", "--quick", "--json", "--out", folder, timeout=600)
        self.assertEqual(output.returncode, 0, output.stderr)
        rows = {row["id"]: row for row in json.loads(output.stdout)["rows"]}
        for row, verdict in (("SHIFTING_RISE", "met"), ("SHIFTING_ALONE", "calibrated"), ("ACCEPTABLE", "met")):
            self.assertEqual(rows[row]["verdict"], verdict)
        self.drawn(folder, 13)

    def test_soho_has_its_rows_and_figures(self):
        folder = os.path.join(self.root, "report")
        output = larder("reproduce", "soho", "--quick", "--json", "--out", folder, timeout=600)
        self.assertEqual(output.returncode, 0, output.stderr)
        rows = {row["id"]: row for row in json.loads(output.stdout)["rows"]}
        for row, verdict in (("SSD_BEST", "met"), ("MOVES_200", "by_construction"), ("CAPACITY", "contradiction")):
            self.assertEqual(rows[row]["verdict"], verdict)
        self.drawn(folder, 7)
        with open(os.path.join(folder, "sensitivity.csv"), encoding="utf-8") as file:
            self.assertIn("pure SSD in one package", file.read())
