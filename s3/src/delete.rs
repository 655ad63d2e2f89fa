//! DeleteObject and DeleteObjects.

use super::access::Owned;
use super::ask::Ask;
use super::error::{Code, Fault};
use super::route::{Answer, Route, empty, xml};
use super::store::Condition;
use super::versions;
use futures::StreamExt;
use http::StatusCode;
use s3s::dto::{Delete, DeleteObjectsOutput, DeletedObject, ETag, Error, ObjectIdentifier};

/// How many keys one request may name.
const KEYS: usize = 1000;
/// How many of them are deleted at once, so that they share the catalog's commits.
const AT_ONCE: usize = 32;

/// Removes an object; well if there is none.
pub(super) async fn one(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    if is_no_version(versions::check(ask))? {
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    let condition = condition(ask.header("if-match")?);
    bucket.store.delete(&ask.bucket, &ask.key, condition).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Whether a version was named that is not there, whose deletion is well.
fn is_no_version(checked: Result<(), Fault>) -> Result<bool, Fault> {
    match checked {
        Err(fault) if fault.code == Code::NoSuchVersion => Ok(true),
        checked => checked.map(|()| false),
    }
}

/// What must hold of an object for this `If-Match` to let it go.
fn condition(if_match: Option<&str>) -> Condition {
    match if_match {
        None => Condition::Always,
        Some("*") => Condition::IfPresent,
        Some(etag) => Condition::IfMatch(etag.trim_matches('"').to_owned()),
    }
}

/// Removes objects, and says of each what came of it.
pub(super) async fn many(route: &Route, mut ask: Ask) -> Answer {
    let bucket = route.owned_bucket(&ask).await?;
    let Some(delete) = ask.small_body::<Delete>().await? else { return Err(Code::MalformedXml.into()) };
    if delete.objects.is_empty() || delete.objects.len() > KEYS {
        return Err(Code::MalformedXml.into());
    }
    let (ask, bucket) = (&ask, &bucket);
    let results: Vec<_> = futures::stream::iter(delete.objects)
        .map(|object| async move {
            let result = delete_listed(bucket, ask, &object).await;
            (object.key, object.version_id, result)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;

    let mut output = DeleteObjectsOutput::default();
    let (deleted, errors) = (output.deleted.get_or_insert_default(), output.errors.get_or_insert_default());
    for (key, version_id, result) in results {
        match result {
            Ok(()) if delete.quiet == Some(true) => {}
            Ok(()) => deleted.push(DeletedObject { key: Some(key), version_id, ..DeletedObject::default() }),
            Err(fault) => {
                fault.log("DeleteObjects", &key);
                errors.push(Error {
                    code: Some(fault.code.as_str().to_owned()),
                    message: Some(fault.message().to_owned()),
                    key: Some(key),
                    version_id,
                });
            }
        }
    }
    xml(&output)
}

async fn delete_listed(bucket: &Owned, ask: &Ask, object: &ObjectIdentifier) -> Result<(), Fault> {
    if object.last_modified_time.is_some() || object.size.is_some() {
        return Err(Fault::not_implemented("Deleting on a condition other than the ETag"));
    }
    if object.key.is_empty() {
        return Err(Fault::new(Code::InvalidArgument, "The key is empty."));
    }
    if !s3s::path::check_key(&object.key) {
        return Err(Code::KeyTooLongError.into());
    }
    if is_no_version(object.version_id.as_deref().map_or(Ok(()), versions::check_id))? {
        return Ok(());
    }
    let etag = object.e_tag.as_ref().map(ETag::value);
    Ok(bucket.store.delete(&ask.bucket, &object.key, condition(etag)).await?)
}
