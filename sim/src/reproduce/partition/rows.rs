//! The rows: each claim of the text beside the results of the runs.

use super::apart::{Apart, beside};
use super::paper;
use super::runs::{CROSSING_GB, Job, PAPERS, Runs, Sweep};
use crate::repartition::{Method, Repartitioned};
use crate::report::short;
use crate::reproduce::judge::{Claim, NEAR, Row, Verdict};
use crate::reproduce::sweep::{STEP, from_to, range, spread};
use Method::{Baseline, Buffpack, Offpack, Tourpack};

/// All rows, in the order of the text.
pub fn rows(runs: &Runs) -> Vec<Row> {
    let parts = [defaults, data, buffer, groups, latency, models, skew, disks, contradictions, errors, ours];
    parts.iter().flat_map(|part| part(runs)).collect()
}

fn hours(job: &Job) -> f64 {
    job.point.hours
}

/// The fastest of the paper's three at a value.
fn fastest(runs: &Runs, sweep: Sweep, x: f64, of: impl Fn(&Repartitioned) -> f64) -> Method {
    let time = |method: &Method| of(&runs.at(sweep, *method, x).point);
    PAPERS.into_iter().min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(Baseline)
}

fn defaults(runs: &Runs) -> Vec<Row> {
    let took = |claim: &Claim, method| claim.judge(hours(runs.default(method)));
    let switched = |claim: &Claim, method| claim.judge(runs.default(method).point.switches);
    let best = hours(runs.default(Buffpack)).min(hours(runs.default(Offpack)));
    vec![
        took(&paper::BASELINE_HOURS, Baseline),
        took(&paper::BUFFPACK_HOURS, Buffpack),
        took(&paper::OFFPACK_HOURS, Offpack),
        switched(&paper::BASELINE_SWITCHES, Baseline),
        switched(&paper::BUFFPACK_SWITCHES, Buffpack),
        switched(&paper::OFFPACK_SWITCHES, Offpack)
            .noted("(7) counts all of the output; (K - 1) / K of it is carried: 11,458"),
        paper::GAIN.judge(hours(runs.default(Baseline)) / best),
    ]
}

fn data(runs: &Runs) -> Vec<Row> {
    let per_tb = |method| range(runs.of(Sweep::Data, method).map(|job| hours(job) / job.x));
    let (_, worst) = range(PAPERS.map(|method| spread(per_tb(method))));
    let fastest: Vec<Method> =
        runs.values(Sweep::Data).iter().map(|x| fastest(runs, Sweep::Data, *x, |point| point.hours)).collect();
    let same = fastest.iter().all(|method| *method == fastest[0]);
    vec![
        paper::DATA_LINEAR.seen(worst <= NEAR, format!("h/TB differ by {:.1} % at most", worst * 100.0)),
        paper::DATA_CHOICE.seen(same, format!("{} at {} sizes", fastest[0].word(), fastest.len())),
    ]
}

/// The buffer at which BuffPack becomes faster than OffPack, in GB: along a straight line between the values around it.
fn crossing(runs: &Runs) -> Option<f64> {
    let gap = |x: f64| hours(runs.at(Sweep::Memory, Buffpack, x)) - hours(runs.at(Sweep::Memory, Offpack, x));
    let values = runs.values(Sweep::Memory);
    let crosses = values.windows(2).find(|pair| gap(pair[0]) > 0.0 && gap(pair[1]) <= 0.0)?;
    let (low, high) = (gap(crosses[0]), gap(crosses[1]));
    Some(crosses[0] + (crosses[1] - crosses[0]) * low / (low - high))
}

fn buffer(runs: &Runs) -> Vec<Row> {
    let times_memory = |method| spread(range(runs.of(Sweep::Memory, method).map(|job| job.point.switches * job.x)));
    let spreads = PAPERS.map(|method| format!("{} {:.1} %", method.word(), times_memory(method) * 100.0));
    let inverse = PAPERS.iter().all(|method| times_memory(*method) <= NEAR);
    let at = |method, x| hours(runs.at(Sweep::Memory, method, x));
    let values = runs.values(Sweep::Memory);
    // At the crossing itself neither is faster.
    let small: Vec<f64> = values.iter().copied().filter(|x| *x < CROSSING_GB - 1.0).collect();
    let large: Vec<f64> = values.iter().copied().filter(|x| *x > CROSSING_GB + 1.0).collect();
    let wins = |x: &&f64| fastest(runs, Sweep::Memory, **x, |point| point.hours) == Offpack;
    let slower = |x: &&f64| at(Offpack, **x) > at(Buffpack, **x);
    let over = range(values.iter().map(|x| at(Baseline, *x) / at(Buffpack, *x)));
    let crosses = crossing(runs).unwrap_or(f64::NAN);
    let count = |some: usize, of: usize| format!("at {some} of {of} buffers");
    vec![
        paper::SWITCHES_INVERSE.seen(inverse, format!("switches x buffer differ by {}", spreads.join(", "))).noted(
            "OffPack carries what a run has left over in less than a full buffer, and large buffers leave few runs",
        ),
        paper::CROSSOVER.judge(crosses),
        paper::CROSSOVER_DERIVED.judge(crosses),
        paper::SMALL_BUFFERS
            .seen(small.iter().all(|x| wins(&x)), count(small.iter().filter(wins).count(), small.len())),
        paper::LARGE_BUFFERS
            .seen(large.iter().all(|x| slower(&x)), count(large.iter().filter(slower).count(), large.len())),
        paper::BASELINE_INFERIOR.seen(over.0 > 1.0, format!("{} times BuffPack's time", from_to(over))),
    ]
}

fn groups(runs: &Runs) -> Vec<Row> {
    let values = runs.values(Sweep::Groups);
    let (Some(few), Some(many)) = (values.first().copied(), values.last().copied()) else { return Vec::new() };
    let at = |method, x| hours(runs.at(Sweep::Groups, method, x));
    let grows = |method| at(method, many) / at(method, few);
    let growths = PAPERS.map(|method| format!("{} {}x", method.word(), short(grows(method))));
    let slopes =
        |method| range(values.windows(2).map(|pair| (at(method, pair[1]) - at(method, pair[0])) / (pair[1] - pair[0])));
    let linear = [Baseline, Buffpack].map(|method| spread(slopes(method)));
    vec![
        paper::GROUPS_OFFPACK
            .seen(
                grows(Offpack) < grows(Buffpack).min(grows(Baseline)),
                format!("from {few} to {many}: {}", growths.join(", ")),
            )
            .noted("most of OffPack's growth is that 1/K of the output is home at once"),
        paper::GROUPS_LINEAR.seen(
            linear.iter().all(|spread| *spread <= 2.0 * NEAR),
            format!("h a group differ by {:.1} and {:.1} %", linear[0] * 100.0, linear[1] * 100.0),
        ),
    ]
}

fn latency(runs: &Runs) -> Vec<Row> {
    let values = runs.values(Sweep::Switch);
    let Some(high) = values.last().copied() else { return Vec::new() };
    let best = fastest(runs, Sweep::Switch, high, |point| point.hours);
    let at = |method| short(hours(runs.at(Sweep::Switch, method, high)));
    let hours = format!("at {high} s: {} h, {} h, {} h", at(Baseline), at(Buffpack), at(Offpack));
    let total = |job: &Job| job.point.switching_hours * 3_600.0 / (job.point.switches * job.x);
    let all = PAPERS.iter().flat_map(|method| runs.of(Sweep::Switch, *method).map(total));
    let (least, most) = range(all);
    vec![
        paper::LATENCY_OFFPACK.seen(best == Offpack, hours).noted("baseline, BuffPack, OffPack"),
        paper::LATENCY_TOTAL.judge(if most - 1.0 > 1.0 - least { most } else { least }).if_met(Verdict::ByConstruction),
    ]
}

fn models(runs: &Runs) -> Vec<Row> {
    let even = |method| beside(runs).filter(move |one| one.method == method && Sweep::EVEN.contains(&one.sweep));
    let row = |claim: &Claim, method| {
        let worst = even(method).max_by(|a, b| a.off().abs().total_cmp(&b.off().abs()));
        let Some(worst) = worst else { return claim.open(String::new(), "nothing was simulated") };
        let (_, better) = range(even(method).map(|one| one.better_off().abs()));
        claim.judge(worst.off().abs() * 100.0).noted(format!(
            "at {} = {}, {}; the better model is off by {:.1} % at most",
            worst.sweep.words(),
            short(worst.x),
            worst.because(),
            better * 100.0
        ))
    };
    let mut wrong = Vec::new();
    let mut points = 0;
    for sweep in Sweep::EVEN {
        for x in runs.values(sweep) {
            points += 1;
            let chosen = fastest(runs, sweep, x, |point| point.model_hours.unwrap_or(f64::INFINITY));
            let best = fastest(runs, sweep, x, |point| point.hours);
            let lost = hours(runs.at(sweep, chosen, x)) / hours(runs.at(sweep, best, x)) - 1.0;
            if lost > STEP {
                wrong.push(format!("{} = {}: {:.1} %", sweep.words(), short(x), lost * 100.0));
            }
        }
    }
    let cost = if wrong.is_empty() { String::new() } else { format!("what it costs: {}", wrong.join(", ")) };
    vec![
        row(&paper::MODEL_BASELINE, Baseline),
        row(&paper::MODEL_BUFFPACK, Buffpack),
        row(&paper::MODEL_OFFPACK, Offpack),
        paper::MODEL_CHOOSES
            .seen(wrong.is_empty(), format!("at {} of {points} points", points - wrong.len()))
            .noted(cost),
    ]
}

fn skew(runs: &Runs) -> Vec<Row> {
    let at = |sweep, method, x| hours(runs.at(sweep, method, x));
    let values = runs.values(Sweep::InputSkew);
    let Some(most) = values.last().copied() else { return Vec::new() };
    let gain = |method, x| at(Sweep::InputSkew, Baseline, x) / at(Sweep::InputSkew, method, x);
    let both = [Buffpack, Offpack];
    let reduces = both.iter().all(|method| gain(*method, most) < gain(*method, 0.0) * (1.0 - STEP));
    let gains =
        both.map(|method| format!("{} {}x to {}x", method.word(), short(gain(method, 0.0)), short(gain(method, most))));
    let switches = |method, x| runs.at(Sweep::InputSkew, method, x).point.switches;
    let more = both.map(|method| switches(method, most) / switches(method, 0.0));
    let even = |method| at(Sweep::OutputSkew, method, 0.0);
    let moved = |method| {
        let all = runs.of(Sweep::OutputSkew, method).filter(|job| job.x > 0.0);
        range(all.map(|job| hours(job) / even(method) - 1.0))
    };
    let forecast = |x: f64| {
        let model = |x| runs.at(Sweep::OutputSkew, Buffpack, x).point.better_model_hours.unwrap_or(f64::NAN);
        model(x) / model(0.0) - 1.0
    };
    let above: Vec<f64> = runs.values(Sweep::OutputSkew).into_iter().filter(|x| *x > 0.0).collect();
    let forecast = range(above.into_iter().map(forecast));
    let percent = |(least, most): (f64, f64)| format!("{:+.1} to {:+.1} %", least * 100.0, most * 100.0);
    let (buffpack, offpack) = (moved(Buffpack), moved(Offpack));
    vec![
        paper::INPUT_GAIN.seen(reduces, format!("{}, from s = 0 to {most}", gains.join(", "))),
        paper::INPUT_SWITCHES.seen(
            more.iter().all(|more| *more > 1.0 + STEP),
            format!("buffpack {}x, offpack {}x at s = {most}", short(more[0]), short(more[1])),
        ),
        paper::OUTPUT_BUFFPACK
            .seen(buffpack.1 < -STEP, format!("{} of its time", percent(buffpack)))
            .noted(format!("against even output, over all s above 0; by the better model {}", percent(forecast))),
        paper::OUTPUT_OFFPACK
            .seen(offpack.0 > STEP, format!("{} of its time", percent(offpack)))
            .noted("against even output, over all s above 0"),
    ]
}

fn disks(runs: &Runs) -> Vec<Row> {
    let over = |sweep| {
        let ratio = |job: &Job| hours(job) / runs.disks_hours(&job.what);
        let least = |x: &f64| ratio(runs.at(sweep, Buffpack, *x)).min(ratio(runs.at(sweep, Offpack, *x)));
        range(runs.values(sweep).iter().map(least))
    };
    let default = hours(runs.default(Offpack)) / runs.disks_hours(&runs.default(Offpack).what);
    let ours = format!("{}x at the defaults, {}x over the buffers", short(default), from_to(over(Sweep::Memory)));
    vec![
        paper::DISKS
            .open(ours, "how near is comparable has no number; the faster of both over one group that stays up"),
    ]
}

fn contradictions(runs: &Runs) -> Vec<Row> {
    let model = |method| runs.default(method).point.model_hours.unwrap_or(f64::NAN);
    let (baseline, buffpack, offpack) = (model(Baseline), model(Buffpack), model(Offpack));
    let took = |method| hours(runs.default(method));
    let once = 2.0 * 100_000.0 / 3_600.0;
    let days = |hours: f64| format!("{:.1} days", hours / 24.0);
    vec![
        paper::AGAINST_GAIN.contradiction(
            format!("{}x", short(took(Baseline) / took(Offpack))),
            format!("by (1), (7) and Table III: {baseline:.0} h / {offpack:.0} h = {:.1}x", baseline / offpack),
        ),
        paper::AGAINST_ORDERS.contradiction(
            format!("{}x and {}x", short(took(Baseline) / took(Buffpack)), short(took(Baseline) / took(Offpack))),
            format!(
                "{baseline:.0} h / {buffpack:.0} h = {:.1}x, {baseline:.0} h / {offpack:.0} h = {:.1}x: not one order",
                baseline / buffpack,
                baseline / offpack
            ),
        ),
        paper::AGAINST_DAYS.contradiction(
            format!("{} and {}", days(took(Buffpack)), days(took(Offpack))),
            format!(
                "{} and {} by (6) and (7); to read and write 100 TB once at 1 GB/s alone takes {once:.0} h, {}",
                days(buffpack),
                days(offpack),
                days(once)
            ),
        ),
        paper::AGAINST_WEEKS
            .contradiction(days(took(Baseline)), format!("{} by (1): {:.1} weeks", days(baseline), baseline / 168.0)),
    ]
}

/// The errors of the formulas over all points of all figures, and of the better ones.
fn errors(runs: &Runs) -> Vec<Row> {
    let of = |method, off: fn(&Apart) -> f64| {
        let all: Vec<f64> =
            beside(runs).filter(|one| one.method == method).map(|one| off(&one).abs() * 100.0).collect();
        let worst = all.iter().copied().fold(0.0, f64::max);
        (worst, all.iter().sum::<f64>() / all.len() as f64)
    };
    let shown = |off: fn(&Apart) -> f64| {
        let each = PAPERS.map(|method| {
            let (worst, mean) = of(method, off);
            format!("{} {worst:.1} and {mean:.1} %", method.word())
        });
        format!("at most and on average {}", each.join(", "))
    };
    let worst = beside(runs).max_by(|a, b| a.better_off().abs().total_cmp(&b.better_off().abs()));
    let Some(worst) = worst else { return Vec::new() };
    vec![
        paper::ERRORS.open(shown(Apart::off), "where they are more than 5 % off is in the table of the report"),
        paper::ERRORS_OURS.judge(worst.better_off().abs() * 100.0).noted(format!(
            "{}, at {} = {}; {}",
            worst.method.word(),
            worst.sweep.words(),
            short(worst.x),
            shown(Apart::better_off)
        )),
    ]
}

/// Results beyond the paper, which have no verdict.
fn ours(runs: &Runs) -> Vec<Row> {
    let at = |method| hours(runs.at(Sweep::Memory, method, CROSSING_GB));
    let better = at(Buffpack).min(at(Offpack));
    let tour = runs.at(Sweep::Memory, Tourpack, CROSSING_GB);
    let bound = tour.point.bound_hours.unwrap_or(f64::NAN);
    let below = |hours: f64| format!("{:.1} % less", (1.0 - hours / better) * 100.0);
    vec![
        paper::TOURPACK.open(
            below(at(Tourpack)),
            &format!(
                "{}, {CROSSING_GB} GB: {} h instead of {} h",
                tour.point.strategy,
                short(at(Tourpack)),
                short(better)
            ),
        ),
        paper::BOUND.open(
            below(bound),
            &format!("{} h; TourPack is {:.1} % above it", short(bound), (at(Tourpack) / bound - 1.0) * 100.0),
        ),
    ]
}
