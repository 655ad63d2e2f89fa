//! Serves: the S3 front.

pub mod admin;
pub mod config;
pub mod data_dir;
pub mod report;
pub mod s3;
