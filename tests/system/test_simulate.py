"""Scenarios on the command line: points that programs can read, reports that stand alone, refusals with their fix."""

import json
import os
import re
import xml.etree.ElementTree as xml

from harness import SystemTest, larder

SCENARIOS = os.path.join(os.path.dirname(__file__), "..", "..", "scenarios")
QUICK = ["--set", "duration=1 h", "--set", "warm_up=10 min", "--set", "stored_blobs=200", "--seeds", "2"]


def simulate(name, *words):
    return larder("simulate", os.path.join(SCENARIOS, name), *words, timeout=300)


class Scenarios(SystemTest):
    def test_points_have_their_parameters_and_every_measure(self):
        output = simulate("home.toml", *QUICK, "--set", "workload.rate=[\"30 per h\", 0.02]", "--json")
        self.assertEqual(output.returncode, 0, output.stderr)
        points = json.loads(output.stdout)
        self.assertEqual(len(points), 2 * 6)
        for point in points:
            for distribution in ["ttfb_s", "completion_s", "service_s"]:
                self.assertEqual(set(point[distribution]), {"mean", "p50", "p99", "max"})
                self.assertLessEqual(point[distribution]["p50"], point[distribution]["max"])
            for measure in ["throughput_bytes_per_s", "reject_rate", "wake_time_fraction", "spin_ups_per_drive_year",
                            "tb_per_drive_year"]:
                self.assertGreaterEqual(point[measure], 0)
            self.assertLessEqual(point["power_w"]["mean"], point["power_w"]["peak"])
            self.assertEqual(point["parameters"]["rack"], "nas8")
            self.assertEqual(point["parameters"]["seeds"], [1, 2])
            self.assertIn(point["parameters"]["workload.rate"], ["30 per h", 0.02])
            self.assertEqual(len(point["trace_hashes"]), 2)

    def test_wear_beyond_the_rating_is_flagged(self):
        def asked(*words):
            return simulate("home.toml", *QUICK, "--set", "policy.idle_timeout=[\"30 s\"]", "--set",
                            "workload.rate=[\"240 per h\", \"1 per d\"]", *words)

        points = json.loads(asked("--json").stdout)
        self.assertEqual({point["beyond_rating"] for point in points}, {True, False})
        for point in points:
            rated = point["rated_starts_per_drive_year"]
            self.assertEqual(point["beyond_rating"], point["spin_ups_per_drive_year"] > rated > 0)
        worst = max(points, key=lambda point: point["spin_ups_per_drive_year"])
        folder = os.path.join(self.root, "report")
        output = asked("--out", folder)
        self.assertIn("rated spin-ups per drive and year", output.stdout)
        with open(os.path.join(folder, "report.html"), encoding="utf-8") as file:
            html = file.read()
        with open(os.path.join(folder, "points.csv"), encoding="utf-8") as file:
            self.assertIn("rated_starts_per_drive_year", file.readline())
        for page in (output.stdout, html):
            self.assertIn(f"WEAR: in {sum(point['beyond_rating'] for point in points)} of {len(points)} points", page)
            self.assertIn(f"At worst {worst['spin_ups_per_drive_year']:.0f} times a year", page)

    def test_a_report_stands_alone_and_is_the_same_again(self):
        texts = []
        for threads in ["1", "3"]:
            folder = os.path.join(self.root, "report" + threads)
            output = simulate("replay.toml", "--out", folder, "--threads", threads)
            self.assertEqual(output.returncode, 0, output.stderr)
            self.assertIn("How would a small box have served a morning in a lab?", output.stdout)
            found = {name: open(os.path.join(folder, name), encoding="utf-8").read() for name in os.listdir(folder)}
            self.assertEqual(set(found), {"report.html", "plot.svg", "points.csv", "points.json"})
            xml.fromstring(found["plot.svg"])
            html = re.sub("<!DOCTYPE html>", "", found["report.html"])
            xml.fromstring(html)
            self.assertIsNone(re.search(r"\b(src|href)=|url\(|@import|<script", html), "nothing from elsewhere")
            texts.append((found["plot.svg"], found["points.csv"], found["points.json"]))
        self.assertEqual(texts[0], texts[1])

    def test_a_repartition_has_its_hours_and_switches_by_strategy(self):
        less = ["--set", "repartition.data=500 GB", "--set", "repartition.memory=[\"8 GB\", \"64 GB\"]"]
        output = simulate("repartition.toml", *less, "--json")
        self.assertEqual(output.returncode, 0, output.stderr)
        points = json.loads(output.stdout)
        self.assertEqual(len(points), 6 * 2)
        for point in points:
            strategy = point["parameters"]["repartition.strategy"]
            self.assertNotIn("rack", point["parameters"])
            self.assertGreaterEqual(point["bytes_read"], 500e9)
            self.assertEqual(point["bytes_read"], point["bytes_written"])
            self.assertGreater(point["switches"], 0)
            if strategy in ("baseline", "buffpack", "offpack"):
                self.assertLess(abs(point["hours"] / point["model_hours"] - 1), 0.5, point)
        output = simulate("repartition.toml", "--set", "repartition.memry=1 GB")
        self.assertIn("unknown key `repartition.memry`; write `repartition.memory`", output.stderr)

    def test_a_misspelt_key_is_named_with_the_right_one(self):
        wrong = os.path.join(self.root, "wrong.toml")
        with open(wrong, "w", encoding="utf-8") as file:
            file.write("rack = \"nas8\"\n[policy]\nqueue_dept = 5\n")
        output = larder("simulate", wrong, "--json")
        self.assertEqual((output.returncode, output.stdout), (1, ""))
        self.assertIn(f"{wrong}:3:1: unknown key `queue_dept`; write `queue_depth`", output.stderr)
        output = simulate("home.toml", "--set", "polcy.queue_depth=5")
        self.assertIn("unknown key `polcy.queue_depth`; write `policy.queue_depth`", output.stderr)

    def test_a_rack_is_drawn(self):
        path = os.path.join(self.root, "rack.svg")
        output = larder("plan", "pelican", "--svg", path)
        self.assertEqual(output.returncode, 0, output.stderr)
        drawn = "".join(xml.parse(path).getroot().itertext())
        for words in ["pelican: 1152 drives", "class 3: 12 groups, 288 drives", "group 0 of class 0: its 24 drives"]:
            self.assertIn(words, drawn)
