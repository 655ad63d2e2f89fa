//! Tags of objects and buckets. They are in the catalog alone: setting them makes no version and wakes no drive.

use super::ask::Ask;
use super::error::{Code, Fault};
use super::route::{Answer, Route, empty, xml};
use super::versions;
use catalog::{BucketChange, ObjectChange};
use http::StatusCode;
use s3s::dto::{GetBucketTaggingOutput, GetObjectTaggingOutput, Tag, Tagging};
use std::collections::BTreeSet;

/// How many tags an object may have.
const OF_OBJECT: usize = 10;
/// How many tags a bucket may have.
const OF_BUCKET: usize = 50;
/// How long a tag's key may be, in characters.
const KEY_CHARS: usize = 128;
/// How long a tag's value may be, in characters.
const VALUE_CHARS: usize = 256;

type Tags = Vec<(String, String)>;

/// The tags that the header of a request gives a new object.
///
/// # Errors
/// What is wrong with them.
pub(super) fn of_header(ask: &Ask) -> Result<Tags, Fault> {
    let Some(text) = ask.header("x-amz-tagging")? else { return Ok(Tags::new()) };
    let tags: Tags = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
    let keys: BTreeSet<_> = tags.iter().map(|tag| &tag.0).collect();
    // What is not UTF-8 is decoded to this.
    let damaged = tags.iter().any(|(key, value)| [key, value].iter().any(|part| part.contains('\u{fffd}')));
    if keys.len() < tags.len() || damaged {
        let message = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters \
                       without tag name duplicates.";
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    check(tags, OF_OBJECT, "Object")
}

/// Answers the tags of an object.
pub(super) async fn of_object(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    let object = route.readable_object(ask, &bucket).await?;
    versions::check(ask)?;
    xml(&GetObjectTaggingOutput { tag_set: told(object.tags), version_id: None })
}

/// Gives an object these tags and no others.
pub(super) async fn put_of_object(route: &Route, mut ask: Ask) -> Answer {
    let bucket = route.owned_bucket(&ask).await?;
    versions::check(&ask)?;
    let tags = asked(&mut ask, OF_OBJECT, "Object").await?;
    bucket.store.change(&ask.bucket, &ask.key, ObjectChange::Tags(tags)).await?;
    Ok(empty(StatusCode::OK))
}

/// Takes all tags off an object.
pub(super) async fn delete_of_object(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    versions::check(ask)?;
    bucket.store.change(&ask.bucket, &ask.key, ObjectChange::Tags(Tags::new())).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Answers the tags of a bucket.
pub(super) async fn of_bucket(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    if bucket.tags.is_empty() {
        return Err(Code::NoSuchTagSet.into());
    }
    xml(&GetBucketTaggingOutput { tag_set: told(bucket.tags.clone()) })
}

/// Gives a bucket these tags and no others.
pub(super) async fn put_of_bucket(route: &Route, mut ask: Ask) -> Answer {
    let bucket = route.owned_bucket(&ask).await?;
    let tags = asked(&mut ask, OF_BUCKET, "Bucket").await?;
    bucket.store.change_bucket(&ask.bucket, BucketChange::Tags(tags)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Takes all tags off a bucket.
pub(super) async fn delete_of_bucket(route: &Route, ask: &Ask) -> Answer {
    let bucket = route.owned_bucket(ask).await?;
    bucket.store.change_bucket(&ask.bucket, BucketChange::Tags(Tags::new())).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

fn told(tags: Tags) -> Vec<Tag> {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

/// The tags of a request's body.
async fn asked(ask: &mut Ask, most: usize, of: &str) -> Result<Tags, Fault> {
    let Some(tagging) = ask.small_body::<Tagging>().await? else { return Err(Code::MalformedXml.into()) };
    let tags = tagging.tag_set.into_iter().map(|tag| tag.key.zip(tag.value));
    check(tags.collect::<Option<Tags>>().ok_or(Code::MalformedXml)?, most, of)
}

fn check(tags: Tags, most: usize, of: &str) -> Result<Tags, Fault> {
    if tags.len() > most {
        return Err(Fault::new(Code::BadRequest, format!("{of} tags cannot be greater than {most}")));
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
        return Err(Fault::new(Code::InvalidTag, wrong));
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

    fn checked(tags: &[(&str, &str)]) -> Option<Code> {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        check(tags, OF_OBJECT, "Object").err().map(|fault| fault.code)
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
            assert_eq!(checked(&wrong.each_ref().map(|(k, v)| (k.as_str(), v.as_str()))), Some(Code::InvalidTag));
        }
        assert_eq!(checked(&[("a", "1"), ("a", "2")]), Some(Code::InvalidTag));
        let keys: Vec<String> = (0..=OF_OBJECT).map(|i| i.to_string()).collect();
        let many: Vec<_> = keys.iter().map(|key| (key.as_str(), "")).collect();
        assert_eq!((checked(&many[1..]), checked(&many)), (None, Some(Code::BadRequest)));
    }
}
