//! The power of a pool with sleeping disks: their power states and total draw.
//!
//! A disk starts by a permit of the engine's power ledger. The pool is one domain in which one disk at a time may
//! start, as in a box whose power supply is designed for running disks.
//!
//! Invariant: a disk is in one state at a time, so its times add up to that of the run.

use super::spindle::{Disk, DiskPower};
use core::time::Duration;
use engine::ledger::Ledger;
use engine::shift::PoolDrive;
use model::{DriveId, RackSpec, Time};
use std::collections::VecDeque;

/// The power states of a pool's disks.
pub(super) struct PoolPower {
    spec: DiskPower,
    ledger: Ledger,
    /// Disks that are to start, but have no permit yet.
    waiting: VecDeque<DriveId>,
    /// The time since which each disk is stopped; `None` while it runs or starts.
    asleep_since: Vec<Option<Time>>,
    asleep: Vec<Duration>,
    /// The number of starts of each disk.
    starts: Vec<u32>,
}

impl PoolPower {
    /// This number of disks, all at speed.
    pub fn new(spec: DiskPower, disks: u32) -> Self {
        let mut ledger = Ledger::new(&described(disks));
        for drive in (0..disks).map(DriveId) {
            // One disk after the other, as in a real start.
            let granted = ledger.request(&[drive]);
            assert!(granted == [drive], "a disk that starts alone has a permit");
            ledger.spun_up(drive);
        }
        let disks = disks as usize;
        Self {
            spec,
            ledger,
            waiting: VecDeque::new(),
            asleep_since: vec![None; disks],
            asleep: vec![Duration::ZERO; disks],
            starts: vec![0; disks],
        }
    }

    /// Stops `drive`.
    pub fn sleep(&mut self, now: Time, drive: PoolDrive) {
        let since = self.asleep_since[drive.0 as usize].replace(now);
        assert!(since.is_none(), "{drive:?} turned");
        self.ledger.released(DriveId(drive.0));
    }

    /// Requests a start of `drive`; returns the disk that starts now, with the time when it will be at speed.
    pub fn wake(&mut self, now: Time, drive: PoolDrive) -> Option<(Time, PoolDrive)> {
        self.waiting.push_back(DriveId(drive.0));
        self.grant(now)
    }

    /// `drive` is at speed; returns the disk that starts now, with the time when it will be at speed.
    pub fn awoke(&mut self, now: Time, drive: PoolDrive) -> Option<(Time, PoolDrive)> {
        self.ledger.spun_up(DriveId(drive.0));
        self.grant(now)
    }

    fn grant(&mut self, now: Time) -> Option<(Time, PoolDrive)> {
        let next = *self.waiting.front()?;
        if self.ledger.request(&[next]).is_empty() {
            return None;
        }
        self.waiting.pop_front();
        let at = next.0 as usize;
        let since = self.asleep_since[at].take()?;
        self.asleep[at] += now.since(since);
        self.starts[at] += 1;
        Some((now + self.spec.spin_up, PoolDrive(next.0)))
    }

    /// The number of starts of all disks.
    pub fn starts(&self) -> u32 {
        self.starts.iter().sum()
    }

    /// The energy of disk `at` in a run that ended at `now`, in millijoules.
    pub fn energy_mj(&self, now: Time, at: usize, disk: &Disk) -> u64 {
        let last = self.asleep_since[at].map_or(Duration::ZERO, |since| now.since(since));
        let asleep = self.asleep[at] + last;
        let starting = self.spec.spin_up * self.starts[at];
        let busy = disk.busy().min(now.since(Time::ZERO));
        let idle = now.since(Time::ZERO).saturating_sub(busy + asleep + starting);
        let DiskPower { active_mw, idle_mw, standby_mw, spin_up_mw, .. } = self.spec;
        let states = [(busy, active_mw), (idle, idle_mw), (asleep, standby_mw), (starting, spin_up_mw)];
        states.iter().map(|(time, mw)| (time.as_nanos() * u128::from(*mw) / 1_000_000_000) as u64).sum()
    }
}

/// A box of this number of disks; one at a time may start. The ledger reads only the resource of this description.
fn described(disks: u32) -> RackSpec {
    let text = format!(
        "name = \"pool\"\ngroup_drives = 1\npack = \"200 MB\"\n[code]\nk = 1\nr = 0\nfragment = \"128 KiB\"\n\
         [geometry]\nwidth = {disks}\ndepth = 1\nheight = 1\n\
         [resources.power]\nsame = []\nstarting_drives = 1\nhard = true\n\
         [failure_domains.drive]\nsame = [\"drive\"]\nloses_media = true\n\
         [drive]\ncapacity = \"1 TB\"\nbytes_per_s = \"150 MB/s\"\nseek = \"8.5 ms\"\n\
         spin_up = {{ min = \"15 s\", max = \"15 s\", draws = 1 }}\n\
         mount = {{ min = \"1 s\", max = \"1 s\", draws = 1 }}\n\
         mount_busy = {{ min = \"1 s\", max = \"1 s\", draws = 1 }}\n\
         unmount = {{ min = \"1 s\", max = \"1 s\", draws = 1 }}\n\
         spin_down = {{ min = \"1 s\", max = \"1 s\", draws = 1 }}\n\
         watts = {{ standby = 1, spin_up = 24, active = 8 }}\nrated_starts = 50000\nlife_years = 5\n"
    );
    match model::text::parse(&text, "pool") {
        Ok(spec) => spec,
        Err(error) => unreachable!("the description of a pool is one: {error}"),
    }
}
