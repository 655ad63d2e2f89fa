//! The objects: sizes, ages, places of their copies, and the draws of requests.
//!
//! Invariants: objects are numbered by age, the oldest first; only a copy whose OSD has a cold drive is cold.

use super::REPLICAS;
use crate::Sizes;
use engine::thermometer::Facts;
use model::{Rng, Time};

/// The tenant of LINE's rule.
pub const LINE_TENANT: &str = "line";

/// The time of the run's beginning, in milliseconds of the clock by which objects age; no object is older.
const BEGIN_MS: u64 = 1 << 40;

/// The data set and the distribution of reads.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSpec {
    /// Objects stored when the run begins.
    pub stored: u32,
    /// Their sizes.
    pub sizes: Sizes,
    /// The time between the writes of two consecutive objects.
    pub written_every_ms: u64,
    /// The share of the objects, oldest first, that a scrub has visited and moved if cold, in thousandths.
    pub scrubbed_permille: u32,
    /// The newest objects, as thousandths of all objects.
    pub newest_permille: u32,
    /// Share of reads for the newest objects, in thousandths; within the newest and the rest, reads are uniform.
    pub newest_reads_permille: u32,
}

/// An object.
#[derive(Clone, Copy, Debug)]
struct Stored {
    bytes: u32,
    /// The positions of cold copies, as a bit mask.
    cold: u8,
    created_ms: u64,
}

/// All objects.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    spec: ObjectSpec,
    all: Vec<Stored>,
    sizes: Rng,
    reads: Rng,
}

impl Objects {
    /// The data set under `seed`.
    pub fn new(spec: ObjectSpec, seed: u64) -> Self {
        let mut objects = Self {
            spec,
            all: Vec::with_capacity(spec.stored as usize * 2),
            sizes: Rng::for_thing(seed, 11),
            reads: Rng::for_thing(seed, 12),
        };
        for number in 0..u64::from(spec.stored) {
            let bytes = spec.sizes.draw(&mut objects.sizes) as u32;
            let age_ms = (u64::from(spec.stored) - number) * spec.written_every_ms;
            objects.all.push(Stored { bytes, cold: 0, created_ms: BEGIN_MS - age_ms });
        }
        objects
    }

    /// The number of the first object that no scrub has visited.
    pub fn unscrubbed(&self) -> u32 {
        (u64::from(self.spec.stored) * u64::from(self.spec.scrubbed_permille) / 1000) as u32
    }

    /// The number of objects.
    pub fn count(&self) -> u32 {
        self.all.len() as u32
    }

    /// Adds an object, written at `now`; returns its number.
    pub fn write(&mut self, now: Time) -> u32 {
        let bytes = self.spec.sizes.draw(&mut self.sizes) as u32;
        self.all.push(Stored { bytes, cold: 0, created_ms: ms(now) });
        self.count() - 1
    }

    /// Draws an object to read.
    pub fn read(&mut self) -> u32 {
        let (count, newest) = (u64::from(self.count()), u64::from(self.newest()));
        let is_newest = self.reads.below(1000) < u64::from(self.spec.newest_reads_permille);
        let drawn = if is_newest { newest + self.reads.below(count - newest) } else { self.reads.below(newest) };
        drawn as u32
    }

    /// Draws whether a request is a write.
    pub fn writes(&mut self, permille: u32) -> bool {
        self.reads.below(1000) < u64::from(permille)
    }

    /// Draws a replica.
    pub fn any_replica(&mut self) -> usize {
        self.reads.below(REPLICAS as u64) as usize
    }

    /// The number of the first of the newest objects.
    fn newest(&self) -> u32 {
        let older = 1000 - u64::from(self.spec.newest_permille);
        ((u64::from(self.count()) * older / 1000) as u32).clamp(1, self.count() - 1)
    }

    /// True if the object is so new that its record is in memory.
    pub fn is_new(&self, object: u32) -> bool {
        object >= self.newest()
    }

    /// The length of an object.
    pub fn bytes(&self, object: u32) -> u64 {
        u64::from(self.all[object as usize].bytes)
    }

    /// True if the object's copy at `position` is on the cold drive.
    pub fn is_cold(&self, object: u32, position: usize) -> bool {
        self.all[object as usize].cold & 1 << position != 0
    }

    /// Places the object's copy at `position` on the cold drive, or on the hot one.
    pub fn set_cold(&mut self, object: u32, position: usize, is_cold: bool) {
        let cold = &mut self.all[object as usize].cold;
        *cold = if is_cold { *cold | 1 << position } else { *cold & !(1 << position) };
    }

    /// The facts about an object for a thermometer, and `now` by the same clock.
    pub fn facts(&self, object: u32, now: Time) -> (Facts<'static>, u64) {
        let Stored { bytes, created_ms, .. } = self.all[object as usize];
        let facts = Facts {
            bucket: LINE_TENANT,
            key: "",
            tags: &[],
            bytes: u64::from(bytes),
            created_ms,
            read_ms: None,
            reads: 0,
            is_read_through: false,
        };
        (facts, ms(now))
    }
}

fn ms(now: Time) -> u64 {
    BEGIN_MS + now.as_nanos() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_draw_their_share_and_ages_run_on() {
        let spec = ObjectSpec {
            stored: 100_000,
            sizes: Sizes::Fixed(60_000),
            written_every_ms: 20,
            scrubbed_permille: 920,
            newest_permille: 80,
            newest_reads_permille: 998,
        };
        let mut objects = Objects::new(spec, 3);
        let reads = 200_000;
        let newest = (0..reads).filter(|_| objects.read() >= 92_000).count();
        assert!((newest as f64 / f64::from(reads) - 0.998).abs() < 0.001, "{newest}");
        let ((last, now_ms), (first, _)) = (objects.facts(99_999, Time::ZERO), objects.facts(0, Time::ZERO));
        assert_eq!((now_ms - last.created_ms, now_ms - first.created_ms), (20, 2_000_000));
        let new = objects.write(Time::from_secs(5));
        assert_eq!((new, objects.is_new(new), objects.is_new(0)), (100_000, true, false));
        assert_eq!(objects.facts(new, Time::from_secs(6)).1 - objects.facts(new, Time::ZERO).0.created_ms, 1_000);
        objects.set_cold(new, 1, true);
        objects.set_cold(new, 2, true);
        objects.set_cold(new, 1, false);
        assert_eq!([0, 1, 2].map(|position| objects.is_cold(new, position)), [false, false, true]);
    }
}
