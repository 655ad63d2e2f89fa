"""What can be damaged in a data directory, and how: for the cells of the damage matrix (`damage_matrix.py`).

The log of small objects has the segments `*.log`, which become shelves; the manifest names both.
"""

import os
import re
import shutil
import subprocess

from harness import noise


def copied(origin, target):
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", origin, target], check=True)


# Kinds of files.


def under(data, *parts, match=""):
    found = []
    for folder, _, names in os.walk(os.path.join(data, *parts)):
        found += [os.path.join(folder, name) for name in names if re.search(match, name)]
    return sorted(found)


def largest(paths):
    return max(paths, key=os.path.getsize, default=None)


def newest(paths):
    """The log that is open: its file was written last."""
    return max(paths, key=os.path.getmtime, default=None)


def existing(path):
    return path if path and os.path.exists(path) else None


def at(*parts):
    return lambda data: existing(os.path.join(data, *parts))


def among(choice, *parts, match):
    return lambda data: choice(under(data, *parts, match=match))


def counted_up(path):
    """Another valid name of that kind: its last long number is one higher."""
    folder, name = os.path.split(path)
    number = list(re.finditer(r"[0-9a-f]{16}", name))[-1]
    raised = f"{(int(number.group(), 16) + 1) % 2**63:016x}"
    return os.path.join(folder, name[: number.start()] + raised + name[number.end() :])


def on_next_drive(path):
    """The same name on the next drive."""
    parts = path.split(os.sep)
    place = next(n for n in reversed(range(len(parts))) if re.fullmatch(r"\d{4}", parts[n]))
    parts[place] = f"{(int(parts[place]) + 1) % 6:04}"
    return os.sep.join(parts)


def named_new(path):
    return f"{path}-new"


def superseded(data):
    """A log that became a shelf and is room for the next one."""
    return min(set(under(data, *INTAKE, match=r"\.log$")) - {KINDS["log"].find(data)}, default=None)


def with_newest_log(data):
    log = newest(under(data, "pool", match=r"\.log$"))
    return log and os.path.dirname(log)


def with_owner(data):
    return existing(os.path.join(with_newest_log(data), "larder.owner"))


def with_largest_shelf(data):
    shelf = largest(under(data, "pool", match=r"\.shelf$"))
    return shelf and os.path.dirname(shelf)


def middle(path):
    return {"": os.path.getsize(path) // 2}


def raw(path):
    with open(path, "rb") as file:
        return file.read()


def number(block, offset):
    return int.from_bytes(block[offset : offset + 8], "little")


def in_shelf(path):
    footer = raw(path)[-4096:]
    size = os.path.getsize(path)
    places = {"header": 20, "root": number(footer, 68) + 40, "tail": number(footer, 84) + 2, "footer": size - 4076}
    return {**middle(path), **places}


def in_log(path):
    """In the value of an object in the middle, and in the keys of the first record and of the last object."""
    log = raw(path)
    starts = [found.start() for found in re.finditer(b"LREC", log)]
    objects = [at for at in starts if log[at + 4] == 1 and int.from_bytes(log[at + 12 : at + 16], "little") >= 2_000]
    middle_one = min(objects, key=lambda at: abs(at - len(log) // 2))
    return {"": middle_one + 1_100, "header": 20, "first record": 4096 + 60, "last record": objects[-1] + 60}


def in_stack(path):
    size = os.path.getsize(path)
    return {**middle(path), "header": 20, "page": size - 8192 + 70, "footer": size - 4066}


def in_owner(path):
    """The newer of the two marks."""
    marks = raw(path)
    return {"": 90 if number(marks, 48) > number(marks, 4096 + 48) else 4096 + 90}


def in_database(path):
    return {**middle(path), "header": 20}


class Kind:
    """One kind of file, or a directory. `find` gives the one that is damaged; `twin` another valid name for a copy of
    it; `places` where it is damaged, by name, the empty one for the table's own row; `words` name it in a refusal.
    Nothing is lost with one that is `spared`: other drives have it all."""

    def __init__(self, find, twin=None, words=(), spared=False, places=middle, folder=False):
        self.find, self.twin, self.words, self.spared = find, twin, words, spared
        self.places, self.folder = places, folder


INTAKE, JOURNAL, STAGED = ("workshop", "intake"), ("workshop", "journal"), ("workshop", "staged")
CATALOG = ("catalog.db", "catalog.db-wal", "catalog.db-shm")
DRIVE = ("drives", "0001")
KINDS = {
    "stack": Kind(among(largest, "drives", match=r"\.000\.stack$"), counted_up, (), True, in_stack),
    "label of a drive": Kind(at(*DRIVE, "larder.label"), on_next_drive, (), True),
    "owner mark of a drive": Kind(at(*DRIVE, "larder.owner"), on_next_drive, (), True, in_owner),
    "owner mark of the workshop": Kind(at("workshop", "larder.owner"), None, ("owner",), places=in_owner),
    "owner mark of the intake": Kind(at(*INTAKE, "larder.owner"), None, ("owner",), places=in_owner),
    "shelf": Kind(among(largest, *INTAKE, match=r"\.shelf$"), counted_up, ("intake",), places=in_shelf),
    "log": Kind(among(newest, *INTAKE, match=r"\.log$"), counted_up, ("intake",), places=in_log),
    "log that is a shelf": Kind(superseded, counted_up, ("intake",)),
    "label of the intake": Kind(at(*INTAKE, "intake.pool"), named_new, ("intake",)),
    "slot of the manifest": Kind(among(newest, "manifest", match=r"\.manifest-"), counted_up, ("manifest",)),
    "manifest (all of it)": Kind(at("manifest"), named_new, ("manifest",), folder=True),
    "snapshot": Kind(among(largest, *JOURNAL, match=r"\.snapshot$"), counted_up, ("journal",)),
    "segment": Kind(among(largest, *JOURNAL, match=r"\.journal$"), counted_up, ("journal",)),
    "catalog.db": Kind(at("catalog.db"), lambda path: f"{path}.damaged-1", places=in_database),
    "catalog.db-wal": Kind(at("catalog.db-wal"), None, ("catalog",), places=in_database),
    "catalog.db-shm": Kind(at("catalog.db-shm"), None, ("catalog",)),
    "staged file": Kind(among(largest, *STAGED, match="^s-"), counted_up, ("staged",)),
    "run mark": Kind(among(largest, *STAGED, match="^run-"), counted_up, ("run",)),
    "runs": Kind(at("runs"), None, ("has marked it",)),
    "identity": Kind(at("identity")),
    "rack.toml": Kind(at("rack.toml")),
    "larder.toml": Kind(at("larder.toml")),
    "credentials": Kind(at("credentials")),
    "pool: shelf": Kind(among(largest, "pool", match=r"\.shelf$"), counted_up, ("pool",), True, in_shelf),
    "pool: log": Kind(among(newest, "pool", match=r"\.log$"), counted_up, ("pool",), True, in_log),
    "pool: label": Kind(lambda data: os.path.join(with_newest_log(data), "intake.pool"), named_new, ("pool",), True),
    "pool: owner mark": Kind(with_owner, None, ("owner",), True, in_owner),
    "drive (all of it)": Kind(at(*DRIVE), on_next_drive, (), True, folder=True),
    "workshop (all of it)": Kind(at("workshop"), folder=True),
    "intake (all of it)": Kind(at(*INTAKE), folder=True),
    "journal (all of it)": Kind(at(*JOURNAL), folder=True),
    "staged (all of it)": Kind(at(*STAGED), folder=True),
    "pool: drive with the log": Kind(with_newest_log, on_next_drive, ("pool",), True, folder=True),
    "pool: drive with a shelf": Kind(with_largest_shelf, on_next_drive, ("pool",), True, folder=True),
}
# Each is run by itself; those that take longest come first.
GROUPS = {
    "settings": ("larder.toml",),
    "shelf": ("shelf",),
    "log": ("log", "log that is a shelf"),
    "pool shelf": ("pool: shelf",),
    "pool log": ("pool: log",),
    "stack": ("stack", "drive (all of it)"),
    "drive": ("label of a drive", "owner mark of a drive"),
    "workshop": ("owner mark of the workshop", "staged file", "run mark", "workshop (all of it)", "staged (all of it)"),
    "intake": ("owner mark of the intake", "label of the intake", "intake (all of it)"),
    "manifest": ("slot of the manifest", "manifest (all of it)"),
    "journal": ("snapshot", "segment", "journal (all of it)"),
    "catalog": CATALOG,
    "data directory": ("runs", "identity", "rack.toml", "credentials"),
    "pool drives": ("pool: label", "pool: owner mark", "pool: drive with the log", "pool: drive with a shelf"),
    "recover": (),
}

# Damages. Each gets the file, the place in it, and the cell, and says None where there is no such cell.


def over(path, place, garbage):
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(garbage)


def bit(path, place, _):
    over(path, place, bytes([raw(path)[place] ^ 0x04]))


def byte(path, place, _):
    over(path, place, bytes([raw(path)[place] ^ 0xA5]))


def piece(path, place, length):
    """The aligned part of the file around that place."""
    begin = place // length * length
    return begin, min(length, os.path.getsize(path) - begin)


def sector(path, place, _):
    begin, length = piece(path, place, 512)
    over(path, begin, noise(length, "sector"))


def page(path, place, _):
    begin, length = piece(path, place, 4096)
    over(path, begin, bytes(length))


def garbage(path, _, __):
    over(path, 0, noise(os.path.getsize(path), "garbage"))


def halved(path, _, __):
    os.truncate(path, os.path.getsize(path) // 2)


def emptied(path, _, __):
    if os.path.isdir(path):
        shutil.rmtree(path)
        os.mkdir(path)
    else:
        os.truncate(path, 0)


def grown(path, _, __):
    with open(path, "ab") as file:
        file.write(noise(1_000, "grown"))


def deleted(path, _, __):
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def replaced(path, cell, moment):
    """By what was there at that moment, or by the file of its kind of then."""
    data = cell.bases.at(moment)
    old = existing(os.path.join(data, os.path.relpath(path, cell.data))) or cell.kind.find(data)
    if old is None or (os.path.isfile(old) and raw(old) == raw(path)):
        return "none"
    deleted(path, None, None)
    copied(old, path)
    return None


def older(path, _, cell):
    return replaced(path, cell, "mid")


def oldest(path, _, cell):
    return replaced(path, cell, "early")


def duplicated(path, _, cell):
    if cell.kind.twin is None:
        return "none"
    copied(path, cell.kind.twin(path))
    return None


DAMAGES = {
    "bit": bit,
    "byte": byte,
    "sector": sector,
    "page": page,
    "garbage": garbage,
    "halved": halved,
    "emptied": emptied,
    "grown": grown,
    "deleted": deleted,
    "older": older,
    "oldest": oldest,
    "duplicated": duplicated,
}
AT_PLACES = ("bit", "sector")
OF_FOLDERS = ("emptied", "deleted", "older", "oldest", "duplicated")
