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
const SEEDS_QUICK: [u64; 2] = [1, 2];

/// A case under one seed.
type Job<'a> = (&'a Case, u64);
type Both = (Trace, Answers, Answers);

/// Runs the cross-validation and prints its rows; a report is written if there is a directory for it.
pub fn validate(options: &Evaluation) -> anyhow::Result<()> {
    let (_, rack) = server::data_dir::read_rack("pelican")?;
    let files = FILES.into_iter().chain(cross::PELICAN_FIGURES).collect();
    let dir = options.out.as_deref().map(|path| ReportDir::make(path, files)).transpose()?;
    let seeds: &[u64] = if options.quick { &SEEDS_QUICK } else { &SEEDS };
    let comparison = compare(&cross::cases(&rack, options.quick)?, seeds, threads(options.threads))?;
    if let Some(dir) = &dir {
        write(dir, &comparison)?;
    }
    if options.json {
        return output::print_json(&comparison.rows);
    }
    let (agreeing, all) = (comparison.agreeing(), comparison.rows.len());
    output::print(&format!("{}\n{}\n\n{agreeing} of {all} rows agree.\n", columns(&cross::table(&comparison)), cross::RULE))?;
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
        drives: read.drives.clone(),
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

    fn mini() -> Vec<Case> {
        let (_, rack) = server::data_dir::read_rack("pelican-mini").unwrap();
        cross::small(&rack, 16 << 20)
    }

    #[test]
    fn a_small_rack_answers_the_same_in_both_worlds() {
        let compared = compare(&mini(), &[1, 2, 3, 4, 5], NonZeroUsize::MIN).unwrap();
        let differing: Vec<_> = compared.rows.iter().filter(|row| !row.agrees).collect();
        println!("{}", columns(&cross::table(&compared)));
        assert!(differing.is_empty(), "{differing:#?}");
    }

    #[test]
    fn payload_that_is_left_out_takes_its_time() {
        let cases = mini();
        let trace = cases[0].trace(1).unwrap();
        let [without, with] = [0, 1].map(|index| serve(&cases[index], &trace, 1).unwrap());
        assert_eq!([cases[0].feed, cases[1].feed], [cross::Feed::PayloadLeftOut, cross::Feed::Direct]);
        println!("{:?} {:?}", without.to, with.to);
        for (without, with) in without.reads.iter().zip(&with.reads) {
            println!("{without:?} {with:?}");
        }
    }

    #[test]
    fn spool() {
        let (_, rack) = server::data_dir::read_rack("pelican-mini").unwrap();
        let case = cross::spooled(&rack, 192 << 20, 4);
        let compared = compare(&[case], &[1, 2], NonZeroUsize::MIN).unwrap();
        println!("{}", columns(&cross::table(&compared)));
    }
}
