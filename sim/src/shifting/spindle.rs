//! A disk as an arm that is in one place, and serves one request after the other.
//!
//! Requests in one place follow each other without a seek. A place is a log, the log that is read, or a tree. Going to
//! another place takes a seek, by its distance, and the rest of a rotation, which is random and independent for each
//! disk: a stripe waits for its slowest disk. A synced put costs a fixed time and a time per byte, which are calibrated
//! ([`PutCost`]): the shares of the file system, the controller and its cache in this cost are unknown.

use core::time::Duration;
use model::{Rng, Time};

/// The physics of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// Its capacity, which the longest seek crosses.
    pub capacity_bytes: u64,
    /// A seek to the next track.
    pub shortest_seek: Duration,
    /// A seek between two places drawn evenly.
    pub average_seek: Duration,
    /// A whole rotation.
    pub rotation: Duration,
    /// The transfer rate in bytes/s, once the arm is in place.
    pub rate_bytes_s: u64,
    /// Its power draw.
    pub power: DiskPower,
}

/// The power draw of a disk, and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPower {
    /// While it serves a request, in milliwatts.
    pub active_mw: u64,
    /// While it waits for a request, in milliwatts.
    pub idle_mw: u64,
    /// While it is stopped, in milliwatts.
    pub standby_mw: u64,
    /// While it starts, in milliwatts.
    pub spin_up_mw: u64,
    /// The duration of a start.
    pub spin_up: Duration,
}

impl DiskSpec {
    /// The time to move `bytes`.
    pub fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.rate_bytes_s)) as u64)
    }

    /// A seek over this number of bytes.
    pub fn seek(&self, distance_bytes: u64) -> Duration {
        seek_time(self.shortest_seek, self.average_seek, distance_bytes as f64 / self.capacity_bytes as f64)
    }
}

/// A seek over a share `way` of the whole disk. The time grows with the square root of the distance, as for an arm that
/// speeds up on the first half of its way and slows down on the second. For places drawn evenly, the mean root of the
/// distance is 8/15 of the root of the whole way.
pub(crate) fn seek_time(shortest: Duration, average: Duration, way: f64) -> Duration {
    shortest + average.saturating_sub(shortest).mul_f64(way.min(1.0).sqrt() * 15.0 / 8.0)
}

/// The seek times between the places of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distances {
    /// From the end of the log to the log that is read.
    pub logs: Duration,
    /// From either to the tree.
    pub tree: Duration,
}

/// The cost of a synced put on one disk, apart from seeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutCost {
    /// The time of each put.
    pub fixed: Duration,
    /// The time of each byte, in picoseconds.
    pub byte_ps: u64,
}

impl PutCost {
    /// The line through two puts of known size and time. The second put must be larger and take longer.
    pub fn through((bytes_a, took_a): (u64, Duration), (bytes_b, took_b): (u64, Duration)) -> Self {
        assert!(bytes_b > bytes_a && took_b > took_a, "a larger put takes longer");
        let byte_ps = took_b.saturating_sub(took_a).as_nanos() * 1_000 / u128::from(bytes_b - bytes_a);
        let fixed = took_a.saturating_sub(Duration::from_nanos((byte_ps * u128::from(bytes_a) / 1_000) as u64));
        Self { fixed, byte_ps: byte_ps as u64 }
    }

    /// The time of a put of `bytes`.
    pub fn of(&self, bytes: u64) -> Duration {
        self.fixed + Duration::from_nanos((u128::from(self.byte_ps) * u128::from(bytes) / 1_000) as u64)
    }
}

/// A place of a disk's arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the end of a log.
    Log,
    /// In a log or table that is read.
    Read,
    /// At the end of a tree or a table.
    Tree,
    /// In a table other than that of the last read, so the arm always has to move.
    Other,
}

/// A disk at work.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    rotation: Duration,
    seeks: Distances,
    place: Place,
    free: Time,
    busy: Duration,
    rng: Rng,
}

impl Disk {
    /// Disk `number` of a run under `seed`, with these seek times.
    pub fn new(spec: &DiskSpec, seeks: Distances, seed: u64, number: u64) -> Self {
        let rng = Rng::for_thing(seed, number);
        Self { rotation: spec.rotation, seeks, place: Place::Log, free: Time::ZERO, busy: Duration::ZERO, rng }
    }

    /// Serves a request that arrives at `now` and takes `takes` once the arm is at `place`; returns the time of its
    /// end.
    pub fn serve(&mut self, now: Time, place: Place, takes: Duration) -> Time {
        let moves = self.moves(place);
        self.place = place;
        let begin = self.free.max(now);
        self.free = begin + moves + takes;
        self.busy += moves + takes;
        self.free
    }

    fn moves(&mut self, place: Place) -> Duration {
        let seek = match (self.place, place) {
            (from, to) if from == to && to != Place::Other => return Duration::ZERO,
            (Place::Tree, _) | (_, Place::Tree) => self.seeks.tree,
            _ => self.seeks.logs,
        };
        seek + Duration::from_nanos(self.rng.below(self.rotation.as_nanos() as u64))
    }

    /// The total time of served requests.
    pub fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: DiskSpec = DiskSpec {
        capacity_bytes: 1_000_000_000_000,
        shortest_seek: Duration::from_millis(1),
        average_seek: Duration::from_micros(8_500),
        rotation: Duration::from_micros(8_400),
        rate_bytes_s: 150_000_000,
        power: DiskPower { active_mw: 0, idle_mw: 0, standby_mw: 0, spin_up_mw: 0, spin_up: Duration::ZERO },
    };

    #[test]
    fn seeks_between_random_places_take_the_average() {
        let mut rng = Rng::new(3);
        let count = 100_000;
        let mut place = || rng.below(SPEC.capacity_bytes);
        let seek = |(a, b): (u64, u64)| SPEC.seek(a.abs_diff(b)).as_secs_f64();
        let mean = (0..count).map(|_| seek((place(), place()))).sum::<f64>() / f64::from(count);
        assert!((mean * 1e3 - 8.5).abs() < 0.05, "{mean}");
        assert_eq!(SPEC.seek(0), SPEC.shortest_seek);
    }

    #[test]
    fn a_stripe_waits_for_the_slowest_of_its_disks() {
        let seeks = Distances { logs: Duration::ZERO, tree: Duration::ZERO };
        let wait = |width: u64| {
            let mut disks: Vec<Disk> = (0..width).map(|number| Disk::new(&SPEC, seeks, 5, number)).collect();
            let rounds = 10_000;
            let mut now = Time::ZERO;
            for round in 0..rounds {
                let place = if round % 2 == 0 { Place::Tree } else { Place::Log };
                now = disks.iter_mut().map(|disk| disk.serve(now, place, Duration::ZERO)).max().unwrap_or(now);
            }
            now.as_secs_f64() * 1e3 / f64::from(rounds)
        };
        for (width, share) in [(1, 0.5), (4, 0.8), (9, 0.9)] {
            assert!((wait(width) - 8.4 * share).abs() < 0.1, "{width}: {}", wait(width));
        }
    }
}
