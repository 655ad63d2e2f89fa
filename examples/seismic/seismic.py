"""Seismic waveforms on a cold store: generate, upload, process, catalogue, and compare with a plain directory.

A STORE is a directory, or s3://BUCKET with endpoint and keys from the environment. See README.md.
"""

import argparse
import json
import os
import shutil
import statistics
import sys

import rack
import season
from store import DirectoryStore, opened

VARIANTS = {"directory": None, "s3": "processed", "s3, by age": "age"}


def generate(options, science):
    """Raw files of a season, into a store."""
    store, made = opened(options.store), 0
    for day in range(options.days):
        for number in range(options.stations):
            body = science.generated(number, day, options.seed, options.rate, options.hours)
            store.put(science.raw_key(number, day), body)
            made += len(body)
        print(f"day {day + 1} of {options.days}: {made / 1e6:.0f} MB", flush=True)


def upload(options, _):
    source, target = opened(options.raw), opened(options.store)
    there = set(target.keys("raw/"))
    keys = [key for key in source.keys("raw/") if key not in there]
    for key in keys:
        target.put(key, source.get(key))
    print(f"{len(keys)} raw files uploaded")


def process(options, science):
    store = opened(options.store)
    pipeline = season.Pipeline(store, science)
    keys = season.unprocessed(store, science)
    for key in keys:
        pipeline.process(key)
    print(f"{len(keys)} raw files processed")


def catalogue(options, science):
    events = season.Pipeline(opened(options.store), science).catalogue()
    print(f"{events} events in catalogue.xml")


def live(options):
    return season.Season(options.days, options.stations, options.campaign, options.week)


def run_once(options, science, variant):
    """One season on a fresh store; what it took, and the checksum of its results."""
    place = os.path.join(options.work, variant.replace(", ", "-").replace(" ", "-"))
    shutil.rmtree(place, ignore_errors=True)
    raw = DirectoryStore(options.raw)
    order = VARIANTS[variant]
    try:
        if order is None:
            store = DirectoryStore(place)
            report = season.run(live(options), raw, season.Pipeline(store, science))
            return {**report, "results": season.checksum(store)}
        made = rack.Rack(options.larder, place, options.rack, order=order, capacity=options.capacity,
                         spool=options.spool, time_scale=options.time_scale, hot=options.hot)
        with made as server:
            store, watch = server.store(), rack.Watch(server)
            report = season.run(live(options), raw, season.Pipeline(store, science, watch))
            report = {**report, "retries": store.retries}
            return {**report, "results": season.checksum(store)}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def compare(options, science):
    """The variants in turns; a table of medians, and whether all results are the same."""
    runs = {variant: [] for variant in options.only or VARIANTS}
    for turn in range(options.repeat):
        for variant, of_it in runs.items():
            report = run_once(options, science, variant)
            of_it.append(report)
            print(f"turn {turn + 1}, {variant}: {line(report)}", flush=True)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(runs, file, indent=1)
    table(runs)
    results = {report["results"] for of_it in runs.values() for report in of_it}
    print("results: the same in all runs, " + results.pop()[:16] if len(results) == 1 else "RESULTS DIFFER")
    return 1 if results else 0


def line(report):
    spent = " ".join(f"{what} {seconds:.1f}" for what, seconds in report["spent_s"].items())
    said = f"{report['wall_s']:.1f} s ({spent}), {report['events']} events"
    if "reads_from" in report:
        said += (f"; cold reads {cold(report, 'raw')} of raw files, {cold(report, 'picks')} of picks; 0.8 crossed "
                 f"{report['crossings']} times, {report['group_wakes']} wakes ({report['client_wakes']} for reads), "
                 f"{report['drive_starts']} drive starts, {report['migrated_bytes'] / 1e6:.0f} MB moved, "
                 f"{report['retries']} retries")
    return said


def cold(report, kind, places=("rack", "spool")):
    """Reads of this kind of file that was in the rack, or in one of these `places`."""
    return sum(report["reads_from"].get(kind, {}).get(place, 0) for place in places)


ROWS = [
    ("wall time, nights left out (s)", lambda run: run["wall_s"]),
    ("... all but computing", lambda run: run["wall_s"] - run["spent_s"]["compute"]),
    ("... uploading", lambda run: run["spent_s"]["upload"]),
    ("... reading raw files", lambda run: run["spent_s"]["read raw"]),
    ("... computing", lambda run: run["spent_s"]["compute"]),
    ("... writing results", lambda run: run["spent_s"]["write results"]),
    ("... reading picks back", lambda run: run["spent_s"]["read picks"]),
    ("nights: until the rack rests (s)", lambda run: run["spent_s"]["nights"]),
    ("critical threshold crossed", lambda run: run["crossings"]),
    ("most staged (% of the workshop)", lambda run: run["peak_share"] * 100),
    ("raw files read from the rack", lambda run: cold(run, "raw")),
    ("... not yet read ahead", lambda run: cold(run, "raw", ["rack"])),
    ("picks read from the rack", lambda run: cold(run, "picks")),
    ("... not yet read ahead", lambda run: cold(run, "picks", ["rack"])),
    ("wakes of groups", lambda run: run["group_wakes"]),
    ("... for reads", lambda run: run["client_wakes"]),
    ("drive starts", lambda run: run["drive_starts"]),
    ("moved to the rack (MB)", lambda run: run["migrated_bytes"] / 1e6),
    ("requests tried again", lambda run: run["retries"]),
]


def table(runs):
    """Markdown: the median of each figure, and its least and most where they differ."""
    print("\n| | " + " | ".join(runs) + " |\n|---|" + "---|" * len(runs))
    for name, figure in ROWS:
        cells = []
        for of_it in runs.values():
            try:
                values = [figure(run) for run in of_it]
            except KeyError:  # a directory has no rack
                cells.append("")
                continue
            shown, least, most = (f"{of(values):.1f}".removesuffix(".0") for of in (statistics.median, min, max))
            cells.append(shown if least == most else f"{shown} ({least} to {most})")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(call, *places, about):
        made = commands.add_parser(call.__name__, help=about)
        made.set_defaults(call=call)
        for place in places:
            made.add_argument(place)
        return made

    def of_season(made):
        made.add_argument("--days", type=int, default=14)
        made.add_argument("--stations", type=int, default=5)

    made = command(generate, "store", about="raw files of a season, by a seed")
    of_season(made)
    made.add_argument("--rate", type=float, default=100.0, help="samples a second")
    made.add_argument("--hours", type=float, default=24.0, help="hours of data a day")
    made.add_argument("--seed", type=int, default=1)
    command(upload, "raw", "store", about="raw files from a directory into a store")
    command(process, "store", about="every raw file that was not processed, once")
    command(catalogue, "store", about="events of the picks of all raw files")
    made = command(compare, "raw", about="a season on a directory and on S3, in turns")
    of_season(made)
    made.add_argument("--campaign", type=int, default=1, help="stations that wait for the review")
    made.add_argument("--week", type=int, default=7, help="days from one review to the next")
    made.add_argument("--only", action="append", choices=VARIANTS, help="this variant, and others that are said")
    made.add_argument("--hot", metavar="PREFIX", help="a rule: what lies below it stays in the workshop")
    made.add_argument("--repeat", type=int, default=3)
    made.add_argument("--work", required=True, help="a directory for the stores; it is emptied")
    made.add_argument("--larder", default="larder", help="the binary")
    made.add_argument("--rack", default="nas8")
    made.add_argument("--capacity", default="1 GB", help="of the workshop")
    made.add_argument("--spool", default="400 MB")
    made.add_argument("--time-scale", type=int, default=1)
    made.add_argument("--json", help="a file for all figures")
    return parser.parse_args()


def main():
    import waveforms  # here, so that --help needs no ObsPy

    options = arguments()
    return options.call(options, waveforms)


if __name__ == "__main__":
    sys.exit(main())
