//! The staged versions of a simulated rack, in place of the workshop.
//!
//! Invariants: a version leaves only when a blob with it was written and read back (asserted); the staged bytes are
//! those of the present versions.

use engine::staging::{MoveRank, Selection};
use engine::thermometer::{Facts, Thermometer};
use engine::{Heat, MoveOrder, PinnedTo, StagedEntry, Usage};
use model::{OpId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A version in the workshop.
#[derive(Clone, Copy, Debug)]
pub struct StagedVersion {
    /// Its length.
    pub bytes: u64,
    /// The time when it was staged.
    pub since: Time,
    /// The class or group it is pinned to.
    pub pin: PinnedTo,
    /// True if it was read through since then.
    pub is_processed: bool,
}

impl StagedVersion {
    fn rank(self, order: MoveOrder) -> MoveRank {
        MoveRank::new(order, self.is_processed, self.since)
    }

    /// Its temperature. It has no name and no tags, it was created when it was staged, and only complete reads of it
    /// are known.
    pub(super) fn heat(self, thermometer: &Thermometer, now: Time) -> Heat {
        if !thermometer.is_used() {
            return Heat::Cold;
        }
        let ms = |at: Time| at.as_nanos() / 1_000_000;
        let facts = Facts {
            bucket: "",
            key: "",
            tags: &[],
            bytes: self.bytes,
            created_ms: ms(self.since),
            read_ms: None,
            reads: u64::from(self.is_processed),
            is_read_through: self.is_processed,
        };
        let verdict = thermometer.judge(&facts, ms(now));
        verdict.heat(Duration::from_millis(ms(now).saturating_sub(verdict.since_ms)))
    }

    /// True if a listing with these conditions for age and rank takes the version.
    pub(super) fn is_taken(self, heat: Heat, age: Duration, query: &StagedQuery, selection: &Selection) -> bool {
        let is_young = heat == Heat::Cold && age < query.older_than;
        !is_young && selection.takes(heat, self.rank_as(query.order, heat))
    }

    fn rank_as(self, order: MoveOrder, heat: Heat) -> MoveRank {
        let rank = self.rank(order);
        if heat == Heat::Hot { rank.hot() } else { rank }
    }
}

/// A request for a page of staged versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedQuery {
    pub older_than: Duration,
    pub order: MoveOrder,
    /// Only the first versions in the order of moving, up to this number of bytes.
    pub coldest_bytes: Option<u64>,
    /// If other versions have fewer bytes than this, hot versions fill up to this number.
    pub hot_bytes: u64,
    /// Shorter versions are not listed.
    pub min_bytes: u64,
    pub limit: u32,
    /// True to start at the first version, instead of after the last page.
    pub restart: bool,
}

/// The staged versions.
#[derive(Debug, Default)]
pub struct Staging {
    pub(super) versions: BTreeMap<u64, StagedVersion>,
    /// The same versions in the order of moving.
    by_rank: BTreeSet<(MoveRank, u64)>,
    bytes: u64,
    pub(super) capacity_bytes: u64,
    /// The last listed version.
    after: Option<u64>,
    /// The selection of the current listing.
    selection: Option<Selection>,
    /// The versions of each pack in progress.
    pub(super) packs: BTreeMap<OpId, Vec<u64>>,
    /// Unreadable versions.
    pub(super) unreadable: BTreeSet<u64>,
    /// The unreadable versions that were detected, and are no longer listed.
    pub(super) quarantined: BTreeSet<u64>,
}

impl Staging {
    /// An empty workshop of this size.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, ..Self::default() }
    }

    /// The versions.
    pub fn versions(&self) -> &BTreeMap<u64, StagedVersion> {
        &self.versions
    }

    /// Versions that were found to be unreadable, and are no longer listed.
    pub fn quarantined(&self) -> &BTreeSet<u64> {
        &self.quarantined
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage { staged_bytes: self.bytes, capacity_bytes: self.capacity_bytes }
    }

    /// Stages a version; replaces a version with the same number.
    pub(crate) fn stage(&mut self, number: u64, version: StagedVersion) {
        self.remove(number);
        self.versions.insert(number, version);
        assert!(self.by_rank.insert((version.rank(MoveOrder::Processed), number)), "version {number} is staged twice");
        self.bytes += version.bytes;
    }

    fn remove(&mut self, number: u64) -> bool {
        let Some(version) = self.versions.remove(&number) else { return false };
        let bytes = version.bytes;
        assert!(self.by_rank.remove(&(version.rank(MoveOrder::Processed), number)), "version {number} has a rank");
        assert!(self.bytes >= bytes, "{bytes} bytes leave, of {} that are staged", self.bytes);
        self.bytes -= bytes;
        assert!(self.bytes == 0 || !self.versions.is_empty(), "{} bytes are staged of no version", self.bytes);
        true
    }

    /// Records that a version was read through; ignores a version that has left the workshop.
    pub(crate) fn processed(&mut self, number: u64) {
        let Some(version) = self.versions.get_mut(&number) else { return };
        assert!(self.by_rank.remove(&(version.rank(MoveOrder::Processed), number)), "version {number} has a rank");
        version.is_processed = true;
        assert!(self.by_rank.insert((version.rank(MoveOrder::Processed), number)), "version {number} is staged once");
    }

    /// Makes a version unreadable.
    pub fn corrupt(&mut self, number: u64) {
        self.unreadable.insert(number);
    }

    /// A page of versions, and true if more follow.
    pub(crate) fn page(
        &mut self,
        now: Time,
        thermometer: &Thermometer,
        query: StagedQuery,
    ) -> (Vec<StagedEntry>, bool) {
        if query.restart {
            self.after = None;
        }
        let begun = self.selection.take_if(|_| !query.restart);
        let selection = *self.selection.insert(begun.unwrap_or_else(|| self.select(now, thermometer, query)));
        let under_way: BTreeSet<u64> = self.packs.values().flatten().copied().collect();
        let from = self.after.map_or(0, |after| after + 1);
        let mut entries = Vec::new();
        for (version, staged) in self.versions.range(from..) {
            let age = now.since(staged.since);
            let left_out = under_way.contains(version) || self.quarantined.contains(version);
            let heat = staged.heat(thermometer, now);
            if left_out || !staged.is_taken(heat, age, &query, &selection) {
                continue;
            }
            if entries.len() == query.limit as usize {
                return (entries, true);
            }
            self.after = Some(*version);
            entries.push(StagedEntry { version: *version, bytes: staged.bytes, age, pin: staged.pin, heat });
        }
        (entries, false)
    }

    /// The selection of a listing that begins now.
    pub(super) fn select(&self, now: Time, thermometer: &Thermometer, query: StagedQuery) -> Selection {
        let mut selection = Selection::new(query.coldest_bytes, query.hot_bytes);
        if !selection.counts() {
            return selection;
        }
        let by_age = self.by_age_if(query.order);
        let in_order = || {
            let kept = by_age.is_none().then(|| self.by_rank.iter().map(|(_, number)| number));
            let numbers = by_age.iter().flatten().chain(kept.into_iter().flatten());
            let staged = numbers.map(|number| self.versions[number]).filter(|staged| staged.bytes >= query.min_bytes);
            staged.map(|version| (version, version.heat(thermometer, now)))
        };
        if thermometer.is_used() {
            let due = in_order().filter(|(_, heat)| matches!(heat, Heat::Due(_)));
            due.for_each(|(version, _)| selection.add_due(version.bytes));
        }
        let cold = in_order().filter(|(_, heat)| *heat == Heat::Cold);
        for (version, heat) in cold.chain(in_order().filter(|(_, heat)| *heat == Heat::Hot)) {
            if !(if heat == Heat::Hot { selection.wants_hot() } else { selection.wants_cold() }) {
                break;
            }
            selection.add(version.rank_as(query.order, heat), version.bytes);
        }
        selection
    }

    /// The versions in the order of moving if that is by age; SOHO's order is stored in `by_rank`.
    fn by_age_if(&self, order: MoveOrder) -> Option<Vec<u64>> {
        (order == MoveOrder::Age).then(|| {
            let mut numbers: Vec<u64> = self.versions.keys().copied().collect();
            numbers.sort_by_key(|number| self.versions[number].rank(order));
            numbers
        })
    }

    /// Makes a pack of these versions; returns its bytes.
    pub(crate) fn compose(&mut self, op: OpId, versions: Vec<u64>) -> u64 {
        let bytes = |version: &u64| match self.versions.get(version) {
            Some(staged) => staged.bytes,
            None => panic!("version {version} is packed and not staged"),
        };
        let bytes = versions.iter().map(bytes).sum();
        let before = self.packs.insert(op, versions);
        assert!(before.is_none(), "{op} writes two packs: {before:?}");
        bytes
    }

    /// Takes the readable versions out of the pack of `op`, and quarantines the others.
    pub(crate) fn decompose(&mut self, op: OpId) -> Vec<u64> {
        self.quarantined.extend(self.unreadable_of(op));
        let mut versions = self.packs.remove(&op).unwrap_or_default();
        versions.retain(|version| !self.quarantined.contains(version));
        versions
    }

    /// The unreadable versions of a pack.
    pub(crate) fn unreadable_of(&self, op: OpId) -> Vec<u64> {
        let versions = self.packs.get(&op).into_iter().flatten();
        versions.copied().filter(|version| self.unreadable.contains(version)).collect()
    }

    /// The pack of `op` was written and read back, so its versions leave. False if `op` wrote no pack.
    pub(crate) fn migrated(&mut self, op: OpId) -> bool {
        let Some(versions) = self.packs.remove(&op) else { return false };
        for version in versions {
            assert!(!self.unreadable.contains(&version), "version {version} was written and cannot be read");
            assert!(self.remove(version), "version {version} migrated twice");
        }
        true
    }

    /// Forgets a pack whose operation has ended, with any outcome.
    pub(crate) fn forget(&mut self, op: OpId) {
        self.packs.remove(&op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::thermometer::{Rule, Temperature};
    use model::Rng;

    /// Compared with a sort of all versions: a listing has the shortest prefix of the order of moving with enough
    /// bytes, in key order, for any order of moving and any page length.
    #[test]
    fn a_listing_takes_the_first_in_the_order_of_moving() {
        for seed in 0..200 {
            let rng = &mut Rng::new(seed);
            let mut staging = Staging::new(1_000_000);
            for number in 0..60 {
                let since = Time::from_secs(rng.below(20));
                let bytes = rng.between(1, 100);
                staging.stage(number, StagedVersion { bytes, since, pin: PinnedTo::Anywhere, is_processed: false });
                if rng.below(3) == 0 {
                    staging.processed(rng.below(number + 1));
                }
            }
            let wanted = rng.between(1, 4_000);
            let order = if seed % 2 == 0 { MoveOrder::Processed } else { MoveOrder::Age };
            let later = |at: &StagedVersion| order == MoveOrder::Processed && !at.is_processed;
            let mut naive: Vec<(bool, Time, u64, u64)> =
                staging.versions().iter().map(|(number, at)| (later(at), at.since, *number, at.bytes)).collect();
            naive.sort_unstable();
            let before = |at: usize| naive[..at].iter().map(|version| version.3).sum::<u64>();
            let last = (0..naive.len()).find(|at| before(at + 1) >= wanted).map_or(naive.len(), |at| at + 1);
            // All versions of the last rank: versions that were staged at the same time have equal ranks.
            let rank = |at: usize| (naive[at].0, naive[at].1);
            let first: BTreeSet<u64> =
                (0..naive.len()).filter(|at| rank(*at) <= rank(last - 1)).map(|at| naive[at].2).collect();
            let mut listed = Vec::new();
            let mut restart = true;
            loop {
                let coldest_bytes = Some(wanted);
                let older_than = Duration::ZERO;
                let query =
                    StagedQuery { older_than, order, coldest_bytes, hot_bytes: 0, min_bytes: 0, limit: 7, restart };
                let (entries, more) = staging.page(Time::from_secs(30), &Thermometer::none(), query);
                listed.extend(entries.iter().map(|entry| entry.version));
                restart = false;
                if !more {
                    break;
                }
            }
            assert!(listed.is_sorted() && listed.iter().copied().eq(first), "seed {seed}");
        }
    }

    /// By rules of size, age and reading, compared with a sort of all versions: due versions always move; hot versions
    /// move last, and only for bytes that must go.
    #[test]
    fn a_listing_by_rules_takes_hot_versions_last() {
        let rule = |is, larger_than_bytes, older_than| Rule { is, larger_than_bytes, older_than, ..Rule::default() };
        let hot = rule(Temperature::Hot, Some(80), Duration::ZERO);
        let old = rule(Temperature::Cold, None, Duration::from_secs(20));
        let processed = Rule { read_through: true, ..Rule::default() };
        let mut hot_moved = 0;
        for seed in 0..400 {
            let rng = &mut Rng::new(seed);
            let default = if rng.below(2) == 0 { Temperature::Hot } else { Temperature::Cold };
            let thermometer = Thermometer { rules: vec![hot.clone(), processed.clone(), old.clone()], default };
            let mut staging = Staging::new(1_000_000);
            for number in 0..40 {
                let (since, bytes) = (Time::from_secs(rng.below(30)), rng.between(1, 100));
                let is_processed = rng.below(5) == 0;
                staging.stage(number, StagedVersion { bytes, since, pin: PinnedTo::Anywhere, is_processed });
            }
            let now = Time::from_secs(30);
            // 0 is due, 1 cold, 2 hot.
            let kind = |at: &StagedVersion| match () {
                () if at.bytes > 80 => 2,
                () if at.is_processed || now.since(at.since) >= Duration::from_secs(20) => 0,
                () if default == Temperature::Hot => 2,
                () => 1,
            };
            let order = if seed % 4 < 2 { MoveOrder::Processed } else { MoveOrder::Age };
            let later = |at: &StagedVersion| order == MoveOrder::Processed && !at.is_processed;
            let (coldest, hot_bytes) = (rng.between(1, 3_000), rng.below(2_000));
            let mut naive: Vec<_> =
                staging.versions().iter().map(|(n, at)| (kind(at), later(at), at.since, *n, at.bytes)).collect();
            naive.sort_unstable();
            let (mut sum, mut last, mut taken) = (0, None, BTreeSet::new());
            for (kind, unprocessed, since, number, bytes) in naive {
                let rank = (kind, unprocessed, since);
                let wanted = [true, sum < coldest, sum < coldest.min(hot_bytes)][kind];
                if wanted || last == Some(rank) {
                    taken.insert(number);
                    // Versions of equal rank move along, and are not counted.
                    sum += if wanted { bytes } else { 0 };
                    last = Some(rank);
                    hot_moved += u32::from(kind == 2);
                }
            }
            let query = StagedQuery {
                older_than: Duration::ZERO,
                order,
                coldest_bytes: Some(coldest),
                hot_bytes,
                min_bytes: 0,
                limit: 99,
                restart: true,
            };
            let (entries, _) = staging.page(now, &thermometer, query);
            assert!(entries.iter().map(|entry| entry.version).eq(taken), "seed {seed}");
        }
        assert!(hot_moved > 100, "{hot_moved} hot versions show nothing");
    }
}
