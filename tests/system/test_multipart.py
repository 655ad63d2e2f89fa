"""Uploads in parts and copies, by the clients that make them, warm and cold."""

import hashlib
import os
import threading
import time
import unittest
import zlib

import boto3.s3.transfer

import faults
from harness import BRISK, STAYING, SystemTest, aws, b64, noise

MIB = 1 << 20


def crc(raw):
    return zlib.crc32(raw).to_bytes(4, "big")


def sha1(raw):
    return hashlib.sha1(raw).digest()


def sha256(raw):
    return hashlib.sha256(raw).digest()


class Parts(SystemTest):
    def upload(self, client, key, parts, **options):
        """Uploads `parts` one by one and completes; gives the upload's id and what was listed."""
        upload = client.create_multipart_upload(Bucket="pantry", Key=key, **options)["UploadId"]
        listed = []
        for number, body in enumerate(parts, 1):
            put = client.upload_part(Bucket="pantry", Key=key, UploadId=upload, PartNumber=number, Body=body)
            sums = {name: value for name, value in put.items() if name.startswith("Checksum")}
            listed.append({"PartNumber": number, "ETag": put["ETag"], **(sums if options else {})})
        return upload, listed

    def complete(self, client, key, upload, listed, **options):
        return client.complete_multipart_upload(
            Bucket="pantry", Key=key, UploadId=upload, MultipartUpload={"Parts": listed}, **options
        )

    def test_boto3_and_the_aws_cli_send_large_files_in_parts_as_they_like(self):
        server = self.rack("nas8", {**BRISK, "migrate.pack_size": "4 MiB"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        path, back = os.path.join(self.root, "large"), os.path.join(self.root, "back")
        body = noise(70 * MIB + 12345, 1)
        with open(path, "wb") as file:
            file.write(body)
        client.upload_file(path, "pantry", "boto3", ExtraArgs={"Metadata": {"cook": "anna"}})
        done = aws(server, self.root, "s3", "cp", path, "s3://pantry/cli", "--only-show-errors")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for when in ("at once", "cold"):
            with self.subTest(when=when):
                head = client.head_object(Bucket="pantry", Key="boto3", ChecksumMode="ENABLED")
                self.assertEqual((head["ContentLength"], head["Metadata"]), (len(body), {"cook": "anna"}))
                self.assertTrue(head["ETag"].endswith('-9"'), head["ETag"])
                part = client.get_object(Bucket="pantry", Key="boto3", PartNumber=9, ChecksumMode="ENABLED")
                self.assertEqual((part["PartsCount"], part["ContentLength"]), (9, len(body) - 8 * 8 * MIB))
                self.assertTrue(part["Body"].read() == body[64 * MIB :])
                # In ranges of 8 MB, several at once.
                client.download_file("pantry", "boto3", back)
                with open(back, "rb") as file:
                    self.assertTrue(file.read() == body, "boto3")
                done = aws(server, self.root, "s3", "cp", "s3://pantry/cli", back, "--only-show-errors")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                with open(back, "rb") as file:
                    self.assertTrue(file.read() == body, "aws")
                server.until_cold()
        self.assertEqual(server.explain("pantry", "boto3")["place"]["where"], "rack")
        server.until("the parts' files are gone", lambda status: status["workshop"]["staged_bytes"] == 0)

    def test_checksums_are_composed_by_every_rule(self):
        server = self.rack("nas8", STAYING)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        parts = [noise(5 * MIB, 1), noise(5 * MIB + 3, 2), noise(17, 3)]
        whole = b"".join(parts)
        composed = {
            ("SHA256", "COMPOSITE"): b64(sha256(b"".join(map(sha256, parts)))) + "-3",
            ("SHA1", "COMPOSITE"): b64(sha1(b"".join(map(sha1, parts)))) + "-3",
            ("CRC32", "COMPOSITE"): b64(crc(b"".join(map(crc, parts)))) + "-3",
            ("CRC32", "FULL_OBJECT"): b64(crc(whole)),
        }
        etag = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
        for (algorithm, form), expected in composed.items():
            with self.subTest(algorithm=algorithm, form=form):
                key, name = f"{algorithm} {form}", f"Checksum{algorithm}"
                options = {"ChecksumAlgorithm": algorithm, "ChecksumType": form}
                upload = client.create_multipart_upload(Bucket="pantry", Key=key, **options)["UploadId"]
                listed = []
                for number, body in enumerate(parts, 1):
                    part = {"Bucket": "pantry", "Key": key, "UploadId": upload, "PartNumber": number}
                    put = client.upload_part(**part, Body=body, ChecksumAlgorithm=algorithm)
                    listed.append({"PartNumber": number, "ETag": put["ETag"], name: put[name]})
                done = self.complete(client, key, upload, listed)
                self.assertEqual((done[name], done["ChecksumType"], done["ETag"]), (expected, form, f'"{etag}-3"'))
                head = client.head_object(Bucket="pantry", Key=key, ChecksumMode="ENABLED")
                self.assertEqual((head[name], head["ChecksumType"]), (expected, form))
                self.reads(client, "pantry", {key: whole})
        upload, listed = self.upload(client, "plain", parts)
        done = self.complete(client, "plain", upload, listed)
        self.assertEqual(done["ChecksumType"], "FULL_OBJECT")
        self.assertIn("ChecksumCRC64NVME", done)

    def test_what_is_wrong_ends_nothing_and_what_is_aborted_takes_no_room(self):
        server = self.rack("nas8", STAYING)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        parts = [noise(5 * MIB, 1), noise(99, 2)]
        upload, listed = self.upload(client, "k", parts)
        wrong = [{**listed[0], "ETag": '"' + "0" * 32 + '"'}, listed[1]]
        self.fails(400, "InvalidPart", self.complete, client, "k", upload, wrong)
        self.fails(400, "InvalidPartOrder", self.complete, client, "k", upload, listed[::-1])
        small = [{**listed[1], "PartNumber": 2}, {**listed[1], "PartNumber": 3}]
        client.upload_part(Bucket="pantry", Key="k", UploadId=upload, PartNumber=3, Body=parts[1])
        self.fails(400, "EntityTooSmall", self.complete, client, "k", upload, small)
        found = client.list_parts(Bucket="pantry", Key="k", UploadId=upload)["Parts"]
        self.assertEqual([(part["PartNumber"], part["Size"]) for part in found], [(1, 5 * MIB), (2, 99), (3, 99)])
        self.assertEqual([u["Key"] for u in client.list_multipart_uploads(Bucket="pantry")["Uploads"]], ["k"])
        workshop = server.status()["workshop"]
        self.assertEqual((workshop["uploads"], workshop["upload_bytes"]), (1, 5 * MIB + 198))
        self.complete(client, "k", upload, listed)
        self.assertEqual(self.complete(client, "k", upload, listed)["Key"], "k", "again is no error")
        self.reads(client, "pantry", {"k": b"".join(parts)})
        given_up, _ = self.upload(client, "l", parts)
        client.abort_multipart_upload(Bucket="pantry", Key="l", UploadId=given_up)
        self.fails(404, "NoSuchUpload", client.list_parts, Bucket="pantry", Key="l", UploadId=given_up)
        client.delete_object(Bucket="pantry", Key="k")
        left = server.until("the room is back", lambda status: status["workshop"]["staged_bytes"] == 0)
        self.assertEqual(left["workshop"]["uploads"], 0)
        self.upload(client, "m", parts)
        client.delete_bucket(Bucket="pantry")
        server.until("nor do those of a bucket", lambda status: status["workshop"]["staged_bytes"] == 0)

    def test_stale_uploads_are_aborted(self):
        server = self.rack("nas8", {**STAYING, "workshop.abort_uploads_after": "2 s"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        upload, listed = self.upload(client, "k", [b"soup"])
        server.until("it was aborted", lambda status: status["workshop"]["uploads"] == 0)
        self.fails(404, "NoSuchUpload", self.complete, client, "k", upload, listed)

    @unittest.skipIf(faults.why_not(), faults.why_not())
    def test_a_clock_that_is_ten_years_ahead_at_a_start_aborts_no_upload(self):
        data = self.made("nas8", **STAYING)
        server = self.serve(data)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        upload, listed = self.upload(client, "k", [b"soup"])
        self.assertEqual(server.stop(), 0)
        shim = faults.Faults(self.root)
        ten_years_s = 10 * 365 * 24 * 3600
        server = self.serve(data, shim.environment(ten_years_s))
        ahead_ms = server.status()["wall_ms"] - 1000 * time.time()
        self.assertGreater(ahead_ms, 900 * ten_years_s, "its clock is wrong")
        time.sleep(3)
        self.assertEqual(server.status()["workshop"]["uploads"], 1)
        self.assertEqual(server.stop(), 0)
        server = self.serve(data)
        self.complete(server.client(), "k", upload, listed)
        self.reads(server.client(), "pantry", {"k": b"soup"})

    def test_objects_and_parts_are_copied_from_warm_and_from_cold(self):
        server = self.rack("nas8", {**BRISK, "max_wait": "60 s"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        body = noise(20 * MIB, 1)
        config = boto3.s3.transfer.TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=6 * MIB)
        client.put_object(Bucket="pantry", Key="a b/ü", Body=body, Metadata={"cook": "anna"}, ContentType="text/x")
        source = {"Bucket": "pantry", "Key": "a b/ü"}
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        for place in ("warm", "cold"):
            with self.subTest(place=place):
                done = client.copy_object(Bucket="pantry", Key=f"whole {place}", CopySource=source)
                self.assertEqual(done["CopyObjectResult"]["ETag"], etag)
                if place == "cold":
                    server.until_cold()
                # Larger than the threshold: boto3 copies it in parts.
                client.copy(source, "pantry", f"parts {place}", Config=config)
                objects = {f"whole {place}": body, f"parts {place}": body}
                self.reads(client, "pantry", objects)
                head = client.head_object(Bucket="pantry", Key=f"whole {place}")
                self.assertEqual((head["Metadata"], head["ContentType"]), ({"cook": "anna"}, "text/x"))
                server.until_cold()
        wakes = server.totals()["group_wakes"]
        renamed = {"MetadataDirective": "REPLACE", "Metadata": {"cook": "berta"}}
        client.copy_object(Bucket="pantry", Key="a b/ü", CopySource=source, **renamed)
        self.assertEqual(client.head_object(Bucket="pantry", Key="a b/ü")["Metadata"], {"cook": "berta"})
        self.assertEqual(server.totals()["group_wakes"], wakes, "its bytes stayed where they were")
        self.fails(400, "InvalidRequest", client.copy_object, Bucket="pantry", Key="a b/ü", CopySource=source)
        unmet = {"CopySource": source, "CopySourceIfMatch": '"other"'}
        self.fails(412, "PreconditionFailed", client.copy_object, Bucket="pantry", Key="c", **unmet)

    def test_a_server_that_is_killed_keeps_uploads_and_loses_no_room(self):
        data = self.made("nas8", **STAYING)
        server = self.serve(data)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        parts = [noise(5 * MIB, 1), noise(5 * MIB, 2), noise(99, 3)]
        upload, listed = self.upload(client, "kept", parts)
        done, _ = self.upload(client, "done", parts)
        self.complete(client, "done", done, listed)
        loads = [threading.Thread(target=self.load, args=(server, number)) for number in range(3)]
        for load in loads:
            load.start()
        time.sleep(1.5)
        server.kill()
        for load in loads:
            load.join()
        server = self.serve(data)
        client = server.client()
        self.reads(client, "pantry", {"done": b"".join(parts)})
        self.complete(client, "kept", upload, listed)
        self.reads(client, "pantry", {"kept": b"".join(parts)})
        for entry in client.list_multipart_uploads(Bucket="pantry").get("Uploads", []):
            client.abort_multipart_upload(Bucket="pantry", Key=entry["Key"], UploadId=entry["UploadId"])
        for entry in client.list_objects_v2(Bucket="pantry").get("Contents", []):
            client.delete_object(Bucket="pantry", Key=entry["Key"])
        # A part that was staged and not yet committed when the server was killed is kept by the run after it, and
        # removed by the next.
        server.until("files of three clients", lambda status: status["workshop"]["staged_bytes"] <= 3 * 6 * MIB)
        self.assertEqual(server.stop(), 0)
        server = self.serve(data)
        server.until("all room is back", lambda status: status["workshop"]["staged_bytes"] == 0)

    def load(self, server, number):
        """Uploads, completes and aborts until the server is gone."""
        client = server.client()
        try:
            for turn in range(1000):
                key = f"{number}/{turn % 3}"
                upload, listed = self.upload(client, key, [noise(5 * MIB, turn), noise(9, turn)])
                if turn % 3 == 0:
                    client.abort_multipart_upload(Bucket="pantry", Key=key, UploadId=upload)
                else:
                    self.complete(client, key, upload, listed)
        except Exception:  # the server was killed
            return
