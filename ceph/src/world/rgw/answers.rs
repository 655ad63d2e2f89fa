//! What RGW answers, as XML.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads an answer; what is wrong with it otherwise.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    quick_xml::de::from_str(text).map_err(|error| error.to_string())
}

/// Somebody.
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
    /// Each.
    pub bucket: Vec<Bucket>,
}

/// One.
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
    /// Whether there are more.
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
    /// When it was written, in the form of ISO 8601.
    pub last_modified: String,
    /// Its length.
    pub size: u64,
    /// Its storage class.
    #[serde(default)]
    pub storage_class: String,
}

/// Whether a bucket keeps versions.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Versioning {
    /// `Enabled`, `Suspended`, or nothing if it never did.
    pub status: Option<String>,
}

/// A lifecycle configuration, as far as it matters whose it is.
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

/// Who may do what with an object.
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
    /// Each.
    pub grant: Vec<Grant>,
}

/// One.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Grant {
    /// To whom.
    pub grantee: Owner,
    /// What.
    pub permission: String,
}

impl Acl {
    /// Whether `user` owns it, and nobody else has a grant.
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
