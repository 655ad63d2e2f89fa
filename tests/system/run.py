"""Runs the system tests, several at once, each in a process of its own, and closes with a count.

    LARDER_BINARY=target/release/larder python tests/system/run.py [NAME ...]

A NAME picks the tests whose id contains it.
"""

import concurrent.futures
import io
import os
import shutil
import signal
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TEST_TIMEOUT_S = 420
# Tests mostly wait: for ages to pass, for drives to start.
AT_ONCE = max(4, (os.cpu_count() or 2) + 2)
# The longest first, so that none of them is left alone at the end.
ORDER = ["test_tree", "test_workshop", "test_degraded", "test_descriptors", "test_clients", "test_reproduce"]


def ids():
    suite = unittest.defaultTestLoader.discover(HERE, pattern="test_*.py")
    found = []

    def walk(part):
        for test in part:
            if isinstance(test, unittest.TestSuite):
                walk(test)
            else:
                found.append(test.id())

    walk(suite)
    rank = {name: place for place, name in enumerate(ORDER)}
    return sorted(found, key=lambda name: (rank.get(name.split(".")[0], len(rank)), name))


def too_long(*_):
    raise TimeoutError(f"the test took longer than {TEST_TIMEOUT_S} s")


def run_one(name):
    """Runs one test: its verdict, how long it took, and what it said."""
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(TEST_TIMEOUT_S)
    said = io.StringIO()
    started = time.monotonic()
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName(name)
        result = unittest.TextTestRunner(stream=said, verbosity=0).run(suite)
    finally:
        signal.alarm(0)
    if result.skipped:
        return "skipped", time.monotonic() - started, result.skipped[0][1]
    verdict = "passed" if result.wasSuccessful() and result.testsRun == 1 else "failed"
    return verdict, time.monotonic() - started, said.getvalue()


def reason(said):
    """The line of a failed test's output that says most: its last exception."""
    lines = [line for line in said.splitlines() if line and not line[0].isspace() and ": " in line]
    named = [line for line in lines if line.split(":")[0].split(".")[-1].endswith(("Error", "Exception", "Timeout"))]
    return (named or lines or [said])[-1]


def main():
    sys.path.insert(0, HERE)
    wanted = sys.argv[1:]
    names = [name for name in ids() if not wanted or any(want in name for want in wanted)]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    reasons, least_free = {}, shutil.disk_usage(tempfile.gettempdir()).free
    with concurrent.futures.ProcessPoolExecutor(max_workers=AT_ONCE) as pool:
        running = {pool.submit(run_one, name): name for name in names}
        for done in concurrent.futures.as_completed(running):
            try:
                verdict, seconds, said = done.result()
            except Exception as error:  # the process of the test died
                verdict, seconds, said = "failed", 0.0, repr(error)
            counts[verdict] += 1
            least_free = min(least_free, shutil.disk_usage(tempfile.gettempdir()).free)
            if verdict == "failed":
                reasons[running[done]] = reason(said)
            print(f"{verdict:>7} {seconds:6.1f} s  {running[done]}", flush=True)
            if verdict != "passed":
                print(said, flush=True)
    # A full disk fails tests that have nothing to do with it.
    print(f"{least_free / 1e9:.1f} GB were free in {tempfile.gettempdir()} at the least")
    for name, why in reasons.items():
        print(f"failed: {name}: {why[:600]}")
    print(f"system: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not names else 0


if __name__ == "__main__":
    sys.exit(main())
