//! DeleteObject and DeleteObjects.

use super::ask::Ask;
use super::error::{Code, Fault};
use super::route::{Answer, Route, empty, xml};
use super::store::Condition;
use futures::StreamExt;
use http::StatusCode;
use s3s::dto::{Delete, DeleteObjectsOutput, DeletedObject, Error, ObjectIdentifier};

/// How many keys one request may name.
const KEYS: usize = 1000;
/// How many of them are deleted at once, so that they share the catalog's commits.
const AT_ONCE: usize = 32;

/// Removes an object; well if there is none.
pub(super) async fn one(route: &Route, ask: &Ask) -> Answer {
    route.owned_bucket(ask).await?;
    route.store.delete(&ask.bucket, &ask.key, Condition::Always).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Removes objects, and says of each what came of it.
pub(super) async fn many(route: &Route, mut ask: Ask) -> Answer {
    route.owned_bucket(&ask).await?;
    let Some(delete) = ask.small_body::<Delete>().await? else { return Err(Code::MalformedXml.into()) };
    if delete.objects.is_empty() || delete.objects.len() > KEYS {
        return Err(Code::MalformedXml.into());
    }
    let ask = &ask;
    let results: Vec<(String, Result<(), Fault>)> = futures::stream::iter(delete.objects)
        .map(|object| async move { (object.key.clone(), delete_listed(route, ask, &object).await) })
        .buffered(AT_ONCE)
        .collect()
        .await;

    let mut output = DeleteObjectsOutput::default();
    let (deleted, errors) = (output.deleted.get_or_insert_default(), output.errors.get_or_insert_default());
    for (key, result) in results {
        match result {
            Ok(()) if delete.quiet == Some(true) => {}
            Ok(()) => deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() }),
            Err(fault) => {
                fault.log("DeleteObjects", &key);
                errors.push(Error {
                    code: Some(fault.code.as_str().to_owned()),
                    message: Some(fault.message().to_owned()),
                    key: Some(key),
                    ..Error::default()
                });
            }
        }
    }
    xml(&output)
}

async fn delete_listed(route: &Route, ask: &Ask, object: &ObjectIdentifier) -> Result<(), Fault> {
    let conditional = object.e_tag.is_some() || object.last_modified_time.is_some() || object.size.is_some();
    if conditional || object.version_id.is_some() {
        return Err(Fault::not_implemented("Deleting a version, or on a condition"));
    }
    if object.key.is_empty() {
        return Err(Fault::new(Code::InvalidArgument, "The key is empty."));
    }
    if !s3s::path::check_key(&object.key) {
        return Err(Code::KeyTooLongError.into());
    }
    Ok(route.store.delete(&ask.bucket, &object.key, Condition::Always).await?)
}
