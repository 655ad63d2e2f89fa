//! What S3 lets a bucket's owner configure and this store does not have: answered as S3 answers for a bucket on which
//! none of it was ever set, which is what it is. Setting any of it is refused as not implemented.

use super::ask::Ask;
use super::error::{Code, Fault};
use super::route::{Answer, Route, empty, xml};
use http::StatusCode;
use s3s::dto::{
    GetBucketAccelerateConfigurationOutput, GetBucketLoggingOutput, GetBucketNotificationConfigurationOutput,
    GetBucketRequestPaymentOutput, GetBucketVersioningOutput, Payer,
};

/// Parameters that name a configuration, with the code for one that is not there; without a code, there is a document
/// that says so.
const READ: [(&str, Option<Code>); 14] = [
    ("accelerate", None),
    ("cors", Some(Code::NoSuchCorsConfiguration)),
    ("encryption", Some(Code::ServerSideEncryptionConfigurationNotFoundError)),
    ("lifecycle", Some(Code::NoSuchLifecycleConfiguration)),
    ("logging", None),
    ("notification", None),
    ("object-lock", Some(Code::ObjectLockConfigurationNotFoundError)),
    ("policy", Some(Code::NoSuchBucketPolicy)),
    ("policyStatus", Some(Code::NoSuchBucketPolicy)),
    ("publicAccessBlock", Some(Code::NoSuchPublicAccessBlockConfiguration)),
    ("replication", Some(Code::ReplicationConfigurationNotFoundError)),
    ("requestPayment", None),
    ("versioning", None),
    ("website", Some(Code::NoSuchWebsiteConfiguration)),
];

/// Those of them that can be deleted, which is well if they are not there.
const DELETED: [&str; 7] = ["cors", "encryption", "lifecycle", "policy", "publicAccessBlock", "replication", "website"];

/// Whether a query parameter names a configuration that can be asked for.
pub(super) fn can_be_read(name: &str) -> bool {
    READ.iter().any(|row| row.0 == name)
}

/// Whether a query parameter names a configuration that can be deleted.
pub(super) fn can_be_deleted(name: &str) -> bool {
    DELETED.contains(&name)
}

/// Answers a configuration that was never made.
pub(super) async fn get(route: &Route, ask: &Ask) -> Answer {
    route.owned_bucket(ask).await?;
    let row = READ.iter().find(|row| ask.query(row.0).is_some());
    let (name, missing) = row.copied().ok_or(Code::NotImplemented)?;
    match (missing, name) {
        (Some(code), _) => Err(code.into()),
        (None, "accelerate") => xml(&GetBucketAccelerateConfigurationOutput::default()),
        (None, "logging") => xml(&GetBucketLoggingOutput::default()),
        (None, "notification") => xml(&GetBucketNotificationConfigurationOutput::default()),
        (None, "requestPayment") => {
            xml(&GetBucketRequestPaymentOutput { payer: Some(Payer::from_static(Payer::BUCKET_OWNER)) })
        }
        (None, "versioning") => xml(&GetBucketVersioningOutput::default()),
        (None, _) => Err(Fault::not_implemented(&format!("The query parameter {name}"))),
    }
}

/// Deletes a configuration that was never made.
pub(super) async fn delete(route: &Route, ask: &Ask) -> Answer {
    route.owned_bucket(ask).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
