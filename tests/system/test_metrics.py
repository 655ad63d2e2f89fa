"""/metrics: what a strict parser makes of it, against what `larder status` says, and who can reach it."""

import http.client
import json
import re
import socket
import time
import unittest

from harness import BRISK, STAYING, SystemTest, noise, refusal, larder
from prometheus_client import parser as classic
from prometheus_client.openmetrics.parser import text_string_to_metric_families


class Metrics(SystemTest):
    def scraped(self, settings=None):
        server = self.rack(settings={**(settings or BRISK), "metrics.listen": "127.0.0.1:0"})
        found = re.search(r"serving http://(127\.0\.0\.1:\d+)/metrics", server.log())
        self.assertTrue(found, server.log())
        return server, found.group(1)

    def get(self, address, path="/metrics", method="GET", accept="application/openmetrics-text;version=1.0.0;q=0.5"):
        connection = http.client.HTTPConnection(address, timeout=30)
        try:
            connection.request(method, path, headers={"accept": accept} if accept else {})
            response = connection.getresponse()
            return response.status, response.getheader("content-type"), response.read().decode()
        finally:
            connection.close()

    def figures(self, address):
        """`{name: {labels as JSON: value}}` of all samples."""
        status, kind, text = self.get(address)
        self.assertEqual((status, kind), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"))
        figures = {}
        for family in text_string_to_metric_families(text):
            self.assertTrue(family.name.startswith("larder_") and family.documentation, family)
            for sample in family.samples:
                labels = json.dumps(sample.labels, sort_keys=True)
                self.assertNotIn(labels, figures.setdefault(sample.name, {}), "each line once")
                figures[sample.name][labels] = sample.value
        return figures

    def test_a_client_that_does_not_ask_for_openmetrics_gets_the_older_format(self):
        _, address = self.scraped()
        status, kind, text = self.get(address, accept=None)
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        self.assertNotIn("# UNIT", text)
        self.assertNotIn("# EOF", text)
        families = {family.name: family.type for family in classic.text_string_to_metric_families(text)}
        self.assertNotIn("unknown", families.values(), "each family has its type")
        self.assertEqual((families["larder_build_info"], families["larder_drive_starts"]), ("gauge", "counter"))
        open_names = {name for name in self.figures(address)}
        names = {sample.name for family in classic.text_string_to_metric_families(text) for sample in family.samples}
        self.assertEqual(names, open_names)

    def test_connections_that_say_nothing_keep_no_scrape_from_being_answered(self):
        _, address = self.scraped()
        host, port = address.split(":")
        silent = [socket.create_connection((host, int(port)), timeout=20) for _ in range(40)]
        self.addCleanup(lambda: [connection.close() for connection in silent])
        began = time.monotonic()
        for _ in range(3):
            self.assertEqual(self.get(address)[0], 200)
        # They would be closed after 10 s.
        self.assertLess(time.monotonic() - began, 5)

    def test_requests_that_were_served_are_in_the_histograms(self):
        server, address = self.scraped(STAYING)
        client = server.filled({"k": noise(2_000_000, 1)})
        before = self.figures(address)
        for _ in range(7):
            client.get_object(Bucket="pantry", Key="k")["Body"].read()
        self.fails(404, "NoSuchKey", client.get_object, Bucket="pantry", Key="missing")
        figures = self.figures(address)
        for name in ("larder_s3_first_byte_seconds", "larder_s3_request_seconds"):
            counts = [found[f"{name}_count"]["{}"] for found in (before, figures)]
            self.assertEqual(counts[1] - counts[0], 7, name)
            buckets = figures[f"{name}_bucket"]
            self.assertEqual(buckets['{"le": "+Inf"}'], counts[1])
            self.assertEqual(len(buckets), 15)
            self.assertGreater(figures[f"{name}_sum"]["{}"], 0)

    def test_a_scrape_says_what_the_status_says_and_wakes_nobody(self):
        server, address = self.scraped()
        server.filled({f"{n}": noise(300_000, n) for n in range(4)})
        server.until_cold()
        before = server.status()
        figures = self.figures(address)
        status = server.status()
        self.assertEqual(before["totals"]["drive_starts"], status["totals"]["drive_starts"])
        plain = {name: lines["{}"] for name, lines in figures.items() if list(lines) == ["{}"]}
        for name, expected in {
            "larder_power_watts": status["power"]["watts"],
            "larder_active_drives": 0,
            "larder_active_drives_max": status["power"]["active_drives_max"],
            "larder_fuse_trips_total": 0,
            "larder_drive_starts_total": status["totals"]["drive_starts"],
            "larder_migrated_bytes_total": status["totals"]["migrated_bytes"],
            "larder_workshop_staged_bytes": status["workshop"]["staged_bytes"],
            "larder_workshop_capacity_bytes": 2e9,
            "larder_rack_free_bytes": status["capacity"]["free_bytes"],
            "larder_s3_requests_max": 256,
            "larder_lost_blobs": 0,
            "larder_time_scale": 100,
            "larder_drives_woken_by_others_total": 0,
            "larder_drives_woke_themselves_total": 0,
            "larder_drives_unstopped": 0,
        }.items():
            self.assertEqual(plain.get(name), expected, name)
        self.assertGreater(plain["larder_migrated_bytes_total"], 1_000_000)
        # A loaded machine is warned of for a moment, as one whose emulated drives are slow.
        warned = lambda: sum(self.figures(address)["larder_warnings"].values())
        server.until("both have the same warnings", lambda status: warned() == len(status["warnings"]))
        self.assertEqual(len(figures["larder_warnings"]), len(self.documented()))
        by_state = {json.loads(labels)["state"]: value for labels, value in figures["larder_drives"].items()}
        self.assertEqual(by_state, status["drives"])
        drives = server.drives()
        for name, key in [("starts_today", "starts_today"), ("starts_per_day", "starts_per_day"),
                          ("free_bytes", "free_bytes"), ("missed_deadlines_total", "missed_deadlines"),
                          ("lifetime_starts", "starts_total"), ("rated_starts", "rated_starts")]:
            lines = {json.dumps({"drive": str(drive["drive"])}): drive[key] for drive in drives}
            self.assertEqual(figures[f"larder_drive_{name}"], lines)
        self.assertEqual(sum(drive["starts_total"] for drive in drives), status["totals"]["drive_starts"])
        self.assertGreater(drives[0]["rated_starts"], 0)
        self.assertEqual(figures.get("larder_drive_pending_sectors", {}), {}, "an emulated drive has no sectors")
        states = [{"drive": str(drive["drive"]), "state": drive["state"]} for drive in drives]
        self.assertEqual(set(figures["larder_drive_state"]), {json.dumps(labels, sort_keys=True) for labels in states})
        self.assertEqual(len(figures["larder_class_kept_spinning"]), len(status["classes"]))
        self.assertEqual(len(figures["larder_queued_operations"]), 3 * len(status["classes"]))
        self.assertEqual(len(figures["larder_scrub_covered_ratio"]), len(status["scrub"]["groups"]))

    def test_there_is_nothing_else_and_s3_has_a_bucket_of_that_name(self):
        server, address = self.scraped(STAYING)
        self.assertEqual(self.get(address, "/")[0], 404)
        self.assertEqual(self.get(address, "/metrics/", "GET")[0], 404)
        self.assertEqual(self.get(address, method="DELETE")[0], 405)
        self.assertEqual(self.get(address, method="HEAD")[::2], (200, ""))
        status, _, body = self.get(server.address)
        self.assertEqual(status, 404 if "NoSuchBucket" in body else 403, body)
        self.assertNotIn("larder_", body)
        server.filled({"key": b"of S3"}, bucket="metrics")
        self.assertEqual(server.ask("GET", "/metrics/key")[2], b"of S3")
        self.assertEqual(self.get(address)[0], 200)

    def test_without_the_key_nothing_listens_and_an_address_in_use_is_named(self):
        server = self.rack(settings={**STAYING, "metrics.listen": None})
        self.assertNotIn("/metrics", server.log())
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        listen = "127.0.0.1:{}".format(taken.getsockname()[1])
        data = self.made(name="other", **{**STAYING, "metrics.listen": listen})
        said = refusal(larder("serve", "--data", data, "--port", "0"))
        self.assertIn(f"cannot listen on {listen}", said)
        self.assertIn("under [metrics] in larder.toml", said)


if __name__ == "__main__":
    unittest.main()
