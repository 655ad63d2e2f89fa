//! From the values of one case to what is run: here a rack that serves, in `job.rs` a repartition.

mod job;

use super::value::{Meaning, Value};
use super::{Case, Sources, Trial};
use crate::chance::{Popularity, Sizes};
use crate::experiment::{Arrivals, Experiment, Fault, System, Workload};
use crate::links::Network;
use engine::{IdleTimeout, RackPolicy, ReadPolicy, Shares, Weighing};
use model::{DomainId, DomainLimit, DriveId, RackSpec, Resource};
use std::time::Duration;

/// What is wrong with a value, once all are known: the key, and what to write.
pub(super) type Wrong = (&'static str, String);

/// What is run for `case`.
pub(super) fn trial(case: &Case, seeds: &[u64], sources: &mut Sources<'_>) -> Result<Trial, Wrong> {
    if case.word("kind") == "repartition" {
        return Ok(Trial::Repartition(Box::new(job::job(case, seeds, sources)?)));
    }
    Ok(Trial::Service(Box::new(experiment(case, seeds, sources)?)))
}

fn experiment(case: &Case, seeds: &[u64], sources: &mut Sources<'_>) -> Result<Experiment, Wrong> {
    let mut experiment = Experiment::pelican(rack(case, sources)?);
    experiment.system = match case.word("system").as_str() {
        "fully_provisioned" => System::FullyProvisioned,
        "random_layout" => System::RandomLayout,
        _ => System::Engine,
    };
    policy(case, &experiment.rack.clone(), &mut experiment.policy)?;
    experiment.network = network(case);
    experiment.workload = workload(case, sources)?;
    experiment.stored_blobs = case.whole("stored_blobs") as u32;
    experiment.stored_permille = (case.number("stored_share") * 1000.0).round() as u32;
    experiment.warm_up = case.span("warm_up").unwrap_or(Duration::ZERO);
    experiment.duration = case.span("duration").unwrap_or(experiment.duration);
    experiment.fault = fault(case, &experiment.rack)?;
    experiment.seeds = seeds.to_vec();
    Ok(experiment)
}

fn network(case: &Case) -> Network {
    let bytes_per_s = match case.meaning("network.bytes_per_s") {
        Meaning::BytesPerS(rate) => Some(*rate),
        _ => None,
    };
    Network { bytes_per_s, shared: case.flag("network.shared") }
}

/// The rack, with the limits that the scenario sets over all of its drives. They are resources like those of the
/// description, so that the layout is made for them, the ledger grants by them, and the judge of the trace counts them.
fn rack(case: &Case, sources: &mut Sources<'_>) -> Result<RackSpec, Wrong> {
    let name = case.word("rack");
    let set = |key: &'static str| match case.meaning(key) {
        Meaning::Whole(number) => Some(*number as u32),
        _ => None,
    };
    let (groups, watts) = (set("limit.active_groups"), set("limit.watts"));
    let spec = sources.rack(&name).map_err(|told| ("rack", told))?;
    if groups.is_none() && watts.is_none() {
        return Ok(spec);
    }
    let key = if groups.is_some() { "limit.active_groups" } else { "limit.watts" };
    sources.limited((name, groups, watts), || limited(&spec, groups, watts)).map_err(|told| (key, told))
}

fn limited(spec: &RackSpec, groups: Option<u32>, watts: Option<u32>) -> Result<RackSpec, String> {
    let mut draft = (**spec).clone();
    let drives = groups.map(|groups| DomainLimit::ActiveDrives(groups.saturating_mul(draft.group_drives)));
    for (name, limit) in [("limit.active_groups", drives), ("limit.watts", watts.map(DomainLimit::Watts))] {
        let Some(limit) = limit else { continue };
        draft.resources.push(Resource { name: name.to_owned(), limit, hard: true });
        for drive in &mut draft.drives {
            drive.resource_domains.push(DomainId(0));
        }
    }
    let spec = RackSpec::validated(draft).map_err(|error| error.to_string())?;
    engine::layout::synthesise(&spec).map_err(|error| error.to_string())?;
    Ok(spec)
}

fn fault(case: &Case, rack: &RackSpec) -> Result<Option<Fault>, Wrong> {
    if case.word("fault.kind") == "none" {
        return Ok(None);
    }
    let (drive, drives) = (case.whole("fault.drive"), rack.drives.len());
    if drive >= drives as u64 {
        return Err(("fault.drive", format!("the rack has no drive {drive}; write a number from 0 to {}", drives - 1)));
    }
    if case.word("system") == "random_layout" {
        return Err(("fault.kind", "the random layout rebuilds nothing; leave it out of `system`".to_owned()));
    }
    let bytes = case.bytes("fault.stored").unwrap_or(0);
    let blobs = case.whole("fault.blobs") as u32;
    Ok(Some(Fault { drive: DriveId(drive as u32), blobs, bytes }))
}

fn policy(case: &Case, rack: &RackSpec, policy: &mut RackPolicy) -> Result<(), Wrong> {
    let scheduler = &mut policy.scheduler;
    scheduler.weighing = match case.word("policy.weighing").as_str() {
        "operations" => Weighing::Operations,
        "time" => Weighing::Time,
        _ => Weighing::Bytes,
    };
    scheduler.overtake_limit = overtake_limit(case, scheduler.weighing)?;
    scheduler.queue_depth = case.whole("policy.queue_depth") as u32;
    scheduler.wait_limit = case.span("policy.wait_limit");
    scheduler.join_in_service = case.flag("policy.join_in_service");
    scheduler.quantum = case.span("policy.quantum").unwrap_or(scheduler.quantum);
    scheduler.anticipation = case.span("policy.anticipation").unwrap_or_default();
    let share = |lane: &'static str| case.whole(lane) as u32;
    scheduler.shares = Shares {
        client: share("policy.shares.client"),
        rebuild: share("policy.shares.rebuild"),
        background: share("policy.shares.background"),
    };
    if scheduler.shares == (Shares { client: 0, rebuild: 0, background: 0 }) {
        return Err(("policy.shares.client", "all shares are 0; write 1 for the client, say".to_owned()));
    }
    policy.read_policy = if case.word("policy.read_policy") == "k" { ReadPolicy::K } else { ReadPolicy::All };
    policy.idle_timeout = case.span("policy.idle_timeout").map_or(IdleTimeout::Never, IdleTimeout::After);
    policy.starts_per_day = match case.meaning("policy.starts_per_day") {
        Meaning::Whole(starts) => *starts as u32,
        _ => rack.profile.starts_per_day(),
    };
    Ok(())
}

fn overtake_limit(case: &Case, weighing: Weighing) -> Result<u64, Wrong> {
    let (limit, wanted) = match (weighing, case.meaning("policy.overtake_limit")) {
        (Weighing::Bytes, Meaning::Bytes(bytes)) => (Some(*bytes), ""),
        (Weighing::Operations, Meaning::Whole(operations)) => (Some(*operations), ""),
        (Weighing::Time, Meaning::Span(span)) => (u64::try_from(span.as_millis()).ok(), "less"),
        (_, Meaning::Whole(0)) => (Some(0), ""),
        (Weighing::Bytes, _) => (None, "a size such as \"500 GB\""),
        (Weighing::Operations, _) => (None, "a number such as 500"),
        (Weighing::Time, _) => (None, "a duration such as \"5 min\""),
    };
    limit.ok_or_else(|| {
        let weighing = case.word("policy.weighing");
        ("policy.overtake_limit", format!("does not fit weighing = \"{weighing}\"; write {wanted}"))
    })
}

fn workload(case: &Case, sources: &mut Sources<'_>) -> Result<Workload, Wrong> {
    let arrivals = match case.word("workload.arrivals").as_str() {
        "burst" => Arrivals::Burst {
            reads: case.whole("workload.reads") as u32,
            over: case.span("workload.over").unwrap_or(Duration::from_mins(1)),
        },
        "replay" => {
            let Some(Value { meaning: Meaning::Word(path), .. }) = case.values.get("workload.trace") else {
                let told = "a replay needs a trace; write workload.trace = \"trace.csv\"";
                return Err(("workload.arrivals", told.to_owned()));
            };
            Arrivals::Replay(sources.trace(path).map_err(|told| ("workload.trace", told))?)
        }
        _ => Arrivals::poisson(match case.meaning("workload.rate") {
            Meaning::PerS(rate) => *rate,
            _ => 0.0,
        }),
    };
    let sizes = match case.values.get("workload.size").map(|size| &size.meaning) {
        Some(Meaning::Bytes(bytes)) => Sizes::Fixed(*bytes),
        Some(_) => Sizes::VHD,
        None => Sizes::Fixed(1_000_000_000),
    };
    let zipf = case.values.get("workload.zipf_exponent").map(|exponent| &exponent.meaning);
    let popularity = match zipf {
        Some(Meaning::Number(exponent)) => Popularity::Zipf { exponent_permille: (exponent * 1000.0).round() as u32 },
        _ => Popularity::Uniform,
    };
    Ok(Workload { arrivals, sizes, popularity })
}

impl Case {
    /// What the value of a key that always has one means.
    fn meaning(&self, key: &'static str) -> &Meaning {
        let value = self.values.get(key);
        &value.unwrap_or_else(|| panic!("{key} has a value in every case")).meaning
    }

    fn word(&self, key: &'static str) -> String {
        match self.meaning(key) {
            Meaning::Word(word) => word.clone(),
            other => panic!("{key} is a word, and not {other:?}"),
        }
    }

    fn whole(&self, key: &'static str) -> u64 {
        match self.meaning(key) {
            Meaning::Whole(number) => *number,
            other => panic!("{key} is a whole number, and not {other:?}"),
        }
    }

    fn number(&self, key: &'static str) -> f64 {
        match self.meaning(key) {
            Meaning::Number(number) => *number,
            other => panic!("{key} is a number, and not {other:?}"),
        }
    }

    /// A size; `None` for the word that may stand instead.
    fn bytes(&self, key: &'static str) -> Option<u64> {
        match self.meaning(key) {
            Meaning::Bytes(bytes) => Some(*bytes),
            _ => None,
        }
    }

    fn flag(&self, key: &'static str) -> bool {
        *self.meaning(key) == Meaning::Flag(true)
    }

    /// A duration; `None` for the word that may stand instead, or where the key says nothing in this case.
    fn span(&self, key: &'static str) -> Option<Duration> {
        match self.values.get(key)?.meaning {
            Meaning::Span(span) => Some(span),
            _ => None,
        }
    }
}
