"""Each member of each operation in botocore's description of S3 has a row in docs/s3-parameters.md, and the server does
what the row says: it refuses the member, or answers as without it, or uses it."""

import copy
import datetime
import fnmatch
import hashlib
import os
import re

import botocore.loaders
from botocore import xform_name
from botocore.exceptions import ClientError

from harness import STAYING, SystemTest, b64

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "s3-parameters.md")
SECTIONS = {"Query parameters": "query", "Headers": "header", "XML elements": "element", "Operations": "operations"}
PLACES = {"querystring": "query", "header": "header", "headers": "header"}
EVERY_OTHER = "every other"
# Shares its method and path with ListBuckets, and asks another host.
OF_OTHER_HOSTS = {"ListDirectoryBuckets"}

BODY = b"half a pound of butter"
BUCKET, KEY = "pantry", "k"
LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
FAR_OFF = datetime.datetime(2099, 1, 1, tzinfo=datetime.timezone.utc)
ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"
# Answers by which a condition shows that it was used, and a digest of a document, which the client writes.
OF_USED = {"304", "PreconditionFailed", "412", "BadDigest"}


def crc(data, bits, polynomial):
    """A reflected cyclic redundancy check, as bytes."""
    mask = (1 << bits) - 1
    value = mask
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return (value ^ mask).to_bytes(bits // 8, "big")


CHECKSUMS = {
    "CRC32": lambda data: crc(data, 32, 0xEDB88320),
    "CRC32C": lambda data: crc(data, 32, 0x82F63B78),
    "CRC64NVME": lambda data: crc(data, 64, 0x9A6C9329AC4BC9B5),
    "SHA1": lambda data: hashlib.sha1(data).digest(),
    "SHA256": lambda data: hashlib.sha256(data).digest(),
}
# A valid value for each member whose type alone does not give one, by the member's name in botocore.
VALUES = {
    "ACL": "private",
    "BucketNamespace": "global",
    "ChecksumAlgorithm": "CRC32",
    "ChecksumMode": "ENABLED",
    "ChecksumType": "FULL_OBJECT",
    "ContentLength": len(BODY),
    "ContentMD5": b64(hashlib.md5(BODY).digest()),
    "CopySourceIfUnmodifiedSince": FAR_OFF,
    "CopySourceRange": "bytes=0-3",
    "ETag": f'"{hashlib.md5(BODY).hexdigest()}"',
    "EncodingType": "url",
    "ExpectedBucketOwner": "root",
    "ExpectedSourceBucketOwner": "root",
    "IfMatch": hashlib.md5(BODY).hexdigest(),
    "IfNoneMatch": "*",
    "IfUnmodifiedSince": FAR_OFF,
    "LocationConstraint": "",
    "Metadata": {"a": "b"},
    "MpuObjectSize": len(BODY),
    "ObjectLockEnabledForBucket": False,
    "ObjectOwnership": "ObjectWriter",
    "PartNumberMarker": 0,
    "Range": "bytes=0-3",
    "RequestPayer": "requester",
    "StorageClass": "STANDARD",
    "Tagging": "a=b",
    "VersionId": "null",
    "VersionIdMarker": "null",
    **{f"Checksum{name}": b64(of(BODY)) for name, of in CHECKSUMS.items()},
}
COMPOSABLE = {f"Checksum{kind}": kind for kind in CHECKSUMS}
VALUES["CopySourceIfMatch"] = VALUES["IfMatch"]
# A value with which what is used is refused, by the member's name in a request: so it is not ignored.
ACL, PART = "AccessControlPolicy/AccessControlList/Grant", "CompleteMultipartUpload/Part"
WRONG = {
    "continuation-token": "x",
    "encoding-type": "x",
    "max-keys": -1,
    "max-parts": -1,
    "max-uploads": -1,
    "part-number-marker": -1,
    "partNumber": 20_000,
    "upload-id-marker": "x",
    "uploadId": "x",
    "version-id-marker": "x",
    "versionId": "x",
    "content-md5": b64(bytes(16)),
    "if-match": "x",
    "range": "bytes=100-",
    "x-amz-acl": "x",
    "x-amz-checksum-algorithm": "x",
    "x-amz-checksum-mode": "x",
    "x-amz-checksum-type": "x",
    "x-amz-copy-source": f"{BUCKET}/none",
    "x-amz-copy-source-if-match": "x",
    "x-amz-copy-source-if-modified-since": FAR_OFF,
    "x-amz-copy-source-if-none-match": "*",
    "x-amz-copy-source-if-unmodified-since": LONG_AGO,
    "x-amz-copy-source-range": "x",
    "x-amz-expected-bucket-owner": "nobody",
    "x-amz-max-parts": -1,
    "x-amz-metadata-directive": "x",
    "x-amz-mp-object-size": 1,
    "x-amz-object-attributes": ["x"],
    "x-amz-object-ownership": "x",
    "x-amz-part-number-marker": -1,
    "x-amz-source-expected-bucket-owner": "nobody",
    "x-amz-storage-class": "x",
    "x-amz-tagging": "a=1&a=2",
    "x-amz-tagging-directive": "x",
    **{f"x-amz-checksum-{kind.lower()}": b64(bytes(len(of(b"")))) for kind, of in CHECKSUMS.items()},
    f"{ACL}/Grantee/@xsi:type": "Group",
    f"{ACL}/Grantee/ID": "nobody",
    f"{ACL}/Grantee/URI": "x",
    f"{ACL}/Permission": "x",
    "AccessControlPolicy/Owner/ID": "nobody",
    "CreateBucketConfiguration/LocationConstraint": "eu-west-1",
    "CreateBucketConfiguration/Tags/Tag/Key": "aws:x",
    "CreateBucketConfiguration/Tags/Tag/Value": "\n",
    "Delete/Object/ETag": "x",
    "Delete/Object/VersionId": "x",
    "OwnershipControls/Rule/ObjectOwnership": "x",
    "Tagging/TagSet/Tag/Key": "aws:x",
    "Tagging/TagSet/Tag/Value": "\n",
    f"{PART}/ETag": "x",
    f"{PART}/PartNumber": 2,
    **{f"{PART}/Checksum{kind}": b64(bytes(len(of(b"")))) for kind, of in CHECKSUMS.items()},
}
OF_TYPE = {"string": "x", "integer": 1, "long": 1, "boolean": True, "timestamp": LONG_AGO, "list": ["x"]}


def tables():
    """The rows of the page by place, each a name, an effect and operations."""
    with open(PAGE, encoding="utf-8") as page:
        sections = re.split(r"^## (.*)\n", page.read(), flags=re.M)[1:]
    rows = {}
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.strip().splitlines()]
        rows[SECTIONS[heading]] = lines[2:]
    return rows


class Member:
    """A member of an operation's input: where it stands in a request, and where in botocore's parameters."""

    def __init__(self, place, name, path, shape):
        self.place, self.name, self.path, self.shape = place, name, path, shape
        self.own_name = [step for step in path if step != 0][-1]


def members(shape):
    """All members of an input shape, those of documents included; containers before what they contain."""
    for name, member in shape.members.items():
        place = PLACES.get(member.serialization.get("location"))
        wire = member.serialization.get("name", name)
        if place:
            wire = wire.lower() if place == "header" else wire
            yield Member(place, wire + ("a" if member.type_name == "map" else ""), [name], member)
        elif "location" not in member.serialization and member.type_name == "structure":
            yield Member("element", wire, [name], member)
            yield from elements(member, wire, [name])


def elements(shape, wire, path):
    for name, member in shape.members.items():
        own = member.serialization.get("name", name)
        own = f"{wire}/@{own}" if member.serialization.get("xmlAttribute") else f"{wire}/{own}"
        inner, place = member, [*path, name]
        if member.type_name == "list":
            inner, place = member.member, [*place, 0]
            if not member.serialization.get("flattened"):
                yield Member("element", own, place, member)
                own = f"{own}/{inner.serialization.get('name', 'member')}"
        yield Member("element", own, place, inner)
        if inner.type_name == "structure":
            yield from elements(inner, own, place)


def has(parameters, path):
    """True if the parameters have a value at `path`; that of any entry where it leads through a list."""
    if not path:
        return True
    if isinstance(parameters, list):
        return any(has(entry, path[1:]) for entry in parameters)
    return path[0] in parameters and has(parameters[path[0]], path[1:])


def with_value(parameters, path, value):
    """The parameters with a value at `path`."""
    changed = copy.deepcopy(parameters)
    place = changed
    for step, following in zip(path, path[1:]):
        if isinstance(place, dict):
            place = place.setdefault(step, [] if following == 0 else {})
        else:
            place.extend([] if place else [{}])
            place = place[step]
    place[path[-1]] = value
    return changed


class Parameters(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", STAYING)
        self.client = self.server.client()
        for bucket in [BUCKET, "spare"]:
            self.client.create_bucket(Bucket=bucket)
        for key in [KEY, "other"]:
            self.client.put_object(Bucket=BUCKET, Key=key, Body=BODY)
        self.model = self.client.meta.service_model
        self.rows = tables()
        self.wrong = []

    def tearDown(self):
        self.assertEqual(self.wrong, [], "\n" + "\n".join(self.wrong))

    def served(self):
        """Each served operation of S3 with the name by which the tables call it."""
        for name, operations in self.rows["operations"]:
            for operation in operations.split(", "):
                yield operation, name if name.endswith("Configuration") else operation

    def effect(self, operation, member):
        """The effect that the tables state; None without a row. The operation's own rows count before those of every
        other, and a longer name before a shorter one."""
        found = []
        for name, effect, operations in self.rows[member.place]:
            names = operations.split(", ")
            is_own = operation in names
            if (is_own or EVERY_OTHER in names) and fnmatch.fnmatchcase(member.name, name.strip("`")):
                found.append((is_own, not name.endswith("*`"), len(name), effect))
        return max(found)[-1] if found else None

    # What a valid request has. Requests that remove something get it made anew.

    def uploaded(self, kind=None):
        """A new upload of one part, with checksums of this kind."""
        key = {"Bucket": BUCKET, "Key": KEY}
        named = {"ChecksumAlgorithm": kind} if kind else {}
        upload = {**key, "UploadId": self.client.create_multipart_upload(**key, **named)["UploadId"]}
        checksum = {f"Checksum{kind}": VALUES[f"Checksum{kind}"]} if kind else {}
        etag = self.client.upload_part(**upload, PartNumber=1, Body=BODY, **checksum)["ETag"]
        return upload, {"PartNumber": 1, "ETag": etag, **checksum}

    def completion(self, kind=None):
        upload, part = self.uploaded(kind)
        return {**upload, "MultipartUpload": {"Parts": [part]}}

    def acl(self, member):
        if member and member.place != "element":
            return {"ACL": "private"}
        grants = [
            {"Grantee": {"Type": "CanonicalUser", "ID": "root"}, "Permission": "FULL_CONTROL"},
            {"Grantee": {"Type": "Group", "URI": ALL_USERS}, "Permission": "READ"},
        ]
        return {"AccessControlPolicy": {"Owner": {"ID": "root"}, "Grants": grants}}

    def special(self, operation, member):
        """What this operation needs beside bucket and key."""
        name = member.own_name if member else ""
        match operation:
            case "CreateBucket":
                return {"CreateBucketConfiguration": {"Tags": [{"Key": "a", "Value": "b"}]}}
            case "DeleteBucket":
                self.client.create_bucket(Bucket="spare")
                return {"Bucket": "spare"}
            case "PutObject":
                return {"Body": BODY}
            case "DeleteObject":
                self.client.put_object(Bucket=BUCKET, Key="d", Body=BODY)
                return {"Key": "d"}
            case "DeleteObjects":
                self.client.put_object(Bucket=BUCKET, Key="d", Body=BODY)
                return {"Delete": {"Objects": [{"Key": "d"}]}}
            case "GetObjectAttributes":
                return {"ObjectAttributes": ["ETag"]}
            case "CopyObject":
                replaced = {"MetadataDirective": "REPLACE", "TaggingDirective": "REPLACE"}
                return {"Key": "copy", "CopySource": f"{BUCKET}/{KEY}", **replaced}
            case "CreateMultipartUpload":
                return {"ChecksumAlgorithm": "CRC32"} if name == "ChecksumType" else {}
            case "UploadPart":
                return {**self.upload, "PartNumber": 2, "Body": BODY}
            case "UploadPartCopy":
                return {**self.upload, "PartNumber": 2, "CopySource": f"{BUCKET}/{KEY}"}
            case "ListParts":
                return self.upload
            case "AbortMultipartUpload":
                return self.uploaded()[0]
            case "CompleteMultipartUpload":
                kind = name.removeprefix("Checksum")
                return self.completion(kind if kind in CHECKSUMS else None)
            case "ListObjectVersions" | "ListMultipartUploads":
                return {"KeyMarker": "a"}
            case "PutBucketAcl" | "PutObjectAcl":
                return self.acl(member)
            case "PutBucketTagging" | "PutObjectTagging":
                return {"Tagging": {"TagSet": [{"Key": "a", "Value": "b"}]}}
            case "PutBucketOwnershipControls":
                return {"OwnershipControls": {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}}
            case _:
                return {}

    def base(self, operation, member=None):
        """The parameters of a valid request, to which this member can be added."""
        shape = self.model.operation_model(operation).input_shape
        known = shape.members if shape else {}
        named = {"Bucket": BUCKET, "Key": KEY, "Id": "x"}
        return {**{name: value for name, value in named.items() if name in known}, **self.special(operation, member)}

    def value(self, operation, member):
        name = member.own_name
        match operation, name:
            case "CompleteMultipartUpload", _ if member.place == "header" and name in COMPOSABLE:
                kind = COMPOSABLE[name]
                whole = BODY if kind == "CRC64NVME" else CHECKSUMS[kind](BODY)
                return b64(CHECKSUMS[kind](whole))
            case "ListObjectsV2", "ContinuationToken":
                return self.client.list_objects_v2(Bucket=BUCKET, MaxKeys=1)["NextContinuationToken"]
            case "ListBuckets", "ContinuationToken":
                return self.client.list_buckets(MaxBuckets=1)["ContinuationToken"]
            case _, "UploadIdMarker":
                return self.upload["UploadId"]
        return VALUES.get(name, OF_TYPE.get(member.shape.type_name))

    def outcome(self, operation, parameters):
        """Status, code, and the error of a key if the request succeeds and reports one."""
        call = getattr(self.client, xform_name(operation))
        try:
            answer = call(**parameters)
        except ClientError as error:
            answer = error.response
        status, code = answer["ResponseMetadata"]["HTTPStatusCode"], answer.get("Error", {}).get("Code")
        return status, code, [error["Code"] for error in answer.get("Errors", [])]

    def check(self, operation, name, member, plain):
        """Holds the answer to a request with `member` against the tables; `plain` is that to one without."""
        effect = self.effect(name, member)
        where = f"{operation}, {member.place} {member.name}"
        if effect is None:
            self.wrong.append(f"{where}: it has no row; define it in s3/src/parameters.rs and rewrite the page")
            return
        used = effect.startswith("used")
        if used and member.name in WRONG:
            parameters = with_value(self.base(operation, member), member.path, WRONG[member.name])
            status, code, of_keys = self.outcome(operation, parameters)
            if status < 300 and not of_keys:
                self.wrong.append(f"{where}: {effect}; but {WRONG[member.name]!r} is answered {status}")
        parameters = self.base(operation, member)
        is_leaf = member.shape.type_name not in ("structure", "list") or member.place != "element"
        if used and has(parameters, member.path) or not is_leaf:
            return
        parameters = with_value(parameters, member.path, self.value(operation, member))
        status, code, of_keys = self.outcome(operation, parameters)
        if effect.startswith("refused for that key"):
            is_right = of_keys == [effect.split()[-1]]
        elif effect.startswith("refused"):
            is_right = status in range(400, 502) and code in (str(status), effect.split()[-1])
        else:
            is_right = (status < 300 or (status, code) == plain[:2]) and not of_keys
            is_right |= used and code in OF_USED
        if not is_right:
            self.wrong.append(f"{where}: {effect}; but the answer is {status} {code} {of_keys}")

    def test_each_member_does_what_its_row_says(self):
        self.upload = self.uploaded()[0]
        checked = 0
        for operation, name in self.served():
            shape = self.model.operation_model(operation).input_shape
            plain = self.outcome(operation, self.base(operation))
            if not (plain[0] < 300 or plain[0] == 404 and name == "GetConfiguration") or plain[2]:
                self.wrong.append(f"{operation}: a valid request is answered {plain}")
                continue
            for member in members(shape) if shape else []:
                self.check(operation, name, member, plain)
                checked += 1
        self.assertGreater(checked, 400)

    def test_operations_that_are_not_served_are_refused(self):
        served = {operation for operation, _ in self.served()}
        loaded = botocore.loaders.Loader().load_service_model("s3", "service-2")["operations"]
        self.assertEqual(served - set(loaded), set(), "these are no operations of S3")
        others = set(loaded) - served - OF_OTHER_HOSTS
        for operation in sorted(others):
            route = loaded[operation]["http"]
            path, _, query = route["requestUri"].partition("?")
            path = path.replace("{Bucket}", BUCKET).replace("{Key+}", KEY)
            status, _, answer = self.server.ask(route["method"], path, query=query)
            if status not in range(400, 502):
                self.wrong.append(f"{operation}: {status} {answer[:200]}; serve it, or name it in s3/src/operation.rs")
        self.assertGreater(len(others), 30)
