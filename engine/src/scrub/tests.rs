//! Passes over random groups, with interruptions and restarts, against a naive account of what they are to read; whole
//! lives are in `sim/tests/rack/scrubbing.rs`.
#![allow(clippy::unwrap_used)]

use super::*;
use alloc::collections::BTreeMap;
use model::{DriveId, Rng};
use proptest::prelude::*;

const CLASS: ClassId = ClassId(0);
const HOUR: Duration = Duration::from_hours(1);
const PERIOD: Duration = Duration::from_hours(240);
const STACKS: u64 = 3;

fn policy() -> ScrubPolicy {
    ScrubPolicy { period: Some(PERIOD), ride_along: HOUR, starts_per_day: 2, step_bytes: 100 }
}

fn blob(number: u64) -> BlobOnDrive {
    let drives = (0..STACKS as u32).map(DriveId).collect();
    BlobOnDrive {
        blob: BlobId::numbered(number),
        drives,
        stack_bytes: 100,
        bytes: 200,
        living: true,
        lost: Vec::new(),
        left_there: false,
    }
}

/// A class of three groups, and their blobs.
struct Ground {
    scrubber: Scrubber,
    /// By group, the blobs that are there.
    blobs: Vec<BTreeSet<u64>>,
    /// Every blob has a number below this.
    end: u64,
    now: Time,
    attempts: u32,
    rng: Rng,
    /// By group, what was done in the pass under way, in order.
    done: Vec<Vec<u64>>,
    /// By group, the blobs that the pass under way began with and that were not removed since.
    due: Vec<BTreeSet<u64>>,
    /// By group, when each pass was completed.
    completed: Vec<Vec<Time>>,
    /// By group and day, wakes for its pass.
    wakes: BTreeMap<(u32, u32), u32>,
    restarted: bool,
    /// The blobs that cannot be read, and until when.
    away: BTreeMap<u64, Time>,
    /// The blobs that are put off, since when, and their groups.
    put_off: BTreeMap<u64, (Time, u32)>,
    /// Blobs that were put off and read then.
    read_again: u64,
}

impl Ground {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut blobs = vec![BTreeSet::new(); 3];
        let end = 1 + rng.below(200);
        for number in 1..end {
            blobs[rng.below(3) as usize].insert(number);
        }
        Self {
            scrubber: Scrubber::new(policy(), 3, 1),
            due: vec![BTreeSet::new(); 3],
            done: vec![Vec::new(); 3],
            completed: vec![Vec::new(); 3],
            wakes: BTreeMap::new(),
            restarted: false,
            away: BTreeMap::new(),
            put_off: BTreeMap::new(),
            read_again: 0,
            now: Time::from_secs(rng.below(1_000_000)),
            attempts: 0,
            blobs,
            end,
            rng,
        }
    }

    fn pass(&self, group: GroupId) -> ScrubPass {
        self.scrubber.groups[group.index()].pass
    }

    /// Handles every group that needs attention, as the rack does.
    fn look(&mut self) {
        for group in self.scrubber.to_look_at(self.now) {
            let began = self.pass(group).began;
            let known = self.scrubber.groups[group.index()].known;
            let used_bytes = self.blobs[group.index()].len() as u64 * 100 * STACKS;
            self.scrubber.begin_due(group, used_bytes, self.now);
            if !known || self.pass(group).began != began {
                assert!(!known || self.pass(group).began >= began + PERIOD, "one pass in a period");
                self.done[group.index()].clear();
                self.due[group.index()] = self.blobs[group.index()].clone();
            }
            if !self.scrubber.knows_its_end(group) {
                if self.scrubber.need(CLASS, group, self.now) == Some(Need::Page) {
                    self.list(group);
                }
                continue;
            }
            if !self.scrubber.is_due(group, self.now) {
                self.scrubber.not_due(group, self.now);
                continue;
            }
            let need = if self.scrubber.is_pass_due(group, self.now) {
                self.judge_due(group);
                self.scrubber.need(CLASS, group, self.now)
            } else {
                self.judge_again(group);
                self.scrubber.may_read_again(CLASS).then_some(Need::Wake)
            };
            match need {
                Some(Need::Page) => drop(self.list(group)),
                Some(Need::Wake) if self.scrubber.may_wake(group, self.now) => {
                    *self.wakes.entry((group.0, self.now.day())).or_default() += 1;
                    self.scrubber.queued(CLASS, group, OpId(7));
                    self.scrubber.woken(group, self.now);
                    self.scrubber.wake_ended(CLASS, group, (true, Scrubber::pause_from(self.now)), self.now);
                    self.go_on(group, self.now);
                }
                Some(Need::Wake) => self.scrubber.look_again(group, self.now + HOUR),
                None => {}
            }
        }
    }

    /// A pass is due in the second half of its period, and only if it is behind the time.
    fn judge_due(&self, group: GroupId) {
        let pass = self.pass(group);
        let elapsed = self.now.since(pass.began).as_secs_f64() / PERIOD.as_secs_f64();
        let covered = pass.counts.stack_bytes as f64 / pass.total_bytes.max(1) as f64;
        assert!(elapsed >= 0.5 && elapsed + 0.002 >= covered.min(0.999), "{elapsed} of the period, {covered} done");
        assert!(!pass.complete, "what is complete is not due");
    }

    /// A group is woken for what is put off alone: never too soon.
    fn judge_again(&self, group: GroupId) {
        let of_group = self.put_off.values().filter(|(_, of)| *of == group.0);
        assert!(of_group.clone().any(|(since, _)| self.now >= *since + PAUSE), "it was put off for a while");
    }

    /// Requests a page and usually answers it. True if there was one to request.
    fn list(&mut self, group: GroupId) -> bool {
        self.attempts += 1;
        let attempt = Attempt(self.attempts);
        let asked = self.scrubber.list(CLASS, group, attempt, self.now);
        let Some(Action::ListToScrub { after, end, limit, .. }) = asked else {
            self.note_complete(group);
            return false;
        };
        if self.rng.below(10) == 0 {
            self.scrubber.unlisted(CLASS, group, attempt, self.now);
            return false;
        }
        let end = end.unwrap_or(self.end);
        // A page may be shorter than was asked for.
        let limit = 1 + self.rng.below(u64::from(limit)) as usize;
        let from = after.map_or(0, |after| after.number + 1);
        let there = &self.blobs[group.index()];
        let mut numbers: Vec<u64> = there.range(from..end.max(from)).copied().take(limit + 1).collect();
        let more = numbers.len() > limit;
        numbers.truncate(limit);
        let next = numbers.last().filter(|_| more).map(|last| BlobId::numbered(*last));
        let page = ScrubPage { blobs: numbers.into_iter().map(blob).collect(), next, end };
        let late = ScrubPage { blobs: vec![blob(1)], ..page.clone() };
        self.scrubber.page(CLASS, (group, Attempt(attempt.0 + 99)), late, self.now);
        self.scrubber.page(CLASS, (group, attempt), page, self.now);
        self.note_complete(group);
        true
    }

    fn note_complete(&mut self, group: GroupId) {
        let pass = self.pass(group);
        let known = self.completed[group.index()].last().copied();
        let Some(last) = pass.last.filter(|last| pass.complete && known != Some(last.ended)) else { return };
        self.completed[group.index()].push(last.ended);
        let done: BTreeSet<u64> = self.done[group.index()].iter().copied().collect();
        let due = self.due[group.index()].iter().filter(|number| !self.put_off.contains_key(number));
        let left: Vec<_> = due.filter(|number| !done.contains(number)).collect();
        assert!(left.is_empty(), "{group}: {left:?} were there when the pass began, and were not read");
        assert!(done.iter().all(|number| *number < pass.end.unwrap()), "what is newer is not of the pass");
        if !self.restarted {
            assert_eq!(self.done[group.index()].len(), done.len(), "each once");
            assert_eq!(last.counts.blobs, done.len() as u64);
            let unread = self.put_off.values().filter(|(_, of)| *of == group.0).count() as u64;
            assert!(last.counts.unread_stacks <= unread * STACKS, "what is unread is put off");
        }
    }

    /// The group is awake and idle since then: its pass continues until something interrupts it.
    fn go_on(&mut self, group: GroupId, idle_since: Time) {
        while self.scrubber.may_begin(CLASS, group, idle_since, self.now) {
            let may_go_on = self.scrubber.may_go_on(CLASS, group, idle_since, self.now);
            match self.scrubber.next(CLASS, group, may_go_on, self.now) {
                Next::Done | Next::Wait => break,
                Next::Page if !self.list(group) => break,
                Next::Page => continue,
                Next::Step => self.step(group),
            }
            self.now += Duration::from_mins(self.rng.below(20));
            if self.rng.below(60) == 0 {
                break; // others want the class
            }
        }
        self.scrubber.rest(CLASS);
    }

    fn step(&mut self, group: GroupId) {
        let number = self.scrubber.at(CLASS).unwrap().blob.blob.number;
        let is_away = self.away.get(&number).is_some_and(|until| self.now < *until);
        self.scrubber.set_stepping(CLASS, true);
        self.scrubber.set_stepping(CLASS, false);
        if is_away {
            let is_new = self.scrubber.pages[0].again.is_none();
            self.scrubber.put_off(CLASS, group, self.now);
            if is_new {
                self.done[group.index()].push(number);
                self.put_off.insert(number, (self.now, group.0));
            }
            return;
        }
        let to = {
            let at = self.scrubber.at(CLASS).unwrap();
            let from = at.from;
            self.scrubber.step_end(from, 200, 100)
        };
        let at = self.scrubber.at(CLASS).unwrap();
        if self.rng.below(20) == 0 {
            at.repaired.insert(1);
        }
        at.from = to;
        if to < 200 || at.ends_round() {
            return;
        }
        let is_again = self.scrubber.pages[0].again.is_some();
        let at = self.scrubber.done(CLASS, group).unwrap();
        self.read_again += u64::from(self.put_off.remove(&number).is_some());
        if is_again {
            return;
        }
        assert_eq!(at.blob.blob.number, number);
        let done = &mut self.done[group.index()];
        assert!(self.restarted || done.last().is_none_or(|last| *last < number), "by number");
        done.push(number);
    }

    /// The server ends and starts again, and reports what was persisted last.
    fn restart(&mut self) {
        let passes: Vec<ScrubPass> = self.scrubber.groups.iter().map(|state| state.pass).collect();
        let unread: Vec<_> = self.scrubber.all_put_off().collect();
        self.scrubber = Scrubber::new(policy(), 3, 1);
        for (index, pass) in passes.into_iter().enumerate() {
            self.scrubber.report(GroupId(index as u32), pass);
        }
        for (group, id) in unread {
            self.scrubber.report_unread(group, blob(id.number), self.now);
        }
        self.restarted = true;
    }

    fn anything(&mut self) {
        let group = self.rng.below(3) as usize;
        match self.rng.below(40) {
            0..=2 => {
                self.blobs[group].insert(self.end);
                self.end += 1;
            }
            3..=4 => {
                if let Some(gone) = self.blobs[group].iter().nth(self.rng.below(50) as usize).copied() {
                    self.blobs[group].remove(&gone);
                    self.due[group].remove(&gone);
                }
            }
            11 => {
                let number = self.rng.below(self.end);
                self.away.insert(number, self.now + HOUR * self.rng.below(60) as u32);
            }
            5..=9 => {
                let (group, now) = (GroupId(group as u32), self.now);
                if self.scrubber.groups[group.index()].known {
                    self.go_on(group, now);
                }
            }
            10 if self.restarted || self.rng.below(4) == 0 => self.restart(),
            _ => self.now += HOUR * self.rng.below(8) as u32,
        }
        self.look();
        self.judge_put_off();
    }

    /// A put-off blob is read within a few days of becoming readable, even if other work rarely wakes its group.
    fn judge_put_off(&self) {
        for (number, (since, group)) in &self.put_off {
            let readable = (*since).max(self.away[number]);
            assert!(self.now < readable + 4 * 24 * HOUR, "blob {number} of group {group} is not read: {since:?}");
        }
        let named: BTreeSet<u64> = self.scrubber.all_put_off().map(|(_, blob)| blob.number).collect();
        assert!(self.put_off.keys().all(|number| named.contains(number)), "what is put off is named");
    }
}

/// Some years of a class, and when they began.
fn lived(seed: u64) -> (Ground, Time) {
    let mut ground = Ground::new(seed);
    let began = ground.now;
    ground.look();
    for _ in 0..2_000 {
        ground.anything();
    }
    (ground, began)
}

#[test]
fn what_is_put_off_is_read_again() {
    let read_again: u64 = (0..10).map(|seed| lived(seed).0.read_again).sum();
    assert!(read_again > 20, "{read_again} blobs");
}

proptest! {
    #[test]
    fn each_pass_reads_what_was_there_when_it_began_once(seed in any::<u64>()) {
        let (ground, began) = lived(seed);
        // Nothing is forgotten: with time, every period has had its pass.
        let periods = ground.now.since(began).as_nanos() / PERIOD.as_nanos();
        for group in 0..3 {
            let completed = ground.completed[group].len() as u128;
            prop_assert!(completed + 2 >= periods, "{completed} passes in {periods} periods");
            prop_assert!(completed <= periods + 1);
        }
        let budget = policy().starts_per_day;
        prop_assert!(ground.wakes.values().all(|wakes| *wakes <= budget), "{:?}", ground.wakes);
        prop_assert!(ground.scrubber.pages[0].blobs.len() <= PAGE_BLOBS as usize);
    }
}

#[test]
fn what_is_switched_off_or_paused_is_never_due() {
    let mut off = Scrubber::new(ScrubPolicy { period: None, ..policy() }, 1, 1);
    off.begin_due(GroupId(0), 100, Time::ZERO);
    off.request(CLASS, GroupId(0), 100, Time::ZERO);
    assert!(off.is_off() && off.to_look_at(Time::MAX).is_empty() && off.deadline(Time::ZERO) == Time::MAX);
    let mut paused = Scrubber::new(policy(), 1, 1);
    paused.begin_due(GroupId(0), 100, Time::ZERO);
    paused.pause(true);
    assert!(paused.to_look_at(Time::MAX).is_empty() && !paused.is_due(GroupId(0), Time::MAX));
    paused.pause(false);
    assert!(paused.is_due(GroupId(0), Time::ZERO + PERIOD), "it goes on where it was");
}

#[test]
fn a_round_is_repeated_for_what_was_repaired_or_seemed_lost_and_once_only() {
    let mut at = AtBlob::new(blob(1));
    assert!(!at.ends_round(), "nothing was found");
    at.repaired.insert(2);
    assert!(at.ends_round() && at.from == 0, "what was repaired is read back");
    assert!(!at.ends_round() && at.bad.is_empty() && at.before.contains(&2));
    let mut at = AtBlob::new(blob(1));
    at.repaired.insert(2);
    assert!(at.ends_round());
    at.repaired.insert(2);
    assert!(!at.ends_round() && at.bad.contains(&2), "it is bad again: its place is");
    let mut at = AtBlob::new(blob(1));
    at.lost = true;
    assert!(at.ends_round() && !at.lost, "nothing is lost for the sake of one try");
    at.lost = true;
    assert!(!at.ends_round() && at.lost);
}

#[test]
fn a_blob_that_stays_unreadable_holds_up_no_pass_and_wakes_its_group_so_often_and_no_more() {
    let (group, unread) = (GroupId(0), BlobId::numbered(1));
    let mut scrubber = Scrubber::new(policy(), 1, 1);
    scrubber.begin_due(group, 600, Time::ZERO);
    assert!(scrubber.list(CLASS, group, Attempt(1), Time::ZERO).is_some());
    let page = ScrubPage { blobs: vec![blob(1), blob(2)], next: None, end: 3 };
    scrubber.page(CLASS, (group, Attempt(1)), page, Time::ZERO);
    assert_eq!(scrubber.next(CLASS, group, true, Time::ZERO), Next::Step);
    scrubber.put_off(CLASS, group, Time::ZERO);
    assert_eq!(scrubber.next(CLASS, group, true, Time::ZERO), Next::Step);
    assert_eq!(scrubber.done(CLASS, group).unwrap().blob.blob, BlobId::numbered(2));
    assert_eq!(scrubber.next(CLASS, group, true, Time::ZERO), Next::Page);
    assert!(scrubber.list(CLASS, group, Attempt(2), Time::ZERO).is_none(), "the list is at its end");
    let view = scrubber.views(Time::ZERO).next().unwrap();
    assert!(view.pass.complete && view.put_off_blobs == 1 && view.pass.counts.unread_stacks == STACKS);
    let (mut now, mut wakes) = (Time::ZERO, 0);
    while scrubber.deadline(now) < Time::ZERO + PERIOD {
        now = scrubber.deadline(now);
        assert!(scrubber.is_due(group, now) && !scrubber.is_pass_due(group, now));
        assert_eq!(scrubber.next(CLASS, group, false, now), Next::Step);
        assert_eq!(scrubber.at(CLASS).unwrap().blob.blob, unread);
        scrubber.put_off(CLASS, group, now);
        scrubber.not_due(group, now);
        wakes += 1;
    }
    assert_eq!(wakes, 13, "beside the first try");
    let hours = now.since(Time::ZERO).as_secs() / 3_600;
    assert_eq!(hours, 149, "the last of them");
    // After that it rides along: it is named, and read when its group is awake.
    let later = now + HOUR * 48;
    assert_eq!(scrubber.all_put_off().collect::<Vec<_>>(), [(group, unread)]);
    assert!(!scrubber.is_due(group, later) && scrubber.may_begin(CLASS, group, later, later));
    assert_eq!(scrubber.next(CLASS, group, false, later), Next::Step);
    assert_eq!(scrubber.done(CLASS, group).unwrap().blob.blob, unread);
    let view = scrubber.views(later).next().unwrap();
    assert_eq!((view.put_off_blobs, view.pass.counts.unread_stacks, view.pass.counts.blobs), (0, 0, 2));
    assert_eq!(view.pass.last.unwrap().counts, view.pass.counts);
}
