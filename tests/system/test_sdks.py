"""The SDKs that programs are built on: what each presigns, a plain HTTP client sends; what it uploads by itself, it
reads again. Packages are installed once beside the binary. Without a runtime or its packages, a test is skipped."""

import fcntl
import io
import os
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request

import botocore.exceptions
import botocore.session

from harness import BINARY, STAYING, SystemTest, optional

awscrt = optional("awscrt", "auth", "http", "s3")
# Its `crt` imports awscrt.
s3transfer = optional("s3transfer", "crt")

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sdks")
PLACE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(BINARY))), "system-tests-sdks")
DONE = "all answered as AWS answers"
BODY = b"half a pound of salt"
OF_THE_BUCKET = ["x-amz-expected-bucket-owner", "x-amz-request-payer"]


def text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def made(language, *commands):
    """The directory of the programs in `language`, once these commands have run there; none may fail."""
    runtime = commands[0][0]
    if shutil.which(runtime) is None:
        raise unittest.SkipTest(f"no {runtime} on this system")
    place, source = os.path.join(PLACE, language), os.path.join(SOURCES, language)
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(PLACE, f"{language}.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = "".join(text(os.path.join(source, name)) for name in sorted(os.listdir(source)))
        complete = os.path.join(place, "complete")
        if os.path.exists(complete) and text(complete) == wanted:
            return place
        shutil.copytree(source, place, dirs_exist_ok=True)
        for command in commands:
            quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
            done = subprocess.run(command, cwd=place, timeout=300, **quiet)
            if done.returncode != 0:
                raise unittest.SkipTest(f"{runtime} cannot install what it needs: {(done.stdout + done.stderr)[-300:]}")
        with open(complete, "w", encoding="utf-8") as file:
            file.write(wanted)
    return place


def hoist(request, **_):
    """Moves headers into the URL before it is signed. boto3 does so in version 2 alone, other SDKs in version 4."""
    moved = {name: request.headers[name] for name in OF_THE_BUCKET if name in request.headers}
    for name in moved:
        del request.headers[name]
    request.url += ("&" if "?" in request.url else "?") + urllib.parse.urlencode(moved)


def fetched(method, url, body=None):
    """Status and body of the answer to a client that knows nothing of S3."""
    # Version 2 signs the content type, and the URL has none.
    request = urllib.request.Request(url, method=method, data=body, headers={"Content-Type": ""} if body else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Sdks(SystemTest):
    def answers(self, place, *command):
        """Runs a program against a server of its own."""
        server = self.rack("nas8", STAYING)
        server.client().create_bucket(Bucket="pantry")
        keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        ran = subprocess.run(
            [*command, server.endpoint, "pantry"],
            cwd=place,
            env={**os.environ, **keys},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual((ran.returncode, ran.stdout.strip()), (0, DONE), ran.stderr[-3000:])

    def test_javascript_of_aws(self):
        place = made("javascript", ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"])
        self.answers(place, "node", "aws.mjs")

    def test_javascript_of_minio(self):
        place = made("javascript", ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"])
        self.answers(place, "node", "minio.mjs")

    def test_go(self):
        self.answers(made("go", ["go", "build", "-o", "presigned", "."]), "./presigned")

    def test_java(self):
        written = "-Dmdep.outputFile=classpath"
        place = made("java", ["mvn", "-q", "-B", "dependency:build-classpath", written])
        self.answers(place, "java", "-cp", text(os.path.join(place, "classpath")), "Presigned.java")

    def test_boto3_with_the_owner_of_the_bucket_in_the_url(self):
        server = self.rack("nas8", STAYING)
        client = server.filled({"k": BODY})
        for version in ["s3v4", "s3"]:
            signer = server.client(signature_version=version)
            if version == "s3v4":
                signer.meta.events.register("before-sign.s3", hoist)
            for operation, method, body, status in [
                ("get_object", "GET", None, 200),
                ("head_object", "HEAD", None, 200),
                ("put_object", "PUT", BODY, 200),
                ("delete_object", "DELETE", None, 204),
            ]:
                with self.subTest(version=version, operation=operation):
                    self.is_for_the_owner(signer, operation, method, body, status)
            client.put_object(Bucket="pantry", Key="k", Body=BODY)

    def is_for_the_owner(self, signer, operation, method, body, status):
        """URLs that name the bucket's owner are answered, and those that name another are refused."""
        named = {"Bucket": "pantry", "Key": "k", "RequestPayer": "requester"}
        for owner, expected in [("nobody", 403), ("root", status)]:
            url = signer.generate_presigned_url(operation, {**named, "ExpectedBucketOwner": owner}, ExpiresIn=60)
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
            self.assertEqual([query.get(name) for name in OF_THE_BUCKET], [[owner], ["requester"]], url)
            answered = fetched(method, url, body)
            self.assertEqual(answered[0], expected, answered)
            if owner == "nobody" and method != "HEAD":
                self.assertIn(b"<Code>AccessDenied</Code>", answered[1])
            if owner == "root" and operation == "get_object":
                self.assertEqual(answered[1], BODY)

    def test_the_runtime_in_c(self):
        """What boto3 and the aws CLI use where it is installed; they send it nowhere but to AWS."""
        if awscrt is None:
            self.skipTest("no awscrt for this system")
        server = self.rack("nas8", STAYING)
        server.client().create_bucket(Bucket="pantry")
        for key, body in {"large": BODY * 600_000, "small": BODY, "empty": b""}.items():
            with self.subTest(key):
                self.sent(server, awscrt.s3.S3RequestType.PUT_OBJECT, "PUT", key, body)
                read = self.sent(server, awscrt.s3.S3RequestType.GET_OBJECT, "GET", key)
                self.assertEqual(read, body)

    def sent(self, server, kind, method, key, body=b""):
        """Sends a request as the runtime in C does, in parts of 5 MiB, and gives the body of its answer."""
        keys = awscrt.auth.AwsCredentialsProvider.new_static(server.access_key, server.secret_key)
        signing = awscrt.s3.create_default_s3_signing_config(region="us-east-1", credential_provider=keys)
        mode = awscrt.s3.S3RequestTlsMode.DISABLED
        sizes = {"part_size": 5 << 20, "multipart_upload_threshold": 5 << 20}
        client = awscrt.s3.S3Client(region="us-east-1", tls_mode=mode, signing_config=signing, **sizes)
        headers = awscrt.http.HttpHeaders([("host", server.address)])
        if method == "PUT":
            headers.add("content-length", str(len(body)))
        stream = io.BytesIO(body) if method == "PUT" else None
        request = awscrt.http.HttpRequest(method, f"/pantry/{key}", headers, stream)
        answered = bytearray()

        def took(chunk, offset, **_):
            answered[offset : offset + len(chunk)] = chunk

        asked = client.make_request(request=request, type=kind, on_body=took)
        asked.finished_future.result(60)
        return bytes(answered)

    def transfers(self, server):
        """boto3's transfers by the runtime in C, to that server: boto3 itself sends them to AWS alone."""
        crt, at = s3transfer.crt, {"region_name": "us-east-1", "endpoint_url": server.endpoint}
        keys = awscrt.auth.AwsCredentialsProvider.new_static(server.access_key, server.secret_key)
        sizes = {"part_size": 5 << 20, "num_threads": 2}
        client = crt.create_s3_crt_client("us-east-1", crt_credentials_provider=keys, use_ssl=False, **sizes)
        return crt.CRTTransferManager(client, crt.BotocoreCRTRequestSerializer(botocore.session.Session(), at))

    def test_boto3_with_the_runtime_in_c(self):
        if awscrt is None:
            self.skipTest("no awscrt for this system")
        server = self.rack("nas8", STAYING)
        client = server.filled({})
        with self.transfers(server) as transfers:
            for key, body, parts in [("large", BODY * 600_000, 3), ("small", BODY, 0), ("empty", b"", 0)]:
                with self.subTest(key):
                    transfers.upload(io.BytesIO(body), "pantry", key).result(60)
                    head = client.head_object(Bucket="pantry", Key=key, ChecksumMode="ENABLED")
                    self.assertEqual(head["ETag"].endswith(f'-{parts}"'), parts > 0, head["ETag"])
                    self.assertIn("ChecksumCRC32", head)
                    self.reads(client, "pantry", {key: body})
                    read, before = io.BytesIO(), self.served(server)
                    transfers.download("pantry", key, read).result(60)
                    self.assertEqual(read.getvalue(), body)
                    self.assertGreaterEqual(self.served(server) - before, max(1, parts), "it is read in parts")
            with self.assertRaises(botocore.exceptions.ClientError) as caught:
                transfers.upload(io.BytesIO(BODY), "nowhere", "k").result(60)
            self.assertEqual(caught.exception.response["Error"]["Code"], "NoSuchBucket")

    def served(self, server):
        return server.figures()["larder_s3_first_byte_seconds_count"]

    def test_boto3_without_the_runtime_in_c(self):
        self.answers(os.path.join(SOURCES, "python"), sys.executable, "without_the_runtime.py")
