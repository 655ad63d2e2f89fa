//! TLS of the listener: a certificate that can be replaced while connections are open.
//!
//! Cryptography is `ring`'s; TLS 1.2 and 1.3, HTTP/1.1 alone. Invariants:
//! - A [`Tls`] always has a certificate chain and the key that belongs to it; a pair that does not fit is refused and
//!   changes nothing.
//! - A connection keeps the certificate it began with. A connection that begins after a replacement gets the new
//!   certificate, even if it resumes a session: sessions end with the certificate under which they were made.

use crate::stall::StallGuard;
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// The response to plain HTTP.
const PLAIN_HTTP: &str = "this is HTTPS; write https:// in the endpoint\n";
/// The most bytes of a request over plain HTTP that are read and discarded before its connection is closed.
const PLAIN_READ_MAX: u64 = 1024 * 1024;

/// The reason that a certificate and a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate's file holds no readable certificate.
    #[error(
        "the certificate cannot be read: {0}; it must be PEM, the server's own first and those that signed it after"
    )]
    Certificate(String),
    /// The key's file holds no readable key.
    #[error("the key cannot be read: {0}; it must be PEM (PKCS#8, PKCS#1 or SEC1) and not encrypted")]
    Key(pem::Error),
    /// They do not fit together, or are of an unsupported kind.
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
    /// [`TlsError`], with the way to fix it.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { current: Mutex::new(config(certificate, key)?) })
    }

    /// Uses these from the next connection on.
    ///
    /// # Errors
    /// [`TlsError`]; the old ones then stay in use.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let new = config(certificate, key)?;
        *self.current.lock() = new;
        Ok(())
    }

    /// Does the TLS handshake with the client of `stream`. A client that speaks plain HTTP gets a response that names
    /// HTTPS.
    ///
    /// # Errors
    /// Errors of the connection, and of a client that does not speak TLS.
    pub(crate) async fn accept(&self, stream: StallGuard) -> io::Result<Transport> {
        // A method begins with a letter; a handshake does not.
        if stream.first_byte().await?.is_some_and(|byte| byte.is_ascii_alphabetic()) {
            return refuse_plain(stream).await;
        }
        let acceptor = TlsAcceptor::from(Arc::clone(&self.current.lock()));
        Ok(Transport::Tls(Box::new(acceptor.accept(stream).await?)))
    }
}

/// Answers a request over plain HTTP. The bytes of the client are read before the connection is closed; otherwise the
/// system resets it, and the answer may be lost.
async fn refuse_plain(mut stream: StallGuard) -> io::Result<Transport> {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{PLAIN_HTTP}",
        PLAIN_HTTP.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut left = stream.take(PLAIN_READ_MAX);
    tokio::io::copy(&mut left, &mut tokio::io::sink()).await?;
    Err(io::Error::new(io::ErrorKind::InvalidData, "a client speaks plain HTTP"))
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

/// A connection with or without TLS. The guard is below TLS, so it sees what the client really takes.
pub(crate) enum Transport {
    Plain(StallGuard),
    Tls(Box<TlsStream<StallGuard>>),
}

/// Calls a method of the stream, of either kind.
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
