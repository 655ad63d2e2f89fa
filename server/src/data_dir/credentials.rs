//! The keys that clients sign with, and the server's endpoint, stored as lines that a shell can read.

use super::error::{DataDirError, damaged, failed};
use s3::REGION;
use std::fmt;
use std::fs::{Permissions, set_permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const ACCESS_KEY: &str = "export AWS_ACCESS_KEY_ID=";
const SECRET_KEY: &str = "export AWS_SECRET_ACCESS_KEY=";
const REGION_LINE: &str = "export AWS_DEFAULT_REGION=";
const ENDPOINT: &str = "export AWS_ENDPOINT_URL=";
const ACCESS_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const SECRET_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// An access key and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// 20 letters and digits.
    pub access_key: String,
    /// 40 characters, 240 bits.
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    /// Without the secret: printed values end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Fresh keys. The size of each alphabet is a power of two, so every character is equally likely.
    pub(crate) fn random() -> Result<Self, DataDirError> {
        let access: [u8; 16] = random()?;
        let secret: [u8; 40] = random()?;
        let access = access.map(|byte| char::from(ACCESS_ALPHABET[usize::from(byte % 32)]));
        let secret = secret.map(|byte| char::from(SECRET_ALPHABET[usize::from(byte % 64)]));
        let fresh =
            Self { access_key: format!("LRDR{}", String::from_iter(access)), secret_key: String::from_iter(secret) };
        assert_eq!((fresh.access_key.len(), fresh.secret_key.len()), (20, 40), "keys are as long as clients expect");
        Ok(fresh)
    }

    /// The text of the file: lines to be sourced by a shell, for a server on `listen`.
    pub(super) fn to_text(&self, listen: SocketAddr) -> String {
        let keys = format!("{ACCESS_KEY}{}\n{SECRET_KEY}{}\n{REGION_LINE}{REGION}\n", self.access_key, self.secret_key);
        match listen.port() {
            0 => format!(
                "{keys}# AWS_ENDPOINT_URL is another one at every start, which prints it: the port is a free one\n"
            ),
            _ => format!("{keys}{ENDPOINT}{}\n", endpoint("http", listen)),
        }
    }

    /// The text `old` with its keys replaced by these.
    pub(super) fn in_place_of(&self, old: &str) -> String {
        let lines = old.lines().filter(|line| ![ACCESS_KEY, SECRET_KEY].iter().any(|key| line.trim().starts_with(key)));
        let keys = [format!("{ACCESS_KEY}{}", self.access_key), format!("{SECRET_KEY}{}", self.secret_key)];
        let all: Vec<&str> = keys.iter().map(String::as_str).chain(lines).collect();
        all.join("\n") + "\n"
    }

    /// The keys in the file `path`, whose text is `text`.
    pub(super) fn from_text(path: &Path, text: &str) -> Result<Self, DataDirError> {
        let value = |prefix: &str| {
            let value =
                text.lines().find_map(|line| line.trim().strip_prefix(prefix)).map(str::trim).unwrap_or_default();
            let sound = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
            sound
                .then(|| value.to_owned())
                .ok_or_else(|| damaged(path, format!("has no line `{prefix}...` with a key")))
        };
        close_to_others(path);
        Ok(Self { access_key: value(ACCESS_KEY)?, secret_key: value(SECRET_KEY)? })
    }
}

/// The URL at which clients on this machine reach a server on `address`; `scheme` is `http` or `https`.
pub fn endpoint(scheme: &str, address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

/// The endpoint in the file's text.
pub(super) fn stored_endpoint(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.trim().strip_prefix(ENDPOINT)).map(|endpoint| endpoint.trim().to_owned())
}

/// Removes others' right to read the keys, with a warning. On a file system without permissions there is only the
/// warning.
fn close_to_others(path: &Path) {
    let is_open = || path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0);
    if !is_open() {
        return;
    }
    if set_permissions(path, Permissions::from_mode(0o600)).is_err() || is_open() {
        tracing::warn!("others may read {0}; run `chmod 600 {0}`", path.display());
    } else {
        tracing::warn!(
            "others could read {}, and no longer can; rotate the keys if others may have read them",
            path.display()
        );
    }
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], DataDirError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| failed("drawing random bytes", io::Error::other(error.to_string())))?;
    Ok(bytes)
}
