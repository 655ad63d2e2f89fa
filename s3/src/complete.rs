//! CompleteMultipartUpload: the client's list of parts is compared with the uploaded parts, the object's ETag and
//! checksum are computed from theirs, and the store makes one object of them.
//!
//! The request can be repeated: while the object that an upload became is the one at its key, a client that completes
//! the upload with the same parts gets the same answer. A client whose first answer was lost needs that.

use crate::digest::{DigestClaims, combined, composite, etag_of_parts, kind_of_header, md5_of_etag, spelling, type_of};
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::list::encoded;
use crate::put::condition;
use crate::request::{S3Request, part_number_out_of_range};
use crate::response::{Answer, document, with_checksums};
use crate::store::{Completion, ServiceError};
use crate::upload::{check_kind, checksum_type};
use catalog::{Checksum, ChecksumKind, ChosenPart, Object, PARTS_MAX, Part, Upload, VersionId};
use s3s::dto::{ChecksumType, CompleteMultipartUploadOutput, CompletedMultipartUpload, CompletedPart, ETag};

/// The shortest part, in bytes, except for the last.
const PART_BYTES_MIN: u64 = 5 << 20;
/// The longest object, in bytes.
const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Parts that are looked up at once.
const PAGE: usize = 1_000;

/// A part as the client lists it.
struct ListedPart {
    chosen: ChosenPart,
    checksum: Option<Checksum>,
}

/// Makes an object of an upload.
pub(crate) async fn upload(front: &Frontend, mut request: S3Request) -> Answer {
    let condition = condition(&request)?;
    let bucket = front.owned_bucket(&request).await?;
    let id = request.upload_id()?;
    // A checksum among the headers is the object's, not this body's.
    let claimed = claimed_checksum(&request)?;
    let body = request.small_body_bytes(&DigestClaims::of_md5(&request.headers)?).await?;
    // Once parsed, a hostile list takes many times its length in memory, so parsing also waits for a permit.
    let _permit = front.completions.acquire().await.map_err(|_| ErrorCode::ServiceUnavailable)?;
    let listed = listed(request.parsed(&body)?)?;
    let upload = match front.store.upload(&request.bucket, &request.key, id).await {
        Ok(upload) => upload,
        Err(ServiceError::NoSuchUpload) => return already_complete(front, &request, &listed).await,
        Err(error) => return Err(error.into()),
    };
    check_kind(&upload, claimed.as_ref().map(|claimed| claimed.kind))?;
    let parts = match chosen_parts(front, &upload, &listed).await {
        Ok(parts) => parts,
        // The parts are gone if another request completed or aborted the upload meanwhile.
        Err(_) if is_gone(front, &request, id).await? => return already_complete(front, &request, &listed).await,
        Err(error) => return Err(error),
    };
    assert_eq!(parts.len(), listed.len(), "each part of the list was found");
    check_sizes(&request, &parts)?;
    let checksum = checksum_of(&upload, &parts)?;
    check_claim(&request, &upload, claimed.as_ref(), &checksum)?;
    let object = object_of(upload, &parts, etag_of(&listed)?, checksum);
    assert!(object.bytes <= OBJECT_BYTES_MAX, "an object that is too large was refused");
    assert_eq!(object.parts.count() as usize, listed.len(), "an object has the parts of the list");
    let (etag, checksums) = (object.etag.clone(), object.checksums.clone());
    let chosen = listed.iter().map(|listed| listed.chosen.clone()).collect();
    let completion = Completion { object, parts: chosen, condition };
    match bucket.store.complete_upload(&request.bucket, &request.key, completion).await {
        Ok(()) => result(&request, &etag, &checksums),
        Err(ServiceError::NoSuchUpload) => already_complete(front, &request, &listed).await,
        Err(error) => Err(error.into()),
    }
}

/// The object that `upload` becomes.
fn object_of(upload: Upload, parts: &[Part], etag: String, checksum: Checksum) -> Object {
    let Upload { version, headers, metadata, acl, tags, .. } = upload;
    Object {
        version,
        bytes: parts.iter().map(|part| part.bytes).sum(),
        etag,
        headers,
        metadata,
        checksums: vec![checksum],
        acl,
        tags,
        parts: parts.iter().map(|part| part.bytes).collect(),
        ..Object::default()
    }
}

/// True if an upload was completed or aborted.
async fn is_gone(front: &Frontend, request: &S3Request, id: VersionId) -> Result<bool, ErrorResponse> {
    match front.store.upload(&request.bucket, &request.key, id).await {
        Ok(_) => Ok(false),
        Err(ServiceError::NoSuchUpload) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The answer to a client that completes an upload again.
async fn already_complete(front: &Frontend, request: &S3Request, listed: &[ListedPart]) -> Answer {
    let (id, etag) = (request.upload_id()?, etag_of(listed)?);
    match front.store.head(&request.bucket, &request.key).await {
        Ok(object) if object.version == id && object.etag == etag => result(request, &object.etag, &object.checksums),
        Ok(_) | Err(ServiceError::NoSuchKey) => Err(ErrorCode::NoSuchUpload.into()),
        Err(error) => Err(error.into()),
    }
}

fn result(request: &S3Request, etag: &str, checksums: &[Checksum]) -> Answer {
    let host = request.header("host")?.unwrap_or_default();
    let output = with_checksums!(CompleteMultipartUploadOutput, checksums, {
        bucket: Some(request.bucket.clone()),
        key: Some(request.key.clone()),
        location: Some(format!("http://{host}/{}/{}", request.bucket, encoded(&request.key))),
        e_tag: Some(ETag::Strong(etag.to_owned())),
        checksum_type: (!checksums.is_empty()).then(|| ChecksumType::from_static(type_of(checksums))),
    }, ..CompleteMultipartUploadOutput::default());
    document(&output)
}

/// The checksum of the object that the headers claim.
fn claimed_checksum(request: &S3Request) -> Result<Option<Checksum>, ErrorResponse> {
    let mut claimed = None;
    for name in request.headers.keys() {
        let Some(kind) = kind_of_header(name.as_str()) else { continue };
        let base64 = request.header(name.as_str())?.unwrap_or_default().to_owned();
        if claimed.replace(Checksum { kind, base64 }).is_some() {
            let message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
            return Err(ErrorCode::InvalidRequest.with(message));
        }
    }
    Ok(claimed)
}

/// The parts of the body, which must be in ascending order.
fn listed(body: Option<CompletedMultipartUpload>) -> Result<Vec<ListedPart>, ErrorResponse> {
    let parts = body.and_then(|body| body.parts).unwrap_or_default();
    if parts.is_empty() || parts.len() > PARTS_MAX as usize {
        return Err(ErrorCode::MalformedXml.into());
    }
    let mut listed: Vec<ListedPart> = Vec::with_capacity(parts.len());
    for part in parts {
        let part = one_listed(part)?;
        if listed.last().is_some_and(|before| before.chosen.number >= part.chosen.number) {
            return Err(ErrorCode::InvalidPartOrder.into());
        }
        listed.push(part);
    }
    Ok(listed)
}

fn one_listed(part: CompletedPart) -> Result<ListedPart, ErrorResponse> {
    let number = part.part_number.ok_or(ErrorCode::MalformedXml)?;
    let number = u32::try_from(number).ok().filter(|number| (1..=PARTS_MAX).contains(number));
    let number = number.ok_or_else(part_number_out_of_range)?;
    let etag = part.e_tag.ok_or(ErrorCode::MalformedXml)?.value().trim_matches('"').to_ascii_lowercase();
    let checksum = [
        (ChecksumKind::Crc32, part.checksum_crc32),
        (ChecksumKind::Crc32c, part.checksum_crc32c),
        (ChecksumKind::Crc64Nvme, part.checksum_crc64nvme),
        (ChecksumKind::Sha1, part.checksum_sha1),
        (ChecksumKind::Sha256, part.checksum_sha256),
    ];
    let checksum = checksum.into_iter().find_map(|(kind, base64)| Some(Checksum { kind, base64: base64? }));
    Ok(ListedPart { chosen: ChosenPart { number, etag }, checksum })
}

/// The parts that were uploaded and are listed, in their order.
async fn chosen_parts(front: &Frontend, upload: &Upload, listed: &[ListedPart]) -> Result<Vec<Part>, ErrorResponse> {
    let mut parts = Vec::with_capacity(listed.len());
    let mut wanted = listed.iter().peekable();
    let mut after = 0;
    while wanted.peek().is_some() {
        let page = front.store.parts(upload.version, after, PAGE).await?;
        let Some(last) = page.last() else { return Err(ErrorCode::InvalidPart.into()) };
        after = last.number;
        for part in page {
            if wanted.peek().is_some_and(|listed| listed.chosen.number < part.number) {
                return Err(ErrorCode::InvalidPart.into());
            }
            if let Some(listed) = wanted.next_if(|listed| listed.chosen.number == part.number) {
                check_listed(upload, listed, &part)?;
                parts.push(part);
            }
        }
    }
    Ok(parts)
}

fn check_listed(upload: &Upload, listed: &ListedPart, part: &Part) -> Result<(), ErrorResponse> {
    if listed.chosen.etag != part.etag {
        return Err(ErrorCode::InvalidPart.into());
    }
    match &listed.checksum {
        Some(checksum) if upload.checksum_named && checksum.kind != upload.checksum => {
            check_kind(upload, Some(checksum.kind))
        }
        // A checksum of another kind than the stored one cannot be compared, and S3 refuses a checksum that it did not
        // store.
        Some(checksum) if *checksum != part.checksum => Err(ErrorCode::InvalidPart.into()),
        None if upload.checksum_named && upload.composite => {
            let (kind, number) = (spelling(upload.checksum), part.number);
            let message = format!(
                "The upload was created using a {kind} checksum. The complete request must include the checksum for \
                 each part. It was missing for part {number} in the request."
            );
            Err(ErrorCode::InvalidRequest.with(message))
        }
        _ => Ok(()),
    }
}

fn check_sizes(request: &S3Request, parts: &[Part]) -> Result<(), ErrorResponse> {
    let but_last = parts.split_last().map_or(&[][..], |(_, before)| before);
    if but_last.iter().any(|part| part.bytes < PART_BYTES_MIN) {
        return Err(ErrorCode::EntityTooSmall.into());
    }
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    if bytes > OBJECT_BYTES_MAX {
        return Err(ErrorCode::EntityTooLarge.into());
    }
    match request.header("x-amz-mp-object-size")? {
        Some(claimed) if claimed.parse() != Ok(bytes) => {
            let message = format!(
                "The provided 'x-amz-mp-object-size' header value {claimed} does not match what was computed: {bytes}"
            );
            Err(ErrorCode::InvalidRequest.with(message))
        }
        _ => Ok(()),
    }
}

fn etag_of(listed: &[ListedPart]) -> Result<String, ErrorResponse> {
    let md5s = listed.iter().map(|listed| md5_of_etag(&listed.chosen.etag).ok_or(ErrorCode::InvalidPart));
    Ok(etag_of_parts(&md5s.collect::<Result<Vec<_>, _>>()?))
}

fn checksum_of(upload: &Upload, parts: &[Part]) -> Result<Checksum, ErrorResponse> {
    let with_lengths = parts.iter().map(|part| (part.checksum.clone(), part.bytes));
    if !upload.composite
        && let Some(whole) = combined(upload.checksum, &with_lengths.collect::<Vec<_>>())?
    {
        return Ok(whole);
    }
    composite(upload.checksum, &parts.iter().map(|part| part.checksum.clone()).collect::<Vec<_>>())
}

/// Compares the checksum in the headers with that of the object.
fn check_claim(
    request: &S3Request,
    upload: &Upload,
    claimed: Option<&Checksum>,
    computed: &Checksum,
) -> Result<(), ErrorResponse> {
    let expected = checksum_type(upload.composite);
    if let Some(actual) = request.header("x-amz-checksum-type")?.filter(|actual| *actual != expected) {
        let message = format!(
            "Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}"
        );
        return Err(ErrorCode::InvalidRequest.with(message));
    }
    let Some(claimed) = claimed.filter(|claimed| claimed.kind == computed.kind) else { return Ok(()) };
    // Clients write a composite checksum with or without the number of parts.
    let plain = computed.base64.split('-').next().unwrap_or_default();
    if claimed.base64 == computed.base64 || claimed.base64 == plain {
        return Ok(());
    }
    let message = format!("The {} you specified did not match the calculated checksum.", spelling(claimed.kind));
    Err(ErrorCode::BadDigest.with(message))
}
