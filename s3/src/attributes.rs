//! GetObjectAttributes.

use crate::digest;
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::list::number;
use crate::request::S3Request;
use crate::response::{Answer, document, validators, with_checksums};
use crate::versions;
use catalog::{Object, Part};
use s3s::dto::{Checksum, ChecksumType, GetObjectAttributesParts, ObjectPart, StorageClass};
use s3s::xml::{SerResult, Serialize, SerializeContent, Serializer};
use std::io::Write;

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// The attributes that can be requested.
const NAMES: [&str; 5] = ["Checksum", "ETag", "ObjectParts", "ObjectSize", "StorageClass"];

/// The most parts of one response.
const PAGE: usize = 1_000;

/// The requested attributes of an object.
pub(crate) async fn of_object(front: &Frontend, request: &S3Request) -> Answer {
    let (wanted, page) = (wanted(request)?, PartsPage::of(request)?);
    let bucket = front.owned_bucket(request).await?;
    let object = front.readable_object(request, &bucket).await?;
    versions::check(request)?;
    let is_wanted = |name: &str| wanted.contains(&name);
    let parts = if is_wanted("ObjectParts") { page.read(front, &object).await? } else { None };
    let mut answer = document(&Attributes {
        parts,
        checksum: is_wanted("Checksum").then(|| checksum(&object)).flatten(),
        etag: is_wanted("ETag").then(|| object.etag.clone()),
        bytes: is_wanted("ObjectSize").then(|| i64::try_from(object.bytes).unwrap_or(i64::MAX)),
        storage_class: is_wanted("StorageClass").then(|| StorageClass::from_static(StorageClass::STANDARD)),
    })?;
    let mut validators = validators(&object)?;
    validators.remove(http::header::ETAG);
    answer.headers.extend(validators);
    Ok(answer)
}

fn wanted(request: &S3Request) -> Result<Vec<&'static str>, ErrorResponse> {
    let values = request.headers.get_all("x-amz-object-attributes").iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let wanted: Option<Vec<&str>> =
        names.map(|name| NAMES.into_iter().find(|known| known.as_bytes() == name.trim_ascii())).collect();
    let Some(wanted) = wanted else {
        return Err(ErrorCode::InvalidArgument.with("Invalid attribute name specified."));
    };
    if wanted.is_empty() {
        let message =
            "The x-amz-object-attributes header specifying the attributes to be retrieved is missing or empty";
        return Err(ErrorCode::InvalidArgument.with(message));
    }
    Ok(wanted)
}

/// The page of parts that a request names. It is validated even if there are no parts.
struct PartsPage {
    max: usize,
    marker: usize,
}

impl PartsPage {
    fn of(request: &S3Request) -> Result<Self, ErrorResponse> {
        let max = number(request.header("x-amz-max-parts")?, "x-amz-max-parts", PAGE)?.min(PAGE);
        let marker = number(request.header("x-amz-part-number-marker")?, "x-amz-part-number-marker", 0)?;
        Ok(Self { max, marker })
    }

    /// These parts of an object that was uploaded in parts.
    async fn read(&self, front: &Frontend, object: &Object) -> Result<Option<GetObjectAttributesParts>, ErrorResponse> {
        if object.parts.is_empty() {
            return Ok(None);
        }
        let after = u32::try_from(self.marker).unwrap_or(u32::MAX - 1);
        let mut found = front.store.parts(object.version, after, self.max + 1).await?;
        // A page of no parts has no marker to continue from, so it is not marked as truncated.
        let truncated = self.max > 0 && found.len() > self.max;
        found.truncate(self.max);
        let last = found.last().map_or(0, |part| part.number);
        Ok(Some(GetObjectAttributesParts {
            is_truncated: Some(truncated),
            max_parts: i32::try_from(self.max).ok(),
            next_part_number_marker: i32::try_from(last).ok(),
            part_number_marker: i32::try_from(self.marker).ok(),
            parts: Some(found.iter().map(part).collect()),
            total_parts_count: i32::try_from(object.parts.count()).ok(),
        }))
    }
}

fn part(part: &Part) -> ObjectPart {
    with_checksums!(ObjectPart, [&part.checksum], {
        part_number: i32::try_from(part.number).ok(),
        size: i64::try_from(part.bytes).ok(),
    })
}

fn checksum(object: &Object) -> Option<Checksum> {
    (!object.checksums.is_empty()).then(|| {
        with_checksums!(Checksum, object.checksums, {
            checksum_type: Some(ChecksumType::from_static(digest::type_of(&object.checksums))),
        })
    })
}

/// The response. Here, unlike in every other response, the ETag has no quotes; the library's type would add them.
struct Attributes {
    checksum: Option<Checksum>,
    parts: Option<GetObjectAttributesParts>,
    etag: Option<String>,
    bytes: Option<i64>,
    storage_class: Option<StorageClass>,
}

impl Serialize for Attributes {
    fn serialize<W: Write>(&self, xml: &mut Serializer<W>) -> SerResult {
        xml.content_with_ns("GetObjectAttributesResponse", NAMESPACE, self)
    }
}

impl SerializeContent for Attributes {
    fn serialize_content<W: Write>(&self, xml: &mut Serializer<W>) -> SerResult {
        if let Some(etag) = &self.etag {
            xml.content("ETag", etag)?;
        }
        if let Some(checksum) = &self.checksum {
            xml.content("Checksum", checksum)?;
        }
        if let Some(parts) = &self.parts {
            xml.content("ObjectParts", parts)?;
        }
        if let Some(class) = &self.storage_class {
            xml.content("StorageClass", class)?;
        }
        if let Some(bytes) = &self.bytes {
            xml.content("ObjectSize", bytes)?;
        }
        Ok(())
    }
}
