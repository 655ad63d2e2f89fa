"""A rack of four disks in a virtual machine, from bare disks to objects on drives that sleep, and what goes wrong.

The disks are those of `scsi_debug`: each a unit of its own that really stops and starts. Requests of clients are signed
beforehand (presigned), so that the machine needs nothing but busybox for them."""

import datetime
import hashlib
import hmac
import json
import os
import re
import shutil
import urllib.parse

from machine import Unavailable, boot

DISKS = 4
DISK_MB = 320
# A group is two disks, and only one of both groups may be awake.
RACK = """
name = "cupboard"
group_drives = 2
pack = "20 MB"

[code]
k = 1
r = 1
fragment = "64 KiB"

[resources.power]
active_drives = 2
hard = true

[failure_domains.drive]
same = ["drive"]
loses_media = true

[drive]
capacity = "200 MB"
bytes_per_s = "200 MB/s"
seek = "8.5 ms"
spin_up = { min = "12 s", max = "18 s", draws = 4 }
mount = { min = "500 ms", max = "1.5 s", draws = 4 }
mount_busy = { min = "1 s", max = "3 s", draws = 4 }
unmount = { min = "100 ms", max = "500 ms", draws = 2 }
spin_down = { min = "500 ms", max = "1 s", draws = 2 }
watts = { standby = 0.8, spin_up = 24, active = 6.5 }
rated_starts = 50000
life_years = 5
"""
DRIVE = """
[[drives]]
slot = [{number}, 0, 0]
path = "@{number}@"
domains = {{ power = 0 }}
"""
HOST = "127.0.0.1:9000"
ACCESS_KEY, SECRET_KEY = "LRDRVIRTUALMACHINE00", "virtualmachinevirtualmachinevirtualmachi"
# How long sleeping disks are watched while clients list, ask for heads and for the status.
IDLE_S = int(os.environ.get("LARDER_VM_IDLE_S", "300"))
# Commands that others use: which disk is which, states, waiting.
TOOLS = """
export PATH=/bin:/sbin:/usr/sbin
links() {  # what udev does; sets id0.. and dev0.. by the number of the unit
    mkdir -p /dev/disk/by-id
    rm -f /dev/disk/by-id/*
    for d in /sys/block/sd*; do
        wwid=$(cat $d/device/wwid)
        ln -s ../../${d##*/} /dev/disk/by-id/wwn-0x${wwid#naa.}
    done
}
names() {
    n=0
    for id in $(cat /tmp/ids 2>/dev/null || ls -d /dev/disk/by-id/* 2>/dev/null); do
        dev=$(readlink -f $id); dev=${dev##*/}
        eval id$n=$id dev$n=$dev; n=$((n + 1))
    done
}
state() { larder drive power $1 --json | sed -n 's/.*"state": *"\\([a-z]*\\)".*/\\1/p'; }
states() { for dev in $dev0 $dev1 $dev2 $dev3; do echo $(state $dev); done; }
stats() {  # what the kernel counts of each disk: its requests, and commands of any kind
    for dev in $dev0 $dev1 $dev2 $dev3; do
        echo $(cat /sys/block/$dev/stat) commands $(cat /sys/block/$dev/device/iorequest_cnt)
    done
}
member() {  # sets dev and id to those of the first drive on which an object lies
    numbers=$(larder explain --data /data s3://attic/$1 | sed -n '/^drive /,$ s/^ *\\([0-9]\\) .*/\\1/p')
    first=${numbers%%[!0-9]*}
    eval dev=\\$dev$first id=\\$id$first
}
other() {  # sets other and other_id to those of the first drive on which that object does not lie
    for n in 3 2 1 0; do echo $numbers | grep -q $n || eval other=\\$dev$n other_id=\\$id$n; done
}
writes() {  # how many sectors were written to each of both; an unmount sends a flush, which carries nothing
    for dev in $dev $other; do echo $dev $(awk '{ print $7 }' /sys/block/$dev/stat); done
}
status() { larder status --data /data --json; }
together() {  # sets one and two to two of three objects that lie in the same of both groups
    for name in $*; do
        group=$(larder explain --data /data s3://attic/$name | sed -n 's/^place *rack, group \\([0-9]\\).*/\\1/p')
        eval one=\\$in$group; two=$name; eval in$group=$name
        [ -n "$one" ] && return
    done
    return 1
}
sector() {  # where on its disk the MiB $2 of a file begins, in sectors of 512 bytes
    xfs_io -r -c "fiemap $2m 4k" $1 | sed -n 's/.*: \\([0-9]*\\)\\.\\..*/\\1/p' | tail -n 1
}
until_asleep() {
    for i in $(seq 120); do [ "$(states | grep -c standby)" = 4 ] && return; sleep 1; done
    states; return 1
}
serve() {
    larder serve --data /data >>/tmp/out 2>>/tmp/log &
    echo $! >/tmp/pid
    before=$1
    for i in $(seq 120); do [ "$(grep -c '^ready' /tmp/out)" -gt $before ] && return; sleep 1; done
    cat /tmp/log >&2; return 1
}
# A request with no more than a socket, to the port $port if it is set. The client's side stays open: the server takes
# one that is closed for a client that has gone.
send() {
    rm -f /tmp/done
    ( printf '%s %s HTTP/1.1\\r\\nHost: HOST\\r\\nConnection: close\\r\\n' "$1" "$2"
      printf 'Content-Length: %s\\r\\n\\r\\n' $( [ -n "$3" ] && wc -c <$3 || echo 0)
      [ -n "$3" ] && cat $3
      while [ ! -e /tmp/done ]; do sleep 0.2; done ) | ( nc 127.0.0.1 ${port:-9000} >/tmp/answer; touch /tmp/done )
    sed '1,/^\\r$/d' /tmp/answer >/tmp/got
    head -n 1 /tmp/answer | tr -d '\\r'
    head -n 1 /tmp/answer | grep -q ' 200 '
}
names
""".replace("HOST", HOST)


def signed(method, path, query=()):
    """A presigned URL."""
    now = datetime.datetime.now(datetime.timezone.utc)
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/us-east-1/s3/aws4_request"
    fields = dict(query, **{"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{ACCESS_KEY}/{scope}",
                            "X-Amz-Date": moment, "X-Amz-Expires": "86400", "X-Amz-SignedHeaders": "host"})
    text = "&".join(f"{urllib.parse.quote(k, safe='')}={urllib.parse.quote(v, safe='')}"
                    for k, v in sorted(fields.items()))
    canonical = "\n".join([method, path, text, f"host:{HOST}\n", "host", "UNSIGNED-PAYLOAD"])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + SECRET_KEY).encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    return f"http://{HOST}{path}?{text}&X-Amz-Signature={signature}"


def send(method, path, body="", query=()):
    """A command that sends a request; the body of the answer is in /tmp/got, its first line is printed."""
    return f"send {method} '{signed(method, path, query).removeprefix(f'http://{HOST}')}' {body}"


# Each is read once: what was read is kept in the workshop for a while.
OBJECTS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]


def same(name):
    return send("GET", f"/attic/{name}") + " && cmp /tmp/got /tmp/a && "


# Two of these lie in one group.
THREE = ["fifth", "sixth", "tenth"]
FETCH = ("fetch() { case $1 in " + " ".join(f"{name}) {send('GET', f'/attic/{name}')};;" for name in THREE) +
         " esac && cmp /tmp/got /tmp/a; }; ")
CONFIGURE = (
    "sed -i -e 's/^older_than = .*/older_than = \"1 s\"/' -e 's/^#\\?linger = .*/linger = \"1 s\"/' "
    "-e 's/^#\\?scan_interval = .*/scan_interval = \"1 s\"/' "
    "-e 's/^#\\?idle_timeout = .*/idle_timeout = \"10 s\"/' -e 's/^#read_ahead = .*/read_ahead = false/' "
    "/data/larder.toml && "
    f"printf 'export AWS_ACCESS_KEY_ID={ACCESS_KEY}\\nexport AWS_SECRET_ACCESS_KEY={SECRET_KEY}\\n' >/data/credentials"
)
WITH_STATUS = "status | tr -d ' \\n' | grep -o '\"{0}\":[0-9]*'"
COMMANDS = {
    "links": "ifconfig lo 127.0.0.1 up; mkdir /data; mount -t tmpfs -o size=512m tmpfs /data; "
             "links; ls -d /dev/disk/by-id/* >/tmp/ids; names; "
             "sed -e s,@0@,$id0, -e s,@1@,$id1, -e s,@2@,$id2, -e s,@3@,$id3, /rack.toml >/tmp/rack.toml; "
             "larder drive discover",
    "by name": "sed s,$id0,/dev/$dev0, /tmp/rack.toml >/tmp/wrong.toml; "
               "larder init --data /data --rack /tmp/wrong.toml; code=$?; ls /data; exit $code",
    "twice": "sed s,$id0,$id1, /tmp/rack.toml >/tmp/wrong.toml; larder init --data /data --rack /tmp/wrong.toml",
    "mounted": "mke2fs /dev/$dev3 >/dev/null && mount -t ext4 /dev/$dev3 /mnt && "
               "larder init --data /data --rack /tmp/rack.toml --wipe $id3; code=$?; umount /mnt; exit $code",
    "holds": "larder init --data /data --rack /tmp/rack.toml; code=$?; ls /data; exit $code",
    "init": "larder init --data /data --rack /tmp/rack.toml --wipe $id3 && mount | grep -c /data/mounts; states",
    "another rack": "for dev in $dev0 $dev1 $dev2 $dev3; do larder drive power $dev start >/dev/null; done; "
                    "larder init --data /data2 --rack /tmp/rack.toml; code=$?; "
                    "exit $code",
    # So that stacks that are written together do not lie in the same place of their disks. Then two of them spin.
    "filled": "for n in 0 1 2 3; do eval dev=\\$dev$n; mount -t $fs /dev/$dev /mnt && "
              "dd if=/dev/zero of=/mnt/larder/filler bs=1M count=$((8 * n + 1)) 2>/dev/null && umount /mnt || exit 1; "
              "done; for dev in $dev0 $dev1; do larder drive power $dev stop >/dev/null; done",
    "serve": CONFIGURE + " && serve 0 && until_asleep && grep -c 'a drive may be spinning' /tmp/log",
    "put": "base64 /dev/urandom | head -n 40000 >/tmp/a; " + send("PUT", "/attic") + " && " +
           " && ".join(send("PUT", f"/attic/{name}", "/tmp/a") for name in OBJECTS),
    "moved": f"for name in {' '.join(OBJECTS)}; do for i in $(seq 120); do larder explain --data /data "
             "s3://attic/$name --json | grep -q '\"blob\"' && break; sleep 1; done; "
             "larder explain --data /data s3://attic/$name | grep '^place'; done; until_asleep && states",
    "idle": f"sleep 2; before=$(stats); end=$(( $(date +%s) + {IDLE_S} )); while [ $(date +%s) -lt $end ]; do "
            + send("HEAD", "/attic/first") + " >/tmp/head && " + send("GET", "/attic", query=[("list-type", "2")]) +
            " >/tmp/head && grep -q '<Key>first</Key>' /tmp/got && status >/dev/null || exit 1; n=$((n + 1)); sleep 1; "
            "done; "
            "echo $n; echo \"$before\"; stats; states",
    "cold": "sleep 2; stats >/tmp/before; " + same("first") + "states; stats >/tmp/after; cat /tmp/before /tmp/after",
    # Killed while a group is awake.
    "restart": same("ninth") + "kill -9 $(cat /tmp/pid); sleep 1; mount | grep -c /data/mounts; serve 1 && "
               "until_asleep && states",
    "cold again": same("second") + "until_asleep",
    # One member of the group cannot read 4 KiB of an object. Every disk has such a place; where it is, the other member
    # has something else. Where the stacks lie is looked for while the group is awake for another object.
    "medium": FETCH + f"together {' '.join(THREE)} || exit 1; said=$(larder explain --data /data s3://attic/$two); "
              "member $two; echo \"$said\"; "
              "blob=$(echo \"$said\" | sed -n 's/^blob *b[0-9]*-\\([0-9a-f]*\\),.*/\\1/p'); "
              # Well inside the object: where it begins in its stack, and one to two MiB more.
              "at=$(echo \"$said\" | sed -n 's/.* at byte \\([0-9,]*\\),.*/\\1/p' | tr -d ,); "
              "at=$(((${at:-0} >> 20) + 2)); "
              "fetch $one || exit 1; "
              "for n in $numbers; do sector /data/mounts/000$n/larder/*$blob.*.stack $at; done >/tmp/sectors; "
              "cat /tmp/sectors; [ -s /tmp/sectors ] && until_asleep && cd /sys/module/scsi_debug/parameters && "
              "head -n 1 /tmp/sectors >medium_error_start && echo 8 >medium_error_count && "
              "echo 2 >/sys/bus/pseudo/drivers/scsi_debug/opts && fetch $two && echo whole; code=$?; "
              "echo 0 >/sys/bus/pseudo/drivers/scsi_debug/opts; "
              "grep -e 'cannot be read' -e 'was repaired' /tmp/log; until_asleep && exit $code",
    "woken": "for f in /sys/block/$dev2/device/scsi_disk/*/allow_restart; do echo 1 >$f; done; "
             "dd if=/dev/$dev2 of=/dev/null bs=4096 count=1 skip=50000 2>/dev/null; sleep 8; "
             "until_asleep && " + WITH_STATUS.format("woken_by_others") + " && grep 'another program' /tmp/log",
    # A drive of the group in which the third object lies.
    "pulled": "member third; "
              "readlink -f /sys/block/$dev | sed 's,.*/\\(host[0-9]*\\)/.*,\\1,' >/tmp/host; "
              "echo 1 >/sys/block/$dev/device/delete; rm $id; "
              "for i in $(seq 60); do grep -q 'a disk is gone' /tmp/log && break; sleep 1; done; sleep 1; " +
              WITH_STATUS.format("away") + " && " +
              same("third") + "grep 'a disk is gone' /tmp/log",
    "back": "echo '- - -' >/sys/class/scsi_host/$(cat /tmp/host)/scan; sleep 3; links; names; sleep 8; "
            "until_asleep && " + WITH_STATUS.format("away") + " && grep 'a disk is back' /tmp/log",
    # Whoever sets a disk to running again makes the kernel rescan it, which starts it.
    "erring": "member fourth; echo offline >/sys/block/$dev/device/state; " + same("fourth") +
              "grep -c 'would not start' /tmp/log; code=$?; echo running >/sys/block/$dev/device/state; sleep 8; "
              "until_asleep && exit $code",
    # A drive of the group in which the seventh object lies, and one of the other group, change their places.
    "swapped": "member seventh; other; echo $dev $other; before=$(writes); "
               "a=$(readlink $id); b=$(readlink $other_id); ln -sfn $b $id; ln -sfn $a $other_id; " +
               same("seventh") + "until_asleep && [ \"$before\" = \"$(writes)\" ] && echo unwritten; code=$?; "
               "echo \"$before\"; writes; grep 'would not mount' /tmp/log; "
               "ln -sfn $a $id; ln -sfn $b $other_id; exit $code",
    "swapped back": same("eighth") + "until_asleep && " + WITH_STATUS.format("away"),
    "end": "kill $(cat /tmp/pid); for i in $(seq 60); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 1; done; "
           "states; mount | grep -c /data/mounts; tail -n 60 /tmp/log",
}


def answer(results, name, code=0):
    actual, output, errors = results[name]
    assert actual == code, f"{name}: exit code {actual}: {output} {errors}"
    return output


def refused(results, name, *words):
    assert results[name][0] == 1, results[name]
    assert all(word in results[name][2] for word in words), results[name]


def bad_input_is_refused_and_nothing_is_written(results):
    refused(results, "by name", "may be another disk after the next start; name /dev/disk/by-id/wwn-")
    refused(results, "twice", "is that of drives[0] already")
    refused(results, "mounted", "is mounted at /mnt")
    refused(results, "holds", "it holds a file system", "--wipe /dev/disk/by-id/")
    refused(results, "another rack", "it is a drive of a rack already")
    for name in ("by name", "holds"):
        assert not results[name][1], results[name]


def bare_disks_become_drives_that_sleep(results):
    lines = answer(results, "init").splitlines()
    assert "created /data for the rack cupboard of 4 drives" in lines[0], lines
    assert lines[-5:] == ["0"] + ["standby"] * DISKS, lines


def a_start_asks_for_states_and_stops_what_spins(results):
    assert answer(results, "serve").splitlines()[-1] == "2", results["serve"]


def objects_move_to_disks_that_sleep_again(results):
    assert answer(results, "put").count("HTTP/1.1 200") == 1 + len(OBJECTS), results["put"]
    lines = answer(results, "moved").splitlines()
    assert all("rack, group" in line for line in lines[:-DISKS]) and lines[-DISKS:] == ["standby"] * DISKS, lines


def no_disk_is_touched_while_it_sleeps(results):
    lines = answer(results, "idle").splitlines()
    before, after = lines[1:1 + DISKS], lines[1 + DISKS:1 + 2 * DISKS]
    assert before == after and lines[-DISKS:] == ["standby"] * DISKS, lines
    assert int(lines[0]) > IDLE_S / 20 and all(re.search(r" commands 0x[0-9a-f]+$", line) for line in before), lines


def a_cold_get_wakes_one_group_and_gives_the_bytes_back(results):
    lines = answer(results, "cold").splitlines()
    # By then they may be asleep again, where the machine is slow.
    states, before, after = (lines[1 + DISKS * part:1 + DISKS * (part + 1)] for part in range(3))
    pairs = [[line.split(" commands ")[0] for line in pair] for pair in zip(before, after, strict=True)]
    touched = [then != now for then, now in pairs]
    assert "200" in lines[0] and len(before) == DISKS and sum(touched) == 2, lines
    assert all(state == "standby" for state, was_touched in zip(states, touched) if not was_touched), lines


def after_a_crash_mounted_disks_are_unmounted_and_stopped(results):
    lines = answer(results, "restart").splitlines()
    assert lines[1:] == ["2"] + ["standby"] * DISKS, lines
    answer(results, "cold again")


def a_disk_that_another_program_woke_is_noticed_counted_and_stopped(results):
    lines = answer(results, "woken").splitlines()
    assert lines[0] == '"woken_by_others":1' and "woke a sleeping disk" in lines[1], lines


def a_pulled_disk_is_noticed_done_without_and_taken_back(results):
    assert '"away":1' in answer(results, "pulled"), results["pulled"]
    assert '"away":0' in answer(results, "back"), results["back"]


def an_erring_disk_is_done_without(results):
    assert int(answer(results, "erring").splitlines()[-1]) >= 1, results["erring"]


def an_error_of_the_medium_costs_no_bytes_and_is_named(results):
    lines = answer(results, "medium").splitlines()
    assert "whole" in lines, lines
    # The kernel calls a place that cannot be read ENODATA, and not EIO.
    assert any("cannot be read" in line and "(os error 61)" in line for line in lines), lines
    assert any("was repaired" in line for line in lines), lines


def disks_that_were_exchanged_while_asleep_are_not_written_and_named(results):
    lines = answer(results, "swapped").splitlines()
    assert "unwritten" in lines and any("sits in the place of" in line for line in lines), lines
    answer(results, "swapped back")


def a_stop_of_the_server_leaves_all_asleep(results):
    assert answer(results, "end").splitlines()[:DISKS + 1] == ["standby"] * DISKS + ["0"], results["end"]


TESTS = [
    bad_input_is_refused_and_nothing_is_written,
    bare_disks_become_drives_that_sleep,
    a_start_asks_for_states_and_stops_what_spins,
    objects_move_to_disks_that_sleep_again,
    no_disk_is_touched_while_it_sleeps,
    a_cold_get_wakes_one_group_and_gives_the_bytes_back,
    after_a_crash_mounted_disks_are_unmounted_and_stopped,
    a_disk_that_another_program_woke_is_noticed_counted_and_stopped,
    a_pulled_disk_is_noticed_done_without_and_taken_back,
    an_error_of_the_medium_costs_no_bytes_and_is_named,
    an_erring_disk_is_done_without,
    disks_that_were_exchanged_while_asleep_are_not_written_and_named,
    a_stop_of_the_server_leaves_all_asleep,
]


# With the other file system: from the init to the first cold GET.
SHORT = ["links", "init", "another rack", "filled", "serve", "put", "moved", "cold", "end"]
SHORT_TESTS = [
    bare_disks_become_drives_that_sleep,
    a_start_asks_for_states_and_stops_what_spins,
    objects_move_to_disks_that_sleep_again,
    a_cold_get_wakes_one_group_and_gives_the_bytes_back,
    a_stop_of_the_server_leaves_all_asleep,
]


def program(name):
    found = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise Unavailable(f"{name} is not installed (Debian: xfsprogs, e2fsprogs, util-linux)")
    return found


def results(binary, cache, file_system="xfs", names=tuple(COMMANDS)):
    """What the commands of these names answer on disks with this file system."""
    programs = [program(f"mkfs.{file_system}"), program("xfs_io")]
    modules = {"sd_mod": "", "crc32c_generic": "", "ext4": "", "xfs": "",
               "scsi_debug": f"dev_size_mb={DISK_MB} add_host={DISKS} per_host_store=1"}
    texts = {"rack.toml": RACK + "".join(DRIVE.format(number=number) for number in range(DISKS)), "tools": TOOLS}
    commands = [f"fs={file_system}; . /tools; {COMMANDS[name]}" for name in names]
    answers = boot(f"rack-{file_system}", binary, modules, commands, cache, programs=programs, texts=texts,
                   memory_mb=DISKS * DISK_MB + 1024, waits_s=IDLE_S if "idle" in names else 0)
    return dict(zip(names, answers))


if __name__ == "__main__":
    import sys
    print(json.dumps(results(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])), indent=1))
