//! Dry runs compared with simulations of one class, for jobs where those leave nothing out; and the costs that they
//! leave out.

use super::{Choice, Cost, JobSpec, Part, Processor};
use alloc::vec;
use core::time::Duration;
use model::{ClassId, GroupId};

const GB: u64 = 1_000_000_000;
const CHOICES: [Choice; 5] =
    [Choice::Baseline, Choice::Buffpack, Choice::Offpack, Choice::Fillpack, Choice::Tourpack { window: 2 }];

/// A job with this amount of data over twelve groups in each class, with 8 GB of memory.
fn job(classes: u32, data_bytes: u64) -> JobSpec {
    let groups = 12;
    let part = |class: u32| Part {
        class: ClassId(class),
        groups: (0..groups).map(|group| GroupId(class * groups + group)).collect(),
        input_bytes: vec![data_bytes / u64::from(classes * groups); groups as usize],
        shares: vec![1; groups as usize],
    };
    JobSpec::plain((0..classes).map(part).collect(), 8 * GB, GB / 16)
}

fn longest(job: &JobSpec, choice: Choice) -> Cost {
    job.dry_run(choice, &[]).expect("there is memory enough").into_iter().max_by_key(Cost::total).expect("a class")
}

fn seconds(job: &JobSpec, choice: Choice) -> f64 {
    longest(job, choice).time.as_secs_f64()
}

#[test]
fn of_one_class_with_much_memory_a_dry_run_says_what_a_simulation_says() {
    let mut job = job(1, 2_000 * GB);
    // A simulation offloads and refills all of a buffer in one piece.
    job.terms.seek = Duration::ZERO;
    for choice in CHOICES {
        let dry = longest(&job, choice);
        let part = &job.parts[0];
        let simulated = choice.simulate_cost(&job.accounting(0), &job.terms, &part.expected(job.alpha));
        let off = dry.time.as_secs_f64() / simulated.time.as_secs_f64() - 1.0;
        assert!(off.abs() < 0.03, "{choice}: {dry:?} and {simulated:?}");
        assert!(dry.switches.abs_diff(simulated.switches) <= simulated.switches / 30, "{choice}");
        assert!(dry.bytes_offloaded.abs_diff(simulated.bytes_offloaded) <= simulated.bytes_offloaded / 30);
    }
}

#[test]
fn a_processor_that_is_slower_than_drives_is_what_a_job_takes() {
    let mut job = job(1, 500 * GB);
    for choice in CHOICES {
        job.terms.processor = Processor::UNBOUNDED;
        let without = longest(&job, choice);
        job.terms.processor.split_bytes_per_s = GB / 4;
        let more = longest(&job, choice).time.abs_diff(without.time).as_secs_f64();
        // Each byte takes 4 ns instead of the drives' 1.
        assert!((more / 1_500.0 - 1.0).abs() < 0.02, "{choice}: {more} s");
        job.terms.processor = Processor { encode_bytes_per_s: GB / 3, ..Processor::UNBOUNDED };
        let more = longest(&job, choice).time.abs_diff(without.time).as_secs_f64();
        assert!((950.0..1_600.0).contains(&more), "{choice}: {more} s to encode 500 GB at a third of the drives' rate");
    }
}

#[test]
fn classes_that_share_a_memory_wait_for_each_other() {
    // Half the data in each class, and half the memory for it: as many switches.
    let of = |classes| seconds(&job(classes, 400 * GB), Choice::Buffpack);
    let (together, alone) = (of(2), of(1));
    assert!((1.02..2.0).contains(&(together / alone)), "{together} s instead of {alone} s");
}

#[test]
fn small_objects_scattered_input_and_checkpoints_cost_what_they_cost() {
    let plain = job(1, 500 * GB);
    let more = |change: &dyn Fn(&mut JobSpec)| {
        let mut changed = plain.clone();
        change(&mut changed);
        seconds(&changed, Choice::Offpack) - seconds(&plain, Choice::Offpack)
    };
    // Each 120th of a gigabyte takes a separate seek.
    let scattered = more(&|job| job.sizes.together_bytes = GB / 120);
    assert!((scattered / (500.0 * 120.0 * 0.01) - 1.0).abs() < 0.05, "{scattered} s");
    let small = more(&|job| job.sizes.object_bytes = GB / 100);
    assert!((300.0..700.0).contains(&small), "{small} s for 500 GB in objects of 10 MB");
    let halves = more(&|job| job.sizes.batch_bytes = GB / 24);
    assert!(halves > 0.0, "{halves} s for a buffer that is full when a part of a chunk is free");
    let checkpoints = more(&|job| job.checkpoint_interval = Duration::from_secs(1));
    // The interval is 50 times the time to write and read the buffer: 800 s.
    assert!((0.0..200.0).contains(&checkpoints), "{checkpoints} s");
}

#[test]
fn starts_that_are_used_up_are_waited_for() {
    let mut job = job(1, 400 * GB);
    let without = longest(&job, Choice::Buffpack);
    job.terms.starts_per_day = 10;
    let with = longest(&job, Choice::Buffpack);
    assert_eq!((without.waiting, with.switches), (Duration::ZERO, without.switches));
    let days = with.starts.div_ceil(10) - 1;
    assert!(with.total() > Duration::from_hours(24) * u32::try_from(days).expect("some days"), "{with:?}");
    assert!(with.total() < Duration::from_hours(24) * u32::try_from(days + 2).expect("some days"), "{with:?}");
}
