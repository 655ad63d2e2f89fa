//! The rows: each claim of the text with the results of the runs.

use super::paper;
use super::runs::{
    ACTIVE_MW, BOUNDS, FAILS_AT, INTERVAL, Kind, LIFE_YEARS, LOW_PER_S, MOST_THREADS, NORMAL_PER_S, RATED_STARTS, Runs,
    STANDBY_MW, Scene, SeedRuns, THREADS, Variant,
};
use crate::cluster::{ClusterOutcome, Interval};
use crate::report::short;
use crate::reproduce::judge::{Claim, Row};
use crate::reproduce::sweep::most;
use Kind::{Cold6, Cold12, Vanilla};
use model::{Time, starts_per_day};

/// All rows, in the order of the text.
pub fn rows(runs: &Runs) -> Vec<Row> {
    let parts = [node, bounds, power, latency, failure, tails, recovery, migration, contradictions];
    parts.iter().flat_map(|part| part(runs)).collect()
}

fn watts(milliwatts: u64) -> f64 {
    milliwatts as f64 / 1e3
}

fn mean_ms(outcome: &ClusterOutcome) -> f64 {
    outcome.latency.mean_s().unwrap_or(f64::NAN) * 1e3
}

fn longest_s(outcome: &ClusterOutcome) -> f64 {
    outcome.latency.max_s().unwrap_or(f64::NAN)
}

fn node(runs: &Runs) -> Vec<Row> {
    let share = runs.first().at(Cold12, Scene::Normal, Variant::AnyReplica);
    vec![
        paper::STARTS.judge(f64::from(starts_per_day(RATED_STARTS, LIFE_YEARS))),
        paper::REDIRECTS
            .judge(share.redirected as f64 / share.reads as f64 * 100.0)
            .noted("\"rarely\" is below 1 %; cold-12, with one seed")
            .noted(format!("{} accesses to cold drives", share.cold_accesses)),
    ]
}

fn bounds(runs: &Runs) -> Vec<Row> {
    let [held, not_held] = BOUNDS;
    let low = |of: SeedRuns<'_>| of.of(Vanilla, Scene::Load(LOW_PER_S, THREADS)).load;
    vec![
        paper::RATE_600.judge(runs.sample(|of| mean_ms(swept(of, held)))).noted(format!("{MOST_THREADS} threads")),
        paper::RATE_700.judge(runs.sample(|of| swept(of, not_held).throughput())),
        paper::LOAD_LOW.open(
            short(runs.mean(low)),
            "requests that wait for or have a processor or a drive; divided by 8 processors a third of the text's",
        ),
    ]
}

fn swept(of: SeedRuns<'_>, rate: u32) -> &ClusterOutcome {
    of.of(Vanilla, Scene::Load(rate, MOST_THREADS))
}

fn power(runs: &Runs) -> Vec<Row> {
    let drawn = |kind| runs.sample(move |of| watts(of.of(kind, Scene::Normal).draw_mw));
    let saved = |kind| {
        runs.sample(move |of| {
            let draw = |kind| of.of(kind, Scene::Normal).draw_mw as f64;
            (1.0 - draw(kind) / draw(Vanilla)) * 100.0
        })
    };
    let touched = |of: SeedRuns<'_>| {
        let cold = |kind| of.of(kind, Scene::Normal);
        [Cold6, Cold12].map(|kind| cold(kind).cold_accesses + cold(kind).starts).iter().sum::<u64>() as f64
    };
    let read = runs.first().of(Cold12, Scene::Normal).reads;
    vec![
        paper::POWER_VANILLA.judge(drawn(Vanilla)),
        paper::POWER_COLD_6.judge(drawn(Cold6)).noted("18 drives that spin and six that do not"),
        paper::POWER_COLD_12.judge(drawn(Cold12)),
        paper::SAVED_COLD_6.judge(saved(Cold6)),
        paper::SAVED_COLD_12.judge(saved(Cold12)),
        paper::UNTOUCHED.judge(runs.sample(touched)).noted(format!("cold-12 alone has {read} reads with one seed")),
    ]
}

fn latency(runs: &Runs) -> Vec<Row> {
    let added = |kind| runs.sample(move |of| of.added_ms(kind, Variant::Chosen));
    let mean = |kind| runs.sample(move |of| mean_ms(of.of(kind, Scene::Normal)));
    let rises = |of: SeedRuns<'_>| {
        let means = Kind::ALL.map(|kind| mean_ms(of.of(kind, Scene::Normal)));
        means.is_sorted_by(|a, b| a < b)
    };
    let slow = |kind| format!("{:.1} ms if drives bound what vanilla holds", added_by(runs, kind, Variant::SlowDrives));
    let shown = Kind::ALL.map(|kind| format!("{:.1}", runs.mean(|of| mean_ms(of.of(kind, Scene::Normal)))));
    vec![
        paper::HELD.judge(runs.sample(|of| of.of(Cold12, Scene::Normal).throughput())),
        paper::ADDED_COLD_6.judge(added(Cold6)).noted(slow(Cold6)).noted(
            "with a quarter of the drives gone waits grow by a good quarter of what they do with half of them gone",
        ),
        paper::ADDED_COLD_12.judge(added(Cold12)).noted(slow(Cold12)),
        paper::MEAN_COLD_6.judge(mean(Cold6)),
        paper::MEAN_COLD_12.judge(mean(Cold12)),
        paper::RISES.seen(runs.follows(rises), format!("{} ms", shown.join(", "))),
    ]
}

fn added_by(runs: &Runs, kind: Kind, variant: Variant) -> f64 {
    runs.first().added_ms(kind, variant)
}

/// The number of the interval in which the OSD fails.
fn failing() -> usize {
    (FAILS_AT.as_secs_f64() / INTERVAL.as_secs_f64()) as usize
}

fn failure(runs: &Runs) -> Vec<Row> {
    /// Performance falls if requests take longer by this factor.
    const FALLS: f64 = 1.1;
    let dips = |of: SeedRuns<'_>| {
        Kind::ALL.into_iter().all(|kind| {
            let intervals = &of.of(kind, Scene::Failure).intervals;
            let before = intervals[failing() - 1].mean_ms();
            let late = &intervals[failing() + 6..];
            let rate = late.iter().map(|of| of.ended).sum::<u64>() as f64 / late.len() as f64 / INTERVAL.as_secs_f64();
            let is_back = (rate / f64::from(NORMAL_PER_S) - 1.0).abs() < 0.01;
            intervals[failing()].mean_ms() > FALLS * before && is_back
        })
    };
    let shown = Kind::ALL.map(|kind| {
        let intervals = &runs.first().of(kind, Scene::Failure).intervals;
        let [before, at] = [failing() - 1, failing()].map(|at| intervals[at].mean_ms());
        format!("{} {before:.0} to {at:.0} ms", kind.words())
    });
    vec![
        paper::WORST_VANILLA.judge(runs.sample(|of| longest_s(of.of(Vanilla, Scene::Failure)))),
        paper::DIP
            .seen(runs.follows(dips), shown.join(", "))
            .noted("mean times of the 10 s before and after; a minute later 300 a second are served again"),
    ]
}

/// The number of a cluster's requests that were slower than vanilla's slowest, and the number of all its requests.
fn slower(of: SeedRuns<'_>, kind: Kind, variant: Variant) -> (u64, u64) {
    let outcome = of.at(kind, Scene::Failure, variant);
    let worst_s = longest_s(of.of(Vanilla, Scene::Failure));
    (outcome.slower_than(worst_s), outcome.latency.count())
}

fn tails(runs: &Runs) -> Vec<Row> {
    /// The length of a run that ends soon after the failure.
    const SHORT_S: f64 = 600.0;
    let share = |kind| {
        runs.sample(move |of| {
            let (slower, all) = slower(of, kind, Variant::Chosen);
            (1.0 - slower as f64 / all as f64) * 100.0
        })
    };
    let counts = |kind| {
        let (slower, all) = slower(runs.first(), kind, Variant::Chosen);
        let span_s = runs.first().of(kind, Scene::Failure).span.as_secs_f64();
        let short = (1.0 - slower as f64 / (f64::from(NORMAL_PER_S) * SHORT_S)) * 100.0;
        format!(
            "{slower} of {all} in {span_s:.0} s with one seed; the text does not say in how long: of {SHORT_S:.0} s it \
             would be {short:.3} %"
        )
    };
    let ratio = |of: SeedRuns<'_>| {
        let [six, twelve] = [Cold6, Cold12].map(|kind| slower(of, kind, Variant::Chosen).0 as f64);
        twelve / six
    };
    let quantile = |claim: Claim, kind: Kind, quantile: f64| {
        let of = move |of: SeedRuns<'_>| of.of(kind, Scene::Failure).latency.quantile_s(quantile).unwrap_or(f64::NAN);
        claim.judge(runs.sample(of)).noted("follows from how many requests it is counted over")
    };
    let longest = |kind| runs.sample(move |of| longest_s(of.of(kind, Scene::Failure)));
    vec![
        paper::TAIL_COLD_6.judge(share(Cold6)).noted(counts(Cold6)),
        paper::TAIL_COLD_12.judge(share(Cold12)).noted(counts(Cold12)),
        paper::TAIL_RATIO.judge(runs.sample(ratio)).noted("of as many requests the ratio does not depend on the span"),
        quantile(paper::P9999_COLD_6, Cold6, 0.9999),
        quantile(paper::P9999_COLD_12, Cold12, 0.9999),
        quantile(paper::P99999_COLD_6, Cold6, 0.99999),
        quantile(paper::P99999_COLD_12, Cold12, 0.99999),
        paper::MAX_COLD_6.judge(longest(Cold6)).noted("a start takes 9.5 to 10.5 s; the text says 10 s"),
        paper::MAX_COLD_12.judge(longest(Cold12)),
    ]
}

fn recovery(runs: &Runs) -> Vec<Row> {
    let mean = |of: SeedRuns<'_>, kind| {
        let intervals = of.in_recovery(kind);
        intervals.iter().map(|one| watts(one.draw_mw)).sum::<f64>() / intervals.len() as f64
    };
    let highest = |of: SeedRuns<'_>, kind| most(of.in_recovery(kind).iter().map(|one| watts(one.draw_mw)));
    let woken = |kind| {
        let outcome = runs.first().of(kind, Scene::Failure);
        format!("{} drives were woken, with {} starts", outcome.woken, outcome.starts)
    };
    let returns = |of: SeedRuns<'_>| {
        [Cold6, Cold12].into_iter().all(|kind| {
            let outcome = of.of(kind, Scene::Failure);
            let (first, last) = (&outcome.intervals[0], outcome.intervals.last());
            outcome.asleep.is_some() && last.is_some_and(|last| last.draw_mw == first.draw_mw)
        })
    };
    let back = [Cold6, Cold12].map(|kind| {
        let outcome = runs.first().of(kind, Scene::Failure);
        let [recovered, asleep] = [outcome.recovered, outcome.asleep].map(|at| at.map_or(f64::NAN, Time::as_secs_f64));
        format!("{} {:.0} s after", kind.words(), asleep - recovered)
    });
    let moved = [Cold6, Cold12].map(|kind| {
        let [chosen, all] = [Variant::Chosen, Variant::AllMoved].map(|variant| slower(runs.first(), kind, variant).0);
        format!("{} {chosen}, then {all}", kind.words())
    });
    let hot = |of: SeedRuns<'_>| [Cold6, Cold12].map(|kind| longest_s(of.at(kind, Scene::Failure, Variant::SecondHot)));
    let is_shorter = |of: SeedRuns<'_>| {
        let chosen = [Cold6, Cold12].map(|kind| longest_s(of.of(kind, Scene::Failure)));
        hot(of).iter().zip(chosen).all(|(hot, chosen)| *hot < chosen)
    };
    let each_w = f64::from(ACTIVE_MW - STANDBY_MW) / 1e3;
    let second = runs.first();
    vec![
        paper::RECOVERY_VANILLA
            .judge(runs.sample(|of| mean(of, Vanilla)))
            .noted("the failed OSD's drive keeps its power; without it 119.5 W"),
        paper::RECOVERY_COLD_6
            .judge(runs.sample(|of| mean(of, Cold6)))
            .noted(woken(Cold6))
            .noted(format!("at most {:.1} W in 10 s", runs.mean(|of| highest(of, Cold6)))),
        paper::RECOVERY_COLD_12.judge(runs.sample(|of| highest(of, Cold12))).noted(woken(Cold12)).noted(format!(
            "\"up to\": the most of 10 s; {:.1} W on average. 17.6 W more than before are {:.1} drives of {each_w:.2} \
             W; the failed OSD was the primary for groups of all eight on the other hosts, and all eight are read, or \
             these draw 2.2 W more when they turn and do little, not {each_w:.2}",
            runs.mean(|of| mean(of, Cold12)),
            17.6 / each_w
        )),
        paper::BACK
            .seen(runs.follows(returns), back.join(", "))
            .noted("the idle timer is the down-out interval of 600 s and 60 s of grace, from a drive's last use"),
        paper::ALL_MOVED.open(moved.join("; "), "with one seed"),
        paper::SECOND_HOT
            .seen(is_shorter(second), hot(second).map(|seconds| format!("{seconds:.1} s")).join(", "))
            .noted("cold-6 and cold-12, with one seed; nobody waits for a cold drive"),
    ]
}

fn migration(runs: &Runs) -> Vec<Row> {
    let least = |kind| {
        runs.sample(move |seed| {
            let rates = later(seed, kind).iter().map(|one| one.ended as f64 / INTERVAL.as_secs_f64());
            rates.fold(f64::INFINITY, f64::min)
        })
    };
    let longest = |kind| runs.sample(move |seed| most(later(seed, kind).iter().map(Interval::mean_ms)));
    let ended_s = |outcome: &ClusterOutcome| outcome.scrub.ended.map_or(f64::NAN, Time::as_secs_f64);
    let longer = |seed: SeedRuns<'_>| {
        let runs = Kind::ALL.map(|kind| seed.of(kind, Scene::Scrub));
        let rates = runs.map(ClusterOutcome::throughput);
        runs.map(ended_s).is_sorted_by(|a, b| a < b) && rates.is_sorted_by(|a, b| a > b)
    };
    let shown = Kind::ALL.map(|kind| {
        let outcome = runs.first().of(kind, Scene::Scrub);
        format!("{} {:.0} s, {:.0}/s", kind.words(), ended_s(outcome), outcome.throughput())
    });
    let rate = |scene| {
        runs.mean(|of| {
            let outcome = of.of(Cold12, scene);
            outcome.scrub.migrated as f64 / ended_s(outcome)
        })
    };
    let power = |of: SeedRuns<'_>| watts(of.of(Cold12, Scene::Scrub).draw_mw);
    let asleep = "between groups some drives stop, as the text expects of a migration under normal load";
    vec![
        paper::MIGRATION_COLD_6.judge(least(Cold6)),
        paper::MIGRATION_COLD_12.judge(least(Cold12)),
        paper::MIGRATING_COLD_6.judge(longest(Cold6)),
        paper::MIGRATING_COLD_12.judge(longest(Cold12)),
        paper::SCRUB_LONGER.seen(runs.follows(longer), shown.join(", ")),
        paper::MIGRATION_POWER.judge(runs.sample(power)).noted(asleep),
        paper::LOW_SCRUB.judge(runs.sample(|of| mean_ms(of.of(Cold12, Scene::LowScrub)))),
        paper::MIGRATION_RATE.open(
            format!("{:.0}/s, {:.0}/s", rate(Scene::LowScrub), rate(Scene::Scrub)),
            "two copies of each object, one of each group of an OSD at a time",
        ),
    ]
}

/// The intervals of a scrub without the first, in which all commands start at the same time.
fn later(of: SeedRuns<'_>, kind: Kind) -> &[Interval] {
    &of.of(kind, Scene::Scrub).intervals[1..]
}

fn contradictions(runs: &Runs) -> Vec<Row> {
    let added = [Cold6, Cold12].map(|kind| format!("{:.1}", runs.mean(|of| of.added_ms(kind, Variant::Chosen))));
    let before = runs.mean(|of| watts(of.of(Cold6, Scene::Failure).intervals[0].draw_mw));
    vec![
        paper::NEWEST.contradiction(
            "99.8 %".to_owned(),
            "the introduction has 99.7 % of a previous study, sections II-C and IV 99.8 %".to_owned(),
        ),
        paper::ADDED.contradiction(
            format!("{} ms", added.join(" and ")),
            "\"10 to 20 ms\" of added latency in section IV-A; 23.6 ms of cold-12 in the abstract are more".to_owned(),
        ),
        paper::BEFORE.contradiction(
            format!("{before:.1} W"),
            "105 W before the failure in section IV-B, 100.6 W of the same cluster under the same load in IV-A"
                .to_owned(),
        ),
        paper::ASLEEP.contradiction(
            format!("{:.2} W", f64::from(STANDBY_MW) / 1e3),
            "(100.6 - 18 x 5.196) / 6 = 1.18 W; (73.8 - 12 x 5.196) / 12 = 0.95 W".to_owned(),
        ),
    ]
}
