//! Who may do what: owners, canned ACLs and object ownership.
//!
//! Everything belongs to the owner of its bucket, who may do everything. All others, signed in or not, may read what is
//! `public-read`: a bucket's ACL opens its listings, an object's ACL its bytes. There is nothing in between: any other
//! ACL is refused, so that none ever means less, or more, than it says.

use super::ask::Ask;
use super::bucket::owner;
use super::error::{Code, Fault};
use super::route::{Answer, Route, empty, xml};
use super::store::{Located, ObjectStore, StoreError};
use super::versions;
use catalog::{Acl, Authority, Bucket, BucketChange, Object, ObjectChange, Ownership, PlacedObject};
use http::StatusCode;
use s3s::dto::{
    AccessControlPolicy, GetBucketAclOutput, Grant, Grantee, ObjectOwnership, OwnershipControls, OwnershipControlsRule,
    Permission, Type,
};
use std::ops::Deref;
use std::sync::Arc;

/// The group of everybody.
const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
/// Canned ACLs that S3 has and this store does not.
const OTHER_ACLS: [&str; 5] =
    ["authenticated-read", "aws-exec-read", "bucket-owner-read", "log-delivery-write", "public-read-write"];

/// The bucket of a request whose owner asks.
pub(super) struct Owned {
    bucket: Bucket,
    /// Where the owner may change things, for as long as the bucket is the owner's and the owner's keys are good.
    pub store: Arc<dyn ObjectStore>,
}

impl Deref for Owned {
    type Target = Bucket;

    fn deref(&self) -> &Bucket {
        &self.bucket
    }
}

impl Route {
    /// The bucket of a request, which must be the one that was expected.
    async fn bucket(&self, ask: &Ask) -> Result<Bucket, Fault> {
        expected(ask, self.store.head_bucket(&ask.bucket).await?)
    }

    /// The bucket of a request, which must belong to who asks.
    pub async fn owned_bucket(&self, ask: &Ask) -> Result<Owned, Fault> {
        // Who is nobody is not even told which buckets there are not.
        ask.user()?;
        let bucket = self.bucket(ask).await?;
        if !ask.owns(&bucket) {
            return Err(Code::AccessDenied.into());
        }
        let authority = Authority { bucket: Some(bucket.clone()), access_key: ask.access_key.clone() };
        Ok(Owned { bucket, store: self.store.authorised(authority) })
    }

    /// The bucket of a request, if who asks may list it.
    pub async fn listable_bucket(&self, ask: &Ask) -> Result<Bucket, Fault> {
        let bucket = self.bucket(ask).await?;
        let may = ask.owns(&bucket) || is_public(&bucket, bucket.acl);
        if may { Ok(bucket) } else { Err(Code::AccessDenied.into()) }
    }

    /// The bucket and the object of a request, if who asks may read it, and where it lies: one read of the catalog.
    pub async fn located(&self, ask: &Ask) -> Result<(Bucket, PlacedObject), Fault> {
        let Located { bucket, object } = self.store.locate(&ask.bucket, &ask.key).await?;
        let bucket = expected(ask, bucket)?;
        let object = readable(ask, &bucket, object, |placed| placed.object.acl)?;
        Ok((bucket, object))
    }

    /// The object of a request, if who asks may read it.
    pub async fn readable_object(&self, ask: &Ask, bucket: &Bucket) -> Result<Object, Fault> {
        readable(ask, bucket, self.store.head(&ask.bucket, &ask.key).await, |object| object.acl)
    }
}

/// The bucket of a request, if it is the one that was expected.
fn expected(ask: &Ask, bucket: Bucket) -> Result<Bucket, Fault> {
    let expected = ask.header("x-amz-expected-bucket-owner")?;
    if expected.is_some_and(|expected| expected != bucket.owner) {
        return Err(Code::AccessDenied.into());
    }
    Ok(bucket)
}

/// What was found, if who asks may read it. Only who may list the bucket is told that there is none.
fn readable<T>(ask: &Ask, bucket: &Bucket, found: Result<T, StoreError>, acl: fn(&T) -> Acl) -> Result<T, Fault> {
    if ask.owns(bucket) {
        return Ok(found?);
    }
    match found {
        Ok(object) if is_public(bucket, acl(&object)) => Ok(object),
        Err(StoreError::NoSuchKey) if is_public(bucket, bucket.acl) => Err(Code::NoSuchKey.into()),
        Ok(_) | Err(StoreError::NoSuchKey) => Err(Code::AccessDenied.into()),
        Err(error) => Err(error.into()),
    }
}

/// Whether who is not its owner may read what is in `bucket` and has this ACL.
pub(super) fn is_public(bucket: &Bucket, acl: Acl) -> bool {
    acl == Acl::PublicRead && bucket.ownership != Some(Ownership::BucketOwnerEnforced)
}

/// The ACL that the header of a request asks for, under this object ownership; nothing if there is no such header.
///
/// # Errors
/// `AccessControlListNotSupported` where ACLs do not count, `NotImplemented` for those of S3 that are not served,
/// `InvalidArgument` for those that are none.
pub(super) fn canned(ask: &Ask, ownership: Option<Ownership>) -> Result<Option<Acl>, Fault> {
    let Some(name) = ask.header("x-amz-acl")? else { return Ok(None) };
    let acl = match name {
        // The owner of the bucket has full control of everything in it.
        "bucket-owner-full-control" => return Ok(Some(Acl::Private)),
        "private" => Some(Acl::Private),
        "public-read" => Some(Acl::PublicRead),
        _ if OTHER_ACLS.contains(&name) => None,
        _ => return Err(Fault::new(Code::InvalidArgument, "x-amz-acl is no canned ACL.")),
    };
    if ownership == Some(Ownership::BucketOwnerEnforced) {
        return Err(Code::AccessControlListNotSupported.into());
    }
    acl.map(Some).ok_or_else(|| Fault::not_implemented(&format!("The ACL {name}")))
}

/// The object ownership that the header of a request asks for.
///
/// # Errors
/// `InvalidArgument` for what is none.
pub(super) fn ownership_asked(ask: &Ask) -> Result<Option<Ownership>, Fault> {
    ask.header("x-amz-object-ownership")?.map(ownership_of).transpose()
}

fn ownership_of(name: &str) -> Result<Ownership, Fault> {
    match name {
        ObjectOwnership::BUCKET_OWNER_ENFORCED => Ok(Ownership::BucketOwnerEnforced),
        ObjectOwnership::BUCKET_OWNER_PREFERRED => Ok(Ownership::BucketOwnerPreferred),
        ObjectOwnership::OBJECT_WRITER => Ok(Ownership::ObjectWriter),
        _ => Err(Fault::new(Code::InvalidArgument, "Invalid value for object ownership.")),
    }
}

/// Refuses a bucket that is public and takes no ACLs.
///
/// # Errors
/// `InvalidBucketAclWithObjectOwnership`.
pub(super) fn must_agree(acl: Acl, ownership: Option<Ownership>) -> Result<(), Fault> {
    if acl == Acl::PublicRead && ownership == Some(Ownership::BucketOwnerEnforced) {
        return Err(Code::InvalidBucketAclWithObjectOwnership.into());
    }
    Ok(())
}

/// Answers who may list a bucket.
pub(super) async fn bucket_acl(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    xml(&told(&bucket, bucket.acl))
}

/// Answers who may read an object.
pub(super) async fn object_acl(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    let object = route.readable_object(ask, &bucket).await?;
    versions::check(ask)?;
    xml(&told(&bucket, object.acl))
}

/// Sets who may list a bucket.
pub(super) async fn put_bucket_acl(route: &Route, mut ask: Ask) -> Answer {
    let bucket = route.owned_bucket(&ask).await?;
    let acl = acl_asked(&mut ask, &bucket).await?;
    bucket.store.change_bucket(&ask.bucket, BucketChange::Acl(acl)).await?;
    Ok(empty(StatusCode::OK))
}

/// Sets who may read an object.
pub(super) async fn put_object_acl(route: &Route, mut ask: Ask) -> Answer {
    let bucket = route.owned_bucket(&ask).await?;
    versions::check(&ask)?;
    let acl = acl_asked(&mut ask, &bucket).await?;
    bucket.store.change(&ask.bucket, &ask.key, ObjectChange::Acl(acl)).await?;
    Ok(empty(StatusCode::OK))
}

fn told(bucket: &Bucket, acl: Acl) -> GetBucketAclOutput {
    let owner = owner(&bucket.owner);
    let grant = |permission: &'static str, grantee| Grant {
        grantee: Some(grantee),
        permission: Some(Permission::from_static(permission)),
    };
    let grantee = |type_: &'static str| Grantee {
        display_name: None,
        email_address: None,
        id: None,
        type_: Type::from_static(type_),
        uri: None,
    };
    let (display_name, id) = (owner.display_name.clone(), owner.id.clone());
    let mut grants =
        vec![grant(Permission::FULL_CONTROL, Grantee { display_name, id, ..grantee(Type::CANONICAL_USER) })];
    if is_public(bucket, acl) {
        grants.push(grant(Permission::READ, Grantee { uri: Some(ALL_USERS.to_owned()), ..grantee(Type::GROUP) }));
    }
    GetBucketAclOutput { grants: Some(grants), owner: Some(owner) }
}

/// The ACL of a request that sets one, canned or spelled out.
async fn acl_asked(ask: &mut Ask, bucket: &Bucket) -> Result<Acl, Fault> {
    let canned = canned(ask, bucket.ownership)?;
    match (canned, ask.small_body::<AccessControlPolicy>().await?) {
        (Some(acl), None) => Ok(acl),
        (Some(_), Some(_)) => Err(Code::UnexpectedContent.into()),
        (None, None) => Err(Fault::new(
            Code::MissingSecurityHeader,
            "Your request was missing a required header: x-amz-acl, or an ACL as its body.",
        )),
        (None, Some(policy)) => {
            let acl = spelled_out(&policy, bucket)?;
            if acl == Acl::PublicRead && bucket.ownership == Some(Ownership::BucketOwnerEnforced) {
                return Err(Code::AccessControlListNotSupported.into());
            }
            Ok(acl)
        }
    }
}

/// The canned ACL that says the same as `policy`.
fn spelled_out(policy: &AccessControlPolicy, bucket: &Bucket) -> Result<Acl, Fault> {
    if policy.owner.as_ref().and_then(|owner| owner.id.as_ref()).is_some_and(|id| *id != bucket.owner) {
        return Err(Code::AccessDenied.into());
    }
    let (mut owners, mut everybodys, mut others) = (0, 0, 0);
    for grant in policy.grants.iter().flatten() {
        let grantee = grant.grantee.as_ref();
        let is_owner = grantee.and_then(|grantee| grantee.id.as_deref()) == Some(bucket.owner.as_str());
        let is_everybody = grantee.and_then(|grantee| grantee.uri.as_deref()) == Some(ALL_USERS);
        match grant.permission.as_ref().map(Permission::as_str) {
            Some(Permission::FULL_CONTROL) if is_owner => owners += 1,
            Some(Permission::READ) if is_everybody => everybodys += 1,
            _ => others += 1,
        }
    }
    match (owners, everybodys, others) {
        (1.., 0, 0) => Ok(Acl::Private),
        (1.., 1.., 0) => Ok(Acl::PublicRead),
        _ => Err(Fault::not_implemented("An ACL that is neither private nor public-read")),
    }
}

/// Answers whether ACLs count in a bucket, if anybody ever said so.
pub(super) async fn ownership(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    let name = match bucket.ownership.ok_or(Code::OwnershipControlsNotFoundError)? {
        Ownership::BucketOwnerEnforced => ObjectOwnership::BUCKET_OWNER_ENFORCED,
        Ownership::BucketOwnerPreferred => ObjectOwnership::BUCKET_OWNER_PREFERRED,
        Ownership::ObjectWriter => ObjectOwnership::OBJECT_WRITER,
    };
    let rule = OwnershipControlsRule { object_ownership: ObjectOwnership::from_static(name) };
    xml(&OwnershipControls { rules: vec![rule] })
}

/// Sets whether ACLs count in a bucket.
pub(super) async fn put_ownership(route: &Route, mut ask: Ask) -> Answer {
    let bucket = route.owned_bucket(&ask).await?;
    let controls = ask.small_body::<OwnershipControls>().await?.ok_or(Code::MalformedXml)?;
    let [rule] = controls.rules.as_slice() else { return Err(Code::MalformedXml.into()) };
    let ownership = ownership_of(rule.object_ownership.as_str()).map_err(|_| Fault::from(Code::MalformedXml))?;
    must_agree(bucket.acl, Some(ownership))?;
    bucket.store.change_bucket(&ask.bucket, BucketChange::Ownership(Some(ownership))).await?;
    Ok(empty(StatusCode::OK))
}

/// Forgets whether ACLs count in a bucket; they do then.
pub(super) async fn delete_ownership(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    bucket.store.change_bucket(&ask.bucket, BucketChange::Ownership(None)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
