//! The places that a job reads from and writes to.

use super::report::{Place, Request};
use catalog::{Catalog, CatalogError, HIDDEN_BUCKET, ListRequest};

/// The longest key of an object, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 1_024;
/// The part of a key that a prefix must leave for the names of partitions and objects.
const NAME_BYTES: usize = 64;

/// The places of a request; each prefix ends with a slash, unless the place is a whole bucket.
pub(super) fn places(request: &Request) -> Result<(Place, Place), String> {
    let to = directory(&request.to);
    for bucket in [&request.from.bucket, &to.bucket] {
        if bucket.starts_with('.') || *bucket == HIDDEN_BUCKET {
            return Err(format!("there is no bucket `{bucket}`"));
        }
    }
    let most = KEY_BYTES_MAX - NAME_BYTES;
    if to.prefix.len() > most {
        let bytes = to.prefix.len();
        return Err(format!(
            "the prefix to write to has {bytes} bytes, and {most} at most leave room for names below it"
        ));
    }
    Ok((request.from.clone(), to))
}

/// The place with its prefix ending in a slash, unless it is a whole bucket.
pub(super) fn directory(place: &Place) -> Place {
    let slash = if place.prefix.is_empty() || place.prefix.ends_with('/') { "" } else { "/" };
    Place { bucket: place.bucket.clone(), prefix: format!("{}{slash}", place.prefix) }
}

/// Refuses a target that overlaps the input, or already holds an object.
pub(super) async fn target_is_free(catalog: &Catalog, from: &Place, to: &Place) -> Result<(), String> {
    let source = directory(from).prefix;
    let overlaps = to.prefix.starts_with(&source) || source.starts_with(&to.prefix);
    if from.bucket == to.bucket && overlaps {
        return Err(format!("{to} overlaps with the input {from}; write to another prefix"));
    }
    let request = ListRequest { prefix: to.prefix.clone(), max_keys: 1, ..ListRequest::default() };
    let found = catalog.list_objects(&to.bucket, &request).await.map_err(|error| match error {
        CatalogError::NoSuchBucket => format!("there is no bucket `{}` to write to; create it first", to.bucket),
        error => error.to_string(),
    })?;
    match found.objects.first() {
        Some((key, _)) => Err(format!(
            "{to} holds objects already, such as s3://{}/{key}; write to another prefix, or remove them",
            to.bucket
        )),
        None => Ok(()),
    }
}
