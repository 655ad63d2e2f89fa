//! From a verified request to its operation, and from what that gave to an answer.

use super::ask::{Ask, Operation};
use super::error::{Code, Fault};
use super::md5::Md5Workers;
use super::{Limits, ObjectStore, bucket, delete, get, list, put};
use bytes::Bytes;
use catalog::Bucket;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Uri};
use s3s::route::S3Route;
use s3s::xml::{Serialize, Serializer};
use s3s::{Body, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// What an operation answers.
pub(super) type Answer = Result<S3Response<Body>, Fault>;

/// Takes every request there is.
pub(super) struct Route {
    pub store: Arc<dyn ObjectStore>,
    pub limits: Limits,
    pub md5: Md5Workers,
}

#[async_trait::async_trait]
impl S3Route for Route {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        true
    }

    /// Who is nobody is refused with everything else, in [`Ask::of`].
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let path = request.uri.path().to_owned();
        let (name, answer) = match Ask::of(request) {
            Ok(ask) => (format!("{:?}", ask.operation), self.dispatch(ask).await),
            Err(fault) => ("request".to_owned(), Err(fault)),
        };
        answer.map_err(|fault| {
            fault.log(&name, &path);
            fault.into()
        })
    }
}

impl Route {
    async fn dispatch(&self, ask: Ask) -> Answer {
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
        }
    }

    /// The bucket of a request, which must belong to who asks.
    pub async fn owned_bucket(&self, ask: &Ask) -> Result<Bucket, Fault> {
        let bucket = self.store.head_bucket(&ask.bucket).await?;
        let expected = ask.header("x-amz-expected-bucket-owner")?;
        if bucket.owner != ask.user || expected.is_some_and(|expected| expected != bucket.owner) {
            return Err(Code::AccessDenied.into());
        }
        Ok(bucket)
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
    let mut answer = S3Response::new(Body::from(Bytes::from(bytes)));
    answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Ok(answer)
}
