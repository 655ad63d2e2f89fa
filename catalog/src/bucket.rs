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
    /// [`CatalogError::UserExists`] if there is one of that name.
    pub async fn add_user(&self, user: &User) -> Result<(), CatalogError> {
        let batch = self.user_batch(user, Check::Absent(key::user(&user.name))).await?;
        self.apply_or(batch, CatalogError::UserExists).await
    }

    /// Replaces the user of that name by `user`. Requests that the old keys signed cannot commit any more.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchUser`] if there is none.
    pub async fn replace_user(&self, user: &User) -> Result<(), CatalogError> {
        let batch = self.user_batch(user, Check::Present(key::user(&user.name))).await?;
        self.apply_or(batch, CatalogError::NoSuchUser).await
    }

    /// The batch that sets a user along with the access key of that user, if `check` holds.
    async fn user_batch(&self, user: &User, check: Check) -> Result<Batch, CatalogError> {
        let mut writes = self.new_access_key(&user.name, Some(&user.access_key)).await?;
        writes.push(Write::Put(key::user(&user.name), encode(user)));
        Ok(Batch::new(vec![check], writes))
    }

    /// Forgets the user `name`. What is called by that name elsewhere (the owner of a bucket) stays. Requests
    /// that the user signed cannot commit any more.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchUser`] if there is none.
    pub async fn remove_user(&self, name: &str) -> Result<(), CatalogError> {
        let at = key::user(name);
        let checks = vec![Check::Present(at.clone())];
        let mut writes = self.new_access_key(name, None).await?;
        writes.push(Write::Delete(at));
        self.apply_or(Batch::new(checks, writes), CatalogError::NoSuchUser).await
    }

    /// Has `name`, who need be no user that the catalog knows, sign with `access_key` from now on and with no other.
    pub async fn set_access_key(&self, name: &str, access_key: &str) -> Result<(), CatalogError> {
        let writes = self.new_access_key(name, Some(access_key)).await?;
        self.write(writes).await
    }

    /// The writes that make `access_key` the only one of `name`. The caller makes changes of users one after the other.
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

    /// The owners of buckets who are neither users nor `root`: they have no keys.
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

    /// Makes a bucket, of an owner who is no user that the catalog knows and could forget.
    ///
    /// # Errors
    /// [`CatalogError::BucketExists`] if there is one of that name, of any owner; [`CatalogError::Damaged`] if its
    /// record is missing, and what is in it is there.
    pub async fn create_bucket(&self, bucket: &Bucket) -> Result<(), CatalogError> {
        if self.make_bucket(bucket, Vec::new()).await? {
            return Ok(());
        }
        self.is_nobodys(&bucket.name).await?;
        Err(CatalogError::BucketExists)
    }

    /// Makes a bucket if `checks` hold, and there is nothing yet of that name, nor in it.
    async fn make_bucket(&self, bucket: &Bucket, mut checks: Vec<Check>) -> Result<bool, CatalogError> {
        let at = key::bucket(&bucket.name);
        let objects = KeyRange::prefix(&key::object(&bucket.name, ""));
        checks.extend([Check::Absent(at.clone()), Check::Empty(objects)]);
        self.apply(Batch::new(checks, vec![Write::Put(at, encode(bucket))])).await
    }

    /// # Errors
    /// [`CatalogError::Damaged`] if there are objects of a bucket of that name, and no such bucket.
    async fn is_nobodys(&self, name: &str) -> Result<(), CatalogError> {
        let objects = KeyRange::prefix(&key::object(name, ""));
        let is_there = self.store.get(&key::bucket(name)).await?.is_some();
        if is_there || self.store.scan(objects, 1).await?.is_empty() {
            return Ok(());
        }
        let at = key::bucket(name);
        self.quarantine(&at, "it is missing, and what is in the bucket is there");
        Err(CatalogError::damaged(&at, "it is missing, and what is in the bucket is there"))
    }

    /// Makes a bucket of a user, who is still there when it is made.
    ///
    /// # Errors
    /// [`CatalogError::BucketExists`] if there is one of that name, of any owner; [`CatalogError::NoSuchUser`] if
    /// its owner is none any more; [`CatalogError::Damaged`] as [`Catalog::create_bucket`].
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

    /// The bytes of the record of `bucket` now, if it has not been removed: a bucket of the same name that was created
    /// since is another one, which may belong to another user.
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

    /// Changes a bucket, and answers what it is now.
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

    /// Removes a bucket that holds nothing, uploads in parts included. A PUT at the same time is either refused, or
    /// makes this answer "not empty".
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

    /// Stores `record` in place of the earlier one of that drive.
    pub async fn drive_put(&self, record: &DriveRecord) -> Result<(), CatalogError> {
        self.put(key::drive(record.drive), encode(record)).await
    }

    /// The record of `drive`.
    pub async fn drive(&self, drive: DriveId) -> Result<Option<DriveRecord>, CatalogError> {
        self.read(&key::drive(drive)).await
    }

    /// The records of all drives, by id.
    pub async fn drives(&self) -> Result<Vec<DriveRecord>, CatalogError> {
        self.all_entries(&key::all(Tag::Drive), value).await
    }
}
