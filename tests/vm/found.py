"""A rack of the disks that a machine has: found, described, made, measured, and served by an unprivileged user with the
capabilities of the unit that ships; and a rack of SATA disks whose power is a command's.

Four disks of `scsi_debug` become the rack. QEMU's SATA disks beside them may not be used: one is mounted, one has a
partition, two have one serial number. Whoever makes a rack is asked on a terminal, which is a pseudo-terminal that
busybox's telnetd opens."""

import json
import os
import re
import tempfile

import rack
from machine import boot, images

DISKS = rack.DISKS
SERIALS = ["VM-0", "VM-1", "TWIN", "TWIN"]
PACKAGING = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "packaging")
UNITS = ["systemd/larder.service", "systemd/larder.service.d/disks.conf"]
# The user of the service, and the group of disks, as Debian numbers that.
USER, DISK_GROUP = 900, 6

TOOLS = rack.TOOLS + """
all_links() {  # what udev does, for SATA disks as well; and nodes belong to the group of disks
    mkdir -p /dev/disk/by-id
    for d in /sys/block/sd*; do
        d=${d##*/}; chgrp @DISKS@ /dev/$d; chmod 660 /dev/$d
        if grep -q ATA /sys/block/$d/device/vendor; then
            link=ata-$(tail -c +5 /sys/block/$d/device/vpd_pg80 | tr -d ' ')
            [ -e /dev/disk/by-id/$link ] && link=$link-$d
        else
            link=wwn-0x$(sed s,naa.,, /sys/block/$d/device/wwid)
            echo 1 >/sys/block/$d/queue/rotational  # what they would say if they were made for this
        fi
        ln -s ../../$d /dev/disk/by-id/$link
    done
}
sata() { readlink -f /dev/disk/by-id/ata-$1; }
sums() {  # of where file systems and tables begin
    for d in /sys/block/sd*; do head -c 1048576 /dev/${d##*/} | md5sum; done
}
asked() {  # `larder init --discover` on a terminal, with lines of input
    printf '#!/bin/sh\\nexport PATH=%s\\nlarder init --data %s --discover %s; echo ended $?; sleep 1\\n' \\
        $PATH $1 "$2" >/tmp/asked
    chmod 755 /tmp/asked
    telnetd -F -p 2323 -l /tmp/asked & telnetd=$!
    sleep 1; rm -f /tmp/said; touch /tmp/said
    answers "$3" | nc 127.0.0.1 2323 >/tmp/said
    kill $telnetd
    tr -d '\\r' </tmp/said | grep -v '^ *$'
}
answers() {  # a line for each question, and the end is waited for
    for line in $1; do
        for i in $(seq 120); do tail -c 5 /tmp/said | grep -q -e '? $' -e 's: $' && break; sleep 1; done
        echo $line; sleep 2
    done
    for i in $(seq 240); do grep -q '^ended' /tmp/said && break; sleep 1; done
}
untouched() {  # runs a command that writes nothing
    sums >/tmp/sums; "$@"; code=$?
    sums | cmp - /tmp/sums && [ ! -e /data ] && echo untouched && exit $code
    exit 99
}
partitioned() {  # a partition table with one partition
    cut() { dd of=$1 bs=2 seek=$2 conv=notrunc 2>/dev/null; }
    printf '\\125\\252' | cut $1 255
    printf '\\0\\0\\0\\0\\203\\0\\0\\0\\0\\10\\0\\0\\0\\20\\0\\0' | cut $1 223
    blockdev --rereadpt $1
}
serve_as_unit() {  # as the service: user, groups, capabilities and mount namespace of the unit
    unshare -m /usr/bin/setpriv @PRIVILEGES@ larder serve --data $2 >>/tmp/out 2>>/tmp/log &
    echo $! >/tmp/pid
    for i in $(seq 120); do [ "$(grep -c '^ready' /tmp/out)" -gt $1 ] && return; sleep 1; done
    cat /tmp/log >&2; return 1
}
stop() {
    kill $(cat /tmp/pid)
    for i in $(seq 60); do kill -0 $(cat /tmp/pid) 2>/dev/null || return 0; sleep 1; done
    return 1
}
"""
# A relay that only says what it was told last; the disk turns on.
RELAY = """#!/bin/sh
echo "$1 $2" >>/tmp/relays
case $1 in
    start) echo active >/tmp/relay-${2##*/} ;;
    stop) echo standby >/tmp/relay-${2##*/} ;;
    state) cat /tmp/relay-${2##*/} 2>/dev/null || echo active ;;
esac
"""
POWER = 'power = { command = ["/bin/sh", "/relay"], timeout = "20 s" }\n'

COMMANDS = {
    "found": "ifconfig lo 127.0.0.1 up; mkdir -p /dev/pts; mount -t devpts devpts /dev/pts; all_links; "
             "ls -d /dev/disk/by-id/wwn* >/tmp/ids; names; mke2fs /dev/$dev3 >/dev/null; "
             "mke2fs $(sata VM-0) >/dev/null; mount -t ext4 -o ro $(sata VM-0) /mnt; partitioned $(sata VM-1); "
             "larder drive discover",
    "not asked": "untouched larder init --data /data --discover </dev/null",
    "not confirmed": "untouched larder init --data /data --discover --spinning 2 </dev/null",
    "mounted": "untouched larder init --data /data --discover --spinning 2 --yes --wipe $(sata VM-0)",
    "twin": "untouched larder init --data /data --discover --spinning 2 --yes --wipe TWIN",
    "asked": "untouched asked /data \"--wipe $id3\" '2 no'",
    # As systemd-tmpfiles makes the data directory.
    "init": f"mkdir /data; mount -t tmpfs -o size=256m tmpfs /data; chown {USER}:{USER} /data; chmod 700 /data; "
            f"asked /data \"--wipe $id3\" '2 yes'; states; find /data ! -user {USER}",
    "plan": "cat /data/rack.toml; larder plan /data/rack.toml",
    "taken": "for dev in $dev0 $dev1 $dev2 $dev3; do larder drive power $dev start >/dev/null; done; "
             "larder init --data /data2 --discover --spinning 2 --yes; code=$?; ls /data2; exit $code",
    "spins": "larder drive measure --data /data --dry-run",
    "measure": "for dev in $dev0 $dev1 $dev2 $dev3; do larder drive power $dev stop >/dev/null; done; "
               "cp /data/rack.toml /tmp/described; larder drive measure --data /data --dry-run --drive 1 >/tmp/dry && "
               "cmp /data/rack.toml /tmp/described && larder drive measure --data /data; code=$?; states; exit $code",
    "measured": "grep -c '# measured' /data/rack.toml; cmp /data/rack.toml.before /tmp/described && "
                f"larder plan /data/rack.toml >/dev/null && find /data ! -user {USER}",
    "serve": rack.CONFIGURE.replace("/data/credentials", "/tmp/keys") +
             f" && cat /tmp/keys >/data/credentials && chown {USER}:{USER} /data/larder.toml && "
             "serve_as_unit 0 /data && until_asleep; code=$?; "
             "grep -e '^Uid' -e '^Groups' -e '^Cap' -e '^NoNew' /proc/$(cat /tmp/pid)/status; exit $code",
    "put": rack.COMMANDS["put"],
    "moved": rack.COMMANDS["moved"],
    "cold": rack.COMMANDS["cold"],
    "health": "larder drive list --data /data --json",
    "end": "stop; code=$?; states; tail -n 40 /tmp/log; exit $code",
    # As root, in the data directory of the service.
    "recovered": "rm -r /data/catalog.db*; larder recover --data /data; code=$?; "
                 f"find /data ! -user {USER}; exit $code",
    "served again": "serve_as_unit 1 /data && " + rack.same("second") + "until_asleep; code=$?; stop; exit $code",
    "relay init": "umount /mnt; n=0; for serial in VM-0 VM-1; do eval sata$n=/dev/disk/by-id/ata-$serial; "
                  "n=$((n + 1)); done; sed -e s,@0@,$sata0, -e s,@1@,$sata1, /relays.toml >/tmp/rack.toml; "
                  "dd if=/dev/zero of=$sata1 bs=1M count=1 2>/dev/null; blockdev --rereadpt $sata1; "
                  f"mkdir /relays; mount -t tmpfs -o size=256m tmpfs /relays; chown {USER}:{USER} /relays; "
                  "chmod 777 /tmp; larder init --data /relays --rack /tmp/rack.toml --wipe $sata0 && "
                  f"chown {USER} /tmp/relay* && cat /tmp/relay-*",
    "relay serve": rack.CONFIGURE.replace("/data/credentials", "/tmp/keys").replace("/data", "/relays") +
                   f" && cat /tmp/keys >/relays/credentials && chown {USER}:{USER} /relays/larder.toml && "
                   "serve_as_unit 2 /relays",
    "relay put": rack.send("PUT", "/attic") + " && " + rack.send("PUT", "/attic/first", "/tmp/a") +
                 " && for i in $(seq 120); do larder explain --data /relays s3://attic/first --json | "
                 "grep -q '\"blob\"' && break; sleep 1; done; for i in $(seq 120); do "
                 "[ \"$(cat /tmp/relay-* | grep -c standby)\" = 2 ] && break; sleep 1; done; cat /tmp/relay-*",
    "relay idle": "wc -l </tmp/relays; sleep 20; wc -l </tmp/relays",
    "relay get": "n=$(grep -c ^start /tmp/relays); " + rack.same("first") +
                 "grep ^start /tmp/relays | tail -n +$((n + 1))",
    "relay health": "larder drive list --data /relays --json",
    "relay end": "stop; cat /tmp/relay-*; tail -n 40 /tmp/log",
}


def unit():
    """The last word of each setting of the units that ship."""
    settings = {}
    for name in UNITS:
        with open(os.path.join(PACKAGING, name), encoding="utf-8") as file:
            for key, value in re.findall(r"^(\w+)=(.*)$", file.read(), re.M):
                settings[key] = value
    return settings


def privileges(settings):
    """The same for `setpriv`."""
    def capabilities(key):
        return ",".join(["-all", *("+" + name.removeprefix("CAP_").lower() for name in settings[key].split())])
    assert (settings["User"], settings["SupplementaryGroups"], settings["NoNewPrivileges"]) == ("larder", "disk", "yes")
    ambient = capabilities("AmbientCapabilities")
    return (f"--reuid {USER} --regid {USER} --groups {DISK_GROUP} --no-new-privs --inh-caps {ambient} "
            f"--ambient-caps {ambient} --bounding-set {capabilities('CapabilityBoundingSet')}")


def nothing_is_made_of_disks_before_that_is_confirmed(results):
    lines = rack.answer(results, "found").splitlines()
    assert sum("scsi_debug" in line for line in lines if " yes" in line) == DISKS - 1, lines
    rack.refused(results, "not asked", "the number of disks that may spin at once is missing")
    rack.refused(results, "not confirmed", "the rack needs to be confirmed; give --yes")
    rack.refused(results, "mounted", "cannot be used", "is mounted at /mnt")
    rack.refused(results, "twin", "is the identity of")
    asked = rack.answer(results, "asked")
    assert "How many of 4 disks may spin at once?" in asked and "Create the rack? Type yes:" in asked, asked
    assert "nothing was written" in asked and "ended 1" in asked and asked.endswith("untouched"), asked


def what_may_not_be_used_is_left_out_with_the_reason(results):
    output = results["not confirmed"][1]
    for words in ("is mounted at /mnt", "it has partitions", "it has the identity of", "it holds a file system"):
        assert re.search(rf"^sd\w is left out: .*{words}", output, re.M), (words, output)
    for words in ("capacity", "survives", " W", "groups"):
        assert words in output, (words, output)


def a_rack_is_made_of_the_disks_that_were_found(results):
    lines = rack.answer(results, "init").splitlines()
    assert "ended 0" in lines and any("created /data for the rack cupboard" in line for line in lines), lines
    assert lines[-DISKS:] == ["standby"] * DISKS, lines
    plan = rack.answer(results, "plan")
    assert plan.count("[[drives]]") == DISKS and "active_drives = 2" in plan and "estimated" in plan, plan
    rack.refused(results, "taken", "no disk can be used for a rack", "it is a drive of a rack already")


def disks_are_measured_and_the_description_has_the_figures(results):
    rack.refused(results, "spins", "is not asleep")
    lines = rack.answer(results, "measure").splitlines()
    assert lines[-DISKS:] == ["standby"] * DISKS, lines
    for words in ("rate ", "seek ", "start ", "mount ", "unmount ", "stop ", "now has the results of 4 drives"):
        assert any(words in line for line in lines), (words, lines)
    # Seven lines of [drive], and the rate of each drive.
    assert rack.answer(results, "measured").splitlines() == [str(7 + DISKS)], results["measured"]


def the_service_needs_no_more_than_its_unit_gives(results):
    output = rack.answer(results, "serve")
    status = dict(re.findall(r"^(\w+):\s+(.*)$", output, re.M))
    assert status["Uid"].split() == [str(USER)] * 4 and status["Groups"].split() == [str(DISK_GROUP)], output
    # CAP_SYS_RAWIO is number 17, CAP_SYS_ADMIN number 21.
    wanted = f"{1 << 17 | 1 << 21:016x}"
    assert all(status[name] == wanted for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), output
    assert status["NoNewPrivs"] == "1", output
    rack.objects_move_to_disks_that_sleep_again(results)
    rack.a_cold_get_wakes_one_group_and_gives_the_bytes_back(results)
    assert rack.answer(results, "end").splitlines()[:DISKS] == ["standby"] * DISKS, results["end"]


def what_root_repairs_is_still_the_services(results):
    lines = rack.answer(results, "recovered").splitlines()
    assert lines[-1].startswith("next "), lines
    assert "200" in rack.answer(results, "served again"), results["served again"]


def disks_say_how_they_are_while_they_are_awake(results):
    drives = json.loads(rack.answer(results, "health"))
    said = [drive["health"] for drive in drives if drive["health"]]
    assert said and all(one["temperature_c"] and one["predicts_failure"] is False for one in said), drives
    assert all(drive["habits"]["allow_restart"] is not None for drive in drives), drives


def a_command_of_the_operators_controls_power_and_is_not_run_while_disks_sleep(results):
    assert rack.answer(results, "relay init").split()[-2:] == ["standby"] * 2, results["relay init"]
    rack.answer(results, "relay serve")
    assert rack.answer(results, "relay put").splitlines()[-2:] == ["standby"] * 2, results["relay put"]
    before, after = rack.answer(results, "relay idle").split()
    assert before == after, results["relay idle"]
    started = sorted(rack.answer(results, "relay get").splitlines()[1:])
    assert started == [f"start /dev/disk/by-id/ata-VM-{number}" for number in range(2)], started
    assert rack.answer(results, "relay end").split()[:2] == ["standby"] * 2, results["relay end"]


def sata_disks_say_how_they_are(results):
    drives = json.loads(rack.answer(results, "relay health"))
    said = [drive["health"] for drive in drives]
    # QEMU's disks say what they are asked, and count little.
    assert all(one and one["reallocated_sectors"] == 0 and one["power_on_h"] is not None for one in said), drives


TESTS = [
    nothing_is_made_of_disks_before_that_is_confirmed,
    what_may_not_be_used_is_left_out_with_the_reason,
    a_rack_is_made_of_the_disks_that_were_found,
    disks_are_measured_and_the_description_has_the_figures,
    the_service_needs_no_more_than_its_unit_gives,
    what_root_repairs_is_still_the_services,
    disks_say_how_they_are_while_they_are_awake,
    a_command_of_the_operators_controls_power_and_is_not_run_while_disks_sleep,
    sata_disks_say_how_they_are,
]


def results(binary, cache):
    """What the commands answer."""
    modules = {"sd_mod": "", "ahci": "", "crc32c_generic": "", "ext4": "", "xfs": "",
               "scsi_debug": f"dev_size_mb={rack.DISK_MB} add_host={DISKS} per_host_store=1"}
    relays = rack.RACK + "".join(rack.DRIVE.format(number=number) + POWER for number in range(2))
    tools = TOOLS.replace("@PRIVILEGES@", privileges(unit())).replace("@DISKS@", str(DISK_GROUP))
    texts = {"tools": tools, "relay": RELAY, "relays.toml": relays}
    commands = [f". /tools; {command}" for command in COMMANDS.values()]
    with tempfile.TemporaryDirectory() as folder:
        answers = boot("found", binary, modules, commands, cache, disks=images(folder, SERIALS, rack.DISK_MB << 20),
                       programs=[rack.program("mkfs.xfs"), ("usr/bin/setpriv", rack.program("setpriv"))], texts=texts,
                       memory_mb=DISKS * rack.DISK_MB + 1536)
    return dict(zip(COMMANDS, answers))


if __name__ == "__main__":
    import sys
    print(json.dumps(results(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])), indent=1))
