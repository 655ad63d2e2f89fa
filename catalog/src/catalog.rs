//! The typed catalog over any store: the code that its other modules share.
//!
//! Every change is read, planned and committed as one batch whose checks are the records that were read. If another
//! change was faster, the change is planned again. To guarantee progress within a process, a change that lost several
//! times makes its next attempt alone.
//!
//! A call whose future is dropped may or may not have happened. Where the answer names something to free (a slot), the
//! caller runs the call to completion in its own task. Slots that are lost anyway are found at boot
//! ([`Catalog::staged_slots`]).

use crate::authority::{Authority, Grant};
use crate::error::{CatalogError, StoreError};
use crate::key::{self, Tag};
use crate::quarantine::Quarantine;
use crate::record::{Decode, Encode, decode, encode};
use crate::rules;
use crate::seal::Sealed;
use crate::store::{Batch, Check, Entry, KeyRange, Store, Write};
use lineage::Sequence;
use model::sabotage::{Sabotage, is_on};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Format of the records as a whole, checked at open.
const FORMAT: u32 = 4;
/// The format before it, in which objects had the common form of all records. Both formats remain readable.
const FORMAT_BEFORE: u32 = 3;
/// Attempts of a change beside others, before it makes one alone.
const SHARED_TRIES: u32 = 4;
/// Attempts of a change in all. When it runs alone, only another process on the same store can interfere.
const TRIES: u32 = 16;
/// Attempts of a batch whose bucket changes while it waits; a bucket seldom changes at all.
const GRANT_TRIES: u32 = 16;
/// Entries per read where everything is read.
pub(crate) const STEP: usize = 1_024;

/// Buckets, objects, places, blobs, drives. A clone is another handle on the same catalog.
#[derive(Clone)]
pub struct Catalog {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ids: Arc<ReservedIds>,
    quarantine: Arc<Quarantine>,
    grant: Option<Arc<Grant>>,
    opened_at: Sequence,
    retries: Arc<RwLock<()>>,
}

/// The unused numbers of the reserved blocks.
#[derive(Debug, Default)]
pub(crate) struct ReservedIds {
    pub(crate) versions: Mutex<Range<u64>>,
    pub(crate) slots: Mutex<Range<u64>>,
    pub(crate) blobs: Mutex<Range<u64>>,
}

/// The end of a page. Opaque; usable as long as the catalog exists, even if the entry at that point is changed or
/// removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(pub(crate) Vec<u8>);

/// A page of a longer list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// Cursor of the next page. `None` after the last page, which may be empty.
    pub next: Option<Cursor>,
}

impl Catalog {
    /// The catalog in `store`; an empty store becomes an empty catalog.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if the records have another format.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, CatalogError> {
        let catalog = Self::over(store);
        if catalog.found_older().await?.is_some() {
            catalog.set_aside(true);
        }
        let at = key::meta("format");
        let found = catalog.store.get(&at).await?;
        match found.map(|value| decode::<u32>(&at, &value)) {
            Some(Ok(FORMAT)) => Ok(catalog),
            Some(Ok(FORMAT_BEFORE)) => catalog.raise_format(at).await,
            // The store knows its format, too, and would have refused another one.
            Some(Err(error)) => {
                catalog.quarantine(&at, &error.to_string());
                Ok(catalog)
            }
            Some(Ok(other)) => {
                let what = format!("the catalog's records are of format {other}, and this Larder knows {FORMAT}");
                Err(StoreError::Unusable(format!("{what}; use the Larder that wrote them")).into())
            }
            None => {
                let is_new = vec![Check::Empty(KeyRange::all())];
                let batch = Batch::new(is_new, vec![Write::Put(key::meta("format"), encode(&FORMAT))]);
                if catalog.apply(batch).await? {
                    return Ok(catalog);
                }
                let what = "its records are there, but not the one with their format; restore it from a backup";
                Err(StoreError::Unusable(what.into()).into())
            }
        }
    }

    /// Raises the format of the whole catalog before the first record of the new format is written, so an older Larder
    /// refuses all records. A read-only store stays as it is.
    async fn raise_format(self, at: Vec<u8>) -> Result<Self, CatalogError> {
        if !self.store.is_read_only() {
            let (checks, writes) =
                (vec![Check::Is(at.clone(), encode(&FORMAT_BEFORE))], Write::Put(at, encode(&FORMAT)));
            self.apply_or(Batch::new(checks, vec![writes]), CatalogError::Conflict).await?;
        }
        Ok(self)
    }

    /// A catalog over `store`, without a check of its contents.
    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        let opened_at = store.sequence();
        let (ids, quarantine, retries) = (Arc::default(), Arc::default(), Arc::default());
        Self { store, ids, quarantine, grant: None, opened_at, retries }
    }

    /// The reason why records are missing, if some are. Then no data is known to be garbage.
    pub fn incomplete(&self) -> Option<&str> {
        self.store.incomplete()
    }

    /// The reason why nothing is committed before the next start, if a failure left it unknown what is durable.
    pub fn stopped(&self) -> Option<&str> {
        self.store.stopped()
    }

    /// True if the last change found no room.
    pub fn is_full(&self) -> bool {
        self.store.is_full()
    }

    /// True if a batch may carry the bytes of its object ([`Catalog::put_logged_object`]).
    pub fn takes_payloads(&self) -> bool {
        self.store.takes_payloads()
    }

    /// The reason why the log in front of the store has acknowledged batches that the store lacks, if so.
    pub fn behind_log(&self) -> Option<&str> {
        self.store.behind_log()
    }

    /// Makes the log in front of the store retain everything from now on: it may hold what another copy of this catalog
    /// needs.
    pub fn retain_log(&self) {
        self.store.retain_log();
    }

    /// True if the log in front of the store is held: see [`Store::retains_log`].
    pub fn retains_log(&self) -> bool {
        self.store.retains_log()
    }

    /// Reports that a copy of the catalog is stored elsewhere: a log that is held may forget ([`Store::release_log`]).
    pub fn release_log(&self) {
        self.store.release_log();
    }

    /// Sets whether this is an older copy of the catalog ([`Store::set_aside`]).
    pub fn set_aside(&self, is_aside: bool) {
        self.store.set_aside(is_aside);
    }

    /// Returns `error`, which reports that something does not exist; or, if records are missing, that this is unknown.
    pub(crate) fn not_there(&self, error: CatalogError) -> CatalogError {
        match self.incomplete() {
            None => error,
            Some(flaw) => CatalogError::Damaged(format!("{error}, or its record is among the missing ones ({flaw})")),
        }
    }

    /// The record at `at`, if it exists.
    pub(crate) async fn read<T: Decode>(&self, at: &[u8]) -> Result<Option<T>, CatalogError> {
        self.store.get(at).await?.map(|value| self.opened(at, &value)).transpose()
    }

    /// The record in `value`, found at `at`. A damaged record is quarantined. A record on which many objects depend, a
    /// blob's or a bucket's, is still used if only one bit of it is wrong.
    pub(crate) fn opened<T: Decode>(&self, at: &[u8], value: &Sealed) -> Result<T, CatalogError> {
        decode(at, value).or_else(|error| {
            self.quarantine(at, &error.to_string());
            let hang_many = [Tag::Blob as u8, Tag::Bucket as u8].map(Some).contains(&at.first().copied());
            let flipped_back = hang_many.then(|| value.with_a_bit_flipped_back(at)).flatten();
            flipped_back.map_or(Err(error), |flipped_back| decode(at, &flipped_back))
        })
    }

    /// The record at `at` together with its bytes, for a check.
    pub(crate) async fn read_raw<T: Decode>(&self, at: &[u8]) -> Result<Option<(T, Vec<u8>)>, CatalogError> {
        let found = self.store.get(at).await?;
        found.map(|value| Ok((self.opened(at, &value)?, value.unproven_body().to_vec()))).transpose()
    }

    /// The record at `at` together with its bytes, for a check. A damaged record is quarantined and can be replaced. If
    /// only one bit of it is wrong, its true content is returned: the caller that replaces it must know what depended
    /// on it.
    pub(crate) async fn read_to_replace<T: Decode>(
        &self,
        at: &[u8],
    ) -> Result<Option<(Option<T>, Vec<u8>)>, CatalogError> {
        let found = self.store.get(at).await?;
        let flipped_back =
            |value: &Sealed| value.with_a_bit_flipped_back(at).and_then(|flipped_back| decode(at, &flipped_back).ok());
        let record = |value: &Sealed| self.sound(at, value).or_else(|| flipped_back(value));
        Ok(found.map(|value| (record(&value), value.unproven_body().to_vec())))
    }

    /// The record at `at`; a damaged one is quarantined and counts as missing.
    pub(crate) async fn look_up_one<T: Decode>(&self, at: &[u8]) -> Result<Option<T>, CatalogError> {
        Ok(self.store.get(at).await?.and_then(|value| self.sound(at, &value)))
    }

    /// The records at `keys`, in their order; a damaged one is quarantined and counts as missing.
    pub(crate) async fn look_up<T: Decode>(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Option<T>>, CatalogError> {
        let values = self.store.get_many(keys.clone()).await?;
        Ok(keys.iter().zip(values).map(|(at, value)| self.sound(at, &value?)).collect())
    }

    /// The record in `value`, found at `at`, unless it is damaged: then it is quarantined.
    fn sound<T: Decode>(&self, at: &[u8], value: &Sealed) -> Option<T> {
        self.opened(at, value).ok()
    }

    /// The number of the last batch that changed something before the catalog was opened.
    pub fn sequence_at_open(&self) -> Sequence {
        self.opened_at
    }

    /// The number of the last batch that changed something.
    pub fn sequence(&self) -> Sequence {
        self.store.sequence()
    }

    /// Sets one value, without checks.
    pub(crate) async fn put(&self, at: Vec<u8>, value: Vec<u8>) -> Result<(), CatalogError> {
        let batch = Batch::new(Vec::new(), vec![Write::Put(at, value)]);
        rules::assert_obeyed(&batch);
        Ok(self.store.commit(batch).await?)
    }

    /// The same catalog, for changes by the right of `authority` alone. Once that right is gone, each of them returns
    /// [`CatalogError::NoSuchBucket`] or [`CatalogError::NoSuchAccessKey`] and changes nothing.
    #[must_use]
    pub fn authorised(&self, authority: Authority) -> Self {
        let mut authorised = self.clone();
        authorised.grant = Some(Arc::new(Grant::new(authority)));
        authorised
    }

    /// Commits `batch` with the right of this handle. False if one of its checks did not hold.
    pub(crate) async fn apply(&self, batch: Batch) -> Result<bool, CatalogError> {
        rules::assert_obeyed(&batch);
        if let Some(grant) = &self.grant {
            return self.apply_granted(grant, &batch).await;
        }
        match self.store.commit(batch).await {
            Ok(()) => Ok(true),
            Err(StoreError::CheckFailed(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Commits `batch`, or returns `refusal` if one of its checks did not hold.
    pub(crate) async fn apply_or(&self, batch: Batch, refusal: CatalogError) -> Result<(), CatalogError> {
        if self.apply(batch).await? { Ok(()) } else { Err(refusal) }
    }

    /// Commits `writes`, without checks.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<(), CatalogError> {
        self.apply(Batch::new(Vec::new(), writes)).await.map(drop)
    }

    /// As [`Catalog::apply`], if the right of `grant` still holds.
    async fn apply_granted(&self, grant: &Grant, batch: &Batch) -> Result<bool, CatalogError> {
        for _ in 0..GRANT_TRIES {
            // The right is checked first: a client without it does not learn which other check failed.
            let early = is_on(Sabotage::RightsCheckedEarly);
            let mut checks = if early { Vec::new() } else { grant.checks() };
            let rights = checks.len();
            checks.extend_from_slice(&batch.checks);
            let (writes, payload) = (batch.writes.clone(), batch.payload.clone());
            match self.store.commit(Batch { checks, writes, payload }).await {
                Ok(()) => return Ok(true),
                Err(StoreError::CheckFailed(index)) if index >= rights => return Ok(false),
                Err(StoreError::CheckFailed(_)) => self.renew(grant).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(CatalogError::Conflict)
    }

    /// Reads the records of `grant` again.
    async fn renew(&self, grant: &Grant) -> Result<(), CatalogError> {
        let Authority { bucket, access_key } = &grant.authority;
        if let Some(access_key) = access_key
            && self.store.get(&key::access_key(access_key)).await?.is_none()
        {
            return Err(CatalogError::NoSuchAccessKey);
        }
        if let Some(bucket) = bucket {
            grant.bucket_changed(self.same_bucket(bucket).await?);
        }
        Ok(())
    }

    /// Quarantines the record at `at`, which is damaged because of `why`.
    pub(crate) fn quarantine(&self, at: &[u8], why: &str) {
        self.quarantine.add(at, why);
    }

    /// The damaged records that were found since the catalog was opened: at most 1,000 keys, in readable form.
    pub fn quarantined(&self) -> Vec<String> {
        self.quarantine.names()
    }

    /// The first `limit` entries that begin with `prefix` and follow `after`, and the cursor of the next page.
    pub(crate) async fn entries(
        &self,
        prefix: &[u8],
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<Entry>, CatalogError> {
        let range = match after {
            Some(Cursor(key)) => KeyRange::prefix_after(prefix, key),
            None => KeyRange::prefix(prefix),
        };
        let items = self.store.scan(range, limit).await?;
        let full = items.len() == limit;
        let next = items.last().filter(|_| full).map(|last| Cursor(last.key.clone()));
        Ok(Page { items, next })
    }

    /// As [`Catalog::entries`], decoded by `read`. Damaged entries are quarantined and left out.
    pub(crate) async fn page<T>(
        &self,
        prefix: &[u8],
        after: Option<&Cursor>,
        limit: usize,
        read: impl Fn(&Entry) -> Result<T, CatalogError>,
    ) -> Result<Page<T>, CatalogError> {
        let page = self.entries(prefix, after, limit).await?;
        Ok(Page { items: self.sound_entries(&page.items, read), next: page.next })
    }

    /// Those of `entries` that `read` can decode; the others are quarantined and left out.
    pub(crate) fn sound_entries<T>(
        &self,
        entries: &[Entry],
        read: impl Fn(&Entry) -> Result<T, CatalogError>,
    ) -> Vec<T> {
        let sound = |entry: &Entry| read(entry).inspect_err(|error| self.quarantine(&entry.key, &error.to_string()));
        entries.iter().filter_map(|entry| sound(entry).ok()).collect()
    }

    /// Passes to `take` every entry that begins with `prefix`, decoded by `read`. Damaged entries are quarantined and
    /// left out.
    pub(crate) async fn each_entry<T>(
        &self,
        prefix: &[u8],
        read: impl Fn(&Entry) -> Result<T, CatalogError>,
        mut take: impl FnMut(T),
    ) -> Result<(), CatalogError> {
        let mut after = None;
        loop {
            let page = self.page(prefix, after.as_ref(), STEP, &read).await?;
            page.items.into_iter().for_each(&mut take);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Every entry that begins with `prefix`, decoded as by [`Catalog::each_entry`]. For lists that are known to be
    /// short.
    pub(crate) async fn all_entries<T>(
        &self,
        prefix: &[u8],
        read: impl Fn(&Entry) -> Result<T, CatalogError>,
    ) -> Result<Vec<T>, CatalogError> {
        let mut all = Vec::new();
        self.each_entry(prefix, read, |item| all.push(item)).await?;
        Ok(all)
    }

    /// Changes the record at `at`, and retries if another change interferes. `None` if the record does not exist.
    pub(crate) async fn change<T: Encode + Decode>(
        &self,
        at: Vec<u8>,
        change: impl Fn(&mut T),
    ) -> Result<Option<T>, CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let Some((mut record, raw)) = self.read_raw::<T>(&at).await? else { return Ok(None) };
            change(&mut record);
            let writes = vec![Write::Put(at.clone(), encode(&record))];
            if self.apply(Batch::new(vec![Check::Is(at.clone(), raw)], writes)).await? {
                return Ok(Some(record));
            }
        }
    }

    /// The attempts of one change.
    pub(crate) fn retries(&self) -> Retries<'_> {
        Retries { lock: &self.retries, taken: 0 }
    }
}

/// The attempts of one change: the first ones beside others, the next ones alone, then none.
pub(crate) struct Retries<'a> {
    lock: &'a RwLock<()>,
    taken: u32,
}

/// Permission for one attempt to plan and commit a change, until the commit is answered.
pub(crate) enum RetryPermit<'a> {
    /// Other changes may be under way.
    Shared { _guard: RwLockReadGuard<'a, ()> },
    /// No other change of this process is under way.
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

impl<'a> Retries<'a> {
    pub(crate) async fn next(&mut self) -> Result<RetryPermit<'a>, CatalogError> {
        self.taken += 1;
        if self.taken > TRIES {
            return Err(CatalogError::Conflict);
        }
        Ok(if self.taken <= SHARED_TRIES {
            RetryPermit::Shared { _guard: self.lock.read().await }
        } else {
            RetryPermit::Alone { _guard: self.lock.write().await }
        })
    }
}
