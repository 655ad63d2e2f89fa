//! The disk of the paper's Table I: an arm over rotating surfaces.
//!
//! Data is in the order of its addresses: along a track, then on the next surface, then in the next cylinder. Tracks
//! are skewed by a head switch and cylinders by a seek to the next one, so sequential data is read without losing a
//! rotation. All tracks hold the same number of sectors. A request costs the seek by its distance, the rest of the
//! rotation until its first sector arrives, and the transfer. A drive with a buffer serves data after the last request
//! at the rate of its tracks: it has read ahead, or accepts writes before they are on the platters.

use super::SECTOR_BYTES;
use crate::shifting::seek_time;
use core::time::Duration;
use model::Time;

/// The geometry and the times of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlatterSpec {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Cylinders.
    pub cylinders: u64,
    /// Tracks per cylinder.
    pub surfaces: u64,
    /// One rotation.
    pub rotation: Duration,
    /// The time to switch from one surface of a cylinder to the next.
    pub head_switch: Duration,
    /// The minimum time of any seek.
    pub shortest_seek: Duration,
    /// A seek between two cylinders drawn evenly.
    pub average_seek: Duration,
    /// True if data directly after the last request needs no rotation.
    pub is_buffered: bool,
}

impl PlatterSpec {
    /// Sectors per track, rounded down.
    fn track_sectors(&self) -> u64 {
        self.sectors / (self.cylinders * self.surfaces)
    }

    /// A seek over this number of cylinders.
    fn seek(&self, distance: u64) -> Duration {
        seek_time(self.shortest_seek, self.average_seek, distance as f64 / self.cylinders as f64)
    }

    /// The capacity in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.track_sectors() * self.cylinders * self.surfaces * SECTOR_BYTES
    }
}

/// The disk at work.
#[derive(Clone, Debug)]
pub(super) struct Platter {
    spec: PlatterSpec,
    track_sectors: u64,
    sector_ns: u64,
    free: Time,
    /// The sector after the last one that was read or written.
    next: u64,
}

impl Platter {
    /// A disk with its arm over the first cylinder.
    pub fn new(spec: PlatterSpec) -> Self {
        let track_sectors = spec.track_sectors();
        assert!(track_sectors > 0, "a track holds something");
        let sector_ns = spec.rotation.as_nanos() as u64 / track_sectors;
        Self { spec, track_sectors, sector_ns, free: Time::ZERO, next: 0 }
    }

    /// Reads or writes this number of bytes from sector `first` on; returns the time of the end.
    pub fn serve(&mut self, now: Time, first: u64, bytes: u64) -> Time {
        let sectors = bytes.div_ceil(SECTOR_BYTES);
        assert!(sectors > 0 && (first + sectors) * SECTOR_BYTES <= self.spec.capacity_bytes(), "the disk has room");
        let begin = now.max(self.free);
        let is_next = first == self.next;
        let at = if self.spec.is_buffered && is_next { begin } else { self.reach(begin, first) };
        self.next = first + sectors;
        self.free = at + self.transfer(first, sectors);
        self.free
    }

    /// The time at which the first sector arrives under its head.
    fn reach(&self, now: Time, first: u64) -> Time {
        let last = self.next.saturating_sub(1);
        let (from, to) = (self.track(last), self.track(first));
        let (from_cylinder, to_cylinder) = (from / self.spec.surfaces, to / self.spec.surfaces);
        let arm = match to_cylinder.abs_diff(from_cylinder) {
            0 if from == to => Duration::ZERO,
            0 => self.spec.head_switch,
            distance => self.spec.seek(distance),
        };
        let there = now + arm;
        let turn_ns = self.track_sectors * self.sector_ns;
        let wanted = self.angle_ns(first);
        let wait = (wanted + turn_ns - there.as_nanos() % turn_ns) % turn_ns;
        there + Duration::from_nanos(wait)
    }

    fn track(&self, sector: u64) -> u64 {
        sector / self.track_sectors
    }

    /// The total skew of the tracks before `track`.
    fn skew_ns(&self, track: u64) -> u64 {
        let (head, arm) = (self.spec.head_switch.as_nanos() as u64, self.spec.seek(1).as_nanos() as u64);
        let cylinders = track / self.spec.surfaces;
        (track - cylinders) * head + cylinders * arm
    }

    fn angle_ns(&self, sector: u64) -> u64 {
        let track = self.track(sector);
        ((sector % self.track_sectors) * self.sector_ns + self.skew_ns(track)) % (self.track_sectors * self.sector_ns)
    }

    fn transfer(&self, first: u64, sectors: u64) -> Duration {
        let skew = self.skew_ns(self.track(first + sectors - 1)) - self.skew_ns(self.track(first));
        Duration::from_nanos(sectors * self.sector_ns + skew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Rng;

    /// Table I, with the seeks of a similar drive.
    const SPEC: PlatterSpec = PlatterSpec {
        sectors: 286_749_479,
        cylinders: 48_624,
        surfaces: 8,
        rotation: Duration::from_nanos(60_000_000_000 / 10_017),
        head_switch: Duration::from_micros(165),
        shortest_seek: Duration::from_micros(400),
        average_seek: Duration::from_micros(4_700),
        is_buffered: false,
    };

    #[test]
    fn requests_at_random_places_take_a_seek_and_half_a_turn() {
        let mut disk = Platter::new(SPEC);
        let mut rng = Rng::new(7);
        let (mut now, count) = (Time::ZERO, 50_000);
        for _ in 0..count {
            now = disk.serve(now, rng.below(286_000_000), 4096);
        }
        let mean_ms = now.as_secs_f64() * 1e3 / f64::from(count);
        // 4.7 ms, half of 5.99 ms, and 8 of 737 sectors.
        assert!((mean_ms - (4.7 + 2.995 + 0.065)).abs() < 0.03, "{mean_ms}");
    }

    #[test]
    fn what_follows_at_once_loses_no_turn_and_what_comes_late_loses_one() {
        let mut disk = Platter::new(SPEC);
        let begin = disk.serve(Time::ZERO, 0, 4096);
        let end = (1..10_000).fold(begin, |now, block| disk.serve(now, block * 8, 4096));
        let rate = 9_999.0 * 4096.0 / end.since(begin).as_secs_f64() / 1e6;
        assert!((60.0..62.0).contains(&rate), "737 sectors a turn and the switches: {rate} MB/s");
        let late = end + Duration::from_micros(10);
        let took = disk.serve(late, 80_000, 4096).since(late).as_secs_f64() * 1e3;
        assert!((5.9..6.2).contains(&took), "{took} ms");
    }

    #[test]
    fn a_buffer_spares_the_turn_of_what_follows_and_of_nothing_else() {
        let spec = PlatterSpec { is_buffered: true, ..SPEC };
        let mut disk = Platter::new(spec);
        let first = disk.serve(Time::from_secs(1), 7_000, 4096);
        let late = first + Duration::from_millis(3);
        assert!(disk.serve(late, 7_008, 4096).since(late) < Duration::from_millis(1));
        let elsewhere = disk.serve(Time::from_secs(2), 200_000_000, 4096);
        assert!(elsewhere.since(Time::from_secs(2)) > Duration::from_millis(4));
    }
}
