// One object with AWS's SDK for JavaScript.
import { GetObjectCommand, S3Client } from "@aws-sdk/client-s3";
import assert from "node:assert/strict";

const [endpoint, Bucket, Key, bytes] = process.argv.slice(2);
const client = new S3Client({ endpoint, region: "us-east-1", forcePathStyle: true });
const got = await client.send(new GetObjectCommand({ Bucket, Key }));
assert.equal((await got.Body.transformToByteArray()).length, Number(bytes));
