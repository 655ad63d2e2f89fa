"""Keys that XML cannot hold, and requests of clean-up scripts, under a stock client."""

import urllib.parse
import xml.etree.ElementTree

import botocore.handlers

from harness import STAYING, SystemTest

NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
# What XML gives back as it is, and what it has no character for.
HELD = ["plain", "cr\rend", "crlf\r\nend", "tab\tend", "line\nend", "a & <b>", "\u00fc\u20ac"]
NOT_HELD = ["nul\x00end", "one\x01end", "esc\x1bend"]


class OddKeys(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", STAYING)
        self.client = self.server.client()
        self.client.create_bucket(Bucket="pantry")
        for key in HELD + NOT_HELD:
            self.client.put_object(Bucket="pantry", Key=key, Body=key.encode())

    def test_boto3_that_does_not_ask_for_urls_lists_them(self):
        client = self.server.client()
        for operation in ("ListObjectsV2", "ListObjects", "ListObjectVersions"):
            event = f"before-parameter-build.s3.{operation}"
            client.meta.events.unregister(event, botocore.handlers.set_list_objects_encoding_type_url)
        for listing, field in [
            (client.list_objects_v2, "Contents"),
            (client.list_objects, "Contents"),
            (client.list_object_versions, "Versions"),
        ]:
            answer = listing(Bucket="pantry")
            keys = {entry["Key"] for entry in answer[field]}
            self.assertNotIn("EncodingType", answer)
            replaced = {"".join(c if c >= " " else "\ufffd" for c in key) for key in NOT_HELD}
            self.assertEqual(keys, set(HELD) | replaced)

    def test_boto3_as_it_comes_reads_and_deletes_them_all(self):
        found = [entry["Key"] for entry in self.client.list_objects_v2(Bucket="pantry")["Contents"]]
        self.assertEqual(sorted(found), sorted(HELD + NOT_HELD))
        for key in found:
            self.assertEqual(self.client.get_object(Bucket="pantry", Key=key)["Body"].read(), key.encode())
            self.client.delete_object(Bucket="pantry", Key=key)
        self.assertNotIn("Contents", self.client.list_objects_v2(Bucket="pantry"))

    def test_what_the_server_writes_is_xml(self):
        for query in ("", "list-type=2", "versions=", "uploads=", "max-keys=3&versions=", "max-keys=1"):
            status, _, body = self.server.ask("GET", "/pantry", query=query)
            self.assertEqual(status, 200, body)
            xml.etree.ElementTree.fromstring(body)
        for key in HELD + NOT_HELD:
            status, _, body = self.server.ask("GET", f"/pantry/none {key}")
            self.assertEqual(status, 404)
            resource = xml.etree.ElementTree.fromstring(body).findtext("Resource")
            if key in HELD:
                self.assertEqual(resource, f"/pantry/none {key}")

    def test_pages_of_one_lose_no_key(self):
        seen, marker = [], ""
        for _ in range(30):
            query = "max-keys=1" + (f"&marker={urllib.parse.quote(marker, safe='')}" if marker else "")
            _, _, body = self.server.ask("GET", "/pantry", query=query)
            page = xml.etree.ElementTree.fromstring(body)
            as_url = page.findtext(f"{NAMESPACE}EncodingType") == "url"
            keys = [element.text for element in page.iter(f"{NAMESPACE}Key")]
            marker = urllib.parse.unquote(keys[-1]) if as_url else keys[-1]
            seen += keys
            if page.findtext(f"{NAMESPACE}IsTruncated") == "false":
                break
        self.assertEqual(len(seen), len(HELD) + len(NOT_HELD))


class CleanUp(SystemTest):
    def test_governance_that_there_is_none_of_is_bypassed(self):
        server = self.rack("nas8", STAYING)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        for key in ("a", "b", "c"):
            client.put_object(Bucket="pantry", Key=key, Body=b"x")
        client.delete_object(Bucket="pantry", Key="a", BypassGovernanceRetention=True)
        answer = client.delete_objects(
            Bucket="pantry",
            Delete={"Objects": [{"Key": "b"}, {"Key": "c"}]},
            BypassGovernanceRetention=True,
        )
        self.assertEqual(sorted(entry["Key"] for entry in answer["Deleted"]), ["b", "c"])
        client.delete_bucket(Bucket="pantry")
