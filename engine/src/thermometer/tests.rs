//! The thermometer against its documentation, one moment at a time.
#![allow(clippy::unwrap_used)]
use super::*;
use alloc::string::ToString;
use alloc::vec;
use model::Rng;

const KB: u64 = 1_000;
const MIN: Duration = Duration::from_mins(1);

/// The paper's rule: older than 2 minutes and larger than 10 KB.
fn line() -> Rule {
    Rule { name: "line".into(), larger_than_bytes: Some(10 * KB), older_than: 2 * MIN, ..Rule::default() }
}

fn facts(bytes: u64, created_ms: u64) -> Facts<'static> {
    let (bucket, key, tags) = ("images", "a/b.jpg", &[]);
    Facts { bucket, key, tags, bytes, created_ms, read_ms: None, reads: 0, is_read_through: false }
}

fn hot_by_default(rules: Vec<Rule>) -> Thermometer {
    Thermometer { rules, default: Temperature::Hot }
}

#[test]
fn the_papers_rule_spares_what_is_young_and_what_is_small() {
    let thermometer = hot_by_default(vec![line()]);
    let young = thermometer.judge(&facts(60 * KB, 1_000), 120_999);
    assert_eq!((young.standing, young.rule), (Standing::Hot, None));
    assert_eq!(young.next, Some(Change { at_ms: 121_000, standing: Standing::Due, rule: 0 }));
    let old = thermometer.judge(&facts(60 * KB, 1_000), 121_000);
    assert_eq!((old.standing, old.rule, old.since_ms, old.next), (Standing::Due, Some(0), 121_000, None));
    let thumbnail = thermometer.judge(&facts(10 * KB, 1_000), u64::MAX);
    assert_eq!((thumbnail.standing, thumbnail.next), (Standing::Hot, None), "never cold, however old");
    assert!(!thermometer.names("images", "a", 10 * KB) && thermometer.names("images", "a", 10 * KB + 1));
}

#[test]
fn without_rules_everything_is_as_without_a_thermometer() {
    let none = Thermometer::default();
    assert!(!none.is_used() && !none.has_cold_rules());
    assert_eq!(none.judge(&facts(5, 0), 9).standing, Standing::Cold);
    assert!(hot_by_default(vec![]).is_used(), "hot by default holds everything back");
}

#[test]
fn of_rules_that_contradict_each_other_the_first_counts() {
    let pinned = Rule { is: Temperature::Hot, prefix: "a/".into(), ..Rule::default() };
    let judge = |rules: Vec<Rule>| hot_by_default(rules).judge(&facts(60 * KB, 0), 600_000);
    let spared = judge(vec![pinned.clone(), line()]);
    assert_eq!((spared.standing, spared.rule, spared.next), (Standing::Hot, Some(0), None));
    let moved = judge(vec![line(), pinned.clone()]);
    assert_eq!((moved.standing, moved.rule), (Standing::Due, Some(0)));
    // A rule further up that comes to hold later takes over.
    let late = Rule { older_than: 30 * MIN, ..pinned };
    let moved = judge(vec![late, line()]);
    assert_eq!((moved.standing, moved.rule, moved.since_ms), (Standing::Due, Some(1), 120_000));
    assert_eq!(moved.next, Some(Change { at_ms: 1_800_000, standing: Standing::Hot, rule: 0 }));
}

#[test]
fn a_clock_that_jumps_neither_cools_what_is_young_nor_keeps_what_is_old() {
    let judge = |created_ms, now_ms| hot_by_default(vec![line()]).judge(&facts(60 * KB, created_ms), now_ms);
    // A second back: it waits a second longer.
    let ahead = judge(101_000, 100_000);
    assert_eq!((ahead.standing, ahead.next.unwrap().at_ms), (Standing::Hot, 221_000));
    // Further back than the rule's age: it would wait until the clock is there again.
    let back = judge(100_000_000, 1_000);
    assert_eq!((back.standing, back.since_ms), (Standing::Due, 0));
    // Ahead: all is older at once, as far as is known.
    assert_eq!(judge(1_000, 100_000_000).since_ms, 121_000);
    assert_eq!(judge(u64::MAX, u64::MAX).next.map(|next| next.at_ms), None, "the end of time is no overflow");
}

#[test]
fn reads_keep_an_object_hot_or_make_it_cold() {
    let unread = Rule { unread_for: 10 * MIN, ..Rule::default() };
    let processed = Rule { read_through: true, ..Rule::default() };
    let often = Rule { is: Temperature::Hot, reads_at_least: 3, ..Rule::default() };
    let thermometer = hot_by_default(vec![often, processed, unread]);
    let of = |read_ms, reads, is_read_through| {
        let facts = Facts { read_ms, reads, is_read_through, ..facts(1, 0) };
        let verdict = thermometer.judge(&facts, 600_000);
        (verdict.standing, verdict.rule)
    };
    assert_eq!(of(None, 0, false), (Standing::Due, Some(2)), "never read, and old");
    assert_eq!(of(Some(300_000), 1, false), (Standing::Hot, None));
    assert_eq!(of(Some(300_000), 1, true), (Standing::Due, Some(1)));
    assert_eq!(of(Some(300_000), 3, true), (Standing::Hot, Some(0)));
}

#[test]
fn all_tags_of_a_rule_must_be_there() {
    let tag = |key: &str, value: &str| (key.to_string(), value.to_string());
    let rule = Rule { tags: vec![tag("a", "1"), tag("b", "2")], ..Rule::default() };
    let thermometer = hot_by_default(vec![rule]);
    let judge = |tags: &[(String, String)]| thermometer.judge(&Facts { tags, ..facts(1, 0) }, 5).standing;
    assert_eq!(judge(&[tag("b", "2"), tag("x", ""), tag("a", "1")]), Standing::Due);
    assert_eq!(judge(&[tag("a", "1"), tag("b", "3")]), Standing::Hot);
}

/// A naive thermometer that follows its documentation, at one time, without since and next.
fn naive(thermometer: &Thermometer, facts: &Facts, now_ms: u64) -> (Standing, Option<usize>) {
    for (index, rule) in thermometer.rules.iter().enumerate() {
        let passed = |from_ms: u64, span: Duration| {
            let (now, from, span) = (i128::from(now_ms), i128::from(from_ms), i128::from(span.as_millis() as u64));
            now - from >= span || from - now > span
        };
        let last_ms = facts.created_ms.max(facts.read_ms.unwrap_or(0));
        let holds = [
            rule.bucket.is_none() || rule.bucket.as_deref() == Some(facts.bucket),
            facts.key.get(..rule.prefix.len()) == Some(&*rule.prefix),
            rule.tags.iter().filter(|tag| facts.tags.contains(tag)).count() == rule.tags.len(),
            rule.larger_than_bytes.is_none() || Some(facts.bytes) > rule.larger_than_bytes,
            facts.bytes < rule.smaller_than_bytes.unwrap_or(u64::MAX),
            passed(facts.created_ms, rule.older_than),
            passed(last_ms, rule.unread_for),
            facts.reads >= rule.reads_at_least,
            !rule.read_through || facts.is_read_through,
        ];
        if holds.iter().all(|holds| *holds) {
            let standing = if rule.is == Temperature::Cold { Standing::Due } else { Standing::Hot };
            return (standing, Some(index));
        }
    }
    (if thermometer.default == Temperature::Hot { Standing::Hot } else { Standing::Cold }, None)
}

fn drawn_rule(rng: &mut Rng) -> Rule {
    let ms = |rng: &mut Rng| Duration::from_millis(if rng.below(2) == 0 { 0 } else { rng.below(20) });
    let size = |rng: &mut Rng| (rng.below(3) == 0).then(|| rng.below(4));
    Rule {
        name: String::new(),
        is: if rng.below(2) == 0 { Temperature::Cold } else { Temperature::Hot },
        bucket: (rng.below(3) == 0).then(|| ["x", "y"][rng.below(2) as usize].into()),
        prefix: ["", "", "a", "ab"][rng.below(4) as usize].into(),
        tags: (0..rng.below(2)).map(|_| ("t".to_string(), rng.below(2).to_string())).collect(),
        larger_than_bytes: size(rng),
        smaller_than_bytes: size(rng),
        older_than: ms(rng),
        unread_for: ms(rng),
        reads_at_least: rng.below(4).saturating_sub(1),
        read_through: rng.below(4) == 0,
    }
}

/// Random rules and facts: the rule that holds is that of the naive thermometer; since when it holds, and the next
/// change, are what the naive thermometer returns for every other time.
#[test]
fn verdicts_are_those_of_a_naive_thermometer_at_every_moment() {
    let (mut changes, mut held) = (0, 0);
    for seed in 0..20_000 {
        let rng = &mut Rng::new(seed);
        let rules: Vec<Rule> = (0..rng.below(5)).map(|_| drawn_rule(rng)).collect();
        let default = if rng.below(2) == 0 { Temperature::Cold } else { Temperature::Hot };
        let thermometer = Thermometer { rules, default };
        let tags = [("t".to_string(), rng.below(2).to_string())];
        let facts = Facts {
            bucket: ["x", "y"][rng.below(2) as usize],
            key: ["a", "abc", "b"][rng.below(3) as usize],
            tags: &tags[..rng.below(2) as usize],
            bytes: rng.below(5),
            created_ms: rng.below(60),
            read_ms: (rng.below(2) == 0).then(|| rng.below(60)),
            reads: rng.below(3),
            is_read_through: rng.below(2) == 0,
        };
        let now_ms = rng.below(60);
        let verdict = thermometer.judge(&facts, now_ms);
        assert_eq!((verdict.standing, verdict.rule), naive(&thermometer, &facts, now_ms), "seed {seed}");
        if !thermometer.names(facts.bucket, facts.key, facts.bytes) {
            assert_eq!(verdict.standing, thermometer.unruled(), "seed {seed}");
        }
        // If no time in the facts is ahead of the clock, later times only make the object older.
        if now_ms < facts.created_ms.max(facts.read_ms.unwrap_or(0)) {
            continue;
        }
        let differs = |at: &u64| naive(&thermometer, &facts, *at).0 != verdict.standing;
        assert_eq!(verdict.next.map(|next| next.at_ms), (now_ms..now_ms + 100).find(differs), "seed {seed}");
        if let Some(next) = verdict.next {
            changes += 1;
            assert_eq!((next.standing, Some(next.rule)), naive(&thermometer, &facts, next.at_ms), "seed {seed}");
        }
        if let Some(rule) = verdict.rule {
            held += 1;
            let holds = |at: u64| matches!(thermometer.rules[rule].state(&facts, at), RuleState::Since(_));
            assert!((verdict.since_ms..=now_ms).all(holds), "seed {seed}");
        }
    }
    assert!(changes > 200 && held > 1_000, "{changes} changes and {held} rules that held are too few to show anything");
}
