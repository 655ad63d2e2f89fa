//! The keys clients sign with, kept as lines a shell can read.

use super::{DataDirError, failed};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const ACCESS_KEY: &str = "export AWS_ACCESS_KEY_ID=";
const SECRET_KEY: &str = "export AWS_SECRET_ACCESS_KEY=";
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
    /// Without the secret: what is printed ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Fresh keys. The alphabets have powers of two of characters, so that each is as likely as any other.
    pub(crate) fn random() -> Result<Self, DataDirError> {
        let access: [u8; 16] = random()?;
        let secret: [u8; 40] = random()?;
        let access = access.map(|byte| char::from(ACCESS_ALPHABET[usize::from(byte % 32)]));
        let secret = secret.map(|byte| char::from(SECRET_ALPHABET[usize::from(byte % 64)]));
        Ok(Self { access_key: format!("LRDR{}", String::from_iter(access)), secret_key: String::from_iter(secret) })
    }

    /// The file's text: lines to be sourced by a shell.
    pub(super) fn to_text(&self) -> String {
        format!("{ACCESS_KEY}{}\n{SECRET_KEY}{}\n", self.access_key, self.secret_key)
    }

    /// The keys in the file `path`, whose text is `text`.
    pub(super) fn from_text(path: &Path, text: &str) -> Result<Self, DataDirError> {
        let value = |prefix: &str| {
            let value =
                text.lines().find_map(|line| line.trim().strip_prefix(prefix)).map(str::trim).unwrap_or_default();
            let sound = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
            sound
                .then(|| value.to_owned())
                .ok_or_else(|| DataDirError::damaged(path, format!("has no line `{prefix}...` with a key")))
        };
        warn_if_others_may_read(path);
        Ok(Self { access_key: value(ACCESS_KEY)?, secret_key: value(SECRET_KEY)? })
    }
}

/// Only a warning: some file systems know no permissions.
fn warn_if_others_may_read(path: &Path) {
    if path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        tracing::warn!("others may read {0}; mend it with `chmod 600 {0}`", path.display());
    }
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], DataDirError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| failed("drawing random bytes", io::Error::other(error.to_string())))?;
    Ok(bytes)
}
