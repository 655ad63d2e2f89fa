"""As a service: the units are ones that systemd takes, the server's asks for little, and its manager is notified; the
rule is one that udev takes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import unittest

from harness import BINARY, STAYING, SystemTest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGING = os.path.join(ROOT, "packaging", "systemd")
RULE = os.path.join(ROOT, "packaging", "udev", "90-larder.rules")
# systemd's own scale: from 0 to 10, where a unit without any of this has 9.6.
EXPOSURE_MAX = 1.5
EXPOSURE_WITH_DISKS_MAX = 2.5


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not here")
class Unit(SystemTest):
    def unit(self, *drop_ins, name="larder.service", starts="/usr/bin/larder serve"):
        """The path of the unit with the tested binary in the place of the installed one, and with these drop-ins."""
        folder = os.path.join(self.root, f"units-{len(drop_ins)}")
        os.makedirs(os.path.join(folder, f"{name}.d"))
        with open(os.path.join(PACKAGING, name), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(f"ExecStart={starts}", text)
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("=/usr/bin/larder", f"={BINARY}"))
        for drop_in in drop_ins:
            shutil.copy(os.path.join(PACKAGING, f"{name}.d", drop_in), os.path.join(folder, f"{name}.d"))
        return path

    def is_taken(self, path):
        output = self.analyze("verify", "--man=no", path)
        ours = [line for line in output.stderr.splitlines() if "larder" in line]
        self.assertEqual((output.returncode, ours), (0, []), output.stderr)

    def analyze(self, *words):
        command = ["systemd-analyze", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def exposure(self, path):
        output = self.analyze("security", "--offline=true", "--no-pager", path)
        found = re.search(r"Overall exposure level for larder.service: ([0-9.]+)", output.stdout)
        self.assertTrue(found, output.stdout[-500:] + output.stderr)
        return float(found.group(1))

    def test_the_unit_is_taken_without_a_complaint(self):
        for drop_ins in [(), ("disks.conf",)]:
            self.is_taken(self.unit(*drop_ins))

    def test_the_unit_of_the_agent_is_taken_without_a_complaint(self):
        self.is_taken(self.unit(name="larder-ceph-agent.service", starts="/usr/bin/larder ceph agent"))

    def test_what_is_wrong_in_a_unit_is_found(self):
        path = self.unit()
        with open(path, "a", encoding="utf-8") as file:
            file.write("[Service]\nRestartSecs=5\n")
        output = self.analyze("verify", "--man=no", path)
        self.assertIn("RestartSecs", output.stderr)

    def test_it_asks_for_little(self):
        without, with_disks = self.exposure(self.unit()), self.exposure(self.unit("disks.conf"))
        self.assertLessEqual(without, EXPOSURE_MAX)
        self.assertLessEqual(with_disks, EXPOSURE_WITH_DISKS_MAX)
        self.assertLess(without, with_disks, "what disks need is not asked for without them")


def udev_verifies():
    """Whether there is a udevadm that looks through rules; it does from systemd 254 on."""
    if not shutil.which("udevadm"):
        return False
    return subprocess.run(["udevadm", "verify", "--help"], capture_output=True, timeout=60).returncode == 0


@unittest.skipUnless(udev_verifies(), "there is no `udevadm verify` here")
class Rule(SystemTest):
    def test_the_rule_is_taken_without_a_complaint(self):
        output = subprocess.run(["udevadm", "verify", RULE], capture_output=True, text=True, timeout=60)
        self.assertEqual(output.returncode, 0, output.stdout + output.stderr)


class Manager(SystemTest):
    def test_it_is_notified_of_start_life_and_end(self):
        path = os.path.join(self.root, "notify")
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(path)
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": path, "WATCHDOG_USEC": "600000"}
        server = self.serve(self.made("nas8", **STAYING), environment=environment)
        self.assertEqual(manager.recv(64), b"READY=1")
        self.assertEqual([manager.recv(64) for _ in range(3)], [b"WATCHDOG=1"] * 3)
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual([manager.recv(64) for _ in range(3)], [b"WATCHDOG=1"] * 3)
        self.assertEqual(server.client().list_buckets()["Buckets"], [], "a reload is no end")
        self.assertIn("SIGHUP: there is no certificate to read again", server.log())
        self.assertEqual(server.stop(), 0)
        manager.settimeout(1)
        said = []
        while not said or said[-1] != b"STOPPING=1":
            said.append(manager.recv(64))
        self.assertEqual(set(said[:-1]) - {b"WATCHDOG=1"}, set())


if __name__ == "__main__":
    unittest.main()
