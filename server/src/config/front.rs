//! Settings of what listens beside and around S3: TLS and `/metrics`.

use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The certificate of S3. Both or none; paths are relative to the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The file of the certificate chain, in PEM.
    pub certificate: Option<PathBuf>,
    /// The file of its private key, in PEM.
    pub key: Option<PathBuf>,
}

impl TlsConfig {
    /// The files of certificate and key, if S3 is served over TLS.
    pub fn files(&self) -> Option<(PathBuf, PathBuf)> {
        self.certificate.clone().zip(self.key.clone())
    }

    /// The scheme of the server's URLs.
    pub fn scheme(&self) -> &'static str {
        if self.files().is_some() { "https" } else { "http" }
    }

    /// Why the two do not make sense together, if they do not.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        (self.certificate.is_some() != self.key.is_some())
            .then_some("needs both `certificate` and `key`; write both, or none for no TLS")
    }
}

/// `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Where it is served, over plain HTTP; port 0 is any free one. `None` is nowhere.
    pub listen: Option<SocketAddr>,
}
