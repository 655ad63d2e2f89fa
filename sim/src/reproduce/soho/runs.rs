//! The runs of the evaluation of SOHO, each once per seed. Rows and figures share them.

use crate::parallel::run_each;
use crate::reproduce::judge::{Followed, Sample};
use crate::soho::{Application, FlashSpec, Load, Moves, PlatterSpec, SohoOutcome, SohoRun, Staged, move_all, run};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::time::Duration;

/// The seeds of the full form.
pub const SEEDS: [u64; 3] = [1, 2, 3];

/// The workshop size of Table I, in GiB: one package.
pub const SSD_GIB: u32 = 32;
/// All workshop sizes of Table I, in GiB.
pub const SSDS_GIB: [u32; 3] = [8, 16, SSD_GIB];
/// The capacity of all three systems is 160 GB (section IV-B): five packages.
const PACKAGES: u32 = 160 / SSD_GIB;
/// The critical thresholds of Table I, in thousandths.
pub const CRITICAL: [u32; 3] = [200, 400, 800];
/// The default of Table I.
pub const DEFAULT_CRITICAL: u32 = 800;
/// The regular threshold of Table I.
const REGULAR: u32 = 300;
/// The mean requests of section IV-D and the blocks of section IV-E, in KB of 1,024 bytes.
pub const SIZES_KB: [u64; 3] = [4, 40, 400];
/// The block size of moves in all other runs; our choice.
pub const BLOCK_KB: u64 = 400;
/// The amounts of moved data in section IV-E, in GiB.
pub const MOVED_GIB: [u64; 3] = [2, 4, 8];
/// Requests of a synthetic trace; our choice.
const SYNTHETIC_REQUESTS: u32 = 20_000;
/// The quick form divides the data and the workshop by this number.
const QUICK_PART: u64 = 16;
/// Written bytes are counted per span of this length in the full form.
const BUCKET: Duration = Duration::from_secs(30);

const US: fn(u64) -> Duration = Duration::from_micros;

/// The package of Table I. Its bus is the default of the SSD model that the text extends, 25 ns per byte.
fn package() -> FlashSpec {
    FlashSpec {
        packages: 1,
        units: 4,
        unit_blocks: 4 * 8_192,
        block_pages: 64,
        page_read: US(20),
        page_write: US(200),
        block_erase: US(2_000),
        byte_ps: 25_000,
    }
}

/// The disk of Table I. Its seeks are our choice, like those of drives with 10,000 rpm.
fn disk() -> PlatterSpec {
    PlatterSpec {
        sectors: 286_749_479,
        cylinders: 48_624,
        surfaces: 8,
        rotation: Duration::from_nanos(60_000_000_000 / 10_017),
        head_switch: US(165),
        shortest_seek: US(400),
        average_seek: US(4_700),
        is_buffered: false,
    }
}

/// A system of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Pure HDD.
    Disk,
    /// Pure SSD.
    Flash,
    /// SOHO with this critical threshold; requests are blocked while data moves.
    Blocking(u32),
    /// SOHO with this critical threshold; moves are paced.
    Paced(u32),
}

/// SOHO with the text's defaults.
pub const SOHO: System = System::Blocking(DEFAULT_CRITICAL);

impl System {
    /// The name of the system.
    pub fn words(self) -> String {
        match self {
            Self::Disk => "pure HDD".to_owned(),
            Self::Flash => "pure SSD".to_owned(),
            SOHO => "SOHO".to_owned(),
            Self::Blocking(critical) => format!("SOHO, {}", share(critical)),
            Self::Paced(critical) => format!("SOHO, {}, paced", share(critical)),
        }
    }
}

/// A threshold in the text's notation.
pub fn share(permille: u32) -> String {
    format!("{}", f64::from(permille) / 1000.0)
}

/// The input of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// An application.
    Application(Application),
    /// A synthetic trace of requests of this mean, in KB.
    Synthetic(u64),
    /// Data of this number of GiB, which moves in blocks of this number of KB.
    Moved(u64, u64),
}

impl Input {
    /// A description in words.
    pub fn words(self) -> String {
        match self {
            Self::Application(application) => application.words().to_owned(),
            Self::Synthetic(kb) => format!("synthetic, {kb} KB"),
            Self::Moved(gib, kb) => format!("{gib} GB moved in blocks of {kb} KB"),
        }
    }
}

/// A change of one of our choices, to see its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// No change.
    Chosen,
    /// The pure SSD is one package with five times the blocks.
    OnePackage,
    /// All planes work at once.
    Planes,
    /// A bus that is ten times faster.
    FastBus,
    /// A disk that reads ahead and accepts writes before they are on the platters.
    Buffered,
    /// Requests of a quarter of the size.
    SmallRequests,
    /// Requests of four times the size.
    LargeRequests,
    /// Four concurrent requests.
    Deep,
    /// Moves in blocks of 40 KB.
    Blocks40,
    /// Moves in blocks of 4 KB.
    Blocks4,
    /// The coldest data moves, whether it was read through or not.
    ByAge,
}

impl Variant {
    /// The variants that affect the text's measures.
    pub const ALL: [Self; 10] = [
        Self::Chosen,
        Self::OnePackage,
        Self::Planes,
        Self::FastBus,
        Self::Buffered,
        Self::SmallRequests,
        Self::LargeRequests,
        Self::Deep,
        Self::Blocks40,
        Self::Blocks4,
    ];

    /// A description in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Chosen => "as chosen",
            Self::OnePackage => "pure SSD in one package",
            Self::Planes => "16 planes of a package at work at once, instead of 4 dies",
            Self::FastBus => "2.5 ns a byte on a package's bus, instead of 25",
            Self::Buffered => "a disk that reads ahead and writes behind",
            Self::SmallRequests => "requests of 16 KB (DSA), instead of 64",
            Self::LargeRequests => "requests of 256 KB (DSA), instead of 64",
            Self::Deep => "four requests at once, instead of one",
            Self::Blocks40 => "moves in blocks of 40 KB, instead of 400",
            Self::Blocks4 => "moves in blocks of 4 KB, instead of 400",
            Self::ByAge => "the coldest first, read through or not",
        }
    }

    fn block_kb(self) -> u64 {
        match self {
            Self::Blocks40 => 40,
            Self::Blocks4 => 4,
            _ => BLOCK_KB,
        }
    }

    fn request_scale(self) -> (u64, u64) {
        match self {
            Self::SmallRequests => (1, 4),
            Self::LargeRequests => (4, 1),
            _ => (1, 1),
        }
    }
}

/// The parameters of a run without its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The input.
    pub input: Input,
    /// The system.
    pub system: System,
    /// The size of the workshop, in GiB.
    pub ssd_gib: u32,
    /// The changed choice.
    pub variant: Variant,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its parameters.
    pub case: Case,
    /// Its seed.
    pub seed: u64,
    /// The result; for a move, only its time.
    pub outcome: SohoOutcome,
}

/// All runs.
#[derive(Debug)]
pub struct Runs {
    /// True for the quick form.
    pub quick: bool,
    /// All runs.
    pub made: Vec<Made>,
}

impl Runs {
    /// Simulates the evaluation on this number of threads; calls `done` with the number of finished runs and of all
    /// runs. The quick form has one seed, and a sixteenth of the data and of the workshop.
    pub fn new(quick: bool, threads: NonZeroUsize, done: &(dyn Fn(usize, usize) + Sync)) -> Self {
        // Changed choices have only the first seed: choices differ by more than seeds.
        let is_asked = |case: &Case, seed: u64| case.variant == Variant::Chosen || seed == SEEDS[0];
        let with = |seed: &u64| {
            cases().into_iter().filter(|case| is_asked(case, *seed)).map(|case| (case, *seed)).collect::<Vec<_>>()
        };
        let asked: Vec<(Case, u64)> = seeds(quick).iter().flat_map(with).collect();
        let one = |(case, seed): &(Case, u64)| Ok::<SohoOutcome, Infallible>(simulated(*case, *seed, quick));
        let Ok(outcomes) = run_each(&asked, threads, &one, &|count| done(count, asked.len()));
        let made = |((case, seed), outcome)| Made { case, seed, outcome };
        Self { quick, made: asked.into_iter().zip(outcomes).map(made).collect() }
    }

    /// The runs of the first seed.
    pub fn first(&self) -> SeedRuns<'_> {
        SeedRuns { made: &self.made, seed: SEEDS[0] }
    }

    fn each<'a, T: 'a>(&'a self, of: &'a dyn Fn(SeedRuns<'_>) -> T) -> impl Iterator<Item = T> + 'a {
        seeds(self.quick).iter().map(move |seed| of(SeedRuns { made: &self.made, seed: *seed }))
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

    /// The length of the spans for which written bytes are counted.
    pub fn bucket(&self) -> Duration {
        BUCKET / part(self.quick) as u32
    }
}

/// The runs of one seed.
#[derive(Clone, Copy, Debug)]
pub struct SeedRuns<'a> {
    made: &'a [Made],
    seed: u64,
}

impl<'a> SeedRuns<'a> {
    /// The run of this case.
    pub fn at(self, case: Case) -> &'a SohoOutcome {
        let found = self.made.iter().find(|made| made.case == case && made.seed == self.seed);
        let Some(made) = found else { panic!("{case:?} was not simulated") };
        &made.outcome
    }

    /// The run of this input in this system, with Table I's workshop.
    pub fn of(self, input: Input, system: System) -> &'a SohoOutcome {
        self.at(Case { input, system, ssd_gib: SSD_GIB, variant: Variant::Chosen })
    }

    /// The run of an application.
    pub fn app(self, application: Application, system: System) -> &'a SohoOutcome {
        self.of(Input::Application(application), system)
    }

    /// The relative increase of an application's mean response time from `b` to `a`.
    pub fn over(self, application: Application, (a, b): (System, System), variant: Variant) -> f64 {
        let mean = |system| {
            let input = Input::Application(application);
            self.at(Case { input, system, ssd_gib: SSD_GIB, variant: ran_as(variant, system) }).mean_ms()
        };
        mean(a) / mean(b) - 1.0
    }

    /// The same increase as a mean over the applications.
    pub fn over_all(self, systems: (System, System), variant: Variant) -> f64 {
        let shares = Application::ALL.map(|application| self.over(application, systems, variant));
        shares.iter().sum::<f64>() / shares.len() as f64
    }

    /// The time to move this number of GiB in blocks of `kb` KB, in seconds.
    pub fn moved_s(self, gib: u64, kb: u64) -> f64 {
        self.of(Input::Moved(gib, kb), System::Blocking(1)).took.as_secs_f64()
    }
}

fn seeds(quick: bool) -> &'static [u64] {
    if quick { &SEEDS[..1] } else { &SEEDS }
}

fn part(quick: bool) -> u64 {
    if quick { QUICK_PART } else { 1 }
}

/// The variant for a run of a system: a change that does not affect the system counts as no change.
fn ran_as(variant: Variant, system: System) -> Variant {
    use Variant::{Blocks4, Blocks40, Buffered, Chosen, FastBus, OnePackage, Planes};
    let untouched = match system {
        System::Disk => matches!(variant, OnePackage | Planes | FastBus | Blocks40 | Blocks4),
        System::Flash => matches!(variant, Buffered | Blocks40 | Blocks4),
        System::Blocking(_) | System::Paced(_) => variant == OnePackage,
    };
    if untouched { Chosen } else { variant }
}

/// The simulated cases, each once per seed.
fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut ask = |input, systems: &[System], ssd_gib, variant| {
        for system in systems {
            let case = Case { input, system: *system, ssd_gib, variant: ran_as(variant, *system) };
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
    };
    let all = |of: fn(u32) -> System| CRITICAL.map(of);
    for input in Application::ALL.map(Input::Application) {
        ask(input, &[System::Disk, System::Flash], SSD_GIB, Variant::Chosen);
        ask(input, &all(System::Blocking), SSD_GIB, Variant::Chosen);
        ask(input, &all(System::Paced), SSD_GIB, Variant::Chosen);
        for gib in SSDS_GIB {
            ask(input, &[SOHO, System::Paced(DEFAULT_CRITICAL)], gib, Variant::Chosen);
        }
        ask(input, &[System::Paced(CRITICAL[0])], SSD_GIB, Variant::ByAge);
        for variant in Variant::ALL {
            ask(input, &[System::Disk, System::Flash, System::Blocking(CRITICAL[0]), SOHO], SSD_GIB, variant);
        }
    }
    for kb in SIZES_KB {
        ask(Input::Synthetic(kb), &[System::Disk, System::Flash, SOHO], SSD_GIB, Variant::Chosen);
        ask(Input::Synthetic(kb), &[System::Flash], SSD_GIB, Variant::OnePackage);
        for gib in MOVED_GIB {
            ask(Input::Moved(gib, kb), &[System::Blocking(1)], SSD_GIB, Variant::Chosen);
            ask(Input::Moved(gib, kb), &[System::Blocking(1)], SSD_GIB, Variant::Buffered);
        }
    }
    cases
}

fn simulated(case: Case, seed: u64, quick: bool) -> SohoOutcome {
    let part = part(quick);
    match case.input {
        Input::Application(application) => {
            run(&parameters(case, part), &application.load(seed, part, case.variant.request_scale()))
        }
        Input::Synthetic(kb) => {
            let count = SYNTHETIC_REQUESTS / if quick { 4 } else { 1 };
            run(&parameters(case, part), &Load::synthetic(seed, count, kb << 10))
        }
        Input::Moved(gib, _) => {
            let load = Load::written(seed, (gib << 30) / part);
            SohoOutcome { took: move_all(&parameters(case, part), &load), ..SohoOutcome::default() }
        }
    }
}

fn parameters(case: Case, part: u64) -> SohoRun {
    let Case { input, system, ssd_gib, variant } = case;
    let block_kb = if let Input::Moved(_, kb) = input { kb } else { variant.block_kb() };
    let block_bytes = block_kb << 10;
    let mut flash = package();
    flash.unit_blocks = (u64::from(flash.unit_blocks * ssd_gib / SSD_GIB) / part) as u32;
    if variant == Variant::Planes {
        (flash.units, flash.unit_blocks) = (flash.units * 4, flash.unit_blocks / 4);
    }
    if variant == Variant::FastBus {
        flash.byte_ps /= 10;
    }
    if system == System::Flash {
        let packages = if variant == Variant::OnePackage { 1 } else { PACKAGES };
        (flash.packages, flash.unit_blocks) = (packages, flash.unit_blocks * (PACKAGES / packages));
    }
    let staged = match system {
        System::Disk => crate::soho::System::Disk,
        System::Flash => crate::soho::System::Flash,
        // By the text's rule, no data moves below the critical threshold, and above it all data moves.
        System::Blocking(critical_permille) => crate::soho::System::Soho(Staged {
            critical_permille,
            regular_permille: critical_permille,
            drained_permille: 0,
            moves: Moves::Blocking { block_bytes },
        }),
        System::Paced(critical_permille) => crate::soho::System::Soho(Staged {
            critical_permille,
            regular_permille: REGULAR.min(critical_permille),
            drained_permille: REGULAR.min(critical_permille),
            moves: Moves::Paced { block_bytes },
        }),
    };
    SohoRun {
        system: staged,
        flash,
        disk: PlatterSpec { is_buffered: variant == Variant::Buffered, ..disk() },
        overhead: US(100),
        depth: if variant == Variant::Deep { 4 } else { 1 },
        records_reads: variant != Variant::ByAge,
        bucket: BUCKET / part as u32,
    }
}
