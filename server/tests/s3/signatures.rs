//! Signatures that do not hold, and how errors are reported.

use super::Front;
use crate::client::{Call, Signed, amz_date};
use std::time::{Duration, SystemTime};

fn ago(seconds: u64) -> String {
    amz_date(SystemTime::now() - Duration::from_secs(seconds))
}

fn read() -> Call {
    Call::new("GET", "/shelf/k")
}

async fn with_object() -> Front {
    let front = Front::open().await;
    front.put("k", b"x").await;
    front
}

#[tokio::test]
async fn a_clock_may_be_a_quarter_of_an_hour_off_and_no_more() {
    let front = with_object().await;
    assert_eq!(front.send(read().date(&ago(14 * 60))).await.status, 200);
    let ahead = amz_date(SystemTime::now() + Duration::from_mins(16));
    for date in [ago(16 * 60), ahead] {
        let reply = front.send(read().date(&date)).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "RequestTimeTooSkewed"));
    }
}

#[tokio::test]
async fn a_presigned_url_is_good_until_it_expires_and_for_a_week_at_most() {
    let front = with_object().await;
    let url = || read().signed(Signed::Url);
    assert_eq!(front.send(url().date(&ago(100)).expires_s(110)).await.status, 200);
    let late = front.send(url().date(&ago(100)).expires_s(90)).await;
    assert_eq!((late.status, late.code().as_str()), (403, "AccessDenied"));
    assert_eq!(late.all("Message"), ["Request has expired"]);
    assert_eq!(front.send(url().expires_s(7 * 24 * 3600)).await.status, 200);
    let long = front.send(url().expires_s(7 * 24 * 3600 + 1)).await;
    assert_eq!((long.status, long.code().as_str()), (400, "AuthorizationQueryParametersError"));
    let part = front.send(read().unsigned().query("X-Amz-Expires", "60")).await;
    assert_eq!(part.code(), "AuthorizationQueryParametersError");
}

#[tokio::test]
async fn whatever_is_changed_in_a_signed_request_it_is_refused() {
    let front = with_object().await;
    front.put("l", b"secret").await;
    let call = || Call::new("PUT", "/shelf/k").body(b"y").header("x-amz-meta-a", "1").query("x-id", "PutObject");
    for signed in [Signed::Headers, Signed::Unsigned, Signed::Url] {
        for (from, to) in [
            ("PUT ", "GET "),
            ("/shelf/k", "/shelf/l"),
            ("x-amz-meta-a: 1", "x-amz-meta-a: 2"),
            ("x-id=PutObject", "x-id=putObject"),
            ("/us-east-1/s3", "/us-east-2/s3"),
            ("%2Fus-east-1%2Fs3", "%2Fus-east-2%2Fs3"),
        ] {
            let (head, body) = call().signed(signed).wire(front.address);
            let text = String::from_utf8(head).unwrap();
            if !text.contains(from) {
                continue;
            }
            let mut stream = tokio::net::TcpStream::connect(front.address).await.unwrap();
            let wire = [text.replace(from, to).into_bytes(), body].concat();
            tokio::io::AsyncWriteExt::write_all(&mut stream, &wire).await.unwrap();
            let reply = crate::client::read_reply(&mut stream).await;
            assert_eq!((reply.status, reply.code().as_str()), (403, "SignatureDoesNotMatch"), "{from} -> {to}");
        }
    }
    assert_eq!(front.get("k").await.body, b"x");
}

#[tokio::test]
async fn a_trailers_own_signature_is_verified() {
    let front = with_object().await;
    let call = Call::new("PUT", "/shelf/k").body(b"123456789").signed(Signed::Chunks);
    let (head, body) = call.trailer("x-amz-checksum-crc32c", "4waSgw==").wire(front.address);
    let text = String::from_utf8(body).unwrap();
    let at = text.find("x-amz-trailer-signature:").unwrap() + "x-amz-trailer-signature:".len();
    let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
    let body = format!("{}{other}{}", &text[..at], &text[at + 1..]).into_bytes();
    let mut stream = tokio::net::TcpStream::connect(front.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &[head, body].concat()).await.unwrap();
    let reply = crate::client::read_reply(&mut stream).await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "SignatureDoesNotMatch"));
    assert_eq!(front.get("k").await.body, b"x");
}

#[tokio::test]
async fn what_is_no_signature_is_told_apart_from_none() {
    let front = with_object().await;
    let with = |value: &str| read().unsigned().late_header("authorization", value);
    for (value, status, code) in [
        ("Bearer abc", 400, "InvalidArgument"),
        ("AWS4-HMAC-SHA256 nonsense", 400, "AuthorizationHeaderMalformed"),
        ("AWS4-HMAC-SHA256 Credential=ALICE/x, SignedHeaders=host, Signature=0", 400, "AuthorizationHeaderMalformed"),
    ] {
        let reply = front.send(with(value)).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{value}");
    }
    let twice = with("AWS4-HMAC-SHA256 a").late_header("authorization", "AWS4-HMAC-SHA256 b");
    assert_eq!(front.send(twice).await.code(), "InvalidArgument");
    let no_fields = read().unsigned().query("X-Amz-Signature", "abc");
    assert_eq!(front.send(no_fields).await.code(), "AuthorizationQueryParametersError");
    assert_eq!(front.send(read().unsigned().late_header("x-amz-date", &ago(0))).await.code(), "AccessDenied");
}

#[tokio::test]
async fn every_error_says_what_of_which_and_every_answer_has_an_id() {
    let front = with_object().await;
    let reply = front.send(Call::new("GET", "/shelf/a%26b%20%3Cc%3E")).await;
    assert_eq!(
        (reply.status, reply.code().as_str(), reply.header("content-type")),
        (404, "NoSuchKey", "application/xml")
    );
    assert_eq!(reply.all("Resource"), ["/shelf/a&amp;b &lt;c&gt;"], "{}", reply.text());
    assert_eq!(reply.all("RequestId"), [reply.header("x-amz-request-id")]);
    let mut ids = vec![reply.header("x-amz-request-id").to_owned()];
    for call in [
        read(),
        read().header("if-none-match", "*"),
        Call::new("HEAD", "/shelf/none"),
        Call::new("HEAD", "/none"),
        Call::new("HEAD", "/shelf/k").unsigned(),
        Call::new("HEAD", "/shelf/k").query("retention", ""),
        Call::new("DELETE", "/shelf/none"),
        Call::new("PATCH", "/shelf/none"),
    ] {
        let reply = front.send(call).await;
        assert!(reply.status != 200 && reply.body.is_empty() || reply.body == b"x" || !reply.code().is_empty());
        ids.push(reply.header("x-amz-request-id").to_owned());
    }
    assert!(ids.iter().all(|id| id.len() == 16), "{ids:?}");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 9, "no two are the same");
}
