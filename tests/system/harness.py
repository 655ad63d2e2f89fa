"""What the system tests share: a server of the release binary on a free port, clients for it, and waits that end.

Every test has a temporary directory of its own and ends the processes it started, whatever happens. Times in settings
are those of larder.toml: ages and waits of clients are wall time, idle timeouts modelled time.
"""

import base64
import http.client
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials

BINARY = os.environ["LARDER_BINARY"]
NAS8 = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "racks", "nas8.toml")
LABEL = "larder.label"
OWNER = "larder.owner"

# Data moves as soon as it is looked at, groups sleep soon, and no budget of starts stands in the way of a test.
BRISK = {
    "time_scale": 100,
    "idle_timeout": "20 s",
    "starts_per_day": 10000,
    "workshop.capacity": "2 GB",
    "workshop.spool": "500 MB",
    "migrate.older_than": "0 s",
    "migrate.linger": "0 s",
    "migrate.scan_interval": "200 ms",
    "metrics.listen": "127.0.0.1:0",
}
# The same without migration.
STAYING = {**BRISK, "migrate.older_than": None, "workshop.regular": 1.0, "workshop.critical": 1.0}
# Every object is a staged file, however small, and every commit a sync of the catalog's own log: for tests of these.
FILES = {"intake.below": "0 B"}
# Drives take 6 to 10 s of modelled time and a GET waits 0.2 s of wall time, so cold objects are answered with SlowDown.
SHORT_WAITS = {**BRISK, "time_scale": 4, "idle_timeout": "8 s", "max_wait": "200 ms"}


def larder(*words, timeout=60):
    """Runs the binary to its end."""
    command = [BINARY, *map(str, words)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def optional(name, *parts):
    """The package of that name, with these parts of it imported as well; None where there is none for this system."""
    try:
        for part in parts:
            importlib.import_module(f"{name}.{part}")
        return importlib.import_module(name)
    except ImportError:
        return None


def b64(raw):
    """Bytes as S3 writes digests."""
    return base64.b64encode(raw).decode()


def noise(size, seed):
    """Bytes that do not repeat and are the same for the same seed."""
    return random.Random(seed).randbytes(size)


# Writes all records as they are, and ends as a kill does: a connection that is closed would empty SQLite's log.
FOLD = """
import os, sqlite3, sys
catalog = sqlite3.connect(sys.argv[1], isolation_level=None)
for step in ("PRAGMA wal_autocheckpoint = 0", "BEGIN", "UPDATE kv SET v = CAST(v || x'00' AS BLOB)",
             "UPDATE kv SET v = substr(v, 1, length(v) - 1)", "COMMIT"):
    catalog.execute(step)
os._exit(0)
"""


def killed_in_a_fold(data):
    """The catalog of a killed server as it is amid a fold of the log into it: SQLite's log has frames."""
    path = os.path.join(data, "catalog.db")
    subprocess.run([sys.executable, "-c", FOLD, path], check=True)
    assert os.path.getsize(f"{path}-wal") > 0, path


def in_toml(value):
    return json.dumps(value)


def configuration(settings):
    """`{"table.key": value}` as the text of a larder.toml; None leaves a key out."""
    tables = {}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        if value is not None:
            tables.setdefault(table, []).append(f"{key} = {in_toml(value)}")
    lines = tables.pop("", [])
    for table, keys in tables.items():
        lines += [f"[{table}]", *keys]
    return "\n".join(lines) + "\n"


def rack_that_wakes_in(wake_s, folder):
    """The path of a rack like nas8, but that its groups take so many seconds to wake; made in `folder`."""
    path = os.path.join(folder, f"wakes-in-{wake_s}.toml")
    # Mounting takes another second.
    spin_up = f'spin_up = {{ min = "{wake_s - 2} s", max = "{wake_s - 1} s", draws = 4 }}'
    with open(NAS8, encoding="utf-8") as nas8, open(path, "w", encoding="utf-8") as rack:
        rack.write(re.sub(r"spin_up = \{.*\}", spin_up, nas8.read()))
    return path


def refusal(output):
    """What a command that failed in order said."""
    assert output.returncode == 1, f"exit code {output.returncode}: {output.stdout}{output.stderr}"
    assert output.stderr.count("\n") == 1, f"one sentence, not {output.stderr}"
    return output.stderr


def limited(files):
    """Run in a new process before its program: it may have so many files open, as a soft and a hard limit."""
    return files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files))


class Server:
    """A server on a data directory, from its start to its end."""

    def __init__(self, data, *words, environment=None, port=0, within=(), files=None, log="info"):
        self.data = data
        self.output_path = f"{data}.out"
        self.log_path = f"{data}.log"
        with open(self.output_path, "wb") as output, open(self.log_path, "ab") as lines:
            command = [*within, BINARY, *words, "--data", data, "--log", log]
            command += [] if port is None else ["--port", str(port)]
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": lines}
            self.process = subprocess.Popen(command, env=environment, preexec_fn=limited(files), **streams)
        try:
            self._until_ready()
        except BaseException:
            self.kill()
            raise

    def _until_ready(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            said = self.said()
            if said.endswith("ready\n"):
                break
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.log()[-3000:]}")
            time.sleep(0.02)
        else:
            raise AssertionError(f"the server is not ready: {self.log()[-3000:]}")
        with open(os.path.join(self.data, "credentials"), encoding="ascii") as credentials:
            lines = [line.rstrip("\n") for line in credentials]
        exports = dict(line[7:].split("=", 1) for line in lines if line.startswith("export "))
        self.access_key, self.secret_key = exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"]
        words = said.replace("=", " ").split()
        self.endpoint = next(word for word in words if word.startswith(("http://", "https://")))
        self.address = urllib.parse.urlsplit(self.endpoint).netloc

    def said(self):
        with open(self.output_path, encoding="utf-8") as output:
            return output.read()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def stop(self, with_signal=signal.SIGTERM, timeout=120):
        """Ends it in order; gives the exit code."""
        self.process.send_signal(with_signal)
        return self.process.wait(timeout)

    def kill(self):
        """Ends it at once, as a power cut would."""
        self.process.kill()
        self.process.wait(60)

    def client(self, keys=None, **config):
        """A boto3 client that does not try again, with these keys, or with those of the first user."""
        access_key, secret_key = keys or (self.access_key, self.secret_key)
        options = {"retries": {"total_max_attempts": 1}, "connect_timeout": 20, "read_timeout": 120, **config}
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=botocore.config.Config(**options),
        )

    def filled(self, objects, bucket="pantry"):
        """Makes a bucket with the objects of `{key: bytes}`; gives a client."""
        client = self.client()
        client.create_bucket(Bucket=bucket)
        for key, body in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=body)
        return client

    def ask(self, method, path, headers=None, body=b"", query="", timeout=120):
        """One signed request as it stands: nothing added to it but the signature. Gives status, headers and body."""
        response, connection = self.open(method, path, headers, body, query, timeout)
        try:
            return response.status, dict((k.lower(), v) for k, v in response.getheaders()), response.read()
        finally:
            connection.close()

    def open(self, method, path, headers=None, body=b"", query="", timeout=120):
        """As `ask`, with the response unread."""
        url = f"{self.endpoint}{urllib.parse.quote(path)}" + (f"?{query}" if query else "")
        request = botocore.awsrequest.AWSRequest(method=method, url=url, data=body, headers=headers or {})
        keys = botocore.credentials.Credentials(self.access_key, self.secret_key)
        botocore.auth.S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        target = urllib.parse.quote(path) + (f"?{query}" if query else "")
        connection.request(method, target, body=body, headers=dict(request.headers.items()))
        return connection.getresponse(), connection

    def open_files(self):
        """How many files the process has open now (Linux)."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self):
        """Bytes that the process has in memory now; its peak begins anew (Linux)."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w", encoding="ascii") as clear:
            clear.write("5")
        return self._bytes("VmRSS")

    def peak(self):
        """The most bytes that the process had in memory since `resident` was asked."""
        return self._bytes("VmHWM")

    def _bytes(self, what):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith(what))

    def status(self):
        return self._json("status")

    def drives(self):
        return self._json("drive", "list")

    def explain(self, bucket, key):
        return self._json("explain", f"s3://{bucket}/{key}")

    def _json(self, *words):
        output = larder(*words, "--data", self.data, "--json")
        assert output.returncode == 0, output.stderr
        return json.loads(output.stdout)

    def totals(self):
        return self.status()["totals"]

    def figures(self):
        """`{line without its value: value}` of `/metrics`, of a server with `metrics.listen`."""
        # The log goes on over starts.
        host = self.log().rpartition("serving http://")[2].split("/")[0]
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def until(self, what, holds, timeout=90):
        """Waits until `holds(status)` is true; gives that status."""
        end = time.monotonic() + timeout
        while True:
            status = self.status()
            if holds(status):
                return status
            if time.monotonic() > end:
                raise AssertionError(f"not within {timeout} s: {what}; {json.dumps(status)}; {self.log()[-2000:]}")
            time.sleep(0.1)

    def until_migrated(self, timeout=120):
        def none_is_left(status):
            workshop = status["workshop"]
            return workshop["staged_count"] == 0 and workshop["migrations_under_way"] == 0

        return self.until("everything is in the rack", none_is_left, timeout)

    def until_asleep(self, timeout=120):
        def all_sleep(status):
            drives, groups = status["drives"], status["groups"]
            at_rest = drives["moving"] == 0 and drives["ready"] == 0
            return at_rest and groups["initialised"] == groups["total"]

        return self.until("every group was woken once, and all drives sleep", all_sleep, timeout)

    def until_cold(self):
        self.until_migrated()
        return self.until_asleep()

    def is_asked_to_wait(self, path):
        """Asks for a cold object of a server of short waits, which answers SlowDown; all are asleep afterwards."""
        self.until_cold()
        status, headers, body = self.ask("GET", path)
        assert status == 503 and b"<Code>SlowDown</Code>" in body, (status, body)
        assert int(headers["retry-after"]) > 0
        self.until("the recall is done", lambda status: status["totals"]["group_wakes"][0] > 0)
        self.until_asleep()

    def stacks(self, drives=None):
        """The stack files on the drives numbered `drives`, or on all."""
        root = os.path.join(self.data, "drives")
        names = [f"{drive:04}" for drive in drives] if drives is not None else sorted(os.listdir(root))
        found = []
        for name in names:
            for folder, _, files in os.walk(os.path.join(root, name)):
                found += [os.path.join(folder, file) for file in sorted(files) if file not in (LABEL, OWNER)]
        return found


class SystemTest(unittest.TestCase):
    """A test with a temporary directory, whose servers end with it."""

    maxDiff = 2000

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="larder-system-")
        self.servers = []
        self.addCleanup(self._clean)

    def _clean(self):
        for server in self.servers:
            server.kill()
        if os.environ.get("LARDER_KEEP"):
            print(f"kept {self.root}", file=sys.stderr)
        else:
            shutil.rmtree(self.root, ignore_errors=True)

    def made(self, rack="pelican-mini", name="data", **settings):
        """A data directory for `rack`."""
        data = os.path.join(self.root, name)
        output = larder("init", "--rack", rack, "--data", data)
        self.assertEqual(output.returncode, 0, output.stderr)
        self.configure(data, settings)
        return data

    def configure(self, data, settings):
        with open(os.path.join(data, "larder.toml"), "w", encoding="utf-8") as config:
            config.write(configuration(settings))

    def serve(self, data, environment=None, port=0, within=(), files=None, log="info"):
        server = Server(data, "serve", environment=environment, port=port, within=within, files=files, log=log)
        self.servers.append(server)
        return server

    def verified(self, data, *words):
        """What `larder verify` finds of a data directory that no server holds."""
        output = larder("verify", "--data", data, "--json", *words, timeout=300)
        self.assertIn(output.returncode, (0, 1), output.stderr)
        report = json.loads(output.stdout)
        self.assertEqual(output.returncode, 0 if report["clean"] else 1)
        return report

    def quickstart(self, *words, name="data", port=0):
        server = Server(os.path.join(self.root, name), "quickstart", *words, port=port)
        self.servers.append(server)
        return server

    def rack(self, rack="pelican-mini", settings=None):
        """A new server on an emulated rack."""
        return self.serve(self.made(rack, **(BRISK if settings is None else settings)))

    def documented(self):
        """`{condition: (risk, words)}` of the table in `docs/runbook/warnings.md`."""
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "runbook",
                            "warnings.md")
        with open(page, encoding="utf-8") as table:
            rows = [line.strip().strip("|").split(" | ") for line in table if line.startswith("| `")]
        return {row[0].strip().strip("`"): (row[1].strip(), row[2].strip()) for row in rows}

    def warns(self, server, *conditions, timeout=90):
        """Each of `conditions` is a warning soon: in JSON, as text in the words of the documentation, and in the
        metrics. Gives the sentences of the last one."""
        documented = self.documented()
        for condition in conditions:
            risk, words = documented[condition]

            def is_said(status, condition=condition, risk=risk, words=words):
                said = self.sentences(status, condition)
                text = larder("status", "--data", server.data).stdout.splitlines()
                shown = [line for line in text if line.startswith("warning ") and words in line]
                line = f'larder_warnings{{condition="{condition}",risk="{risk}"}}'
                return said and (len(shown), server.figures()[line]) == (len(said), len(said))

            # A drive that is away may be tried between one look and the next.
            status = server.until(f"{condition} is warned of", is_said, timeout)
            said = self.sentences(status, condition)
            self.assertTrue(all(words in sentence for sentence in said), (condition, words, said))
        return said

    def sentences(self, status, condition):
        """The warnings of that condition."""
        pairs = zip(status["conditions"], status["warnings"], strict=True)
        return [sentence for found, sentence in pairs if found == condition]

    def is_calm(self, server, *conditions, timeout=90):
        """None of `conditions` is a warning any more."""
        server.until(f"{conditions} are over", lambda s: not set(conditions) & set(s["conditions"]), timeout)
        figures = server.figures()
        for condition in conditions:
            line = f'larder_warnings{{condition="{condition}",risk="{self.documented()[condition][0]}"}}'
            self.assertEqual(figures[line], 0, line)

    def fails(self, status, code, call, *arguments, **keywords):
        """`call` is refused by the server with this HTTP status and S3 code; gives the answer."""
        with self.assertRaises(botocore.exceptions.ClientError) as caught:
            call(*arguments, **keywords)
        answer = caught.exception.response
        self.assertEqual((answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]), (status, code))
        return answer

    def reads(self, client, bucket, objects):
        """Every object of `{key: bytes}` is read as it was written."""
        for key, expected in objects.items():
            found = client.get_object(Bucket=bucket, Key=key)["Body"].read()
            self.assertEqual(len(found), len(expected), key)
            self.assertTrue(found == expected, f"{key} is not what was written")


def aws(server, folder, *words, timeout=300, environment=None):
    """Runs the aws CLI with its own settings: files above 8 MB go in parts."""
    config = os.path.join(folder, "aws-config")
    with open(config, "w", encoding="ascii") as file:
        file.write("[default]\ns3 =\n    max_concurrent_requests = 8\n")
    environment = {
        **os.environ,
        "AWS_CONFIG_FILE": config,
        "AWS_SHARED_CREDENTIALS_FILE": os.path.join(folder, "no-credentials"),
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PAGER": "",
        **(environment or {}),
    }
    command = [sys.executable, "-m", "awscli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
