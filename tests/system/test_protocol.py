"""What clients claim is checked, and what is not served is said to be so."""

import hashlib
import zlib

import botocore.exceptions

from harness import STAYING, SystemTest, aws, b64, noise

BODY = b"half a pound of butter"
OTHER = b"half a pound of lard"


class Checksums(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", STAYING)
        self.server.client().create_bucket(Bucket="pantry")

    def test_a_wrong_digest_is_refused_and_nothing_is_stored(self):
        claims = [
            {"Content-MD5": b64(hashlib.md5(OTHER).digest())},
            {"x-amz-checksum-crc32": b64(zlib.crc32(OTHER).to_bytes(4, "big"))},
            {"x-amz-checksum-sha1": b64(hashlib.sha1(OTHER).digest())},
            {"x-amz-checksum-sha256": b64(hashlib.sha256(OTHER).digest())},
            {"x-amz-checksum-crc32c": "AAAAAA=="},
            {"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="},
        ]
        for headers in claims:
            with self.subTest(headers=headers):
                status, _, answer = self.server.ask("PUT", "/pantry/k", headers, BODY)
                self.assertEqual(status, 400, answer)
                self.assertIn(b"<Code>BadDigest</Code>", answer)
                self.assertEqual(self.server.ask("HEAD", "/pantry/k")[0], 404)
        workshop = self.server.status()["workshop"]
        self.assertEqual((workshop["staged_count"], workshop["staged_bytes"]), (0, 0), "nothing is left of them")

    def test_a_wrong_digest_leaves_the_object_that_was_there(self):
        client = self.server.client()
        client.put_object(Bucket="pantry", Key="k", Body=OTHER)
        status, _, _ = self.server.ask("PUT", "/pantry/k", {"Content-MD5": b64(hashlib.md5(OTHER).digest())}, BODY)
        self.assertEqual(status, 400)
        self.reads(client, "pantry", {"k": OTHER})

    def test_a_digest_that_is_no_digest_is_refused(self):
        for headers in [{"Content-MD5": "not base64"}, {"x-amz-checksum-crc32": "AA=="}]:
            status, _, answer = self.server.ask("PUT", "/pantry/k", headers, BODY)
            self.assertEqual(status, 400, answer)

    def test_right_digests_are_kept_and_given_back(self):
        crc = b64(zlib.crc32(BODY).to_bytes(4, "big"))
        headers = {"x-amz-checksum-crc32": crc, "Content-MD5": b64(hashlib.md5(BODY).digest())}
        status, answered, _ = self.server.ask("PUT", "/pantry/k", headers, BODY)
        self.assertEqual((status, answered["x-amz-checksum-crc32"]), (200, crc))
        self.assertEqual(answered["etag"].strip('"'), hashlib.md5(BODY).hexdigest())
        status, answered, body = self.server.ask("GET", "/pantry/k", {"x-amz-checksum-mode": "ENABLED"})
        self.assertEqual((status, answered["x-amz-checksum-crc32"], body), (200, crc, BODY))

    def test_the_checksums_of_boto3_are_taken(self):
        client = self.server.client()
        names = {"CRC32": "ChecksumCRC32", "SHA1": "ChecksumSHA1", "SHA256": "ChecksumSHA256", None: "ChecksumCRC32"}
        for algorithm, name in names.items():
            options = {"ChecksumAlgorithm": algorithm} if algorithm else {}
            put = client.put_object(Bucket="pantry", Key=str(algorithm), Body=BODY, **options)
            head = client.head_object(Bucket="pantry", Key=str(algorithm), ChecksumMode="ENABLED")
            self.assertEqual(put[name], head[name])
            self.reads(client, "pantry", {str(algorithm): BODY})

    def test_a_body_that_ends_too_soon_stores_nothing(self):
        for length, body in [(100, BODY), (10_000_000, noise(1_000_000, 1))]:
            import http.client

            import botocore.auth
            import botocore.awsrequest
            import botocore.credentials

            url = f"{self.server.endpoint}/pantry/short"
            headers = {"Content-Length": str(length), "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
            request = botocore.awsrequest.AWSRequest(method="PUT", url=url, headers=headers)
            keys = botocore.credentials.Credentials(self.server.access_key, self.server.secret_key)
            botocore.auth.S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
            connection = http.client.HTTPConnection(self.server.address, timeout=30)
            connection.request("PUT", "/pantry/short", body=body, headers=dict(request.headers.items()))
            connection.close()
        self.server.until("what was begun is given up", lambda s: s["workshop"]["staged_bytes"] == 0)
        self.assertEqual(self.server.ask("HEAD", "/pantry/short")[0], 404)


    def test_an_answer_without_continue_does_not_upset_the_connection(self):
        import io

        # Files, as the aws CLI sends them: announced with `Expect: 100-continue`, which nobody answers for empty ones.
        client = self.server.client(max_pool_connections=1, read_timeout=10)
        for i, size in enumerate([0, 1, 0, 0, 70_000, 0, 5]):
            client.put_object(Bucket="pantry", Key=f"file {i}", Body=io.BytesIO(noise(size, i)))
            self.fails(404, "NoSuchBucket", client.put_object, Bucket="nowhere", Key="k", Body=io.BytesIO(b"x" * size))
            self.reads(client, "pantry", {f"file {i}": noise(size, i)})


class NotServed(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", STAYING)
        self.client = self.server.client()
        self.client.create_bucket(Bucket="pantry")
        self.client.put_object(Bucket="pantry", Key="k", Body=BODY)

    def test_what_is_not_supported_says_so_and_changes_nothing(self):
        client, here = self.client, {"Bucket": "pantry"}
        key = {**here, "Key": "k"}
        days = {"Days": 1}
        rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": days}
        whole = [
            (client.restore_object, {**key, "RestoreRequest": days}),
            (client.put_bucket_versioning, {**here, "VersioningConfiguration": {"Status": "Enabled"}}),
            (client.put_bucket_lifecycle_configuration, {**here, "LifecycleConfiguration": {"Rules": [rule]}}),
            (client.put_bucket_policy, {**here, "Policy": "{}"}),
        ]
        for call, arguments in whole:
            with self.subTest(call=call.__name__, arguments=arguments):
                self.fails(501, "NotImplemented", call, **arguments)
        # Clients try 501 again, and these at once no more.
        in_part = [
            ("InvalidStorageClass", client.put_object, {**key, "Body": b"x", "StorageClass": "GLACIER"}),
            ("InvalidArgument", client.put_object, {**key, "Body": b"x", "ServerSideEncryption": "AES256"}),
            ("InvalidArgument", client.put_bucket_acl, {**here, "ACL": "authenticated-read"}),
            ("InvalidArgument", client.put_object, {**key, "Body": b"x", "ACL": "public-read-write"}),
        ]
        for code, call, arguments in in_part:
            with self.subTest(call=call.__name__, arguments=arguments):
                self.fails(400, code, call, **arguments)
        self.assertEqual([entry["Key"] for entry in client.list_objects_v2(**here)["Contents"]], ["k"])
        self.reads(client, "pantry", {"k": BODY})

    def test_who_is_nobody_is_refused(self):
        self.server.secret_key = "x" * 40
        self.assertEqual(self.server.ask("GET", "/pantry/k")[0], 403)
        self.server.access_key = "NOBODY"
        status, _, answer = self.server.ask("PUT", "/pantry/k", body=OTHER)
        self.assertEqual(status, 403)
        self.assertIn(b"InvalidAccessKeyId", answer)

    def test_a_presigned_url_is_all_a_reader_needs(self):
        import urllib.request

        for version in ("s3v4", "s3"):
            signer = self.server.client(signature_version=version)
            url = signer.generate_presigned_url("get_object", {"Bucket": "pantry", "Key": "k"}, ExpiresIn=60)
            with urllib.request.urlopen(url, timeout=30) as answer:
                self.assertEqual(answer.read(), BODY)

    def test_names_that_are_not_there_are_told_apart(self):
        self.fails(404, "NoSuchKey", self.client.get_object, Bucket="pantry", Key="nothing")
        self.fails(404, "NoSuchBucket", self.client.get_object, Bucket="nowhere", Key="k")
        with self.assertRaises(botocore.exceptions.ClientError):
            self.client.create_bucket(Bucket="Not_A_Bucket_Name")
        self.client.delete_object(Bucket="pantry", Key="nothing")
