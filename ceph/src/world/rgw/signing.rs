//! AWS Signature Version 4 of a request with a signed payload, without a query or with one in canonical order.

use hmac::{Hmac, KeyInit, Mac};
use http::header::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

/// Characters that are encoded in a canonical query; a path keeps its slashes as well.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// The credentials of a client.
#[derive(Clone)]
pub struct Keys {
    /// The access key.
    pub access: String,
    /// The secret key.
    pub secret: String,
    /// The region, `us-east-1` for RGW.
    pub region: String,
}

/// A path in the form that a request and its signature use.
pub fn path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// A query in the form that a request and its signature use.
pub fn query(parameters: &[(&str, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
    let mut parts: Vec<_> = parameters.iter().map(|(name, value)| (encoded(name), encoded(value))).collect();
    parts.sort();
    parts.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// SHA-256 in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(Sha256::digest(bytes), hex_simd::AsciiCase::Lower)
}

fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!("every length is a key"));
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// The `authorization` of a request with these `headers`, all of which are signed; `host`, `x-amz-date` and
/// `x-amz-content-sha256` are among them. `target` is path and query as they are sent.
pub fn authorization(keys: &Keys, method: &str, target: &str, headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (date, payload) = (text("x-amz-date"), text("x-amz-content-sha256"));
    assert!(date.len() == 16 && !payload.is_empty(), "a signed request has a date and the digest of its payload");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let mut canonical = format!("{method}\n{path}\n{query}\n").into_bytes();
    for name in &names {
        let values: Vec<&[u8]> = headers.get_all(*name).iter().map(|value| value.as_bytes().trim_ascii()).collect();
        canonical.extend_from_slice(name.as_bytes());
        canonical.push(b':');
        canonical.extend_from_slice(&values.join(&b','));
        canonical.push(b'\n');
    }
    let names = names.join(";");
    canonical.extend_from_slice(format!("\n{names}\n{payload}").as_bytes());
    let scope = format!("{}/{}/s3/aws4_request", &date[..8], keys.region);
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", digest(&canonical));
    let secret = format!("AWS4{}", keys.secret).into_bytes();
    let key = scope.split('/').fold(secret, |key, part| hmac(&key, part.as_bytes()));
    let signature = hex_simd::encode_to_string(hmac(&key, to_sign.as_bytes()), hex_simd::AsciiCase::Lower);
    format!("AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", keys.access)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HeaderValue;

    /// "GET Bucket Lifecycle" of *Signature Calculations for the Authorization Header* in AWS's documentation of S3.
    #[test]
    fn the_example_of_the_documentation_is_signed_as_it_says() {
        let keys = Keys {
            access: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        };
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("examplebucket.s3.amazonaws.com"));
        headers.insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
        headers.insert("x-amz-content-sha256", HeaderValue::from_static(empty));
        let target = format!("/?{}", query(&[("lifecycle", "")]));
        let signed = authorization(&keys, "GET", &target, &headers);
        let expected = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        assert!(signed.ends_with(&format!("Signature={expected}")), "{signed}");
    }

    #[test]
    fn names_are_encoded_as_a_signature_wants_them() {
        assert_eq!(path("/b/a b+ü/~_-."), "/b/a%20b%2B%C3%BC/~_-.");
        assert_eq!(query(&[("start-after", "a/b"), ("list-type", "2")]), "list-type=2&start-after=a%2Fb");
    }
}
