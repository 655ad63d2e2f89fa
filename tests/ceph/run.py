#!/usr/bin/env python3
"""`larder ceph` on a real Ceph cluster of six OSDs: plan, convert, agent, idle drives, a load, failures, and all the
way back. usage: run.py BINARY

LARDER_CEPH_IDLE_S: so long the cold drives are watched while nothing happens (300 s); LARDER_CEPH_LOAD_S: so long each
load goes on (60 s)."""

import json
import os
import signal
import subprocess
import sys
import time

from cluster import DB_BYTES, HOSTS, OSDS, Cluster
from story import tell

OBJECTS = 40
IMAGES = 500
RATE = 300
MEAN_MS_MAX = 100
WRITES = 50
# What hold mode allows, as an OSD counts it: 730 kB for a write of 60 kB. At twice this the OSD writes by itself.
HOLD, HELD_IMAGES = "64 MB", 150
COLD = [f"osd.{osd}" for osd in range(HOSTS, OSDS)]
HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT, LOAD = os.path.join(HERE, "cluster.py"), os.path.join(HERE, "load.py")
# Fields of the kernel's stat file: reads and writes that were completed.
READS, WRITTEN = 0, 4


class Larder:
    def __init__(self, binary, cluster):
        self.binary, self.cluster, self.state = binary, cluster, cluster.path("larder")
        here = f"{sys.executable} {SCRIPT} {cluster.folder}"
        self.host = ["--stop-command", f"{here} osd-stop {{id}}", "--start-command", f"{here} osd-start {{id}}",
                     "--create-command", f"{here} osd-create {{id}} {{db}}"]

    def popen(self, *argv):
        return subprocess.Popen([self.binary, "ceph", *argv], env=self.cluster.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *argv, code=0):
        done = subprocess.run([self.binary, "ceph", *argv], env=self.cluster.environment, text=True,
                              capture_output=True, timeout=900)
        assert done.returncode == code, f"larder ceph {' '.join(argv)}: {done.returncode}: {done.stdout} {done.stderr}"
        return done.stdout if code == 0 else done.stdout + done.stderr

    def plan(self, *argv, code=0):
        return json.loads(self.run("plan", "--json", *argv, code=code))

    def change(self, way, what, *argv, code=0):
        return self.run(way, what, "--db", str(DB_BYTES), "--state", self.state, "--wait", "3 min", *self.host, *argv,
                        code=code)

    def agent_argv(self, idle="6 s"):
        return ["agent", "--emulated", "--host", os.uname().nodename, "--idle", idle, "--min-gap", "1 s",
                "--starts-per-day", "100", "--every", "2 s", "--state", self.state]

    def status(self):
        return json.loads(self.run("agent", "--status", "--json", "--state", self.state))["drives"]


class Story:
    """Each method is a test."""

    def __init__(self, binary, folder, idle_s, load_s):
        self.cluster = Cluster(folder)
        self.larder = Larder(binary, self.cluster)
        self.idle_s, self.load_s, self.agent = idle_s, load_s, None
        self.rate, self.images = RATE, IMAGES

    # The objects that are stored all the time.

    def body(self, index):
        return bytes([index]) * (60_000 + index)

    def store(self):
        for index in range(OBJECTS):
            with open(self.cluster.path("object"), "wb") as file:
                file.write(self.body(index))
            self.cluster.run("rados", "-p", "attic", "put", f"object-{index}", self.cluster.path("object"))

    def read(self, step=1):
        path = self.cluster.path("object")
        for index in range(0, OBJECTS, step):
            self.cluster.run("rados", "-p", "attic", "get", f"object-{index}", path)
            with open(path, "rb") as file:
                assert file.read() == self.body(index), f"object-{index} is not what was stored"

    # The load.

    def load_argv(self, seconds, rate, writes):
        numbers = [str(number) for number in (seconds, rate, writes, self.images)]
        return [sys.executable, LOAD, self.cluster.conf, "attic", "run", *numbers]

    def load(self, what, writes):
        """A load, its figures printed; what is stored by it is read by the next."""
        said = self.cluster.run(*self.load_argv(self.load_s, self.rate, writes), timeout=self.load_s + 600)
        return self.loaded(what, writes, said)

    def loaded(self, what, writes, said):
        found = json.loads(said)
        self.images = found["objects"]
        print(f"load: {what}, {writes // 10} % writes: " + ", ".join(f"{key} {found[key]}" for key in
              ("requests", "rate", "mean", "p50", "p99", "p99.9", "max")), flush=True)
        assert not found["failed"], found
        return found

    def shape(self):
        """What a conversion changes and a reversion restores."""
        tree = self.cluster.json("osd", "tree")["nodes"]
        osds = {node["name"]: (node["device_class"], node["primary_affinity"], node["status"], node["reweight"])
                for node in tree if node["type"] == "osd"}
        pools = {pool["pool_name"]: (pool["crush_rule"], pool["flags_names"])
                 for pool in self.cluster.json("osd", "pool", "ls", "detail")}
        rules = sorted(rule["rule_name"] for rule in self.cluster.json("osd", "crush", "rule", "dump"))
        dbs = {osd["id"]: osd["bluefs_dedicated_db"] for osd in self.cluster.json("osd", "metadata")}
        return osds, pools, rules, dbs

    def counters(self):
        """What the kernel was asked of each cold drive."""
        found = {}
        for osd in range(HOSTS, OSDS):
            (device,) = self.cluster.loops(osd)
            with open(f"/sys/block/{os.path.basename(device)}/stat", encoding="utf-8") as file:
                found[osd] = file.read().split()
        return found

    def wait_asleep(self):
        def is_so():
            if self.agent.poll() is not None:
                raise RuntimeError(f"the agent ended: {self.agent.stderr.read()}")
            return all(drive["phase"] == "asleep" for drive in self.larder.status())
        path = os.path.join(self.larder.state, "agent.record")
        self.cluster.wait("an agent's record", lambda: os.path.exists(path))
        self.cluster.wait("every cold drive asleep", is_so)

    # The tests.

    def a_plan_names_what_can_go_cold(self):
        plan = self.larder.plan()
        roles = {osd["osd"]: osd["role"] for osd in plan["osds"]}
        assert roles == {0: "hot", 1: "hot", 2: "hot", 3: "goes_cold", 4: "goes_cold", 5: "goes_cold"}, roles
        pools = {pool["pool"]: pool["new_rule"] for pool in plan["pools"]}
        assert pools == {"attic": "larder-hot-primary", "device_health_metrics": "larder-hot-only"}, pools
        print(self.larder.run("plan"), end="")
        self.before = self.shape()

    def dumps_give_the_same_plan(self):
        folder = self.cluster.path("dumps")
        os.makedirs(folder)
        for name in ["osd-dump", "osd-crush-dump", "osd-df", "osd-metadata", "pg-dump"]:
            with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
                file.write(self.cluster.ceph(*name.split("-"), "--format", "json"))
        # Writes are counted by the day, and the dumps are younger.
        live, dumped = ({**plan, "osds": None, "writes": None,
                         "warnings": [text for text in plan["warnings"] if " writes a day" not in text]}
                        for plan in (self.larder.plan(), self.larder.plan("--dumps", folder)))
        assert live == dumped, (live, dumped)

    def an_erasure_coded_pool_over_all_drives_is_refused(self):
        ceph = self.cluster.ceph
        ceph("osd", "erasure-code-profile", "set", "two-one", "k=2", "m=1")
        ceph("osd", "pool", "create", "coded", "4", "erasure", "two-one")
        plan = self.larder.plan(code=1)
        reasons = plan["reasons"]
        assert any("pool coded: it is erasure coded in 3 shards" in reason for reason in reasons), reasons
        ceph("osd", "pool", "rm", "coded", "coded", "--yes-i-really-really-mean-it")
        ceph("osd", "crush", "rule", "rm", "coded")
        self.cluster.wait_clean()

    def a_pool_waits_for_its_osds(self):
        said = self.larder.change("convert", "pool/attic", "--apply", code=1)
        assert "convert more OSDs first" in said, said
        assert not os.path.exists(self.larder.state)

    def without_apply_nothing_is_done(self):
        said = self.larder.change("convert", "osd.3")
        assert "osd destroy 3 --yes-i-really-mean-it" in said and "nothing was changed" in said, said
        assert self.shape() == self.before

    def a_conversion_that_is_killed_goes_on(self):
        killed = self.larder.popen("convert", "osd.3", "--db", str(DB_BYTES), "--state", self.larder.state, "--apply",
                                   *self.larder.host)
        for line in killed.stdout:
            if "osd destroy" in line:
                break
        self.cluster.wait("osd.3 destroyed", lambda: self.shape()[0]["osd.3"][2] == "destroyed")
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        said = self.larder.change("convert", "osd.3", "--apply")
        assert "osd destroy" not in said and "osd-create 3" in said, said
        self.read(5)

    def osds_and_pools_are_converted(self):
        for what in ["osd.4", "osd.5", "pool/attic", "pool/device_health_metrics"]:
            said = self.larder.change("convert", what, "--apply")
            assert "done; every placement group is active+clean" in said, said
        osds, _, _, dbs = self.shape()
        assert all(osds[name][:2] == ("cold", 0) for name in COLD), osds
        assert [dbs[osd] for osd in range(HOSTS, OSDS)] == ["1"] * (OSDS - HOSTS), dbs
        assert all(pg["acting"][0] < HOSTS for pg in self.cluster.json("pg", "dump", "pgs")["pg_stats"])
        plan = self.larder.plan()
        assert not [pool for pool in plan["pools"] if pool["new_rule"]], plan
        assert [osd["role"] for osd in plan["osds"]] == ["hot"] * 3 + ["cold"] * 3, plan
        self.read()

    def a_load_on_an_ordinary_cluster(self):
        self.cluster.run(sys.executable, LOAD, self.cluster.conf, "attic", "fill", str(self.images), timeout=600)
        while self.load("ordinary", 0)["mean"] >= MEAN_MS_MAX and self.rate > 10:
            self.rate //= 2
        self.load("ordinary", WRITES)

    def idle_drives_fall_asleep(self):
        self.agent = self.larder.popen(*self.larder.agent_argv())
        self.wait_asleep()
        assert "noscrub,nodeep-scrub" in self.shape()[1]["attic"][1]
        said = self.larder.run("agent", "--release", "--state", self.larder.state, code=1)
        assert "an agent runs on this host" in said, said

    def nothing_wakes_them(self):
        asleep = self.counters()
        for _ in range(2):
            self.read()
        self.cluster.run("rados", "-p", "attic", "ls")
        for index in range(0, OBJECTS, 4):
            self.cluster.run("rados", "-p", "attic", "stat", f"object-{index}")
        time.sleep(self.idle_s)
        assert self.counters() == asleep, (asleep, self.counters())
        drives = self.larder.status()
        assert all((drive["phase"], drive["other_wakes"]) == ("asleep", 0) for drive in drives), drives
        print(f"cold drives: no I/O in {self.idle_s} s with {2 * OBJECTS} reads, a listing and stats")

    def a_load_of_reads_does_not_wake_them(self):
        asleep = self.counters()
        found = self.load("cold drives asleep", 0)
        assert self.counters() == asleep, (asleep, self.counters())
        print(f"cold drives: no I/O under {found['requests']} requests")

    def a_load_with_writes_does_and_is_served(self):
        self.load("converted", WRITES)
        self.wait_asleep()

    def shallow_scrubs_do_not_wake_them(self):
        asleep = self.counters()
        self.scrub("scrub")
        time.sleep(10)
        assert self.counters() == asleep, (asleep, self.counters())
        print("cold drives: no I/O under a shallow scrub of each placement group")

    def scrub(self, way):
        """Scrubs every placement group of the pool in that way, and waits for the end."""
        before = self.scrubbed(way)
        for name in before:
            self.cluster.ceph("pg", way, name)
        self.cluster.wait(f"{way} of all", lambda: self.is_scrubbed_since(before, way))

    def is_scrubbed_since(self, before, way):
        return all(before[pg] != stamp for pg, stamp in self.scrubbed(way).items())

    def scrubbed(self, way):
        field = {"scrub": "last_scrub_stamp", "deep-scrub": "last_deep_scrub_stamp"}[way]
        return {pg["pgid"]: pg[field] for pg in self.cluster.json("pg", "ls-by-pool", "attic")["pg_stats"]}

    def a_write_wakes_them_and_they_sleep_again(self):
        self.store()
        self.cluster.wait("a wake is counted", lambda: any(drive["other_wakes"] for drive in self.larder.status()), 30)
        self.wait_asleep()

    def a_failed_hot_osd_wakes_them_and_reads_go_on(self):
        self.cluster.stop("osd.0", signal.SIGKILL)
        self.cluster.wait("osd.0 down", lambda: self.shape()[0]["osd.0"][2] == "down")
        self.read(3)
        self.cluster.start_osd(0)
        self.cluster.wait_clean()
        self.read(3)
        self.wait_asleep()

    def a_hot_osd_lost_under_load_is_recovered_from_cold_drives(self):
        def is_recovered():
            pgs = self.cluster.json("pg", "ls-by-pool", "attic")["pg_stats"]
            return all(pg["state"] == "active+clean" and 0 not in pg["acting"] for pg in pgs)
        load = subprocess.Popen(self.load_argv(self.load_s + 60, self.rate, 0), env=self.cluster.environment, text=True,
                                stdout=subprocess.PIPE)
        time.sleep(10)
        before, started = self.counters(), time.monotonic()
        self.cluster.stop("osd.0", signal.SIGKILL)
        self.cluster.wait("osd.0 down", lambda: self.shape()[0]["osd.0"][2] == "down")
        self.cluster.ceph("osd", "out", "0")
        self.cluster.wait("recovery", is_recovered)
        took_s = time.monotonic() - started
        reads = sum(int(self.counters()[osd][READS]) - int(before[osd][READS]) for osd in before)
        said, _ = load.communicate(timeout=600)
        print(f"osd.0 killed and out: recovered after {took_s:.0f} s, {reads} reads of cold drives")
        self.loaded("a hot OSD lost", 0, said)
        assert reads > 0, "its first copies can come from cold drives alone"
        self.wait_asleep()
        self.cluster.start_osd(0)
        self.cluster.ceph("osd", "in", "0")
        self.cluster.wait_clean()
        self.wait_asleep()

    def nothing_new_sleeps_while_a_monitor_hangs(self):
        def phases():
            return {drive["phase"] for drive in self.larder.status()}
        # Another agent, for which all drives turn, and which has looked once: nothing sleeps for 40 s.
        self.agent.terminate()
        self.agent.communicate(timeout=300)
        self.agent = self.larder.popen(*self.larder.agent_argv("40 s"))
        self.cluster.wait("its first look", lambda: phases() == {"spinning"})
        self.cluster.send("mon.a", signal.SIGSTOP)
        try:
            for _ in range(30):
                time.sleep(2)
                assert self.agent.poll() is None, self.agent.stderr.read()
                assert phases() == {"spinning"}, phases()
            started = time.monotonic()
            self.agent.terminate()
            _, said = self.agent.communicate(timeout=300)
            print(f"an agent asked to end while the monitor hangs ends after {time.monotonic() - started:.0f} s")
            assert self.agent.returncode == 1 and "larder ceph agent --release" in said, said
        finally:
            self.cluster.send("mon.a", signal.SIGCONT)
        self.cluster.wait_clean()
        self.larder.run("agent", "--release", "--state", self.larder.state)
        assert "scrub" not in self.shape()[1]["attic"][1]
        self.agent = self.larder.popen(*self.larder.agent_argv())
        self.wait_asleep()

    def a_pool_that_is_made_later_is_taken_as_well(self):
        self.cluster.ceph("osd", "pool", "create", "later", "1")
        self.cluster.wait("its flags", lambda: "nodeep-scrub" in self.shape()[1]["later"][1])
        self.cluster.ceph("osd", "pool", "rm", "later", "later", "--yes-i-really-really-mean-it")
        self.cluster.wait_clean()

    def a_killed_agent_leaves_an_ordinary_cluster(self):
        self.agent.send_signal(signal.SIGKILL)
        self.agent.communicate()
        self.store()
        self.read(5)
        self.larder.run("agent", "--release", "--host", os.uname().nodename, "--state", self.larder.state)
        assert "scrub" not in self.shape()[1]["attic"][1]

    def deep_scrubs_go_on_while_an_agent_runs(self):
        before = self.scrubbed("deep-scrub")
        self.agent = self.larder.popen(*self.larder.agent_argv(), "--deep-scrub-every", "30 s")
        self.cluster.wait("deep scrubs of all", lambda: self.is_scrubbed_since(before, "deep-scrub"))
        assert "noscrub,nodeep-scrub" in self.shape()[1]["attic"][1]

    def an_agent_that_ends_gives_its_windows_back(self):
        self.agent.terminate()
        _, said = self.agent.communicate(timeout=120)
        assert self.agent.returncode == 0, said
        assert "scrub" not in self.shape()[1]["attic"][1], said
        assert not [key for key in self.cluster.json("config-key", "ls") if key.startswith("larder/")]

    def costs(self):
        return {drive["osd"]: drive["held_cost"] for drive in self.larder.status()}

    def fall_asleep_in_hold_mode(self):
        self.agent = self.larder.popen(*self.larder.agent_argv(), "--hold", HOLD)
        self.wait_asleep()
        return self.counters()

    def in_hold_mode_writes_wake_nothing_until_they_are_enough(self):
        asleep, started = self.fall_asleep_in_hold_mode(), time.monotonic()
        before = {drive["osd"]: drive for drive in self.larder.status()}
        self.store()
        self.read(10)
        self.cluster.wait("what is held is seen", lambda: all(self.costs().values()), 60)
        self.scrub("scrub")
        time.sleep(10)
        assert self.counters() == asleep, (asleep, self.counters())
        took_s, costs = time.monotonic() - started, self.costs()
        print(f"hold mode: no I/O of cold drives in {took_s:.0f} s with {OBJECTS} writes and shallow scrubs: {costs}")
        print(self.larder.run("agent", "--status", "--state", self.larder.state), end="")
        self.cluster.run(sys.executable, LOAD, self.cluster.conf, "attic", "fill", str(HELD_IMAGES), timeout=600)

        def is_woken():
            return all(drive["own_wakes"] > before[drive["osd"]]["own_wakes"] for drive in self.larder.status())
        self.cluster.wait("every drive woken for what is held", is_woken)
        self.cluster.wait("all of it written", lambda: not any(self.costs().values()))
        self.wait_asleep()
        after = self.counters()
        done = {osd: int(after[osd][WRITTEN]) - int(asleep[osd][WRITTEN]) for osd in after}
        print(f"hold mode: one wake each, writes to the cold drives: {done}")
        for drive in self.larder.status():
            wakes = drive["own_wakes"], drive["other_wakes"]
            assert wakes == (before[drive["osd"]]["own_wakes"] + 1, before[drive["osd"]]["other_wakes"]), drive

    def what_is_held_survives_a_killed_agent_and_a_killed_osd(self):
        asleep = self.counters()
        self.store()
        self.cluster.wait("what is held is seen", lambda: all(self.costs().values()), 60)
        self.agent.send_signal(signal.SIGKILL)
        self.agent.communicate()
        assert self.counters() == asleep, (asleep, self.counters())
        self.cluster.stop("osd.3", signal.SIGKILL)
        self.cluster.wait("osd.3 down", lambda: self.shape()[0]["osd.3"][2] == "down")
        self.cluster.start_osd(3)
        self.cluster.wait_clean()
        self.cluster.wait("osd.3 writes as an ordinary one", lambda: not self.is_held(3), 60)
        assert self.is_held(4) and self.is_held(5), "the others hold on"
        self.larder.run("agent", "--release", "--state", self.larder.state)
        self.cluster.wait("all of it written", lambda: not any(self.is_held(osd) for osd in range(HOSTS, OSDS)), 60)
        options = [self.cluster.json("tell", osd, "config", "get", "bluestore_max_defer_interval") for osd in COLD]
        assert options == [{"bluestore_max_defer_interval": "3.000000"}] * len(COLD), options
        assert not [key for key in self.cluster.json("config-key", "ls") if key.startswith("larder/")]
        self.scrub("deep-scrub")
        self.cluster.wait_clean()
        assert "inconsistent" not in self.cluster.ceph("health", "detail")
        self.read()

    def is_held(self, osd):
        name = "throttle-bluestore_throttle_deferred_bytes"
        return self.cluster.json("tell", f"osd.{osd}", "perf", "dump", name)[name]["val"] > 0

    def an_osd_is_not_reverted_from_under_a_pool(self):
        self.larder.change("revert", "osd.3", "--apply")
        said = self.larder.change("revert", "osd.4", "--apply", code=1)
        assert "revert pool/attic" in said, said

    def all_is_reverted(self):
        for what in ["pool/attic", "pool/device_health_metrics", "osd.4", "osd.5"]:
            self.larder.change("revert", what, "--apply")
        assert self.shape() == self.before, (self.before, self.shape())
        records = [name for name in os.listdir(self.larder.state) if name.endswith(".record")]
        assert records == ["agent.record"], records
        self.read()

    TESTS = [a_plan_names_what_can_go_cold, dumps_give_the_same_plan, an_erasure_coded_pool_over_all_drives_is_refused,
             without_apply_nothing_is_done, a_pool_waits_for_its_osds, a_load_on_an_ordinary_cluster,
             a_conversion_that_is_killed_goes_on, osds_and_pools_are_converted, idle_drives_fall_asleep,
             nothing_wakes_them, a_load_of_reads_does_not_wake_them, a_load_with_writes_does_and_is_served,
             shallow_scrubs_do_not_wake_them, a_write_wakes_them_and_they_sleep_again,
             a_failed_hot_osd_wakes_them_and_reads_go_on, a_hot_osd_lost_under_load_is_recovered_from_cold_drives,
             nothing_new_sleeps_while_a_monitor_hangs, a_pool_that_is_made_later_is_taken_as_well,
             a_killed_agent_leaves_an_ordinary_cluster, deep_scrubs_go_on_while_an_agent_runs,
             an_agent_that_ends_gives_its_windows_back, in_hold_mode_writes_wake_nothing_until_they_are_enough,
             what_is_held_survives_a_killed_agent_and_a_killed_osd, an_osd_is_not_reverted_from_under_a_pool,
             all_is_reverted]

    def begin(self):
        self.cluster.make()
        self.cluster.ceph("osd", "pool", "create", "attic", "16")
        self.cluster.ceph("osd", "pool", "application", "enable", "attic", "rados")
        self.cluster.wait_clean()
        self.store()
        self.cluster.wait("the manager's count of objects", self.has_stored)

    def has_stored(self):
        pgs = self.cluster.json("pg", "dump", "pgs")["pg_stats"]
        return sum(pg["stat_sum"]["num_objects"] for pg in pgs) >= OBJECTS

    def end(self):
        if self.agent is not None and self.agent.poll() is None:
            self.agent.kill()
            self.agent.communicate()
        self.cluster.end()


def main():
    binary = os.path.abspath(sys.argv[1])
    idle_s, load_s = (int(os.environ.get(f"LARDER_CEPH_{name}_S", default))
                      for name, default in (("IDLE", 300), ("LOAD", 60)))
    return tell("ceph", f"a cluster of {OSDS} OSDs", lambda folder: Story(binary, folder, idle_s, load_s))


if __name__ == "__main__":
    sys.exit(main())
