#!/usr/bin/env python3
"""Measures the time of a start after a kill and after a clean stop, with the same small objects in the log:

    LARDER_BINARY=target/release/larder python tests/bench/starts.py [--puts 20000] [--bytes 4096]

Sixteen clients put objects of random bytes into a new directory on a rack of eight drives, where they stay in the
workshop. Then the server is killed and started, stopped and started. The time ends when the server answers requests.
"Log" is the size of the directory's logs at the kill: their batches since the last checkpoint, 128 MiB at most, are
replayed by the start.
"""

import argparse
import os
import signal
import tempfile
import time

import small_puts
from small_puts import harness


def started(data):
    """A server on the directory, and the seconds until it answered."""
    since = time.monotonic()
    server = harness.Server(data, "serve")
    return server, time.monotonic() - since


def log_bytes(data):
    folder = os.path.join(data, "workshop", "intake")
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if name.endswith(".log"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--puts", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=4_096)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="larder-starts-") as root:
        data = small_puts.made(root)
        server, first_s = started(data)
        small_puts.put_all(server, asked.puts, asked.bytes)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        log = log_bytes(data)
        server, killed_s = started(data)
        assert server.stop() == 0
        server, stopped_s = started(data)
        server.kill()
    print(f"{asked.puts} objects of {asked.bytes} bytes, {log / 1e6:.0f} MB of logs at the kill")
    print(f"a first start {first_s:.2f} s, after a kill {killed_s:.2f} s, after a clean stop {stopped_s:.2f} s")


if __name__ == "__main__":
    main()
