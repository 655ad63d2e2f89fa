"""Cuts of the power while objects are put and move to the rack: QEMU is killed, at moments drawn from a seed, and
booted again on the same disks. Every object whose put was answered reads back; `larder verify --deep` finds nothing.

The disks are files of this machine, with file systems of the guest's on them: one for the data directory, and one for
each of four drives, which are directories (QEMU's disks do not stop). What a kill takes is all that the guest had in
its memory: its page cache, the journals that were not yet written, and requests under way, of which parts may be done.
A write that QEMU has answered is kept, synced or not: a disk that loses its own cache is not modelled, and with
`cache=none` no more than the number of copies in this machine's memory differs. LARDER_VM_SEED and LARDER_VM_CUTS draw
others and more."""

import os
import random
import re
import subprocess
import tempfile
import time

import rack
from machine import MARK, Machine

CUTS = int(os.environ.get("LARDER_VM_CUTS", "3"))
SEED = int(os.environ.get("LARDER_VM_SEED", "20261125"))
DISK_BYTES = 320 << 20
DRIVES = 4
# Of the data directory, and of the drives.
FILE_SYSTEMS = ["ext4", "xfs", "ext4", "xfs", "ext4"]
# Objects that are put in one boot at most, and a cut comes so long after the first of them was begun.
PUTS = 60
CUT_S = (2, 25)
START_MAX_S = 300
MODULES = {name: "" for name in ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "xfs")}
# Spin-ups are emulated, and quick, so that several fall into a boot.
RACK = rack.RACK.replace('"200 MB"', '"60 MB"').replace('"12 s", max = "18 s"', '"1 s", max = "2 s"')
DRIVE = """
[[drives]]
slot = [{number}, 0, 0]
path = "/disks/{number}/drive"
domains = {{ power = 0 }}
"""
TOOLS = """
data() {  # the bytes of the object $1, which follow from its name
    yes "$1 of $2 bytes" | head -c $2
}
put_all() {  # those of the file $1, until the power goes
    while read name bytes path; do
        data $name $bytes >/tmp/put
        send PUT "$path" /tmp/put >/tmp/first && echo "acknowledged $name" || cat /tmp/first
    done <$1
}
get_all() {  # those of the file $1 whose put was acknowledged
    while read name bytes path; do
        data $name $bytes >/tmp/put
        send GET "$path" >/tmp/first && cmp /tmp/put /tmp/got && echo "whole $name" && continue
        echo "LOST $name"; cat /tmp/first
    done <$1
}
mounted() {
    ifconfig lo 127.0.0.1 up
    mkdir -p /data /disks/0 /disks/1 /disks/2 /disks/3
    for pair in vda:/data vdb:/disks/0 vdc:/disks/1 vdd:/disks/2 vde:/disks/3; do
        mount -t ${2:-$(eval echo \\$${pair%%:*})} /dev/${pair%%:*} ${pair#*:} || return 1
    done
}
"""
MAKE = ("mkfs.$vda -q /dev/vda && mkfs.$vdb -q /dev/vdb && mkfs.$vdc -q /dev/vdc && mkfs.$vdd -q /dev/vdd && "
        "mkfs.$vde -q /dev/vde && mounted && mkdir /disks/0/drive /disks/1/drive /disks/2/drive /disks/3/drive && "
        "larder init --data /data/larder --rack /rack.toml && " + rack.CONFIGURE.replace("/data/", "/data/larder/") +
        " && umount /data && umount /disks/0 && umount /disks/1 && umount /disks/2 && umount /disks/3")
SERVE = "mounted && serve 0"
BUCKET = rack.send("PUT", "/attic") + "; true"
VERIFY = ("kill $(cat /tmp/pid); for i in $(seq 60); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 1; done; "
          "larder verify --data /data/larder --deep")


def direct(folder):
    """Whether files in `folder` can be read past the page cache, as `cache=none` wants it."""
    path = os.path.join(folder, "direct")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    return True


class Bench:
    """Disks that outlive the machine, and what was put on them."""

    def __init__(self, binary, cache, folder):
        self.binary, self.cache, self.random = binary, cache, random.Random(SEED)
        self.mode = "none" if direct(folder) else "writeback"
        self.disks = [os.path.join(folder, f"disk{number}") for number in range(1 + DRIVES)]
        for path in self.disks:
            with open(path, "wb") as file:
                file.truncate(DISK_BYTES)
        self.sizes, self.acknowledged, self.moved = {}, [], 0

    def machine(self, name, commands, **texts):
        systems = " ".join(f"vd{letter}={system}" for letter, system in zip("abcde", FILE_SYSTEMS))
        tools = rack.TOOLS.replace("--data /data", "--data /data/larder") + TOOLS
        texts = {"tools": tools, **texts,
                 "rack.toml": RACK + "".join(DRIVE.format(number=number) for number in range(DRIVES))}
        programs = [rack.program("mkfs.xfs"), rack.program("mkfs.ext4")]
        return Machine(f"cuts-{name}", self.binary, MODULES, [f"{systems}; . /tools; {line}" for line in commands],
                       self.cache, virtio=[(path, self.mode) for path in self.disks], programs=programs, texts=texts)

    def listed(self, method, names):
        """A file of objects for the commands `put_all` and `get_all`."""
        path = {name: rack.signed(method, f"/attic/{name}").removeprefix(f"http://{rack.HOST}") for name in names}
        return "".join(f"{name} {self.sizes[name]} {path[name]}\n" for name in names)

    def cut(self, number):
        """A boot that reads back what was acknowledged in the one before, and ends while objects are put."""
        before = self.acknowledged[-1] if self.acknowledged else []
        names = [f"cut{number}-{at:02}" for at in range(PUTS)]
        self.sizes |= {name: self.random.choice([700, 5000, 70_000, 400_000]) for name in names}
        wait_s = self.random.uniform(*CUT_S)
        machine = self.machine(number, [SERVE, BUCKET, "get_all /gets", "put_all /puts"],
                               gets=self.listed("GET", before), puts=self.listed("PUT", names))
        started = time.monotonic()
        qemu = machine.start()
        try:
            while f"{MARK} begin 3\n" not in machine.written():
                if qemu.poll() is not None or time.monotonic() - started > START_MAX_S:
                    raise RuntimeError(f"the machine does not come to its puts: {machine.written()[-2000:]}")
                time.sleep(0.1)
            time.sleep(wait_s)
        finally:
            qemu.kill()
            qemu.wait()
        text = machine.written()
        now = [name for name in names if f"acknowledged {name}\n" in text]
        print(f"machine {machine.name}: {time.monotonic() - started:.0f} s, cut {wait_s:.1f} s after the first of "
              f"{len(now)} puts that were acknowledged", flush=True)
        self.acknowledged.append(now)
        return text, before


def results(binary, cache):
    """What the boots wrote, by the numbers of the cuts, and the last one's answers."""
    found = {}
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        bench = Bench(binary, cache, folder)
        print(f"cuts of the power: seed {SEED}, cache={bench.mode}", flush=True)
        found["make"] = bench.machine("make", [MAKE]).results()[0]
        if found["make"][0] == 0:
            found["cuts"] = [bench.cut(number) for number in range(CUTS)]
            names = [name for names in bench.acknowledged for name in names]
            found["names"] = names
            end = bench.machine("end", [SERVE, "get_all /gets", VERIFY], gets=bench.listed("GET", names))
            found["serve"], found["read"], found["verify"] = end.results()
    return found


def objects_that_were_acknowledged_survive_a_cut_of_the_power(results):
    assert results["make"][0] == 0, results["make"]
    for text, before in results["cuts"]:
        lost = [name for name in before if f"whole {name}\n" not in text]
        assert not lost, f"{lost}: {text[-3000:]}"
    read = rack.answer(results, "read").splitlines()
    assert results["names"] and read == [f"whole {name}" for name in results["names"]], read


def after_cuts_of_the_power_nothing_is_found_wrong(results):
    lines = rack.answer(results, "verify").splitlines()
    assert re.match("verdict +all agree$", lines[-1]), lines


TESTS = [objects_that_were_acknowledged_survive_a_cut_of_the_power, after_cuts_of_the_power_nothing_is_found_wrong]
