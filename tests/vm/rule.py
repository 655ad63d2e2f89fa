"""The rule for udev on a disk of a real kernel: udev knows a drive of Larder's by the name of its file system, and
keeps udisks off it; without the rule it does not."""

import glob
import os

from machine import Unavailable, boot, unpacked
from rack import answer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULE = "etc/udev/rules.d/90-larder.rules"
# Of udev's own rules the one that reads what lies on a disk.
STOCK = "lib/udev/rules.d/60-persistent-storage.rules"
LABELLED = "mke2fs -L {0} /dev/sda >/dev/null && udevadm test /sys/block/sda"
COMMANDS = {
    "ours": LABELLED.format("larderabc123"),
    "another's": LABELLED.format("larder"),
    "no rule": f"rm /{RULE} && " + LABELLED.format("larderabc123"),
}


def a_drive_is_left_alone_by_udisks_and_another_disk_is_not(results):
    for name, label in {"ours": "larderabc123", "another's": "larder", "no rule": "larderabc123"}.items():
        lines = answer(results, name).splitlines()
        assert f"ID_FS_LABEL={label}" in lines, results[name]
        assert ("UDISKS_IGNORE=1" in lines) == ("UDISKS_AUTO=0" in lines) == (name == "ours"), results[name]


TESTS = [a_drive_is_left_alone_by_udisks_and_another_disk_is_not]


def results(binary, cache):
    """What `udevadm test` answers for disks of several names, with the rule and without."""
    udev = unpacked("udev", cache)
    texts = {}
    stock = glob.glob(os.path.join(udev, STOCK)) + glob.glob(os.path.join(udev, "usr", STOCK))
    if not stock:
        raise Unavailable(f"udev's package has no {STOCK}")
    for inside, source in [(STOCK, stock[0]), (RULE, os.path.join(ROOT, "packaging/udev/90-larder.rules"))]:
        with open(source, encoding="utf-8") as file:
            texts[inside] = file.read()
    modules = {"sd_mod": "", "scsi_debug": "dev_size_mb=16"}
    answers = boot("rule", binary, modules, list(COMMANDS.values()), cache, texts=texts,
                   programs=[("bin/udevadm", os.path.join(udev, "bin/udevadm"))])
    return dict(zip(COMMANDS, answers))
