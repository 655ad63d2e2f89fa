//! The strategies compared with the paper's formulas, with each other, and with the lower bound.

#![allow(clippy::unwrap_used)]

use super::formulas::{
    Question, Skew, baseline_s, buffpack_s, lower_bound_s, offpack_s, skewed_buffpack_s, skewed_fillpack_s,
};
use super::simulation::Simulation;
use super::strategy::Strategy as _;
use super::*;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use proptest::prelude::*;

fn even(question: &Question) -> Accounting {
    let each = question.data_bytes / question.groups as u64;
    Accounting::new(vec![each; question.groups], question.memory_bytes, question.alpha)
}

fn cost_of(choice: Choice, question: &Question) -> Cost {
    choice.simulate_cost(&even(question), &question.terms, &Expected::uniform(question.groups, question.alpha))
}

/// The difference between `ours` and `other`, in thousandths of `other`.
fn off_by(ours: f64, other: f64) -> f64 {
    (ours - other).abs() / other * 1_000.0
}

#[test]
fn the_formulas_give_the_papers_hours_at_its_defaults() {
    let hours = |seconds: f64| (seconds / 3_600.0).round() as u64;
    assert_eq!(hours(baseline_s(&Question::PAPER)), 472);
    assert_eq!(hours(buffpack_s(&Question::PAPER)), 247);
    assert_eq!(hours(offpack_s(&Question::PAPER)), 141);
}

#[test]
fn strategies_take_what_the_formulas_say_within_five_percent() {
    for memory_gb in [4, 8, 16, 24, 32, 64, 100] {
        let question = Question { memory_bytes: memory_gb * 1_000_000_000, ..Question::PAPER };
        for (choice, formula) in [
            (Choice::Baseline, baseline_s(&question)),
            (Choice::Buffpack, buffpack_s(&question)),
            (Choice::Offpack, offpack_s(&question)),
            (Choice::Fillpack, offpack_s(&question)),
        ] {
            let took = cost_of(choice, &question).time.as_secs_f64();
            assert!(off_by(took, formula) < 50.0, "{choice} with {memory_gb} GB: {took} s, by its formula {formula} s");
        }
    }
}

#[test]
fn buffpack_and_offpack_cross_near_25_gb() {
    let crosses = |memory_mb: u64| {
        let question = Question { memory_bytes: memory_mb * 1_000_000, ..Question::PAPER };
        cost_of(Choice::Buffpack, &question).time < cost_of(Choice::Offpack, &question).time
    };
    assert!(!crosses(23_000));
    assert!(crosses(26_000));
}

/// All input of two groups is read and offloaded: most on group 1, and most of group 0's output for group 2.
fn offloaded() -> Accounting {
    let mut accounting = Accounting::new(vec![100, 200, 0], 100, Alpha::ONE).with_chunk_limit(1);
    for (on, runs) in [(0, [0, 30, 70]), (1, [100, 0, 0]), (1, [80, 0, 20])] {
        accounting.set_awake(Some(on));
        accounting.was_read(on, 100, &runs);
        for target in (0..3).filter(|target| *target != on) {
            accounting.was_offloaded(on, target, runs[target]);
        }
    }
    accounting.set_awake(Some(0));
    accounting
}

#[test]
fn offpack_reads_back_what_is_for_the_group_with_most_left_and_fillpack_what_fills_the_buffer() {
    let accounting = offloaded();
    let next = |choice: Choice| choice.strategy().next(&accounting, &Terms::PAPER);
    assert_eq!(next(Choice::Offpack), Step::Refill { target: 1, bytes: 30 });
    assert_eq!(next(Choice::Fillpack), Step::Refill { target: 2, bytes: 70 });
}

#[test]
fn fillpack_is_no_slower_than_offpack_and_gains_where_runs_are_not_many_times_the_buffer() {
    let mut gains = Vec::new();
    for (groups, memory_gb, data_tb) in [(2, 8, 10), (4, 8, 10), (12, 8, 10), (12, 64, 10), (24, 8, 10), (48, 8, 10)] {
        for exponents in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
            let (data_bytes, memory_bytes) = (data_tb * 1_000_000_000_000, memory_gb * 1_000_000_000);
            let question = Question { data_bytes, memory_bytes, groups, ..Question::PAPER };
            let (input, output) = (zipf(groups, exponents.0), zipf(groups, exponents.1));
            let accounting = Accounting::new(scaled(&input, data_bytes), memory_bytes, question.alpha);
            let expected = Expected { alpha: question.alpha, shares: scaled(&output, 1 << 40) };
            let took = |choice: Choice| choice.simulate_cost(&accounting, &question.terms, &expected);
            let (offpack, fillpack) = (took(Choice::Offpack), took(Choice::Fillpack));
            assert_eq!(offpack.bytes_written, fillpack.bytes_written, "both offload alike");
            let gain = 1.0 - fillpack.time.as_secs_f64() / offpack.time.as_secs_f64();
            let case = format!("{groups} groups, {memory_gb} GB, skew {exponents:?}: {gain}");
            assert!(gain > -0.002, "{case}");
            gains.push(gain);
        }
    }
    assert!(gains.iter().any(|gain| *gain > 0.05), "{gains:?}");
}

#[test]
fn buffpack_is_faster_with_output_as_skewed_as_the_papers_sentence_needs() {
    let hours = |exponent: f64| {
        let expected = Expected { alpha: Alpha::ONE, shares: scaled(&zipf(12, exponent), 1 << 40) };
        Choice::Buffpack.simulate_cost(&even(&Question::PAPER), &Terms::PAPER, &expected).time.as_secs_f64()
    };
    let even = hours(0.0);
    assert!(hours(0.5) > even && hours(1.0) > even, "with little skew it is slower");
    assert!(hours(2.0) < even * 0.95, "with much it is faster: {} s, {even} s", hours(2.0));
}

#[test]
fn tourpack_gains_a_tenth_at_the_crossover_and_lies_but_for_seeks_within_a_hundredth_of_the_bound() {
    let question = Question { memory_bytes: 24_500_000_000, ..Question::PAPER };
    let costs = Choice::candidates(&question.terms, question.memory_bytes, question.groups)
        .map(|choice| cost_of(choice, &question));
    let [_, buffpack, offpack, _, tourpack] = costs.map(|cost| cost.time.as_secs_f64());
    let gain = 1.0 - tourpack / buffpack.min(offpack);
    assert!(gain > 0.10, "TourPack takes {tourpack} s, BuffPack {buffpack} s, OffPack {offpack} s");
    let bound = lower_bound_s(&question);
    // The bound leaves out seeks.
    let seeking = costs[4].seeking.as_secs_f64();
    let case = format!("TourPack takes {tourpack} s, {seeking} s of it seeking; the bound is {bound} s");
    assert!((bound..bound * 1.01).contains(&(tourpack - seeking)) && seeking < bound * 0.02, "{case}");
    // The 15 % that were asked for are impossible: the bound itself is less than 13 % below the better of the two.
    assert!(bound / buffpack_s(&question).min(offpack_s(&question)) > 0.87);
}

#[test]
fn the_choice_is_never_slower_than_the_better_of_buffpack_and_offpack() {
    for memory_gb in [1, 2, 8, 20, 25, 32, 48, 64, 200] {
        for groups in [2, 4, 12, 24] {
            let data_bytes = 5_000_000_000_000;
            let question = Question { memory_bytes: memory_gb * 1_000_000_000, data_bytes, groups, ..Question::PAPER };
            let expected = Expected::uniform(groups, question.alpha);
            let choice = Choice::cheapest(&even(&question), &question.terms, &expected);
            let chosen = cost_of(choice, &question).time;
            let best = cost_of(Choice::Buffpack, &question).time.min(cost_of(Choice::Offpack, &question).time);
            assert!(chosen <= best, "{memory_gb} GB, {groups} groups: {choice} is slower");
        }
    }
}

/// Zipf shares of N groups: i^-s, in fractions.
fn zipf(groups: usize, exponent: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=groups).map(|rank| (rank as f64).powf(-exponent)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

fn scaled(shares: &[f64], whole: u64) -> Vec<u64> {
    shares.iter().map(|share| (share * whole as f64) as u64).collect()
}

#[test]
fn the_models_that_know_skew_are_within_three_percent_where_the_papers_are_not() {
    let mut papers_worst: f64 = 0.0;
    for (memory_gb, exponent) in
        [8, 25, 64].into_iter().flat_map(|gb| [0.0, 0.5, 1.0, 2.0].map(|exponent| (gb, exponent)))
    {
        let question = Question { memory_bytes: memory_gb * 1_000_000_000, ..Question::PAPER };
        let (even, skewed) = (zipf(12, 0.0), zipf(12, exponent));
        for skew in [Skew { input: &even, output: &skewed }, Skew { input: &skewed, output: &even }] {
            let accounting =
                Accounting::new(scaled(skew.input, question.data_bytes), question.memory_bytes, question.alpha);
            let expected = Expected { alpha: question.alpha, shares: scaled(skew.output, 1 << 40) };
            for (choice, formula) in [
                (Choice::Buffpack, skewed_buffpack_s(&question, skew)),
                (Choice::Fillpack, skewed_fillpack_s(&question, skew)),
            ] {
                let took = choice.simulate_cost(&accounting, &question.terms, &expected).time.as_secs_f64();
                let case = if skew.input[0] > skew.input[11] { "input" } else { "output" };
                let error = off_by(took, formula);
                assert!(error < 30.0, "{choice}, {memory_gb} GB, {case} s = {exponent}: {took} s, not {formula} s");
                if choice == Choice::Buffpack {
                    papers_worst = papers_worst.max(off_by(took, buffpack_s(&question)));
                }
            }
        }
    }
    assert!(papers_worst > 200.0, "formula (6) is off by a fifth under skew, not by {papers_worst} thousandths");
}

#[test]
fn the_model_of_fillpack_knows_groups_whose_runs_do_not_fill_the_buffer() {
    let mut papers_worst: f64 = 0.0;
    for (groups, data_tb, memory_gb) in [
        (4, 2, 64),
        (8, 2, 64),
        (12, 10, 64),
        (12, 2, 64),
        (24, 10, 8),
        (24, 10, 100),
        (48, 10, 8),
        (48, 10, 25),
        (96, 100, 25),
    ] {
        let (data_bytes, memory_bytes) = (data_tb * 1_000_000_000_000, memory_gb * 1_000_000_000);
        let question = Question { data_bytes, memory_bytes, groups, ..Question::PAPER };
        let took = cost_of(Choice::Fillpack, &question).time.as_secs_f64();
        let even = zipf(groups, 0.0);
        let better = skewed_fillpack_s(&question, Skew { input: &even, output: &even });
        let case = format!("{groups} groups, {data_tb} TB, {memory_gb} GB: {took} s, by the better model {better} s");
        assert!(off_by(took, better) < 50.0, "{case}");
        papers_worst = papers_worst.max(off_by(took, offpack_s(&question)));
    }
    assert!(papers_worst > 150.0, "formula (7) is off by a seventh there, not by {papers_worst} thousandths");
}

#[test]
fn a_planner_that_was_told_wrong_changes_its_mind() {
    // The planner expects the same output for all groups, for which TourPack is best with this much memory. Most of the
    // output is for a few groups, for which BuffPack is best.
    let question = Question { memory_bytes: 40_000_000_000, data_bytes: 20_000_000_000_000, ..Question::PAPER };
    let known = Expected::uniform(12, question.alpha);
    let right = Expected { alpha: question.alpha, shares: scaled(&zipf(12, 1.0), 1 << 40) };
    let at_first = Choice::cheapest(&even(&question), &question.terms, &known);
    let mut planner = Planner::new(even(&question), question.terms, at_first, false);
    // The planner in a world where the output is distributed differently.
    let mut simulation = Simulation::new(even(&question), &question.terms, &right, &Day::default());
    let ends = simulation.run(|accounting| {
        planner.accounting = accounting.clone();
        planner.next_step()
    });
    let stubborn = at_first.simulate_cost(&even(&question), &question.terms, &right);
    assert_ne!(planner.choice, at_first);
    assert!(ends.time < stubborn.time, "{ends:?} against {stubborn:?}");
}

const HOUR: Duration = Duration::from_hours(1);

#[test]
fn visits_beyond_the_starts_of_a_day_wait_for_the_next_one() {
    let question = Question { data_bytes: 2_000_000_000_000, ..Question::PAPER };
    let expected = Expected::uniform(12, question.alpha);
    for choice in Choice::candidates(&question.terms, question.memory_bytes, 12) {
        let free = cost_of(choice, &question);
        assert_eq!((free.waiting, free.total()), (Duration::ZERO, free.time));
        let terms = Terms { starts_per_day: 10, ..question.terms };
        let rated = choice.simulate_cost(&even(&question), &terms, &expected);
        assert_eq!((rated.time, rated.switches, rated.starts), (free.time, free.switches, free.starts));
        assert!(rated.starts >= rated.switches.div_ceil(12), "{rated:?}");
        let days = rated.total().as_secs_f64() / 86_400.0;
        let full_days = ((rated.starts - 1) / 10) as f64;
        assert!((full_days..full_days + 1.0).contains(&days), "{choice}: {days} days for {} starts", rated.starts);
    }
}

#[test]
fn what_is_gone_of_a_day_counts() {
    let question = Question { data_bytes: 50_000_000_000, ..Question::PAPER };
    let terms = Terms { starts_per_day: 10, ..question.terms };
    let expected = Expected::uniform(12, question.alpha);
    let on = |starts: Vec<u32>| {
        let day = Day { gone: 20 * HOUR, starts };
        Choice::Offpack.strategy().simulate_cost(&day, &even(&question), &terms, &expected)
    };
    assert_eq!(on(Vec::new()).waiting, Duration::ZERO, "it takes minutes, and few starts");
    assert_eq!(on(vec![3; 12]).waiting, Duration::ZERO);
    let late = on(vec![10; 12]);
    assert_eq!(late.waiting, 4 * HOUR);
    let one = on([vec![0; 11], vec![10]].concat());
    assert!(one.waiting > 3 * HOUR && one.waiting < 4 * HOUR, "{one:?}");
}

#[test]
fn where_starts_are_few_fewer_switches_are_chosen() {
    let question = Question { memory_bytes: 64_000_000_000, ..Question::PAPER };
    let chosen = |starts_per_day| {
        let terms = Terms { starts_per_day, ..question.terms };
        let expected = Expected::uniform(12, question.alpha);
        Choice::cheapest(&even(&question), &terms, &expected).simulate_cost(&even(&question), &terms, &expected)
    };
    let (free, rated) = (chosen(u32::MAX), chosen(10));
    assert!(rated.switches < free.switches && rated.time > free.time, "{free:?}, {rated:?}");
}

proptest! {
    #[test]
    fn every_byte_comes_home_whatever_the_strategy(
        input in prop::collection::vec(0_u64..3_000_000, 1..7),
        memory in 10_000_u64..2_000_000,
        seed in any::<u64>(),
        alpha in (0_u64..5, 1_u64..4),
        which in 0_usize..5,
        free_rides in any::<bool>(),
    ) {
        let groups = input.len();
        let mut rng = model::Rng::new(seed);
        let mut shares: Vec<u64> = (0..groups).map(|_| rng.below(10)).collect();
        shares[rng.below(groups as u64) as usize] += 1;
        let alpha = Alpha { output: alpha.0, input: alpha.1 };
        let accounting = Accounting::new(input.clone(), memory, alpha);
        let expected = Expected { alpha, shares };
        let choice = Choice::candidates(&Terms::PAPER, memory, groups)[which];
        let mut strategy: Chosen = choice.strategy();
        let mut simulation = Simulation::new(accounting, &Terms::PAPER, &expected, &Day::default());
        let cost = simulation.run(|accounting| {
            if free_rides && rng.below(20) == 0 { accounting.set_awake(Some(rng.below(groups as u64) as usize)); }
            strategy.next(accounting, &Terms::PAPER)
        });
        let accounting = simulation.accounting();
        prop_assert!(accounting.done());
        let total: u64 = input.iter().sum();
        prop_assert_eq!((0..groups).map(|group| accounting.delivered(group)).sum::<u64>(), alpha.output_of(total));
        prop_assert!(cost.bytes_read >= total);
    }
}
