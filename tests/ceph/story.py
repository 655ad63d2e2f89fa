"""A story: tests in their order on one cluster, which is made for it and ended with it, and their count."""

import os
import signal
import sys
import tempfile
import time
import traceback

from cluster import Unavailable


def tell(name, what, make):
    """Runs the tests of `make(folder)`; those after one that failed are not run. The last line is the count; where
    something is missing that the cluster needs it says so, and counts all as skipped. The exit code."""
    passed = failed = 0
    # Whoever ends this ends the cluster with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory(prefix=f"larder-{name}-") as folder:
        story = make(os.path.join(folder, "cluster"))
        tests = story.TESTS
        try:
            began = started = time.monotonic()
            story.begin()
            print(f"{what} after {time.monotonic() - started:.0f} s", flush=True)
            for test in tests:
                started = time.monotonic()
                test(story)
                passed += 1
                print(f"passed {time.monotonic() - started:6.1f} s  {test.__name__}", flush=True)
            print(f"all after {time.monotonic() - began:.0f} s")
        except Unavailable as reason:
            print(f"skipped: {reason}")
        except Exception:  # whatever it was, the cluster must be ended
            traceback.print_exc(file=sys.stdout)
            failed = 1
        finally:
            story.end()
    print(f"ceph: {passed} passed, {failed} failed, {len(tests) - passed - failed} skipped")
    return 1 if failed else 0
