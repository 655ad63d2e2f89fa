//! Checks of staged versions in the simulated workshop: pages of a pass, and the versions that it keeps in memory.
//!
//! A page takes the time of its bytes at [`CHECK_BYTES_S`]. Its load is the number of open client operations in the
//! rack when the page begins, a fraction of a second before it ends.
//!
//! Invariants: versions in memory are staged, and in no pack; a written pack has saved the reads of its versions from
//! memory.

use super::staging::{StagedQuery, Staging};
use engine::staging::Selection;
use engine::staging::checks::{Taking, held_cost};
use engine::thermometer::Thermometer;
use engine::{CheckResult, CheckedEntry, StagedEntry};
use model::{OpId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The rate at which staged versions are read and checked, in bytes/s: that of a flash disk beside other work.
pub(super) const CHECK_BYTES_S: u64 = 500_000_000;

/// The state of a pass of checks over staged versions.
#[derive(Debug, Default)]
pub(crate) struct Checking {
    /// The last version of the pass so far.
    after: Option<u64>,
    /// The last selection of versions to take.
    selection: Option<Selection>,
    /// Versions in memory.
    held: BTreeSet<u64>,
    /// Objects and bytes from memory, by pack in progress.
    packs: BTreeMap<OpId, (u64, u64)>,
    saved: (u64, u64),
}

impl Checking {
    /// Composes a pack of these versions.
    pub(super) fn compose(&mut self, op: OpId, versions: &[u64], staging: &Staging) {
        let held: Vec<u64> = versions.iter().copied().filter(|version| self.held.remove(version)).collect();
        if !held.is_empty() {
            let bytes = held.iter().filter_map(|version| staging.versions.get(version)).map(|staged| staged.bytes);
            self.packs.insert(op, (held.len() as u64, bytes.sum()));
        }
    }

    pub(super) fn migrated(&mut self, op: OpId) {
        let (objects, bytes) = self.packs.remove(&op).unwrap_or_default();
        self.saved = (self.saved.0 + objects, self.saved.1 + bytes);
    }

    pub(super) fn forget(&mut self, op: OpId) {
        self.packs.remove(&op);
    }
}

/// A request for a page of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckQuery {
    pub(super) take: Option<Taking>,
    pub(super) limit: u32,
    pub(super) bytes_max: u64,
    pub(super) restart: bool,
}

/// A page of a pass.
#[derive(Debug, Default)]
pub(super) struct CheckPage {
    pub(super) entries: Vec<CheckedEntry>,
    pub(super) read_bytes: u64,
    held_bytes: u64,
    pub(super) more: bool,
}

impl Checking {
    /// Objects that went into packs without being read again after their check, and their bytes.
    pub(super) fn saved(&self) -> (u64, u64) {
        self.saved
    }

    pub(super) fn release(&mut self) {
        self.held.clear();
    }

    pub(super) fn page(
        &mut self,
        staging: &mut Staging,
        (now, thermometer): (Time, &Thermometer),
        query: CheckQuery,
    ) -> CheckPage {
        if query.restart {
            self.after = None;
        }
        let selection = query.take.map(|take| self.selection_for(staging, (now, thermometer), take));
        let taking = query.take.zip(selection);
        let hold_bytes = query.take.map_or(0, |take| take.hold_bytes);
        let mut page = CheckPage::default();
        for version in staging.behind(self.after) {
            let checked = staging.checked(now, thermometer, (version, &taking));
            let CheckedEntry { entry: StagedEntry { bytes, .. }, result, taken, .. } = checked;
            let held = taken && held_cost(bytes) <= hold_bytes;
            page.more = page.entries.len() == query.limit as usize
                || page.read_bytes >= query.bytes_max
                || held && page.held_bytes + held_cost(bytes) > hold_bytes;
            if page.more {
                return page;
            }
            if held {
                page.held_bytes += held_cost(bytes);
                assert!(self.held.insert(version), "version {version} is in memory once");
            }
            if result == CheckResult::Damaged {
                staging.quarantined.insert(version);
            }
            page.read_bytes += if result == CheckResult::Skipped { 0 } else { bytes };
            self.after = Some(version);
            page.entries.push(CheckedEntry { held, ..checked });
        }
        page
    }

    fn selection_for(
        &mut self,
        staging: &Staging,
        (now, thermometer): (Time, &Thermometer),
        take: Taking,
    ) -> Selection {
        let query = query_of(take);
        let known = self.selection.take_if(|_| !take.anew);
        *self.selection.insert(known.unwrap_or_else(|| staging.select(now, thermometer, query)))
    }
}

/// The listing with the same criteria as `take`.
fn query_of(take: Taking) -> StagedQuery {
    let Taking { older_than, order, coldest_bytes, min_bytes, .. } = take;
    StagedQuery { older_than, order, coldest_bytes, hot_bytes: 0, min_bytes, limit: 0, restart: true }
}

impl Staging {
    /// The versions after `after`, in key order.
    fn behind(&self, after: Option<u64>) -> Vec<u64> {
        self.versions.range(after.map_or(0, |after| after + 1)..).map(|(version, _)| *version).collect()
    }

    /// The result of checking `version`, and the decision whether it moves.
    fn checked(
        &self,
        now: Time,
        thermometer: &Thermometer,
        (version, taking): (u64, &Option<(Taking, Selection)>),
    ) -> CheckedEntry {
        let staged = self.versions[&version];
        let (bytes, pin, age, heat) =
            (staged.bytes, staged.pin, now.since(staged.since), staged.heat(thermometer, now));
        let is_packed = self.packs.values().any(|pack| pack.contains(&version));
        let result = match () {
            () if is_packed || self.quarantined.contains(&version) => CheckResult::Skipped,
            () if self.unreadable.contains(&version) => CheckResult::Damaged,
            () => CheckResult::Sound,
        };
        let is_taken = |(take, selection): &(Taking, Selection)| {
            bytes >= take.min_bytes && staged.is_taken(heat, age, &query_of(*take), selection)
        };
        let taken = result == CheckResult::Sound && taking.as_ref().is_some_and(is_taken);
        CheckedEntry { entry: StagedEntry { version, bytes, age, pin, heat }, result, taken, held: false }
    }
}
