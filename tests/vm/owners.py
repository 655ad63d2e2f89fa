"""A copy of a data directory that is served beside the original, on the whole disks of one rack, in a virtual machine.

The rack is that of rack.py. The original has marked both disks of a group in a run that the copy does not know: the
copy does not write to them until the operator consents, and the original does not after that."""

import json
import os
import re
import sys

import rack
from machine import boot

OTHER = "by another server"
# A message that names the fix for this data directory.
FIX = "larder take-over --data {}"
TOOLS = rack.TOOLS + """
serve_copy() {  # the copy listens on a port of its own; it gives up a GET after 40 s
    before=$(grep -c '^ready' /tmp/copy-out 2>/dev/null)
    larder serve --data /copy >>/tmp/copy-out 2>>/tmp/copy-log &
    echo $! >/tmp/copy-pid
    for i in $(seq 120); do [ "$(grep -c '^ready' /tmp/copy-out)" -gt ${before:-0} ] && return; sleep 1; done
    cat /tmp/copy-log >&2; return 1
}
ends() {
    kill $1
    for i in $(seq 60); do kill -0 $1 2>/dev/null || return 0; sleep 1; done
    return 1
}
# The sectors that were written to each disk of the group of `first`. An unmount sends a flush, which carries nothing.
written() {
    for n in $(cat /tmp/numbers); do eval disk=\\$dev$n; echo $disk $(awk '{ print $7 }' /sys/block/$disk/stat); done
}
"""
FETCH = ("fetch() { case $1 in " +
         " ".join(f"{name}) {rack.send('GET', f'/attic/{name}')};;" for name in rack.OBJECTS) + " esac; }; ")
COPY = ("mkdir /copy && mount -t tmpfs -o size=512m tmpfs /copy && cp -a /data/. /copy/ && "
        "sed -i -e '1,/^#\\?listen/s/^#\\?listen = .*/listen = \"127.0.0.1:9001\"/' "
        "-e 's/^#\\?max_wait = .*/max_wait = \"40 s\"/' /copy/larder.toml")

COMMANDS = {
    "links": rack.COMMANDS["links"],
    "init": "larder init --data /data --rack /tmp/rack.toml",
    "serve": rack.COMMANDS["serve"].rsplit(" && grep", 1)[0],
    "put": rack.COMMANDS["put"],
    "moved": rack.COMMANDS["moved"],
    # The original marks the group of `first` after it was copied.
    "copied": f"ends $(cat /tmp/pid) && {COPY} && serve 1 && until_asleep && {rack.same('first')}until_asleep; "
              "member first; echo $numbers >/tmp/numbers; cat /tmp/numbers; "
              # An object beside `first` that was not read.
              f"for peer in {' '.join(rack.OBJECTS[2:])}; do member $peer; "
              "[ \"$(echo $numbers)\" = \"$(cat /tmp/numbers)\" ] && echo $peer >/tmp/peer; done; cat /tmp/peer",
    "beside": "written >/tmp/before; serve_copy && until_asleep; port=9001; " + rack.send("GET", "/attic/first") +
              "; larder status --data /copy --json; until_asleep; written >/tmp/after; "
              "cmp /tmp/before /tmp/after && echo unwritten; cat /tmp/before /tmp/after",
    "original": rack.same("second") + rack.same("first") + rack.WITH_STATUS.format("away"),
    "stopped": "ends $(cat /tmp/copy-pid) && ends $(cat /tmp/pid) && states",
    "verify": "written >/tmp/before; larder verify --data /copy; code=$?; written >/tmp/after; "
              "cmp /tmp/before /tmp/after && echo unwritten; exit $code",
    "taken over": "larder take-over --data /copy && serve_copy && until_asleep; port=9001; " + rack.same("first") +
                  "until_asleep; larder status --data /copy --json; ends $(cat /tmp/copy-pid)",
    "outside": FETCH + "written >/tmp/before; sed -i 's/^#\\?max_wait = .*/max_wait = \"40 s\"/' /data/larder.toml; "
               "serve 2 && until_asleep; fetch $(cat /tmp/peer); status; until_asleep; written >/tmp/after; "
               "cmp /tmp/before /tmp/after && echo unwritten; ends $(cat /tmp/pid); states",
}


def status(output):
    """The status that a command printed among other lines."""
    return json.JSONDecoder().raw_decode(output[output.index("{"):])[0]


def refused(found, data):
    """Both disks are refused, and the fix is named once."""
    assert found["drives"]["away"] == 2, found
    warnings = found["warnings"]
    assert len([warning for warning in warnings if FIX.format(data) in warning]) == 1, warnings


def a_copy_that_is_served_beside_the_original_writes_to_no_disk_of_its_group(results):
    lines = rack.answer(results, "copied").splitlines()
    assert len(lines[-2].split()) == 2 and lines[-1] in rack.OBJECTS, lines
    output = rack.answer(results, "beside")
    assert "HTTP/1.1 503" in output and "\nunwritten\n" in output, output
    counts = output.splitlines()[-4:]
    assert len(counts) == 4 and all(re.match(r"sd[a-z] \d+$", line) for line in counts), counts
    refused(status(output), "/copy")
    assert rack.answer(results, "original").splitlines()[-1] == '"away":0', results["original"]


def verify_follows_the_same_rule(results):
    assert rack.answer(results, "stopped").splitlines() == ["standby"] * rack.DISKS, results["stopped"]
    code, output, errors = results["verify"]
    assert code != 0 and OTHER in output + errors and output.endswith("unwritten"), results["verify"]


def after_the_operators_consent_the_copy_has_the_disks(results):
    output = rack.answer(results, "taken over")
    assert "200" in output and status(output)["drives"]["away"] == 0, output


def the_original_is_refused_then(results):
    output = rack.answer(results, "outside")
    assert "HTTP/1.1 503" in output and "\nunwritten\n" in output, output
    refused(status(output), "/data")


TESTS = [
    a_copy_that_is_served_beside_the_original_writes_to_no_disk_of_its_group,
    verify_follows_the_same_rule,
    after_the_operators_consent_the_copy_has_the_disks,
    the_original_is_refused_then,
]


def results(binary, cache):
    modules = {"sd_mod": "", "crc32c_generic": "", "ext4": "", "xfs": "",
               "scsi_debug": f"dev_size_mb={rack.DISK_MB} add_host={rack.DISKS} per_host_store=1"}
    drives = "".join(rack.DRIVE.format(number=number) for number in range(rack.DISKS))
    texts = {"rack.toml": rack.RACK + drives, "tools": TOOLS}
    commands = [f". /tools; {command}" for command in COMMANDS.values()]
    answers = boot("owners", binary, modules, commands, cache, programs=[rack.program("mkfs.xfs")], texts=texts,
                   memory_mb=rack.DISKS * rack.DISK_MB + 1536)
    return dict(zip(COMMANDS, answers))


if __name__ == "__main__":
    print(json.dumps(results(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])), indent=1))
