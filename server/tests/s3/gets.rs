//! Reads: ranges, conditions, replaced headers, presigned URLs.

use super::Front;
use crate::client::{Call, Signed};

async fn with_object() -> (Front, String) {
    let front = Front::open().await;
    let etag = front.put("k", b"0123456789").await.header("etag").to_owned();
    (front, etag)
}

#[tokio::test]
async fn ranges_give_their_bytes_and_say_which() {
    let (front, _) = with_object().await;
    for (range, bytes, content_range) in [
        ("bytes=2-4", &b"234"[..], "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
    ] {
        let reply = front.send(Call::new("GET", "/shelf/k").header("range", range)).await;
        assert_eq!((reply.status, reply.body.as_slice(), reply.header("content-range")), (206, bytes, content_range));
        assert_eq!(reply.header("content-length"), bytes.len().to_string());
        let head = front.send(Call::new("HEAD", "/shelf/k").header("range", range)).await;
        assert_eq!((head.status, head.header("content-range"), head.body.len()), (206, content_range, 0));
        assert_eq!(head.header("content-length"), bytes.len().to_string());
    }
    for range in ["bytes=0-1,4-5", "bytes=5-1", "lines=1-2"] {
        let reply = front.send(Call::new("GET", "/shelf/k").header("range", range)).await;
        assert_eq!((reply.status, reply.body.len()), (200, 10), "{range}");
    }
    let reply = front.send(Call::new("GET", "/shelf/k").header("range", "bytes=10-")).await;
    assert_eq!((reply.status, reply.code().as_str()), (416, "InvalidRange"));
    assert_eq!(reply.header("content-range"), "bytes */10");
}

#[tokio::test]
async fn conditions_are_answered_with_304_and_412() {
    let (front, etag) = with_object().await;
    for method in ["GET", "HEAD"] {
        let read = || Call::new(method, "/shelf/k");
        let reply = front.send(read().header("if-none-match", &etag)).await;
        assert_eq!((reply.status, reply.body.len(), reply.header("etag")), (304, 0, etag.as_str()));
        assert_eq!(front.send(read().header("if-none-match", "\"x\"")).await.status, 200);
        assert_eq!(front.send(read().header("if-match", &etag)).await.status, 200);
        assert_eq!(front.send(read().header("if-match", "\"x\"")).await.status, 412);
        let past = "Sun, 09 Sep 2001 01:46:40 GMT";
        assert_eq!(front.send(read().header("if-unmodified-since", past)).await.status, 412);
        assert_eq!(front.send(read().header("if-modified-since", past)).await.status, 200);
        let reply = front.send(read()).await;
        let modified = reply.header("last-modified");
        assert_eq!(front.send(read().header("if-modified-since", modified)).await.status, 304);
        let both = read().header("if-match", &etag).header("if-unmodified-since", past);
        assert_eq!(front.send(both).await.status, 200, "If-Match overrules");
    }
}

#[tokio::test]
async fn a_presigned_url_reads_writes_and_replaces_headers_but_takes_none_in_addition() {
    let (front, _) = with_object().await;
    let url = Call::new("GET", "/shelf/k").signed(Signed::Url).query("response-content-type", "text/x");
    let reply = front.send(url.clone()).await;
    assert_eq!((reply.status, reply.header("content-type"), reply.body.len()), (200, "text/x", 10));
    let put = Call::new("PUT", "/shelf/new").signed(Signed::Url).body(b"new");
    assert_eq!(front.send(put.clone()).await.status, 200);
    assert_eq!(front.get("new").await.body, b"new");
    assert_eq!(front.send(put.late_header("x-amz-meta-a", "1")).await.code(), "AccessDenied");

    let (head, _) = url.wire(front.address);
    let head = String::from_utf8(head).unwrap().replace("/shelf/k?", "/shelf/new?");
    let mut stream = tokio::net::TcpStream::connect(front.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
    assert_eq!(crate::client::read_reply(&mut stream).await.code(), "SignatureDoesNotMatch");
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let front = Front::open().await;
    let reply = front.get("none").await;
    assert_eq!((reply.status, reply.code().as_str()), (404, "NoSuchKey"));
    assert!(!reply.all("Message").is_empty() && reply.all("RequestId")[0] == reply.header("x-amz-request-id"));
    let reply = front.send(Call::new("GET", "/nowhere/k")).await;
    assert_eq!((reply.status, reply.code().as_str()), (404, "NoSuchBucket"));
    assert_eq!(front.send(Call::new("HEAD", "/shelf/none")).await.status, 404);
    assert_eq!(front.send(Call::new("DELETE", "/shelf/none")).await.status, 204, "deleting is idempotent");
}
