//! The admin API's answers, from a look at the engine and at the catalog. Nothing here touches a drive.

use crate::admin::{Admin, Untold};
use crate::data_dir::fresh_label;
use crate::lineage;
use crate::notices::Notices;
use crate::recall::{Recalls, in_stripes};
use crate::replace::{self, ReplaceError};
use crate::report::{
    CapacityStatus, ClassStatus, DriveCounts, DriveReport, Explanation, FrontStatus, PlaceReport, PowerStatus,
    RebuildReport, Status, Totals, UnusableStack, WorkshopStatus,
};
use crate::world::{Means, WorldHandle};
use catalog::{CatalogError, Object, Place};
use disk::label::Label;
use disk::{Clock, EmulatedRack};
use engine::{DrivePhase, Event, Forecast, GroupState, Lane, Rack, RebuildView, Rejection};
use futures::future::BoxFuture;
use model::{ClassId, Code, DriveId, GroupId, Time};
use s3::Traffic;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Objects in quarantine that a warning names; more are only counted.
const QUARANTINED_NAMED: usize = 20;
/// Drives that cannot be used of which a status says why; `drive list` says it of all.
const ABSENCES_NAMED: usize = 5;

/// Tells how it goes.
pub struct Teller {
    means: Means,
    world: WorldHandle,
    emulated: Arc<EmulatedRack>,
    notices: Notices,
    recalls: Recalls,
    traffic: Option<Arc<Traffic>>,
    /// The directory behind each drive, and the label that belongs there; none where drives are no directories.
    places: Vec<(PathBuf, Label)>,
    /// Held by whoever has a drive replaced.
    replacing: tokio::sync::Mutex<()>,
    started: Instant,
}

impl Teller {
    /// Tells of this world.
    pub fn new(means: Means, world: WorldHandle, emulated: Arc<EmulatedRack>) -> Self {
        let recalls = Recalls::new(means.clone(), world.clone());
        let started = Instant::now();
        let replacing = tokio::sync::Mutex::default();
        let (notices, traffic, places) = (Notices::default(), None, Vec::new());
        Self { means, world, emulated, notices, recalls, traffic, places, replacing, started }
    }

    /// The same, which also tells how the server is set up.
    #[must_use]
    pub fn with_notices(self, notices: Notices) -> Self {
        Self { notices, ..self }
    }

    /// Tells of the front as well.
    #[must_use]
    pub fn with_traffic(self, traffic: Arc<Traffic>) -> Self {
        Self { traffic: Some(traffic), ..self }
    }

    /// The same, which can also take an empty directory as the replacement of a drive: `places` are all drives'
    /// directories with their labels, by number.
    #[must_use]
    pub fn with_places(self, places: Vec<(PathBuf, Label)>) -> Self {
        Self { places, ..self }
    }

    async fn tell_status(&self) -> Result<Status, Untold> {
        let clock = Arc::clone(&self.means.clock);
        let seen = self.look(move |rack, _| Seen::of(rack, &*clock)).await?;
        let staging = self.means.staging.usage();
        let spool = self.means.spool.usage();
        let overrun = self.emulated.overrun();
        let uploads = self.means.catalog.upload_usage().await.unwrap_or_default();
        let mut status = Status {
            rack: seen.rack,
            modelled_s: self.means.clock.now().as_secs_f64(),
            wall_ms: (self.means.wall)(),
            time_scale: self.means.clock.scale(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            workshop: WorkshopStatus {
                staged_bytes: staging.staged_bytes,
                staged_count: self.means.catalog.staged_usage().await.map_or(0, |usage| usage.count),
                uploads: uploads.uploads,
                upload_bytes: uploads.bytes,
                capacity_bytes: staging.capacity_bytes,
                spool_bytes: spool.used_bytes,
                spool_capacity_bytes: spool.capacity_bytes,
                migrations_under_way: seen.migrations_under_way,
            },
            front: self.traffic.as_deref().map(front).unwrap_or_default(),
            power: seen.power,
            drives: seen.drives,
            rebuilds: seen.rebuilds,
            classes: seen.classes,
            totals: seen.totals,
            capacity: seen.capacity,
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        let counters = &self.means.counters;
        status.power.fuse_trips = counters.fuse_trips.load(Ordering::Relaxed);
        status.totals.repaired_fragments = counters.repaired_fragments.load(Ordering::Relaxed);
        status.totals.overruns = overrun.requests;
        status.totals.overrun_s = self.means.clock.to_wall(overrun.total).as_secs_f64();
        status.warnings = warnings(&status);
        status.warnings.extend(damaged_records(&self.means.catalog.quarantined()));
        self.notices.add_to(&mut status);
        status.warnings.extend(self.quarantine_warning().await);
        status.warnings.extend(self.catalog_warnings());
        status.warnings.extend(late_drives(&seen.late));
        let absences = counters.absences.all();
        let named = absences.iter().take(ABSENCES_NAMED);
        status.warnings.extend(named.map(|(drive, reason)| format!("drive {} cannot be used: {reason}", drive.0)));
        Ok(status)
    }

    /// Names what is in quarantine.
    async fn quarantine_warning(&self) -> Option<String> {
        let (count, _) = self.means.catalog.unreadable_usage().await.ok()?;
        let named = self.means.catalog.unreadable_page(None, QUARANTINED_NAMED).await.ok()?.items;
        let name = |found: &catalog::Unreadable| format!("{}/{}", found.bucket, found.key);
        let mut names: Vec<String> = named.iter().map(name).collect();
        if count > names.len() as u64 {
            names.push(format!("and {} more, which the log names", count - names.len() as u64));
        }
        let objects = if count == 1 { "object is" } else { "objects are" };
        (count > 0).then(|| {
            format!(
                "{count} {objects} in quarantine, since not every byte can be read: {}. Write them again or delete \
                 them, or put their files back and restart the server; `larder explain` says what is wrong",
                names.join(", ")
            )
        })
    }

    /// What the catalog does not fit.
    fn catalog_warnings(&self) -> Vec<String> {
        let counters = &self.means.counters;
        let mut warnings = Vec::new();
        if let Some(why) = self.means.lineage.older() {
            warnings.push(format!(
                "the catalog is older than the rack: {why}. Nothing is removed from the rack meanwhile; {}",
                lineage::MEND
            ));
        }
        if let Some(flaw) = self.means.lineage.incomplete() {
            warnings.push(format!(
                "the catalog is not complete: {flaw}. What it does not find may be what is missing, so nothing is \
                 removed from the rack meanwhile; {}",
                lineage::MEND
            ));
        }
        match counters.unknown_staged.load(Ordering::Relaxed) {
            0 => {}
            1 => warnings.push(unknown_staged("1 staged file is")),
            files => warnings.push(unknown_staged(&format!("{files} staged files are"))),
        }
        match counters.wrong_bodies.load(Ordering::Relaxed) {
            0 => {}
            bodies => warnings.push(format!(
                "GETs cut off because the bytes were not those that the object was acknowledged with: {bodies}. The \
                 log names the objects; run `larder verify --deep`, and report this"
            )),
        }
        warnings
    }

    /// A look at the engine.
    async fn look<T: Send + 'static>(&self, look: impl FnOnce(&Rack, Time) -> T + Send + 'static) -> Result<T, Untold> {
        self.world.ask(look).await.ok_or(Untold::Stopping)
    }

    async fn tell_place(&self, bucket: &str, key: &str) -> Result<Option<Explanation>, Untold> {
        let (object, place) = match self.means.catalog.get_object(bucket, key).await {
            Ok(found) => found,
            Err(CatalogError::NoSuchKey | CatalogError::NoSuchBucket) => return Ok(None),
            Err(error) => return Err(untold(&error)),
        };
        let place = match place {
            place @ (Place::Staged { .. } | Place::Parts) => {
                let slots = self.means.catalog.slots_of(object.version, place).await;
                let slots = slots.map_err(|error| untold(&error))?;
                self.in_workshop(&object, slots).await
            }
            Place::Stored { blob, offset } => match self.in_rack(&object, blob, offset).await? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        let quarantine = self.means.catalog.unreadable_of(object.version).await.map_err(|error| untold(&error))?;
        Ok(Some(Explanation {
            bucket: bucket.into(),
            key: key.into(),
            bytes: object.bytes,
            etag: object.etag,
            modified_ms: object.modified_ms,
            place,
            quarantined: quarantine.map(|quarantine| quarantine.reason),
        }))
    }

    async fn in_workshop(&self, object: &Object, slots: Vec<u64>) -> PlaceReport {
        let age_ms = (self.means.wall)().saturating_sub(object.modified_ms);
        let migrating = self.world.is_migrating(object.version).await;
        PlaceReport::Workshop { slots, age_s: Duration::from_millis(age_ms).as_secs_f64(), migrating }
    }

    async fn in_rack(&self, object: &Object, blob: model::BlobId, offset: u64) -> Result<Option<PlaceReport>, Untold> {
        let blob = self.means.catalog.blob(blob).await.map_err(|error| untold(&error))?;
        let Some(blob) = blob else { return Ok(None) };
        let (group, ids) = (blob.group, blob.drives.clone());
        let range = offset..offset.saturating_add(object.bytes);
        let found_lost = self.means.counters.losses.within(blob.blob, &in_stripes(&blob, &range));
        let damaged = found_lost.as_ref().map(|(_, stacks)| stacks.clone()).unwrap_or_default();
        let reasons = self.means.counters.absences.all();
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
            _ if recalled => Some(Forecast { min: Duration::ZERO, max: Duration::ZERO }),
            "readable" => Some(forecast),
            _ => None,
        };
        let seconds = |span: Duration| self.means.clock.to_wall(span).as_secs_f64();
        Ok(Some(PlaceReport::Rack {
            blob: blob.blob.to_string(),
            members: blob.members,
            offset,
            group: group.0,
            group_state: group_state(state).into(),
            class: blob.class.0,
            code_data: blob.code_data,
            code_parity: blob.code_parity,
            drives,
            state: can.into(),
            unusable,
            wait_min_s: wait.map(|wait| seconds(wait.min)),
            wait_max_s: wait.map(|wait| seconds(wait.max)),
            recalled,
        }))
    }
}

impl Teller {
    async fn take_replacement(&self, number: u32) -> Result<Option<DriveReport>, Untold> {
        let drive = DriveId(number);
        let Some((path, label)) = self.places.get(drive.index()).cloned() else { return Ok(None) };
        // One at a time, so that nobody writes where somebody else has just looked.
        let _turn = self.replacing.lock().await;
        if !self.look(move |rack, _| rack.has_failed(drive)).await? {
            return Err(Untold::Because(ReplaceError::NotFailed(number).to_string()));
        }
        if !self.world.may_be_replaced(drive).await {
            return Err(Untold::Because(format!(
                "what was begun on drive {number} before it failed is not over yet; say this again when its group \
                 sleeps, which `larder drive list` shows"
            )));
        }
        let fresh = fresh_label(label).map_err(|error| Untold::Because(error.to_string()))?;
        let taken = tokio::task::spawn_blocking(move || replace::take(&path, &fresh)).await;
        let taken = taken.map_err(|error| Untold::Because(error.to_string()))?;
        let uuid = taken.map_err(|error| Untold::Because(error.to_string()))?;
        // Remembered first: what the rack acts upon must hold after a crash as well.
        let lost_bytes = self.means.catalog.replace_drive(drive, uuid.0).await.map_err(|error| untold(&error))?;
        let Some(lost_bytes) = lost_bytes else {
            return Err(Untold::Because(ReplaceError::NotFailed(number).to_string()));
        };
        tracing::info!(%drive, "another drive took the place of one that failed");
        self.means.counters.absences.note(drive, None);
        self.emulated.replace(drive);
        self.world.tell(Event::DriveReplaced { drive, lost_bytes });
        self.look(move |rack, now| drive_report(rack, drive, now, &BTreeMap::new())).await.map(Some)
    }
}

impl Admin for Teller {
    fn status(&self) -> BoxFuture<'_, Result<Status, Untold>> {
        Box::pin(self.tell_status())
    }

    fn explain<'a>(&'a self, bucket: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Explanation>, Untold>> {
        Box::pin(self.tell_place(bucket, key))
    }

    fn drives(&self) -> BoxFuture<'_, Result<Vec<DriveReport>, Untold>> {
        let reasons = self.means.counters.absences.all();
        let look = move |rack: &Rack, now: Time| {
            rack.spec().drives.iter().map(|drive| drive_report(rack, drive.id, now, &reasons)).collect()
        };
        Box::pin(self.look(look))
    }

    fn fail_drive(&self, drive: u32, force: bool) -> BoxFuture<'_, Result<Option<DriveReport>, Untold>> {
        Box::pin(async move {
            let drive = DriveId(drive);
            if drive.index() >= self.means.drives.len() {
                return Ok(None);
            }
            if let Some(refusal) = self.look(move |rack, _| fails_too_many(rack, drive)).await?.filter(|_| !force) {
                return Err(Untold::Because(refusal));
            }
            // Remembered first: what the rack acts upon must hold after a crash as well.
            let now_ms = (self.means.wall)();
            let first = self.means.catalog.fail_drive(drive, now_ms).await.map_err(|error| untold(&error))?;
            if first {
                tracing::warn!(%drive, "the operator says that a drive failed for good; what it held is rebuilt");
                // Once: to the engine, a second time means that the drive was pulled and takes no power any more.
                self.world.tell(Event::DriveFailed { drive });
                self.means.counters.absences.note(drive, None);
            }
            self.look(move |rack, now| drive_report(rack, drive, now, &BTreeMap::new())).await.map(Some)
        })
    }

    fn replace_drive(&self, drive: u32) -> BoxFuture<'_, Result<Option<DriveReport>, Untold>> {
        Box::pin(self.take_replacement(drive))
    }
}

fn unknown_staged(files: &str) -> String {
    format!("{files} unknown to this catalog and kept, since a newer one may know more: `larder verify` names them")
}

fn untold(error: &CatalogError) -> Untold {
    Untold::Because(error.to_string())
}

/// [`may_lose`], as the engine sees it.
fn fails_too_many(rack: &Rack, drive: DriveId) -> Option<String> {
    let group = rack.layout().group_of(drive).filter(|_| !rack.has_failed(drive))?;
    let of_group = rack.rebuilds().filter(|view| view.group == group && view.drive != drive && view.left_bytes > 0);
    may_lose(rack.spec().code, group, drive, &of_group.map(|view| view.drive.0).collect::<Vec<_>>())
}

/// Why giving up `drive` may lose blobs: so many other drives of its group failed and are not rebuilt (`unbuilt`) that
/// it is the one more that the code does not bear. A failed drive is never read again, not even where nothing else is
/// left.
pub(crate) fn may_lose(code: Code, group: GroupId, drive: DriveId, unbuilt: &[u32]) -> Option<String> {
    (unbuilt.len() >= usize::from(code.parity)).then(|| {
        format!(
            "drives {unbuilt:?} of group {group} failed as well and are not rebuilt yet: without drive {drive}, blobs \
             would be lost. Wait until `larder status` shows no rebuild in the group, or say --force if \
             drive {drive} cannot be read"
        )
    })
}

/// What one look at the engine shows.
#[derive(Default)]
struct Seen {
    rack: String,
    migrations_under_way: u64,
    power: PowerStatus,
    drives: DriveCounts,
    rebuilds: Vec<RebuildReport>,
    classes: Vec<ClassStatus>,
    totals: Totals,
    capacity: CapacityStatus,
    /// Drives that missed deadlines, and how many.
    late: Vec<(DriveId, u64)>,
}

impl Seen {
    fn of(rack: &Rack, clock: &dyn Clock) -> Self {
        let spec = rack.spec();
        let standby_mw = u64::from(spec.profile.watts.standby_mw) * spec.drives.len() as u64;
        Self {
            rack: spec.name.clone(),
            migrations_under_way: rack.migrations_under_way() as u64,
            power: PowerStatus {
                watts: rack.watts_mw() as f64 / 1000.0,
                standby_watts: standby_mw as f64 / 1000.0,
                active_drives: rack.active_drives() as u64,
                active_drives_max: rack.layout().drives_active_max().into(),
                fuse_trips: 0,
            },
            drives: drive_counts(rack),
            rebuilds: rack.rebuilds().map(|view| rebuild_report(&view, clock)).collect(),
            classes: (0..rack.layout().classes.len()).map(|class| class_status(rack, ClassId(class as u32))).collect(),
            totals: totals(rack),
            capacity: capacity(rack),
            late: late(rack),
        }
    }
}

fn drive_counts(rack: &Rack) -> DriveCounts {
    let mut counts = DriveCounts::default();
    for drive in &rack.spec().drives {
        match rack.drive_phase(drive.id) {
            _ if rack.has_failed(drive.id) => counts.failed += 1,
            DrivePhase::Standby | DrivePhase::AwaitingPermit => counts.standby += 1,
            DrivePhase::Ready => counts.ready += 1,
            DrivePhase::Away(_) => counts.away += 1,
            _ => counts.moving += 1,
        }
    }
    counts
}

fn rebuild_report(view: &RebuildView, clock: &dyn Clock) -> RebuildReport {
    RebuildReport {
        drive: view.drive.0,
        group: view.group.0,
        left_bytes: view.left_bytes,
        rebuilt_bytes: view.rebuilt_bytes,
        rebuilt_stacks: view.rebuilt_stacks,
        lost_blobs: view.lost_blobs,
        waiting_blobs: view.waiting_blobs,
        left_min_s: clock.to_wall(view.forecast.min).as_secs_f64(),
        left_max_s: clock.to_wall(view.forecast.max).as_secs_f64(),
    }
}

fn class_status(rack: &Rack, class: ClassId) -> ClassStatus {
    let view = rack.class_view(class);
    let awake = rack.layout().classes[class.index()]
        .iter()
        .map(|group| (*group, rack.group_state(*group)))
        .find(|(_, state)| *state != GroupState::Asleep);
    ClassStatus {
        class: class.0,
        group: awake.map(|(group, _)| group.0),
        state: group_state(awake.map_or(GroupState::Asleep, |(_, state)| state)).into(),
        queued: view.queued.map(|queued| queued as u64),
    }
}

fn totals(rack: &Rack) -> Totals {
    let stats = rack.stats();
    let background = Lane::ALL.iter().position(|lane| *lane == Lane::Background).map_or(0, |i| stats.group_wakes[i]);
    let waiting = (0..rack.layout().groups.len()).map(|group| rack.doomed_bytes(GroupId(group as u32))).sum();
    Totals {
        group_wakes: stats.group_wakes,
        drive_starts: stats.drive_starts,
        read_bytes: stats.read_bytes,
        migrated_bytes: stats.migrated_bytes,
        wakes_per_gb_migrated: (stats.migrated_bytes > 0)
            .then(|| background as f64 / (stats.migrated_bytes as f64 / 1e9)),
        reclaimed_bytes: stats.reclaimed_bytes,
        waiting_reclaim_bytes: waiting,
        refused: stats.refused,
        data_lost: stats.data_lost,
        starts_over_budget: rack.starts_over_budget(),
        crowded_placements: rack.crowded_placements(),
        soft_overruns: rack.soft_overruns(),
        missed_deadlines: stats.missed_deadlines,
        ..Totals::default()
    }
}

fn capacity(rack: &Rack) -> CapacityStatus {
    let drives = rack.layout().groups.iter().flat_map(|group| &group.drives);
    CapacityStatus {
        total_bytes: drives.map(|drive| rack.spec().capacity_bytes(*drive)).sum(),
        free_bytes: rack.free_bytes(),
        full: rack.is_full(),
        unplaced_bytes: rack.unplaced_bytes(),
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
        refused_requests: seen.refused_requests,
        refused_connections: seen.refused_connections,
        evicted_connections: seen.evicted_connections,
        slow_clients: seen.slow_clients,
    }
}

fn drive_report(rack: &Rack, drive: DriveId, now: Time, reasons: &BTreeMap<DriveId, String>) -> DriveReport {
    let (starts_today, starts_per_day) = rack.starts_today(drive, now);
    DriveReport {
        drive: drive.0,
        slot: rack.spec().drive(drive).slot,
        group: rack.layout().group_of(drive).map(|group| group.0),
        state: if rack.has_failed(drive) { "failed" } else { drive_state(rack.drive_phase(drive)) }.into(),
        starts_today,
        starts_per_day,
        free_bytes: rack.drive_free_bytes(drive),
        capacity_bytes: rack.spec().capacity_bytes(drive),
        missed_deadlines: rack.missed_deadlines(drive),
        reason: reasons.get(&drive).filter(|_| !rack.has_failed(drive)).cloned(),
    }
}

/// The stacks that cannot be read: on failed drives, on those that are away, and those known to be `damaged`.
fn unusable(rack: &Rack, drives: &[DriveId], damaged: &[u8]) -> Vec<UnusableStack> {
    let why = |index: u8, drive: DriveId| match rack.drive_phase(drive) {
        _ if rack.has_failed(drive) => Some("failed"),
        DrivePhase::Away(_) => Some("away"),
        _ if damaged.contains(&index) => Some("damaged"),
        _ => None,
    };
    let stacks = (0..=u8::MAX).zip(drives);
    stacks
        .filter_map(|(stack, drive)| {
            why(stack, *drive).map(|why| UnusableStack { stack, drive: drive.0, why: why.into() })
        })
        .collect()
}

fn drive_state(phase: DrivePhase) -> &'static str {
    match phase {
        DrivePhase::Standby => "standby",
        DrivePhase::AwaitingPermit => "waiting for power",
        DrivePhase::SpinningUp => "spinning up",
        DrivePhase::Mounting => "mounting",
        DrivePhase::Ready => "ready",
        DrivePhase::Unmounting => "unmounting",
        DrivePhase::Stopping => "stopping",
        DrivePhase::Away(_) => "away",
    }
}

fn group_state(state: GroupState) -> &'static str {
    match state {
        GroupState::Asleep => "asleep",
        GroupState::Waking => "waking",
        GroupState::Busy => "busy",
        GroupState::Idle => "idle",
        GroupState::Resting => "resting",
    }
}

/// What damaged records of the catalog mean.
fn damaged_records(keys: &[String]) -> Option<String> {
    let (first, records) = (keys.first()?, keys.len());
    Some(format!(
        "damaged records of the catalog: {records}, the first at {first}: what they name is neither served nor moved; \
         `larder verify` names it all, and writing an object again mends it"
    ))
}

fn warnings(status: &Status) -> Vec<String> {
    let mut warnings = Vec::new();
    let workshop = &status.workshop;
    if status.capacity.full {
        warnings.push(
            "the rack is full: no group has room for what is staged, and PUTs are refused. Delete objects, whose room \
             comes back when their groups have woken, or add drives"
                .into(),
        );
    } else if let Some(bytes) = status.capacity.unplaced_bytes {
        warnings.push(format!(
            "{bytes} bytes in the workshop find no room in any group that may take them, while smaller packs do: \
             delete objects, or add drives"
        ));
    }
    let may_migrate = !status.capacity.full && status.capacity.unplaced_bytes.is_none();
    if workshop.staged_bytes * 10 > workshop.capacity_bytes * 9 && may_migrate {
        warnings.push("the workshop is nearly full: PUTs will be told to slow down until data has migrated".into());
    }
    if status.totals.data_lost > 0 {
        warnings.push("reads failed because data is lost: the log names the blobs".into());
    }
    if status.totals.starts_over_budget > 0 {
        let starts = status.totals.starts_over_budget;
        let starts = counted(starts, "drive start");
        warnings.push(format!("{starts} for clients went beyond the day's budget: drives wear faster than rated"));
    }
    if status.power.fuse_trips > 0 {
        warnings.push("fuses tripped: the rack's description allows more than the hardware does".into());
    }
    for rebuild in &status.rebuilds {
        warnings.extend(rebuild_warnings(rebuild));
    }
    match status.drives.away {
        0 => {}
        1 => warnings.push("1 drive is away: `larder drive list` shows which".to_owned()),
        away => warnings.push(format!("{away} drives are away: `larder drive list` shows which")),
    }
    if status.totals.overruns > 0 && status.totals.overrun_s > status.uptime_s / 10.0 {
        warnings.push("the disk behind the emulated drives is slower than the model: lower --time-scale".into());
    }
    warnings
}

/// The drives that missed deadlines, and how many.
fn late(rack: &Rack) -> Vec<(DriveId, u64)> {
    let all = rack.spec().drives.iter().map(|drive| (drive.id, rack.missed_deadlines(drive.id)));
    all.filter(|(_, missed)| *missed > 0).collect()
}

/// A warning for the drives that did not answer in time, the worst ones named.
fn late_drives(late: &[(DriveId, u64)]) -> Option<String> {
    const NAMED: usize = 5;
    let mut worst = late.to_vec();
    worst.sort_by_key(|(drive, missed)| (std::cmp::Reverse(*missed), *drive));
    let named: Vec<String> =
        worst.iter().take(NAMED).map(|(drive, missed)| format!("drive {} {missed} times", drive.0)).collect();
    let more = if late.len() > NAMED { format!(" and {} more", late.len() - NAMED) } else { String::new() };
    (!late.is_empty()).then(|| {
        format!(
            "drives did not answer in time: {}{more}. They are done without for a while each time; look at their \
             cables and their SMART values, and give up what is broken with `larder drive fail`",
            named.join(", ")
        )
    })
}

fn rebuild_warnings(rebuild: &RebuildReport) -> Option<String> {
    let RebuildReport { drive, lost_blobs, waiting_blobs, .. } = rebuild;
    if *lost_blobs > 0 {
        let (blobs, have) = (counted(*lost_blobs, "blob"), if *lost_blobs == 1 { "has" } else { "have" });
        return Some(format!(
            "{blobs} with a stack on drive {drive} {have} lost more than the code makes up for: data is lost, and GETs \
             of it fail; `larder verify` names the objects"
        ));
    }
    (*waiting_blobs > 0).then(|| {
        format!(
            "{} of drive {drive} cannot be rebuilt yet: too few drives of its group are there, or none of them has \
             room",
            counted(*waiting_blobs, "blob")
        )
    })
}

/// `1 blob`, `2 blobs`.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
