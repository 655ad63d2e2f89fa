//! `/repartition` of the admin API: jobs that bring records where another key wants them.

use super::{json, refuse};
use crate::repartition::{JobError, JobReport, Repartitions};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

/// Answers a request below `/repartition`.
pub(super) async fn answer(jobs: &Repartitions, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().as_bytes();
    let value =
        |name: &str| form_urlencoded::parse(query).find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let (asked, job) = (value("request"), value("job").and_then(|job| job.parse().ok()));
    let (method, jobs) = (request.method().clone(), jobs.clone());
    // In a task of its own: a change that has begun ends, whether or not somebody still listens.
    let task = tokio::spawn(async move {
        match (path.as_str(), method, asked, job) {
            ("/repartition", Method::GET, _, None) => match jobs.list().await {
                Ok(all) => json(StatusCode::OK, &all),
                Err(error) => told(Err(error)),
            },
            ("/repartition", Method::GET, _, Some(job)) => told(jobs.show(job).await),
            ("/repartition", Method::POST, Some(asked), _) => match serde_json::from_str(&asked) {
                Ok(asked) => told(jobs.ask(asked).await),
                Err(error) => refuse(StatusCode::BAD_REQUEST, &format!("the request cannot be read: {error}")),
            },
            ("/repartition/pause", Method::POST, _, Some(job)) => told(jobs.pause(job).await),
            ("/repartition/resume", Method::POST, _, Some(job)) => told(jobs.resume(job).await),
            ("/repartition/cancel", Method::POST, _, Some(job)) => told(jobs.cancel(job).await),
            _ => refuse(
                StatusCode::BAD_REQUEST,
                "GET /repartition[?job=N], POST /repartition?request=JSON, POST /repartition/pause?job=N, \
                 /repartition/resume?job=N or /repartition/cancel?job=N",
            ),
        }
    });
    task.await.unwrap_or_else(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
}

fn told(result: Result<JobReport, JobError>) -> Response<Full<Bytes>> {
    match result {
        Ok(report) => json(StatusCode::OK, &report),
        Err(error) => {
            let status = match &error {
                JobError::Unknown(_) => StatusCode::NOT_FOUND,
                JobError::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
                JobError::Catalog(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            refuse(status, &error.to_string())
        }
    }
}
