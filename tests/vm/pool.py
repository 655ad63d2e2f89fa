"""A pool of small objects on four disks in a virtual machine, whose file systems stay mounted while the disks sleep:
two of XFS and two of ext4. The rack beside them is emulated.

The disks are those of `scsi_debug`. What they hold as whole disks is of the operator's making; the server starts and
stops them."""

import json
import os

import rack
from machine import boot
from rack import DISKS, answer, refused, send

DRIVE = """
[[pool]]
path = "/pool{number}/larder"
disk = "@{number}@"
"""
# How long sleeping disks are watched: longer than XFS and ext4 take to write what a sync leaves.
IDLE_S = min(rack.IDLE_S, 150)
OBJECTS = [f"small{number}" for number in range(10)]
TOOLS = rack.TOOLS + """
until_three_sleep() {
    for i in $(seq 240); do [ "$(states | grep -c standby)" = 3 ] && return; sleep 1; done
    states; status; cat /tmp/log; return 1
}
drives() {  # what the status says of each drive of the pool: its place, state, power, starts today
    status | tr -d ' \\n' | grep -o '"place":"[^"]*","state":"[a-z]*","power":"[a-z]*"[^}]*' |
        sed -e 's|.*/\\(pool.\\)/|\\1 |' -e 's|larder||' \\
        -e 's|".*"state":"\\([a-z]*\\)","power":"\\([a-z]*\\)".*"starts_today":\\([0-9]*\\).*| \\1 \\2 \\3|'
}
warnings() { status | sed -n '/"warnings"/,/]/p'; }
total() { status | tr -d ' \\n' | grep -o "\\"$1\\":[0-9]*"; }
shelf() {  # sets n, dev and id to those of the drive with the largest shelf
    n=$(status | tr -d ' \\n' | grep -o '"place":"[^"]*"[^}]*"shelf_bytes":[0-9]*' |
        sed 's|.*/pool\\([0-9]\\)/.*"shelf_bytes":\\([0-9]*\\)|\\2 \\1|' | sort -n | tail -n 1 | cut -d ' ' -f 2)
    eval dev=\\$dev$n id=\\$id$n
}
restartable() { for f in /sys/block/$1/device/scsi_disk/*/allow_restart; do echo $2 >$f; done; }
"""
INIT = "larder init --data /data --rack "
ALL = " && ".join(send("GET", f"/attic/{name}") + " && cmp /tmp/got /tmp/a" for name in OBJECTS)
COMMANDS = {
    "made": "ifconfig lo 127.0.0.1 up; mkdir /data; mount -t tmpfs -o size=512m tmpfs /data; links; "
            "ls -d /dev/disk/by-id/* >/tmp/ids; names; "
            "mkfs.xfs -q /dev/$dev0 && mkfs.xfs -q /dev/$dev1 && "
            "for dev in $dev2 $dev3; do "
            "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/$dev || exit 1; done; "
            "for n in 0 1 2 3; do eval dev=\\$dev$n; mkdir /pool$n; [ $n -gt 1 ] && fs=ext4 || fs=xfs; "
            "mount -t $fs /dev/$dev /pool$n && mkdir /pool$n/larder || exit 1; done; "
            "sed -e s,@0@,$id0, -e s,@1@,$id1, -e s,@2@,$id2, -e s,@3@,$id3, /rack.toml >/tmp/rack.toml",
    "by name": "sed s,$id0,/dev/$dev0, /tmp/rack.toml >/tmp/wrong.toml; " + INIT + "/tmp/wrong.toml",
    "elsewhere": "sed -e s,$id0,@, -e s,$id1,$id0, -e s,@,$id1, /tmp/rack.toml >/tmp/wrong.toml; " +
                 INIT + "/tmp/wrong.toml",
    "not restarted": INIT + "/tmp/rack.toml; code=$?; ls /data; exit $code",
    "faster": "for dev in $dev0 $dev1 $dev2 $dev3; do restartable $dev 1; done; " +
              INIT + "/tmp/rack.toml --time-scale 10",
    "init": INIT + "/tmp/rack.toml",
    "serve": "sed -i -e 's/^#\\?idle_timeout = .*/idle_timeout = \"10 s\"/' /data/larder.toml; "
             f"printf 'export AWS_ACCESS_KEY_ID={rack.ACCESS_KEY}\\nexport AWS_SECRET_ACCESS_KEY={rack.SECRET_KEY}\\n' "
             ">/data/credentials; serve 0; base64 /dev/urandom | head -n 4000 >/tmp/a; " + send("PUT", "/attic") +
             " && " + " && ".join(send("PUT", f"/attic/{name}", "/tmp/a") for name in OBJECTS),
    # The log that was left becomes a shelf on another drive. Then all sleep but the one on duty.
    "asleep": "kill -9 $(cat /tmp/pid); sleep 1; serve 1 && until_three_sleep && drives",
    "idle": f"sleep 2; before=$(stats); end=$(( $(date +%s) + {IDLE_S} )); while [ $(date +%s) -lt $end ]; do "
            + send("HEAD", f"/attic/{OBJECTS[0]}") + " >/tmp/head && " +
            send("GET", "/attic", query=[("list-type", "2")]) +
            f" >/tmp/head && grep -q '<Key>{OBJECTS[0]}</Key>' /tmp/got && status >/dev/null && " +
            send("PUT", "/attic/new", "/rack.toml") + " >/tmp/head || exit 1; sleep 1; done; "
            "echo \"$before\"; stats; states",
    "read": "shelf; before=$(states); " + send("GET", f"/attic/{OBJECTS[0]}") + " && cmp /tmp/got /tmp/a && "
            "echo $before && echo $(states) && echo $n && drives",
    # Killed while drives sleep: the next one starts them before it looks at what is on them.
    "killed": "until_three_sleep; kill -9 $(cat /tmp/pid); sleep 1; echo $(states); "
              "slept=$(states | grep -c standby); serve 2 && "
              "drives >/tmp/drives && cat /tmp/drives && echo $slept && " + ALL,
    # One that was killed in the middle of a stop leaves a file system frozen.
    "frozen": "until_three_sleep; kill -9 $(cat /tmp/pid); sleep 1; fsfreeze --freeze /pool1 && "
              "fsfreeze --freeze /pool2 && serve 3 && "
              "touch /pool1/written /pool2/written && " + send("PUT", "/attic/thawed", "/tmp/a"),
    "stopped": "until_three_sleep; kill $(cat /tmp/pid); for i in $(seq 60); do kill -0 $(cat /tmp/pid) 2>/dev/null || "
               "break; sleep 1; done; echo $(states); larder verify --data /data --deep && echo $(states)",
    # The kernel would not start it any more while it is awake for a read.
    "kept": "serve 4 && until_three_sleep; shelf; " + send("GET", f"/attic/{OBJECTS[0]}") + "; restartable $dev 0; "
            "sleep 25; echo $(state $dev); warnings; restartable $dev 1",
    # It is not stopped again before 10 minutes are over.
    "woken": "for n in 0 1 2 3; do eval dev=\$dev$n; [ $(state $dev) = standby ] && break; done; "
             "dd if=/dev/$dev of=/dev/null bs=4096 count=1 skip=50000 2>/dev/null; sleep 8; total woken_by_others; "
             "grep 'another program' /tmp/log | tail -n 1; sleep 15; echo $n; drives; status | grep another",
    "pulled": "kill -9 $(cat /tmp/pid); sleep 1; serve 5 && until_three_sleep && shelf && "
              "[ $(state $dev) = standby ] && echo 1 >/sys/block/$dev/device/delete && rm $id; sleep 4; "
              + send("GET", f"/attic/{OBJECTS[0]}") + " || true; " + send("PUT", "/attic/later", "/tmp/a") + " && " +
              send("GET", "/attic/later") + " && cmp /tmp/got /tmp/a && warnings",
    "end": "kill $(cat /tmp/pid); for i in $(seq 60); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 1; done; "
           "tail -n 60 /tmp/log",
}


def what_is_no_disk_of_the_pool_is_refused(results):
    refused(results, "by name", "drive 0 of the pool", "may be another disk after the next start")
    refused(results, "elsewhere", "/pool0/larder is not on /dev/disk/by-id/", "but on sd")
    refused(results, "not restarted", "device/scsi_disk/*/allow_restart")
    refused(results, "faster", "cannot run faster than real time")
    assert not results["not restarted"][1], results["not restarted"]
    answer(results, "init")


def three_of_four_sleep_while_mounted(results):
    answer(results, "serve")
    drives = [line.split() for line in answer(results, "asleep").splitlines()]
    assert sorted(drive[1:3] for drive in drives) == [["asleep", "standby"]] * 3 + [["logging", "spinning"]], drives


def no_sleeping_disk_is_touched_by_puts_lists_heads_and_status(results):
    lines = answer(results, "idle").splitlines()
    before, after, states = (lines[DISKS * part:DISKS * (part + 1)] for part in range(3))
    for then, now, state in zip(before, after, states, strict=True):
        assert state == "active" or then == now, lines
    assert states.count("standby") == 3, lines


def a_read_starts_the_one_disk_that_it_needs(results):
    lines = answer(results, "read").splitlines()[1:]
    before, after, number = lines[0].split(), lines[1].split(), int(lines[2])
    assert before[number] == "standby" and after[number] == "active", lines
    assert before.count("standby") - after.count("standby") == 1, lines


def after_a_crash_sleeping_disks_are_started_counted_and_whole(results):
    lines = answer(results, "killed").splitlines()
    drives, asleep = [line.split() for line in lines[1:5]], int(lines[5])
    assert asleep == 3 and lines[0].split().count("standby") == asleep, lines
    assert sum(int(drive[3]) > 0 for drive in drives) >= asleep, lines
    assert len(lines) == 6 + len(OBJECTS), lines


def a_file_system_that_was_left_frozen_is_thawed(results):
    assert "200" in answer(results, "frozen"), results["frozen"]


def a_check_of_a_stopped_server_starts_what_sleeps(results):
    lines = answer(results, "stopped").splitlines()
    assert lines[0].split().count("standby") == 3 and lines[-1].split() == ["active"] * DISKS, lines


def a_disk_that_cannot_safely_sleep_stays_awake_and_says_why(results):
    output = answer(results, "kept")
    assert output.splitlines()[1] == "active" and "does not stop" in output and "allow_restart" in output, output


def a_disk_that_another_program_woke_is_noticed_and_spins_on_for_a_while(results):
    lines = answer(results, "woken").splitlines()
    assert lines[0] == '"woken_by_others":1' and "woke a sleeping disk" in lines[1], lines
    drives = [line.split() for line in lines[3:3 + DISKS]]
    assert drives[int(lines[2])][1:3] == ["asleep", "spinning"], lines


def a_pulled_disk_takes_what_it_alone_had_and_the_others_go_on(results):
    output = answer(results, "pulled")
    assert output.count(" 200 ") == 2 and " 50" in output.splitlines()[0], output
    assert "does not start: there is no disk" in output, output
    answer(results, "end")


TESTS = [
    what_is_no_disk_of_the_pool_is_refused,
    three_of_four_sleep_while_mounted,
    no_sleeping_disk_is_touched_by_puts_lists_heads_and_status,
    a_read_starts_the_one_disk_that_it_needs,
    after_a_crash_sleeping_disks_are_started_counted_and_whole,
    a_file_system_that_was_left_frozen_is_thawed,
    a_check_of_a_stopped_server_starts_what_sleeps,
    a_disk_that_cannot_safely_sleep_stays_awake_and_says_why,
    a_disk_that_another_program_woke_is_noticed_and_spins_on_for_a_while,
    a_pulled_disk_takes_what_it_alone_had_and_the_others_go_on,
]


def results(binary, cache):
    """What the commands answer."""
    programs = [rack.program("mkfs.xfs"), rack.program("mkfs.ext4")]
    modules = {"sd_mod": "", "crc32c_generic": "", "ext4": "", "xfs": "",
               "scsi_debug": f"dev_size_mb={rack.DISK_MB} add_host={DISKS} per_host_store=1"}
    drives = "".join(f"\n[[drives]]\nslot = [{number}, 0, 0]\ndomains = {{ power = 0 }}\n" for number in range(DISKS))
    pool = "".join(DRIVE.format(number=number) for number in range(DISKS))
    texts = {"rack.toml": rack.RACK + drives + pool, "tools": TOOLS}
    commands = [f". /tools; {command}" for command in COMMANDS.values()]
    answers = boot("pool", binary, modules, commands, cache, programs=programs, texts=texts,
                   memory_mb=DISKS * rack.DISK_MB + 1024, waits_s=IDLE_S + 300)
    return dict(zip(COMMANDS, answers))


if __name__ == "__main__":
    import sys
    print(json.dumps(results(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])), indent=1))
