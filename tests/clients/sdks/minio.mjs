// One object with MinIO's client for JavaScript.
import * as Minio from "minio";
import assert from "node:assert/strict";

const [endpoint, bucket, key, bytes] = process.argv.slice(2);
const { hostname, port } = new URL(endpoint);
const client = new Minio.Client({
  endPoint: hostname,
  port: Number(port),
  useSSL: false,
  region: "us-east-1",
  accessKey: process.env.AWS_ACCESS_KEY_ID,
  secretKey: process.env.AWS_SECRET_ACCESS_KEY,
});
let got = 0;
for await (const chunk of await client.getObject(bucket, key)) got += chunk.length;
assert.equal(got, Number(bytes));
