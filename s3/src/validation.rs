//! Validation: checks a request against the definition of its operation ([`crate::parameters`]), and checks that its
//! signature covers everything with a meaning. A parameter of S3 that would change what the operation means is refused
//! rather than ignored, so no success means less than the request asked for. A parameter that S3 does not define is
//! ignored, as on AWS: clients use them to find their requests in a log.
//!
//! A request that is refused here gets an error of status 400, because clients retry 501, which is for whole
//! operations.

use crate::error::{ErrorCode, ErrorResponse};
use crate::operation::{self, Operation};
use crate::parameters::{Effect, Place, Values, find};
use crate::xml;
use disk::clock;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

/// Parameters of a presigned URL, and the operation's name, which some clients add.
const SIGNING: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
    "x-id",
];

/// Headers of S3 that a parameter of the same name stands for: SDKs move them there when they presign a URL.
const LIFTED: [&str; 5] =
    ["x-amz-acl", "x-amz-checksum-mode", "x-amz-expected-bucket-owner", "x-amz-request-payer", "x-amz-storage-class"];
/// The same, for all names with these prefixes.
const LIFTED_PREFIXES: [&str; 2] = ["x-amz-meta-", "x-amz-server-side-encryption"];
/// Prefixes of headers that mean nothing as parameters: an SDK that presigns has no body to take a checksum of.
const IGNORED_IN_URLS: [&str; 3] = ["x-amz-checksum-", "x-amz-sdk-checksum-algorithm", "x-amz-tagging"];

/// Parameters of a URL presigned by signature version 2, which boto3 makes by default.
const SIGNING_V2: [&str; 3] = ["AWSAccessKeyId", "Expires", "Signature"];

/// Headers that may be sent unsigned: the signature covers them in another way, or they mean nothing.
const UNSIGNED: [&str; 3] = ["x-amz-content-sha256", "x-amz-user-agent", "x-amz-date"];

/// The longest validity of a presigned URL, in seconds.
const PRESIGNED_MAX_S: u64 = 7 * 24 * 3600;

/// Adds the headers of S3 that are in the query to `headers`, unless they are there as well. This precedes the
/// verification of the signature, since version 2 signs them as headers.
///
/// # Errors
/// `InvalidArgument` for a value that cannot be a header.
pub(crate) fn lift(uri: &Uri, headers: &mut HeaderMap) -> Result<(), ErrorResponse> {
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let Some(name) = lifted(&name) else { continue };
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| ErrorCode::InvalidArgument.with(format!("{name} cannot be a header.")))?;
        headers.entry(name).or_insert(value);
    }
    Ok(())
}

/// The header that the parameter `name` stands for.
fn lifted(name: &str) -> Option<HeaderName> {
    let lower = name.to_ascii_lowercase();
    let is_lifted = LIFTED.contains(&lower.as_str()) || LIFTED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    HeaderName::try_from(lower).ok().filter(|_| is_lifted)
}

/// Refuses headers and parameters that are not valid for `operation`.
///
/// # Errors
/// `NotImplemented` for another operation; an error of status 400 that names the header or parameter; `InvalidToken`
/// for session tokens, which do not exist here; `AccessDenied` for a header that was added to a signed request; for an
/// unsigned request, an error for anything that only a signature allows.
pub(crate) fn check(
    operation: Operation,
    signed: bool,
    query: &[(String, String)],
    headers: &HeaderMap,
) -> Result<(), ErrorResponse> {
    for (name, value) in query {
        check_query(operation, name, value)?;
    }
    for (name, value) in headers {
        check_parameter(operation, Place::Header, name.as_str(), value.to_str().unwrap_or_default())?;
    }
    if signed { check_signed(query, headers) } else { check_unsigned(query) }
}

/// Refuses elements of a body that its operation does not accept.
///
/// # Errors
/// `MalformedXML` for an element that the operation does not have, and the errors of its definition.
pub(crate) fn check_body(operation: Operation, body: &[u8]) -> Result<(), ErrorResponse> {
    xml::for_each_path(body, |path| match find(operation, Place::Element, path) {
        Some(_) => check_parameter(operation, Place::Element, path, ""),
        None => Err(ErrorCode::MalformedXml.into()),
    })
}

fn check_query(operation: Operation, name: &str, value: &str) -> Result<(), ErrorResponse> {
    let signs = SIGNING.contains(&name) || may_be_presigned_v2(operation) && SIGNING_V2.contains(&name);
    if signs || lifted(name).is_some() {
        return Ok(());
    }
    if find(operation, Place::Query, name).is_some() {
        return check_parameter(operation, Place::Query, name, value);
    }
    if operation::is_named_by(operation, name) {
        return Ok(());
    }
    if operation::is_sub_resource(name) || SIGNING_V2.contains(&name) {
        return Err(refusal(Place::Query, name, ErrorCode::NotImplemented));
    }
    let lower = name.to_ascii_lowercase();
    let is_header = lower.starts_with("x-amz-") && !IGNORED_IN_URLS.iter().any(|start| lower.starts_with(start));
    match find(operation, Place::Header, &lower).filter(|_| is_header).map(|parameter| parameter.effect) {
        None | Some(Effect::Ignored(_)) => Ok(()),
        Some(_) => Err(refusal(Place::Query, name, ErrorCode::InvalidArgument)),
    }
}

/// Refuses the parameter `name` if the definition of `operation` requires it.
fn check_parameter(operation: Operation, place: Place, name: &str, value: &str) -> Result<(), ErrorResponse> {
    let Some(parameter) = find(operation, place, name) else { return Ok(()) };
    match (parameter.effect, parameter.values) {
        (Effect::Refused(code, ""), _) => Err(refusal(place, name, code)),
        (Effect::Refused(code, message), _) => Err(code.with(message)),
        (_, Some(Values { is_accepted, text, code })) if !is_accepted(value) => Err(match code {
            ErrorCode::InvalidArgument => code.with(format!("Of {name} only {text} is served here.")),
            _ => refusal(place, name, code),
        }),
        _ => Ok(()),
    }
}

/// The error for a parameter that an operation does not accept, or not with its value.
fn refusal(place: Place, name: &str, code: ErrorCode) -> ErrorResponse {
    let named = match place {
        Place::Query => format!("The query parameter {name}"),
        Place::Header => format!("The header {name}"),
        Place::Element => format!("The element {name}"),
    };
    match code {
        ErrorCode::NotImplemented => ErrorResponse::not_implemented(&named),
        ErrorCode::InvalidArgument => code.with(format!("{named} is not served here.")),
        _ => code.into(),
    }
}

/// Version 2 signs the method, the path, all `x-amz-` headers and some parameters. It is accepted only for operations
/// that these alone determine, and only in URLs, which expire.
fn may_be_presigned_v2(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::GetObject
            | Operation::HeadObject
            | Operation::PutObject
            | Operation::DeleteObject
            | Operation::CopyObject
            | Operation::GetObjectAcl
            | Operation::PutObjectAcl
            | Operation::GetObjectTagging
            | Operation::PutObjectTagging
            | Operation::DeleteObjectTagging
            | Operation::CreateMultipartUpload
            | Operation::UploadPart
            | Operation::UploadPartCopy
            | Operation::CompleteMultipartUpload
            | Operation::AbortMultipartUpload
            | Operation::ListParts
    )
}

/// Checks that an unsigned request has no parameter of a signature, and none that only a signature allows.
fn check_unsigned(query: &[(String, String)]) -> Result<(), ErrorResponse> {
    let signing = |name: &str| SIGNING_V2.contains(&name) || name.starts_with("X-Amz-");
    if let Some((name, _)) = query.iter().find(|(name, _)| signing(name)) {
        let message = format!("Query-string authentication requires a signature, which is missing besides {name}.");
        return Err(ErrorCode::AuthorizationQueryParametersError.with(message));
    }
    if query.iter().any(|(name, _)| name.starts_with("response-")) {
        let message = "Request specific response headers cannot be used for anonymous GET requests.";
        return Err(ErrorCode::InvalidRequest.with(message));
    }
    Ok(())
}

/// The protocol library verifies what was signed. This check ensures that nothing with a meaning was left unsigned, so
/// the holder of a presigned URL cannot add headers to it.
fn check_signed(query: &[(String, String)], headers: &HeaderMap) -> Result<(), ErrorResponse> {
    if query.iter().any(|pair| pair.0 == "Signature") {
        return check_expiry_v2(query);
    }
    let authorization = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let from_header = authorization
        .split([',', ' '])
        .find_map(|part| part.strip_prefix("SignedHeaders="))
        .filter(|_| authorization.starts_with("AWS4-"));
    let from_query = query.iter().find(|pair| pair.0 == "X-Amz-SignedHeaders").map(|pair| pair.1.as_str());
    let expires = query.iter().find(|pair| pair.0 == "X-Amz-Expires").and_then(|pair| pair.1.parse::<u64>().ok());
    if expires.is_some_and(|expires_s| expires_s > PRESIGNED_MAX_S) {
        let message = "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be \
                       less than 604800 seconds";
        return Err(ErrorCode::AuthorizationQueryParametersError.with(message));
    }
    // Version 2 in a header covers too little and never expires, even with unsigned parameters of version 4 beside it.
    let is_v4 = authorization.starts_with("AWS4-") || !headers.contains_key("authorization");
    let Some(signed) = from_query.or(from_header).filter(|_| is_v4) else {
        let message = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
        return Err(ErrorCode::InvalidRequest.with(message));
    };
    let is_signed = |name: &str| signed.split(';').any(|signed| signed.eq_ignore_ascii_case(name));
    // The query is signed as a whole.
    let is_lifted = |name: &str, value: &HeaderValue| {
        query.iter().any(|pair| pair.0.eq_ignore_ascii_case(name) && pair.1.as_bytes() == value.as_bytes())
    };
    let is_covered = |name: &str, value: &HeaderValue| {
        // A client that sends no trailers may send an empty list of them.
        let means_nothing = UNSIGNED.contains(&name) || name == "x-amz-trailer" && value.is_empty();
        means_nothing || is_signed(name) || is_lifted(name, value)
    };
    let mut of_s3 = headers.iter().map(|(name, value)| (name.as_str(), value));
    let unsigned = of_s3.find(|(name, value)| name.starts_with("x-amz-") && !is_covered(name, value));
    if let Some((name, _)) = unsigned {
        let message = format!("There were headers present in the request which were not signed: {name}");
        return Err(ErrorCode::AccessDenied.with(message));
    }
    if is_signed("host") { Ok(()) } else { Err(ErrorCode::AccessDenied.with("The host header must be signed.")) }
}

/// Checks the second at which a URL of version 2 expires. It must not be later than version 4 allows.
fn check_expiry_v2(query: &[(String, String)]) -> Result<(), ErrorResponse> {
    let expires = query.iter().find(|pair| pair.0 == "Expires").and_then(|pair| pair.1.parse::<u64>().ok());
    let latest_s = clock::since_epoch().as_secs() + PRESIGNED_MAX_S;
    if expires.is_some_and(|expires_s| expires_s > latest_s) {
        let message = "Expires must be less than a week from now.";
        return Err(ErrorCode::AuthorizationQueryParametersError.with(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn valid(operation: Operation, name: &str, value: &str) -> bool {
        check_parameter(operation, Place::Header, name, value).is_ok()
    }

    #[test]
    fn a_put_refuses_every_header_that_would_change_its_meaning() {
        for (name, value) in [
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-server-side-encryption-customer-key", "k"),
            ("x-amz-object-lock-mode", "COMPLIANCE"),
            ("x-amz-grant-read", "id=1"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-amz-website-redirect-location", "/x"),
            ("x-amz-copy-source", "/b/k"),
            ("x-amz-write-offset-bytes", "1"),
            ("x-amz-checksum-md5", "x"),
            ("if-none-match", "\"abc\""),
            ("if-match", "*"),
            ("if-match", "\"a\", \"b\""),
            ("if-unmodified-since", "Sat, 21 Nov 2026 08:00:00 GMT"),
            ("x-amz-api-version", "2030-01-01"),
            ("x-amz-mfa", "serial 123456"),
            ("x-amz-if-match-size", "1"),
        ] {
            assert!(!valid(Operation::PutObject, name, value), "{name}: {value}");
        }
    }

    #[test]
    fn a_put_honours_what_it_can_keep() {
        for (name, value) in [
            ("x-amz-acl", "private"),
            ("x-amz-tagging", "a=b"),
            ("x-amz-storage-class", "STANDARD"),
            ("x-amz-meta-colour", "blue"),
            ("x-amz-api-version", "2006-03-01"),
            ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
            ("if-none-match", "*"),
            ("if-match", "\"25f9e794323b453885f5181f1b624d0b\""),
        ] {
            assert!(valid(Operation::PutObject, name, value), "{name}: {value}");
        }
    }

    #[test]
    fn what_s3_does_not_define_is_ignored() {
        // The SDK for Java sends the first with a GET.
        for name in ["x-amz-te", "x-amz-never-heard-of", "x-amz-meta-a", "x-amz-user-agent", "x-client"] {
            assert!(valid(Operation::GetObject, name, "1") && valid(Operation::PutObject, name, "1"), "{name}");
        }
    }

    #[test]
    fn checksums_of_no_body_have_no_effect() {
        for (name, value) in [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-sdk-checksum-algorithm", "CRC32")] {
            for operation in [Operation::GetObject, Operation::HeadObject, Operation::ListObjectsV2] {
                assert!(valid(operation, name, value), "{operation:?} {name}");
            }
        }
    }

    #[test]
    fn governance_is_bypassed_where_there_is_none_and_only_by_deletes() {
        for operation in [Operation::DeleteObject, Operation::DeleteObjects] {
            assert!(valid(operation, "x-amz-bypass-governance-retention", "true"));
            assert!(valid(operation, "x-amz-bypass-governance-retention", "False"));
            assert!(!valid(operation, "x-amz-bypass-governance-retention", "maybe"));
        }
        assert!(!valid(Operation::PutObject, "x-amz-bypass-governance-retention", "true"));
    }

    #[test]
    fn a_body_has_the_elements_of_its_operation_and_no_others() {
        let code = |operation, body: &str| check_body(operation, body.as_bytes()).err().map(|error| error.code);
        let configuration = |inner: &str| format!("<CreateBucketConfiguration>{inner}</CreateBucketConfiguration>");
        for (inner, expected) in [
            ("<Tags><Tag><Key>a</Key></Tag></Tags>", None),
            ("<s:LocationConstraint/>", None),
            ("<Location><Type>AvailabilityZone</Type></Location>", Some(ErrorCode::InvalidRequest)),
            ("<Never/>", Some(ErrorCode::MalformedXml)),
            ("<Key>a</Key>", Some(ErrorCode::MalformedXml)),
        ] {
            assert_eq!(code(Operation::CreateBucket, &configuration(inner)), expected, "{inner}");
        }
        assert_eq!(code(Operation::DeleteObjects, "<Delete><Object><Key/></Object></Delete>"), None);
        assert_eq!(code(Operation::DeleteObjects, "<Delete><Never/></Delete>"), Some(ErrorCode::MalformedXml));
        assert_eq!(code(Operation::DeleteObjects, "<Tagging/>"), Some(ErrorCode::MalformedXml));
    }

    #[test]
    fn headers_of_other_operations_are_ignored_or_refused_and_never_read() {
        let copied = ("x-amz-copy-source", "/b/k");
        assert_eq!(checked(Operation::GetObject, &[V4, copied]), Err(ErrorCode::InvalidArgument));
        assert_eq!(checked(Operation::ListObjectsV2, &[V4, ("list-type", "3")]), Err(ErrorCode::InvalidArgument));
        assert_eq!(checked(Operation::ListObjectsV2, &[V4, ("list-type", "2")]), Ok(()));
        for name in ["x-amz-max-parts", "x-amz-website-redirect-location", "x-amz-grant-read"] {
            assert!(!valid(Operation::GetObject, name, "1"), "{name}");
            assert_eq!(checked(Operation::GetObject, &[V4, (name, "1")]), Err(ErrorCode::InvalidArgument), "{name}");
        }
        for operation in [Operation::GetObject, Operation::UploadPart, Operation::UploadPartCopy] {
            assert!(valid(operation, "x-amz-metadata-directive", "COPY"), "{operation:?}");
        }
        assert!(valid(Operation::GetObject, "x-amz-trailer", ""), "no trailer is announced");
        assert!(!valid(Operation::CompleteMultipartUpload, "x-amz-trailer", "x-amz-checksum-crc32"));
    }

    #[test]
    fn a_header_that_was_added_to_a_presigned_url_is_refused() {
        let query = [("X-Amz-SignedHeaders".to_owned(), "host;x-amz-meta-a".to_owned())];
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-meta-a", "1".parse().unwrap());
        check(Operation::PutObject, true, &query, &headers).unwrap();
        headers.insert("x-amz-meta-b", "1".parse().unwrap());
        assert_eq!(check(Operation::PutObject, true, &query, &headers).unwrap_err().code, ErrorCode::AccessDenied);
    }

    fn checked(operation: Operation, query: &[(&str, &str)]) -> Result<(), ErrorCode> {
        let owned: Vec<(String, String)> =
            query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let encoded: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let mut headers = HeaderMap::new();
        lift(&format!("/b/k?{encoded}").parse().unwrap(), &mut headers).map_err(|error| error.code)?;
        check(operation, true, &owned, &headers).map_err(|error| error.code)
    }

    const V4: (&str, &str) = ("X-Amz-SignedHeaders", "host");

    #[test]
    fn a_presigned_url_may_hold_headers_and_what_s3_does_not_define() {
        for (name, value) in [
            ("x-amz-checksum-mode", "ENABLED"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("x-amz-sdk-checksum-algorithm", "CRC32"),
            ("x-amz-meta-colour", "blue"),
            ("x-amz-acl", "private"),
            ("X-Amz-Storage-Class", "STANDARD"),
            ("x-amz-tagging", "a=b"),
            ("foo", "bar"),
            ("x-user", "1"),
        ] {
            for operation in [Operation::GetObject, Operation::HeadObject, Operation::PutObject, Operation::UploadPart]
            {
                assert_eq!(checked(operation, &[V4, (name, value)]), Ok(()), "{operation:?} {name}");
            }
        }
        for (name, value, code) in [
            ("X-Amz-Security-Token", "t", ErrorCode::InvalidToken),
            ("x-amz-server-side-encryption", "AES256", ErrorCode::InvalidArgument),
            ("x-amz-storage-class", "BOGUS", ErrorCode::InvalidStorageClass),
            ("x-amz-copy-source", "/b/k", ErrorCode::InvalidArgument),
            ("versionId", "1", ErrorCode::InvalidArgument),
            ("retention", "", ErrorCode::NotImplemented),
        ] {
            assert_eq!(checked(Operation::PutObject, &[V4, (name, value)]), Err(code), "{name}");
        }
    }

    #[test]
    fn a_header_beside_the_same_one_in_the_url_must_have_its_value() {
        let query = [V4, ("x-amz-meta-a", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-meta-a", "1".parse().unwrap());
        check(Operation::PutObject, true, &query, &headers).unwrap();
        headers.insert("x-amz-meta-a", "2".parse().unwrap());
        assert_eq!(check(Operation::PutObject, true, &query, &headers).unwrap_err().code, ErrorCode::AccessDenied);
    }

    #[test]
    fn a_url_of_version_2_expires_within_a_week() {
        let now = clock::since_epoch().as_secs();
        let until = |at: u64| checked(Operation::DeleteObject, &[("Signature", "s"), ("Expires", &at.to_string())]);
        assert_eq!(until(now + PRESIGNED_MAX_S), Ok(()));
        assert_eq!(until(now + PRESIGNED_MAX_S + 60), Err(ErrorCode::AuthorizationQueryParametersError));
        let listing = [("Signature", "s"), ("Expires", "1")];
        assert_eq!(checked(Operation::ListObjectsV2, &listing), Err(ErrorCode::NotImplemented));
    }

    #[test]
    fn version_2_in_a_header_is_refused_whatever_the_query_says() {
        let query = [("X-Amz-SignedHeaders".to_owned(), "host".to_owned())];
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "AWS key:signature".parse().unwrap());
        assert_eq!(check(Operation::GetObject, true, &query, &headers).unwrap_err().code, ErrorCode::InvalidRequest);
    }
}
