//! Settings of the listeners: TLS and `/metrics`.

use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The certificate of S3. Both files or neither; paths are relative to the data directory.
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

    /// The reason that the two contradict each other, if they do.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        (self.certificate.is_some() != self.key.is_some())
            .then_some("needs both `certificate` and `key`; write both, or none for no TLS")
    }
}

/// `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Its address, over plain HTTP; port 0 is any free one. `None` is not served.
    pub listen: Option<SocketAddr>,
}
