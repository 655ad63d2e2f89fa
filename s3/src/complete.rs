//! CompleteMultipartUpload: what a client says of the parts is held against what was uploaded, the object's ETag and
//! checksum are made of theirs, and the store makes one object of them.
//!
//! It can be asked for again: while the object that became of an upload is the one at its key, whoever completes it
//! with the same parts gets the same answer. That is what a client needs whose first answer was lost.

use super::ask::{Ask, parsed};
use super::digest::{Claims, combined, composite, etag_of_parts, kind_of_header, md5_of_etag, spelling};
use super::error::{Code, Fault};
use super::put::condition;
use super::route::{Answer, Route, xml};
use super::store::{Completion, StoreError};
use super::upload::{asked, check_kind, type_of};
use catalog::{Checksum, ChecksumKind, ChosenPart, Object, PARTS_MAX, Part, Upload, VersionId};
use s3s::dto::{ChecksumType, CompleteMultipartUploadOutput, CompletedMultipartUpload, CompletedPart, ETag};

/// How long every part but the last must be, in bytes.
const PART_BYTES_MIN: u64 = 5 << 20;
/// How long an object may be, in bytes.
const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Parts that are looked up at once.
const PAGE: usize = 1_000;

/// A part as the client lists it.
struct Listed {
    chosen: ChosenPart,
    checksum: Option<Checksum>,
}

/// Makes an object of an upload.
pub(super) async fn upload(route: &Route, mut ask: Ask) -> Answer {
    let id = asked(&ask)?;
    let condition = condition(&ask)?;
    let bucket = route.owned_bucket(&ask).await?;
    // A checksum among the headers is that of the object, not of this body.
    let claimed = claimed_checksum(&ask)?;
    let body = ask.small_body_bytes(&Claims::of_md5(&ask.headers)?).await?;
    // A hostile list takes many times its bytes once it is taken apart, so that waits for a turn as well.
    let _turn = route.completing.acquire().await.map_err(|_| Fault::from(Code::ServiceUnavailable))?;
    let listed = listed(parsed(&body)?)?;
    let upload = match route.store.upload(&ask.bucket, &ask.key, id).await {
        Ok(upload) => upload,
        Err(StoreError::NoSuchUpload) => return again(route, &ask, &listed).await,
        Err(error) => return Err(error.into()),
    };
    check_kind(&upload, claimed.as_ref().map(|claimed| claimed.kind))?;
    let parts = match chosen_parts(route, &upload, &listed).await {
        Ok(parts) => parts,
        // Its parts went with it if someone else completed or aborted it meanwhile.
        Err(_) if is_gone(route, &ask, id).await? => return again(route, &ask, &listed).await,
        Err(fault) => return Err(fault),
    };
    check_sizes(&ask, &parts)?;
    let checksum = checksum_of(&upload, &parts)?;
    check_claim(&ask, &upload, claimed.as_ref(), &checksum)?;
    let completion = Completion {
        upload: id,
        parts: listed.iter().map(|listed| listed.chosen.clone()).collect(),
        lengths: parts.iter().map(|part| part.bytes).collect(),
        etag: etag_of(&listed)?,
        checksums: vec![checksum.clone()],
        condition,
    };
    match bucket.store.complete_upload(&ask.bucket, &ask.key, completion).await {
        Ok(committed) => told(&ask, &committed.etag, &[checksum]),
        Err(StoreError::NoSuchUpload) => again(route, &ask, &listed).await,
        Err(error) => Err(error.into()),
    }
}

/// Whether an upload was completed or aborted.
async fn is_gone(route: &Route, ask: &Ask, id: VersionId) -> Result<bool, Fault> {
    match route.store.upload(&ask.bucket, &ask.key, id).await {
        Ok(_) => Ok(false),
        Err(StoreError::NoSuchUpload) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Answers who completes what is complete already.
async fn again(route: &Route, ask: &Ask, listed: &[Listed]) -> Answer {
    let (id, etag) = (asked(ask)?, etag_of(listed)?);
    let became = |object: &Object| object.version == id && object.etag == etag;
    match route.store.head(&ask.bucket, &ask.key).await {
        Ok(object) if became(&object) => told(ask, &object.etag, &object.checksums),
        Ok(_) | Err(StoreError::NoSuchKey) => Err(Code::NoSuchUpload.into()),
        Err(error) => Err(error.into()),
    }
}

fn told(ask: &Ask, etag: &str, checksums: &[Checksum]) -> Answer {
    let of = |kind| checksums.iter().find(|checksum| checksum.kind == kind).map(|checksum| checksum.base64.clone());
    let host = ask.header("host")?.unwrap_or_default();
    let composite = checksums.iter().any(Checksum::is_composite);
    xml(&CompleteMultipartUploadOutput {
        bucket: Some(ask.bucket.clone()),
        key: Some(ask.key.clone()),
        location: Some(format!("http://{host}/{}/{}", ask.bucket, super::list::encoded(&ask.key))),
        e_tag: Some(ETag::Strong(etag.to_owned())),
        checksum_crc32: of(ChecksumKind::Crc32),
        checksum_crc32c: of(ChecksumKind::Crc32c),
        checksum_crc64nvme: of(ChecksumKind::Crc64Nvme),
        checksum_sha1: of(ChecksumKind::Sha1),
        checksum_sha256: of(ChecksumKind::Sha256),
        checksum_type: (!checksums.is_empty()).then(|| ChecksumType::from_static(type_of(composite))),
        ..CompleteMultipartUploadOutput::default()
    })
}

/// The checksum of the object that the headers claim.
fn claimed_checksum(ask: &Ask) -> Result<Option<Checksum>, Fault> {
    let mut claimed = None;
    for name in ask.headers.keys() {
        let Some(kind) = kind_of_header(name.as_str()) else { continue };
        let base64 = ask.header(name.as_str())?.unwrap_or_default().to_owned();
        if claimed.replace(Checksum { kind, base64 }).is_some() {
            let message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
            return Err(Fault::new(Code::InvalidRequest, message));
        }
    }
    Ok(claimed)
}

/// The parts of the body, which must be in ascending order.
fn listed(body: Option<CompletedMultipartUpload>) -> Result<Vec<Listed>, Fault> {
    let parts = body.and_then(|body| body.parts).unwrap_or_default();
    if parts.is_empty() || parts.len() > PARTS_MAX as usize {
        return Err(Code::MalformedXml.into());
    }
    let mut listed: Vec<Listed> = Vec::with_capacity(parts.len());
    for part in parts {
        let part = one_listed(part)?;
        if listed.last().is_some_and(|before| before.chosen.number >= part.chosen.number) {
            return Err(Code::InvalidPartOrder.into());
        }
        listed.push(part);
    }
    Ok(listed)
}

fn one_listed(part: CompletedPart) -> Result<Listed, Fault> {
    let number = part.part_number.ok_or(Code::MalformedXml)?;
    let number = u32::try_from(number).ok().filter(|number| (1..=PARTS_MAX).contains(number)).ok_or_else(|| {
        let message = format!("Part number must be an integer between 1 and {PARTS_MAX}, inclusive");
        Fault::new(Code::InvalidArgument, message)
    })?;
    let etag = part.e_tag.ok_or(Code::MalformedXml)?.value().trim_matches('"').to_ascii_lowercase();
    let checksum = [
        (ChecksumKind::Crc32, part.checksum_crc32),
        (ChecksumKind::Crc32c, part.checksum_crc32c),
        (ChecksumKind::Crc64Nvme, part.checksum_crc64nvme),
        (ChecksumKind::Sha1, part.checksum_sha1),
        (ChecksumKind::Sha256, part.checksum_sha256),
    ];
    let checksum = checksum.into_iter().find_map(|(kind, base64)| Some(Checksum { kind, base64: base64? }));
    Ok(Listed { chosen: ChosenPart { number, etag }, checksum })
}

/// The parts that were uploaded and are listed, in their order.
async fn chosen_parts(route: &Route, upload: &Upload, listed: &[Listed]) -> Result<Vec<Part>, Fault> {
    let mut parts = Vec::with_capacity(listed.len());
    let mut wanted = listed.iter().peekable();
    let mut after = 0;
    while wanted.peek().is_some() {
        let page = route.store.parts(upload.version, after, PAGE).await?;
        let Some(last) = page.last() else { return Err(Code::InvalidPart.into()) };
        after = last.number;
        for part in page {
            if wanted.peek().is_some_and(|listed| listed.chosen.number < part.number) {
                return Err(Code::InvalidPart.into());
            }
            if let Some(listed) = wanted.next_if(|listed| listed.chosen.number == part.number) {
                check_listed(upload, listed, &part)?;
                parts.push(part);
            }
        }
    }
    Ok(parts)
}

fn check_listed(upload: &Upload, listed: &Listed, part: &Part) -> Result<(), Fault> {
    if listed.chosen.etag != part.etag {
        return Err(Code::InvalidPart.into());
    }
    match &listed.checksum {
        Some(checksum) if checksum.kind == part.checksum.kind && *checksum != part.checksum => {
            Err(Code::InvalidPart.into())
        }
        Some(checksum) => check_kind(upload, Some(checksum.kind)),
        None if upload.checksum_named && upload.composite => {
            let (kind, number) = (spelling(upload.checksum), part.number);
            let message = format!(
                "The upload was created using a {kind} checksum. The complete request must include the checksum for \
                 each part. It was missing for part {number} in the request."
            );
            Err(Fault::new(Code::InvalidRequest, message))
        }
        None => Ok(()),
    }
}

fn check_sizes(ask: &Ask, parts: &[Part]) -> Result<(), Fault> {
    let but_last = parts.split_last().map_or(&[][..], |(_, before)| before);
    if but_last.iter().any(|part| part.bytes < PART_BYTES_MIN) {
        return Err(Code::EntityTooSmall.into());
    }
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    if bytes > OBJECT_BYTES_MAX {
        return Err(Code::EntityTooLarge.into());
    }
    match ask.header("x-amz-mp-object-size")? {
        Some(claimed) if claimed.parse() != Ok(bytes) => {
            let message = format!(
                "The provided 'x-amz-mp-object-size' header value {claimed} does not match what was computed: {bytes}"
            );
            Err(Fault::new(Code::InvalidRequest, message))
        }
        _ => Ok(()),
    }
}

fn etag_of(listed: &[Listed]) -> Result<String, Fault> {
    let md5s = listed.iter().map(|listed| md5_of_etag(&listed.chosen.etag).ok_or(Code::InvalidPart));
    Ok(etag_of_parts(&md5s.collect::<Result<Vec<_>, _>>()?))
}

fn checksum_of(upload: &Upload, parts: &[Part]) -> Result<Checksum, Fault> {
    let with_lengths = parts.iter().map(|part| (part.checksum.clone(), part.bytes));
    if !upload.composite
        && let Some(whole) = combined(upload.checksum, &with_lengths.collect::<Vec<_>>())?
    {
        return Ok(whole);
    }
    composite(upload.checksum, &parts.iter().map(|part| part.checksum.clone()).collect::<Vec<_>>())
}

/// Holds what the headers say of the object's checksum against what it is.
fn check_claim(ask: &Ask, upload: &Upload, claimed: Option<&Checksum>, computed: &Checksum) -> Result<(), Fault> {
    let expected = type_of(upload.composite);
    if let Some(actual) = ask.header("x-amz-checksum-type")?.filter(|actual| *actual != expected) {
        let message = format!(
            "Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}"
        );
        return Err(Fault::new(Code::InvalidRequest, message));
    }
    let Some(claimed) = claimed.filter(|claimed| claimed.kind == computed.kind) else { return Ok(()) };
    // Clients spell a composite one with or without the number of parts.
    let plain = computed.base64.split('-').next().unwrap_or_default();
    if claimed.base64 == computed.base64 || claimed.base64 == plain {
        return Ok(());
    }
    let message = format!("The {} you specified did not match the calculated checksum.", spelling(claimed.kind));
    Err(Fault::new(Code::BadDigest, message))
}
