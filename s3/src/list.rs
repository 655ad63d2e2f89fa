//! ListObjectsV2 and ListObjects.

use crate::digest;
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::request::S3Request;
use crate::response::{Answer, document, owner};
use crate::xml::is_inexpressible;
use catalog::{Checksum, ListRequest, Listing, Object};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{
    self, ChecksumAlgorithm, ChecksumType, CommonPrefix, ETag, EncodingType, ListObjectsOutput, ListObjectsV2Output,
    ObjectStorageClass,
};
use std::time::{Duration, SystemTime};

/// The most entries of a page.
const PAGE: usize = 1000;

/// Characters that `encoding-type=url` does not encode.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'/').remove(b'*');

/// The end of a page of a listing, opaque to clients: its last entry.
pub(crate) struct ContinuationToken;

impl ContinuationToken {
    /// A token to continue after `entry`.
    pub fn write(entry: &str) -> String {
        format!("1{}", base64_simd::URL_SAFE_NO_PAD.encode_to_string(entry))
    }

    /// The entry of a token.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed token.
    pub fn read(token: &str) -> Result<String, ErrorResponse> {
        let bytes = token.strip_prefix('1').and_then(|rest| base64_simd::URL_SAFE_NO_PAD.decode_to_vec(rest).ok());
        let entry = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        entry.ok_or_else(|| ErrorCode::InvalidArgument.with("The continuation token provided is incorrect"))
    }
}

/// A key in URL encoding.
pub(crate) fn encoded(key: &str) -> String {
    utf8_percent_encode(key, PLAIN).to_string()
}

/// The number of a query parameter, or `default`.
pub(crate) fn number(value: Option<&str>, name: &str, default: usize) -> Result<usize, ErrorResponse> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(default) };
    let number = value.parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok());
    number.map(|number| number as usize).ok_or_else(|| {
        ErrorCode::InvalidArgument.with(format!("Provided {name} not an integer or within integer range"))
    })
}

/// The parameters of all forms of listing.
pub(crate) struct ListParameters<'a> {
    pub prefix: &'a str,
    pub delimiter: Option<&'a str>,
    pub max_keys: usize,
    encoded: bool,
}

impl<'a> ListParameters<'a> {
    pub fn of(request: &'a S3Request) -> Result<Self, ErrorResponse> {
        let encoded = match request.query("encoding-type").filter(|value| !value.is_empty()) {
            None => false,
            Some("url") => true,
            Some(_) => {
                return Err(ErrorCode::InvalidArgument.with("Invalid Encoding Method specified in Request"));
            }
        };
        Ok(Self {
            prefix: request.query("prefix").unwrap_or_default(),
            delimiter: request.query("delimiter").filter(|delimiter| !delimiter.is_empty()),
            max_keys: number(request.query("max-keys"), "max-keys", PAGE)?.min(PAGE),
            encoded,
        })
    }

    pub async fn page(
        &self,
        front: &Frontend,
        request: &S3Request,
        after: Option<String>,
    ) -> Result<Listing, ErrorResponse> {
        if self.max_keys == 0 {
            return Ok(Listing::default());
        }
        let (prefix, delimiter) = (self.prefix.to_owned(), self.delimiter.map(str::to_owned));
        let list = ListRequest { prefix, delimiter, start_after: after, max_keys: self.max_keys };
        Ok(front.store.list(&request.bucket, list).await?)
    }

    /// Like [`ListParameters::page`], for a form of listing that continues after the last entry as it is spelled: the
    /// page ends with an entry that XML can hold, so no entry is skipped. Without an entry of that kind, keys are
    /// URL-encoded.
    pub async fn page_with_end(
        &mut self,
        front: &Frontend,
        request: &S3Request,
        after: Option<String>,
    ) -> Result<Listing, ErrorResponse> {
        let mut page = self.page(front, request, after).await?;
        if self.encoded || !page.truncated {
            return Ok(page);
        }
        let keys = page.objects.iter().map(|(key, _)| key);
        let Some(end) = keys.chain(&page.common_prefixes).filter(|entry| is_expressible(entry)).max().cloned() else {
            self.encoded = true;
            return Ok(page);
        };
        page.objects.retain(|(key, _)| *key <= end);
        page.common_prefixes.retain(|prefix| *prefix <= end);
        Ok(page)
    }

    /// Encodes keys as in URLs if XML cannot hold `marker`, from which the next page continues.
    pub fn spell_marker(&mut self, marker: Option<&str>) {
        self.encoded |= marker.is_some_and(|marker| !is_expressible(marker));
    }

    /// A key as the listing spells it.
    pub fn spell(&self, key: &str) -> String {
        if self.encoded { encoded(key) } else { key.to_owned() }
    }

    pub fn encoding(&self) -> Option<EncodingType> {
        self.encoded.then(|| EncodingType::from_static(EncodingType::URL))
    }

    fn objects(&self, page: &Listing, user: Option<&str>) -> Vec<dto::Object> {
        page.objects.iter().map(|(key, object)| self.entry(key, object, user)).collect()
    }

    /// An object's entry, with its owner if it is to be named.
    pub fn entry(&self, key: &str, object: &Object, user: Option<&str>) -> dto::Object {
        let algorithm = |sum: &Checksum| ChecksumAlgorithm::from_static(sum.kind.name());
        let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(object.modified_ms);
        let has_checksum = !object.checksums.is_empty();
        dto::Object {
            checksum_algorithm: has_checksum.then(|| object.checksums.iter().map(algorithm).collect()),
            checksum_type: has_checksum.then(|| ChecksumType::from_static(digest::type_of(&object.checksums))),
            e_tag: Some(ETag::Strong(object.etag.clone())),
            key: Some(self.spell(key)),
            last_modified: Some(modified.into()),
            owner: user.map(owner),
            restore_status: None,
            size: i64::try_from(object.bytes).ok(),
            storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        }
    }

    pub fn prefixes(&self, page: &Listing) -> Vec<CommonPrefix> {
        page.common_prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(self.spell(prefix)) }).collect()
    }
}

/// The last entry of a page, key or common prefix; the next page starts after it.
pub(crate) fn last_entry(page: &Listing) -> Option<&str> {
    let key = page.objects.last().map(|(key, _)| key.as_str());
    key.max(page.common_prefixes.last().map(String::as_str))
}

/// ListObjectsV2.
pub(crate) async fn v2(front: &Frontend, request: &S3Request) -> Answer {
    let terms = ListParameters::of(request)?;
    let token = request.query("continuation-token").map(ContinuationToken::read).transpose()?;
    let start_after = request.query("start-after").filter(|key| !key.is_empty());
    let bucket = front.listable_bucket(request).await?;
    let page = terms.page(front, request, token.or_else(|| start_after.map(str::to_owned))).await?;
    let user = (request.query("fetch-owner") == Some("true")).then_some(bucket.owner.as_str());
    document(&ListObjectsV2Output {
        name: Some(bucket.name.clone()),
        prefix: Some(terms.spell(terms.prefix)),
        max_keys: i32::try_from(terms.max_keys).ok(),
        key_count: i32::try_from(page.objects.len() + page.common_prefixes.len()).ok(),
        continuation_token: request.query("continuation-token").map(str::to_owned),
        is_truncated: Some(page.truncated),
        next_continuation_token: last_entry(&page).filter(|_| page.truncated).map(ContinuationToken::write),
        contents: Some(terms.objects(&page, user)),
        common_prefixes: Some(terms.prefixes(&page)),
        delimiter: terms.delimiter.map(|delimiter| terms.spell(delimiter)),
        encoding_type: terms.encoding(),
        start_after: start_after.map(|key| terms.spell(key)),
        request_charged: None,
    })
}

/// True if XML can hold `entry`.
fn is_expressible(entry: &str) -> bool {
    !entry.contains(is_inexpressible)
}

/// ListObjects.
pub(crate) async fn v1(front: &Frontend, request: &S3Request) -> Answer {
    let mut terms = ListParameters::of(request)?;
    let marker = request.query("marker").unwrap_or_default();
    let bucket = front.listable_bucket(request).await?;
    let after = Some(marker.to_owned()).filter(|marker| !marker.is_empty());
    let page = terms.page_with_end(front, request, after).await?;
    // S3 omits this without a delimiter; clients then continue after the last key.
    let next = last_entry(&page).filter(|_| page.truncated && terms.delimiter.is_some());
    document(&ListObjectsOutput {
        name: Some(bucket.name.clone()),
        prefix: Some(terms.spell(terms.prefix)),
        marker: Some(terms.spell(marker)),
        max_keys: i32::try_from(terms.max_keys).ok(),
        is_truncated: Some(page.truncated),
        contents: Some(terms.objects(&page, Some(&bucket.owner))),
        common_prefixes: Some(terms.prefixes(&page)),
        delimiter: terms.delimiter.map(|delimiter| terms.spell(delimiter)),
        next_marker: next.map(|entry| terms.spell(entry)),
        encoding_type: terms.encoding(),
        request_charged: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_gives_its_entry_back_and_nothing_else_is_one() {
        for entry in ["a", "a/b c/ü", ""] {
            assert_eq!(ContinuationToken::read(&ContinuationToken::write(entry)).unwrap(), entry);
        }
        for token in ["", "1!", "2YQ", "YQ"] {
            assert_eq!(ContinuationToken::read(token).unwrap_err().code, ErrorCode::InvalidArgument);
        }
    }

    #[test]
    fn max_keys_is_a_number_or_refused() {
        assert_eq!(number(None, "n", 7).unwrap(), 7);
        assert_eq!(number(Some("0"), "n", 7).unwrap(), 0);
        assert_eq!(number(Some("99999"), "n", 7).unwrap(), 99_999);
        for wrong in ["-1", "x", "4294967295"] {
            assert_eq!(number(Some(wrong), "n", 7).unwrap_err().code, ErrorCode::InvalidArgument);
        }
    }
}
