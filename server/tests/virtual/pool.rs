//! Sleeping drives of the pool: their starts count together with those of groups, come before them, and are remembered.

use crate::site::{HOUR, KIB, Larder, SECOND, Site};
use engine::trace::{Record, TraceMessage};
use engine::{Action, Event, PoolDriveAction, PoolDriveEvent, PoolDrivePhase, PoolDriveView};
use model::PoolDriveId;
use model::physics::PowerState;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

const P0: PoolDriveId = PoolDriveId(0);
const P1: PoolDriveId = PoolDriveId(1);

/// The box of eight drives with a pool of two beside them. Two drives of these ten may start at a time.
fn pooled() -> Site {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "nas8").unwrap();
    let starting = "[resources.start]\nstarting_drives = 2\nhard = true\n\n[failure_domains.drive]";
    let one =
        |slot| format!("[[pool]]\nslot = [{slot}, 0, 0]\ndomains = {{ power = 0, controller = 0, start = 0 }}\n\n");
    let text = text.replace("active_drives = 4", "active_drives = 6").replace("[failure_domains.drive]", starting);
    let text = text.replace("domains = { power = 0,", "domains = { start = 0, power = 0,");
    let text = text.replace("[drive]\n", &format!("{}{}[drive]\n", one(8), one(9)));
    let mut site = Site::nas8();
    site.spec = model::text::parse(&text, "rack.toml").unwrap();
    site
}

impl Larder {
    async fn pool_drive(&self, drive: PoolDriveId) -> PoolDriveView {
        self.world.ask(move |rack, now| rack.pool_drive(drive, now)).await.unwrap().unwrap()
    }

    /// Puts `drive` to sleep, and waits until it sleeps.
    async fn pool_sleeps(&self, drive: PoolDriveId) {
        self.world.report(Event::PoolDrive { drive, event: PoolDriveEvent::Idle });
        let sleeps = async || self.pool_drive(drive).await.phase == PoolDrivePhase::Standby;
        self.until("a drive of the pool sleeps", HOUR, sleeps).await;
        assert_eq!(self.rack.pool_state(drive).0, PowerState::Standby);
    }

    /// Requests `drive`; the receiver gets true if it spins in the end.
    fn want(&self, drive: PoolDriveId) -> oneshot::Receiver<bool> {
        let (answer, answered) = oneshot::channel();
        self.world.want_pool_drive(drive, move |awake| {
            let _ = answer.send(awake);
        });
        answered
    }

    async fn watts_mw(&self) -> u64 {
        self.world.ask(|rack, _| rack.ledger().watts_mw()).await.unwrap()
    }
}

#[test]
fn an_idle_drive_sleeps_and_takes_the_time_of_a_start_when_it_is_wanted() {
    pooled().run(async |larder| {
        let spinning_mw = larder.watts_mw().await;
        assert_eq!(larder.rack.draw_mw(), spinning_mw, "no group was woken yet");
        assert!(larder.want(P0).await.unwrap(), "it spins");
        larder.pool_sleeps(P0).await;
        assert_eq!(larder.watts_mw().await, spinning_mw - 6_500 + 800);
        assert_eq!(larder.rack.draw_mw(), spinning_mw - 6_500 + 800);
        tokio::time::sleep(HOUR).await;
        let before = larder.elapsed();
        assert!(larder.want(P0).await.unwrap());
        let took = larder.elapsed().saturating_sub(before);
        assert!(took >= Duration::from_secs(12) && took <= Duration::from_secs(18), "{took:?}");
        assert_eq!(larder.rack.pool_state(P0), (PowerState::Active, 1));
        assert_eq!((larder.pool_drive(P0).await.starts, larder.pool_drive(P1).await.starts), (1, 0));
    });
}

#[test]
fn a_start_goes_before_those_of_a_group_that_wakes_and_no_fuse_trips() {
    let mut site = pooled();
    let trace: Arc<Mutex<Vec<Record>>> = Arc::default();
    let kept = Arc::clone(&trace);
    site.trace = Some(Arc::new(move |record| kept.lock().push(record.clone())));
    site.run(async |larder| {
        let keys = larder.put_many("cold", 12, 200 * KIB).await;
        larder.settle().await;
        larder.until("asleep", 3 * HOUR, async || larder.is_asleep().await).await;
        for drive in [P0, P1] {
            larder.pool_sleeps(drive).await;
        }
        trace.lock().clear();
        let group = larder.get_retrying(&keys[0]);
        let pool = async {
            // The first two drives of the group start by now.
            tokio::time::sleep(SECOND).await;
            tokio::join!(async { larder.want(P0).await.unwrap() }, async { larder.want(P1).await.unwrap() })
        };
        let (read, awake) = tokio::join!(group, pool);
        read.unwrap();
        assert_eq!(awake, (true, true));
        assert_eq!(larder.context.counters.fuse_trips.load(Ordering::Relaxed), 0);
        // The starts of the group that were under way, those of the pool, and then the others of the group.
        let starts = |record: &Record| match &record.message {
            TraceMessage::Action(Action::SpinUp { .. }) => Some("group"),
            TraceMessage::Action(Action::PoolDrive { action: PoolDriveAction::Start { .. }, .. }) => Some("pool"),
            _ => None,
        };
        let order: Vec<&str> = trace.lock().iter().filter_map(starts).collect();
        assert_eq!(order[..6], ["group", "group", "pool", "pool", "group", "group"], "{order:?}");
    });
}

#[test]
fn a_drive_whose_starts_of_the_day_are_used_up_stays_awake_after_a_restart_too() {
    let mut site = pooled();
    site.policy.starts_per_day = 2;
    site.run(async |larder| {
        for _ in 0..2 {
            larder.pool_sleeps(P0).await;
            assert!(larder.want(P0).await.unwrap());
        }
    });
    site.run(async |larder| {
        assert_eq!(larder.pool_drive(P0).await.starts_today, 2);
        larder.world.report(Event::PoolDrive { drive: P0, event: PoolDriveEvent::Idle });
        tokio::time::sleep(HOUR).await;
        assert_eq!(larder.pool_drive(P0).await.phase, PoolDrivePhase::Spinning);
        larder.pool_sleeps(P1).await;
        let sleeps = async || larder.pool_drive(P0).await.phase == PoolDrivePhase::Standby;
        larder.until("the next day", 24 * HOUR, sleeps).await;
    });
}
