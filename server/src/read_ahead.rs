//! Read-ahead: carries out over catalog, spool and world what [`engine::readahead`] decides.
//!
//! 1. Each GET of an object in the rack is reported to its bucket's scan ([`Scans`]), and so is the prefix of each
//!    listing.
//! 2. If the object must be read, its bucket is queued for its group. When the group is up, the catalog is listed from
//!    the object's key on, and the objects that the plan picks are read into the spool, by reads that are not worth a
//!    wake.
//!
//! A bucket stands for its reader, since it has one owner. Read-ahead grants no access: every GET is checked as if the
//! bytes were cold.
//!
//! Invariant: one plan at a time for each group, and at most [`WAITING_MAX`] buckets waiting for their turn.

mod scans;

use crate::context::Context;
use crate::spool_read::{self, Blobs};
use crate::world::WorldHandle;
use catalog::{Blob, Place, PlacedObject};
use disk::clock;
use engine::readahead::{AheadRead, AheadSpool, Candidate, MEMORY, PLAN_TIME_MAX, Plan, READS_AT_ONCE, may_be_scan};
use model::GroupId;
use parking_lot::Mutex;
use scans::{Outlook, Scans};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;
use workshop::{AheadCounts, Purpose, SpoolReader};

/// Buckets that wait at once for their turn in a group; others get no read-ahead.
const WAITING_MAX: usize = 8;
/// Objects in a page of the catalog.
const PAGE: usize = 1_000;

/// Reads ahead. Clones are handles on the same state.
#[derive(Clone)]
pub struct ReadAhead {
    context: Context,
    world: WorldHandle,
    began: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    scans: Scans,
    /// For each group at work or waited for, the buckets that wait for their turn.
    turns: BTreeMap<GroupId, VecDeque<Ask>>,
}

/// An object that was requested and had to be read.
#[derive(Clone)]
struct Ask {
    bucket: String,
    key: String,
    /// The object itself, if only a part of it was requested.
    rest: Option<PlacedObject>,
}

/// A read under way.
struct UnderWay {
    reader: SpoolReader,
    objects: u64,
}

impl ReadAhead {
    /// Reads ahead through `world`.
    pub fn new(context: Context, world: WorldHandle) -> Self {
        Self { context, world, began: clock::monotonic(), state: Arc::default() }
    }

    /// Records that a client listed the keys with `prefix`.
    pub fn listed(&self, bucket: &str, prefix: &str) {
        self.state.lock().scans.listed(self.began.elapsed(), bucket, prefix);
    }

    /// Records that a client requests bytes `range` of an object in `blob`; `is_here` if the spool has them all.
    pub fn asked(&self, (bucket, key): (&str, &str), placed: &PlacedObject, blob: &Blob, range: (Range<u64>, bool)) {
        let (range, is_here) = range;
        let bytes = placed.object.bytes;
        if !may_be_scan(range.end - range.start, bytes) {
            return;
        }
        let mut state = self.state.lock();
        state.scans.asked(self.began.elapsed(), bucket, key);
        let Place::Stored { offset, .. } = placed.place else { return };
        if is_here {
            let found = self.context.spool.find(blob.blob, offset + range.start);
            let hits = u64::from(found.is_some_and(|reader| reader.is_ahead()));
            self.context.counters.ahead_hits.fetch_add(hits, Ordering::Relaxed);
            return;
        }
        let rest = (range != (0..bytes)).then(|| placed.clone());
        let ask = Ask { bucket: bucket.to_owned(), key: key.to_owned(), rest };
        let is_first = !state.turns.contains_key(&blob.group);
        let turns = state.turns.entry(blob.group).or_default();
        // A waiting bucket begins with the object that was requested first.
        if turns.len() < WAITING_MAX && turns.iter().all(|other| other.bucket != bucket) {
            turns.push_back(ask);
        }
        drop(state);
        if is_first {
            let (ahead, group) = (self.clone(), blob.group);
            (self.context.spawn)(Box::pin(async move { ahead.take_turns(group).await }));
        }
    }

    /// Runs one plan after the other for `group`, whenever the group is up.
    async fn take_turns(&self, group: GroupId) {
        loop {
            let up = tokio::time::timeout(MEMORY, self.world.group_up(group)).await;
            let ask = {
                let mut state = self.state.lock();
                if !matches!(up, Ok(true)) {
                    // The group was not woken in time, or the world has ended.
                    state.turns.remove(&group);
                }
                let Some(turns) = state.turns.get_mut(&group) else { return };
                let Some(ask) = turns.pop_front() else {
                    state.turns.remove(&group);
                    return;
                };
                ask
            };
            self.read_for(&ask, group).await;
        }
    }

    /// Reads ahead the objects that `ask` makes likely, as long as `group` is awake.
    async fn read_for(&self, ask: &Ask, group: GroupId) {
        let Some(outlook) = self.outlook(&ask.bucket, &ask.key) else { return };
        let room_bytes = self.context.ahead_spool().room_bytes();
        let mut blobs = Blobs::default();
        let plan = Plan::new(group, outlook.window_bytes, room_bytes);
        let reads = match self.fill(plan, ask, &outlook, &mut blobs).await {
            Ok(plan) => plan.into_reads(self.context.spool.usage().capacity_bytes),
            Err(error) => {
                tracing::warn!(%error, "nothing is read ahead: the catalog cannot look up the objects");
                return;
            }
        };
        let mut under_way = VecDeque::new();
        let mut began = None;
        for read in reads {
            if under_way.len() == READS_AT_ONCE {
                if !self.next_ends(&mut under_way).await {
                    return;
                }
                // By now the group is awake.
                let began = *began.get_or_insert_with(|| self.context.clock.now());
                if self.context.clock.now().since(began) > PLAN_TIME_MAX {
                    break;
                }
            }
            let Some(blob) = blobs.get(read.blob) else { continue };
            match self.order(blob, &read, &outlook.counts).await {
                Ok(Some(reader)) => under_way.push_back(UnderWay { reader, objects: read.objects }),
                Ok(None) => {}
                Err(Stopped) => break,
            }
        }
        while self.next_ends(&mut under_way).await && !under_way.is_empty() {}
    }

    fn outlook(&self, bucket: &str, key: &str) -> Option<Outlook> {
        let capacity_bytes = self.context.spool.usage().capacity_bytes;
        self.state.lock().scans.outlook(bucket, key, capacity_bytes)
    }

    /// Offers `plan` the objects after the requested one, and those before it if they are wanted as well.
    async fn fill(
        &self,
        mut plan: Plan,
        ask: &Ask,
        outlook: &Outlook,
        blobs: &mut Blobs,
    ) -> Result<Plan, catalog::CatalogError> {
        if let Some(rest) = &ask.rest {
            let rest = blobs.candidate(&self.context, rest).await?;
            if self.offer(&mut plan, &rest).is_break() {
                return Ok(plan);
            }
        }
        let behind = (Some(ask.key.clone()), None);
        let before = (None, Some(ask.key.as_str()));
        let passes = if outlook.wraps { vec![behind, before] } else { vec![behind] };
        for (mut after, until) in passes {
            loop {
                let page =
                    self.context.catalog.placed_page(&ask.bucket, &outlook.prefix, after.as_deref(), PAGE).await?;
                for (key, placed) in &page.objects {
                    if until.is_some_and(|until| key.as_str() >= until) {
                        return Ok(plan);
                    }
                    let candidate = blobs.candidate(&self.context, placed).await?;
                    if self.offer(&mut plan, &candidate).is_break() {
                        return Ok(plan);
                    }
                }
                after = page.objects.last().map(|(key, _)| key.clone());
                if !page.truncated || after.is_none() {
                    break;
                }
            }
        }
        Ok(plan)
    }

    fn offer(&self, plan: &mut Plan, candidate: &Candidate) -> ControlFlow<()> {
        plan.offer(candidate, |blob, at| self.context.spool.holds(blob, at))
    }

    /// Orders one read; `None` if the spool has begun to receive it meanwhile, or no object of the blob lives any more.
    async fn order(
        &self,
        blob: &Blob,
        read: &AheadRead,
        counts: &Arc<AheadCounts>,
    ) -> Result<Option<SpoolReader>, Stopped> {
        if self.context.ahead_spool().room_bytes() < read.range.end - read.range.start {
            return Err(Stopped);
        }
        let purpose = Purpose::Ahead { wanted_bytes: read.wanted_bytes, counts: Arc::clone(counts) };
        let ordered = spool_read::order((&self.context, &self.world), blob, read, purpose, true).await;
        Ok(ordered.map_err(|_| Stopped)?.map(|ordered| ordered.reader))
    }

    /// Waits for the read that was ordered first. False if it failed, for example because its group sleeps.
    async fn next_ends(&self, under_way: &mut VecDeque<UnderWay>) -> bool {
        let Some(UnderWay { reader, objects }) = under_way.pop_front() else { return true };
        let is_read = reader.written(reader.range().end).await.is_ok();
        if is_read {
            self.context.counters.ahead_objects.fetch_add(objects, Ordering::Relaxed);
        }
        is_read
    }
}

/// The group is asleep, or the spool has no more room.
struct Stopped;

impl Context {
    fn ahead_spool(&self) -> AheadSpool {
        let usage = self.spool.usage();
        AheadSpool {
            capacity_bytes: usage.capacity_bytes,
            free_bytes: usage.ahead_room_bytes,
            unread_bytes: usage.ahead_unread_bytes,
        }
    }
}
