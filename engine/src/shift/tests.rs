//! The rotation in a small simulated world: the stage diagrams of the paper, faults by hand, and random runs.

use super::*;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use model::Rng;

const LOG_BYTES: u64 = 1_000;
const PERIOD: Duration = Duration::from_secs(100);

/// A pool that appends at a steady rate, one byte at a time, and takes a fixed time for each transformation.
struct Pool {
    shift: Shift,
    now: Time,
    /// The time that a transformation takes.
    takes: Duration,
    /// The time that a drive takes to start.
    wakes: Duration,
    due: Vec<(Time, ShiftEvent)>,
    open: Option<(LogId, PoolDrive, u64)>,
    admits: bool,
    /// Logs that are not trees.
    logs: BTreeSet<LogId>,
    trees: BTreeSet<LogId>,
    lost: BTreeSet<LogId>,
    asleep: BTreeSet<PoolDrive>,
    /// Moments at which stages contended for a drive.
    contentions: u64,
}

fn policy(overrun: Overrun) -> ShiftPolicy {
    ShiftPolicy { model: Model::Enhanced, log_bytes: LOG_BYTES, overrun, idle_timeout: None }
}

impl Pool {
    fn new(policy: ShiftPolicy, drives: u32, takes: Duration) -> Self {
        let mut pool = Self {
            shift: Shift::new(policy, drives),
            now: Time::ZERO,
            takes,
            wakes: Duration::from_secs(10),
            due: Vec::new(),
            open: None,
            admits: false,
            logs: BTreeSet::new(),
            trees: BTreeSet::new(),
            lost: BTreeSet::new(),
            asleep: BTreeSet::new(),
            contentions: 0,
        };
        pool.notify(ShiftEvent::Booted);
        pool
    }

    fn notify(&mut self, event: ShiftEvent) {
        let mut actions = Vec::new();
        self.shift.apply(self.now, event, &mut actions);
        for action in actions {
            self.execute(action);
        }
        let drives = (0..self.shift.drives.len() as u32).map(PoolDrive);
        self.contentions += drives.filter(|drive| self.shift.stages(*drive).contend()).count() as u64;
    }

    fn execute(&mut self, action: ShiftAction) {
        match action {
            ShiftAction::OpenLog { log, drive } => {
                assert!(!self.asleep.contains(&drive), "a log is opened on a drive that spins");
                assert!(self.logs.insert(log), "a number is used once");
                self.open = Some((log, drive, 0));
            }
            ShiftAction::Transform { log, from, to, attempt } => {
                assert!(self.logs.contains(&log) && self.open.is_none_or(|(open, ..)| open != log));
                assert!(!self.asleep.contains(&from) && !self.asleep.contains(&to));
                let outcome = TransformOutcome::Done;
                self.due.push((self.now + self.takes, ShiftEvent::TransformEnded { log, attempt, outcome }));
            }
            ShiftAction::RemoveLog { log, .. } => {
                assert!(self.logs.remove(&log), "once");
                self.trees.insert(log);
            }
            ShiftAction::LogLost { log, drive } => {
                assert!(self.logs.remove(&log), "once");
                self.lost.insert(log);
                self.open = self.open.filter(|(_, duty, _)| *duty != drive);
            }
            ShiftAction::Admit(admits) => self.admits = admits,
            ShiftAction::Wake(drive) => self.due.push((self.now + self.wakes, ShiftEvent::Awoke(drive))),
            ShiftAction::Sleep(drive) => assert!(self.asleep.insert(drive), "it was awake"),
        }
    }

    /// Appends a byte, if that is allowed.
    fn append(&mut self) {
        let Some((log, _, bytes)) = self.open.as_mut().filter(|_| self.admits) else { return };
        *bytes += 1;
        let event = ShiftEvent::Appended { log: *log, bytes: *bytes };
        self.notify(event);
    }

    /// Lets everything happen that is due until `until`.
    fn run_to(&mut self, until: Time) {
        loop {
            let deadline = self.shift.next_deadline();
            let next = self.due.iter().map(|(at, _)| *at).min().unwrap_or(Time::MAX).min(deadline);
            if next > until {
                break;
            }
            assert!(next >= self.now, "time goes on");
            self.now = next;
            match self.due.iter().position(|(at, _)| *at == next) {
                Some(first) => {
                    let (_, event) = self.due.remove(first);
                    if let ShiftEvent::Awoke(drive) = event {
                        self.asleep.remove(&drive);
                    }
                    self.notify(event);
                }
                None => self.notify(ShiftEvent::DeadlineReached),
            }
        }
        self.now = until;
    }

    /// Clients fill one log in each of `periods` periods. Returns the stages of each drive in the middle of each
    /// period.
    fn diagram(&mut self, periods: u64) -> Vec<String> {
        let mut rows = vec![String::new(); self.shift.drives.len()];
        let step = PERIOD / LOG_BYTES as u32;
        for byte in 0..periods * LOG_BYTES {
            self.run_to(Time::ZERO + step * (byte as u32 + 1));
            self.append();
            if byte % LOG_BYTES == LOG_BYTES * 2 / 5 {
                for (drive, row) in rows.iter_mut().enumerate() {
                    row.push(letter(self.shift.stages(PoolDrive(drive as u32))));
                }
            }
        }
        rows
    }
}

fn letter(stages: Stages) -> char {
    match stages {
        stages if stages.contend() => '!',
        Stages { logs: true, .. } => 'L',
        Stages { reads: 1, .. } => 'R',
        Stages { writes: 1, .. } => 'W',
        _ => '-',
    }
}

#[test]
fn four_drives_pass_through_the_four_stages_in_turn() {
    // Figures 6 and 7: the alternation is ideal, or the logging takes longer.
    for (takes, expected) in [(PERIOD * 97 / 100, Alternation::Ideal), (PERIOD / 2, Alternation::Acceptable)] {
        let mut pool = Pool::new(policy(Overrun::Stretch(4)), 4, takes);
        let rows = pool.diagram(9);
        assert_eq!(rows, ["LRW-LRW-L", "-LRW-LRW-", "--LRW-LRW", "-W-LRW-LR"], "{expected:?}");
        assert_eq!((pool.shift.alternation(), pool.contentions), (Some(expected), 0));
        let stats = pool.shift.stats();
        assert_eq!(stats.alternations.iter().sum::<u64>(), 8, "each log but the first is judged");
        assert_eq!(stats.alternations[expected as usize], 8);
        assert_eq!((stats.transformed, stats.lost), (8, 0));
    }
}

#[test]
fn the_basic_model_transforms_a_log_where_it_lies() {
    let mut pool = Pool::new(ShiftPolicy { model: Model::Basic, ..policy(Overrun::Stretch(4)) }, 4, PERIOD / 2);
    assert_eq!(pool.diagram(6), ["L!--L!", "-L!--L", "--L!--", "---L!-"]);
}

#[test]
fn logging_that_outruns_transformation_contends_or_stretches() {
    // Figure 8: duty moves on, and stages overlap.
    let mut overlap = Pool::new(policy(Overrun::Overlap), 4, PERIOD * 5 / 2);
    overlap.diagram(20);
    assert_eq!(overlap.shift.alternation(), Some(Alternation::Bad));
    assert!(overlap.contentions > 1_000, "{}", overlap.contentions);
    // Ours: no drive does two things at once, logs get longer, and in the end clients are held back.
    let mut stretch = Pool::new(policy(Overrun::Stretch(2)), 4, PERIOD * 5 / 2);
    let periods = 20;
    stretch.diagram(periods);
    assert_eq!((stretch.contentions, stretch.shift.alternation()), (0, Some(Alternation::Bad)));
    let logs = stretch.logs.len() + stretch.trees.len();
    assert!(logs as u64 <= periods * 2 / 5 + 2, "{logs}: one for each transformation, one that waits, one open");
    let settled = stretch.now + PERIOD * 50;
    stretch.notify(ShiftEvent::Flush);
    stretch.run_to(settled);
    assert_eq!(stretch.logs.len(), 1, "all but the open log are trees in the end");
    assert!(stretch.admits && stretch.lost.is_empty());
}

#[test]
fn clients_are_held_back_at_the_limit_and_no_sooner() {
    let mut pool = Pool::new(policy(Overrun::Stretch(3)), 2, PERIOD * 1_000);
    for _ in 0..LOG_BYTES {
        pool.append();
    }
    assert_eq!(pool.open, Some((LogId(2), PoolDrive(1), 0)));
    for _ in 0..3 * LOG_BYTES {
        assert!(pool.admits);
        pool.append();
    }
    assert!(!pool.admits, "the log is three times its size, and the other drive still transforms");
    pool.run_to(Time::ZERO + PERIOD * 1_000);
    assert!(pool.admits);
    assert_eq!(pool.open, Some((LogId(3), PoolDrive(0), 0)));
}

#[test]
fn a_drive_whose_power_nobody_controls_never_sleeps() {
    let policy = ShiftPolicy { idle_timeout: Some(PERIOD / 4), ..policy(Overrun::Stretch(4)) };
    let (mut shift, mut actions) = (Shift::new(policy, 4), Vec::new());
    shift.apply(Time::ZERO, ShiftEvent::Uncontrolled(PoolDrive(2)), &mut actions);
    shift.apply(Time::ZERO, ShiftEvent::Booted, &mut actions);
    shift.apply(shift.next_deadline(), ShiftEvent::DeadlineReached, &mut actions);
    let slept: Vec<_> = actions.iter().filter(|action| matches!(action, ShiftAction::Sleep(_))).copied().collect();
    assert_eq!(slept, [1, 3].map(|drive| ShiftAction::Sleep(PoolDrive(drive))), "the first one is on duty");
    assert_eq!(shift.next_deadline(), Time::MAX);
}

#[test]
fn a_drive_that_is_used_behind_the_rotation_stays_awake_until_it_has_rested_for_its_time() {
    let timeout = PERIOD / 4;
    let policy = ShiftPolicy { idle_timeout: Some(timeout), ..policy(Overrun::Stretch(4)) };
    let (mut shift, mut actions) = (Shift::new(policy, 3), Vec::new());
    shift.apply(Time::ZERO, ShiftEvent::Booted, &mut actions);
    let used_at = Time::ZERO + timeout;
    shift.apply(used_at, ShiftEvent::Used(PoolDrive(2)), &mut actions);
    assert!(shift.is_asleep(PoolDrive(1)) && !shift.is_asleep(PoolDrive(2)), "only one of them was used");
    assert_eq!(shift.next_deadline(), used_at + timeout);
    shift.apply(used_at + timeout, ShiftEvent::DeadlineReached, &mut actions);
    assert!(shift.is_asleep(PoolDrive(2)));
    actions.clear();
    shift.apply(used_at + timeout, ShiftEvent::Used(PoolDrive(2)), &mut actions);
    assert_eq!((actions, shift.is_asleep(PoolDrive(2))), (Vec::new(), true), "nothing is woken by that");
}

#[test]
fn idle_drives_sleep_and_are_awake_when_their_turn_comes() {
    let idle_timeout = Some(PERIOD / 4);
    let mut pool = Pool::new(ShiftPolicy { idle_timeout, ..policy(Overrun::Stretch(4)) }, 6, PERIOD / 2);
    let rows = pool.diagram(13);
    assert_eq!(rows[0], "LRW---LRW---L", "woken ahead, so that no log waits for a drive: {rows:?}");
    assert!(pool.asleep.len() >= 2, "of six drives two or more sleep: {:?}", pool.asleep);
    pool.run_to(pool.now + PERIOD * 10);
    assert_eq!(pool.asleep.len(), 5, "all but the one on duty");
}

#[test]
fn a_lost_drive_leaves_the_cycle_and_its_logs_are_named() {
    let mut pool = Pool::new(policy(Overrun::Stretch(4)), 4, PERIOD / 2);
    pool.diagram(2);
    // The second log was just left; its tree is on the way from drive 1 to drive 0.
    assert_eq!(pool.open, Some((LogId(3), PoolDrive(2), 0)));
    pool.notify(ShiftEvent::Lost(PoolDrive(0)));
    assert!(pool.lost.is_empty(), "the tree goes to another drive");
    assert_eq!(pool.shift.stages(PoolDrive(3)).writes, 1);
    pool.notify(ShiftEvent::Lost(PoolDrive(1)));
    assert_eq!(pool.lost, BTreeSet::from([LogId(2)]));
    pool.append();
    pool.notify(ShiftEvent::Lost(PoolDrive(2)));
    assert_eq!(pool.lost, BTreeSet::from([LogId(2), LogId(3)]));
    assert_eq!(pool.open, Some((LogId(4), PoolDrive(3), 0)), "the last drive does everything");
    pool.notify(ShiftEvent::Lost(PoolDrive(3)));
    assert!(!pool.admits && pool.open.is_none());
    pool.notify(ShiftEvent::Back(PoolDrive(2)));
    assert!(pool.admits);
    assert_eq!(pool.open.map(|(_, drive, _)| drive), Some(PoolDrive(2)));
}

#[test]
fn a_full_drive_takes_no_more_and_is_read() {
    let mut pool = Pool::new(policy(Overrun::Stretch(4)), 4, PERIOD / 2);
    pool.append();
    pool.notify(ShiftEvent::Full(PoolDrive(0)));
    assert_eq!(pool.open, Some((LogId(2), PoolDrive(1), 0)), "the log is left as it is");
    assert_eq!(pool.shift.stages(PoolDrive(0)).reads, 1);
    pool.now = Time::ZERO;
    let rows = pool.diagram(8);
    assert!(rows[0][1..].chars().all(|stage| stage == '-'), "{rows:?}");
    assert_eq!(pool.contentions, 0);
}

/// A random run: drives come and go, fill, and transformations fail. Each log ends as a tree, as a log, or reported as
/// lost with a drive; and when faults have stopped, every log becomes a tree.
#[test]
fn random_lives_lose_nothing_but_what_lost_drives_held() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let drives = 1 + rng.below(10) as u32;
        let model = if rng.below(2) == 0 { Model::Basic } else { Model::Enhanced };
        let overrun = if rng.below(4) == 0 { Overrun::Overlap } else { Overrun::Stretch(1 + rng.below(4) as u32) };
        let idle_timeout = (rng.below(2) == 0).then_some(PERIOD / 3);
        let policy = ShiftPolicy { model, log_bytes: 20, overrun, idle_timeout };
        let mut pool = Pool::new(policy, drives, PERIOD);
        let faulty = rng.below(3) == 0;
        for _ in 0..2_000 {
            pool.takes = Duration::from_millis(rng.below(5_000));
            pool.run_to(pool.now + Duration::from_millis(rng.below(400)));
            pool.append();
            if faulty && rng.below(40) == 0 {
                fault(&mut pool, &mut rng, drives);
            }
        }
        // Transformations that fail already still fail.
        pool.run_to(pool.now + PERIOD);
        for drive in (0..drives).map(PoolDrive) {
            pool.asleep.remove(&drive);
            pool.notify(ShiftEvent::Back(drive));
        }
        pool.notify(ShiftEvent::Flush);
        pool.run_to(pool.now + PERIOD * 100);
        assert!(faulty || pool.lost.is_empty(), "seed {seed}: nothing is lost without a fault");
        assert!(pool.admits && pool.logs.len() == 1, "seed {seed}: {} logs wait", pool.logs.len() - 1);
        assert!(pool.trees.len() > 5, "seed {seed}");
        let apart = !faulty && drives > 2 && model == Model::Enhanced && overrun != Overrun::Overlap;
        assert!(!apart || pool.contentions == 0, "seed {seed}: {} contentions", pool.contentions);
    }
}

fn fault(pool: &mut Pool, rng: &mut Rng, drives: u32) {
    let drive = PoolDrive(rng.below(u64::from(drives)) as u32);
    match rng.below(4) {
        0 => pool.notify(ShiftEvent::Lost(drive)),
        1 => pool.notify(ShiftEvent::Full(drive)),
        2 => {
            pool.asleep.remove(&drive);
            pool.notify(ShiftEvent::Back(drive));
        }
        _ => {
            let outcomes = [TransformOutcome::Failed, TransformOutcome::TargetFull, TransformOutcome::TargetLost];
            let outcome = outcomes[rng.below(3) as usize];
            let under_way = pool.due.iter_mut().find_map(|(_, event)| match event {
                ShiftEvent::TransformEnded { outcome, .. } => Some(outcome),
                _ => None,
            });
            if let Some(planned) = under_way {
                *planned = outcome;
            }
        }
    }
}

#[test]
fn every_rotation_has_the_drives_that_its_stages_need() {
    assert!((1..6).all(|drives| rotations(drives).first() == Some(&(0..drives)) && rotations(drives).len() == 1));
    assert_eq!(rotations(6), [0..3, 3..6]);
    assert_eq!(rotations(9), [0..5, 5..9]);
    assert!((6..100).all(|drives| rotations(drives).iter().all(|share| share.len() >= 3)));
}
