//! TLS of the listener: a certificate that can be replaced while connections are open.
//!
//! Cryptography is `ring`'s; TLS 1.2 and 1.3, HTTP/1.1 alone. Invariants:
//! - A [`Tls`] that exists has a certificate chain and the key that belongs to it; what does not fit is refused and
//!   changes nothing.
//! - A connection keeps what it began with. One that begins after a replacement gets the new certificate, resumed
//!   sessions included: what can be resumed goes with the certificate it was made under.

use crate::stall::StallGuard;
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Why a certificate and a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate's file holds none that can be read.
    #[error(
        "the certificate cannot be read: {0}; it must be PEM, the server's own first and those that signed it after"
    )]
    Certificate(String),
    /// The key's file holds none that can be read.
    #[error("the key cannot be read: {0}; it must be PEM (PKCS#8, PKCS#1 or SEC1) and not encrypted")]
    Key(pem::Error),
    /// They do not fit together, or are of a kind that cannot be used.
    #[error("they cannot be used: {0}; the key must be that of the first certificate, RSA, ECDSA or Ed25519")]
    Unusable(rustls::Error),
}

/// The certificate of a listener.
pub struct Tls {
    current: Mutex<Arc<ServerConfig>>,
}

impl Tls {
    /// TLS with the certificate chain and the key in these PEM texts.
    ///
    /// # Errors
    /// [`TlsError`], with its mend.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { current: Mutex::new(config(certificate, key)?) })
    }

    /// Uses these from the next connection on.
    ///
    /// # Errors
    /// [`TlsError`]; then the old ones stay in use.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let new = config(certificate, key)?;
        *self.current.lock() = new;
        Ok(())
    }

    /// Shakes hands with the client behind `stream`.
    pub(crate) async fn accept(&self, stream: StallGuard) -> io::Result<Transport> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.current.lock()));
        Ok(Transport::Tls(Box::new(acceptor.accept(stream).await?)))
    }
}

fn config(certificate: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let unreadable = |error: pem::Error| TlsError::Certificate(error.to_string());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().map_err(unreadable)?;
    if chain.is_empty() {
        return Err(TlsError::Certificate("there is none in it".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Unusable)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A connection with or without TLS. The guard is below TLS, so that it sees what the client really takes.
pub(crate) enum Transport {
    Plain(StallGuard),
    Tls(Box<TlsStream<StallGuard>>),
}

/// Calls a method of whatever stream it is.
macro_rules! on_stream {
    ($transport:expr, $stream:ident => $call:expr) => {
        match $transport.get_mut() {
            Transport::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Transport::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_shutdown(cx))
    }
}
