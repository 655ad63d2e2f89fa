//! Runs several hundred seeds of the torture, and by name those that found something.

#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use torture::{
    ABSENT_FROM, FaultKind, LOGGED_FROM, LOST_FROM, MEDDLED_FROM, MONTHS_FROM, Plan, RULED_FROM, RackShape, Report,
    SPOILED_FROM, STOPPED_FROM, Totals, history, run, shrink,
};

/// Number of seeds, unless `LARDER_SEEDS` sets it.
const SEEDS: u64 = 300;

/// Maximum number of runs to shrink one that breaks a rule.
const TRIES: u64 = 100;

fn sound(seed: u64) -> Report {
    let plan = Plan::of(seed);
    let report = run(&plan, false);
    if report.violation.is_some() {
        let shrunk = shrink(&plan, report, TRIES);
        let lines: String = history(&shrunk.report.lines);
        let violation = shrunk.report.violation.unwrap();
        panic!("seed {seed}: {}: {}\n{}\n{lines}", violation.rule, violation.seen, shrunk.plan.summary());
    }
    report
}

#[test]
fn no_rule_is_broken_whatever_happens() {
    let seeds = std::env::var("LARDER_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let (next, totals) = (AtomicU64::new(0), Mutex::<Totals>::default());
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return;
                }
                let report = sound(seed);
                totals.lock().add(&report);
            }
        };
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let totals = totals.into_inner();
    assert_eq!(totals.contradictions(), [], "what cannot meet (`torture/src/coverage.rs`) has met");
    println!("{} pairs of event and state, and never: {:?}", totals.reached(), totals.never());
}

#[test]
fn no_rule_is_broken_where_drives_are_retired() {
    let retired = (RULED_FROM..).filter(|seed| Plan::of(*seed).retires);
    retired.take(40).for_each(|seed| drop(sound(seed)));
}

#[test]
fn no_rule_is_broken_where_drives_come_back() {
    let returned = (RULED_FROM..).filter(|seed| Plan::of(*seed).returns);
    returned.take(40).for_each(|seed| drop(sound(seed)));
}

#[test]
fn a_stack_that_is_looked_for_where_it_lay_is_no_contradiction() {
    sound(1_000_172);
}

#[test]
fn a_retired_drive_that_is_away_keeps_no_other_from_being_given_up() {
    sound(1_000_358);
    sound(1_000_518);
}

#[test]
fn a_retired_drive_gets_nothing_that_waited_to_be_written_to_it() {
    sound(7_622_922_618);
}

#[test]
fn a_drive_that_the_rack_takes_back_while_others_are_replaced_stays() {
    sound(18_272_060_652);
}

#[test]
fn a_shelf_that_is_there_twice_is_no_loss() {
    sound(14_788_454_009);
}

#[test]
fn an_object_that_an_evacuation_moved_back_is_recovered_from_an_older_copy() {
    sound(14_788_457_354);
}

#[test]
fn groups_that_spin_since_no_starts_are_left_are_at_rest() {
    sound(14_700_001_457);
}

#[test]
fn a_start_that_the_engine_gave_up_trips_no_fuse_later() {
    sound(1_001_294);
}

#[test]
fn a_job_that_tries_again_reads_its_input_where_it_lies_by_then() {
    sound(1_000_899);
}

#[test]
fn no_rule_is_broken_where_data_is_hot_and_cold() {
    let ruled = (RULED_FROM..).filter(|seed| Plan::of(*seed).policy.migration.thermometer.is_used());
    ruled.take(24).for_each(|seed| drop(sound(seed)));
}

#[test]
fn no_rule_is_broken_where_the_workshop_is_checked() {
    let checked = (RULED_FROM..).filter(|seed| Plan::of(*seed).policy.checks.every.is_some());
    let mut totals = Totals::default();
    for seed in checked.take(60) {
        totals.add(&sound(seed));
    }
    assert_eq!(totals.contradictions(), [], "what cannot meet (`torture/src/coverage.rs`) has met");
    let met = |event| totals.coverage.get(event).map_or(0, |states| states.values().sum::<u64>());
    assert!(met("StagedChecked") > 500 && met("ChecksReported") > 10, "passes ran, and starts went on with them");
}

#[test]
fn no_rule_is_broken_where_scrubs_are_asked_for_and_paused() {
    let meddled = (MEDDLED_FROM..).filter(|seed| Plan::of(*seed).meddles && !Plan::of(*seed).kinds.is_empty());
    meddled.take(24).for_each(|seed| drop(sound(seed)));
}

#[test]
fn no_rule_is_broken_where_the_rack_gives_up_drives_by_itself() {
    let given_up = (ABSENT_FROM..).filter(|seed| Plan::of(*seed).gives_up() && !Plan::of(*seed).kinds.is_empty());
    let mut totals = Totals::default();
    given_up.take(40).for_each(|seed| totals.add(&sound(seed)));
    assert_eq!(totals.contradictions(), [], "what cannot meet (`torture/src/coverage.rs`) has met");
    let given_up = totals.faults.get(&FaultKind::GivenUpByRack).copied().unwrap_or(0);
    assert!(given_up > 10, "{given_up} were given up: {:?}", totals.faults);
}

#[test]
fn no_rule_is_broken_where_the_rack_takes_drives_back_by_itself() {
    let plans = (ABSENT_FROM..).map(Plan::of).filter(|plan| plan.policy.tries_given_up && !plan.returns);
    let mut totals = Totals::default();
    plans.filter(|plan| !plan.kinds.is_empty()).take(30).for_each(|plan| totals.add(&sound(plan.seed)));
    let returned = totals.coverage.get("DriveReturned").map_or(0, |states| states.values().sum::<u64>());
    assert!(returned > 0, "some were recognised: {:?}", totals.faults);
}

#[test]
fn no_rule_is_broken_where_drives_are_emptied_or_older_than_they_should_be() {
    let odd = [FaultKind::EmptiedDrive, FaultKind::OldCopy];
    let seeds = (ABSENT_FROM..).filter(|seed| odd.iter().any(|kind| Plan::of(*seed).kinds.contains(kind)));
    let mut totals = Totals::default();
    seeds.take(40).for_each(|seed| totals.add(&sound(seed)));
    assert!(odd.iter().all(|kind| totals.faults.contains_key(kind)), "both happened: {:?}", totals.faults);
}

#[test]
fn no_rule_is_broken_where_the_catalog_is_lost_and_made_again() {
    let lost = (LOST_FROM..).filter(|seed| Plan::of(*seed).lives.iter().any(|life| life.lost_catalog.is_some()));
    let mut totals = Totals::default();
    lost.take(40).for_each(|seed| totals.add(&sound(seed)));
    let lost = totals.faults.get(&FaultKind::LostCatalog).copied().unwrap_or(0);
    assert!(lost > 20, "{lost} were lost: {:?}", totals.faults);
}

#[test]
fn no_rule_is_broken_where_two_slots_show_one_label() {
    let seeds = (LOST_FROM..).filter(|seed| Plan::of(*seed).kinds.contains(&FaultKind::ClonedDrive));
    let mut totals = Totals::default();
    seeds.take(30).for_each(|seed| totals.add(&sound(seed)));
    let cloned = totals.faults.get(&FaultKind::ClonedDrive).copied().unwrap_or(0);
    assert!(cloned > 10, "{cloned} copies: {:?}", totals.faults);
}

#[test]
fn no_rule_is_broken_over_the_servers_own_log_whose_files_are_damaged() {
    let logged = (LOGGED_FROM..).map(Plan::of).filter(Plan::has_log);
    let mut totals = Totals::default();
    logged.take(100).for_each(|plan| totals.add(&sound(plan.seed)));
    let damaged = totals.faults.get(&FaultKind::LogFileDamaged).copied().unwrap_or(0);
    assert!(damaged > 20, "{damaged} files were damaged: {:?}", totals.faults);
}

#[test]
fn no_rule_is_broken_where_the_drives_of_the_log_fail_and_damage_costs_nothing() {
    let damaged = |plan: &Plan| plan.has_log() && plan.kinds.contains(&FaultKind::LogFileDamaged);
    let mut totals = Totals::default();
    (SPOILED_FROM..).map(Plan::of).filter(damaged).take(60).for_each(|plan| totals.add(&sound(plan.seed)));
    let damaged = totals.faults.get(&FaultKind::LogFileDamaged).copied().unwrap_or(0);
    assert!(damaged > 20, "{damaged} times: {:?}", totals.faults);
}

#[test]
fn a_log_that_the_catalog_may_need_is_missed_however_new_it_is_and_whatever_has_become_of_it() {
    for seed in [10_300_012_447, 10_300_020_575, 10_300_024_493, 10_300_024_971, 10_300_025_051] {
        sound(seed);
    }
}

#[test]
fn the_newest_catalog_is_the_newest_though_the_log_forgets_where_it_was_put_back() {
    sound(12_873_942_701);
}

#[test]
fn a_job_that_ends_while_a_drive_hangs_waits_for_the_answer() {
    sound(14_150_012_138);
}

#[test]
fn a_drive_that_stops_while_it_is_looked_through_is_looked_through_again() {
    sound(4_000_997);
}

#[test]
fn what_the_newest_catalog_cannot_bear_happens_under_no_older_one() {
    sound(816_700);
}

#[test]
fn a_client_that_never_waits_for_a_group_is_told_why_its_recalls_come_to_nothing() {
    sound(788_415);
}

#[test]
fn another_racks_file_stays_one_when_a_stack_is_to_be_made_in_its_place() {
    sound(4_000_770);
}

#[test]
fn no_rule_is_broken_where_blobs_are_scrubbed() {
    let scrubbed = (RULED_FROM..).filter(|seed| Plan::of(*seed).policy.scrub.period.is_some());
    scrubbed.take(48).for_each(|seed| drop(sound(seed)));
}

#[test]
fn what_a_recovery_misses_on_a_drive_that_was_replaced_is_rebuilt() {
    sound(9_688_862_243);
}

#[test]
fn a_drive_that_was_given_up_and_turns_takes_its_share_until_it_is_pulled() {
    sound(6_853_142_737);
}

#[test]
fn a_drive_that_takes_the_place_of_a_retired_one_is_not_retired_after_a_misread() {
    sound(8_727_164_079);
}

#[test]
fn a_drive_that_the_rack_gave_up_before_the_last_start_may_turn_when_it_is_lost() {
    sound(9_011_412_384);
}

#[test]
fn a_drive_whose_transfers_failed_is_tried_before_it_is_given_up() {
    sound(9_011_417_516);
}

#[test]
fn an_older_catalog_removes_no_staged_file_of_the_newest() {
    sound(7);
}

#[test]
fn a_power_failure_in_the_first_start_makes_no_catalog_older() {
    sound(220);
}

#[test]
fn a_checkpoint_is_a_record_like_any_other() {
    sound(2913);
}

#[test]
fn starts_that_a_full_catalog_cannot_remember_are_counted() {
    sound(91);
}

#[test]
fn a_job_does_not_end_without_what_it_could_not_look_up() {
    sound(1461);
}

#[test]
fn a_rebuild_leaves_no_stack_that_nobody_knows() {
    for seed in [1173, 3523, 4203, 4750] {
        sound(seed);
    }
}

#[test]
fn a_record_that_is_replaced_takes_along_what_hung_on_it() {
    sound(1907);
    sound(4805);
}

#[test]
fn an_aborted_write_removes_what_is_its_own() {
    sound(2214);
}

#[test]
fn a_drive_whose_failure_was_remembered_and_not_answered_can_be_given_up_again() {
    sound(11);
}

#[test]
fn nothing_is_called_lost_for_the_sake_of_one_try() {
    sound(639);
}

#[test]
fn a_drive_that_no_lost_stack_needs_can_be_given_up() {
    sound(803);
    sound(870);
}

#[test]
fn a_start_behind_a_tripped_fuse_takes_no_power() {
    sound(1078);
}

#[test]
fn a_stack_that_may_have_been_counted_is_not_removed() {
    sound(20164);
}

#[test]
fn whoever_is_removed_while_he_makes_a_bucket_hears_so() {
    sound(14388);
}

#[test]
fn a_catalog_before_an_empty_log_is_known_to_be_older() {
    for seed in [31757, 32045, 33335] {
        sound(seed);
    }
}

#[test]
fn an_upload_whose_completion_was_not_answered_is_open_no_more() {
    sound(32914);
}

#[test]
fn an_older_catalog_rebuilds_in_the_place_of_no_stack() {
    sound(45749);
}

#[test]
fn an_object_whose_commit_was_not_answered_migrates() {
    sound(43693);
}

#[test]
fn a_recall_whose_file_is_not_made_takes_no_room_in_the_spool() {
    sound(84699);
}

#[test]
fn a_scrub_repairs_no_stack_that_was_lost_with_a_drive_that_was_replaced() {
    sound(1_000_118);
}

#[test]
fn the_operators_word_that_a_drive_was_pulled_is_not_taken_for_the_racks_own() {
    sound(2_000_092);
}

#[test]
fn a_read_that_fails_makes_no_file_ones_own() {
    sound(817_435);
}

#[test]
fn a_call_that_a_drive_owes_never_reaches_the_one_that_takes_its_place() {
    sound(782_885);
}

#[test]
fn an_older_catalog_does_not_hide_what_the_newest_has_lost() {
    sound(810_849);
}

#[test]
fn a_stack_that_was_rebuilt_and_not_counted_is_not_removed_before_another_is_there() {
    sound(821_643);
}

#[test]
fn the_same_seed_has_the_same_hash() {
    for seed in [3, 7, 11] {
        assert_eq!(run(&Plan::of(seed), false).hash, run(&Plan::of(seed), false).hash, "seed {seed}");
    }
    assert_ne!(run(&Plan::of(3), false).hash, run(&Plan::of(7), false).hash);
}

#[test]
fn no_rule_is_broken_in_lives_of_months() {
    let months = (MONTHS_FROM..).filter(|seed| Plan::of(*seed).months);
    let mut totals = Totals::default();
    months.take(30).for_each(|seed| totals.add(&sound(seed)));
    assert_eq!(totals.contradictions(), [], "what cannot meet (`torture/src/coverage.rs`) has met");
    assert!(totals.virtual_hours > 30.0 * 24.0 * 10.0, "lives are long: {} hours", totals.virtual_hours);
}

#[test]
fn no_rule_is_broken_in_groups_of_24_drives() {
    let wide = (MONTHS_FROM..).filter(|seed| Plan::of(*seed).rack == RackShape::Wide);
    wide.take(30).for_each(|seed| drop(sound(seed)));
}

#[test]
fn answers_that_arrive_twice_do_no_harm() {
    let repeated = (MONTHS_FROM..).filter(|seed| Plan::of(*seed).kinds.contains(&FaultKind::RepeatedAnswer));
    let mut totals = Totals::default();
    repeated.take(40).for_each(|seed| totals.add(&sound(seed)));
    let count = totals.faults.get(&FaultKind::RepeatedAnswer).copied().unwrap_or(0);
    assert!(count > 100, "{count} answers arrived twice");
}

#[test]
fn a_server_that_is_killed_after_a_month_knows_which_day_it_is() {
    sound(6_000_129);
}

#[test]
fn a_scrub_forgets_no_damage_where_the_queue_is_full() {
    sound(6_000_058);
}

#[test]
fn what_is_still_looked_for_is_not_lost_while_its_drive_is_away_or_its_list_cannot_be_read() {
    for seed in [3_983_739_067, 4_100_014_458, 3_983_758_883] {
        sound(seed);
    }
}

#[test]
fn no_other_drive_takes_the_place_of_one_that_blobs_need() {
    sound(4_100_006_416);
}

#[test]
fn what_a_recovery_adopts_survives_a_power_cut() {
    sound(3_348_414_791);
}

#[test]
fn a_drive_that_waits_for_power_is_started_though_its_group_never_sleeps() {
    sound(3_983_763_775);
}

#[test]
fn dead_blobs_count_until_they_are_removed_and_no_longer() {
    for seed in [3_983_728_184, 4_100_002_498] {
        sound(seed);
    }
}

#[test]
fn a_drive_that_is_back_is_looked_through_until_every_record_could_be_read() {
    for seed in [3_983_727_365, 3_983_736_460, 2_668_427_597] {
        sound(seed);
    }
}

#[test]
fn parts_that_are_coming_keep_no_object_from_moving() {
    sound(4_100_004_436);
}

#[test]
fn a_scrub_leaves_what_a_commit_that_was_not_answered_may_count() {
    sound(1_183_955_424);
}

#[test]
fn what_is_left_on_a_drive_is_what_the_catalog_counts_there() {
    sound(9_742_481_335);
}

#[test]
fn what_was_read_and_moved_to_the_rack_is_not_in_quarantine() {
    sound(7_175_632_788);
}

#[test]
fn a_stack_that_cannot_show_whose_it_is_is_reported_and_nothing_is_left_beside_it() {
    sound(7_175_631_961);
}

#[test]
fn a_bad_sector_at_an_end_of_a_stack_costs_no_drive() {
    sound(8_829_530_503);
    sound(10_111_325_153);
}

#[test]
fn a_stack_of_which_no_fragment_can_be_read_is_repaired_if_its_drive_is_well() {
    sound(8_727_156_389);
}

#[test]
fn what_cannot_migrate_for_months_wakes_no_group_every_ten_minutes() {
    sound(10_111_284_766);
}

#[test]
fn what_is_staged_migrates_though_the_parts_of_uploads_could_not_be_counted_at_first() {
    sound(8_727_172_541);
}

#[test]
fn a_stack_that_was_taken_for_lost_is_not_left_where_it_was() {
    sound(6_833_982_833);
}

#[test]
fn what_lies_on_a_drive_that_is_back_is_looked_for_before_it_is_written_over() {
    sound(6_833_985_448);
}

#[test]
fn a_retired_drive_that_holds_the_last_stacks_of_a_blob_is_not_given_up_as_empty() {
    sound(10_300_031_078);
}

#[test]
fn a_stack_with_nothing_in_its_header_and_the_footer_of_another_is_repaired() {
    sound(7_427_934_744);
}

#[test]
fn two_drives_of_one_rotation_that_are_emptied_one_after_the_other_stay_in_it() {
    sound(16_247_908_255);
}

#[test]
fn servers_that_are_stopped_amid_faults_close_and_lose_nothing() {
    let mut totals = Totals::default();
    let abrupt = (STOPPED_FROM..).filter(|seed| Plan::of(*seed).abrupt);
    abrupt.take(40).for_each(|seed| totals.add(&sound(seed)));
    let closing: u64 = totals.coverage.values().filter_map(|states| states.get("closing")).sum();
    assert!(closing > 0, "events meet a server that closes: {closing}");
}

#[test]
fn a_verification_beside_the_server_may_be_interrupted_at_any_moment() {
    let verified = (STOPPED_FROM..).filter(|seed| Plan::of(*seed).verifies);
    let interrupted = |seed| sound(seed).lines.iter().filter(|line| line.what.contains("the operator ends it")).count();
    let interrupted: usize = verified.take(40).map(interrupted).sum();
    assert!(interrupted > 20, "verifications are interrupted: {interrupted}");
}

#[test]
fn nothing_is_demanded_that_no_operator_and_no_server_can_do() {
    for seed in [
        3_983_729_030,
        3_983_739_702,
        3_983_736_955,
        1_183_952_763,
        5_000_000_472,
        6_047_593_600,
        7_175_628_216,
        7_175_632_079,
        9_949_325_383,
        9_483_574_839,
        7_466_657_957,
    ] {
        sound(seed);
    }
}
