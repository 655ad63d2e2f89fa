//! The files of S3's certificate: read at the start, and again when they change or when the operator sends SIGHUP.
//!
//! Unusable files are not taken: the certificate in use stays, and log and status give the reason until usable files
//! come. Files are looked at once in [`LOOK_INTERVAL`], and tried only if they differ from those tried last.

use crate::config::TlsConfig;
use crate::error::ServerError;
use crate::report::TlsStatus;
use disk::clock::wall_ms;
use parking_lot::Mutex;
use s3::{Tls, TlsError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;
use tokio::time::MissedTickBehavior;

/// The time between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);
/// The largest file of a certificate or key; a longer file is neither.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The permission bit that lets every user read a file.
const OTHERS_READ: u32 = 0o004;

/// The certificate in use, and its files.
pub(crate) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    tls: Arc<Tls>,
    state: Mutex<State>,
}

struct State {
    /// The files as they were tried last: certificate and key.
    tried: Option<(Vec<u8>, Vec<u8>)>,
    status: TlsStatus,
}

impl Certificate {
    /// The certificate of `config`, with paths relative to `directory`; `None` without TLS.
    ///
    /// # Errors
    /// When its files are unusable: there is no old certificate to stay with.
    pub fn open(config: &TlsConfig, directory: &Path) -> Result<Option<Arc<Self>>, ServerError> {
        let Some((certificate, key)) = config.files() else { return Ok(None) };
        let (certificate, key) = (directory.join(certificate), directory.join(key));
        let refused = |why: String| ServerError::Refused(format!("{why}; or take [tls] out of larder.toml"));
        let tried = read(&certificate, &key).map_err(refused)?;
        let tls = Tls::new(&tried.0, &tried.1).map_err(|error| refused(unusable(&certificate, &key, &error)))?;
        let status =
            TlsStatus { certificate: certificate.display().to_string(), loaded_ms: wall_ms(), ..TlsStatus::default() };
        let state = Mutex::new(State { tried: Some(tried), status });
        Ok(Some(Arc::new(Self { chain: certificate, key, tls: Arc::new(tls), state })))
    }

    /// The TLS of the listener.
    pub fn tls(&self) -> Arc<Tls> {
        Arc::clone(&self.tls)
    }

    /// The status for an operator.
    pub fn status(&self) -> TlsStatus {
        self.state.lock().status.clone()
    }

    /// Looks at the files, and uses them if they can be used and are not those tried last.
    pub fn look(&self) {
        let found = read(&self.chain, &self.key);
        let mut state = self.state.lock();
        if found.as_ref().is_ok_and(|found| state.tried.as_ref() == Some(found)) {
            return;
        }
        state.tried = found.as_ref().ok().cloned();
        let taken = found.and_then(|(certificate, key)| {
            self.tls.replace(&certificate, &key).map_err(|error| unusable(&self.chain, &self.key, &error))
        });
        match taken {
            Ok(()) => {
                tracing::info!("new connections get the new certificate in {}", self.chain.display());
                state.status.loaded_ms = wall_ms();
                state.status.reloads += 1;
                state.status.problem = None;
            }
            Err(why) => {
                if state.status.problem.as_ref() != Some(&why) {
                    tracing::error!("{why}; the previous certificate stays in use");
                }
                state.status.problem = Some(why);
            }
        }
    }
}

/// Looks at the files of `certificate`, if any, at intervals and at every one of `hangups`.
pub(crate) async fn watch(certificate: Option<Arc<Certificate>>, mut hangups: Signal) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick(), if certificate.is_some() => {}
            _ = hangups.recv() => tracing::info!("SIGHUP: {}", if certificate.is_some() {
                "reading the certificate again"
            } else {
                "there is no certificate to read again; larder.toml is read only at the start"
            }),
        }
        // A file system may be slow, and requests must not wait for it.
        if let Some(certificate) = certificate.clone() {
            let _ = tokio::task::spawn_blocking(move || certificate.look()).await;
        }
    }
}

fn unusable(certificate: &Path, key: &Path, error: &TlsError) -> String {
    format!("the certificate {} with the key {}: {error}", certificate.display(), key.display())
}

/// The bytes of both files.
fn read(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), String> {
    let one = |path: &Path| {
        let bytes = match std::fs::metadata(path) {
            Ok(data) if data.len() > FILE_BYTES_MAX => {
                Err(io::Error::other("it is too large for a certificate or key"))
            }
            Ok(data) if path == key && data.permissions().mode() & OTHERS_READ != 0 => {
                return Err(format!(
                    "the key {0} can be read by every user of this machine, so anyone could pose as this server; run \
                     `chmod o= {0}` (its group may read it), and get a new key if others may have read it",
                    path.display()
                ));
            }
            Ok(_) => std::fs::read(path),
            Err(error) => Err(error),
        };
        bytes.map_err(|error| {
            format!("{} cannot be read: {error}; put a PEM file there that the server can read", path.display())
        })
    };
    Ok((one(certificate)?, one(key)?))
}

#[cfg(test)]
mod tests;
