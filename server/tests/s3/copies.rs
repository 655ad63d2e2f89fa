//! Copies of objects, and of parts.

use super::Front;
use super::client::{Call, Reply};
use super::faults::Fault;

fn copy(key: &str, source: &str) -> Call {
    Call::new("PUT", &format!("/shelf/{key}")).header("x-amz-copy-source", source)
}

impl Front {
    async fn described(&self, key: &str, body: &[u8]) -> Reply {
        let call = Call::new("PUT", &format!("/shelf/{key}")).body(body);
        self.send(call.header("x-amz-meta-colour", "blue").header("content-type", "text/x-recipe")).await
    }
}

#[tokio::test]
async fn a_copy_has_the_bytes_and_what_is_known_of_its_source() {
    let front = Front::open().await;
    let etag = front.described("a%20b", b"soup").await.header("etag").to_owned();
    for source in ["shelf/a%20b", "/shelf/a%20b", "shelf/a b", "/shelf/a%20b?versionId=null"] {
        let reply = front.send(copy("to", source)).await;
        assert_eq!((reply.status, reply.all("ETag")), (200, vec![etag.clone()]), "{source}: {}", reply.text());
        assert_eq!(reply.all("LastModified").len(), 1);
        let got = front.get("to").await;
        assert_eq!((got.body.as_slice(), got.header("x-amz-meta-colour")), (&b"soup"[..], "blue"));
        assert_eq!(got.header("content-type"), "text/x-recipe");
    }
}

#[tokio::test]
async fn a_copy_is_described_anew_if_it_is_asked_for() {
    let front = Front::open().await;
    front.described("k", b"soup").await;
    let replaced = copy("to", "/shelf/k").header("x-amz-metadata-directive", "REPLACE");
    let reply =
        front.send(replaced.header("x-amz-meta-size", "large").header("x-amz-checksum-algorithm", "SHA1")).await;
    assert_eq!((reply.status, reply.all("ChecksumSHA1").len()), (200, 1), "{}", reply.text());
    let got = front.send(Call::new("GET", "/shelf/to").header("x-amz-checksum-mode", "ENABLED")).await;
    assert_eq!((got.header("x-amz-meta-size"), got.header("x-amz-meta-colour")), ("large", ""));
    assert_eq!((got.header("content-type"), got.body.as_slice()), ("binary/octet-stream", &b"soup"[..]));
    assert_eq!(got.header("x-amz-checksum-sha1"), reply.all("ChecksumSHA1")[0]);
    let unknown = copy("to", "/shelf/k").header("x-amz-metadata-directive", "MERGE");
    assert_eq!(front.send(unknown).await.code(), "InvalidArgument");
}

#[tokio::test]
async fn an_object_is_copied_onto_itself_only_to_change_it_and_without_reading_it() {
    let front = Front::open().await;
    front.described("k", b"soup").await;
    let same = front.send(copy("k", "/shelf/k")).await;
    assert_eq!((same.status, same.code().as_str()), (400, "InvalidRequest"));
    front.store.set(Fault::Cold(17));
    let replaced = copy("k", "/shelf/k").header("x-amz-metadata-directive", "REPLACE");
    assert_eq!(front.send(replaced.header("x-amz-meta-colour", "red")).await.status, 200);
    front.store.set(Fault::None);
    let got = front.get("k").await;
    assert_eq!((got.body.as_slice(), got.header("x-amz-meta-colour")), (&b"soup"[..], "red"));
}

#[tokio::test]
async fn a_source_is_copied_only_as_it_was_demanded() {
    let front = Front::open().await;
    let etag = front.put("k", b"soup").await.header("etag").to_owned();
    for (name, value, status) in [
        ("x-amz-copy-source-if-match", etag.as_str(), 200),
        ("x-amz-copy-source-if-match", "\"other\"", 412),
        ("x-amz-copy-source-if-none-match", "\"other\"", 200),
        ("x-amz-copy-source-if-none-match", &etag, 412),
        ("x-amz-copy-source-if-modified-since", "Sat, 01 Jan 2000 00:00:00 GMT", 200),
        ("x-amz-copy-source-if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT", 412),
        ("x-amz-copy-source-if-unmodified-since", "Sat, 01 Jan 2000 00:00:00 GMT", 412),
        ("if-none-match", "*", 412),
    ] {
        let reply = front.send(copy("to", "/shelf/k").header(name, value)).await;
        assert_eq!(reply.status, status, "{name}: {value}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_source_that_is_not_there_or_not_yours_is_refused() {
    let front = Front::open().await;
    front.put("k", b"soup").await;
    for (source, status, code) in [
        ("/shelf/none", 404, "NoSuchKey"),
        ("/attic/k", 404, "NoSuchBucket"),
        ("shelf", 400, "InvalidArgument"),
        ("/shelf/k?versionId=7", 400, "InvalidArgument"),
    ] {
        let reply = front.send(copy("to", source)).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{source}");
    }
    assert_eq!(front.send(Call::new("PUT", "/bobs").user("BOB", "bobs secret")).await.status, 200);
    let stolen = Call::new("PUT", "/bobs/k").user("BOB", "bobs secret").header("x-amz-copy-source", "/shelf/k");
    assert_eq!(front.send(stolen).await.code(), "AccessDenied");
}

#[tokio::test]
async fn a_cold_source_says_when_to_come_again_and_a_broken_one_leaves_nothing() {
    let front = Front::open().await;
    front.put("k", b"soup").await;
    front.store.set(Fault::Cold(17));
    let cold = front.send(copy("to", "/shelf/k")).await;
    assert_eq!((cold.status, cold.code().as_str(), cold.header("retry-after")), (503, "SlowDown", "17"));
    front.store.set(Fault::Breaks);
    assert_eq!(front.send(copy("to", "/shelf/k")).await.status, 500);
    front.store.set(Fault::None);
    assert_eq!(front.get("to").await.status, 404);
    assert_eq!(front.store.sinks(), 0);
}

#[tokio::test]
async fn parts_are_made_of_ranges_of_objects() {
    let front = Front::open().await;
    let body: Vec<u8> = (0..6 << 20).map(|i: u32| (i / 3) as u8).collect();
    front.put("k", &body).await;
    let begun = front.send(Call::new("POST", "/shelf/to").query("uploads", "")).await;
    let id = begun.all("UploadId").pop().unwrap();
    let part = |number: &str, range: Option<&str>| {
        let call = copy("to", "/shelf/k").query("uploadId", &id).query("partNumber", number);
        match range {
            Some(range) => call.header("x-amz-copy-source-range", range),
            None => call,
        }
    };
    let whole = front.send(part("1", None)).await;
    let range = front.send(part("2", Some("bytes=5-1000"))).await;
    let (first, second) = (whole.all("ETag").pop().unwrap(), range.all("ETag").pop().unwrap());
    for wrong in ["bytes=0-6291456", "bytes=5-2", "bytes=5-", "bytes=-5", "0-5", "bytes=+1-2"] {
        assert_eq!(front.send(part("3", Some(wrong))).await.code(), "InvalidArgument", "{wrong}");
    }
    let unmet = part("3", None).header("x-amz-copy-source-if-match", "\"other\"");
    assert_eq!(front.send(unmet).await.status, 412);
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{first}</ETag></Part>\
         <Part><PartNumber>2</PartNumber><ETag>{second}</ETag></Part></CompleteMultipartUpload>"
    );
    let complete = Call::new("POST", "/shelf/to").query("uploadId", &id).body(list.as_bytes());
    assert_eq!(front.send(complete).await.status, 200);
    assert!(front.get("to").await.body == [&body[..], &body[5..1001]].concat());
}
