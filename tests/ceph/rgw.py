#!/usr/bin/env python3
"""`larder ceph migrate` on a real RGW before a real Ceph cluster: what a copy of an object onto itself does, rules that
become lifecycles, copies or refusals, and what a deep scrub and a migration in one wake cost a cold drive.
usage: rgw.py BINARY"""

import email.utils
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from cluster import Unavailable
from gateway import COLD_POOL, KEYS, Gateway
from story import tell

try:
    import boto3
    import botocore.config
    import botocore.exceptions
except ImportError:
    boto3 = None

LARGE_BYTES = 96 << 20
SMALL_BYTES = 60_000
# So long a drive is taken to turn after a deep scrub; a busy machine scrubs all of the pool within it.
WINDOW_S = 40
LINE = """
[[thermometer.rule]]
name = "line"
bucket = "images"
larger_than = "10 kB"
older_than = "2 s"

[[thermometer.rule]]
name = "logs"
bucket = "logs"
prefix = "old/"
older_than = "1 d"
"""


def body(index, size=SMALL_BYTES):
    return bytes([index % 251]) * (size + index)


class Story:
    """Each method is a test."""

    def __init__(self, binary, folder):
        self.binary, self.cluster = binary, Gateway(folder)

    def begin(self):
        if boto3 is None:
            raise Unavailable("boto3 not found; pip install boto3")
        self.cluster.make()
        access, secret = KEYS
        config = botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, read_timeout=300,
                                        request_checksum_calculation="when_required")
        self.s3 = boto3.client("s3", endpoint_url=self.cluster.endpoint, aws_access_key_id=access,
                               aws_secret_access_key=secret, region_name="us-east-1", config=config)
        self.s3.meta.events.register("before-sign.s3.CopyObject", self.add_headers)
        self.more = {}
        for bucket in ["tried", "images", "logs"]:
            self.s3.create_bucket(Bucket=bucket)
        self.cluster.wait_clean()

    def add_headers(self, request, **_):
        for name, value in self.more.items():
            request.headers[name] = value

    # Asking RGW.

    def put(self, bucket, key, data, **more):
        self.s3.put_object(Bucket=bucket, Key=key, Body=data, **more)

    def head(self, bucket, key):
        return self.s3.head_object(Bucket=bucket, Key=key)

    def copy(self, key, **headers):
        self.more = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            return self.s3.copy_object(Bucket="tried", Key=key, CopySource={"Bucket": "tried", "Key": key},
                                       StorageClass="COLD", MetadataDirective="REPLACE")
        finally:
            self.more = {}

    def get(self, bucket, key):
        return self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    def classes(self, bucket):
        found = self.s3.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {entry["Key"]: entry["StorageClass"] for entry in found}

    def refused(self, ask):
        try:
            ask()
        except botocore.exceptions.ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]
        return None

    # Asking Larder.

    def argv(self, *more, rules=LINE, write_once=("images", "logs")):
        path = self.cluster.path("rules.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(rules)
        flags = [word for bucket in write_once for word in ["--write-once", bucket]]
        return [self.binary, "ceph", "migrate", "--rules", path, "--endpoint", self.cluster.endpoint, *flags, *more]

    def larder(self, *argv, code=0):
        done = subprocess.run(argv, env=self.cluster.environment, text=True, capture_output=True, timeout=300)
        assert done.returncode == code, f"{' '.join(argv)}: {done.returncode}: {done.stdout} {done.stderr}"
        return done.stdout if code == 0 else done.stdout + done.stderr

    def migrate(self, *more, **rules):
        report = json.loads(self.larder(*self.argv("--json", *more, **rules)))
        return {bucket["bucket"]: bucket for bucket in report["buckets"]}, report["refused"]

    # The tests.

    def a_copy_onto_itself_changes_the_class_and_keeps_the_etag(self):
        self.put("tried", "a", body(1), Metadata={"who": "me"}, Tagging="k=v", ACL="public-read")
        before = self.head("tried", "a")
        self.copy("a")
        after = self.head("tried", "a")
        assert (after["StorageClass"], after["ETag"]) == ("COLD", before["ETag"]), after
        assert after["Metadata"] == {} and "TagCount" not in after, after
        grants = self.s3.get_object_acl(Bucket="tried", Key="a")["Grants"]
        print(f"seen: a copy leaves {len(grants)} grant of 2, no tags, and no metadata but those sent with it")
        upload = self.s3.create_multipart_upload(Bucket="tried", Key="parts")["UploadId"]
        parts = []
        for number in [1, 2]:
            part = self.s3.upload_part(Bucket="tried", Key="parts", UploadId=upload, PartNumber=number,
                                       Body=bytes([number]) * (5 << 20))
            parts.append({"PartNumber": number, "ETag": part["ETag"]})
        self.s3.complete_multipart_upload(Bucket="tried", Key="parts", UploadId=upload,
                                          MultipartUpload={"Parts": parts})
        etag = self.head("tried", "parts")["ETag"]
        self.copy("parts")
        assert self.head("tried", "parts")["ETag"] == etag and etag.endswith('-2"'), etag
        assert self.get("tried", "parts") == bytes([1]) * (5 << 20) + bytes([2]) * (5 << 20)

    def the_condition_without_source_is_the_one_that_holds(self):
        self.put("tried", "b", body(2))
        before = self.head("tried", "b")
        documented = self.refused(lambda: self.copy("b", x_amz_copy_source_if_match='"0"'))
        print(f"seen: x-amz-copy-source-if-match of another ETag: {documented or 'not looked at'}")
        assert self.refused(lambda: self.copy("b", x_amz_copy_if_match='"0"')) == 412
        earlier = email.utils.formatdate(before["LastModified"].timestamp() - 1, usegmt=True)
        self.put("tried", "b", body(2))
        assert self.refused(lambda: self.copy("b", x_amz_copy_if_unmodified_since=earlier)) == 412
        written = email.utils.formatdate(self.head("tried", "b")["LastModified"].timestamp(), usegmt=True)
        self.copy("b", x_amz_copy_if_match=before["ETag"], x_amz_copy_if_unmodified_since=written)
        assert self.head("tried", "b")["StorageClass"] == "COLD"

    def raced(self, change, delay_s):
        """What a large object is after `change` came while it was copied, and whether it did."""
        self.put("tried", "r", b"o" * LARGE_BYTES)
        copying = threading.Thread(target=lambda: self.refused(lambda: self.copy("r")))
        copying.start()
        time.sleep(delay_s)
        change()
        was_during = copying.is_alive()
        copying.join()
        return was_during

    def a_change_that_comes_during_a_copy_wins(self):
        during = 0
        for delay_s in [0.02, 0.1, 0.2, 0.4]:
            during += self.raced(lambda: self.put("tried", "r", b"new"), delay_s)
            assert self.get("tried", "r") == b"new", f"a PUT was lost after {delay_s} s"
            during += self.raced(lambda: self.s3.delete_object(Bucket="tried", Key="r"), delay_s)
            assert self.refused(lambda: self.head("tried", "r")) == 404, f"a DELETE was lost after {delay_s} s"
            tags = {"TagSet": [{"Key": "k", "Value": "v"}]}
            is_during = self.raced(lambda: self.s3.put_object_tagging(Bucket="tried", Key="r", Tagging=tags), delay_s)
            if is_during:
                during += 1
                assert self.s3.get_object_tagging(Bucket="tried", Key="r")["TagSet"], f"tags lost after {delay_s} s"
        print(f"seen: {during} of 12 changes came while a copy ran, and none was lost")
        assert during >= 4, "the copies were too quick to be raced"

    def store(self):
        for index in range(24):
            self.put("images", f"image {index:02}+ü", body(index), Metadata={"who": f"n{index}"}, ContentType="image/x")
        self.put("images", "thumbnail", b"t" * 9_000)
        self.put("images", "tagged", body(40), Tagging="k=v")
        self.put("images", "public", body(41), ACL="public-read")
        for index in range(4):
            self.put("logs", f"old/{index}", body(index))
            self.put("logs", f"new/{index}", body(index))
        time.sleep(3)

    def a_pool_without_the_rule_is_refused(self):
        self.store()
        buckets, refused = self.migrate("--apply")
        assert not buckets and set(refused) == {"images", "logs"}, (buckets, refused)
        assert all("no hot-primary rule" in reason for reason in refused.values()), refused
        self.larder(self.binary, "ceph", "convert", f"pool/{COLD_POOL}", "--pool", COLD_POOL, "--state",
                    self.cluster.path("larder"), "--apply")
        acting = [pg["acting"] for pg in self.cluster.json("pg", "ls-by-pool", COLD_POOL)["pg_stats"]]
        assert all(osds[0] < 3 <= osds[1] for osds in acting), acting

    def without_apply_nothing_is_done(self):
        buckets, refused = self.migrate()
        images, logs = buckets["images"], buckets["logs"]
        counts = [images[total]["objects"] for total in ["by_copy", "hot", "copied"]]
        assert counts == [26, 1, 0], images
        assert (images["rules"][0]["way"], images["lifecycle"]) == ("copy", "not_needed"), images
        assert (logs["rules"][0]["way"], logs["lifecycle"]) == ({"lifecycle": {"days": 1}}, "wanted"), logs
        assert not refused and set(self.classes("images").values()) == {"STANDARD"}, refused
        print(self.larder(*self.argv()), end="")

    def a_migration_that_is_killed_goes_on(self):
        argv = self.argv("--apply", "--rate", "5", "--bucket", "images")
        killed = subprocess.Popen(argv, env=self.cluster.environment)
        self.cluster.wait("some objects cold", lambda: list(self.classes("images").values()).count("COLD") >= 4)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        done = list(self.classes("images").values()).count("COLD")
        assert done < 24, "all were copied before the kill"
        before = {key: self.head("images", key)["ETag"] for key in self.classes("images")}
        buckets, _ = self.migrate("--apply", "--bucket", "images")
        images = buckets["images"]
        assert images["copied"]["objects"] + images["cold"]["objects"] == 24, images
        left = {reason: total["objects"] for reason, total in images["left"].items()}
        assert sorted(left.values()) == [1, 1] and any("tags" in reason for reason in left), left
        classes = self.classes("images")
        assert [key for key, name in classes.items() if name != "COLD"] == ["public", "tagged", "thumbnail"], classes
        for index in range(24):
            key = f"image {index:02}+ü"
            assert self.get("images", key) == body(index)
            head = self.head("images", key)
            assert (head["ETag"], head["ContentType"], head["Metadata"]["who"]) == (before[key], "image/x", f"n{index}")
            created_s = int(head["Metadata"]["larder-created"]) / 1000
            assert created_s <= head["LastModified"].timestamp(), head
        print(self.larder(*self.argv("--apply")), end="")

    def lifecycle_moves_what_it_can_say(self):
        rules = self.s3.get_bucket_lifecycle_configuration(Bucket="logs")["Rules"]
        assert [(rule["ID"], rule["Filter"]) for rule in rules] == [("larder-2", {"Prefix": "old/"})], rules

        def is_moved():
            self.cluster.admin("lc", "process")
            return all(name == "COLD" for key, name in self.classes("logs").items() if key.startswith("old/"))
        self.cluster.wait("lifecycle moved the old logs", is_moved, 120)
        assert all(name == "STANDARD" for key, name in self.classes("logs").items() if key.startswith("new/"))
        for index in range(4):
            assert self.get("logs", f"old/{index}") == body(index)

    def what_others_have_set_is_not_touched(self):
        self.s3.create_bucket(Bucket="foreign")
        mine = {"Rules": [{"ID": "mine", "Status": "Enabled", "Filter": {"Prefix": "x"}, "Expiration": {"Days": 900}}]}
        self.s3.put_bucket_lifecycle_configuration(Bucket="foreign", LifecycleConfiguration=mine)
        self.s3.create_bucket(Bucket="kept")
        self.s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
        self.put("kept", "k", body(3))
        rules = "".join(f'[[thermometer.rule]]\nbucket = "{bucket}"\nolder_than = "{age}"\n' for bucket, age in
                        [("foreign", "1 d"), ("kept", "0 s"), ("device_health_metrics", "1 d"), ("nobody", "1 d")])
        buckets, refused = self.migrate("--apply", rules=rules, write_once=["foreign", "kept"])
        assert (buckets["foreign"]["lifecycle"], buckets["foreign"]["rules"][0]["way"]) == ("foreign", "copy"), buckets
        after = self.s3.get_bucket_lifecycle_configuration(Bucket="foreign")["Rules"]
        assert [rule["ID"] for rule in after] == ["mine"], after
        assert buckets["kept"]["copied"]["objects"] == 0 and "versions" in str(buckets["kept"]["left"]), buckets
        assert len(self.s3.list_object_versions(Bucket="kept")["Versions"]) == 1
        assert "it is a pool, not a bucket" in refused["device_health_metrics"], refused
        assert "no such bucket" in refused["nobody"], refused

    def copy_beside(self, change):
        """Whether `change`, which was answered success, was lost beside a copy of the same object; and what the copy
        was answered."""
        self.put("tried", "small", b"old" * 4000)
        etag, starts, refused = self.head("tried", "small")["ETag"], threading.Barrier(2), []

        def copy():
            starts.wait()
            time.sleep(random.random() * 0.02)
            refused.append(self.refused(lambda: self.copy("small", x_amz_copy_if_match=etag)))
        copying = threading.Thread(target=copy)
        copying.start()
        starts.wait()
        time.sleep(random.random() * 0.02)
        is_there = change()
        copying.join()
        return not is_there(), refused[0]

    def a_change_at_the_moment_of_a_copy_can_be_lost(self):
        def put():
            self.put("tried", "small", b"new" * 4000)
            return lambda: self.get("tried", "small") == b"new" * 4000

        def delete():
            self.s3.delete_object(Bucket="tried", Key="small")
            return lambda: self.refused(lambda: self.head("tried", "small")) == 404
        for change in [put, delete]:
            seen = [self.copy_beside(change) for _ in range(200)]
            lost = sum(is_lost for is_lost, _ in seen)
            print(f"seen: of 200 changes ({change.__name__}) beside a copy {lost} were lost and answered success")
            assert {answer for _, answer in seen} <= {None, 404, 412}, seen

    def nothing_moves_where_clients_overwrite(self):
        self.s3.create_bucket(Bucket="busy")
        rules = '[[thermometer.rule]]\nbucket = "busy"\nolder_than = "{}"\n'
        latest, lost, ends = {}, [], threading.Event()

        def write():
            turn = 0
            while not ends.is_set():
                key, turn = f"k{turn % 8}", turn + 1
                latest[key] = b"%d" % turn * 4000
                self.put("busy", key, latest[key])
                if self.get("busy", key) != latest[key]:
                    lost.append(turn)
        writer = threading.Thread(target=write)
        writer.start()
        self.cluster.wait("all keys written", lambda: len(latest) == 8)
        try:
            for _ in range(8):
                buckets, _ = self.migrate("--apply", rules=rules.format("0 s"), write_once=[])
                busy = buckets["busy"]
                assert busy["copied"]["objects"] == 0 and "--write-once" in str(busy["left"]), busy
            assert not lost and set(self.classes("busy").values()) == {"STANDARD"}, lost
            # What is said to be written once and is not ends the run, by its name.
            argv = self.argv("--apply", "--rate", "1000", rules=rules.format("0 s"), write_once=["busy"])
            noticed = None
            for _ in range(200):
                done = subprocess.run(argv, env=self.cluster.environment, text=True, capture_output=True, timeout=300)
                if done.returncode:
                    noticed = done.stderr
                    break
        finally:
            ends.set()
            writer.join()
        assert noticed and "changed while it was copied" in noticed and "--write-once" in noticed, noticed
        print(f"seen: {len(lost)} changes lost in all; {noticed}", end="")
        # Left out again, the bucket loses the lifecycle that Larder gave it.
        for names, state in [(["busy"], "set"), ([], "removed")]:
            buckets, _ = self.migrate("--apply", rules=rules.format("1 d"), write_once=names)
            assert buckets["busy"]["lifecycle"] == state, buckets

    def deep_scrub(self):
        """Scrubs every placement group of the cold pool, and waits for the end."""
        def stamps():
            return {pg["pgid"]: pg["last_deep_scrub_stamp"] for pg in
                    self.cluster.json("pg", "ls-by-pool", COLD_POOL)["pg_stats"]}
        before = stamps()
        for name in before:
            self.cluster.ceph("pg", "deep-scrub", name)
        self.cluster.wait("deep scrubs", lambda: all(before[name] != stamp for name, stamp in stamps().items()), 180)

    def settled(self):
        """The counters of the cold drives, when nothing was asked of them for 8 s."""
        seen, since = self.cluster.counters(), time.monotonic()
        while time.monotonic() - since < 8:
            time.sleep(1)
            if self.cluster.counters() != seen:
                seen, since = self.cluster.counters(), time.monotonic()
        return seen

    def one_wake_serves_deep_scrub_and_migration(self):
        self.cluster.ceph("osd", "set", "nodeep-scrub")
        self.cluster.ceph("osd", "set", "noscrub")
        rules = '[[thermometer.rule]]\nbucket = "{}"\nlarger_than = "10 kB"\nolder_than = "0 s"\n'
        for bucket in ["apart", "together"]:
            self.s3.create_bucket(Bucket=bucket)
            for index in range(40):
                self.put(bucket, f"{index}", body(index, 600_000))
        print("seen of the cold drives: reads, bytes read, writes, bytes written, flushes")
        before = self.settled()
        self.deep_scrub()
        scrubbed_at = time.monotonic()
        self.settled()
        print("  a deep scrub alone                     ", *self.cluster.moved(before))
        before = self.settled()
        self.migrate("--apply", "--bucket", "apart", "--rate", "1000", rules=rules.format("apart"),
                     write_once=["apart"])
        self.settled()
        apart = self.cluster.moved(before)
        print("  40 copies of 600 kB alone              ", *apart)
        assert apart[1] == 0, f"copies read {apart[1]} bytes of cold drives"
        argv = self.argv("--apply", "--in-window", "--window", f"{WINDOW_S} s", "--bucket", "together", "--json",
                         "--rate", "1000", rules=rules.format("together"), write_once=["together"])
        time.sleep(max(0.0, scrubbed_at + WINDOW_S + 1 - time.monotonic()))
        before = self.settled()
        waiting = subprocess.Popen(argv, env=self.cluster.environment, stdout=subprocess.PIPE, text=True)
        time.sleep(8)
        assert waiting.poll() is None and set(self.classes("together").values()) == {"STANDARD"}, "it did not wait"
        assert self.cluster.counters() == before, "waiting touched a cold drive"
        self.deep_scrub()
        said, _ = waiting.communicate(timeout=180)
        (bucket,) = json.loads(said)["buckets"]
        assert bucket["copied"]["objects"] == 40, bucket
        self.settled()
        print("  a deep scrub and 40 copies in one wake ", *self.cluster.moved(before))
        before = self.settled()
        self.deep_scrub()
        self.settled()
        print("  the deep scrub after it                ", *self.cluster.moved(before))

    def reads_heads_and_listings_of_what_is_cold_touch_no_cold_drive(self):
        before = self.settled()
        for index in range(40):
            assert self.get("together", f"{index}") == body(index, 600_000)
            assert self.head("together", f"{index}")["StorageClass"] == "COLD"
        assert set(self.classes("together").values()) == {"COLD"}
        time.sleep(10)
        assert self.cluster.counters() == before, (before, self.cluster.counters())

    TESTS = [a_copy_onto_itself_changes_the_class_and_keeps_the_etag,
             the_condition_without_source_is_the_one_that_holds, a_change_that_comes_during_a_copy_wins,
             a_pool_without_the_rule_is_refused, without_apply_nothing_is_done, a_migration_that_is_killed_goes_on,
             lifecycle_moves_what_it_can_say, what_others_have_set_is_not_touched,
             a_change_at_the_moment_of_a_copy_can_be_lost, nothing_moves_where_clients_overwrite,
             one_wake_serves_deep_scrub_and_migration, reads_heads_and_listings_of_what_is_cold_touch_no_cold_drive]

    def end(self):
        self.cluster.end()


def main():
    binary = os.path.abspath(sys.argv[1])
    return tell("rgw", "a cluster with RGW", lambda folder: Story(binary, folder))


if __name__ == "__main__":
    sys.exit(main())
