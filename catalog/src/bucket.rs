//! Users, buckets and drives: small records, read as whole lists.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{Bucket, BucketChange, DriveRecord, User, encode, value};
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use model::DriveId;
use std::collections::BTreeSet;

impl Catalog {
    /// Adds a user.
    ///
    /// # Errors
    /// [`CatalogError::UserExists`] if a user of that name exists.
    pub async fn add_user(&self, user: &User) -> Result<(), CatalogError> {
        let batch = self.user_batch(user, Check::Absent(key::user(&user.name))).await?;
        self.apply_or(batch, CatalogError::UserExists).await
    }

    /// Replaces the user of that name with `user`. Requests signed with the old keys can no longer commit.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchUser`] if no user has that name.
    pub async fn replace_user(&self, user: &User) -> Result<(), CatalogError> {
        let batch = self.user_batch(user, Check::Present(key::user(&user.name))).await?;
        self.apply_or(batch, CatalogError::NoSuchUser).await
    }

    /// The batch that stores a user and that user's access key, if `check` holds.
    async fn user_batch(&self, user: &User, check: Check) -> Result<Batch, CatalogError> {
        let mut writes = self.new_access_key(&user.name, Some(&user.access_key)).await?;
        writes.push(Write::Put(key::user(&user.name), encode(user)));
        Ok(Batch::new(vec![check], writes))
    }

    /// Forgets the user `name`. Other uses of the name (as the owner of a bucket) stay. Requests that the user signed
    /// can no longer commit.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchUser`] if no user has that name.
    pub async fn remove_user(&self, name: &str) -> Result<(), CatalogError> {
        let at = key::user(name);
        let checks = vec![Check::Present(at.clone())];
        let mut writes = self.new_access_key(name, None).await?;
        writes.push(Write::Delete(at));
        self.apply_or(Batch::new(checks, writes), CatalogError::NoSuchUser).await
    }

    /// Makes `access_key` the only key with which `name` signs. The catalog need not know `name` as a user.
    pub async fn set_access_key(&self, name: &str, access_key: &str) -> Result<(), CatalogError> {
        let writes = self.new_access_key(name, Some(access_key)).await?;
        self.write(writes).await
    }

    /// The writes that make `access_key` the only one of `name`. The caller changes one user at a time.
    async fn new_access_key(&self, name: &str, access_key: Option<&str>) -> Result<Vec<Write>, CatalogError> {
        let of_name = |entry: &Entry| {
            let holder: String = value(entry)?;
            Ok((holder == name).then(|| Write::Delete(entry.key.clone())))
        };
        let old = self.all_entries(&key::all(Tag::AccessKey), of_name).await?;
        let new = access_key.map(|access_key| Write::Put(key::access_key(access_key), encode(&name)));
        Ok(old.into_iter().flatten().chain(new).collect())
    }

    /// All users, by name.
    pub async fn users(&self) -> Result<Vec<User>, CatalogError> {
        self.all_entries(&key::all(Tag::User), value).await
    }

    /// The owners of buckets that are neither users nor `root`: they have no keys.
    pub async fn owners_without_keys(&self, root: &str) -> Result<Vec<String>, CatalogError> {
        let users: BTreeSet<String> = self.users().await?.into_iter().map(|user| user.name).collect();
        let mut owners = BTreeSet::new();
        let owner = |entry: &Entry| value::<Bucket>(entry).map(|bucket| bucket.owner);
        self.each_entry(&key::all(Tag::Bucket), owner, |owner| {
            owners.insert(owner);
        })
        .await?;
        let has_none = |owner: &String| !owner.is_empty() && owner != root && !users.contains(owner);
        Ok(owners.into_iter().filter(has_none).collect())
    }

    /// Creates a bucket whose owner is not a user of the catalog and so cannot be forgotten.
    ///
    /// # Errors
    /// [`CatalogError::BucketExists`] if a bucket of that name exists, of any owner; [`CatalogError::Damaged`] if its
    /// record is missing but its objects exist.
    pub async fn create_bucket(&self, bucket: &Bucket) -> Result<(), CatalogError> {
        if self.make_bucket(bucket, Vec::new()).await? {
            return Ok(());
        }
        self.is_nobodys(&bucket.name).await?;
        Err(CatalogError::BucketExists)
    }

    /// Creates a bucket if `checks` hold and neither a bucket of that name nor an object in it exists.
    async fn make_bucket(&self, bucket: &Bucket, mut checks: Vec<Check>) -> Result<bool, CatalogError> {
        let at = key::bucket(&bucket.name);
        let objects = KeyRange::prefix(&key::object(&bucket.name, ""));
        checks.extend([Check::Absent(at.clone()), Check::Empty(objects)]);
        self.apply(Batch::new(checks, vec![Write::Put(at, encode(bucket))])).await
    }

    /// # Errors
    /// [`CatalogError::Damaged`] if a bucket of that name has objects but no record.
    async fn is_nobodys(&self, name: &str) -> Result<(), CatalogError> {
        let objects = KeyRange::prefix(&key::object(name, ""));
        let is_there = self.store.get(&key::bucket(name)).await?.is_some();
        if is_there || self.store.scan(objects, 1).await?.is_empty() {
            return Ok(());
        }
        let at = key::bucket(name);
        self.quarantine(&at, "it is missing, but objects of the bucket are there");
        Err(CatalogError::damaged(&at, "it is missing, but objects of the bucket are there"))
    }

    /// Creates a bucket of a user that still exists at that moment.
    ///
    /// # Errors
    /// [`CatalogError::BucketExists`] if a bucket of that name exists, of any owner; [`CatalogError::NoSuchUser`] if
    /// its owner is no longer a user; [`CatalogError::Damaged`] as in [`Catalog::create_bucket`].
    pub async fn create_users_bucket(&self, bucket: &Bucket) -> Result<(), CatalogError> {
        if self.make_bucket(bucket, vec![Check::Present(key::user(&bucket.owner))]).await? {
            return Ok(());
        }
        self.is_nobodys(&bucket.name).await?;
        match self.bucket(&bucket.name).await {
            Ok(_) => Err(CatalogError::BucketExists),
            Err(CatalogError::NoSuchBucket) => Err(CatalogError::NoSuchUser),
            Err(error) => Err(error),
        }
    }

    /// The bucket of that name.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub async fn bucket(&self, name: &str) -> Result<Bucket, CatalogError> {
        self.read(&key::bucket(name)).await?.ok_or_else(|| self.not_there(CatalogError::NoSuchBucket))
    }

    /// The current bytes of the record of `bucket`, if it has not been removed. A bucket of the same name that was
    /// created since is a different one, which may belong to another user.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub(crate) async fn same_bucket(&self, bucket: &Bucket) -> Result<Vec<u8>, CatalogError> {
        let found = self.read_raw::<Bucket>(&key::bucket(&bucket.name)).await?;
        let is_same = |now: &Bucket| (&now.owner, now.created_ms) == (&bucket.owner, bucket.created_ms);
        found.filter(|(now, _)| is_same(now)).map(|(_, raw)| raw).ok_or(CatalogError::NoSuchBucket)
    }

    /// All buckets, by name.
    pub async fn buckets(&self) -> Result<Vec<Bucket>, CatalogError> {
        self.all_entries(&key::all(Tag::Bucket), value).await
    }

    /// Changes a bucket and returns its new record.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`]; [`CatalogError::Conflict`].
    pub async fn change_bucket(&self, name: &str, change: &BucketChange) -> Result<Bucket, CatalogError> {
        let changed = self.change::<Bucket>(key::bucket(name), |bucket| match change {
            BucketChange::Acl(acl) => bucket.acl = *acl,
            BucketChange::Ownership(ownership) => bucket.ownership = *ownership,
            BucketChange::Tags(tags) => bucket.tags.clone_from(tags),
        });
        changed.await?.ok_or(CatalogError::NoSuchBucket)
    }

    /// Removes a bucket that holds no objects and no uploads in parts. A concurrent PUT is either refused or makes this
    /// call return "not empty".
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::BucketNotEmpty`].
    pub async fn delete_bucket(&self, name: &str) -> Result<(), CatalogError> {
        let at = key::bucket(name);
        let checks = vec![
            Check::Present(at.clone()),
            Check::Empty(KeyRange::prefix(&key::object(name, ""))),
            Check::Empty(KeyRange::prefix(&key::uploads(name, ""))),
        ];
        if self.apply(Batch::new(checks, vec![Write::Delete(at)])).await? {
            return Ok(());
        }
        self.bucket(name).await?;
        Err(CatalogError::BucketNotEmpty)
    }

    /// Stores `record` in place of the drive's earlier one.
    pub async fn drive_put(&self, record: &DriveRecord) -> Result<(), CatalogError> {
        self.put(key::drive(record.drive), encode(record)).await
    }

    /// The record of `drive`. A damaged one counts as none.
    pub async fn drive(&self, drive: DriveId) -> Result<Option<DriveRecord>, CatalogError> {
        self.look_up_one(&key::drive(drive)).await
    }

    /// The records of all drives, by id.
    pub async fn drives(&self) -> Result<Vec<DriveRecord>, CatalogError> {
        self.all_entries(&key::all(Tag::Drive), value).await
    }
}
