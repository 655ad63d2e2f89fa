"""The binary's other words: plans of the shipped racks, refusals with place and fix, JSON that programs can read."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import stat
import struct
import subprocess
import termios
import time

from harness import BINARY, BRISK, STAYING, SystemTest, larder, noise, refusal

VARIABLES = ["AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_SECRET_ACCESS_KEY"]
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
        for wrong, fix in [
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
            self.assertIn(fix, said)
            self.assertNotIn("panicked", said)
            refused = refusal(larder("init", "--rack", path, "--data", os.path.join(self.root, "d")))
            self.assertRegex(refused, r"wrong\.toml:\d+:\d+: ")
            self.assertFalse(os.path.exists(os.path.join(self.root, "d")), "nothing is made of it")


class Words(SystemTest):
    def test_quickstart_makes_keys_for_the_owner_alone_and_keeps_them(self):
        server = self.quickstart("--rack", "nas8", "--time-scale", "100")
        exports = dict(line[7:].split("=", 1) for line in server.said().splitlines() if line.startswith("export "))
        self.assertEqual(sorted(exports), VARIABLES)
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

    def test_the_port_of_a_quickstart_stays(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        server = self.quickstart("--rack", "nas8", "--time-scale", "100", port=port)
        self.assertEqual(server.endpoint, f"http://127.0.0.1:{port}")
        self.assertEqual(server.stop(), 0)
        again = self.quickstart(port=None)
        self.assertEqual(again.endpoint, server.endpoint)
        self.assertEqual(again.stop(), 0)
        served = self.serve(server.data, port=None)
        self.assertEqual(served.endpoint, server.endpoint)
        self.assertNotIn("for this run", served.said())
        self.assertEqual(served.stop(), 0)
        elsewhere = self.serve(server.data, port=0)
        self.assertNotEqual(elsewhere.endpoint, server.endpoint)
        self.assertIn(f"AWS_ENDPOINT_URL there is {server.endpoint}", elsewhere.said())
        self.assertEqual(elsewhere.stop(), 0)
        free = self.quickstart("--rack", "nas8", "--time-scale", "100", name="free", port=0)
        self.assertIn("differs at every start", free.said())
        self.assertEqual(free.stop(), 0)
        again = self.serve(free.data, port=None)
        self.assertIn("differs at every start", again.said())
        with open(os.path.join(free.data, "credentials"), encoding="ascii") as file:
            self.assertNotIn("export AWS_ENDPOINT_URL", file.read())

    def test_a_quickstart_on_a_port_that_is_taken_makes_nothing(self):
        data = os.path.join(self.root, "none")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            output = larder("quickstart", "--data", data, "--port", str(taken.getsockname()[1]))
        self.assertIn("choose another with --port", refusal(output))
        self.assertFalse(os.path.exists(data))

    def test_what_others_can_reach_is_said_with_its_address(self):
        if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no network of its own can be made here")
        data = self.made("nas8", **{**STAYING, "listen": "0.0.0.0:0"})
        # In a network of its own, so that nobody reaches it after all.
        server = self.serve(data, within=["unshare", "-rn"])
        self.assertRegex(server.said(), r"serving S3 on 0\.0\.0\.0:\d+, here http://127\.0\.0\.1:\d+")
        self.assertRegex(server.said(), r"warning: S3 on 0\.0\.0\.0:\d+ is open to the network without TLS")
        warnings = [warning for warning in server.status()["warnings"] if "without TLS" in warning]
        self.assertEqual(len(warnings), 1)
        here = self.serve(self.made("nas8", "here", **STAYING))
        self.assertNotIn("TLS", here.said() + str(here.status()["warnings"]))

    def test_a_new_directory_says_where_objects_lie_and_until_when(self):
        data = os.path.join(self.root, "new")
        made = larder("init", "--rack", "nas8", "--data", data)
        said = "only on the server's own disk, without redundancy, until they move to the rack: when they are 1 d"
        self.assertIn(said, made.stdout)
        shell = subprocess.run(["sh", "-c", f". {data}/credentials && env"], capture_output=True, text=True, timeout=20)
        env = dict(line.split("=", 1) for line in shell.stdout.splitlines() if "=" in line)
        self.assertEqual([name for name in VARIABLES if env.get(name)], VARIABLES)
        self.assertEqual((env["AWS_DEFAULT_REGION"], env["AWS_ENDPOINT_URL"]), ("us-east-1", "http://127.0.0.1:9000"))
        server = self.serve(data)
        self.assertIn(said, server.said())
        status = server.status()
        self.assertEqual((len(status["notes"]), status["warnings"]), (1, []))
        self.assertIn(said, status["notes"][0])
        self.assertEqual(server.stop(), 0)
        self.configure(data, {})
        server = self.serve(data)
        self.assertIn("write older_than = ", server.said())
        server.client().create_bucket(Bucket="pantry")
        self.assertEqual(server.status()["warnings"], [], "there is nothing yet that could be lost")
        server.client().put_object(Bucket="pantry", Key="k", Body=b"k")
        self.assertIn("less than 30 % full; write older_than = \"1 d\"", server.status()["warnings"][0])
        shown = larder("status", "--data", data).stdout
        self.assertIn("warning   New objects are stored only on the server's own disk", shown)

    def test_words_name_what_they_are_about(self):
        server = self.rack("nas8", STAYING)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        upload = client.create_multipart_upload(Bucket="pantry", Key="k")["UploadId"]
        client.upload_part(Bucket="pantry", Key="k", UploadId=upload, PartNumber=1, Body=noise(70_000, 1))
        shown = larder("status", "--data", server.data).stdout
        self.assertRegex(shown, r"workshop +[0-9.]+ kB staged in 1 upload in parts, ")
        self.assertIn("capacity", larder("drive", "list", "--data", server.data).stdout.splitlines()[0])
        rotated = larder("user", "rotate", "root", "--data", server.data).stdout
        path = os.path.join(os.path.realpath(server.data), "credentials")
        self.assertIn(f"# {path} now has them, and the old keys are no longer valid\n", rotated)
        with open(path, encoding="ascii") as file:
            kept = file.read()
        self.assertTrue(all(line in kept for line in rotated.splitlines() if line.startswith("export ")))
        self.assertIn("export AWS_DEFAULT_REGION=us-east-1\nexport AWS_ENDPOINT_URL=http://127.0.0.1:9000\n", kept)
        larder("user", "add", "ann", "--data", server.data)
        self.assertIn("no file was changed", larder("user", "rotate", "ann", "--data", server.data).stdout)
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, {"listen": "localhost:9000"})
        said = refusal(larder("serve", "--data", server.data))
        self.assertIn("larder.toml:1:10: `\"localhost:9000\"` is not an address to listen on; write one such as", said)

    def test_everything_json_can_be_read_by_programs(self):
        server = self.rack("pelican-mini", BRISK)
        client = server.filled({"a key/with spaces": noise(1000, 1)})
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

    def watched(self, server, rows, columns):
        """What `status --watch` draws first and second in a window of that size."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        command = [BINARY, "status", "--watch", "--data", server.data]
        drawn = b""
        with subprocess.Popen(command, stdin=theirs, stdout=theirs) as watch:
            os.close(theirs)
            try:
                while drawn.count(b"\x1b[?7h") < 2:
                    drawn += os.read(ours, 65536)
            finally:
                watch.kill()
        os.close(ours)
        first, second, *_ = drawn.decode().replace("\r", "").split("\x1b[?7h")
        back = re.match(r"\x1b\[(\d+)F\x1b\[J\x1b\[\?7l", second)
        first, second = first.removeprefix("\x1b[?7l"), second[back.end():]
        self.assertEqual(int(back[1]), len(first.splitlines()), "the second is drawn over the first")
        return first.splitlines(), second.splitlines()

    def test_a_status_that_is_watched_fits_into_the_window(self):
        server = self.rack("nas8", STAYING)
        server.filled({"k": noise(1_000, 1)})
        [warning] = server.until("it warns", lambda status: len(status["warnings"]) == 1)["warnings"]
        for rows, columns in ((100, 300), (60, 80), (50, 40), (12, 60)):
            for lines in self.watched(server, rows, columns):
                self.assertLess(len(lines), rows)
                self.assertLessEqual(max(map(len, lines)), columns)
                if rows > 20:
                    words = " ".join(" ".join(lines).split())
                    self.assertIn(warning, words, "every word can be read")
                else:
                    self.assertRegex(lines[-1], r"\.\.\. and \d+ more lines")

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
        client = server.filled({"k": noise(100_000, 1)})
        server.until_migrated()
        self.assertEqual(server.status()["drives"]["ready"], 4, "nobody sleeps by himself")
        started = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - started, 30)
        self.assertNotIn("did not go to sleep", server.log())
        self.assertNotIn("panicked", server.log())
