"""Requests as programs in the field send them, each with AWS's answer: unknown names are ignored, names in a URL
count as headers, and refusals name the code that AWS has."""

import datetime
import email.utils
import hashlib
import http.client
import urllib.parse
import zlib

import botocore.auth
import botocore.awsrequest
import botocore.credentials

from harness import STAYING, SystemTest, b64, noise

BODY = b"half a pound of butter"
UPLOAD = b"<CompleteMultipartUpload>%s</CompleteMultipartUpload>"


class Requests(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", STAYING)
        self.client = self.server.client()
        self.client.create_bucket(Bucket="pantry")
        self.client.put_object(Bucket="pantry", Key="k", Body=BODY)

    def is_answered(self, answered, status, code=None):
        self.assertEqual(answered[0], status, answered)
        if code:
            self.assertIn(f"<Code>{code}</Code>".encode(), answered[2])

    def presigned(self, method, path, parameters, body=b"", headers=None):
        """The answer to a URL that holds these parameters, which are signed."""
        url = f"{self.server.endpoint}{path}?{urllib.parse.urlencode(parameters)}"
        request = botocore.awsrequest.AWSRequest(method=method, url=url)
        keys = botocore.credentials.Credentials(self.server.access_key, self.server.secret_key)
        botocore.auth.S3SigV4QueryAuth(keys, "s3", "us-east-1", expires=60).add_auth(request)
        return self.sent(method, request.url, body, headers)

    def sent(self, method, url, body=b"", headers=None):
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=30)
        try:
            connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def test_a_url_as_the_sdk_for_javascript_makes_it(self):
        of_sdk = {
            "x-amz-checksum-mode": "ENABLED",
            "x-amz-checksum-crc32": "AAAAAA==",
            "x-amz-sdk-checksum-algorithm": "CRC32",
            "x-amz-meta-colour": "blue",
            "x-amz-acl": "public-read",
            "x-amz-tagging": "aisle=3",
            "x-id": "PutObject",
        }
        self.is_answered(self.presigned("PUT", "/pantry/js", of_sdk, BODY), 200)
        head = self.client.head_object(Bucket="pantry", Key="js")
        self.assertEqual(head["Metadata"], {"colour": "blue"})
        self.assertEqual(self.client.get_object_tagging(Bucket="pantry", Key="js")["TagSet"], [], "signed, and no more")
        self.assertEqual(self.sent("GET", f"{self.server.endpoint}/pantry/js")[2], BODY, "it is public")
        read = self.presigned("GET", "/pantry/js", {"x-amz-checksum-mode": "ENABLED", "foo": "bar"})
        self.assertEqual((read[0], read[2]), (200, BODY))
        self.assertIn("x-amz-checksum-crc64nvme", read[1])
        upload = self.client.create_multipart_upload(Bucket="pantry", Key="p")["UploadId"]
        part = {**of_sdk, "partNumber": 1, "uploadId": upload}
        self.is_answered(self.presigned("PUT", "/pantry/p", part, BODY), 200)

    def test_a_header_that_contradicts_the_url_is_refused(self):
        parameters, other = {"x-amz-acl": "private"}, {"x-amz-acl": "public-read"}
        self.is_answered(self.presigned("PUT", "/pantry/x", parameters, BODY, other), 403, "AccessDenied")
        self.is_answered(self.presigned("PUT", "/pantry/x", parameters, BODY, parameters), 200)

    def test_what_a_url_may_not_hold_is_refused(self):
        for name, value, status, code in [
            ("X-Amz-Security-Token", "t", 400, "InvalidToken"),
            ("x-amz-storage-class", "BOGUS", 400, "InvalidStorageClass"),
            ("x-amz-server-side-encryption", "AES256", 400, "InvalidArgument"),
            ("x-amz-copy-source", "/pantry/k", 400, "InvalidArgument"),
        ]:
            self.is_answered(self.presigned("PUT", "/pantry/x", {name: value}, BODY), status, code)
        self.is_answered(self.server.ask("HEAD", "/pantry/x"), 404)

    def test_a_parameter_that_nobody_knows_is_ignored(self):
        for method, body in [("GET", BODY), ("HEAD", b""), ("PUT", b"")]:
            for query in ["foo=bar", "v=3", "x-user=1", "foo"]:
                answered = self.server.ask(method, "/pantry/k", body=BODY if method == "PUT" else b"", query=query)
                self.assertEqual((answered[0], answered[2]), (200, body), (method, query))
        status, _, answer = self.server.ask("GET", "/pantry", query="lifecycle=&withUpdatedAt=true")
        self.assertEqual(status, 404)
        self.assertIn(b"NoSuchLifecycleConfiguration", answer)
        self.is_answered(self.server.ask("GET", "/pantry/k", query="torrent="), 501, "NotImplemented")
        self.is_answered(self.server.ask("PUT", "/pantry/k", body=BODY, query="versionId=x"), 400, "InvalidArgument")

    def test_urls_of_version_2(self):
        signer = self.server.client(signature_version="s3")
        key = {"Bucket": "pantry", "Key": "k"}
        url = signer.generate_presigned_url("delete_object", key, ExpiresIn=60)
        self.assertEqual(self.sent("DELETE", url)[0], 204)
        url = signer.generate_presigned_url("create_multipart_upload", key, ExpiresIn=60)
        self.assertEqual(self.sent("POST", url)[0], 200)
        url = signer.generate_presigned_url("get_object", key, ExpiresIn=8 * 24 * 3600)
        self.is_answered(self.sent("GET", url), 400, "AuthorizationQueryParametersError")

    def by_version_2(self, operation, method, body=b"", **named):
        """The answer to a URL of version 2, which signs `uploadId` and `partNumber`: it is refused with others."""
        signer = self.server.client(signature_version="s3")
        url = signer.generate_presigned_url(operation, {"Bucket": "pantry", "Key": "v2", **named}, ExpiresIn=60)
        for name in ["uploadId", "partNumber"]:
            other = url.replace(f"{name}=", f"{name}=1")
            if other != url:
                self.is_answered(self.sent(method, other, body), 403, "SignatureDoesNotMatch")
        return self.sent(method, url, body)

    def test_an_upload_by_urls_of_version_2(self):
        upload = {"UploadId": self.client.create_multipart_upload(Bucket="pantry", Key="v2")["UploadId"]}
        answered = self.by_version_2("upload_part", "PUT", BODY, **upload, PartNumber=1)
        self.is_answered(answered, 200)
        etag = answered[1]["etag"]
        self.assertIn(etag.strip('"').encode(), self.by_version_2("list_parts", "GET", **upload)[2])
        part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>".encode()
        self.is_answered(self.by_version_2("complete_multipart_upload", "POST", UPLOAD % part, **upload), 200)
        self.reads(self.client, "pantry", {"v2": BODY})
        upload = {"UploadId": self.client.create_multipart_upload(Bucket="pantry", Key="v2")["UploadId"]}
        self.is_answered(self.by_version_2("abort_multipart_upload", "DELETE", **upload), 204)
        self.assertNotIn("Uploads", self.client.list_multipart_uploads(Bucket="pantry"))

    def signed_by_hand(self, headers, region="us-east-1", method="GET", path="/pantry/k", body=b""):
        """A request with version 4 in its headers and these among the signed ones."""
        url = f"{self.server.endpoint}{path}"
        keys = botocore.credentials.Credentials(self.server.access_key, self.server.secret_key)
        signer = botocore.auth.S3SigV4Auth(keys, "s3", region)
        request = botocore.awsrequest.AWSRequest(method=method, url=url, data=body, headers=headers)
        now = datetime.datetime.now(datetime.timezone.utc)
        request.context["timestamp"] = now.strftime("%Y%m%dT%H%M%SZ")
        if "x-amz-content-sha256" not in headers:
            request.headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
        canonical = signer.canonical_request(request)
        signature = signer.signature(signer.string_to_sign(request, canonical), request)
        names = signer.signed_headers(signer.headers_to_sign(request))
        request.headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, Signature={signature}"
        )
        return self.sent(method, f"{url}?", body, dict(request.headers.items()))

    def test_the_date_may_stand_in_date_alone(self):
        now = datetime.datetime.now(datetime.timezone.utc)
        for date in [email.utils.format_datetime(now, usegmt=True), now.strftime("%Y%m%dT%H%M%SZ")]:
            with self.subTest(date):
                answered = self.signed_by_hand({"Date": date})
                self.assertEqual((answered[0], answered[2]), (200, BODY), answered)

    def test_a_region_that_aws_does_not_spell_is_named(self):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        self.assertEqual(self.signed_by_hand({"X-Amz-Date": now}, "eu-west-1")[2], BODY)
        for region in ["US", "RegionOne", "us.east"]:
            answered = self.signed_by_hand({"X-Amz-Date": now}, region)
            self.is_answered(answered, 400, "AuthorizationHeaderMalformed")
            self.assertIn(b"<Region>us-east-1</Region>", answered[2])
            answered = self.signed_by_hand({"X-Amz-Date": now}, region, "HEAD")
            self.assertEqual((answered[0], answered[1].get("x-amz-bucket-region")), (400, "us-east-1"))

    def test_a_digest_of_the_body_that_is_none(self):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        answered = self.signed_by_hand({"X-Amz-Date": now, "x-amz-content-sha256": "garbage"})
        self.is_answered(answered, 400, "InvalidArgument")

    def test_an_upload_id_is_no_number(self):
        upload = self.client.create_multipart_upload(Bucket="pantry", Key="p")["UploadId"]
        self.assertTrue(upload[0].isalpha(), upload)

    def test_content_encoding_stays_as_it_was_sent(self):
        self.server.ask("PUT", "/pantry/e", {"Content-Encoding": "deflate, gzip"}, BODY)
        self.assertEqual(self.server.ask("HEAD", "/pantry/e")[1]["content-encoding"], "deflate, gzip")

    def test_a_missing_bucket_comes_first(self):
        completion = UPLOAD % b'<Part><PartNumber>1</PartNumber><ETag>"x"</ETag></Part>'
        for method, query, body in [
            ("PUT", "partNumber=1&uploadId=x", b""),
            ("POST", "uploadId=x", completion),
            ("DELETE", "uploadId=x", b""),
            ("GET", "uploadId=x", b""),
        ]:
            for path, code in [("/nowhere/k", "NoSuchBucket"), ("/pantry/k", "NoSuchUpload")]:
                self.is_answered(self.server.ask(method, path, body=body, query=query), 404, code)
        for method in ["GET", "DELETE"]:
            self.is_answered(self.sent(method, f"{self.server.endpoint}/nowhere/k"), 404, "NoSuchBucket")

    def test_an_empty_object_has_no_range_and_says_so(self):
        self.client.put_object(Bucket="pantry", Key="empty", Body=b"")
        answered = self.server.ask("GET", "/pantry/empty", {"Range": "bytes=0-9"})
        self.is_answered(answered, 416, "InvalidRange")
        self.assertIn(b"<RangeRequested>bytes=0-9</RangeRequested>", answered[2])
        self.assertIn(b"<ActualObjectSize>0</ActualObjectSize>", answered[2])

    def test_a_delete_of_many_takes_prefixes_and_needs_a_digest(self):
        body = b'<s:Delete xmlns:s="http://s3.amazonaws.com/doc/2006-03-01/">%s</s:Delete>'
        body %= b"<s:Object><s:Key>k</s:Key></s:Object>"
        self.is_answered(self.server.ask("POST", "/pantry", {}, body, "delete="), 400, "InvalidRequest")
        digest = {"Content-MD5": b64(hashlib.md5(body).digest())}
        answered = self.server.ask("POST", "/pantry", digest, body, "delete=")
        self.is_answered(answered, 200)
        self.assertIn(b"<Deleted><Key>k</Key></Deleted>", answered[2])

    def test_parts_and_their_checksums(self):
        upload = self.client.create_multipart_upload(Bucket="pantry", Key="p")["UploadId"]
        etag = self.client.upload_part(Bucket="pantry", Key="p", PartNumber=1, UploadId=upload, Body=BODY)["ETag"]
        part = f"<Part><PartNumber> 1 </PartNumber><ETag>{etag}</ETag><ChecksumSHA256>%s</ChecksumSHA256></Part>"
        wrong = b64(hashlib.sha256(b"other").digest())
        answered = self.server.ask("POST", "/pantry/p", {}, UPLOAD % (part % wrong).encode(), f"uploadId={upload}")
        self.is_answered(answered, 400, "InvalidPart")
        plain = f"<Part><PartNumber> 1 </PartNumber><ETag>{etag}</ETag></Part>"
        self.is_answered(self.server.ask("POST", "/pantry/p", {}, UPLOAD % plain.encode(), f"uploadId={upload}"), 200)
        upload = self.client.create_multipart_upload(Bucket="pantry", Key="c", ChecksumAlgorithm="SHA256")["UploadId"]
        query = f"partNumber=1&uploadId={upload}"
        self.is_answered(self.server.ask("PUT", "/pantry/c", {}, BODY, query), 400, "InvalidRequest")
        digest = {"x-amz-checksum-sha256": b64(hashlib.sha256(BODY).digest())}
        self.is_answered(self.server.ask("PUT", "/pantry/c", digest, BODY, query), 200)

    def test_headers_without_effect(self):
        for name, value in [("x-amz-metadata-directive", "REPLACE"), ("x-amz-tagging-directive", "COPY")]:
            self.is_answered(self.server.ask("PUT", "/pantry/d", {name: value}, BODY), 200)
            self.is_answered(self.server.ask("POST", "/pantry/d", {name: value}, query="uploads="), 200)
        self.is_answered(self.server.ask("PUT", "/larder-two", {"x-amz-bucket-namespace": "global"}), 200)
        self.is_answered(self.server.ask("GET", "/pantry/k", {"x-amz-acl": "private"}), 200)

    def test_a_bucket_with_tags(self):
        tags = b"<Tags><Tag><Key>a</Key><Value>b</Value></Tag></Tags>"
        body = b"<CreateBucketConfiguration>%s</CreateBucketConfiguration>"
        self.is_answered(self.server.ask("PUT", "/tagged", {}, body % tags), 200)
        self.assertEqual(self.client.get_bucket_tagging(Bucket="tagged")["TagSet"], [{"Key": "a", "Value": "b"}])
        place = b"<LocationConstraint>us-east-1</LocationConstraint>"
        self.is_answered(self.server.ask("PUT", "/placed", {}, body % place), 400, "InvalidLocationConstraint")
        self.is_answered(self.server.ask("PUT", "/other", {}, body % b"<Never/>"), 400, "MalformedXML")
        for name in ["sthree-a", "a--x-s3", "a.mrap"]:
            self.is_answered(self.server.ask("PUT", f"/{name}"), 400, "InvalidBucketName")

    def test_documents_with_unknown_words(self):
        rule = b"<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership>%s</Rule></OwnershipControls>"
        controls = "ownershipControls="
        self.is_answered(self.server.ask("PUT", "/pantry", {}, rule % b"<More/>", controls), 400, "MalformedXML")
        self.is_answered(self.server.ask("PUT", "/pantry", {}, rule % b"", controls), 200)
        grant = (
            b'<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">'
            b"<ID>root</ID></Grantee><Permission>EVERYTHING</Permission></Grant>"
        )
        policy = b"<AccessControlPolicy><AccessControlList>%s</AccessControlList></AccessControlPolicy>"
        self.is_answered(self.server.ask("PUT", "/pantry", {}, policy % grant, "acl="), 400, "MalformedACLError")
        for wrong in [grant.replace(b"CanonicalUser", b"Group"), b"<Grant><Permission>READ</Permission></Grant>"]:
            wrong = policy % wrong.replace(b"EVERYTHING", b"READ")
            self.is_answered(self.server.ask("PUT", "/pantry", {}, wrong, "acl="), 400, "MalformedACLError")

    def test_lists_of_configurations_that_were_never_set(self):
        for name in ["analytics", "intelligent-tiering", "inventory", "metrics"]:
            self.is_answered(self.server.ask("GET", "/pantry", query=f"{name}="), 200)
            self.is_answered(self.server.ask("GET", "/pantry", query=f"{name}=&id=x"), 404, "NoSuchConfiguration")

    def chunked(self, key, body, trailer, announced=None, end=b"\r\n"):
        """The answer to a PUT in unsigned chunks with this trailer, and `end` behind it."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {
            "X-Amz-Date": now,
            "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            "x-amz-decoded-content-length": str(len(body)),
            "Content-Encoding": "aws-chunked",
            **({"x-amz-trailer": announced} if announced else {}),
        }
        chunks = b"%x\r\n%s\r\n0\r\n%s%s" % (len(body), body, trailer, end)
        return self.signed_by_hand(headers, method="PUT", path=f"/pantry/{key}", body=chunks)

    def test_a_chunked_body_has_the_trailer_that_it_announces(self):
        body, crc = noise(70_000, 1), "x-amz-checksum-crc32"
        self.is_answered(self.chunked("t", body, b""), 200)
        self.reads(self.client, "pantry", {"t": body})
        right = b"x-amz-checksum-crc32:%s\r\n" % b64(zlib.crc32(body).to_bytes(4, "big")).encode()
        self.is_answered(self.chunked("t", body, right, crc), 200)
        wrong = b"x-amz-checksum-crc32:AAAAAA==\r\n"
        self.is_answered(self.chunked("u", body, wrong, crc), 400, "BadDigest")
        for trailer in [b"", b"x-amz-checksum-sha1:AAAA\r\n", b"x-amz-foo:1\r\n", b"garbage\r\n", right + right]:
            self.is_answered(self.chunked("u", body, trailer, crc), 400, "MalformedTrailerError")
        for end in [b"", b"\r", b"\rX"]:
            self.is_answered(self.chunked("u", body, right, crc, end), 400, "IncompleteBody")
        # A checksum that nobody announced would not be verified.
        for trailer in [right, wrong, b"garbage\r\n"]:
            self.is_answered(self.chunked("u", body, trailer), 400, "MalformedTrailerError")
        self.is_answered(self.server.ask("HEAD", "/pantry/u"), 404)

    def test_a_part_of_a_composite_object_has_the_type_of_its_object(self):
        upload = self.client.create_multipart_upload(Bucket="pantry", Key="c", ChecksumAlgorithm="SHA256")["UploadId"]
        digest = b64(hashlib.sha256(BODY).digest())
        named = {"Bucket": "pantry", "Key": "c", "UploadId": upload}
        etag = self.client.upload_part(**named, PartNumber=1, Body=BODY, ChecksumSHA256=digest)["ETag"]
        part = {"PartNumber": 1, "ETag": etag, "ChecksumSHA256": digest}
        self.client.complete_multipart_upload(**named, MultipartUpload={"Parts": [part]})
        answered = self.server.ask("GET", "/pantry/c", {"x-amz-checksum-mode": "ENABLED"}, query="partNumber=1")
        self.is_answered(answered, 206)
        self.assertEqual(answered[1]["x-amz-checksum-type"], "COMPOSITE")
        self.assertEqual(answered[1]["x-amz-checksum-sha256"], digest)

    def test_a_list_of_no_version(self):
        self.is_answered(self.server.ask("GET", "/pantry", query="list-type=3"), 400, "InvalidArgument")
        self.is_answered(self.server.ask("GET", "/pantry", query="list-type=2&foo=1"), 200)
