//! Refused requests: from unknown users, and for operations that the server does not have.

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
async fn every_operation_that_is_not_served_is_not_implemented() {
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
    let object = ["legal-hold", "restore", "retention", "select", "torrent"];
    let mut calls = Vec::new();
    for method in ["PUT", "POST", "HEAD"] {
        calls.extend(bucket.iter().map(|name| Call::new(method, "/shelf").query(name, "")));
        calls.extend(["acl", "tagging", "attributes"].map(|name| Call::new("POST", "/shelf/k").query(name, "")));
    }
    calls.extend(["inventory", "metrics", "analytics"].map(|name| Call::new("DELETE", "/shelf").query(name, "")));
    for method in ["GET", "PUT", "DELETE", "POST", "HEAD"] {
        calls.extend(object.iter().map(|name| Call::new(method, "/shelf/k").query(name, "1")));
        calls.push(Call::new(method, "/").query("session", ""));
    }
    calls.push(Call::new("DELETE", "/shelf").query("acl", ""));
    calls.push(Call::new("DELETE", "/shelf").query("versioning", ""));
    calls.push(Call::new("DELETE", "/shelf/k").query("acl", ""));
    calls.extend(["PATCH", "OPTIONS", "POST"].map(|method| Call::new(method, "/shelf/k")));
    calls.push(Call::new("POST", "/shelf").header("content-type", "multipart/form-data; boundary=x").body(b"--x--"));
    // As on AWS.
    calls.push(Call::new("PUT", "/shelf/k").body(b"y").header("if-none-match", "\"x\""));
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
async fn headers_and_parameters_that_are_not_served_are_refused_so_that_nobody_tries_again() {
    let front = Front::open().await;
    front.put("k", b"x").await;
    let put = |name: &str, value: &str| Call::new("PUT", "/shelf/k").body(b"y").header(name, value);
    let everyone = "uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"";
    for (call, code) in [
        (put("x-amz-acl", "public-read-write"), "InvalidArgument"),
        (put("x-amz-grant-read", everyone), "InvalidArgument"),
        (put("x-amz-storage-class", "DEEP_ARCHIVE"), "InvalidStorageClass"),
        (put("x-amz-server-side-encryption", "aws:kms"), "InvalidArgument"),
        (put("x-amz-server-side-encryption-customer-algorithm", "AES256"), "InvalidArgument"),
        (put("x-amz-object-lock-mode", "GOVERNANCE"), "InvalidRequest"),
        (put("x-amz-website-redirect-location", "/"), "InvalidArgument"),
        (put("x-amz-meta-a", "1").query("versionId", "null"), "InvalidArgument"),
        (Call::new("GET", "/shelf/k").header("x-amz-server-side-encryption-customer-key", "x"), "InvalidArgument"),
        (Call::new("PUT", "/another").header("x-amz-bucket-object-lock-enabled", "true"), "InvalidArgument"),
    ] {
        let reply = front.send(call).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{}", reply.text());
    }
    assert_eq!(front.get("k").await.body, b"x", "nothing happened");
}

#[tokio::test]
async fn what_s3_does_not_define_is_ignored() {
    let front = Front::open().await;
    front.put("k", b"x").await;
    for method in ["GET", "HEAD"] {
        let call = Call::new(method, "/shelf/k").query("never-heard-of", "1").header("x-amz-never-heard-of", "1");
        assert_eq!(front.send(call).await.status, 200);
    }
    assert_eq!(front.send(Call::new("GET", "/shelf").query("never-heard-of", "")).await.all("Key"), ["k"]);
    assert_eq!(front.send(Call::new("GET", "/").query("a", "")).await.all("Name"), ["shelf"]);
}

#[tokio::test]
async fn signatures_of_version_2_are_taken_in_urls_of_objects_only() {
    let front = Front::open().await;
    let header = Call::new("GET", "/shelf").signed(Signed::Not).late_header("authorization", "AWS ALICE:AAAA");
    assert!(front.send(header).await.status >= 400);
    let url = Call::new("GET", "/shelf").signed(Signed::Not).query("AWSAccessKeyId", "ALICE").query("Signature", "x");
    assert_eq!(front.send(url.query("Expires", "9999999999")).await.code(), "SignatureDoesNotMatch");
}
