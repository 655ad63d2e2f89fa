//! Wakes groups of drives in memory, in virtual time, and watches their platters.

#![allow(clippy::unwrap_used)]
use super::*;
use async_trait::async_trait;
use disk::{DriveEvent, MemoryCall, MemoryDrive};
use engine::layout::synthesise;
use parking_lot::Mutex;
use std::collections::BTreeSet;

const RACK: &str = r#"
name = "cupboard"
group_drives = 2
pack = "1 MB"
[code]
k = 1
r = 1
fragment = "64 KiB"
[resources.power]
active_drives = 2
hard = true
[resources.starts]
starting_drives = 1
hard = true
[failure_domains.drive]
same = ["drive"]
loses_media = true
[drive]
capacity = "200 MB"
bytes_per_s = "200 MB/s"
seek = "8.5 ms"
spin_up = { min = "12 s", max = "18 s", draws = 4 }
mount = { min = "500 ms", max = "1.5 s", draws = 4 }
mount_busy = { min = "1 s", max = "3 s", draws = 4 }
unmount = { min = "100 ms", max = "500 ms", draws = 2 }
spin_down = { min = "500 ms", max = "1 s", draws = 2 }
watts = { standby = 0.8, spin_up = 24, active = 6.5 }
rated_starts = 50000
life_years = 5
"#;
const SPIN_UP: Duration = Duration::from_secs(15);

/// The state of the platters of each drive, and the most of them at once.
#[derive(Default)]
struct Platters {
    starting: BTreeSet<DriveId>,
    turning: BTreeSet<DriveId>,
    most: (usize, usize),
    calls: Vec<(DriveId, MemoryCall)>,
}

impl Platters {
    fn see(&mut self, drive: DriveId, call: &MemoryCall) {
        match call {
            MemoryCall::SpinUp => drop(self.starting.insert(drive)),
            MemoryCall::Mount => {
                self.starting.remove(&drive);
                self.turning.insert(drive);
            }
            MemoryCall::Stop => {
                self.starting.remove(&drive);
                self.turning.remove(&drive);
            }
            _ => {}
        }
        let spin = self.starting.union(&self.turning).count();
        self.most = (self.most.0.max(spin), self.most.1.max(self.starting.len()));
        self.calls.push((drive, call.clone()));
    }
}

/// Drives and those of them that are found spinning.
struct Found(Vec<DriveId>);

#[async_trait]
impl Hardware for Found {
    async fn news(&self) -> DriveEvent {
        std::future::pending().await
    }

    async fn spinning(&self) -> Vec<DriveId> {
        self.0.clone()
    }
}

struct Bench {
    rack: OfflineRack,
    order: Vec<Vec<DriveId>>,
    platters: Arc<Mutex<Platters>>,
}

/// The description of five drives; two may spin and one may start: two groups of two, and a spare. Drive `always_on`
/// has no power control.
pub(crate) fn described(always_on: Option<u32>) -> String {
    let drive = |number| {
        let power = if always_on == Some(number) { "power = \"none\"\n" } else { "" };
        format!("[[drives]]\nslot = [{number}, 0, 0]\n{power}domains = {{ power = 0, starts = 0 }}\n")
    };
    RACK.to_owned() + &(0..5).map(drive).collect::<String>()
}

/// The rack. The drives `found` spin at first, and one drive does not receive a command.
fn bench(found: &[u32], deaf: Option<(u32, MemoryCall)>) -> Bench {
    bench_with(found, deaf, None)
}

/// The same, without power control of drive `always_on`.
fn bench_with(found: &[u32], deaf: Option<(u32, MemoryCall)>, always_on: Option<u32>) -> Bench {
    let spec = model::text::parse(&described(always_on), "rack.toml").unwrap();
    let (platters, deaf) = (Arc::new(Mutex::new(Platters::default())), deaf.map(Arc::new));
    platters.lock().turning = found.iter().map(|id| DriveId(*id)).collect();
    let medium = |id: DriveId| {
        let (medium, platters, deaf) = (MemoryDrive::new(1 << 20), Arc::clone(&platters), deaf.clone());
        medium.hang(move |call| {
            if deaf.as_deref() == Some(&(id.0, call.clone())) {
                return Some(2 * SWITCH_MAX);
            }
            platters.lock().see(id, call);
            (*call == MemoryCall::SpinUp).then_some(SPIN_UP)
        });
        Arc::new(medium) as Arc<dyn Drive>
    };
    let drives = spec.drives.iter().map(|drive| medium(drive.id)).collect();
    let hardware = Found(found.iter().map(|id| DriveId(*id)).collect());
    let order = OfflineRack::order(&synthesise(&spec).unwrap());
    Bench { rack: OfflineRack::over(&spec, Some(Arc::new(hardware)), drives), order, platters }
}

#[tokio::test(start_paused = true)]
async fn one_group_is_awake_at_a_time_within_the_budgets() {
    let Bench { mut rack, order, platters } = bench(&[], None);
    assert_eq!(order.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    for group in &order {
        let awake = rack.wake(group).await;
        assert!(awake.iter().all(|(_, answer)| answer.is_ok()) && awake.len() == group.len());
        assert_eq!(platters.lock().turning, group.iter().copied().collect(), "its drives turn, and no other");
        rack.rest().await;
        assert!(platters.lock().turning.is_empty(), "all are stopped before the next");
    }
    assert_eq!(platters.lock().most, (2, 1), "never more spin, or start, than may");
    assert_eq!(rack.starts().collect::<Vec<_>>(), (0..5).map(|id| (DriveId(id), 1)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_nobody_controls_is_used_without_a_permit_and_leaves_the_others_less() {
    let Bench { mut rack, order, platters } = bench_with(&[], None, Some(1));
    for group in &order {
        let awake = rack.wake(group).await;
        let there: Vec<DriveId> = awake.iter().filter(|(_, answer)| answer.is_ok()).map(|(id, _)| *id).collect();
        assert!(there.len() == group.len() || there.len() == 1, "one beside it at a time: {there:?}");
        let others = platters.lock().turning.iter().filter(|id| id.0 != 1).count();
        assert!(others <= 1, "of two that may spin one always does");
        rack.rest().await;
    }
    assert!(order.iter().any(|group| group.contains(&DriveId(1)) && group.len() == 2), "{order:?}");
    assert!(rack.starts().all(|(id, starts)| id.0 != 1 && starts == 1));
}

#[tokio::test(start_paused = true)]
async fn what_spins_is_stopped_before_anything_starts() {
    let Bench { mut rack, order, platters } = bench(&[2, 4], None);
    rack.wake(&order[0]).await;
    let first_start = platters.lock().calls.iter().position(|(_, call)| *call == MemoryCall::SpinUp).unwrap();
    let stopped: BTreeSet<u32> = platters.lock().calls[..first_start]
        .iter()
        .filter(|(_, call)| *call == MemoryCall::Stop)
        .map(|(id, _)| id.0)
        .collect();
    assert_eq!(stopped, BTreeSet::from([2, 4]));
    assert_eq!(platters.lock().most.0, 2);
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_will_not_stop_counts_and_can_still_be_read() {
    let Bench { mut rack, order, platters } = bench(&[4], Some((4, MemoryCall::Stop)));
    for group in &order {
        let awake = rack.wake(group).await;
        let there: Vec<DriveId> = awake.iter().filter(|(_, answer)| answer.is_ok()).map(|(id, _)| *id).collect();
        if group.contains(&DriveId(4)) {
            assert!(there.contains(&DriveId(4)), "it spins already");
        } else {
            assert_eq!(there.len(), 1, "the power is there for one beside it");
        }
        let others = awake.iter().filter_map(|(_, answer)| Some(answer.as_ref().err()?.to_string()));
        let others: Vec<String> = others.collect();
        assert!(others.iter().all(|said| said.contains("take its power (1)")), "{others:?}");
        rack.rest().await;
    }
    assert!(platters.lock().most.0 <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_does_not_start_keeps_nobody_from_the_others() {
    let Bench { mut rack, order, platters } = bench(&[], Some((0, MemoryCall::SpinUp)));
    let group = order.iter().find(|group| group.contains(&DriveId(0))).unwrap();
    let awake = rack.wake(group).await;
    let good: Vec<DriveId> = awake.iter().filter(|(_, answer)| answer.is_ok()).map(|(id, _)| *id).collect();
    assert_eq!(good.len(), group.len() - 1);
    rack.rest().await;
    assert!(platters.lock().turning.is_empty());
}
