//! The runs of the evaluation of Workload Shifting, each once. Rows and figures share them.

use crate::parallel::run_each;
use crate::shifting::{ArrayOutcome, ArrayRun, ArraySystem, DiskSpec, KeyOrder, PutCost, run};
use engine::shift::{Model, Overrun};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::time::Duration;

/// The data set of every run, in bytes. The text's rates and times agree with 10 x 1024 MB.
const DATA_BYTES: u64 = 10_240_000_000;
const KB: u64 = 1_000;
const KEY_BYTES: u64 = 16;
/// Of Table II.
const AVERAGE_SEEK: Duration = Duration::from_micros(8_500);
/// Within a hundredth of the disk, which 10 GB are.
const SHORT_SEEK: Duration = Duration::from_millis(1);

/// The text's defaults (IV-A, IV-B).
pub const DISKS: u32 = 4;
/// The size of a log, in MB.
pub const LOG_MB: u64 = 5;
/// The sizes of figures 3 and 10, in KB.
pub const SIZES_KB: [u64; 3] = [1_000, 100, 10];
/// The numbers of disks of IV-C.
pub const ARRAYS: [u32; 4] = [4, 6, 8, 10];
/// The sizes of logs of III-C and IV-C, in MB.
pub const LOGS_MB: [u64; 4] = [5, 50, 100, 200];

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
    /// Its name.
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
    /// As `Both`, with the average seek of Table II between a log and a tree.
    Far,
}

impl Variant {
    /// It in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Alone => "puts alone",
            Self::Both => "with transformation",
            Self::Sequential => "sequential keys",
            Self::Unsynced => "with transformation, not synced",
            Self::Far => "with transformation, far apart",
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Put {
    /// The system.
    pub system: System,
    /// Its form.
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

    /// Bytes put a second, in 10^6.
    pub fn mb_per_s(&self) -> f64 {
        self.outcome.put_bytes as f64 / self.seconds() / 1e6
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
    /// Every run.
    pub puts: Vec<Put>,
}

impl Runs {
    /// Simulates the evaluation on so many threads; calls `done` with the number of runs done, and of all. The quick
    /// form leaves out values of 1 KB, which are ten million puts a run.
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

    /// The sizes of values of IV-C.
    pub fn values_kb(&self) -> [u64; 3] {
        [if self.quick { 10 } else { 1 }, 50, 100]
    }

    /// The run of these parameters, which every form has.
    pub fn at(&self, system: System, variant: Variant, value_kb: u64, (disks, log_mb): (u32, u64)) -> &Put {
        let found = self.puts.iter().find(|put| {
            let same = (put.system, put.variant, put.value_kb) == (system, variant, value_kb);
            same && put.run.disks == disks && put.run.log_bytes == log_mb * 1_000 * KB
        });
        let Some(put) = found else { panic!("{system:?} {variant:?} {value_kb} {disks} {log_mb} was not simulated") };
        put
    }

    /// The run at the text's disks and log.
    pub fn of(&self, system: System, variant: Variant, value_kb: u64) -> &Put {
        self.at(system, variant, value_kb, (DISKS, LOG_MB))
    }

    /// How much longer a system takes with transformation, as a share.
    pub fn rise(&self, system: System, value_kb: u64, at: (u32, u64)) -> f64 {
        let seconds = |variant| self.at(system, variant, value_kb, at).seconds();
        seconds(Variant::Both) / seconds(Variant::Alone) - 1.0
    }
}

type Asked = (System, Variant, u64, ArrayRun);

/// What is simulated, each once.
fn asked(quick: bool) -> Vec<Asked> {
    use System::{Basic, LevelDb, LogRaid0, Shifting};
    use Variant::{Alone, Both, Far, Sequential, Unsynced};
    let mut asked: Vec<(System, Variant, u64, u32, u64)> = Vec::new();
    for kb in SIZES_KB {
        for (system, variant) in [(Shifting, Alone), (Shifting, Both), (Shifting, Sequential), (LogRaid0, Alone)] {
            asked.push((system, variant, kb, DISKS, LOG_MB));
        }
        asked
            .extend([(LogRaid0, Both), (LevelDb, Both), (LevelDb, Sequential)].map(|(s, v)| (s, v, kb, DISKS, LOG_MB)));
    }
    asked.push((Basic, Both, 100, DISKS, LOG_MB));
    asked.extend([Shifting, LogRaid0].map(|system| (system, Far, 100, DISKS, LOG_MB)));
    for kb in if quick { vec![50] } else { vec![50, 1] } {
        for system in [Shifting, LogRaid0] {
            asked.extend([Alone, Both].map(|variant| (system, variant, kb, DISKS, LOG_MB)));
        }
    }
    for disks in ARRAYS {
        for system in [Shifting, LogRaid0] {
            asked.extend([Alone, Both].map(|variant| (system, variant, 100, disks, LOG_MB)));
        }
        asked.push((LevelDb, Both, 100, disks, LOG_MB));
    }
    for log_mb in LOGS_MB {
        asked.extend([Shifting, LogRaid0].map(|system| (system, Both, 100, DISKS, log_mb)));
        asked.push((Shifting, Unsynced, 100, DISKS, log_mb));
    }
    let mut once: Vec<(System, Variant, u64, u32, u64)> = Vec::new();
    for one in asked {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once.into_iter()
        .map(|(system, variant, kb, disks, log)| (system, variant, kb, array(system, variant, kb, (disks, log))))
        .collect()
}

/// The parameters of a run on the disks of the text's Table II.
fn array(system: System, variant: Variant, value_kb: u64, (disks, log_mb): (u32, u64)) -> ArrayRun {
    let (alone, striped) = calibrated();
    ArrayRun {
        system: system.array(),
        disks,
        disk: DiskSpec {
            seek: if variant == Variant::Far { AVERAGE_SEEK } else { SHORT_SEEK },
            rotation: Duration::from_micros(4_200),
            rate_bytes_s: 150_000_000,
            active_mw: 8_000,
            idle_mw: 5_000,
        },
        alone,
        striped,
        puts: DATA_BYTES / (value_kb * KB),
        put_bytes: value_kb * KB + KEY_BYTES,
        keys: if variant == Variant::Sequential { KeyOrder::Sequential } else { KeyOrder::Random },
        sync: variant != Variant::Unsynced,
        transform: variant != Variant::Alone,
        log_bytes: log_mb * 1_000 * KB,
    }
}

/// The two calibrations: a synced put on one disk, by 320 s and 38.6 MB/s; and its fixed part on a stripe, by 522 s.
fn calibrated() -> (PutCost, PutCost) {
    let put =
        |value_kb: u64, seconds: f64| Duration::from_secs_f64(seconds * (value_kb * KB) as f64 / DATA_BYTES as f64);
    let bytes = |value_kb: u64| value_kb * KB + KEY_BYTES;
    let alone = PutCost::through((bytes(100), put(100, 320.0)), (bytes(1_000), put(1_000, DATA_BYTES as f64 / 38.6e6)));
    let share = PutCost { fixed: Duration::ZERO, ..alone }.of(bytes(100).div_ceil(u64::from(DISKS)));
    (alone, PutCost { fixed: put(100, 522.0).saturating_sub(share), ..alone })
}
