//! The forecast bytes of a job against those that it then reads and writes: each format, and filters that keep little,
//! half and all.

use crate::repartition::{is_over, jobs, put_bytes, request};
use crate::site::{Larder, MIB, Site};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use batch::{Encoder, Format};
use server::repartition::{JobReport, Request};
use std::fmt::Write;
use std::sync::Arc;

const FILES: u64 = 6;
/// Enough rows that an object of text is sampled in several places.
const ROWS: u64 = 64_000;

/// A number below a hundred for each record, spread as evenly as possible.
fn share(file: u64, row: u64) -> u64 {
    (file * 7_919 + row * 6_007) % 9_973 % 100
}

fn note(row: u64) -> String {
    "x".repeat((row * 31 % 47) as usize)
}

/// The records of a file, in some format of text.
fn text(file: u64, header: &str, record: impl Fn(u64, u64, &str) -> String) -> Vec<u8> {
    let mut text = header.to_owned();
    for row in 0..ROWS {
        writeln!(text, "{}", record(row, share(file, row), &note(row))).unwrap();
    }
    text.into_bytes()
}

fn parquet(file: u64) -> Vec<u8> {
    let numbers = |of: &dyn Fn(u64) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| of(row).cast_signed())))
    };
    let notes: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{row} {}", note(row)))));
    let columns = [
        ("id", numbers(&|row| file * 1_000_000 + row)),
        ("share", numbers(&|row| share(file, row))),
        ("note", notes),
        ("random", numbers(&|row| (row + file * ROWS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1)),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut objects =
        Encoder::objects(Format::Parquet, &batch.schema(), vec![batch], u64::MAX).readable_within(MIB / 2);
    objects.next().unwrap().unwrap().bytes.to_vec()
}

/// A format: the name of its objects, their bytes, a key, and filters that keep a hundredth, half and all of them.
pub(crate) struct Case {
    pub name: &'static str,
    pub format: Option<&'static str>,
    pub object: fn(u64) -> Vec<u8>,
    pub by: &'static str,
    filters: [Option<&'static str>; 3],
}

pub(crate) const CASES: [Case; 5] = [
    Case {
        name: "csv",
        format: None,
        object: |file| text(file, "id,share,note\n", |row, share, note| format!("{file}{row:06},{share},{note}")),
        by: "hash(id)",
        filters: [Some("share < 1"), Some("share < 50"), None],
    },
    Case {
        name: "ndjson",
        format: None,
        object: |file| {
            text(file, "", |row, share, note| {
                format!("{{\"id\":{}{row},\"share\":{share},\"note\":\"{note}\"}}", file + 1)
            })
        },
        by: "hash(id)",
        filters: [Some("share < 1"), Some("share < 50"), None],
    },
    Case {
        name: "txt",
        format: Some("lines"),
        object: |file| text(file, "", |row, share, note| format!("{share:02} {file}{row:06} {note}")),
        by: "hash(line)",
        filters: [Some("line < \"01\""), Some("line < \"50\""), None],
    },
    Case {
        name: "bin",
        format: Some("fixed:60"),
        object: |file| text(file, "", |row, share, note| format!("{share:02} {file}{row:06} {note:x<48}")),
        by: "hash(record[3..10])",
        filters: [Some("record[0..2] < \"01\""), Some("record[0..2] < \"50\""), None],
    },
    Case {
        name: "parquet",
        format: None,
        object: parquet,
        by: "hash(id)",
        filters: [Some("share < 1"), Some("share < 50"), None],
    },
];

async fn fill(larder: &Larder, case: &Case) {
    for file in 0..FILES {
        put_bytes(larder, &format!("in/{file:03}.{}", case.name), (case.object)(file)).await;
    }
    larder.settle().await;
}

/// Runs a job to its end; its plan is based on a sample.
async fn run(larder: &Larder, case: &Case, filter: Option<&str>, strategy: &str) -> JobReport {
    let asked = Request {
        format: case.format.map(str::to_owned),
        filter: filter.map(str::to_owned),
        strategy: Some(strategy.to_owned()),
        memory_bytes: 2 * MIB,
        ..request(case.by, 4)
    };
    let jobs = jobs(larder).await;
    let planned = jobs.ask(Request { dry_run: true, ..asked.clone() }).await.unwrap().plan.unwrap();
    let job = jobs.ask(asked).await.unwrap().job;
    let report = is_over(&jobs, job).await;
    assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""), "{} {filter:?}", case.name);
    let plan = report.plan.as_ref().unwrap();
    assert_eq!((plan.alpha.from.as_str(), plan.expansion.from.as_str()), ("sampled", "sampled"));
    assert_eq!(planned.output_bytes, plan.output_bytes, "a dry run forecasts what the job then does");
    report
}

#[test]
fn bytes_are_forecast_for_each_format_and_filter() {
    for case in &CASES {
        for (filter, most) in case.filters.into_iter().zip([0.2, 0.05, 0.05]) {
            let strategy = if most > 0.1 { "buffpack" } else { "offpack" };
            let mut site = Site::nas8();
            site.run(async |larder| {
                fill(larder, case).await;
                let report = run(larder, case, filter, strategy).await;
                let (plan, outcome) = (report.plan.unwrap(), report.outcome.unwrap());
                let forecast = plan.forecasts.iter().find(|forecast| forecast.strategy == plan.chosen).unwrap();
                let sample = plan.sample.unwrap();
                let written = outcome.output_bytes + outcome.offloaded_bytes;
                println!(
                    "{} {filter:?} {}: alpha {:.4}, expansion {:.3}, {} of {} output, {} of {written} written, {} \
                         of {} switches; {sample:?}",
                    case.name,
                    plan.chosen,
                    plan.alpha.value,
                    plan.expansion.value,
                    plan.output_bytes,
                    outcome.output_bytes,
                    forecast.bytes_written,
                    forecast.switches,
                    outcome.switches,
                );
                let off = |forecast: u64, was: u64| (forecast as f64 / was as f64 - 1.0).abs();
                assert!(off(plan.output_bytes, outcome.output_bytes) < most, "{} {filter:?}", case.name);
                // The bytes offloaded depend on where the buffer happens to be full.
                assert!(off(forecast.bytes_written, written) < 0.25, "{} {filter:?}", case.name);
            });
        }
    }
}
