//! The rows: each claim of the text beside the results of the runs.

use super::paper;
use super::runs::{Extent, GB, Runs, Series, gbit, rate};
use crate::Point;
use crate::report::short;
use crate::reproduce::judge::Verdict::{ByConstruction, Calibrated};
use crate::reproduce::judge::{Claim, NEAR, Row, Says};
use crate::reproduce::sweep::{STEP, from_to, most, range, spread};

/// All rows, in the order of the text.
pub fn rows(runs: &Runs) -> Vec<Row> {
    let parts =
        [method, bursts, throughput, rejects, service, first_byte, rebuild, reordering, wear, power, boot, fills];
    parts.iter().flat_map(|part| part(runs)).chain(contradictions(runs)).collect()
}

/// The number of a claim that says one.
fn number(claim: &Claim) -> f64 {
    match claim.says {
        Says::Number(number) | Says::AtMost(number) | Says::AtLeast(number) | Says::Between(number, _) => number,
        Says::Course(_) => panic!("{} says no number", claim.id),
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

/// True if a value falls from each point to the next, and the share by which it rises most.
fn falls<'a>(points: impl Iterator<Item = &'a Point> + Clone, of: fn(&Point) -> f64) -> (bool, f64) {
    let steps = points.clone().zip(points.skip(1)).map(|(one, next)| of(next) / of(one) - 1.0);
    let worst = most(steps);
    (worst <= STEP, worst)
}

fn method(runs: &Runs) -> Vec<Row> {
    let steady = |point: &Point| point.parameters.reads_per_s.is_some() && point.rebuild.is_none();
    let poisson = runs.points.iter().filter(|(_, point)| steady(point));
    let late =
        |(_, point): &&(Series, Point)| point.steady_after_s.is_none_or(|after| after > point.parameters.warm_up_s);
    let count = poisson.clone().count();
    let shown = |(series, point): &(Series, Point)| {
        let after = point.steady_after_s.map_or("not".to_owned(), |s| format!("after {} h", short(s / 3_600.0)));
        let u = point.parameters.overtake_limit / GB;
        let of = if *series == Series::ByU { format!("u = {u} GB") } else { format!("{}/s", short(rate(point))) };
        format!("{series:?} at {of} {after}")
    };
    let late: Vec<String> = poisson.clone().filter(late).map(shown).collect();
    let (shortest, longest) = range(poisson.clone().map(|(_, point)| point.parameters.warm_up_s / 3_600.0));
    let near = if shortest < longest {
        format!(", or {} h where about as much is offered as can be served", short(longest))
    } else {
        String::new()
    };
    let seen = format!("{} of {count} points", count - late.len());
    let measured = runs.at(Series::Pelican, 1.0).parameters.measured_s / 3_600.0;
    let events: u64 = runs.points.iter().map(|(_, point)| point.events).sum();
    let later = if late.is_empty() { String::new() } else { format!("; later: {}", late.join(", ")) };
    vec![
        paper::STEADY.seen(late.is_empty(), seen).noted(format!(
            "MSER-5 on the number of open requests, within a warm-up of {} h{near}{later}",
            short(shortest)
        )),
        paper::SPAN.judge(measured).noted(if runs.extent == Extent::Quick { "the quick form" } else { "" }),
        paper::JUDGED
            .seen(true, format!("never, in {} events", short(events as f64)))
            .noted("every run is judged event by event, and ends the whole command at the first fault"),
    ]
}

fn bursts(runs: &Runs) -> Vec<Row> {
    let seeds = |point: &Point| point.parameters.seeds.len() as u64;
    let whole = |point: &Point| {
        let asked = u64::from(point.parameters.burst_reads.unwrap_or(0)) * seeds(point);
        point.answered == asked && point.refused == 0
    };
    let shown = |point: &Point| {
        format!(
            "b = {}: {} Gb/s, {} s, {} s, {} s",
            point.parameters.burst_reads.unwrap_or(0),
            short(gbit(point)),
            short(point.completion_s.mean.unwrap_or(0.0)),
            short(mean_ttfb(point)),
            short(service_mean(point))
        )
    };
    let points = || runs.of(Series::Burst);
    let asked: u32 = points().filter_map(|point| point.parameters.burst_reads).sum();
    let all: Vec<String> = points().map(shown).collect();
    vec![
        paper::BURST_ANSWERED.seen(
            points().all(whole),
            format!("{} of {asked} answered", if points().all(whole) { "all" } else { "not all" }),
        ),
        paper::BURST_CARD.judge(most(points().map(gbit))).if_met(ByConstruction),
        paper::BURST_COURSES
            .open(all.join("; "), "means of throughput, completion, TTFB and service; figure 4 has no number in words"),
    ]
}

fn throughput(runs: &Runs) -> Vec<Row> {
    let below = |limit: f64| {
        let pairs = runs.of(Series::Pelican).zip(runs.of(Series::Fp)).filter(move |(point, _)| rate(point) <= limit);
        percent(most(pairs.map(|(ours, fp)| 1.0 - ours.throughput_bytes_per_s / fp.throughput_bytes_per_s)).max(0.0))
    };
    let plateau = |series| range(runs.of(series).filter(|point| rate(point) >= 5.0).map(gbit));
    let (ours, fp) = (plateau(Series::Pelican), plateau(Series::Fp));
    let level = |plateau| spread(plateau) <= 2.0 * STEP;
    let seen = format!("Pelican {} Gb/s, FP {} Gb/s", from_to(ours), from_to(fp));
    vec![
        paper::ALMOST_FP.judge(below(4.0)).noted("at 4/s, where it is refused; nothing is lost below"),
        paper::WITHIN_FP.judge(below(f64::INFINITY)).noted("contradiction (a)"),
        paper::PLATEAU.seen(level(ours) && level(fp), seen),
        paper::FP_CARD.judge(fp.1),
        paper::RANDOM_LAYOUT.judge(most(runs.of(Series::Random).map(gbit))),
        paper::FP_UNBOUNDED.judge(most(runs.of(Series::FpUnbounded).map(gbit))),
        paper::UNBOUNDED_MOST.judge(most(runs.of(Series::PelicanUnbounded).map(gbit))),
    ]
}

fn rejects(runs: &Runs) -> Vec<Row> {
    let below_5 =
        |series| percent(most(runs.of(series).filter(|point| rate(point) < 5.0).map(|point| point.reject_rate)));
    let at = |series, rate| percent(runs.at(series, rate).reject_rate);
    let to_8 = most(runs.of(Series::FpUnbounded).filter(|point| rate(point) <= 8.0).map(|point| point.reject_rate));
    vec![
        paper::NO_REJECTS.judge(below_5(Series::Pelican)).noted("at 4/s; none below"),
        paper::NO_REJECTS_UNBOUNDED.judge(below_5(Series::PelicanUnbounded)),
        paper::NO_REJECTS_FP.judge(below_5(Series::Fp)),
        paper::FP_NEVER.judge(percent(to_8)),
        paper::REJECTS_5
            .judge(at(Series::Pelican, 5.0))
            .noted(format!("contradiction (a); at u = 350 GB ours are {:.1} %", percent(runs.at_u(350).reject_rate))),
        paper::REJECTS_5_UNBOUNDED.judge(at(Series::PelicanUnbounded, 5.0)).if_met(Calibrated),
        paper::REJECTS_5_FP
            .judge(at(Series::Fp, 5.0))
            .noted("its 48 queues hold 1,000 each and are not full within the day"),
        paper::REJECTS_8.judge(at(Series::Pelican, 8.0)),
        paper::WAKING_5.judge(percent(runs.at(Series::PelicanUnbounded, 5.0).wake_time_fraction)),
    ]
}

fn service(runs: &Runs) -> Vec<Row> {
    let from = || runs.of(Series::Pelican).filter(|point| rate(point) >= 0.25);
    let (goes, worst) = falls(from(), service_mean);
    let ends: Vec<String> =
        [0.25, 1.0, 4.0, 8.0].map(|rate| short(service_mean(runs.at(Series::Pelican, rate)))).into();
    let rises = if goes { String::new() } else { format!("where it rises, by {:.1} % at most", percent(worst)) };
    let crosses =
        runs.of(Series::Pelican).zip(runs.of(Series::Fp)).find(|(ours, fp)| service_mean(ours) < service_mean(fp));
    vec![
        paper::SERVICE_LEAST.judge(runs.at(Series::Fp, 0.0625).service_s.p50.unwrap_or(0.0)),
        paper::SERVICE_FALLS.seen(goes, format!("{} s at 0.25, 1, 4, 8/s", ends.join(", "))).noted(rises),
        paper::SERVICE_CROSSES.judge(crosses.map_or(f64::INFINITY, |(ours, _)| rate(ours))),
    ]
}

fn first_byte(runs: &Runs) -> Vec<Row> {
    let idle = runs.at(Series::Pelican, 0.0625);
    let sure = idle.ci95.ttfb_mean_s.map_or("one seed".to_owned(), |half| format!("+- {} s at 95 %", short(half)));
    let pairs = runs.of(Series::Pelican).zip(runs.of(Series::Fp)).filter(|(point, _)| rate(point) < 5.0);
    let ratios = pairs.map(|(ours, fp)| (mean_ttfb(ours) / fp.ttfb_s.max.unwrap_or(f64::MAX), rate(ours)));
    let (least, at) = ratios.fold((f64::INFINITY, 0.0), |least, next| if next.0 < least.0 { next } else { least });
    vec![
        paper::TTFB_IDLE.judge(mean_ttfb(idle)).if_met(Calibrated).noted(format!("at 1/16 request/s; {sure}")),
        paper::TTFB_IDLE_FP.judge(mean_ttfb(runs.at(Series::Fp, 0.0625))),
        paper::TTFB_RATIO.judge(least).noted(format!("least at {}/s", short(at))),
    ]
}

/// TTFB while a drive is rebuilt over that without a failure, at each rate: in its class, elsewhere.
fn slowed(runs: &Runs) -> impl Iterator<Item = (f64, [f64; 2])> + Clone {
    runs.of(Series::Rebuild).filter_map(|point| {
        let (rebuild, plain) = (point.rebuild?, mean_ttfb(runs.at(Series::Pelican, rate(point))));
        let times = |clients: crate::ClientSummary| Some(clients.ttfb_s.mean? / plain);
        Some((rate(point), [times(rebuild.in_class)?, times(rebuild.elsewhere)?]))
    })
}

fn rebuild_hours(point: &Point) -> f64 {
    point.rebuild.and_then(|rebuild| rebuild.rebuild_s).unwrap_or(f64::INFINITY) / 3_600.0
}

fn rebuild(runs: &Runs) -> Vec<Row> {
    // A quick form rebuilds a twentieth: its time is scaled, so that the row means the same.
    let scale = if runs.extent == Extent::Full { 1.0 } else { 20.0 };
    let took: Vec<f64> = runs.of(Series::Rebuild).map(|point| rebuild_hours(point) * scale).collect();
    let courses: Vec<String> =
        runs.of(Series::Rebuild).zip(&took).map(|(p, h)| format!("{h:.1} h at {}/s", short(rate(p)))).collect();
    let longest = most(took.iter().copied());
    let level = took.iter().rev().take(2).all(|hours| longest / hours - 1.0 <= NEAR);
    let grows = took.first().is_some_and(|first| *first < longest) && level;
    let in_long_turns = most(runs.of(Series::RebuildInLongTurns).map(rebuild_hours));
    let note = if scale > 1.0 {
        "a twentieth of the drive, times 20".to_owned()
    } else {
        format!("priorities take turns of 60 s, of which a switch is a fifth; with turns of 300 s {in_long_turns:.1} h")
    };
    // 4.28 TB at the drive's rate, half of the class's time.
    let arithmetic_h = 4.28e12 / runs.rack.profile.bytes_per_s as f64 / 0.5 / 3_600.0;
    let mut rows =
        vec![paper::REBUILD_TIME.judge(longest).noted(note), paper::REBUILD_GROWS.seen(grows, courses.join(", "))];
    rows.extend(rebuild_clients(runs));
    rows.push(
        paper::REBUILD_ARITHMETIC
            .judge(arithmetic_h)
            .if_met(ByConstruction)
            .noted("leaves 6 % for switching inside 24 h"),
    );
    rows
}

fn rebuild_clients(runs: &Runs) -> [Row; 3] {
    let inside = || slowed(runs).map(|(rate, [inside, _])| (rate, inside));
    let high = inside().last().map_or(0.0, |(_, inside)| inside);
    let (at, highest) = inside().fold((0.0, 0.0), |most, next| if next.1 > most.1 { next } else { most });
    let outside =
        |from: f64| slowed(runs).filter(move |(rate, _)| *rate >= from).map(|(_, [_, outside])| outside - 1.0);
    let off = |from: f64| percent(most(outside(from).map(f64::abs)));
    let slower = percent(most(outside(0.0)));
    let within = slower.is_finite() && off(0.0) <= 5.0;
    let why = match at {
        2.0.. => ": half of a class no longer carries what the whole of it did, and queues fill that were empty",
        _ => "",
    };
    [
        paper::REBUILD_CLIENTS.judge(high),
        paper::REBUILD_CLIENTS_MOST.judge(highest).noted(format!("at {}/s{why}", short(at))),
        paper::REBUILD_OTHERS.seen(within, format!("{slower:.0} % slower")).noted(format!(
            "at most; from 1/s up within {:.0} %, either way. Drives mount slowly while their server moves bytes for \
             another group, as a rebuild always does; at 4/s the others gain by the network that the class leaves free",
            off(1.0)
        )),
    ]
}

fn reordering(runs: &Runs) -> Vec<Row> {
    let p99 = |gigabytes| runs.at_u(gigabytes).ttfb_s.p99.unwrap_or(0.0);
    let ratio = |one, other| gbit(runs.at_u(one)) / gbit(runs.at_u(other));
    let limited = runs.of(Series::ByU).filter(|point| point.parameters.overtake_limit > 0);
    let least = limited.min_by(|a, b| a.ttfb_s.p99.unwrap_or(0.0).total_cmp(&b.ttfb_s.p99.unwrap_or(0.0)));
    let least = least.map_or(0.0, |point| (point.parameters.overtake_limit / GB) as f64);
    let (below, beyond) = (ratio(350, 50), ratio(1_000, 350));
    let seconds = |from, to| format!("{} s to {} s", short(p99(from)), short(p99(to)));
    let fifo = runs.at_u(0);
    let years = fifo.parameters.measured_s * fifo.parameters.seeds.len() as f64 / (365.25 * 86_400.0);
    let drives = runs.rack.drives.len() as f64;
    let group_starts = fifo.spin_ups_per_drive_year * years * drives / f64::from(runs.rack.group_drives);
    vec![
        paper::U_THROUGHPUT.judge(below).noted("contradiction (b)"),
        paper::U_MODEST.seen(beyond < below && beyond >= 1.0, format!("{}x, after {}x", short(beyond), short(below))),
        paper::U_P99_FALLS.seen(p99(350) < p99(50), seconds(50, 350)),
        paper::U_P99_RISES.seen(p99(1_000) > p99(350), seconds(350, 1_000)),
        paper::U_P99_LEAST
            .judge(least)
            .noted(format!("among the u that were simulated; at 350 GB {} s", short(p99(350)))),
        paper::U_REJECTS_50.judge(percent(runs.at_u(50).reject_rate)).noted("contradiction (b)"),
        paper::U_REJECTS_1000.judge(percent(runs.at_u(1_000).reject_rate)).noted("contradiction (b)"),
        paper::FIFO_SPIN_UPS.judge(group_starts / fifo.answered as f64),
    ]
}

fn wear(runs: &Runs) -> Vec<Row> {
    let starts = |point: &Point| point.spin_ups_per_drive_year;
    let past = range(runs.of(Series::Pelican).filter(|point| rate(point) >= 4.0).map(starts));
    let tb = runs.at(Series::Pelican, 8.0).tb_per_drive_year;
    let highest = most(runs.of(Series::Pelican).map(|point| point.tb_per_drive_year));
    let code = runs.rack.code;
    let payload = tb * f64::from(code.data) / code.stacks() as f64;
    vec![
        paper::SPIN_UPS_PEAK.judge(peak(runs.of(Series::Pelican), starts)),
        paper::SPIN_UPS_LEVEL
            .seen(spread(past) <= NEAR, from_to(past))
            .noted("a drive and year; at 4/s queues are not full all the time at 40 Gb/s"),
        paper::DATA_YEAR.judge(tb).noted(format!("contradiction (a); at 8/s, and {highest:.1} TB at most")),
        paper::DATA_YEAR_PAYLOAD
            .judge(payload)
            .noted("if the text counts what clients get; it then sends 28.9 Gb/s, and refuses 28 % at 5/s, not 35 %"),
    ]
}

/// All drives of a rack asleep but 96 (or whatever is one group of each class), in kW, those drawing `each_mw`.
fn with_active(runs: &Runs, each_mw: u32) -> f64 {
    let active = f64::from(runs.rack.group_drives) * runs.classes as f64;
    let watts = runs.rack.profile.watts;
    let asleep = runs.rack.drives.len() as f64 - active;
    (active * f64::from(each_mw) + asleep * f64::from(watts.standby_mw)) / 1e6
}

fn power(runs: &Runs) -> Vec<Row> {
    let watts = runs.rack.profile.watts;
    let (waking, awake) = (with_active(runs, watts.spin_up_mw), with_active(runs, watts.active_mw));
    let mean = |point: &Point| point.power_w.mean / 1e3;
    let peak_kw = most(runs.of(Series::Pelican).map(|point| point.power_w.peak)) / 1e3;
    let all_active = mean(runs.at(Series::Fp, 1.0));
    let half = mean(runs.at(Series::Pelican, 0.5));
    vec![
        paper::POWER_PEAKS_AT.judge(peak(runs.of(Series::Pelican), |point| point.power_w.mean)),
        paper::POWER_HIGHEST.judge(most(runs.of(Series::Pelican).map(mean))),
        paper::POWER_LOW_END.judge(mean(runs.at(Series::Pelican, 0.0625))),
        paper::POWER_HIGH_END
            .judge(mean(runs.at(Series::Pelican, 8.0)))
            .noted("the time spent waking, which 21 % of rejects imply, costs more than 0.05 kW"),
        paper::POWER_PEAK.judge(peak_kw),
        paper::POWER_ALL_ACTIVE.judge(all_active).if_met(ByConstruction),
        paper::POWER_PEAK_RATIO.judge(all_active / peak_kw),
        paper::POWER_WAKING.judge(waking).if_met(ByConstruction),
        paper::POWER_AWAKE
            .judge(awake)
            .if_met(ByConstruction)
            .noted("so 2.6 kW at both ends means that groups stay up until replaced"),
        paper::POWER_SHARE.judge(percent((half - awake) / (waking - awake))),
    ]
}

fn boot(runs: &Runs) -> Vec<Row> {
    let booted = most(runs.of(Series::Pelican).map(|point| point.boot_s));
    let groups = runs.rack.drives.len() as f64 / f64::from(runs.rack.group_drives);
    vec![
        paper::BOOT.judge(booted).noted("every group waked once and its first operation answered"),
        paper::BOOT_ROUNDS.judge(groups / runs.classes as f64).if_met(ByConstruction),
    ]
}

fn fills(runs: &Runs) -> Vec<Row> {
    let share = |rack: &super::runs::FilledRack| percent(rack.filled.utilisation());
    let shown = |values: Vec<f64>| match range(values.iter().copied()) {
        (only, _) if values.len() == 1 => format!("{only:.3} %"),
        (least, greatest) => format!("{least:.3} to {greatest:.3} %"),
    };
    let (vary, random): (Vec<f64>, Vec<f64>) =
        (runs.filled(true, false).map(share).collect(), runs.filled(true, true).map(share).collect());
    // Both begin with drives of the same sizes.
    let worse = vary.iter().zip(&random).all(|(ours, random)| random < ours);
    let over: Vec<f64> = runs.filled(true, false).map(|rack| percent(rack.over_clipped)).collect();
    let mean = over.iter().sum::<f64>() / over.len() as f64;
    let note = match runs.extent {
        Extent::Full => "drives of 4.2 to 4.9 TB, the mean of 1, 2 and 4 even draws".to_owned(),
        Extent::Quick => "drives of a twentieth of 4.2 to 4.9 TB, the mean of 2 even draws".to_owned(),
    };
    let equal = most(runs.filled(false, false).map(share));
    let equal = match runs.extent {
        Extent::Full => paper::FILL_EQUAL.judge(equal),
        Extent::Quick => paper::FILL_EQUAL
            .judge(equal)
            .noted("drives of a twentieth: what a blob leaves over is twenty times as much"),
    };
    vec![
        equal,
        paper::FILL_VARIED
            .open(shown(vary), "the drives' sizes of figure 3(e) did not survive; by the shape of ours")
            .noted(format!("figure 3(e) did not survive: {note}")),
        paper::FILL_RANDOM.seen(worse, shown(random)),
        paper::FILL_CLIPPED.judge(mean).noted(format!("{}; the text: 99.4 x 4.55 / 4.2", shown(over))),
    ]
}

fn contradictions(runs: &Runs) -> Vec<Row> {
    let ours = runs.at(Series::Pelican, 5.0);
    let fp = runs.at(Series::Fp, 5.0);
    let below = percent(1.0 - ours.throughput_bytes_per_s / fp.throughput_bytes_per_s);
    let refused = number(&paper::REJECTS_5) / 100.0;
    let (sent, fp_sent) = (40.0 * (1.0 - refused), 40.0 * (1.0 - number(&paper::REJECTS_5_FP) / 100.0));
    let year_s = 365.25 * 86_400.0;
    let drives = runs.rack.drives.len() as f64;
    let read = number(&paper::DATA_YEAR) * 1e12 * drives / year_s * 8e-9;
    let payload = read * f64::from(runs.rack.code.data) / runs.rack.code.stacks() as f64;
    let (low, high) = (number(&paper::U_REJECTS_50) / 100.0, number(&paper::U_REJECTS_1000) / 100.0);
    let shown = format!("{} Gb/s", short(gbit(ours)));
    let u = |gigabytes| percent(runs.at_u(gigabytes).reject_rate);
    let from_u = format!(
        "{} % to {} %, {}x",
        short(u(50)),
        short(u(1_000)),
        short(gbit(runs.at_u(1_000)) / gbit(runs.at_u(50)))
    );
    let mut rows = vec![
        paper::AGAINST_WITHIN.contradiction(
            format!("{shown}, {below:.1} % below FP"),
            format!(
                "5/s x 8 Gb x (1 - {refused}) = {} Gb/s, which is {:.0} % below FP's {} Gb/s, not within 20 %",
                short(sent),
                percent(1.0 - sent / fp_sent),
                short(fp_sent)
            ),
        ),
        paper::AGAINST_DATA.contradiction(
            shown,
            format!(
                "99 TB x {drives} drives a year = {} Gb/s read: {} Gb/s for clients if all 18 stacks count, {} Gb/s if \
                 payload counts; 35 % of rejects leave {} Gb/s",
                short(read),
                short(payload),
                short(read),
                short(sent)
            ),
        ),
        paper::AGAINST_NEVER.contradiction(
            format!("{:.1} % at 16/s", percent(runs.at(Series::FpUnbounded, 16.0).reject_rate)),
            format!(
                "106 Gb/s are 13.25/s; of 16/s it cannot send {:.0} %, and queues of any length fill",
                percent(1.0 - number(&paper::FP_UNBOUNDED) / (16.0 * 8.0))
            ),
        ),
        paper::AGAINST_U.contradiction(
            from_u,
            format!(
                "(1 - {high}) / (1 - {low}) = {} times the throughput, not about two",
                short((1.0 - high) / (1.0 - low))
            ),
        ),
    ];
    rows.extend(contradictions_of_power(runs));
    rows
}

fn contradictions_of_power(runs: &Runs) -> [Row; 3] {
    let watts = runs.rack.profile.watts;
    let drives = runs.rack.drives.len() as f64;
    let (spin_up, active) = (drives * f64::from(watts.spin_up_mw) / 1e6, drives * f64::from(watts.active_mw) / 1e6);
    let ratios = range(runs.of(Series::Pelican).map(|point| active / (point.power_w.mean / 1e3)));
    let highest = number(&paper::POWER_HIGHEST);
    [
        paper::AGAINST_POWER.contradiction(
            format!("{}x", from_to(ratios)),
            format!("{active:.2} kW / {highest} kW = {:.2}x", active / highest),
        ),
        paper::AGAINST_SPIN_UP.contradiction(
            format!("{spin_up:.1} kW"),
            format!("{drives} x {} W = {spin_up:.1} kW", f64::from(watts.spin_up_mw) / 1e3),
        ),
        paper::AGAINST_GB.contradiction(
            format!("{} Gb/s", short(5.0 * GB as f64 * 8e-9)),
            format!(
                "with GB = 2^30 bytes it would be {} Gb/s; here GB = 10^9",
                short(5.0 * (1_u64 << 30) as f64 * 8e-9)
            ),
        ),
    ]
}
