//! `/users` of the admin API: who may sign requests. Secrets are told once, when they are made.

use super::{json, refuse};
use crate::users::{UserError, Users};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde::Serialize;
use std::sync::Arc;

/// Answers a request below `/users`.
pub(super) async fn answer(users: &Arc<Users>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let rotates = request.uri().path() != "/users";
    if request.method() == Method::GET && !rotates {
        return told(users.list().await);
    }
    let query = request.uri().query().unwrap_or_default().as_bytes();
    let name = form_urlencoded::parse(query).find(|(name, _)| name == "name").map(|(_, value)| value.into_owned());
    let Some(name) = name else { return refuse(StatusCode::BAD_REQUEST, "write ?name=N behind it") };
    let (method, users) = (request.method().clone(), Arc::clone(users));
    // In a task of its own: a change that has begun ends, whether or not somebody still listens.
    let task = tokio::spawn(async move {
        match (method.as_str(), rotates) {
            ("POST", false) => told(users.add(&name).await),
            ("POST", true) => told(users.rotate(&name).await),
            ("DELETE", false) => told(users.remove(&name).await),
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "GET, POST or DELETE /users, or POST /users/rotate"),
        }
    });
    task.await.unwrap_or_else(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
}

fn told<T: Serialize>(result: Result<T, UserError>) -> Response<Full<Bytes>> {
    let error = match result {
        Ok(value) => return json(StatusCode::OK, &value),
        Err(error) => error,
    };
    let status = match &error {
        UserError::BadName(_) => StatusCode::BAD_REQUEST,
        UserError::Exists(_) | UserError::Root | UserError::OwnsBuckets { .. } | UserError::TooMany => {
            StatusCode::CONFLICT
        }
        UserError::Unknown(_) => StatusCode::UNPROCESSABLE_ENTITY,
        UserError::Catalog(_) | UserError::Credentials(_) => {
            tracing::error!(%error, "the users could not be changed");
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    refuse(status, &error.to_string())
}
