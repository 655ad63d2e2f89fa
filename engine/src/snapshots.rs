//! When a snapshot of the catalog is made. A snapshot costs a pass over all records, and bounds the data that must be
//! kept and read beside the catalog. A snapshot is due once the batches since the last one take as much room as it
//! does, and at least `LEAST_BYTES`; so all snapshots together write at most what the batches do. Two snapshots stay,
//! with the batches since the older one, so the journal has at most four times the catalog's bytes, and five times
//! while a snapshot is written. While a record is damaged, an older snapshot stays besides (`catalog/src/journal.rs`).
//!
//! If the journal does not lead on from a snapshot, a snapshot is due at once; after a failure, not before `RETRY`. To
//! find out, the newest snapshot and the batches since are read after a start, and every `CHECK_EVERY`.
//!
//! **Copies on drives** ([`Copies`]) remain when the workshop is lost along with the catalog: snapshots, and segments
//! of the journal since.
//! 1. A copy is due when something changed that the drives do not show by themselves and have no copy of.
//! 2. It piggybacks: it is written while a group is awake for other work, but at most once per `ride_after`. A change
//!    that has waited for `wake_after` wakes a group.
//! 3. A segment suffices while there are few segments since the snapshot, and they are smaller together than it or than
//!    `LEAST_BYTES`. Otherwise, and after `snapshot_period`, a snapshot is copied. So a recovery reads a bounded amount
//!    of data, and the data written is at most proportional to the changes.
//! 4. The newest [`SNAPSHOTS_KEPT`] snapshots stay, and the segments since the oldest of them: if the newest one is
//!    damaged, the one before leads to the same state.

use core::time::Duration;
use model::Time;

/// Bytes of batches below which a pass over all records is not worth it.
const LEAST_BYTES: u64 = 64 << 20;
/// The pause after a snapshot that failed.
const RETRY: Duration = Duration::from_mins(10);

/// The time between two checks that read the newest snapshot and the batches since.
const CHECK_EVERY: Duration = Duration::from_hours(24);

/// The sizes of the catalog's snapshot and journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalSize {
    /// The journal leads from a snapshot to the current state of the catalog.
    pub leads_on: bool,
    /// Bytes of that snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of the batches since.
    pub batch_bytes: u64,
}

/// The decision on snapshots, for one catalog.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    failed: Option<Time>,
    checked: Option<Time>,
}

impl Snapshots {
    /// True if the newest snapshot and the batches since are to be read now.
    pub fn is_check_due(&self, now: Time, journal: JournalSize) -> bool {
        journal.leads_on && self.checked.is_none_or(|checked| now.since(checked) >= CHECK_EVERY)
    }

    /// They were read.
    pub fn checked(&mut self, now: Time) {
        self.checked = Some(now);
    }

    /// True if a snapshot is to be made now.
    pub fn is_due(&self, now: Time, journal: JournalSize) -> bool {
        let waits = self.failed.is_some_and(|failed| now.since(failed) < RETRY);
        !waits && (!journal.leads_on || journal.batch_bytes >= journal.snapshot_bytes.max(LEAST_BYTES))
    }

    /// A snapshot was made, or failed.
    pub fn ended(&mut self, now: Time, is_made: bool) {
        self.failed = (!is_made).then_some(now);
    }
}

/// The longest time for a due copy: its group wakes, other operations in its class go first, and it is written.
const OVERDUE_AFTER: Duration = Duration::from_hours(1);

/// Snapshots that stay on drives.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Maximum number of segments after a snapshot: a recovery reads each of them from a separate blob.
const SEGMENTS_MAX: u32 = 64;

/// When copies of the catalog go to drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPolicy {
    /// The minimum time between two copies that piggyback.
    pub ride_after: Duration,
    /// The time that a change waits before a group is woken for it; never if `None`.
    pub wake_after: Option<Duration>,
    /// If the newest snapshot on drives is at least this old, the next copy is a snapshot.
    pub snapshot_period: Duration,
}

impl Default for CopyPolicy {
    fn default() -> Self {
        let (ride_after, wake_after) = (Duration::from_mins(10), Some(Duration::from_hours(24)));
        Self { ride_after, wake_after, snapshot_period: Duration::from_hours(30 * 24) }
    }
}

/// The copies of the catalog on drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDrives {
    /// There is a snapshot, and the data on drives and in the journal leads from it to the current state of the
    /// catalog.
    pub leads_on: bool,
    /// Bytes of that snapshot.
    pub snapshot_bytes: u64,
    /// Its age.
    pub snapshot_age: Duration,
    /// Segments since.
    pub segments: u32,
    /// Bytes of the batches since.
    pub batch_bytes: u64,
    /// The time since the last copy of either kind; since the start of the server if there is none.
    pub since_last: Duration,
    /// How long the oldest change without a copy has been known; `None` if every change has a copy.
    pub lacks_for: Option<Duration>,
    /// A group that has room is awake.
    pub is_awake: bool,
}

/// The kind of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// All of the catalog.
    Snapshot,
    /// The batches since the last copy.
    Segment,
}

/// The decision on copies on drives, for one catalog.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    policy: CopyPolicy,
    failed: Option<Time>,
}

impl Copies {
    /// The decisions under this policy.
    pub fn new(policy: CopyPolicy) -> Self {
        Self { policy, failed: None }
    }

    /// The copy that is to be made now.
    pub fn due(&self, now: Time, found: OnDrives) -> Option<Copy> {
        let lacks_for = found.lacks_for?;
        let rides = found.is_awake && found.since_last >= self.policy.ride_after;
        let wakes = self.policy.wake_after.is_some_and(|wait| lacks_for >= wait);
        let waits = self.failed.is_some_and(|failed| now.since(failed) < RETRY);
        if waits || !(rides || wakes) {
            return None;
        }
        let has_grown = found.segments >= SEGMENTS_MAX || found.batch_bytes >= found.snapshot_bytes.max(LEAST_BYTES);
        let anew = !found.leads_on || has_grown || found.snapshot_age >= self.policy.snapshot_period;
        Some(if anew { Copy::Snapshot } else { Copy::Segment })
    }

    /// True if drives lack changes for longer than they should: the last copy failed, or a copy was due for too long
    /// and was not made. With `wake_after` unset, a change may wait for any time.
    pub fn is_overdue(&self, found: OnDrives) -> bool {
        let Some(lacks_for) = found.lacks_for else { return false };
        self.failed.is_some() || self.policy.wake_after.is_some_and(|wait| lacks_for >= wait + OVERDUE_AFTER)
    }

    /// A copy was made, or failed.
    pub fn ended(&mut self, now: Time, is_made: bool) {
        self.failed = (!is_made).then_some(now);
    }
}

/// The oldest snapshot that stays, if any may go. Snapshots on drives are known by the numbers of their last batches.
/// The segments since that snapshot stay as well.
pub fn oldest_kept(snapshots: &mut [u64]) -> Option<u64> {
    snapshots.sort_unstable_by(|one, other| other.cmp(one));
    snapshots.get(SNAPSHOTS_KEPT - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Time {
        Time::ZERO + Duration::from_mins(minutes)
    }

    #[test]
    fn a_snapshot_is_due_without_one_and_when_the_batches_outgrow_it() {
        let snapshots = Snapshots::default();
        let journal = |leads_on, snapshot_mib: u64, batch_mib: u64| JournalSize {
            leads_on,
            snapshot_bytes: snapshot_mib << 20,
            batch_bytes: batch_mib << 20,
        };
        assert!(snapshots.is_due(at(0), JournalSize::default()));
        for (snapshot_mib, batch_mib, is_due) in [(1, 63, false), (1, 64, true), (900, 899, false), (900, 900, true)] {
            assert_eq!(snapshots.is_due(at(0), journal(true, snapshot_mib, batch_mib)), is_due);
        }
        assert!(snapshots.is_due(at(0), journal(false, 900, 0)));
    }

    #[test]
    fn the_journal_is_read_through_after_a_start_and_daily_unless_a_snapshot_is_due() {
        let (mut snapshots, leads_on) =
            (Snapshots::default(), JournalSize { leads_on: true, ..JournalSize::default() });
        assert!(snapshots.is_check_due(at(0), leads_on));
        assert!(!snapshots.is_check_due(at(0), JournalSize::default()));
        snapshots.checked(at(1));
        assert!(!snapshots.is_check_due(at(24 * 60), leads_on));
        assert!(snapshots.is_check_due(at(24 * 60 + 1), leads_on));
    }

    #[test]
    fn one_that_failed_is_tried_again_after_a_pause_and_not_in_a_circle() {
        let mut snapshots = Snapshots::default();
        snapshots.ended(at(5), false);
        assert!(!snapshots.is_due(at(5), JournalSize::default()));
        assert!(!snapshots.is_due(at(14), JournalSize::default()));
        assert!(snapshots.is_due(at(15), JournalSize::default()));
        snapshots.ended(at(15), true);
        assert!(snapshots.is_due(at(15), JournalSize::default()));
    }

    fn found(lacks: Option<u64>, is_awake: bool) -> OnDrives {
        OnDrives {
            leads_on: true,
            snapshot_bytes: 100 << 20,
            lacks_for: lacks.map(Duration::from_mins),
            since_last: Duration::from_mins(10),
            is_awake,
            ..OnDrives::default()
        }
    }

    #[test]
    fn a_copy_rides_with_a_group_that_is_awake_and_wakes_one_only_after_a_day() {
        let copies = Copies::new(CopyPolicy::default());
        let due = |found| copies.due(at(0), found);
        assert_eq!(due(found(None, true)), None, "nothing has changed");
        assert_eq!(due(found(Some(0), true)), Some(Copy::Segment));
        assert_eq!(due(OnDrives { since_last: Duration::from_mins(9), ..found(Some(9), true) }), None);
        assert_eq!(due(found(Some(24 * 60 - 1), false)), None);
        assert_eq!(due(found(Some(24 * 60), false)), Some(Copy::Segment));
        let never = Copies::new(CopyPolicy { wake_after: None, ..CopyPolicy::default() });
        assert_eq!(never.due(at(0), found(Some(1 << 20), false)), None);
    }

    #[test]
    fn a_snapshot_is_copied_where_segments_do_not_lead_on_or_have_outgrown_it() {
        let copies = Copies::new(CopyPolicy::default());
        let found = found(Some(1), true);
        let anew = [
            OnDrives { leads_on: false, ..found },
            OnDrives { segments: SEGMENTS_MAX, ..found },
            OnDrives { batch_bytes: 100 << 20, ..found },
            OnDrives { snapshot_age: Duration::from_hours(30 * 24), ..found },
        ];
        assert!(anew.into_iter().all(|found| copies.due(at(0), found) == Some(Copy::Snapshot)));
        let last = OnDrives { segments: SEGMENTS_MAX - 1, batch_bytes: (100 << 20) - 1, ..found };
        assert_eq!(copies.due(at(0), last), Some(Copy::Segment));
    }

    #[test]
    fn a_copy_that_failed_is_tried_again_after_a_pause() {
        let mut copies = Copies::new(CopyPolicy::default());
        copies.ended(at(5), false);
        assert_eq!(copies.due(at(14), found(Some(1), true)), None);
        assert_eq!(copies.due(at(15), found(Some(1), true)), Some(Copy::Segment));
    }

    #[test]
    fn a_copy_is_overdue_when_one_failed_or_is_due_for_an_hour() {
        let mut copies = Copies::new(CopyPolicy::default());
        let (wake, hour) = (24 * 60, 60);
        assert!(!copies.is_overdue(found(None, false)), "drives have everything");
        assert!(!copies.is_overdue(found(Some(wake + hour - 1), false)));
        assert!(copies.is_overdue(found(Some(wake + hour), false)));
        copies.ended(at(5), false);
        assert!(copies.is_overdue(found(Some(1), false)) && !copies.is_overdue(found(None, false)));
        copies.ended(at(6), true);
        assert!(!copies.is_overdue(found(Some(1), false)));
        let never = Copies::new(CopyPolicy { wake_after: None, ..CopyPolicy::default() });
        assert!(!never.is_overdue(found(Some(1 << 20), false)), "a change may wait for any time");
    }

    #[test]
    fn the_newest_two_snapshots_stay() {
        assert_eq!(oldest_kept(&mut []), None);
        assert_eq!(oldest_kept(&mut [7]), None);
        assert_eq!(oldest_kept(&mut [3, 9, 5]), Some(5));
    }
}
