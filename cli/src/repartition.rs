//! `larder repartition`: rewrites records into partitions by another key, inside the rack. The server runs the job;
//! this command starts it, follows it, and reports on it.

use crate::args::{Repartition, RepartitionCommand, RepartitionJob};
use crate::human::{self, bytes, count, counted};
use crate::output::{self, ask, show, wait_for};
use indicatif::{ProgressBar, ProgressStyle};
use server::admin::{Client, ClientError};
use server::repartition::{JobReport, Outcome, Place, Plan, ProcessorRates, Request};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// Interval of the requests for a job's progress.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Maximum absence of a server during which its job is still followed.
const AWAY_LIMIT: Duration = Duration::from_mins(1);

/// `larder repartition`.
pub fn repartition(options: &Repartition) -> anyhow::Result<()> {
    match &options.command {
        None => wait_for(begin(options)),
        Some(RepartitionCommand::List(list)) => {
            let jobs = ask(&list.data, async |client| client.repartitions().await)?;
            show(list.json, &jobs, |jobs| table(jobs))
        }
        Some(RepartitionCommand::Show(job)) => {
            let report = ask(&job.data, async |client| client.repartition_job(job.job).await)?;
            show(job.json, &known(job, report)?, summary)
        }
        Some(RepartitionCommand::Follow(job)) => wait_for(async {
            let client = Client::of(&job.data.data)?;
            known(job, client.repartition_job(job.job).await?)?;
            to_its_end(&client, job.job, job.json).await
        }),
        Some(RepartitionCommand::Pause(job)) => change(job, "pause"),
        Some(RepartitionCommand::Resume(job)) => change(job, "resume"),
        Some(RepartitionCommand::Cancel(job)) => change(job, "cancel"),
    }
}

fn change(job: &RepartitionJob, what: &str) -> anyhow::Result<()> {
    let report = known(job, ask(&job.data, async |client| client.change_repartition(job.job, what).await)?)?;
    if what == "cancel" && report.ended_ms.is_none() {
        eprintln!("job {} is being cancelled; `larder repartition show {}` shows when that is done", job.job, job.job);
    }
    show(job.json, &report, summary)?;
    if what == "resume" && !report.reason.is_empty() {
        anyhow::bail!("job {} cannot be resumed yet", job.job);
    }
    Ok(())
}

fn known(job: &RepartitionJob, report: Option<JobReport>) -> anyhow::Result<JobReport> {
    report.ok_or_else(|| anyhow::anyhow!("there is no job {}; `larder repartition list` lists the jobs", job.job))
}

/// Starts a job, and follows it to its end.
async fn begin(options: &Repartition) -> anyhow::Result<()> {
    let client = Client::of(&options.data.data)?;
    let report = client.repartition(&request(options)?).await?;
    if !options.json {
        output::print(&planned(&report))?;
    }
    if options.dry_run {
        return if options.json { output::print_json(&report) } else { Ok(()) };
    }
    if options.json {
        // Printed at once, so the job can be found again if this command is interrupted.
        eprintln!("job {} has started; `larder repartition follow {}` also shows its progress", report.job, report.job);
    }
    to_its_end(&client, report.job, options.json).await
}

/// Follows a job, and prints its outcome.
async fn to_its_end(client: &Client, job: u64, json: bool) -> anyhow::Result<()> {
    let report = follow(client, job).await?;
    if json {
        output::print_json(&report)?;
    } else if report.state == "done" {
        output::print(&ended(&report))?;
    }
    match report.state.as_str() {
        "done" => Ok(()),
        state => anyhow::bail!("job {} is {state}{}", report.job, because(&report)),
    }
}

fn request(options: &Repartition) -> anyhow::Result<Request> {
    let missing = |what: &str| anyhow::anyhow!("give {what}; see `larder repartition --help`");
    let place = |object: &crate::args::Prefix| Place { bucket: object.bucket.clone(), prefix: object.prefix.clone() };
    Ok(Request {
        from: place(options.from.as_ref().ok_or_else(|| missing("the input, as s3://bucket/prefix"))?),
        to: place(options.to.as_ref().ok_or_else(|| missing("the target, with --to"))?),
        by: options.by.clone().ok_or_else(|| missing("the partition key, with --by"))?,
        partitions: options.partitions,
        memory_bytes: options.memory,
        columns: options.columns.as_ref().map(|all| all.split(',').map(|name| name.trim().to_owned()).collect()),
        exclude: options.exclude.clone(),
        filter: options.filter.clone(),
        object_bytes: options.object_size,
        format: options.format.clone(),
        strategy: options.strategy.clone(),
        alpha_millionths: options.alpha,
        remove_input: options.remove_input,
        dry_run: options.dry_run,
    })
}

/// Waits for the end of a job, with a progress bar if standard error is a terminal.
async fn follow(client: &Client, job: u64) -> anyhow::Result<JobReport> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(1_000) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} % {msg}") {
        bar.set_style(style);
    }
    loop {
        let report = look(client, job).await?;
        let Some(report) = report else { anyhow::bail!("job {job} no longer exists") };
        if let Some(progress) = &report.progress {
            bar.set_position((progress.done * 1_000.0) as u64);
            let waits = if progress.waits.is_empty() { String::new() } else { format!("; waits: {}", progress.waits) };
            bar.set_message(format!(
                "{} read, {} written, about {} to go; job {job}{waits}",
                bytes(progress.input_bytes),
                bytes(progress.output_bytes),
                human::seconds(progress.left_s)
            ));
        }
        if report.ended_ms.is_some() || report.state == "paused" || !report.reason.is_empty() {
            bar.finish_and_clear();
            return Ok(report);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The state of a job. Waits for an absent server, which may be about to come back.
async fn look(client: &Client, job: u64) -> anyhow::Result<Option<JobReport>> {
    let since = server::clock::monotonic();
    loop {
        match client.repartition_job(job).await {
            Err(ClientError::NoServer(_) | ClientError::NoAnswer { .. }) if since.elapsed() < AWAY_LIMIT => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(error) => {
                let goes_on = format!(
                    "job {job} resumes or restarts with the server; follow it with `larder repartition follow {job}`"
                );
                return Err(anyhow::Error::new(error).context(goes_on));
            }
            Ok(report) => return Ok(report),
        }
    }
}

/// Everything about a job.
fn summary(report: &JobReport) -> String {
    planned(report) + &ended(report)
}

/// The request, and its forecast cost.
fn planned(report: &JobReport) -> String {
    let mut text = String::new();
    let Request { from, to, by, .. } = &report.request;
    let number = if report.job == 0 { "plan".to_owned() } else { format!("job {}", report.job) };
    let _ = writeln!(text, "{number}: {from} to {to} by {by}");
    let Some(plan) = &report.plan else { return text };
    let groups: usize = plan.classes.iter().map(|class| class.groups.len()).sum();
    let _ = writeln!(
        text,
        "{} of {} ({}), into {} over {} of {}",
        counted(plan.objects, "object"),
        plan.format,
        bytes(plan.input_bytes),
        counted(plan.partitions, "partition"),
        counted(groups as u64, "group"),
        if plan.classes.len() == 1 { "1 class".to_owned() } else { format!("{} classes", plan.classes.len()) },
    );
    text.push_str(&figures(plan));
    text.push_str(&forecasts(plan));
    let columns = match plan.column_bytes_most {
        0 => String::new(),
        column_bytes => format!(", and {} for each column read", bytes(column_bytes)),
    };
    let _ = writeln!(text, "takes at most {} of memory{columns}", bytes(plan.memory_bytes_most));
    for warning in &plan.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// The figures on which forecasts are based: alpha, expansion, the processor's rates, and the sample they come from.
fn figures(plan: &Plan) -> String {
    let Plan { alpha, expansion, output_bytes, .. } = plan;
    let mut text = format!(
        "alpha {:.3} ({}): {} of output; expansion {:.2} ({}) is the bytes of buffer that each output byte needs\n",
        alpha.value,
        alpha.from,
        bytes(*output_bytes),
        expansion.value,
        expansion.from
    );
    let ProcessorRates { split_bytes_per_s, encode_bytes_per_s, run_bytes_per_s, from } = &plan.processor;
    if !from.is_empty() {
        let _ = writeln!(
            text,
            "processor ({from}): splits {}/s of input, encodes {}/s of the buffer, makes and reads runs at {}/s",
            bytes(*split_bytes_per_s),
            bytes(*encode_bytes_per_s),
            bytes(*run_bytes_per_s),
        );
    }
    if let Some(sample) = &plan.sample {
        let _ = writeln!(
            text,
            "sampled {} in {} of {}: {} of {} kept",
            bytes(sample.input_bytes),
            counted(sample.places, "place"),
            counted(sample.objects, "object"),
            count(sample.kept_records),
            counted(sample.records, "record"),
        );
    }
    text
}

fn forecasts(plan: &Plan) -> String {
    let rows = plan.forecasts.iter().map(|forecast| {
        vec![
            forecast.strategy.clone(),
            format!("{:.3}", forecast.hours),
            format!("{:.3}", forecast.hours_with_budget),
            count(forecast.switches),
            count(forecast.starts_per_drive),
            bytes(forecast.bytes_read),
            bytes(forecast.bytes_written),
            format!("{:.3}", forecast.kwh),
            bytes(forecast.peak_extra_bytes),
            match (forecast.fits, forecast.strategy == plan.chosen) {
                (false, _) => "does not fit".to_owned(),
                (true, true) => "chosen".to_owned(),
                (true, false) => String::new(),
            },
        ]
    });
    let numbers = ["hours", "with waits", "switches", "starts", "read", "written", "kWh", "peak in a group"];
    let head = [&["strategy"], &numbers[..], &[""]].concat();
    format!("{}{}", human::table(&head, &numbers, rows), waits(plan))
}

/// A note on a job that has to wait for the next day repeatedly.
fn waits(plan: &Plan) -> String {
    let chosen = plan.forecasts.iter().find(|forecast| forecast.strategy == plan.chosen);
    let Some(chosen) = chosen.filter(|chosen| chosen.hours_with_budget > chosen.hours) else { return String::new() };
    let per_day = counted(u64::from(plan.starts_per_day), "start");
    let days = chosen.hours_with_budget / 24.0;
    if chosen.starts_per_drive <= u64::from(plan.starts_per_day) {
        return format!(
            "a drive may have {per_day} per day, and some were used today: the job waits for the next day, and ends \
             after about {days:.1} days\n"
        );
    }
    let more = match plan.rated_starts {
        // A job that was asked for before this was reported.
        0 => String::new(),
        rated => format!(
            "with `starts_per_day = {}` in larder.toml it ends after about {:.1} days instead; that uses up {:.2} % of \
             the {} that a drive is rated for\n",
            chosen.starts_per_drive,
            chosen.hours / 24.0,
            chosen.starts_per_drive as f64 / f64::from(rated) * 100.0,
            counted(u64::from(rated), "start")
        ),
    };
    format!(
        "a drive may have {per_day} per day, and {} needs {} of one drive: the job waits for the next day again and \
         again, and ends after about {days:.1} days; more --memory needs fewer starts\n{more}",
        plan.chosen,
        count(chosen.starts_per_drive),
    )
}

/// The reason why a job is not done, if known.
fn because(report: &JobReport) -> String {
    if report.reason.is_empty() { String::new() } else { format!(": {}", report.reason) }
}

/// The progress of a job, or its outcome.
fn ended(report: &JobReport) -> String {
    let mut text = format!("job {} is {}{}\n", report.job, report.state, because(report));
    if let Some(progress) = &report.progress {
        let _ = writeln!(
            text,
            "{} read, {} written in {}, {} buffered, {} offloaded; {}",
            bytes(progress.input_bytes),
            bytes(progress.output_bytes),
            counted(progress.output_objects, "object"),
            bytes(progress.buffered_bytes),
            bytes(progress.offloaded_bytes),
            progress.strategy
        );
        if !progress.waits.is_empty() {
            let _ = writeln!(text, "it waits: {}", progress.waits);
        }
    }
    if let Some(outcome) = &report.outcome {
        text.push_str(&against_forecast(outcome, report.plan.as_ref()));
    }
    text
}

fn against_forecast(outcome: &Outcome, plan: Option<&Plan>) -> String {
    let mut text = String::new();
    let forecast = plan.and_then(|plan| plan.forecasts.iter().find(|forecast| forecast.strategy == plan.chosen));
    let was = |value: Option<String>| value.map_or_else(String::new, |value| format!(" (forecast {value})"));
    let _ = writeln!(
        text,
        "{} in {:.3} h{}, {} switches{}: reading {:.3} h, writing {:.3} h, reading back {:.3} h, switching {:.3} h, \
         processor {:.3} h",
        outcome.strategy,
        outcome.hours,
        was(forecast.map(|forecast| format!("{:.3} h", forecast.hours_with_budget))),
        count(outcome.switches),
        was(forecast.map(|forecast| count(forecast.switches))),
        outcome.reading_hours,
        outcome.writing_hours,
        outcome.verifying_hours,
        outcome.switching_hours,
        outcome.processing_hours,
    );
    if outcome.waiting_hours > 0.0 {
        let _ = writeln!(
            text,
            "waiting for drives, for room, or for the starts of the next day: {:.3} h",
            outcome.waiting_hours
        );
    }
    let _ = writeln!(
        text,
        "{} read from {}, {} ({}) written to {} ({}); {} offloaded on the way; at most {} buffered",
        bytes(outcome.input_bytes),
        counted(outcome.input_objects, "object"),
        bytes(outcome.output_bytes),
        counted(outcome.rows, "record"),
        counted(outcome.output_objects, "object"),
        outcome.tally,
        bytes(outcome.offloaded_bytes),
        bytes(outcome.peak_buffered_bytes),
    );
    if outcome.lost_objects > 0 {
        let _ = writeln!(
            text,
            "{} of the input were deleted during the job and left out",
            counted(outcome.lost_objects, "object")
        );
    }
    text
}

/// A row for each job.
fn table(jobs: &[JobReport]) -> String {
    let row = |job: &JobReport| {
        let done = match (&job.progress, job.outcome.is_some()) {
            (_, true) => "100 %".to_owned(),
            (Some(progress), false) => format!("{:.0} %", progress.done * 100.0),
            (None, false) => String::new(),
        };
        vec![
            job.job.to_string(),
            job.state.clone(),
            done,
            job.request.from.to_string(),
            job.request.to.to_string(),
            job.request.by.clone(),
        ]
    };
    human::table(&["job", "state", "done", "from", "to", "by"], &["job", "done"], jobs.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::repartition::{Figure, Forecast, Progress, Sample};

    #[test]
    fn a_plan_shows_the_cost_of_each_strategy_and_the_chosen_one() {
        let forecast =
            |strategy: &str, hours, fits| Forecast { strategy: strategy.into(), hours, fits, ..Forecast::default() };
        let forecasts = vec![forecast("BuffPack", 1.5, true), forecast("OffPack", 1.25, false)];
        let (memory_bytes_most, column_bytes_most) = (3 << 30, 12 << 20);
        let figure = |value, from: &str| Figure { value, from: from.into() };
        let (input_bytes, records, kept_records) = (1_200_000, 4_000, 1_000);
        let plan = Plan {
            alpha: figure(0.25, "given"),
            expansion: figure(3.0, "sampled"),
            processor: ProcessorRates {
                split_bytes_per_s: 310_000_000,
                encode_bytes_per_s: 120_000_000,
                run_bytes_per_s: 240_000_000,
                from: "sampled".into(),
            },
            sample: Some(Sample { objects: 2, places: 3, input_bytes, records, kept_records, ..Sample::default() }),
            output_bytes: 4_800_000,
            forecasts,
            chosen: "BuffPack".into(),
            memory_bytes_most,
            column_bytes_most,
            ..Plan::default()
        };
        let text = planned(&JobReport { job: 3, plan: Some(plan), ..JobReport::default() });
        assert!(text.starts_with("job 3: "), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2],
            "alpha 0.250 (given): 4.8 MB of output; expansion 3.00 (sampled) is the bytes of buffer that each output \
             byte needs"
        );
        assert_eq!(
            lines[3],
            "processor (sampled): splits 310.0 MB/s of input, encodes 120.0 MB/s of the buffer, makes and reads runs \
             at 240.0 MB/s"
        );
        assert_eq!(lines[4], "sampled 1.2 MB in 3 places of 2 objects: 1,000 of 4,000 records kept");
        assert!(lines[6].contains("1.500") && lines[6].ends_with("chosen"), "{text}");
        assert!(lines[7].contains("OffPack") && lines[7].ends_with("does not fit"), "{text}");
        assert_eq!(lines[8], "takes at most 3.2 GB of memory, and 12.6 MB for each column read");
        assert!(!text.contains("starts per day"), "{text}");
    }

    #[test]
    fn a_plan_notes_the_days_it_waits() {
        let forecast = Forecast {
            strategy: "OffPack".into(),
            hours: 141.0,
            hours_with_budget: 2_496.0,
            starts_per_drive: 1_042,
            fits: true,
            ..Forecast::default()
        };
        let plan = Plan { forecasts: vec![forecast], chosen: "OffPack".into(), starts_per_day: 10, ..Plan::default() };
        let plan = Plan { rated_starts: 30_000, ..plan };
        let text = planned(&JobReport { plan: Some(plan), ..JobReport::default() });
        assert!(text.contains("10 starts per day") && text.contains("104.0 days"), "{text}");
        assert!(text.contains("1,042") && text.contains("more --memory"), "{text}");
        let wear =
            "`starts_per_day = 1042` in larder.toml it ends after about 5.9 days instead; that uses up 3.47 % of the";
        assert!(text.contains(wear) && text.contains("30,000 starts that a drive is rated for"), "{text}");
    }

    #[test]
    fn a_plan_that_waits_for_tomorrow_advises_no_other_budget() {
        let forecast = Forecast {
            strategy: "BuffPack".into(),
            hours: 1.0,
            hours_with_budget: 24.0,
            starts_per_drive: 1,
            fits: true,
            ..Forecast::default()
        };
        let plan = Plan { forecasts: vec![forecast], chosen: "BuffPack".into(), starts_per_day: 1, ..Plan::default() };
        let text = planned(&JobReport { plan: Some(Plan { rated_starts: 50_000, ..plan }), ..JobReport::default() });
        assert!(text.contains("some were used today") && text.contains("1.0 days"), "{text}");
        assert!(!text.contains("larder.toml"), "{text}");
    }

    #[test]
    fn a_reason_is_told_once_and_what_is_waited_for_as_well() {
        let reason = "no group has room".to_owned();
        let failed = ended(&JobReport { job: 3, state: "failed".into(), reason, ..JobReport::default() });
        assert_eq!(failed, "job 3 is failed: no group has room\n");
        let progress = Progress { waits: "starts".into(), ..Progress::default() };
        let waits = ended(&JobReport { state: "running".into(), progress: Some(progress), ..JobReport::default() });
        assert!(waits.ends_with("it waits: starts\n"), "{waits}");
    }
}
