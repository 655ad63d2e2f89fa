"""A season of a seismic network, as its data centre lives it; the same whatever store is behind it.

Each day brings a raw file of each station. The files of the permanent stations are processed on the day, once. Those of
campaign stations wait for the review at the end of the week, when their clocks were corrected, and are processed then,
once. At the end the picks of the whole season are read back, and a catalogue of events is made of them.

A day's work takes seconds here, and a night would be long. So the next day begins as soon as the store is at rest, and
nights are not counted.
"""

import dataclasses
import hashlib
import time


@dataclasses.dataclass
class Season:
    """How long, and how many stations; the last `campaign` of the stations wait for the review every `week` days."""

    days: int = 14
    stations: int = 5
    campaign: int = 1
    week: int = 7


class Unwatched:
    """Watches a store of which there is nothing to see."""

    def before_get(self, key):
        pass

    def after_put(self, key):
        pass

    def night(self):
        pass

    def report(self):
        return {}


class Clock:
    """Seconds spent on each kind of work."""

    def __init__(self):
        self.spent = {}

    def timed(self, what, call, *arguments):
        begun = time.monotonic()
        try:
            return call(*arguments)
        finally:
            self.spent[what] = self.spent.get(what, 0.0) + time.monotonic() - begun


class Pipeline:
    """The pipeline in front of a store. `science` makes results of raw files (`waveforms`)."""

    def __init__(self, store, science, watch=None):
        self.store, self.science, self.watch = store, science, watch or Unwatched()
        self.clock = Clock()

    def put(self, what, key, body):
        self.clock.timed(what, self.store.put, key, body)
        self.watch.after_put(key)

    def get(self, what, key):
        self.watch.before_get(key)
        return self.clock.timed(what, self.store.get, key)

    def process(self, key):
        """Reads one raw file once, and writes its results."""
        body = self.get("read raw", key)
        results = self.clock.timed("compute", self.science.processed, body)
        for name, result in zip(self.science.result_keys(key), results):
            self.put("write results", name, result)

    def catalogue(self):
        """Reads all picks back and writes the catalogue; the number of its events."""
        tables = [self.get("read picks", key) for key in self.store.keys("picks/")]
        body, events = self.clock.timed("compute", self.science.catalogue, tables)
        self.put("write results", "catalogue.xml", body)
        return events


def unprocessed(store, science):
    """Raw files that have no picks yet, in the order of their keys."""
    done = set(store.keys("picks/"))
    return [key for key in store.keys("raw/") if science.result_keys(key)[1] not in done]


def run(season, raw, pipeline):
    """Lives through the season with the raw files of the store `raw`. Gives what it took."""
    science, begun = pipeline.science, time.monotonic()
    waiting, raw_bytes = [], 0
    for day in range(season.days):
        arrived = [science.raw_key(number, day) for number in range(season.stations)]
        for key in arrived:
            body = pipeline.clock.timed("fetch", raw.get, key)
            raw_bytes += len(body)
            pipeline.put("upload", key, body)
        permanent = season.stations - season.campaign
        waiting += arrived[permanent:]
        due = arrived[:permanent]
        if (day + 1) % season.week == 0 or day + 1 == season.days:
            due, waiting = due + waiting, []
        for key in due:
            pipeline.process(key)
        pipeline.clock.timed("nights", pipeline.watch.night)
    events = pipeline.catalogue()
    spent = pipeline.clock.spent
    return {
        "wall_s": time.monotonic() - begun - spent["nights"],
        "raw_bytes": raw_bytes,
        "raw_files": season.days * season.stations,
        "events": events,
        "spent_s": spent,
        **pipeline.watch.report(),
    }


def checksum(store):
    """One SHA-256 of all results in a store, names and bytes."""
    total = hashlib.sha256()
    for prefix in ("catalogue.xml", "decimated/", "picks/"):
        for key in store.keys(prefix):
            total.update(f"{key} {hashlib.sha256(store.get(key)).hexdigest()}\n".encode())
    return total.hexdigest()
