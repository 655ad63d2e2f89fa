#!/usr/bin/env python3
"""Measures the cost of small PUTs for the server's disk: bytes written, and disk room, for each byte of payload.

    LARDER_BINARY=target/release/larder python tests/bench/small_puts.py [--puts 20000] [--bytes 16384] [OTHER ...]

Sixteen clients put objects of random bytes into a new directory on a rack of eight drives, where they stay in the
workshop. The first two figures are read after the last answer, the other two when the server has written nothing for
QUIET_S seconds: by then logs have become shelves. OTHER are further binaries, which are measured after the first one.
"Written" is `write_bytes` of the process without `cancelled_write_bytes`; "room" are the blocks of the directory's
files without those of the drives.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "system"))

import harness  # noqa: E402

CLIENTS = 16
QUIET_S = 15


def written_bytes(server):
    with open(f"/proc/{server.process.pid}/io", encoding="ascii") as file:
        counts = dict(line.split(": ") for line in file.read().splitlines())
    return int(counts["write_bytes"]) - int(counts["cancelled_write_bytes"])


def room_bytes(data):
    total = 0
    for at, folders, names in os.walk(data):
        if at == data and "drives" in folders:
            folders.remove("drives")
        for name in names:
            try:
                total += os.stat(os.path.join(at, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def put_all(server, puts, size):
    server.client().create_bucket(Bucket="pantry")

    def put(share):
        client = server.client()
        for number in range(share, puts, CLIENTS):
            client.put_object(Bucket="pantry", Key=f"{number:08}", Body=os.urandom(size))

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(put, range(CLIENTS)))


def until_quiet(server):
    written, since = written_bytes(server), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        time.sleep(1)
        now = written_bytes(server)
        if now != written:
            written, since = now, time.monotonic()


def made(root):
    """A new data directory, whose objects stay in the workshop."""
    data = os.path.join(root, "data")
    init = harness.larder("init", "--rack", harness.NAS8, "--data", data)
    assert init.returncode == 0, init.stderr
    with open(os.path.join(data, "larder.toml"), "w", encoding="utf-8") as file:
        file.write(harness.configuration({**harness.STAYING, "workshop.capacity": "20 GB"}))
    return data


def measured(puts, size):
    with tempfile.TemporaryDirectory(prefix="larder-puts-") as root:
        data = made(root)
        server = harness.Server(data, "serve")
        try:
            before = written_bytes(server), room_bytes(data)
            put_all(server, puts, size)
            figures = []
            for wait in (lambda: None, lambda: until_quiet(server)):
                wait()
                now = written_bytes(server), room_bytes(data)
                figures += [(late - early) / (puts * size) for late, early in zip(now, before)]
        finally:
            server.kill()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--puts", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=16_384)
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("others", nargs="*", metavar="OTHER")
    asked = parser.parse_args()
    if asked.row:
        version = subprocess.run([harness.BINARY, "--version"], capture_output=True, text=True, check=True).stdout
        figures = measured(asked.puts, asked.bytes)
        print(f"| {version.strip()} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
        return
    print(f"{asked.puts} PUTs of {asked.bytes} bytes; per byte of payload")
    print("| | written at the last answer | room | written when quiet | room |\n|---|---|---|---|---|", flush=True)
    for binary in [harness.BINARY, *asked.others]:
        words = [sys.executable, __file__, "--row", "--puts", str(asked.puts), "--bytes", str(asked.bytes)]
        subprocess.run(words, env={**os.environ, "LARDER_BINARY": binary}, check=True)


if __name__ == "__main__":
    main()
