//! `larder torture`: runs seeds of the torture one after another, on several threads, and prints the results.

use crate::args::Torture;
use crate::human::table;
use crate::output;
use crate::simulate::threads;
use anyhow::Context;
use parking_lot::Mutex;
use serde::Serialize;
use server::clock;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use torture::{Line, Pair, Plan, Report, Totals, Violation, run, shrink};

/// The commit from which this binary was built.
const COMMIT: &str = env!("LARDER_COMMIT");

/// Number of broken runs after which no more are started.
const BROKEN_MAX: usize = 8;

/// Number of printed lines of a history: its last ones.
const LINES_SHOWN: usize = 60;

/// Time between two progress lines.
const PROGRESS: Duration = Duration::from_mins(1);

/// A run that broke a rule.
#[derive(Serialize)]
struct Broken {
    seed: u64,
    hash: String,
    violation: Violation,
    /// The plan after shrinking.
    shrunk: Plan,
    shrunk_violation: Violation,
    history: Vec<Line>,
}

/// Everything that is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    commit: &'static str,
    version: &'static str,
    first_seed: u64,
    /// Of the last run.
    hash: String,
    totals: &'a Totals,
    /// Pairs of event and state that were not reached and can be.
    never: Vec<Pair>,
    broken: &'a [Broken],
}

#[derive(Default)]
struct Found {
    totals: Totals,
    broken: Vec<Broken>,
    last: Option<Report>,
    reported: Option<Instant>,
}

/// `larder torture`. Exit code 1 if a rule was broken.
pub fn torture(options: &Torture, logged: bool) -> anyhow::Result<ExitCode> {
    let first = options.seed.unwrap_or_else(|| clock::since_epoch().as_nanos() as u64 >> 10);
    if !options.json {
        output::print(&format!("seed {first}, larder {} of commit {COMMIT}\n", env!("CARGO_PKG_VERSION")))?;
    }
    let work = Work {
        options,
        logged,
        first,
        next: AtomicU64::new(0),
        count: options.seeds.unwrap_or(if options.hours.is_some() { u64::MAX } else { 1 }),
        until: options.hours.map(|hours| clock::monotonic() + Duration::from_secs_f64(hours * 3600.0)),
        found: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..threads(options.jobs).get()).map(|_| scope.spawn(|| work.run())).collect();
        for job in jobs {
            job.join().map_err(|_| anyhow::anyhow!("the torture itself failed; report the seed"))?;
        }
        anyhow::Ok(())
    })?;
    let found = work.found.into_inner();
    print(options, first, &found)?;
    Ok(if found.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Work<'a> {
    options: &'a Torture,
    logged: bool,
    first: u64,
    next: AtomicU64,
    count: u64,
    until: Option<Instant>,
    found: Mutex<Found>,
}

impl Work<'_> {
    /// Runs seeds until none is left.
    fn run(&self) {
        while !self.is_over() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            self.run_one(self.first.wrapping_add(index));
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| clock::monotonic() >= until) || self.found.lock().broken.len() >= BROKEN_MAX
    }

    fn run_one(&self, seed: u64) {
        let plan = Plan::of(seed);
        let report = run(&plan, self.logged);
        let broken = report.violation.clone().map(|violation| self.broken(&plan, report.clone(), violation));
        let mut found = self.found.lock();
        found.totals.add(&report);
        if let Some(broken) = broken {
            if !self.options.json {
                let _ = output::print(&story(&broken));
            }
            found.broken.push(broken);
        }
        found.last = Some(report);
        let now = clock::monotonic();
        if found.reported.get_or_insert(now).elapsed() >= PROGRESS {
            found.reported = Some(now);
            let Totals { runs, broken, virtual_hours, .. } = &found.totals;
            eprintln!("{runs} runs, {broken} of them broke a rule, {virtual_hours:.0} hours of virtual time");
        }
    }

    /// A broken run, shrunk.
    fn broken(&self, plan: &Plan, report: Report, violation: Violation) -> Broken {
        let hash = format!("{:016x}", report.hash);
        let shrunk = shrink(plan, report, self.options.tries);
        let shrunk_violation = shrunk.report.violation.clone().unwrap_or_else(|| violation.clone());
        let history = shrunk.report.lines;
        Broken { seed: plan.seed, hash, violation, shrunk: shrunk.plan, shrunk_violation, history }
    }
}

/// A broken run, for people.
fn story(broken: &Broken) -> String {
    let Broken { seed, violation, shrunk, shrunk_violation, history, .. } = broken;
    let skipped = history.len().saturating_sub(LINES_SHOWN);
    let lines: String = torture::history(&history[skipped..]);
    format!(
        "\nseed {seed} broke a rule: {}: {}\nshrunk to: {}\nwhich breaks the rule like this: {}\nits last {} lines of \
         {}:\n{lines}",
        violation.rule,
        violation.seen,
        shrunk.summary(),
        shrunk_violation.seen,
        history.len() - skipped,
        history.len(),
    )
}

fn print(options: &Torture, first: u64, found: &Found) -> anyhow::Result<()> {
    let last = found.last.as_ref().context("no seed was run; allow more time with --hours")?;
    let hash = format!("{:016x}", last.hash);
    let (totals, broken) = (&found.totals, &found.broken[..]);
    if options.json {
        let version = env!("CARGO_PKG_VERSION");
        return output::print_json(&Printed {
            commit: COMMIT,
            version,
            first_seed: first,
            hash,
            totals,
            never: totals.never(),
            broken,
        });
    }
    if options.history && totals.runs == 1 {
        output::print(&torture::history(&last.lines))?;
    }
    if totals.runs == 1 {
        output::print(&format!("{}\ntrace hash {hash}\n", Plan::of(last.seed).summary()))?;
    }
    output::print(&summary(totals))?;
    if options.coverage {
        output::print(&coverage(totals))?;
    }
    let verdict = match totals.broken {
        0 => "No rule was broken.".to_owned(),
        count => format!("{count} runs broke a rule; repeat one with --seed N."),
    };
    Ok(output::print(&format!("\n{verdict}\n"))?)
}

fn summary(totals: &Totals) -> String {
    let faults: u64 = totals.faults.values().sum();
    let mut text = format!(
        "\n{} runs, {:.0} hours of virtual time, {:.0} drive-hours with a fault\n{} answers to clients, {} records of \
         the engine's trace, {} pairs of event and state\n{faults} faults:\n",
        totals.runs,
        totals.virtual_hours,
        totals.fault_hours,
        totals.answers,
        totals.records,
        totals.reached()
    );
    let kinds = totals.faults.iter().map(|(kind, count)| format!("{count:>9}  {}\n", kind.name()));
    text.extend(kinds);
    text
}

/// The number of times that each event met each state, the states that it never met, and those that it cannot meet.
fn coverage(totals: &Totals) -> String {
    let never = totals.never();
    let mut events: Vec<&str> = torture::pairs().map(|(event, _)| event).collect();
    events.dedup();
    let mut rows = Vec::new();
    for event in events {
        let states = totals.coverage.get(event).into_iter().flatten();
        let met: Vec<String> = states.map(|(state, count)| format!("{state} {count}")).collect();
        let of = |pairs: Vec<Pair>| {
            let states = pairs.into_iter().filter(|(of, _)| *of == event).map(|(_, state)| state);
            states.collect::<Vec<_>>().join(", ")
        };
        let cannot = torture::pairs().filter(|pair| torture::cannot(*pair).is_some()).collect();
        rows.push(vec![event.to_owned(), met.join(", "), of(never.clone()), of(cannot)]);
    }
    let (all, cannot) = (torture::pairs().count(), torture::pairs().filter_map(torture::cannot).count());
    format!(
        "\n{}\n{} of {all} pairs were reached, {} were never reached, {cannot} cannot be \
         (docs/reliability/README.md says why)\n",
        table(&["event", "met", "never met", "cannot meet"], &[], rows),
        totals.reached(),
        never.len(),
    )
}
