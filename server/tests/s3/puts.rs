//! Writes that are stored, and those that are refused: digests, chunks, conditions, metadata.

use super::Front;
use crate::client::{Call, Signed};

/// Published digests of `123456789`.
const BYTES: &[u8] = b"123456789";
const MD5: &str = "JfnnlDI7RTiF9RgfG2JNCw==";
const ETAG: &str = "\"25f9e794323b453885f5181f1b624d0b\"";
const SUMS: [(&str, &str); 5] = [
    ("crc32", "y/Q5Jg=="),
    ("crc32c", "4waSgw=="),
    ("crc64nvme", "rosUhgp5mIg="),
    ("sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
    ("sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
];

fn put(key: &str) -> Call {
    Call::new("PUT", &format!("/shelf/{key}")).body(BYTES)
}

/// A checksum of the right length that is wrong.
fn wrong(sum: &str) -> String {
    let other = if sum.starts_with('A') { "B" } else { "A" };
    format!("{other}{}", &sum[1..])
}

#[tokio::test]
async fn right_digests_are_kept_and_given_back() {
    let front = Front::open().await;
    for signed in [Signed::Headers, Signed::Unsigned, Signed::Url] {
        assert_eq!(front.send(put("md5").signed(signed).header("content-md5", MD5)).await.status, 200);
    }
    for (kind, sum) in SUMS {
        let name = format!("x-amz-checksum-{kind}");
        let reply = front.send(put(kind).header(&name, sum)).await;
        assert_eq!((reply.status, reply.header("etag"), reply.header(&name)), (200, ETAG, sum), "{}", reply.text());
        for method in ["GET", "HEAD"] {
            let read = Call::new(method, &format!("/shelf/{kind}"));
            let plain = front.send(read.clone()).await;
            assert_eq!(plain.header(&name), "", "only on request");
            let asked = front.send(read.clone().header("x-amz-checksum-mode", "ENABLED")).await;
            assert_eq!((asked.header(&name), asked.header("x-amz-checksum-type")), (sum, "FULL_OBJECT"));
            let part = front.send(read.header("x-amz-checksum-mode", "ENABLED").header("range", "bytes=0-1")).await;
            assert_eq!((part.status, part.header(&name)), (206, ""), "the checksum is not that of a part");
        }
    }
}

#[tokio::test]
async fn an_object_without_a_claimed_checksum_gets_one() {
    let front = Front::open().await;
    let reply = front.put("k", BYTES).await;
    assert_eq!(reply.header("x-amz-checksum-crc64nvme"), "rosUhgp5mIg=");
}

#[tokio::test]
async fn a_wrong_digest_of_any_kind_is_refused_and_nothing_is_stored() {
    let front = Front::open().await;
    let reply = front.send(put("bad").header("content-md5", &wrong(MD5))).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "BadDigest"));
    let reply = front.send(put("bad").header("content-md5", "no md5")).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "InvalidDigest"));
    for (kind, sum) in SUMS {
        let name = format!("x-amz-checksum-{kind}");
        let reply = front.send(put("bad").header(&name, &wrong(sum))).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "BadDigest"), "{kind}");
        for signed in [Signed::Chunks, Signed::UnsignedChunks] {
            let reply = front.send(put("bad").signed(signed).trailer(&name, &wrong(sum))).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, "BadDigest"), "{kind} in a trailer");
        }
    }
    let reply = front.send(put("bad").late_header("x-amz-content-sha256", &"0".repeat(64))).await;
    assert_ne!(reply.status, 200, "two hashes of the body");
    assert!(front.store.bytes("shelf", "bad").await.is_none());
    super::eventually("sinks are dropped", || front.store.sinks() == 0).await;
}

#[tokio::test]
async fn a_wrong_digest_leaves_the_version_before_alone() {
    let front = Front::open().await;
    front.put("k", b"before").await;
    let reply = front.send(put("k").header("x-amz-checksum-crc32", "AAAAAA==")).await;
    assert_eq!(reply.code(), "BadDigest");
    assert_eq!(front.get("k").await.body, b"before");
}

#[tokio::test]
async fn a_body_that_is_not_the_signed_one_is_refused() {
    let front = Front::open().await;
    let (head, mut body) = put("k").wire(front.address);
    body[0] ^= 1;
    let mut stream = tokio::net::TcpStream::connect(front.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &[head, body].concat()).await.unwrap();
    let reply = crate::client::read_reply(&mut stream).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "XAmzContentSHA256Mismatch"));
    assert!(front.store.bytes("shelf", "k").await.is_none());
}

#[tokio::test]
async fn chunked_bodies_arrive_whole_and_a_changed_chunk_is_refused() {
    let front = Front::open().await;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(i) / 7) as u8).collect();
    for (key, signed) in [("signed", Signed::Chunks), ("unsigned", Signed::UnsignedChunks)] {
        let call = Call::new("PUT", &format!("/shelf/{key}")).body(BYTES).signed(signed);
        let reply = front.send(call.trailer("x-amz-checksum-crc32c", "4waSgw==")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(front.get(key).await.body, BYTES);
    }
    let call = Call::new("PUT", "/shelf/large").body(&bytes).signed(Signed::Chunks);
    assert_eq!(front.send(call.clone()).await.status, 200);
    let large = front.get("large").await;
    assert_eq!((large.body == bytes, large.header("content-encoding")), (true, ""));

    let one_chunk = call.clone().signed(Signed::UnsignedChunks).chunk_bytes(bytes.len());
    assert_eq!(front.send(one_chunk.trailer("x-amz-checksum-crc32", "AAAAAA==")).await.code(), "BadDigest");
    let huge = Call::new("PUT", "/shelf/huge").signed(Signed::Chunks).chunk_bytes(17 << 20).body(&vec![0; 17 << 20]);
    assert_eq!(front.send(huge).await.code(), "InvalidRequest", "a signed chunk cannot be cut");

    let (head, mut body) = call.wire(front.address);
    let middle = body.len() / 2;
    body[middle] ^= 1;
    let mut stream = tokio::net::TcpStream::connect(front.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &[head, body].concat()).await.unwrap();
    assert_eq!(crate::client::read_reply(&mut stream).await.code(), "SignatureDoesNotMatch");
}

#[tokio::test]
async fn an_announced_trailer_must_come() {
    let front = Front::open().await;
    let call = put("k").signed(Signed::UnsignedChunks).trailer("x-amz-meta-x", "1");
    assert_eq!(front.send(call).await.code(), "InvalidRequest");
    let call = put("k").header("x-amz-trailer", "x-amz-checksum-crc32");
    assert_eq!(front.send(call).await.code(), "MalformedTrailerError");
    let call = put("k").header("x-amz-sdk-checksum-algorithm", "CRC32");
    assert_eq!(front.send(call).await.code(), "InvalidRequest");
    assert!(front.store.bytes("shelf", "k").await.is_none());
}

#[tokio::test]
async fn metadata_and_system_headers_come_back() {
    let front = Front::open().await;
    let kept = [
        ("content-type", "text/plain"),
        ("cache-control", "no-store"),
        ("content-disposition", "attachment"),
        ("content-encoding", "gzip"),
        ("content-language", "de"),
        ("expires", "Tue, 01 Jan 2030 00:00:00 GMT"),
        ("x-amz-meta-colour", "blue"),
        ("x-amz-meta-name", "Grüße"),
    ];
    let call = kept.iter().fold(put("k"), |call, (name, value)| call.header(name, value));
    assert_eq!(front.send(call).await.status, 200);
    for method in ["GET", "HEAD"] {
        let reply = front.send(Call::new(method, "/shelf/k")).await;
        for (name, value) in kept {
            assert_eq!(reply.header(name), value, "{method} {name}");
        }
    }
    assert_eq!(front.put("bare", b"").await.status, 200);
    assert_eq!(front.get("bare").await.header("content-type"), "binary/octet-stream");
    let call = put("k").header("x-amz-meta-long", &"x".repeat(2048));
    assert_eq!(front.send(call).await.code(), "MetadataTooLarge");
    // The headers that are kept have a limit together, not one each: an entry of a listing is bounded by it.
    let value = "x".repeat(2900);
    let two = |call: Call| call.header("cache-control", &value).header("content-language", &value);
    assert_eq!(front.send(two(put("k"))).await.status, 200);
    let three = two(put("k")).header("content-disposition", &value);
    assert_eq!(front.send(three).await.code(), "MetadataTooLarge");
}

#[tokio::test]
async fn conditional_puts_replace_only_what_they_mean() {
    let front = Front::open().await;
    assert_eq!(front.send(put("k").header("if-none-match", "*")).await.status, 200);
    let reply = front.send(put("k").header("if-none-match", "*")).await;
    assert_eq!((reply.status, reply.code().as_str()), (412, "PreconditionFailed"));
    assert_eq!(front.send(put("k").header("if-match", "\"other\"")).await.status, 412);
    assert_eq!(front.send(put("k").header("if-match", ETAG)).await.status, 200);
    assert_eq!(front.send(put("none").header("if-match", ETAG)).await.code(), "NoSuchKey");
}

#[tokio::test]
async fn a_put_needs_a_length_within_bounds() {
    let front = Front::open().await;
    let (head, _) = Call::new("PUT", "/shelf/k").wire(front.address);
    let head = String::from_utf8(head).unwrap();
    for (line, code) in [
        ("transfer-encoding: chunked\r\n", "MissingContentLength"),
        ("content-length: 5368709121\r\nexpect: 100-continue\r\n", "EntityTooLarge"),
    ] {
        let wire = head.replace("content-length: 0\r\n", line) + if line.starts_with('t') { "0\r\n\r\n" } else { "" };
        let mut stream = tokio::net::TcpStream::connect(front.address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, wire.as_bytes()).await.unwrap();
        assert_eq!(crate::client::read_reply(&mut stream).await.code(), code);
    }
    let long = format!("/shelf/{}", "k".repeat(1025));
    assert_eq!(front.send(Call::new("PUT", &long)).await.code(), "KeyTooLongError");
}
