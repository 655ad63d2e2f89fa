//! A disk as an arm that is in one place, and serves one request after the other.
//!
//! Requests of one place follow each other without a seek: a log, the log that is read, a tree. Going to another place
//! takes a seek and half a rotation. A synced put costs a fixed time and a time for each byte, which are calibrated
//! ([`PutCost`]): nobody knows what of a put goes to the file system, the controller and its cache.

use core::time::Duration;
use model::Time;

/// The physics of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// The time to go from one place to another. Logs and trees of a disk lie where its user puts them: close together
    /// in Workload Shifting, on tracks that are written in turns; the average seek for the rest.
    pub seek: Duration,
    /// Half a rotation.
    pub rotation: Duration,
    /// Bytes a second, once the arm is in its place.
    pub rate_bytes_s: u64,
    /// Watts while it serves a request, in milliwatts.
    pub active_mw: u64,
    /// Watts while it waits for one, in milliwatts.
    pub idle_mw: u64,
}

impl DiskSpec {
    /// Time to move `bytes`.
    pub fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.rate_bytes_s)) as u64)
    }
}

/// The cost of a synced put on one disk, apart from seeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutCost {
    /// For each put.
    pub fixed: Duration,
    /// For each byte, in picoseconds.
    pub byte_ps: u64,
}

impl PutCost {
    /// The line through two puts of known size and time. The larger one comes second, and takes longer.
    pub fn through((bytes_a, took_a): (u64, Duration), (bytes_b, took_b): (u64, Duration)) -> Self {
        assert!(bytes_b > bytes_a && took_b > took_a, "a larger put takes longer");
        let byte_ps = (took_b - took_a).as_nanos() * 1_000 / u128::from(bytes_b - bytes_a);
        let fixed = took_a.saturating_sub(Duration::from_nanos((byte_ps * u128::from(bytes_a) / 1_000) as u64));
        Self { fixed, byte_ps: byte_ps as u64 }
    }

    /// The time that a put of `bytes` takes.
    pub fn of(&self, bytes: u64) -> Duration {
        self.fixed + Duration::from_nanos((u128::from(self.byte_ps) * u128::from(bytes) / 1_000) as u64)
    }
}

/// Where the arm of a disk may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the end of a log.
    Log,
    /// In a log or a table that is read.
    Read,
    /// At the end of a tree or a table.
    Tree,
}

/// A disk at work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    spec: DiskSpec,
    place: Place,
    free: Time,
    busy: Duration,
}

impl Disk {
    pub fn new(spec: DiskSpec) -> Self {
        Self { spec, place: Place::Log, free: Time::ZERO, busy: Duration::ZERO }
    }

    /// Serves a request that comes at `now` and takes `takes` once the arm is at `place`; the time of its end.
    pub fn serve(&mut self, now: Time, place: Place, takes: Duration) -> Time {
        let moves = if self.place == place { Duration::ZERO } else { self.spec.seek + self.spec.rotation };
        self.place = place;
        let begin = self.free.max(now);
        self.free = begin + moves + takes;
        self.busy += moves + takes;
        self.free
    }

    /// The time for which it served requests.
    pub fn busy(&self) -> Duration {
        self.busy
    }
}
