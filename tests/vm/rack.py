"""A rack of four disks in a virtual machine, from bare disks to objects on drives that sleep, and what goes wrong.

The disks are those of `scsi_debug`: each a unit of its own that really stops and starts. Requests of clients are signed
beforehand (presigned), so that the machine needs nothing but busybox for them."""

import datetime
import hashlib
import hmac
import json
import os
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
IDLE_S = int(os.environ.get("LARDER_VM_IDLE_S", "60"))
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
    for id in $(cat /tmp/ids 2>/dev/null || ls -d /dev/disk/by-id/*); do
        dev=$(readlink -f $id); dev=${dev##*/}
        eval id$n=$id dev$n=$dev; n=$((n + 1))
    done
}
state() { larder drive power $1 --json | sed -n 's/.*"state": *"\\([a-z]*\\)".*/\\1/p'; }
states() { for dev in $dev0 $dev1 $dev2 $dev3; do echo $(state $dev); done; }
stats() { for dev in $dev0 $dev1 $dev2 $dev3; do cat /sys/block/$dev/stat; done; }
member() {  # sets dev and id to those of the first drive on which an object lies
    first=$(larder explain --data /data s3://attic/$1 | grep -A 1 '^drive ' | sed -n '2s/ *\\([0-9]*\\).*/\\1/p')
    eval dev=\\$dev$first id=\\$id$first
}
status() { larder status --data /data --json; }
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
# A request with no more than a socket, whose side of the client stays open: the server takes one that is closed for a
# client that has gone.
send() {
    rm -f /tmp/done
    ( printf '%s %s HTTP/1.1\\r\\nHost: HOST\\r\\nConnection: close\\r\\n' "$1" "$2"
      printf 'Content-Length: %s\\r\\n\\r\\n' $( [ -n "$3" ] && wc -c <$3 || echo 0)
      [ -n "$3" ] && cat $3
      while [ ! -e /tmp/done ]; do sleep 1; done ) | ( nc 127.0.0.1 9000 >/tmp/answer; touch /tmp/done )
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
OBJECTS = ["first", "second", "third", "fourth"]


def same(name):
    return send("GET", f"/attic/{name}") + " && cmp /tmp/got /tmp/a && "


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
                    "for dev in $dev0 $dev1; do larder drive power $dev stop >/dev/null; done; exit $code",
    # Two of the disks spin when the server starts.
    "serve": "sed -i -e 's/^older_than = .*/older_than = \"1 s\"/' -e 's/^#\\?linger = .*/linger = \"1 s\"/' "
             "-e 's/^#\\?scan_interval = .*/scan_interval = \"1 s\"/' "
             "-e 's/^#\\?idle_timeout = .*/idle_timeout = \"10 s\"/' -e 's/^#read_ahead = .*/read_ahead = false/' "
             "/data/larder.toml && "
             f"printf 'export AWS_ACCESS_KEY_ID={ACCESS_KEY}\\nexport AWS_SECRET_ACCESS_KEY={SECRET_KEY}\\n' "
             ">/data/credentials && serve 0 && until_asleep && grep -c 'a drive spins, or may' /tmp/log",
    "put": "base64 /dev/urandom | head -n 40000 >/tmp/a; " + send("PUT", "/attic") + " && " +
           " && ".join(send("PUT", f"/attic/{name}", "/tmp/a") for name in OBJECTS),
    "moved": f"for name in {' '.join(OBJECTS)}; do for i in $(seq 120); do larder explain --data /data "
             "s3://attic/$name --json | grep -q '\"blob\"' && break; sleep 1; done; "
             "larder explain --data /data s3://attic/$name | grep '^place'; done; until_asleep && states",
    "idle": f"before=$(stats); end=$(( $(date +%s) + {IDLE_S} )); while [ $(date +%s) -lt $end ]; do "
            + send("HEAD", "/attic/first") + " >/tmp/head && " + send("GET", "/attic", query=[("list-type", "2")]) +
            " >/tmp/head && grep -q '<Key>first</Key>' /tmp/got && status >/dev/null || exit 1; n=$((n + 1)); done; "
            "[ \"$before\" = \"$(stats)\" ] || { echo \"$before\"; stats; exit 1; }; echo $n; states",
    "cold": same("first") + "states",
    "restart": "kill -9 $(cat /tmp/pid); sleep 1; mount | grep -c /data/mounts; serve 1 && until_asleep && states",
    "cold again": same("second") + "until_asleep",
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
    "end": "kill $(cat /tmp/pid); for i in $(seq 60); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 1; done; "
           "states; mount | grep -c /data/mounts; tail -n 60 /tmp/log",
    # A rack is found, for a data directory that is another user's; and that user serves it with what the drop-in of the
    # service gives.
    "discover": "for dev in $dev0 $dev1 $dev2 $dev3; do larder drive power $dev start >/dev/null; done; "
                "mkdir /mine && mount -t tmpfs -o size=256m tmpfs /mine && chown 990:990 /mine; "
                "found='larder init --data /mine --discover --spinning 2'; $found; echo $?; ls /mine; "
                "$found --yes --wipe $id0 --wipe $id1 --wipe $id2 --wipe $id3 && "
                "ls -ln /mine && states",
    "as a service": "chgrp 6 /dev/sd*; chmod 660 /dev/sd*; "
                    "sed -i 's/^#\\?idle_timeout = .*/idle_timeout = \"10 s\"/' /mine/larder.toml; "
                    "setpriv --reuid 990 --regid 990 --groups 6 --inh-caps=-all,+SERVICE --ambient-caps=-all,+SERVICE "
                    "--bounding-set=-all,+SERVICE --no-new-privs "
                    "larder serve --data /mine --port 9001 >/tmp/mine 2>&1 & "
                    "for i in $(seq 180); do larder status --data /mine --json 2>/dev/null | tr -d ' \\n' | "
                    "grep -q '\"groups\":{\"total\":2,\"initialised\":2}' && break; sleep 1; done; "
                    "until_asleep && larder status --data /mine --json | tr -d ' \\n' | "
                    "grep -o '\"away\":[0-9]*'; code=$?; "
                    "grep -e '^Uid' -e '^CapEff' /proc/$!/status; kill $!; wait; "
                    "tail -n 30 /tmp/mine >&2; exit $code",
}
# The capabilities of packaging/systemd/larder.service.d/disks.conf, as setpriv calls them.
DROP_IN = os.path.join(os.path.dirname(__file__), "../../packaging/systemd/larder.service.d/disks.conf")


def capabilities():
    with open(DROP_IN, encoding="utf-8") as file:
        lines = [line.strip().split("=", 1)[1] for line in file if line.startswith("AmbientCapabilities=")]
    return ",+".join(name.removeprefix("CAP_").lower() for name in lines[0].split())


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
    assert "made /data for the rack cupboard of 4 drives" in lines[0], lines
    assert lines[-5:] == ["0"] + ["standby"] * DISKS, lines


def a_start_asks_for_states_and_stops_what_spins(results):
    assert answer(results, "serve").splitlines()[-1] == "2", results["serve"]


def objects_move_to_disks_that_sleep_again(results):
    assert answer(results, "put").count("HTTP/1.1 200") == 1 + len(OBJECTS), results["put"]
    lines = answer(results, "moved").splitlines()
    assert all("rack, group" in line for line in lines[:-DISKS]) and lines[-DISKS:] == ["standby"] * DISKS, lines


def no_disk_is_touched_while_it_sleeps(results):
    lines = answer(results, "idle").splitlines()
    assert lines[-DISKS:] == ["standby"] * DISKS and int(lines[0]) > 1, lines


def a_cold_get_wakes_one_group_and_gives_the_bytes_back(results):
    lines = answer(results, "cold").splitlines()
    assert "200" in lines[0] and sorted(lines[1:]) == ["active"] * 2 + ["standby"] * 2, lines


def after_a_crash_mounted_disks_are_unmounted_and_stopped(results):
    lines = answer(results, "restart").splitlines()
    assert lines == ["2"] + ["standby"] * DISKS, lines
    answer(results, "cold again")


def a_disk_that_another_program_woke_is_noticed_counted_and_stopped(results):
    lines = answer(results, "woken").splitlines()
    assert lines[0] == '"woken_by_others":1' and "woke a sleeping disk" in lines[1], lines


def a_pulled_disk_is_noticed_done_without_and_taken_back(results):
    assert '"away":1' in answer(results, "pulled"), results["pulled"]
    assert '"away":0' in answer(results, "back"), results["back"]


def an_erring_disk_is_done_without(results):
    assert int(answer(results, "erring").splitlines()[-1]) >= 1, results["erring"]


def a_stop_of_the_server_leaves_all_asleep(results):
    assert answer(results, "end").splitlines()[:DISKS + 1] == ["standby"] * DISKS + ["0"], results["end"]


def a_rack_is_found_shown_and_made_once_that_is_confirmed(results):
    output, errors = results["discover"][1:]
    refusal, made = output.split("\n", 1)
    assert refusal == "1" and made.startswith("drive "), results["discover"]
    assert "there is no disk to make a rack of" in errors, results["discover"]
    assert errors.count("it is a drive of a rack already") == DISKS, results["discover"]
    survives = "survives  the loss of any 1 drive of each group"
    for line in ("code      1 + 1", "groups    2 of 2 drives in 1 class", survives):
        assert line in made, made
    lines = answer(results, "discover").splitlines()
    assert lines[-DISKS:] == ["standby"] * DISKS, lines
    names = ("identity", "catalog.db", "workshop", "rack.toml")
    files = [line.split() for line in made.splitlines() if line.endswith(names)]
    assert len(files) == 4 and all(fields[2:4] == ["990", "990"] for fields in files), files


def the_service_uses_disks_that_root_made_for_its_user(results):
    lines = answer(results, "as a service").splitlines()
    assert '"away":0' in lines, results["as a service"]
    assert any(line.split()[:2] == ["Uid:", "990"] for line in lines), lines
    # CAP_SYS_RAWIO is bit 17, CAP_SYS_ADMIN 21: no more than these.
    assert any(line.split() == ["CapEff:", f"{1 << 17 | 1 << 21:016x}"] for line in lines), lines


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
    an_erring_disk_is_done_without,
    a_stop_of_the_server_leaves_all_asleep,
    a_rack_is_found_shown_and_made_once_that_is_confirmed,
    the_service_uses_disks_that_root_made_for_its_user,
]


def results(binary, cache):
    mkfs = next((found for name in ("mkfs.xfs", "mkfs.ext4")
                 if (found := shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin"))), None)
    if mkfs is None:
        raise Unavailable("neither mkfs.xfs nor mkfs.ext4 is installed (Debian: xfsprogs)")
    modules = {"sd_mod": "", "crc32c_generic": "", "ext4": "", "xfs": "",
               "scsi_debug": f"dev_size_mb={DISK_MB} add_host={DISKS} per_host_store=1"}
    texts = {"rack.toml": RACK + "".join(DRIVE.format(number=number) for number in range(DISKS)), "tools": TOOLS}
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
    if setpriv is None:
        raise Unavailable("setpriv is not installed (Debian: util-linux)")
    commands = [f". /tools; {command.replace('SERVICE', capabilities())}" for command in COMMANDS.values()]
    answers = boot(binary, modules, commands, cache, programs=[mkfs, setpriv], texts=texts, memory_mb=DISKS * DISK_MB + 1024)
    return dict(zip(COMMANDS, answers))


if __name__ == "__main__":
    import sys
    print(json.dumps(results(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])), indent=1))
