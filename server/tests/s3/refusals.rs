//! Who and what is refused: strangers, and everything we do not do.

use super::Front;
use crate::client::{Call, Signed};

#[tokio::test]
async fn strangers_are_refused() {
    let front = Front::open().await;
    front.put("k", b"x").await;
    let read = || Call::new("GET", "/shelf/k");
    for (call, code) in [
        (read().signed(Signed::Not), "AccessDenied"),
        (read().user("ALICE", "guess"), "SignatureDoesNotMatch"),
        (read().user("MALLORY", "x"), "InvalidAccessKeyId"),
        (read().signed(Signed::Url).user("ALICE", "guess"), "SignatureDoesNotMatch"),
        (read().header("x-amz-security-token", "t"), "InvalidToken"),
        (Call::new("PUT", "/shelf/k").body(b"y").signed(Signed::Not), "AccessDenied"),
        (Call::new("PUT", "/shelf/k").body(b"y").user("ALICE", "guess"), "SignatureDoesNotMatch"),
        (Call::new("PUT", "/shelf/k").body(b"y").late_header("x-amz-meta-a", "1"), "AccessDenied"),
    ] {
        let reply = front.send(call).await;
        assert_eq!(reply.code(), code);
        assert!(reply.status >= 400 && !reply.all("Message")[0].is_empty());
    }
    assert_eq!(front.get("k").await.body, b"x");
}

#[tokio::test]
async fn everything_we_do_not_do_is_not_implemented() {
    let front = Front::open().await;
    front.put("k", b"x").await;
    let bucket = [
        "accelerate",
        "analytics",
        "cors",
        "encryption",
        "intelligent-tiering",
        "inventory",
        "lifecycle",
        "logging",
        "metrics",
        "never-heard-of",
        "notification",
        "object-lock",
        "policy",
        "policyStatus",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "uploads",
        "versioning",
        "website",
    ];
    let object = ["legal-hold", "never-heard-of", "restore", "retention", "select", "torrent"];
    let mut calls = Vec::new();
    for method in ["PUT", "POST", "HEAD"] {
        calls.extend(bucket.iter().map(|name| Call::new(method, "/shelf").query(name, "")));
        calls.extend(["acl", "tagging", "attributes"].map(|name| Call::new("POST", "/shelf/k").query(name, "")));
    }
    for method in ["GET", "DELETE"] {
        let unknown = ["never-heard-of", "inventory", "metrics", "analytics"];
        calls.extend(unknown.iter().map(|name| Call::new(method, "/shelf").query(name, "")));
        calls.push(Call::new(method, "/shelf").query("policy", "").query("never-heard-of", ""));
    }
    for method in ["GET", "PUT", "DELETE", "POST", "HEAD"] {
        calls.extend(object.iter().map(|name| Call::new(method, "/shelf/k").query(name, "1")));
        calls.extend(["a", "session"].iter().map(|name| Call::new(method, "/").query(name, "")));
    }
    calls.push(Call::new("DELETE", "/shelf").query("acl", ""));
    calls.push(Call::new("DELETE", "/shelf").query("versioning", ""));
    calls.push(Call::new("DELETE", "/shelf/k").query("acl", ""));
    calls.push(Call::new("PUT", "/shelf/k").query("versionId", "null").body(b"y"));
    calls.extend(["PATCH", "OPTIONS", "POST"].map(|method| Call::new(method, "/shelf/k")));
    calls.push(Call::new("POST", "/shelf").header("content-type", "multipart/form-data; boundary=x").body(b"--x--"));
    let put = || Call::new("PUT", "/shelf/k").body(b"y");
    calls.push(put().header("x-amz-acl", "public-read-write"));
    calls.push(put().header("x-amz-grant-read", "uri=\"http://acs.amazonaws.com/groups/global/AllUsers\""));
    calls.push(put().header("x-amz-storage-class", "DEEP_ARCHIVE"));
    calls.push(put().header("x-amz-server-side-encryption", "aws:kms"));
    calls.push(put().header("x-amz-server-side-encryption-customer-algorithm", "AES256"));
    calls.push(put().header("x-amz-object-lock-mode", "GOVERNANCE"));
    calls.push(put().header("x-amz-website-redirect-location", "/"));
    calls.push(put().header("if-none-match", "\"x\""));
    calls.push(Call::new("GET", "/shelf/k").header("x-amz-server-side-encryption-customer-key", "x"));
    calls.push(Call::new("PUT", "/another").header("x-amz-bucket-object-lock-enabled", "true"));
    for call in calls {
        let head = call.clone().wire(front.address).0;
        let reply = front.send(call).await;
        let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
        assert_eq!(reply.status, 501, "{line}: {}", reply.text());
        assert!(line.starts_with("HEAD") || reply.code() == "NotImplemented", "{line}");
    }
    assert_eq!(front.get("k").await.body, b"x", "nothing happened");
}

#[tokio::test]
async fn signatures_of_version_2_are_taken_in_urls_of_objects_only() {
    let front = Front::open().await;
    let header = Call::new("GET", "/shelf").signed(Signed::Not).late_header("authorization", "AWS ALICE:AAAA");
    assert!(front.send(header).await.status >= 400);
    let url = Call::new("GET", "/shelf").signed(Signed::Not).query("AWSAccessKeyId", "ALICE").query("Signature", "x");
    assert_eq!(front.send(url.query("Expires", "9999999999")).await.code(), "SignatureDoesNotMatch");
}
