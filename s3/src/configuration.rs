//! Bucket configurations that this store does not have. Reading one is answered as S3 answers for a bucket on which it
//! was never set; setting one is refused as not implemented.

use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::operation::CONFIGURATIONS;
use crate::request::S3Request;
use crate::response::{Answer, document, empty};
use http::StatusCode;
use s3s::dto::{
    GetBucketAccelerateConfigurationOutput, GetBucketLoggingOutput, GetBucketNotificationConfigurationOutput,
    GetBucketRequestPaymentOutput, GetBucketVersioningOutput, ListBucketAnalyticsConfigurationsOutput,
    ListBucketIntelligentTieringConfigurationsOutput, ListBucketInventoryConfigurationsOutput,
    ListBucketMetricsConfigurationsOutput, Payer,
};

/// Reads a configuration that was never set.
pub(crate) async fn get(front: &Frontend, request: &S3Request) -> Answer {
    front.owned_bucket(request).await?;
    let row = CONFIGURATIONS.iter().find(|row| request.query(row.0).is_some());
    let (name, _, missing) = row.copied().ok_or(ErrorCode::NotImplemented)?;
    match (missing, name) {
        (Some(code), _) => Err(code.into()),
        // A bucket has any number of these, each with an id.
        (None, "analytics" | "intelligent-tiering" | "inventory" | "metrics") if request.query("id").is_some() => {
            Err(ErrorCode::NoSuchConfiguration.into())
        }
        (None, "analytics") => document(&ListBucketAnalyticsConfigurationsOutput::default()),
        (None, "intelligent-tiering") => document(&ListBucketIntelligentTieringConfigurationsOutput::default()),
        (None, "inventory") => document(&ListBucketInventoryConfigurationsOutput::default()),
        (None, "metrics") => document(&ListBucketMetricsConfigurationsOutput::default()),
        (None, "accelerate") => document(&GetBucketAccelerateConfigurationOutput::default()),
        (None, "logging") => document(&GetBucketLoggingOutput::default()),
        (None, "notification") => document(&GetBucketNotificationConfigurationOutput::default()),
        (None, "requestPayment") => {
            document(&GetBucketRequestPaymentOutput { payer: Some(Payer::from_static(Payer::BUCKET_OWNER)) })
        }
        (None, "versioning") => document(&GetBucketVersioningOutput::default()),
        (None, _) => Err(ErrorResponse::not_implemented(&format!("The query parameter {name}"))),
    }
}

/// Deletes a configuration that was never set.
pub(crate) async fn delete(front: &Frontend, request: &S3Request) -> Answer {
    front.owned_bucket(request).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
