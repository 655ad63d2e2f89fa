//! Bucket configurations of AWS: asked for, they are not there; set, they are refused.

use super::Front;
use crate::client::Call;

#[tokio::test]
async fn what_was_never_set_is_answered_as_never_set() {
    let front = Front::open().await;
    let get = |name: &str| Call::new("GET", "/shelf").query(name, "");
    for (name, code) in [
        ("cors", "NoSuchCORSConfiguration"),
        ("encryption", "ServerSideEncryptionConfigurationNotFoundError"),
        ("lifecycle", "NoSuchLifecycleConfiguration"),
        ("object-lock", "ObjectLockConfigurationNotFoundError"),
        ("ownershipControls", "OwnershipControlsNotFoundError"),
        ("policy", "NoSuchBucketPolicy"),
        ("policyStatus", "NoSuchBucketPolicy"),
        ("publicAccessBlock", "NoSuchPublicAccessBlockConfiguration"),
        ("replication", "ReplicationConfigurationNotFoundError"),
        ("tagging", "NoSuchTagSet"),
        ("website", "NoSuchWebsiteConfiguration"),
    ] {
        let reply = front.send(get(name)).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, code), "{name}");
        assert!(!reply.all("Message")[0].is_empty());
    }
    for (name, root) in [
        ("accelerate", "<AccelerateConfiguration "),
        ("logging", "<BucketLoggingStatus "),
        ("notification", "<NotificationConfiguration "),
        ("versioning", "<VersioningConfiguration "),
    ] {
        let reply = front.send(get(name)).await;
        assert!(reply.status == 200 && reply.text().contains(root), "{name}: {}", reply.text());
        assert_eq!(reply.text().matches('<').count() - reply.text().matches("<?").count(), 2, "it is empty");
    }
    assert_eq!(front.send(get("requestPayment")).await.all("Payer"), ["BucketOwner"]);
    assert_eq!(front.send(Call::new("GET", "/none").query("policy", "")).await.code(), "NoSuchBucket");
}

#[tokio::test]
async fn deleting_what_was_never_set_is_well_and_leaves_the_bucket() {
    let front = Front::open().await;
    for name in ["cors", "encryption", "lifecycle", "policy", "publicAccessBlock", "replication", "website"] {
        assert_eq!(front.send(Call::new("DELETE", "/shelf").query(name, "")).await.status, 204, "{name}");
    }
    assert_eq!(front.send(Call::new("HEAD", "/shelf")).await.status, 200);
}

#[tokio::test]
async fn buckets_stand_in_the_path_or_in_front_of_the_domain() {
    let front = Front::open().await;
    let put = Call::new("PUT", "/dir/k").host("shelf.s3.test:9000").body(b"x");
    assert_eq!(front.send(put).await.status, 200);
    assert_eq!(front.get("dir/k").await.body, b"x");
    for (host, path) in [
        ("shelf.s3.test", "/dir/k"),
        ("SHELF.S3.TEST:9000", "/dir/k"),
        ("s3.test", "/shelf/dir/k"),
        ("elsewhere.example", "/shelf/dir/k"),
        ("127.0.0.1:9000", "/shelf/dir/k"),
    ] {
        for signed in [crate::client::Signed::Headers, crate::client::Signed::Url] {
            let reply = front.send(Call::new("GET", path).host(host).signed(signed)).await;
            assert_eq!((reply.status, reply.body.as_slice()), (200, b"x".as_slice()), "{host} {path}");
        }
    }
    let list = front.send(Call::new("GET", "/").host("shelf.s3.test")).await;
    assert_eq!((list.all("Name"), list.all("Key")), (vec!["shelf".to_owned()], vec!["dir/k".to_owned()]));
    assert_eq!(front.send(Call::new("GET", "/").host("s3.test")).await.all("Name"), ["shelf"], "all buckets");
    assert_eq!(front.send(Call::new("GET", "/k").host("None_.s3.test")).await.code(), "InvalidBucketName");
    assert_eq!(front.send(Call::new("PUT", "/").host("my.other.s3.test")).await.status, 200);
    assert_eq!(front.send(Call::new("HEAD", "/my.other")).await.status, 200);
}
