//! `/users` of the admin API: who may sign requests. A secret is shown once, when it is made.

use super::answer::{Body, json, parameter, refuse, uninterrupted};
use crate::users::Users;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use std::sync::Arc;

/// Answers a request below `/users`.
pub(super) async fn answer(users: &Arc<Users>, request: &Request<Incoming>) -> Body {
    let rotates = request.uri().path() != "/users";
    if request.method() == Method::GET && !rotates {
        return json(&users.list().await?);
    }
    let Some(name) = parameter(request, "name") else {
        return refuse(StatusCode::BAD_REQUEST, "write ?name=N behind it");
    };
    let (method, users) = (request.method().clone(), Arc::clone(users));
    uninterrupted(async move {
        match (method.as_str(), rotates) {
            ("POST", false) => json(&users.add(&name).await?),
            ("POST", true) => json(&users.rotate(&name).await?),
            ("DELETE", false) => json(&users.remove(&name).await?),
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "GET, POST or DELETE /users, or POST /users/rotate"),
        }
    })
    .await
}
