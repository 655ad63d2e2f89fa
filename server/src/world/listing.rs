//! Listings of staged versions, in pages, for the engine's migrator.
//!
//! A listing first records the reads counted so far. If the engine asks for the first versions in the order of moving,
//! it also counts which those are: versions that are due by a rule, then cold ones, then hot ones, each in the order of
//! [`MoveRank`]. The pages are in key order, and each version on them is judged again.

use super::operation::StagedCursor;
use crate::context::Context;
use crate::temperature::{Judge, Judged};
use catalog::{AgedVersion, CATALOG_BUCKET, CatalogError, Cursor, Reads, StagedWhen, Version, VersionId};
use engine::staging::{MoveRank, Selection};
use engine::thermometer::Thermometer;
use engine::{Heat, MoveOrder, StagedEntry};
use model::Time;
use std::sync::Arc;
use std::time::Duration;

/// The engine's query for staged versions.
#[derive(Clone, Copy)]
pub(super) struct StagedScan {
    pub(super) older_than: Duration,
    pub(super) order: MoveOrder,
    pub(super) coldest_bytes: Option<u64>,
    pub(super) hot_bytes: u64,
    pub(super) min_bytes: u64,
    pub(super) limit: u32,
}

/// A listed version.
pub(super) struct Listed {
    pub(super) version: Version,
    pub(super) entry: StagedEntry,
    /// True if the query matches; never for a version in quarantine.
    pub(super) is_taken: bool,
    pub(super) is_quarantined: bool,
}

/// A page of the versions that the engine asks for, and the cursor of the next page. Continues a listing at `go_on`, or
/// begins one.
pub(super) async fn list(
    context: &Context,
    thermometer: Arc<Thermometer>,
    query: StagedScan,
    go_on: Option<StagedCursor>,
) -> Result<(Vec<StagedEntry>, Option<StagedCursor>), CatalogError> {
    let lister = Lister { context, judge: Judge::now(context, thermometer), query };
    let cursor = lister.begin(go_on, None).await?;
    // With rules, the age from which a version matches depends on the object.
    let is_ruled = lister.judge.thermometer.is_used();
    let when = if is_ruled { StagedWhen::until(u64::MAX) } else { cursor.when };
    let (page, next) = lister.page(cursor, when).await?;
    let entries = page.into_iter().filter(|listed| listed.is_taken).map(|listed| listed.entry).collect();
    Ok((entries, Some(next).filter(|next| next.after.is_some())))
}

/// A page of all versions; continues a listing at `go_on`, or begins one after `from`.
pub(super) async fn listed(
    context: &Context,
    thermometer: Arc<Thermometer>,
    query: StagedScan,
    (go_on, from): (Option<StagedCursor>, Option<&Cursor>),
) -> Result<(Vec<Listed>, StagedCursor), CatalogError> {
    let lister = Lister { context, judge: Judge::now(context, thermometer), query };
    let cursor = lister.begin(go_on, from).await?;
    lister.page(cursor, StagedWhen::until(u64::MAX)).await
}

/// Lists staged versions as of one moment.
struct Lister<'a> {
    context: &'a Context,
    judge: Judge,
    query: StagedScan,
}

impl Lister<'_> {
    async fn begin(&self, go_on: Option<StagedCursor>, from: Option<&Cursor>) -> Result<StagedCursor, CatalogError> {
        if let Some(go_on) = go_on {
            return Ok(go_on);
        }
        self.context.counters.reads.write_or_warn(&self.context.catalog).await;
        let when = when(self.context, self.query, self.judge.now_ms);
        let selection = select(self.context, &self.judge, self.query).await?;
        Ok(StagedCursor { when, selection, after: from.cloned() })
    }

    /// A page of the versions staged `among` these times, and the cursor of the next page.
    async fn page(
        &self,
        StagedCursor { when, selection, after }: StagedCursor,
        among: StagedWhen,
    ) -> Result<(Vec<Listed>, StagedCursor), CatalogError> {
        let Self { context, judge, query } = self;
        let page = context.catalog.staged_page(after.as_ref(), among, query.limit as usize).await?;
        let judged = judge.judged(&page.items, selection.counts()).await?;
        let numbers: Vec<VersionId> = page.items.iter().map(|version| version.version).collect();
        let quarantined = context.catalog.are_unreadable(&numbers).await?;
        let listed = page.items.into_iter().zip(judged).zip(quarantined).map(|((version, judged), is_quarantined)| {
            let Judged { heat, reads, .. } = judged;
            let is_through = reads.is_some_and(|reads| reads.is_through);
            let rank = rank(query.order, heat, version.staged_ms, is_through);
            // Copies of the catalog have their own packs, by whose names they are found.
            let is_movable = !is_quarantined && version.bucket != CATALOG_BUCKET;
            let is_taken = is_movable && takes(when, &selection, heat, (version.staged_ms, rank));
            Listed { entry: self.entry(&version, heat), version, is_taken, is_quarantined }
        });
        Ok((listed.collect(), StagedCursor { when, selection, after: page.next }))
    }

    fn entry(&self, version: &Version, heat: Heat) -> StagedEntry {
        StagedEntry {
            version: version.version.0,
            bytes: version.bytes,
            age: self.context.clock.to_modelled(age(version.staged_ms, self.judge.now_ms)),
            pin: (self.context.pin_of)(&version.bucket, &version.key).into(),
            heat,
        }
    }
}

/// True if a listing takes a version with this time of staging and this rank.
fn takes(when: StagedWhen, selection: &Selection, heat: Heat, (staged_ms, rank): (u64, MoveRank)) -> bool {
    // A version staged in the future (the clock has stepped back since) would otherwise come last.
    let is_beyond = staged_ms > when.beyond_ms;
    match heat {
        Heat::Due(_) => true,
        Heat::Cold if is_beyond => true,
        Heat::Cold => when.includes(staged_ms) && selection.takes(heat, rank),
        Heat::Hot => selection.takes(heat, rank),
    }
}

fn when(context: &Context, query: StagedScan, now_ms: u64) -> StagedWhen {
    let age_ms = u64::try_from(context.clock.to_wall(query.older_than).as_millis()).unwrap_or(u64::MAX);
    // Staged further in the future than that: the clock has stepped back, and its waiting time is unknown. It counts as
    // old enough; otherwise it would wait until the clock reaches that time again.
    StagedWhen { until_ms: now_ms.saturating_sub(age_ms), beyond_ms: now_ms.saturating_add(age_ms) }
}

/// The age of a version staged at `staged_ms`; a version from the future is older than any other.
fn age(staged_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(now_ms.checked_sub(staged_ms).unwrap_or(now_ms))
}

/// The rank of a version in the order of moving. Only times are compared, so their unit does not matter.
fn rank(order: MoveOrder, heat: Heat, staged_ms: u64, is_through: bool) -> MoveRank {
    let rank = MoveRank::new(order, is_through, Time::from_nanos(staged_ms));
    if heat == Heat::Hot { rank.hot() } else { rank }
}

/// Counts versions up to the last one that `query` takes.
async fn select(context: &Context, judge: &Judge, query: StagedScan) -> Result<Selection, CatalogError> {
    // Versions in quarantine stay, and must not be counted in place of versions that can move.
    let stay_bytes = match query.coldest_bytes {
        Some(_) => context.catalog.unreadable_usage().await?.1,
        None => 0,
    };
    let more = |bytes: u64| if bytes == 0 { 0 } else { bytes.saturating_add(stay_bytes) };
    let mut selection = Selection::new(query.coldest_bytes.map(more), more(query.hot_bytes));
    if !selection.counts() {
        return Ok(selection);
    }
    let walk = Walk { context, judge };
    if judge.thermometer.is_used() {
        for which in [Which::Processed, Which::Others] {
            let mut count = |heat: Heat, _, bytes| {
                if matches!(heat, Heat::Due(_)) && bytes >= query.min_bytes {
                    selection.add_due(bytes);
                }
                true
            };
            walk.each(which, &mut count).await?;
        }
    }
    for (wanted, which) in walks(query.order) {
        let wants = |selection: &Selection| match wanted {
            Heat::Hot => selection.wants_hot(),
            _ => selection.wants_cold(),
        };
        if !wants(&selection) {
            continue;
        }
        let mut count = |heat: Heat, staged_ms, bytes| {
            if heat == wanted && bytes >= query.min_bytes && wants(&selection) {
                selection.add(rank(query.order, heat, staged_ms, which == Which::Processed), bytes);
            }
            wants(&selection)
        };
        walk.each(which, &mut count).await?;
    }
    Ok(selection)
}

/// The staged versions to walk over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Versions that were read through.
    Processed,
    /// All others.
    Others,
    /// All of them.
    All,
}

/// The walks, each oldest first, that together are the order of moving: cold versions, then hot ones.
fn walks(order: MoveOrder) -> Vec<(Heat, Which)> {
    let of_each: &[Which] = match order {
        MoveOrder::Processed => &[Which::Processed, Which::Others],
        MoveOrder::Age => &[Which::All],
    };
    [Heat::Cold, Heat::Hot].into_iter().flat_map(|heat| of_each.iter().map(move |which| (heat, *which))).collect()
}

/// A staged version in the order of ages, with its length and its reads.
type Aged = (AgedVersion, u64, Option<Reads>);

/// Walks over staged versions, oldest first.
struct Walk<'a> {
    context: &'a Context,
    judge: &'a Judge,
}

impl Walk<'_> {
    /// Calls `take` with the temperature, the time of staging and the length of each of these staged versions, until it
    /// returns false.
    async fn each(
        &self,
        which: Which,
        take: &mut (impl FnMut(Heat, u64, u64) -> bool + Send),
    ) -> Result<(), CatalogError> {
        let mut after = None;
        loop {
            let (versions, next) = match which {
                Which::Processed => self.processed(after).await?,
                Which::Others | Which::All => self.aged(after, which == Which::All).await?,
            };
            let heats = self.judge.judged_by_number(&versions).await?;
            for ((of, bytes, _), heat) in versions.iter().zip(heats) {
                if heat.is_some_and(|heat| !take(heat, of.staged_ms, *bytes)) {
                    return Ok(());
                }
            }
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn processed(&self, after: Option<Cursor>) -> Result<(Vec<Aged>, Option<Cursor>), CatalogError> {
        let mut page = self.context.catalog.reads_page(after.as_ref()).await?;
        page.items.retain(|(_, _, reads)| reads.is_through);
        Ok((page.items.into_iter().map(|(of, bytes, reads)| (of, bytes, Some(reads))).collect(), page.next))
    }

    async fn aged(
        &self,
        after: Option<Cursor>,
        with_processed: bool,
    ) -> Result<(Vec<Aged>, Option<Cursor>), CatalogError> {
        let page = self.context.catalog.aged_page(after.as_ref()).await?;
        let aged: Vec<AgedVersion> = page.items.iter().map(|(of, _)| *of).collect();
        let reads = self.context.catalog.reads_of(&aged).await?;
        let all = page.items.into_iter().zip(reads).map(|((of, bytes), reads)| (of, bytes, reads));
        let taken = all.filter(|(_, _, reads)| with_processed || !reads.is_some_and(|reads| reads.is_through));
        Ok((taken.collect(), page.next))
    }
}
