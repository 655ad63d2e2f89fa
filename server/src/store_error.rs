//! Errors of catalog, workshop and rack, mapped to those of the S3 frontend.

use crate::recall::RecallError;
use crate::refusals::Why;
use catalog::CatalogError;
use disk::DriveError;
use engine::Rejection;
use s3::store::ServiceError;
use std::time::Duration;
use workshop::StageError;

pub(crate) fn catalog_error(error: CatalogError) -> ServiceError {
    match error {
        CatalogError::NoSuchBucket => ServiceError::NoSuchBucket,
        CatalogError::NoSuchKey => ServiceError::NoSuchKey,
        CatalogError::NoSuchUpload => ServiceError::NoSuchUpload,
        CatalogError::NoSuchPart(number) => ServiceError::NoSuchPart(number),
        CatalogError::BucketExists => ServiceError::BucketExists { owned_by_you: false },
        CatalogError::BucketNotEmpty => ServiceError::BucketNotEmpty,
        CatalogError::PreconditionFailed => ServiceError::PreconditionFailed,
        CatalogError::Conflict => {
            ServiceError::SlowDown { retry_after_s: 1, reason: "too many writers of the same key".into() }
        }
        // A user who was removed while creating a bucket signed with a key that is no longer valid.
        CatalogError::NoSuchAccessKey | CatalogError::NoSuchUser => ServiceError::NoSuchAccessKey,
        CatalogError::Damaged(_) => ServiceError::Damaged(error.to_string()),
        error => ServiceError::Unavailable { reason: error.to_string() },
    }
}

/// Seconds to wait before trying again.
fn retry_after_s(wait: Duration) -> u32 {
    wait.as_secs_f64().ceil().clamp(1.0, 3600.0) as u32
}

pub(crate) fn workshop_full(full: &workshop::Full) -> ServiceError {
    let workshop::Full { wanted_bytes, capacity_bytes, .. } = *full;
    match full.retry_after {
        Some(wait) => {
            ServiceError::SlowDown { retry_after_s: retry_after_s(wait), reason: "the workshop is full".into() }
        }
        None => ServiceError::TooLarge {
            reason: format!(
                "The object takes {wanted_bytes} bytes of the workshop, which holds {capacity_bytes} \
                 (workshop.capacity in larder.toml). Make the workshop larger to store it."
            ),
        },
    }
}

pub(crate) fn stage_error(error: StageError) -> ServiceError {
    match error {
        StageError::Full(full) => workshop_full(&full),
        error => ServiceError::Unavailable { reason: error.to_string() },
    }
}

pub(crate) fn damaged(error: &workshop::ReadError) -> ServiceError {
    let is_for_good = matches!(error, workshop::ReadError::Drive(DriveError::Medium { .. }));
    if is_for_good || error.slot().is_some() {
        return ServiceError::Damaged(error.to_string());
    }
    ServiceError::Unavailable { reason: error.to_string() }
}

pub(crate) fn recall_error(error: RecallError) -> ServiceError {
    match error {
        RecallError::TooLong(wait) => ServiceError::SlowDown {
            retry_after_s: retry_after_s(wait),
            reason: "the object is cold and is being recalled".into(),
        },
        RecallError::SpoolFull(full) => ServiceError::SlowDown {
            retry_after_s: full.retry_after.map_or(3600, retry_after_s),
            reason: "too many recalls at once".into(),
        },
        RecallError::Refused(Rejection::DataLost) | RecallError::Before(Why::Rack(Rejection::DataLost)) => {
            ServiceError::DataLost { what: Rejection::DataLost.text().into() }
        }
        RecallError::Before(why) => {
            ServiceError::Unavailable { reason: format!("the last recall of the object failed: {why}") }
        }
        RecallError::Refused(reason) => match reason.retry_after() {
            Some(wait) => ServiceError::SlowDown { retry_after_s: retry_after_s(wait), reason: reason.text().into() },
            None => ServiceError::Unavailable { reason: reason.text().into() },
        },
        RecallError::Spool(reason) => ServiceError::Unavailable { reason },
    }
}
