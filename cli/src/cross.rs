//! `larder reproduce pelican --cross-validate`: the same traces through the simulator and through the server's own
//! interpreter in virtual time.
//!
//! The two crates do not know each other; here a trace of the one becomes a run of the other.

use crate::args::Evaluation;
use crate::output;
use crate::report_dir::ReportDir;
use crate::reproduce::asked;
use crate::simulate::{RunProgress, columns, threads};
use anyhow::bail;
use server::virtual_time::{self, CardSpec, Feed, VirtualRead, VirtualRun};
use sim::cross::{self, Answers, Case, Comparison, ReadMoments, Trace};
use std::num::NonZeroUsize;

/// The files of a report, beside its figures.
const FILES: [&str; 3] = ["report.html", "rows.csv", "rows.json"];

/// The seeds of each case.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const SEEDS_QUICK: [u64; 3] = [1, 2, 3];

/// A case under one seed.
type Job<'a> = (&'a Case, u64);
type Both = (Trace, Answers, Answers);

/// Runs the cross-validation and prints its rows; a report is written if there is a directory for it.
pub fn validate(options: &Evaluation) -> anyhow::Result<()> {
    let (_, rack) = server::data_dir::read_rack("pelican")?;
    let (_, small) = server::data_dir::read_rack("pelican-mini")?;
    let mut cases = cross::cases(&rack, options.quick)?;
    if !options.quick {
        cases.extend(cross::recalls(&small));
    }
    let files = FILES.into_iter().chain(cross::PELICAN_FIGURES).collect();
    let dir = options.out.as_deref().map(|path| ReportDir::make(path, files)).transpose()?;
    let seeds: &[u64] = if options.quick { &SEEDS_QUICK } else { &SEEDS };
    let comparison = compare(&cases, seeds, threads(options.threads))?;
    if let Some(dir) = &dir {
        write(dir, &comparison)?;
    }
    if options.json {
        return output::print_json(&comparison.rows);
    }
    let (agreeing, all) = (comparison.agreeing(), comparison.rows.len());
    output::print(&format!(
        "{}\n{}\n\n{agreeing} of {all} rows agree.\n",
        columns(&cross::table(&comparison)),
        cross::RULE
    ))?;
    if let Some(dir) = &dir {
        output::print(&format!("\nThe report is {}\n", dir.path("report.html").display()))?;
    }
    Ok(())
}

fn write(dir: &ReportDir, comparison: &Comparison) -> anyhow::Result<()> {
    dir.clear()?;
    dir.write("report.html", &cross::page(comparison, &asked()).html())?;
    dir.write("rows.csv", &cross::table(comparison).csv())?;
    dir.write("rows.json", &format!("{}\n", serde_json::to_string_pretty(&comparison.rows)?))?;
    for named in comparison.figures() {
        dir.write(named.name, &named.figure.svg())?;
    }
    Ok(())
}

/// Runs every case with every seed on both sides.
fn compare(cases: &[Case], seeds: &[u64], threads: NonZeroUsize) -> anyhow::Result<Comparison> {
    let jobs: Vec<Job<'_>> = cases.iter().flat_map(|case| seeds.iter().map(move |seed| (case, *seed))).collect();
    let progress = RunProgress::new("runs")?;
    let done = |count| progress.reached(count, jobs.len());
    let all = sim::run_each(&jobs, threads, &|job| both(*job), &done)?;
    progress.end();
    let mut comparison = Comparison::default();
    for (case, runs) in cases.iter().zip(all.chunks(seeds.len())) {
        comparison.add(case, runs);
    }
    Ok(comparison)
}

fn both((case, seed): Job<'_>) -> anyhow::Result<Both> {
    let trace = case.trace(seed)?;
    let simulated = cross::simulate(case, &trace, seed)?;
    let served = serve(case, &trace, seed)?;
    Ok((trace, simulated, served))
}

/// The answers of the server's interpreter to `trace`.
fn serve(case: &Case, trace: &Trace, seed: u64) -> anyhow::Result<Answers> {
    let read = |read: &cross::TracedRead| VirtualRead {
        at: read.at,
        blob: read.blob,
        group: read.group,
        drives: read.drives.to_vec(),
        bytes: read.bytes,
    };
    let outcome = virtual_time::run(&VirtualRun {
        spec: case.rack.clone(),
        policy: case.policy(),
        seed,
        cards: CardSpec { bytes_per_s: case.network.bytes_per_s, shared: case.network.shared },
        blob_bytes: case.blob_bytes,
        feed: match case.feed {
            cross::Feed::PayloadLeftOut => Feed::PayloadLeftOut,
            cross::Feed::Direct => Feed::Direct,
            cross::Feed::Spool(bytes) => Feed::Spool(bytes),
        },
        reads: trace.reads.iter().map(read).collect(),
        from: trace.from,
        until: trace.until,
    })?;
    if let Some(at) = outcome.reads.iter().position(|read| read.wrong_pieces > 0) {
        bail!("the server gave wrong bytes to read {at} of {} under seed {seed}", case.name());
    }
    let moments = |read: &virtual_time::ReadMoments| ReadMoments {
        picked: read.picked,
        first_byte: read.first_byte,
        ended: read.ended,
        refused: read.refused,
    };
    Ok(Answers {
        reads: outcome.reads.iter().map(moments).collect(),
        spin_ups: outcome.spin_ups,
        energy_mj: outcome.energy_mj,
        to: outcome.to,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::{DomainLimit, RackSpec, Time};
    use std::time::Duration;

    fn mini() -> RackSpec {
        server::data_dir::read_rack("pelican-mini").unwrap().1
    }

    /// Every mean is near, regardless of the confidence intervals.
    fn assert_near(compared: &Comparison) {
        let far: Vec<_> = compared.rows.iter().filter(|row| !row.agrees || row.deviation.abs() > 0.05).collect();
        assert!(far.is_empty(), "{far:#?}");
    }

    #[test]
    fn a_small_rack_answers_the_same_in_both_worlds() {
        let [burst, rate, _] = cross::small(&mini(), 16 << 20);
        let compared = compare(&[burst, rate], &[1, 2, 3, 4, 5], NonZeroUsize::MIN).unwrap();
        assert_near(&compared);
        let spin_ups = compared.rows.iter().filter(|row| row.measure == cross::Measure::SpinUps);
        assert!(spin_ups.clone().count() == 2 && spin_ups.clone().all(|row| row.server.mean > 100.0));
    }

    #[test]
    fn links_that_bind_hold_both_worlds_up_alike() {
        let mut draft = (*mini()).clone();
        for resource in &mut draft.resources {
            if let DomainLimit::BytesPerS(bytes_per_s) = &mut resource.limit {
                *bytes_per_s = 300_000_000;
            }
        }
        let [bound, _, _] = cross::small(&RackSpec::validated(draft).unwrap(), 1_000_000_000);
        let [unbound, _, _] = cross::small(&mini(), 1_000_000_000);
        let compared = compare(&[bound, unbound], &[1, 2, 3], NonZeroUsize::MIN).unwrap();
        assert_near(&compared);
        let service = compared.rows.iter().filter(|row| row.measure == cross::Measure::Service);
        let [bound, unbound] = service.map(|row| row.server.mean).collect::<Vec<_>>()[..] else { panic!("two cases") };
        // 1.5 GB of stripes; a link carries 0.3 GB/s of them and six drives 0.84.
        assert!(bound > unbound + 2.0, "{bound} s and {unbound} s");
    }

    #[test]
    fn recalls_of_several_segments_are_as_quick_as_one_operation() {
        let [_, cut] = cross::recalls(&mini());
        let compared = compare(&[cut], &[1, 2], NonZeroUsize::MIN).unwrap();
        assert_near(&compared);
    }

    #[test]
    fn a_slower_network_is_noticed() {
        let [burst, ..] = cross::small(&mini(), 16 << 20);
        let trace = burst.trace(1).unwrap();
        let simulated = cross::simulate(&burst, &trace, 1).unwrap();
        let mut slower = burst.clone();
        slower.network.bytes_per_s = Some(10_000_000);
        let served = serve(&slower, &trace, 1).unwrap();
        let mut compared = Comparison::default();
        compared.add(&burst, &[(trace, simulated, served)]);
        let service = compared.rows.iter().find(|row| row.measure == cross::Measure::Service).unwrap();
        assert!(!service.agrees && service.deviation > 0.1, "{service:?}");
    }

    #[test]
    fn payload_that_is_left_out_takes_its_time() {
        let [left_out, _, with_payload] = cross::small(&mini(), 16 << 20);
        assert_eq!([left_out.feed, with_payload.feed], [cross::Feed::PayloadLeftOut, cross::Feed::Direct]);
        let trace = left_out.trace(1).unwrap();
        let [without, with] = [left_out, with_payload].map(|case| serve(&case, &trace, 1).unwrap());
        assert_eq!(without.spin_ups, with.spin_ups);
        for (without, with) in without.reads.iter().zip(&with.reads) {
            let apart = |one: Option<Time>, other: Option<Time>| one.max(other).unwrap().since(one.min(other).unwrap());
            assert!(apart(without.first_byte, with.first_byte) < Duration::from_millis(50), "{without:?} {with:?}");
            assert!(apart(without.ended, with.ended) < Duration::from_millis(50), "{without:?} {with:?}");
        }
    }
}
