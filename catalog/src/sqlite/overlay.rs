//! Committed records that are not in the file yet, and recently read ones: in memory, over the file for all readers.
//!
//! If a log is in front, a commit changes no page of the file. Its records wait here, and are folded into the file many
//! at once (`records.rs`): in the order of keys, so that each page is changed once for many of them, and with the last
//! value of each key. Values that are read again and again (a bucket's record, for every PUT and GET) are remembered,
//! so looking them up needs neither a statement nor another thread.
//!
//! Invariants:
//! - the file with the waiting records over it is the state of the last commit. During a fold nothing is committed;
//! - `folds` grows before a fold commits and when it ends. A reader that finds it unchanged after a read of the file
//!   has read there the records that were not here before, and none that were committed later;
//! - the remembered value of a key is its value in the last commit: a commit removes it, and a value that was read is
//!   remembered only if nothing was folded meanwhile and the key does not wait;
//! - no key is above the bound of its first byte. Keys with numbers or dates arrive in order, and kinds without records
//!   (unreadable versions) are looked up all the time; neither needs the file.
//!
//! Memory: the waiting records, which the committer bounds; at most [`REMEMBERED_MAX`] values of at most
//! [`REMEMBERED_BYTES_MAX`] each; a key for each first byte.

use super::statements::{Changes, Statements};
use crate::seal::Sealed;
use crate::store::{Entry, KeyRange};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Number of remembered values. When it is exceeded, all are forgotten: the important ones soon return.
const REMEMBERED_MAX: usize = 4_096;
/// Maximum size in bytes of a key and its value that are remembered.
const REMEMBERED_BYTES_MAX: usize = 1_024;
/// Approximate memory in bytes of a waiting record beside its key and its value.
const RECORD_BYTES: usize = 64;

/// See the header of this file.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    state: RwLock<State>,
    /// False if anything but its own commits changes the file; then nothing may be remembered.
    remembers: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Shared only with a fold, during which nothing is committed.
    waiting: Arc<Changes>,
    waiting_bytes: usize,
    folds: u64,
    remembered: HashMap<Vec<u8>, Option<Sealed>>,
    /// The highest keys, by first byte.
    bounds: HashMap<u8, Vec<u8>>,
}

/// Value of `folds` when a key was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Folds(u64);

impl Overlay {
    /// An empty overlay over a file that only its folds change.
    pub(super) fn of_a_writer() -> Self {
        Self { remembers: true, ..Self::default() }
    }

    /// `changes` over a file that does not change.
    pub(super) fn of(changes: Changes) -> Self {
        Self { state: RwLock::new(State { waiting: Arc::new(changes), ..State::default() }), remembers: false }
    }

    /// The value of `key` as of the last commit, or `Err` if only the file knows it.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Sealed>, Folds> {
        self.state.read().get(key)
    }

    /// The value of `key`, read from the file if necessary.
    pub(super) fn get_over(&self, file: &Statements<'_>, key: &[u8]) -> rusqlite::Result<Option<Sealed>> {
        match self.get(key) {
            Ok(value) => Ok(value),
            Err(folds) => {
                if self.learn_bound(file, key)? {
                    return Ok(None);
                }
                let value = file.get(key)?;
                self.remember(key, value.as_ref(), folds);
                Ok(value)
            }
        }
    }

    /// True if `key` has a value; reads the file if necessary.
    pub(super) fn is_there(&self, file: &Statements<'_>, key: &[u8]) -> rusqlite::Result<bool> {
        match self.get(key) {
            Ok(value) => Ok(value.is_some()),
            Err(_) if self.learn_bound(file, key)? => Ok(false),
            Err(_) => file.is_there(key),
        }
    }

    /// The values of `keys` as of one moment; `None` if any of them needs the file.
    pub(super) fn get_many(&self, keys: &[Vec<u8>]) -> Option<Vec<Option<Sealed>>> {
        let state = self.state.read();
        keys.iter().map(|key| state.get(key).ok()).collect()
    }

    /// The values of `keys` as of one moment.
    pub(super) fn get_many_over(
        &self,
        file: &Statements<'_>,
        keys: &[Vec<u8>],
    ) -> rusqlite::Result<Vec<Option<Sealed>>> {
        loop {
            let (mut values, folds) = {
                let state = self.state.read();
                (keys.iter().map(|key| state.get(key).ok()).collect::<Vec<_>>(), Folds(state.folds))
            };
            let unknown: Vec<usize> = (0..keys.len()).filter(|at| values[*at].is_none()).collect();
            let asked: Vec<&[u8]> = unknown.iter().map(|at| keys[*at].as_slice()).collect();
            for (at, value) in unknown.into_iter().zip(file.get_many(&asked)?) {
                self.learn_bound(file, &keys[at])?;
                self.remember(&keys[at], value.as_ref(), folds);
                values[at] = Some(value);
            }
            if self.folds() == folds {
                return Ok(values.into_iter().map(Option::unwrap_or_default).collect());
            }
        }
    }

    /// The first `limit` entries of `range`, as of one moment.
    pub(super) fn scan_over(
        &self,
        file: &Statements<'_>,
        range: &KeyRange,
        limit: usize,
    ) -> rusqlite::Result<Vec<Entry>> {
        loop {
            let (part, changes, folds) = self.changes_in(range.clone(), limit);
            let found = merged(file, part, limit, changes)?;
            if self.folds() == folds {
                return Ok(found);
            }
        }
    }

    /// The waiting records in `range` that the first `limit` entries depend on, and the part of the range that holds
    /// these entries.
    pub(super) fn changes_in(&self, mut range: KeyRange, limit: usize) -> (KeyRange, Changes, Folds) {
        let state = self.state.read();
        let (mut changes, mut there) = (Changes::new(), 0);
        let mut waiting = within(&state.waiting, &range);
        while there < limit
            && let Some((key, value)) = waiting.next()
        {
            changes.insert(key.clone(), value.clone());
            there += usize::from(value.is_some());
        }
        drop(waiting);
        if there >= limit
            && let Some((last, _)) = changes.last_key_value()
        {
            range.end = Bound::Included(last.clone());
        }
        (range, changes, Folds(state.folds))
    }

    /// Makes `changes` the last commit.
    pub(super) fn publish(&self, changes: Changes) {
        let mut state = self.state.write();
        let State { waiting, waiting_bytes, remembered, bounds, .. } = &mut *state;
        let waiting = Arc::make_mut(waiting);
        for (key, value) in changes {
            remembered.remove(&key);
            let bound = key.first().and_then(|first| bounds.get_mut(first));
            if let Some(bound) = bound.filter(|bound| **bound < key) {
                bound.clone_from(&key);
            }
            let fixed_bytes = key.len() + RECORD_BYTES;
            *waiting_bytes += fixed_bytes + bytes_of(value.as_ref());
            if let Some(before) = waiting.insert(key, value) {
                *waiting_bytes -= fixed_bytes + bytes_of(before.as_ref());
            }
        }
    }

    /// Approximate memory of the waiting records in bytes.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.state.read().waiting_bytes
    }

    /// Passes to `write` all waiting records, which it must write and commit.
    pub(super) fn fold<E>(&self, write: impl FnOnce(&Changes) -> Result<(), E>) -> Result<(), E> {
        let waiting = {
            let mut state = self.state.write();
            state.folds += 1;
            Arc::clone(&state.waiting)
        };
        // Readers continue meanwhile. Nothing is committed: the committing thread is here.
        write(&waiting)?;
        let mut state = self.state.write();
        assert!(Arc::ptr_eq(&state.waiting, &waiting), "nothing is committed while the last commits are folded");
        (state.waiting, state.waiting_bytes) = (Arc::default(), 0);
        state.folds += 1;
        // A large map is not freed under the lock.
        drop(state);
        drop(waiting);
        Ok(())
    }

    /// A copy of the waiting records, and the value of `folds`. During a fold the copy gives the same state over the
    /// file before and after it.
    pub(super) fn waiting(&self) -> (Changes, Folds) {
        let (waiting, folds) = {
            let state = self.state.read();
            (Arc::clone(&state.waiting), state.folds)
        };
        // Copied without the lock; a commit meanwhile also copies it.
        ((*waiting).clone(), Folds(folds))
    }

    pub(super) fn folds(&self) -> Folds {
        Folds(self.state.read().folds)
    }

    fn remember(&self, key: &[u8], value: Option<&Sealed>, folds: Folds) {
        let bytes = key.len() + bytes_of(value);
        if !self.remembers || bytes > REMEMBERED_BYTES_MAX {
            return;
        }
        let mut state = self.state.write();
        if Folds(state.folds) != folds || state.waiting.contains_key(key) {
            return;
        }
        if state.remembered.len() >= REMEMBERED_MAX {
            state.remembered.clear();
        }
        state.remembered.insert(key.to_vec(), value.cloned());
    }
}

impl Overlay {
    /// Reads the bound of the first byte of `key`, unless it is known. True if `key` is above a bound that was read
    /// now.
    fn learn_bound(&self, file: &Statements<'_>, key: &[u8]) -> rusqlite::Result<bool> {
        let Some(first) = key.first().copied().filter(|_| self.remembers) else { return Ok(false) };
        let folds = {
            let state = self.state.read();
            if state.bounds.contains_key(&first) {
                return Ok(false);
            }
            Folds(state.folds)
        };
        let of_file = file.last_beginning_with(first)?.unwrap_or_else(|| vec![first]);
        let mut state = self.state.write();
        if Folds(state.folds) != folds {
            return Ok(false);
        }
        let waiting = within(&state.waiting, &KeyRange::prefix(&[first])).last();
        let bound = waiting.map_or_else(Vec::new, |(last, _)| last.clone()).max(of_file);
        let is_behind = key > bound.as_slice();
        state.bounds.insert(first, bound);
        Ok(is_behind)
    }
}

impl State {
    fn get(&self, key: &[u8]) -> Result<Option<Sealed>, Folds> {
        if let Some(known) = self.waiting.get(key).or_else(|| self.remembered.get(key)) {
            return Ok(known.clone());
        }
        let bound = key.first().and_then(|first| self.bounds.get(first));
        let is_behind = bound.is_some_and(|bound| key > bound.as_slice());
        if is_behind { Ok(None) } else { Err(Folds(self.folds)) }
    }
}

fn bytes_of(value: Option<&Sealed>) -> usize {
    value.map_or(0, |value| value.as_bytes().len())
}

/// The changes in `range`.
pub(super) fn within<'c>(
    changes: &'c Changes,
    range: &KeyRange,
) -> impl Iterator<Item = (&'c Vec<u8>, &'c Option<Sealed>)> {
    let (start, end) = range.clone().half_open();
    changes.range(start..).take_while(move |(key, _)| end.as_ref().is_none_or(|end| *key < end))
}

/// The first `limit` entries of `range` in `file`, with `changes` over it, all of which are in the range.
pub(super) fn merged(
    file: &Statements<'_>,
    range: KeyRange,
    limit: usize,
    changes: Changes,
) -> rusqlite::Result<Vec<Entry>> {
    // Each change hides at most one entry of the file.
    let page = file.scan(range, limit.saturating_add(changes.len()))?;
    if changes.is_empty() {
        return Ok(page);
    }
    let mut entries: BTreeMap<Vec<u8>, Option<Sealed>> =
        page.into_iter().map(|entry| (entry.key, Some(entry.value))).collect();
    entries.extend(changes);
    let there = entries.into_iter().filter_map(|(key, value)| Some(Entry { key, value: value? }));
    Ok(there.take(limit).collect())
}
