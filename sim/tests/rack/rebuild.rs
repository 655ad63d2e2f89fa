//! Drives that fail permanently: their stacks are rebuilt inside their group in all circumstances, and losses are
//! reported.

use super::*;
use engine::{PriorityClass, RebuildView};
use model::Rng;
use proptest::prelude::*;
use std::collections::BTreeSet;

pub(crate) fn view(world: &World, drive: DriveId) -> RebuildView {
    world.rack.rebuilds().find(|view| view.drive == drive).unwrap()
}

/// The drive with the most blobs, and the blobs with a stack on it.
pub(crate) fn fullest(world: &World) -> (DriveId, Vec<BlobId>) {
    let on = |drive: DriveId| -> Vec<BlobId> {
        world.blobs.iter().map(|(blob, _)| blob).filter(|blob| world.blobs.drives_of(*blob).contains(&drive)).collect()
    };
    let drives = (0..world.rack.spec().drives.len()).map(|drive| DriveId(drive as u32));
    drives.map(|drive| (drive, on(drive))).max_by_key(|(_, blobs)| blobs.len()).unwrap()
}

pub(crate) fn mates(world: &World, drive: DriveId) -> Vec<DriveId> {
    let layout = world.rack.layout();
    let group = layout.group_of(drive).unwrap();
    layout.groups[group.index()].drives.iter().copied().filter(|mate| *mate != drive).collect()
}

/// True if the blob is whole in its group, on drives that have not failed.
fn is_whole(world: &World, blob: BlobId, group: GroupId) -> bool {
    let members = &world.rack.layout().groups[group.index()].drives;
    let drives: BTreeSet<DriveId> = world.blobs.drives_of(blob).iter().copied().collect();
    drives.len() == world.rack.spec().code.stacks()
        && drives.iter().all(|drive| members.contains(drive) && !world.rack.has_failed(*drive))
        && drives.iter().all(|drive| !world.blobs.is_lost(blob, *drive))
}

pub(crate) fn all_whole(world: &World) -> bool {
    world.blobs.iter().all(|(blob, group)| is_whole(world, blob, group))
}

/// Writes blobs and fails the drive with the most of them; returns the drive, and the blobs with a stack on it.
fn fail_fullest(world: &mut World, count: u64, bytes: u64) -> (DriveId, Vec<BlobId>) {
    with_blobs(world, count, bytes);
    let (drive, blobs) = fullest(world);
    world.fail(drive);
    (drive, blobs)
}

/// The same, half rebuilt.
fn half_rebuilt(world: &mut World, count: u64, bytes: u64) -> (DriveId, Vec<BlobId>) {
    let (drive, blobs) = fail_fullest(world, count, bytes);
    while world.blobs.left_on(drive) > blobs.len() as u64 / 2 {
        assert!(world.step());
    }
    (drive, blobs)
}

/// Kills as many other drives of the group of `drive` as the code allows; every blob can still be read.
fn survives_deaths(world: &mut World, drive: DriveId, blobs: Vec<BlobId>) {
    let parity = usize::from(world.rack.spec().code.parity);
    mates(world, drive).into_iter().take(parity).for_each(|mate| world.kill(mate));
    for blob in blobs {
        assert_eq!(reads(world, blob), Some(Outcome::Read));
    }
}

pub(crate) fn reads(world: &mut World, blob: BlobId) -> Option<Outcome> {
    let op = world.read(blob, MB).unwrap();
    world.run_for(30 * MINUTE);
    outcome_of(world, op)
}

#[test]
fn what_a_failed_drive_held_is_rebuilt_in_its_group_and_survives_r_further_deaths() {
    for read_back in [true, false] {
        let mut world = world_of("pelican-mini", 41, |policy| policy.rebuild_read_back = read_back);
        let (drive, blobs) = fail_fullest(&mut world, 60, 100 * MB);
        assert_eq!((world.blobs.left_on(drive), view(&world, drive).rebuilt_stacks), (blobs.len() as u64, 0));
        world.run_for(30 * MINUTE);
        let done = view(&world, drive);
        assert_eq!((world.blobs.left_on(drive), done.left_bytes, done.under_way), (0, 0, 0));
        assert_eq!((done.rebuilt_stacks, done.lost_blobs, done.waiting_blobs), (blobs.len() as u64, 0, 0));
        assert!(all_whole(&world) && is_asleep(&world));
        assert_eq!(
            world.rack.stats().group_wakes[PriorityClass::Rebuild as usize],
            1,
            "one wake is enough for all of it"
        );
        survives_deaths(&mut world, drive, blobs);
    }
}

#[test]
fn a_drive_that_merely_went_away_is_not_rebuilt() {
    let mut world = world_of("pelican-mini", 42, |_| {});
    with_blobs(&mut world, 20, 10 * MB);
    let (drive, _) = fullest(&world);
    let before = world.rack.stats().drive_starts;
    world.kill(drive);
    world.run_for(24 * 60 * MINUTE);
    assert_eq!((world.rack.rebuilds().count(), world.rack.stats().drive_starts), (0, before));
}

#[test]
fn a_failed_drive_stays_out_of_service_even_if_it_comes_back() {
    let mut world = world_of("nas8", 43, |_| {});
    let (drive, _) = fail_fullest(&mut world, 20, 10 * MB);
    world.run_for(30 * MINUTE);
    world.revive(drive);
    for _ in 0..20 {
        world.write(10 * MB, PinnedTo::Anywhere);
    }
    world.run_for(60 * MINUTE);
    assert_eq!(world.rack.drive_phase(drive), engine::DrivePhase::Away(engine::Loss::Failed));
    assert!(all_whole(&world));
    assert_eq!(
        world.rack.placement().free_bytes(drive),
        world.rack.spec().capacity_bytes(drive),
        "nothing counts on it"
    );
}

#[test]
fn a_second_drive_of_the_group_may_fail_during_the_rebuild() {
    let mut world = world_of("pelican-mini", 44, |_| {});
    let (drive, _) = half_rebuilt(&mut world, 80, 200 * MB);
    let second = mates(&world, drive)[0];
    world.fail(second);
    world.run_for(60 * MINUTE);
    assert_eq!((world.blobs.left_on(drive), world.blobs.left_on(second)), (0, 0));
    assert!(all_whole(&world) && is_asleep(&world));
    assert_eq!(view(&world, drive).lost_blobs + view(&world, second).lost_blobs, 0);
}

/// The number of blobs that lack this number of stacks.
fn with_losses(world: &World, losses: usize) -> usize {
    let lacks = |blob: BlobId, drive: &DriveId| world.rack.has_failed(*drive) || world.blobs.is_lost(blob, *drive);
    let of = |blob: BlobId| world.blobs.drives_of(blob).iter().filter(|drive| lacks(blob, drive)).count();
    world.blobs.iter().filter(|(blob, _)| of(*blob) == losses).count()
}

/// Counts by the rack, and by looking at every blob: from 1 to `parity` losses.
fn exposures(world: &mut World, parity: usize) -> (Vec<u64>, Vec<u64>) {
    world.run_for(Duration::from_millis(1)); // the rack receives the changes of the catalog
    (world.rack.exposure().blobs, (1..=parity).map(|losses| with_losses(world, losses) as u64).collect())
}

#[test]
fn the_most_exposed_blobs_are_safe_first_and_the_counts_say_how_many_there_are() {
    let mut world = world_of("pelican-mini", 61, |_| {});
    let (drive, blobs) = half_rebuilt(&mut world, 240, 100 * MB);
    let (rack, seen) = exposures(&mut world, 2);
    assert_eq!((rack, world.rack.exposure().lost_blobs), (seen, 0), "one drive failed");
    let held = |second: &DriveId| {
        let on_both = |blob: &&BlobId| [drive, *second].iter().all(|d| world.blobs.drives_of(**blob).contains(d));
        blobs.iter().filter(on_both).count()
    };
    let second = mates(&world, drive).into_iter().max_by_key(held).unwrap();
    world.fail(second);
    let (begun, both, one) = (world.now(), with_losses(&world, 2), with_losses(&world, 1));
    assert!(both > 3 && one > 3, "{both} have lost two stacks, {one} have lost one");
    let mut safe = None;
    while with_losses(&world, 1) + with_losses(&world, 2) > 0 {
        assert!(world.step(), "{:?}", world.rack.rebuilds().collect::<Vec<_>>());
        let left = with_losses(&world, 2);
        // The operation that was in service when the drive failed may have been for any blob.
        let less_exposed_done = (one + both).saturating_sub(with_losses(&world, 1) + left);
        assert!(left == 0 || less_exposed_done <= 1, "{less_exposed_done} were whole while {left} lacked two stacks");
        if left == 0 && safe.is_none() {
            safe = Some(world.now().since(begun));
            let (rack, seen) = exposures(&mut world, 2);
            assert_eq!(rack, seen, "when none lacks two stacks any more");
        }
    }
    let (safe, whole) = (safe.unwrap(), world.now().since(begun));
    println!("{both} blobs of two losses in {safe:?}, {one} of one loss and those in {whole:?}");
    assert!(safe * 2 < whole, "r more failures are borne again long before all is rebuilt");
    world.run_for(10 * MINUTE);
    assert_eq!(world.rack.exposure().blobs, [0, 0]);
    assert!(all_whole(&world) && is_asleep(&world));
}

#[test]
fn a_third_failure_during_the_rebuild_of_two_names_what_it_cost_and_the_rest_comes_back() {
    let mut world = world_of("pelican-mini", 62, |_| {});
    let (drive, _) = fail_fullest(&mut world, 240, 100 * MB);
    let others = mates(&world, drive);
    world.fail(others[0]);
    world.run_for(Duration::from_secs(5));
    world.fail(others[1]);
    world.run_for(6 * 60 * MINUTE);
    let lost = with_losses(&world, 3);
    let (rack, seen) = exposures(&mut world, 2);
    assert_eq!((&rack, world.rack.exposure().lost_blobs), (&seen, lost as u64));
    // Five drives remain in the group, one too few for a whole blob.
    assert_eq!((with_losses(&world, 3), rack[1]), (lost, 0));
    assert!(lost > 0 && rack[0] > 0, "{lost} are lost, {rack:?} exposed");
}

#[test]
fn more_than_r_losses_are_counted_and_a_read_says_that_data_is_lost() {
    let mut world = world_of("pelican-mini", 45, |_| {});
    with_blobs(&mut world, 60, 10 * MB);
    let (drive, blobs) = fullest(&world);
    let failed: Vec<DriveId> = [drive].into_iter().chain(mates(&world, drive).into_iter().take(2)).collect();
    let lost: Vec<BlobId> = blobs
        .into_iter()
        .filter(|blob| failed.iter().all(|drive| world.blobs.drives_of(*blob).contains(drive)))
        .collect();
    assert!(!lost.is_empty());
    for drive in &failed {
        world.fail(*drive);
    }
    world.run_for(3 * 24 * 60 * MINUTE);
    for drive in &failed {
        assert_eq!(view(&world, *drive).lost_blobs, lost.len() as u64);
    }
    assert_eq!(reads(&mut world, lost[0]), Some(Outcome::Failed(Rejection::DataLost)));
    assert!(is_asleep(&world), "nobody keeps a group awake for what is lost");
}

#[test]
fn a_stack_that_is_bad_beside_the_lost_one_is_made_up_for_and_too_many_are_reported() {
    let mut world = world_of("pelican-mini", 46, |_| {});
    with_blobs(&mut world, 40, 10 * MB);
    let (drive, blobs) = fullest(&world);
    let corrupt = |world: &mut World, blob: BlobId, count: usize| {
        let others: Vec<DriveId> =
            world.blobs.drives_of(blob).iter().copied().filter(|other| *other != drive).collect();
        for other in others.into_iter().take(count) {
            world.blobs.corrupt(blob, other);
        }
    };
    corrupt(&mut world, blobs[0], 1);
    corrupt(&mut world, blobs[1], 2);
    world.fail(drive);
    world.run_for(60 * MINUTE);
    assert_eq!(world.blobs.left_on(drive), 1, "all but one");
    assert!(world.blobs.drives_of(blobs[1]).contains(&drive));
    assert_eq!(view(&world, drive).lost_blobs, 1);
}

#[test]
fn a_rebuild_waits_while_too_few_drives_are_there_and_goes_on_when_they_are_back() {
    let mut world = world_of("pelican-mini", 47, |_| {});
    with_blobs(&mut world, 40, 10 * MB);
    let (drive, blobs) = fullest(&world);
    let gone: Vec<DriveId> = mates(&world, drive).into_iter().take(4).collect();
    for mate in &gone {
        world.kill(*mate);
    }
    world.fail(drive);
    world.run_for(5 * MINUTE);
    let waits = view(&world, drive);
    assert_eq!((waits.waiting_blobs, waits.lost_blobs), (blobs.len() as u64, 0));
    assert!(is_asleep(&world), "nobody wakes a group for what cannot be done");
    for mate in &gone {
        world.revive(*mate);
    }
    world.run_for(5 * MINUTE);
    assert_eq!(world.blobs.left_on(drive), 0);
    assert!(all_whole(&world));
}

#[test]
fn a_restart_in_the_middle_goes_on_with_what_is_left() {
    let mut world = world_of("pelican-mini", 48, |_| {});
    let (drive, _) = half_rebuilt(&mut world, 60, 100 * MB);
    // After a restart the rack knows what the catalog knows: the places of blobs, and that the drive failed.
    let stack_bytes = (100 * MB).div_ceil(u64::from(world.rack.spec().code.data));
    let mut used_bytes = vec![0; world.rack.spec().drives.len()];
    let blobs: Vec<(GroupId, Vec<DriveId>)> =
        world.blobs.iter().map(|(blob, group)| (group, world.blobs.drives_of(blob).to_vec())).collect();
    for drive in blobs.iter().flat_map(|(_, drives)| drives) {
        used_bytes[drive.index()] += stack_bytes;
    }
    let left = world.blobs.left_on(drive);
    let spec = world.rack.spec().clone();
    let policy = policy(&spec);
    let mut world = judged(spec, policy, 49, used_bytes);
    for (group, drives) in blobs {
        world.place(group, drives, stack_bytes);
    }
    world.fail(drive);
    assert_eq!(view(&world, drive).left_bytes, left * stack_bytes);
    world.run_for(60 * MINUTE);
    assert_eq!((world.blobs.left_on(drive), view(&world, drive).rebuilt_stacks), (0, left));
    assert!(all_whole(&world));
}

#[test]
fn closing_ends_a_rebuild_between_two_stacks() {
    let mut world = world_of("pelican-mini", 50, |_| {});
    let (drive, blobs) = fail_fullest(&mut world, 60, 100 * MB);
    while world.blobs.left_on(drive) == blobs.len() as u64 {
        assert!(world.step());
    }
    world.close();
    world.run_for(10 * MINUTE);
    assert!(world.rack.is_closed() && world.blobs.left_on(drive) > 0);
    assert_eq!((world.open_ops(), world.rack.open_operations()), (0, 0));
}

#[test]
fn clients_keep_their_share_of_the_class_while_it_is_rebuilt() {
    let mut world = world_of("nas8", 51, |policy| {
        policy.scheduler.shares = Shares { client: 1, rebuild: 1, background: 1 };
        policy.rebuild_read_back = false;
    });
    let blobs = with_blobs(&mut world, 200, 500 * MB);
    let (drive, held) = fullest(&world);
    let x_over_t = held.len() as f64 * 250.0 / 105.0;
    world.fail(drive);
    // Clients that always request more, from all groups.
    let (mut asked, mut answered) = (0_usize, 0_usize);
    let begun = world.now();
    while world.blobs.left_on(drive) > 0 {
        for _ in world.open_ops()..40 {
            world.read(blobs[asked % blobs.len()], 500 * MB).unwrap();
            asked += 1;
        }
        world.run_for(Duration::from_secs(1));
        answered += world.take_ended().into_iter().filter(|ended| ended.priority == PriorityClass::Client).count();
    }
    let took = world.now().since(begun).as_secs_f64();
    println!("x/t {x_over_t:.0} s, took {took:.0} s; {answered} reads of 500 MB");
    assert!(took < 3.0 * x_over_t, "w = 50 %, and some waking");
    let client_s = answered as f64 * 250.0 / 105.0;
    assert!(client_s > 0.3 * took, "clients got their half, less what waking cost them");
}

#[test]
fn a_failed_drive_is_replaced_while_it_is_rebuilt_and_what_it_held_is_rebuilt_all_the_same() {
    for (name, seed) in [("pelican-mini", 52), ("nas8", 53)] {
        let mut world = world_of(name, seed, |_| {});
        let (drive, blobs) = half_rebuilt(&mut world, 60, 100 * MB);
        let left = world.blobs.left_on(drive);
        assert!(world.replace(drive), "it holds nothing that counts");
        assert!(!world.rack.has_failed(drive) && !world.replace(drive), "once");
        let stack_bytes = (100 * MB).div_ceil(u64::from(world.rack.spec().code.data));
        assert_eq!((world.blobs.left_on(drive), view(&world, drive).left_bytes), (left, left * stack_bytes));
        assert_eq!(world.rack.placement().free_bytes(drive), world.rack.spec().capacity_bytes(drive), "it is empty");
        for _ in 0..60 {
            world.write(100 * MB, PinnedTo::Anywhere);
        }
        world.run_for(3 * 60 * MINUTE);
        let done = view(&world, drive);
        assert_eq!((world.blobs.left_on(drive), done.left_bytes, done.under_way), (0, 0, 0), "{name}");
        assert_eq!((done.lost_blobs, done.waiting_blobs), (0, 0));
        let on_it =
            |blobs: &[BlobId]| blobs.iter().filter(|blob| world.blobs.drives_of(**blob).contains(&drive)).count();
        let all: Vec<BlobId> = world.blobs.iter().map(|(blob, _)| blob).collect();
        let (back, new) = (on_it(&blobs), on_it(&all) - on_it(&blobs));
        assert!(back as u64 <= left && new > 0, "new blobs lie on it, and {back} of {left} that were lost");
        assert!(all_whole(&world) && is_asleep(&world));
        survives_deaths(&mut world, drive, blobs);
    }
}

#[test]
fn a_replacement_is_filled_until_its_group_is_even_again() {
    for (name, seed) in [("pelican-mini", 56), ("nas8", 57)] {
        let mut world = world_of(name, seed, |_| {});
        let (drive, blobs) = fail_fullest(&mut world, 240, 100 * MB);
        assert!(world.replace(drive));
        world.run_for(6 * 60 * MINUTE);
        assert_eq!((world.blobs.left_on(drive), view(&world, drive).left_bytes), (0, 0), "{name}");
        let mates = mates(&world, drive);
        let used = |drive: DriveId| world.rack.placement().used_bytes(drive);
        let mean = mates.iter().map(|mate| used(*mate)).sum::<u64>() / mates.len() as u64;
        assert!(used(drive) * 10 > mean * 8, "{name}: {} of {mean} bytes are on it", used(drive));
        assert!(all_whole(&world) && is_asleep(&world));
        survives_deaths(&mut world, drive, blobs);
    }
}

#[test]
fn a_drive_that_comes_back_is_looked_through_and_what_is_right_counts_again() {
    for (name, seed) in [("pelican-mini", 58), ("nas8", 59)] {
        let mut world = world_of(name, seed, |_| {});
        let (drive, blobs) = half_rebuilt(&mut world, 60, 100 * MB);
        let (left, before) = (world.blobs.left_on(drive), view(&world, drive).rebuilt_stacks);
        let still_there = |world: &World| -> Vec<BlobId> {
            blobs.iter().copied().filter(|blob| world.blobs.drives_of(*blob).contains(&drive)).collect()
        };
        let there = still_there(&world);
        assert!(left > 2 && there.len() as u64 == left);
        world.blobs.corrupt(there[0], drive);
        // As many other drives die as the blobs can bear: the search needs none of them.
        let gone: Vec<DriveId> = mates(&world, drive).into_iter().take(world.rack.spec().code.parity.into()).collect();
        for mate in &gone {
            world.kill(*mate);
        }
        assert!(world.take_back(drive) && !world.take_back(drive), "once");
        world.run_for(60 * MINUTE);
        let found = view(&world, drive).rebuilt_stacks - before;
        assert!(found + 1 >= left, "{name}: {found} of {left} were found");
        for mate in &gone {
            world.revive(*mate);
        }
        world.run_for(6 * 60 * MINUTE);
        assert_eq!((world.blobs.left_on(drive), view(&world, drive).left_bytes), (0, 0), "{name}");
        assert!(there[1..].iter().all(|blob| still_there(&world).contains(blob)), "they lie where they lay");
        assert!(all_whole(&world) && is_asleep(&world));
        survives_deaths(&mut world, drive, blobs);
    }
}

#[test]
fn a_replacement_that_fails_and_is_replaced_loses_sight_of_nothing() {
    let mut world = world_of("pelican-mini", 54, |_| {});
    with_blobs(&mut world, 60, 100 * MB);
    let (drive, blobs) = fullest(&world);
    for round in 0..4 {
        world.fail(drive);
        assert!(world.blobs.left_on(drive) > 0);
        world.run_for(Duration::from_secs(20 + round));
        while !world.replace(drive) {
            assert!(world.step());
        }
        world.write(100 * MB, PinnedTo::Group(world.rack.layout().group_of(drive).unwrap()));
        world.run_for(Duration::from_secs(20));
    }
    world.run_for(24 * 60 * MINUTE);
    assert_eq!((world.blobs.left_on(drive), view(&world, drive).left_bytes), (0, 0));
    for blob in blobs {
        assert_eq!(reads(&mut world, blob), Some(Outcome::Read));
    }
    assert!(all_whole(&world) && is_asleep(&world));
}

/// A randomised run with drives that fail permanently, at most `failures` per group; everything heals in the end.
fn failing_run(name: &str, seed: u64, failures: usize, faults: Faults) -> (World, BTreeSet<BlobId>) {
    let mut world = world_of(name, seed, |policy| {
        policy.idle_timeout = IdleTimeout::After(MINUTE);
        policy.rebuild_read_back = seed.is_multiple_of(2);
        policy.read_policy = if seed.is_multiple_of(3) { ReadPolicy::K } else { ReadPolicy::All };
    });
    let mut rng = Rng::for_thing(seed, 97);
    world.set_faults(faults);
    let (mut failed, mut dead): (Vec<DriveId>, BTreeSet<BlobId>) = Default::default();
    for _ in 0..300 {
        world.run_for(Duration::from_millis(rng.below(20_000)));
        let blobs: Vec<BlobId> = world.blobs.iter().map(|(blob, _)| blob).collect();
        let drive = DriveId(rng.below(world.rack.spec().drives.len() as u64) as u32);
        match rng.below(13) {
            0..=4 => drop(world.write(MB * (1 + rng.below(50)), PinnedTo::Anywhere)),
            5..=6 if !blobs.is_empty() => drop(world.read(blobs[rng.below(blobs.len() as u64) as usize], MB)),
            7 if !blobs.is_empty() => {
                let blob = blobs[rng.below(blobs.len() as u64) as usize];
                world.mark_dead(blob, u64::MAX);
                dead.insert(blob);
            }
            8 => world.kill(drive),
            9 => world.revive(drive),
            10 => {
                let group = world.rack.layout().group_of(drive);
                let of_group = failed.iter().filter(|other| world.rack.layout().group_of(**other) == group).count();
                if group.is_some() && of_group < failures && !failed.contains(&drive) {
                    failed.push(drive);
                    world.fail(drive);
                }
            }
            // A place counts as failed until all stacks lost there are whole again.
            11 if failed.contains(&drive) && world.replace(drive) => {}
            _ => {}
        }
        failed.retain(|drive| world.rack.has_failed(*drive) || world.blobs.left_on(*drive) > 0);
    }
    heal(&mut world);
    world.run_for(5 * 24 * 60 * MINUTE);
    (world, dead)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn up_to_r_failures_of_a_group_leave_every_blob_whole_in_the_end(seed in any::<u64>(), faulty in any::<bool>()) {
        // A drive that executes commands but never answers stays away unnoticed: such faults are not included.
        let bad = Faults {
            command_permille: 20,
            transfer_permille: 20,
            twice_permille: 100,
            mute_permille: 0,
            hang_permille: 10,
        };
        for (name, failures) in [("pelican-mini", 2), ("nas8", 1)] {
            let (world, dead) = failing_run(name, seed, failures, if faulty { bad } else { Faults::default() });
            prop_assert_eq!(world.counted().trips, 0);
            prop_assert_eq!((world.open_ops(), world.rack.open_operations()), (0, 0), "every operation is answered");
            // A drive that a fault took away stays away until the test brings it back. A group with fewer than k + r
            // remaining drives has no place for lost stacks, so its blobs wait.
            let rack = &world.rack;
            let away = |drive: &&DriveId| matches!(rack.drive_phase(**drive), engine::DrivePhase::Away(_));
            let stacks = rack.spec().code.stacks();
            let left = |group: GroupId| {
                let drives = &rack.layout().groups[group.index()].drives;
                drives.len() - drives.iter().filter(away).count()
            };
            let living = |(blob, group): &(BlobId, GroupId)| !dead.contains(blob) && left(*group) >= stacks;
            for (blob, group) in world.blobs.iter().filter(living) {
                prop_assert!(is_whole(&world, blob, group), "{} of {}: {:?}", blob, group, world.blobs.drives_of(blob));
            }
            for view in rack.rebuilds().filter(|view| left(view.group) >= stacks) {
                prop_assert_eq!((view.lost_blobs, view.waiting_blobs), (0, 0), "{:?}", view);
            }
        }
    }
}

/// A regression: removed blobs once reduced the assumed use of a replacement drive by more than they had there, so when
/// it failed as well, it seemed to be empty.
#[test]
fn what_a_replacement_holds_is_rebuilt_when_it_fails_although_older_blobs_were_removed() {
    let (world, dead) = failing_run("nas8", 3_379_894_532_754_156_451, 1, Faults::default());
    for (blob, group) in world.blobs.iter().filter(|(blob, _)| !dead.contains(blob)) {
        assert!(is_whole(&world, blob, group), "{blob} of {group}");
    }
}
