//! The rack skips idle classes. A rack that looks at every class with every event shows that this changes nothing.

#![allow(clippy::unwrap_used)]

mod racks;

use engine::check::TraceCheck;
use engine::{Action, Controller, DriveDeadlines, Event, IdleTimeout, PinnedTo, Rack, Waking};
use model::{BlobId, DriveId, OpId, RackSpec, Rng, Time};
use sim::{Experiment, Faults, Setting, World};
use std::time::Duration;

/// A rack that looks at every class with every event.
struct Restless(Rack);

impl Controller for Restless {
    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        self.0.unblock_all();
        self.0.apply(now, event, actions);
    }

    fn next_deadline(&self) -> Time {
        self.0.next_deadline()
    }

    fn spec(&self) -> &RackSpec {
        self.0.spec()
    }

    fn drive_deadlines(&self) -> DriveDeadlines {
        self.0.drive_deadlines()
    }

    fn picked_at(&self, op: OpId) -> Option<Time> {
        self.0.picked_at(op)
    }

    fn queue_fill_permille(&self, drive: DriveId) -> u32 {
        Controller::queue_fill_permille(&self.0, drive)
    }

    fn waking(&self) -> Waking {
        Controller::waking(&self.0)
    }

    fn uninitialised_groups(&self) -> usize {
        Controller::uninitialised_groups(&self.0)
    }
}

/// Hours of reads and writes in which drives stop answering, die, come back and fail permanently.
fn run<M: Controller>(name: &str, seed: u64, controller: impl FnOnce(Rack) -> M) -> (u64, u64) {
    let spec = racks::shipped(name);
    let layout = engine::layout::synthesise(&spec).unwrap();
    let mut policy = Experiment::pelican(spec.clone()).policy;
    policy.scheduler.overtake_limit = 20_000_000_000;
    policy.scheduler.join_in_service = seed % 2 == 1;
    policy.idle_timeout = IdleTimeout::After(Duration::from_secs(30));
    let drives = spec.drives.len() as u64;
    let judge = Some(TraceCheck::new(&spec, &layout, &policy));
    let rack = controller(Rack::new(spec, layout, policy, seed));
    let first_boot = seed.is_multiple_of(2);
    let mut world = World::with(rack, seed, Setting { judge, first_boot, ..Setting::default() });
    world.set_faults(Faults {
        command_permille: 20,
        transfer_permille: 5,
        twice_permille: 50,
        mute_permille: 10,
        hang_permille: 10,
    });
    let mut rng = Rng::new(seed);
    for _ in 0..800 {
        let blobs: Vec<BlobId> = world.blobs.iter().map(|(blob, _)| blob).collect();
        match rng.below(10) {
            0..=2 => {
                world.write(rng.between(1_000_000, 2_000_000_000), PinnedTo::Anywhere);
            }
            3..=6 if !blobs.is_empty() => {
                world.read(blobs[rng.below(blobs.len() as u64) as usize], rng.between(1, 1_000_000_000));
            }
            7 if rng.below(10) == 0 => world.kill(DriveId(rng.below(drives) as u32)),
            8 if rng.below(20) == 0 => world.fail(DriveId(rng.below(drives) as u32)),
            8 => world.revive(DriveId(rng.below(drives) as u32)),
            _ => world.run_for(Duration::from_millis(rng.between(1, 40_000))),
        }
    }
    world.close();
    world.run_for(Duration::from_hours(1));
    assert_eq!(world.open_ops(), 0);
    (world.trace_hash(), world.counted().events)
}

#[test]
fn to_look_at_an_idle_class_would_change_nothing() {
    // To look at all classes of a whole rack at every event takes a minute.
    for (name, seeds) in [("pelican", 1), ("pelican-mini", 8), ("nas8", 8)] {
        for seed in 0..seeds {
            let (seldom, events) = run(name, seed, |rack| rack);
            assert!(events > 1_000, "{events} events are too few");
            assert_eq!(seldom, run(name, seed, Restless).0, "{name}, seed {seed}");
        }
    }
}
