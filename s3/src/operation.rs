//! The operations that are served, and which of them a request asks for.

use crate::error::{ErrorCode, ErrorResponse};
use http::{HeaderMap, Method};
use s3s::path::S3Path;

/// The operations that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    ListBuckets,
    CreateBucket,
    HeadBucket,
    GetBucketLocation,
    DeleteBucket,
    ListObjects,
    ListObjectsV2,
    DeleteObjects,
    PutObject,
    GetObject,
    HeadObject,
    DeleteObject,
    GetBucketAcl,
    PutBucketAcl,
    GetBucketTagging,
    PutBucketTagging,
    DeleteBucketTagging,
    GetBucketOwnershipControls,
    PutBucketOwnershipControls,
    DeleteBucketOwnershipControls,
    /// A bucket configuration that this store does not have, so that it is never set.
    GetConfiguration,
    DeleteConfiguration,
    ListObjectVersions,
    GetObjectAcl,
    PutObjectAcl,
    GetObjectTagging,
    PutObjectTagging,
    DeleteObjectTagging,
    GetObjectAttributes,
    CopyObject,
    CreateMultipartUpload,
    UploadPart,
    UploadPartCopy,
    CompleteMultipartUpload,
    AbortMultipartUpload,
    ListMultipartUploads,
    ListParts,
}

impl Operation {
    /// The operation that a request asks for.
    ///
    /// # Errors
    /// `NotImplemented` for any other.
    pub fn of(
        method: &Method,
        path: &S3Path,
        query: &[(String, String)],
        headers: &HeaderMap,
    ) -> Result<Self, ErrorResponse> {
        let operation = resolve(method, path, query).ok_or_else(|| {
            ErrorResponse::not_implemented(&match query.first() {
                Some((name, _)) => format!("The method {method} with the query parameter {name}"),
                None => format!("The method {method} on this path"),
            })
        })?;
        Ok(if headers.contains_key("x-amz-copy-source") { operation.of_copies() } else { operation })
    }

    /// The same operation if its bytes come from another object.
    fn of_copies(self) -> Self {
        match self {
            Self::PutObject => Self::CopyObject,
            Self::UploadPart => Self::UploadPartCopy,
            other => other,
        }
    }
}

/// Sub-resources of a bucket: method, query parameter, operation.
const OF_BUCKET: [(&str, &str, Operation); 13] = [
    ("GET", "acl", Operation::GetBucketAcl),
    ("PUT", "acl", Operation::PutBucketAcl),
    ("GET", "tagging", Operation::GetBucketTagging),
    ("PUT", "tagging", Operation::PutBucketTagging),
    ("DELETE", "tagging", Operation::DeleteBucketTagging),
    ("GET", "ownershipControls", Operation::GetBucketOwnershipControls),
    ("PUT", "ownershipControls", Operation::PutBucketOwnershipControls),
    ("DELETE", "ownershipControls", Operation::DeleteBucketOwnershipControls),
    ("GET", "versions", Operation::ListObjectVersions),
    ("GET", "location", Operation::GetBucketLocation),
    ("POST", "delete", Operation::DeleteObjects),
    ("GET", "uploads", Operation::ListMultipartUploads),
    ("GET", "list-type", Operation::ListObjectsV2),
];

/// Sub-resources of an object: method, query parameter, operation.
const OF_OBJECT: [(&str, &str, Operation); 11] = [
    ("GET", "acl", Operation::GetObjectAcl),
    ("PUT", "acl", Operation::PutObjectAcl),
    ("GET", "tagging", Operation::GetObjectTagging),
    ("PUT", "tagging", Operation::PutObjectTagging),
    ("DELETE", "tagging", Operation::DeleteObjectTagging),
    ("GET", "attributes", Operation::GetObjectAttributes),
    ("POST", "uploads", Operation::CreateMultipartUpload),
    ("POST", "uploadId", Operation::CompleteMultipartUpload),
    ("PUT", "uploadId", Operation::UploadPart),
    ("GET", "uploadId", Operation::ListParts),
    ("DELETE", "uploadId", Operation::AbortMultipartUpload),
];

/// Query parameters that name a configuration, with the error code for one that is not set. Without a code, S3 answers
/// with a document that says so.
pub(crate) const CONFIGURATIONS: [(&str, Option<ErrorCode>); 18] = [
    ("accelerate", None),
    ("analytics", None),
    ("cors", Some(ErrorCode::NoSuchCorsConfiguration)),
    ("encryption", Some(ErrorCode::ServerSideEncryptionConfigurationNotFoundError)),
    ("intelligent-tiering", None),
    ("inventory", None),
    ("lifecycle", Some(ErrorCode::NoSuchLifecycleConfiguration)),
    ("logging", None),
    ("metrics", None),
    ("notification", None),
    ("object-lock", Some(ErrorCode::ObjectLockConfigurationNotFoundError)),
    ("policy", Some(ErrorCode::NoSuchBucketPolicy)),
    ("policyStatus", Some(ErrorCode::NoSuchBucketPolicy)),
    ("publicAccessBlock", Some(ErrorCode::NoSuchPublicAccessBlockConfiguration)),
    ("replication", Some(ErrorCode::ReplicationConfigurationNotFoundError)),
    ("requestPayment", None),
    ("versioning", None),
    ("website", Some(ErrorCode::NoSuchWebsiteConfiguration)),
];

/// Configurations that can be deleted, which succeeds if they are not set.
const DELETABLE: [&str; 7] =
    ["cors", "encryption", "lifecycle", "policy", "publicAccessBlock", "replication", "website"];

/// True if the query parameter `name` is what makes a request this operation.
pub(crate) fn is_named_by(operation: Operation, name: &str) -> bool {
    OF_BUCKET.iter().chain(&OF_OBJECT).any(|row| row.1 == name && row.2 == operation)
}

/// True if a query parameter names a configuration that can be read.
pub(crate) fn is_readable_configuration(name: &str) -> bool {
    CONFIGURATIONS.iter().any(|row| row.0 == name)
}

/// True if a query parameter names a configuration that can be deleted.
pub(crate) fn is_deletable_configuration(name: &str) -> bool {
    DELETABLE.contains(&name)
}

/// Sub-resources that are not served resolve to the operation without them; validation refuses their parameter.
fn resolve(method: &Method, path: &S3Path, query: &[(String, String)]) -> Option<Operation> {
    let has = |name: &str| query.iter().any(|pair| pair.0 == name);
    let asked = |method: &Method, resources: &[(&str, &str, Operation)]| {
        resources.iter().find(|(of, name, _)| *of == method.as_str() && has(name)).map(|row| row.2)
    };
    let configures = |is_known: fn(&str) -> bool| query.iter().any(|pair| is_known(&pair.0));
    Some(match (path, method.as_str()) {
        (S3Path::Root, "GET") => Operation::ListBuckets,
        (S3Path::Bucket { .. }, "HEAD") => Operation::HeadBucket,
        (S3Path::Bucket { .. }, name) => match (asked(method, &OF_BUCKET), name) {
            // Listing has two versions, and no others.
            (Some(Operation::ListObjectsV2), _) if !query.iter().any(|(n, v)| n == "list-type" && v == "2") => {
                return None;
            }
            (Some(operation), _) => operation,
            (None, "GET") if configures(is_readable_configuration) => Operation::GetConfiguration,
            (None, "DELETE") if configures(is_deletable_configuration) => Operation::DeleteConfiguration,
            (None, "GET") => Operation::ListObjects,
            (None, "PUT") => Operation::CreateBucket,
            (None, "DELETE") => Operation::DeleteBucket,
            (None, _) => return None,
        },
        (S3Path::Object { .. }, "HEAD") => Operation::HeadObject,
        (S3Path::Object { .. }, name) => match (asked(method, &OF_OBJECT), name) {
            (Some(operation), _) => operation,
            (None, "GET") => Operation::GetObject,
            (None, "PUT") => Operation::PutObject,
            (None, "DELETE") => Operation::DeleteObject,
            (None, _) => return None,
        },
        (S3Path::Root, _) => return None,
    })
}
