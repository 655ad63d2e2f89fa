//! Sleep and wake of the pool's drives, against the ledger of a box in which one drive may start at a time.
#![allow(clippy::unwrap_used)]

use super::*;
use core::time::Duration;
use model::{RackSpec, Rng};

const P0: PoolDriveId = PoolDriveId(0);
const P1: PoolDriveId = PoolDriveId(1);

/// A box of eight drives and a pool of two; only one drive of the pool shares the box's domains. `starts` drives may
/// start at a time.
fn spec(starts: u32) -> RackSpec {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "nas8").unwrap();
    let starting =
        alloc::format!("[resources.start]\nstarting_drives = {starts}\nhard = true\n\n[failure_domains.drive]");
    let pool =
        "[[pool]]\nslot = [8, 0, 0]\ndomains = { power = 0, controller = 0, start = 0 }\n\n[[pool]]\n\n[drive]\n";
    let text = text.replace("active_drives = 4", "active_drives = 5").replace("[failure_domains.drive]", &starting);
    let text = text.replace("domains = { power = 0,", "domains = { start = 0, power = 0,").replace("[drive]\n", pool);
    model::text::parse(&text, "rack.toml").unwrap()
}

struct Pool {
    ledger: Ledger,
    power: PoolPower,
    now: Time,
}

impl Pool {
    fn new(starts_per_day: u32) -> Self {
        let (spec, now) = (spec(1), Time::ZERO);
        let spin_down = SpinDownPolicy::default();
        Self { ledger: Ledger::new(&spec), power: PoolPower::new(&spec, starts_per_day, spin_down), now }
    }

    /// The actions after `change`.
    fn after(&mut self, change: impl FnOnce(&mut PoolPower, &mut Ledger, &mut Step)) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut step = Step { now: self.now, actions: &mut actions };
        change(&mut self.power, &mut self.ledger, &mut step);
        self.power.go_on(&mut self.ledger, false, &mut step);
        actions
    }

    /// The actions after `event` of `drive`.
    fn event(&mut self, drive: PoolDriveId, event: PoolDriveEvent) -> Vec<Action> {
        self.after(|power, ledger, step| power.take_note(drive, event, ledger, step))
    }

    fn idle(&mut self, drive: PoolDriveId) -> Vec<Action> {
        self.event(drive, PoolDriveEvent::Idle)
    }

    fn want(&mut self, drive: PoolDriveId) -> Vec<Action> {
        self.event(drive, PoolDriveEvent::Wanted)
    }

    /// `drive` executes `actions`, and nothing else; returns the next actions.
    fn done(&mut self, drive: PoolDriveId, actions: &[Action]) -> Vec<Action> {
        match actions {
            [Action::PoolDrive { drive: told, action: PoolDriveAction::Stop(attempt) }] if *told == drive => {
                self.event(drive, PoolDriveEvent::Stopped(*attempt))
            }
            [Action::PoolDrive { drive: told, action: PoolDriveAction::Start { attempt, .. } }] if *told == drive => {
                self.event(drive, PoolDriveEvent::Started(*attempt))
            }
            other => panic!("{other:?}"),
        }
    }

    fn phase(&self, drive: PoolDriveId) -> PoolDrivePhase {
        self.power.view(drive, self.now).unwrap().phase
    }
}

fn answer(drive: PoolDriveId, awake: bool) -> Vec<Action> {
    vec![Action::PoolDrive { drive, action: PoolDriveAction::Answer { awake } }]
}

#[test]
fn an_idle_drive_stops_and_is_started_for_whoever_wants_it() {
    let mut pool = Pool::new(10);
    let spinning_mw = pool.ledger.watts_mw();
    assert_eq!(pool.want(P0), answer(P0, true), "it spins");
    let stop = pool.idle(P0);
    assert_eq!(pool.ledger.watts_mw(), spinning_mw, "it draws power until it stands still");
    assert_eq!(pool.done(P0, &stop), []);
    assert_eq!(pool.phase(P0), PoolDrivePhase::Standby);
    assert_eq!(pool.ledger.watts_mw(), spinning_mw - 6_500 + 800);
    let start = pool.want(P0);
    assert_eq!(pool.ledger.watts_mw(), spinning_mw - 6_500 + 24_000);
    assert_eq!(pool.want(P0), [], "it is on its way");
    assert_eq!(pool.done(P0, &start), answer(P0, true), "all are answered by one");
    assert_eq!((pool.phase(P0), pool.ledger.watts_mw()), (PoolDrivePhase::Spinning, spinning_mw));
}

#[test]
fn a_drive_that_is_wanted_while_it_stops_starts_once_it_stands_still() {
    let mut pool = Pool::new(10);
    let stop = pool.idle(P0);
    assert_eq!(pool.want(P0), []);
    let start = pool.done(P0, &stop);
    assert_eq!(pool.done(P0, &start), answer(P0, true));
}

#[test]
fn a_start_waits_for_the_one_under_way_in_its_domain_and_others_do_not() {
    let mut pool = Pool::new(10);
    for drive in [P0, P1] {
        let stop = pool.idle(drive);
        pool.done(drive, &stop);
    }
    assert_eq!(pool.ledger.request(&[DriveId(3), DriveId(4)]), [DriveId(3)]);
    assert_eq!(pool.want(P0), [], "a drive of a group starts");
    assert!(pool.power.view(P0, pool.now).unwrap().waits);
    let outside = pool.want(P1);
    assert_eq!(pool.done(P1, &outside), answer(P1, true), "it shares nothing with the box");
    pool.ledger.spun_up(DriveId(3));
    let start = pool.after(|_, _, _| ());
    assert_eq!(pool.ledger.request(&[DriveId(4)]), [], "now that of the pool starts");
    let blocking: Vec<_> = pool.ledger.blocking(DriveId(4)).collect();
    assert!(blocking.iter().all(|(resource, domain)| pool.ledger.pool_starts_in(*resource, *domain)), "{blocking:?}");
    assert_eq!(pool.done(P0, &start), answer(P0, true));
    assert!(!blocking.iter().any(|(resource, domain)| pool.ledger.pool_starts_in(*resource, *domain)));
    assert_eq!(pool.ledger.request(&[DriveId(4)]), [DriveId(4)]);
}

#[test]
fn a_sleeping_drive_lends_its_room_to_nobody() {
    let mut pool = Pool::new(10);
    let stop = pool.idle(P0);
    pool.done(P0, &stop);
    for drive in (0..4).map(DriveId) {
        assert_eq!(pool.ledger.request(&[drive]), [drive]);
        pool.ledger.spun_up(drive);
    }
    assert_eq!(pool.ledger.request(&[DriveId(4)]), [], "five may be awake, one of which is the pool's");
    let start = pool.want(P0);
    assert_eq!(pool.done(P0, &start), answer(P0, true));
}

#[test]
fn a_drive_without_starts_left_spins_until_the_next_day() {
    let mut pool = Pool::new(2);
    pool.event(P0, PoolDriveEvent::Reported { day: 0, starts: 1 });
    let stop = pool.idle(P0);
    pool.done(P0, &stop);
    let start = pool.want(P0);
    let second = |action: &Action| {
        matches!(action, Action::PoolDrive { action: PoolDriveAction::Start { day: 0, starts: 2, .. }, .. })
    };
    assert!(second(&start[0]), "{start:?}");
    pool.done(P0, &start);
    assert_eq!(pool.idle(P0), []);
    assert_eq!(pool.power.deadline(pool.now), Time::start_of_day(1));
    pool.now = Time::start_of_day(1);
    let stop = pool.after(|_, _, _| ());
    assert_eq!((pool.done(P0, &stop), pool.power.deadline(pool.now)), (vec![], Time::MAX));
}

#[test]
fn a_drive_that_does_not_start_is_answered_for_and_tried_again() {
    let mut pool = Pool::new(10);
    let stop = pool.idle(P0);
    pool.done(P0, &stop);
    let [Action::PoolDrive { action: PoolDriveAction::Start { attempt, .. }, .. }] = pool.want(P0)[..] else {
        panic!("it is started")
    };
    assert_eq!(pool.event(P0, PoolDriveEvent::Failed(attempt)), answer(P0, false));
    assert_eq!(pool.ledger.request(&[DriveId(0)]), [DriveId(0)], "its permit is free");
    pool.ledger.released(DriveId(0));
    let late = pool.event(P0, PoolDriveEvent::Started(attempt));
    assert_eq!((late, pool.phase(P0)), (vec![], PoolDrivePhase::Standby));
    let start = pool.want(P0);
    assert_eq!(pool.done(P0, &start), answer(P0, true));
}

#[test]
fn a_drive_that_does_not_stop_spins_on_and_none_is_stopped_at_the_end() {
    let mut pool = Pool::new(10);
    let [Action::PoolDrive { action: PoolDriveAction::Stop(attempt), .. }] = pool.idle(P0)[..] else {
        panic!("it is stopped")
    };
    assert_eq!(pool.event(P0, PoolDriveEvent::Failed(attempt)), []);
    assert_eq!((pool.phase(P0), pool.power.deadline(pool.now)), (PoolDrivePhase::Spinning, pool.now + STOP_PAUSE));
    pool.now += STOP_PAUSE;
    assert!(matches!(
        pool.after(|_, _, _| ())[..],
        [Action::PoolDrive { action: PoolDriveAction::Stop(next), .. }] if next != attempt
    ));
    let next = Attempt(attempt.0 + 1);
    assert_eq!(pool.event(P0, PoolDriveEvent::Failed(next)), []);
    assert_eq!(pool.want(P0), answer(P0, true), "it spins");
    pool.now += STOP_PAUSE;
    assert_eq!(pool.after(|_, _, _| ()), [], "somebody has a use for it");
    let mut actions = Vec::new();
    let mut step = Step { now: Time::ZERO, actions: &mut actions };
    pool.power.take_note(P0, PoolDriveEvent::Idle, &mut pool.ledger, &mut step);
    pool.power.go_on(&mut pool.ledger, true, &mut step);
    assert_eq!(actions, []);
}

#[test]
fn a_drive_that_somebody_else_started_is_stopped_until_that_has_worn_it_enough() {
    let mut pool = Pool::new(2);
    let spinning_mw = pool.ledger.watts_mw();
    let mut stop = pool.idle(P0);
    assert_eq!(pool.event(P0, PoolDriveEvent::Spins), [], "it has not stopped yet");
    for _ in 0..2 {
        assert_eq!(pool.done(P0, &stop), []);
        assert_eq!(pool.event(P0, PoolDriveEvent::Spins), [], "whoever it was may come again");
        assert!(pool.ledger.watts_mw() > spinning_mw, "it may be starting");
        pool.now = pool.power.deadline(pool.now);
        pool.after(|_, _, _| ());
        assert_eq!(pool.ledger.watts_mw(), spinning_mw);
        pool.now += STOP_PAUSE;
        stop = pool.after(|_, _, _| ());
    }
    assert_eq!((stop, pool.phase(P0)), (vec![], PoolDrivePhase::Spinning), "no starts are left today");
    assert_eq!(pool.power.deadline(pool.now), Time::start_of_day(1));
    assert_eq!(pool.want(P0), answer(P0, true));
}

#[test]
fn a_drive_that_starts_and_is_found_spinning_was_started_once() {
    let mut pool = Pool::new(10);
    let stop = pool.idle(P0);
    pool.done(P0, &stop);
    let start = pool.want(P0);
    assert_eq!(pool.event(P0, PoolDriveEvent::Spins), []);
    assert_eq!(pool.done(P0, &start), answer(P0, true));
    assert_eq!(pool.power.view(P0, pool.now).unwrap().starts_today, 1);
}

#[test]
fn no_drive_starts_beside_one_that_something_else_has_just_started() {
    let mut pool = Pool::new(10);
    let stop = pool.idle(P0);
    pool.done(P0, &stop);
    assert_eq!(pool.event(P0, PoolDriveEvent::Spins), []);
    assert_eq!(pool.ledger.request(&[DriveId(3)]), [], "its start may be under way");
    pool.now = pool.power.deadline(pool.now);
    pool.after(|_, _, _| ());
    assert_eq!(pool.ledger.request(&[DriveId(3)]), [DriveId(3)], "its start would be over");
}

/// At random, with drives of the box that start beside them: every request for a drive is answered, no more drives
/// start than may, and the power that is counted is that of all states.
#[test]
fn at_random_everybody_is_answered_and_the_books_agree() {
    for seed in 0..200 {
        let (mut rng, mut pool) = (Rng::new(seed), Pool::new(1_000_000));
        let mut under_way: Vec<Action> = Vec::new();
        let (mut wanted, mut group) = ([false; 2], PowerState::Standby);
        for _ in 0..200 {
            pool.now += Duration::from_secs(1);
            let drive = PoolDriveId(rng.below(2) as u32);
            let asked = match rng.below(5) {
                0 => pool.idle(drive),
                1 => {
                    wanted[drive.index()] = true;
                    pool.want(drive)
                }
                2 if group == PowerState::Standby => {
                    let granted = !pool.ledger.request(&[DriveId(0)]).is_empty();
                    group = if granted { PowerState::SpinningUp } else { group };
                    Vec::new()
                }
                2 if group == PowerState::SpinningUp => {
                    pool.ledger.spun_up(DriveId(0));
                    pool.ledger.released(DriveId(0));
                    group = PowerState::Standby;
                    pool.after(|_, _, _| ())
                }
                _ if under_way.is_empty() => Vec::new(),
                _ => {
                    let action = under_way.swap_remove(rng.below(under_way.len() as u64) as usize);
                    let Action::PoolDrive { drive, .. } = action else { unreachable!("commands alone are under way") };
                    pool.done(drive, &[action])
                }
            };
            for action in asked {
                match action {
                    Action::PoolDrive { drive, action: PoolDriveAction::Answer { awake } } => {
                        assert!(awake && core::mem::take(&mut wanted[drive.index()]), "{drive} was wanted");
                    }
                    command => under_way.push(command),
                }
            }
            let inside = u32::from(pool.phase(P0) == PoolDrivePhase::Starting);
            assert!(inside + u32::from(group == PowerState::SpinningUp) <= 1, "one starts at a time");
            let draws = [P0, P1].map(|drive| match pool.phase(drive) {
                PoolDrivePhase::Standby => 800,
                PoolDrivePhase::Starting => 24_000,
                PoolDrivePhase::Spinning | PoolDrivePhase::Stopping => 6_500,
            });
            let of_group = if group == PowerState::SpinningUp { 24_000 } else { 800 };
            assert_eq!(pool.ledger.watts_mw(), 7 * 800 + of_group + draws.iter().sum::<u64>());
        }
        if group == PowerState::SpinningUp {
            pool.ledger.spun_up(DriveId(0));
        }
        let mut todo = pool.after(|_, _, _| ());
        todo.append(&mut under_way);
        while let Some(action) = todo.pop() {
            match action {
                Action::PoolDrive { drive, action: PoolDriveAction::Answer { .. } } => wanted[drive.index()] = false,
                Action::PoolDrive { drive, .. } => {
                    todo.extend(pool.done(drive, &[action]));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(wanted, [false; 2], "seed {seed}");
    }
}
