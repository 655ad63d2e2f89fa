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
    BlobOnDrive { blob: BlobId::numbered(number), drives, stack_bytes: 100, bytes: 200, living: true, lost: Vec::new() }
}

/// A class of three groups, and what lies in them.
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

    /// Whatever is due is looked at, as the rack does.
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
            self.judge_due(group);
            match self.scrubber.need(CLASS, group, self.now) {
                Some(Need::Page) => drop(self.list(group)),
                Some(Need::Wake) if self.scrubber.may_wake(group, self.now) => {
                    *self.wakes.entry((group.0, self.now.day())).or_default() += 1;
                    self.scrubber.queued(CLASS, group, OpId(7));
                    self.scrubber.woken(group, self.now);
                    self.scrubber.wake_ended(CLASS, group, true, Scrubber::pause_from(self.now));
                    self.go_on(group, self.now);
                }
                Some(Need::Wake) => self.scrubber.look_again(group, self.now + HOUR),
                None => {}
            }
        }
    }

    /// A pass is due in the second half of its period, and only if it is behind the time; or if only what was put off
    /// is left, and the pause after the last try is over.
    fn judge_due(&self, group: GroupId) {
        let pass = self.pass(group);
        let put_off = &self.scrubber.groups[group.index()].put_off;
        if put_off.are_rest {
            return assert!(!pass.complete && self.now >= put_off.until);
        }
        let elapsed = self.now.since(pass.began).as_secs_f64() / PERIOD.as_secs_f64();
        let covered = pass.counts.stack_bytes as f64 / pass.total_bytes.max(1) as f64;
        assert!(elapsed >= 0.5 && elapsed + 0.002 >= covered.min(0.999), "{elapsed} of the period, {covered} done");
        assert!(!pass.complete, "what is complete is not due");
    }

    /// Asks for a page and answers it, as a rule. True if there was one to ask for.
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
        let left: Vec<_> = self.due[group.index()].difference(&done).collect();
        assert!(left.is_empty(), "{group}: {left:?} were there when the pass began, and were not read");
        assert!(done.iter().all(|number| *number < pass.end.unwrap()), "what is newer is not of the pass");
        if !self.restarted {
            assert_eq!(self.done[group.index()].len(), done.len(), "each once");
            assert_eq!(last.counts.blobs, done.len() as u64);
        }
    }

    /// The group is up and idle since then: its pass goes on until something interrupts it.
    fn go_on(&mut self, group: GroupId, idle_since: Time) {
        while self.scrubber.may_begin(CLASS, group, idle_since, self.now) {
            match self.scrubber.next(CLASS, group) {
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
        self.scrubber.set_stepping(CLASS, true);
        self.scrubber.set_stepping(CLASS, false);
        // Seldom: a restart goes back to the first of them.
        if self.rng.below(300) == 0 {
            assert!(self.scrubber.put_off(CLASS, group, self.now), "there is room");
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
        let is_again = self.scrubber.pages[0].part == Part::PutOff;
        let at = self.scrubber.done(CLASS, group).unwrap();
        let (number, done) = (at.blob.blob.number, &mut self.done[group.index()]);
        assert!(self.restarted || is_again || done.last().is_none_or(|last| *last < number), "by number");
        done.push(number);
    }

    /// The server ends and starts again; what was remembered last is restated.
    fn restart(&mut self) {
        let groups = (0..3).map(GroupId);
        let remembered = groups.map(|group| {
            self.scrubber.groups[group.index()].dirty = true;
            let Some(Action::PersistScrub { pass, .. }) = self.scrubber.persist(group) else { unreachable!() };
            pass
        });
        let passes: Vec<ScrubPass> = remembered.collect();
        self.scrubber = Scrubber::new(policy(), 3, 1);
        for (index, pass) in passes.into_iter().enumerate() {
            self.scrubber.report(GroupId(index as u32), pass);
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
    }
}

proptest! {
    #[test]
    fn each_pass_reads_what_was_there_when_it_began_once(seed in any::<u64>()) {
        let mut ground = Ground::new(seed);
        let began = ground.now;
        ground.look();
        for _ in 0..2_000 {
            ground.anything();
        }
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

/// A scrubber whose only group has a pass over `count` blobs in memory.
fn with_page(count: u64) -> Scrubber {
    let group = GroupId(0);
    let mut scrubber = Scrubber::new(policy(), 1, 1);
    scrubber.begin_due(group, count * 300, Time::ZERO);
    let Some(Action::ListToScrub { .. }) = scrubber.list(CLASS, group, Attempt(1), Time::ZERO) else { unreachable!() };
    let page = ScrubPage { blobs: (1..=count).map(blob).collect(), next: None, end: count + 1 };
    scrubber.page(CLASS, (group, Attempt(1)), page, Time::ZERO);
    scrubber
}

#[test]
fn a_pass_that_could_not_read_a_blob_is_not_complete_and_reads_it_again_with_growing_pauses() {
    let (group, mut now) = (GroupId(0), Time::from_secs(60));
    let mut scrubber = with_page(3);
    for number in 1..=3 {
        assert_eq!(scrubber.next(CLASS, group), Next::Step);
        if number == 2 {
            assert!(scrubber.put_off(CLASS, group, now));
        } else {
            scrubber.done(CLASS, group).unwrap();
        }
    }
    for tries in 0..12 {
        assert_eq!(scrubber.next(CLASS, group), Next::Page);
        assert!(scrubber.list(CLASS, group, Attempt(2), now).is_none(), "there is no more of the list");
        let view = scrubber.views(now).next().unwrap();
        assert!(!view.pass.complete && view.rest_is_done && view.put_off_blobs == 1);
        let Some(Action::PersistScrub { pass, .. }) = scrubber.persist(group).or_else(|| {
            scrubber.groups[0].dirty = true;
            scrubber.persist(group)
        }) else {
            unreachable!()
        };
        assert_eq!((pass.done, pass.counts.blobs), (Some(BlobId::numbered(1)), 1), "a restart goes back to it");
        let pause = PAUSE * (1 << tries.min(DOUBLINGS_MAX));
        assert_eq!(scrubber.deadline(now), now + pause);
        let (before, after) = (now + pause - Duration::from_secs(1), now + pause);
        scrubber.own(CLASS);
        assert!(!scrubber.is_due(group, before) && !scrubber.may_begin(CLASS, group, before, before));
        assert!(scrubber.is_due(group, after) && scrubber.may_begin(CLASS, group, after, after));
        now = after;
        assert_eq!(scrubber.next(CLASS, group), Next::Step);
        assert_eq!(scrubber.at(CLASS).unwrap().blob.blob, BlobId::numbered(2));
        if tries < 11 {
            assert!(scrubber.put_off(CLASS, group, now));
        }
    }
    scrubber.done(CLASS, group).unwrap();
    assert!(scrubber.list(CLASS, group, Attempt(3), now).is_none());
    let view = scrubber.views(now).next().unwrap();
    assert!(view.pass.complete && view.put_off_blobs == 0);
    assert_eq!((view.pass.done, view.pass.counts.blobs), (Some(BlobId::numbered(3)), 3));
}

#[test]
fn what_is_put_off_when_the_period_ends_counts_as_unread_and_the_next_pass_begins() {
    let (group, now) = (GroupId(0), Time::from_secs(60));
    let mut scrubber = with_page(1);
    assert_eq!(scrubber.next(CLASS, group), Next::Step);
    assert!(scrubber.put_off(CLASS, group, now));
    assert!(scrubber.list(CLASS, group, Attempt(2), now).is_none());
    scrubber.begin_due(group, 300, Time::ZERO + PERIOD);
    let view = scrubber.views(Time::ZERO + PERIOD).next().unwrap();
    assert_eq!(view.pass.last.unwrap().counts.unread_stacks, STACKS);
    assert_eq!((view.pass.began, view.put_off_blobs, view.pass.done), (Time::ZERO + PERIOD, 0, None));
    assert_eq!(scrubber.next(CLASS, group), Next::Page, "from the first blob on");
}

#[test]
fn a_pass_waits_where_it_is_once_too_many_blobs_are_put_off() {
    let (group, now) = (GroupId(0), Time::from_secs(60));
    let mut scrubber = with_page(1);
    scrubber.groups[0].put_off.blobs = (10..10 + PUT_OFF_MAX as u64).map(blob).collect();
    scrubber.own(CLASS);
    assert_eq!(scrubber.next(CLASS, group), Next::Step);
    assert!(!scrubber.put_off(CLASS, group, now));
    assert!(!scrubber.may_begin(CLASS, group, now, now) && scrubber.may_begin(CLASS, group, now, now + PAUSE));
    assert_eq!(scrubber.next(CLASS, group), Next::Step);
    assert_eq!(scrubber.at(CLASS).unwrap().blob.blob, BlobId::numbered(1), "and goes on there");
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
