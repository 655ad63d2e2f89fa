"""Faults at chosen system calls of the shipped binary: `fault.c` is loaded into the server, and its environment says
which.

A chain such as `[("sync", "/staged/s-", 1), ("write", "catalog.db-wal", 1)]` waits for one sync of a staged file and
then hits the next write to the catalog's log.
"""

import errno
import mmap
import os
import shutil
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
OPS = {"create": 1, "write": 2, "sync": 3, "read": 4, "unlink": 5, "open": 6, "rename": 7}
ACTIONS = {"before": 1, "after": 2, "fail": 3, "hang": 4}
STAGES_MAX, PATH_BYTES, HIT_BYTES = 4, 120, 256
HEAD = struct.Struct("7i")
STAGE = struct.Struct(f"2i{PATH_BYTES}s")
HIT_AT = HEAD.size + STAGES_MAX * STAGE.size
FOREVER = -1


def why_not():
    """Why faults cannot be made here; None if they can."""
    if os.uname().sysname != "Linux":
        return "faults at system calls need Linux"
    return None if shutil.which("cc") else "faults at system calls need a C compiler"


def built(folder):
    """The library, compiled into `folder`."""
    library = os.path.join(folder, "fault.so")
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", library, os.path.join(HERE, "fault.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


class Faults:
    """What a server does wrong, and when; for one server at a time."""

    def __init__(self, folder):
        self.library = built(folder)
        self.path = os.path.join(folder, "fault-page")
        with open(self.path, "wb") as file:
            file.truncate(4096)
        with open(self.path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 4096)

    def environment(self, clock_ahead_s=0):
        """Of a server with these faults, whose wall clock is so far ahead."""
        clock = {"LARDER_CLOCK_AHEAD_S": str(clock_ahead_s)}
        return {**os.environ, "LD_PRELOAD": self.library, "LARDER_FAULT_PAGE": self.path, **clock}

    def arm(self, action, chain, times=1, error=errno.EIO):
        """From now on; `chain` as above, `action` one of ACTIONS, so many times. Failing calls answer `error`; hanging
        ones take as many tenths of a second more, or until they are disarmed."""
        self.disarm()
        assert 1 <= len(chain) <= STAGES_MAX
        for place, (op, path, count) in enumerate(chain):
            stage = STAGE.pack(OPS[op], count, path.encode())
            self.page[HEAD.size + place * STAGE.size : HEAD.size + (place + 1) * STAGE.size] = stage
        self.page[HIT_AT : HIT_AT + HIT_BYTES] = bytes(HIT_BYTES)
        self.page[: HEAD.size] = HEAD.pack(0, 0, len(chain), ACTIONS[action], error, times, 0)
        self.page[:4] = struct.pack("i", 1)

    def disarm(self):
        self.page[:4] = struct.pack("i", 0)

    def hits(self):
        """The number of calls that it hit."""
        return HEAD.unpack(self.page[: HEAD.size])[6]

    def hit(self):
        """The path of the call that it hit."""
        return self.page[HIT_AT : HIT_AT + HIT_BYTES].split(b"\0")[0].decode()
