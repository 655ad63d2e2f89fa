"""The small Ceph cluster with an RGW before it: OSDs 3 to 5 are cold from the beginning, and the storage class COLD
lies in a pool of its own."""

import os
import shutil
import signal
import time

from cluster import DB_BYTES, HOSTS, OSDS, Cluster, Unavailable, free_port

COLD_POOL = "default.rgw.buckets.cold"
HOT_POOLS = [".rgw.root", "default.rgw.log", "default.rgw.control", "default.rgw.meta", "default.rgw.buckets.index",
             "default.rgw.buckets.data", "default.rgw.buckets.non-ec"]
KEYS = ("ACCESS", "SECRET")


class ColdCluster(Cluster):
    """Its hard drives are cold: `block.db` on a hot device, a class of their own, primary affinity 0."""

    def create_osd(self, osd, db_bytes=0):
        return super().create_osd(osd, DB_BYTES if osd >= HOSTS else 0)

    def make(self):
        super().make()
        for osd in range(HOSTS, OSDS):
            self.ceph("osd", "crush", "rm-device-class", f"osd.{osd}")
            self.ceph("osd", "crush", "set-device-class", "cold", f"osd.{osd}")
            self.ceph("osd", "primary-affinity", f"osd.{osd}", "0")
        self.ceph("osd", "crush", "rule", "create-replicated", "hot", "default", "host", "ssd")
        self.ceph("osd", "pool", "set", "device_health_metrics", "crush_rule", "hot")

    def counters(self):
        """What the kernel was asked of each cold drive: reads, bytes read, writes, bytes written, flushes."""
        found = {}
        for osd in range(HOSTS, OSDS):
            (device,) = self.loops(osd)
            with open(f"/sys/block/{os.path.basename(device)}/stat", encoding="utf-8") as file:
                words = [int(word) for word in file.read().split()]
            found[osd] = (words[0], words[2] * 512, words[4], words[6] * 512, words[15] if len(words) > 15 else 0)
        return found

    def moved(self, before):
        """The sum over the cold drives of what was asked since `before`."""
        now = self.counters()
        return tuple(sum(now[osd][field] - before[osd][field] for osd in now) for field in range(5))


class Gateway(ColdCluster):
    def make(self):
        if shutil.which("radosgw") is None:
            raise Unavailable("radosgw not found; apt-get install radosgw")
        super().make()
        for pool in [*HOT_POOLS, COLD_POOL]:
            rule = "replicated_rule" if pool == COLD_POOL else "hot"
            count = "8" if "data" in pool or pool == COLD_POOL else "4"
            self.ceph("osd", "pool", "create", pool, count, "replicated", rule)
            self.ceph("osd", "pool", "application", "enable", pool, "rgw")
        access, secret = KEYS
        self.admin("user", "create", "--uid", "larder", "--display-name", "Larder", "--access-key", access,
                   "--secret-key", secret)
        where = ["--placement-id", "default-placement", "--storage-class", "COLD"]
        self.admin("zonegroup", "placement", "add", "--rgw-zonegroup", "default", *where)
        self.admin("zone", "placement", "add", "--rgw-zone", "default", *where, "--data-pool", COLD_POOL)
        self.run("radosgw", "-n", "client.rgw.a")
        self.environment.update(AWS_ACCESS_KEY_ID=access, AWS_SECRET_ACCESS_KEY=secret)

    def configuration(self, fsid, port):
        self.port = free_port()
        # Monitors are spoken to in the clear, since there are no keys. A day of lifecycle is of 10 s.
        lines = ["[client]", "rgw_lc_debug_interval = 10", "[client.rgw.a]",
                 f"rgw_frontends = beast endpoint=127.0.0.1:{self.port}",
                 f"log_file = {self.folder}/rgw.log", f"pid_file = {self.path('run')}/rgw.a.pid",
                 f"rgw_data = {self.path('rgw')}", "ms_mon_client_mode = crc",
                 "rgw_enable_apis = s3, admin"]
        return super().configuration(fsid, port) + "\n".join(lines) + "\n"

    def admin(self, *argv):
        return self.run("radosgw-admin", *argv)

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def end(self):
        self.stop_gateway()
        super().end()

    def stop_gateway(self):
        try:
            with open(self.path("run", "rgw.a.pid"), encoding="utf-8") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                if not file.read().startswith("radosgw"):
                    return
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        except (OSError, ValueError):
            return
