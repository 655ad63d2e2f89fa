//! HTTP's conditions and ranges, as S3 reads them: pure functions of headers and an object.

use http::HeaderMap;
use std::ops::Range;
use std::time::{Duration, SystemTime};

/// The outcome of the conditions of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionOutcome {
    /// The conditions hold.
    Proceed,
    /// 304: the client already has this version.
    NotModified,
    /// 412: the object is not the one that the client wants.
    Failed,
}

/// Evaluates the conditions of a read of an object with this ETag (without quotes) and this modification time.
///
/// RFC 9110, section 13.2.2, which is also what AWS documents: `If-Match` overrules `If-Unmodified-Since`, and
/// `If-None-Match` overrules `If-Modified-Since`. Times are compared in whole seconds; invalid times are ignored.
pub(crate) fn evaluate(headers: &HeaderMap, etag: &str, modified_ms: u64) -> ConditionOutcome {
    let modified = seconds(modified_ms);
    if let Some(matches) = etag_listed(headers, "if-match", etag) {
        if !matches {
            return ConditionOutcome::Failed;
        }
    } else if date(headers, "if-unmodified-since").is_some_and(|since| modified > since) {
        return ConditionOutcome::Failed;
    }
    match etag_listed(headers, "if-none-match", etag) {
        Some(true) => ConditionOutcome::NotModified,
        None if date(headers, "if-modified-since").is_some_and(|since| modified <= since) => {
            ConditionOutcome::NotModified
        }
        Some(false) | None => ConditionOutcome::Proceed,
    }
}

/// A time of the Unix epoch in milliseconds, with HTTP's precision of whole seconds.
pub(crate) fn seconds(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(ms / 1000)
}

fn date(headers: &HeaderMap, name: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// True if the header lists the ETag; `None` without that header.
fn etag_listed(headers: &HeaderMap, name: &str, etag: &str) -> Option<bool> {
    let value = headers.get(name)?.to_str().unwrap_or_default();
    Some(value.split(',').map(str::trim).any(|listed| listed == "*" || bare(listed) == etag))
}

fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// The outcome of a `Range` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// The whole object: no range, an invalid range, or several ranges (for which S3 sends the whole object).
    Whole,
    /// These bytes; never empty.
    Bytes(Range<u64>),
    /// 416: the range contains no byte of the object.
    Unsatisfiable,
}

/// The part of an object of `bytes` bytes that a read requests.
pub(crate) fn requested_range(headers: &HeaderMap, etag: &str, modified_ms: u64, bytes: u64) -> RequestedRange {
    let Some(value) = headers.get("range").and_then(|value| value.to_str().ok()) else { return RequestedRange::Whole };
    if headers.contains_key("if-range") && !if_range_holds(headers, etag, modified_ms) {
        return RequestedRange::Whole;
    }
    resolve(value, bytes).unwrap_or(RequestedRange::Whole)
}

fn if_range_holds(headers: &HeaderMap, etag: &str, modified_ms: u64) -> bool {
    let value = headers.get("if-range").and_then(|value| value.to_str().ok()).unwrap_or_default();
    match httpdate::parse_http_date(value) {
        Ok(date) => date == seconds(modified_ms),
        Err(_) => value.trim_matches('"') == etag,
    }
}

/// `bytes=a-b`, `bytes=a-`, `bytes=-n`; `None` for anything else.
fn resolve(value: &str, bytes: u64) -> Option<RequestedRange> {
    let (unit, set) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(bytes),
        (Some(first), None) if last.is_empty() => first..bytes,
        (None, Some(suffix)) if first.is_empty() => bytes.saturating_sub(suffix)..bytes,
        _ => return None,
    };
    Some(if range.start < range.end { RequestedRange::Bytes(range) } else { RequestedRange::Unsatisfiable })
}

/// Parses digits only, unlike `parse`, which accepts a sign; a number of more than 64 bits counts as the largest.
fn number(digits: &str) -> Option<u64> {
    let only_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    only_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MODIFIED_MS: u64 = 1_000_000_000_500;
    const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
    const SAME: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).try_into().unwrap(), (*value).try_into().unwrap())).collect()
    }

    fn evaluated(pairs: &[(&'static str, &'static str)]) -> ConditionOutcome {
        evaluate(&headers(pairs), "abc", MODIFIED_MS)
    }

    #[test]
    fn conditions_alone() {
        assert_eq!(evaluated(&[]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-match", "\"abc\"")]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-match", "\"x\", abc")]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-match", "\"x\"")]), ConditionOutcome::Failed);
        assert_eq!(evaluated(&[("if-none-match", "*")]), ConditionOutcome::NotModified);
        assert_eq!(evaluated(&[("if-none-match", "W/\"abc\"")]), ConditionOutcome::NotModified);
        assert_eq!(evaluated(&[("if-none-match", "\"x\"")]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-modified-since", SAME)]), ConditionOutcome::NotModified);
        assert_eq!(evaluated(&[("if-modified-since", BEFORE)]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-unmodified-since", SAME)]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-unmodified-since", BEFORE)]), ConditionOutcome::Failed);
        assert_eq!(evaluated(&[("if-modified-since", "yesterday")]), ConditionOutcome::Proceed);
    }

    #[test]
    fn etags_overrule_times() {
        assert_eq!(evaluated(&[("if-match", "abc"), ("if-unmodified-since", BEFORE)]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-none-match", "\"x\""), ("if-modified-since", SAME)]), ConditionOutcome::Proceed);
        assert_eq!(evaluated(&[("if-match", "abc"), ("if-none-match", "abc")]), ConditionOutcome::NotModified);
    }

    #[test]
    fn ranges_resolve_as_s3_resolves_them() {
        for (value, bytes, expected) in [
            ("bytes=0-0", 10, RequestedRange::Bytes(0..1)),
            ("bytes=2-5", 10, RequestedRange::Bytes(2..6)),
            ("bytes=2-", 10, RequestedRange::Bytes(2..10)),
            ("bytes=-3", 10, RequestedRange::Bytes(7..10)),
            ("bytes=-30", 10, RequestedRange::Bytes(0..10)),
            ("bytes=8-99999999999999999999999", 10, RequestedRange::Bytes(8..10)),
            ("bytes=10-", 10, RequestedRange::Unsatisfiable),
            ("bytes=10-11", 10, RequestedRange::Unsatisfiable),
            ("bytes=-0", 10, RequestedRange::Unsatisfiable),
            ("bytes=0-", 0, RequestedRange::Unsatisfiable),
            ("bytes=-5", 0, RequestedRange::Unsatisfiable),
            ("bytes=0-1,3-4", 10, RequestedRange::Whole),
            ("bytes=5-2", 10, RequestedRange::Whole),
            ("bytes=-", 10, RequestedRange::Whole),
            ("bytes=a-b", 10, RequestedRange::Whole),
            ("bytes=+1-2", 10, RequestedRange::Whole),
            ("items=0-1", 10, RequestedRange::Whole),
        ] {
            assert_eq!(
                requested_range(&headers(&[("range", value)]), "abc", MODIFIED_MS, bytes),
                expected,
                "{value} of {bytes}"
            );
        }
    }

    #[test]
    fn a_range_of_another_version_gives_the_whole() {
        let asked = |if_range| {
            requested_range(&headers(&[("range", "bytes=0-1"), ("if-range", if_range)]), "abc", MODIFIED_MS, 10)
        };
        assert_eq!(asked("\"abc\""), RequestedRange::Bytes(0..2));
        assert_eq!(asked(SAME), RequestedRange::Bytes(0..2));
        assert_eq!(asked("\"old\""), RequestedRange::Whole);
        assert_eq!(asked(BEFORE), RequestedRange::Whole);
    }
}
