//! Checks of staged versions: a page of a pass is read, and every byte is compared with its checksum. Versions that are
//! to move stay in memory until they are in a pack.
//!
//! Staged files and the records of the log and its shelves are read alike: each is a slot of the staging area. The
//! pacer has blocks take turns with clients, as it does for migration writes.
//!
//! Invariants: a version in memory was checked completely, and the total is within the room that the engine allowed.
//! The cursor of a pass is after versions that were read, or skipped for a reason, and after no others.

use super::listing::{Listed, StagedScan, listed};
use super::operation::{CheckPlace, InMemory, StagedCursor};
use super::quarantine::{Examined, Reading, examine, quarantine};
use super::state::World;
use crate::context::Context;
use catalog::{CatalogError, ChecksRecord, Cursor};
use engine::staging::checks::{CheckProgress, Taking, held_cost};
use engine::thermometer::Thermometer;
use engine::{CheckResult, CheckedEntry, Event, MoveOrder};
use model::{Attempt, Time};
use std::sync::Arc;
use std::time::Duration;

/// A page that the engine asks for.
#[derive(Clone, Copy)]
pub(super) struct CheckScan {
    pub(super) take: Option<Taking>,
    pub(super) limit: u32,
    pub(super) bytes_max: u64,
    pub(super) load_limit_permille: Option<u32>,
}

/// The part of a page that is checked.
#[derive(Default)]
struct Page {
    entries: Vec<CheckedEntry>,
    in_memory: InMemory,
    held_bytes: u64,
    read_bytes: u64,
}

impl World {
    pub(super) fn measure_load(&self, attempt: Attempt) {
        let load_permille = self.context.pacing.load_permille();
        self.handle.report(Event::LoadMeasured { attempt, load_permille });
    }

    pub(super) fn check_staged(&mut self, attempt: Attempt, scan: CheckScan, restart: bool) {
        if restart {
            self.check_place = CheckPlace::Behind(None);
        }
        let (place, taking) = (self.check_place.clone(), self.check_selection.clone());
        let thermometer = Arc::clone(&self.thermometer);
        self.start_with(move |handle, context| async move {
            let scanner = Scanner { context, scan };
            let checked = match scanner.list(thermometer, place, taking).await {
                Ok(found) => {
                    let versions = found.page.iter().map(|listed| listed.version.version).collect();
                    let migrating = handle.are_migrating(versions).await;
                    scanner.check(found, &migrating).await
                }
                Err(error) => Err(error),
            };
            match checked {
                Ok(checked) => {
                    let load_permille = scanner.context.pacing.load_permille();
                    handle.run(move |world| world.checked(attempt, checked, load_permille));
                }
                Err(error) => {
                    tracing::error!(%error, "staged versions could not be looked up; they are checked later");
                    handle.report(Event::StagedUnchecked { attempt });
                }
            }
        });
    }

    fn checked(&mut self, attempt: Attempt, checked: CheckedPage, load_permille: u32) {
        let CheckedPage { page, place, more, taking } = checked;
        (self.check_place, self.check_selection) = (place, taking);
        self.in_memory.extend(page.in_memory);
        self.apply(Event::StagedChecked { attempt, entries: page.entries, more, load_permille });
    }

    pub(super) fn persist_checks(&self, progress: CheckProgress) {
        let behind = match &self.check_place {
            CheckPlace::Behind(place) => place.clone(),
            CheckPlace::AsRecorded => return, // nothing was read since
        };
        let CheckProgress { begun, ended, last_ended, objects, bytes, damaged } = progress;
        let record = ChecksRecord {
            begun_ns: begun.as_nanos(),
            ended_ns: ended.map(Time::as_nanos),
            last_ended_ns: last_ended.map(Time::as_nanos),
            objects,
            bytes,
            damaged,
            behind,
        };
        self.start_with(|_, context| async move {
            if let Err(error) = context.catalog.note_checks(&record).await {
                tracing::warn!(%error, "cannot record the progress of the checks; a start repeats some of them");
            }
        });
    }
}

/// The progress of the last pass, for the engine; `None` if there was no pass.
pub(crate) async fn progress(context: &Context) -> Result<Option<CheckProgress>, CatalogError> {
    let record = context.catalog.checks().await?;
    Ok(record.map(|record| CheckProgress {
        begun: Time::from_nanos(record.begun_ns),
        ended: record.ended_ns.map(Time::from_nanos),
        last_ended: record.last_ended_ns.map(Time::from_nanos),
        objects: record.objects,
        bytes: record.bytes,
        damaged: record.damaged,
    }))
}

/// Versions to check.
struct Found {
    page: Vec<Listed>,
    /// The cursor at which the page begins.
    from: Option<Cursor>,
    /// True if more versions follow.
    more: bool,
    taking: Option<StagedCursor>,
}

/// A checked page.
struct CheckedPage {
    page: Page,
    place: CheckPlace,
    more: bool,
    taking: Option<StagedCursor>,
}

struct Scanner {
    context: Context,
    scan: CheckScan,
}

impl Scanner {
    async fn list(
        &self,
        thermometer: Arc<Thermometer>,
        place: CheckPlace,
        taking: Option<StagedCursor>,
    ) -> Result<Found, CatalogError> {
        let from = match place {
            CheckPlace::Behind(place) => place,
            CheckPlace::AsRecorded => self.context.catalog.checks().await?.and_then(|record| record.behind),
        };
        let take = self.scan.take;
        let query = StagedScan {
            older_than: take.map_or(Duration::MAX, |take| take.older_than),
            order: take.map_or_else(MoveOrder::default, |take| take.order),
            coldest_bytes: take.and_then(|take| take.coldest_bytes),
            hot_bytes: 0,
            min_bytes: take.map_or(0, |take| take.min_bytes),
            limit: self.scan.limit,
        };
        let known = taking.filter(|_| take.is_some_and(|take| !take.anew));
        let go_on = known.map(|known| StagedCursor { after: from.clone(), ..known });
        let (page, next) = listed(&self.context, thermometer, query, (go_on, from.as_ref())).await?;
        let taking = take.is_some().then(|| next.clone());
        Ok(Found { page, from, more: next.after.is_some(), taking })
    }

    async fn check(&self, found: Found, migrating: &[bool]) -> Result<CheckedPage, CatalogError> {
        let Found { page: listed, from, more, taking } = found;
        let (mut page, mut place) = (Page::default(), from);
        let mut reading = Reading::paced(&self.context, self.scan.load_limit_permille);
        for (listed, is_migrating) in listed.into_iter().zip(migrating) {
            let behind = Cursor::behind_staged(&listed.version);
            if page.read_bytes >= self.scan.bytes_max
                || !self.take(&mut page, listed, *is_migrating, &mut reading).await?
            {
                return Ok(CheckedPage { page, place: CheckPlace::Behind(place), more: true, taking });
            }
            place = Some(behind);
        }
        Ok(CheckedPage { page, place: CheckPlace::Behind(place), more, taking })
    }

    /// Takes a version into the page; false if the page ends before it.
    async fn take(
        &self,
        page: &mut Page,
        listed: Listed,
        is_migrating: bool,
        reading: &mut Reading<'_>,
    ) -> Result<bool, CatalogError> {
        let Listed { version, entry, is_taken, is_quarantined } = listed;
        let skipped = CheckedEntry { entry, result: CheckResult::Skipped, taken: false, held: false };
        if is_migrating || is_quarantined {
            page.entries.push(skipped);
            return Ok(true);
        }
        let to_take = self.scan.take.filter(|take| is_taken && entry.bytes >= take.min_bytes);
        let (cost, hold_bytes) = (held_cost(entry.bytes), to_take.map_or(0, |take| take.hold_bytes));
        let keep = to_take.is_some() && cost <= hold_bytes;
        if keep && page.held_bytes + cost > hold_bytes {
            return Ok(false);
        }
        let mut examined = examine(&self.context, &version, reading.keeping(keep)).await?;
        if matches!(&examined, Examined::Bad(trouble) if trouble.own) {
            // Read it once more, as migration does: a disk that fails one read may succeed at the next.
            examined = examine(&self.context, &version, reading.keeping(keep)).await?;
        }
        let checked = match examined {
            Examined::Sound(bytes) => {
                if let Some(bytes) = bytes {
                    page.held_bytes += cost;
                    page.in_memory.insert(version.version, bytes);
                }
                CheckedEntry { result: CheckResult::Sound, taken: to_take.is_some(), held: keep, ..skipped }
            }
            Examined::Bad(trouble) if trouble.own => {
                let is_known = quarantine(&self.context, &version, &trouble.reason).await;
                CheckedEntry { result: if is_known { CheckResult::Damaged } else { CheckResult::Skipped }, ..skipped }
            }
            Examined::Bad(trouble) => {
                tracing::warn!(key = version.key, trouble.reason, "a staged file cannot be checked at the moment");
                skipped
            }
            Examined::Gone => skipped,
            Examined::Busy => return Ok(false),
        };
        page.read_bytes += if checked.result == CheckResult::Skipped { 0 } else { entry.bytes };
        page.entries.push(checked);
        Ok(true)
    }
}
