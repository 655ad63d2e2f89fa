//! The view of one rotation: its logs and shelves at one moment, and the versions of a key in them.
//!
//! A view never changes; a change of the set makes a new one, by one assignment. So a reader sees each record in
//! exactly one place, while its log is being transformed, afterwards, and while its shelf is being merged. The files in
//! a reader's view are open, and can be read after they were removed.
//!
//! The newest version of a key is the one with the largest number, in any file: logs need not become shelves in order.
//! Shelves are searched from the largest numbers down, and the search ends as soon as no other shelf can have a larger
//! one.

use crate::error::ReadError;
use crate::lost::LostPart;
use crate::mask::Mask;
use crate::names::FileId;
use crate::record::{Kind, Record, Sequence, successor};
use crate::shelf::Trailers;
use crate::shelf::read::{Cursor, Shelf};
use crate::table::{LogTable, Slot};
use model::sabotage::{Sabotage, is_on};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of values at which a page of a scan ends.
const PAGE_BYTES: usize = 4 << 20;

/// The newest version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The number of the change that wrote it.
    pub sequence: Sequence,
    /// The caller's metadata.
    pub entry: Vec<u8>,
    /// The value, or the requested part of it.
    pub value: Vec<u8>,
    /// The length of the whole value.
    pub value_bytes: u64,
    /// True if no loss may have been newer.
    pub certain: bool,
}

/// The requested part of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    Entry,
    /// From this byte on, at most this number of bytes.
    Range(u64, u64),
    /// All of it; a page then also has deleted and forgotten keys.
    Raw,
}

/// A version, possibly a deletion.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) kind: Kind,
    pub(crate) stored: Stored,
}

impl Version {
    fn of(record: &Record<'_>, want: Want) -> Self {
        let value = match want {
            Want::Entry => &[],
            Want::Raw => record.value,
            Want::Range(from, length) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(record.value.len());
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(record.value.len() - from);
                &record.value[from..from + length]
            }
        };
        let (entry, value_bytes) = (record.entry.to_vec(), record.value.len() as u64);
        let (sequence, value) = (record.sequence, value.to_vec());
        let stored = Stored { sequence, entry, value, value_bytes, certain: true };
        Self { kind: record.kind, stored }
    }

    fn in_log(table: &LogTable, slot: Slot, want: Want) -> Result<Self, ReadError> {
        if !matches!(want, Want::Entry) {
            return Ok(Self::of(&table.record(&table.read(slot, true)?)?, want));
        }
        let bytes = table.read(slot, false)?;
        let key = slot.head.key(&bytes)?;
        let entry = bytes[crate::record::HEAD_BYTES + key.len()..].to_vec();
        let value_bytes = u64::from(slot.head.value_bytes);
        let (sequence, value) = (slot.head.sequence, Vec::new());
        let stored = Stored { sequence, entry, value, value_bytes, certain: true };
        Ok(Self { kind: slot.head.kind, stored })
    }
}

/// The logs and shelves of a rotation.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Oldest first; the last one may be open.
    pub(crate) logs: Vec<Arc<LogTable>>,
    /// In descending order of their largest numbers.
    pub(crate) shelves: Vec<Arc<Shelf>>,
    /// The masks of all shelves.
    pub(crate) masks: Vec<Mask>,
    /// The lost parts, for each rotation in this view; only parts that all of them lost are really lost.
    pub(crate) lost: Vec<Vec<LostPart>>,
    /// True if a drive is missing, which may come back with any content.
    pub(crate) missing: bool,
    /// True if the other rotation has acknowledged changes that this one has not taken.
    pub(crate) behind: bool,
}

impl Default for View {
    fn default() -> Self {
        let (logs, shelves, masks, lost) = (Vec::new(), Vec::new(), Vec::new(), vec![Vec::new()]);
        Self { logs, shelves, masks, lost, missing: false, behind: false }
    }
}

impl View {
    /// The largest number in it.
    pub(crate) fn last(&self) -> Sequence {
        let shelves = self.shelves.iter().map(|shelf| shelf.sequences().1);
        let logs = self.logs.iter().map(|log| log.index.read().last);
        shelves.chain(logs).max().unwrap_or_default()
    }

    /// One more than the largest trailer of its keys, or above; 0 if they have none.
    pub(crate) fn trailers_end(&self) -> u64 {
        let end = |key: &[u8]| Trailers::of(key).map_or(0, |trailer| trailer.saturating_add(1));
        let in_log = |log: &Arc<LogTable>| log.index.read().keys.keys().map(|key| end(key)).max().unwrap_or(0);
        let shelves = self.shelves.iter().map(|shelf| shelf.trailers_end());
        self.logs.iter().map(in_log).chain(shelves).max().unwrap_or(0)
    }

    /// True if it has everything.
    pub(crate) fn is_whole(&self) -> bool {
        (!self.behind && !self.has_losses()) || is_on(Sabotage::CopyBelievedComplete)
    }

    /// True if exactly this part was lost, and not restored since.
    pub(crate) fn has_lost(&self, part: &LostPart) -> bool {
        self.lost.iter().any(|parts| parts.contains(part))
    }

    /// True if something was lost.
    pub(crate) fn has_losses(&self) -> bool {
        self.lost.iter().all(|parts| !parts.is_empty())
    }

    /// True if a version of `key` newer than `sequence` may have been lost.
    pub(crate) fn may_have_lost(&self, key: &[u8], sequence: Sequence) -> bool {
        self.lost.iter().all(|parts| parts.iter().any(|part| part.may_have(key, sequence)))
    }

    /// The same view with the parts `lost`.
    pub(crate) fn without(&self, lost: impl IntoIterator<Item = LostPart>) -> Self {
        let mut view = self.clone();
        assert!(view.lost.len() == 1, "losses are noted where they happen");
        view.lost[0].extend(lost);
        view
    }

    /// The same view without the logs and shelves of `gone`, and with `shelf`.
    pub(crate) fn replaced(&self, gone: &[FileId], shelf: Option<Arc<Shelf>>) -> Self {
        let mut view = self.clone();
        view.logs.retain(|log| !gone.contains(&log.file));
        view.shelves.retain(|old| !gone.contains(&old.file));
        view.note_losses(shelf.iter());
        view.shelves.extend(shelf);
        view.settle();
        view
    }

    /// Adds the lost parts of `shelves`.
    pub(crate) fn note_losses<'a>(&mut self, shelves: impl Iterator<Item = &'a Arc<Shelf>>) {
        assert!(self.lost.len() == 1, "losses are noted where they happen");
        for part in shelves.flat_map(|shelf| shelf.lost()) {
            if !self.lost[0].contains(&part) {
                self.lost[0].push(part);
            }
        }
    }

    /// Removes the logs and shelves that have nothing above `known`; their masks stay.
    pub(crate) fn retain_after(&mut self, known: Sequence) {
        self.masks = self.all_masks();
        self.logs.retain(|log| log.index.read().last > known);
        self.shelves.retain(|shelf| shelf.sequences().1 > known);
    }

    /// The combination of all `views`.
    pub(crate) fn union(views: &[Arc<Self>]) -> Self {
        let mut union = Self { lost: Vec::new(), ..Self::default() };
        for view in views {
            union.missing |= view.missing;
            union.lost.extend_from_slice(&view.lost);
            if let Some(lost) = union.lost.last_mut().filter(|_| view.behind) {
                lost.push(LostPart { keys: None, max: Sequence(u64::MAX) });
            }
            union.logs.extend_from_slice(&view.logs);
            union.shelves.extend_from_slice(&view.shelves);
        }
        union.settle();
        union
    }

    /// Sorts the shelves, and collects their masks.
    pub(crate) fn settle(&mut self) {
        self.shelves.sort_by_key(|shelf| std::cmp::Reverse(shelf.sequences().1));
        self.masks = self.shelves.iter().flat_map(|shelf| shelf.masks().iter().cloned()).collect();
        self.masks.sort_unstable();
        self.masks.dedup();
    }

    /// All masks, including those of logs.
    pub(crate) fn all_masks(&self) -> Vec<Mask> {
        let mut masks = self.masks.clone();
        for log in &self.logs {
            masks.extend_from_slice(&log.index.read().masks);
        }
        masks
    }

    /// True if `key` has this version or a newer one here.
    pub(crate) fn holds(&self, key: &[u8], sequence: Sequence) -> bool {
        let newest = self.newest(key, Want::Entry);
        newest.is_ok_and(|(version, _)| version.is_some_and(|version| version.stored.sequence >= sequence))
    }

    /// The newest version of `key`, if the key exists.
    pub(crate) fn get(&self, key: &[u8], want: Want) -> Result<Option<Stored>, ReadError> {
        let (version, hidden) = self.newest(key, want)?;
        let sequence = version.as_ref().map_or(hidden, |version| version.stored.sequence.max(hidden));
        let is_there = |version: &Version| version.kind == Kind::Put && version.stored.sequence > hidden;
        match version.filter(is_there) {
            Some(version) => Ok(Some(version.stored)),
            None if self.may_have_lost(key, sequence) && self.missing => Err(ReadError::Away),
            None if self.may_have_lost(key, sequence) => Err(ReadError::Lost),
            None => Ok(None),
        }
    }

    /// The newest record of `key`, possibly a deletion, and the last forgotten number of this key.
    pub(crate) fn newest(&self, key: &[u8], want: Want) -> Result<(Option<Version>, Sequence), ReadError> {
        let mut hidden = self.masks.iter().filter(|mask| mask.hides(key, Sequence(0))).map(|mask| mask.up_to).max();
        let mut in_log: Option<(&LogTable, Slot)> = None;
        for log in &self.logs {
            let (slot, hidden_here) = log.find(key);
            hidden = hidden.max(Some(hidden_here));
            if let Some(slot) = slot
                && in_log.is_none_or(|(_, best)| best.head.sequence < slot.head.sequence)
            {
                in_log = Some((log, slot));
            }
        }
        let mut best = in_log.map(|(_, slot)| slot.head.sequence).unwrap_or_default().max(hidden.unwrap_or_default());
        let mut version = None;
        for shelf in &self.shelves {
            if shelf.sequences().1 <= best {
                break;
            }
            if !shelf.may_have(key) {
                continue;
            }
            let cursor = shelf.from(key)?;
            if let Some(record) = cursor.record()?.filter(|record| record.key == key && record.sequence > best) {
                best = record.sequence;
                version = Some(Version::of(&record, want));
            }
        }
        if version.is_none()
            && let Some((log, slot)) = in_log
        {
            version = Some(Version::in_log(log, slot, want)?);
        }
        let hidden = hidden.unwrap_or_default();
        if let Some(version) = &mut version {
            version.stored.certain = !self.may_have_lost(key, version.stored.sequence);
        }
        Ok((version, hidden))
    }
}

/// A key and its newest version.
pub(crate) type Item = (Vec<u8>, Version);

/// Some keys in order.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Item>,
    /// Start of the next page; `None` at the end.
    pub(crate) next: Option<Vec<u8>>,
}

/// A source of a page: the records of a log in the range, or a shelf.
enum Source<'a> {
    Log(&'a LogTable, std::vec::IntoIter<(Box<[u8]>, Slot)>, Option<(Box<[u8]>, Slot)>),
    Shelf(Cursor),
}

impl Source<'_> {
    /// Its next key, and the number of that version.
    fn peek(&self) -> Result<Option<(&[u8], Sequence)>, ReadError> {
        Ok(match self {
            Self::Log(_, _, next) => next.as_ref().map(|(key, slot)| (&**key, slot.head.sequence)),
            Self::Shelf(cursor) => cursor.record()?.map(|record| (record.key, record.sequence)),
        })
    }

    fn version(&self, want: Want) -> Result<Option<Version>, ReadError> {
        match self {
            Self::Log(log, _, next) => next.as_ref().map(|(_, slot)| Version::in_log(log, *slot, want)).transpose(),
            Self::Shelf(cursor) => Ok(cursor.record()?.map(|record| Version::of(&record, want))),
        }
    }

    fn advance(&mut self) -> Result<(), ReadError> {
        match self {
            Self::Log(_, rest, next) => {
                *next = rest.next();
                Ok(())
            }
            Self::Shelf(cursor) => cursor.advance(),
        }
    }
}

impl View {
    /// At most `most` keys from `from` on and before `to`, in order, at this moment.
    pub(crate) fn page(&self, from: &[u8], to: Option<&[u8]>, most: usize, want: Want) -> Result<Page, ReadError> {
        assert!(most > 0, "a page has room");
        let masks = self.all_masks();
        // Beyond the horizon some log has keys that were not collected.
        let mut horizon: Option<Box<[u8]>> = None;
        let mut sources = self.log_sources(from, to, most, &mut horizon);
        for shelf in self.shelves.iter().filter(|shelf| shelf.keys().is_some_and(|(_, last)| last >= from)) {
            sources.push(Source::Shelf(shelf.from(from)?));
        }
        let mut page = Page { items: Vec::new(), next: None };
        let (mut bytes, mut passed) = (0, 0);
        while let Some(key) = least(&sources)? {
            if to.is_some_and(|to| key.as_slice() >= to) {
                return Ok(page);
            }
            // A page also ends after a number of passed keys, deleted ones included, so that no page takes forever.
            if passed >= 16 * most || page.items.len() >= most || bytes >= PAGE_BYTES {
                page.next = Some(key);
                return Ok(page);
            }
            if horizon.as_deref().is_some_and(|horizon| key.as_slice() > horizon) {
                break;
            }
            passed += 1;
            let mut version = take(&mut sources, &key, want)?;
            version.stored.certain = !self.may_have_lost(&key, version.stored.sequence);
            let is_hidden = masks.iter().any(|mask| mask.hides(&key, version.stored.sequence));
            if matches!(want, Want::Raw) || (version.kind == Kind::Put && !is_hidden) {
                bytes += version.stored.value.len() + version.stored.entry.len();
                page.items.push((key, version));
            }
        }
        page.next = horizon.map(|horizon| successor(&horizon));
        Ok(page)
    }

    fn log_sources(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        most: usize,
        horizon: &mut Option<Box<[u8]>>,
    ) -> Vec<Source<'_>> {
        let mut sources = Vec::new();
        if to.is_some_and(|to| to <= from) {
            return sources;
        }
        for log in &self.logs {
            let index = log.index.read();
            let range = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
            let found = index.keys.range::<[u8], _>(range).take(most).map(|(key, slot)| (key.clone(), *slot));
            let found: Vec<_> = found.collect();
            if found.len() == most
                && let Some((last, _)) = found.last()
                && horizon.as_ref().is_none_or(|horizon| last < horizon)
            {
                *horizon = Some(last.clone());
            }
            let mut rest = found.into_iter();
            let next = rest.next();
            sources.push(Source::Log(log, rest, next));
        }
        sources
    }
}

/// The least key of all sources.
fn least(sources: &[Source<'_>]) -> Result<Option<Vec<u8>>, ReadError> {
    let mut least: Option<&[u8]> = None;
    for source in sources {
        if let Some((key, _)) = source.peek()?
            && least.is_none_or(|least| key < least)
        {
            least = Some(key);
        }
    }
    Ok(least.map(<[u8]>::to_vec))
}

/// Takes the newest version of `key` from the sources, and moves each of them past the key.
fn take(sources: &mut [Source<'_>], key: &[u8], want: Want) -> Result<Version, ReadError> {
    let mut newest: Option<(usize, Sequence)> = None;
    let mut holders = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        if let Some((_, sequence)) = source.peek()?.filter(|(found, _)| *found == key) {
            holders.push(at);
            if newest.is_none_or(|(_, best)| best < sequence) {
                newest = Some((at, sequence));
            }
        }
    }
    let version = newest.map(|(at, _)| sources[at].version(want)).transpose()?.flatten();
    for at in holders {
        sources[at].advance()?;
    }
    version.map_or_else(|| unreachable!("some source has the key"), Ok)
}
