"""Each member of each operation in botocore's description of S3 has a row in docs/reference/s3-parameters.md, and the
server does what the row says: it refuses the member, or answers as without it, or uses it. `EFFECTS` has an observation
for each member that is used. It must differ from that of the same request without the member, so a server that ignores
the member fails."""

import copy
import datetime
import fnmatch
import hashlib
import io
import itertools
import os
import re
import urllib.parse
from typing import Callable, NamedTuple

import botocore.loaders
from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from harness import STAYING, SystemTest, b64

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "reference", "s3-parameters.md")
SECTIONS = {"Query parameters": "query", "Headers": "header", "XML elements": "element", "Operations": "operations"}
PLACES = {"querystring": "query", "header": "header", "headers": "header"}
EVERY_OTHER = "every other"
# Shares its method and path with ListBuckets, and asks another host.
OF_OTHER_HOSTS = {"ListDirectoryBuckets"}

BODY, OTHER_BODY = b"half a pound of butter", b"half a pound of lard"
# The bucket of the objects, the bucket of the listings, and a bucket that requests delete.
BUCKET, LISTED, SPARE = "pantry", "listed", "spare"
# The start of the names of the buckets that requests create.
NEW_BUCKETS = "new"
# An object that is only read, the source of copies, an object with another body, one of two parts, and one that
# requests write.
KEY, SOURCE, OTHER, IN_PARTS, MADE = "k", "source", "other", "parts", "made"
# The objects that requests delete.
DOOMED = ["d", "d2"]
# The objects and uploads of the listings.
KEYS = ["a", "b/c", "b/d", "ü"]
LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
FAR_OFF = datetime.datetime(2099, 1, 1, tzinfo=datetime.timezone.utc)
ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"
OWNER_GRANT = {"Grantee": {"Type": "CanonicalUser", "ID": "root"}, "Permission": "FULL_CONTROL"}
PUBLIC_GRANT = {"Grantee": {"Type": "Group", "URI": ALL_USERS}, "Permission": "READ"}
OTHER_VERSION = "3HL4kqtJlcpXroDTDmJ.rmSpXd3dIbrH"


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


def digest(name, body):
    """The value of the header `name` that is right for this body."""
    if name == "content-md5":
        return b64(hashlib.md5(body).digest())
    return b64(CHECKSUMS[name.removeprefix("x-amz-checksum-").upper()](body))


ETAG = hashlib.md5(BODY).hexdigest()
# A valid value for each member whose type alone does not give one, by the member's name in botocore.
VALUES = {
    "ACL": "private",
    "BucketNamespace": "global",
    "ChecksumAlgorithm": "CRC32",
    "ChecksumMode": "ENABLED",
    "ChecksumType": "FULL_OBJECT",
    "CopySourceIfMatch": ETAG,
    "CopySourceIfUnmodifiedSince": FAR_OFF,
    "CopySourceRange": "bytes=0-3",
    "ETag": f'"{ETAG}"',
    "EncodingType": "url",
    "ExpectedBucketOwner": "root",
    "ExpectedSourceBucketOwner": "root",
    "IfMatch": ETAG,
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
OF_TYPE = {"string": "x", "integer": 1, "long": 1, "boolean": True, "timestamp": LONG_AGO, "list": ["x"]}
# Headers that describe the body, and their valid values. Some of them botocore computes itself, and others it does not
# know for every operation.
OF_BODY = {
    "content-length": lambda body: str(len(body)),
    "x-amz-sdk-checksum-algorithm": lambda _: "CRC32",
    "x-amz-trailer": lambda body: digest("x-amz-checksum-crc32", body),
    **{
        name: lambda body, name=name: digest(name, body)
        for name in ["content-md5", *(f"x-amz-checksum-{kind.lower()}" for kind in CHECKSUMS)]
    },
}
# The operations that write the object `MADE`.
WRITERS = ["PutObject", "CopyObject", "CreateMultipartUpload", "CompleteMultipartUpload"]


# Observations of a request: its answer, or the state after it.


def field(name):
    return lambda test, answer, parameters: answer.get(name)


def header(name):
    return lambda test, answer, parameters: answer["ResponseMetadata"]["HTTPHeaders"].get(name)


def key_of(parameters):
    return {name: parameters[name] for name in ["Bucket", "Key"]}


def finish(test, answer, parameters):
    """Completes the upload that the request has started, if it has."""
    if "UploadId" in answer and "UploadId" not in parameters:
        upload = {**key_of(parameters), "UploadId": answer["UploadId"]}
        kind = answer.get("ChecksumAlgorithm")
        part = test.part(upload, 1, kind)
        test.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [part]})


def of_object(name):
    """A header of the object that the request has made."""

    def look(test, answer, parameters):
        finish(test, answer, parameters)
        head = test.client.head_object(**key_of(parameters), ChecksumMode="ENABLED")
        return header(name)(test, head, parameters)

    return look


def kinds(test, answer, parameters):
    """The kinds of the checksums of the object that the request has made."""
    finish(test, answer, parameters)
    head = test.client.head_object(**key_of(parameters), ChecksumMode="ENABLED")
    return [kind for kind in CHECKSUMS if f"Checksum{kind}" in head]


def tags(test, answer, parameters):
    finish(test, answer, parameters)
    if "Key" in parameters:
        return test.client.get_object_tagging(**key_of(parameters))["TagSet"]
    return test.client.get_bucket_tagging(Bucket=parameters["Bucket"])["TagSet"]


def is_public(test, answer, parameters):
    finish(test, answer, parameters)
    if "Key" in parameters:
        grants = test.client.get_object_acl(**key_of(parameters))["Grants"]
    else:
        grants = test.client.get_bucket_acl(Bucket=parameters["Bucket"])["Grants"]
    return any(grant["Grantee"].get("URI") == ALL_USERS for grant in grants)


def ownership(test, answer, parameters):
    controls = test.client.get_bucket_ownership_controls(Bucket=parameters["Bucket"])["OwnershipControls"]
    return controls["Rules"][0]["ObjectOwnership"]


def keys(test, answer, parameters):
    """The keys and prefixes of a listing."""
    entries = [entry for name in ["Contents", "Versions", "Uploads"] for entry in answer.get(name, [])]
    prefixes = [entry["Prefix"] for entry in answer.get("CommonPrefixes", [])]
    return sorted({entry["Key"] for entry in entries} | set(prefixes))


def first_owner(test, answer, parameters):
    return answer["Contents"][0].get("Owner")


def buckets(test, answer, parameters):
    names = [bucket["Name"] for bucket in answer["Buckets"]]
    return [name for name in names if not name.startswith(NEW_BUCKETS)]


def parts(test, answer, parameters):
    """`{number: bytes}` of the parts in the answer, or of the upload."""
    listed = answer.get("ObjectParts", answer)
    if "Parts" not in listed:
        listed = test.client.list_parts(**key_of(parameters), UploadId=parameters["UploadId"])
    return {part["PartNumber"]: part["Size"] for part in listed["Parts"]}


def copied(test, answer, parameters):
    """The ETag of the copy."""
    results = [answer.get(name, {}) for name in ["CopyObjectResult", "CopyPartResult"]]
    return next((result["ETag"] for result in results if "ETag" in result), None)


def attributes(test, answer, parameters):
    return [name for name in ["Checksum", "ETag", "ObjectParts", "ObjectSize", "StorageClass"] if name in answer]


def left(test, answer, parameters):
    """The objects that the request has not deleted."""
    listed = test.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return [entry["Key"] for entry in listed if entry["Key"] in DOOMED]


def modified(key):
    return lambda test: test.client.head_object(Bucket=BUCKET, Key=key)["LastModified"]


class Effect(NamedTuple):
    """With this value of a member, `look` sees `expected`; without the member, it sees something else. If `look` is
    None, the observation is the error's code, or the list of the codes for the keys. A value that is not constant is a
    function of the test."""

    value: object
    expected: object
    look: Callable | None = None


REFUSED_DIGEST = Effect(b64(bytes(16)), "BadDigest")
UNMET = Effect("x", "PreconditionFailed")
STORED = ["cache-control", "content-disposition", "content-encoding", "content-language", "content-type"]
EXPIRES = "Thu, 01 Jan 2099 00:00:00 GMT"
TAG = [{"Key": "a", "Value": "b"}]
OTHER_KEY, OTHER_VALUE = [{"Key": "c", "Value": "b"}], [{"Key": "a", "Value": "d"}]
GRANT, PART = "AccessControlPolicy/AccessControlList/Grant", "CompleteMultipartUpload/Part"
# An effect of each member that is used, by its name in requests; after the name of an operation, for that operation
# alone. An element without a row contains elements with rows, and has their effects.
EFFECTS = {
    "bucket-region": Effect("eu-west-1", [], buckets),
    "continuation-token": Effect(lambda test: test.after_two_keys(), ["b/d", "ü"], keys),
    "ListBuckets continuation-token": Effect(lambda test: test.after_one_bucket(), [BUCKET, SPARE], buckets),
    "delimiter": Effect("/", ["a", "b/", "ü"], keys),
    "encoding-type": Effect("url", ["%C3%BC", "a", "b/c", "b/d"], keys),
    "fetch-owner": Effect(True, {"DisplayName": "root", "ID": "root"}, first_owner),
    "id": Effect("x", "NoSuchConfiguration"),
    "key-marker": Effect("b/c", ["b/d", "ü"], keys),
    "list-type": Effect("2", len(KEYS), field("KeyCount")),
    "marker": Effect("b/c", ["b/d", "ü"], keys),
    "max-buckets": Effect(1, [LISTED], buckets),
    "max-keys": Effect(1, ["a"], keys),
    "max-parts": Effect(1, {1: len(BODY)}, parts),
    "max-uploads": Effect(1, ["a"], keys),
    "part-number-marker": Effect(1, {2: len(BODY)}, parts),
    "partNumber": Effect(3, {1: len(BODY), 3: len(BODY)}, parts),
    "GetObject partNumber": Effect(2, len(BODY), field("ContentLength")),
    "HeadObject partNumber": Effect(2, len(BODY), field("ContentLength")),
    "prefix": Effect("b/", ["b/c", "b/d"], keys),
    "ListBuckets prefix": Effect("sp", [SPARE], buckets),
    "response-expires": Effect(FAR_OFF, EXPIRES, header("expires")),
    **{f"response-{name}": Effect("x", "x", header(name)) for name in STORED},
    "start-after": Effect("b/c", ["b/d", "ü"], keys),
    "upload-id-marker": Effect(lambda test: test.first_of_two, KEYS, keys),
    "uploadId": Effect("x", "NoSuchUpload"),
    "version-id-marker": Effect("null", "null", field("VersionIdMarker")),
    "versionId": Effect(OTHER_VERSION, "NoSuchVersion"),
    "DeleteObject versionId": Effect(OTHER_VERSION, DOOMED, left),
    **{name: Effect("x", "x", of_object(name)) for name in STORED},
    "content-length": Effect("4", "XAmzContentSHA256Mismatch"),
    "content-md5": REFUSED_DIGEST,
    "expires": Effect(FAR_OFF, EXPIRES, of_object("expires")),
    "if-match": UNMET,
    "if-modified-since": Effect(modified(KEY), "304"),
    "if-none-match": Effect("*", "PreconditionFailed"),
    "GetObject if-none-match": Effect(ETAG, "304"),
    "HeadObject if-none-match": Effect(ETAG, "304"),
    "if-unmodified-since": Effect(LONG_AGO, "PreconditionFailed"),
    "range": Effect("bytes=0-3", 4, field("ContentLength")),
    "x-amz-acl": Effect("public-read", True, is_public),
    "x-amz-checksum-algorithm": Effect("SHA256", ["SHA256"], kinds),
    "x-amz-checksum-mode": Effect("ENABLED", b64(CHECKSUMS["CRC32"](BODY)), header("x-amz-checksum-crc32")),
    "x-amz-checksum-type": Effect("FULL_OBJECT", "FULL_OBJECT", of_object("x-amz-checksum-type")),
    "CompleteMultipartUpload x-amz-checksum-type": Effect("COMPOSITE", "InvalidRequest"),
    **{
        f"x-amz-checksum-{kind.lower()}": Effect(b64(bytes(len(of(b"")))), "BadDigest")
        for kind, of in CHECKSUMS.items()
    },
    "x-amz-copy-source": Effect(f"{BUCKET}/{OTHER}", f'"{hashlib.md5(OTHER_BODY).hexdigest()}"', copied),
    "x-amz-copy-source-if-match": UNMET,
    "x-amz-copy-source-if-modified-since": Effect(modified(SOURCE), "PreconditionFailed"),
    "x-amz-copy-source-if-none-match": Effect(ETAG, "PreconditionFailed"),
    "x-amz-copy-source-if-unmodified-since": Effect(LONG_AGO, "PreconditionFailed"),
    "x-amz-copy-source-range": Effect("bytes=0-3", {1: len(BODY), 2: 4}, parts),
    "x-amz-expected-bucket-owner": Effect("nobody", "AccessDenied"),
    "x-amz-max-parts": Effect(1, {1: 5 << 20}, parts),
    "x-amz-meta-a": Effect({"a": "b"}, "b", of_object("x-amz-meta-a")),
    "x-amz-metadata-directive": Effect("REPLACE", None, of_object("x-amz-meta-from")),
    "x-amz-mp-object-size": Effect(1, "InvalidRequest"),
    "x-amz-object-attributes": Effect(["ObjectSize"], ["ObjectSize"], attributes),
    "x-amz-object-ownership": Effect("ObjectWriter", "ObjectWriter", ownership),
    "x-amz-part-number-marker": Effect(1, {2: len(BODY)}, parts),
    "x-amz-sdk-checksum-algorithm": Effect("SHA1", "InvalidRequest"),
    "x-amz-source-expected-bucket-owner": Effect("nobody", "AccessDenied"),
    "x-amz-storage-class": Effect("x", "InvalidStorageClass"),
    "x-amz-tagging": Effect("a=b", TAG, tags),
    "x-amz-tagging-directive": Effect("REPLACE", [], tags),
    "x-amz-trailer": Effect("AAAAAA==", "BadDigest"),
    GRANT: Effect(PUBLIC_GRANT, True, is_public),
    f"{GRANT}/Grantee/@xsi:type": Effect("Group", "MalformedACLError"),
    f"{GRANT}/Grantee/ID": Effect("nobody", "InvalidArgument"),
    f"{GRANT}/Grantee/URI": Effect("x", "InvalidArgument"),
    f"{GRANT}/Permission": Effect("x", "MalformedACLError"),
    "AccessControlPolicy/Owner/ID": Effect("nobody", "AccessDenied"),
    "CreateBucketConfiguration/LocationConstraint": Effect("eu-west-1", "IllegalLocationConstraintException"),
    "CreateBucketConfiguration/Tags/Tag/Key": Effect("c", OTHER_KEY, tags),
    "CreateBucketConfiguration/Tags/Tag/Value": Effect("d", OTHER_VALUE, tags),
    "Delete/Object/ETag": Effect("x", ["PreconditionFailed"]),
    "Delete/Object/Key": Effect("d2", ["d"], left),
    "Delete/Object/VersionId": Effect(OTHER_VERSION, DOOMED, left),
    "Delete/Quiet": Effect(True, None, field("Deleted")),
    "OwnershipControls/Rule/ObjectOwnership": Effect("BucketOwnerPreferred", "BucketOwnerPreferred", ownership),
    "Tagging/TagSet/Tag/Key": Effect("c", OTHER_KEY, tags),
    "Tagging/TagSet/Tag/Value": Effect("d", OTHER_VALUE, tags),
    f"{PART}/ETag": Effect("x", "InvalidPart"),
    f"{PART}/PartNumber": Effect(2, "InvalidPart"),
    **{f"{PART}/Checksum{kind}": Effect(b64(bytes(len(of(b"")))), "InvalidPart") for kind, of in CHECKSUMS.items()},
}
# The codes of errors in answers to HEAD, which have no body.
OF_HEAD = {"AccessDenied": "403", "NoSuchVersion": "404", "PreconditionFailed": "412"}


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
        self.own_name = [step for step in path if step != 0][-1] if path else ""


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


def is_leaf(member):
    return member.place != "element" or member.shape.type_name not in ("structure", "list")


def is_of_body(operation, member):
    """False for the checksums of the object that CompleteMultipartUpload makes."""
    return member.name in OF_BODY and (operation != "CompleteMultipartUpload" or not member.path)


# Changes to a request before it is signed.


def without(member):
    """The request as it is to a server that ignores the member."""

    def change(request):
        if member.name in OF_BODY and member.name.startswith("x-amz-checksum-"):
            drop_checksums(request)
        elif member.place == "header":
            del request.headers[member.name]
        else:
            set_query(request, member.name, None)

    return change


def bytes_of(request):
    body = request.body or b""
    return body.getvalue() if isinstance(body, io.BytesIO) else body


def set_query(request, name, value):
    url = urllib.parse.urlsplit(request.url)
    query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
    query = [pair for pair in query if pair[0] != name] + ([(name, value)] if value is not None else [])
    request.url = url._replace(query=urllib.parse.urlencode(query)).geturl()


def with_member(member, value):
    """The request with a member that describes its body, or that botocore does not know."""

    def change(request):
        own = value(bytes_of(request)) if callable(value) else value
        if member.place == "query":
            set_query(request, member.name, own)
        elif member.name == "x-amz-trailer":
            in_chunks(request, own)
        else:
            if member.name.startswith("x-amz-checksum-"):
                drop_checksums(request)
            elif member.name == "x-amz-sdk-checksum-algorithm":
                # botocore does not send a checksum with every operation.
                drop_checksums(request)
                request.headers["x-amz-checksum-crc32"] = digest("x-amz-checksum-crc32", bytes_of(request))
            del request.headers[member.name]
            request.headers[member.name] = own
            # A server that reads only a part of the body takes the rest for another request.
            request.headers["connection"] = "close"

    return change


def drop_checksums(request):
    for name in list(request.headers):
        if name.lower().startswith("x-amz-checksum-") or name.lower() == "x-amz-sdk-checksum-algorithm":
            del request.headers[name]


def in_chunks(request, checksum):
    """Sends the body in chunks, with its CRC-32 in the trailer."""
    drop_checksums(request)
    body = bytes_of(request)
    request.data = b"%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:%s\r\n\r\n" % (len(body), body, checksum.encode())
    del request.headers["content-length"]
    request.headers["content-encoding"] = "aws-chunked"
    request.headers["x-amz-decoded-content-length"] = str(len(body))
    request.headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    # So botocore signs it as a body with a trailer.
    request.context["checksum"] = {"request_algorithm": {"algorithm": "crc32", "in": "trailer"}}


class Parameters(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.rack("nas8", STAYING)
        self.client = self.server.client()
        self.change, self.numbers = None, itertools.count()
        self.client.meta.events.register("before-sign.s3", self.change_once)
        for bucket in [BUCKET, LISTED, SPARE]:
            self.client.create_bucket(Bucket=bucket, ObjectOwnership="ObjectWriter")
        self.client.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": TAG})
        for key, body in {KEY: BODY, OTHER: OTHER_BODY}.items():
            self.client.put_object(Bucket=BUCKET, Key=key, Body=body)
        described = {"Metadata": {"from": "source"}, "Tagging": "from=source"}
        self.client.put_object(Bucket=BUCKET, Key=SOURCE, Body=BODY, **described)
        self.put_in_parts()
        for key in KEYS:
            self.client.put_object(Bucket=LISTED, Key=key, Body=BODY)
            self.client.create_multipart_upload(Bucket=LISTED, Key=key)
        uploads = self.client.list_multipart_uploads(Bucket=LISTED)["Uploads"]
        self.first_of_two = next(upload["UploadId"] for upload in uploads if upload["Key"] == "a")
        self.client.create_multipart_upload(Bucket=LISTED, Key="a")
        self.model = self.client.meta.service_model
        self.rows = tables()
        self.wrong, self.shown = [], set()

    def tearDown(self):
        self.assertEqual(self.wrong, [], "\n" + "\n".join(self.wrong))

    def change_once(self, request, **_):
        change, self.change = self.change, None
        if change:
            change(request)

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

    # Parameters of valid requests. An object or upload that a request changes is made before it.

    def put(self, *made):
        for key in made:
            self.client.put_object(Bucket=BUCKET, Key=key, Body=BODY)

    def part(self, upload, number, kind=None, body=BODY):
        """Uploads a part. Returns its entry in the list of a completion."""
        named = {"ChecksumAlgorithm": kind} if kind else {}
        put = self.client.upload_part(**upload, PartNumber=number, Body=body, **named)
        checksum = {f"Checksum{kind}": put[f"Checksum{kind}"]} if kind else {}
        return {"PartNumber": number, "ETag": put["ETag"], **checksum}

    def put_in_parts(self):
        key = {"Bucket": BUCKET, "Key": IN_PARTS}
        upload = {**key, "UploadId": self.client.create_multipart_upload(**key)["UploadId"]}
        listed = [self.part(upload, 1, body=bytes(5 << 20)), self.part(upload, 2)]
        self.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": listed})

    def uploaded(self, kind=None, numbers=(1,)):
        """A new upload with checksums of this kind, and its parts."""
        key = {"Bucket": BUCKET, "Key": MADE}
        named = {"ChecksumAlgorithm": kind} if kind else {}
        upload = {**key, "UploadId": self.client.create_multipart_upload(**key, **named)["UploadId"]}
        return upload, [self.part(upload, number, kind) for number in numbers]

    def completion(self, kind=None):
        upload, listed = self.uploaded(kind)
        return {**upload, "MultipartUpload": {"Parts": listed}}

    def after_two_keys(self):
        return self.client.list_objects_v2(Bucket=LISTED, MaxKeys=2)["NextContinuationToken"]

    def after_one_bucket(self):
        return self.client.list_buckets(MaxBuckets=1)["ContinuationToken"]

    def acl(self, name):
        """An ACL. Its first grant is one to which the member of this name can be added."""
        if name == "ACL":
            return {"ACL": "private"}
        unusual = {"Grants": [OWNER_GRANT, OWNER_GRANT], "URI": [PUBLIC_GRANT, OWNER_GRANT]}
        grants = unusual.get(name, [OWNER_GRANT, PUBLIC_GRANT])
        return {"AccessControlPolicy": {"Owner": {"ID": "root"}, "Grants": grants}}

    def of_bucket(self, operation, name):
        """Parameters of this operation on a bucket beside the bucket, or with another bucket."""
        match operation:
            case "CreateBucket":
                bucket = f"{NEW_BUCKETS}-{next(self.numbers)}"
                return {"Bucket": bucket, "CreateBucketConfiguration": {"Tags": TAG}}
            case "DeleteBucket":
                self.client.create_bucket(Bucket=SPARE)
                return {"Bucket": SPARE}
            case "DeleteObjects":
                self.put(*DOOMED)
                return {"Delete": {"Objects": [{"Key": DOOMED[0]}]}}
            case "ListObjects" | "ListObjectsV2" | "ListObjectVersions" | "ListMultipartUploads":
                marker = {"KeyMarker": "a"} if name in ("VersionIdMarker", "UploadIdMarker") else {}
                return {"Bucket": LISTED, **marker}
            case "PutBucketAcl":
                return self.acl(name)
            case "PutBucketTagging":
                return {"Tagging": {"TagSet": TAG}}
            case "PutBucketOwnershipControls":
                return {"OwnershipControls": {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}}
            case _:
                return {}

    def of_object(self, operation, name):
        """Parameters of this operation on an object beside bucket and key, or with another key."""
        match operation:
            case "GetObject" | "HeadObject" if name == "PartNumber":
                return {"Key": IN_PARTS}
            case "GetObjectAttributes" if name in ("MaxParts", "PartNumberMarker"):
                return {"Key": IN_PARTS, "ObjectAttributes": ["ObjectParts"]}
            case "GetObjectAttributes":
                return {"ObjectAttributes": ["ETag"]}
            case "DeleteObject":
                self.put(*DOOMED)
                return {"Key": DOOMED[0]}
            case "PutObject":
                return {"Key": MADE, "Body": BODY}
            case "CopyObject":
                replaced = {"MetadataDirective": "REPLACE", "TaggingDirective": "REPLACE"}
                return {"Key": MADE, "CopySource": f"{BUCKET}/{SOURCE}", **replaced}
            case "PutObjectAcl":
                return self.acl(name)
            case "PutObjectTagging":
                return {"Tagging": {"TagSet": TAG}}
            case _:
                return {}

    def of_upload(self, operation, name):
        """Parameters of this operation on an upload."""
        match operation:
            case "CreateMultipartUpload":
                return {"Key": MADE, **({"ChecksumAlgorithm": "CRC32"} if name == "ChecksumType" else {})}
            case "UploadPart":
                return {**self.uploaded()[0], "PartNumber": 2, "Body": BODY}
            case "UploadPartCopy":
                return {**self.uploaded()[0], "PartNumber": 2, "CopySource": f"{BUCKET}/{SOURCE}"}
            case "ListParts":
                return self.uploaded(numbers=(1, 2))[0]
            case "AbortMultipartUpload":
                return self.uploaded()[0]
            case "CompleteMultipartUpload":
                kind = name.removeprefix("Checksum")
                return self.completion(kind if kind in CHECKSUMS else None)
            case _:
                return {}

    def base(self, operation, member=None):
        """The parameters of a valid request, to which this member can be added."""
        shape = self.model.operation_model(operation).input_shape
        known = shape.members if shape else {}
        named = {"Bucket": BUCKET, "Key": KEY, "Id": "x"}
        named = {name: value for name, value in named.items() if name in known}
        if operation in WRITERS:
            self.put(MADE)
        name = member.own_name if member and member.path else ""
        for special in [self.of_bucket, self.of_object, self.of_upload]:
            named |= special(operation, name)
        return named

    def value(self, operation, member):
        name, kind = member.own_name, member.own_name.removeprefix("Checksum")
        match operation, name:
            case "CompleteMultipartUpload", _ if member.place == "header" and kind in CHECKSUMS:
                whole = BODY if kind == "CRC64NVME" else CHECKSUMS[kind](BODY)
                return b64(CHECKSUMS[kind](whole))
            case "GetObject" | "HeadObject", "IfNoneMatch":
                return "x"
        return VALUES.get(name, OF_TYPE.get(member.shape.type_name))

    def answered(self, operation, parameters, change=None):
        self.change = change
        try:
            return getattr(self.client, xform_name(operation))(**parameters)
        except ClientError as error:
            return error.response
        except ResponseParserError:
            # Without a member that selects the operation, the answer is that to another.
            return {"ResponseMetadata": {"HTTPStatusCode": 200}, "Error": {"Code": "of another operation"}}

    def outcome(self, operation, parameters, change=None):
        """Status, code, and the error of a key if the request succeeds and reports one."""
        answer = self.answered(operation, parameters, change)
        status, code = answer["ResponseMetadata"]["HTTPStatusCode"], answer.get("Error", {}).get("Code")
        return status, code, [error["Code"] for error in answer.get("Errors", [])]

    def observed(self, operation, look, parameters, change=None):
        answer = self.answered(operation, parameters, change)
        try:
            if "Error" in answer:
                return answer["Error"]["Code"]
            return look(self, answer, parameters) if look else [error["Code"] for error in answer.get("Errors", [])]
        except ClientError as error:
            return error.response["Error"]["Code"]

    def request(self, operation, member, value):
        """The parameters of a request with this value of the member, and a change if they cannot have it."""
        parameters = self.base(operation, member)
        if is_of_body(operation, member) or not member.path:
            return parameters, with_member(member, value)
        return with_value(parameters, member.path, value), None

    def request_without(self, operation, member, value):
        """The same without the member."""
        if member.place == "element":
            return [self.base(operation, member)]
        parameters, change = self.request(operation, member, value)
        return (self.base(operation, member) if change else parameters), without(member)

    def check_used(self, operation, member, plain):
        """The member's effect is seen in a request with it, and not in one without it."""
        where = f"{operation}, {member.place} {member.name}"
        name = next((name for name in [f"{operation} {member.name}", member.name] if name in EFFECTS), None)
        if name is None:
            if not any(name.startswith(f"{member.name}/") for name in EFFECTS):
                self.wrong.append(f"{where}: used; but `EFFECTS` has no observation for it")
            return
        self.shown.add(name)
        effect = EFFECTS[name]
        value = effect.value(self) if callable(effect.value) else effect.value
        expected = OF_HEAD.get(effect.expected, effect.expected) if operation.startswith("Head") else effect.expected
        found = self.observed(operation, effect.look, *self.request_without(operation, member, value))
        if found == expected:
            self.wrong.append(f"{where}: without it, {found!r} is seen as well")
        found = self.observed(operation, effect.look, *self.request(operation, member, value))
        if found != expected:
            self.wrong.append(f"{where}: with {value!r}, {found!r} is seen, and not {expected!r}")
        if effect.look is None:
            self.check_right(operation, member, plain)

    def check_right(self, operation, member, plain):
        """A valid value of a member that is used is accepted."""
        if member.path and (not is_leaf(member) or has(self.base(operation, member), member.path)):
            return
        value = OF_BODY[member.name] if is_of_body(operation, member) else self.value(operation, member)
        request = self.request(operation, member, value)
        if member.own_name == "IfNoneMatch" and operation in WRITERS:
            self.client.delete_object(Bucket=BUCKET, Key=MADE)
        status, code, of_keys = self.outcome(operation, *request)
        if of_keys or status >= 300 and (status, code) != plain[:2]:
            where = f"{operation}, {member.place} {member.name}"
            self.wrong.append(f"{where}: used; but a valid value is answered {status} {code} {of_keys}")

    def check(self, operation, name, member, plain):
        """Holds the answer to a request with `member` against the tables; `plain` is that to one without."""
        effect = self.effect(name, member)
        where = f"{operation}, {member.place} {member.name}"
        if effect is None:
            self.wrong.append(f"{where}: it has no row; define it in s3/src/parameters.rs and rewrite the page")
            return
        if effect.startswith("used"):
            self.check_used(operation, member, plain)
            return
        if not is_leaf(member):
            return
        parameters = with_value(self.base(operation, member), member.path, self.value(operation, member))
        status, code, of_keys = self.outcome(operation, parameters)
        if effect.startswith("refused for that key"):
            is_right = of_keys == [effect.split()[-1]]
        elif effect.startswith("refused"):
            is_right = status in range(400, 502) and code in (str(status), effect.split()[-1])
        else:
            is_right = (status < 300 or (status, code) == plain[:2]) and not of_keys
        if not is_right:
            self.wrong.append(f"{where}: {effect}; but the answer is {status} {code} {of_keys}")

    def unknown_members(self, operation, known):
        """The members that the tables call used by the operation, and that botocore does not know."""
        for place in ["query", "header"]:
            for name, effect, operations in self.rows[place]:
                name = name.strip("`")
                is_known = any(member.place == place and fnmatch.fnmatchcase(member.name, name) for member in known)
                if effect.startswith("used") and operation in operations.split(", ") and not is_known:
                    yield Member(place, name, None, None)

    def test_each_member_does_what_its_row_says(self):
        checked = 0
        for operation, name in self.served():
            shape = self.model.operation_model(operation).input_shape
            plain = self.outcome(operation, self.base(operation))
            if not (plain[0] < 300 or plain[0] == 404 and name == "GetConfiguration") or plain[2]:
                self.wrong.append(f"{operation}: a valid request is answered {plain}")
                continue
            known = list(members(shape)) if shape else []
            for member in [*known, *self.unknown_members(operation, known)]:
                self.check(operation, name, member, plain)
                checked += 1
        self.assertGreater(checked, 400)
        self.assertEqual(set(EFFECTS) - self.shown, set(), "no member of these names is used")

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
