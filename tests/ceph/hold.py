#!/usr/bin/env python3
"""What the options of hold mode do to an OSD of this release, without an agent: what is held, what ends it, and what it
takes of RAM and `block.db`. usage: hold.py BINARY [OBJECTS of 4 MiB, 150]

Prints one line for each look at a cold OSD."""

import os
import signal
import sys
import tempfile
import time

import load
from cluster import HOSTS, OSDS
from compare import convert
from gateway import ColdCluster

OPTIONS = {"prefer_deferred_size": 8388608, "deferred_batch_ops": 65535, "max_deferred_txc": 1000000,
           "max_defer_interval": 0, "throttle_deferred_bytes": 4 << 30}
THROTTLE = "throttle-bluestore_throttle_deferred_bytes"
COLD = range(HOSTS, OSDS)
FLUSH = "131072"


class Bench:
    def __init__(self, cluster):
        self.cluster, self.seen = cluster, cluster.counters()

    def tell(self, osd, *argv):
        return self.cluster.json("tell", f"osd.{osd}", *argv)

    def hold(self, osd):
        for name, value in OPTIONS.items():
            self.tell(osd, "config", "set", f"bluestore_{name}", str(value))

    def unset(self, osd, names=OPTIONS):
        for name in names:
            self.tell(osd, "config", "unset", f"bluestore_{name}")

    def flush(self, osd):
        self.tell(osd, "bench", FLUSH, FLUSH)

    def look(self, what, osds=COLD):
        """What is held of each, and what was asked of its drive since the last look."""
        now = self.cluster.counters()
        for osd in osds:
            reads, read, writes, written, flushes = (after - before for after, before in zip(now[osd], self.seen[osd]))
            cost = self.tell(osd, "perf", "dump", THROTTLE)[THROTTLE]["val"]
            pools = self.tell(osd, "dump_mempools")["mempool"]["by_pool"]
            db = self.tell(osd, "perf", "dump", "bluefs")["bluefs"]
            with open(f"/proc/{self.pid(osd)}/status", encoding="utf-8") as file:
                (rss,) = (int(line.split()[1]) for line in file if line.startswith("VmRSS"))
            print(f"{what:24} osd.{osd}: cost {cost / 1e6:6.1f} MB, in memory "
                  f"{pools['bluestore_writing_deferred']['bytes'] / 1e6:6.1f} MB, RSS {rss / 1e3:5.0f} MB, block.db "
                  f"{db['db_used_bytes'] / 1e6:6.1f} MB, spilled {db['slow_used_bytes'] / 1e6:5.1f} MB; drive: "
                  f"{reads} reads {read / 1e6:.1f} MB, {writes} writes {written / 1e6:.1f} MB, {flushes} flushes",
                  flush=True)
        self.seen = now

    def pid(self, osd):
        with open(self.cluster.path("run", f"osd.{osd}.pid"), encoding="utf-8") as file:
            return int(file.read())


def what_ends_it(bench, put):
    for osd in COLD:
        bench.flush(osd)
        bench.hold(osd)
    bench.look("set")
    for size in (4096, 60_000, 1 << 20, 4 << 20):
        put(size, 12)
        time.sleep(5)
        bench.look(f"12 writes of {size}")
    bench.tell(3, "config", "set", "bluestore_max_defer_interval", "0.2")
    bench.unset(4, [name for name in OPTIONS if name != "max_defer_interval"])
    time.sleep(10)
    bench.look("interval alone to 0.2", [3])
    bench.look("all but the interval", [4])
    bench.flush(3)
    bench.flush(4)
    time.sleep(10)
    bench.look("and a transaction", [3, 4])
    for osd in COLD:
        bench.unset(osd)
    time.sleep(10)
    bench.look("all unset")
    for osd in COLD:
        bench.flush(osd)
    bench.look("flushed")


def what_it_takes(bench, put, objects):
    for osd in COLD:
        bench.hold(osd)
    put(4 << 20, objects)
    time.sleep(15)
    bench.look(f"{objects} writes of {4 << 20}")
    started = time.monotonic()
    bench.cluster.stop("osd.5", signal.SIGKILL)
    bench.cluster.wait("osd.5 down", lambda: not any(
        node["name"] == "osd.5" and node["status"] == "up" for node in bench.cluster.json("osd", "tree")["nodes"]))
    bench.cluster.start_osd(5)
    bench.cluster.wait_clean()
    print(f"osd.5 killed, started, and all active+clean after {time.monotonic() - started:.0f} s")
    bench.look("osd.5 killed")
    for osd in COLD:
        bench.unset(osd)
    time.sleep(10)
    bench.look("all unset")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    binary, objects = os.path.abspath(sys.argv[1]), int((sys.argv[2:] or ["150"])[0])
    with tempfile.TemporaryDirectory(prefix="larder-hold-") as folder:
        cluster = ColdCluster(os.path.join(folder, "cluster"))
        try:
            cluster.make()
            cluster.ceph("osd", "pool", "create", "attic", "16")
            cluster.ceph("osd", "pool", "application", "enable", "attic", "rados")
            cluster.wait_clean()
            convert(cluster, binary)
            for flag in ("noscrub", "nodeep-scrub"):
                cluster.ceph("osd", "pool", "set", "attic", flag, "1")
            rados = load.Rados(cluster.conf, "attic")

            def put(size, count):
                for index in range(count):
                    rados.write(f"{size}-{index}", bytes([index % 251]) * size)
            bench = Bench(cluster)
            what_ends_it(bench, put)
            what_it_takes(bench, put, objects)
            rados.end()
        finally:
            cluster.end()


if __name__ == "__main__":
    main()
