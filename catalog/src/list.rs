//! ListObjectsV2 over ordered keys.
//!
//! A walk fills a page. When a key rolls up into a common prefix, the walk jumps past that prefix instead of reading
//! its contents, so listing a root costs as much as it has entries, regardless of what is below. Reads grow while they
//! are used up and shrink after a jump.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{Object, PlacedObject, value};
use crate::store::{Entry, KeyRange, after_prefix};
use std::ops::Bound;

/// The size of the first read of a walk that may jump, and of the read after a jump.
const FIRST_READ: usize = 16;
/// The largest read.
const LAST_READ: usize = 1_024;

/// A request for a page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Only keys with this prefix.
    pub prefix: String,
    /// Keys are rolled up to the first occurrence of this after the prefix. `None` or empty: no rolling up.
    pub delimiter: Option<String>,
    /// Only keys after this one in byte order. If it is itself a common prefix of this listing, all keys that begin
    /// with it are left out. The last entry of a page, passed here, continues the listing.
    pub start_after: Option<String>,
    /// Maximum number of objects and common prefixes together.
    pub max_keys: usize,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects, by key.
    pub objects: Vec<(String, Object)>,
    /// The common prefixes, in order.
    pub common_prefixes: Vec<String>,
    /// True if more entries follow the last of this page.
    pub truncated: bool,
}

impl Catalog {
    /// A page of the objects of `bucket`, in the byte order of their keys, without those whose record is damaged. Each
    /// of its reads sees the state at its time; an object that exists throughout is listed exactly once over all pages.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub async fn list_objects(&self, bucket: &str, request: &ListRequest) -> Result<Listing, CatalogError> {
        self.bucket(bucket).await?;
        let bucket_bytes = key::object(bucket, "").len();
        let walk = ListWalk {
            prefix: &request.prefix,
            delimiter: request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            entries_max: request.max_keys,
            store_prefix: &|prefix| key::object(bucket, prefix),
            key: &|entry| key::behind_bucket(&entry.key, bucket_bytes),
            item: |entry| value(entry).map(|PlacedObject { object, .. }| object),
        };
        let from = request.start_after.as_deref().map_or(Bound::Unbounded, |key| {
            // Nothing with a common prefix follows that prefix, so a page continues after its last entry, be it a key
            // or a prefix.
            let at = key::object(bucket, key);
            if walk.is_common(key) { behind(&at) } else { Bound::Excluded(at) }
        });
        let (objects, common_prefixes, truncated) = walk.run(self, from).await?;
        Ok(Listing { objects, common_prefixes, truncated })
    }
}

/// The rules by which a page is filled.
pub(crate) struct ListWalk<'a, T> {
    /// Only keys with this prefix.
    pub prefix: &'a str,
    /// Keys are rolled up to the first occurrence of this after the prefix.
    pub delimiter: Option<&'a str>,
    /// Maximum number of entries and common prefixes together.
    pub entries_max: usize,
    /// The store's key prefix for keys that begin with the given text.
    pub store_prefix: &'a (dyn Fn(&str) -> Vec<u8> + Sync),
    /// The key of an entry.
    pub key: &'a (dyn Fn(&Entry) -> Result<String, CatalogError> + Sync),
    /// The listed form of an entry.
    pub item: fn(&Entry) -> Result<T, CatalogError>,
}

/// The entries of a page by key, its common prefixes, and true if more of either follow.
type Listed<T> = (Vec<(String, T)>, Vec<String>, bool);

impl<T> ListWalk<'_, T> {
    /// The page that starts at store key `from`.
    pub(crate) async fn run(&self, catalog: &Catalog, from: Bound<Vec<u8>>) -> Result<Listed<T>, CatalogError> {
        let (mut items, mut common_prefixes) = (Vec::new(), Vec::new());
        if self.entries_max == 0 {
            return Ok((items, common_prefixes, false));
        }
        let KeyRange { start, end } = KeyRange::prefix(&(self.store_prefix)(self.prefix));
        let mut from = later(start, from);
        let whole_page = (self.entries_max.saturating_add(1)).min(LAST_READ);
        let first_read = if self.delimiter.is_some() { FIRST_READ.min(whole_page) } else { whole_page };
        let mut read = first_read;
        loop {
            let entries = catalog.store.scan(KeyRange { start: from.clone(), end: end.clone() }, read).await?;
            let mut jumped = false;
            for entry in &entries {
                if !is_behind(&entry.key, &from) {
                    continue;
                }
                if items.len() + common_prefixes.len() == self.entries_max {
                    return Ok((items, common_prefixes, true));
                }
                let key = catalog.sound_entries(std::slice::from_ref(entry), self.key).pop();
                let common = key.as_deref().and_then(|key| common_prefix(self.prefix, self.delimiter, key));
                jumped = common.is_some();
                if let Some(common) = common {
                    from = behind(&(self.store_prefix)(common));
                    common_prefixes.push(common.to_owned());
                    continue;
                }
                from = Bound::Excluded(entry.key.clone());
                items.extend(key.zip(catalog.sound_entries(std::slice::from_ref(entry), self.item).pop()));
            }
            if entries.len() < read {
                return Ok((items, common_prefixes, false));
            }
            read = if jumped { first_read } else { (read * 2).min(LAST_READ) };
        }
    }

    /// True if `key` is itself a common prefix of this listing.
    pub(crate) fn is_common(&self, key: &str) -> bool {
        common_prefix(self.prefix, self.delimiter, key) == Some(key)
    }
}

/// The part of `key` up to and including the first delimiter after `prefix`; `None` if it has no delimiter there.
fn common_prefix<'k>(prefix: &str, delimiter: Option<&str>, key: &'k str) -> Option<&'k str> {
    let delimiter = delimiter?;
    let behind_prefix = key.strip_prefix(prefix)?;
    let at = behind_prefix.find(delimiter)?;
    key.get(..prefix.len() + at + delimiter.len())
}

/// The start of the keys that follow all keys with `prefix`. Store keys begin with a tag, so it always exists.
pub(crate) fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    match after_prefix(prefix) {
        Bound::Excluded(end) | Bound::Included(end) => Bound::Included(end),
        Bound::Unbounded => Bound::Excluded(prefix.to_vec()),
    }
}

/// True if `key` is in the range that starts at `from`.
fn is_behind(key: &[u8], from: &Bound<Vec<u8>>) -> bool {
    match from {
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
        Bound::Unbounded => true,
    }
}

/// The later of two starts.
fn later(a: Bound<Vec<u8>>, b: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match &b {
        Bound::Unbounded => a,
        Bound::Included(key) | Bound::Excluded(key) => {
            let before_a = !is_behind(key, &a) && !matches!(&a, Bound::Excluded(at) if at == key);
            if before_a { a } else { b }
        }
    }
}
