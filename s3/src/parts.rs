//! ListMultipartUploads and ListParts.

use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::list::{ListParameters, number};
use crate::precondition::seconds;
use crate::request::S3Request;
use crate::response::{Answer, document, owner, with_checksums};
use crate::upload;
use crate::upload_id;
use catalog::{Part, Upload, UploadListRequest, UploadListing};
use s3s::dto::{
    self, ChecksumAlgorithm, ChecksumType, CommonPrefix, ETag, Initiator, ListMultipartUploadsOutput, ListPartsOutput,
    MultipartUpload, StorageClass,
};
use std::time::{Duration, SystemTime};

/// The most entries of a page.
const PAGE: usize = 1000;

fn initiator(user: &str) -> Initiator {
    Initiator { display_name: Some(user.to_owned()), id: Some(user.to_owned()) }
}

fn algorithm(upload: &Upload) -> Option<ChecksumAlgorithm> {
    upload.checksum_named.then(|| ChecksumAlgorithm::from_static(upload.checksum.name()))
}

fn checksum_type(upload: &Upload) -> Option<ChecksumType> {
    upload.checksum_named.then(|| ChecksumType::from_static(upload::checksum_type(upload.composite)))
}

/// Lists the open uploads of a bucket.
pub(crate) async fn uploads(front: &Frontend, request: &S3Request) -> Answer {
    let mut terms = ListParameters::of(request)?;
    let max_uploads = number(request.query("max-uploads"), "max-uploads", PAGE)?.min(PAGE);
    let key_marker = request.query("key-marker").unwrap_or_default();
    // Without a key marker it means nothing.
    let id_marker = request.query("upload-id-marker").filter(|id| !id.is_empty() && !key_marker.is_empty());
    let upload = id_marker.map(|id| upload_id::parse(id).ok_or_else(invalid_marker)).transpose()?;
    let bucket = front.owned_bucket(request).await?;
    let page = if max_uploads == 0 {
        UploadListing::default()
    } else {
        let after = (!key_marker.is_empty()).then(|| (key_marker.to_owned(), upload));
        let (prefix, delimiter) = (terms.prefix.to_owned(), terms.delimiter.map(str::to_owned));
        front.store.list_uploads(&request.bucket, UploadListRequest { prefix, delimiter, after, max_uploads }).await?
    };
    let (next_key, next_id) = next(&page);
    terms.spell_marker(next_key.filter(|_| page.truncated));
    let entry = |(key, upload): &(String, Upload)| MultipartUpload {
        checksum_algorithm: algorithm(upload),
        checksum_type: checksum_type(upload),
        initiated: Some((SystemTime::UNIX_EPOCH + Duration::from_millis(upload.initiated_ms)).into()),
        initiator: Some(initiator(&bucket.owner)),
        key: Some(terms.spell(key)),
        owner: Some(owner(&bucket.owner)),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        upload_id: Some(upload_id::format(upload.version)),
    };
    let prefixes = page.common_prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(terms.spell(prefix)) });
    document(&ListMultipartUploadsOutput {
        bucket: Some(request.bucket.clone()),
        common_prefixes: Some(prefixes.collect()),
        delimiter: terms.delimiter.map(|delimiter| terms.spell(delimiter)),
        encoding_type: terms.encoding(),
        is_truncated: Some(page.truncated),
        key_marker: Some(terms.spell(key_marker)),
        max_uploads: i32::try_from(max_uploads).ok(),
        next_key_marker: next_key.filter(|_| page.truncated).map(|key| terms.spell(key)),
        next_upload_id_marker: next_id.filter(|_| page.truncated),
        prefix: Some(terms.spell(terms.prefix)),
        request_charged: None,
        upload_id_marker: Some(id_marker.unwrap_or_default().to_owned()),
        uploads: Some(page.uploads.iter().map(entry).collect()),
    })
}

fn invalid_marker() -> ErrorResponse {
    ErrorCode::InvalidArgument.with("Invalid uploadId marker")
}

/// The marker of the next page: the last entry of this one, upload or common prefix.
fn next(page: &UploadListing) -> (Option<&str>, Option<String>) {
    let upload = page.uploads.last().map(|(key, upload)| (key.as_str(), upload));
    let prefix = page.common_prefixes.last().map(String::as_str);
    match (upload, prefix) {
        (Some((key, upload)), prefix) if prefix.is_none_or(|prefix| key > prefix) => {
            (Some(key), Some(upload_id::format(upload.version)))
        }
        (_, prefix) => (prefix, None),
    }
}

/// Lists the parts of an open upload.
pub(crate) async fn of_upload(front: &Frontend, request: &S3Request) -> Answer {
    let max_parts = number(request.query("max-parts"), "max-parts", PAGE)?.min(PAGE);
    let marker = number(request.query("part-number-marker"), "part-number-marker", 0)?;
    let bucket = front.owned_bucket(request).await?;
    let id = request.upload_id()?;
    let upload = front.store.upload(&request.bucket, &request.key, id).await?;
    let mut parts = if max_parts == 0 {
        Vec::new()
    } else {
        let after = u32::try_from(marker).unwrap_or(u32::MAX - 1);
        front.store.parts(id, after, max_parts + 1).await?
    };
    let truncated = parts.len() > max_parts;
    parts.truncate(max_parts);
    let last = parts.last().map_or(0, |part| part.number);
    document(&ListPartsOutput {
        bucket: Some(request.bucket.clone()),
        checksum_algorithm: algorithm(&upload),
        checksum_type: checksum_type(&upload),
        initiator: Some(initiator(&bucket.owner)),
        is_truncated: Some(truncated),
        key: Some(request.key.clone()),
        max_parts: i32::try_from(max_parts).ok(),
        next_part_number_marker: i32::try_from(last).ok(),
        owner: Some(owner(&bucket.owner)),
        part_number_marker: i32::try_from(marker).ok(),
        parts: Some(parts.iter().map(entry).collect()),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        upload_id: Some(upload_id::format(id)),
        ..ListPartsOutput::default()
    })
}

fn entry(part: &Part) -> dto::Part {
    with_checksums!(dto::Part, [&part.checksum], {
        e_tag: Some(ETag::Strong(part.etag.clone())),
        last_modified: Some(seconds(part.modified_ms).into()),
        part_number: i32::try_from(part.number).ok(),
        size: i64::try_from(part.bytes).ok(),
    })
}
