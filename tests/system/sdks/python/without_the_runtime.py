"""boto3 where the runtime in C is missing: what it puts and gets, in one piece and in parts, has the checksums that it
can compute itself; of other checksums it verifies none, and reads the object."""

import io
import random
import sys

sys.modules["awscrt"] = None

import boto3  # noqa: E402
import botocore.compat  # noqa: E402
import botocore.config  # noqa: E402
import botocore.httpchecksum  # noqa: E402


def client(**config):
    config = botocore.config.Config(retries={"total_max_attempts": 1}, **config)
    return boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", config=config)


def is_read(key, body, checksum, is_verified):
    head = client().head_object(Bucket=sys.argv[2], Key=key, ChecksumMode="ENABLED")
    found = {name for name in head if name.startswith("Checksum")} - {"ChecksumType"}
    assert found == {checksum}, (key, found)
    answered = client().get_object(Bucket=sys.argv[2], Key=key)["Body"]
    assert isinstance(answered, botocore.httpchecksum.StreamingChecksumBody) == is_verified, key
    assert answered.read() == body, key


def main():
    assert not botocore.compat.HAS_CRT
    body = random.Random(1).randbytes(20_000_000)
    client().put_object(Bucket=sys.argv[2], Key="put", Body=body)
    is_read("put", body, "ChecksumCRC32", True)
    client().put_object(Bucket=sys.argv[2], Key="sha", Body=body, ChecksumAlgorithm="SHA256")
    is_read("sha", body, "ChecksumSHA256", True)
    client().upload_fileobj(io.BytesIO(body), sys.argv[2], "in-parts")
    # A checksum of checksums is none of the body.
    is_read("in-parts", body, "ChecksumCRC32", False)
    client(request_checksum_calculation="when_required").put_object(Bucket=sys.argv[2], Key="none", Body=body)
    is_read("none", body, "ChecksumCRC64NVME", False)
    print("all answered as AWS answers")


main()
