#!/usr/bin/env python3
"""Benchmarks stores of small records on emulated disks: LevelDB and RocksDB from the system's packages, and any other
program that takes the same options.

    tests/bench/stores.py                                    # what is missing is named, and left out
    tests/bench/stores.py --install                          # installs the packages first (Debian, as root)
    tests/bench/stores.py --value-bytes 100000 --put-mb 200 --keys random sequential
    cargo build --release -p intake --example store
    tests/bench/stores.py --contender intake=target/release/examples/store

Every contender runs on the same disks (emulated_disks.c says by which physics): once on a stripe over all of them
below one directory, and once, with --apart, on a directory for each. One line of JSON for each run on standard output,
a table with ratios on standard error. A contender is given --store, --dir (once or several times), --keys,
--value-bytes, --puts, --writers, --sync, --seed, --buffer-bytes and --cache-bytes, and prints what `stores.cc` prints;
it may leave out what it does not know, but for `seconds`, `p99_ms` and `put_bytes`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGES = {"leveldb/db.h": "libleveldb-dev", "rocksdb/db.h": "librocksdb-dev"}
MIB = 1 << 20


def folder():
    """Where programs are built."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    made = os.path.join(target, "bench-stores")
    os.makedirs(made, exist_ok=True)
    return made


def compiled(output, source, command, libraries=()):
    """Runs `command` unless `output` is newer than `source`."""
    source = os.path.join(HERE, source)
    if not os.path.exists(output) or os.path.getmtime(output) < os.path.getmtime(source):
        subprocess.run([*command, "-Wall", "-Wextra", "-O2", "-o", output, source, *libraries], check=True)
    return output


def emulated_disks(into=None):
    """The library that emulates disks, compiled."""
    output = os.path.join(into or folder(), "emulated_disks.so")
    return compiled(output, "emulated_disks.c", ["cc", "-std=gnu11", "-shared", "-fPIC"])


def missing():
    """The packages whose headers are not there."""
    with_headers = ["g++", "-E", "-x", "c++", "-std=c++17", "-"]
    have = {}
    for header in PACKAGES:
        found = shutil.which("g++") and subprocess.run(with_headers, input=f"#include <{header}>\n", text=True,
                                                       capture_output=True).returncode == 0
        have[header] = bool(found)
    return sorted(package for header, package in PACKAGES.items() if not have[header])


def stores(into=None):
    """The program that puts into LevelDB and RocksDB, compiled; None if something it needs is missing."""
    if not shutil.which("g++") or missing():
        return None
    # LevelDB's static library: the setting that turns mapped reads off is not exported by the other one.
    libraries = ["-l:libleveldb.a", "-lrocksdb", "-lsnappy", "-lpthread", "-ldl"]
    return compiled(os.path.join(into or folder(), "stores"), "stores.cc", ["g++", "-std=c++17"], libraries)


def install(packages):
    if not packages:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"stores: install {' and '.join(packages)} (Debian's names), or run this as root")
    subprocess.run(["apt-get", "install", "--yes", "--quiet", *packages], check=True, stdout=sys.stderr)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--install", action="store_true", help="install the packages that are missing")
    parser.add_argument("--contender", action="append", default=[], metavar="NAME=PROGRAM")
    parser.add_argument("--only", nargs="+", help="some of the contenders")
    parser.add_argument("--disks", type=int, default=4)
    parser.add_argument("--apart", action="store_true", help="a directory for each disk as well")
    parser.add_argument("--bare", action="store_true", help="no emulated disks: the real one below --below")
    parser.add_argument("--below", help="a directory on the real disk; by default a temporary one")
    parser.add_argument("--keys", nargs="+", default=["random"], choices=["random", "sequential"])
    parser.add_argument("--value-bytes", nargs="+", type=int, default=[100_000])
    parser.add_argument("--put-mb", type=float, default=100, help="data of a run, in 10^6 bytes")
    parser.add_argument("--writers", nargs="+", type=int, default=[1])
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--buffer-mb", type=int, default=4, help="a memtable, in MiB")
    parser.add_argument("--cache-mb", type=int, default=8, help="the store's own cache, in MiB")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def contenders(options):
    """Programs by name, and the names that cannot take part with the reason."""
    if options.install:
        install(missing())
    program = stores()
    found, absent = {}, {}
    for name in ("leveldb", "rocksdb"):
        if program:
            found[name] = program
        else:
            absent[name] = f"needs {' and '.join(missing() or ['g++'])}; --install gets it as root"
    for given in options.contender:
        name, _, path = given.partition("=")
        found[name] = path
    if options.only:
        found = {name: path for name, path in found.items() if name in options.only}
    return found, absent


def run(options, name, program, case):
    """One run on directories of its own."""
    keys, value_bytes, writers, apart = case
    with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=options.below) as root:
        dirs = [os.path.join(root, str(disk)) for disk in range(options.disks if apart else 1)]
        for path in dirs:
            os.mkdir(path)
        environment = dict(os.environ)
        if not options.bare:
            stripe = "" if apart else f"*{options.disks}"
            environment |= {"LD_PRELOAD": emulated_disks(), "LARDER_DISKS": ":".join(path + stripe for path in dirs)}
        puts = max(1, int(options.put_mb * 1e6 / (value_bytes + 16)))
        words = {"--store": name, "--keys": keys, "--value-bytes": value_bytes, "--puts": puts, "--writers": writers,
                 "--sync": 0 if options.no_sync else 1, "--seed": options.seed,
                 "--buffer-bytes": options.buffer_mb * MIB, "--cache-bytes": options.cache_mb * MIB}
        command = [program, *(word for pair in words.items() for word in map(str, pair))]
        for path in dirs:
            command += ["--dir", path]
        output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return judged(json.loads(output), options, name, apart)


def judged(result, options, name, apart):
    """A result with what is computed from it."""
    scale = float(os.environ.get("LARDER_DISK_TIME_SCALE", "1")) if not options.bare else 1
    result |= {"store": name, "layout": "apart" if apart else "stripe", "emulated": not options.bare,
               "mb_per_s": result["put_bytes"] / result["seconds"] / scale / 1e6,
               "puts_per_s": result.get("puts", 0) / result["seconds"] / scale}
    for when in ("after_puts", "after_close"):
        counts = result.get(f"disks_{when}")
        if counts:
            written = sum(disk["written_bytes"] for disk in counts["disks"])
            result[f"written_per_byte_{when}"] = written / result["put_bytes"]
    return result


def main():
    options = parsed()
    found, absent = contenders(options)
    for name, why in absent.items():
        print(f"left out: {name}: {why}", file=sys.stderr)
    if not found:
        sys.exit("stores: nothing to measure")
    layouts = [False, True] if options.apart else [False]
    print(f"{'store':10} {'layout':7} {'keys':11} {'bytes':>8} {'writers':>7} {'MB/s':>9} {'x':>6} {'p99 ms':>9} "
          f"{'written a byte':>14}", file=sys.stderr)
    for case in ((keys, size, writers, apart) for apart in layouts for keys in options.keys
                 for size in options.value_bytes for writers in options.writers):
        first = None
        for name, program in found.items():
            result = run(options, name, program, case)
            first = first or result["mb_per_s"]
            print(json.dumps(result), flush=True)
            written = result.get("written_per_byte_after_puts")
            print(f"{name:10} {result['layout']:7} {case[0]:11} {case[1]:8} {case[2]:7} {result['mb_per_s']:9.3f} "
                  f"{result['mb_per_s'] / first:6.2f} {result['p99_ms']:9.2f} "
                  f"{'' if written is None else format(written, '14.2f')}", file=sys.stderr)


if __name__ == "__main__":
    main()
