"""Users, ACLs, tags, versions and what stock clients ask before they work, with boto3 and the aws CLI."""

import json
import socket
import urllib.error
import urllib.parse
import urllib.request

from harness import BRISK, STAYING, SystemTest, aws, larder, refusal

BODY = b"a jar of pickles"
DOMAIN = "s3.larder.test"
ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"


def keys_of(output):
    """The keys that `larder user add` or `rotate` printed as JSON."""
    assert output.returncode == 0, output.stderr
    keys = json.loads(output.stdout)
    return keys["access_key"], keys["secret_key"]


class Users(SystemTest):
    def setUp(self):
        super().setUp()
        self.data = self.made("nas8", **STAYING)
        self.server = self.serve(self.data)

    def user(self, *words):
        return larder("user", *words, "--data", self.data, "--json")

    def client(self, keys):
        return self.server.client(keys)

    def test_users_come_and_go_while_the_server_runs_and_stay_over_a_restart(self):
        root = self.server.client()
        ann = self.client(first := keys_of(self.user("add", "ann")))
        self.assertNotIn(first[1], self.server.log(), "secrets are in no log")
        ann.create_bucket(Bucket="anns")
        ann.put_object(Bucket="anns", Key="k", Body=BODY)
        root.create_bucket(Bucket="roots")
        for client, own, others in [(ann, "anns", "roots"), (root, "roots", "anns")]:
            self.assertEqual([bucket["Name"] for bucket in client.list_buckets()["Buckets"]], [own])
            self.fails(403, "AccessDenied", client.list_objects_v2, Bucket=others)
            self.fails(403, "AccessDenied", client.put_object, Bucket=others, Key="k", Body=b"x")
            self.fails(403, "AccessDenied", client.delete_bucket, Bucket=others)
            self.fails(403, "403", client.head_bucket, Bucket=others)
            self.fails(409, "BucketAlreadyExists", client.create_bucket, Bucket=others)
        listed = ann.list_objects(Bucket="anns")["Contents"][0]["Owner"]
        self.assertEqual((listed["ID"], ann.list_buckets()["Owner"]["ID"]), ("ann", "ann"))

        second = keys_of(self.user("rotate", "ann"))
        self.fails(403, "InvalidAccessKeyId", ann.list_buckets)
        ann = self.client(second)
        self.reads(ann, "anns", {"k": BODY})
        self.server.kill()
        self.server = self.serve(self.data)
        ann = self.client(second)
        self.reads(ann, "anns", {"k": BODY})
        listed = json.loads(self.user("list").stdout)
        self.assertEqual([(user["name"], user["buckets"]) for user in listed], [("root", 1), ("ann", 1)])

        self.assertIn("ann owns 1 bucket (anns)", refusal(self.user("remove", "ann")))
        ann.delete_object(Bucket="anns", Key="k")
        ann.delete_bucket(Bucket="anns")
        self.assertEqual(self.user("remove", "ann").returncode, 0)
        self.fails(403, "InvalidAccessKeyId", ann.list_buckets)
        for words, says in [
            (("remove", "ann"), "there is no user ann"),
            (("rotate", "ann"), "there is no user ann"),
            (("remove", "root"), "the user root cannot be removed"),
            (("add", "root"), "there is a user root already"),
            (("add", "a b"), "is not a user name"),
        ]:
            self.assertIn(says, refusal(self.user(*words)))

    def test_root_gets_other_keys_that_a_restart_knows(self):
        root = self.server.client()
        root.create_bucket(Bucket="roots")
        keys = keys_of(self.user("rotate", "root"))
        self.fails(403, "InvalidAccessKeyId", root.list_buckets)
        self.assertEqual([bucket["Name"] for bucket in self.client(keys).list_buckets()["Buckets"]], ["roots"])
        self.assertEqual(self.server.stop(), 0)
        self.server = self.serve(self.data)
        self.assertEqual((self.server.access_key, self.server.secret_key), keys)
        self.server.client().head_bucket(Bucket="roots")

    def test_without_a_server_nobody_changes_users(self):
        self.server.stop()
        self.assertIn("start it with", refusal(self.user("add", "ann")))


class Labels(SystemTest):
    def anonymous(self, path, method="GET"):
        request = urllib.request.Request(f"{self.server.endpoint}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def test_tags_and_acls_of_cold_objects_change_without_waking_anything(self):
        self.server = self.rack("nas8", {**BRISK, "migrate.linger": "1 s"})
        client, here = self.server.client(), {"Bucket": "pantry", "Key": "k"}
        client.create_bucket(Bucket="pantry")
        client.put_object(**here, Body=BODY, Tagging="shelf=top&jar=3")
        before = client.head_object(**here)
        self.server.until_cold()
        self.server.until_asleep()
        starts = self.server.totals()["drive_starts"]
        place = self.server.explain("pantry", "k")["place"]["blob"]

        tags = client.get_object_tagging(**here)["TagSet"]
        self.assertEqual({tag["Key"]: tag["Value"] for tag in tags}, {"shelf": "top", "jar": "3"})
        client.put_object_tagging(**here, Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
        client.put_object_acl(**here, ACL="public-read")
        self.assertEqual(client.get_object_acl(**here)["Grants"][1]["Grantee"]["URI"], ALL_USERS)
        after = client.head_object(**here)
        self.assertEqual((after["LastModified"], after["ETag"]), (before["LastModified"], before["ETag"]))
        self.assertEqual(client.list_object_versions(Bucket="pantry")["Versions"][0]["VersionId"], "null")
        attributes = client.get_object_attributes(**here, ObjectAttributes=["ETag", "ObjectSize", "Checksum"])
        self.assertEqual((attributes["ObjectSize"], attributes["ETag"]), (len(BODY), before["ETag"].strip('"')))
        self.assertEqual(self.anonymous("/pantry/k", "HEAD")[0], 200)
        self.assertEqual(self.server.totals()["drive_starts"], starts, "nothing of this woke a drive")
        self.assertEqual(self.server.explain("pantry", "k")["place"]["blob"], place)

        self.assertEqual(self.anonymous("/pantry/k"), (200, BODY))
        self.assertGreater(self.server.totals()["drive_starts"], starts, "reading it did")
        client.put_object_acl(**here, ACL="private")
        self.assertEqual(self.anonymous("/pantry/k")[0], 403)
        client.delete_object_tagging(**here)
        self.assertEqual(client.get_object_tagging(**here)["TagSet"], [])

    def test_what_is_public_is_read_by_everybody_and_nothing_else(self):
        self.server = self.rack("nas8", STAYING)
        client = self.server.client()
        client.create_bucket(Bucket="pantry", ACL="public-read")
        client.put_object(Bucket="pantry", Key="open", Body=BODY, ACL="public-read")
        client.put_object(Bucket="pantry", Key="closed", Body=BODY)
        self.assertEqual(self.anonymous("/pantry/open"), (200, BODY))
        self.assertIn(b"<Key>closed</Key>", self.anonymous("/pantry?list-type=2")[1])
        for method, path in [
            ("GET", "/pantry/closed"),
            ("PUT", "/pantry/open"),
            ("DELETE", "/pantry/open"),
            ("PUT", "/another"),
            ("GET", "/"),
        ]:
            status, body = self.anonymous(path, method)
            self.assertEqual((status, b"<Code>AccessDenied</Code>" in body), (403, True), f"{method} {path}")
        enforced = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        client.put_bucket_acl(Bucket="pantry", ACL="private")
        client.put_bucket_ownership_controls(Bucket="pantry", OwnershipControls=enforced)
        self.assertEqual(self.anonymous("/pantry/open")[0], 403)
        refused = {"Bucket": "pantry", "Key": "new", "Body": BODY, "ACL": "public-read"}
        self.fails(400, "AccessControlListNotSupported", client.put_object, **refused)
        self.reads(client, "pantry", {"open": BODY})

    def test_limits_of_tags_are_those_of_s3(self):
        self.server = self.rack("nas8", STAYING)
        client = self.server.filled({"k": BODY})

        def tags(count, key=str, value="v"):
            return {"TagSet": [{"Key": key(i), "Value": value} for i in range(count)]}

        here = {"Bucket": "pantry", "Key": "k"}
        client.put_object_tagging(**here, Tagging=tags(10))
        self.fails(400, "BadRequest", client.put_object_tagging, **here, Tagging=tags(11))
        self.fails(400, "InvalidTag", client.put_object_tagging, **here, Tagging=tags(1, lambda _: "x" * 129))
        self.fails(400, "InvalidTag", client.put_object_tagging, **here, Tagging=tags(1, value="x" * 257))
        self.fails(400, "InvalidTag", client.put_object_tagging, **here, Tagging=tags(2, lambda _: "same"))
        self.assertEqual(client.get_object(**here)["TagCount"], 10)
        self.fails(404, "NoSuchTagSet", client.get_bucket_tagging, Bucket="pantry")
        client.put_bucket_tagging(Bucket="pantry", Tagging=tags(50))
        self.assertEqual(len(client.get_bucket_tagging(Bucket="pantry")["TagSet"]), 50)
        client.delete_bucket_tagging(Bucket="pantry")
        self.fails(404, "NoSuchTagSet", client.get_bucket_tagging, Bucket="pantry")


class Clients(SystemTest):
    def test_what_clients_ask_of_a_bucket_before_they_work_is_answered_as_by_a_plain_one(self):
        client = self.rack("nas8", STAYING).client()
        client.create_bucket(Bucket="pantry")
        here = {"Bucket": "pantry"}
        for call, code in [
            (client.get_bucket_cors, "NoSuchCORSConfiguration"),
            (client.get_bucket_encryption, "ServerSideEncryptionConfigurationNotFoundError"),
            (client.get_bucket_lifecycle_configuration, "NoSuchLifecycleConfiguration"),
            (client.get_bucket_ownership_controls, "OwnershipControlsNotFoundError"),
            (client.get_bucket_policy, "NoSuchBucketPolicy"),
            (client.get_bucket_policy_status, "NoSuchBucketPolicy"),
            (client.get_bucket_replication, "ReplicationConfigurationNotFoundError"),
            (client.get_bucket_website, "NoSuchWebsiteConfiguration"),
            (client.get_object_lock_configuration, "ObjectLockConfigurationNotFoundError"),
            (client.get_public_access_block, "NoSuchPublicAccessBlockConfiguration"),
        ]:
            self.fails(404, code, call, **here)
        for call, key in [
            (client.get_bucket_versioning, "Status"),
            (client.get_bucket_logging, "LoggingEnabled"),
            (client.get_bucket_accelerate_configuration, "Status"),
            (client.get_bucket_notification_configuration, "TopicConfigurations"),
        ]:
            self.assertNotIn(key, call(**here))
        self.assertEqual(client.get_bucket_request_payment(**here)["Payer"], "BucketOwner")
        self.assertIsNone(client.get_bucket_location(**here)["LocationConstraint"])
        self.assertEqual(client.head_bucket(**here)["BucketRegion"], "us-east-1")
        for call, arguments in [
            (client.put_bucket_versioning, {"VersioningConfiguration": {"Status": "Enabled"}}),
            (client.put_bucket_versioning, {"VersioningConfiguration": {"Status": "Suspended"}}),
            (client.put_bucket_policy, {"Policy": "{}"}),
            (client.put_public_access_block, {"PublicAccessBlockConfiguration": {"BlockPublicAcls": True}}),
            (client.put_bucket_request_payment, {"RequestPaymentConfiguration": {"Payer": "Requester"}}),
        ]:
            self.fails(501, "NotImplemented", call, **here, **arguments)

    def test_a_bucket_may_stand_in_front_of_the_domain(self):
        server = self.rack("nas8", {**STAYING, "domain": DOMAIN})
        port = urllib.parse.urlsplit(server.endpoint).port
        resolve = socket.getaddrinfo

        def here(host, *rest, **more):
            return resolve("127.0.0.1" if host.endswith(DOMAIN) else host, *rest, **more)

        socket.getaddrinfo = here
        self.addCleanup(setattr, socket, "getaddrinfo", resolve)
        server.endpoint = f"http://{DOMAIN}:{port}"
        for style, signature in [("virtual", "s3v4"), ("path", "s3v4"), ("virtual", "s3")]:
            client = server.client(s3={"addressing_style": style}, signature_version="s3v4")
            client.create_bucket(Bucket="pantry")
            client.put_object(Bucket="pantry", Key="a/b c", Body=BODY)
            self.assertEqual([entry["Key"] for entry in client.list_objects_v2(Bucket="pantry")["Contents"]], ["a/b c"])
            self.reads(client, "pantry", {"a/b c": BODY})
            self.assertEqual([bucket["Name"] for bucket in client.list_buckets()["Buckets"]], ["pantry"])
            signer = server.client(s3={"addressing_style": style}, signature_version=signature)
            url = signer.generate_presigned_url("get_object", {"Bucket": "pantry", "Key": "a/b c"}, ExpiresIn=60)
            self.assertEqual(urllib.parse.urlsplit(url).hostname, DOMAIN if style == "path" else f"pantry.{DOMAIN}")
            with urllib.request.urlopen(url, timeout=30) as answer:
                self.assertEqual(answer.read(), BODY)

    def test_conditional_deletes_and_versions_of_boto3(self):
        client = self.rack("nas8", STAYING).client()
        client.create_bucket(Bucket="pantry")
        etag = client.put_object(Bucket="pantry", Key="k", Body=BODY)["ETag"]
        here = {"Bucket": "pantry", "Key": "k"}
        self.fails(412, "PreconditionFailed", client.delete_object, **here, IfMatch='"other"')
        self.assertEqual(client.get_object(**here, VersionId="null")["Body"].read(), BODY)
        self.fails(404, "NoSuchVersion", client.get_object, **here, VersionId="3HL4kqtJlcpXroDTDmJ.rmSpXd3dIbrH")
        client.delete_object(**here, IfMatch=etag)
        self.fails(404, "NoSuchKey", client.delete_object, **here, IfMatch=etag)
        client.put_object(**here, Body=BODY)
        versions = client.list_object_versions(Bucket="pantry")["Versions"]
        named = [{"Key": version["Key"], "VersionId": version["VersionId"]} for version in versions]
        deleted = client.delete_objects(Bucket="pantry", Delete={"Objects": named})
        self.assertEqual((deleted["Deleted"], "Errors" in deleted), ([{"Key": "k", "VersionId": "null"}], False))

    def test_the_aws_cli_empties_and_describes_buckets(self):
        server = self.rack("nas8", STAYING)
        client = server.filled({"k": BODY})
        here, key = ("--bucket", "pantry"), ("--bucket", "pantry", "--key", "k")
        for words, says in [
            (("s3api", "get-bucket-acl", *here), "FULL_CONTROL"),
            (("s3api", "list-object-versions", *here), '"null"'),
            (("s3api", "put-object-tagging", *key, "--tagging", "TagSet=[{Key=a,Value=b}]"), ""),
            (("s3api", "get-object-tagging", *key), '"a"'),
            (("s3api", "get-object-attributes", *key, "--object-attributes", "ObjectSize"), "16"),
            (("s3", "rb", "--force", "s3://pantry"), "remove_bucket: pantry"),
        ]:
            done = aws(server, self.root, *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertIn(says, done.stdout)
