//! The rows: each claim of the text with the results of the runs.

use super::apart::{Apart, beside, better_off};
use super::paper;
use super::runs::{BETTER, CROSSING_GB, Job, PAPERS, Runs, Sweep};
use crate::repartition::{Method, Repartitioned};
use crate::report::{range, short};
use crate::reproduce::judge::{Claim, LEVEL, Row};
use crate::reproduce::sweep::{STEP, from_to, spread};
use Method::{Baseline, Buffpack, Fillpack, Offpack, Tourpack};

/// All rows, in the order of the text.
pub fn rows(runs: &Runs) -> Vec<Row> {
    let parts = [
        defaults,
        data,
        buffer,
        groups,
        latency,
        models,
        skew,
        output_skew,
        disks,
        contradictions,
        errors,
        fillpack,
        ours,
    ];
    parts.iter().flat_map(|part| part(runs)).collect()
}

fn hours(job: &Job) -> f64 {
    job.point.hours
}

/// The fastest of the paper's three methods at a value.
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
    let fastest = runs.values(Sweep::Data).into_iter().map(|x| fastest(runs, Sweep::Data, x, |point| point.hours));
    let fastest: Vec<Method> = fastest.collect();
    let same = fastest.iter().all(|method| *method == fastest[0]);
    vec![
        paper::DATA_LINEAR.seen(worst <= LEVEL, format!("h/TB differ by {:.1} % at most", worst * 100.0)),
        paper::DATA_CHOICE.seen(same, format!("{} at {} sizes", fastest[0].word(), fastest.len())),
    ]
}

/// The buffer size at which BuffPack becomes faster than `other`, in GB, by linear interpolation between two values.
fn crossing(runs: &Runs, other: Method) -> Option<f64> {
    let gap = |x: f64| hours(runs.at(Sweep::Memory, Buffpack, x)) - hours(runs.at(Sweep::Memory, other, x));
    let values = runs.values(Sweep::Memory);
    let crosses = values.windows(2).find(|pair| gap(pair[0]) > 0.0 && gap(pair[1]) <= 0.0)?;
    let (low, high) = (gap(crosses[0]), gap(crosses[1]));
    Some(crosses[0] + (crosses[1] - crosses[0]) * low / (low - high))
}

fn buffer(runs: &Runs) -> Vec<Row> {
    let times_memory = |method| spread(range(runs.of(Sweep::Memory, method).map(|job| job.point.switches * job.x)));
    let spreads = PAPERS.map(|method| format!("{} {:.1} %", method.word(), times_memory(method) * 100.0));
    let inverse = PAPERS.iter().all(|method| times_memory(*method) <= LEVEL);
    let at = |method, x| hours(runs.at(Sweep::Memory, method, x));
    let values = runs.values(Sweep::Memory);
    // At the crossing itself neither method is faster.
    let (small, large): (Vec<f64>, Vec<f64>) =
        values.iter().filter(|x| (*x - CROSSING_GB).abs() > 1.0).partition(|x| **x < CROSSING_GB);
    let wins = |x: &f64| fastest(runs, Sweep::Memory, *x, |point| point.hours) == Offpack;
    let slower = |x: &f64| at(Offpack, *x) > at(Buffpack, *x);
    let seen = |claim: &Claim, values: &[f64], holds: &dyn Fn(&f64) -> bool| {
        let count = values.iter().filter(|x| holds(x)).count();
        claim.seen(count == values.len(), format!("at {count} of {} buffers", values.len()))
    };
    let over = range(values.iter().map(|x| at(Baseline, *x) / at(Buffpack, *x)));
    let crosses = crossing(runs, Offpack).unwrap_or(f64::NAN);
    vec![
        paper::SWITCHES_INVERSE.seen(inverse, format!("switches x buffer differ by {}", spreads.join(", "))).noted(
            "OffPack carries what a run has left over in less than a full buffer, and large buffers leave few runs",
        ),
        paper::CROSSOVER.judge(crosses),
        paper::CROSSOVER_DERIVED.judge(crosses),
        seen(&paper::SMALL_BUFFERS, &small, &wins),
        seen(&paper::LARGE_BUFFERS, &large, &slower),
        paper::BASELINE_INFERIOR.seen(over.0 > 1.0, format!("{} times BuffPack's time", from_to(over))),
    ]
}

fn groups(runs: &Runs) -> Vec<Row> {
    let values = runs.values(Sweep::Groups);
    let (Some(few), Some(many)) = (values.first().copied(), values.last().copied()) else { return Vec::new() };
    let at = |method, x| hours(runs.at(Sweep::Groups, method, x));
    let grows = |method| at(method, many) / at(method, few);
    let growths = PAPERS.map(|method| format!("{} {}x", method.word(), short(grows(method))));
    let least = grows(Offpack) < grows(Buffpack).min(grows(Baseline));
    let slope = |method, from, to| (at(method, to) - at(method, from)) / (to - from);
    let slopes = |method| range(values.windows(2).map(|pair| slope(method, pair[0], pair[1])));
    let linear = [Baseline, Buffpack].map(|method| spread(slopes(method)));
    let differ = format!("h a group differ by {:.1} and {:.1} %", linear[0] * 100.0, linear[1] * 100.0);
    vec![
        paper::GROUPS_OFFPACK
            .seen(least, format!("from {few} to {many}: {}", growths.join(", ")))
            .noted("most of OffPack's growth is that 1/K of the output is home at once"),
        paper::GROUPS_LINEAR.seen(linear.iter().all(|spread| *spread <= LEVEL), differ),
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
        paper::LATENCY_TOTAL.judge(if most - 1.0 > 1.0 - least { most } else { least }),
    ]
}

fn models(runs: &Runs) -> Vec<Row> {
    let even = |method| beside(runs).filter(move |one| one.job.what.method == method && one.job.sweep.is_even());
    let row = |claim: &Claim, method| {
        let worst = even(method).max_by(|a, b| a.off().abs().total_cmp(&b.off().abs()));
        let Some(worst) = worst else { return claim.open(String::new(), "nothing was simulated") };
        let (place, because) = (worst.job.place(), worst.because());
        let better: Vec<f64> = even(method).filter_map(|one| Some(one.better_off()?.abs() * 100.0)).collect();
        let better = match range(better.iter().copied()) {
            (_, most) if !better.is_empty() => format!("the better model is off by {most:.1} % at most"),
            _ => "there is no better model of it".to_owned(),
        };
        let note = format!("at {place}, {because}; {better}");
        claim.judge(worst.off().abs() * 100.0).noted(note)
    };
    let (mut wrong, mut points) = (Vec::new(), 0);
    for (sweep, x) in Sweep::EVEN.into_iter().flat_map(|sweep| runs.values(sweep).into_iter().map(move |x| (sweep, x)))
    {
        points += 1;
        let chosen = fastest(runs, sweep, x, |point| point.model_hours.unwrap_or(f64::INFINITY));
        let best = fastest(runs, sweep, x, |point| point.hours);
        let lost = hours(runs.at(sweep, chosen, x)) / hours(runs.at(sweep, best, x)) - 1.0;
        if lost > STEP {
            wrong.push(format!("{}: {:.1} %", runs.at(sweep, chosen, x).place(), lost * 100.0));
        }
    }
    let cost = if wrong.is_empty() { String::new() } else { format!("what it costs: {}", wrong.join(", ")) };
    let seen = format!("at {} of {points} points", points - wrong.len());
    vec![
        row(&paper::MODEL_BASELINE, Baseline),
        row(&paper::MODEL_BUFFPACK, Buffpack),
        row(&paper::MODEL_OFFPACK, Offpack),
        paper::MODEL_CHOOSES.seen(wrong.is_empty(), seen).noted(cost),
    ]
}

fn skew(runs: &Runs) -> Vec<Row> {
    let at = |sweep, method, x| hours(runs.at(sweep, method, x));
    let values = runs.values(Sweep::InputSkew);
    let Some(most) = values.last().copied() else { return Vec::new() };
    let gain = |method, x| at(Sweep::InputSkew, Baseline, x) / at(Sweep::InputSkew, method, x);
    let both = [Buffpack, Offpack];
    let reduces = both.iter().all(|method| gain(*method, most) < gain(*method, 0.0) * (1.0 - STEP));
    let gains = both.map(|method| {
        let [even, skewed] = [0.0, most].map(|x| short(gain(method, x)));
        format!("{} {even}x to {skewed}x", method.word())
    });
    let switches = |method, x| runs.at(Sweep::InputSkew, method, x).point.switches;
    let more = both.map(|method| switches(method, most) / switches(method, 0.0));
    let [more_buffpack, more_offpack] = more.map(short);
    vec![
        paper::INPUT_GAIN.seen(reduces, format!("{}, from s = 0 to {most}", gains.join(", "))),
        paper::INPUT_SWITCHES.seen(
            more.iter().all(|more| *more > 1.0 + STEP),
            format!("buffpack {more_buffpack}x, offpack {more_offpack}x at s = {most}"),
        ),
    ]
}

/// The extra time of a method with output skewed by `x` over its time with even output, as a share; by the simulation
/// or by a formula.
fn longer(runs: &Runs, method: Method, x: f64, of: impl Fn(&Job) -> f64) -> f64 {
    of(runs.at(Sweep::OutputSkew, method, x)) / of(runs.at(Sweep::OutputSkew, method, 0.0)) - 1.0
}

/// The output skews above 0, up to `most`.
fn output_skews(runs: &Runs, most: f64) -> Vec<f64> {
    runs.values(Sweep::OutputSkew).into_iter().filter(|x| *x > 0.0 && *x <= most).collect()
}

fn percents((least, most): (f64, f64)) -> String {
    format!("{:+.1} to {:+.1} %", least * 100.0, most * 100.0)
}

/// The row of a method that degrades with skewed output.
fn degrades(runs: &Runs, claim: &Claim, method: Method) -> Row {
    let longer = range(output_skews(runs, f64::INFINITY).into_iter().map(|x| longer(runs, method, x, hours)));
    claim
        .seen(longer.0 > STEP, format!("{} of its time", percents(longer)))
        .noted("against even output, over all s above 0")
}

fn output_skew(runs: &Runs) -> Vec<Row> {
    let model = |job: &Job| job.point.better_model_hours.unwrap_or(f64::NAN);
    let little = output_skews(runs, 1.0);
    let by = |of: fn(&Job) -> f64| range(little.iter().map(|x| longer(runs, Buffpack, *x, of)));
    let (simulated, forecast) = (by(hours), by(model));
    let much = longer(runs, Buffpack, 2.0, hours);
    let faster = output_skews(runs, f64::INFINITY).into_iter().find(|x| longer(runs, Buffpack, *x, hours) < 0.0);
    let from = faster.map_or("at no s".to_owned(), |x| format!("from s = {} on", short(x)));
    vec![
        paper::OUTPUT_BUFFPACK
            .seen(simulated.1 < -STEP, format!("{} of its time", percents(simulated)))
            .noted(format!("against even output, over all s above 0; by the better model {}", percents(forecast))),
        paper::OUTPUT_BUFFPACK_2
            .seen(much < -STEP, format!("{:+.1} % of its time", much * 100.0))
            .noted(format!("BuffPack is faster than with even output {from}")),
        degrades(runs, &paper::OUTPUT_OFFPACK, Offpack),
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
    let methods = [Baseline, Buffpack, Offpack];
    let model = methods.map(|method| runs.default(method).point.model_hours.unwrap_or(f64::NAN));
    let took = methods.map(|method| hours(runs.default(method)));
    let once = 2.0 * 100_000.0 / 3_600.0;
    let [baseline, buffpack, offpack] = model;
    let [_, times_buffpack, times_offpack] = model.map(|hours| baseline / hours);
    let [_, our_buffpack, our_offpack] = took.map(|hours| short(took[0] / hours));
    let [baseline_days, buffpack_days, offpack_days] = model.map(days);
    let [our_baseline_days, our_buffpack_days, our_offpack_days] = took.map(days);
    let once_days = days(once);
    let orders = format!(
        "{baseline:.0} h / {buffpack:.0} h = {times_buffpack:.1}x, {baseline:.0} h / {offpack:.0} h = \
         {times_offpack:.1}x: not one order"
    );
    let two_days = format!(
        "{buffpack_days} and {offpack_days} by (6) and (7); to read and write 100 TB once at 1 GB/s alone takes \
         {once:.0} h, {once_days}"
    );
    vec![
        paper::AGAINST_GAIN.contradiction(
            format!("{our_offpack}x"),
            format!("by (1), (7) and Table III: {baseline:.0} h / {offpack:.0} h = {times_offpack:.1}x"),
        ),
        paper::AGAINST_ORDERS.contradiction(format!("{our_buffpack}x and {our_offpack}x"), orders),
        paper::AGAINST_DAYS.contradiction(format!("{our_buffpack_days} and {our_offpack_days}"), two_days),
        paper::AGAINST_WEEKS
            .contradiction(our_baseline_days, format!("{baseline_days} by (1): {:.1} weeks", baseline / 168.0)),
    ]
}

fn days(hours: f64) -> String {
    format!("{:.1} days", hours / 24.0)
}

/// The errors of the paper's formulas over all points of all figures, and those of the better formulas.
fn errors(runs: &Runs) -> Vec<Row> {
    let papers: Vec<(&Job, f64)> = beside(runs).map(|one: Apart<'_>| (one.job, one.off())).collect();
    let figures = runs.jobs.iter().filter(|job| job.sweep != Sweep::Disks);
    let better: Vec<(&Job, f64)> = figures.filter_map(|job| Some((job, better_off(job)?))).collect();
    let Some(worst) = better.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())) else { return Vec::new() };
    let (method, place, ours) = (worst.0.what.method.word(), worst.0.place(), errors_shown(BETTER, &better));
    vec![
        paper::ERRORS
            .open(errors_shown(PAPERS, &papers), "where they are more than 5 % off is in the table of the report"),
        paper::ERRORS_OURS.judge(worst.1.abs() * 100.0).noted(format!("{method}, at {place}; {ours}")),
    ]
}

fn errors_shown(methods: [Method; 3], off: &[(&Job, f64)]) -> String {
    let each = methods.map(|method| {
        let of_method = off.iter().filter(|(job, _)| job.what.method == method);
        let all: Vec<f64> = of_method.map(|(_, off)| off.abs() * 100.0).collect();
        let (worst, mean) = (all.iter().copied().fold(0.0, f64::max), all.iter().sum::<f64>() / all.len() as f64);
        format!("{} {worst:.1} and {mean:.1} %", method.word())
    });
    format!("at most and on average {}", each.join(", "))
}

/// FillPack compared with the paper's claims about OffPack, and with OffPack itself.
fn fillpack(runs: &Runs) -> Vec<Row> {
    let default = runs.default(Fillpack);
    let values = runs.values(Sweep::Groups);
    let (Some(few), Some(many)) = (values.first().copied(), values.last().copied()) else { return Vec::new() };
    let at = |method, x| hours(runs.at(Sweep::Groups, method, x));
    let [ours, papers] = [Fillpack, Offpack].map(|method| at(method, many) / at(method, few));
    let all: Vec<(&Job, f64)> = runs
        .jobs
        .iter()
        .filter(|job| job.what.method == Fillpack)
        .map(|job| {
            let offpack = hours(runs.at(job.sweep, Offpack, job.x));
            (job, (1.0 - hours(job) / offpack) * 100.0)
        })
        .collect();
    let Some((most_at, most)) = all.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return Vec::new() };
    let (least, _) = range(all.iter().map(|(_, less)| *less));
    let mean = all.iter().map(|(_, less)| less).sum::<f64>() / all.len() as f64;
    let shown = format!("{mean:.1} % less on average, {least:.1} to {most:.1} %");
    vec![
        paper::FILLPACK_HOURS.judge(hours(default)),
        paper::FILLPACK_SWITCHES.judge(default.point.switches).noted("fewer is better: (K - 1) / K of it is 11,458"),
        paper::FILLPACK_CROSSOVER.judge(crossing(runs, Fillpack).unwrap_or(f64::NAN)),
        paper::FILLPACK_GROUPS
            .seen(ours < papers, format!("from {few} to {many}: {}x, OffPack {}x", short(ours), short(papers))),
        degrades(runs, &paper::FILLPACK_OUTPUT, Fillpack),
        paper::FILLPACK_OFFPACK.seen(least > -STEP * 100.0, shown).noted(format!(
            "most at {}, both at {} points",
            most_at.place(),
            all.len()
        )),
    ]
}

/// Results beyond the paper, without a verdict.
fn ours(runs: &Runs) -> Vec<Row> {
    let at = |method| hours(runs.at(Sweep::Memory, method, CROSSING_GB));
    let better = at(Buffpack).min(at(Offpack));
    let tour = runs.at(Sweep::Memory, Tourpack, CROSSING_GB);
    let bound = tour.point.bound_hours.unwrap_or(f64::NAN);
    let below = |hours: f64| format!("{:.1} % less", (1.0 - hours / better) * 100.0);
    let (strategy, above) = (&tour.point.strategy, (hours(tour) / bound - 1.0) * 100.0);
    let [took, others, least] = [hours(tour), better, bound].map(short);
    let instead = format!("{strategy}, {CROSSING_GB} GB: {took} h instead of {others} h");
    vec![
        paper::TOURPACK.open(below(hours(tour)), &instead),
        paper::BOUND.open(below(bound), &format!("{least} h; TourPack is {above:.1} % above it")),
    ]
}
