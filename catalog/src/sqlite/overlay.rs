//! What was committed and is not in the file yet, and what was read last: in memory, seen by all readers over the file.
//!
//! Behind a log a commit changes no page of the file. Its records wait here, and are folded into the file many at once
//! (`records.rs`): in the order of keys, so that each page is changed once for many of them, and each key as it is at
//! last. What is read again and again (a bucket's record, for every PUT and GET) is remembered, so that a look-up of it
//! needs neither a statement nor another thread.
//!
//! Invariants:
//! - the file with what waits over it is the state of the last commit. While a fold is under way nothing is committed;
//! - `folds` grows before a fold commits and when it is over: who finds it as it was behind a read of the file has read
//!   there what was not here before, and nothing that was committed later;
//! - what is remembered of a key is its value of the last commit: a commit takes it out, and what was read is put in
//!   only if nothing was folded meanwhile and nothing of that key waits;
//! - no key lies behind the bound of its first byte: what is numbered or dated comes in order, and kinds of which there
//!   is none (versions that cannot be read) are asked for all the time; neither needs a look at the file.
//!
//! Memory: what waits, which the one that commits bounds; [`REMEMBERED_MAX`] values of [`REMEMBERED_BYTES_MAX`] at
//! most; a key for each first byte.

use super::statements::{Changes, Statements};
use crate::seal::Sealed;
use crate::store::{Entry, KeyRange};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Values that are remembered. When there are more, all are forgotten: those that matter are there again at once.
const REMEMBERED_MAX: usize = 4_096;
/// Bytes of a key and its value that are remembered.
const REMEMBERED_BYTES_MAX: usize = 1_024;
/// What a record that waits takes beside its key and its value, in bytes, roughly.
const RECORD_BYTES: usize = 64;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    state: RwLock<State>,
    /// False if others than its own commits change the file, so that nothing may be remembered.
    remembers: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Shared only with a fold, during which nothing is committed.
    waiting: Arc<Changes>,
    waiting_bytes: usize,
    folds: u64,
    remembered: HashMap<Vec<u8>, Option<Sealed>>,
    /// By first byte.
    bounds: HashMap<u8, Vec<u8>>,
}

/// How often something was folded when a key was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Folds(u64);

impl Overlay {
    /// An empty overlay over a file that only folds of it change.
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

    /// The value of `key`, with a look at the file if need be.
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

    /// True if `key` has a value, with a look at the file if need be.
    pub(super) fn is_there(&self, file: &Statements<'_>, key: &[u8]) -> rusqlite::Result<bool> {
        match self.get(key) {
            Ok(value) => Ok(value.is_some()),
            Err(_) if self.learn_bound(file, key)? => Ok(false),
            Err(_) => file.is_there(key),
        }
    }

    /// The values of `keys` as of one moment, if the file is not needed for any of them.
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

    /// What waits in `range`, as far as the first `limit` entries of it depend on that, and the part of the range that
    /// they lie in.
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

    /// About the bytes of memory of what waits.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.state.read().waiting_bytes
    }

    /// Gives `write` all that waits, to be written and committed.
    pub(super) fn fold<E>(&self, write: impl FnOnce(&Changes) -> Result<(), E>) -> Result<(), E> {
        let waiting = {
            let mut state = self.state.write();
            state.folds += 1;
            Arc::clone(&state.waiting)
        };
        // Readers go on meanwhile. Nobody commits: whoever does that is here.
        write(&waiting)?;
        let mut state = self.state.write();
        assert!(Arc::ptr_eq(&state.waiting, &waiting), "nothing is committed while the last commits are folded");
        (state.waiting, state.waiting_bytes) = (Arc::default(), 0);
        state.folds += 1;
        // A large map is not taken apart under the lock.
        drop(state);
        drop(waiting);
        Ok(())
    }

    /// A copy of what waits, and how often something was folded. While a fold of it is under way it gives the same
    /// state over the file before and after.
    pub(super) fn waiting(&self) -> (Changes, Folds) {
        let (waiting, folds) = {
            let state = self.state.read();
            (Arc::clone(&state.waiting), state.folds)
        };
        // Copied without the lock; a commit meanwhile copies it likewise.
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
    /// Learns the bound of the first byte of `key`, unless it is known. True if `key` lies behind one that was learnt.
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

/// The first `limit` entries of `range` in `file`, with `changes`, all of which lie in it, over it.
pub(super) fn merged(
    file: &Statements<'_>,
    range: KeyRange,
    limit: usize,
    changes: Changes,
) -> rusqlite::Result<Vec<Entry>> {
    // Each change hides one entry of the file at most.
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
