"""What is expected of each cell of the damage matrix (`damage_matrix.py`).

`OUTCOMES` are in order; a cell that is in neither table keeps everything, or repairs or rebuilds it. `FAULTS` are those
of the product, each until it is mended: such a cell must have just these violations, and is taken out when it is good.
"""

BOTH = ("killed", "stopped")
KILLED = ("killed",)
STOPPED = ("stopped",)
EACH = "bit byte sector page garbage halved emptied grown deleted"

# Row, damages, states and the outcome.
OUTCOMES = (
    ("shelf", "bit byte sector page halved", BOTH, "told"),
    ("shelf", "garbage emptied deleted oldest", BOTH, "refused"),
    ("shelf, root", "sector", BOTH, "told"),
    ("shelf, tail", "sector", BOTH, "told"),
    ("log", "bit byte sector", BOTH, "told"),
    ("log", "page garbage halved emptied older", STOPPED, "told"),
    ("log", "deleted oldest", STOPPED, "refused"),
    ("log", "page garbage halved emptied deleted older oldest", KILLED, "refused"),
    ("log, first record", "bit sector", KILLED, "refused"),
    ("log, last record", "bit sector", STOPPED, "told"),
    ("log, last record", "bit sector", KILLED, "refused"),
    ("staged file", EACH, BOTH, "told"),
    ("staged (all of it)", "emptied deleted older oldest", BOTH, "told"),
    ("workshop (all of it)", "emptied deleted", BOTH, "refused"),
    ("workshop (all of it)", "older oldest", KILLED, "refused"),
    ("workshop (all of it)", "older", STOPPED, "told"),
    ("workshop (all of it)", "oldest", STOPPED, "refused"),
    ("intake (all of it)", "emptied deleted", BOTH, "refused"),
    ("intake (all of it)", "older oldest", KILLED, "refused"),
    ("intake (all of it)", "older", STOPPED, "told"),
    ("intake (all of it)", "oldest", STOPPED, "refused"),
    ("manifest (all of it)", "emptied deleted", KILLED, "refused"),
    ("manifest (all of it)", "oldest", BOTH, "refused"),
    ("label of the intake", "bit byte sector page garbage halved emptied deleted", BOTH, "refused"),
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
FAULTS = ()


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
