"""Repairs of a rack of whole disks in a virtual machine: verified while no server runs, its catalog lost and
made again, a disk replaced by another, with a server and without one.

The rack is that of rack.py: two groups of two disks, of which two may spin. A fifth disk is the new one."""

import json
import re

import rack
from machine import boot

DISKS = rack.DISKS + 1
SETTINGS = rack.COMMANDS["serve"].rsplit(" && grep", 1)[0]
# `most COMMAND` runs it, and prints the most drives that were mounted at once meanwhile, as the kernel has said it, and
# the states after it. A look from time to time misses drives that are mounted for half a second.
TOOLS = rack.TOOLS + """
most() {
    echo 'drives are counted' >/dev/kmsg
    "$@"; code=$?
    echo most $(dmesg | awk '/drives are counted/ { now = most = 0 } /XFS .*: Mounting/ { if (++now > most) most = now }
                             /XFS .*: Unmounting/ { now-- } END { print most + 0 }') \
         then $(grep -c /data/mounts /proc/mounts); states
    return $code
}
stop() {
    kill $(cat /tmp/pid)
    for i in $(seq 60); do kill -0 $(cat /tmp/pid) 2>/dev/null || return 0; sleep 1; done
    return 1
}
lose() {  # the catalog, and the directories of these names in the data directory
    rm -r $(ls -d /data/catalog.db*)
    for name in $*; do rm -r /data/$name; done
}
until_filled() {  # nothing is left to be rebuilt, and all sleep
    for i in $(seq 120); do
        status | tr -d ' \\n' | grep -q '"left_bytes":[1-9]' || break; sleep 1
    done
    until_asleep
}
exchanged() { sed -i "$(($1 + 1))s,.*,$2," /tmp/ids; names; }
"""

COMMANDS = {
    "links": rack.COMMANDS["links"],
    "init": "larder init --data /data --rack /tmp/rack.toml",
    "serve": SETTINGS,
    "put": rack.COMMANDS["put"],
    "moved": rack.COMMANDS["moved"],
    "stop": "member first; echo $first >/tmp/number; stop; states",
    "verify": "most larder verify --data /data --wake --deep",
    # Found spinning: it counts, and is stopped first.
    "recover": "lose; larder drive power $id0 start >/dev/null; most larder recover --data /data 2>/tmp/progress; "
               "code=$?; cat /tmp/progress; exit $code",
    "recover from packs": "lose workshop/journal workshop/intake manifest; "
                          "larder recover --data /data --json 2>/tmp/progress; code=$?; grep groups: /tmp/progress; "
                          "exit $code",
    "verify again": "most larder verify --data /data --deep",
    "cold": "serve 1 && until_asleep && " + rack.same("second") + "until_asleep; states",
    "not failed": "n=$(cat /tmp/number); larder drive replace --data /data $n --path $id4",
    # A group of two drives with 1 + 1 rebuilds nothing before the replacement.
    "refused": "n=$(cat /tmp/number); eval old=\\$id$n; echo $old >/tmp/old; "
               "larder drive fail --data /data $n --force; mke2fs /dev/$dev4 >/dev/null; "
               "sum=$(head -c 8388608 /dev/$dev4 | md5sum); "
               "larder drive replace --data /data $n --path /dev/$dev4; "
               "larder drive replace --data /data $n --path $(ls -d $id0 $id1 | grep -v $old | head -n 1); "
               "larder drive replace --data /data $n --path $id4; "
               "[ \"$sum\" = \"$(head -c 8388608 /dev/$dev4 | md5sum)\" ] && echo untouched",
    "replace": "n=$(cat /tmp/number); larder drive replace --data /data $n --path $id4 --wipe $id4 && "
               "exchanged $n $id4; until_filled && cat /data/disks",
    "filled": "stop; most larder verify --data /data --deep",
    # The disk that was replaced takes the place of its replacement, while no server runs.
    "its own": "n=$(cat /tmp/number); old=$(cat /tmp/old); larder drive fail --data /data $n --force; "
               "larder drive replace --data /data $n --path $old; larder drive power $old start >/dev/null; "
               "larder drive replace --data /data $n --path $old",
    "replace again": "n=$(cat /tmp/number); old=$(cat /tmp/old); "
                     "larder drive replace --data /data $n --path $old --wipe $old && state $old && "
                     "exchanged $n $old; cat /data/disks; serve 2 && until_filled && " + rack.same("first") +
                     "until_asleep; stop && most larder verify --data /data --deep",
}


def found(output):
    """The most drives that were mounted at once, how many were at the end, and the states of the four disks."""
    most = re.search(r"^most (\d+) then (\d+)\n((?:[a-z]+\n?)+)", output, re.M)
    assert most, output
    return int(most[1]), int(most[2]), most[3].split()


def one_group_at_a_time(output):
    assert found(output) == (2, 0, ["standby"] * rack.DISKS), output


def a_rack_is_verified_group_by_group_while_no_server_runs(results):
    assert rack.answer(results, "moved").count("rack, group") == len(rack.OBJECTS), results["moved"]
    output = rack.answer(results, "verify")
    assert "all agree" in output and "read and compared" in output and re.search(r"in [12] groups?,", output), output
    one_group_at_a_time(output)


def a_lost_catalog_is_made_again_group_by_group(results):
    output = rack.answer(results, "recover")
    one_group_at_a_time(output)
    assert "a drive may be spinning" in output, output
    assert "1 of 2 groups: 2 drives, " in output and "2 of 2 groups: 4 drives, " in output, output


def it_is_made_again_from_the_packs_alone(results):
    output = rack.answer(results, "recover from packs")
    report, _ = json.JSONDecoder().raw_decode(output[output.index("{"):])
    assert (report["base"], report["objects"], report["drives_unusable"]) == (None, len(rack.OBJECTS), 0), report
    output = rack.answer(results, "verify again")
    assert "all agree" in output, output
    one_group_at_a_time(output)
    assert "200" in rack.answer(results, "cold"), results["cold"]


def a_disk_that_cannot_be_a_drive_is_refused_and_not_written_to(results):
    rack.refused(results, "not failed", "has not failed")
    code, output, errors = results["refused"]
    assert code == 0 and output.endswith("untouched"), results["refused"]
    for said in ("may be another disk after the next start", "of this rack; name another", "it holds a file system"):
        assert said in errors, errors


def a_new_disk_takes_the_place_of_one_that_failed_and_is_filled(results):
    lines = rack.answer(results, "replace").splitlines()
    assert "is now a different, empty drive" in lines[0] and "Larder disks" in lines, lines
    output = rack.answer(results, "filled")
    assert "all agree" in output and "to be rebuilt" not in output, output
    one_group_at_a_time(output)


def a_disk_of_the_rack_is_taken_again_only_if_that_is_said(results):
    code, _, errors = results["its own"]
    assert code == 1 and "it is asleep" in errors and "is a disk of this rack" in errors, results["its own"]
    output = rack.answer(results, "replace again")
    assert re.match(r"[^\n]*is now a different, empty drive[^\n]*\nstandby\n", output), output
    assert "all agree" in output and "to be rebuilt" not in output, output
    one_group_at_a_time(output)


TESTS = [
    a_rack_is_verified_group_by_group_while_no_server_runs,
    a_lost_catalog_is_made_again_group_by_group,
    it_is_made_again_from_the_packs_alone,
    a_disk_that_cannot_be_a_drive_is_refused_and_not_written_to,
    a_new_disk_takes_the_place_of_one_that_failed_and_is_filled,
    a_disk_of_the_rack_is_taken_again_only_if_that_is_said,
]


def results(binary, cache):
    modules = {"sd_mod": "", "crc32c_generic": "", "ext4": "", "xfs": "",
               "scsi_debug": f"dev_size_mb={rack.DISK_MB} add_host={DISKS} per_host_store=1"}
    drives = "".join(rack.DRIVE.format(number=number) for number in range(rack.DISKS))
    texts = {"rack.toml": rack.RACK + drives, "tools": TOOLS}
    commands = [f". /tools; {command}" for command in COMMANDS.values()]
    memory_mb = DISKS * rack.DISK_MB + 1024
    answers = boot("repairs", binary, modules, commands, cache, programs=[rack.program("mkfs.xfs")], texts=texts,
                   memory_mb=memory_mb)
    return dict(zip(COMMANDS, answers))


if __name__ == "__main__":
    import os
    import sys
    print(json.dumps(results(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])), indent=1))
