//! The typed catalog over any store: what all its parts share.
//!
//! Every change is read, planned and committed as one batch whose checks are what was read; if another change was
//! faster, it is planned anew. To guarantee progress within a process, a change that lost several times makes its next
//! attempt alone.
//!
//! A call whose future is dropped may or may not have happened. Where the answer names something to free (a slot), let
//! the call run to its end in a task of its own; what is lost anyway is found at boot ([`Catalog::staged_slots`]).

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

/// The format of the records as a whole, checked at open.
const FORMAT: u32 = 4;
/// The one before it, in which objects had the common form of all records. Both are read for ever.
const FORMAT_BEFORE: u32 = 3;
/// Retries a change takes beside others before it takes one alone.
const SHARED_TRIES: u32 = 4;
/// Retries a change takes in all. Alone, only another process on the same store can be in its way.
const TRIES: u32 = 16;
/// Times that a bucket may have been changed while a batch waits; a bucket is seldom changed at all.
const GRANT_TRIES: u32 = 16;
/// Entries read at once where everything is walked.
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

/// The unused numbers of the blocks that were reserved.
#[derive(Debug, Default)]
pub(crate) struct ReservedIds {
    pub(crate) versions: Mutex<Range<u64>>,
    pub(crate) slots: Mutex<Range<u64>>,
    pub(crate) blobs: Mutex<Range<u64>>,
}

/// Where a page ended. Opaque; usable for as long as the catalog lives, whatever happens to the entry it stands on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(pub(crate) Vec<u8>);

/// Some of a longer list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// These.
    pub items: Vec<T>,
    /// Where to go on. `None` after the last page, which may be an empty one.
    pub next: Option<Cursor>,
}

impl Catalog {
    /// The catalog in `store`; an empty store becomes an empty catalog.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if the records are of another format.
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
            // The store knows its own format as well, and would have refused another one.
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

    /// Before the first record of the new format is written, the format as a whole says so, so that an older Larder
    /// refuses them all. What cannot be changed stays as it is.
    async fn raise_format(self, at: Vec<u8>) -> Result<Self, CatalogError> {
        if !self.store.is_read_only() {
            let (checks, writes) =
                (vec![Check::Is(at.clone(), encode(&FORMAT_BEFORE))], Write::Put(at, encode(&FORMAT)));
            self.apply_or(Batch::new(checks, vec![writes]), CatalogError::Conflict).await?;
        }
        Ok(self)
    }

    /// A catalog over `store`, whatever is in it.
    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        let opened_at = store.sequence();
        let (ids, quarantine, retries) = (Arc::default(), Arc::default(), Arc::default());
        Self { store, ids, quarantine, grant: None, opened_at, retries }
    }

    /// Why records are missing that should be here, if some are. Then nothing is known to be garbage.
    pub fn incomplete(&self) -> Option<&str> {
        self.store.incomplete()
    }

    /// Why nothing is committed any more before the next start, if a failure left open what is durable.
    pub fn stopped(&self) -> Option<&str> {
        self.store.stopped()
    }

    /// True if there was no room for the last change.
    pub fn is_full(&self) -> bool {
        self.store.is_full()
    }

    /// True if the bytes of an object may travel with its batch ([`Catalog::put_logged_object`]).
    pub fn takes_payloads(&self) -> bool {
        self.store.takes_payloads()
    }

    /// Why the log in front of the store has acknowledged batches that the store has not, if that is so.
    pub fn behind_log(&self) -> Option<&str> {
        self.store.behind_log()
    }

    /// From now on the log in front of the store forgets nothing: what another copy of this catalog needs may be there.
    pub fn retain_log(&self) {
        self.store.retain_log();
    }

    /// True if the log in front of the store is held: see [`Store::holds_log`].
    pub fn holds_log(&self) -> bool {
        self.store.holds_log()
    }

    /// A copy of the catalog is kept elsewhere: a log that is held may forget ([`Store::release_log`]).
    pub fn release_log(&self) {
        self.store.release_log();
    }

    /// Sets if this is an older copy of the catalog ([`Store::set_aside`]).
    pub fn set_aside(&self, is_aside: bool) {
        self.store.set_aside(is_aside);
    }

    /// `error`, that something does not exist; or, where records are missing, that this is unknown.
    pub(crate) fn not_there(&self, error: CatalogError) -> CatalogError {
        match self.incomplete() {
            None => error,
            Some(flaw) => CatalogError::Damaged(format!("{error}, or its record is one that is missing ({flaw})")),
        }
    }

    /// The record at `at`, if there is one.
    pub(crate) async fn read<T: Decode>(&self, at: &[u8]) -> Result<Option<T>, CatalogError> {
        self.store.get(at).await?.map(|value| self.opened(at, &value)).transpose()
    }

    /// The record in `value`, found at `at`; a damaged one is quarantined, too. A record on which many objects hang, a
    /// blob's or a bucket's, is used all the same if but one bit of it is wrong.
    pub(crate) fn opened<T: Decode>(&self, at: &[u8], value: &Sealed) -> Result<T, CatalogError> {
        decode(at, value).or_else(|error| {
            self.quarantine(at, &error.to_string());
            let hang_many = [Tag::Blob as u8, Tag::Bucket as u8].map(Some).contains(&at.first().copied());
            let mended = hang_many.then(|| value.with_a_bit_flipped_back(at)).flatten();
            mended.map_or(Err(error), |mended| decode(at, &mended))
        })
    }

    /// The record at `at` together with its bytes, for a check.
    pub(crate) async fn read_raw<T: Decode>(&self, at: &[u8]) -> Result<Option<(T, Vec<u8>)>, CatalogError> {
        let found = self.store.get(at).await?;
        found.map(|value| Ok((self.opened(at, &value)?, value.unproven_body().to_vec()))).transpose()
    }

    /// The record at `at` together with its bytes, for a check; a damaged one is quarantined and can be replaced. If
    /// but one bit of it is wrong it is what it was: whoever replaces it must know what hung on it.
    pub(crate) async fn read_to_replace<T: Decode>(
        &self,
        at: &[u8],
    ) -> Result<Option<(Option<T>, Vec<u8>)>, CatalogError> {
        let found = self.store.get(at).await?;
        let mended = |value: &Sealed| value.with_a_bit_flipped_back(at).and_then(|mended| decode(at, &mended).ok());
        let record = |value: &Sealed| self.sound(at, value).or_else(|| mended(value));
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

    /// Sets one value, whatever was there.
    pub(crate) async fn put(&self, at: Vec<u8>, value: Vec<u8>) -> Result<(), CatalogError> {
        let batch = Batch::new(Vec::new(), vec![Write::Put(at, value)]);
        rules::assert_obeyed(&batch);
        Ok(self.store.commit(batch).await?)
    }

    /// The same catalog, for changes by the right of `authority` alone: each of them answers
    /// [`CatalogError::NoSuchBucket`] or [`CatalogError::NoSuchAccessKey`], and changes nothing, once that right is
    /// gone.
    #[must_use]
    pub fn authorised(&self, authority: Authority) -> Self {
        let mut authorised = self.clone();
        authorised.grant = Some(Arc::new(Grant::new(authority)));
        authorised
    }

    /// Commits `batch`, by the right that this handle has. False if one of its checks did not hold.
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

    /// Commits `batch`, or answers `refusal` if one of its checks did not hold.
    pub(crate) async fn apply_or(&self, batch: Batch, refusal: CatalogError) -> Result<(), CatalogError> {
        if self.apply(batch).await? { Ok(()) } else { Err(refusal) }
    }

    /// Commits `writes`, whatever was there.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<(), CatalogError> {
        self.apply(Batch::new(Vec::new(), writes)).await.map(drop)
    }

    /// As [`Catalog::apply`], if the right of `grant` still holds.
    async fn apply_granted(&self, grant: &Grant, batch: &Batch) -> Result<bool, CatalogError> {
        for _ in 0..GRANT_TRIES {
            // The right comes first: a client without it does not learn which other check failed.
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

    /// Reads again what `grant` rests on.
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

    /// Leaves out the record at `at`, which is damaged because of `why`.
    pub(crate) fn quarantine(&self, at: &[u8], why: &str) {
        self.quarantine.add(at, why);
    }

    /// The damaged records that were met since the catalog was opened, by key, readable for people; 1,000 at most.
    pub fn quarantined(&self) -> Vec<String> {
        self.quarantine.names()
    }

    /// The first `limit` entries that begin with `prefix` and lie behind `after`, and where to go on.
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

    /// As [`Catalog::entries`], decoded by `read`, but for those that are damaged, which are quarantined.
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

    /// Those of `entries` that `read` makes sense of; the others are quarantined and left out.
    pub(crate) fn sound_entries<T>(
        &self,
        entries: &[Entry],
        read: impl Fn(&Entry) -> Result<T, CatalogError>,
    ) -> Vec<T> {
        let sound = |entry: &Entry| read(entry).inspect_err(|error| self.quarantine(&entry.key, &error.to_string()));
        entries.iter().filter_map(|entry| sound(entry).ok()).collect()
    }

    /// Gives `take` every entry that begins with `prefix`, decoded by `read`, but for those that are damaged, which are
    /// quarantined.
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

    /// Every entry that begins with `prefix`, as [`Catalog::each_entry`] gives them. For lists that are known to be
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

    /// Changes the record at `at`, again if others change it meanwhile; `None` if there is none.
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

/// The retries of one change: the first ones beside others, then alone, then none.
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
