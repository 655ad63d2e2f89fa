//! The runs of the evaluation of Serviceable cold storage, each once per seed. Rows and figures share them.

use crate::Sizes;
use crate::cluster::{
    ClientSpec, ClusterOutcome, ClusterRun, CoreSpec, Course, DeviceSpec, FailureSpec, Interval, LINE_TENANT,
    ObjectSpec, ReadsFrom, run,
};
use crate::parallel::run_each;
use crate::reproduce::judge::{Followed, Sample};
use engine::SpinDownPolicy;
use engine::spin_down::NodePolicy;
use engine::thermometer::{Rule, Temperature, Thermometer};
use model::{Distribution, Watts, starts_per_day};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::time::Duration;

/// The seeds of the full form.
pub const SEEDS: [u64; 3] = [1, 2, 3];

/// The load of sections IV-A and IV-B, in requests per second.
pub const NORMAL_PER_S: u32 = 300;
/// The load below which Ceph scrubs by itself (section IV).
pub const LOW_PER_S: u32 = 60;
/// The rates of figure 4.
pub const RATES: [u32; 7] = [100, 200, 300, 400, 500, 600, 700];
/// The rates of figure 4 with a claim in the text.
pub const BOUNDS: [u32; 2] = [600, 700];
/// The threads of section IV.
pub const THREADS: u32 = 32;
/// Threads of figure 4, "various numbers"; our choice.
pub const SWEPT_THREADS: [u32; 3] = [16, THREADS, MOST_THREADS];
/// The maximum of the swept threads.
pub const MOST_THREADS: u32 = 64;
/// The number of hosts, and of drives per host (section II-B).
const HOSTS: u32 = 3;
const DRIVES: u32 = 8;
/// About 30 GB in objects of about 60 KB (section IV).
const OBJECTS: u32 = 500_000;
/// The quick form divides the objects and the time by this number.
const QUICK_PART: u32 = 8;
/// The failure of figure 6: "a temporary performance degradation at 300 s".
pub const FAILS_AT: Duration = Duration::from_mins(5);
/// Calibrated: vanilla's longest request in recovery is 2.3 s (section IV-B).
const PEERING: Duration = Duration::from_millis(2_200);
/// Calibrated: vanilla serves 600 requests per second below 100 ms, but not 700 (figure 4).
const REQUEST: Duration = Duration::from_millis(26);
/// Calibrated: 24 spinning drives draw 124.7 W (section IV-A).
pub const ACTIVE_MW: u32 = 5_196;
/// Calibrated: twelve spinning drives and twelve stopped ones draw 73.8 W (section IV-A).
pub const STANDBY_MW: u32 = 954;
/// The rated starts of a drive, and the intended years of its life (section III-B.3).
pub const RATED_STARTS: u32 = 30_000;
/// See [`RATED_STARTS`].
pub const LIFE_YEARS: u32 = 8;

/// Four reads per write; our choice.
const WRITES_PERMILLE: u32 = 200;

const MS: fn(u64) -> Duration = Duration::from_millis;
const SECONDS: fn(u64) -> Duration = Duration::from_secs;

/// A cluster of section IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 24 OSDs.
    Vanilla,
    /// 12 OSDs with one drive, and 6 cold ones with two drives.
    Cold6,
    /// 12 cold OSDs.
    Cold12,
}

impl Kind {
    /// All three clusters.
    pub const ALL: [Self; 3] = [Self::Vanilla, Self::Cold6, Self::Cold12];

    /// The name of the cluster.
    pub fn words(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Cold6 => "cold-6",
            Self::Cold12 => "cold-12",
        }
    }

    fn cold_osds(self) -> u32 {
        match self {
            Self::Vanilla => 0,
            Self::Cold6 => 2,
            Self::Cold12 => 4,
        }
    }
}

/// The load and the events of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// This number of requests per second, from this number of threads.
    Load(u32, u32),
    /// The normal load for a longer time.
    Normal,
    /// The normal load with a failing OSD.
    Failure,
    /// The maximum rate of the threads, with deep scrubs of all groups.
    Scrub,
    /// The same scrubs at the load at which Ceph scrubs by itself.
    LowScrub,
}

impl Scene {
    /// A description in words.
    pub fn words(self) -> String {
        match self {
            Self::Load(rate, threads) => format!("{rate}/s of {threads} threads"),
            Self::Normal => "normal load".to_owned(),
            Self::Failure => "an OSD fails".to_owned(),
            Self::Scrub => "scrub at full load".to_owned(),
            Self::LowScrub => "scrub at low load".to_owned(),
        }
    }
}

/// A change of one of our choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// No change.
    Chosen,
    /// Fewer writes.
    FewWrites,
    /// More writes.
    ManyWrites,
    /// Half of the processors, each twice as fast.
    FewCores,
    /// Drives limit vanilla's rate, instead of processors.
    SlowDrives,
    /// The records of a drive are close to its objects.
    NearRecords,
    /// Every copy that may be cold is cold when the run begins.
    AllMoved,
    /// The second replica stays hot as well.
    SecondHot,
    /// Reads go to any replica.
    AnyReplica,
}

impl Variant {
    /// The variants that change the time of a request.
    pub const LATENCY: [Self; 6] =
        [Self::Chosen, Self::FewWrites, Self::ManyWrites, Self::FewCores, Self::SlowDrives, Self::NearRecords];
    /// The variants that change which requests wait for a cold drive.
    pub const RECOVERY: [Self; 3] = [Self::Chosen, Self::AllMoved, Self::SecondHot];

    /// A description in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Chosen => "as chosen",
            Self::FewWrites => "a write in 20 requests, instead of 5",
            Self::ManyWrites => "a write in 3 requests, instead of 5",
            Self::FewCores => "4 processors of a host, twice as fast, instead of 8",
            Self::SlowDrives => "slow drives bound vanilla's rate, instead of processors",
            Self::NearRecords => "records beside the objects, instead of in the middle of the drive",
            Self::AllMoved => "all that is older than two minutes has moved, instead of the oldest 92 %",
            Self::SecondHot => "the second replica stays hot as well",
            Self::AnyReplica => "reads from any replica, instead of the primary",
        }
    }

    fn apply(self, run: &mut ClusterRun) {
        // Vanilla's rate stays as calibrated: a write takes processor time of three hosts.
        match self {
            Self::Chosen => {}
            Self::FewWrites => (run.clients.writes_permille, run.cores.request) = (50, Duration::from_micros(33_100)),
            Self::ManyWrites => (run.clients.writes_permille, run.cores.request) = (333, Duration::from_micros(21_800)),
            Self::FewCores => (run.cores.cores, run.cores.request) = (run.cores.cores / 2, run.cores.request / 2),
            Self::SlowDrives => (run.device.average_seek, run.cores.request) = (MS(24), MS(5)),
            Self::NearRecords => run.device.average_seek = run.device.shortest_seek,
            Self::AllMoved => run.objects.scrubbed_permille = 1000,
            Self::SecondHot => run.second_stays_hot = true,
            Self::AnyReplica => run.clients.reads_from = ReadsFrom::Any,
        }
    }
}

/// The parameters of a run without its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The cluster.
    pub kind: Kind,
    /// The load and the events.
    pub scene: Scene,
    /// The changed choice.
    pub variant: Variant,
}

impl Case {
    fn chosen(kind: Kind, scene: Scene) -> Self {
        Self { kind, scene, variant: Variant::Chosen }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its parameters.
    pub case: Case,
    /// Its seed.
    pub seed: u64,
    /// The result.
    pub outcome: ClusterOutcome,
}

/// All runs.
#[derive(Clone, Debug)]
pub struct Runs {
    /// True for the quick form.
    pub quick: bool,
    /// All runs.
    pub made: Vec<Made>,
}

impl Runs {
    /// Simulates the evaluation on this number of threads; calls `done` with the number of finished runs and of all
    /// runs. The quick form has one seed, and an eighth of the objects and of the time.
    pub fn new(quick: bool, threads: NonZeroUsize, done: &(dyn Fn(usize, usize) + Sync)) -> Self {
        // Runs with a changed choice, and the curves of a figure, have only the first seed.
        let is_asked = |case: &Case, seed: u64| {
            let is_curve = matches!(case.scene, Scene::Load(rate, threads) if !is_bound(rate, threads));
            seed == SEEDS[0] || case.variant == Variant::Chosen && !is_curve
        };
        let with = |seed: &u64| {
            cases(quick).into_iter().filter(|case| is_asked(case, *seed)).map(|case| (case, *seed)).collect::<Vec<_>>()
        };
        let mut asked: Vec<(Case, u64)> = seeds(quick).iter().flat_map(with).collect();
        // The longest runs come first, so no thread is left with a long one at the end.
        asked.sort_by_key(|(case, _)| match case.scene {
            Scene::Scrub => 0,
            Scene::LowScrub => 1,
            Scene::Failure => 2,
            Scene::Normal => 3,
            Scene::Load(..) => 4,
        });
        let one = |(case, seed): &(Case, u64)| Ok::<ClusterOutcome, Infallible>(run(&parameters(*case, *seed, quick)));
        let Ok(outcomes) = run_each(&asked, threads, &one, &|count| done(count, asked.len()));
        let made = |((case, seed), outcome)| Made { case, seed, outcome };
        Self { quick, made: asked.into_iter().zip(outcomes).map(made).collect() }
    }

    /// The runs of the first seed.
    pub fn first(&self) -> SeedRuns<'_> {
        SeedRuns { made: &self.made, seed: SEEDS[0] }
    }

    /// The run of vanilla at this rate and with this number of threads under the first seed, if it was made.
    pub fn swept(&self, rate: u32, threads: u32) -> Option<&ClusterOutcome> {
        let case = Case::chosen(Kind::Vanilla, Scene::Load(rate, threads));
        self.made.iter().find(|made| made.case == case && made.seed == SEEDS[0]).map(|made| &made.outcome)
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
}

/// The runs of one seed.
#[derive(Clone, Copy, Debug)]
pub struct SeedRuns<'a> {
    made: &'a [Made],
    seed: u64,
}

impl<'a> SeedRuns<'a> {
    /// The run of this case.
    pub fn at(self, kind: Kind, scene: Scene, variant: Variant) -> &'a ClusterOutcome {
        let case = Case { kind, scene, variant };
        let found = self.made.iter().find(|made| made.case == case && made.seed == self.seed);
        let Some(made) = found else { panic!("{case:?} was not simulated") };
        &made.outcome
    }

    /// The run with all choices unchanged.
    pub fn of(self, kind: Kind, scene: Scene) -> &'a ClusterOutcome {
        self.at(kind, scene, Variant::Chosen)
    }

    /// The difference between the median of a cluster's mean times and vanilla's, in milliseconds.
    pub fn added_ms(self, kind: Kind, variant: Variant) -> f64 {
        let median = |kind| self.at(kind, Scene::Normal, variant).median_mean_ms();
        median(kind) - median(Kind::Vanilla)
    }

    /// The intervals from the failure to the end of the recovery.
    pub fn in_recovery(self, kind: Kind) -> &'a [Interval] {
        let outcome = self.of(kind, Scene::Failure);
        let to = outcome.recovered.map_or(outcome.intervals.len(), |recovered| interval_of(recovered.as_secs_f64()));
        &outcome.intervals[interval_of(FAILS_AT.as_secs_f64())..to.min(outcome.intervals.len())]
    }
}

/// The length of an interval.
pub const INTERVAL: Duration = Duration::from_secs(10);

fn interval_of(seconds: f64) -> usize {
    (seconds / INTERVAL.as_secs_f64()) as usize
}

fn seeds(quick: bool) -> &'static [u64] {
    if quick { &SEEDS[..1] } else { &SEEDS }
}

fn is_bound(rate: u32, threads: u32) -> bool {
    rate == LOW_PER_S || threads == MOST_THREADS && BOUNDS.contains(&rate)
}

/// The simulated cases, each once per seed.
fn cases(quick: bool) -> Vec<Case> {
    let mut cases = vec![Case::chosen(Kind::Vanilla, Scene::Load(LOW_PER_S, THREADS))];
    for threads in SWEPT_THREADS {
        let rates = RATES.iter().filter(|rate| !quick || is_bound(**rate, threads) || threads == THREADS);
        cases.extend(rates.map(|rate| Case::chosen(Kind::Vanilla, Scene::Load(*rate, threads))));
    }
    for kind in Kind::ALL {
        cases.extend([Scene::Scrub, Scene::LowScrub].map(|scene| Case::chosen(kind, scene)));
        cases.extend(Variant::LATENCY.map(|variant| Case { kind, scene: Scene::Normal, variant }));
        let is_cold = |variant: &Variant| kind != Kind::Vanilla || *variant == Variant::Chosen;
        let recovery = Variant::RECOVERY.into_iter().filter(is_cold);
        cases.extend(recovery.map(|variant| Case { kind, scene: Scene::Failure, variant }));
    }
    for variant in Variant::LATENCY.into_iter().skip(1) {
        cases.push(Case { kind: Kind::Vanilla, scene: Scene::Load(BOUNDS[1], MOST_THREADS), variant });
    }
    cases.push(Case { kind: Kind::Cold12, scene: Scene::Normal, variant: Variant::AnyReplica });
    cases
}

/// LINE's rule (section III-B.1): older than two minutes and larger than 10 KB. Data of other tenants is never cold.
fn line_rule() -> Thermometer {
    let line = Rule {
        name: "LINE".to_owned(),
        is: Temperature::Cold,
        bucket: Some(LINE_TENANT.to_owned()),
        larger_than_bytes: Some(10_000),
        older_than: SECONDS(120),
        ..Rule::default()
    };
    Thermometer { rules: vec![line], default: Temperature::Hot }
}

fn node() -> NodePolicy {
    NodePolicy {
        idle_timer: Duration::ZERO,
        down_out_interval: SECONDS(600),
        grace: SECONDS(60),
        starts_per_day: starts_per_day(RATED_STARTS, LIFE_YEARS),
        spin_down: SpinDownPolicy { min_gap: Duration::ZERO, keeps_exhausted: true },
    }
}

/// A drive of 4 TB (section IV) that draws 5.2 W. Its other properties are our choice.
fn device() -> DeviceSpec {
    DeviceSpec {
        capacity_bytes: 4_000_000_000_000,
        shortest_seek: MS(1),
        average_seek: MS(10),
        rotation: Duration::from_micros(11_111),
        rate_bytes_s: 150_000_000,
        // "Typically approximately 10 s" (section II-A).
        spin_up: Distribution { min: MS(9_500), max: MS(10_500), draws: 1, stragglers: None },
        watts: Watts { standby_mw: STANDBY_MW, spin_up_mw: 10_000, active_mw: ACTIVE_MW },
    }
}

fn parameters(case: Case, seed: u64, quick: bool) -> ClusterRun {
    let Case { kind, scene, variant } = case;
    let part = if quick { QUICK_PART } else { 1 };
    let (rate, threads) = match scene {
        Scene::Load(rate, threads) => (Some(rate), threads),
        Scene::Normal | Scene::Failure => (Some(NORMAL_PER_S), THREADS),
        Scene::Scrub => (None, THREADS),
        Scene::LowScrub => (Some(LOW_PER_S), THREADS),
    };
    let course = match scene {
        Scene::Load(..) => Course::Normal(SECONDS(600) / part),
        Scene::Normal => Course::Normal(SECONDS(3_600) / part),
        Scene::Failure => {
            Course::Failure(FailureSpec { at: FAILS_AT, peering: PEERING, pace: MS(100), longest: SECONDS(14_400) })
        }
        Scene::Scrub | Scene::LowScrub => Course::Scrub,
    };
    let mut run = ClusterRun {
        hosts: HOSTS,
        drives: DRIVES,
        cold_osds: kind.cold_osds(),
        groups: 1_024,
        objects: ObjectSpec {
            stored: OBJECTS / part,
            sizes: Sizes::Spread { min: 2_000, max: 170_000, mean: 60_000 },
            written_every_ms: 1_000_000 / u64::from(NORMAL_PER_S * WRITES_PERMILLE),
            scrubbed_permille: if matches!(course, Course::Scrub) { 0 } else { 920 },
            newest_permille: 80,
            newest_reads_permille: 998,
        },
        clients: ClientSpec {
            threads,
            target_per_s: rate,
            writes_permille: WRITES_PERMILLE,
            reads_from: ReadsFrom::Primary,
        },
        cores: CoreSpec { cores: 8, request: REQUEST, background: MS(5) },
        device: device(),
        message: Duration::from_micros(200),
        network_bytes_s: 117_000_000,
        thermometer: line_rule(),
        second_stays_hot: false,
        node: node(),
        tick: SECONDS(5),
        scrub_chunk: 25,
        course,
        interval: INTERVAL,
        seed,
    };
    variant.apply(&mut run);
    run
}
