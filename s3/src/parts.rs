//! ListMultipartUploads and ListParts.

use super::ask::Ask;
use super::bucket::owner;
use super::digest::spelling;
use super::error::{Code, Fault};
use super::list::{Terms, number};
use super::precondition::seconds;
use super::route::{Answer, Route, xml};
use super::store::{UploadPage, UploadQuery};
use super::upload::{asked, read, type_of, written};
use catalog::{ChecksumKind, Part, Upload};
use s3s::dto::{
    self, ChecksumAlgorithm, ChecksumType, CommonPrefix, ETag, Initiator, ListMultipartUploadsOutput, ListPartsOutput,
    MultipartUpload, StorageClass,
};
use std::time::{Duration, SystemTime};

/// How many entries one page holds at most.
const PAGE: usize = 1000;

fn initiator(user: &str) -> Initiator {
    Initiator { display_name: Some(user.to_owned()), id: Some(user.to_owned()) }
}

fn algorithm(upload: &Upload) -> Option<ChecksumAlgorithm> {
    upload.checksum_named.then(|| ChecksumAlgorithm::from(spelling(upload.checksum).to_uppercase()))
}

fn checksum_type(upload: &Upload) -> Option<ChecksumType> {
    upload.checksum_named.then(|| ChecksumType::from_static(type_of(upload.composite)))
}

/// Lists the uploads into a bucket that are open.
pub(super) async fn uploads(route: &Route, ask: &Ask) -> Answer {
    let mut terms = Terms::of(ask)?;
    let max_uploads = number(ask.query("max-uploads"), "max-uploads", PAGE)?.min(PAGE);
    let key_marker = ask.query("key-marker").unwrap_or_default();
    // Without a key it means nothing.
    let id_marker = ask.query("upload-id-marker").filter(|id| !id.is_empty() && !key_marker.is_empty());
    let upload = id_marker.map(|id| read(id).ok_or_else(invalid_marker)).transpose()?;
    let bucket = route.owned_bucket(ask).await?;
    let page = if max_uploads == 0 {
        UploadPage::default()
    } else {
        let after = (!key_marker.is_empty()).then(|| (key_marker.to_owned(), upload));
        let (prefix, delimiter) = (terms.prefix.to_owned(), terms.delimiter.map(str::to_owned));
        route.store.list_uploads(&ask.bucket, UploadQuery { prefix, delimiter, after, max_uploads }).await?
    };
    let (next_key, next_id) = next(&page);
    terms.spell_marker(next_key.filter(|_| page.truncated));
    let told = |(key, upload): &(String, Upload)| MultipartUpload {
        checksum_algorithm: algorithm(upload),
        checksum_type: checksum_type(upload),
        initiated: Some((SystemTime::UNIX_EPOCH + Duration::from_millis(upload.initiated_ms)).into()),
        initiator: Some(initiator(&bucket.owner)),
        key: Some(terms.spell(key)),
        owner: Some(owner(&bucket.owner)),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        upload_id: Some(written(upload.version)),
    };
    let prefixes = page.prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(terms.spell(prefix)) });
    xml(&ListMultipartUploadsOutput {
        bucket: Some(ask.bucket.clone()),
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
        uploads: Some(page.uploads.iter().map(told).collect()),
    })
}

fn invalid_marker() -> Fault {
    Fault::new(Code::InvalidArgument, "Invalid uploadId marker")
}

/// Where the next page goes on: the last entry of this one, upload or common prefix.
fn next(page: &UploadPage) -> (Option<&str>, Option<String>) {
    let upload = page.uploads.last().map(|(key, upload)| (key.as_str(), upload));
    let prefix = page.prefixes.last().map(String::as_str);
    match (upload, prefix) {
        (Some((key, upload)), prefix) if prefix.is_none_or(|prefix| key > prefix) => {
            (Some(key), Some(written(upload.version)))
        }
        (_, prefix) => (prefix, None),
    }
}

/// Lists the parts of an upload that is open.
pub(super) async fn of_upload(route: &Route, ask: &Ask) -> Answer {
    let id = asked(ask)?;
    let max_parts = number(ask.query("max-parts"), "max-parts", PAGE)?.min(PAGE);
    let marker = number(ask.query("part-number-marker"), "part-number-marker", 0)?;
    let bucket = route.owned_bucket(ask).await?;
    let upload = route.store.upload(&ask.bucket, &ask.key, id).await?;
    let mut parts = if max_parts == 0 {
        Vec::new()
    } else {
        let after = u32::try_from(marker).unwrap_or(u32::MAX - 1);
        route.store.parts(id, after, max_parts + 1).await?
    };
    let truncated = parts.len() > max_parts;
    parts.truncate(max_parts);
    let last = parts.last().map_or(0, |part| part.number);
    xml(&ListPartsOutput {
        bucket: Some(ask.bucket.clone()),
        checksum_algorithm: algorithm(&upload),
        checksum_type: checksum_type(&upload),
        initiator: Some(initiator(&bucket.owner)),
        is_truncated: Some(truncated),
        key: Some(ask.key.clone()),
        max_parts: i32::try_from(max_parts).ok(),
        next_part_number_marker: i32::try_from(last).ok(),
        owner: Some(owner(&bucket.owner)),
        part_number_marker: i32::try_from(marker).ok(),
        parts: Some(parts.iter().map(told).collect()),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        upload_id: Some(written(id)),
        ..ListPartsOutput::default()
    })
}

fn told(part: &Part) -> dto::Part {
    let of = |kind| (part.checksum.kind == kind).then(|| part.checksum.base64.clone());
    dto::Part {
        checksum_crc32: of(ChecksumKind::Crc32),
        checksum_crc32c: of(ChecksumKind::Crc32c),
        checksum_crc64nvme: of(ChecksumKind::Crc64Nvme),
        checksum_sha1: of(ChecksumKind::Sha1),
        checksum_sha256: of(ChecksumKind::Sha256),
        e_tag: Some(ETag::Strong(part.etag.clone())),
        last_modified: Some(seconds(part.modified_ms).into()),
        part_number: i32::try_from(part.number).ok(),
        size: i64::try_from(part.bytes).ok(),
    }
}
