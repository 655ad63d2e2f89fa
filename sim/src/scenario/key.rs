//! The keys that a scenario may set, with their defaults. `docs/papers/simulator.md` lists them for users.

use super::value::Kind;

/// A key of a scenario.
#[derive(Debug)]
pub struct Key {
    /// Its name, with the name of its table: `policy.queue_depth`.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// Its value if it is not set, in scenario notation; `None` if it must be set.
    pub default: Option<&'static str>,
    /// The key on which this one depends, and the words of that key with which this one applies; an empty word means
    /// that the other key does not apply itself.
    pub when: Option<(&'static str, &'static [&'static str])>,
}

const fn key(name: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { name, kind, default: Some(default), when: None }
}

impl Key {
    const fn when(self, key: &'static str, values: &'static [&'static str]) -> Self {
        Self { when: Some((key, values)), ..self }
    }

    /// The rank in the order of evaluation: a key comes after the key that decides whether it applies. The kinds of
    /// scenario and of hardware come first; keys of equal rank are in the order of [`KEYS`].
    pub(super) fn depth(&self) -> usize {
        match self.when {
            _ if self.name == KIND => 0,
            _ if self.name == HARDWARE => 1,
            Some((on, _)) if on != KIND && on != HARDWARE => 3,
            _ => 2,
        }
    }

    /// The key of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }
}

/// A word in [`Key::when`]: the other key does not apply.
pub const UNSET: &str = "";

const KIND: &str = "kind";
const SERVICE: &[&str] = &["service"];
const REPARTITION: &[&str] = &["repartition"];
const FILL: &[&str] = &["fill"];
const COPY: &[&str] = &["copy"];
/// The kinds with a working rack.
const WORKS: &[&str] = &["service", "repartition", "copy"];
/// The choice between synthetic groups and those of a rack.
const HARDWARE: &str = "repartition.hardware";
const GROUPS: &[&str] = &["groups"];
/// The words with which keys of a described rack apply.
const DESCRIBED: &[&str] = &["rack", UNSET];
const ARRIVALS: &str = "workload.arrivals";
const DRAWN: &[&str] = &["poisson", "burst"];
const COUNT: u64 = u32::MAX as u64;

/// All keys, in the order of reports.
pub const KEYS: &[Key] = &[
    key(KIND, Kind::Word(&["service", "repartition", "fill", "copy"]), "\"service\""),
    key("rack", Kind::Name("a shipped rack's name, or the path of a description"), "\"pelican\"")
        .when(HARDWARE, DESCRIBED),
    key("system", Kind::Word(&["engine", "fully_provisioned", "random_layout"]), "\"engine\"").when(KIND, SERVICE),
    key("stored_blobs", Kind::Whole(1, 10_000_000), "24000").when(KIND, SERVICE),
    key("stored_share", Kind::Number(1.0), "1.0").when(KIND, SERVICE),
    key("warm_up", Kind::SpanOr("none"), "\"6 h\"").when(ARRIVALS, &["poisson"]),
    key("duration", Kind::Span, "\"24 h\"").when(ARRIVALS, &["poisson"]),
    key("workload.arrivals", Kind::Word(&["poisson", "burst", "replay"]), "\"poisson\"").when(KIND, SERVICE),
    key("workload.rate", Kind::Frequency, "1").when(ARRIVALS, &["poisson"]),
    key("workload.backlog", Kind::Whole(0, 10_000_000), "0").when(ARRIVALS, &["poisson"]),
    key("workload.reads", Kind::Whole(1, 10_000_000), "100").when(ARRIVALS, &["burst"]),
    key("workload.over", Kind::Span, "\"60 s\"").when(ARRIVALS, &["burst"]),
    Key { default: None, ..key("workload.trace", Kind::Name("the path of a CSV file"), "") }
        .when(ARRIVALS, &["replay"]),
    key("workload.size", Kind::SizeOr("vhd"), "\"1 GB\"").when(ARRIVALS, DRAWN),
    key("workload.popularity", Kind::Word(&["uniform", "zipf"]), "\"uniform\"").when(ARRIVALS, DRAWN),
    key("workload.zipf_exponent", Kind::Number(10.0), "1.0").when("workload.popularity", &["zipf"]),
    key(
        "repartition.strategy",
        Kind::Word(&["planner", "baseline", "buffpack", "offpack", "fillpack", "tourpack"]),
        "\"planner\"",
    )
    .when(KIND, REPARTITION),
    key("repartition.data", Kind::Size, "\"100 TB\"").when(KIND, REPARTITION),
    key("repartition.memory", Kind::Size, "\"8 GB\"").when(KIND, REPARTITION),
    key("repartition.alpha", Kind::Number(1_000.0), "1.0").when(KIND, REPARTITION),
    key("repartition.input_skew", Kind::Number(10.0), "0").when(KIND, REPARTITION),
    key("repartition.output_skew", Kind::Number(10.0), "0").when(KIND, REPARTITION),
    key(HARDWARE, Kind::Word(&["groups", "rack"]), "\"groups\"").when(KIND, REPARTITION),
    key("repartition.groups", Kind::Whole(1, 1_000), "12").when(HARDWARE, GROUPS),
    key("repartition.switch", Kind::Span, "\"10 s\"").when(HARDWARE, GROUPS),
    key("repartition.switch_spread", Kind::Number(1.0), "0").when(HARDWARE, GROUPS),
    key("repartition.rate", Kind::Rate, "\"1 GB/s\"").when(HARDWARE, GROUPS),
    key("repartition.seek", Kind::Span, "\"10 ms\"").when(HARDWARE, GROUPS),
    key("repartition.read_back", Kind::Flag, "false").when(KIND, REPARTITION),
    key("repartition.operation", Kind::SizeOr("whole"), "\"whole\"").when(KIND, REPARTITION),
    key("repartition.reads_per_s", Kind::Number(1_000.0), "0").when(KIND, REPARTITION),
    key("repartition.read_size", Kind::Size, "\"1 GB\"").when(KIND, REPARTITION),
    key("fill.size", Kind::SizeOr("vhd"), "\"vhd\"").when(KIND, FILL),
    key("fill.drives", Kind::Word(&["most_spare", "random"]), "\"most_spare\"").when(KIND, FILL),
    key("fill.capacity_min", Kind::SizeOr("described"), "\"described\"").when(KIND, FILL),
    key("fill.capacity_max", Kind::SizeOr("described"), "\"described\"").when(KIND, FILL),
    key("fill.capacity_draws", Kind::Whole(1, 16), "2").when(KIND, FILL),
    key("fill.clipped", Kind::Flag, "false").when(KIND, FILL),
    key("copy.objects", Kind::Whole(1, 100_000), "3000").when(KIND, COPY),
    key("copy.object", Kind::Size, "\"10 MB\"").when(KIND, COPY),
    key("copy.at_once", Kind::Whole(1, 1_000), "10").when(KIND, COPY),
    key("copy.order", Kind::Word(&["key", "place"]), "\"key\"").when(KIND, COPY),
    key("copy.spool", Kind::Size, "\"50 GB\"").when(KIND, COPY),
    key("copy.read_ahead", Kind::Flag, "true").when(KIND, COPY),
    key("copy.others_per_s", Kind::Number(1_000.0), "0").when(KIND, COPY),
    key("copy.others_size", Kind::Size, "\"10 MB\"").when(KIND, COPY),
    key("policy.overtake_limit", Kind::Limit, "\"500 GB\"").when(KIND, WORKS),
    key("policy.weighing", Kind::Word(&["bytes", "operations", "time", "service_time"]), "\"bytes\"").when(KIND, WORKS),
    key("policy.queue_depth", Kind::Whole(1, COUNT), "1000").when(KIND, WORKS),
    key("policy.read_policy", Kind::Word(&["all", "k"]), "\"all\"").when(KIND, WORKS),
    key("policy.idle_timeout", Kind::SpanOr("never"), "\"never\"").when(KIND, WORKS),
    key("policy.wait_limit", Kind::SpanOr("never"), "\"never\"").when(KIND, WORKS),
    key("policy.join_in_service", Kind::Flag, "false").when(KIND, WORKS),
    key("policy.quantum", Kind::Span, "\"60 s\"").when(KIND, WORKS),
    key("policy.anticipation", Kind::SpanOr("none"), "\"none\"").when(KIND, WORKS),
    key("policy.overload", Kind::Word(&["none", "shed", "widen"]), "\"none\"").when(KIND, WORKS),
    key("policy.overload_from", Kind::Number(1.0), "0.75").when("policy.overload", &["shed", "widen"]),
    key("policy.overload_until", Kind::Number(1.0), "0.25").when("policy.overload", &["shed", "widen"]),
    key("policy.overload_times", Kind::Whole(1, COUNT), "4").when("policy.overload", &["widen"]),
    key("policy.shares.client", Kind::Whole(0, COUNT), "1").when(KIND, WORKS),
    key("policy.shares.rebuild", Kind::Whole(0, COUNT), "1").when(KIND, WORKS),
    key("policy.shares.background", Kind::Whole(0, COUNT), "1").when(KIND, WORKS),
    key("policy.starts_per_day", Kind::WholeOr("rated"), "\"rated\"").when(KIND, WORKS),
    key("limit.active_groups", Kind::WholeOr("none"), "\"none\"").when(HARDWARE, DESCRIBED),
    key("limit.watts", Kind::WholeOr("none"), "\"none\"").when(HARDWARE, DESCRIBED),
    key("drives.group_drives", Kind::WholeOr("described"), "\"described\"").when(HARDWARE, DESCRIBED),
    key("drives.straggler_share", Kind::Number(1.0), "0").when(HARDWARE, DESCRIBED),
    key("drives.straggler_max", Kind::Span, "\"60 s\"").when(HARDWARE, DESCRIBED),
    key("drives.rate_spread", Kind::Number(0.5), "0").when(HARDWARE, DESCRIBED),
    key("drives.zone_spread", Kind::Number(0.5), "0").when(HARDWARE, DESCRIBED),
    key("fault.kind", Kind::Word(&["none", "drive"]), "\"none\"").when(KIND, SERVICE),
    key("fault.drive", Kind::Whole(0, COUNT), "0").when("fault.kind", &["drive"]),
    key("fault.blobs", Kind::Whole(1, 10_000_000), "64329").when("fault.kind", &["drive"]),
    key("fault.stored", Kind::Size, "\"4.28 TB\"").when("fault.kind", &["drive"]),
    key("network.bytes_per_s", Kind::RateOr("unbounded"), "\"20 Gb/s\"").when(HARDWARE, DESCRIBED),
    key("network.shared", Kind::Flag, "false").when(HARDWARE, DESCRIBED),
];

/// Keys that are not parameters of a point.
pub const OTHER_KEYS: &[&str] = &["question", "seeds", "plot.x", "plot.y", "plot.series", "plot.x_scale", "plot.log_y"];

/// The names of all keys.
pub fn known() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).chain(OTHER_KEYS.iter().copied()).collect()
}
