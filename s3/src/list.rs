//! ListObjectsV2 and its elder.

use super::ask::Ask;
use super::bucket::owner;
use super::digest;
use super::error::{Code, Fault};
use super::route::{Answer, Route, xml};
use super::store::{ListPage, ListQuery};
use super::xml::is_inexpressible;
use catalog::Object;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{
    self, ChecksumAlgorithm, ChecksumType, CommonPrefix, ETag, EncodingType, ListObjectsOutput, ListObjectsV2Output,
    ObjectStorageClass,
};
use std::time::{Duration, SystemTime};

/// How many entries one page holds at most.
const PAGE: usize = 1000;

/// What `encoding-type=url` leaves as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'/').remove(b'*');

/// Where a listing goes on: the last entry of the page before, opaque to clients.
pub(super) struct Token;

impl Token {
    /// A token for going on behind `entry`.
    pub fn write(entry: &str) -> String {
        format!("1{}", base64_simd::URL_SAFE_NO_PAD.encode_to_string(entry))
    }

    /// The entry of a token.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no token of ours.
    pub fn read(token: &str) -> Result<String, Fault> {
        let bytes = token.strip_prefix('1').and_then(|rest| base64_simd::URL_SAFE_NO_PAD.decode_to_vec(rest).ok());
        let entry = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        entry.ok_or_else(|| Fault::new(Code::InvalidArgument, "The continuation token provided is incorrect"))
    }
}

/// A key as a URL spells it.
pub(super) fn encoded(key: &str) -> String {
    utf8_percent_encode(key, PLAIN).to_string()
}

/// The number of a query parameter, or `default`.
pub(super) fn number(value: Option<&str>, name: &str, default: usize) -> Result<usize, Fault> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(default) };
    let number = value.parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok());
    number.map(|number| number as usize).ok_or_else(|| {
        Fault::new(Code::InvalidArgument, format!("Provided {name} not an integer or within integer range"))
    })
}

/// What all forms of listing share of their query.
pub(super) struct Terms<'a> {
    pub prefix: &'a str,
    pub delimiter: Option<&'a str>,
    pub max_keys: usize,
    encoded: bool,
}

impl<'a> Terms<'a> {
    pub fn of(ask: &'a Ask) -> Result<Self, Fault> {
        let encoded = match ask.query("encoding-type").filter(|value| !value.is_empty()) {
            None => false,
            Some("url") => true,
            Some(_) => return Err(Fault::new(Code::InvalidArgument, "Invalid Encoding Method specified in Request")),
        };
        Ok(Self {
            prefix: ask.query("prefix").unwrap_or_default(),
            delimiter: ask.query("delimiter").filter(|delimiter| !delimiter.is_empty()),
            max_keys: number(ask.query("max-keys"), "max-keys", PAGE)?.min(PAGE),
            encoded,
        })
    }

    pub async fn page(&self, route: &Route, ask: &Ask, after: Option<String>) -> Result<ListPage, Fault> {
        if self.max_keys == 0 {
            return Ok(ListPage::default());
        }
        let (prefix, delimiter) = (self.prefix.to_owned(), self.delimiter.map(str::to_owned));
        let query = ListQuery { prefix, delimiter, after, max_keys: self.max_keys };
        Ok(route.store.list(&ask.bucket, query).await?)
    }

    /// As [`Terms::page`], for a form of listing that goes on behind the last entry it spelled: the page ends with one
    /// that XML can hold, so that none is left out. Where there is none such, the answer is spelled as a URL and says
    /// so.
    pub async fn page_with_end(&mut self, route: &Route, ask: &Ask, after: Option<String>) -> Result<ListPage, Fault> {
        let mut page = self.page(route, ask, after).await?;
        if self.encoded || !page.truncated {
            return Ok(page);
        }
        let keys = page.objects.iter().map(|(key, _)| key);
        let Some(end) = keys.chain(&page.prefixes).filter(|entry| is_expressible(entry)).max().cloned() else {
            self.encoded = true;
            return Ok(page);
        };
        page.objects.retain(|(key, _)| *key <= end);
        page.prefixes.retain(|prefix| *prefix <= end);
        Ok(page)
    }

    /// Spells this answer as a URL, and says so, if where the next page goes on could not be read otherwise.
    pub fn spell_marker(&mut self, marker: Option<&str>) {
        self.encoded |= marker.is_some_and(|marker| !is_expressible(marker));
    }

    /// A key as the answer spells it.
    pub fn spell(&self, key: &str) -> String {
        if self.encoded { encoded(key) } else { key.to_owned() }
    }

    pub fn encoding(&self) -> Option<EncodingType> {
        self.encoded.then(|| EncodingType::from_static(EncodingType::URL))
    }

    fn objects(&self, page: &ListPage, user: Option<&str>) -> Vec<dto::Object> {
        page.objects.iter().map(|(key, object)| self.told(key, object, user)).collect()
    }

    pub fn told(&self, key: &str, object: &Object, user: Option<&str>) -> dto::Object {
        let algorithm = |kind| ChecksumAlgorithm::from(digest::spelling(kind).to_uppercase());
        let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(object.modified_ms);
        let has_checksum = !object.checksums.is_empty();
        dto::Object {
            checksum_algorithm: has_checksum.then(|| object.checksums.iter().map(|sum| algorithm(sum.kind)).collect()),
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

    pub fn prefixes(&self, page: &ListPage) -> Vec<CommonPrefix> {
        page.prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(self.spell(prefix)) }).collect()
    }
}

/// Lists, as clients do today.
pub(super) async fn v2(route: &Route, ask: &Ask) -> Answer {
    let terms = Terms::of(ask)?;
    let token = ask.query("continuation-token").map(Token::read).transpose()?;
    let start_after = ask.query("start-after").filter(|key| !key.is_empty());
    let bucket = route.listable_bucket(ask).await?;
    let page = terms.page(route, ask, token.or_else(|| start_after.map(str::to_owned))).await?;
    let user = (ask.query("fetch-owner") == Some("true")).then_some(bucket.owner.as_str());
    xml(&ListObjectsV2Output {
        name: Some(bucket.name.clone()),
        prefix: Some(terms.spell(terms.prefix)),
        max_keys: i32::try_from(terms.max_keys).ok(),
        key_count: i32::try_from(page.objects.len() + page.prefixes.len()).ok(),
        continuation_token: ask.query("continuation-token").map(str::to_owned),
        is_truncated: Some(page.truncated),
        next_continuation_token: page.last().filter(|_| page.truncated).map(Token::write),
        contents: Some(terms.objects(&page, user)),
        common_prefixes: Some(terms.prefixes(&page)),
        delimiter: terms.delimiter.map(|delimiter| terms.spell(delimiter)),
        encoding_type: terms.encoding(),
        start_after: start_after.map(|key| terms.spell(key)),
        request_charged: None,
    })
}

/// Whether XML can hold `entry`.
fn is_expressible(entry: &str) -> bool {
    !entry.contains(is_inexpressible)
}

/// Lists, as clients did once.
pub(super) async fn v1(route: &Route, ask: &Ask) -> Answer {
    let mut terms = Terms::of(ask)?;
    let marker = ask.query("marker").unwrap_or_default();
    let bucket = route.listable_bucket(ask).await?;
    let after = Some(marker.to_owned()).filter(|marker| !marker.is_empty());
    let page = terms.page_with_end(route, ask, after).await?;
    // Without a delimiter S3 leaves this out, and clients go on behind the last key.
    let next = page.last().filter(|_| page.truncated && terms.delimiter.is_some());
    xml(&ListObjectsOutput {
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
            assert_eq!(Token::read(&Token::write(entry)).unwrap(), entry);
        }
        for token in ["", "1!", "2YQ", "YQ"] {
            assert_eq!(Token::read(token).unwrap_err().code, Code::InvalidArgument);
        }
    }

    #[test]
    fn max_keys_is_a_number_or_refused() {
        assert_eq!(number(None, "n", 7).unwrap(), 7);
        assert_eq!(number(Some("0"), "n", 7).unwrap(), 0);
        assert_eq!(number(Some("99999"), "n", 7).unwrap(), 99_999);
        for wrong in ["-1", "x", "4294967295"] {
            assert_eq!(number(Some(wrong), "n", 7).unwrap_err().code, Code::InvalidArgument);
        }
    }
}
