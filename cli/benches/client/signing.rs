//! The parts of a signature of S3 (AWS Signature Version 4) for the clients of benchmarks.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::time::SystemTime;

/// HMAC-SHA-256.
pub fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// `20261121T083000Z`, from the date in HTTP's form.
pub fn amz_date() -> String {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let parts: Vec<&str> = date.split(' ').collect();
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == parts[2]).unwrap() + 1;
    format!("{}{month:02}{}T{}Z", parts[3], parts[1], parts[4].replace(':', ""))
}
