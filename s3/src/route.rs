//! The one route of the protocol library: from a verified request to its operation and back.
//!
//! The library's hook for custom routes takes every request before the library resolves an operation. The library's
//! operations would ignore the headers and parameters of S3 that they do not know; this frontend refuses them.

use crate::admission::PendingRequest;
use crate::frontend::Frontend;
use crate::operation::Operation;
use crate::request::S3Request;
use crate::response::Answer;
use crate::{
    access, attributes, bucket, complete, configuration, copy, delete, get, list, parts, put, tagging, upload, versions,
};
use http::{Extensions, HeaderMap, HeaderValue, Method, Uri};
use s3s::route::S3Route;
use s3s::{Body, S3Response, S3Result};
use std::sync::Arc;

/// Takes every request.
pub(crate) struct CatchAll(pub Arc<Frontend>);

#[async_trait::async_trait]
impl S3Route for CatchAll {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        true
    }

    /// [`access`] decides, once the bucket is known.
    async fn check_access(&self, _: &mut s3s::S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: s3s::S3Request<Body>) -> S3Result<S3Response<Body>> {
        let front = &*self.0;
        let path = request.uri.path().to_owned();
        let pending = request.extensions.get::<Arc<PendingRequest>>().cloned();
        let pending = pending.expect("admission gives every request its own");
        let (operation, answer) = match S3Request::parse(request, &*front.keys, front.domain.as_ref()) {
            Ok(request) => (format!("{:?}", request.operation), admitted(front, request, &pending).await),
            Err(error) => ("request".to_owned(), Err(error)),
        };
        Ok(answer.unwrap_or_else(|error| {
            error.log(&operation, &path);
            let (parts, body) = error.into_http(pending.resource(), pending.id()).into_parts();
            let mut response = S3Response::with_status(body, parts.status);
            (response.headers, response.extensions) = (parts.headers, parts.extensions);
            response
        }))
    }
}

/// Takes a permit for a request, which its response keeps. Only now is the requester known.
async fn admitted(front: &Frontend, request: S3Request, pending: &PendingRequest) -> Answer {
    pending.admit(&front.traffic, request.user().ok())?;
    let names_version = request.query("versionId").is_some();
    let mut answer = operate(front, request, pending).await?;
    if names_version {
        answer.headers.insert("x-amz-version-id", HeaderValue::from_static(versions::NULL));
    }
    Ok(answer)
}

async fn operate(front: &Frontend, request: S3Request, pending: &PendingRequest) -> Answer {
    match request.operation {
        Operation::ListBuckets => bucket::list(front, &request).await,
        Operation::CreateBucket => bucket::create(front, request).await,
        Operation::HeadBucket => bucket::head(front, &request).await,
        Operation::GetBucketLocation => bucket::location(front, &request).await,
        Operation::DeleteBucket => bucket::delete(front, &request).await,
        Operation::ListObjects => list::v1(front, &request).await,
        Operation::ListObjectsV2 => list::v2(front, &request).await,
        Operation::DeleteObjects => delete::many(front, request).await,
        Operation::PutObject => put::object(front, request).await,
        Operation::GetObject => get::object(front, &request, pending).await,
        Operation::HeadObject => get::head(front, &request).await,
        Operation::DeleteObject => delete::one(front, &request).await,
        Operation::GetBucketAcl => access::bucket_acl(front, &request).await,
        Operation::PutBucketAcl => access::put_bucket_acl(front, request).await,
        Operation::GetBucketTagging => tagging::of_bucket(front, &request).await,
        Operation::PutBucketTagging => tagging::put_of_bucket(front, request).await,
        Operation::DeleteBucketTagging => tagging::delete_of_bucket(front, &request).await,
        Operation::GetBucketOwnershipControls => access::ownership(front, &request).await,
        Operation::PutBucketOwnershipControls => access::put_ownership(front, request).await,
        Operation::DeleteBucketOwnershipControls => access::delete_ownership(front, &request).await,
        Operation::GetConfiguration => configuration::get(front, &request).await,
        Operation::DeleteConfiguration => configuration::delete(front, &request).await,
        Operation::ListObjectVersions => versions::list(front, &request).await,
        Operation::GetObjectAcl => access::object_acl(front, &request).await,
        Operation::PutObjectAcl => access::put_object_acl(front, request).await,
        Operation::GetObjectTagging => tagging::of_object(front, &request).await,
        Operation::PutObjectTagging => tagging::put_of_object(front, request).await,
        Operation::DeleteObjectTagging => tagging::delete_of_object(front, &request).await,
        Operation::GetObjectAttributes => attributes::of_object(front, &request).await,
        Operation::CopyObject => copy::object(front, request, pending).await,
        Operation::CreateMultipartUpload => upload::create(front, &request).await,
        Operation::UploadPart => upload::part(front, request).await,
        Operation::UploadPartCopy => copy::part(front, request, pending).await,
        Operation::CompleteMultipartUpload => complete::upload(front, request).await,
        Operation::AbortMultipartUpload => upload::abort(front, &request).await,
        Operation::ListMultipartUploads => parts::uploads(front, &request).await,
        Operation::ListParts => parts::of_upload(front, &request).await,
    }
}
