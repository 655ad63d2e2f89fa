//! A reference map beside the intake, and the states that a crash may leave.
#![allow(dead_code, reason = "each test uses some of it")]

use intake::medium::memory::World;
use intake::{Change, Config, Intake, Sequence};
use model::{Rng, Time};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The content of each key, and the number of the change that wrote it.
pub type Reference = BTreeMap<Vec<u8>, (Sequence, Vec<u8>, Vec<u8>)>;

/// Small logs, so that much happens.
pub fn config(seed: u64) -> Config {
    let began = Instant::now();
    let clock = move || Time::from_nanos(began.elapsed().as_nanos() as u64);
    Config { log_bytes: 12 << 10, fan_in: 3, ..Config::new(u128::from(seed) << 70 | u128::from(seed + 1), clock) }
}

/// Everything that is there.
pub fn contents(intake: &Intake) -> Reference {
    let all = intake.scan(b"", None).map(|item| item.expect("nothing is damaged"));
    all.map(|(key, stored)| (key, (stored.sequence, stored.entry, stored.value))).collect()
}

/// Single reads agree with `reference`, which is what is there.
pub fn check(intake: &Intake, reference: &Reference) {
    for number in 0..KEYS {
        let key = key(number);
        let found = intake.get(&key).expect("nothing is damaged");
        assert_eq!(
            found.as_ref().map(|f| (f.sequence, f.entry.clone(), f.value.clone())),
            reference.get(&key).cloned()
        );
        let head = intake.head(&key).expect("nothing is damaged");
        assert_eq!(head.as_ref().map(|h| (h.sequence, &h.entry)), found.as_ref().map(|f| (f.sequence, &f.entry)));
        let Some(found) = found else { continue };
        let length = found.value.len() as u64;
        let part = intake.get_range(&key, length / 3..length + 5).expect("nothing is damaged").expect("it is there");
        assert_eq!((part.value.as_slice(), part.value_bytes), (&found.value[(length / 3) as usize..], length));
    }
}

const KEYS: u64 = 60;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:03}").into_bytes()
}

/// A change, and the positions of the journal between which it was acknowledged.
struct Done {
    submitted: usize,
    answered: usize,
    /// The contents with it.
    after: Reference,
}

/// A run of random operations.
pub struct Run {
    before: Reference,
    done: Vec<Done>,
    last: Sequence,
}

impl Run {
    pub fn new() -> Self {
        Self::after(Reference::new(), Sequence(0))
    }

    /// A run that begins with these contents.
    pub fn after(before: Reference, last: Sequence) -> Self {
        Self { before, done: Vec::new(), last }
    }

    /// The contents now.
    pub fn reference(&self) -> Reference {
        self.done.last().map_or(&self.before, |done| &done.after).clone()
    }

    /// The contents that a crash at `position` may leave: all that was acknowledged before, and of what was under way a
    /// beginning.
    pub fn allowed(&self, position: usize) -> Vec<Reference> {
        let certain = self.done.iter().take_while(|done| done.answered <= position).count();
        let possible = self.done.iter().take_while(|done| done.submitted <= position).count();
        assert!(certain <= possible);
        let state = |count: usize| if count == 0 { &self.before } else { &self.done[count - 1].after };
        (certain..=possible).map(|count| state(count).clone()).collect()
    }

    /// One step: some changes at once, or a rotation.
    pub fn step(&mut self, intake: &Intake, world: &World, rng: &mut Rng) {
        match rng.below(40) {
            0 => intake.flush().expect("there is room"),
            1 => drop(intake.rotate()),
            _ => self.changes(intake, world, rng),
        }
        if rng.below(10) == 0 {
            let (from, to) = (key(rng.below(KEYS)), key(rng.below(KEYS)));
            let found = intake.scan(&from, Some(&to)).map(|item| item.expect("nothing is damaged").0);
            let reference = self.reference();
            let expected = reference.keys().filter(|key| from <= **key && **key < to);
            assert!(found.eq(expected.cloned()));
        }
    }

    fn changes(&mut self, intake: &Intake, world: &World, rng: &mut Rng) {
        let submitted = world.position();
        let mut acks = Vec::new();
        let mut reference = self.reference();
        for _ in 0..=rng.below(4) {
            self.last = Sequence(self.last.0 + 1);
            let change = change(rng, self.last);
            apply(&mut reference, &change, self.last);
            acks.push((intake.submit(change, None).expect("there is room"), self.last, reference.clone()));
        }
        for (ack, expected, after) in acks {
            assert_eq!(ack.wait().expect("the drives work"), expected);
            self.done.push(Done { submitted, answered: world.position(), after });
        }
    }
}

fn change(rng: &mut Rng, sequence: Sequence) -> Change {
    match rng.below(20) {
        0..=2 => Change::Delete { key: key(rng.below(KEYS)), entry: Vec::new() },
        3 => {
            let from = rng.below(KEYS);
            let to = (rng.below(5) > 0).then(|| key(from + rng.below(20)));
            Change::Forget { from: key(from), to, up_to: Sequence(sequence.0.saturating_sub(rng.below(60))) }
        }
        _ => {
            let length = if rng.below(10) == 0 { rng.below(20_000) } else { rng.below(600) };
            let value = (0..length).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>().into();
            Change::Put { key: key(rng.below(KEYS)), entry: sequence.0.to_le_bytes().to_vec(), value }
        }
    }
}

fn apply(reference: &mut Reference, change: &Change, sequence: Sequence) {
    match change {
        Change::Put { key, entry, value } => {
            reference.insert(key.clone(), (sequence, entry.clone(), value.to_vec()));
        }
        Change::Delete { key, .. } => {
            reference.remove(key);
        }
        Change::Forget { from, to, up_to } => reference.retain(|key, (written, ..)| {
            let is_in = from <= key && to.as_ref().is_none_or(|to| key < to);
            !is_in || *written > *up_to
        }),
    }
}

/// Puts these keys, and records their numbers.
pub fn put_many(intake: &Intake, written: &mut BTreeMap<Vec<u8>, Sequence>, keys: std::ops::Range<u64>) {
    for number in keys {
        let key = format!("key/{number:05}").into_bytes();
        let sequence = intake.put(&key, b"entry", &vec![number as u8; 300]).expect("some drive takes it");
        written.insert(key, sequence);
    }
}

/// Waits until background work has done something; fails if it does not within 5 s.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_so(), "it has not come to pass");
}
