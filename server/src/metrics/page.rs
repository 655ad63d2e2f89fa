//! The text of `/metrics`, from a [`Status`] and the reports of all drives: figures for an operator's charts and
//! alerts.
//!
//! Names follow OpenMetrics 1.0: `larder_`, then the counted thing, its unit last (`_bytes`, `_seconds`, `_watts`), and
//! `_total` for counts that only grow until the server starts again. Durations are wall seconds unless the name says
//! `modelled`. The text grows with drives, classes and groups of the rack, never with objects.

use crate::condition::Condition;
use crate::report::{ClassStatus, DriveReport, HistogramReport, IntakeStatus, RebuildReport, Status};
use model::Smart;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use s3::latency::BOUNDS_MS;
use std::fmt;
use std::iter;

/// The text for `status` and `drives`.
pub(super) fn text(status: Status, drives: Vec<DriveReport>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("larder");
    registry.register_collector(Box::new(Figures { status, drives }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The figures of a scrape.
#[derive(Debug)]
struct Figures {
    status: Status,
    drives: Vec<DriveReport>,
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (page, status) = (&mut Page(encoder), &self.status);
        server(page, status)?;
        power(page, status)?;
        drives(page, &self.drives)?;
        classes(page, &status.classes)?;
        spin_downs(page, status)?;
        workshop(page, status)?;
        read_ahead(page, status)?;
        checks(page, status)?;
        status.intake.iter().try_for_each(|intake| intake_figures(page, intake))?;
        journal(page, status)?;
        front(page, status)?;
        tls(page, status)?;
        rebuilds(page, &status.rebuilds)?;
        exposure(page, status)?;
        scrub(page, status)?;
        payload(page, status)?;
        trouble(page, status)
    }
}

/// Labels of one line: names and values.
type Labels = Vec<(&'static str, String)>;

/// The text as it is written, family by family.
struct Page<'a>(DescriptorEncoder<'a>);

/// The unit of a family, which ends its name.
#[derive(Clone, Copy)]
enum UnitOf {
    Bytes,
    Seconds,
    Watts,
    Ratio,
}

impl UnitOf {
    /// Its name in OpenMetrics.
    fn name(self) -> Unit {
        match self {
            Self::Bytes => Unit::Bytes,
            Self::Seconds => Unit::Seconds,
            Self::Watts => Unit::Other("watts".to_owned()),
            Self::Ratio => Unit::Other("ratio".to_owned()),
        }
    }
}

const BYTES: Option<UnitOf> = Some(UnitOf::Bytes);
const SECONDS: Option<UnitOf> = Some(UnitOf::Seconds);
const WATTS: Option<UnitOf> = Some(UnitOf::Watts);
const RATIO: Option<UnitOf> = Some(UnitOf::Ratio);

impl Page<'_> {
    /// A value that goes up and down.
    fn gauge(&mut self, name: &str, unit: Option<UnitOf>, help: &str, value: f64) -> fmt::Result {
        let unit = unit.map(UnitOf::name);
        let metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    /// The same, if the value is known.
    fn known(&mut self, name: &str, unit: Option<UnitOf>, help: &str, value: Option<f64>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(name, unit, help, value))
    }

    /// A count since the server started.
    fn counter(&mut self, name: &str, unit: Option<UnitOf>, help: &str, value: u64) -> fmt::Result {
        let unit = unit.map(UnitOf::name);
        let metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    /// A histogram of durations, in seconds.
    fn histogram(&mut self, name: &str, help: &str, spans: &HistogramReport) -> fmt::Result {
        let unit = UnitOf::Seconds.name();
        let mut metric = self.0.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
        let bounds = BOUNDS_MS.iter().map(|bound| *bound as f64 / 1000.0).chain([f64::INFINITY]);
        let counts = spans.counts.iter().copied().chain(iter::repeat(0));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        metric.encode_histogram::<NoLabelSet>(spans.sum_s, spans.counts.iter().sum(), &buckets, None)
    }

    /// A gauge with several lines.
    fn gauges(
        &mut self,
        name: &str,
        unit: Option<UnitOf>,
        help: &str,
        lines: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let unit = unit.map(UnitOf::name);
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        lines.into_iter().try_for_each(|(labels, value)| ConstGauge::new(value).encode(metric.encode_family(&labels)?))
    }

    /// A counter with several lines.
    fn counters(
        &mut self,
        name: &str,
        unit: Option<UnitOf>,
        help: &str,
        lines: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let unit = unit.map(UnitOf::name);
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        lines
            .into_iter()
            .try_for_each(|(labels, value)| ConstCounter::new(value).encode(metric.encode_family(&labels)?))
    }
}

fn one(name: &'static str, value: impl fmt::Display + Copy) -> Labels {
    vec![(name, value.to_string())]
}

fn two(first: (&'static str, impl fmt::Display + Copy), second: (&'static str, impl fmt::Display + Copy)) -> Labels {
    vec![(first.0, first.1.to_string()), (second.0, second.1.to_string())]
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// A share in thousandths as a ratio.
fn ratio(permille: u64) -> f64 {
    permille as f64 / 1000.0
}

fn server(page: &mut Page, status: &Status) -> fmt::Result {
    let version = env!("CARGO_PKG_VERSION");
    let info = two(("version", version), ("rack", &status.rack));
    let mut metric = page.0.encode_descriptor("build", "Version of Larder, and its rack.", None, MetricType::Info)?;
    metric.encode_info(&info)?;
    page.gauge("uptime", SECONDS, "Time since the server started.", status.uptime_s)?;
    page.gauge("modelled_time", SECONDS, "Modelled time since the rack was created.", status.modelled_s)?;
    page.gauge("time_scale", None, "Modelled seconds per second; 1 for real drives.", f64::from(status.time_scale))?;
    let help = "Warnings for the operator, by condition; `larder status` shows them as sentences.";
    let of = |condition: &Condition| status.conditions.iter().filter(|found| *found == condition).count() as f64;
    let label = |condition: &Condition| two(("condition", condition.name()), ("risk", condition.risk().name()));
    page.gauges("warnings", None, help, Condition::ALL.iter().map(|condition| (label(condition), of(condition))))
}

fn power(page: &mut Page, status: &Status) -> fmt::Result {
    let power = &status.power;
    page.gauge("power", WATTS, "Power of all drives, by the ledger.", power.watts)?;
    page.gauge("power_standby", WATTS, "Power with every drive that can sleep in standby.", power.standby_watts)?;
    page.gauge("active_drives", None, "Drives spinning or spinning up.", power.active_drives as f64)?;
    page.gauge("active_drives_max", None, "The most drives that may spin or spin up.", power.active_drives_max as f64)?;
    page.counter("fuse_trips", None, "Fuses that tripped. Should stay 0.", power.fuse_trips)?;
    let help = "Drives that did not stop, or whose state is unknown: they count as spinning.";
    page.gauge("drives_unstopped", None, help, power.unstopped_drives as f64)?;
    let help = "Sleeping drives that another program woke.";
    page.counter("drives_woken_by_others", None, help, status.totals.woken_by_others)?;
    let help = "Sleeping drives that woke without a command.";
    page.counter("drives_woke_themselves", None, help, status.totals.woke_themselves)?;
    let drives = &status.drives;
    let states = [
        ("standby", drives.standby),
        ("always_on", drives.always_on),
        ("moving", drives.moving),
        ("ready", drives.ready),
        ("away", drives.away),
        ("failed", drives.failed),
        ("retired", drives.retired),
    ];
    let lines = states.map(|(state, drives)| (one("state", state), drives as f64));
    page.gauges("drives", None, "Drives by state, which the server knows without querying them.", lines)?;
    page.gauge("groups", None, "Groups of the rack.", status.groups.total as f64)?;
    let help = "Groups that are initialised: woken once, with their labels checked.";
    page.gauge("groups_initialised", None, help, status.groups.initialised as f64)
}

fn drives(page: &mut Page, drives: &[DriveReport]) -> fmt::Result {
    let of = |value: fn(&DriveReport) -> f64| drives.iter().map(move |drive| (one("drive", drive.drive), value(drive)));
    let help = "1, with the state of the drive, which the server knows without querying it.";
    let states = drives.iter().map(|drive| (two(("drive", drive.drive), ("state", &drive.state)), 1.0));
    page.gauges("drive_state", None, help, states)?;
    let help = "Starts of the drive on this modelled day.";
    page.gauges("drive_starts_today", None, help, of(|drive| f64::from(drive.starts_today)))?;
    let help = "Starts per day that the drive may use for background work: its rating, or the operator's setting.";
    page.gauges("drive_starts_per_day", None, help, of(|drive| f64::from(drive.starts_per_day)))?;
    page.gauges("drive_free", BYTES, "Free room on the drive.", of(|drive| drive.free_bytes as f64))?;
    page.gauges("drive_capacity", BYTES, "Capacity of the drive.", of(|drive| drive.capacity_bytes as f64))?;
    let missed = drives.iter().map(|drive| (one("drive", drive.drive), drive.missed_deadlines));
    page.counters("drive_missed_deadlines", None, "Times that the drive did not answer in time.", missed)?;
    let help = "Starts of the drive in its life: as reported by the drive, or else as counted by Larder.";
    page.gauges("drive_lifetime_starts", None, help, of(|drive| lifetime_starts(drive) as f64))?;
    let help = "Starts that the drive is rated for: as reported by the drive, or else by the rack's description.";
    page.gauges("drive_rated_starts", None, help, of(|drive| drive.rated_starts as f64))?;
    health(page, drives)
}

/// The lifetime starts of a drive: its own count, or Larder's if that is higher.
fn lifetime_starts(drive: &DriveReport) -> u64 {
    drive.health.as_ref().and_then(|health| health.said.starts).unwrap_or(0).max(drive.starts_total)
}

/// The health that drives reported when they were awake; a line only for drives that reported it.
fn health(page: &mut Page, drives: &[DriveReport]) -> fmt::Result {
    let asked = |drive: &DriveReport| Some((one("drive", drive.drive), drive.health.as_ref()?.read_ms as f64 / 1000.0));
    let known = |value: fn(&Smart) -> Option<f64>| {
        let line = move |drive: &DriveReport| Some((one("drive", drive.drive), value(&drive.health.as_ref()?.said)?));
        drives.iter().filter_map(line)
    };
    let help = "Time when the drive was last queried for its health.";
    let read = drives.iter().filter_map(asked);
    page.gauges("drive_health_read_timestamp", SECONDS, help, read)?;
    let help = "Bad sectors that were reallocated.";
    page.gauges("drive_reallocated_sectors", None, help, known(|said| said.reallocated_sectors.map(|n| n as f64)))?;
    let help = "Unreadable sectors that wait to be reallocated.";
    page.gauges("drive_pending_sectors", None, help, known(|said| said.pending_sectors.map(|n| n as f64)))?;
    let help = "Reads that failed permanently, as counted by the drive.";
    page.gauges("drive_uncorrectable_errors", None, help, known(|said| said.uncorrectable.map(|n| n as f64)))?;
    let help = "Errors on the drive's cable, as counted by the drive.";
    page.gauges("drive_link_errors", None, help, known(|said| said.link_errors.map(|n| n as f64)))?;
    page.gauges("drive_power_on_hours", None, "Hours with power.", known(|said| said.power_on_h.map(|n| n as f64)))?;
    let help = "Temperature when the drive was queried, in degrees Celsius.";
    page.gauges("drive_temperature_celsius", None, help, known(|said| said.temperature_c.map(f64::from)))?;
    let help = "1 if the drive expects to fail.";
    page.gauges("drive_predicts_failure", None, help, known(|said| said.predicts_failure.map(flag)))
}

/// The causes of wakes and the queues of a class, in the engine's order.
const PRIORITIES: [&str; 3] = ["client", "rebuild", "background"];

fn classes(page: &mut Page, classes: &[ClassStatus]) -> fmt::Result {
    let queued = classes.iter().flat_map(|class| {
        let lines = PRIORITIES.into_iter().zip(class.queued);
        lines.map(|(queue, queued)| (two(("class", class.class), ("queue", queue)), queued as f64))
    });
    page.gauges("queued_operations", None, "Operations that wait in the queues of a class.", queued)?;
    let states = classes.iter().map(|class| {
        let mut labels = two(("class", class.class), ("state", &class.state));
        labels.extend(class.group.map(|group| ("group", group.to_string())));
        (labels, 1.0)
    });
    page.gauges("class_state", None, "1, with the group of the class that is not asleep, and its state.", states)?;
    let kept = classes.iter().map(|class| (one("class", class.class), flag(class.kept_spinning)));
    let help = "1 if the class's group keeps spinning, since a drive of it has no starts left today.";
    page.gauges("class_kept_spinning", None, help, kept)
}

fn spin_downs(page: &mut Page, status: &Status) -> fmt::Result {
    let totals = &status.totals;
    let wakes = PRIORITIES.into_iter().zip(totals.group_wakes).map(|(cause, wakes)| (one("cause", cause), wakes));
    page.counters("group_wakes", None, "Wakes of groups, by cause.", wakes)?;
    let help = "Wakes only to initialise a group; included in those of background work.";
    page.counter("initialisation_wakes", None, help, totals.initialisation_wakes)?;
    page.counter("drive_starts", None, "Starts of drives.", totals.drive_starts)?;
    let help = "Starts for clients and rebuilds beyond the day's budget: drives wear faster than rated.";
    page.counter("drive_starts_over_budget", None, help, totals.starts_over_budget)?;
    page.counter("soft_overruns", None, "Starts of drives beyond a soft limit.", totals.soft_overruns)?;
    let switch = &status.switch;
    let wakes = [("idle", switch.wake_s), ("busy", switch.wake_busy_s)].map(|(load, wake)| (one("load", load), wake));
    page.gauges("group_wake_expected", SECONDS, "Recent time from standby to ready.", wakes)?;
    page.gauge("group_rest_expected", SECONDS, "Recent time from ready to standby.", switch.rest_s)
}

fn workshop(page: &mut Page, status: &Status) -> fmt::Result {
    let workshop = &status.workshop;
    page.gauge("workshop_staged", BYTES, "Bytes staged in the workshop.", workshop.staged_bytes as f64)?;
    page.gauge("workshop_capacity", BYTES, "Room for staged objects.", workshop.capacity_bytes as f64)?;
    page.gauge("workshop_staged_objects", None, "Versions staged.", workshop.staged_count as f64)?;
    page.gauge("workshop_uploads", None, "Uploads in parts that are open.", workshop.uploads as f64)?;
    page.gauge("workshop_upload_parts", BYTES, "Bytes of their parts.", workshop.upload_bytes as f64)?;
    page.gauge("spool_used", BYTES, "Bytes of recalls in the spool.", workshop.spool_bytes as f64)?;
    page.gauge("spool_capacity", BYTES, "Room for recalls.", workshop.spool_capacity_bytes as f64)?;
    page.gauge("migrations", None, "Migration writes under way.", workshop.migrations_under_way as f64)?;
    let help = "Hot objects that moved because the workshop was above its critical share.";
    page.counter("hot_moved", BYTES, help, workshop.hot_moved_bytes)
}

fn read_ahead(page: &mut Page, status: &Status) -> fmt::Result {
    let ahead = &status.read_ahead;
    page.counter("read_ahead_objects", None, "Objects read ahead.", ahead.objects)?;
    page.counter("read_ahead_hits", None, "GETs that found their object read ahead.", ahead.hits)?;
    page.counter("read_ahead", BYTES, "Bytes read ahead.", ahead.read_bytes)?;
    page.counter("read_ahead_used", BYTES, "Read-ahead bytes that clients read.", ahead.used_bytes)?;
    page.counter("read_ahead_wasted", BYTES, "Read-ahead bytes evicted unread.", ahead.wasted_bytes)?;
    page.gauge(
        "read_ahead_waiting",
        BYTES,
        "Spool room of read-ahead objects that no client has read yet.",
        ahead.waiting_bytes as f64,
    )
}

fn checks(page: &mut Page, status: &Status) -> fmt::Result {
    let checks = &status.checks;
    page.gauge("checks_overdue", None, "1 if checks of the workshop are overdue.", flag(checks.state == "overdue"))?;
    page.gauge(
        "checks_load",
        RATIO,
        "Share of the time in which a client used the workshop.",
        ratio(checks.load_permille.into()),
    )?;
    page.gauge("checks_left", BYTES, "Bytes that the present pass has not read yet.", checks.left_bytes as f64)?;
    let help = "Time since the last complete pass of checks ended.";
    page.known("checks_age", SECONDS, help, checks.completed_s_ago)?;
    page.counter("checks_passes", None, "Complete passes of checks.", checks.passes)?;
    page.counter("checked_objects", None, "Staged objects checked.", checks.objects)?;
    page.counter("checked", BYTES, "Bytes of the checked objects.", checks.bytes)?;
    page.counter("checked_damaged_objects", None, "Staged objects found damaged.", checks.damaged)
}

fn intake_figures(page: &mut Page, intake: &IntakeStatus) -> fmt::Result {
    let of = |drive: &str, value: u64| (one("place", drive), value as f64);
    page.gauge("intake_copies", None, "Copies of each small object.", intake.copies as f64)?;
    page.gauge("intake_backlog_logs", None, "Logs that are not shelves yet.", intake.backlog as f64)?;
    page.gauge("intake_retained_logs", None, "Logs kept although their shelves are written.", intake.retained as f64)?;
    page.gauge("intake_queued", BYTES, "Bytes that wait to be written.", intake.queued_bytes as f64)?;
    page.counter("intake_accepted_changes", None, "Changes acknowledged.", intake.accepted)?;
    page.counter("intake_accepted", BYTES, "Bytes of the acknowledged changes.", intake.accepted_bytes)?;
    let help = "Bytes written to all drives of the pool for each acknowledged byte.";
    page.gauge("intake_write_amplification", RATIO, help, intake.write_amplification)?;
    page.gauge("intake_lost_objects", None, "Versions and files whose only copy was lost.", intake.losses as f64)?;
    page.gauge("intake_incomplete", None, "1 if a drive, or data of a drive, is missing.", flag(intake.incomplete))?;
    let states = intake.drives.iter().map(|drive| (two(("place", &drive.place), ("state", &drive.state)), 1.0));
    page.gauges("intake_drive_state", None, "1, with the state of a drive of the pool.", states)?;
    let powers = intake.drives.iter().filter_map(|drive| Some((drive, drive.power.as_deref()?)));
    let named = powers.clone().map(|(drive, power)| (two(("place", &drive.place), ("power", power)), 1.0));
    let help = "1, with the power of a drive of the pool whose power is controlled.";
    page.gauges("intake_drive_power", None, help, named)?;
    let starts = powers.map(|(drive, _)| (one("place", &drive.place), drive.starts));
    page.counters("intake_drive_starts", None, "Starts of a drive of the pool whose power is controlled.", starts)?;
    let shelves = intake.drives.iter().map(|drive| of(&drive.place, drive.shelf_bytes));
    page.gauges("intake_shelves", BYTES, "Bytes of the shelves on a drive of the pool.", shelves)?;
    let written = intake.drives.iter().map(|drive| (one("place", &drive.place), drive.written_bytes));
    page.counters("intake_written", BYTES, "Bytes written to a drive of the pool.", written)
}

fn journal(page: &mut Page, status: &Status) -> fmt::Result {
    let leads_on = status.journal.is_some_and(|journal| journal.leads_on);
    let help = "1 if the present catalog could be rebuilt from its journal.";
    page.gauge("journal_leads_on", None, help, flag(leads_on))?;
    let Some(journal) = &status.journal else { return Ok(()) };
    page.gauge("journal_snapshot", BYTES, "Size of the last snapshot.", journal.snapshot_bytes as f64)?;
    page.gauge(
        "journal_batches",
        BYTES,
        "Size of the changes committed since that snapshot.",
        journal.batch_bytes as f64,
    )
}

fn front(page: &mut Page, status: &Status) -> fmt::Result {
    let front = &status.front;
    page.gauge("s3_connections", None, "Connections of S3.", front.connections as f64)?;
    page.gauge(
        "s3_idle_connections",
        None,
        "Connections of S3 without an open request.",
        front.idle_connections as f64,
    )?;
    page.gauge("s3_connections_max", None, "Limit of connections of S3.", front.connection_limit as f64)?;
    page.gauge("s3_requests", None, "Open requests of S3.", front.requests as f64)?;
    page.gauge(
        "s3_unsigned_requests",
        None,
        "Open requests of S3 without a signature.",
        front.unsigned_requests as f64,
    )?;
    page.gauge("s3_requests_max", None, "Limit of open requests of S3.", front.request_limit as f64)?;
    let help = "Requests that wait for cold objects, not counted as open.";
    page.gauge("s3_waiting_requests", None, help, front.waiting_requests as f64)?;
    page.gauge(
        "s3_waiting_requests_max",
        None,
        "Limit of requests that wait for cold objects.",
        front.waiting_limit as f64,
    )?;
    let help = "Requests answered SlowDown because there were too many.";
    page.counter("s3_refused_requests", None, help, front.refused_requests)?;
    let help = "Connections closed at once because their address had too many.";
    page.counter("s3_refused_connections", None, help, front.refused_connections)?;
    let help = "Idle connections that made room for others.";
    page.counter("s3_evicted_connections", None, help, front.evicted_connections)?;
    page.counter("s3_slow_clients", None, "Clients cut off because they sent or read too slowly.", front.slow_clients)?;
    let help = "Time until the response head of served requests was ready.";
    page.histogram("s3_first_byte", help, &front.first_byte)?;
    page.histogram("s3_request", "Time until the response of served requests was sent.", &front.request)
}

fn tls(page: &mut Page, status: &Status) -> fmt::Result {
    let Some(tls) = &status.tls else { return Ok(()) };
    page.gauge(
        "tls_certificate_loaded_timestamp",
        SECONDS,
        "Time when the certificate was read.",
        tls.loaded_ms as f64 / 1000.0,
    )?;
    page.counter("tls_certificate_reloads", None, "Certificates that replaced another.", tls.reloads)?;
    let help = "1 if the present files cannot be used, so an older certificate is in use.";
    page.gauge("tls_certificate_stale", None, help, flag(tls.problem.is_some()))
}

fn rebuilds(page: &mut Page, rebuilds: &[RebuildReport]) -> fmt::Result {
    let of = |value: fn(&RebuildReport) -> f64| {
        rebuilds.iter().map(move |rebuild| (one("drive", rebuild.drive), value(rebuild)))
    };
    let help = "Bytes of a failed or retiring drive that are still to be rebuilt.";
    page.gauges("rebuild_left", BYTES, help, of(|rebuild| rebuild.left_bytes as f64))?;
    page.gauges(
        "rebuild_left_expected_max",
        SECONDS,
        "Longest expected time of the rebuild.",
        of(|rebuild| rebuild.left_max_s),
    )?;
    let help = "Blobs of the drive that wait for drives that are away, or for room.";
    page.gauges("rebuild_waiting_blobs", None, help, of(|rebuild| rebuild.waiting_blobs as f64))?;
    let rebuilt = rebuilds.iter().map(|rebuild| (one("drive", rebuild.drive), rebuild.rebuilt_bytes));
    page.counters("rebuild_rebuilt", BYTES, "Rebuilt bytes of the drive.", rebuilt)
}

fn exposure(page: &mut Page, status: &Status) -> fmt::Result {
    let exposed = (1u64..).zip(&status.exposed.blobs).map(|(lost, blobs)| (one("lost_stacks", lost), *blobs as f64));
    page.gauges("exposed_blobs", None, "Blobs by the number of stacks that they lost with failed drives.", exposed)?;
    let help = "Blobs that lost more stacks than the code can replace: data is lost.";
    page.gauge("lost_blobs", None, help, status.exposed.lost_blobs as f64)
}

fn scrub(page: &mut Page, status: &Status) -> fmt::Result {
    let scrub = &status.scrub;
    let help = "Modelled time in which every blob is scrubbed once.";
    page.known("scrub_modelled_period", SECONDS, help, scrub.period_s)?;
    page.gauge("scrub_paused", None, "1 if the operator has paused scrubs.", flag(scrub.paused))?;
    let help = "Groups whose pass of this period is complete.";
    page.gauge("scrub_complete_groups", None, help, scrub.complete_groups as f64)?;
    let help = "Groups whose period ended before their pass did.";
    page.gauge("scrub_overdue_groups", None, help, scrub.overdue_groups as f64)?;
    page.counter("scrub_wakes", None, "Wakes of groups for scrubs alone.", scrub.own_wakes)?;
    page.counter("scrub_read", BYTES, "Payload bytes scrubbed.", scrub.read_bytes)?;
    let covered = scrub.groups.iter().map(|group| (one("group", group.group), ratio(group.covered_permille)));
    page.gauges("scrub_covered", RATIO, "Share of the group that its pass has read.", covered)?;
    page.gauge("scrub_lost_blobs", None, "Blobs in which scrubs found data lost.", scrub.lost_blobs as f64)?;
    let help = "Stacks that scrubs found damaged, and that are not repaired yet.";
    page.gauge("scrub_unrepaired_stacks", None, help, scrub.unrepaired_stacks as f64)
}

fn payload(page: &mut Page, status: &Status) -> fmt::Result {
    let (totals, capacity) = (&status.totals, &status.capacity);
    page.counter("rack_read", BYTES, "Payload bytes read from the rack.", totals.read_bytes)?;
    page.counter("migrated", BYTES, "Payload bytes that migrated to the rack.", totals.migrated_bytes)?;
    page.counter("reclaimed", BYTES, "Payload bytes of blobs that were reclaimed.", totals.reclaimed_bytes)?;
    let help = "Deleted payload that waits for its group's next wake.";
    page.gauge("waiting_reclaim", BYTES, help, totals.waiting_reclaim_bytes as f64)?;
    page.gauge("rack_capacity", BYTES, "Capacity of the drives of all groups.", capacity.total_bytes as f64)?;
    page.gauge("rack_free", BYTES, "Free room on the drives of all groups.", capacity.free_bytes as f64)?;
    page.gauge(
        "rack_full",
        None,
        "1 if there is no room for the staged objects: PUTs are refused.",
        flag(capacity.full),
    )
}

fn trouble(page: &mut Page, status: &Status) -> fmt::Result {
    let totals = &status.totals;
    page.counter("refused_operations", None, "Operations refused or failed.", totals.refused)?;
    page.counter("data_lost_reads", None, "Reads that failed because data is lost.", totals.data_lost)?;
    let help = "Blobs written with more than r stacks in a domain that can be lost.";
    page.counter("crowded_placements", None, help, totals.crowded_placements)?;
    page.counter("repaired_fragments", None, "Bad fragments that were repaired.", totals.repaired_fragments)?;
    page.counter("missed_deadlines", None, "Times that drives did not answer in time.", totals.missed_deadlines)?;
    page.counter("emulation_overruns", None, "Calls on emulated drives slower than the model says.", totals.overruns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::report::HealthReport;

    #[test]
    fn a_text_ends_where_it_should_and_says_each_family_once() {
        let said = Smart { starts: Some(41), pending_sectors: Some(3), ..Smart::default() };
        let drive = DriveReport {
            drive: 7,
            slot: [0, 1, 2],
            group: Some(3),
            state: "standby".into(),
            starts_today: 2,
            starts_per_day: 10,
            free_bytes: 5,
            capacity_bytes: 9,
            missed_deadlines: 1,
            reason: None,
            starts_total: 40,
            rated_starts: 50_000,
            health: Some(HealthReport { said, ..HealthReport::default() }),
            habits: None,
        };
        let mut status = Status { rack: "a \"rack\"\\\n".into(), ..Status::default() };
        status.power.watts = 12.5;
        status.intake = Some(IntakeStatus::default());
        let text = text(status, vec![drive]).unwrap();
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        assert!(!text.contains("larder_drive_reallocated_sectors{"), "what a drive does not say is not 0");
        for line in [
            "larder_build_info{version=\"0.1.0\",rack=\"a \\\"rack\\\"\\\\\\n\"} 1\n",
            "# TYPE larder_power_watts gauge\n# UNIT larder_power_watts watts\nlarder_power_watts 12.5\n",
            "larder_drive_state{drive=\"7\",state=\"standby\"} 1.0\n",
            "larder_drive_starts_today{drive=\"7\"} 2.0\n",
            "larder_drive_missed_deadlines_total{drive=\"7\"} 1\n",
            "larder_migrated_bytes_total 0\n",
            "larder_drive_lifetime_starts{drive=\"7\"} 41.0\n",
            "larder_drive_rated_starts{drive=\"7\"} 50000.0\n",
            "larder_drive_pending_sectors{drive=\"7\"} 3.0\n",
            "larder_drives_woken_by_others_total 0\n",
            "larder_drives_unstopped 0.0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup_by_key(|line| line.split(' ').next());
        assert_eq!(names.len(), all, "no family twice");
    }
}
