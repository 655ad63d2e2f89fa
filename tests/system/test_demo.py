"""`larder demo`: each step is done and measured, a terminal shows the rack, and the directory is removed, also after a
signal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

from harness import BINARY, SystemTest

# A minute on an ordinary machine; the machine of a test may be loaded.
LIMIT_S = 240
STEPS = ["100 files", "The files have moved", "All 96 drives sleep", "GET s3://attic/file-042",
         "The bytes are the same"]


class Demo(SystemTest):
    def start(self, *words, **settings):
        """Starts the demo, in this test's directory; it ends with the test."""
        environment = {name: value for name, value in os.environ.items() if name != "RUST_LOG"}
        process = subprocess.Popen([BINARY, "demo", *words], env={**environment, "TMPDIR": self.root},
                                   stderr=subprocess.PIPE, text=True, **settings)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_each_step_is_done_and_the_directory_is_removed(self):
        process = self.start("--plain", stdout=subprocess.PIPE)
        output, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, errors, os.listdir(self.root)), (0, "", []), output)
        text = " ".join(output.split())
        for number, words in enumerate(STEPS, 1):
            self.assertIn(f"{number} {words}", text)
        cost = r"started 8 drives of 96\. The rack drew at most [\d.]+ W, and .* the read cost about \d+ J"
        self.assertRegex(text, cost)
        self.assertIn("larder quickstart", text)
        self.assertNotIn("\x1b", output)

    def test_a_signal_ends_it_and_leaves_nothing(self):
        for number, words in ((signal.SIGINT, "emulated drives"), (signal.SIGTERM, "2  The files"),
                              (signal.SIGHUP, "4  GET")):
            process = self.start("--plain", stdout=subprocess.PIPE)
            while words not in process.stdout.readline():
                self.assertIsNone(process.poll(), words)
            process.send_signal(number)
            _, errors = process.communicate(timeout=LIMIT_S)
            self.assertEqual((process.returncode, os.listdir(self.root)), (130, []), errors)
            self.assertIn("interrupted", errors)

    def test_a_terminal_shows_each_drive(self):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        process = self.start(stdin=theirs, stdout=theirs)
        os.close(theirs)
        shown, deadline = "", time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the last writer has closed the terminal
                break
            shown += piece.decode(errors="replace")
        os.close(ours)
        self.assertEqual(process.wait(LIMIT_S), 0, process.stderr.read())
        process.stderr.close()
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
        self.assertIn("· asleep   ◐ starting or stopping   ● spinning", plain)
        rows = re.findall(r"group +(\d+)  ([·◐●x](?: [·◐●x]){7})", plain)
        self.assertEqual({int(group) for group, _ in rows}, set(range(12)))
        self.assertIn("● ● ● ● ● ● ● ●", {marks for _, marks in rows})
        self.assertIn("100 of 100 on drives", plain)
        self.assertEqual(os.listdir(self.root), [])
