//! Repartition jobs on the rack itself: the bytes that they move, their time, and the wakes by clients that they use.

#![allow(clippy::unwrap_used, missing_docs)]

mod racks;

use engine::repartition::{Alpha, Choice};
use sim::repartition::{Groups, Method, Reads, Repartition, RepartitionError, Repartitioned, run};
use std::time::Duration;

const GB: u64 = 1_000_000_000;

fn job(method: Method, data_gb: u64) -> Repartition {
    Repartition { data_bytes: data_gb * GB, ..Repartition::paper(&Groups::PAPER, method).unwrap() }
}

fn of(name: &str, change: impl FnOnce(&mut Repartition)) -> Repartition {
    let mut job = job(Method::Planner, 2_000);
    job.rack = racks::shipped(name);
    job.policy.starts_per_day = u32::MAX;
    change(&mut job);
    job
}

fn off_by(ours: f64, other: f64) -> f64 {
    (ours / other - 1.0).abs()
}

#[test]
fn the_same_job_and_seed_give_the_same_trace_and_another_seed_another_one() {
    let mut what = job(Method::Planner, 1_000);
    what.reads = Some(Reads { mean_gap: Duration::from_mins(5), bytes: GB });
    what.seeds = vec![1, 2];
    let once = run(&what).unwrap();
    assert_eq!(once, run(&what).unwrap());
    assert_ne!(once.trace_hashes[0], once.trace_hashes[1]);
    let written = serde_json::to_string(&what).unwrap();
    assert_eq!(serde_json::from_str::<Repartition>(&written).unwrap(), what);
}

#[test]
fn the_rack_switches_as_often_as_a_dry_run_and_takes_as_long_within_half_a_percent() {
    for method in Method::ALL {
        for (memory_gb, input_skew, output_skew) in [(8, 0, 0), (32, 0, 0), (32, 800, 0), (32, 0, 800)] {
            let what = Repartition {
                memory_bytes: memory_gb * GB,
                input_skew_permille: input_skew,
                output_skew_permille: output_skew,
                ..job(method, 10_000)
            };
            let point = run(&what).unwrap();
            let case = format!("{method:?}, {memory_gb} GB, skew {input_skew} and {output_skew}: {point:?}");
            if point.changes < 0.5 {
                assert!(off_by(point.hours, point.simulated_hours) < 0.005, "{case}");
                assert!(point.switches_saved.abs() < 0.5, "{case}");
            }
            assert!(point.bound_hours.is_none_or(|bound| point.hours > bound), "{case}");
        }
    }
}

#[test]
fn every_byte_is_read_once_and_written_home_and_what_is_offloaded_once_more() {
    let moved = |method, alpha: u64| {
        let alpha = Alpha { output: alpha, input: 10 };
        let point = run(&Repartition { alpha, ..job(method, 1_200) }).unwrap();
        (point.bytes_read / GB, point.bytes_written / GB, point.peak_offloaded_bytes)
    };
    for method in [Method::Baseline, Method::Buffpack] {
        assert_eq!(moved(method, 10), (1_200, 1_200, 0));
        assert_eq!(moved(method, 5), (1_200, 600, 0));
        assert_eq!(moved(method, 20), (1_200, 2_400, 0));
    }
    // A twelfth of the read data is delivered at once; all other data is written and read once more.
    for method in [Method::Offpack, Method::Fillpack] {
        let (read, written, peak) = moved(method, 10);
        assert!(read.abs_diff(2_300) < 10 && written.abs_diff(2_300) < 10, "{method:?}: {read} and {written} GB");
        assert!(peak.abs_diff(1_100 * GB / 12) < 10 * GB, "{method:?}: {peak}");
    }
}

#[test]
fn a_hundred_terabytes_take_the_hours_of_the_papers_formulas() {
    for method in [Method::Baseline, Method::Buffpack, Method::Offpack] {
        let point = run(&job(method, 100_000)).unwrap();
        let formula = point.model_hours.unwrap();
        assert!(off_by(point.hours, formula) < 0.05, "{method:?}: {} h, by the formula {formula} h", point.hours);
    }
}

#[test]
fn a_planner_is_no_slower_than_the_best_of_buffpack_offpack_and_fillpack_by_more_than_a_hundredth() {
    let alpha = |output| Alpha { output, input: 10 };
    for (memory_gb, output_skew, alpha) in
        [(8, 0, alpha(10)), (25, 0, alpha(20)), (32, 1_000, alpha(10)), (32, 1_000, alpha(5)), (64, 1_000, alpha(10))]
    {
        let methods = [Method::Planner, Method::Buffpack, Method::Offpack, Method::Fillpack];
        let [planner, others @ ..] = methods.map(|method| {
            let memory_bytes = memory_gb * GB;
            let of = job(method, 10_000);
            run(&Repartition { memory_bytes, output_skew_permille: output_skew, alpha, ..of }).unwrap()
        });
        let best = others.iter().map(|point| point.hours).fold(f64::INFINITY, f64::min);
        let case = format!("{memory_gb} GB, s = {output_skew}, {alpha:?}: {planner:?}");
        assert!(planner.hours < best * 1.01, "{case}");
        // The planner detects skew where it matters.
        assert!(output_skew == 0 || planner.changes > 0.5 || planner.strategy == Choice::Buffpack, "{case}");
    }
}

#[test]
fn what_is_read_back_is_written_at_half_the_rate() {
    let without = run(&job(Method::Buffpack, 1_000)).unwrap();
    let mut what = job(Method::Buffpack, 1_000);
    what.policy.write_read_back = true;
    let with = run(&what).unwrap();
    let more = (with.hours - without.hours) * 3_600.0;
    assert!(off_by(more, 1_000.0) < 0.05, "{more} s more for 1,000 GB");
    assert!(off_by(with.hours, with.simulated_hours) < 0.02, "{with:?}");
}

#[test]
fn operations_of_any_size_do_the_same_job() {
    for method in [Method::Fillpack, Method::Offpack] {
        let whole = run(&job(method, 4_000)).unwrap();
        let pieces = run(&Repartition { operation_bytes: Some(GB / 2), ..job(method, 4_000) }).unwrap();
        // Runs have equal lengths except for a few bytes, which decide the next destination. OffPack's switches carry
        // the rest of runs, which depends on these bytes.
        let same = method == Method::Offpack || off_by(whole.switches, pieces.switches) < 0.01;
        assert!(same, "{} and {}", whole.switches, pieces.switches);
        assert!(whole.bytes_read.abs_diff(pieces.bytes_read) < GB);
        assert!(pieces.events > whole.events * 2);
        assert!(off_by(pieces.hours, whole.hours) < 0.05, "{} h instead of {} h", pieces.hours, whole.hours);
    }
}

#[test]
fn a_group_that_a_client_woke_is_worked_on_and_saves_switches() {
    let with_clients = |gap_s| {
        let reads = Some(Reads { mean_gap: Duration::from_secs(gap_s), bytes: GB / 10 });
        run(&Repartition { reads, ..job(Method::Buffpack, 4_000) }).unwrap()
    };
    let busy = with_clients(20);
    assert!(busy.client_wakes > 100.0 && busy.free_rides > busy.client_wakes * 0.2, "{busy:?}");
    assert!(busy.ttfb_s.mean.unwrap() < 60.0 && busy.reject_rate <= 0.0, "{busy:?}");
    let quiet = with_clients(2_000);
    assert!(quiet.client_wakes < busy.client_wakes && quiet.hours < busy.hours, "{quiet:?}");
}

#[test]
fn it_runs_on_the_groups_of_a_rack_that_is_described() {
    for name in ["pelican", "nas8", "pelican-mini"] {
        let point: Repartitioned = run(&of(name, |job| job.policy.write_read_back = true)).unwrap();
        assert!(off_by(point.hours, point.simulated_hours) < 0.10, "{name}: {point:?}");
        assert!(point.bound_hours.is_none_or(|bound| point.hours > bound), "{name}: {point:?}");
    }
}

#[test]
fn drives_that_may_not_start_any_more_today_are_waited_for() {
    let point = run(&of("nas8", |job| {
        job.policy.starts_per_day = 10;
        job.data_bytes = 800 * GB;
        job.method = Method::Buffpack;
    }))
    .unwrap();
    // Two groups that each start ten times a day.
    let days = (point.hours / 24.0).floor();
    assert!(days >= 1.0 && point.switches <= (days + 1.0) * 20.0, "{point:?}");
}

#[test]
fn a_job_that_cannot_be_done_says_why() {
    let nothing = |change: &dyn Fn(&mut Repartition)| {
        let mut what = job(Method::Planner, 100);
        change(&mut what);
        run(&what).unwrap_err()
    };
    assert_eq!(nothing(&|job| job.seeds.clear()), RepartitionError::NoSeed);
    assert_eq!(nothing(&|job| job.data_bytes = 0), RepartitionError::Nothing);
    assert_eq!(nothing(&|job| job.memory_bytes = 0), RepartitionError::Nothing);
    let full = of("pelican-mini", |job| job.data_bytes = 1_000_000 * GB);
    let message = run(&full).unwrap_err().to_string();
    assert!(message.contains("the rack refused an operation of the job: NoRoom"), "{message}");
}
