//! `/users` of the admin API: who may sign requests. A secret is shown once, when it is made.

use super::answer::{Answer, json, parameter, refuse, uninterrupted};
use crate::users::{UserError, Users};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use std::sync::Arc;

/// Answers a request below `/users`.
pub(super) async fn answer(users: &Arc<Users>, request: &Request<Incoming>) -> Answer {
    let rotates = request.uri().path() != "/users";
    if request.method() == Method::GET && !rotates {
        return reported(users.list().await);
    }
    let name = parameter(request, "name").map(std::borrow::Cow::into_owned);
    let Some(name) = name else { return refuse(StatusCode::BAD_REQUEST, "write ?name=N behind it") };
    let (method, users) = (request.method().clone(), Arc::clone(users));
    uninterrupted(async move {
        match (method.as_str(), rotates) {
            ("POST", false) => reported(users.add(&name).await),
            ("POST", true) => reported(users.rotate(&name).await),
            ("DELETE", false) => reported(users.remove(&name).await),
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "GET, POST or DELETE /users, or POST /users/rotate"),
        }
    })
    .await
}

fn reported<T: Serialize>(result: Result<T, UserError>) -> Answer {
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
