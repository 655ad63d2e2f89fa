#!/usr/bin/env python3
"""Measures how long clients wait for an object in a group that takes a minute, or two and a half, to wake.

    LARDER_BINARY=target/release/larder python tests/clients/patience.py [--max-wait "4 min"] [--wake 60] [CLIENT ...]

Each client asks a server of its own, whose drives sleep, for one object of 300 kB, once with its own settings and once
with those that docs/howto/clients.md recommends. The table has the result of each and the seconds until it was there.
A client that this machine has not got is named and left out.
"""

import argparse
import concurrent.futures
import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "system"))

import harness  # noqa: E402
from programs import BODY, BUCKET, BYTES, KEY, PATH, PROGRAMS, Missing, tool  # noqa: E402

# Nobody waits longer than this for one object.
END_S = 1200

PYTHON = {
    "boto3": """
import boto3, botocore.config
s3 = boto3.client("s3", endpoint_url=ENDPOINT, config=botocore.config.Config(**TUNED))
got = len(s3.get_object(Bucket=BUCKET, Key=KEY)["Body"].read())
""",
    "duckdb": """
import duckdb
database = duckdb.connect()
database.execute(f"load '{HTTPFS}'")
database.execute("set enable_progress_bar = false")
for name, value in TUNED.items():
    database.execute(f"set {name} = {value}")
database.execute(f"create secret (type s3, key_id '{ACCESS}', secret '{SECRET}', endpoint '{ADDRESS}', "
                 "url_style 'path', use_ssl false, region 'us-east-1')")
got = 6 * database.execute(f"select count(*) from read_csv('s3://{BUCKET}/{KEY}', header = false)").fetchone()[0]
""",
    "pyarrow": """
import pyarrow.fs as fs
options = dict(TUNED)
if "max_attempts" in options:
    options["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=options.pop("max_attempts"))
s3 = fs.S3FileSystem(access_key=ACCESS, secret_key=SECRET, endpoint_override=ADDRESS, scheme="http",
                     region="us-east-1", **options)
got = len(s3.open_input_stream(f"{BUCKET}/{KEY}").read())
""",
    "polars": """
import polars
options = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "aws_endpoint_url": ENDPOINT,
           "aws_region": "us-east-1", "aws_allow_http": "true", **TUNED}
rows = polars.scan_csv(f"s3://{BUCKET}/{KEY}", has_header=False, storage_options=options)
got = 6 * rows.select(polars.len()).collect().item()
""",
    "minio": """
import minio
client = minio.Minio(ADDRESS, access_key=ACCESS, secret_key=SECRET, secure=False, region="us-east-1")
got = len(client.get_object(bucket_name=BUCKET, object_name=KEY).read())
""",
    "smart_open": """
import boto3, smart_open
client = boto3.client("s3", endpoint_url=ENDPOINT)
with smart_open.open(f"s3://{BUCKET}/{KEY}", "rb", transport_params={"client": client}) as file:
    got = len(file.read())
""",
    "awscrt": """
import awscrt.auth, awscrt.http, awscrt.s3
keys = awscrt.auth.AwsCredentialsProvider.new_static(ACCESS, SECRET)
signing = awscrt.s3.create_default_s3_signing_config(region="us-east-1", credential_provider=keys)
if TUNED:
    TUNED = {"retry_config": awscrt.s3.S3RetryConfig(**TUNED)}
client = awscrt.s3.S3Client(region="us-east-1", tls_mode=awscrt.s3.S3RequestTlsMode.DISABLED, signing_config=signing,
                            **TUNED)
request = awscrt.http.HttpRequest("GET", f"/{BUCKET}/{KEY}", awscrt.http.HttpHeaders([("host", ADDRESS)]))
chunks = []
asked = client.make_request(request=request, type=awscrt.s3.S3RequestType.GET_OBJECT,
                            on_body=lambda chunk, **_: chunks.append(bytes(chunk)))
asked.finished_future.result()
got = len(b"".join(chunks))
""",
}
# What makes a client wait for longer. None: it waits by itself for as long as the server does, or nothing makes it.
TUNED = {
    "aws": {"AWS_RETRY_MODE": "standard", "AWS_MAX_ATTEMPTS": "20"},
    "boto3": {"retries": {"mode": "standard", "total_max_attempts": 20}, "read_timeout": 120},
    "duckdb": {"http_timeout": 120, "http_retries": 20, "http_retry_backoff": 1.5},
    "pyarrow": {"request_timeout": 120, "max_attempts": 20},
    "polars": {"timeout": "120 s", "max_retries": 20, "retry_timeout_ms": 900_000},
    "curl": ["--retry", "20", "--retry-max-time", "900"],
    **{name: program.tuned for name, program in PROGRAMS.items() if program.tuned},
}


def httpfs():
    files = importlib.metadata.files("duckdb_extension_httpfs") or []
    return next(str(file.locate()) for file in files if file.name == "httpfs.duckdb_extension")


# Of addresses of this machine, each with a port 80.
HOST_NUMBERS = itertools.count(2)


class Site:
    """A server on a rack whose groups take so long to wake, on which everything sleeps."""

    def __init__(self, root, name, wake_s, max_wait):
        self.root, self.name = os.path.join(root, f"{name}-{wake_s}"), name
        self.program = PROGRAMS.get(name.removesuffix("-tuned"))
        self.host = f"127.0.0.{next(HOST_NUMBERS)}" if self.program and self.program.is_at_80 else None
        self.into = os.path.join(self.root, "got")
        self.data, self.server = os.path.join(self.root, "data"), None
        self.wake_s, self.max_wait = wake_s, max_wait

    def fall_asleep(self):
        """Starts the server, fills it and waits until all drives sleep."""
        os.makedirs(self.root)
        rack = harness.rack_that_wakes_in(self.wake_s, self.root)
        made = harness.larder("init", "--rack", rack, "--data", self.data)
        assert made.returncode == 0, made.stderr
        self.serve({**harness.BRISK, "time_scale": 100})
        self.fill()
        self.server.until_cold()
        self.server.stop()
        # True to life, and asleep from the beginning.
        lasting = {**harness.BRISK, "time_scale": 1, "migrate.older_than": None, "max_wait": self.max_wait,
                   "journal.wake_after": "never", "scrub.period": "never"}
        if self.program and self.program.is_secured:
            lasting |= self.certificate()
        # At the address that a program may have remembered.
        self.serve(lasting, int(self.server.address.rpartition(":")[2]))
        self.server.until_asleep(timeout=4 * self.wake_s + 60)

    def certificate(self):
        pair = [os.path.join(self.data, name) for name in ("server.pem", "server.key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-out", pair[0], "-keyout", pair[1], "-days", "2", "-subj", "/CN=larder"],
                       check=True, capture_output=True)
        return {"tls.certificate": "server.pem", "tls.key": "server.key"}

    def serve(self, settings, port=0):
        if self.host:
            settings, port = {**settings, "listen": f"{self.host}:80"}, None
        with open(os.path.join(self.data, "larder.toml"), "w", encoding="utf-8") as file:
            file.write(harness.configuration(settings))
        self.server = harness.Server(self.data, "serve", port=port)

    def fill(self):
        self.server.filled({KEY: BODY}, BUCKET)
        if self.program:
            self.program.fill(self)
        if self.name.startswith("restic"):
            for words in (["init"], ["backup", harness.NAS8]):
                subprocess.run([tool("restic"), *words], env=self.environment(), capture_output=True, check=True)

    def environment(self):
        theirs = ("AWS_", "RCLONE_", "RESTIC_", "PGBACKREST_", "GIT_")
        server = self.server
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(theirs)},
            # Some programs start others, or themselves again.
            "PATH": PATH,
            "HOME": self.root,
            "EMAIL": "larder@example.com",
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.path.join(self.root, "none"),
            "RESTIC_REPOSITORY": f"s3:{server.endpoint}/vault",
            "RESTIC_PASSWORD": "pepper",
            "RCLONE_CONFIG": os.path.join(self.root, "none"),
            "RCLONE_CONFIG_LARDER_TYPE": "s3",
            "RCLONE_CONFIG_LARDER_PROVIDER": "Other",
            "RCLONE_CONFIG_LARDER_ENDPOINT": server.endpoint,
            "RCLONE_CONFIG_LARDER_ACCESS_KEY_ID": server.access_key,
            "RCLONE_CONFIG_LARDER_SECRET_ACCESS_KEY": server.secret_key,
        }

    def command(self, client, tuned):
        """The words that ask for the object, and what is added to the environment."""
        into, server = self.into, self.server
        if self.program:
            return self.program.words(self, tuned)
        if client in PYTHON:
            names = {"ENDPOINT": server.endpoint, "ADDRESS": server.address, "ACCESS": server.access_key,
                     "SECRET": server.secret_key, "BUCKET": BUCKET, "KEY": KEY, "TUNED": tuned or {},
                     "HTTPFS": httpfs() if client == "duckdb" else ""}
            lines = [f"{name} = {value!r}" for name, value in names.items()]
            code = "\n".join(lines) + PYTHON[client] + f"assert got == {BYTES}, got\n"
            return [sys.executable, "-c", code], {}
        if client == "aws":
            return [sys.executable, "-m", "awscli", "s3", "cp", f"s3://{BUCKET}/{KEY}", into], tuned or {}
        if client == "rclone":
            return [tool("rclone"), "copyto", f"larder:{BUCKET}/{KEY}", into], {}
        if client == "restic":
            return [tool("restic"), "snapshots", "--no-cache", "--no-lock"], {}
        if client == "s3cmd":
            options = ["--config=/dev/null", f"--host={server.address}", f"--host-bucket={server.address}", "--no-ssl",
                       f"--access_key={server.access_key}", f"--secret_key={server.secret_key}",
                       "--region=us-east-1", "--no-progress"]
            return [tool("s3cmd"), *options, "get", f"s3://{BUCKET}/{KEY}", into], {}
        url = server.client().generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": KEY},
                                                     ExpiresIn=3600)
        return ["curl", "--silent", "--show-error", "--fail", *(tuned or []), "--output", into, url], {}

    def ask(self, client, tuned):
        """The result of the client and the seconds until it was there."""
        words, more = self.command(client, tuned)
        began = time.monotonic()
        try:
            done = subprocess.run(words, env={**self.environment(), **more}, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=END_S)
        except subprocess.TimeoutExpired:
            return "still waits", END_S, ""
        took_s = time.monotonic() - began
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        has_it = done.returncode == 0 and (self.program is None or self.is_made())
        return ("got it" if has_it else "failed"), took_s, said[-1] if said else ""

    def is_made(self):
        made = self.program.makes and os.path.join(self.root, self.program.makes)
        return made is None or (os.path.exists(made) and os.path.getsize(made) >= BYTES)


def version(client):
    if client in PROGRAMS:
        return PROGRAMS[client].version()
    if client in PYTHON or client in ("aws", "s3cmd"):
        return importlib.metadata.version({"aws": "awscli"}.get(client, client))
    word = "version" if client in ("rclone", "restic") else "--version"
    said = subprocess.run([tool(client), word], capture_output=True, text=True).stdout
    return re.search(r"\d+(\.\d+)+", said)[0]


def found(clients):
    """The version of each client that this machine has."""
    versions = {}
    for client in clients:
        try:
            versions[client] = version(client)
        except (importlib.metadata.PackageNotFoundError, Missing, unittest.SkipTest) as error:
            print(f"there is no {client} on this machine: {error}", file=sys.stderr)
    return versions


def measured(root, client, is_tuned, wake_s, max_wait):
    site = Site(root, client + ("-tuned" if is_tuned else ""), wake_s, max_wait)
    try:
        site.fall_asleep()
        return site.ask(client, TUNED[client] if is_tuned else None)
    finally:
        if site.server:
            site.server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-wait", default="4 min", help="max_wait of the servers")
    parser.add_argument("--wake", type=int, nargs="+", default=[60, 150], help="seconds that a group takes to wake")
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--defaults-only", action="store_true")
    parser.add_argument("clients", nargs="*", metavar="CLIENT")
    asked = parser.parse_args()
    versions = found(asked.clients or ["aws", *PYTHON, "rclone", "restic", "s3cmd", "curl", *PROGRAMS])
    with tempfile.TemporaryDirectory(prefix="larder-patience-") as root, \
            concurrent.futures.ThreadPoolExecutor(asked.at_once) as pool:
        runs = [(client, is_tuned) for client in versions for is_tuned in (False, True)
                if not is_tuned or (client in TUNED and not asked.defaults_only)]
        results = {(*run, wake_s): pool.submit(measured, root, *run, wake_s, asked.max_wait)
                   for wake_s in asked.wake for run in runs}
        print(f"max_wait = {asked.max_wait}")
        print("| client | settings |" + "".join(f" a wake of {wake_s} s |" for wake_s in asked.wake))
        print("|---|---|" + "---|" * len(asked.wake))
        for client, is_tuned in runs:
            cells, errors = [], []
            for wake_s in asked.wake:
                result, took_s, said = results[client, is_tuned, wake_s].result()
                cells.append(f"{result} after {took_s:.0f} s")
                errors += [said[:160]] if result == "failed" else []
            settings = TUNED[client] if is_tuned else "its own"
            print(f"| {client} {versions[client]} | {settings} | {' | '.join(cells)} |", flush=True)
            for error in errors:
                print(f"    {client}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
