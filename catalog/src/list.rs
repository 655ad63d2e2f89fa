//! ListObjectsV2 over ordered keys.
//!
//! A page is filled by a walk. When a key rolls up into a common prefix, the walk jumps behind that prefix instead of
//! reading what it holds, so that listing a root costs as much as it has entries, however much lies below. Reads grow
//! while they are used up and shrink after a jump.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{Object, PlacedObject, decode};
use crate::store::{Entry, KeyRange, after_prefix};
use std::ops::Bound;

/// The first read of a walk that may jump, and the one after a jump.
const FIRST_READ: usize = 16;
/// The longest read.
const LAST_READ: usize = 1_024;

/// A request for a page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys are rolled up to the first occurrence of this behind the prefix. `None` or empty: not at all.
    pub delimiter: Option<String>,
    /// Only keys behind this one in byte order. If it is itself a common prefix of this listing, all keys that begin
    /// with it are left out. The last entry of a page, given here, continues the listing.
    pub start_after: Option<String>,
    /// Objects and common prefixes together, at most.
    pub max_keys: usize,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects, by key.
    pub objects: Vec<(String, Object)>,
    /// The common prefixes, in order.
    pub common_prefixes: Vec<String>,
    /// True if there are more entries behind the last of this page.
    pub truncated: bool,
}

impl Catalog {
    /// A page of the objects of `bucket`, in the byte order of their keys, but for those whose record is damaged. It
    /// sees what was there at the time of each of its reads; what is there throughout is listed exactly once over all
    /// pages.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub async fn list_objects(&self, bucket: &str, request: &ListRequest) -> Result<Listing, CatalogError> {
        self.bucket(bucket).await?;
        let walk = ListWalk::new(bucket, request);
        if request.max_keys == 0 { Ok(Listing::default()) } else { walk.run(self).await }
    }
}

/// A page being filled.
struct ListWalk<'a> {
    request: &'a ListRequest,
    delimiter: Option<&'a str>,
    /// The key of "" in this bucket.
    bucket_prefix: Vec<u8>,
    /// The walk is over at this store key.
    end: Bound<Vec<u8>>,
    /// The walk goes on at this store key.
    from: Bound<Vec<u8>>,
    listing: Listing,
}

impl<'a> ListWalk<'a> {
    fn new(bucket: &str, request: &'a ListRequest) -> Self {
        let bucket_prefix = key::object(bucket, "");
        let range = KeyRange::prefix(&key::object(bucket, &request.prefix));
        let delimiter = request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
        let from = match request.start_after.as_deref() {
            // Behind a common prefix lies nothing of it: so a page goes on behind its last entry, whichever kind that
            // is.
            Some(key) if common_prefix(&request.prefix, delimiter, key) == Some(key) => {
                behind(&key::object(bucket, key))
            }
            Some(key) => Bound::Excluded(key::object(bucket, key)),
            None => range.start.clone(),
        };
        let from = later(range.start, from);
        Self { request, delimiter, bucket_prefix, end: range.end, from, listing: Listing::default() }
    }

    async fn run(mut self, catalog: &Catalog) -> Result<Listing, CatalogError> {
        let whole_page = (self.request.max_keys.saturating_add(1)).min(LAST_READ);
        let first_read = if self.delimiter.is_some() { FIRST_READ.min(whole_page) } else { whole_page };
        let mut read = first_read;
        loop {
            let range = KeyRange { start: self.from.clone(), end: self.end.clone() };
            let entries = catalog.store.scan(range, read).await?;
            let exhausted = entries.len() < read;
            let mut jumped = false;
            for entry in &entries {
                if !is_behind(&entry.key, &self.from) {
                    continue;
                }
                if self.count() == self.request.max_keys {
                    self.listing.truncated = true;
                    return Ok(self.listing);
                }
                jumped = self.take(catalog, entry);
            }
            if exhausted {
                return Ok(self.listing);
            }
            read = if jumped { first_read } else { (read * 2).min(LAST_READ) };
        }
    }

    fn count(&self) -> usize {
        self.listing.objects.len() + self.listing.common_prefixes.len()
    }

    /// Lists one entry and moves behind it; whether that was a jump over a common prefix.
    fn take(&mut self, catalog: &Catalog, entry: &Entry) -> bool {
        let key = entry.key.get(self.bucket_prefix.len()..).unwrap_or_default().to_vec();
        let Ok(key) = String::from_utf8(key) else {
            catalog.quarantine(&entry.key, "its key is not UTF-8");
            self.from = Bound::Excluded(entry.key.clone());
            return false;
        };
        if let Some(common) = common_prefix(&self.request.prefix, self.delimiter, &key) {
            let mut store_prefix = self.bucket_prefix.clone();
            store_prefix.extend_from_slice(common.as_bytes());
            self.from = behind(&store_prefix);
            self.listing.common_prefixes.push(common.to_owned());
            return true;
        }
        self.from = Bound::Excluded(entry.key.clone());
        let placed = catalog.sound_entries(std::slice::from_ref(entry), |entry| decode(&entry.key, &entry.value));
        self.listing.objects.extend(placed.into_iter().map(|PlacedObject { object, .. }| (key.clone(), object)));
        false
    }
}

/// The part of `key` up to and with the first delimiter behind `prefix`, if there is one.
pub(crate) fn common_prefix<'k>(prefix: &str, delimiter: Option<&str>, key: &'k str) -> Option<&'k str> {
    let delimiter = delimiter?;
    let behind_prefix = key.strip_prefix(prefix)?;
    let at = behind_prefix.find(delimiter)?;
    key.get(..prefix.len() + at + delimiter.len())
}

/// Where the keys behind all that begin with `prefix` start. Store keys begin with a tag, so there always are some.
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
pub(crate) fn later(a: Bound<Vec<u8>>, b: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match &b {
        Bound::Unbounded => a,
        Bound::Included(key) | Bound::Excluded(key) => {
            let before_a = !is_behind(key, &a) && !matches!(&a, Bound::Excluded(at) if at == key);
            if before_a { a } else { b }
        }
    }
}
