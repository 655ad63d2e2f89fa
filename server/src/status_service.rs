//! The admin API's answers, from a query of the engine and of the catalog. Nothing here touches a drive of the rack.

mod drives;
mod health;
mod scrub;
mod small_objects;
mod snapshot;
mod temperature;
mod verifications;
mod verify;
mod warnings;

pub(crate) use drives::may_lose;

use crate::admin::{Admin, AdminError, ScrubChange};
use crate::backup::{BackupError, BackupReport, backup};
use crate::certificate::Certificate;
use crate::context::Context;
use crate::exchange::{DiskChoice, DiskReplacement};
use crate::intake_log::IntakeLog;
use crate::notices::Notices;
use crate::recall::{Recalls, in_stripes};
use crate::report::{
    DriveReport, DryRunReport, Explanation, FailedReport, FrontStatus, HistogramReport, IntakeStatus, JournalReport,
    LostObject, LostReport, PlaceReport, RackPlace, ReadAheadStatus, ReplacedReport, ScrubReport, Status,
    WorkshopStatus,
};
use crate::set_recall::{SetError, SetRecalls, SetReport, SetRequest};
use crate::verify::{VerifyProgress, VerifyRequest};
use crate::world::WorldHandle;
use catalog::{CatalogError, Journal, Object, Place};
use disk::Hardware;
use disk::clock;
use disk::label::Label;
use engine::thermometer::Rule;
use engine::{Forecast, Rack, Rejection};
use model::{DriveId, PoolDriveId, Time};
use s3::Traffic;
use s3::latency::DurationHistogram;
use small_objects::intake_status;
use snapshot::{drive_report, late, patience, rack_status, unstopped, unusable, worn};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use verifications::Verifications;
use warnings::{
    catalog_warnings, damaged_records, late_drives, lost_copies_warning, quarantine_warning, unusable_drives, warnings,
    woke_themselves, woken_by_others,
};

/// Reports the state of a server, and executes the operator's commands about drives.
pub struct StatusService {
    context: Context,
    world: WorldHandle,
    hardware: Arc<dyn Hardware>,
    recalls: Recalls,
    sets: SetRecalls,
    /// Notices about the server's configuration.
    pub(crate) notices: Notices,
    /// The figures of the S3 frontend, if any.
    pub(crate) traffic: Option<Arc<Traffic>>,
    /// The intake, if any.
    pub(crate) intake: Option<Arc<IntakeLog>>,
    /// The journal of the catalog, if any.
    pub(crate) journal: Option<Arc<Journal>>,
    /// The certificate of S3, if it is served over TLS.
    pub(crate) certificate: Option<Arc<Certificate>>,
    /// The directory of each drive, by number, and its label; empty if drives are not directories. With these, an empty
    /// directory can become the replacement of a drive.
    pub(crate) places: Vec<(PathBuf, Label)>,
    /// The data directory and the directories of drives, where no backup of the catalog is written.
    pub(crate) ours: Vec<PathBuf>,
    /// Puts other disks into the places of drives that are disks.
    pub(crate) exchange: Option<Arc<DiskReplacement>>,
    /// Held while a drive is being replaced.
    replacing: tokio::sync::Mutex<()>,
    verifications: Verifications,
    started: Instant,
}

impl StatusService {
    /// Reports on this world.
    pub fn new(context: Context, world: WorldHandle, hardware: Arc<dyn Hardware>) -> Self {
        let recalls = Recalls::new(context.clone(), world.clone());
        let sets = SetRecalls::new(context.clone(), world.clone());
        let started = clock::monotonic();
        let replacing = tokio::sync::Mutex::default();
        Self {
            context,
            world,
            hardware,
            recalls,
            sets,
            notices: Notices::default(),
            traffic: None,
            intake: None,
            journal: None,
            certificate: None,
            places: Vec::new(),
            ours: Vec::new(),
            exchange: None,
            replacing,
            verifications: Verifications::default(),
            started,
        }
    }

    /// A query of the engine.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Rack, Time) -> T + Send + 'static,
    ) -> Result<T, AdminError> {
        self.world.ask(look).await.ok_or(AdminError::Stopping)
    }

    async fn in_workshop(&self, object: &Object, slots: Vec<u64>) -> PlaceReport {
        let age_ms = (self.context.wall)().saturating_sub(object.modified_ms);
        let migrating = self.world.is_migrating(object.version).await;
        PlaceReport::Workshop { slots, age_s: Duration::from_millis(age_ms).as_secs_f64(), migrating }
    }

    async fn in_rack(
        &self,
        object: &Object,
        blob: model::BlobId,
        offset: u64,
    ) -> Result<Option<PlaceReport>, AdminError> {
        let blob = self.context.catalog.blob(blob).await?;
        let Some(blob) = blob else { return Ok(None) };
        let (group, ids) = (blob.group, blob.drives.clone());
        let range = offset..offset.saturating_add(object.bytes);
        let found_lost = self.context.counters.losses.within(blob.blob, &in_stripes(&blob, &range));
        let damaged = found_lost.as_ref().map(|(_, stacks)| stacks.clone()).unwrap_or_default();
        let reasons = self.context.counters.absences.all();
        let look = move |rack: &Rack, now: Time| {
            let report = |drive: &DriveId| drive_report(rack, *drive, now, &reasons);
            let drives: Vec<DriveReport> = ids.iter().map(report).collect();
            let (state, forecast) = (rack.group_state(group), rack.forecast(group, now));
            (drives, state, forecast, rack.enough_drives(&ids), unusable(rack, &ids, &damaged))
        };
        let (drives, state, forecast, enough, unusable) = self.look(look).await?;
        let recalled = object.bytes > 0 && self.recalls.is_here(&blob, &range);
        let can = match (enough, found_lost) {
            (Err(Rejection::DataLost), _) | (_, Some(_)) => "lost",
            (Err(_), None) => "unavailable",
            (Ok(()), None) => "readable",
        };
        let wait = match can {
            _ if recalled => Some(Forecast::NONE),
            "readable" => Some(forecast),
            _ => None,
        };
        let seconds = |span: Duration| self.context.clock.to_wall(span).as_secs_f64();
        Ok(Some(PlaceReport::Rack(RackPlace {
            blob: blob.blob.to_string(),
            members: blob.members,
            offset,
            group: group.0,
            group_state: state.name().into(),
            class: blob.class.0,
            code_data: blob.code_data,
            code_parity: blob.code_parity,
            drives,
            state: can.into(),
            unusable,
            wait_min_s: wait.map(|wait| seconds(wait.min)),
            wait_expected_s: wait.map(|wait| seconds(wait.expected)),
            wait_max_s: wait.map(|wait| seconds(wait.max)),
            recalled,
        })))
    }
}

impl StatusService {
    /// The intake, if any, and the power of its drives.
    async fn intake_status(&self) -> Result<Option<IntakeStatus>, AdminError> {
        let Some(log) = &self.intake else { return Ok(None) };
        let (powered, disks) = (log.powered().to_vec(), Arc::clone(log.disks()));
        let look = move |rack: &Rack, now: Time| {
            let view = |(place, drive): (String, PoolDriveId)| {
                Some((place, (rack.pool_drive(drive, now)?, disks.failure(drive))))
            };
            powered.into_iter().filter_map(view).collect()
        };
        let power = self.look(look).await?;
        Ok(Some(intake_status(&log.status(), log.unmounted(), &power)))
    }
}

impl Admin for StatusService {
    async fn status(&self) -> Result<Status, AdminError> {
        let clock = Arc::clone(&self.context.clock);
        let look = move |rack: &Rack, now: Time| {
            let mut of_drives = unstopped(rack);
            of_drives.extend(worn(rack));
            of_drives.extend(patience(rack, &*clock, now));
            (rack_status(rack, now, &*clock), late(rack), of_drives)
        };
        let (seen, late, of_drives) = self.look(look).await?;
        let staging = self.context.staging.usage();
        let spool = self.context.spool.usage();
        let overrun = self.hardware.overrun();
        let uploads = self.context.catalog.upload_usage().await.unwrap_or_default();
        let mut status = Status {
            modelled_s: self.context.clock.now().as_secs_f64(),
            wall_ms: (self.context.wall)(),
            time_scale: self.context.clock.scale(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            workshop: WorkshopStatus {
                staged_bytes: staging.staged_bytes,
                staged_count: self.context.catalog.staged_usage().await.map_or(0, |usage| usage.count),
                uploads: uploads.uploads,
                upload_bytes: uploads.bytes,
                capacity_bytes: staging.capacity_bytes,
                spool_bytes: spool.used_bytes,
                spool_capacity_bytes: spool.capacity_bytes,
                ..seen.workshop
            },
            read_ahead: read_ahead(&self.context),
            journal: self.journal.as_ref().map(|journal| journal_status(journal)),
            intake: self.intake_status().await?,
            front: self.traffic.as_deref().map(front).unwrap_or_default(),
            tls: self.certificate.as_ref().map(|certificate| certificate.status()),
            ..seen
        };
        let counters = &self.context.counters;
        status.checks.saved_reads = counters.saved_reads.load(Ordering::Relaxed);
        status.checks.saved_read_bytes = counters.saved_read_bytes.load(Ordering::Relaxed);
        status.power.fuse_trips = counters.fuse_trips.load(Ordering::Relaxed);
        status.totals.repaired_fragments = counters.repaired_fragments.load(Ordering::Relaxed);
        status.totals.overruns = overrun.requests;
        let pool_disks = self.intake.as_ref().map(|log| log.disks());
        status.totals.woken_by_others =
            self.hardware.woken_by_others() + pool_disks.map_or(0, |disks| disks.woken_by_others());
        status.totals.woke_themselves =
            self.hardware.woke_themselves() + pool_disks.map_or(0, |disks| disks.woke_themselves());
        status.totals.overrun_s = self.context.clock.to_wall(overrun.total).as_secs_f64();
        (status.scrub.lost_blobs, status.scrub.unrepaired_stacks) = self.damage_found().await?;
        let found = warnings(&status, counters.has_snapshot_failed.load(Ordering::Relaxed));
        status.warn(found);
        self.notices.add_to(&mut status);
        status.warn(damaged_records(&self.context.catalog.quarantined()));
        status.warn(quarantine_warning(&self.context).await);
        status.warn(catalog_warnings(&self.context));
        status.warn(lost_copies_warning(&self.context).await);
        status.warn(late_drives(&late));
        status.warn(of_drives);
        status.warn(self.failures_predicted().await?);
        status.warn(woken_by_others(status.totals.woken_by_others));
        status.warn(woke_themselves(status.totals.woke_themselves));
        status.warn(unusable_drives(&self.context));
        Ok(status)
    }

    async fn explain(&self, bucket: &str, key: &str) -> Result<Option<Explanation>, AdminError> {
        let (object, place) = match self.context.catalog.get_object(bucket, key).await {
            Ok(found) => found,
            Err(CatalogError::NoSuchKey | CatalogError::NoSuchBucket) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let place = match place {
            place @ (Place::Staged { .. } | Place::Parts) => {
                let slots = self.context.catalog.slots_of(object.version, place).await;
                let slots = slots?;
                self.in_workshop(&object, slots).await
            }
            Place::Stored { blob, offset } => match self.in_rack(&object, blob, offset).await? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        let quarantine = self.context.catalog.unreadable_of(object.version).await?;
        let temperature = match &place {
            PlaceReport::Rack(_) => None,
            PlaceReport::Workshop { migrating, .. } => {
                let placed = self.context.catalog.placed_objects(&[(bucket, key)]).await?.pop().flatten();
                match placed.filter(|placed| placed.object.version == object.version) {
                    Some(placed) => {
                        let state = (*migrating, quarantine.is_some());
                        Some(self.temperature((bucket, key), &placed, state).await?)
                    }
                    None => None,
                }
            }
        };
        Ok(Some(Explanation {
            bucket: bucket.into(),
            key: key.into(),
            bytes: object.bytes,
            etag: object.etag,
            modified_ms: object.modified_ms,
            place,
            quarantined: quarantine.map(|quarantine| quarantine.reason),
            temperature,
        }))
    }

    async fn dry_run(
        &self,
        bucket: &str,
        prefix: &str,
        rule: Option<Rule>,
    ) -> Result<Option<DryRunReport>, AdminError> {
        self.rules_dry_run((bucket, prefix), rule).await
    }

    async fn drives(&self) -> Result<Vec<DriveReport>, AdminError> {
        let reasons = self.context.counters.absences.all();
        let look = move |rack: &Rack, now: Time| {
            rack.spec().drives.iter().map(|drive| drive_report(rack, drive.id, now, &reasons)).collect()
        };
        let mut reports: Vec<DriveReport> = self.look(look).await?;
        self.complete(&mut reports).await?;
        Ok(reports)
    }

    async fn fail_drive(&self, drive: u32, force: bool) -> Result<Option<FailedReport>, AdminError> {
        self.fail(DriveId(drive), force).await
    }

    async fn retire_drive(&self, drive: u32) -> Result<Option<DriveReport>, AdminError> {
        self.retire(DriveId(drive)).await
    }

    async fn lost_objects(&self) -> Result<LostReport, AdminError> {
        self.lost().await
    }

    async fn until_replaceable(&self, drive: u32, wait: Duration) -> Result<(), AdminError> {
        self.await_end_of_work(DriveId(drive), wait).await
    }

    async fn replace_drive(&self, drive: u32, choice: DiskChoice) -> Result<Option<ReplacedReport>, AdminError> {
        self.replace(DriveId(drive), choice).await
    }

    async fn scrub(&self) -> Result<ScrubReport, AdminError> {
        self.scrub_report().await
    }

    async fn lost(&self) -> Result<Vec<LostObject>, AdminError> {
        self.scrub_lost().await
    }

    async fn change_scrub(&self, change: ScrubChange) -> Result<Option<ScrubReport>, AdminError> {
        match change {
            ScrubChange::Pause => self.pause_scrub(true).await.map(Some),
            ScrubChange::Resume => self.pause_scrub(false).await.map(Some),
            ScrubChange::Start(group) => self.start_scrub(group).await,
        }
    }

    async fn verification(&self, request: VerifyRequest) -> Result<Option<VerifyProgress>, AdminError> {
        self.verify(request).await
    }

    async fn recall_set(&self, request: SetRequest) -> Result<SetReport, SetError> {
        self.sets.ask(&request).await
    }

    fn set_recalls(&self) -> Vec<SetReport> {
        self.sets.jobs()
    }

    async fn backup(&self, path: PathBuf) -> Result<BackupReport, BackupError> {
        let directory = path.parent().and_then(|parent| parent.canonicalize().ok());
        let within = directory.and_then(|directory| self.ours.iter().find(|ours| directory.starts_with(ours)).cloned());
        if let Some(ours) = within {
            let what = format!("is in {}, and would be lost with it: name a file elsewhere", ours.display());
            return Err(BackupError::Place(path, what));
        }
        backup(&self.context, path, (self.context.nonce)()).await
    }
}

fn journal_status(journal: &Journal) -> JournalReport {
    let status = journal.status();
    JournalReport {
        snapshot_bytes: status.snapshot_bytes,
        batch_bytes: status.segment_bytes,
        leads_on: status.snapshot.is_some() && status.broken.is_none(),
        on_drives: status.on_drives.is_some_and(|last| last >= status.changed),
    }
}

fn read_ahead(context: &Context) -> ReadAheadStatus {
    let usage = context.spool.usage();
    ReadAheadStatus {
        objects: context.counters.ahead_objects.load(Ordering::Relaxed),
        hits: context.counters.ahead_hits.load(Ordering::Relaxed),
        read_bytes: usage.ahead.read_bytes,
        used_bytes: usage.ahead.used_bytes,
        wasted_bytes: usage.ahead.wasted_bytes,
        waiting_bytes: usage.ahead_unread_bytes,
    }
}

fn front(traffic: &Traffic) -> FrontStatus {
    let (seen, limits) = (traffic.stats(), traffic.limits());
    FrontStatus {
        connections: seen.connections as u64,
        idle_connections: seen.idle_connections as u64,
        connection_limit: limits.connections as u64,
        requests: seen.requests as u64,
        unsigned_requests: seen.unsigned_requests as u64,
        request_limit: limits.requests as u64,
        waiting_requests: seen.waiting_requests as u64,
        waiting_limit: limits.waiting_max() as u64,
        refused_requests: seen.refused_requests,
        refused_connections: seen.refused_connections,
        evicted_connections: seen.evicted_connections,
        slow_clients: seen.slow_clients,
        first_byte: spans(&traffic.latencies().first_byte),
        request: spans(&traffic.latencies().request),
    }
}

fn spans(spans: &DurationHistogram) -> HistogramReport {
    let (sum_s, counts) = spans.read();
    HistogramReport { sum_s, counts }
}
