//! Tags of objects and buckets. They are in the catalog alone: setting them makes no version and wakes no drive.

use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::request::S3Request;
use crate::response::{Answer, document, empty};
use crate::versions;
use catalog::{BucketChange, ObjectChange};
use http::StatusCode;
use s3s::dto::{GetBucketTaggingOutput, GetObjectTaggingOutput, Tag, Tagging};
use std::collections::BTreeSet;

/// The most tags of an object.
const OF_OBJECT: usize = 10;
/// The most tags of a bucket.
const OF_BUCKET: usize = 50;
/// The longest key of a tag, in characters.
const KEY_CHARS: usize = 128;
/// The longest value of a tag, in characters.
const VALUE_CHARS: usize = 256;

type Tags = Vec<(String, String)>;

/// The tags that the header of a request gives a new object.
///
/// # Errors
/// Tags that are malformed or too many.
pub(crate) fn of_header(request: &S3Request) -> Result<Tags, ErrorResponse> {
    let Some(text) = request.header("x-amz-tagging")? else { return Ok(Tags::new()) };
    let tags: Tags = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
    let keys: BTreeSet<_> = tags.iter().map(|tag| &tag.0).collect();
    // Bytes that are not UTF-8 decode to this character.
    let damaged = tags.iter().any(|(key, value)| [key, value].iter().any(|part| part.contains('\u{fffd}')));
    if keys.len() < tags.len() || damaged {
        let message = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters \
                       without tag name duplicates.";
        return Err(ErrorCode::InvalidArgument.with(message));
    }
    check(tags, OF_OBJECT, "Object")
}

/// Returns the tags of an object.
pub(crate) async fn of_object(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    let object = front.readable_object(request, &bucket).await?;
    versions::check(request)?;
    document(&GetObjectTaggingOutput { tag_set: tag_set(object.tags), version_id: None })
}

/// Replaces the tags of an object.
pub(crate) async fn put_of_object(front: &Frontend, mut request: S3Request) -> Answer {
    let bucket = front.owned_bucket(&request).await?;
    versions::check(&request)?;
    let tags = requested(&mut request, OF_OBJECT, "Object").await?;
    bucket.store.change(&request.bucket, &request.key, ObjectChange::Tags(tags)).await?;
    Ok(empty(StatusCode::OK))
}

/// Removes the tags of an object.
pub(crate) async fn delete_of_object(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    versions::check(request)?;
    bucket.store.change(&request.bucket, &request.key, ObjectChange::Tags(Tags::new())).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Returns the tags of a bucket.
pub(crate) async fn of_bucket(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    if bucket.tags.is_empty() {
        return Err(ErrorCode::NoSuchTagSet.into());
    }
    document(&GetBucketTaggingOutput { tag_set: tag_set(bucket.tags.clone()) })
}

/// Replaces the tags of a bucket.
pub(crate) async fn put_of_bucket(front: &Frontend, mut request: S3Request) -> Answer {
    let bucket = front.owned_bucket(&request).await?;
    let tags = requested(&mut request, OF_BUCKET, "Bucket").await?;
    bucket.store.change_bucket(&request.bucket, BucketChange::Tags(tags)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Removes the tags of a bucket.
pub(crate) async fn delete_of_bucket(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    bucket.store.change_bucket(&request.bucket, BucketChange::Tags(Tags::new())).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// The tags of a new bucket.
///
/// # Errors
/// Tags that are malformed or too many.
pub(crate) fn of_new_bucket(tags: Vec<Tag>) -> Result<Tags, ErrorResponse> {
    let tags = tags.into_iter().map(|tag| tag.key.zip(tag.value));
    check(tags.collect::<Option<Tags>>().ok_or(ErrorCode::MalformedXml)?, OF_BUCKET, "Bucket")
}

fn tag_set(tags: Tags) -> Vec<Tag> {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

/// The tags of a request's body.
async fn requested(request: &mut S3Request, most: usize, of: &str) -> Result<Tags, ErrorResponse> {
    let Some(tagging) = request.small_body::<Tagging>().await? else { return Err(ErrorCode::MalformedXml.into()) };
    let tags = tagging.tag_set.into_iter().map(|tag| tag.key.zip(tag.value));
    check(tags.collect::<Option<Tags>>().ok_or(ErrorCode::MalformedXml)?, most, of)
}

fn check(tags: Tags, most: usize, of: &str) -> Result<Tags, ErrorResponse> {
    if tags.len() > most {
        return Err(ErrorCode::BadRequest.with(format!("{of} tags cannot be greater than {most}")));
    }
    let mut keys = BTreeSet::new();
    for (key, value) in &tags {
        let wrong = if key.is_empty() || key.chars().count() > KEY_CHARS || !key.chars().all(may_be_in_tag) {
            "The TagKey you have provided is invalid"
        } else if value.chars().count() > VALUE_CHARS || !value.chars().all(may_be_in_tag) {
            "The TagValue you have provided is invalid"
        } else if key.starts_with("aws:") {
            "System tags cannot be added/updated by requester"
        } else if !keys.insert(key) {
            "Cannot provide multiple Tags with the same key"
        } else {
            continue;
        };
        return Err(ErrorCode::InvalidTag.with(wrong));
    }
    Ok(tags)
}

/// Letters, digits and spaces of any script, and a few signs.
fn may_be_in_tag(char: char) -> bool {
    let is_space = char.is_whitespace() && !char.is_control();
    char.is_alphanumeric() || is_space || "_.:/=+-@".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(tags: &[(&str, &str)]) -> Option<ErrorCode> {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        check(tags, OF_OBJECT, "Object").err().map(|error| error.code)
    }

    #[test]
    fn tags_have_limits() {
        let (long_key, long_value) = ("ü".repeat(KEY_CHARS), "ü".repeat(VALUE_CHARS));
        assert_eq!(checked(&[(&long_key, &long_value), ("a b", ""), ("Größe:1/2=+-@_.", "1 m")]), None);
        for wrong in [
            [(format!("{long_key}x"), String::new())],
            [("a".into(), format!("{long_value}x"))],
            [(String::new(), "a".into())],
            [("a\n".into(), "a".into())],
            [("a".into(), "<b>".into())],
            [("aws:a".into(), "b".into())],
        ] {
            assert_eq!(checked(&wrong.each_ref().map(|(k, v)| (k.as_str(), v.as_str()))), Some(ErrorCode::InvalidTag));
        }
        assert_eq!(checked(&[("a", "1"), ("a", "2")]), Some(ErrorCode::InvalidTag));
        let keys: Vec<String> = (0..=OF_OBJECT).map(|i| i.to_string()).collect();
        let many: Vec<_> = keys.iter().map(|key| (key.as_str(), "")).collect();
        assert_eq!((checked(&many[1..]), checked(&many)), (None, Some(ErrorCode::BadRequest)));
    }
}
