"""Ceph's object gateway moves objects to Larder and gets them back: its calls, replayed.

The gateway that distributions package today (16.2) has no cloud transition, so the calls are replayed as the later ones
make them (17.2 for the transition, 20.2 for the restore): every header signed, payloads not, version 4 and region
us-east-1, the bucket and the key of the source in the key, its time and ETag in metadata.
"""

import hashlib
import http.client
import re
import time
import xml.etree.ElementTree

from harness import BRISK, SystemTest, noise
from swift import SwiftClient

TARGET = "rgwx-default-cloudtier-cloud-bucket"
PART_BYTES = 8 << 20


def attributes(key, body, mtime):
    """What the gateway sends with an object, or with the beginning of an upload in parts."""
    return {
        "content-type": "image/jpeg",
        "x-amz-meta-camera": "north gate",
        "x-amz-meta-rgwx-source": "rgw",
        "x-amz-meta-rgwx-source-etag": hashlib.md5(body).hexdigest(),
        "x-amz-meta-rgwx-source-key": key,
        "x-amz-meta-rgwx-source-mtime": mtime,
        "x-amz-meta-rgwx-versioned-epoch": "0",
        "x-amz-storage-class": "STANDARD",
        "x-rgw-cloud": "true",
        "x-rgw-cloud-keep-attrs": "true",
    }


def part_list(etags):
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        for number, etag in enumerate(etags, 1)
    )
    return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()


class Gateway(SwiftClient):
    """The gateway with one storage class of the tier type `cloud-s3`, whose endpoint is `server`."""

    def __init__(self, server, source):
        super().__init__(server)
        self.source = source

    def ask(self, method, path, body=b"", query="", headers=None):
        date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime())
        signed = self.signed(method, path, query, {"date": date, **(headers or {})})
        connection = http.client.HTTPConnection(self.server.address, timeout=60)
        try:
            connection.request(method, f"{path}?{query}" if query else path, body=body, headers=signed)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def path(self, key):
        return f"/{TARGET}/{self.source}/{key}"

    def make_bucket(self):
        status, _, answer = self.ask("PUT", f"/{TARGET}")
        code = re.search(rb"<Code>(\w+)</Code>", answer)
        # The gateway takes any body for an error, of which it knows two to go on with.
        return status == 200 and not answer or code and code[1] in (b"BucketAlreadyOwnedByYou", b"BucketAlreadyExists")

    def is_there(self, key, mtime):
        status, headers, _ = self.ask("HEAD", self.path(key))
        return status == 200 and headers.get("x-amz-meta-rgwx-source-mtime") == mtime

    def put(self, key, body, mtime):
        return self.ask("PUT", self.path(key), body, headers=attributes(key, body, mtime))[0]

    def begin(self, key, body, mtime):
        status, _, answer = self.ask("POST", self.path(key), query="uploads=", headers=attributes(key, body, mtime))
        assert status == 200, answer
        found = xml.etree.ElementTree.fromstring(answer)
        return next(part.text for part in found.iter() if part.tag.endswith("UploadId"))

    def put_part(self, key, upload, number, body):
        status, headers, answer = self.ask("PUT", self.path(key), body, f"partNumber={number}&uploadId={upload}")
        assert status == 200, answer
        return headers["etag"]

    def put_in_parts(self, key, body, mtime):
        upload = self.begin(key, body, mtime)
        parts = [body[at:at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]
        etags = [self.put_part(key, upload, number, part) for number, part in enumerate(parts, 1)]
        status, _, answer = self.ask("POST", self.path(key), part_list(etags), f"uploadId={upload}")
        assert b"CompleteMultipartUploadResult" in answer, answer
        return status


class Transition(SystemTest):
    def gateway(self):
        self.server = self.rack("nas8", BRISK)
        gateway = Gateway(self.server, "gate-cameras")
        self.assertTrue(gateway.make_bucket())
        self.assertTrue(gateway.make_bucket(), "every gateway makes it, and after every start")
        return gateway

    def test_objects_move_here_once_and_come_back_from_drives_that_slept(self):
        gateway = self.gateway()
        bodies = {"2026/07/one.jpg": noise(60_000, "one"), "2026/07/film.mkv": noise(2 * PART_BYTES + 5, "film")}
        moved = {key: f"17{number}0000000.000000123" for number, key in enumerate(bodies)}
        for key, body in bodies.items():
            self.assertFalse(gateway.is_there(key, moved[key]))
            put = gateway.put_in_parts if len(body) > PART_BYTES else gateway.put
            self.assertEqual(put(key, body, moved[key]), 200)
            self.assertTrue(gateway.is_there(key, moved[key]), "another zone's gateway does not send it again")
            self.assertFalse(gateway.is_there(key, "1790000000.000000000"), "it does once the object has changed")
        self.server.until_cold()
        self.server.until_asleep()
        for key, body in bodies.items():
            status, headers, answer = gateway.ask("GET", gateway.path(key))
            self.assertEqual((status, headers["content-length"]), (200, str(len(body))))
            self.assertTrue(answer == body, key)
            self.assertEqual((headers["content-type"], headers["x-amz-meta-camera"]), ("image/jpeg", "north gate"))
            self.assertEqual(headers["x-amz-meta-rgwx-source-etag"], hashlib.md5(body).hexdigest())

    def test_an_upload_that_the_gateway_gives_up_leaves_nothing(self):
        gateway = self.gateway()
        body = noise(PART_BYTES, "half")
        upload = gateway.begin("half", body, "1.000000000")
        gateway.put_part("half", upload, 1, body)
        self.assertEqual(gateway.ask("DELETE", gateway.path("half"), query=f"uploadId={upload}")[0], 204)
        self.assertFalse(gateway.is_there("half", "1.000000000"))
        workshop = self.server.status()["workshop"]
        self.assertEqual((workshop["staged_count"], workshop["uploads"]), (0, 0))

    def test_what_would_mean_less_here_is_refused(self):
        gateway = self.gateway()
        wishes = {
            "target_storage_class": {"x-amz-storage-class": "GLACIER"},
            "acls": {"x-amz-grant-read": 'id="somebody"'},
        }
        for wish, headers in wishes.items():
            with self.subTest(wish):
                sent = {**attributes("k", b"k", "1.000000000"), **headers}
                status, _, answer = gateway.ask("PUT", gateway.path("k"), b"k", headers=sent)
                self.assertEqual(status, 400, answer)
                self.assertEqual(gateway.ask("HEAD", gateway.path("k"))[0], 404)
        self.assertEqual(gateway.put("k", b"k", "1.000000000"), 200)
        restore = b"<RestoreRequest><Days>1</Days></RestoreRequest>"
        status, _, answer = gateway.ask("POST", gateway.path("k"), restore, "restore=")
        self.assertIn(b"<Code>NotImplemented</Code>", answer)
        self.assertEqual(status, 501, "the tier type cloud-s3-glacier asks for that")
