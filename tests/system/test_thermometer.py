"""Rules about hot and cold: `larder explain` names them, its dry run counts what would move, and they are obeyed."""

import json
import os
import time

from harness import BRISK, SystemTest, larder, noise, refusal

RULES = """
[[thermometer.rule]]
name = "pinned"
is = "hot"
prefix = "pinned/"

[[thermometer.rule]]
name = "pictures"
larger_than = "10 kB"
older_than = "3 s"
"""
# Ages of the workshop must not matter where rules decide.
SETTINGS = {**BRISK, "migrate.older_than": "0 s"}


class Thermometer(SystemTest):
    def ruled(self, rules, settings=None):
        data = self.made(**(settings or SETTINGS))
        with open(os.path.join(data, "larder.toml"), "a", encoding="utf-8") as config:
            config.write(rules)
        return data

    def dry_run(self, data, place, *words):
        output = larder("explain", "--dry-run", place, *words, "--data", data, "--json")
        self.assertEqual(output.returncode, 0, output.stderr)
        return json.loads(output.stdout)

    def test_rules_are_explained_tried_and_obeyed(self):
        data = self.ruled(RULES)
        server = self.serve(data)
        pictures = {f"pictures/{n:02}": noise(60_000, n) for n in range(20)}
        small = {f"small/{n:02}": noise(5_000, n) for n in range(20)}
        pinned = {f"pinned/{n}": noise(60_000, n) for n in range(3)}
        client = server.filled({**pinned, **small})
        for key, body in pictures.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        found = server.explain("pantry", "pictures/19")["temperature"]
        cools_ms = found["since_ms"] if found["rule"] else found["next"]["at_ms"]
        self.assertEqual(cools_ms, found["created_ms"] + 3_000)
        self.assertEqual([rule["rule"]["name"] for rule in found["rules"]], ["pictures"])
        found = server.explain("pantry", "pinned/1")["temperature"]
        self.assertEqual((found["temperature"], found["rule"]), ("hot", {"number": 1, "name": "pinned"}))
        self.assertEqual((found["moves"]["when"], found["reads"], len(found["rules"])), ("above_critical", 0, 2))
        self.assertEqual(server.explain("pantry", "small/01")["temperature"]["rules"], [])
        shown = larder("explain", "s3://pantry/pinned/1", "--data", data).stdout
        self.assertIn("by rule 1 (pinned)\n", shown)
        self.assertRegex(shown, r"rule 2 +cold \(pictures\): (holds|will hold from)")

        # What would the rules do, and what would another one? Nothing moves for being asked.
        every = self.dry_run(data, "s3://pantry/small")
        self.assertEqual((every["staged"]["objects"], every["due"]["objects"], every["later"]["objects"]), (20, 0, 0))
        other = self.dry_run(data, "s3://pantry", "--rule", 'larger_than = "1 kB", prefix = "s"')
        due = other["due"]
        self.assertEqual((due["objects"], due["bytes"]), (20, 100_000))
        self.assertEqual((due["blobs"], due["wakes"], due["starts"]), (1, 1, 8))
        shown = larder("explain", "--dry-run", "s3://pantry/small", "--data", data).stdout
        self.assertIn("moves     0 objects", shown)
        message = refusal(larder("explain", "s3://pantry", "--rule", "larger_then = 5", "--data", data))
        self.assertIn("write `larger_than`", message)
        self.assertIn("there is no bucket", refusal(larder("explain", "--dry-run", "s3://none", "--data", data)))
        self.assertIn("names no object", refusal(larder("explain", "s3://pantry", "--data", data)))

        server.until("the pictures have moved", lambda status: status["workshop"]["staged_count"] == 23)
        time.sleep(2)
        for key in [*small, *pinned]:
            self.assertEqual(server.explain("pantry", key)["place"]["where"], "workshop")
        self.assertIsNone(server.explain("pantry", "pictures/00").get("temperature"))
        self.assertEqual(server.status()["workshop"]["hot_moved_bytes"], 0)
        self.reads(client, "pantry", {**pictures, **small, **pinned})

    def test_reads_are_counted_over_a_restart_and_a_kill_forgets_no_more_than_it_may(self):
        data = self.ruled("\n[[thermometer.rule]]\nunread_for = \"1 h\"\n")
        server = self.serve(data)
        client = server.filled({"a": noise(50_000, 1), "b": noise(3_000_000, 2)})
        client.get_object(Bucket="pantry", Key="a")["Body"].read()
        for first, last in [(1_000_000, 2_999_999), (0, 999_999)]:
            found = server.explain("pantry", "b")["temperature"]
            self.assertFalse(found["read_through"])
            client.get_object(Bucket="pantry", Key="b", Range=f"bytes={first}-{last}")["Body"].read()
        self.assertEqual(server.stop(), 0)
        server = self.serve(data)
        counted = [server.explain("pantry", key)["temperature"] for key in "ab"]
        self.assertEqual([(of["reads"], of["read_through"]) for of in counted], [(1, True), (2, True)])
        before = counted[0]["counted_from_ms"]
        self.assertLess(before, counted[0]["read_ms"])
        server.kill()
        server = self.serve(data)
        found = server.explain("pantry", "a")["temperature"]
        self.assertEqual(found["reads"], 1, "it was recorded")
        self.assertGreater(found["counted_from_ms"], before, "what was read since may not have been")
        self.assertGreaterEqual(found["next"]["at_ms"], found["counted_from_ms"] + 3_600_000)
        server.stop()
        self.assertTrue(self.verified(data)["clean"])

    def test_what_was_read_through_moves_by_rule(self):
        data = self.ruled("\n[[thermometer.rule]]\nread_through = true\n")
        server = self.serve(data)
        client = server.filled({key: noise(40_000, 1) for key in ("processed", "halfway", "raw")})
        client.get_object(Bucket="pantry", Key="processed")["Body"].read()
        client.get_object(Bucket="pantry", Key="halfway", Range="bytes=0-19999")["Body"].read()
        server.until("the one moves", lambda status: status["workshop"]["staged_count"] == 2)
        time.sleep(1)
        places = [server.explain("pantry", key)["place"]["where"] for key in ("processed", "halfway", "raw")]
        self.assertEqual(places, ["rack", "workshop", "workshop"])
