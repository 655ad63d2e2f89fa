#!/usr/bin/env python3
"""What conversion costs a load like LINE's (load.py): the same load on an ordinary cluster and on a converted one that
stand side by side on this machine, in turns, so that both see what else the machine does.
usage: compare.py BINARY [SECONDS [ROUNDS [RATE]]]

Each of the ROUNDS (4) goes through both clusters, with reads alone and with 20 % writes, for SECONDS (30) at RATE (300)
requests a second; the second round begins with the other cluster. Prints a table, milliseconds over all rounds."""

import os
import subprocess
import sys
import tempfile

import load
from cluster import Cluster
from gateway import ColdCluster

IMAGES = 1000
SHARES = (0, 200)


def begin(cluster):
    cluster.make()
    cluster.ceph("osd", "pool", "create", "attic", "16")
    cluster.ceph("osd", "pool", "application", "enable", "attic", "rados")
    cluster.wait_clean()
    rados = load.Rados(cluster.conf, "attic")
    load.fill(rados, IMAGES)
    return rados


def convert(cluster, binary):
    argv = [binary, "ceph", "convert", "pool/attic", "--pool", "attic", "--state", cluster.path("larder"), "--apply"]
    subprocess.run(argv, env=cluster.environment, check=True, stdout=subprocess.DEVNULL, timeout=600)
    cluster.wait_clean()


def row(name, writes, loads):
    latencies = sorted(latency for one in loads for latency in one.latencies)
    failed = sum(len(one.failures) for one in loads)

    def at(share):
        return latencies[min(len(latencies) - 1, int(len(latencies) * share))]
    figures = [sum(latencies) / len(latencies), at(0.5), at(0.99), at(0.999), latencies[-1]]
    cells = [name, f"{writes // 10} %", f"{len(latencies):,}", str(failed), *(f"{figure:.1f}" for figure in figures)]
    return "| " + " | ".join(cells) + " |"


def compare(clusters, seconds, rounds, rate):
    done = {(name, writes): [] for writes in SHARES for name in clusters}
    objects = dict.fromkeys(clusters, IMAGES)
    for turn in range(rounds):
        for writes in SHARES:
            for name in list(clusters)[::-1 if turn % 2 else 1]:
                one = load.Load(clusters[name], rate, writes, objects[name], seed=turn)
                one.run(seconds)
                objects[name] = one.objects
                done[name, writes].append(one)
        print(f"round {turn + 1} of {rounds}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    print("| cluster | writes | requests | failed | mean | p50 | p99 | p99.9 | max |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for (name, writes), loads in done.items():
        print(row(name, writes, loads))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    binary, *numbers = sys.argv[1:]
    seconds, rounds, rate = [int(number) for number in numbers] + [30, 4, 300][len(numbers):]
    with tempfile.TemporaryDirectory(prefix="larder-compare-") as folder:
        clusters = {"ordinary": Cluster(os.path.join(folder, "a")), "converted": ColdCluster(os.path.join(folder, "b"))}
        try:
            rados = {name: begin(cluster) for name, cluster in clusters.items()}
            convert(clusters["converted"], os.path.abspath(binary))
            compare(rados, seconds, rounds, rate)
            for one in rados.values():
                one.end()
        finally:
            for cluster in clusters.values():
                cluster.end()


if __name__ == "__main__":
    main()
