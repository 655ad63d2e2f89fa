//! Operations on buckets.

use super::ask::Ask;
use super::error::{Code, Fault};
use super::list::{Token, number};
use super::precondition::seconds;
use super::route::{Answer, Route, empty, xml};
use super::{REGION, access, store};
use catalog::{Acl, Authority, Bucket, BucketChange, Ownership};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use s3s::dto::{self, CreateBucketConfiguration, GetBucketLocationOutput, ListBucketsOutput, Owner};

/// How many buckets one answer names.
const PAGE: usize = 10_000;

/// Lists the buckets of who asks.
pub(super) async fn list(route: &Route, ask: &Ask) -> Answer {
    let max = number(ask.query("max-buckets"), "max-buckets", PAGE)?.min(PAGE);
    if max == 0 {
        return Err(Fault::new(Code::InvalidArgument, "max-buckets must be at least 1."));
    }
    let prefix = ask.query("prefix").unwrap_or_default();
    let after = ask.query("continuation-token").map(Token::read).transpose()?.unwrap_or_default();
    let elsewhere = ask.query("bucket-region").is_some_and(|region| region != REGION);

    let mut buckets = route.store.list_buckets(ask.user()?).await?;
    buckets.retain(|bucket| !elsewhere && bucket.name.starts_with(prefix) && bucket.name > after);
    let truncated = buckets.len() > max;
    buckets.truncate(max);
    let next = if truncated { buckets.last().map(|bucket| Token::write(&bucket.name)) } else { None };
    xml(&ListBucketsOutput {
        buckets: Some(buckets.into_iter().map(told).collect()),
        continuation_token: next,
        owner: Some(owner(ask.user()?)),
        prefix: ask.query("prefix").map(str::to_owned),
    })
}

fn told(bucket: Bucket) -> dto::Bucket {
    let creation_date = Some(seconds(bucket.created_ms).into());
    dto::Bucket { bucket_region: Some(REGION.to_owned()), creation_date, name: Some(bucket.name) }
}

/// Who owns things, as listings tell it.
pub(super) fn owner(user: &str) -> Owner {
    Owner { display_name: Some(user.to_owned()), id: Some(user.to_owned()) }
}

/// Makes a bucket.
pub(super) async fn create(route: &Route, mut ask: Ask) -> Answer {
    ask.user()?;
    if let Some(configuration) = ask.small_body::<CreateBucketConfiguration>().await? {
        if configuration.bucket.is_some() || configuration.location.is_some() {
            return Err(Fault::not_implemented("A bucket of this type or place"));
        }
        let here =
            configuration.location_constraint.as_ref().is_none_or(|place| [REGION, ""].contains(&place.as_str()));
        if !here {
            return Err(Code::IllegalLocationConstraintException.into());
        }
    }
    let ownership = access::ownership_asked(&ask)?;
    let acl = access::canned(&ask, None)?.unwrap_or_default();
    access::must_agree(acl, ownership)?;
    let bucket = Bucket { acl, ownership, ..Bucket::new(&ask.bucket, 0, ask.user()?) };
    let authority = Authority { bucket: None, access_key: ask.access_key.clone() };
    match route.store.authorised(authority).create_bucket(bucket).await {
        Ok(_) => {}
        // The store may not know whose request it is; the front does.
        Err(store::StoreError::BucketExists { .. }) => again(route, &ask, acl, ownership).await?,
        Err(error) => return Err(error.into()),
    }
    let mut answer = empty(StatusCode::OK);
    let location = HeaderValue::try_from(format!("/{}", ask.bucket));
    answer.headers.insert(LOCATION, location.map_err(|_| Fault::from(Code::InvalidBucketName))?);
    Ok(answer)
}

/// A bucket that is there already is made again to who has it, as in us-east-1, the one region there is: its ACL is
/// then what this request says.
async fn again(route: &Route, ask: &Ask, acl: Acl, ownership: Option<Ownership>) -> Result<(), Fault> {
    if !ask.owns(&route.store.head_bucket(&ask.bucket).await?) {
        return Err(store::StoreError::BucketExists { owned_by_you: false }.into());
    }
    let bucket = route.owned_bucket(ask).await?;
    access::must_agree(acl, ownership.or(bucket.ownership))?;
    if acl != bucket.acl {
        bucket.store.change_bucket(&ask.bucket, BucketChange::Acl(acl)).await?;
    }
    if ownership.is_some() && ownership != bucket.ownership {
        bucket.store.change_bucket(&ask.bucket, BucketChange::Ownership(ownership)).await?;
    }
    Ok(())
}

/// Answers whether a bucket is there and who asks may use it.
pub(super) async fn head(route: &Route, ask: &Ask) -> Answer {
    route.listable_bucket(ask).await?;
    let mut answer = empty(StatusCode::OK);
    answer.headers.insert("x-amz-bucket-region", HeaderValue::from_static(REGION));
    Ok(answer)
}

/// Answers where a bucket is: in the region whose name S3 leaves out.
pub(super) async fn location(route: &Route, ask: &Ask) -> Answer {
    route.owned_bucket(ask).await?;
    xml(&GetBucketLocationOutput { location_constraint: None })
}

/// Removes an empty bucket.
pub(super) async fn delete(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    bucket.store.delete_bucket(&ask.bucket).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
