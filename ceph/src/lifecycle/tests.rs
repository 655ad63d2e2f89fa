//! Rules that agree, and rules that contradict.
#![allow(clippy::unwrap_used)]
use super::*;

const MIN: Duration = Duration::from_mins(1);

fn cold(older_than: Duration) -> Rule {
    Rule { older_than, ..Rule::default() }
}

fn hot(prefix: &str) -> Rule {
    Rule { is: Temperature::Hot, prefix: prefix.to_owned(), ..Rule::default() }
}

fn of(rules: &[Rule]) -> BucketRules {
    let thermometer = Thermometer { rules: rules.to_vec(), default: Temperature::Hot };
    BucketRules::of(&thermometer, "images", false)
}

/// The ways of the cold rules, and their reasons.
fn ways(rules: &[Rule]) -> Vec<(Way, String)> {
    of(rules).plans.into_iter().map(|plan| (plan.way, plan.reason)).collect()
}

fn facts(key: &str, bytes: u64) -> Facts<'_> {
    let (bucket, tags) = ("images", &[]);
    Facts { bucket, key, tags, bytes, created_ms: 0, read_ms: None, reads: 0, is_read_through: false }
}

#[test]
fn whole_days_are_lifecycles_and_all_else_is_copied() {
    for (older_than, way) in [
        (DAY, Way::Lifecycle { days: 1 }),
        (30 * DAY, Way::Lifecycle { days: 30 }),
        (Duration::ZERO, Way::Copy),
        (2 * MIN, Way::Copy),
        (36 * DAY / 24, Way::Copy),
        (DAY + Duration::from_millis(1), Way::Copy),
        (DAY * 2_000_000_000, Way::Lifecycle { days: 2_000_000_000 }),
    ] {
        assert_eq!(ways(&[cold(older_than)])[0].0, way, "{older_than:?}");
    }
    let large = Rule { larger_than_bytes: Some(10_000), ..cold(DAY) };
    assert_eq!(ways(std::slice::from_ref(&large))[0].0, Way::Copy);
    assert_eq!(of(&[large]).lifecycle("COLD"), None, "RGW 16.2 would drop the size and move everything");
}

#[test]
fn the_configuration_says_what_the_rules_say() {
    let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let tagged = Rule { prefix: "a&b/".to_owned(), tags: vec![tag("kind", "raw"), tag("<", "")], ..cold(2 * DAY) };
    let one = Rule { tags: vec![tag("k", "v")], ..cold(3 * DAY) };
    let xml = of(&[cold(MIN), tagged, one, Rule { prefix: "x".to_owned(), ..cold(DAY) }]).lifecycle("COLD");
    assert_eq!(xml, None, "the first holds whenever one of the others does");
    let prefixed = |rule: Rule| Rule { prefix: format!("p/{}", rule.prefix), ..rule };
    let rules =
        [Rule { prefix: "x".to_owned(), ..cold(DAY) }, prefixed(Rule { tags: vec![tag("<", "")], ..cold(DAY) })];
    assert_eq!(
        of(&rules).lifecycle("COLD").unwrap(),
        "<LifecycleConfiguration><Rule><ID>larder-1</ID><Filter><Prefix>x</Prefix></Filter><Status>Enabled</Status>\
         <Transition><Days>1</Days><StorageClass>COLD</StorageClass></Transition></Rule><Rule><ID>larder-2</ID><Filter>\
         <And><Prefix>p/</Prefix><Tag><Key>&lt;</Key><Value></Value></Tag></And></Filter><Status>Enabled</Status>\
         <Transition><Days>1</Days><StorageClass>COLD</StorageClass></Transition></Rule></LifecycleConfiguration>"
    );
    let whole = of(&[cold(DAY)]).lifecycle("COLD").unwrap();
    assert!(whole.contains("<Filter><Prefix></Prefix></Filter>"), "{whole}");
    assert!(is_own_rule("larder-2") && !is_own_rule("mine"));
}

#[test]
fn facts_that_rgw_has_not_are_refused_by_name() {
    for (rule, fact) in [
        (Rule { unread_for: MIN, ..Rule::default() }, "unread_for"),
        (Rule { reads_at_least: 1, ..Rule::default() }, "reads_at_least"),
        (Rule { read_through: true, ..Rule::default() }, "read_through"),
    ] {
        let said = ways(std::slice::from_ref(&rule));
        assert!(said[0].0 == Way::Refused && said[0].1.contains(fact), "{said:?}");
        assert_eq!(of(&[rule]).due(&facts("a", 1), u64::MAX), None);
    }
}

#[test]
fn a_hot_rule_further_up_keeps_its_objects() {
    let rules = of(&[hot("thumbs/"), cold(DAY)]);
    assert_eq!(rules.plans[0].way, Way::Copy);
    assert!(rules.plans[0].reason.contains("rule 1 calls hot"), "{:?}", rules.plans);
    assert_eq!(rules.due(&facts("thumbs/a", 1), u64::MAX), None);
    assert_eq!(rules.due(&facts("a", 1), u64::MAX).unwrap().number, 2);
    // Where they cannot meet, lifecycle can say it.
    let apart = Rule { prefix: "raw/".to_owned(), ..cold(DAY) };
    assert_eq!(ways(&[hot("thumbs/"), apart])[0].0, Way::Lifecycle { days: 1 });
    // Further down it does not matter.
    assert_eq!(ways(&[cold(DAY), hot("")])[0].0, Way::Lifecycle { days: 1 });
}

#[test]
fn a_rule_that_another_hides_moves_nothing() {
    for before in [hot(""), cold(MIN), Rule { bucket: Some("images".to_owned()), ..hot("a") }] {
        let said = ways(&[before.clone(), Rule { prefix: "a/".to_owned(), ..cold(DAY) }]);
        let (way, reason) = said.last().unwrap();
        assert!(*way == Way::Hidden && reason.contains("rule 1 comes first"), "{before:?}: {said:?}");
    }
    // One that holds later, or elsewhere, does not hide it.
    assert_eq!(ways(&[cold(2 * DAY), cold(DAY)])[1].0, Way::Lifecycle { days: 1 });
    assert_eq!(ways(&[Rule { bucket: Some("x".to_owned()), ..hot("") }, cold(DAY)])[0].0, Way::Lifecycle { days: 1 });
}

#[test]
fn what_may_be_hot_by_an_unknown_fact_is_not_moved() {
    let read = Rule { reads_at_least: 5, ..hot("") };
    let said = ways(&[read.clone(), cold(DAY)]);
    assert!(said[0].0 == Way::Refused && said[0].1.contains("rule 1 comes first and may call it hot"), "{said:?}");
    assert_eq!(of(&[read, cold(DAY)]).due(&facts("a", 1), u64::MAX), None);
    // A cold one before it changes nothing: an object that either calls cold is cold.
    let unread = Rule { unread_for: MIN, ..cold(MIN) };
    let rules = of(&[unread, cold(DAY)]);
    assert_eq!(rules.due(&facts("a", 1), u64::MAX).unwrap().number, 2);
}

#[test]
fn tags_are_lifecycles_or_nobodys() {
    let tagged = Rule { tags: vec![("k".to_owned(), "v".to_owned())], ..cold(MIN) };
    let said = ways(&[tagged]);
    assert!(said[0].0 == Way::Refused && said[0].1.contains("lose the tags"), "{said:?}");
}

#[test]
fn a_lifecycle_of_others_is_not_touched() {
    let thermometer = Thermometer { rules: vec![cold(DAY)], default: Temperature::Cold };
    let rules = BucketRules::of(&thermometer, "images", true);
    assert_eq!((rules.plans[0].way, rules.lifecycle("COLD")), (Way::Copy, None));
    // An object for which no rule holds stays, regardless of the default.
    assert_eq!(rules.due(&facts("a", 1), 0), None);
}

mod copies {
    use super::super::copy::{CREATED, Seen};
    use http::header::{HeaderMap, HeaderName, HeaderValue};

    fn seen(more: &[(&'static str, &'static str)]) -> Seen {
        let usual = [("etag", "\"e\""), ("last-modified", "Wed, 25 Nov 2026 23:05:17 GMT"), ("content-type", "a/b")];
        let mut headers = HeaderMap::new();
        for (name, value) in usual.iter().chain(more) {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Seen { headers, bytes: 60_000, is_private: true }
    }

    #[test]
    fn metadata_and_the_time_of_creation_are_carried_over() {
        let seen = seen(&[("x-amz-meta-who", "me"), ("content-encoding", "gzip"), ("x-amz-request-id", "7")]);
        assert_eq!((seen.obstacle(), seen.class()), (None, "STANDARD"));
        let (source, class) = (HeaderValue::from_static("/b/k"), HeaderValue::from_static("COLD"));
        let headers = seen.request(&source, &class, 1_234);
        let text = |name: &str| headers[name].to_str().unwrap();
        assert_eq!([text("x-amz-meta-who"), text("content-encoding"), text("content-type")], ["me", "gzip", "a/b"]);
        assert_eq!([text(CREATED), text("x-amz-storage-class")], ["1234", "COLD"]);
        assert_eq!([text("x-amz-copy-if-match"), text("x-amz-copy-source-if-match")], ["\"e\""; 2]);
        assert_eq!(text("x-amz-copy-if-unmodified-since"), "Wed, 25 Nov 2026 23:05:17 GMT");
        assert!(!headers.contains_key("x-amz-request-id") && !headers.contains_key("etag"));
    }

    #[test]
    fn what_a_copy_would_lose_is_left_alone() {
        for (name, value) in [
            ("x-amz-tagging-count", "1"),
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-rgw-object-type", "Appendable"),
        ] {
            assert!(seen(&[(name, value)]).obstacle().is_some(), "{name}");
        }
        assert!(Seen { is_private: false, ..seen(&[]) }.obstacle().unwrap().contains("grants"));
        assert!(Seen { bytes: (5 << 30) + 1, ..seen(&[]) }.obstacle().is_some());
    }

    #[test]
    fn a_creation_that_was_noted_counts_unless_it_lies_ahead() {
        assert_eq!(seen(&[(CREATED, "5")]).created_ms(9), 5);
        assert_eq!(seen(&[(CREATED, "10")]).created_ms(9), 9);
        assert_eq!(seen(&[(CREATED, "x")]).created_ms(9), 9);
    }
}

mod windows {
    use super::super::window::is_open;
    use crate::cluster::{OsdId, Pg};
    use model::Time;
    use std::time::Duration;

    fn pg(name: &str, state: &str, acting: [u32; 2], deep_scrubbed: &str) -> Pg {
        let (state, deep_scrubbed, acting) = (state.to_owned(), deep_scrubbed.to_owned(), acting.map(OsdId).to_vec());
        Pg { name: name.to_owned(), pool: 1, state, bytes: 0, writes: 0, acting, deep_scrubbed }
    }

    #[test]
    fn a_window_is_open_when_every_drive_was_scrubbed_lately() {
        // A day and an hour of the Unix epoch.
        let now = Time::from_secs(90_000);
        let (lately, before) = ("1970-01-02T00:55:00.0+0000", "1970-01-02T00:40:00.0+0000");
        let open = |pgs: &[Pg]| is_open(pgs, now, Duration::from_mins(10));
        assert!(!open(&[]));
        assert!(open(&[pg("1.0", "active+clean", [0, 3], lately), pg("1.1", "active+clean", [3, 0], before)]));
        assert!(open(&[pg("1.0", "active+clean+scrubbing+deep", [0, 3], before)]));
        assert!(!open(&[pg("1.0", "active+clean+scrubbing", [0, 3], before)]));
        assert!(!open(&[pg("1.0", "active+clean", [0, 3], lately), pg("1.1", "active+clean", [0, 4], before)]));
    }
}
