//! The bytes of an object's record, the most frequent kind of record: format version 3.
//!
//! ```text
//! | flags, u16 | version | bytes | modified_ms | created_ms ? | staged_ms ? | ETag | headers ? | metadata ? |
//! | checksums ? | tags ? | parts ? | place |
//! ```
//! Numbers, lists and texts are `postcard`'s (a number takes the bytes that it needs). A field with a question mark is
//! there if its flag is set. The parts that nearly every object has take little room:
//!
//! - an ETag of 32 lower-case hexadecimal digits is 16 bytes; if a dash and a number follow, the number follows them;
//! - the name and the value of a header are texts, each a number: the position of a text in [`KNOWN`], counted from 1,
//!   or 0 and then the text;
//! - a checksum is its kind, then 1 and its bytes, or 0 and its text (for a checksum of parts);
//! - a blob is its number and the 8 bytes of its nonce.
//!
//! In version 2 the record was the fields of [`PlacedObject`] in their order, as all other records still are.

use crate::parts::PartLengths;
use crate::record::{
    Acl, Checksum, ChecksumKind, Decode, Encode, Object, Place, PlacedObject, RECORD_FORMAT, VersionId,
};
use model::BlobId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The format version that objects are written with.
const FORMAT: u8 = 3;

/// Texts that headers often have. The list may only be extended: its positions are on disk.
const KNOWN: [&str; 16] = [
    "content-type",
    "application/octet-stream",
    "binary/octet-stream",
    "text/plain",
    "application/json",
    "application/pdf",
    "application/x-directory",
    "application/zip",
    "image/jpeg",
    "image/tiff",
    "text/csv",
    "video/mp4",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
];

/// The ETag is a text.
const ETAG_TEXT: u16 = 1;
/// A number of parts follows the ETag.
const ETAG_PARTS: u16 = 1 << 1;
/// `created_ms` differs from `modified_ms`.
const CREATED: u16 = 1 << 2;
/// `staged_ms` differs from `modified_ms`.
const STAGED: u16 = 1 << 3;
const HEADERS: u16 = 1 << 4;
const CHECKSUMS: u16 = 1 << 5;
/// The place is not a blob, and its kind comes first.
const IN_WORKSHOP: u16 = 1 << 6;
const METADATA: u16 = 1 << 7;
const TAGS: u16 = 1 << 8;
const PARTS: u16 = 1 << 9;
const PUBLIC: u16 = 1 << 10;
const ALL_FLAGS: u16 = (1 << 11) - 1;

/// Places other than a blob, in their stored form.
#[derive(Serialize, Deserialize)]
enum InWorkshop {
    Staged { slot: u64 },
    Parts,
}

/// The record in version 2.
#[derive(Deserialize)]
struct PlacedObject2 {
    object: Object,
    place: Place,
    staged_ms: u64,
}

/// An ETag in its stored form.
enum Etag<'a> {
    Digest([u8; 16], Option<u32>),
    Text(&'a str),
}

fn put<T: Serialize + ?Sized>(into: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, into).expect("numbers, texts and lists can always be written")
}

fn take<T: DeserializeOwned>(from: &mut &[u8]) -> postcard::Result<T> {
    let (value, rest) = postcard::take_from_bytes(from)?;
    *from = rest;
    Ok(value)
}

/// The next `N` bytes.
fn take_array<const N: usize>(from: &mut &[u8]) -> postcard::Result<[u8; N]> {
    let (array, rest) = from.split_first_chunk().ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
    *from = rest;
    Ok(*array)
}

impl Encode for PlacedObject {
    fn encoded(&self) -> Vec<u8> {
        encode(self)
    }
}

impl Decode for PlacedObject {
    fn decoded(format: u8, fields: &[u8]) -> Option<postcard::Result<(Self, &[u8])>> {
        decode(format, fields)
    }
}

/// The bytes of `placed`, including the format version.
fn encode(placed: &PlacedObject) -> Vec<u8> {
    let PlacedObject { object, place, staged_ms } = placed;
    let etag = Etag::of(&object.etag);
    let flags = flags_of(placed, &etag);
    let mut into = Vec::with_capacity(96);
    into.push(FORMAT);
    into = put(into, &(flags, object.version, object.bytes, object.modified_ms));
    if flags & CREATED != 0 {
        into = put(into, &object.created_ms);
    }
    if flags & STAGED != 0 {
        into = put(into, staged_ms);
    }
    into = etag.put(into);
    if flags & HEADERS != 0 {
        into = put(into, &object.headers.len());
        for (name, value) in &object.headers {
            into = put_text(put_text(into, name), value);
        }
    }
    if flags & METADATA != 0 {
        into = put(into, &object.metadata);
    }
    if flags & CHECKSUMS != 0 {
        into = put(into, &object.checksums.len());
        into = object.checksums.iter().fold(into, put_checksum);
    }
    if flags & TAGS != 0 {
        into = put(into, &object.tags);
    }
    if flags & PARTS != 0 {
        into = put(into, &object.parts);
    }
    put_place(into, *place)
}

fn flags_of(PlacedObject { object, place, staged_ms }: &PlacedObject, etag: &Etag<'_>) -> u16 {
    let of_etag = match etag {
        Etag::Text(_) => ETAG_TEXT,
        Etag::Digest(_, Some(_)) => ETAG_PARTS,
        Etag::Digest(_, None) => 0,
    };
    let set = [
        (CREATED, object.created_ms != object.modified_ms),
        (STAGED, *staged_ms != object.modified_ms),
        (HEADERS, !object.headers.is_empty()),
        (CHECKSUMS, !object.checksums.is_empty()),
        (IN_WORKSHOP, !matches!(place, Place::Stored { .. })),
        (METADATA, !object.metadata.is_empty()),
        (TAGS, !object.tags.is_empty()),
        (PARTS, !object.parts.is_empty()),
        (PUBLIC, object.acl == Acl::PublicRead),
    ];
    set.into_iter().filter(|(_, is_set)| *is_set).fold(of_etag, |flags, (flag, _)| flags | flag)
}

/// The record of `fields`, and the bytes after it; `None` if their format version is not known.
fn decode(format: u8, fields: &[u8]) -> Option<postcard::Result<(PlacedObject, &[u8])>> {
    match format {
        FORMAT => {
            let mut rest = fields;
            Some(take_placed(&mut rest).map(|placed| (placed, rest)))
        }
        RECORD_FORMAT => Some(postcard::take_from_bytes(fields).map(|(found, rest)| {
            let PlacedObject2 { object, place, staged_ms } = found;
            (PlacedObject { object, place, staged_ms }, rest)
        })),
        _ => None,
    }
}

fn take_placed(from: &mut &[u8]) -> postcard::Result<PlacedObject> {
    let (flags, version, bytes, modified_ms): (u16, VersionId, u64, u64) = take(from)?;
    if flags & !ALL_FLAGS != 0 {
        return Err(postcard::Error::DeserializeBadEncoding);
    }
    let has = |flag| flags & flag != 0;
    let created_ms = if has(CREATED) { take(from)? } else { modified_ms };
    let staged_ms = if has(STAGED) { take(from)? } else { modified_ms };
    let etag = take_etag(from, flags)?;
    let headers =
        if has(HEADERS) { take_list(from, |from| Ok((take_text(from)?, take_text(from)?)))? } else { Vec::new() };
    let metadata = if has(METADATA) { take(from)? } else { Vec::new() };
    let checksums = if has(CHECKSUMS) { take_list(from, take_checksum)? } else { Vec::new() };
    let tags = if has(TAGS) { take(from)? } else { Vec::new() };
    let parts = if has(PARTS) { take(from)? } else { PartLengths::default() };
    let acl = if has(PUBLIC) { Acl::PublicRead } else { Acl::Private };
    let object =
        Object { version, bytes, etag, modified_ms, created_ms, headers, metadata, checksums, acl, tags, parts };
    let place = if has(IN_WORKSHOP) {
        match take(from)? {
            InWorkshop::Staged { slot } => Place::Staged { slot },
            InWorkshop::Parts => Place::Parts,
        }
    } else {
        let (number, nonce) = (take(from)?, u64::from_le_bytes(take_array(from)?));
        Place::Stored { blob: BlobId::new(number, nonce), offset: take(from)? }
    };
    Ok(PlacedObject { object, place, staged_ms })
}

/// A list with the stored number of items; a wrong number ends with the bytes.
fn take_list<T>(
    from: &mut &[u8],
    mut take_one: impl FnMut(&mut &[u8]) -> postcard::Result<T>,
) -> postcard::Result<Vec<T>> {
    let count: usize = take(from)?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(take_one(from)?);
    }
    Ok(list)
}

fn put_place(into: Vec<u8>, place: Place) -> Vec<u8> {
    match place {
        Place::Stored { blob, offset } => {
            let mut into = put(into, &blob.number);
            into.extend_from_slice(&blob.nonce.to_le_bytes());
            put(into, &offset)
        }
        Place::Staged { slot } => put(into, &InWorkshop::Staged { slot }),
        Place::Parts => put(into, &InWorkshop::Parts),
    }
}

impl<'a> Etag<'a> {
    fn of(text: &'a str) -> Self {
        let (digits, parts) = match text.split_once('-') {
            None => (text, None),
            Some((digits, count)) => match count.parse::<u32>() {
                Ok(parts) if parts.to_string() == count => (digits, Some(parts)),
                _ => return Self::Text(text),
            },
        };
        digest(digits).map_or(Self::Text(text), |digest| Self::Digest(digest, parts))
    }

    fn put(self, mut into: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Text(text) => put(into, text),
            Self::Digest(digest, parts) => {
                into.extend_from_slice(&digest);
                match parts {
                    Some(parts) => put(into, &parts),
                    None => into,
                }
            }
        }
    }
}

/// The bytes that 32 lower-case hexadecimal digits encode.
fn digest(digits: &str) -> Option<[u8; 16]> {
    let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
    let mut digest = [0; 16];
    for (byte, two) in digest.iter_mut().zip(digits.as_chunks::<2>().0) {
        for digit in two {
            *byte = *byte << 4
                | match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => return None,
                };
        }
    }
    Some(digest)
}

fn take_etag(from: &mut &[u8], flags: u16) -> postcard::Result<String> {
    if flags & ETAG_TEXT != 0 {
        return take(from);
    }
    let digit = |half: u8| char::from(if half < 10 { b'0' + half } else { b'a' + half - 10 });
    let digest: [u8; 16] = take_array(from)?;
    let mut etag: String = digest.into_iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    if flags & ETAG_PARTS != 0 {
        let parts: u32 = take(from)?;
        etag.push('-');
        etag.push_str(&parts.to_string());
    }
    Ok(etag)
}

fn put_text(into: Vec<u8>, text: &str) -> Vec<u8> {
    match KNOWN.iter().position(|known| *known == text) {
        Some(at) => put(into, &(at + 1)),
        None => put(put(into, &0_usize), text),
    }
}

fn take_text(from: &mut &[u8]) -> postcard::Result<String> {
    match take::<usize>(from)?.checked_sub(1) {
        None => take(from),
        Some(at) => KNOWN.get(at).map(|known| (*known).to_owned()).ok_or(postcard::Error::DeserializeBadEncoding),
    }
}

fn put_checksum(into: Vec<u8>, Checksum { kind, base64 }: &Checksum) -> Vec<u8> {
    let mut into = put(into, kind);
    let bytes = base64_simd::STANDARD
        .decode_to_vec(base64)
        .ok()
        .filter(|bytes| bytes.len() == kind.digest_bytes() && base64_simd::STANDARD.encode_to_string(bytes) == *base64);
    let Some(bytes) = bytes else {
        into.push(0);
        return put(into, base64);
    };
    into.push(1);
    into.extend_from_slice(&bytes);
    into
}

fn take_checksum(from: &mut &[u8]) -> postcard::Result<Checksum> {
    let kind: ChecksumKind = take(from)?;
    let base64 = match take_array::<1>(from)? {
        [0] => take(from)?,
        [1] => {
            let bytes = from.split_at_checked(kind.digest_bytes());
            let (bytes, rest) = bytes.ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
            *from = rest;
            base64_simd::STANDARD.encode_to_string(bytes)
        }
        _ => return Err(postcard::Error::DeserializeBadEncoding),
    };
    Ok(Checksum { kind, base64 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn decoded(bytes: &[u8]) -> PlacedObject {
        let (placed, rest) = decode(bytes[0], &bytes[1..]).unwrap().unwrap();
        assert!(rest.is_empty());
        placed
    }

    fn usual() -> PlacedObject {
        let object = Object {
            version: VersionId(9_000_000),
            bytes: 4_600,
            etag: "d41d8cd98f00b204e9800998ecf8427e".into(),
            modified_ms: 1_790_000_000_000,
            created_ms: 1_790_000_000_000,
            headers: vec![("content-type".into(), "application/octet-stream".into())],
            checksums: vec![Checksum { kind: ChecksumKind::Crc64Nvme, base64: "AAAAAAAAAAA=".into() }],
            ..Object::default()
        };
        let place = Place::Stored { blob: BlobId::new(70_000, u64::MAX), offset: 200_000_000 };
        PlacedObject { staged_ms: object.modified_ms, object, place }
    }

    #[test]
    fn what_nearly_every_object_has_takes_sixty_bytes() {
        assert_eq!(encode(&usual()).len(), 59);
        assert_eq!(decoded(&encode(&usual())), usual());
    }

    /// The fields of version 2, as they are stored on disks.
    #[derive(Serialize)]
    struct Before(Object, Place, u64);

    #[test]
    fn a_record_of_version_2_is_read_and_another_one_is_refused() {
        let PlacedObject { object, place, staged_ms } = usual();
        let before = crate::record::encode(&Before(object, place, staged_ms));
        assert_eq!(before[0], 2);
        assert_eq!(decoded(&before), usual());
        assert!(decode(4, &before[1..]).is_none() && decode(1, &before[1..]).is_none());
        let mut flagged = encode(&usual());
        (flagged[1], flagged[2]) = (0xFF, 0x7F);
        assert!(decode(FORMAT, &flagged[1..]).unwrap().is_err(), "flags of a later version");
    }

    fn texts() -> impl Strategy<Value = String> {
        let digests = proptest::collection::vec("[0-9a-f]", 32).prop_map(|digits| digits.concat());
        prop_oneof![
            "[a-z0-9A-Z=/-]{0,40}",
            proptest::sample::select(&KNOWN[..]).prop_map(str::to_owned),
            digests.clone(),
            (digests, "(0?[0-9]{1,11}|-)").prop_map(|(digest, count)| format!("{digest}-{count}")),
        ]
    }

    fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
        proptest::collection::vec((texts(), texts()), 0..3)
    }

    fn checksums() -> impl Strategy<Value = Checksum> {
        let kind = proptest::sample::select(&ChecksumKind::ALL[..]);
        let digest = proptest::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            (kind.clone(), texts()).prop_map(|(kind, base64)| Checksum { kind, base64 }),
            (kind.clone(), digest).prop_map(|(kind, mut bytes)| {
                bytes.resize(kind.digest_bytes(), 7);
                Checksum { kind, base64: base64_simd::STANDARD.encode_to_string(bytes) }
            }),
            kind.prop_map(|kind| Checksum { kind, base64: "AAAAAB==".into() }),
        ]
    }

    fn objects() -> impl Strategy<Value = Object> {
        let numbers = (any::<u64>(), any::<u64>(), 0..3_u64, 0..3_u64);
        let lists = (pairs(), pairs(), pairs(), proptest::collection::vec(checksums(), 0..3));
        let rest = (texts(), any::<bool>(), proptest::collection::vec(any::<u64>(), 0..3));
        (numbers, lists, rest).prop_map(|(numbers, (headers, metadata, tags, checksums), (etag, is_public, parts))| {
            let (version, bytes, modified_ms, created_ms) = numbers;
            let acl = if is_public { Acl::PublicRead } else { Acl::Private };
            let (version, parts) = (VersionId(version), parts.into_iter().collect());
            Object { version, bytes, etag, modified_ms, created_ms, headers, metadata, checksums, acl, tags, parts }
        })
    }

    proptest! {
        #[test]
        fn every_object_comes_back(
            object in objects(),
            (kind, number, nonce, offset, staged_ms) in
                (0..3, any::<u64>(), any::<u64>(), any::<u64>(), 0..3_u64),
        ) {
            let place = match kind {
                0 => Place::Staged { slot: number },
                1 => Place::Stored { blob: BlobId::new(number, nonce), offset },
                _ => Place::Parts,
            };
            let placed = PlacedObject { object, place, staged_ms };
            prop_assert_eq!(decoded(&encode(&placed)), placed);
        }

        #[test]
        fn no_bytes_make_it_panic(format in 2..4_u8, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(format, &bytes);
        }
    }
}
