//! The runs of the evaluation of Workload Shifting, each once per seed. Rows and figures share them.

use crate::parallel::run_each;
use crate::reproduce::judge::{Followed, Sample};
use crate::shifting::{ArrayOutcome, ArrayRun, ArraySystem, DiskPower, DiskSpec, KeyOrder, PutCost, Requests, run};
use engine::shift::{Model, Overrun};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::time::Duration;

/// The data set of every run, in bytes. The text's rates and times agree with 10 x 1024 MB.
const DATA_BYTES: u64 = 10_240_000_000;
const KB: u64 = 1_000;
const KEY_BYTES: u64 = 16;
/// The text's machine has 2 GB of memory, so at most this much of LevelDB's tables can be in memory.
const MEMORY_BYTES: u64 = 2_000_000_000;
/// The disks of Table II. Values that it lacks are our choice: a seek to the next track, and watts and spin-up of such
/// disks.
const DISK: DiskSpec = DiskSpec {
    capacity_bytes: 1_000_000_000_000,
    shortest_seek: Duration::from_millis(1),
    average_seek: Duration::from_micros(8_500),
    rotation: Duration::from_micros(8_400),
    rate_bytes_s: 150_000_000,
    power: DiskPower {
        active_mw: 8_000,
        idle_mw: 5_000,
        standby_mw: 800,
        spin_up_mw: 24_000,
        spin_up: Duration::from_secs(15),
    },
};
/// The size of a background request on one disk; our choice.
const REQUEST_BYTES: u64 = 256 << 10;
const READ_AHEAD_BYTES: u64 = 128 << 10;
/// The idle time after which disks sleep, in runs with sleep.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The seeds of the full form.
pub const SEEDS: [u64; 3] = [1, 2, 3];

/// The text's default number of disks (IV-A, IV-B).
pub const DISKS: u32 = 4;
/// The text's default size of a log, in MB.
pub const LOG_MB: u64 = 5;
/// The value sizes of figures 3 and 10, in KB.
pub const SIZES_KB: [u64; 3] = [1_000, 100, 10];
/// The numbers of disks of IV-C.
pub const ARRAYS: [u32; 4] = [4, 6, 8, 10];
/// Fewer disks than the text requires (IV-C), and the required number.
pub const FEW: [u32; 4] = [1, 2, 3, 4];
/// The log sizes of III-C and IV-C, in MB.
pub const LOGS_MB: [u64; 4] = [5, 50, 100, 200];
/// The log size for sleeping disks, in MB: it takes half a minute to fill, so a disk can start meanwhile.
pub const LONG_LOG_MB: u64 = 1_000;
/// The log size of the ideal alternation, in MB: its transformations hardly differ in length.
pub const IDEAL_LOG_MB: u64 = 50;

/// A system of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// The enhanced model.
    Shifting,
    /// The basic model.
    Basic,
    /// A log over a stripe.
    LogRaid0,
    /// LevelDB over a stripe.
    LevelDb,
}

impl System {
    /// The name of the system.
    pub fn words(self) -> &'static str {
        match self {
            Self::Shifting => "Workload Shifting",
            Self::Basic => "Workload Shifting, basic",
            Self::LogRaid0 => "Log+RAID0",
            Self::LevelDb => "LevelDB",
        }
    }

    fn array(self) -> ArraySystem {
        let overrun = Overrun::Overlap;
        match self {
            Self::Shifting => ArraySystem::WorkloadShifting { model: Model::Enhanced, overrun },
            Self::Basic => ArraySystem::WorkloadShifting { model: Model::Basic, overrun },
            Self::LogRaid0 => ArraySystem::LogRaid0,
            Self::LevelDb => ArraySystem::LevelDb,
        }
    }
}

/// The form of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Random keys, synced, without transformation.
    Alone,
    /// Random keys, synced, with transformation.
    Both,
    /// Sequential keys, synced.
    Sequential,
    /// Random keys, not synced, with transformation.
    Unsynced,
    /// Random keys, not synced, without transformation.
    UnsyncedAlone,
    /// As `Both`, with the average seek of Table II for every movement of the arm.
    Far,
    /// As `Unsynced`, with a client that takes as long for a log as its transformation does: the ideal alternation.
    Paced,
    /// As `Both`; disks sleep after the idle timeout.
    Sleeping,
    /// As `Both`, without memory for tables.
    Uncached,
    /// As `Both`, with background requests of twice the size.
    Doubled,
    /// As `Both`, with reads of 128 KiB (Linux's default read-ahead for one device) from one disk at a time.
    ShortReads,
}

impl Variant {
    /// A description in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Alone => "puts alone",
            Self::Both => "with transformation",
            Self::Sequential => "sequential keys",
            Self::Unsynced => "with transformation, not synced",
            Self::UnsyncedAlone => "puts alone, not synced",
            Self::Far => "with transformation, far apart",
            Self::Paced => "with transformation, paced",
            Self::Sleeping => "with transformation, idle disks asleep",
            Self::Uncached => "with transformation, no page cache",
            Self::Doubled => "with transformation, requests of 512 KiB",
            Self::ShortReads => "with transformation, reads of 128 KiB",
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Put {
    /// The system.
    pub system: System,
    /// The form of the run.
    pub variant: Variant,
    /// The size of a value, in KB of 1,000 bytes.
    pub value_kb: u64,
    /// Its parameters.
    pub run: ArrayRun,
    /// The result.
    pub outcome: ArrayOutcome,
}

impl Put {
    /// The time of the puts, in seconds.
    pub fn seconds(&self) -> f64 {
        self.outcome.took.as_secs_f64()
    }

    /// The put rate in 10^6 bytes/s.
    pub fn mb_per_s(&self) -> f64 {
        self.outcome.put_bytes as f64 / self.seconds() / 1e6
    }

    /// The energy by the text's assumptions (IV-D), as a share of that of all disks all the time: an active disk draws
    /// W, an idle one nothing.
    pub fn active_share(&self) -> f64 {
        self.outcome.busy.as_secs_f64() / (self.seconds() * f64::from(self.run.disks))
    }

    /// Bytes written to disks for each byte put.
    pub fn amplification(&self) -> f64 {
        self.outcome.written_bytes as f64 / self.outcome.put_bytes as f64
    }
}

/// All runs.
#[derive(Debug)]
pub struct Runs {
    /// True for the quick form.
    pub quick: bool,
    /// All runs.
    pub puts: Vec<Put>,
}

impl Runs {
    /// Simulates the evaluation on this number of threads; calls `done` with the number of finished runs and of all
    /// runs. The quick form has one seed, and omits values of 1 KB, which take ten million puts per run.
    pub fn new(quick: bool, threads: NonZeroUsize, done: &(dyn Fn(usize, usize) + Sync)) -> Self {
        let asked = asked(quick);
        let one = |(_, _, _, of): &Asked| Ok::<ArrayOutcome, Infallible>(run(of));
        let Ok(outcomes) = run_each(&asked, threads, &one, &|count| done(count, asked.len()));
        let put = |((system, variant, value_kb, run), outcome): (Asked, ArrayOutcome)| Put {
            system,
            variant,
            value_kb,
            run,
            outcome,
        };
        Self { quick, puts: asked.into_iter().zip(outcomes).map(put).collect() }
    }

    fn seeds(&self) -> &'static [u64] {
        seeds(self.quick)
    }

    /// The runs of the first seed.
    pub fn first(&self) -> SeedRuns<'_> {
        SeedRuns { puts: &self.puts, seed: SEEDS[0], quick: self.quick }
    }

    fn each<'a, T: 'a>(&'a self, of: &'a dyn Fn(SeedRuns<'_>) -> T) -> impl Iterator<Item = T> + 'a {
        self.seeds().iter().map(move |seed| of(SeedRuns { puts: &self.puts, seed: *seed, quick: self.quick }))
    }

    /// A number, measured per seed.
    pub fn sample(&self, of: impl Fn(SeedRuns<'_>) -> f64) -> Sample {
        Sample::of(self.each(&of))
    }

    /// The mean of a number over the seeds.
    pub fn mean(&self, of: impl Fn(SeedRuns<'_>) -> f64) -> f64 {
        self.sample(of).mean()
    }

    /// The number of seeds for which a condition is true.
    pub fn follows(&self, of: impl Fn(SeedRuns<'_>) -> bool) -> Followed {
        self.each(&of).collect()
    }
}

/// The runs of one seed.
#[derive(Clone, Copy, Debug)]
pub struct SeedRuns<'a> {
    puts: &'a [Put],
    seed: u64,
    quick: bool,
}

impl<'a> SeedRuns<'a> {
    /// The value sizes of IV-C.
    pub fn values_kb(self) -> [u64; 3] {
        values_kb(self.quick)
    }

    /// The value sizes of figure 9.
    pub fn unsynced_kb(self) -> &'static [u64] {
        unsynced_kb(self.quick)
    }

    /// The run with these parameters, which both forms have.
    pub fn at(self, system: System, variant: Variant, value_kb: u64, (disks, log_mb): (u32, u64)) -> &'a Put {
        let found = self.puts.iter().find(|put| {
            let same = (put.system, put.variant, put.value_kb) == (system, variant, value_kb);
            same && (put.run.disks, put.run.log_bytes, put.run.seed) == (disks, log_mb * 1_000 * KB, self.seed)
        });
        let Some(put) = found else { panic!("{system:?} {variant:?} {value_kb} {disks} {log_mb} was not simulated") };
        put
    }

    /// The run with the text's number of disks and log size.
    pub fn of(self, system: System, variant: Variant, value_kb: u64) -> &'a Put {
        self.at(system, variant, value_kb, (DISKS, LOG_MB))
    }

    /// The extra time of a system with transformation, as a share.
    pub fn rise(self, system: System, value_kb: u64, at: (u32, u64)) -> f64 {
        let seconds = |variant| self.at(system, variant, value_kb, at).seconds();
        seconds(Variant::Both) / seconds(Variant::Alone) - 1.0
    }
}

fn seeds(quick: bool) -> &'static [u64] {
    if quick { &SEEDS[..1] } else { &SEEDS }
}

fn values_kb(quick: bool) -> [u64; 3] {
    [if quick { 10 } else { 1 }, 50, 100]
}

fn unsynced_kb(quick: bool) -> &'static [u64] {
    if quick { &[10, 100] } else { &[1, 10, 100] }
}

type Asked = (System, Variant, u64, ArrayRun);

/// The simulated runs, each once per seed.
fn asked(quick: bool) -> Vec<Asked> {
    use System::{Basic, LevelDb, LogRaid0, Shifting};
    use Variant::{
        Alone, Both, Doubled, Far, Paced, Sequential, ShortReads, Sleeping, Uncached, Unsynced, UnsyncedAlone,
    };
    let mut asked: Vec<(System, Variant, u64, u32, u64)> = Vec::new();
    let mut ask = |systems: &[System], variants: &[Variant], kb: u64, disks: u32, log_mb: u64| {
        for system in systems {
            for one in variants.iter().map(|variant| (*system, *variant, kb, disks, log_mb)) {
                if !asked.contains(&one) {
                    asked.push(one);
                }
            }
        }
    };
    for kb in SIZES_KB {
        ask(&[Shifting, LogRaid0], &[Alone, Both], kb, DISKS, LOG_MB);
        ask(&[Shifting], &[Sequential], kb, DISKS, LOG_MB);
        ask(&[LevelDb], &[Both, Sequential, Uncached, ShortReads], kb, DISKS, LOG_MB);
    }
    ask(&[Shifting, LogRaid0], &[Far, Doubled, ShortReads], 100, DISKS, LOG_MB);
    for kb in values_kb(quick) {
        ask(&[Shifting, LogRaid0], &[Alone, Both], kb, DISKS, LOG_MB);
        ask(&[LevelDb], &[Both], kb, DISKS, LOG_MB);
    }
    for disks in ARRAYS {
        ask(&[Shifting, LogRaid0], &[Alone, Both], 100, disks, LOG_MB);
        ask(&[Shifting, LogRaid0], &[UnsyncedAlone, Unsynced], 100, disks, LOG_MB);
        ask(&[LevelDb], &[Both], 100, disks, LOG_MB);
        ask(&[Shifting], &[Alone, Both, Sleeping], 100, disks, LONG_LOG_MB);
    }
    for disks in FEW {
        ask(&[Shifting, Basic], &[Alone, Both, Unsynced], 100, disks, LOG_MB);
    }
    for log_mb in LOGS_MB {
        ask(&[Shifting, LogRaid0], &[Alone, Both, UnsyncedAlone, Unsynced], 100, DISKS, log_mb);
        for kb in unsynced_kb(quick) {
            ask(&[Shifting], &[Unsynced], *kb, DISKS, log_mb);
        }
    }
    ask(&[Shifting], &[Paced], 100, DISKS, IDEAL_LOG_MB);
    // The longest runs come first, so none of them runs alone at the end.
    asked.sort_by_key(|(_, _, kb, ..)| *kb);
    let with = |seed: u64| {
        let run = move |(system, variant, kb, disks, log): (System, Variant, u64, u32, u64)| {
            (system, variant, kb, array(system, variant, kb, (disks, log), seed))
        };
        asked.iter().copied().map(run)
    };
    seeds(quick).iter().flat_map(|seed| with(*seed)).collect()
}

/// The parameters of a run on the disks of the text's Table II.
fn array(system: System, variant: Variant, value_kb: u64, (disks, log_mb): (u32, u64), seed: u64) -> ArrayRun {
    let (alone, striped) = calibrated();
    let shortest_seek = if variant == Variant::Far { DISK.average_seek } else { DISK.shortest_seek };
    let puts = DATA_BYTES / (value_kb * KB);
    ArrayRun {
        system: system.array(),
        disks,
        disk: DiskSpec { shortest_seek, ..DISK },
        alone,
        striped,
        puts,
        put_bytes: value_kb * KB + KEY_BYTES,
        keys: if variant == Variant::Sequential { KeyOrder::Sequential } else { KeyOrder::Random },
        sync: !matches!(variant, Variant::Unsynced | Variant::UnsyncedAlone | Variant::Paced),
        transform: !matches!(variant, Variant::Alone | Variant::UnsyncedAlone),
        log_bytes: log_mb * 1_000 * KB,
        pace: (variant == Variant::Paced).then(|| ideal_pace(value_kb, log_mb)),
        idle_timeout: (variant == Variant::Sleeping).then_some(IDLE_TIMEOUT),
        requests: Requests {
            bytes: if variant == Variant::Doubled { 2 * REQUEST_BYTES } else { REQUEST_BYTES },
            read_ahead_bytes: (variant == Variant::ShortReads).then_some(READ_AHEAD_BYTES),
        },
        cache_bytes: if variant == Variant::Uncached { 0 } else { MEMORY_BYTES },
        seed,
    }
}

/// The time between puts at which a log fills as fast as it is transformed, that is, read and written, each after a
/// seek. The result includes an extra fiftieth: transformations of 50 MB differ by that much, by the angles of the
/// platters.
fn ideal_pace(value_kb: u64, log_mb: u64) -> Duration {
    let bytes = log_mb * 1_000 * KB;
    let once = DISK.transfer(bytes) + DISK.shortest_seek + DISK.rotation / 2;
    let puts = bytes.div_ceil(value_kb * KB + KEY_BYTES);
    Duration::from_nanos((2 * once.as_nanos() as u64 / puts) * 51 / 50)
}

/// The two calibrations: a synced put on one disk, from 320 s and 38.6 MB/s; and its fixed part on a stripe, from 522
/// s.
fn calibrated() -> (PutCost, PutCost) {
    let put =
        |value_kb: u64, seconds: f64| Duration::from_secs_f64(seconds * (value_kb * KB) as f64 / DATA_BYTES as f64);
    let bytes = |value_kb: u64| value_kb * KB + KEY_BYTES;
    let alone = PutCost::through((bytes(100), put(100, 320.0)), (bytes(1_000), put(1_000, DATA_BYTES as f64 / 38.6e6)));
    let share = PutCost { fixed: Duration::ZERO, ..alone }.of(bytes(100).div_ceil(u64::from(DISKS)));
    (alone, PutCost { fixed: put(100, 522.0).saturating_sub(share), ..alone })
}
