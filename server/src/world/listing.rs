//! Listings of staged versions, in pages, for the engine's migrator.
//!
//! A listing begins by recording the reads that were counted so far and, if the engine asks for the first of the
//! versions in the order of moving, by counting which those are: what is due by a rule, then what is cold, then what is
//! hot, each in the order of [`MoveRank`]. The pages are in key order, and each version on them is judged anew.

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

/// The staged versions that the engine asks for.
#[derive(Clone, Copy)]
pub(super) struct StagedScan {
    pub(super) older_than: Duration,
    pub(super) order: MoveOrder,
    pub(super) coldest_bytes: Option<u64>,
    pub(super) hot_bytes: u64,
    pub(super) min_bytes: u64,
    pub(super) limit: u32,
}

/// A staged version as it is listed.
pub(super) struct Listed {
    pub(super) version: Version,
    pub(super) entry: StagedEntry,
    /// Whether it is what the engine asks for; nothing in quarantine is.
    pub(super) is_taken: bool,
    pub(super) is_quarantined: bool,
}

/// A page of the versions that the engine asks for, in a listing that goes on behind `go_on`, and where the next one
/// does.
pub(super) async fn list(
    context: &Context,
    thermometer: Arc<Thermometer>,
    query: StagedScan,
    go_on: Option<StagedCursor>,
) -> Result<(Vec<StagedEntry>, Option<StagedCursor>), CatalogError> {
    let lister = Lister { context, judge: Judge::now(context, thermometer), query };
    let cursor = lister.begin(go_on, None).await?;
    // With rules the age of what is listed depends on each object.
    let is_ruled = lister.judge.thermometer.is_used();
    let when = if is_ruled { StagedWhen::until(u64::MAX) } else { cursor.when };
    let (page, next) = lister.page(cursor, when).await?;
    let entries = page.into_iter().filter(|listed| listed.is_taken).map(|listed| listed.entry).collect();
    Ok((entries, Some(next).filter(|next| next.after.is_some())))
}

/// A page of all versions, in a listing that goes on with `go_on` or else begins behind `from`.
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

    /// A page of what was staged `among` these, and where the next one goes on.
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
            // Copies of the catalog are found again by the names of packs of their own.
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

/// Whether a listing takes a version that was staged then, and has this rank.
fn takes(when: StagedWhen, selection: &Selection, heat: Heat, (staged_ms, rank): (u64, MoveRank)) -> bool {
    // What was staged in a future of which the clock has stepped back would be the last of all.
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
    // What was staged further ahead than that: the clock has stepped back, and nobody knows for how long it has waited.
    // It counts as old enough, or it would wait until the clock is there again.
    StagedWhen { until_ms: now_ms.saturating_sub(age_ms), beyond_ms: now_ms.saturating_add(age_ms) }
}

/// How long a version has waited that was staged at `staged_ms`; one of the future for longer than any other.
fn age(staged_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(now_ms.checked_sub(staged_ms).unwrap_or(now_ms))
}

/// The place of a version in the order of moving. Moments are compared and nothing else, so that their unit does not
/// matter.
fn rank(order: MoveOrder, heat: Heat, staged_ms: u64, is_through: bool) -> MoveRank {
    let rank = MoveRank::new(order, is_through, Time::from_nanos(staged_ms));
    if heat == Heat::Hot { rank.hot() } else { rank }
}

/// Counts up to the last version that `query` takes.
async fn select(context: &Context, judge: &Judge, query: StagedScan) -> Result<Selection, CatalogError> {
    // Versions in quarantine stay, and must not stand for others that can go.
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

/// Staged versions that are walked over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that were read through.
    Processed,
    /// Those that were not.
    Others,
    /// All of them.
    All,
}

/// The walks, each oldest first, that one after the other are the order of moving: what is cold, then what is hot.
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
    /// Gives `take` the temperature, the moment of staging and the length of each of these staged versions, until it
    /// answers false.
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
