#!/usr/bin/env python3
"""A small Ceph cluster on this machine, on 127.0.0.1: one monitor, one manager, six OSDs on three "hosts".

OSDs 0 to 2 are of class `ssd`, in files; 3 to 5 of class `hdd`, on loop devices, so that the kernel counts what is
asked of them. usage: cluster.py DIR osd-stop ID | osd-create ID [DB_BYTES] | osd-start ID, for `larder ceph convert`,
which has other means to do that where drives are real."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

HOSTS = 3
OSDS = 6
BLOCK_BYTES = 4 << 30
# Of a `block.db`. The first log of RocksDB has 282 MiB from the beginning, and lies on the cold drive if it finds no
# room.
DB_BYTES = 2 << 30
PROGRAMS = ["ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "crushtool", "monmaptool", "losetup"]


class Unavailable(Exception):
    """What a cluster needs is not on this machine."""


def missing():
    return [program for program in PROGRAMS if shutil.which(program) is None]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.conf = os.path.join(self.folder, "ceph.conf")
        self.environment = dict(os.environ, CEPH_CONF=self.conf)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run(self, *argv, timeout=60, check=True):
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def ceph(self, *argv):
        return self.run("ceph", "--connect-timeout", "20", *argv)

    def json(self, *argv):
        return json.loads(self.ceph(*argv, "--format", "json"))

    # Making and ending it.

    def make(self):
        if missing():
            raise Unavailable(f"{', '.join(missing())} not found; apt-get install ceph-mon ceph-mgr ceph-osd ceph")
        os.makedirs(self.path("run"))
        fsid, port = str(uuid.uuid4()), free_port()
        with open(self.conf, "w", encoding="utf-8") as file:
            file.write(self.configuration(fsid, port))
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{port}]", self.path("monmap"))
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", self.path("monmap"))
        self.daemon("ceph-mon", "a")
        os.makedirs(self.path("mgr.x"))
        self.daemon("ceph-mgr", "x")
        for osd in range(OSDS):
            self.create_osd(osd)
            self.start_osd(osd)
        for osd in range(OSDS):
            self.ceph("osd", "crush", "set-device-class", "ssd" if osd < HOSTS else "hdd", f"osd.{osd}")

    def configuration(self, fsid, port):
        lines = ["[global]", f"fsid = {fsid}", f"mon_host = [v2:127.0.0.1:{port}]",
                 "auth_cluster_required = none", "auth_service_required = none", "auth_client_required = none",
                 "ms_bind_msgr1 = false", "osd_crush_update_on_start = true",
                 "osd_class_update_on_start = false", "osd_pool_default_pg_autoscale_mode = off",
                 "osd_pool_default_size = 3", "osd_pool_default_min_size = 1", "mon_allow_pool_delete = true",
                 "mon_warn_on_pool_no_redundancy = false", "mon_data_avail_crit = 1", "mon_data_avail_warn = 1",
                 "osd_memory_target = 1073741824", "osd_op_num_shards = 2", "bluestore_cache_size = 33554432",
                 "bluefs_alloc_size = 65536", "bluestore_block_db_create = true", "bluestore_fsck_on_mount = false",
                 f"bluestore_block_size = {BLOCK_BYTES}", "bluestore_block_create = true",
                 "osd_max_backfills = 8", "osd_recovery_max_active = 16", "osd_recovery_sleep = 0",
                 "osd_scrub_sleep = 0", "paxos_propose_interval = 0.2", "mgr_stats_period = 1", "mgr_tick_period = 1",
                 f"run_dir = {self.path('run')}", f"admin_socket = {self.path('run')}/$cluster-$name.asok",
                 f"log_file = {self.folder}/$cluster-$name.log", f"pid_file = {self.path('run')}/$name.pid",
                 f"crash_dir = {self.folder}", f"mon_data = {self.path('mon.a')}", f"mgr_data = {self.path('mgr.x')}",
                 f"osd_data = {self.folder}/osd.$id", "run_as_user =", "log_to_stderr = false", "err_to_stderr = true",
                 # Several clients at once are of this name.
                 "[client.admin]", "admin_socket =",
                 "[mgr]", "public_addr = 127.0.0.1", "[osd]", "public_addr = 127.0.0.1", "cluster_addr = 127.0.0.1"]
        for osd in range(OSDS):
            lines += [f"[osd.{osd}]", f"crush_location = root=default host=host-{osd % HOSTS}"]
        return "\n".join(lines) + "\n"

    def daemon(self, program, name):
        # Detached by itself, and known by the pid file that it writes.
        self.run(program, "-i", name)

    def create_osd(self, osd, db_bytes=0):
        """An OSD of its own, empty; on a loop device if it is of class `hdd`."""
        folder, osd_uuid = self.path(f"osd.{osd}"), str(uuid.uuid4())
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        if osd >= HOSTS:
            os.symlink(self.loop(osd), os.path.join(folder, "block"))
        known = {node["id"] for node in self.json("osd", "tree")["nodes"] if node["type"] == "osd"}
        self.ceph("osd", "new", osd_uuid, str(osd))
        more = [f"--bluestore-block-db-size={db_bytes}"] if db_bytes else ["--bluestore-block-db-create=false"]
        self.run("ceph-osd", "-i", str(osd), "--mkfs", "--osd-uuid", osd_uuid, *more)
        return osd in known

    def loop(self, osd):
        """The loop device of an OSD, empty."""
        image = self.path(f"disk.{osd}")
        for device in self.loops(osd):
            self.run("losetup", "-d", device)
        with open(image, "wb") as file:
            file.truncate(BLOCK_BYTES)
        device = self.run("losetup", "--find", "--show", image).strip()
        return device

    def loops(self, osd):
        """The loop devices over an OSD's image: none or one."""
        listed = json.loads(self.run("losetup", "--json", "--list") or '{"loopdevices": []}')["loopdevices"]
        return [loop["name"] for loop in listed if loop["back-file"].split(" ")[0] == self.path(f"disk.{osd}")]

    def start_osd(self, osd):
        self.daemon("ceph-osd", str(osd))

    def send(self, name, sign):
        """Sends a signal to a daemon of this cluster."""
        with open(self.path("run", f"{name}.pid"), encoding="utf-8") as file:
            os.kill(int(file.read()), sign)

    def stop(self, name, sign=signal.SIGTERM):
        """Ends a daemon, which is one of this cluster by its pid file and its command line."""
        try:
            with open(self.path("run", f"{name}.pid"), encoding="utf-8") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                if not file.read().startswith("ceph-"):
                    return
            os.kill(pid, sign)
        except (OSError, ValueError):
            return
        for _ in range(200):
            if not os.path.exists(f"/proc/{pid}"):
                return
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)

    def end(self):
        for name in [*(f"osd.{osd}" for osd in range(OSDS)), "mgr.x", "mon.a"]:
            self.stop(name, signal.SIGKILL)
        for osd in range(HOSTS, OSDS):
            for device in self.loops(osd):
                self.run("losetup", "-d", device, check=False)

    # Looking at it.

    def is_clean(self):
        status = self.json("status")
        states = status["pgmap"].get("pgs_by_state", [])
        return bool(states) and all(state["state_name"].startswith("active+clean") for state in states)

    def wait(self, what, is_so, timeout=300):
        deadline = time.monotonic() + timeout
        while not is_so():
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {timeout} s not yet: {what}; {self.ceph('status')}")
            time.sleep(0.5)

    def wait_clean(self, timeout=300):
        self.wait("every placement group active+clean", self.is_clean, timeout)


def main():
    folder, action, osd, *rest = sys.argv[1:]
    cluster, osd = Cluster(folder), int(osd)
    if action == "osd-stop":
        cluster.stop(f"osd.{osd}")
    elif action == "osd-create":
        cluster.create_osd(osd, int(rest[0]) if rest else 0)
        cluster.start_osd(osd)
    elif action == "osd-start":
        cluster.start_osd(osd)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
