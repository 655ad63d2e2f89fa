//! The rows: each claim of the text with the results of the runs.

use super::paper;
use super::runs::Series::{self, Burst, ByU, Fp, FpUnbounded, Pelican, PelicanUnbounded, Random, Rebuild};
use super::runs::{FilledRack, GB, Runs, View, gbit, rate};
use crate::report::{range, short};
use crate::reproduce::judge::{Claim, ClaimContent, LEVEL, LEVEL_THROUGHPUT, Row};
use crate::reproduce::sweep::{STEP, from_to, most, spread};
use crate::{ClientSummary, Point, SeededPoint};

/// All rows, in the order of the text.
pub fn rows(runs: &Runs) -> Vec<Row> {
    let parts =
        [method, bursts, throughput, rejects, service, first_byte, rebuild, reordering, wear, power, boot, fills];
    parts.iter().flat_map(|part| part(runs)).chain(contradictions(runs)).collect()
}

/// The number of a claim that has one.
fn number(claim: &Claim) -> f64 {
    match claim.says {
        ClaimContent::Number(number)
        | ClaimContent::AtMost(number)
        | ClaimContent::AtLeast(number)
        | ClaimContent::Between(number, _) => number,
        ClaimContent::Course(_) => panic!("{} says no number", claim.id),
    }
}

fn percent(share: f64) -> f64 {
    share * 100.0
}

fn mean_ttfb(point: &Point) -> f64 {
    point.ttfb_s.mean.unwrap_or(0.0)
}

fn service_mean(point: &Point) -> f64 {
    point.service_s.mean.unwrap_or(0.0)
}

/// The rate at which `of` is highest.
fn peak<'a>(points: impl Iterator<Item = &'a Point>, of: fn(&Point) -> f64) -> f64 {
    points.max_by(|a, b| of(a).total_cmp(&of(b))).map_or(0.0, rate)
}

/// True if a value falls from each point to the next, with the share of its largest rise.
fn falls<'a>(points: impl Iterator<Item = &'a Point> + Clone, of: fn(&Point) -> f64) -> (bool, f64) {
    let steps = points.clone().zip(points.skip(1)).map(|(one, next)| of(next) / of(one) - 1.0);
    let worst = most(steps);
    (worst <= STEP, worst)
}

fn method<'a>(runs: &'a Runs) -> Vec<Row> {
    let unsettled = |view: View<'a>| {
        let points = runs.points.iter().map(move |(series, point)| (*series, view.point(point)));
        points.filter(|(_, point)| point.settled == Some(false)).map(|(series, point)| shown_unsettled(series, point))
    };
    let late: Vec<String> = unsettled(runs.all()).collect();
    let poisson = runs.points.iter().filter(|(_, point)| point.all.settled.is_some());
    let warm_up_h = |(_, point): &(Series, SeededPoint)| point.all.parameters.warm_up_s / 3_600.0;
    let (count, (shortest, longest)) = (poisson.clone().count(), range(poisson.map(warm_up_h)));
    let (shortest_h, longest_h) = (short(shortest), short(longest));
    let near = format!(", or {longest_h} h where about as much is offered as can be served");
    let near = if shortest < longest { &near } else { "" };
    let later = if late.is_empty() { String::new() } else { format!("; later: {}", late.join(", ")) };
    let note = format!("MSER-5 on the number of open requests, within a warm-up of {shortest_h} h{near}{later}");
    let seen = format!("{} of {count} points", count - late.len());
    let measured = runs.all().at(Pelican, 1.0).parameters.measured_s / 3_600.0;
    let events: u64 = runs.points.iter().map(|(_, point)| point.all.events).sum();
    vec![
        paper::STEADY.seen(runs.followed(|view| unsettled(view).next().is_none()), seen).noted(note),
        if runs.quick {
            paper::SPAN.open(format!("{} h", short(measured)), "the quick form")
        } else {
            paper::SPAN.judge(measured)
        },
        paper::JUDGED.seen(true, format!("never, in {} events", short(events as f64))),
    ]
}

/// A text about a point that had not settled.
fn shown_unsettled(series: Series, point: &Point) -> String {
    let after = point.steady_after_s.map_or("not".to_owned(), |s| format!("after {} h", short(s / 3_600.0)));
    let u = point.parameters.overtake_limit / GB;
    let of = if series == ByU { format!("u = {u} GB") } else { format!("{}/s", short(rate(point))) };
    format!("{series:?} at {of} {after}")
}

fn bursts(runs: &Runs) -> Vec<Row> {
    let reads = |point: &Point| point.parameters.burst_reads.unwrap_or(0);
    let whole = |point: &Point| {
        let asked = u64::from(reads(point)) * point.parameters.seeds.len() as u64;
        point.answered == asked && point.refused == 0
    };
    let shown = |point: &Point| {
        let times = [point.completion_s.mean.unwrap_or(0.0), mean_ttfb(point), service_mean(point)];
        let [completion, ttfb, service] = times.map(short);
        format!("b = {}: {} Gb/s, {completion} s, {ttfb} s, {service} s", reads(point), short(gbit(point)))
    };
    let asked: u32 = runs.all().of(Burst).map(reads).sum();
    let all = runs.followed(|view| view.of(Burst).all(whole));
    let answered = format!("{} of {asked} answered", if all.with == all.of { "all" } else { "not all" });
    let courses = runs.all().of(Burst).map(shown).collect::<Vec<_>>().join("; ");
    vec![
        paper::BURST_ANSWERED.seen(all, answered),
        paper::BURST_CARD.judge(runs.sample(|view| most(view.of(Burst).map(gbit)))),
        paper::BURST_COURSES
            .open(courses, "means of throughput, completion, TTFB and service; figure 4 has no number in words"),
    ]
}

fn throughput<'a>(runs: &'a Runs) -> Vec<Row> {
    let below = |view: View<'a>, limit: f64| {
        let pairs = view.of(Pelican).zip(view.of(Fp)).filter(move |(point, _)| rate(point) <= limit);
        percent(most(pairs.map(|(ours, fp)| 1.0 - ours.throughput_bytes_per_s / fp.throughput_bytes_per_s)).max(0.0))
    };
    let plateau = |view: View<'a>, series| range(view.of(series).filter(|point| rate(point) >= 5.0).map(gbit));
    let level = |view: View<'a>, series| spread(plateau(view, series)) <= LEVEL_THROUGHPUT;
    let [ours, fp] = [Pelican, Fp].map(|series| from_to(plateau(runs.all(), series)));
    let highest = |series| runs.sample(|view| most(view.of(series).map(gbit)));
    vec![
        paper::ALMOST_FP
            .judge(runs.sample(|view| below(view, 4.0)))
            .noted("most at 4/s, where the rack has two states (docs/papers/sizing.md)"),
        paper::WITHIN_FP.judge(runs.sample(|view| below(view, f64::INFINITY))).noted("contradiction (a)"),
        paper::PLATEAU.seen(
            runs.followed(|view| level(view, Pelican) && level(view, Fp)),
            format!("Pelican {ours} Gb/s, FP {fp} Gb/s"),
        ),
        paper::FP_CARD.judge(runs.sample(|view| plateau(view, Fp).1)),
        paper::RANDOM_LAYOUT.judge(highest(Random)),
        paper::FP_UNBOUNDED.judge(runs.once(|view| most(view.of(FpUnbounded).map(gbit)))),
        paper::UNBOUNDED_MOST.judge(highest(PelicanUnbounded)),
    ]
}

fn rejects<'a>(runs: &'a Runs) -> Vec<Row> {
    let below_5 = |series| {
        let points = |view: View<'a>| view.of(series).filter(|point| rate(point) < 5.0);
        runs.sample(|view| percent(most(points(view).map(|point| point.reject_rate))))
    };
    let at = |series, rate| runs.sample(|view| percent(view.at(series, rate).reject_rate));
    let at_350 = percent(runs.all().at_u(350).reject_rate);
    let refusing: Vec<&Point> = runs.all().of(Pelican).filter(|point| point.reject_rate > 0.0).collect();
    let from = refusing.first().map_or(String::new(), |point| format!("the lowest rate with any is {}/s", rate(point)));
    vec![
        paper::NO_REJECTS.judge(below_5(Pelican)).noted(from),
        paper::NO_REJECTS_UNBOUNDED.judge(below_5(PelicanUnbounded)),
        paper::NO_REJECTS_FP.judge(below_5(Fp)),
        paper::FP_NEVER.judge(runs.once(|view| {
            percent(most(view.of(FpUnbounded).filter(|point| rate(point) <= 8.0).map(|point| point.reject_rate)))
        })),
        paper::REJECTS_5
            .judge(at(Pelican, 5.0))
            .noted(format!("contradiction (a); at u = 350 GB ours are {at_350:.1} %")),
        paper::REJECTS_5_UNBOUNDED.judge(at(PelicanUnbounded, 5.0)),
        paper::REJECTS_5_FP.judge(at(Fp, 5.0)).noted("its 48 queues hold 1,000 each and are not full within the day"),
        paper::REJECTS_8.judge(at(Pelican, 8.0)),
        paper::WAKING_5.judge(runs.sample(|view| percent(view.at(PelicanUnbounded, 5.0).wake_time_fraction))),
    ]
}

fn service<'a>(runs: &'a Runs) -> Vec<Row> {
    let falling = |view: View<'a>| falls(view.of(Pelican).filter(|point| rate(point) >= 0.25), service_mean);
    let (all_fall, worst) = falling(runs.all());
    let ends = [0.25, 1.0, 4.0, 8.0].map(|rate| short(service_mean(runs.all().at(Pelican, rate))));
    let rises = if all_fall { String::new() } else { format!("where it rises, by {:.1} % at most", percent(worst)) };
    let crosses = |view: View<'a>| {
        let mut pairs = view.of(Pelican).zip(view.of(Fp));
        let crossing = pairs.find(|(ours, fp)| service_mean(ours) < service_mean(fp));
        crossing.map_or(f64::INFINITY, |(ours, _)| rate(ours))
    };
    vec![
        paper::SERVICE_LEAST.judge(runs.sample(|view| view.at(Fp, 0.0625).service_s.p50.unwrap_or(0.0))),
        paper::SERVICE_FALLS
            .seen(runs.followed(|view| falling(view).0), format!("{} s at 0.25, 1, 4, 8/s", ends.join(", ")))
            .noted(rises),
        paper::SERVICE_CROSSES.judge(runs.sample(crosses)).noted("among the rates that were simulated"),
    ]
}

fn first_byte<'a>(runs: &'a Runs) -> Vec<Row> {
    let least = |view: View<'a>| {
        let pairs = view.of(Pelican).zip(view.of(Fp)).filter(|(point, _)| rate(point) < 5.0);
        let ratios = pairs.map(|(ours, fp)| (mean_ttfb(ours) / fp.ttfb_s.max.unwrap_or(f64::MAX), rate(ours)));
        ratios.fold((f64::INFINITY, 0.0), |least, next| if next.0 < least.0 { next } else { least })
    };
    let idle = |series| runs.sample(|view| mean_ttfb(view.at(series, 0.0625)));
    vec![
        paper::TTFB_IDLE.judge(idle(Pelican)).noted("at 1/16 request/s"),
        paper::TTFB_IDLE_FP.judge(idle(Fp)).noted("at 1/16 request/s: a seek, a stripe, and hardly ever a wait"),
        paper::TTFB_RATIO
            .judge(runs.sample(|view| least(view).0))
            .noted(format!("least at {}/s", short(least(runs.all()).1))),
    ]
}

/// The ratio of the mean TTFB during a rebuild to that without a failure, at each rate: in the class, and elsewhere.
fn slowed(view: View<'_>) -> impl Iterator<Item = (f64, [f64; 2])> + Clone {
    view.of(Rebuild).filter_map(move |point| {
        let (rebuild, plain) = (point.rebuild?, mean_ttfb(view.at(Pelican, rate(point))));
        let times = |clients: ClientSummary| Some(clients.ttfb_s.mean? / plain);
        Some((rate(point), [times(rebuild.in_class)?, times(rebuild.elsewhere)?]))
    })
}

fn rebuild_hours(point: &Point) -> f64 {
    point.rebuild.and_then(|rebuild| rebuild.rebuild_s).unwrap_or(f64::INFINITY) / 3_600.0
}

fn rebuild<'a>(runs: &'a Runs) -> Vec<Row> {
    // The quick form rebuilds a twentieth: its time is scaled, so the row has the same meaning.
    let scale = if runs.quick { 20.0 } else { 1.0 };
    let took = |view: View<'a>| view.of(Rebuild).map(move |point| rebuild_hours(point) * scale).collect::<Vec<f64>>();
    let longest = |view: View<'a>| most(took(view).into_iter());
    let grows = |view: View<'a>| {
        let level = took(view).iter().rev().take(2).all(|hours| longest(view) / hours - 1.0 <= LEVEL);
        took(view).first().is_some_and(|first| *first < longest(view)) && level
    };
    let rates = runs.all().of(Rebuild).map(|point| short(rate(point)));
    let courses: Vec<String> =
        rates.zip(took(runs.all())).map(|(rate, hours)| format!("{hours:.1} h at {rate}/s")).collect();
    let long_h = most(runs.all().of(Series::RebuildInLongTurns).map(rebuild_hours));
    let turns =
        format!("priorities take turns of 60 s, of which a switch is a fifth; with turns of 300 s {long_h:.1} h");
    let note = if runs.quick { "a twentieth of the drive, times 20" } else { &turns };
    // 4.28 TB at the drive's rate, with half of the class's time.
    let arithmetic_h = 4.28e12 / runs.rack.profile.bytes_per_s as f64 / 0.5 / 3_600.0;
    let time = [
        paper::REBUILD_TIME.judge(runs.sample(longest)).noted(note),
        paper::REBUILD_GROWS.seen(runs.followed(grows), courses.join(", ")),
    ];
    time.into_iter().chain(rebuild_clients(runs)).chain([paper::REBUILD_ARITHMETIC.judge(arithmetic_h)]).collect()
}

fn rebuild_clients<'a>(runs: &'a Runs) -> [Row; 3] {
    let inside = |view: View<'a>| slowed(view).map(|(rate, [inside, _])| (rate, inside));
    let worst = |view: View<'a>| inside(view).fold((0.0, 0.0), |most, next| if next.1 > most.1 { next } else { most });
    let outside =
        |view, from: f64| slowed(view).filter(move |(rate, _)| *rate >= from).map(|(_, [_, other])| other - 1.0);
    let off = |view: View<'a>, from: f64| percent(most(outside(view, from).map(f64::abs)));
    let slower = percent(most(outside(runs.all(), 0.0)));
    let at = worst(runs.all()).0;
    let why = match at {
        2.0.. => ": half of a class no longer carries what the whole of it did, and queues fill that were empty",
        _ => "",
    };
    [
        paper::REBUILD_CLIENTS.judge(runs.sample(|view| inside(view).last().map_or(0.0, |(_, inside)| inside))),
        paper::REBUILD_CLIENTS_MOST.judge(runs.sample(|view| worst(view).1)).noted(format!("at {}/s{why}", short(at))),
        paper::REBUILD_OTHERS
            .seen(runs.followed(|view| off(view, 0.0) <= percent(LEVEL)), format!("{slower:.0} % slower"))
            .noted(format!("at most; from 1/s up within {:.0} %, either way", off(runs.all(), 1.0))),
    ]
}

fn reordering<'a>(runs: &'a Runs) -> Vec<Row> {
    let p99 = |view: View<'a>, gigabytes| view.at_u(gigabytes).ttfb_s.p99.unwrap_or(0.0);
    let ratio = |one, other| runs.sample(move |view| gbit(view.at_u(one)) / gbit(view.at_u(other)));
    let least = |view: View<'a>| {
        let limited = view.of(ByU).filter(|point| point.parameters.overtake_limit > 0);
        let wait = |point: &Point| point.ttfb_s.p99.unwrap_or(0.0);
        let best = limited.min_by(|a, b| wait(a).total_cmp(&wait(b)));
        best.map_or(0.0, |point| runs.u_gigabytes(point.parameters.overtake_limit))
    };
    let seconds = |from, to| format!("{} s to {} s", short(p99(runs.all(), from)), short(p99(runs.all(), to)));
    let at_350 = short(p99(runs.all(), 350));
    let drives = runs.rack.drives.len() as f64;
    let starts = |view: View<'a>| {
        let fifo = view.at_u(0);
        let years = fifo.parameters.measured_s * fifo.parameters.seeds.len() as f64 / (365.25 * 86_400.0);
        let group_starts = fifo.spin_ups_per_drive_year * years * drives / f64::from(runs.rack.group_drives);
        group_starts / fifo.answered as f64
    };
    let rejects = |gigabytes| runs.sample(move |view| percent(view.at_u(gigabytes).reject_rate));
    vec![
        paper::U_THROUGHPUT.judge(ratio(350, 50)).noted("contradiction (b)"),
        paper::U_MODEST.judge(ratio(1_000, 350)),
        paper::U_P99_FALLS.seen(runs.followed(|view| p99(view, 350) < p99(view, 50)), seconds(50, 350)),
        paper::U_P99_RISES.seen(runs.followed(|view| p99(view, 1_000) > p99(view, 350)), seconds(350, 1_000)),
        paper::U_P99_LEAST
            .judge(runs.sample(least))
            .noted(format!("among the u that were simulated; at 350 GB {at_350} s")),
        paper::U_REJECTS_50.judge(rejects(50)).noted("contradiction (b)"),
        paper::U_REJECTS_1000.judge(rejects(1_000)).noted("contradiction (b)"),
        paper::FIFO_SPIN_UPS.judge(runs.sample(starts)),
    ]
}

fn wear<'a>(runs: &'a Runs) -> Vec<Row> {
    let starts = |point: &Point| point.spin_ups_per_drive_year;
    let past = |view: View<'a>| range(view.of(Pelican).filter(|point| rate(point) >= 4.0).map(starts));
    let tb = |view: View<'a>| view.at(Pelican, 8.0).tb_per_drive_year;
    let highest = most(runs.all().of(Pelican).map(|point| point.tb_per_drive_year));
    let code = runs.rack.code;
    let payload = |view: View<'a>| tb(view) * f64::from(code.data) / code.stacks() as f64;
    vec![
        paper::SPIN_UPS_PEAK.judge(runs.sample(|view| peak(view.of(Pelican), starts))),
        paper::SPIN_UPS_LEVEL
            .seen(runs.followed(|view| spread(past(view)) <= LEVEL), from_to(past(runs.all())))
            .noted("a drive and year; at 4/s queues are not full all the time at 40 Gb/s"),
        paper::DATA_YEAR
            .judge(runs.sample(tb))
            .noted(format!("contradiction (a); at 8/s, and {highest:.1} TB at most")),
        paper::DATA_YEAR_PAYLOAD
            .judge(runs.sample(payload))
            .noted("if the text counts what clients get; it then sends 28.9 Gb/s, and refuses 28 % at 5/s, not 35 %"),
    ]
}

/// The power of a rack in kW if one group of each class (96 drives) draws `each_mw` per drive and all others sleep.
fn with_active(runs: &Runs, each_mw: u32) -> f64 {
    let active = f64::from(runs.rack.group_drives) * runs.classes as f64;
    let watts = runs.rack.profile.watts;
    let asleep = runs.rack.drives.len() as f64 - active;
    (active * f64::from(each_mw) + asleep * f64::from(watts.standby_mw)) / 1e6
}

fn power<'a>(runs: &'a Runs) -> Vec<Row> {
    let watts = runs.rack.profile.watts;
    let (waking, awake) = (with_active(runs, watts.spin_up_mw), with_active(runs, watts.active_mw));
    let mean = |point: &Point| point.power_w.mean / 1e3;
    let at = |series, rate| runs.sample(move |view| mean(view.at(series, rate)));
    let peak_kw = |view: View<'a>| most(view.of(Pelican).map(|point| point.power_w.peak)) / 1e3;
    vec![
        paper::POWER_PEAKS_AT.judge(runs.sample(|view| peak(view.of(Pelican), |point| point.power_w.mean))),
        paper::POWER_HIGHEST.judge(runs.sample(|view| most(view.of(Pelican).map(mean)))),
        paper::POWER_LOW_END.judge(at(Pelican, 0.0625)),
        paper::POWER_HIGH_END
            .judge(at(Pelican, 8.0))
            .noted("the time spent waking, which 21 % of rejects imply, costs more than 0.05 kW"),
        paper::POWER_PEAK.judge(runs.sample(peak_kw)),
        paper::POWER_ALL_ACTIVE.judge(at(Fp, 1.0)),
        paper::POWER_PEAK_RATIO.judge(runs.sample(|view| mean(view.at(Fp, 1.0)) / peak_kw(view))),
        paper::POWER_WAKING.judge(waking),
        paper::POWER_AWAKE.judge(awake),
        paper::POWER_SHARE.judge(runs.sample(|view| percent((mean(view.at(Pelican, 0.5)) - awake) / (waking - awake)))),
    ]
}

fn boot(runs: &Runs) -> Vec<Row> {
    let groups = runs.rack.drives.len() as f64 / f64::from(runs.rack.group_drives);
    vec![
        paper::BOOT
            .judge(runs.sample(|view| most(view.of(Pelican).map(|point| point.boot_s))))
            .noted("the engine initialises every group once, one of each class at a time"),
        paper::BOOT_ROUNDS.judge(groups / runs.classes as f64),
    ]
}

fn fills<'a>(runs: &'a Runs) -> Vec<Row> {
    let share = |rack: &FilledRack| percent(rack.filled.utilisation());
    let judged = |view: View<'a>, vary, random| {
        let rack = view.filled(vary, random).find(|rack| rack.capacities.is_none_or(|sizes| sizes.draws == 2));
        rack.map_or(f64::NAN, share)
    };
    let shown = |values: Vec<f64>| match range(values.iter().copied()) {
        (only, _) if values.len() == 1 => format!("{only:.3} %"),
        (least, greatest) => format!("{least:.3} to {greatest:.3} %"),
    };
    let all = |random| shown(runs.all().filled(true, random).map(share).collect());
    let over = |view: View<'a>| view.filled(true, false).map(|rack| percent(rack.over_clipped)).collect::<Vec<f64>>();
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let (drives, leaves) = if runs.quick {
        let leaves = "drives of a twentieth: what a blob leaves over is twenty times as much";
        ("drives of a twentieth of 4.2 to 4.9 TB, the mean of 2 even draws", leaves)
    } else {
        ("drives of 4.2 to 4.9 TB, the mean of 1, 2 and 4 even draws", "")
    };
    vec![
        paper::FILL_EQUAL.judge(runs.sample(|view| judged(view, false, false))).noted(leaves),
        paper::FILL_VARIED
            .open(all(false), "the drives' sizes of figure 3(e) did not survive; by the shape of ours")
            .noted(drives),
        // Both begin with drives of the same sizes.
        paper::FILL_RANDOM.seen(runs.followed(|view| judged(view, true, true) < judged(view, true, false)), all(true)),
        paper::FILL_CLIPPED
            .judge(runs.sample(|view| mean(over(view))))
            .noted(format!("{}; the text: 99.4 x 4.55 / 4.2", shown(over(runs.all())))),
    ]
}

fn contradictions(runs: &Runs) -> Vec<Row> {
    let view = runs.all();
    let (ours, fp) = (view.at(Pelican, 5.0), view.at(Fp, 5.0));
    let below = percent(1.0 - ours.throughput_bytes_per_s / fp.throughput_bytes_per_s);
    let refused = number(&paper::REJECTS_5) / 100.0;
    let (sent, fp_sent) = (40.0 * (1.0 - refused), 40.0 * (1.0 - number(&paper::REJECTS_5_FP) / 100.0));
    let less = percent(1.0 - sent / fp_sent);
    let year_s = 365.25 * 86_400.0;
    let drives = runs.rack.drives.len() as f64;
    let read = number(&paper::DATA_YEAR) * 1e12 * drives / year_s * 8e-9;
    let payload = read * f64::from(runs.rack.code.data) / runs.rack.code.stacks() as f64;
    let (low, high) = (number(&paper::U_REJECTS_50) / 100.0, number(&paper::U_REJECTS_1000) / 100.0);
    let at_16 = percent(view.at(FpUnbounded, 16.0).reject_rate);
    let lost = percent(1.0 - number(&paper::FP_UNBOUNDED) / (16.0 * 8.0));
    let [from, to] = [50, 1_000].map(|gigabytes| short(percent(view.at_u(gigabytes).reject_rate)));
    let times = short(gbit(view.at_u(1_000)) / gbit(view.at_u(50)));
    let text_times = short((1.0 - high) / (1.0 - low));
    let [ours, sent, fp_sent, read, payload] = [gbit(ours), sent, fp_sent, read, payload].map(short);
    let within = format!(
        "5/s x 8 Gb x (1 - {refused}) = {sent} Gb/s, which is {less:.0} % below FP's {fp_sent} Gb/s, not within 20 %"
    );
    let data = format!(
        "99 TB x {drives} drives a year = {read} Gb/s read: {payload} Gb/s for clients if all 18 stacks count, {read} \
         Gb/s if payload counts; 35 % of rejects leave {sent} Gb/s"
    );
    let never = format!("106 Gb/s are 13.25/s; of 16/s it cannot send {lost:.0} %, and queues of any length fill");
    let by_u = format!("(1 - {high}) / (1 - {low}) = {text_times} times the throughput, not about two");
    let mut rows = vec![
        paper::AGAINST_WITHIN.contradiction(format!("{ours} Gb/s, {below:.1} % below FP"), within),
        paper::AGAINST_DATA.contradiction(format!("{ours} Gb/s"), data),
        paper::AGAINST_NEVER.contradiction(format!("{at_16:.1} % at 16/s"), never),
        paper::AGAINST_U.contradiction(format!("{from} % to {to} %, {times}x"), by_u),
    ];
    rows.extend(contradictions_of_power(runs));
    rows
}

fn contradictions_of_power(runs: &Runs) -> [Row; 3] {
    let watts = runs.rack.profile.watts;
    let drives = runs.rack.drives.len() as f64;
    let (each, highest) = (f64::from(watts.spin_up_mw) / 1e3, number(&paper::POWER_HIGHEST));
    let (spin_up, active) = (drives * f64::from(watts.spin_up_mw) / 1e6, drives * f64::from(watts.active_mw) / 1e6);
    let ratios = from_to(range(runs.all().of(Pelican).map(|point| active / (point.power_w.mean / 1e3))));
    let text_ratio = active / highest;
    let [decimal, binary] = [GB as f64, (1_u64 << 30) as f64].map(|gigabyte| short(5.0 * gigabyte * 8e-9));
    let gigabyte = format!("with GB = 2^30 bytes it would be {binary} Gb/s; here GB = 10^9");
    [
        paper::AGAINST_POWER
            .contradiction(format!("{ratios}x"), format!("{active:.2} kW / {highest} kW = {text_ratio:.2}x")),
        paper::AGAINST_SPIN_UP
            .contradiction(format!("{spin_up:.1} kW"), format!("{drives} x {each} W = {spin_up:.1} kW")),
        paper::AGAINST_GB.contradiction(format!("{decimal} Gb/s"), gigabyte),
    ]
}
