"""A Larder server of our own for a comparison, and what it says of itself while the pipeline runs."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse

from store import S3Store

BUCKET = "seismic"
# Above this share the workshop has to move objects to the rack, and moves them until it is at its regular share.
CRITICAL_SHARE = 0.8
# A season passes in minutes instead of weeks. So groups may sleep after seconds, and nothing is old enough to move
# before it must: above the critical threshold.
SETTINGS = """\
listen = "127.0.0.1:0"
idle_timeout = "5 s"
starts_per_day = 10000
time_scale = {time_scale}

[workshop]
capacity = "{capacity}"
spool = "{spool}"
regular = 0.3
critical = {critical}

[migrate]
min_age = "1 h"
scan_interval = "1 s"
order = "{order}"
"""
# What lies below a prefix stays in the workshop; all else moves as [migrate] says.
HOT = """
[thermometer]
default = "cold"

[[thermometer.rule]]
is = "hot"
prefix = "{hot}"
"""


def staged_share(status):
    """The share of the workshop's room that is taken."""
    return status["workshop"]["staged_bytes"] / status["workshop"]["capacity_bytes"]


class UnixConnection(http.client.HTTPConnection):
    """HTTP on a socket in the file system."""

    def __init__(self, path):
        super().__init__("larder", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Rack:
    """A server on a fresh data directory, for a `with` statement."""

    def __init__(self, binary, data, rack, hot=None, **settings):
        self.binary, self.data = binary, data
        subprocess.run([binary, "init", "--rack", rack, "--data", data], check=True, capture_output=True)
        with open(os.path.join(data, "larder.toml"), "w", encoding="utf-8") as file:
            file.write(SETTINGS.format(critical=CRITICAL_SHARE, **settings) + (HOT.format(hot=hot) if hot else ""))

    def __enter__(self):
        with open(f"{self.data}.log", "wb") as log:
            command = [self.binary, "serve", "--data", self.data]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            self.endpoint = None
            for line in self.process.stdout:
                found = [word for word in line.replace("=", " ").split() if word.startswith("http://")]
                self.endpoint = self.endpoint or (found[0] if found else None)
                if line == "ready\n":
                    break
            else:
                raise RuntimeError(f"the server has ended; see {self.data}.log")
            self.until_asleep()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ask(self, path):
        connection = UnixConnection(os.path.join(self.data, "admin.sock"))
        try:
            connection.request("GET", path)
            return json.load(connection.getresponse())
        finally:
            connection.close()

    def status(self):
        return self.ask("/status")

    def place(self, key):
        """Where an object lies: `workshop`, `spool` or `rack`."""
        place = self.ask("/explain?" + urllib.parse.urlencode({"bucket": BUCKET, "key": key}))["place"]
        return "spool" if place.get("recalled") else place["where"]

    def until_asleep(self):
        """Waits until every group was woken for the first time, nothing moves or has to, and all drives sleep."""
        while True:
            status = self.status()
            drives, groups = status["drives"], status["groups"]
            is_quiet = drives["moving"] + drives["ready"] + status["workshop"]["migrations_under_way"] == 0
            has_room = staged_share(status) <= CRITICAL_SHARE
            if is_quiet and has_room and groups["initialised"] == groups["total"]:
                return
            time.sleep(0.2)

    def store(self):
        with open(os.path.join(self.data, "credentials"), encoding="ascii") as file:
            lines = [line.strip() for line in file if line.startswith("export ")]
        keys = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        return S3Store(BUCKET, endpoint_url=self.endpoint, region_name="us-east-1",
                       aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
                       aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"])


class Watch:
    """Counts what a run of the pipeline meets in a rack: where the bytes lay that it read, and what the rack spent."""

    def __init__(self, rack):
        self.rack, self.before = rack, rack.status()["totals"]
        # By the first part of the key: raw files, picks.
        self.places = {}
        self.crossings, self.peak, self.is_critical = 0, 0.0, False

    def before_get(self, key):
        of = self.places.setdefault(key.split("/")[0], {"workshop": 0, "spool": 0, "rack": 0})
        of[self.rack.place(key)] += 1

    def after_put(self, _):
        share = staged_share(self.rack.status())
        self.crossings += share > CRITICAL_SHARE and not self.is_critical
        self.is_critical = share > CRITICAL_SHARE
        self.peak = max(self.peak, share)

    def night(self):
        self.rack.until_asleep()

    def report(self):
        after = self.rack.status()["totals"]
        return {
            "reads_from": self.places,
            "crossings": self.crossings,
            "peak_share": self.peak,
            "group_wakes": sum(after["group_wakes"]) - sum(self.before["group_wakes"]),
            "client_wakes": after["group_wakes"][0] - self.before["group_wakes"][0],
            "drive_starts": after["drive_starts"] - self.before["drive_starts"],
            "migrated_bytes": after["migrated_bytes"] - self.before["migrated_bytes"],
        }
