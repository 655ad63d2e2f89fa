//! The listener: connections, their time limits, and a shutdown that lets requests finish.

use super::error::Code;
use super::gate::Gate;
use super::parallel_md5::Md5Workers;
use super::route::Route;
use super::stall::StallGuard;
use super::traffic::{Connected, Traffic};
use super::{Domain, Keys, ObjectStore};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use s3s::auth::{S3Auth, SecretKey};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Result};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Completions of uploads at once. Each holds what is known of up to 10,000 parts, a few MiB; others wait.
const COMPLETING: usize = 4;
/// How long the listener rests when the system has no socket for it.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Serves S3 on `listener`, with subdomains of `domain` as buckets, until `shutdown` is done, then lets the requests
/// in flight go on for the grace time of the limits that `traffic` keeps to.
///
/// # Errors
/// When the listener itself is no longer usable.
pub async fn serve(
    listener: TcpListener,
    store: Arc<dyn ObjectStore>,
    keys: Arc<dyn Keys>,
    traffic: Arc<Traffic>,
    domain: Option<Domain>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let limits = traffic.limits().clone();
    let gate = Arc::new(Gate::new(protocol(store, keys, &traffic, domain), Arc::clone(&traffic)));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &traffic) => accepted?,
        };
        let Some((stream, connected)) = accepted else { continue };
        let connected = Arc::new(connected);
        let connection = connection(&gate, stream, &connected, &graceful);
        connections.spawn(async move {
            tokio::select! {
                // What ends a connection early is the client's business, and was answered as far as it could be.
                ended = connection => tracing::trace!(?ended, "connection closed"),
                () = connected.evicted() => tracing::trace!("an idle connection made room for another"),
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.grace, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests still in flight were cut off");
    }
    connections.shutdown().await;
    Ok(())
}

/// The next connection, when there is room for it; nothing if the system refused it for now, or its peer has too many.
async fn accept(listener: &TcpListener, traffic: &Arc<Traffic>) -> io::Result<Option<(TcpStream, Connected)>> {
    match listener.accept().await {
        Ok((stream, address)) => Ok(traffic.connect(address.ip()).await.map(|connected| (stream, connected))),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_REST).await;
            Ok(None)
        }
    }
}

fn connection(
    gate: &Arc<Gate>,
    stream: TcpStream,
    connected: &Arc<Connected>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = hyper::Result<()>> + Send + 'static {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "answers may be delayed");
    }
    let stream = StallGuard::new(stream, gate.traffic());
    let limits = gate.traffic().limits().clone();
    let (gate, connected) = (gate.clone(), connected.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (gate, connected) = (gate.clone(), connected.clone());
        async move { gate.serve(request, &connected).await }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.stall).max_header_size(limits.head_bytes);
    graceful.watch(builder.serve_connection(TokioIo::new(stream), service))
}

/// The protocol library, with everything routed to us.
fn protocol(
    store: Arc<dyn ObjectStore>,
    keys: Arc<dyn Keys>,
    traffic: &Arc<Traffic>,
    domain: Option<Domain>,
) -> S3Service {
    let mut builder = S3ServiceBuilder::new(Nothing);
    builder.set_auth(Secrets(keys.clone()));
    if let Some(domain) = &domain {
        builder.set_host(domain.clone());
    }
    let completing = Semaphore::new(COMPLETING);
    let (limits, traffic) = (traffic.limits().clone(), Arc::clone(traffic));
    builder.set_route(Route { store, keys, limits, traffic, domain, md5: Md5Workers::new(), completing });
    builder.build()
}

/// The library's own idea of operations: none. [`Route`] takes every request before it.
struct Nothing;

impl S3 for Nothing {}

struct Secrets(Arc<dyn Keys>);

#[async_trait::async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let unknown = || super::error::Fault::from(Code::InvalidAccessKeyId).into();
        self.0.secret(access_key).map(SecretKey::from).ok_or_else(unknown)
    }
}
