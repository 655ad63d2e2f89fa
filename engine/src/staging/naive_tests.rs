//! The migrator with its order and its selection, and the pacer, against naive models of both.
//!
//! The model of the migrator keeps a plain list of the staged versions, sorts it again whenever a listing starts, and
//! derives from that list and the thresholds alone what may be composed. Random clients put, read, and wait; packs end
//! well or fail. The world of the test hands out pages of a few versions as the real ones do. The model of the pacer
//! keeps every request and every block, and goes through all of them for each answer.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

use super::pacing::{Admission, DELAY_MAX, Pacer, PacingPolicy};
use super::*;
use crate::policy::MoveOrder;
use crate::thermometer::{Rule, Thermometer};
use alloc::collections::BTreeSet;
use alloc::vec;
use model::ClassId;
use proptest::prelude::*;

const CAPACITY: u64 = 100_000;
const PAGE: usize = 3;

/// A staged version.
#[derive(Clone, Copy, Debug)]
struct Staged {
    bytes: u64,
    since: Time,
    is_processed: bool,
    heat: Heat,
    pin: PinnedTo,
}

/// Operations of clients and drives.
#[derive(Clone, Debug)]
enum Step {
    Put { bytes: u64, heat: u8, pinned: bool },
    Read(usize),
    Wait(u64),
    ClientsWait(bool),
    Load(u32),
    End { pack: usize, well: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1_u64..16_000, 0_u8..6, any::<bool>())
            .prop_map(|(bytes, heat, pinned)| Step::Put { bytes, heat, pinned }),
        3 => any::<prop::sample::Index>().prop_map(|which| Step::Read(which.index(1000))),
        6 => (1_u64..120).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::ClientsWait),
        1 => (0_u32..1001).prop_map(Step::Load),
        6 => (any::<prop::sample::Index>(), 0_u8..8)
            .prop_map(|(pack, fate)| Step::End { pack: pack.index(1000), well: fate > 0 }),
    ];
    prop::collection::vec(step, 1..200)
}

fn policies() -> impl Strategy<Value = MigrationPolicy> {
    let thresholds = (0_u32..600, 0_u32..400, any::<bool>());
    let shape = (2_000_u64..12_000, 1_u32..6, 1_u32..6, 0_u64..3_000);
    (thresholds, shape, any::<bool>(), 0_u8..3, prop::option::of(10_u64..200)).prop_map(
        |((regular, gap, drains), (pack_bytes, pack_members, window, min_bytes), by_age, default, due)| {
            let default_heat = if default == 0 { Temperature::Hot } else { Temperature::Cold };
            MigrationPolicy {
                due_age: due.map(Duration::from_secs),
                min_age: Duration::from_secs(5),
                min_bytes,
                regular_permille: regular,
                critical_permille: regular + gap,
                drained_permille: drains.then_some(regular / 2),
                order: if by_age { MoveOrder::Age } else { MoveOrder::Processed },
                pack_bytes,
                pack_members,
                linger: Duration::from_secs(20),
                window,
                scan_interval: Duration::from_secs(5),
                thermometer: Thermometer { rules: vec![Rule::default()], default: default_heat },
                due_with_checks: false,
            }
        },
    )
}

/// The expected result of a listing.
#[derive(Clone, Copy, Debug)]
struct Asked {
    older_than: Duration,
    coldest_bytes: Option<u64>,
    hot_bytes: u64,
    min_bytes: u64,
}

/// A listing that was started: its reason, the versions that may be composed, and those not handed out yet.
#[derive(Clone, Debug, Default)]
struct Listing {
    /// The share of the capacity at which a threshold's move ends, in thousandths; `None` is: what is due.
    ends_at_permille: Option<u32>,
    is_critical: bool,
    allowed: BTreeSet<u64>,
    left: Vec<u64>,
    composed: BTreeSet<u64>,
    /// Bytes of the last version that is allowed: as much may be beyond what is too much.
    last_bytes: u64,
    excess_bytes: u64,
}

struct Naive {
    policy: MigrationPolicy,
    migrator: Migrator,
    now: Time,
    staged: BTreeMap<u64, Staged>,
    packs: BTreeMap<OpId, Vec<u64>>,
    next: u64,
    clients_wait: bool,
    load_permille: u32,
    listing: Listing,
    failed_at: Option<Time>,
    /// The time since which the regular threshold alone could have moved something, and did not.
    put_off: Option<Time>,
}

impl Naive {
    fn new(policy: MigrationPolicy) -> Self {
        Self {
            migrator: Migrator::new(policy.clone()).awaiting_idleness(),
            policy,
            now: Time::from_secs(1),
            staged: BTreeMap::new(),
            packs: BTreeMap::new(),
            next: 1,
            clients_wait: false,
            load_permille: 0,
            listing: Listing::default(),
            failed_at: None,
            put_off: None,
        }
    }

    fn bytes(&self, of: impl Iterator<Item = u64>) -> u64 {
        of.map(|version| self.staged[&version].bytes).sum()
    }

    fn used(&self) -> u64 {
        self.bytes(self.staged.keys().copied())
    }

    fn is_packed(&self, version: u64) -> bool {
        self.packs.values().flatten().any(|packed| *packed == version)
    }

    fn is_above(&self, permille: u32) -> bool {
        self.used() * 1000 > CAPACITY * u64::from(permille)
    }

    /// Bytes that must leave for the workshop to be at this share, beyond those on their way.
    fn excess(&self, permille: u32) -> u64 {
        let leaving = self.bytes(self.packs.values().flatten().copied());
        self.used().saturating_sub(CAPACITY * u64::from(permille) / 1000).saturating_sub(leaving)
    }

    /// Processed first, then the oldest; or by age alone.
    fn sorted(&self) -> Vec<(u64, Staged)> {
        let mut all: Vec<(u64, Staged)> = self.staged.iter().map(|(version, staged)| (*version, *staged)).collect();
        all.sort_by_key(|(_, staged)| {
            let comes_later = self.policy.order == MoveOrder::Processed && !staged.is_processed;
            (comes_later, staged.since)
        });
        all
    }

    /// Versions in no pack that are old enough, in the order of moving.
    fn free(&self, asked: Asked) -> Vec<(u64, Staged)> {
        let is_free = |(version, staged): &(u64, Staged)| staged.bytes >= asked.min_bytes && !self.is_packed(*version);
        self.sorted().into_iter().filter(is_free).collect()
    }

    /// The result of a listing with these parameters, by the words of its documentation.
    fn listed(&self, asked: Asked) -> (Vec<u64>, u64) {
        let Asked { older_than, coldest_bytes, hot_bytes, .. } = asked;
        let free = self.free(asked);
        let is_due = |staged: &Staged| matches!(staged.heat, Heat::Due(_));
        let mut taken: Vec<u64> =
            free.iter().filter(|(_, staged)| is_due(staged)).map(|(version, _)| *version).collect();
        let mut sum = self.bytes(taken.iter().copied());
        let mut last_bytes = 0;
        for heat in [Heat::Cold, Heat::Hot] {
            for (version, staged) in free.iter().filter(|(_, staged)| staged.heat == heat) {
                let is_old = heat == Heat::Hot || self.now.since(staged.since) >= older_than;
                let enough = coldest_bytes.is_some_and(|most| sum >= most) || (heat == Heat::Hot && sum >= hot_bytes);
                let hot_for_what_is_due = heat == Heat::Hot && coldest_bytes.is_none();
                if is_old && !enough && !hot_for_what_is_due {
                    taken.push(*version);
                    (sum, last_bytes) = (sum + staged.bytes, staged.bytes);
                }
            }
        }
        taken.sort_unstable(); // in key order
        (taken, last_bytes)
    }

    /// Polls the migrator and executes its actions until it has no more.
    fn go_on(&mut self) {
        self.migrator.usage = Usage { staged_bytes: self.used(), capacity_bytes: CAPACITY };
        loop {
            let mut actions = vec![];
            let clients_wait = self.clients_wait;
            self.migrator.poll(self.now, || clients_wait, &mut actions);
            if actions.is_empty() {
                break;
            }
            while !actions.is_empty() {
                let mut more = vec![];
                actions.drain(..).for_each(|action| self.obey(action, &mut more));
                actions = more;
            }
        }
    }

    fn obey(&mut self, action: Action, more: &mut Vec<Action>) {
        match action {
            Action::MeasureLoad { attempt } => self.migrator.measured(self.now, attempt, self.load_permille),
            Action::ListStaged { attempt, older_than, coldest_bytes, hot_bytes, min_bytes, restart, .. } => {
                if restart {
                    self.begin_listing(Asked { older_than, coldest_bytes, hot_bytes, min_bytes });
                }
                let page: Vec<u64> = self.listing.left.drain(..PAGE.min(self.listing.left.len())).collect();
                let entry = |version: &u64| {
                    let Staged { bytes, since, heat, pin, .. } = self.staged[version];
                    StagedEntry { version: *version, bytes, age: self.now.since(since), pin, heat }
                };
                let entries: Vec<StagedEntry> = page.iter().filter(|v| !self.is_packed(**v)).map(entry).collect();
                self.migrator.page(self.now, attempt, (&entries, !self.listing.left.is_empty()), more);
            }
            Action::Compose { op, versions, pin } => self.compose(op, versions, pin),
            other => panic!("{other:?}"),
        }
    }

    fn begin_listing(&mut self, asked: Asked) {
        let Asked { older_than, coldest_bytes, hot_bytes, min_bytes } = asked;
        assert!(self.failed_at.is_none_or(|until| self.now >= until), "a rack that failed is left alone");
        let (regular, critical) = (self.policy.regular_permille, self.policy.critical_permille);
        let drained = self.policy.drained_permille.unwrap_or(regular);
        let may_be_cold = self.policy.thermometer.default == Temperature::Cold;
        let is_critical = self.is_above(critical) && self.excess(drained) > 0;
        // Finds the threshold that is a reason now, if any: nothing moves for one that is not exceeded.
        let ends_at_permille = coldest_bytes.map(|_| if is_critical { drained } else { regular });
        if let Some(ends_at) = ends_at_permille {
            let excess = self.excess(ends_at);
            assert!(self.is_above(regular), "nothing moves for a threshold's sake below the regular one");
            assert_eq!(coldest_bytes, Some(excess), "no more is asked for than is too much");
            if !is_critical {
                assert!(may_be_cold && !self.clients_wait, "clients come first between the thresholds");
                let was_put_off = self.put_off.is_some_and(|since| self.now.since(since) >= idleness::PUT_OFF_MAX);
                let is_idle = self.load_permille < idleness::IDLE_PERMILLE;
                assert!(is_idle || was_put_off, "and nobody is in the workshop");
                self.put_off = self.put_off.filter(|_| !is_idle);
            }
        }
        assert!(hot_bytes == 0 || is_critical, "hot data moves above the critical threshold alone");
        assert!(hot_bytes < self.excess(critical) + self.policy.pack_bytes, "and no more than a pack too many");
        assert!(
            (older_than, min_bytes) == (Duration::ZERO, 0) || !is_critical,
            "above it neither age nor length matters"
        );
        let (left, last_bytes) = self.listed(asked);
        // A world that lists by `Selection` lists the same.
        assert_eq!(self.selected(asked), left);
        self.listing = Listing {
            ends_at_permille,
            is_critical,
            allowed: left.iter().copied().collect(),
            left,
            composed: BTreeSet::new(),
            last_bytes,
            excess_bytes: ends_at_permille.map_or(0, |ends_at| self.excess(ends_at)),
        };
    }

    /// As a world does it.
    fn selected(&self, asked: Asked) -> Vec<u64> {
        let Asked { older_than, coldest_bytes, hot_bytes, .. } = asked;
        let mut selection = Selection::new(coldest_bytes, hot_bytes);
        let rank = |staged: &Staged| {
            let rank = MoveRank::new(self.policy.order, staged.is_processed, staged.since);
            if staged.heat == Heat::Hot { rank.hot() } else { rank }
        };
        let is_old = |staged: &Staged| self.now.since(staged.since) >= older_than;
        let free = self.free(asked);
        let of = |is_kind: fn(Heat) -> bool| free.iter().filter(move |(_, staged)| is_kind(staged.heat));
        if selection.counts() {
            of(|heat| matches!(heat, Heat::Due(_))).for_each(|(_, staged)| selection.add_due(staged.bytes));
        }
        for (_, staged) in of(|heat| heat == Heat::Cold).filter(|(_, staged)| is_old(staged)) {
            if selection.wants_cold() {
                selection.add(rank(staged), staged.bytes);
            }
        }
        for (_, staged) in of(|heat| heat == Heat::Hot) {
            if selection.wants_hot() {
                selection.add(rank(staged), staged.bytes);
            }
        }
        let is_taken = |(_, staged): &&(u64, Staged)| {
            (staged.heat != Heat::Cold || is_old(staged)) && selection.takes(staged.heat, rank(staged))
        };
        let mut taken: Vec<u64> = free.iter().filter(is_taken).map(|(version, _)| *version).collect();
        taken.sort_unstable();
        taken
    }

    fn compose(&mut self, op: OpId, versions: Vec<u64>, pin: PinnedTo) {
        for version in &versions {
            let staged = self.staged[version];
            assert!(!self.is_packed(*version), "{version} is in two packs");
            assert!(self.listing.composed.insert(*version), "{version} is named twice in one listing");
            assert!(self.listing.allowed.contains(version), "{version} was not its turn");
            assert_eq!(staged.pin, pin, "a pack has one pin");
            assert!(staged.bytes >= self.policy.min_bytes || self.listing.is_critical, "small ones stay");
            assert!(staged.heat != Heat::Hot || self.listing.is_critical, "hot data moves above critical alone");
        }
        let bytes = self.bytes(versions.iter().copied());
        assert!(versions.len() == 1 || bytes <= self.policy.pack_bytes, "a pack is no larger than it may be");
        assert!(versions.len() <= self.policy.pack_members as usize);
        self.packs.insert(op, versions);
        self.moves_no_more_than_too_much();
    }

    /// A threshold moves no more than the excess and its last version; versions due by a rule do not count.
    fn moves_no_more_than_too_much(&self) {
        let Some(_) = self.listing.ends_at_permille else { return };
        let cold = self.listing.composed.iter().copied().filter(|v| !matches!(self.staged[v].heat, Heat::Due(_)));
        let cold_bytes = self.bytes(cold);
        assert!(cold_bytes < self.listing.excess_bytes + self.listing.last_bytes.max(1), "{cold_bytes} left at once");
    }

    fn end(&mut self, pack: usize, well: bool) {
        let Some(op) = self.packs.keys().nth(pack % self.packs.len().max(1)).copied() else { return };
        let versions = self.packs.remove(&op).unwrap();
        if well {
            // A composed version that has left is not there to be named again.
            self.staged.retain(|version, _| !versions.contains(version));
            self.listing.composed.retain(|version| !versions.contains(version));
        } else {
            self.failed_at = Some(self.now + BACKOFF);
            self.listing.composed.retain(|version| !versions.contains(version));
        }
        self.migrator.ended(self.now, op, well);
        assert!(well || self.migrator.deadline() >= self.now + BACKOFF, "a rack that failed is left alone");
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put { bytes, heat, pinned } if self.used() + bytes <= CAPACITY => {
                let heat = match heat {
                    0 => Heat::Hot,
                    1 => Heat::Due(Duration::from_secs(9)),
                    _ => Heat::Cold,
                };
                let pin = if pinned { PinnedTo::Class(ClassId(0)) } else { PinnedTo::Anywhere };
                // Numbers say nothing about ages.
                let version = self.next.wrapping_mul(7_919) % 100_003;
                let staged = Staged { bytes, since: self.now, is_processed: false, heat, pin };
                assert!(self.staged.insert(version, staged).is_none());
                self.next += 1;
                self.now += Duration::from_millis(1);
            }
            Step::Put { .. } => {}
            Step::Read(which) => {
                let count = self.staged.len().max(1);
                self.staged.values_mut().nth(which % count).into_iter().for_each(|staged| staged.is_processed = true);
            }
            Step::Wait(seconds) => self.now += Duration::from_secs(seconds),
            Step::ClientsWait(wait) => self.clients_wait = wait,
            // Polls within a scan interval use the load of the last measurement.
            Step::Load(load_permille) => {
                self.load_permille = load_permille;
                self.now += self.policy.scan_interval;
            }
            Step::End { pack, well } => self.end(pack, well),
        }
        self.go_on();
        self.note_put_off();
    }

    fn note_put_off(&mut self) {
        if self.is_above(self.policy.regular_permille) {
            self.put_off.get_or_insert(self.now);
        } else {
            self.put_off = None;
        }
    }

    /// Above the critical threshold data moves, even if clients wait, until the workshop is no longer above it.
    fn drains(&mut self) {
        let mut in_vain = 0;
        while self.is_above(self.policy.critical_permille) {
            let before = self.used();
            self.now = self.now.max(self.migrator.deadline().min(self.now + Duration::from_mins(1)));
            self.go_on();
            while !self.packs.is_empty() {
                self.end(0, true);
                self.go_on();
            }
            // A listing for another reason that was under way may end first.
            in_vain = if self.used() < before { 0 } else { in_vain + 1 };
            assert!(in_vain < 5, "above the critical threshold nothing waits");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// See the head of this file: every action is judged when it is executed.
    #[test]
    fn the_migrator_moves_what_a_sorted_list_says(policy in policies(), steps in steps()) {
        let mut naive = Naive::new(policy);
        for step in &steps {
            naive.step(step);
        }
        // Clients wait and are busy, and no write fails any more.
        (naive.clients_wait, naive.load_permille) = (true, 1000);
        naive.drains();
        // No client is present or arrives: at the end all of the excess has left.
        (naive.clients_wait, naive.load_permille) = (false, 0);
        for _ in 0..200 {
            naive.now += Duration::from_mins(1);
            naive.go_on();
            while !naive.packs.is_empty() {
                naive.end(0, true);
                naive.go_on();
            }
        }
        let policy = &naive.policy;
        let may_go = |staged: &&Staged| staged.heat != Heat::Hot && staged.bytes >= policy.min_bytes;
        let could_go: u64 = naive.staged.values().filter(may_go).map(|staged| staged.bytes).sum();
        // Less than half a pack of a pin is not worth a blob for this threshold.
        if policy.thermometer.default == Temperature::Cold && could_go > policy.pack_bytes {
            prop_assert!(naive.excess(policy.regular_permille) <= policy.pack_bytes, "too much is left");
        }
    }
}

/// A pacer that forgets nothing.
#[derive(Default)]
struct Log {
    /// When each request came and left.
    requests: Vec<(Time, Option<Time>)>,
    /// When each block began and ended, its bytes, and whether it freed anything.
    blocks: Vec<(Time, Time, u64, bool)>,
}

impl Log {
    fn idle_from(&self, policy: &PacingPolicy) -> Time {
        let mut last = Time::ZERO;
        for (_, left) in &self.requests {
            let Some(left) = left else { return Time::MAX };
            last = last.max(*left);
        }
        last + policy.idle_after
    }

    fn share_above(policy: &PacingPolicy, usage: Usage) -> f64 {
        let critical = usage.capacity_bytes as f64 * f64::from(policy.critical_permille) / 1000.0;
        ((usage.staged_bytes as f64 - critical) / (usage.capacity_bytes as f64 - critical).max(1.0)).clamp(0.0, 1.0)
    }

    fn next_block(&self, policy: &PacingPolicy, usage: Usage, now: Time) -> Time {
        let idle_from = self.idle_from(policy);
        let above = Self::share_above(policy, usage);
        if idle_from <= now {
            return now;
        }
        if above == 0.0 && policy.awaits_idle {
            return idle_from;
        }
        let Some((began, ended, ..)) = self.blocks.last() else { return now };
        // Shares are whole thousandths.
        let least = f64::from(policy.busy_permille);
        let share = (least + ((1000.0 - least) * above + 1e-9).floor()) / 1000.0;
        let rest = ended.since(*began).as_secs_f64() * (1.0 - share) / share;
        (*ended + Duration::from_secs_f64(rest)).min(idle_from).max(now)
    }

    /// Bytes a second, pauses counted; each block is a sixteenth of what was known before.
    fn drain_rate(&self) -> f64 {
        let mut rate = 0.0;
        for (nth, (began, ended, bytes, frees)) in self.blocks.iter().enumerate().filter(|(_, block)| block.3) {
            let took = ended.since(*began);
            let before = if nth == 0 { *began } else { self.blocks[nth - 1].1 };
            let since = before.max(*began - 16 * took);
            let this = *bytes as f64 / ended.since(since).as_secs_f64().max(1e-9);
            rate = if rate == 0.0 { this } else { rate * 15.0 / 16.0 + this / 16.0 };
            assert!(*frees);
        }
        rate
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_pacer_answers_as_one_that_forgets_nothing(
        busy_permille in 1_u32..1001,
        critical_permille in 0_u32..1001,
        awaits_idle in any::<bool>(),
        steps in prop::collection::vec((0_u8..5, 1_u32..3_000, 0_u64..1_001), 1..120),
    ) {
        let idle_after = Duration::from_millis(700);
        let policy = PacingPolicy { block_bytes: 1_000, idle_after, busy_permille, critical_permille, awaits_idle };
        let (mut pacer, mut log, mut now) = (Pacer::new(policy), Log::default(), Time::from_secs(1));
        let capacity_bytes = 1_000_000;
        for (kind, ms, permille) in steps {
            now += Duration::from_millis(ms.into());
            let usage = Usage { staged_bytes: permille * capacity_bytes / 1000, capacity_bytes };
            let here = log.requests.iter().position(|(_, left)| left.is_none());
            match (kind, here) {
                (0 | 1, _) => {
                    pacer.client_came(now);
                    log.requests.push((now, None));
                }
                (2, Some(nth)) => {
                    pacer.client_left(now);
                    log.requests[nth].1 = Some(now);
                }
                (3 | 4, _) => {
                    let began = pacer.next_block(now, usage);
                    if began != Time::MAX {
                        now = began.max(now) + Duration::from_millis(1 + u64::from(ms) / 50);
                        let frees = kind == 3;
                        if frees {
                            pacer.copied(now, began, 1_000 + permille);
                        } else {
                            pacer.checked(now, began);
                        }
                        log.blocks.push((began, now, 1_000 + permille, frees));
                    }
                }
                _ => {}
            }
            let (said, expected) = (pacer.next_block(now, usage), log.next_block(&policy, usage, now));
            if expected == Time::MAX {
                prop_assert_eq!(said, expected);
            } else {
                let apart = said.max(expected).since(said.min(expected));
                prop_assert!(apart <= Duration::from_micros(1), "{said} and {expected}");
            }
            let bytes = 1 + permille * 50;
            let fits = usage.staged_bytes + bytes <= capacity_bytes;
            match pacer.admission(usage, bytes) {
                Admission::Stopped => prop_assert!(!fits, "admission stops where nothing fits"),
                Admission::After(delay) => {
                    prop_assert!(fits && delay <= DELAY_MAX);
                    let (above, rate) = (Log::share_above(&policy, usage), log.drain_rate());
                    let is_free = above == 0.0 || rate == 0.0;
                    let expected = if is_free { 0.0 } else { bytes as f64 / rate * above / (1.0 - above) };
                    let expected = expected.min(DELAY_MAX.as_secs_f64());
                    let apart = (delay.as_secs_f64() - expected).abs();
                    prop_assert!(apart <= 0.02 * expected + 1e-6, "{delay:?} and {expected} s");
                }
            }
        }
    }
}
