//! Serves: the S3 front.

pub mod s3;
