//! Uploads in parts, as clients see them.

use super::client::{Call, Reply, Signed};
use super::faults::Fault;
use super::{Front, eventually};
use base64_simd::STANDARD;
use md5_of::{composed, md5};
use s3s::crypto::{Checksum as _, Crc32, Crc64Nvme, Sha256};

const MIB: usize = 1 << 20;

mod md5_of {
    use s3s::crypto::{Checksum as _, Md5};

    /// The hex MD5 of bytes, which is a part's ETag.
    pub fn md5(bytes: &[u8]) -> String {
        hex_simd::encode_to_string(Md5::checksum(bytes), hex_simd::AsciiCase::Lower)
    }

    /// The ETag of an object of parts with these ETags.
    pub fn composed(etags: &[&str]) -> String {
        let raw: Vec<u8> = etags.iter().flat_map(|etag| hex_simd::decode_to_vec(etag).unwrap()).collect();
        format!("\"{}-{}\"", md5(&raw), etags.len())
    }
}

fn body(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 / 7) as u8 ^ seed).collect()
}

/// The list of parts that completes an upload.
fn list(parts: &[(u32, &str)]) -> Vec<u8> {
    let part =
        |(number, etag): &(u32, &str)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into_bytes()
}

impl Front {
    fn begin_call(key: &str) -> Call {
        Call::new("POST", &format!("/shelf/{key}")).query("uploads", "")
    }

    async fn begin(&self, key: &str) -> String {
        let reply = self.send(Self::begin_call(key)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.all("UploadId").pop().unwrap()
    }

    fn part_call(key: &str, id: &str, number: u32, body: &[u8]) -> Call {
        let call = Call::new("PUT", &format!("/shelf/{key}")).query("uploadId", id);
        call.query("partNumber", &number.to_string()).body(body)
    }

    async fn part(&self, key: &str, id: &str, number: u32, body: &[u8]) -> String {
        let reply = self.send(Self::part_call(key, id, number, body)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.header("etag").trim_matches('"').to_owned()
    }

    fn complete_call(key: &str, id: &str, parts: &[(u32, &str)]) -> Call {
        Call::new("POST", &format!("/shelf/{key}")).query("uploadId", id).body(&list(parts))
    }

    async fn complete(&self, key: &str, id: &str, parts: &[(u32, &str)]) -> Reply {
        self.send(Self::complete_call(key, id, parts)).await
    }

    async fn of_upload(&self, method: &'static str, key: &str, id: &str) -> Reply {
        self.send(Call::new(method, &format!("/shelf/{key}")).query("uploadId", id)).await
    }
}

#[tokio::test]
async fn an_upload_in_parts_becomes_an_object() {
    let front = Front::open().await;
    let described = Front::begin_call("k").header("x-amz-meta-colour", "blue").header("content-type", "text/x-recipe");
    let id = front.send(described).await.all("UploadId").pop().unwrap();
    let (one, two) = (body(1, 5 * MIB), body(2, 17));
    let second = front.part("k", &id, 2, &two).await;
    let first = front.part("k", &id, 1, &one).await;
    assert_eq!((first.as_str(), second.as_str()), (md5(&one).as_str(), md5(&two).as_str()));
    assert_eq!(front.get("k").await.status, 404, "nothing is there before it is complete");
    let reply = front.complete("k", &id, &[(1, &first), (2, &format!("\"{second}\""))]).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let etag = composed(&[&first, &second]);
    assert_eq!(reply.all("ETag"), [etag.as_str()]);
    let whole = [one.clone(), two.clone()].concat();
    let crc = STANDARD.encode_to_string(Crc64Nvme::checksum(&whole));
    assert_eq!(reply.all("ChecksumCRC64NVME"), [crc.as_str()]);
    assert_eq!(reply.all("ChecksumType"), ["FULL_OBJECT"]);
    assert!(reply.all("Location")[0].ends_with("/shelf/k"));
    let got = front.send(Call::new("GET", "/shelf/k").header("x-amz-checksum-mode", "ENABLED")).await;
    assert!(got.body == whole);
    assert_eq!((got.header("etag"), got.header("x-amz-checksum-crc64nvme")), (etag.as_str(), crc.as_str()));
    assert_eq!((got.header("x-amz-meta-colour"), got.header("content-type")), ("blue", "text/x-recipe"));
    assert_eq!(got.header("x-amz-mp-parts-count"), "", "only for a request of a part");
}

#[tokio::test]
async fn completing_again_answers_the_same_while_the_object_is_there() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    let etag = front.part("k", &id, 1, b"soup").await;
    let once = front.complete("k", &id, &[(1, &etag)]).await;
    let again = front.complete("k", &id, &[(1, &etag)]).await;
    assert_eq!((again.status, again.body), (200, once.body));
    let other = front.complete("k", &id, &[(1, &md5(b"stew"))]).await;
    assert_eq!((other.status, other.code().as_str()), (404, "NoSuchUpload"));
    front.put("k", b"soup").await;
    assert_eq!(front.complete("k", &id, &[(1, &etag)]).await.code(), "NoSuchUpload", "it was overwritten");
    assert_eq!(front.of_upload("DELETE", "k", &id).await.code(), "NoSuchUpload");
    assert_eq!(front.get("k").await.body, b"soup");
}

#[tokio::test]
async fn who_completes_what_is_aborted_meanwhile_is_told_that_it_is_gone() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    let etag = front.part("k", &id, 1, b"soup").await;
    front.store.set(Fault::LosesUploads);
    let late = front.complete("k", &id, &[(1, &etag)]).await;
    assert_eq!((late.status, late.code().as_str()), (404, "NoSuchUpload"));
}

#[tokio::test]
async fn what_a_client_lists_must_be_what_it_uploaded() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    let one = front.part("k", &id, 1, &body(1, 5 * MIB)).await;
    let two = front.part("k", &id, 2, b"short").await;
    let three = front.part("k", &id, 3, b"last").await;
    let wrong = md5(b"other");
    let refused = [
        (&[(2, two.as_str()), (1, one.as_str())][..], "InvalidPartOrder"),
        (&[(1, &one), (1, &one)], "InvalidPartOrder"),
        (&[(1, &wrong)], "InvalidPart"),
        (&[(1, &one), (4, &three)], "InvalidPart"),
        (&[(1, &one), (2, &two), (3, &three)], "EntityTooSmall"),
        (&[], "MalformedXML"),
        (&[(0, &one)], "InvalidArgument"),
        (&[(10_001, &one)], "InvalidArgument"),
    ];
    for (parts, code) in refused {
        let reply = front.complete("k", &id, parts).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{parts:?}");
    }
    let garbage = front.send(Front::complete_call("k", &id, &[]).body(b"<Complete")).await;
    assert_eq!(garbage.code(), "MalformedXML");
    let size = Front::complete_call("k", &id, &[(1, &one)]).header("x-amz-mp-object-size", "5");
    assert_eq!(front.send(size).await.code(), "InvalidRequest");
    assert_eq!(front.complete("k", &id, &[(1, &one), (3, &three)]).await.status, 200, "none of that ended it");
}

#[tokio::test]
async fn a_part_can_be_put_again_and_the_last_one_counts() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    let old = front.part("k", &id, 1, b"stew").await;
    let new = front.part("k", &id, 1, b"soup").await;
    assert_eq!(front.complete("k", &id, &[(1, &old)]).await.code(), "InvalidPart");
    assert_eq!(front.complete("k", &id, &[(1, &new)]).await.status, 200);
    assert_eq!(front.get("k").await.body, b"soup");
}

#[tokio::test]
async fn an_aborted_upload_is_none_any_more() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    let etag = front.part("k", &id, 1, b"soup").await;
    assert_eq!(front.of_upload("DELETE", "k", &id).await.status, 204);
    for reply in [
        front.of_upload("DELETE", "k", &id).await,
        front.of_upload("GET", "k", &id).await,
        front.complete("k", &id, &[(1, &etag)]).await,
        front.send(Front::part_call("k", &id, 1, b"soup")).await,
        front.of_upload("GET", "k", "nonsense").await,
    ] {
        assert_eq!((reply.status, reply.code().as_str()), (404, "NoSuchUpload"));
    }
    eventually("no sink is open", || front.store.sinks() == 0).await;
}

#[tokio::test]
async fn parts_have_numbers_lengths_and_digests_that_are_checked() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    for number in ["0", "10001", "-1", "x", ""] {
        let call = Call::new("PUT", "/shelf/k").query("uploadId", &id).query("partNumber", number).body(b"x");
        let reply = front.send(call).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "InvalidArgument"), "{number}");
    }
    for (name, value) in [("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="), ("x-amz-checksum-crc32", "AAAAAA==")] {
        let reply = front.send(Front::part_call("k", &id, 1, b"soup").header(name, value)).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "BadDigest"), "{name}");
    }
    assert_eq!(front.of_upload("GET", "k", &id).await.all("PartNumber"), [""; 0]);
    let late = Front::part_call("k", &id, 10_000, b"soup").signed(Signed::UnsignedChunks);
    let crc = STANDARD.encode_to_string(Crc32::checksum(b"soup"));
    let reply = front.send(late.trailer("x-amz-checksum-crc32", &crc)).await;
    assert_eq!((reply.status, reply.header("x-amz-checksum-crc32")), (200, crc.as_str()));
    let listed = front.of_upload("GET", "k", &id).await;
    assert_eq!(listed.all("PartNumber"), ["10000"]);
    assert_eq!(listed.all("ChecksumCRC64NVME").len(), 1, "of the upload's own kind, too");
}

#[tokio::test]
async fn checksums_are_composed_as_they_were_asked_for() {
    let front = Front::open().await;
    let (one, two) = (body(1, 5 * MIB), body(2, 99));
    let whole = [one.clone(), two.clone()].concat();
    let sha = |bytes: &[u8]| Sha256::checksum(bytes).to_vec();
    let composite =
        |sums: [Vec<u8>; 2], of: fn(&[u8]) -> Vec<u8>| format!("{}-2", STANDARD.encode_to_string(of(&sums.concat())));
    let crc = |bytes: &[u8]| Crc32::checksum(bytes).to_vec();
    let cases = [
        ("SHA256", None, "COMPOSITE", composite([sha(&one), sha(&two)], |b| Sha256::checksum(b).to_vec())),
        ("CRC32", None, "COMPOSITE", composite([crc(&one), crc(&two)], |b| Crc32::checksum(b).to_vec())),
        ("CRC32", Some("FULL_OBJECT"), "FULL_OBJECT", STANDARD.encode_to_string(Crc32::checksum(&whole))),
        ("CRC64NVME", None, "FULL_OBJECT", STANDARD.encode_to_string(Crc64Nvme::checksum(&whole))),
    ];
    for (algorithm, asked, form, expected) in cases {
        let mut call = Front::begin_call("k").header("x-amz-checksum-algorithm", algorithm);
        if let Some(asked) = asked {
            call = call.header("x-amz-checksum-type", asked);
        }
        let begun = front.send(call).await;
        assert_eq!((begun.header("x-amz-checksum-algorithm"), begun.header("x-amz-checksum-type")), (algorithm, form));
        let id = begun.all("UploadId").pop().unwrap();
        let other = if algorithm == "SHA256" { "x-amz-checksum-crc32" } else { "x-amz-checksum-sha256" };
        let sum = if algorithm == "SHA256" { crc(&two) } else { sha(&two) };
        let mismatch = Front::part_call("k", &id, 2, &two).header(other, &STANDARD.encode_to_string(sum));
        assert_eq!(front.send(mismatch).await.code(), "InvalidRequest", "another kind than was begun with");
        let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        let put = async |number, bytes: &[u8]| {
            let sum = if algorithm == "SHA256" { sha(bytes) } else { crc(bytes) };
            let bare = Front::part_call("k", &id, number, bytes);
            let digested = bare.clone().header(&header, &STANDARD.encode_to_string(sum));
            if form == "COMPOSITE" {
                assert_eq!(front.send(bare.clone()).await.code(), "InvalidRequest", "a part without a checksum");
            }
            let reply = front.send(if form == "COMPOSITE" { digested } else { bare }).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            reply.header("etag").trim_matches('"').to_owned()
        };
        let (first, second) = (put(1, &one).await, put(2, &two).await);
        let listed = front.of_upload("GET", "k", &id).await;
        let element = format!("Checksum{algorithm}");
        let sums = listed.all(&element);
        assert_eq!(
            (sums.len(), listed.all("ChecksumAlgorithm"), listed.all("ChecksumType")),
            (2, vec![algorithm.into()], vec![form.into()])
        );
        let part = |number: u32, etag: &str, sum: &str| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><{element}>{sum}</{element}></Part>")
        };
        let complete = |sums: &[String]| {
            let list = part(1, &first, &sums[0]) + &part(2, &second, &sums[1]);
            Front::complete_call("k", &id, &[])
                .body(format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>").as_bytes())
        };
        let swapped = [sums[1].clone(), sums[0].clone()];
        assert_eq!(front.send(complete(&swapped)).await.code(), "InvalidPart");
        if form == "COMPOSITE" {
            let bare = front.complete("k", &id, &[(1, &first), (2, &second)]).await;
            assert_eq!(bare.code(), "InvalidRequest", "the parts' checksums must be listed");
        }
        let wrong = complete(&sums).header(&header, if form == "COMPOSITE" { "AAAA-2" } else { "AAAA" });
        assert_eq!(front.send(wrong).await.code(), "BadDigest");
        let done = front.send(complete(&sums).header(&header, &expected).header("x-amz-checksum-type", form)).await;
        assert_eq!(
            (done.status, done.all(&element), done.all("ChecksumType")),
            (200, vec![expected.clone()], vec![form.into()]),
            "{}",
            done.text()
        );
        let head = front.send(Call::new("HEAD", "/shelf/k").header("x-amz-checksum-mode", "ENABLED")).await;
        assert_eq!((head.header(&header), head.header("x-amz-checksum-type")), (expected.as_str(), form));
        let of_part = Call::new("GET", "/shelf/k").query("partNumber", "2").header("x-amz-checksum-mode", "ENABLED");
        let of_part = front.send(of_part).await;
        assert_eq!((of_part.header(&header), of_part.header("x-amz-checksum-type")), (sums[1].as_str(), form));
    }
    for (name, value) in [("x-amz-checksum-algorithm", "MD4"), ("x-amz-checksum-type", "FULL_OBJECT")] {
        assert_eq!(front.send(Front::begin_call("k").header(name, value)).await.code(), "InvalidRequest");
    }
    for (algorithm, form) in [("SHA1", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE")] {
        let call = Front::begin_call("k").header("x-amz-checksum-algorithm", algorithm);
        assert_eq!(front.send(call.header("x-amz-checksum-type", form)).await.code(), "InvalidRequest");
    }
}

#[tokio::test]
async fn a_part_is_read_by_its_number() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    let (one, two) = (body(1, 5 * MIB), body(2, 99));
    let (first, second) = (front.part("k", &id, 3, &one).await, front.part("k", &id, 8, &two).await);
    front.complete("k", &id, &[(3, &first), (8, &second)]).await;
    front.put("plain", b"soup").await;
    let get = |method: &'static str, key: &str, number: &str| {
        Call::new(method, &format!("/shelf/{key}")).query("partNumber", number)
    };
    for method in ["GET", "HEAD"] {
        let reply = front.send(get(method, "k", "2")).await;
        let range = format!("bytes {}-{}/{}", 5 * MIB, 5 * MIB + 98, 5 * MIB + 99);
        assert_eq!((reply.status, reply.header("content-range")), (206, range.as_str()));
        assert_eq!((reply.header("x-amz-mp-parts-count"), reply.header("content-length")), ("2", "99"));
        assert!(method == "HEAD" || reply.body == two);
        for (key, number) in [("k", "3"), ("plain", "2")] {
            assert_eq!(front.send(get(method, key, number)).await.status, 416);
        }
    }
    let attributes =
        Call::new("GET", "/shelf/k").query("attributes", "").header("x-amz-object-attributes", "ObjectParts");
    let reply = front.send(attributes.header("x-amz-max-parts", "1")).await;
    assert_eq!((reply.all("PartsCount"), reply.all("IsTruncated")), (vec!["2".to_owned()], vec!["true".to_owned()]));
    assert_eq!((reply.all("PartNumber"), reply.all("Size")), (vec!["1".to_owned()], vec![(5 * MIB).to_string()]));
    assert_eq!(front.send(get("GET", "k", "3")).await.code(), "InvalidPartNumber");
    assert_eq!(front.send(get("GET", "k", "0")).await.code(), "InvalidArgument");
    assert_eq!(front.send(get("GET", "k", "1").header("range", "bytes=0-1")).await.code(), "InvalidRequest");
    let plain = front.send(get("GET", "plain", "1")).await;
    assert_eq!((plain.status, plain.header("content-range")), (206, "bytes 0-3/4"));
    assert_eq!(plain.body, b"soup");
}

#[tokio::test]
async fn conditions_hold_when_an_upload_is_completed() {
    let front = Front::open().await;
    let there = front.put("k", b"first").await.header("etag").to_owned();
    let id = front.begin("k").await;
    let etag = front.part("k", &id, 1, b"soup").await;
    let complete = || Front::complete_call("k", &id, &[(1, &etag)]);
    assert_eq!(front.send(complete().header("if-none-match", "*")).await.code(), "PreconditionFailed");
    assert_eq!(front.send(complete().header("if-match", "\"other\"")).await.code(), "PreconditionFailed");
    assert_eq!(front.send(complete().header("if-match", &there)).await.status, 200);
    assert_eq!(front.get("k").await.body, b"soup");
}

#[tokio::test]
async fn uploads_and_parts_are_listed_page_by_page() {
    let front = Front::open().await;
    let mut ids = Vec::new();
    for key in ["a b", "b/1", "b/2", "c", "c"] {
        ids.push(front.begin(&key.replace(' ', "%20")).await);
    }
    let list = || Call::new("GET", "/shelf").query("uploads", "");
    let all = front.send(list().query("encoding-type", "url")).await;
    assert_eq!(all.all("UploadId"), ids);
    assert_eq!(all.all("Key"), ["a%20b", "b/1", "b/2", "c", "c"]);
    let (mut listed, mut markers): (Vec<String>, Option<(String, String)>) = (Vec::new(), None);
    loop {
        let mut call = list().query("max-uploads", "2");
        if let Some((key, id)) = &markers {
            call = call.query("key-marker", key).query("upload-id-marker", id);
        }
        let page = front.send(call).await;
        listed.extend(page.all("UploadId"));
        if page.all("IsTruncated") == ["false"] {
            break;
        }
        markers = page.all("NextKeyMarker").pop().zip(page.all("NextUploadIdMarker").pop());
        assert!(markers.is_some());
    }
    assert_eq!(listed, ids);
    let folded = front.send(list().query("delimiter", "/")).await;
    assert_eq!((folded.all("Key").len(), &folded.all("Prefix")[..1]), (3, &["b/".to_owned()][..]));
    let below = front.send(list().query("prefix", "b/").query("max-uploads", "1")).await;
    assert_eq!((below.all("Key"), below.all("IsTruncated")), (vec!["b/1".to_owned()], vec!["true".to_owned()]));
    for number in 1..=5 {
        front.part("c", &ids[4], number, b"soup").await;
    }
    let parts = Call::new("GET", "/shelf/c").query("uploadId", &ids[4]).query("max-parts", "2");
    let page = front.send(parts.query("part-number-marker", "2")).await;
    assert_eq!(
        (page.all("PartNumber"), page.all("NextPartNumberMarker")),
        (vec!["3".into(), "4".into()], vec!["4".into()])
    );
    assert_eq!((page.all("IsTruncated"), page.all("Size")), (vec!["true".to_owned()], vec!["4".to_owned(); 2]));
}

#[tokio::test]
async fn uploads_of_others_are_not_touched() {
    let front = Front::open().await;
    let id = front.begin("k").await;
    front.part("k", &id, 1, b"soup").await;
    let calls = [
        Front::begin_call("k"),
        Front::part_call("k", &id, 1, b"stew"),
        Front::complete_call("k", &id, &[(1, &md5(b"soup"))]),
        Call::new("DELETE", "/shelf/k").query("uploadId", &id),
        Call::new("GET", "/shelf/k").query("uploadId", &id),
        Call::new("GET", "/shelf").query("uploads", ""),
    ];
    for call in calls {
        let reply = front.send(call.user("BOB", "bobs secret")).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "AccessDenied"));
    }
    assert_eq!(front.complete("k", &id, &[(1, &md5(b"soup"))]).await.status, 200);
}
