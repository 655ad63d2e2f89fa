//! RGW's answers, as XML.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Decodes an answer; the error as text.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    quick_xml::de::from_str(text).map_err(|error| error.to_string())
}

/// A user.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Owner {
    /// The ID.
    #[serde(rename = "ID")]
    pub id: String,
}

/// The buckets of the asking user.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BucketList {
    /// That user.
    pub owner: Owner,
    /// Their buckets.
    #[serde(default)]
    pub buckets: Buckets,
}

/// Buckets.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Buckets {
    /// The buckets.
    pub bucket: Vec<Bucket>,
}

/// A bucket.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Bucket {
    /// Its name.
    pub name: String,
}

/// A page of a listing, its keys percent-encoded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Listing {
    /// True if more pages follow.
    pub is_truncated: bool,
    /// The objects.
    #[serde(default)]
    pub contents: Vec<Entry>,
}

/// An object in a listing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Entry {
    /// Its key, percent-encoded.
    pub key: String,
    /// Time of the last write, in ISO 8601.
    pub last_modified: String,
    /// Its length.
    pub size: u64,
    /// Its storage class.
    #[serde(default)]
    pub storage_class: String,
}

/// The versioning state of a bucket.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Versioning {
    /// `Enabled`, `Suspended`, or nothing if it never kept versions.
    pub status: Option<String>,
}

/// A lifecycle configuration: only the part that shows if its rules are Larder's.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Lifecycle {
    /// Its rules.
    pub rule: Vec<LifecycleRule>,
}

/// One rule.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LifecycleRule {
    /// Its ID.
    #[serde(rename = "ID")]
    pub id: String,
}

/// The access control list of an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Acl {
    /// Its owner.
    pub owner: Owner,
    /// The grants.
    #[serde(default)]
    pub access_control_list: Grants,
}

/// Grants.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Grants {
    /// The grants.
    pub grant: Vec<Grant>,
}

/// A grant.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Grant {
    /// The user who has it.
    pub grantee: Owner,
    /// The permission.
    pub permission: String,
}

impl Acl {
    /// True if `user` owns it, and there are no grants to others.
    pub fn is_private_of(&self, user: &str) -> bool {
        let Acl { owner, access_control_list: Grants { grant } } = self;
        owner.id == user && matches!(&grant[..], [one] if one.grantee.id == user && one.permission == "FULL_CONTROL")
    }
}

/// An error.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Failure {
    /// Its code.
    pub code: String,
}
