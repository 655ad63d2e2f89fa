//! `/repartition` of the admin API: jobs that rewrite records into partitions by another key.

use super::answer::{Answer, json, parameter, refuse, uninterrupted};
use crate::repartition::{JobError, JobReport, Repartitions};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;

/// Answers a request below `/repartition`.
pub(super) async fn answer(jobs: &Repartitions, request: &Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let new_job = parameter(request, "request").map(std::borrow::Cow::into_owned);
    let job = parameter(request, "job").and_then(|job| job.parse().ok());
    let (method, jobs) = (request.method().clone(), jobs.clone());
    uninterrupted(async move {
        match (path.as_str(), method, new_job, job) {
            ("/repartition", Method::GET, _, None) => match jobs.list().await {
                Ok(all) => json(StatusCode::OK, &all),
                Err(error) => reported(Err(error)),
            },
            ("/repartition", Method::GET, _, Some(job)) => reported(jobs.show(job).await),
            ("/repartition", Method::POST, Some(request), _) => match serde_json::from_str(&request) {
                Ok(request) => reported(jobs.ask(request).await),
                Err(error) => refuse(StatusCode::BAD_REQUEST, &format!("the request cannot be read: {error}")),
            },
            ("/repartition/pause", Method::POST, _, Some(job)) => reported(jobs.pause(job).await),
            ("/repartition/resume", Method::POST, _, Some(job)) => reported(jobs.resume(job).await),
            ("/repartition/cancel", Method::POST, _, Some(job)) => reported(jobs.cancel(job).await),
            _ => refuse(
                StatusCode::BAD_REQUEST,
                "GET /repartition[?job=N], POST /repartition?request=JSON, POST /repartition/pause?job=N, \
                 /repartition/resume?job=N or /repartition/cancel?job=N",
            ),
        }
    })
    .await
}

fn reported(result: Result<JobReport, JobError>) -> Answer {
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
