//! Operations on buckets.

use crate::access;
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::keys::REGION;
use crate::list::{ContinuationToken, number};
use crate::precondition::seconds;
use crate::request::S3Request;
use crate::response::{Answer, document, empty, owner};
use crate::store::ServiceError;
use catalog::{Acl, Authority, Bucket, BucketChange, Ownership};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use s3s::dto::{self, CreateBucketConfiguration, GetBucketLocationOutput, ListBucketsOutput};

/// The most buckets of one response.
const PAGE: usize = 10_000;

/// Lists the buckets of a user.
pub(crate) async fn list(front: &Frontend, request: &S3Request) -> Answer {
    let max = number(request.query("max-buckets"), "max-buckets", PAGE)?.min(PAGE);
    if max == 0 {
        return Err(ErrorCode::InvalidArgument.with("max-buckets must be at least 1."));
    }
    let prefix = request.query("prefix").unwrap_or_default();
    let after = request.query("continuation-token").map(ContinuationToken::read).transpose()?.unwrap_or_default();
    let elsewhere = request.query("bucket-region").is_some_and(|region| region != REGION);

    let mut buckets = front.store.list_buckets(request.user()?).await?;
    buckets.retain(|bucket| !elsewhere && bucket.name.starts_with(prefix) && bucket.name > after);
    let truncated = buckets.len() > max;
    buckets.truncate(max);
    let next = if truncated { buckets.last().map(|bucket| ContinuationToken::write(&bucket.name)) } else { None };
    document(&ListBucketsOutput {
        buckets: Some(buckets.into_iter().map(entry).collect()),
        continuation_token: next,
        owner: Some(owner(request.user()?)),
        prefix: request.query("prefix").map(str::to_owned),
    })
}

fn entry(bucket: Bucket) -> dto::Bucket {
    let creation_date = Some(seconds(bucket.created_ms).into());
    dto::Bucket { bucket_region: Some(REGION.to_owned()), creation_date, name: Some(bucket.name) }
}

/// Makes a bucket.
pub(crate) async fn create(front: &Frontend, mut request: S3Request) -> Answer {
    request.user()?;
    if let Some(configuration) = request.small_body::<CreateBucketConfiguration>().await? {
        if configuration.bucket.is_some() || configuration.location.is_some() {
            return Err(ErrorResponse::not_implemented("A bucket of this type or place"));
        }
        let here =
            configuration.location_constraint.as_ref().is_none_or(|place| [REGION, ""].contains(&place.as_str()));
        if !here {
            return Err(ErrorCode::IllegalLocationConstraintException.into());
        }
    }
    let ownership = access::requested_ownership(&request)?;
    let acl = access::canned(&request, None)?.unwrap_or_default();
    access::must_agree(acl, ownership)?;
    let bucket = Bucket { acl, ownership, ..Bucket::new(&request.bucket, 0, request.user()?) };
    let authority = Authority { bucket: None, access_key: request.access_key.clone() };
    match front.store.authorised(authority).create_bucket(bucket).await {
        Ok(_) => {}
        // The store may not know whose request it is; the front does.
        Err(ServiceError::BucketExists { .. }) => create_again(front, &request, acl, ownership).await?,
        Err(error) => return Err(error.into()),
    }
    let mut answer = empty(StatusCode::OK);
    let location = HeaderValue::try_from(format!("/{}", request.bucket));
    answer.headers.insert(LOCATION, location.map_err(|_| ErrorCode::InvalidBucketName)?);
    Ok(answer)
}

/// Creates a bucket that its owner has already, which succeeds in us-east-1, the only region here: the request sets its
/// ACL.
async fn create_again(
    front: &Frontend,
    request: &S3Request,
    acl: Acl,
    ownership: Option<Ownership>,
) -> Result<(), ErrorResponse> {
    if !request.owns(&front.store.head_bucket(&request.bucket).await?) {
        return Err(ServiceError::BucketExists { owned_by_you: false }.into());
    }
    let bucket = front.owned_bucket(request).await?;
    access::must_agree(acl, ownership.or(bucket.ownership))?;
    if acl != bucket.acl {
        bucket.store.change_bucket(&request.bucket, BucketChange::Acl(acl)).await?;
    }
    if ownership.is_some() && ownership != bucket.ownership {
        bucket.store.change_bucket(&request.bucket, BucketChange::Ownership(ownership)).await?;
    }
    Ok(())
}

/// HeadBucket: the bucket exists, and the user may list it.
pub(crate) async fn head(front: &Frontend, request: &S3Request) -> Answer {
    front.listable_bucket(request).await?;
    let mut answer = empty(StatusCode::OK);
    answer.headers.insert("x-amz-bucket-region", HeaderValue::from_static(REGION));
    Ok(answer)
}

/// GetBucketLocation: the region whose name S3 leaves out.
pub(crate) async fn location(front: &Frontend, request: &S3Request) -> Answer {
    front.owned_bucket(request).await?;
    document(&GetBucketLocationOutput { location_constraint: None })
}

/// Removes an empty bucket.
pub(crate) async fn delete(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    bucket.store.delete_bucket(&request.bucket).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
