//! The agent's loop over a made-up cluster, with time as an argument.

#![allow(clippy::unwrap_used)]

use super::{Scope, Service, begin_holds, commands};
use crate::agent::{Action, Mode, Phase, RECOVERY_GRACE, Settings};
use crate::cluster::OsdId;
use crate::world::fake::{Fake, OSD};
use disk::clock;
use engine::SpinDownPolicy;
use engine::spin_down::NodePolicy;
use model::Time;
use std::sync::atomic::Ordering;
use std::time::Duration;

const EVERY: Duration = Duration::from_mins(1);

struct Loop {
    fake: Fake,
    service: Service,
    now: Time,
}

impl Loop {
    fn new() -> Self {
        Self::of(None)
    }

    fn of(hold_max: Option<u64>) -> Self {
        let fake = Fake::new();
        // No deep scrub in the dumps is due.
        let node = NodePolicy {
            idle_timer: Duration::ZERO,
            down_out_interval: Duration::from_mins(10),
            grace: RECOVERY_GRACE,
            starts_per_day: 10,
            spin_down: SpinDownPolicy { min_gap: Duration::ZERO, keeps_exhausted: true },
        };
        let settings = Settings {
            node,
            deep_scrub_every: Duration::from_hours(24 * 36_500),
            settle: EVERY,
            window_max: Duration::from_hours(6),
            hold_max,
        };
        let scope = Scope {
            ceph: fake.ceph,
            host: "host-0".to_owned(),
            class: "hdd".to_owned(),
            osds: vec![OSD],
            is_emulated: true,
            every: EVERY,
            hold_max,
            folder: fake.path("state"),
        };
        let now = Time::from_secs(clock::since_epoch().as_secs());
        let fsid = fake.ceph.cluster().unwrap().fsid;
        let service = Service::of(scope, vec![fake.drive()], &fsid, settings, (7, now)).unwrap();
        fake.log();
        Self { fake, service, now }
    }

    fn minutes(&mut self, minutes: u32) -> Phase {
        for _ in 0..minutes {
            self.now += EVERY;
            self.service.look(self.now);
        }
        self.service.agent.record("x").drives[0].phase
    }
}

#[test]
fn an_idle_drive_is_flushed_and_sleeps() {
    let mut world = Loop::new();
    assert_eq!(world.minutes(10), Phase::Spinning);
    assert_eq!(world.fake.log(), Vec::<String>::new());
    assert_eq!(world.minutes(8), Phase::Asleep);
    assert_eq!(world.fake.log(), ["ceph tell osd.3 bench 131072 131072"]);
}

#[test]
fn a_flush_that_fails_or_is_not_seen_leaves_it_awake() {
    let mut world = Loop::new();
    world.fake.write("bench-fails", "");
    assert_eq!(world.minutes(60), Phase::Spinning);
    assert_eq!(world.fake.log().len(), 5, "tried again after each idle time");
    world.fake.remove("bench-fails");
    world.fake.write("no-flush", "");
    world.minutes(60);
    assert_eq!(world.service.agent.record("x").drives[0].account.sleeps, 0);
    world.fake.remove("no-flush");
    assert_eq!(world.minutes(60), Phase::Asleep);
}

#[test]
fn monitors_that_are_away_cost_one_question_a_look_and_nothing_new_sleeps() {
    let mut world = Loop::new();
    world.fake.write("monitors-away", "");
    world.fake.count();
    assert_eq!(world.minutes(30), Phase::Spinning);
    assert_eq!(world.fake.count(), 30);
    world.fake.remove("monitors-away");
    assert_eq!(world.minutes(30), Phase::Asleep);
    world.fake.write("monitors-away", "");
    assert_eq!(world.minutes(30), Phase::Asleep, "what sleeps sleeps on");
}

#[test]
fn once_it_is_asked_to_end_it_asks_nothing_of_the_osds() {
    let mut world = Loop::new();
    world.minutes(10);
    world.service.ending.store(true, Ordering::Relaxed);
    world.fake.count();
    assert_eq!((world.minutes(1), world.fake.count()), (Phase::Spinning, 1));
}

#[test]
fn new_pools_are_taken_and_osds_that_are_no_longer_cold_are_left() {
    let mut world = Loop::new();
    world.fake.write("epoch", "8");
    world.minutes(19);
    assert_eq!(world.service.renewed.0, 7, "not too often");
    world.minutes(2);
    assert_eq!(world.service.renewed.0, 8);
    let log = world.fake.log();
    assert!(log.contains(&"ceph osd pool set attic nodeep-scrub 1".to_owned()), "{log:?}");
    assert_eq!(world.service.drives.len(), 1);
    world.fake.change(&["osd", "crush", "set-device-class", "ssd", "osd.3"]);
    world.fake.write("epoch", "9");
    for _ in 0..21 {
        world.now += EVERY;
        world.service.look(world.now);
    }
    assert_eq!(world.service.drives.len(), 0, "the agent ends then");
}

#[test]
fn actions_are_the_documented_commands() {
    let mut scope = Loop::of(Some(1 << 20)).service.scope;
    let mut said = |action: &Action, is_emulated: bool| -> Vec<String> {
        scope.is_emulated = is_emulated;
        commands(action, &scope).iter().map(|command| command.join(" ")).collect()
    };
    let ceph = |text: &str| format!("ceph --connect-timeout 15 {text}");
    let window = Action::Window(OsdId(3));
    assert_eq!(said(&window, false), [ceph("device scrape-daemon-health-metrics osd.3")]);
    assert_eq!(said(&window, true), Vec::<String>::new(), "what only counts touches has no health");
    assert_eq!(said(&Action::Flush(OsdId(3)), true), [ceph("tell osd.3 bench 131072 131072")]);
    let scrub = Action::DeepScrub(OsdId(3), vec!["2.1".to_owned(), "2.f".to_owned()]);
    assert_eq!(said(&scrub, false), [ceph("pg deep-scrub 2.1"), ceph("pg deep-scrub 2.f")]);
    assert_eq!(said(&Action::Sleep(OsdId(3)), false), Vec::<String>::new());
    let options = [
        ("prefer_deferred_size", "8388608"),
        ("deferred_batch_ops", "65535"),
        ("max_deferred_txc", "1000000"),
        ("max_defer_interval", "0"),
        ("throttle_deferred_bytes", "4194304"),
    ];
    let set = options.map(|(name, value)| ceph(&format!("tell osd.3 config set bluestore_{name} {value}")));
    assert_eq!(said(&Action::Hold(OsdId(3)), false), set);
    let unset = options.map(|(name, _)| ceph(&format!("tell osd.3 config unset bluestore_{name}")));
    assert_eq!(said(&Action::Drain(OsdId(3)), false), unset);
}

#[test]
fn writes_are_held_back_while_the_drive_sleeps_and_given_back_at_the_end() {
    let mut world = Loop::of(Some(512 << 20));
    begin_holds(&world.service.scope, &[OSD]).unwrap();
    assert_eq!(world.minutes(18), Phase::Asleep);
    let set: Vec<String> = world.fake.log().into_iter().filter(|line| line.contains("config set")).collect();
    assert_eq!(set.len(), 5, "{set:?}");
    world.fake.write("held", &(600_u64 << 20).to_string());
    assert_eq!(world.minutes(2), Phase::Spinning, "more than is allowed");
    let drained: Vec<String> = world.fake.log();
    assert!(drained.contains(&"ceph tell osd.3 config unset bluestore_max_defer_interval".to_owned()), "{drained:?}");
    assert_eq!(world.minutes(18), Phase::Asleep);
    world.fake.write("held", "750000");
    world.minutes(1);
    world.fake.log();
    world.service.release_holds().unwrap();
    assert_eq!(world.fake.log().iter().filter(|line| line.contains("config unset")).count(), 5);
    assert_eq!(world.service.drives[0].seen().mode, Mode::Active, "its drive was started before");
}

#[test]
fn an_agent_takes_back_what_a_killed_one_has_left() {
    let world = Loop::of(Some(512 << 20));
    begin_holds(&world.service.scope, &[OSD]).unwrap();
    world.service.execute(&Action::Hold(OSD)).unwrap();
    world.fake.log();
    let without = Loop::of(None).service.scope;
    begin_holds(&Scope { ceph: world.fake.ceph, ..without }, &[OSD]).unwrap();
    let log = world.fake.log();
    assert_eq!(log.iter().filter(|line| line.contains("config unset")).count(), 5, "{log:?}");
    assert!(log.contains(&"ceph config-key rm larder/ceph/hold/host-0".to_owned()), "{log:?}");
}

#[test]
fn a_limit_that_the_osd_has_by_itself_is_refused() {
    let world = Loop::of(Some(1 << 20));
    let error = begin_holds(&world.service.scope, &[OSD]).unwrap_err().to_string();
    assert!(error.contains("osd.3 is as large by itself"), "{error}");
}
