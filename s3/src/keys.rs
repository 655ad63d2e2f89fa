//! The access keys that requests are signed with, and the region they are signed for.

/// The only region this store claims to be in.
pub const REGION: &str = "us-east-1";

/// The known access keys.
pub trait AccessKeys: Send + Sync + 'static {
    /// The secret of `access_key`; `None` if the key is unknown.
    fn secret(&self, access_key: &str) -> Option<String>;

    /// The name of the user with `access_key`: the owner of buckets.
    fn user(&self, access_key: &str) -> Option<String>;
}
