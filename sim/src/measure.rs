//! The measurements of one run.
//!
//! Completion and time to first byte count from the issue of a request. Service counts from the time when a request
//! left its queue to its last byte, including the wake that it caused (Pelican, section 5).
//!
//! Invariants: constant memory; an operation counts if it ends within the measured time.

use crate::histogram::Histogram;
use crate::world::{Counted, Ended, World};
use engine::{Controller, Outcome, PriorityClass, Waking};
use model::{ClassId, GroupId, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Seconds in the year of annual rates.
const YEAR_S: f64 = 365.25 * 86_400.0;

/// Collects the measurements of a run.
#[derive(Default)]
pub(crate) struct Measuring {
    since: Time,
    boot: Duration,
    counted: Counted,
    waking: Waking,
    clients: Clients,
    service: Histogram,
    by_class: Option<ByClass>,
    /// The duration of the rebuild.
    rebuild: Option<Duration>,
}

/// The class of a failed drive, measured separately from the others.
struct ByClass {
    class_of: Vec<ClassId>,
    class: ClassId,
    /// Clients of that class, and clients of the others.
    clients: [Clients; 2],
}

/// The experience of the clients of some classes.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// Answered requests.
    pub answered: u64,
    /// Refused requests.
    pub refused: u64,
    /// From issue to first byte.
    pub first_byte: Histogram,
    /// From issue to last byte.
    pub completion: Histogram,
}

impl Clients {
    /// Counts a request that has ended.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        if ended.is_refused() {
            self.refused += 1;
            return;
        }
        self.answered += 1;
        self.completion.add(ended.at.since(ended.issued));
        if let Some(first_byte) = ended.first_byte {
            self.first_byte.add(first_byte.since(ended.issued));
        }
    }

    /// The share of refused requests.
    pub(crate) fn reject_rate(&self) -> f64 {
        self.refused as f64 / ((self.answered + self.refused) as f64).max(1.0)
    }

    /// Adds the experience of other clients.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.first_byte.merge(&other.first_byte);
        self.completion.merge(&other.completion);
    }
}

impl Ended {
    fn is_refused(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_) | Outcome::Cancelled)
    }
}

impl Measuring {
    /// Records that every group is initialised.
    pub fn booted(&mut self, now: Time) {
        self.boot = now.since(Time::ZERO);
    }

    /// Discards everything except the boot time, and measures from now on.
    pub fn start<M: Controller>(&mut self, world: &mut World<M>) {
        let now = world.now();
        let boot = self.boot;
        let (counted, waking) = (world.counted(), world.rack.waking());
        *self = Self { since: now, boot, counted, waking, ..Self::default() };
        world.meter().restart(now);
    }

    /// From now on, counts clients of the class of `group`, where a drive has failed, separately from the others.
    pub fn watch_class(&mut self, class_of: Vec<ClassId>, group: GroupId) {
        let class = class_of[group.index()];
        self.by_class = Some(ByClass { class_of, class, clients: Default::default() });
    }

    /// Records when the rebuild ended, if it did.
    pub fn rebuilt(&mut self, at: Option<Time>) {
        self.rebuild = at.map(|at| at.since(self.since));
    }

    /// The measured time so far.
    pub fn so_far(&self, now: Time) -> Duration {
        now.since(self.since)
    }

    /// Counts the operations that have ended since the last call.
    pub fn collect<M: Controller>(&mut self, world: &mut World<M>) {
        world.drain_ended().for_each(|ended| self.ended(&ended));
    }

    /// Counts one operation that has ended, if a client waited for it.
    pub fn ended(&mut self, ended: &Ended) {
        if ended.priority != PriorityClass::Client {
            return;
        }
        assert!(ended.issued <= ended.at, "{ended:?} ended before it was issued");
        if let (Some(by_class), Some(group)) = (&mut self.by_class, ended.group) {
            let other = by_class.class_of[group.index()] != by_class.class;
            by_class.clients[usize::from(other)].ended(ended);
        }
        self.clients.ended(ended);
        if ended.is_refused() {
            return;
        }
        if let Some(picked) = ended.picked {
            assert!(ended.issued <= picked && picked <= ended.at, "{ended:?} was served out of its time");
            self.service.add(ended.at.since(picked));
        }
    }

    /// The measurements, up to now.
    pub fn end<M: Controller>(self, world: &mut World<M>) -> Measured {
        let now = world.now();
        let span = now.since(self.since);
        let (before, after) = (self.counted, world.counted());
        let waking = world.rack.waking();
        assert!(before.events <= after.events && before.spin_ups <= after.spin_ups, "counters only grow");
        assert!(
            before.drive_bytes <= after.drive_bytes && before.sent_bytes <= after.sent_bytes,
            "bytes are not taken back"
        );
        assert!(waking.time >= self.waking.time, "the time spent waking only grows");
        let waked = waking.time.saturating_sub(self.waking.time).as_secs_f64();
        Measured {
            span,
            boot: self.boot,
            steady_after: None,
            drained_after: None,
            open_mean: None,
            drives: world.rack.spec().drives.len(),
            clients: self.clients,
            events: after.events - before.events,
            sent_bytes: after.sent_bytes - before.sent_bytes,
            drive_bytes: after.drive_bytes - before.drive_bytes,
            spin_ups: after.spin_ups - before.spin_ups,
            wake_time_fraction: waked / (span.as_secs_f64() * f64::from(waking.schedulers)).max(f64::MIN_POSITIVE),
            mean_power_mw: world.meter().mean_mw(now),
            peak_power_mw: world.meter().peak_mw(now),
            service: self.service,
            rebuild: self.rebuild,
            by_class: self.by_class.map(|by_class| by_class.clients),
            trace_hash: world.trace_hash(),
        }
    }
}

/// The measurements of one run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The measured time.
    pub span: Duration,
    /// The time that the engine took to initialise every group, before the measurement.
    pub boot: Duration,
    /// The time from the first request until the number of open requests of a Poisson load was steady; `None` if at
    /// least half of the run was its beginning (MSER-5).
    pub steady_after: Option<Duration>,
    /// The time from the first request until the open requests of a Poisson load were for the first time fewer than
    /// half of what the queues hold.
    pub drained_after: Option<Duration>,
    /// Mean number of open requests of a Poisson load.
    pub open_mean: Option<f64>,
    /// Drives in the rack.
    pub drives: usize,
    /// The experience of all clients.
    pub clients: Clients,
    /// Events reported to the engine.
    pub events: u64,
    /// Payload bytes that left through the network.
    pub sent_bytes: u64,
    /// Bytes that drives read or wrote, including redundancy.
    pub drive_bytes: u64,
    /// Drive starts.
    pub spin_ups: u64,
    /// The share of the schedulers' time in which they waited for drives to rest and wake.
    pub wake_time_fraction: f64,
    /// Mean power draw of all drives, in milliwatts.
    pub mean_power_mw: u64,
    /// Peak power draw of all drives, in milliwatts.
    pub peak_power_mw: u64,
    /// From leaving the queue to the last byte.
    pub service: Histogram,
    /// The duration of the rebuild, if a drive failed and its rebuild ended.
    pub rebuild: Option<Duration>,
    /// The clients of the failed drive's class and those of all others, if a drive failed.
    pub by_class: Option<[Clients; 2]>,
    /// A hash of the events: equal for two runs in which the same happened.
    pub trace_hash: u64,
}

impl Measured {
    pub(crate) fn throughput_bytes_per_s(&self) -> f64 {
        self.sent_bytes as f64 / self.span.as_secs_f64().max(1e-9)
    }

    /// The annual amount for each drive, if `amount` is that of all drives in the measured time.
    pub(crate) fn per_drive_year(&self, amount: f64) -> f64 {
        amount / self.drives as f64 * YEAR_S / self.span.as_secs_f64().max(1e-9)
    }
}

/// Statistics of durations, in seconds. `None` where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The mean.
    pub mean: Option<f64>,
    /// The median; within [`Histogram::QUANTILE_ERROR`], as is `p99`.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The maximum.
    pub max: Option<f64>,
}

impl Summary {
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let (p50, p99) = (histogram.quantile_s(0.5), histogram.quantile_s(0.99));
        Self { mean: histogram.mean_s(), p50, p99, max: histogram.max_s() }
    }
}
