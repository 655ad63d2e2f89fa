//! The entries of the spool: the room they take, their holds, and the choice of those to evict.
//!
//! Invariants:
//! - an entry that is held, by its writer or a reader, is never evicted; a dead one is never found again;
//! - reading ahead evicts no entry that waits to be taken, within [`KEPT`];
//! - the files on the disk never exceed the capacity: a new file is made only after the files it replaces are gone.

use crate::drain::{Drain, Full};
use crate::names::spool_name;
use crate::purpose::{AheadBytes, AheadCounts, Purpose};
use crate::recall::Recall;
use disk::{Drive, DriveError, clock};
use model::BlobId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

/// The most entries at once. More recalls than that evict entries, even if there is room for their bytes.
pub const ENTRIES_MAX: usize = 65_536;

/// The time for which reading ahead leaves entries in place that wait to be taken.
const KEPT: Duration = Duration::from_mins(10);

/// The reason that an entry without holds is still there, in the order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It was taken, or has waited for long enough: nothing else needs its room.
    Taken,
    /// It was read ahead, and may be asked for.
    Ahead,
    /// It was asked for, and its client is to come back for it.
    Asked,
}

/// The place of an idle entry in the order of eviction.
type IdlePlace = (Rank, u64);

/// The state that all handles of a spool share.
pub(crate) struct Entries {
    pub(crate) drive: Arc<dyn Drive>,
    pub(crate) capacity_bytes: u64,
    pub(crate) state: Mutex<EntryTable>,
    /// Changes whenever there may be more room than before.
    pub(crate) changes: watch::Sender<u64>,
}

pub(crate) struct EntryTable {
    pub(crate) used_bytes: u64,
    /// By rank.
    idle_bytes: [u64; 3],
    pub(crate) ahead_unread_bytes: u64,
    pub(crate) ahead: AheadBytes,
    next: u64,
    pub(crate) entries: HashMap<u64, SpoolEntry>,
    /// Blob, start and number of every entry that can be found.
    places: BTreeSet<(BlobId, u64, u64)>,
    /// Entries that can be evicted, by rank and by their last use.
    idle: BTreeMap<IdlePlace, u64>,
    /// Entries whose files can be removed now, with the room that they take.
    removable: Vec<(u64, u64)>,
    drain: Drain,
}

pub(crate) struct SpoolEntry {
    recall: Arc<Recall>,
    charged_bytes: u64,
    /// Its writer and its readers.
    holds: u32,
    /// It can no longer be found, and goes with its last hold.
    dead: bool,
    /// Its place in `idle` while it is there, and the time since when.
    idle_since: Option<(IdlePlace, Instant)>,
    purpose: Purpose,
    /// It was read ahead and not taken yet, so it counts among `ahead_unread_bytes`.
    unread: bool,
    /// For an entry that was read ahead: the part that was counted already.
    counted: AheadBytes,
}

impl SpoolEntry {
    fn wanted_bytes(&self) -> u64 {
        match self.purpose {
            Purpose::Asked { wanted_bytes } | Purpose::Ahead { wanted_bytes, .. } => wanted_bytes,
        }
    }

    fn is_taken(&self) -> bool {
        self.recall.taken_bytes() >= self.wanted_bytes()
    }

    fn rank(&self) -> Rank {
        match self.purpose {
            _ if self.is_taken() => Rank::Taken,
            Purpose::Ahead { .. } => Rank::Ahead,
            Purpose::Asked { .. } => Rank::Asked,
        }
    }

    /// The uncounted part of the counts of an entry that was read ahead, once it is complete; `is_over` if it goes.
    fn news(&mut self, is_over: bool) -> Option<(Arc<AheadCounts>, AheadBytes)> {
        let Purpose::Ahead { wanted_bytes, counts } = &self.purpose else { return None };
        if !self.recall.is_complete() {
            return None;
        }
        let used_bytes = self.recall.taken_bytes().min(*wanted_bytes);
        let wasted_bytes = if is_over { wanted_bytes - used_bytes } else { 0 };
        let now = AheadBytes { read_bytes: self.recall.bytes(), used_bytes, wasted_bytes };
        let before = std::mem::replace(&mut self.counted, now);
        let more = AheadBytes {
            read_bytes: now.read_bytes - before.read_bytes,
            used_bytes: now.used_bytes - before.used_bytes,
            wasted_bytes: now.wasted_bytes - before.wasted_bytes,
        };
        Some((Arc::clone(counts), more))
    }
}

impl EntryTable {
    pub(crate) fn new() -> Self {
        Self {
            used_bytes: 0,
            idle_bytes: [0; 3],
            ahead_unread_bytes: 0,
            ahead: AheadBytes::default(),
            next: 0,
            entries: HashMap::new(),
            places: BTreeSet::new(),
            idle: BTreeMap::new(),
            removable: Vec::new(),
            drain: Drain::new(),
        }
    }

    /// The entry that holds byte `offset` of `blob` and reaches furthest.
    pub(crate) fn find(&self, blob: BlobId, offset: u64) -> Option<u64> {
        let candidates = self.places.range((blob, 0, 0)..=(blob, offset, u64::MAX));
        let covering = candidates.filter_map(|&(_, _, number)| {
            let end = self.entries.get(&number)?.recall.range.end;
            (end > offset).then_some((end, number))
        });
        covering.max().map(|(_, number)| number)
    }

    fn entry(&mut self, number: u64) -> &mut SpoolEntry {
        self.entries.get_mut(&number).expect("what is held is not forgotten")
    }

    /// Adds a hold on the entry.
    pub(crate) fn hold(&mut self, number: u64) -> Arc<Recall> {
        let entry = self.entry(number);
        assert!(!entry.dead, "a dead entry is not found");
        assert_eq!(entry.holds == 0, entry.idle_since.is_some(), "an entry is idle as long as nobody holds it");
        entry.holds += 1;
        let (recall, charged_bytes, since) = (Arc::clone(&entry.recall), entry.charged_bytes, entry.idle_since.take());
        if let Some((place, _)) = since {
            self.idle.remove(&place);
            self.idle_bytes[place.0 as usize] -= charged_bytes;
        }
        recall
    }

    /// The room of entries without holds.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.idle_bytes.iter().sum()
    }

    /// Room that reading ahead may take in a spool of this capacity.
    pub(crate) fn ahead_room_bytes(&mut self, capacity_bytes: u64) -> u64 {
        self.retire();
        (capacity_bytes + self.idle_bytes[Rank::Taken as usize]).saturating_sub(self.used_bytes)
    }

    /// Counts the entries that have waited for [`KEPT`] to be taken as taken.
    fn retire(&mut self) {
        let now = clock::monotonic();
        for rank in [Rank::Ahead, Rank::Asked] {
            while let Some((&place, &number)) = self.idle.range((rank, 0)..=(rank, u64::MAX)).next() {
                let entry = self.entries.get_mut(&number).expect("an idle entry is known");
                let (_, since) = entry.idle_since.expect("an idle entry is idle since some moment");
                if now.saturating_duration_since(since) < KEPT {
                    break;
                }
                let retired = (Rank::Taken, place.1);
                entry.idle_since = Some((retired, since));
                let charged_bytes = entry.charged_bytes;
                self.idle.remove(&place);
                self.idle.insert(retired, number);
                self.idle_bytes[rank as usize] -= charged_bytes;
                self.idle_bytes[Rank::Taken as usize] += charged_bytes;
                self.no_longer_unread(number);
            }
        }
    }

    fn no_longer_unread(&mut self, number: u64) {
        let entry = self.entry(number);
        if std::mem::replace(&mut entry.unread, false) {
            self.ahead_unread_bytes -= entry.charged_bytes;
        }
    }

    /// Counts the use of the bytes of an entry, if it was read ahead.
    fn count_ahead(&mut self, number: u64, is_over: bool) {
        let Some((counts, more)) = self.entry(number).news(is_over) else { return };
        counts.add(more);
        self.ahead.read_bytes += more.read_bytes;
        self.ahead.used_bytes += more.used_bytes;
        self.ahead.wasted_bytes += more.wasted_bytes;
    }

    /// Removes a hold. An entry without holds is idle, or is removed if it is dead.
    fn release(&mut self, number: u64) {
        let entry = self.entry(number);
        assert!(entry.idle_since.is_none(), "a held entry is not idle");
        entry.holds -= 1;
        if entry.holds > 0 {
            return;
        }
        if entry.dead {
            self.take_out(number);
        } else {
            let (charged_bytes, rank) = (entry.charged_bytes, entry.rank());
            let place = (rank, self.tick());
            self.entry(number).idle_since = Some((place, clock::monotonic()));
            self.idle.insert(place, number);
            self.idle_bytes[rank as usize] += charged_bytes;
            if rank == Rank::Taken {
                self.no_longer_unread(number);
            }
            self.count_ahead(number, false);
        }
    }

    /// Stops the entry from being found. It goes with its last hold.
    fn mark_dead(&mut self, number: u64) {
        let entry = self.entry(number);
        entry.dead = true;
        let place = (entry.recall.blob, entry.recall.range.start, number);
        self.places.remove(&place);
    }

    /// Forgets an entry without holds; its file can be removed.
    fn take_out(&mut self, number: u64) {
        self.no_longer_unread(number);
        self.count_ahead(number, true);
        let entry = self.entries.remove(&number).expect("an entry is known until it is taken out");
        assert_eq!(entry.holds, 0, "an entry that is read or written stays");
        self.places.remove(&(entry.recall.blob, entry.recall.range.start, number));
        if let Some((place, _)) = entry.idle_since {
            self.idle.remove(&place);
            self.idle_bytes[place.0 as usize] -= entry.charged_bytes;
        }
        self.removable.push((number, entry.charged_bytes));
    }

    /// A number that was not used before; each is larger than the last.
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes out idle entries up to this rank, in the order of their ranks and the oldest first, until `wanted_bytes`
    /// more fit into `capacity_bytes` once all removable files are gone. `false`, and nothing taken out, if that is
    /// impossible.
    fn make_room(&mut self, wanted_bytes: u64, capacity_bytes: u64, up_to: Rank) -> bool {
        let removable_bytes: u64 = self.removable.iter().map(|(_, bytes)| bytes).sum();
        let mut used_bytes = self.used_bytes - removable_bytes;
        assert!(self.idle_bytes() <= used_bytes, "idle entries are among those that take room");
        let evictable_bytes: u64 = self.idle_bytes[..=up_to as usize].iter().sum();
        let must_stay_bytes = used_bytes - evictable_bytes;
        let may_go = self.idle.first_key_value().is_some_and(|((rank, _), _)| *rank <= up_to);
        if must_stay_bytes.saturating_add(wanted_bytes) > capacity_bytes
            || !(self.entries.len() < ENTRIES_MAX || may_go)
        {
            return false;
        }
        while used_bytes + wanted_bytes > capacity_bytes || self.entries.len() >= ENTRIES_MAX {
            let ((rank, _), number) = self.idle.pop_first().expect("the idle bytes are those of idle entries");
            assert!(rank <= up_to, "what is to stay is not evicted");
            self.take_out_idle(number, &mut used_bytes);
        }
        true
    }

    fn take_out_idle(&mut self, number: u64, used_bytes: &mut u64) {
        *used_bytes -= self.entry(number).charged_bytes;
        self.take_out(number);
    }
}

impl Entries {
    /// Makes the entry; returns the files that must be removed before its own is created.
    pub(crate) fn enter(
        self: &Arc<Self>,
        recall: &Arc<Recall>,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<(SpoolHold, Vec<(u64, u64)>), Full> {
        let mut state = self.state.lock();
        let is_ahead = matches!(purpose, Purpose::Ahead { .. });
        if is_ahead {
            state.retire();
        }
        if !state.make_room(bytes, self.capacity_bytes, if is_ahead { Rank::Taken } else { Rank::Asked }) {
            return Err(self.full(&state, bytes));
        }
        let in_the_way = std::mem::take(&mut state.removable);
        let number = state.tick();
        let entry = SpoolEntry {
            recall: Arc::clone(recall),
            charged_bytes: bytes,
            holds: 1,
            dead: false,
            idle_since: None,
            purpose,
            unread: is_ahead,
            counted: AheadBytes::default(),
        };
        state.entries.insert(number, entry);
        state.ahead_unread_bytes += if is_ahead { bytes } else { 0 };
        state.places.insert((recall.blob, recall.range.start, number));
        state.used_bytes += bytes;
        let replaced_bytes: u64 = in_the_way.iter().map(|(_, bytes)| bytes).sum();
        assert!(state.used_bytes - replaced_bytes <= self.capacity_bytes, "an entry fits once the others are removed");
        assert!(state.entries.len() <= ENTRIES_MAX, "entries are bounded");
        Ok((SpoolHold { entries: Arc::clone(self), number }, in_the_way))
    }

    pub(crate) fn full(&self, state: &EntryTable, wanted_bytes: u64) -> Full {
        let held_bytes = state.used_bytes - state.idle_bytes();
        state.drain.full(wanted_bytes, self.capacity_bytes.saturating_sub(held_bytes), self.capacity_bytes)
    }

    /// Stops the entry from being found. It goes with its last hold.
    pub(crate) fn mark_dead(&self, number: u64) {
        self.state.lock().mark_dead(number);
    }

    /// Records that the file of a new entry is not created, because files in its way are still there: it takes no room.
    pub(crate) fn is_not_made(&self, number: u64) {
        let mut state = self.state.lock();
        assert!(state.entry(number).idle_since.is_none(), "whoever entered it holds it");
        state.no_longer_unread(number);
        let charged_bytes = std::mem::take(&mut state.entry(number).charged_bytes);
        state.used_bytes -= charged_bytes;
    }

    /// Removes these files. Those that could not be removed are retried later; the first error is returned.
    pub(crate) async fn remove_files(&self, files: Vec<(u64, u64)>) -> Result<(), DriveError> {
        let mut result = Ok(());
        for (number, charged_bytes) in files {
            assert!(!self.state.lock().entries.contains_key(&number), "the file of a living entry stays");
            match self.drive.remove(&spool_name(number)).await {
                Ok(()) | Err(DriveError::NotFound(_)) => {
                    let mut state = self.state.lock();
                    state.used_bytes -= charged_bytes;
                    state.drain.note(charged_bytes);
                }
                Err(error) => {
                    self.state.lock().removable.push((number, charged_bytes));
                    result = result.and(Err(error));
                }
            }
        }
        self.changes.send_modify(|count| *count += 1);
        result
    }

    /// Removes all files that can be removed, in a separate task. Without a runtime, the next reservation or boot
    /// removes them.
    fn remove_in_background(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let entries = Arc::clone(self);
        runtime.spawn(async move {
            let files = std::mem::take(&mut entries.state.lock().removable);
            if let Err(error) = entries.remove_files(files).await {
                tracing::warn!(%error, "could not remove a spool file; retrying later");
            }
        });
    }
}

/// Protects an entry from eviction.
pub(crate) struct SpoolHold {
    pub(crate) entries: Arc<Entries>,
    pub(crate) number: u64,
}

impl SpoolHold {
    /// True if the entry was read ahead of a request.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(self.entries.state.lock().entry(self.number).purpose, Purpose::Ahead { .. })
    }
}

impl Drop for SpoolHold {
    fn drop(&mut self) {
        let mut state = self.entries.state.lock();
        state.release(self.number);
        let removable = !state.removable.is_empty();
        drop(state);
        if removable {
            self.entries.remove_in_background();
        }
        self.entries.changes.send_modify(|count| *count += 1);
    }
}
