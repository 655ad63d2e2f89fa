//! Checks that torture catches bugs: known ones are switched on, one at a time, and seeds are run until one breaks a
//! rule.
//!
//! ```text
//! cargo test --release -p torture --features sabotage --test sabotage -- --nocapture
//! ```
//! prints the table of `docs/reliability/README.md`. `LARDER_SABOTAGE=NAME` picks one bug, shrinks its run and prints
//! that.

#![allow(clippy::unwrap_used)]

use model::sabotage::{Sabotage, switch};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use torture::{FaultKind, LOGGED_FROM, LOST_FROM, Plan, Violation, history, run, shrink};

/// Each bug is caught within this number of seeds that can meet it.
const SEEDS: u64 = 200;

/// Runs that may be tried to shrink one, as for `larder torture`.
const TRIES: u64 = 300;

/// Every bug.
const ALL: [Sabotage; 26] = [
    Sabotage::DriveLabelUnchecked,
    Sabotage::StackIdentityUnchecked,
    Sabotage::RecordChecksumIgnored,
    Sabotage::FragmentChecksumIgnored,
    Sabotage::SourceErrorTriedElsewhere,
    Sabotage::NoDeadline,
    Sabotage::RightsCheckedEarly,
    Sabotage::SweepBeforeCheckpoint,
    Sabotage::StackSyncSkipped,
    Sabotage::StagedSyncSkipped,
    Sabotage::FreeBeforeVerify,
    Sabotage::LedgerOffByOne,
    Sabotage::StaleCatalogRead,
    Sabotage::WrongFragmentIndex,
    Sabotage::OvertakeUnchecked,
    Sabotage::HoldIgnored,
    Sabotage::OlderCatalogTrusted,
    Sabotage::StartsNotRemembered,
    Sabotage::MissingLabelIgnored,
    Sabotage::CloneBelieved,
    Sabotage::LeftOversForgotten,
    Sabotage::RecoverTakesTheLast,
    Sabotage::ManifestWrittenLate,
    Sabotage::RemovedBeforeManifest,
    Sabotage::CopyBelievedComplete,
    Sabotage::RecoverMarksItsSource,
];

/// The name of a bug, and its effect.
fn described(bug: Sabotage) -> (&'static str, &'static str) {
    match bug {
        Sabotage::DriveLabelUnchecked => ("drive label unchecked", "a drive that shows another's label is used"),
        Sabotage::StackIdentityUnchecked => ("stack identity unchecked", "a file is removed by its name alone"),
        Sabotage::RecordChecksumIgnored => ("record checksum ignored", "a misread record of the catalog is believed"),
        Sabotage::FragmentChecksumIgnored => ("fragment checksum ignored", "rotten fragments are given out"),
        Sabotage::SourceErrorTriedElsewhere => {
            ("source error tried elsewhere", "a pack that cannot be read is written again and again")
        }
        Sabotage::NoDeadline => ("no deadline", "a drive that hangs holds its operation for as long as it likes"),
        Sabotage::RightsCheckedEarly => ("rights checked early", "a commit is made by a right that is gone"),
        Sabotage::SweepBeforeCheckpoint => {
            ("sweep before checkpoint", "a log that was never synced is believed at the start")
        }
        Sabotage::StackSyncSkipped => ("stack sync skipped", "staged files go before their blob is durable"),
        Sabotage::StagedSyncSkipped => ("staged sync skipped", "a PUT is acknowledged before its file is durable"),
        Sabotage::FreeBeforeVerify => ("free before verify", "staged files go before their blob was read back"),
        Sabotage::LedgerOffByOne => ("ledger off by one", "one drive too many is started"),
        Sabotage::StaleCatalogRead => ("stale catalog read", "a read does not see the last change"),
        Sabotage::WrongFragmentIndex => ("wrong fragment index", "what is rebuilt is not what was lost"),
        Sabotage::OvertakeUnchecked => ("o - t not checked", "operations are overtaken by more than u"),
        Sabotage::HoldIgnored => ("hold ignored", "stacks go while they are read"),
        Sabotage::OlderCatalogTrusted => ("older catalog trusted", "what only the newest catalog knows is removed"),
        Sabotage::StartsNotRemembered => ("starts not remembered", "a restart gives every drive a second day's budget"),
        Sabotage::MissingLabelIgnored => ("missing label ignored", "a drive that was emptied is used"),
        Sabotage::CloneBelieved => ("clone believed", "a copy of a drive is used in another one's place"),
        Sabotage::LeftOversForgotten => ("left-overs forgotten", "what nobody counts on a drive that is back stays"),
        Sabotage::RecoverTakesTheLast => {
            ("recover takes the last", "an old version is recovered in a newer one's place")
        }
        Sabotage::ManifestWrittenLate => ("manifest written late", "a log has records before the manifest names it"),
        Sabotage::RemovedBeforeManifest => {
            ("removed before the manifest", "a dead log is removed before the manifest says that it is dead")
        }
        Sabotage::CopyBelievedComplete => ("copy believed complete", "a rotation that lost something is believed"),
        Sabotage::RecoverMarksItsSource => {
            ("recover marks its source", "a recovery that was thrown away has changed the workshop")
        }
    }
}

/// False if a run of `plan` cannot meet `bug`, since nothing in it requests the step that the bug leaves out. That seed
/// is not run, and does not count.
fn may_meet(bug: Sabotage, plan: &Plan) -> bool {
    let has = |kind| plan.kinds.contains(&kind);
    match bug {
        Sabotage::DriveLabelUnchecked => has(FaultKind::WrongLabel),
        Sabotage::StackIdentityUnchecked => has(FaultKind::ForeignFile),
        Sabotage::RecordChecksumIgnored => has(FaultKind::CatalogMisread),
        Sabotage::NoDeadline => has(FaultKind::Hangs),
        Sabotage::RightsCheckedEarly => plan.users,
        Sabotage::SweepBeforeCheckpoint => has(FaultKind::CommitUnsynced),
        Sabotage::HoldIgnored => plan.slow_readers,
        Sabotage::OlderCatalogTrusted => has(FaultKind::OlderCatalog),
        Sabotage::MissingLabelIgnored => has(FaultKind::EmptiedDrive),
        Sabotage::CloneBelieved => has(FaultKind::ClonedDrive),
        Sabotage::LeftOversForgotten => plan.returns || plan.policy.tries_given_up,
        Sabotage::RecoverTakesTheLast | Sabotage::RecoverMarksItsSource => has(FaultKind::LostCatalog),
        Sabotage::ManifestWrittenLate | Sabotage::RemovedBeforeManifest => plan.has_log(),
        Sabotage::CopyBelievedComplete => plan.has_log() && has(FaultKind::LogFileDamaged),
        _ => true,
    }
}

/// The first of the seeds that are run: earlier runs do not use the code that has the bug.
fn first_seed(bug: Sabotage) -> u64 {
    match bug as u8 {
        number if number >= Sabotage::ManifestWrittenLate as u8 => LOGGED_FROM,
        number if number >= Sabotage::MissingLabelIgnored as u8 => LOST_FROM,
        _ => 0,
    }
}

/// The first of the seeds that breaks a rule with `bug` on, and the violation. Without a bug none of them does:
/// `seeds.rs` runs them all.
fn first_caught(bug: Sabotage, story: bool) -> Option<(u64, Violation)> {
    let plans = (first_seed(bug)..).map(|seed| (seed, Plan::of(seed))).filter(|(_, plan)| may_meet(bug, plan));
    plans.take(SEEDS as usize).find_map(|(seed, plan)| {
        switch(Some(bug));
        let (began, report) = (Instant::now(), run(&plan, false));
        let violation = report.violation.clone();
        if story && violation.is_some() {
            let (first, shrunk) = (began.elapsed(), shrink(&plan, report, TRIES));
            println!("{}\n{:?}", history(&shrunk.report.lines), shrunk.report.violation);
            println!(
                "seed {seed}: {first:.1?}; shrunk by {} runs within {:.1?}",
                shrunk.tried,
                began.elapsed() - first
            );
        }
        switch(None);
        Some((seed, violation?))
    })
}

/// The row of a bug that was caught, or the message about one that was not.
fn caught(bug: Sabotage, story: bool) -> Result<String, String> {
    let (name, breaks) = described(bug);
    if let Some((seed, violation)) = first_caught(bug, story) {
        let seen: String = violation.seen.chars().take(90).collect();
        return Ok(format!("| {name} | {breaks} | {seed} | {}: {} |", violation.rule, seen.replace('|', "/")));
    }
    Err(format!("`{name}` is not caught by any of {SEEDS} seeds that can meet it"))
}

#[test]
fn every_bug_is_caught_within_200_seeds_that_can_meet_it() {
    let picked = std::env::var("LARDER_SABOTAGE").ok();
    let is_picked = |bug: &Sabotage| picked.as_ref().is_none_or(|picked| format!("{bug:?}").contains(picked));
    let bugs: Vec<Sabotage> = ALL.into_iter().filter(is_picked).collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    let row = caught(*bug, picked.is_some());
                    let took_s = began.elapsed().as_secs_f64();
                    eprintln!("{took_s:6.1} s {}", row.as_ref().unwrap_or_else(|missed| missed));
                    rows.lock().push((*bug as u8, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner();
    rows.sort_by_key(|(bug, _)| *bug);
    println!("| bug | what it breaks | first seed | caught by |\n|---|---|---|---|");
    for (_, row) in &rows {
        println!("{}", row.as_ref().unwrap_or_else(|missed| missed));
    }
    let missed: Vec<&String> = rows.iter().filter_map(|(_, row)| row.as_ref().err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
