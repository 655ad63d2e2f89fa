"""Where the pipeline keeps its files: one interface, a directory and an S3 bucket behind it.

A store has `put(key, body)`, `get(key)` and `keys(prefix)`. What was put is durable when `put` returns, in both.
"""

import os

import boto3
import botocore.config


class DirectoryStore:
    """Files below a directory."""

    def __init__(self, root):
        self.root = root

    def put(self, key, body):
        path = os.path.join(self.root, key)
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        with open(path + ".part", "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".part", path)
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    def get(self, key):
        with open(os.path.join(self.root, key), "rb") as file:
            return file.read()

    def keys(self, prefix):
        found = []
        for folder, _, names in os.walk(self.root):
            found += [os.path.relpath(os.path.join(folder, name), self.root) for name in names]
        return sorted(key for key in found if key.startswith(prefix) and not key.endswith(".part"))


class S3Store:
    """Objects of a bucket. Endpoint, region and keys are those of the environment, unless they are given."""

    def __init__(self, bucket, **connection):
        # A GET of a cold object waits for its drives, and a full workshop answers SlowDown: both want patience.
        config = botocore.config.Config(
            retries={"mode": "standard", "total_max_attempts": 20},
            read_timeout=120,
            s3={"addressing_style": "path"},
        )
        self.bucket = bucket
        self.client = boto3.client("s3", config=config, **connection)
        self.retries = 0
        if bucket not in [found["Name"] for found in self.client.list_buckets()["Buckets"]]:
            self.client.create_bucket(Bucket=bucket)

    def _counted(self, answer):
        self.retries += answer["ResponseMetadata"]["RetryAttempts"]
        return answer

    def put(self, key, body):
        self._counted(self.client.put_object(Bucket=self.bucket, Key=key, Body=body))

    def get(self, key):
        return self._counted(self.client.get_object(Bucket=self.bucket, Key=key))["Body"].read()

    def keys(self, prefix):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", []))


def opened(place):
    """The store at `place`: `s3://BUCKET`, or a directory."""
    if place.startswith("s3://"):
        return S3Store(place[len("s3://"):].strip("/"))
    return DirectoryStore(place)
