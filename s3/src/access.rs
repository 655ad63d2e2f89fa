//! Access control: owners, canned ACLs and object ownership.
//!
//! Everything belongs to the owner of its bucket, who may do everything. All others, signed in or not, may read what is
//! `public-read`: a bucket's ACL opens its listings, an object's ACL its bytes. Any other ACL is refused, so no ACL
//! means less or more than it says.

use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::request::S3Request;
use crate::response::{Answer, document, empty, owner};
use crate::store::{Located, ObjectStore, ServiceError};
use crate::versions;
use catalog::{Acl, Authority, Bucket, BucketChange, Object, ObjectChange, Ownership, PlacedObject};
use http::StatusCode;
use s3s::dto::{
    AccessControlPolicy, GetBucketAclOutput, Grant, Grantee, ObjectOwnership, OwnershipControls, OwnershipControlsRule,
    Permission, Type,
};
use std::ops::Deref;
use std::sync::Arc;

/// The group of all users.
const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
/// The permissions that a grant may name.
const PERMISSIONS: [&str; 5] =
    [Permission::FULL_CONTROL, Permission::READ, Permission::READ_ACP, Permission::WRITE, Permission::WRITE_ACP];
/// Canned ACLs that S3 has and this store does not.
const OTHER_ACLS: [&str; 5] =
    ["authenticated-read", "aws-exec-read", "bucket-owner-read", "log-delivery-write", "public-read-write"];

/// The bucket of a request that its owner sent.
pub(crate) struct Owned {
    bucket: Bucket,
    /// The store, for changes that succeed only while the bucket is the owner's and the owner's keys are valid.
    pub store: Arc<dyn ObjectStore>,
}

impl Deref for Owned {
    type Target = Bucket;

    fn deref(&self) -> &Bucket {
        &self.bucket
    }
}

impl Frontend {
    /// The bucket of a request, which must be the one that was expected.
    async fn bucket(&self, request: &S3Request) -> Result<Bucket, ErrorResponse> {
        expected(request, self.store.head_bucket(&request.bucket).await?)
    }

    /// The bucket of a request, which must belong to its user.
    pub(crate) async fn owned_bucket(&self, request: &S3Request) -> Result<Owned, ErrorResponse> {
        let bucket = self.bucket(request).await?;
        request.user()?;
        if !request.owns(&bucket) {
            return Err(ErrorCode::AccessDenied.into());
        }
        let authority = Authority { bucket: Some(bucket.clone()), access_key: request.access_key.clone() };
        Ok(Owned { bucket, store: self.store.authorised(authority) })
    }

    /// The bucket of a request, if its user may list it.
    pub(crate) async fn listable_bucket(&self, request: &S3Request) -> Result<Bucket, ErrorResponse> {
        let bucket = self.bucket(request).await?;
        let may = request.owns(&bucket) || is_public(&bucket, bucket.acl);
        if may { Ok(bucket) } else { Err(ErrorCode::AccessDenied.into()) }
    }

    /// The bucket and the object of a request, with the object's place, if the user may read it: one read of the
    /// catalog.
    pub(crate) async fn located(&self, request: &S3Request) -> Result<(Bucket, PlacedObject), ErrorResponse> {
        let Located { bucket, object } = self.store.locate(&request.bucket, &request.key).await?;
        let bucket = expected(request, bucket)?;
        let object = readable(request, &bucket, object, |placed| placed.object.acl)?;
        Ok((bucket, object))
    }

    /// The object of a request, if its user may read it.
    pub(crate) async fn readable_object(&self, request: &S3Request, bucket: &Bucket) -> Result<Object, ErrorResponse> {
        self.readable_object_at(request, bucket, &request.key).await
    }

    /// As [`Self::readable_object`], of another object than the request's own.
    pub(crate) async fn readable_object_at(
        &self,
        request: &S3Request,
        bucket: &Bucket,
        key: &str,
    ) -> Result<Object, ErrorResponse> {
        readable(request, bucket, self.store.head(&bucket.name, key).await, |object| object.acl)
    }
}

/// The bucket of a request, if it is the one that was expected.
fn expected(request: &S3Request, bucket: Bucket) -> Result<Bucket, ErrorResponse> {
    let expected = request.header("x-amz-expected-bucket-owner")?;
    if expected.is_some_and(|expected| expected != bucket.owner) {
        return Err(ErrorCode::AccessDenied.into());
    }
    Ok(bucket)
}

/// The object that was found, if the user may read it. Only users who may list the bucket learn that it does not exist.
fn readable<T>(
    request: &S3Request,
    bucket: &Bucket,
    found: Result<T, ServiceError>,
    acl: fn(&T) -> Acl,
) -> Result<T, ErrorResponse> {
    if request.owns(bucket) {
        return Ok(found?);
    }
    match found {
        Ok(object) if is_public(bucket, acl(&object)) => Ok(object),
        Err(ServiceError::NoSuchKey) if is_public(bucket, bucket.acl) => Err(ErrorCode::NoSuchKey.into()),
        Ok(_) | Err(ServiceError::NoSuchKey) => Err(ErrorCode::AccessDenied.into()),
        Err(error) => Err(error.into()),
    }
}

/// True if all users may read an object or a listing of `bucket` that has this ACL.
fn is_public(bucket: &Bucket, acl: Acl) -> bool {
    acl == Acl::PublicRead && bucket.ownership != Some(Ownership::BucketOwnerEnforced)
}

/// The ACL in the header of a request, under this object ownership; `None` without that header.
///
/// # Errors
/// `AccessControlListNotSupported` if ACLs are disabled; `InvalidArgument` for an ACL that is not served and for an
/// unknown name.
pub(crate) fn canned(request: &S3Request, ownership: Option<Ownership>) -> Result<Option<Acl>, ErrorResponse> {
    let Some(name) = request.header("x-amz-acl")? else { return Ok(None) };
    let acl = match name {
        // The owner of the bucket has full control of everything in it.
        "bucket-owner-full-control" => return Ok(Some(Acl::Private)),
        "private" => Some(Acl::Private),
        "public-read" => Some(Acl::PublicRead),
        _ if OTHER_ACLS.contains(&name) => None,
        _ => return Err(ErrorCode::InvalidArgument.with("x-amz-acl is no canned ACL.")),
    };
    if ownership == Some(Ownership::BucketOwnerEnforced) {
        return Err(ErrorCode::AccessControlListNotSupported.into());
    }
    acl.map(Some).ok_or_else(|| ErrorCode::InvalidArgument.with(format!("The ACL {name} is not served here.")))
}

/// The object ownership in the header of a request.
///
/// # Errors
/// `InvalidArgument` for any other value.
pub(crate) fn requested_ownership(request: &S3Request) -> Result<Option<Ownership>, ErrorResponse> {
    request.header("x-amz-object-ownership")?.map(ownership_of).transpose()
}

fn ownership_of(name: &str) -> Result<Ownership, ErrorResponse> {
    match name {
        ObjectOwnership::BUCKET_OWNER_ENFORCED => Ok(Ownership::BucketOwnerEnforced),
        ObjectOwnership::BUCKET_OWNER_PREFERRED => Ok(Ownership::BucketOwnerPreferred),
        ObjectOwnership::OBJECT_WRITER => Ok(Ownership::ObjectWriter),
        _ => Err(ErrorCode::InvalidArgument.with("Invalid value for object ownership.")),
    }
}

/// Refuses a public bucket in which ACLs are disabled.
///
/// # Errors
/// `InvalidBucketAclWithObjectOwnership`.
pub(crate) fn must_agree(acl: Acl, ownership: Option<Ownership>) -> Result<(), ErrorResponse> {
    if acl == Acl::PublicRead && ownership == Some(Ownership::BucketOwnerEnforced) {
        return Err(ErrorCode::InvalidBucketAclWithObjectOwnership.into());
    }
    Ok(())
}

/// GetBucketAcl.
pub(crate) async fn bucket_acl(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    document(&policy(&bucket, bucket.acl))
}

/// GetObjectAcl.
pub(crate) async fn object_acl(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    let object = front.readable_object(request, &bucket).await?;
    versions::check(request)?;
    document(&policy(&bucket, object.acl))
}

/// PutBucketAcl.
pub(crate) async fn put_bucket_acl(front: &Frontend, mut request: S3Request) -> Answer {
    let bucket = front.owned_bucket(&request).await?;
    let acl = requested_acl(&mut request, &bucket).await?;
    assert!(must_agree(acl, bucket.ownership).is_ok(), "no bucket is public whose owner rules that out");
    bucket.store.change_bucket(&request.bucket, BucketChange::Acl(acl)).await?;
    Ok(empty(StatusCode::OK))
}

/// PutObjectAcl.
pub(crate) async fn put_object_acl(front: &Frontend, mut request: S3Request) -> Answer {
    let bucket = front.owned_bucket(&request).await?;
    versions::check(&request)?;
    let acl = requested_acl(&mut request, &bucket).await?;
    bucket.store.change(&request.bucket, &request.key, ObjectChange::Acl(acl)).await?;
    Ok(empty(StatusCode::OK))
}

fn policy(bucket: &Bucket, acl: Acl) -> GetBucketAclOutput {
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

/// The ACL of a request that sets one, as a header or a document.
async fn requested_acl(request: &mut S3Request, bucket: &Bucket) -> Result<Acl, ErrorResponse> {
    let canned = canned(request, bucket.ownership)?;
    match (canned, request.small_body::<AccessControlPolicy>().await?) {
        (Some(acl), None) => Ok(acl),
        (Some(_), Some(_)) => Err(ErrorCode::UnexpectedContent.into()),
        (None, None) => Err(ErrorCode::MissingSecurityHeader
            .with("Your request was missing a required header: x-amz-acl, or an ACL as its body.")),
        (None, Some(policy)) => {
            let acl = canned_like(&policy, bucket)?;
            if acl == Acl::PublicRead && bucket.ownership == Some(Ownership::BucketOwnerEnforced) {
                return Err(ErrorCode::AccessControlListNotSupported.into());
            }
            Ok(acl)
        }
    }
}

/// The canned ACL that is equivalent to `policy`.
fn canned_like(policy: &AccessControlPolicy, bucket: &Bucket) -> Result<Acl, ErrorResponse> {
    if policy.owner.as_ref().and_then(|owner| owner.id.as_ref()).is_some_and(|id| *id != bucket.owner) {
        return Err(ErrorCode::AccessDenied.into());
    }
    let (mut owners, mut public, mut others) = (0, 0, 0);
    for grant in policy.grants.iter().flatten() {
        let grantee = grant.grantee.as_ref().filter(|grantee| is_well_formed(grantee));
        let grantee = grantee.ok_or(ErrorCode::MalformedAclError)?;
        let is_owner = grantee.id.as_deref() == Some(bucket.owner.as_str());
        let is_everyone = grantee.uri.as_deref() == Some(ALL_USERS);
        let permission = grant.permission.as_ref().map(Permission::as_str).filter(|name| PERMISSIONS.contains(name));
        match permission.ok_or(ErrorCode::MalformedAclError)? {
            Permission::FULL_CONTROL if is_owner => owners += 1,
            Permission::READ if is_everyone => public += 1,
            _ => others += 1,
        }
    }
    match (owners, public, others) {
        (1.., 0, 0) => Ok(Acl::Private),
        (1.., 1.., 0) => Ok(Acl::PublicRead),
        _ => Err(ErrorCode::InvalidArgument.with("An ACL that is neither private nor public-read is not served here.")),
    }
}

/// True if a grantee is named in the way that its type requires. Users have no email addresses here.
fn is_well_formed(grantee: &Grantee) -> bool {
    match grantee.type_.as_str() {
        Type::CANONICAL_USER => grantee.id.is_some() && grantee.uri.is_none(),
        Type::GROUP => grantee.uri.is_some() && grantee.id.is_none(),
        _ => false,
    }
}

/// GetBucketOwnershipControls: the object ownership of a bucket; an error if it was never set.
pub(crate) async fn ownership(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    let name = match bucket.ownership.ok_or(ErrorCode::OwnershipControlsNotFoundError)? {
        Ownership::BucketOwnerEnforced => ObjectOwnership::BUCKET_OWNER_ENFORCED,
        Ownership::BucketOwnerPreferred => ObjectOwnership::BUCKET_OWNER_PREFERRED,
        Ownership::ObjectWriter => ObjectOwnership::OBJECT_WRITER,
    };
    let rule = OwnershipControlsRule { object_ownership: ObjectOwnership::from_static(name) };
    document(&OwnershipControls { rules: vec![rule] })
}

/// PutBucketOwnershipControls.
pub(crate) async fn put_ownership(front: &Frontend, mut request: S3Request) -> Answer {
    let bucket = front.owned_bucket(&request).await?;
    let controls = request.small_body::<OwnershipControls>().await?.ok_or(ErrorCode::MalformedXml)?;
    let [rule] = controls.rules.as_slice() else { return Err(ErrorCode::MalformedXml.into()) };
    let ownership = ownership_of(rule.object_ownership.as_str()).map_err(|_| ErrorCode::MalformedXml)?;
    must_agree(bucket.acl, Some(ownership))?;
    bucket.store.change_bucket(&request.bucket, BucketChange::Ownership(Some(ownership))).await?;
    Ok(empty(StatusCode::OK))
}

/// DeleteBucketOwnershipControls; ACLs then have an effect.
pub(crate) async fn delete_ownership(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    bucket.store.change_bucket(&request.bucket, BucketChange::Ownership(None)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
