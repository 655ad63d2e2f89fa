//! From a verified request to its operation, and from what that gave to an answer.

use super::ask::{Ask, Operation};
use super::error::{Code, Fault};
use super::gate::Entry;
use super::parallel_md5::Md5Workers;
use super::{
    Domain, Keys, Limits, ObjectStore, Traffic, access, attributes, bucket, complete, configuration, copy, delete, get,
    list, parts, put, tagging, upload, versions, xml,
};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Uri};
use s3s::route::S3Route;
use s3s::xml::{Serialize, Serializer};
use s3s::{Body, S3Request, S3Response, S3Result};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What an operation answers.
pub(super) type Answer = Result<S3Response<Body>, Fault>;

/// Takes every request there is.
pub(super) struct Route {
    pub store: Arc<dyn ObjectStore>,
    pub keys: Arc<dyn Keys>,
    pub limits: Limits,
    pub traffic: Arc<Traffic>,
    pub domain: Option<Domain>,
    pub md5: Md5Workers,
    /// Completions at once: each holds what is known of up to 10,000 parts.
    pub completing: Semaphore,
}

#[async_trait::async_trait]
impl S3Route for Route {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        true
    }

    /// Who may do what is said by [`access`], bucket by bucket.
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let path = request.uri.path().to_owned();
        let entry = request.extensions.get::<Arc<Entry>>().cloned();
        let (name, answer) = match Ask::of(request, &*self.keys, self.domain.as_ref()) {
            Ok(ask) => (format!("{:?}", ask.operation), self.admitted(ask, entry.as_deref()).await),
            Err(fault) => ("request".to_owned(), Err(fault)),
        };
        answer.map_err(|fault| {
            fault.log(&name, &path);
            fault.into()
        })
    }
}

impl Route {
    /// Takes a place for a request, which its answer keeps. Only now is it known for whom.
    async fn admitted(&self, ask: Ask, entry: Option<&Entry>) -> Answer {
        if let Some(entry) = entry {
            entry.admit(&self.traffic, ask.user().ok())?;
        }
        self.dispatch(ask).await
    }

    async fn dispatch(&self, ask: Ask) -> Answer {
        let names_version = ask.query("versionId").is_some();
        let mut answer = self.operate(ask).await?;
        if names_version {
            answer.headers.insert("x-amz-version-id", HeaderValue::from_static(versions::NULL));
        }
        Ok(answer)
    }

    async fn operate(&self, ask: Ask) -> Answer {
        match ask.operation {
            Operation::ListBuckets => bucket::list(self, &ask).await,
            Operation::CreateBucket => bucket::create(self, ask).await,
            Operation::HeadBucket => bucket::head(self, &ask).await,
            Operation::GetBucketLocation => bucket::location(self, &ask).await,
            Operation::DeleteBucket => bucket::delete(self, &ask).await,
            Operation::ListObjects => list::v1(self, &ask).await,
            Operation::ListObjectsV2 => list::v2(self, &ask).await,
            Operation::DeleteObjects => delete::many(self, ask).await,
            Operation::PutObject => put::object(self, ask).await,
            Operation::GetObject => get::object(self, &ask).await,
            Operation::HeadObject => get::head(self, &ask).await,
            Operation::DeleteObject => delete::one(self, &ask).await,
            Operation::GetBucketAcl => access::bucket_acl(self, &ask).await,
            Operation::PutBucketAcl => access::put_bucket_acl(self, ask).await,
            Operation::GetBucketTagging => tagging::of_bucket(self, &ask).await,
            Operation::PutBucketTagging => tagging::put_of_bucket(self, ask).await,
            Operation::DeleteBucketTagging => tagging::delete_of_bucket(self, &ask).await,
            Operation::GetBucketOwnershipControls => access::ownership(self, &ask).await,
            Operation::PutBucketOwnershipControls => access::put_ownership(self, ask).await,
            Operation::DeleteBucketOwnershipControls => access::delete_ownership(self, &ask).await,
            Operation::GetConfiguration => configuration::get(self, &ask).await,
            Operation::DeleteConfiguration => configuration::delete(self, &ask).await,
            Operation::ListObjectVersions => versions::list(self, &ask).await,
            Operation::GetObjectAcl => access::object_acl(self, &ask).await,
            Operation::PutObjectAcl => access::put_object_acl(self, ask).await,
            Operation::GetObjectTagging => tagging::of_object(self, &ask).await,
            Operation::PutObjectTagging => tagging::put_of_object(self, ask).await,
            Operation::DeleteObjectTagging => tagging::delete_of_object(self, &ask).await,
            Operation::GetObjectAttributes => attributes::of_object(self, &ask).await,
            Operation::CopyObject => copy::object(self, ask).await,
            Operation::CreateMultipartUpload => upload::create(self, &ask).await,
            Operation::UploadPart => upload::part(self, ask).await,
            Operation::UploadPartCopy => copy::part(self, ask).await,
            Operation::CompleteMultipartUpload => complete::upload(self, ask).await,
            Operation::AbortMultipartUpload => upload::abort(self, &ask).await,
            Operation::ListMultipartUploads => parts::uploads(self, &ask).await,
            Operation::ListParts => parts::of_upload(self, &ask).await,
        }
    }
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> S3Response<Body> {
    S3Response::with_status(Body::empty(), status)
}

/// An answer in XML.
pub(super) fn xml<T: Serialize>(value: &T) -> Answer {
    let mut bytes = Vec::with_capacity(1024);
    let mut writer = Serializer::new(&mut bytes);
    let written = writer.decl().and_then(|()| value.serialize(&mut writer));
    written.map_err(|error| Fault::new(Code::InternalError, format!("cannot write the answer: {error}")))?;
    let mut answer = S3Response::new(Body::from(Bytes::from(xml::carried(bytes))));
    answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Ok(answer)
}
