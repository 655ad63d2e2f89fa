"""Whether a history of calls on one key could have been those of a register that does one thing at a time.

Each call takes effect at one moment between its begin and its end (Herlihy and Wing, linearizability). A call whose
answer nobody heard may have taken effect at any moment after its begin, or never.
"""

import dataclasses
import math

REFUSED = object()


@dataclasses.dataclass
class Call:
    """One call: `step(state)` gives the state after it, or REFUSED if its answer could not have been given then."""

    what: str
    begin: float
    end: float
    step: object
    heard: bool = True


def put(value):
    return lambda state: value


def put_if_absent(value, done):
    if done:
        return lambda state: value if state is None else REFUSED
    return lambda state: state if state is not None else REFUSED


def put_if(expected, value, done):
    if done:
        return lambda state: value if state == expected else REFUSED
    return lambda state: state if state != expected else REFUSED


def seen(value):
    return lambda state: state if state == value else REFUSED


def seen_other(value):
    return lambda state: state if state != value else REFUSED


def contradiction(calls, start=None):
    """None if the calls make sense in some order; else the calls that no order went beyond."""
    calls = sorted(calls, key=lambda call: call.begin)
    ends = [call.end if call.heard else math.inf for call in calls]
    everything = (1 << len(calls)) - 1
    must = sum(1 << at for at, call in enumerate(calls) if call.heard)
    tried, stack, furthest = set(), [(0, start)], 0
    while stack:
        done, state = stack.pop()
        if done & must == must:
            return None
        if (done, state) in tried:
            continue
        tried.add((done, state))
        furthest = max(furthest, done, key=lambda mask: (mask & must).bit_count())
        rest = [at for at in range(len(calls)) if not done >> at & 1]
        first_end = min(ends[at] for at in rest)
        for at in rest:
            if calls[at].begin > first_end:
                break
            after = calls[at].step(state)
            if after is not REFUSED:
                stack.append((done | 1 << at, after))
    return [call for at, call in enumerate(calls) if (everything & ~furthest) >> at & 1][:12]
