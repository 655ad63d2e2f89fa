#!/usr/bin/env python3
"""Tests with a real kernel: `larder drive` on a disk of `scsi_debug`, which stops and starts, and on QEMU's SATA disk,
which does neither; the conformance suite of drives on both; a whole rack on XFS and on ext4 (rack.py); cuts of the
power (cuts.py); udev's rule (rule.py); repairs of a rack (repairs.py); a rack that is made of the disks that are
found, measured, and served with the capabilities of the unit that ships (found.py); a copy of a data directory beside
the original (owners.py); and a pool of small objects on disks that sleep while they are mounted (pool.py).

usage: run.py BINARY [CACHE [DRIVES]], where DRIVES is the test program disk/tests/drives.rs

The last line is the count. Where no virtual machine can be had, it says so, and counts all tests as skipped. The rack
on XFS sleeps for minutes, during which the other machines run: three at once, with 7 GB of memory in all."""

import json
import os
import subprocess
import sys
import tempfile
import threading

import cuts
import found
import owners
import repairs
import pool
import rack
import rule
from machine import Unavailable, boot, images

# ext4 asks for the checksum by the name of its algorithm.
MODULES = ["sd_mod", "ahci", "crc32c_generic", "ext4", "scsi_debug"]
PARAMETERS = {"scsi_debug": "dev_size_mb=64"}
DISK_BYTES = 16 << 20
# Two of QEMU's disks have one serial number.
SERIALS = ["VM-0", "TWIN", "TWIN"]
# Disks that may not be used: the rack is refused, and they hold what they held.
RACK = """
name = "cupboard"
group_drives = 2
pack = "1 MB"
[code]
k = 1
r = 1
fragment = "64 KiB"
[drive]
capacity = "10 MB"
bytes_per_s = "200 MB/s"
seek = "8.5 ms"
spin_up = "1 s"
mount = "1 s"
mount_busy = "1 s"
unmount = "1 s"
spin_down = "1 s"
watts = { standby = 0.8, spin_up = 24, active = 6.5 }
rated_starts = 50000
life_years = 5
[[drives]]
slot = [0, 0, 0]
path = "/dev/disk/by-id/@A@"
[[drives]]
slot = [1, 0, 0]
path = "/dev/disk/by-id/@B@"
"""

STAT = "cat /sys/block/$scsi/stat"
COMMANDS = {
    "bare": "larder drive discover --json",
    "stop": "larder drive power $scsi stop --json",
    "stat before": STAT,
    "asleep": "larder drive discover --json",
    "state": "larder drive power $scsi --json",
    "stat after": STAT,
    "allow restart": "for file in /sys/block/$scsi/device/scsi_disk/*/allow_restart; do echo 1 >$file; done; "
                     "larder drive power $scsi --json && larder drive discover --json >/dev/null && "
                     "larder drive power $scsi --json",
    "woken": "dd if=/dev/$scsi of=/dev/null bs=4096 count=1 skip=9999 && larder drive power $scsi --json",
    "start": "larder drive power $scsi stop --json >/dev/null && larder drive power $scsi start --json",
    "test": "larder drive power $scsi test --json",
    "ata": "larder drive power $ata --json",
    "ata test": "larder drive power $ata test",
    "twins": "refused twin-a twin-b",
    "partition": "cut() { dd of=/dev/$ata bs=2 seek=$1 conv=notrunc 2>/dev/null; }; printf '\\125\\252' | cut 255; "
                 "printf '\\0\\0\\0\\0\\203\\0\\0\\0\\0\\10\\0\\0\\0\\20\\0\\0' | cut 223; "
                 "blockdev --rereadpt /dev/$ata; ln -sf /dev/${ata}1 /dev/disk/by-id/part; refused part scsi",
    "partitioned": "refused ata scsi",
    "made": "mke2fs /dev/$scsi >/dev/null && mount -t ext4 /dev/$scsi /mnt && "
            "larder drive discover --json",
    "stop mounted": "larder drive power $scsi stop",
    "mounted": "umount /mnt; mount -t ext4 -o ro /dev/$scsi /mnt && refused ata scsi",
    "doctor": "larder drive doctor --json",
}
# Which disk is whose, found by the vendor, before each command.
FIND = """
mkdir -p /dev/disk/by-id
for d in /sys/block/sd*; do
    d=${d##*/}
    case $(cat /sys/block/$d/device/vendor)$(tail -c +5 /sys/block/$d/device/vpd_pg80 | tr -d ' ') in
        Linux*) scsi=$d; ln -sf /dev/$d /dev/disk/by-id/scsi;;
        *VM-0) ata=$d; ln -sf /dev/$d /dev/disk/by-id/ata;;
        *TWIN) twin=$([ -z "$twin" ] && echo a || echo b); ln -sf /dev/$d /dev/disk/by-id/twin-$twin;;
    esac
done
sums() { for d in /sys/block/sd*; do md5sum /dev/${d##*/}; done; }
refused() {
    before=$(sums)
    sed -e s,@A@,$1, -e s,@B@,$2, /rack.toml >/tmp/rack.toml
    larder init --data /data --rack /tmp/rack.toml
    code=$?
    [ "$before" = "$(sums)" ] && echo "$before" && [ ! -e /data ] && exit $code
    exit 99
}
"""


def one(disks, name_of):
    found = [disk for disk in disks if name_of(disk)]
    assert found, disks
    return found[0]


def is_scsi_debug(disk):
    return disk["model"] == "Linux scsi_debug"


def answer(results, name, code=0):
    actual, output, errors = results[name]
    assert actual == code, f"exit code {actual}: {output} {errors}"
    return output


def bare_disks_can_be_used(results):
    disks = json.loads(answer(results, "bare"))
    scsi = one(disks, is_scsi_debug)
    assert (scsi["state"], scsi["holds"], scsi["usable"]) == ("active", [], True), scsi
    assert scsi["serial"] and scsi["wwn"] and scsi["bus"] == "scsi", scsi
    ata = one(disks, lambda disk: disk["serial"] == "VM-0")
    assert (ata["model"], ata["serial"], ata["state"]) == ("QEMU HARDDISK", "VM-0", "active"), ata
    assert ata["size_bytes"] == DISK_BYTES and ata["usable"], ata


def a_stopped_disk_is_standby(results):
    report = json.loads(answer(results, "stop"))
    assert report["state"] == "standby" and report["stop_ms"] is not None, report
    assert json.loads(answer(results, "state"))["state"] == "standby"
    scsi = one(json.loads(answer(results, "asleep")), lambda disk: disk["state"] == "standby")
    assert is_scsi_debug(scsi) and not scsi["usable"] and "asleep" in scsi["reasons"][0], scsi


def discovering_a_sleeping_disk_reads_nothing_of_it(results):
    assert answer(results, "stat before").split() == answer(results, "stat after").split()


def asking_does_not_make_the_kernel_start_a_disk(results):
    output = answer(results, "allow restart")
    reports = [json.loads(part + "}") for part in output.split("}") if part.strip()]
    assert [report["state"] for report in reports] == ["standby", "standby"], output


def a_read_by_another_process_wakes_it_and_is_seen(results):
    assert json.loads(answer(results, "woken"))["state"] == "active"


def a_started_disk_is_active(results):
    report = json.loads(answer(results, "start"))
    assert report["state"] == "active" and report["start_ms"] is not None, report


def a_trial_passes_where_power_can_be_controlled(results):
    report = json.loads(answer(results, "test"))
    assert report["state"] == "active" and None not in (report["stop_ms"], report["start_ms"]), report


def a_trial_finds_a_disk_that_does_not_obey(results):
    assert json.loads(answer(results, "ata"))["state"] == "active"
    answer(results, "ata test", 1)
    assert "still reports that it spins" in results["ata test"][2], results["ata test"]


def a_mounted_disk_is_refused_and_not_stopped(results):
    scsi = one(json.loads(answer(results, "made")), lambda disk: is_scsi_debug(disk) and not disk["usable"])
    assert "mounted at /mnt" in scsi["reasons"][0] and scsi["holds"][0]["name"].startswith("ext"), scsi
    answer(results, "stop mounted", 1)
    assert "is in use" in results["stop mounted"][2]


def what_is_no_whole_free_disk_is_refused_and_nothing_is_written(results):
    for name, words in {
        "twins": "it has the identity of",
        "partition": "is a partition of",
        "partitioned": "it has partitions",
        "mounted": "is mounted at /mnt",
    }.items():
        sums = answer(results, name, 1).splitlines()
        assert len(sums) == 1 + len(SERIALS) and words in results[name][2], results[name]


def the_doctor_runs_on_a_bare_machine(results):
    causes = [finding["cause"] for finding in json.loads(answer(results, "doctor", 1))]
    assert causes == ["udev"], causes


TESTS = [
    bare_disks_can_be_used,
    a_stopped_disk_is_standby,
    discovering_a_sleeping_disk_reads_nothing_of_it,
    asking_does_not_make_the_kernel_start_a_disk,
    a_read_by_another_process_wakes_it_and_is_seen,
    a_started_disk_is_active,
    a_trial_passes_where_power_can_be_controlled,
    a_trial_finds_a_disk_that_does_not_obey,
    a_mounted_disk_is_refused_and_not_stopped,
    what_is_no_whole_free_disk_is_refused_and_nothing_is_written,
    the_doctor_runs_on_a_bare_machine,
]


def a_disk_that_stops_is_a_drive(results):
    assert "1 passed; 0 failed" in answer(results, "scsi"), results["scsi"]


def a_disk_that_never_stops_is_a_drive(results):
    assert "1 passed; 0 failed" in answer(results, "ata"), results["ata"]


CONFORMS = "LARDER_TEST_DEVICE=/dev/disk/by-id/{0} drives --ignored --exact a_disk_is_a_drive"
CONFORMANCE = {
    "scsi": "export PATH=$PATH:/bin:/sbin:/usr/sbin; " + CONFORMS.format("scsi"),
    # The stop is waited for, for 2 minutes.
    "ata": "export PATH=$PATH:/bin:/sbin:/usr/sbin LARDER_TEST_DEVICE_STOPS=no; " + CONFORMS.format("ata"),
}
CONFORMANCE_TESTS = [a_disk_that_stops_is_a_drive, a_disk_that_never_stops_is_a_drive]


def single_disks(binary, cache):
    """What the commands of `larder drive` answer."""
    with tempfile.TemporaryDirectory() as folder:
        modules = {name: PARAMETERS.get(name, "") for name in MODULES}
        answers = boot("single", binary, modules, [FIND + command for command in COMMANDS.values()], cache,
                       disks=images(folder, SERIALS, DISK_BYTES), texts={"rack.toml": RACK})
    return dict(zip(COMMANDS, answers))


def conformance(binary, cache, drives):
    """What the conformance suite of drives says of a disk of each kind."""
    if drives is None:
        raise Unavailable("the test program of drives was not given")
    with tempfile.TemporaryDirectory() as folder:
        modules = {**{name: "" for name in MODULES}, "xfs": "", "scsi_debug": f"dev_size_mb={rack.DISK_MB}"}
        programs = [rack.program("mkfs.xfs"), ("bin/drives", drives)]
        answers = boot("conformance", binary, modules, [FIND + command for command in CONFORMANCE.values()], cache,
                       disks=images(folder, ["VM-0"], rack.DISK_MB << 20), programs=programs)
    return dict(zip(CONFORMANCE, answers))


def judged(tests, results):
    """How many of `tests` failed."""
    failed = 0
    for test in tests:
        try:
            test(results)
            print(f"passed  {test.__name__}")
        except (AssertionError, KeyError, ValueError, IndexError) as error:
            failed += 1
            print(f"failed  {test.__name__}\n        {type(error).__name__}: {error}")
    if os.environ.get("LARDER_VM_VERBOSE"):
        print(json.dumps(results, indent=1))
    return failed


class Counts:
    """What machines that run side by side came to."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.lock = threading.Lock()

    def add(self, tests, results):
        """Judges what `results` gives."""
        try:
            found = results()
        except Unavailable as reason:
            with self.lock:
                print(f"skipped: {reason}")
                self.skipped += len(tests)
            return
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            with self.lock:
                print(f"failed  all of {len(tests)} tests: {error}")
                self.failed += len(tests)
            return
        with self.lock:
            wrong = judged(tests, found)
            self.passed, self.failed = self.passed + len(tests) - wrong, self.failed + wrong


def main():
    binary = os.path.abspath(sys.argv[1])
    drives = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3] else None
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else folder
        os.makedirs(cache, exist_ok=True)
        # The first two wait for minutes: machines side by side, each row one after another.
        rows = [[(rack.TESTS, lambda: rack.results(binary, cache))],
                [(CONFORMANCE_TESTS, lambda: conformance(binary, cache, drives)),
                 (repairs.TESTS, lambda: repairs.results(binary, cache)),
                 (found.TESTS, lambda: found.results(binary, cache)),
                 (owners.TESTS, lambda: owners.results(binary, cache))],
                [(TESTS, lambda: single_disks(binary, cache)),
                 (rule.TESTS, lambda: rule.results(binary, cache)),
                 (pool.TESTS, lambda: pool.results(binary, cache)),
                 (rack.SHORT_TESTS, lambda: rack.results(binary, cache, "ext4", rack.SHORT)),
                 (cuts.TESTS, lambda: cuts.results(binary, cache))]]
        threads = [threading.Thread(target=lambda row=row: [counts.add(*both) for both in row]) for row in rows]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"vm: {counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
