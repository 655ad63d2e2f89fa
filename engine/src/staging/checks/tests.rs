//! The policy against a naive world that does what it requests, and keeps lists where it keeps counters.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::action::Action;
use crate::event::{StagedEntry, Usage};
use crate::policy::{MigrationPolicy, PinnedTo};
use crate::testing;
use crate::thermometer::{Heat, Rule, Temperature, Thermometer};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use model::OpId;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const KB: u64 = 1_000;
const MB: u64 = 1_000_000;
const EVERY: Duration = Duration::from_secs(1_000);
const MEMORY: u64 = 3 * MB;

#[derive(Clone, Copy, Debug)]
struct Version {
    bytes: u64,
    is_due: bool,
    is_damaged: bool,
    staged: Time,
}

/// A pass, as lists.
#[derive(Clone, Debug, Default)]
struct Pass {
    begun: Time,
    /// The versions that were read, and what was.
    read: Vec<(u64, u64)>,
    taken_bytes: u64,
    /// True if a crash or a failed page may have caused a version to be read twice.
    may_repeat: bool,
}

/// A page or a listing that is requested.
#[derive(Clone, Debug)]
struct Page {
    attempt: Attempt,
    take: Option<Taking>,
    bytes_max: u64,
    asked: Time,
    restart: bool,
}

struct World {
    now: Time,
    load: u32,
    /// The load that was reported last.
    reported: u32,
    every: Option<Duration>,
    checker: Checker,
    migrator: Migrator,
    versions: BTreeMap<u64, Version>,
    quarantined: BTreeSet<u64>,
    next_version: u64,
    page: Option<Page>,
    listing: Option<Attempt>,
    measuring: Option<Attempt>,
    /// The last version that was passed, and the same as far as it is durable.
    cursor: Option<u64>,
    durable: Option<(CheckProgress, Option<u64>)>,
    held: BTreeMap<u64, u64>,
    packs: BTreeMap<OpId, (Vec<u64>, u64)>,
    pass: Option<Pass>,
    /// Pages as they were read: their bytes and their time.
    rates: Vec<(u64, Duration)>,
    passes: u64,
    saved: u64,
    capacity_bytes: u64,
}

fn policy(due_with_checks: bool) -> MigrationPolicy {
    MigrationPolicy {
        regular_permille: 300,
        critical_permille: 800,
        pack_bytes: 2 * MB,
        pack_members: 20,
        linger: 60 * SECOND,
        window: 2,
        scan_interval: 10 * SECOND,
        thermometer: Thermometer { rules: vec![Rule::default()], default: Temperature::Hot },
        due_with_checks,
        ..testing::quiet_policy().migration
    }
}

impl World {
    fn new(due_with_checks: bool) -> Self {
        let mut world = Self {
            now: Time::from_secs(5),
            load: 0,
            reported: 0,
            every: Some(EVERY),
            checker: Checker::new(CheckPolicy::default(), SECOND),
            migrator: Migrator::new(policy(due_with_checks)),
            versions: BTreeMap::new(),
            quarantined: BTreeSet::new(),
            next_version: 0,
            page: None,
            listing: None,
            measuring: None,
            cursor: None,
            durable: None,
            held: BTreeMap::new(),
            packs: BTreeMap::new(),
            pass: None,
            rates: Vec::new(),
            passes: 0,
            saved: 0,
            capacity_bytes: 100 * MB,
        };
        world.boot();
        world
    }

    fn boot(&mut self) {
        self.checker = Checker::new(CheckPolicy { every: self.every, memory_bytes: MEMORY }, 10 * SECOND);
        self.migrator = Migrator::new(self.migrator.policy.clone());
        (self.page, self.listing, self.measuring) = (None, None, None);
        self.held.clear();
        self.packs.clear();
        self.rates.clear();
        if let Some((progress, cursor)) = self.durable {
            self.checker.reported(self.now, progress);
            self.cursor = cursor;
        }
        // A version that was read counts as unread if that is not persisted.
        if let Some(pass) = &mut self.pass {
            pass.may_repeat = true;
            pass.taken_bytes = 0;
        }
    }

    fn staged_bytes(&self) -> u64 {
        self.versions.values().map(|version| version.bytes).sum()
    }

    fn poll(&mut self) {
        self.migrator.usage = Usage { staged_bytes: self.staged_bytes(), capacity_bytes: self.capacity_bytes };
        let mut actions = vec![];
        self.checker.poll(self.now, || false, &mut self.migrator, &mut actions);
        self.migrator.poll(self.now, || false, &mut actions);
        self.obey(actions);
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::MeasureLoad { attempt } => {
                    assert!(self.measuring.replace(attempt).is_none() && self.page.is_none(), "one answer is awaited");
                }
                Action::CheckStaged { attempt, take, limit, bytes_max, load_limit_permille, restart } => {
                    assert!(limit == CHECK_PAGE_ENTRIES && self.page.is_none() && self.measuring.is_none());
                    self.asked(load_limit_permille.is_none(), restart);
                    self.page = Some(Page { attempt, take, bytes_max, asked: self.now, restart });
                }
                Action::ListStaged { attempt, .. } => {
                    assert!(self.held.is_empty(), "no listing shows what a ride has in memory");
                    self.listing = Some(attempt);
                }
                Action::Compose { op, versions, .. } => {
                    let others: BTreeSet<u64> = self.packs.values().flat_map(|pack| pack.0.clone()).collect();
                    assert!(versions.iter().all(|version| !others.contains(version)), "nothing is packed twice");
                    let mut held = 0;
                    for version in &versions {
                        held += self.held.remove(version).unwrap_or(0);
                    }
                    self.saved += held;
                    self.packs.insert(op, (versions, held));
                }
                Action::ReleaseChecked => self.held.clear(),
                Action::PersistChecks { progress } => self.durable = Some((progress, self.cursor)),
                other => panic!("{other:?} is not asked for here"),
            }
            let memory: u64 = self.held.values().sum::<u64>() + self.packs.values().map(|pack| pack.1).sum::<u64>();
            assert!(memory <= MEMORY, "{memory} bytes are in memory");
        }
    }

    /// A page is requested: checks that it is time for it, and that it may be read at this load.
    fn asked(&mut self, whatever_the_load: bool, restart: bool) {
        let every = self.every.unwrap();
        let begun = self.checker.progress.begun;
        if self.pass.is_none() || restart && self.pass.as_ref().is_some_and(|pass| pass.begun != begun) {
            let last = self.durable.map_or(Time::ZERO, |(progress, _)| progress.begun + every);
            assert!(self.passes == 0 || begun >= last, "a pass begins a period after the one before it");
            let may_repeat = self.pass.is_some();
            self.pass = Some(Pass { begun, may_repeat, ..Pass::default() });
        }
        let pass = self.pass.as_ref().unwrap();
        let read: u64 = pass.read.iter().map(|(_, bytes)| bytes).sum();
        let mut rate = FIRST_BYTES_S;
        for (bytes, took) in self.rates.iter().filter(|(bytes, _)| *bytes > 0) {
            rate = rate - rate / 8 + (u128::from(*bytes) * 1_000_000_000 / took.as_nanos().max(1)) as u64 / 8;
        }
        let left = self.staged_bytes().saturating_sub(read.saturating_sub(pass.taken_bytes));
        let overdue = self.now + 2 * transfer_time(left, rate) >= pass.begun + every;
        if !pass.may_repeat {
            assert_eq!(whatever_the_load, overdue, "{left} bytes are left at {rate} bytes/s");
        }
        assert!(self.reported < LOAD_LIMIT_PERMILLE || whatever_the_load, "clients come first");
    }

    /// Answers the requested page, with at most `entries_max` versions.
    fn answer_page(&mut self, entries_max: usize) {
        let Some(page) = self.page.take() else { return };
        if page.restart {
            self.cursor = None;
        }
        let from = self.cursor.map_or(0, |cursor| cursor + 1);
        let packed: BTreeSet<u64> = self.packs.values().flat_map(|pack| pack.0.clone()).collect();
        let (mut entries, mut read, mut free) = (vec![], 0, page.take.map_or(0, |take| take.hold_bytes));
        let mut more = false;
        for (number, version) in self.versions.range(from..) {
            if entries.len() == entries_max.min(CHECK_PAGE_ENTRIES as usize) || read >= page.bytes_max {
                more = true;
                break;
            }
            let skipped = packed.contains(number) || self.quarantined.contains(number);
            let result = match () {
                () if skipped => CheckResult::Skipped,
                () if version.is_damaged => CheckResult::Damaged,
                () => CheckResult::Sound,
            };
            let due = Heat::Due(self.now.since(version.staged));
            let takes = page.take.is_some_and(|take| version.is_due && version.bytes >= take.min_bytes);
            let taken = takes && result == CheckResult::Sound;
            let held = taken && held_cost(version.bytes) <= free;
            if taken && !held && held_cost(version.bytes) <= page.take.map_or(0, |take| take.hold_bytes) {
                more = true;
                break;
            }
            self.cursor = Some(*number);
            free -= if held { held_cost(version.bytes) } else { 0 };
            let pin = PinnedTo::Anywhere;
            let heat = if version.is_due { due } else { Heat::Hot };
            let entry =
                StagedEntry { version: *number, bytes: version.bytes, age: self.now.since(version.staged), pin, heat };
            if result != CheckResult::Skipped {
                read += version.bytes;
                let pass = self.pass.as_mut().unwrap();
                let again = pass.read.iter().any(|(read, _)| read == number);
                assert!(!again || pass.may_repeat, "version {number} is read once in a pass");
                pass.read.push((*number, version.bytes));
                pass.taken_bytes += if taken { version.bytes } else { 0 };
            }
            if result == CheckResult::Damaged {
                self.quarantined.insert(*number);
            }
            if held {
                self.held.insert(*number, held_cost(version.bytes));
            }
            entries.push(CheckedEntry { entry, result, taken, held });
        }
        self.rates.push((read, self.now.since(page.asked)));
        self.reported = self.load;
        let mut actions = vec![];
        let answer = CheckedPage { attempt: page.attempt, entries: &entries, more, load_permille: self.load };
        self.checker.checked(self.now, &answer, &mut self.migrator, &mut actions);
        let passes_before = self.checker.totals.passes;
        self.checker.checked(self.now, &answer, &mut self.migrator, &mut actions);
        assert_eq!(self.checker.totals.passes, passes_before, "an answer counts once");
        self.obey(actions);
        if !more {
            self.pass_ended();
        }
    }

    /// Everything that was there all the while was read.
    fn pass_ended(&mut self) {
        let pass = self.pass.take().unwrap();
        let packed: BTreeSet<u64> = self.packs.values().flat_map(|pack| pack.0.clone()).collect();
        for (number, version) in &self.versions {
            let was_there = version.staged < pass.begun;
            let is_read = pass.read.iter().any(|(read, _)| read == number);
            let need_not = packed.contains(number) || self.quarantined.contains(number);
            assert!(!was_there || is_read || need_not, "version {number} was not read");
        }
        assert!(self.checker.progress.ended.is_some() && self.durable.unwrap().0.ended.is_some());
        assert!(self.held.is_empty(), "nothing stays in memory between passes but for what is written");
        self.passes += 1;
    }

    fn stage(&mut self, bytes: u64, is_due: bool) {
        let version = Version { bytes, is_due, is_damaged: false, staged: self.now };
        // In any order of keys.
        let number = (self.next_version * 7919) % 100_003;
        self.next_version += 1;
        self.versions.insert(number, version);
    }

    fn end_pack(&mut self, well: bool) {
        let Some(op) = self.packs.keys().next().copied() else { return };
        let (versions, _) = self.packs.remove(&op).unwrap();
        self.migrator.ended(self.now, op, well);
        for version in versions.iter().filter(|_| well) {
            self.versions.remove(version);
        }
    }

    fn answer_others(&mut self) {
        if let Some(attempt) = self.measuring.take() {
            self.reported = self.load;
            self.checker.measured(self.now, attempt, self.load);
        }
        if let Some(attempt) = self.listing.take() {
            let mut actions = vec![];
            self.migrator.page(self.now, attempt, (&[], false), &mut actions);
            self.obey(actions);
        }
    }

    /// Lets time pass in steps of a second, in which everything is answered at once.
    fn run_for(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.poll();
            self.answer_others();
            self.poll();
            self.answer_page(usize::MAX);
            self.end_pack(true);
            self.now += SECOND;
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(ms) => self.now += Duration::from_millis(ms.into()),
            Step::Load(load) => self.load = load,
            Step::Stage(kb, is_due) => self.stage(u64::from(kb) * KB, is_due),
            Step::Damage(nth) => {
                if let Some(version) = self.versions.values_mut().nth(nth.into()) {
                    version.is_damaged = true;
                }
            }
            Step::Page(entries) => self.answer_page(entries.into()),
            Step::FailPage => {
                if let Some(page) = self.page.take() {
                    self.checker.unchecked(self.now, page.attempt);
                    self.pass.iter_mut().for_each(|pass| pass.may_repeat = true);
                }
            }
            Step::Answer => self.answer_others(),
            Step::EndPack(well) => self.end_pack(well),
            Step::Crash => self.boot(),
        }
        self.poll();
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u32),
    Load(u32),
    Stage(u16, bool),
    Damage(u8),
    Page(u8),
    FailPage,
    Answer,
    EndPack(bool),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..60_000_u32).prop_map(Step::Wait),
        2 => prop_oneof![0..500_u32, 500..=1000_u32].prop_map(Step::Load),
        6 => (1..3_000_u16, any::<bool>()).prop_map(|(kb, is_due)| Step::Stage(kb, is_due)),
        1 => (0..20_u8).prop_map(Step::Damage),
        10 => (1..20_u8).prop_map(Step::Page),
        1 => Just(Step::FailPage),
        12 => Just(Step::Answer),
        4 => prop::bool::weighted(0.9).prop_map(Step::EndPack),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Under any sequence of events the rules of [`World`] hold, and every pass ends once the events stop.
    #[test]
    fn passes_keep_to_load_memory_and_period(
        steps in prop::collection::vec(step(), 1..300),
        due_with_checks in any::<bool>(),
        final_load in prop_oneof![Just(0_u32), Just(1000)],
    ) {
        let mut world = World::new(due_with_checks);
        for step in steps {
            world.step(step);
        }
        let before = world.passes;
        world.load = final_load;
        world.run_for(3_100);
        prop_assert!(world.passes >= before + 2, "{} passes in three periods", world.passes - before);
        let unseen = world.versions.iter().filter(|(_, at)| at.is_damaged).map(|(number, _)| number);
        prop_assert!(unseen.copied().all(|number| world.quarantined.contains(&number)), "damage is found");
    }
}

#[test]
fn what_is_due_is_handed_over_from_memory() {
    let mut world = World::new(true);
    for number in 0..40 {
        world.stage(200 * KB, number % 2 == 0);
    }
    world.now += 100 * SECOND;
    world.run_for(20);
    assert_eq!((world.passes, world.versions.len()), (1, 20), "what is hot stays");
    // 3 MB of memory: packs of 2 MB are on their way before the next ones are gathered.
    assert_eq!(world.saved, 20 * held_cost(200 * KB));
}

#[test]
fn without_memory_it_moves_all_the_same() {
    let mut world = World::new(true);
    world.checker.policy.memory_bytes = 0;
    for _ in 0..40 {
        world.stage(200 * KB, true);
    }
    world.now += 100 * SECOND;
    world.run_for(20);
    assert_eq!((world.passes, world.versions.len(), world.saved), (1, 0, 0));
}

#[test]
fn under_load_a_pass_waits_until_it_is_overdue_and_then_does_not() {
    let mut world = World::new(false);
    world.run_for(10);
    assert_eq!(world.passes, 1, "of an empty workshop");
    world.load = LOAD_LIMIT_PERMILLE;
    world.stage(MB, false);
    world.run_for(1_900);
    assert_eq!(world.passes, 1);
    assert_eq!(world.checker.view(world.now, MB).state, CheckState::Busy);
    world.run_for(200);
    assert_eq!((world.passes, world.checker.totals.overdue_pages), (2, 1), "its period was nearly over");
}

#[test]
fn a_start_goes_on_where_the_last_run_was() {
    let mut world = World::new(false);
    for _ in 0..10 {
        world.stage(MB, false);
    }
    world.now += SECOND;
    for _ in 0..2 {
        world.poll();
        world.answer_others();
        world.poll();
        world.now += PERSIST_INTERVAL;
        world.answer_page(4);
    }
    assert_eq!(world.durable.unwrap().0.objects, 8);
    world.boot();
    world.pass.as_mut().unwrap().may_repeat = false;
    world.run_for(5);
    assert_eq!((world.passes, world.checker.progress.objects, world.checker.totals.objects), (1, 10, 2));
}

#[test]
fn above_the_critical_threshold_the_ride_ends_and_what_is_in_memory_is_let_go() {
    let mut world = World::new(false);
    for _ in 0..20 {
        world.stage(300 * KB, true);
    }
    world.now += SECOND;
    world.poll();
    // The migrator's own listing was first.
    world.answer_others();
    world.now += SECOND;
    world.poll();
    world.answer_others();
    world.poll();
    world.answer_page(3);
    world.poll();
    assert!(world.held.len() == 3 && world.page.is_some(), "{:?}", world.held);
    world.stage(90 * MB, false);
    world.now += 20 * SECOND;
    world.poll();
    assert!(world.held.is_empty() && world.listing.is_some());
    world.answer_page(3);
    assert!(world.held.is_empty(), "the page that was on its way comes too late");
}

#[test]
fn a_clock_that_was_set_back_does_not_put_a_pass_off() {
    let mut checker = Checker::new(CheckPolicy { every: Some(EVERY), memory_bytes: 0 }, SECOND);
    let late = Time::from_secs(90_000);
    let progress = CheckProgress { begun: late, ended: Some(late), last_ended: Some(late), ..CheckProgress::default() };
    checker.reported(Time::from_secs(50), progress);
    assert_eq!(checker.deadline(), Time::from_secs(50) + EVERY);
    assert_eq!(Checker::new(CheckPolicy::default(), SECOND).deadline(), Time::MAX);
}
