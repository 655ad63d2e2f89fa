//! The listener: connections, their time limits, and a shutdown that lets requests finish.

use crate::admission::Admission;
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::keys::AccessKeys;
use crate::refused::{Refused, SUMMARY_INTERVAL};
use crate::route::CatchAll;
use crate::stall::StallGuard;
use crate::tls::{Tls, Transport};
use crate::traffic::{ConnectionPermit, Traffic};
use futures::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use s3s::auth::{S3Auth, SecretKey};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Result};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Pause of the listener when the system has no socket for it.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// The maximum time for a TLS handshake; the `stall` limit applies if it is shorter.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Logs a summary of the refused requests, if any.
fn log_refused(refused: &Refused) {
    if let Some(summary) = refused.summary() {
        tracing::info!("requests refused in the last minute: {summary}");
    }
}

/// Serves S3 on `listener` until `shutdown` resolves, then lets the requests in flight continue for the grace time of
/// the limits. With `tls`, it accepts no connection without TLS.
///
/// This function and its parts are not generic, so the code that they instantiate of hyper and s3s is compiled once,
/// here.
///
/// # Errors
/// When the listener itself is no longer usable.
pub async fn serve(
    listener: TcpListener,
    front: Frontend,
    tls: Option<Arc<Tls>>,
    mut shutdown: BoxFuture<'_, ()>,
) -> io::Result<()> {
    let traffic = Arc::clone(&front.traffic);
    let admission = Arc::new(Admission::new(protocol(front), Arc::clone(&traffic)));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    // It outlives the iterations of the loop: dropping it while a connection waits for room would close that
    // connection.
    let mut accepting = Box::pin(accept(&listener, &traffic));
    let mut summaries = tokio::time::interval(SUMMARY_INTERVAL);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            _ = summaries.tick() => {
                log_refused(admission.refused());
                continue;
            }
            Some(_) = connections.join_next() => continue,
            accepted = &mut accepting => accepted?,
        };
        accepting.set(accept(&listener, &traffic));
        let Some((stream, permit)) = accepted else { continue };
        let permit = Arc::new(permit);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "answers may be delayed");
        }
        let stream = StallGuard::new(stream, &traffic);
        let (tls, watcher) = (tls.clone(), graceful.watcher());
        let connection = connection(Arc::clone(&admission), stream, tls, Arc::clone(&permit), watcher);
        connections.spawn(async move {
            tokio::select! {
                // A connection that ends early is the client's doing; its requests were answered as far as possible.
                ended = connection => tracing::trace!(?ended, "connection closed"),
                () = permit.evicted() => tracing::trace!("an idle connection made room for another"),
            }
        });
    }
    drop(accepting);
    drop(listener);
    if tokio::time::timeout(traffic.limits().grace, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests still in flight were cut off");
    }
    connections.shutdown().await;
    log_refused(admission.refused());
    Ok(())
}

/// The next connection, when there is room for it; `None` if the system refused it for now, or its peer has too many.
async fn accept(listener: &TcpListener, traffic: &Arc<Traffic>) -> io::Result<Option<(TcpStream, ConnectionPermit)>> {
    match listener.accept().await {
        Ok((stream, address)) => Ok(traffic.connect(address.ip()).await.map(|permit| (stream, permit))),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_REST).await;
            Ok(None)
        }
    }
}

async fn connection(
    admission: Arc<Admission>,
    stream: StallGuard,
    tls: Option<Arc<Tls>>,
    permit: Arc<ConnectionPermit>,
    watcher: Watcher,
) -> io::Result<()> {
    let limits = admission.traffic().limits();
    let stream = match tls {
        None => Transport::Plain(stream),
        Some(tls) => tokio::time::timeout(limits.stall.min(HANDSHAKE_MAX), tls.accept(stream)).await??,
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.stall).max_header_size(limits.head_bytes);
    let service = service_fn(move |request: Request<Incoming>| {
        let (admission, permit) = (Arc::clone(&admission), Arc::clone(&permit));
        async move { admission.serve(request, &permit).await }
    });
    watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await.map_err(io::Error::other)
}

/// The protocol library as used here: its verification of signatures, and one route for everything else.
fn protocol(front: Frontend) -> S3Service {
    let mut builder = S3ServiceBuilder::new(NoOperations);
    builder.set_auth(Secrets(Arc::clone(&front.keys)));
    if let Some(domain) = &front.domain {
        builder.set_host(domain.clone());
    }
    builder.set_route(CatchAll(Arc::new(front)));
    builder.build()
}

/// The library's own operations: none. [`CatchAll`] takes every request before it.
struct NoOperations;

impl S3 for NoOperations {}

/// The secrets for the verification of signatures.
struct Secrets(Arc<dyn AccessKeys>);

#[async_trait::async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let unknown = || ErrorResponse::from(ErrorCode::InvalidAccessKeyId).into();
        self.0.secret(access_key).map(SecretKey::from).ok_or_else(unknown)
    }
}
