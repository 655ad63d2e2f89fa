//! Recalls of whole sets, for an operator: all objects below a prefix, or those of a list, are read into the spool in
//! the best order, each group that stores some of them in one wake.
//!
//! 1. The set is looked up in the catalog, without the objects that are already in the spool. So a repeated request
//!    after a failure, or after a restart of the server, continues with the rest.
//! 2. The cost is reported before anything is read ([`engine::ReadCost`]); a dry run ends there. A set that does not
//!    fit the spool beside the data in use is refused: its first objects would be gone before the rest is there.
//! 3. Classes work in parallel; in each, one group after the other is read, `READS_AT_ONCE` reads at a time. They are
//!    clients' reads like any other, and share the rack with them.
//!
//! Recalled data stays until it was taken, and then as long as its room is not needed; data that no client takes goes
//! for other recalls in the end. Jobs are known as long as the server runs: `JOBS_MAX` under way, `REMEMBERED` in all.

use crate::context::Context;
use crate::spool_read::{self, Blobs, OrderError, Ordered};
use crate::world::WorldHandle;
use catalog::{Blob, CatalogError, PlacedObject};
use engine::readahead::{AheadRead, Plan, set_bytes_max};
use engine::recall::SPOOL_ROOM_WAIT_MAX;
use engine::{GroupReads, ReadCost};
use futures::future::join_all;
use model::{ClassId, GroupId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use workshop::{Purpose, ReserveError};

/// Concurrent jobs.
const JOBS_MAX: usize = 4;
/// Known jobs, including those that have ended.
const REMEMBERED: usize = 32;
/// Reads of a group that are queued or in service at once.
const READS_AT_ONCE: usize = 4;
/// Objects per lookup.
const PAGE: usize = 1_000;
/// The most keys of a list.
pub(crate) const KEYS_MAX: usize = 1_000_000;

/// The set to recall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRequest {
    /// The bucket.
    pub bucket: String,
    /// All keys with this prefix, if no keys are listed.
    pub prefix: String,
    /// These keys.
    pub keys: Option<Vec<String>>,
    /// True to report only the cost.
    pub dry_run: bool,
}

/// A recall of a set: its cost and its progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetReport {
    /// Its number; 0 for a dry run.
    pub job: u64,
    /// `planned`, `running`, `done` or `failed`.
    pub state: String,
    /// The reason that it failed.
    pub reason: String,
    /// Objects of the set.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Listed keys without an object.
    pub missing: u64,
    /// Objects that need no drive: they are in the workshop, or already in the spool.
    pub here: u64,
    /// Bytes to be read into the spool: whole stripes.
    pub read_bytes: u64,
    /// Room for them in the spool.
    pub room_bytes: u64,
    /// True if they fit.
    pub fits: bool,
    /// Groups that store some of them.
    pub groups: u64,
    /// Groups that wake for it.
    pub wakes: u64,
    /// Drives that start for it.
    pub starts: u64,
    /// Expected minutes without any other work, in wall time.
    pub minutes: f64,
    /// Energy that the drives draw for it beyond standby, in kWh.
    pub kwh: f64,
    /// Bytes to be read that are in the spool now.
    pub done_bytes: u64,
    /// Bytes that could not be read.
    pub failed_bytes: u64,
}

/// The reason that a set is not recalled.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// It makes no sense, or there is no room.
    #[error("{0}")]
    Refused(String),
    /// The catalog cannot be asked for the places of the objects.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// All recalls of sets. A clone is another handle on the same recalls.
#[derive(Clone)]
pub struct SetRecalls {
    context: Context,
    world: WorldHandle,
    jobs: Arc<Mutex<Jobs>>,
}

#[derive(Default)]
struct Jobs {
    last: u64,
    known: BTreeMap<u64, Arc<Mutex<SetReport>>>,
}

/// The reads of a set, by group.
#[derive(Default)]
struct Survey {
    report: SetReport,
    blobs: Blobs,
    plans: BTreeMap<GroupId, Plan>,
}

impl SetRecalls {
    /// Recalls through `world`.
    pub fn new(context: Context, world: WorldHandle) -> Self {
        Self { context, world, jobs: Arc::default() }
    }

    /// Returns the cost of `request` and, unless it is a dry run, starts the recall.
    ///
    /// # Errors
    /// [`SetError`].
    pub async fn ask(&self, request: &SetRequest) -> Result<SetReport, SetError> {
        if request.keys.as_ref().is_some_and(|keys| keys.len() > KEYS_MAX) {
            return Err(SetError::Refused(format!("a list has {KEYS_MAX} keys at most; recall it in parts")));
        }
        let (report, reads, blobs) = self.plan(request).await?;
        if request.dry_run {
            return Ok(report);
        }
        if !report.fits {
            return Err(SetError::Refused(format!(
                "{} bytes would have to be read, and the spool has room for {}; recall a part of it, or set \
                 `workshop.spool` in larder.toml",
                report.read_bytes, report.room_bytes
            )));
        }
        let job = self.enter(report)?;
        let begun = job.lock().clone();
        let (recalls, under_way) = (self.clone(), Arc::clone(&job));
        (self.context.spawn)(Box::pin(async move { recalls.run(&under_way, reads, &blobs).await }));
        Ok(begun)
    }

    /// The job with that number, if it is known.
    pub fn job(&self, job: u64) -> Option<SetReport> {
        self.jobs.lock().known.get(&job).map(|report| report.lock().clone())
    }

    /// The known jobs, by number.
    pub fn jobs(&self) -> Vec<SetReport> {
        self.jobs.lock().known.values().map(|report| report.lock().clone()).collect()
    }

    fn enter(&self, report: SetReport) -> Result<Arc<Mutex<SetReport>>, SetError> {
        let mut jobs = self.jobs.lock();
        let is_running = |report: &Arc<Mutex<SetReport>>| report.lock().state == "running";
        if jobs.known.values().filter(|report| is_running(report)).count() >= JOBS_MAX {
            return Err(SetError::Refused(format!("{JOBS_MAX} sets are being recalled; wait for one of them")));
        }
        if jobs.known.len() >= REMEMBERED {
            let over = jobs.known.iter().find(|(_, report)| !is_running(report)).map(|(job, _)| *job);
            over.and_then(|job| jobs.known.remove(&job));
        }
        jobs.last += 1;
        let job = jobs.last;
        let report = Arc::new(Mutex::new(SetReport { job, state: "running".into(), ..report }));
        jobs.known.insert(job, Arc::clone(&report));
        assert!(jobs.known.len() <= REMEMBERED, "jobs are bounded");
        Ok(report)
    }

    /// The cost, and the reads of each group.
    async fn plan(
        &self,
        request: &SetRequest,
    ) -> Result<(SetReport, BTreeMap<GroupId, Vec<AheadRead>>, Blobs), SetError> {
        let Survey { mut report, blobs, plans } = self.survey(request).await?;
        let usage = self.context.spool.usage();
        let reads: BTreeMap<GroupId, Vec<AheadRead>> =
            plans.into_iter().map(|(group, plan)| (group, plan.into_reads(usage.capacity_bytes))).collect();
        let of_group = |(group, reads): (&GroupId, &Vec<AheadRead>)| {
            let bytes = reads.iter().map(|read| read.range.end - read.range.start).sum();
            GroupReads { group: *group, reads: reads.len() as u64, bytes }
        };
        let set: Vec<GroupReads> = reads.iter().map(of_group).filter(|reads| reads.reads > 0).collect();
        report.groups = set.len() as u64;
        report.read_bytes = set.iter().map(|reads| reads.bytes).sum();
        report.room_bytes = set_bytes_max(usage.capacity_bytes, usage.used_bytes - usage.idle_bytes);
        report.fits = report.read_bytes <= report.room_bytes;
        let cost = self.world.ask(move |rack, _| rack.read_cost(&set)).await;
        let ReadCost { wakes, starts, time, energy_mj } =
            cost.ok_or_else(|| SetError::Refused("the server is stopping".into()))?;
        (report.wakes, report.starts) = (wakes, starts);
        report.minutes = self.context.clock.to_wall(time).as_secs_f64() / 60.0;
        report.kwh = energy_mj as f64 / 3.6e9;
        report.state = "planned".into();
        Ok((report, reads, blobs))
    }

    async fn survey(&self, request: &SetRequest) -> Result<Survey, SetError> {
        let mut survey = Survey::default();
        let catalog = &self.context.catalog;
        if let Some(keys) = &request.keys {
            for page in keys.chunks(PAGE) {
                let at: Vec<(&str, &str)> = page.iter().map(|key| (request.bucket.as_str(), key.as_str())).collect();
                for placed in catalog.placed_objects(&at).await? {
                    match placed {
                        Some(placed) => self.add(&mut survey, &placed).await?,
                        None => survey.report.missing += 1,
                    }
                }
            }
            return Ok(survey);
        }
        catalog.bucket(&request.bucket).await?;
        let mut after = None;
        loop {
            let page = catalog.placed_page(&request.bucket, &request.prefix, after.as_deref(), PAGE).await?;
            for (_, placed) in &page.objects {
                self.add(&mut survey, placed).await?;
            }
            after = page.objects.last().map(|(key, _)| key.clone());
            if !page.truncated || after.is_none() {
                return Ok(survey);
            }
        }
    }

    async fn add(&self, survey: &mut Survey, placed: &PlacedObject) -> Result<(), SetError> {
        survey.report.objects += 1;
        survey.report.bytes += placed.object.bytes;
        let candidate = survey.blobs.candidate(&self.context, placed).await?;
        let Some(cold) = candidate.cold else {
            survey.report.here += 1;
            return Ok(());
        };
        let mut stripes = cold.stripes(candidate.bytes);
        if stripes.all(|start| self.context.spool.holds(cold.blob, start.max(cold.offset))) {
            survey.report.here += 1;
            return Ok(());
        }
        let plan = survey.plans.entry(cold.group).or_insert_with(|| Plan::of_all(cold.group));
        let offered = plan.offer(&candidate, |blob, at| self.context.spool.holds(blob, at));
        assert!(offered.is_continue(), "a plan for all takes all");
        Ok(())
    }

    async fn run(&self, job: &Mutex<SetReport>, reads: BTreeMap<GroupId, Vec<AheadRead>>, blobs: &Blobs) {
        let mut classes: BTreeMap<ClassId, Vec<Vec<AheadRead>>> = BTreeMap::new();
        let groups: Vec<GroupId> = reads.keys().copied().collect();
        let class_of = self.world.ask(move |rack, _| {
            let layout = rack.layout();
            groups.into_iter().map(|group| (group, layout.class_of(group))).collect::<BTreeMap<_, _>>()
        });
        let class_of = class_of.await.unwrap_or_default();
        for (group, reads) in reads {
            classes.entry(class_of.get(&group).copied().unwrap_or(ClassId(0))).or_default().push(reads);
        }
        let of_class = |groups: Vec<Vec<AheadRead>>| async {
            for reads in groups {
                self.read_group(job, reads, blobs).await;
            }
        };
        join_all(classes.into_values().map(of_class)).await;
        let mut report = job.lock();
        let is_done = report.reason.is_empty();
        report.state = if is_done { "done" } else { "failed" }.into();
    }

    async fn read_group(&self, job: &Mutex<SetReport>, reads: Vec<AheadRead>, blobs: &Blobs) {
        let mut under_way: VecDeque<Ordered> = VecDeque::new();
        for read in reads {
            if under_way.len() == READS_AT_ONCE
                && let Some(first) = under_way.pop_front()
            {
                note_end(job, first).await;
            }
            let bytes = read.range.end - read.range.start;
            let Some(blob) = blobs.get(read.blob) else { continue };
            match self.order(blob, &read).await {
                Ok(Some(ordered)) => under_way.push_back(ordered),
                // A client has ordered it meanwhile; or it was deleted, and is no longer wanted.
                Ok(None) => job.lock().done_bytes += bytes,
                Err(error) => failed(job, bytes, &error.to_string()),
            }
        }
        for ordered in under_way {
            note_end(job, ordered).await;
        }
    }

    /// Orders one read, and waits for room if necessary.
    async fn order(&self, blob: &Blob, read: &AheadRead) -> Result<Option<Ordered>, OrderError> {
        let mut changes = self.context.spool.changes();
        let mut room_deadline = std::pin::pin!(tokio::time::sleep(SPOOL_ROOM_WAIT_MAX));
        loop {
            let purpose = Purpose::Asked { wanted_bytes: read.wanted_bytes };
            match spool_read::order((&self.context, &self.world), blob, read, purpose, false).await {
                Err(OrderError::Spool(ReserveError::Full(full))) => tokio::select! {
                    Ok(()) = changes.changed() => {}
                    () = &mut room_deadline => return Err(OrderError::Spool(ReserveError::Full(full))),
                },
                other => return other,
            }
        }
    }
}

async fn note_end(job: &Mutex<SetReport>, ordered: Ordered) {
    let range = ordered.reader.range();
    let bytes = range.end - range.start;
    match ordered.reader.written(range.end).await {
        Ok(()) => job.lock().done_bytes += bytes,
        Err(error) => match ordered.refused.get() {
            Some(reason) => failed(job, bytes, reason.text()),
            None => failed(job, bytes, &error.to_string()),
        },
    }
}

/// Records that this number of bytes could not be read. The first reason is kept.
fn failed(job: &Mutex<SetReport>, bytes: u64, reason: &str) {
    let mut report = job.lock();
    report.failed_bytes += bytes;
    if report.reason.is_empty() {
        reason.clone_into(&mut report.reason);
    }
}
