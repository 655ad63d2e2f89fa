//! `/repartition` of the admin API: jobs that rewrite records into partitions by another key.

use super::answer::{Body, json, parameter, refuse, uninterrupted};
use crate::repartition::Repartitions;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;

/// Answers a request below `/repartition`.
pub(super) async fn answer(jobs: &Repartitions, request: &Request<Incoming>) -> Body {
    let path = request.uri().path().to_owned();
    let new_job = parameter(request, "request");
    let job = parameter(request, "job").and_then(|job| job.parse().ok());
    let (method, jobs) = (request.method().clone(), jobs.clone());
    uninterrupted(async move {
        match (path.as_str(), method, new_job, job) {
            ("/repartition", Method::GET, _, None) => json(&jobs.list().await?),
            ("/repartition", Method::GET, _, Some(job)) => json(&jobs.show(job).await?),
            ("/repartition", Method::POST, Some(request), _) => match serde_json::from_str(&request) {
                Ok(request) => json(&jobs.ask(request).await?),
                Err(error) => refuse(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}")),
            },
            ("/repartition/pause", Method::POST, _, Some(job)) => json(&jobs.pause(job).await?),
            ("/repartition/resume", Method::POST, _, Some(job)) => json(&jobs.resume(job).await?),
            ("/repartition/cancel", Method::POST, _, Some(job)) => json(&jobs.cancel(job).await?),
            _ => refuse(
                StatusCode::BAD_REQUEST,
                "GET /repartition[?job=N], POST /repartition?request=JSON, POST /repartition/pause?job=N, \
                 /repartition/resume?job=N or /repartition/cancel?job=N",
            ),
        }
    })
    .await
}
