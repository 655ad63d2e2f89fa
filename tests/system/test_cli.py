"""The binary's other words: plans of the shipped racks, refusals with place and mend, JSON that programs can read."""

import json
import os
import signal
import stat
import subprocess
import time

from harness import BINARY, BRISK, SystemTest, larder, noise, refusal

RACKS = os.path.join(os.path.dirname(__file__), "..", "..", "racks")


def plan(rack):
    output = larder("plan", rack, "--json")
    assert output.returncode == 0, output.stderr
    return json.loads(output.stdout)


class Plans(SystemTest):
    def test_the_papers_rack_is_planned_as_in_the_paper(self):
        found = plan("pelican")
        self.assertEqual(found, plan(os.path.join(RACKS, "pelican.toml")), "shipped is what is in racks/")
        self.assertEqual(len(found["drives"]), 1152)
        self.assertEqual([len(group) for group in found["groups"]], [24] * 48)
        self.assertEqual([len(of_class) for of_class in found["classes"]], [12] * 4)
        self.assertEqual((found["active_groups_max"], found["active_drives_max"]), (4, 96))
        self.assertEqual(found["spares"], [])
        self.conflicts(found, tray=2)
        for group in found["groups"]:
            chassis = [found["drives"][drive]["slot"][2] // 2 for drive in group]
            self.assertEqual([chassis.count(c) for c in range(6)], [4] * 6, "spread over the backplanes")

    def test_the_small_racks_are_planned_as_described(self):
        mini = plan("pelican-mini")
        self.assertEqual((len(mini["drives"]), len(mini["groups"]), len(mini["classes"])), (96, 12, 2))
        self.assertEqual((mini["active_groups_max"], mini["active_drives_max"]), (2, 16))
        self.conflicts(mini, tray=2)
        box = plan("nas8")
        self.assertEqual(([len(group) for group in box["groups"]], box["active_drives_max"]), ([4, 4], 4))
        self.assertEqual(box["classes"], [[0, 1]])

    def conflicts(self, found, tray):
        """Judged from slots alone: any choice of one group of each class keeps every hard limit."""
        slots = {drive["id"]: drive["slot"] for drive in found["drives"]}
        grouped = [drive for group in found["groups"] for drive in group]
        self.assertEqual(len(grouped), len(set(grouped)), "a drive is in one group")
        groups = sorted(group for of_class in found["classes"] for group in of_class)
        self.assertEqual(groups, list(range(len(found["groups"]))), "a group is in one class")
        for of_class in found["classes"]:
            for group in of_class:
                columns = [tuple(slots[drive][:2]) for drive in found["groups"][group]]
                self.assertEqual(len(columns), len(set(columns)), "one active drive a cooling column")
        worst = {}
        for of_class in found["classes"]:
            most = {}
            for group in of_class:
                trays = [(slots[drive][0], slots[drive][2]) for drive in found["groups"][group]]
                for place in set(trays):
                    most[place] = max(most.get(place, 0), trays.count(place))
            for place, count in most.items():
                worst[place] = worst.get(place, 0) + count
        self.assertLessEqual(max(worst.values()), tray)
        columns_of = [{tuple(slots[d][:2]) for group in of_class for d in found["groups"][group]}
                      for of_class in found["classes"]]
        for i, one in enumerate(columns_of):
            for other in columns_of[i + 1 :]:
                self.assertFalse(one & other, "classes share no cooling column")

    def test_a_wrong_description_is_refused_at_its_line_and_column(self):
        with open(os.path.join(RACKS, "nas8.toml"), encoding="utf-8") as file:
            text = file.read()
        for wrong, told in [
            (text.replace("k = 2", "k = 0"), ":"),
            (text.replace("group_drives = 4", "group_drives = 9"), ":"),
            (text.replace('capacity = "12 TB"', 'capacity = "12 parsecs"'), ":"),
            (text.replace("active_drives = 4", "active_drive = 4"), "active_drives"),
            (text.replace("[code]", "[code"), ":"),
            (text.replace("slot = [7, 0, 0]", "slot = [6, 0, 0]"), ":"),
            ("", ":"),
            ("\x00\x01", ":"),
            ('name = "x"\n', ":"),
        ]:
            path = os.path.join(self.root, "wrong.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(wrong)
            said = refusal(larder("plan", path))
            self.assertRegex(said, r"wrong\.toml:\d+:\d+: ")
            self.assertIn(told, said)
            self.assertNotIn("panicked", said)
            refused = refusal(larder("init", "--rack", path, "--data", os.path.join(self.root, "d")))
            self.assertRegex(refused, r"wrong\.toml:\d+:\d+: ")
            self.assertFalse(os.path.exists(os.path.join(self.root, "d")), "nothing is made of it")


class Words(SystemTest):
    def test_quickstart_makes_keys_for_the_owner_alone_and_keeps_them(self):
        server = self.quickstart("--rack", "nas8", "--time-scale", "100")
        exports = dict(line[7:].split("=", 1) for line in server.said().splitlines() if line.startswith("export "))
        self.assertEqual(sorted(exports), ["AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                                           "AWS_SECRET_ACCESS_KEY"])
        self.assertEqual(exports["AWS_SECRET_ACCESS_KEY"], server.secret_key)
        mode = os.stat(os.path.join(server.data, "credentials")).st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)
        self.assertNotIn(server.secret_key, server.log())
        # What it says is for a shell.
        shell = subprocess.run(["sh", "-c", f"{server.said().removesuffix(chr(10))[:-5]}\necho $AWS_ENDPOINT_URL"],
                               capture_output=True, text=True, timeout=20)
        self.assertEqual(shell.stdout.strip(), exports["AWS_ENDPOINT_URL"])
        self.assertEqual(server.stop(signal.SIGINT), 0)
        again = self.quickstart()
        self.assertEqual((again.access_key, again.secret_key), (server.access_key, server.secret_key))
        other = self.quickstart("--rack", "nas8", name="other")
        self.assertNotEqual(other.secret_key, server.secret_key)

    def test_everything_json_can_be_read_by_programs(self):
        server = self.rack("pelican-mini", BRISK)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        client.put_object(Bucket="pantry", Key="a key/with spaces", Body=noise(1000, 1))
        server.until_cold()
        self.assertEqual(len(server.drives()), 96)
        self.assertEqual({drive["state"] for drive in server.drives()}, {"standby"})
        self.assertEqual(server.explain("pantry", "a key/with spaces")["bytes"], 1000)
        command = [BINARY, "status", "--watch", "--json", "--data", server.data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
            try:
                lines = [json.loads(watch.stdout.readline()) for _ in range(2)]
            finally:
                watch.kill()
        self.assertGreater(lines[1]["modelled_s"], lines[0]["modelled_s"])
        for words in (["status"], ["drive", "list"], ["explain", "s3://pantry/a key/with spaces"]):
            output = larder(*words, "--data", server.data)
            self.assertEqual((output.returncode, output.stderr), (0, ""))
            self.assertGreater(len(output.stdout.splitlines()), 5)

    def test_a_server_that_is_not_there_is_said_to_be_so(self):
        data = self.made("nas8", **BRISK)
        for words in (["status"], ["drive", "list"], ["explain", "s3://b/k"]):
            self.assertIn("larder serve", refusal(larder(*words, "--data", data)))
        server = self.serve(data)
        said = refusal(larder("explain", "s3://b/k", "--data", data))
        self.assertIn("there is no object", said)
        server.kill()
        self.assertIn("larder serve", refusal(larder("status", "--data", data)))

    def test_shutdown_puts_the_drives_to_sleep_and_ends_well(self):
        server = self.rack("nas8", {**BRISK, "idle_timeout": "never"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        client.put_object(Bucket="pantry", Key="k", Body=noise(100_000, 1))
        server.until_migrated()
        self.assertEqual(server.status()["drives"]["ready"], 4, "nobody sleeps by himself")
        started = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - started, 30)
        self.assertNotIn("did not go to sleep", server.log())
        self.assertNotIn("panicked", server.log())
