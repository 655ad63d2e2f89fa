"""What is expected of each cell of the damage matrix (`damage_matrix.py`).

`OUTCOMES` are in order; a cell that is in neither table keeps everything, or repairs or rebuilds it. `FAULTS` are those
of the product, each until it is mended: such a cell must have just these violations, and is taken out when it is good.
"""

BOTH = ("killed", "stopped")
KILLED = ("killed",)
STOPPED = ("stopped",)
CUT = "the log of a killed server ends early: what was acknowledged after that is called a torn end and is gone"
OLDER = "the log of a killed server is another or gone: the index alone serves, and answers what it knew before the log"
ROT = "a record that rotted for good is taken for one on a drive that is away: 503 for ever instead of 500"

EACH = "bit byte sector page garbage halved emptied grown deleted"

# Row, damages, states and the outcome.
OUTCOMES = (
    ("shelf", "deleted", BOTH, "told"),
    ("log", "garbage halved emptied deleted older oldest", STOPPED, "told"),
    ("log, last record", "sector", STOPPED, "told"),
    ("staged file", EACH, BOTH, "told"),
    ("staged (all of it)", "emptied deleted older oldest", BOTH, "told"),
    ("workshop (all of it)", "emptied deleted", BOTH, "refused"),
    ("workshop (all of it)", "older oldest", STOPPED, "told"),
    ("intake (all of it)", "emptied deleted", BOTH, "refused"),
    ("intake (all of it)", "older oldest", STOPPED, "told"),
    ("label of the intake", "bit byte sector page garbage halved emptied deleted", BOTH, "refused"),
    ("catalog.db", "bit byte sector page halved emptied deleted", BOTH, "refused"),
    ("catalog.db", "garbage", BOTH, "refused"),
    ("catalog.db, header", "sector", STOPPED, "refused"),
    ("runs", "byte sector page garbage halved emptied grown deleted oldest", BOTH, "refused"),
    ("identity", EACH, BOTH, "refused"),
    ("rack.toml", EACH, BOTH, "refused"),
    ("larder.toml", "bit byte sector page garbage halved grown deleted", BOTH, "refused"),
    ("credentials", "bit halved", BOTH, "denied"),
    ("credentials", "byte sector page garbage emptied grown deleted", BOTH, "refused"),
    ("pool: label", "bit byte sector page garbage halved emptied", BOTH, "refused"),
    ("pool: drive with the log", "duplicated", BOTH, "refused"),
    ("pool: drive with a shelf", "duplicated", BOTH, "refused"),
)
# Row, damages, states, violations and why.
FAULTS = (
    ("shelf", "bit byte sector page garbage halved emptied oldest", BOTH, "503", ROT),
    ("shelf, root", "sector", BOTH, "503", ROT),
    ("shelf, tail", "sector", BOTH, "503", ROT),
    ("log", "bit byte", BOTH, "503", ROT),
    ("log", "sector page", STOPPED, "503", ROT),
    ("log", "sector page", KILLED, "LOST 503", f"records with their headers are damaged; {CUT}"),
    ("log", "halved", KILLED, "LOST UNSEEN", CUT),
    ("log", "garbage emptied deleted older oldest", KILLED, "OLD LOST", OLDER),
    ("log, first record", "bit sector", KILLED, "OLD LOST", f"nothing after a damaged first record is read; {OLDER}"),
    ("log, last record", "bit sector", KILLED, "LOST UNSEEN", CUT),
    ("intake (all of it)", "older oldest", KILLED, "OLD LOST", OLDER),
    ("workshop (all of it)", "older", KILLED, "OLD LOST UNSEEN", f"no mark outside shows it, and {OLDER}"),
    ("workshop (all of it)", "oldest", KILLED, "OLD LOST", OLDER),
    ("pool: shelf", "deleted", BOTH, "NEEDLESS", "a shelf that is gone from one drive counts as lost: others have it"),
    ("pool: drive with a shelf", "oldest", BOTH, "NEEDLESS", "shelves that an old copy of a drive lacks count as lost"),
    ("catalog.db", "oldest", BOTH, "OLD LOST", "an older index is served, with an error in the log, and answers 404"),
    ("catalog.db-wal", "oldest", KILLED, "SPOILED", "an older log is written into catalog.db before the start refuses"),
)


def by_cell(entries):
    """`{(row, damage, state): what follows these}`"""
    return {
        (row, damage, state): rest
        for row, damages, states, *rest in entries
        for damage in damages.split()
        for state in states
    }


EXPECTED = {name: outcome for name, (outcome,) in by_cell(OUTCOMES).items()}
KNOWN = {name: (frozenset(violations.split()), why) for name, (violations, why) in by_cell(FAULTS).items()}
