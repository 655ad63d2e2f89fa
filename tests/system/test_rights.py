"""Rights are those of the moment at which a change is committed, not of the moment at which its request began."""

import base64
import hashlib
import http.client
import json
import unittest

import botocore.auth
import botocore.awsrequest
import botocore.credentials
from harness import STAYING, SystemTest, larder

DELETE = b"<Delete><Object><Key>k</Key></Object></Delete>"
TAGS = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"


class RightsTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", STAYING)

    def keys(self, *words):
        output = larder("user", *words, "--data", self.server.data, "--json")
        self.assertEqual(output.returncode, 0, output.stderr)
        keys = json.loads(output.stdout)
        return keys["access_key"], keys["secret_key"]

    def client(self, keys):
        return self.server.client(keys)

    def begun(self, keys, method, target, body, **headers):
        """A request whose head and first byte are sent, and the call that sends the rest and gives status and body."""
        url = f"{self.server.endpoint}{target}"
        headers = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", **headers}
        request = botocore.awsrequest.AWSRequest(method=method, url=url, data=body, headers=headers)
        request.context["payload_signing_enabled"] = False
        signer = botocore.auth.S3SigV4Auth(botocore.credentials.Credentials(*keys), "s3", "us-east-1")
        signer.add_auth(request)
        connection = http.client.HTTPConnection(self.server.address, timeout=60)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        sent = {"host": self.server.address, **{k.lower(): v for k, v in request.headers.items()}}
        sent["content-length"] = str(len(body))
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders(body[:1])

        def finish():
            connection.send(body[1:])
            response = connection.getresponse()
            answer = response.status, response.read()
            connection.close()
            return answer

        return finish

    def test_a_put_that_began_before_a_rotation_is_not_committed_after_it(self):
        ann = self.keys("add", "ann")
        self.client(ann).create_bucket(Bucket="anns")
        finish = self.begun(ann, "PUT", "/anns/k", b"x" * 1000)
        new = self.keys("rotate", "ann")
        status, body = finish()
        self.assertEqual(status, 403, body)
        self.assertIn(b"<Code>InvalidAccessKeyId</Code>", body)
        self.assertNotIn("Contents", self.client(new).list_objects_v2(Bucket="anns"))
        self.client(new).put_object(Bucket="anns", Key="k", Body=b"mine")

    def test_root_rotates_as_anybody(self):
        root = (self.server.access_key, self.server.secret_key)
        self.client(root).create_bucket(Bucket="roots")
        finish = self.begun(root, "PUT", "/roots/k", b"x" * 1000)
        new = self.keys("rotate", "root")
        self.assertEqual(finish()[0], 403)
        self.client(new).put_object(Bucket="roots", Key="k", Body=b"mine")

    def test_a_delayed_body_of_an_ex_owner_does_nothing_to_the_next_owners_bucket(self):
        ann, bob = self.keys("add", "ann"), self.keys("add", "bob")
        bodies = [
            ("PUT", "/attic/k", b"anns"),
            ("POST", "/attic?delete=", DELETE),
            ("PUT", "/attic/k?tagging=", TAGS),
            ("PUT", "/attic?tagging=", TAGS),
        ]
        for method, target, body in bodies:
            self.client(ann).create_bucket(Bucket="attic")
            claims = {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()}
            finish = self.begun(ann, method, target, body, **claims)
            self.client(ann).delete_bucket(Bucket="attic")
            self.client(bob).create_bucket(Bucket="attic")
            self.client(bob).put_object(Bucket="attic", Key="k", Body=b"bobs")
            status, answer = finish()
            refused = status == 404 or b"<Code>NoSuchBucket</Code>" in answer
            self.assertTrue(refused, (method, target, status, answer))
            self.assertEqual(self.client(bob).get_object(Bucket="attic", Key="k")["Body"].read(), b"bobs")
            self.assertEqual(self.client(bob).get_object_tagging(Bucket="attic", Key="k")["TagSet"], [])
            self.client(bob).delete_object(Bucket="attic", Key="k")
            self.client(bob).delete_bucket(Bucket="attic")


if __name__ == "__main__":
    unittest.main()
