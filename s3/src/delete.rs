//! DeleteObject and DeleteObjects.

use crate::access::Owned;
use crate::digest::DigestClaims;
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::request::S3Request;
use crate::response::{Answer, document, empty};
use crate::versions;
use catalog::PutCondition;
use futures::StreamExt;
use http::StatusCode;
use s3s::dto::{Delete, DeleteObjectsOutput, DeletedObject, ETag, Error, ObjectIdentifier};

/// The most keys that one request may name.
const KEYS: usize = 1000;
/// Concurrent deletes of one request, which share the catalog's commits.
const AT_ONCE: usize = 32;

/// Removes an object; succeeds if it does not exist.
pub(crate) async fn one(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    if is_no_version(versions::check(request))? {
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    let condition = condition(request.header("if-match")?);
    bucket.store.delete(&request.bucket, &request.key, condition).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// True if a version was named that does not exist; deleting it succeeds.
fn is_no_version(checked: Result<(), ErrorResponse>) -> Result<bool, ErrorResponse> {
    match checked {
        Err(error) if error.code == ErrorCode::NoSuchVersion => Ok(true),
        checked => checked.map(|()| false),
    }
}

/// The condition of a delete with this `If-Match`.
fn condition(if_match: Option<&str>) -> PutCondition {
    match if_match {
        None => PutCondition::None,
        Some("*") => PutCondition::IfMatchAny,
        Some(etag) => PutCondition::IfMatch(etag.trim_matches('"').to_owned()),
    }
}

/// Removes objects, and reports the outcome of each.
pub(crate) async fn many(front: &Frontend, mut request: S3Request) -> Answer {
    let bucket = front.owned_bucket(&request).await?;
    let claims = DigestClaims::of(&request.headers)?;
    if claims.is_empty() {
        let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
        return Err(ErrorCode::InvalidRequest.with(message));
    }
    let Some(delete) = request.small_body::<Delete>().await? else { return Err(ErrorCode::MalformedXml.into()) };
    if delete.objects.is_empty() || delete.objects.len() > KEYS {
        return Err(ErrorCode::MalformedXml.into());
    }
    let (request, bucket) = (&request, &bucket);
    let results: Vec<_> = futures::stream::iter(delete.objects)
        .map(|object| async move {
            let result = delete_listed(bucket, request, &object).await;
            (object.key, object.version_id, result)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;

    assert!((1..=KEYS).contains(&results.len()), "every key of the list has its answer");
    let mut output = DeleteObjectsOutput::default();
    let (deleted, errors) = (output.deleted.get_or_insert_default(), output.errors.get_or_insert_default());
    for (key, version_id, result) in results {
        match result {
            Ok(()) if delete.quiet == Some(true) => {}
            Ok(()) => deleted.push(DeletedObject { key: Some(key), version_id, ..DeletedObject::default() }),
            Err(error) => {
                error.log("DeleteObjects", &key);
                errors.push(Error {
                    code: Some(error.code.as_str().to_owned()),
                    message: Some(error.message().to_owned()),
                    key: Some(key),
                    version_id,
                });
            }
        }
    }
    document(&output)
}

async fn delete_listed(bucket: &Owned, request: &S3Request, object: &ObjectIdentifier) -> Result<(), ErrorResponse> {
    if object.last_modified_time.is_some() || object.size.is_some() {
        return Err(ErrorCode::InvalidArgument.with("A delete on a condition other than the ETag is not served here."));
    }
    if object.key.is_empty() {
        return Err(ErrorCode::InvalidArgument.with("The key is empty."));
    }
    if !s3s::path::check_key(&object.key) {
        return Err(ErrorCode::KeyTooLongError.into());
    }
    if is_no_version(object.version_id.as_deref().map_or(Ok(()), versions::check_id))? {
        return Ok(());
    }
    let etag = object.e_tag.as_ref().map(ETag::value);
    Ok(bucket.store.delete(&request.bucket, &object.key, condition(etag)).await?)
}
