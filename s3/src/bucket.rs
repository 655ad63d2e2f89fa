//! Operations on buckets.

use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::keys::REGION;
use crate::list::{ContinuationToken, number};
use crate::precondition::seconds;
use crate::request::S3Request;
use crate::response::{Answer, document, empty, owner};
use crate::store::ServiceError;
use crate::{access, tagging};
use catalog::{Acl, Authority, Bucket, BucketChange, Ownership};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use s3s::dto::{self, GetBucketLocationOutput, ListBucketsOutput, Tag};
use s3s::xml::{DeError, DeResult, Deserialize, Deserializer};

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
    if is_reserved(&request.bucket) {
        return Err(ErrorCode::InvalidBucketName.into());
    }
    let configuration = request.small_body::<Configuration>().await?.unwrap_or_default();
    check_place(&configuration)?;
    let tags = tagging::of_new_bucket(configuration.tags)?;
    let ownership = access::requested_ownership(&request)?;
    let acl = access::canned(&request, None)?.unwrap_or_default();
    access::must_agree(acl, ownership)?;
    let bucket = Bucket { acl, ownership, tags: tags.clone(), ..Bucket::new(&request.bucket, 0, request.user()?) };
    let authority = Authority { bucket: None, access_key: request.access_key.clone() };
    match front.store.authorised(authority).create_bucket(bucket).await {
        Ok(_) => {}
        // The store may not know the user of the request; the frontend does.
        Err(ServiceError::BucketExists { .. }) => create_again(front, &request, (acl, ownership, tags)).await?,
        Err(error) => return Err(error.into()),
    }
    let mut answer = empty(StatusCode::OK);
    let location = HeaderValue::try_from(format!("/{}", request.bucket));
    answer.headers.insert(LOCATION, location.map_err(|_| ErrorCode::InvalidBucketName)?);
    Ok(answer)
}

/// True for names that AWS reserves; no user may create a bucket with one.
fn is_reserved(name: &str) -> bool {
    let starts = ["xn--", "sthree-", "amzn-s3-demo-"];
    let ends = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3", "-an"];
    starts.iter().any(|start| name.starts_with(start)) || ends.iter().any(|end| name.ends_with(end))
}

/// The configuration of a new bucket. The protocol library's own type has no tags.
#[derive(Default)]
struct Configuration {
    constraint: Option<String>,
    tags: Vec<Tag>,
}

impl<'xml> Deserialize<'xml> for Configuration {
    fn deserialize(reader: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut read = Self::default();
        reader.named_element("CreateBucketConfiguration", |reader| {
            reader.for_each_element(|reader, name| {
                match name {
                    b"LocationConstraint" => read.constraint = Some(reader.content()?),
                    b"Tags" => read.tags = reader.list_content("Tag")?,
                    _ => return Err(DeError::UnexpectedTagName),
                }
                Ok(())
            })
        })?;
        Ok(read)
    }
}

/// Refuses every named location. S3 has no name for the location us-east-1.
fn check_place(configuration: &Configuration) -> Result<(), ErrorResponse> {
    match configuration.constraint.as_deref() {
        None | Some("") => Ok(()),
        Some(REGION) => Err(ErrorCode::InvalidLocationConstraint.into()),
        Some(_) => Err(ErrorCode::IllegalLocationConstraintException.into()),
    }
}

/// Creates a bucket that its owner already has. That succeeds in us-east-1, the only region here, and sets the bucket's
/// ACL.
async fn create_again(
    front: &Frontend,
    request: &S3Request,
    (acl, ownership, tags): (Acl, Option<Ownership>, Vec<(String, String)>),
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
    if !tags.is_empty() && tags != bucket.tags {
        bucket.store.change_bucket(&request.bucket, BucketChange::Tags(tags)).await?;
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

/// GetBucketLocation: S3 leaves out the name of this region.
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
