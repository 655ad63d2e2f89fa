// AWS's SDK for JavaScript: URLs that it presigns, used by programs that know nothing of S3, and its own uploads.
import {
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  HeadObjectCommand,
  PutObjectCommand,
  S3Client,
  UploadPartCommand,
} from "@aws-sdk/client-s3";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";
import assert from "node:assert/strict";

const [endpoint, Bucket] = process.argv.slice(2);
const client = new S3Client({ endpoint, region: "us-east-1", forcePathStyle: true, maxAttempts: 1 });
const body = "half a pound of butter";

const url = (command) => getSignedUrl(client, command, { expiresIn: 60 });
const fetched = async (...request) => {
  const response = await fetch(...request);
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return { text, headers: response.headers };
};

const Metadata = { colour: "blue" };
const put = await url(new PutObjectCommand({ Bucket, Key: "js/put", Metadata, ACL: "private" }));
await fetched(put, { method: "PUT", body });
assert.deepEqual((await client.send(new HeadObjectCommand({ Bucket, Key: "js/put" }))).Metadata, Metadata);
const get = await url(new GetObjectCommand({ Bucket, Key: "js/put", ResponseContentType: "text/plain" }));
const read = await fetched(get);
assert.equal(read.text, body);
assert.equal(read.headers.get("content-type"), "text/plain");

const owned = (ExpectedBucketOwner) =>
  url(new GetObjectCommand({ Bucket, Key: "js/put", ExpectedBucketOwner, RequestPayer: "requester" }));
const parameters = new URL(await owned("root")).searchParams;
assert.equal(parameters.get("x-amz-expected-bucket-owner"), "root");
assert.equal(parameters.get("x-amz-request-payer"), "requester");
assert.equal((await fetched(await owned("root"))).text, body);
const refused = await fetch(await owned("nobody"));
assert.equal(refused.status, 403);
assert.match(await refused.text(), /<Code>AccessDenied</);

const Key = "js/parts";
const { UploadId } = await client.send(new CreateMultipartUploadCommand({ Bucket, Key }));
const part = await fetched(await url(new UploadPartCommand({ Bucket, Key, UploadId, PartNumber: 1 })), {
  method: "PUT",
  body,
});
const Parts = [{ PartNumber: 1, ETag: part.headers.get("etag") }];
await client.send(new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } }));

await client.send(new PutObjectCommand({ Bucket, Key: "js/own", Body: Buffer.from(body) }));
const own = await client.send(new GetObjectCommand({ Bucket, Key: "js/own" }));
assert.equal(await own.Body.transformToString(), body);
console.log("all answered as AWS answers");
