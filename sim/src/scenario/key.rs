//! The keys that a scenario may set, with their defaults. `docs/simulator.md` is the list for people.

use super::value::Kind;

/// A key of a scenario.
#[derive(Debug)]
pub struct Key {
    /// Its name, with that of its table: `policy.queue_depth`.
    pub name: &'static str,
    /// What may be written for it.
    pub kind: Kind,
    /// What holds where it is not set, as it would be written; `None` where it must be.
    pub default: Option<&'static str>,
    /// The key and the values of it without which this one says nothing.
    pub when: Option<(&'static str, &'static [&'static str])>,
}

const fn key(name: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { name, kind, default: Some(default), when: None }
}

impl Key {
    const fn when(self, key: &'static str, values: &'static [&'static str]) -> Self {
        Self { when: Some((key, values)), ..self }
    }

    /// The key of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }
}

const ARRIVALS: &str = "workload.arrivals";
const DRAWN: &[&str] = &["poisson", "burst"];
const COUNT: u64 = u32::MAX as u64;

/// All keys, in the order in which reports have them.
pub const KEYS: &[Key] = &[
    key("rack", Kind::Name("a shipped rack's name, or the path of a description"), "\"pelican\""),
    key("system", Kind::Word(&["engine", "fully_provisioned", "random_layout"]), "\"engine\""),
    key("stored_blobs", Kind::Whole(1, 10_000_000), "24000"),
    key("stored_share", Kind::Number(1.0), "1.0"),
    key("warm_up", Kind::SpanOr("none"), "\"6 h\"").when(ARRIVALS, &["poisson"]),
    key("duration", Kind::Span, "\"24 h\"").when(ARRIVALS, &["poisson"]),
    key("workload.arrivals", Kind::Word(&["poisson", "burst", "replay"]), "\"poisson\""),
    key("workload.rate", Kind::Frequency, "1").when(ARRIVALS, &["poisson"]),
    key("workload.reads", Kind::Whole(1, 10_000_000), "100").when(ARRIVALS, &["burst"]),
    key("workload.over", Kind::Span, "\"60 s\"").when(ARRIVALS, &["burst"]),
    Key {
        name: "workload.trace",
        kind: Kind::Name("the path of a CSV file"),
        default: None,
        when: Some((ARRIVALS, &["replay"])),
    },
    key("workload.size", Kind::SizeOr("vhd"), "\"1 GB\"").when(ARRIVALS, DRAWN),
    key("workload.popularity", Kind::Word(&["uniform", "zipf"]), "\"uniform\"").when(ARRIVALS, DRAWN),
    key("workload.zipf_exponent", Kind::Number(10.0), "1.0").when("workload.popularity", &["zipf"]),
    key("policy.overtake_limit", Kind::Limit, "\"500 GB\""),
    key("policy.weighing", Kind::Word(&["bytes", "operations", "time"]), "\"bytes\""),
    key("policy.queue_depth", Kind::Whole(1, COUNT), "1000"),
    key("policy.read_policy", Kind::Word(&["all", "k"]), "\"all\""),
    key("policy.idle_timeout", Kind::SpanOr("never"), "\"never\""),
    key("policy.join_in_service", Kind::Flag, "false"),
    key("policy.quantum", Kind::Span, "\"60 s\""),
    key("policy.shares.client", Kind::Whole(0, COUNT), "1"),
    key("policy.shares.rebuild", Kind::Whole(0, COUNT), "1"),
    key("policy.shares.background", Kind::Whole(0, COUNT), "1"),
    key("policy.starts_per_day", Kind::WholeOr("rated"), "\"rated\""),
    key("limit.active_groups", Kind::WholeOr("none"), "\"none\""),
    key("limit.watts", Kind::WholeOr("none"), "\"none\""),
    key("fault.kind", Kind::Word(&["none", "drive"]), "\"none\""),
    key("fault.drive", Kind::Whole(0, COUNT), "0").when("fault.kind", &["drive"]),
    key("fault.blobs", Kind::Whole(1, 10_000_000), "64329").when("fault.kind", &["drive"]),
    key("fault.stored", Kind::Size, "\"4.28 TB\"").when("fault.kind", &["drive"]),
    key("network.bytes_per_s", Kind::RateOr("unbounded"), "\"20 Gb/s\""),
    key("network.shared", Kind::Flag, "false"),
];

/// Keys that are no parameters of a point.
pub const OTHER_KEYS: &[&str] = &["question", "seeds", "plot.x", "plot.y", "plot.series", "plot.x_scale", "plot.log_y"];

/// Every key there is.
pub fn known() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).chain(OTHER_KEYS.iter().copied()).collect()
}
