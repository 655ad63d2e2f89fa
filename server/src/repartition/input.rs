//! The input of a job: its objects, as they are listed when the job is planned, and where they are stored.
//!
//! Objects are sorted by group, blob and offset, the order in which they are read. An object that the catalog knows to
//! be unreadable refuses the job before any group wakes for it.
//!
//! Memory: [`Input`] for each object, and a page of the listing.

use super::exclude::{Excluded, objects};
use super::places::directory;
use super::report::{Place, Request};
use crate::error::text;
use batch::Format;
use catalog::{Catalog, CatalogError, ListRequest, Object, VersionId};
use model::{BlobId, GroupId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects listed at once.
const PAGE: usize = 1_000;

/// An object of the input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Input {
    /// The blob that stores it; [`BlobId::NONE`] if it is in the workshop.
    blob: BlobId,
    /// Its offset in the blob.
    offset: u64,
    /// Its version.
    pub version: VersionId,
    /// Its length.
    pub bytes: u64,
    /// Its key, in the bucket that the job reads.
    pub key: Arc<str>,
}

impl Input {
    /// The offset in its blob at which the adjacent objects end that begin with this one; `behind` are the objects
    /// after it. Stops about `bytes` after the end of this object.
    pub fn together<'a>(&self, behind: impl Iterator<Item = &'a Self>, bytes: u64) -> u64 {
        let mut end = self.offset + self.bytes;
        let most = end.saturating_add(bytes);
        for next in behind {
            if next.blob != self.blob || next.offset != end || end >= most {
                break;
            }
            end += next.bytes;
        }
        end
    }
}

/// An object that was read: its version, and its key.
pub(super) type ReadInput = (VersionId, Arc<str>);

/// Selects the objects that a job has to read.
#[derive(Debug)]
pub(super) struct WantedInput {
    /// Versions from this one on are not part of the input.
    pub below: VersionId,
    /// Versions that the job has read; `None`, and not an empty set, for a job that has not begun.
    pub read: Option<BTreeSet<VersionId>>,
}

impl WantedInput {
    fn wants(&self, object: &Object) -> bool {
        let is_read = self.read.as_ref().is_some_and(|read| read.contains(&object.version));
        object.version < self.below && !is_read
    }

    /// True if there may be no input left: the job resumes.
    fn may_be_none(&self) -> bool {
        self.read.is_some()
    }
}

/// Finds the objects below `from`, or the one with exactly that key, and where they are stored.
pub(super) async fn listed(catalog: &Catalog, request: &Request, wanted: WantedInput) -> Result<FoundInput, String> {
    let from = &request.from;
    let no_bucket = |error| match error {
        CatalogError::NoSuchBucket => format!("there is no bucket `{}` to read from", from.bucket),
        error => error.to_string(),
    };
    let mut found = FoundInput {
        format: request.format.as_deref().map(str::parse).transpose().map_err(text)?,
        wanted,
        excluded: Excluded::nothing(),
        empty: 0,
        named: None,
        placed: Placed::default(),
        groups: BTreeMap::new(),
    };
    if !from.prefix.is_empty() && !from.prefix.ends_with('/') {
        match catalog.head_object(&from.bucket, &from.prefix).await {
            Ok(object) => {
                found.take(catalog, from, vec![(from.prefix.clone(), object)]).await?;
                return Ok(found);
            }
            Err(CatalogError::NoSuchKey) => {}
            Err(error) => return Err(no_bucket(error)),
        }
    }
    let prefix = directory(from).prefix;
    found.excluded = Excluded::below(&prefix, &request.exclude)?;
    let mut start_after = None;
    loop {
        let request = ListRequest { prefix: prefix.clone(), start_after, max_keys: PAGE, delimiter: None };
        let page = match catalog.list_objects(&from.bucket, &request).await {
            Err(CatalogError::NoSuchBucket) if found.wanted.may_be_none() => break,
            page => page.map_err(no_bucket)?,
        };
        start_after = page.objects.last().map(|(key, _)| key.clone());
        found.take(catalog, from, page.objects).await?;
        if !page.truncated {
            break;
        }
    }
    if (found.format.is_none() || found.placed.is_empty()) && !found.wanted.may_be_none() {
        return Err(found.nothing_below(&format!("s3://{}/{prefix}", from.bucket)));
    }
    Ok(found)
}

/// Refuses input that is known to be unreadable: no group wakes for a job that could not finish.
async fn none_is_quarantined(catalog: &Catalog, versions: &[VersionId]) -> Result<(), String> {
    let quarantined = catalog.are_unreadable(versions).await.map_err(text)?;
    let Some(first) = versions.iter().zip(quarantined).find(|(_, quarantined)| *quarantined) else { return Ok(()) };
    let Some(found) = catalog.unreadable_of(*first.0).await.map_err(text)? else { return Ok(()) };
    let catalog::Unreadable { bucket, key, reason, .. } = found;
    Err(format!("s3://{bucket}/{key} is in quarantine: {reason}; write it again, or delete it"))
}

/// The input listed so far.
#[derive(Debug)]
pub(super) struct FoundInput {
    wanted: WantedInput,
    pub excluded: Excluded,
    /// Objects of length 0, which have no records.
    empty: u64,
    /// The format, stated by the user or found from the names.
    pub format: Option<Format>,
    /// The first object whose name shows the format.
    named: Option<String>,
    placed: Placed,
    groups: BTreeMap<BlobId, Option<GroupId>>,
}

/// The input by group; input in the workshop has no group.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub by_group: BTreeMap<GroupId, Vec<Input>>,
    pub workshop: Vec<Input>,
    /// Objects that were deleted or overwritten since they were listed.
    pub lost: u64,
    /// The length of all keys.
    pub key_bytes: u64,
}

impl Placed {
    /// The average length of adjacent input in the rack, in bytes.
    pub fn together_bytes(&self) -> u64 {
        let (mut bytes, mut runs) = (0, 0);
        for inputs in self.by_group.values() {
            let follows =
                |pair: &[Input]| pair[0].blob == pair[1].blob && pair[0].offset + pair[0].bytes == pair[1].offset;
            runs += inputs.len() as u64 - inputs.windows(2).filter(|pair| follows(pair)).count() as u64;
            bytes += inputs.iter().map(|input| input.bytes).sum::<u64>();
        }
        if runs == 0 { u64::MAX } else { bytes.div_ceil(runs).max(1) }
    }

    fn is_empty(&self) -> bool {
        self.by_group.is_empty() && self.workshop.is_empty()
    }
}

impl FoundInput {
    /// Adds a page of the listing.
    async fn take(&mut self, catalog: &Catalog, from: &Place, page: Vec<(String, Object)>) -> Result<(), String> {
        let mut listed = Vec::with_capacity(page.len());
        for (key, object) in page {
            if !self.wanted.wants(&object) || self.excluded.takes(&key) {
                continue;
            }
            // Without bytes there are no records; some clients put empty objects in place of directories.
            if object.bytes == 0 {
                self.empty += 1;
                continue;
            }
            self.is_of_one_format(&from.bucket, &key)?;
            listed.push((key, object.version));
        }
        let versions: Vec<_> = listed.iter().map(|(_, version)| *version).collect();
        none_is_quarantined(catalog, &versions).await?;
        self.place(catalog, &from.bucket, listed).await.map_err(text)
    }

    /// The message for a `place` without input.
    fn nothing_below(&self, place: &str) -> String {
        let (excluded, empty) = (self.excluded.count(), self.empty);
        match (excluded, empty) {
            (0, 0) => format!("there are no objects below {place}"),
            (0, _) => format!("there are no records below {place}: {} without bytes", objects(empty)),
            (_, 0) => format!("there is no input below {place}: {} excluded", objects(excluded)),
            _ => format!("there is no input below {place}: {} without bytes, {excluded} excluded", objects(empty)),
        }
    }

    /// Finds the format of an object from its name, unless the user stated it; all must be the same.
    fn is_of_one_format(&mut self, bucket: &str, key: &str) -> Result<(), String> {
        if self.format.is_some() && self.named.is_none() {
            return Ok(());
        }
        let Some(format) = Format::of_key(key) else {
            return Err(format!(
                "the name of s3://{bucket}/{key} does not show its format; give it with --format, or leave the object \
                 out with --exclude"
            ));
        };
        let first = *self.format.get_or_insert(format);
        let name = self.named.get_or_insert_with(|| key.to_owned());
        if first != format {
            return Err(format!(
                "{name} is {first} and {key} is {format}; partition them separately, or give --format"
            ));
        }
        Ok(())
    }

    async fn place(
        &mut self,
        catalog: &Catalog,
        bucket: &str,
        listed: Vec<(String, VersionId)>,
    ) -> Result<(), CatalogError> {
        let Self { placed, groups, .. } = self;
        let at: Vec<_> = listed.iter().map(|(key, _)| (bucket, key.as_str())).collect();
        let found = catalog.placed_objects(&at).await?;
        for ((key, version), found) in listed.iter().zip(found) {
            let found = match found.filter(|found| found.object.version == *version) {
                Some(found) => Some((found.object, found.place)),
                // Gone, or its record is damaged. That is an error: a job must not finish without the object.
                None => find_version(catalog, bucket, key, *version).await?,
            };
            let Some((object, place)) = found else {
                placed.lost += 1;
                continue;
            };
            let (blob, offset) = match place {
                catalog::Place::Stored { blob, offset } => (blob, offset),
                catalog::Place::Staged { .. } | catalog::Place::Parts => (BlobId::NONE, 0),
            };
            let group = match groups.get(&blob) {
                Some(group) => *group,
                None if blob == BlobId::NONE => None,
                None => *groups.entry(blob).or_insert(catalog.blob(blob).await?.map(|blob| blob.group)),
            };
            placed.key_bytes += key.len() as u64;
            let (version, bytes, key) = (*version, object.bytes, Arc::from(key.as_str()));
            let input = Input { blob, offset, version, bytes, key };
            match group {
                Some(group) => placed.by_group.entry(group).or_default().push(input),
                None => placed.workshop.push(input),
            }
        }
        Ok(())
    }

    /// All input, in the order in which it is stored.
    pub fn placed(mut self) -> Placed {
        for inputs in self.placed.by_group.values_mut() {
            inputs.sort_unstable();
            inputs.shrink_to_fit();
        }
        self.placed
    }
}

/// This version of an object, and where it is stored; `None` if it was deleted or overwritten. A damaged record is an
/// error: an object that cannot be looked up was not deleted.
pub(super) async fn find_version(
    catalog: &Catalog,
    bucket: &str,
    key: &str,
    version: VersionId,
) -> Result<Option<(Object, catalog::Place)>, CatalogError> {
    match catalog.get_object(bucket, key).await {
        Ok((object, place)) if object.version == version => Ok(Some((object, place))),
        Ok(_) | Err(CatalogError::NoSuchKey | CatalogError::NoSuchBucket) => Ok(None),
        Err(error) => Err(error),
    }
}
