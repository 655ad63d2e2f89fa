//! Rights are checked where a batch gets its sequence number.

use super::{bucket, catalog, object, sound};
use crate::{
    Acl, Authority, Bucket, BucketChange, Catalog, CatalogError, ObjectChange, PutCondition, Upload, User, VersionId,
};

fn user(name: &str, access_key: &str) -> User {
    User { name: name.into(), access_key: access_key.into(), secret: "s".into(), created_ms: 1, rotated_ms: 1 }
}

fn by(catalog: &Catalog, access_key: &str) -> Catalog {
    catalog.authorised(Authority { bucket: Some(bucket()), access_key: Some(access_key.into()) })
}

async fn put(by: &Catalog, key: &str) -> Result<(), CatalogError> {
    let version = by.next_version_id().await?;
    by.put_object((&bucket(), key), &object(version, 5, 1), version.0, &PutCondition::None).await.map(drop)
}

#[tokio::test]
async fn nothing_is_committed_that_old_keys_signed() {
    let catalog = catalog().await;
    catalog.add_user(&user("ann", "old")).await.unwrap();
    let old = by(&catalog, "old");
    put(&old, "k").await.unwrap();
    catalog.replace_user(&user("ann", "new")).await.unwrap();
    assert!(matches!(put(&old, "k").await, Err(CatalogError::NoSuchAccessKey)));
    assert!(matches!(old.delete_object("b", "k").await, Err(CatalogError::NoSuchAccessKey)));
    let new = by(&catalog, "new");
    put(&new, "k").await.unwrap();
    catalog.remove_user("ann").await.unwrap();
    assert!(matches!(put(&new, "k").await, Err(CatalogError::NoSuchAccessKey)));
    catalog.set_access_key("root", "r1").await.unwrap();
    let root = by(&catalog, "r1");
    put(&root, "r").await.unwrap();
    catalog.set_access_key("root", "r2").await.unwrap();
    assert!(matches!(put(&root, "r").await, Err(CatalogError::NoSuchAccessKey)));
    sound(&catalog).await;
}

#[tokio::test]
async fn no_change_reaches_the_next_bucket_of_the_same_name() {
    let catalog = catalog().await;
    catalog.set_access_key("me", "key").await.unwrap();
    let mine = by(&catalog, "key");
    catalog.delete_bucket("b").await.unwrap();
    catalog.create_bucket(&Bucket::new("b", 2, "you")).await.unwrap();
    let (version, acl) = (VersionId(77), Acl::PublicRead);
    let yours = catalog.bucket("b").await.unwrap();
    let theirs = object(catalog.next_version_id().await.unwrap(), 5, 1);
    catalog.put_object((&yours, "k"), &theirs, 9, &PutCondition::None).await.unwrap();
    let gone = |result: Result<(), CatalogError>| assert!(matches!(result, Err(CatalogError::NoSuchBucket)));
    gone(put(&mine, "k").await);
    gone(mine.delete_object("b", "k").await.map(drop));
    gone(mine.change_bucket("b", &BucketChange::Acl(acl)).await.map(drop));
    gone(mine.delete_bucket("b").await);
    gone(mine.change_object("b", "k", &ObjectChange::Acl(acl)).await.map(drop));
    gone(mine.create_upload("b", "u", &upload(version)).await);
    assert_eq!(catalog.bucket("b").await.unwrap().acl, Acl::Private);
    sound(&catalog).await;
}

#[tokio::test]
async fn a_bucket_that_was_only_changed_is_the_same_bucket() {
    let catalog = catalog().await;
    catalog.set_access_key("me", "key").await.unwrap();
    let mine = by(&catalog, "key");
    catalog.change_bucket("b", &BucketChange::Tags(vec![("a".into(), "b".into())])).await.unwrap();
    put(&mine, "k").await.unwrap();
    mine.change_bucket("b", &BucketChange::Acl(Acl::PublicRead)).await.unwrap();
    put(&mine, "k").await.unwrap();
    sound(&catalog).await;
}

fn upload(version: VersionId) -> Upload {
    Upload { version, initiated_ms: 1, ..Upload::plain(crate::ChecksumKind::Crc32) }
}
