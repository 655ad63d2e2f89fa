"""The damage matrix: every kind of file, damaged in every way, in a directory that was killed and in a stopped one.

    LARDER_BINARY=target/release/larder python tests/system/damage_matrix.py [--only KIND] [--damage NAME] [--table]

A cell is a copy of a data directory with one damage. The server either refuses to start, with a message that names
the file and a fix, or it serves, and then every object is asked for by GET, HEAD and LIST: those that were
acknowledged, overwritten and deleted. Clients then write a little more, the server is started a second time, and all
is asked for again. What is right, or fails with 500 and a reason, is in order. Violations are:

    LOST n      acknowledged objects that are answered 404, or are not listed although they can be read
    OLD n       objects that have older bytes, or are back although they were deleted
    FORGED n    objects with bytes that they never had
    NEEDLESS n  objects that fail although but one drive is damaged, and others have them
    UNSEEN      something is not right, and `larder verify --deep` finds nothing
    503 n       objects that stay at 503, so that SDKs try again for ever
    MUTE n      objects that fail with 500 and no reason
    VAGUE       a refusal that does not name the file, or no fix
    SPOILED     a refusal after which the undamaged file is not enough any more
    PANIC, HANG, DIED   of the process

Each cell has one expected outcome, in `damage_known.py`, and the exit code is 1 if one has another: if it is worse, and
if a known fault is gone. In the table `kept` is all that was acknowledged; `repaired`, with the damaged file as it was
before; `rebuilt`, from another file; `told`, an answer 500 with a reason; `denied`, one that the keys do not fit;
`refused`, a start with a message that names the file and a fix; and what is bold a known fault.
"""

import argparse
import concurrent.futures
import os
import shutil
import sys
import tempfile
import time

from damage_cells import STATES, Bases, Cell, Recovery
from damage_kinds import AT_PLACES, DAMAGES, GROUPS, KINDS, OF_FOLDERS
from damage_known import EXPECTED, KNOWN

KEPT = ("kept", "repaired", "rebuilt")
AT_ONCE = (os.cpu_count() or 2) + 2


def rows(group):
    """Each row of a group with its damages; rows of places have those that fit into one."""
    if group == "recover":
        return [("recover", tuple(Recovery.HOW))]
    return [(kind, OF_FOLDERS if KINDS[kind].folder else tuple(DAMAGES)) for kind in GROUPS[group]]


def places_of(bases, kind):
    """The rows of places in a file of that kind."""
    path = None if KINDS[kind].folder else KINDS[kind].find(bases.at("killed"))
    return [f"{kind}, {place}" for place in KINDS[kind].places(path) if place] if path else []


def everything(*_):
    return True


class Result:
    """What came of a cell, without the directories it was made in."""

    def __init__(self, cell):
        self.name = cell.row, cell.damage, cell.state
        self.words, self.outcome, self.violations = cell.words(), cell.outcome(), cell.violations()
        self.seconds, self.shown, self.logged = cell.seconds, cell.shown, cell.logged

    def fault(self):
        """What is not as it is expected to be; None if it is."""
        if self.name in KNOWN:
            violations, why = KNOWN[self.name]
            expected, holds = f"{' '.join(sorted(violations))} ({why})", self.violations == violations
        else:
            expected = EXPECTED.get(self.name, "kept")
            holds = (self.outcome if self.outcome not in KEPT else "kept") == expected
        if holds:
            return None
        said = [line[:400] for line in (*self.shown, *self.logged[:4])]
        what = f"{' | '.join(self.name)}: {self.words} ({self.outcome}), expected: {expected}"
        return "\n         ".join([what, *said])

    def lines(self):
        logged = self.logged[:4] if self.violations else []
        first = f"{self.seconds:5.1f} s  {' | '.join(self.name)}: {self.words} ({self.outcome})"
        return "\n         ".join([first, *(line[:400] for line in (*self.shown, *logged))])


def results(group, wanted=everything, shows=None):
    """The cells of a group, each of them run, in directories of their own."""
    root, found = tempfile.mkdtemp(prefix="larder-matrix-"), []
    try:
        bases = Bases(root, group.startswith("pool"))
        todo = rows(group)
        if group != "recover":
            todo += [(row, AT_PLACES) for kind in GROUPS[group] for row in places_of(bases, kind)]
        names = [(row, damage, state) for row, damages in todo for damage in damages for state in STATES]
        for name in names:
            cell = wanted(*name) and (Recovery if group == "recover" else Cell)(bases, *name).run()
            if cell:
                found.append(Result(cell))
                if shows:
                    shows(found[-1].lines())
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return found


def table(found):
    """The cells as Markdown: what came of each in the killed and in the stopped directory, once if it is the same."""
    words = {result.name: result.outcome for result in found}
    lines = []
    for columns in (tuple(DAMAGES), tuple(Recovery.HOW)):
        names = list(dict.fromkeys(row for row, damage, _ in words if damage in columns))
        if names:
            lines += ["", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for name in names:
            shown = []
            for damage in columns:
                both = [words[name, damage, state] for state in STATES if (name, damage, state) in words]
                shown.append(" / ".join(dict.fromkeys(both)) or "-")
            lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


class Wanted:
    """The cells that were asked for."""

    def __init__(self, asked):
        self.only, self.damage = asked.only, asked.damage

    def __call__(self, row, damage, _):
        return self.only in row and self.damage in ("", damage)

    def groups(self, name):
        """Those with such rows; places are rows of their kind."""
        kind = self.only.partition(",")[0]
        return [group for group in GROUPS if name in group and any(kind in row for row, _ in rows(group))]


def say(text):
    print(text, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description="The damage matrix.")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--damage", default="", help="damages whose name is this")
    parser.add_argument("--group", default="", help="groups whose name contains this")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help="groups at once")
    parser.add_argument("--table", action="store_true", help="the table alone")
    return parser.parse_args()


def main():
    asked, began = arguments(), time.monotonic()
    wanted = Wanted(asked)
    groups = wanted.groups(asked.group)
    with concurrent.futures.ProcessPoolExecutor(asked.jobs) as pool:
        running = [pool.submit(results, group, wanted, None if asked.table else say) for group in groups]
        found = [result for done in running for result in done.result()]
    print(table(found))
    faults = [result.fault() for result in found if result.fault()]
    if asked.table and not faults:
        return 0
    for fault in faults:
        print(f"\nnot as expected: {fault}")
    bad = sum(bool(result.violations) for result in found)
    print(f"\n{len(found)} cells in {time.monotonic() - began:.0f} s, {bad} with a violation, {len(faults)} unexpected")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
