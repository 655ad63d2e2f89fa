//! `/metrics`: the server's figures as text, for Prometheus and other scrapers, over plain HTTP on a separate address
//! (`metrics.listen` in larder.toml). On S3's address, `/metrics` is a bucket.
//!
//! ```text
//! GET /metrics     OpenMetrics 1.0 if `Accept` names it, else the text format of Prometheus; HEAD likewise
//! anything else    404 or 405
//! ```
//!
//! Invariants:
//! - A scrape asks the engine, the catalog and counters in memory, never a drive.
//! - The text names no bucket, key or user. Every client that reaches the address can read it: there are no keys.
//! - At most `CONNECTIONS_MAX` connections, one request each, and no longer than `CONNECTION_LIMIT`. A new connection
//!   beyond that replaces the oldest one without a request; if all have sent one, it waits. So idle connections cannot
//!   block a scrape.

mod classic;
mod page;

use crate::admin::{Admin, AdminError};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Concurrent connections.
const CONNECTIONS_MAX: usize = 16;
/// The longest that a connection may take, in wall time.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// Pause after the system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The content type of OpenMetrics 1.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text format of Prometheus.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves `/metrics` of `admin`'s server on `listener`, until it is dropped.
pub async fn serve(listener: TcpListener, admin: Arc<impl Admin>) {
    let mut connections = JoinSet::new();
    // Connections without a request, the oldest first.
    let mut silent: VecDeque<(AbortHandle, Arc<AtomicBool>)> = VecDeque::new();
    loop {
        silent.retain(|(connection, asked)| !connection.is_finished() && !asked.load(Ordering::Relaxed));
        let has_room = connections.len() < CONNECTIONS_MAX || !silent.is_empty();
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, _)) => {
                    if connections.len() >= CONNECTIONS_MAX
                        && let Some((oldest, _)) = silent.pop_front()
                    {
                        oldest.abort();
                        let _ = connections.join_next().await;
                    }
                    let asked = Arc::new(AtomicBool::new(false));
                    let connection = serve_connection(stream, Arc::clone(&admin), Arc::clone(&asked));
                    silent.push_back((connections.spawn(connection), asked));
                }
                Err(error) => {
                    tracing::warn!(%error, "/metrics takes no connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Serves a connection; sets `asked` when its request arrives.
async fn serve_connection(stream: TcpStream, admin: Arc<impl Admin>, asked: Arc<AtomicBool>) {
    let service = service_fn(move |request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let admin = Arc::clone(&admin);
        async move { Ok::<_, Infallible>(answer(&*admin, &request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_LIMIT, connection).await {
        tracing::debug!(%error, "a scrape broke");
    }
}

async fn answer<B>(admin: &impl Admin, request: &Request<B>) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    let (status, kind, text) = match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET | &Method::HEAD) => match scrape(admin).await {
            Ok(text) if takes_open_metrics(request) => (StatusCode::OK, OPEN_METRICS, text),
            Ok(text) => (StatusCode::OK, CLASSIC, classic::text(&text)),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, plain, format!("{error}\n")),
        },
        ("/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, plain, "only GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, plain, "there is /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// True if the client accepts OpenMetrics. Prometheus does; other clients may know only the older format.
fn takes_open_metrics<B>(request: &Request<B>) -> bool {
    let mut accepted = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|accepted| accepted.contains("application/openmetrics-text"))
}

/// The current figures, as OpenMetrics text.
///
/// # Errors
/// When the server is stopping.
pub async fn scrape(admin: &impl Admin) -> Result<String, AdminError> {
    let (status, drives) = (admin.status().await?, admin.drives().await?);
    page::text(status, drives).map_err(|error| AdminError::Because(format!("the metrics cannot be written: {error}")))
}
