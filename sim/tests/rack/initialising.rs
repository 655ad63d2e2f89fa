//! A rack of new drives: each group is woken once, one group of each class at a time, and clients continue meanwhile.

use super::*;
use engine::trace::TraceMessage;
use engine::{Action, Loss};
use proptest::prelude::*;

/// The groups whose initialisation was to be persisted, each with its drives, in order.
type Remembered = Rc<RefCell<Vec<(GroupId, Vec<DriveId>)>>>;

fn new_rack(spec: RackSpec, seed: u64, change: impl FnOnce(&mut RackPolicy)) -> (World, Remembered) {
    let mut policy = policy(&spec);
    change(&mut policy);
    let remembered = Remembered::default();
    let list = Rc::clone(&remembered);
    let recorder = move |record: Record| {
        if let TraceMessage::Action(Action::PersistInitialised { group, drives }) = record.message {
            list.borrow_mut().push((group, drives));
        }
    };
    (never_seen(spec, policy, seed, Some(Box::new(recorder))), remembered)
}

fn groups(world: &World) -> impl Iterator<Item = GroupId> + use<> {
    (0..world.rack.layout().groups.len()).map(|group| GroupId(group as u32))
}

fn awake(world: &World) -> usize {
    groups(world).filter(|group| world.rack.group_state(*group) != GroupState::Asleep).count()
}

/// Lets the rack boot; returns the maximum number of groups awake at the same time.
fn boot(world: &mut World) -> usize {
    let mut most = awake(world);
    while world.rack.uninitialised_groups() > 0 {
        assert!(world.step(), "every group is initialised");
        most = most.max(awake(world));
    }
    most
}

/// Each group was initialised, once and with all of its drives.
fn each_once(world: &World, remembered: &Remembered) {
    let mut found = remembered.borrow().clone();
    found.sort_unstable();
    let all = world.rack.layout().groups.iter().enumerate();
    let expected: Vec<_> = all.map(|(group, of)| (GroupId(group as u32), of.drives.clone())).collect();
    assert_eq!(found, expected);
}

/// Requests a read of a blob in `group`.
fn read_in(world: &mut World, group: GroupId) -> OpId {
    let stacks = world.rack.spec().code.stacks();
    let drives = world.rack.layout().groups[group.index()].drives[..stacks].to_vec();
    world.read_at(BlobId::numbered(1_000_000 + u64::from(group.0)), group, drives, MB)
}

#[test]
fn a_rack_that_is_idle_is_initialised_within_three_minutes_four_groups_at_a_time() {
    for seed in 0..5 {
        let (mut world, remembered) = new_rack(shipped("pelican"), seed, |_| {});
        assert_eq!(world.rack.ledger().active_drives(), 96, "all drives of four groups start at once");
        assert_eq!(boot(&mut world), 4);
        let took = world.now().since(Time::ZERO);
        println!("seed {seed}: 1,152 drives in {took:?}");
        assert!(took < 3 * MINUTE, "{took:?} for twelve rounds");
        each_once(&world, &remembered);
        world.run_for(24 * 60 * MINUTE);
        assert!(is_asleep(&world));
        let stats = world.rack.stats();
        assert_eq!((stats.group_wakes, stats.drive_starts), ([0, 0, 48], 1_152), "and no drive is started twice");
        assert_eq!(stats.initialisation_wakes, 48);
        assert_eq!(world.counted().trips, 0);
    }
}

#[test]
fn drives_that_were_seen_before_are_left_asleep() {
    let mut world = world_of("pelican", 1, |_| {});
    assert_eq!(world.rack.uninitialised_groups(), 0);
    world.run_for(24 * 60 * MINUTE);
    assert_eq!(world.rack.stats().drive_starts, 0);
}

#[test]
fn a_client_wakes_its_group_before_its_turn_and_it_is_not_woken_again() {
    let (mut world, remembered) = new_rack(shipped("pelican"), 3, |_| {});
    let last = GroupId(47);
    let classes = world.rack.layout().classes.len();
    world.run_for(Duration::from_secs(20));
    let (op, asked) = (read_in(&mut world, last), world.now());
    while world.rack.class_view(world.rack.layout().class_of(last)).queued[0] > 0 {
        assert!(world.step());
    }
    let waited = world.now().since(asked);
    assert!(waited < MINUTE, "it waits for one wake that was under way and its own, {waited:?} in all");
    assert!(world.rack.uninitialised_groups() > 48 - 4 * classes, "long before its group's turn");
    boot(&mut world);
    world.run_for(60 * MINUTE);
    assert_eq!(outcome_of(&mut world, op), Some(Outcome::Read));
    each_once(&world, &remembered);
    assert_eq!(world.rack.stats().group_wakes, [1, 0, 47]);
    assert_eq!(world.rack.stats().initialisation_wakes, 47);
}

#[test]
fn a_stream_of_clients_neither_starves_nor_is_starved() {
    let (mut world, remembered) = new_rack(shipped("pelican"), 4, |_| {});
    let mut rng = model::Rng::new(4);
    let mut asked = 0;
    while world.rack.uninitialised_groups() > 0 {
        read_in(&mut world, GroupId(rng.below(48) as u32));
        asked += 1;
        world.run_for(Duration::from_secs(5));
        assert!(world.now() < Time::ZERO + 30 * MINUTE, "{} groups are left", world.rack.uninitialised_groups());
    }
    each_once(&world, &remembered);
    world.run_for(30 * MINUTE);
    let ended = world.take_ended();
    assert_eq!(ended.iter().filter(|ended| ended.outcome == Outcome::Read).count(), asked);
    let longest = ended.iter().map(|ended| ended.at.since(ended.issued)).max().unwrap();
    assert!(longest < 6 * MINUTE, "the longest of {asked} reads took {longest:?}");
}

#[test]
fn a_drive_that_is_not_there_is_done_without_and_keeps_its_group_from_nothing() {
    let (mut world, remembered) = new_rack(shipped("nas8"), 5, |_| {});
    let gone = world.rack.layout().groups[1].drives[0];
    world.kill(gone);
    boot(&mut world);
    each_once(&world, &remembered);
    assert_eq!(world.rack.drive_phase(gone), engine::DrivePhase::Away(Loss::Died));
    let starts = world.rack.stats().drive_starts;
    world.revive(gone);
    world.run_for(60 * MINUTE);
    assert_eq!(world.rack.stats().drive_starts, starts, "it is not woken for that: its group's next wake has it");
}

#[test]
fn without_starts_left_nothing_is_woken_but_by_clients() {
    let (mut world, remembered) = new_rack(shipped("nas8"), 6, |policy| policy.starts_per_day = 0);
    world.run_for(10 * 24 * 60 * MINUTE);
    assert_eq!((world.rack.stats().drive_starts, world.rack.uninitialised_groups()), (0, 2));
    assert_eq!(world.rack.stats().refused, 0, "nobody was refused anything");
    let op = read_in(&mut world, GroupId(1));
    world.run_for(60 * MINUTE);
    assert_eq!(outcome_of(&mut world, op), Some(Outcome::Read));
    assert_eq!(world.rack.uninitialised_groups(), 1);
    assert_eq!(remembered.borrow().len(), 1);
}

#[test]
fn a_rack_that_closes_in_the_middle_of_it_sleeps_and_asks_for_no_more() {
    let (mut world, remembered) = new_rack(shipped("pelican"), 7, |_| {});
    world.run_for(Duration::from_secs(30));
    let seen = remembered.borrow().len();
    assert!((4..48).contains(&seen), "{seen} groups are initialised by then");
    world.close();
    world.run_for(10 * MINUTE);
    assert!(world.rack.is_closed());
    assert_eq!((remembered.borrow().len(), world.rack.stats().refused), (seen, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_fails_meanwhile_each_group_is_initialised_once(seed in any::<u64>()) {
        for name in ["pelican-mini", "nas8"] {
            let (mut world, remembered) = new_rack(shipped(name), seed, |_| {});
            let mut rng = model::Rng::new(seed);
            world.set_faults(Faults {
                command_permille: 100,
                transfer_permille: 50,
                twice_permille: 100,
                mute_permille: 50,
                hang_permille: 50,
            });
            let hard: Vec<_> = world.rack.spec().resources_by_id().filter(|(_, r)| r.hard).map(|(id, _)| id).collect();
            for _ in 0..rng.below(40) {
                let drive = DriveId(rng.below(world.rack.spec().drives.len() as u64) as u32);
                match rng.below(6) {
                    0 => world.kill(drive),
                    1 => world.revive(drive),
                    2 => world.trip(hard[rng.below(hard.len() as u64) as usize], drive),
                    3 => {
                        let group = GroupId(rng.below(world.rack.layout().groups.len() as u64) as u32);
                        read_in(&mut world, group);
                    }
                    _ => world.run_for(Duration::from_millis(rng.below(20_000))),
                }
            }
            heal(&mut world);
            world.run_for(2 * 24 * 60 * MINUTE);
            prop_assert_eq!((world.counted().trips, world.open_ops(), world.rack.open_operations()), (0, 0, 0));
            prop_assert_eq!(world.rack.uninitialised_groups(), 0);
            each_once(&world, &remembered);
            prop_assert!(is_asleep(&world));
        }
    }
}
