#!/usr/bin/env python3
"""Tests with a real kernel: `larder drive` on a disk of `scsi_debug`, which stops and starts, and on QEMU's SATA disk,
which does neither; and a whole rack (rack.py), and how it is mended (mends.py). usage: run.py BINARY [CACHE]

The last line is the count. Where no virtual machine can be had, it says so, and counts all tests as skipped."""

import json
import os
import sys
import tempfile

import mends
import rack
from machine import Unavailable, boot

# ext4 asks for the checksum by the name of its algorithm.
MODULES = ["sd_mod", "ahci", "crc32c_generic", "ext4", "scsi_debug"]
PARAMETERS = {"scsi_debug": "dev_size_mb=64"}
DISK_BYTES = 32 << 20

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
    "made": "mke2fs /dev/$scsi >/dev/null && mount -t ext4 /dev/$scsi /mnt && "
            "larder drive discover --json",
    "stop mounted": "larder drive power $scsi stop",
    "doctor": "larder drive doctor --json",
}
# Which disk is whose, found by the vendor, before each command.
FIND = ("for d in /sys/block/sd*; do case $(cat $d/device/vendor) in Linux*) scsi=${scsi:-${d##*/}};; "
        "ATA*) ata=${d##*/};; esac; done; ")


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
    ata = one(disks, lambda disk: disk["bus"] == "ata")
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
    assert "still says that it spins" in results["ata test"][2], results["ata test"]


def a_mounted_disk_is_refused_and_not_stopped(results):
    scsi = one(json.loads(answer(results, "made")), lambda disk: is_scsi_debug(disk) and not disk["usable"])
    assert "mounted at /mnt" in scsi["reasons"][0] and scsi["holds"][0]["name"].startswith("ext"), scsi
    answer(results, "stop mounted", 1)
    assert "is in use" in results["stop mounted"][2]


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
    the_doctor_runs_on_a_bare_machine,
]


def single_disks(binary, cache):
    """What the commands of `larder drive` answer."""
    with tempfile.TemporaryDirectory() as folder:
        image = os.path.join(folder, "disk")
        with open(image, "wb") as file:
            file.truncate(DISK_BYTES)
        modules = {name: PARAMETERS.get(name, "") for name in MODULES}
        answers = boot(binary, modules, [FIND + command for command in COMMANDS.values()], cache, [image])
    return dict(zip(COMMANDS, answers))


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


def main():
    binary = os.path.abspath(sys.argv[1])
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else folder
        os.makedirs(cache, exist_ok=True)
        for tests, answers in [(TESTS, single_disks), (rack.TESTS, rack.results), (mends.TESTS, mends.results)]:
            try:
                wrong = judged(tests, answers(binary, cache))
                passed, failed = passed + len(tests) - wrong, failed + wrong
            except Unavailable as reason:
                print(f"skipped: {reason}")
                skipped += len(tests)
    print(f"vm: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
