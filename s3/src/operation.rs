//! The operations that are served, and the choice of one for a request.

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
    /// A bucket configuration that this store does not have, so it is never set.
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

/// Query parameters that name a configuration, with the names of the operations that read it and the error code if it
/// is not set. `None` if S3 answers with a document instead.
pub(crate) const CONFIGURATIONS: [(&str, &[&str], Option<ErrorCode>); 18] = [
    ("accelerate", &["GetBucketAccelerateConfiguration"], None),
    ("analytics", &["GetBucketAnalyticsConfiguration", "ListBucketAnalyticsConfigurations"], None),
    ("cors", &["GetBucketCors"], Some(ErrorCode::NoSuchCorsConfiguration)),
    ("encryption", &["GetBucketEncryption"], Some(ErrorCode::ServerSideEncryptionConfigurationNotFoundError)),
    (
        "intelligent-tiering",
        &["GetBucketIntelligentTieringConfiguration", "ListBucketIntelligentTieringConfigurations"],
        None,
    ),
    ("inventory", &["GetBucketInventoryConfiguration", "ListBucketInventoryConfigurations"], None),
    (
        "lifecycle",
        &["GetBucketLifecycle", "GetBucketLifecycleConfiguration"],
        Some(ErrorCode::NoSuchLifecycleConfiguration),
    ),
    ("logging", &["GetBucketLogging"], None),
    ("metrics", &["GetBucketMetricsConfiguration", "ListBucketMetricsConfigurations"], None),
    ("notification", &["GetBucketNotification", "GetBucketNotificationConfiguration"], None),
    ("object-lock", &["GetObjectLockConfiguration"], Some(ErrorCode::ObjectLockConfigurationNotFoundError)),
    ("policy", &["GetBucketPolicy"], Some(ErrorCode::NoSuchBucketPolicy)),
    ("policyStatus", &["GetBucketPolicyStatus"], Some(ErrorCode::NoSuchBucketPolicy)),
    ("publicAccessBlock", &["GetPublicAccessBlock"], Some(ErrorCode::NoSuchPublicAccessBlockConfiguration)),
    ("replication", &["GetBucketReplication"], Some(ErrorCode::ReplicationConfigurationNotFoundError)),
    ("requestPayment", &["GetBucketRequestPayment"], None),
    ("versioning", &["GetBucketVersioning"], None),
    ("website", &["GetBucketWebsite"], Some(ErrorCode::NoSuchWebsiteConfiguration)),
];

/// Configurations that can be deleted, with the names of the operations that delete them. Each deletion succeeds,
/// because none is ever set.
pub(crate) const DELETABLE: [(&str, &str); 7] = [
    ("cors", "DeleteBucketCors"),
    ("encryption", "DeleteBucketEncryption"),
    ("lifecycle", "DeleteBucketLifecycle"),
    ("policy", "DeleteBucketPolicy"),
    ("publicAccessBlock", "DeletePublicAccessBlock"),
    ("replication", "DeleteBucketReplication"),
    ("website", "DeleteBucketWebsite"),
];

/// Sub-resources of S3 for which there is no operation here.
pub(crate) const NOT_SERVED: [&str; 15] = [
    "abac",
    "annotation",
    "legal-hold",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "renameObject",
    "restore",
    "retention",
    "select",
    "select-type",
    "session",
    "torrent",
];

/// True if the query parameter `name` selects this operation.
pub(crate) fn is_named_by(operation: Operation, name: &str) -> bool {
    match operation {
        Operation::GetConfiguration => is_readable_configuration(name),
        Operation::DeleteConfiguration => is_deletable_configuration(name),
        _ => OF_BUCKET.iter().chain(&OF_OBJECT).any(|row| row.1 == name && row.2 == operation),
    }
}

/// True if the query parameter `name` selects an operation that is served.
pub(crate) fn is_sub_resource(name: &str) -> bool {
    is_readable_configuration(name) || OF_BUCKET.iter().chain(&OF_OBJECT).any(|row| row.1 == name)
}

fn is_readable_configuration(name: &str) -> bool {
    CONFIGURATIONS.iter().any(|row| row.0 == name)
}

fn is_deletable_configuration(name: &str) -> bool {
    DELETABLE.iter().any(|row| row.0 == name)
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
