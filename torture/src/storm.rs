//! The storm: faults that happen while a server runs, drawn one by one, each from its own stream.

use crate::kinds::FaultKind;
use crate::overlay::{Armed, State, blocks_that_show_whose, fails_calls};
use crate::plan::{Item, Life, Plan, Stream};
use crate::site::Running;
use disk::label::RackUuid;
use disk::stack::{ChecksumPage, Footer, Header, stack_of};
use disk::{BLOCK_BYTES, Buffer, Drive, FileName, MemoryDrive};
use engine::Event;
use futures::FutureExt;
use model::physics::PowerState;
use model::{DomainLimit, DriveId, Rng};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The rack that owns the foreign files.
const OTHER_RACK: RackUuid = RackUuid([9; 16]);

/// Maximum time between two checks for drives that are to be plugged in again.
const LOOK: Duration = Duration::from_secs(5);

/// The same in lives of months.
const LOOK_OF_MONTHS: Duration = Duration::from_secs(100);

/// Maximum durations of the conditions of drives, in seconds; each fault picks one.
const LONGEST_S: [u64; 4] = [10, 120, 1_000, 10_000];

/// The same in lives of months.
const LONGEST_OF_MONTHS_S: [u64; 4] = [120, 10_000, 200_000, 1_000_000];

/// Injects faults, without end. Drives that are away come back when their time has ended.
pub(crate) async fn rage(running: &Running, plan: &Plan, (round, life): (u64, &Life)) {
    let kinds: Vec<FaultKind> = plan.kinds.iter().copied().filter(|kind| kind.is_injected()).collect();
    let mut pace = Stream::Pace { round }.of(plan.seed);
    for fault in 0.. {
        let pause = Duration::from_millis(pace.between(1, life.gap_s * 2_000));
        come_back_during(running, plan, pause).await;
        if kinds.is_empty() || plan.is_dropped(Item::Fault { round, fault }) {
            continue;
        }
        let mut rng = Stream::Storm { round, fault }.of(plan.seed);
        if plan.verifies && rng.below(5) == 0 {
            crate::operator::verify(running, &mut rng).await;
            continue;
        }
        if plan.meddles && rng.below(5) == 0 {
            crate::operator::meddle(running, &mut rng).await;
            continue;
        }
        if let Some(after) = plan.policy.give_up_after
            && rng.below(4) == 0
        {
            Injector { running, plan, rng }.stay_away(after);
            continue;
        }
        let mut kind = kinds[rng.below(kinds.len() as u64) as usize];
        if plan.besieged && rng.below(4) == 0 {
            kind = FaultKind::OperatorFailsDrive;
        }
        if plan.shaky && rng.below(6) == 0 {
            kind = FaultKind::CommitUnsynced;
        }
        if plan.has(kind) {
            let is_siege = plan.besieged && kind == FaultKind::OperatorFailsDrive;
            let mut injector = Injector { running, plan, rng };
            if is_siege {
                injector.besiege();
            }
            injector.inject(kind).await;
        }
    }
}

/// Waits, and plugs in the drives that come back meanwhile.
async fn come_back_during(running: &Running, plan: &Plan, pause: Duration) {
    let look = if plan.months { LOOK_OF_MONTHS } else { LOOK };
    let until = disk::clock::monotonic() + pause;
    while disk::clock::monotonic() < until {
        let left = until.saturating_duration_since(disk::clock::monotonic());
        tokio::time::sleep(left.min(look)).await;
        plug_back(running);
        crate::absent::look(running).await;
        crate::limits::budgets_hold(running);
    }
}

/// Ends all temporary faults: drives answer, pulled drives are back, the catalog has room. False if the catalog accepts
/// no writes until the next start, so little can finish.
pub(crate) fn pass(running: &Running) -> bool {
    let away: Vec<DriveId> = {
        let mut state = running.overlay.state();
        let drives = (0..).map(DriveId).zip(&state.drives);
        let away = drives.filter(|(_, faults)| faults.conditions.away_until > 0 && !faults.given_up);
        let away = away.map(|(drive, _)| drive).collect();
        state.calm();
        away
    };
    for drive in away {
        running.rack.plug(drive);
    }
    running.power.restore();
    running.catalog.set_full(false);
    !running.log.is_stopped()
}

/// Plugs in the drives whose time away has ended.
pub(crate) fn plug_back(running: &Running) {
    let now = running.journal.now_ms();
    let mut back = Vec::new();
    for (drive, faults) in running.overlay.state().drives.iter_mut().enumerate() {
        let away_until = &mut faults.conditions.away_until;
        if *away_until > 0 && *away_until <= now {
            *away_until = 0;
            if !faults.given_up {
                back.push(DriveId(drive as u32));
            }
        }
    }
    for drive in back {
        running.journal.note(|| format!("drive {} is back", drive.0));
        running.rack.plug(drive);
    }
}

struct Injector<'a> {
    running: &'a Running,
    plan: &'a Plan,
    rng: Rng,
}

impl Injector<'_> {
    async fn inject(mut self, kind: FaultKind) {
        let drives = self.running.overlay.state().rack_drives() as u64;
        let drive = self.rng.below(drives) as usize;
        match kind {
            FaultKind::BitRot | FaultKind::BadSector | FaultKind::LostFile => self.corrupt(kind, drive),
            FaultKind::WorkshopRot => self.corrupt(kind, drives as usize),
            FaultKind::ForeignFile => self.misplace(drive),
            FaultKind::LostWrite
            | FaultKind::MisdirectedWrite
            | FaultKind::TornWrite
            | FaultKind::LostSync
            | FaultKind::FailedCall => self.arm(kind, drive),
            FaultKind::WorkshopFails => self.arm(kind, drives as usize),
            FaultKind::SpoolFails => self.arm(kind, drives as usize + 1),
            FaultKind::DiesAndReturns
            | FaultKind::Hangs
            | FaultKind::Slow
            | FaultKind::FailsToStart
            | FaultKind::StartsSlowly
            | FaultKind::WrongLabel
            | FaultKind::FullDrive => self.befall(kind, drive),
            FaultKind::EmptiedDrive => self.empty(drive),
            FaultKind::OldCopy => self.copy(drive),
            FaultKind::ClonedDrive => self.clone_drive(drive),
            FaultKind::WorkshopFull => self.befall(kind, drives as usize),
            FaultKind::DiesForGood => self.destroy(drive),
            FaultKind::Pulled => self.pull(kind, &[drive]),
            FaultKind::TrippedFuse => self.trip(),
            FaultKind::LostDomain => self.lose_domain(),
            FaultKind::OperatorFailsDrive => self.operate(drive).await,
            FaultKind::ClockJump => self.jump(),
            FaultKind::CommitUnanswered => {
                let commits = self.rng.between(1, 20);
                self.running.power.leave_unanswered(commits);
                self.count(kind, format!("commit {commits} from now is done and not answered"));
            }
            FaultKind::CatalogFull => self.fill_catalog().await,
            FaultKind::RepeatedAnswer => self.repeat_answers().await,
            FaultKind::SpunByOthers => self.spin_up(drive),
            FaultKind::CatalogMisread => {
                let (every, times) = (self.rng.between(1, 200), self.rng.between(1, 40));
                self.running.power.misread(every, times);
                self.count(kind, format!("every {every}th read of a record is wrong, {times} times"));
            }
            FaultKind::CatalogUnlisted => {
                let (every, times) = (self.rng.between(1, 60), self.rng.between(1, 12));
                self.running.power.leave_unlisted(every, times);
                self.count(kind, format!("every {every}th listing of the catalog fails, {times} times"));
            }
            FaultKind::CommitUnsynced => {
                let commits = self.rng.between(1, 40);
                self.running.power.leave_unsynced(commits);
                self.count(kind, format!("the sync of commit {commits} from now fails"));
            }
            kind => assert!(!kind.is_injected(), "{} is injected", kind.name()),
        }
    }

    fn count(&self, kind: FaultKind, what: String) {
        self.running.overlay.count(kind);
        self.running.journal.note(|| what);
    }

    fn span(&mut self) -> Duration {
        let longest_s = if self.plan.months { LONGEST_OF_MONTHS_S } else { LONGEST_S }[self.rng.below(4) as usize];
        Duration::from_millis(self.rng.between(1, longest_s * 1_000))
    }

    /// Corrupts a file of `drive`.
    fn corrupt(&mut self, kind: FaultKind, drive: usize) {
        let mut state = self.running.overlay.state();
        let names = state.medium(drive).names();
        if names.is_empty() || state.drives[drive].destroyed {
            return;
        }
        let name = names[self.rng.below(names.len() as u64) as usize].clone();
        let bytes = state.medium(drive).contents_len(&name).unwrap_or(0);
        if bytes == 0 || !state.may_corrupt(&name) {
            return;
        }
        let at = self.rng.below(bytes);
        let mask = 1 << self.rng.below(8);
        corrupt_file(&mut state, (drive, &name), kind, (at, mask, bytes));
        drop(state);
        self.count(kind, format!("{}: {name} on drive {drive}, byte {at}", kind.name()));
    }

    /// Replaces a stack by another rack's file. Slow drives are excluded: the server cannot notice a replacement
    /// between its check of a file and the removal, which are two calls.
    fn misplace(&mut self, drive: usize) {
        let mut state = self.running.overlay.state();
        let (conditions, now) = (&state.drives[drive].conditions, self.running.journal.now_ms());
        if conditions.slow_until > now || conditions.silent_until > now {
            return;
        }
        let names: Vec<FileName> = state.medium(drive).names().into_iter().filter(|n| stack_of(n).is_some()).collect();
        if names.is_empty() || state.drives[drive].destroyed || state.drives[drive].is_another {
            return;
        }
        let name = names[self.rng.below(names.len() as u64) as usize].clone();
        let medium = Arc::clone(state.medium(drive));
        let Some(blocks) = of_other_rack(&medium, &name).filter(|_| state.may_corrupt(&name)) else { return };
        let file = state.drives[drive].file(&name);
        file.foreign = true;
        for (offset, block) in blocks {
            file.written(&(offset..offset + BLOCK_BYTES as u64));
            // A drive in memory does what it is asked at once.
            let written = medium.write_at(&name, offset, Buffer::copy_of(&block)).now_or_never();
            assert!(matches!(written, Some(Ok(_))), "{name} is there, and takes a block");
        }
        drop(state);
        let synced = medium.sync(&name).now_or_never();
        assert!(matches!(synced, Some(Ok(()))), "a drive in memory syncs");
        self.count(FaultKind::ForeignFile, format!("{name} on drive {drive} is another rack's from now on"));
    }

    fn arm(&mut self, kind: FaultKind, drive: usize) {
        let calls = self.rng.between(1, 12);
        let mut state = self.running.overlay.state();
        // A drive that fails repeatedly is away for the rack, which may give it up.
        if fails_calls(kind) && !state.may_be_missed(drive) {
            return;
        }
        let armed = &mut state.drives[drive].armed;
        if armed.len() < 4 {
            armed.push(Armed { kind, calls });
        }
    }

    /// Makes every drive fail at one of its next calls: most likely one that is receiving a lost stack.
    fn besiege(&mut self) {
        let writes = [FaultKind::LostWrite, FaultKind::TornWrite, FaultKind::FailedCall];
        let kind = writes[self.rng.below(writes.len() as u64) as usize];
        if self.plan.has(kind) {
            let idle: Vec<usize> = {
                let state = self.running.overlay.state();
                (0..state.rack_drives()).filter(|drive| state.drives[*drive].armed.is_empty()).collect()
            };
            for drive in idle {
                self.arm(kind, drive);
            }
        }
    }

    /// Gives a drive a bad condition for a while.
    fn befall(&mut self, kind: FaultKind, drive: usize) {
        let span = self.span();
        let by = Duration::from_millis(self.rng.between(100, 60_000));
        // One in four hangs until the storm ends.
        let for_good = kind == FaultKind::Hangs && self.rng.below(4) == 0;
        let until = if for_good { u64::MAX } else { self.running.journal.now_ms() + span.as_millis() as u64 };
        let mut state = self.running.overlay.state();
        if kind != FaultKind::FullDrive && !state.may_be_missed(drive) {
            return;
        }
        state.fault_ms += span.as_millis() as u64;
        let conditions = &mut state.drives[drive].conditions;
        match kind {
            FaultKind::DiesAndReturns => conditions.dead_until = until,
            FaultKind::Hangs => conditions.silent_until = until,
            FaultKind::Slow => (conditions.slow_until, conditions.slow_by) = (until, by / 4),
            FaultKind::FailsToStart => conditions.no_start_until = until,
            FaultKind::StartsSlowly => (conditions.slow_start_until, conditions.slow_start_by) = (until, by),
            FaultKind::WrongLabel => conditions.wrong_label_until = until,
            FaultKind::FullDrive | FaultKind::WorkshopFull => conditions.full_until = until,
            _ => return,
        }
        drop(state);
        self.count(kind, format!("{}: {drive}, for {span:?}", kind.name()));
    }

    /// Destroys all bytes of a drive permanently.
    fn destroy(&mut self, drive: usize) {
        let mut state = self.running.overlay.state();
        if !state.may_lose(drive) {
            return;
        }
        state.drives[drive].destroyed = true;
        drop(state);
        self.count(FaultKind::DiesForGood, format!("drive {drive} dies for good"));
    }

    /// Deletes everything on a drive, in half of the cases except its label.
    fn empty(&mut self, drive: usize) {
        let with_label = self.rng.below(2) == 0;
        let mut state = self.running.overlay.state();
        // A mounted drive without a label is still written to, and a blob with stacks on more than r of these drives is
        // lost at once.
        let may = state.may_lose(drive) && (!with_label || state.may_lose_label(drive));
        if state.medium(drive).names().is_empty() || !may {
            return;
        }
        state.empty(drive, with_label);
        state.drives[drive].may_be_missed |= with_label;
        drop(state);
        let what = if with_label { "everything" } else { "everything but the label" };
        self.count(FaultKind::EmptiedDrive, format!("{what} on drive {drive} is deleted"));
    }

    /// Copies a drive that has no copy yet; otherwise pulls it and puts the copy in its place.
    fn copy(&mut self, drive: usize) {
        let mut state = self.running.overlay.state();
        if state.drives[drive].destroyed || state.drives[drive].given_up {
            return;
        }
        if state.drives[drive].copy.is_none() {
            state.copy(drive);
            return;
        }
        let may = state.may_lose(drive) && state.may_be_missed(drive);
        drop(state);
        if may {
            self.pull(FaultKind::OldCopy, &[drive]);
            self.running.overlay.state().put_copy(drive);
        }
    }

    /// Pulls a drive, and for a while puts in its place a copy of another drive, which stays where it is.
    fn clone_drive(&mut self, drive: usize) {
        let span = self.span();
        let drives = self.running.spec.drives.len() as u64;
        let other = (drive + 1 + self.rng.below(drives - 1) as usize) % drives as usize;
        if !self.running.overlay.state().may_be_missed(drive) {
            return;
        }
        self.pull_for(FaultKind::ClonedDrive, &[drive], span / 4);
        let until = self.running.journal.now_ms() + span.as_millis() as u64;
        let mut state = self.running.overlay.state();
        let conditions = &mut state.drives[drive].conditions;
        (conditions.clone_until, conditions.clone_of) = (until, other);
        drop(state);
        self.running.journal.note(|| format!("a copy of drive {other} is in the place of drive {drive}"));
    }

    /// Pulls a drive for about the time that the rack waits for it.
    fn stay_away(&mut self, after: Duration) {
        let drives = self.running.overlay.state().rack_drives() as u64;
        let drive = self.rng.below(drives) as usize;
        let span = after * self.rng.between(1, 16) as u32 / 4;
        self.pull_for(FaultKind::Pulled, &[drive], span);
    }

    /// Takes the power of drives away for a while.
    fn pull(&mut self, kind: FaultKind, drives: &[usize]) {
        let span = self.span();
        self.pull_for(kind, drives, span);
    }

    fn pull_for(&mut self, kind: FaultKind, drives: &[usize], span: Duration) {
        let now = self.running.journal.now_ms();
        for drive in drives {
            if !self.running.overlay.state().may_be_missed(*drive) {
                continue;
            }
            self.running.rack.pull(DriveId(*drive as u32));
            let mut state = self.running.overlay.state();
            state.power_lost(*drive, &mut self.rng);
            state.fault_ms += span.as_millis() as u64;
            let away_until = &mut state.drives[*drive].conditions.away_until;
            *away_until = (*away_until).max(now + span.as_millis() as u64);
        }
        self.count(kind, format!("{}: drives {drives:?}, for {span:?}", kind.name()));
    }

    fn trip(&mut self) {
        let spec = &self.running.spec;
        let fused = |limit: &DomainLimit| !matches!(limit, DomainLimit::BytesPerS(_));
        let hard: Vec<_> =
            spec.resources_by_id().filter(|(_, found)| found.hard && fused(&found.limit)).map(|(id, _)| id).collect();
        let resource = hard[self.rng.below(hard.len() as u64) as usize];
        let drive = DriveId(self.rng.below(spec.drives.len() as u64) as u32);
        let lost = self.running.rack.trip(resource, drive);
        for drive in &lost {
            self.running.overlay.state().power_lost(drive.index(), &mut self.rng);
        }
        self.running.trips.fetch_add(lost.len() as u64, Ordering::Relaxed);
        self.count(FaultKind::TrippedFuse, format!("the fuse of {resource} around drive {} trips", drive.0));
    }

    fn lose_domain(&mut self) {
        let spec = &self.running.spec;
        if spec.failure_domains.is_empty() {
            return;
        }
        let kind = self.rng.below(spec.failure_domains.len() as u64) as usize;
        let domains: Vec<_> = spec.drives.iter().map(|drive| drive.failure_domains[kind]).collect();
        let domain = domains[self.rng.below(domains.len() as u64) as usize];
        let drives: Vec<usize> = (0..domains.len()).filter(|drive| domains[*drive] == domain).collect();
        self.pull(FaultKind::LostDomain, &drives);
    }

    /// The operator gives up or retires a drive, or replaces one that was given up.
    async fn operate(&mut self, drive: usize) {
        let given_up = {
            let state = self.running.overlay.state();
            let all = 0..state.rack_drives();
            all.filter(|drive| state.drives[*drive].given_up || state.drives[*drive].abandoned).collect::<Vec<_>>()
        };
        if !given_up.is_empty() && self.rng.below(2) == 0 {
            let drive = given_up[self.rng.below(given_up.len() as u64) as usize];
            let back = self.plan.returns && self.rng.below(2) == 0;
            let by_rack = crate::absent::take_charge(self.running, drive);
            let replaced = crate::operator::replace(self.running, drive, back).await;
            if by_rack && !replaced {
                crate::absent::leave_charge(self.running, drive);
            }
            let what = if back { "takes back" } else { "replaces" };
            return self.running.journal.note(|| format!("the operator {what} drive {drive}: {replaced:?}"));
        }
        if self.plan.retires && self.rng.below(2) == 0 {
            return crate::operator::retire(self.running, drive).await;
        }
        let drive = {
            let state = self.running.overlay.state();
            // Prefers a drive that died to a sound one.
            (0..state.rack_drives()).find(|drive| state.drives[*drive].destroyed).unwrap_or(drive)
        };
        crate::operator::give_up(self.running, drive).await;
    }

    fn jump(&mut self) {
        let most_s = [10, 3_600, 86_400, 10 * 365 * 86_400][self.rng.below(4) as usize];
        let by_ms = self.rng.below(most_s * 1_000).cast_signed() * if self.rng.below(2) == 0 { 1 } else { -1 };
        self.running.jumped_ms.fetch_add(by_ms, Ordering::Relaxed);
        self.count(FaultKind::ClockJump, format!("the wall clock jumps by {} s", by_ms / 1_000));
    }

    /// Another program starts a drive that is present and in standby.
    fn spin_up(&self, drive: usize) {
        let id = DriveId(drive as u32);
        if self.running.rack.state(id) == PowerState::Standby {
            self.running.world.report(Event::DriveSpins { drive: id });
            self.count(FaultKind::SpunByOthers, format!("another program starts drive {drive}"));
        }
    }

    /// Sends some of the last answers a second time, each after a pause.
    async fn repeat_answers(&mut self) {
        let most_ms = [1, 2_000, 30_000][self.rng.below(3) as usize];
        for _ in 0..self.rng.between(1, 12) {
            let Some(answer) = self.running.judge.lock().an_answer(&mut self.rng) else { return };
            let pause = Duration::from_millis(self.rng.between(0, most_ms));
            come_back_during(self.running, self.plan, pause).await;
            self.running.overlay.count(FaultKind::RepeatedAnswer);
            self.running.world.report(answer);
        }
    }

    async fn fill_catalog(&mut self) {
        // Longer in runs with lulls, where everything must work afterwards without a restart.
        let most_ms = if self.plan.lulls { 600_000 } else { 30_000 };
        let span = Duration::from_millis(self.rng.between(1, most_ms));
        self.count(FaultKind::CatalogFull, format!("the catalog's disk is full for {span:?}"));
        self.running.catalog.set_full(true);
        come_back_during(self.running, self.plan, span).await;
        self.running.catalog.set_full(false);
    }
}

/// Header, last checksum page and footer of a complete stack, changed to another rack's: the blocks that identify it,
/// and their offsets.
fn of_other_rack(medium: &MemoryDrive, name: &FileName) -> Option<[(u64, Vec<u8>); 3]> {
    let [first, page_at, end] = blocks_that_show_whose(medium.contents_len(name)?)?;
    let block = |at| medium.contents_of(name, at, BLOCK_BYTES);
    let mut header = Header::decode(&block(first)?).ok()?;
    let mut page = ChecksumPage::decode(&block(page_at)?).ok()?;
    let mut footer = Footer::decode(&block(end)?).ok()?;
    (header.blob.rack, page.rack, footer.blob.rack) = (OTHER_RACK, OTHER_RACK, OTHER_RACK);
    let mut blocks = [first, page_at, end].map(|at| (at, vec![0; BLOCK_BYTES]));
    header.encode(&mut blocks[0].1);
    page.encode(&mut blocks[1].1);
    footer.encode(&mut blocks[2].1);
    Some(blocks)
}

fn corrupt_file(
    state: &mut State,
    (drive, name): (usize, &FileName),
    kind: FaultKind,
    (at, mask, bytes): (u64, u8, u64),
) {
    let sector = at / crate::overlay::SECTOR_BYTES * crate::overlay::SECTOR_BYTES;
    let sector: Range<u64> = sector..bytes.min(sector + crate::overlay::SECTOR_BYTES);
    let file = state.drives[drive].file(name);
    match kind {
        FaultKind::BadSector => file.unreadable.push(sector),
        FaultKind::LostFile => file.lost = true,
        _ => drop(file.rot.insert(at, mask)),
    }
}
