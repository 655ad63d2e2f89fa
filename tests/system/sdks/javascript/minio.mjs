// MinIO's client for JavaScript: presigned URLs, and an upload in parts, whose id it reads from XML.
import * as Minio from "minio";
import assert from "node:assert/strict";

const [endpoint, bucket] = process.argv.slice(2);
const { hostname, port } = new URL(endpoint);
const client = new Minio.Client({
  endPoint: hostname,
  port: Number(port),
  useSSL: false,
  region: "us-east-1",
  accessKey: process.env.AWS_ACCESS_KEY_ID,
  secretKey: process.env.AWS_SECRET_ACCESS_KEY,
  partSize: 5 * 1024 * 1024,
});
const body = "half a pound of lard";

const put = await fetch(await client.presignedPutObject(bucket, "minio/put", 60), { method: "PUT", body });
assert.equal(put.status, 200, await put.text());
const named = { "response-content-disposition": "attachment" };
const get = await fetch(await client.presignedGetObject(bucket, "minio/put", 60, named));
assert.equal(await get.text(), body);
assert.equal(get.headers.get("content-disposition"), "attachment");

const large = Buffer.alloc(11 * 1024 * 1024, 7);
await client.putObject(bucket, "minio/parts", large, large.length);
assert.equal((await client.statObject(bucket, "minio/parts")).size, large.length);
const names = [];
for await (const object of client.listObjectsV2(bucket, "minio/", true)) names.push(object.name);
assert.deepEqual(names, ["minio/parts", "minio/put"]);
await client.removeObjects(bucket, names);
console.log("all answered as AWS answers");
