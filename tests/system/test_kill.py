"""kill -9 at every step: the process is killed at a chosen system call while clients are at work, and started again.

Where it is killed is certain, not luck: see `faults.py`. After each kill nothing may contradict anything on the disk,
and after each start everything acknowledged is there byte for byte, what was not is there wholly or not at all, and
nothing else is listed. A step that is never reached fails the test.

`LARDER_KILLS=200` makes so many kills more, at random calls of random steps; `LARDER_KILL_SEED` draws others.
"""

import concurrent.futures
import os
import random
import threading
import time
import unittest

import botocore.exceptions

import faults
from harness import BRISK, FILES, STAYING, SystemTest, noise

GONE = (botocore.exceptions.BotoCoreError, OSError)
BUCKET = "pantry"
STAGED, LOG, STACK, RECALL = "/staged/s-", "/intake/", ".stack", "/spool/r-"
# Packs of a few objects, so that blobs come and go; a spool that holds few recalls, so that drives are read again.
LOAD = {
    **BRISK,
    "time_scale": 200,
    "migrate.scan_interval": "50 ms",
    "migrate.pack_size": "700 kB",
    "workshop.spool": "6 MB",
    "evacuation_fraction": 0.5,
}
# While clients work: what is being done, and where it ends. A staged file is synced once, stacks twice: with their
# fragments, and with their footers.
UNDER_LOAD = [
    ("staging: the file is made", "after", [("create", STAGED, 1)]),
    ("staging: half of it is written", "after", [("write", STAGED, 3)]),
    ("staging: not synced", "before", [("sync", STAGED, 2)]),
    ("staging: synced, not committed", "after", [("sync", STAGED, 2)]),
    ("commit of a put: not written", "before", [("sync", STAGED, 1), ("write", LOG, 1)]),
    ("commit of a put: not synced", "before", [("sync", STAGED, 1), ("sync", LOG, 1)]),
    ("commit of a put: synced, not answered", "after", [("sync", STAGED, 1), ("sync", LOG, 1)]),
    ("pack: composed from staged files", "after", [("read", STAGED, 4)]),
    ("intent: synced, no stack yet", "before", [("create", STACK, 1)]),
    ("stripes: one stack is made", "after", [("create", STACK, 1)]),
    ("stripes: some are written", "after", [("create", STACK, 2), ("write", STACK, 5)]),
    ("stripes: not synced", "before", [("create", STACK, 1), ("sync", STACK, 2)]),
    ("footers: none is written", "before", [("create", STACK, 3), ("sync", STACK, 3), ("write", STACK, 1)]),
    ("footers: one is written", "after", [("create", STACK, 3), ("sync", STACK, 3), ("write", STACK, 1)]),
    ("footers: synced", "after", [("create", STACK, 3), ("sync", STACK, 6)]),
    ("verify: reading back", "before", [("create", STACK, 3), ("sync", STACK, 6), ("read", STACK, 2)]),
    ("verify: while something is committed", "after", [("sync", STACK, 6), ("read", STACK, 6), ("sync", LOG, 1)]),
    ("free: nothing is removed", "before", [("sync", STACK, 6), ("unlink", STAGED, 1)]),
    ("free: some is removed", "after", [("sync", STACK, 6), ("unlink", STAGED, 2)]),
    ("reclaim: no stack is removed", "before", [("unlink", STACK, 1)]),
    ("reclaim: one stack is removed", "after", [("unlink", STACK, 1)]),
    ("reclaim: all are removed, not forgotten", "before", [("unlink", STACK, 3), ("sync", LOG, 1)]),
    ("recall: reading stripes", "after", [("create", RECALL, 1), ("read", STACK, 1)]),
    ("recall: writing the spool", "after", [("create", RECALL, 1), ("write", RECALL, 1)]),
]


def requests(log):
    """One request alone: `log` is synced for it and nothing else."""
    return [
        (f"{what}: {when}", action, [("sync", log, 1)], what)
        for what in ("overwrite", "delete", "new part", "complete", "abort")
        for when, action in [("not committed", "before"), ("not answered", "after")]
    ]


REQUESTS = requests(LOG) + [
    ("overwrite: the old file is not removed", "before", [("unlink", STAGED, 1)], "overwrite"),
    ("delete: the file is not removed", "before", [("unlink", STAGED, 1)], "delete"),
    ("abort: some parts are not removed", "after", [("unlink", STAGED, 1)], "abort"),
]
# A migration alone, and how many blobs are left unfinished.
MIGRATION = [
    ("commit of a blob: not written", "before", [("sync", STACK, 6), ("read", STACK, 6), ("write", LOG, 1)], 1),
    ("commit of a blob: not synced", "before", [("sync", STACK, 6), ("read", STACK, 6), ("sync", LOG, 1)], 0),
    ("commit of a blob: synced, nothing freed", "after", [("sync", STACK, 6), ("read", STACK, 6), ("sync", LOG, 1)], 0),
]
# While it starts again after a kill that left work for the start.
AT_START = [
    ("start: sweeping", "before", [("unlink", STAGED, 1)], ("after", [("create", STAGED, 1)])),
    ("start: giving up a blob", "before", [("write", LOG, 2)], ("after", [("create", STACK, 1)])),
    ("start: gave up a blob", "after", [("sync", LOG, 2)], ("after", [("create", STACK, 2)])),
]
# The same where small objects are in the log in front of the catalog.
INTAKE_UNDER_LOAD = [
    ("append: not written", "before", [("write", LOG, 2)]),
    ("append: written, not synced", "before", [("sync", LOG, 2)]),
    ("append: synced, not committed", "after", [("sync", LOG, 2)]),
    ("a large object beside it: synced, not logged", "after", [("sync", STAGED, 1)]),
    ("a large object beside it: logged, not answered", "after", [("sync", STAGED, 1), ("sync", LOG, 1)]),
    ("pack: written, not logged", "before", [("sync", STACK, 6), ("read", STACK, 6), ("sync", LOG, 1)]),
    ("pack: logged, nothing freed", "after", [("sync", STACK, 6), ("read", STACK, 6), ("sync", LOG, 1)]),
]
# A pass of checks alone, over eight files: nobody else reads staged files, and nothing else is committed.
CHECKS = [
    ("checks: a file is read", "after", [("read", STAGED, 1)]),
    ("checks: most are read", "before", [("read", STAGED, 7)]),
    ("checks: all are read, the pass is not remembered", "before", [("read", STAGED, 8), ("sync", LOG, 1)]),
    ("checks: the pass is remembered", "after", [("read", STAGED, 8), ("sync", LOG, 1)]),
]
# Reads of staged objects are recorded, and nothing else is committed.
READS = [
    ("recorded reads: not written", "before", [("read", STAGED, 1), ("write", LOG, 1)]),
    ("recorded reads: not synced", "before", [("read", STAGED, 1), ("sync", LOG, 1)]),
    ("recorded reads: synced", "after", [("read", STAGED, 1), ("sync", LOG, 1)]),
]
# The log of the run before becomes a shelf.
INTAKE_AT_START = [
    ("shelf: made", "after", [("create", ".new", 1)]),
    ("shelf: written in part", "after", [("write", ".new", 1)]),
    ("shelf: not synced", "before", [("sync", ".new", 1)]),
    ("shelf: synced, without its name", "after", [("sync", ".new", 1)]),
]


class Expected:
    """What each key may hold: what was acknowledged, and what may or may not have been."""

    def __init__(self):
        self.sure, self.open, self.lock = {}, {}, threading.Lock()

    def begins(self, key, body):
        with self.lock:
            self.open.setdefault(key, []).append(body)

    def acknowledged(self, key, body):
        with self.lock:
            self.sure[key] = body
            self.open.pop(key, None)

    def settled(self, key, found):
        """Whether `found` may be there; from now on it must."""
        fits = found == self.sure.get(key) or any(found == body for body in self.open.get(key, []))
        self.acknowledged(key, found)
        return fits

    def keys(self):
        return sorted({*self.sure, *self.open})


class Client(threading.Thread):
    """Does what its kind does until the server is gone or it is stopped."""

    def __init__(self, expected, server, kind, seed, ending):
        super().__init__(daemon=True)
        self.expected, self.kind, self.ending, self.error = expected, kind, ending, None
        self.client, self.random = server.client(), random.Random(seed)

    def run(self):
        number = 0
        while not self.ending.is_set():
            number += 1
            try:
                getattr(self, self.kind)(f"{self.ident}.{number}")
            except GONE:
                return
            except AssertionError as error:
                self.error = error
                return
            except botocore.exceptions.ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                if status != 503:
                    self.error = error
                    return

    def change(self, key, body, do):
        self.expected.begins(key, body)
        do()
        self.expected.acknowledged(key, body)

    def write(self, serial):
        key = f"{self.name}/{self.random.randrange(8)}"
        body = noise(self.random.choice([0, 10, 5_000, 70_000, 300_000, 1_300_000]), serial)
        if self.random.random() < 0.2:
            self.change(key, None, lambda: self.client.delete_object(Bucket=BUCKET, Key=key))
        else:
            self.change(key, body, lambda: self.client.put_object(Bucket=BUCKET, Key=key, Body=body))

    def upload(self, serial):
        key = f"{self.name}/{self.random.randrange(3)}"
        begun = begin(self.client, key, noise(200_000, serial))
        if self.random.random() < 0.3:
            self.client.abort_multipart_upload(**begun.named)
        else:
            self.change(key, begun.body, begun.complete)

    def read(self, _):
        key = f"cold/{self.random.randrange(6)}"
        found = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert found == noise(1_500_000, key), f"{key} is not what was written"


class begin:
    """An upload with one part."""

    def __init__(self, client, key, body):
        self.client, self.body = client, body
        upload = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        self.named = {"Bucket": BUCKET, "Key": key, "UploadId": upload}
        self.part(body)

    def part(self, body):
        part = self.client.upload_part(**self.named, PartNumber=1, Body=body)
        self.parts, self.body = [{"PartNumber": 1, "ETag": part["ETag"]}], body

    def complete(self):
        self.client.complete_multipart_upload(**self.named, MultipartUpload={"Parts": self.parts})


@unittest.skipIf(faults.why_not(), faults.why_not())
class Kills(SystemTest):
    def start(self):
        self.server = self.serve(self.data, self.faults.environment())
        self.client = self.server.client(retries={"total_max_attempts": 10, "mode": "standard"})

    def prepare(self, rack, settings=FILES):
        """By default with a file for each object: most steps are syncs of files and of the catalog's log."""
        self.load = {**LOAD, **settings}
        self.expected, self.hits, self.serial, self.log = Expected(), {}, 0, [self.id()]
        self.addCleanup(lambda: print("\n".join(self.log), flush=True))
        self.data = self.made(rack, **self.load)
        self.faults = faults.Faults(self.root)
        self.start()
        self.client.create_bucket(Bucket=BUCKET)
        for number in range(6):
            key = f"cold/{number}"
            self.client.put_object(Bucket=BUCKET, Key=key, Body=noise(1_500_000, key))
            self.expected.acknowledged(key, noise(1_500_000, key))

    def until_killed(self, step, seconds=40):
        try:
            self.server.process.wait(seconds)
        except Exception as error:
            raise AssertionError(f"{step}: never reached; {self.server.log()[-1500:]}") from error
        self.assertEqual(self.server.process.returncode, -9, step)
        self.assertEqual(self.faults.hits(), 1, step)

    def kill_under_load(self, step, action, chain):
        ending = threading.Event()
        kinds = ["write", "write", "read", "upload"]
        clients = [Client(self.expected, self.server, kind, f"{step}{i}", ending) for i, kind in enumerate(kinds)]
        for number, client in enumerate(clients):
            client.name = f"{client.kind}{number}"
            client.start()
        time.sleep(0.2)
        self.faults.arm(action, chain)
        try:
            self.until_killed(step)
        finally:
            ending.set()
        for client in clients:
            client.join(60)
            self.assertFalse(client.is_alive(), step)
            self.assertIsNone(client.error, step)

    def kill_in_request(self, step, action, chain, what):
        self.configured(STAYING)
        self.serial += 1
        key, body, client = "alone/0", noise(90_000, f"{step}{self.serial}"), self.server.client()
        do = lambda: None
        if what in ("overwrite", "delete"):
            self.client.put_object(Bucket=BUCKET, Key=key, Body=body)
            self.expected.acknowledged(key, body)
        if what == "overwrite":
            body = noise(90_001, f"{step}{self.serial}")
            do = lambda: client.put_object(Bucket=BUCKET, Key=key, Body=body)
        elif what == "delete":
            body = None
            do = lambda: client.delete_object(Bucket=BUCKET, Key=key)
        else:
            begun = begin(client, key, body)
            if what == "new part":
                do = lambda: begun.part(noise(90_002, step))
                body = self.expected.sure.get(key)
            elif what == "complete":
                do = begun.complete
            else:
                do = lambda: client.abort_multipart_upload(**begun.named)
                body = self.expected.sure.get(key)
        self.expected.begins(key, body)
        self.faults.arm(action, chain)
        try:
            do()
        except GONE:
            pass
        else:
            # It may be answered where what is left to be done is the server's own business.
            self.expected.acknowledged(key, body)
        self.until_killed(step)

    def kill_in_migration(self, step, action, chain, unfinished):
        """Exact, since nothing else is committed meanwhile; what is left shows that the step is the one it says."""
        # What the kill before this one left in the workshop would make a pack of its own.
        self.server.until_cold()
        self.configured(STAYING)
        self.server.until_asleep()
        for number in range(3):
            key, body = f"alone/{number}", noise(50_000 + number, f"{step}{number}")
            self.client.put_object(Bucket=BUCKET, Key=key, Body=body)
            self.expected.acknowledged(key, body)
        self.faults.arm(action, chain)
        self.configured({})
        self.until_killed(step)
        left = self.verified(self.data)["leftovers"]
        self.assertEqual((left["unfinished_blobs"], left["staged_files"]), (unfinished, 0 if unfinished else 3), step)

    def configured(self, settings, rules=""):
        """Starts the server anew if it runs with other settings or rules of a thermometer."""
        path = os.path.join(self.data, "larder.toml")
        before = open(path, encoding="utf-8").read()
        self.configure(self.data, {**self.load, **settings})
        with open(path, "a", encoding="utf-8") as config:
            config.write(rules)
        if before != open(path, encoding="utf-8").read():
            self.server.kill()
            self.start()

    def kill_at_start(self, step, action, chain, first):
        self.kill_under_load(f"before {step}", *first)
        self.start_and_be_killed(step, action, chain)

    def start_and_be_killed(self, step, action, chain):
        """In the start, or in what goes on behind it."""
        self.faults.arm(action, chain)
        try:
            self.start()
        except AssertionError:
            pass  # It was killed before it was ready.
        self.until_killed(step)

    def check(self, step):
        """What is on the disk agrees; and what was acknowledged, and nothing else, is there after the next start."""
        self.faults.disarm()
        report = self.verified(self.data)
        self.assertEqual(report["findings"], [], step)
        self.start()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            found = dict(zip(self.expected.keys(), pool.map(self.found, self.expected.keys())))
        for key, body in found.items():
            self.assertTrue(self.expected.settled(key, body), f"{key} after a kill at: {step}")
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        listed = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}
        self.assertEqual(listed, {key: len(body) for key, body in found.items() if body is not None}, step)
        return report["leftovers"]

    def found(self, key):
        try:
            return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        except self.client.exceptions.NoSuchKey:
            return None

    def killed(self, step, how, *arguments):
        begun = time.monotonic()
        how(step, *arguments)
        path = os.path.relpath(self.faults.hit(), self.data)
        left = {name: number for name, number in self.check(step).items() if number}
        self.hits[step] = self.hits.get(step, 0) + 1
        self.log.append(f"  {time.monotonic() - begun:5.1f} s  {step:44} at {path}; left {left}")

    def finish(self):
        """In the end nothing is left over, and the accounts of the server are those of the disk."""
        self.configured({"migrate.older_than": "0 s"})
        uploads = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        for upload in uploads:
            named = {"Bucket": BUCKET, "Key": upload["Key"], "UploadId": upload["UploadId"]}
            self.client.abort_multipart_upload(**named)
        self.server.until_cold()
        for key in self.expected.keys():
            self.assertTrue(self.found(key) == self.expected.sure[key], f"{key} when cold")
        self.configured(STAYING)
        self.client.put_object(Bucket=BUCKET, Key="last", Body=noise(123_456, "last"))
        self.server.until_asleep()
        status = self.server.status()
        self.assertEqual(self.server.stop(), 0)
        report = self.verified(self.data, "--deep")
        self.assertEqual(report["findings"], [])
        left = report["leftovers"]
        self.assertEqual((left["staged_files"], left["unfinished_blobs"]), (0, 0), "nothing has leaked")
        self.assertEqual(report["catalog"]["uploads"], 0)
        self.assertEqual(status["workshop"]["staged_count"], report["catalog"]["staged"])
        self.assertEqual(status["workshop"]["staged_bytes"], report["workshop"]["file_bytes"])
        self.assertEqual(status["totals"]["waiting_reclaim_bytes"], report["catalog"]["dead_bytes"])
        self.log.append(f"  {sum(self.hits.values())} kills at {len(self.hits)} steps")

    def test_nothing_acknowledged_is_lost_by_a_kill_while_clients_write_and_read(self):
        self.prepare("nas8")
        for step in MIGRATION:
            self.killed(step[0], self.kill_in_migration, *step[1:])
        for step in UNDER_LOAD:
            self.killed(step[0], self.kill_under_load, *step[1:])
        for step in AT_START:
            self.killed(step[0], self.kill_at_start, *step[1:])
        self.assertEqual(len(self.hits), len(MIGRATION + UNDER_LOAD + AT_START), "every step was reached")
        self.finish()

    def test_a_request_that_a_kill_cuts_short_has_happened_or_not(self):
        self.prepare("nas8")
        for step in REQUESTS:
            self.killed(step[0], self.kill_in_request, *step[1:])
        self.assertEqual(len(self.hits), len(REQUESTS), "every step was reached")
        self.finish()

    def test_nothing_acknowledged_is_lost_by_a_kill_behind_the_log(self):
        self.prepare("nas8", {})
        for step in INTAKE_UNDER_LOAD:
            self.killed(step[0], self.kill_under_load, *step[1:])
        for step in INTAKE_AT_START:
            self.killed(step[0], self.kill_in_transformation, *step[1:])
        for step in requests(LOG):
            self.killed(step[0], self.kill_in_request, *step[1:])
        self.assertEqual(len(self.hits), len(INTAKE_UNDER_LOAD + INTAKE_AT_START + requests(LOG)))
        self.finish()

    def test_nothing_is_lost_by_a_kill_while_the_workshop_is_checked_or_reads_are_recorded(self):
        self.prepare("nas8")
        for step in CHECKS:
            self.killed(step[0], self.kill_in_checks, *step[1:])
        for step in READS:
            self.killed(step[0], self.kill_in_recorded_reads, *step[1:])
        self.assertEqual(len(self.hits), len(CHECKS + READS), "every step was reached")
        self.finish()

    def eight_staged(self, step):
        for number in range(8):
            key, body = f"alone/{number}", noise(50_000 + number, f"{step}{number}")
            self.client.put_object(Bucket=BUCKET, Key=key, Body=body)
            self.expected.acknowledged(key, body)

    def kill_in_checks(self, step, action, chain):
        self.configured({})
        self.server.until_cold()
        self.configured({**STAYING, "workshop.check_every": "3 s"})
        self.server.until_asleep()
        self.eight_staged(step)
        self.faults.arm(action, chain)
        self.until_killed(step)

    def kill_in_recorded_reads(self, step, action, chain):
        self.configured({})
        self.server.until_cold()
        # What nobody has read for an hour would move: so reads are recorded before the workshop is looked through.
        self.configured(STAYING, "\n[[thermometer.rule]]\nunread_for = \"1 h\"\n")
        self.server.until_asleep()
        self.eight_staged(step)
        self.faults.arm(action, chain)
        for number in range(8):
            try:
                self.found(f"alone/{number}")
            except GONE:
                break
        self.until_killed(step)

    def kill_in_transformation(self, step, action, chain):
        self.configured(STAYING)
        for number in range(3):
            key, body = f"alone/{number}", noise(50_000 + number, f"{step}{number}")
            self.client.put_object(Bucket=BUCKET, Key=key, Body=body)
            self.expected.acknowledged(key, body)
        self.server.kill()
        self.start_and_be_killed(step, action, chain)

    def test_random_kills(self):
        """At random calls of random steps of a rack with more drives; a long run is for `LARDER_KILLS`."""
        seed = int(os.environ.get("LARDER_KILL_SEED", "1"))
        chance = random.Random(seed)
        self.prepare("pelican-mini", chance.choice([FILES, {}]))
        self.log.append(f"  seed {seed}")
        for _ in range(int(os.environ.get("LARDER_KILLS", "6"))):
            step, action, chain = chance.choice(UNDER_LOAD)
            chain = [(op, path, chance.randrange(1, 2 * count + 4)) for op, path, count in chain]
            self.killed(step, self.kill_under_load, action, chain)
        self.finish()
