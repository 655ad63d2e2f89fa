//! The agent through days of made-up clusters and drives, a minute at a time.

#![allow(clippy::unwrap_used)]

use super::{Action, Agent, DriveSeen, Held, Mode, OsdSeen, Phase, RECOVERY_GRACE, Seen, Settings};
use crate::cluster::{OsdId, Pg};
use disk::IoCounters;
use engine::SpinDownPolicy;
use engine::spin_down::NodePolicy;
use model::Time;
use std::time::Duration;

const OSD: OsdId = OsdId(3);
/// 2026-11-24, noon.
const NOON: u64 = 1_795_521_600;

fn settings() -> Settings {
    Settings {
        node: NodePolicy {
            idle_timer: Duration::from_mins(15),
            down_out_interval: Duration::from_mins(10),
            grace: RECOVERY_GRACE,
            starts_per_day: 10,
            spin_down: SpinDownPolicy { min_gap: Duration::from_mins(10), keeps_exhausted: true },
        },
        deep_scrub_every: Duration::from_hours(7 * 24),
        settle: Duration::from_mins(1),
        window_max: Duration::from_hours(6),
        hold_max: None,
    }
}

fn of_starts(starts_per_day: u32) -> Settings {
    Settings { node: NodePolicy { starts_per_day, ..settings().node }, ..settings() }
}

/// One drive with its OSD, which do what the agent asks.
struct World {
    agent: Agent,
    now: Time,
    seen: Seen,
    /// True if the OSD writes and the drive's cache is not flushed.
    flushes_fail: bool,
    done: Vec<Action>,
}

impl World {
    fn new(settings: Settings) -> Self {
        let drive = DriveSeen { counters: Some(IoCounters::default()), mode: Mode::Active, is_write_through: false };
        let pg = Pg {
            name: "2.1".to_owned(),
            pool: 2,
            state: "active+clean".to_owned(),
            bytes: 1,
            writes: 0,
            acting: vec![OsdId(0), OSD],
            deep_scrubbed: "2026-11-24T11:00:00.000000+0000".to_owned(),
        };
        let now = Time::from_secs(NOON);
        let agent = Agent::new(settings, &[(OSD, drive)], None, now);
        Self {
            agent,
            now,
            seen: Seen { drive, osd: Some(OsdSeen { pgs: vec![pg], is_reserved: false, held: None }) },
            flushes_fail: false,
            done: Vec::new(),
        }
    }

    fn touch(&mut self) {
        let counters = self.seen.drive.counters.unwrap();
        self.seen.drive.counters = Some(IoCounters { reads: counters.reads + 1, ..counters });
        self.seen.drive.mode = Mode::Active;
    }

    fn flush(&mut self) {
        self.touch();
        if !self.flushes_fail {
            self.seen.drive.counters.as_mut().unwrap().flushes += 1;
        }
    }

    fn pg(&mut self) -> &mut Pg {
        &mut self.seen.osd.as_mut().unwrap().pgs[0]
    }

    /// When it no longer holds back writes, the OSD writes the held ones.
    fn hold(&mut self, is_on: bool) {
        let held = self.seen.osd.as_mut().unwrap().held.as_mut().unwrap();
        held.is_on = is_on;
        if !is_on && std::mem::take(&mut held.cost) > 0 {
            self.touch();
        }
    }

    /// A write: held back, or on the drive.
    fn write(&mut self, cost: u64) {
        match self.seen.osd.as_mut().unwrap().held.as_mut() {
            Some(held) if held.is_on => held.cost += cost,
            _ => self.touch(),
        }
    }

    /// Lets minutes pass; returns the actions of the agent.
    fn minutes(&mut self, minutes: u32) -> Vec<Action> {
        self.done.clear();
        for _ in 0..minutes {
            self.now += Duration::from_mins(1);
            for action in self.agent.tick(self.now, std::slice::from_ref(&self.seen)) {
                match &action {
                    Action::Flush(_) => self.flush(),
                    Action::Sleep(_) => self.seen.drive.mode = Mode::Standby,
                    Action::Start(_) => self.seen.drive.mode = Mode::Active,
                    Action::Hold(_) => self.hold(true),
                    Action::Drain(_) => self.hold(false),
                    Action::DeepScrub(..) | Action::Window(_) => {}
                }
                self.done.push(action);
            }
        }
        self.done.clone()
    }

    fn phase(&self) -> Phase {
        self.agent.record("x").drives[0].phase
    }
}

#[test]
fn an_idle_drive_is_flushed_and_sleeps() {
    let mut world = World::new(settings());
    assert_eq!(world.minutes(14), []);
    assert_eq!(world.minutes(10), [Action::Flush(OSD), Action::Sleep(OSD)]);
    assert_eq!(world.phase(), Phase::Asleep);
    assert_eq!(world.minutes(24 * 60), [], "an idle day wakes nothing");
    assert_eq!(world.agent.record("x").drives[0].account.sleeps, 1);
}

#[test]
fn nothing_sleeps_while_the_monitors_are_unreachable() {
    let mut world = World::new(settings());
    let osd = world.seen.osd.take();
    assert_eq!(world.minutes(600), []);
    world.seen.osd.clone_from(&osd);
    assert_eq!(world.minutes(1), [Action::Flush(OSD)]);
    world.seen.osd = None;
    assert_eq!((world.minutes(600), world.phase()), (vec![], Phase::Spinning), "not even what was flushed");
    world.seen.osd = osd;
    world.minutes(30);
    world.seen.osd = None;
    assert_eq!((world.minutes(600), world.phase()), (vec![], Phase::Asleep), "what sleeps sleeps on");
}

#[test]
fn a_recovery_reserved_or_a_group_that_flaps_keeps_it_spinning() {
    let mut world = World::new(settings());
    world.seen.osd.as_mut().unwrap().is_reserved = true;
    assert_eq!(world.minutes(60), []);
    world.seen.osd.as_mut().unwrap().is_reserved = false;
    for state in ["active+undersized+degraded", "peering", "active+remapped+backfill_wait"] {
        world.pg().state = state.to_owned();
        assert_eq!(world.minutes(60), [], "{state}");
    }
    world.pg().state = "active+clean".to_owned();
    assert_eq!(world.minutes(1), [Action::Flush(OSD)]);
}

#[test]
fn io_after_the_flush_takes_it_back() {
    let mut world = World::new(settings());
    world.minutes(15);
    assert_eq!(world.phase(), Phase::Flushing);
    for _ in 0..12 {
        world.touch();
        world.minutes(1);
    }
    assert_eq!(world.phase(), Phase::Spinning);
}

#[test]
fn others_wake_it_and_the_budget_ends_its_sleep_for_the_day() {
    let mut world = World::new(of_starts(3));
    for wake in 0..3 {
        world.minutes(30);
        assert_eq!(world.phase(), Phase::Asleep, "{wake}");
        world.touch();
        assert_eq!(world.minutes(1), [Action::Window(OSD)]);
    }
    let account = world.agent.record("x").drives[0].account;
    assert_eq!((account.other_wakes, account.own_wakes, account.starts), (3, 0, 3));
    assert_eq!(world.minutes(10 * 60), [], "it spins for the rest of the day");
    assert_eq!(world.minutes(60), [Action::Flush(OSD), Action::Sleep(OSD)], "and sleeps on the next");
}

#[test]
fn a_restart_does_not_bring_a_second_budget() {
    let mut world = World::new(of_starts(1));
    world.minutes(30);
    world.touch();
    world.minutes(1);
    let record = world.agent.record("x");
    let drives = [(OSD, world.seen.drive)];
    world.agent = Agent::new(of_starts(1), &drives, Some(&record), world.now);
    assert_eq!(world.minutes(10 * 60), []);
    assert_eq!(world.agent.record("x").drives[0].account, record.drives[0].account);
}

#[test]
fn a_restart_beside_a_sleeping_drive_leaves_it_asleep() {
    let mut world = World::new(settings());
    world.minutes(30);
    world.agent = Agent::new(settings(), &[(OSD, world.seen.drive)], Some(&world.agent.record("x")), world.now);
    assert_eq!((world.minutes(60), world.phase()), (vec![], Phase::Asleep));
}

#[test]
fn a_deep_scrub_that_is_due_wakes_it_once_and_keeps_it_awake() {
    let mut world = World::new(settings());
    world.minutes(30);
    assert_eq!(world.minutes(6 * 24 * 60), []);
    let groups = vec!["2.1".to_owned()];
    let woken = world.minutes(24 * 60);
    assert_eq!(woken[..3], [Action::Start(OSD), Action::Window(OSD), Action::DeepScrub(OSD, groups)]);
    world.pg().deep_scrubbed = "2026-12-01T12:00:00.000000+0000".to_owned();
    world.minutes(60);
    assert_eq!(world.phase(), Phase::Asleep);
    assert_eq!(world.agent.record("x").drives[0].account.own_wakes, 1);
}

#[test]
fn a_wake_by_others_scrubs_what_is_half_due() {
    let mut world = World::new(settings());
    world.minutes(30);
    world.pg().deep_scrubbed = "2026-11-20T00:00:00.000000+0000".to_owned();
    assert_eq!(world.minutes(60), [], "not for it alone");
    world.touch();
    assert_eq!(world.minutes(2), [Action::Window(OSD), Action::DeepScrub(OSD, vec!["2.1".to_owned()])]);
}

#[test]
fn scrubs_that_never_end_keep_it_awake_for_so_long_and_no_longer() {
    let mut world = World::new(settings());
    world.pg().deep_scrubbed = "2026-11-01T00:00:00.000000+0000".to_owned();
    let asked = world.minutes(5 * 60);
    assert!(asked.iter().all(|action| matches!(action, Action::DeepScrub(..))), "{asked:?}");
    assert_eq!(asked.len(), 10, "twice an hour");
    assert!(world.minutes(90).contains(&Action::Sleep(OSD)));
}

#[test]
fn a_drive_that_does_not_stop_counts_as_spinning() {
    let mut world = World::new(settings());
    while !world.minutes(1).contains(&Action::Sleep(OSD)) {}
    world.seen.drive.mode = Mode::Unknown;
    world.minutes(1);
    assert_eq!(world.phase(), Phase::Stopping);
    world.minutes(2);
    assert_eq!(world.phase(), Phase::Spinning);
}

#[test]
fn a_drive_that_is_gone_does_not_sleep() {
    let mut world = World::new(settings());
    world.seen.drive.counters = None;
    assert_eq!(world.minutes(600), []);
}

#[test]
fn without_a_flush_that_the_kernel_counts_it_does_not_sleep() {
    let mut world = World::new(settings());
    world.flushes_fail = true;
    let done = world.minutes(3 * 60);
    assert!(done.len() > 3 && done.iter().all(|action| *action == Action::Flush(OSD)), "tried again: {done:?}");
    world.flushes_fail = false;
    assert!(world.minutes(60).contains(&Action::Sleep(OSD)));
    let mut world = World::new(settings());
    (world.flushes_fail, world.seen.drive.is_write_through) = (true, true);
    assert_eq!(world.minutes(30), [Action::Flush(OSD), Action::Sleep(OSD)], "there is no cache to flush");
}

#[test]
fn a_flush_that_fails_is_tried_again_after_the_idle_time() {
    let mut world = World::new(settings());
    assert_eq!(world.minutes(15), [Action::Flush(OSD)]);
    world.agent.flush_failed(OSD, world.now);
    assert_eq!((world.phase(), world.minutes(14)), (Phase::Spinning, vec![]));
    world.agent.flush_failed(OSD, world.now);
    assert_eq!(world.minutes(10), [Action::Flush(OSD), Action::Sleep(OSD)]);
}

#[test]
fn drives_that_come_and_go_leave_the_others_as_they_are() {
    let mut world = World::new(settings());
    world.minutes(30);
    let other = DriveSeen { mode: Mode::Active, ..world.seen.drive };
    world.agent.renew(&[(OsdId(7), other), (OSD, world.seen.drive)], world.now);
    let phases: Vec<_> = world.agent.record("x").drives.iter().map(|drive| (drive.osd, drive.phase)).collect();
    assert_eq!(phases, [(OsdId(7), Phase::Spinning), (OSD, Phase::Asleep)]);
    world.agent.renew(&[(OSD, world.seen.drive)], world.now);
    assert_eq!((world.minutes(60), world.phase()), (vec![], Phase::Asleep));
    world.agent.renew(&[], world.now);
    assert_eq!(world.agent.tick(world.now, &[]), []);
}

#[test]
fn looks_that_take_long_do_not_keep_it_from_sleeping() {
    let mut world = World::new(Settings { settle: Duration::from_secs(2), ..settings() });
    assert_eq!(world.minutes(15), [Action::Flush(OSD)]);
    assert_eq!(world.minutes(3), [Action::Sleep(OSD)], "a look a minute, and a settled drive after 2 s");
}

/// A world in hold mode, whose drive sleeps.
fn holding(settings: Settings) -> World {
    let mut world = World::new(Settings { hold_max: Some(1000), ..settings });
    world.seen.osd.as_mut().unwrap().held = Some(Held { cost: 0, is_on: false });
    assert_eq!(world.minutes(30), [Action::Flush(OSD), Action::Hold(OSD), Action::Sleep(OSD)]);
    world
}

#[test]
fn writes_are_held_back_until_they_are_as_many_as_are_allowed() {
    let mut world = holding(settings());
    for _ in 0..9 {
        world.write(100);
        assert_eq!(world.minutes(60), [], "they do not wake it");
    }
    assert_eq!((world.phase(), world.agent.record("x").drives[0].held_cost), (Phase::Asleep, 900));
    world.write(100);
    assert_eq!(world.minutes(2), [Action::Start(OSD), Action::Window(OSD), Action::Drain(OSD)]);
    assert_eq!(world.minutes(1), [Action::Flush(OSD)], "what it got is flushed, and the OSD's memory is free");
    assert_eq!(world.minutes(60), [Action::Flush(OSD), Action::Hold(OSD), Action::Sleep(OSD)]);
    let drive = world.agent.record("x").drives[0];
    assert_eq!((drive.account.own_wakes, drive.account.other_wakes, drive.held_cost), (1, 0, 0));
}

#[test]
fn one_wake_for_a_deep_scrub_brings_what_is_held_back_to_the_drive_first() {
    let mut world = holding(settings());
    world.write(100);
    world.pg().deep_scrubbed = "2026-11-01T00:00:00.000000+0000".to_owned();
    let scrub = Action::DeepScrub(OSD, vec!["2.1".to_owned()]);
    assert_eq!(world.minutes(2), [Action::Start(OSD), Action::Window(OSD), Action::Drain(OSD)]);
    assert_eq!(world.minutes(1), [scrub, Action::Flush(OSD)]);
}

#[test]
fn a_drive_that_others_wake_gets_what_is_held_back() {
    let mut world = holding(settings());
    world.write(100);
    world.touch();
    assert_eq!(world.minutes(1), [Action::Window(OSD), Action::Drain(OSD)]);
    world.pg().state = "active+recovering".to_owned();
    world.hold(true);
    assert_eq!(world.minutes(1), [Action::Drain(OSD)], "also while the cluster is not clean");
}

#[test]
fn an_osd_that_was_started_anew_is_told_again() {
    let mut world = holding(settings());
    world.hold(false);
    assert_eq!((world.minutes(1), world.phase()), (vec![Action::Hold(OSD)], Phase::Asleep));
}

#[test]
fn what_is_not_drained_keeps_it_from_sleeping() {
    let mut world = World::new(Settings { hold_max: Some(1000), ..settings() });
    world.seen.osd.as_mut().unwrap().held = Some(Held { cost: 5, is_on: false });
    assert_eq!(world.minutes(60), []);
    world.seen.osd.as_mut().unwrap().held = Some(Held { cost: 0, is_on: false });
    assert_eq!(world.minutes(1), [Action::Flush(OSD)]);
}

#[test]
fn a_full_hold_wakes_it_also_while_the_cluster_is_not_clean() {
    let mut world = holding(settings());
    world.pg().state = "active+undersized+degraded".to_owned();
    world.write(1000);
    assert_eq!(world.minutes(1), [Action::Start(OSD)]);
}
