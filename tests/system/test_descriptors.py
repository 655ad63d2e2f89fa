"""Open files: a whole rack is served within the usual limit, and a limit that is too low is named with its fix."""

import concurrent.futures
import errno
import os
import re
import socket
import subprocess
import threading
import time
import unittest

import faults
from harness import BINARY, BRISK, SystemTest, limited, noise

USUAL = 1024


@unittest.skipUnless(os.path.isdir("/proc/self/fd"), "open files are counted in /proc")
class Descriptors(SystemTest):
    def serve_within(self, files, rack="pelican"):
        server = self.serve(self.made(rack, **{**BRISK, "max_wait": "120 s"}), files=(files, files))
        self.most = 0
        self.watching = True

        def watch():
            while self.watching and server.process.poll() is None:
                try:
                    self.most = max(self.most, server.open_files())
                except OSError:
                    return
                time.sleep(0.005)

        watcher = threading.Thread(target=watch)
        watcher.start()
        self.addCleanup(watcher.join)
        self.addCleanup(setattr, self, "watching", False)
        return server

    def works(self, server, objects, at_once):
        """Objects go in, to the rack, and come back from sleeping drives, many at once."""
        clients = threading.local()

        def client():
            if not hasattr(clients, "own"):
                clients.own = server.client(retries={"total_max_attempts": 10, "mode": "standard"})
            return clients.own

        client().create_bucket(Bucket="pantry")
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda key: client().put_object(Bucket="pantry", Key=key, Body=objects[key]), objects))
            server.until_cold()
            list(pool.map(lambda key: self.reads(client(), "pantry", {key: objects[key]}), objects))

    def is_sound(self, server, files):
        """No drive was blamed for anything, and the limit was kept."""
        self.assertLessEqual(self.most, files)
        status = server.status()
        self.assertEqual(status["drives"]["away"], 0, status["drives"])
        self.assertNotIn("os error 24", server.log())
        self.assertNotIn("Too many open files", server.log())

    def test_a_whole_rack_is_served_under_load_at_the_usual_limit(self):
        server = self.serve_within(USUAL)
        host, port = server.address.split(":")
        # Clients that keep connections open, as the aws command line does.
        idle = [socket.create_connection((host, int(port)), timeout=20) for _ in range(250)]
        self.addCleanup(lambda: [connection.close() for connection in idle])
        objects = {f"{n:03}": noise(120_000 + n, n) for n in range(240)}
        self.works(server, objects, 48)
        self.is_sound(server, USUAL)
        # More than it takes at once wait, and are served later.
        more = []
        for _ in range(700):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex((host, int(port)))
            more.append(connection)
        time.sleep(1)
        for connection in more + idle:
            connection.close()
        self.reads(server.client(), "pantry", {"000": objects["000"]})
        self.is_sound(server, USUAL)
        self.assertEqual(server.stop(), 0)

    def test_a_low_limit_is_enough_for_less_at_once(self):
        server = self.serve_within(256)
        self.works(server, {f"{n:02}": noise(150_000, n) for n in range(40)}, 12)
        self.is_sound(server, 256)
        self.assertRegex(server.log(), r"may open 256 files.*ulimit -n \d+")
        self.assertEqual(server.stop(), 0)

    def test_the_soft_limit_is_raised_to_the_hard_one(self):
        server = self.serve(self.made("nas8", **BRISK), files=(64, 8192))
        with open(f"/proc/{server.process.pid}/limits", encoding="ascii") as limits:
            [soft, hard] = re.search(r"Max open files\s+(\d+)\s+(\d+)", limits.read()).groups()
        self.assertEqual((soft, hard), ("8192", "8192"))
        self.assertNotIn("ulimit", server.log())
        self.assertEqual(server.stop(), 0)

    def test_a_limit_that_is_too_low_is_named_with_its_fix(self):
        data = self.made("pelican", **BRISK)
        command = [BINARY, "serve", "--data", data, "--port", "0"]
        output = subprocess.run(
            command, preexec_fn=limited((128, 128)), capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual(output.returncode, 1, output.stderr)
        for words in ("128 files", "RLIMIT_NOFILE", "ulimit -n", "LimitNOFILE="):
            self.assertIn(words, output.stderr)
        self.assertNotIn("drive", output.stderr)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_running_out_of_files_blames_no_drive(self):
        disk = faults.Faults(self.root)
        self.addCleanup(disk.disarm)
        server = self.serve(self.made("nas8", **BRISK), disk.environment())
        client = server.client(retries={"total_max_attempts": 10, "mode": "standard"})
        client.create_bucket(Bucket="pantry")
        objects = {"k": noise(700_000, 1)}
        client.put_object(Bucket="pantry", Key="k", Body=objects["k"])
        for path in ("/drives/", ".stack"):
            server.until_cold()
            disk.arm("fail", [("open", path, 1)], faults.FOREVER, errno.EMFILE)
            status, _, _ = server.ask("GET", "/pantry/k")
            self.assertGreaterEqual(status, 500, path)
            self.assertGreater(disk.hits(), 0, path)
            disk.disarm()
            self.assertIn("no more files can be opened", server.log())
            self.reads(client, "pantry", objects)
            # Two drives are enough to read; another one may be tried again a little later.
            status = server.until("every drive is back", lambda status: status["drives"]["away"] == 0)
            self.assertEqual((status["drives"]["failed"], status["totals"]["missed_deadlines"]), (0, 0), path)
            self.assertEqual(status["totals"]["data_lost"], 0)
            # A server that has forgotten what it recalled.
            self.assertEqual(server.stop(), 0)
            server = self.serve(server.data, disk.environment())
            client = server.client(retries={"total_max_attempts": 10, "mode": "standard"})
