//! Booting a world: from durable state to an engine that knows everything it must.
//!
//! The engine's beliefs are restored from the catalog: used bytes from the blobs, starts of the day from the drives'
//! records, dead bytes from the tombstones. Blobs that were being written when the last server ended are abandoned,
//! unless the catalog may be older, and recalls are forgotten. The search for staged files that no object refers to
//! runs beside and after the boot (`sweep.rs`).
//!
//! Like the world itself this module takes its context as an argument and touches no thread, file or clock directly, so
//! the same steps follow a crash in virtual time.

use crate::catalog_age;
use crate::context::{Context, usage_of};
use crate::error::ServerError;
use crate::habits;
use crate::sweep;
use crate::world::{World, WorldHandle, checks, pool, quarantine, scrub};
use catalog::{Catalog, CatalogError, ClockAnchor, DriveHealth, Sequence};
use disk::label::RackUuid;
use disk::stack;
use disk::{Clock, DriveEventKind, Hardware, TokioClock};
use engine::layout::{Group, Layout};
use engine::{DriveReport, Event, HealthRecord, Loss, Rack, RackPolicy};
use model::{DriveId, GroupId, RackSpec, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Bytes on a drive besides its stacks.
const LABEL_BYTES: u64 = 4_096;
/// An upper bound on the index of a pack with one object.
const INDEX_BYTES: u64 = 16 << 10;
/// Records per read.
const PAGE: usize = 1024;
/// A day of modelled time.
const DAY: Duration = Duration::from_hours(24);
/// The most modelled time that passes while no server runs: longer than any wait. Without it, a wall clock that is ten
/// years ahead would bring a fast rack to the end of time.
const AWAY_MAX: Duration = Duration::from_hours(30 * 24);

/// Bits of a batch's number below the milliseconds of the wall clock: far more numbers than commits.
const SEQUENCE_BITS: u32 = 20;

/// Numbers of batches that follow from the wall clock: a catalog that was restored from a backup uses no number again.
pub(crate) fn numbers_from(wall_ms: u64) -> Sequence {
    Sequence(wall_ms << SEQUENCE_BITS)
}

/// The current modelled time, at which [`clock`] begins. Since the catalog's last anchor, written at each start and
/// stop, time has passed as on the wall clock, but at most 30 days. A server that was killed after a longer life has
/// passed that moment, so the result is never earlier than the latest moment in the catalog: otherwise the budgets of
/// the day would stay spent until that day came again.
///
/// # Errors
/// [`CatalogError`].
pub async fn modelled_now(catalog: &Catalog, wall_ms: u64, time_scale: u32) -> Result<Time, CatalogError> {
    let Some(anchor) = catalog.clock_anchor().await? else { return first_moment(catalog).await };
    let away = Duration::from_millis(wall_ms.saturating_sub(anchor.wall_ms));
    let anchored = Time::from_nanos(anchor.modelled_ns) + away.saturating_mul(time_scale).min(AWAY_MAX);
    Ok(anchored.max(last_moment(catalog).await?))
}

/// The latest modelled time in the catalog: of starts, scrubs, checks and readings of drives' health.
async fn last_moment(catalog: &Catalog) -> Result<Time, CatalogError> {
    let starts = catalog.drives().await?.into_iter().map(|record| Time::start_of_day(record.day));
    let health = catalog.drive_healths().await?.into_iter().map(|health| Time::from_nanos(health.read_ns));
    let scrubs = catalog.scrub_passes().await?.into_iter().map(|(_, pass)| {
        let last_ns = pass.last.map_or(0, |(ended_ns, _)| ended_ns);
        Time::from_nanos(pass.began_ns.max(last_ns)).max(Time::start_of_day(pass.own_wakes.0))
    });
    let checks =
        catalog.checks().await?.map(|record| Time::from_nanos(record.begun_ns.max(record.ended_ns.unwrap_or(0))));
    Ok(starts.chain(health).chain(scrubs).chain(checks).max().unwrap_or(Time::ZERO))
}

/// The clock of modelled time, which continues as if the rack had run since the last anchor. A wall clock that was set
/// back does not set it back. `wall_ms` is now, in milliseconds of the Unix epoch.
///
/// # Errors
/// [`CatalogError`].
pub async fn clock(catalog: &Catalog, wall_ms: u64, time_scale: u32) -> Result<Arc<dyn Clock>, CatalogError> {
    let origin = modelled_now(catalog, wall_ms, time_scale).await?;
    catalog.set_clock_anchor(ClockAnchor { wall_ms, modelled_ns: origin.as_nanos() }).await?;
    Ok(Arc::new(TokioClock::starting_at(origin, time_scale)))
}

/// The start of modelled time without an anchor: zero in a new catalog; if the anchor was lost, after every day for
/// which drives have counted starts, so that time does not go back.
async fn first_moment(catalog: &Catalog) -> Result<Time, CatalogError> {
    let last = catalog.drives().await?.into_iter().map(|record| record.day).max();
    Ok(last.map_or(Time::ZERO, |day| Time::ZERO + DAY * (day + 1)))
}

/// Starts the world of the rack `spec` over `hardware`, whose drives are those of `context`. `seed` is for the engine's
/// choices.
///
/// # Errors
/// [`ServerError`]. Then nothing runs.
pub async fn boot(
    spec: RackSpec,
    policy: RackPolicy,
    seed: u64,
    context: &Context,
    hardware: Arc<dyn Hardware>,
) -> Result<WorldHandle, ServerError> {
    let layout = engine::layout::synthesise(&spec)?;
    if let Err(violations) = engine::check::layout(&spec, &layout) {
        return Err(ServerError::Refused(format!("the layout breaks the rack's own rules: {violations:?}")));
    }
    claim(&context.catalog, context.rack_uuid).await?;
    refuse_a_new_catalog(context).await?;
    let Context { catalog_age, catalog, staging, nonce, .. } = context;
    let runs = catalog_age::begin_run(catalog_age, catalog, staging, nonce()).await?;
    if catalog_age.is_accepted() {
        catalog.keep_unknown().await?;
    }
    let known = sweep::count(context, runs).await?;
    context.spool.wipe().await?;
    context.counters.reads.begin_run(catalog, (context.wall)()).await?;
    let rack = Rack::new(spec, layout, policy, seed);
    let mut facts = restate(context, &rack).await?;
    if context.catalog_age.may_remove() {
        assume_used(&*hardware, &facts);
    }
    // Asked, not assumed: a crash, or the machine's own start, may have left drives spinning.
    for drive in hardware.spinning().await {
        tracing::info!(%drive, "a drive may be spinning; it counts against the budgets, and is stopped");
        facts.push(Event::DriveSpins { drive });
    }
    facts.push(Event::Booted);
    let (world, handle) = World::new(rack, context.clone());
    let world = world.with_hardware(Arc::clone(&hardware));
    hardware.watch_queues(Box::new(world.queue_fill()));
    for fact in facts {
        handle.report(fact);
    }
    (context.spawn)(Box::pin(world.run()));
    (context.spawn)(Box::pin(sweep::sweep(context.clone(), handle.clone(), known)));
    (context.spawn)(Box::pin(habits::remember(context.clone(), Arc::clone(&hardware))));
    (context.spawn)(Box::pin(pass_on_news(context.clone(), hardware, handle.clone())));
    let means_of_recheck = context.clone();
    (context.spawn)(Box::pin(async move { quarantine::recheck(&means_of_recheck).await }));
    Ok(handle)
}

/// A new catalog becomes this rack's.
async fn claim(catalog: &Catalog, uuid: RackUuid) -> Result<(), ServerError> {
    if catalog.rack_uuid().await?.is_none() {
        catalog.set_rack_uuid(uuid.0).await?;
    }
    refuse_another_racks(catalog, uuid).await
}

/// Refuses the catalog of another rack, before anything is committed to it: that would be logged.
pub(crate) async fn refuse_another_racks(catalog: &Catalog, uuid: RackUuid) -> Result<(), ServerError> {
    match catalog.rack_uuid().await? {
        Some(found) if found != uuid.0 => Err(ServerError::Refused(format!(
            "the catalog belongs to rack {}, and everything else to rack {uuid}; put the right catalog back",
            RackUuid(found),
        ))),
        _ => Ok(()),
    }
}

/// Refuses a catalog that has never issued a slot if the workshop holds something: it was just created in place of a
/// lost one.
async fn refuse_a_new_catalog(context: &Context) -> Result<(), ServerError> {
    if context.catalog_age.is_accepted() || context.catalog.slots_end().await? > 1 || context.staging.is_empty().await?
    {
        return Ok(());
    }
    Err(ServerError::Refused(
        "the workshop holds staged files, but the catalog is new; put the newest catalog back, or, if it is lost, set \
         accept_older_catalog = true in larder.toml"
            .into(),
    ))
}

/// The largest object that some group of `rack` could hold in a separate pack if the group were empty, in bytes.
pub(crate) fn object_bytes_max(rack: &Rack) -> u64 {
    let spec = rack.spec();
    let stack_of = |group: &Group| {
        let mut capacities: Vec<u64> = group.drives.iter().map(|drive| spec.capacity_bytes(*drive)).collect();
        capacities.sort_unstable_by(|a, b| b.cmp(a));
        capacities.get(spec.code.stacks() - 1).copied().unwrap_or(0)
    };
    let stack_bytes_max = rack.layout().groups.iter().map(stack_of).max().unwrap_or(0);
    // Stacks grow with their payload, so a binary search finds the longest payload that fits.
    let (mut fits, mut beyond) = (0, stack_bytes_max.saturating_mul(u64::from(spec.code.data)) + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        let stack_bytes = stack::stack_bytes(spec.code, middle).saturating_add(LABEL_BYTES);
        *(if stack_bytes <= stack_bytes_max { &mut fits } else { &mut beyond }) = middle;
    }
    fits.saturating_sub(INDEX_BYTES)
}

/// Gives up the blobs that were being written when the last server ended, except for those that a newer catalog may
/// know to be complete.
async fn end_intents(catalog: &Catalog) -> Result<(), CatalogError> {
    let kept = catalog.kept_intents().await?;
    for intent in catalog.pending_intents().await? {
        let blob = intent.blob;
        if kept.as_ref().is_none_or(|kept| kept.contains(&blob)) {
            tracing::warn!(
                %blob,
                "this catalog records that a blob was begun, and a newer catalog may record that it is complete; its \
                 stacks stay, and `larder recover --replace` checks them"
            );
            continue;
        }
        tracing::warn!(%blob, "a blob was being written when the last server ended; its stacks are discarded");
        catalog.abort_blob(blob).await?;
    }
    Ok(())
}

/// Everything that the engine must know before work begins, except which drives spin.
async fn restate(context: &Context, rack: &Rack) -> Result<Vec<Event>, ServerError> {
    end_intents(&context.catalog).await?;
    let used = used_bytes(context, rack.layout()).await?;
    let lost = context.catalog.lost_on_replaced().await?;
    let initialised = context.catalog.initialised_drives().await?;
    let starts: BTreeMap<_, _> =
        context.catalog.drives().await?.into_iter().map(|record| (record.drive, record)).collect();
    let mut facts = Vec::new();
    for drive in &rack.spec().drives {
        let record = starts.get(&drive.id);
        let lost_bytes = lost.get(&drive.id).copied().unwrap_or(0);
        facts.push(Event::DriveReported(DriveReport {
            drive: drive.id,
            capacity_bytes: rack.spec().capacity_bytes(drive.id),
            used_bytes: used.get(&drive.id).copied().unwrap_or(0).saturating_sub(lost_bytes),
            day: record.map_or(0, |record| record.day),
            starts: record.map_or(0, |record| record.starts),
            // Its presence and identity show when its group first wakes: at once if it never has.
            present: true,
            initialised: initialised.contains(&drive.id),
        }));
    }
    facts.extend(reported_health(&context.catalog).await?);
    facts.extend(pool::reported(&context.catalog, rack.spec().pool.len()).await?);
    let retiring = context.catalog.retiring_drives().await?;
    facts.extend(retiring.iter().map(|drive| Event::DriveRetiring { drive: *drive }));
    for (drive, _) in context.catalog.failed_drives().await? {
        if retiring.contains(&drive) {
            tracing::info!(%drive, "a drive is retired and out of service; its remaining data is rebuilt");
        } else {
            tracing::warn!(%drive, "a drive failed permanently; its remaining data is rebuilt");
        }
        facts.push(Event::DriveFailed { drive, pulled: true });
    }
    for drive in context.catalog.given_up_drives().await? {
        facts.push(Event::DriveMayReturn { drive });
    }
    let returned = context.catalog.returned_drives().await?;
    for (drive, lost_bytes) in lost {
        facts.push(if returned.contains_key(&drive) {
            tracing::warn!(%drive, "a failed drive is back; it is searched for stacks that are still needed");
            Event::DriveReturned { drive, lost_bytes }
        } else {
            tracing::warn!(%drive, "a drive was replaced, or a recovery missed its stacks; they are rebuilt");
            Event::DriveReplaced { drive, lost_bytes }
        });
    }
    for (group, bytes) in context.catalog.dead_totals().await? {
        facts.push(Event::SpaceDead { group, bytes });
    }
    for (group, pass) in context.catalog.scrub_passes().await? {
        facts.push(Event::ScrubReported { group, pass: crate::scrub::restored(&pass) });
    }
    facts.extend(scrub::unread(context).await?);
    if context.catalog.is_scrub_paused().await? {
        facts.push(Event::ScrubPaused { paused: true });
    }
    context
        .counters
        .open_parts
        .recount(async { Ok::<_, CatalogError>(context.catalog.upload_usage().await?.bytes) })
        .await?;
    facts.push(Event::StagingChanged(usage_of(context)));
    facts.extend(checks::progress(context).await?.map(Event::ChecksReported));
    Ok(facts)
}

/// The bad sectors that drives have reported.
async fn reported_health(catalog: &Catalog) -> Result<Vec<Event>, CatalogError> {
    let known = catalog.drive_healths().await?;
    let record = |health: DriveHealth| {
        Some(Event::DriveHealthReported(HealthRecord {
            drive: DriveId(health.drive),
            first_bad_sectors: health.first_bad_sectors,
            bad_sectors: health.said.bad_sectors()?,
            asked: Time::from_nanos(health.read_ns),
        }))
    };
    Ok(known.into_iter().filter_map(record).collect())
}

/// Gives emulated drives their used bytes from the catalog, so they need not ask every stack for its length: the
/// catalog knows all stacks, unless it is older than the rack.
fn assume_used(hardware: &dyn Hardware, facts: &[Event]) {
    for fact in facts {
        if let Event::DriveReported(DriveReport { drive, used_bytes, .. }) = fact {
            hardware.assume_used(*drive, used_bytes + LABEL_BYTES);
        }
    }
}

/// Bytes of each drive that the blobs of the catalog take. A blob must be within its group as laid out now.
async fn used_bytes(context: &Context, layout: &Layout) -> Result<BTreeMap<DriveId, u64>, ServerError> {
    let mut used = BTreeMap::new();
    let mut after = None;
    loop {
        let page = context.catalog.blobs_page(after.as_ref(), PAGE).await?;
        for blob in &page.items {
            let group: Option<GroupId> = blob.drives.first().and_then(|drive| layout.group_of(*drive));
            if group != Some(blob.group) || blob.drives.iter().any(|drive| layout.group_of(*drive) != group) {
                return Err(ServerError::Refused(format!(
                    "{} is stored in group {}, which the rack as described does not have; restore the rack.toml that \
                     it was written with",
                    blob.blob, blob.group
                )));
            }
            for drive in &blob.drives {
                *used.entry(*drive).or_default() += blob.stack_bytes;
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(used);
        }
    }
}

/// Reports drives to the engine that go and come without its request.
async fn pass_on_news(context: Context, hardware: Arc<dyn Hardware>, world: WorldHandle) {
    loop {
        let news = hardware.news().await;
        let drive = news.drive;
        let spins = news.news == DriveEventKind::Spins;
        world.report(match news.news {
            DriveEventKind::FuseTripped { domain } => {
                tracing::error!(%drive, domain, "a fuse tripped");
                Event::DriveLost { drive, loss: Loss::FuseTripped }
            }
            DriveEventKind::Pulled => Event::DriveLost { drive, loss: Loss::Died },
            DriveEventKind::Back => Event::DriveBack { drive },
            DriveEventKind::Spins => Event::DriveSpins { drive },
        });
        if spins {
            habits::note_wake(&context, &*hardware, drive).await;
        }
    }
}
